"""RegretOptimalRegressor: the regret-optimal model at given parameters; rows and sources can be added and removed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mixtune._array import Floats
from mixtune._checks import check_nonnegative, check_whole
from mixtune.estimators._base import UpdatableRegressor
from mixtune.estimators._baselines import JointRegressor, LocalRegressor, MeanOfLocalsRegressor
from mixtune.estimators._fixed_fit import (
    Heads,
    Held,
    Solved,
    State,
    focal_fit,
    judged,
    local_heads,
    regret_optimal,
    ridge_alone,
)
from mixtune.estimators._saving import savable
from mixtune.estimators._sources import as_sources
from mixtune.estimators._uncertainty import Uncertainty
from mixtune.estimators._weight_setting import TEMPERATURE, domains_of, needs_rows, rule_of, weigh
from mixtune.moments import Fit, leave_one_out
from mixtune.regret import RegretSolution, t_gain
from mixtune.selection import Comparison, TransferGain, compare, transfer_gain
from mixtune.weights import DomainWeights, TransportWeights, WassersteinWeights

#: Leave-one-out residuals below this fraction of the targets' standard deviation are rounding and count as zero.
ROUNDING = 1e-12


class ComparedFit:
    """Adds ``compared_`` and ``transfer_gain_`` to an estimator at fixed parameters.

    Both are computed on first access from the moments that the fit keeps, so that fitting costs nothing more.
    """

    ridge: float
    _state: State
    _uncertainty: Uncertainty
    _found: tuple[State, dict[str, Comparison]] | None = None

    @property
    def compared_(self) -> tuple[Comparison, ...]:
        """Leave-one-out error of this fit, of the focal rows alone, all rows pooled and the mean of local models.

        All use the ridge of this fit. Without sources only the first two are included.
        """
        return tuple(self._comparisons().values())

    @property
    def transfer_gain_(self) -> TransferGain:
        """The relative reduction of the error against the focal rows alone, by leave-one-out."""
        return transfer_gain(self._comparisons()["focal only"], np.empty(0), float(self._state.focal.weight.sum()))

    def _comparisons(self) -> dict[str, Comparison]:
        check_is_fitted(self, "coef_")
        if self._found is None or self._found[0] is not self._state:  # partial_fit and forget replace the state
            self._found = self._state, self._compare(self._state)
        return self._found[1]

    def _compare(self, state: State) -> dict[str, Comparison]:
        ridge = float(self.ridge)
        others: dict[str, Any] = {"focal only": LocalRegressor}
        if len(state.names) > 1:
            others |= {"joint": JointRegressor, "mean of locals": MeanOfLocalsRegressor}
        residuals = {"ours": self._uncertainty.left_out.residuals}
        for name, kind in others.items():
            residuals[name] = kind(ridge=ridge)._at(state, ridge).uncertainty.left_out.residuals
        weight = np.tile(state.focal.weight, state.focal.targets.shape[1])
        joined = {name: parts.T.ravel() for name, parts in residuals.items()}
        return compared_of(joined, weight, ROUNDING * state.target_variance**0.5)


def compared_of(residuals: Mapping[str, Floats], weight: Floats, least: Floats | float) -> dict[str, Comparison]:
    """Compare leave-one-out residuals of all methods with "ours"; residuals of at most ``least`` count as zero.

    Examples
    --------
    >>> found = compared_of({"ours": np.array([1.0, 1.0]), "other": np.array([2.0, 2.0])}, np.ones(2), 1e-12)
    >>> found["other"].ratio
    0.5
    """
    counted = {name: np.where(np.abs(parts) > least, parts, 0.0) for name, parts in residuals.items()}
    return {name: compare(name, counted["ours"], parts, weight) for name, parts in counted.items()}


class FixedSettings:
    """Parameters shared by the regressor and the classifier at fixed parameters."""

    def __init__(
        self,
        feature_map: Any = None,
        *,
        weights: Any = "predictive",
        sharing: float | None = None,
        ridge: float = 1.0,
        transfer: float = 1.0,
        stability: float = 1.0,
        horizon: int = 10,
        standardise: bool = True,
        fit_intercept: bool = True,
        focal_name: str = "focal",
        device: str = "cpu",
    ) -> None:
        self.feature_map = feature_map
        self.weights = weights
        self.sharing = sharing
        self.ridge = ridge
        self.transfer = transfer
        self.stability = stability
        self.horizon = horizon
        self.standardise = standardise
        self.fit_intercept = fit_intercept
        self.focal_name = focal_name
        self.device = device


@savable
class RegretOptimalRegressor(FixedSettings, ComparedFit, UpdatableRegressor):
    """Linear model on features, tuned for one focal dataset with the help of others, in closed form.

    Every domain has a local ridge model and a weight. The regret-optimal algorithm moves the local models to fit the
    weighted data while penalising the distance from where they started. Without sources this is plain ridge
    regression. Intercepts are never penalised.

    Parameters
    ----------
    feature_map : object with transform(X), optional
        A frozen feature map, such as :class:`mixtune.RandomFeatures`; the inputs themselves by default.
    weights : {"predictive", "equal", "wasserstein"}, WeightRule or mapping name -> weight
        How much each domain counts. "wasserstein" compares standardised rows at temperature 10.
    sharing : float, optional
        For "predictive", in squared units of the target: domains whose head has a mean squared error on the focal rows
        above the focal head's by this much or more get no weight. By default the leave-one-out error of the focal head
        (with a single focal row, the variance of all targets).
    ridge : float
        kappa >= 0 of the local models, on standardised features. Without sources, this is ``alpha`` of
        :class:`sklearn.linear_model.Ridge`.
    transfer, stability : float
        lambda, beta >= 0: the penalties on the distance from the start and on the size of the steps.
    horizon : int
        T, the number of steps.
    standardise : bool
        Divide features by their standard deviation over all rows of sources and focal domain.
    fit_intercept : bool
        Without it nothing is subtracted from features and targets.
    focal_name : str
        The name of the focal domain.
    device : str
        Where features are computed and summed: "cpu" for NumPy, or "cuda" ("cuda:1" is the second) for PyTorch on a
        CUDA device. Rows are sent in blocks; :class:`mixtune.RandomFeatures`, PyTorch modules and the products of
        their features are computed on the device in float64, and the p x p sums return to the host. Other maps, such
        as scikit-learn's, run on the host and their features are sent. Features of the focal rows return as well, for
        leave-one-out. Local models of fewer than 64 domains are solved for on the device; weights, leave-one-out and
        the solution are computed with NumPy. ``predict`` computes features on the device, or with NumPy if there is
        none.

    Attributes
    ----------
    coef_, intercept_ : arrays (p,) or (p, D), and scalar or (D,)
        Predictions are ``features @ coef_ + intercept_``, in the units of the features.
    weights_ : DomainWeights
    distances_ : TransportWeights or None
        Transport distances with the sampling floor where the weight rule computed them; see :meth:`distances`.
    heads_, head_intercepts_ : arrays (N, p[, D]) and (N[, D])
        Local ridge models.
    solution_ : RegretSolution
        Trajectory, energy and regret, on standardised and centred features.
    effective_ridge_ : float
        The single ridge to which transfer, stability and horizon are equivalent.
    bound_gain_ : float or None
        T-Gain of the paper's bound if distances are known; negative means that the bound improves.
    compared_ : tuple of Comparison
        Leave-one-out errors of this fit, of the focal rows alone, all rows pooled, and the mean of local models, all
        at this ridge, with standard errors; computed on first access.
    transfer_gain_ : TransferGain
        The relative reduction of the error against the focal rows alone, by leave-one-out.
    loo_error_, focal_loo_error_ : float
        Leave-one-out mean squared error on the focal rows, of this fit and of the focal rows alone.
    domain_names_ : tuple of str
        The focal domain first.

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune.estimators import RegretOptimalRegressor
    >>> rng = np.random.default_rng(0)
    >>> draw = lambda n, slope: (x := rng.standard_normal((n, 1)), slope * x[:, 0] + 0.1 * rng.standard_normal(n))
    >>> (X, y), sources = draw(5, 2.0), {"alike": draw(50, 2.0), "other": draw(50, -2.0)}
    >>> model = RegretOptimalRegressor(ridge=0.1).fit(X, y, sources=sources)
    >>> bool(model.weights_.as_dict()["alike"] > model.weights_.as_dict()["other"])
    True
    >>> round(float(model.coef_[0]), 1)
    2.0
    """

    _stored_attributes: ClassVar[tuple[str, ...]] = (
        "weights_",
        "distances_",
        "effective_ridge_",
        "bound_gain_",
        "_state",
        "_held",
    )

    weights_: DomainWeights
    distances_: TransportWeights | None
    heads_: Floats
    head_intercepts_: Floats
    effective_ridge_: float
    bound_gain_: float | None
    _state: State
    _solution: RegretSolution | None
    _held: Held

    @property
    def solution_(self) -> RegretSolution:
        """Trajectory, energy and regret, on standardised and centred features."""
        check_is_fitted(self, "coef_")
        if self._solution is None:  # not stored in files, but cheap to solve for again
            self._solution = self._held.solve(self._state, self.weights_)
        return self._solution

    @property
    def focal_loo_error_(self) -> float:
        """Leave-one-out mean squared error of the focal rows alone, for comparison with ``loo_error_``."""
        check_is_fitted(self, "coef_")
        state = self._state
        ridge = float(self.ridge)
        return leave_one_out(state.focal, focal_fit(state, local_heads(_focal_only(state), ridge), ridge)).error

    def distances(
        self, X: Any, y: Any, sample_weight: Any = None, *, sources: Any, rule: WassersteinWeights | None = None
    ) -> TransportWeights:
        """Transport distances of sources to the focal rows with the sampling floor, whatever rule the fit used.

        Rows are not kept by a fit, so they are passed again; ``rule`` sets how to compare them.
        """
        check_is_fitted(self, "coef_")
        prepared = self._prepare(self._read_focal(X, y, sample_weight, reset=False), as_sources(sources))
        domains, feature_map = domains_of(prepared, standardise=self.standardise)
        rule = WassersteinWeights(TEMPERATURE) if rule is None else rule
        found = rule.weigh(domains=domains, feature_map=feature_map)
        assert isinstance(found, TransportWeights)
        return found

    def _set_stored(self, values: dict[str, Any]) -> None:
        super()._set_stored(values)
        self._solution = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("ridge", "transfer", "stability"):
            check_nonnegative(name, getattr(self, name))
        check_whole("horizon", self.horizon)
        if self.sharing is not None:
            check_nonnegative("sharing", self.sharing)

    def _compares_rows(self) -> bool:
        return needs_rows(self.weights)

    def _solve_state(self, state: State, rows: Any) -> Solved:
        ridge = float(self.ridge)
        heads = local_heads(state, ridge, self.device)
        head = focal_fit(state, heads, ridge)
        weights = self._weigh(state, heads, head, rows)
        if len(state.names) == 1:
            solution, fit = ridge_alone(state, ridge)
            uncertainty = judged(state, fit, None)
        else:
            solution, fit = regret_optimal(
                state, heads, weights, transfer=self.transfer, stability=self.stability, horizon=self.horizon
            )
            uncertainty = judged(state, fit, head)
        distances = weights if isinstance(weights, TransportWeights) else None
        attributes = {
            "weights_": weights,
            "distances_": distances,
            "_solution": solution,
            "_state": state,
            "_held": Held.of(solution.problem),
            "effective_ridge_": solution.effective_ridge,
            "bound_gain_": None if distances is None else t_gain(distances),
        }
        coef = fit.coef[:, 0] if state.single_output else fit.coef
        intercept = fit.intercept[0] if state.single_output else fit.intercept
        return Solved(coef, intercept, uncertainty, attributes, heads)

    def _weigh(self, state: State, heads: Heads, head: Fit, rows: Any) -> DomainWeights:
        if len(state.names) == 1:
            if not isinstance(self.weights, Mapping):  # a mapping may name sources that are absent
                rule_of(self.weights, self.sharing, default_sharing=float, names=state.names)
            return DomainWeights(np.ones(1), state.names, 0, "focal only")

        def default_sharing() -> float:
            error = leave_one_out(state.focal, head).error
            return error if np.isfinite(error) else state.target_variance

        rule = rule_of(self.weights, self.sharing, default_sharing=default_sharing, names=state.names, gone=state.gone)
        domains, feature_map = rows or (None, None)
        return weigh(
            rule,
            names=state.names,
            moments=state.moments,
            heads=heads.augmented,
            domains=domains,
            feature_map=feature_map,
        )


def _focal_only(state: State) -> State:
    return dataclasses.replace(state, names=state.names[:1], moments=state.moments[:1])
