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

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from mixtune import files
from mixtune.errors import DataError
from mixtune_federated._keys import KEY_BYTES, SEAL_BYTES, SIGNATURE_BYTES, agree, derive, keystream, public_of
from mixtune_federated._messages import canonical, hashed
from mixtune_federated._policy import RefusedError
from mixtune_federated._study import Study
from mixtune_federated._types import Arrays, Floats, Values

#: Elements of the ring.
Ring = np.ndarray[Any, np.dtype[np.uint64]]
#: The smallest prime above 2^256: every secret of 32 bytes is one element of the field.
PRIME = 2**256 + 297
SHARE_BYTES = KEY_BYTES + 1
#: Bytes of a share sealed to one neighbour.
BOX_BYTES = SHARE_BYTES + SEAL_BYTES
Shapes: TypeAlias = dict[str, tuple[int, ...]]
#: Powers of two of floating-point numbers are smaller.
MOST_EXPONENT = 1100
#: Bits of a signed ring element without its sign.
RING_BITS = 63


def to_ring(values: Floats, exponent: int, count: int) -> Ring:
    """Numbers as integers modulo 2^64, multiplied by 2^exponent; refused where ``count`` of them could overflow.

    Examples
    --------
    >>> to_ring(np.array([0.5, -0.5]), 1, 2)
    array([                   1, 18446744073709551615], dtype=uint64)
    """
    if not np.all(np.isfinite(values)):
        raise DataError("sums hold NaN or infinity; check the rows")
    with np.errstate(over="ignore"):
        scaled = np.ldexp(values, exponent)
    if np.max(np.abs(scaled), initial=0.0) * count >= 2.0**RING_BITS:
        problem = "a sum is larger than the agreed range, so that the total could overflow"
        raise DataError(f"{problem}; ask for a request made from the sizes of these rows", code="out-of-range")
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
        raise DataError(f"a threshold of {threshold} is not possible with {len(places)} shares; use 1 to {len(places)}")
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


# --- what members of a masked sum are told ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Announcement:
    """What members are told before they send masked sums; its hash salts all masks.

    Attributes
    ----------
    first : str
        The digest of the first request.
    roster : tuple of str
        The members of the sum, in the order of the study.
    weights : dict of str to float
        Of the roster; ``focal_weight`` is that of the focal member.
    exponents : dict of str to int
    public, signatures : dict of str to bytes
        Keys for the masks, signed by their owners.
    """

    study: Study
    first: str
    roster: tuple[str, ...]
    weights: dict[str, float]
    focal_weight: float
    exponents: dict[str, int]
    public: dict[str, bytes]
    signatures: dict[str, bytes]

    @classmethod
    def read(cls, study: Study, spec: Values, arrays: Arrays) -> Announcement:
        try:
            roster = tuple(map(str, spec["roster"]))
            weights = dict(zip(roster, map(float, spec["weights"]), strict=True))
            exponents = {str(name): int(value) for name, value in spec["exponents"].items()}
            shapes: Shapes = {"mask_keys": (len(roster), KEY_BYTES), "mask_signatures": (len(roster), SIGNATURE_BYTES)}
            if not has_bytes(arrays, shapes):
                raise ValueError("keys of the wrong shape")
            public, signatures = ({n: row.tobytes() for n, row in zip(roster, arrays[part])} for part in shapes)
            first, focal = str(spec["first"]), float(spec["focal_weight"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"the request is incomplete ({error}); ask for it again") from error
        if any(abs(exponent) > MOST_EXPONENT for exponent in exponents.values()):
            raise RefusedError("numbers of a size that there is not", "no sum needs them")
        order = [name for name in study.sources if name in weights]
        if list(roster) != order:
            raise RefusedError("a sum over other members than the study's", "all must be members")
        if not (min(*weights.values(), focal) >= 0 and abs(sum(weights.values()) + focal - 1) <= 1e-9):
            raise RefusedError("weights that are negative or do not sum to 1", "no sum needs them")
        return cls(study, first, roster, weights, focal, exponents, public, signatures)

    @property
    def transcript(self) -> bytes:
        """The hash of the announcement."""
        words = {"first": self.first, "roster": self.roster, "exponents": self.exponents}
        words["weights"] = [self.focal_weight.hex(), *(weight.hex() for weight in self.weights.values())]
        keys = b"".join(self.public[name] for name in self.roster)
        return hashed(b"mixtune/1 transcript", self.study.fingerprint.encode(), canonical(words), keys)

    def check(self, name: str, private: bytes) -> dict[int, bytes]:
        """The neighbours' keys by place, if they are signed by their owners and the member's own is the right one."""
        study = self.study
        if name not in self.roster or self.public[name] != public_of(private):
            asked = "masked sums under another key than the one that was sent"
            raise RefusedError(asked, "the key was swapped", code="swapped-key")
        found = {}
        for other in study.neighbours(name):
            who = study.sources[other]
            if who in self.roster:
                text = key_text(study, self.first, who, self.public[who])
                if not study.card(who).verifies(text, self.signatures[who]):
                    asked = f'masks with a key of "{who}" that this member did not sign'
                    raise RefusedError(asked, "the key was swapped", code="swapped-key")
                found[other] = self.public[who]
        if len(found) < 2:
            why = "at least 2 are needed to hide the sums of this member"
            raise RefusedError(f"masked sums with {len(found)} neighbours", why, code="few-sources")
        return found


def has_bytes(arrays: Arrays, shapes: Shapes) -> bool:
    """Whether there are arrays of bytes of these shapes, by name."""
    found = {name: arrays.get(name) for name in shapes}
    return all(a is not None and a.shape == shapes[name] and a.dtype == np.uint8 for name, a in found.items())


def later_transcript(told: Announcement, spec: Values, arrays: Arrays) -> bytes:
    """The hash of what members of an earlier sum are told before a further one."""
    words = {name: value for name, value in spec.items() if name not in ("second", "digest")}
    return hashed(b"mixtune/1 later", told.transcript, canonical(words), files.array_digest(arrays).encode())


def key_text(study: Study, first: str, name: str, public: bytes) -> bytes:
    """The text that a member signs for its mask key."""
    return hashed(b"mixtune/1 mask key", study.fingerprint.encode(), first.encode(), name.encode(), public)


def share_context(study: Study, first: str, owner: str, holder: str) -> bytes:
    """What the share of a key is bound to."""
    parts = (study.fingerprint, first, owner, holder)
    return hashed(b"mixtune/1 share", *(part.encode() for part in parts))
