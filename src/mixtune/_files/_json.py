"""What a model file says in words and numbers: plain JSON, checked on the way in and read strictly on the way out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mixtune.errors import DataError

__all__ = ["dumps", "loads", "plain_spec"]


def plain_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    try:
        plain = _plain(spec, "the spec")
        dumps(plain)
    except (RecursionError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"the spec cannot be written as JSON: {error}; make it flatter or smaller") from error
    if not isinstance(plain, dict):
        raise DataError(f"the spec is a {type(spec).__name__}; pass a dict")
    return plain


def _plain(value: Any, where: str) -> Any:
    """Copy what JSON can hold, NumPy scalars as Python's; say where the rest stands."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError(f"{where} is {value}, which JSON cannot hold; store it in an array or as None")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise DataError(f"{where} has the key {key!r}; keys must be text")
        return {key: _plain(inner, f"{where}[{key!r}]") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, f"{where}[{place}]") for place, inner in enumerate(value)]
    raise DataError(f"{where} is a {type(value).__name__}, which JSON cannot hold; store numbers in an array")


def dumps(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def loads(text: str) -> dict[str, Any]:
    """Read a JSON object strictly: no key twice, no NaN, no number beyond the floats."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) != len(pairs):
            raise ValueError("a key stands twice")
        return found

    def finite(number: str) -> float:
        if not math.isfinite(value := float(number)):
            raise ValueError(f"{number} is not a finite number")
        return value

    value = json.loads(text, object_pairs_hook=unique, parse_float=finite, parse_constant=finite)
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value
