"""Which way a ridge step is solved: for which sizes, within which memory, and what is refused."""

import numpy as np
import pytest

from mixtune import Moments
from mixtune.errors import ParameterError
from mixtune.moments import AUTO, GramSystem, RowSystem, SolverOptions

PRIMAL, DUAL, WALK = "primal cholesky", "dual cholesky", "conjugate gradients"


def rows_of(n, p, outputs=1):
    rng = np.random.default_rng(0)
    return RowSystem(rng.standard_normal((n, p)), rng.standard_normal((n, outputs)))


def stats_of(system, options=AUTO, shift=1.0):
    return system.ridge_step(np.zeros_like(system.zero), shift, options).stats


def test_the_smaller_matrix_is_factored():
    assert stats_of(rows_of(100, 20)).method == PRIMAL
    assert stats_of(rows_of(20, 100)).method == DUAL
    gram = Moments.from_rows(np.random.default_rng(0).standard_normal((100, 20)), np.ones(100)).system
    assert isinstance(gram, GramSystem)
    assert stats_of(gram).method == PRIMAL


def test_wishes_are_followed():
    tall, wide = rows_of(300, 200), rows_of(200, 300)
    assert stats_of(tall, SolverOptions("iterative")).method == WALK
    assert stats_of(tall, SolverOptions("direct")).method == PRIMAL
    assert stats_of(wide, SolverOptions("direct")).method == DUAL
    # The cheapest that fits: the dual is the larger matrix here, the primal fits, and below that only the walk.
    assert stats_of(tall, SolverOptions(memory_limit="1 MB")).method == PRIMAL
    assert stats_of(tall, SolverOptions(memory_limit="0.5 MB")).method == WALK


def test_every_way_ends_at_the_same_step():
    system = rows_of(300, 200, 3)
    theta = np.random.default_rng(1).standard_normal((200, 3))
    expected = np.linalg.solve(system.rows.T @ system.rows + 0.5 * np.eye(200), system.gradient(theta))
    for options in (AUTO, SolverOptions("direct"), SolverOptions("iterative"), SolverOptions(memory_limit="0.5 MB")):
        np.testing.assert_allclose(system.ridge_step(theta, 0.5, options).delta, expected, rtol=1e-7, atol=1e-9)


def test_the_least_norm_is_left_to_factors():
    """Without a ridge, conjugate gradients only where memory is short."""
    system = rows_of(300, 200)
    assert stats_of(system, SolverOptions(memory_limit="1 MB"), shift=0.0).method == PRIMAL
    assert stats_of(system, SolverOptions(memory_limit="0.5 MB"), shift=0.0).method == WALK


def test_large_problems_are_left_to_conjugate_gradients():
    """With 5,600 rows and features a factorisation takes far longer than the steps that are needed."""
    system = RowSystem(np.eye(5600), np.ones((5600, 1)))
    step = system.ridge_step(np.zeros((5600, 1)), 1.0)
    assert step.stats.method == WALK
    np.testing.assert_allclose(step.delta, 0.5, rtol=1e-9)


def test_too_little_memory_is_refused():
    system = rows_of(2_000, 1_000)
    with pytest.raises(ParameterError, match=r'1 MB is too little .* 24 MB beside the data; .*"iterative" takes less'):
        stats_of(system, SolverOptions("direct", memory_limit="1 MB"))
    with pytest.raises(ParameterError, match=r"conjugate gradients, which takes .* fewer features"):
        stats_of(system, SolverOptions(memory_limit=1000))


@pytest.mark.parametrize(("limit", "rank"), [("1 GB", 50), ("0.5 MB", 50), ("0.2 MB", 29)])
def test_ranks_fit_into_memory(limit, rank):
    """At most a quarter of the features: more would cost what a factor costs."""
    options = SolverOptions("iterative", memory_limit=limit)
    stats = stats_of(rows_of(300, 200), options, shift=1e-6)
    assert 0 < stats.rank <= rank
    assert stats.bytes <= options.limit


@pytest.mark.parametrize(
    "options",
    [{"solver": "qr"}, {"tolerance": 0.0}, {"tolerance": 1.0}, {"tolerance": np.nan}, {"memory_limit": "much"}],
)
def test_refused_options(options):
    with pytest.raises(ParameterError, match=next(iter(options))):
        SolverOptions(**options)


def test_what_each_way_takes():
    """Products, factor and solve; three matrices while rows are multiplied, two where the Gram matrix is there."""
    n, p, outputs = 500, 300, 2
    system, turned = rows_of(n, p, outputs), rows_of(p, n, outputs)
    primal, dual = (stats_of(each, SolverOptions("direct")) for each in (system, turned))
    assert primal.flops == n * p**2 + p**3 / 3 + 2 * p**2 * outputs + 4 * n * p * outputs
    assert dual.flops == primal.flops
    assert primal.bytes == dual.bytes == 3 * 8 * p**2
    factor = stats_of(GramSystem(np.eye(p), np.ones((p, outputs)), np.ones(outputs)))
    assert factor.flops == p**3 / 3 + 2 * p**2 * outputs
    assert factor.bytes == 2 * 8 * p**2


def test_defaults():
    assert SolverOptions("auto", 1e-10, None) == AUTO
    assert AUTO.limit is None
