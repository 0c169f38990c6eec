"""The kernel of a Gaussian process over several domains, and its features: a frozen map like any other.

Domains share one function and deviate from it. A target of domain d at inputs x is

    shared(x) + own_d(x) + noise,

where both functions are sums of a curve, a straight line and a level. The covariance of the shared part is the same for
any two rows; that of the own part counts for rows of one domain only.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from mixtune._registry import check_array, register
from mixtune.arrays import EPSILON, Array, Floats, one_thread_for
from mixtune.errors import DataError
from mixtune.features._base import through_numpy

#: Added to the diagonal of covariances of landmarks, relative to their mean: rows that nearly repeat.
JITTER = 1e-6
#: Ranges below this part of the largest value are rounding.
ROUNDED = 4 * EPSILON
#: The interquartile range of a normal distribution with unit variance.
NORMAL_RANGE = 1.349
ROOT_5 = 5.0**0.5


class Coordinates(NamedTuple):
    """Inputs of rows in the units of straight lines and in those of curves, both (n, p)."""

    linear: Floats
    curved: Floats

    def part(self, index: Any) -> Coordinates:
        """Some of the rows."""
        return Coordinates(self.linear[index], self.curved[index])

    def joined(self, other: Coordinates) -> Coordinates:
        """These rows and then the others."""
        return Coordinates(*(np.vstack(pair) for pair in zip(self, other)))


@dataclass(frozen=True, eq=False)
class InputUnits:
    """Units of the inputs: straight lines in standard deviations, curves on a scale that compresses long tails.

    Attributes
    ----------
    mean, deviation : arrays (p,)
    median, spread : arrays (p,)
        The spread is the interquartile range over that of a standard normal distribution.
    """

    mean: Floats
    deviation: Floats
    median: Floats
    spread: Floats

    @classmethod
    def of(cls, X: Floats) -> InputUnits:
        """The units of rows; a column that does not vary, or mostly has one value, takes what it has."""
        mean, deviation, least = X.mean(axis=0), X.std(axis=0), ROUNDED * np.abs(X).max(axis=0)
        # Of equal numbers, the computed deviation need not be zero.
        deviation = np.where(np.ptp(X, axis=0) > least, deviation, 1.0)
        # From above and from below, so that columns of the opposite sign have the same units.
        low, median, high = (
            (np.quantile(X, level, axis=0) - np.quantile(-X, 1 - level, axis=0)) / 2 for level in (0.25, 0.5, 0.75)
        )
        spread = (high - low) / NORMAL_RANGE
        varies = spread > least
        return cls(mean, deviation, np.where(varies, median, mean), np.where(varies, spread, deviation))

    def __call__(self, X: Floats) -> Coordinates:
        """Coordinates of rows (n, p)."""
        distance = (X - self.median) / self.spread
        curved = np.sign(distance) * np.log1p(np.abs(distance))
        return Coordinates((X - self.mean) / self.deviation, curved)


def squared_distances(left: Floats, right: Floats) -> Floats:
    """Squared Euclidean distances (n, m) between rows."""
    sums = np.sum(left**2, axis=1)[:, None] + np.sum(right**2, axis=1) - 2.0 * left @ right.T
    return np.maximum(sums, 0.0)


def matern(squares: Floats) -> Floats:
    """The Matern kernel of smoothness 5/2 of squared distances."""
    distance = np.sqrt(5.0 * squares)
    return np.asarray((1.0 + distance + 5.0 / 3.0 * squares) * np.exp(-distance))


def matern_and_slope(squares: Floats) -> tuple[Floats, Floats]:
    """:func:`matern`, and its derivative by the squared distance."""
    distance = np.sqrt(5.0 * squares)
    decay = np.exp(-distance)
    slope = -5.0 / 6.0 * (1.0 + distance) * decay
    return (1.0 + distance + 5.0 / 3.0 * squares) * decay, slope


def squared_exponential(squares: Floats) -> Floats:
    """The squared exponential kernel of squared distances; its derivative is -1/2 times it."""
    return np.exp(-0.5 * squares)


@dataclass(frozen=True, eq=False)
class DomainKernel:
    """Covariances of the shared function and of the deviations of one domain from it.

    Attributes
    ----------
    lengths, own_lengths : arrays (p,)
        Over which distance of each input the shared curve and own curves vary.
    own_slopes : array (p,)
        Variances of own slopes.
    shared_curve, shared_slopes, shared_level, own_curve, own_level, noise : float
        Variances.
    """

    lengths: Floats
    own_lengths: Floats
    own_slopes: Floats
    shared_curve: float
    shared_slopes: float
    shared_level: float
    own_curve: float
    own_level: float
    noise: float

    @property
    def width(self) -> int:
        """The number of inputs."""
        return len(self.lengths)

    def shared(self, left: Coordinates, right: Coordinates) -> Floats:
        """Covariances (n, m) of the shared function."""
        squares = squared_distances(left.curved / self.lengths, right.curved / self.lengths)
        lines = left.linear @ right.linear.T / self.width
        return self.shared_curve * matern(squares) + self.shared_slopes * lines + self.shared_level

    def shared_variances(self, rows: Coordinates) -> Floats:
        """Variances (n,) of the shared function."""
        lines = np.sum(rows.linear**2, axis=1) / self.width
        return self.shared_curve + self.shared_slopes * lines + self.shared_level

    def own_curves(self, left: Coordinates, right: Coordinates) -> Floats:
        """Correlations (n, m) of the curves of own deviations."""
        squares = squared_distances(left.curved / self.own_lengths, right.curved / self.own_lengths)
        return squared_exponential(squares)

    def own(self, left: Coordinates, right: Coordinates) -> Floats:
        """Covariances (n, m) of own deviations within one domain, without the level."""
        lines = (left.linear * self.own_slopes) @ right.linear.T / self.width
        return self.own_curve * self.own_curves(left, right) + lines


@dataclass(frozen=True, eq=False)
class KernelFeatures:
    """Features in which functions of a :class:`DomainKernel` are linear, with covariance I where nothing is known.

    The inputs in standard units come first, then features of the shared function, then those of own curves: kernels
    between a row and landmarks, whitened (Nystroem features).

    Parameters
    ----------
    units : InputUnits
    kernel : DomainKernel
    landmarks, own_landmarks : arrays (M, p) and (m, p)
        Inputs of rows, in the units given.
    """

    units: InputUnits
    kernel: DomainKernel
    landmarks: Floats
    own_landmarks: Floats

    def __post_init__(self) -> None:
        width = self.kernel.width
        for name, value in {**_arrays(self.units), **_arrays(self.kernel)}.items():
            check_array(name, value, (width,) if value.ndim else ())
        for name in ("landmarks", "own_landmarks"):
            value = getattr(self, name)
            check_array(name, value, (len(value), width))
        positive = (self.units.deviation, self.units.spread, self.kernel.lengths, self.kernel.own_lengths)
        if any(np.any(values <= 0) for values in positive):
            raise DataError("units and lengths of a kernel must be positive; save the model again")
        with np.errstate(all="ignore"):
            places = [self.units(rows) for rows in (self.landmarks, self.own_landmarks)]
            sizes = [np.sum(np.square(part)) for each in places for part in each]
        if not np.all(np.isfinite(sizes)):
            raise DataError("the landmarks of a kernel lie too far from its units; save the model again")

    @property
    def n_inputs(self) -> int:
        """Number of columns of ``X``."""
        return self.kernel.width

    @property
    def n_features_out(self) -> int:
        """Number of features."""
        return self.kernel.width + len(self.landmarks) + len(self.own_landmarks)

    @cached_property
    def _roots(self) -> tuple[Floats, Floats]:
        """Lower roots of the landmarks' covariances."""
        places, own = self.units(self.landmarks), self.units(self.own_landmarks)
        # With another number of threads, the last digits would be others after loading.
        with one_thread_for(0):
            return _lower_root(self.kernel.shared(places, places)), _lower_root(self.kernel.own_curves(own, own))

    def shared(self, rows: Coordinates) -> Floats:
        """Features (n, M) of the shared function."""
        covariances = self.kernel.shared(self.units(self.landmarks), rows)
        return np.asarray(solve_triangular(self._roots[0], covariances, lower=True).T)

    def own(self, rows: Coordinates) -> Floats:
        """Features (n, m) of own curves."""
        covariances = self.kernel.own_curves(self.units(self.own_landmarks), rows)
        return np.asarray(solve_triangular(self._roots[1], covariances, lower=True).T)

    def kernel_coefficients(self, coef: Floats) -> Floats:
        """Coefficients (d, D) of inputs and of kernels between a row and landmarks, from those of the features."""
        ends = np.cumsum([self.n_inputs, len(self.landmarks)])
        lines, *curves = np.split(coef, ends)
        solved = [solve_triangular(root, part, lower=True, trans="T") for root, part in zip(self._roots, curves)]
        return np.concatenate([lines, *solved])

    def transform(self, X: Array, /) -> Array:
        """Compute the features of the rows of ``X``."""

        def features(rows: Floats) -> Floats:
            places = self.units(rows)
            return np.hstack([places.linear, self.shared(places), self.own(places)])

        return through_numpy(X, self.n_inputs, features)


