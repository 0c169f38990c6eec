"""The comparison on unseen focal rows: against scikit-learn's own cross-validation, a bootstrap, and known answers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.metrics import log_loss, mean_absolute_error, r2_score, roc_auc_score
from sklearn.model_selection import KFold, cross_val_predict

from mixtune.data import Domain, Domains, make_domains
from mixtune.errors import DataError, ParameterError
from mixtune.estimators import (
    Compared,
    LocalRegressor,
    Measures,
    RegretOptimalClassifier,
    RegretOptimalClassifierCV,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
    Sources,
    compare_held_out,
    compare_nested,
    left_out_rows,
    rivals,
)


def ordered(domain):
    """The rows in the order that folds are cut in."""
    order = np.lexsort((domain.y, *domain.X.T))
    return Domain(domain.name, domain.X[order], domain.y[order])


@pytest.fixture(scope="module")
def domains():
    return make_domains(n_domains=4, n_rows=23, n_source_rows=40, seed=0).domains


def test_same_as_scikit_learn_s_cross_validation(domains):
    methods = rivals(RegretOptimalRegressor(focal_name=domains.focal))
    found = compare_nested(domains, methods, folds=4, repeats=2, seed=7)
    focal, sources = ordered(domains.focal_domain), Sources.from_domains(domains)
    for each in found:
        losses = np.zeros(focal.n_rows)
        for repeat in range(2):
            cuts = KFold(4, shuffle=True, random_state=7 + repeat)
            out = cross_val_predict(methods[each.method], focal.X, focal.y, cv=cuts, params={"sources": sources})
            losses += (out - focal.y) ** 2 / 2
        assert each.error == pytest.approx(np.sqrt(losses.mean()))
        assert each.measures.rmse == pytest.approx(each.error)
        assert each.failures == 0
    assert found[0].ratio == pytest.approx(found[0].error / found[1].error)


def test_test_rows_are_unseen(domains):
    """A fit that remembers its rows would make no error on them."""

    class Memory(LocalRegressor):
        def fit(self, X, y, sample_weight=None, *, sources=None):
            self.known_ = {tuple(row): value for row, value in zip(X.tolist(), y.tolist())}
            return super().fit(X, y, sample_weight, sources=sources)

        def predict(self, X, return_std=False):
            assert not any(tuple(row) in self.known_ for row in np.asarray(X).tolist())
            return super().predict(X)

    (found,) = compare_nested(domains, {"memory": Memory()}, repeats=1)
    assert found.failures == 0
    assert found.ratio is None


class Column(BaseEstimator):
    """Predicts what one of the columns says."""

    def __init__(self, place=0):
        self.place = place

    def fit(self, X, y, sample_weight=None, *, sources=None):
        return self

    def predict(self, X):
        return np.asarray(X)[:, self.place]


def test_interval_of_the_ratio_agrees_with_a_bootstrap():
    rng = np.random.default_rng(0)
    shared, *apart = rng.standard_normal((3, 400))
    predicted = np.column_stack([0.8 * shared + 0.3 * apart[0], shared + 0.2 * apart[1]])
    train = Domains((Domain("a", predicted[:9], np.zeros(9)), Domain("b", predicted[9:], np.zeros(391))), focal="a")
    test = Domain("a", predicted, np.zeros(400))
    found, _ = compare_held_out(train, test, {"mixtune": Column(0), "own rows alone": Column(1)})
    rows = rng.integers(400, size=(4000, 400))
    ours, base = (np.sqrt((column**2)[rows].mean(axis=1)) for column in predicted.T)
    np.testing.assert_allclose([found.ratio_low, found.ratio_high], np.quantile(ours / base, [0.025, 0.975]), rtol=0.01)
    assert found.standard_error == pytest.approx(ours.std(), rel=0.1)


def test_classes_are_judged_by_the_log_loss():
    rng = np.random.default_rng(0)

    def draw(name, rows):
        X = rng.standard_normal((rows, 2))
        return Domain(name, X, (X[:, 0] + 0.7 * rng.standard_normal(rows) > 0).astype(float))

    domains = Domains((draw("a", 20), draw("b", 60)), focal="a")
    methods = rivals(RegretOptimalClassifier(focal_name="a"), classes=True)
    found = compare_nested(domains, methods, classes=True, repeats=1)
    focal, cuts = ordered(domains.focal_domain), KFold(5, shuffle=True, random_state=0)
    for each in found:
        out = cross_val_predict(
            *(methods[each.method], focal.X, focal.y),
            cv=cuts,
            params={"sources": Sources.from_domains(domains)},
            method="predict_proba",
        )
        assert each.measures.accuracy == pytest.approx(np.mean(np.argmax(out, axis=1) == focal.y))
        assert (each.error, each.measures.log_loss) == pytest.approx((log_loss(focal.y, out),) * 2)
        assert each.measures.auc == pytest.approx(roc_auc_score(focal.y, out[:, 1]))


def test_a_focal_fold_of_one_class_is_no_failure():
    X = np.arange(12.0)[:, None]
    y = np.r_[np.zeros(11), 1.0]
    domains = Domains((Domain("a", X, y), Domain("b", X, (X[:, 0] > 5).astype(float))), focal="a")
    found = compare_nested(domains, rivals(RegretOptimalClassifier(), classes=True), classes=True, folds=12)
    assert [each.failures for each in found] == [0, 0, 0, 0, 0]
    # The fits to own rows alone know of the other class, so that its one row has no probability of zero.
    assert found[1].error < 2


def test_measures_against_scikit_learn():
    rng = np.random.default_rng(0)
    y, out = rng.standard_normal((2, 30))
    found = Measures.of_numbers(y, out)
    assert (found.mae, found.r2) == pytest.approx((mean_absolute_error(y, out), r2_score(y, out)))
    weight = rng.integers(1, 4, 30).astype(float)
    assert Measures.of_numbers(y, out, weight).r2 == pytest.approx(r2_score(y, out, sample_weight=weight))
    labels, shares = rng.integers(0, 3, 30), rng.dirichlet(np.ones(3), 30)
    found = Measures.of_classes(labels, shares)
    assert found.log_loss == pytest.approx(log_loss(labels, shares))
    assert found.auc == pytest.approx(roc_auc_score(labels, shares, multi_class="ovr"))
    assert Measures.of_classes(np.zeros(3, dtype=int), shares[:3, :2]).auc is None
    assert Measures.of_numbers(np.ones(3), np.ones(3)).r2 is None


def test_left_out_rows_of_all_methods(domains):
    focal = domains.focal_domain
    model = RegretOptimalRegressorCV(feature_map=None).fit(focal.X, focal.y, sources=domains)
    rows = left_out_rows(model)
    np.testing.assert_allclose(rows.actual[:, 0], focal.y)
    np.testing.assert_allclose(rows.predicted["mixtune"][:, 0], model.loo_predictions_)
    others = [np.delete(focal.y, k).mean() for k in range(focal.n_rows)]
    np.testing.assert_allclose(rows.predicted["mean"][:, 0], others)
    fixed = RegretOptimalRegressor().fit(focal.X, focal.y, sources=domains)
    measures = left_out_rows(fixed).measures()
    for each in fixed.compared_:
        assert measures[each.method].rmse == pytest.approx(np.sqrt(each.loo_error))
    cut = focal.y > np.median(focal.y)
    sources = {each.name: (each.X, each.y > np.median(focal.y)) for each in domains.sources}
    classifier = RegretOptimalClassifierCV(feature_map=None).fit(focal.X, cut, sources=sources)
    rows = left_out_rows(classifier)
    np.testing.assert_array_equal(rows.actual, cut)
    measures = rows.measures()
    assert measures["mixtune"].accuracy == pytest.approx(np.mean((classifier.loo_predictions_ > 0) == cut))
    assert measures["mixtune"].log_loss < measures["mean"].log_loss
    assert measures["mean"].auc == 0.5


def test_held_out_rows(domains):
    train, test = domains.split_focal(10, seed=0)
    fitted = RegretOptimalRegressor().fit(train.focal_domain.X, train.focal_domain.y, sources=train)
    ours, alone, *_ = compare_held_out(train, test, rivals(fitted))
    assert ours.error == pytest.approx(np.sqrt(np.mean((fitted.predict(test.X) - test.y) ** 2)))
    assert alone.ratio == 1.0
    assert ours.seconds == 0.0


def test_a_failure_is_counted_and_named(domains):
    class Bad(LocalRegressor):
        def fit(self, X, y, sample_weight=None, *, sources=None):
            raise ValueError("no luck\nat all")

    found = compare_nested(domains, {"bad": Bad(), "own rows alone": LocalRegressor()}, folds=3, repeats=1)
    assert found[0] == Compared("bad", None, None, None, None, None, 0.0, 3, "ValueError: no luck")
    assert found[1].error > 0
    unfit = compare_nested(domains, {"mixtune": LocalRegressor(), "own rows alone": Bad()}, folds=3, repeats=1)
    assert unfit[0].error == found[1].error
    assert unfit[0].ratio is None


def test_mistakes(domains):
    with pytest.raises(ParameterError, match="at least 2"):
        compare_nested(domains, {}, folds=1)
    small, _ = domains.split_focal(19, seed=0)
    with pytest.raises(DataError, match="has 4 rows"):
        compare_nested(small, {})
