"""Many small datasets at once: their local heads by stacked solves, in chunks of bounded memory.

Ten thousand heads of fifty rows each need ten thousand small factorisations. A loop in Python takes longer than the
factorisations themselves; stacked, NumPy solves all of them in one call. :func:`local_heads` gives the same as
``[m.head(ridge) for m in moments]``, up to rounding. It uses that loop where stacking is not safe: for ridges so small
that a matrix may be singular, wide features, and other array libraries.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np

from mixtune.arrays import NARROW, Array, Booleans, Floats, column_gram, is_numpy, namespace, slices
from mixtune.checks import check_nonnegative
from mixtune.errors import ParameterError
from mixtune.moments._cost import AUTO, CONJUGATE_GRADIENTS, plan, row_costs
from mixtune.moments._moments import Moments, check_alike
from mixtune.moments._rows import RowParts
from mixtune.moments._system import GramSystem, Part, System, rounding_of, row_system, stack

#: From this many datasets on, stacking pays; below, the plain loop keeps its bits.
MANY = 64
#: Widest sums whose heads are solved in a stack, by elimination: beyond, a Cholesky factorisation each is quicker.
STACKED = 96
#: Rows, or Gram matrices, stacked at a time.
CHUNK_BYTES = 33_554_432
#: Numbers stacked for one product: 8 MB, enough that the threads of a product do not spend their time meeting.
GROUP_ENTRIES = 1_048_576
#: With this many small datasets, products are cut into slabs of at most so many multiplications. Measured on two cores
#: shared with other work, 10,000 rows at p = 100: one product 340 ms, nearly all of it threads that wait for each
#: other, in slabs 25 ms.
MANY_GROUPS, SLAB_PRODUCT = 64, 250_000


def local_heads(moments: Sequence[Moments], ridges: Sequence[float]) -> Array:
    """Local ridge heads of all datasets, stacked: (N, p) or (N, p, D).

    Parameters
    ----------
    moments : sequence of Moments
        All over the same features and outputs.
    ridges : sequence of float
        kappa >= 0 of each.

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune import Moments
    >>> moments = [Moments.from_rows(np.eye(2), np.array([1.0, k])) for k in range(100)]
    >>> local_heads(moments, [1.0] * 100)[7]
    array([0.5, 3.5])
    """
    check_alike(moments)
    ridges = [check_nonnegative("ridge", ridge) for ridge in ridges]
    first = moments[0]
    if len(moments) < MANY or not is_numpy(first.cross) or first.n_features >= NARROW:
        return namespace(first.cross).stack([m.head(ridge) for m, ridge in zip(moments, ridges)])
    heads = np.empty((len(moments), first.n_features, first.n_outputs))
    kept, summed, slow = _by_size(moments)
    strengths = np.asarray(ridges, dtype=np.float64)
    for places in kept:
        # Fewer rows than features: by the n x n duals.
        pairs = [moments[i].rows for i in places]
        U, Y = (np.stack([pair[side] for pair in pairs if pair is not None]) for side in (0, 1))
        duals, done = _ridge_solve(U @ U.transpose(0, 2, 1), Y, strengths[places])
        heads[places] = U.transpose(0, 2, 1) @ duals
        slow.extend(np.asarray(places)[~done].tolist())
    for places in chunks(summed, 16 * first.n_features**2):
        own = [moments[i] for i in places]
        grams, crosses = np.stack([m.gram for m in own]), np.stack([m._cross for m in own])
        heads[places], done = _ridge_solve(grams, crosses, strengths[places], np.array([m._summed for m in own]))
        slow.extend(np.asarray(places)[~done].tolist())
    for i in slow:
        head = moments[i].head(strengths[i])
        heads[i] = head[:, None] if first.single_output else head
    return heads[:, :, 0] if first.single_output else heads


def _ridge_solve(grams: Array, rhs: Array, ridges: Floats, summed: Floats | float = 0.0) -> tuple[Floats, Booleans]:
    """``(gram + ridge I)^{-1} rhs`` of each matrix, which is overwritten, and which solutions are reliable."""
    diagonal = np.einsum("kii->ki", grams)  # a view
    largest = np.maximum(diagonal.max(axis=1), summed)
    safe = ridges > rounding_of(grams.shape[1]) * largest
    diagonal += np.where(safe, ridges, 1.0 + largest)[:, None]
    return np.linalg.solve(grams, rhs), safe


def chunks(places: Sequence[int], bytes_each: int) -> Iterator[list[int]]:
    """The places in runs that stay within the memory of one chunk."""
    for part in slices(len(places), CHUNK_BYTES // max(1, bytes_each)):
        yield list(places[part])


def _by_size(moments: Sequence[Moments]) -> tuple[Iterator[list[int]], list[int], list[int]]:
    """Datasets of few rows, in chunks of one size; those that are narrow sums; and those best solved one by one."""
    sizes: dict[int, list[int]] = defaultdict(list)
    summed, others = [], []
    p = moments[0].n_features
    for i, m in enumerate(moments):
        if m.keeps_rows and m.count < p:
            sizes[m.count].append(i)
        elif m.keeps_rows or p > STACKED:
            others.append(i)
        else:
            summed.append(i)
    runs = (run for size, places in sizes.items() for run in chunks(places, 8 * size * (p + size)))
    return runs, summed, others


def weighted_system(moments: Sequence[Moments], weights: Floats) -> System:
    """``sum_i w_i`` of the datasets' normal equations; datasets of weight zero are not touched.

    While all rows with positive weight are at hand, they are used as they are where they are fewer than the features,
    were kept on request, or are so many and so wide that a matrix of features by features would cost too much.
    """
    check_alike(moments)
    active = [(m, float(w)) for m, w in zip(moments, weights, strict=True) if w > 0]
    if not active:
        raise ParameterError("all weights are zero; at least one dataset must count")
    first = active[0][0]
    xp = namespace(first._cross)
    if all(m.keeps_rows for m, _ in active) and _prefers_rows([m for m, _ in active]):
        return row_system([Part(U, Y, w) for m, w in active for U, Y in m.parts], [m.kernel for m, _ in active])
    if len(active) == 1 and active[0][1] == 1.0:  # nothing to add up, nothing to copy
        return GramSystem(first.gram, first._cross, first._square, first._summed)
    cross = sum(w * m._cross for m, w in active)
    square = sum(w * m._square for m, w in active)
    gram = xp.zeros((first.n_features,) * 2, dtype=xp.float64, device=first._cross.device)
    unsummed = []
    for m, w in active:
        if m._gram is not None or isinstance(m._kept, RowParts):
            gram += m.gram if w == 1.0 else w * m.gram
        else:
            unsummed.append((m, w))
    # Runs of datasets with about so many rows each, so that one product serves many.
    size = max(4 * first.n_features, GROUP_ENTRIES // first.n_features)
    begins = np.cumsum([0, *(m.count for m, _ in unsummed)]) // size
    for _, group in groupby(zip(begins, unsummed), key=itemgetter(0)):
        U, _ = stack([Part(*pair, w) for _, (m, w) in group for pair in m.parts])
        slab = SLAB_PRODUCT // first.n_features**2
        gram += _slab_gram(U, slab) if len(unsummed) >= MANY_GROUPS and is_numpy(U) and slab >= 8 else column_gram(U)
    return GramSystem(gram, cross, square, max(w * m._summed for m, w in active))


def _prefers_rows(moments: Sequence[Moments]) -> bool:
    """Whether rows describe the sum of these better than a Gram matrix: few of them, kept on request, or very wide."""
    first, count = moments[0], sum(m.count for m in moments)
    if count < first.n_features or any(isinstance(m._kept, RowParts) for m in moments):
        return True
    ways = plan(row_costs(count, first.n_features, first.n_outputs), AUTO, shift=1.0, like=first._cross)
    return ways[0].method == CONJUGATE_GRADIENTS


def _slab_gram(U: Floats, slab: int) -> Floats:
    """``U'U`` as a sum over slabs of rows, each a product so small that it is computed in one thread."""
    whole = len(U) // slab * slab
    slabs = U[:whole].reshape(-1, slab, U.shape[1])
    gram = np.matmul(slabs.transpose(0, 2, 1), slabs).sum(axis=0) + U[whole:].T @ U[whole:]
    return (gram + gram.T) / 2
