"""Columns that give the target away, and rows that stand twice: found once for all tasks, told before any gain.

A column is suspected where it almost determines the target, or the target it: copies with noise or with gaps, copies
turned upside down, folded, sorted into bins or coded, in all rows or in the focal ones only. Whether such a column is
known for new rows, only the user knows; a note names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mixtune._messages import Note, Wording, counted, quoted, setting
from mixtune.arrays import Booleans, Floats, Integers

#: Codes of the notes that come before any gain, in this order: those of this module, of a fit that makes one row of
#: rows that repeat, of columns that look like identifiers, and of too few focal rows.
FINDINGS = ("leak", "focal-in-source", "in-two-domains", "repeated-rows", "copied-rows", "identifier", "few-rows")
#: The least correlation of ranks, and the most that is left unexplained, where one column determines another.
SAME_ORDER, UNEXPLAINED = 0.999, 0.002
#: What varies by less than this part of all is rounding.
ROUNDED = 1e-9
#: Fewer rows than this are not enough to tell, unless one column is the other in other units; more are not needed.
ENOUGH, FEWEST, MOST = 20, 8, 2000
#: The part of the rows that must be near their neighbours.
KEPT = 0.9
#: In fewer rows, classes may be apart in a column of numbers by chance, unless they are far apart.
SURE = 60
#: A level, a bin or a class must have so many rows to count.
FEW_OF_A_KIND = 5
#: Matching rows of more numbers than this would take long.
MOST_NUMBERS = 10_000_000
#: Copies of rows are a finding if they are this share of the rows.
MANY_COPIES = 0.01
#: Of the rows of so many domains, the largest, each is looked at by itself.
MOST_DOMAINS = 20
#: Fewer focal rows may stand in a source by chance, or one fewer and this share of them.
CHANCE_ROWS, CHANCE_SHARE = 5, 0.1


@dataclass(frozen=True)
class Suspect:
    """A column of the inputs: its values in all rows, NaN where they are missing, and whether they are only codes."""

    name: Any
    values: Floats
    coded: bool = False


def leak_notes(
    suspects: Sequence[Suspect],
    y: Floats,
    parts: Mapping[str, Booleans],
    *,
    classes: bool,
    target: str,
    fixes: bool = True,
) -> list[Note]:
    """Say which columns almost determine the target, in all rows or in some of their parts.

    Parameters
    ----------
    suspects
        Columns over the rows of all domains.
    y
        The target in these rows; of classes, their codes.
    parts
        Which rows are looked at by themselves, such as the focal ones, and what the note calls them.
    classes
        Whether the target is a class.
    target
        Its name.
    fixes
        Whether the column can be left out with an option.

    Examples
    --------
    >>> y = np.random.default_rng(0).standard_normal(40)
    >>> suspects = [Suspect("copy", (y - 0.2) ** 2), Suspect("other", np.arange(40.0) % 7)]
    >>> leak_notes(suspects, y, {"the focal rows": np.arange(40) < 30}, classes=False, target="price")
    ['column "copy" almost determines "price", or is determined by it; leave it out with ignore="copy" if it is not known for new rows']
    """  # noqa: E501
    notes = []
    for suspect in suspects:
        known = np.isfinite(suspect.values) & np.isfinite(y)

        def found(rows: Booleans, suspect: Suspect = suspect, known: Booleans = known) -> bool:
            rows = rows & known
            return _gives_away(suspect.values[rows], y[rows], coded=suspect.coded, classes=classes)

        where = ""
        if not found(known):
            places = [name for name, rows in parts.items() if found(rows)]
            if not places:
                continue
            where = f" in {', '.join(places)}"
        template = 'column "{column}" almost determines "{target}"{where}, or is determined by it; {advice}'
        told = {"column": suspect.name, "target": target, "where": where, "advice": _advice(suspect.name, fixes=fixes)}
        notes.append(Note("leak", template, **told))
    return notes


def _advice(name: Any, *, fixes: bool) -> Wording | str:
    if not fixes:
        return "leave it out if it is not known for new rows"
    fix = setting("ignore", name)
    return Wording(*(f"leave it out with {way} if it is not known for new rows" for way in (fix.python, fix.terminal)))


@np.errstate(all="ignore")
def _gives_away(x: Floats, y: Floats, *, coded: bool, classes: bool) -> bool:
    """Whether one of two columns almost determines the other."""
    if len(x) < FEWEST or x.min() == x.max() or y.min() == y.max():
        return False
    if len(x) < ENOUGH:
        # In so few rows only the same numbers in other units say something.
        return not (coded or classes) and len(np.unique(y)) > FEWEST // 2 and _correlation(x, y) > 1 - 1e-9
    some = slice(None, None, -(-len(x) // MOST))
    x, y = x[some], y[some]
    if classes:
        return _determines_class(x, y) or (not coded and _separates(y, x) and (len(x) >= SURE or _in_clusters(y, x)))
    if coded:
        return _separates(x, y)
    return (
        _correlation(_ranks(x), _ranks(y)) >= SAME_ORDER
        or _function_of(y, x)
        or _function_of(y, _ranks(x))
        or _steps(x, y)
    )


def _correlation(x: Floats, y: Floats) -> float:
    x, y = x - x.mean(), y - y.mean()
    size = float(np.sqrt((x @ x) * (y @ y)))
    return abs(float(x @ y)) / size if np.isfinite(size) and size > 0 else 0.0


def _ranks(values: Floats) -> Floats:
    """Ranks; equal values have equal ranks."""
    return np.unique(values, return_inverse=True)[1].astype(np.float64)


def _function_of(y: Floats, x: Floats) -> bool:
    """Whether ``x`` is a smooth function of ``y``, up to little noise: rows of like ``y`` have like ``x``."""
    levels, places, counts = np.unique(y, return_inverse=True, return_counts=True)
    scale = np.abs(x).max()
    x = x / scale if scale > 0 else x
    means = np.bincount(places, x) / counts
    total, within = float(np.var(x)), float(np.mean((x - means[places]) ** 2))
    if total == 0 or within > UNEXPLAINED * total:
        return False
    if 2 * len(levels) <= len(y):
        # Each value of one comes with one value of the other, in several rows.
        return _large_kinds(x) >= 2
    if len(levels) < 3:
        return False
    gaps = np.diff(levels)
    share = gaps[:-1] / (gaps[:-1] + gaps[1:])
    left = means[1:-1] - (means[:-2] + share * (means[2:] - means[:-2]))
    # Where rows are far apart, a function may bend between them: the tenth of them that fits worst does not count.
    kept = np.argsort(np.abs(left), kind="stable")[: max(2, int(KEPT * len(left)))]
    varied = float(np.var(means[1:-1][kept]))
    # Where all rows kept have one value, what varies is rounding. The errors of both neighbours add to the row's own.
    return varied > ROUNDED * total and float(np.mean(left[kept] ** 2)) <= UNEXPLAINED * 1.5 * varied


def _steps(x: Floats, y: Floats) -> bool:
    """Whether ``x`` is ``y`` in bins: it has few values, each over a stretch of ``y`` of its own."""
    return len(np.unique(x)) <= len(x) / FEW_OF_A_KIND and _separates(x, y)


def _separates(codes: Floats, numbers: Floats) -> bool:
    """Whether every code has a stretch of the numbers of its own, and at least two have several rows."""
    if _large_kinds(codes) < 2:
        return False
    order = np.lexsort((codes, numbers))
    ordered, values = codes[order], numbers[order]
    changes = np.flatnonzero(ordered[1:] != ordered[:-1])
    # Equal numbers with different codes do not separate them.
    apart = not np.any(values[changes] == values[changes + 1])
    return apart and len(changes) == len(np.unique(codes)) - 1


def _in_clusters(codes: Floats, numbers: Floats) -> bool:
    """Whether the numbers of each code lie nearer together than to those of any other."""
    parts = sorted((numbers[codes == code] for code in np.unique(codes)), key=np.min)
    widest = max(float(np.ptp(part)) for part in parts)
    return all(after.min() - before.max() > widest for before, after in pairwise(parts))


def _determines_class(x: Floats, y: Floats) -> bool:
    """Whether every value of a code comes with one class, and codes are few beside the rows."""
    values, places = np.unique(x, return_inverse=True)
    if len(values) > len(x) / FEW_OF_A_KIND or _large_kinds(y) < 2:
        return False
    pairs = np.unique(np.stack([places.astype(np.float64), y]), axis=1)
    return pairs.shape[1] == len(values)


def _large_kinds(values: Floats) -> int:
    """How many values occur in several rows."""
    return int(np.sum(np.unique(values, return_counts=True)[1] >= FEW_OF_A_KIND))


def repeat_notes(rows: Sequence[tuple[Floats, Floats]], names: Sequence[str]) -> list[Note]:
    """Say how many focal rows, which come first, also stand in each source, target and all.

    Parameters
    ----------
    rows
        Inputs and targets of every domain.
    names
        Of the domains.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((30, 3))
    >>> repeat_notes([(X[:20], X[:20, 0]), (X[10:], X[10:, 0])], ["a", "b"])
    ['10 of 20 focal rows also stand in "b", target and all; leave them out there, since errors on such rows say little of new ones']
    """  # noqa: E501
    sizes = [len(X) for X, _ in rows]
    if len(rows) < 2 or sum(X.size for X, _ in rows) > MOST_NUMBERS or not _has_numbers(np.asarray(rows[0][0])):
        return []
    keys = _as_keys(np.concatenate([np.column_stack([X, y]) for X, y in rows]))
    seen, others = keys[: sizes[0]], keys[sizes[0] :]
    ends = np.cumsum(sizes[1:])
    hits = np.flatnonzero(np.isin(others, seen))
    notes = []
    for place in np.unique(np.searchsorted(ends, hits, side="right")).tolist():
        count = int(np.isin(seen, others[ends[place] - sizes[place + 1] : ends[place]]).sum())
        if _more_than_chance(count, len(seen)):
            template = (
                '{count} of {all} focal rows also stand in "{source}", target and all; leave them out there, since '
                "errors on such rows say little of new ones"
            )
            fields = {"count": count, "all": len(seen), "source": names[place + 1]}
            notes.append(Note("focal-in-source", template, **fields))
    return notes


def domain_parts(codes: Integers, names: Sequence[str]) -> dict[str, Booleans]:
    """The rows of each of the largest domains, for :func:`leak_notes`.

    Of many small domains, some have a column that looks like a leak by chance: they are left out.

    Parameters
    ----------
    codes
        The domain of each row.
    names
        Of the domains.

    Examples
    --------
    >>> list(domain_parts(np.repeat([0, 1, 2], [70, 30, 80]), ["a", "b", "c"]))
    ['the rows of "c"', 'the rows of "a"']
    """
    sizes = np.bincount(codes, minlength=len(names))
    largest = np.argsort(-sizes, kind="stable")[:MOST_DOMAINS].tolist()
    return {f"the rows of {quoted([names[place]])}": codes == place for place in largest if sizes[place] >= SURE}


def shared_notes(rows: Sequence[tuple[Floats, Floats]], names: Sequence[str]) -> list[Note]:
    """Say how many rows stand in more than one domain, target and all.

    Parameters are those of :func:`repeat_notes`, where no domain is the focal one.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((30, 3))
    >>> shared_notes([(X[:20], X[:20, 0]), (X[10:], X[10:, 0])], ["a", "b"])
    ['10 rows stand in more than one of the domains "a", "b", target and all; leave each out in all but one of them, since errors on such rows say little of new ones']
    """  # noqa: E501
    sizes = np.array([len(X) for X, _ in rows])
    largest = np.asarray(rows[int(np.argmax(sizes))][0])
    if len(rows) < 2 or sizes.sum() * largest.shape[1] > MOST_NUMBERS or not _has_numbers(largest):
        return []
    keys = np.unique(_as_keys(np.concatenate([np.column_stack([X, y]) for X, y in rows])), return_inverse=True)[1]
    # Each row once in each domain; what is left of a row more than once stands in several domains.
    pairs = np.unique(np.stack([np.ravel(keys), np.repeat(np.arange(len(rows)), sizes)]), axis=1)
    several = np.bincount(pairs[0])[pairs[0]] > 1
    counts = np.bincount(pairs[1][several], minlength=len(rows))
    told = [k for k, count in enumerate(counts.tolist()) if _more_than_chance(count, int(sizes[k]))]
    if not told:
        return []
    count = len(np.unique(pairs[0][several & np.isin(pairs[1], told)]))
    template = (
        "{rows} more than one of the domains {names}, target and all; leave each out in all but one of them, since "
        "errors on such rows say little of new ones"
    )
    stand = f"{counted((count, 'row'))} {'stands' if count == 1 else 'stand'} in"
    return [Note("in-two-domains", template, rows=stand, names=quoted([names[k] for k in told]))]


def _more_than_chance(count: int, rows: int) -> bool:
    """Whether so many of a domain's rows stand in another hardly by chance."""
    return count >= CHANCE_ROWS or (count == CHANCE_ROWS - 1 and count > CHANCE_SHARE * rows)


