"""A linear model of focal rows and of sums over rows that stay elsewhere.

Where moments of each source are known, the fit is that of :class:`RegretOptimalRegressor`. Where only weighted sums
are known, the regret-optimal solution needs no more: with ``r = rho/|w|^2`` from all weights, it is that of two
domains, the focal one and the weighted mean of all sources. The self-tuned choice comes from validation tasks that were
done where the rows are. The model keeps no sums of any source, so that its file can be handed on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from mixtune.arrays import Floats
from mixtune.choice import (
    MIXTUNE,
    OWN_ROWS,
    Choice,
    Comparison,
    FeatureBlock,
    MapAverage,
    Plan,
    RemoteTasks,
    SourceTerms,
    SummedSources,
    SummedTask,
    TransferGain,
    choose,
    transfer_gain,
)
from mixtune.errors import DataError, Note
from mixtune.estimators import _fits as fits
from mixtune.estimators._base import LinearTransferRegressor, Settings
from mixtune.estimators._cv import Candidate, candidates_of, few_inputs, left_out_of, local_spreads, tuned_weights
from mixtune.estimators._regressor import RegretOptimalRegressor
from mixtune.estimators._saving import savable
from mixtune.moments import Moments, Origin, Rows, Sample, Scaling, augmented
from mixtune.weights import DomainWeights

#: From this share on, the guard leaves the model as it is: equal to that of all rows in one place.
WHOLE_SHARE = 0.8
#: The most by which sources change predictions of the focal rows, in standard errors of the focal rows' own model.
#: Right sums change them by about one; no rule can tell a change by one standard error from its mirror image. The
#: self-tuned fit to the focal rows alone is shrunk so much that its standard error leaves out most of its error.
MOST_CHANGE = {"fixed": 1.25, "tuned": 3.0}


@dataclass(frozen=True, eq=False)
class SourceSums:
    """What is known of the sources, and how a model is made of it and the focal rows.

    Attributes
    ----------
    focal : str
        The name of the focal domain.
    method : str
        "fixed", or "tuned" for the self-tuned choice.
    origin : Origin
        The point that sums are about, in features and in targets less ``target_shift``.
    settings : dict
        Of the fixed method, as parameters of :class:`RegretOptimalRegressor`: at least weights and ridge.
    target_shift : float
        What is taken off the targets first.
    seed : int
    moments : dict of str to Moments
        Of ``[U, 1]`` of each source, or of all together under one name.
    weights, scores : dict of str to float
        By domain, the focal one first, where only weighted sums are known.
    total, head : Moments and array
        The weighted means of moments and of local models, where only these are known.
    plan, tasks
        Of the self-tuned choice: what was drawn, and validation tasks that were done elsewhere.
    summed, terms : SummedSources and SourceTerms
        Of the self-tuned choice from sums over all sources.
    everyone : str
        The name of all sources together.
    """

    focal: str
    method: str
    origin: Origin
    settings: Mapping[str, Any] = field(default_factory=dict)
    target_shift: float = 0.0
    seed: int = 0
    moments: Mapping[str, Moments] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    total: Moments | None = None
    head: Floats | None = None
    plan: Plan | None = None
    tasks: Sequence[SummedTask] = ()
    summed: SummedSources | None = None
    terms: SourceTerms | None = None
    everyone: str = "all sources"


@dataclass(eq=False, repr=False)
class SummedSettings(Settings):
    """Parameters of the estimator; those of the method come with the sums."""

    _: KW_ONLY
    guard: bool = True


@savable
class SummedRegressor(SummedSettings, LinearTransferRegressor):
    """A linear model from focal rows and sums over the rows of sources.

    Parameters
    ----------
    feature_map : object with transform(X)
        The one that the sums were taken with.
    guard : bool
        Average the model with that of the focal rows alone: sums may be wrong. With the fixed method,
        the shares are those of least leave-one-out error on the focal rows; a share of 0.8 or more counts as all, so
        that the model stays equal to that of all rows in one place. With every method, sources change predictions of
        the focal rows, left out in turn, by a root mean square of at most 1.25 standard errors of the focal rows' own
        model (3 with the self-tuned method, which chooses shares itself).
    standardise, fit_intercept, focal_name, device
        As for :class:`RegretOptimalRegressor`; the scales are those of the map.

    Attributes
    ----------
    coef_, intercept_ : array (p,) and float
    weights_ : DomainWeights
        Of the focal domain and all sources that take part.
    effective_ridge_ : float
    compared_ : tuple of Comparison
        Leave-one-out errors of this model and of the focal rows alone.
    transfer_gain_ : TransferGain
    candidates_ : tuple of Candidate
        Of the self-tuned choice, largest share first.
    guarded_ : bool
        Whether the guard gave a part to the focal rows alone.
    members_share_ : float
        The part of the model with the sources' sums; 1 where the guard changed nothing.
    notes_ : tuple of str

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune import Identity
    >>> from mixtune.estimators import SourceSums, SummedRegressor
    >>> from mixtune.moments import Origin, Rows
    >>> rng = np.random.default_rng(0)
    >>> X, other = rng.normal(size=(20, 2)), rng.normal(size=(200, 2))
    >>> origin = Origin.zero(2)
    >>> settings = dict(weights="equal", sharing=None, ridge=1.0, transfer=1.0, stability=1.0, horizon=10)
    >>> moments = {"other": origin.moments(Rows(other, other @ [1.0, 2.0]))}
    >>> sums = SourceSums("here", "fixed", origin, settings, moments=moments)
    >>> model = SummedRegressor(Identity(2), standardise=False).fit(X, X @ [1.0, 2.0], sources=sums)
    >>> model.coef_.round()
    array([1., 2.])
    """

    _stored_attributes: ClassVar[tuple[str, ...]] = (
        *("weights_", "effective_ridge_", "compared_", "transfer_gain_", "guarded_", "notes_", "candidates_"),
        *("members_share_", "_rival_residuals"),
    )

    weights_: DomainWeights
    effective_ridge_: float | None
    compared_: tuple[Comparison, ...]
    transfer_gain_: TransferGain
    candidates_: tuple[Candidate, ...]
    guarded_: bool
    members_share_: float
    notes_: tuple[str, ...]
    _rival_residuals: Floats

    def __init_subclass__(cls, **settings: Any) -> None:
        # A companion's estimator can be saved like those here.
        super().__init_subclass__(**settings)
        savable(cls)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Fit to focal rows and to sums.

        Parameters
        ----------
        X, y
            The focal rows.
        sample_weight
            Not supported.
        sources : SourceSums
        """
        if not isinstance(sources, SourceSums):
            raise DataError("sources must be SourceSums; other estimators take other sources")
        if sample_weight is not None:
            raise DataError("rows beside sums have no sample weights; repeat rows instead")
        self._check_parameters()
        focal = self._read_focal(X, y, None, reset=True)
        rows = Rows(self._make_features()(focal.X), focal.y - sources.target_shift)
        found = _fitted(sources, rows)
        share, without, least = 1.0, np.ones(0), fits.ROUNDING * float(np.std(rows.y))
        if self.guard:
            share, without = _members_share(found, least)
        self.members_share_, self.guarded_, self.notes_ = share, share < 1, ()
        if self.guarded_:
            told = "the guard gives {share:.0%} to the model with the members' sums, the rest to the focal rows alone, "
            told += "by errors on the focal rows left out in turn"
            self.notes_ = (Note("guarded", told, share=share),)
            found = _averaged(found, share, without)
        weights, solved = found.weights, found.solved
        compared = fits.compared_of({MIXTUNE: found.left_out, OWN_ROWS: found.alone}, rows.weight, least)
        self._rival_residuals = found.alone[None, :, None]
        self.weights_, self.compared_ = weights, tuple(compared.values())
        self.effective_ridge_ = solved.attributes.get("effective_ridge_")
        self.candidates_ = solved.attributes.get("candidates_", ())
        self.transfer_gain_ = transfer_gain(compared[OWN_ROWS], found.gains, rows.total)
        shift = found.origin.features
        scaling = Scaling(shift, np.ones_like(shift), np.asarray(sources.target_shift + found.origin.targets))
        self._store(dataclasses.replace(solved, attributes={}, heads=None), weights.names, scaling)
        return self

    def _solve(self, prepared: fits.Prepared) -> fits.Solved:
        raise DataError("this model is fitted to sums over the sources' rows")


