"""Sentiment of four kinds of text, as features of a frozen sentence encoder: a last layer to be tuned, and little data.

The way: the archive of rated texts, a fixed sample of each source, the encoder (cached), domains.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from mixtune._messages import nearest
from mixtune.data._domain import Domain
from mixtune.data._domains import Domains
from mixtune.data.real._archive import SOURCES, RatedTexts, cache_folder, find_archive, read_archive
from mixtune.data.real._encoder import Features, TextEncoder, encode_cached, frozen_sentence_encoder
from mixtune.errors import DataError, ParameterError

__all__ = ["load_sentiment", "sample_texts"]


def load_sentiment(
    *,
    focal: str = "tweets",
    per_source: int = 2500,
    seed: int = 0,
    archive: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    encoder: TextEncoder | None = None,
    progress: bool = False,
) -> Domains:
    """Rated snippets of text from four sources, as features of a frozen sentence encoder.

    The sources are product reviews ("amazon"), film reviews ("movies"), newspaper editorials ("nyt") and "tweets"; the
    target is the mean of the ratings that people gave, from -4 (most negative) to 4 (Hutto and Gilbert, ICWSM 2014).

    Parameters
    ----------
    focal
        Which of the four is focal.
    per_source
        How many snippets of each source, drawn at random; all of a source that has fewer.
    seed
        Fixes which they are.
    archive
        Path of ``vaderSentiment-3.3.2.tar.gz``, or of the ``hutto_ICWSM_2014.tar.gz`` inside it. Without it the cache
        folder is looked through, and then pip is asked to download it there (2.5 MB).
    cache
        Folder of what is fetched or computed once; ``$XDG_CACHE_HOME/mixtune`` or ``~/.cache/mixtune`` by default.
    encoder
        Another encoder than :func:`frozen_sentence_encoder`: anything with ``identity`` and ``transform(texts)``.
    progress
        Show a progress bar on the error stream. The features of 10,000 snippets take minutes on one core the first
        time; then they are read from the cache.

    Raises
    ------
    MissingExtraError
        If no encoder is given and sentence-transformers or the package with its weights is not installed.
    DataError
        If the texts cannot be found, fetched or read; the message says what to run.

    Examples
    --------
    >>> load_sentiment(focal="tweets")  # doctest: +SKIP
    Domains(4 domains, focal='tweets', 10,000 rows, 384 columns, 1 output)
    """
    if focal not in SOURCES:
        raise DataError(f'there is no source "{focal}"; {nearest(str(focal), tuple(SOURCES))}')
    for name, value, least in (("per_source", per_source, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ParameterError(f"{name}={value!r} must be a whole number of at least {least}")
    folder = cache_folder(cache)
    used = frozen_sentence_encoder() if encoder is None else encoder
    sampled = sample_texts(read_archive(find_archive(archive, folder)), per_source=per_source, seed=seed)
    features: dict[str, Features] = {}
    with _bar(progress, sum(len(rated.texts) for rated in sampled.values())) as note:
        for name, rated in sampled.items():
            features[name] = encode_cached(used, rated.texts, folder, note=note)
    columns = tuple(f"embedding_{place}" for place in range(features[focal].shape[1]))
    members = (
        # Float64, so that sums over thousands of rows downstream keep their digits.
        Domain(name, features[name].astype(np.float64), np.asarray(rated.ratings), columns)
        for name, rated in sampled.items()
    )
    return Domains(tuple(members), focal=focal)


def sample_texts(sources: dict[str, RatedTexts], *, per_source: int, seed: int) -> dict[str, RatedTexts]:
    """Draw texts of each source, in the order of the sources from one generator; they keep their order within.

    Examples
    --------
    >>> sample_texts({"a": RatedTexts(("x", "y", "z"), (0.0, 1.0, 2.0))}, per_source=2, seed=0)["a"].texts
    ('x', 'z')
    """
    rng = np.random.default_rng(seed)
    sampled = {}
    for name, rated in sources.items():
        rows = np.sort(rng.permutation(len(rated.texts))[:per_source]).tolist()
        sampled[name] = RatedTexts(tuple(rated.texts[i] for i in rows), tuple(rated.ratings[i] for i in rows))
    return sampled


@contextmanager
def _bar(shown: bool, total: int) -> Iterator[Callable[[int], None] | None]:
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("Encoding texts", total=total)
        yield lambda done: bar.advance(task, done)
