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
from mixtune.features import Coordinates, DomainKernel, matern, matern_slope, squared_exponential

#: Steps of L-BFGS; twice as many change errors by less than half a percent.
STEPS = 40
#: Lengths are log-normal a priori, about this multiple of the root of the number of inputs, and by so much on the
#: logarithmic scale. With a spread of 1, columns that identify a person or a place are missed, and errors are 1-4%
#: larger.
LENGTH, LENGTH_SPREAD = 1.5, 1.5
#: Variances are log-normal a priori, about these values, by so much on the logarithmic scale: of own slopes, and of
#: shared curve, shared slopes, shared level, own curve, own level and noise. Targets have unit variance in each domain.
OWN_SLOPE, VARIANCES = 0.1, (0.5, 0.25, 0.5, 0.1, 0.1, 0.2)
SLOPE_SPREAD, SPREADS = 1.5, (1.5, 1.5, 1.5, 1.5, 1.5, 3.0)
#: No logarithm leaves its prior by more than so many standard deviations.
LARGEST_DEVIATION = 4.0
#: Smallest noise, so that rows which repeat have a covariance that can be factorised.
SMALLEST_NOISE = 1e-7


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
        spread = np.concatenate([np.full(2 * width, LENGTH_SPREAD), np.full(width, SLOPE_SPREAD), SPREADS])
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
        squares = (self.rows.curved[:, None, :] - self.rows.curved[None, :, :]) ** 2
        flat = squares.reshape(-1, squares.shape[2])
        same = (self.domains[:, None] == self.domains).astype(np.float64)
        best = minimize(
            self.negative_density,
            mean,
            args=(flat, same),
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(mean - reach, mean + reach)),
            options={"maxiter": STEPS},
        )
        return self.kernel(best.x)

    def negative_density(self, logarithms: Floats, squares: Floats, same: Floats) -> tuple[float, Floats]:
        """The negative log density, up to a constant, and its gradient.

        ``squares`` (n^2, p) are squared differences of inputs, and ``same`` (n, n) is 1 within a domain.
        """
        mean, spread = self.prior()
        kernel, linear, count = self.kernel(logarithms), self.rows.linear, len(self.targets)
        width = kernel.width
        inverse, own_inverse = kernel.lengths**-2.0, kernel.own_lengths**-2.0
        distances = (squares @ inverse).reshape(count, count)
        curve, curve_slope = matern(distances), matern_slope(distances)
        own_curve = same * squared_exponential((squares @ own_inverse).reshape(count, count))
        lines = linear @ linear.T / width
        own_lines = (linear * kernel.own_slopes) @ linear.T / width
        covariance = (
            kernel.shared_curve * curve
            + kernel.shared_slopes * lines
            + kernel.shared_level
            + kernel.own_curve * own_curve
            + same * (own_lines + kernel.own_level)
        )
        covariance[np.diag_indices(count)] += kernel.noise + SMALLEST_NOISE
        root, failed = lapack.dpotrf(covariance, lower=True, clean=True)
        if failed:
            return np.inf, np.zeros_like(logarithms)
        precision = lapack.dpotri(root, lower=True)[0]
        precision = np.tril(precision) + np.tril(precision, -1).T
        solved = precision @ self.targets
        density = 0.5 * float(self.targets @ solved) + float(np.log(np.diagonal(root)).sum())
        # The derivative by the covariance, of the log likelihood.
        slope = 0.5 * (np.outer(solved, solved) - precision)
        own_slope = slope * same
        gradient = np.concatenate(
            [
                -2.0 * kernel.shared_curve * inverse * ((slope * curve_slope).ravel() @ squares),
                kernel.own_curve * own_inverse * ((slope * own_curve).ravel() @ squares),
                kernel.own_slopes * np.sum((own_slope @ linear) * linear, axis=0) / width,
                [
                    kernel.shared_curve * float(np.sum(slope * curve)),
                    kernel.shared_slopes * float(np.sum(slope * lines)),
                    kernel.shared_level * float(slope.sum()),
                    kernel.own_curve * float(np.sum(slope * own_curve)),
                    kernel.own_level * float(own_slope.sum()),
                    kernel.noise * float(np.trace(slope)),
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
