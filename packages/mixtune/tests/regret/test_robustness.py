"""Theorem 4 realised: the change of the optimal energy under attacks that keep to their budget."""

import numpy as np
import pytest

from mixtune import Moments, RegretProblem, solve
from mixtune.errors import ParameterError
from mixtune.regret import adversarial_sensitivity, energy_bound, log_slope
from problems import make_rows

SETTINGS = {"weights": [0.5, 0.3, 0.2], "ridge": 1.0, "transfer": 1.0, "stability": 1.0, "horizon": 3}


def rows(outputs=None, seed=0):
    rng = np.random.default_rng(seed)
    return [make_rows(rng, n, 4, outputs) for n in (20, 30, 25)]


@pytest.fixture(scope="module")
def study():
    return adversarial_sensitivity(
        rows(), **SETTINGS, epsilons=np.geomspace(1e-5, 1e-2, 4), shares=[0.05, 0.1, 0.2, 0.4, 0.8], trials=8, seed=1
    )


def test_slopes_in_epsilon_are_one(study):
    assert study.epsilon_slope_worst == pytest.approx(1.0, abs=0.05)
    assert study.epsilon_slope_random == pytest.approx(1.0, abs=0.1)


def test_worst_case_grows_between_root_and_linear_in_the_share(study):
    assert 0.4 < study.share_slope_worst <= 1.0
    assert 0.2 < study.share_slope_random < 1.0
    bound = study.constant * study.epsilons[:, None] * np.sqrt(study.shares)
    assert np.all(study.worst <= bound * (1 + 1e-12))


def test_worst_case_beats_random(study):
    assert np.all(study.worst > study.random.max(axis=-1))


@pytest.mark.parametrize("outputs", [None, 2])
def test_envelope_gradient_predicts_the_worst_case(outputs):
    """To first order the worst change is epsilon times the sum of gradient norms, here by finite differences."""
    data = rows(outputs)
    study = adversarial_sensitivity(data, **SETTINGS, epsilons=[1e-6, 1e-5], shares=[1.0], trials=1, seed=0)
    clean = RegretProblem(moments=[Moments.from_rows(U, Y) for U, Y in data], **SETTINGS)
    assert study.energy == pytest.approx(solve(clean).energy)

    def energy():  # of the rows as they are now, with the heads of the clean ones
        return solve(clean.replaced(moments=[Moments.from_rows(U, Y) for U, Y in data])).energy

    step, total = 1e-5, 0.0
    for array in (side for pair in data for side in pair):
        gradient = np.zeros_like(array)
        for index in np.ndindex(*array.shape):
            before, energies = array[index], []
            for sign in (1, -1):
                array[index] = before + sign * step
                energies.append(energy())
            array[index] = before
            gradient[index] = (energies[0] - energies[1]) / (2 * step)
        total += np.linalg.norm(gradient.reshape(len(array), -1), axis=1).sum()
    assert study.worst[0, 0] == pytest.approx(1e-6 * total, rel=1e-3)


def test_the_attack_counts_features_and_targets():
    """Rows that matter through their targets alone, an output which no feature explains, are attacked as well."""
    rng = np.random.default_rng(0)
    U = rng.standard_normal((40, 3))
    unexplained = np.where(np.arange(40) % 2, 3.0, -3.0) * (np.arange(40) < 4)
    Y = np.column_stack([U @ [0.3, -0.6, 0.2] + rng.standard_normal(40), unexplained])
    settings = {"weights": [1.0], "ridge": 1.0, "transfer": 1.0, "stability": 1.0, "horizon": 3}
    study = adversarial_sensitivity([(U, Y)], **settings, epsilons=[1e-6], shares=[0.1], trials=1, seed=0)

    problem = RegretProblem(moments=[Moments.from_rows(U, Y)], **settings)
    coef = solve(problem).coef
    residual = U @ coef - Y
    features, targets = 2 * np.linalg.norm(residual @ coef.T, axis=1), 2 * np.linalg.norm(residual, axis=1)
    most = np.sort(features + targets)[-4:].sum()
    by_features = (features + targets)[np.argsort(-features)[:4]].sum()
    assert by_features < 0.99 * most  # the choice of rows does differ
    assert study.worst[0, 0] == pytest.approx(1e-6 * most, rel=1e-4)


@pytest.mark.parametrize(("share", "budget"), [(0.29, 29), (0.07, 7), (1e-6, 1), (0.299, 29)])
def test_budgets_are_rounded_down_but_not_by_rounding_errors(share, budget):
    """0.29 * 100 is 28.999999999999996 in floating point."""
    rng = np.random.default_rng(0)
    data = [(rng.standard_normal((50, 2)), rng.standard_normal(50)) for _ in range(2)]
    options = {"weights": [0.5, 0.5], "ridge": 1.0, "transfer": 1.0, "stability": 1.0, "horizon": 2}
    options |= {"epsilons": [0.1], "trials": 1, "seed": 0}
    ours, fewer, clear, more = (
        adversarial_sensitivity(data, **options, shares=[part]).worst[0, 0]
        for part in (share, (budget - 0.5) / 100, (budget + 0.5) / 100, (budget + 1.5) / 100)
    )
    assert ours == clear < more
    assert budget == 1 or fewer < ours


def test_the_attack_keeps_to_its_budget():
    """Without features a row matters by its target alone, and so many of the largest targets are moved by epsilon."""
    Y = np.arange(1.0, 21.0)
    settings = {"weights": [1.0], "ridge": 1.0, "transfer": 1.0, "stability": 1.0, "horizon": 3}
    for share, rows_moved in ((0.05, 1), (0.2, 4), (0.5, 10), (1.0, 20)):
        data = [(np.zeros((20, 1)), Y)]
        study = adversarial_sensitivity(data, **settings, epsilons=[1e-5], shares=[share], trials=3, seed=0)
        most = 2e-5 * Y[20 - rows_moved :].sum()
        assert study.worst[0, 0] == pytest.approx(most, rel=1e-3)
        assert np.all(study.random <= most * (1 + 1e-3))


