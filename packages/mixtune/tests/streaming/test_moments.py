"""Moments from disk: the same as in memory, within the memory granted."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtune import Identity, Moments, RandomFeatures, RegretProblem, solve
from mixtune.errors import DataError, ParameterError
from mixtune.moments import Origin
from mixtune.streaming import stream_moments


def draw(n=5000, d=4, domains=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X @ np.arange(1.0, d + 1) + rng.standard_normal(n), rng.integers(0, domains, n)


def write(path, X, y, sites):
    columns = {f"x{i}": X[:, i] for i in range(X.shape[1])}
    parquet.write_table(pa.table({**columns, "y": y, "site": sites}), path, row_group_size=1000)
    return path


def relative_error(ours, expected):
    return np.linalg.norm(np.atleast_1d(ours - expected)) / np.linalg.norm(np.atleast_1d(expected))


def test_a_full_fit_from_disk_equals_the_one_in_memory(tmp_path):
    X, y, sites = draw()
    phi = RandomFeatures(n_inputs=4, width=40, seed=0)
    told = []
    path = write(tmp_path / "rows.parquet", X, y, sites)
    options = {"memory_limit": "1 MB", "progress": lambda done, total: told.append((done, total))}
    streamed = stream_moments(path, feature_map=phi, target="y", domain="site", **options)
    whole = {str(k): Moments.from_rows(phi.transform(X[sites == k]), y[sites == k]) for k in range(3)}
    assert set(streamed) == set(whole)
    for name, moments in streamed.items():
        assert moments.count == whole[name].count
        for part in ("gram", "cross", "square"):
            assert relative_error(getattr(moments, part), getattr(whole[name], part)) < 1e-13
    settings = {"weights": [0.5, 0.3, 0.2], "ridge": 1.0, "transfer": 0.1, "stability": 1.0, "horizon": 10}
    ours, other = (
        solve(RegretProblem(moments=[found[str(k)] for k in range(3)], **settings)).coef for found in (streamed, whole)
    )
    assert relative_error(ours, other) < 1e-9
    assert (told[0], told[-1]) == ((0, 5000), (5000, 5000))
    assert [done for done, _ in told] == sorted({done for done, _ in told})


@given(st.integers(0, 10**6), st.integers(1, 300), st.integers(1, 5), st.integers(1, 12), st.integers(1, 3))
def test_blocks_in_any_mix_of_domains(seed, n, domains, width, threads):
    """Within so little memory that blocks have their least size."""
    X, y, sites = draw(n, 2, domains, seed)
    phi = RandomFeatures(n_inputs=2, width=width, seed=0)
    options = {"feature_map": phi, "memory_limit": 400_000, "threads": threads}
    found = stream_moments((X, y), domain=sites, **options)
    assert set(found) == {str(site) for site in set(sites)}
    for name, moments in found.items():
        here = sites == int(name)
        expected = Moments.from_rows(phi.transform(X[here]), y[here])
        assert moments.count == expected.count
        assert (moments.rows is None) == (expected.rows is None)
        np.testing.assert_allclose(moments.gram, expected.gram, rtol=1e-11, atol=1e-11 * np.abs(expected.gram).max())


@pytest.mark.parametrize("threads", [1, 2, 9])
def test_threads_change_nothing_but_rounding(threads):
    X, y, sites = draw(3000)
    phi = RandomFeatures(n_inputs=4, width=20, seed=0)
    options = {"domain": sites, "feature_map": phi, "memory_limit": "1 MB", "threads": threads}
    one, other = (stream_moments((X, y), **options) for _ in range(2))
    for k in range(3):
        expected = Moments.from_rows(phi.transform(X[sites == k]), y[sites == k])
        assert relative_error(one[str(k)].gram, expected.gram) < 1e-13
        np.testing.assert_array_equal(one[str(k)].gram, other[str(k)].gram)


def test_float32_features_with_float64_sums_have_a_small_error():
    X, y, _ = draw(20_000, 5)
    phi = RandomFeatures(n_inputs=5, width=200, activation="tanh", seed=0)
    exact, single = (stream_moments((X, y), feature_map=phi, dtype=dtype)["0"] for dtype in ("float64", "float32"))
    gram, cross = relative_error(single.gram, exact.gram), relative_error(single.cross, exact.cross)
    # Errors of single products average out; float32 sums over all rows would not.
    assert 0 < gram < 2e-7
    assert 0 < cross < 2e-7
    heads = single.head(ridge=1.0), exact.head(ridge=1.0)
    assert relative_error(*heads) < 1e-3
    assert single.gram.dtype == single.cross.dtype == np.float64
    np.testing.assert_array_equal(single.gram, single.gram.T)


def test_float32_says_when_squares_overflow():
    X = np.full((10, 2), 1e25)
    with pytest.raises(DataError, match='pass dtype="float64"'):
        stream_moments((X, np.ones(10)), dtype="float32")
    assert stream_moments((X, np.ones(10)))["0"].gram[0, 0] == pytest.approx(1e51)


def test_limits_are_told_before_work():
    X, y, _ = draw(100, 2, 2)
    small = {"memory_limit": "2 MB", "threads": 1}
    with pytest.raises(ParameterError, match="too little for 1001 features; at least 24 MB"):
        stream_moments((X, y), feature_map=RandomFeatures(n_inputs=2, width=1000, seed=0), **small)
    with pytest.raises(ParameterError, match="memory_limit of 10 bytes is too little for 2 features; at least 12 kB"):
        stream_moments((X, y), memory_limit=10, threads=1)
    wide = RandomFeatures(n_inputs=2, width=200, seed=0)
    small["memory_limit"] = "3 MB"
    pairs = {str(k): (np.zeros((300, 2)), np.zeros(300)) for k in range(10)}
    with pytest.raises(DataError, match=r"10 domains with 201 features take 3 MB.*at least 6 MB"):
        stream_moments(pairs, feature_map=wide, progress=lambda *_: pytest.fail("work began"), **small)
    many = np.arange(3000) % 10
    with pytest.raises(DataError, match="more than half of memory_limit"):
        stream_moments((np.ones((3000, 2)), np.ones(3000)), domain=many, feature_map=wide, **small)
    for wrong in ("much", -1, True, "5 XB"):
        with pytest.raises(ParameterError, match="memory_limit"):
            stream_moments((X, y), memory_limit=wrong)
    with pytest.raises(DataError, match="takes 3 columns, the data have 2"):
        stream_moments((X, y), feature_map=Identity(3))
    with pytest.raises(ParameterError, match="not a feature map"):
        stream_moments((X, y), feature_map=np.sin)
    with pytest.raises(ParameterError, match="dtype"):
        stream_moments((X, y), dtype="float16")
    with pytest.raises(DataError, match="NaN or infinite"):
        stream_moments((np.full((5, 2), np.nan), np.ones(5)))


def test_arrays_stay_within_the_limit(tmp_path):
    path = write(tmp_path / "rows.parquet", *draw(100_000, 20))  # 16 MB of inputs
    tracemalloc.start()
    try:
        stream_moments(path, target="y", domain="site", memory_limit="8 MB", threads=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8e6


PEAK = r"""
import re, sys
import numpy as np
from mixtune import RandomFeatures
from mixtune.streaming import stream_moments
def peak():  # not getrusage, which may tell the peak of the parent
    return int(re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())[1])
