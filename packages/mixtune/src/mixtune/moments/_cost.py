"""Which way to solve a ridge problem: what each way takes in arithmetic and memory, and the cheapest that fits.

With n rows, p features, D outputs there are three ways to (A + r I)^{-1} rhs:

- *primal*: form the p x p matrix A, factor it: n p^2 + p^3/3 operations and three p x p matrices;
- *dual*: the same with the n x n matrix of inner products: n^2 p + n^3/3;
- *conjugate gradients*: never form either; each step reads the rows once, 4 n p D operations.

Steps of the last kind wait for memory rather than for arithmetic, so an operation there counts :data:`SLOW` times one
of a matrix product; and how many steps it takes depends on the spectrum, so it must look clearly cheaper to be chosen.
"""

import os
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

import array_api_compat

from mixtune.arrays import Array, namespace
from mixtune.checks import as_bytes, check_choice, check_positive, in_words
from mixtune.errors import ParameterError

PRIMAL, DUAL = "primal cholesky", "dual cholesky"
CONJUGATE_GRADIENTS, EIGENBASIS = "conjugate gradients", "eigenbasis"

#: Operations of a product with one column against those of a product of matrices: 5 on one core, 8 on two.
SLOW = 6.0
#: Steps and columns of the sketch that an estimate assumes; both adapt to the spectrum once at work.
USUAL_STEPS, USUAL_RANK = 100, 256
#: Steps after which conjugate gradients are given up, if nothing else would do it sooner.
MOST_STEPS = 2000
LEAST_RANK, MOST_RANK = 16, 2048
#: Arrays of the size of the solution that conjugate gradients hold at once.
VECTORS = 8
#: Factorisations of less work than this take well below a second: no other way is looked at.
SMALL = 1e10
#: Conjugate gradients must promise to be this many times cheaper.
MARGIN = 2.0


@dataclass(frozen=True)
class Cost:
    """What a way of solving takes: operations, bytes beside the data, and the work that ways are compared by.

    ``least_bytes`` is what it can do with if it must: a sketch may have fewer columns.
    """

    method: str
    flops: float
    bytes: int
    work: float
    least_bytes: int


@dataclass(frozen=True)
class SolveStats:
    """How a ridge problem was solved, and what it took.

    Attributes
    ----------
    method : str
        "primal cholesky", "dual cholesky", "conjugate gradients" or "eigenbasis" (where a matrix was singular up to
        rounding).
    flops, bytes : float and int
        Estimates of the arithmetic and of the memory beside the data.
    iterations, rank : int
        Steps of conjugate gradients, and columns of the sketch that preconditioned them.
    residual : float or None
        Largest ``|rhs - (A + r I) delta| / |rhs|`` of any output, computed afresh; None after a factorisation, which
        solves up to rounding.
    error_bound : float or None
        ``|rhs - (A + r I) delta| / (r |delta|)``: delta cannot be further from the exact one, relative to its size.
    """

    method: str
    flops: float
    bytes: int
    iterations: int = 0
    rank: int = 0
    residual: float | None = None
    error_bound: float | None = None


@dataclass(frozen=True, eq=False)
class Step:
    """A ridge step and how it was found."""

    delta: Array
    stats: SolveStats


@dataclass(frozen=True)
class SolverOptions:
    """How to solve: left to the cost model, or forced.

    Parameters
    ----------
    solver : {"auto", "direct", "iterative"}
        "direct" factors a matrix, "iterative" runs conjugate gradients, "auto" takes the cheapest that fits.
    tolerance : float
        Relative residual at which conjugate gradients stop.
    memory_limit : int or str, optional
        What a solve may take beside the data, such as "4 GB"; half the memory of the machine by default.

    Examples
    --------
    >>> SolverOptions("direct", memory_limit="4 GB").limit
    4000000000
    """

    solver: Literal["auto", "direct", "iterative"] = "auto"
    tolerance: float = 1e-10
    memory_limit: int | str | None = None

    def __post_init__(self) -> None:
        check_choice("solver", self.solver, ("auto", "direct", "iterative"))
        if check_positive("tolerance", self.tolerance) >= 1:
            raise ParameterError(f"tolerance is a relative residual, below 1; got {self.tolerance!r}")
        if self.memory_limit is not None:
            as_bytes(self.memory_limit)

    @property
    def limit(self) -> int | None:
        """``memory_limit`` in bytes, if one was given."""
        return None if self.memory_limit is None else as_bytes(self.memory_limit)


AUTO = SolverOptions()


