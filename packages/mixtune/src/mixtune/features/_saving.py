"""Feature maps as plain settings and arrays, so that a fitted model can be saved with its map and without pickle.

Every class of maps is registered (:mod:`mixtune._registry`) with a name, a function that writes a map down as settings
and arrays, and one that builds it again. A file holds only the name, the settings and the arrays.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mixtune._messages import quoted
from mixtune._registry import building, entry_named, field_values, name_of, register
from mixtune.errors import DataError, ParameterError
from mixtune.features._base import Clipped, Concatenate, FeatureMap, Identity, Projected, Scaled
from mixtune.features._sklearn import probe, same_features
from mixtune.files import array_digest, arrays_below, joined_arrays, plain_spec

Spec = tuple[dict[str, Any], dict[str, Any]]


@dataclass
class _Supplied:
    """What the user hands over for a map to be built again: modules by name, or the map itself."""

    networks: Mapping[str, Any]
    feature_map: Any
    used: list[str] = field(default_factory=list)


class _Outside:
    """Stands for the class of a map that is not in the file."""


def to_spec(feature_map: Any) -> Spec:
    """Write a feature map down.

    Parameters
    ----------
    feature_map
        A map of this library, a map of a registered class, or None.

    Returns
    -------
    spec, arrays
        What JSON can hold, and NumPy arrays by name.

    Raises
    ------
    ParameterError
        If the map cannot be written down, with what can be done about it.

    Examples
    --------
    >>> spec, arrays = to_spec(Identity(2, constant=True))
    >>> spec["kind"], spec["settings"]
    ('identity', {'n_inputs': 2, 'constant': True})
    >>> from_spec(spec, arrays)
    Identity(n_inputs=2, constant=True)
    """
    return _write(feature_map, [])


def from_spec(
    spec: Mapping[str, Any],
    arrays: Mapping[str, Any],
    *,
    networks: Mapping[str, Any] | None = None,
    feature_map: Any = None,
) -> Any:
    """Build a feature map again.

    Parameters
    ----------
    spec, arrays
        From :func:`to_spec` or :func:`given_spec`.
    networks
        The PyTorch modules that the map needs, by the names in the spec. Their architecture counts: copies of them
        get the stored tensors.
    feature_map
        The map itself, where it was not saved with the model.

    Returns
    -------
    FeatureMap or None
        What was written down; its features are the same, bit for bit.

    Raises
    ------
    DataError
        If spec and arrays do not belong together, or are of a kind that is not registered here.
    ParameterError
        If a module or map that is needed is missing or is another one.
    """
    supplied = _Supplied(dict(networks or {}), feature_map)
    built = _read(spec, arrays, supplied)
    if feature_map is not None and built is not feature_map:
        raise ParameterError("the file holds its own feature map; leave feature_map out")
    if unknown := sorted(set(supplied.networks) - set(supplied.used)):
        known = f"it needs {quoted(supplied.used)}" if supplied.used else "it needs none"
        raise ParameterError(f"networks has {quoted(unknown)}, which the feature map does not know; {known}")
    return built


def given_spec(feature_map: Any) -> Spec:
    """Write down only how to recognise a map that is not saved with the model.

    The features of three made-up rows are stored, where the map knows its number of inputs and takes such rows; the map
    that is handed over later must give the same.

    Examples
    --------
    >>> spec, arrays = given_spec(Identity(2))
    >>> from_spec(spec, arrays, feature_map=Identity(3))
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: feature_map gives 3 features, the model was fitted on 2; pass the same map
    """
    if not isinstance(feature_map, FeatureMap):
        raise ParameterError(f"a {type(feature_map).__name__} is no feature map: it needs transform and n_features_out")
    settings = {"type": type(feature_map).__name__, "n_features_out": int(feature_map.n_features_out)}
    return _spec("given", settings, {} if (features := probe(feature_map)) is None else {"probe": features})


def register_feature_map(
    kind: str,
    cls: type,
    *,
    write: Callable[[Any], tuple[Mapping[str, Any], Mapping[str, Any]]],
    read: Callable[[dict[str, Any], dict[str, Any]], Any],
) -> None:
    """Let models with your own feature map be saved and loaded.

    Call it where the model is saved and where it is loaded: the file holds only the name of the kind.

    Parameters
    ----------
    kind
        The name in the file, such as "acme.spectrum"; choose one that no other library takes.
    cls
        The class of the maps; subclasses are registered on their own.
    write
        Turns a map into settings that JSON can hold and arrays by name.
    read
        Turns them back into a map.

    Examples
    --------
    >>> @dataclass
    ... class Scaled:
    ...     factor: float
    ...     n_features_out: int
    ...
    ...     def transform(self, X, /):
    ...         return self.factor * X
    >>> register_feature_map(
    ...     "example.scaled",
    ...     Scaled,
    ...     write=lambda scaled: ({"factor": scaled.factor, "width": scaled.n_features_out}, {}),
    ...     read=lambda settings, arrays: Scaled(settings["factor"], settings["width"]),
    ... )
    >>> from_spec(*to_spec(Scaled(0.5, 2)))
    Scaled(factor=0.5, n_features_out=2)
    """
    if not isinstance(kind, str) or not kind.strip():
        raise ParameterError(f"kind={kind!r} must be a name, such as 'acme.spectrum'")
    if not isinstance(cls, type) or not callable(write) or not callable(read):
        raise ParameterError("pass the class of the maps, and the functions write and read")

    def checked(settings: dict[str, Any], arrays: dict[str, Any], _: _Supplied) -> Any:
        if type(built := read(settings, arrays)) is not cls:
            wanted = f"let it return a {cls.__name__}, as registered"
            raise ParameterError(f'read of kind "{kind}" gave a {type(built).__name__}; {wanted}')
        return built

    register("feature map", kind, cls, lambda each, networks: write(each), checked)


def _write(feature_map: Any, networks: list[str]) -> Spec:
    kind = name_of("feature map", feature_map)
    if kind is None:
        cls = type(feature_map).__name__
        raise ParameterError(
            f"a feature map of class {cls} cannot be saved; tell how with register_feature_map(kind, {cls}, write=..., "
            "read=...), or save the model without its map and hand the map over again with load(path, feature_map=...)"
        )
    return _spec(kind, *entry_named("feature map", kind).write(feature_map, networks))


def _spec(kind: str, settings: Mapping[str, Any], arrays: Mapping[str, Any]) -> Spec:
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    return {"kind": kind, "settings": plain_spec(settings), "sha256": array_digest(arrays)}, arrays


def _read(spec: Any, arrays: Mapping[str, Any], supplied: _Supplied) -> Any:
    kind, settings = (spec.get("kind"), spec.get("settings")) if isinstance(spec, Mapping) else (None, None)
    if not isinstance(kind, str) or not isinstance(settings, dict):
        raise DataError("the spec is not that of a feature map: it lacks kind or settings")
    entry = entry_named("feature map", kind)
    if array_digest(arrays) != spec.get("sha256"):
        raise DataError(f'the arrays are not those of the feature map of kind "{kind}": their hash differs')
    # A ParameterError is about what the user supplied, and anything else about the file.
    with building(f'the feature map of kind "{kind}"', ParameterError):
        return entry.read(dict(settings), dict(arrays), supplied)


def _read_outside(settings: dict[str, Any], arrays: dict[str, Any], supplied: _Supplied) -> Any:
    if supplied.feature_map is None:
        kind = settings["type"]
        raise ParameterError(f"the file was saved without its feature map, a {kind}; pass that map as feature_map")
    found, found_arrays = given_spec(supplied.feature_map)
    width, wanted = found["settings"]["n_features_out"], settings["n_features_out"]
    if width != wanted:
        raise ParameterError(f"feature_map gives {width} features, the model was fitted on {wanted}; pass the same map")
    if "probe" in arrays and not same_features(arrays["probe"], found_arrays.get("probe")):
        raise ParameterError("feature_map gives other features than in the fit; pass the same map, with its weights")
    return supplied.feature_map


def _write_parts(joint: Concatenate, networks: list[str]) -> Spec:
    specs, arrays = zip(*(_write(part, networks) for part in joint.maps), strict=True)
    return {"maps": specs}, joined_arrays(dict(enumerate(arrays)))


def _read_parts(settings: dict[str, Any], arrays: dict[str, Any], supplied: _Supplied) -> Concatenate:
    parts = enumerate(settings["maps"])
    return Concatenate([_read(spec, arrays_below(arrays, place), supplied) for place, spec in parts])


def _register_wrapper(name: str, kind: Any, *fields: str) -> None:
    """A map around another, which is its first argument; the others are arrays."""

    def write(outer: Any, networks: list[str]) -> Spec:
        spec, arrays = _write(outer.inner, networks)
        return {"inner": spec}, {**joined_arrays({"inner": arrays}), **{each: getattr(outer, each) for each in fields}}

    def read(settings: dict[str, Any], arrays: dict[str, Any], supplied: _Supplied) -> Any:
        inner = _read(settings["inner"], arrays_below(arrays, "inner"), supplied)
        return kind(inner, *(arrays[each] for each in fields))

    register("feature map", name, kind, write, read)


register("feature map", "none", type(None), lambda *_: ({}, {}), lambda *_: None)
register("feature map", "identity", Identity, lambda same, _: (field_values(same), {}), lambda s, *_: Identity(**s))
register("feature map", "concatenate", Concatenate, _write_parts, _read_parts)
_register_wrapper("clipped", Clipped, "low", "high")
_register_wrapper("scaled", Scaled, "shift", "scale")
_register_wrapper("projected", Projected, "shift", "basis")
register("feature map", "given", _Outside, given_spec, _read_outside)
