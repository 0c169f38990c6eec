"""Ridge fits along whole paths, with every row left out in turn, for the price of one eigendecomposition.

A prior N(mean, q S) on the coefficients and noise of variance s^2 make the posterior mean a ridge fit around ``mean``,
in the metric S, of effective ridge s^2/q. With U'U = V diag(a) V' and Z = U V, the plain ridge fit of strength k has
leverages h_i = sum_j Z_ij^2/(a_j + k), and leaves out row i with residual e_i/(1 - h_i): every ridge costs O(n p) after
the decomposition. Where rows are fewer than features, the same is said through the n x n matrix of inner products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from mixtune.arrays import (
    Floats,
    Integers,
    add_to_diagonal,
    column_gram,
    factor_device,
    slices,
    to_device,
    to_numpy,
    torch_module,
)
from mixtune.checks import check_nonnegative
from mixtune.errors import DataError, ParameterError
from mixtune.moments._leave_one_out import SATURATED, left_out_residuals
from mixtune.moments._moments import Moments
from mixtune.moments._rows import Rows
from mixtune.moments._standardise import Center, augmented, check_target_size, no_center, own_center, recentred
from mixtune.moments._system import RowSystem, rounding_of

#: Eigenvalues below this part of the largest are rounding.
RANK_TOLERANCE = 1e-12
#: Eigenvalues below this part of the largest are known to less than half of all digits.
CLEAR_DIRECTION = 1e-8
#: With at most this part as many rows to leave out as directions, a tridiagonal form is cheaper than a spectrum.
FEW_ROWS = 0.5
#: Up to this many inverses are cheaper than a spectrum (with 100 rows, six take two thirds of its time). They are as
#: exact if the shift of a kernel is at least this part of its trace.
FEW_POINTS, CLEAR_SHIFT = 8, 1e-6
#: If an update of a kernel has at most this many columns per row, updating its inverse is cheaper than a new one.
FEW_COLUMNS = 0.2
#: Steps along a tridiagonal matrix whose squares are added up in one call.
FEW_ENTRIES = 32
#: Errors that differ by less than this part are equal: rounding.
TIED = 1e-9


class Paths(NamedTuple):
    """Fits along paths: coefficients (C, d), residuals of left-out rows (C, n), leverages (C, n) of one copy of a row.

    Where the intercept is free, it is the last coefficient.
    """

    heads: Floats
    left_out: Floats
    leverages: Floats


#: Eigenvalues (r,) of a Gram matrix, and its eigenvectors (p, r).
Spectrum = tuple[Floats, Floats]


class Directions(NamedTuple):
    """Eigenvalues (r,) of U'U, and ``gains``, ``basis`` (p, r) and ``pulls`` with U'y = B q and U'U = B diag(g) B'."""

    values: Floats
    gains: Floats
    basis: Floats
    pulls: Floats


@dataclass(eq=False, repr=False)
class Regression:
    """The least-squares problem of one dataset with a single output: sums over all rows, and the rows to leave out.

    Parameters
    ----------
    system : GramSystem or RowSystem
        Its normal equations, every row scaled by the root of its sample weight.
    given : Rows, callable or None
        The same rows, or some of them where the system holds sums; or a function that makes them when they are first
        asked for. None where rows are unknown and only sums count.
    total : float
        The number of rows, each counting as its sample weight.
    center : Center, optional
        Where features and targets were moved to their means, which an intercept that is not penalised amounts to.
    count : float, optional
        How many rows there are, those of weight above 1 counting as so many; ``total`` by default.
    spectra : dict, optional
        Where the spectrum is kept for problems that differ by their targets alone.
    """

    system: Any
    given: Any
    total: float
    center: Center | None = None
    count: float | None = None
    spectra: dict[str, Spectrum] | None = None

    @cached_property
    def rows(self) -> Any:
        """The rows to leave out."""
        return self.given() if callable(self.given) else self.given

    @property
    def wide(self) -> bool:
        """Whether rows, being fewer than the features, describe it; else sums do."""
        return isinstance(self.system, RowSystem)

    @property
    def width(self) -> int:
        return int(self.system.zero.shape[0])

    @cached_property
    def gram(self) -> Floats:
        return column_gram(self.system.rows) if self.wide else self.system.gram

    @cached_property
    def cross(self) -> Floats:
        return self.system.gradient(np.zeros((self.width, 1)))[:, 0]

    @property
    def square(self) -> float:
        return float(self.system.target_square)

    @property
    def design(self) -> Floats:
        """At most p rows (r, p) with the same sums; all rows, scaled by the roots of their weights, if it is wide."""
        return self.compressed[0]

    @property
    def targets(self) -> Floats:
        """The targets (r,) of :attr:`design`."""
        return self.compressed[1]

    @cached_property
    def kernel(self) -> Floats:
        """Inner products (r, r) of the rows of :attr:`design`."""
        return self.design @ self.design.T

    @cached_property
    def _across(self) -> Floats | None:
        """The rows to leave out (n, r) in terms of :attr:`design`; None where they are those rows, but for weights."""
        if self.wide:
            return None
        values, vectors = self._clear_spectrum
        return (self.rows.X @ vectors) / np.sqrt(values)

    @cached_property
    def unit(self) -> Floats:
        """What goes when a row is left out: one of its copies, or all of a row of weight below 1."""
        return np.minimum(self.rows.weight, 1.0)

    @property
    def mean_eigenvalue(self) -> float:
        """Of U'U, over as many directions as there can be; 1 where features do not vary beyond rounding."""
        trace = float(np.vdot(self.design, self.design)) if self.wide else float(np.trace(self.gram))
        # What was there before the means were taken out leaves rounding behind.
        before = 0.0 if self.center is None else self.total * float(self.center.features @ self.center.features)
        return trace / max(min(self.total, self.width), 1) if trace > RANK_TOLERANCE * before else 1.0

    @cached_property
    def compressed(self) -> tuple[Floats, Floats, float]:
        """At most p rows (r, p) and targets (r,) with the same sums, and the sum of squares that no fit can explain.

        Likelihoods from these rows lose no digits where noise is small; sums would give differences of large numbers.
        """
        if self.wide:
            return np.asarray(self.system.rows), np.asarray(self.system.targets[:, 0]), 0.0
        values, vectors = self._clear_spectrum
        root = np.sqrt(values)
        targets = vectors.T @ self.cross / root
        return root[:, None] * vectors.T, targets, max(self.square - float(targets @ targets), 0.0)

    @property
    def _clear_spectrum(self) -> Spectrum:
        """The spectrum without directions that are rounding."""
        values, vectors = self.spectrum
        kept = values > RANK_TOLERANCE * values[-1]
        if not kept.any():  # one row about its own mean: one direction stays, which says nothing
            return np.full(1, np.finfo(np.float64).tiny), vectors[:, -1:]
        return (values, vectors) if kept.all() else (values[kept], vectors[:, kept])

    @cached_property
    def spectrum(self) -> Spectrum:
        """That of U'U, through the smaller of U'U and U U'; directions that no row has are left out of the latter."""
        return self._shared("columns", self._make_spectrum)

    @cached_property
    def directions(self) -> Directions:
        """Those of U'U; of a wide problem through the spectrum of its rows, none of which need be told from rounding.

        Where noise is small, directions far weaker than the strongest one count.
        """
        if self.wide:
            values, left = self._row_spectrum
            _, basis = self._shared("basis", lambda: (values, self.design.T @ left))
            return Directions(values, np.ones_like(values), basis, left.T @ self.targets)
        values, vectors = self.spectrum
        return Directions(values, values, vectors, vectors.T @ self.cross)

    @cached_property
    def _row_spectrum(self) -> Spectrum:
        """The spectrum of the kernel U U' of a wide problem."""
        return self._shared("rows", lambda: spectrum_of(np.array(self.kernel)))

    def _shared(self, name: str, make: Callable[[], Spectrum]) -> Spectrum:
        """One spectrum for all problems that differ only in their targets."""
        if self.spectra is None:
            return make()
        key = name if self.center is None else f"{name} about their mean"
        if key not in self.spectra:
            self.spectra[key] = make()
        return self.spectra[key]

    def _make_spectrum(self) -> Spectrum:
        if not self.wide:
            return spectrum_of(np.array(self.gram))
        values, left = self._row_spectrum
        kept = values > RANK_TOLERANCE * values[-1]
        return values[kept], self.design.T @ (left[:, kept] / np.sqrt(values[kept]))

    def judged(self, index: Any) -> Regression:
        """The same sums with some of the rows to leave out in turn; not where rows are what describes it."""
        assert self.spectrum is not None  # made here, it serves all parts
        found = copy(self)
        for name in ("rows", "unit", "_across"):
            found.__dict__.pop(name, None)
        found.given = self.rows.part(index)
        return found

    def error(self, residuals: Floats) -> Floats:
        """Weighted mean squares over the rows, the last axis."""
        return (residuals**2) @ (self.rows.weight / self.rows.total)

    def mean_squares(self, heads: Floats) -> Floats:
        """Weighted mean squared errors of coefficients (K, p), over all rows behind the sums."""
        return np.asarray(self.system.column_losses(heads.T, 1)) / self.total

    def ridge_path(self, ridges: Floats) -> Paths:
        """Plain ridge regression at every ridge."""
        if self.wide and self.targets.shape == (len(self.rows.y),):
            # A prior N(0, I/ridge), through the kernel of the rows, where these are the rows to leave out.
            duals, leverages = self._filtered(self._row_spectrum, self.targets, 1.0, 1.0 / np.asarray(ridges))
            return self.finish(duals @ self.design, leverages)
        values, vectors = self.spectrum
        filters = 1.0 / (values[..., None, :] + np.asarray(ridges)[..., None])
        pull = turned(vectors) @ self.cross[..., None]
        heads = (filters * turned(pull)) @ turned(vectors)
        return self.finish(heads, self.unit[..., None, :] * (filters @ turned((self.rows.X @ vectors) ** 2)))

    def ridge_left_out(self, ridges: Floats) -> Floats:
        """Residuals of left-out rows (Q, n) of plain ridge regression; where rows are few, without a spectrum."""
        found = None
        if not self.wide and len(self.rows.X) <= FEW_ROWS * self.width and factor_device(self.width) is None:
            found = tridiagonal_solves(np.array(self.gram), ridges, self.cross, self.rows.X)
        paths = self.ridge_path(ridges) if found is None else self.finish(found[0], self.unit * found[1])
        return paths.left_out

    def ridge_errors(self, ridges: Floats) -> Floats:
        """Leave-one-out errors (Q,) of plain ridge regression at every ridge."""
        return self.error(self.ridge_left_out(ridges))

    def generalised_errors(self, ridges: Floats) -> tuple[Floats, Floats, Floats]:
        """Generalised cross-validation (Q,) of plain ridge regression, with its parts; it needs sums only.

        The parts are the sums of squared residuals, and the degrees of freedom that are left. Where none are left
        there is nothing to validate on, and the error is infinite.
        """
        values, _, _, pulls = self.directions
        shifts = np.asarray(ridges)[:, None]
        filters = 1.0 / (values + shifts)
        if self.wide:
            squares = (shifts * filters) ** 2 @ pulls**2
        else:
            # Along clear directions, what a ridge leaves of an exact fit loses no digits. Eigenvalues of the others are
            # partly rounding, and are not divided by.
            clear = values > CLEAR_DIRECTION * np.max(values, initial=0.0)
            exact = pulls[clear] ** 2 / values[clear]
            left = 1.0 - filters[:, clear] * values[clear]
            vague = (filters * (2.0 - filters * values))[:, ~clear] @ pulls[~clear] ** 2
            squares = np.maximum(max(self.square - float(exact.sum()), 0.0) + left**2 @ exact - vague, 0.0)
        count = self.total if self.count is None else self.count
        freedom = count - np.sum(filters * values, axis=1) - (self.center is not None)
        return generalised_error(squares, freedom, count), squares, freedom

    def generalised_fit(self, ridges: Floats, least: float) -> tuple[float, Floats]:
        """The least error of :meth:`generalised_errors`, and its coefficients (p,), without a spectrum.

        Errors below ``least`` tie: squares of an exact fit are rounding here.
        """
        matrix, right = (self.kernel, self.targets) if self.wide else (self.gram, self.cross)
        form = Tridiagonal(matrix)
        right = form.turn(right[:, None].copy())[:, 0]
        down, up = form.factors(ridges), form.factors(ridges, step=-1)
        assert down is not None  # ridges are far above rounding
        assert up is not None
        solved = form.solve(down, right)
        norms = np.sum(solved**2, axis=1)
        # Residuals are ridge times duals; from sums, they are what is left of the squares of the targets.
        squares = ridges**2 * norms if self.wide else self.square - solved @ right - ridges * norms
        # What the factors from both ends leave of a diagonal entry of T + c is one over that of the inverse.
        entries = down[0].reshape(solved.shape) + up[0].reshape(solved.shape)[:, ::-1]
        traces = np.sum(1.0 / (entries - form.diagonal - ridges[:, None]), axis=1)
        count = self.total if self.count is None else self.count
        freedom = count - len(matrix) + ridges * traces - (self.center is not None)
        errors = np.maximum(generalised_error(squares, freedom, count), least)
        head = form.turn(solved[best_ridge(ridges, errors), :, None].copy(), back=True)[:, 0]
        return float(np.min(errors)), head @ self.design if self.wide else head

    def prior_paths(self, means: Floats, roots: Floats, noise: Floats | float, scales: Floats) -> tuple[Floats, Floats]:
        """Coefficients (K Q, p) and leverages (K Q, n) for priors N(means[k], q L_k L_k'), through p x p matrices."""
        gram = self.gram[..., None, :, :]
        values, vectors = np.linalg.eigh(turned(roots) @ gram @ roots)
        basis = roots @ vectors
        pull = turned(basis) @ (self.cross[..., None, :] - (means[..., None, :] @ gram)[..., 0, :])[..., None]
        spreads = scales[:, None] * np.maximum(values, 0.0)[..., None, :] + np.asarray(noise)[..., None, None, None]
        filters = scales[:, None] / spreads
        heads = means[..., None, :] + (filters * turned(pull)) @ turned(basis)
        leverages = self.unit[..., None, None, :] * (filters @ turned((self.rows.X[..., None, :, :] @ basis) ** 2))
        shape = (*heads.shape[:-3], -1)
        return heads.reshape(*shape, heads.shape[-1]), leverages.reshape(*shape, leverages.shape[-1])

    def dual_path(self, fitted: Floats, kernel: Floats, noise: float, scales: Floats) -> tuple[Floats, Floats]:
        """The same for one prior N(mean, q S), through r x r matrices: duals (Q, r) and leverages (Q, n).

        ``fitted`` is ``design mean`` (r,), ``kernel`` is ``design S design'`` (r, r), which is overwritten;
        coefficients are ``mean + S design' dual``.
        """
        across = None if factor_device(len(kernel)) else self._across
        if across is not None and len(across) <= FEW_ROWS * len(kernel):
            found = tridiagonal_solves(kernel, noise / scales, self.targets - fitted, across)
            if found is not None:
                whole = np.sum(across**2, axis=1)
                return found[0], (whole - (noise / scales)[:, None] * found[1]) * self.unit
        if self._across is None and len(scales) <= FEW_POINTS and factor_device(len(kernel)) is None:
            shifts = noise / scales
            if shifts.min() >= CLEAR_SHIFT * np.trace(kernel):
                duals, diagonals = shifted_inverses(kernel, shifts, self.targets - fitted)
                return duals, (1.0 - shifts[:, None] * diagonals) * (self.unit / self.rows.weight)
        return self._filtered(spectrum_of(kernel), self.targets - fitted, noise, scales)

    def updated_path(
        self, own: float, added: Floats, fitted: Floats, kernel: Floats, noise: float, scales: Floats
    ) -> tuple[Floats, Floats] | None:
        """:meth:`dual_path` for a kernel ``own U U' + B B'`` with few columns B = ``added`` (r, k).

        It uses the spectrum of U U' and k x k matrices; None where that is no cheaper, or less exact.
        """
        shifts = noise / scales
        clear = shifts.min() >= CLEAR_SHIFT * np.trace(kernel)
        if self._across is not None or added.shape[1] > FEW_COLUMNS * len(kernel) or not clear:
            return None
        values, vectors = self._row_spectrum
        inverse = 1.0 / (own * values + shifts[:, None])
        inside, residual = vectors.T @ added, vectors.T @ (self.targets - fitted)
        # (D + Z Z')^{-1} = E - E Z (I + Z'E Z)^{-1} Z'E with E = D^{-1}, at every shift.
        moved = inverse[:, :, None] * inside
        root = np.linalg.cholesky(np.eye(added.shape[1]) + inside.T @ moved)
        half = moved @ turned(np.linalg.inv(root))
        duals = (inverse * residual - (half @ (residual @ half)[..., None])[..., 0]) @ vectors.T
        diagonals = inverse @ (vectors**2).T - np.sum((vectors @ half) ** 2, axis=2)
        return duals, (1.0 - shifts[:, None] * diagonals) * (self.unit / self.rows.weight)

    def _filtered(self, spectrum: Spectrum, residual: Floats, noise: float, scales: Floats) -> tuple[Floats, Floats]:
        """Duals (Q, r) and leverages (Q, n) by the spectrum of a kernel."""
        values, vectors = spectrum
        # Rows about their mean have a direction without variance, of which rounding would make a small one.
        values = values * (values > RANK_TOLERANCE * values[-1])
        filters = scales[:, None] / (scales[:, None] * values + noise)
        duals = (filters * (vectors.T @ residual)) @ vectors.T
        if self._across is None:
            return duals, (filters * values) @ (vectors**2).T * (self.unit / self.rows.weight)
        return duals, (filters * values) @ ((self._across @ vectors) ** 2).T * self.unit

    def mean_variance(self, kernel: Floats) -> float:
        """Mean over directions of the variance of a prior N(mean, S), from the kernel ``design S design'``.

        Of a wide problem, the directions are those of its rows.
        """
        if self.wide:
            return max(float(np.trace(kernel)) / max(float(np.trace(self.kernel)), 1e-300), 1e-300)
        return max(float(np.mean(np.diagonal(kernel) / self._clear_spectrum[0])), 1e-300)

    def finish(self, heads: Floats, leverages: Floats) -> Paths:
        """Residuals of left-out rows, and the intercept where it is free."""
        residuals = self.rows.y[..., None, :] - heads @ turned(self.rows.X)
        if (center := self.center) is not None:
            levels = np.asarray(center.targets)[..., None] - (heads @ center.features[..., None])[..., 0]
            heads = np.concatenate([heads, levels[..., None]], axis=-1)
            leverages = leverages + (self.unit / np.asarray(center.total)[..., None])[..., None, :]
        return Paths(heads, left_out_residuals(residuals, leverages), leverages)


