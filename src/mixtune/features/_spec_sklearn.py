"""Fitted scikit-learn transformers as settings and arrays, for the few whose whole state is numbers.

Each supported class is in a table with the attributes that make up its fitted state; pipelines of them work too. What
the rebuilt transformer gives for three made-up rows is compared with what the original gave, because scikit-learn may
rename an attribute, or compute otherwise, from one release to the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mixtune.errors import DataError, ParameterError
from mixtune.features._sklearn import SklearnFeatures
from mixtune.features._spec_torch import Networks

__all__ = ["is_sklearn", "probe", "read_sklearn", "same_features", "write_sklearn"]

_FITTED = {
    "StandardScaler": ("mean_", "var_", "scale_", "n_samples_seen_"),
    "MinMaxScaler": ("min_", "scale_", "data_min_", "data_max_", "data_range_", "n_samples_seen_"),
    "MaxAbsScaler": ("scale_", "max_abs_", "n_samples_seen_"),
    "RobustScaler": ("center_", "scale_"),
    "PolynomialFeatures": (),
    "PCA": (
        *("components_", "mean_", "n_components_", "n_samples_", "noise_variance_"),
        *("explained_variance_", "explained_variance_ratio_", "singular_values_"),
    ),
    "TruncatedSVD": ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_"),
}


def is_sklearn(transformer: Any) -> bool:
    """Tell whether something is a transformer of scikit-learn itself, without importing scikit-learn.

    Examples
    --------
    >>> is_sklearn(np.zeros(2))
    False
    """
    return type(transformer).__module__.startswith("sklearn.") and hasattr(transformer, "transform")


def write_sklearn(feature_map: Any, networks: Networks) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write down a transformer, bare or wrapped, with its features of the made-up rows."""
    import sklearn

    wrapped = isinstance(feature_map, SklearnFeatures)
    ready = feature_map if wrapped else SklearnFeatures(feature_map)
    settings, arrays = _write(ready.transformer)
    settings = {**settings, "wrapped": wrapped, "sklearn": sklearn.__version__}
    if (features := probe(ready)) is None:
        raise ParameterError(f"the {settings['class']} takes no rows of plain numbers and cannot be saved; {_remedy()}")
    arrays["probe"] = features
    read_sklearn(settings, dict(arrays), networks)
    return settings, arrays


def read_sklearn(settings: dict[str, Any], arrays: dict[str, Any], networks: Networks) -> Any:
    """Build the transformer again and compare its features of the made-up rows."""
    import sklearn

    expected = arrays.pop("probe")
    cause: TypeError | AttributeError | None = None
    try:
        transformer = _read(settings, arrays)
        ready = SklearnFeatures(transformer)
        same = same_features(expected, probe(ready))
    except (TypeError, AttributeError) as error:
        same, cause = False, error
    if not same:
        raise DataError(
            f"scikit-learn {sklearn.__version__} cannot rebuild the {settings['class']} that was saved with version "
            f"{settings['sklearn']}{f' ({cause})' if cause else ''}; install that version"
        ) from cause
    return ready if settings["wrapped"] else transformer


def probe(feature_map: Any) -> Any:
    """Compute the features of three made-up rows; None where the map cannot tell or take them.

    Examples
    --------
    >>> from mixtune.features._combine import Identity
    >>> probe(Identity(2))[0]
    array([0.1 , 0.28])
    """
    n_inputs = getattr(feature_map, "n_inputs", None)
    if n_inputs is None:
        return None
    rows = np.linspace(0.1, 1.0, 3 * n_inputs).reshape(3, n_inputs)
    try:
        return np.asarray(feature_map.transform(rows))
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        return None


def same_features(expected: Any, found: Any) -> bool:
    """Compare features up to rounding: another machine may add in another order.

    Examples
    --------
    >>> same_features(np.array([[1.0]]), np.array([[1.1]]))
    False
    """
    if found is None or expected.shape != found.shape or expected.dtype != found.dtype:
        return False
    size = np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))
    precision = 1e-4 if expected.dtype == np.float32 else 1e-8
    return np.allclose(expected, found, rtol=precision, atol=precision * size, equal_nan=True)


