"""Classes in every domain: against the classifier of one domain, calibration, and what users may pass."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, cross_val_score

from mixtune import MultiDomainClassifier, RegretOptimalClassifierCV, StreamedSources, load
from mixtune.errors import DataError, ParameterError

CUTS = KFold(2, shuffle=True, random_state=0)
LABELS = np.array(["blue", "green", "red"])


def draw(rows, classes=2, domains=7, seed=1):
    """Classes by a logistic model whose coefficients differ between domains; ``seed`` draws the rows only."""
    rng, X, y, names = np.random.default_rng(seed), [], [], []
    common = 1.2 * np.random.default_rng(0).standard_normal((2, classes))
    for k in range(domains):
        own = np.random.default_rng(100 + k)
        slopes, level = common + 0.6 * own.standard_normal((2, classes)), own.standard_normal(classes)
        part = rng.standard_normal((rows, 2))
        odds = np.exp(part @ slopes + level)
        X.append(part)
        y += [LABELS[rng.choice(classes, p=each)] for each in odds / odds.sum(axis=1, keepdims=True)]
        names += [f"d{k}"] * rows
    return np.concatenate(X), np.array(y), np.array(names)


@pytest.fixture(scope="module")
def two():
    X, y, names = draw(24)
    return X, y, names, MultiDomainClassifier(feature_map=None).fit(X, y, domain=names)


@pytest.fixture(scope="module")
def three():
    X, y, names = draw(18, classes=3, domains=5)
    keep = (names != "d4") | (y != "red")
    return MultiDomainClassifier(feature_map=None).fit(X[keep], y[keep], domain=names[keep])


@pytest.mark.parametrize("feature_map", [None, "auto"])
@pytest.mark.parametrize("classes", [2, 3])
def test_streams_that_samples_hold_whole_give_the_fit_in_memory(feature_map, classes):
    X, y, names = draw(24, classes=classes, domains=5)
    y = np.searchsorted(LABELS, y)
    expected = MultiDomainClassifier(feature_map).fit(X, y, domain=names)
    told = []
    stream = StreamedSources((X, y), domain=names, progress=lambda done, total: told.append(done))
    ours = MultiDomainClassifier(feature_map).fit(stream)
    np.testing.assert_allclose(ours.predict_proba(X, domain=names), expected.predict_proba(X, domain=names), atol=1e-8)
    assert ours.class_counts_.tolist() == expected.class_counts_.tolist()
    assert ours.classes_.dtype == expected.classes_.dtype
    assert told.count(0) == 2


def test_models_of_streams_come_from_all_rows():
    X, y, names = draw(200, classes=3, domains=5)
    y = np.searchsorted(LABELS, y)
    y[5] = 9  # a class that no sample has
    stream = StreamedSources((X, y), domain=names, sample_rows=50, progress=False)
    part = MultiDomainClassifier(None).fit(stream)
    whole = MultiDomainClassifier(None).fit(X, y, domain=names)
    assert part.classes_.tolist() == [0, 1, 2, 9]
    assert not any(9 in labels for _, labels in stream.samples().values())

    def check():
        assert part.class_counts_.tolist() == whole.class_counts_.tolist()
        assert part.n_rows_.tolist() == whole.n_rows_.tolist()
        for one, other in zip(part.regressors_, whole.regressors_):
            np.testing.assert_allclose(one.own_coef_, other.own_coef_, atol=1e-9)

    check()
    for model in (part, whole):
        model.partial_fit(X[:30], np.resize(y[:3], 30), domain=["new"] * 30)
        model.forget("d2")
    check()
    # A stream's rows are not known one by one, so that repeats are not seen; these are other rows.
    X = X + np.random.default_rng(9).standard_normal(X.shape)
    part.partial_fit(StreamedSources((X, y), domain=names, sample_rows=50, progress=False))
    whole.partial_fit(X, y, domain=names)
    check()


def test_as_sure_and_as_right_as_with_each_domain_focal(two):
    X, y, names, model = two
    new, actual, places = draw(150, seed=2)
    found, alone = model.predict_proba(new, domain=places), []
    for name in model.domains_[:3]:
        sources = {other: (X[names == other], y[names == other]) for other in model.domains_ if other != name}
        one = RegretOptimalClassifierCV(feature_map=None).fit(X[names == name], y[names == name], sources=sources)
        alone.append(one.predict_proba(new[places == name]))
    some = np.isin(places, model.domains_[:3])
    np.testing.assert_allclose(found[some], np.concatenate(alone), atol=0.25)
    assert log_loss(actual[some], found[some]) < log_loss(actual[some], np.concatenate(alone)) + 0.02
    # Probabilities are of the size of the part that is right.
    assert abs(found.max(axis=1).mean() - model.score(new, actual, domain=places)) < 0.06
    unseen = model.predict_proba(new, domain=["elsewhere"] * len(new))
    assert unseen.max(axis=1).mean() < found.max(axis=1).mean()


def test_classes_of_every_domain(three):
    assert three.classes_.tolist() == LABELS.tolist()
    assert three.class_counts_[4].tolist()[2] == 0
    assert three.summary()["classes"].tolist() == [3, 3, 3, 2, 2]
    new = np.zeros((4, 2))
    found = three.predict_proba(new, domain=["d0", "d4", "d4", "new"])
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert found[1, 2] < found[0, 2]
    assert three.decision_function(new, domain=["d0"] * 4).shape == (4, 3)
    assert three.coef_.shape == (5, 2, 3)
    assert sorted(set(three.coefficients()["label"])) == LABELS.tolist()


def test_scores_are_log_odds_up_to_the_sharpness(two):
    X, _, names, model = two
    logs = model.predict_log_proba(X, domain=names)
    sharpness = model.sharpness_[np.searchsorted(model.domains_, names)]
    np.testing.assert_allclose(
        logs[:, 1] - logs[:, 0], 2 * sharpness * model.decision_function(X, domain=names), atol=1e-9
    )


def test_tables_and_files(tmp_path, two, three):
    X, _, names, model = two
    table = model.summary()
    assert np.all((table["right"] > 0.5) & (table["right"] <= 1.0))
    np.testing.assert_array_equal(model.borrows().to_numpy(), model.weights_)
    for each in (model, three):
        back = load(each.save(tmp_path / "model.mixtune"))
        labels = np.where(np.arange(len(X)) == 0, "new", np.where(names > "d4", "d1", names))
        np.testing.assert_array_equal(back.predict_proba(X, domain=labels), each.predict_proba(X, domain=labels))
        pd.testing.assert_frame_equal(back.summary(), each.summary())


def test_onnx(two, three):
    reference = pytest.importorskip("onnx.reference")
    X, _, names, model = two
    labels = np.where(names > "d4", "new", names)
    for each in (model, three):
        given = {"features": X, "domain": labels.astype(object)}
        odds, found = reference.ReferenceEvaluator(each.to_onnx()).run(None, given)
        np.testing.assert_allclose(odds, each.predict_proba(X, domain=labels), rtol=1e-9)
        np.testing.assert_array_equal(found, each.predict(X, domain=labels))


def test_order_of_rows_does_not_matter():
    X, y, names = draw(16, domains=4)
    model = MultiDomainClassifier(feature_map=None).fit(X, y, domain=names)
    order = np.random.default_rng(3).permutation(len(y))
    other = MultiDomainClassifier(feature_map=None).fit(X[order], y[order], domain=names[order])
    np.testing.assert_allclose(
        other.predict_proba(X, domain=names), model.predict_proba(X, domain=names), rtol=1e-6, atol=1e-7
    )


def test_rows_and_domains_come_and_go():
    X, y, names = draw(16, domains=3)
    model = MultiDomainClassifier(feature_map=None).fit(X, y, domain=names)
    first = names < "d1"
    grown = MultiDomainClassifier(None).partial_fit(X[first], y[first], domain=names[first])
    grown.partial_fit(X[~first], y[~first], domain=names[~first])
    np.testing.assert_allclose(grown.coef_, model.coef_)
    with pytest.raises(DataError, match="'violet'"):
        grown.partial_fit(X[:2], ["violet", "blue"], domain=names[:2])
    with pytest.raises(ParameterError, match="leave classes out"):
        grown.partial_fit(X[:2], y[:2], classes=["a"], domain=names[:2])
    assert grown.forget("d2").domains_ == tuple(name for name in model.domains_ if name != "d2")
    with pytest.raises(DataError, match="all rows are of one class, 'blue'"):
        MultiDomainClassifier(None).fit(X, ["blue"] * len(X), domain=names)


def test_in_scikit_learn():
    X, y, names = draw(40, domains=3)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(shop=names)
    scores = cross_val_score(MultiDomainClassifier(None, domain="shop"), frame, y, cv=CUTS)
    assert scores.min() > 0.6
    losses = cross_val_score(MultiDomainClassifier(None, domain="shop"), frame, y, cv=CUTS, scoring="neg_log_loss")
    assert losses.mean() > -0.69
    with config_context(enable_metadata_routing=True):
        routed = cross_val_score(MultiDomainClassifier(None), X, y, params={"domain": names}, cv=CUTS)
    np.testing.assert_allclose(routed, scores)
