r"""Martingales that an option's value is compared with: European values, and sums of fitted one-interval moves.

A policy's mean cash flow does not change if a martingale that starts at zero is taken off every path up to its stop. Its
variance does: under the best policy and with the martingale part of the value process nothing is left of it. Two
martingales are used.

**The European value** of the same option at the dates, where it has a closed form (Black-Scholes; put, call, put on the
geometric mean). Backward induction then only learns the premium of early exercise. Where only its price today is known
(Heston), cash flows are compared with those of the same paths held to maturity.

**Fitted moves.** In each interval paths are driven by standard normals that do not depend on the past. Products of
orthonormal (Hermite) polynomials of them with any functions of the state before are increments of a martingale:

.. math:: M_{t+1} - M_t = \sum_k a_k(X_t)\,\varphi_k(Z_{t+1}), \quad a_k(x) = \operatorname{E}[V_{t+1} \varphi_k(Z_{t+1}) | X_t = x]

The functions :math:`a_k` are learned by regression on the training paths; whatever they are, the mean on fresh paths is
zero, so that bounds stay valid (Belomestny, Bender and Schoenmakers, *True upper bounds for Bermudan products via
non-nested Monte Carlo*, Math. Finance 19, 2009). Where variances are random, the normals of an interval do not say
where the price goes. Its own change less the mean is one more move then: holding the asset is what a hedge does.
"""  # noqa: E501

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np

from mixtune.arrays import to_numpy
from mixtune_options._arrays import Array, Floats, is_numpy, match, namespace
from mixtune_options._payoffs import PayoffFunction
from mixtune_options._process import Process, TermStructure

#: Of ranked assets, as many have moves of their own; those of the others are summed.
TOP_ASSETS = 5
#: Of the first assets, as many have products of moves; of all kinds of normals together as many.
PAIRED_ASSETS, PAIRED_MOVES = 3, 6
#: Relative ridge of the regressions: features may be collinear, and a small ridge costs nothing.
RIDGE = 1e-6
#: Coefficients that are found by one regression at the most, and the rows that it needs for each.
MOST_JOINT, JOINT_ROWS = 400, 5
#: Settings of a market that say nothing of single assets, although there may be several numbers.
SHARED = {"spot", "kernel_range"}


def exchangeable(process: Process) -> bool:
    """Whether all assets follow the same law, whatever their prices today.

    Examples
    --------
    >>> from mixtune_options import BlackScholes
    >>> exchangeable(BlackScholes(spot=[90, 100], volatility=0.2, n_assets=2, correlation=0.3))
    True
    >>> exchangeable(BlackScholes(spot=100, volatility=[0.2, 0.3], n_assets=2))
    False
    """
    assets, known = process.n_assets, getattr(process, "__dataclass_fields__", {})
    own = [getattr(process, name) for name in known if name not in SHARED and not name.startswith("_")]
    return bool(known) and all(_alike(array, assets) for value in own for array in _arrays(value))


def _arrays(value: Any) -> list[Floats]:
    """A setting as arrays, which may have one number per asset."""
    if isinstance(value, TermStructure):
        return list(np.asarray(value.values))
    if isinstance(value, tuple) and all(isinstance(part, tuple) for part in value):  # cash dividends
        return [np.asarray(amount) for _, amount in value]
    return [np.asarray(value)]


def _alike(array: Floats, assets: int) -> bool:
    """Whether an array has the same number for all assets, or for all pairs of them."""
    if array.shape == (assets, assets):
        between = array[np.nonzero(1 - np.eye(assets))]
        return bool(np.all(between == between[:1]))
    return array.shape[:1] != (assets,) or bool(np.all(array == array[:1]))


def symmetric(payoff: PayoffFunction, prices: Floats) -> bool:
    """Whether the order of the assets does not matter, as found on some price vectors (rows, assets).

    Examples
    --------
    >>> rows = np.random.default_rng(0).uniform(80, 120, (50, 3))
    >>> symmetric(lambda P: np.maximum(P.max(axis=-1) - 100, 0), rows)
    True
    >>> symmetric(lambda P: np.maximum(P[..., 0] - P[..., 1], 0), rows)
    False
    """
    amounts = to_numpy(payoff(prices))
    orders = (prices[:, ::-1], np.roll(prices, 1, axis=1))  # these two make all orders
    return all(np.allclose(to_numpy(payoff(order)), amounts, rtol=1e-9, atol=1e-12) for order in orders)