@dataclass(frozen=True, eq=False)
class Found:
    """A fit to focal rows and sums.

    Attributes
    ----------
    solved : Solved
        For features and targets about ``origin``.
    weights : DomainWeights
    alone : array (n,)
        Left-out residuals of the focal rows alone.
    own : Solved
        The fit to the focal rows alone, which the guard averages with.
    method : str
        "fixed", or "tuned" where shares of candidates were chosen.
    gains : array
        What transfer gained in validation tasks, where there were any.
    """

    solved: fits.Solved
    weights: DomainWeights
    alone: Floats
    own: fits.Solved
    method: str
    gains: Floats
    origin: Origin

    @property
    def left_out(self) -> Floats:
        """Left-out residuals of the focal rows."""
        return self.solved.uncertainty.left_out.residuals[:, 0]


def _fitted(sums: SourceSums, rows: Rows) -> Found:
    """The fit of the method to focal rows and sums."""
    if sums.method == "tuned":
        return _from_tasks(sums, rows) if sums.summed is None else _from_sums(sums, sums.summed, rows)
    rows = sums.origin.rows(rows)
    if sums.total is None:
        model = RegretOptimalRegressor(None, standardise=False, focal_name=sums.focal, **sums.settings)
        solved = model._solve_state(_state(sums, rows, sums.moments), None)
        weights = solved.attributes["weights_"]
    else:
        solved, weights = _masked_fit(sums, rows)
    own = fits.pooled(_state(sums, rows), [0])(float(sums.settings["ridge"]))
    alone = own.uncertainty.left_out.residuals[:, 0]
    return Found(solved, weights, alone, own, "fixed", np.empty(0), sums.origin)


