"""The baseline that pools all rows with the domain as a further column."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from estimators.transfer_data import make_transfer
from mixtune.estimators import DomainColumnRegressor


def pooled():
    X, y, sources = make_transfer()
    rows = np.vstack([X, *(U for U, _ in sources.values())])
    place = np.repeat(np.arange(4), [len(X), *(len(v) for _, v in sources.values())])
    return X, y, sources, rows, np.concatenate([y, *(v for _, v in sources.values())]), place


def test_boosting_has_the_domain_as_a_category():
    X, y, sources, rows, targets, place = pooled()
    model = DomainColumnRegressor(seed=3).fit(X, y, sources=sources)
    by_hand = HistGradientBoostingRegressor(categorical_features=[4], random_state=3)
    by_hand.fit(np.column_stack([rows, place]), targets)
    np.testing.assert_allclose(model.predict(X), by_hand.predict(np.column_stack([X, np.zeros(len(X))])))


def test_ridge_has_a_column_for_each_domain():
    X, y, sources, rows, targets, place = pooled()
    model = DomainColumnRegressor("ridge").fit(X, y, sources=sources)
    scaled = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    by_hand = Ridge(model.model_.alpha_).fit(np.hstack([scaled, np.eye(4)[place]]), targets)
    np.testing.assert_allclose(
        model.predict(X), by_hand.predict(np.hstack([scaled[: len(X)], np.eye(4)[place[: len(X)]]]))
    )
    alone = DomainColumnRegressor("ridge").fit(X, y)
    assert alone.predict(X).shape == y.shape


def test_constant_columns_and_kinds():
    X, y, sources = make_transfer()
    X[:, 1] = 0.0
    sources = {name: (U * [1, 0, 1, 1], v) for name, (U, v) in sources.items()}
    assert np.isfinite(DomainColumnRegressor("ridge").fit(X, y, sources=sources).predict(X)).all()
    with pytest.raises(ValueError, match="kind='trees' is unknown; choose boosting or ridge"):
        DomainColumnRegressor("trees").fit(X, y)