phi = RandomFeatures(n_inputs=20, width=255, seed=0)
small = np.zeros((1000, 20)), np.zeros(1000)
stream_moments(small, feature_map=phi, memory_limit="64 MB")
before = peak()
stream_moments({"a": (sys.argv[1], sys.argv[2])}, feature_map=phi, memory_limit="64 MB")
print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory_of_a_mapped_array_stays_within_the_limit(tmp_path):
    rows = 80_000  # 164 MB of features
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((rows, 20)))
    np.save(tmp_path / "y.npy", np.ones(rows))
    command = [sys.executable, "-c", PEAK, str(tmp_path / "X.npy"), str(tmp_path / "y.npy")]
    grown = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert 1e6 < grown * 1024 < 64e6


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("outputs", [None, 2])
def test_moments_about_a_point_have_a_constant_as_the_last_feature(dtype, outputs):
    X, y, sites = draw()
    y = y if outputs is None else np.column_stack([y, -y])
    phi = RandomFeatures(n_inputs=4, width=30, activation="tanh", seed=0)
    origin = phi.transform(X[:9]).mean(axis=0), y[:9].mean(axis=0)
    found = stream_moments((X, y), domain=sites, feature_map=phi, origin=origin, dtype=dtype, memory_limit="1 MB")
    for k in range(3):
        U = np.column_stack([phi.transform(X[sites == k]) - origin[0], np.ones((sites == k).sum())])
        expected = Moments.from_rows(U, y[sites == k] - origin[1])
        assert relative_error(found[str(k)].gram, expected.gram) < (1e-13 if dtype == "float64" else 2e-7)
        assert relative_error(found[str(k)].cross, expected.cross) < (1e-13 if dtype == "float64" else 1e-6)
        assert relative_error(found[str(k)].square, expected.square) < 1e-13
    with pytest.raises(DataError, match="have 31 features and 1 outputs, the rows that they are to be like have 3"):
        stream_moments((X, y if outputs is None else y[:, 0]), feature_map=phi, origin=(np.zeros(3), np.array(0.0)))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("labelled", [False, True])
