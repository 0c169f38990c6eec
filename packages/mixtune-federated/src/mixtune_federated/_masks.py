"""Sums that nobody can read apart: numbers in a ring, pairwise masks that cancel, and shares to recover a mask.

Numbers become integers modulo 2^64 at an agreed power of two (fixed point). Every pair of neighbours has a common
secret that gives both the same stream of random integers; one adds it, the other subtracts it. A masked vector is
uniform to everybody who does not know all of its masks, and the sum over all members is exact. Each number becomes two
integers, for a range that suits all and as many digits as 2^128 would have.

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
from mixtune_federated._reading import reading
from mixtune_federated._study import Study
from mixtune_federated._types import Arrays, Floats, Values

#: Elements of the ring.
Ring = np.ndarray[Any, np.dtype[np.uint64]]
#: The smallest prime above 2^256: every secret of 32 bytes is one element of the field.
PRIME = 2**256 + 297
SHARE_BYTES = KEY_BYTES + 1
#: What a member announces: a key for the masks of its sums, and one for all later sums, which nobody has shares of.
KEYS_BYTES = 2 * KEY_BYTES
#: Bytes of a share sealed to one neighbour.
BOX_BYTES = SHARE_BYTES + SEAL_BYTES
Shapes: TypeAlias = dict[str, tuple[int, ...]]
#: Bits of a signed ring element without its sign.
RING_BITS = 63
#: The powers of two by which a number, and what rounding left of it, become integers. They are the same in all studies,
#: so that nobody says how large its sums are; totals stay below 2^53, in the units of the study.
COARSE, FINE = 10, 60


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
        problem = "a sum is larger than the range of masked sums, so that the total could overflow"
        raise DataError(f"{problem}; agree on a study whose scales fit these rows", code="out-of-range")
    return np.rint(scaled).astype(np.int64).view(np.uint64)


def from_ring(total: Ring, exponent: int) -> Floats:
    """The numbers behind a total of :func:`to_ring`."""
    return np.ldexp(np.ascontiguousarray(total).view(np.int64).astype(np.float64), -exponent)


def encode(blocks: Mapping[str, Floats], count: int) -> Ring:
    """Blocks of numbers as one vector of ring elements for a sum over ``count`` members; the last one counts them.

    Each number is two elements, itself and what rounding left of it: as fine as one modulo 2^128.

    Examples
    --------
    >>> decode(sum(encode({"a": np.array([n / 7])}, 3) for n in range(3)), {"a": 1}, 3)["a"] == 3 / 7
    array([ True])
    """
    values = np.concatenate(list(blocks.values()))
    coarse = to_ring(values, COARSE, count)
    rest = to_ring(values - from_ring(coarse, COARSE), FINE, count)
    return np.concatenate([coarse, rest, np.ones(1, dtype=np.uint64)])


def decode(total: Ring, sizes: Mapping[str, int], count: int) -> dict[str, Floats]:
    """The blocks of a sum over ``count`` members, by their sizes; an error where masks did not cancel."""
    check_cancelled(total, count)
    coarse, rest = np.split(total[:-1], 2)
    values = from_ring(coarse, COARSE) + from_ring(rest, FINE)
    return dict(zip(sizes, np.split(values, np.cumsum(list(sizes.values()))[:-1])))


def length(sizes: Mapping[str, int]) -> int:
    """How many ring elements :func:`encode` makes of blocks of these sizes."""
    return 2 * sum(sizes.values()) + 1


def check_cancelled(total: Ring, count: int) -> None:
    """Refuse a sum in which masks are left: its last element does not count the members."""
    if int(total[-1]) != count:
        raise DataError(
            f"the masked answers of {count} members do not add up: members were told different things, an answer was "
            "altered, or a member did not follow the protocol; start again with a new request",
            code="masks-left",
        )


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
    public, signatures : dict of str to bytes
        Both keys for the masks of each, signed by their owners.
    spares : dict of str to bool
        Who has rows for a validation task, signed with the keys.
    """

    study: Study
    first: str
    roster: tuple[str, ...]
    weights: dict[str, float]
    focal_weight: float
    public: dict[str, bytes]
    signatures: dict[str, bytes]
    spares: dict[str, bool]

    @classmethod
    def read(cls, study: Study, spec: Values, arrays: Arrays) -> Announcement:
        with reading("the request is incomplete", "ask for it again"):
            roster = tuple(map(str, spec["roster"]))
            weights = dict(zip(roster, map(float, spec["weights"]), strict=True))
            shapes: Shapes = {"mask_keys": (len(roster), KEYS_BYTES), "mask_signatures": (len(roster), SIGNATURE_BYTES)}
            if not has_bytes(arrays, shapes):
                raise ValueError("keys of the wrong shape")
            public, signatures = ({n: row.tobytes() for n, row in zip(roster, arrays[part])} for part in shapes)
            first, focal = str(spec["first"]), float(spec["focal_weight"])
            spares = dict(zip(roster, map(bool, spec["spares"]), strict=True))
        order = [name for name in study.sources if name in weights]
        if list(roster) != order:
            raise RefusedError("a sum over other members than the study's", "all must be members")
        if not (min(*weights.values(), focal) >= 0 and abs(sum(weights.values()) + focal - 1) <= 1e-9):
            raise RefusedError("weights that are negative or do not sum to 1", "no sum needs them")
        return cls(study, first, roster, weights, focal, public, signatures, spares)

    @property
    def transcript(self) -> bytes:
        """The hash of the announcement."""
        weights = [self.focal_weight.hex(), *(weight.hex() for weight in self.weights.values())]
        words = {"first": self.first, "roster": self.roster, "weights": weights}
        keys = b"".join(self.public[name] for name in self.roster)
        return hashed(b"mixtune/1 transcript", self.study.fingerprint.encode(), canonical(words), keys)

    def check(self, name: str, own: bytes) -> dict[int, bytes]:
        """The neighbours' keys by place, if they are signed by their owners and the member's own are the right ones."""
        study = self.study
        if name not in self.roster or self.public[name] != own:
            asked = "masked sums under another key than the one that was sent"
            raise RefusedError(asked, "the key was swapped", code="swapped-key")
        found = {}
        for other in study.neighbours(name):
            who = study.sources[other]
            if who in self.roster:
                text = key_text(study, self.first, who, self.public[who], self.spares[who])
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


