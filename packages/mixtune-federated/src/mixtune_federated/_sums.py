"""What the method needs of a member: its sums and its local model, as blocks of one vector; and checks of what comes.

For the fixed method these are the moments of ``[U, 1]`` and the coefficients of the local model. The focal member needs
``sum_i w_i`` of them and nothing else: with A, b, m the weighted sums of Gram matrices, cross products and local
models, the regret-optimal coefficients are ``m + (A + r I)^{-1} (b - A m)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mixtune.errors import DataError
from mixtune.moments import LocalModel, Moments, Origin, Rows
from mixtune_federated._reading import reading
from mixtune_federated._types import Floats, Values

#: Features and targets beyond this many standard units are taken for a mistake, or an attack.
LARGEST_UNIT = 1e6
#: Sums are over fewer rows than this.
MOST_ROWS = 2.0**53
#: Rounding of sums, relative to the largest of them.
TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class LocalSums:
    """A member's sums about the mean of its rows, and its local model.

    Sums about a point far from the rows would lose the digits that a small variance needs.
    """

    near: Moments
    mean: Origin
    head: Floats
    intercept: float

    @classmethod
    def of(cls, rows: Rows, ridge: float) -> LocalSums:
        """Of prepared rows."""
        mean, model = Origin.of(rows), LocalModel.of(rows, ridge)
        return cls(mean.moments(rows), mean, model.coef, model.intercept)

    @cached_property
    def moments(self) -> Moments:
        """Moments of ``[U, 1]`` about the zero of the study."""
        return self.mean.move(self.near, Origin.zero(len(self.head)))

    @property
    def content(self) -> Values:
        """The sums about the mean, and the mean, as arrays for a message."""
        return {**moment_arrays(self.near), **origin_arrays(self.mean)}

    def blocks(self, size: float) -> dict[str, Floats]:
        """The sums as vectors, the upper triangle of the Gram matrix by rows, for targets divided by ``size``."""
        divided = self.moments.divided(size)
        square = np.reshape(divided.square, 1)
        return {"gram": triangle(divided.gram), "cross": divided.cross, "square": square, "head": self.head / size}

    def score(self, focal: Moments) -> float:
        """Mean squared error of the local model on the rows behind the focal moments."""
        return focal.loss(np.append(self.head, self.intercept)) / focal.count


def sizes(n_features: int) -> dict[str, int]:
    """How many numbers each block of :meth:`LocalSums.blocks` has."""
    p = n_features + 1
    return {"gram": p * (p + 1) // 2, "cross": p, "square": 1, "head": n_features}


def triangle(matrix: Floats) -> Floats:
    """The upper triangle of a symmetric matrix, by rows."""
    return matrix[np.triu_indices(len(matrix))]


def full_gram(upper: Floats, width: int) -> Floats:
    """A symmetric matrix from its upper triangle."""
    gram = np.zeros((width, width))
    gram[np.triu_indices(width)] = upper
    return gram + np.triu(gram, 1).T


def checked_sums(gram: Floats, cross: Floats, square: Floats, what: str, remedy: str = "leave it out") -> Moments:
    """Moments from the triangle of a Gram matrix and other sums, if these can be sums over rows ``[u, 1]`` and targets.

    The matrix of all products must be semidefinite.
    """
    width, parts = len(cross), [np.asarray(part, dtype=np.float64) for part in (gram, cross, np.ravel(square))]
    if not all(np.all(np.isfinite(part)) for part in parts):
        raise DataError(f"{what} hold NaN or infinity; {remedy}", code="bad-sums")
    matrix = full_gram(parts[0], width)
    joint = np.block([[matrix, parts[1][:, None]], [parts[1][None], parts[2][None]]])
    largest, rows = float(np.max(np.abs(joint))), float(matrix[-1, -1])
    if not 0 < rows < MOST_ROWS or float(np.min(np.linalg.eigvalsh(joint))) < -TOLERANCE * largest:
        raise DataError(f"{what} are not those of any rows: a sum of squares is negative; {remedy}", code="bad-sums")
    if np.max(np.diagonal(matrix)) > rows * LARGEST_UNIT**2:
        problem = f"{what} are too large: features of {LARGEST_UNIT:g} standard units and more"
        raise DataError(f"{problem}; {remedy}", code="bad-sums")
    return Moments(max(round(rows), 1), matrix, parts[1], max(float(parts[2][0]), 0.0))


def moments_from(arrays: Values, n_features: int, what: str) -> Moments:
    """Moments from what a member sent, checked."""
    with reading(f"{what} are incomplete or of the wrong shape", "leave it out", code="bad-sums"):
        cross, square = np.reshape(arrays["cross"], n_features + 1), np.reshape(arrays["square"], 1)
        found = checked_sums(arrays["gram"], cross, square, what)
        if abs(found.gram[-1, -1] - found.count) > TOLERANCE * found.count:
            raise ValueError(f"{found.gram[-1, -1]:g} rows")
        return found


def sums_from(arrays: Values, n_features: int, what: str) -> tuple[Moments, Origin]:
    """Moments that a member sent, and the mean that they are about, checked."""
    return moments_from(arrays, n_features, what), origin_from(arrays, n_features, what)


def origin_from(arrays: Values, n_features: int, what: str) -> Origin:
    """The point that sums are about, from a message, checked."""
    with reading(f"{what} are about no mean", "leave it out", code="bad-sums"):
        found = Origin(*(np.asarray(arrays[name], dtype=np.float64) for name in ("shift", "level")))
        if found.features.shape != (n_features,) or found.targets.shape != ():
            raise ValueError("it has the wrong shape")
        if not (np.all(np.abs(found.features) <= LARGEST_UNIT) and np.isfinite(found.targets)):
            raise ValueError(f"it is not finite, or {LARGEST_UNIT:g} standard units and more")
        return found


def origin_arrays(origin: Origin) -> Values:
    """A point as arrays for a message."""
    return {"shift": origin.features, "level": origin.targets}


def about_common(sums: Mapping[str, tuple[Moments, Origin]]) -> tuple[dict[str, Moments], Origin]:
    """All members' sums about one point: the median of their means, which no single member can move far away."""
    means = [mean for _, mean in sums.values()]
    common = Origin(*(np.asarray(np.median(np.stack(part), axis=0)) for part in zip(*means)))
    return {name: mean.move(moments, common) for name, (moments, mean) in sums.items()}, common


def moment_arrays(moments: Moments) -> Values:
    """Moments as arrays for a message; the last entry of the Gram matrix is the number of rows."""
    return {"gram": triangle(moments.gram), "cross": moments.cross, "square": np.array(float(moments.square))}
