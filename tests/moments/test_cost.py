"""The cost model: what is chosen for which sizes, within which memory, and what is refused."""

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