def _members_share(found: Found, least: float) -> tuple[float, Floats]:
    """The share of the members' model, averaged with that of the focal rows alone, by residuals of rows left out.

    With it come the shares (n,) without each of the rows: what the average is judged by on a row must not depend on it.
    Residuals e of the focal rows alone have the mean square ``noise * spread``, of which ``noise * (spread - 1)`` is
    the squared standard error of the model.
    """
    left = found.own.uncertainty.left_out
    members, alone = found.left_out, left.residuals[:, 0]
    if not np.all(np.isfinite(alone)) or np.max(np.abs(alone - members)) <= least:
        return 1.0, np.ones(len(members))
    if not np.all(np.isfinite(members)):
        return 0.0, np.zeros(len(members))
    apart, error = alone - members, alone**2 * (1 - 1 / left.spreads)
    gain, change, room = (np.append(p.sum(), p.sum() - p) for p in (alone * apart, apart**2, error))
    shares, seen = np.ones_like(change), change > least**2
    if found.method == "fixed":
        shares[seen] = np.clip(gain[seen] / change[seen], 0.0, 1.0)
    shares[shares >= WHOLE_SHARE] = 1.0
    most = MOST_CHANGE[found.method] * np.sqrt(np.maximum(room[seen], 0.0) / change[seen])
    shares[seen] = np.minimum(shares[seen], most)
    return float(shares[0]), shares[1:]


def _averaged(found: Found, share: float, without: Floats) -> Found:
    """A fit averaged with the focal rows alone; how uncertainty varies with the inputs is that of the larger part."""
    ours, alone = found.solved, found.own
    main = ours if share >= 0.5 else alone

    def mixed(mine: Any, theirs: Any, part: Any = share) -> Any:
        # Residuals of a part that does not count may be infinite.
        return theirs if share == 0 else part * mine + (1 - part) * theirs

    left, other, each = ours.uncertainty.left_out, alone.uncertainty.left_out, without[:, None]
    parts = {name: mixed(getattr(left, name), getattr(other, name), each) for name in ("predictions", "residuals")}
    judged = dataclasses.replace(main.uncertainty.left_out, **parts)
    uncertainty = fits.Uncertainty(partial(fits.same, judged), main.uncertainty.make_posterior)
    coef, intercept = mixed(ours.coef, alone.coef), mixed(ours.intercept, alone.intercept)
    solved = fits.Solved(coef, intercept, uncertainty, ours.attributes)
    own = np.eye(len(found.weights.names))[0]
    weights = dataclasses.replace(found.weights, values=mixed(found.weights.values, own))
    return dataclasses.replace(found, solved=solved, weights=weights)


