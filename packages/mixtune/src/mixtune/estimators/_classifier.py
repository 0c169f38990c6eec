"""Classification by least squares on targets +1 (this class) and -1 (another), then one calibration temperature.

Labels as targets, and the calibration of scores, come first; models of every domain use them too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from mixtune._registry import check_array
from mixtune.arrays import Array, Floats, Integers, slices, torch_device
from mixtune.choice import TransferGain
from mixtune.errors import DataError, ParameterError
from mixtune.estimators._base import LinearTransferRegressor, Shown, all_scores, check_both, column_names, linear_scores
from mixtune.estimators._comparison import ComparedByFolds
from mixtune.estimators._cv import RegretOptimalRegressorCV, TunedSettings
from mixtune.estimators._inputs import (
    Sources,
    TakesSources,
    as_sources,
    check_new,
    check_scored,
    read_focal,
    text_encoded,
    trim,
)
from mixtune.estimators._onnx import DEFAULT_OPSET, linear_to_onnx
from mixtune.estimators._regressor import FixedSettings, RegretOptimalRegressor
from mixtune.estimators._saving import Savable, fitted_map, savable
from mixtune.moments import Rows

#: Focal rows that one validation task counts as in calibration.
TASK_ROWS = 10.0
#: Fitted attributes that a classifier takes from the regressor of its scores.
SHARED_ATTRIBUTES = frozenset(
    {
        *("weights_", "distances_", "heads_", "head_intercepts_", "solution_", "effective_ridge_", "domain_names_"),
        *("loo_error_", "loo_predictions_", "compared_", "transfer_gain_", "candidates_", "ridge_path_"),
        *("n_validation_sources_", "n_plays_"),
        *("notes_", "maps_", "removal_effects", "focal_loo_error_", "bound_gain_", "stopped_at_"),
    }
)


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
    """The targets of :func:`signs_of` from labels, which must be among the sorted classes."""

    classes: tuple[Any, ...]

    def __call__(self, labels: Array) -> Floats:
        return signs_of(np.searchsorted(self.classes, labels), len(self.classes))


def stream_labels(counts: Mapping[str, Mapping[float, int]]) -> list[Array]:
    """The classes of streamed domains, from how many rows each of them has."""
    return [np.array(sorted(each), dtype=np.int64) for each in counts.values()]


def found_classes(labels: Sequence[Array], declared: Any, where: str) -> Array:
    """All classes, sorted: those of the labels, or those that a first ``partial_fit`` declares; at least two."""
    classes = classes_of(labels) if declared is None else declared_classes(declared, labels)
    if len(classes) < 2:
        raise DataError(
            f"all rows are of one class, {classes.tolist()[0]!r}; a classifier needs at least 2 classes in {where} "
            "together"
        )
    return classes


def check_repeated(classes: Any, known: Array) -> None:
    """Raise where a later ``partial_fit`` declares other classes than the first."""
    if classes is not None and not np.array_equal(np.unique(np.asarray(classes)), known):
        raise ParameterError(f"classes are those of the first fit, {known.tolist()}; leave classes out")


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


def fit_sharpness(scores: Floats, labels: Floats, sample_weight: Floats, counts: Floats | None = None) -> float:
    """The a > 0 that minimises the log loss of ``softmax(a * scores)``; 1 if no row has finite scores.

    Labels are smoothed as in Platt scaling, by the weight of one row spread over all classes, so that classes which
    the scores separate perfectly do not lead to certain predictions.

    Parameters
    ----------
    scores : array (n, K)
    labels : array (n,) of int
        The class of each row, 0..K-1.
    sample_weight : array (n,)
    counts : array (n,), optional
        How many rows each one stands for in the smoothing of labels; its sample weight by default.

    Examples
    --------
    >>> scores = np.array([[1.0, -1.0], [-1.0, 1.0], [0.5, -0.5], [0.5, -0.5]])
    >>> fit_sharpness(scores, np.array([0, 1, 0, 1]), np.ones(4)) > 0
    True
    """
    known = np.isfinite(scores).all(axis=1)
    if not known.any():
        return 1.0
    counted = sample_weight[known] if counts is None else counts[known]
    scores, labels, sample_weight = scores[known], labels[known], sample_weight[known]
    n_rows, classes = scores.shape
    smooth = 1.0 / (1.0 + max(counted.sum(), 1.0))
    wanted = np.full(scores.shape, smooth / classes)
    wanted[np.arange(n_rows), labels] += 1.0 - smooth
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


class LinearTransferClassifier(Savable, TakesSources, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the classifiers: a regressor on targets +1 (this class) and -1 (another), then calibration.

    Subclasses choose the regressor in :meth:`_make_regressor`.
    """

    _stored_attributes: ClassVar[tuple[str, ...]] = (
        *("classes_", "regressor_", "sharpness_", "n_features_in_", "feature_names_in_", "_places", "text_encoded_"),
    )

    device: str = "cpu"
    classes_: Array
    regressor_: LinearTransferRegressor
    sharpness_: float
    #: Indices of the focal rows' classes, kept because calibration needs all of them when rows are added.
    _places: Array

    @abstractmethod
    def _make_regressor(self) -> LinearTransferRegressor:
        """The unfitted regressor of the scores."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Fit to focal rows and sources.

        Parameters
        ----------
        X, y : array-like or data frame (n, d), and labels (n,)
            The focal rows. A class may occur in sources only.
        sample_weight : array-like (n,), optional
        sources : Sources, mapping or Domains, optional
            As for :meth:`RegretOptimalRegressor.fit`, with labels as targets. Wrap a mapping in Sources for
            cross-validation.
        """
        return self._fit(X, y, sample_weight, sources, None)

    def partial_fit(
        self, X: Any = None, y: Any = None, classes: Any = None, sample_weight: Any = None, *, sources: Any = None
    ) -> Self:
        """Add focal rows, rows of known sources, or new sources, and calibrate again.

        The scores are updated by ``partial_fit`` of the regressor. On an unfitted estimator this is ``fit``.

        Parameters
        ----------
        X, y, sample_weight
            Further focal rows, or None.
        classes : array-like, optional
            In the first call, all classes that will ever occur, if the first rows do not contain them all. Later calls
            may repeat it; rows of any other class raise an error.
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
        check_repeated(classes, self.classes_)
        check_both(X, y)
        given = as_sources(sources)
        labels = source_labels(given)
        inputs, focal = (None, None) if X is None else self._read_focal(X, y, sample_weight, reset=False)
        streamed = self._streamed_labels(given)
        check_known(self.classes_, [*([] if focal is None else [trim(focal).y]), *labels.values(), *streamed])
        regressor: Any = self.regressor_.set_params(**self.get_params(deep=False))
        encoded = self._encoded(given, labels)
        if focal is None:
            regressor.partial_fit(sources=encoded)
        else:
            regressor.partial_fit(inputs, self._focal_signs(focal), focal.sample_weight, sources=encoded)
            self._places = np.concatenate([self._places, self._numbers(trim(focal).y)])
        self._calibrate()
        return self

    def forget(self, name: str) -> Self:
        """Remove a source exactly, as the regressor of the scores does; ``classes_`` does not change."""
        check_is_fitted(self, "regressor_")
        regressor: Any = self.regressor_
        regressor.forget(name)
        self._calibrate()
        return self

    def decision_function(self, X: Any) -> Floats:
        """Scores: of the second class (n,) where there are two, else of every class (n, K); larger is likelier."""
        check_is_fitted(self, "regressor_")
        return linear_scores(self.regressor_._map_rows(check_new(self, X)), self)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The part of rows that is classified correctly."""
        check_scored(y, sample_weight)
        return float(super().score(X, y, sample_weight))

    def predict(self, X: Any) -> Array:
        """The likeliest class of each row."""
        scores = all_scores(self.decision_function(X))
        return self.classes_[np.argmax(scores, axis=1)]

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (n, K), calibrated on leave-one-out scores of the focal rows."""
        return softmax_scores(all_scores(self.decision_function(X)), self.sharpness_)

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

        Without a feature map the features are the columns. The graph does not contain a map that was passed: compute
        its features first. Models on maps made from the rows (``feature_map="auto"``) cannot be exported, unless the
        inputs are the only map; fit them with ``feature_map=None``.

        Parameters
        ----------
        path : str or Path, optional
            Where to write the model as well.
        dtype : {"float64", "float32"}
            Type of the inputs and computations of the graph.
        input_name, output_name, label_name : str
            Names in the graph.
        opset : int
            Version of the standard operators.

        Returns
        -------
        bytes
            The ONNX model. Its labels are text or whole numbers; booleans become 0 and 1.
        """
        check_is_fitted(self, "regressor_")
        low, high = self.regressor_._exported_range()
        head: dict[str, Any] = {"low": low, "high": high, "classes": self.classes_, "sharpness": self.sharpness_}
        names: dict[str, Any] = {"input_name": input_name, "output_name": output_name, "label_name": label_name}
        return linear_to_onnx(self.coef_, self.intercept_, path=path, dtype=dtype, opset=opset, **head, **names)

    def __getattr__(self, name: str) -> Any:
        # Weights, comparisons and the like are those of the regressor of the scores.
        if name in SHARED_ATTRIBUTES and "regressor_" in self.__dict__:
            return getattr(self.regressor_, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def feature_map_(self) -> Any:
        """The map of the fit: the one that was given, or the one that was made from the rows."""
        return fitted_map(self.regressor_)

    @property
    def coef_(self) -> Floats:
        """Coefficients of the scores, (p,) for two classes, else (p, K)."""
        return self.regressor_.coef_

    @property
    def intercept_(self) -> Any:
        """Intercepts of the scores."""
        return self.regressor_.intercept_

    def _fit(self, X: Any, y: Any, sample_weight: Any, sources: Any, classes: Any) -> Self:
        torch_device(self.device)  # raise for a missing device before a stream is read
        inputs, focal = self._read_focal(X, y, sample_weight, reset=True)
        given = as_sources(sources)
        labels = source_labels(given)
        found = [trim(focal).y, *labels.values(), *self._streamed_labels(given)]
        self.classes_ = found_classes(found, classes, "the focal rows and sources")
        regressor, signs, encoded = self._make_regressor(), self._focal_signs(focal), self._encoded(given, labels)
        self.regressor_ = regressor.fit(inputs, signs, focal.sample_weight, sources=encoded)
        self._places = self._numbers(trim(focal).y)
        self._calibrate()
        return self

    def _read_focal(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> tuple[Any, Rows]:
        """Inputs for the regressor, and validated rows with labels as targets; rows of weight 0 may have any label."""
        X, rows = read_focal(self, X, y, sample_weight, reset=reset, labels=True)
        check_classification_targets(rows.y)
        # A frame is passed on as it is, so that the regressor knows the names of the columns.
        return (X if text_encoded(self) or column_names(self) is not None else rows.X), rows

    def _focal_signs(self, focal: Rows) -> Floats:
        places = np.zeros(len(focal.y), dtype=np.int64)
        places[focal.weight > 0] = self._numbers(trim(focal).y)
        return signs_of(places, len(self.classes_))

    def _encoded(self, given: Sources | None, labels: dict[str, Array]) -> Sources | None:
        """The sources with signs as targets in place of labels."""
        if given is None:
            return None
        signs = ClassSigns(tuple(self.classes_.tolist()))
        made = Sources({name: source._replace(y=signs(labels[name])) for name, source in given.items()})
        made.streams = tuple(stream.coded(signs) for stream in given.streams)
        return made

    def _streamed_labels(self, given: Sources | None) -> list[Array]:
        """The classes of streamed sources."""
        streams = () if given is None else given.streams
        return [part for stream in streams for part in stream_labels(stream.class_counts(column_names(self)))]

    def _numbers(self, labels: Array) -> Array:
        return np.searchsorted(self.classes_, labels)

    def _calibrate(self) -> None:
        scores = all_scores(self.regressor_.loo_predictions_)
        weight = self.regressor_._uncertainty.left_out.sample_weight
        self.sharpness_ = fit_sharpness(*self._with_validation(scores, self._places, weight))

    def _with_validation(self, scores: Floats, places: Array, weight: Floats) -> tuple[Floats, Array, Floats, Floats]:
        """Left-out focal rows, with what else tells how sure scores may be; here nothing.

        Returns scores, classes, weights, and how many rows each row counts as, as :func:`fit_sharpness` takes them.
        """
        return scores, places, weight, weight

    def _set_stored(self, values: dict[str, Any]) -> None:
        super()._set_stored(values)
        classes, scores = self.classes_, np.shape(self.coef_)[1:] or (2,)
        if classes.shape != scores or len(np.unique(classes)) != len(classes) or not 0 < self.sharpness_ < np.inf:
            raise DataError("the classes of the file are not those of its scores; save the model again")
        if classes.dtype.kind == "f":
            check_array("classes_", classes, scores)


@savable
class RegretOptimalClassifier(FixedSettings, Shown, LinearTransferClassifier):
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


@savable
class RegretOptimalClassifierCV(TunedSettings, ComparedByFolds, Shown, LinearTransferClassifier):
    """Classification without settings, by :class:`RegretOptimalRegressorCV` on targets +1 and -1.

    Attributes
    ----------
    classes_ : array (K,)
        All classes of focal rows and sources, sorted.
    regressor_ : RegretOptimalRegressorCV
        The fitted scores, with weights, candidates and comparisons.
    transfer_gain_ : TransferGain
        The relative reduction of the log loss compared with own rows alone, as in ``comparison_``.
    comparison_ : tuple of Compared
        This and other methods on focal rows that the fits have not seen, by five-fold cross-validation; made when this
        is first accessed.
    sharpness_ : float
        Probabilities are ``softmax(sharpness_ * scores)``, calibrated on left-out focal rows and on the test rows of
        cross-domain validation.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array(["no", "no", "yes", "yes"])
    >>> model = RegretOptimalClassifierCV().fit(X, y, sources={"b": (X + 0.1, y)})
    >>> model.predict([[-1.0], [4.0]])
    array(['no', 'yes'], dtype='<U3')
    """

    def _make_regressor(self) -> LinearTransferRegressor:
        return RegretOptimalRegressorCV(**self.get_params(deep=False), target_scale="identity")

    @property
    def transfer_gain_(self) -> TransferGain:
        """The relative reduction of the log loss compared with own rows alone."""
        check_is_fitted(self, "regressor_")
        return self._gain(None)

    def _calibrate(self) -> None:
        self._compared = None
        super()._calibrate()

    def _with_validation(self, scores: Floats, places: Array, weight: Floats) -> tuple[Floats, Array, Floats, Floats]:
        """With the tests of cross-domain validation, each of which counts as a few focal rows.

        The sources had as many rows to learn from as the focal domain, so that scores are as sure there as here; twenty
        left-out rows alone hardly tell.
        """
        regressor: Any = self.regressor_
        rows = [(scores, places, weight, weight)]
        for fitted, signs, own in regressor._validated_predictions():
            positive = all_scores(signs) > 0
            if np.all(positive.sum(axis=1) == 1):
                share = own * (TASK_ROWS / own.sum())
                rows.append((all_scores(fitted), np.argmax(positive, axis=1), share, np.ones(len(share))))
        return tuple(np.concatenate(parts) for parts in zip(*rows))  # type: ignore[return-value]


class ScoreClassifier(LinearTransferClassifier):
    """Classes from any regressor of this package, on targets +1 and -1; not saved."""

    def __init__(self, regressor: Any = None) -> None:
        self.regressor = regressor

    def _make_regressor(self) -> LinearTransferRegressor:
        made: LinearTransferRegressor = clone(self.regressor)
        return made


def source_labels(given: Sources | None) -> dict[str, Array]:
    """The labels of each source, one per row."""
    if given is None:
        return {}
    if given.moments:
        raise ParameterError(
            f'source "{next(iter(given.moments))}" came as Moments, which hold no labels; pass its rows to a classifier'
        )
    found = {}
    for name, source in given.items():
        try:
            found[name] = column_or_1d(source.y)
            check_classification_targets(found[name])
        except ValueError as error:
            raise DataError(f'y of domain "{name}" must be one class label per row: {error}') from error
    return found
