"""Fitted estimators in one file: settings, fitted attributes and the feature map, no pickle.

The file (:mod:`mixtune.files`) holds arrays and a versioned JSON spec. The spec names the estimator, which must be
registered here with :func:`savable`; nothing in the file is ever run.
"""

import platform
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import sklearn
from sklearn.utils.validation import check_is_fitted

from mixtune import _registry, choice, moments, weights
from mixtune._companions import EXTRAS, load_offered, offered
from mixtune._messages import quoted
from mixtune._version import __version__
from mixtune.errors import DataError, ParameterError
from mixtune.features import from_spec, given_spec, to_spec
from mixtune.files import Arrays, arrays_below, joined_arrays, read_model, write_model
from mixtune.weights import transport

SPEC_VERSION = 1
#: What the metadata of a :class:`mixtune.TableModel` name as their maker.
FIT_TABLE = "mixtune.fit_table"
#: Estimators that are registered when their modules are imported, which happens when they are first used or loaded.
LATER = {
    "SummedRegressor": "mixtune.estimators._summed",
    "MultiDomainClassifier": "mixtune.estimators._multi_classifier",
    "MultiDomainRegressor": "mixtune.estimators._multi_domain",
}
#: The arrays of a fitted regressor, by their form. Letters stand for the shape: p features, N domains, n focal rows, d
#: outputs, D the same but nothing for a single target, others for any number. After the shape, "+" stands for positive
#: numbers, "0" for numbers that are not negative, "~" for numbers that may be infinite, "i" for counts from 1 on and
#: "b" for booleans. The first array of n rows says how many these are.
_DISTANCES = ("_distances", "distances_")
_ARRAYS = {
    "pD": ["coef_"],
    "NpD": ["heads_", "_held.heads", "_held.start", "_held.reference"],
    "ND": ["head_intercepts_"],
    "p": [
        "_low",
        "_high",
        "_scaling.shift",
        *(f"_uncertainty.posterior.{part}" for part in ("center", "missing.origin")),
    ],
    "p+": ["_scaling.scale"],
    "D": ["_scaling.target_shift"],
    "nd~": ["_uncertainty.left_out.predictions", "_uncertainty.left_out.residuals"],
    "n+": ["_uncertainty.left_out.spreads", "_uncertainty.left_out.sample_weight", "_state.focal.sample_weight"],
    "mnd~": ["_rival_residuals"],
    "pk": ["_uncertainty.posterior.factor"],
    "pj": ["_uncertainty.posterior.basis"],
    "n": ["_uncertainty.local.rows"],
    "g": ["_uncertainty.posterior.missing.levels"],
    "gp": ["_uncertainty.posterior.missing.slopes"],
    "N0": [f"{place}.values" for place in ("weights_", *_DISTANCES)],
    "N~": [f"{place}.scores" for place in ("weights_", *_DISTANCES)] + [f"{place}.relevance" for place in _DISTANCES],
    "Nb": [f"{place}.admitted" for place in _DISTANCES],
    "Ni": [f"{place}.counts" for place in _DISTANCES],
    "N": ["candidates_.weights"],
    "r~": ["ridge_path_.ridges", "ridge_path_.loo_errors"],
    "np": ["_state.focal.X"],
    "nD": ["_state.focal.y"],
}
#: More rows than this, each counting as its sample weight, have no square in float64.
_HEAVIEST = 1e150
_ADVICE = ": set weights to a rule of mixtune.weights, or after the fit to model.weights_.as_dict()"

E = TypeVar("E", bound="Savable")


