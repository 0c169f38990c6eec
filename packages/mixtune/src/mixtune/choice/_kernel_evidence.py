"""Lengths and variances of a kernel over domains, by the marginal likelihood of some rows.

All of them are learned from the rows of a few domains first. How far domains deviate from the function they share is
then learned again from many more domains, given what the others say of that function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import minimize

from mixtune.arrays import Floats, Integers
from mixtune.features import Coordinates, DomainKernel, matern_and_slope, squared_exponential

#: Steps of L-BFGS; twice as many change errors by less than half a percent.
STEPS = 40
#: Lengths are log-normal a priori, about this multiple of the root of the number of inputs, and by so much on the
#: logarithmic scale. With a spread of 1, columns that identify a person or a place are missed, and errors are 1-4%
#: larger. Lengths of own curves vary less: with 1.5, few focal rows can teach a kernel that follows their noise.
LENGTH, LENGTH_SPREAD, OWN_LENGTH_SPREAD = 1.5, 1.5, 1.0
#: Variances are log-normal a priori, about these values, by so much on the logarithmic scale: of own slopes, and of
#: shared curve, shared slopes, shared level, own curve, own level and noise. Targets have unit variance in each domain.
OWN_SLOPE, VARIANCES = 0.1, (0.5, 0.25, 0.5, 0.1, 0.1, 0.2)
SLOPE_SPREAD, SPREADS = 1.5, (1.5, 1.5, 1.5, 1.5, 1.5, 3.0)
#: No logarithm leaves its prior by more than so many standard deviations.
LARGEST_DEVIATION = 4.0
#: Smallest noise, so that rows which repeat have a covariance that can be factorised.
SMALLEST_NOISE = 1e-7


class Pairs(NamedTuple):
    """Pairs of rows (m,), each once and with itself; matrices are symmetric, and half of their elements are enough.

    ``first`` and ``second`` are the places of the rows, ``diagonal`` those of the pairs of a row with itself, and
    ``own`` those of pairs within a domain. ``squares`` and ``products`` (p, m) are squared differences of inputs, and
    products of inputs in the units of straight lines over their number; ``own_squares`` and ``own_products`` are those
    within domains.
    """

    first: Integers
    second: Integers
    diagonal: Integers
    own: Integers
    squares: Floats
    products: Floats
    own_squares: Floats
    own_products: Floats

    @classmethod
    def of(cls, rows: Coordinates, domains: Integers) -> Pairs:
        """All pairs of rows in their ``domains`` (n,)."""
        first, second = np.tril_indices(len(domains))
        own = np.flatnonzero(domains[first] == domains[second])
        # One input after the other, so that sums over inputs and over pairs run along the memory.
        curved, linear = np.ascontiguousarray(rows.curved.T), np.ascontiguousarray(rows.linear.T)
        squares = (curved[:, first] - curved[:, second]) ** 2
        products = linear[:, first] * linear[:, second] / len(linear)
        return cls(
            first, second, np.flatnonzero(first == second), own, squares, products, squares[:, own], products[:, own]
        )


@dataclass(frozen=True, eq=False)
class MarginalLikelihood:
    """The log posterior density of a kernel's logarithms, given targets (n,) of rows in their domains.

    Logarithms are those of lengths, own lengths and own slopes, for each input, and of the six variances.
    """

    rows: Coordinates
    targets: Floats
    domains: Integers

    def prior(self) -> tuple[Floats, Floats]:
        """Means and standard deviations of the logarithms."""
        width = self.rows.linear.shape[1]
        lengths = np.full(2 * width, np.log(LENGTH * width**0.5))
        mean = np.concatenate([lengths, np.full(width, np.log(OWN_SLOPE)), np.log(VARIANCES)])
        lengths_spread = np.repeat([LENGTH_SPREAD, OWN_LENGTH_SPREAD], width)
        spread = np.concatenate([lengths_spread, np.full(width, SLOPE_SPREAD), SPREADS])
        return mean, spread

    def kernel(self, logarithms: Floats) -> DomainKernel:
        """The kernel of these logarithms."""
        width = self.rows.linear.shape[1]
        values = np.exp(logarithms)
        lengths, own_lengths, slopes = values[: 3 * width].reshape(3, width)
        return DomainKernel(lengths, own_lengths, slopes, *values[3 * width :].tolist())

    def maximised(self) -> DomainKernel:
        """The kernel of the largest density."""
        mean, spread = self.prior()
        reach = LARGEST_DEVIATION * spread
        best = minimize(
            self.negative_density,
            mean,
            args=(Pairs.of(self.rows, self.domains),),
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(mean - reach, mean + reach)),
            options={"maxiter": STEPS},
        )
        return self.kernel(best.x)

    def negative_density(self, logarithms: Floats, pairs: Pairs) -> tuple[float, Floats]:
        """The negative log density, up to a constant, and its gradient, from the pairs of the rows."""
        mean, spread = self.prior()
        kernel, count = self.kernel(logarithms), len(self.targets)
        inverse, own_inverse = kernel.lengths**-2.0, kernel.own_lengths**-2.0
        curve, curve_slope = matern_and_slope(inverse @ pairs.squares)
        lines = pairs.products.sum(axis=0)
        own_curve = squared_exponential(own_inverse @ pairs.own_squares)
        values = kernel.shared_curve * curve + kernel.shared_slopes * lines + kernel.shared_level
        values[pairs.own] += kernel.own_curve * own_curve + kernel.own_slopes @ pairs.own_products + kernel.own_level
        values[pairs.diagonal] += kernel.noise + SMALLEST_NOISE
        covariance = np.zeros((count, count), order="F")
        covariance[pairs.first, pairs.second] = values
        root, failed = lapack.dpotrf(covariance, lower=True, clean=False, overwrite_a=True)
        if failed:
            return np.inf, np.zeros_like(logarithms)
        solved = lapack.dpotrs(root, self.targets, lower=True)[0]
        density = 0.5 * float(self.targets @ solved) + float(np.log(np.diagonal(root)).sum())
        precision = lapack.dpotri(root, lower=True, overwrite_c=True)[0]
        # The derivative by the covariance, of the log likelihood; a pair of two rows is there twice.
        slope = solved[pairs.first] * solved[pairs.second] - precision[pairs.first, pairs.second]
        slope[pairs.diagonal] *= 0.5
        own_slope = slope[pairs.own]
        gradient = np.concatenate(
            [
                -2.0 * kernel.shared_curve * inverse * (pairs.squares @ (slope * curve_slope)),
                kernel.own_curve * own_inverse * (pairs.own_squares @ (own_slope * own_curve)),
                kernel.own_slopes * (pairs.own_products @ own_slope),
                [
                    kernel.shared_curve * float(slope @ curve),
                    kernel.shared_slopes * float(slope @ lines),
                    kernel.shared_level * float(slope.sum()),
                    kernel.own_curve * float(own_slope @ own_curve),
                    kernel.own_level * float(own_slope.sum()),
                    kernel.noise * float(slope[pairs.diagonal].sum()),
                ],
            ]
        )
        deviation = (logarithms - mean) / spread
        return density + 0.5 * float(deviation @ deviation), deviation / spread - gradient


def learn_kernel(rows: Coordinates, targets: Floats, domains: Integers) -> DomainKernel:
    """The kernel under which targets (n,) of rows in their ``domains`` (n,) are likeliest."""
    return MarginalLikelihood(rows, targets, domains).maximised()


class Deviation(NamedTuple):
    """Targets (n,) of one domain less the function that the others share, and what is known about the difference.

    ``uncertain`` (n, n) is the covariance of that function, ``linear`` (n, p) has inputs in the units of straight
    lines, ``curves`` (n, n) has correlations of own curves.
    """

    residuals: Floats
    uncertain: Floats
    linear: Floats
    curves: Floats
    weight: Floats


@dataclass(frozen=True, eq=False)
class DeviationLikelihood:
    """The log posterior density of the variances of own slopes, own curve, own level and noise, in this order."""

    kernel: DomainKernel
    deviations: Sequence[Deviation]

    def prior(self) -> tuple[Floats, Floats]:
        """Means and standard deviations of the logarithms."""
        width = self.kernel.width
        mean = np.append(np.full(width, np.log(OWN_SLOPE)), np.log(VARIANCES[-3:]))
        return mean, np.append(np.full(width, SLOPE_SPREAD), SPREADS[-3:])

    def maximised(self) -> DomainKernel:
        """The kernel with the variances of the largest density."""
        kernel = self.kernel
        mean, spread = self.prior()
        reach = LARGEST_DEVIATION * spread
        variances = np.append(kernel.own_slopes, [kernel.own_curve, kernel.own_level, kernel.noise])
        start = np.where(variances > 0, np.log(np.maximum(variances, SMALLEST_NOISE)), mean)
        best = minimize(
            self.negative_density,
            np.clip(start, mean - reach, mean + reach),
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(mean - reach, mean + reach)),
            options={"maxiter": STEPS},
        )
        *slopes, curve, level, noise = np.exp(best.x).tolist()
        return replace(kernel, own_slopes=np.array(slopes), own_curve=curve, own_level=level, noise=noise)

    def negative_density(self, logarithms: Floats) -> tuple[float, Floats]:
        """The negative log density, up to a constant, and its gradient."""
        mean, spread = self.prior()
        width = self.kernel.width
        variances = np.exp(logarithms)
        slopes, (curve, level, noise) = variances[:width], variances[width:]
        total, gradient = 0.0, np.zeros_like(logarithms)
        for residuals, uncertain, linear, curves, weight in self.deviations:
            covariance = uncertain + (linear * slopes) @ linear.T / width + curve * curves + level
            covariance[np.diag_indices(len(residuals))] += noise / weight + SMALLEST_NOISE
            root, failed = lapack.dpotrf(covariance, lower=True, clean=True)
            if failed:
                return np.inf, np.zeros_like(logarithms)
            precision = lapack.dpotri(root, lower=True)[0]
            precision = np.tril(precision) + np.tril(precision, -1).T
            solved = precision @ residuals
            total += 0.5 * float(residuals @ solved) + float(np.log(np.diagonal(root)).sum())
            slope = 0.5 * (np.outer(solved, solved) - precision)
            gradient[:width] += np.sum((slope @ linear) * linear, axis=0) / width
            gradient[width] += np.sum(slope * curves)
            gradient[width + 1] += slope.sum()
            gradient[width + 2] += np.sum(np.diagonal(slope) / weight)
        deviation = (logarithms - mean) / spread
        return total + 0.5 * float(deviation @ deviation), deviation / spread - variances * gradient


def learn_deviations(kernel: DomainKernel, deviations: Sequence[Deviation]) -> DomainKernel:
    """The kernel with the variances under which the deviations of domains are likeliest."""
    return DeviationLikelihood(kernel, deviations).maximised()
