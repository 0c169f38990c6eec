"""Estimators on a device fit what they fit in NumPy; PyTorch on the processor stands for CUDA."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from sklearn.base import clone
from sklearn.preprocessing import PolynomialFeatures

from estimators.transfer_data import make_transfer
from mixtune import RandomFeatures
from mixtune.errors import ParameterError
from mixtune.estimators import (
    JointRegressor,
    JointSubsetRegressor,
    LocalRegressor,
    MeanOfLocalsRegressor,
    RegretOptimalClassifier,
    RegretOptimalClassifierCV,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
    StreamedSources,
    load,
)
from mixtune.features import Concatenate, SklearnFeatures

torch = pytest.importorskip("torch")

PHI = RandomFeatures(n_inputs=4, width=20, seed=0)
REGRESSORS = [
    RegretOptimalRegressor(PHI),
    RegretOptimalRegressor(PHI, weights="wasserstein", standardise=False),
    RegretOptimalRegressor(PHI, weights="equal", fit_intercept=False),
    RegretOptimalRegressor(),
    LocalRegressor(PHI, ridge="loo"),
    JointRegressor(PHI),
    JointSubsetRegressor(PHI, subset=["focal", "s1"]),
    MeanOfLocalsRegressor(PHI),
    RegretOptimalRegressorCV(PHI),
]
OTHERS = np.random.default_rng(5).standard_normal((9, 4)) * np.arange(1, 5)


def weighted(sources):
    rng = np.random.default_rng(3)
    return {name: (X, y, rng.uniform(0.0, 2.0, len(X))) for name, (X, y) in sources.items()}


@pytest.mark.parametrize("model", REGRESSORS, ids=lambda m: f"{type(m).__name__}-{getattr(m, 'weights', '')}")
@pytest.mark.parametrize("outputs", [None, 2])
def test_the_fit_is_that_of_numpy(model, outputs):
    X, y, sources = make_transfer(n=25, sizes=(60, 5, 40), outputs=outputs)
    weight = np.random.default_rng(2).uniform(0.5, 2.0, len(X))
    here = clone(model).fit(X, y, weight, sources=weighted(sources))
    there = clone(model).set_params(device="torch:cpu").fit(X, y, weight, sources=weighted(sources))
    assert isinstance(there.coef_, np.ndarray)
    scale = np.abs(here.coef_).max()
    for name in ("coef_", "intercept_", "loo_error_"):
        np.testing.assert_allclose(getattr(there, name), getattr(here, name), rtol=1e-9, atol=1e-9 * scale)
    for one, other in zip(there.predict(OTHERS, return_std=True), here.predict(OTHERS, return_std=True)):
        np.testing.assert_allclose(one, other, rtol=1e-8)


@pytest.mark.parametrize("rows", [15, 60])
def test_the_choice_factors_matrices_on_the_device(rows, monkeypatch):
    """Sources have fewer rows than columns, or more."""
    monkeypatch.setattr("mixtune.arrays.DEVICE_FACTOR", 8)
    monkeypatch.setattr("mixtune.arrays.THREADED_WIDTH", 8)
    eigh, seen = torch.linalg.eigh, []
    monkeypatch.setattr(torch.linalg, "eigh", lambda matrix: seen.append(len(matrix)) or eigh(matrix))
    X, y, sources = make_transfer(n=rows, sizes=(70, 30, 40, 60))
    phi = RandomFeatures(n_inputs=4, width=50, seed=0)
    here, there = (RegretOptimalRegressorCV(phi, device=d).fit(X, y, sources=sources) for d in ("cpu", "torch:cpu"))
    np.testing.assert_allclose(there.predict(OTHERS), here.predict(OTHERS), rtol=1e-8)
    np.testing.assert_allclose([c.share for c in there.candidates_], [c.share for c in here.candidates_], atol=1e-8)
    assert len(seen) > 20


def test_many_rows_are_added_up_in_several_blocks():
    rng = np.random.default_rng(0)
    phi = RandomFeatures(n_inputs=4, width=150, seed=0)
    X = rng.standard_normal((230_000, 4))  # 2**25 features make a block
    y = np.sin(X).sum(axis=1)
    here, there = (
        RegretOptimalRegressor(phi, device=d).fit(X[:50], y[:50], sources={"a": (X, y)}) for d in ("cpu", "torch:cpu")
    )
    np.testing.assert_allclose(there.predict(OTHERS), here.predict(OTHERS), rtol=1e-7)


def test_maps_that_know_only_numpy():
    X, y, sources = make_transfer()
    phi = Concatenate([PHI, SklearnFeatures(PolynomialFeatures(2).fit(X))])
    here, there = (RegretOptimalRegressor(phi, device=d).fit(X, y, sources=sources) for d in ("cpu", "torch:cpu"))
    np.testing.assert_allclose(there.predict(OTHERS), here.predict(OTHERS), rtol=1e-9)


@pytest.mark.parametrize("told", [None, "cpu", "torch:cpu"])
def test_streams_go_where_the_estimator_goes_unless_told(told, tmp_path):
    X, y, sources = make_transfer()
    for name, (inputs, targets) in sources.items():
        columns = {f"x{i}": inputs[:, i] for i in range(4)} | {"y": targets}
        parquet.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    stream = StreamedSources(tmp_path, target="y", device=told, progress=False)
    there = RegretOptimalRegressor(PHI, device="torch:cpu").fit(X, y, sources=stream)
    here = RegretOptimalRegressor(PHI).fit(X, y, sources=sources)
    np.testing.assert_allclose(there.predict(OTHERS), here.predict(OTHERS), rtol=1e-9)
    with pytest.raises(ParameterError, match="cannot be used with Dask"):
        StreamedSources(tmp_path, target="y", engine="dask", device="cuda")


@pytest.mark.parametrize("kind", [RegretOptimalClassifier, RegretOptimalClassifierCV])
def test_classifiers(kind):
    X, y, sources = make_transfer(n=20)
    labels = {name: (inputs, targets > 0) for name, (inputs, targets) in sources.items()}
    here, there = (kind(PHI, device=d).fit(X, y > 0, sources=labels) for d in ("cpu", "torch:cpu"))
    assert there.regressor_.device == "torch:cpu"
    np.testing.assert_allclose(there.predict_proba(OTHERS), here.predict_proba(OTHERS), rtol=1e-6, atol=1e-9)


def test_rows_and_sources_are_added_and_forgotten():
    X, y, sources = make_transfer(n=20)
    models = [RegretOptimalRegressor(PHI, device=d).fit(X[:15], y[:15], sources=sources) for d in ("cpu", "torch:cpu")]
    for model in models:
        model.partial_fit(X[15:], y[15:], sources={"s0": sources["s1"], "new": sources["s0"]}).forget("s2")
    np.testing.assert_allclose(models[1].predict(OTHERS), models[0].predict(OTHERS), rtol=1e-8)


@pytest.mark.parametrize("kind", [RegretOptimalRegressor, RegretOptimalRegressorCV, LocalRegressor])
def test_a_model_of_another_machine_predicts_here(kind, tmp_path, monkeypatch):
    X, y, sources = make_transfer()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model = kind(PHI).fit(X, y, sources=sources)
    right = model.predict(OTHERS)
    loaded = load(model.set_params(device="cuda").save(tmp_path / "a.mixtune"))
    assert loaded.device == "cuda"
    np.testing.assert_array_equal(loaded.predict(OTHERS), right)
    with pytest.raises(ParameterError, match="finds no CUDA devices"):
        loaded.fit(X, y, sources=sources)


@pytest.mark.parametrize("kind", [RegretOptimalRegressor, RegretOptimalClassifierCV, JointRegressor])
def test_a_device_that_is_not_there_is_refused_before_any_work(kind, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    unread = StreamedSources("nowhere.parquet", target="y")
    for device, words in (("cuda", "finds no CUDA devices"), ("abacus", "there is no device")):
        with pytest.raises(ParameterError, match=words):
            kind(device=device).fit([[0.0], [1.0]], [0, 1], sources=unread)


@pytest.mark.parametrize("device", ["cuda"])
def test_cuda(device):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    X, y, sources = make_transfer(n=40, sizes=(80, 5, 60))
    here, there = (RegretOptimalRegressor(PHI, device=d).fit(X, y, sources=sources) for d in ("cpu", device))
    np.testing.assert_allclose(there.predict(OTHERS), here.predict(OTHERS), rtol=1e-8)
