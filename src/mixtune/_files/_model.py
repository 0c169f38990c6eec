"""The one file a fitted model is saved in: a safetensors file whose header also carries the spec and a checksum."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from mixtune._files._atomic import check_place, write_atomically
from mixtune._files._json import dumps, loads, plain_spec
from mixtune.errors import DataError

__all__ = ["DTYPES", "FORMAT_VERSION", "array_digest", "read_model", "write_model"]

Arrays = dict[str, np.ndarray[Any, Any]]

FORMAT = "mixtune-model"
FORMAT_VERSION = 1
_NO_DIGEST = "0" * 64
_METADATA = "__metadata__"
_WHOLE = tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
DTYPES = ("bool", *_WHOLE, "float16", "float32", "float64")
#: What the first bytes of files that people confuse with models say.
_MAGIC = {b"PK": "a zip or NumPy .npz archive", b"\x80": "a pickle", b"\x93NUMPY": "a NumPy array", b"PAR1": "Parquet"}
#: The limit that safetensors itself sets; a header is read before anything in it can be believed.
_LONGEST_HEADER = 100_000_000


def write_model(path: str | Path, spec: Mapping[str, Any], arrays: Mapping[str, Any]) -> Path:
    """Write a spec and arrays into one file, and read it back before it takes its place.

    Parameters
    ----------
    path
        Where to; an existing file is replaced, but only by a whole new one.
    spec
        What JSON can hold: dicts with text as keys (their order is kept), lists (and tuples, which become lists), text,
        whole numbers, finite numbers, booleans, None.
    arrays
        Numbers or booleans by name; they may hold NaN, and come back bit by bit.

    Raises
    ------
    DataError
        If the spec or an array cannot be stored, or the folder does not exist.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_model(Path(folder) / "a.mixtune", {"ridge": 0.1}, {"coef": np.array([1.0, 2.0])})
    ...     read_model(path)
    ({'ridge': 0.1}, {'coef': array([1., 2.])})
    """
    path = Path(path)
    check_place(path, "model.mixtune")
    plain, tensors = plain_spec(spec), _plain_arrays(arrays)

    def check(written: Path) -> None:
        back_spec, back = read_model(written)
        if back_spec != plain or array_digest(back) != array_digest(tensors):
            raise DataError(f"{path} did not read back as it was written, so it was not kept; try another disk")

    return write_atomically(path, _encode(plain, tensors), check=check)


def read_model(path: str | Path) -> tuple[dict[str, Any], Arrays]:
    """Read a file of :func:`write_model`; nothing in it is run, and nothing is believed before it is checked.

    Returns
    -------
    spec, arrays
        The arrays in the order of their names.

    Raises
    ------
    DataError
        If there is no such file, or it is cut off, altered, of a newer format, or something else altogether.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"there is no file {path}; check the name and the folder")
    if not path.is_file():
        raise DataError(f"{path} is {'a folder' if path.is_dir() else 'not a plain file'}; pass a saved model")
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = _header_length(path, file.read(9), size)
            file.seek(8)
            header = _parse_header(path, file.read(length))
            _check_size(path, header, size - 8 - length)
            file.seek(0)
            content = file.read()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}; check its permissions") from error
    metadata = header[_METADATA]
    if _digest(content, metadata["sha256"]) != metadata["sha256"]:
        raise _damaged(path, "its checksum does not agree with its content")
    try:
        spec = loads(metadata["spec"])
        tensors = load_tensors(content)
    except (ValueError, RecursionError, KeyError, SafetensorError) as error:
        raise _damaged(path, str(error)) from error
    return spec, {name: tensors[name] for name in sorted(tensors)}


def array_digest(arrays: Mapping[str, Any]) -> str:
    """Compute the SHA-256 of named arrays: names, types, shapes and every bit of the values, in the order of names.

    Examples
    --------
    >>> array_digest({"a": np.zeros(2)}) == array_digest({"a": np.zeros((2, 1))})
    False
    """
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = _little_endian(np.asarray(arrays[name]))
        sha.update(json.dumps([name, array.dtype.name, array.shape]).encode() + b"\n")
        sha.update(array.tobytes())
    return sha.hexdigest()


