"""What all estimators share: check the rows, prepare them, call a solver, store the result in the features' units.

``fit(X, y, sample_weight=None, *, sources=None)`` takes the focal rows as X and y, so that splitting, scoring and grid
search happen on focal rows only; sources ride along untouched. A subclass says how prepared rows become coefficients.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from mixtune._array import Floats
from mixtune._device import device_or_cpu, torch_device
from mixtune._messages import nearest
from mixtune.engines._collections import computed
from mixtune.errors import ParameterError
from mixtune.estimators._fixed_fit import Solved
from mixtune.estimators._gathering import read_sources, sample_note
from mixtune.estimators._given import check_frame, check_new, check_targets, within_bounds
from mixtune.estimators._onnx import DEFAULT_OPSET, linear_to_onnx
from mixtune.estimators._preparation import Prepared, check_map, check_weight, features_of, prepare, trim
from mixtune.estimators._saving import Savable, write_bytes
from mixtune.estimators._sources import Sources, as_sources
from mixtune.estimators._uncertainty import Uncertainty
from mixtune.moments import Rows, Scaling

__all__ = ["Learnt", "LinearTransferRegressor", "check_source", "column_names", "read_sources"]


class Learnt(NamedTuple):
    """What a fit found: the domains in order, their common scale, and the solution in that scale."""

    names: tuple[str, ...]
    scaling: Scaling
    solved: Solved


class LinearTransferRegressor(Savable, MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the regressors: one linear head on features, learnt from focal rows and sources.

    Subclasses set ``feature_map``, ``standardise``, ``fit_intercept``, ``focal_name`` and, if they like, ``device`` in
    ``__init__`` and write :meth:`_solve`. To be saved, they list what else their fit sets in ``_stored_attributes`` and
    are registered with :func:`~mixtune.estimators._saving.savable`.
    """

    # Metadata routing then hands sources on without set_fit_request.
    __metadata_request__fit = {"sources": True}  # noqa: RUF012

    _stored_attributes: ClassVar[tuple[str, ...]] = (
        *("coef_", "intercept_", "heads_", "head_intercepts_", "domain_names_", "n_features_in_", "feature_names_in_"),
        *("_scaling", "_uncertainty"),
    )

    feature_map: Any
    standardise: bool
    fit_intercept: bool
    focal_name: str
    device: str = "cpu"

    coef_: Floats
    intercept_: Any
    domain_names_: tuple[str, ...]
    n_features_in_: int
    _scaling: Scaling
    _uncertainty: Uncertainty

    @abstractmethod
    def _solve(self, prepared: Prepared) -> Solved:
        """Coefficients, intercept and further attributes, in prepared units."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Fit to focal rows and sources.

        Parameters
        ----------
        X, y : array-like or data frame (n, d), and (n,) or (n, D)
            The focal rows: those of the domain to predict for. Dask collections are brought into memory, if they have
            at most 100,000 rows.
        sample_weight : array-like (n,), optional
            Of the focal rows; weight 0 means absent.
        sources : Sources, StreamedSources, mapping or Domains, optional
            The other datasets, ``{name: (X, y)}`` or ``{name: (X, y, sample_weight)}``; of Domains, all but the focal
            one. Wrap a mapping in Sources for cross-validation. Data larger than memory go into a StreamedSources;
            Dask arrays and large mapped arrays are recognised. Of these, estimators at fixed parameters use all rows,
            those that tune themselves a sample.
        """
        check_map(self.feature_map)
        self._check_parameters()
        given = as_sources(sources)
        learnt = self._learn(self._read_focal(X, y, sample_weight, reset=True), given)
        self._scaling = learnt.scaling
        self._store(learnt.solved, learnt.names)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictions for rows of the focal domain, and their standard deviations if asked for.

        Parameters
        ----------
        X : array-like or data frame (n, d)
        return_std : bool
            Also give a predictive standard deviation, calibrated so that the focal rows' leave-one-out residuals
            divided by it have unit mean square.

        Returns
        -------
        array (n,) or (n, D), or two of them
        """
        features = self._features(X)
        predictions = features @ self.coef_ + self.intercept_
        if not return_std:
            return predictions
        std = self._uncertainty.std(self._scaling.features(features))
        return predictions, std.reshape(predictions.shape)

    def predict_interval(self, X: Any, *, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """Intervals that cover new focal targets with about the given probability, by leave-one-out conformal.

        Parameters
        ----------
        X : array-like or data frame (n, d)
        coverage : float
            Between 0 and 1, for each output on its own.

        Returns
        -------
        lower, upper : arrays (n,) or (n, D)
        """
        features = self._features(X)
        predictions = features @ self.coef_ + self.intercept_
        half = self._uncertainty.half_width(self._scaling.features(features), coverage).reshape(predictions.shape)
        return predictions - half, predictions + half

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

        Parameters
        ----------
        path : str or Path, optional
            Where to write the model as well.
        dtype : {"float64", "float32"}
            What the graph takes, computes in and gives; some runtimes know only float32.
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
        low, high = self._feature_range()
        head = linear_to_onnx(
            self.coef_,
            self.intercept_,
            low=low,
            high=high,
            dtype=dtype,
            input_name=input_name,
            output_name=output_name,
            opset=opset,
        )
        return write_bytes(path, head)

    @property
    def loo_error_(self) -> float:
        """Leave-one-out mean squared error on the focal rows at fixed domain weights and standardisation.

        Infinite where leaving a row out leaves nothing to predict it from, as with a single focal row.
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

    def _feature_range(self) -> tuple[Any, Any]:
        """What features are clamped to before the head, (p,) each; None where they are not."""
        return None, None

    def _check_parameters(self) -> None:
        """Refuse settings before any long work."""
        if not isinstance(self.focal_name, str) or not self.focal_name:
            raise ParameterError(f"focal_name must be a text that is not empty; got {self.focal_name!r}")
        torch_device(self.device)

    def _read_focal(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Rows:
        y, sample_weight = computed(y, sample_weight)
        X = check_frame(X)
        check_targets(y)
        with within_bounds("X or y"):
            X, y = validate_data(self, X, y, reset=reset, dtype=np.float64, multi_output=True, y_numeric=True)
            y = np.asarray(y, dtype=np.float64)
        return Rows(X, y, check_weight(sample_weight, len(X), ""))

    def _learn(self, focal: Rows, sources: Sources | None) -> Learnt:
        """Learn from rows; of streamed sources, from a sample."""
        prepared = self._prepare(focal, sources)
        solved = self._solve(prepared)
        if "notes_" in solved.attributes:
            solved.attributes["notes_"] += sample_note(sources)
        return Learnt(prepared.names, prepared.scaling, solved)

    def _prepare(self, focal: Rows, sources: Sources | None) -> Prepared:
        """Design matrices of the focal rows and of all sources."""
        others = read_sources(sources, focal, column_names(self), self.focal_name)
        return self._prepare_rows({self.focal_name: trim(focal), **others})

    def _prepare_rows(self, rows: dict[str, Rows]) -> Prepared:
        """Design matrices of checked rows, the focal ones first."""
        return prepare(
            list(rows),
            list(rows.values()),
            feature_map=self.feature_map,
            columns=column_names(self),
            standardise=self.standardise,
            fit_intercept=self.fit_intercept,
            device=self.device,
        )

    def _features(self, X: Any) -> Floats:
        check_is_fitted(self, "coef_")
        return self._map_rows(check_new(self, X))

    def _map_rows(self, X: Floats) -> Floats:
        """Features of checked rows, within the range that the head is used on."""
        features = features_of(self.feature_map, X, column_names(self), device_or_cpu(self.device))
        low, high = self._feature_range()
        return features if low is None else np.clip(features, low, high)

    def _predict_rows(self, X: Floats) -> Floats:
        """Predictions for rows that were checked already."""
        return self._map_rows(X) @ self.coef_ + self.intercept_

    def _store(self, solved: Solved, names: Sequence[str]) -> None:
        self.coef_, self.intercept_ = self._scaling.to_units(solved.coef, solved.intercept)
        if self.coef_.ndim == 1:
            self.intercept_ = float(self.intercept_)
        self.domain_names_ = tuple(names)
        self._uncertainty = solved.uncertainty
        if solved.heads is not None:
            self.heads_, self.head_intercepts_ = self._scaling.to_units(solved.heads.coef, solved.heads.intercept)
        for name, value in solved.attributes.items():
            setattr(self, name, value)


def column_names(estimator: Any) -> tuple[str, ...] | None:
    """The names of the input columns, where the focal rows came with names."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else tuple(names)


def check_source(name: str, names: Sequence[str]) -> None:
    """Refuse to forget the focal domain, which comes first in ``names``, or a source that is not there."""
    if name == names[0]:
        raise ParameterError(f'"{name}" is the focal domain and cannot be forgotten; fit again with other rows')
    if name not in names:
        raise ParameterError(f'there is no source "{name}"; {nearest(str(name), names[1:])}')
