"""The model of a cluster: counts are those of the engine, times keep their bounds, the page is what follows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("dask")
pytest.importorskip("matplotlib")

from benchmarks.results import Part, Results, read
from benchmarks.timing import Figure
from docs.performance import MAIN, fill

from docs import scaling, when
from mixtune.files import read_model
from mixtune.streaming import gather_moments

RATES = scaling.Rates({64: 4e-6, 256: 1e-5, 1024: 6e-5}, merge=1e-10, byte=1e-9, task=1e-3)


@pytest.fixture(scope="module")
def results():
    return read(MAIN)


def test_page_is_what_the_script_writes(results):
    page = scaling.PAGE.read_text(encoding="utf-8")
    assert fill(page, scaling.blocks(results)) == page


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with distributed.Client(processes=False, dashboard_address=":0", n_workers=1, threads_per_worker=1) as found:
        yield found


@pytest.mark.parametrize("blocks", [1, 4, 5, 40, 127])
def test_tree_is_that_of_the_engine(blocks, client):
    """Few blocks: one a task. Dask says which tasks it has done."""
    import dask.array as da
    from dask.utils import key_split
    from distributed.diagnostics.plugin import SchedulerPlugin

    class Counts(SchedulerPlugin):
        def transition(self, key, start, finish, *args, **kwargs):
            if (start, finish) == ("processing", "memory"):
                done[key_split(key)] += 1

    done, scheduler = Counter(), client.cluster.scheduler
    X = da.ones((2 * blocks, 3), chunks=(2, 3))
    scheduler.add_plugin(Counts(), name="counts")
    try:
        found = gather_moments({"a": (X, X[:, 0])}, scheduler=client)
    finally:
        scheduler.remove_plugin("counts")
    plan = scaling.Plan(scaling.Job(8, rows_per_worker=blocks * 100_000), workers=1)
    assert found["a"].count == 2 * blocks
    assert plan.levels[0] == done["fold"] == blocks
    assert sum(plan.levels[1:]) == done["merge_domains"]
    assert plan.depth == int(np.ceil(np.log(blocks) / np.log(scaling.FAN)))


def test_many_blocks_share_tasks():
    plan = scaling.Plan(scaling.Job(8), workers=1000)
    assert (plan.blocks, plan.blocks_per_task) == (100_000, scaling.MOST_BLOCKS)
    assert plan.tasks == sum(plan.levels)
    assert plan.messages == plan.levels[0] == 12_500


@pytest.mark.parametrize(("features", "domains", "outputs"), [(7, 3, 1), (5, 2, 4)])
def test_bytes_of_a_message_are_those_of_packed_sums(features, domains, outputs, client, tmp_path):
    """The sums of a block as they are kept in a file."""
    import dask.array as da

    rng = np.random.default_rng(0)
    shape = (20,) if outputs == 1 else (20, outputs)
    rows = {str(k): (rng.standard_normal((20, features)), rng.standard_normal(shape)) for k in range(domains)}
    whole = {name: tuple(map(da.from_array, both)) for name, both in rows.items()}
    gather_moments(whole, scheduler=client, folder=tmp_path)
    kept = [read_model(path)[1] for path in tmp_path.glob("*.moments")]
    job = scaling.Job(features, domains=domains, outputs=outputs)
    assert job.message_bytes == sum(array.nbytes for arrays in kept for array in arrays.values())


def test_rates_pass_through_what_was_measured():
    assert [RATES.row_seconds(p) for p in (64, 256, 1024)] == pytest.approx([4e-6, 1e-5, 6e-5])
    assert RATES.row_seconds(2048) == pytest.approx(4 * 6e-5)
    assert RATES.row_seconds(16) == pytest.approx(4e-6)
    assert 4e-6 < RATES.row_seconds(128) < 1e-5


def test_one_worker_does_all_the_work_in_turn():
    job = scaling.Job(256, rows_per_worker=1_000_000)
    plan = scaling.Plan(job, 1)
    leaves = plan.levels[0] * scaling.leaf_seconds(plan, RATES)
    merges = [4, 4, 2, 3]  # 10 blocks: three merges, then one of their three results
    expected = leaves + sum(scaling.merge_seconds(plan, RATES, parts) for parts in merges)
    expected += plan.tasks * RATES.task + job.message_bytes * RATES.byte
    assert scaling.simulate(job, 1, RATES) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("workers", [1, 3, 40, 1000])
def test_time_keeps_its_bounds(workers):
    job = scaling.Job(256, rows_per_worker=2_000_000)
    plan = scaling.Plan(job, workers)
    found = scaling.simulate(job, workers, RATES)
    leaves = plan.levels[0] * scaling.leaf_seconds(plan, RATES)
    merges = sum(plan.levels[1:]) * scaling.merge_seconds(plan, RATES, scaling.FAN)
    assert found >= leaves / workers
    assert found >= plan.tasks * RATES.task
    # What a greedy schedule cannot exceed: all work shared out, one task more, and the way up the tree.
    longest = scaling.leaf_seconds(plan, RATES) + scaling.tail_seconds(plan, RATES)
    assert found <= (leaves + merges) / workers + longest + plan.tasks * RATES.task


def test_beyond_the_limit_more_workers_do_not_help():
    slow = scaling.Rates(RATES.row, RATES.merge, RATES.byte, task=0.1)
    job = scaling.Job(64)
    limit = scaling.most_workers(job, slow)
    assert 10 < limit < 100
    assert scaling.efficiency(job, int(limit / 4), slow) > 0.8
    assert scaling.efficiency(job, int(limit * 10), slow) == pytest.approx(0.1, rel=0.2)


def test_cost_model_finds_the_constants_it_was_made_with():
    true = np.array([1e-3, 1e-4, 2e-9, 3e-11, 1e-10])
    seconds = when.CostModel(tuple(true.tolist()), 1.0).seconds
    curves = (
        Figure("curve", "n: N = 4, p = 256, T = 10", _curve("n", [10**k for k in (3, 4, 5, 6)], seconds, 4, 256)),
        Figure("curve", "p: N = 4, n = 20000, T = 10", _curve("p", [32, 128, 512, 2048], seconds, 4, None, 20_000)),
        Figure("curve", "N: p = 100, T = 10, 100 rows each", _curve("N", [4, 64, 1024], seconds, None, 100)),
    )
    found = when.CostModel.of(Results({}, {"growth": Part("", 0.0, (), curves)}), "core")
    np.testing.assert_allclose(found.constants, true, rtol=1e-6)
    assert found.off == pytest.approx(1.0)
    assert found.seconds(10**6, 2000, 20) == pytest.approx(seconds(10**6, 2000, 20))


def _curve(axis, values, seconds, N, p, n=None):
    sizes = [{"n": n, "p": p, "N": N} | {axis: value} for value in values]
    times = [seconds(size["n"] or 100 * size["N"], size["p"], size["N"]) for size in sizes]
    return {axis: values, "core": times}


def test_table_says_where_each_line_comes_from(results):
    table = when.when_table(results, scaling.Rates.of(results)).splitlines()[2:]
    kinds = [line.rstrip("| ").rpartition("|")[2].split(":")[0].split(",")[0].strip() for line in table]
    assert {"measured", "extrapolated", "simulated"} == set(kinds)
    assert kinds.count("measured") >= len(when.sizes(results)) >= 5
