"""One scale and one origin for all rows, applied to rows or to their sums.

Pooled over all rows (with their sample weights), every feature gets mean 0 and standard deviation 1 and every target
mean 0, so that one ridge means the same for every column: :class:`Scaling` standardises rows, :func:`moved` sums.
Moments of features with a constant column appended, ``[U, 1]``, hold all sums that this needs, so that rows that are
not in memory (streamed, or those of a member of a federated study) are standardised too.

The same sums give an intercept that is not penalised. Eliminating the constant from the normal equations (the Schur
complement) is the same as moving features and targets to their means: each domain's own mean for its local head, the
common weighted mean

    xbar_w = sum_i w_i W_i xbar_i / sum_i w_i W_i        (W_i the sum of sample weights)

for the weighted problem, after which the intercept is ``ybar_w - xbar_w' coef``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from mixtune.arrays import EPSILON, Array, Floats, in_threads, is_numpy, match, namespace, slices, to_device, to_numpy
from mixtune.errors import DataError
from mixtune.moments._leave_one_out import Fit, leave_one_out
from mixtune.moments._moments import Moments
from mixtune.moments._rows import RUN_ENTRIES, Rows, ShiftedRows

#: Entries of a Gram matrix that are moved at a time: memory may not hold a second wide matrix, and the allocator
#: reuses small arrays. A device moves the whole matrix at once.
MOVED_ENTRIES = 16_384
#: Numbers of features in prepared units at a time: 16 MB, which the allocator reuses.
BLOCK_ENTRIES = 2_097_152
#: Columns beyond this size, or below its inverse, are measured relative to their size: squares must not overflow.
LARGEST = 1e100
#: Sums of weights are squared, and so are targets: what is left of a square needs some digits above 1e-308.
HEAVIEST, SMALLEST_TARGETS, LARGEST_TARGETS = 1e140, 1e-140, 1e140
#: Smallest positive sample weight: rows are divided by their weight when they are left out.
LIGHTEST = 1e-100


@dataclass(frozen=True, eq=False)
class Scaling:
    """What was subtracted from features and targets, and what features were divided by."""

    shift: Floats
    scale: Floats
    target_shift: Floats

    def apply(self, rows: Rows) -> Rows:
        """Features and targets in prepared units."""
        return Rows(self.features(rows.X), rows.y - self.target_shift, rows.sample_weight)

    def features(self, features: Floats) -> Floats:
        """Features in prepared units."""
        ready = np.empty(features.shape)
        for run in slices(len(features), RUN_ENTRIES // features.shape[1]):
            np.subtract(features[run], self.shift, out=ready[run])
            ready[run] /= self.scale
        return ready

    def to_units(self, coef: Floats, intercept: Any) -> tuple[Floats, Any]:
        """Coefficients (..., p[, D]) and intercepts (...[, D]) of prepared features, for the features as they are."""
        single = self.target_shift.ndim == 0
        with np.errstate(over="ignore"):
            scaled = coef / (self.scale if single else self.scale[:, None])
        if beyond := np.argwhere(np.isfinite(coef) & ~np.isfinite(scaled)).tolist():
            column = beyond[0][-1 if single else -2]
            size = f"column {column} (counted from 0) varies by {self.scale[column]:.3g}"
            raise DataError(f"{size}, so its coefficient would be beyond float64; rescale it")
        moved = scaled @ self.shift if single else np.einsum("...pd,p->...d", scaled, self.shift)
        return scaled, intercept + self.target_shift - moved


def pooled_scaling(rows: Sequence[Rows], *, standardise: bool, center: bool) -> Scaling:
    """Weighted mean and standard deviation over all rows; columns that do not vary keep their scale.

    Without an intercept nothing is subtracted, so that the origin stays where it is.
    """
    if (total := sum(part.total for part in rows)) > HEAVIEST:
        large = f"sample weights add up to {total:.3g}, whose square is beyond float64"
        raise DataError(f"{large}; divide them by a constant")
    given = [part.sample_weight for part in rows if part.sample_weight is not None]
    if (least := min((float(np.min(w, where=w > 0, initial=1.0)) for w in given), default=1.0)) < LIGHTEST:
        small = f"a sample weight is {least:.3g}, which is too small to compute with"
        raise DataError(f"{small}; set it to 0 to leave its row out")
    mean, spread = _column_scale([part.X for part in rows], [part.weight for part in rows])
    y = np.concatenate([part.targets for part in rows])
    level, target_spread = _column_scale([y], [np.concatenate([part.weight for part in rows])])
    if not center:
        mean, level, target_spread = np.zeros_like(mean), np.zeros_like(level), np.max(np.abs(y), axis=0)
    check_target_size(target_spread)
    return Scaling(mean, spread if standardise else np.ones_like(spread), level.reshape(rows[0].y.shape[1:]))


def check_target_size(sizes: Floats) -> None:
    """Refuse targets whose squares vanish in float64, so that no fit is better than another, or are beyond it.

    Examples
    --------
    >>> check_target_size(np.array([1e-200]))
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: targets of size 1e-200 have squares below float64; multiply them by a constant
    """
    small = sizes[(sizes > 0) & (sizes < SMALLEST_TARGETS)]
    if len(small):
        raise DataError(f"targets of size {small[0]:.3g} have squares below float64; multiply them by a constant")
    if np.any(large := sizes > LARGEST_TARGETS):
        raise DataError(f"targets of size {sizes[large][0]:.3g} have squares beyond float64; divide them by a constant")


def _column_scale(parts: Sequence[Floats], weights: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each column, in two passes.

    Columns of extreme size are measured relative to that, so that no square overflows. Rows are taken a run at a time
    that stays in the cache, so that no domain is copied as a whole.
    """
    total = sum(float(weight.sum()) for weight in weights)
    size = np.max(_over_runs(lambda run, _: np.maximum(run.max(axis=0), -run.min(axis=0)), parts, weights), axis=0)
    size = np.where((size > LARGEST) | ((size < 1 / LARGEST) & (size > 0)), size, 1.0)
    unit = bool(np.all(size == 1.0))
    mean = sum(_over_runs(lambda run, weight: weight @ (run if unit else run / size), parts, weights)) / total

    def squares(run: Floats, weight: Floats) -> Floats:
        off = (run if unit else run / size) - mean
        off *= off
        return weight @ off

    spread = np.sqrt(sum(_over_runs(squares, parts, weights)) / total)
    constant = is_constant(mean, spread, sum(map(len, parts)))
    return mean * size, np.where(constant, 1.0, spread * size)


