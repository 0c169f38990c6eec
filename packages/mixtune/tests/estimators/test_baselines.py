import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from estimators.transfer_data import make_transfer
from mixtune.errors import ParameterError
from mixtune.estimators import RIDGES, JointRegressor, JointSubsetRegressor, LocalRegressor, MeanOfLocalsRegressor

SETTINGS = pytest.mark.parametrize(("p", "sizes"), [(4, (30, 25, 40)), (70, (9, 8, 7))])


def standardised(X, y, sources):
    scaler = StandardScaler().fit(np.concatenate([X, *(U for U, _ in sources.values())]))
    return [(scaler.transform(U), v) for U, v in [(X, y), *sources.values()]]


def pooled(parts, ridge):
    U, v = (np.concatenate(side) for side in zip(*parts))
    return Ridge(alpha=ridge, solver="cholesky").fit(U, v)


def slow(name, parts, ridge):
    """Predictions of the focal rows by scikit-learn, as a function of the parts."""
    if name == "mean":
        return lambda U: np.mean([pooled([part], ridge).predict(U) for part in parts], axis=0)
    chosen = {"local": [0], "joint": range(len(parts)), "subset": [0, 2], "others": [1, 2]}[name]
    return pooled([parts[i] for i in chosen], ridge).predict


MODELS = {
    "local": LocalRegressor(ridge=0.6),
    "joint": JointRegressor(ridge=0.6),
    "mean": MeanOfLocalsRegressor(ridge=0.6),
    "subset": JointSubsetRegressor(subset=("s1", "focal"), ridge=0.6),
    "others": JointSubsetRegressor(subset=["s0", "s1"], ridge=0.6),
}


@SETTINGS
@pytest.mark.parametrize("name", MODELS)
def test_against_scikit_learn_and_refits(name, p, sizes):
    X, y, sources = make_transfer(p=p, sizes=sizes)
    model = MODELS[name].fit(X, y, sources=sources)
    parts = standardised(X, y, sources)
    np.testing.assert_allclose(model.predict(X), slow(name, parts, 0.6)(parts[0][0]), rtol=1e-8)
    left_out = []
    for i in range(len(y)):
        focal = (np.delete(parts[0][0], i, axis=0), np.delete(y, i))
        left_out.append(slow(name, [focal, *parts[1:]], 0.6)(parts[0][0][i : i + 1])[0])
    np.testing.assert_allclose(model.loo_predictions_, left_out, rtol=1e-8)
    assert model.loo_error_ == pytest.approx(np.mean((y - left_out) ** 2))
    low, high = model.predict_interval(X, coverage=0.8)
    assert np.all(low < high)


@pytest.mark.parametrize("name", MODELS)
def test_ridge_by_leave_one_out(name):
    X, y, sources = make_transfer(noise=3.0)
    chosen = MODELS[name].__class__(**{**MODELS[name].get_params(), "ridge": "loo"}).fit(X, y, sources=sources)
    errors = [
        MODELS[name].__class__(**{**MODELS[name].get_params(), "ridge": r}).fit(X, y, sources=sources).loo_error_
        for r in RIDGES
    ]
    assert chosen.ridge_ == RIDGES[int(np.argmin(errors))]
    assert chosen.loo_error_ == pytest.approx(min(errors))


def test_what_is_refused():
    X, y, sources = make_transfer()
    for subset, words in (
        ("s0", "each once"),
        ([], "each once"),
        (["s0", "s0"], "each once"),
        (["s7"], "not a domain"),
    ):
        with pytest.raises(ParameterError, match=words):
            JointSubsetRegressor(subset=subset).fit(X, y, sources=sources)
    with pytest.raises(ParameterError, match="or 'loo'"):
        LocalRegressor(ridge="cv").fit(X, y)
    with pytest.raises(ParameterError, match="at least 2 rows"):
        LocalRegressor(ridge="loo").fit(X[:1], y[:1])
