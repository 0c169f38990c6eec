"""Estimators with nothing to set: what they say of themselves against explicit computations, and bad input."""

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, KFold

from estimators.transfer_data import Standardised, make_transfer
from mixtune import RandomFeatures
from mixtune.choice import SETTINGS
from mixtune.errors import DataError, ParameterError
from mixtune.estimators import RegretOptimalClassifierCV, RegretOptimalRegressorCV, Sources, load

NEW = np.random.default_rng(9).standard_normal((7, 4)) * 9


def fit(X, y, sources=None, **options):
    return RegretOptimalRegressorCV(**{"feature_map": None} | options).fit(X, y, sources=sources)


@pytest.fixture(scope="module")
def model():
    X, y, sources = make_transfer()
    return fit(X, y, sources)


def assert_no_nan(model, X):
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()
    assert np.isfinite(model.predict(X)).all()
    assert model.weights_.values.min() >= 0
    assert model.weights_.values.sum() == pytest.approx(1)
    for comparison in model.compared_:
        assert not np.isnan([v for v in vars(comparison).values() if isinstance(v, float)]).any()
    gain = model.transfer_gain_
    assert not np.isnan([gain.reduction, gain.low, gain.high, gain.from_rows]).any()
    for removal in model.removal_effects():
        assert not np.isnan([removal.loo_error, removal.change, removal.shift]).any()
    assert not np.isnan(model.loo_error_)


def test_predictions_are_linear_within_the_range_of_all_rows(model):
    X, _, sources = make_transfer()
    rows = np.vstack([X, *(U for U, _ in sources.values())])
    low, high = rows.min(axis=0), rows.max(axis=0)
    margin = (0.25 + 20 / len(rows)) * (high - low)
    clipped = np.clip(NEW, low - margin, high + margin)
    assert np.any(clipped != NEW)
    np.testing.assert_allclose(model.predict(NEW), clipped @ model.coef_ + model.intercept_)
    np.testing.assert_allclose(model.predict(X), X @ model.coef_ + model.intercept_)


def test_without_clamping(model):
    X, y, sources = make_transfer()
    free = fit(X, y, sources, clamp=False)
    np.testing.assert_array_equal(free.coef_, model.coef_)
    np.testing.assert_allclose(free.predict(NEW), NEW @ free.coef_ + free.intercept_)


def test_weights_of_the_domains(model):
    weights = model.weights_
    assert weights.names == ("focal", "s0", "s1", "s2")
    assert weights.values.sum() == pytest.approx(1)
    assert weights.values.min() >= 0
    assert weights.values[3] == min(weights.values)
    X, y, sources = make_transfer()
    choice = Standardised(X, y, sources).average()
    alone = np.array([family == "focal only" for family, _ in choice.labels])
    own = np.where(alone, 1.0, choice.own)
    expected = [choice.shares @ own, *((choice.shares * (1 - own)) @ choice.weights)]
    np.testing.assert_allclose(weights.values, expected)
    for score, head, level in zip(weights.scores, model.heads_, model.head_intercepts_):
        assert score == pytest.approx(np.mean((y - X @ head - level) ** 2))
    assert fit(X, y).weights_.values.tolist() == [1.0]


def test_what_is_averaged(model):
    X, y, sources = make_transfer()
    rows = Standardised(X, y, sources)
    choice = rows.average()
    assert model.effective_ridge_ == pytest.approx(np.exp(choice.shares @ np.log(choice.ridges)))
    np.testing.assert_allclose(model.predict(X), rows.predict(choice.head, X))
    assert model.loo_error_ == pytest.approx(np.mean(choice.left_out**2))
    np.testing.assert_allclose(model.loo_predictions_, y - choice.left_out)


