"""Any PyTorch module, cut before its last layer, as a frozen feature map; and features of rows on PyTorch's devices.

PyTorch is imported when a map is made, not with this file: without it, everything else here still works.

A module is saved as named tensors with a hash. Its architecture is code, which a file never holds: loading takes a
module of the same layers from the user and gives a copy of it the stored tensors. The hash then confirms that the copy
is, weight for weight, the module that the model was fitted on.

:class:`RandomFeatures`, :class:`Identity` and :class:`TorchFeatures` compute where their inputs are, and so do they
joined by :class:`Concatenate`. All other maps (scikit-learn's transformers, the user's own) are given NumPy arrays, and
their features are moved. A device is None for NumPy, or a name that PyTorch knows (:mod:`mixtune.arrays`).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from mixtune._messages import nearest
from mixtune._registry import register
from mixtune.arrays import Array, slices, to_device, to_numpy, torch_module
from mixtune.checks import check_choice, check_whole, set_fields
from mixtune.errors import DataError, ParameterError
from mixtune.features._base import DTYPES, Concatenate, Identity, check_finite, join, transform_by_name
from mixtune.features._random import RandomFeatures
from mixtune.files import array_digest


@dataclass(frozen=True, eq=False)
class TorchFeatures:
    """The inputs of the last layer of a PyTorch module.

    Parameters
    ----------
    module
        The ``torch.nn.Module``. It is copied, and the copy set to evaluation: the module's training flag,
        parameters and hooks stay as they are, and training it further does not change the features.
    cut
        Name of the layer whose **input** is the features, as in ``module.named_modules()``. "auto" takes the
        last child of an ``nn.Sequential``, and otherwise the last ``nn.Linear`` in the order of registration.
        ``None`` keeps the whole module and takes its output.
    batch_size
        How many rows go through the module at once.
    device
        Where the copy computes, such as "cpu" or "cuda".
    dtype
        "float32" or "float64": what the copy and ``X`` are converted to, and the type of the features.
    n_features_out
        Number of features. By default it is read off the linear layer next to the cut; give it where there is
        none, or where features of more than two dimensions are flattened.

    Notes
    -----
    Features with more than two dimensions are flattened row by row, in C order: (n, c, h, w) gives c * h * w
    features. If the layer cut at is called more than once, its first call counts.

    Examples
    --------
    >>> import torch
    >>> network = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    >>> features = TorchFeatures(network)
    >>> features.n_features_out
    3
    >>> features.transform(np.ones((4, 2))).shape
    (4, 3)
    """

    module: Any = field(repr=False)
    _: KW_ONLY
    cut: str | None = "auto"
    batch_size: int = 1024
    device: str = "cpu"
    dtype: str = "float32"
    n_features_out: int = None  # type: ignore[assignment]
    found_cut: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        torch, module = torch_module("TorchFeatures"), self.module
        if not isinstance(module, torch.nn.Module):
            raise ParameterError(f"module is a {type(module).__name__}; pass a torch.nn.Module")
        check_choice("dtype", self.dtype, DTYPES)
        check_whole("batch_size", self.batch_size, least=1)
        found_cut = self.cut == "auto"
        cut = _find_cut(torch, module) if found_cut else self.cut
        layers = [name for name, _ in module.named_modules() if name]
        if cut is not None and cut not in layers:
            advice = nearest(str(cut), layers) if layers else "it has none inside; pass cut=None"
            raise ParameterError(f"cut={cut!r} is not a layer of the module; {advice}")
        width = _guess_width(torch, module, cut) if self.n_features_out is None else self.n_features_out
        check_whole("n_features_out", width, least=1)
        try:
            frozen = copy.deepcopy(module).eval().to(device=self.device, dtype=getattr(torch, self.dtype))
        except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
            # PyTorch built without CUDA says so with an AssertionError.
            finding = f'the module cannot be copied to device="{self.device}" as {self.dtype}: {error}'
            raise ParameterError(f'{finding}; use device="cpu" where there is no such device') from error
        if cut is not None:
            frozen.get_submodule(cut).register_forward_pre_hook(_stop, with_kwargs=True)
        set_fields(
            self, module=frozen, cut=cut, found_cut=found_cut, device=str(self.device), n_features_out=int(width)
        )

    def transform(self, X: Array, /) -> Array:
        """Compute the features of the rows of ``X``, batch by batch and without gradients.

        Parameters
        ----------
        X
            Array or tensor whose first dimension is the rows; the module decides what the others may be.

        Returns
        -------
        array of shape (n, n_features_out)
            A tensor on the device of ``X`` if ``X`` is one, else a NumPy array.
        """
        torch = torch_module("TorchFeatures")
        dtype = getattr(torch, self.dtype)
        rows = X.detach() if is_torch_array(X) else np.asarray(X)
        if rows.ndim < 2:
            raise DataError(f"X has shape {tuple(rows.shape)}; pass rows by columns")
        # Made outside inference mode, so that a layer may later be trained on the features with gradients.
        shape = (rows.shape[0], self.n_features_out)
        U = torch.empty(shape, dtype=dtype, device=rows.device if is_torch_array(rows) else "cpu")
        for start in range(0, rows.shape[0], self.batch_size):
            batch: Array = rows[start : start + self.batch_size]
            if not is_torch_array(batch):
                # PyTorch does not take read-only NumPy memory, hence the copy.
                batch = torch.from_numpy(np.array(batch))
            # Whole numbers stay whole: they are tokens for an embedding, or the module refuses them itself.
            whole = not (batch.is_floating_point() or batch.dtype == torch.bool) and self._takes_tokens
            batch = batch.to(device=self.device, dtype=torch.int64 if whole else dtype)
            check_finite(batch.reshape(batch.shape[0], -1), "X", start)
            with torch.inference_mode():
                if start == 0 and self.found_cut and not isinstance(self.module, torch.nn.Sequential):
                    self._check_cut(torch, batch[:1])
                features = self._forward(batch)
            check_finite(features, "the features", start)
            U[start : start + self.batch_size] = features
        return U if is_torch_array(X) else U.numpy()

    def moved_to(self, device: str) -> TorchFeatures:
        """The same map with a copy of the module on another device."""
        other = copy.copy(self)
        set_fields(other, module=copy.deepcopy(self.module).to(device), device=device)
        return other

    @property
    def _takes_tokens(self) -> bool:
        torch = torch_module("TorchFeatures")
        return any(isinstance(layer, torch.nn.Embedding | torch.nn.EmbeddingBag) for layer in self.module.modules())

    def _check_cut(self, torch: Any, row: Array) -> None:
        """A layer found by its place in the module must also be the last linear one to run."""
        ran: list[str] = []
        linear = [(n, m) for n, m in self.module.named_modules() if isinstance(m, torch.nn.Linear)]
        handles = [m.register_forward_pre_hook(lambda *_, name=n: ran.append(name)) for n, m in linear]
        hooks = self.module.get_submodule(self.cut)._forward_pre_hooks
        kept = dict(hooks)
        hooks |= {key: lambda *_: None for key, hook in kept.items() if hook is _stop}
        try:
            self.module(row)
        except (RuntimeError, IndexError):
            return  # what the module cannot take is reported by the real pass
        finally:
            hooks |= kept
            for handle in handles:
                handle.remove()
        if ran and ran[-1] != self.cut:
            raise ParameterError(f'the last linear layer that runs is not "{self.cut}"; pass cut="{ran[-1]}"')

    def _forward(self, batch: Array) -> Array:
        """Run one batch up to the cut and flatten what is there."""
        try:
            features = self.module(batch)
            if self.cut is not None:
                raise ParameterError(f'the module never calls its layer "{self.cut}"; name another one with cut')
        except _ReachedCut as reached:
            features = reached.features
        except (RuntimeError, IndexError) as error:
            raise DataError(f"the module cannot take X with rows of shape {tuple(batch.shape[1:])}: {error}") from error
        if not is_torch_array(features) or features.ndim == 0 or features.shape[0] != batch.shape[0]:
            raise ParameterError("the module does not give one tensor with a row for each row of X; set cut")
        features = features.reshape(batch.shape[0], -1)
        if features.shape[1] != self.n_features_out:
            found, wanted = features.shape[1], self.n_features_out
            raise ParameterError(f"the module gives {found} features, not {wanted}; pass n_features_out={found}")
        return features


class _ReachedCut(Exception):
    """Carries the features out of the forward pass, so that the last layer is never computed."""

    def __init__(self, features: Array) -> None:
        super().__init__()
        self.features = features


def _stop(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Forward pre-hook of the layer cut at."""
    raise _ReachedCut([*args, *kwargs.values()][0])


