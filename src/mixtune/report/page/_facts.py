"""What the page says, read off a fitted model once and checked: plain numbers, in the units of the target.

Mean squared errors become root mean squared errors here, standard errors become intervals, and whatever a model cannot
tell (distances that were not computed, removals after loading) becomes None, which the sections then say in words.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import _num_samples, check_is_fitted

from mixtune.errors import DataError, MixtuneError
from mixtune.estimators import Sources
from mixtune.estimators._base import column_names
from mixtune.estimators._source_moments import sampled
from mixtune.estimators._sources import as_sources
from mixtune.report.page._left_out import ClassFact, LeftOut, class_fact, left_out_rows
from mixtune.report.page._words import plain_value

__all__ = ["CandidateFact", "Compared", "DomainFact", "Facts", "Gain", "RidgeFact", "Trajectory", "read_facts"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class DomainFact:
    """One dataset; errors are root mean squares on the focal rows, ``change`` is what leaving it out does to ours."""

    name: str
    weight: float
    rows: int
    distance: float | None = None
    head_error: float | None = None
    change: float | None = None
    error_without: float | None = None
    shift: float | None = None


@dataclass(frozen=True)
class Gain:
    """By what part transfer cut the error of the focal-only fit, with its 95% interval, and the two sides of it."""

    reduction: float
    low: float
    high: float
    from_rows: float | None = None
    from_plays: float | None = None


@dataclass(frozen=True)
class Compared:
    """The left-out error of one method with its 95% interval, and ours over it."""

    method: str
    error: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float


@dataclass(frozen=True)
class RidgeFact:
    """Left-out errors along effective ridges."""

    ridges: tuple[float, ...]
    errors: tuple[float, ...]
    chosen: float


@dataclass(frozen=True)
class Trajectory:
    """Loss and energy after so many steps."""

    times: tuple[int, ...]
    loss: tuple[float, ...]
    energy: tuple[float, ...]


@dataclass(frozen=True)
class CandidateFact:
    """One fit that went into the average; ``play_error`` is relative to the best candidate of each play."""

    family: str
    settings: str
    effective_ridge: float
    error: float
    play_error: float | None
    share: float


@dataclass(frozen=True)
class Facts:
    """All that the page shows of a model."""

    focal: DomainFact
    sources: tuple[DomainFact, ...]
    error: float
    effective_ridge: float
    floor: float | None
    threshold: float | None
    gain: Gain | None
    compared: tuple[Compared, ...]
    ridge: RidgeFact | None
    trajectory: Trajectory | None
    left_out: tuple[LeftOut, ...]
    classes: ClassFact | None
    candidates: tuple[CandidateFact, ...]
    removable: bool
    plays: int
    notes: tuple[str, ...]
    estimator: str
    parameters: dict[str, str]


def read_facts(model: Any, *, X: Any, y: Any, sources: Any, target: Any = None) -> Facts:
    """Read a fitted RegretOptimalRegressorCV or RegretOptimalClassifierCV.

    Raises
    ------
    DataError
        If the rows are not those that the model was fitted to.
    """
    inner = getattr(model, "regressor_", model)
    check_is_fitted(inner, "coef_")
    if not hasattr(inner, "removal_effects"):
        raise DataError(
            f"a {type(inner).__name__} weighs no candidates and no removals, so there is too little to report; "
            "fit RegretOptimalRegressorCV or RegretOptimalClassifierCV"
        )
    given = sampled(as_sources(sources), column_names(inner))
    _check_names(inner, given)
    removals = _removals(inner)
    domains = _domains(inner, X, given, removals)
    distances = inner.distances_
    compared = tuple(_compared(c) for c in inner.compared_ if given is not None or c.method == "ours")
    floor = None if distances is None or distances.sampling_floor is None else float(distances.sampling_floor.value)
    return Facts(
        focal=_fairly_judged(domains[0], compared),
        sources=tuple(sorted(domains[1:], key=lambda d: (-d.weight, d.name))),
        error=_root(inner.loo_error_),
        effective_ridge=float(inner.effective_ridge_),
        floor=floor,
        threshold=None if distances is None else float(distances.threshold),
        gain=_gain(inner, compared) if given is not None else None,
        compared=compared,
        ridge=_ridge(inner),
        trajectory=_trajectory(inner),
        left_out=left_out_rows(model, inner, X, y, target),
        classes=class_fact(model, inner, y),
        candidates=tuple(_candidate(c) for c in inner.candidates_),
        removable=removals is not None,
        plays=int(getattr(inner, "n_plays_", 0)),
        notes=tuple(str(note) for note in getattr(inner, "notes_", ())),
        estimator=type(model).__name__,
        parameters={name: plain_value(value) for name, value in sorted(model.get_params(deep=False).items())},
    )


def _check_names(inner: Any, given: Sources | None) -> None:
    fitted, names = set(inner.domain_names_[1:]), set() if given is None else set(given.names)
    if fitted != names:
        odd = sorted(fitted ^ names)
        raise DataError(
            f"the model was fitted to {len(fitted)} sources, {len(names)} were passed, and {len(odd)} are only in one "
            f"of the two, such as {odd[0]!r}; pass the X, y and sources of the fit"
        )


def _removals(inner: Any) -> dict[str, Any] | None:
    try:
        return {removal.name: removal for removal in inner.removal_effects()}
    except MixtuneError:  # a model from a file may not hold what this needs
        return None


def _domains(inner: Any, X: Any, given: Sources | None, removals: dict[str, Any] | None) -> list[DomainFact]:
    rows = {inner.domain_names_[0]: _num_samples(X)}
    if given is not None:
        rows.update((name, _num_samples(source.X)) for name, source in given.items())
    weights = inner.weights_.as_dict()
    scores = {} if inner.weights_.scores is None else dict(zip(inner.weights_.names, inner.weights_.scores.tolist()))
    distances = {} if inner.distances_ is None else dict(zip(inner.distances_.names, inner.distances_.distances))
    facts = []
    for name in inner.domain_names_:
        removal = (removals or {}).get(name)
        facts.append(
            DomainFact(
                name=str(name),
                weight=float(weights[name]),
                rows=int(rows[name]),
                distance=float(distances[name].value) if name in distances else None,
                head_error=_root(scores[name]) if math.isfinite(scores.get(name, math.nan)) else None,
                change=None if removal is None else float(removal.change),
                error_without=None if removal is None else _root(removal.loo_error),
                shift=None if removal is None else float(removal.shift),
            )
        )
    return facts


def _fairly_judged(focal: DomainFact, compared: Sequence[Compared]) -> DomainFact:
    """The focal head has seen the focal rows, the others have not: its error is that with each row left out."""
    alone = [c.error for c in compared if c.method == "focal only" and math.isfinite(c.error)]
    return dataclasses.replace(focal, head_error=alone[0] if alone else None)


def _gain(inner: Any, compared: Sequence[Compared]) -> Gain | None:
    gain = inner.transfer_gain_
    numbers = [] if gain is None else [float(gain.reduction), float(gain.low), float(gain.high)]
    if not numbers or not all(map(math.isfinite, numbers)):
        return None
    # With a single focal row, a fit to the focal rows alone has nothing to predict it from.
    judged = all(math.isfinite(c.error) for c in compared if c.method in ("ours", "focal only"))
    sides = (gain.from_rows if judged else None, gain.from_plays)
    return Gain(*numbers, *(float(s) if s is not None and math.isfinite(s) else None for s in sides))


def _compared(comparison: Any) -> Compared:
    error = _root(comparison.loo_error)
    # The standard error belongs to the mean square; its root moves by half of that over the root.
    half = 1.96 * float(comparison.standard_error) / (2 * error) if error > 0 else 0.0
    ratios = (float(comparison.ratio), float(comparison.ratio_low), float(comparison.ratio_high))
    return Compared(str(comparison.method), error, max(error - half, 0.0), error + half, *ratios)


def _ridge(inner: Any) -> RidgeFact | None:
    path = getattr(inner, "ridge_path_", None)
    if path is None:
        return None
    pairs = zip(np.asarray(path.ridges, dtype=float).tolist(), np.asarray(path.loo_errors, dtype=float).tolist())
    kept = [(r, _root(e)) for r, e in sorted(pairs) if 0 < r < math.inf and math.isfinite(e)]
    if len(kept) < 2:
        return None
    chosen = float(np.asarray(path.ridges, dtype=float)[int(path.chosen)])
    return RidgeFact(tuple(r for r, _ in kept), tuple(e for _, e in kept), chosen)


def _trajectory(inner: Any) -> Trajectory | None:
    solution = getattr(inner, "solution_", None)
    if solution is None or solution.steps < 1:
        return None
    # A few hundred steps are drawn as well by some of them.
    times = np.unique(np.linspace(0, solution.steps, min(solution.steps + 1, 101)).astype(int))
    loss, energy = np.asarray(solution.loss_at(times)), np.asarray(solution.energy_at(times))
    if not (np.all(np.isfinite(loss)) and np.all(np.isfinite(energy))):
        return None
    return Trajectory(tuple(times.tolist()), tuple(loss.tolist()), tuple(energy.tolist()))


def _candidate(candidate: Any) -> CandidateFact:
    settings = ", ".join(f"{name} {plain_value(value)}" for name, value in candidate.settings.items())
    play = candidate.play_error
    return CandidateFact(
        family=str(candidate.family),
        settings=settings,
        effective_ridge=float(candidate.effective_ridge),
        error=_root(candidate.loo_error),
        play_error=None if play is None or not math.isfinite(play) else _root(play),
        share=float(candidate.share),
    )


def shares_by_family(candidates: Sequence[CandidateFact]) -> list[tuple[str, float, int]]:
    """Families with their shares and numbers of candidates, the largest share first.

    Examples
    --------
    >>> one = CandidateFact("alike", "", 1.0, 1.0, None, 0.25)
    >>> shares_by_family([one, one, CandidateFact("nearest", "", 1.0, 1.0, None, 0.5)])
    [('alike', 0.5, 2), ('nearest', 0.5, 1)]
    """
    names = dict.fromkeys(c.family for c in candidates)
    totals = [
        (name, math.fsum(c.share for c in candidates if c.family == name), sum(c.family == name for c in candidates))
        for name in names
    ]
    return sorted(totals, key=lambda entry: (-entry[1], entry[0]))


def _root(mean_square: float) -> float:
    return math.sqrt(mean_square) if mean_square >= 0 else math.nan
