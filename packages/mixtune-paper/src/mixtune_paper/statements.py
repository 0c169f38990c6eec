"""Every numbered statement of the paper: where it lives here, how it is checked, and what came out.

:data:`PAPER` lists the statements (``statements.csv``). Those on matrices and recursions are checked by the study of
this module, on random small problems; tables, figures, rates and times by the studies that :attr:`Statement.by` names.
:func:`table_of` puts the checks of all studies into one table.

The stability estimates of the appendices (Lemmas 5 to 9, Propositions 1 to 3, Corollary 2) hide constants. Here the
constants are written out by following the proofs with spectral norms of the inverses, so that each estimate is an
inequality between two numbers. The Frobenius norm that the paper writes is too large for Corollary 1, which is shown;
the estimates need only the spectral norm. Neither is S bounded by a multiple of N: it is by one of the largest dataset.

Statements have the numbers of the paper, equations those that LaTeX counts in its source.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from mixtune.moments import Moments
from mixtune.regret import RegretProblem, solve
from mixtune.weights import WassersteinWeights
from mixtune_paper._arrays import Floats
from mixtune_paper._judge import word_for
from mixtune_paper._store import Outcome
from mixtune_paper._study import Check, Experiment, Findings, Results, Table

__all__ = ["CHECKS", "PAPER", "STATEMENTS", "Statement", "StatementSettings", "table_of"]

PROOF, COMMENT = "used in a proof only", "not (nothing to check)"


@dataclass(frozen=True)
class Statement:
    """One statement of the paper.

    Attributes
    ----------
    name, about : str
        Its number, and what its sentence says.
    home : str
        Dotted name of what implements it here; empty where there is nothing to implement.
    by : str
        The study that checks it, or :data:`PROOF` or :data:`COMMENT`.
    how : str
        How it is checked, or why it is not.
    slip : str
        Where the printed text fails: what is wrong with it.
    """

    name: str
    about: str
    home: str
    by: str
    how: str
    slip: str = ""


def _read() -> tuple[Statement, ...]:
    lines = files("mixtune_paper").joinpath("statements.csv").read_text(encoding="utf-8").splitlines()
    return tuple(Statement(**row) for row in csv.DictReader(lines))


#: In the order of the paper.
PAPER = _read()


def table_of(checks: Mapping[str, Check]) -> Table:
    """All statements with what they say and their verdicts: reproduced, checked, not judged, or not.

    Examples
    --------
    >>> rows = {row["statement"]: row for row in table_of({"Lemma 1": Check(True, "eigenvalues at least 0")})}
    >>> rows["Lemma 1"]["verdict"], rows["Lemma 4"]["verdict"], rows["Lemma 5"]["verdict"]
    ('checked', 'used in a proof only', 'not (not run)')
    """
    return [_row(statement, checks.get(statement.name)) for statement in PAPER]


def _row(statement: Statement, check: Check | None) -> dict[str, str]:
    ours = statement.by not in (PROOF, COMMENT)
    told = {"statement": statement.name, "says": statement.about, "where": statement.home, "how": statement.how}
    told |= {"verdict": _verdict(statement, check) if ours else statement.by}
    told |= {"power": "" if check is None or check.power is None else f"{check.power:.2f}"}
    told |= {"result": "" if check is None else check.result}
    return told | {"command": f"mixtune reproduce {statement.by}" if ours else ""}


def _verdict(statement: Statement, check: Check | None) -> str:
    if check is None:
        return "not (not run)"
    if check.holds is None:
        unclear = word_for(None, check.power) == "open"
        return "open (neither confirmed nor contradicted)" if unclear else "not judged (too few runs)"
    if not check.holds:
        return "not (see result)"
    if not check.as_printed:
        return f"not as printed: {statement.slip}"
    return "reproduced" if statement.name.startswith(("Table", "Figure", "Experiment")) else "checked"


# --- random problems --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StatementSettings:
    """Sizes of the random problems, and how far rows are moved in the estimates of stability."""

    n_domains: int = 4
    n_features: int = 5
    horizon: int = 6
    moves: tuple[float, ...] = (1e-6, 1e-3, 0.3)


@dataclass(frozen=True, eq=False)
class Case:
    """A random problem: rows, weights, penalties."""

    settings: StatementSettings
    rng: np.random.Generator
    rows: Sequence[tuple[Floats, Floats]]
    problem: RegretProblem

    @classmethod
    def draw(cls, settings: StatementSettings, seed: int) -> "Case":
        rng, p = np.random.default_rng(seed), settings.n_features
        rows = []
        for _ in range(settings.n_domains):
            U = rng.standard_normal((int(rng.integers(3, 15)), p))
            rows.append((U, U @ rng.standard_normal(p) + 0.3 * rng.standard_normal(len(U))))
        moments = [Moments.from_rows(U, y) for U, y in rows]
        costs: dict[str, Any] = {"transfer": rng.uniform(0.1, 2), "stability": rng.uniform(0.1, 2)}
        weights = rng.dirichlet(np.full(settings.n_domains, 3.0))
        made = RegretProblem(moments=moments, weights=weights, ridge=1.0, horizon=settings.horizon, **costs)
        return cls(settings, rng, rows, made)

    @cached_property
    def values(self) -> list[Any]:
        """The value functions of all steps, with their P, S and r."""
        return self.problem.value_functions()

    @cached_property
    def symmetric(self) -> RegretProblem:
        """Weights 1/N, all heads held to their mean, the same start: what Algorithm 3 solves."""
        equal = np.full(len(self.rows), 1 / len(self.rows))
        return self.problem.replaced(weights=equal, start=self.problem.heads, reference=self.problem.heads.mean(axis=0))

    @cached_property
    def best_steps(self) -> Floats:
        """``Theta(1..T)`` (T, Np) as one linear system: no recursion, no closed form, sums over rows only."""
        hessian, right = self.one_system
        return np.asarray(np.linalg.solve(hessian, right), dtype=np.float64).reshape(self.problem.horizon, -1)

    @cached_property
    def one_system(self) -> tuple[Floats, Floats]:
        """Half the Hessian of the energy in all steps at once, and minus half its gradient at zero."""
        problem, T = self.problem, self.problem.horizon
        start = problem.heads.ravel()
        # |Theta(t+1) - Theta(t)|^2 summed over t: a chain that is fixed at the start and free at the end.
        chain = 2 * np.eye(T) - np.eye(T, k=1) - np.eye(T, k=-1)
        chain[-1, -1] = 1
        last, first = np.eye(T)[-1], np.eye(T)[0]
        mixing = np.kron(problem.weights, np.eye(self.settings.n_features))
        gram = sum(w * U.T @ U for w, (U, _) in zip(problem.weights, self.rows))
        cross = sum(w * U.T @ y for w, (U, y) in zip(problem.weights, self.rows))
        steps = np.asarray(problem.transfer * np.eye(T) + problem.stability * chain, dtype=np.float64)
        hessian = np.kron(steps, np.eye(len(start))) + np.kron(np.outer(last, last), mixing.T @ gram @ mixing)
        right = np.kron(problem.transfer * np.ones(T) + problem.stability * first, start)
        return np.asarray(hessian, dtype=np.float64), right + np.kron(last, mixing.T @ cross)

    def energy(self, steps: Floats, weights: Floats, reference: Floats) -> float:
        """The energy of ``Theta(1..T)`` by its definition (4)."""
        problem, path = self.problem, np.vstack([self.problem.heads.ravel(), steps])
        head = weights @ path[-1].reshape(len(self.rows), -1)
        loss = sum(w * np.sum((U @ head - y) ** 2) for w, (U, y) in zip(weights, self.rows))
        moved, away = np.sum(np.diff(path, axis=0) ** 2), np.sum((path[1:] - reference.ravel()) ** 2)
        return float(loss + problem.transfer * away + problem.stability * moved)


def norm(array: Floats, order: int | None = None) -> float:
    """Euclidean or Frobenius norm; ``order=2`` is the spectral norm of a matrix."""
    return float(np.linalg.norm(array, order))


def _difference(left: Floats, right: Floats) -> float:
    """Largest difference, relative to the size of the right one."""
    return float(np.max(np.abs(np.asarray(left) - right)) / max(1.0, np.max(np.abs(right))))


# --- algorithms and theorems ------------------------------------------------------------------------------------------


def _algorithm_1(case: Case) -> dict[str, float]:
    rng, gamma, eta = case.rng, 5.0, 0.5
    shapes = ((8, 0.0), (24, 0.05), (8, 0.1), (8, 0.6))
    clouds = [rng.uniform(size=(rows, 3)) / np.sqrt(3) + shift for rows, shift in shapes]
    found = WassersteinWeights(gamma, eta, rescale=False, floor=False).weigh_clouds(clouds).values
    # A matching needs as many rows on both sides.
    apart = [cdist(np.repeat(clouds[0], len(cloud) // len(clouds[0]), axis=0), cloud) for cloud in clouds]
    distances = np.array([cost[linear_sum_assignment(cost)].mean() for cost in apart])
    sizes = np.array([len(cloud) for cloud in clouds]) ** (-1 / 3)
    raw = np.exp(-gamma * (distances + sizes)) * (distances <= eta)
    printed = gamma * distances - gamma * sizes
    boxed = np.exp(-printed) * (printed <= eta)
    return {
        "error_of_weights": _difference(found, raw / raw.sum()),
        "error_as_printed": _difference(found, boxed / boxed.sum()),
    }


def _algorithm_2(case: Case) -> dict[str, float]:
    heads = solve(case.problem, method="riccati").heads_at(np.arange(1, case.problem.horizon + 1))
    return {"error_of_steps": _difference(heads.reshape(len(heads), -1), case.best_steps)}


def _algorithm_3(case: Case) -> dict[str, float]:
    """Its three small systems against (85)-(87), the dense recursion at equal weights."""
    steps = np.arange(case.problem.horizon + 1)
    small, dense = (solve(case.symmetric, method=method).heads_at(steps) for method in ("accelerated", "riccati"))
    return {"error_of_steps": _difference(small, dense)}


def _theorem_2(case: Case) -> dict[str, float]:
    heads = solve(case.problem).heads_at(np.arange(1, case.problem.horizon + 1))
    least = np.linalg.eigvalsh(case.one_system[0])[0]
    # The Hessian is at least lambda: a unique minimiser.
    return {
        "error_of_steps": _difference(heads.reshape(len(heads), -1), case.best_steps),
        "inverse_of_least_curvature": case.problem.transfer / least * (1 - 1e-12),
    }


def _theorem_5(case: Case) -> dict[str, float]:
    controls = solve(case.problem, method="riccati").controls_at(np.arange(case.problem.horizon))
    start = case.problem.heads.ravel()
    steps = np.diff(np.vstack([start, case.best_steps]), axis=0)
    cost = case.values[0](start[:, None])
    least = case.energy(case.best_steps, case.problem.weights, case.problem.heads)
    return {
        "error_of_controls": _difference(controls.reshape(steps.shape), steps),
        "error_of_cost": abs(cost - least) / least,
    }


def _theorem_8(case: Case) -> dict[str, float]:
    """Algorithm 2 at equal weights holds heads to themselves, Algorithm 3 to their mean."""
    optimal = solve(case.problem.replaced(weights=case.symmetric.weights), method="riccati")
    fast = solve(case.symmetric, method="accelerated")
    steps = np.arange(case.problem.horizon + 1)
    return {
        "error_of_mixture": _difference(fast.coef_at(steps), optimal.coef_at(steps)),
        "error_of_heads_as_printed": _difference(fast.heads_at(steps), optimal.heads_at(steps)),
    }


def _remark_3(case: Case) -> dict[str, float]:
    at_zero = solve(case.problem.replaced(start=np.zeros_like(case.problem.heads))).energy
    return {"error_of_constant": abs(case.values[0].r - at_zero) / at_zero}


def _remark_4(case: Case) -> dict[str, float]:
    steps = solve(case.problem.replaced(transfer=0.0), method="riccati").controls_at(np.arange(case.problem.horizon))
    sizes = np.linalg.norm(steps.reshape(len(steps), -1), axis=1)
    return {"error_of_equal_steps": float(np.ptp(sizes) / sizes.mean())}


def _blocks(case: Case) -> tuple[Floats, Floats]:
    """``P-hat(t)`` as (T + 1, N, N, p, p) and ``S-hat(t)`` as (T + 1, N, p)."""
    N, p = case.settings.n_domains, case.settings.n_features
    values = case.symmetric.value_functions()
    P = np.stack([v.P.reshape(N, p, N, p).transpose(0, 2, 1, 3) for v in values])
    return P, np.stack([v.S.reshape(N, p) for v in values])


def _proposition_4(case: Case) -> dict[str, float]:
    P, N = _blocks(case)[0], case.settings.n_domains
    other = ~np.eye(N, dtype=bool)
    return {
        "error_of_diagonal_blocks": _difference(P[:, range(N), range(N)], P[:, :1, 0]),
        "error_of_other_blocks": _difference(P[:, other], P[:, :1, 1]),
    }


def _proposition_5(case: Case) -> dict[str, float]:
    S = _blocks(case)[1]
    return {"error_of_blocks": _difference(S, S[:, :1])}


# --- lemmas on matrices -----------------------------------------------------------------------------------------------


def _negativity(matrices: Sequence[Floats]) -> float:
    """How negative the least eigenvalue is, in units of rounding: at most 1 for matrices that are not negative."""
    found = [np.linalg.eigvalsh(matrix) for matrix in matrices]
    return float(max(max(-values[0], 0.0) / (1e-12 * values[-1]) for values in found))


def _lemma_1(case: Case) -> dict[str, float]:
    gram = np.sum([U.T @ U for U, _ in case.rows], axis=0)
    return {"negativity_of_gram": _negativity([gram]), "negativity_of_p": _negativity([case.values[-1].P])}


def _remark_5(case: Case) -> dict[str, float]:
    return {"negativity_of_p_hat": _negativity([v.P for v in case.symmetric.value_functions()])}


def _lemma_2(case: Case) -> dict[str, float]:
    A, B, C = (case.rng.standard_normal((4, 4)) for _ in range(3))
    return {"product": norm(A @ B) / (norm(A) * norm(B)), "sum": norm(B + C) / (norm(B) + norm(C))}


def _lemma_3(case: Case) -> dict[str, float]:
    matrices, w = case.rng.standard_normal((5, 3, 4)), case.rng.dirichlet(np.ones(5))
    squares = np.sum(matrices**2, axis=(1, 2))
    mean, total = np.tensordot(w, matrices, 1), matrices.sum(axis=0)
    return {"weighted": np.sum(mean**2) / (w @ squares), "equal": np.sum(total**2) / (5 * squares.sum())}


def _corollary_1(case: Case) -> dict[str, float]:
    """S against |w| max n_i |u| |y|, and the printed C N for datasets of very different sizes."""
    small, large = (_s_over_n(n_domains) for n_domains in (5, 40))
    most = norm(case.problem.weights) * max(len(U) for U, _ in case.rows)
    return _bounds_of_inverse(case, case.problem, most) | {"growth_of_s_over_n_as_printed": large / small}


def _remark_6(case: Case) -> dict[str, float]:
    """At equal weights S(T) is a plain sum over N^(3/2), and C N holds with at most N rows a dataset on average."""
    total = sum(len(U) for U, _ in case.rows)
    return _bounds_of_inverse(case, case.symmetric, total / len(case.rows) ** 1.5)


def _s_over_n(n_domains: int) -> float:
    """``|S(T)|/N`` for one dataset of N^2 - N + 1 rows, others of one, and w = e_1: N rows a dataset on average.

    All features and targets are 1, so that nothing on which the constant may depend changes with N.
    """
    sizes = [n_domains**2 - n_domains + 1, *[1] * (n_domains - 1)]
    moments = [Moments.from_rows(np.ones((n, 1)), np.ones(n)) for n in sizes]
    first, heads = np.eye(n_domains)[0], np.zeros((n_domains, 1))
    problem = RegretProblem(moments=moments, weights=first, heads=heads, transfer=1.0, stability=1.0, horizon=1)
    return norm(problem.value_functions()[-1].S) / n_domains


def _bounds_of_inverse(case: Case, problem: RegretProblem, rows: float) -> dict[str, float]:
    """The bounds of Corollary 1 for ``problem``: the inverse in two norms, and S with its constant written out.

    ``rows`` is what multiplies the largest features and targets in the bound of S(T).
    """
    held = problem.transfer + problem.stability
    values = problem.value_functions()
    inverses = [np.linalg.inv(held * np.eye(len(v.P)) + v.P) for v in values]
    u, y = _largest(*case.rows)
    limit = rows * u * y
    shares = []
    for v in values[::-1]:
        shares.append(np.linalg.norm(v.S) / limit)
        limit = problem.stability / held * (limit + problem.transfer * norm(problem.reference))
    return {
        "inverse": max(norm(inverse, 2) for inverse in inverses) * held * (1 - 1e-12),
        "s": float(max(shares)),
        "inverse_as_printed": max(norm(inverse) for inverse in inverses) * held,
    }


# --- stability estimates ----------------------------------------------------------------------------------------------


def _largest(*rows: tuple[Floats, Floats]) -> tuple[float, float]:
    """The bounds of Assumption 1: the largest norm of features, and of a target."""
    features, targets = zip(*rows)
    longest = max(float(np.max(np.linalg.norm(U, axis=1))) for U in features)
    return longest, max(float(np.max(np.abs(y))) for y in targets)


def _stability(
    left: RegretProblem, right: RegretProblem, *, dP: float, dS: float, dr: float, dref: float = 0.0
) -> dict[str, float]:
    """Differences of two problems with the same penalties and start, each divided by its bound; at most 1.

    ``dP``, ``dS`` and ``dr`` bound the differences at the end, of ``P(T)``, ``S(T)`` and ``r(T)``, and ``dref`` that of
    the references.

    The bounds follow the proofs of Lemmas 5 to 7, Propositions 1 and 2, Corollary 2 and Lemma 9: with
    M = (lambda + beta) I + P and spectral norms |M^{-1}| <= 1/(lambda + beta), |beta M^{-1} - I| <= 1,

        |dP(t)| <= (beta/(lambda + beta))^2 |dP(t+1)|,  |dM^{-1}| <= |dP|/(lambda + beta)^2,
        |dS(t)| <= beta (|dS(t+1)| + lambda |dTheta*|)/(lambda + beta) + beta |dM^{-1}| |q(t+1)|,
        |da(t)| <= |dM^{-1}| (beta |Theta(t)| + |q|) + sum_{u<t} |da(u)| + (lambda |dTheta*| + |dS|)/(lambda + beta),

    with q = S - lambda Theta*, and the cost by the recursion of r.
    """
    lam, beta, T = left.transfer, left.stability, left.horizon
    held = lam + beta
    one, two = left.value_functions(), right.value_functions()
    references = [_stacked(problem.reference) for problem in (left, right)]
    path, other = (solve(problem) for problem in (left, right))
    heads = path.heads_at(np.arange(T + 1)).reshape(T + 1, -1)
    start = _stacked(left.start)
    ratios: dict[str, list[float]] = {name: [] for name in ("p", "inverse", "s", "controls", "cost")}
    inverse_bounds, s_bounds = [0.0] * (T + 1), [0.0] * (T + 1)
    for t in range(T, 0, -1):
        M, K = (held * np.eye(len(v.P)) + v.P for v in (one[t], two[t]))
        dM = dP / held**2
        inverse_bounds[t], s_bounds[t] = dM, dS
        ratios["p"].append(norm(one[t].P - two[t].P) / dP)
        ratios["inverse"].append(norm(np.linalg.inv(M) - np.linalg.inv(K)) / dM)
        ratios["s"].append(norm(one[t].S - two[t].S) / dS)
        q, k = (norm(v.S - lam * reference) for v, reference in zip((one[t], two[t]), references))
        dq = dS + lam * dref
        dr += dq * (q + k) / held + q * k * dM + lam * dref * norm(references[0] + references[1])
        dS, dP = beta * dq / held + beta * dM * q, (beta / held) ** 2 * dP
    size = norm(start)
    cost = dP * size**2 + 2 * dS * size + dr
    ratios["cost"].append(abs(one[0](start) - two[0](start)) / cost)
    moved = 0.0
    for t in range(T):
        q = norm(one[t + 1].S - lam * references[0])
        drift = inverse_bounds[t + 1] * (beta * norm(heads[t]) + q) + (s_bounds[t + 1] + lam * dref) / held
        moved += drift + moved
    steps = (each.controls_at(np.arange(T)).reshape(T, -1) for each in (path, other))
    apart = np.sum(np.linalg.norm(next(steps) - next(steps), axis=1))
    ratios["controls"].append(float(apart) / moved)
    return {name: float(max(found)) for name, found in ratios.items()}


def _stacked(heads: Floats) -> Floats:
    """Heads (N, p) as the paper's Theta, one column."""
    return heads.reshape(-1, 1)