class Sample:
    """Moments of ``[U, 1]`` and one target, and the rows behind them if they are known.

    Sources inform priors through their moments alone. Rows are needed of the focal domain, and of sources that take
    the focal role in cross-domain validation.

    Parameters
    ----------
    moments : Moments
        Over the features and a constant 1 as the last one, every row scaled by the root of its sample weight.
    rows : Rows or callable, optional
        The rows, without the constant; or some of them, to leave out in turn. A function makes them when they are first
        asked for.
    intercept : bool
        Whether the constant is part of the model.
    size : int, optional
        How many rows a function makes; by default as many as the moments count.
    spectra : dict, optional
        One for all samples of the same rows with other targets, which then share their spectra.

    Examples
    --------
    >>> sample = Sample.of(Rows(np.array([[0.0], [2.0]]), np.array([1.0, 3.0])))
    >>> sample.center.features, sample.free.gram
    (array([1.]), array([[2.]]))
    """

    def __init__(
        self,
        moments: Moments,
        rows: Rows | Callable[[], Rows] | None = None,
        *,
        intercept: bool = True,
        size: int | None = None,
        spectra: dict[str, Spectrum] | None = None,
    ) -> None:
        self.moments, self._given, self.intercept, self._size, self._spectra = moments, rows, intercept, size, spectra

    def __getstate__(self) -> dict[str, Any]:
        # What is made of these is made again: regressions hold their sample, and skops cannot write such circles.
        parts = {name: getattr(self, name) for name in ("moments", "_given", "intercept", "_size")}
        return {**parts, "_spectra": None}

    @cached_property
    def rows(self) -> Rows | None:
        """The rows, if they are known."""
        return self._given() if callable(self._given) else self._given

    @property
    def size(self) -> int:
        """How many rows are known."""
        if self._given is None:
            return 0
        if callable(self._given):
            return self.moments.count if self._size is None else self._size
        return len(self._given.y)

    @classmethod
    def of(cls, rows: Rows, *, intercept: bool = True) -> Sample:
        """Moments of rows, and the rows."""
        return cls(augmented(rows), rows, intercept=intercept)

    @cached_property
    def center(self) -> Center:
        """Weighted means of features and targets."""
        return own_center(self.moments)

    @property
    def total(self) -> float:
        """The number of rows, each counting as its sample weight."""
        return self.center.total

    @property
    def columns(self) -> int:
        """How many coefficients the model has, that of the constant among them."""
        return self.moments.n_features - (not self.intercept)

    @cached_property
    def free(self) -> Regression:
        """The regression with an intercept that no prior knows of: all about the means."""
        center = self.center if self.intercept else no_center(self.moments)
        # Sources inform priors by their sums alone: most rows are never asked for.
        rows = None if self._given is None else partial(_about, self, center)
        system = recentred(self.moments, center).system
        about = center if self.intercept else None
        return Regression(system, rows, self.total, about, self._count, self._spectra)

    @cached_property
    def full(self) -> Regression:
        """The regression with the constant as a feature like any other; as :attr:`free` where there is none."""
        if not self.intercept:
            return self.free
        rows = None if self._given is None else partial(_with_constant, self)
        return Regression(self.moments.system, rows, self.total, None, self._count, self._spectra)

    @property
    def squares(self) -> Floats:
        """Mean squares (p,) of the features."""
        rows = self.moments.rows
        sums = np.diagonal(self.moments.gram) if rows is None else np.sum(rows[0] ** 2, axis=0)
        return sums[:-1] / self.total

    @property
    def products(self) -> Floats:
        """Mean products (p, p) of the features."""
        return self.moments.gram[:-1, :-1] / self.total

    @property
    def _count(self) -> float:
        """How many rows there are, those of weight above 1 counting as so many."""
        return max(self.total, float(self.moments.count))

    @property
    def known(self) -> Rows:
        """The rows of a sample that has them."""
        assert self.rows is not None
        return self.rows

    def part(self, index: Any) -> Sample:
        """A sample of some of the rows."""
        return Sample.of(self.known.part(index), intercept=self.intercept)

    def judged(self, index: Any) -> Sample:
        """The same sums, with one spectrum, and some of the rows to leave out in turn."""
        found = Sample(self.moments, self.known.part(index), intercept=self.intercept)
        found.__dict__.update(free=self.free.judged(index), full=self.full.judged(index))
        return found

    def divided(self, size: float) -> Sample:
        """The same with targets divided by ``size``."""
        rows: Any = self._given
        if rows is not None:
            rows = partial(_divided, self, size) if callable(rows) else _divided(self, size)
        return Sample(
            self.moments.divided(size), rows, intercept=self.intercept, size=self._size, spectra=self._spectra
        )

    def predict(self, head: Floats) -> Floats:
        """Predictions (n,) of the rows by coefficients (d,), that of the constant last."""
        X = self.known.X
        return X @ head[:-1] + head[-1] if self.intercept else X @ head


