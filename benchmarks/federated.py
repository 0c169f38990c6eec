"""Claims: federated studies equal the pooled computation, masked sums are fast and small, and what privacy costs.

The exams (65 schools) and the houses of Ames (28 neighbourhoods) are cut as in the comparison with other packages: 20
training rows of one focal domain, the other domains as members. All exchanges run in one process. Levels 1 and 2 of the
method at fixed parameters, and level 1 of the self-tuned choice, are compared with the same method on all rows in one
place. Of the self-tuned choice at level 2, and of level 3 at several epsilon, errors on the focal domain's other rows
are given relative to those of the self-tuned choice on all rows in one place, as geometric means over cases. The noise
of level 3 is drawn anew each time. Of the method at fixed parameters at level 2, with and without its guard, errors are
relative to the focal rows alone, with honest members, with one that sends wrong sums, and with one that knows the focal
rows and the truth. Times are processor time.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.timing import Claim, Figure
from benchmarks.transfer import cases, named_problem
from mixtune.data import NumberColumn, TableEncoder, TargetColumn
from mixtune.errors import DataError, MissingExtraError
from mixtune.estimators import RegretOptimalRegressor, RegretOptimalRegressorCV
from mixtune.moments import Rows
from mixtune_federated import (
    Coordinator,
    FederatedRegressor,
    FixedMethod,
    Key,
    Limits,
    Policy,
    Privacy,
    Site,
    Study,
    pooled_twin,
)

#: Members of these problems are small; what their policies would refuse is beside the point here.
OPEN = Policy(features_per_row=1e9, least_cell=0)
EPSILONS = (1.0, 3.0, 8.0)
#: Cases of each problem, unless all are asked for.
FEW = 5


@dataclass
class Members:
    """Members with keys and rows, and all exchanges of a study in one process."""

    rows: dict[str, Rows]
    keys: dict[str, Key]
    study: Study

    @classmethod
    def of(cls, rows: dict[str, Rows], **settings: Any) -> Members:
        """The first member is the focal one."""
        focal = next(iter(rows))
        width, targets = rows[focal].X.shape[1], rows[focal].y
        encoder = TableEncoder(tuple(NumberColumn(f"x{place}") for place in range(width)), TargetColumn("y"))
        keys = {name: Key.generate(name) for name in rows}
        unit = np.zeros(width), np.ones(width), float(np.mean(targets)), float(np.std(targets)) or 1.0
        cards = tuple(key.card for key in keys.values())
        never = datetime.date(9999, 1, 1)
        return cls(rows, keys, Study("benchmark", focal, encoder, *unit, never, members=cards, **settings))

    def combine(self) -> Any:
        focal = self.study.focal
        sites = {name: Site(self.study, self.rows[name], self.keys[name], OPEN) for name in self.study.sources}
        coordinator, messages = Coordinator(self.study, self.rows[focal], self.keys[focal], policy=OPEN), []
        while True:
            try:
                request = coordinator.ask(messages)
            except DataError as error:
                if error.code != "nothing-left":
                    raise
                return coordinator.combine(messages, require_all=True)
            messages += [sites[name].answer(request) for name in request.header["recipients"] if name in sites]

    def model(self, combined: Any, guard: bool = False) -> FederatedRegressor:
        rows = self.rows[self.study.focal]
        return FederatedRegressor.from_study(self.study, guard=guard).fit(rows.X, rows.y, sources=combined)

    def difference(self) -> float:
        """Of coefficients from those of the pooled computation, relative to the largest of them."""
        combined = self.combine()
        others = {name: self.rows[name] for name in combined.names}
        pair = self.model(combined), pooled_twin(combined, self.rows[self.study.focal], others)
        ours, pooled = (np.append(each.coef_, each.intercept_) for each in pair)
        return float(np.max(np.abs(ours - pooled)) / np.max(np.abs(pooled)))


def measure(full: bool = False) -> Iterator[Claim | Figure]:
    yield from masked_cost()
    yield from ordinary_tables()
    if full:
        yield from many_members()
    for name in ("exam", "ames"):
        try:
            problem = named_problem(name)
        except MissingExtraError:
            continue
        seeds = (0, 1, 2) if full else (0,)
        yield from exactness(name, next(iter(cases(problem, seeds=seeds))))
        made = list(cases(problem, seeds=seeds))
        yield from accuracy(name, made if full else made[:FEW])
        yield from harm(
            name, [(_rows(case), Rows(case.test.X, case.test.y)) for case in (made if full else made[:FEW])]
        )
    for count in (20, 60, 200):
        yield from harm(f"drawn, {count} focal rows", [_drawn(count, seed) for seed in range(12)])


def exactness(name: str, case: Any) -> Iterator[Claim]:
    rows = _rows(case)
    for level, method, limit in ((1, "fixed", 1e-10), (2, "fixed", 1e-7), (1, "tuned", 1e-10), (2, "tuned", 1e-7)):
        found = Members.of(rows, level=level, method=method).difference()
        yield Claim(f"difference from pooled, level {level}, {method}, {name}", found, limit, 1, unit="")


def accuracy(name: str, made: Sequence[Any]) -> Iterator[Figure]:
    """Errors on rows that nobody has seen, relative to the self-tuned choice on all rows in one place."""
    errors: dict[str, list[float]] = {}
    for case in made:
        rows = _rows(case)
        whole = RegretOptimalRegressorCV(None).fit(case.train.X, case.train.y, sources=case.mapping)
        alone = RegretOptimalRegressorCV(None).fit(case.train.X, case.train.y)
        models: dict[str, Any] = {"pooled rows": whole, "focal rows alone": alone}
        tuned = Members.of(rows, level=2, method="tuned")
        models["level 2, tuned"] = tuned.model(tuned.combine())
        for epsilon in EPSILONS:
            private = replace(tuned.study, level=3, privacy=Privacy(epsilon=epsilon))
            members = replace(tuned, study=private)
            models[f"level 3, epsilon {epsilon:g}"] = members.model(members.combine())
        for label, model in models.items():
            left = case.test.y - model.predict(case.test.X)
            errors.setdefault(label, []).append(float(np.sqrt(np.mean(left**2))))
    base = np.log(errors.pop("pooled rows"))
    for label, found in errors.items():
        ratios = np.exp(np.log(found) - base)
        values = {"mean": float(np.exp(np.mean(np.log(ratios)))), "worst": float(ratios.max()), "cases": len(ratios)}
        yield Figure("error", f"{name}, {label}, relative to the self-tuned choice on pooled rows", values)


def harm(name: str, problems: Sequence[tuple[dict[str, Rows], Rows]]) -> Iterator[Figure]:
    """Errors of the method at fixed parameters on new rows, relative to the focal rows alone."""
    errors: dict[str, list[float]] = {}
    for rows, new in problems:
        alone = RegretOptimalRegressor(None, standardise=False).fit(rows["focal"].X, rows["focal"].y)
        base = _error(alone, new)
        kinds = {"honest members": rows, "one wrong member": _with_wrong_slopes(rows)}
        kinds["one informed wrong member"] = _with_mirrored_truth(rows, new)
        for kind, held in kinds.items():
            members = Members.of(held, level=2, fixed=FixedMethod(weights="equal"))
            combined = members.combine()
            for guard in (True, False):
                label = f"{kind}, guard {'on' if guard else 'off'}"
                errors.setdefault(label, []).append(_error(members.model(combined, guard), new) / base)
    for label, found in errors.items():
        values = {"mean": float(np.exp(np.mean(np.log(found)))), "worst": max(found), "cases": len(found)}
        yield Figure("error", f"{name}, {label}, relative to the focal rows alone", values)


def _error(model: Any, rows: Rows) -> float:
    return float(np.sqrt(np.mean((rows.y - model.predict(rows.X)) ** 2)))


def _with_wrong_slopes(rows: dict[str, Rows]) -> dict[str, Rows]:
    """The same, with the slope of the first source's first column off by three standard deviations of its targets."""
    name = list(rows)[1]
    X, y = rows[name].X, rows[name].y
    return {**rows, name: Rows(X, y + 3 * np.std(y) * X[:, 0])}


