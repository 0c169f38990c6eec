"""The paper's Algorithm 2 and Algorithm 3 as printed, step by step and dense.

They check the closed form, reproduce the paper's claims about cost, and can be read next to the paper.
Algorithm 2 inverts T matrices of size Np x Np; use it on small problems only.
"""

from dataclasses import dataclass

from mixtune.arrays import Array, namespace
from mixtune.errors import SingularError
from mixtune.regret._problem import RegretProblem, RegretSolution, StoredPath
from mixtune.regret._solve import Schedule


@dataclass(frozen=True, eq=False)
class ValueFunction:
    """``V(t, Theta) = Theta'P Theta + 2 S'Theta + r``: the least cost from step t on (proof of Theorem 2)."""

    P: Array
    S: Array
    r: float

    def __call__(self, theta: Array) -> float:
        """Value at heads stacked into one matrix (Np, D)."""
        xp = namespace(theta)
        return float(xp.sum(theta * (self.P @ theta + 2 * self.S))) + self.r


def value_functions(problem: RegretProblem) -> list[ValueFunction]:
    """The backward recursion for P(t), S(t), r(t), t = 0..T."""
    steps = _penalties(problem)
    _require_definite(problem, "riccati")
    reference = _flat(problem.as_matrices(problem.reference))
    xp = namespace(reference)
    p = problem.moments[0].n_features
    identity = xp.eye(problem.n_domains * p, dtype=reference.dtype, device=reference.device)
    weighted = [(float(w), m) for w, m in zip(problem.weights, problem.moments)]
    gram, cross = sum(w * m.gram for w, m in weighted), sum(w * m._cross for w, m in weighted)
    square = sum(w * float(xp.sum(m._square)) for w, m in weighted)
    mixing = xp.concat([w * identity[:p, :p] for w, _ in weighted], axis=1)  # [w_1 I_p, ..., w_N I_p]
    backward = [ValueFunction(mixing.T @ gram @ mixing, -(mixing.T @ cross), square)]
    for lam, beta in steps[::-1]:
        after = backward[-1]
        inverse = xp.linalg.inv((lam + beta) * identity + after.P)
        pull = after.S - lam * reference
        r = -float(xp.sum(pull * (inverse @ pull))) + lam * float(xp.sum(reference**2)) + after.r
        backward.append(ValueFunction(beta * identity - beta**2 * inverse, beta * (inverse @ pull), r))
    return backward[::-1]


def riccati(problem: RegretProblem) -> RegretSolution:
    """Algorithm 2 verbatim: P and S backward, then Theta forward through the optimal control."""
    T = problem.horizon
    values = value_functions(problem)
    reference, theta = (_flat(problem.as_matrices(h)) for h in (problem.reference, problem.start))
    xp = namespace(theta)
    identity = xp.eye(theta.shape[0], dtype=theta.dtype, device=theta.device)
    trajectory = [theta]
    for t, (lam, beta) in enumerate(_penalties(problem)):
        P, S = values[t + 1].P, values[t + 1].S
        pressure = (lam * identity + P) @ theta - lam * reference + S
        theta = theta - xp.linalg.inv((lam + beta) * identity + P) @ pressure
        trajectory.append(theta)
    shape = (T + 1, problem.n_domains, -1, trajectory[0].shape[1])
    path = StoredPath(problem, xp.reshape(xp.stack(trajectory), shape))
    effective_ridge = Schedule(problem.transfer, problem.stability, T).rho / problem.weight_square
    return RegretSolution(problem, path, "riccati", effective_ridge)


def accelerated(problem: RegretProblem) -> RegretSolution:
    """Algorithm 3: the recursion for equal weights 1/N, in three p x p systems whatever N is.

    The iterates ignore ``problem.weights``; the returned coefficients mix the final heads with them, and loss and
    energy are the problem's own, so that the price of the heuristic shows. As in the paper, all heads are held to the
    mean of the pre-trained ones, unless the problem was given a reference; pi_3 is kept per head, which allows any.
    """
    T, N = problem.horizon, problem.n_domains
    _require_definite(problem, "accelerated")
    reference, theta = (problem.as_matrices(h) for h in (problem.reference, problem.start))
    xp = namespace(theta)
    if problem.reference is problem.heads:
        reference = xp.mean(reference, axis=0, keepdims=True)
    identity = xp.eye(theta.shape[1], dtype=theta.dtype, device=theta.device)
    pi_1 = pi_2 = sum(m.gram for m in problem.moments) / N**3
    one = xp.ones((N, 1, 1), dtype=theta.dtype, device=theta.device)
    pi_3 = -(sum(m._cross for m in problem.moments) / N**2) * one
    backward = []
    for lam, beta in _penalties(problem)[::-1]:
        core = xp.linalg.inv((lam + beta) * identity + pi_1 + (N - 2) * pi_2)
        gamma_1 = xp.linalg.inv((lam + beta) * identity + pi_1 - (N - 1) * (pi_2 @ core @ pi_2))
        gamma_2 = -(gamma_1 @ pi_2 @ core)
        backward.append((lam, gamma_1, gamma_2, pi_1, pi_2, pi_3))
        pi_3 = beta * _block_apply(gamma_1, gamma_2, pi_3 - lam * reference)
        pi_1, pi_2 = beta * identity - beta**2 * gamma_1, -(beta**2) * gamma_2
    trajectory = [theta]
    for lam, gamma_1, gamma_2, pi_1, pi_2, pi_3 in backward[::-1]:
        pressure = lam * (theta - reference) + _block_apply(pi_1, pi_2, theta) + pi_3
        theta = theta - _block_apply(gamma_1, gamma_2, pressure)
        trajectory.append(theta)
    path = StoredPath(problem, xp.stack(trajectory))
    rho = Schedule(problem.transfer, problem.stability, T).rho
    return RegretSolution(problem, path, "accelerated", rho * N)


def _block_apply(diagonal: Array, other: Array, heads: Array) -> Array:
    """The N x N block matrix with ``diagonal`` on its diagonal and ``other`` elsewhere, times heads (N, p, D)."""
    xp = namespace(heads)
    return (diagonal - other) @ heads + other @ xp.sum(heads, axis=0)


def _flat(heads: Array) -> Array:
    """Heads (N, p, D) stacked into the paper's Theta (Np, D)."""
    return namespace(heads).reshape(heads, (heads.shape[0] * heads.shape[1], heads.shape[2]))


def _penalties(problem: RegretProblem) -> list[tuple[float, float]]:
    """lambda and beta of every step."""
    schedule = Schedule(problem.transfer, problem.stability, problem.horizon)
    return list(zip(schedule.transfers.tolist(), schedule.stabilities.tolist()))


def _require_definite(problem: RegretProblem, method: str) -> None:
    if any(lam + beta == 0 for lam, beta in _penalties(problem)):
        raise SingularError(
            f'method="{method}" inverts (transfer + stability) I + P(t), singular for transfer = stability = 0; '
            'make one of them positive, or use method="closed-form", which takes that limit'
        )