class Batch:
    """Tasks of equally many rows each, with T of them along a leading axis of all that :class:`Sample` has.

    Small tasks spend their time between calls; T of them in one call take little longer than one.

    Examples
    --------
    >>> batch = Batch([Rows(np.array([[0.0], [2.0]]), np.ones(2)), Rows(np.array([[1.0], [7.0]]), np.zeros(2))])
    >>> batch.center.features.tolist(), batch.free.gram.ravel().tolist()
    ([[1.0], [4.0]], [2.0, 18.0])
    """

    def __init__(self, rows: Sequence[Rows], *, intercept: bool = True) -> None:
        self.intercept = intercept
        self.X, self.y, self.weight = (np.stack(arrays) for arrays in zip(*((r.X, r.y, r.weight) for r in rows)))
        self.total: Floats = self.weight.sum(axis=1)

    @cached_property
    def center(self) -> Center:
        """Weighted means of features (T, p) and targets (T,)."""
        features, targets = (self.weight[:, None] @ self.X)[:, 0], np.sum(self.weight * self.y, axis=1)
        return Center(features / self.total[:, None], targets / self.total, self.total)  # type: ignore[arg-type]

    @cached_property
    def free(self) -> BatchRegression:
        """Regressions with intercepts that no prior knows of: each about its means."""
        if not self.intercept:
            return BatchRegression(self.X, self.y, self.weight, None)
        center = self.center
        return BatchRegression(self.X - center.features[:, None], self.y - center.targets[:, None], self.weight, center)

    @cached_property
    def full(self) -> BatchRegression:
        """Regressions with the constant as a feature like any other; as :attr:`free` where there is none."""
        if not self.intercept:
            return self.free
        X = np.concatenate([self.X, np.ones((*self.y.shape, 1))], axis=2)
        return BatchRegression(X, self.y, self.weight, None)

    @property
    def squares(self) -> Floats:
        """Mean squares (T, p) of the features."""
        return (self.weight[:, None] @ self.X**2)[:, 0] / self.total[:, None]

    @property
    def products(self) -> Floats:
        """Mean products (T, p, p) of the features."""
        return turned(self.X) @ (self.weight[..., None] * self.X) / self.total[:, None, None]


