"""The ``weights`` parameter: from a name, a rule or a mapping to weights of the domains."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune._array import Floats
from mixtune._checks import check_choice, check_nonnegative
from mixtune._messages import nearest, quoted
from mixtune.data import Domain, Domains
from mixtune.errors import ParameterError
from mixtune.estimators._preparation import Prepared, features_of
from mixtune.moments import Moments, Scaling, pooled_scaling
from mixtune.weights import (
    DomainWeights,
    EqualWeights,
    GivenWeights,
    PredictiveWeights,
    WassersteinWeights,
    WeightRule,
)

#: gamma of ``weights="wasserstein"``; distances are in units of the pooled diameter.
TEMPERATURE = 10.0


def needs_rows(weights: Any) -> bool:
    """Whether the rule compares rows, so that moments are not enough."""
    if isinstance(weights, WeightRule):
        return "domains" in weights.needs
    return isinstance(weights, str) and weights == "wasserstein"


def rule_of(
    weights: Any,
    sharing: float | None,
    *,
    default_sharing: Any,
    names: Sequence[str],
    gone: frozenset[str] = frozenset(),
) -> WeightRule:
    """The weight rule for a value of the ``weights`` parameter.

    ``default_sharing()`` is called if ``sharing`` is None. ``gone`` are sources that were forgotten; the weights given
    to the others are then divided by their sum.
    """
    if sharing is not None:
        sharing = check_nonnegative("sharing", sharing)
    if isinstance(weights, WeightRule):
        return weights
    if isinstance(weights, Mapping):
        return GivenWeights(_given({str(name): weight for name, weight in weights.items()}, names, gone))
    if not isinstance(weights, str):
        raise ParameterError(
            "weights must be 'predictive', 'equal', 'wasserstein', a weight rule or a mapping name -> weight; "
            f"got {weights!r}"
        )
    check_choice("weights", weights, ("predictive", "equal", "wasserstein"))
    if weights == "equal":
        return EqualWeights()
    if weights == "wasserstein":
        return WassersteinWeights(TEMPERATURE)
    return PredictiveWeights(default_sharing() if sharing is None else sharing)


def weigh(
    rule: WeightRule,
    *,
    names: Sequence[str],
    moments: Sequence[Moments],
    heads: Floats,
    domains: Domains | None,
    feature_map: Any,
) -> DomainWeights:
    """Weights by ``rule`` from augmented moments and heads (their intercepts last); index 0 is focal."""
    focal = moments[0]
    total = float(focal.rows[0][:, -1] @ focal.rows[0][:, -1]) if focal.rows is not None else float(focal.gram[-1, -1])
    # Rules divide by the number of rows; with sample weights the divisor is their sum.
    repeat = total / focal.count
    if isinstance(rule, PredictiveWeights):
        rule = dataclasses.replace(rule, sharing=rule.sharing * repeat)
    found = rule.weigh(moments=moments, heads=heads, domains=domains, feature_map=feature_map, focal=0)
    if isinstance(rule, PredictiveWeights) and found.scores is not None:
        found = dataclasses.replace(found, scores=found.scores / repeat)
    return dataclasses.replace(found, names=tuple(names))


def domains_of(prepared: Prepared, *, standardise: bool) -> tuple[Domains, Any]:
    """The rows for rules that compare them, and the feature map that fits these rows.

    Inputs are standardised and targets divided by their standard deviation, so that distances do not depend on units.
    Every row of positive sample weight counts once.
    """
    scaling = pooled_scaling(prepared.inputs, standardise=standardise, center=True)
    targets = [rows.targets for rows in prepared.inputs]
    spread = np.concatenate(targets).std(axis=0) if standardise else np.ones(targets[0].shape[1])
    spread = np.where(spread > 0, spread, 1.0)
    members = tuple(
        Domain(name, scaling.features(rows.X), (rows.targets / spread).reshape(rows.y.shape))
        for name, rows in zip(prepared.names, prepared.inputs)
    )
    return Domains(members, focal=prepared.names[0]), _Scaled(prepared, scaling)


@dataclass(frozen=True, eq=False)
class _Scaled:
    """The feature map from standardised inputs to standardised features."""

    prepared: Prepared
    inputs: Scaling

    @property
    def n_features_out(self) -> int:
        return int(self.prepared.focal.X.shape[1])

    def transform(self, X: Floats, /) -> Floats:
        """Prepared features of standardised inputs."""
        raw = X * self.inputs.scale + self.inputs.shift
        given = self.prepared
        return given.scaling.features(features_of(given.feature_map, raw, given.columns, given.device))


def _given(weights: dict[str, float], names: Sequence[str], gone: frozenset[str]) -> list[float]:
    unknown = [name for name in weights if name not in names and name not in gone]
    if unknown:
        raise ParameterError(f'weights names "{unknown[0]}", which is no domain; {nearest(unknown[0], list(names))}')
    missing = [name for name in names if name not in weights]
    if missing:
        raise ParameterError(f"weights has no entry for {quoted(missing)}; give every domain a weight, 0 leaves it out")
    values = [weights[name] for name in names]
    total = sum(values) if gone else 0.0
    return [value / total for value in values] if total > 0 else values
