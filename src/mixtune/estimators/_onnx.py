"""The linear model as an ONNX graph, for prediction without Python: features in, predictions or classes out.

A fitted model is a matrix product and a shift, so the graph has a handful of nodes of the standard operators. What it
computes is compared with NumPy before it is returned.
"""

from collections.abc import Sequence
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
    names = (input_name, output_name, label_name)
    onnx = _checked_onnx(dtype, names, opset)
    W = np.asarray(coef, dtype=np.float64)
    b = np.broadcast_to(intercept, W.shape[1:])
    if classes is not None and W.ndim == 1:
        W, b = np.stack([-W, W], axis=1), np.stack([-b, b])
    parts = {"low": low, "high": high, "coef": W, "intercept": b, "sharpness": None if classes is None else sharpness}
    held = {name: _rounded(name, values, W, dtype) for name, values in parts.items() if values is not None}
    content = _written(onnx, _graph(onnx, held, None if classes is None else _labels(classes), names), opset)
    rows, expected, tolerance = _trial(held)
    found = onnx.reference.ReferenceEvaluator(content).run(None, {input_name: rows})[0]
    if found.dtype != rows.dtype or not np.allclose(found, expected, rtol=0, atol=tolerance):
        raise DataError("the exported graph and NumPy disagree, so it is not returned; scale the features")
    return content


def domains_to_onnx(
    coef: Any,
    intercept: Any,
    domains: Sequence[str],
    *,
    low: Any = None,
    high: Any = None,
    dtype: str = "float64",
    classes: Any = None,
    sharpness: Any = None,
    input_name: str = "features",
    domain_name: str = "domain",
    output_name: str = "prediction",
    label_name: str = "label",
    opset: int = DEFAULT_OPSET,
) -> bytes:
    """Write models for every domain as one ONNX model, whose second input is the name of each row's domain.

    The other options are those of :func:`linear_to_onnx`.

    Parameters
    ----------
    coef
        Of shape (N + 1, p), or (N + 1, p, D) for the scores of D classes; the last is that of all other domains.
    intercept
        Of shape (N + 1,) or (N + 1, D).
    domains
        The N names.
    sharpness
        Of shape (N + 1,), with classes.

    Examples
    --------
    >>> from onnx.reference import ReferenceEvaluator
    >>> model = domains_to_onnx([[2.0], [3.0], [2.5]], [0.0, 1.0, 0.5], ["a", "b"])
    >>> rows = {"features": np.array([[1.0], [1.0], [1.0]]), "domain": np.array(["a", "b", "new"])}
    >>> ReferenceEvaluator(model).run(None, rows)
    [array([2., 4., 3.])]
    """
    names = (input_name, output_name, label_name, domain_name)
    onnx = _checked_onnx(dtype, names, opset)
    helper, exact = onnx.helper, np.asarray(coef, dtype=np.float64)
    W = exact.reshape(len(exact), exact.shape[1], -1)
    first = W[:, :, 0].T  # bounds have one number for each feature
    parts = {"low": low, "high": high, "coef": W, "intercept": np.reshape(intercept, (len(W), 1, -1))}
    parts["sharpness"] = None if classes is None else np.reshape(sharpness, (-1, 1))
    held = {name: _rounded(name, values, first, dtype) for name, values in parts.items() if values is not None}
    held["wide"] = np.array([1], dtype=np.int64)
    kind = helper.np_dtype_to_tensor_dtype(held["coef"].dtype)
    encoded = {"keys_strings": list(domains), "values_int64s": list(range(len(domains))), "default_int64": len(domains)}
    nodes = [helper.make_node("LabelEncoder", [domain_name], ["_place"], domain="ai.onnx.ml", **encoded)]
    nodes += [
        helper.make_node("Gather", [f"_{name}", "_place"], [f"_own_{name}"], axis=0)
        for name in ("coef", "intercept", "sharpness")
        if name in held
    ]
    value = input_name
    for name in ("low", "high"):
        if name in held:
            nodes.append(helper.make_node(_STEPS[name][0], [value, f"_{name}"], [f"_after_{name}"]))
            value = f"_after_{name}"
    nodes.append(helper.make_node("Unsqueeze", [value, "_wide"], ["_rows"]))
    nodes.append(helper.make_node("MatMul", ["_rows", "_own_coef"], ["_product"]))
    nodes.append(helper.make_node("Add", ["_product", "_own_intercept"], ["_moved"]))
    nodes.append(helper.make_node("Squeeze", ["_moved", "_wide"], ["_scores"]))
    constants = [onnx.numpy_helper.from_array(array, f"_{name}") for name, array in held.items()]
    if classes is None:
        nodes.append(helper.make_node("Squeeze", ["_scores", "_wide"], [output_name]))
        outputs = [helper.make_tensor_value_info(output_name, kind, ["rows"])]
    else:
        nodes.append(helper.make_node("Mul", ["_scores", "_own_sharpness"], ["_sharp"]))
        more, outputs = _class_nodes(onnx, "_sharp", _labels(classes), kind, (output_name, label_name), constants)
        nodes += more
    inputs = [
        helper.make_tensor_value_info(input_name, kind, ["rows", W.shape[1]]),
        helper.make_tensor_value_info(domain_name, onnx.TensorProto.STRING, ["rows"]),
    ]
    graph = helper.make_graph(nodes, "linear_heads", inputs, outputs, initializer=constants)
    content = _written(onnx, graph, opset, ml=True)
    rows, places, expected, tolerance = _domain_trial(held)
    given = {input_name: rows, domain_name: np.array([*domains, "no domain of the model"], dtype=object)[places]}
    found = onnx.reference.ReferenceEvaluator(content).run(None, given)[0]
    if found.dtype != rows.dtype or not np.allclose(found, expected, rtol=0, atol=tolerance):
        raise DataError("the exported graph and NumPy disagree, so it is not returned; scale the features")
    return content