class BatchRegression(Regression):
    """Least-squares problems of one shape, T of them along the first axis."""

    def __init__(self, X: Floats, y: Floats, weight: Floats, center: Center | None) -> None:
        total: Any = weight.sum(axis=1)
        super().__init__(None, Rows(X, y, weight), total, center)
        self._root = np.sqrt(weight)

    @property
    def wide(self) -> bool:
        return bool(self.rows.X.shape[1] < self.rows.X.shape[2])

    @property
    def width(self) -> int:
        return int(self.rows.X.shape[2])

    @cached_property
    def _rooted(self) -> tuple[Floats, Floats]:
        """Rows (T, n, p) and targets (T, n), each scaled by the root of its weight."""
        return self.rows.X * self._root[..., None], self.rows.y * self._root

    @cached_property
    def gram(self) -> Floats:
        rows, _ = self._rooted
        return turned(rows) @ rows

    @cached_property
    def cross(self) -> Floats:
        rows, targets = self._rooted
        return (targets[:, None] @ rows)[:, 0]

    @property
    def square(self) -> Any:
        return np.sum(self._rooted[1] ** 2, axis=1)

    @property
    def mean_eigenvalue(self) -> Any:
        trace = np.sum(self._rooted[0] ** 2, axis=(1, 2))
        before = 0.0 if self.center is None else self.total * np.sum(self.center.features**2, axis=1)
        means = trace / np.maximum(np.minimum(self.total, self.width), 1)
        return np.where(trace > RANK_TOLERANCE * before, means, 1.0)

    @cached_property
    def spectrum(self) -> Spectrum:
        """As of one problem, with zeros for directions that are left out."""
        rows, _ = self._rooted
        values, vectors = np.linalg.eigh(rows @ turned(rows) if self.wide else self.gram)
        values = np.maximum(values, 0.0)
        if not self.wide:
            return values, vectors
        kept = values > RANK_TOLERANCE * values[:, -1:]
        inverse = np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
        return values * kept, turned(rows) @ (vectors * inverse[:, None])

    @cached_property
    def compressed(self) -> tuple[Floats, Floats, Any]:
        """As of one problem; directions that are left out are rows of zeros, which say nothing."""
        if self.wide:
            return *self._rooted, np.zeros(len(self.total))  # type: ignore[arg-type]
        values, vectors = self.spectrum
        kept = values > RANK_TOLERANCE * values[:, -1:]
        root = np.sqrt(np.where(kept, values, 0.0))
        pull = (self.cross[:, None] @ vectors)[:, 0]
        targets = np.where(kept, pull / np.where(kept, root, 1.0), 0.0)
        rest = np.maximum(self.square - np.sum(targets**2, axis=1), 0.0)
        return root[..., None] * turned(vectors), targets, rest


