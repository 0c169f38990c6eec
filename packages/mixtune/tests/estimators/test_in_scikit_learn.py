"""Cross-validation, grid search, pipelines and data frames, with and without metadata routing."""

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from estimators.transfer_data import make_transfer
from mixtune import Domains, RandomFeatures
from mixtune.errors import DataError
from mixtune.estimators import (
    JointRegressor,
    JointSubsetRegressor,
    LocalRegressor,
    MeanOfLocalsRegressor,
    RegretOptimalClassifier,
    RegretOptimalRegressor,
    Sources,
)
from mixtune.features import SklearnFeatures

FOLDS = KFold(3)
ROUTING = pytest.mark.parametrize("routing", [False, True])


def by_hand(model, X, y, sources):
    scores = []
    for train, test in FOLDS.split(X):
        fitted = clone(model).fit(X[train], y[train], sources=sources)
        scores.append(fitted.score(X[test], y[test]))
    return scores


@ROUTING
@pytest.mark.parametrize(
    "model",
    [
        RegretOptimalRegressor(),
        LocalRegressor(),
        JointRegressor(),
        JointSubsetRegressor(subset=["focal", "s0"]),
        MeanOfLocalsRegressor(ridge="loo"),
    ],
    ids=lambda m: type(m).__name__,
)
def test_cross_validation(model, routing):
    X, y, sources = make_transfer()
    with sklearn.config_context(enable_metadata_routing=routing):
        scores = cross_val_score(model, X, y, cv=FOLDS, params={"sources": Sources(sources)})
        predictions = cross_val_predict(model, X, y, cv=FOLDS, params={"sources": Sources(sources)})
    np.testing.assert_allclose(scores, by_hand(model, X, y, sources))
    assert predictions.shape == y.shape


@ROUTING
def test_grid_search(routing):
    X, y, sources = make_transfer()
    with sklearn.config_context(enable_metadata_routing=routing):
        search = GridSearchCV(RegretOptimalRegressor(), {"ridge": [0.1, 1e6], "weights": ["equal", "predictive"]}, cv=3)
        search.fit(X, y, sources=Sources(sources))
    assert search.best_params_ == {"ridge": 0.1, "weights": "predictive"}
    assert search.best_estimator_.domain_names_ == ("focal", "s0", "s1", "s2")


@ROUTING
def test_pipelines(routing):
    X, y, sources = make_transfer()
    features = SklearnFeatures(PolynomialFeatures(2, include_bias=False).fit(X))
    model = make_pipeline("passthrough", RegretOptimalRegressor(features))
    with sklearn.config_context(enable_metadata_routing=routing):
        name = "sources" if routing else "regretoptimalregressor__sources"
        model.fit(X, y, **{name: Sources(sources)})
        scores = cross_val_score(model, X, y, cv=FOLDS, params={name: Sources(sources)})
    assert model[-1].coef_.shape == (14,)
    assert model[-1].domain_names_ == ("focal", "s0", "s1", "s2")
    np.testing.assert_allclose(scores, by_hand(RegretOptimalRegressor(features), X, y, sources))


def test_a_dict_that_would_be_cut_up():
    X, y, sources = make_transfer(n=3)
    numbered = dict(enumerate(sources.values()))
    with pytest.raises(DataError, match="wrap it in Sources"):
        cross_val_score(LocalRegressor(), X, y, cv=3, params={"sources": numbered}, error_score="raise")
    domains = Domains.from_dict({"f": (X, y), "s0": sources["s0"], "s1": sources["s1"]}, focal="f")
    with pytest.raises(DataError, match="wrap it in Sources"):
        cross_val_score(LocalRegressor(), X, y, cv=3, params={"sources": domains}, error_score="raise")


def test_a_dict_of_as_many_sources_as_rows_needs_sources():
    """scikit-learn slices a plain dict of that size by row numbers before it calls fit."""
    X, y, sources = make_transfer(n=3)
    wrapped = Sources(sources)
    assert (
        len(
            cross_val_score(JointRegressor(), X, y, cv=3, scoring="neg_mean_squared_error", params={"sources": wrapped})
        )
        == 3
    )
    search = GridSearchCV(JointRegressor(), {"ridge": [0.1, 1.0]}, cv=3, scoring="neg_mean_squared_error").fit(
        X, y, sources=wrapped
    )
    np.testing.assert_array_equal(search.predict(X), search.best_estimator_.predict(X))


