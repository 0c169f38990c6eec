"""The linear head as an ONNX graph, for prediction where there is no Python: features in, predictions or classes out.

At the very end of the data's way: a fitted head is a matrix product and a shift, so the graph has a handful of nodes of
the standard operators, and what it computes is compared with NumPy before it is handed out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mixtune._checks import check_choice, check_positive, check_whole
from mixtune._version import __version__
from mixtune.errors import DataError, MissingExtraError, ParameterError

__all__ = ["linear_to_onnx"]

Floats = np.ndarray[Any, np.dtype[Any]]

#: The first version in which every operator used here has its present meaning.
OLDEST_OPSET = 13
#: Understood by runtimes since 2022.
DEFAULT_OPSET = 17


class _Head(NamedTuple):
    """What the graph holds, all of it in the precision of the graph."""

    coef: Floats
    intercept: Floats
    low: Floats | None
    high: Floats | None
    shift: Floats | None
    scale: Floats | None
    sharpness: Floats | None
    bias: Floats | None
    classes: Floats | None


def linear_to_onnx(
    coef: Any,
    intercept: Any = 0.0,
    *,
    low: Any = None,
    high: Any = None,
    shift: Any = None,
    scale: Any = None,
    dtype: str = "float64",
    softmax: bool = False,
    sharpness: float = 1.0,
    bias: Any = 0.0,
    classes: Sequence[Any] | None = None,
    input_name: str = "features",
    output_name: str = "prediction",
    label_name: str = "label",
    opset: int = DEFAULT_OPSET,
) -> bytes:
    """Write ``((features - shift) / scale) @ coef + intercept`` as an ONNX model, with a softmax on top if wanted.

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
    shift, scale
        Subtracted from the features and dividing them: p numbers each, or one; left out of the graph if None.
    dtype
        "float64" or "float32": what the graph takes, computes in and gives. Some runtimes know only float32.
    softmax
        Give the probabilities ``softmax(sharpness * scores + bias)``, shape (n, D), instead of the scores. A ``coef``
        of shape (p,) then scores the second of two classes, and its opposite the first.
    sharpness, bias
        One positive number; one number, or one per class. For ``softmax`` only.
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
    if not softmax and (classes is not None or sharpness != 1.0 or np.any(np.asarray(bias) != 0)):
        raise ParameterError("sharpness, bias and classes are for probabilities; pass softmax=True too")
    head = _read_head(coef, intercept, shift, scale, dtype)
    least, most = _read_range(low, high, head.coef.shape[:1], dtype)
    head = head._replace(low=least, high=most)
    if softmax:
        head = _add_softmax(head, check_positive("sharpness", sharpness), bias, classes)
    onnx = _import_onnx()
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= check_whole("opset", opset) <= newest:
        raise ParameterError(
            f"opset={opset} is not between {OLDEST_OPSET} and {newest}, which the installed onnx knows"
        )
    model = _build(onnx, head, names, opset)
    onnx.checker.check_model(model, full_check=True)
    content = bytes(model.SerializeToString())
    _compare(content, head, input_name)
    return content


def _import_onnx() -> Any:
    try:
        import onnx
        import onnx.reference
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "exporting to ONNX") from error
    return onnx


def _read_head(coef: Any, intercept: Any, shift: Any, scale: Any, dtype: str) -> _Head:
    W = _numbers("coef", coef, None, dtype)
    if W.ndim not in (1, 2) or 0 in W.shape:
        raise DataError(f"coef has shape {W.shape}; pass (features,) or (features, outputs)")
    columns = W.shape[:1]
    b = _numbers("intercept", intercept, W.shape[1:], dtype)
    move = None if shift is None else _numbers("shift", shift, columns, dtype)
    divide = None if scale is None else _numbers("scale", scale, columns, dtype)
    if divide is not None and not (divide > 0).all():
        raise DataError("scale must be positive; use 1 for columns that are not scaled")
    return _Head(W, b, None, None, move, divide, None, None, None)


def _read_range(low: Any, high: Any, columns: tuple[int, ...], dtype: str) -> tuple[Floats | None, Floats | None]:
    """Read the bounds of the features; unlike other numbers they may be infinite, away from the features."""
    least = None if low is None else _numbers("low", low, columns, dtype, free=-np.inf)
    most = None if high is None else _numbers("high", high, columns, dtype, free=np.inf)
    if least is not None and most is not None and not (least <= most).all():
        raise DataError("low is above high for some features; pass bounds in order")
    return least, most


def _add_softmax(head: _Head, sharpness: float, bias: Any, classes: Sequence[Any] | None) -> _Head:
    if head.coef.ndim == 1:
        columns = np.stack([-head.coef, head.coef], axis=1)
        head = head._replace(coef=columns, intercept=np.stack([-head.intercept, head.intercept]))
    count = head.coef.shape[1]
    if count < 2:
        raise DataError("coef has one column; probabilities need one per class, or coef of shape (features,) for two")
    dtype = head.coef.dtype.name
    labels = None if classes is None else _labels(classes, count)
    sharp = _numbers("sharpness", sharpness, (), dtype)
    return head._replace(sharpness=sharp, bias=_numbers("bias", bias, (count,), dtype), classes=labels)


def _labels(classes: Sequence[Any], count: int) -> Floats:
    labels = np.asarray(classes)
    if labels.shape != (count,):
        raise DataError(f"classes has shape {labels.shape}, the head scores {count} classes; pass one label for each")
    if labels.dtype.kind in "OT" and all(isinstance(label, str) for label in labels):
        labels = labels.astype(str)
    if labels.dtype.kind not in "iuU":
        raise DataError(f"classes holds {labels.dtype}; ONNX labels are whole numbers or text")
    if labels.dtype.kind == "u" and labels.max() > np.iinfo(np.int64).max:
        raise DataError("classes holds whole numbers beyond int64, the labels of ONNX; pass text")
    return labels.astype(object) if labels.dtype.kind == "U" else labels.astype(np.int64)