def is_constant(mean: Array, spread: Array, count: int) -> Array:
    """Whether columns of ``count`` rows do not vary: rounding of the mean alone leaves a spread of this order."""
    return spread <= 10 * EPSILON * math.sqrt(count) * abs(mean)


def _over_runs(
    function: Callable[[Floats, Floats], Floats], parts: Sequence[Floats], weights: Sequence[Floats]
) -> list[Floats]:
    """``function(rows, weights)`` of all rows, in order: small domains joined, large ones cut."""

    def over(block: slice) -> list[Floats]:
        single = block.stop - block.start == 1
        rows = parts[block.start] if single else np.concatenate(parts[block])
        weight = weights[block.start] if single else np.concatenate(weights[block])
        return [function(rows[run], weight[run]) for run in slices(len(rows), RUN_ENTRIES // rows.shape[1])]

    blocks = list(_blocks([len(part) for part in parts], parts[0].shape[1]))
    return [*chain.from_iterable(in_threads(over, blocks, width=RUN_ENTRIES))]


def _blocks(sizes: Sequence[int], width: int) -> Iterator[slice]:
    """Runs of domains with about RUN_ENTRIES numbers each."""
    begin = held = 0
    for end, size in enumerate(sizes, start=1):
        held += size * width
        if held >= RUN_ENTRIES or end == len(sizes):
            yield slice(begin, end)
            begin, held = end, 0


class Origin(NamedTuple):
    """A point that rows are taken about: features (p,), and targets () or (D,)."""

    features: Floats
    targets: Floats

    @classmethod
    def zero(cls, n_features: int) -> Origin:
        """The point of zeros, for one target."""
        return cls(np.zeros(n_features), np.zeros(()))

    @classmethod
    def of(cls, rows: Rows) -> Origin:
        """The mean of rows that count alike."""
        return cls(rows.X.mean(axis=0), np.asarray(rows.y.mean(axis=0)))

    def rows(self, rows: Rows) -> Rows:
        """Rows about this point."""
        return Rows(rows.X - self.features, rows.y - self.targets, rows.sample_weight)

    def moments(self, rows: Rows) -> Moments:
        """Moments of ``[U, 1]`` of rows about this point; the rows themselves are not kept."""
        return augmented(self.rows(rows)).without_rows()

    def move(self, moments: Moments, to: Origin) -> Moments:
        """Moments about this point as those about another."""
        return about(moments, self, to)


@dataclass(frozen=True, eq=False)
class LocalModel:
    """Ridge regression of one domain with a free intercept: coefficients (p,), intercept, and the fit they are from."""

    coef: Floats
    intercept: float
    fit: Fit

    @classmethod
    def of(cls, rows: Rows, ridge: float) -> LocalModel:
        """Fit rows that count alike; sums are taken about their mean, which keeps the digits of a small variance.

        Examples
        --------
        >>> rows = Rows(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0]))
        >>> model = LocalModel.of(rows, 0.0)
        >>> model.coef.round(12), round(model.intercept, 12)
        (array([2.]), 1.0)
        """
        mean = Origin.of(rows)
        near = augmented(mean.rows(rows))
        rest = own_center(near)
        centred = recentred(near, rest)
        center = Center(mean.features + rest.features, mean.targets + rest.targets, rest.total)
        coef = centred.head(ridge)
        intercept = float(center.intercept(coef))
        fit = Fit(coef[:, None], np.array([intercept]), centred.system, center, ridge, 1.0)
        return cls(coef, intercept, fit)

    def left_out_error(self, rows: Rows) -> float:
        """Mean squared error on the rows behind it, each left out in turn."""
        return leave_one_out(rows, self.fit).error


def pooled_scale(moments: Sequence[Moments], origin: Origin | None = None) -> tuple[Floats, Floats, Floats]:
    """Mean and standard deviation of the features, and mean of the targets, over all rows of several moments.

    The last feature must be the constant 1. A column whose spread is within rounding of its mean counts as constant and
    gets spread 1: sums of squares cannot tell below about 1e-7 of it. Where the sums are about an ``origin`` near the
    rows they can tell far more; the means are then relative to it.

    Examples
    --------
    >>> U, y = np.array([[1.0, 1.0], [3.0, 1.0], [5.0, 1.0]]), np.array([0.0, 1.0, 2.0])
    >>> mean, spread, target = pooled_scale([Moments.from_rows(U, y)])
    >>> mean, spread.round(3), target
    (array([3.]), array([1.633]), array(1.))
    """
    parts = [_first_sums(m) for m in moments]
    sums, squares = (np.sum([part[side] for part in parts], axis=0) for side in (0, 1))
    total = sums[-1]
    mean, square = sums[:-1] / total, squares[:-1] / total
    variance = square - mean**2
    constant = variance <= 64 * EPSILON * square
    if origin is not None:
        # Rounding of the features themselves, before the origin was taken out, leaves a spread of this order.
        rounding = 10 * EPSILON * np.sqrt(sum(m.count for m in moments))
        constant |= variance <= (rounding * (origin.features + mean)) ** 2
    spread = np.where(constant, 1.0, np.sqrt(np.where(constant, 1.0, variance)))
    # Where all squares vanish, the targets' products with the features still say how large the targets are.
    squares = sum(to_numpy(m._square) for m in moments)
    products = np.max([np.abs(to_numpy(m._cross)).max(axis=0) for m in moments], axis=0)
    check_target_size(np.where(squares > 0, np.sqrt(squares / total), products / total))
    return mean, spread, np.asarray(sum(to_numpy(m.cross[-1]) for m in moments) / total)


def _first_sums(moments: Moments) -> tuple[Floats, Floats]:
    """Sums of every feature, and of its squares."""
    if moments.rows is None:
        return to_numpy(moments.gram[-1]), _diagonal(moments.gram)
    # A Gram matrix of few rows would be larger than they are.
    design = to_numpy(moments.rows[0])
    return design[:, -1] @ design, np.sum(design**2, axis=0)


def _diagonal(gram: Array) -> Floats:
    return to_numpy(namespace(gram).linalg.diagonal(gram))


def moved(moments: Moments, shift: Floats, scale: Floats, target_shift: Floats) -> Moments:
    """Moments of ``[(U - shift) / scale, 1]`` and ``Y - target_shift``, from those of ``[U, 1]`` and ``Y``.

    Parameters
    ----------
    moments
        Over p features and the constant 1 as the last one (or the root of a row's weight, if rows were scaled by it).
    shift, scale : array (p,)
    target_shift : scalar or array (D,)

    Examples
    --------
    >>> U, y = np.array([[1.0, 1.0], [3.0, 1.0], [5.0, 1.0]]), np.array([0.0, 1.0, 2.0])
    >>> moved(Moments.from_rows(U, y), np.array([3.0]), np.array([2.0]), np.array(1.0)).gram
    array([[2., 0.],
           [0., 3.]])
    """
    xp = namespace(moments._cross)
    origin, spread, level = (match(part, moments._cross) for part in (shift, scale, np.reshape(target_shift, -1)))
    if moments.rows is not None:
        U, Y = ShiftedRows(*moments.rows, origin, level).load()
        U = xp.concat([U / spread, moments.rows[0][:, -1:]], axis=1)
        return Moments.from_rows(U, Y[:, 0] if moments.single_output else Y)
    gram, cross = moments.gram, moments._cross
    total, sums = gram[-1, -1], gram[-1, :-1] - gram[-1, -1] * origin
    new = xp.empty_like(gram)
    inner, square = _moved_sums(moments, origin, spread, level, out=new[:-1, :-1])
    new[-1, :-1] = new[:-1, -1] = sums / spread
    new[-1, -1] = total
    cross = xp.concat([inner, (cross[-1] - total * level)[None]])
    return moments._replaced(gram=new, cross=cross, square=square, summed=_rounding_left(moments, scale))


def _moved_sums(moments: Moments, shift: Array, scale: Array | None, level: Array, out: Array) -> tuple[Array, Array]:
    """``U'Y`` and ``|Y|^2`` of moved features and targets; their ``U'U`` goes to ``out`` (p, p)."""
    gram, cross, xp = moments.gram, moments._cross, namespace(moments._cross)
    total, sums, targets = gram[-1, -1], gram[-1, :-1], cross[-1]
    # (U - 1 c')'(U - 1 c') = U'U - (h c' + c h') with h = U'1 - n c/2; it stays symmetric to the last bit.
    half = sums - 0.5 * total * shift
    for here in slices(len(sums), MOVED_ENTRIES // len(sums) if is_numpy(gram) else len(sums)):
        both = half[here, None] * shift
        both += shift[here, None] * half
        out[here] = gram[here, :-1] - both
        if scale is not None:
            out[here] /= scale[here, None] * scale
    inner = cross[:-1] - shift[:, None] * targets - (sums - total * shift)[:, None] * level
    inner = inner if scale is None else inner / scale[:, None]
    return inner, xp.clip(moments._square - 2 * level * targets + total * level**2, min=0.0)


def about(moments: Moments, old: Origin, new: Origin) -> Moments:
    """Moments of ``[U - old, 1]`` as those of ``[U - new, 1]``; the same object where it is the same point."""
    shift, level = new.features - old.features, new.targets - old.targets
    if not np.any(shift) and not np.any(level):
        return moments
    return moved(moments, shift, np.ones_like(shift), level)


def _rounding_left(moments: Moments, scale: Floats | float) -> float:
    """Rounding of what was there before the means were taken out remains, scaled like the features it is in."""
    diagonal = _diagonal(moments.gram)
    known = max(moments._summed / float(np.max(diagonal)), 1.0)
    return known * float(np.max(diagonal[:-1] / scale**2, initial=0.0))


@dataclass(frozen=True, eq=False)
class Center:
    """A point (features (p,), targets () or (D,)) and the total weight behind it; infinite where nothing was fitted."""

    features: Floats
    targets: Floats
    total: float

    def intercept(self, coef: Floats) -> Any:
        """``ybar - xbar' coef``."""
        return self.targets - self.features @ coef


def augmented(rows: Rows, scaling: Scaling | None = None, device: str | None = None) -> Moments:
    """Moments of ``[U, 1]``, in the units of ``scaling``, with every row scaled by the root of its sample weight.

    Many rows are taken a block at a time, so that neither the constant nor prepared units need a second copy of them.
    With a ``device`` of PyTorch they are sent there, and the moments stay there.
    """
    n, p = rows.shape
    if n <= p:
        U, Y, root = _rooted(rows, scaling, device)
        return Moments.from_rows(namespace(U).concat([U, root[:, None]], axis=1), Y)
    total: Moments | None = None
    edge: Any = 0.0
    for block in slices(n, max(4 * p, BLOCK_ENTRIES // p)):
        U, Y, root = _rooted(rows.part(block), scaling, device)
        xp = namespace(U)
        part = Moments.from_rows(U, Y)
        total = part if total is None else total + part
        edge = edge + xp.concat([xp.reshape(root @ each, (-1,)) for each in (U, root, Y)])
    assert total is not None
    gram = xp.empty((p + 1, p + 1), dtype=xp.float64, device=edge.device)
    gram[:-1, :-1] = total.gram
    gram[-1] = gram[:, -1] = edge[: p + 1]
    cross = xp.concat([total._cross, edge[None, p + 1 :]])
    return Moments._make(n, total.single_output, gram=gram, cross=cross, square=total._square)


def _rooted(rows: Rows, scaling: Scaling | None, device: str | None) -> tuple[Array, Array, Array]:
    """Features and targets in prepared units and a column of ones, all scaled by the roots of the sample weights."""
    if scaling is not None and device is None:
        rows = scaling.apply(rows)
    U, y, root = (to_device(part, device) for part in (rows.X, rows.y, np.sqrt(rows.weight)))
    if scaling is not None and device is not None:
        U, y = (U - match(scaling.shift, U)) / match(scaling.scale, U), y - match(scaling.target_shift, U)
    if rows.sample_weight is None:
        return U, y, root
    return U * root[:, None], y * (root if y.ndim == 1 else root[:, None]), root


def own_center(moments: Moments) -> Center:
    """The weighted mean of a domain, from its augmented moments."""
    sums = to_numpy(moments.gram[-1] if moments.rows is None else moments.rows[0][:, -1] @ moments.rows[0])
    total = float(sums[-1])
    return Center(sums[:-1] / total, np.asarray(to_numpy(moments.cross[-1]) / total), total)


def no_center(moments: Moments) -> Center:
    """The origin, for fits without an intercept."""
    return Center(np.zeros(moments.n_features - 1), np.zeros(moments.cross.shape[1:]), math.inf)


def common_center(moments: Sequence[Moments], weights: Floats) -> Center:
    """The mean of all rows, each domain counted with its weight.

    Examples
    --------
    >>> rows = [Rows(np.array([[0.0]]), np.array([0.0])), Rows(np.array([[2.0], [4.0]]), np.array([1.0, 1.0]))]
    >>> center = common_center([augmented(r) for r in rows], np.array([0.5, 0.5]))
    >>> center.features, center.total
    (array([2.]), 1.5)
    """
    centers = [(own_center(m), float(w)) for m, w in zip(moments, weights, strict=True)]
    total = sum(w * center.total for center, w in centers)
    features = sum(w * center.total * center.features for center, w in centers) / total
    targets = sum(w * center.total * center.targets for center, w in centers) / total
    return Center(np.asarray(features), np.asarray(targets), float(total))


def recentred(moments: Moments, center: Center, *, keep: bool = True) -> Moments:
    """Moments of ``U - 1 c'`` and ``Y - 1 d'`` without the constant column, from augmented moments.

    Kept rows are moved themselves, or with ``keep=False`` each time they are needed, which takes no memory.
    """
    origin, level = (match(part, moments._cross) for part in (center.features, np.reshape(center.targets, -1)))
    if (rows := moments.rows) is not None:
        shifted = ShiftedRows(*rows, origin, level)
        if moments.count < moments.n_features - 1:
            return Moments.from_shifted(shifted, single=moments.single_output, keep=keep)
        U, Y = shifted.load()
        return Moments.from_rows(U, Y[:, 0] if moments.single_output else Y)
    gram = namespace(origin).empty((len(origin),) * 2, dtype=origin.dtype, device=origin.device)
    cross, square = _moved_sums(moments, origin, None, level, gram)
    return moments._replaced(gram=gram, cross=cross, square=square, summed=_rounding_left(moments, 1.0))
