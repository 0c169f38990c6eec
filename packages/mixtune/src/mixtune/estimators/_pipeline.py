"""Transformers in front of an estimator with sources: what they do to the focal rows, they do to the sources."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from mixtune.checks import check_choice
from mixtune.errors import DataError, ParameterError
from mixtune.estimators._inputs import as_sources, sampled


class SourcesPipeline(Pipeline):  # type: ignore[misc]
    """A scikit-learn pipeline whose transformers are applied to the sources too.

    ``make_pipeline(StandardScaler(), RegretOptimalRegressorCV())`` transforms the focal rows only, and
    ``TransformedTargetRegressor`` their targets only; this class transforms the sources in the same way. In
    cross-validation every fold fits the transformers again.

    Parameters
    ----------
    steps : list of (str, estimator)
        Transformers, then an estimator that takes sources. Transformers get the rows unchanged, for example data frames
        with text for a ``ColumnTransformer``.
    target_transformer : transformer, optional
        The transformer of the targets, whose ``inverse_transform`` is applied to predictions, such as
        ``FunctionTransformer(np.log, np.exp)``. It must be monotonic for intervals.
    fit_steps_on : {"all", "focal"}
        Which rows the transformers learn from: those of all domains, or the focal ones.
    transform_input, memory, verbose
        As for :class:`sklearn.pipeline.Pipeline`; ``memory`` is not used.

    Examples
    --------
    >>> from sklearn.preprocessing import FunctionTransformer, StandardScaler
    >>> from mixtune.estimators import RegretOptimalRegressor
    >>> X = np.arange(12.0)[:, None]
    >>> steps = [("scale", StandardScaler()), ("model", RegretOptimalRegressor())]
    >>> model = SourcesPipeline(steps, target_transformer=FunctionTransformer(np.log, np.exp))
    >>> model.fit(X[:6], np.exp(X[:6, 0]), sources={"b": (X, np.exp(X[:, 0]))})["model"].domain_names_
    ('focal', 'b')
    >>> bool((model.predict(X - 9) > 0).all())
    True
    """

    def __init__(
        self,
        steps: Sequence[tuple[str, Any]],
        *,
        target_transformer: Any = None,
        fit_steps_on: Literal["all", "focal"] = "all",
        transform_input: Any = None,
        memory: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(steps, transform_input=transform_input, memory=memory, verbose=verbose)
        self.target_transformer = target_transformer
        self.fit_steps_on = fit_steps_on

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Fit the transformers, then the estimator to the transformed focal rows and sources.

        Parameters
        ----------
        X, y, sample_weight, sources
            As for the estimator; ``sources`` may hold data frames with text, which the transformers turn into numbers.
        """
        check_choice("fit_steps_on", self.fit_steps_on, ("all", "focal"))
        self._validate_steps()
        given = sampled(as_sources(sources), None)
        others = [source for _, source in given.items()] if given and self.fit_steps_on == "all" else []
        rows, targets = _stacked([X, *(source.X for source in others)]), _joined([y, *(source.y for source in others)])
        # Like a pipeline, this fits the steps themselves; whoever searches over settings clones all of it before.
        for _, _, step in self._iter(with_final=False, filter_passthrough=True):
            rows = step.fit(rows, targets).transform(rows)
        if self.target_transformer is not None:
            self.target_transformer_ = clone(self.target_transformer).fit(_column(targets))
        made = None if given is None else given.transformed(X=self._inputs, y=self._targets)
        weight = {} if sample_weight is None else {"sample_weight": sample_weight}
        self[-1].fit(self._inputs(X), self._targets(y), **weight, sources=made)
        return self

    def predict(self, X: Any, **params: Any) -> Any:
        """Predictions in the units of the targets; further parameters go to the estimator."""
        return self._back(self[-1].predict(self._inputs(X), **params))

    def predict_interval(self, X: Any, *, coverage: float = 0.9) -> tuple[Any, Any]:
        """Intervals of the estimator, in the units of the targets."""
        ends = [self._back(end) for end in self[-1].predict_interval(self._inputs(X), coverage=coverage)]
        return np.minimum(*ends), np.maximum(*ends)

    def _inputs(self, X: Any) -> Any:
        for _, _, step in self._iter(with_final=False, filter_passthrough=True):
            X = step.transform(X)
        return X

    def _targets(self, y: Any) -> Any:
        if self.target_transformer is None:
            return y
        return np.reshape(self.target_transformer_.transform(_column(y)), np.shape(y))

    def _back(self, predictions: Any) -> Any:
        if self.target_transformer is None:
            return predictions
        if isinstance(predictions, tuple):
            raise ParameterError("standard deviations have no meaning for transformed targets; use predict_interval")
        return np.reshape(self.target_transformer_.inverse_transform(_column(predictions)), np.shape(predictions))


def _column(y: Any) -> Any:
    """Targets as a matrix, which transformers take."""
    array = np.asarray(y)
    return array.reshape(len(array), -1)


def _joined(parts: Sequence[Any]) -> Any:
    return None if parts[0] is None else np.concatenate([np.asarray(part) for part in parts])


def _stacked(parts: Sequence[Any]) -> Any:
    """The rows of all domains below one another: frames with the columns of the first, or arrays.

    Examples
    --------
    >>> import pandas as pd
    >>> _stacked([pd.DataFrame({"a": [1], "b": ["x"]}), pd.DataFrame({"b": ["y"], "a": [2]})]).to_dict("list")
    {'a': [1, 2], 'b': ['x', 'y']}
    """
    first = parts[0]
    if len(parts) == 1 or not hasattr(first, "columns"):
        return first if len(parts) == 1 else np.concatenate([np.asarray(part) for part in parts])
    columns = list(first.columns)
    for part in parts:
        if lacking := [name for name in columns if name not in getattr(part, "columns", ())]:
            raise DataError(f"a source lacks the column {lacking[0]!r} of the focal frame; pass the same columns")
    # pandas and polars both have a function of this name.
    library = import_module(type(first).__module__.partition(".")[0])
    return library.concat([part[columns] for part in parts])
