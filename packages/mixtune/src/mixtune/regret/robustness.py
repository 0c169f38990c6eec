"""Adversarial sensitivity: how far a small change of a few rows moves the optimal energy (Theorem 4).

An adversary may change a share q of all rows, each by at most epsilon in features (Euclidean) and in targets. The
change is realised: rows are perturbed, the problem is solved again, the energies compared. With weights and pre-trained
heads held fixed, the gradient of the optimal energy in a row (u, y) of dataset i is that of its loss at the optimum
(envelope theorem),

    dL/du = 2 w_i theta^w (u'theta^w - y),    dL/dy = -2 w_i (u'theta^w - y),

so the worst case to first order spends the whole budget along it, on the rows where it is largest. Where the attack
also changes the pre-trained heads, the gradient of the ridge heads is added.

The paper bounds the change by a multiple of epsilon sqrt(q Nbar) that depends on the sizes of features and targets
only. That is false: the loss is a sum over rows, so for q = 1 the change grows like Nbar. :func:`energy_bound` is an
explicit bound; with fixed weights and heads it is of the order epsilon sqrt(L W), where L is the energy and W the
largest sum of weights w_i over the changed rows, at most q Nbar max_i w_i.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mixtune.arrays import Array, Booleans, Floats, Integers, to_numpy
from mixtune.checks import check_nonnegative, check_whole
from mixtune.errors import ParameterError
from mixtune.moments import Moments
from mixtune.regret._problem import RegretProblem
from mixtune.regret._solve import Schedule, solve

#: Features and targets of every dataset.
Rows = Sequence[tuple[Array, Array]]


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
    bound : array (E, Q)
        :func:`energy_bound` for each budget: no change within it is larger. Infinite where the attack recomputes
        weights, about which nothing is known here.
    """

    epsilons: Floats
    shares: Floats
    energy: float
    random: Floats
    worst: Floats
    bound: Floats

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
        """The least C with worst <= C epsilon sqrt(q) over the grid, for these data; it grows with their rows."""
        return float(np.max(self.worst / (self.epsilons[:, None] * np.sqrt(self.shares[None, :]))))


