"""Sources that are only ever streamed lead to the same models as rows in memory."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from estimators.transfer_data import make_transfer
from mixtune import Moments, RandomFeatures, streaming
from mixtune.errors import DataError, ParameterError
from mixtune.estimators import (
    JointRegressor,
    JointSubsetRegressor,
    LocalRegressor,
    MeanOfLocalsRegressor,
    RegretOptimalClassifier,
    RegretOptimalClassifierCV,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
    Sources,
    StreamedSources,
    load,
    split_stream,
)
from mixtune.features import SklearnFeatures

ESTIMATORS = [
    RegretOptimalRegressor(),
    RegretOptimalRegressor(weights="equal", standardise=False, ridge=0.1),
    RegretOptimalRegressor(weights={"focal": 0.4, "s0": 0.3, "s1": 0.2, "s2": 0.1}, fit_intercept=False),
    LocalRegressor(),
    JointRegressor(ridge="loo"),
    JointSubsetRegressor(subset=["focal", "s1"]),
    MeanOfLocalsRegressor(),
]


def as_table(sources, **more):
    X = np.concatenate([X for X, _ in sources.values()])
    y = np.concatenate([y for _, y in sources.values()])
    labels = np.repeat(list(sources), [len(X) for X, _ in sources.values()])
    order = np.random.default_rng(1).permutation(len(y))
    columns = {f"x{i}": X[order, i] for i in range(X.shape[1])}
    targets = {"y": y[order]} if y.ndim == 1 else {f"y{i}": y[order, i] for i in range(y.shape[1])}
    return pa.table({**columns, **targets, "site": labels[order], **more})


def mapped(folder, sources):
    pairs = {}
    for name, pair in sources.items():
        for part, array in zip("Xy", pair):
            np.save(folder / f"{name}-{part}.npy", array)
        pairs[name] = tuple(np.load(folder / f"{name}-{part}.npy", mmap_mode="r") for part in "Xy")
    return pairs


def assert_same_fit(ours, expected, tolerance=1e-10):
    order = [ours.domain_names_.index(name) for name in expected.domain_names_]
    assert sorted(order) == list(range(len(order)))
    scale = np.abs(expected.coef_).max()
    np.testing.assert_allclose(ours.coef_, expected.coef_, rtol=0, atol=tolerance * scale)
    np.testing.assert_allclose(ours.intercept_, expected.intercept_, rtol=0, atol=tolerance * scale)
    np.testing.assert_allclose(ours.loo_error_, expected.loo_error_, rtol=1e-8)
    if hasattr(expected, "heads_"):
        np.testing.assert_allclose(ours.heads_[order], expected.heads_, atol=1e-9 * np.abs(expected.heads_).max())
    if hasattr(expected, "weights_"):
        np.testing.assert_allclose(ours.weights_.values[order], expected.weights_.values, atol=1e-10)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
@pytest.mark.parametrize("outputs", [None, 2])
def test_a_streamed_fit_is_the_fit_in_memory(tmp_path, estimator, outputs):
    X, y, sources = make_transfer(outputs=outputs, sizes=(30, 3, 40))
    parquet.write_table(as_table(sources), tmp_path / "all.parquet", row_group_size=20)
    target = "y" if outputs is None else ["y0", "y1"]
    streamed = StreamedSources(tmp_path, target=target, domain="site", progress=False)
    expected = estimator.fit(X, y, sources=sources)
    expected = (expected.coef_, expected.intercept_, expected.loo_error_, expected.predict(X, return_std=True))
    ours = estimator.fit(X, y, sources=streamed)
    found = (ours.coef_, ours.intercept_, ours.loo_error_, ours.predict(X, return_std=True))
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow", "files", "memmap", "npy", "labels"])
@pytest.mark.parametrize("feature_map", [None, RandomFeatures(n_inputs=4, width=15, seed=0)], ids=["plain", "map"])
def test_wherever_the_rows_lie(tmp_path, kind, feature_map):
    X, y, sources = make_transfer()
    table, options = as_table(sources), {"target": "y", "domain": "site"}
    if kind == "parquet":
        parquet.write_table(table, tmp_path / "all.parquet", row_group_size=10)
        data = tmp_path / "all.parquet"
    elif kind == "csv":
        csv.write_csv(table, tmp_path / "all.csv")
        data = tmp_path / "all.csv"
    elif kind == "arrow":
        feather.write_feather(table, tmp_path / "all.arrow", chunksize=10)
        data = tmp_path / "all.arrow"
    elif kind == "files":
        for name in sources:
            part = table.filter(pa.compute.equal(table["site"], name)).drop_columns("site")
            parquet.write_table(part, tmp_path / f"{name}.parquet")
        data, options = tmp_path, {"target": "y"}
    elif kind == "memmap":
        data, options = mapped(tmp_path, sources), {}
    elif kind == "npy":
        mapped(tmp_path, sources)
        data, options = {n: (str(tmp_path / f"{n}-X.npy"), str(tmp_path / f"{n}-y.npy")) for n in sources}, {}
    else:
        pooled = [np.concatenate(side) for side in zip(*sources.values())]
        labels = np.repeat(list(sources), [len(pair[0]) for pair in sources.values()])
        data, options = tuple(pooled), {"domain": labels}
    expected = RegretOptimalRegressor(feature_map).fit(X, y, sources=sources)
    ours = RegretOptimalRegressor(feature_map).fit(X, y, sources=StreamedSources(data, **options))
    assert_same_fit(ours, expected)
    ours = RegretOptimalRegressor(feature_map, weights="wasserstein").fit(
        X, y, sources=StreamedSources(data, **options)
    )
    expected = RegretOptimalRegressor(feature_map, weights="wasserstein").fit(X, y, sources=sources)
    assert_same_fit(ours, expected)
    found, known = (model.distances_.sampling_floor.value for model in (ours, expected))
    assert found == pytest.approx(known)


def test_large_mapped_arrays_are_streamed_and_small_ones_read(tmp_path):
    X, y, sources = make_transfer()
    assert not Sources(mapped(tmp_path, sources)).streams
    times = 25_000  # 76 MB together
    sources = {name: (np.tile(A, (times, 1)), np.tile(b, times)) for name, (A, b) in sources.items()}
    (tmp_path / "large").mkdir()
    pairs = mapped(tmp_path / "large", sources)
    given = Sources({**pairs, "here": sources["s0"]})
    assert len(given.streams) == 1
    assert [name for name, _ in given.items()] == ["here"]
    assert set(given.names) == {*sources, "here"}
    model = RegretOptimalRegressor(weights="equal")
    expected = clone(model).fit(X, y, sources={**sources, "here": sources["s0"]})
    assert_same_fit(clone(model).fit(X, y, sources=given), expected, tolerance=1e-8)
    with pytest.raises(DataError, match="cannot have sample weights"):
        Sources({**pairs, "s0": (*pairs["s0"], np.ones(len(pairs["s0"][1])))})


def test_ready_moments_are_sources():
    X, y, sources = make_transfer()
    weights = np.linspace(0.5, 2.0, len(X))
    moments = {n: Moments.from_rows(np.column_stack([A, np.ones(len(A))]), b) for n, (A, b) in sources.items()}
    expected = RegretOptimalRegressor().fit(X, y, weights, sources=sources)
    assert_same_fit(RegretOptimalRegressor().fit(X, y, weights, sources=moments), expected)
    with pytest.raises(ParameterError, match="came as Moments, and this needs rows"):
        RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=moments)
    with pytest.raises(DataError, match="over 4 features, the focal rows have 4; pass moments over the same"):
        RegretOptimalRegressor().fit(X, y, sources={"a": Moments.from_rows(*sources["s0"])})
    with pytest.raises(DataError, match="last feature is not a constant 1"):
        RegretOptimalRegressor().fit(X[:, :3], y, sources={"a": Moments.from_rows(*sources["s0"])})
    with pytest.raises(DataError, match="has 1 outputs, the focal rows have 2"):
        RegretOptimalRegressor().fit(X, np.column_stack([y, y]), sources=moments)


def test_means_far_from_zero_and_constant_columns_lose_nothing(tmp_path):
    """Sums of raw squares would lose the spread of 1 beside 1e8."""
    X, y, sources = make_transfer()
    X, sources = X + 1e8, {name: (A + 1e8, b + 1e6) for name, (A, b) in sources.items()}
    flat = lambda A: np.column_stack([A, np.full(len(A), 0.1), 0.3 + 1e-17 * np.arange(len(A))])  # noqa: E731
    X, y, sources = flat(X), y + 1e6, {name: (flat(A), b) for name, (A, b) in sources.items()}
    expected = RegretOptimalRegressor().fit(X, y, sources=sources)
    ours = RegretOptimalRegressor().fit(X, y, sources=StreamedSources(sources))
    np.testing.assert_allclose(ours.coef_, expected.coef_, atol=1e-7)
    np.testing.assert_allclose(ours.predict(X), expected.predict(X), atol=1e-6)


def test_float32_features_are_close():
    X, y, sources = make_transfer()
    phi = RandomFeatures(n_inputs=4, width=10, activation="tanh", seed=0)
    expected = RegretOptimalRegressor(phi).fit(X, y, sources=sources)
    ours = RegretOptimalRegressor(phi).fit(X, y, sources=StreamedSources(sources, dtype="float32"))
    difference = np.abs(ours.predict(X) - expected.predict(X)).max()
    assert 0 < difference < 1e-4


def test_columns_are_arranged_like_the_focal_ones(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y, sources = make_transfer()
    table = as_table(sources, extra=np.zeros(95))
    shuffled = table.select(["extra", "x3", "site", "x0", "y", "x2", "x1"])
    parquet.write_table(shuffled, tmp_path / "all.parquet")
    frame = pandas.DataFrame(X, columns=[f"x{i}" for i in range(4)])
    stream = StreamedSources(tmp_path, target="y", domain="site")
    phi = SklearnFeatures(_fitted_scaler(frame))
    for feature_map in (None, phi):
        expected = RegretOptimalRegressor(feature_map).fit(X, y, sources=sources)
        assert_same_fit(RegretOptimalRegressor(feature_map).fit(frame, y, sources=stream), expected)
    with pytest.raises(DataError, match='no column "x9"'):
        RegretOptimalRegressor().fit(frame.rename(columns={"x3": "x9"}), y, sources=stream)
    picked = StreamedSources(tmp_path, target="y", domain="site", columns=["x0", "x1"])
    with pytest.raises(DataError, match="are not those of the focal rows"):
        RegretOptimalRegressor().fit(frame, y, sources=picked)
    with pytest.raises(DataError, match="have 5 features and 1 outputs, the rows that they are to be like have 4"):
        RegretOptimalRegressor().fit(X, y, sources=stream)


def _fitted_scaler(frame):
    from sklearn.preprocessing import StandardScaler

    return StandardScaler().fit(frame)


def test_maps_need_only_transform():
    class Doubled:
        def transform(self, X, /):
            return np.concatenate([2 * X, X**2], axis=1)

    X, y, sources = make_transfer()
    expected = RegretOptimalRegressor(Doubled()).fit(X, y, sources=sources)
    assert_same_fit(RegretOptimalRegressor(Doubled()).fit(X, y, sources=StreamedSources(sources)), expected)


TUNED = [
    {"feature_map": None},
    {"feature_map": None, "fit_intercept": False},
    {"feature_map": RandomFeatures(n_inputs=4, width=30, seed=0)},
    {"feature_map": None, "target_scale": "log"},
    {},
]


@pytest.mark.parametrize("settings", TUNED, ids=str)
def test_a_tuned_fit_uses_all_streamed_rows(tmp_path, settings):
    X, y, sources = make_transfer(sizes=(30, 25, 40, 35))
    if settings.get("target_scale") == "log":
        y, sources = np.exp(y), {name: (A, np.exp(b)) for name, (A, b) in sources.items()}
    if not settings:  # of two values, rows in memory have the maps of streams too, and no kernel
        y, sources = np.sign(y), {name: (A, np.sign(b)) for name, (A, b) in sources.items()}
    parquet.write_table(as_table(sources), tmp_path / "all.parquet", row_group_size=11)
    told = []
    options = {"target": "y", "domain": "site", "progress": lambda done, total: told.append(done)}
    expected = RegretOptimalRegressorCV(**settings).fit(X, y, sources=sources)
    ours = RegretOptimalRegressorCV(**settings).fit(X, y, sources=StreamedSources(tmp_path, **options))
    order = [ours.domain_names_.index(name) for name in expected.domain_names_]
    np.testing.assert_allclose(ours.predict(X), expected.predict(X), rtol=0, atol=1e-8 * np.abs(y).max())
    np.testing.assert_allclose(ours.weights_.values[order], expected.weights_.values, atol=1e-8)
    np.testing.assert_allclose(ours.heads_[order], expected.heads_, atol=1e-8 * np.abs(expected.heads_).max())
    assert ours.loo_error_ == pytest.approx(expected.loo_error_, rel=1e-8)
    # Sums and samples come from one pass where the features are known before.
    known = "feature_map" in settings and "target_scale" not in settings
    assert told.count(0) == (1 if known else 2)


def test_only_validation_tasks_of_a_tuned_fit_use_samples():
    X, y, sources = make_transfer(sizes=(300, 250, 400))
    drawn = StreamedSources(sources, sample_rows=60, seed=3)
    part = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=drawn)
    whole = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)
    assert {len(A) for A, _ in drawn.samples().values()} == {60}
    note = "cross-domain validation was done on at most 60 rows of each streamed source, drawn at random"
    assert part.notes_[-1] == note
    assert part.distances_ is not None
    # Local models are those of all rows, and so are the priors: the same candidates, with other shares.
    np.testing.assert_allclose(part.heads_, whole.heads_, atol=1e-10)
    errors = [{(c.family, str(c.settings)): c.loo_error for c in m.candidates_} for m in (part, whole)]
    common = set(errors[0]) & set(errors[1])
    assert len(common) > 5
    for each in common:
        assert errors[0][each] == pytest.approx(errors[1][each], rel=1e-9)


def test_a_tuned_fit_of_streams_is_updated_by_its_sums(tmp_path):
    X, y, sources = make_transfer(sizes=(90, 75, 80))
    first, later = {"s0": sources["s0"], "s1": sources["s1"]}, sources["s2"]
    ours = RegretOptimalRegressorCV(feature_map=None).fit(X[:9], y[:9], sources=StreamedSources(first))
    ours.partial_fit(X[9:], y[9:], sources={"s0": later, "new": later})  # rows for a stream
    ours.partial_fit(sources=StreamedSources({"new": sources["s1"], "other": later}))  # a stream for rows
    joined = {
        "s0": tuple(map(np.concatenate, zip(sources["s0"], later))),
        "s1": sources["s1"],
        "new": tuple(map(np.concatenate, zip(later, sources["s1"]))),
        "other": later,
    }
    expected = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=joined)
    np.testing.assert_allclose(ours.coef_, expected.coef_, atol=1e-8)
    np.testing.assert_allclose(ours.forget("s0").coef_, expected.forget("s0").coef_, atol=1e-8)
    assert ours.notes_[-1].startswith("cross-domain validation was done on at most 2,000 rows")
    started = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources={"s0": later})
    started.partial_fit(sources=StreamedSources({"s1": sources["s1"]}))
    again = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources={"s0": later, "s1": sources["s1"]})
    np.testing.assert_allclose(started.coef_, again.coef_, atol=1e-8)


def test_a_tuned_fit_falls_back_to_samples(tmp_path):
    X, y, sources = make_transfer(sizes=(90, 75, 80))
    told = []
    options = {"sample_rows": 20, "progress": lambda done, total: told.append(done)}
    wide = RandomFeatures(n_inputs=4, width=300, seed=0)
    small = StreamedSources(sources, memory_limit=2_200_000, **options)
    model = RegretOptimalRegressorCV(wide).fit(X, y, sources=small)
    samples = small.samples()
    np.testing.assert_array_equal(model.coef_, RegretOptimalRegressorCV(wide).fit(X, y, sources=samples).coef_)
    assert model.notes_[-1] == "the choice was learned on at most 20 rows of each streamed source, drawn at random"
    # A target that no logarithm has, in a row that is not in the sample, leaves the scale as it is.
    rng = np.random.default_rng(0)
    spread = {name: (A, np.exp(3 * rng.standard_normal(len(b)))) for name, (A, b) in sources.items()}
    own = np.exp(3 * rng.standard_normal(len(y)))
    drawn = {id(A): A for A, _ in StreamedSources(spread, **options).samples().values()}
    missed = next(k for k in range(90) if not any((spread["s0"][0][k] == A).all(axis=1).any() for A in drawn.values()))
    assert RegretOptimalRegressorCV().fit(X, own, sources=StreamedSources(spread, **options)).target_scale_ == "log"
    spread["s0"][1][missed] = -1.0
    model = RegretOptimalRegressorCV().fit(X, own, sources=StreamedSources(spread, **options))
    assert model.target_scale_ == "identity"
    with pytest.raises(DataError, match=r'domain "s0".*targets on the log scale must be positive in every row'):
        RegretOptimalRegressorCV(None, target_scale="log").fit(X, own, sources=StreamedSources(spread, **options))


def test_sums_are_gathered_once_in_a_grid_search(tmp_path):
    X, y, sources = make_transfer(n=20)
    parquet.write_table(as_table(sources), tmp_path / "all.parquet")
    told = []
    stream = StreamedSources(
        tmp_path, target="y", domain="site", progress=lambda done, total: told.append((done, total))
    )
    phi = RandomFeatures(n_inputs=4, width=5, seed=0)
    search = GridSearchCV(RegretOptimalRegressor(phi), {"ridge": [0.1, 1.0]}, cv=4)
    search.fit(X, y, sources=stream)
    assert told == [(0, 95), (95, 95)]
    held = GridSearchCV(RegretOptimalRegressor(phi), {"ridge": [0.1, 1.0]}, cv=4).fit(X, y, sources=Sources(sources))
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], held.cv_results_["mean_test_score"], rtol=1e-9)
    # Another map, and a file that changed, are read anew.
    RegretOptimalRegressor().fit(X, y, sources=stream)
    assert len(told) == 4
    doubled = {name: (A, 2 * b) for name, (A, b) in sources.items()}
    parquet.write_table(as_table(doubled), tmp_path / "all.parquet")
    ours = RegretOptimalRegressor().fit(X, y, sources=stream)
    assert_same_fit(ours, RegretOptimalRegressor().fit(X, y, sources=doubled))


def test_partial_fit_adds_what_is_streamed_and_forget_takes_it_away(tmp_path):
    X, y, sources = make_transfer()
    first = {"s0": sources["s0"]}
    later = {"s0": (sources["s1"][0] + 5, sources["s1"][1]), "s2": sources["s2"]}
    for intercept in (True, False):
        expected = RegretOptimalRegressor(fit_intercept=intercept).fit(X, y, sources=first)
        ours = RegretOptimalRegressor(fit_intercept=intercept).fit(X, y, sources=StreamedSources(first))
        expected.partial_fit(X[:3], y[:3], sources=later)
        ours.partial_fit(X[:3], y[:3], sources=StreamedSources(later))
        assert_same_fit(ours, expected)
        path = ours.save(tmp_path / "model.mixtune")
        assert_same_fit(load(path).forget("s2"), expected.forget("s2"))
    np.testing.assert_allclose(load(path).predict(X), ours.predict(X))
    started = RegretOptimalRegressor().partial_fit(X, y, sources=StreamedSources(sources))
    assert_same_fit(started, RegretOptimalRegressor().fit(X, y, sources=sources))
    with pytest.raises(DataError, match='a source is named "focal"'):
        started.partial_fit(sources=StreamedSources({"focal": sources["s0"]}))


def test_focal_rows_from_the_same_data_in_one_pass(tmp_path):
    X, y, sources = make_transfer()
    table = as_table({"berlin": (X, y), **sources})
    parquet.write_table(table, tmp_path / "all.parquet", row_group_size=7)
    told = []
    stream = StreamedSources(
        tmp_path, target="y", domain="site", progress=lambda done, total: told.append((done, total))
    )
    split = split_stream(stream, "berlin")
    here = table.filter(pa.compute.equal(table["site"], "berlin"))
    np.testing.assert_array_equal(split.y, here["y"].to_numpy())
    np.testing.assert_array_equal(split.X[:, 2], here["x2"].to_numpy())
    assert told == [(0, 107), (107, 107)]
    model = RegretOptimalRegressorCV(feature_map=None, focal_name="berlin").fit(split.X, split.y, sources=split.sources)
    assert told == [(0, 107), (107, 107)] * 2  # the sums, about the focal rows
    assert set(model.domain_names_) == {"berlin", *sources}
    ours = RegretOptimalRegressor(focal_name="berlin").fit(split.X, split.y, sources=split.sources)
    assert_same_fit(ours, RegretOptimalRegressor(focal_name="berlin").fit(X, y, sources=sources))
    with pytest.raises(DataError, match=r'a source is named "berlin".*leave_out'):
        RegretOptimalRegressor(focal_name="berlin").fit(X, y, sources=stream)
    with pytest.raises(DataError, match='no row belongs to domain "berlim"; did you mean "berlin"'):
        split_stream(stream, "berlim")


def test_bad_input_is_named(tmp_path):
    X, y, sources = make_transfer()
    table = as_table(sources)
    good = tmp_path / "good"
    good.mkdir()
    parquet.write_table(table, good / "a.parquet")
    model = RegretOptimalRegressor()
    with pytest.raises(DataError, match='no column "z"'):
        model.fit(X, y, sources=StreamedSources(good, target="z", domain="site"))
    with pytest.raises(DataError, match="no domain besides those in leave_out"):
        model.fit(X, y, sources=StreamedSources(good, target="y", domain="site", leave_out=list(sources)))
    for fit in (model.fit, RegretOptimalRegressorCV(feature_map=None).fit):
        with pytest.raises(DataError, match='leave_out names "s11", which no row belongs to; did you mean'):
            fit(X, y, sources=StreamedSources(good, target="y", domain="site", leave_out="s11"))
    broken = table.set_column(0, "x0", pa.array([None, *table["x0"].to_pylist()[1:]]))
    parquet.write_table(broken, good / "b.parquet")
    with pytest.raises(DataError, match=r'"x0" of ".*b\.parquet" \(rows from 1\) has 1 missing value'):
        model.fit(X, y, sources=StreamedSources(good, target="y", domain="site"))
    spoilt = sources["s1"][0].copy()
    spoilt[7, 1] = np.nan
    with pytest.raises(DataError, match=r'domain "s1": NaN or infinite values in X'):
        model.fit(X, y, sources=StreamedSources({**sources, "s1": (spoilt, sources["s1"][1])}))
    for data, words in (
        (X, "sources is a ndarray"),
        ({"a": "a.parquet"}, r'source "a" is a file; pass StreamedSources\({"a": \'a.parquet\'}'),
    ):
        with pytest.raises(DataError, match=words):
            model.fit(X, y, sources=data)
    for options, words in (
        ({"engine": "spark"}, "engine must be one of"),
        ({"memory_limit": "much"}, "memory_limit"),
        ({"dtype": "float16"}, "dtype"),
        ({"sample_rows": 0}, "sample_rows"),
        ({"scheduler": "tcp://here:1"}, 'for engine="dask"'),
    ):
        with pytest.raises(ParameterError, match=words):
            StreamedSources(good, target="y", **options)
    with pytest.raises(DataError, match="more than half of memory_limit"):
        StreamedSources({"a": (np.zeros((9000, 4)), np.zeros(9000))}, sample_rows=9000, memory_limit=400_000).samples()
    assert not hasattr(StreamedSources(good), "__len__")
    assert not hasattr(StreamedSources(good), "shape")


PEAK = r"""
import re, sys
import numpy as np
from mixtune import RandomFeatures
from mixtune.estimators import RegretOptimalRegressor, StreamedSources
def peak():  # not getrusage, which may tell the peak of the parent
    return int(re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())[1])