def later_transcript(told: Announcement, asked: str, spec: Values, arrays: Arrays) -> bytes:
    """The hash of what members of an earlier sum are told before a further one, and of which one it is."""
    words = {name: value for name, value in spec.items() if name not in ("second", "digest")}
    digest = files.array_digest(arrays).encode()
    return hashed(b"mixtune/1 later", told.transcript, canonical({**words, "ask": asked}), digest)


def key_text(study: Study, first: str, name: str, public: bytes, spares: bool) -> bytes:
    """The text that a member signs for its mask key, and for whether it has rows for a validation task."""
    told = canonical([study.fingerprint, first, name, spares])
    return hashed(b"mixtune/1 mask key", told, public)


def opened_secrets(study: Study, roster: Sequence[str], dropped: Sequence[str]) -> dict[str, str]:
    """Whose secrets are opened after a sum, and which: of members that dropped out the key (``boxes``).

    With ``confirm`` it is the own mask (``own_boxes``) of all others. Never both of one member: its sums could be read.
    """
    kinds = {name: "boxes" if name in dropped else "own_boxes" for name in roster}
    return {name: kind for name, kind in kinds.items() if study.limits.confirm or name in dropped}


def share_context(study: Study, first: str, kind: str, owner: str, holder: str) -> bytes:
    """What the share of a key (``boxes``), or of a mask (``own_boxes``), is bound to."""
    parts = (study.fingerprint, first, kind, owner, holder)
    return hashed(b"mixtune/1 share", *(part.encode() for part in parts))
