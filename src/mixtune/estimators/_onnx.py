"""The linear model as an ONNX graph, for prediction without Python: features in, predictions or classes out.

A fitted model is a matrix product and a shift, so the graph has a handful of nodes of the standard operators. What it
computes is compared with NumPy before it is returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special

from mixtune._checks import check_choice, check_positive, check_whole
from mixtune._version import __version__
from mixtune.errors import DataError, MissingExtraError, ParameterError

Numbers = np.ndarray[Any, Any]

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
    softmax: bool = False,
    sharpness: float = 1.0,
    classes: Sequence[Any] | None = None,
    input_name: str = "features",
    output_name: str = "prediction",
    label_name: str = "label",
    opset: int = DEFAULT_OPSET,
) -> bytes:
    """Write ``features @ coef + intercept`` as an ONNX model, with a softmax on top if wanted.

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
    softmax
        Give the probabilities ``softmax(sharpness * scores)``, shape (n, D), instead of the scores. A ``coef``
        of shape (p,) then scores the second of two classes, and its opposite the first.
    sharpness
        A positive number, for ``softmax`` only.
    classes
        Whole numbers or text, one per class: adds a second output, the likeliest class of each row. For ``softmax``
        only.
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
        If the numbers do not fit together, are not finite, or too large for float32.
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
    if not softmax and (classes is not None or sharpness != 1.0):
        raise ParameterError("sharpness and classes are for probabilities; pass softmax=True too")
    try:
        import onnx
        import onnx.reference
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "exporting to ONNX") from error
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= check_whole("opset", opset) <= newest:
        raise ParameterError(f"opset={opset} is not between {OLDEST_OPSET} and {newest}, what this onnx knows")
    W = _numbers("coef", coef, None, dtype)
    if W.ndim not in (1, 2) or 0 in W.shape:
        raise DataError(f"coef has shape {W.shape}; pass (features,) or (features, outputs)")
    b = _numbers("intercept", intercept, W.shape[1:], dtype)
    if softmax and W.ndim == 1:
        W, b = np.stack([-W, W], axis=1), np.stack([-b, b])
    if softmax and W.shape[1] < 2:
        raise DataError("coef has one column; probabilities need one per class, or coef of shape (features,) for two")
    bounds = {"low": low, "high": high}
    held = {name: _numbers(name, value, W.shape[:1], dtype) for name, value in bounds.items() if value is not None}
    if np.any(held.get("low", -np.inf) > held.get("high", np.inf)):
        raise DataError("low is above high for some features; pass bounds in order")
    held |= {"coef": W, "intercept": b}
    if softmax:
        held["sharpness"] = _numbers("sharpness", check_positive("sharpness", sharpness), (), dtype)
    model = _build(onnx, held, None if classes is None else _labels(classes, W.shape[1]), names, opset)
    onnx.checker.check_model(model, full_check=True)
    content = bytes(model.SerializeToString())
    rows, expected, tolerance = _trial(held)
    found = onnx.reference.ReferenceEvaluator(content).run(None, {input_name: rows})[0]
    if found.dtype != rows.dtype or not np.allclose(found, expected, rtol=0, atol=tolerance):
        raise DataError("the exported graph does not give what NumPy gives, so it is not returned; scale the features")
    return content


def _labels(classes: Sequence[Any], count: int) -> Numbers:
    labels = np.asarray(classes)
    if labels.shape != (count,):
        raise DataError(f"classes has shape {labels.shape}, the model scores {count} classes; pass one label for each")
    if labels.dtype.kind in "OT" and all(isinstance(label, str) for label in labels):
        labels = labels.astype(str)
    if labels.dtype.kind not in "iuU":
        raise DataError(f"classes holds {labels.dtype}; ONNX labels are whole numbers or text")
    if labels.dtype.kind == "u" and labels.max() > np.iinfo(np.int64).max:
        raise DataError("classes holds whole numbers beyond int64, the labels of ONNX; pass text")
    return labels.astype(object if labels.dtype.kind == "U" else np.int64)


