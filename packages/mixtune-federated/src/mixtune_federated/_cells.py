"""How few people a sum can be about: what sums of products reveal, whatever columns look like.

Whoever has the sums of all products of columns ``w`` (features, the constant and the target) has ``sum (a'w)(b'w)`` for
any a and b. Two questions follow. Is there a combination ``a'w`` that nearly vanishes but for a few people? Then the
target and every column of these people can be read from the sums. This needs no discrete values; of one person it is
the leverage. And do two combinations, neither of which singles out anybody, have a product that does, as the levels of
two columns do where they cross? These can be listed for columns that look discrete, their sums and differences.
"""

from __future__ import annotations

from itertools import combinations

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
    hits, owners, simple = _levels(columns, share, least)
    counts = share @ hits
    # Of a product of two factors, all vanish whom the first or the second leaves out.
    left = share.sum() - counts[simple, None] - counts + (hits[:, simple].T * share) @ hits
    for one, other in np.argwhere((left > 0.5 / len(share)) & (left < least)).tolist():
        one = simple[one]
        people = np.unique(places[(hits[:, one] == 0) & (hits[:, other] == 0)])
        if 0 < len(people) < least:
            return tuple(sorted({*owners[one], *owners[other]}))
    return None


def _levels(columns: Floats, share: Floats, least: int) -> tuple[Floats, list[tuple[int, ...]], list[int]]:
    """Indicators (n, L) of levels that enough people have, the columns behind each, and which are of one column.

    The first one is that of a constant, which nobody is left out of; a union of columns that exclude one another counts
    as one column, since the level that is left has no column of its own.
    """
    codes: dict[tuple[int, ...], Integers] = {}
    for place, column in enumerate(columns.T):
        codes[(place,)] = _coded(column, share)
    binary = {owner: code for owner, code in codes.items() if code.max() == 1}
    for owner in list(binary):
        union, members = binary[owner], list(owner)
        for other in [each for each in binary if len(each) == 1 and each != owner]:
            if not np.any(union & binary[other]):
                union, members = union | binary[other], [*members, *other]
        binary[tuple(sorted(members))] = union
    made = [*codes.items(), *((owner, code) for owner, code in binary.items() if len(owner) > 1)]
    alone = len(made)
    if len(binary) <= MOST_PAIRED:
        for first, second in combinations(binary, 2):
            made += [((*first, *second), binary[first] + sign * binary[second] + 1) for sign in (1, -1)]
    hits, owners, simple = [np.zeros(len(share))], list[tuple[int, ...]]([()]), [0]
    for place, (owner, code) in enumerate(made):
        for level in np.flatnonzero(np.bincount(code, share) >= least):
            simple += [len(hits)] if place < alone else []
            hits.append((code == level).astype(np.float64))
            owners.append(owner)
    return np.stack(hits, axis=1), owners, simple


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
