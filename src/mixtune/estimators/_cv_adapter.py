"""From prepared rows to tasks for the choice, and from choices to an estimator's figures."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.extmath import randomized_svd

from mixtune._array import Floats, Integers
from mixtune.estimators._compared import ROUNDING, compared_of
from mixtune.estimators._cv_results import posterior_of
from mixtune.estimators._fixed_fit import Heads
from mixtune.estimators._preparation import Prepared
from mixtune.estimators._uncertainty import Uncertainty
from mixtune.moments import LeaveOneOut, Rows, chunks
from mixtune.selection import (
    Choice,
    Task,
    joint_left_out,
    mean_left_out,
    sample_sources,
    transfer_gain,
)
from mixtune.weights import DomainWeights

__all__ = [
    "comparisons_of",
    "heads_of",
    "principal_basis",
    "range_of",
    "row_notes",
    "source_places",
    "tasks_of",
    "uncertainty_of",
    "weights_of",
]

#: Widest design that candidates are computed on; wider ones are projected to so many principal directions.
WIDEST = 512
#: How far beyond the range of the training rows features may lie, as a part of that range: the first number, and the
#: second over the number of rows, since few rows hardly know their range.
MARGIN = (0.25, 20.0)
#: Fewer focal rows than this are stated.
FEW = 5


def row_notes(prepared: Prepared) -> tuple[str, ...]:
    """What the rows themselves leave open."""
    focal = prepared.rows[0]
    found = []
    count = focal.weight.sum()
    if count < FEW:
        rows = "1 focal row" if count == 1 else f"{count:g} focal rows"
        found.append(f"only {rows}: leave-one-out says little about what suits {'it' if count == 1 else 'them'}")
    if len(focal.y) > 1 and np.all(focal.targets == focal.targets[0]):
        found.append("every focal target is the same; what differs can only come from the sources")
    if apart := _columns_apart(prepared):
        told = (
            f"{apart} of {focal.X.shape[1]} columns of the sources lie far from the focal rows; were they prepared in "
            "the same way? Steps in front of the estimator in a pipeline do not see the sources: use feature_map"
        )
        warnings.warn(told, UserWarning, stacklevel=5)
        found.append(told)
    single = [name for name, rows in zip(prepared.names[1:], prepared.rows[1:]) if len(rows.X) == 1]
    if single:
        shown = ", ".join(single[:3]) + (", ..." if len(single) > 3 else "")
        found.append(f"{len(single)} source{'s have' if len(single) > 1 else ' has'} one row only: {shown}")
    return tuple(found)


def _columns_apart(prepared: Prepared) -> int:
    """How many columns have sources and focal rows lie five spreads of either apart, if these are most columns."""
    if len(prepared.rows) == 1:
        return 0
    focal, others = prepared.inputs[0].X, [rows.X for rows in prepared.inputs[1:]]
    # One source at a time: joined, thousands of them would be held twice.
    count = sum(len(rows) for rows in others)
    mean = np.sum([rows.sum(axis=0) / count for rows in others], axis=0)
    with np.errstate(over="ignore"):  # a spread beyond float64 is infinite, and nothing is far apart beside it
        variance = np.sum([((rows - mean) ** 2).sum(axis=0) / count for rows in others], axis=0)
    spread = np.maximum(focal.std(axis=0), np.sqrt(variance))
    far = np.abs(focal.mean(axis=0) - mean) > 5 * np.where(spread > 0, spread, np.inf)
    return int(far.sum()) if 2 * far.sum() > len(far) else 0


def principal_basis(prepared: Prepared, seed: int) -> tuple[Floats | None, tuple[str, ...]]:
    """Principal directions (p, k) to work in where there are very many columns, and a note that says so."""
    width = prepared.rows[0].X.shape[1]
    if width <= WIDEST:
        return None, ()
    if len(prepared.rows) == 1:
        # Ridge regression around zero stays in the span of its rows, so that nothing is lost.
        alone = prepared.rows[0].X
        return (np.linalg.svd(alone, full_matrices=False)[2].T if len(alone) < width else None), ()
    count = sum(len(rows.X) for rows in prepared.rows)
    if count > 8 * WIDEST:
        keep = np.random.default_rng(seed).choice(count, 8 * WIDEST, replace=False)
        pooled = np.concatenate([prepared.rows[0].X, _rows_at(prepared, keep)])
    else:
        pooled = np.concatenate([rows.X for rows in prepared.rows])
    rank = min(WIDEST, *pooled.shape)
    basis = randomized_svd(pooled, rank, n_iter=2, random_state=seed)[2].T
    return basis, (f"{width} features: candidates were computed in their {rank} leading principal directions",)


def _rows_at(prepared: Prepared, keep: Integers) -> Floats:
    """Rows of all domains, joined, at given places; without joining them."""
    ends = np.cumsum([len(rows.X) for rows in prepared.rows])
    domain = np.searchsorted(ends, keep, side="right")
    return np.stack([prepared.rows[d].X[k - ends[d]] for d, k in zip(domain, keep)])


def source_places(prepared: Prepared, basis: Floats | None, seed: int) -> tuple[Floats, tuple[str, ...]]:
    """Which sources priors are learned from, counted without the focal domain, and a note where not all are."""
    sizes = [len(rows.X) for rows in prepared.rows[1:]]
    width = prepared.rows[0].X.shape[1] if basis is None else basis.shape[1]
    places = sample_sources(sizes, width, seed=seed)
    if len(places) == len(sizes):
        return places, ()
    told = f"{len(sizes)} sources: priors were learned from {len(places)} of them, drawn at random (seed {seed})"
    return places, (told,)


def tasks_of(prepared: Prepared, output: int, basis: Floats | None, places: Floats) -> list[Task]:
    """The focal domain and the sources at ``places`` as tasks for one output."""
    chosen = [prepared.rows[0], *(prepared.rows[1 + place] for place in places)]
    return [_task_of(rows, output, basis, intercept=prepared.fit_intercept) for rows in chosen]


def _task_of(rows: Rows, output: int, basis: Floats | None, *, intercept: bool) -> Task:
    """The constant comes first where there is an intercept."""
    design = rows.X if basis is None else rows.X @ basis
    if intercept:
        design = np.column_stack([np.ones(len(design)), design])
    return Task(design, rows.targets[:, output], rows.weight, intercept)


def heads_of(choices: Sequence[Choice], prepared: Prepared, basis: Floats | None) -> tuple[Floats, Floats]:
    heads = np.column_stack([choice.head for choice in choices])
    intercept = heads[0] if prepared.fit_intercept else np.zeros(len(choices))
    slopes = heads[1:] if prepared.fit_intercept else heads
    return slopes if basis is None else basis @ slopes, intercept


def weights_of(choices: Sequence[Choice], prepared: Prepared, heads: Heads, places: Floats) -> DomainWeights:
    """Weights of all domains: sources that no prior was learned from have none."""
    values = np.zeros(len(prepared.names))
    for choice in choices:
        own = np.where(choice.weights.sum(axis=1) > 0, choice.own, 1.0)
        values[0] += choice.shares @ own
        values[1 + places] += (choice.shares * (1 - own)) @ choice.weights
    return DomainWeights(values / values.sum(), prepared.names, 0, "cross-validated", _focal_errors(prepared, heads))


def _focal_errors(prepared: Prepared, heads: Heads) -> Floats:
    """Mean squared error of every domain's own head on the focal rows."""
    rows = prepared.rows[0]
    share, targets = rows.weight / rows.weight.sum(), rows.targets
    found = np.empty(len(heads.coef))
    for run in chunks(range(len(found)), 8 * targets.size):
        coef, level = heads.coef[run], heads.intercept[run]
        fitted = np.tensordot(rows.X, coef.reshape(*coef.shape[:2], -1), ((1,), (1,))) + level.reshape(len(run), -1)
        found[run] = share @ np.mean((targets[:, None] - fitted) ** 2, axis=2)
    return found


