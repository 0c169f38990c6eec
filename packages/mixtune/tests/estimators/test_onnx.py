"""Exported models, run by onnx's own reference evaluator, against NumPy and scikit-learn."""

import sys

import numpy as np
import pytest
from scipy.special import softmax

from mixtune.errors import DataError, MissingExtraError, ParameterError
from mixtune.estimators import (
    LocalRegressor,
    RegretOptimalClassifier,
    RegretOptimalClassifierCV,
    RegretOptimalRegressorCV,
)

onnx = pytest.importorskip("onnx")
reference = pytest.importorskip("onnx.reference")

RNG = np.random.default_rng(3)
X = RNG.standard_normal((30, 5)) * [1, 2, 3, 40, 0.5] + 7
Y = (X - 7) @ RNG.standard_normal((5, 3)) + RNG.standard_normal((30, 3)) + [1.0, -2.0, 0.25]
FAR = X + 400 * RNG.standard_normal(X.shape)
DTYPES = pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-11), ("float32", 2e-3)])


def run(model, rows=X, name="features"):
    return reference.ReferenceEvaluator(model).run(None, {name: rows})


def classes_of(labels):
    """As many classes as labels, by how large the targets are."""
    labels = np.asarray(labels)
    cuts = np.quantile(Y[:, 0], np.linspace(0, 1, len(labels) + 1)[1:-1])
    return labels[np.searchsorted(cuts, Y[:, 0])]


def scores_of(model, rows):
    """One column for each of the classes."""
    scores = model.decision_function(rows)
    return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores


@pytest.mark.parametrize("opset", [13, 17, onnx.defs.onnx_opset_version()])
@pytest.mark.parametrize("outputs", [Y, Y[:, 0], Y[:, :1]], ids=["three", "one", "one column"])
@DTYPES
def test_predictions_are_those_of_numpy(outputs, dtype, tolerance, opset):
    model = LocalRegressor().fit(X, outputs)
    (found,) = run(model.to_onnx(dtype=dtype, opset=opset), X.astype(dtype))
    expected = X @ model.coef_ + model.intercept_
    assert found.dtype == dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=tolerance)


@DTYPES
@pytest.mark.parametrize("outputs", [Y, Y[:, 0]], ids=["three", "one"])
@pytest.mark.parametrize("opset", [13, 17])
def test_features_are_moved_into_their_range(outputs, dtype, tolerance, opset):
    """Where predictions stay within the range of all rows, the graph's do so too."""
    sources = {"again": (X[::-1], outputs[::-1])}
    model = RegretOptimalRegressorCV(None).fit(X, outputs, sources=sources)
    (found,) = run(model.to_onnx(dtype=dtype, opset=opset), FAR.astype(dtype))
    np.testing.assert_allclose(found, model.predict(FAR), atol=10 * tolerance)
    assert not np.allclose(found, FAR @ model.coef_ + model.intercept_, atol=1.0)
    free = RegretOptimalRegressorCV(None, clamp=False).fit(X, outputs, sources=sources)
    (found,) = run(free.to_onnx(dtype=dtype, opset=opset), FAR.astype(dtype))
    np.testing.assert_allclose(found, FAR @ free.coef_ + free.intercept_, atol=10 * tolerance)


def test_a_range_before_probabilities():
    labels = classes_of(["a", "b", "c"])
    model = RegretOptimalClassifierCV(None).fit(X, labels, sources={"again": (X[::-1], labels[::-1])})
    probabilities, labels = run(model.to_onnx(), FAR)
    np.testing.assert_allclose(probabilities, model.predict_proba(FAR), atol=1e-11)
    assert list(labels) == list(model.predict(FAR))


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_any_number_of_rows(rows):
    (found,) = run(LocalRegressor().fit(X, Y).to_onnx(), X[:rows])
    assert found.shape == (rows, 3)