def _numbers(name: str, values: Any, shape: tuple[int, ...] | None, dtype: str, *, free: float | None = None) -> Floats:
    """Read finite numbers of a shape, or one number for all, in the precision of the graph; ``free`` is allowed too."""
    try:
        exact = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be numbers; got {values!r}") from error
    if shape is not None and exact.shape not in ((), shape):
        raise DataError(f"{name} has shape {exact.shape}; pass one number{f' or shape {shape}' if shape else ''}")
    with np.errstate(over="ignore"):
        rounded = exact.astype(dtype)
    usable = np.isfinite(rounded) if free is None else np.isfinite(rounded) | (rounded == free)
    if not usable.all():
        why = "NaN or infinite values" if not np.isfinite(exact).all() else f"values too large for {dtype}"
        raise DataError(f"{name} has {why}; the head cannot be exported so")
    return rounded if shape is None else np.ascontiguousarray(np.broadcast_to(rounded, shape)).reshape(shape)


def _build(onnx: Any, head: _Head, names: tuple[str, str, str], opset: int) -> Any:
    """Chain the operators: each takes what the one before gives, and one constant."""
    helper = onnx.helper
    input_name, output_name, label_name = names
    # Clip takes one bound for all features, Max and Min take one for each.
    steps = [("Max", "low"), ("Min", "high"), ("Sub", "shift"), ("Div", "scale")]
    steps += [("MatMul", "coef"), ("Add", "intercept"), ("Mul", "sharpness"), ("Add", "bias")]
    held = [(operator, name) for operator, name in steps if getattr(head, name) is not None]
    nodes, value = [], input_name
    for operator, name in held:
        last = name == held[-1][1] and head.sharpness is None
        nodes.append(helper.make_node(operator, [value, f"_{name}"], [output_name if last else f"_after_{name}"]))
        value = nodes[-1].output[0]
    constants = [onnx.numpy_helper.from_array(getattr(head, name), f"_{name}") for _, name in held]
    if head.sharpness is not None:
        nodes.append(helper.make_node("Softmax", [value], [output_name], axis=1))
    kind = helper.np_dtype_to_tensor_dtype(head.coef.dtype)
    rows = ["rows", *head.coef.shape[1:]]
    outputs = [helper.make_tensor_value_info(output_name, kind, rows)]
    if head.classes is not None:
        nodes.append(helper.make_node("ArgMax", [value], ["_place"], axis=1, keepdims=0))
        nodes.append(helper.make_node("Gather", ["_classes", "_place"], [label_name]))
        constants.append(onnx.numpy_helper.from_array(head.classes, "_classes"))
        outputs.append(helper.make_tensor_value_info(label_name, constants[-1].data_type, ["rows"]))
    inputs = [helper.make_tensor_value_info(input_name, kind, ["rows", head.coef.shape[0]])]
    graph = helper.make_graph(nodes, "linear_head", inputs, outputs, initializer=constants)
    versions = [helper.make_opsetid("", opset)]
    # The newest file format would shut out older runtimes for nothing.
    oldest = helper.find_min_ir_version_for(versions)
    return helper.make_model(
        graph, opset_imports=versions, ir_version=oldest, producer_name="mixtune", producer_version=__version__
    )


def _compare(content: bytes, head: _Head, input_name: str) -> None:
    """Run the graph on a few rows and compare with NumPy."""
    rows = _trial_rows(head)
    expected = _scores(head, rows)
    if head.sharpness is not None:
        expected = np.exp(expected - expected.max(axis=1, keepdims=True))
        expected /= expected.sum(axis=1, keepdims=True)
    found = _import_onnx().reference.ReferenceEvaluator(content).run(None, {input_name: rows})[0]
    size = np.max(np.abs(expected), initial=1e-30) + np.max(np.abs(_moved(head, rows)) @ np.abs(head.coef))
    size += np.max(np.sum(np.abs(head.coef), axis=0))
    size *= 1.0 if head.sharpness is None else max(1.0, float(head.sharpness))
    if found.dtype != rows.dtype or not np.allclose(
        found, expected, rtol=0, atol=1e3 * np.finfo(rows.dtype).eps * size
    ):
        raise DataError(
            "the exported graph does not give what NumPy gives, so it is not handed out; scale the features"
        )


def _trial_rows(head: _Head) -> Floats:
    """Made-up features of the size that shift and scale suggest, and some on both sides of each bound."""
    shift = 0.0 if head.shift is None else head.shift
    scale = 1.0 if head.scale is None else head.scale
    columns = head.coef.shape[0]
    waves = np.sin(np.arange(4.0 * columns)).reshape(4, columns)
    rows = [shift + scale * waves]
    for bound in (head.low, head.high):
        if bound is not None:
            near = np.where(np.isfinite(bound), bound, 0.0)
            rows.append(near + np.maximum(np.abs(near), 1.0) * waves)
    return np.concatenate(rows).astype(head.coef.dtype)


def _moved(head: _Head, rows: Floats) -> Floats:
    """Features within their range, shifted and scaled."""
    Z = rows if head.low is None else np.maximum(rows, head.low)
    Z = Z if head.high is None else np.minimum(Z, head.high)
    Z = Z if head.shift is None else Z - head.shift
    return Z if head.scale is None else Z / head.scale


def _scores(head: _Head, rows: Floats) -> Floats:
    Y = _moved(head, rows) @ head.coef + head.intercept
    return Y if head.sharpness is None or head.bias is None else Y * head.sharpness + head.bias
