"""The registry of classes that a saved file may name, and the values that it may hold.

A file never brings code. It names classes, and only a class that is registered here, in the same role and under the
same name, is built from it. Numbers, text, arrays, lists, tuples, sets and dicts are written as what they are; any
other object only where its class is registered. The walk through nested values, and the errors about files that do not
fit together, are here; a class only declares which parts it has.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from mixtune._messages import Note, Wording, nearest
from mixtune.errors import DataError, ParameterError
from mixtune.files import DTYPES, Arrays

T = TypeVar("T")
Role = Literal["value", "feature map", "estimator"]
Parts = dict[str, Any]

#: The key that marks a JSON object as something other than a plain value.
KIND = "is"
#: Longest text in an array of fixed width; a forged file could otherwise ask for any amount of memory.
_WIDEST = 100_000
#: Types beside arrays that a part may have in a file, by how its class declares it.
_PLAIN: dict[str, tuple[type, ...]] = {
    "float": (float, int, np.floating, np.integer),
    "int": (int, np.integer),
    "bool": (bool, np.bool_),
    "str": (str,),
    "None": (type(None),),
    "Floats": (float, int, np.floating),
}
_COLLECTIONS: dict[str, Any] = {"dict": dict, "tuple": tuple, "set": set, "frozenset": frozenset}
_REMEDIES = {
    "value": "update mixtune",
    "feature map": "call register_feature_map before loading, or update mixtune",
    "estimator": "update mixtune, or import the package that defines it",
}


class Entry(NamedTuple):
    """A registered class, and two functions: one takes an object apart, the other builds it from its parts.

    ==============  =======================================  ==========================================
    role            ``write``                                ``read``
    ==============  =======================================  ==========================================
    "value"         object -> parts by name                  parts -> object
    "estimator"     object, context -> settings, fitted      settings, fitted, context -> object
    "feature map"   object, networks -> settings, arrays     settings, arrays, supplied -> object
    ==============  =======================================  ==========================================
    """

    cls: type
    write: Callable[..., Any]
    read: Callable[..., Any]


ENTRIES: dict[tuple[str, str], Entry] = {}


def register(role: Role, name: str, cls: type, write: Callable[..., Any], read: Callable[..., Any]) -> None:
    """Let files name a class; each name stands for one class of its role, and each class has one name."""
    taken = ENTRIES.get((role, name))
    # A module that is imported again brings a new class of the same name.
    if taken is not None and (taken.cls.__module__, taken.cls.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ParameterError(f'the name "{name}" is taken by another {role}; choose another name')
    if any(entry.cls is cls and key != (role, name) for key, entry in ENTRIES.items()):
        raise ParameterError(f"{cls.__name__} is registered already, under another name")
    ENTRIES[role, name] = Entry(cls, write, read)


def name_of(role: Role, value: Any) -> str | None:
    """Find the name by the exact class: a subclass may hold or compute something else."""
    return next((name for (each, name), entry in ENTRIES.items() if each == role and type(value) is entry.cls), None)


def entry_named(role: Role, name: Any) -> Entry:
    """Look up what a file names."""
    entry = ENTRIES.get((role, str(name)))
    if entry is None:
        known = nearest(str(name), sorted(each for kind, each in ENTRIES if kind == role))
        raise DataError(f'the file holds the {role} "{name}", which is not known here ({known}); {_REMEDIES[role]}')
    return entry


def field_values(value: Any) -> Parts:
    """The fields of a dataclass or named tuple that its constructor takes."""
    if hasattr(value, "_asdict"):
        return dict(value._asdict())
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}


def storable(
    cls: type[T],
    *,
    name: str | None = None,
    write: Callable[[Any], Parts] = field_values,
    read: Callable[[Parts], Any] | None = None,
    former: Mapping[str, str] | None = None,
) -> type[T]:
    """Let objects of a class be part of a saved model; also a decorator.

    Parameters
    ----------
    cls
        A dataclass or named tuple of values that can be stored, or any class with ``write`` and ``read``.
    name
        The name in files, by default that of the class. A class that is renamed keeps its old name here.
    write, read
        Turn an object into parts by name, and these parts into an object; the fields by default.
    former
        Fields that older files hold under another name: the former name, and that of the field.

    Examples
    --------
    >>> @storable
    ... @dataclasses.dataclass(frozen=True)
    ... class ExampleShare:
    ...     name: str
    ...     share: float
    >>> writer = Writer()
    >>> tree = writer.write(ExampleShare("a", 0.5), "shares_")
    >>> Reader(writer.arrays).read(tree)
    ExampleShare(name='a', share=0.5)
    """

    def build(parts: Parts) -> Any:
        return cls(**_plain_parts(cls, {(former or {}).get(field, field): part for field, part in parts.items()}))

    register("value", name or cls.__name__, cls, write, read or build)
    return cls


def _plain_parts(cls: type, parts: Parts) -> Parts:
    """The parts, if those that the class declares as plain numbers or texts are such; a file may hold anything there.

    Examples
    --------
    >>> _plain_parts(Wording, {"python": 3})
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: the file holds "python" as int, Wording needs str; save the model again
    """
    declarations = {name: text for base in cls.__mro__ for name, text in vars(base).get("__annotations__", {}).items()}
    for field, declared in declarations.items():
        text = declared.__name__ if isinstance(declared, type) else str(declared)
        known = [_PLAIN.get(part.strip()) for part in text.split("|")]
        value, types = parts.get(field), sum(filter(None, known), ())
        # A truth value is an int as well.
        fits = isinstance(value, (np.ndarray, *types)) and (type(value) is not bool or bool in types)
        if field in parts and None not in known and not fits:
            raise DataError(
                f'the file holds "{field}" as {type(value).__name__}, {cls.__name__} needs {text}; save the model again'
            )
    return parts


@contextmanager
def building(what: str, *passed: type[Exception]) -> Iterator[None]:
    """Turn errors raised while ``what`` is built into a DataError about the file, except those in ``passed``.

    Examples
    --------
    >>> with building('a value of kind "array"'):
    ...     {}["name"]
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: a value of kind "array" cannot be built from the file: KeyError('name')
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        if isinstance(error, (DataError, *passed)):
            raise
        why = "it is nested too deeply" if isinstance(error, RecursionError) else repr(error)
        raise DataError(f"{what} cannot be built from the file: {why}") from error


