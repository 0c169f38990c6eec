"""What all regressors share: validate the rows, standardise them, call a solver, store the result.

``fit(X, y, sample_weight=None, *, sources=None)`` takes the focal rows as X and y. Cross-validation, scoring and grid
search therefore split the focal rows only, and pass the sources on unchanged. A subclass implements ``_solve`` (from
standardised rows) or ``_solve_state`` (from moments).
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from sklearn import get_config
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from mixtune._messages import nearest
from mixtune.arrays import Floats, device_or_cpu, one_thread_if_small, torch_device
from mixtune.errors import DataError, ParameterError
from mixtune.estimators import _fits as fits
from mixtune.estimators._inputs import (
    FocalSplit,
    Sources,
    TakesSources,
    apart_notes,
    as_sources,
    check_new,
    check_scored,
    encoded_sources,
    map_after_encoding,
    named_notes,
    read_focal,
    read_sources,
    text_encoded,
    trim,
)
from mixtune.estimators._onnx import DEFAULT_OPSET, linear_to_onnx
from mixtune.estimators._saving import Savable
from mixtune.moments import Rows, Scaling
from mixtune.weights import DomainWeights, TransportWeights, WassersteinWeights

#: gamma of ``weights="wasserstein"``; distances are in units of the pooled diameter.
TEMPERATURE = 10.0


@dataclass(eq=False, repr=False)
class Settings(TakesSources):
    """Parameters of every estimator."""

    feature_map: Any = None
    _: KW_ONLY
    standardise: bool = True
    fit_intercept: bool = True
    focal_name: str = "focal"
    device: str = "cpu"


class LinearTransferRegressor(Settings, Savable, MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the regressors: one linear model on the features, learned from focal rows and sources.

    Subclasses implement :meth:`_solve`; with parameters beyond :class:`Settings` they are dataclasses too, or set all
    of them in ``__init__``. To support saving, they list their further fitted attributes in
    ``_stored_attributes`` and are registered with :func:`~mixtune.estimators.savable`.
    """

    _stored_attributes: ClassVar[tuple[str, ...]] = (
        *("coef_", "intercept_", "heads_", "head_intercepts_", "domain_names_", "n_features_in_", "feature_names_in_"),
        *("_scaling", "_uncertainty", "text_encoded_"),
    )
    _stored_types: ClassVar[dict[str, Any]] = {
        "intercept_": float | np.ndarray,
        "_scaling": Scaling,
        "_uncertainty": fits.Uncertainty,
        **dict.fromkeys(("weights_", "_distances", "distances_"), DomainWeights | None),
    }

    #: Whether ``feature_map="auto"`` is known.
    _makes_maps: ClassVar[bool] = False

    coef_: Floats
    intercept_: Any
    domain_names_: tuple[str, ...]
    n_features_in_: int
    _scaling: Scaling
    _uncertainty: fits.Uncertainty

    @abstractmethod
    def _solve(self, prepared: fits.Prepared) -> fits.Solved:
        """Coefficients, intercept and further attributes, in standardised units."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Fit to focal rows and sources.

        Parameters
        ----------
        X, y : array-like or data frame (n, d), and (n,) or (n, D)
            The focal rows: those of the domain to predict for. Dask collections are brought into memory, if they have
            at most 100,000 rows.
        sample_weight : array-like (n,), optional
            Weights of the focal rows; rows of weight 0 are ignored.
        sources : Sources, StreamedSources, mapping or Domains, optional
            The other datasets, ``{name: (X, y)}`` or ``{name: (X, y, sample_weight)}``; of Domains, all but the focal
            one. Wrap a mapping in Sources for cross-validation and grid search: scikit-learn slices a dict of as many
            sources as there are focal rows. Inside a pipeline or TransformedTargetRegressor, see
            :meth:`Sources.transformed`. Pass data larger than memory as StreamedSources; Dask arrays and large mapped
            arrays are recognised. Estimators use all of their rows, through sums; what needs single rows uses a sample.
        """
        self._check_parameters()
        given = as_sources(sources)
        focal = self._read_focal(X, y, sample_weight, reset=True)
        self._learn(focal, encoded_sources(self, given))
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The coefficient of determination R^2 of predictions for rows."""
        check_scored(y, sample_weight)
        return float(super().score(X, y, sample_weight))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictions for rows of the focal domain, and their standard deviations if asked for.

        Parameters
        ----------
        X : array-like or data frame (n, d)
        return_std : bool
            Whether to return predictive standard deviations as well, calibrated so that the leave-one-out residuals of
            the focal rows, divided by them, have unit mean square.

        Returns
        -------
        array (n,) or (n, D), or two of them
        """
        features = self._features(X)
        predictions = linear_scores(features, self)
        if not return_std:
            return predictions
        with np.errstate(over="ignore", invalid="ignore"):
            std = self._uncertainty.std(*self._prepared_units(features, predictions))
        return predictions, check_computed(std.reshape(predictions.shape), "standard deviations")

    def predict_interval(self, X: Any, *, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """Intervals that cover new focal targets with about the given probability, by leave-one-out conformal.

        Parameters
        ----------
        X : array-like or data frame (n, d)
        coverage : float
            Between 0 and 1, for each output separately.

        Returns
        -------
        lower, upper : arrays (n,) or (n, D)
        """
        features = self._features(X)
        predictions = linear_scores(features, self)
        with np.errstate(over="ignore", invalid="ignore"):
            half = self._uncertainty.half_width(*self._prepared_units(features, predictions), coverage)
            half = half.reshape(predictions.shape)
            ends = predictions - half, predictions + half
        return check_computed(ends[0], "intervals"), check_computed(ends[1], "intervals")

    def predict_quantiles(self, X: Any, *, levels: Sequence[float] = fits.LEVELS) -> Floats:
        """Quantiles of new focal targets: ends of intervals as of :meth:`predict_interval`.

        The quantiles of levels ``a`` and ``1 - a`` are the ends of the interval of coverage ``1 - 2a``; that of level
        0.5 is the middle of all intervals.

        Parameters
        ----------
        X : array-like or data frame (n, d)
        levels : sequence of float
            Between 0 and 1.

        Returns
        -------
        array (n, L) or (n, D, L)
            One quantile for each level, in the order of these.
        """
        levels = [fits.check_level(level) for level in levels]
        features = self._features(X)
        predictions = linear_scores(features, self)
        rows = self._prepared_units(features, predictions)
        found = []
        with np.errstate(over="ignore", invalid="ignore"):
            for level in levels:
                # The difference of two levels is not exact: 0.95 and 0.05 must have the same interval.
                coverage = round(abs(2.0 * level - 1.0), 12)
                half = self._uncertainty.half_width(*rows, coverage) if coverage > 0 else np.zeros(predictions.shape)
                found.append(predictions + np.sign(level - 0.5) * half.reshape(predictions.shape))
        return check_computed(np.stack(found, axis=-1), "quantiles")

    def _prepared_units(self, features: Floats, predictions: Floats) -> tuple[Floats, Floats]:
        """Features (n, p) and predictions (n, D) in the units of the fit."""
        targets = np.reshape(predictions - self._scaling.target_shift, (len(features), -1))
        return self._scaling.features(features), targets

    def to_onnx(
        self,
        path: str | Path | None = None,
        *,
        dtype: str = "float64",
        input_name: str = "features",
        output_name: str = "prediction",
        opset: int = DEFAULT_OPSET,
    ) -> bytes:
        """Export the linear head to ONNX: from features, as ``feature_map`` makes them, to predictions.

        Without a feature map the features are the columns. The graph does not contain a map that was passed: compute
        its features first. Models on maps made from the rows (``feature_map="auto"``) cannot be exported, unless the
        inputs are the only map; fit them with ``feature_map=None``.

        Parameters
        ----------
        path : str or Path, optional
            Where to write the model as well.
        dtype : {"float64", "float32"}
            Type of the inputs, computations and outputs of the graph; some runtimes support only float32.
        input_name, output_name : str
            Names in the graph.
        opset : int
            Version of the standard operators.

        Returns
        -------
        bytes
            The ONNX model.

        Examples
        --------
        >>> from mixtune.estimators import LocalRegressor
        >>> model = LocalRegressor(ridge=0.0).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
        >>> from onnx.reference import ReferenceEvaluator
        >>> ReferenceEvaluator(model.to_onnx()).run(None, {"features": np.array([[3.0]])})[0].round(6)
        array([7.])
        """
        check_is_fitted(self, "coef_")
        low, high = self._exported_range()
        options: dict[str, Any] = {"input_name": input_name, "output_name": output_name, "dtype": dtype, "opset": opset}
        return linear_to_onnx(self.coef_, self.intercept_, path=path, low=low, high=high, **options)

    @property
    def loo_error_(self) -> float:
        """Leave-one-out mean squared error on the focal rows at fixed domain weights and standardisation.

        Infinite if no rows are left to predict a left-out row from, as with a single focal row.
        """
        check_is_fitted(self, "coef_")
        return self._uncertainty.left_out.error

    @property
    def loo_predictions_(self) -> Floats:
        """Prediction of each focal row (of positive sample weight) by the fit without it, (n,) or (n, D)."""
        check_is_fitted(self, "coef_")
        left_out = self._uncertainty.left_out
        predictions = np.where(np.isfinite(left_out.residuals), left_out.predictions, np.inf)
        return predictions.reshape(-1, *self.coef_.shape[1:]) + self._scaling.target_shift

    def _exported_range(self) -> tuple[Any, Any]:
        """The range that an exported graph moves its inputs into."""
        return self._feature_range()

    def _feature_range(self) -> tuple[Any, Any]:
        """Lower and upper limits (p,) that features are clipped to before predicting; None for no clipping."""
        return None, None

    def _check_parameters(self) -> None:
        """Raise for invalid settings before any long work starts."""
        fits.check_map(self.feature_map, auto=self._makes_maps)
        if not isinstance(self.focal_name, str) or not self.focal_name:
            raise ParameterError(f"focal_name must be a text that is not empty; got {self.focal_name!r}")
        torch_device(self.device)

    def _read_focal(self, X: Any, y: Any, sample_weight: Any, *, reset: bool = False) -> Rows:
        return trim(read_focal(self, X, y, sample_weight, reset=reset)[1])

    def _learn(self, focal: Rows, sources: Sources | None) -> None:
        """Learn from rows; streamed sources contribute a sample of their rows."""
        self._learn_prepared(self._prepare(focal, sources), fits.sample_note(fits.sample_size(sources)))

    def _learn_prepared(self, prepared: fits.Prepared, notes: tuple[str, ...] = ()) -> None:
        notes += apart_notes(prepared.inputs)
        # Sums over all rows of a stream may take much work, even if its sample is small.
        with nullcontext() if prepared.state else one_thread_if_small(rows.X for rows in prepared.mapped):
            solved = self._solve(prepared)
        if "notes_" in solved.attributes:
            solved.attributes["notes_"] += notes
        self._store(solved, prepared.names, prepared.scaling)

    def _prepare(self, focal: Rows, sources: Sources | None) -> fits.Prepared:
        """Standardised features of the focal rows and of all sources."""
        others = read_sources(sources, focal, column_names(self), self.focal_name)
        rows = {self.focal_name: focal, **others}
        return fits.prepare(rows, self._make_features(), standardise=self.standardise, fit_intercept=self.fit_intercept)

    def _make_features(self, device: str | None = None) -> fits.Features:
        return fits.Features(map_after_encoding(self, self.feature_map), column_names(self), device or self.device)

    def _features(self, X: Any) -> Floats:
        check_is_fitted(self, "coef_")
        return self._map_rows(check_new(self, X))

    def _map_rows(self, X: Floats) -> Floats:
        """Features of validated rows, clipped to the feature range."""
        features = self._make_features(device_or_cpu(self.device))(X)
        low, high = self._feature_range()
        return features if low is None else np.clip(features, low, high)

    def _store(self, solved: fits.Solved, names: Sequence[str], scaling: Scaling) -> None:
        self._scaling = scaling
        self.coef_, self.intercept_ = scaling.to_units(solved.coef, solved.intercept)
        if self.coef_.ndim == 1:
            self.intercept_ = float(self.intercept_)
        self.domain_names_ = tuple(names)
        self._uncertainty = solved.uncertainty
        if solved.heads is not None:
            self.heads_, self.head_intercepts_ = scaling.to_units(solved.heads.coef, solved.heads.intercept)
        for name, value in solved.attributes.items():
            value = named_notes(value, column_names(self), names) if name == "notes_" else value
            setattr(self, name, value)


class MomentRegressor(LinearTransferRegressor):
    """Base of the regressors that need only moments of the sources, so that sources may be streamed."""

    @abstractmethod
    def _solve_state(self, state: fits.State, rows: Any) -> fits.Solved:
        """Coefficients and further attributes; ``rows`` holds domains and a feature map if the fit compares rows."""

    def _compares_rows(self) -> bool:
        """Whether the fit compares rows, so that moments are not enough."""
        return False

    def _solve(self, prepared: fits.Prepared) -> fits.Solved:
        compared = self._compares_rows() and len(prepared.names) > 1
        return self._solve_state(
            fits.State.of(prepared), fits.domains_of(prepared, standardise=self.standardise) if compared else None
        )

    def _learn(self, focal: Rows, sources: Sources | None) -> None:
        # On a device, moments are summed block by block as for streams: all features at once may not fit in its memory.
        summed = sources is not None and (sources.streams or sources.moments)
        if not summed and torch_device(self.device) is None:
            super()._learn(focal, sources)
            return
        features = self._make_features()
        options = {"standardise": self.standardise, "fit_intercept": self.fit_intercept}
        state, scaling = fits.gather_state(focal, self.focal_name, sources, features, **options)
        state = state.on_device(torch_device(self.device))
        rows = None
        if self._compares_rows():
            prepared = fits.sampled_rows(state, scaling, focal, sources, features)
            rows = fits.domains_of(prepared, standardise=self.standardise)
        self._store(self._solve_state(state, rows), state.names, scaling)


def linear_scores(features: Floats, model: Any) -> Floats:
    """``features @ coef_ + intercept_``, refused where it is beyond float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        return check_computed(features @ model.coef_ + model.intercept_, "predictions")


def all_scores(scores: Floats) -> Floats:
    """Scores (n, K) of all classes, from predictions of regressors, which for two classes score the second alone."""
    single = scores.ndim == 1 or scores.shape[1] == 1
    return np.column_stack([-scores, scores]) if single else scores


def check_computed(values: Floats, what: str) -> Floats:
    """Raise where numbers that were computed for new rows are not finite; return them otherwise.

    Examples
    --------
    >>> check_computed(np.array([1.0, np.inf]), "predictions")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: the predictions of 1 of 2 rows are beyond float64, first of row 1; check X or change units
    """
    wrong = np.flatnonzero(~np.isfinite(values).all(axis=tuple(range(1, values.ndim))))
    if len(wrong):
        raise DataError(
            f"the {what} of {len(wrong)} of {len(values)} rows are beyond float64, first of row {wrong[0]}; check X or "
            "change units"
        )
    return values


def check_both(X: Any, y: Any) -> None:
    """Raise if only one of X and y was passed."""
    if (X is None) != (y is None):
        raise ParameterError("pass X and y together, or neither to add sources only")


def column_names(estimator: Any) -> tuple[str, ...] | None:
    """The names of the input columns, or None if the focal rows had none."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else tuple(names)


def check_source(name: str, names: Sequence[str]) -> None:
    """Raise if ``name`` is the focal domain, which comes first in ``names``, or no source."""
    if name == names[0]:
        raise ParameterError(f'"{name}" is the focal domain and cannot be forgotten; fit again with other rows')
    if name not in names:
        raise ParameterError(f'there is no source "{name}"; {nearest(str(name), names[1:])}')


def transport_distances(
    prepared: fits.Prepared, *, standardise: bool, rule: WassersteinWeights | None = None
) -> TransportWeights:
    """Transport distances of the sources to the focal rows with the sampling floor."""
    domains, feature_map = fits.domains_of(prepared, standardise=standardise)
    found = (rule or WassersteinWeights(TEMPERATURE)).weigh(domains=domains, feature_map=feature_map)
    assert isinstance(found, TransportWeights)
    return found


class Reported:
    """A page about an estimator or a model of tables, and what notebooks show of it.

    They are made in :mod:`mixtune.report.displays`, which is imported by name when a view is requested, so that no
    estimator depends on it.
    """

    def report(self, path: str | os.PathLike[str], X: Any = None, y: Any = None, sources: Any = None) -> Path:
        """Write one HTML page about the fit.

        Parameters
        ----------
        path
            The file to write, such as ``"report.html"``.
        X, y, sources
            What the model was fitted to. A model from a file holds no rows: an estimator needs them, and the page of a
            :class:`mixtune.TableModel` is shorter without them.

        Returns
        -------
        Path
            The file that was written.
        """
        return Path(_displays().write_model_report(self, path, X=X, y=y, sources=sources))

    def _verdict(self) -> str:
        """Whether transfer helped, in one sentence."""
        return str(_displays().verdict_of(self))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """What a notebook shows: the verdict and the weights of a fitted model, scikit-learn's diagram before."""
        if not _is_fitted(self):
            return super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        shown = {"text/plain": repr(self)}
        return {**shown, "text/html": _displays().model_html(self)} if get_config()["display"] == "diagram" else shown

    def _repr_html_inner(self) -> str:
        """The same for notebooks that ask for HTML only."""
        return _displays().model_html(self) if _is_fitted(self) else super()._repr_html_inner()  # type: ignore[misc]


class Shown(Reported):
    """Further views of an estimator of one domain, or of a model of tables: figures, and a table of its domains."""

    def plot_weights(self, *, ax: Any = None, most: int = 20) -> Any:
        """Draw the weight of each domain; the ``most`` largest are shown.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        most : int
            Largest number of bars.

        Returns
        -------
        mixtune.report.displays.WeightsDisplay
            With ``ax_`` and ``figure_``.
        """
        return _displays().WeightsDisplay.from_estimator(self, ax=ax, most=most)

    def plot_effects(self, *, ax: Any = None, most: int = 15) -> Any:
        """Draw how the prediction changes with each column, with 95% intervals; the ``most`` largest are shown.

        Parameters
        ----------
        ax, most
            As for :meth:`plot_weights`.

        Returns
        -------
        mixtune.report.displays.EffectsDisplay
            With ``ax_`` and ``figure_``.
        """
        return _displays().EffectsDisplay.from_estimator(self, ax=ax, most=most)

    def plot_path(self, *, ax: Any = None) -> Any:
        """Draw the left-out error of each effective ridge, and mark the one with the largest share.

        Parameters
        ----------
        ax
            As for :meth:`plot_weights`.

        Returns
        -------
        mixtune.report.displays.PathDisplay
            With ``ax_`` and ``figure_``.
        """
        return _displays().PathDisplay.from_estimator(self, ax=ax)

    def summary(self, of: str = "domains") -> Any:
        """The domains or the columns of the fit, as a pandas frame.

        Parameters
        ----------
        of : {"domains", "methods", "columns"}
            One row for each domain, with rows, weight, error of its own model, and the change of the error without it;
            one row for each method that the model is compared with, with its error on rows that the fits have not seen
            and the part by which that of mixtune is lower; or one row for each column, with its effect on the
            prediction (:func:`mixtune.column_effects`).

        Returns
        -------
        pandas.DataFrame
            The focal domain first, then the sources by weight; or columns by the size of their effects.
        """
        return _displays().summary_frame(self, of)


def rows_of_fit(model: Any) -> FocalSplit:
    """The focal rows and sources that an estimator was fitted to, as far as it holds them.

    Raises
    ------
    DataError
        If it holds none, as after loading.

    Examples
    --------
    >>> from mixtune.estimators import RegretOptimalRegressorCV
    >>> model = RegretOptimalRegressorCV(None).fit([[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0])
    >>> rows_of_fit(model).y
    array([1., 2., 4.])
    """
    inner = getattr(model, "regressor_", model)
    check_is_fitted(inner, "coef_")
    kept = getattr(inner, "_inputs", None)
    if kept is None or text_encoded(inner):
        raise DataError(f"this {type(model).__name__} holds no rows of its fit; pass the X, y and sources of the fit")
    focal, *others = kept.items()
    X, names = focal[1].X, getattr(inner, "feature_names_in_", None)
    inputs = X if names is None else pa.table(dict(zip(names, X.T)))
    y = model.classes_[model._places] if model is not inner else focal[1].y
    return FocalSplit(inputs, y, Sources({name: (rows.X, rows.y) for name, rows in others}))


def _is_fitted(model: Any) -> bool:
    estimator = getattr(model, "estimator", model)
    return hasattr(getattr(estimator, "regressor_", estimator), "coef_")


def _displays() -> Any:
    return import_module("mixtune.report.displays")
