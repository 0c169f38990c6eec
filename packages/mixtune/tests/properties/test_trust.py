"""Numerical trust: solutions against 80 digits, within the error that docs/numerics.md states."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from benchmarks.precision import DIGITS, cases, draw, errors, reference, stiffness
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mixtune import Moments, RegretProblem, solve
from mixtune.regret import Schedule

STRENGTHS = {"ridge": 0.3, "transfer": 0.2, "stability": 1.0, "horizon": 6}


def test_the_reference_is_the_textbook_recursion():
    rows = draw(9, 4, 10.0)
    right = reference(rows, (0.5, 0.3, 0.2), **STRENGTHS)
    problem = RegretProblem(moments=[Moments.from_rows(*r) for r in rows], weights=(0.5, 0.3, 0.2), **STRENGTHS)
    twin = solve(problem, method="riccati")
    np.testing.assert_allclose(twin.heads, right.heads.astype(float), rtol=1e-10)
    assert twin.energy == pytest.approx(float(right.energy), rel=1e-12)


@pytest.mark.parametrize(("name", "found"), [pytest.param(*case, id=case[0]) for case in cases()])
def test_cases_of_the_page(name, found):
    assert found.worst <= found.bound


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 24),
    p=st.integers(1, 8),
    spread=st.integers(0, 12),
    strength=st.integers(-12, 1),
    stability=st.sampled_from([0.0, 0.1, 1.0]),
    horizon=st.integers(1, 12),
    doubled=st.booleans(),
)
def test_error_is_at_most_five_rounding_errors_times_the_condition(
    seed, n, p, spread, strength, stability, horizon, doubled
):
    rows = draw(n, p, 10.0**spread, seed=seed)
    if doubled:
        rows = [(np.hstack([U, U]), y) for U, y in rows]
    scale = 10.0**strength
    found = errors(rows, ridge=scale, transfer=scale / 2, stability=stability * scale, horizon=horizon)
    assume(found.condition <= 1e12)
    assert found.worst <= found.bound + 1e-14


@pytest.mark.parametrize(("n", "p"), [(30, 8), (8, 30)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_torch_is_as_exact(n, p, dtype):
    torch = pytest.importorskip("torch")
    rows = [(U.astype(dtype), y.astype(dtype)) for U, y in draw(n, p, 1e3)]
    gather = lambda U, y: Moments.from_rows(torch.asarray(U), torch.asarray(y))  # noqa: E731
    found = errors(rows, ridge=1e-6, transfer=1e-6, stability=1e-6, horizon=3, gather=gather)
    assert found.worst <= found.bound


@pytest.mark.parametrize("n", [40, 7])
@pytest.mark.parametrize("strength", [1.0, 1e-6, 0.0])
def test_equal_columns_get_equal_coefficients(n, strength):
    """Also with no ridge at all, where only the minimum-norm solution is the same for both."""
    rows = [(np.hstack([U, U[:, ::-1]]), y) for U, y in draw(n, 5, 10.0)]
    moments = [Moments.from_rows(*r) for r in rows]
    options = {"ridge": strength, "transfer": strength, "stability": strength, "horizon": 4}
    found = solve(RegretProblem(moments=moments, weights=(0.5, 0.3, 0.2), **options))
    for coef in (found.coef, *found.problem.heads):
        np.testing.assert_allclose(coef[:5], coef[5:][::-1], rtol=1e-6, atol=1e-9 * np.abs(coef).max())


@pytest.mark.parametrize("n", [50, 6])
def test_float32_rows_are_what_they_say(n):
    """No arithmetic in float32: the moments are those of the same numbers in float64, to the last bit."""
    U, y = (part.astype(np.float32) for part in draw(n, 9, 1e3)[0])
    narrow, wide = Moments.from_rows(U, y), Moments.from_rows(U.astype(np.float64), y.astype(np.float64))
    for name in ("gram", "cross", "square"):
        np.testing.assert_array_equal(getattr(narrow, name), getattr(wide, name))


@pytest.mark.parametrize("spread", [1e8, 1e12])
def test_beyond_the_condition_losses_still_hold(spread):
    """At 1e14 the weak coefficients are noise; what the solution achieves is not."""
    found = errors(draw(40, 12, spread), ridge=1e-13, transfer=1e-13, stability=1e-13, horizon=3)
    assert found.condition > 1e13
    assert found.coef > 1e-3
    assert found.energy <= 1e-3


@pytest.mark.parametrize("transfer", [1e-12, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize("stability", [1e-9, 1.0, 1e3])
@pytest.mark.parametrize("horizon", [1, 2, 50, 1000])
def test_the_schedule_is_exact(transfer, stability, horizon):
    with localcontext() as context:
        context.prec = DIGITS
        right = float(stiffness(Decimal(transfer), Decimal(stability), horizon))
    assert Schedule(transfer, stability, horizon).rho == pytest.approx(right, rel=2e-15 * max(horizon, 10) ** 0.5)
