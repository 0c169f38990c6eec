"""Feature maps as plain settings and arrays, so that a fitted model can be saved with its map and without pickle.

Every kind of map has a name in a registry, a function that writes it down and one that builds it again. A file holds
only the name, the settings and the arrays; it can choose among what is registered, and never brings code of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune._files import array_digest
from mixtune._messages import nearest, quoted
from mixtune.errors import DataError, ParameterError
from mixtune.features._combine import Concatenate, Identity
from mixtune.features._protocol import FeatureMap
from mixtune.features._random import RandomFeatures
from mixtune.features._sklearn import SklearnFeatures
from mixtune.features._spec_random import Arrays, Settings, StoredFeatures, read_random, write_random
from mixtune.features._spec_sklearn import is_sklearn, probe, read_sklearn, same_features, write_sklearn
from mixtune.features._spec_torch import Networks, read_torch, write_torch
from mixtune.features._torch import TorchFeatures

__all__ = ["from_spec", "given_spec", "register_feature_map", "to_spec"]

_HAND_OVER = "save the model without its map and hand the map over again with load(path, feature_map=...)"


@dataclass(frozen=True)
class _Kind:
    """How maps of one class are written down and built again; networks travel beside, by name."""

    cls: type
    write: Callable[[Any, Networks], tuple[Settings, Arrays]]
    read: Callable[[Settings, Arrays, Networks], Any]
    own: bool = True


def to_spec(feature_map: Any, *, store_networks: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write a feature map down.

    Parameters
    ----------
    feature_map
        A map of this library, a fitted scikit-learn transformer of a supported kind, a map of a registered class, or
        None.
    store_networks
        Whether to store the tensors of PyTorch modules. Without them the file is small, and the same module with the
        same weights has to be there when the map is built again; their hash is stored in any case.

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
    return _write(feature_map, Networks(store=store_networks))


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
        The map itself, where the spec says that it was kept outside the file.

    Returns
    -------
    FeatureMap, scikit-learn transformer or None
        What was written down; its features are the same, bit for bit.

    Raises
    ------
    DataError
        If spec and arrays do not belong together, or are of a kind that is not registered here.
    ParameterError
        If a module or map that is needed is missing or is another one.
    """
    modules = Networks(given=dict(networks or {}))
    outside = isinstance(spec, Mapping) and spec.get("kind") == "given"
    if feature_map is not None and not outside:
        raise ParameterError("the file holds its own feature map; leave feature_map out")
    try:
        built = _read_given(spec, arrays, feature_map) if outside else _read(spec, arrays, modules)
    except RecursionError as error:
        raise DataError("the feature map in the file is nested too deeply") from error
    if unknown := sorted(set(modules.given) - set(modules.used)):
        known = f"it needs {quoted(modules.used)}" if modules.used else "it needs none"
        raise ParameterError(f"networks has {quoted(unknown)}, which the feature map does not know; {known}")
    return built


