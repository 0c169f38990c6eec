"""Where randomness comes from: standard normals for every path and interval, drawn path after path.

A path's normals are consecutive draws of one stream. Simulating in blocks of any size therefore gives the same paths,
and a longer run begins with the paths of a shorter one. Three sources share this rule: pseudo-random numbers, the
same numbers with their mirror images (antithetic), and scrambled Sobol points, which fill the space more evenly. The
first Sobol coordinates are the best, so they drive the directions along which a Brownian path varies most (principal
components), rather than its first interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from mixtune._checks import check_whole
from mixtune.errors import ParameterError

__all__ = ["combine", "draw_normals", "normal_blocks"]

Floats = np.ndarray[Any, Any]

#: Normals in one block unless told otherwise: 4 MB, so that a block's working arrays stay near the cache.
BLOCK_NORMALS = 1 << 19
#: Paths in one block at the least: below, NumPy's calls cost more than the arithmetic.
BLOCK_PATHS = 1024
#: SciPy's Sobol points are multiples of 2**-30; half a cell keeps them off 0, whose normal would be infinite.
HALF_CELL = 2.0**-31
#: Multiplications in one matrix product below which OpenBLAS stays on one thread.
ONE_THREAD = 250_000


def draw_normals(
    n_paths: int,
    n_intervals: int,
    per_interval: int,
    rng: np.random.Generator,
    *,
    antithetic: bool = False,
    sobol: bool = False,
) -> Floats:
    """Draw the standard normals of all paths at once.

    Parameters
    ----------
    n_paths, n_intervals, per_interval
        How many paths, intervals and normals per interval.
    rng
        Generator of the draws; for Sobol points, of their scrambling.
    antithetic
        Whether path ``n_paths / 2 + i`` mirrors path ``i``; the number of paths must be even.
    sobol
        Whether to use scrambled Sobol points; powers of two are the best numbers of paths for them.

    Returns
    -------
    ndarray of shape (n_paths, n_intervals, per_interval)

    Examples
    --------
    >>> Z = draw_normals(4, 9, 2, np.random.default_rng(0), antithetic=True)
    >>> Z.shape, bool((Z[2:] == -Z[:2]).all())
    ((4, 9, 2), True)
    """
    Z = np.empty((n_paths, n_intervals, per_interval))
    for rows, block in normal_blocks(n_paths, n_intervals, per_interval, rng, antithetic=antithetic, sobol=sobol):
        Z[rows] = block.transpose(2, 0, 1)
    return Z


def normal_blocks(
    n_paths: int,
    n_intervals: int,
    per_interval: int,
    rng: np.random.Generator,
    *,
    antithetic: bool = False,
    sobol: bool = False,
    block_paths: int | None = None,
) -> Iterator[tuple[slice, Floats]]:
    """Yield blocks of paths with their normals, so that memory stays bounded however many paths there are.

    Yields
    ------
    rows : slice
        Which paths.
    normals : ndarray of shape (n_intervals, per_interval, paths of the block)
        Paths vary fastest: whole rows of paths are what NumPy works through at full speed.
    """
    n_paths = check_whole("n_paths", n_paths, least=1)
    width = check_whole("n_intervals", n_intervals, least=1) * check_whole("per_interval", per_interval, least=1)
    step = max(BLOCK_PATHS, BLOCK_NORMALS // width)
    if block_paths is not None:
        step = check_whole("chunk_paths", block_paths, least=1)
    if not isinstance(rng, np.random.Generator):
        raise ParameterError(f"rng must be a generator such as numpy.random.default_rng(0); got {rng!r}")
    if antithetic and sobol:
        raise ParameterError("antithetic and sobol exclude each other; Sobol points are balanced already")
    if antithetic and n_paths % 2:
        raise ParameterError(f"antithetic paths come in pairs; pass an even n_paths, such as {n_paths + 1}")
    points = _Sobol(n_intervals, per_interval, rng) if sobol else _Pseudorandom(n_intervals, per_interval, rng)
    count = n_paths // 2 if antithetic else n_paths
    for begin in range(0, count, step):
        rows = slice(begin, min(begin + step, count))
        block = points(rows.stop - rows.start)
        yield rows, block
        if antithetic:
            yield slice(count + rows.start, count + rows.stop), -block


def combine(weights: Floats, rows: Floats) -> Floats:
    """``weights @ rows`` for few rows with very many columns.

    In pieces, because one call would wake the linear algebra library's threads, which for this little work costs more
    than it saves, and several times more when other programs want the cores.

    Examples
    --------
    >>> combine(np.array([[1.0, -1.0]]), np.array([[5.0, 7.0], [2.0, 3.0]]))
    array([[3., 4.]])
    """
    width = max(16, ONE_THREAD // max(1, weights.size))
    combined = np.empty((weights.shape[0], rows.shape[1]))
    for begin in range(0, rows.shape[1], width):
        piece = slice(begin, begin + width)
        np.matmul(weights, rows[:, piece], out=combined[:, piece])
    return combined


class _Pseudorandom:
    """The next paths' normals of a pseudo-random stream."""

    def __init__(self, n_intervals: int, per_interval: int, rng: np.random.Generator) -> None:
        self._shape, self._rng = (n_intervals, per_interval), rng

    def __call__(self, count: int) -> Floats:
        Z = self._rng.standard_normal((count, *self._shape))
        return np.ascontiguousarray(Z.transpose(1, 2, 0))


class _Sobol:
    """The next paths' normals of a scrambled Sobol sequence."""

    def __init__(self, n_intervals: int, per_interval: int, rng: np.random.Generator) -> None:
        width = n_intervals * per_interval
        if width > qmc.Sobol.MAXDIM:
            raise ParameterError(
                f"Sobol points have at most {qmc.Sobol.MAXDIM} coordinates; {n_intervals} intervals with "
                f"{per_interval} normals each need {width}; use fewer substeps, or sobol=False"
            )
        # An integer seed means the same to every SciPy, old or new; a generator does not.
        seed = int(rng.integers(2**62))
        try:
            self._engine = qmc.Sobol(width, scramble=True, rng=seed)
        except TypeError:  # SciPy before 1.15
            self._engine = qmc.Sobol(width, scramble=True, seed=seed)
        self._shape = (n_intervals, per_interval)
        self._directions = _brownian_directions(n_intervals)
        self._fresh = True

    def __call__(self, count: int) -> Floats:
        points = self._take(count)
        points += HALF_CELL
        Z = ndtri(points).T.reshape(self._shape[0], -1)
        return combine(self._directions, Z).reshape(*self._shape, count)

    def _take(self, count: int) -> Floats:
        # The first call warns unless it asks for a power of two; how many paths to run is the caller's business.
        if not self._fresh:
            return np.asarray(self._engine.random(count))
        self._fresh = False
        first = self._engine.random(1)
        return np.concatenate([first, self._engine.random(count - 1)]) if count > 1 else np.asarray(first)


def _brownian_directions(n_intervals: int) -> Floats:
    """Orthogonal matrix from principal components of a Brownian path to its standardised increments.

    Examples
    --------
    >>> Q = _brownian_directions(4)
    >>> np.allclose(Q @ Q.T, np.eye(4))
    True
    """
    index = np.arange(1, n_intervals + 1)
    variances, components = np.linalg.eigh(np.minimum.outer(index, index).astype(np.float64))
    paths = (components * np.sqrt(variances))[:, ::-1]
    paths *= np.where(paths.sum(axis=0) < 0, -1.0, 1.0)  # the sign LAPACK leaves open
    return np.diff(paths, axis=0, prepend=0.0)
