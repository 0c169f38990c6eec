"""How the spread of errors varies with the inputs, from left-out rows and validation tasks.

The logarithm of the mean absolute error is taken to be linear in a few columns: inputs in standard units, the
prediction, the absolute values of both, and the logarithm of the posterior spread, by which residuals were divided
before. Coefficients are those of a regression of absolute residuals with a logarithmic link, whose quasi-likelihood has
the coefficient of variation of normal errors. The test rows of validation tasks give one pattern; the focal rows are
fitted around it, and around a constant spread, with several strengths, and the average of these fits by their marginal
likelihood is taken. Where the rows show no pattern, it is nearly the constant.

Intervals use residuals divided by the local spread without the row itself. To few left-out rows those of the tasks are
added: how test rows of a source compare with the rows that it learned from, of which there were as many as focal ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mixtune._registry import check_array
from mixtune.arrays import Floats, Integers
from mixtune.choice._model_averaging import Task, ValidationTask

#: Squared coefficient of variation of the absolute value of a normal variable with mean zero.
VARIATION = np.pi / 2 - 1
#: The mean absolute value of a standard normal variable.
MEAN_SIZE = (2 / np.pi) ** 0.5
#: Standard deviations of coefficients about the constant or the pattern of the tasks, with their prior probabilities.
STRENGTHS = ((0.02, 0.7), (0.05, 0.1), (0.1, 0.1), (0.2, 0.1))
#: The same for the pattern of the tasks.
SHARED_STRENGTHS = (0.05, 0.15, 0.4)
#: Rows of one task count so much each: draws of two tasks of one source overlap.
TASK_WEIGHT = 0.5
#: Inputs are clipped at so many standard deviations.
LARGEST_INPUT = 3.0
#: Residuals count as at most so many times, and at least this part of, their mean.
LARGEST_ERROR, SMALLEST_ERROR = 5.0, 1e-2
#: Steps of Fisher scoring.
STEPS = 8
#: Largest leverage of a row on its own spread.
LARGEST_LEVERAGE = 0.95
#: Left-out rows count as much as all tasks, where they are as many.
TASK_ROWS = 10.0
#: Variance of the logarithm of the spread between domains beyond what the tasks show.
UNSEEN_VARIANCE = 0.1
#: Most quantiles of the tasks' errors that are kept.
KEPT = 200


@dataclass(frozen=True, eq=False)
class SpreadColumns:
    """What the spread may depend on: features at these places in standard units, and the prediction.

    Attributes
    ----------
    places : array (k,)
    center, scale : arrays (k,)
    level, unit : float
        Predictions are ``level + unit * f``.
    """

    places: Integers
    center: Floats
    scale: Floats
    level: float
    unit: float

    def __post_init__(self) -> None:
        shape = (len(self.places),)
        check_array("places", self.places, shape, kind="i", least=0)
        check_array("center", self.center, shape)
        check_array("scale", self.scale, shape, least=np.nextafter(0.0, 1.0))
        check_array("level", np.float64(self.level), ())
        check_array("unit", np.float64(self.unit), (), least=np.nextafter(0.0, 1.0))

    @property
    def width(self) -> int:
        """The number of columns."""
        return 2 * (len(self.places) + 1) + 1

    def __call__(self, inputs: Floats, predictions: Floats, spreads: Floats) -> Floats:
        """The columns (n, q) of rows: of inputs (n, k), predictions (n,) and posterior spreads (n,)."""
        standard = np.column_stack([(inputs - self.center) / self.scale, (predictions - self.level) / self.unit])
        clipped = np.clip(standard, -LARGEST_INPUT, LARGEST_INPUT)
        return np.column_stack([clipped, np.abs(clipped) - MEAN_SIZE, np.log(spreads)])


@dataclass(frozen=True, eq=False)
class LocalSpread:
    """The local spread of one output, relative to the posterior spread.

    Attributes
    ----------
    columns : SpreadColumns
    coef : array (q,)
    intercept, low, high : float
        Logarithms are linear in the columns, and between these limits: those of the focal rows.
    rows : array (n,)
        The logarithm for each focal row by the fit without it.
    validated : array (m,)
        Quantiles, at equal distances, of the errors that validation tasks let expect, divided by the local spread.
    share : float
        What these count beside left-out rows.
    """

    columns: SpreadColumns
    coef: Floats
    intercept: float
    low: float
    high: float
    rows: Floats
    validated: Floats
    share: float

    def __post_init__(self) -> None:
        check_array("coef", self.coef, (self.columns.width,))
        check_array("limits", np.array([self.intercept, self.low, self.high, self.share]), (4,))
        check_array("rows", self.rows, (len(self.rows),))
        check_array("validated", self.validated, (len(self.validated),), least=0.0)

    def __call__(self, features: Floats, predictions: Floats, spreads: Floats) -> Floats:
        """Factors (n,) of standard deviations, for rows of all features."""
        columns = self.columns(features[:, self.columns.places], predictions, spreads)
        return np.exp(np.clip(columns @ self.coef + self.intercept, self.low, self.high))

    def repeated(self, places: Integers) -> LocalSpread:
        """With focal rows at these places."""
        return replace(self, rows=self.rows[places])


def learn_local_spread(
    features: Floats,
    predictions: Floats,
    residuals: Floats,
    spreads: Floats,
    weight: Floats,
    places: Integers,
    tasks: Sequence[Task] = (),
    *,
    unit: float,
    typical: float = 1.0,
) -> LocalSpread:
    """Learn the local spread of one output.

    Parameters
    ----------
    features : array (n, d)
        All features of the focal rows.
    predictions, residuals, spreads, weight : arrays (n,)
        For left-out rows; predictions are in the units of the residuals.
    places : array (k,)
        The features that are inputs.
    tasks : sequence of Task
        Of the average; those with rows count, and those with inputs have a pattern.
    unit : float
        Residuals and targets of tasks are in this unit.
    typical : float
        The posterior spread of the focal domain at inputs of sources, which is part of the errors of tasks.
    """
    inputs = features[:, places]
    share = weight / weight.sum()
    center = share @ inputs
    scale = np.sqrt(share @ (inputs - center) ** 2)
    level = float(share @ predictions)
    deviation = float(np.sqrt(share @ (predictions + residuals - level) ** 2))
    usable = [task for task in tasks if isinstance(task, ValidationTask)]
    given = [task for task in usable if task.inputs is not None and task.targets is not None]
    if given:
        # Few focal rows hardly know how far inputs vary; sources do.
        whole = np.vstack([inputs, *(np.asarray(task.inputs) for task in given)])
        center, scale = whole.mean(axis=0), whole.std(axis=0)
    columns = SpreadColumns(places, center, np.where(scale > 0, scale, 1.0), level, deviation or 1.0)
    patterns = [_task_columns(columns, task, unit) for task in given]
    errors = [np.abs(task.residuals[0]) * unit for task in given]
    shared = _shared_pattern(patterns, errors)
    scores = np.abs(residuals) / np.sqrt(spreads)
    design = columns(inputs, predictions, spreads)
    coef, intercept, rows = _averaged_fit(design, scores, weight, shared)
    found = design @ coef + intercept
    count = _distinct(inputs, weight)
    own = float(np.average(scores * np.exp(-rows), weights=weight))
    validated = _validated_errors(usable, own, count, shared, columns, unit, typical)
    share = TASK_ROWS / (count + TASK_ROWS) if len(validated) else 0.0
    return LocalSpread(columns, coef, intercept, float(found.min()), float(found.max()), rows, validated, share)


def _task_columns(columns: SpreadColumns, task: ValidationTask, unit: float) -> Floats:
    """The columns of a task's tests; how its posterior spread varies is left to its inputs."""
    predictions = (np.asarray(task.targets) - task.residuals[0]) * unit
    return columns(np.asarray(task.inputs), predictions, np.ones(len(predictions)))


