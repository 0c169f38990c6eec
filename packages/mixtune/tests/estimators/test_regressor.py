import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from estimators.transfer_data import make_transfer
from mixtune import EqualWeights, PredictiveWeights, RandomFeatures, RegretSolution, WassersteinWeights
from mixtune.errors import DataError, ParameterError
from mixtune.estimators import RegretOptimalRegressor, Sources
from mixtune.weights import DomainWeights, TransportWeights

GIVEN = {"focal": 0.4, "s0": 0.3, "s1": 0.2, "s2": 0.1}


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("n", "p", "outputs"), [(20, 4, None), (6, 30, None), (20, 4, 3)])
def test_without_sources_it_is_ridge(n, p, outputs, fit_intercept):
    X, y, _ = make_transfer(n=n, p=p, outputs=outputs)
    weight = np.random.default_rng(1).uniform(0.2, 2.0, n)
    scale = np.sqrt(np.average((X - np.average(X, axis=0, weights=weight)) ** 2, axis=0, weights=weight))
    theirs = Ridge(alpha=2.0, fit_intercept=fit_intercept, solver="cholesky").fit(X / scale, y, weight)
    ours = RegretOptimalRegressor(ridge=2.0, fit_intercept=fit_intercept).fit(X, y, weight)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X / scale), rtol=1e-9)
    np.testing.assert_allclose(ours.heads_[0], ours.coef_, rtol=1e-9)
    assert ours.effective_ridge_ == 2.0
    assert ours.loo_error_ == pytest.approx(ours.focal_loo_error_)
    assert ours.weights_.as_dict() == {"focal": 1.0}


@pytest.mark.parametrize(("p", "sizes"), [(4, (30, 25, 40)), (60, (9, 8, 7))])
def test_the_slow_twin_on_stacked_rows(p, sizes):
    """Augmented weighted normal equations written out, with the local heads from scikit-learn."""
    X, y, sources = make_transfer(p=p, sizes=sizes)
    model = RegretOptimalRegressor(weights=GIVEN, ridge=0.7, transfer=0.4, stability=0.0).fit(X, y, sources=sources)
    parts = [(X, y), *sources.values()]
    scaler = StandardScaler().fit(np.concatenate([part[0] for part in parts]))
    parts = [(scaler.transform(U), v) for U, v in parts]
    weights = np.array(list(GIVEN.values()))
    prior = sum(w * Ridge(alpha=0.7, solver="cholesky").fit(*part).coef_ for w, part in zip(weights, parts))
    r = 0.4 / np.sum(weights**2)
    design = [np.column_stack([U, np.ones(len(U))]) for U, _ in parts]
    gram = sum(w * D.T @ D for w, D in zip(weights, design))
    cross = sum(w * D.T @ part[1] for w, D, part in zip(weights, design, parts))
    penalty = r * np.diag([1.0] * p + [0.0])
    expected = np.linalg.solve(gram + penalty, cross + penalty @ [*prior, 0.0])
    np.testing.assert_allclose(model.predict(X), design[0] @ expected, rtol=1e-8)
    assert model.effective_ridge_ == pytest.approx(r)
    np.testing.assert_allclose(
        X @ model.heads_[0] + model.head_intercepts_[0],
        Ridge(alpha=0.7, solver="cholesky").fit(*parts[0]).predict(parts[0][0]),
        rtol=1e-8,
    )


def test_fitted_attributes():
    X, y, sources = make_transfer()
    model = RegretOptimalRegressor().fit(X, y, sources=sources)
    assert isinstance(model.weights_, DomainWeights)
    assert model.domain_names_ == model.weights_.names == ("focal", "s0", "s1", "s2")
    assert model.weights_.as_dict()["s2"] < 1e-3 < model.weights_.as_dict()["s0"]
    assert isinstance(model.solution_, RegretSolution)
    assert model.solution_.steps == 10
    assert model.heads_.shape == (4, 4)
    assert model.head_intercepts_.shape == (4,)
    assert model.distances_ is None
    assert model.bound_gain_ is None
    assert model.loo_error_ < model.focal_loo_error_
    assert model.loo_predictions_.shape == y.shape
    assert np.mean((y - model.loo_predictions_) ** 2) == pytest.approx(model.loo_error_)
    np.testing.assert_allclose(model.predict(X), X @ model.coef_ + model.intercept_)


