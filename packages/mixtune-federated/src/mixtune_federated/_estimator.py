"""FederatedRegressor: a model of focal rows and of sums that other members sent, who kept their rows.

At level 1 there are moments of each member, at level 2 weighted sums over all members, and at level 3 their sum with
noise; :class:`mixtune.estimators.SummedRegressor` makes a model of each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any, ClassVar, Self

from mixtune.choice import SummedSources, SummedTask
from mixtune.errors import DataError
from mixtune.estimators import RegretOptimalRegressor, RegretOptimalRegressorCV, SourceSums, SummedRegressor
from mixtune.moments import Moments, Origin, Rows
from mixtune_federated._coordinator import MEMBERS, Combined
from mixtune_federated._tuned import remote_tasks
from mixtune_federated._types import Values


class FederatedRegressor(SummedRegressor):
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
        As for :class:`mixtune.RegretOptimalRegressor`; the scales are those of the study.

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

    _stored_attributes: ClassVar[tuple[str, ...]] = (*SummedRegressor._stored_attributes, "made_")

    made_: tuple[str, ...]

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
        super().fit(X, y, sources=_sums_of(sources))
        self.made_ = sources.made
        self.notes_ = (*self.notes_, *sources.made)
        return self


def _sums_of(combined: Combined) -> SourceSums:
    """What the model is made of."""
    study = combined.study
    return SourceSums(
        focal=study.focal,
        method="tuned" if study.level == 3 else study.method,
        origin=combined.origin,
        settings=dataclasses.asdict(study.fixed),
        target_shift=study.target_shift,
        seed=study.features.seed,
        moments=combined.moments,
        weights=combined.weights,
        scores=combined.scores,
        total=combined.total,
        head=combined.head,
        plan=combined.plan,
        tasks=combined.tasks,
        summed=combined.summed if study.method == "tuned" else None,
        terms=combined.terms,
        everyone=MEMBERS,
    )


def pooled_twin(combined: Combined, focal: Rows, sources: Mapping[str, Rows]) -> Any:
    """The same method on all rows in one place: what a federated model is compared with.

    ``focal`` and ``sources`` are rows of inputs, as the study encodes them.
    """
    study, parts = combined.study, Values()
    pairs = {name: (rows.X, rows.y) for name, rows in sources.items()}
    if study.level == 3:
        # Without clipping and noise, and so without privacy: the difference is what these cost.
        total: Any = sum(_moments(study.prepared(each)) for each in sources.values())
        parts = {"moments": dict.fromkeys(combined.moments, total)}
    elif study.method == "tuned" and (study.level == 2 or combined.late):
        parts = (_pooled_sums if study.level == 2 else _pooled_tasks)(combined, focal, sources)
    elif study.method == "tuned":
        tuned = RegretOptimalRegressorCV(study.feature_map, standardise=False, clamp=False, seed=study.features.seed)
        return tuned.fit(focal.X, focal.y, sources=pairs)
    if parts:
        plain = dataclasses.replace(combined, **parts)
        return FederatedRegressor.from_study(study, guard=False).fit(focal.X, focal.y, sources=plain)
    given = {**dataclasses.asdict(study.fixed), "sharing": combined.sharing}
    model = RegretOptimalRegressor(study.feature_map, standardise=False, focal_name=study.focal, **given)
    return model.fit(focal.X, focal.y, sources=pairs)


def _pooled_tasks(combined: Combined, focal: Rows, sources: Mapping[str, Rows]) -> Values:
    """Moments, and the validation tasks of those members that did some, from all rows in one place."""
    study, plan = combined.study, combined.plan
    assert plan is not None
    prepared, origin = {name: study.prepared(rows) for name, rows in sources.items()}, combined.origin
    moments = {name: origin.moments(rows) for name, rows in prepared.items()}
    remote = remote_tasks(study, study.prepared(focal), moments, origin)
    played, tasks = {task.source for task in combined.tasks}, []
    for source, places in ((source, places) for source, places in plan.tasks if source in played):
        near = remote.mean.rows(prepared[combined.names[source]])
        rows = Rows(near.X, near.y / remote.size)
        order = remote.order(rows, places[: plan.rows + remote.test_rows])
        part = _moments(rows.part(order[: plan.rows]))
        made = remote.play(rows, order, plan.rows, plan.spare, *remote.candidates(source, part))
        tasks.append(dataclasses.replace(made, source=source))
    return {"moments": moments, "tasks": tasks}


def _pooled_sums(combined: Combined, focal: Rows, sources: Mapping[str, Rows]) -> Values:
    """What the self-tuned choice at level 2 needs, from all rows in one place."""
    study = combined.study
    prepared = {name: study.prepared(rows) for name, rows in sources.items()}
    total: Any = sum(map(_moments, prepared.values()))
    summed = SummedSources.of(study.prepared(focal), total)
    terms = reduce(add, [summed.terms(rows) for rows in prepared.values()])
    played = [summed.play(rows, terms, len(focal.y), study.features.seed) for rows in prepared.values()]
    tasks = [task for task in played if task is not None]
    merged = [SummedTask.merged(tasks)] if tasks and combined.tasks else []
    return {"summed": summed, "terms": None if combined.terms is None else terms, "tasks": merged}


def _moments(rows: Rows) -> Moments:
    """Of prepared rows, about the zero of the study."""
    return Origin.zero(rows.shape[1]).moments(rows)
