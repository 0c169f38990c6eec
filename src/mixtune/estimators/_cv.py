"""Estimators with nothing to set: the choice is made by :func:`mixtune.selection.choose`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.extmath import randomized_svd
from sklearn.utils.validation import check_is_fitted

from mixtune._checks import check_whole
from mixtune.data._words import nearest
from mixtune.errors import ParameterError
from mixtune.estimators._base import LinearTransferRegressor, column_names, read_sources
from mixtune.estimators._chosen import Candidate, RidgePath, candidates_of, path_of, posterior_of, solution_of
from mixtune.estimators._classifier import LinearTransferClassifier
from mixtune.estimators._fixed import Heads, Solved, State, local_heads
from mixtune.estimators._leave_one_out import LeaveOneOut
from mixtune.estimators._prepare import Prepared, prepare
from mixtune.estimators._rows import Floats, Rows, trim
from mixtune.estimators._saving import savable
from mixtune.estimators._sources import as_sources
from mixtune.estimators._stored_values import storable
from mixtune.estimators._uncertainty import Uncertainty
from mixtune.estimators._weighing import TEMPERATURE, domains_of
from mixtune.regret import RegretSolution
from mixtune.selection import (
    Choice,
    Comparison,
    Task,
    TransferGain,
    choose,
    compare,
    joint_left_out,
    mean_left_out,
    transfer_gain,
)
from mixtune.weights import DomainWeights, TransportWeights, WassersteinWeights

__all__ = ["RegretOptimalClassifierCV", "RegretOptimalRegressorCV", "Removal"]

#: Widest design that candidates are computed on; wider ones are projected to so many principal directions.
WIDEST = 512
#: Ridge of the local heads, on standardised features.
HEAD_RIDGE = 1.0
#: How far beyond the range of the training rows features may lie, as a part of that range: the first number, and the
#: second over the number of rows, since few rows hardly know their range.
MARGIN = (0.25, 20.0)
#: Left-out residuals below this part of the targets' standard deviation are rounding, and compared as zero.
ROUNDING = 1e-12
#: Fewer focal rows than this are stated.
FEW = 5
#: Most pairs of rows for which distances are computed without being asked for twice.
PAIRS = 10**8


@storable
@dataclass(frozen=True)
class Removal:
    """What leaving one source out would change.

    Attributes
    ----------
    name : str
    loo_error : float
        Leave-one-out mean squared error without it.
    change : float
        Relative change of its root; positive means that the source helps.
    shift : float
        Root mean square change of the predictions of the focal rows.
    """

    name: str
    loo_error: float
    change: float
    shift: float


storable(Comparison)
storable(TransferGain)


@savable
class RegretOptimalRegressorCV(LinearTransferRegressor):
    """Transfer with nothing to set: weights, metric and effective ridge are chosen and averaged by the data.

    Candidates are ridge fits to the focal rows around priors made from the sources: regret-optimal fine-tuning of a
    pre-trained head at one effective ridge each. Their shares come from letting sources play the focal domain and from
    leave-one-out on the focal rows; the fit to the focal rows alone is always among them. Without sources this is ridge
    regression with averaged ridges.

    Parameters
    ----------
    feature_map : FeatureMap, optional
        phi; None takes the inputs as they are.
    standardise, fit_intercept : bool
        As for :class:`RegretOptimalRegressor`.
    clamp : bool
        With sources, move features far beyond the range of all training rows (a quarter of the range, and more where
        rows are few) to that edge before predicting, so that one absurd row cannot have an absurd prediction.
    focal_name : str
        What the focal rows are called beside the sources.
    seed : int
        Which rows and sources play.

    Attributes
    ----------
    coef_, intercept_ : arrays (p,) or (p, D), and scalar or (D,)
        Averages over the candidates.
    weights_ : DomainWeights
        What share of the prediction each domain provides: of the focal domain, the part of the fitted degrees of
        freedom that comes from its rows; of the sources, the rest, as they make up the prior mean. ``scores`` are the
        mean squared errors of the domains' own heads on the focal rows.
    effective_ridge_ : float
        The average effective ridge (of its logarithm), on standardised features.
    candidates_ : tuple of Candidate
        What went into the average, largest share first (of the first output).
    solution_ : RegretSolution
        Trajectory, energy and regret of the largest share (first output), in its prior's metric and about its mean.
    ridge_path_ : RidgePath
        Leave-one-out error along effective ridges, for the prior of the largest share.
    loo_error_ : float
        Leave-one-out mean squared error on the focal rows, with shares and weights held fixed.
    compared_ : tuple of Comparison
        The same for focal rows alone, all rows pooled, and the mean of local heads, with standard errors.
    transfer_gain_ : TransferGain
        By what part transfer cuts the error of the focal rows alone, from the plays and leave-one-out together.
    distances_ : TransportWeights or None
        1-Wasserstein distances to the focal rows with the sampling floor; computed when first asked for.
    heads_, head_intercepts_ : arrays (N, p[, D]) and (N[, D])
        Local ridge heads, ridge 1 on standardised features.
    n_plays_ : int
        How many sources played the focal domain.
    notes_ : tuple of str
        Fallbacks that were taken.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> draw = lambda n, slope: (x := rng.standard_normal((n, 1)), slope * x[:, 0] + rng.standard_normal(n))
    >>> sources = {"a": draw(80, 2.0), "b": draw(80, 2.1), "c": draw(80, 1.9), "reversed": draw(80, -2.0)}
    >>> X, y = draw(12, 2.0)
    >>> model = RegretOptimalRegressorCV().fit(X, y, sources=sources)
    >>> weights = model.weights_.as_dict()
    >>> bool(abs(model.coef_[0] - 2.0) < 0.3), weights["reversed"] < min(weights["a"], weights["b"], weights["c"])
    (True, True)
    """

    _stored_attributes: ClassVar[tuple[str, ...]] = (
        "weights_",
        "effective_ridge_",
        "candidates_",
        "solution_",
        "ridge_path_",
        "compared_",
        "transfer_gain_",
        "n_plays_",
        "notes_",
        "_distances",
        "_removals",
        "_low",
        "_high",
    )

    weights_: DomainWeights
    effective_ridge_: float
    candidates_: tuple[Candidate, ...]
    solution_: RegretSolution
    ridge_path_: RidgePath
    compared_: tuple[Comparison, ...]
    transfer_gain_: TransferGain
    n_plays_: int
    notes_: tuple[str, ...]
    _distances: TransportWeights | None
    _removals: tuple[Removal, ...] | None
    _comparable: Prepared | None
    _choices: tuple[Choice, ...] | None
    _inputs: dict[str, Rows] | None
    _low: Floats | None
    _high: Floats | None

    def __init__(
        self,
        feature_map: Any = None,
        *,
        standardise: bool = True,
        fit_intercept: bool = True,
        clamp: bool = True,
        focal_name: str = "focal",
        seed: int = 0,
    ) -> None:
        self.feature_map = feature_map
        self.standardise = standardise
        self.fit_intercept = fit_intercept
        self.clamp = clamp
        self.focal_name = focal_name
        self.seed = seed

    @property
    def distances_(self) -> TransportWeights | None:
        """Transport distances to the focal rows and the sampling floor; None without sources or with too many rows."""
        check_is_fitted(self, "coef_")
        if self._distances is None and self._comparable is not None:
            rows = [len(part.X) for part in self._comparable.rows]
            if len(rows) > 1 and rows[0] * sum(rows) <= PAIRS:
                domains, feature_map = domains_of(self._comparable, standardise=self.standardise)
                found = WassersteinWeights(TEMPERATURE).weigh(domains=domains, feature_map=feature_map)
                assert isinstance(found, TransportWeights)
                self._distances = found
            self._comparable = None
        return self._distances

    def partial_fit(self, X: Any = None, y: Any = None, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Add focal rows, rows of known sources, or new sources, and choose again over all rows.

        The result is that of ``fit`` with all rows. Called first, this is ``fit``. A model from a file holds no rows.
        """
        if not hasattr(self, "coef_"):
            return self.fit(X, y, sample_weight, sources=sources)
        self._check_parameters()
        if (X is None) != (y is None):
            raise ParameterError("pass X and y together, or neither to add sources only")
        rows, focal = self._kept_rows(), self.domain_names_[0]
        if X is not None:
            added = trim(self._read_focal(X, y, sample_weight, reset=False))
            if added.y.shape[1:] != rows[focal].y.shape[1:]:
                raise ParameterError(
                    f"y has shape {added.y.shape}, the fit had {rows[focal].y.shape}; pass the same outputs"
                )
            rows[focal] = rows[focal].joined(added)
        for name, new in read_sources(as_sources(sources), rows[focal], column_names(self), focal).items():
            rows[name] = rows[name].joined(new) if name in rows else new
        return self._refit(rows)

    def forget(self, name: str) -> Self:
        """Remove a source exactly: the result is that of ``fit`` without it."""
        check_is_fitted(self, "coef_")
        rows = self._kept_rows()
        if name == self.domain_names_[0]:
            raise ParameterError(f'"{name}" is the focal domain and cannot be forgotten; fit again with other rows')
        if name not in rows:
            raise ParameterError(f'there is no source "{name}"; {nearest(str(name), self.domain_names_[1:])}')
        del rows[name]
        return self._refit(rows)

    def _kept_rows(self) -> dict[str, Rows]:
        if self._inputs is None:
            raise ParameterError("a model from a file holds no rows to choose from again; call fit with all rows")
        return dict(self._inputs)

    def _refit(self, rows: dict[str, Rows]) -> Self:
        prepared = prepare(
            list(rows),
            list(rows.values()),
            feature_map=self.feature_map,
            columns=column_names(self),
            standardise=self.standardise,
            fit_intercept=self.fit_intercept,
        )
        solved = self._solve(prepared)
        self._scaling = prepared.scaling
        self._store(solved, prepared.names)
        return self

    def removal_effects(self) -> tuple[Removal, ...]:
        """What leaving out each source would change, in closed form.

        The shares of the candidates are kept, and so is what was learned of how domains differ.

        A model that comes from a file knows it only if it was asked before it was saved.
        """
        check_is_fitted(self, "coef_")
        if self._removals is None:
            if self._choices is None:
                raise ParameterError(
                    "this model was saved without the effects of removing sources; call removal_effects() before save"
                )
            names = self.domain_names_[1:]
            self._removals = tuple(self._removal(index, name) for index, name in enumerate(names))
        return self._removals

    def _removal(self, index: int, name: str) -> Removal:
        assert self._choices is not None
        before, after, moved = 0.0, 0.0, 0.0
        for choice in self._choices:
            head, left_out = choice.without(index)
            task = choice.task
            after += float(task.error(left_out))
            kept = choice.left_out if len(choice.left_out) == len(left_out) else choice.without(None)[1]
            before += float(task.error(kept))
            moved += float(task.error(task.design @ (head - choice.head)))
        count = len(self._choices)
        change = float(np.sqrt(after / before)) - 1.0 if 0 < before < np.inf else 0.0
        return Removal(name, after / count, change, float(np.sqrt(moved / count)))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_whole("seed", self.seed)

    def _feature_range(self) -> tuple[Any, Any]:
        return self._low, self._high

    def _get_stored(self) -> dict[str, Any]:
        self.distances_  # noqa: B018  computed now, since the file holds no rows to compute it from
        return super()._get_stored()

    def _set_stored(self, values: dict[str, Any]) -> None:
        super()._set_stored(values)
        self._comparable = self._choices = self._inputs = None

    def _solve(self, prepared: Prepared) -> Solved:
        basis, notes = _basis(prepared, self.seed)
        notes += _row_notes(prepared)
        outputs = prepared.rows[0].targets.shape[1]
        tasks = [_tasks(prepared, output, basis) for output in range(outputs)]
        choices = [choose(own[0], own[1:], seed=self.seed) for own in tasks]
        heads = local_heads(State.of(prepared), HEAD_RIDGE)
        coef, intercept = _heads_of(choices, prepared, basis)
        self._set_range(prepared)
        weights = _weights_of(choices, prepared, heads)
        single = prepared.single_output
        return Solved(
            coef[:, 0] if single else coef,
            intercept[0] if single else intercept,
            _uncertainty_of(choices, prepared, basis),
            {
                "weights_": weights,
                "effective_ridge_": float(np.exp(np.mean([c.shares @ np.log(c.ridges) for c in choices]))),
                "candidates_": candidates_of(choices[0], weights.names),
                "solution_": solution_of(choices[0].prior, tasks[0][0], choices[0].size),
                "ridge_path_": path_of(choices[0]),
                **_comparisons(choices, tasks, heads, basis),
                "n_plays_": min(c.n_plays for c in choices),
                "notes_": notes,
                "_distances": None,
                "_removals": None,
                "_comparable": prepared,
                "_inputs": dict(zip(prepared.names, prepared.inputs)),
                "_choices": tuple(choices),
            },
            heads,
        )

    def _set_range(self, prepared: Prepared) -> None:
        self._low = self._high = None
        if self.clamp and len(prepared.rows) > 1:
            low = np.min([rows.X.min(axis=0) for rows in prepared.rows], axis=0)
            high = np.max([rows.X.max(axis=0) for rows in prepared.rows], axis=0)
            margin = (MARGIN[0] + MARGIN[1] / sum(len(rows.X) for rows in prepared.rows)) * (high - low)
            scaling = prepared.scaling
            self._low = (low - margin) * scaling.scale + scaling.shift
            self._high = (high + margin) * scaling.scale + scaling.shift


