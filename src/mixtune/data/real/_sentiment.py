"""Sentiment of four kinds of text, as features of a frozen sentence encoder: a last layer to be tuned, and little data.

The texts are in the source distribution of ``vaderSentiment`` 3.3.2, in a second archive inside. It is fetched once,
and its members are read in memory, so no path that an archive names is ever written to. A fixed sample of each source
goes through the encoder, whose features are cached, and becomes a domain.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mixtune._checks import check_whole
from mixtune._files import write_atomically
from mixtune._messages import nearest
from mixtune.data._domain import Domain
from mixtune.data._domains import Domains
from mixtune.data.real._sentence_encoder import TextEncoder, encode_cached, frozen_sentence_encoder
from mixtune.errors import DataError

ARCHIVE = "vaderSentiment-3.3.2.tar.gz"
SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
REQUIREMENT = "vaderSentiment==3.3.2"
INNER = "hutto_ICWSM_2014.tar.gz"
#: Domain names, in the order that fixes the sampling, and the file that holds each.
SOURCES = {
    "amazon": "amazonReviewSnippets_GroundTruth.txt",
    "movies": "movieReviewSnippets_GroundTruth.txt",
    "nyt": "nytEditorialSnippets_GroundTruth.txt",
    "tweets": "tweets_GroundTruth.txt",
}
#: The members of the real archive are far smaller.
_LARGEST_MEMBER = 50_000_000
_FETCH_SECONDS = 300


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
    per_source, seed = check_whole("per_source", per_source, least=1), check_whole("seed", seed)
    folder = cache_folder(cache)
    used = frozen_sentence_encoder() if encoder is None else encoder
    sampled = sample_texts(read_archive(find_archive(archive, folder)), per_source=per_source, seed=seed)
    members = []
    with _bar(progress, sum(len(rated.texts) for rated in sampled.values())) as note:
        for name, rated in sampled.items():
            # Float64, so that sums over thousands of rows downstream keep their digits.
            features = encode_cached(used, rated.texts, folder, note=note).astype(np.float64)
            columns = tuple(f"embedding_{place}" for place in range(features.shape[1]))
            members.append(Domain(name, features, np.asarray(rated.ratings), columns))
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


@dataclass(frozen=True)
class RatedTexts:
    """Texts of one source with their mean ratings, from -4 (most negative) to 4."""

    texts: tuple[str, ...]
    ratings: tuple[float, ...]


def cache_folder(cache: str | os.PathLike[str] | None) -> Path:
    """Return the folder for what is fetched or computed once: the given one, or the user's cache folder.

    Examples
    --------
    >>> cache_folder("somewhere").name
    'somewhere'
    >>> cache_folder(None).name
    'mixtune'
    """
    if cache is not None:
        return Path(cache).expanduser()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The convention: a base folder that is empty or not absolute counts as not set.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "mixtune"


def find_archive(archive: str | os.PathLike[str] | None, folder: Path) -> Path:
    """Return the path of the archive: the given one, the one in the cache folder, or else fetch it there."""
    if archive is not None:
        path = Path(archive).expanduser()
        if not path.is_file():
            raise DataError(f"archive={str(path)!r} is not a file; {_by_hand(folder)}")
        return path
    path = folder / ARCHIVE
    if not path.is_file():
        return _fetch(path)
    if _digest(path.read_bytes()) != SHA256:
        raise DataError(f"{path} is damaged or another version; delete it, then {_by_hand(folder)}")
    return path


def read_archive(path: Path) -> dict[str, RatedTexts]:
    """Read the four sources from the source distribution or from the archive inside it.

    Raises
    ------
    DataError
        If the file is not one of the two, is cut off, or a line cannot be read.
    """
    texts = set(SOURCES.values())
    try:
        with tarfile.open(path) as archive:
            files = _members(archive, {INNER, *texts})
        if INNER in files:
            with tarfile.open(fileobj=io.BytesIO(files[INNER])) as archive:
                files = _members(archive, texts)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read as a tar archive ({error}); get {ARCHIVE} again") from error
    if missing := sorted(texts - set(files)):
        raise DataError(f"{path} does not hold {', '.join(missing)}; pass {ARCHIVE} or the {INNER} inside it")
    return {name: _parse(files[file], file) for name, file in SOURCES.items()}


def _members(archive: tarfile.TarFile, wanted: set[str]) -> dict[str, bytes]:
    """Read plain files by name, in whatever folder of the archive they are."""
    found: dict[str, bytes] = {}
    for member in archive:
        file = member.name.rsplit("/", 1)[-1]
        if not member.isfile() or file not in wanted - set(found):
            continue
        if member.size > _LARGEST_MEMBER:
            raise DataError(f"{file} in the archive takes {member.size:,} bytes, far too many; get {ARCHIVE} again")
        if opened := archive.extractfile(member):
            found[file] = opened.read()
    return found


def _parse(content: bytes, file: str) -> RatedTexts:
    """Read lines of id, mean rating and text between tabs."""
    texts, ratings = [], []
    # Not splitlines, which would also break at the odd separators that tweets contain.
    for number, line in enumerate(re.split("\r\n|\r|\n", content.decode("utf-8", errors="replace")), start=1):
        if not line.strip():
            continue
        try:
            _, mean, text, *_ = line.split("\t")
            rating = float(mean)
        except ValueError:
            rating, text = math.nan, ""
        if not math.isfinite(rating):
            what = f"line {number} of {file} is not an id, a rating and a text between tabs: {line[:60]!r}"
            raise DataError(f"{what}; get {ARCHIVE} again")
        texts.append(text)
        ratings.append(rating)
    if not texts:
        raise DataError(f"{file} in the archive is empty; get {ARCHIVE} again")
    return RatedTexts(tuple(texts), tuple(ratings))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _by_hand(folder: Path) -> str:
    command = f'python -m pip download --no-deps --no-binary vaderSentiment {REQUIREMENT} --dest "{folder}"'
    return f"run: {command}  (or put {ARCHIVE} into {folder} yourself, or pass its path as archive=)"


def _fetch(path: Path) -> Path:
    """Have pip download the one file, whose hash it checks before it looks inside, and keep it in the cache folder."""
    with tempfile.TemporaryDirectory() as work:
        wanted = Path(work, "wanted.txt")
        wanted.write_text(f"{REQUIREMENT} --hash=sha256:{SHA256}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
        # Only this package as source: with ':all:' pip would also build its own build tools from source.
        command += ["--no-deps", "--no-binary", "vaderSentiment", "--require-hashes", "--dest", work, "-r", str(wanted)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
            said = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)
        fetched = Path(work, ARCHIVE)
        content = fetched.read_bytes() if fetched.is_file() else b""
        if _digest(content) != SHA256:
            raise DataError(f"the texts are not here and could not be fetched ({said}); {_by_hand(path.parent)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_atomically(path, content)
