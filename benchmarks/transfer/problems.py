"""From domains to cases: which one is focal, which rows train and test, which sources mislead; the named problems.

The draws of a case come from one generator, ``default_rng(1000 * seed + index)``, where the index is that of the focal
domain among those that take this role. In this order: a permutation of the focal rows; where there are too many
sources, which of them are kept; where sources are capped, a permutation of each source's rows, in order; and for the
variant "flip", which half of the sources (rounded down) has its target reflected about its mean, or its two classes
swapped. So any case can be made again on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.transfer.tables import CLASSES, load_table
from mixtune.arrays import Floats
from mixtune.data import Domain, Domains
from mixtune.data.real import load_ames, load_exam, load_sentiment
from mixtune.errors import DataError, ParameterError

PROBLEMS = ("exam", "ames", "vader")
VARIANTS = ("clean", "flip")
#: A domain is chosen as focal by default only if so many of its rows are left for testing.
LEAST_TEST = 40
#: Of :func:`known_problem`: rows of a source, at least; sources, at most; rows of all of them together, about; and the
#: smallest and largest share of these that one source has, as far as it has so many rows.
LEAST_SOURCE, MOST_SOURCES, ALL_SOURCES, SOURCE_ROWS = 10, 40, 3000, (30, 500)


@dataclass(frozen=True, eq=False)
class Problem:
    """Domains with one output, and how they are made into cases.

    Parameters
    ----------
    name
        What tables call it.
    domains
        All domains; which of them is focal there does not matter here.
    n_train
        Training rows of the focal domain.
    focal
        Names of the domains that take the focal role, in order.
    n_test
        Test rows of the focal domain, at most.
    source_rows
        Rows of each source, at most; all of them by default.
    most_sources
        How many of the other domains are sources of a case, drawn at random; all of them by default.
    classes
        Whether the target is a class, 0 or 1, for which methods predict the probability of 1.

    Examples
    --------
    >>> from mixtune.data import make_domains
    >>> domains = make_domains(n_domains=4, n_rows=30, n_source_rows=30, seed=0).domains
    >>> Problem("made", domains, n_train=10, focal=domains.names[:2]).focal == domains.names[:2]
    True
    """

    name: str
    domains: Domains
    n_train: int
    focal: tuple[str, ...]
    n_test: int = 1000
    source_rows: int | None = None
    most_sources: int | None = None
    classes: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "focal", tuple(self.focal))
        least = {"n_train": (self.n_train, 5), "n_test": (self.n_test, 2)}
        optional = {"source_rows": self.source_rows, "most_sources": self.most_sources}
        least |= {option: (value, 1) for option, value in optional.items() if value is not None}
        for option, (value, smallest) in least.items():
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < smallest:
                raise ParameterError(f"{option}={value!r} must be a whole number of at least {smallest}")
        if len(self.domains) < 2:
            raise DataError(f'problem "{self.name}" has no source; pass at least two domains')
        if self.domains.focal_domain.y.ndim != 1:
            raise DataError(f'problem "{self.name}" has several outputs; the benchmark takes one')
        if self.classes and not all(np.isin(domain.y, (0, 1)).all() for domain in self.domains):
            raise DataError(f'problem "{self.name}" has targets other than 0 and 1; classes must be these two')
        if not self.focal or len(set(self.focal)) < len(self.focal):
            raise ParameterError(f"focal={self.focal!r} must name domains, each once")
        for name in self.focal:
            rows = self.domains[name].n_rows
            if rows < self.n_train + 2:
                raise DataError(
                    f'domain "{name}" has {rows} rows, which leaves fewer than 2 for testing after n_train='
                    f"{self.n_train}; lower n_train or leave it out of focal"
                )


@dataclass(frozen=True, eq=False)
class Case:
    """One focal domain and one seed: what a method may learn from, and the rows it is judged on.

    Inputs are standardised on the sources and the training rows together; targets are as they were, but reflected (of
    two classes: swapped) in the domains named in ``flipped``.
    """

    problem: str
    variant: str
    seed: int
    focal: str
    train: Domain
    test: Domain
    sources: tuple[Domain, ...]
    flipped: tuple[str, ...]
    classes: bool = False

    @property
    def mapping(self) -> dict[str, tuple[Floats, Floats]]:
        """The sources as ``{name: (X, y)}``."""
        return {source.name: (source.X, source.y) for source in self.sources}


def problem_from_domains(
    name: str,
    domains: Domains,
    *,
    n_train: int = 20,
    focal: Sequence[str] | None = None,
    most_focal: int = 10,
    source_rows: int | None = None,
) -> Problem:
    """Make a problem of any domains, to run the same comparison on data of your own.

    Parameters
    ----------
    name
        What tables call it.
    domains
        The domains.
    n_train
        Training rows of the focal domain.
    focal
        Names of the domains that take the focal role; by default the largest, in their order, as far as they leave
        40 rows for testing.
    most_focal
        How many of them there are by default, at most.
    source_rows
        Rows of each source, at most; all of them by default.

    Raises
    ------
    DataError
        If no domain is large enough.

    Examples
    --------
    >>> from mixtune.data import make_domains
    >>> domains = make_domains(n_domains=4, n_rows=10, n_source_rows=80, seed=0).domains
    >>> problem_from_domains("made", domains).focal == domains.names[1:]
    True
    """
    if focal is None:
        largest = _largest(name, domains, n_train, most_focal)
        focal = [domain.name for domain in domains if domain.name in largest]
    return Problem(name, domains, n_train, tuple(focal), source_rows=source_rows)


def _largest(name: str, domains: Domains, n_train: int, most: int) -> tuple[str, ...]:
    """The domains with most rows, as far as they leave enough for testing, the largest first."""
    large = [domain for domain in domains if domain.n_rows >= n_train + LEAST_TEST]
    if not large:
        raise DataError(
            f'problem "{name}": no domain has {n_train + LEAST_TEST} rows, n_train={n_train} and {LEAST_TEST} to '
            "test on; lower n_train or name the focal domains"
        )
    return tuple(domain.name for domain in sorted(large, key=lambda domain: -domain.n_rows)[:most])


def cases(problem: Problem, *, variant: str = "clean", seeds: Sequence[int] = (0, 1, 2)) -> Iterator[Case]:
    """Make the cases of a problem one after another, seed by seed.

    Parameters
    ----------
    problem
        Where they come from.
    variant
        "clean", or "flip" to reflect the targets of half of the sources about their means.
    seeds
        One case for each of them and each focal domain.

    Examples
    --------
    >>> from mixtune.data import make_domains
    >>> domains = make_domains(n_domains=4, n_rows=30, n_source_rows=30, seed=0).domains
    >>> made = list(cases(Problem("made", domains, n_train=10, focal=domains.names[:2]), variant="flip", seeds=[5]))
    >>> len(made), made[0].train.n_rows, made[0].test.n_rows, len(made[0].flipped)
    (2, 10, 20, 1)
    """
    if variant not in VARIANTS:
        raise ParameterError(f"variant={variant!r} is unknown; choose from {', '.join(VARIANTS)}")
    if not len(seeds) or any(isinstance(seed, bool) or int(seed) != seed or seed < 0 for seed in seeds):
        raise ParameterError(f"seeds={seeds!r} must be whole numbers of at least 0, one or more")
    return (_case(problem, variant, int(seed), index) for seed in seeds for index in range(len(problem.focal)))


def _case(problem: Problem, variant: str, seed: int, index: int) -> Case:
    domains = problem.domains.with_focal(problem.focal[index])
    rng = np.random.default_rng(1000 * seed + index)
    focal = domains.focal_domain
    order = rng.permutation(focal.n_rows)
    train, test = order[: problem.n_train], order[problem.n_train : problem.n_train + problem.n_test]
    members = domains.sources
    if problem.most_sources is not None and len(members) > problem.most_sources:
        drawn = np.sort(rng.choice(len(members), problem.most_sources, replace=False))
        members = tuple(members[place] for place in drawn)
    sources = {source.name: _capped(source, problem.source_rows, rng) for source in members}
    flipped: tuple[str, ...] = ()
    if variant == "flip":
        names = list(sources)
        flipped = tuple(names[i] for i in np.sort(rng.choice(len(names), len(names) // 2, replace=False)))
        for name in flipped:
            X, y = sources[name]
            sources[name] = (X, 1 - y if problem.classes else 2 * y.mean() - y)
    pooled = np.vstack([*(X for X, _ in sources.values()), focal.X[train]])
    shift, scale = pooled.mean(axis=0), pooled.std(axis=0)
    # A constant column becomes zero. Its standard deviation may be rounding error instead of exactly 0.
    scale[scale <= 1e-12 * np.abs(shift)] = 1.0

    def domain(name: str, X: Floats, y: Floats) -> Domain:
        return Domain(name, (X - shift) / scale, y, focal.columns)

    return Case(
        problem.name,
        variant,
        seed,
        focal.name,
        train=domain(focal.name, focal.X[train], focal.y[train]),
        test=domain(focal.name, focal.X[test], focal.y[test]),
        sources=tuple(domain(name, X, y) for name, (X, y) in sources.items()),
        flipped=flipped,
        classes=problem.classes,
    )


def _capped(source: Domain, rows: int | None, rng: np.random.Generator) -> tuple[Floats, Floats]:
    if rows is None:
        return source.X, source.y
    kept = rng.permutation(source.n_rows)[:rows]
    return source.X[kept], source.y[kept]


def named_problem(name: str, *, cache: str | None = None, progress: bool = False) -> Problem:
    """Load one of the three problems with natural domains that the pages quote figures for.

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
    if name == "vader":
        texts = load_sentiment(cache=cache, progress=progress)
        return Problem(name, texts, 50, texts.names, source_rows=1000)
    if name not in PROBLEMS:
        raise ParameterError(f"problem={name!r} is unknown; choose from {', '.join(PROBLEMS)}")
    domains, least_rows = (load_exam(), 88) if name == "exam" else (load_ames(), 125)
    return Problem(name, domains, 20, tuple(domain.name for domain in domains if domain.n_rows >= least_rows))


