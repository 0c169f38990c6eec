"""The self-tuned choice at level 1: validation tasks are done at the members', and sums of residuals come back.

The coordinator knows the moments of every member. For cross-domain validation each member takes the focal role once or
twice. It says how its rows are to be ordered (``ranks``), sends moments of the rows that are drawn (``parts``), gets
the candidates' coefficients for them, and sends back mean products of their residuals (``plays``). The choice equals
that of :class:`mixtune.RegretOptimalRegressorCV` on all rows in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mixtune._array import Floats, Integers
from mixtune._files import Arrays
from mixtune.errors import DataError
from mixtune.federated._messages import hashed
from mixtune.federated._policy import Policy, RefusedError
from mixtune.federated._study import Study
from mixtune.moments import Moments, Rows, Sample, Scaling, augmented, moved, pooled_scale
from mixtune.selection import SETTINGS, RemoteTasks, SummedTask

_TASK_ARRAYS = ("squares", "clipped", "left", "finite")


def remote_tasks(study: Study, focal: Rows, moments: Mapping[str, Moments]) -> tuple[RemoteTasks, Scaling]:
    """The choice for prepared focal rows and moments of the members, and the common mean that all are taken about."""
    mean, spread, level = pooled_scale([augmented(focal), *moments.values()])
    unit = np.ones_like(spread)
    scaling = Scaling(mean, unit, level)
    sources = [Sample(moved(each, mean, unit, level)) for each in moments.values()]
    return RemoteTasks(Sample.of(scaling.apply(focal)), sources, seed=study.features.seed), scaling


def centred(rows: Rows, arrays: Arrays) -> Rows:
    """A member's prepared rows about the common mean."""
    try:
        shift, level = (np.asarray(arrays[name], dtype=np.float64) for name in ("shift", "level"))
        return Scaling(shift, np.ones_like(shift), level).apply(rows)
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"the request lacks the common mean ({error}); ask for it again") from error


def drawn_rows(tasks: Sequence[Integers], count: int, rows: int) -> list[tuple[Integers, Integers]]:
    """The rows of each task and of its test, as sets of places."""
    for order in tasks:
        if len(order) < min(count, rows) or len(np.unique(order)) < len(order) or np.any((order < 0) | (order >= rows)):
            raise RefusedError("sums over rows that are not all different rows", "no task needs them", code="bad-rows")
    return [(order[:count], order[count : count + SETTINGS.test_rows]) for order in tasks]


def check_parts(policy: Policy, tasks: Sequence[Integers], count: int, rows: int, n_features: int) -> None:
    """Refuse sums over sets of rows so few, or so nearly the same, that their differences tell about single rows."""
    least = n_features / policy.features_per_row
    drawn = [[set(map(int, part)) for part in pair] for pair in drawn_rows(tasks, count, rows)]
    sets = [part for pair in drawn for part in pair if part] + [pair[0] | pair[1] for pair in drawn]
    everything = set(range(rows))
    apart = [len(one) for one in sets] + [len(everything - one) for one in sets]
    apart += [len(one ^ other) for place, one in enumerate(sets) for other in sets[:place]]
    small = [size for size in apart if 0 < size < least]
    if small:
        why = f"some of them, or what two of them differ by, are {min(small)} rows; {np.ceil(least):.0f} are the least"
        raise RefusedError("sums over parts of the rows", why, code="few-rows", rows=min(small))


def check_leverages(values: Floats, width: int) -> None:
    """Refuse leverages (C, n) that are none: with others, a request could single out rows."""
    if np.min(values) < -1e-9 or np.max(values) > 1 + 1e-9 or np.max(values.sum(axis=1)) > width + 1e-6:
        raise RefusedError("residuals under leverages that are none", "they would single out rows", code="bad-rows")


def task_content(tasks: Sequence[SummedTask]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tasks as values and arrays for an answer."""
    spec = {"tasks": [{"total": t.total, "alone": t.alone, "negligible": t.negligible} for t in tasks]}
    return spec, {f"{name}.{place}": getattr(t, name) for place, t in enumerate(tasks) for name in _TASK_ARRAYS}


def read_tasks(spec: Mapping[str, Any], arrays: Arrays, source: int, count: int, what: str) -> list[SummedTask]:
    """The tasks of an answer, checked; ``count`` is the number of candidates."""
    found = []
    try:
        for place, told in enumerate(spec["tasks"]):
            parts: dict[str, Any] = {name: np.asarray(arrays[f"{name}.{place}"]) for name in _TASK_ARRAYS}
            shapes = {name: (count,) if name == "finite" else (count, count) for name in parts}
            if any(part.shape != shapes[name] or not np.all(np.isfinite(part)) for name, part in parts.items()):
                raise ValueError("products of the wrong shape, or not finite")
            if any(np.min(np.diagonal(parts[name])) < 0 for name in _TASK_ARRAYS[:3]):
                raise ValueError("squares below zero")
            total, alone, negligible = float(told["total"]), int(told["alone"]), float(told["negligible"])
            if not (0 <= alone < count and total > 0 and negligible > 0):
                raise ValueError("numbers out of their range")
            found.append(SummedTask(source, total, alone=alone, negligible=negligible, **parts))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"the residuals of {what} cannot be used: {error}", code="bad-sums") from error
    return found


def play_context(study: Study, name: str, request: str) -> bytes:
    """What the candidates for one member's tasks are bound to."""
    return hashed(b"mixtune/1 candidates", study.fingerprint.encode(), name.encode(), request.encode())