def turned(matrices: Floats) -> Floats:
    """Transposes of matrices along the last two axes."""
    return np.swapaxes(matrices, -1, -2)


def times(matrices: Floats, vectors: Floats) -> Floats:
    """The product of each matrix (..., d, d) with its vector (..., d)."""
    return (matrices @ vectors[..., None])[..., 0]


def _about(sample: Sample, center: Center) -> Rows:
    """The rows about a point."""
    rows = sample.known
    if not sample.intercept:
        return rows
    return Rows(rows.X - center.features, rows.y - center.targets, rows.sample_weight)


def _divided(sample: Sample, size: float) -> Rows:
    """The rows with targets divided by ``size``."""
    rows = sample.known
    return Rows(rows.X, rows.y / size, rows.sample_weight)


def _with_constant(sample: Sample) -> Rows:
    """The rows with a constant 1 as the last feature."""
    rows = sample.known
    return Rows(np.column_stack([rows.X, np.ones(len(rows.y))]), rows.y, rows.sample_weight)


def generalised_error(squares: Floats, freedom: Floats, count: float) -> Floats:
    """Generalised cross-validation from sums of squared residuals and the degrees of freedom left of ``count`` rows."""
    with np.errstate(all="ignore"):
        return np.where(freedom > SATURATED * count, np.maximum(squares, 0.0) * count / freedom**2, np.inf)