def test_comparisons_by_refitting(model):
    X, y, sources = make_transfer()
    found = {c.method: c for c in model.compared_}
    assert list(found) == ["mixtune", "own rows alone", "pooled", "boosting", "mean"]
    order = np.lexsort((y, *X.T))
    X, y = X[order], y[order]
    rows = np.vstack([X, *(U for U, _ in sources.values())]), np.concatenate([y, *(v for _, v in sources.values())])
    squares = {name: np.zeros(len(y)) for name in ("mixtune", "own rows alone", "pooled")}
    for train, test in KFold(5, shuffle=True, random_state=0).split(y):
        kept = np.concatenate([train, np.arange(len(y), len(rows[0]))])
        refits = {
            "mixtune": fit(X[train], y[train], sources),
            "own rows alone": fit(X[train], y[train]),
            "pooled": fit(rows[0][kept], rows[1][kept]),
        }
        for name, refit in refits.items():
            squares[name][test] = (refit.predict(X[test]) - y[test]) ** 2
    for name, losses in squares.items():
        assert found[name].loo_error == pytest.approx(losses.mean())
        assert found[name].ratio == pytest.approx(np.sqrt(squares["mixtune"].mean() / losses.mean()))


def test_transfer_gain():
    X, y, sources = make_transfer(noise=3.0, n=8, sizes=(60,) * 5)
    model = fit(X, y, sources)
    alone = next(c for c in model.compared_ if c.method == "own rows alone")
    gain = model.transfer_gain_
    assert model.n_validation_sources_ == 5
    assert gain.from_rows == pytest.approx(1 - alone.ratio)
    assert gain.from_validation == pytest.approx(1 - np.exp(np.mean(Standardised(X, y, sources).average().play_gains)))
    assert gain.low < gain.reduction < gain.high
    assert gain.from_rows == gain.reduction


def test_without_sources():
    X, y, _ = make_transfer()
    model = fit(X, y)
    assert [c.method for c in model.compared_] == ["mixtune", "mean"]
    assert model.distances_ is None
    assert model.removal_effects() == ()
    assert {c.family for c in model.candidates_} == {"focal only"}
    np.testing.assert_array_equal(fit(X, y, {}).coef_, model.coef_)


def test_removal_effects_by_masking(model):
    X, y, sources = make_transfer()
    rows = Standardised(X, y, sources)
    (choice,) = rows.average().choices
    effects = model.removal_effects()
    assert [e.name for e in effects] == ["s0", "s1", "s2"]
    for index, effect in enumerate(effects):
        head, left_out = choice.without(index)
        assert effect.loo_error == pytest.approx(np.mean(left_out**2))
        assert effect.change == pytest.approx(np.sqrt(np.mean(left_out**2) / model.loo_error_) - 1)
        moved = rows.predict(head, X) - model.predict(X)
        assert effect.shift == pytest.approx(np.sqrt(np.mean(moved**2)))
    assert model.removal_effects() is effects


def test_removing_the_only_source_leaves_the_focal_rows():
    X, y, sources = make_transfer()
    model = fit(X, y, {"s0": sources["s0"]})
    (effect,) = model.removal_effects()
    choice = Standardised(X, y, {"s0": sources["s0"]}).average()
    errors = [e for e, (family, _) in zip(choice.errors, choice.labels) if family == "focal only"]
    assert effect.loo_error == pytest.approx(min(errors))
    assert effect.change == pytest.approx(np.sqrt(min(errors) / model.loo_error_) - 1)


def test_removal_effects_of_more_rows_than_are_judged():
    """Before and after are errors of the same rows."""
    rows = SETTINGS.judged_rows + 100
    X, y, sources = make_transfer(n=rows, sizes=(40, 40), noise=3.0)
    model = fit(X, y, sources)
    (choice,) = Standardised(X, y, sources).average().choices
    before = choice.without(None)[1]
    assert len(before) == SETTINGS.judged_rows
    for index, effect in enumerate(model.removal_effects()):
        after = choice.without(index)[1]
        assert effect.change == pytest.approx(np.sqrt(np.mean(after**2) / np.mean(before**2)) - 1, abs=1e-9)
    assert model.loo_predictions_.shape == (rows,)
    assert_no_nan(model, X)


def test_distances_are_computed_when_asked_for():
    X, y, sources = make_transfer()
    model = fit(X, y, sources)
    found = model.distances_
    assert found.names == ("focal", "s0", "s1", "s2")
    assert model.distances_ is found
    assert found.scores[0] == 0.0
    assert (found.scores[1:] > 0).all()
    assert np.isfinite(found.values).all()


