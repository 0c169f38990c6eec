"""Any PyTorch module, cut before its head, as a frozen feature map.

PyTorch is imported when a map is made, not with this file: without it, everything else here still works.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from mixtune._messages import quoted
from mixtune.errors import DataError, MissingExtraError, ParameterError
from mixtune.features._protocol import DTYPES, Array, check_finite, count

__all__ = ["TorchFeatures"]


@dataclass(frozen=True, eq=False, init=False)
class TorchFeatures:
    """What reaches the last layer of a PyTorch module.

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
    cut: str | None
    batch_size: int
    device: str
    dtype: str
    n_features_out: int
    found_cut: bool = field(repr=False)

    def __init__(
        self,
        module: Any,
        *,
        cut: str | None = "auto",
        batch_size: int = 1024,
        device: str = "cpu",
        dtype: str = "float32",
        n_features_out: int | None = None,
    ) -> None:
        torch = _import_torch()
        if not isinstance(module, torch.nn.Module):
            raise ParameterError(f"module is a {type(module).__name__}; pass a torch.nn.Module")
        if dtype not in DTYPES:
            raise ParameterError(f"dtype={dtype!r} is unknown; use one of {', '.join(DTYPES)}")
        found_cut = cut == "auto"
        cut = _find_cut(torch, module) if found_cut else cut
        if cut is not None:
            _check_name(module, cut)
        if n_features_out is None:
            n_features_out = _guess_width(torch, module, cut)
        try:
            frozen = copy.deepcopy(module).eval().to(device=device, dtype=getattr(torch, dtype))
        except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
            # PyTorch built without CUDA says so with an AssertionError.
            raise ParameterError(
                f'the module cannot be copied to device="{device}" as {dtype}: {error}; use device="cpu" '
                "where there is no such device"
            ) from error
        if cut is not None:
            frozen.get_submodule(cut).register_forward_pre_hook(_stop, with_kwargs=True)
        values = (frozen, cut, count(batch_size, "batch_size"), str(device), dtype)
        for name, value in zip(("module", "cut", "batch_size", "device", "dtype"), values, strict=True):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "n_features_out", count(n_features_out, "n_features_out"))
        object.__setattr__(self, "found_cut", found_cut)

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
        torch = _import_torch()
        dtype = getattr(torch, self.dtype)
        rows = X.detach() if is_torch_array(X) else np.asarray(X)
        if rows.ndim < 2:
            raise DataError(f"X has shape {tuple(rows.shape)}; pass rows by columns")
        # Made outside inference mode, so that a head may later be trained on the features with gradients.
        shape = (rows.shape[0], self.n_features_out)
        U = torch.empty(shape, dtype=dtype, device=rows.device if is_torch_array(rows) else "cpu")
        for start in range(0, rows.shape[0], self.batch_size):
            batch: Array = rows[start : start + self.batch_size]
            if not is_torch_array(batch):
                # PyTorch does not take read-only NumPy memory, hence the copy.
                batch = torch.from_numpy(np.array(batch))
            # Whole numbers stay whole: they are tokens for an embedding, or the module refuses them with its own words.
            whole = not (batch.is_floating_point() or batch.dtype == torch.bool) and self._takes_tokens
            batch = batch.to(device=self.device, dtype=torch.int64 if whole else dtype)
            check_finite(batch.reshape(batch.shape[0], -1), "X", start)
            with torch.inference_mode():
                if start == 0 and self.found_cut:
                    self._check_cut(torch, batch[:1])
                features = self._forward(batch)
            check_finite(features, "the features", start)
            U[start : start + self.batch_size] = features
        return U if is_torch_array(X) else U.numpy()

    def moved_to(self, device: str) -> TorchFeatures:
        """The same map with a copy of the module on another device."""
        other = copy.copy(self)
        object.__setattr__(other, "module", copy.deepcopy(self.module).to(device))
        object.__setattr__(other, "device", device)
        return other

    @property
    def _takes_tokens(self) -> bool:
        torch = _import_torch()
        return any(isinstance(layer, torch.nn.Embedding | torch.nn.EmbeddingBag) for layer in self.module.modules())

    def _check_cut(self, torch: Any, row: Array) -> None:
        """A layer found by its place in the module must also be the last linear one to run."""
        ran: list[str] = []
        linear = [(n, m) for n, m in self.module.named_modules() if isinstance(m, torch.nn.Linear)]
        handles = [m.register_forward_pre_hook(lambda *_, name=n: ran.append(name)) for n, m in linear]
        stop = self.module.get_submodule(self.cut)._forward_pre_hooks
        kept = dict(stop)
        for key in [key for key, hook in kept.items() if hook is _stop]:
            del stop[key]
        try:
            self.module(row)
        except (RuntimeError, IndexError):
            return  # what the module cannot take is reported by the real pass
        finally:
            for handle in handles:
                handle.remove()
            stop.clear()
            stop.update(kept)
        if ran and ran[-1] != self.cut and not isinstance(self.module, torch.nn.Sequential):
            raise ParameterError(
                f'the last linear layer that runs is "{ran[-1]}", not "{self.cut}"; pass cut="{ran[-1]}" to cut there'
            )

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
            raise ParameterError(
                f"the module gives {features.shape[1]} features, {self.n_features_out} were expected; "
                f"pass n_features_out={features.shape[1]}"
            )
        return features


class _ReachedCut(Exception):
    """Carries the features out of the forward pass, so that the head is never computed."""

    def __init__(self, features: Array) -> None:
        super().__init__()
        self.features = features


def _stop(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Forward pre-hook of the layer cut at."""
    raise _ReachedCut([*args, *kwargs.values()][0])


def _import_torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", "torch", "TorchFeatures") from error
    return torch


def _find_cut(torch: Any, module: Any) -> str:
    """Name the last child of a Sequential, or else the last linear layer."""
    if isinstance(module, torch.nn.Sequential):
        names = [name for name, _ in module.named_children()]
    else:
        names = [name for name, layer in module.named_modules() if name and isinstance(layer, torch.nn.Linear)]
    if not names:
        raise ParameterError(
            "the module has no linear layer to cut at; name one with cut, or pass cut=None to keep all"
        )
    return names[-1]


def _check_name(module: Any, cut: str) -> None:
    names = [name for name, _ in module.named_modules() if name]
    if cut not in names:
        if not names:
            raise ParameterError(f"cut={cut!r} is not a layer of the module, which has none inside; pass cut=None")
        close = get_close_matches(str(cut), names)
        guess = f"did you mean {quoted(close)}? " if close else ""
        raise ParameterError(f"cut={cut!r} is not a layer of the module; {guess}its layers are {quoted(names, 20)}")


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
