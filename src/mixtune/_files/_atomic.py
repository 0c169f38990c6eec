"""Files that are whole or not there: what every writer of this library goes through."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from mixtune.errors import DataError

__all__ = ["check_place", "write_atomically"]


def check_place(path: Path, example: str) -> None:
    """Refuse a path where no file can be, before any work; ``example`` is what a file there might be called.

    Examples
    --------
    >>> check_place(Path("no/such/folder/a.txt"), "a.txt")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: the folder no/such/folder does not exist; make it first
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder; give the name of a file, such as {path / example}")
    if not path.parent.is_dir():
        raise DataError(f"the folder {path.parent} does not exist; make it first")


def write_atomically(path: Path, content: bytes, *, check: Callable[[Path], None] | None = None) -> Path:
    """Write ``content`` to ``path``; a reader, or a crash, meets the old file or the new one, never a part.

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
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "a.txt", b"all of it").read_bytes()
    b'all of it'
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if check is not None:
            check(Path(name))
        # mkstemp makes files private; give the usual permissions of a new file.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path
