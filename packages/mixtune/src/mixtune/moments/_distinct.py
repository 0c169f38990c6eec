"""Rows that repeat, and sample weights of any overall size.

Exports and merges repeat rows. A repeated row is no further observation: left out while its twin stays, it is
predicted from itself. Rows that repeat therefore become one row, which counts as often as it occurs, relative to the
mean over all rows. Sample weights likewise say how rows compare, not how many there are.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from mixtune.arrays import Floats, Integers
from mixtune.moments._rows import Rows

#: Rows repeat where no column and no target differs by more than this part of its standard deviation.
NEAR = 1e-5
#: Of rows with equal inputs at least this part must have equal targets, and more than chance explains.
LEAST_EQUAL, CHANCE = 0.5, 1e-3


def distinct_rows(rows: Rows) -> tuple[Rows, Integers]:
    """Rows that repeat as one row each, with sample weights of mean 1, and the place of each given row among them.

    Rows of few discrete values have equal inputs and targets by chance; they are left as they are.

    Examples
    --------
    >>> rows = Rows(np.array([[0.0], [1.0], [0.0]]), np.array([2.0, 3.0, 2.0]))
    >>> once, places = distinct_rows(rows)
    >>> once.X.ravel(), once.weight.round(3), places
    (array([0., 1.]), array([1.333, 0.667]), array([0, 1, 0]))
    """
    groups = _repeats(rows)
    if groups is None:
        return Rows(rows.X, rows.y, relative_weight(rows.sample_weight)), np.arange(len(rows.y))
    _, first, places = np.unique(groups, return_index=True, return_inverse=True)
    # Groups in the order of their first rows.
    order = np.argsort(first)
    places = np.argsort(order)[places]
    weight: Floats = np.bincount(places, rows.weight).astype(np.float64)
    share = rows.weight / weight[places]
    X = np.zeros((len(first), rows.X.shape[1]))
    y = np.zeros((len(first), *rows.y.shape[1:]))
    np.add.at(X, places, rows.X * share[:, None])
    np.add.at(y, places, rows.y * (share if rows.y.ndim == 1 else share[:, None]))
    # Rows that occur once keep every bit.
    once = np.bincount(places) == 1
    alone = once[places]
    X[places[alone]], y[places[alone]] = rows.X[alone], rows.y[alone]
    return Rows(X, y, relative_weight(weight)), places


def relative_weight(weight: Floats | None) -> Floats | None:
    """Sample weights divided by their mean; None where all are equal.

    Examples
    --------
    >>> relative_weight(np.array([30.0, 10.0])), relative_weight(np.array([7.0, 7.0]))
    (array([1.5, 0.5]), None)
    """
    if weight is None or np.all(weight == weight[0]):
        return None
    largest = weight.max()
    return (weight / largest) / np.mean(weight / largest)


def _repeats(rows: Rows) -> Integers | None:
    """The group (n,) of each row with those that repeat it; None where no row repeats beyond chance."""
    X, Y = rows.X, rows.targets
    if len(Y) < 2:
        return None
    inputs, targets = _near(X), _near(Y)
    both = _joined(inputs, targets)
    sizes, alike = np.bincount(inputs), np.bincount(both)
    pairs, equal = (float(np.sum(each * (each - 1.0))) / 2 for each in (sizes, alike))
    if equal == 0:
        return None
    # How often rows of different inputs have equal targets.
    first = np.unique(inputs, return_index=True)[1]
    counts = np.bincount(targets[first])
    ties = float(np.sum(counts * (counts - 1.0))) / max(len(first) * (len(first) - 1.0), 1.0)
    repeated = float(np.sum(sizes - 1)), float(np.sum(alike[alike > 0] - 1))
    beyond_chance = len(first) > 1 and binom.sf(repeated[1] - 1, repeated[0], ties) < CHANCE
    return both if beyond_chance and equal >= LEAST_EQUAL * pairs else None


def _near(values: Floats) -> Integers:
    """Groups (n,) of rows that are nearly equal in all columns."""
    # Divided by the largest, no square is beyond float64.
    largest = np.max(np.abs(values), axis=0)
    units = values / np.where(largest > 0, largest, 1.0)
    units = units - units.mean(axis=0)
    spread = units.std(axis=0)
    units = units / np.where(spread > 0, spread, 1.0)
    # Nearly equal rows are neighbours along almost any direction; so are few others.
    direction = np.random.default_rng(0).standard_normal(units.shape[1])
    order = np.argsort(units @ direction, kind="stable")
    apart = np.max(np.abs(np.diff(units[order], axis=0)), axis=1, initial=0.0) > NEAR
    groups = np.empty(len(order), dtype=np.int64)
    groups[order] = np.concatenate([[0], np.cumsum(apart)])
    return groups


def _joined(first: Integers, second: Integers) -> Integers:
    """Groups of rows that are in the same group of both."""
    return np.unique(np.column_stack([first, second]), axis=0, return_inverse=True)[1].ravel()
