"""Feature maps fitted on named columns get their columns by name, whatever the order in the domains."""

import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import StandardScaler

from extras import extra
from mixtune.data import Domain, Domains
from mixtune.errors import DataError
from mixtune.features import Concatenate, Identity, SklearnFeatures

pd = extra("pandas")
torch = extra("torch")


WITHOUT_PANDAS = """
import pickle, sys, warnings


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "pandas":
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Hidden())

from mixtune.data import Domain, Domains
from mixtune.errors import DataError

with open(sys.argv[1], "rb") as file:
    rows, columns, feature_map = pickle.load(file)
domains = Domains(tuple(Domain(name, X, y, columns) for name, (X, y) in rows.items()), focal="a")
# A bare transformer says that an array has no names; the order is right all the same.
warnings.simplefilter("ignore")
try:
    mapped = domains.map(feature_map)
    answer = [mapped[name].X for name in rows]
except DataError as error:
    answer = str(error)
assert "pandas" not in sys.modules
with open(sys.argv[1], "wb") as file:
    pickle.dump(answer, file)
"""


def map_without_pandas(domains, feature_map, path):
    """The mapped rows, or what the error says, in a process that has no pandas."""
    rows = {domain.name: (np.array(domain.X), np.array(domain.y)) for domain in domains}
    path.write_bytes(pickle.dumps((rows, domains["a"].columns, feature_map)))
    subprocess.run([sys.executable, "-c", WITHOUT_PANDAS, str(path)], check=True)
    return pickle.loads(path.read_bytes())  # noqa: S301 - our own bytes


def swapped_columns():
    frame = pd.DataFrame({"u": [1.0, 2.0, 3.0, 4.0], "v": [10.0, 30.0, 50.0, 70.0], "w": [0.0, 1.0, 0.0, 5.0]})
    parts = {"a": (frame[:2], [1, 2]), "b": (frame[2:], [3, 4])}
    return frame, Domains.from_dict(parts, focal="a")


@pytest.mark.parametrize("wrap", [SklearnFeatures, lambda scaler: scaler], ids=["wrapped", "bare"])
@pytest.mark.parametrize("order", [["w", "u", "v"], ["v", "u"]], ids=" ".join)
@pytest.mark.parametrize("with_pandas", [True, False])
def test_map_hands_over_columns_by_name(tmp_path, wrap, order, with_pandas):
    frame, domains = swapped_columns()
    scaler = StandardScaler().fit(frame[order])
    if with_pandas:
        found = [domain.X for domain in domains.map(wrap(scaler))]
    else:
        found = map_without_pandas(domains, wrap(scaler), tmp_path / "rows")
    np.testing.assert_allclose(np.vstack(found), scaler.transform(frame[order]))


def test_map_by_name_with_tensors_and_joined_maps():
    frame, domains = swapped_columns()
    scaler = StandardScaler().fit(frame[["v", "u", "w"]])
    joint = Concatenate([Identity(3), SklearnFeatures(scaler)])
    expected = np.hstack([frame, scaler.transform(frame[["v", "u", "w"]])])[:2]
    np.testing.assert_allclose(domains.map(joint)["a"].X, expected)
    tensors = tuple(Domain(d.name, torch.tensor(d.X.copy()), torch.tensor(d.y.copy()), d.columns) for d in domains)
    U = Domains(tensors, focal="a").map(joint)["a"].X
    assert isinstance(U, torch.Tensor)
    np.testing.assert_allclose(U.numpy(), expected)


def test_map_uses_the_names_of_the_others_for_a_domain_without():
    frame, domains = swapped_columns()
    scaler = StandardScaler().fit(frame[["w", "v", "u"]])
    bare = Domain("a", domains["a"].X, domains["a"].y)
    mapped = Domains((bare, domains["b"]), focal="a").map(SklearnFeatures(scaler))
    np.testing.assert_allclose(mapped["a"].X, scaler.transform(frame[["w", "v", "u"]])[:2])


def test_map_names_the_missing_columns():
    frame, domains = swapped_columns()
    scaler = StandardScaler().fit(frame.rename(columns={"u": "size", "w": "age"}))
    for feature_map in (SklearnFeatures(scaler), scaler):
        with pytest.raises(DataError, match='StandardScaler was fitted on columns that the data lack: "size", "age"'):
            domains.map(feature_map)


def test_map_with_columns_chosen_by_name(tmp_path):
    frame, domains = swapped_columns()
    chooser = make_column_transformer((StandardScaler(), ["w"]), ("passthrough", ["u"])).fit(frame[["v", "w", "u"]])
    features = SklearnFeatures(chooser)
    np.testing.assert_allclose(domains.map(features)["b"].X, chooser.transform(frame[["v", "w", "u"]])[2:])
    refused = map_without_pandas(domains, features, tmp_path / "rows")
    assert re.search(r"ColumnTransformer cannot transform X.*install pandas", refused)