def _find_cut(torch: Any, module: Any) -> str:
    """Name the last child of a Sequential, or else the last linear layer."""
    if isinstance(module, torch.nn.Sequential):
        names = [name for name, _ in module.named_children()]
    else:
        names = [name for name, layer in module.named_modules() if name and isinstance(layer, torch.nn.Linear)]
    if not names:
        raise ParameterError("the module has no linear layer to cut at; name a layer with cut, or pass cut=None")
    return names[-1]


def _guess_width(torch: Any, module: Any, cut: str | None) -> int:
    """Read the number of features off the layer cut at, or else off the last linear layer before it.

    The guess is compared with what the module really gives at every transform.
    """
    width = None
    for name, layer in module.named_modules():
        linear = isinstance(layer, torch.nn.Linear)
        if name and name == cut:
            width = layer.in_features if linear else width
            break
        width = layer.out_features if linear else width
    if width is None:
        raise ParameterError("the number of features cannot be read off the module; pass n_features_out")
    return int(width)


def _write(features: TorchFeatures, networks: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write down the settings of the map, the layers and tensors of its module, and their hash."""
    tensors = _tensors(features.module)
    networks.append(f"network_{len(networks) + 1}" if networks else "network")
    settings = {
        "network": networks[-1],
        "class": type(features.module).__name__,
        "layers": _layers(features.module),
        "tensors_sha256": array_digest(tensors),
        "stored": True,
        **{key: getattr(features, key) for key in ("cut", "found_cut", "batch_size", "dtype", "n_features_out")},
    }
    return settings, tensors


def _read(settings: dict[str, Any], arrays: dict[str, Any], supplied: Any) -> TorchFeatures:
    """Give a copy of the user's module the stored tensors, and check that it is then the one that was saved."""
    torch = torch_module("TorchFeatures")
    name = settings["network"]
    supplied.used.append(name)
    if (module := supplied.networks.get(name)) is None:
        network = f"the features of a network, a {settings['class']} with {len(settings['layers'])} layers"
        advice = f"pass networks={{{name!r}: module}} with a module of that architecture"
        raise ParameterError(f"the model was fitted on {network}; {advice}")
    if not isinstance(module, torch.nn.Module):
        raise ParameterError(f"networks[{name!r}] is a {type(module).__name__}; pass a torch.nn.Module")
    if difference := _first_difference(_layers(module), settings["layers"]):
        raise _other_module(name, f"is of another architecture: {difference}")
    twin = copy.deepcopy(module).to(getattr(torch, settings["dtype"]))
    try:
        # PyTorch does not take read-only memory, hence the copies.
        twin.load_state_dict({key: torch.tensor(array) for key, array in arrays.items()})
    except RuntimeError as error:
        raise _other_module(name, f"has other tensors than the saved one: {' '.join(str(error).split())}") from error
    if array_digest(_tensors(twin)) != settings["tensors_sha256"]:
        raise _other_module(name, "does not keep the stored weights as they are")
    features = TorchFeatures(
        twin,
        cut="auto" if settings["found_cut"] else settings["cut"],
        batch_size=settings["batch_size"],
        # The module computes where the user put it; the saved one may have been on another machine.
        device=next((str(tensor.device) for tensor in module.parameters()), "cpu"),
        dtype=settings["dtype"],
        n_features_out=settings["n_features_out"],
    )
    if features.cut != settings["cut"]:
        raise _other_module(name, f'ends at its layer "{features.cut}", the saved one at "{settings["cut"]}"')
    return features


register("feature map", "torch", TorchFeatures, _write, _read)


def _other_module(name: str, why: str) -> ParameterError:
    return ParameterError(f"networks[{name!r}] {why}; pass a module built as the saved one was")


def _tensors(module: Any) -> dict[str, Any]:
    """Read parameters and buffers as NumPy arrays."""
    found = {}
    for key, tensor in module.state_dict().items():
        try:
            found[key] = tensor.detach().cpu().numpy()
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            # A state that is no tensor, a lazy parameter without a shape, or numbers that NumPy does not know.
            raise ParameterError(f'"{key}" of the module cannot be saved: {error}') from error
    return found


def _layers(module: Any) -> list[list[str]]:
    """List the layers with their classes: tensors alone do not tell a ReLU from a tanh."""
    return [[name, type(layer).__name__] for name, layer in module.named_modules()]


def _first_difference(found: list[list[str]], expected: list[list[str]]) -> str | None:
    for have, want in zip_longest(found, expected):
        if have != want:
            shown = ["nothing" if each is None else f'"{each[0]}" ({each[1]})' for each in (have, want)]
            return f"it has {shown[0]} where the saved one has {shown[1]}"
    return None


#: Numbers in a block on a device: 256 MB in float64, several times that with temporary arrays.
BLOCK_ENTRIES = 2**25


def placed(feature_map: Any, device: str | None) -> Any:
    """The map as it is to be used on the device: modules are copied there, once for all blocks.

    A module that was put on a device of its own stays there.
    """
    if device is None:
        return feature_map
    if isinstance(feature_map, Concatenate):
        return Concatenate([placed(part, device) for part in feature_map.maps])
    if isinstance(feature_map, TorchFeatures) and feature_map.device == "cpu":
        return feature_map.moved_to(device)
    return feature_map


def map_rows(feature_map: Any, X: Array, columns: Sequence[str] | None = None, device: str | None = None) -> Array:
    """Features of rows, whose columns may have names; a tensor if there is a device.

    Examples
    --------
    >>> map_rows(Identity(1, constant=True), np.array([[3.0]]))
    array([[3., 1.]])
    >>> map_rows(Identity(1, constant=True), np.array([[3.0]]), device="cpu")
    tensor([[3., 1.]], dtype=torch.float64)
    """
    if device is not None and isinstance(feature_map, Concatenate):
        return join([map_rows(part, X, columns, device) for part in feature_map.maps])
    if device is not None and isinstance(feature_map, RandomFeatures | Identity | TorchFeatures):
        return feature_map.transform(to_device(X, device))
    features = transform_by_name(feature_map, X, columns)
    return features if device is None else to_device(to_numpy(features), device)


def host_features(feature_map: Any, X: Array, columns: Sequence[str] | None, device: str | None) -> Array:
    """Features of rows as a NumPy array, computed on the device block by block where there is one.

    Examples
    --------
    >>> host_features(Identity(1, constant=True), np.array([[3.0], [4.0]]), None, "cpu")
    array([[3., 1.],
           [4., 1.]])
    """
    if device is None or not len(X):
        return to_numpy(map_rows(feature_map, X, columns))
    feature_map = placed(feature_map, device)
    width = int(getattr(feature_map, "n_features_out", X.shape[1]))
    found: Array | None = None
    for rows in device_slices(len(X), width):
        block = to_numpy(map_rows(feature_map, X[rows], columns, device))
        if found is None and len(block) == len(X):
            return block
        found = np.empty((len(X), *block.shape[1:]), dtype=block.dtype) if found is None else found
        found[rows] = block
    assert found is not None
    return found


def device_slices(rows: int, width: int) -> list[slice]:
    """Rows that go to a device at a time, for so many features of each."""
    return slices(rows, BLOCK_ENTRIES // width)
