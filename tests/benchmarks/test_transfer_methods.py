"""The methods: limits that are known, sources that lie, and peers where their packages are installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from operator import attrgetter
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import sklearn
from benchmarks.transfer import Case, Problem, available_methods, cases, known_methods, methods_named, run, summarise
from benchmarks.transfer.methods import logistic
from sklearn.linear_model import RidgeCV

from mixtune.data import Domains, make_domains
from mixtune.errors import ParameterError
from mixtune.estimators import RegretOptimalRegressorCV

ALPHAS = np.logspace(-3, 4, 15)


def problem() -> Problem:
    sizes = {"n_domains": 6, "n_rows": 150, "n_source_rows": 150}
    domains = make_domains(**sizes, similarity=1.0, n_unrelated=0, noise=0.5, seed=0).domains
    return Problem("made", domains, n_train=20, focal=domains.names[:1])


def case(variant: str = "clean") -> Case:
    (made,) = cases(problem(), variant=variant, seeds=[0])
    return made


def fit(name: str, made: Case):
    (method,) = methods_named([name])
    return method.fit(made)


def relative(name: str, variant: str) -> float:
    (summary,) = summarise(run(problem(), variant=variant, seeds=[0, 1], methods=methods_named([name])))
    return summary.relative_rmse


def test_mixtune_runs_with_its_defaults_and_linear_without_a_map():
    made = case()
    for name, settings in (("mixtune", {}), ("linear", {"feature_map": None})):
        own = RegretOptimalRegressorCV(**settings).fit(made.train.X, made.train.y, sources=made.mapping)
        np.testing.assert_array_equal(fit(name, made).predict(made.test.X), own.predict(made.test.X))
    assert len(fit("mixtune", made).coef_) > len(fit("linear", made).coef_) == made.train.X.shape[1]


def test_focal_and_pooled_are_ridges():
    made = case()
    X = np.vstack([*(source.X for source in made.sources), made.train.X])
    y = np.concatenate([*(source.y for source in made.sources), made.train.y])
    np.testing.assert_allclose(
        fit("pooled", made).predict(made.test.X), RidgeCV(alphas=ALPHAS).fit(X, y).predict(made.test.X)
    )
    np.testing.assert_allclose(
        fit("focal", made).predict(made.test.X),
        RidgeCV(alphas=ALPHAS).fit(made.train.X, made.train.y).predict(made.test.X),
    )


@pytest.mark.parametrize("name", ["pooled", "detected", "stacked"])
def test_sources_like_the_focal_domain_help(name):
    assert relative(name, "clean") < 0.9


def test_pooling_suffers_from_sources_that_lie_and_detection_does_not():
    assert relative("pooled", "flip") > 1.1
    assert relative("detected", "flip") < 0.9
    assert relative("stacked", "flip") < 0.9


def test_stacking_gives_no_negative_weights():
    model = fit("stacked", case("flip"))
    assert (model.weights >= 0).all()
    assert len(model.weights) == 6


def test_boosted_trees_know_the_domain():
    """Domains that differ in their level only: it takes the category to tell the focal one."""
    rng = np.random.default_rng(0)
    data = {}
    for place, name in enumerate("abcde"):
        X = rng.normal(size=(140, 2))
        data[name] = (X, 5.0 * place + np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=140))
    made = Problem("levels", Domains.from_dict(data, focal="c"), n_train=40, focal=("b", "c"))
    names = [
        name
        for name in ("histgradient", "lightgbm", "catboost")
        if name in map(attrgetter("name"), available_methods())
    ]
    for summary in summarise(run(made, seeds=[0], methods=methods_named([*names, "pooled"]))):
        assert (summary.relative_rmse < 1) == (summary.method != "pooled"), summary


def test_one_class_among_the_focal_rows_gives_its_share():
    X = np.random.default_rng(0).normal(size=(8, 2))
    predicted = logistic(X, np.ones(8)).predict(X)
    assert ((predicted > 0.8) & (predicted < 1)).all()
    assert (logistic(X, np.zeros(8)).predict(X) < 0.2).all()


def test_names():
    names = [method.name for method in known_methods()]
    assert len(set(names)) == len(names)
    assert {"focal", "pooled", "detected", "stacked"} <= {method.name for method in available_methods()}
    assert max(len(method.title) for method in known_methods()) <= 34
    assert [method.name for method in methods_named(["pooled", "focal", "pooled"])] == ["pooled", "focal"]
    with pytest.raises(ParameterError, match="no method 'pool'; known: mixtune, linear, focal"):
        methods_named(["pool"])


def test_methods_that_are_not_installed_say_so(monkeypatch):
    monkeypatch.setattr("benchmarks.transfer.methods.find_spec", lambda name: None)
    with pytest.raises(ParameterError, match="'gpboost' needs gpboost, which is not installed"):
        methods_named(["gpboost"])
    assert {"gpboost", "sklego"}.isdisjoint(method.name for method in available_methods())


@pytest.mark.parametrize(
    "name", [method.name for method in known_methods() if method.needs or method.name == "mixtune"]
)
def test_installed_peers_run_quietly(name, capfd):
    if name not in [method.name for method in available_methods()]:
        pytest.skip(f"{name} is not here")
    routing = sklearn.get_config()["enable_metadata_routing"]
    assert relative(name, "clean") < 1.0
    assert sklearn.get_config()["enable_metadata_routing"] == routing
    assert capfd.readouterr().out == ""


class Adapter:
    """ADAPT's RegularTransferLR in ten lines: the penalty is squared, the start a fitted estimator."""

    def __init__(self, estimator, lambda_, verbose):
        self.start, self.damp = np.append(estimator.intercept_, estimator.coef_), lambda_

    def fit(self, X, y):
        from scipy.sparse.linalg import lsqr

        self.found = lsqr(np.column_stack([np.ones(len(X)), X]), y, damp=self.damp, x0=self.start, atol=0, btol=0)[0]
        return self

    def predict(self, X):
        return (self.found[0] + X @ self.found[1:])[:, None]


