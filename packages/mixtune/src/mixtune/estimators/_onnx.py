"""Linear models as an ONNX graph, for prediction without Python: features in, predictions or classes out.

A fitted model is a matrix product and a shift, so the graph has a handful of nodes of the standard operators. What it
computes is compared with NumPy before it is returned.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special

from mixtune._version import __version__
from mixtune.arrays import Array
from mixtune.checks import check_choice, check_whole, import_extra
from mixtune.errors import DataError, ParameterError
from mixtune.files import write_file

#: The first version in which every operator used here has its present meaning.
OLDEST_OPSET = 13
#: Understood by runtimes since 2022.
DEFAULT_OPSET = 17

#: Operators for the bounds of features, the same in NumPy, and the bound where a feature is free. Clip takes one bound
#: for all features; these take one for each.
_BOUNDS = {"low": ("Max", np.maximum, -np.inf), "high": ("Min", np.minimum, np.inf)}


def linear_to_onnx(
    coef: Any,
    intercept: Any = 0.0,
    *,
    path: str | Path | None = None,
    domains: Sequence[str] | None = None,
    low: Any = None,
    high: Any = None,
    dtype: str = "float64",
    classes: Any = None,
    sharpness: Any = 1.0,
    input_name: str = "features",
    domain_name: str = "domain",
    output_name: str = "prediction",
    label_name: str = "label",
    opset: int = DEFAULT_OPSET,
) -> bytes:
    """Write ``features @ coef + intercept`` as an ONNX model, with probabilities and labels if there are classes.

    Where ``low`` or ``high`` are given, features are moved into that range first.

    Parameters
    ----------
    coef
        Of shape (p,), for predictions of shape (n,), or (p, D), for (n, D). With ``domains``, one for each of them and
        a last one for all other domains: (N + 1, p), or (N + 1, p, D) for the scores of D classes.
    intercept
        One number, or D of them; with ``domains``, of shape (N + 1,) or (N + 1, D).
    path
        Where to write the model as well.
    domains
        N names. The graph then has a second input: the name of each row's domain.
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
        A positive number; with ``domains``, N + 1 of them.
    input_name, domain_name, output_name, label_name
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
    >>> model = linear_to_onnx([[2.0], [3.0], [2.5]], [0.0, 1.0, 0.5], domains=["a", "b"])
    >>> rows = {"features": np.array([[1.0], [1.0], [1.0]]), "domain": np.array(["a", "b", "new"])}
    >>> ReferenceEvaluator(model).run(None, rows)
    [array([2., 4., 3.])]
    """
    names = {"input": input_name, "output": output_name, "label": label_name}
    names |= {} if domains is None else {"domain": domain_name}
    onnx = _checked_onnx(dtype, list(names.values()), opset)
    W = np.asarray(coef, dtype=np.float64)
    if domains is not None:
        W, b = W.reshape(*W.shape[:2], -1), np.reshape(intercept, (len(W), 1, -1))
        sharpness = np.reshape(sharpness, (-1, 1))
    else:
        b = np.broadcast_to(intercept, W.shape[1:])
        if classes is not None and W.ndim == 1:
            W, b = np.stack([-W, W], axis=1), np.stack([-b, b])
    count, width = (1, len(W)) if domains is None else W.shape[:2]
    given = {"low": low, "high": high, "coef": W, "intercept": b, "sharpness": None if classes is None else sharpness}
    held = {name: _rounded(name, values, width, dtype) for name, values in given.items() if values is not None}
    graph = _graph(onnx, held, None if classes is None else _labels(classes), domains, names)
    content = _written(onnx, graph, opset)
    rows, places, expected, tolerance = _trial(held, count=count, width=width)
    feed = {input_name: rows}
    if domains is not None:
        feed[domain_name] = np.array([*domains, "no domain of the model"], dtype=object)[places]
    found = onnx.reference.ReferenceEvaluator(content).run(None, feed)[0]
    if found.dtype != rows.dtype or not np.allclose(found, expected.reshape(found.shape), rtol=0, atol=tolerance):
        raise DataError("the exported graph and NumPy disagree, so it is not returned; scale the features")
    if path is not None:
        write_file(Path(path), content, example="head.onnx")
    return content


def _checked_onnx(dtype: str, names: Sequence[str], opset: int) -> Any:
    """The package, after the options were checked."""
    check_choice("dtype", dtype, ("float64", "float32"))
    wrong = any(not isinstance(name, str) or not name or name.startswith("_") for name in names)
    if wrong or len(set(names)) < len(names):
        raise ParameterError(f"the names {', '.join(map(repr, names))} must differ, and not be empty or start with '_'")
    import_extra("onnx.reference", "onnx", "exporting to ONNX")
    onnx = import_extra("onnx", "onnx", "exporting to ONNX")
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= check_whole("opset", opset) <= newest:
        raise ParameterError(f"opset={opset} is not between {OLDEST_OPSET} and {newest}, the range of this onnx")
    return onnx


def _labels(classes: Any) -> Array:
    labels = np.asarray(classes)
    if all(isinstance(label, str) for label in labels.tolist()):
        return labels.astype(object)
    with np.errstate(invalid="ignore"):
        whole = labels.astype(np.int64) if labels.dtype.kind in "biuf" else None
    if whole is None or not np.array_equal(whole, labels):
        raise DataError(f"classes holds {labels.dtype}; ONNX labels are text, or whole numbers within int64")
    return whole


def _rounded(name: str, exact: Any, width: int, dtype: str) -> Array:
    """Finite numbers in the precision of the graph; of bounds, one for each feature."""
    free = _BOUNDS[name][2] if name in _BOUNDS else None
    exact = np.asarray(exact) if free is None else np.broadcast_to(exact, width)
    with np.errstate(over="ignore"):
        rounded = np.array(exact, dtype=dtype, order="C")
    if not np.all(np.isfinite(rounded) | (rounded == free)):
        why = "NaN or infinite values" if not np.isfinite(exact).all() else f"values too large for {dtype}"
        raise DataError(f"{name} has {why}; the model cannot be exported so")
    return rounded


def _graph(
    onnx: Any, held: dict[str, Array], labels: Array | None, domains: Sequence[str] | None, names: dict[str, str]
) -> Any:
    """Chain the operators: each takes the result of the one before and a constant."""
    helper, constants, dtype = onnx.helper, dict(held), held["coef"].dtype
    width, *outputs = held["coef"].shape[0 if domains is None else 1 :]
    nodes: list[Any] = []

    def tensor(role: str, kind: Any, *shape: int) -> Any:
        """An input or output of the graph; objects are texts."""
        return helper.make_tensor_value_info(names[role], helper.np_dtype_to_tensor_dtype(kind), ["rows", *shape])

    def add(operator: str, *given: str, output: str = "", **attributes: Any) -> str:
        """Append a node, and return the name of its result."""
        nodes.append(helper.make_node(operator, given, [output or f"_{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    value, own, inputs = names["input"], {name: f"_{name}" for name in held}, [tensor("input", dtype, width)]
    for name, (operator, *_) in _BOUNDS.items():
        value = add(operator, value, own[name]) if name in held else value
    if domains is not None:
        inputs.append(tensor("domain", np.dtype(object)))
        codes: dict[str, Any] = {"keys_strings": list(domains), "values_int64s": list(range(len(domains)))}
        place = add("LabelEncoder", names["domain"], domain="ai.onnx.ml", default_int64=len(domains), **codes)
        own |= {name: add("Gather", own[name], place, axis=0) for name in held if name not in _BOUNDS}
        # Every row is a matrix of one row: each has a product with the coefficients of its own domain.
        outputs = [] if labels is None else outputs
        constants |= {"axis": np.array([1]), "shape": np.array([-1, *outputs])}
        value = add("Unsqueeze", value, "_axis")
    value = add("Add", add("MatMul", value, own["coef"]), own["intercept"])
    if domains is not None:
        value = add("Reshape", value, "_shape")
    if labels is None:
        nodes[-1].output[0] = names["output"]
    else:
        constants["classes"] = labels
        value = add("Mul", value, own["sharpness"])
        add("Softmax", value, output=names["output"], axis=1)
        add("Gather", "_classes", add("ArgMax", value, axis=1, keepdims=0), output=names["label"])
    results = [tensor("output", dtype, *outputs), *([] if labels is None else [tensor("label", labels.dtype)])]
    tensors = [onnx.numpy_helper.from_array(array, f"_{name}") for name, array in constants.items()]
    return helper.make_graph(nodes, "linear_model", inputs, results, initializer=tensors)


def _written(onnx: Any, graph: Any, opset: int) -> bytes:
    """The checked model with this graph."""
    helper, newest = onnx.helper, {"": opset, "ai.onnx.ml": 2}
    versions = [helper.make_opsetid(name, newest[name]) for name in sorted({node.domain for node in graph.node})]
    # The oldest file format with these operators; a newer one would exclude older runtimes without need.
    made = {"opset_imports": versions, "ir_version": helper.find_min_ir_version_for(versions)}
    model = helper.make_model(graph, producer_name="mixtune", producer_version=__version__, **made)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def _trial(held: dict[str, Array], *, count: int, width: int) -> tuple[Array, Array, Array, float]:
    """Rows for a test, the places of their models, the results of NumPy, and the tolerance of the graph."""
    places = np.linspace(0, count - 1, min(max(count, 4), 50)).astype(np.int64)
    waves = np.sin(np.arange(float(len(places) * width))).reshape(len(places), -1)
    # Some rows on both sides of each bound, so that they are as large as what the bounds let through.
    near = [np.where(np.isfinite(held[name]), held[name], 0.0) for name in _BOUNDS if name in held]
    rows = np.concatenate([waves, *(bound + np.maximum(np.abs(bound), 1.0) * waves for bound in near)])
    value = rows = rows.astype(held["coef"].dtype)
    places = np.tile(places, 1 + len(near))
    W, b = (held[name].reshape(count, size, -1)[places] for name, size in (("coef", width), ("intercept", 1)))
    for name, (_, bound, _) in _BOUNDS.items():
        value = bound(value, held[name]) if name in held else value
    value = (value[:, None] @ W + b)[:, 0]
    size = np.max((np.abs(rows) + 1.0)[:, None] @ np.abs(W))
    if "sharpness" in held:
        sharpness = held["sharpness"].reshape(count, 1)[places]
        size *= max(1.0, float(np.max(sharpness)))
        value = scipy.special.softmax(sharpness * value, axis=1)
    return rows, places, value, float(1e3 * np.finfo(rows.dtype).eps * (size + np.max(np.abs(value))))