def _shared_pattern(designs: Sequence[Floats], errors: Sequence[Floats]) -> Floats | None:
    """Coefficients (q,) that the tasks have in common, each with a level of its own."""
    varying = [(design, sizes) for design, sizes in zip(designs, errors) if sizes.mean() > 0]
    if not varying:
        return None
    count = len(varying)
    levels = np.repeat(np.eye(count), [len(sizes) for _, sizes in varying], axis=0)
    design = np.hstack([levels, np.vstack([part for part, _ in varying])])
    sizes = np.concatenate([_floored(part, part.mean()) / part.mean() for _, part in varying])
    weight = np.full(len(sizes), TASK_WEIGHT)
    width = design.shape[1] - count
    fits = []
    for strength in SHARED_STRENGTHS:
        precision = np.concatenate([np.zeros(count), np.full(width, strength**-2.0)])
        fits.append(_fit(design, sizes, weight, np.zeros(count + width), precision))
    return max(fits, key=lambda fit: fit.evidence).coef[count:]


def _averaged_fit(
    columns: Floats, scores: Floats, weight: Floats, shared: Floats | None
) -> tuple[Floats, float, Floats]:
    """Coefficients, intercept, and logarithms of the spread of left-out rows; the mean of these is zero."""
    width, mean = columns.shape[1], float(np.average(scores, weights=weight))
    if mean == 0:
        return np.zeros(width), 0.0, np.zeros(len(scores))
    sizes = _floored(scores, mean) / mean
    design = np.column_stack([np.ones(len(scores)), columns])
    fits, left_out = [], []
    for prior in [np.zeros(width)] + ([] if shared is None else [shared]):
        for strength, probability in STRENGTHS:
            precision = np.append(0.0, np.full(width, strength**-2.0))
            fit = _fit(design, sizes, weight, np.append(0.0, prior), precision)
            fits.append(replace(fit, evidence=fit.evidence + np.log(probability)))
            leverage = np.sum((design @ fit.covariance) * design, axis=1) * weight / VARIATION
            leverage = np.minimum(leverage, LARGEST_LEVERAGE)
            logs = design @ fit.coef
            left_out.append(logs - leverage / (1.0 - leverage) * _excess(sizes, logs))
    evidence = np.array([fit.evidence for fit in fits])
    shares = np.exp(evidence - evidence.max())
    shares /= shares.sum()
    coef, rows = shares @ np.array([fit.coef for fit in fits]), shares @ np.array(left_out)
    middle = float(np.average(design @ coef, weights=weight))
    return coef[1:], float(coef[0]) - middle, rows - middle


