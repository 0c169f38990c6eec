"""The closed form against the recursion it replaces, against brute force, and in its limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize
from sklearn.linear_model import Ridge

from mixtune import Domains, EqualWeights, Moments, PredictiveWeights, RegretProblem, WassersteinWeights, solve
from mixtune.errors import ParameterError
from mixtune.regret import Schedule, certify, descend, joint_head, optimal_cost
from mixtune.regret.reference import value_functions
from problems import condition, make_arguments, make_problem, problem_options


def close(left, right, tolerance=1e-9, scale=None):
    scale = max(1.0, float(np.max(np.abs(right)))) if scale is None else scale
    return np.max(np.abs(np.asarray(left) - np.asarray(right))) <= tolerance * scale


@settings(max_examples=150)
@given(problem_options())
def test_equals_riccati_everywhere_on_the_path(options):
    problem = make_problem(**options)
    fast, slow = solve(problem), solve(problem, method="riccati")
    t = np.arange(problem.horizon + 1)
    tolerance = 1e-9 * max(1.0, condition(problem) / 1e4)
    assert close(fast.heads_at(t), slow.heads_at(t), tolerance)
    assert close(fast.coef_at(t), slow.coef_at(t), tolerance)
    assert close(fast.loss_at(t), slow.loss_at(t), tolerance)
    assert close(fast.energy_at(t), slow.energy_at(t), tolerance)
    if problem.horizon:
        assert close(fast.controls_at(t[:-1]), slow.controls_at(t[:-1]), tolerance)
        assert fast.effective_ridge == pytest.approx(slow.effective_ridge)
    assert close(fast.regret, slow.regret, tolerance, scale=max(1.0, slow.energy))


@pytest.mark.parametrize("start", [None, "own"])
@pytest.mark.parametrize(("transfer", "stability"), [(2.0, 0.05), (0.0, 1.0), (1.0, 0.0), (1e-6, 1.0)])
def test_controls_keep_their_digits(transfer, stability, start):
    """Far from the end controls are tiny; summed up they must still lead from the start to the end."""
    problem = make_problem(1, transfer=transfer, stability=stability, horizon=20, start=start)
    solution = solve(problem)
    controls = solution.controls_at(np.arange(20))
    assert close(solution.heads - problem.start, controls.sum(axis=0), 1e-12)
    if start is None and transfer == 2.0:
        growth = controls[1:10] / controls[:9]
        expected = np.cosh(1.5 * solution.path.schedule.omega) / np.cosh(0.5 * solution.path.schedule.omega)
        np.testing.assert_allclose(growth[0], expected, rtol=1e-9)
        assert np.all(controls[0] != 0)
    with pytest.raises(ParameterError, match="from 0 to 19"):
        solution.controls_at(20)


@pytest.mark.parametrize("rule", ["temperature", "threshold"])
def test_wasserstein_limits_reach_the_focal_head(rule):
    rng = np.random.default_rng(0)
    data = {n: (rng.standard_normal((12, 2)) + k, rng.standard_normal(12)) for k, n in enumerate("abc")}
    domains = Domains.from_dict(data, focal="a")
    weigher = WassersteinWeights(1e9) if rule == "temperature" else WassersteinWeights(1.0, 0.0)
    moments = [Moments.from_rows(d.X, d.y) for d in domains]
    problem = RegretProblem(
        moments=moments, weights=weigher.weigh(domains=domains), ridge=0.0, transfer=1.0, stability=1.0, horizon=3
    )
    assert close(solve(problem).coef, moments[0].head(0.0))


@settings(max_examples=60)
@given(problem_options(max_horizon=20))
def test_value_function_identity(options):
    problem = make_problem(**options)
    start = problem.as_matrices(problem.start)
    dense = value_functions(problem)[0](start.reshape(-1, start.shape[-1]))
    energy = solve(problem).energy
    assert energy == pytest.approx(dense, rel=1e-8, abs=1e-8)
    assert energy == pytest.approx(optimal_cost(problem), rel=1e-8, abs=1e-8)
    assert abs(certify(solve(problem)).suboptimality) <= 1e-8 * max(1.0, energy)


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize(("transfer", "stability"), [(0.0, 1.0), (0.7, 0.3), (2.0, 0.0)])
def test_brute_force_over_all_iterates(outputs, transfer, stability):
    """The energy as one quadratic in (Theta(1), ..., Theta(T)), built from rows and minimised by a linear solve."""
    rows, arguments = make_arguments(
        3, sizes=(4, 6), p=3, outputs=outputs, transfer=transfer, stability=stability, horizon=4, start="own"
    )
    problem = RegretProblem(**arguments)
    heads = problem.as_matrices(problem.start)
    reference = problem.as_matrices(problem.reference)
    T, size = problem.horizon, heads.size
    w = problem.weights

    def energy(flat):
        path = np.concatenate([heads[None], flat.reshape(T, *heads.shape)])
        running = transfer * np.sum((path[1:] - reference) ** 2) + stability * np.sum(np.diff(path, axis=0) ** 2)
        coef = np.tensordot(w, path[-1], axes=(0, 0))
        fits = [np.sum((Y.reshape(len(Y), -1) - U @ coef) ** 2) for U, Y in rows]
        return running + np.dot(w, fits)

    # A quadratic is known from its values: f(0), f(e_i), f(e_i + e_j).
    count = T * size
    zero = energy(np.zeros(count))
    unit = np.eye(count)
    single = np.array([energy(e) for e in unit])
    hessian = np.array([[energy(unit[i] + unit[j]) for j in range(count)] for i in range(count)])
    hessian = hessian - single[:, None] - single[None, :] + zero
    slope = single - zero - np.diag(hessian) / 2
    best = np.linalg.solve(hessian, -slope)
    solution = solve(problem)
    expected = best.reshape(T, *heads.shape)
    assert close(problem.as_matrices(solution.heads_at(np.arange(1, T + 1))), expected, 1e-7)
    assert solution.energy == pytest.approx(energy(best), rel=1e-8)


def test_scipy_minimiser_agrees():
    problem = make_problem(5, sizes=(6, 9), p=2, horizon=3)
    heads = problem.heads

    def energy(flat):
        path = np.concatenate([heads[None], flat.reshape(3, 2, 2)])
        coef = problem.weights @ path[-1]
        running = 0.5 * np.sum((path[1:] - heads) ** 2) + np.sum(np.diff(path, axis=0) ** 2)
        return running + sum(w * m.loss(coef) for w, m in zip(problem.weights, problem.moments))

    found = minimize(energy, np.tile(heads, (3, 1, 1)).ravel(), method="BFGS", options={"gtol": 1e-8})
    assert solve(problem).energy == pytest.approx(found.fun, rel=1e-9)


@settings(max_examples=60)
@given(problem_options(max_horizon=30))
def test_equals_accelerated_at_equal_weights(options):
    arguments = make_arguments(**options)[1]
    arguments["weights"] = EqualWeights().weigh(moments=arguments["moments"])
    problem = RegretProblem(**arguments)
    if arguments.get("reference") is None:
        problem = problem.replaced(reference=problem.heads.copy())  # heads held to themselves, not to their mean
    fast, slow = solve(problem), solve(problem, method="accelerated")
    t = np.arange(problem.horizon + 1)
    tolerance = 1e-8 * max(1.0, condition(problem) / 1e4)
    assert close(fast.heads_at(t), slow.heads_at(t), tolerance)
    assert close(fast.energy_at(t), slow.energy_at(t), tolerance)


@pytest.mark.parametrize("start_at_mean", [False, True])
def test_accelerated_with_the_mean_head_as_reference(start_at_mean):
    """The paper's own option: Theta_ref (and in its study Theta(0) too) is the mean head."""
    arguments = make_arguments(11, sizes=(5, 9, 7), horizon=12)[1]
    arguments["weights"] = np.full(3, 1 / 3)
    mean = RegretProblem(**arguments).heads.mean(axis=0)
    arguments["reference"] = mean
    if start_at_mean:
        arguments["start"] = mean
    problem = RegretProblem(**arguments)
    t = np.arange(13)
    assert close(solve(problem).heads_at(t), solve(problem, method="accelerated").heads_at(t))


