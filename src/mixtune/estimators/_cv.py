"""The regressor that tunes itself: :func:`mixtune.selection.choose` chooses and averages its candidates.

The estimator comes first, then the fit: from prepared rows to the choice, and from choices to coefficients, weights
and candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg
from sklearn.utils.extmath import randomized_svd
from sklearn.utils.validation import check_is_fitted

from mixtune._array import Floats, Integers
from mixtune._checks import check_whole
from mixtune._messages import Note
from mixtune._registry import storable
from mixtune.errors import ParameterError
from mixtune.estimators._base import (
    LinearTransferRegressor,
    Settings,
    check_both,
    check_source,
    column_names,
    transport_distances,
)
from mixtune.estimators._fits import (
    ROUNDING,
    Heads,
    Prepared,
    Solved,
    State,
    Uncertainty,
    compared_of,
    like_targets,
    local_heads,
)
from mixtune.estimators._inputs import as_sources, read_sources
from mixtune.estimators._saving import savable
from mixtune.moments import LeaveOneOut, Moments, Posterior, Rows, chunks, roots_of, weighted_system
from mixtune.regret import RegretProblem, RegretSolution, solve
from mixtune.selection import (
    Choice,
    Comparison,
    Prior,
    Sample,
    TransferGain,
    choose,
    joint_left_out,
    mean_left_out,
    sample_sources,
    transfer_gain,
)
from mixtune.weights import DomainWeights, TransportWeights

#: Transport distances are computed only up to this many pairs of a focal row and any row; beyond, they take minutes.
MAX_PAIRS = 10**8
#: Ridge of the local heads, on standardised features.
HEAD_RIDGE = 1.0
#: Widest design that candidates are computed on; wider ones are projected to so many principal directions.
WIDEST = 512
#: How far beyond the range of the training rows features may lie, as a part of that range: the first number, and the
#: second over the number of rows, since few rows hardly know their range.
MARGIN = (0.25, 20.0)
#: Fewer focal rows than this are stated.
FEW = 5
HORIZON = 10
#: Most sources whose removal is worked out: the heaviest.
MOST_REMOVALS = 100
#: Candidates with a smaller share are left out of the list.
SMALLEST = 1e-4


@storable
@dataclass(frozen=True, eq=False)
class Candidate:
    """One of the fits that went into the average.

    Attributes
    ----------
    family : str
        "focal only", "alike", "nearest", "similar", "groups", "context", "stacked" or "pooled";
        "similar" and "pooled" also with ", one level": one intercept for all sources.
    settings : dict
        What tells it from others of its family.
    effective_ridge, loo_error, share : float
    play_error : float or None
        Mean squared error over the plays relative to the best candidate of each play.
    weights : array (N,)
        Weights of the domains, the focal one first.
    """

    family: str
    settings: dict[str, Any]
    effective_ridge: float
    loo_error: float
    play_error: float | None
    share: float
    weights: Floats


@storable
@dataclass(frozen=True, eq=False)
class RidgePath:
    """Leave-one-out error along effective ridges for one prior, and the place of the largest share."""

    ridges: Floats
    loo_errors: Floats
    chosen: int


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


@dataclass(eq=False, repr=False)
class TunedSettings(Settings):
    """Parameters shared by the regressor and the classifier that tune themselves."""

    _: KW_ONLY
    clamp: bool = True
    seed: int = 0


@savable
class RegretOptimalRegressorCV(TunedSettings, LinearTransferRegressor):
    """Transfer learning with nothing to set: the data choose weights, metric and effective ridge.

    The prediction averages many candidates. Each candidate is a ridge fit to the focal rows around a prior learned from
    the sources, that is, the regret-optimal fine-tuning of a pre-trained model at one effective ridge. The weights of
    the average come from cross-domain validation, in which each source takes the focal role in turn, and from
    leave-one-out on the focal rows. The fit to the focal rows alone is always a candidate. Without sources this is
    ridge regression averaged over ridges. Streamed sources contribute a sample of their rows
    (``StreamedSources(sample_rows=...)``).

    Parameters
    ----------
    feature_map : FeatureMap, optional
        phi; None takes the inputs as they are.
    standardise, fit_intercept : bool
        As for :class:`RegretOptimalRegressor`.
    clamp : bool
        With sources, clip features that lie far outside the range of all training rows (by more than a quarter of the
        range, with a wider margin for few rows) before predicting, so that an extreme input has a bounded effect.
    focal_name : str
        The name of the focal domain.
    seed : int
        Draws the rows and sources of cross-domain validation.
    device : str
        Where features are computed: "cpu" for NumPy, or "cuda" ("cuda:1" is the second) for PyTorch on a CUDA device,
        block by block, as for :class:`RegretOptimalRegressor`. They return as NumPy arrays, from which the choice is
        computed on the host. ``predict`` falls back to NumPy if the device is missing.

    Attributes
    ----------
    coef_, intercept_ : arrays (p,) or (p, D), and scalar or (D,)
        Averages over the candidates.
    weights_ : DomainWeights
        The share of the prediction that each domain provides. The focal domain's share is the part of the fitted
        degrees of freedom that its own rows supply; the sources divide the rest as they contribute to the prior
        mean, negative contributions counted as zero. ``scores`` are the mean squared errors of the domains' own
        models on the focal rows.
    effective_ridge_ : float
        The average effective ridge (of its logarithm), on standardised features.
    candidates_ : tuple of Candidate
        The candidates of the average, largest share first (of the first output).
    solution_ : RegretSolution
        Trajectory, energy and regret of the candidate with the largest share (first output), in the metric of its
        prior and relative to its prior mean.
    ridge_path_ : RidgePath
        Leave-one-out error against the effective ridge, for the prior with the largest share.
    loo_error_ : float
        Leave-one-out mean squared error on the focal rows, with shares and weights held fixed.
    compared_ : tuple of Comparison
        The same for focal rows alone, all rows pooled, and the mean of the local models, with standard errors.
    transfer_gain_ : TransferGain
        The relative reduction of the error against the focal rows alone, from cross-domain validation and
        leave-one-out together.
    distances_ : TransportWeights or None
        1-Wasserstein distances to the focal rows with the sampling floor; computed on first access.
    heads_, head_intercepts_ : arrays (N, p[, D]) and (N[, D])
        Local ridge models, with ridge 1 on standardised features.
    n_plays_ : int
        How many sources took the focal role in cross-domain validation.
    notes_ : tuple of str
        Fallbacks that were used, such as priors learned from a sample of more than 512 sources.

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
        *("weights_", "effective_ridge_", "candidates_", "solution_", "ridge_path_", "compared_", "transfer_gain_"),
        *("n_plays_", "notes_", "_distances", "_removals", "_low", "_high"),
    )

    weights_: DomainWeights
    effective_ridge_: float
    candidates_: tuple[Candidate, ...]
    ridge_path_: RidgePath
    compared_: tuple[Comparison, ...]
    transfer_gain_: TransferGain
    n_plays_: int
    notes_: tuple[str, ...]
    _solution: RegretSolution | None
    _focal_sample: Sample
    _distances: TransportWeights | None
    _removals: tuple[Removal, ...] | None
    _comparable: Prepared | None
    _choices: tuple[Choice, ...] | None
    _places: Integers
    _inputs: dict[str, Rows] | None
    _low: Floats | None
    _high: Floats | None

    @property
    def solution_(self) -> RegretSolution:
        """Regret-optimal fine-tuning of the candidate with the largest share (first output); solved on first access."""
        check_is_fitted(self, "coef_")
        if self._solution is None:
            assert self._choices is not None
            first = self._choices[0]
            self._solution = solution_of(first.prior, self._focal_sample, first.size)
        return self._solution

    @property
    def distances_(self) -> TransportWeights | None:
        """Transport distances to the focal rows with the sampling floor; None without sources or with too many rows."""
        check_is_fitted(self, "coef_")
        if self._distances is None and self._comparable is not None:
            rows = [len(part.X) for part in self._comparable.rows]
            if len(rows) > 1 and rows[0] * sum(rows) <= MAX_PAIRS:
                self._distances = transport_distances(self._comparable, standardise=self.standardise)
            self._comparable = None
        return self._distances

    def partial_fit(self, X: Any = None, y: Any = None, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Add focal rows, rows of known sources, or new sources, and choose again from all rows.

        The result equals that of ``fit`` with all rows. On an unfitted estimator this is ``fit``. A model loaded from a
        file holds no rows and cannot be updated.
        """
        if not hasattr(self, "coef_"):
            return self.fit(X, y, sample_weight, sources=sources)
        self._check_parameters()
        check_both(X, y)
        rows, focal = self._kept_rows(), self.domain_names_[0]
        if X is not None:
            added = self._read_focal(X, y, sample_weight)
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
        check_source(name, self.domain_names_)
        del rows[name]
        return self._refit(rows)

    def _kept_rows(self) -> dict[str, Rows]:
        if self._inputs is None:
            raise ParameterError("a model from a file holds no rows to choose from again; call fit with all rows")
        return dict(self._inputs)

    def _refit(self, rows: dict[str, Rows]) -> Self:
        self._learn_prepared(self._prepare_rows(rows))
        return self

    def removal_effects(self) -> tuple[Removal, ...]:
        """The effect of leaving out each source, in closed form.

        The weights of the candidates and the learned covariances between domains are kept. With more than 100 sources,
        only the 100 of largest weight are evaluated; sources that were not used for learning (see ``notes_``) have no
        effect.

        A model loaded from a file has these effects only if they were computed before it was saved.
        """
        check_is_fitted(self, "coef_")
        if self._removals is None:
            if self._choices is None:
                raise ParameterError(
                    "this model was saved without the effects of removing sources; call removal_effects() before save"
                )
            names, weights = self.domain_names_[1:], self.weights_.values[1:]
            self._removals = removals_of(self._choices, names, self._places, weights) if names else ()
        return self._removals

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_whole("seed", self.seed)

    def _feature_range(self) -> tuple[Any, Any]:
        return self._low, self._high

    def _get_stored(self) -> dict[str, Any]:
        self.distances_  # noqa: B018  computed now, since the file holds no rows to compute it from
        return super()._get_stored()

    def _set_stored(self, values: dict[str, Any]) -> None:
        self._solution = values.pop("solution_")
        super()._set_stored(values)
        self._comparable = self._choices = self._inputs = None

    def _solve(self, prepared: Prepared) -> Solved:
        return tuned_fit(prepared, seed=self.seed, device=self.device, clamp=self.clamp)


def tuned_fit(prepared: Prepared, *, seed: int, device: str = "cpu", clamp: bool = True) -> Solved:
    """Choose for every output, and put together what an estimator stores.

    Local heads and the choice read the same moments.
    """
    basis, notes = _principal_basis(prepared, seed)
    notes += _row_notes(prepared)
    places, sampled = _source_places(prepared, seed)
    state = State.of(prepared)
    heads = local_heads(state, HEAD_RIDGE, device)
    moments: Sequence[Moments] = state.moments
    if basis is not None:  # the constant stays the last feature
        matrix = scipy.linalg.block_diag(basis, 1.0)
        moments = [m.mapped(matrix) for m in moments]
    outputs = range(prepared.focal.targets.shape[1])
    samples = [_samples(prepared, moments, basis, places, output) for output in outputs]
    choices = [choose(own[0], own[1:], seed=seed) for own in samples]
    coef, intercept = like_targets(prepared.focal, *_coefficients(choices, prepared, basis))
    low, high = _feature_range(prepared) if clamp and len(prepared.names) > 1 else (None, None)
    weights = _domain_weights(choices, prepared, heads, places)
    return Solved(
        coef,
        intercept,
        # Leave-one-out and posterior of the average, both made when first asked for.
        Uncertainty(partial(_left_out, choices, prepared.focal), partial(posterior_of, choices, basis)),
        {
            "weights_": weights,
            "effective_ridge_": float(np.exp(np.mean([c.shares @ np.log(c.ridges) for c in choices]))),
            "candidates_": candidates_of(choices[0], len(weights.names), places),
            "ridge_path_": path_of(choices[0]),
            **_comparisons(choices, [own[0] for own in samples], moments, basis, heads),
            "n_plays_": min(c.n_plays for c in choices),
            "notes_": notes + sampled,
            "_low": low,
            "_high": high,
            "_solution": None,
            "_distances": None,
            "_removals": None,
            "_comparable": prepared,
            "_inputs": dict(zip(prepared.names, prepared.inputs)),
            "_choices": tuple(choices),
            "_focal_sample": samples[0][0],
            "_places": places,
        },
        heads,
    )


def _samples(
    prepared: Prepared, moments: Sequence[Moments], basis: Floats | None, places: Integers, output: int
) -> list[Sample]:
    """The focal domain and the sources that priors are learned from, for one output, in the directions of the basis."""
    found = []
    for place in (0, *(1 + places).tolist()):
        rows = prepared.focal if place == 0 else prepared.scaling.apply(prepared.mapped[place])
        X = rows.X if basis is None else rows.X @ basis
        one = Rows(X, rows.targets[:, output], rows.sample_weight)
        found.append(Sample(moments[place].output(output), one, intercept=prepared.fit_intercept))
    return found


def _row_notes(prepared: Prepared) -> tuple[str, ...]:
    """What the rows themselves leave open."""
    focal = prepared.inputs[0]
    found: list[str] = []
    count = focal.total
    if count < FEW:
        rows = "1 focal row" if count == 1 else f"{count:g} focal rows"
        found.append(f"only {rows}: leave-one-out says little about what suits {'it' if count == 1 else 'them'}")
    if len(focal.y) > 1 and np.all(focal.targets == focal.targets[0]):
        found.append("every focal target is the same; what differs can only come from the sources")
    single = [name for name, rows in zip(prepared.names[1:], prepared.inputs[1:]) if len(rows.X) == 1]
    if single:
        shown = ", ".join(single[:3]) + (", ..." if len(single) > 3 else "")
        have = "sources have" if len(single) > 1 else "source has"
        found.append(Note("one-row", "{count} {have} one row only: {names}", count=len(single), have=have, names=shown))
    return tuple(found)


def _principal_basis(prepared: Prepared, seed: int) -> tuple[Floats | None, tuple[str, ...]]:
    """Principal directions (p, k) to work in where there are very many columns, and a note that says so."""
    width = prepared.focal.shape[1]
    if width <= WIDEST:
        return None, ()
    if len(prepared.names) == 1:
        # Ridge regression around zero stays in the span of its rows, so that nothing is lost.
        alone = prepared.focal.X
        return (np.linalg.svd(alone, full_matrices=False)[2].T if len(alone) < width else None), ()
    count = sum(len(rows.X) for rows in prepared.rows)
    if count > 8 * WIDEST:
        keep = np.random.default_rng(seed).choice(count, 8 * WIDEST, replace=False)
        pooled = np.concatenate([prepared.focal.X, _rows_at(prepared, keep)])
    else:
        pooled = np.concatenate([rows.X for rows in prepared.rows])
    rank = min(WIDEST, *pooled.shape)
    basis = randomized_svd(pooled, rank, n_iter=2, random_state=seed)[2].T
    return basis, (f"{width} features: candidates were computed in their {rank} leading principal directions",)


def _rows_at(prepared: Prepared, keep: Integers) -> Floats:
    """Rows of all domains, joined, at given places; without joining them."""
    ends = np.cumsum([len(rows.X) for rows in prepared.rows])
    domain = np.searchsorted(ends, keep, side="right")
    return np.stack([prepared.rows[d].X[k - ends[d]] for d, k in zip(domain, keep)])


def _source_places(prepared: Prepared, seed: int) -> tuple[Integers, tuple[str, ...]]:
    """Which sources priors are learned from, counted without the focal domain, and a note where not all are."""
    count = len(prepared.names) - 1
    places = sample_sources(prepared.mapped[1:], seed=seed, prepare=prepared.scaling.apply)
    if len(places) == count:
        return places, ()
    told = f"{count} sources: priors were learned from {len(places)} of them, drawn at random (seed {seed})"
    return places, (told,)


def _coefficients(choices: Sequence[Choice], prepared: Prepared, basis: Floats | None) -> tuple[Floats, Floats]:
    """Coefficients (p, D) and intercepts (D,)."""
    heads = np.column_stack([choice.head for choice in choices])
    slopes, intercept = (heads[:-1], heads[-1]) if prepared.fit_intercept else (heads, np.zeros(len(choices)))
    return slopes if basis is None else basis @ slopes, intercept


def _domain_weights(choices: Sequence[Choice], prepared: Prepared, heads: Heads, places: Integers) -> DomainWeights:
    """Weights of all domains: sources that no prior was learned from have none."""
    count = len(prepared.names)
    values = np.sum([_weights_of(c, slice(None), c.shares, count, places) for c in choices], axis=0)
    errors = _focal_errors(prepared.focal, heads)
    return DomainWeights(values / values.sum(), prepared.names, 0, "cross-validated", errors)


def _weights_of(choice: Choice, index: Any, shares: Floats, count: int, places: Integers) -> Floats:
    """Weights of ``count`` domains in candidates, averaged by their shares."""
    sources = choice.weights[index]
    own = np.where(sources.sum(axis=1) > 0, choice.own[index], 1.0)
    weights = np.zeros(count)
    weights[0] = shares @ own
    weights[1 + places] = (shares * (1 - own)) @ sources
    return weights


def _focal_errors(rows: Rows, heads: Heads) -> Floats:
    """Mean squared error of every domain's own head on the focal rows."""
    share, targets = rows.weight / rows.total, rows.targets
    found = np.empty(len(heads.coef))
    for run in chunks(range(len(found)), 8 * targets.size):
        coef, level = heads.coef[run], heads.intercept[run]
        fitted = np.tensordot(rows.X, coef.reshape(*coef.shape[:2], -1), ((1,), (1,))) + level.reshape(len(run), -1)
        found[run] = share @ np.mean((targets[:, None] - fitted) ** 2, axis=2)
    return found


def _left_out(choices: Sequence[Choice], rows: Rows) -> LeaveOneOut:
    residuals = np.column_stack([choice.left_out for choice in choices])
    inflation = float(np.mean([choice.inflation for choice in choices]))
    spreads = choices[0].spreads if len(choices) == 1 else np.ones(len(residuals))
    return LeaveOneOut(rows.targets - residuals, residuals, spreads / inflation**2, rows.weight)


def _comparisons(
    choices: Sequence[Choice],
    focal: Sequence[Sample],
    moments: Sequence[Moments],
    basis: Floats | None,
    heads: Heads,
) -> dict[str, Any]:
    """Left-out residuals of all methods, over rows and outputs, compared with ours."""
    residuals: dict[str, list[Floats]] = {"ours": [], "focal only": [], "joint": [], "mean of locals": []}
    flat = heads.coef.reshape(len(heads.coef), heads.coef.shape[1], -1)
    levels = heads.intercept.reshape(len(heads.coef), -1)
    for output, (choice, sample) in enumerate(zip(choices, focal)):
        residuals["ours"].append(choice.left_out)
        residuals["focal only"].append(choice.focal_left_out)
        if len(moments) > 1:
            slopes = flat[1:, :, output] if basis is None else flat[1:, :, output] @ basis
            local = np.column_stack([slopes, levels[1:, output]]) if sample.intercept else slopes
            pooled = weighted_system([m.output(output) for m in moments], np.ones(len(moments)))
            residuals["joint"].append(joint_left_out(sample, pooled))
            residuals["mean of locals"].append(mean_left_out(sample, choice.focal_left_out, local))
    weight = np.concatenate([sample.known.weight for sample in focal])
    least = np.repeat([ROUNDING * choice.size for choice in choices], len(focal[0].known.y))
    joined = {name: np.concatenate(parts) for name, parts in residuals.items() if len(parts) > 0}
    found = compared_of(joined, weight, least)
    gains = np.mean([choice.play_gains for choice in choices], axis=0)
    gain = transfer_gain(found["focal only"], gains, focal[0].total)
    return {"compared_": tuple(found.values()), "transfer_gain_": gain}


def _feature_range(prepared: Prepared) -> tuple[Floats, Floats]:
    """Between which features predictions are linear, in the units of the features."""
    low = np.min([rows.X.min(axis=0) for rows in prepared.mapped], axis=0)
    high = np.max([rows.X.max(axis=0) for rows in prepared.mapped], axis=0)
    share = MARGIN[0] + MARGIN[1] / sum(len(rows.X) for rows in prepared.mapped)
    with np.errstate(over="ignore"):  # a limit beyond float64 is infinite, which clips nothing
        margin = share * (high - low)
        return low - margin, high + margin


def removals_of(
    choices: Sequence[Choice], names: Sequence[str], places: Integers, weights: Floats
) -> tuple[Removal, ...]:
    """Effects of leaving out each of the heaviest 100 sources that priors were learned from, in order.

    Sources that no prior was learned from change nothing, and are listed so. ``weights`` are those of all sources.
    """
    index = {int(place): k for k, place in enumerate(places)}
    heaviest = set(places[np.argsort(-weights[places], kind="stable")[:MOST_REMOVALS]].tolist())
    error = sum(_error(choice, choice.without(None)[1]) for choice in choices) / len(choices)
    found = []
    for place, name in enumerate(names):
        if place in heaviest:
            found.append(_removal_of(choices, index[place], name))
        elif place not in index:
            found.append(Removal(name, error, 0.0, 0.0))
    return tuple(found)


def _removal_of(choices: Sequence[Choice], index: int, name: str) -> Removal:
    """The effect of leaving one source out, over all outputs."""
    before, after, moved = 0.0, 0.0, 0.0
    for choice in choices:
        head, left_out = choice.without(index)
        after += _error(choice, left_out)
        before += _error(choice, choice.left_out if len(choice.left_out) == len(left_out) else choice.without(None)[1])
        moved += _error(choice, choice.task.predict(head - choice.head))
    change = float(np.sqrt(after / before)) - 1.0 if 0 < before < np.inf else 0.0
    return Removal(name, after / len(choices), change, float(np.sqrt(moved / len(choices))))


def _error(choice: Choice, residuals: Floats) -> float:
    """Weighted mean square over the rows that candidates were judged on."""
    return float(choice.task.free.error(residuals))


def candidates_of(choice: Choice, count: int, places: Integers) -> tuple[Candidate, ...]:
    """All candidates with a share worth naming, largest first, of ``count`` domains; ``places`` as elsewhere."""
    found = []
    for i in np.argsort(-choice.shares, kind="stable").tolist():
        if choice.shares[i] >= SMALLEST:
            family, settings = choice.labels[i]
            play_error = None if choice.play_errors is None else float(choice.play_errors[i])
            figures = (float(choice.ridges[i]), float(choice.errors[i]), play_error, float(choice.shares[i]))
            weights = _weights_of(choice, [i], np.ones(1), count, places)
            found.append(Candidate(family, dict(settings), *figures, weights))
    return tuple(found)


def path_of(choice: Choice) -> RidgePath:
    """The candidates that share everything but the scale with the largest share, by effective ridge."""
    top = int(np.argmax(choice.shares))
    kind = _kind(choice.labels[top])
    alike = [i for i, label in enumerate(choice.labels) if _kind(label) == kind]
    alike.sort(key=lambda i: float(choice.ridges[i]))
    return RidgePath(choice.ridges[alike], choice.errors[alike], alike.index(top))


def solution_of(prior: Prior, task: Sample, size: float = 1.0) -> RegretSolution:
    """The regret-optimal fine-tuning that a prior stands for: from its mean, in its metric, to its effective ridge.

    With S = L L' the features are ``U L``, targets are residuals of the prior mean, and transfer = stability are such
    that together with the horizon they amount to noise/scale. The prior is one for targets divided by ``size``; the
    solution is in the targets' own units.
    """
    rows = (task.free if prior.free_intercept else task.full).rows
    root = np.sqrt(rows.weight)
    metric = roots_of(prior.covariance)
    moments = Moments.from_rows((rows.X @ metric) * root[:, None], root * (rows.y - rows.X @ (size * prior.mean)))
    start = np.zeros((1, metric.shape[1]))
    held: dict[str, Any] = {"weights": [1.0], "horizon": HORIZON, "heads": start, "start": start, "reference": start}
    # The effective ridge grows in proportion to transfer = stability.
    unit = solve(RegretProblem(moments=[moments], transfer=1.0, stability=1.0, **held)).effective_ridge
    assert unit is not None
    strength = prior.noise / prior.scale / unit
    return solve(RegretProblem(moments=[moments], transfer=strength, stability=strength, **held))


def posterior_of(choices: Sequence[Choice], basis: Floats | None) -> Posterior | None:
    """How uncertainty varies over inputs, for the largest share: 1 + z'Vz, V the posterior covariance over noise.

    Several outputs have a posterior each; they are taken to be equally uncertain everywhere (None).
    """
    if len(choices) > 1:
        return None
    (choice,) = choices
    prior, task = choice.prior, choice.task
    regression = task.free if prior.free_intercept else task.full
    covariance = prior.scale * prior.covariance
    inside = np.eye(len(covariance)) + covariance @ regression.gram / prior.noise
    posterior = np.linalg.solve(inside, covariance) / prior.noise
    posterior = (posterior + posterior.T) / 2
    if prior.free_intercept or not task.intercept:
        center: Floats = task.center.features if task.intercept else np.zeros(len(posterior))
        constant = 1.0 / task.total if task.intercept else 0.0
        slopes = posterior
    else:
        # Complete the square: z'Vz with z = (u, 1) is least at the center, where it is the constant.
        slopes, edge = posterior[:-1, :-1], posterior[:-1, -1]
        center = np.asarray(-np.linalg.lstsq(slopes, edge, rcond=1e-12)[0])
        constant = max(float(posterior[-1, -1] + center @ edge), 0.0)
    factor = roots_of(slopes)
    if basis is None:
        return Posterior(center, constant, 1.0, factor, np.zeros((len(factor), 0)), 0.0)
    # Without sources the prior N(0, scale I) remains outside the span of the rows.
    rest = 0.0 if choice.weights.shape[1] else prior.scale / prior.noise
    return Posterior(basis @ center, constant, 1.0, basis @ factor, basis, rest)


def _kind(label: tuple[str, dict[str, Any]]) -> tuple[Any, ...]:
    family, settings = label
    varying = ("scale", "relative ridge")
    return (family, *((key, value) for key, value in settings.items() if key not in varying))
