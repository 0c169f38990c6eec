"""Columns of free text and of images: a frozen network turns each cell into numbers, computed once and kept on disk.

Texts go through a sentence encoder, image files through a network that ``torch.export`` wrote. The cache is keyed by
the contents of cells or files and by the identity of the network, a hash of its files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mixtune._messages import Note
from mixtune.arrays import Floats, torch_module
from mixtune.data._parse_column import Cells, Fault, check_column, is_missing
from mixtune.errors import DataError, MissingExtraError

#: Pixels of the side of the square that images are scaled to, and the mean and spread of their colours that networks
#: trained on ImageNet expect.
SIDE = 224
MEANS, SPREADS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: Images that the network sees at once.
BATCH = 32


@dataclass(frozen=True)
class EmbeddedColumn:
    """A column of texts or of paths of images, which a frozen network turns into numbers.

    Parameters
    ----------
    name
        The column.
    content
        ``"text"`` or ``"images"``.
    network
        The folder of a sentence encoder, or the file of a network for images; "" for the sentence encoder of the extra.
    identity
        What the network was in training, so that no other one is used later.
    width
        How many numbers it makes.

    Examples
    --------
    >>> EmbeddedColumn("review", "text", "", "some encoder", 2).outputs
    ('review [0]', 'review [1]')
    """

    kind: ClassVar = "embedded"
    name: str
    content: str
    network: str
    identity: str
    width: int

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns it becomes."""
        return tuple(f"{self.name} [{place}]" for place in range(self.width))

    def read(self, column: Any, *, markers: bool, decimal: str = ".", training: bool = False) -> Cells | Fault:
        """Read a column of a new table as texts, or say why it cannot be."""
        return check_column(column, markers=markers, category=True, fill="fill or drop these rows")

    def encode(self, cells: Cells, block: Floats) -> list[Note]:
        """Fill ``block``: with zeros where the cell is missing, so that the network's constant stays the same."""
        missing = is_missing(cells, len(block))
        if cells is None or missing.all():
            return []
        encoder = encoder_of(self.content, self.network)
        if encoder.identity != self.identity:
            finding = f'column "{self.name}" was encoded by {self.identity} in training, and {encoder.identity} is here'
            raise DataError(f"{finding}; put the network of the training in its place, or fit again")
        block[~missing] = embeddings_of(encoder, cells.drop_null())
        return []


def embedded_column(name: str, content: str, network: str, example: str) -> EmbeddedColumn:
    """What a column becomes; one of its cells tells how many numbers the network makes."""
    encoder = encoder_of(content, network)
    width = embeddings_of(encoder, pa.array([example], pa.large_string())).shape[1]
    return EmbeddedColumn(name, content, network, encoder.identity, width)


def embeddings_of(encoder: Any, cells: Any) -> Floats:
    """One row for each cell; equal cells are computed once, and whatever was computed before is read from disk."""
    from mixtune.data.real import cache_folder, encode_cached

    unique = sorted(pc.unique(cells).to_pylist())
    made = encode_cached(encoder, encoder.items(unique), cache_folder(None))
    places = pc.index_in(cells, value_set=pa.array(unique, pa.large_string()))
    return made[places.to_numpy(zero_copy_only=False)].astype(np.float64)


@cache
def encoder_of(content: str, network: str) -> Any:
    """The frozen network for texts or images; loaded when the first cell comes."""
    return ImageEncoder(network) if content == "images" else TextEncoder(network)


class TextEncoder:
    """A frozen sentence encoder: that of the extra ``text``, or one in a folder, as sentence-transformers saves it."""

    def __init__(self, folder: str = "") -> None:
        from mixtune.data.real import frozen_sentence_encoder

        if folder and not Path(folder).is_dir():
            raise DataError(f'"{folder}" is no folder of a sentence encoder; pass one that sentence-transformers saved')
        self._encoder = frozen_sentence_encoder(folder=folder or None)
        self.identity = f"sentence encoder {_digest(Path(folder))}" if folder else self._encoder.identity

    def items(self, texts: Sequence[str]) -> list[str]:
        """What the cache is keyed by: the texts themselves."""
        return list(texts)

    def transform(self, texts: Sequence[str], /) -> Any:
        """One row of numbers for each text."""
        return self._encoder.transform(texts)


class ImageEncoder:
    """A frozen network for images, in a file that ``torch.export.save`` wrote.

    It takes batches of shape (n, 3, 224, 224), in the colours that networks trained on ImageNet expect, and gives one
    row of features for each image; further dimensions are flattened.
    """

    def __init__(self, file: str) -> None:
        if not Path(file).is_file():
            raise DataError(f'"{file}" is no file of a network; pass one that torch.export.save wrote, such as net.pt2')
        self._file, self.identity = file, f"image network {_digest(Path(file))}"
        self._paths: dict[str, str] = {}

    @cached_property
    def _network(self) -> Any:
        torch = torch_module("a network for images")
        try:
            return torch.export.load(self._file).module()
        except (RuntimeError, ValueError, OSError) as error:
            why = f'"{self._file}" cannot be read as a network: {error}'
            raise DataError(f"{why}; write it by torch.export.save") from error

    def items(self, paths: Sequence[str]) -> list[str]:
        """What the cache is keyed by: hashes of the files."""
        if lost := [path for path in paths if not Path(path).is_file()]:
            raise DataError(f'there is no image "{lost[0]}" ({len(lost)} of {len(paths)} are missing); check the paths')
        found = [_digest(Path(path)) for path in paths]
        self._paths |= dict(zip(found, paths))
        return found

    def transform(self, items: Sequence[str], /) -> Any:
        """One row of features for each image."""
        torch, rows = torch_module("a network for images"), []
        with torch.inference_mode():
            for start in range(0, len(items), BATCH):
                pixels = np.stack([read_image(self._paths[item]) for item in items[start : start + BATCH]])
                made = self._network(torch.from_numpy(pixels))
                rows.append(made.reshape(len(pixels), -1).numpy().astype(np.float32))
        return np.concatenate(rows)


def read_image(path: str) -> Any:
    """An image file as an array (3, 224, 224) of colours, as networks trained on ImageNet expect them."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtraError("pillow", "images", "reading images") from error
    try:
        with Image.open(path) as image:
            colours = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    except (UnidentifiedImageError, OSError) as error:
        raise DataError(f'"{path}" cannot be read as an image: {error}') from error
    scaled = (np.asarray(colours, dtype=np.float32) / 255 - np.array(MEANS, np.float32)) / np.array(SPREADS, np.float32)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1))


def _digest(path: Path) -> str:
    """A hash of a file, or of the names and contents of all files of a folder."""
    made = hashlib.sha256()
    for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if each.is_file():
            made.update(str(each.relative_to(path)).encode() + b"\0")
            with each.open("rb") as file:
                hashlib.file_digest(file, lambda: made)  # adds the content to the hash
    return made.hexdigest()[:16]