def test_worst_is_monotone_and_beats_random_at_any_scale():
    study = adversarial_sensitivity(
        rows(), **SETTINGS, epsilons=[0.1, 1.0, 3.0], shares=[0.1, 0.29, 1.0], trials=4, seed=2
    )
    assert np.all(np.diff(study.worst, axis=0) >= 0)
    assert np.all(np.diff(study.worst, axis=1) >= 0)
    assert np.all(study.worst >= study.random.max(axis=-1))


def test_refined_directions_never_make_the_attack_weaker():
    for epsilon in (0.3, 1.0, 3.0, 10.0):
        found = [
            adversarial_sensitivity(
                rows(), **SETTINGS, epsilons=[epsilon], shares=[40 / 75], trials=1, refinements=refinements, seed=0
            ).worst[0, 0]
            for refinements in range(6)
        ]
        assert found == sorted(found)


def test_refused():
    for change in ({"epsilons": [0.0]}, {"epsilons": []}, {"shares": [1.5]}, {"trials": 0}):
        arguments = {"epsilons": [0.1], "shares": [0.5], **change}
        with pytest.raises(ParameterError, match=next(iter(change))):
            adversarial_sensitivity(rows(), **SETTINGS, **arguments, seed=0)
    with pytest.raises(ParameterError, match="two grid points"):
        log_slope(np.array([1.0]), np.array([1.0]))


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_no_attack_passes_the_bound(refit, seed):
    options = {**SETTINGS, "epsilons": [1e-4, 1e-2, 1.0], "shares": [0.02, 0.3, 1.0], "trials": 3}
    study = adversarial_sensitivity(rows(outputs=2 if seed else None, seed=seed), **options, seed=seed, refit=refit)
    assert np.all(study.worst <= study.bound)
    # With all rows moved little, the bound is of the order of the change.
    assert study.bound[0, -1] < (100 if refit else 6) * study.worst[0, -1]


def test_the_bound_by_hand():
    """One feature of 0 and one dataset: the energy is the sum of squared targets, which no head explains."""
    y = np.array([3.0, 4.0])
    problem = RegretProblem(
        moments=[Moments.from_rows(np.zeros((2, 1)), y)], weights=[1.0], ridge=1.0, transfer=1, stability=1, horizon=1
    )
    # Heads are 0; heads after the change are at most sqrt(L/rho) = 5/sqrt(2) long.
    longest = 1 + 5 / np.sqrt(2)
    assert energy_bound(problem, 0.1, rows=1) == pytest.approx((5 + 0.1 * longest) ** 2 - 25)
    assert energy_bound(problem, 0.1, rows=2) == pytest.approx((5 + 0.1 * np.sqrt(2) * longest) ** 2 - 25)
    assert energy_bound(problem, 0.1, rows=2, weight_change=0.1) > energy_bound(problem, 0.1, rows=2)


def test_weights_that_change_stay_below_the_bound():
    data, epsilon = rows(), 0.01
    clean = RegretProblem(moments=[Moments.from_rows(U, y) for U, y in data], **SETTINGS)
    rng = np.random.default_rng(0)
    for _ in range(20):
        moved = [(U + epsilon / 2 * np.sign(rng.standard_normal(U.shape)), y + epsilon) for U, y in data]
        weights = rng.dirichlet([50, 30, 20])
        after = clean.replaced(
            moments=[Moments.from_rows(U, y) for U, y in moved], weights=weights, heads=None, ridge=1.0
        )
        away = float(np.abs(weights - clean.weights).sum())
        bound = energy_bound(clean, epsilon, rows=75, refit=1.0, weight_change=away)
        assert abs(solve(after).energy - solve(clean).energy) <= bound


def test_heads_and_weights_that_follow_the_rows():
    """Refitted heads are those of the changed rows; the gradient of the heads leads the attack."""
    data = rows()
    fixed, refitted = (
        adversarial_sensitivity(data, **SETTINGS, epsilons=[1e-5], shares=[1.0], trials=1, seed=0, refit=refit)
        for refit in (False, True)
    )
    assert refitted.worst[0, 0] > 1.005 * fixed.worst[0, 0]
    clean = RegretProblem(moments=[Moments.from_rows(U, Y) for U, Y in data], **SETTINGS)
    energies, step, total = [], 1e-5, 0.0
    for array in (side for pair in data for side in pair):
        gradient = np.zeros_like(array)
        for index in np.ndindex(*array.shape):
            before, energies = array[index], []
            for sign in (1, -1):
                array[index] = before + sign * step
                moments = [Moments.from_rows(U, Y) for U, Y in data]
                energies.append(solve(clean.replaced(moments=moments, heads=None, ridge=1.0)).energy)
            array[index] = before
            gradient[index] = (energies[0] - energies[1]) / (2 * step)
        total += np.linalg.norm(gradient.reshape(len(array), -1), axis=1).sum()
    assert refitted.worst[0, 0] == pytest.approx(1e-5 * total, rel=1e-3)
    seen = []

    def weigh(changed):
        seen.append(changed)
        return [1.0, 0.0, 0.0]

    alone = adversarial_sensitivity(data, **SETTINGS, epsilons=[1e-5], shares=[1.0], trials=1, seed=0, weigh=weigh)
    assert np.all(np.isinf(alone.bound))
    assert len(seen) > 3
    assert alone.worst[0, 0] > 1  # other weights, another energy
