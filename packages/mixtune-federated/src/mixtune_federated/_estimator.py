"""FederatedRegressor: a model of focal rows and of sums that other members sent, who kept their rows.

The sums come from :mod:`mixtune_federated`. At level 1 there are moments of each member, and the fit is that of
:class:`RegretOptimalRegressor`. At level 2 only weighted sums are known. The regret-optimal solution needs no more:
with ``r = rho/|w|^2`` from all weights, it is that of two domains, the focal one and the weighted mean of all members.
The model keeps no sums of any member, so that its file can be handed on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from mixtune.arrays import Floats
from mixtune.choice import (
    MIXTUNE,
    OWN_ROWS,
    SETTINGS,
    Choice,
    Comparison,
    FeatureBlock,
    MapAverage,
    TransferGain,
    choose,
    transfer_gain,
)
from mixtune.errors import DataError, Note
from mixtune.estimators import _fits as fits
from mixtune.estimators._base import LinearTransferRegressor, Settings
from mixtune.estimators._cv import Candidate, RegretOptimalRegressorCV, candidates_of, left_out_of, tuned_weights
from mixtune.estimators._regressor import RegretOptimalRegressor
from mixtune.estimators._saving import savable
from mixtune.moments import Origin, Rows, Sample, Scaling, augmented
from mixtune.weights import DomainWeights
from mixtune_federated._coordinator import MEMBERS, Combined
from mixtune_federated._remote import order_of, play
from mixtune_federated._summed import PooledStart, SourceTerms, choose_summed, merged_task, summed_play
from mixtune_federated._sums import rows_about
from mixtune_federated._tuned import Summed, remote_tasks

#: Settings of the regret problem.
HELD = ("transfer", "stability", "horizon")
#: From this share on, the guard leaves the model as it is: equal to that of all rows in one place.
WHOLE_SHARE = 0.8
#: The most by which members change predictions of the focal rows, in standard errors of the focal rows' own model.
#: Right sums change them by about one; no rule can tell a change by one standard error from its mirror image. The
#: self-tuned fit to the focal rows alone is shrunk so much that its standard error leaves out most of its error.
MOST_CHANGE = {"fixed": 1.25, "tuned": 3.0}


@dataclass(eq=False, repr=False)
class FederatedSettings(Settings):
    """Parameters of the estimator; those of the method are in the study."""

    _: KW_ONLY
    guard: bool = True


@savable
class FederatedRegressor(FederatedSettings, LinearTransferRegressor):
    """A linear model for the focal member of a federated study.

    Parameters
    ----------
    feature_map : object with transform(X)
        That of the study; :meth:`from_study` sets it.
    guard : bool
        Average the model with that of the focal rows alone: a member may have sent wrong sums. With the fixed method,
        the shares are those of least leave-one-out error on the focal rows; a share of 0.8 or more counts as all, so
        that the model stays equal to that of all rows in one place. With every method, members change predictions of
        the focal rows, left out in turn, by a root mean square of at most 1.25 standard errors of the focal rows' own
        model (3 with the self-tuned method, which chooses shares itself).
    standardise, fit_intercept, focal_name, device
        As for :class:`RegretOptimalRegressor`; the scales are those of the study.

    Attributes
    ----------
    coef_, intercept_ : array (p,) and float
    weights_ : DomainWeights
        Of the focal member and all members that take part.
    effective_ridge_ : float
    compared_ : tuple of Comparison
        Leave-one-out errors of this model and of the focal rows alone.
    transfer_gain_ : TransferGain
    candidates_ : tuple of Candidate
        Of the self-tuned choice, largest share first.
    guarded_ : bool
        Whether the guard gave a part to the focal rows alone.
    members_share_ : float
        The part of the model with the members' sums; 1 where the guard changed nothing.
    made_ : tuple of str
        How the model was made, in sentences.
    notes_ : tuple of str

    Examples
    --------
    See the page on federated studies.
    """

    _stored_attributes: ClassVar[tuple[str, ...]] = (
        *("weights_", "effective_ridge_", "compared_", "transfer_gain_", "guarded_", "made_", "notes_", "candidates_"),
        *("members_share_", "_rival_residuals"),
    )

    weights_: DomainWeights
    effective_ridge_: float | None
    compared_: tuple[Comparison, ...]
    transfer_gain_: TransferGain
    candidates_: tuple[Candidate, ...]
    guarded_: bool
    members_share_: float
    made_: tuple[str, ...]
    notes_: tuple[str, ...]
    _rival_residuals: Floats

    @classmethod
    def from_study(cls, study: Any, *, guard: bool = True) -> Self:
        """An estimator with the feature map of a study."""
        return cls(study.feature_map, standardise=False, focal_name=study.focal, guard=guard)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Fit to focal rows, with inputs as the study encodes them, and to the combined answers of the members.

        Parameters
        ----------
        X, y
            The focal rows.
        sample_weight
            Not supported.
        sources : Combined
            From :meth:`mixtune_federated.Coordinator.combine`.
        """
        if not isinstance(sources, Combined):
            raise DataError("sources must be what Coordinator.combine returns; other estimators take other sources")
        if sample_weight is not None:
            raise DataError("rows of a federated study have no sample weights; repeat rows instead")
        self._check_parameters()
        study = sources.study
        focal = self._read_focal(X, y, None, reset=True)
        rows = Rows(self._make_features()(focal.X), focal.y - study.target_shift)
        found = federated_fit(sources, rows)
        share, without, least = 1.0, np.ones(0), fits.ROUNDING * float(np.std(rows.y))
        if self.guard:
            share, without = _members_share(found, least)
        self.members_share_, self.guarded_, self.notes_ = share, share < 1, sources.made
        if self.guarded_:
            told = "the guard gives {share:.0%} to the model with the members' sums, the rest to the focal rows alone, "
            told += "by errors on the focal rows left out in turn"
            self.notes_ = (Note("guarded", told, share=share), *self.notes_)
            found = _averaged(found, share, without)
        weights, solved = found.weights, found.solved
        compared = fits.compared_of({MIXTUNE: found.left_out, OWN_ROWS: found.alone}, rows.weight, least)
        self._rival_residuals = found.alone[None, :, None]
        self.weights_, self.made_, self.compared_ = weights, sources.made, tuple(compared.values())
        self.effective_ridge_ = solved.attributes.get("effective_ridge_")
        self.candidates_ = solved.attributes.get("candidates_", ())
        self.transfer_gain_ = transfer_gain(compared[OWN_ROWS], found.gains, rows.total)
        shift = found.origin.features
        scaling = Scaling(shift, np.ones_like(shift), np.asarray(study.target_shift + found.origin.targets))
        self._store(dataclasses.replace(solved, attributes={}, heads=None), weights.names, scaling)
        return self

    def _solve(self, prepared: fits.Prepared) -> fits.Solved:
        raise DataError("a federated model is fitted to the combined answers of the members")