rng = np.random.default_rng(0)
X, y = rng.standard_normal((50, 10)), rng.standard_normal(50)
model = RegretOptimalRegressor(RandomFeatures(n_inputs=10, width=200, seed=0))
options = {"memory_limit": "64 MB", "target": "y", "domain": "site"}
model.fit(X, y, sources=StreamedSources(sys.argv[1], **options))
before = peak()
model.fit(X, y, sources=StreamedSources(sys.argv[2], **options))
print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory_of_a_fit_stays_within_the_limit(tmp_path):
    rng = np.random.default_rng(0)
    files = []
    for rows in (1000, 100_000):  # 160 MB of features
        sites = np.array(["a", "b", "c"])[np.arange(rows) % 3]
        columns = {f"x{i}": rng.standard_normal(rows) for i in range(10)}
        files.append(tmp_path / f"{rows}.parquet")
        parquet.write_table(pa.table({**columns, "y": rng.standard_normal(rows), "site": sites}), files[-1])
    done = subprocess.run([sys.executable, "-c", PEAK, *map(str, files)], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < 64e6


def as_classes(y, count):
    return np.digitize(y, np.linspace(0.5, 1.5, count - 1)).astype(np.int64)


CLASSIFIERS = [
    RegretOptimalClassifier(),
    RegretOptimalClassifierCV(None),
    RegretOptimalClassifierCV(RandomFeatures(n_inputs=4, width=30, seed=0)),
    RegretOptimalClassifierCV(),
]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("model", CLASSIFIERS, ids=str)
def test_classifiers_use_all_streamed_rows(tmp_path, model, classes):
    X, y, sources = make_transfer(n=20, sizes=(30, 25, 40, 35))
    y, sources = as_classes(y, classes), {name: (A, as_classes(b, classes)) for name, (A, b) in sources.items()}
    parquet.write_table(as_table(sources), tmp_path / "all.parquet", row_group_size=11)
    told = []
    options = {"target": "y", "domain": "site", "progress": lambda done, total: told.append(done)}
    ours = clone(model).fit(X, y, sources=StreamedSources(tmp_path, **options))
    expected = clone(model).fit(X, y, sources=sources)
    np.testing.assert_allclose(ours.predict_proba(X), expected.predict_proba(X), atol=1e-8)
    np.testing.assert_allclose(ours.loo_predictions_, expected.loo_predictions_, atol=1e-8)
    order = [ours.domain_names_.index(name) for name in expected.domain_names_]
    np.testing.assert_allclose(ours.weights_.values[order], expected.weights_.values, atol=1e-8)
    assert ours.classes_.dtype == expected.classes_.dtype == np.int64
    # One pass finds the classes and draws the samples, another one adds up.
    assert told.count(0) == 2


def test_only_validation_tasks_of_a_tuned_classifier_use_samples():
    X, y, sources = make_transfer(n=20, sizes=(300, 250, 400))
    y, sources = as_classes(y, 2), {name: (A, as_classes(b, 2)) for name, (A, b) in sources.items()}
    sources["s1"][1][17] = 7  # a class that no sample has
    drawn = StreamedSources(sources, sample_rows=60, seed=3)
    assert not any(7 in labels for _, labels in drawn.samples().values())
    part = RegretOptimalClassifierCV(feature_map=None).fit(X, y, sources=drawn)
    whole = RegretOptimalClassifierCV(feature_map=None).fit(X, y, sources=sources)
    assert part.classes_.tolist() == whole.classes_.tolist() == [0, 1, 7]
    note = "cross-domain validation was done on at most 60 rows of each streamed source, drawn at random"
    assert note in part.notes_
    np.testing.assert_allclose(part.heads_, whole.heads_, atol=1e-10)
    part.partial_fit(sources=StreamedSources({"s0": sources["s2"]}, sample_rows=60))
    joined = {**sources, "s0": tuple(map(np.concatenate, zip(sources["s0"], sources["s2"])))}
    whole = RegretOptimalClassifierCV(feature_map=None).fit(X, y, sources=joined)
    np.testing.assert_allclose(part.heads_, whole.heads_, atol=1e-9)
    with pytest.raises(DataError, match=r"these rows have new classes: 9"):
        part.partial_fit(sources=StreamedSources({"s0": (X, np.full(20, 9))}))


def test_streamed_labels_must_be_classes():
    X, y, sources = make_transfer()
    with pytest.raises(DataError, match="labels of streamed classes must be whole numbers; y holds"):
        RegretOptimalClassifierCV().fit(X, as_classes(y, 2), sources=StreamedSources(sources))
    many = {"s0": (np.zeros((10_001, 4)), np.arange(10_001))}
    with pytest.raises(DataError, match="y has over 10,000 different values"):
        RegretOptimalClassifierCV().fit(X, as_classes(y, 2), sources=StreamedSources(many))
    two = {"s0": (X, np.column_stack([y, y]))}
    with pytest.raises(DataError, match="one label per row; the data have 2 targets"):
        RegretOptimalClassifierCV().fit(X, as_classes(y, 2), sources=StreamedSources(two))
    text = np.where(y > 0, "yes", "no")
    labelled = {name: (A, as_classes(b, 2)) for name, (A, b) in sources.items()}
    with pytest.raises(DataError, match="use one kind of label"):
        RegretOptimalClassifierCV().fit(X, text, sources=StreamedSources(labelled))


@pytest.mark.parametrize("read", ["moments", "samples"])
def test_names_that_are_unknown_cannot_be_left_out_once_the_domains_are_known(read):
    X, y, sources = make_transfer()
    stream = StreamedSources(sources)
    assert stream.without("typo").leave_out == ("typo",)
    if read == "moments":
        RegretOptimalRegressor().fit(X, y, sources=stream)
    else:
        stream.samples()
    with pytest.raises(DataError, match='leave_out names "typo", which no row belongs to; known: "s0", "s1", "s2"'):
        stream.without("typo")
    with pytest.raises(DataError, match='leave_out names "typo"'):
        RegretOptimalRegressor().fit(X, y, sources=StreamedSources(sources).without("typo"))
    model = RegretOptimalRegressor().fit(X, y, sources=stream.without("s1"))
    assert set(model.domain_names_) == {"focal", "s0", "s2"}


def test_sums_that_were_kept_are_not_moved_to_rows_with_other_outputs():
    X, y, sources = make_transfer()
    stream = StreamedSources(sources)
    RegretOptimalRegressor().fit(X, y, sources=stream)
    with pytest.raises(DataError, match="4 features and 1 outputs, the rows that they are to be like have 4 and 2"):
        RegretOptimalRegressor().fit(X, np.column_stack([y, y]), sources=stream)


def test_prediction_needs_no_dask():
    code = (
        "import sys, numpy as np; from mixtune import RegretOptimalRegressor\n"
        "X = np.eye(5); RegretOptimalRegressor().fit(X, X[:, 0], sources={'a': (X, X[:, 0])}).predict(X)\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('dask', 'distributed')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("room", "name"),
    [("data", "stream_samples"), ("moments", "stream_moments"), ("engines.dask", "gather_moments")],
)
def test_old_names_work_for_one_release(room, name):
    old = importlib.import_module(f"mixtune.{room}")
    with pytest.warns(DeprecationWarning, match=rf"`mixtune\.{room}\.{name}` .* `mixtune\.streaming\.{name}`"):
        assert getattr(old, name) is getattr(streaming, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        old.nothing  # noqa: B018


def test_labels_to_leave_out_may_be_numbers():
    assert StreamedSources("rows.parquet", target="y", domain="site", leave_out=3).leave_out == ("3",)
    assert StreamedSources("rows.parquet", target="y", domain="site", leave_out={4}).leave_out == ("4",)


def test_distances_of_samples_count_all_rows(tmp_path):
    X, y, sources = make_transfer()
    parquet.write_table(as_table(sources), tmp_path / "a.parquet")
    stream = StreamedSources(tmp_path, target="y", domain="site", sample_rows=5, progress=False)
    found = RegretOptimalRegressor(weights="wasserstein").fit(X, y, sources=stream).weights_
    rows = {name: len(there) for name, (_, there) in sources.items()}
    assert dict(zip(found.names, found.counts)) == {"focal": len(y), **rows}
    assert {each.rows[1] for each in found.distances[1:]} == {5}
