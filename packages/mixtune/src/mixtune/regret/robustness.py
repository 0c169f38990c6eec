"""Adversarial sensitivity: how far a small change of a few rows moves the optimal energy (Theorem 4).

An adversary may change a share q of all rows, each by at most epsilon in features (Euclidean) and in targets. The
theorem bounds |L - L~| by O(epsilon sqrt(Nbar q)) with weights and pre-trained heads held fixed. Here the change is
realised: rows are perturbed, the problem is solved again, the energies compared. By the envelope theorem the gradient
of the optimal energy in a row (u, y) of dataset i is that of its loss at the optimum,

    dL/du = 2 w_i theta^w (u'theta^w - y),    dL/dy = -2 w_i (u'theta^w - y),

so the worst case to first order spends the whole budget along it, on the rows where it is largest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixtune.arrays import Array, Booleans, Floats, Integers, to_numpy
from mixtune.checks import check_nonnegative, check_whole
from mixtune.errors import ParameterError
from mixtune.moments import Moments
from mixtune.regret._problem import RegretProblem
from mixtune.regret._solve import solve


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Realised changes ``|L - L~|`` and how they grow.

    Attributes
    ----------
    epsilons : array (E,)
    shares : array (Q,)
        q: shares of rows perturbed.
    energy : float
        L without perturbation.
    random : array (E, Q, trials)
        Changes under random perturbations on the budget's boundary.
    worst : array (E, Q)
        The largest change found: gradient-directed pushes up and down, random ones, and those of smaller budgets.
    """

    epsilons: Floats
    shares: Floats
    energy: float
    random: Floats
    worst: Floats

    @property
    def epsilon_slope_worst(self) -> float:
        """Growth exponent in epsilon at the largest share; Theorem 4: 1."""
        return log_slope(self.epsilons, self.worst[:, -1])

    @property
    def epsilon_slope_random(self) -> float:
        """Growth exponent of the root mean square random change in epsilon at the largest share."""
        return log_slope(self.epsilons, np.sqrt(np.mean(self.random[:, -1] ** 2, axis=-1)))

    @property
    def share_slope_worst(self) -> float:
        """Growth exponent in q at the smallest epsilon; Theorem 4 bounds the change by a multiple of q^(1/2)."""
        return log_slope(self.shares, self.worst[0])

    @property
    def share_slope_random(self) -> float:
        """Growth exponent of the root mean square random change in q at the smallest epsilon."""
        return log_slope(self.shares, np.sqrt(np.mean(self.random[0] ** 2, axis=-1)))

    @property
    def constant(self) -> float:
        """The least C with worst <= C epsilon sqrt(q) over the grid: the theorem's constant for these data."""
        return float(np.max(self.worst / (self.epsilons[:, None] * np.sqrt(self.shares[None, :]))))


def adversarial_sensitivity(
    rows: Sequence[tuple[Array, Array]],
    *,
    weights: Array,
    ridge: float,
    transfer: float,
    stability: float,
    horizon: int,
    epsilons: Sequence[float],
    shares: Sequence[float],
    trials: int = 5,
    refinements: int = 2,
    seed: int,
) -> Sensitivity:
    """Perturb rows, solve again, compare energies.

    Parameters
    ----------
    rows : sequence of (U, Y)
        Features and targets of each dataset.
    weights, ridge, transfer, stability, horizon
        As in :class:`mixtune.RegretProblem`; weights and heads stay those of the clean data.
    epsilons, shares : sequence of float
        The grid of (epsilon, q): positive, and q in (0, 1]. At least one row is perturbed.
    trials : int
        Random perturbations per grid point.
    refinements : int
        How often the worst case recomputes its direction at the perturbed data.
    seed : int

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune.regret import adversarial_sensitivity
    >>> rng = np.random.default_rng(0)
    >>> rows = [(rng.standard_normal((20, 3)), rng.standard_normal(20)) for _ in range(2)]
    >>> result = adversarial_sensitivity(
    ...     rows, weights=[0.5, 0.5], ridge=1.0, transfer=1.0, stability=1.0, horizon=2,
    ...     epsilons=[1e-4, 1e-3], shares=[0.1, 0.5], seed=0,
    ... )
    >>> round(result.epsilon_slope_worst, 2)
    1.0
    """
    levels, parts = _grid("epsilons", epsilons), _grid("shares", shares)
    if np.any(parts > 1):
        raise ParameterError(f"shares must be in (0, 1]; got {parts.tolist()}")
    trials, refinements = check_whole("trials", trials, least=1), check_whole("refinements", refinements)
    settings = {"weights": weights, "transfer": transfer, "stability": stability, "horizon": horizon}
    arrays = [(to_numpy(U), to_numpy(Y)) for U, Y in rows]
    clean = RegretProblem(moments=[Moments.from_rows(U, Y) for U, Y in arrays], ridge=ridge, **settings)
    attack = _Attack(arrays, clean)
    rng = np.random.default_rng(seed)
    random, worst = np.empty((len(levels), len(parts), trials)), np.empty((len(levels), len(parts)))
    for j, share in enumerate(parts):
        budget = max(1, int(np.floor(share * len(attack.owner) + 1e-9)))
        directions = [attack.random_direction(rng, budget) for _ in range(trials)]
        for i, epsilon in enumerate(levels):
            random[i, j] = [abs(attack.change(epsilon, d)) for d in directions]
            directed = max(attack.worst_change(epsilon, budget, sign, refinements) for sign in (1.0, -1.0))
            # Smaller attacks and random ones are within the budget too: the worst is the worst of all found.
            worst[i, j] = max(directed, *random[i, j], worst[i - 1, j] if i else 0.0, worst[i, j - 1] if j else 0.0)
    return Sensitivity(levels, parts, attack.energy, random, worst)