def _changed_rows(case: Case) -> dict[str, float]:
    """Rows moved by several amounts, weights and heads held fixed: the worst ratio of every estimate."""
    found: list[dict[str, float]] = []
    w = case.problem.weights
    directions = [(case.rng.standard_normal(U.shape), case.rng.standard_normal(y.shape)) for U, y in case.rows]
    for size in case.settings.moves:
        moved = [(U + size * dU, y + size * dy) for (U, y), (dU, dy) in zip(case.rows, directions)]
        u, y = _largest(*case.rows, *moved)
        by_u, by_y = (
            np.sqrt(sum(wi * len(part) * size**2 * np.sum(part**2) for wi, part in zip(w, parts)))
            for parts in zip(*directions)
        )
        changed = case.problem.replaced(moments=[Moments.from_rows(*each) for each in moved])
        dP, dS = 2 * u * (w @ w) * by_u, np.linalg.norm(w) * (u + y) * np.hypot(by_u, by_y)
        found.append(_stability(case.problem, changed, dP=dP, dS=dS, dr=2 * y * by_y))
    return {name: max(each[name] for each in found) for name in found[0]}


def _other_weights(case: Case) -> dict[str, float]:
    """The problem beside the symmetric one."""
    u, y = _largest(*case.rows)
    N, total, w = len(case.rows), sum(len(U) for U, _ in case.rows), case.problem.weights
    pairs, triples = np.outer(w, w), w[:, None, None] * np.outer(w, w)
    return _stability(
        case.problem,
        case.symmetric,
        dP=total * N * u**2 * np.max(np.abs(1 / N**3 - triples)),
        dS=total * np.sqrt(N) * u * y * np.max(np.abs(1 / N**2 - pairs)),
        dr=total * y**2 * np.max(np.abs(1 / N - w)),
        dref=norm(case.problem.reference - case.symmetric.reference),
    )