def test_moments_gathered_on_a_device_are_those_of_numpy(dtype, labelled):
    pytest.importorskip("torch")
    X, y, sites = draw(n=3000)
    sites[-7:] = 9  # a domain of fewer rows than features
    phi = RandomFeatures(n_inputs=4, width=30, seed=0)
    origin = (phi.transform(X[:50]).mean(axis=0), np.asarray(y[:50].mean())) if labelled else None
    options = {"feature_map": phi, "domain": sites.astype(str), "dtype": dtype, "memory_limit": "1 MB"}
    options |= {"origin": None if origin is None else Origin(*origin)}
    here, there = (stream_moments((X, y), device=device, **options) for device in ("cpu", "torch:cpu"))
    assert list(here) == list(there)
    for name, moments in there.items():
        assert (moments.count, moments.keeps_rows) == (here[name].count, here[name].keeps_rows)
        for part in ("gram", "cross", "square"):
            found = getattr(moments, part)
            assert isinstance(found, np.ndarray | np.float64)
            assert relative_error(found, getattr(here[name], part)) < (1e-12 if dtype == "float64" else 1e-6)


def test_devices_are_refused_before_anything_is_read():
    with pytest.raises(ParameterError, match="there is no device"):
        stream_moments("nowhere.parquet", target="y", device="abacus")


def test_float32_sums_know_what_is_only_rounding():
    """A column that is the sum of two others: without a ridge, the minimum-norm head of float64 to a few digits."""
    X, y, _ = draw(n=4000)
    X = np.hstack([X, X[:, :1] + X[:, 1:2]])
    right = Moments.from_rows(X, y).head(0.0)
    found = stream_moments((X, y), domain=["a"] * len(y), dtype="float32", memory_limit="100 kB")["a"].head(0.0)
    np.testing.assert_allclose(found, right, atol=1e-3)


def test_many_domains_of_few_rows_each():
    """Fewer rows than a block: they wait, and leave only to make room for others."""
    X, y, sites = draw(8000, 2, 1000)
    found = stream_moments((X, y), domain=sites, memory_limit="500 kB")
    assert set(found) == {str(site) for site in set(sites)}
    for name, moments in found.items():
        here = sites == int(name)
        expected = Moments.from_rows(X[here], y[here])
        assert moments.count == expected.count
        np.testing.assert_allclose(moments.gram, expected.gram, atol=1e-12)


def test_faults_far_down_say_where():
    X, y, _ = draw(5000, 2, 1)
    X[4900, 1] = np.nan
    with pytest.raises(DataError, match="NaN") as caught:
        stream_moments((X, y), memory_limit="100 kB", threads=1)
    where = r'domain "0" \(the rows after its first ([\d,]+)\): NaN.*first is row (\d+) \(from 0\)'
    before, row = re.search(where, str(caught.value)).groups()
    assert int(before.replace(",", "")) > 0
    assert int(before.replace(",", "")) + int(row) == 4900