def log_slope(x: Floats, y: Floats) -> float:
    """Least-squares slope of log y against log x; NaN-free: needs two points and positive values."""
    if len(x) < 2 or np.any(y <= 0):
        raise ParameterError("a slope needs at least two grid points with positive changes")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


class _Attack:
    """All rows stacked, and the energy as a function of them with weights and heads fixed."""

    def __init__(self, rows: list[tuple[Floats, Floats]], clean: RegretProblem) -> None:
        self.clean = clean
        self.U = np.concatenate([U for U, _ in rows]).astype(np.float64)
        self.Y = np.concatenate([Y.reshape(len(Y), -1) for _, Y in rows]).astype(np.float64)
        self.owner = np.repeat(np.arange(len(rows)), [len(U) for U, _ in rows])
        self.energy = solve(clean).energy

    def _solve(self, dU: Floats, dY: Floats) -> tuple[float, Floats]:
        U, Y = self.U + dU, self.Y + dY
        moments = [
            Moments.from_rows(U[mine], Y[mine, 0] if self.clean.single_output else Y[mine])
            for mine in (self.owner == i for i in range(self.clean.n_domains))
        ]
        solution = solve(self.clean.replaced(moments=moments))
        return solution.energy, solution.coef.reshape(U.shape[1], -1)

    def change(self, epsilon: float, direction: tuple[Floats, Floats]) -> float:
        """``L~ - L`` after moving epsilon along unit row directions."""
        return self._solve(epsilon * direction[0], epsilon * direction[1])[0] - self.energy

    def random_direction(self, rng: np.random.Generator, budget: int) -> tuple[Floats, Floats]:
        """Unit directions for ``budget`` random rows, zero elsewhere."""
        chosen = _mask(rng.permutation(len(self.owner))[:budget], len(self.owner))
        return tuple(_unit(rng.standard_normal(a.shape)) * chosen for a in (self.U, self.Y))  # type: ignore[return-value]

    def worst_change(self, epsilon: float, budget: int, sign: float, refinements: int) -> float:
        """``|L~ - L|`` with the budget spent along the gradient of the energy, best of a few refined directions."""
        dU, dY = np.zeros_like(self.U), np.zeros_like(self.Y)
        best = 0.0
        for _ in range(refinements + 1):
            _, coef = self._solve(dU, dY)
            residual = (self.U + dU) @ coef - (self.Y + dY)
            pressure = 2 * self.clean.weights[self.owner][:, None] * residual
            gU, gY = pressure @ coef.T, -pressure
            strength = np.linalg.norm(gU, axis=1) + np.linalg.norm(gY, axis=1)
            chosen = _mask(np.argsort(-strength, kind="stable")[:budget], len(self.owner))
            dU, dY = (sign * epsilon * _unit(g) * chosen for g in (gU, gY))
            best = max(best, abs(self._solve(dU, dY)[0] - self.energy))
        return best


def _mask(places: Integers, count: int) -> Booleans:
    """Which of ``count`` rows are at these places, (count, 1)."""
    return np.isin(np.arange(count), places)[:, None]


def _unit(rows: Floats) -> Floats:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)


def _grid(name: str, values: Sequence[float]) -> Floats:
    grid = np.array([check_nonnegative(name, v) for v in values])
    if len(grid) == 0 or np.any(grid == 0):
        raise ParameterError(f"{name} must be positive numbers; got {list(values)}")
    return np.sort(grid)
