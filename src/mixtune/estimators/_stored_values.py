"""Fitted attributes as plain JSON and arrays: what a model file may hold, and nothing else.

Numbers, text, arrays, lists, tuples, sets and dicts are written as what they are; objects only where their class is in
the table at the end, under its name. A file can therefore choose among these classes, and never brings code of its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from mixtune._array import Floats
from mixtune._files import DTYPES as STORED_DTYPES
from mixtune.errors import DataError, ParameterError
from mixtune.estimators._fixed_fit import Held, State
from mixtune.estimators._uncertainty import Uncertainty
from mixtune.moments import LeaveOneOut, Moments, Posterior, Rows, Scaling
from mixtune.regret import RegretProblem, RegretSolution, solve
from mixtune.weights import DomainWeights, EqualWeights, GivenWeights, PredictiveWeights, WassersteinWeights
from mixtune.weights import TransportWeights as Transport
from mixtune.weights.transport import Diameter, TransportDistance

__all__ = ["Reader", "Writer", "storable"]

T = TypeVar("T")
Parts = dict[str, Any]

#: The key that marks a JSON object as something other than a plain value.
KIND = "is"
_COLLECTIONS: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
#: Text in arrays of fixed width; wider ones are no labels.
_WIDEST = 100_000


@dataclass(frozen=True)
class _Record:
    cls: type
    write: Callable[[Any], Parts]
    read: Callable[[Parts], Any]


_RECORDS: dict[str, _Record] = {}


def storable(
    cls: type[T], *, write: Callable[[Any], Parts] | None = None, read: Callable[[Parts], Any] | None = None
) -> type[T]:
    """Let objects of a class be part of a saved model; also a decorator.

    Parameters
    ----------
    cls
        A dataclass or named tuple of values that can be stored, or any class with ``write`` and ``read``.
    write, read
        Turn an object into parts by name, and these parts into an object; the fields by default.

    Examples
    --------
    >>> @storable
    ... @dataclass(frozen=True)
    ... class ExampleShare:
    ...     name: str
    ...     share: float
    >>> writer = Writer()
    >>> tree = writer.write(ExampleShare("a", 0.5), "shares_")
    >>> Reader(writer.arrays).read(tree)
    ExampleShare(name='a', share=0.5)
    """
    taken = _RECORDS.get(cls.__name__)
    # A module that is imported anew brings a new class of the same name.
    if taken is not None and (taken.cls.__module__, taken.cls.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ParameterError(f"another class is stored under the name {cls.__name__}; rename one of them")
    _RECORDS[cls.__name__] = _Record(cls, write or _fields, read or (lambda parts: cls(**parts)))
    return cls


class Writer:
    """Turns values into JSON; arrays are put aside in ``arrays``, under the place they stand at."""

    def __init__(self) -> None:
        self.arrays: dict[str, Floats] = {}

    def write(self, value: Any, where: str) -> Any:
        """The JSON of ``value``, which stands at ``where``.

        Raises
        ------
        ParameterError
            If it is nothing that can be stored.
        """
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {KIND: "float", "value": str(value)}
        if isinstance(value, np.str_):
            return str(value)
        if isinstance(value, np.generic) and value.dtype.name in STORED_DTYPES:
            return {KIND: "scalar", "dtype": value.dtype.name, "value": self.write(value.item(), where)}
        if isinstance(value, np.ndarray):
            return self._write_array(value, where)
        for name, record in _RECORDS.items():
            if type(value) is record.cls:
                parts = record.write(value)
                return {KIND: name, "parts": {key: self.write(part, f"{where}.{key}") for key, part in parts.items()}}
        return self._write_collection(value, where)

    def _write_collection(self, value: Any, where: str) -> Any:
        if isinstance(value, Mapping):
            pairs = [
                [self.write(key, where), self.write(inner, f"{where}.{place}")]
                for place, (key, inner) in enumerate(value.items())
            ]
            return {KIND: "dict", "items": pairs}
        if isinstance(value, set | frozenset):
            kind = "frozenset" if isinstance(value, frozenset) else "set"
            # The order of a set changes from run to run, and the same model should give the same file.
            return {KIND: kind, "items": self._write_items(sorted(value, key=repr), where)}
        if type(value) is tuple:
            return {KIND: "tuple", "items": self._write_items(value, where)}
        if type(value) is list:
            return self._write_items(value, where)
        raise ParameterError(
            f"{where} holds a {type(value).__name__}, which cannot be saved; numbers, text, arrays and collections of "
            "them can" + _remedy(where)
        )

    def _write_items(self, items: Any, where: str) -> list[Any]:
        return [self.write(item, f"{where}.{place}") for place, item in enumerate(items)]

    def _write_array(self, array: Floats, where: str) -> dict[str, Any]:
        # Products of matrices may round differently where a matrix lies in memory by columns, so that is kept.
        by_columns = array.flags.f_contiguous and not array.flags.c_contiguous
        told = {"by_columns": bool(by_columns), "frozen": not array.flags.writeable}
        if array.dtype.name in STORED_DTYPES:
            self.arrays[where] = array
            return {KIND: "array", "name": where, **told}
        if array.dtype.kind not in "UOT":
            raise ParameterError(f"{where} is an array of {array.dtype}, which cannot be saved; use numbers or text")
        width = array.dtype.itemsize // 4 if array.dtype.kind == "U" else 0
        items = self._write_items(array.reshape(-1).tolist(), where)
        return {KIND: "texts", "of": array.dtype.kind, "width": width, "shape": list(array.shape), "items": items}


class Reader:
    """Turns the JSON and arrays of a :class:`Writer` into values again."""

    def __init__(self, arrays: Mapping[str, Floats]) -> None:
        self._arrays = arrays

    def read(self, tree: Any) -> Any:
        """The value behind ``tree``.

        Raises
        ------
        DataError
            If it is of a kind that is not known here, or does not fit together.
        """
        if isinstance(tree, list):
            return [self.read(item) for item in tree]
        if not isinstance(tree, dict):
            return tree
        kind = tree.get(KIND)
        try:
            return self._read_kind(str(kind), tree)
        except DataError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise DataError(f'a value of kind "{kind}" cannot be built from the file: {error!r}') from error

    def _read_kind(self, kind: str, tree: dict[str, Any]) -> Any:
        if kind == "float":
            return float(tree["value"])
        if kind == "scalar":
            return _number_type(tree["dtype"])(self.read(tree["value"]))
        if kind == "array":
            return self._read_array(tree)
        if kind == "texts":
            return _read_texts(tree, [self.read(item) for item in tree["items"]])
        if kind in _COLLECTIONS:
            return _COLLECTIONS[kind](self.read(item) for item in tree["items"])
        if kind == "dict":
            return {self.read(key): self.read(value) for key, value in tree["items"]}
        if (record := _RECORDS.get(kind)) is None:
            raise DataError(f'the file holds a "{kind}", which this mixtune does not know; update mixtune')
        return record.read({key: self.read(part) for key, part in tree["parts"].items()})

    def _read_array(self, tree: dict[str, Any]) -> Floats:
        # A copy: arrays as they come from a file lie unaligned in one block, and cannot be written to.
        array = np.array(self._arrays[tree["name"]], order="F" if tree["by_columns"] else "C")
        array.flags.writeable = not tree["frozen"]
        return array


def _remedy(where: str) -> str:
    if "settings.weights" in where:
        return ": set weights to a rule of mixtune.weights, or after the fit to model.weights_.as_dict()"
    return ""


def _number_type(name: Any) -> Any:
    if name not in STORED_DTYPES:
        raise DataError(f"the file holds numbers of the unknown type {name!r}; update mixtune")
    return np.dtype(name).type


def _read_texts(tree: dict[str, Any], items: list[Any]) -> Floats:
    kinds: dict[str, Any] = {"U": f"<U{min(int(tree['width']), _WIDEST)}", "O": object, "T": None}
    dtype = kinds[tree["of"]] or np.dtypes.StringDType()
    texts = np.empty(len(items), dtype=dtype)
    texts[:] = items
    return texts.reshape(tree["shape"])


def _fields(value: Any) -> Parts:
    if hasattr(value, "_asdict"):
        return dict(value._asdict())
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}


def _write_moments(moments: Moments) -> Parts:
    # Where rows are kept, the Gram matrix is theirs, whether or not somebody has asked for it.
    return {
        "count": moments.count,
        "single": moments.single_output,
        "gram": moments.gram if moments.rows is None else None,
        "cross": moments._cross,
        "square": moments._square,
        "rows": moments.rows,
        "summed": float(moments._summed),
    }


def _write_solution(solution: RegretSolution) -> Parts:
    if solution.method != "closed-form":
        raise ParameterError(f"a solution by {solution.method} cannot be saved; solve in closed form")
    problem = solution.problem
    return {"moments": list(problem.moments), "weights": problem.weights, **_fields(Held.of(problem))}


for _cls in (Rows, Scaling, State, Held, LeaveOneOut, Posterior, DomainWeights, Transport, TransportDistance, Diameter):
    storable(_cls)
for _rule in (EqualWeights, GivenWeights, PredictiveWeights, WassersteinWeights):
    storable(_rule)
storable(Moments, write=_write_moments, read=lambda parts: Moments._make(**parts))
storable(
    Uncertainty,
    write=lambda found: {"left_out": found.left_out, "posterior": found.posterior},
    read=lambda parts: Uncertainty.known(**parts),
)
storable(RegretSolution, write=_write_solution, read=lambda parts: solve(RegretProblem(**parts)))