def _from_tasks(sums: SourceSums, rows: Rows) -> Found:
    """The self-tuned choice from moments of each source, with validation tasks that were done elsewhere."""
    remote = RemoteTasks(rows, list(sums.moments.values()), sums.origin, seed=sums.seed)
    plan = remote.plan({}) if sums.plan is None else sums.plan
    choice = remote.choose(plan, sums.tasks)
    totals = {name: source.total for name, source in zip(sums.moments, remote.sources)}
    return _chosen(choice, rows, remote.mean, {sums.focal: remote.focal.total, **totals})


def _from_sums(sums: SourceSums, summed: SummedSources, rows: Rows) -> Found:
    """The self-tuned choice from sums over all sources."""
    choice = summed.choose(rows, sums.terms, sums.tasks)
    total = float(summed.total.gram[-1, -1])
    return _chosen(choice, rows, summed.mean, {sums.focal: rows.total, sums.everyone: total})


def _chosen(choice: Choice, rows: Rows, mean: Origin, totals: dict[str, float]) -> Found:
    """What an estimator stores of a choice among domains of so many rows each, the focal one first."""
    names, places, near = tuple(totals), np.arange(len(totals) - 1), mean.rows(rows)
    average, solved = _solved_choice(choice, near)
    choice = average.choices[0]
    attributes = {
        "effective_ridge_": float(np.exp(choice.shares @ np.log(choice.ridges))),
        "candidates_": candidates_of(average, len(names), places),
    }
    solved = dataclasses.replace(solved, attributes=attributes)
    values = tuned_weights([average], names, list(totals.values()), places)
    weights = DomainWeights(values, names, 0, "cross-validated")
    _, own = _solved_choice(choose(Sample.of(near), []), near)
    return Found(solved, weights, choice.focal_left_out, own, "tuned", average.play_gains, mean)


def _solved_choice(choice: Choice, rows: Rows) -> tuple[MapAverage, fits.Solved]:
    """A choice of coefficients for features as they are, and the fit that it is."""
    width = rows.shape[1]
    average = MapAverage([choice], (FeatureBlock("all", np.arange(width)),), width).with_own_rows()
    uncertainty = fits.Uncertainty(
        partial(left_out_of, [average], rows),
        partial(fits.posterior_of, [average]),
        partial(local_spreads, [average], rows, [few_inputs(np.arange(width))]),
    )
    head = average.choices[0].head
    return average, fits.Solved(head[:-1], head[-1], uncertainty)


def _masked_fit(sums: SourceSums, rows: Rows) -> tuple[fits.Solved, DomainWeights]:
    """The focal domain and the weighted mean of all sources as two domains, at the effective ridge of all weights."""
    held = RegretOptimalRegressor(None, **sums.settings)
    ridge = float(held.ridge)
    assert sums.total is not None
    assert sums.head is not None
    names, values = tuple(sums.weights), np.array(list(sums.weights.values()))
    state = _state(sums, rows)
    both = dataclasses.replace(state, names=(sums.focal, "members"), moments=(*state.moments, sums.total))
    two = np.array([values[0], 1.0 - values[0]])
    own = fits.local_heads(state, ridge)
    # Of the sources, only the mean of their slopes is known, and only that is needed.
    heads = fits.Heads(np.stack([own.coef[0], sums.head]), np.append(own.intercept, np.nan))
    # rho is proportional to both penalties, and r = rho/|w|^2.
    factor = float(np.sum(two**2) / np.sum(values**2))
    scaled = {"transfer": held.transfer * factor, "stability": held.stability * factor}
    pair = DomainWeights(two, both.names, 0, "federated")
    solution, fit = fits.regret_optimal(both, heads, pair, **scaled, horizon=held.horizon)
    found = fits.solved(both, fit, fits.focal_fit(state, own, ridge))
    scores: Floats | None = None
    if set(sums.scores) >= set(names[1:]):
        focal = float(np.mean((rows.y - rows.X @ own.coef[0] - own.intercept[0]) ** 2))
        scores = np.array([focal, *(sums.scores[name] for name in names[1:])])
    weights = DomainWeights(values, names, 0, sums.settings["weights"], scores)
    return dataclasses.replace(found, attributes={"effective_ridge_": solution.effective_ridge}), weights


def _state(sums: SourceSums, rows: Rows, moments: Mapping[str, Moments] | None = None) -> fits.State:
    others = moments or {}
    return fits.State((sums.focal, *others), (augmented(rows), *others.values()), rows, True)