def test_wasserstein_distances():
    X, y, sources = make_transfer()
    model = RegretOptimalRegressor(weights="wasserstein").fit(X, y, sources=sources)
    assert isinstance(model.distances_, TransportWeights)
    assert model.distances_.names == ("focal", "s0", "s1", "s2")
    assert model.distances_.sampling_floor is not None
    assert isinstance(model.bound_gain_, float)
    later = RegretOptimalRegressor().fit(X, y, sources=sources).distances(X, y, sources=sources)
    np.testing.assert_allclose(later.scores, model.distances_.scores)
    features = RegretOptimalRegressor(
        RandomFeatures(n_inputs=4, width=20, seed=0), weights=WassersteinWeights(5.0, on="features")
    ).fit(X, y, sources=sources)
    assert not np.allclose(features.distances_.scores, model.distances_.scores)
    for change in (lambda: model.forget("s0"), lambda: model.partial_fit(X, y)):
        with pytest.raises(ParameterError, match="compares rows"):
            change()


@pytest.mark.parametrize("weights", ["equal", EqualWeights(), PredictiveWeights(1.0), GIVEN])
def test_weight_settings(weights):
    X, y, sources = make_transfer()
    model = RegretOptimalRegressor(weights=weights).fit(X, y, sources=sources)
    assert model.weights_.values.sum() == pytest.approx(1)
    assert model.weights_.names == ("focal", "s0", "s1", "s2")
    if weights is GIVEN:
        assert model.weights_.as_dict() == pytest.approx(GIVEN)
    assert model.forget("s0").domain_names_ == ("focal", "s1", "s2")  # which rules that compare rows refuse


def test_predictive_weights_see_levels():
    """A source with the right slope and the wrong level predicts badly, and its level would end up in the fit."""
    X, y, sources = make_transfer()
    shifted = {"same": sources["s0"], "level": (sources["s0"][0], sources["s0"][1] + 100)}
    weights = RegretOptimalRegressor().fit(X, y, sources=shifted).weights_.as_dict()
    assert weights["level"] == 0.0 < weights["same"]


def test_a_row_of_weight_two_is_two_rows():
    X, y, sources = make_transfer()
    repeats = np.random.default_rng(0).integers(0, 3, len(y))
    counts = {name: np.random.default_rng(1).integers(0, 3, len(v)) for name, (_, v) in sources.items()}
    weighted = {name: (*pair, counts[name]) for name, pair in sources.items()}
    repeated = {name: tuple(np.repeat(part, counts[name], axis=0) for part in pair) for name, pair in sources.items()}
    one = RegretOptimalRegressor().fit(X, y, repeats, sources=weighted)
    two = RegretOptimalRegressor().fit(np.repeat(X, repeats, axis=0), np.repeat(y, repeats), sources=repeated)
    np.testing.assert_allclose(one.weights_.values, two.weights_.values, rtol=1e-9)
    np.testing.assert_allclose(one.weights_.scores, two.weights_.scores, rtol=1e-9)
    np.testing.assert_allclose(one.predict(X), two.predict(X), rtol=1e-9)
    assert one.loo_error_ == pytest.approx(two.loo_error_)
    np.testing.assert_allclose(one.predict(X, return_std=True)[1], two.predict(X, return_std=True)[1], rtol=1e-8)
    np.testing.assert_allclose(one.predict_interval(X, coverage=0.7), two.predict_interval(X, coverage=0.7), rtol=1e-8)


def test_outputs_one_by_one_are_outputs_together():
    X, y, sources = make_transfer(outputs=3)
    model = RegretOptimalRegressor(weights=GIVEN).fit(X, y, sources=sources)
    assert model.coef_.shape == (4, 3)
    together, std = model.predict(X, return_std=True)
    low, high = model.predict_interval(X, coverage=0.8)
    for d in range(3):
        alone = RegretOptimalRegressor(weights=GIVEN).fit(
            X, y[:, d], sources={name: (U, v[:, d]) for name, (U, v) in sources.items()}
        )
        one, one_std = alone.predict(X, return_std=True)
        np.testing.assert_allclose(together[:, d], one, rtol=1e-9)
        np.testing.assert_allclose(std[:, d], one_std, rtol=1e-8)
        np.testing.assert_allclose([low[:, d], high[:, d]], alone.predict_interval(X, coverage=0.8), rtol=1e-8)


