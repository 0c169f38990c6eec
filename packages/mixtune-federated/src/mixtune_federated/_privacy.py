"""Level 3: one release of all products of clipped rows, with Gaussian noise that the members share.

A row ``v = (u/B, c, y/b)`` has a length of at most ``sqrt(2 + c^2)``: features are clipped to the length B and targets
to b, both public, and c stands for the constant. Adding or removing a row changes the sum of all ``v v'`` by at most
``2 + c^2`` in the Frobenius norm, which the analytic Gaussian mechanism (Balle and Wang, ICML 2018) turns into the
noise for (epsilon, delta). Where a member knows whose rows are, those of a person count as one, by their mean, so that
this holds for people. Every member adds a part of it to its masked integers, drawn from the discrete Gaussian of
OpenDP: floating-point noise would leak. What the coordinator does with the sum afterwards costs no privacy.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from mixtune import checks
from mixtune.errors import DataError
from mixtune.moments import Moments, Rows
from mixtune_federated._masks import RING_BITS, Ring, check_cancelled, from_ring, to_ring
from mixtune_federated._study import Study
from mixtune_federated._sums import full_gram, triangle
from mixtune_federated._types import Floats, Integers

#: c: what stands for the constant in a row; smaller than the features, since it adds to the sensitivity.
CONSTANT = 0.5
#: The most rows that a member may have, as a power of two: the range of the sums is public.
MOST_ROWS = 20


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """The least standard deviation with which a Gaussian release of this sensitivity is (epsilon, delta)-private.

    Examples
    --------
    >>> round(gaussian_sigma(1.0, 1e-6, 1.0), 3)
    4.225
    """

    def excess(log_sigma: float) -> float:
        ratio = sensitivity / np.exp(log_sigma)
        first = ndtr(ratio / 2 - epsilon / ratio)
        return float(first - np.exp(epsilon + log_ndtr(-ratio / 2 - epsilon / ratio)) - delta)

    level = np.log(sensitivity)
    return float(np.exp(brentq(excess, level - 20, level + 20, xtol=1e-12)))


def sensitivity(n_features: int, exponent: int) -> float:
    """By how much one row changes the vector, rounding to integers included."""
    return 2.0 + CONSTANT**2 + float(np.sqrt(private_length(n_features) - 1)) * 2.0 ** (-exponent)


def private_length(n_features: int) -> int:
    """How many ring elements a member sends: products, and one that counts the member."""
    return (n_features + 2) * (n_features + 3) // 2 + 1


def private_exponent(count: int) -> int:
    """The fixed point of sums over ``count`` members; one bit is for the noise."""
    return RING_BITS - 3 - MOST_ROWS - max(count - 1, 1).bit_length()


def clipped_rows(study: Study, rows: Rows) -> Floats:
    """Rows v of prepared rows: clipped features, the constant, the clipped target."""
    U = rows.X / study.row_norm
    U = U / np.maximum(np.linalg.norm(U, axis=1, keepdims=True), 1.0)
    y = np.clip(rows.y / (study.target_scale * study.privacy.target_bound), -1.0, 1.0)
    return np.column_stack([U, np.full(len(y), CONSTANT), y])


def private_vector(study: Study, rows: Rows, places: Integers | None = None) -> Floats:
    """All products of clipped rows, summed; products of two different entries count twice, so by their root.

    ``places`` (n,) are the people of the rows, one for each by default.
    """
    if len(rows.y) > 2**MOST_ROWS:
        raise DataError(f"level 3 takes up to {2**MOST_ROWS:,} rows of a member; there are {len(rows.y):,}")
    v = clipped_rows(study, rows)
    share = np.ones(len(v)) if places is None else 1.0 / np.bincount(places)[places]
    return triangle((v.T * share) @ v) * _multiples(v.shape[1])


def _multiples(width: int) -> Floats:
    """Factors of the entries of a triangle that give it the norm of the whole matrix."""
    return triangle(np.where(np.eye(width) > 0, 1.0, np.sqrt(2.0)))


def discrete_noise(scale: float, count: int) -> Ring:
    """Discrete Gaussian integers of the given scale, in the ring, from the operating system's random numbers."""
    dp = checks.import_extra("opendp.prelude", "dp", "differential privacy")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
    drawn = dp.m.make_gaussian(*space, scale=scale)([0] * count)
    return np.array(drawn, dtype=np.int64).view(np.uint64)


def noise_scale(study: Study, members: int) -> float:
    """Each member's part of the noise, in units of the ring: without those that may drop out, the rest is enough."""
    exponent = private_exponent(members)
    told = study.privacy
    sigma = gaussian_sigma(told.epsilon, told.delta, sensitivity(study.n_features, exponent))
    return float(np.ldexp(sigma, exponent) / np.sqrt(max(members - study.limits.drop_outs, 1)))


def private_ring(study: Study, rows: Rows, members: int, places: Integers | None = None) -> Ring:
    """A member's vector in the ring, with its part of the noise; the last element counts the member."""
    vector = to_ring(private_vector(study, rows, places), private_exponent(members), members)
    noisy = vector + discrete_noise(noise_scale(study, members), len(vector))
    return np.append(noisy, np.ones(1, dtype=np.uint64))


def private_moments(study: Study, total: Ring, members: int, alive: int) -> Moments:
    """Moments of ``[U, 1]`` and targets from the noisy sum over those members that are ``alive``; what the noise made
    impossible is repaired. Eigenvalues below the size of the noise are raised to it: the noise says nothing there.
    """
    check_cancelled(total, alive)
    width = study.n_features + 2
    matrix = full_gram(from_ring(total[:-1], private_exponent(members)) / _multiples(width), width)
    spread = np.ldexp(noise_scale(study, members), -private_exponent(members)) * np.sqrt(members)
    values, vectors = np.linalg.eigh(matrix)
    matrix = (vectors * np.maximum(values, spread * np.sqrt(width))) @ vectors.T
    bound = study.target_scale * study.privacy.target_bound
    units = np.concatenate([np.full(study.n_features, study.row_norm), [1.0 / CONSTANT, bound]])
    matrix = (matrix + matrix.T) / 2 * np.outer(units, units)
    rows = max(round(float(matrix[-2, -2])), 1)
    return Moments(rows, matrix[:-1, :-1], matrix[:-1, -1], float(matrix[-1, -1]))
