"""The random layer: values by hand, laws of the draws, both precisions, both array libraries, memory."""

import copy
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extras import extra
from mixtune.errors import DataError, ParameterError
from mixtune.features import FeatureMap, RandomFeatures

torch = extra("torch")

X = np.random.default_rng(5).standard_normal((40, 3))
ACTIVATIONS = {
    "relu": lambda Z: np.maximum(Z, 0),
    "leaky_relu": lambda Z: np.where(Z > 0, Z, 0.01 * Z),
    "tanh": np.tanh,
    "cos": np.cos,
}


def layer(**options):
    return RandomFeatures(**({"n_inputs": 3, "width": 7, "seed": 0} | options))


def test_the_map_of_the_paper_to_the_last_digit():
    features = layer(width=300, activation="leaky_relu", slope=0.01, seed=11)
    rng = np.random.default_rng(11)
    weights, bias = rng.standard_normal((3, 300)), rng.standard_normal(300)
    np.testing.assert_array_equal(features.weights, weights)
    np.testing.assert_array_equal(features.bias, bias)
    Z = X @ weights + bias
    expected = np.hstack([np.where(Z > 0, Z, 0.01 * Z), np.ones((40, 1))])
    assert features.n_features_out == 301
    np.testing.assert_array_equal(features.transform(X), expected)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_with_every_option(activation):
    shift, scale = np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.0, 2.0])
    features = layer(activation=activation, input_shift=shift, input_scale=scale, normalise=True, constant=False)
    Z = ((X - shift) / scale) @ features.weights + features.bias
    np.testing.assert_allclose(features.transform(X), ACTIVATIONS[activation](Z) / np.sqrt(7), rtol=1e-13, atol=1e-14)


def test_values_by_hand():
    # No randomness is left: weights are switched off, so every hidden unit is the activation of its bias.
    features = layer(weight_scale=0.0, bias_scale=0.0, activation="cos", normalise=True)
    np.testing.assert_allclose(features.transform(X[:1]), [[np.sqrt(1 / 7)] * 7 + [1.0]])
    one = RandomFeatures(n_inputs=1, width=1, bias_scale=0.0, input_shift=2.0, input_scale=4.0, seed=3)
    up = abs(one.weights[0, 0])
    assert max(one.transform([[6.0]])[0, 0], one.transform([[-2.0]])[0, 0]) == up
    assert min(one.transform([[6.0]])[0, 0], one.transform([[-2.0]])[0, 0]) == 0.0


@given(st.integers(0, 2**31), st.integers(1, 20), st.sampled_from(["normal", "uniform"]))
def test_the_seed_decides(seed, width, law):
    def make(seed):
        return layer(width=width, weight_law=law, bias_law=law, seed=seed)

    np.testing.assert_array_equal(make(seed).transform(X), make(seed).transform(X))
    assert not np.array_equal(make(seed).weights, make(seed + 1).weights)


