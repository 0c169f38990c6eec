"""Errors in the words that people know: RMSE, MAE and R^2 of numbers; accuracy, log loss and AUC of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from mixtune._array import Floats, Integers
from mixtune.selection import MIXTUNE

#: Names of the methods that no fit is needed for, and of gradient boosting with the domain as a category.
MEAN, BOOSTING = "mean", "boosting"
#: Probabilities count as at least this, so that one certain mistake does not make the log loss infinite.
LEAST_PROBABILITY = 1e-15


@dataclass(frozen=True)
class Measures:
    """How good predictions are; what does not apply is None.

    Attributes
    ----------
    rmse, mae : float or None
        Root mean squared and mean absolute error, in the units of the target.
    r2 : float or None
        The part of the targets' variance that the predictions explain; 0 is what their own mean would give.
    accuracy : float or None
        Share of classes that are right.
    log_loss : float or None
        Mean of minus the logarithm of the probability that the true class was given.
    auc : float or None
        Probability that a row of the class has a larger score than one of another; a mean over more than two classes.
    """

    rmse: float | None = None
    mae: float | None = None
    r2: float | None = None
    accuracy: float | None = None
    log_loss: float | None = None
    auc: float | None = None

    @classmethod
    def of_numbers(cls, actual: Floats, predicted: Floats, weight: Floats | None = None) -> Measures:
        """From targets and predictions (n,) or (n, D).

        Examples
        --------
        >>> Measures.of_numbers(np.array([0.0, 2.0]), np.array([1.0, 2.0])).r2
        0.5
        """
        share = np.full(len(actual), 1.0 / len(actual)) if weight is None else weight / weight.sum()
        apart = (actual - predicted).reshape(len(actual), -1)
        if not np.all(np.isfinite(apart)):
            return cls()
        square = float(share @ np.mean(apart**2, axis=1))
        targets = actual.reshape(len(actual), -1)
        spread = float(share @ np.mean((targets - share @ targets) ** 2, axis=1))
        mae = float(share @ np.mean(np.abs(apart), axis=1))
        return cls(square**0.5, mae, 1 - square / spread if spread > 0 else None)

    @classmethod
    def of_classes(cls, labels: Integers, probabilities: Floats) -> Measures:
        """From the places (n,) of the true classes and probabilities (n, K).

        Examples
        --------
        >>> found = Measures.of_classes(np.array([0, 1]), np.array([[0.75, 0.25], [0.5, 0.5]]))
        >>> found.accuracy, round(found.log_loss, 3), found.auc
        (0.5, 0.49, 1.0)
        """
        if not np.all(np.isfinite(probabilities)):
            return cls()
        right = float(np.mean(np.argmax(probabilities, axis=1) == labels))
        given = np.maximum(probabilities[np.arange(len(labels)), labels], LEAST_PROBABILITY)
        classes = [1] if probabilities.shape[1] == 2 else range(probabilities.shape[1])
        areas = [_area(labels == place, probabilities[:, place]) for place in classes]
        known = [area for area in areas if area is not None]
        log_loss = float(-np.mean(np.log(given)))
        return cls(accuracy=right, log_loss=log_loss, auc=float(np.mean(known)) if known else None)


def _area(positive: Any, scores: Floats) -> float | None:
    """The area under the ROC curve; None where all rows are on one side."""
    ones = int(np.sum(positive))
    if ones in (0, len(scores)):
        return None
    above = float(rankdata(scores)[positive].sum()) - ones * (ones + 1) / 2
    return above / (ones * (len(scores) - ones))


@dataclass(frozen=True, eq=False)
class LeftOutRows:
    """The focal rows of a self-tuning fit, each predicted without itself.

    Attributes
    ----------
    actual : array (n, D) or (n,) of int
        Targets, or places of the true classes.
    predicted : dict
        For each method predictions (n, D), or probabilities (n, K).
    """

    actual: Any
    predicted: dict[str, Floats]
    weight: Floats
    classes: tuple[str, ...] = ()

    def measures(self) -> dict[str, Measures]:
        """Of every method."""
        if self.classes:
            return {name: Measures.of_classes(self.actual, each) for name, each in self.predicted.items()}
        return {name: Measures.of_numbers(self.actual, each, self.weight) for name, each in self.predicted.items()}


def left_out_rows(model: Any) -> LeftOutRows | None:
    """Left-out predictions of a fitted model and of the plain alternatives; None where none are known.

    Probabilities of the alternatives are calibrated on the same left-out scores. Models that were saved before there
    was a record of the alternatives have their own predictions and the mean of the targets only.
    """
    from mixtune.estimators._classes import fit_sharpness, softmax_scores

    inner = getattr(model, "regressor_", model)
    found = inner._uncertainty.left_out
    if len(found.residuals) < 2 or not np.all(np.isfinite(found.residuals)):
        return None
    scale = getattr(inner, "_log_scale", None)
    actual = found.predictions + found.residuals + np.reshape(inner._scaling.target_shift, -1)
    actual = actual if scale is None else np.exp(actual)
    own = np.reshape(inner.loo_predictions_, actual.shape)
    residuals = {MIXTUNE: actual - own}
    known = getattr(inner, "_rival_residuals", None)
    if known is not None:
        residuals |= dict(zip((each.method for each in inner.compared_[1:]), known))
    predicted = {name: actual - part for name, part in residuals.items() if np.all(np.isfinite(part))}
    if model is inner:
        total = found.sample_weight.sum()
        others = (found.sample_weight @ actual - found.sample_weight[:, None] * actual) / (
            total - found.sample_weight[:, None]
        )
        return LeftOutRows(actual, {**predicted, MEAN: others}, found.sample_weight)
    signs = np.column_stack([-actual, actual]) if actual.shape[1] == 1 else actual
    places = np.argmax(signs, axis=1)
    shares: dict[str, Floats] = {}
    for name, part in predicted.items():
        scores = np.column_stack([-part, part]) if part.shape[1] == 1 else part
        sharpness = model.sharpness_ if name == MIXTUNE else fit_sharpness(scores, places, found.sample_weight)
        shares[name] = softmax_scores(scores, sharpness)
    # Of all rows: to leave one out makes its class the rarer one, so that equal classes would never be right.
    counts = np.bincount(places, minlength=signs.shape[1]).astype(np.float64)
    shares[MEAN] = np.repeat(smoothed(counts)[None], len(places), axis=0)
    return LeftOutRows(places, shares, found.sample_weight, tuple(map(str, model.classes_.tolist())))


def smoothed(counts: Floats) -> Floats:
    """Probabilities from counts of classes, along the last axis, with one more of each class.

    Examples
    --------
    >>> smoothed(np.array([3.0, 1.0]))
    array([0.66666667, 0.33333333])
    """
    return (counts + 1) / (counts.sum(axis=-1, keepdims=True) + counts.shape[-1])
