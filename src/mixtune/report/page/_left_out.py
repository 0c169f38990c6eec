"""Focal rows, each predicted by a fit without it: what the residual charts and the table of classes are drawn from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune.errors import DataError, ParameterError

__all__ = ["COVERAGE", "ClassFact", "LeftOut", "class_fact", "left_out_rows"]

Floats = np.ndarray[Any, Any]

#: Of the intervals on the page.
COVERAGE = 0.9
#: So many outputs get charts of their own; of more, the first.
MOST_OUTPUTS = 3


@dataclass(frozen=True)
class LeftOut:
    """One output on the focal rows: actual, predicted without the row, and half the width of its interval."""

    name: str
    actual: tuple[float, ...]
    predicted: tuple[float, ...]
    half: tuple[float, ...] | None
    why_no_interval: str = ""
    outputs: int = 1

    @property
    def residuals(self) -> list[float]:
        """Actual minus predicted."""
        return [a - p for a, p in zip(self.actual, self.predicted)]

    @property
    def covered(self) -> int:
        """How many rows lie inside their intervals."""
        return sum(abs(r) <= h for r, h in zip(self.residuals, self.half or ()))


@dataclass(frozen=True)
class ClassFact:
    """How often each class (rows) is taken for each other (columns), each row predicted without itself."""

    names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    @property
    def right(self) -> int:
        return sum(self.counts[i][i] for i in range(len(self.names)))

    @property
    def rows(self) -> int:
        return sum(map(sum, self.counts))


def left_out_rows(model: Any, inner: Any, X: Any, y: Any, target: Any) -> tuple[LeftOut, ...]:
    """One entry for each output that gets charts; none for classes, or where leave-one-out says nothing."""
    predicted = _matrix(inner.loo_predictions_)
    count = len(np.asarray(y))
    if len(predicted) != count:
        raise DataError(
            f"y has {count} rows, the model was fitted to {len(predicted)} focal rows; "
            "pass the rows of the fit, without those of sample_weight 0"
        )
    if model is not inner or not np.all(np.isfinite(predicted)):
        return ()
    actual = _matrix(np.asarray(y, dtype=np.float64))
    if actual.shape != predicted.shape:
        raise DataError(f"y has {actual.shape[1]} outputs, the model {predicted.shape[1]}; pass the y of the fit")
    half, why = _half_widths(inner, X, predicted.shape)
    outputs = predicted.shape[1]
    names = _output_names(y, target, outputs)
    return tuple(
        LeftOut(
            name=names[k],
            actual=tuple(actual[:, k].tolist()),
            predicted=tuple(predicted[:, k].tolist()),
            half=None if half is None else tuple(half[:, k].tolist()),
            why_no_interval=why,
            outputs=outputs,
        )
        for k in range(outputs if outputs <= MOST_OUTPUTS else 1)
    )


def class_fact(model: Any, inner: Any, y: Any) -> ClassFact | None:
    """The table of left-out classes of a classifier; None for a regressor."""
    if model is inner:
        return None
    scores = np.asarray(inner.loo_predictions_, dtype=np.float64)
    if not np.all(np.isfinite(scores)):
        return None
    classes = np.asarray(model.classes_)
    guessed = (scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)
    places = {label: place for place, label in enumerate(classes.tolist())}
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    for label, guess in zip(np.asarray(y).ravel().tolist(), guessed.tolist()):
        if label not in places:
            raise DataError(f"y holds the class {label!r}, which the model does not know; pass the y of the fit")
        counts[places[label], guess] += 1
    return ClassFact(tuple(str(c) for c in classes.tolist()), tuple(tuple(row) for row in counts.tolist()))


def _half_widths(inner: Any, X: Any, shape: tuple[int, ...]) -> tuple[Floats | None, str]:
    try:
        lower, upper = inner.predict_interval(X, coverage=COVERAGE)
    except ParameterError as error:  # too few rows for this coverage
        return None, str(error)
    half = _matrix((np.asarray(upper) - np.asarray(lower)) / 2)
    if half.shape != shape:
        raise DataError(f"X has {len(half)} rows, y has {shape[0]}; pass the focal rows of the fit")
    return (half, "") if np.all(np.isfinite(half)) else (None, "the intervals are not finite")


def _output_names(y: Any, target: Any, outputs: int) -> list[str]:
    """Names from ``target``, else from a data frame's columns, else numbers."""
    if isinstance(target, str) and outputs == 1:
        return [target]
    if isinstance(target, Sequence) and not isinstance(target, str) and len(target) == outputs:
        return [str(name) for name in target]
    columns = list(getattr(y, "columns", ()))
    if len(columns) == outputs:
        return [str(name) for name in columns]
    return ["the target"] if outputs == 1 else [f"output {k + 1}" for k in range(outputs)]


def _matrix(values: Any) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(len(array), -1)


def wilson_interval(right: int, rows: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share.

    Examples
    --------
    >>> [round(x, 2) for x in wilson_interval(9, 10)]
    [0.6, 0.98]
    """
    z = 1.96
    part = right / rows
    middle = (part + z * z / (2 * rows)) / (1 + z * z / rows)
    half = z * math.sqrt(part * (1 - part) / rows + z * z / (4 * rows * rows)) / (1 + z * z / rows)
    return max(middle - half, 0.0), min(middle + half, 1.0)