def test_accelerated_is_a_heuristic_elsewhere():
    problem = make_problem(2, sizes=(10, 10, 10))
    assert certify(solve(problem, method="accelerated")).suboptimality > 1e-6


# --- limits -----------------------------------------------------------------------------------------------------


def test_strong_transfer_keeps_the_mixed_heads():
    problem = make_problem(1, transfer=1e12)
    assert close(solve(problem).coef, problem.weights @ problem.heads, 1e-9)


def test_no_sharing_gives_the_focal_head():
    _, arguments = make_arguments(1, sizes=(9, 9, 9))
    weights = PredictiveWeights(sharing=1e-9).weigh(moments=arguments["moments"], ridge=0.5)
    problem = RegretProblem(**{**arguments, "weights": weights, "transfer": 1e12})
    assert close(weights.values, [1.0, 0.0, 0.0])
    assert close(solve(problem).coef, problem.heads[0])


@pytest.mark.parametrize("ridge", [0.0, 3.0])
def test_focal_weight_alone_refines_the_focal_head_only(ridge):
    _, arguments = make_arguments(4, sizes=(9, 6), ridge=ridge)
    problem = RegretProblem(**{**arguments, "weights": [1.0, 0.0]})
    solution = solve(problem)
    assert close(solution.heads[1], problem.heads[1], 0)
    if ridge == 0:
        assert close(solution.coef, problem.heads[0])


