"""target_scale: positive targets over orders of magnitude, modelled by their logarithms."""

import numpy as np
import pytest

from mixtune.errors import DataError, ParameterError
from mixtune.estimators import RegretOptimalClassifierCV, RegretOptimalRegressorCV, load


def prices(rng, n, level=5.0):
    X = rng.standard_normal((n, 3))
    return X, np.exp(level + X @ [1.2, -0.5, 0.2] + 0.3 * rng.standard_normal(n))


def problem(n=25, make=prices, seed=0):
    rng = np.random.default_rng(seed)
    return (*make(rng, n), {f"s{k}": make(rng, 60) for k in range(5)}, make(rng, 2000))


@pytest.fixture(scope="module")
def fitted():
    X, y, sources, _ = problem()
    return RegretOptimalRegressorCV().fit(X, y, sources=sources)


def rmse(model, test):
    return float(np.sqrt(np.mean((model.predict(test[0]) - test[1]) ** 2)))


def likelihood(model, X, y):
    """The mean log likelihood of left-out targets by the whole model, up to a constant (Box and Cox)."""
    if model.target_scale_ == "identity":
        return -0.5 * np.log(np.mean((y - model.loo_predictions_) ** 2))
    low, high = model.predict_interval(X)
    # Intervals are about the exponential of the mean logarithm, predictions a factor above it.
    smearing = np.median(model.predict(X) / np.sqrt(low * high))
    residuals = np.log(y) - np.log(model.loo_predictions_ / smearing)
    return -0.5 * np.log(np.mean(residuals**2)) - np.mean(np.log(y))


def test_prices_over_orders_of_magnitude_are_modelled_by_their_logarithms(fitted):
    X, y, sources, test = problem()
    plain = RegretOptimalRegressorCV(target_scale="identity").fit(X, y, sources=sources)
    assert (fitted.target_scale_, plain.target_scale_) == ("log", "identity")
    assert "log scale" in " ".join(fitted.notes_)
    # The scale is chosen with splines alone; the whole models agree.
    assert likelihood(fitted, X, y) > likelihood(plain, X, y)
    assert rmse(fitted, test) < 0.9 * rmse(plain, test)
    assert fitted.predict(test[0]).min() > 0
    # The mean, not the median: exp alone would be too small by exp(0.3^2 / 2).
    assert np.mean(fitted.predict(test[0])) == pytest.approx(np.mean(test[1]), rel=0.1)


def test_a_fit_to_logarithms_by_hand(fitted):
    X, y, sources, (new, _) = problem()
    logs = {name: (U, np.log(v)) for name, (U, v) in sources.items()}
    by_hand = RegretOptimalRegressorCV(target_scale="identity").fit(X, np.log(y), sources=logs)
    residuals = np.log(y) - by_hand.loo_predictions_
    smearing = np.mean(np.exp(residuals))
    targets = np.concatenate([np.log(y), *(v for _, v in logs.values())])
    # Rows whose predictions are within the range of all targets.
    inside = (by_hand.predict(new) >= targets.min()) & (by_hand.predict(new) <= targets.max())
    assert 0.9 < inside.mean() < 1.0
    new = new[inside]
    np.testing.assert_allclose(fitted.predict(new), smearing * np.exp(by_hand.predict(new)))
    np.testing.assert_allclose(fitted.loo_predictions_, smearing * np.exp(by_hand.loo_predictions_))
    assert fitted.loo_error_ == pytest.approx(np.mean((y - fitted.loo_predictions_) ** 2))
    for one, other in zip(fitted.predict_interval(new), by_hand.predict_interval(new)):
        np.testing.assert_allclose(one, np.exp(other))
    mean, std = fitted.predict(new, return_std=True)
    np.testing.assert_allclose(std / mean, np.sqrt(np.expm1(by_hand.predict(new, return_std=True)[1] ** 2)))
    heads = by_hand.heads_ @ by_hand.feature_map_.transform(X).T + by_hand.head_intercepts_[:, None]
    np.testing.assert_allclose(fitted.weights_.scores, np.mean((y - np.exp(heads)) ** 2, axis=1))


def test_predictions_stay_near_the_targets(fitted):
    """A line of logarithms that goes on beyond all rows would be off by a factor."""
    _, y, sources, _ = problem()
    logs = np.log(np.concatenate([y, *(v for _, v in sources.values())]))
    margin = 0.05 * np.ptp(logs)
    far = np.array([[50.0, -50.0, 50.0], [-50.0, 50.0, -50.0]])
    bounds = np.exp([logs.max() + margin, logs.min() - margin])
    low, high = fitted.predict_interval(far)
    np.testing.assert_allclose(np.sqrt(low * high), bounds)
    # Both are means of the targets: the bounds, times one factor.
    ratio = fitted.predict(far) / bounds
    assert ratio[0] == pytest.approx(ratio[1])
    assert 1.0 < ratio[0] < 1.2