def uncertainty_of(choices: Sequence[Choice], prepared: Prepared, basis: Floats | None) -> Uncertainty:
    """Leave-one-out and posterior of the average, both made when first asked for."""
    # Several outputs have a posterior each; they are taken to be equally uncertain everywhere.
    single = len(choices) == 1
    posterior = partial(posterior_of, choices[0], basis) if single else _nothing
    return Uncertainty(partial(_left_out_of, choices, prepared.rows[0]), posterior)


def _left_out_of(choices: Sequence[Choice], rows: Rows) -> LeaveOneOut:
    residuals = np.column_stack([choice.left_out for choice in choices])
    inflation = float(np.mean([choice.inflation for choice in choices]))
    spreads = choices[0].spreads if len(choices) == 1 else np.ones(len(residuals))
    return LeaveOneOut(rows.targets - residuals, residuals, spreads / inflation**2, rows.weight)


def _nothing() -> None:
    return None


def comparisons_of(
    choices: Sequence[Choice], tasks: Sequence[Sequence[Task]], prepared: Prepared, heads: Heads, basis: Floats | None
) -> dict[str, Any]:
    """Left-out residuals of all methods, over rows and outputs, compared with ours."""
    residuals: dict[str, list[Floats]] = {"ours": [], "focal only": [], "joint": [], "mean of locals": []}
    flat = heads.coef.reshape(len(heads.coef), heads.coef.shape[1], -1)
    levels = heads.intercept.reshape(len(heads.coef), -1)
    for output, (choice, own) in enumerate(zip(choices, tasks)):
        residuals["ours"].append(choice.left_out)
        residuals["focal only"].append(choice.focal_left_out)
        slopes = flat[1:, :, output] if basis is None else flat[1:, :, output] @ basis
        local = np.column_stack([levels[1:, output], slopes]) if own[0].intercept else slopes
        if len(own) > 1:
            # All sources, made one at a time where thousands of them are not held as tasks.
            others = (_task_of(rows, output, basis, intercept=False) for rows in prepared.rows[1:])
            residuals["joint"].append(joint_left_out(own[0], others))
            residuals["mean of locals"].append(mean_left_out(own[0], choice.focal_left_out, local))
    weight = np.concatenate([own[0].weight for own in tasks])
    least = np.repeat([ROUNDING * choice.size for choice in choices], len(tasks[0][0].y))
    joined = {name: np.concatenate(parts) for name, parts in residuals.items() if len(parts) > 0}
    found = compared_of(joined, weight, least)
    gains = np.mean([choice.play_gains for choice in choices], axis=0)
    return {
        "compared_": tuple(found.values()),
        "transfer_gain_": transfer_gain(found["focal only"], gains, float(tasks[0][0].count)),
    }


def range_of(prepared: Prepared) -> tuple[Floats, Floats]:
    """Between which features predictions are linear, in the units of the features."""
    low = np.min([rows.X.min(axis=0) for rows in prepared.rows], axis=0)
    high = np.max([rows.X.max(axis=0) for rows in prepared.rows], axis=0)
    margin = (MARGIN[0] + MARGIN[1] / sum(len(rows.X) for rows in prepared.rows)) * (high - low)
    scaling = prepared.scaling
    return (low - margin) * scaling.scale + scaling.shift, (high + margin) * scaling.scale + scaling.shift
