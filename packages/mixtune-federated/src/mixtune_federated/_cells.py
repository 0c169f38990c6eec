"""How few people a sum can be about: what sums of products reveal, whatever columns look like.

Whoever has the sums of all products of columns ``w`` (features, the constant and the target) has ``sum (a'w)(b'w)`` for
any a and b. Two questions follow. Is there a combination ``a'w`` that nearly vanishes but for a few people? Then the
target and every column of these people can be read from the sums. This needs no discrete values; of one person it is
the leverage. And do two combinations, neither of which singles out anybody, have a product that does, as the levels of
two columns do where they cross? These can be listed for columns that look discrete, their sums and differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations
from typing import TypeAlias

import numpy as np

from mixtune_federated._types import Floats, Integers

#: The most of the sum of squares of a combination of columns that one person may have, and that fewer people than the
#: least may have together. Columns of normal or exponential distributions stay below with three rows for each feature.
LARGEST_OF_ONE, LARGEST_OF_FEW = 0.9, 0.99
#: Values closer than this part of a column's range are one level.
LEVEL = 1e-6
#: So many columns with two levels are combined in pairs; with more, they are taken one by one.
MOST_PAIRED = 48
#: How many people a search starts from, of so many that are tried at once, and its steps.
STARTS, TRIED, STEPS = 32, 1024, 15


def few_people(columns: Floats, places: Integers, least: int) -> tuple[int, ...] | None:
    """The columns whose levels, or crossed levels, hold fewer than ``least`` people, but not none.

    ``places`` (n,) are the people of the rows.
    """
    share = 1.0 / np.bincount(places)[places]
    single, pairs = _factors(columns, share)
    levels = [(owner, level) for owner, code in single for level in _levels(code, share, least)]
    most = max((share @ level for _, level in levels), default=0.0)
    # A product vanishes for whom either factor leaves out: only levels that together have nearly everybody matter. Of
    # the many levels of numbers, those that few people have are not crossed with sums and differences.
    enough = min(share.sum() - least - most, 0.05 * share.sum())
    levels = [((), np.zeros(len(share))), *(pair for pair in levels if share @ pair[1] > enough)]
    owners, hits = [owner for owner, _ in levels], np.stack([level for _, level in levels], axis=1)
    counts = share @ hits
    paired = ((owner, level) for owner, code in pairs for level in _levels(code, share, least))
    for owner, level in chain(levels, paired):
        count = share @ level
        if count + counts.max() <= share.sum() - least:
            continue
        left = share.sum() - count - counts + (share * level) @ hits
        for other in np.flatnonzero((left > 0.5 / len(share)) & (left < least)):
            people = np.unique(places[(level == 0) & (hits[:, other] == 0)])
            if 0 < len(people) < least:
                return tuple(sorted({*owner, *owners[other]}))
    return None


#: Columns, by their places, and the levels of a factor made of them.
Factor: TypeAlias = tuple[tuple[int, ...], Integers]


def _factors(columns: Floats, share: Floats) -> tuple[list[Factor], Iterator[Factor]]:
    """Columns as levels, with unions of columns that exclude one another; and sums and differences of two of them.

    The level that such columns leave has no column of its own, and still is the constant less their sum.
    """
    single: list[Factor] = [((place,), _coded(column, share)) for place, column in enumerate(columns.T)]
    binary = [factor for factor in single if factor[1].max() == 1]
    unions = dict[tuple[int, ...], Integers]()
    for (start,), code in binary:
        members = [start]
        for (other,), more in binary:
            if other != start and not np.any(code & more):
                code, members = code | more, [*members, other]
        if len(members) > 1:
            unions[tuple(sorted(members))] = code
    binary += unions.items()
    pairs = combinations(binary if len(binary) <= MOST_PAIRED else [], 2)
    both = (((*one, *other), first + sign * second + 1) for (one, first), (other, second) in pairs for sign in (1, -1))
    return [*single, *unions.items()], both


def _levels(code: Integers, share: Floats, least: int) -> list[Floats]:
    """Indicators (n,) of the levels that enough people have to look discrete."""
    counts = np.bincount(code, share)
    return [(code == level).astype(np.float64) for level in np.flatnonzero(counts >= least)]


def _coded(column: Floats, share: Floats) -> Integers:
    """The levels of a column as numbers from 0; of two levels, the rarer one is 1."""
    least, most = column.min(), column.max()
    codes = np.unique(np.round((column - least) / (LEVEL * max(most - least, 1e-300))), return_inverse=True)[1]
    return 1 - codes if codes.max() == 1 and share @ codes > share.sum() / 2 else codes


def concentration(columns: Floats, places: Integers, most: int) -> tuple[float, Floats]:
    """The largest share of its sum of squares that some ``most`` people have of any combination of the columns, as far
    as a search finds it, and the coefficients (q,) of the combination.
    """
    order = np.argsort(places, kind="stable")
    starts = np.flatnonzero(np.diff(places[order], prepend=-1))
    basis, back = _orthonormal(columns[order])
    sizes = np.diff(starts, append=len(order))
    leverages = np.add.reduceat(np.sum(basis**2, axis=1), starts)
    largest, best = 0.0, np.zeros(basis.shape[1])
    # Of people who have it all together, one has at least its part.
    tried = starts[leverages >= 0.5 / most]
    for start in range(0, len(tried), TRIED):
        chosen = basis[tried[start : start + TRIED]].T
        for step in range(STEPS):
            chosen = chosen / np.maximum(np.linalg.norm(chosen, axis=0), 1e-300)
            values = basis @ chosen
            energies = np.add.reduceat(values**2, starts, axis=0)
            few = np.argpartition(-energies, min(most, len(starts)) - 1, axis=0)[:most]
            shares = np.take_along_axis(energies, few, axis=0).sum(axis=0)
            if shares.max() > largest:
                largest, best = float(shares.max()), chosen[:, shares.argmax()]
            kept = np.zeros_like(energies)
            np.put_along_axis(kept, few, 1.0, axis=0)
            # The combination with the largest share of these people comes next: the share never falls.
            chosen = basis.T @ (values * np.repeat(kept, sizes, axis=0))
            if step == 0:
                chosen = chosen[:, np.argsort(-shares)[:STARTS]]
    return min(largest, 1.0), back @ best


def _orthonormal(columns: Floats) -> tuple[Floats, Floats]:
    """An orthonormal basis (n, r) of what the columns span, to rounding, and the coefficients (q, r) of it."""
    lengths = np.linalg.norm(columns, axis=0)
    scaled = columns / np.where(lengths > 0, lengths, 1.0)
    rotation, triangle = np.linalg.qr(scaled)
    left, values, right = np.linalg.svd(triangle)
    kept = values > values[0] * max(columns.shape) * np.finfo(np.float64).eps
    back = right[: len(values)][kept].T / values[kept]
    return rotation @ left[:, : len(values)][:, kept], back / np.where(lengths > 0, lengths, 1.0)[:, None]