def test_units_do_not_matter():
    X, y, sources = make_transfer()
    units, level = np.array([1e3, 1e-3, 1.0, 50.0]), 1e4
    model = RegretOptimalRegressor().fit(X, y, sources=sources)
    moved = RegretOptimalRegressor().fit(
        X * units + 7,
        10 * y + level,
        sources={name: (U * units + 7, 10 * v + level) for name, (U, v) in sources.items()},
    )
    np.testing.assert_allclose(moved.predict(X * units + 7), 10 * model.predict(X) + level, rtol=1e-7)


def test_partial_fit_adds_rows_and_sources():
    X, y, sources = make_transfer(n=20)
    first = {"s0": sources["s0"], "s1": tuple(part[:10] for part in sources["s1"])}
    model = RegretOptimalRegressor().fit(X[:15], y[:15], sources=first)
    model.partial_fit(X[15:18], y[15:18])
    model.partial_fit(X[18:], y[18:], sources={"s1": tuple(part[10:] for part in sources["s1"]), "s2": sources["s2"]})
    whole = refit_with_scaling(model, X, y, sources, scaler_of(X[:15], first))
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-10)
    assert model.intercept_ == pytest.approx(whole.intercept_, rel=1e-10)
    assert model.loo_error_ == pytest.approx(whole.loo_error_, rel=1e-9)
    assert model.domain_names_ == ("focal", "s0", "s1", "s2")


def scaler_of(X, sources):
    """How inputs are standardised by a fit to these rows."""
    return StandardScaler().fit(np.concatenate([X, *(U for U, *_ in sources.values())]))


def refit_with_scaling(model, X, y, sources, scaler):
    """A fit from scratch to inputs standardised as the first fit of ``model`` did."""
    fresh = RegretOptimalRegressor(**model.get_params()).set_params(standardise=False)
    scaled = {name: (scaler.transform(U), v) for name, (U, v) in sources.items()}
    fresh.fit(scaler.transform(X), y, sources=scaled)
    fresh.coef_, fresh.intercept_ = (
        fresh.coef_ / scaler.scale_,
        fresh.intercept_ - fresh.coef_ @ (scaler.mean_ / scaler.scale_),
    )
    return fresh


@pytest.mark.parametrize("weights", ["predictive", "equal", GIVEN])
@pytest.mark.parametrize("p", [4, 80])
def test_forget_is_as_if_never_seen(weights, p):
    X, y, sources = make_transfer(p=p)
    model = RegretOptimalRegressor(weights=weights).fit(X, y, sources=sources)
    before = model.coef_
    model.forget("s2")
    kept = {name: pair for name, pair in sources.items() if name != "s2"}
    if weights is GIVEN:
        total = 1 - GIVEN["s2"]
        model.set_params(weights={name: w / total for name, w in GIVEN.items() if name != "s2"})
    scaler = scaler_of(X, sources)
    whole = refit_with_scaling(model, X, y, kept, scaler)
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-10)
    assert weights == "predictive" or not np.allclose(before, model.coef_)
    model.forget("s0").forget("s1")
    alone = refit_with_scaling(model.set_params(weights="equal"), X, y, {}, scaler)
    np.testing.assert_allclose(model.coef_, alone.coef_)


def test_partial_fit_first_is_fit_and_bad_calls():
    X, y, sources = make_transfer()
    one, two = RegretOptimalRegressor(), RegretOptimalRegressor()
    np.testing.assert_array_equal(
        one.partial_fit(X, y, sources=sources).coef_, two.fit(X, y, sources=Sources(sources)).coef_
    )
    with pytest.raises(ParameterError, match="X and y together"):
        one.partial_fit(X)
    with pytest.raises(ParameterError, match='no source "s9"; known'):
        one.forget("s9")
    with pytest.raises(ParameterError, match="focal domain"):
        one.forget("focal")
    with pytest.raises(ParameterError, match="2 outputs"):
        one.partial_fit(X, np.column_stack([y, y]))


