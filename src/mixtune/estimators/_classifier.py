"""Classification by least squares on signed one-hot targets, for backbones that end in classes."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from mixtune._array import Floats
from mixtune._device import torch_device
from mixtune.engines._collections import computed
from mixtune.errors import DataError, ParameterError
from mixtune.estimators._base import LinearTransferRegressor, column_names
from mixtune.estimators._calibration import fit_sharpness, softmax_scores
from mixtune.estimators._gathering import sampled
from mixtune.estimators._given import check_frame, check_new, within_bounds
from mixtune.estimators._labels import check_known, classes_of, declared_classes, plain_labels, signs_of, source_labels
from mixtune.estimators._onnx import DEFAULT_OPSET, linear_to_onnx
from mixtune.estimators._preparation import check_weight
from mixtune.estimators._regressor import FixedSettings, RegretOptimalRegressor
from mixtune.estimators._saving import Savable, savable, write_bytes
from mixtune.estimators._sources import Sources, as_sources

__all__ = ["LinearTransferClassifier", "RegretOptimalClassifier"]


#: Fitted attributes that a classifier shares with the regressor of its scores.
EXPLAINED = frozenset(
    {
        *("weights_", "distances_", "heads_", "head_intercepts_", "solution_", "effective_ridge_", "domain_names_"),
        *("loo_error_", "loo_predictions_", "compared_", "transfer_gain_", "candidates_", "ridge_path_", "n_plays_"),
        *("notes_", "removal_effects", "focal_loo_error_", "bound_gain_"),
    }
)


class _Focal(NamedTuple):
    """Focal rows as they were read; rows that weigh nothing are not known, and may have any label."""

    inputs: Any
    y: np.ndarray[Any, Any]
    weight: Floats | None
    known: np.ndarray[Any, Any]

    @property
    def known_labels(self) -> np.ndarray[Any, Any]:
        """Labels of the rows that count."""
        return self.y[self.known]


class LinearTransferClassifier(Savable, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the classifiers: a regressor on targets +1 (this class) and -1 (another), then calibration.

    Subclasses say which regressor in :meth:`_make_regressor`.
    """

    __metadata_request__fit = {"sources": True}  # noqa: RUF012

    _stored_attributes: ClassVar[tuple[str, ...]] = (
        "classes_",
        "regressor_",
        "sharpness_",
        "n_features_in_",
        "feature_names_in_",
        "_places",
    )

    device: str = "cpu"
    classes_: np.ndarray[Any, Any]
    regressor_: LinearTransferRegressor
    sharpness_: float
    #: Numbers of the classes of the focal rows, from which calibration starts again when rows are added.
    _places: np.ndarray[Any, Any]

    @abstractmethod
    def _make_regressor(self) -> LinearTransferRegressor:
        """The unfitted regressor that does the work."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Fit to focal rows and sources.

        Parameters
        ----------
        X, y : array-like or data frame (n, d), and labels (n,)
            The focal rows. Classes may also occur in sources only.
        sample_weight : array-like (n,), optional
        sources : Sources, mapping or Domains, optional
            As for :meth:`RegretOptimalRegressor.fit`, with labels as targets.
        """
        return self._fit(X, y, sample_weight, sources, None)

    def partial_fit(
        self, X: Any = None, y: Any = None, classes: Any = None, sample_weight: Any = None, *, sources: Any = None
    ) -> Self:
        """Add focal rows, rows of known sources, or new sources, and calibrate anew.

        How the scores change is said by ``partial_fit`` of the regressor. Called first, this is ``fit``.

        Parameters
        ----------
        X, y, sample_weight
            Further focal rows, or None.
        classes : array-like, optional
            In the first call, all classes that will ever come, if the first rows do not have them all. Later calls may
            repeat it; rows of a class that was not there then are refused.
        sources
            As for ``fit``; rows of a known name are added to that source.

        Examples
        --------
        >>> model = RegretOptimalClassifier().partial_fit([[0.0], [1.0]], ["no", "no"], classes=["no", "yes"])
        >>> model.partial_fit([[3.0], [4.0]], ["yes", "yes"]).predict([[5.0]])
        array(['yes'], dtype='<U3')
        """
        if not hasattr(self, "regressor_"):
            return self._fit(X, y, sample_weight, sources, classes)
        if classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
            raise ParameterError(f"classes are those of the first fit, {self.classes_.tolist()}; leave classes out")
        if (X is None) != (y is None):
            raise ParameterError("pass X and y together, or neither to add sources only")
        given = sampled(as_sources(sources), column_names(self))
        labels = source_labels(given)
        focal = None if X is None else self._read_focal(X, y, sample_weight, reset=False)
        check_known(self.classes_, [*([] if focal is None else [focal.known_labels]), *labels.values()])
        regressor: Any = self.regressor_.set_params(**self.get_params(deep=False))
        encoded = self._encoded(given, labels)
        if focal is None:
            regressor.partial_fit(sources=encoded)
        else:
            regressor.partial_fit(focal.inputs, self._focal_signs(focal), focal.weight, sources=encoded)
            self._places = np.concatenate([self._places, self._numbers(focal.known_labels)])
        self._calibrate()
        return self

    def forget(self, name: str) -> Self:
        """Remove a source exactly, as the regressor of the scores does; the classes stay."""
        check_is_fitted(self, "regressor_")
        regressor: Any = self.regressor_
        regressor.forget(name)
        self._calibrate()
        return self

    def decision_function(self, X: Any) -> Floats:
        """Scores: of the second class (n,) where there are two, else of every class (n, K); larger is likelier."""
        check_is_fitted(self, "regressor_")
        return self.regressor_._predict_rows(check_new(self, X))

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """The likeliest class of each row."""
        scores = self._all_scores(self.decision_function(X))
        return self.classes_[np.argmax(scores, axis=1)]

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (n, K), calibrated on leave-one-out scores of the focal rows."""
        return softmax_scores(self._all_scores(self.decision_function(X)), self.sharpness_)

    def to_onnx(
        self,
        path: str | Path | None = None,
        *,
        dtype: str = "float64",
        input_name: str = "features",
        output_name: str = "probabilities",
        label_name: str = "label",
        opset: int = DEFAULT_OPSET,
    ) -> bytes:
        """Export the head to ONNX: from features, as ``feature_map`` makes them, to probabilities and classes.

        Parameters
        ----------
        path : str or Path, optional
            Where to write the model as well.
        dtype : {"float64", "float32"}
            What the graph takes and computes in.
        input_name, output_name, label_name : str
            Names in the graph.
        opset : int
            Version of the standard operators.

        Returns
        -------
        bytes
            The ONNX model. Its labels are text or whole numbers; booleans come as 0 and 1.
        """
        check_is_fitted(self, "regressor_")
        low, high = self.regressor_._feature_range()
        head = linear_to_onnx(
            self.coef_,
            self.intercept_,
            low=low,
            high=high,
            dtype=dtype,
            softmax=True,
            sharpness=self.sharpness_,
            classes=plain_labels(self.classes_).tolist(),
            input_name=input_name,
            output_name=output_name,
            label_name=label_name,
            opset=opset,
        )
        return write_bytes(path, head)

    def __getattr__(self, name: str) -> Any:
        # What the scores' regressor says of domains and alternatives holds for the classifier.
        if name in EXPLAINED and "regressor_" in self.__dict__:
            return getattr(self.regressor_, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def coef_(self) -> Floats:
        """Coefficients of the scores, (p,) for two classes, else (p, K)."""
        return self.regressor_.coef_

    @property
    def intercept_(self) -> Any:
        """Intercepts of the scores."""
        return self.regressor_.intercept_

    def _fit(self, X: Any, y: Any, sample_weight: Any, sources: Any, classes: Any) -> Self:
        torch_device(self.device)  # before a stream is read
        focal = self._read_focal(X, y, sample_weight, reset=True)
        given = sampled(as_sources(sources), column_names(self))
        labels = source_labels(given)
        found = [focal.known_labels, *labels.values()]
        self.classes_ = classes_of(found) if classes is None else declared_classes(classes, found)
        if len(self.classes_) < 2:
            raise DataError(
                f"all rows are of one class, {self.classes_[0]!r}; a classifier needs at least 2 classes in the focal "
                "rows and sources together"
            )
        regressor = self._make_regressor()
        encoded = self._encoded(given, labels)
        self.regressor_ = regressor.fit(focal.inputs, self._focal_signs(focal), focal.weight, sources=encoded)
        self._places = self._numbers(focal.known_labels)
        self._calibrate()
        return self

    def _read_focal(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> _Focal:
        y, sample_weight = computed(y, sample_weight)
        X = check_frame(X)
        with within_bounds("X"):
            rows, y = validate_data(self, X, y, reset=reset, dtype=np.float64)
        check_classification_targets(y)
        weight = check_weight(sample_weight, len(rows), "")
        known = np.ones(len(rows), dtype=bool) if weight is None else weight > 0
        # The frame itself, where there is one, so that the regressor knows the names of the columns.
        return _Focal(rows if column_names(self) is None else X, y, weight, known)

    def _focal_signs(self, focal: _Focal) -> Floats:
        places = np.zeros(len(focal.y), dtype=np.int64)
        places[focal.known] = self._numbers(focal.known_labels)
        return signs_of(places, len(self.classes_))

    def _encoded(self, given: Sources | None, labels: dict[str, np.ndarray[Any, Any]]) -> Sources | None:
        """The sources with signs as targets."""
        if given is None:
            return None
        count = len(self.classes_)
        return Sources({n: s._replace(y=signs_of(self._numbers(labels[n]), count)) for n, s in given.items()})

    def _numbers(self, labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.searchsorted(self.classes_, labels)

    def _calibrate(self) -> None:
        scores = self._all_scores(self.regressor_.loo_predictions_)
        self.sharpness_ = fit_sharpness(scores, self._places, self.regressor_._uncertainty.left_out.sample_weight)

    @staticmethod
    def _all_scores(scores: Floats) -> Floats:
        return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores


@savable
class RegretOptimalClassifier(FixedSettings, LinearTransferClassifier):
    """Regret-optimal least-squares classification; parameters are those of :class:`RegretOptimalRegressor`.

    Attributes
    ----------
    classes_ : array (K,)
        All classes of focal rows and sources, sorted.
    regressor_ : RegretOptimalRegressor
        The fitted scores, with its weights, heads and solution.
    sharpness_ : float
        Probabilities are ``softmax(sharpness_ * scores)``.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array(["no", "no", "yes", "yes"])
    >>> model = RegretOptimalClassifier().fit(X, y, sources={"b": (X + 0.1, y)})
    >>> model.predict([[-1.0], [4.0]])
    array(['no', 'yes'], dtype='<U3')
    """

    def _make_regressor(self) -> LinearTransferRegressor:
        return RegretOptimalRegressor(**self.get_params(deep=False))