@savable
class RegretOptimalClassifierCV(LinearTransferClassifier):
    """Classification with nothing to set, by :class:`RegretOptimalRegressorCV` on signed one-hot targets.

    Attributes
    ----------
    classes_ : array (K,)
        All classes of focal rows and sources, sorted.
    regressor_ : RegretOptimalRegressorCV
        The fitted scores, with weights, candidates and comparisons.
    sharpness_ : float
        Probabilities are ``softmax(sharpness_ * scores)``.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array(["no", "no", "yes", "yes"])
    >>> model = RegretOptimalClassifierCV().fit(X, y, sources={"b": (X + 0.1, y)})
    >>> model.predict([[-1.0], [4.0]])
    array(['no', 'yes'], dtype='<U3')
    """

    def __init__(
        self,
        feature_map: Any = None,
        *,
        standardise: bool = True,
        fit_intercept: bool = True,
        clamp: bool = True,
        focal_name: str = "focal",
        seed: int = 0,
    ) -> None:
        self.feature_map = feature_map
        self.standardise = standardise
        self.fit_intercept = fit_intercept
        self.clamp = clamp
        self.focal_name = focal_name
        self.seed = seed

    def _make_regressor(self) -> LinearTransferRegressor:
        return RegretOptimalRegressorCV(**self.get_params(deep=False))