def test_new_sources_only():
    X, y, sources = make_transfer()
    model = RegretOptimalRegressor(weights="equal").fit(X, y)
    assert model.partial_fit(sources=sources).domain_names_ == ("focal", "s0", "s1", "s2")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ridge": -1.0}, "ridge must be"),
        ({"transfer": "a"}, "transfer must be"),
        ({"stability": np.nan}, "stability must be"),
        ({"horizon": 1.5}, "horizon must be"),
        ({"sharing": -1}, "sharing must be"),
        ({"weights": "nearest"}, "weights must be one of"),
        ({"weights": 3}, "weights must be"),
        ({"weights": np.ones(4)}, "weights must be"),
        ({"weights": {**GIVEN, "s2": "a"}}, "weights must be"),
        ({"weights": {"focal": 1.0}}, 'no entry for "s0", "s1", "s2"'),
        ({"weights": {**GIVEN, "s3": 0.0}}, '"s3", which is not a domain'),
        ({"weights": dict.fromkeys(GIVEN, 1.0)}, "sum to 1"),
        ({"focal_name": "s0"}, 'a source is named "s0"'),
        ({"focal_name": ""}, "focal_name must be"),
        ({"feature_map": StandardScaler()}, "SklearnFeatures"),
    ],
)
def test_settings_refused(settings, words):
    X, y, sources = make_transfer()
    with pytest.raises((ParameterError, DataError), match=words):
        RegretOptimalRegressor(**settings).fit(X, y, sources=sources)


def test_focal_weight_zero_and_one_focal_row():
    X, y, sources = make_transfer()
    model = RegretOptimalRegressor(weights={**GIVEN, "focal": 0.0, "s0": 0.7}).fit(X, y, sources=sources)
    assert np.isfinite(model.loo_error_)
    single = RegretOptimalRegressor().fit(X[:1], y[:1], sources=sources)
    assert single.loo_error_ == np.inf
    assert np.all(np.isfinite(single.predict(X)))
    with pytest.raises(ParameterError, match="more focal rows"):
        single.predict(X, return_std=True)


def test_standard_deviations_and_intervals_hold_on_new_rows():
    X, y, sources = make_transfer(5, n=400)
    model = RegretOptimalRegressor().fit(X[:60], y[:60], sources=sources)
    predictions, std = model.predict(X[60:], return_std=True)
    assert 0.8 < np.mean(((y[60:] - predictions) / std) ** 2) < 1.2
    low, high = model.predict_interval(X[60:])
    assert 0.8 < np.mean((low <= y[60:]) & (y[60:] <= high)) < 0.95
    far = model.predict(X[:1] + 1e3, return_std=True)[1]
    assert far > std.max()
    with pytest.raises(ParameterError, match="at least 99 focal rows, there are 60"):
        model.predict_interval(X, coverage=0.99)
    with pytest.raises(ParameterError, match="between 0 and 1"):
        model.predict_interval(X, coverage=1.0)


def test_constant_targets_and_one_row_sources():
    X, y, sources = make_transfer()
    flat = RegretOptimalRegressor().fit(X, np.full(len(y), 2.5), sources={"b": (X, np.full(len(y), 2.5))})
    np.testing.assert_allclose(flat.predict(X), 2.5)
    tiny = RegretOptimalRegressor().fit(X, y, sources={**sources, "one": (X[:1], y[:1])})
    assert np.all(np.isfinite(tiny.coef_))


def test_a_failed_fit_leaves_the_model_as_it_was():
    X, y, sources = make_transfer()
    model = RegretOptimalRegressor(weights=GIVEN).fit(X, y, sources=sources)
    before = model.predict(X, return_std=True)
    with pytest.raises(ParameterError, match="no entry"):
        model.fit(10 * X, y, sources={**sources, "new": sources["s0"]})
    with pytest.raises(ParameterError, match="no entry"):
        model.partial_fit(sources={"new": sources["s0"]})
    np.testing.assert_array_equal(model.predict(X, return_std=True), before)


def test_overflow_is_named():
    X, y, sources = make_transfer()
    with pytest.raises(DataError, match="beyond float64"):
        RegretOptimalRegressor().fit(X, y * 1e200, sources=sources)