def _with_mirrored_truth(rows: dict[str, Rows], new: Rows) -> dict[str, Rows]:
    """The same, with a first source that knows the focal rows and the truth, and has 100 times as many rows.

    Its model is as far from the fit to the focal rows as the fit to new rows is, in the opposite direction: the focal
    rows fit it equally well.
    """
    name, focal = list(rows)[1], rows["focal"]
    own, truth = (RegretOptimalRegressor(None, standardise=False).fit(each.X, each.y) for each in (focal, new))
    X = np.tile(rows[name].X, (100, 1))
    return {**rows, name: Rows(X, 2 * own.predict(X) - truth.predict(X))}


def _drawn(count: int, seed: int, members: int = 4, columns: int = 4, spread: float = 0.3) -> Any:
    """Members of 60 rows whose slopes differ, ``count`` focal rows, and 1,000 new ones."""
    rng = np.random.default_rng(seed)
    truth, found = rng.standard_normal(columns), dict[str, Rows]()
    for name, size in {"focal": count + 1000, **{f"m{place}": 60 for place in range(members)}}.items():
        X, slopes = rng.standard_normal((size, columns)), truth + spread * rng.standard_normal(columns)
        found[name] = Rows(X, X @ slopes + rng.standard_normal(size))
    whole = found["focal"]
    return {**found, "focal": Rows(whole.X[:count], whole.y[:count])}, Rows(whole.X[count:], whole.y[count:])