def _has_numbers(rows: Floats) -> bool:
    """Whether rows differ so much that equal ones are the same: one column hardly ever has a value twice."""
    return any(2 * len(np.unique(column)) > len(column) for column in rows.T[:100])


def _as_keys(rows: Floats) -> Any:
    # Adding 0 makes one zero of both.
    whole = np.ascontiguousarray(rows + 0.0)
    return whole.view(np.dtype((np.void, whole.dtype.itemsize * whole.shape[1]))).ravel()


def copied_note(count: int, rows: int, name: str) -> Note:
    """The note on rows of a table that repeat others in all columns; very few are no finding.

    Examples
    --------
    >>> copied_note(3, 200, "data.csv")
    '3 rows of "data.csv" repeat others in all columns; are they meant to count more than once?'
    """
    told, repeat = counted((count, "row")), "repeats" if count == 1 else "repeat"
    template = '{rows} of "{file}" {repeat} others in all columns; are they meant to count more than once?'
    code = "copied-rows" if count >= MANY_COPIES * rows else "few-copied-rows"
    return Note(code, template, rows=told, file=name, repeat=repeat)


def findings_first(notes: Sequence[str]) -> tuple[str, ...]:
    """The same notes, those on problems of the rows in front: leaks, repeats, identifiers and few rows, in this order.

    Examples
    --------
    >>> findings_first([Note("dates", "a"), Note("identifier", "b"), Note("leak", "c")])
    ('c', 'b', 'a')
    """
    order = {code: place for place, code in enumerate(FINDINGS)}
    return tuple(sorted(notes, key=lambda note: order.get(getattr(note, "code", ""), len(order))))


def findings_of(notes: Sequence[str]) -> tuple[str, ...]:
    """The notes on problems of the rows among notes: leaks, repeats, identifiers and few rows.

    Examples
    --------
    >>> findings_of([Note("dates", "a"), Note("leak", "b")])
    ('b',)
    """
    return tuple(note for note in notes if getattr(note, "code", "") in FINDINGS)


def label_codes_of(rows: Floats) -> Integers:
    """The number of each distinct row, for targets of several columns.

    Examples
    --------
    >>> label_codes_of(np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, -1.0]])).tolist()
    [1, 0, 1]
    """
    return np.asarray(np.unique(rows, axis=0, return_inverse=True)[1]).reshape(len(rows))


def numeric_suspects(X: Floats, names: Sequence[Any]) -> Iterator[Suspect]:
    """One suspect for each column of a matrix without missing values."""
    return (Suspect(name, X[:, place]) for place, name in enumerate(names))
