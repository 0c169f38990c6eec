"""Moments on a Dask cluster: the same as in memory, whoever fails on the way."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from mixtune import Domains, Moments, RandomFeatures, WassersteinWeights
from mixtune.errors import DataError, MissingExtraError, MixtuneError, ParameterError
from mixtune.streaming import gather_moments, gather_samples, run_tasks, stream_moments
from streaming.dask_processes import dask_processes

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

SITES = np.array(["north", "south", "west"])
WORKERS = "distributed.scheduler.no-workers-timeout"


@pytest.fixture(scope="module")
def client():
    with distributed.Client(processes=False, dashboard_address=":0", n_workers=1, threads_per_worker=1) as client:
        yield client


def draw(n=3000, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X @ np.arange(1.0, d + 1) + rng.standard_normal(n), SITES[rng.integers(0, 3, n)]


def write(path, X, y, sites, **options):
    columns = {f"x{i}": X[:, i] for i in range(X.shape[1])}
    parquet.write_table(pa.table({**columns, "y": y, "site": sites}), path, **options)
    return path


def in_memory(X, y, sites, phi):
    return {site: Moments.from_rows(phi.transform(X[sites == site]), y[sites == site]) for site in SITES}


def assert_same(ours, other, tolerance=1e-12):
    assert set(ours) == set(other)
    for name, moments in ours.items():
        assert moments.count == other[name].count
        for part in ("gram", "cross", "square"):
            expected = getattr(other[name], part)
            error = np.linalg.norm(np.atleast_1d(getattr(moments, part) - expected))
            assert error <= tolerance * np.linalg.norm(np.atleast_1d(expected))


# Dask itself still calls what pandas 3.1 wants to drop.
@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_files_arrays_and_frames_give_the_moments_of_the_rows(client, tmp_path):
    X, y, sites = draw()
    phi = RandomFeatures(n_inputs=3, width=20, seed=0)
    expected = in_memory(X, y, sites, phi)
    write(tmp_path / "rows.parquet", X, y, sites, row_group_size=200)
    options = {"feature_map": phi, "scheduler": client}
    table = {"target": "y", "domain": "site", **options}
    assert_same(gather_moments(tmp_path, block_rows=200, **table), expected)
    chunked = (da.from_array(X, chunks=(400, 2)), da.from_array(y, chunks=500))
    assert_same(gather_moments(chunked, domain=da.from_array(sites, chunks=700), **options), expected)
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.read_parquet(tmp_path / "rows.parquet", split_row_groups=4)
    assert_same(gather_moments(frame, **table), expected)
    assert_same(stream_moments(frame, feature_map=phi, target="y", domain="site"), expected)
    for name in ("X", "y"):
        np.save(tmp_path / f"{name}.npy", {"X": X, "y": y}[name])
    pair = {"all": (str(tmp_path / "X.npy"), str(tmp_path / "y.npy"))}
    assert_same(gather_moments(pair, block_rows=701, **options), {"all": sum(expected.values())})


def test_the_result_does_not_depend_on_the_run(client, tmp_path):
    write(tmp_path / "rows.parquet", *draw(), row_group_size=100)
    options = {"target": "y", "domain": "site", "block_rows": 100, "scheduler": client}
    one, other = (gather_moments(tmp_path, **options) for _ in range(2))
    for name in one:
        np.testing.assert_array_equal(one[name].gram, other[name].gram)


def test_a_run_that_was_cut_off_continues_where_it_ended(client, tmp_path):
    data, kept = tmp_path / "data", tmp_path / "kept"
    data.mkdir()
    X, y, sites = draw()
    write(data / "rows.parquet", X, y, sites, row_group_size=250)
    phi = RandomFeatures(n_inputs=3, width=20, seed=0)
    options = {"target": "y", "domain": "site", "block_rows": 250, "scheduler": client, "folder": kept}
    first = gather_moments(data, feature_map=phi, **options)
    files = sorted(kept.iterdir())
    assert len(files) == 12
    gone, spoilt, *rest = files
    gone.unlink()
    spoilt.write_bytes(spoilt.read_bytes()[:-1])
    before = {path: path.stat().st_mtime_ns for path in rest}
    told = []
    again = gather_moments(data, feature_map=phi, progress=lambda done, total: told.append((done, total)), **options)
    assert {path: path.stat().st_mtime_ns for path in rest} == before
    assert sorted(kept.iterdir()) == files
    for name in first:
        np.testing.assert_array_equal(again[name].gram, first[name].gram)
    assert (told[0], told[-1]) == ((0, 3000), (3000, 3000))
    # Another map, or rows that changed, are other blocks.
    gather_moments(data, feature_map=RandomFeatures(n_inputs=3, width=20, seed=1), **options)
    assert len(list(kept.iterdir())) == 24
    write(data / "rows.parquet", X, 2 * y, sites, row_group_size=250)
    doubled = gather_moments(data, feature_map=phi, **options)
    assert len(list(kept.iterdir())) == 36
    np.testing.assert_allclose(doubled["north"].cross, 2 * first["north"].cross)


@pytest.mark.parametrize("folder", [None, "kept"])
def test_float32_sums_know_what_is_only_rounding(client, tmp_path, folder):
    X, y, _ = draw()
    arrays = {"a": (da.from_array(X, chunks=(400, 3)), da.from_array(y, chunks=400))}
    folder = folder and tmp_path / folder
    for _ in range(2):
        found = gather_moments(arrays, dtype="float32", scheduler=client, folder=folder)["a"]
        here = stream_moments({"a": (X, y)}, dtype="float32")["a"]
        assert found.system.summed == pytest.approx(here.system.summed, rel=1e-6)


def test_maps_without_a_name_are_told_apart_by_their_features(client, tmp_path):
    class Scaled:
        n_features_out = 2

        def __init__(self, factor):
            self.factor = factor

        def transform(self, X, /):
            return self.factor * X

    arrays = {"a": (da.ones((40, 2), chunks=(10, 2)), da.ones(40, chunks=10))}
    options = {"scheduler": client, "folder": tmp_path}
    assert gather_moments(arrays, feature_map=Scaled(1.0), **options)["a"].gram[0, 0] == 40
    assert gather_moments(arrays, feature_map=Scaled(2.0), **options)["a"].gram[0, 0] == 160
    refuses = Scaled(1.0)
    refuses.transform = lambda X, /: np.zeros((1, 1))
    with pytest.raises(ParameterError, match="register it"):
        gather_moments(arrays, feature_map=refuses, **options)


def test_relative_names_mean_this_folder(client, tmp_path, monkeypatch):
    write(tmp_path / "rows.parquet", *draw(100))
    monkeypatch.chdir(tmp_path)
    assert (
        sum(m.count for m in gather_moments("rows.parquet", target="y", domain="site", scheduler=client).values())
        == 100
    )


def test_equal_blocks_of_a_collection_both_count(client, tmp_path):
    X, y = da.ones((40, 2), chunks=(10, 2)), da.ones(40, chunks=10)
    for _ in range(2):
        assert gather_moments({"a": (X, y)}, scheduler=client, folder=tmp_path)["a"].count == 40
    assert len(list(tmp_path.iterdir())) == 4


def test_a_killed_worker_changes_nothing(tmp_path):
    data, kept = tmp_path / "data", tmp_path / "kept"
    data.mkdir()
    X, y, sites = draw(n=20_000)
    write(data / "rows.parquet", X, y, sites, row_group_size=500)
    phi = RandomFeatures(n_inputs=3, width=300, seed=0)
    killed, finished = threading.Event(), []

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as watcher,
    ):
        pids = watcher.run(os.getpid)
        assert len(pids) == 2

        def kill_one(done, total):
            if done >= 2000 and not killed.is_set():
                killed.set()
                finished.extend(kept.glob("*.moments"))
                os.kill(next(iter(pids.values())), signal.SIGKILL)

        options = {"feature_map": phi, "target": "y", "domain": "site", "block_rows": 500, "folder": kept}
        options["scheduler"] = cluster.scheduler_address
        found = gather_moments(data, progress=kill_one, **options)
        made = {path: path.stat().st_mtime_ns for path in kept.iterdir()}
        # Adding the kept blocks up gives every row once.
        assert_same(gather_moments(data, **options), in_memory(X, y, sites, phi))
        assert {path: path.stat().st_mtime_ns for path in kept.iterdir()} == made
        # The nanny starts another worker in place of the dead one.
        after = set(watcher.run(os.getpid).values())
    assert killed.is_set()
    assert len(finished) < 40
    assert next(iter(pids.values())) not in after
    assert_same(found, in_memory(X, y, sites, phi))
    assert len(made) == 40


def test_samples_are_rows_and_serve_for_distances(client, tmp_path):
    X, y, sites = draw()
    write(tmp_path / "rows.parquet", X, y, sites, row_group_size=300)
    options = {"target": "y", "domain": "site", "rows": 50, "scheduler": client, "block_rows": 300}
    samples = gather_samples(tmp_path, seed=3, **options)
    rows = {(*x, t): site for x, t, site in zip(X.tolist(), y.tolist(), sites.tolist())}
    for site, (inputs, targets) in samples.items():
        assert inputs.shape == (50, 3)
        assert {rows[(*x, t)] for x, t in zip(inputs.tolist(), targets.tolist())} == {site}
        assert len({tuple(x) for x in inputs.tolist()}) == 50
    again = gather_samples(tmp_path, seed=3, **options)
    np.testing.assert_array_equal(samples["west"][0], again["west"][0])
    domains = Domains.from_dict(samples, focal="north")
    assert len(WassersteinWeights(temperature=1.0).weigh(domains=domains).values) == 3


def test_runs_on_the_cluster(client):
    found = {key: result for key, result, _ in run_tasks(divmod, {7: (7, 2), 9: (9, 2)}, scheduler=client)}
    assert found == {7: (3, 1), 9: (4, 1)}
    with pytest.raises(ZeroDivisionError):
        list(run_tasks(divmod, {0: (1, 0)}, scheduler=client))


def test_mistakes_are_told_before_any_work(client, tmp_path):
    X, y, sites = draw(50)
    path = write(tmp_path / "rows.parquet", X, y, sites)
    with pytest.raises(DataError, match='did you mean "y"'):
        gather_moments(path, target="yy", domain="site", scheduler=client)
    with pytest.raises(DataError, match="more than once"):
        gather_moments([path, path], target="y", domain="site", scheduler=client)
    with pytest.raises(ParameterError, match="stream_moments here"):
        gather_moments((X, y), scheduler=client)
    with pytest.raises(DataError, match="takes 2 columns, the data have 3"):
        gather_moments(
            {"a": (da.from_array(X), da.from_array(y))}, feature_map=RandomFeatures(n_inputs=2, width=2, seed=0)
        )
    with pytest.raises(ParameterError, match="has its workers"):
        gather_moments(path, target="y", domain="site", scheduler=client, workers=2)
    with pytest.raises(ParameterError, match="no Dask scheduler answers"):
        gather_moments(path, target="y", domain="site", scheduler="nowhere://127.0.0.1:1")


def test_faults_in_blocks_reach_the_caller(client):
    X = np.ones((20, 2))
    X[15, 1] = np.nan
    with pytest.raises(DataError, match="NaN or infinite"):
        gather_moments({"a": (da.from_array(X, chunks=(5, 2)), da.ones(20, chunks=5))}, scheduler=client)


def test_without_dask(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr("mixtune.checks.import_module", missing)
    with pytest.raises(MissingExtraError, match=r"mixtune\[dask\]"):
        gather_moments("rows.parquet", target="y")


def test_a_lost_scheduler_is_explained(tmp_path):
    path = write(tmp_path / "rows.parquet", *draw(4000), row_group_size=100)
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0")
    lost = threading.Thread(target=cluster.close)

    def lose(done, total):
        if done >= 500 and not lost.ident:
            lost.start()

    options = {"target": "y", "domain": "site", "block_rows": 100, "folder": tmp_path / "kept"}
    with pytest.raises(MixtuneError, match="run it again to continue"):
        gather_moments(path, scheduler=cluster.scheduler_address, progress=lose, **options)
    lost.join()
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "kept").iterdir()}
    assert 0 < len(kept) < 40
    with distributed.Client(processes=False, dashboard_address=":0", n_workers=1) as client:
        found = gather_moments(path, scheduler=client, **options)
    assert_same(found, stream_moments(path, target="y", domain="site"))
    assert all(file.stat().st_mtime_ns == made for file, made in kept.items())
    assert len(list((tmp_path / "kept").iterdir())) == 40


def test_a_cluster_without_workers_is_given_up(tmp_path):
    path = write(tmp_path / "rows.parquet", *draw(100))
    with dask_processes(workers=0) as cluster, dask.config.set({WORKERS: "1s"}):
        begin = time.monotonic()
        with pytest.raises(MixtuneError, match=r"no workers for 1 s; start some .*; run it again") as caught:
            gather_moments(path, target="y", domain="site", scheduler=cluster.address)
    assert 1 < time.monotonic() - begin < 10
    assert caught.value.code == "cluster-without-workers"
    assert "folder" in str(caught.value)
    assert caught.value.render("terminal").endswith("=1h; run it again")


def test_the_setting_has_the_name_that_the_error_gives(monkeypatch):
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT", "7s")
    with dask.config.set(dask.config.collect([])):
        assert dask.config.get(WORKERS) == "7s"


def test_workers_that_all_leave_end_a_run_unless_others_come_in_time():
    with dask_processes() as cluster:
        with dask.config.set({WORKERS: "60s"}):
            results = run_tasks(time.sleep, dict.fromkeys(range(6), (0.3,)), scheduler=cluster.address)
            found = [next(results)]
            cluster.workers[0].kill()
            other = cluster.add_worker()
            assert sorted(key for key, _, _ in [*found, *results]) == list(range(6))
        with dask.config.set({WORKERS: "1s"}):
            results = run_tasks(time.sleep, dict.fromkeys(range(30), (0.3,)), scheduler=cluster.address)
            next(results)
            other.kill()
            with pytest.raises(MixtuneError, match="no workers for 1 s") as caught:
                list(results)
    assert caught.value.code == "cluster-without-workers"


def test_a_scheduler_that_is_killed_ends_a_run():
    with dask_processes() as cluster:
        results = run_tasks(time.sleep, dict.fromkeys(range(30), (0.3,)), scheduler=cluster.address)
        next(results)
        cluster.scheduler.kill()
        with pytest.raises(
            MixtuneError, match=r"scheduler was lost .*; the results before the error are complete"
        ) as caught:
            list(results)
    assert caught.value.code == "cluster-lost"


def test_a_task_that_takes_too_much_memory_is_explained():
    def fill(size):
        return len(np.ones(size)), time.sleep(60)

    limits = {"SCHEDULER__ALLOWED_FAILURES": "0", "WORKER__MEMORY__TERMINATE": "0.8"}
    settings = {f"DASK_DISTRIBUTED__{name}": value for name, value in limits.items()}
    with (
        dask_processes(1, "--nanny", "--memory-limit", "500MB", **settings) as cluster,
        pytest.raises(MixtuneError, match=r"ended 1 worker, .* for want of memory; give each .* more") as caught,
    ):
        list(run_tasks(fill, {0: (10**8,)}, scheduler=cluster.address))
    assert caught.value.code == "cluster-worker-killed"
