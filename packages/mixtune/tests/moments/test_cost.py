"""The cost model: what is chosen for which sizes, within which memory, and what is refused."""

import os

import numpy as np
import pytest

from mixtune.errors import ParameterError
from mixtune.moments import AUTO, SolverOptions, _cost
from mixtune.moments._cost import gram_costs, largest_rank, plan, row_costs

LIKE = np.zeros(1)
PRIMAL, DUAL, WALK = "primal cholesky", "dual cholesky", "conjugate gradients"


def chosen(costs, options=AUTO, shift=1.0):
    return [cost.method for cost in plan(costs, options, shift=shift, like=LIKE)]


@pytest.mark.parametrize(
    ("n", "p", "outputs", "expected"),
    [
        (100, 20, 1, [PRIMAL]),
        (20, 100, 1, [DUAL]),
        (200_000, 1024, 1, [PRIMAL]),
        (100_000, 4096, 1, [PRIMAL]),
        (2_000, 50_000, 1, [DUAL]),
        (500, 50_000, 100, [DUAL]),
        (20_000, 20_000, 1, [WALK, PRIMAL]),
        (30_000, 20_000, 1, [WALK, PRIMAL]),
        (20_000, 30_000, 10, [WALK, DUAL]),
        (200_000, 50_000, 1, [WALK]),  # three matrices of 20 GB would not fit into 32 GB
        (50_000, 200_000, 1, [WALK]),
    ],
)
def test_the_choice(n, p, outputs, expected, monkeypatch):
    monkeypatch.setattr(_cost, "machine_limit", lambda _: 32 * 10**9)
    assert chosen(row_costs(n, p, outputs)) == expected


def test_gram_matrices_are_factored_while_that_fits(monkeypatch):
    monkeypatch.setattr(_cost, "machine_limit", lambda _: 32 * 10**9)
    assert chosen(gram_costs(1_000, 1)) == [PRIMAL]
    assert chosen(gram_costs(50_000, 1)) == [WALK]
    assert chosen(gram_costs(50_000, 1), SolverOptions("direct")) == [PRIMAL]


def test_wishes_are_followed():
    costs = row_costs(300, 200, 1)
    assert chosen(costs, SolverOptions("iterative")) == [WALK]
    assert chosen(costs, SolverOptions("direct")) == [PRIMAL]
    assert chosen(row_costs(200, 300, 1), SolverOptions("direct")) == [DUAL]
    # The cheapest that fits: the dual is the larger matrix here, the primal fits, and below that only the walk.
    assert chosen(costs, SolverOptions(memory_limit="1 MB")) == [PRIMAL]
    assert chosen(costs, SolverOptions(memory_limit="0.5 MB")) == [WALK]


def test_the_least_norm_is_left_to_factors():
    costs = row_costs(20_000, 20_000, 1)
    assert chosen(costs, SolverOptions(memory_limit="100 GB"))[0] == WALK
    assert chosen(costs, SolverOptions(memory_limit="100 GB"), shift=0.0) == [PRIMAL]
    assert chosen(costs, SolverOptions(memory_limit="1 GB"), shift=0.0) == [WALK]


def test_too_little_memory_is_refused():
    with pytest.raises(ParameterError, match=r'1 MB is too little .* 24 MB beside the data; .*"iterative" takes less'):
        plan(row_costs(2_000, 1_000, 1), SolverOptions("direct", memory_limit="1 MB"), shift=1.0, like=LIKE)
    with pytest.raises(ParameterError, match=r"conjugate gradients, which takes .* fewer features"):
        plan(row_costs(2_000, 1_000, 1), SolverOptions(memory_limit=1000), shift=1.0, like=LIKE)


def test_without_a_limit_the_smallest_is_tried(monkeypatch):
    monkeypatch.setattr(_cost, "machine_limit", lambda _: 10)
    assert chosen(row_costs(30_000, 20_000, 1)) == [WALK]
    assert chosen(row_costs(30_000, 20_000, 1), SolverOptions("direct")) == [PRIMAL]