def without_noise(samples: Floats, control: Floats) -> Floats:
    """Samples less a multiple of a control with mean zero, the one that leaves the least variance.

    Examples
    --------
    >>> without_noise(np.array([1.0, 2.0, 3.0]), np.array([-1.0, 0.0, 1.0])).tolist()
    [2.0, 2.0, 2.0]
    """
    centred = control - control.mean()
    spread = float(centred @ centred)
    return samples - float(centred @ samples) / spread * control if spread > 0 else samples - control.mean()


# --- fitted moves -------------------------------------------------------------------------------------------------


def moves(noise: Array, prices: Array, ranked: bool, gains: Array | None = None) -> Array:
    """Orthonormal polynomials (paths, k) of the normals (paths, kinds, assets) of one interval, and gains.

    First and second order of each asset, products between a few. Where assets are ``ranked``, they come in the order
    of their prices (paths, assets) at the beginning, and those of low rank are summed. ``gains`` (paths, assets) are
    relative changes of the prices less their means.
    """
    Z, xp, assets = noise, namespace(noise), noise.shape[-1]
    if ranked and assets == prices.shape[-1] > 1:  # a market of one's own may have other normals
        order = xp.argsort(prices, axis=-1, descending=True, stable=True)
        Z = in_order(Z, xp.stack([order] * Z.shape[1], axis=1))
        gains = None if gains is None else in_order(gains, order)
    top = min(assets, TOP_ASSETS) if ranked else assets

    def second(z: Array) -> Array:
        return (z * z - 1.0) / math.sqrt(2.0)

    first, rest = xp.reshape(Z[..., :top], (len(Z), -1)), Z[..., top:]
    columns = [first, second(first)]
    if top < assets:
        scale = math.sqrt(assets - top)
        columns += [xp.sum(rest, axis=-1) / scale, xp.sum(second(rest), axis=-1) / scale]
    paired = xp.reshape(Z[..., :PAIRED_ASSETS], (len(Z), -1))[:, :PAIRED_MOVES]
    if pairs := list(combinations(range(paired.shape[1]), 2)):
        columns.append(xp.stack([paired[:, i] * paired[:, j] for i, j in pairs], axis=1))
    if gains is not None:
        columns.append(gains[:, :top])
    return xp.concat(columns, axis=1)


def relative_gains(before: Array, after: Array, growth: Floats | None) -> Array | None:
    """Relative changes of prices (paths, assets) less their means, from the factors to the mean (assets,)."""
    return None if growth is None else after / (before * match(growth, before)) - 1.0


def in_order(values: Array, order: Array) -> Array:
    """``values`` taken along their last axis; the standard has no such function that all libraries share."""
    if is_numpy(values):
        return np.take_along_axis(values, order, axis=-1)
    return values.gather(-1, order)


def increments(coefs: Array, U: Array, phi: Array) -> Array:
    """``sum_k a_k(x) phi_k`` of every path, from features U (paths, q) and coefficients (q, k)."""
    return (phi * (U @ coefs)).sum(-1)


def fit_moves(U: Array, phi: Array, values: Array, gains: int = 0) -> Array:
    """Coefficients (q, k) of the moves in values (paths,), from features U (paths, q) at the beginning.

    Columns of phi are orthonormal but the last ``gains``. With these, all coefficients are found by one regression
    where there are enough paths for it. Otherwise each column is projected on by itself, gains are left out, and
    columns are shrunk by the share of them that noise explains (James and Stein), so that few paths do no harm.
    """
    xp, (rows, width), count = namespace(U), U.shape, phi.shape[1]
    residual = values - U @ _least_squares(U, values)
    if gains and width * count <= min(MOST_JOINT, rows / JOINT_ROWS):
        scale = xp.std(phi, axis=0)
        scale = xp.where(scale > 0, scale, xp.ones_like(scale))
        products = xp.reshape(U[:, :, None] * (phi / scale)[:, None, :], (rows, -1))
        return xp.reshape(_least_squares(products, residual), (width, count)) / scale
    targets = phi[:, : count - gains] * residual[:, None]
    coefs = _least_squares(U, targets)
    explained, total = xp.mean((U @ coefs) ** 2, axis=0), xp.mean(targets**2, axis=0)
    noise = width / rows * total
    share = 1.0 - noise / xp.where(explained > 0, explained, xp.ones_like(explained))
    unused = xp.zeros((width, gains), dtype=U.dtype, device=U.device)
    return xp.concat([coefs * share.clip(0.0), unused], axis=1)


def _least_squares(U: Array, targets: Array) -> Array:
    """Coefficients of features U, with a small ridge."""
    xp, gram = namespace(U), U.T @ U
    ridge = RIDGE * float(xp.linalg.trace(gram)) / U.shape[1]
    unit = xp.eye(gram.shape[0], dtype=gram.dtype, device=gram.device)
    return xp.linalg.solve(gram + ridge * unit, U.T @ targets)
