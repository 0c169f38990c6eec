"""The exported head, run by onnx's own reference evaluator, against NumPy and scikit-learn."""

import sys

import numpy as np
import pytest
from scipy.special import softmax

from mixtune.errors import DataError, MissingExtraError, ParameterError
from mixtune.estimators import _onnx
from mixtune.estimators._onnx import linear_to_onnx

onnx = pytest.importorskip("onnx")
reference = pytest.importorskip("onnx.reference")

RNG = np.random.default_rng(3)
X = RNG.standard_normal((9, 5)) * [1, 2, 3, 40, 0.5] + 7
COEF = RNG.standard_normal((5, 3))
INTERCEPT = np.array([1.0, -2.0, 0.25])


def run(model, rows=X, name="features"):
    return reference.ReferenceEvaluator(model).run(None, {name: rows})


@pytest.mark.parametrize("opset", [13, 17, onnx.defs.onnx_opset_version()])
@pytest.mark.parametrize(("coef", "intercept"), [(COEF, INTERCEPT), (COEF[:, 0], 1.5), (COEF, 2.0), (COEF[:, :1], 1.0)])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 2e-5)])
def test_predictions_are_those_of_numpy(coef, intercept, dtype, tolerance, opset):
    model = linear_to_onnx(coef, intercept, dtype=dtype, opset=opset)
    (found,) = run(model, X.astype(dtype))
    expected = X @ coef + intercept
    assert found.dtype == dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=tolerance * 100)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 2e-5)])
@pytest.mark.parametrize("low", [None, 6.5, X.mean(axis=0) - 0.5, [-np.inf, 7.0, -np.inf, -20.0, 6.9]])
@pytest.mark.parametrize("high", [None, 7.5, X.mean(axis=0) + 0.2, [np.inf, 7.0, 8.0, np.inf, 7.1]])
@pytest.mark.parametrize("opset", [13, 17])
def test_features_are_moved_into_their_range(low, high, dtype, tolerance, opset):
    if low is not None and high is not None:
        high = np.maximum(low, high)
    (found,) = run(linear_to_onnx(COEF, INTERCEPT, low=low, high=high, dtype=dtype, opset=opset), X.astype(dtype))
    clamped = np.minimum(np.maximum(X, -np.inf if low is None else low), np.inf if high is None else high)
    assert np.any(clamped != X) == (low is not None or high is not None)
    np.testing.assert_allclose(found, clamped @ COEF + INTERCEPT, atol=tolerance * 100)


def test_a_range_before_probabilities():
    model = linear_to_onnx(COEF, low=6.0, high=8.0, classes=["a", "b", "c"])
    probabilities, labels = run(model)
    expected = softmax(np.clip(X, 6, 8) @ COEF, axis=1)
    np.testing.assert_allclose(probabilities, expected, atol=1e-13)
    assert list(labels) == list(np.array(["a", "b", "c"])[np.argmax(expected, axis=1)])


def test_a_graph_that_forgets_the_range_is_not_handed_out(monkeypatch):
    build = _onnx._graph
    for lost in ("low", "high"):

        def forget(onnx, held, *rest, lost=lost):
            return build(onnx, {name: held[name] for name in held if name != lost}, *rest)

        monkeypatch.setattr(_onnx, "_graph", forget)
        with pytest.raises(DataError, match="the exported graph and NumPy disagree"):
            linear_to_onnx(COEF, INTERCEPT, low=-300.0, high=500.0)


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_any_number_of_rows(rows):
    (found,) = run(linear_to_onnx(COEF, INTERCEPT), X[:rows])
    assert found.shape == (rows, 3)


def test_the_model_says_what_it_takes():
    model = onnx.load_from_string(linear_to_onnx(COEF, INTERCEPT, dtype="float32", input_name="x", output_name="y"))
    onnx.checker.check_model(model, full_check=True)
    (entry,) = model.graph.input
    assert entry.name == "x"
    assert entry.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert [d.dim_param or d.dim_value for d in entry.type.tensor_type.shape.dim] == ["rows", 5]
    assert [output.name for output in model.graph.output] == ["y"]
    assert model.producer_name == "mixtune"
    assert model.opset_import[0].version == 17
    assert model.ir_version == 8


