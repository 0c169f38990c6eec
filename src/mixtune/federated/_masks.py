"""Sums that nobody can read apart: numbers in a ring, pairwise masks that cancel, and shares to recover a mask.

Numbers become integers modulo 2^64 at an agreed power of two (fixed point). Every pair of neighbours has a common
secret that gives both the same stream of random integers; one adds it, the other subtracts it. A masked vector is
uniform to everybody who does not know all of its masks, and the sum over all members is exact. Where the ranges of
numbers are not known well, each becomes two integers, for as many digits as 2^128 would have.

The secrets come from X25519 keys that serve one study only. Their HKDF is salted with the hash of everything the
members were told (the transcript): members that were told different things get masks that do not cancel. Each member
gives its neighbours shares of its key (Shamir, over a prime field), so that ``threshold`` of them, and no fewer, can
take the masks of a member that dropped out from the sum.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune._array import Floats
from mixtune.errors import DataError
from mixtune.federated._keys import KEY_BYTES, agree, derive, keystream, public_of

#: Elements of the ring.
Ring = np.ndarray[Any, np.dtype[np.uint64]]
#: The smallest prime above 2^256: every secret of 32 bytes is one element of the field.
PRIME = 2**256 + 297
SHARE_BYTES = KEY_BYTES + 1
#: Up to so many members everybody is everybody's neighbour; of more, each has this many.
COMPLETE, DEGREE = 64, 20
#: Bits of a signed ring element without its sign.
RING_BITS = 63


@dataclass(frozen=True)
class Graph:
    """Who shares masks with whom: ``neighbours[i]`` are the places of i's neighbours, in increasing order."""

    neighbours: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, count: int, seed: bytes, *, complete: int = COMPLETE, degree: int = DEGREE) -> Graph:
        """A complete graph, or a ring in random order where each member knows the ``degree`` nearest.

        The order follows from ``seed``, the fingerprint of the study: nobody can choose a member's neighbours later.

        Examples
        --------
        >>> Graph.of(4, b"").neighbours[1]
        (0, 2, 3)
        >>> {len(each) for each in Graph.of(1000, b"").neighbours}
        {20}
        """
        if count <= max(complete, degree + 1):
            return cls(tuple(tuple(j for j in range(count) if j != i) for i in range(count)))
        number = int.from_bytes(hashlib.sha256(b"mixtune/1 graph" + seed).digest(), "big")
        order = np.random.default_rng(number).permutation(count)
        steps = [step for half in range(1, degree // 2 + 1) for step in (half, -half)]
        found: list[tuple[int, ...]] = [()] * count
        for place, member in enumerate(order.tolist()):
            found[member] = tuple(sorted(int(order[(place + step) % count]) for step in steps))
        return cls(tuple(found))


def to_ring(values: Floats, exponent: int, count: int) -> Ring:
    """Numbers as integers modulo 2^64, multiplied by 2^exponent; refused where ``count`` of them could overflow.

    Examples
    --------
    >>> to_ring(np.array([0.5, -0.5]), 1, 2)
    array([                   1, 18446744073709551615], dtype=uint64)
    """
    if not np.all(np.isfinite(values)):
        raise DataError("sums hold NaN or infinity; check the rows")
    scaled = np.ldexp(values, exponent)
    if np.max(np.abs(scaled), initial=0.0) * count >= 2.0**RING_BITS:
        raise DataError(
            "a sum is larger than the agreed range, so that the total could overflow; ask for a request made from the "
            "sizes of these rows",
            code="out-of-range",
        )
    return np.rint(scaled).astype(np.int64).view(np.uint64)


def from_ring(total: Ring, exponent: int) -> Floats:
    """The numbers behind a total of :func:`to_ring`."""
    return np.ldexp(np.ascontiguousarray(total).view(np.int64).astype(np.float64), -exponent)


def best_exponent(largest: int, count: int) -> int:
    """The exponent of least rounding for ``count`` numbers below 2^largest each.

    Examples
    --------
    >>> best_exponent(10, 4)
    50
    """
    return RING_BITS - 1 - largest - max(count - 1, 1).bit_length()


def to_fine_ring(values: Floats, exponent: int, count: int) -> Ring:
    """Numbers as two elements each, all first ones first: as :func:`to_ring`, and what rounding left of them.

    Together they are as fine as one element modulo 2^128 would be.

    Examples
    --------
    >>> from_fine_ring(to_fine_ring(np.array([2.0**20 + 2.0**-30]), 5, 4), 5, 4)[0] == 2.0**20 + 2.0**-30
    np.True_
    """
    coarse = to_ring(values, exponent, count)
    rest = values - from_ring(coarse, exponent)
    return np.concatenate([coarse, to_ring(rest, best_exponent(-exponent, count), count)])


def from_fine_ring(total: Ring, exponent: int, count: int) -> Floats:
    """The numbers behind a total of :func:`to_fine_ring`."""
    coarse, rest = np.split(total, 2)
    return from_ring(coarse, exponent) + from_ring(rest, best_exponent(-exponent, count))


def magnitude(values: Floats) -> int:
    """The smallest whole power of two that exceeds all values; -1000 where all are zero."""
    size = float(np.max(np.abs(values), initial=0.0))
    return int(np.frexp(size)[1]) if size > 0 else -1000


def pair_mask(private: bytes, own: bytes, public: bytes, transcript: bytes, count: int) -> Ring:
    """The mask (count,) of two members, from both keys of one and the public key of the other."""
    both = b"".join(sorted([public, own]))
    key = derive(agree(private, public), salt=transcript, info=b"mixtune/1 mask" + both)
    return np.frombuffer(keystream(key, 8 * count), dtype="<u8")


def mask_of(place: int, private: bytes, others: Mapping[int, bytes], transcript: bytes, count: int) -> Ring:
    """The sum of a member's masks with ``others`` (public keys by place): those with earlier places are subtracted."""
    total, own = np.zeros(count, dtype=np.uint64), public_of(private)
    for other, public in others.items():
        mask = pair_mask(private, own, public, transcript, count)
        if place < other:
            total += mask
        else:
            total -= mask
    return total


def own_mask(seed: bytes, transcript: bytes, count: int) -> Ring:
    """The mask (count,) that a member has with nobody."""
    key = derive(seed, salt=transcript, info=b"mixtune/1 own mask")
    return np.frombuffer(keystream(key, 8 * count), dtype="<u8")


def split_secret(secret: bytes, places: Sequence[int], threshold: int) -> dict[int, bytes]:
    """Shares of a secret of 32 bytes, one for each place; ``threshold`` of them give it back, fewer say nothing.

    Examples
    --------
    >>> shares = split_secret(bytes(range(32)), [0, 3, 5], 2)
    >>> join_shares({3: shares[3], 5: shares[5]}) == bytes(range(32))
    True
    """
    if not 1 <= threshold <= len(places):
        raise DataError(f"a threshold of {threshold} does not go with {len(places)} shares; use 1 to {len(places)}")
    terms = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    found = {}
    for place in places:
        value = 0
        for term in reversed(terms):
            value = (value * (place + 1) + term) % PRIME
        found[place] = value.to_bytes(SHARE_BYTES, "big")
    return found


def join_shares(shares: Mapping[int, bytes]) -> bytes | None:
    """The secret behind ``threshold`` shares: the polynomial through them, at zero; None where some cannot be right."""
    total = 0
    for place, share in shares.items():
        above = below = 1
        for other in shares:
            if other != place:
                above = above * (other + 1) % PRIME
                below = below * (other - place) % PRIME
        total = (total + int.from_bytes(share, "big") * above * pow(below, -1, PRIME)) % PRIME
    return total.to_bytes(KEY_BYTES, "big") if total < 2**256 else None
