"""Models written by skops, which takes objects apart by their attributes and runs no pickle."""

import numpy as np
import pytest

from estimators.transfer_data import make_transfer
from extras import extra
from mixtune import (
    MultiDomainRegressor,
    RandomFeatures,
    RegretOptimalClassifier,
    RegretOptimalClassifierCV,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
)
from mixtune.estimators import (
    DomainColumnRegressor,
    JointRegressor,
    JointSubsetRegressor,
    LocalRegressor,
    MeanOfLocalsRegressor,
)

skops = extra("skops.io")
X, y, SOURCES = make_transfer(n=9, sizes=(12, 12, 12))


def again(model):
    """The model from what skops writes; its types are named, as skops asks for."""
    written = skops.dumps(model)
    return skops.loads(written, trusted=skops.get_untrusted_types(data=written))


@pytest.mark.parametrize(
    "model",
    [
        RegretOptimalRegressorCV(),
        RegretOptimalRegressor(RandomFeatures(n_inputs=4, width=5, seed=0), weights="wasserstein"),
        *(LocalRegressor(), JointRegressor(), JointSubsetRegressor(), MeanOfLocalsRegressor(), DomainColumnRegressor()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_regressors(model):
    model.fit(X, y, sources=SOURCES)
    if isinstance(model, RegretOptimalRegressorCV):
        model.removal_effects()  # what it remembers of these must not stand in the way
    np.testing.assert_array_equal(again(model).predict(X), model.predict(X))


@pytest.mark.parametrize("model", [RegretOptimalClassifierCV(None), RegretOptimalClassifier()], ids=["CV", "fixed"])
def test_classifiers(model):
    model.fit(X, y > 0, sources={name: (U, v > 0) for name, (U, v) in SOURCES.items()})
    np.testing.assert_array_equal(again(model).predict_proba(X), model.predict_proba(X))


def test_a_model_for_every_domain():
    labels = np.repeat(list(SOURCES), [len(v) for _, v in SOURCES.values()])
    rows = np.concatenate([U for U, _ in SOURCES.values()]), np.concatenate([v for _, v in SOURCES.values()])
    model = MultiDomainRegressor().fit(*rows, domain=labels)
    np.testing.assert_array_equal(again(model).predict(rows[0], domain=labels), model.predict(rows[0], domain=labels))
