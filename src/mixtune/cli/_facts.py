"""What a fitted model says about itself, as plain values: what commands print, and give as JSON.

Models differ in what they know (the self-tuning ones know most, a baseline little); what one does not know is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mixtune.errors import MixtuneError

__all__ = ["judged", "model_facts"]


def model_facts(model: Any, rows: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Describe a fitted model.

    Parameters
    ----------
    model
        Fitted, or loaded from a file.
    rows
        How many rows each domain had.

    Examples
    --------
    >>> from mixtune.estimators import LocalRegressor
    >>> facts = model_facts(LocalRegressor().fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]))
    >>> facts["domains"]
    [{'name': 'focal', 'focal': True}]
    """
    core = getattr(model, "regressor_", model)
    focal = (rows or {}).get(core.domain_names_[0])
    facts: dict[str, Any] = {
        "domains": _domains(core, rows or {}),
        "comparison": [_comparison(each, focal) for each in getattr(core, "compared_", ())],
        "transfer_gain": _gain(getattr(core, "transfer_gain_", None)),
        "loo_rmse": _root(core.loo_error_),
        "effective_ridge": getattr(core, "effective_ridge_", None),
        "candidates": [_candidate(each) for each in getattr(core, "candidates_", ())][:5],
        # Of domains with one row the reader of the files speaks already.
        "notes": [note for note in getattr(core, "notes_", ()) if "one row only" not in note],
    }
    return facts


def judged(model: Any, X: Any, y: Any, sources: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Say what transfer did in the words of the report, what says so, and how many classes come out right.

    Parameters
    ----------
    model
        As fitted to the rows that follow.
    X, y, sources
        The focal rows and the sources.
    """
    from mixtune.report.page._facts import read_facts
    from mixtune.report.page._verdict import give_verdict

    facts = read_facts(model, X=X, y=y, sources=sources)
    verdict = give_verdict(facts)
    found: dict[str, Any] = {"verdict": f"{verdict.sentence}.", "evidence": verdict.meaning[0]}
    if facts.classes is not None:
        found["loo_right"], found["loo_rows"] = facts.classes.right, facts.classes.rows
    return found


def _domains(core: Any, rows: Mapping[str, int]) -> list[dict[str, Any]]:
    """The focal domain, then the sources by weight."""
    weights = getattr(core, "weights_", None)
    # What a single row, left out or not, says of a removal is chance.
    single = rows.get(core.domain_names_[0]) == 1
    removals = {} if single else {removal.name: removal.change for removal in _removals(core)}
    alone = next((each.loo_error for each in getattr(core, "compared_", ()) if each.method == "focal only"), None)
    found = []
    for index, name in enumerate(core.domain_names_):
        domain: dict[str, Any] = {"name": name, "focal": index == 0}
        if weights is not None:
            domain["weight"] = float(weights.values[index])
        if name in rows:
            domain["rows"] = rows[name]
        if index == 0 and alone is not None:
            domain["rmse"] = _root(alone)
        elif weights is not None and weights.scores is not None:
            domain["rmse"] = _root(float(weights.scores[index]))
        if name in removals:
            domain["change"] = float(removals[name])
        found.append(domain)
    return found[:1] + sorted(found[1:], key=lambda domain: -domain.get("weight", 0.0))


def _removals(core: Any) -> Sequence[Any]:
    effects = getattr(core, "removal_effects", None)
    if effects is None:
        return ()
    try:
        return tuple(effects())
    except MixtuneError:  # a model that comes from a file may no longer be able to tell
        return ()


def _comparison(each: Any, focal_rows: int | None) -> dict[str, Any]:
    rmse = _root(each.loo_error)
    # The slope of the root turns the standard error of the mean square into that of its root.
    spread = each.standard_error / (2 * rmse) if rmse and each.standard_error is not None else None
    # Without an error there is nothing to relate ours to, and one row gives no interval.
    low, high = (None, None) if rmse is None or focal_rows == 1 else (each.ratio_low, each.ratio_high)
    return {
        "method": each.method,
        "rmse": rmse,
        # One row has no spread, which is not a spread of zero.
        "standard_error": None if focal_rows == 1 else spread,
        "ratio": None if rmse is None else each.ratio,
        "ratio_low": low,
        "ratio_high": high,
    }


def _candidate(each: Any) -> dict[str, Any]:
    return {"family": each.family, "share": float(each.share), "settings": dict(each.settings)}


def _gain(gain: Any) -> dict[str, float | None] | None:
    if not hasattr(gain, "reduction"):
        return None
    values = {"reduction": float(gain.reduction), "low": float(gain.low), "high": float(gain.high)}
    return {key: value if math.isfinite(value) else None for key, value in values.items()}


def _root(square: float) -> float | None:
    return math.sqrt(square) if math.isfinite(square) and square >= 0 else None
