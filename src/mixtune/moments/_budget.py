"""How many rows at a time: block sizes that follow from the memory a user grants."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mixtune.errors import DataError, ParameterError

__all__ = ["DEFAULT_LIMIT", "Budget", "as_bytes", "in_words"]

DEFAULT_LIMIT = "512 MB"

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", start=1)}
_UNITS |= {f"{prefix}IB": 1024**power for power, prefix in enumerate("KMGT", start=1)}
#: Larger blocks do not make products faster, only the cache colder.
_ENOUGH = 64 * 2**20


def as_bytes(value: int | str, option: str = "memory_limit") -> int:
    """A size in bytes, from a number or a text.

    Examples
    --------
    >>> as_bytes("512 MB"), as_bytes("4GiB"), as_bytes(1000)
    (512000000, 4294967296, 1000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", value) if isinstance(value, str) else None
    if found and found[2].upper() in _UNITS:
        return int(float(found[1]) * _UNITS[found[2].upper()])
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ParameterError(f'{option}={value!r} must be a size, such as "512 MB", "4 GiB" or a number of bytes')


def in_words(size: float) -> str:
    """A number of bytes as people write it.

    Examples
    --------
    >>> in_words(3.2e9), in_words(20_500), in_words(10)
    ('3,200 MB', '20 kB', '10 bytes')
    """
    if size < 1e3:
        return f"{size:.0f} bytes"
    return f"{size / 1e3:.0f} kB" if size < 1e6 else f"{size / 1e6:,.0f} MB"


@dataclass(frozen=True)
class Budget:
    """Memory for moments beside what Python and its libraries take: half for the sums, half for rows on their way.

    Of the latter one half goes to the features of ``lanes`` blocks at once (twice: maps need room to work), the other
    to rows that are read and wait for the block of their domain to fill.

    Examples
    --------
    >>> budget = Budget(as_bytes("512 MB"), n_inputs=20, n_outputs=1, n_features=1024)
    >>> budget.block_rows, budget.reading_rows
    (7804, 7804)
    """

    limit: int
    n_inputs: int
    n_outputs: int
    n_features: int
    lanes: int = 1

    def __post_init__(self) -> None:
        # Besides the sums, each lane has the product of its block at work, and one sum is old and new at once.
        needed = max(4 * 64 * self.lanes * self._feature_bytes, (2 + self.lanes) * self.gram_bytes)
        if self.limit < needed:
            raise ParameterError(
                f"memory_limit of {in_words(self.limit)} is too little for {self.n_features} features; "
                f"at least {in_words(needed)} are needed"
            )

    @property
    def gram_bytes(self) -> int:
        return 8 * self.n_features**2

    @property
    def _feature_bytes(self) -> int:
        return 16 * (self.n_features + self.n_outputs)

    @property
    def _row_bytes(self) -> int:
        return 8 * (self.n_inputs + self.n_outputs + 1)

    @property
    def block_rows(self) -> int:
        """Rows whose features are computed at once."""
        enough = max(_ENOUGH // (8 * self.n_features), 8 * self.n_features)
        return max(64, min(self.limit // 4 // self.lanes // self._feature_bytes, enough))

    @property
    def waiting_rows(self) -> int:
        """Rows that may wait for their blocks to fill."""
        return max(64, self.limit // 8 // self._row_bytes)

    @property
    def reading_rows(self) -> int:
        """Rows read at once; a reader holds them as columns and as rows."""
        return max(64, min(self.limit // 8 // (3 * self._row_bytes), self.block_rows))

    def check_sums(self, held: int, domains: int) -> None:
        """Refuse sums that take more than their half."""
        if held > self.limit // 2:
            raise DataError(
                f"the moments of {domains} domains with {self.n_features} features take {in_words(held)}, more "
                f"than half of memory_limit; pass memory_limit of at least {in_words(2 * held)}, or fewer features"
            )