class Savable:
    """Gives an estimator ``save``. A class lists in ``_stored_attributes`` what its own fit sets.

    The lists of base classes are added to it. Attributes that a fit did not set are left out. Where an attribute has to
    be turned into something else, override :meth:`_get_stored` and :meth:`_set_stored`.
    """

    _stored_attributes: ClassVar[tuple[str, ...]] = ()
    #: What some of them must be in a file; arrays are checked by themselves.
    _stored_types: ClassVar[dict[str, Any]] = {}

    def save(
        self, path: str | Path, *, store_feature_map: bool = True, metadata: Mapping[str, Any] | None = None
    ) -> Path:
        """Write the fitted model into one file, from which :func:`mixtune.estimators.load` builds it again.

        The file is written whole or not at all, and read back before it takes its place. It holds the settings, the
        fitted attributes and what further fitting and intervals need: sums over the rows of every domain, and the
        features and targets of the focal rows themselves (and of sources with fewer rows than features). Share it only
        with people who may see these. A file that is replaced keeps its permissions.

        Parameters
        ----------
        path : str or Path
            The file to write, such as "model.mixtune"; an existing file is replaced.
        store_feature_map : bool
            Store the feature map as well. Otherwise the same map has to be passed to ``load``, and only what is needed
            to recognise it is stored.
        metadata : mapping, optional
            Any JSON data, which :func:`mixtune.estimators.read_info` returns.

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
        if _registry.name_of("estimator", self) is None:
            raise ParameterError(
                f"{type(self).__name__} cannot be saved: a file names its estimator, and only registered names are "
                "loaded; decorate the class with mixtune.estimators.savable"
            )
        if metadata is not None and not isinstance(metadata, Mapping):
            raise ParameterError(f"metadata is a {type(metadata).__name__}; pass a dict of JSON data")
        feature_map = fitted_map(self)
        store = to_spec if store_feature_map or feature_map is None else given_spec
        map_spec, map_arrays = store(feature_map)
        writer = _registry.Writer(feature_map, advice={"settings.weights": _ADVICE})
        spec = {
            "spec_version": SPEC_VERSION,
            "estimator": writer.write(self, ""),
            "feature_map": map_spec,
            "created_with": created_with(),
            "metadata": dict(metadata or {}),
        }
        return write_model(path, spec, joined_arrays({"feature_map": map_arrays, "model": writer.arrays}))

    @classmethod
    def _stored_names(cls) -> list[str]:
        """What this class and its bases declare, those of the bases first."""
        lists = [base.__dict__.get("_stored_attributes", ()) for base in reversed(cls.__mro__)]
        return list(dict.fromkeys(name for names in lists for name in names))

    def _get_stored(self) -> dict[str, Any]:
        """Fitted attributes by name, as they go into the file."""
        return {name: getattr(self, name) for name in self._stored_names() if hasattr(self, name)}

    def _check_loaded(self: Any, width: int) -> None:
        """Refuse a regressor whose arrays do not fit each other or its ``width`` features, or hold impossible numbers.

        Everything that predictions, intervals and reports compute with is checked here, once.
        """
        _registry.check_array("coef_", self.coef_, (width, *self.coef_.shape[1:2]))
        outputs = self.coef_.shape[1:]
        sizes = {"p": width, "N": len(self.domain_names_), "d": outputs[0] if outputs else 1}
        placed = ((place, code) for code, places in _ARRAYS.items() for place in places)
        for place, code in placed:
            found = [self]
            for step in place.split("."):
                # What stands there may be a tuple, and then each member counts.
                members = [each for value in found for each in (value if type(value) is tuple else [value])]
                found = [part for each in members if (part := getattr(each, step, None)) is not None]
            for array in found:
                shape: list[int] = []
                for position, letter in enumerate(filter(str.isalpha, code.rstrip("ib"))):
                    if letter != "D" and letter not in sizes:
                        sizes[letter] = array.shape[position] if np.ndim(array) > position else 0
                    shape += outputs if letter == "D" else [sizes[letter]]
                least = {"+": np.nextafter(0.0, 1.0), "0": 0.0, "i": 1.0}.get(code[-1], -np.inf)
                kind = code[-1] if code[-1] in "ib" else "f"
                _registry.check_array(place, array, tuple(shape), kind=kind, least=least, limits=code[-1] != "~")
        _registry.check_array("intercept_", np.asarray(self.intercept_), outputs)
        if any(np.any(each.columns.places >= width) for each in self._uncertainty.local or ()):
            raise DataError("the file holds a local spread of features that there are not; save the model again")
        shares, rows = getattr(self, "weights_", None), self._uncertainty.left_out.sample_weight
        if shares is not None and abs(float(np.sum(shares.values)) - 1.0) > 1e-6:
            raise DataError("the file holds weights of domains that do not add up to 1; save the model again")
        totals = [m.gram[-1, -1] for m in getattr(getattr(self, "_state", None), "moments", ()) if m.rows is None]
        if not all(0 < total < _HEAVIEST for total in (np.sum(np.minimum(rows, _HEAVIEST)), *totals)):
            raise DataError("the file holds domains without rows, or of too many; save the model again")

    def _set_stored(self, values: dict[str, Any]) -> None:
        """Take over what :meth:`_get_stored` gave."""
        for name, value in values.items():
            setattr(self, name, value)


def created_with() -> dict[str, str]:
    """The versions of mixtune, of what it stands on, and of Python."""
    versions = {"mixtune": __version__, "numpy": np.__version__, "scikit-learn": sklearn.__version__}
    return {**versions, "python": platform.python_version()}


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
    _registry.register("estimator", cls.__name__, cls, _take_apart, partial(_build, cls))
    return cls


def fitted_map(model: Any) -> Any:
    """The feature map of a fitted estimator: the one that it was given, or that it made."""
    return getattr(model, "feature_map_", model.feature_map)


def _take_apart(model: Any, feature_map: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and fitted attributes; the feature map, which all estimators of a file share, is stored on its own."""
    settings = model.get_params(deep=False)
    # That maps are to be made is a setting like any other.
    given = None if isinstance(settings["feature_map"], str) else settings.pop("feature_map")
    if feature_map is not (fitted_map(model) if "feature_map" in settings else given):
        raise ParameterError("feature_map was replaced after the fit; fit again, then save")
    return settings, model._get_stored()


#: Fitted attributes that files of version 0.1 hold under another name.
_FORMER = {"n_plays_": "n_validation_sources_"}


