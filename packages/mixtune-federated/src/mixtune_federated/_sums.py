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
from mixtune_federated._masks import Ring, from_fine_ring, from_ring, magnitude, to_fine_ring, to_ring
from mixtune_federated._types import Floats, Values

#: Features and targets beyond this many standard units are taken for a mistake, or an attack.
LARGEST_UNIT = 1e6
#: Rounding of sums, relative to the largest of them.
TOLERANCE = 1e-9
#: Blocks of a masked vector. The last one counts the members, and tells whether all masks cancelled.
BLOCKS = ("gram", "cross", "square", "head", "members")


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

    @cached_property
    def blocks(self) -> dict[str, Floats]:
        """The sums as vectors, the upper triangle of the Gram matrix by rows."""
        square = np.reshape(self.moments.square, 1)
        return {"gram": triangle(self.moments.gram), "cross": self.moments.cross, "square": square, "head": self.head}

    @property
    def magnitudes(self) -> dict[str, int]:
        """Powers of two that no entry of a block exceeds."""
        return {name: magnitude(block) for name, block in self.blocks.items()}

    def score(self, focal: Moments) -> float:
        """Mean squared error of the local model on the rows behind the focal moments."""
        return focal.loss(np.append(self.head, self.intercept)) / focal.count


def sizes(n_features: int, level: int = 2) -> dict[str, int]:
    """How many numbers each block has; at level 3 all products are one."""
    p = n_features + 1
    if level == 3:
        return {"private": (p + 1) * (p + 2) // 2, "members": 1}
    return {"gram": p * (p + 1) // 2, "cross": p, "square": 1, "head": n_features, "members": 1}


def encode(blocks: Mapping[str, Floats], exponents: Mapping[str, int], count: int, *, fine: bool = False) -> Ring:
    """Blocks as one vector of ring elements, two for each number if ``fine``; the last one counts the member."""
    write = to_fine_ring if fine else to_ring
    parts = [write(block, int(exponents[name]), count) for name, block in blocks.items()]
    return np.concatenate([*parts, np.ones(1, dtype=np.uint64)])


def decode(
    total: Ring, sizes: Mapping[str, int], exponents: Mapping[str, int], count: int, *, fine: bool = False
) -> dict[str, Floats]:
    """The blocks of a sum over ``count`` members; an error where masks did not cancel.

    ``sizes`` are numbers of ring elements, in order; the last one counts the members.
    """
    if int(total[-1]) != count:
        raise DataError(
            f"the masked answers of {count} members do not add up: members were told different things, an answer was "
            "altered, or a member did not follow the protocol; start again with a new request",
            code="masks-left",
        )
    found, start = {}, 0
    for name, size in list(sizes.items())[:-1]:
        part, exponent = total[start : start + size], int(exponents[name])
        found[name] = from_fine_ring(part, exponent, count) if fine else from_ring(part, exponent)
        start += size
    return found


def triangle(matrix: Floats) -> Floats:
    """The upper triangle of a symmetric matrix, by rows."""
    return matrix[np.triu_indices(len(matrix))]


def full_gram(upper: Floats, width: int) -> Floats:
    """A symmetric matrix from its upper triangle."""
    gram = np.zeros((width, width))
    gram[np.triu_indices(width)] = upper
    return gram + np.triu(gram, 1).T


def check_sums(gram: Floats, cross: Floats, square: float, what: str, remedy: str = "leave it out") -> None:
    """Refuse what cannot be sums over rows ``[u, 1]`` and targets: the matrix of all products must be semidefinite."""
    arrays = [np.asarray(gram, dtype=np.float64), np.asarray(cross, dtype=np.float64), np.asarray(square, np.float64)]
    width = len(arrays[1])
    if arrays[0].shape != (width, width) or arrays[1].ndim != 1 or arrays[2].ndim != 0:
        raise DataError(f"{what} are of the wrong shape; {remedy}", code="bad-sums")
    if not all(np.all(np.isfinite(part)) for part in arrays):
        raise DataError(f"{what} hold NaN or infinity; {remedy}", code="bad-sums")
    joint = np.block([[arrays[0], arrays[1][:, None]], [arrays[1][None], arrays[2].reshape(1, 1)]])
    largest, rows = float(np.max(np.abs(joint))), float(arrays[0][-1, -1])
    if np.max(np.abs(joint - joint.T)) > TOLERANCE * largest:
        raise DataError(f"{what} are not symmetric; {remedy}", code="bad-sums")
    if rows <= 0 or float(np.min(np.linalg.eigvalsh(joint))) < -TOLERANCE * largest:
        raise DataError(f"{what} are not those of any rows: a sum of squares is negative; {remedy}", code="bad-sums")
    if np.max(np.diagonal(arrays[0])) > rows * LARGEST_UNIT**2:
        raise DataError(
            f"{what} are too large: features of {LARGEST_UNIT:g} standard units and more; {remedy}", code="bad-sums"
        )


def moments_from(arrays: Values, n_features: int, what: str) -> Moments:
    """Moments from what a member sent, checked."""
    try:
        gram = full_gram(np.asarray(arrays["gram"], dtype=np.float64), n_features + 1)
        cross, square = np.asarray(arrays["cross"], dtype=np.float64), float(np.reshape(arrays["square"], ()))
        count = int(np.reshape(arrays["count"], ()))
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise DataError(
            f"{what} are incomplete or of the wrong shape ({error}); leave it out", code="bad-sums"
        ) from error
    if cross.shape != (n_features + 1,):
        raise DataError(f"{what} are over other features than the {n_features} of the study", code="bad-sums")
    check_sums(gram, cross, square, what)
    if abs(gram[-1, -1] - count) > TOLERANCE * count:
        raise DataError(f"{what} have {gram[-1, -1]:g} rows in one place and {count} in another", code="bad-sums")
    return Moments(count, gram, cross, square)


def sums_from(arrays: Values, n_features: int, what: str) -> tuple[Moments, Origin]:
    """Moments that a member sent, and the mean that they are about, checked."""
    return moments_from(arrays, n_features, what), origin_from(arrays, n_features, what)


def origin_from(arrays: Values, n_features: int, what: str) -> Origin:
    """The point that sums are about, from a message, checked."""
    try:
        found = Origin(*(np.asarray(arrays[name], dtype=np.float64) for name in ("shift", "level")))
        if found.features.shape != (n_features,) or found.targets.shape != ():
            raise ValueError("it has the wrong shape")
        if not (np.all(np.abs(found.features) <= LARGEST_UNIT) and np.isfinite(found.targets)):
            raise ValueError(f"it is not finite, or {LARGEST_UNIT:g} standard units and more")
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"{what} are about no mean ({error}); leave it out", code="bad-sums") from error
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
    """Moments as arrays for a message."""
    sums = {"cross": moments.cross, "square": np.array(float(moments.square)), "count": moments.count}
    return {"gram": triangle(moments.gram), **sums}
