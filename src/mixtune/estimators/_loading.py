"""Estimators out of their files again: checked before they are believed, built only from what is registered here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mixtune._array import Floats
from mixtune._files import read_model
from mixtune._messages import quoted
from mixtune._version import __version__
from mixtune.errors import DataError
from mixtune.estimators._saving import MAP, MODEL, SPEC_VERSION, ModelReader, Savable
from mixtune.features._spec import from_spec

__all__ = ["SavedInfo", "load", "read_info"]


def load(path: str | Path, *, feature_map: Any = None, networks: Mapping[str, Any] | None = None) -> Any:
    """Build a model again from a file of its ``save``: the same class, settings, predictions and intervals.

    Parameters
    ----------
    path : str or Path
    feature_map : object with transform(X), optional
        The map of the fit, where the model was saved without it (``store_feature_map=False``).
    networks : mapping name -> module, optional
        PyTorch modules for the feature map to put its stored tensors into, by the names in the file. The message of a
        load without them says which are needed.

    Returns
    -------
    estimator
        Fitted; a :class:`RegretOptimalRegressor` also takes further rows and forgets sources as before.

    Raises
    ------
    DataError
        If the file is missing, cut off, altered, no model, or of a newer version.
    ParameterError
        If the feature map or a module is missing, or is another one.

    Examples
    --------
    >>> load("nowhere.mixtune")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: there is no file nowhere.mixtune; check the name and the folder
    """
    spec, arrays = _read(path)
    its_arrays = {name.removeprefix(MAP): array for name, array in arrays.items() if name.startswith(MAP)}
    mapped = from_spec(spec["feature_map"], its_arrays, networks=networks, feature_map=feature_map)
    own = {name.removeprefix(MODEL): array for name, array in arrays.items() if name.startswith(MODEL)}
    try:
        model = ModelReader(own, mapped).read(spec["estimator"])
    except RecursionError as error:
        raise DataError(f"{path} holds values that are nested too deeply") from error
    if not isinstance(model, Savable) or not isinstance(getattr(model, "coef_", None), np.ndarray):
        raise DataError(f"{path} holds no fitted estimator; save the model again")
    return model


class SavedInfo(NamedTuple):
    """What a model file says about itself, without building the model.

    Attributes
    ----------
    estimator : str
        Name of the class.
    feature_map : str
        Kind of the feature map: "none", "random", ..., or "given" where it is not in the file.
    created_with : dict
        Versions of mixtune, numpy, scikit-learn and python.
    metadata : dict
        As passed to ``save``.
    """

    estimator: str
    feature_map: str
    created_with: dict[str, str]
    metadata: dict[str, Any]


def read_info(path: str | Path) -> SavedInfo:
    """Read what a file of ``save`` says about itself, and the metadata that were saved with it.

    Examples
    --------
    >>> import tempfile
    >>> from mixtune.estimators import LocalRegressor
    >>> model = LocalRegressor().fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     info = read_info(model.save(Path(folder) / "model.mixtune", metadata={"target": "price"}))
    >>> info.estimator, info.feature_map, info.metadata
    ('LocalRegressor', 'none', {'target': 'price'})
    """
    spec, _ = _read(path)
    return SavedInfo(spec["estimator"]["name"], spec["feature_map"]["kind"], spec["created_with"], spec["metadata"])


def _read(path: str | Path) -> tuple[dict[str, Any], dict[str, Floats]]:
    spec, arrays = read_model(path)
    version = spec.get("spec_version")
    if type(version) is not int or version < 1:
        raise DataError(f"{path} holds no estimator: its spec has no version; pass a file that was written by save")
    if version > SPEC_VERSION:
        writer = dict(spec.get("created_with") or {}).get("mixtune", "a newer one")
        raise DataError(
            f"{path} has spec version {version} (written by mixtune {writer}), this mixtune {__version__} reads "
            f"versions up to {SPEC_VERSION}; update mixtune"
        )
    parts = ("estimator", "feature_map", "created_with", "metadata")
    if any(not isinstance(spec.get(part), dict) for part in parts) or not (
        isinstance(spec["estimator"].get("name"), str) and isinstance(spec["feature_map"].get("kind"), str)
    ):
        raise DataError(f"{path} holds no estimator: its spec lacks one of {quoted(parts)}; save the model again")
    return spec, arrays