def spectrum_of(matrix: Floats) -> Spectrum:
    """Non-negative eigenvalues, and eigenvectors, of a positive semidefinite matrix, which is overwritten."""
    if (there := factor_device(len(matrix))) is not None:
        torch = torch_module()
        try:
            found = torch.linalg.eigh(to_device(matrix, there))
        except torch.linalg.LinAlgError as error:
            raise np.linalg.LinAlgError(str(error)) from error
        return np.maximum(to_numpy(found[0]), 0.0), to_numpy(found[1])
    values, vectors, info = scipy.linalg.lapack.dsyevd(matrix.T, lower=1, overwrite_a=1)
    if info != 0:  # pragma: no cover - only numbers beyond float64 get here
        raise np.linalg.LinAlgError(f"eigenvalues did not converge (LAPACK info {info})")
    return np.maximum(values, 0.0), vectors


def shifted_inverses(kernel: Floats, shifts: Floats, right: Floats) -> tuple[Floats, Floats]:
    """``(K + c)^{-1} right`` (Q, r), and the diagonals (Q, r) of these inverses, for shifts c far above rounding."""
    duals, diagonals = np.empty((2, len(shifts), len(kernel)))
    symmetric = kernel.T if kernel.flags.c_contiguous else kernel  # in the order of LAPACK
    work = np.empty_like(symmetric)
    for k, shift in enumerate(shifts):
        work[:] = symmetric
        work.reshape(-1, order="F")[:: len(work) + 1] += shift
        root, _ = scipy.linalg.lapack.dpotrf(work, lower=1, clean=1, overwrite_a=1)
        inverse, _ = scipy.linalg.lapack.dtrtri(root, lower=1, overwrite_c=1)
        duals[k] = inverse.T @ (inverse @ right)
        diagonals[k] = np.einsum("ij,ij->j", inverse, inverse)
    return duals, diagonals