def _two_energies(case: Case) -> tuple[float, float]:
    """Algorithm 3's path at both weightings: the difference of its energies over its bound, and the bound."""
    lam, N, w = case.problem.transfer, len(case.rows), case.problem.weights
    heads = solve(case.symmetric).heads_at(np.arange(1, case.problem.horizon + 1))
    reference, mean, last = case.problem.reference, case.symmetric.reference, heads[-1]
    apart = np.linalg.norm(mean - reference)
    running = lam * apart * sum(np.linalg.norm(2 * step - reference - mean) for step in heads)
    u, off = _largest(*case.rows)[0], np.max(np.abs(w - 1 / N))
    at_w, at_both, spread = w @ last, (w + 1 / N) @ last, np.sum(np.linalg.norm(last, axis=1))
    loss = sum(np.sum((U @ at_w - y) ** 2) + u * spread * np.sum(np.abs(U @ at_both - 2 * y)) / N for U, y in case.rows)
    steps = heads.reshape(len(heads), -1)
    energies = case.energy(steps, case.symmetric.weights, mean), case.energy(steps, w, reference)
    bound = float(running + off * loss)
    return abs(energies[0] - energies[1]) / bound, bound


def _proposition_3(case: Case) -> dict[str, float]:
    """The gap of Algorithm 3 is at most the sum of the bounds of Lemmas 8 and 9."""
    steps = solve(case.symmetric).heads_at(np.arange(1, case.problem.horizon + 1)).reshape(case.problem.horizon, -1)
    gap = case.energy(steps, case.problem.weights, case.problem.reference) - solve(case.problem).energy
    # The bound of Lemma 9, from the difference and its share of the bound.
    costs = abs(solve(case.problem).energy - solve(case.symmetric).energy) / _other_weights(case)["cost"]
    return {"gap": gap / (_two_energies(case)[1] + costs)}