def test_logarithms_need_smaller_errors_of_targets_as_well():
    """Errors in proportion to the targets make logarithms likelier, but the few large targets are off on that scale."""
    rng = np.random.default_rng(0)

    def make(rng, n):
        x = 10 ** rng.uniform(-2, 2, n)
        return np.column_stack([x, rng.standard_normal(n)]), (1.0 + x) * np.exp(0.05 * rng.standard_normal(n))

    X, y, sources, test = *make(rng, 25), {f"s{k}": make(rng, 60) for k in range(5)}, make(rng, 2000)
    auto, log = (RegretOptimalRegressorCV(target_scale=s).fit(X, y, sources=sources) for s in ("auto", "log"))
    assert auto.target_scale_ == "identity"
    assert likelihood(log, X, y) > likelihood(auto, X, y)
    assert rmse(auto, test) < rmse(log, test)


def test_intervals_cover_new_prices():
    covered = []
    for seed in range(3):
        X, y, sources, (new, truth) = problem(seed=seed)
        low, high = RegretOptimalRegressorCV().fit(X, y, sources=sources).predict_interval(new)
        assert low.min() > 0
        covered.append(np.mean((low <= truth) & (truth <= high)))
    assert 0.84 < np.mean(covered) < 0.97


def test_units_of_prices_do_not_matter(fitted):
    X, y, sources, (new, _) = problem()
    moved = RegretOptimalRegressorCV().fit(X, 1e3 * y, sources={name: (U, 1e3 * v) for name, (U, v) in sources.items()})
    np.testing.assert_allclose(moved.predict(new) / 1e3, fitted.predict(new), rtol=1e-6)


@pytest.mark.parametrize("change", ["narrow", "negative", "linear map", "two outputs", "straight"])
def test_logarithms_are_not_taken_without_reason(change):
    X, y, sources, _ = problem()
    move = {
        "narrow": lambda v: v**0.1,
        "negative": lambda v: v - 20.0,
        "two outputs": lambda v: np.column_stack([v, v]),
    }.get(change, lambda v: v)
    y, sources = move(y), {name: (U, move(v)) for name, (U, v) in sources.items()}
    if change == "straight":  # spans orders of magnitude, but is a sum with errors of equal size
        rng = np.random.default_rng(0)
        X = np.column_stack([10 ** rng.uniform(-2, 2, 200), X[:, 1].mean() + rng.standard_normal(200)])
        y = 0.5 + X[:, 0] + np.abs(0.1 * rng.standard_normal(200))
        sources = {f"s{k}": (X[k::4], y[k::4]) for k in range(1, 4)}
        X, y = X[::4], y[::4]
    settings = {"feature_map": None} if change == "linear map" else {}
    model = RegretOptimalRegressorCV(**settings).fit(X, y, sources=sources)
    assert model.target_scale_ == "identity"
    assert ("may be negative" in " ".join(model.notes_)) == (change == "straight")
    if change == "straight":
        logs = RegretOptimalRegressorCV(target_scale="log").fit(X, y, sources=sources)
        assert likelihood(model, X, y) > likelihood(logs, X, y)


def test_given_scales_and_what_is_refused():
    X, y, *_ = problem()
    model = RegretOptimalRegressorCV(None, target_scale="log").fit(X, y**0.1, sources={"a": (X, y**0.1)})
    assert model.target_scale_ == "log"
    with pytest.raises(ParameterError, match="log scale cannot be exported"):
        model.to_onnx()
    with pytest.raises(DataError, match="positive in every row"):
        RegretOptimalRegressorCV(target_scale="log").fit(X, y - 20.0)
    with pytest.raises(ParameterError, match="target_scale='logs' is unknown; choose from auto, identity, log"):
        RegretOptimalRegressorCV(target_scale="logs").fit(X, y)
    assert RegretOptimalClassifierCV().fit(X, y > 100).regressor_.target_scale_ == "identity"


def test_saved_loaded_and_rows_added(fitted, tmp_path):
    X, y, sources, (new, _) = problem()
    again = load(fitted.save(tmp_path / "a.mixtune"))
    np.testing.assert_array_equal(again.predict(new), fitted.predict(new))
    assert (again.target_scale_, again.loo_error_) == ("log", fitted.loo_error_)
    later = RegretOptimalRegressorCV().fit(X[:20], y[:20], sources=sources).partial_fit(X[20:], y[20:])
    np.testing.assert_allclose(later.predict(new), fitted.predict(new), rtol=1e-6)


def test_one_row_that_cannot_be_left_out_says_nothing_of_the_mean():
    X, y, _, (new, _) = problem(n=1)
    model = RegretOptimalRegressorCV(None, target_scale="log").fit(X, y)
    assert not np.isfinite(model.loo_error_)
    np.testing.assert_allclose(model.predict(new), y[0])