def ridge_heads(gram: Floats, cross: Floats, ridges: Floats) -> Floats:
    """Ridge coefficients (Q, p) from sums; ``gram`` may be overwritten.

    Examples
    --------
    >>> ridge_heads(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([3.0, 5.0]), np.array([1.0, 0.0])).tolist()
    [[1.0, 1.0], [1.5, 1.25]]
    """
    found = tridiagonal_solves(gram, ridges, cross, np.empty((0, len(cross))))
    if found is not None:
        return found[0]
    values, vectors = spectrum_of(gram)
    return (vectors.T @ cross / (values + ridges[:, None])) @ vectors.T


class Tridiagonal:
    """A symmetric matrix K = W T W' with T tridiagonal: a quarter of the work of a spectrum.

    T + c is factored and solved with in no time. Only one triangle of ``matrix`` is read.
    """

    def __init__(self, matrix: Floats) -> None:
        self.diagonal, self.beside = matrix[0], np.empty(0)
        if len(matrix) > 1:
            found = scipy.linalg.lapack.dsytrd(matrix, lower=1, lwork=64 * len(matrix))
            self._packed, self.diagonal, self.beside, self._scale, _ = found

    def turn(self, columns: Floats, *, back: bool = False) -> Floats:
        """``W' columns``, or ``W columns``, in place."""
        if len(columns) > 1:
            parts = self._packed[1:, :-1], self._scale, columns[1:], 64 * columns.shape[1]
            columns[1:] = scipy.linalg.lapack.dormqr("L", "N" if back else "T", *parts)[0]
        return columns

    def factors(self, shifts: Floats, *, step: int = 1) -> tuple[Floats, Floats] | None:
        """D (Q r,) and the entries (Q r - 1,) beside the diagonal of L in T + c = L D L'; with step -1, from the end.

        All shifts make one matrix, with zeros between them. None where rounding leaves some T + c indefinite.
        """
        diagonal = (self.diagonal[::step] + shifts[:, None]).ravel()
        beside = np.tile(np.append(self.beside[::step], 0.0), len(shifts))[:-1]
        pivots, lower, info = scipy.linalg.lapack.dpttrf(diagonal, beside, overwrite_d=1, overwrite_e=1)
        return (pivots, lower) if info == 0 else None

    def solve(self, factors: tuple[Floats, Floats], right: Floats) -> Floats:
        """``(T + c)^{-1} right`` (Q, r) at every shift."""
        few = len(factors[0]) // len(right)
        return scipy.linalg.lapack.dpttrs(*factors, np.tile(right, few), overwrite_b=1)[0].reshape(few, -1)


def tridiagonal_solves(kernel: Floats, shifts: Floats, right: Floats, rows: Floats) -> tuple[Floats, Floats] | None:
    """``(K + c)^{-1} right`` (Q, r), and ``a' (K + c)^{-1} a`` (Q, n) for rows a, at every shift c, without a spectrum.

    None where rounding leaves some K + c indefinite. Only one triangle of ``kernel`` is read.
    """
    size, few = len(kernel), len(shifts)
    form = Tridiagonal(kernel)
    both = form.turn(np.column_stack([right, rows.T]))
    if (factors := form.factors(shifts)) is None:
        return None
    solved = form.turn(np.asfortranarray(form.solve(factors, both[:, 0]).T), back=True)
    squares, entries = np.zeros((few, len(rows))), np.zeros((FEW_ENTRIES, few, len(rows)))
    # With T + c = L D L': the squares of D^{-1/2} L^{-1} W' a, one entry after the other, of all rows and shifts.
    roots = 1.0 / np.sqrt(factors[0].reshape(few, size).T[..., None])
    steps = np.append(0.0, -factors[1]).reshape(few, size).T[..., None]
    for block in slices(size if len(rows) else 0, FEW_ENTRIES):
        before = entries[-1].copy()
        found = entries[: block.stop - block.start]
        for entry, step, moved in zip(found, steps[block], both[block, 1:]):
            np.multiply(step, before, out=entry)
            entry += moved
            before = entry
        squares += np.einsum("jkn,jkn->kn", *[found * roots[block]] * 2)
    return solved.T, squares