def _domain_trial(held: dict[str, Array]) -> tuple[Array, Array, Array, float]:
    """Made-up rows and their domains, what NumPy gives for them, and how far the graph may be off by rounding."""
    coef, intercept = held["coef"], held["intercept"]
    places = np.unique(np.linspace(0, len(coef) - 1, min(len(coef), 50)).astype(np.int64))
    middle = sum(np.where(np.isfinite(held[name]), held[name], 0.0) / 2 for name in _FREE if name in held)
    rows = (middle + np.sin(np.arange(len(places) * coef.shape[1])).reshape(len(places), -1)).astype(coef.dtype)
    inside = rows
    for name in _FREE:
        inside = _STEPS[name][1](inside, held[name]) if name in held else inside
    value = np.matmul(inside[:, None], coef[places])[:, 0] + intercept[places, 0]
    size = np.max(np.matmul(np.abs(inside[:, None]) + 1.0, np.abs(coef[places]))) + np.max(np.abs(value))
    if "sharpness" in held:
        size *= max(1.0, float(held["sharpness"].max()))
        value = scipy.special.softmax(held["sharpness"][places] * value, axis=1)
    else:
        value = value[:, 0]
    return rows, places, value, float(1e3 * np.finfo(coef.dtype).eps * size)


def _checked_onnx(dtype: str, names: Sequence[str], opset: int) -> Any:
    """The package, after the options were checked."""
    check_choice("dtype", dtype, ("float64", "float32"))
    wrong = any(not isinstance(name, str) or not name or name.startswith("_") for name in names)
    if wrong or len(set(names)) < len(names):
        raise ParameterError(f"the names {', '.join(map(repr, names))} must differ, and not be empty or start with '_'")
    try:
        import onnx
        import onnx.reference
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "exporting to ONNX") from error
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= check_whole("opset", opset) <= newest:
        raise ParameterError(f"opset={opset} is not between {OLDEST_OPSET} and {newest}, the range of this onnx")
    return onnx


def _class_nodes(
    onnx: Any, scores: str, labels: Array, kind: int, names: tuple[str, str], constants: list[Any]
) -> tuple[list[Any], list[Any]]:
    """From scores to probabilities and labels: nodes and outputs; adds the classes to the constants."""
    helper, (output_name, label_name) = onnx.helper, names
    nodes = [
        helper.make_node("Softmax", [scores], [output_name], axis=1),
        helper.make_node("ArgMax", [scores], ["_class"], axis=1, keepdims=0),
        helper.make_node("Gather", ["_classes", "_class"], [label_name]),
    ]
    constants.append(onnx.numpy_helper.from_array(labels, "_classes"))
    return nodes, [
        helper.make_tensor_value_info(output_name, kind, ["rows", len(labels)]),
        helper.make_tensor_value_info(label_name, constants[-1].data_type, ["rows"]),
    ]


def _written(onnx: Any, graph: Any, opset: int, *, ml: bool = False) -> bytes:
    """The checked model with this graph; ``ml`` where it has operators for classical models."""
    helper = onnx.helper
    # The oldest file format that knows these operators; a newer one would shut out older runtimes for nothing.
    versions = [helper.make_opsetid("", opset), *([helper.make_opsetid("ai.onnx.ml", 2)] if ml else [])]
    made = {"opset_imports": versions, "ir_version": helper.find_min_ir_version_for(versions)}
    model = helper.make_model(graph, producer_name="mixtune", producer_version=__version__, **made)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


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


def _graph(onnx: Any, held: dict[str, Array], labels: Array | None, names: tuple[str, str, str]) -> Any:
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
        more, outputs = _class_nodes(onnx, values[-1], labels, kind, (output_name, label_name), constants)
        nodes += more
    inputs = [helper.make_tensor_value_info(input_name, kind, ["rows", coef.shape[0]])]
    return helper.make_graph(nodes, "linear_head", inputs, outputs, initializer=constants)


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
