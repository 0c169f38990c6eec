"""The three problems with natural domains that figures are quoted for: schools, neighbourhoods, kinds of text."""

from __future__ import annotations

from mixtune.bench._problem import Problem
from mixtune.data.real import load_ames, load_exam, load_sentiment
from mixtune.errors import ParameterError

__all__ = ["PROBLEMS", "named_problem"]

PROBLEMS = ("exam", "ames", "vader")


def named_problem(name: str, *, cache: str | None = None, progress: bool = False) -> Problem:
    """Load a problem by name.

    Parameters
    ----------
    name
        "exam": 20 pupils of each of the 9 schools with 88 or more; "ames": 20 sales in each of the 10 neighbourhoods
        with 125 or more; "vader": 50 texts of each of four sources, behind a frozen sentence encoder, with 1,000 of
        each other source.
    cache, progress
        Of :func:`mixtune.data.real.load_sentiment`, for "vader".

    Raises
    ------
    MissingExtraError
        If the package that holds the data is not installed.

    Examples
    --------
    >>> problem = named_problem("exam")
    >>> problem.n_train, problem.focal
    (20, ('7', '8', '14', '15', '16', '17', '18', '22', '49'))
    """
    if name == "exam":
        schools = load_exam()
        return Problem(name, schools, 20, tuple(school.name for school in schools if school.n_rows >= 88))
    if name == "ames":
        places = load_ames()
        return Problem(name, places, 20, tuple(place.name for place in places if place.n_rows >= 125))
    if name == "vader":
        texts = load_sentiment(cache=cache, progress=progress)
        return Problem(name, texts, 50, texts.names, source_rows=1000)
    raise ParameterError(f"problem={name!r} is unknown; choose from {', '.join(PROBLEMS)}")
