"""Continuation models with nothing to set: the library's self-tuning estimators, asked anew at every exercise date.

They see what the models of :mod:`mixtune.options._models` see, the features of every dataset at a date, and answer in
the same currency, one coefficient per feature: estimators standardise features and leave the intercept free, and both
are undone here. The constant among the features takes the intercept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mixtune.errors import ParameterError
from mixtune.options._models import ContinuationModel, Stage

if TYPE_CHECKING:
    from mixtune.estimators._base import LinearTransferRegressor

__all__ = ["TunedJoint", "TunedTransfer"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TunedTransfer(ContinuationModel):
    """Transfer to the focal dataset by :class:`mixtune.RegretOptimalRegressorCV`, with its defaults.

    Features are not clamped to the range of the training rows, since a policy is linear in them.

    Parameters
    ----------
    name : str

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> U = [np.column_stack([np.ones(n), rng.standard_normal((n, 2))]) for n in (10, 60, 60, 60)]
    >>> values = [(u @ [5.0, 1.0, -1.0] + 0.1 * rng.standard_normal(len(u)))[:, None] for u in U]
    >>> found = TunedTransfer().fit(Stage(U, values, focal=0), 0)
    >>> bool(np.all(np.abs(found - [5.0, 1.0, -1.0]) < 0.2))
    True
    """

    name: str = "RO (tuned)"

    def fit(self, stage: Stage, model: int) -> Floats:
        from mixtune.estimators import RegretOptimalRegressorCV  # scikit-learn takes a second to import

        constant = _constant(stage.features)
        estimator = RegretOptimalRegressorCV(clamp=False, fit_intercept=constant is not None)
        return _coefficients(estimator, stage, model, tuple(range(len(stage.features))), constant)


@dataclass(frozen=True)
class TunedJoint(ContinuationModel):
    """JO / JSO / LO as good as they get: ridge regression on some datasets pooled, its ridge by leave-one-out.

    Rows of the focal dataset, which must be among the pooled, are left out in turn; features are standardised as for
    :class:`TunedTransfer`.

    Parameters
    ----------
    subset : tuple of int
        Which datasets.
    name : str

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> U = [np.column_stack([np.ones(20), rng.standard_normal((20, 2))]) for _ in range(3)]
    >>> values = [(u @ [5.0, 1.0, -1.0])[:, None] for u in U]
    >>> TunedJoint((0, 2), "JSO").fit(Stage(U, values, focal=0), 0).round(2)
    array([ 5.,  1., -1.])
    """

    subset: tuple[int, ...]
    name: str

    def fit(self, stage: Stage, model: int) -> Floats:
        from mixtune.estimators import JointRegressor

        unknown = [i for i in self.subset if not 0 <= i < len(stage.features)]
        if unknown or stage.focal not in self.subset:
            raise ParameterError(
                f"subset must list the focal dataset {stage.focal} and others below {len(stage.features)}; "
                f"got {self.subset}"
            )
        constant = _constant(stage.features)
        estimator = JointRegressor(ridge="loo", fit_intercept=constant is not None)
        return _coefficients(estimator, stage, model, self.subset, constant)


def _coefficients(
    estimator: LinearTransferRegressor, stage: Stage, model: int, subset: tuple[int, ...], constant: int | None
) -> Floats:
    """Fit to some datasets; coefficients (p,) of the stage's features."""
    varying = [j for j in range(stage.features[0].shape[1]) if j != constant]
    rows = {i: (stage.features[i][:, varying], stage.values[i][:, model]) for i in subset}
    X, y = rows.pop(stage.focal)
    estimator.fit(X, y, sources={f"dataset {i}": pair for i, pair in rows.items()} or None)
    coef = np.zeros(stage.features[0].shape[1])
    coef[varying] = estimator.coef_
    if constant is not None:
        coef[constant] = estimator.intercept_ / stage.features[stage.focal][0, constant]
    return coef


def _constant(features: list[Floats]) -> int | None:
    """The first feature that is the same, and not zero, in all rows of all datasets."""
    first = features[0][0]
    same = np.all([np.all(first == U, axis=0) for U in features], axis=0) & (first != 0)
    return int(np.argmax(same)) if same.any() else None
