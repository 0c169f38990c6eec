"""Values of golden cases: flattened to numbers and text, stored, read, and compared.

Numbers are arrays of floats, compared relative to the largest magnitude of their field. Everything
else is text and compared exactly, except that numbers within text that are written with many digits
are compared as numbers: their last digits are rounding, which another processor does differently.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

#: Difference of numbers that is accepted by default, relative to the largest magnitude of the
#: field.
TOLERANCE = 1e-10
#: Arrays with more entries are stored as so many entries, evenly spaced, and the sums of their
#: magnitudes and squares.
MOST_ENTRIES = 120
#: Fields that differ from run to run: times, and versions of packages.
LEFT_OUT = ("seconds", "created_with", "made_with")
#: Numbers with at least so many digits come from ``repr`` and JSON; numbers with fewer were rounded
#: for people.
MANY_DIGITS = 12

NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?|-?\d+e[-+]?\d+")

Fields = dict[str, Any]

#: What may vary from run to run, and what stands in its place: (pattern, replacement), applied in
#: this order.
VARYING = (
    # Times that a computation took: in tables of ``price``, in JSON, in sentences, and beside bars
    # of progress.
    (r"time:(?:\s+[a-z]+(?:\s[a-z]+)*\s\d+\.\d\d\ss,?)+", "time: TIMES"),
    (r'"seconds": (?:\{[^}]*\}|[-+\d.e]+)', '"seconds": TIME'),
    (r"\d+(?:\.\d+)? (?:seconds?|s|ms)\b", "TIME"),
    (r"\b\d+:\d\d:\d\d\b(?!\+)|-:--:--", "TIME"),
    # Dates: as in ISO 8601, with or without a time, and as on pages.
    (r"2\d{3}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:\+\d\d:\d\d)?)?(?!\d)", "DATE"),
    (r"\d\d [A-Z][a-z]+ 2\d{3}, \d\d:\d\d", "DATE"),
    # Versions of this package and of others.
    (r"mixtune \d+\.\d+[\w.+]*", "mixtune VERSION"),
    (r'"(mixtune|numpy|scipy|python|scikit-learn)": "\d[\w.+]*"', r'"\1": "VERSION"'),
    (r"\b(numpy|scipy|python|scikit-learn) \d[\w.+]*", r"\1 VERSION"),
    # Random keys and all that is computed of them: fingerprints and hashes, which are sometimes all
    # digits. Numbers with a point or a comma are none.
    (r"(?<![\w.,])[0-9a-f]{16,}\b(?![.,]\d)", "KEY"),
    (r" at 0x[0-9a-f]+", " at ADDRESS"),
    # Rounding errors that a check of the paper reports, and the row that Arrow names if it reads
    # with one thread.
    (r"at most \d+(\.\d+)?e-1\d", "at most ROUNDING"),
    (r"Row #\d+: ", ""),
    # Numbers with many digits and a decimal comma, so that they are compared as numbers.
    (r"(?<=\d),(?=\d{9})", "."),
    # Sizes of files that hold such keys or versions.
    (r"(size:) .*", r"\1 SIZE"),
    (r"\d[\d,]* bytes", "SIZE bytes"),
    (r'("bytes[\w]*": )\d+', r"\1SIZE"),
)


def stable(text: str) -> str:
    """The text with placeholders for what varies.

    Examples
    --------
    >>> stable("mixtune 0.2.0.dev0 took 1.3 seconds on 2026-01-31 for 1,200 bytes")
    'mixtune VERSION took TIME on DATE for SIZE bytes'
    >>> stable("study 4418282901439326 of 44182829014393ef: 0.1234567890123456, 1234567890123456.5")
    'study KEY of KEY: 0.1234567890123456, 1234567890123456.5'
    """
    for pattern, replacement in VARYING:
        text = re.sub(pattern, replacement, text)
    return text


def flatten(value: Any, name: str = "") -> Fields:
    """Fields by path, each an array of floats or a text.

    Examples
    --------
    >>> flatten({"a": [1, 2], "b": {"c": "text", "seconds": 3.0}})
    {'a': array([1., 2.]), 'b/c': 'text'}
    """
    return dict(_fields(value, name))


def _fields(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if name.rpartition("/")[2] in LEFT_OUT:
        return
    value = _plain(value)
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _fields(part, f"{name}/{key}" if name else str(key))
    elif isinstance(value, np.ndarray):
        yield from _array_fields(value, name)
    elif isinstance(value, (list, tuple)):
        yield from _sequence_fields(value, name)
    else:
        yield name, str(value)


def _array_fields(value: np.ndarray, name: str) -> Iterator[tuple[str, Any]]:
    if value.dtype.kind not in "biuf":
        yield name, json.dumps([str(each) for each in value.ravel()], ensure_ascii=False)
        return
    numbers = value.astype(np.float64)
    if numbers.size <= MOST_ENTRIES:
        yield name, numbers
        return
    yield f"{name}/shape", np.array(numbers.shape, dtype=np.float64)
    places = np.linspace(0, numbers.size - 1, MOST_ENTRIES).astype(int)
    yield f"{name}/entries", numbers.ravel()[places]
    # Sums in which nothing cancels.
    yield f"{name}/magnitudes", np.array(np.abs(numbers).sum())
    yield f"{name}/squares", np.array(np.square(numbers).sum())


def _sequence_fields(value: list[Any] | tuple[Any, ...], name: str) -> Iterator[tuple[str, Any]]:
    parts = [_plain(each) for each in value]
    numbers = [part for part in parts if isinstance(part, np.ndarray) and part.dtype.kind in "biuf"]
    if parts and len(numbers) == len(parts) and len({part.shape for part in numbers}) == 1:
        yield from _fields(np.stack(numbers), name)
        return
    if all(isinstance(part, str) for part in parts):
        yield name, json.dumps(parts, ensure_ascii=False)
        return
    for place, part in enumerate(parts):
        yield from _fields(part, f"{name}/{place}")


def _plain(value: Any) -> Any:
    """Arrays, text, mappings and sequences instead of whatever holds them."""
    if isinstance(value, str) or value is None:
        return "None" if value is None else str(value)
    if isinstance(value, (bool, int, float, np.generic)):
        array = np.asarray(value)
        return array if array.dtype.kind in "biuf" else str(value)
    if isinstance(value, (np.ndarray, Mapping)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, (list, tuple)):
        return value
    if hasattr(value, "to_dict") and hasattr(value, "columns"):  # a frame of pandas or polars
        return {str(column): np.asarray(value[column]) for column in value.columns}
    if hasattr(value, "detach"):  # a tensor
        return value.detach().cpu().numpy()
    if hasattr(value, "values") and hasattr(value, "names"):  # weights of domains, which have no fields
        return {"names": list(value.names), "values": np.asarray(value.values)}
    if hasattr(value, "to_numpy"):
        return value.to_numpy()
    return str(value)


def differences(found: Fields, stored: Fields, tolerance: float = TOLERANCE) -> list[str]:
    """One line for each field that differs by more than is accepted."""
    lines = [f"{name}: no longer there" for name in stored if name not in found]
    lines += [f"{name}: new" for name in found if name not in stored]
    for name in stored:
        if name in found and (line := difference(found[name], stored[name], tolerance)):
            lines.append(f"{name}: {line}")
    return lines


def difference(found: Any, stored: Any, tolerance: float = TOLERANCE) -> str:
    """The difference of one field in words; empty where it is accepted."""
    if isinstance(found, np.ndarray) and isinstance(stored, np.ndarray):
        return _number_difference(found, stored, tolerance)
    if isinstance(found, str) and isinstance(stored, str):
        return text_difference(found, stored, tolerance)
    return f"was {_kind(stored)}, is {_kind(found)}"


def _kind(value: Any) -> str:
    return f"text {value[:60]!r}" if isinstance(value, str) else f"numbers {np.ravel(value)[:4]}"


def _number_difference(found: np.ndarray, stored: np.ndarray, tolerance: float) -> str:
    if found.shape != stored.shape:
        return f"shape was {stored.shape}, is {found.shape}"
    if not found.size:
        return ""
    finite = np.isfinite(stored)
    same_kind = np.array_equal(np.where(finite, 0.0, stored), np.where(np.isfinite(found), 0.0, found), equal_nan=True)
    if not same_kind:
        return "other entries are infinite or not a number"
    if not finite.any():
        return ""
    gaps = np.abs(found - stored, where=finite, out=np.zeros(stored.shape))
    largest, scale = float(gaps.max()), float(np.abs(stored[finite]).max())
    if largest <= tolerance * scale:
        return ""
    place = tuple(int(each) for each in np.unravel_index(int(gaps.argmax()), stored.shape))
    values = f"{float(stored[place])!r} -> {float(found[place])!r}"
    relative = largest / scale if scale else math.inf
    size = f"{largest:.2e}, {relative:.1e} of the largest magnitude"
    return f"largest difference {size} (at {place}: {values})"


def text_difference(found: str, stored: str, tolerance: float = TOLERANCE) -> str:
    """The first difference of two texts; numbers with many digits may differ in the last ones."""
    if found == stored:
        return ""
    mine, theirs = NUMBER.split(found), NUMBER.split(stored)
    if mine == theirs:
        pairs = list(zip(NUMBER.findall(found), NUMBER.findall(stored)))
        far = [f"{old} -> {new}" for new, old in pairs if not _close(new, old, tolerance)]
        return f"{len(far)} numbers, the first {far[0]}" if far else ""
    for place, (new, old) in enumerate(zip(found.splitlines(), stored.splitlines()), start=1):
        if NUMBER.split(new) != NUMBER.split(old):
            return f"line {place}: {old!r} -> {new!r}"
    return f"{len(stored.splitlines())} lines -> {len(found.splitlines())} lines"


def _close(found: str, stored: str, tolerance: float) -> bool:
    if found == stored:
        return True
    if min(map(_digits, (found, stored))) < MANY_DIGITS and max(map(_digits, (found, stored))) < MANY_DIGITS:
        return False
    # Numbers of one text have one scale, about 1; those that are nearly 0 are what is left of
    # larger ones.
    return abs(float(found) - float(stored)) <= tolerance * max(1.0, abs(float(stored)))


def _digits(number: str) -> int:
    return sum(character.isdigit() for character in number.partition("e")[0].lstrip("-0."))


def write(folder: Path, name: str, results: Mapping[str, Fields]) -> None:
    """Numbers of all cases to NAME.npz; text to NAME.json, as lists of its lines."""
    numbers, texts = {}, {}
    for case in sorted(results):
        for field, value in results[case].items():
            if isinstance(value, np.ndarray):
                numbers[f"{case}:{field}"] = value
            else:
                lines = value.split("\n")
                texts.setdefault(case, {})[field] = lines if len(lines) > 1 else value
    # One array of all numbers: a zip file with an entry for each field would be mostly headers.
    sizes = {key: list(value.shape) for key, value in numbers.items()}
    joined = np.concatenate([value.ravel() for value in numbers.values()])
    np.savez_compressed(folder / f"{name}.npz", numbers=joined, fields=np.array(json.dumps(sizes)))
    text = json.dumps(texts, indent=1, ensure_ascii=False, sort_keys=True)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def read(folder: Path, name: str) -> dict[str, Fields]:
    """The stored results of all cases; empty where there are none yet."""
    results: dict[str, Fields] = {}
    if not (folder / f"{name}.npz").exists():
        return results
    with np.load(folder / f"{name}.npz") as held:
        numbers, shapes = held["numbers"], json.loads(str(held["fields"]))
    start = 0
    for key, shape in shapes.items():
        case, _, field = key.partition(":")
        size = math.prod(shape)
        results.setdefault(case, {})[field] = numbers[start : start + size].reshape(shape)
        start += size
    texts = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    for case, fields in texts.items():
        joined = {name: text if isinstance(text, str) else "\n".join(text) for name, text in fields.items()}
        results.setdefault(case, {}).update(joined)
    return results
