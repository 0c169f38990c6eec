"""Run methods on cases, and summarise their errors relative to the yardstick's.

The main figure is the mean error over all cases divided by the yardstick's mean error. The mean and the largest ratio
of single cases are reported too, because a method that helps on average and ruins one case is not safe to use.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.transfer.methods import YARDSTICK, Method, available_methods, methods_named
from benchmarks.transfer.problems import Case, Problem, cases
from mixtune.arrays import Floats
from mixtune.errors import DataError

COVERAGE = 0.9


@dataclass(frozen=True)
class Result:
    """The error of one method on one case: ``rmse``, or where there are classes ``log_loss``; the other is None.

    Where the method failed both are None, and ``failure`` says why.
    """

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
    n_train: int | None = None
    log_loss: float | None = None

    @property
    def error(self) -> float | None:
        """The error, whichever it is."""
        return self.rmse if self.log_loss is None else self.log_loss

    @property
    def ratio(self) -> float | None:
        """Error relative to the yardstick's on the same case."""
        return None if self.error is None else self.error / self.yardstick


@dataclass(frozen=True)
class Summary:
    """One method over all cases of a problem and variant with so many focal rows.

    Attributes
    ----------
    relative_rmse
        Mean error over the cases, divided by the yardstick's mean error; None if the method failed on a case, since a
        mean over the others would be of other cases than the yardstick's. Where there are classes, the errors are log
        losses.
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
    n_train: int | None


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
    made = cases(problem, variant=variant, seeds=seeds)
    return [result for case in made for result in run_case(case, chosen, progress=progress)]


def run_case(
    case: Case, methods: Sequence[Method], *, progress: Callable[[str], None] | None = None
) -> Iterator[Result]:
    """Fit methods on one case, one after another, as :func:`run` does.

    Examples
    --------
    >>> from mixtune.data import make_domains
    >>> domains = make_domains(n_domains=4, n_rows=60, n_source_rows=60, seed=0).domains
    >>> (case,) = cases(Problem("made", domains, n_train=10, focal=domains.names[:1]), seeds=[0])
    >>> [result.ratio for result in run_case(case, methods_named(["focal"]))]
    [1.0]
    """
    (yardstick,) = methods_named([YARDSTICK])
    base = _measure(yardstick, case, 1.0)
    if not base.error:
        reason = "makes no error at all" if base.error is not None else f"failed ({base.failure})"
        raise DataError(
            f'problem "{case.problem}", focal "{case.focal}", seed {case.seed}: the yardstick {reason}, so there '
            "is nothing to compare with; leave this domain out of focal"
        )
    for method in methods:
        yield _measure(method, case, base.error)
        if progress is not None:
            progress(method.name)


def suitable_methods(problem: Problem, methods: Sequence[Method]) -> tuple[Method, ...]:
    """Leave out the methods that cannot take as many columns, or classes.

    Examples
    --------
    >>> from mixtune.data import make_domains
    >>> domains = make_domains(n_domains=3, n_columns=3, n_rows=60, seed=0).domains
    >>> narrow = Method("narrow", "Narrow", lambda case: None, most_columns=2)
    >>> suitable_methods(Problem("made", domains, n_train=10, focal=domains.names[:1]), [narrow])
    ()
    """
    columns = _columns(problem)
    return tuple(
        method
        for method in methods
        if (method.most_columns is None or columns <= method.most_columns)
        and (method.takes_classes or not problem.classes)
    )


def summarise(results: Sequence[Result]) -> list[Summary]:
    """Summarise results by problem, variant, focal rows and method, in the order of their first results.

    Examples
    --------
    >>> def result(seed, rmse):
    ...     return Result("p", "clean", "a", seed, "m", "M", rmse, yardstick=2.0, seconds=0.1, n_test=5)
    >>> (summary,) = summarise([result(0, 1.0), result(1, 2.5)])
    >>> summary.relative_rmse, summary.worst_ratio, summary.worst_case
    (0.875, 1.25, 'a, seed 1')
    """
    groups: dict[tuple[str, str, int | None, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.problem, result.variant, result.n_train, result.method), []).append(result)
    return [_summary(rows) for rows in groups.values()]


def _summary(rows: list[Result]) -> Summary:
    first = rows[0]
    failed = [row for row in rows if row.error is None]
    judged = [row for row in rows if row.covered is not None]
    relative = mean_ratio = worst_ratio = worst_case = None
    if not failed:
        errors = np.array([row.error for row in rows], dtype=np.float64)
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
        n_train=first.n_train,
    )


def geometric_mean(results: Sequence[Result]) -> float | None:
    """Geometric mean of the ratios of single cases, over problems of any scale; None if a method failed on one.

    Examples
    --------
    >>> def result(rmse):
    ...     return Result("p", "clean", "a", 0, "m", "M", rmse, yardstick=1.0, seconds=0.1, n_test=5)
    >>> geometric_mean([result(0.5), result(2.0)])
    1.0
    """
    ratios = [result.ratio for result in results]
    if not ratios or None in ratios:
        return None
    return float(np.exp(np.mean(np.log(np.array(ratios, dtype=np.float64)))))


def _columns(problem: Problem) -> int:
    return problem.domains.focal_domain.n_columns


def _measure(method: Method, case: Case, yardstick: float) -> Result:
    X, y = case.test.X, case.test.y
    error = covered = failure = None
    begin = time.perf_counter()
    seconds = None
    # Packages raise errors of many kinds; a method that fails is recorded, and the others go on.
    try:
        model = method.fit(case)
        seconds = time.perf_counter() - begin
        predicted = np.asarray(model.predict(X), dtype=np.float64)
        error = (_log_loss if case.classes else _rmse)(predicted, y)
        interval = getattr(model, "predict_interval", None)
        if interval is not None:
            low, high = interval(X, coverage=COVERAGE)
            covered = int(np.sum((low <= y) & (y <= high)))
    except (ArithmeticError, ImportError, LookupError, RuntimeError, TypeError, ValueError) as raised:
        error = covered = None
        failure = f"{type(raised).__name__}: {raised}".splitlines()[0]
    return Result(
        case.problem,
        case.variant,
        case.focal,
        case.seed,
        method.name,
        method.title,
        None if case.classes else error,
        yardstick if error is None or method.name != YARDSTICK else error,
        seconds if seconds is not None else time.perf_counter() - begin,
        n_test=len(y),
        covered=covered,
        failure=failure,
        n_train=case.train.n_rows,
        log_loss=error if case.classes else None,
    )


def _check_predictions(predicted: Floats, y: Floats) -> None:
    if predicted.shape != y.shape or not np.isfinite(predicted).all():
        raise ValueError(f"predictions of shape {predicted.shape} for {y.shape[0]} rows, or some not finite")


def _rmse(predicted: Floats, y: Floats) -> float:
    _check_predictions(predicted, y)
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


def _log_loss(predicted: Floats, y: Floats) -> float:
    """Log loss of probabilities of class 1, kept 1e-6 away from 0 and 1, so that one row cannot decide."""
    _check_predictions(predicted, y)
    share = np.clip(predicted, 1e-6, 1 - 1e-6)
    return float(-np.mean(np.where(y == 1, np.log(share), np.log1p(-share))))
