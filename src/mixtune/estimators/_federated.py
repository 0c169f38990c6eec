"""FederatedRegressor: a model of focal rows and of sums that other members sent, who kept their rows.

The sums come from :mod:`mixtune.federated`. At level 1 there are moments of each member, and the fit is that of
:class:`RegretOptimalRegressor`. At level 2 only weighted sums are known. The regret-optimal solution needs no more:
with ``r = rho/|w|^2`` from all weights, it is that of two domains, the focal one and the weighted mean of all members.
The model keeps no sums of any member, so that its file can be handed on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from mixtune._array import Floats
from mixtune._messages import Note
from mixtune.errors import DataError
from mixtune.estimators import _fits as fits
from mixtune.estimators._base import LinearTransferRegressor, Settings
from mixtune.estimators._regressor import RegretOptimalRegressor
from mixtune.estimators._saving import savable
from mixtune.federated import Combined
from mixtune.moments import Rows, Scaling, augmented
from mixtune.selection import Comparison, TransferGain, transfer_gain
from mixtune.weights import DomainWeights

#: Settings of the regret problem.
HELD = ("transfer", "stability", "horizon")


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
        Keep to the focal rows alone where leave-one-out says, beyond its 95% interval, that the sums of the members
        make predictions worse: a member may have sent wrong sums.
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
    guarded_ : bool
        Whether the guard kept to the focal rows.
    made_ : tuple of str
        How the model was made, in sentences.
    notes_ : tuple of str

    Examples
    --------
    See the page on federated studies.
    """

    _stored_attributes: ClassVar[tuple[str, ...]] = (
        *("weights_", "effective_ridge_", "compared_", "transfer_gain_", "guarded_", "made_", "notes_"),
    )

    weights_: DomainWeights
    effective_ridge_: float | None
    compared_: tuple[Comparison, ...]
    transfer_gain_: TransferGain
    guarded_: bool
    made_: tuple[str, ...]
    notes_: tuple[str, ...]

    @classmethod
    def from_study(cls, study: Any, *, guard: bool = True) -> Self:
        """An estimator with the feature map of a study."""
        return cls(study.feature_map, standardise=False, focal_name=study.focal, guard=guard)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Fit to focal rows, inputs as the study encodes them, and what the members' answers amount to.

        Parameters
        ----------
        X, y
            The focal rows.
        sample_weight
            Not supported.
        sources : Combined
            From :meth:`mixtune.federated.Coordinator.combine`.
        """
        if not isinstance(sources, Combined):
            raise DataError("sources must be what Coordinator.combine returns; other estimators take other sources")
        if sample_weight is not None:
            raise DataError("rows of a federated study have no sample weights; repeat rows instead")
        self._check_parameters()
        study = sources.study
        focal = self._read_focal(X, y, None, reset=True)
        level = np.asarray(study.target_shift)
        width = study.n_features
        scaling = Scaling(np.zeros(width), np.ones(width), level)
        rows = scaling.apply(Rows(self._make_features()(focal.X), focal.y))
        solved, weights = federated_fit(sources, rows)
        alone = fits.pooled(_state(study.focal, rows), [0], float(study.fixed.ridge))
        residuals = {"ours": solved.uncertainty, "focal only": alone.uncertainty}
        left = {name: each.left_out.residuals[:, 0] for name, each in residuals.items()}
        found = fits.compared_of(left, rows.weight, fits.ROUNDING * float(np.std(rows.y)))
        self.guarded_ = bool(self.guard and found["focal only"].ratio_low > 1)
        self.notes_ = sources.made
        if self.guarded_:
            worse = found["focal only"].ratio - 1
            told = "the sums of the members make predictions worse by {worse:.0%}; the model is of the focal rows alone"
            self.notes_ = (Note("guarded", told, worse=worse), *self.notes_)
            solved, values = alone, np.eye(len(weights.names))[0]
            weights = dataclasses.replace(weights, values=values, rule="focal only")
            found = fits.compared_of(dict.fromkeys(left, left["focal only"]), rows.weight, 0.0)
        self.weights_, self.made_, self.compared_ = weights, sources.made, tuple(found.values())
        self.effective_ridge_ = solved.attributes.get("effective_ridge_")
        self.transfer_gain_ = transfer_gain(found["focal only"], np.empty(0), rows.total)
        self._store(dataclasses.replace(solved, attributes={}, heads=None), weights.names, scaling)
        return self

    def _solve(self, prepared: fits.Prepared) -> fits.Solved:
        raise DataError("a federated model is made from what the members' answers amount to")


def federated_fit(combined: Combined, rows: Rows) -> tuple[fits.Solved, DomainWeights]:
    """The fit at fixed parameters to prepared focal rows and combined sums."""
    study = combined.study
    held = {name: getattr(study.fixed, name) for name in HELD}
    if combined.total is None:
        given = {name: getattr(study.fixed, name) for name in ("weights", "sharing", "ridge")}
        model = RegretOptimalRegressor(None, standardise=False, focal_name=study.focal, **given, **held)
        solved = model._solve_state(_state(study.focal, rows, combined), None)
        return solved, solved.attributes["weights_"]
    return _masked_fit(combined, rows, held)


def pooled_twin(combined: Combined, focal: Rows, sources: Mapping[str, Rows]) -> Any:
    """The same method on all rows in one place: what a federated model is compared with.

    ``focal`` and ``sources`` are rows of inputs, as the study encodes them.
    """
    study = combined.study
    given = {name: getattr(study.fixed, name) for name in ("weights", "sharing", "ridge", *HELD)}
    if combined.sharing is not None:
        given["sharing"] = combined.sharing
    model = RegretOptimalRegressor(study.feature_map, standardise=False, focal_name=study.focal, **given)
    return model.fit(focal.X, focal.y, sources={name: (rows.X, rows.y) for name, rows in sources.items()})


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
