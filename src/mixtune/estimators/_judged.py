"""From prepared rows to tasks for the choice, and from choices to an estimator's figures."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.extmath import randomized_svd

from mixtune.estimators._chosen import posterior_of
from mixtune.estimators._fixed import Heads
from mixtune.estimators._leave_one_out import LeaveOneOut
from mixtune.estimators._prepare import Prepared
from mixtune.estimators._rows import Floats
from mixtune.estimators._uncertainty import Uncertainty
from mixtune.selection import Choice, Task, compare, joint_left_out, mean_left_out, transfer_gain
from mixtune.weights import DomainWeights

__all__ = [
    "comparisons_of",
    "heads_of",
    "principal_basis",
    "range_of",
    "row_notes",
    "tasks_of",
    "uncertainty_of",
    "weights_of",
]

#: Widest design that candidates are computed on; wider ones are projected to so many principal directions.
WIDEST = 512
#: How far beyond the range of the training rows features may lie, as a part of that range: the first number, and the
#: second over the number of rows, since few rows hardly know their range.
MARGIN = (0.25, 20.0)
#: Left-out residuals below this part of the targets' standard deviation are rounding, and compared as zero.
ROUNDING = 1e-12
#: Fewer focal rows than this are stated.
FEW = 5


def row_notes(prepared: Prepared) -> tuple[str, ...]:
    """What the rows themselves leave open."""
    focal = prepared.rows[0]
    found = []
    count = focal.weight.sum()
    if count < FEW:
        rows = "1 focal row" if count == 1 else f"{count:g} focal rows"
        found.append(f"only {rows}: leave-one-out says little about what suits them")
    if np.all(focal.targets == focal.targets[0]):
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
    focal, others = prepared.inputs[0].X, np.concatenate([rows.X for rows in prepared.inputs[1:]])
    spread = np.maximum(focal.std(axis=0), others.std(axis=0))
    far = np.abs(focal.mean(axis=0) - others.mean(axis=0)) > 5 * np.where(spread > 0, spread, np.inf)
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
    pooled = np.concatenate([rows.X for rows in prepared.rows])
    if len(pooled) > 8 * WIDEST:
        keep = np.random.default_rng(seed).choice(len(pooled), 8 * WIDEST, replace=False)
        pooled = np.concatenate([prepared.rows[0].X, pooled[keep]])
    rank = min(WIDEST, *pooled.shape)
    basis = randomized_svd(pooled, rank, n_iter=2, random_state=seed)[2].T
    return basis, (f"{width} features: candidates were computed in their {rank} leading principal directions",)


def tasks_of(prepared: Prepared, output: int, basis: Floats | None) -> list[Task]:
    """Every domain as a task for one output, the constant first where there is an intercept."""
    found = []
    for rows in prepared.rows:
        design = rows.X if basis is None else rows.X @ basis
        if prepared.fit_intercept:
            design = np.column_stack([np.ones(len(design)), design])
        found.append(Task(design, rows.targets[:, output], rows.weight, prepared.fit_intercept))
    return found


def heads_of(choices: Sequence[Choice], prepared: Prepared, basis: Floats | None) -> tuple[Floats, Floats]:
    heads = np.column_stack([choice.head for choice in choices])
    intercept = heads[0] if prepared.fit_intercept else np.zeros(len(choices))
    slopes = heads[1:] if prepared.fit_intercept else heads
    return slopes if basis is None else basis @ slopes, intercept


def weights_of(choices: Sequence[Choice], prepared: Prepared, heads: Heads) -> DomainWeights:
    values = np.zeros(len(prepared.names))
    for choice in choices:
        own = np.where(choice.weights.sum(axis=1) > 0, choice.own, 1.0)
        values[0] += choice.shares @ own
        values[1:] += (choice.shares * (1 - own)) @ choice.weights
    rows = prepared.rows[0]
    share = rows.weight / rows.weight.sum()
    targets = rows.targets
    scores = np.array(
        [
            float(share @ np.mean((targets - rows.X @ c.reshape(-1, targets.shape[1]) - i.reshape(-1)) ** 2, axis=1))
            for c, i in zip(heads.coef, heads.intercept)
        ]
    )
    return DomainWeights(values / values.sum(), prepared.names, 0, "cross-validated", scores)


def uncertainty_of(choices: Sequence[Choice], prepared: Prepared, basis: Floats | None) -> Uncertainty:
    rows = prepared.rows[0]
    residuals = np.column_stack([choice.left_out for choice in choices])
    inflation = float(np.mean([choice.inflation for choice in choices]))
    # Several outputs have a posterior each; they are taken to be equally uncertain everywhere.
    single = len(choices) == 1
    spreads = choices[0].spreads if single else np.ones(len(residuals))
    left_out = LeaveOneOut(rows.targets - residuals, residuals, spreads / inflation**2, rows.weight)
    posterior = posterior_of(choices[0], basis) if single else None
    return Uncertainty.known(left_out, posterior)


def comparisons_of(
    choices: Sequence[Choice], tasks: Sequence[Sequence[Task]], heads: Heads, basis: Floats | None
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
            residuals["joint"].append(joint_left_out(own[0], own[1:]))
            residuals["mean of locals"].append(mean_left_out(own[0], choice.focal_left_out, local))
    weight = np.concatenate([own[0].weight for own in tasks])
    least = np.repeat([ROUNDING * choice.size for choice in choices], len(tasks[0][0].y))
    joined = {name: np.concatenate(parts) for name, parts in residuals.items() if len(parts) > 0}
    counted = {name: np.where(np.abs(parts) > least, parts, 0.0) for name, parts in joined.items()}
    found = {name: compare(name, counted["ours"], parts, weight) for name, parts in counted.items()}
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
