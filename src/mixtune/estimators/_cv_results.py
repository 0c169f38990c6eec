"""What a choice means in the estimators' terms: candidates with names, a ridge path, a solution, a posterior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune._array import Floats, Integers
from mixtune._registry import storable
from mixtune.moments import Moments, Posterior, roots_of
from mixtune.regret import RegretProblem, RegretSolution, solve
from mixtune.selection import Choice, Prior, Sample

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
    order = [int(i) for i in np.argsort(-choice.shares, kind="stable") if choice.shares[i] >= SMALLEST]
    return tuple(
        Candidate(
            choice.labels[i][0],
            dict(choice.labels[i][1]),
            float(choice.ridges[i]),
            float(choice.errors[i]),
            None if choice.play_errors is None else float(choice.play_errors[i]),
            float(choice.shares[i]),
            _domain_weights(choice, i, count, places),
        )
        for i in order
    )


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

    def problem(strength: float) -> RegretProblem:
        return RegretProblem(
            moments=[moments],
            weights=[1.0],
            heads=start,
            transfer=strength,
            stability=strength,
            horizon=HORIZON,
            start=start,
            reference=start,
        )

    # The effective ridge grows in proportion to transfer = stability.
    unit = solve(problem(1.0)).effective_ridge
    assert unit is not None
    return solve(problem(prior.noise / prior.scale / unit))


def posterior_of(choice: Choice, basis: Floats | None) -> Posterior | None:
    """How uncertainty varies over inputs, for the largest share: 1 + z'Vz, V the posterior covariance over noise."""
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


def _domain_weights(choice: Choice, index: int, count: int, places: Integers) -> Floats:
    weights = np.zeros(count)
    sources = choice.weights[index]
    own = float(choice.own[index]) if sources.sum() > 0 else 1.0
    weights[0] = own
    weights[1 + places] = (1 - own) * sources
    return weights


def _kind(label: tuple[str, dict[str, Any]]) -> tuple[Any, ...]:
    family, settings = label
    varying = ("scale", "relative ridge")
    return (family, *((key, value) for key, value in settings.items() if key not in varying))
