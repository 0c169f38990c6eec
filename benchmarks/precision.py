"""Claim: the relative error of coefficients, heads, predictions and energy is at most 5 eps times the condition number.

eps is 2^-52 and the condition number is the largest of the regularised problems that are solved: ``A + r I`` and the
local ``U'U + ridge I``. It holds up to 1e12, with more features than rows, with duplicated columns and with float32
rows, which are exact numbers like any other. What is right is computed here with 80 digits, from the definition of the
problem: all heads in one linear system, the running cost by its recursion. Nothing of it is shared with the library.

Also: how far U'U from float32, TF32 and split products is from U'U in float64. Run: python -m benchmarks precision
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import partial
from typing import Any

import numpy as np

from benchmarks.timing import Claim, Figure, seconds
from mixtune import Moments, RegretProblem, solve
from mixtune.moments._precision import PRECISIONS, narrow_gram

DIGITS = 80
EPS = float(np.finfo(np.float64).eps)
FACTOR = 5.0
WEIGHTS = (0.5, 0.3, 0.2)
Rows = Sequence[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Reference:
    """The solution with 80 digits: local heads and heads (N, p), coef (p,), energy, the targets' weighted square."""

    local: np.ndarray
    heads: np.ndarray
    coef: np.ndarray
    energy: Decimal
    square: Decimal


@dataclass(frozen=True)
class Errors:
    """Relative errors of the library's solution (the energy's relative to the targets' weighted square)."""

    condition: float
    local: float
    coef: float
    heads: float
    predictions: float
    energy: float

    @property
    def worst(self) -> float:
        return max(self.local, self.coef, self.heads, self.predictions, self.energy)

    @property
    def bound(self) -> float:
        return FACTOR * EPS * self.condition


def exact(values: Any) -> np.ndarray:
    """Floats as decimals, digit for digit."""
    return np.vectorize(Decimal, otypes=[object])(np.asarray(values, dtype=np.float64))


def reference(
    rows: Rows, weights: Sequence[float], *, ridge: float, transfer: float, stability: float, horizon: int
) -> Reference:
    """Solve the problem from its definition, with 80 digits."""
    with localcontext() as context:
        context.prec = DIGITS
        pairs, w = [(exact(U), exact(y)) for U, y in rows], exact(weights)
        grams, crosses = [U.T @ U for U, _ in pairs], [U.T @ y for U, y in pairs]
        eye = exact(np.eye(len(crosses[0])))
        local = np.stack([eliminate(G + Decimal(ridge) * eye, c) for G, c in zip(grams, crosses)])
        # Stationarity of head k: rho (theta_k - local_k) + w_k (A sum_j w_j theta_j - b) = 0.
        rho = stiffness(Decimal(transfer), Decimal(stability), horizon)
        A, b = np.tensordot(w, np.stack(grams), 1), np.tensordot(w, np.stack(crosses), 1)
        matrix = np.kron(np.multiply.outer(w, w), A) + rho * np.kron(exact(np.eye(len(w))), eye)
        heads = eliminate(matrix, np.concatenate([rho * h + wk * b for h, wk in zip(local, w)])).reshape(local.shape)
        coef = w @ heads
        loss = sum(wk * ((y - U @ coef) ** 2).sum() for wk, (U, y) in zip(w, pairs))
        square = sum(wk * (y**2).sum() for wk, (_, y) in zip(w, pairs))
        return Reference(local, heads, coef, rho * ((heads - local) ** 2).sum() + loss, square)


def stiffness(transfer: Decimal, stability: Decimal, horizon: int) -> Decimal:
    """rho: the least cost of walking to a point at distance 1 in that many steps, by dynamic programming."""
    rho = transfer + stability
    for _ in range(horizon - 1):
        rho = transfer + stability * rho / (stability + rho)
    return rho