def test_the_same_head_gives_the_same_bytes():
    assert linear_to_onnx(COEF, INTERCEPT) == linear_to_onnx(np.asfortranarray(COEF), list(INTERCEPT))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 2e-5)])
@pytest.mark.parametrize("labels", [["low", "mid", "hägh"], [3, -1, 2**40], np.array(["a", "b", "c"], dtype=object)])
def test_probabilities_and_classes(dtype, tolerance, labels):
    intercept = INTERCEPT - 7 * COEF.sum(axis=0)
    model = linear_to_onnx(COEF, intercept, sharpness=0.3, classes=labels, dtype=dtype)
    probabilities, found = run(model, X.astype(dtype))
    expected = softmax(0.3 * ((X - 7) @ COEF + INTERCEPT), axis=1)
    np.testing.assert_allclose(probabilities, expected, atol=tolerance)
    assert list(found) == list(np.asarray(labels)[np.argmax(expected, axis=1)])
    assert len(set(found)) > 1


def test_two_classes_from_one_column_of_scores():
    """As the classifiers have it: the score of the second class, and its opposite for the first."""
    scores = (X - 7) @ COEF[:, 0] + 0.1
    intercept = 0.1 - 7 * COEF[:, 0].sum()
    model = linear_to_onnx(COEF[:, 0], intercept, sharpness=2.0, classes=["no", "yes"])
    probabilities, labels = run(model)
    np.testing.assert_allclose(probabilities, softmax(2.0 * np.column_stack([-scores, scores]), axis=1), atol=1e-13)
    assert list(labels) == list(np.where(scores > 0, "yes", "no"))


def test_large_scores_do_not_overflow():
    probabilities, _ = run(linear_to_onnx(1e6 * COEF, classes=[0, 1, 2]))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


@pytest.mark.parametrize(
    ("arguments", "options", "match"),
    [
        ((COEF * np.nan,), {}, "coef has NaN or infinite"),
        ((COEF, [1.0, np.inf, 0.0]), {}, "intercept has NaN or infinite"),
        ((COEF * 1e300,), {"dtype": "float32"}, "values too large for float32"),
        ((COEF,), {"low": np.inf}, "low has NaN or infinite"),
        ((COEF,), {"high": [1, 1, 1, -np.inf, 1]}, "high has NaN or infinite"),
        ((COEF,), {"high": np.nan}, "high has NaN or infinite"),
        ((COEF,), {"low": 1e300, "dtype": "float32"}, "low has values too large for float32"),
        ((COEF,), {"classes": [1.5, 2.0, 3.0]}, "ONNX labels are text"),
        ((COEF,), {"classes": np.array([1, 2, 2**63], dtype=np.uint64)}, "within int64"),
        ((COEF,), {"classes": [None, "b", "c"]}, "ONNX labels are text"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(arguments, options, match):
    with pytest.raises(DataError, match=match):
        linear_to_onnx(*arguments, **options)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"dtype": "float16"}, "dtype must be one of"),
        ({"opset": 12}, "opset=12 is not between 13"),
        ({"opset": 10**6}, "the range of this onnx"),
        ({"opset": 17.0}, "opset must be a whole number"),
        ({"input_name": "label"}, "must differ"),
        ({"output_name": ""}, "must differ"),
        ({"input_name": "_coef"}, "start with '_'"),
    ],
)
def test_settings_out_of_range_are_refused(options, match):
    with pytest.raises(ParameterError, match=match):
        linear_to_onnx(COEF, **options)


def test_a_graph_that_computes_something_else_is_not_handed_out(monkeypatch):
    build = _onnx._graph
    monkeypatch.setattr(
        _onnx, "_graph", lambda onnx, held, *rest: build(onnx, {**held, "coef": held["coef"] * 1.001}, *rest)
    )
    with pytest.raises(DataError, match="the exported graph and NumPy disagree"):
        linear_to_onnx(COEF, INTERCEPT)


def test_without_onnx(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"mixtune\[onnx\]"):
        linear_to_onnx(COEF)