@dataclass(frozen=True, eq=False)
class Found:
    """A fit to focal rows and combined sums.

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


def federated_fit(combined: Combined, rows: Rows) -> Found:
    """The fit of a study's method to prepared focal rows and combined sums."""
    study = combined.study
    if study.method == "tuned" and combined.summed is not None:
        return _summed(combined, rows)
    if study.level == 3 or study.method == "tuned":
        return _tuned(combined, rows)
    held = {name: getattr(study.fixed, name) for name in HELD}
    rows = rows_about(rows, combined.origin)
    if combined.total is None:
        given = {name: getattr(study.fixed, name) for name in ("weights", "sharing", "ridge")}
        model = RegretOptimalRegressor(None, standardise=False, focal_name=study.focal, **given, **held)
        solved = model._solve_state(_state(study.focal, rows, combined), None)
        weights = solved.attributes["weights_"]
    else:
        solved, weights = _masked_fit(combined, rows, held)
    own = fits.pooled(_state(study.focal, rows), [0])(float(study.fixed.ridge))
    alone = own.uncertainty.left_out.residuals[:, 0]
    return Found(solved, weights, alone, own, "fixed", np.empty(0), combined.origin)


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


def _tuned(combined: Combined, rows: Rows) -> Found:
    """The self-tuned choice from moments, with validation tasks that members did."""
    remote, mean = remote_tasks(combined.study, rows, combined.moments, combined.origin)
    plan = remote.plan({}) if combined.plan is None else combined.plan
    choice = remote.choose(plan, combined.tasks)
    totals = {name: source.total for name, source in zip(combined.moments, remote.sources)}
    return _chosen(choice, rows, mean, {combined.study.focal: remote.focal.total, **totals})


def _summed(combined: Combined, rows: Rows) -> Found:
    """The self-tuned choice from sums over all members."""
    summed = combined.summed
    assert summed is not None
    plain = dataclasses.replace(summed, size=1.0)
    choice = choose_summed(plain.sample(rows), plain.near, combined.terms, combined.tasks)
    return _chosen(choice, rows, summed.mean, {combined.study.focal: rows.total, MEMBERS: plain.near.total})


def _chosen(choice: Choice, rows: Rows, mean: Origin, totals: dict[str, float]) -> Found:
    """What an estimator stores of a choice among domains of so many rows each, the focal one first."""
    names, places, near = tuple(totals), np.arange(len(totals) - 1), rows_about(rows, mean)
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
    uncertainty = fits.Uncertainty(partial(left_out_of, [average], rows), partial(fits.posterior_of, [average]))
    head = average.choices[0].head
    return average, fits.Solved(head[:-1], head[-1], uncertainty)


