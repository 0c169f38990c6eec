"""Moments of single blocks, as plain arrays that travel and as files that outlive the run that made them.

A file is named after what its numbers depend on: the block, the columns and the feature map. So a run that was cut
off is continued by running it again, a file that changed is read anew, and nothing is ever counted under two names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mixtune._array import freeze
from mixtune._files import array_digest, read_model, write_model
from mixtune.errors import DataError, ParameterError
from mixtune.features import to_spec
from mixtune.moments import Moments
from mixtune.moments._stream_features import StreamFeatures

__all__ = ["PartialStore", "add_moments", "digest", "map_digest", "pack", "unpack"]

Packed = tuple[dict[str, Any], dict[str, Any]]
FORMAT = "mixtune-partial-moments-1"


def pack(moments: Mapping[str, Moments]) -> Packed:
    """Moments by domain as a JSON document and arrays.

    Examples
    --------
    >>> moments = {"a": Moments.from_rows(np.eye(2), np.ones(2))}
    >>> unpack(*pack(moments))["a"].gram
    array([[1., 0.],
           [0., 1.]])
    """
    domains, arrays = [], {}
    for index, (name, m) in enumerate(moments.items()):
        domains.append({"name": name, "count": m.count, "single": m.single_output, "kept": m.rows is not None})
        if m.rows is not None:
            arrays[f"{index}.U"], arrays[f"{index}.Y"] = m.rows
        else:
            arrays[f"{index}.gram"], arrays[f"{index}.cross"] = m.gram, m._cross
            arrays[f"{index}.square"] = m._square
    return {"format": FORMAT, "domains": domains}, arrays


def unpack(spec: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Moments]:
    """Moments by domain, of what :func:`pack` made."""
    if spec.get("format") != FORMAT:
        raise DataError("these are not moments of a block")
    found = {}
    for index, about in enumerate(spec["domains"]):
        if about["kept"]:
            U, Y = arrays[f"{index}.U"], arrays[f"{index}.Y"]
            moments = Moments.from_rows(U, Y[:, 0] if about["single"] else Y)
        else:
            sums = {part: freeze(arrays[f"{index}.{part}"]) for part in ("gram", "cross", "square")}
            moments = Moments._make(about["count"], about["single"], rows=None, **sums)
        found[about["name"]] = moments
    return found


def add_moments(one: Mapping[str, Moments], other: Mapping[str, Moments]) -> dict[str, Moments]:
    """The moments of both, domain by domain."""
    total = dict(one)
    for name, moments in other.items():
        total[name] = total[name] + moments if name in total else moments
    return total


def digest(document: Any) -> str:
    """The SHA-256 of a JSON document.

    Examples
    --------
    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class PartialStore:
    """A folder of partial moments, one file a block; None keeps nothing."""

    folder: str | None

    def path(self, key: str) -> Path:
        """Where the block of a key lies."""
        assert self.folder is not None
        return Path(self.folder) / f"{key}.moments"

    def read(self, key: str) -> dict[str, Moments] | None:
        """The moments of a block, or None where they are not there, or not whole."""
        if self.folder is None or not self.path(key).exists():
            return None
        try:
            return unpack(*read_model(self.path(key)))
        except (DataError, KeyError):
            # A disk that was full or failing: the block is computed again, and its file replaced.
            return None

    def write(self, key: str, moments: Mapping[str, Moments]) -> None:
        """Keep the moments of a block; a reader meets the whole file or none."""
        if self.folder is not None:
            write_model(self.path(key), *pack(moments))


def map_digest(features: StreamFeatures) -> str:
    """Tell feature maps and origins apart: maps by what they are made of, or else by the features of made-up rows.

    Examples
    --------
    >>> from mixtune import RandomFeatures
    >>> maps = (RandomFeatures(n_inputs=2, width=5, seed=seed) for seed in (0, 1))
    >>> one, other = (StreamFeatures(each, 2, None, "float64") for each in maps)
    >>> map_digest(one) == map_digest(other)
    False
    """
    try:
        spec, arrays = to_spec(features.feature_map)
    except ParameterError:
        rows = np.random.default_rng(0).standard_normal((32, features.n_inputs)) * np.logspace(-3, 3, 32)[:, None]
        try:
            spec, arrays = {"type": type(features.feature_map).__qualname__}, {"probe": features(rows)}
        except ValueError as error:
            raise ParameterError(
                f"this {type(features.feature_map).__name__} cannot be told from other maps ({error}), so no "
                "blocks can be kept for it; register it with register_feature_map, or leave folder out"
            ) from error
    origin = {} if features.origin is None else features.origin._asdict()
    return digest([spec, array_digest(arrays), array_digest(origin)])