def test_the_model_says_what_it_takes():
    content = LocalRegressor().fit(X, Y).to_onnx(dtype="float32", input_name="x", output_name="y")
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    (entry,) = model.graph.input
    assert entry.name == "x"
    assert entry.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert [d.dim_param or d.dim_value for d in entry.type.tensor_type.shape.dim] == ["rows", 5]
    assert [output.name for output in model.graph.output] == ["y"]
    assert model.producer_name == "mixtune"
    assert model.opset_import[0].version == 17
    assert model.ir_version == 8


def test_the_same_coefficients_give_the_same_bytes():
    model = LocalRegressor().fit(X, Y)
    content = model.to_onnx()
    model.coef_ = np.asfortranarray(model.coef_)
    assert model.to_onnx() == content


@DTYPES
@pytest.mark.parametrize("labels", [["low", "mid", "hägh"], [3, -1, 2**40], np.array(["a", "b", "c"], dtype=object)])
def test_probabilities_and_classes(dtype, tolerance, labels):
    model = RegretOptimalClassifier().fit(X, classes_of(labels))
    probabilities, found = run(model.to_onnx(dtype=dtype), X.astype(dtype))
    expected = softmax(model.sharpness_ * scores_of(model, X), axis=1)
    np.testing.assert_allclose(probabilities, expected, atol=tolerance)
    assert list(found) == list(model.classes_[np.argmax(expected, axis=1)])
    assert len(set(found)) > 1


def test_two_classes_from_one_column_of_scores():
    """As the classifiers have it: the score of the second class, and its opposite for the first."""
    model = RegretOptimalClassifier().fit(X, classes_of(["no", "yes"]))
    scores = X @ model.coef_ + model.intercept_
    probabilities, labels = run(model.to_onnx())
    expected = softmax(model.sharpness_ * np.column_stack([-scores, scores]), axis=1)
    np.testing.assert_allclose(probabilities, expected, atol=1e-12)
    assert list(labels) == list(np.where(scores > 0, "yes", "no"))


def test_large_scores_do_not_overflow():
    model = RegretOptimalClassifier().fit(X, classes_of([0, 1, 2]))
    probabilities, _ = run(model.to_onnx(), 1e6 * X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


@pytest.mark.parametrize(
    ("changes", "options", "match"),
    [
        ({"coef_": np.full((5, 3), np.nan)}, {}, "coef has NaN or infinite"),
        ({"intercept_": np.array([1.0, np.inf, 0.0])}, {}, "intercept has NaN or infinite"),
        ({"coef_": np.full((5, 3), 1e300)}, {"dtype": "float32"}, "values too large for float32"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(changes, options, match):
    model = LocalRegressor().fit(X, Y)
    for name, value in changes.items():
        setattr(model, name, value)
    with pytest.raises(DataError, match=match):
        model.to_onnx(**options)


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        (np.array([1.5, 2.0, 3.0]), "ONNX labels are text"),
        (np.array([1, 2, 2**63], dtype=np.uint64), "within int64"),
        (np.array([None, "b", "c"]), "ONNX labels are text"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, match):
    model = RegretOptimalClassifier().fit(X, classes_of(["a", "b", "c"]))
    model.classes_ = labels
    with pytest.raises(DataError, match=match):
        model.to_onnx()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"dtype": "float16"}, "dtype must be one of"),
        ({"opset": 12}, "opset=12 is not between 13"),
        ({"opset": 10**6}, "the range of this onnx"),
        ({"opset": 17.0}, "opset must be a whole number"),
        ({"input_name": "prediction"}, "must differ"),
        ({"output_name": ""}, "must differ"),
        ({"input_name": "_coef"}, "start with '_'"),
    ],
)
def test_settings_out_of_range_are_refused(options, match):
    with pytest.raises(ParameterError, match=match):
        LocalRegressor().fit(X, Y).to_onnx(**options)


def test_without_onnx(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"mixtune\[onnx\]"):
        LocalRegressor().fit(X, Y).to_onnx()
