"""Models logged in MLflow, in its safe format and in the one of older versions; both load and predict the same."""

import numpy as np
import pytest

from mixtune import MultiDomainRegressor, RegretOptimalRegressorCV, fit_table

mlflow = pytest.importorskip("mlflow.sklearn")
pd = pytest.importorskip("pandas")
skops = pytest.importorskip("skops.io")

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(RNG.standard_normal((60, 2)), columns=["size", "age"])
ROWS["city"] = np.repeat(["berlin", "bonn", "kiel"], 20)
ROWS["colour"] = np.tile(["red", "blue", None], 20)
y = ROWS["size"] - 2.0 * ROWS["age"]
NUMBERS = ROWS[["size", "age"]].to_numpy()
SOURCES = {"bonn": (NUMBERS[20:40], y[20:40]), "kiel": (NUMBERS[40:], y[40:])}


@pytest.fixture(scope="module", autouse=True)
def runs(tmp_path_factory):
    """Runs and models in a folder of the tests."""
    folder = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        mlflow.mlflow.set_tracking_uri(f"sqlite:///{folder}/runs.db")
        yield


@pytest.mark.parametrize("safe", [True, False], ids=["skops", "cloudpickle"])
@pytest.mark.parametrize(
    ("fit", "rows"),
    [
        (lambda: RegretOptimalRegressorCV().fit(NUMBERS[:20], y[:20], sources=SOURCES), NUMBERS),
        (lambda: MultiDomainRegressor(domain="city").fit(ROWS.drop(columns="colour"), y), ROWS.drop(columns="colour")),
        (lambda: fit_table(ROWS.assign(price=y), target="price", domain="city", focal="berlin"), ROWS),
    ],
    ids=["one domain", "every domain", "table"],
)
@pytest.mark.filterwarnings("ignore")  # those of MLflow
def test_logged_and_loaded(fit, rows, safe):
    model = fit()
    types = skops.get_untrusted_types(data=skops.dumps(model))
    options = {"skops_trusted_types": types} if safe else {"serialization_format": "cloudpickle"}
    logged = mlflow.log_model(model, name="model", pip_requirements=["mixtune"], **options)
    np.testing.assert_array_equal(mlflow.load_model(logged.model_uri).predict(rows), model.predict(rows))