def test_ranks_fit_into_memory():
    assert largest_rank(50_000, 1, 10**12) == 2048
    assert largest_rank(1_000, 1, 10**12) == 250
    assert largest_rank(50_000, 1, 100 * 10**6) == 60
    assert largest_rank(50_000, 1, 10) == 0


def test_the_machine_is_asked():
    torch = pytest.importorskip("torch")
    assert 2**28 < _cost.machine_limit(LIKE) == _cost.machine_limit(torch.zeros(1))


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
    primal, dual, walk = row_costs(n, p, outputs)
    assert primal.flops == n * p**2 + p**3 / 3 + 2 * p**2 * outputs + 4 * n * p * outputs
    assert dual.flops == n**2 * p + n**3 / 3 + 2 * n**2 * outputs + 4 * n * p * outputs
    assert (primal.bytes, dual.bytes) == (3 * 8 * p**2, 3 * 8 * n**2)
    assert (primal.work, primal.least_bytes) == (primal.flops, primal.bytes)
    sketch, steps = 4 * 256 * (n * p + 2 * p * 256), 100 * 4 * outputs * (n * p + p * 256)
    assert walk.flops == sketch + steps
    assert walk.work == sketch + steps * (1 + 5 / outputs)
    assert (walk.bytes, walk.least_bytes) == (8 * p * (4 * 256 + 8 * outputs), 8 * p * (4 * 16 + 8 * outputs))
    factor, walk = gram_costs(p, outputs)
    assert factor.flops == p**3 / 3 + 2 * p**2 * outputs
    assert factor.bytes == 2 * 8 * p**2
    assert walk == _cost.iterative_cost(p**2 // 2, p, outputs)
    narrow = _cost.iterative_cost(1000, 10, 1, steps=7)
    assert narrow.flops == 4 * 10 * (1000 + 2 * 10 * 10) + 7 * 4 * (1000 + 10 * 10)
    assert narrow.least_bytes == narrow.bytes == 8 * 10 * (4 * 10 + 8)


def test_defaults_and_memory(monkeypatch):
    assert SolverOptions("auto", 1e-10, None) == AUTO
    monkeypatch.setattr(_cost, "_host_memory", lambda: 1000)
    assert _cost.machine_limit(LIKE) == 500
    monkeypatch.undo()
    memory = _cost._host_memory.__wrapped__
    assert 2**28 < memory() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr(_cost.Path, "is_file", lambda _: True)
    monkeypatch.setattr(_cost.Path, "read_text", lambda _: "12345\n")
    assert memory() == 12345
    monkeypatch.setattr(_cost.Path, "read_text", lambda _: "max\n")
    monkeypatch.setattr(_cost.os, "sysconf_names", {})
    assert memory() == 8 * 10**9


def test_small_problems_do_not_ask_the_machine(monkeypatch):
    monkeypatch.setattr(_cost, "machine_limit", lambda _: pytest.fail("asked"))
    assert chosen(row_costs(300, 200, 1)) == [PRIMAL]
    assert chosen(row_costs(300, 200, 1), SolverOptions("direct", memory_limit="1 GB")) == [PRIMAL]
    with pytest.raises(pytest.fail.Exception, match="asked"):
        chosen(row_costs(20_000, 20_000, 1))


def test_the_walk_must_promise_half_the_work():
    cost = lambda method, work: _cost.Cost(method, work, 10, work, 10)  # noqa: E731
    options = SolverOptions(memory_limit=100)
    walk, factor = cost(WALK, 1e12), cost(PRIMAL, 2.1e12)
    assert chosen((factor, walk), options) == [WALK, PRIMAL]
    assert chosen((cost(PRIMAL, 2e12), walk), options) == [PRIMAL]
    assert chosen((cost(DUAL, 5e12), factor, walk), options) == [WALK, PRIMAL]
    assert chosen((factor, cost(WALK, 1e3)), options, shift=0.0) == [PRIMAL]
