"""One hidden layer of a random network: the paper's feature map, ready without any training.

Weights and biases are drawn once from the seed; only the linear model on top of the hidden units is learned. With
cosine units the same layer is a random Fourier map, whose inner products approximate a Gaussian kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array
from numpy.typing import ArrayLike, NDArray

from mixtune._registry import check_array, field_values, register
from mixtune.arrays import Array, Floats, freeze, slices
from mixtune.checks import check_choice, check_nonnegative, check_whole
from mixtune.errors import DataError, ParameterError
from mixtune.features._base import DTYPES, as_rows, check_finite

_ACTIVATIONS = ("relu", "leaky_relu", "tanh", "cos")
_LAWS = ("normal", "uniform")
#: Hidden units of NumPy rows computed at a time: they stay in the cache of one core.
CACHED = 1 << 15


@dataclass(frozen=True, eq=False, kw_only=True)
class RandomFeatures:
    r"""Features ``activation(((X - input_shift) / input_scale) @ weights + bias)`` with random weights.

    Parameters
    ----------
    n_inputs
        Number of columns of ``X``.
    width
        Number of hidden units.
    activation
        "relu", "leaky_relu", "tanh" or "cos".
    slope
        Slope of "leaky_relu" below zero, between 0 and 1.
    weight_law, bias_law
        "normal" with standard deviation ``scale``, or "uniform" between ``-scale`` and ``scale``.
    weight_scale, bias_scale
        The scales of these laws; 0 switches weights or biases off.
    constant
        Whether to append a feature that is always 1, as the last column.
    input_shift, input_scale
        ``X`` is shifted and divided by these before the layer: numbers, or one value per column.
    normalise
        Whether to divide the hidden features (not the constant) by the square root of ``width``.
    output_scale
        Multiplies the hidden features (not the constant).
    seed
        Seed of weights and biases. Weights are drawn first, then biases, in float64 for any ``dtype``.
    dtype
        "float64" or "float32": the precision of the layer and of the features.

    Attributes
    ----------
    weights : ndarray of shape (n_inputs, width)
    bias : ndarray of shape (width,)
        Read-only.

    Examples
    --------
    The map of the paper: 300 leaky ReLU units and a constant.

    >>> features = RandomFeatures(n_inputs=3, width=300, activation="leaky_relu", seed=0)
    >>> features.n_features_out
    301
    >>> features.transform(np.ones((2, 3))).shape
    (2, 301)
    """

    n_inputs: int
    width: int
    activation: str = "relu"
    slope: float = 0.01
    weight_law: str = "normal"
    bias_law: str = "normal"
    weight_scale: float = 1.0
    bias_scale: float = 1.0
    constant: bool = True
    input_shift: ArrayLike = 0.0
    input_scale: ArrayLike = 1.0
    normalise: bool = False
    output_scale: float = 1.0
    seed: int
    dtype: str = "float64"
    weights: NDArray[Any] = field(init=False, repr=False)
    bias: NDArray[Any] = field(init=False, repr=False)
    _layers: dict[Any, tuple[Array, ...]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        n_inputs = check_whole("n_inputs", self.n_inputs, least=1)
        width = check_whole("width", self.width, least=1)
        check_whole("seed", self.seed)
        choices = {"activation": _ACTIVATIONS, "weight_law": _LAWS, "bias_law": _LAWS, "dtype": DTYPES}
        for option, known in choices.items():
            check_choice(option, getattr(self, option), known)
        for option in ("weight_scale", "bias_scale", "output_scale", "slope"):
            check_nonnegative(option, getattr(self, option))
        if self.slope > 1:
            raise ParameterError(f"slope={self.slope!r} must be between 0 and 1")
        shift = _per_column(self.input_shift, n_inputs, "input_shift")
        scale = _per_column(self.input_scale, n_inputs, "input_scale")
        if not (scale > 0).all():
            raise ParameterError(f"input_scale={self.input_scale!r} must be positive")
        rng = np.random.default_rng(self.seed)
        weights = _draw(rng, self.weight_law, self.weight_scale, (n_inputs, width))
        bias = _draw(rng, self.bias_law, self.bias_scale, (width,))
        # Casting after the draw makes the float32 map the rounding of the float64 one.
        drawn = {"weights": weights.astype(self.dtype), "bias": bias.astype(self.dtype)}
        for name, array in {**drawn, "input_shift": shift, "input_scale": scale}.items():
            object.__setattr__(self, name, freeze(array))

    @classmethod
    def fourier(
        cls, *, n_inputs: int, width: int, length_scale: ArrayLike = 1.0, seed: int, dtype: str = "float64"
    ) -> RandomFeatures:
        r"""Make the random Fourier map of the Gaussian kernel :math:`\exp(-|x - x'|^2 / (2 \ell^2))`.

        Parameters
        ----------
        n_inputs, width, seed, dtype
            As for the class.
        length_scale
            :math:`\ell`, one number or one per column.

        Examples
        --------
        >>> features = RandomFeatures.fourier(n_inputs=1, width=20_000, length_scale=2.0, seed=0)
        >>> U = features.transform([[0.0], [2.0]])
        >>> bool(abs(U[0] @ U[1] - np.exp(-0.5)) < 0.02)
        True
        """
        # A phase uniform on (-pi, pi) is one uniform on (0, 2 pi).
        return cls(
            n_inputs=n_inputs,
            width=width,
            activation="cos",
            bias_law="uniform",
            bias_scale=math.pi,
            input_scale=length_scale,
            normalise=True,
            output_scale=math.sqrt(2),  # the mean square of a cosine of random phase is 1/2
            constant=False,
            seed=seed,
            dtype=dtype,
        )

    @property
    def n_features_out(self) -> int:
        """Number of features: the width, and one more with the constant."""
        return self.width + int(self.constant)

    def transform(self, X: Array, /, *, out: Array | None = None) -> Array:
        """Compute the features of the rows of ``X``.

        Parameters
        ----------
        X
            Array or tensor of shape (n, n_inputs).
        out
            Where to write the features, to avoid allocations when the same map is applied repeatedly.

        Returns
        -------
        array of shape (n, n_features_out)
            In the library and on the device of ``X``, in the precision of the map.

        Raises
        ------
        DataError
            If ``X`` has another number of columns, or a feature is not finite.
        """
        rows = as_rows(X, self.n_inputs)
        xp = array_namespace(rows)
        layer = self._layer(xp, device(rows))
        shape = (rows.shape[0], self.n_features_out)
        U = xp.empty(shape, dtype=layer[0].dtype, device=device(rows)) if out is None else out
        if tuple(U.shape) != shape or U.dtype != layer[0].dtype:
            raise ParameterError(f"out must have shape {shape} and dtype {self.dtype}; got {tuple(U.shape)}, {U.dtype}")
        if self.constant:
            U[:, -1] = 1
        check_finite(rows, "X")
        # Blocks keep the temporaries small: in the cache for NumPy, large enough to keep a GPU busy otherwise.
        step = max(1, (CACHED if is_numpy_array(rows) else 1 << 22) // self.width)
        # Computed in one piece of memory and copied once: several times as fast as in place, between other columns.
        scratch = np.empty((step, self.width), dtype=U.dtype) if is_numpy_array(rows) else None
        for start in range(0, rows.shape[0], step):
            with np.errstate(over="ignore", invalid="ignore"):
                block = xp.astype(rows[start : start + step, :], U.dtype)
                if U.dtype != rows.dtype:  # float32 may not hold what float64 did
                    check_finite(block, "X", start)
                hidden = self._hidden(xp, block, *layer, out=None if scratch is None else scratch[: len(block)])
            check_finite(hidden, "the features", start)
            U[start : start + step, : self.width] = hidden
        return U

    @staticmethod
    def side_by_side(layers: Sequence[RandomFeatures], X: Array) -> Array:
        """Features (runs, n, p) of rows (runs, n, n_inputs), each run with a layer of its own, in one go.

        The layers differ in nothing but their seeds; what they give is not checked for overflow.

        Examples
        --------
        >>> layers = [RandomFeatures(n_inputs=2, width=5, seed=seed) for seed in (0, 1)]
        >>> X = np.arange(12.0).reshape(2, 3, 2)
        >>> np.allclose(RandomFeatures.side_by_side(layers, X)[1], layers[1].transform(X[1]))
        True
        """
        xp, first = array_namespace(X), layers[0]
        # Of every layer its weights, bias, shift and scale, where X is; the last two are the same for all.
        parts = [layer._layer(xp, device(X)) for layer in layers]
        weights, bias = xp.stack([part[0] for part in parts]), xp.stack([part[1] for part in parts])[:, None]
        hidden = first._hidden(xp, X, weights, bias, *parts[0][2:])
        return xp.concat([hidden, xp.ones_like(hidden[..., :1])], axis=-1) if first.constant else hidden

    def products(self, X: Floats, coef: Floats) -> Floats:
        """``transform(X) @ coef`` for NumPy rows, (n,) or (n, k); features are made block by block, in the cache.

        Examples
        --------
        >>> features, X = RandomFeatures(n_inputs=2, width=5, seed=0, constant=False), np.eye(2)
        >>> np.allclose(features.products(X, np.ones(5)), features.transform(X) @ np.ones(5))
        True
        """
        rows = as_rows(X, self.n_inputs)
        check_finite(rows, "X")
        layer, found = self._layer(np, device(rows)), np.empty((len(rows), *coef.shape[1:]))
        step = max(1, CACHED // self.width)
        hidden = np.empty((step, self.width), dtype=layer[0].dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            for part in slices(len(rows), step):
                block = rows[part].astype(hidden.dtype, copy=False)
                units = self._hidden(np, block, *layer, out=hidden[: len(block)])
                found[part] = units @ coef[: self.width]
        if self.constant:
            found += coef[-1]
        check_finite(found[:, None] if found.ndim == 1 else found, "the features")
        return found

    def factored(self, X: Floats) -> tuple[Floats, Floats] | None:
        """``(R, T)`` with ``transform(X) = R @ T`` for NumPy rows, R at most half as wide; None where it is wider.

        A unit of a ReLU, leaky or not, that has the same sign on all rows is linear in the inputs there. So R needs
        only the inputs, a constant, and the units that change sign. Layers on raw prices have few of these, and sums
        over many rows are several times as fast on R.

        Examples
        --------
        >>> features, X = RandomFeatures(n_inputs=1, width=20, seed=0), 50.0 + np.linspace(0.0, 1.0, 9)[:, None]
        >>> R, T = features.factored(X)
        >>> R.shape, np.allclose(R @ T, features.transform(X))
        ((9, 2), True)
        """
        if self.activation not in ("relu", "leaky_relu") or self.dtype != "float64":
            return None
        rows = as_rows(X, self.n_inputs)
        check_finite(rows, "X")
        weights, bias, shift, scale = self._layer(np, device(rows))
        inputs = np.concatenate([(rows - shift) / scale, np.ones((len(rows), 1))], axis=1)
        slopes, parts = np.concatenate([weights, bias[None]]), slices(len(rows), CACHED // self.width)
        # Units that are ever on the other side than on the first row.
        side = np.where(inputs[0] @ slopes > 0, 1.0, -1.0)
        bent = np.flatnonzero(~(np.min([(inputs[part] @ (side * slopes)).min(axis=0) for part in parts], axis=0) > 0))
        known, below = len(slopes), self.slope if self.activation == "leaky_relu" else 0.0
        if 2 * (known + len(bent)) > self.width:
            return None
        R = np.empty((len(rows), known + len(bent)))
        R[:, :known] = inputs
        for part in parts:
            Z = inputs[part] @ slopes[:, bent]
            R[part, known:] = np.maximum(Z, below * Z)
        T = np.zeros((R.shape[1], self.n_features_out))
        T[:known, : self.width] = self._factor * np.where(side > 0, 1.0, below) * slopes
        T[:known, bent] = 0.0
        T[known + np.arange(len(bent)), bent] = self._factor
        if self.constant:
            T[known - 1, -1] = 1.0
        return R, T

    @property
    def _factor(self) -> float:
        """What the hidden units are multiplied by."""
        return self.output_scale / (math.sqrt(self.width) if self.normalise else 1.0)

    def _hidden(
        self, xp: Any, X: Array, weights: Array, bias: Array, shift: Array, scale: Array, *, out: Array | None = None
    ) -> Array:
        """Compute the hidden units of one block; NumPy can write them straight into ``out``."""
        into = {} if out is None else {"out": out}
        Z = xp.matmul((X - shift) / scale, weights, **into)
        Z += bias
        if self.activation == "relu":
            units = xp.maximum(Z, xp.zeros_like(bias), **into)
        elif self.activation == "leaky_relu":
            units = xp.maximum(Z, Z * self.slope, **into)
        else:
            units = (xp.tanh if self.activation == "tanh" else xp.cos)(Z, **into)
        if self._factor != 1.0:
            units *= self._factor
        return units

    def _layer(self, xp: Any, where: Any) -> tuple[Array, ...]:
        """Return weights, bias, shift and scale in the library and on the device, converted once for each."""
        key = (xp.__name__, str(where))
        if key not in self._layers:
            arrays = (self.weights, self.bias, self.input_shift, self.input_scale)
            # PyTorch does not take read-only memory, hence the copies.
            copies = (np.array(array, dtype=self.dtype) for array in arrays)
            self._layers[key] = tuple(xp.asarray(copy, device=where) for copy in copies)
        return self._layers[key]

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (field_values(self), self.weights, self.bias)

    def __getstate__(self) -> dict[str, Any]:
        # For skops, which takes this and no __reduce__: converted copies are made again where they are needed.
        return {**vars(self), "_layers": {}}


def _restore(options: dict[str, Any], *layer: Any) -> RandomFeatures:
    """The map with these options, and with stored weights and biases where the seed gives others."""
    features = RandomFeatures(**options)
    for name, stored in zip(("weights", "bias"), layer, strict=False):
        if getattr(features, name).tobytes() != stored.tobytes():
            object.__setattr__(features, name, freeze(np.array(stored)))
    return features


def with_weights(features: RandomFeatures, weights: Array, *, shift: Array, scale: Array) -> RandomFeatures:
    """The same layer with other weights and other units of its inputs."""
    return _restore({**field_values(features), "input_shift": shift, "input_scale": scale}, weights, features.bias)


def write_random(features: RandomFeatures, networks: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    values = field_values(features)
    # A NumPy scalar may turn float32 into float64 where a Python float does not, so its type is kept.
    arrays = {name: np.asarray(value) for name, value in values.items() if isinstance(value, np.ndarray | np.floating)}
    settings = {name: value for name, value in values.items() if name not in arrays}
    return settings, {**arrays, "weights": features.weights, "bias": features.bias}


def read_random(settings: dict[str, Any], arrays: dict[str, Any], supplied: Any) -> RandomFeatures:
    layer = weights, bias = arrays.pop("weights"), arrays.pop("bias")
    n_inputs, width, dtype = settings["n_inputs"], settings["width"], settings["dtype"]
    # Before anything is drawn: a forged width must not take all memory.
    if weights.shape != (n_inputs, width) or bias.shape != (width,) or {weights.dtype, bias.dtype} != {np.dtype(dtype)}:
        raise DataError(f"the random features have {n_inputs} inputs and width {width}, their weights do not fit that")
    for name, array in (("weights", weights), ("bias", bias)):
        check_array(name, array, array.shape)
    # NumPy may change what a seed gives from one release to another; the stored weights are what was fitted on.
    return _restore({**settings, **{name: value[()] for name, value in arrays.items()}}, *layer)


register("feature map", "random", RandomFeatures, write_random, read_random)


def _per_column(value: ArrayLike, n_inputs: int, option: str) -> NDArray[np.float64]:
    """Read an option that is one number or one number per column."""
    array = np.array(value, dtype=np.float64)
    if array.shape not in ((), (n_inputs,)) or not np.isfinite(array).all():
        raise ParameterError(f"{option} must be one finite number, or {n_inputs} of them, one per column")
    return array


def _draw(rng: np.random.Generator, law: str, scale: float, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Draw from the named law."""
    if law == "normal":
        return scale * rng.standard_normal(shape)
    return rng.uniform(-scale, scale, shape)