def test_identical_domains_give_the_pooled_fit():
    rng = np.random.default_rng(0)
    U, y = rng.standard_normal((20, 3)), rng.standard_normal(20)
    moments = [Moments.from_rows(U, y)] * 4
    problem = RegretProblem(
        moments=moments, weights=np.full(4, 0.25), ridge=0.0, transfer=0.0, stability=1e-9, horizon=1
    )
    assert close(solve(problem).coef, joint_head(moments, ridge=0.0), 1e-7)


def test_one_domain_from_zero_is_ridge_regression():
    rng = np.random.default_rng(0)
    U, y = rng.standard_normal((30, 5)), rng.standard_normal(30)
    problem = RegretProblem(
        moments=[Moments.from_rows(U, y)],
        weights=[1.0],
        heads=np.zeros((1, 5)),
        transfer=1.5,
        stability=2.0,
        horizon=1,
    )
    solution = solve(problem)
    assert solution.effective_ridge == pytest.approx(3.5)
    assert close(solution.coef, Ridge(alpha=3.5, fit_intercept=False).fit(U, y).coef_)


def test_stacked_rows_identity():
    """Weighted ridge around a prior is plain ridge on rows scaled by the roots of the weights, moved by the prior."""
    rows, arguments = make_arguments(8, sizes=(12, 7, 9), p=5, transfer=0.4, stability=0.0)
    problem = RegretProblem(**arguments)
    solution, prior = solve(problem), problem.weights @ problem.heads
    X = np.vstack([np.sqrt(w) * U for w, (U, _) in zip(problem.weights, rows)])
    y = np.concatenate([np.sqrt(w) * (y - U @ prior) for w, (U, y) in zip(problem.weights, rows)])
    fit = Ridge(alpha=solution.effective_ridge, fit_intercept=False, solver="svd").fit(X, y)
    assert close(solution.coef, prior + fit.coef_)