def test_each_output_is_chosen_on_its_own():
    X, y, sources = make_transfer(outputs=2)
    both = fit(X, y, sources)
    for d in range(2):
        one = fit(X, y[:, d], {name: (U, v[:, d]) for name, (U, v) in sources.items()})
        np.testing.assert_allclose(both.coef_[:, d], one.coef_, atol=1e-10)
        assert both.intercept_[d] == pytest.approx(one.intercept_)
        np.testing.assert_allclose(both.loo_predictions_[:, d], one.loo_predictions_)
    assert both.predict(NEW).shape == (7, 2)
    assert_no_nan(both, X)
    assert both.predict(X, return_std=True)[1].shape == (12, 2)


def test_sample_weights():
    X, y, sources = make_transfer(sizes=(12, 12))
    weight = np.where(np.arange(12) < 4, 2.0, 1.0)
    again = np.repeat(np.arange(12), weight.astype(int))
    one = RegretOptimalRegressorCV(feature_map=None).fit(X, y, weight, sources=sources)
    two = RegretOptimalRegressorCV(feature_map=None).fit(X[again], y[again], sources=sources)
    np.testing.assert_allclose(one.coef_, two.coef_, atol=1e-9)
    assert one.loo_error_ == pytest.approx(two.loo_error_)
    np.testing.assert_allclose(one.weights_.values, two.weights_.values, atol=1e-8)
    absent = RegretOptimalRegressorCV(feature_map=None).fit(
        np.vstack([X, X + 50]), np.tile(y, 2), [1.0] * 12 + [0.0] * 12
    )
    np.testing.assert_allclose(absent.coef_, fit(X, y).coef_)
    heavy = {name: (U, v, np.full(len(v), 2.0)) for name, (U, v) in sources.items()}
    double = {name: (np.vstack([U, U]), np.tile(v, 2)) for name, (U, v) in sources.items()}
    three, four = fit(X, y, heavy), fit(X, y, double)
    assert three.n_validation_sources_ == four.n_validation_sources_ == 0
    np.testing.assert_allclose(three.coef_, four.coef_, atol=1e-8)


def test_feature_maps():
    X, y, sources = make_transfer(n=30)
    phi = RandomFeatures(n_inputs=4, width=20, seed=1)
    mapped = fit(X, y, sources, feature_map=phi)
    direct = fit(phi.transform(X), y, {name: (phi.transform(U), v) for name, (U, v) in sources.items()})
    np.testing.assert_allclose(mapped.coef_, direct.coef_, atol=1e-10)
    np.testing.assert_allclose(mapped.predict(NEW), direct.predict(phi.transform(NEW)))
    assert mapped.notes_ == ()
    assert_no_nan(mapped, X)


def test_very_many_features_are_projected():
    X, y, sources = make_transfer(n=10, sizes=(15, 12))
    phi = RandomFeatures(n_inputs=4, width=520, seed=1)
    model = fit(X, y, sources, feature_map=phi)
    assert model.notes_ == (
        f"{model.coef_.shape[0]} features: candidates were computed in their 37 leading principal directions",
    )
    assert_no_nan(model, X)
    assert np.isfinite(model.predict(NEW, return_std=True)[1]).all()
    # All 37 rows fit into 37 directions: predictions of them are those without projection.
    mapped = {name: (phi.transform(U), v) for name, (U, v) in sources.items()}
    rows = Standardised(phi.transform(X), y, mapped)
    np.testing.assert_allclose(model.predict(X), rows.predict(rows.average().head, phi.transform(X)), rtol=1e-3)


@pytest.mark.parametrize("intercept", [True, False])
def test_many_features_without_sources_lose_nothing(intercept):
    X, y, _ = make_transfer(n=11, p=600)
    model = fit(X, y, fit_intercept=intercept)
    assert model.notes_ == ()
    assert model.solution_.coef.shape == (11,)
    rows = Standardised(X, y, intercept=intercept)
    choice = rows.average()
    new = np.random.default_rng(1).standard_normal((5, 600))
    np.testing.assert_allclose(new @ model.coef_ + model.intercept_, rows.predict(choice.head, new), rtol=1e-7)
    np.testing.assert_allclose(model.loo_predictions_, y - choice.left_out)
    np.testing.assert_allclose(sorted(model.ridge_path_.loo_errors), sorted(choice.errors))


