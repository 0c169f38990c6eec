"""The linear model as an ONNX graph, for prediction without Python: features in, predictions or classes out.

A fitted model is a matrix product and a shift, so the graph has a handful of nodes of the standard operators. What it
computes is compared with NumPy before it is returned.
"""

from typing import Any

import numpy as np
import scipy.special

from mixtune._array import Array
from mixtune._checks import check_choice, check_whole
from mixtune._version import __version__
from mixtune.errors import DataError, MissingExtraError, ParameterError

#: The first version in which every operator used here has its present meaning.
OLDEST_OPSET = 13
#: Understood by runtimes since 2022.
DEFAULT_OPSET = 17

#: The steps of the graph in order: the constant, the operator that applies it, and the same in NumPy. Clip takes one
#: bound for all features, so Max and Min are used, which take one for each.
_STEPS = {
    "low": ("Max", np.maximum),
    "high": ("Min", np.minimum),
    "coef": ("MatMul", np.matmul),
    "intercept": ("Add", np.add),
    "sharpness": ("Mul", np.multiply),
}
#: Bounds may be infinite where a feature is free.
_FREE = {"low": -np.inf, "high": np.inf}


def linear_to_onnx(
    coef: Any,
    intercept: Any = 0.0,
    *,
    low: Any = None,
    high: Any = None,
    dtype: str = "float64",
    classes: Any = None,
    sharpness: float = 1.0,
    input_name: str = "features",
    output_name: str = "prediction",
    label_name: str = "label",
    opset: int = DEFAULT_OPSET,
) -> bytes:
    """Write ``features @ coef + intercept`` as an ONNX model, with probabilities and labels if there are classes.

    Where ``low`` or ``high`` are given, features are moved into that range first.

    Parameters
    ----------
    coef
        Of shape (p,), for predictions of shape (n,), or (p, D), for (n, D).
    intercept
        One number, or D of them.
    low, high
        The least and the largest value of each feature: p numbers each, or one; minus and plus infinity where a feature
        is free; left out of the graph if None.
    dtype
        "float64" or "float32": what the graph takes, computes in and gives. Some runtimes know only float32.
    classes
        Labels, one per class: whole numbers (booleans and floats too) or text. The outputs are then the probabilities
        ``softmax(sharpness * scores)``, shape (n, D), and the likeliest class of each row. A ``coef`` of shape (p,)
        scores the second of two classes, and its opposite the first.
    sharpness
        A positive number.
    input_name, output_name, label_name
        Names of the inputs and outputs of the graph.
    opset
        Version of the standard operators, at least 13; older runtimes need lower ones.

    Returns
    -------
    bytes
        The model, ready to be written to a file.

    Raises
    ------
    DataError
        If the numbers are not finite, or too large for float32.
    MissingExtraError
        If onnx is not installed.

    Examples
    --------
    >>> from onnx.reference import ReferenceEvaluator
    >>> model = linear_to_onnx([2.0, 1.0], 0.5)
    >>> ReferenceEvaluator(model).run(None, {"features": np.array([[1.0, 3.0]])})
    [array([5.5])]
    """
    check_choice("dtype", dtype, ("float64", "float32"))
    names = (input_name, output_name, label_name)
    if any(not isinstance(name, str) or not name or name.startswith("_") for name in names) or len(set(names)) < 3:
        raise ParameterError(f"the names {', '.join(map(repr, names))} must differ, and not be empty or start with '_'")
    try:
        import onnx
        import onnx.reference
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "exporting to ONNX") from error
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= check_whole("opset", opset) <= newest:
        raise ParameterError(
            f"opset={opset} is not between {OLDEST_OPSET} and {newest}, the range of this version of onnx"
        )
    W = np.asarray(coef, dtype=np.float64)
    b = np.broadcast_to(intercept, W.shape[1:])
    if classes is not None and W.ndim == 1:
        W, b = np.stack([-W, W], axis=1), np.stack([-b, b])
    parts = {"low": low, "high": high, "coef": W, "intercept": b, "sharpness": None if classes is None else sharpness}
    held = {name: _rounded(name, values, W, dtype) for name, values in parts.items() if values is not None}
    model = _build(onnx, held, None if classes is None else _labels(classes), names, opset)
    onnx.checker.check_model(model, full_check=True)
    content = bytes(model.SerializeToString())
    rows, expected, tolerance = _trial(held)
    found = onnx.reference.ReferenceEvaluator(content).run(None, {input_name: rows})[0]
    if found.dtype != rows.dtype or not np.allclose(found, expected, rtol=0, atol=tolerance):
        raise DataError(
            "the exported graph and NumPy give different results, so the graph is not returned; scale the features"
        )
    return content


