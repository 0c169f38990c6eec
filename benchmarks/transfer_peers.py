"""Claim: on the rows of the Ridge comparison a regret-optimal fit is at least 5 times faster than the nearest peers.

100,000 rows, 1000 features, 10 domains, of which the first is focal. The peers are those of `python -m benchmarks
transfer`, with the settings given there, so they choose their penalties from the data; our fit of the claim does not.
The times with both sides tuned, and with both at fixed parameters (where a peer has one or two ridges to fit and
nothing to choose), are given beside it without a limit. Only what is installed is measured: skada and ADAPT want
environments of their own (see the page).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.linear_model import Ridge

from benchmarks.pooled_ridge import DOMAINS, FEATURES, ROWS, draw
from benchmarks.timing import Claim, Figure
from benchmarks.transfer import Case, known_methods
from mixtune.data import Domain
from mixtune.estimators import RegretOptimalRegressor

PACKAGES = ("skada", "adapt")


def case_of(rows: int, features: int, domains: int) -> Case:
    """The rows of the Ridge comparison as a case; the first domain is focal, and a few of its rows stand for a test."""
    X, y, parts = draw(rows, features, domains)
    members = [Domain(f"domain {i}", X[part], y[part]) for i, part in enumerate(parts)]
    return Case("pooled", "clean", 0, members[0].name, members[0], Domain("test", X[:5], y[:5]), tuple(members[1:]), ())


def _sources(case: Case) -> tuple[np.ndarray, np.ndarray]:
    return np.vstack([s.X for s in case.sources]), np.concatenate([s.y for s in case.sources])


def _skada(case: Case) -> object:
    """Sources reweighted by KLIEP, then one ridge on them and the focal rows."""
    with config_context():  # the package switches metadata routing on for the whole process
        from skada import KLIEPReweightAdapter

        X, y = _sources(case)
        labels = np.repeat([1, -2], [len(X), case.train.n_rows])
        X, y = np.vstack([X, case.train.X]), np.concatenate([y, case.train.y])
        adapter = KLIEPReweightAdapter(gamma="auto", random_state=0).fit(X, sample_domain=labels)
        weights = np.asarray(adapter.compute_weights(X, sample_domain=labels))
    return Ridge(1.0, solver="cholesky").fit(X, y, sample_weight=np.where(labels > 0, weights, 1.0))


def _adapt_regular(case: Case) -> object:
    """A ridge of the sources, pulled to the focal rows."""
    from adapt.parameter_based import RegularTransferLR

    pretrained = Ridge(1.0, solver="cholesky").fit(*_sources(case))
    return RegularTransferLR(pretrained, lambda_=1.0, verbose=0).fit(case.train.X, case.train.y)


def _adapt_balanced(case: Case) -> object:
    """One weighted ridge on all rows."""
    from adapt.instance_based import BalancedWeighting

    model = BalancedWeighting(Ridge(1.0, solver="cholesky"), Xt=case.train.X, yt=case.train.y, verbose=0)
    return model.fit(*_sources(case))


#: At fixed parameters: title, fit, package.
FIXED: tuple[tuple[str, Callable[[Case], Any], str], ...] = (
    ("skada KLIEP, one ridge", _skada, "skada"),
    ("ADAPT RegularTransferLR, one penalty", _adapt_regular, "adapt"),
    ("ADAPT BalancedWeighting, one ridge", _adapt_balanced, "adapt"),
)


def _seconds(fit: Callable[[Case], Any], case: Case, rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        fit(case)
        best = min(best, time.perf_counter() - begin)
    return best


def measure(
    rows: int = ROWS, features: int = FEATURES, domains: int = DOMAINS, *, rounds: int = 2
) -> Iterator[Claim | Figure]:
    here = {name for name in PACKAGES if find_spec(name) is not None}
    if not here:
        return
    case, tiny = case_of(rows, features, domains), case_of(200, 3, 2)
    size = f"n = {rows}, p = {features}, N = {domains}"
    ours = lambda case: RegretOptimalRegressor().fit(case.train.X, case.train.y, sources=case.mapping)  # noqa: E731
    mine = _seconds(ours, case, rounds)
    for title, fit, package in FIXED:
        if package in here:
            fit(tiny)  # imports the package
            yield _beside(f"fixed parameters / {title}, {size}", mine, _seconds(fit, case, rounds))
    methods = {method.name: method for method in known_methods()}
    tuned = _seconds(methods["mixtune"].fit, case, 1)
    for method in methods.values():
        narrow = method.most_columns is not None and features > method.most_columns
        if method.needs in here and not narrow:
            other = _seconds(method.fit, case, 1)
            yield Claim(f"RegretOptimalRegressor / {method.title}, {size}", mine, other, 1 / 5)
            yield _beside(f"RegretOptimalRegressorCV / {method.title}, {size}", tuned, other)


def _beside(about: str, ours: float, other: float) -> Figure:
    return Figure("peer", about, {"mixtune (s)": ours, "other (s)": other, "ratio": ours / other})