def _row_notes(prepared: Prepared) -> tuple[str, ...]:
    """What the rows themselves leave open."""
    focal = prepared.rows[0]
    found = []
    count = focal.weight.sum()
    if count < FEW:
        rows = "1 focal row" if count == 1 else f"{count:g} focal rows"
        found.append(f"only {rows}: leave-one-out says little about what suits them")
    if np.all(focal.targets == focal.targets[0]):
        found.append("every focal target is the same; what differs can only come from the sources")
    if apart := _columns_apart(prepared):
        told = (
            f"{apart} of {focal.X.shape[1]} columns of the sources lie far from the focal rows; were they prepared in "
            "the same way? Steps in front of the estimator in a pipeline do not see the sources: use feature_map"
        )
        warnings.warn(told, UserWarning, stacklevel=5)
        found.append(told)
    single = [name for name, rows in zip(prepared.names[1:], prepared.rows[1:]) if len(rows.X) == 1]
    if single:
        shown = ", ".join(single[:3]) + (", ..." if len(single) > 3 else "")
        found.append(f"{len(single)} source{'s have' if len(single) > 1 else ' has'} one row only: {shown}")
    return tuple(found)


def _columns_apart(prepared: Prepared) -> int:
    """How many columns have sources and focal rows lie five spreads of either apart, if these are most columns."""
    if len(prepared.rows) == 1:
        return 0
    focal, others = prepared.inputs[0].X, np.concatenate([rows.X for rows in prepared.inputs[1:]])
    spread = np.maximum(focal.std(axis=0), others.std(axis=0))
    far = np.abs(focal.mean(axis=0) - others.mean(axis=0)) > 5 * np.where(spread > 0, spread, np.inf)
    return int(far.sum()) if 2 * far.sum() > len(far) else 0


