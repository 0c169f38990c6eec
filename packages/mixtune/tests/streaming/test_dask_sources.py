"""``fit`` with Dask collections: sources that stay on the cluster, focal rows that come into memory."""

from __future__ import annotations

import numpy as np
import pytest

from estimators.transfer_data import make_transfer
from mixtune import RandomFeatures
from mixtune.arrays import MOST_FOCAL
from mixtune.errors import DataError, ParameterError
from mixtune.estimators import (
    JointRegressor,
    MultiDomainClassifier,
    RegretOptimalClassifierCV,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
    Sources,
    StreamedSources,
    split_stream,
)

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
# Dask itself still calls what pandas 3.1 wants to drop.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")


@pytest.fixture(scope="module")
def client():
    with distributed.Client(processes=False, dashboard_address=":0", n_workers=1, threads_per_worker=1) as client:
        yield client


def chunked(pair, rows=11):
    return tuple(da.from_array(array, chunks=(rows, 2)[: array.ndim]) for array in pair)


def as_frame(sources, dd):
    pandas = pytest.importorskip("pandas")
    frames = []
    for name, (X, y) in sources.items():
        frame = pandas.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
        frames.append(frame.assign(y=y, site=name))
    return dd.from_pandas(pandas.concat(frames, ignore_index=True), npartitions=5)


def assert_same_fit(ours, expected):
    scale = np.abs(expected.coef_).max()
    np.testing.assert_allclose(ours.coef_, expected.coef_, rtol=0, atol=1e-10 * scale)
    np.testing.assert_allclose(ours.intercept_, expected.intercept_, rtol=0, atol=1e-10 * scale)


def test_dask_arrays_are_recognised(client, monkeypatch):
    X, y, sources = make_transfer()
    collections = {name: chunked(pair) for name, pair in sources.items()}
    phi = RandomFeatures(n_inputs=4, width=6, seed=0)
    stream = StreamedSources(collections, scheduler=client)
    assert stream.engine == "dask"
    for model in (RegretOptimalRegressor(phi), RegretOptimalRegressor(weights="wasserstein"), JointRegressor()):
        expected = model.fit(X, y, sources=sources).predict(X)
        np.testing.assert_allclose(model.fit(X, y, sources=stream).predict(X), expected, atol=1e-9)
    assert Sources(collections).streams[0].engine == "dask"
    # The client that is open is used without being named.
    monkeypatch.setattr(distributed, "LocalCluster", lambda **_: pytest.fail("another cluster"))
    mixed = {**collections, "here": sources["s0"]}
    expected = RegretOptimalRegressor().fit(X, y, sources={**sources, "here": sources["s0"]})
    assert_same_fit(RegretOptimalRegressor().fit(X, y, sources=mixed), expected)


def test_classifiers_add_up_on_the_cluster(client):
    X, y, sources = make_transfer(n=20, sizes=(30, 25, 40))
    y, sources = (y > 1).astype(int), {name: (A, (b > 1).astype(int)) for name, (A, b) in sources.items()}
    stream = StreamedSources({name: chunked(pair) for name, pair in sources.items()}, scheduler=client)
    ours = RegretOptimalClassifierCV(None).fit(X, y, sources=stream)
    expected = RegretOptimalClassifierCV(None).fit(X, y, sources=sources)
    np.testing.assert_allclose(ours.heads_, expected.heads_, atol=1e-9)
    every = MultiDomainClassifier(None).fit(stream)
    joined = tuple(map(np.concatenate, zip(*sources.values())))
    names = np.repeat(list(sources), [len(b) for _, b in sources.values()])
    known = MultiDomainClassifier(None).fit(*joined, domain=names)
    np.testing.assert_allclose(every.regressors_[0].own_coef_, known.regressors_[0].own_coef_, atol=1e-9)
    assert every.class_counts_.tolist() == known.class_counts_.tolist()