@pytest.mark.parametrize("sizes", [(30, 20), (3, 2)])
def test_least_squares_limit(sizes):
    rows, arguments = make_arguments(6, sizes=sizes, p=8, ridge=0.2, transfer=0.0, stability=0.0, horizon=3)
    problem = RegretProblem(**arguments)
    solution = solve(problem)
    X = np.vstack([np.sqrt(w) * U for w, (U, _) in zip(problem.weights, rows)])
    y = np.concatenate([np.sqrt(w) * y for w, (_, y) in zip(problem.weights, rows)])
    assert solution.is_least_squares
    assert solution.effective_ridge == 0
    assert close(solution.coef, np.linalg.lstsq(X, y, rcond=None)[0], 1e-8)
    assert solution.energy == pytest.approx(solution.ideal_loss, abs=1e-9)
    almost = solve(RegretProblem(**{**arguments, "stability": 1e-9}))
    assert close(solution.coef, almost.coef, 1e-6)


def test_least_squares_forgets_given_heads():
    rows, arguments = make_arguments(6, sizes=(3, 2), p=8, transfer=0.0, stability=0.0, horizon=3)
    problem = RegretProblem(**{**arguments, "ridge": None, "heads": np.ones((2, 8))})
    X = np.vstack([np.sqrt(w) * U for w, (U, _) in zip(problem.weights, rows)])
    y = np.concatenate([np.sqrt(w) * y for w, (_, y) in zip(problem.weights, rows)])
    assert close(solve(problem).coef, np.linalg.lstsq(X, y, rcond=None)[0], 1e-8)


def test_horizon_zero_stays_at_the_start():
    problem = make_problem(0, horizon=0, start="own")
    solution = solve(problem)
    assert np.isinf(solution.effective_ridge)
    assert close(solution.heads, problem.start, 1e-14)
    assert solution.energy == solution.loss


def test_free_transfer_walks_a_straight_line():
    problem = make_problem(0, transfer=0.0, stability=2.0, horizon=10)
    solution = solve(problem)
    steps = np.diff(solution.coef_at(np.arange(11)), axis=0)
    assert close(steps, np.broadcast_to(steps[0], steps.shape))
    assert solution.effective_ridge == pytest.approx(0.2 / problem.weight_square)


def test_without_stability_it_jumps_at_the_end():
    problem = make_problem(0, transfer=2.0, stability=0.0, horizon=5)
    solution = solve(problem)
    assert close(solution.heads_at(4), problem.heads, 0)
    assert not close(solution.heads_at(5), problem.heads, 1e-3)