def _basis(prepared: Prepared, seed: int) -> tuple[Floats | None, tuple[str, ...]]:
    """Principal directions (p, k) to work in where there are very many columns, and a note that says so."""
    width = prepared.rows[0].X.shape[1]
    if width <= WIDEST:
        return None, ()
    if len(prepared.rows) == 1:
        # Ridge regression around zero stays in the span of its rows, so that nothing is lost.
        alone = prepared.rows[0].X
        return (np.linalg.svd(alone, full_matrices=False)[2].T if len(alone) < width else None), ()
    pooled = np.concatenate([rows.X for rows in prepared.rows])
    if len(pooled) > 8 * WIDEST:
        keep = np.random.default_rng(seed).choice(len(pooled), 8 * WIDEST, replace=False)
        pooled = np.concatenate([prepared.rows[0].X, pooled[keep]])
    rank = min(WIDEST, *pooled.shape)
    basis = randomized_svd(pooled, rank, n_iter=2, random_state=seed)[2].T
    return basis, (f"{width} features: candidates were computed in their {rank} leading principal directions",)


def _tasks(prepared: Prepared, output: int, basis: Floats | None) -> list[Task]:
    """Every domain as a task for one output, the constant first where there is an intercept."""
    found = []
    for rows in prepared.rows:
        design = rows.X if basis is None else rows.X @ basis
        if prepared.fit_intercept:
            design = np.column_stack([np.ones(len(design)), design])
        found.append(Task(design, rows.targets[:, output], rows.weight, prepared.fit_intercept))
    return found