def _build(cls: Any, settings: dict[str, Any], fitted: dict[str, Any], feature_map: Any) -> Any:
    fitted = {_FORMER.get(name, name): value for name, value in fitted.items()}
    # Only what the class itself would store: a file must not put anything in the place of a method.
    if unknown := sorted(set(fitted) - set(cls._stored_names())):
        raise DataError(f"the file holds {quoted(unknown)}, which {cls.__name__} does not know; update mixtune")
    for name, kind in cls._stored_types.items():
        if not isinstance(found := fitted.get(name), kind):
            raise DataError(f'the file holds "{name}" as {type(found).__name__}, not as a fit makes it; save it again')
    model = cls(**{"feature_map": feature_map, **settings})
    model._made_map = feature_map if "feature_map" in settings else None
    model._set_stored(fitted)
    return model


def load(path: str | Path, *, feature_map: Any = None, networks: Mapping[str, Any] | None = None) -> Any:
    """Build a model again from a file of its ``save``: the same class, settings, predictions and intervals.

    What :meth:`mixtune.TableModel.save` wrote is a :class:`mixtune.TableModel` again, which predicts from tables.

    Parameters
    ----------
    path : str or Path
    feature_map : object with transform(X), optional
        The map of the fit, where the model was saved without it (``store_feature_map=False``).
    networks : mapping name -> module, optional
        PyTorch modules for the feature map to put its stored tensors into, by the names in the file. The error of a
        load without them lists those that are needed.

    Returns
    -------
    estimator or TableModel
        What was saved; ``partial_fit`` and ``forget`` of a :class:`RegretOptimalRegressor` still work.

    Raises
    ------
    DataError
        If the file is missing, truncated, altered, not a model, or of a newer version.
    ParameterError
        If the feature map or a module is missing, or is another one.

    Examples
    --------
    >>> load("nowhere.mixtune")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: there is no file nowhere.mixtune; check the name and the folder
    """
    if read_info(path).metadata.get("made_by") == FIT_TABLE:
        from mixtune.estimators._table import TableModel

        return TableModel.load(path)
    return load_estimator(path, feature_map=feature_map, networks=networks)


def load_estimator(path: str | Path, *, feature_map: Any = None, networks: Mapping[str, Any] | None = None) -> Any:
    """The fitted estimator in a file, also in that of a :class:`mixtune.TableModel`; parameters are those of load."""
    spec, arrays = _read(path)
    _import_estimator(spec["estimator"]["name"])
    map_arrays = arrays_below(arrays, "feature_map")
    built_map = from_spec(spec["feature_map"], map_arrays, networks=networks, feature_map=feature_map)
    model = _registry.Reader(arrays_below(arrays, "model"), built_map).read(spec["estimator"])
    if not isinstance(model, Savable) or not isinstance(getattr(model, "coef_", None), np.ndarray):
        raise DataError(f"{path} holds no fitted estimator; save the model again")
    regressor: Any = getattr(model, "regressor_", model)
    with _registry.building("the model"):
        made = fitted_map(regressor)
        regressor._check_loaded(regressor.n_features_in_ if made is None else made.n_features_out)
    return model


def _import_estimator(name: str) -> None:
    """Import the module that registers an estimator, where that has not happened yet."""
    if name in LATER:
        import_module(LATER[name])
    elif ("estimator", name) not in _registry.ENTRIES and (name in EXTRAS or name in offered("mixtune.estimators")):
        load_offered("mixtune.estimators", name, f"loading a {name}")


class SavedInfo(NamedTuple):
    """Description of a model file, read without building the model.

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
    """Read the description of a saved model, and the metadata that were saved with it.

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


def _read(path: str | Path) -> tuple[dict[str, Any], Arrays]:
    spec, arrays = read_model(path)
    version = spec.get("spec_version")
    if type(version) is not int or version < 1:
        raise DataError(f"{path} holds no estimator: its spec has no version; pass a file that was written by save")
    if version > SPEC_VERSION:
        writer = dict(spec.get("created_with") or {}).get("mixtune", "a newer one")
        readable = f"this mixtune {__version__} reads versions up to {SPEC_VERSION}"
        raise DataError(f"{path} has spec version {version} (written by mixtune {writer}), {readable}; update mixtune")
    parts = ("estimator", "feature_map", "created_with", "metadata")
    if any(not isinstance(spec.get(part), dict) for part in parts) or not (
        isinstance(spec["estimator"].get("name"), str) and isinstance(spec["feature_map"].get("kind"), str)
    ):
        raise DataError(f"{path} holds no estimator: its spec lacks one of {quoted(parts)}; save the model again")
    return spec, arrays


# A file names these classes; one that is renamed keeps its name here, with storable(cls, name="OldName"). Classes of
# the estimators themselves are registered where they are defined.
_VALUES: list[type] = [moments.Rows, moments.Scaling, moments.LeaveOneOut, moments.Missing, moments.Posterior]
_VALUES += [choice.SpreadColumns, choice.LocalSpread]
_VALUES += [weights.EqualWeights, weights.GivenWeights, weights.PredictiveWeights, weights.WassersteinWeights]
_VALUES += [weights.DomainWeights, weights.TransportWeights, transport.TransportDistance, transport.Diameter]
for _cls in _VALUES:
    _registry.storable(_cls)