@pytest.mark.parametrize("horizon", [1, 10, 10**6, 10**12])
@pytest.mark.parametrize(("transfer", "stability"), [(1e-14, 1.0), (1.0, 1e-14), (1e-300, 1e300), (1e150, 1e-150)])
def test_extreme_settings_stay_finite(transfer, stability, horizon):
    problem = make_problem(0, transfer=transfer, stability=stability, horizon=horizon)
    solution = solve(problem)
    t = np.array([0, horizon // 2, horizon])
    for values in (solution.coef_at(t), solution.energy_at(t), solution.loss_at(t), solution.heads_at(t)):
        assert np.all(np.isfinite(values))
    assert solution.energy_at(horizon) >= solution.loss * (1 - 1e-12)


def test_cost_does_not_depend_on_the_horizon_in_memory():
    problem = make_problem(0, horizon=10**9)
    assert np.all(np.isfinite(solve(problem).energy_at([0, 10**9])))


def test_accelerated_holds_heads_to_their_mean_by_default():
    """As the paper's Algorithm 3 does; a reference of the problem's own is kept."""
    arguments = make_arguments(3, sizes=(6, 9, 4), horizon=5)[1]
    problem = RegretProblem(**arguments)
    mean = problem.replaced(reference=problem.heads.mean(axis=0))
    t = np.arange(6)
    default, explicit = (solve(p, method="accelerated").heads_at(t) for p in (problem, mean))
    np.testing.assert_allclose(default, explicit, rtol=1e-12)
    own = solve(problem.replaced(reference=problem.heads.copy()), method="accelerated").heads_at(t)
    assert np.max(np.abs(own - default)) > 1e-3


PENALTIES = [
    ([0.3, 0.0, 2.0, 0.1], [1.0, 0.5, 0.2, 3.0]),
    ([0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 0.0, 4.0]),
    ([1.0, 0.5, 0.2, 0.7], 0.0),
    (0.4, [0.1, 1.0, 10.0, 0.0]),
    ([0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]),
]


@pytest.mark.parametrize(("transfer", "stability"), PENALTIES)
@pytest.mark.parametrize("moved", [False, True])
def test_penalties_that_vary_over_time(transfer, stability, moved):
    """Against the dense recursion, the energy step by step, and the cost without a path."""
    arguments = make_arguments(5, sizes=(6, 9, 4), horizon=4)[1]
    arguments |= {"transfer": transfer, "stability": stability, "horizon": 4}
    if moved:
        arguments["start"] = np.random.default_rng(0).standard_normal((3, arguments["moments"][0].n_features))
    problem, t = RegretProblem(**arguments), np.arange(5)
    fast = solve(problem)
    # Only where a step costs something is the recursion defined.
    if all(np.broadcast_to(transfer, 4) + np.broadcast_to(stability, 4) > 0):
        slow = solve(problem, method="riccati")
        np.testing.assert_allclose(fast.heads_at(t), slow.heads_at(t), atol=1e-9)
        np.testing.assert_allclose(fast.controls_at(t[:-1]), slow.controls_at(t[:-1]), atol=1e-9)
        np.testing.assert_allclose(fast.energy_at(t), slow.energy_at(t), rtol=1e-9)
        equal = problem.replaced(weights=[1 / 3] * 3, reference=problem.heads.copy())
        both = (solve(equal, method=method).heads_at(t) for method in ("accelerated", "riccati"))
        np.testing.assert_allclose(next(both), next(both), atol=1e-9)
    path = fast.heads_at(t)
    steps = np.broadcast_to(transfer, 4), np.broadcast_to(stability, 4)
    away, change = (np.sum(part**2, axis=(1, 2)) for part in (path[1:] - problem.heads, np.diff(path, axis=0)))
    assert fast.energy == pytest.approx(float(steps[0] @ away + steps[1] @ change) + fast.loss)
    assert problem.energy(path) == pytest.approx(fast.energy)
    assert optimal_cost(problem) == pytest.approx(fast.energy)
    other = path + np.concatenate([np.zeros((1, *path.shape[1:])), 0.01 * np.ones((4, *path.shape[1:]))])
    assert problem.energy(other) > fast.energy


def test_constant_sequences_are_numbers():
    t = np.arange(13.0)
    for lam, beta in ((0.5, 2.0), (0.0, 1.0), (1.0, 0.0), (1e-6, 3.0)):
        one, many = Schedule(lam, beta, 12), Schedule((lam,) * 12, (beta,) * 12, 12)
        for name in ("rho", "sigma", "pull", "start_cost"):
            assert getattr(many, name) == pytest.approx(getattr(one, name), rel=1e-9), name
        np.testing.assert_allclose(many.end_share(t), one.end_share(t), atol=1e-12)
        np.testing.assert_allclose(many.start_share(t), one.start_share(t), atol=1e-12)


def test_penalties_of_the_wrong_length_are_refused():
    arguments = make_arguments(5, sizes=(6, 9), horizon=3)[1]
    with pytest.raises(ParameterError, match=r"transfer must be one number or one per step \(3\); got 2"):
        RegretProblem(**arguments | {"transfer": [1.0, 2.0]})
    varying = RegretProblem(**arguments | {"transfer": [1.0, 2.0, 3.0]})
    assert "transfer=[1, ..., 3]" in repr(varying)
    with pytest.raises(ParameterError, match="pass one number for transfer and stability"):
        descend(varying, learning_rate=1e-4, steps=3)
