"""Tables as CSV files, written completely or not at all."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from mixtune._files import write_atomically
from mixtune.errors import DataError

if TYPE_CHECKING:
    from mixtune.paper import Table

__all__ = ["write_csv"]


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
