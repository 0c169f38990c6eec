"""Gradient descent on the terminal loss, exact for any number of steps.

One step moves head k by ``2 lr w_k (b - A theta^w)``, so ``theta^w`` by ``2 lr |w|^2 (b - A theta^w)``: a linear map.
In the eigenbasis of A, with a_k its eigenvalues, g_k the opening gradient and q_k = 1 - 2 lr |w|^2 a_k,

    theta^w(t) = theta^w(0) + sum_k v_k (g_k/a_k) (1 - q_k^t),   loss(t) = l* + sum_k (g_k^2/a_k) q_k^(2t),

and the running cost is made of geometric sums. A hundred thousand steps cost one power. Directions with a_k = 0 carry
no gradient and never move. The iteration is stable iff lr <= 1/(|w|^2 a_max).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mixtune.arrays import Array, Floats, match, namespace, to_numpy
from mixtune.checks import check_positive, check_whole
from mixtune.errors import ConvergenceError, ParameterError
from mixtune.regret._problem import RegretProblem, RegretSolution, heads_weights

#: Steps evaluated at a time, times eigenvalues: bounds the memory of long curves.
CHUNK_ENTRIES = 2**21


def descend(
    problem: RegretProblem, *, learning_rate: float, steps: int, allow_divergence: bool = False
) -> RegretSolution:
    """Gradient descent on the weighted terminal loss, from ``problem.start``.

    Parameters
    ----------
    problem : RegretProblem
        ``horizon`` is not used; ``transfer`` and ``stability`` enter the energy, not the steps.
    learning_rate : float
        Positive; above ``1/(|w|^2 a_max)`` the iteration diverges, which is refused unless ``allow_divergence``.
    steps : int
        Number of gradient steps.
    allow_divergence : bool
        Whether to allow divergence; losses may then be infinite.

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune import Moments, RegretProblem, descend
    >>> rng = np.random.default_rng(0)
    >>> U = rng.standard_normal((30, 2))
    >>> problem = RegretProblem(
    ...     moments=[Moments.from_rows(U, U @ [1.0, 2.0])], weights=[1.0], heads=np.zeros((1, 2)),
    ...     transfer=0.0, stability=1.0, horizon=1,
    ... )
    >>> descend(problem, learning_rate=0.01, steps=10_000).coef.round(6)
    array([1., 2.])
    """
    if np.ndim(problem.transfer) or np.ndim(problem.stability):
        raise ParameterError("gradient descent has no steps of the problem: pass one number for transfer and stability")
    rate = check_positive("learning_rate", learning_rate)
    path = DescentPath(problem, rate, check_whole("steps", steps))
    if rate > path.stability_limit and not allow_divergence:
        raise ParameterError(
            f"learning_rate {rate:.6g} exceeds the stability limit {path.stability_limit:.6g} = 1/(|w|^2 a_max) of "
            "this problem: the loss would explode; lower it, or pass allow_divergence=True to see it happen"
        )
    return RegretSolution(problem, path, "descent", None)


@dataclass(frozen=True, eq=False)
class DescentPath:
    """The trajectory of gradient descent as functions of the step."""

    problem: RegretProblem
    learning_rate: float
    steps: int

    @cached_property
    def _start_mix(self) -> Array:
        return self.problem.mix(self.problem.as_matrices(self.problem.start))

    @cached_property
    def _basis(self) -> tuple[Floats, Array, Array]:
        """Eigenvalues a_k (NumPy), eigenvectors (p, K) and opening gradients g (K, D)."""
        basis = self.problem.system.eigenbasis()
        return to_numpy(basis.values), basis.vectors, basis.vectors.T @ self.problem.system.gradient(self._start_mix)

    @cached_property
    def stability_limit(self) -> float:
        """The largest stable learning rate ``1/(|w|^2 a_max)``."""
        values = self._basis[0]
        return float(1 / (self.problem.weight_square * values.max())) if len(values) else float("inf")

    @cached_property
    def _drop(self) -> Floats:
        """``2 lr |w|^2 a_k = 1 - q_k``."""
        return 2 * self.learning_rate * self.problem.weight_square * self._basis[0]

    def _power(self, t: Floats) -> Floats:
        """``q_k^t``, shape (len(t), K); small drops through log1p so that long runs keep their digits."""
        drop = self._drop
        with np.errstate(all="ignore"):
            size = np.exp(np.outer(t, np.where(drop < 1, np.log1p(-np.minimum(drop, 1.0)), np.log(np.abs(1 - drop)))))
        size[t == 0] = 1.0
        negative = (drop[None, :] > 1) & (t[:, None] % 2 == 1)
        return np.where(negative, -size, size)

    def _moved(self, t: Floats) -> Floats:
        """``1 - q_k^t`` without cancellation."""
        drop = self._drop
        with np.errstate(all="ignore"):
            small = -np.expm1(np.outer(t, np.log1p(-np.minimum(drop, 1.0))))
        small[t == 0] = 0.0
        return np.where(drop[None, :] < 1, small, 1 - self._power(t))

    @cached_property
    def _gradient_squares(self) -> Floats:
        """``g_k^2`` summed over outputs."""
        gradient = self._basis[2]
        return to_numpy(namespace(gradient).sum(gradient**2, axis=1))

    def _displacement(self, t: Floats) -> Array:
        """``theta^w(t) - theta^w(0)``, (len(t), p, D)."""
        return self._combine(self._moved(t) / self._basis[0], t)

    def _combine(self, share: Floats, t: Floats) -> Array:
        """``sum_k share_k(t) v_k g_k``, (len(t), p, D)."""
        _, vectors, gradient = self._basis
        if not np.all(np.isfinite(share)):
            raise ConvergenceError(f"gradient descent overflowed before step {int(t.max())}; ask for fewer steps")
        return vectors @ (match(share, gradient)[:, :, None] * gradient)

    def _per_head(self, moved: Array) -> Array:
        """Moves of theta^w (len(t), p, D) as moves of the heads, (len(t), N, p, D)."""
        return heads_weights(self.problem.weights / self.problem.weight_square, moved) * moved[:, None]

    def coef(self, t: Floats) -> Array:
        return self._start_mix + self._displacement(t)

    def heads(self, t: Floats) -> Array:
        return self.problem.as_matrices(self.problem.start) + self._per_head(self._displacement(t))

    def controls(self, t: Floats) -> Array:
        return self._per_head(self._combine(self._power(t) * (self._drop / self._basis[0]), t))

    def loss(self, t: Floats) -> Floats:
        excess = self._gradient_squares / self._basis[0]
        floor = max(self.problem.system.loss(self._start_mix) - float(excess.sum()), 0.0)
        with np.errstate(over="ignore"):
            return floor + self._chunked(t, lambda u: self._power(u) ** 2 @ excess)

    def running_cost(self, t: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return self._stability_cost(t) + self._transfer_cost(t)

    def _stability_cost(self, t: Floats) -> Floats:
        """beta times the geometric sum of squared steps (2 lr |w|^2 g_k q_k^u)^2/|w|^2."""
        if self.problem.stability == 0:
            return np.zeros(t.shape)
        drop = self._drop
        weight = self.problem.stability * self._gradient_squares * (drop / self._basis[0]) ** 2
        opening = drop * (2 - drop)  # 1 - q^2

        @np.errstate(divide="ignore", invalid="ignore")
        def sums(u: Floats) -> Floats:
            summed = (1 - self._power(u) ** 2) / opening
            return np.where(np.abs(opening) > 1e-3, summed, _geometric((1 - drop) ** 2, u)) @ weight

        return self._chunked(t, sums) / self.problem.weight_square

    def _transfer_cost(self, t: Floats) -> Floats:
        """lambda times sum_{u=1}^t |z(0) + (w/|w|^2) x moved(u)|^2."""
        if self.problem.transfer == 0:
            return np.zeros(t.shape)
        values, vectors, gradient = self._basis
        xp = namespace(gradient)
        offset = self.problem.as_matrices(self.problem.start) - self.problem.as_matrices(self.problem.reference)
        lean = to_numpy(xp.sum(gradient * (vectors.T @ self.problem.mix(offset)), axis=1)) / values
        spread = self._gradient_squares / values**2

        def sums(u: Floats) -> Floats:
            first, second = _moved_sums(self._drop, u)
            return (2 * first @ lean + second @ spread) / self.problem.weight_square

        return self.problem.transfer * (t * float(xp.sum(offset**2)) + self._chunked(t, sums))

    def _chunked(self, t: Floats, function: Callable[[Floats], Floats]) -> Floats:
        size = max(1, CHUNK_ENTRIES // max(1, len(self._drop)))
        parts = [function(t[i : i + size]) for i in range(0, len(t), size)]
        return np.concatenate(parts) if parts else np.zeros(0)


def _geometric(ratio: Floats, t: Floats) -> Floats:
    """``sum_{u=0}^{t-1} ratio^u`` by doubling: sums of positive terms, no cancellation near ratio = 1."""
    total, power = np.zeros((len(t), len(ratio))), np.ones((len(t), len(ratio)))
    block, block_power = np.ones(len(ratio)), ratio.copy()
    for bit in _bits(t):
        total = np.where(bit, total + power * block, total)
        power = np.where(bit, power * block_power, power)
        block, block_power = block + block_power * block, block_power**2
    return total


def _moved_sums(drop: Floats, t: Floats) -> tuple[Floats, Floats]:
    """``sum_{u=1}^t (1 - q^u)`` and ``sum_{u=1}^t (1 - q^u)^2`` by doubling, from 1 - q^(s+u) = y_s + q^s (1 - q^u)."""
    shape = (len(t), len(drop))
    q, moved, first, second = np.ones(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    bq, bmoved, bfirst, bsecond, length = 1 - drop, drop.copy(), drop.copy(), drop**2, 1.0
    for bit in _bits(t):
        # Append a block of ``length`` steps after the steps so far (only where this bit of t is set).
        second = np.where(bit, second + length * moved**2 + 2 * moved * q * bfirst + q**2 * bsecond, second)
        first = np.where(bit, first + length * moved + q * bfirst, first)
        moved = np.where(bit, moved + q * bmoved, moved)
        q = np.where(bit, q * bq, q)
        bsecond = bsecond + length * bmoved**2 + 2 * bmoved * bq * bfirst + bq**2 * bsecond
        bfirst = bfirst + length * bmoved + bq * bfirst
        bmoved, bq, length = bmoved + bq * bmoved, bq**2, 2 * length
    return first, second


def _bits(t: Floats) -> list[Floats]:
    """The binary digits of the steps, lowest first, each shaped (len(t), 1)."""
    whole = t.astype(np.int64)
    return [((whole >> k) & 1).astype(bool)[:, None] for k in range(int(whole.max(initial=0)).bit_length())]
