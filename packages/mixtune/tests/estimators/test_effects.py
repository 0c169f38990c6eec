"""Effects of columns: equal to coefficients where the model is linear, honest intervals, contributions that add up."""

import numpy as np
import pytest

from mixtune import RegretOptimalClassifierCV, RegretOptimalRegressorCV, column_effects, fit_table, row_contributions
from mixtune.errors import DataError, ParameterError
from mixtune.estimators import LocalRegressor, Scores, effect_curves, load

SLOPES = np.array([1.0, -0.7, 0.0])


def make(seed, *, rows=25, sources=4, apart=0.3, curve=False):
    rng = np.random.default_rng(seed)

    def truth(own):
        return lambda X: X @ own + (np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] ** 2 if curve else 0.0)

    def draw(n, f):
        X = rng.standard_normal((n, 3))
        return X, f(X) + rng.standard_normal(n)

    functions = [truth(SLOPES + apart * rng.standard_normal(3)) for _ in range(sources + 1)]
    X, y = draw(rows, functions[0])
    return X, y, {f"s{k}": draw(40, f) for k, f in enumerate(functions[1:])}, functions[0]


@pytest.fixture(scope="module")
def curved():
    X, y, sources, truth = make(0, rows=40, curve=True)
    return RegretOptimalRegressorCV().fit(X, y, sources=sources), X, truth


def test_slopes_are_the_coefficients_of_a_linear_model():
    X, y, sources, _ = make(0)
    model = RegretOptimalRegressorCV(feature_map=None, clamp=False).fit(X, y, sources=sources)
    found = {each.column: each for each in column_effects(model).effects}
    for place in range(3):
        effect = found[f"x{place}"]
        assert effect.slope == pytest.approx(model.coef_[place])
        assert (effect.start, effect.end) == pytest.approx(tuple(np.quantile(X[:, place], [0.1, 0.9])))
        weights = model.weights_.values[1:] / model.weights_.values[1:].sum()
        assert effect.sources == pytest.approx(effect.effect / effect.slope * (weights @ model.heads_[1:, place]))
    sizes = [abs(each.effect) for each in column_effects(model).effects]
    assert sizes == sorted(sizes, reverse=True)


def test_effects_are_differences_of_partial_dependence(curved):
    model, X, _ = curved
    from sklearn.inspection import partial_dependence

    for each in column_effects(model).effects:
        place = int(each.column[1:])
        outside = partial_dependence(model, X, [place], custom_values={place: np.array([each.start, each.end])})
        assert each.effect == pytest.approx(float(np.diff(outside["average"][0])[0]))


@pytest.mark.parametrize(("curve", "feature_map", "draws"), [(False, None, 14), (True, "auto", 5)])
def test_intervals_cover_the_true_effects(curve, feature_map, draws):
    inside, widths, misses = [], [], []
    for seed in range(draws):
        # Domains that hardly differ, and domains that differ: too narrow are the intervals of the former first.
        X, y, sources, truth = make(seed, apart=(0.1, 0.5)[seed % 2], curve=curve)
        model = RegretOptimalRegressorCV(feature_map=feature_map).fit(X, y, sources=sources)
        for each in column_effects(model).effects:
            low, high = X.copy(), X.copy()
            low[:, int(each.column[1:])], high[:, int(each.column[1:])] = each.start, each.end
            miss = each.effect - float(np.mean(truth(high) - truth(low)))
            inside.append(each.low <= each.effect - miss <= each.high)
            misses.append(miss)
            widths.append((each.high - each.low) / 2)
    assert np.mean(inside) >= 0.85
    # An interval that says nothing covers everything, too.
    assert np.mean(widths) < 3.5 * np.sqrt(np.mean(np.square(misses)))


def test_domains_that_differ_are_told_apart():
    X, y, sources, _ = make(3, rows=100, apart=0.05)
    for added, differs in ((0.0, False), (3.0, True)):
        model = RegretOptimalRegressorCV(feature_map=None).fit(X, y + added * X[:, 2], sources=sources)
        assert next(each.differs for each in column_effects(model).effects if each.column == "x2") == differs


def test_contributions_add_up_and_are_exact_without_interactions(curved):
    model, X, _ = curved
    found = row_contributions(model, X[:2])
    np.testing.assert_allclose(found.values.sum(axis=1), found.predictions - found.average, atol=1e-9)
    np.testing.assert_allclose(found.predictions, model.predict(X[:2]))
    assert found.average == pytest.approx(float(model.predict(X).mean()))
    linear = LocalRegressor(ridge=0.1).fit(X, X @ SLOPES)
    values = row_contributions(linear, X[:3], X).values
    np.testing.assert_allclose(values, linear.coef_ * (X[:3] - X.mean(axis=0)), atol=1e-9)


def test_curves_meet_the_effects(curved):
    model, X, truth = curved
    curve = effect_curves(model, names=["x0", "nothing"])
    assert list(curve) == ["x0"]
    assert list(effect_curves(model, names=["b"], columns=["a", "b", "c"])) == ["b"]
    ends = [each.end for each in curve["x0"]]
    assert ends == sorted(ends)
    assert {each.start for each in curve["x0"]} == {float(np.median(X[:, 0]))}
    last, low, high = curve["x0"][-1], X.copy(), X.copy()
    low[:, 0], high[:, 0] = last.start, last.end
    assert last.effect == pytest.approx(float(np.mean(model.predict(high) - model.predict(low))))
    assert last.low < float(np.mean(truth(high) - truth(low))) < last.high