def test_domains_are_sources():
    X, y, sources = make_transfer()
    domains = Domains.from_dict({"f": (X, y), **sources}, focal="f")
    one = RegretOptimalRegressor().fit(X, y, sources=domains)
    two = RegretOptimalRegressor().fit(X, y, sources=sources)
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_pandas_frames():
    pd = pytest.importorskip("pandas")
    X, y, sources = make_transfer()
    names = ["a", "b", "c", "d"]
    frames = {name: (pd.DataFrame(U, columns=names)[["d", "b", "a", "c"]], v) for name, (U, v) in sources.items()}
    frame = pd.DataFrame(X, columns=names)
    plain = RegretOptimalRegressor().fit(X, y, sources=sources)
    named = RegretOptimalRegressor().fit(frame, pd.Series(y), sources=frames)
    np.testing.assert_allclose(named.coef_, plain.coef_)
    assert named.feature_names_in_.tolist() == names
    with pytest.raises(ValueError, match="feature names"):
        named.predict(frame[["b", "a", "c", "d"]])
    lacking = {"s0": (frames["s0"][0].drop(columns="b"), frames["s0"][1])}
    with pytest.raises(DataError, match='domain "s0" and the focal rows differ in columns: missing "b"'):
        RegretOptimalRegressor().fit(frame, y, sources=lacking)
    words = {"s0": (frames["s0"][0].assign(b="x"), frames["s0"][1])}
    with pytest.raises(DataError, match='column "b" of X of domain "s0" holds text'):
        RegretOptimalRegressor().fit(frame, y, sources=words)
    twice = pd.DataFrame(X, columns=["a", "a", "c", "d"])
    with pytest.raises(DataError, match='more than one column named "a"'):
        RegretOptimalRegressor().fit(twice, y)
    scores = cross_val_score(RegretOptimalRegressor(), frame, y, cv=FOLDS, params={"sources": Sources(frames)})
    np.testing.assert_allclose(scores, by_hand(RegretOptimalRegressor(), X, y, sources))


def test_names_reach_feature_maps_and_partial_fit():
    pd = pytest.importorskip("pandas")
    X, y, sources = make_transfer()
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    features = SklearnFeatures(StandardScaler().fit(frame[["c", "a"]]))
    named = {name: (pd.DataFrame(U, columns=["a", "b", "c", "d"]), v) for name, (U, v) in sources.items()}
    model = RegretOptimalRegressor(features).fit(frame, y, sources={"s0": named["s0"]})
    assert model.coef_.shape == (2,)
    model.partial_fit(frame[:3], y[:3], sources={"s1": (named["s1"][0][["d", "c", "b", "a"]], named["s1"][1])})
    straight = RegretOptimalRegressor(features).fit(frame, y, sources={"s0": named["s0"]})
    straight.partial_fit(frame[:3], y[:3], sources={"s1": named["s1"]})
    np.testing.assert_allclose(model.coef_, straight.coef_)


def test_polars_frames():
    pl = pytest.importorskip("polars")
    X, y, sources = make_transfer()
    names = ["a", "b", "c", "d"]
    frames = {
        name: (pl.DataFrame(U, schema=names).select(["d", "b", "a", "c"]), pl.Series(v))
        for name, (U, v) in sources.items()
    }
    named = RegretOptimalRegressor().fit(pl.DataFrame(X, schema=names), pl.Series(y), sources=frames)
    np.testing.assert_allclose(named.coef_, RegretOptimalRegressor().fit(X, y, sources=sources).coef_)
    assert named.feature_names_in_.tolist() == names


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        (np.ones((0, 2)), np.ones(0), "0 sample"),
        (np.ones((2, 0)), np.ones(2), "0 feature"),
        ([["a", "b"], ["c", "d"]], [1.0, 2.0], "X holds text"),
        (np.array([[1.0, np.nan]] * 3), np.ones(3), "NaN"),
        (np.ones((3, 2)), np.ones(2), "inconsistent numbers of samples"),
        (np.ones((3, 2)), [1.0, np.inf, 2.0], "infinity"),
        ([[10**400], [1]], [1.0, 2.0], "beyond 1e308"),
        ([[2], [1]], [10**400, 2], "beyond 1e308"),
    ],
)
def test_bad_focal_rows(X, y, words):
    with pytest.raises(ValueError, match=words):
        RegretOptimalRegressor().fit(X, y)


def test_models_survive_pickling_before_and_after_use():
    X, y, sources = make_transfer()
    labels = y > np.median(y)
    classes = {name: (U, v > np.median(v)) for name, (U, v) in sources.items()}
    for model in (
        RegretOptimalRegressor(RandomFeatures(n_inputs=4, width=10, seed=0)).fit(X, y, sources=sources),
        MeanOfLocalsRegressor().fit(X, y, sources=sources),
        RegretOptimalClassifier().fit(X, labels, sources=classes),
    ):
        again = pickle.loads(pickle.dumps(model))  # noqa: S301
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
