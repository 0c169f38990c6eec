"""Class labels: read, put together over all domains, and turned into the signs that a regressor learns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from mixtune._array import Floats
from mixtune.errors import DataError, ParameterError
from mixtune.estimators._sources import Source, Sources

__all__ = ["check_known", "classes_of", "declared_classes", "plain_labels", "signs_of", "source_labels"]


def signs_of(places: np.ndarray[Any, Any], count: int) -> Floats:
    """Targets +1 (this class) and -1 (another) of classes by number: (n,) of the second of two, else (n, K).

    Examples
    --------
    >>> signs_of(np.array([0, 1]), 2).tolist(), signs_of(np.array([2]), 3).tolist()
    ([-1.0, 1.0], [[-1.0, -1.0, 1.0]])
    """
    signs = np.where(places[:, None] == np.arange(count), 1.0, -1.0)
    return signs[:, 1] if count == 2 else signs


def declared_classes(classes: Any, labels: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The classes that a first ``partial_fit`` declares, sorted, once the labels are known to be among them."""
    declared = np.asarray(classes)
    if declared.ndim != 1 or len(declared) == 0:
        raise ParameterError("classes must list every class that will ever come, such as ['no', 'yes']")
    classes_of([declared, *labels])
    declared = np.unique(declared)
    check_known(declared, labels)
    return declared


def check_known(classes: np.ndarray[Any, Any], labels: Sequence[np.ndarray[Any, Any]]) -> None:
    """Refuse labels that are none of the classes: the scores of a fit have no place for them."""
    found = classes_of([classes, *labels])
    if len(new := found[~np.isin(found, classes)]):
        shown = ", ".join(repr(label) for label in new[:5].tolist())
        raise DataError(
            f"new in these rows: {shown}; list all classes in the first partial_fit(..., classes=[...]), or call fit "
            "with all rows"
        )


def source_labels(given: Sources | None) -> dict[str, np.ndarray[Any, Any]]:
    """The labels of every source, one per row."""
    if given is None:
        return {}
    if given.moments:
        raise ParameterError(
            f'source "{next(iter(given.moments))}" came as Moments, which hold no labels; pass its rows to a classifier'
        )
    return {name: _labels_of(name, source) for name, source in given.items()}


def _labels_of(name: str, source: Source) -> np.ndarray[Any, Any]:
    try:
        y = column_or_1d(source.y)
        check_classification_targets(y)
    except ValueError as error:
        raise DataError(f'y of domain "{name}" must be one class label per row: {error}') from error
    return y


def plain_labels(classes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Labels that are whole numbers by value as whole numbers by type: 0.0 and 1.0 are common."""
    whole = classes.dtype.kind == "b" or (classes.dtype.kind == "f" and np.array_equal(classes, np.rint(classes)))
    return classes.astype(np.int64) if whole else classes


def classes_of(labels: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
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
