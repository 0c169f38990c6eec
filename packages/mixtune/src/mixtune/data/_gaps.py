"""Columns without any value in whole domains: what the table says of them, and which sources cannot help then.

A domain that lacks a column gets the value that stands for missing ones in all its rows. What the column does cannot be
learned there, and a model of such a source takes it for something that does nothing. Where the column matters in the
focal rows, that would do harm, and the source is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mixtune._messages import Note, quoted, setting
from mixtune.arrays import Booleans, Floats
from mixtune.data._domain import Domain
from mixtune.data._domains import Domains
from mixtune.data._encoder import MISSING, DateColumn, LevelColumn, NumberColumn, TableEncoder

#: A column matters if without it the error of a ridge fit to the focal rows is at least so many times as large.
MATTERS = 2.0
#: Fewest focal rows that can tell, the most that are looked at, and the ridge relative to columns of spread 1.
FEWEST, MOST, RIDGE = 8, 500, 0.1


def without_gaps(domains: Domains, encoder: TableEncoder) -> tuple[Domains, TableEncoder, list[Note]]:
    """Leave out sources that lack a column that matters, and let new tables lack what the focal domain lacks.

    Returns the domains, the encoder with its optional columns, and notes on every column that some domain lacks.
    """
    notes: list[Note] = []
    focal, dropped, optional = domains.focal_domain, dict[str, str](), []
    for name, places, absent in _columns(encoder):
        lacking = [each.name for each in domains if np.all(each.X[:, absent] > 0)]
        if not lacking or len(lacking) == len(domains):
            continue
        if focal.name in lacking:
            optional.append(name)
            template = 'column "{column}" has no values in the focal domain; new tables need not have it'
            notes.append(Note("optional-column", template, column=name))
            continue
        matters = _matters(focal, places, classes=encoder.target.classes is not None)
        dropped |= dict.fromkeys(lacking, name) if matters else {}
        fate = (
            "they are left out, since it matters in the focal rows ({fix} keeps them, without the column)"
            if matters
            else ("there it is imputed like other missing values")
        )
        template = 'column "{column}" has no values in {count} of the sources ({names}); ' + fate
        fields = {"count": len(lacking), "names": quoted(lacking), "fix": setting("ignore", name)}
        notes.append(Note("lacking-column", template, column=name, **fields))
    members = tuple(each for each in domains if each.name not in dropped)
    kept = domains if not dropped else Domains(members, focal=domains.focal)
    return kept, replace(encoder, optional=tuple(optional)), notes


def every_gap(domains: Domains, encoder: TableEncoder) -> list[Note]:
    """Notes on columns that some domains lack, where every domain is predicted for."""
    notes = []
    for name, _, absent in _columns(encoder):
        lacking = [each.name for each in domains if np.all(each.X[:, absent] > 0)]
        if lacking and len(lacking) < len(domains):
            template = (
                'column "{column}" has no values in {count} of the domains ({names}); there it is imputed like other '
                "missing values"
            )
            fields = {"count": len(lacking), "names": quoted(lacking)}
            notes.append(Note("lacking-column", template, column=name, **fields))
    return notes


def _columns(encoder: TableEncoder) -> Iterator[tuple[str, list[int], int]]:
    """The columns with missing values: the name, the places in the matrix, and the place that marks missing values."""
    start = 0
    for column in encoder.columns:
        places = list(range(start, start + len(column.outputs)))
        start += len(places)
        if isinstance(column, NumberColumn | DateColumn) and column.indicator:
            yield column.name, places, places[-1]
        elif isinstance(column, LevelColumn) and MISSING in column.levels:
            # Of two levels, one that is always there and one for missing values, the second has the only place.
            yield column.name, places, places[-1]


def _matters(focal: Domain, places: list[int], *, classes: bool) -> bool:
    """Whether a ridge fit to the focal rows is far worse without these columns, each row left out in turn."""
    some = slice(None, None, -(-focal.n_rows // MOST))
    X, y = np.asarray(focal.X)[some], np.asarray(focal.y, dtype=np.float64)[some]
    targets = (y[:, None] == np.unique(y)).astype(np.float64) if classes else y[:, None]
    if len(X) < FEWEST or not np.ptp(y) > 0:
        return False
    others = np.ones(X.shape[1], dtype=bool)
    others[places] = False
    whole = _left_out_error(X, targets, np.ones(X.shape[1], dtype=bool))
    return _left_out_error(X, targets, others) > MATTERS**2 * whole


@np.errstate(all="ignore")
def _left_out_error(X: Floats, targets: Floats, columns: Booleans) -> float:
    """Mean squared error of ridge fits with each row left out."""
    used = X[:, columns & (np.ptp(X, axis=0) > 0)]
    scaled = (used - used.mean(axis=0)) / used.std(axis=0)
    basis, sizes, _ = np.linalg.svd(scaled, full_matrices=False)
    shares = sizes**2 / (sizes**2 + RIDGE * len(X) / max(1, scaled.shape[1]))
    middle = targets - targets.mean(axis=0)
    left = middle - basis @ (shares[:, None] * (basis.T @ middle))
    leverage = (basis**2) @ shares + 1 / len(X)
    return float(np.mean((left / np.maximum(1 - leverage, 1e-6)[:, None]) ** 2))
