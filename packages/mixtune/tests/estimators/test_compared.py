"""The fixed estimator against its baselines: by fitting them, and by leaving rows out one at a time."""

import numpy as np
import pytest

from estimators.transfer_data import make_transfer
from mixtune.choice import TransferGain
from mixtune.estimators import (
    JointRegressor,
    LocalRegressor,
    MeanOfLocalsRegressor,
    RegretOptimalClassifier,
    RegretOptimalRegressor,
    load,
)

OTHERS = {"own rows alone": LocalRegressor, "pooled": JointRegressor, "mean of local models": MeanOfLocalsRegressor}


@pytest.mark.parametrize("outputs", [1, 2])
def test_errors_are_those_of_the_baselines(outputs):
    X, y, sources = make_transfer(0, n=30)
    if outputs == 2:
        y = np.column_stack([y, y**2])
        sources = {name: (U, np.column_stack([v, v**2])) for name, (U, v) in sources.items()}
    weight = np.linspace(0.5, 2, 30)
    model = RegretOptimalRegressor(ridge=3.0).fit(X, y, weight, sources=sources)
    found = {each.method: each for each in model.compared_}
    assert list(found) == ["mixtune", *OTHERS]
    assert found["mixtune"].loo_error == pytest.approx(model.loo_error_)
    assert found["own rows alone"].loo_error == pytest.approx(model.focal_loo_error_)
    for name, kind in OTHERS.items():
        theirs = kind(ridge=3.0).fit(X, y, weight, sources=sources).loo_error_
        assert found[name].loo_error == pytest.approx(theirs)
        assert found[name].ratio == pytest.approx(np.sqrt(model.loo_error_ / theirs))
        assert found[name].ratio_low <= found[name].ratio <= found[name].ratio_high
        assert found[name].standard_error > 0


def test_errors_by_leaving_rows_out():
    X, y, sources = make_transfer(1, n=12)
    settings = {"standardise": False, "weights": "equal", "ridge": 2.0}
    model = RegretOptimalRegressor(**settings).fit(X, y, sources=sources)
    kinds = {"mixtune": (RegretOptimalRegressor, settings)}
    kinds |= {name: (kind, {"standardise": False, "ridge": 2.0}) for name, kind in OTHERS.items()}
    for each in model.compared_:
        kind, given = kinds[each.method]
        squares = []
        for row in range(12):
            kept = np.arange(12) != row
            refit = kind(**given).fit(X[kept], y[kept], sources=sources)
            squares.append((refit.predict(X[row : row + 1])[0] - y[row]) ** 2)
        assert each.loo_error == pytest.approx(np.mean(squares), rel=1e-6)
        assert each.standard_error == pytest.approx(np.std(squares, ddof=1) / np.sqrt(12), rel=1e-6)


def test_gain():
    X, y, sources = make_transfer(0, n=15)
    close = {name: sources[name] for name in ("s0", "s1")}
    gain = RegretOptimalRegressor().fit(X, y, sources=close).transfer_gain_
    assert isinstance(gain, TransferGain)
    assert gain.from_validation is None
    assert gain.low < gain.reduction < gain.high
    alone = RegretOptimalRegressor().fit(X, y)
    assert [each.method for each in alone.compared_] == ["mixtune", "own rows alone"]
    assert alone.compared_[1].ratio == pytest.approx(1.0)
    assert alone.transfer_gain_.reduction == pytest.approx(0.0, abs=1e-3)


def test_compared_anew_when_rows_are_added_or_forgotten(tmp_path):
    X, y, sources = make_transfer(0, n=30)
    model = RegretOptimalRegressor().fit(X[:20], y[:20], sources=sources)
    first = model.compared_
    assert model.compared_[0] is first[0]
    model.partial_fit(X[20:], y[20:])
    assert model.compared_[0].loo_error == pytest.approx(model.loo_error_)
    assert model.compared_ != first
    before = model.compared_
    again = load(model.save(tmp_path / "model.mixtune"))
    assert [each.ratio for each in again.compared_] == pytest.approx([each.ratio for each in before])
    assert model.forget("s2").compared_[2].loo_error != before[2].loo_error


def test_classifiers_say_the_same():
    X, y, sources = make_transfer(0, n=30)
    model = RegretOptimalClassifier().fit(X, y > 0, sources={name: (U, v > 0) for name, (U, v) in sources.items()})
    assert model.compared_ == model.regressor_.compared_
    assert model.transfer_gain_ == model.regressor_.transfer_gain_


def test_one_row_is_not_compared():
    X, y, sources = make_transfer(0, n=1)
    model = RegretOptimalRegressor().fit(X, y, sources=sources)
    assert model.compared_[1].loo_error == np.inf
    assert np.isfinite(model.transfer_gain_.reduction)