def _classes() -> dict[str, Any]:
    from sklearn import decomposition, pipeline, preprocessing

    homes = (preprocessing, decomposition)
    found = {name: getattr(home, name) for name in _FITTED for home in homes if hasattr(home, name)}
    return {**found, "Pipeline": pipeline.Pipeline}


def _remedy() -> str:
    return (
        f"supported are {', '.join(_FITTED)} and pipelines of them; save the model without its map and hand the map "
        "over again with load(path, feature_map=...)"
    )


def _write(transformer: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    name = type(transformer).__name__
    if type(transformer) is not _classes().get(name):
        raise ParameterError(f"a {name} cannot be saved; {_remedy()}")
    settings: dict[str, Any] = {"class": name, "n_inputs": getattr(transformer, "n_features_in_", None)}
    if name == "Pipeline":
        return _write_steps(transformer, settings)
    settings["params"] = {key: _plain(name, key, value) for key, value in transformer.get_params(deep=False).items()}
    names = getattr(transformer, "feature_names_in_", None)
    settings["input_names"] = None if names is None else [str(column) for column in names]
    state = {key: getattr(transformer, key) for key in _FITTED[name]}
    arrays = {key: np.asarray(value) for key, value in state.items() if isinstance(value, np.ndarray | np.generic)}
    settings["state"] = {key: value for key, value in state.items() if key not in arrays}
    # The order in memory decides in which order a product is summed, and so its last bits.
    settings["fortran"] = [key for key, value in arrays.items() if value.flags.fnc]
    return settings, arrays


def _read(settings: dict[str, Any], arrays: dict[str, Any]) -> Any:
    name = settings["class"]
    if (cls := _classes().get(name)) is None:
        raise DataError(f'a scikit-learn transformer of class "{name}" cannot be loaded; update mixtune')
    if name == "Pipeline":
        return cls(_read_steps(settings, arrays))
    params = {key: tuple(value) if isinstance(value, list) else value for key, value in settings["params"].items()}
    transformer = cls(**params)
    if name == "PolynomialFeatures":
        # Its state follows from the number of columns alone.
        transformer.fit(np.zeros((1, settings["n_inputs"])))
    for key in _FITTED[name]:
        value = settings["state"].get(key) if key not in arrays else arrays[key]
        if isinstance(value, np.ndarray):
            value = np.asarray(value, order="F" if key in settings["fortran"] else "C")[()]
        setattr(transformer, key, value)
    transformer.n_features_in_ = settings["n_inputs"]
    if settings["input_names"] is not None:
        transformer.feature_names_in_ = np.array(settings["input_names"], dtype=object)
    return transformer


def _write_steps(pipeline: Any, settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays: dict[str, Any] = {}
    steps: list[list[Any]] = []
    for place, (label, step) in enumerate(pipeline.steps):
        inner, held = (None, {}) if step is None or step == "passthrough" else _write(step)
        steps.append([label, inner])
        arrays |= {f"{place}.{key}": array for key, array in held.items()}
    return {**settings, "steps": steps}, arrays


def _read_steps(settings: dict[str, Any], arrays: dict[str, Any]) -> list[tuple[str, Any]]:
    steps = []
    for place, (label, inner) in enumerate(settings["steps"]):
        start = f"{place}."
        held = {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}
        steps.append((label, "passthrough" if inner is None else _read(inner, held)))
    return steps


def _plain(name: str, key: str, value: Any) -> Any:
    """Read a parameter as JSON can hold it; generators of random numbers no longer matter after the fit."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(name, key, inner) for inner in value]
    if key == "random_state":
        return None
    raise ParameterError(f"{key}={value!r} of the {name} cannot be saved; {_remedy()}")
