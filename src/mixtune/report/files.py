"""Files that are whole or not there: written beside their place, then renamed into it."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from pathlib import Path

from mixtune.errors import DataError
from mixtune.paper import Table

__all__ = ["write_atomically", "write_csv"]


def write_atomically(path: Path, content: bytes) -> Path:
    """Write ``content`` to ``path``; a reader, or a crash, meets the old file or the new one, never a part."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files private; give the usual permissions of a new file.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def write_csv(path: Path, table: Table) -> Path:
    """Write a table as CSV, numbers with all their digits.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_csv(Path(folder) / "a.csv", [{"method": "RO", "loss": 0.1}]).read_text()
    'method,loss\\nRO,0.1\\n'
    """
    if not table:
        raise DataError(f"there is nothing to write to {path}: the table has no rows")
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return write_atomically(path, text.getvalue().encode())
