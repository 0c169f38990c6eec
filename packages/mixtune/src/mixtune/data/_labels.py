"""Labels of domains: which spellings are the same label, and what it is called.

Space around a label, how its accents are composed, and whether a whole number is written as 1, 1.0 or "1" depend on the
program that wrote it. Labels that differ in nothing else are one; a note says where that joined any.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import pyarrow.types as kinds

from mixtune._messages import Note, quoted
from mixtune.arrays import Integers
from mixtune.data._parse_column import decoded, plain_text
from mixtune.errors import DataWarning

_WHOLE = re.compile(r"(-?\d+)\.0+")


def label_key(label: Hashable) -> str:
    """What all spellings of a label have in common.

    Examples
    --------
    >>> [label_key(label) for label in (1, 1.0, "1", " 1.0", "007", "1.5", True)]
    ['1', '1', '1', '1', '007', '1.5', 'True']
    """
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    text = str(label)
    # Of very many labels, most need no further look.
    text = text if text.isascii() and text.isalnum() else plain_text(text)
    whole = _WHOLE.fullmatch(text) if text.endswith("0") else None
    return text if whole is None else whole[1]


class SameLabels(NamedTuple):
    """The number of each spelling's label, the names of the labels, and the spellings of those that were joined."""

    numbers: list[int]
    names: list[str]
    joined: dict[str, list[str]]
    #: The number of each label, by :func:`label_key`.
    places: dict[str, int]

    def name_of(self, label: Hashable) -> str:
        """The name of a label however it is spelt; of one that does not occur, its own."""
        place = self.places.get(label_key(label))
        return plain_text(str(label)) if place is None else self.names[place]

    def notes(self, where: str) -> list[Note]:
        """Say which spellings count as one label."""
        if not self.joined:
            return []
        name, spellings = next(iter(self.joined.items()))
        others = f" and {len(self.joined) - 1} more" if len(self.joined) > 1 else ""
        template = (
            "{where} has labels that differ only in spaces, in how characters are composed or in how numbers are "
            'written; they count as one, such as "{label}" (written {spellings}){others}'
        )
        fields = {"where": where, "label": name, "spellings": quoted(spellings), "others": others}
        return [Note("joined-labels", template, **fields)]

    def warn(self, where: str) -> None:
        """The same as a warning; that space around labels does not count is said in the documentation."""
        spaced = {name: list(dict.fromkeys(map(str.strip, found))) for name, found in self.joined.items()}
        told = self._replace(joined={name: found for name, found in spaced.items() if len(found) > 1})
        for note in told.notes(where):
            warnings.warn(note, DataWarning, stacklevel=4)


def same_labels(spellings: Sequence[Hashable]) -> SameLabels:
    """Number the labels in the order of their first spelling.

    Examples
    --------
    >>> same_labels(["b", 1, "a", "1.0", "b "])  # doctest: +ELLIPSIS
    SameLabels(numbers=[0, 1, 2, 1, 0], names=['b', '1', 'a'], joined={'b': ['b', 'b '], '1': ['1', '1.0']}, places=...)
    """
    keys = [label_key(label) for label in spellings]
    places: dict[str, int] = {}
    numbers = [places.setdefault(key, len(places)) for key in keys]
    # A whole number among floats has no decimals to show.
    shown = [key if isinstance(label, float) else str(label) for key, label in zip(keys, spellings)]
    if len(places) == len(keys):
        names = [text if text == key else plain_text(text) for key, text in zip(keys, shown)]
        return SameLabels(numbers, names, {}, places)
    groups: dict[str, set[str]] = {key: set() for key in places}
    for key, text in zip(keys, shown):
        groups[key].add(text)
    named = {key: set(map(plain_text, found)) for key, found in groups.items()}
    names = [key if len(found) > 1 else next(iter(found)) for key, found in named.items()]
    joined = {name: sorted(found) for name, found in zip(names, groups.values()) if len(found) > 1}
    return SameLabels(numbers, names, joined, places)


def column_labels(column: Any) -> tuple[Integers, list[Any]]:
    """The number of each row's label in a column of a pyarrow table, and the distinct labels; None where there is none.

    Examples
    --------
    >>> import pyarrow as pa
    >>> codes, labels = column_labels(pa.chunked_array([["a", "b", "a"]]))
    >>> codes.tolist(), labels
    ([0, 1, 0], ['a', 'b'])
    """
    rows = decoded(column) if kinds.is_dictionary(column.type) else column
    encoded = rows.combine_chunks().dictionary_encode("encode")
    return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