def test_regular_transfer_pulls_the_sources_ridge_by_a_penalty_of_the_grid(monkeypatch):
    made = case()
    monkeypatch.setitem(sys.modules, "adapt", ModuleType("adapt"))
    monkeypatch.setitem(sys.modules, "adapt.parameter_based", SimpleNamespace(RegularTransferLR=Adapter))
    (method,) = [method for method in known_methods() if method.name == "adapt-regular"]
    predicted = method.fit(made).predict(made.test.X)
    X = np.vstack([source.X for source in made.sources])
    start = RidgeCV(alphas=ALPHAS).fit(X, np.concatenate([source.y for source in made.sources]))
    design = np.column_stack([np.ones(20), made.train.X])
    left = made.train.y - start.predict(made.train.X)
    apart = []
    for alpha in ALPHAS:
        step = np.linalg.solve(design.T @ design + alpha * np.eye(design.shape[1]), design.T @ left)
        apart.append(np.abs(start.predict(made.test.X) + step[0] + made.test.X @ step[1:] - predicted).max())
    assert min(apart) < 1e-6
    assert np.mean((predicted - made.test.y) ** 2) < np.mean(
        (fit("focal", made).predict(made.test.X) - made.test.y) ** 2
    )


@pytest.mark.skipif(find_spec("statsmodels") is None, reason="statsmodels is not here")
def test_the_mixed_model_is_the_one_of_the_package():
    """With the groups' own predictions: fitted values of the package on the focal rows."""
    import warnings

    from statsmodels.regression.mixed_linear_model import MixedLM

    made = case()
    X = np.vstack([*(source.X for source in made.sources), made.train.X])
    y = np.concatenate([*(source.y for source in made.sources), made.train.y])
    groups = np.repeat([*(s.name for s in made.sources), made.focal], [*(s.n_rows for s in made.sources), 20])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ones = np.ones((len(y), 1))
        fitted = MixedLM(y, np.hstack([ones, X]), groups=groups, exog_re=np.hstack([ones, X[:, :1]])).fit(reml=True)
    np.testing.assert_allclose(fit("statsmodels", made).predict(made.train.X), np.asarray(fitted.fittedvalues)[-20:])