@pytest.mark.parametrize("ask_first", [True, False])
def test_through_a_file(tmp_path, ask_first):
    X, y, sources = make_transfer()
    model = fit(X, y, sources)
    effects = model.removal_effects() if ask_first else None
    again = load(model.save(tmp_path / "a.mixtune"))
    assert model.predict(NEW).tobytes() == again.predict(NEW).tobytes()
    for mine, theirs in zip(model.predict(NEW, return_std=True), again.predict(NEW, return_std=True)):
        assert mine.tobytes() == theirs.tobytes()
    assert again.distances_.scores.tobytes() == model.distances_.scores.tobytes()
    assert again.compared_ == model.compared_
    assert again.transfer_gain_ == model.transfer_gain_
    assert [c.settings for c in again.candidates_] == [c.settings for c in model.candidates_]
    np.testing.assert_array_equal(again.solution_.coef, model.solution_.coef)
    np.testing.assert_array_equal(again.ridge_path_.loo_errors, model.ridge_path_.loo_errors)
    assert again.loo_error_ == model.loo_error_
    if ask_first:
        assert again.removal_effects() == effects
    else:
        with pytest.raises(ParameterError, match="before save"):
            again.removal_effects()


def test_files_without_sources_and_with_many_outputs(tmp_path):
    X, y, sources = make_transfer(outputs=2)
    for model in (fit(X, y[:, 0]), fit(X, y, sources)):
        again = load(model.save(tmp_path / "a.mixtune"))
        assert model.predict(NEW).tobytes() == again.predict(NEW).tobytes()
        assert (again.distances_ is None) == (model.distances_ is None)


def test_pickling(model):
    again = pickle.loads(pickle.dumps(model))  # noqa: S301
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    assert again.removal_effects() == model.removal_effects()


@pytest.mark.parametrize("routing", [False, True])
def test_grid_search(routing):
    X, y, sources = make_transfer(n=18)
    with sklearn.config_context(enable_metadata_routing=routing):
        search = GridSearchCV(RegretOptimalRegressorCV(feature_map=None), {"clamp": [True, False]}, cv=3)
        search.fit(X, y, sources=Sources(sources))
    assert search.best_estimator_.domain_names_ == ("focal", "s0", "s1", "s2")
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_frames():
    pd = pytest.importorskip("pandas")
    X, y, sources = make_transfer()
    names = ["a", "b", "c", "d"]
    frame = pd.DataFrame(X, columns=names)
    frames = {k: (pd.DataFrame(U, columns=names)[["d", "b", "a", "c"]], pd.Series(v)) for k, (U, v) in sources.items()}
    named = fit(frame, pd.Series(y), frames)
    np.testing.assert_allclose(named.coef_, fit(X, y, sources).coef_)
    assert named.feature_names_in_.tolist() == names
    with pytest.raises(DataError, match='missing "b"'):
        fit(frame, y, {"s0": (frames["s0"][0].drop(columns="b"), frames["s0"][1])})
    with pytest.raises(DataError, match='column "b" of X of domain "s0" holds text'):
        fit(frame, y, {"s0": (frames["s0"][0].assign(b="x"), frames["s0"][1])})
    with pytest.raises(DataError, match='more than one column named "a"'):
        fit(pd.DataFrame(X, columns=["a", "a", "c", "d"]), y)


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        (np.ones((0, 2)), np.ones(0), "0 sample"),
        ([["a", "b"], ["c", "d"]], [1.0, 2.0], "X holds text"),
        (np.array([[1.0, np.nan]] * 3), np.ones(3), "NaN"),
        (np.ones((3, 2)), [1.0, np.inf, 2.0], "infinity"),
        ([[10**400], [1]], [1.0, 2.0], "beyond 1e308"),
        ([[2], [1]], [10**400, 2], "beyond 1e308"),
    ],
)
def test_bad_focal_rows(X, y, words):
    with pytest.raises(ValueError, match=words):
        fit(X, y)


@pytest.mark.parametrize("seed", [-1, 0.5, "a"])
def test_bad_seed(seed):
    with pytest.raises(ParameterError, match="seed"):
        fit(*make_transfer(), seed=seed)