def _part_of(source: Callable[[Case], dict[str, float]], *names: str) -> Callable[[Case], dict[str, float]]:
    return lambda case: {name: source(case)[name] for name in names}


#: Numbers that begin with "error" are at most 1e-8 where the statement holds, the others at most 1.
CHECKS: Mapping[str, Callable[[Case], dict[str, float]]] = {
    "Algorithm 1": _algorithm_1,
    "Algorithm 2": _algorithm_2,
    "Algorithm 3": _algorithm_3,
    "Theorem 2": _theorem_2,
    "Theorem 5": _theorem_5,
    "Theorem 8": _theorem_8,
    "Lemma 1": _lemma_1,
    "Lemma 2": _lemma_2,
    "Lemma 3": _lemma_3,
    "Lemma 5": _part_of(_changed_rows, "p", "inverse", "s"),
    "Lemma 6": _part_of(_other_weights, "p", "inverse"),
    "Lemma 7": _part_of(_other_weights, "s"),
    "Lemma 8": lambda case: {"energies": _two_energies(case)[0]},
    "Lemma 9": _part_of(_other_weights, "cost"),
    "Proposition 1": _part_of(_changed_rows, "controls"),
    "Proposition 2": _part_of(_other_weights, "controls"),
    "Proposition 3": _proposition_3,
    "Proposition 4": _proposition_4,
    "Proposition 5": _proposition_5,
    "Corollary 1": _corollary_1,
    "Corollary 2": _part_of(_changed_rows, "cost"),
    "Remark 3": _remark_3,
    "Remark 4": _remark_4,
    "Remark 5": _remark_5,
    "Remark 6": _remark_6,
}
TOLERANCE = 1e-8