def known_problem(name: str, *, n_train: int = 20, most_focal: int = 2) -> Problem:
    """Load one of the problems that are run at several numbers of focal rows, all under one protocol.

    Sources have 10 rows or more. A case has at most 40 of them, which share 3,000 rows equally, but each has 30 to 500
    as far as it has so many. A focal domain is judged on at most 1,000 unseen rows.

    Parameters
    ----------
    name
        One of :data:`benchmarks.transfer.tables.TABLES`.
    n_train
        Training rows of the focal domain. Those of fewer rows are among those of more.
    most_focal
        How many domains take the focal role: the largest, as far as they leave 40 rows for testing. They come in the
        order of their sizes, so that further ones leave the cases of the first as they are.

    Raises
    ------
    DataError
        If no domain is large enough.
    MissingExtraError
        If the package that holds the data is not installed.

    Examples
    --------
    >>> problem = known_problem("star", n_train=60)
    >>> problem.focal, problem.most_sources, problem.source_rows
    (('51', '22'), 40, 75)
    """
    loaded = load_table(name)
    domains = Domains(tuple(each for each in loaded if each.n_rows >= LEAST_SOURCE), focal=loaded.focal)
    rows = int(np.clip(ALL_SOURCES // min(MOST_SOURCES, len(domains) - 1), *SOURCE_ROWS))
    focal = _largest(name, domains, n_train, most_focal)
    sizes = {"source_rows": rows, "most_sources": MOST_SOURCES}
    return Problem(name, domains, n_train, focal, **sizes, classes=name in CLASSES)