@pytest.mark.parametrize("count", [2, 3])
def test_effects_on_probabilities(count):
    X, y, sources, _ = make(1, rows=40)
    cut = np.quantile(y, np.linspace(0, 1, count + 1)[1:-1])
    labelled = {name: (rows, np.digitize(values, cut)) for name, (rows, values) in sources.items()}
    model = RegretOptimalClassifierCV(feature_map=None).fit(X, np.digitize(y, cut), sources=labelled)
    found = column_effects(model)
    first = next(each for each in found.effects if each.column == "x0" and each.output == str(count - 1))
    low, high = X.copy(), X.copy()
    low[:, 0], high[:, 0] = first.start, first.end
    moved = (model.predict_proba(high) - model.predict_proba(low)).mean(axis=0)[-1]
    assert first.effect == pytest.approx(moved)
    assert first.low < first.effect < first.high
    # The slopes of the delta method are those of the probabilities.
    scores = Scores.of(model)
    at = np.linspace(-1, 1, count if count > 2 else 1)[None]
    step = 1e-6 * np.eye(at.shape[1])
    numeric = [(scores.values(at + one) - scores.values(at - one))[0] / 2e-6 for one in step]
    np.testing.assert_allclose(scores.slopes(at)[0].T, numeric, atol=1e-6)


def test_categories_go_from_level_to_level():
    rng = np.random.default_rng(0)
    size, colour = rng.uniform(1, 9, 90), rng.choice(["red", "green", "blue"], 90, p=[0.6, 0.3, 0.1])
    table = {"site": ["a"] * 30 + ["b"] * 60, "size": size, "colour": colour, "lit": ["no"] * 90}
    table["y"] = 5 * size + 20 * (colour == "green") + rng.standard_normal(90)
    model = fit_table(table, target="y", domain="site", focal="a", linear=True)
    found = column_effects(model)
    assert {(each.column, each.start) for each in found.effects if each.column == "colour"} == {("colour", "red")}
    green = next(each for each in found.effects if each.end == "green")
    assert green.effect == pytest.approx(20, abs=3)
    assert green.slope is None
    assert found.to_frame()["column"][0] == "size"
    rows = {"size": [5.0], "colour": ["green"]}
    shown = row_contributions(model, rows).to_frame()
    assert list(shown.columns) == ["size", "colour", "average", "prediction"]
    assert shown["prediction"][0] == pytest.approx(model.predict(rows)[0])


def test_log_scale_effects_are_in_the_units_of_the_target():
    X, y, sources, _ = make(2, apart=0.1)
    exponential = {name: (rows, np.exp(values)) for name, (rows, values) in sources.items()}
    options = {"feature_map": None, "target_scale": "log"}
    model = RegretOptimalRegressorCV(**options).fit(X, np.exp(y), sources=exponential)
    first = next(each for each in column_effects(model).effects if each.column == "x0")
    low, high = X.copy(), X.copy()
    low[:, 0], high[:, 0] = first.start, first.end
    assert first.effect == pytest.approx(float(np.mean(model.predict(high) - model.predict(low))))


def test_what_cannot_be_told_is_said(tmp_path):
    X, y, sources, _ = make(0)
    X[:, 2] = 4.0
    model = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)
    assert column_effects(model).constant == ("x2",)
    again = load(model.save(tmp_path / "model.mixtune"))
    with pytest.raises(ParameterError, match="pass them as X"):
        column_effects(again)
    loaded = column_effects(again, X)
    assert "call column_effects before save" in loaded.how
    assert {each.low for each in loaded.effects} == {None}
    assert [each.effect for each in loaded.effects] == pytest.approx(
        [each.effect for each in column_effects(model).effects]
    )
    assert "LocalRegressor" in column_effects(LocalRegressor().fit(X, y), X).how
    table = fit_table(
        {"site": list("aabb"), "x": [1.0, 2.0, 3.0, 4.0], "y": [1.0, 2.0, 3.0, 5.0]},
        target="y",
        domain="site",
        focal="a",
    )
    with pytest.raises(DataError, match="columns tells of 1 inputs"):
        column_effects(model, columns=table.encoder)


@pytest.mark.parametrize("classes", [True, False])
def test_columns_changed_together_have_the_effects_that_they_have_one_by_one(monkeypatch, classes):
    """Where columns are features, many are changed at a time; the other way maps all rows for each of them."""
    rng = np.random.default_rng(0)
    rows = 40
    colour, size = rng.choice(["red", "green", "blue"], rows), rng.standard_normal((rows, 2))
    y = size @ [1.0, -2.0] + (colour == "red") + 0.1 * rng.standard_normal(rows)
    table = {"site": ["ab"[k % 2] for k in range(rows)], "colour": colour.tolist(), "x": size[:, 0], "z": size[:, 1]}
    table["y"] = np.where(y > 0, "yes", "no").tolist() if classes else y
    model = fit_table(table, target="y", domain="site", focal="a", linear=True)
    assert Scores.of(model).columnwise
    together = column_effects(model).effects
    monkeypatch.setattr(Scores, "columnwise", False)
    for mine, other in zip(together, column_effects(model).effects, strict=True):
        assert (mine.column, mine.start, mine.end) == (other.column, other.start, other.end)
        for name in ("effect", "low", "high", "sources", "spread"):
            assert getattr(mine, name) == pytest.approx(getattr(other, name), abs=1e-9), name


def test_maps_of_several_columns_are_not_columnwise(curved):
    assert not Scores.of(curved[0]).columnwise
