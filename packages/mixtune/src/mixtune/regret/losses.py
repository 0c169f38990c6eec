"""Other smooth losses than the square: Newton steps on the same closed form.

The running cost does not know the loss. So the path to the optimal end point is the same, and the end point is

    theta^w(T) = argmin_theta  r |theta - m|^2 + sum_i w_i sum_j loss(u_ij'theta, y_ij),   r = rho/|w|^2,

with m the mixture of the local models. For a convex loss with two derivatives Newton's method solves it, one weighted
ridge regression a step: the curvatures of the loss are weights of the rows. The slow reference is
:func:`least_energy`, which minimises the energy over all steps of all heads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from mixtune.arrays import Floats
from mixtune.checks import check_positive, check_simplex, check_whole
from mixtune.errors import ConvergenceError, DataError, ParameterError
from mixtune.regret._problem import check_penalty
from mixtune.regret._solve import Schedule

#: Newton stops where a step lowers the objective by less than this share of it.
TOLERANCE = 1e-12
MOST_STEPS, MOST_HALVINGS = 100, 40

Rows = Sequence[tuple[ArrayLike, ArrayLike]]
Derivative = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True)
class SmoothLoss:
    """A convex loss of a prediction and a target, with its first two derivatives in the prediction.

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune.regret import LOGISTIC
    >>> float(LOGISTIC.value(np.zeros(1), np.ones(1))[0].round(3))
    0.693
    """

    name: str
    value: Derivative
    slope: Derivative
    curvature: Derivative


SQUARED = SmoothLoss("squared", lambda f, y: (f - y) ** 2, lambda f, y: 2 * (f - y), lambda f, y: np.full_like(f, 2.0))
#: Targets 0 and 1; the prediction is the log-odds.
LOGISTIC = SmoothLoss(
    "logistic",
    lambda f, y: np.logaddexp(0.0, f) - y * f,
    lambda f, y: expit(f) - y,
    lambda f, y: expit(f) * expit(-f),
)
#: Counts; the prediction is the logarithm of their mean.
POISSON = SmoothLoss("poisson", lambda f, y: np.exp(f) - y * f, lambda f, y: np.exp(f) - y, lambda f, y: np.exp(f))
#: Nearly the absolute error for residuals above 1, the square below.
PSEUDO_HUBER = SmoothLoss(
    "pseudo-huber",
    lambda f, y: 2 * (np.hypot(1.0, f - y) - 1.0),
    lambda f, y: 2 * (f - y) / np.hypot(1.0, f - y),
    lambda f, y: 2 / np.hypot(1.0, f - y) ** 3,
)


@dataclass(frozen=True, eq=False)
class SmoothSolution:
    """The heads after the last step, and the way there.

    Attributes
    ----------
    coef : array (p,)
        ``theta^w(T)``.
    heads, start : array (N, p)
        ``Theta(T)`` and ``Theta(0)``, the local models.
    loss, energy : float
    effective_ridge : float
    steps : int
        Newton steps taken.
    schedule : Schedule
    """

    coef: Floats
    heads: Floats
    start: Floats
    loss: float
    energy: float
    effective_ridge: float
    steps: int
    schedule: Schedule

    def heads_at(self, t: ArrayLike) -> Floats:
        """``Theta(t)``: the same straight way for every loss."""
        share = self.schedule.end_share(np.asarray(t, dtype=np.float64))
        return np.asarray(self.start + share[..., None, None] * (self.heads - self.start))


def solve_smooth(
    rows: Rows,
    *,
    loss: SmoothLoss,
    weights: ArrayLike,
    ridge: float,
    transfer: float | Sequence[float],
    stability: float | Sequence[float],
    horizon: int,
) -> SmoothSolution:
    """The regret-optimal algorithm for a smooth convex loss, from features and targets of every dataset.

    Parameters
    ----------
    rows : sequence of (U, y)
    loss : SmoothLoss
        :data:`LOGISTIC`, :data:`POISSON`, :data:`PSEUDO_HUBER`, :data:`SQUARED`, or one of your own.
    weights, ridge, transfer, stability, horizon
        As in :class:`mixtune.RegretProblem`; ``ridge`` positive.

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune.regret import LOGISTIC, solve_smooth
    >>> rng = np.random.default_rng(0)
    >>> U = rng.standard_normal((2, 200, 2))
    >>> rows = [(u, (u @ [1.0, -1.0] + rng.logistic(size=200) > 0).astype(float)) for u in U]
    >>> options = {"ridge": 1.0, "transfer": 0.1, "stability": 1.0, "horizon": 5}
    >>> solve_smooth(rows, loss=LOGISTIC, weights=[0.5, 0.5], **options).coef.round(1)
    array([ 1.1, -1.3])
    """
    arrays = [_checked_rows(index, *pair) for index, pair in enumerate(rows)]
    w, ridge = check_simplex(weights, len(arrays)), check_positive("ridge", ridge)
    horizon = check_whole("horizon", horizon)
    schedule = Schedule(
        check_penalty("transfer", transfer, horizon), check_penalty("stability", stability, horizon), horizon
    )
    if horizon > 0 and not schedule.rho > 0:
        raise ParameterError("other losses than the square need transfer or stability to be positive")
    nothing = np.zeros(arrays[0][0].shape[1])
    start = np.stack([_newton([pair], np.ones(1), loss, nothing, ridge)[0] for pair in arrays])
    middle, square = w @ start, float(w @ w)
    effective_ridge = schedule.rho / square if horizon > 0 else np.inf
    coef, steps = (middle, 0) if horizon == 0 else _newton(arrays, w, loss, middle, effective_ridge)
    end = _loss(arrays, w, loss, coef)
    moved = coef - middle
    energy = end + (effective_ridge * float(moved @ moved) if horizon > 0 else 0.0)
    heads = start + (w / square)[:, None] * moved
    return SmoothSolution(coef, heads, start, end, energy, effective_ridge, steps, schedule)


def least_energy(rows: Rows, solution: SmoothSolution, *, loss: SmoothLoss, weights: ArrayLike) -> tuple[float, Floats]:
    """The least energy over all steps of all heads by a general minimiser, and the heads (T, N, p): the slow reference.

    It starts at, and holds heads to, the local models of ``solution``, with the penalties of its schedule.
    """
    from scipy.optimize import minimize

    arrays = [_checked_rows(index, *pair) for index, pair in enumerate(rows)]
    w, start, schedule = np.asarray(weights, dtype=np.float64), solution.start, solution.schedule
    shape = (schedule.horizon, *start.shape)

    def energy(flat: Floats) -> tuple[float, Floats]:
        path = np.concatenate([start[None], flat.reshape(shape)])
        away, moved = path[1:] - start, np.diff(path, axis=0)
        lam, beta = schedule.transfers[:, None, None], schedule.stabilities[:, None, None]
        slope = 2 * lam * away + 2 * beta * moved
        slope[:-1] -= 2 * beta[1:] * moved[1:]
        slope[-1] += w[:, None] * _gradient(arrays, w, loss, w @ path[-1])
        value = np.sum(lam * away**2) + np.sum(beta * moved**2) + _loss(arrays, w, loss, w @ path[-1])
        return float(value), slope.ravel()

    options = {"maxiter": 10_000, "gtol": 1e-10, "ftol": 1e-15}
    found = minimize(energy, np.tile(start, (shape[0], 1, 1)).ravel(), jac=True, method="L-BFGS-B", options=options)
    return float(found.fun), np.asarray(found.x).reshape(shape)


def _newton(
    arrays: Sequence[tuple[Floats, Floats]], w: Floats, loss: SmoothLoss, middle: Floats, ridge: float
) -> tuple[Floats, int]:
    """Minimise ``ridge |theta - middle|^2`` plus the weighted loss, by Newton steps halved until they gain."""
    theta = middle.copy()

    def objective(theta: Floats) -> float:
        return ridge * float((theta - middle) @ (theta - middle)) + _loss(arrays, w, loss, theta)

    value = objective(theta)
    for step in range(1, MOST_STEPS + 1):
        gradient = 2 * ridge * (theta - middle) + _gradient(arrays, w, loss, theta)
        hessian = 2 * ridge * np.eye(len(theta))
        for weight, (U, y) in zip(w, arrays):
            hessian += weight * (U.T * loss.curvature(U @ theta, y)) @ U
        direction = -np.linalg.solve(hessian, gradient)
        # What a quadratic would gain: below rounding, there is nothing left to do.
        gain = -float(gradient @ direction)
        if gain <= TOLERANCE * max(1.0, abs(value)):
            return theta + direction, step
        for halving in range(MOST_HALVINGS):
            moved = theta + direction / 2**halving
            with np.errstate(over="ignore"):
                lower = objective(moved)
            if lower <= value - 1e-4 * gain / 2**halving:
                break
        else:
            raise ConvergenceError(f"Newton's method found no descent for the loss {loss.name}; is it convex?")
        theta, value = moved, lower
    raise ConvergenceError(
        f"Newton's method did not converge in {MOST_STEPS} steps for the loss {loss.name}; is it convex?"
    )


def _loss(arrays: Sequence[tuple[Floats, Floats]], w: Floats, loss: SmoothLoss, theta: Floats) -> float:
    return float(sum(weight * np.sum(loss.value(U @ theta, y)) for weight, (U, y) in zip(w, arrays)))


def _gradient(arrays: Sequence[tuple[Floats, Floats]], w: Floats, loss: SmoothLoss, theta: Floats) -> Floats:
    return np.sum([weight * U.T @ loss.slope(U @ theta, y) for weight, (U, y) in zip(w, arrays)], axis=0)


def _checked_rows(index: int, U: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    features, targets = np.asarray(U, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if features.ndim != 2 or targets.shape != features.shape[:1]:
        raise DataError(
            f"rows[{index}] must be features (n, p) and targets (n,); got {features.shape} and {targets.shape}"
        )
    if not (np.all(np.isfinite(features)) and np.all(np.isfinite(targets))):
        raise DataError(f"rows[{index}] holds values that are NaN or infinite")
    return features, targets
