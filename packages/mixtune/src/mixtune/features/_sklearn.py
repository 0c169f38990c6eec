"""Any fitted scikit-learn transformer as a frozen feature map, and the few that can be saved.

Saved are those whose whole state is numbers, and pipelines of them: their parameters and their fitted attributes. The
features of three made-up rows are saved as well and compared on loading, because scikit-learn may rename an attribute,
or compute differently, from one release to the next.
"""

import copy
import importlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from mixtune._registry import register
from mixtune.arrays import Array
from mixtune.errors import DataError, ParameterError
from mixtune.features._base import as_rows, check_finite, match_library
from mixtune.files import arrays_below

Settings = dict[str, Any]
Arrays = dict[str, Any]

#: Transformers whose whole state is numbers, by the module they are in.
_SAVED = {
    "preprocessing": ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "PolynomialFeatures"),
    "decomposition": ("PCA", "TruncatedSVD"),
}
_REMEDY = (
    f"supported are {', '.join(name for names in _SAVED.values() for name in names)} and pipelines of them; save the "
    "model without its map and hand the map over again with load(path, feature_map=...)"
)


@dataclass(frozen=True, eq=False)
class SklearnFeatures:
    """The output of a fitted scikit-learn transformer or pipeline, made dense.

    Parameters
    ----------
    transformer
        Fitted; it is copied, so fitting it again later does not change the features.

    Attributes
    ----------
    n_inputs : int or None
        Number of columns of ``X``, where the transformer knows it.
    input_names : tuple of str or None
        Names of the columns of ``X``, where the transformer was fitted on a data frame.
    n_features_out : int
        Number of features.

    Raises
    ------
    ParameterError
        If the transformer is not fitted, or the number of its features is unknown.

    Examples
    --------
    >>> from sklearn.preprocessing import PolynomialFeatures
    >>> features = SklearnFeatures(PolynomialFeatures(2).fit([[0.0, 0.0]]))
    >>> features.n_features_out
    6
    >>> features.transform([[2.0, 3.0]])
    array([[1., 2., 3., 4., 6., 9.]])
    """

    transformer: Any
    n_inputs: int | None = field(init=False)
    input_names: tuple[str, ...] | None = field(init=False)
    n_features_out: int = field(init=False)

    def __post_init__(self) -> None:
        # Imported here, because scikit-learn takes longer to import than all the rest together.
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted

        if isinstance(self.transformer, type) or not hasattr(self.transformer, "transform"):
            raise ParameterError(f"{self.transformer!r} has no transform; pass a fitted scikit-learn transformer")
        try:
            check_is_fitted(self.transformer)
        except (NotFittedError, TypeError) as error:
            raise ParameterError(f"{self._name} is not fitted; call its fit before wrapping it") from error
        object.__setattr__(self, "transformer", copy.deepcopy(self.transformer))
        n_inputs = getattr(self.transformer, "n_features_in_", None)
        object.__setattr__(self, "n_inputs", None if n_inputs is None else int(n_inputs))
        names = getattr(self.transformer, "feature_names_in_", None)
        object.__setattr__(self, "input_names", None if names is None else tuple(map(str, names)))
        object.__setattr__(self, "n_features_out", self._count_features())

    @property
    def _name(self) -> str:
        return type(self.transformer).__name__

    def _count_features(self) -> int:
        """Ask the transformer for the number of its features, or else try it on one row of ones."""
        try:
            return len(self.transformer.get_feature_names_out())
        except (AttributeError, ValueError) as error:  # what NotFittedError derives from
            if self.n_inputs is None:
                raise ParameterError(f"{self._name} lacks its number of columns; fit it on some rows first") from error
        with np.errstate(all="ignore"):
            return int(self._dense(np.ones((1, self.n_inputs))).shape[1])

    def transform(self, X: Array, /) -> Array:
        """Compute the features of the rows of ``X``.

        Parameters
        ----------
        X
            Array, tensor, or (for transformers that choose columns by name) a data frame. The columns of an array
            or a tensor are taken to be in the order in which the transformer was fitted.

        Returns
        -------
        array of shape (n, n_features_out)
            Dense; a tensor on the device of ``X`` if ``X`` is one, else a NumPy array.
        """
        if hasattr(X, "columns"):
            features = self._dense(X)
        else:
            rows = as_rows(X, self.n_inputs)
            features = self._dense(np.asarray(rows.cpu()) if is_torch_array(rows) else rows)
        return match_library(self._check(features), X)

    def transform_named(self, X: Array, columns: Sequence[str], /) -> Array:
        """Compute the features of rows whose columns have names, in any order.

        Parameters
        ----------
        X
            Array or tensor.
        columns
            The names of its columns. The transformer gets those it was fitted on, in its order, as a pandas frame
            if pandas is installed; a transformer fitted without names gets them all as they come.

        Raises
        ------
        DataError
            If columns that the transformer was fitted on are missing.

        Examples
        --------
        >>> import pandas as pd
        >>> from sklearn.preprocessing import MaxAbsScaler
        >>> features = SklearnFeatures(MaxAbsScaler().fit(pd.DataFrame({"u": [1.0], "v": [10.0]})))
        >>> features.transform_named(np.array([[10.0, 1.0]]), ["v", "u"])
        array([[1., 1.]])
        """
        if self.input_names is None:
            return self.transform(X)
        # Imported here: reading tables takes Arrow, which no other map needs.
        from mixtune.data import arrange_columns

        rows = arrange_columns(as_rows(X, None), columns, self.input_names, self._name)
        return match_library(self._check(self._dense(rows)), X)

    def _check(self, features: Any) -> Any:
        if features.ndim != 2 or features.shape[1] != self.n_features_out:
            finding = f"the transformer gave features of shape {features.shape}, not {self.n_features_out} columns"
            raise DataError(f"{finding}; wrap one whose output has a fixed width")
        check_finite(features, "the features")
        return features

    def _dense(self, X: Any) -> Any:
        with warnings.catch_warnings():
            # Columns of arrays are compared by number here, and by name in transform_named.
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            try:
                features = self.transformer.transform(X)
            except (TypeError, ValueError) as error:
                named = self.input_names is not None and not hasattr(X, "columns")
                advice = "; if it chooses columns by name, pass a data frame or install pandas" if named else ""
                raise DataError(f"{self._name} cannot transform X: {error}{advice}") from error
        features = np.asarray(features.toarray() if hasattr(features, "toarray") else features)
        return features if features.dtype == np.float32 else features.astype(np.float64)


