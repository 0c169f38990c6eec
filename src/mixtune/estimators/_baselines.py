"""The paper's baselines with the same interface, so that a comparison is a loop over estimators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from mixtune._array import Floats
from mixtune._checks import check_nonnegative
from mixtune._messages import nearest, quoted
from mixtune.errors import ParameterError
from mixtune.estimators._base import MomentRegressor
from mixtune.estimators._fixed_fit import Solved, State, focal_fit, judged, local_heads, pooled_fit
from mixtune.estimators._saving import savable
from mixtune.estimators._uncertainty import Uncertainty
from mixtune.moments import Fit, LeaveOneOut, Rows, leave_one_out
from mixtune.regret import joint_subset_head

#: Candidates of ``ridge="loo"``, for standardised features.
RIDGES = tuple(np.logspace(-3, 5, 17).tolist())


class _Baseline(MomentRegressor):
    """A ridge fit with one ridge, given or chosen by leave-one-out on the focal rows."""

    _stored_attributes: ClassVar[tuple[str, ...]] = ("ridge_",)

    def __init__(
        self,
        feature_map: Any = None,
        *,
        ridge: Any = 1.0,
        standardise: bool = True,
        fit_intercept: bool = True,
        focal_name: str = "focal",
        device: str = "cpu",
    ) -> None:
        self.feature_map = feature_map
        self.ridge = ridge
        self.standardise = standardise
        self.fit_intercept = fit_intercept
        self.focal_name = focal_name
        self.device = device

    @abstractmethod
    def _at(self, state: State, ridge: float) -> Solved:
        """The baseline at one ridge."""

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not (isinstance(self.ridge, str) and self.ridge == "loo"):
            if isinstance(self.ridge, str):
                raise ParameterError(f"ridge must be a number >= 0 or 'loo'; got {self.ridge!r}")
            check_nonnegative("ridge", self.ridge)

    def _solve_state(self, state: State, rows: Any) -> Solved:
        if not isinstance(self.ridge, str):
            self.ridge_ = float(self.ridge)
            return self._at(state, self.ridge_)
        candidates = [self._at(state, ridge) for ridge in RIDGES]
        errors = np.array([found.uncertainty.left_out.error for found in candidates])
        if not np.any(np.isfinite(errors)):
            raise ParameterError(
                "ridge='loo' cannot tell candidates apart by leaving out one sample of the "
                f"{len(state.focal.X)} focal rows; pass at least 2 rows or set ridge to a number"
            )
        best = int(np.argmin(errors))
        self.ridge_ = RIDGES[best]
        return candidates[best]


@savable
class LocalRegressor(_Baseline):
    """LO: ridge regression on the focal rows alone; sources only contribute to the standardisation.

    Parameters
    ----------
    feature_map : object with transform(X), optional
    ridge : float or "loo"
        On standardised features; "loo" takes the ridge with the smallest leave-one-out error on the focal rows.
    standardise, fit_intercept, focal_name, device
        As for :class:`RegretOptimalRegressor`.

    Examples
    --------
    >>> model = LocalRegressor(ridge=0.0).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> model.predict([[3.0]]).round(6)
    array([7.])
    """

    def _at(self, state: State, ridge: float) -> Solved:
        return _pooled(state, [0], ridge)


@savable
class JointRegressor(_Baseline):
    """JO: ridge regression on all rows pooled.

    Parameters
    ----------
    feature_map, ridge, standardise, fit_intercept, focal_name, device
        As for :class:`LocalRegressor`.

    Examples
    --------
    >>> sources = {"b": ([[2.0], [3.0]], [2.0, 3.0])}
    >>> JointRegressor(ridge=0.0).fit([[0.0], [1.0]], [0.0, 1.0], sources=sources).predict([[4.0]]).round(6)
    array([4.])
    """

    def _at(self, state: State, ridge: float) -> Solved:
        return _pooled(state, range(len(state.names)), ridge)


@savable
class JointSubsetRegressor(_Baseline):
    """JSO: ridge regression on the rows of some domains pooled.

    Parameters
    ----------
    feature_map : object with transform(X), optional
    subset : sequence of str, optional
        Names of the domains to pool, the focal one (``focal_name``) among them if wanted; all by default.
    ridge, standardise, fit_intercept, focal_name, device
        As for :class:`LocalRegressor`.

    Examples
    --------
    >>> sources = {"b": ([[2.0], [3.0]], [2.0, 3.0]), "c": ([[2.0]], [99.0])}
    >>> model = JointSubsetRegressor(subset=["focal", "b"], ridge=0.0)
    >>> model.fit([[0.0], [1.0]], [0.0, 1.0], sources=sources).predict([[4.0]]).round(6)
    array([4.])
    """

    def __init__(
        self,
        feature_map: Any = None,
        *,
        subset: Sequence[str] | None = None,
        ridge: Any = 1.0,
        standardise: bool = True,
        fit_intercept: bool = True,
        focal_name: str = "focal",
        device: str = "cpu",
    ) -> None:
        same = {"ridge": ridge, "standardise": standardise, "fit_intercept": fit_intercept, "focal_name": focal_name}
        super().__init__(feature_map, device=device, **same)
        self.subset = subset

    def _at(self, state: State, ridge: float) -> Solved:
        return _pooled(state, self._chosen(state.names), ridge)

    def _chosen(self, names: Sequence[str]) -> list[int]:
        if self.subset is None:
            return list(range(len(names)))
        if isinstance(self.subset, str) or not self.subset or len(set(self.subset)) < len(self.subset):
            raise ParameterError(f"subset must list at least one domain, each once; got {self.subset!r}")
        unknown = [str(name) for name in self.subset if name not in names]
        if unknown:
            raise ParameterError(f"subset names {quoted(unknown)}, no domain here; {nearest(unknown[0], list(names))}")
        return sorted(list(names).index(name) for name in self.subset)


@savable
class MeanOfLocalsRegressor(_Baseline):
    """MLO: the plain mean of all domains' ridge heads, intercepts included.

    Parameters
    ----------
    feature_map, ridge, standardise, fit_intercept, focal_name, device
        As for :class:`LocalRegressor`.

    Examples
    --------
    >>> sources = {"b": ([[0.0], [1.0]], [0.0, 3.0])}
    >>> MeanOfLocalsRegressor(ridge=0.0).fit([[0.0], [1.0]], [0.0, 1.0], sources=sources).predict([[1.0]]).round(6)
    array([2.])
    """

    def _at(self, state: State, ridge: float) -> Solved:
        heads = local_heads(state, ridge, self.device)
        head = focal_fit(state, heads, ridge)
        coef, intercept = heads.coef.mean(axis=0), heads.intercept.mean(axis=0)
        mean = Fit(
            coef.reshape(head.coef.shape), intercept.reshape(-1), head.system, head.center, ridge, 1 / len(heads.coef)
        )
        uncertainty = Uncertainty(partial(_mean_left_out, state.focal, head, mean), _constant_spread)
        return Solved(coef, intercept, uncertainty, {}, heads)


def _pooled(state: State, chosen: Sequence[int], ridge: float) -> Solved:
    chosen = list(chosen)
    fit = pooled_fit(state, chosen, ridge, partial(joint_subset_head, subset=chosen, ridge=ridge))
    coef = fit.coef[:, 0] if state.single_output else fit.coef
    intercept = fit.intercept[0] if state.single_output else fit.intercept
    return Solved(coef, intercept, judged(state, fit, None), {})


def _mean_left_out(focal: Rows, head: Fit, mean: Fit) -> LeaveOneOut:
    """Leaving a focal row out changes only the focal model, and so the mean by its share of that change."""
    alone = leave_one_out(focal, head)
    fitted: Floats = mean.predict(focal.X)
    predictions = fitted + mean.share * (alone.predictions - head.predict(focal.X))
    residuals = np.where(np.isfinite(alone.residuals), focal.targets - predictions, np.inf)
    return LeaveOneOut(predictions, residuals, np.ones(len(fitted)), focal.weight)


def _constant_spread() -> None:
    """No posterior: the mean of local models has the same spread everywhere."""