def pooled_twin(combined: Combined, focal: Rows, sources: Mapping[str, Rows]) -> Any:
    """The same method on all rows in one place: what a federated model is compared with.

    ``focal`` and ``sources`` are rows of inputs, as the study encodes them.
    """
    study, parts = combined.study, dict[str, Any]()
    pairs = {name: (rows.X, rows.y) for name, rows in sources.items()}
    if study.level == 3:
        # Without clipping and noise, and so without privacy: the difference is what these cost.
        total: Any = sum(augmented(study.prepared(each)).without_rows() for each in sources.values())
        parts = {"moments": dict.fromkeys(combined.moments, total)}
    elif study.method == "tuned" and (study.level == 2 or combined.late):
        parts = (_pooled_sums if study.level == 2 else _pooled_tasks)(combined, focal, sources)
    elif study.method == "tuned":
        tuned = RegretOptimalRegressorCV(study.feature_map, standardise=False, clamp=False, seed=study.features.seed)
        return tuned.fit(focal.X, focal.y, sources=pairs)
    if parts:
        plain = dataclasses.replace(combined, **parts)
        return FederatedRegressor.from_study(study, guard=False).fit(focal.X, focal.y, sources=plain)
    given = {name: getattr(study.fixed, name) for name in ("weights", "sharing", "ridge", *HELD)}
    if combined.sharing is not None:
        given["sharing"] = combined.sharing
    model = RegretOptimalRegressor(study.feature_map, standardise=False, focal_name=study.focal, **given)
    return model.fit(focal.X, focal.y, sources=pairs)


def _pooled_tasks(combined: Combined, focal: Rows, sources: Mapping[str, Rows]) -> dict[str, Any]:
    """Moments, and the validation tasks of those members that did some, from all rows in one place."""
    study, plan = combined.study, combined.plan
    assert plan is not None
    prepared, origin = {name: study.prepared(rows) for name, rows in sources.items()}, combined.origin
    moments = {name: augmented(rows_about(rows, origin)).without_rows() for name, rows in prepared.items()}
    remote, mean = remote_tasks(study, study.prepared(focal), moments, origin)
    played, tasks = {task.source for task in combined.tasks}, []
    for source, places in ((source, places) for source, places in plan.tasks if source in played):
        near = rows_about(prepared[combined.names[source]], mean)
        rows = Rows(near.X, near.y / remote.size)
        order = order_of(rows, places[: plan.rows + SETTINGS.test_rows])
        part = augmented(rows.part(order[: plan.rows])).without_rows()
        made = play(rows, order, plan.rows, plan.spare, *remote.candidates(source, part))
        tasks.append(dataclasses.replace(made, source=source))
    return {"moments": moments, "tasks": tasks}


def _pooled_sums(combined: Combined, focal: Rows, sources: Mapping[str, Rows]) -> dict[str, Any]:
    """What the self-tuned choice at level 2 needs, from all rows in one place."""
    study = combined.study
    prepared = {name: study.prepared(rows) for name, rows in sources.items()}
    total: Any = sum(augmented(rows).without_rows() for rows in prepared.values())
    summed = Summed.of(study.prepared(focal), total)
    near, own = summed.near, [summed.sample(rows) for rows in prepared.values()]
    start = PooledStart.of(near)
    terms = SourceTerms.of([start.posteriors(sample) for sample in own])
    rows, seed = len(focal.y), study.features.seed
    played = [summed_play(sample, near.moments, start, terms, rows, seed) for sample in own]
    tasks = [task for task in played if task is not None]
    merged = [merged_task(tasks)] if tasks and combined.tasks else []
    return {"summed": summed, "terms": None if combined.terms is None else terms, "tasks": merged}


def _masked_fit(combined: Combined, rows: Rows, held: dict[str, Any]) -> tuple[fits.Solved, DomainWeights]:
    """The focal domain and the weighted mean of all members as two domains, at the effective ridge of all weights."""
    study, ridge = combined.study, float(combined.study.fixed.ridge)
    assert combined.total is not None
    assert combined.head is not None
    names, values = tuple(combined.weights), np.array(list(combined.weights.values()))
    state = _state(study.focal, rows)
    both = dataclasses.replace(state, names=(study.focal, "members"), moments=(*state.moments, combined.total))
    two = np.array([values[0], 1.0 - values[0]])
    own = fits.local_heads(state, ridge)
    # Of the members, only the mean of their slopes is known, and only that is needed.
    heads = fits.Heads(np.stack([own.coef[0], combined.head]), np.append(own.intercept, np.nan))
    # rho is proportional to both penalties, and r = rho/|w|^2.
    factor = float(np.sum(two**2) / np.sum(values**2))
    scaled = {"transfer": held["transfer"] * factor, "stability": held["stability"] * factor}
    pair = DomainWeights(two, both.names, 0, "federated")
    solution, fit = fits.regret_optimal(both, heads, pair, **scaled, horizon=held["horizon"])
    found = fits.solved(both, fit, fits.focal_fit(state, own, ridge))
    scores: Floats | None = None
    if set(combined.scores) >= set(names[1:]):
        focal = float(np.mean((rows.y - rows.X @ own.coef[0] - own.intercept[0]) ** 2))
        scores = np.array([focal, *(combined.scores[name] for name in names[1:])])
    weights = DomainWeights(values, names, 0, study.fixed.weights, scores)
    return dataclasses.replace(found, attributes={"effective_ridge_": solution.effective_ridge}), weights


def _state(focal: str, rows: Rows, combined: Combined | None = None) -> fits.State:
    others = {} if combined is None else combined.moments
    return fits.State((focal, *others), (augmented(rows), *others.values()), rows, True)