@dataclass(frozen=True, eq=False)
class _Fit:
    coef: Floats
    covariance: Floats
    evidence: float


def _fit(design: Floats, sizes: Floats, weight: Floats, mean: Floats, precision: Floats) -> _Fit:
    """The most likely coefficients of positive sizes about a prior mean, by Fisher scoring with fixed weights."""
    information = (design * (weight / VARIATION)[:, None]).T @ design
    system = information + np.diag(precision) + 1e-9 * np.eye(len(mean))
    covariance = np.asarray(np.linalg.inv(system), dtype=np.float64)
    coef = mean
    for _ in range(STEPS):
        slope = design.T @ (weight * _excess(sizes, design @ coef)) / VARIATION
        coef = coef + covariance @ (slope - precision * (coef - mean))
    logs = design @ coef
    ratio = sizes * np.exp(-logs)
    # Beyond the largest error that counts, the logarithm goes on with its slope there.
    capped = np.minimum(ratio, LARGEST_ERROR)
    losses = logs + capped + LARGEST_ERROR * np.log(ratio / capped)
    known = precision > 0
    evidence = (
        -float(weight @ losses) / VARIATION
        - 0.5 * float(precision @ (coef - mean) ** 2)
        + 0.5 * float(np.sum(np.log(precision[known])))
        + 0.5 * float(np.linalg.slogdet(covariance)[1])
    )
    return _Fit(coef, covariance, evidence)


def _excess(sizes: Floats, logs: Floats) -> Floats:
    """By how much sizes are above what is expected, relative to it."""
    return np.minimum(sizes * np.exp(-logs), LARGEST_ERROR) - 1.0


def _distinct(inputs: Floats, weight: Floats) -> float:
    """How many rows say what errors are: those with the same inputs count once, and alone they say nothing."""
    count = len(np.unique(inputs, axis=0)) if inputs.shape[1] else len(weight)
    return min(float(weight.sum()), float(count)) if count > 1 else 0.0


def _floored(sizes: Floats, mean: float) -> Floats:
    return np.maximum(sizes, SMALLEST_ERROR * mean)


def _validated_errors(
    tasks: Sequence[ValidationTask],
    own: float,
    rows: float,
    shared: Floats | None,
    columns: SpreadColumns,
    unit: float,
    spread: float,
) -> Floats:
    """Quantiles (m,) of errors of new focal rows over the local spread, as validation tasks let expect them.

    In each task the errors of the tests are relative to its level: the mean size of its left-out residuals, shrunk
    towards the level of the other tasks by as much as so many ``rows`` leave open. The focal level is found likewise,
    from the mean size of its ``own`` left-out residuals.
    """
    spare = [
        task for task in tasks if len(task.weight) != task.left_out.shape[1] and np.all(np.isfinite(task.left_out[0]))
    ]
    if not spare:
        return np.zeros(0)
    errors = []
    for task in spare:
        sizes = np.abs(task.residuals[0]) * unit
        if shared is not None and task.inputs is not None and task.targets is not None:
            logs = _task_columns(columns, task, unit) @ shared
            sizes = sizes * np.exp(logs.mean() - logs)
        errors.append(sizes)
    means = np.array([np.average(sizes, weights=task.weight) for sizes, task in zip(errors, spare)])
    if not np.all(means > 0):
        return np.zeros(0)
    logs, sources = np.log(means), np.array([task.source for task in spare])
    pseudo = VARIATION / (float(np.var(logs)) + UNSEEN_VARIANCE)
    relative, shares = [], []
    for sizes, task in zip(errors, spare):
        others = logs[sources != task.source]
        typical = float(np.exp(np.mean(others if len(others) else logs)))
        left = np.average(np.abs(task.left_out[0]), weights=task.left_out_weight) * unit
        relative.append(sizes / ((rows * left + pseudo * typical) / (rows + pseudo)))
        shares.append(task.weight / task.weight.sum())
    level = (rows * own + pseudo * float(np.exp(logs.mean())) / spread**0.5) / (rows + pseudo)
    joined, share = np.concatenate(relative), np.concatenate(shares) / len(spare)
    order = np.argsort(joined, kind="stable")
    levels = (np.arange(KEPT) + 0.5) / KEPT
    places = np.searchsorted(np.cumsum(share[order]), levels - 1e-12)
    return level * joined[order][np.minimum(places, len(joined) - 1)]