def check_array(
    what: str, array: Any, shape: tuple[int, ...], *, kind: str = "f", least: float = -math.inf, limits: bool = True
) -> None:
    """Refuse an array of a file that does not have the shape, type and range that it has after a fit.

    Parameters
    ----------
    what
        Its name, for the error.
    array, shape
        What the file holds, and the shape that it must have.
    kind
        Of its type: "f" for floating-point and "i" for whole numbers, "b" for booleans.
    least
        The smallest number that it may hold. NaN is never allowed.
    limits
        Whether infinite numbers are refused.

    Examples
    --------
    >>> check_array("coef_", np.zeros(3), (2,))
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: the file holds "coef_" of shape (3,), the model needs (2,); save the model again
    """
    if not isinstance(array, np.ndarray | np.floating) or array.dtype.kind != kind:
        found = f"of type {array.dtype}" if hasattr(array, "dtype") else f"as a {type(array).__name__}"
        raise DataError(f'the file holds "{what}" {found}, which no fit gives; save the model again')
    if array.shape != shape:
        raise DataError(
            f'the file holds "{what}" of shape {array.shape}, the model needs {shape}; save the model again'
        )
    if kind == "f" and not np.all(np.isfinite(array) if limits else ~np.isnan(array)):
        raise DataError(f'the file holds "{what}" with numbers that are not finite; save the model again')
    if kind != "b" and np.any(array < least):
        raise DataError(f'the file holds "{what}" with numbers below {least:g}; save the model again')


