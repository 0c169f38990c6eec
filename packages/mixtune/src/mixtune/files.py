"""Files that are written whole or not at all, and the file format of saved models.

A model file is a safetensors file: a JSON header, then the arrays as plain bytes. The header also carries a JSON
description of the model (the spec), the version of the format, and a SHA-256 of the whole file. Any tool that reads
safetensors can look inside, no byte can change unnoticed, and reading never runs anything that the file says.
"""

import glob
import hashlib
import io
import json
import math
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors.numpy

from mixtune.errors import DataError

Arrays = dict[str, np.ndarray[Any, Any]]
Check = Callable[[Path], None]

FORMAT = "mixtune-model"
FORMAT_VERSION = 1
DTYPES = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
DTYPES += ("float16", "float32", "float64")
_NO_DIGEST = "0" * 64
_METADATA = "__metadata__"
#: The first bytes of files that people confuse with models.
_MAGIC = {b"PK": "a zip or NumPy .npz archive", b"\x80": "a pickle", b"\x93NUMPY": "a NumPy array", b"PAR1": "Parquet"}
#: The limit of safetensors itself; a header is read before anything in it can be trusted.
_LONGEST_HEADER = 100_000_000
#: Age in seconds at which a temporary file is taken to be left over from a save that was killed.
_STALE = 600.0


@contextmanager
def _refusing(what: str, remedy: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of these kinds into a DataError that says what is wrong, why, and what to do about it."""
    try:
        yield
    except kinds as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{what}: {getattr(error, 'strerror', None) or error}; {remedy}") from error


def check_place(path: Path, example: str) -> None:
    """Refuse a path where no file can be, before any work; ``example`` is what a file there might be called.

    Examples
    --------
    >>> check_place(Path("no/such/folder/a.txt"), "a.txt")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: the folder no/such/folder does not exist; make it first
    """
    if "\0" in str(path):
        raise DataError(f"{str(path)!r} is no name of a file; leave out the null character")
    if path.is_dir():
        raise DataError(f"{path} is a folder; give the name of a file, such as {path / example}")
    if not path.parent.is_dir():
        raise DataError(f"the folder {path.parent} does not exist; make it first")


def write_atomically(path: Path, content: bytes, *, check: Check | None = None) -> Path:
    """Write ``content`` to ``path``, so that a reader, or a crash, finds the old file or the new one, never a part.

    An existing file keeps its permissions, and a symbolic link keeps pointing to the file that is replaced.

    Parameters
    ----------
    path
        Where to; an existing file is replaced.
    content
        The bytes.
    check
        Called with the new file before it takes its place; if it raises, the old file stays.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "a.txt", b"all of it").read_bytes()
    b'all of it'
    """
    target = Path(os.path.realpath(path))
    # A device or a pipe would be replaced by a file; a link that leads to itself stays a link.
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise DataError(f"{path} is not a plain file; give the name of a file that may be replaced")
    # Temporary files that killed writes of the same file left behind; young ones may still be in use.
    for left in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 8}.part"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE:
                left.unlink()
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    try:
        # The operating system takes the umask off the mode of a new file, so the process never has to look at it.
        with open(part, "xb", opener=partial(os.open, mode=0o666 if mode is None else mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if check is not None:
            check(part)
        if mode is not None:
            part.chmod(mode)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return path


def write_file(path: Path, content: bytes, *, example: str, check: Check | None = None) -> Path:
    """Write to a path that a user named, like :func:`write_atomically`; errors come with a remedy.

    Examples
    --------
    >>> write_file(Path("no/such/folder/a.txt"), b"all of it", example="a.txt")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: the folder no/such/folder does not exist; make it first
    """
    check_place(path, example)
    with _refusing(f"{path} cannot be written", "choose a folder with space and permission", OSError):
        return write_atomically(path, content, check=check)


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
        If the spec or an array cannot be stored, the folder does not exist, or the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_model(Path(folder) / "a.mixtune", {"ridge": 0.1}, {"coef": np.array([1.0, 2.0])})
    ...     read_model(path)
    ({'ridge': 0.1}, {'coef': array([1., 2.])})
    """

    def check(written: Path) -> None:
        back_spec, back = read_model(written)
        if back_spec != plain_spec(spec) or array_digest(back) != array_digest(arrays):
            raise DataError(f"{path} did not read back as it was written, so it was not kept; try another disk")

    return write_file(Path(path), pack(spec, arrays), example="model.mixtune", check=check)