def eliminate(matrix: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """Gaussian elimination for positive definite matrices of decimals."""
    K, x = matrix.copy(), rhs.copy()
    for k in range(len(K)):
        x[k], K[k] = x[k] / K[k, k], K[k] / K[k, k]
        for i in [*range(k), *range(k + 1, len(K))]:
            x[i], K[i] = x[i] - K[i, k] * x[k], K[i] - K[i, k] * K[k]
    return x


def errors(
    rows: Rows,
    weights: Sequence[float] = WEIGHTS,
    *,
    ridge: float,
    transfer: float,
    stability: float,
    horizon: int,
    gather: Callable[[Any, Any], Moments] = Moments.from_rows,
) -> Errors:
    """Solve with the library and compare with the reference."""
    strengths = {"ridge": ridge, "transfer": transfer, "stability": stability, "horizon": horizon}
    right = reference(rows, weights, **strengths)
    found = solve(RegretProblem(moments=[gather(U, y) for U, y in rows], weights=weights, **strengths))
    U = exact(np.concatenate([U for U, _ in rows]))
    coef = np.asarray(found.coef)
    with localcontext() as context:
        context.prec = DIGITS
        return Errors(
            condition=condition(rows, weights, ridge, found.effective_ridge or 0.0),
            local=_relative(found.problem.heads, right.local),
            coef=_relative(coef, right.coef),
            heads=_relative(found.heads, right.heads),
            predictions=_norm(U @ (exact(coef) - right.coef)) / _norm(U @ right.coef),
            energy=float(abs(Decimal(found.energy) - right.energy) / right.square),
        )


def condition(rows: Rows, weights: Sequence[float], ridge: float, effective: float) -> float:
    """The largest condition number of the problems solved: the local ones and the weighted one."""
    features = [np.asarray(U, dtype=np.float64) for U, _ in rows]
    stacked = np.concatenate([np.sqrt(w) * U for w, U in zip(weights, features)])
    return max(_condition(stacked, effective), *(_condition(U, ridge) for U in features))


def _condition(U: np.ndarray, shift: float) -> float:
    values = np.linalg.svd(U, compute_uv=False) ** 2
    least = values[-1] if U.shape[0] >= U.shape[1] else 0.0
    return float((values[0] + shift) / (least + shift))


def _relative(found: Any, right: np.ndarray) -> float:
    return _norm(exact(np.asarray(found)) - right) / _norm(right)


def _norm(values: np.ndarray) -> float:
    return float(sum(value * value for value in values.reshape(-1)).sqrt())


def draw(n: int, p: int, spread: float, *, seed: int = 0, domains: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    """Datasets whose features have singular values from sqrt(n) down to sqrt(n)/spread, in common directions."""
    rng = np.random.default_rng(seed)
    rank = min(n, p)
    right = np.linalg.qr(rng.standard_normal((p, p)))[0][:, :rank]
    rows = []
    for _ in range(domains):
        left = np.linalg.qr(rng.standard_normal((n, rank)))[0]
        U = np.sqrt(n) * (left * np.geomspace(1.0, 1.0 / spread, rank)) @ right.T
        rows.append((U, U @ rng.standard_normal(p) + 0.1 * rng.standard_normal(n)))
    return rows


def cases() -> Iterator[tuple[str, Errors]]:
    """The situations of the page, each with its errors."""
    for spread, strength in ((1e1, 1e-2), (1e3, 1e-8), (1e12, 1e-8), (1e6, 1e-12)):
        rows = draw(40, 12, spread)
        yield f"singular values over {spread:.0e}, ridge {strength:.0e}", _errors(rows, strength)
    yield "p = 30 > n = 8, ridge 1e-06", _errors(draw(8, 30, 1e3), 1e-6)
    doubled = [(np.hstack([U, U]), y) for U, y in draw(40, 6, 10.0)]
    yield "every column twice, ridge 1e-06", _errors(doubled, 1e-6)
    narrow = [(U.astype(np.float32), y.astype(np.float32)) for U, y in draw(40, 12, 1e3)]
    yield "float32 rows, singular values over 1e+03, ridge 1e-08", _errors(narrow, 1e-8)


def _errors(rows: Rows, strength: float, **options: Any) -> Errors:
    return errors(rows, ridge=strength, transfer=strength / 2, stability=strength, horizon=5, **options)


def gram_errors(precision: str, *, n: int = 20_000, p: int = 200, device: str = "cpu") -> float:
    """Largest error of an entry of U'U as a share of |u_i| |u_j|, for rectified normal features."""
    U: Any = np.maximum(np.random.default_rng(0).standard_normal((n, p)), 0.0)
    right = U.T @ U
    if device != "cpu":
        import torch

        U = torch.asarray(U, device=device)
    found = narrow_gram(U, precision=precision)
    lengths = np.sqrt(np.diagonal(right))
    return float(np.abs(np.asarray(found if device == "cpu" else found.cpu()) - right).max() / lengths.max() ** 2)


def narrow_errors(precision: str) -> Errors:
    """What products in another precision do to a problem of condition 1e4."""
    return _errors(draw(40, 12, 1e2), 1e-6, gather=partial(Moments.from_rows, precision=precision))


def has_cuda() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def gram_times(n: int = 65_536, p: int = 4096) -> Iterator[Figure]:
    """How long U'U takes on the CUDA device in each precision."""
    import torch

    U = torch.randn(n, p, device="cuda", dtype=torch.float64)

    def product(precision: str) -> None:
        narrow_gram(U, precision=precision)
        torch.cuda.synchronize()

    for precision in PRECISIONS:
        taken = seconds(partial(product, precision), rounds=3)
        rate = 2e-12 * n * p * p / taken
        yield Figure("size", f"U'U, n = {n}, p = {p}, CUDA, {precision}", {"seconds": taken, "TFLOP/s": rate})


def measure() -> Iterator[Claim | Figure]:
    for name, found in cases():
        note = f"; condition {found.condition:.0e}"
        yield Claim(f"{name}: largest error / 5 eps condition", found.worst, found.bound, 1.0, note, unit="")
    devices = ["cpu", "cuda"] if has_cuda() else ["cpu"]
    for device in devices:
        for precision, limit in (("float32", 1e-6), ("split", 1e-13), ("tf32", 1e-3)):
            if precision != "tf32" or device == "cuda":
                found = gram_errors(precision, device=device)
                yield Claim(
                    f"U'U from {precision} products ({device}), error / {limit:.0e}", found, limit, 1.0, unit=""
                )
    if has_cuda():
        yield from gram_times()
