"""The self-tuned choice at level 1: validation tasks are done at the members', and sums of residuals come back.

The coordinator knows the moments of every member. For cross-domain validation each member takes the focal role once or
twice. It says how its rows are to be ordered (``ranks``), sends moments of the rows that are drawn (``parts``), gets
the candidates' coefficients for them, and sends back mean products of their residuals (``plays``). The choice equals
that of :class:`mixtune.RegretOptimalRegressorCV` on all rows in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mixtune import checks
from mixtune.choice import RemoteTasks, SummedSources, SummedTask
from mixtune.moments import Moments, Origin, Rows
from mixtune_federated import _sums as sums
from mixtune_federated._messages import hashed
from mixtune_federated._reading import reading
from mixtune_federated._study import Study
from mixtune_federated._types import Arrays, Content, Floats, Values

_TASK_ARRAYS = ("squares", "clipped", "left", "finite")


def remote_tasks(study: Study, focal: Rows, moments: Mapping[str, Moments], origin: Origin) -> RemoteTasks:
    """The choice for prepared focal rows and moments about ``origin``."""
    return RemoteTasks(focal, list(moments.values()), origin, seed=study.features.seed)


def centred(rows: Rows, arrays: Arrays) -> Rows:
    """A member's prepared rows about the common mean of a request."""
    return sums.origin_from(arrays, rows.shape[1], "the tasks of the request").rows(rows)


def task_content(tasks: Sequence[SummedTask]) -> Content:
    """Tasks as values and arrays for an answer."""
    spec = {"tasks": [{"total": t.total, "alone": t.alone, "negligible": t.negligible} for t in tasks]}
    return spec, {f"{name}.{place}": getattr(t, name) for place, t in enumerate(tasks) for name in _TASK_ARRAYS}


def read_tasks(spec: Values, arrays: Arrays, source: int, count: int, what: str) -> list[SummedTask]:
    """The tasks of an answer, checked; ``count`` is the number of candidates."""
    found = []
    with reading(f"the residuals of {what} cannot be used", "leave it out", code="bad-sums"):
        for place, told in enumerate(spec["tasks"]):
            parts: Values = {name: np.asarray(arrays[f"{name}.{place}"]) for name in _TASK_ARRAYS}
            shapes = {name: (count,) if name == "finite" else (count, count) for name in parts}
            if any(part.shape != shapes[name] or not np.all(np.isfinite(part)) for name, part in parts.items()):
                raise ValueError("products of the wrong shape, or not finite")
            if any(np.min(np.diagonal(parts[name])) < 0 for name in _TASK_ARRAYS[:3]):
                raise ValueError("squares below zero")
            total, alone, negligible = float(told["total"]), int(told["alone"]), float(told["negligible"])
            if not (0 <= alone < count and total > 0 and negligible > 0):
                raise ValueError("numbers out of their range")
            found.append(SummedTask(source, total, alone=alone, negligible=negligible, **parts))
    return found


def play_context(study: Study, name: str, request: str) -> bytes:
    """What the candidates for one member's tasks are bound to."""
    return hashed(b"mixtune/1 candidates", study.fingerprint.encode(), name.encode(), request.encode())


# --- level 2: only sums are known -------------------------------------------------------------------------------------

#: Products of residuals, relative to the error of the fit to a task's own rows, count up to this.
_LARGEST_PRODUCT = 2.0**14


def read_summed(study: Study, spec: Values, arrays: Arrays) -> SummedSources:
    """The sum of the members' moments, from a request."""
    total, mean = sums.sums_from(arrays, study.n_features, "the sums over all members")
    return SummedSources(total, mean, checks.check_positive("size", spec["size"]))


def summed_content(summed: SummedSources) -> Content:
    """The sum of the members' moments, for a request."""
    return {"size": summed.size}, {**sums.moment_arrays(summed.total), **sums.origin_arrays(summed.mean)}


def term_blocks(terms: Any) -> dict[str, Floats]:
    """Sums over posteriors as vectors."""
    seconds = np.concatenate([sums.triangle(matrix) for matrix in terms.seconds])
    parts = {"heads": terms.heads.ravel(), "seconds": seconds, "evidence": terms.evidence}
    return {**parts, "log_noise": np.array([terms.log_noise])}


def read_terms(blocks: Mapping[str, Floats], width: int, count: int) -> Any:
    """From :func:`term_blocks`, for ``width`` coefficients and ``count`` members."""
    sizes = len(blocks["evidence"])
    seconds = blocks["seconds"].reshape(sizes, -1)
    matrices = np.stack([sums.full_gram(each, width) for each in seconds])
    noise = float(blocks["log_noise"][0])
    sums_over = {"heads": blocks["heads"].reshape(sizes, width), "seconds": matrices, "evidence": blocks["evidence"]}
    return replace(SummedSources.no_terms(width), **sums_over, log_noise=noise, count=count)


def trial_blocks(task: SummedTask | None) -> dict[str, Floats]:
    """A validation task as vectors; zeros for a member that has no rows to spare."""
    if task is None:
        nothing = sums.triangle(np.zeros((SummedSources.candidates(),) * 2))
        return {"say": np.zeros(1), "plays": np.zeros(1), "squares": nothing, "clipped": nothing}
    say, limit = np.sqrt(task.total), _LARGEST_PRODUCT
    relative = task.squares / max(float(task.errors[task.alone]), 1e-12)
    squares, clipped = (say * sums.triangle(np.clip(part, -limit, limit)) for part in (relative, task.clipped))
    return {"say": np.array([say]), "plays": np.ones(1), "squares": squares, "clipped": clipped}


def read_trials(blocks: Mapping[str, Floats]) -> list[SummedTask]:
    """The task that stands for those of all members, if there were any."""
    say, plays = float(blocks["say"][0]), round(float(blocks["plays"][0]))
    if plays < 1 or say <= 0:
        return []
    count = SummedSources.candidates()
    squares, clipped = (sums.full_gram(blocks[name] / say, count) for name in ("squares", "clipped"))
    return [SummedTask.of_sums(squares, clipped, plays)]


def further_sizes(asked: str, width: int) -> dict[str, int]:
    """How many numbers each block of a further sum has, for ``width`` coefficients."""
    blank = trial_blocks(None) if asked == "trials" else term_blocks(SummedSources.no_terms(width))
    return {name: len(block) for name, block in blank.items()}
