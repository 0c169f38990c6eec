"""Moments of domains whose rows come in blocks: rows wait for a block's worth, become products, and are forgotten.

Where features are computed on a device, products and sums are formed there; what is handed over in the end are NumPy
arrays.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mixtune.data._blocks import Block
from mixtune.errors import DataError
from mixtune.moments._budget import Budget
from mixtune.moments._moments import Moments
from mixtune.moments._stream_features import StreamFeatures

__all__ = ["MomentSums"]

Floats = np.ndarray[Any, Any]


@dataclass(eq=False)
class MomentSums:
    """Moments of domains whose rows come in blocks, in any order; computed in the threads of ``pool``, if there is one.

    Examples
    --------
    >>> from mixtune.data._streams import open_stream
    >>> stream = open_stream((np.ones((5, 1)), np.arange(5.0)), domain=["a", "b", "a", "a", "b"])
    >>> features = StreamFeatures.of(stream, None, "float64")
    >>> sums = MomentSums(features, features.budget(1, "1 MB"))
    >>> for block in stream.blocks(2):
    ...     sums.add(block)
    >>> {name: moments.count for name, moments in sums.finish().items()}
    {'a': 3, 'b': 2}
    """

    features: StreamFeatures
    budget: Budget
    pool: ThreadPoolExecutor | None = None
    _flying: deque[tuple[str, Future[Moments]]] = field(default_factory=deque)
    _totals: dict[str, Moments | None] = field(default_factory=dict)
    _waiting: dict[str, list[tuple[Floats, Floats]]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _taken: dict[str, int] = field(default_factory=dict)
    _rows_waiting: int = 0
    _held: int = 0

    def add(self, block: Block) -> None:
        """Take a block of rows."""
        for name, X, y in block.by_domain():
            self._totals.setdefault(name, None)
            self._waiting.setdefault(name, []).append((X, y))
            self._counts[name] = self._counts.get(name, 0) + len(X)
            self._rows_waiting += len(X)
            while self._counts.get(name, 0) >= self.budget.block_rows:
                self._flush(name)
        if self._rows_waiting > self.budget.waiting_rows:
            self._make_room()

    def finish(self) -> dict[str, Moments]:
        """Add the rows that still wait, and hand the moments over."""
        for name in list(self._waiting):
            while self._counts.get(name):
                self._flush(name)
        while self._flying:
            self._land()
        if not self._totals:
            raise DataError("the source has no rows")
        whole = {name: total for name, total in self._totals.items() if total is not None}
        return {name: total.on_device(None).rounded(self.features.dtype) for name, total in whole.items()}

    def _make_room(self) -> None:
        """Send half of what may wait on its way, the largest blocks first: looking for them takes time as well."""
        for name in sorted(self._counts, key=lambda name: self._counts[name], reverse=True):
            if 2 * self._rows_waiting <= self.budget.waiting_rows:
                return
            self._flush(name)

    def _flush(self, name: str) -> None:
        """Send one block of waiting rows on its way into moments."""
        parts = self._waiting.pop(name)
        X, y = parts[0] if len(parts) == 1 else (np.concatenate(side) for side in zip(*parts, strict=True))
        size = min(len(X), self.budget.block_rows)
        if size < len(X):
            self._waiting[name] = [(X[size:], y[size:])]
        self._counts[name] = len(X) - size
        if not self._counts[name]:
            del self._counts[name]
        self._rows_waiting -= size
        first = self._taken.get(name, 0)
        self._taken[name] = first + size
        if self.pool is None:
            self._count(name, self._compute(name, first, X[:size], y[:size]))
            return
        # One block more than lanes: as inputs, which are small, it waits for the next thread that is free.
        while len(self._flying) > self.budget.lanes:
            self._land()
        self._flying.append((name, self.pool.submit(self._compute, name, first, X[:size], y[:size])))

    def _compute(self, name: str, first: int, X: Floats, y: Floats) -> Moments:
        try:
            return Moments.from_rows(self.features(X), self.features.targets(y), precision=self.features.dtype)
        except DataError as error:
            # What is wrong with a row is told with its place in this block.
            where = f" (the rows after its first {first:,})" if first else ""
            raise DataError(f'domain "{name}"{where}: {error}') from error

    def _land(self) -> None:
        name, future = self._flying.popleft()
        self._count(name, future.result())

    def _count(self, name: str, part: Moments) -> None:
        before = self._totals[name]
        total = part if before is None else before + part
        self._held += _bytes(total) - (0 if before is None else _bytes(before))
        self.budget.check_sums(self._held, len(self._totals))
        self._totals[name] = total


def _bytes(moments: Moments) -> int:
    return 8 * moments.n_features * (moments.count if moments.keeps_rows else moments.n_features)
