import numpy as np
import pytest
import sklearn
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score

from estimators.transfer_data import make_transfer
from mixtune.errors import DataError, ParameterError
from mixtune.estimators import RegretOptimalClassifier, RegretOptimalClassifierCV, Sources, load
from mixtune.moments import Moments


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


def scores_of_all(scores):
    """One column for each of the classes: with two of them, the score of the second and its opposite."""
    scores = np.asarray(scores)
    return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores


def best_sharpness(scores, places):
    """The factor of least log loss, with labels smoothed by one row spread over all classes (Platt)."""
    count, classes = scores.shape
    wanted = np.full(scores.shape, 1 / (1 + count) / classes)
    wanted[np.arange(count), places] += count / (1 + count)
    loss = lambda log: -np.sum(wanted * log_softmax(np.exp(log) * scores, axis=1))  # noqa: E731
    return float(np.exp(minimize_scalar(loss, bounds=(-5, 5), method="bounded").x))


@pytest.mark.parametrize("names", [("cold", "mild", "warm"), ("no", "yes")])
def test_sharpness_minimises_the_log_loss_of_left_out_rows(names):
    X, y, sources = make_classes(names=names)
    model = RegretOptimalClassifier().fit(X, y, sources=sources)
    expected = best_sharpness(scores_of_all(model.loo_predictions_), np.searchsorted(model.classes_, y))
    assert model.sharpness_ == pytest.approx(expected, rel=1e-4)
    logs = log_softmax(model.sharpness_ * scores_of_all(model.decision_function(X)), axis=1)
    np.testing.assert_allclose(model.predict_proba(X), np.exp(logs))


def test_sharpness_stays_finite():
    """Classes that are told apart perfectly, and a row that nothing is left to predict from."""
    X = np.repeat([[-1.0], [1.0]], 10, axis=0) + 1e-3 * np.random.default_rng(0).standard_normal((20, 1))
    sure = RegretOptimalClassifier().fit(X, X[:, 0] > 0).predict_proba([[1.0]])[0, 1]
    assert 0.9 < sure < 0.99
    assert RegretOptimalClassifier().fit(X[:1], [0], sources={"b": (X, X[:, 0] > 0)}).sharpness_ == 1.0


