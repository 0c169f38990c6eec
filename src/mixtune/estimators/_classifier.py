"""Classification by least squares on signed one-hot targets, for backbones that end in classes."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from mixtune.errors import DataError
from mixtune.estimators._base import LinearTransferRegressor, check_columns_once, column_names
from mixtune.estimators._calibration import fit_sharpness, softmax_scores
from mixtune.estimators._onnx import DEFAULT_OPSET, linear_to_onnx
from mixtune.estimators._regressor import FixedSettings, RegretOptimalRegressor
from mixtune.estimators._rows import Floats, check_weight
from mixtune.estimators._saving import Savable, savable, write_bytes
from mixtune.estimators._sources import Source, Sources, as_sources

__all__ = ["LinearTransferClassifier", "RegretOptimalClassifier"]


#: Fitted attributes that a classifier shares with the regressor of its scores.
EXPLAINED = frozenset(
    {
        *("weights_", "distances_", "heads_", "head_intercepts_", "solution_", "effective_ridge_", "domain_names_"),
        *("loo_error_", "loo_predictions_", "compared_", "transfer_gain_", "candidates_", "ridge_path_", "n_plays_"),
        *("notes_", "removal_effects"),
    }
)


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
    )

    classes_: np.ndarray[Any, Any]
    regressor_: LinearTransferRegressor
    sharpness_: float

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
        given = as_sources(sources)
        check_columns_once(X)
        frame = X
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        weight = check_weight(sample_weight, len(X), "")
        known = np.ones(len(X), dtype=bool) if weight is None else weight > 0
        labels = {} if given is None else {name: _labels(name, source) for name, source in given.items()}
        self.classes_ = _classes([y[known], *labels.values()])
        if len(self.classes_) < 2:
            raise DataError(
                f"all rows are of one class, {self.classes_[0]!r}; a classifier needs at least 2 classes in the focal "
                "rows and sources together"
            )
        encoded = None
        if given is not None:
            encoded = Sources({n: s._replace(y=self._signs(labels[n])) for n, s in given.items()})
        regressor = self._make_regressor()
        # The frame itself, where there is one, so that the regressor knows the names of the columns.
        inputs = X if column_names(self) is None else frame
        signs = self._signs(np.where(known, y, self.classes_[0]) if not known.all() else y)
        self.regressor_ = regressor.fit(inputs, signs, weight, sources=encoded)
        self._calibrate(y[known], np.ones(len(X))[known] if weight is None else weight[known])
        return self

    def decision_function(self, X: Any) -> Floats:
        """Scores: of the second class (n,) where there are two, else of every class (n, K); larger is likelier."""
        check_is_fitted(self, "regressor_")
        return self.regressor_._predict_rows(validate_data(self, X, reset=False, dtype=np.float64))

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
            classes=_plain_labels(self.classes_).tolist(),
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

    def _calibrate(self, y: np.ndarray[Any, Any], weight: Floats) -> None:
        labels = np.searchsorted(self.classes_, y)
        scores = self._all_scores(self.regressor_.loo_predictions_)
        self.sharpness_ = fit_sharpness(scores, labels, weight)

    def _signs(self, y: np.ndarray[Any, Any]) -> Floats:
        places = np.searchsorted(self.classes_, y)
        signs = np.where(places[:, None] == np.arange(len(self.classes_)), 1.0, -1.0)
        return signs[:, 1] if len(self.classes_) == 2 else signs

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


def _labels(name: str, source: Source) -> np.ndarray[Any, Any]:
    try:
        y = column_or_1d(source.y)
        check_classification_targets(y)
    except ValueError as error:
        raise DataError(f'y of domain "{name}" must be one class label per row: {error}') from error
    return y


def _plain_labels(classes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Labels that are whole numbers by value as whole numbers by type: 0.0 and 1.0 are common."""
    whole = classes.dtype.kind == "b" or (classes.dtype.kind == "f" and np.array_equal(classes, np.rint(classes)))
    return classes.astype(np.int64) if whole else classes


def _classes(labels: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    kinds = {"text" if part.dtype.kind in "UOST" else "numbers" for part in labels}
    if len(kinds) > 1:
        raise DataError("some domains label classes with text and others with numbers; use one kind of label for all")
    return np.unique(np.concatenate(labels))
