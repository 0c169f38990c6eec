"""From cash flows to a result: what every pricing run does at its end, and the clock it carries."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np

from mixtune.options._boundary import ExerciseRegion
from mixtune.options._estimate import Estimate
from mixtune.options._greeks import Greek
from mixtune.options._induction import Policy
from mixtune.options._paths import PathData
from mixtune.options._result import PriceResult
from mixtune.options._upper import UpperBound

__all__ = ["Clock", "assemble"]

Floats = np.ndarray[Any, Any]


def assemble(
    evaluation: PathData,
    flows: Floats,
    dates: Floats,
    policy: Policy,
    drawn: str,
    bound: UpperBound | None,
    region: ExerciseRegion | None,
    greeks: dict[str, Greek],
    seconds: dict[str, float],
    settings: dict[str, Any],
) -> PriceResult:
    """The result of a policy with these cash flows (paths,) at these dates on evaluation paths drawn so."""
    found, now = Estimate.of(flows, drawn=drawn), float(evaluation.payoffs[0, 0])
    stop_now = now > found.value
    exercised = np.zeros(len(flows), dtype=np.int16) if stop_now else dates[flows > 0]
    shares = np.bincount(exercised, minlength=evaluation.n_dates + 1) / len(flows)
    return PriceResult(
        price=now if stop_now else found.value,
        standard_error=0.0 if stop_now else found.standard_error,
        european=Estimate.of(evaluation.payoffs[:, -1], drawn=drawn),
        exercise_probability=shares,
        policy=policy,
        upper=bound,
        region=region,
        greeks=greeks,
        seconds=seconds,
        settings=settings,
    )


class Clock:
    """Time split by stage."""

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress

    @contextmanager
    def __call__(self, stage: str) -> Any:
        if self._progress is not None:
            self._progress(stage)
        begin = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - begin
