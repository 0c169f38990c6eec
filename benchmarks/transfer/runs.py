"""Run methods on cases, and summarise their errors relative to the yardstick's.

The main figure is the mean error over all cases divided by the yardstick's mean error. The mean and the largest ratio
of single cases are reported too, because a method that helps on average and ruins one case is not safe to use.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.transfer.methods import YARDSTICK, Method, available_methods, methods_named
from benchmarks.transfer.problems import Case, Problem, cases
from mixtune._array import Floats
from mixtune.errors import DataError

COVERAGE = 0.9


@dataclass(frozen=True)
class Result:
    """The error of one method on one case; where it failed, ``rmse`` is None and ``failure`` says why."""

    problem: str
    variant: str
    focal: str
    seed: int
    method: str
    title: str
    rmse: float | None
    yardstick: float
    seconds: float
    n_test: int
    covered: int | None = None
    failure: str | None = None

    @property
    def ratio(self) -> float | None:
        """Error relative to the yardstick's on the same case."""
        return None if self.rmse is None else self.rmse / self.yardstick


@dataclass(frozen=True)
class Summary:
    """One method over all cases of a problem and variant.

    Attributes
    ----------
    relative_rmse
        Mean error over the cases, divided by the yardstick's mean error; None if the method failed on a case, since a
        mean over the others would be of other cases than the yardstick's.
    mean_ratio, worst_ratio
        Mean and largest of the ratios of single cases.
    worst_case
        Focal domain and seed of the largest.
    seconds
        Median time to fit; the first fit also imports its package.
    coverage
        Share of the test rows inside 90% intervals, for methods that give them.
    failures
        On how many cases it failed, and ``failure``, how the first time.
    """

    problem: str
    variant: str
    method: str
    title: str
    cases: int
    relative_rmse: float | None
    mean_ratio: float | None
    worst_ratio: float | None
    worst_case: str | None
    seconds: float
    coverage: float | None
    failures: int
    failure: str | None


def run(
    problem: Problem,
    *,
    variant: str = "clean",
    seeds: Sequence[int] = (0, 1, 2),
    methods: Sequence[Method] | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Result]:
    """Fit every method on every case and measure its error on the case's test rows.

    Parameters
    ----------
    problem, variant, seeds
        As for :func:`benchmarks.transfer.cases`.
    methods
        Which ones; all that can run here by default. Those that cannot take as many columns are left out. The yardstick
        is always measured, and in the results if it is among the methods.
    progress
        Called with the name of the method after each fit.

    Examples
    --------
    >>> from mixtune.data import make_domains
    >>> domains = make_domains(n_domains=4, n_rows=60, n_source_rows=60, seed=0).domains
    >>> problem = Problem("made", domains, n_train=10, focal=domains.names[:2])
    >>> [result.method for result in run(problem, seeds=[0], methods=methods_named(["focal", "pooled"]))]
    ['focal', 'pooled', 'focal', 'pooled']
    """
    chosen = suitable_methods(problem, available_methods() if methods is None else methods)
    if not chosen:
        raise DataError(f'problem "{problem.name}": none of the methods takes its {_columns(problem)} columns')
    (yardstick,) = methods_named([YARDSTICK])
    results = []
    for case in cases(problem, variant=variant, seeds=seeds):
        base = _measure(yardstick, case, 1.0)
        if not base.rmse:
            reason = "makes no error at all" if base.rmse is not None else f"failed ({base.failure})"
            raise DataError(
                f'problem "{problem.name}", focal "{case.focal}", seed {case.seed}: the yardstick {reason}, so there '
                "is nothing to compare with; leave this domain out of focal"
            )
        for method in chosen:
            results.append(_measure(method, case, base.rmse))
            if progress is not None:
                progress(method.name)
    return results