@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize(
    "change",
    [
        lambda X, y: (X[:1], y[:1]),
        lambda X, y: (X[:2], y[:2]),
        lambda X, y: (X, np.full(len(y), 7.0)),
        lambda X, y: (X, np.full(len(y), 0.1)),
        lambda X, y: (X * [0, 1, 1, 1], y),
        lambda X, y: (X[:, [0, 0, 1, 1]], y),
        lambda X, y: (np.zeros_like(X), y),
    ],
    ids=[
        "one row",
        "two rows",
        "constant target",
        "constant target of rounding",
        "zero column",
        "columns twice",
        "zeros",
    ],
)
def test_poor_focal_rows(change, count):
    X, y, sources = make_transfer(sizes=(25,) * count)
    few, target = change(X, y)
    model = fit(few, target, sources)
    assert_no_nan(model, X)
    if np.ptp(target) == 0 and len(target) > 2:
        np.testing.assert_allclose(model.predict(few), target, atol=1e-5)
        assert model.transfer_gain_.reduction == pytest.approx(0, abs=0.9)


@pytest.mark.parametrize(
    "change",
    [
        lambda X, y: (X[:1], y[:1]),
        lambda X, y: (X, np.full(len(y), 7.0)),
        lambda X, y: (np.zeros_like(X), y),
        lambda X, y: (X, 1e6 * y),
        lambda X, y: (X, 1e-6 * y),
    ],
    ids=["one row", "constant target", "constant columns", "huge", "tiny"],
)
@pytest.mark.filterwarnings("ignore:y of the sources and of the focal rows differ in size")
@pytest.mark.parametrize("every", [True, False])
def test_poor_sources(change, every):
    X, y, sources = make_transfer(sizes=(25,) * 5)
    alone = np.sqrt(fit(X, y).loo_error_)
    poor = {name: change(*rows) if every or name == "s0" else rows for name, rows in sources.items()}
    model = fit(X, y, poor)
    assert_no_nan(model, X)
    assert np.sqrt(model.loo_error_) < 1.5 * alone


def test_one_row_has_no_standard_deviation():
    X, y, _ = make_transfer()
    with pytest.raises(ParameterError, match="leave-one-out cannot judge"):
        fit(X[:1], y[:1]).predict(X, return_std=True)


def make_labels(names, n=40):
    X, y, sources = make_transfer(n=n)
    cuts = np.quantile(y, np.linspace(0, 1, len(names) + 1)[1:-1])
    label = np.array(names)
    return (
        X,
        label[np.searchsorted(cuts, y)],
        {k: (U, label[np.searchsorted(cuts, v)]) for k, (U, v) in sources.items()},
    )


@pytest.mark.parametrize("names", [("no", "yes"), ("cold", "mild", "warm"), (3, 7)])
def test_classifier(names, tmp_path):
    X, y, sources = make_labels(names)
    model = RegretOptimalClassifierCV(feature_map=None).fit(X, y, sources=sources)
    proba = model.predict_proba(NEW)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert proba.min() >= 0
    np.testing.assert_array_equal(model.predict(NEW), np.array(names)[np.argmax(proba, axis=1)])
    assert model.score(X, y) > (0.8 if len(names) == 2 else 0.6)
    again = load(model.save(tmp_path / "a.mixtune"))
    assert again.predict_proba(NEW).tobytes() == proba.tobytes()
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))


def test_a_class_only_in_sources():
    X, y, sources = make_labels(("cold", "mild", "warm"))
    kept = y != "warm"
    model = RegretOptimalClassifierCV(feature_map=None).fit(X[kept], y[kept], sources=sources)
    assert model.classes_.tolist() == ["cold", "mild", "warm"]
    proba = model.predict_proba(X)
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    one = RegretOptimalClassifierCV(feature_map=None).fit(X[:1], y[:1], sources=sources)
    np.testing.assert_allclose(one.predict_proba(X).sum(axis=1), 1)


def test_onnx_clamps_like_predict():
    pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    X, y, sources = make_labels(("cold", "mild", "warm"))
    model = RegretOptimalClassifierCV(feature_map=None).fit(X, y, sources=sources)
    far = 100 * NEW
    proba, labels = ReferenceEvaluator(model.to_onnx()).run(None, {"features": far})
    np.testing.assert_allclose(proba, model.predict_proba(far), atol=1e-9)
    assert [str(label) for label in labels] == model.predict(far).tolist()
    number = fit(*make_transfer())
    (found,) = ReferenceEvaluator(number.to_onnx()).run(None, {"features": far})
    np.testing.assert_allclose(found, number.predict(far))
    assert np.ptp(found) < np.ptp(far @ number.coef_)