def masked_cost(width: int = 512, members: int = 10) -> Iterator[Claim]:
    """A member's second answer, without the products of its own rows; and all that it receives and sends."""
    rng = np.random.default_rng(0)
    one = Rows(rng.standard_normal((4 * width, width)), rng.standard_normal(4 * width))
    group = Members.of({f"m{place}": one for place in range(members + 1)}, level=2)
    focal = group.study.focal
    sites = {name: Site(group.study, one, group.keys[name]) for name in group.study.sources}
    coordinator = Coordinator(group.study, one, group.keys[focal])
    first = coordinator.ask()
    answers = [site.answer(first) for site in sites.values()]
    second = coordinator.ask(answers)
    site = sites["m1"]
    local = site._local()
    site._local = lambda: local  # type: ignore[method-assign]
    times, size = [], 0
    for _ in range(5):
        begin = time.process_time()
        size = site.answer(second).size
        times.append(time.process_time() - begin)
    yield Claim(f"masked answer, p = {width}, {members} members", min(times), 0.05, 1)
    total = first.size + answers[0].size + second.size + size
    yield Claim(f"bytes of a member, p = {width}, {members} members", total / 1e6, 4.2, 1, unit="MB")


def ordinary_tables(trials: int = 50) -> Iterator[Figure]:
    """The part of tables without rare people, with three rows for each column or more, that a policy refuses."""
    rng, policy, draws = np.random.default_rng(0), Policy(), {"normal": 0, "exponential": 0, "log-normal": 0}
    sizes = ((60, 18), (100, 30), (300, 90), (1000, 20))
    for kind in draws:
        for rows, columns in [size for size in sizes for _ in range(trials)]:
            X = rng.standard_normal((rows, columns)) if kind == "normal" else rng.exponential(size=(rows, columns))
            X = np.exp(rng.standard_normal((rows, columns))) if kind == "log-normal" else X
            y = X @ rng.standard_normal(columns) / columns**0.5 + rng.standard_normal(rows)
            try:
                policy.check_cells(
                    np.column_stack([X, y]), np.arange(rows), [f"x{place}" for place in range(columns + 1)]
                )
            except DataError:
                draws[kind] += 1
    tables = len(sizes) * trials
    yield Figure("refused", "tables without rare people", {kind: count / tables for kind, count in draws.items()})


def many_members(width: int = 300, members: int = 1000) -> Iterator[Claim]:
    """All exchanges of a study with very many members, in one process."""
    rng = np.random.default_rng(0)
    one = Rows(rng.standard_normal((4 * width, width)), rng.standard_normal(4 * width))
    settings = {"level": 2, "fixed": FixedMethod(weights="equal"), "limits": Limits(message_bytes=2**28)}
    group = Members.of({f"m{place}": one for place in range(members + 1)}, **settings)
    begin = time.process_time()
    group.combine()
    taken = time.process_time() - begin
    yield Claim(f"all exchanges of {members} members, p = {width}", taken, 60.0, 1)


def _rows(case: Any) -> dict[str, Rows]:
    return {"focal": Rows(case.train.X, case.train.y), **{name: Rows(*pair) for name, pair in case.mapping.items()}}