def _labels(classes: Any) -> Array:
    labels = np.asarray(classes)
    if labels.dtype.kind in "OT" and all(isinstance(label, str) for label in labels):
        return labels.astype(object)
    if labels.dtype.kind == "b" or (labels.dtype.kind == "f" and np.array_equal(labels, np.rint(labels))):
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iuU" or (labels.dtype.kind == "u" and labels.max() > np.iinfo(np.int64).max):
        raise DataError(f"classes holds {labels.dtype}; ONNX labels are text, or whole numbers within int64")
    return labels.astype(object if labels.dtype.kind == "U" else np.int64)


def _rounded(name: str, exact: Any, coef: Array, dtype: str) -> Array:
    """Finite numbers in the precision of the graph; of bounds, one for each feature."""
    exact = np.broadcast_to(exact, coef.shape[:1]) if name in _FREE else np.asarray(exact)
    with np.errstate(over="ignore"):
        rounded = np.array(exact, dtype=dtype, order="C")
    if not np.all(np.isfinite(rounded) | (rounded == _FREE.get(name, 0.0))):
        why = "NaN or infinite values" if not np.isfinite(exact).all() else f"values too large for {dtype}"
        raise DataError(f"{name} has {why}; the model cannot be exported so")
    return rounded


def _build(onnx: Any, held: dict[str, Array], labels: Array | None, names: tuple[str, str, str], opset: int) -> Any:
    """Chain the operators: each takes the result of the one before and a constant."""
    helper, coef = onnx.helper, held["coef"]
    kind = helper.np_dtype_to_tensor_dtype(coef.dtype)
    input_name, output_name, label_name = names
    values = [input_name, *(f"_after_{name}" for name in held)]
    steps = zip(held, values, [*values[1:-1], output_name if labels is None else values[-1]])
    nodes = [helper.make_node(_STEPS[name][0], [value, f"_{name}"], [after]) for name, value, after in steps]
    constants = [onnx.numpy_helper.from_array(array, f"_{name}") for name, array in held.items()]
    outputs = [helper.make_tensor_value_info(output_name, kind, ["rows", *coef.shape[1:]])]
    if labels is not None:
        nodes.append(helper.make_node("Softmax", values[-1:], [output_name], axis=1))
        nodes.append(helper.make_node("ArgMax", values[-1:], ["_place"], axis=1, keepdims=0))
        nodes.append(helper.make_node("Gather", ["_classes", "_place"], [label_name]))
        constants.append(onnx.numpy_helper.from_array(labels, "_classes"))
        outputs.append(helper.make_tensor_value_info(label_name, constants[-1].data_type, ["rows"]))
    inputs = [helper.make_tensor_value_info(input_name, kind, ["rows", coef.shape[0]])]
    graph = helper.make_graph(nodes, "linear_head", inputs, outputs, initializer=constants)
    # The oldest file format that knows these operators; a newer one would shut out older runtimes for nothing.
    versions = [helper.make_opsetid("", opset)]
    made = {"opset_imports": versions, "ir_version": helper.find_min_ir_version_for(versions)}
    return helper.make_model(graph, producer_name="mixtune", producer_version=__version__, **made)


def _trial(held: dict[str, Array]) -> tuple[Array, Array, float]:
    """Made-up rows, what NumPy gives for them, and how far the graph may be off by rounding."""
    coef, sharpness = held["coef"], float(held.get("sharpness", 1.0))
    waves = np.sin(np.arange(4.0 * len(coef))).reshape(4, -1)
    # Some rows on both sides of each bound, so that they are as large as what the bounds let through.
    near = [np.where(np.isfinite(held[name]), held[name], 0.0) for name in _FREE if name in held]
    rows = np.concatenate([waves, *(bound + np.maximum(np.abs(bound), 1.0) * waves for bound in near)])
    rows = value = rows.astype(coef.dtype)
    for name, constant in held.items():
        value = _STEPS[name][1](value, constant)
    if "sharpness" in held:
        value = scipy.special.softmax(value, axis=1)
    size = max(1.0, sharpness) * np.max((np.abs(rows) + 1.0) @ np.abs(coef)) + np.max(np.abs(value))
    return rows, value, float(1e3 * np.finfo(coef.dtype).eps * size)
