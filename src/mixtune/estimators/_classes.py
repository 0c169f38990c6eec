"""Class labels as targets +1 and -1, and the calibration of scores: how sure a score may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from mixtune._array import Array, Floats, Integers, slices
from mixtune.errors import DataError, ParameterError

#: Bounds of log(sharpness): from nearly uniform to nearly certain.
BOUNDS = (-5.0, 5.0)
#: How many values of the sharpness are compared, over the range of its logarithm; the best is refined by a parabola.
SHARPNESS_STEPS = 41
#: Rows whose losses are computed at a time.
RUN_ROWS = 1 << 16


def signs_of(places: Array, count: int) -> Floats:
    """Targets +1 (this class) and -1 (another) from class indices: (n,) for the second of two classes, else (n, K).

    Examples
    --------
    >>> signs_of(np.array([0, 1]), 2).tolist(), signs_of(np.array([2]), 3).tolist()
    ([-1.0, 1.0], [[-1.0, -1.0, 1.0]])
    """
    signs = np.where(places[:, None] == np.arange(count), 1.0, -1.0)
    return signs[:, 1] if count == 2 else signs


@dataclass(frozen=True)
class ClassSigns:
    """The same from labels, which are among sorted classes."""

    classes: tuple[Any, ...]

    def __call__(self, labels: Array) -> Floats:
        return signs_of(np.searchsorted(self.classes, labels), len(self.classes))


def stream_labels(counts: Mapping[str, Mapping[float, int]]) -> list[Array]:
    """The classes of streamed domains, from how many rows each of them has."""
    return [np.array(sorted(each), dtype=np.int64) for each in counts.values()]


def declared_classes(classes: Any, labels: Sequence[Array]) -> Array:
    """The classes declared in a first ``partial_fit``, sorted; raises for labels that are not among them."""
    declared = np.asarray(classes)
    if declared.ndim != 1 or len(declared) == 0:
        raise ParameterError("classes must list every class that will ever occur, such as ['no', 'yes']")
    declared = np.unique(declared)
    check_known(declared, labels)
    return declared


def check_known(classes: Array, labels: Sequence[Array]) -> None:
    """Raise for labels that are none of the classes: a fitted model has no score for them."""
    found = classes_of([classes, *labels])
    if len(new := found[~np.isin(found, classes)]):
        shown = ", ".join(repr(label) for label in new[:5].tolist())
        raise DataError(
            f"these rows have new classes: {shown}; list all classes in the first partial_fit(..., classes=[...]), "
            "or call fit with all rows"
        )


def classes_of(labels: Sequence[Array]) -> Array:
    """All classes of all domains, sorted.

    Examples
    --------
    >>> classes_of([np.array(["no", "yes"]), np.array(["maybe", "no"])]).tolist()
    ['maybe', 'no', 'yes']
    """
    kinds = {"text" if part.dtype.kind in "UOST" else "numbers" for part in labels}
    if len(kinds) > 1:
        raise DataError("some domains label classes with text and others with numbers; use one kind of label for all")
    return np.unique(np.concatenate(labels))


def fit_sharpness(scores: Floats, labels: Floats, sample_weight: Floats) -> float:
    """The a > 0 that minimises the log loss of ``softmax(a * scores)``; 1 if no row has finite scores.

    Labels are smoothed as in Platt scaling, by the weight of one row spread over all classes, so that classes which
    the scores separate perfectly do not lead to certain predictions.

    Parameters
    ----------
    scores : array (n, K)
    labels : array (n,) of int
        The class of each row, 0..K-1.
    sample_weight : array (n,)

    Examples
    --------
    >>> scores = np.array([[1.0, -1.0], [-1.0, 1.0], [0.5, -0.5], [0.5, -0.5]])
    >>> fit_sharpness(scores, np.array([0, 1, 0, 1]), np.ones(4)) > 0
    True
    """
    known = np.isfinite(scores).all(axis=1)
    if not known.any():
        return 1.0
    scores, labels, sample_weight = scores[known], labels[known], sample_weight[known]
    count, classes = scores.shape
    smooth = 1.0 / (1.0 + np.sum(np.maximum(sample_weight, 1.0)))
    wanted = np.full(scores.shape, smooth / classes)
    wanted[np.arange(count), labels] += 1.0 - smooth
    weighted = wanted * (sample_weight / sample_weight.sum())[:, None]

    def log_loss(log_sharpness: float) -> float:
        return -float(np.sum(weighted * log_softmax(np.exp(log_sharpness) * scores, axis=1)))

    return float(np.exp(minimize_scalar(log_loss, bounds=BOUNDS, method="bounded").x))


def softmax_scores(scores: Floats, sharpness: float) -> Floats:
    """Probabilities (n, K) of scores (n, K)."""
    return np.exp(log_softmax(sharpness * scores, axis=1))


def sharpness_of(scores: Floats, labels: Integers, weight: Floats, domain: Integers, *, shared: float) -> Floats:
    """For each domain, the a > 0 of least log loss of ``softmax(a * scores)`` on its rows and those of all domains.

    The rows of all domains together count as ``shared`` rows. Labels are smoothed by the weight of one row, as in
    :func:`fit_sharpness`. Losses are summed by domain at even steps of log(a), once for
    all; a parabola through the best step and its neighbours gives the least.

    Examples
    --------
    >>> scores = np.array([[1.0, -1.0], [-1.0, 1.0], [0.5, -0.5], [0.5, -0.5]])
    >>> found = sharpness_of(scores, np.array([0, 1, 0, 1]), np.ones(4), np.zeros(4, dtype=int), shared=0.0)
    >>> bool(found[0] > 0)
    True
    """
    known = np.isfinite(scores).all(axis=1)
    steps, count = np.linspace(*BOUNDS, SHARPNESS_STEPS), int(domain.max()) + 1
    told, even = np.zeros((count, len(steps))), np.zeros((count, len(steps)))
    rows = np.flatnonzero(known)
    for run in (rows[part] for part in slices(len(rows), RUN_ROWS)):
        for place, step in enumerate(steps):
            logs = log_softmax(np.exp(step) * scores[run], axis=1)
            own = weight[run]
            told[:, place] -= np.bincount(domain[run], own * logs[np.arange(len(run)), labels[run]], minlength=count)
            even[:, place] -= np.bincount(domain[run], own * logs.mean(axis=1), minlength=count)
    heavy = np.bincount(domain[known], weight[known], minlength=count)
    part = shared / heavy.sum() if heavy.any() else 0.0
    told, even, heavy = (values + part * values.sum(axis=0) for values in (told, even, heavy))
    smooth = (1.0 / (1.0 + np.maximum(heavy, 1.0)))[:, None]
    return np.exp(_least((1.0 - smooth) * told + smooth * even, steps))


def _least(losses: Floats, steps: Floats) -> Floats:
    """Where each row of losses is least: the lowest point of the parabola through the best step and its neighbours."""
    best = np.clip(np.argmin(losses, axis=1), 1, len(steps) - 2)
    left, middle, right = (np.take_along_axis(losses, best[:, None] + k, axis=1)[:, 0] for k in (-1, 0, 1))
    curve = left - 2 * middle + right
    shift = np.divide(left - right, 2 * curve, out=np.zeros(len(best)), where=curve > 0)
    return steps[best] + np.clip(shift, -1.0, 1.0) * (steps[1] - steps[0])