def adversarial_sensitivity(
    rows: Rows,
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
    refit: bool = False,
    weigh: Callable[[Rows], Array] | None = None,
) -> Sensitivity:
    """Perturb rows, solve again, compare energies.

    Parameters
    ----------
    rows : sequence of (U, Y)
        Features and targets of each dataset.
    weights, ridge, transfer, stability, horizon
        As in :class:`mixtune.RegretProblem`.
    epsilons, shares : sequence of float
        The grid of (epsilon, q): positive, and q in (0, 1]. At least one row is perturbed.
    trials : int
        Random perturbations per grid point.
    refinements : int
        How often the worst case recomputes its direction at the perturbed data.
    seed : int
    refit : bool
        Compute the pre-trained heads again from the perturbed rows, as Algorithm 2 does; by default they stay those of
        the clean rows.
    weigh : function of the rows, optional
        Compute the weights again from the perturbed rows; by default they stay ``weights``.

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
    attack = _Attack(arrays, clean, ridge if refit else None, weigh)
    rng = np.random.default_rng(seed)
    random, worst = np.empty((len(levels), len(parts), trials)), np.empty((len(levels), len(parts)))
    bound = np.full(worst.shape, np.inf)
    for j, share in enumerate(parts):
        budget = max(1, int(np.floor(share * len(attack.owner) + 1e-9)))
        directions = [attack.random_direction(rng, budget) for _ in range(trials)]
        for i, epsilon in enumerate(levels):
            random[i, j] = [abs(attack.change(epsilon, d)) for d in directions]
            directed = max(attack.worst_change(epsilon, budget, sign, refinements) for sign in (1.0, -1.0))
            # Smaller attacks and random ones are within the budget too: the worst is the worst of all found.
            worst[i, j] = max(directed, *random[i, j], worst[i - 1, j] if i else 0.0, worst[i, j - 1] if j else 0.0)
            if weigh is None:
                bound[i, j] = energy_bound(clean, epsilon, rows=budget, refit=ridge if refit else None)
    return Sensitivity(levels, parts, attack.energy, random, worst, bound)


def energy_bound(
    problem: RegretProblem, epsilon: float, *, rows: int, refit: float | None = None, weight_change: float = 0.0
) -> float:
    """A bound on the change of the least energy when ``rows`` rows move by at most ``epsilon``.

    The path that is optimal before the change is tried after it, shifted by the change of the heads, and the other way
    round. Its running cost is the same, so only the terminal loss differs: with g = 1 + |theta^w|, W the largest sum of
    row weights of so many rows and fixed weights and heads, by (sqrt(l) + epsilon g sqrt(W))^2 - l. Of the path that is
    optimal after the change, |theta^w| is at most that of the prior mean plus |w| sqrt(L/rho).

    Parameters
    ----------
    problem : RegretProblem
        Before the change, with one start for all attacks: the pre-trained heads, or heads that do not change.
    epsilon : float
        The largest change of a row, in features (Euclidean) and in targets.
    rows : int
        How many rows change.
    refit : float, optional
        The ridge with which start and reference are computed again from the changed rows, domain by domain.
    weight_change : float
        A bound on ``sum_i |w_i - w~_i|`` where weights change as well.

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune import Moments, RegretProblem, solve
    >>> from mixtune.regret import energy_bound
    >>> rng = np.random.default_rng(0)
    >>> U, y = rng.standard_normal((20, 3)), rng.standard_normal(20)
    >>> before = RegretProblem(
    ...     moments=[Moments.from_rows(U, y)], weights=[1.0], ridge=1.0, transfer=1, stability=1, horizon=2
    ... )
    >>> after = before.replaced(moments=[Moments.from_rows(U, y + 0.01)])
    >>> round(abs(solve(after).energy - solve(before).energy), 2), round(energy_bound(before, 0.01, rows=20), 2)
    (0.15, 2.12)
    """
    solution, w = solve(problem), problem.weights
    schedule = Schedule(problem.transfer, problem.stability, problem.horizon)
    changed = [min(rows, m.count) for m in problem.moments]
    shift = 0.0 if refit is None else max(_ridge_shifts(problem, epsilon, changed, refit))
    ends = [_size(head) for head in problem.as_matrices(solution.heads)]
    coef, loss, energy = _size(solution.coef), solution.loss, solution.energy
    spectral = [math.sqrt(max(float(np.linalg.eigvalsh(to_numpy(m.gram))[-1]), 0.0)) for m in problem.moments]
    moved = np.sum(np.sort(np.repeat(w, [m.count for m in problem.moments]))[::-1][:rows])
    moved = float(moved) + weight_change * rows
    reach, longest = epsilon * math.sqrt(moved), max(spectral)

    def exceeded(loss: float, largest: float, reach: float, away: float) -> float:
        return (math.sqrt(loss + weight_change * largest) + reach + longest * away) ** 2 - loss

    away = weight_change * max(ends) + shift
    losses = [float(m.loss(solution.coef)) for m in problem.moments]
    above = exceeded(loss, max(losses), reach * (1 + coef + away), away)
    # After the change, if the energy has fallen: how long heads can be, and how large losses.
    prior = problem.as_matrices(problem.reference)
    prior = prior + schedule.pull * (problem.as_matrices(problem.start) - prior)
    lengths = [_size(head) for head in prior]
    room = math.sqrt(energy / schedule.rho) if schedule.rho > 0 else math.inf
    weight_size = math.sqrt(problem.weight_square) + weight_change
    longest_coef = _size(problem.mix(prior)) + weight_change * max(lengths) + shift + weight_size * room
    largest = 0.0
    if weight_change > 0:
        spread = [epsilon * math.sqrt(k) for k in changed]
        targets = [math.sqrt(float(np.sum(to_numpy(m.square)))) for m in problem.moments]
        largest = max(((u + e) * longest_coef + y + e) ** 2 for u, e, y in zip(spectral, spread, targets))
    away = weight_change * (max(lengths) + shift + room) + shift
    below = exceeded(energy, largest, reach * (1 + longest_coef), away)
    return max(above, below)


def _ridge_shifts(problem: RegretProblem, epsilon: float, changed: Sequence[int], ridge: float) -> list[float]:
    """By how much each local head can move: epsilon sqrt(k) ((1 + |theta|)/(2 sqrt(kappa)) + |residuals|/kappa).

    With r(theta) = Y - U theta, theta~ - theta = (U~'U~ + kappa I)^{-1} (U~'r~(theta) - U'r(theta)).
    """
    if ridge == 0:
        return [math.inf]
    shifts = []
    for head, m, k in zip(problem.heads, problem.moments, changed):
        residual = math.sqrt(max(float(m.loss(head)), 0.0))
        shifts.append(epsilon * math.sqrt(k) * ((1 + _size(head)) / (2 * math.sqrt(ridge)) + residual / ridge))
    return shifts


def _size(array: Array) -> float:
    return float(np.linalg.norm(to_numpy(array)))


def log_slope(x: Floats, y: Floats) -> float:
    """Least-squares slope of log y against log x; NaN-free: needs two points and positive values."""
    if len(x) < 2 or np.any(y <= 0):
        raise ParameterError("a slope needs at least two grid points with positive changes")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


class _Attack:
    """All rows stacked, and the energy as a function of them; heads and weights are fixed or follow the rows."""

    def __init__(
        self,
        rows: list[tuple[Floats, Floats]],
        clean: RegretProblem,
        ridge: float | None,
        weigh: Callable[[Rows], Array] | None,
    ) -> None:
        self.clean, self.ridge, self.weigh = clean, ridge, weigh
        self.U = np.concatenate([U for U, _ in rows]).astype(np.float64)
        self.Y = np.concatenate([Y.reshape(len(Y), -1) for _, Y in rows]).astype(np.float64)
        self.owner = np.repeat(np.arange(len(rows)), [len(U) for U, _ in rows])
        self.energy = solve(clean).energy

    def _problem(self, dU: Floats, dY: Floats) -> RegretProblem:
        U, Y = self.U + dU, self.Y + dY
        changed = [
            (U[mine], Y[mine, 0] if self.clean.single_output else Y[mine])
            for mine in (self.owner == i for i in range(self.clean.n_domains))
        ]
        moments = [Moments.from_rows(*pair) for pair in changed]
        weights = self.clean.weights if self.weigh is None else self.weigh(changed)
        if self.ridge is None:
            return self.clean.replaced(moments=moments, weights=weights)
        return self.clean.replaced(moments=moments, weights=weights, ridge=self.ridge, heads=None)

    def _solve(self, dU: Floats, dY: Floats) -> float:
        return solve(self._problem(dU, dY)).energy

    def _gradient(self, dU: Floats, dY: Floats) -> tuple[Floats, Floats]:
        """Of the energy in every row, with the weights held where they are."""
        problem = self._problem(dU, dY)
        coef = to_numpy(solve(problem).coef).reshape(self.U.shape[1], -1)
        U, Y = self.U + dU, self.Y + dY
        residual = U @ coef - Y
        pressure = 2 * problem.weights[self.owner][:, None] * residual
        gU, gY = pressure @ coef.T, -pressure
        if self.ridge is None:
            return gU, gY
        # The heads' mixture is the prior mean, in which the energy has the gradient of the loss at the optimum.
        pull = U.T @ pressure
        for i, (w, m, head) in enumerate(zip(problem.weights, problem.moments, problem.as_matrices(problem.heads))):
            mine = self.owner == i
            held = to_numpy(m.gram) + self.ridge * np.eye(len(pull))
            moved = w * np.linalg.lstsq(held, pull, rcond=None)[0]
            theta, away = to_numpy(head), U[mine] @ moved
            gU[mine] += (Y[mine] - U[mine] @ theta) @ moved.T - away @ theta.T
            gY[mine] += away
        return gU, gY

    def change(self, epsilon: float, direction: tuple[Floats, Floats]) -> float:
        """``L~ - L`` after moving epsilon along unit row directions."""
        return self._solve(epsilon * direction[0], epsilon * direction[1]) - self.energy

    def random_direction(self, rng: np.random.Generator, budget: int) -> tuple[Floats, Floats]:
        """Unit directions for ``budget`` random rows, zero elsewhere."""
        chosen = _mask(rng.permutation(len(self.owner))[:budget], len(self.owner))
        return tuple(_unit(rng.standard_normal(a.shape)) * chosen for a in (self.U, self.Y))  # type: ignore[return-value]

    def worst_change(self, epsilon: float, budget: int, sign: float, refinements: int) -> float:
        """``|L~ - L|`` with the budget spent along the gradient of the energy, best of a few refined directions."""
        dU, dY = np.zeros_like(self.U), np.zeros_like(self.Y)
        best = 0.0
        for _ in range(refinements + 1):
            gU, gY = self._gradient(dU, dY)
            strength = np.linalg.norm(gU, axis=1) + np.linalg.norm(gY, axis=1)
            chosen = _mask(np.argsort(-strength, kind="stable")[:budget], len(self.owner))
            dU, dY = (sign * epsilon * _unit(g) * chosen for g in (gU, gY))
            best = max(best, abs(self._solve(dU, dY) - self.energy))
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
