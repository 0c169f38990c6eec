"""feature_map="auto": averages over maps that are made from the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor

from mixtune.choice import SETTINGS
from mixtune.errors import ParameterError
from mixtune.estimators import (
    LocalRegressor,
    RegretOptimalClassifierCV,
    RegretOptimalRegressorCV,
    load,
)
from mixtune.features import Trees


def curve(rng, n, turn=1.0, d=3):
    X = rng.standard_normal((n, d)) * [1.0, 10.0, 0.1][:d] + [0.0, 50.0, 0.0][:d]
    bent = np.sin(2 * X[:, 0]) + (X[:, -1] * 10) ** 2 * 0.3
    return X, turn * bent + 0.2 * rng.standard_normal(n) + rng.standard_normal()


def problem(n=20, sources=6, rows=80, flipped=0, seed=0, d=3):
    rng = np.random.default_rng(seed)
    given = {f"s{i}": curve(rng, rows, -1.0 if i < flipped else 1.0, d) for i in range(sources)}
    X, y = curve(rng, n, 1.0, d)
    return X, y, given, curve(np.random.default_rng(99), 300, 1.0, d)


def auto(**settings):
    return RegretOptimalRegressorCV(**settings)


def error(model, test):
    X, y = test
    residuals = model.predict(X) - y
    return float(np.std(residuals))


@pytest.fixture(scope="module")
def fitted():
    X, y, sources, _ = problem()
    return auto().fit(X, y, sources=sources)


def test_curves_cannot_be_exported_and_the_error_says_what_to_do(fitted, tmp_path):
    fitted.save(tmp_path / "a.mixtune")
    X, y, sources, _ = problem(n=30)
    classes = {name: (U, v > np.median(v)) for name, (U, v) in sources.items()}
    classifier = RegretOptimalClassifierCV().fit(X, y > np.median(y), sources=classes)
    for model in (fitted, load(tmp_path / "a.mixtune"), classifier):
        with pytest.raises(ParameterError, match=r"to_onnx cannot write the kernels.*feature_map=None"):
            model.to_onnx(tmp_path / "a.onnx")
    assert not (tmp_path / "a.onnx").exists()


@pytest.mark.parametrize("clamp", [True, False])
def test_inputs_alone_are_exported_with_their_range(clamp):
    """Without an intercept the only map is the inputs; far inputs are moved into the range, as predict does."""
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
    X, y, sources, (far, _) = problem()
    model = auto(fit_intercept=False, clamp=clamp).fit(X, y, sources=sources)
    far = 100.0 * far
    (found,) = evaluator(model.to_onnx()).run(None, {"features": far})
    np.testing.assert_allclose(found, model.predict(far))
    assert np.allclose(found, far @ model.coef_) == (not clamp)


@pytest.mark.parametrize("flipped", [0, 3])
def test_curves_are_found_and_lines_are_not_harmed(flipped):
    X, y, sources, test = problem(flipped=flipped)
    linear = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)
    model = auto().fit(X, y, sources=sources)
    assert error(model, test) < 0.6 * error(linear, test)
    rng = np.random.default_rng(1)
    straight = {name: (U, U @ [1.0, 0.1, 2.0] + 0.5 * rng.standard_normal(len(U))) for name, (U, _) in sources.items()}
    y = X @ [1.0, 0.1, 2.0] + 0.5 * rng.standard_normal(len(X))
    test = test[0], test[0] @ [1.0, 0.1, 2.0]
    # The noise has a standard deviation of 0.5.
    assert error(auto().fit(X, y, sources=straight), test) < 0.15


def test_straight_lines_have_the_largest_share_where_domains_differ_in_slopes():
    rng = np.random.default_rng(0)
    given = {}
    for k in range(9):
        U = rng.standard_normal((60, 3))
        given[f"s{k}"] = U, U @ (1.0 + 0.5 * rng.standard_normal(3)) + 0.3 * rng.standard_normal(60)
    X, y = given.pop("s8")
    model = auto().fit(X[:20], y[:20], sources=given)
    shares = {each.name: each.share for each in model.maps_}
    assert shares["lines"] > 0.3
    assert np.sqrt(np.mean((model.predict(X[20:]) - y[20:]) ** 2)) < 0.4


def test_what_was_averaged_is_visible(fitted):
    assert [each.name for each in fitted.maps_] == ["kernel 1", "kernel 2", "lines"]
    assert sum(each.share for each in fitted.maps_) == pytest.approx(1.0)
    # The relation is bent.
    assert fitted.maps_[2].share < 0.1
    assert sum(each.share for each in fitted.candidates_) == pytest.approx(1.0, abs=1e-3)
    assert {each.family for each in fitted.candidates_} <= {"shared", "own curves", "focal only"}
    assert {each.settings["map"] for each in fitted.candidates_} >= {"kernel 1", "kernel 2"}
    widths = [each.n_features for each in fitted.maps_]
    assert fitted.feature_map_.n_features_out == fitted.coef_.shape[0] == sum(widths)
    # Rows of the focal domain and of three sources are fewer than those that a kernel is learned from.
    X, y, sources, _ = problem(sources=3)
    assert [each.name for each in auto().fit(X, y, sources=sources).maps_] == ["kernel", "lines"]
    assert fitted.feature_map == "auto"


def test_several_classes_have_several_maps():
    X, y, sources, _ = problem(n=40)
    classes = {name: (U, v > np.median(v)) for name, (U, v) in sources.items()}
    model = RegretOptimalClassifierCV().fit(X, y > np.median(y), sources=classes)
    shares = [each.share for each in model.maps_]
    assert {each.name for each in model.maps_} == {"inputs", "Fourier", "learned"}
    assert sum(shares) == pytest.approx(1.0)
    assert shares == sorted(shares, reverse=True)
    assert {each.name: each.n_features for each in model.maps_} == {"inputs": 3, "Fourier": 103, "learned": 14}


def targets_of(function, sources=6, rows=100, n=30, seed=0):
    """Domains whose targets are one function of two columns and noise."""
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((size, 2)) for size in (n, *[rows] * sources)]
    y = [function(*part.T) + 0.2 * rng.standard_normal(len(part)) for part in X]
    return X[0], y[0], {f"s{i}": pair for i, pair in enumerate(zip(X[1:], y[1:]))}


def test_fourier_features_are_always_tried_for_classes():
    X, y, sources = targets_of(lambda a, b: a**2 + b)
    cut = {name: (U, v > 1.0) for name, (U, v) in sources.items()}
    model = RegretOptimalClassifierCV().fit(X, y > 1.0, sources=cut)
    assert {each.name for each in model.maps_} == {"inputs", "Fourier", "learned"}


def test_trees_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    X, y = curve(rng, 500)
    model = HistGradientBoostingRegressor(max_iter=30, max_leaf_nodes=7).fit(X, y)
    found = Trees.of(model)
    np.testing.assert_allclose(found(X), model.predict(X), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(Trees.from_arrays(found.arrays())(X), found(X))


def test_leaves_that_rows_reach_are_those_of_the_way_from_node_to_node():
    rng = np.random.default_rng(1)
    X, y = curve(rng, 500)
    fitted = HistGradientBoostingRegressor(max_iter=20, max_leaf_nodes=15).fit(X, y)
    found = Trees.of(fitted)
    np.testing.assert_allclose(found.first(5)(X), list(fitted.staged_predict(X))[4])
    new = np.concatenate([3 * rng.standard_normal((200, X.shape[1])), X])
    new[:50, found.column[0]] = found.threshold[0]  # rows on a threshold go to the left
    np.testing.assert_array_equal(found(new), found.traversed(new))
    # Too many leaves for the bits of one number, and nodes that a forged file sends back to where they came from.
    wide = Trees.of(HistGradientBoostingRegressor(max_iter=2, max_leaf_nodes=40, min_samples_leaf=2).fit(X, y))
    assert wide.reachable is None
    np.testing.assert_array_equal(wide(new), wide.traversed(new))
    looped = replace(found, left=np.where(found.left == found.left[0], found.roots[0], found.left))
    assert looped.reachable is None
    assert np.all(np.isfinite(looped(new)))


def test_saved_and_loaded(fitted, tmp_path):
    new = problem()[3][0]
    fitted.removal_effects()
    again = load(fitted.save(tmp_path / "a.mixtune"))
    np.testing.assert_array_equal(again.predict(new), fitted.predict(new))
    for one, other in zip(again.predict_interval(new), fitted.predict_interval(new)):
        np.testing.assert_array_equal(one, other)
    assert again.maps_ == fitted.maps_
    assert again.feature_map == "auto"
    assert [c.settings for c in again.candidates_] == [c.settings for c in fitted.candidates_]


def test_a_saved_classifier(tmp_path):
    X, y, sources, (new, _) = problem(n=40)
    labels = {name: (U, v > np.median(v)) for name, (U, v) in sources.items()}
    model = RegretOptimalClassifierCV("auto").fit(X, y > np.median(y), sources=labels)
    again = load(model.save(tmp_path / "a.mixtune"))
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(new))
    assert again.maps_ == model.maps_


@pytest.mark.parametrize("change", ["rows", "sources", "columns", "signs", "units", "targets"])
def test_what_must_not_matter_does_not(change):
    X, y, sources, (new, _) = problem(n=15, sources=5, rows=60)
    rng = np.random.default_rng(5)
    found = auto().fit(X, y, sources=sources).predict(new)
    same = lambda U: U  # noqa: E731
    move, back, level = same, same, 0.0
    if change == "rows":
        order = rng.permutation(len(y))
        X, y = X[order], y[order]
        turned = {name: rng.permutation(len(v)) for name, (_, v) in sources.items()}
        sources = {name: (U[turned[name]], v[turned[name]]) for name, (U, v) in sources.items()}
    elif change == "sources":
        names = list(sources)
        sources = {names[k]: sources[names[k]] for k in rng.permutation(len(names))}
    elif change == "columns":
        move = lambda U: U[:, [2, 0, 1]]  # noqa: E731
    elif change == "signs":
        move = lambda U: U * [-1.0, 1.0, -1.0]  # noqa: E731
    elif change == "units":
        move = lambda U: U * [1e4, 1e-3, 7.0] + [1e3, -0.1, 3.0]  # noqa: E731
    else:
        level, back = 1.7, lambda p: p / 1e3 - 1.7
        y, sources = 1e3 * (y + level), {name: (U, 1e3 * (v + level)) for name, (U, v) in sources.items()}
    moved = auto().fit(move(X), y, sources={name: (move(U), v) for name, (U, v) in sources.items()}).predict(move(new))
    np.testing.assert_allclose(back(moved), found, rtol=0, atol=1e-7 * np.std(y))


def test_extreme_inputs_have_a_bounded_effect(fitted):
    X = problem()[0]
    seen = np.ptp(np.concatenate([v for _, v in problem()[2].values()]))
    far = fitted.predict(X * 1e6)
    assert np.all(np.abs(far - fitted.predict(X)) < 20 * seen)


def test_rows_added_and_sources_forgotten():
    X, y, sources, (new, _) = problem(n=30)
    whole = auto().fit(X, y, sources=sources).predict(new)
    later = auto().fit(X[:20], y[:20], sources=sources).partial_fit(X[20:], y[20:])
    np.testing.assert_allclose(later.predict(new), whole, rtol=1e-7, atol=1e-7)
    less = dict(list(sources.items())[1:])
    np.testing.assert_allclose(
        later.forget("s0").predict(new), auto().fit(X, y, sources=less).predict(new), rtol=1e-7, atol=1e-7
    )


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_sources_and_none(count):
    X, y, sources, test = problem(sources=count, n=40)
    model = auto().fit(X, y, sources=sources)
    assert error(model, test) < error(RegretOptimalRegressorCV(None).fit(X, y, sources=sources), test)
    assert "shared" in {each.family for each in model.candidates_} or count == 0


def test_saved_trees_of_a_classifier(tmp_path):
    """Steps that no source knows are found by trees of the focal rows."""
    rng = np.random.default_rng(0)
    X, new = rng.standard_normal((SETTINGS.own_rows, 3)), rng.standard_normal((500, 3))
    steps = lambda U: U[:, 0] * U[:, 1] > 0  # noqa: E731
    sources = {f"s{k}": (U := rng.standard_normal((60, 3)), U[:, 2] > 0) for k in range(3)}
    model = RegretOptimalClassifierCV().fit(X, steps(X), sources=sources)
    fewer = RegretOptimalClassifierCV().fit(X[:-1], steps(X[:-1]), sources=sources)
    assert "boosted" in {each.name for each in model.maps_}
    assert "boosted" not in {each.name for each in fewer.maps_}
    again = load(model.save(tmp_path / "a.mixtune"))
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(new))


def test_very_wide_tables_stay_linear_and_say_so():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, SETTINGS.most_curved_inputs + 1)), rng.standard_normal(30)
    model = auto().fit(X, y, sources={"b": (X + 0.1, y)})
    assert [each.name for each in model.maps_] == ["all"]
    assert any("the model is linear" in note for note in model.notes_)
    linear = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources={"b": (X + 0.1, y)})
    np.testing.assert_allclose(model.predict(X), linear.predict(X), rtol=1e-8)


def wide(n, turn, rng, mixing):
    """Three hidden coordinates, seen through many noisy columns."""
    hidden = rng.standard_normal((n, 3))
    X = hidden @ mixing + 0.1 * rng.standard_normal((n, mixing.shape[1]))
    return X, turn * (np.sin(2 * hidden[:, 0]) + hidden[:, 1] ** 2) + 0.1 * rng.standard_normal(n)


def test_curves_of_leading_components_are_found_in_wide_tables(tmp_path):
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((3, SETTINGS.curved_inputs + 4)) * np.array([[3.0], [2.0], [1.0]])
    sources = {f"s{k}": wide(80, 1.0 if k else -1.0, rng, mixing) for k in range(5)}
    X, y = wide(40, 1.0, rng, mixing)
    test = wide(300, 1.0, rng, mixing)
    model = auto().fit(X, y, sources=sources)
    linear = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)
    assert error(model, test) < 0.7 * error(linear, test)
    assert any("20 leading principal components" in note for note in model.notes_)
    again = load(model.save(tmp_path / "a.mixtune"))
    np.testing.assert_array_equal(again.predict(test[0]), model.predict(test[0]))
    # Neither units nor the order or sign of columns matter.
    order, units = (
        rng.permutation(X.shape[1]),
        rng.choice([-1.0, 1.0], X.shape[1]) * 10 ** rng.uniform(-3, 3, X.shape[1]),
    )
    change = lambda U: (U * units + 5.0)[:, order]  # noqa: E731
    moved = auto().fit(change(X), y, sources={name: (change(U), v) for name, (U, v) in sources.items()})
    np.testing.assert_allclose(moved.predict(change(test[0])), model.predict(test[0]), rtol=0, atol=1e-7)


def test_wide_tables_of_few_rows_have_as_few_components():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((6, SETTINGS.curved_inputs + 1)), rng.standard_normal(6)
    sources = {"b": (rng.standard_normal((5, X.shape[1])), rng.standard_normal(5))}
    model, order = auto().fit(X, y, sources=sources), rng.permutation(6)
    moved = auto().fit(X[order], y[order], sources=sources)
    new = rng.standard_normal((20, X.shape[1]))
    np.testing.assert_allclose(moved.predict(new), model.predict(new), rtol=0, atol=1e-7)
    same = auto().fit(np.ones_like(X), y, sources={"b": (np.ones((5, X.shape[1])), np.arange(5.0))})
    assert np.all(np.isfinite(same.predict(new)))


def test_several_outputs_and_constant_columns():
    X, y, sources, (new, _) = problem()
    pad = lambda U: np.column_stack([U, np.ones(len(U))])  # noqa: E731
    double = {name: (pad(U), np.column_stack([v, -v])) for name, (U, v) in sources.items()}
    model = auto().fit(pad(X), np.column_stack([y, -y]), sources=double)
    found = model.predict(pad(new))
    np.testing.assert_allclose(found[:, 0], -found[:, 1], atol=1e-6)


def test_columns_are_learned_for_every_class():
    """A class that is a step in two columns is known to trees only; each class has columns of its own."""
    rng = np.random.default_rng(0)

    def drawn(n):
        X = rng.standard_normal((n, 3))
        return X, np.where(X[:, 0] * X[:, 1] > 0.3, "a", np.where(X[:, 2] > 0, "b", "c"))

    sources = {f"s{k}": drawn(150) for k in range(5)}
    X, y = drawn(40)
    model = RegretOptimalClassifierCV().fit(X, y, sources=sources)
    new, true = drawn(500)
    assert model.score(new, true) > 0.8
    assert {each.name for each in model.maps_ if each.share > 0.5} == {"learned"}
    # One output of several is what it is alone.
    one = auto().fit(X, X[:, 0] * X[:, 1], sources={name: (U, U[:, 0] * U[:, 1]) for name, (U, _) in sources.items()})
    turned = {name: (U, np.column_stack([U[:, 2], U[:, 0] * U[:, 1]])) for name, (U, _) in sources.items()}
    several = auto().fit(X, np.column_stack([X[:, 2], X[:, 0] * X[:, 1]]), sources=turned)
    np.testing.assert_allclose(several.predict(new)[:, 1], one.predict(new), rtol=0, atol=1e-6)


def test_only_estimators_that_tune_themselves_make_maps():
    with pytest.raises(ParameterError, match="feature_map='auto'"):
        LocalRegressor("auto").fit(np.ones((3, 1)), np.ones(3))
    with pytest.raises(ParameterError, match="feature_map='aut'"):
        RegretOptimalRegressorCV("aut").fit(np.ones((3, 1)), np.ones(3))
    assert clone(auto()).feature_map == "auto"


def test_two_values_stay_two_values_where_rows_repeat():
    # Means of equal values are equal to them up to rounding.
    X, y, sources, _ = problem(n=30)
    often = np.random.default_rng(0).integers(0, 30, 200)
    classes = {name: (U, np.sign(v - np.median(v))) for name, (U, v) in sources.items()}
    model = auto().fit(X[often], np.sign(y - np.median(y))[often], sources=classes)
    assert {each.name for each in model.maps_} == {"inputs", "Fourier", "learned"}