def _encode(spec: dict[str, Any], arrays: Arrays) -> bytes:
    """Lay the file out; the same model gives the same bytes."""
    # safetensors writes its metadata in random order, so it gets none, and they are put in front of its header here.
    body = save_tensors(arrays)
    (length,) = struct.unpack("<Q", body[:8])
    metadata = {"format": FORMAT, "version": str(FORMAT_VERSION), "sha256": _NO_DIGEST, "spec": dumps(spec)}
    header = json.dumps({_METADATA: metadata, **json.loads(body[8 : 8 + length])}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    if len(header) > _LONGEST_HEADER:
        raise DataError(
            f"the spec takes {len(header):,} bytes, the limit is {_LONGEST_HEADER:,}; store numbers as arrays"
        )
    content = struct.pack("<Q", len(header)) + header + body[8 + length :]
    return content.replace(_field(_NO_DIGEST), _field(_digest(content, _NO_DIGEST)), 1)


def _field(digest: str) -> bytes:
    # Quotes inside other strings of the header are escaped, so this can stand nowhere else in it.
    return f'"sha256":"{digest}"'.encode()


def _digest(content: bytes, digest: str) -> str:
    """Compute the SHA-256 of the whole file, with zeros where the digest itself stands."""
    place = content.find(_field(digest))
    if place < 0:
        return ""
    end = place + len(_field(digest))
    sha = hashlib.sha256(content[:place] + _field(_NO_DIGEST))
    sha.update(memoryview(content)[end:])
    return sha.hexdigest()


def _header_length(path: Path, start: bytes, size: int) -> int:
    """Read the length of the header off the first bytes, if this can be a model file at all."""
    if size == 0:
        raise DataError(f"{path} is empty; it was never written, or was cut off: save the model again")
    for magic, kind in _MAGIC.items():
        # Lengths start with any byte, but the header after them with a brace.
        if start.startswith(magic) and start[8:] != b"{":
            raise _foreign(path, f"it looks like {kind}")
    if size < 9:
        raise _foreign(path, f"it has only {size} bytes")
    if start[8:] != b"{":
        raise _foreign(path, "its first bytes are not those of one")
    (length,) = struct.unpack("<Q", start[:8])
    if length > min(size - 8, _LONGEST_HEADER):
        raise _damaged(path, f"its header should take {length:,} bytes, the file has {size:,}")
    return int(length)


def _parse_header(path: Path, text: bytes) -> dict[str, Any]:
    try:
        header = loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "its header cannot be read") from error
    metadata = header.get(_METADATA)
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise _foreign(path, "it is a safetensors file of something else")
    version = str(metadata.get("version"))
    if not re.fullmatch("[1-9][0-9]{0,8}", version):
        raise _damaged(path, f"its format version is {version[:20]!r}")
    if int(version) > FORMAT_VERSION:
        raise DataError(
            f"{path} has format version {version}, this mixtune reads versions up to {FORMAT_VERSION}; update mixtune"
        )
    if not re.fullmatch("[0-9a-f]{64}", str(metadata.get("sha256"))) or not isinstance(metadata.get("spec"), str):
        raise _damaged(path, "its header lacks the checksum or the spec")
    return header


def _check_size(path: Path, header: dict[str, Any], size: int) -> None:
    """Compare the bytes that follow the header with those the arrays need, so that a short copy is called that."""
    try:
        expected = max((entry["data_offsets"][1] for name, entry in header.items() if name != _METADATA), default=0)
        short = size < expected
    except (TypeError, KeyError, IndexError) as error:
        raise _damaged(path, "its header does not describe arrays") from error
    if short:
        raise DataError(f"{path} is cut off: {size:,} of {expected:,} bytes of its arrays are there; copy it again")


def _foreign(path: Path, why: str) -> DataError:
    return DataError(f"{path} is not a mixtune model: {why}; pass a file that was written by save")


def _damaged(path: Path, why: str) -> DataError:
    return DataError(f"{path} is cut off or altered: {why}; copy it again, or save the model again")


def _plain_arrays(arrays: Mapping[str, Any]) -> Arrays:
    tensors = {}
    for name, values in arrays.items():
        if not isinstance(name, str) or not name or name == _METADATA or not name.isprintable():
            raise DataError(f"an array is named {name!r}; names are printable text other than {_METADATA!r}")
        array = np.asarray(values)
        if array.dtype.name not in DTYPES:
            raise DataError(f'array "{name}" holds {array.dtype}; store numbers or booleans, and text in the spec')
        tensors[name] = _little_endian(array)
    return tensors


def _little_endian(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    # safetensors takes whatever lies in memory, so strided views would come back scrambled. np.ascontiguousarray
    # would do, were it not for arrays without dimensions, which it gives one.
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
