"""RegretOptimalRegressor: the regret-optimal model at given parameters; rows and sources can be added and removed."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mixtune._messages import nearest, quoted
from mixtune.arrays import Floats, match
from mixtune.checks import check_choice, check_nonnegative, check_whole
from mixtune.choice import MEAN_OF_LOCALS, MIXTUNE, OWN_ROWS, POOLED, Comparison, TransferGain, transfer_gain
from mixtune.errors import ParameterError
from mixtune.estimators import _fits as fits
from mixtune.estimators._base import (
    TEMPERATURE,
    MomentRegressor,
    Settings,
    Shown,
    check_both,
    check_source,
    transport_distances,
)
from mixtune.estimators._inputs import as_sources, check_focal_name, encoded_sources
from mixtune.estimators._saving import savable
from mixtune.moments import Fit, Moments, Origin, Rows, augmented, leave_one_out, moved
from mixtune.regret import RegretSolution, t_gain
from mixtune.weights import (
    DomainWeights,
    EqualWeights,
    GivenWeights,
    PredictiveWeights,
    TransportWeights,
    WassersteinWeights,
    WeightRule,
)


@dataclass(eq=False, repr=False)
class FixedSettings(Settings):
    """Parameters shared by the regressor and the classifier with fixed parameters."""

    _: KW_ONLY
    weights: Any = "predictive"
    sharing: float | None = None
    ridge: float = 1.0
    transfer: float = 1.0
    stability: float = 1.0
    horizon: int = 10
    stop: int | str | None = None


@savable
class RegretOptimalRegressor(FixedSettings, Shown, MomentRegressor):
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
        For "predictive", in squared units of the target: a domain has weight zero if the mean squared error of its
        model on the focal rows exceeds that of the focal model by this much or more. By default the leave-one-out error
        of the focal model (with a single focal row, the variance of all targets).
    ridge : float
        kappa >= 0 of the local models, on standardised features. Without sources, this is ``alpha`` of
        :class:`sklearn.linear_model.Ridge`.
    transfer, stability : float
        lambda, beta >= 0: the penalties on the distance from the start and on the size of the steps.
    horizon : int
        T, the number of steps.
    stop : int or "best", optional
        The step whose model is kept, 0 to ``horizon``; by default the last one. "best" chooses the step with the
        smallest leave-one-out error on the focal rows. The reported error is this smallest error, which is slightly too
        small. Ignored without sources.
    standardise : bool
        Divide features by their standard deviation over all rows of sources and focal domain.
    fit_intercept : bool
        Whether to fit an intercept; if False, features and targets are not centred.
    focal_name : str
        The name of the focal domain.
    device : str
        Where to compute: "cpu" for NumPy, or "cuda" ("cuda:1" is the second) for PyTorch on a CUDA device. Rows are
        sent in blocks; :class:`mixtune.RandomFeatures` and PyTorch modules run on the device in float64. Other maps,
        such as scikit-learn's, run on the host and their features are sent. Sums, local models, weights, the solution
        and leave-one-out are computed on the device for fewer than 64 domains; the fitted model then holds NumPy
        arrays. ``predict`` computes features on the device, or with NumPy if there is none.

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
    stopped_at_ : int or None
        The step whose model is ``coef_``; None without sources.
    bound_gain_ : float or None
        T-Gain of the paper's bound if distances are known; negative means that the bound improves.
    compared_ : tuple of Comparison
        Leave-one-out errors of this fit, of own rows alone, of all rows pooled, and of the mean of local models, all
        with the same ridge, with standard errors; computed on first access.
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
        *("weights_", "distances_", "effective_ridge_", "stopped_at_", "bound_gain_", "_state", "_held"),
    )

    weights_: DomainWeights
    distances_: TransportWeights | None
    heads_: Floats
    head_intercepts_: Floats
    effective_ridge_: float
    stopped_at_: int | None = None  # models of older files have none
    bound_gain_: float | None
    _state: fits.State
    _solution: RegretSolution | None = None
    _held: fits.Held
    _found: tuple[fits.State, dict[str, Comparison], Floats] | None = None

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
        state, ridge = self._state, float(self.ridge)
        alone = dataclasses.replace(state, names=state.names[:1], moments=state.moments[:1])
        return leave_one_out(state.focal, fits.focal_fit(state, fits.local_heads(alone, ridge), ridge)).error

    @property
    def compared_(self) -> tuple[Comparison, ...]:
        """Leave-one-out error of this fit, of the focal rows alone, all rows pooled and the mean of local models.

        All use the ridge of this fit. Without sources only the first two are included.
        """
        return tuple(self._comparisons().values())

    @property
    def transfer_gain_(self) -> TransferGain:
        """The relative reduction of the error against the focal rows alone, by leave-one-out."""
        return transfer_gain(self._comparisons()[OWN_ROWS], np.empty(0), float(self._state.focal.weight.sum()))

    def _comparisons(self) -> dict[str, Comparison]:
        """Computed on first access from the moments that the fit keeps, so that fitting costs nothing more."""
        check_is_fitted(self, "coef_")
        state, ridge = self._state, check_nonnegative("ridge", self.ridge)
        if self._found is None or self._found[0] is not state:  # partial_fit and forget replace the state
            plain = {OWN_ROWS: fits.pooled(state, [0])(ridge)}
            if len(state.names) > 1:
                plain[POOLED] = fits.pooled(state, range(len(state.names)))(ridge)
                plain[MEAN_OF_LOCALS] = fits.mean_of_locals(state, ridge)
            found = {MIXTUNE: self._uncertainty, **{name: fit.uncertainty for name, fit in plain.items()}}
            residuals = {name: each.left_out.residuals.T.ravel() for name, each in found.items()}
            weight = np.tile(state.focal.weight, state.focal.targets.shape[1])
            others = np.stack([each.left_out.residuals for name, each in found.items() if name != MIXTUNE])
            least = fits.ROUNDING * state.target_variance**0.5
            self._found = state, fits.compared_of(residuals, weight, least), others
        return self._found[1]

    @property
    def _rival_residuals(self) -> Floats:
        """Left-out residuals (methods, n, D) of the other methods in ``compared_``."""
        self._comparisons()
        assert self._found is not None
        return self._found[2]

    def distances(
        self, X: Any, y: Any, sample_weight: Any = None, *, sources: Any, rule: WassersteinWeights | None = None
    ) -> TransportWeights:
        """Transport distances of the sources to the focal rows with the sampling floor, for any weight rule of the fit.

        A fitted model does not keep rows, so pass them again; ``rule`` sets how they are compared.
        """
        check_is_fitted(self, "coef_")
        prepared = self._prepare(self._read_focal(X, y, sample_weight), encoded_sources(self, as_sources(sources)))
        return transport_distances(prepared, standardise=self.standardise, rule=rule)

    def partial_fit(self, X: Any = None, y: Any = None, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Add focal rows, rows of known sources, or new sources, and solve again without reading earlier data.

        The standardisation of the first fit is kept, so the result can differ slightly from a fit to all rows at once.
        On an unfitted estimator this is ``fit``.

        Parameters
        ----------
        X, y, sample_weight
            Further focal rows, or None.
        sources
            As for ``fit``; rows of a known name are added to that source.
        """
        if not hasattr(self, "coef_"):
            return self.fit(X, y, sample_weight, sources=sources)
        self._check_parameters()
        self._check_moments_suffice()
        check_both(X, y)
        state, scaling = self._state, self._scaling
        name, focal = state.names[0], state.focal
        moments = dict(zip(state.names, state.moments))
        if X is not None:
            added = self._focal_features(self._read_focal(X, y, sample_weight))
            focal = focal.joined(added)
            moments[name] = moments[name] + augmented(added)
        like = Rows(np.zeros((1, self.n_features_in_)), state.focal.y[:1])
        origin = Origin(scaling.shift, scaling.target_shift)
        found = fits.moments_of(encoded_sources(self, as_sources(sources)), like, origin, self._make_features())
        new = {name: part.on_device(None) for name, part in found.items()}
        check_focal_name(new, name)
        for name, part in new.items():
            part = moved(part, np.zeros_like(scaling.shift), scaling.scale, np.zeros_like(scaling.target_shift))
            moments[name] = moments[name] + part if name in moments else part
        return self._solve_again(moments, focal, state.gone - set(moments))

    def forget(self, name: str) -> Self:
        """Remove a source exactly: its moments are dropped and the problem is solved again without it.

        The standardisation, which was computed with its rows, is kept; to remove this influence as well, fit again.
        """
        check_is_fitted(self, "coef_")
        state = self._state
        check_source(name, state.names)
        self._check_moments_suffice()
        moments = dict(zip(state.names, state.moments))
        del moments[name]
        return self._solve_again(moments, state.focal, state.gone | {name})

    def _solve_again(self, moments: dict[str, Moments], focal: Rows, gone: frozenset[str]) -> Self:
        state = fits.State(tuple(moments), tuple(moments.values()), focal, self._state.fit_intercept, gone)
        self._store(self._solve_state(state, None), state.names, self._scaling)
        return self

    def _focal_features(self, rows: Rows) -> Rows:
        """Further focal rows in prepared units, their targets shaped like those of the fit."""
        outputs, fitted = rows.targets.shape[1], self._state.focal
        if outputs != fitted.targets.shape[1]:
            raise ParameterError(
                f"y has {outputs} outputs, the fit had {fitted.targets.shape[1]}; pass the same outputs"
            )
        y = rows.y.reshape(len(rows.y), *fitted.y.shape[1:])
        return self._scaling.apply(Rows(self._make_features()(rows.X), y, rows.sample_weight))

    def _check_moments_suffice(self) -> None:
        if self._compares_rows():
            raise ParameterError(
                f"weights={self.weights!r} compares rows, which a fitted model no longer holds; call fit with all "
                "rows that are to be used, or set weights to 'predictive' or 'equal'"
            )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("ridge", "transfer", "stability"):
            check_nonnegative(name, getattr(self, name))
        check_whole("horizon", self.horizon)
        if self.stop not in (None, fits.BEST) and check_whole("stop", self.stop) > self.horizon:
            raise ParameterError(f"stop must be a step from 0 to horizon, {self.horizon}, or 'best'; got {self.stop!r}")
        if self.stop == fits.BEST and self.horizon > fits.MOST_STOPS:
            raise ParameterError(f"stop='best' needs a horizon of at most {fits.MOST_STOPS:,}; got {self.horizon:,}")
        if self.sharing is not None:
            check_nonnegative("sharing", self.sharing)

    def _compares_rows(self) -> bool:
        if isinstance(self.weights, WeightRule):
            return "domains" in self.weights.needs
        return isinstance(self.weights, str) and self.weights == "wasserstein"

    def _solve_state(self, state: fits.State, rows: Any) -> fits.Solved:
        ridge = float(self.ridge)
        heads = fits.local_heads(state, ridge)
        head = fits.focal_fit(state, heads, ridge)
        weights = self._weigh(state, heads, head, rows)
        step = None
        if len(state.names) == 1:
            solution, fit = fits.ridge_alone(state, ridge)
            found = fits.solved(state, fit)
        else:
            held = {name: getattr(self, name) for name in ("transfer", "stability", "horizon")}
            solution, fit = fits.regret_optimal(state, heads, weights, **held)
            step, found = fits.stopped(state, solution, fit, head, self.stop)
        distances = weights if isinstance(weights, TransportWeights) else None
        kept = state.on_device(None)
        attributes = {
            "weights_": weights,
            "distances_": distances,
            "_solution": solution if state is kept else None,
            "_state": kept,
            "_held": fits.Held.of(solution.problem),
            "effective_ridge_": solution.effective_ridge,
            "stopped_at_": step,
            "bound_gain_": None if distances is None else t_gain(distances),
        }
        return dataclasses.replace(found, attributes=attributes, heads=heads)

    def _weigh(self, state: fits.State, heads: fits.Heads, head: Fit, rows: Any) -> DomainWeights:
        """Weights of the domains by the rule that the ``weights`` parameter stands for."""
        if len(state.names) == 1:
            if not isinstance(self.weights, Mapping):  # a mapping may name sources that are absent
                self._rule(state, float)
            return DomainWeights(np.ones(1), state.names, 0, "focal only")

        def default_sharing() -> float:
            error = leave_one_out(state.focal, head).error
            return error if np.isfinite(error) else state.target_variance

        rule = self._rule(state, default_sharing)
        # Rules divide by the number of rows; with sample weights the divisor is their sum.
        repeat = state.focal.total / len(state.focal.y)
        if isinstance(rule, PredictiveWeights):
            rule = dataclasses.replace(rule, sharing=rule.sharing * repeat)
        domains, feature_map = rows or (None, None)
        # Heads on ``[U, 1]``: intercepts as the last coefficient.
        local = match(np.concatenate([heads.coef, heads.intercept[:, None]], axis=1), state.moments[0].cross)
        found = rule.weigh(moments=state.moments, heads=local, domains=domains, feature_map=feature_map, focal=0)
        if isinstance(rule, PredictiveWeights) and found.scores is not None:
            found = dataclasses.replace(found, scores=found.scores / repeat)
        return dataclasses.replace(found, names=state.names)

    def _rule(self, state: fits.State, default_sharing: Callable[[], float]) -> WeightRule:
        weights = self.weights
        if isinstance(weights, WeightRule):
            return weights
        if isinstance(weights, Mapping):
            named = {str(name): weight for name, weight in weights.items()}
            return GivenWeights(_given(named, state.names, state.gone))
        if not isinstance(weights, str):
            raise ParameterError(
                "weights must be 'predictive', 'equal', 'wasserstein', a weight rule or a mapping name -> weight; "
                f"got {weights!r}"
            )
        check_choice("weights", weights, ("predictive", "equal", "wasserstein"))
        if weights == "predictive":
            return PredictiveWeights(default_sharing() if self.sharing is None else self.sharing)
        return EqualWeights() if weights == "equal" else WassersteinWeights(TEMPERATURE)


def _given(weights: dict[str, float], names: Sequence[str], gone: frozenset[str]) -> list[float]:
    """Weights in the order of the domains, divided by their sum if sources were forgotten."""
    unknown = [name for name in weights if name not in names and name not in gone]
    if unknown:
        raise ParameterError(f'weights names "{unknown[0]}", which is not a domain; {nearest(unknown[0], list(names))}')
    missing = [name for name in names if name not in weights]
    if missing:
        raise ParameterError(f"weights has no entry for {quoted(missing)}; give every domain a weight, 0 leaves it out")
    values = [weights[name] for name in names]
    total = sum(values) if gone else 0.0
    return [value / total for value in values] if total > 0 else values
