"""PyTorch modules as named tensors with a hash; the architecture is code, and comes back from the user by name.

Loading needs a module of the same layers. A copy of it gets the stored tensors, and the hash then says that the copy
is, weight for weight, what the head was fitted on. A module that has these weights already needs no stored ones.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from mixtune._files import array_digest
from mixtune._messages import quoted
from mixtune.errors import ParameterError
from mixtune.features._torch import TorchFeatures, _import_torch

__all__ = ["Networks", "read_torch", "write_torch"]


@dataclass
class Networks:
    """The modules met on the way through a feature map: named when saving, handed over by name when loading."""

    store: bool = True
    given: dict[str, Any] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)

    def new_name(self) -> str:
        """Name the next module: "network", then "network_2" and so on."""
        self.used.append(f"network_{len(self.used) + 1}" if self.used else "network")
        return self.used[-1]


def write_torch(features: TorchFeatures, networks: Networks) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write down the settings of the map, the layers and tensors of its module, and their hash."""
    tensors = _tensors(features.module)
    settings = {
        "network": networks.new_name(),
        "class": type(features.module).__name__,
        "layers": _layers(features.module),
        "tensors_sha256": array_digest(tensors),
        "stored": networks.store,
        **{key: getattr(features, key) for key in ("cut", "found_cut", "batch_size", "dtype", "n_features_out")},
    }
    return settings, tensors if networks.store else {}


def read_torch(settings: dict[str, Any], arrays: dict[str, Any], networks: Networks) -> TorchFeatures:
    """Give a copy of the module handed over the stored tensors, and check that it is then the one saved."""
    torch = _import_torch()
    name = settings["network"]
    networks.used.append(name)
    if (module := networks.given.get(name)) is None:
        raise ParameterError(
            f"the model was fitted on the features of a network, a {settings['class']} with "
            f"{len(settings['layers'])} layers; pass networks={{{name!r}: module}} with a module of that architecture"
        )
    if not isinstance(module, torch.nn.Module):
        raise ParameterError(f"networks[{name!r}] is a {type(module).__name__}; pass a torch.nn.Module")
    if (layers := _layers(module)) != settings["layers"]:
        raise ParameterError(
            f"networks[{name!r}] is of another architecture: {_first_difference(layers, settings['layers'])}; "
            "pass a module built as the saved one was"
        )
    twin = copy.deepcopy(module).to(getattr(torch, settings["dtype"]))
    if array_digest(_tensors(twin)) != settings["tensors_sha256"]:
        _load(twin, name, settings, arrays)
    features = TorchFeatures(
        twin,
        cut="auto" if settings["found_cut"] else settings["cut"],
        batch_size=settings["batch_size"],
        # Where the module was put is where it computes; the saved one may have been on another machine.
        device=next((str(tensor.device) for tensor in module.parameters()), "cpu"),
        dtype=settings["dtype"],
        n_features_out=settings["n_features_out"],
    )
    if features.cut != settings["cut"]:
        raise ParameterError(
            f'networks[{name!r}] ends at its layer "{features.cut}", the saved one at "{settings["cut"]}"; '
            "pass a module built as the saved one was"
        )
    return features


def _load(twin: Any, name: str, settings: dict[str, Any], arrays: dict[str, Any]) -> None:
    torch = _import_torch()
    if not settings["stored"]:
        raise ParameterError(
            f"networks[{name!r}] has other weights than the network the model was fitted on, and the file holds only "
            "their hash; pass the network with the weights it had"
        )
    own = {key: list(tensor.shape) for key, tensor in _tensors(twin).items()}
    stored = {key: list(tensor.shape) for key, tensor in arrays.items()}
    if own != stored:
        difference = _first_difference(sorted(own.items()), sorted(stored.items()))
        raise ParameterError(
            f"networks[{name!r}] has other tensors than the saved one: {difference}; pass a module built as that one"
        )
    # PyTorch does not take read-only memory, hence the copies.
    twin.load_state_dict({key: torch.tensor(array) for key, array in arrays.items()})
    if array_digest(_tensors(twin)) != settings["tensors_sha256"]:
        raise ParameterError(
            f"networks[{name!r}] does not keep the stored weights as they are; pass a module whose tensors have the "
            "types of the saved one"
        )


def _tensors(module: Any) -> dict[str, Any]:
    """Read parameters and buffers as NumPy arrays."""
    torch = _import_torch()
    found = {}
    for key, tensor in module.state_dict().items():
        if not isinstance(tensor, torch.Tensor):
            raise ParameterError(f'"{key}" in the state of the module is no tensor; the module cannot be saved')
        if torch.nn.parameter.is_lazy(tensor):
            raise ParameterError(f'"{key}" of the module has no shape yet; run the module once on some rows')
        try:
            found[key] = tensor.detach().cpu().numpy()
        except (RuntimeError, TypeError) as error:
            raise ParameterError(f'"{key}" of the module cannot be saved: {error}') from error
    return found


def _layers(module: Any) -> list[list[str]]:
    """List the layers with their classes: tensors alone do not tell a ReLU from a tanh."""
    return [[name, type(layer).__name__] for name, layer in module.named_modules()]


def _first_difference(found: list[Any], expected: list[Any]) -> str:
    for have, want in zip(found, expected, strict=False):
        if have != want:
            return f'"{have[0]}" is {have[1]} where the saved one has "{want[0]}", {want[1]}'
    longer, whose = (found, "only it has") if len(found) > len(expected) else (expected, "it lacks")
    rest = [str(entry[0]) for entry in longer[min(len(found), len(expected)) :]]
    return f"{whose} {quoted(rest)}"