class Writer:
    """Turns values into JSON; arrays are collected in ``arrays``, named after their place.

    Parameters
    ----------
    context
        What all estimators of one file share.
    advice
        What to do about a value that cannot be saved, by a part of the name of its place.
    """

    def __init__(self, context: Any = None, *, advice: Mapping[str, str] | None = None) -> None:
        self.arrays: Arrays = {}
        self._context, self._advice = context, advice or {}

    def write(self, value: Any, where: str) -> Any:
        """The JSON of ``value``, whose place is called ``where``.

        Raises
        ------
        ParameterError
            If it is nothing that can be stored.
        """
        if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
            return value
        if type(value) is float:
            return {KIND: "float", "value": str(value)}
        if isinstance(value, str) and name_of("value", value) is None:
            return str(value)
        if isinstance(value, np.generic) and value.dtype.name in DTYPES:
            return {KIND: "scalar", "dtype": value.dtype.name, "value": self.write(value.item(), where)}
        if isinstance(value, np.ndarray):
            return self._write_array(value, where)
        inside = f"{where}." if where else ""
        if name := name_of("value", value):
            return {KIND: name, "parts": self._write_parts(ENTRIES["value", name].write(value), inside)}
        if name := name_of("estimator", value):
            settings, fitted = ENTRIES["estimator", name].write(value, self._context)
            settings = self._write_parts(settings, f"{inside}settings.")
            return {KIND: "estimator", "name": name, "settings": settings, "fitted": self._write_parts(fitted, inside)}
        if isinstance(value, Mapping):
            values = self.write(list(value.values()), where)
            return {KIND: "dict", "items": [[self.write(key, where), inner] for key, inner in zip(value, values)]}
        if type(value) is list:
            return [self.write(item, f"{where}.{place}") for place, item in enumerate(value)]
        if type(value) in (tuple, set, frozenset):
            # The order of a set changes from run to run, and the same model should give the same file.
            ordered = list(value) if type(value) is tuple else sorted(value, key=repr)
            return {KIND: type(value).__name__, "items": self.write(ordered, where)}
        advice = "".join(said for place, said in self._advice.items() if place in where)
        raise ParameterError(
            f"{where} holds a {type(value).__name__}, which cannot be saved; numbers, text, arrays and collections of "
            f"them can{advice}"
        )

    def _write_parts(self, parts: Parts, inside: str) -> Parts:
        return {key: self.write(part, inside + key) for key, part in parts.items()}

    def _write_array(self, array: np.ndarray[Any, Any], where: str) -> Parts:
        if array.dtype.name in DTYPES:
            self.arrays[where] = array
            # Products may round differently for a matrix that is stored by columns in memory, so that is kept.
            by_columns = array.flags.f_contiguous and not array.flags.c_contiguous
            return {KIND: "array", "name": where, "by_columns": by_columns, "frozen": not array.flags.writeable}
        if array.dtype.kind not in "UOT":
            raise ParameterError(f"{where} is an array of {array.dtype}, which cannot be saved; use numbers or text")
        width = array.dtype.itemsize // 4 if array.dtype.kind == "U" else 0
        items = self.write(array.reshape(-1).tolist(), where)
        return {KIND: "texts", "of": array.dtype.kind, "width": width, "shape": list(array.shape), "items": items}


class Reader:
    """Turns the JSON and arrays of a :class:`Writer` into values again; ``context`` as there."""

    def __init__(self, arrays: Mapping[str, np.ndarray[Any, Any]], context: Any = None) -> None:
        self._arrays, self._context = arrays, context

    def read(self, tree: Any) -> Any:
        """The value that ``tree`` describes.

        Raises
        ------
        DataError
            If it is of a kind that is not known here, or does not fit together.
        """
        if isinstance(tree, list):
            return [self.read(item) for item in tree]
        if not isinstance(tree, dict):
            return tree
        kind = str(tree.get(KIND))
        with building(f'a value of kind "{kind}"'):
            return self._read_kind(kind, tree)

    def _read_kind(self, kind: str, tree: Parts) -> Any:
        if kind == "float":
            return float(tree["value"])
        if kind == "scalar":
            if tree["dtype"] not in DTYPES:
                raise DataError(f"the file holds numbers of the unknown type {tree['dtype']!r}; update mixtune")
            return np.dtype(tree["dtype"]).type(self.read(tree["value"]))
        if kind == "array":
            # A copy: arrays as they come from a file are unaligned parts of one block, and cannot be written to.
            array = np.array(self._arrays[tree["name"]], order="F" if tree["by_columns"] else "C")
            array.flags.writeable = not tree["frozen"]
            return array
        if collection := _COLLECTIONS.get(kind):
            return collection(self.read(tree["items"]))
        if kind == "texts":
            types: dict[str, Any] = {"U": f"<U{min(int(tree['width']), _WIDEST)}", "O": object, "T": None}
            items = self.read(tree["items"])
            texts = np.empty(len(items), dtype=types[tree["of"]] or np.dtypes.StringDType())
            texts[:] = items
            return texts.reshape(tree["shape"])
        if kind == "estimator":
            entry = entry_named("estimator", tree["name"])
            return entry.read(self._read_parts(tree["settings"]), self._read_parts(tree["fitted"]), self._context)
        return entry_named("value", kind).read(self._read_parts(tree["parts"]))

    def _read_parts(self, parts: Parts) -> Parts:
        return {key: self.read(part) for key, part in parts.items()}


storable(Wording)
storable(
    Note,
    write=lambda note: {"code": note.code, "template": note.message.template, "fields": dict(note.fields)},
    read=lambda parts: Note(parts["code"], parts["template"], **parts["fields"]),
)