def given_spec(feature_map: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write down only how to recognise a map that is kept outside the file.

    The features of three made-up rows are stored, where the map knows its number of inputs and takes such rows; the map
    that is handed over later must give the same.

    Examples
    --------
    >>> spec, arrays = given_spec(Identity(2))
    >>> from_spec(spec, arrays, feature_map=Identity(3))
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: feature_map gives 3 features, the model was fitted on 2; pass the map of the fit
    """
    ready = SklearnFeatures(feature_map) if is_sklearn(feature_map) else feature_map
    if not isinstance(ready, FeatureMap):
        raise ParameterError(f"a {type(ready).__name__} is no feature map: it needs transform and n_features_out")
    arrays = {} if (features := probe(ready)) is None else {"probe": features}
    settings = {"type": type(feature_map).__name__, "n_features_out": int(ready.n_features_out)}
    return {"kind": "given", "settings": settings, "sha256": array_digest(arrays)}, arrays


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
    taken = _KINDS.get(kind)
    # A module that is imported anew registers a new class of the same name.
    if kind == "given" or (taken and (taken.own or taken.cls.__qualname__ != cls.__qualname__)):
        raise ParameterError(f'the kind "{kind}" is taken; choose another name')
    if any(cls is other.cls and name != kind for name, other in _KINDS.items()):
        raise ParameterError(f"{cls.__name__} is registered already, under another kind")

    def write_it(feature_map: Any, networks: Networks) -> tuple[Settings, Arrays]:
        settings, arrays = write(feature_map)
        return dict(settings), {name: np.asarray(array) for name, array in arrays.items()}

    _KINDS[kind] = _Kind(cls, write_it, lambda settings, arrays, networks: read(settings, arrays), own=False)


def _write(feature_map: Any, networks: Networks) -> tuple[Settings, Arrays]:
    name = _name_of(feature_map)
    settings, arrays = _KINDS[name].write(feature_map, networks)
    return {"kind": name, "settings": settings, "sha256": array_digest(arrays)}, arrays


def _name_of(feature_map: Any) -> str:
    """Find the kind by the exact class: a subclass may compute something else."""
    for name, kind in _KINDS.items():
        if type(feature_map) is kind.cls:
            return name
    if isinstance(feature_map, StoredFeatures):
        return "random"
    if is_sklearn(feature_map):
        return "sklearn"
    cls = type(feature_map).__name__
    raise ParameterError(
        f"a feature map of class {cls} cannot be saved; tell how with register_feature_map(kind, {cls}, write=..., "
        f"read=...), or {_HAND_OVER}"
    )


def _read(spec: Any, arrays: Mapping[str, Any], networks: Networks) -> Any:
    settings, held = _checked(spec, arrays)
    if (kind := _KINDS.get(name := spec["kind"])) is None:
        raise DataError(
            f'the feature map is of kind "{name}", which is not registered here ({nearest(name, list(_KINDS))}); call '
            "register_feature_map before loading, or update mixtune"
        )
    try:
        built = kind.read(settings, held, networks)
    except (KeyError, TypeError) as error:
        raise DataError(f'the feature map of kind "{name}" cannot be built from the file: {error!r}') from error
    if not kind.own and type(built) is not kind.cls:
        raise ParameterError(
            f'read of kind "{name}" gave a {type(built).__name__}; let it return a {kind.cls.__name__}, as registered'
        )
    return built


def _checked(spec: Any, arrays: Mapping[str, Any]) -> tuple[Settings, Arrays]:
    if (
        not isinstance(spec, Mapping)
        or not isinstance(spec.get("kind"), str)
        or not isinstance(spec.get("settings"), dict)
    ):
        raise DataError("the spec is not that of a feature map: it lacks kind or settings")
    if array_digest(arrays) != spec.get("sha256"):
        raise DataError(f'the arrays are not those of the feature map of kind "{spec["kind"]}": their hash differs')
    return dict(spec["settings"]), dict(arrays)


def _read_given(spec: Mapping[str, Any], arrays: Mapping[str, Any], feature_map: Any) -> Any:
    settings, held = _checked(spec, arrays)
    if feature_map is None:
        raise ParameterError(
            f"the file was saved without its feature map, a {settings['type']}; pass that map as feature_map"
        )
    found, found_arrays = given_spec(feature_map)
    width, expected = found["settings"]["n_features_out"], settings["n_features_out"]
    if width != expected:
        raise ParameterError(
            f"feature_map gives {width} features, the model was fitted on {expected}; pass the map of the fit"
        )
    if "probe" in held and not same_features(held["probe"], found_arrays.get("probe")):
        raise ParameterError(
            "feature_map gives other features than the map the model was fitted on; pass that one, with its weights"
        )
    return feature_map


def _write_parts(joint: Concatenate, networks: Networks) -> tuple[Settings, Arrays]:
    parts = [_write(part, networks) for part in joint.maps]
    arrays = {f"{place}.{name}": array for place, (_, held) in enumerate(parts) for name, array in held.items()}
    return {"maps": [spec for spec, _ in parts]}, arrays


def _read_parts(settings: Settings, arrays: Arrays, networks: Networks) -> Concatenate:
    parts: list[Arrays] = [{} for _ in settings["maps"]]
    for name, array in arrays.items():
        place, _, inner = name.partition(".")
        if not place.isdecimal() or int(place) >= len(parts):
            raise DataError(f'array "{name}" belongs to none of the {len(parts)} maps')
        parts[int(place)][inner] = array
    return Concatenate([_read(spec, held, networks) for spec, held in zip(settings["maps"], parts, strict=True)])


_KINDS: dict[str, _Kind] = {
    "none": _Kind(type(None), lambda nothing, networks: ({}, {}), lambda settings, arrays, networks: None),
    "identity": _Kind(
        Identity,
        lambda same, networks: ({"n_inputs": int(same.n_inputs), "constant": bool(same.constant)}, {}),
        lambda settings, arrays, networks: Identity(settings["n_inputs"], constant=settings["constant"]),
    ),
    "random": _Kind(RandomFeatures, write_random, read_random),
    "concatenate": _Kind(Concatenate, _write_parts, _read_parts),
    "sklearn": _Kind(SklearnFeatures, write_sklearn, read_sklearn),
    "torch": _Kind(TorchFeatures, write_torch, read_torch),
}
