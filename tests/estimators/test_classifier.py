import numpy as np
import pytest
import sklearn
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score

from estimators.transfer_data import make_transfer
from mixtune.errors import DataError
from mixtune.estimators import RegretOptimalClassifier, Sources
from mixtune.estimators._calibration import fit_sharpness, softmax_scores


def make_classes(seed=0, n=40, names=("cold", "mild", "warm")):
    X, y, sources = make_transfer(seed, n=n)
    cuts = np.quantile(y, np.linspace(0, 1, len(names) + 1)[1:-1])
    label = np.array(names)
    return (
        X,
        label[np.searchsorted(cuts, y)],
        {k: (U, label[np.searchsorted(cuts, v)]) for k, (U, v) in sources.items()},
    )


@pytest.mark.parametrize("names", [("cold", "mild", "warm"), ("no", "yes"), (3, 7)])
def test_without_sources_it_is_the_ridge_classifier(names):
    X, y, _ = make_classes(names=names)
    theirs = RidgeClassifier(alpha=2.0).fit(X / X.std(axis=0), y)
    ours = RegretOptimalClassifier(ridge=2.0).fit(X, y)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X / X.std(axis=0)))
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X / X.std(axis=0)), atol=1e-9)


@pytest.mark.parametrize("names", [("cold", "mild", "warm"), ("no", "yes")])
def test_with_sources(names):
    X, y, sources = make_classes(n=400, names=names)
    few = RegretOptimalClassifier().fit(X[:30], y[:30], sources=sources)
    alone = RegretOptimalClassifier().fit(X[:30], y[:30])
    assert few.score(X[30:], y[30:]) > alone.score(X[30:], y[30:]) - 0.02
    proba = few.predict_proba(X[30:])
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert log_loss(y[30:], proba) < np.log(len(names))
    assert few.regressor_.domain_names_ == ("focal", "s0", "s1", "s2")
    assert few.regressor_.weights_.as_dict()["s2"] < few.regressor_.weights_.as_dict()["s0"]


def test_a_class_only_in_sources():
    X, y, sources = make_classes()
    kept = y != "warm"
    model = RegretOptimalClassifier().fit(X[kept], y[kept], sources=sources)
    assert model.classes_.tolist() == ["cold", "mild", "warm"]
    assert model.predict_proba(X).shape == (40, 3)
    one = RegretOptimalClassifier().fit(X[y == "cold"], y[y == "cold"], sources=sources)
    assert len(one.classes_) == 3


def test_what_is_refused():
    X, y, _ = make_classes()
    with pytest.raises(DataError, match="one class"):
        RegretOptimalClassifier().fit(X, np.full(len(X), "cold"))
    with pytest.raises(DataError, match="text and others with numbers"):
        RegretOptimalClassifier().fit(X, y, sources={"b": (X, np.arange(len(X)) % 2)})
    with pytest.raises(DataError, match='y of domain "b"'):
        RegretOptimalClassifier().fit(X, y, sources={"b": (X, np.linspace(0, 1, len(X)))})
    with pytest.raises(ValueError, match="nknown label type"):
        RegretOptimalClassifier().fit(X, np.linspace(0, 1, len(X)))
    with pytest.raises(DataError, match='domain "b" has 1 columns'):
        RegretOptimalClassifier().fit(X, y, sources={"b": (X[:, :1], y)})


@pytest.mark.parametrize("routing", [False, True])
def test_in_scikit_learn(routing):
    X, y, sources = make_classes()
    with sklearn.config_context(enable_metadata_routing=routing):
        scores = cross_val_score(RegretOptimalClassifier(), X, y, cv=3, params={"sources": Sources(sources)})
        search = GridSearchCV(RegretOptimalClassifier(), {"ridge": [1.0, 10.0]}, scoring="neg_log_loss", cv=3)
        search.fit(X, y, sources=Sources(sources))
    assert scores.mean() > 0.6
    assert search.best_estimator_.regressor_.domain_names_ == ("focal", "s0", "s1", "s2")


def test_frames_in():
    pd = pytest.importorskip("pandas")
    X, y, sources = make_classes()
    frame = pd.DataFrame(X, columns=list("abcd"))
    frames = {k: (pd.DataFrame(U, columns=list("abcd"))[list("dcba")], pd.Series(v)) for k, (U, v) in sources.items()}
    named = RegretOptimalClassifier().fit(frame, pd.Series(y), sources=frames)
    plain = RegretOptimalClassifier().fit(X, y, sources=sources)
    np.testing.assert_allclose(named.predict_proba(frame), plain.predict_proba(X))
    with pytest.raises(ValueError, match="feature names"):
        named.predict(frame[list("dcba")])


def test_sharpness_minimises_the_log_loss_and_stays_finite():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((2000, 3))
    chances = softmax_scores(scores, 2.0)
    labels = np.array([rng.choice(3, p=row) for row in chances])
    assert fit_sharpness(scores, labels, np.ones(2000)) == pytest.approx(2.0, rel=0.1)
    separable = np.array([[1.0, -1.0], [-1.0, 1.0]] * 10)
    sharpness = fit_sharpness(separable, np.array([0, 1] * 10), np.ones(20))
    assert 0.9 < softmax_scores(separable[:1], sharpness)[0, 0] < 0.99
    assert fit_sharpness(np.array([[np.inf, 0.0]]), np.array([0]), np.ones(1)) == 1.0