@pytest.mark.parametrize("names", [("cold", "mild", "warm"), ("no", "yes")])
@pytest.mark.parametrize("kind", [RegretOptimalClassifier, RegretOptimalClassifierCV])
def test_adding_rows_and_sources_is_fitting_to_all(kind, names):
    X, y, sources = make_classes(n=60, names=names)
    settings = {"standardise": False}  # the first fit's scaling is kept by the classifier at fixed parameters
    whole = kind(**settings).fit(X, y, np.linspace(0.5, 2, 60), sources=sources)
    weight = np.linspace(0.5, 2, 60)
    first = {"s0": (sources["s0"][0][:20], sources["s0"][1][:20])}
    rest = {"s0": (sources["s0"][0][20:], sources["s0"][1][20:])}
    grown = kind(**settings).partial_fit(X[:25], y[:25], classes=names, sample_weight=weight[:25], sources=first)
    grown.partial_fit(X[25:], y[25:], sample_weight=weight[25:], sources=rest)
    grown.partial_fit(sources={name: sources[name] for name in ("s1", "s2")}, classes=list(reversed(names)))
    assert grown.domain_names_ == whole.domain_names_
    np.testing.assert_allclose(grown.decision_function(X), whole.decision_function(X), atol=1e-8)
    np.testing.assert_allclose(grown.predict_proba(X), whole.predict_proba(X), atol=1e-5)
    less = kind(**settings).fit(X, y, weight, sources={name: sources[name] for name in ("s0", "s2")})
    assert grown.forget("s1") is grown
    np.testing.assert_allclose(grown.predict_proba(X), less.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("kind", [RegretOptimalClassifier, RegretOptimalClassifierCV])
def test_classes_that_come_later(kind):
    X, y, sources = make_classes(n=60)
    mild = y == "mild"
    model = kind().partial_fit(X[mild], y[mild], classes=["warm", "cold", "mild"])
    assert set(model.predict(X)) == {"mild"}
    model.partial_fit(X[~mild], y[~mild])
    assert model.score(X, y) > 0.6
    two = kind().fit(X[~mild], y[~mild])
    before = two.predict_proba(X)
    with pytest.raises(
        DataError, match=r"these rows have new classes: 'mild'; list all classes in the first partial_fit"
    ):
        two.partial_fit(X, y)
    with pytest.raises(DataError, match="these rows have new classes: 'mild'"):
        two.partial_fit(sources=sources)
    np.testing.assert_array_equal(two.predict_proba(X), before)
    # A row that weighs nothing may have any label.
    two.partial_fit(X[:3], ["cold", "warm", "mild"], sample_weight=[1.0, 1.0, 0.0])
    assert len(two.loo_predictions_) == (~mild).sum() + 2


def test_what_adding_refuses():
    X, y, sources = make_classes(n=60)
    model = RegretOptimalClassifier().fit(X, y, sources=sources)
    with pytest.raises(ParameterError, match="those of the first fit"):
        model.partial_fit(X, y, classes=["cold", "warm"])
    with pytest.raises(ParameterError, match="X and y together"):
        model.partial_fit(X)
    with pytest.raises(ParameterError, match='no source "s9"'):
        model.forget("s9")
    with pytest.raises(DataError, match="text and others with numbers"):
        model.partial_fit(X, np.zeros(len(X)))
    with pytest.raises(DataError, match="these rows have new classes: 'warm'"):
        RegretOptimalClassifier().partial_fit(X, y, classes=["cold", "mild"])
    with pytest.raises(ParameterError, match="every class that will ever occur"):
        RegretOptimalClassifier().partial_fit(X, y, classes=[])


def test_sources_without_labels_of_rows_are_refused():
    X, y, sources = make_classes(n=60)
    sums = Moments.from_rows(np.column_stack([X, np.ones(60)]), np.ones(60))
    with pytest.raises(ParameterError, match="came as Moments, which hold no labels"):
        RegretOptimalClassifier().fit(X, y, sources={"s0": sources["s0"], "sums": sums})


def test_settings_count_when_rows_are_added():
    X, y, sources = make_classes(n=60)
    model = RegretOptimalClassifier(ridge=1.0).fit(X, y, sources=sources)
    model.set_params(ridge=50.0).partial_fit(X[:1], y[:1])
    assert model.regressor_.ridge == 50.0


def test_adding_to_a_classifier_from_a_file(tmp_path):
    X, y, sources = make_classes(n=60)
    model = RegretOptimalClassifier().fit(X[:30], y[:30], sources=sources)
    loaded = load(model.save(tmp_path / "model.mixtune"))
    np.testing.assert_array_equal(
        loaded.partial_fit(X[30:], y[30:]).predict_proba(X), model.partial_fit(X[30:], y[30:]).predict_proba(X)
    )
    tuned = RegretOptimalClassifierCV(feature_map=None).fit(X, y, sources=sources)
    with pytest.raises(ParameterError, match="holds no rows"):
        load(tuned.save(tmp_path / "model.mixtune")).partial_fit(X, y)


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_calibrated_on_validation_too(classes):
    """Ten left-out rows hardly tell how sure to be; many tests in other domains do."""
    rng = np.random.default_rng(classes)

    def draw(n):
        X = rng.standard_normal((n, 3))
        noisy = X[:, 0] + rng.logistic(size=n)
        return X, np.digitize(noisy, np.linspace(-1, 1, classes - 1) if classes > 2 else [0.0])

    sources, (new, labels) = {f"s{k}": draw(80) for k in range(8)}, draw(3000)
    losses = []
    for _ in range(4):
        X, y = draw(12)
        model = RegretOptimalClassifierCV(feature_map=None).fit(X, y, sources=sources)
        scores, places = scores_of_all(model.loo_predictions_), np.searchsorted(model.classes_, y)
        given = scores_of_all(model.decision_function(new))
        factors = model.sharpness_, best_sharpness(scores, places)
        by = [log_softmax(a * given, axis=1)[np.arange(len(new)), labels] for a in factors]
        losses.append(-np.mean(by, axis=1))
    mean = np.mean(losses, axis=0)
    assert mean[0] < mean[1] - 0.01