def _lower_root(covariance: Floats) -> Floats:
    size = len(covariance)
    shift = JITTER * np.trace(covariance) / max(size, 1)
    return np.linalg.cholesky(covariance + shift * np.eye(size))


def _arrays(part: InputUnits | DomainKernel) -> dict[str, Floats]:
    return {field.name: np.asarray(getattr(part, field.name), np.float64) for field in fields(part)}


def _write(features: KernelFeatures, _: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays = {**_arrays(features.units), **_arrays(features.kernel)}
    landmarks = {"landmarks": features.landmarks, "own_landmarks": features.own_landmarks}
    return {}, {name: np.atleast_1d(value) for name, value in {**arrays, **landmarks}.items()}


def _read(settings: Any, arrays: dict[str, Any], _: Any) -> KernelFeatures:
    units = InputUnits(*(arrays[field.name] for field in fields(InputUnits)))
    values = {field.name: arrays[field.name] for field in fields(DomainKernel)}
    vectors = [values.pop(name) for name in ("lengths", "own_lengths", "own_slopes")]
    kernel = DomainKernel(*vectors, *(float(value[0]) for value in values.values()))
    return KernelFeatures(units, kernel, arrays["landmarks"], arrays["own_landmarks"])


register("feature map", "kernel", KernelFeatures, _write, _read)