def probe(feature_map: Any) -> Any:
    """Compute the features of three made-up rows; None where the map does not know its columns or refuses such rows.

    Examples
    --------
    >>> from mixtune.features import Identity
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


def _write(features: SklearnFeatures, networks: list[str]) -> tuple[Settings, Arrays]:
    import sklearn

    settings, arrays = _write_transformer(features.transformer)
    if (found := probe(features)) is None:
        raise ParameterError(f"the {settings['class']} takes no rows of plain numbers and cannot be saved; {_REMEDY}")
    settings, arrays = {**settings, "wrapped": True, "sklearn": sklearn.__version__}, {**arrays, "probe": found}
    # What cannot be rebuilt should be known now, not when it is loaded.
    _read(settings, dict(arrays), None)
    return settings, arrays


def _read(settings: Settings, arrays: Arrays, supplied: Any) -> SklearnFeatures:
    import sklearn

    cause: Exception | None = None
    try:
        features = SklearnFeatures(_read_transformer(settings, arrays))
        if same_features(arrays["probe"], probe(features)):
            return features
    except (TypeError, AttributeError) as error:
        cause = error
    raise DataError(
        f"scikit-learn {sklearn.__version__} cannot rebuild the {settings['class']} that was saved with version "
        f"{settings['sklearn']}{f' ({cause})' if cause else ''}; install that version"
    ) from cause


register("feature map", "sklearn", SklearnFeatures, _write, _read)


def _supported() -> dict[str, Any]:
    modules = {module: importlib.import_module(f"sklearn.{module}") for module in (*_SAVED, "pipeline")}
    found = {name: getattr(modules[module], name) for module, names in _SAVED.items() for name in names}
    return {**found, "Pipeline": modules["pipeline"].Pipeline}


def _write_transformer(transformer: Any) -> tuple[Settings, Arrays]:
    name = type(transformer).__name__
    if type(transformer) is not _supported().get(name):
        raise ParameterError(f"a {name} cannot be saved; {_REMEDY}")
    settings: Settings = {"class": name, "n_inputs": getattr(transformer, "n_features_in_", None)}
    if name == "Pipeline":
        steps = [
            (None, {}) if step in (None, "passthrough") else _write_transformer(step) for _, step in transformer.steps
        ]
        settings["steps"] = [[label, inner] for (label, _), (inner, _) in zip(transformer.steps, steps, strict=True)]
        return settings, {f"{place}.{key}": held[key] for place, (_, held) in enumerate(steps) for key in held}
    names = getattr(transformer, "feature_names_in_", None)
    state = {key: value for key, value in vars(transformer).items() if _is_fitted_state(key)}
    arrays = {key: np.asarray(value) for key, value in state.items() if isinstance(value, np.ndarray | np.generic)}
    settings |= {
        "params": transformer.get_params(deep=False),
        "input_names": None if names is None else [str(column) for column in names],
        "state": {key: value for key, value in state.items() if key not in arrays},
        # The order in memory decides in which order a product is summed, and so its last bits.
        "fortran": [key for key, value in arrays.items() if value.flags.fnc],
    }
    if isinstance(settings["params"].get("random_state"), np.random.RandomState):
        settings["params"]["random_state"] = None  # it no longer matters after the fit
    return settings, arrays


def _read_transformer(settings: Settings, arrays: Arrays) -> Any:
    name = settings["class"]
    if (cls := _supported().get(name)) is None:
        raise DataError(f'a scikit-learn transformer of class "{name}" cannot be loaded; update mixtune')
    if name == "Pipeline":
        steps = [
            (label, "passthrough" if inner is None else _read_transformer(inner, arrays_below(arrays, place)))
            for place, (label, inner) in enumerate(settings["steps"])
        ]
        return cls(steps)
    transformer = cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in settings["params"].items()})
    if name == "PolynomialFeatures":
        # Its state follows from the number of columns alone.
        transformer.fit(np.zeros((1, settings["n_inputs"])))
    held = {
        key: np.asarray(array, order="F" if key in settings["fortran"] else "C")[()] for key, array in arrays.items()
    }
    for key, value in {**settings["state"], **held}.items():
        # A file must not put anything in the place of a method or a setting.
        if _is_fitted_state(key):
            setattr(transformer, key, value)
    transformer.n_features_in_ = settings["n_inputs"]
    if settings["input_names"] is not None:
        transformer.feature_names_in_ = np.array(settings["input_names"], dtype=object)
    return transformer


def _is_fitted_state(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_") and name not in ("n_features_in_", "feature_names_in_")
