"""What all members of a masked sum are told: who takes part, with which weight and key. Its hash salts the masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from mixtune._files import Arrays, array_digest
from mixtune.errors import DataError
from mixtune.federated._keys import KEY_BYTES, SIGNATURE_BYTES, TAG_BYTES, public_of
from mixtune.federated._masks import SHARE_BYTES
from mixtune.federated._messages import canonical, hashed
from mixtune.federated._policy import RefusedError
from mixtune.federated._study import Study

Shapes: TypeAlias = dict[str, tuple[int, ...]]
#: Bytes of a share sealed to one neighbour.
BOX_BYTES = KEY_BYTES + SHARE_BYTES + TAG_BYTES


@dataclass(frozen=True, eq=False)
class Telling:
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
    def read(cls, study: Study, spec: Mapping[str, Any], arrays: Arrays) -> Telling:
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
        order = [name for name in study.sources if name in weights]
        if list(roster) != order:
            raise RefusedError("a sum over other members than the study's", "all must be members")
        if min(*weights.values(), focal) < 0 or abs(sum(weights.values()) + focal - 1) > 1e-9:
            raise RefusedError("weights that are negative or do not sum to 1", "no sum needs them")
        return cls(study, first, roster, weights, focal, exponents, public, signatures)

    @property
    def transcript(self) -> bytes:
        """The hash of all of it."""
        words = {"first": self.first, "roster": self.roster, "exponents": self.exponents}
        words["weights"] = [self.focal_weight.hex(), *(weight.hex() for weight in self.weights.values())]
        keys = b"".join(self.public[name] for name in self.roster)
        return hashed(b"mixtune/1 transcript", self.study.fingerprint.encode(), canonical(words), keys)

    def check(self, name: str, private: bytes) -> dict[int, bytes]:
        """The neighbours' keys by place, if they are signed by their owners and the member's own is the right one."""
        study = self.study
        if name not in self.roster or self.public[name] != public_of(private):
            raise RefusedError(
                "masked sums under another key than the one that was sent", "somebody swapped it", code="swapped-key"
            )
        found = {}
        for other in study.neighbours(name):
            who = study.sources[other]
            if who in self.roster:
                text = key_text(study, self.first, who, self.public[who])
                if not study.card(who).verifies(text, self.signatures[who]):
                    raise RefusedError(
                        f'masks with a key of "{who}" that this member did not sign',
                        "it was swapped",
                        code="swapped-key",
                    )
                found[other] = self.public[who]
        if len(found) < 2:
            why = "2 are the least that hide this member from each other"
            raise RefusedError(f"masked sums with {len(found)} neighbours", why, code="few-sources")
        return found


def has_bytes(arrays: Arrays, shapes: Shapes) -> bool:
    """Whether there are arrays of bytes of these shapes, by name."""
    found = {name: arrays.get(name) for name in shapes}
    return all(a is not None and a.shape == shapes[name] and a.dtype == np.uint8 for name, a in found.items())


def later_transcript(told: Telling, spec: Mapping[str, Any], arrays: Arrays) -> bytes:
    """The hash of what members of an earlier sum are told before a further one."""
    words = {name: value for name, value in spec.items() if name != "second"}
    return hashed(b"mixtune/1 later", told.transcript, canonical(words), array_digest(arrays).encode())


def key_text(study: Study, first: str, name: str, public: bytes) -> bytes:
    """What a member signs of its key for masks."""
    return hashed(b"mixtune/1 mask key", study.fingerprint.encode(), first.encode(), name.encode(), public)


def share_context(study: Study, first: str, owner: str, holder: str) -> bytes:
    """What the share of a key is bound to."""
    parts = (study.fingerprint, first, owner, holder)
    return hashed(b"mixtune/1 share", *(part.encode() for part in parts))