def test_adding_and_forgetting_is_fitting_again():
    X, y, sources = make_transfer()
    names = list(sources)
    whole = fit(X, y, sources)
    parts = fit(X[:4], y[:4], {names[0]: sources[names[0]]})
    U, v = sources[names[1]]
    parts.partial_fit(X[4:], y[4:], sources={names[1]: (U[:5], v[:5])})
    parts.partial_fit(sources={names[1]: (U[5:], v[5:])} | {name: sources[name] for name in names[2:]})
    np.testing.assert_allclose(parts.predict(NEW), whole.predict(NEW))
    fewer = fit(X, y, {name: sources[name] for name in names[1:]})
    np.testing.assert_allclose(whole.forget(names[0]).predict(NEW), fewer.predict(NEW))
    assert whole.domain_names_ == fewer.domain_names_
    with pytest.raises(ParameterError, match="no source"):
        whole.forget(names[0])
    with pytest.raises(ParameterError, match="focal domain"):
        whole.forget("focal")
    with pytest.raises(ParameterError, match="together"):
        whole.partial_fit(X)


def test_a_model_from_a_file_has_no_rows_to_add_to(model, tmp_path):
    loaded = load(model.save(tmp_path / "model.mixtune"))
    with pytest.raises(ParameterError, match="holds no rows"):
        loaded.forget("a")


def test_a_source_beyond_float64_squares_does_no_harm():
    X, y, sources = make_transfer()
    sources["s0"][0][3, 1] = 1e200
    assert np.all(np.isfinite(RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources).predict(X)))


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize(("p", "count"), [(4, 2), (4, 14), (45, 5)])
def test_the_level_of_the_targets_does_not_matter(p, count, rows):
    """Two rows say nothing of a ridge: rounding, which the level changes, must not decide."""
    X, y, sources = make_transfer(n=12, p=p, sizes=(rows,) * count)
    new = np.random.default_rng(0).standard_normal((7, p))
    found = fit(X, y, sources).predict(new)
    moved = fit(X, y + 1.7, {name: (U, v + 1.7) for name, (U, v) in sources.items()}).predict(new)
    np.testing.assert_allclose(moved - 1.7, found, rtol=1e-6, atol=1e-6)


def test_intervals_are_wider_by_what_leave_one_out_overlooks():
    covered, errors = [], []
    for seed in range(12):
        X, y, sources = make_transfer(seed, n=214, sizes=(40,) * 5, noise=3.0)
        model = fit(X[:14], y[:14], sources)
        low, high = model.predict_interval(X[14:], coverage=0.8)
        covered.append(np.mean((low <= y[14:]) & (y[14:] <= high)))
        mean, std = model.predict(X[14:], return_std=True)
        errors.append(np.log(np.mean(((y[14:] - mean) / std) ** 2)))
    assert 0.74 < np.mean(covered) < 0.9
    assert abs(np.mean(errors)) < 0.3


def test_the_solution_is_solved_for_on_first_access_and_follows_the_fit():
    X, y, sources = make_transfer()
    model = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)
    first = model.solution_
    assert model.solution_ is first
    again = model.fit(X, 2 * y, sources={name: (U, 2 * v) for name, (U, v) in sources.items()}).solution_
    np.testing.assert_allclose(again.coef, 2 * first.coef, rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 2])
def test_sources_of_one_or_two_rows_weigh_little(rows):
    rng = np.random.default_rng(0)
    X, _, _ = make_transfer(n=8)
    slope = np.array([1.0, 2.0, 3.0, 0.0])
    y = X @ slope + 0.3 * rng.standard_normal(8)
    draw = lambda n: (U := rng.standard_normal((n, 4)), U @ slope + 0.3 * rng.standard_normal(n))  # noqa: E731
    weights = fit(X, y, {str(i): draw(rows) for i in range(3)}).weights_.values
    assert weights.sum() == pytest.approx(1)
    assert np.all(weights[1:] < weights[0])
    assert weights[1:].sum() < 0.5