def test_a_dask_frame_and_files_on_the_cluster(client, tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    X, y, sources = make_transfer()
    frame = as_frame(sources, dd)
    expected = RegretOptimalRegressor().fit(X, y, sources=sources)
    stream = StreamedSources(frame, target="y", domain="site", scheduler=client)
    assert_same_fit(RegretOptimalRegressor().fit(X, y, sources=stream), expected)
    with pytest.raises(DataError, match=r"StreamedSources\(frame, target"):
        RegretOptimalRegressor().fit(X, y, sources=frame)
    with pytest.raises(DataError, match="pass all of them in one"):
        Sources({"a": (frame[["x0"]], frame["y"])})
    frame.to_parquet(tmp_path / "data", write_index=False)
    options = {"target": "y", "domain": "site", "scheduler": client, "engine": "dask"}
    told = []
    files = StreamedSources(
        tmp_path / "data",
        folder=tmp_path / "kept",
        progress=lambda done, total: told.append((done, total)),
        **options,
    )
    assert_same_fit(RegretOptimalRegressor().fit(X, y, sources=files), expected)
    assert told[-1] == (95, 95)
    assert len(list((tmp_path / "kept").iterdir())) == 5
    # Rows that were drawn are not kept.
    assert set(files.samples()) == set(sources)
    assert len(list((tmp_path / "kept").iterdir())) == 5
    split = split_stream(StreamedSources(tmp_path / "data", **options), "s0")
    np.testing.assert_array_equal(split.X, sources["s0"][0])
    model = RegretOptimalRegressorCV(feature_map=None, focal_name="s0").fit(split.X, split.y, sources=split.sources)
    assert set(model.domain_names_) == set(sources)
    tuned = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)
    for data, more in ((frame, {}), (tmp_path / "data", {"folder": tmp_path / "kept"}), (tmp_path / "data", {})):
        stream = StreamedSources(data, **options, **more)
        ours = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=stream)
        np.testing.assert_allclose(ours.coef_, tuned.coef_, atol=1e-9)
    assert len(list((tmp_path / "kept").iterdir())) == 5


def test_focal_rows_come_into_memory_if_they_are_few(client):
    X, y, sources = make_transfer()
    dd = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    expected = RegretOptimalRegressor().fit(X, y, sources=sources)
    assert_same_fit(RegretOptimalRegressor().fit(*chunked((X, y)), sources=sources), expected)
    frame = dd.from_pandas(pandas.DataFrame(X, columns=list("abcd")), npartitions=2)
    ours = RegretOptimalRegressor().fit(frame, da.from_array(y), sources=sources)
    assert_same_fit(ours, expected)
    assert list(ours.feature_names_in_) == list("abcd")
    unknown = frame.to_dask_array()
    assert_same_fit(RegretOptimalRegressor().fit(unknown, y, sources=sources), expected)
    large = da.zeros((MOST_FOCAL + 1, 2)), da.zeros(MOST_FOCAL + 1)
    with pytest.raises(DataError, match=r"100,001 rows was passed as the focal rows.*large data as sources"):
        RegretOptimalRegressor().fit(*large)


def test_bad_collections_are_refused(client):
    X, y, sources = make_transfer()
    collections = {name: chunked(pair) for name, pair in sources.items()}
    with pytest.raises(DataError, match="cannot have sample weights"):
        Sources({"a": (*collections["s0"], np.ones(30))})
    half = StreamedSources({"a": (collections["s0"][0], sources["s0"][1])}, scheduler=client)
    with pytest.raises(ParameterError, match="must be a pair"):
        RegretOptimalRegressor().fit(X, y, sources=half)
    spoilt = sources["s0"][0].copy()
    spoilt[3, 0] = np.inf
    wrong = StreamedSources({"a": chunked((spoilt, sources["s0"][1]))}, scheduler=client)
    with pytest.raises(DataError, match='domain "a": NaN or infinite values'):
        RegretOptimalRegressor().fit(X, y, sources=wrong)


def test_files_that_changed_are_read_again(client, tmp_path):
    X, y, sources = make_transfer()
    there, targets = sources["s0"]
    paths = str(tmp_path / "X.npy"), str(tmp_path / "y.npy")
    stream = StreamedSources({"s0": paths}, engine="dask", scheduler=client)
    for shift in (0.0, 5.0):
        np.save(paths[0], there)
        np.save(paths[1], targets + shift)
        expected = JointRegressor().fit(X, y, sources={"s0": (there, targets + shift)})
        assert_same_fit(JointRegressor().fit(X, y, sources=stream), expected)


def test_faults_name_the_partition(client):
    dd = pytest.importorskip("dask.dataframe")
    X, y, sources = make_transfer()
    sources["s2"][1][-1] = np.nan
    stream = StreamedSources(as_frame(sources, dd), target="y", domain="site", scheduler=client)
    with pytest.raises(DataError, match='"y" of partition 4 of the data frame has 1 missing value'):
        JointRegressor().fit(X, y, sources=stream)


def test_a_fit_inside_a_task_does_not_wait_for_its_own_worker(client, tmp_path):
    X, y, sources = make_transfer()
    for part, array in zip("Xy", sources["s0"]):
        np.save(tmp_path / f"{part}.npy", array)
    data = {"s0": (str(tmp_path / "X.npy"), str(tmp_path / "y.npy"))}

    def fit(X, y):
        stream = StreamedSources(data, engine="dask", progress=False)
        return JointRegressor().fit(X, y, sources=stream).coef_

    # The one thread of the one worker is taken by the task itself.
    found = client.submit(fit, X, y, pure=False).result(timeout=30)
    np.testing.assert_allclose(found, JointRegressor().fit(X, y, sources={"s0": sources["s0"]}).coef_, atol=1e-10)