def _heads_of(choices: Sequence[Choice], prepared: Prepared, basis: Floats | None) -> tuple[Floats, Floats]:
    heads = np.column_stack([choice.head for choice in choices])
    intercept = heads[0] if prepared.fit_intercept else np.zeros(len(choices))
    slopes = heads[1:] if prepared.fit_intercept else heads
    return slopes if basis is None else basis @ slopes, intercept


def _weights_of(choices: Sequence[Choice], prepared: Prepared, heads: Heads) -> DomainWeights:
    values = np.zeros(len(prepared.names))
    for choice in choices:
        own = np.where(choice.weights.sum(axis=1) > 0, choice.own, 1.0)
        values[0] += choice.shares @ own
        values[1:] += (choice.shares * (1 - own)) @ choice.weights
    rows = prepared.rows[0]
    share = rows.weight / rows.weight.sum()
    targets = rows.targets
    scores = np.array(
        [
            float(share @ np.mean((targets - rows.X @ c.reshape(-1, targets.shape[1]) - i.reshape(-1)) ** 2, axis=1))
            for c, i in zip(heads.coef, heads.intercept)
        ]
    )
    return DomainWeights(values / values.sum(), prepared.names, 0, "cross-validated", scores)


def _uncertainty_of(choices: Sequence[Choice], prepared: Prepared, basis: Floats | None) -> Uncertainty:
    rows = prepared.rows[0]
    residuals = np.column_stack([choice.left_out for choice in choices])
    inflation = float(np.mean([choice.inflation for choice in choices]))
    # Several outputs have a posterior each; they are taken to be equally uncertain everywhere.
    single = len(choices) == 1
    spreads = choices[0].spreads if single else np.ones(len(residuals))
    left_out = LeaveOneOut(rows.targets - residuals, residuals, spreads / inflation**2, rows.weight)
    posterior = posterior_of(choices[0], basis) if single else None
    return Uncertainty.known(left_out, posterior)


def _comparisons(
    choices: Sequence[Choice], tasks: Sequence[Sequence[Task]], heads: Heads, basis: Floats | None
) -> dict[str, Any]:
    """Left-out residuals of all methods, over rows and outputs, compared with ours."""
    residuals: dict[str, list[Floats]] = {"ours": [], "focal only": [], "joint": [], "mean of locals": []}
    flat = heads.coef.reshape(len(heads.coef), heads.coef.shape[1], -1)
    levels = heads.intercept.reshape(len(heads.coef), -1)
    for output, (choice, own) in enumerate(zip(choices, tasks)):
        residuals["ours"].append(choice.left_out)
        residuals["focal only"].append(choice.focal_left_out)
        slopes = flat[1:, :, output] if basis is None else flat[1:, :, output] @ basis
        local = np.column_stack([levels[1:, output], slopes]) if own[0].intercept else slopes
        if len(own) > 1:
            residuals["joint"].append(joint_left_out(own[0], own[1:]))
            residuals["mean of locals"].append(mean_left_out(own[0], choice.focal_left_out, local))
    weight = np.concatenate([own[0].weight for own in tasks])
    least = np.repeat([ROUNDING * choice.size for choice in choices], len(tasks[0][0].y))
    joined = {name: np.concatenate(parts) for name, parts in residuals.items() if len(parts) > 0}
    counted = {name: np.where(np.abs(parts) > least, parts, 0.0) for name, parts in joined.items()}
    found = {name: compare(name, counted["ours"], parts, weight) for name, parts in counted.items()}
    gains = np.mean([choice.play_gains for choice in choices], axis=0)
    return {
        "compared_": tuple(found.values()),
        "transfer_gain_": transfer_gain(found["focal only"], gains, float(tasks[0][0].count)),
    }