def suitable_methods(problem: Problem, methods: Sequence[Method]) -> tuple[Method, ...]:
    """Leave out the methods that cannot take as many columns.

    Examples
    --------
    >>> from mixtune.data import make_domains
    >>> domains = make_domains(n_domains=3, n_columns=3, n_rows=60, seed=0).domains
    >>> narrow = Method("narrow", "Narrow", lambda case: None, most_columns=2)
    >>> suitable_methods(Problem("made", domains, n_train=10, focal=domains.names[:1]), [narrow])
    ()
    """
    columns = _columns(problem)
    return tuple(method for method in methods if method.most_columns is None or columns <= method.most_columns)


def summarise(results: Sequence[Result]) -> list[Summary]:
    """Summarise results by problem, variant and method, in the order of their first results.

    Examples
    --------
    >>> def result(seed, rmse):
    ...     return Result("p", "clean", "a", seed, "m", "M", rmse, yardstick=2.0, seconds=0.1, n_test=5)
    >>> (summary,) = summarise([result(0, 1.0), result(1, 2.5)])
    >>> summary.relative_rmse, summary.worst_ratio, summary.worst_case
    (0.875, 1.25, 'a, seed 1')
    """
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.problem, result.variant, result.method), []).append(result)
    return [_summary(rows) for rows in groups.values()]


def _summary(rows: list[Result]) -> Summary:
    first = rows[0]
    failed = [row for row in rows if row.rmse is None]
    judged = [row for row in rows if row.covered is not None]
    relative = mean_ratio = worst_ratio = worst_case = None
    if not failed:
        errors = np.array([row.rmse for row in rows], dtype=np.float64)
        base = np.array([row.yardstick for row in rows])
        ratios = errors / base
        worst = rows[int(ratios.argmax())]
        relative, mean_ratio = float(errors.mean() / base.mean()), float(ratios.mean())
        worst_ratio, worst_case = float(ratios.max()), f"{worst.focal}, seed {worst.seed}"
    return Summary(
        first.problem,
        first.variant,
        first.method,
        first.title,
        cases=len(rows),
        relative_rmse=relative,
        mean_ratio=mean_ratio,
        worst_ratio=worst_ratio,
        worst_case=worst_case,
        seconds=statistics.median(row.seconds for row in rows),
        coverage=sum(row.covered or 0 for row in judged) / sum(row.n_test for row in judged) if judged else None,
        failures=len(failed),
        failure=failed[0].failure if failed else None,
    )


def _columns(problem: Problem) -> int:
    return problem.domains.focal_domain.n_columns


def _measure(method: Method, case: Case, yardstick: float) -> Result:
    X, y = case.test.X, case.test.y
    rmse = covered = failure = None
    begin = time.perf_counter()
    seconds = None
    # Packages raise errors of many kinds; a method that fails is recorded, and the others go on.
    try:
        model = method.fit(case)
        seconds = time.perf_counter() - begin
        rmse = _rmse(np.asarray(model.predict(X), dtype=np.float64), y)
        interval = getattr(model, "predict_interval", None)
        if interval is not None:
            low, high = interval(X, coverage=COVERAGE)
            covered = int(np.sum((low <= y) & (y <= high)))
    except (ArithmeticError, ImportError, LookupError, RuntimeError, TypeError, ValueError) as error:
        rmse = covered = None
        failure = f"{type(error).__name__}: {error}".splitlines()[0]
    return Result(
        case.problem,
        case.variant,
        case.focal,
        case.seed,
        method.name,
        method.title,
        rmse,
        yardstick if rmse is None or method.name != YARDSTICK else rmse,
        seconds if seconds is not None else time.perf_counter() - begin,
        n_test=len(y),
        covered=covered,
        failure=failure,
    )


def _rmse(predicted: Floats, y: Floats) -> float:
    if predicted.shape != y.shape or not np.isfinite(predicted).all():
        raise ValueError(f"predictions of shape {predicted.shape} for {y.shape[0]} rows, or some not finite")
    return float(np.sqrt(np.mean((predicted - y) ** 2)))