@lru_cache(maxsize=1024)
def row_costs(n: int, p: int, outputs: int) -> tuple[Cost, ...]:
    """The ways to solve from n rows of p features.

    Examples
    --------
    >>> [f"{cost.method}: {cost.flops:.0e}" for cost in row_costs(20_000, 20_000, 1)]
    ['primal cholesky: 1e+13', 'dual cholesky: 1e+13', 'conjugate gradients: 6e+11']
    """
    return _direct(PRIMAL, p, n, outputs), _direct(DUAL, n, p, outputs), iterative_cost(n * p, p, outputs)


@lru_cache(maxsize=1024)
def gram_costs(p: int, outputs: int) -> tuple[Cost, ...]:
    """The ways to solve where the p x p matrix is there already."""
    return _direct(PRIMAL, p, 0, outputs), iterative_cost(p * p // 2, p, outputs)


def _direct(method: str, size: int, depth: int, outputs: int) -> Cost:
    """A ``size`` x ``size`` matrix of inner products over ``depth``, its factor, and the solve."""
    flops = float(size) ** 2 * (depth + size / 3 + 2 * outputs) + 4.0 * size * depth * outputs
    held = 8 * size**2 * (3 if depth else 2)
    return Cost(method, flops, held, flops, held)


def iterative_cost(entries: int, p: int, outputs: int, *, rank: int | None = None, steps: int = USUAL_STEPS) -> Cost:
    """Conjugate gradients where one product with A costs 4 operations for each of ``entries`` numbers read."""
    rank = min(USUAL_RANK, p) if rank is None else rank
    sketch = 4.0 * rank * (entries + 2.0 * p * rank)
    walk = steps * outputs * 4.0 * (entries + p * rank)
    least = 8 * p * (4 * LEAST_RANK + VECTORS * outputs)
    held = 8 * p * (4 * rank + VECTORS * outputs)
    work = sketch + walk * (1.0 + (SLOW - 1.0) / outputs)  # several columns at once keep the arithmetic busy
    return Cost(CONJUGATE_GRADIENTS, sketch + walk, held, work, min(least, held))


def largest_rank(p: int, outputs: int, limit: int) -> int:
    """Columns of a sketch that fit into ``limit`` bytes; more than a quarter of p would cost what a factor costs."""
    return max(0, min(p // 4, (limit // (8 * p) - VECTORS * outputs) // 4, MOST_RANK))


def plan(costs: tuple[Cost, ...], options: SolverOptions, *, shift: float, like: Array) -> list[Cost]:
    """What to try, in order: the cheapest way that fits and, after conjugate gradients, what to fall back on.

    A factorisation is preferred where ``shift`` is zero: the least norm then depends on directions that a residual
    hardly sees. ``costs`` end with conjugate gradients.
    """
    *direct, walk = costs
    best = min(direct, key=lambda cost: cost.work)
    if options.solver == "auto" and options.memory_limit is None and best.work < SMALL:
        return [best]
    allowed = machine_limit(like) if options.limit is None else options.limit
    if options.solver == "iterative":
        return _fitting([walk], allowed, options)
    if options.solver == "direct":
        return [min(_fitting(direct, allowed, options), key=lambda cost: cost.work)]
    fitting = _fitting(list(costs), allowed, options)
    factored = sorted((cost for cost in fitting if cost is not walk), key=lambda cost: cost.work)[:1]
    if walk not in fitting or (factored and (shift == 0 or factored[0].work <= MARGIN * walk.work)):
        return factored
    return [walk, *factored]


def _fitting(costs: list[Cost], allowed: int, options: SolverOptions) -> list[Cost]:
    """Those that fit; without a limit from the user, the smallest if none does."""
    fitting = [cost for cost in costs if cost.least_bytes <= allowed]
    if fitting:
        return fitting
    least = min(costs, key=lambda cost: cost.least_bytes)
    if options.limit is None:
        return [least]
    little = f"memory_limit of {in_words(allowed)} is too little to solve by {least.method}"
    more = '; solver="iterative" takes less' if options.solver == "direct" else " or use fewer features"
    raise ParameterError(f"{little}, which takes {in_words(least.least_bytes)} beside the data; raise it{more}")


def machine_limit(like: Array) -> int:
    """Half the memory of the device that ``like`` lies on."""
    if array_api_compat.is_torch_array(like) and like.device.type == "cuda":
        return int(namespace(like).cuda.mem_get_info(like.device)[1]) // 2
    if array_api_compat.is_cupy_array(like):
        return int(like.device.mem_info[1]) // 2
    return _host_memory() // 2


@cache
def _host_memory() -> int:
    """Bytes of memory this process may use; 8 GB where the system does not say."""
    known = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    container = Path("/sys/fs/cgroup/memory.max")  # what a Linux container is granted
    text = container.read_text().strip() if container.is_file() else ""
    if text.isdigit():
        known.append(int(text))
    return min(known, default=8_000_000_000)