def read_model(path: str | Path) -> tuple[dict[str, Any], Arrays]:
    """Read a file of :func:`write_model`; nothing in it is run, and nothing is used before it is checked.

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
    with _refusing(f"{path} cannot be read", "check its permissions", OSError), open(path, "rb") as file:
        return _unpack(file, FORMAT, str(path), "copy it again, or save the model again")


def arrays_below(arrays: Mapping[str, Any], part: Any) -> Arrays:
    """The arrays of one of several parts: those whose name starts with the name or number of the part.

    Examples
    --------
    >>> arrays_below({"0.bias": 1.5, "1.bias": 2.5}, 1)
    {'bias': 2.5}
    """
    start = f"{part}."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


def joined_arrays(parts: Mapping[Any, Mapping[Any, Any]]) -> Arrays:
    """The arrays of several parts in one dict, from which :func:`arrays_below` takes those of each.

    Examples
    --------
    >>> joined_arrays({0: {"bias": 1.5}, 1: {"bias": 2.5}})
    {'0.bias': 1.5, '1.bias': 2.5}
    """
    return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}


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


def plain_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a description into what JSON can hold: tuples become lists, and NumPy scalars those of Python.

    Examples
    --------
    >>> plain_spec({"shape": (2, np.int64(3))})
    {'shape': [2, 3]}
    """
    if not isinstance(spec, Mapping):
        raise DataError(f"the spec is a {type(spec).__name__}; pass a dict")
    with _refusing("the spec cannot be written as JSON", "make it flatter or smaller", RecursionError, ValueError):
        plain: dict[str, Any] = _plain(spec, "the spec")
        json.dumps(plain)
    return plain


def _plain(value: Any, where: str) -> Any:
    """Copy what JSON can hold, NumPy scalars as Python's, and say where anything else was found."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError(f"{where} is {value}, which JSON cannot hold; store it in an array or as None")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise DataError(f"{where} has the key {odd[0]!r}; keys must be text")
        return {key: _plain(inner, f"{where}[{key!r}]") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, f"{where}[{place}]") for place, inner in enumerate(value)]
    raise DataError(f"{where} is a {type(value).__name__}, which JSON cannot hold; store numbers in an array")


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
    # safetensors writes the memory as it is, so strided views would come back scrambled. np.ascontiguousarray would
    # give arrays without dimensions one.
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


_dumps = partial(json.dumps, separators=(",", ":"))


def _loads(text: bytes, what: str) -> dict[str, Any]:
    """Read a JSON object strictly: no key twice, no NaN, no number beyond the floats."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) != len(pairs):
            raise ValueError("a key stands twice")
        return found

    def finite(number: str) -> float:
        if not math.isfinite(value := float(number)):
            raise ValueError(f"{number} is not a finite number")
        return value

    try:
        value = json.loads(text.decode(), object_pairs_hook=unique, parse_float=finite, parse_constant=finite)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its {what} cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"its {what} is not a JSON object")
    return value


def pack(spec: Mapping[str, Any], arrays: Mapping[str, Any], *, form: str = FORMAT) -> bytes:
    """Write a spec and arrays as the bytes of a file of the format ``form``; the same model gives the same bytes.

    Examples
    --------
    >>> unpack(pack({"a": 1}, {"b": np.arange(2)}, form="example"), form="example", where="the message")
    ({'a': 1}, {'b': array([0, 1])})
    """
    # safetensors writes its metadata in random order, so it gets none, and they are put in front of its header here.
    body = safetensors.numpy.save(_plain_arrays(arrays))
    start = 8 + int.from_bytes(body[:8], "little")
    about = {"format": form, "version": str(FORMAT_VERSION), "sha256": _NO_DIGEST, "spec": _dumps(plain_spec(spec))}
    header = _dumps({_METADATA: about, **json.loads(body[8:start])}).encode()
    header += b" " * (-len(header) % 8)
    if len(header) > _LONGEST_HEADER:
        raise DataError(f"the spec is longer than {_LONGEST_HEADER:,} bytes; store numbers as arrays")
    content = len(header).to_bytes(8, "little") + header + body[start:]
    return content.replace(_field(_NO_DIGEST), _field(_digest(content, _NO_DIGEST)), 1)