def test_laws_and_scales():
    wide = layer(width=20_000, weight_law="uniform", weight_scale=2.0, bias_law="normal", bias_scale=3.0)
    assert -2 <= wide.weights.min() < -1.99
    assert 1.99 < wide.weights.max() <= 2
    assert wide.bias.std() == pytest.approx(3.0, rel=0.02)
    np.testing.assert_array_equal(layer(weight_scale=2.0).weights, 2 * layer().weights)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_single_precision_is_the_rounding_of_double(activation):
    single, double = (layer(activation=activation, dtype=dtype) for dtype in ("float32", "float64"))
    np.testing.assert_array_equal(single.weights, double.weights.astype(np.float32))
    U = single.transform(X)
    assert U.dtype == np.float32
    assert single.transform(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(U, double.transform(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_tensors_in_tensors_out(activation, dtype):
    features = layer(activation=activation, dtype=dtype, input_shift=[1, 2, 3], normalise=True)
    U = features.transform(torch.tensor(X, requires_grad=True))
    assert U.dtype == getattr(torch, dtype)
    assert not U.requires_grad
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(U.numpy(), features.transform(X), rtol=tolerance, atol=tolerance)


def test_fourier_features_approximate_the_gaussian_kernel():
    features = RandomFeatures.fourier(n_inputs=3, width=20_000, length_scale=1.5, seed=0)
    U = features.transform(X)
    squares = ((X[:, None] - X[None]) ** 2).sum(-1)
    np.testing.assert_allclose(U @ U.T, np.exp(-squares / (2 * 1.5**2)), atol=0.04)
    assert features.n_features_out == 20_000
    scales = np.array([1.0, 2.0, 4.0])
    U = RandomFeatures.fourier(n_inputs=3, width=20_000, length_scale=scales, seed=0).transform(X)
    squares = (((X[:, None] - X[None]) / scales) ** 2).sum(-1)
    np.testing.assert_allclose(U @ U.T, np.exp(-squares / 2), atol=0.04)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_memory_is_that_of_the_features(activation):
    rows = np.ones((30_000, 3))
    features = layer(width=300, activation=activation)
    features.transform(rows[:10])
    tracemalloc.start()
    U = features.transform(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.15 * U.nbytes


def test_blocks_do_not_show():
    features = layer(width=300)
    rows = np.random.default_rng(0).standard_normal((2000, 3))
    parts = [features.transform(rows[start : start + 7]) for start in range(0, 2000, 7)]
    np.testing.assert_allclose(features.transform(rows), np.vstack(parts), rtol=1e-12, atol=1e-13)
    assert features.transform(rows[:0]).shape == (0, 301)


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_products_are_those_of_the_features(outputs):
    features, rng = layer(width=300), np.random.default_rng(0)
    rows, coef = rng.standard_normal((500, 3)), rng.standard_normal((301, *outputs))
    np.testing.assert_allclose(features.products(rows, coef), features.transform(rows) @ coef, rtol=1e-12, atol=1e-11)
    assert features.products(rows[:0], coef).shape == (0, *outputs)


@pytest.mark.parametrize("options", [{"activation": "leaky_relu"}, {"normalise": True, "output_scale": 2.0}])
def test_factors_multiply_to_the_features(options):
    features, rng = layer(width=300, **options), np.random.default_rng(0)
    rows = 100.0 + 5.0 * rng.standard_normal((2000, 3))
    R, T = features.factored(rows)
    np.testing.assert_allclose(R @ T, features.transform(rows), rtol=1e-12, atol=1e-11)
    units = features.transform(rows)[:, :300]
    bent = np.sum((units.min(axis=0) <= 0) & (units.max(axis=0) > 0)) if "activation" not in options else None
    assert R.shape[1] < 100
    assert bent is None or R.shape[1] == 4 + bent


def test_no_factors_where_they_save_nothing():
    rows = np.random.default_rng(0).standard_normal((500, 3))
    assert layer(width=300).factored(rows) is None
    assert layer(width=300, activation="tanh").factored(rows + 100.0) is None
    assert layer(width=300, dtype="float32").factored(rows + 100.0) is None


def test_arrays_are_frozen_in_the_map_and_in_its_copies():
    shift = np.zeros(3)
    features = layer(input_shift=shift)
    before = features.transform(X)
    shift[:] = 7
    features.transform(torch.tensor(X))
    for twin in (features, copy.copy(features), copy.deepcopy(features)):
        np.testing.assert_array_equal(twin.transform(X), before)
        for name in ("weights", "bias", "input_shift", "input_scale"):
            assert not getattr(twin, name).flags.writeable
    with pytest.raises(AttributeError):
        features.seed = 1
    assert isinstance(features, FeatureMap)


@pytest.mark.parametrize(
    "options",
    [
        {"width": 0},
        {"width": 2.0},
        {"width": True},
        {"n_inputs": -1},
        {"activation": "gelu"},
        {"weight_law": "cauchy"},
        {"bias_law": "cauchy"},
        {"weight_scale": -1.0},
        {"bias_scale": np.nan},
        {"slope": 1.5},
        {"input_scale": 0.0},
        {"input_scale": [1, 1, -1]},
        {"input_shift": [1, 2]},
        {"input_shift": np.inf},
        {"dtype": "float16"},
        {"seed": -1},
        {"seed": None},
    ],
    ids=str,
)
def test_options_out_of_range(options):
    with pytest.raises(ParameterError, match=next(iter(options))):
        layer(**options)


def test_the_seed_must_be_given():
    with pytest.raises(TypeError, match="seed"):
        RandomFeatures(n_inputs=3, width=7)


@pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["numpy", "torch"])
def test_bad_rows(make):
    features = layer()
    double = torch.float64 if make is torch.tensor else np.float64
    with pytest.raises(DataError, match="the map takes 3 columns, X has 4"):
        features.transform(make([[1.0, 2.0, 3.0, 4.0]]))
    with pytest.raises(DataError, match=r"X has shape \(3,\)"):
        features.transform(make([1.0, 2.0, 3.0]))
    with pytest.raises(DataError, match="real numbers"):
        features.transform(make([[1j, 2j, 3j]]))
    with pytest.raises(DataError, match="infinite values in X: at least 1 row, the first is row 1"):
        layer(activation="tanh").transform(make([[1.0, 2.0, 3.0], [1.0, np.inf, 3.0]]))
    with pytest.raises(DataError, match="infinite values in the features"):
        layer(weight_scale=1e10).transform(make([[1e300, 1e300, 1e300]], dtype=double))
    with pytest.raises(DataError, match="infinite values in X"):
        layer(dtype="float32").transform(make([[1e300, 1e300, 1e300]], dtype=double))


@pytest.mark.parametrize("rows", [[["a", "b", "c"]], [[1, None, 2]]])
def test_text_is_refused(rows):
    with pytest.raises(DataError, match="not real numbers"):
        layer().transform(rows)


def test_the_row_number_counts_across_blocks():
    rows = np.ones((5000, 3))
    rows[4321] = np.nan
    with pytest.raises(DataError, match="the first is row 4321"):
        layer(width=300).transform(rows)