def _run(settings: StatementSettings, seed: int) -> Outcome:
    return Outcome({name: check(Case.draw(settings, seed)) for name, check in CHECKS.items()})


def _summarise(settings: StatementSettings, results: Results) -> Findings:
    found = {name: _check_of(results, name) for name in results.methods}
    rows = [{"statement": name, "holds": "yes" if c.holds else "NO", "largest": c.result} for name, c in found.items()]
    sentences = [
        "Largest over the runs. Errors are relative and at most 1e-8 where a statement holds; other numbers are shares "
        "of a bound, at most 1."
    ]
    return results.findings(rows, sentences, found)


def _check_of(results: Results, name: str) -> Check:
    largest = {quantity: results.largest(name, quantity) for quantity in results.quantities(name)}
    units = {q: (TOLERANCE, "") if q.startswith("error") else (1.0, " of its bound") for q in largest}
    good = {q: value <= units[q][0] for q, value in largest.items()}
    told = ", ".join(f"{q.replace('_', ' ')} {v:.2g}{units[q][1]}" for q, v in largest.items())
    printed = {quantity for quantity in largest if quantity.endswith("as_printed")}
    return Check(all(good[q] for q in {*good} - printed), told, as_printed=all(good[q] for q in printed))


STATEMENTS = Experiment("statements", StatementSettings(), _run, _summarise, runs=20, revision=3)
