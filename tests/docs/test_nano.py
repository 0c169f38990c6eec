"""The method in one file, beside the package."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.transfer.problems import cases, known_problem

from docs import nano
from mixtune.estimators import RegretOptimalRegressorCV


def errors(case):
    """Root mean squared errors of the file and of the package on the test rows of a case."""
    X, y, test = case.train.X, case.train.y, case.test
    sources = [(source.X, source.y) for source in case.sources]
    package = RegretOptimalRegressorCV(target_scale="identity").fit(X, y, sources=case.mapping).predict(test.X)
    both = nano.predict(X, y, sources, test.X), package
    return [float(np.sqrt(np.mean((predicted - test.y) ** 2))) for predicted in both]


def test_errors_are_those_of_the_package():
    problems = (("diamonds", 20, "clean"), ("star", 20, "flip"), ("food", 60, "clean"), ("exam-capped", 60, "flip"))
    found = [
        errors(next(iter(cases(known_problem(name, n_train=rows), variant=variant, seeds=[0]))))
        for name, rows, variant in problems
    ]
    ratios = np.log([file / package for file, package in found])
    assert abs(ratios.mean()) < 0.02


def test_without_sources():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = 5.0 + np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    new = rng.uniform(-1, 1, (100, 2))
    assert np.std(nano.predict(X, y, [], new) - np.sin(2 * new[:, 0])) < 0.2


@pytest.mark.parametrize("seed", [0, 1])
def test_misleading_sources_do_no_harm(seed):
    rng = np.random.default_rng(seed)

    def drawn(rows, slope):
        X = rng.standard_normal((rows, 3))
        return X, slope * X[:, 0] + 0.3 * rng.standard_normal(rows)

    sources = [drawn(60, 1.0) for _ in range(4)] + [drawn(60, -1.0) for _ in range(2)]
    X, y = drawn(12, 1.0)
    new = rng.standard_normal((200, 3))
    assert np.std(nano.predict(X, y, sources, new) - new[:, 0]) < 0.2
