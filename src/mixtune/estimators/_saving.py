"""Fitted estimators in one file: settings, fitted attributes and the feature map, no pickle.

At the end of the data's way; :mod:`mixtune.estimators._loading` is the way back. The file (:mod:`mixtune._files`)
holds arrays and a versioned JSON spec. The spec names the estimator, which must be one of those registered here with
:func:`savable`, and nothing in the file is ever run.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import sklearn
from sklearn.utils.validation import check_is_fitted

from mixtune._array import Floats
from mixtune._files import check_place, write_atomically, write_model
from mixtune._messages import nearest, quoted
from mixtune._version import __version__
from mixtune.errors import DataError, ParameterError
from mixtune.estimators._stored_values import KIND, Reader, Writer
from mixtune.features._spec import given_spec, to_spec

__all__ = ["MAP", "MODEL", "SPEC_VERSION", "ModelReader", "Savable", "savable", "write_bytes"]

SPEC_VERSION = 1
#: Arrays of the feature map and of the estimator share one file.
MAP, MODEL = "feature_map.", "model."

E = TypeVar("E", bound="Savable")
_ESTIMATORS: dict[str, type[Savable]] = {}


class Savable:
    """Gives an estimator ``save``. A class lists in ``_stored_attributes`` what its own fit sets.

    The lists of base classes are added to it. Attributes that a fit did not set are left out. Where an attribute has to
    be turned into something else, override :meth:`_get_stored` and :meth:`_set_stored`.
    """

    _stored_attributes: ClassVar[tuple[str, ...]] = ()

    def save(
        self, path: str | Path, *, store_feature_map: bool = True, metadata: Mapping[str, Any] | None = None
    ) -> Path:
        """Write the fitted model into one file, from which :func:`mixtune.estimators.load` builds it again.

        The file is written whole or not at all, and read back before it takes its place. It holds the settings, the
        fitted attributes and what further fitting and intervals need: sums over the rows of every domain, and the
        features and targets of the focal rows themselves (and of sources with fewer rows than features). Hand it only
        to those who may see these.

        Parameters
        ----------
        path : str or Path
            Where to, such as "model.mixtune"; an existing file is replaced without a question.
        store_feature_map : bool
            Store the feature map as well. Without it, the same map has to be passed to ``load``; only how to recognise
            it is stored.
        metadata : mapping, optional
            Anything JSON can hold, to be found again with :func:`mixtune.estimators.read_info`.

        Returns
        -------
        Path
            Of the file.

        Examples
        --------
        >>> import tempfile
        >>> from mixtune.estimators import LocalRegressor, load
        >>> model = LocalRegressor(ridge=0.0).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = model.save(Path(folder) / "model.mixtune")
        ...     load(path).predict([[3.0]]).round(6)
        array([7.])
        """
        check_is_fitted(self)
        if metadata is not None and not isinstance(metadata, Mapping):
            raise ParameterError(f"metadata came as a {type(metadata).__name__}; pass a dict of what JSON can hold")
        feature_map = self.feature_map  # type: ignore[attr-defined]
        keep = store_feature_map or feature_map is None
        map_spec, map_arrays = to_spec(feature_map) if keep else given_spec(feature_map)
        writer = _ModelWriter(feature_map)
        spec = {
            "spec_version": SPEC_VERSION,
            "estimator": writer.write(self, ""),
            "feature_map": map_spec,
            "created_with": _versions(),
            "metadata": dict(metadata or {}),
        }
        arrays = {MAP + name: array for name, array in map_arrays.items()}
        arrays |= {MODEL + name: array for name, array in writer.arrays.items()}
        try:
            return write_model(path, spec, arrays)
        except OSError as error:
            raise _unwritable(path, error) from error

    @classmethod
    def _stored_names(cls) -> list[str]:
        """What this class and its bases declare, those of the bases first."""
        lists = [base.__dict__.get("_stored_attributes", ()) for base in reversed(cls.__mro__)]
        return list(dict.fromkeys(name for names in lists for name in names))

    def _get_stored(self) -> dict[str, Any]:
        """Fitted attributes by name, as they go into the file."""
        return {name: getattr(self, name) for name in self._stored_names() if hasattr(self, name)}

    def _set_stored(self, values: dict[str, Any]) -> None:
        """Take over what :meth:`_get_stored` gave."""
        for name, value in values.items():
            setattr(self, name, value)


def savable(cls: type[E]) -> type[E]:
    """Let a subclass of an estimator be saved; a decorator.

    Files name their estimator, and are loaded only where a class is registered under that name. What a subclass's own
    fit sets beyond that of its base goes into the class attribute ``_stored_attributes``.

    Examples
    --------
    >>> from mixtune.estimators import LocalRegressor
    >>> @savable
    ... class CountingRegressor(LocalRegressor):
    ...     _stored_attributes = ("n_rows_",)
    ...
    ...     def fit(self, X, y, sample_weight=None, *, sources=None):
    ...         self.n_rows_ = len(y)
    ...         return super().fit(X, y, sample_weight, sources=sources)
    """
    taken = _ESTIMATORS.get(cls.__name__)
    if taken is not None and (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ParameterError(f"another estimator is saved under the name {cls.__name__}; rename one of them")
    _ESTIMATORS[cls.__name__] = cls
    return cls


def write_bytes(path: str | Path | None, content: bytes) -> bytes:
    """Write ``content`` whole or not at all, where there is a path, and hand it on."""
    if path is not None:
        target = Path(path)
        check_place(target, "head.onnx")
        try:
            write_atomically(target, content)
        except OSError as error:
            raise _unwritable(path, error) from error
    return content


class _ModelWriter(Writer):
    """Writes estimators too; all of them share the one feature map, which is stored on its own."""

    def __init__(self, feature_map: Any) -> None:
        super().__init__()
        self._feature_map = feature_map

    def write(self, value: Any, where: str) -> Any:
        if not isinstance(value, Savable):
            return super().write(value, where)
        name = type(value).__name__
        if _ESTIMATORS.get(name) is not type(value):
            raise ParameterError(
                f"{name} cannot be saved: a file names its estimator, and only registered names are loaded; decorate "
                "the class with mixtune.estimators.savable"
            )
        settings = value.get_params(deep=False)  # type: ignore[attr-defined]
        if settings.pop("feature_map") is not self._feature_map:
            raise ParameterError("feature_map was replaced after the fit; fit again, then save")
        inside = f"{where}." if where else ""
        return {
            KIND: "estimator",
            "name": name,
            "settings": {key: self.write(inner, f"{inside}settings.{key}") for key, inner in settings.items()},
            "fitted": {key: self.write(inner, inside + key) for key, inner in value._get_stored().items()},
        }


class ModelReader(Reader):
    """Builds estimators too, all of them on the one feature map."""

    def __init__(self, arrays: Mapping[str, Floats], feature_map: Any) -> None:
        super().__init__(arrays)
        self._feature_map = feature_map

    def _read_kind(self, kind: str, tree: dict[str, Any]) -> Any:
        if kind != "estimator":
            return super()._read_kind(kind, tree)
        if (cls := _ESTIMATORS.get(tree["name"])) is None:
            known = nearest(str(tree["name"]), sorted(_ESTIMATORS))
            raise DataError(
                f'the file holds a "{tree["name"]}", an estimator that is not known here ({known}); update mixtune, or '
                "import the package that defines it"
            )
        settings = {key: self.read(value) for key, value in tree["settings"].items()}
        model = cls(feature_map=self._feature_map, **settings)  # type: ignore[call-arg]
        # Only what the class itself would store: a file must not put anything in the place of a method.
        if unknown := sorted(set(tree["fitted"]) - set(cls._stored_names())):
            raise DataError(f"the file holds {quoted(unknown)}, which {cls.__name__} does not know; update mixtune")
        model._set_stored({key: self.read(value) for key, value in tree["fitted"].items()})
        return model


def _versions() -> dict[str, str]:
    return {
        "mixtune": __version__,
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "python": platform.python_version(),
    }


def _unwritable(path: str | Path, error: OSError) -> DataError:
    return DataError(f"{path} cannot be written: {error.strerror or error}; choose a folder with space and permission")