def lower_root(matrix: Floats, shift: float = 0.0) -> Floats:
    """The lower Cholesky factor of ``matrix + shift I``; above its diagonal is anything.

    Where rounding leaves the sum without a factor, as much is added to its diagonal as rounding may amount to.
    """
    for more in (0.0, rounding_of(len(matrix)) * float(np.max(np.diagonal(matrix)))):
        shifted = add_to_diagonal(matrix, shift + more)
        if (there := factor_device(len(matrix))) is not None:
            root, info = torch_module().linalg.cholesky_ex(to_device(shifted, there))
            if int(info) == 0:
                return to_numpy(root)
            continue
        fortran = shifted if shifted.flags.f_contiguous else shifted.T
        found, info = scipy.linalg.lapack.dpotrf(fortran, lower=1, clean=0, overwrite_a=1)
        if info == 0:
            return found
    raise np.linalg.LinAlgError(f"the matrix is not positive definite (LAPACK info {info})")


def half_solve(root: Floats, right: Floats, *, transposed: bool = False) -> Floats:
    """``L^{-1} right``, or ``L'^{-1} right``, for a lower triangular matrix L; ``right`` is overwritten."""
    columns = right.reshape(len(right), -1)
    if (there := factor_device(len(root))) is not None:
        lower, wanted = to_device(root, there), to_device(columns, there)
        solve = torch_module().linalg.solve_triangular
        found = solve(lower.T, wanted, upper=True) if transposed else solve(lower, wanted, upper=False)
        return to_numpy(found).reshape(right.shape)
    found = scipy.linalg.blas.dtrsm(1.0, root, columns, lower=1, trans_a=int(transposed), overwrite_b=1)
    return found.reshape(right.shape)


def roots_of(covariances: Floats) -> Floats:
    """Factors L with L L' = S, also where S is singular to rounding."""
    try:
        values, vectors = np.linalg.eigh(covariances)
    except np.linalg.LinAlgError:
        # For some matrices eigenvalues do not converge; of covariances, singular values are the same.
        vectors, values, _ = np.linalg.svd(covariances)
    return vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]


def best_ridge(ridges: Floats, errors: Floats) -> int:
    """The place of the ridge of least error; of errors that are equal up to rounding, that of the largest ridge.

    Where data say nothing of the ridge (a source of two rows, say), rounding would decide otherwise.

    Examples
    --------
    >>> best_ridge(np.array([0.1, 1.0, 10.0]), np.array([2.0, 1.0, 1.0 + 1e-15]))
    2
    """
    return int(best_ridges(ridges, errors))


def best_ridges(ridges: Floats, errors: Floats) -> Integers:
    """The same for errors (..., Q) of several problems."""
    tied = errors <= np.min(errors, axis=-1, keepdims=True) * (1 + TIED)
    return np.argmax(np.where(tied, ridges, -np.inf), axis=-1)


@dataclass(frozen=True, eq=False)
class RidgeChoice:
    """The chosen ridge, its head, and the leave-one-out mean squared error of every candidate."""

    ridge: float
    coef: Floats
    ridges: Floats
    errors: Floats


def loo_ridge(U: Floats, y: Floats, ridges: Sequence[float], *, relative: bool = True) -> RidgeChoice:
    """Ridge regression of ``y`` (n,) on ``U`` (n, p) with the ridge of least leave-one-out error.

    Parameters
    ----------
    U, y : arrays (n, p) and (n,)
    ridges : sequence of float
        Candidates > 0.
    relative : bool
        Candidates are multiples of the mean eigenvalue of U'U, so that they do not depend on units.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> U = rng.standard_normal((40, 3))
    >>> choice = loo_ridge(U, U @ [1.0, 2.0, 3.0] + rng.standard_normal(40), [0.01, 0.1, 1.0, 10.0])
    >>> choice.ridge < 40
    True
    """
    U, y = np.asarray(U, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if U.ndim != 2 or y.shape != (len(U),) or len(U) < 2:
        raise DataError(f"leave-one-out needs U (n, p) and y (n,) with n >= 2; got {U.shape} and {y.shape}")
    bad = int(np.sum(~np.isfinite(U))) + int(np.sum(~np.isfinite(y)))
    if bad:
        raise DataError(f"leave-one-out needs finite values; {bad} in U and y are NaN or infinite")
    candidates = np.array([check_nonnegative("ridges", r) for r in np.atleast_1d(np.asarray(ridges))])
    if len(candidates) == 0 or np.any(candidates == 0):
        raise ParameterError("ridges must be positive candidates, at least one")
    check_target_size(np.max(np.abs(y), keepdims=True))
    regression = Regression(Moments.from_rows(U, y).system, Rows(U, y), float(len(y)))
    if relative:
        candidates = candidates * regression.mean_eigenvalue
    paths = regression.ridge_path(candidates)
    errors = regression.error(paths.left_out)
    best = best_ridge(candidates, errors)
    return RidgeChoice(float(candidates[best]), paths.heads[best], candidates, errors)