def _numbers(name: str, values: Any, shape: tuple[int, ...] | None, dtype: str) -> Numbers:
    """Read finite numbers of a shape, or one number for all, in the precision of the graph."""
    exact = np.asarray(values, dtype=np.float64)
    if shape is not None and exact.shape not in ((), shape):
        raise DataError(f"{name} has shape {exact.shape}; pass one number{f' or shape {shape}' if shape else ''}")
    with np.errstate(over="ignore"):
        rounded = exact.astype(dtype)
    if not np.all(np.isfinite(rounded) | (rounded == _FREE.get(name, 0.0))):
        why = "NaN or infinite values" if not np.isfinite(exact).all() else f"values too large for {dtype}"
        raise DataError(f"{name} has {why}; the model cannot be exported so")
    return rounded if shape is None else np.ascontiguousarray(np.broadcast_to(rounded, shape)).reshape(shape)


def _build(onnx: Any, held: dict[str, Numbers], labels: Numbers | None, names: tuple[str, str, str], opset: int) -> Any:
    """Chain the operators: each takes the result of the one before and a constant."""
    helper = onnx.helper
    input_name, output_name, label_name = names
    nodes, value = [], input_name
    for name in held:
        nodes.append(helper.make_node(_STEPS[name][0], [value, f"_{name}"], [f"_after_{name}"]))
        value = f"_after_{name}"
    if "sharpness" in held:
        nodes.append(helper.make_node("Softmax", [value], [output_name], axis=1))
    else:
        nodes[-1].output[0] = output_name
    constants = [onnx.numpy_helper.from_array(array, f"_{name}") for name, array in held.items()]
    coef = held["coef"]
    kind = helper.np_dtype_to_tensor_dtype(coef.dtype)
    outputs = [helper.make_tensor_value_info(output_name, kind, ["rows", *coef.shape[1:]])]
    if labels is not None:
        nodes.append(helper.make_node("ArgMax", [value], ["_place"], axis=1, keepdims=0))
        nodes.append(helper.make_node("Gather", ["_classes", "_place"], [label_name]))
        constants.append(onnx.numpy_helper.from_array(labels, "_classes"))
        outputs.append(helper.make_tensor_value_info(label_name, constants[-1].data_type, ["rows"]))
    inputs = [helper.make_tensor_value_info(input_name, kind, ["rows", coef.shape[0]])]
    graph = helper.make_graph(nodes, "linear_head", inputs, outputs, initializer=constants)
    # The oldest file format that knows these operators; a newer one would shut out older runtimes for nothing.
    versions = [helper.make_opsetid("", opset)]
    made = {"opset_imports": versions, "ir_version": helper.find_min_ir_version_for(versions)}
    return helper.make_model(graph, producer_name="mixtune", producer_version=__version__, **made)


def _trial(held: dict[str, Numbers]) -> tuple[Numbers, Numbers, float]:
    """Made-up rows, what NumPy gives for them, and how far the graph may be off by rounding."""
    coef = held["coef"]
    waves = np.sin(np.arange(4.0 * len(coef))).reshape(4, -1)
    rows = [waves]
    # Some on both sides of each bound.
    for bound in (held[name] for name in _FREE if name in held):
        near = np.where(np.isfinite(bound), bound, 0.0)
        rows.append(near + np.maximum(np.abs(near), 1.0) * waves)
    trial = value = np.concatenate(rows).astype(coef.dtype)
    size = 0.0
    for name, constant in held.items():
        if name == "coef":
            size = float(np.max(np.abs(value) @ np.abs(coef)) + np.max(np.sum(np.abs(coef), axis=0)))
        value = _STEPS[name][1](value, constant)
    if "sharpness" in held:
        size *= max(1.0, float(held["sharpness"]))
        value = scipy.special.softmax(value, axis=1)
    return trial, value, float(1e3 * np.finfo(coef.dtype).eps * (size + np.max(np.abs(value))))