def unpack(content: bytes, *, form: str, where: str) -> tuple[dict[str, Any], Arrays]:
    """Read bytes of :func:`pack`; nothing is used before it is checked, and ``where`` names them in errors."""
    return _unpack(io.BytesIO(content), form, where, "ask for it again")


def _field(digest: str) -> bytes:
    # Quotes inside other strings of the header are escaped, so this occurs nowhere else in it.
    return f'"sha256":"{digest}"'.encode()


def _digest(content: bytes, digest: str) -> str:
    """Compute the SHA-256 of the whole file, with zeros in the place of the digest itself."""
    return hashlib.sha256(content.replace(_field(digest), _field(_NO_DIGEST), 1)).hexdigest()


def _unpack(file: BinaryIO, form: str, where: str, remedy: str) -> tuple[dict[str, Any], Arrays]:
    """Read and check what :func:`pack` wrote; ``remedy`` says what to do about damage."""
    start, size = file.read(9), file.seek(0, os.SEEK_END)
    if size == 0:
        raise DataError(f"{where} is empty; it was never written, or was cut off: {remedy}")
    # A length may start with any byte, but the header after it starts with a brace.
    if start[8:] != b"{":
        likely = [f"it looks like {kind}" for magic, kind in _MAGIC.items() if start.startswith(magic)]
        short = [f"it has only {size} bytes"] if size < 9 else []
        raise _foreign(form, where, [*likely, *short, "its first bytes are not those of one"][0])
    errors = (ValueError, KeyError, safetensors.SafetensorError)
    with _refusing(f"{where} is cut off or altered", remedy, *errors):
        if (length := int.from_bytes(start[:8], "little")) > min(size - 8, _LONGEST_HEADER):
            raise ValueError(f"its header should take {length:,} bytes, there are {size:,}")
        file.seek(8)
        header = file.read(length)
        digest, spec = _check_metadata(_loads(header, "header").get(_METADATA), form, where)
        content = start[:8] + header + file.read()
        if _digest(content, digest) != digest:
            raise ValueError("its checksum does not agree with its content")
        tensors = safetensors.numpy.load(content)
        return _loads(spec.encode(), "spec"), {name: tensors[name] for name in sorted(tensors)}


def _check_metadata(metadata: Any, form: str, where: str) -> tuple[str, str]:
    """Find the checksum and the spec, if this is a file of a known format and version."""
    if not isinstance(metadata, dict) or metadata.get("format") != form:
        raise _foreign(form, where, "it is a safetensors file that mixtune did not write")
    version, digest, spec = (metadata.get(key) for key in ("version", "sha256", "spec"))
    if not re.fullmatch("[1-9][0-9]{0,8}", str(version)):
        raise ValueError(f"its format version is {str(version)[:20]!r}")
    if int(str(version)) > FORMAT_VERSION:
        readable = f"this mixtune reads versions up to {FORMAT_VERSION}"
        raise DataError(f"{where} has format version {version}, {readable}; update mixtune")
    if not re.fullmatch("[0-9a-f]{64}", str(digest)) or not isinstance(spec, str):
        raise ValueError("its header lacks the checksum or the spec")
    return str(digest), spec


def _foreign(form: str, where: str, why: str) -> DataError:
    remedy = "pass a file that was written by save" if form == FORMAT else "pass a file of that kind"
    return DataError(f"{where} is not a {form.replace('-', ' ')}: {why}; {remedy}")
