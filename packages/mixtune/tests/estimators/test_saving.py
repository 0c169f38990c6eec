"""Models through a file: the same bit for bit, or words that say why not."""

import io
import json
import pickle
import pickletools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import MaxAbsScaler, PolynomialFeatures

from cli.command_line import as_json
from estimators.saved import make
from estimators.transfer_data import make_transfer
from extras import extra
from mixtune import (
    EqualWeights,
    Moments,
    PredictiveWeights,
    RandomFeatures,
    RegretProblem,
    WassersteinWeights,
    solve,
)
from mixtune.errors import DataError, MixtuneError, ParameterError
from mixtune.estimators import (
    JointRegressor,
    JointSubsetRegressor,
    LocalRegressor,
    MeanOfLocalsRegressor,
    RegretOptimalClassifier,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
    Sources,
    fit_table,
    load,
    read_info,
    savable,
)
from mixtune.features import SklearnFeatures, TorchFeatures
from mixtune.files import read_model, write_model
from mixtune.regret import descend
from mixtune.weights import GivenWeights, TransportWeights, WeightRule

pd = extra("pandas")

REGRESSORS = [
    RegretOptimalRegressor(),
    RegretOptimalRegressor(weights=EqualWeights(), ridge=0.3, standardise=False, horizon=3),
    RegretOptimalRegressor(weights=PredictiveWeights(np.float64(2.0)), fit_intercept=False),
    RegretOptimalRegressor(weights=WassersteinWeights(5.0, seed=3)),
    RegretOptimalRegressor(weights=GivenWeights([0.4, 0.3, 0.2, 0.1]), transfer=0.0, stability=0.0),
    RegretOptimalRegressor(weights={"focal": 0.5, "s0": 0.5, "s1": 0.0, "s2": 0.0}, horizon=0),
    RegretOptimalRegressor(sharing=0.7, ridge=np.float32(0.25), focal_name="here"),
    LocalRegressor(ridge="loo"),
    JointRegressor(ridge=2.0),
    JointSubsetRegressor(subset=["focal", "s1"], ridge="loo"),
    JointSubsetRegressor(subset=("s1",)),
    MeanOfLocalsRegressor(),
]
SHOWN = {"ids": lambda model: type(model).__name__ + str(getattr(model, "weights", ""))[:24]}
NEW = np.random.default_rng(9).standard_normal((7, 4)) * 3


def through(model, tmp_path, *, load_with=None, **options):
    return load(model.save(tmp_path / "a.mixtune", **options), **(load_with or {}))


def assert_identical(found, expected):
    """Same types, same bits, all the way down."""
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert (
            found.tolist() == expected.tolist()
            if expected.dtype.kind in "OU"
            else found.tobytes() == expected.tobytes()
        )
    elif isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected):
            assert_identical(a, b)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_identical(found[key], expected[key])
    elif hasattr(expected, "__dataclass_fields__"):
        for name in expected.__dataclass_fields__:
            assert_identical(getattr(found, name), getattr(expected, name))
    else:
        assert found == expected


def assert_same_regressor(found, model, X=NEW):
    assert type(found) is type(model)
    settings, expected = found.get_params(), model.get_params()
    settings.pop("feature_map"), expected.pop("feature_map")
    assert_identical(settings, expected)
    assert_identical(found.predict(X), model.predict(X))
    assert_identical(found.predict(X, return_std=True), model.predict(X, return_std=True))
    assert_identical(found.predict_interval(X, coverage=0.8), model.predict_interval(X, coverage=0.8))
    assert_identical(found.loo_error_, model.loo_error_)
    assert_identical(found.loo_predictions_, model.loo_predictions_)
    for name in public_attributes(model):
        assert_identical(getattr(found, name), getattr(model, name))


def public_attributes(model):
    return sorted(name for name in vars(model) if name.endswith("_") and not name.startswith("_"))


@pytest.mark.parametrize("model", REGRESSORS, **SHOWN)
@pytest.mark.parametrize("outputs", [None, 1, 3])
def test_regressors_come_back_bit_for_bit(model, outputs, tmp_path):
    X, y, sources = make_transfer(outputs=outputs)
    model = clone(model).fit(X, y, sources=sources)
    assert_same_regressor(through(model, tmp_path), model)


@pytest.mark.parametrize("model", REGRESSORS, **SHOWN)
def test_every_attribute_that_a_fit_sets_comes_back(model, tmp_path):
    X, y, sources = make_transfer()
    model = clone(model).fit(pd.DataFrame(X, columns=list("abcd")), y, sources=sources)
    found = through(model, tmp_path)
    assert public_attributes(found) == public_attributes(model)
    frame = pd.DataFrame(NEW, columns=list("abcd"))
    assert_same_regressor(found, model, frame)


def test_without_sources_and_with_sample_weights(tmp_path):
    X, y, sources = make_transfer()
    assert_same_regressor(through(alone := RegretOptimalRegressor().fit(X, y), tmp_path), alone)
    assert alone.solution_.coef.tobytes() == through(alone, tmp_path).solution_.coef.tobytes()
    weight = np.linspace(0, 2, len(y))
    model = RegretOptimalRegressor().fit(X, y, weight, sources=sources)
    assert_same_regressor(through(model, tmp_path), model)


def test_one_focal_row_has_an_infinite_error_here_and_there(tmp_path):
    X, y, sources = make_transfer(n=1)
    model = RegretOptimalRegressor(ridge=0.0).fit(X, y, sources=sources)
    found = through(model, tmp_path)
    assert found.loo_error_ == model.loo_error_ == np.inf
    with pytest.raises(ParameterError, match="leave-one-out cannot judge"):
        found.predict(NEW, return_std=True)


@pytest.mark.parametrize("model", REGRESSORS[:7], **SHOWN)
def test_the_solution_is_that_of_the_fit(model, tmp_path):
    X, y, sources = make_transfer(outputs=2)
    model = clone(model).fit(X, y, sources=sources)
    expected = model.solution_
    model.set_params(horizon=77)  # after the fit: the solution stays that of the fit
    found = through(model, tmp_path)
    assert_identical(found.solution_.coef, expected.coef)
    assert found.solution_ is found.solution_
    assert found.solution_.steps == expected.steps
    assert (found.solution_.energy, found.solution_.regret) == (expected.energy, expected.regret)
    np.testing.assert_array_equal(
        found.solution_.heads_at(range(3 if expected.steps else 1)),
        expected.heads_at(range(3 if expected.steps else 1)),
    )
    assert found.focal_loo_error_ == model.focal_loo_error_


@pytest.mark.parametrize("p", [4, 60], ids=["sums", "rows kept"])
def test_rows_are_added_and_sources_forgotten_as_before(p, tmp_path):
    X, y, sources = make_transfer(p=p)
    more, targets, others = make_transfer(1, p=p)
    given = {"focal": 0.4, "s0": 0.3, "s1": 0.2, "s2": 0.1, "new": 0.0}
    model = RegretOptimalRegressor(weights=given if p == 4 else "predictive")
    first = {**sources, "new": others["s0"]}
    model.fit(X, y, sources=first)
    found = through(model, tmp_path)
    for each in (model, found):
        each.partial_fit(more, targets, sources={"s0": others["s0"]}).forget("s2")
    new = np.random.default_rng(2).standard_normal((5, p))
    assert_same_regressor(found, model, new)
    again = through(found, tmp_path)  # what was changed after loading is saved too
    assert_same_regressor(again, model, new)
    for each in (model, again):
        each.partial_fit(sources={"s2": sources["s2"]})
    assert_same_regressor(again, model, new)
    assert again.domain_names_ == ("focal", "s0", "s1", "new", "s2")


def test_distances_come_back_with_bounds_and_floor(tmp_path):
    X, y, sources = make_transfer()
    found = through(RegretOptimalRegressor(weights="wasserstein").fit(X, y, sources=sources), tmp_path)
    assert isinstance(found.distances_, TransportWeights)
    assert found.distances_.threshold == np.inf
    assert found.distances_.sampling_floor.method == "exact"
    assert not found.weights_.values.flags.writeable
    assert found.coef_.flags.writeable


@pytest.mark.parametrize(
    "labels",
    [["no", "yes"], ["a", "bb", "ccc"], [0, 1, 5], [1.0, 2.0], [False, True], np.array(["x", "y"], dtype=object)],
    ids=str,
)
def test_classifiers(labels, tmp_path):
    X, y, sources = make_transfer(n=30)
    labels = np.asarray(labels)

    def cut(values):
        return labels[np.clip(np.digitize(values, np.linspace(-2, 2, len(labels) - 1)), 0, len(labels) - 1)]

    model = RegretOptimalClassifier(ridge=0.5)
    model.fit(X, cut(y), sources={name: (U, cut(v)) for name, (U, v) in sources.items()})
    found = through(model, tmp_path)
    assert_identical(found.predict(NEW), model.predict(NEW))
    assert_identical(found.predict_proba(NEW), model.predict_proba(NEW))
    assert_identical(found.decision_function(NEW), model.decision_function(NEW))
    assert_identical(found.classes_, model.classes_)
    assert_same_regressor(found.regressor_, model.regressor_)
    assert found.get_params() == model.get_params()
    assert public_attributes(found) == public_attributes(model)


def test_column_names_are_kept_and_checked(tmp_path):
    X, y, sources = make_transfer()
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    named = {name: (pd.DataFrame(U, columns=["d", "c", "b", "a"]), v) for name, (U, v) in sources.items()}
    model = RegretOptimalRegressor().fit(frame, y, sources=named)
    found = through(model, tmp_path)
    assert_identical(found.feature_names_in_, model.feature_names_in_)
    assert_same_regressor(found, model, frame)
    for each in (model, found):
        with pytest.raises(ValueError, match="feature names should match"):
            each.predict(frame.rename(columns={"a": "z"}))
    found.partial_fit(frame, y, sources=named)


def networks():
    torch = pytest.importorskip("torch")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh()).double()


def test_random_and_scikit_learn_maps(tmp_path):
    X, y, sources = make_transfer()
    for feature_map in (
        RandomFeatures(n_inputs=4, width=9, seed=1),
        SklearnFeatures(PolynomialFeatures(2).fit(X)),
    ):
        model = RegretOptimalRegressor(feature_map).fit(X, y, sources=sources)
        found = through(model, tmp_path)
        assert type(found.feature_map) is type(feature_map)
        assert_same_regressor(found, model)
        found.partial_fit(X, y)


def test_torch_maps(tmp_path):
    X, y, sources = make_transfer()
    model = RegretOptimalRegressor(TorchFeatures(networks())).fit(X, y, sources=sources)
    path = model.save(tmp_path / "a.mixtune")
    info, _ = read_model(path)
    name = info["feature_map"]["settings"].get("network", "network")
    with pytest.raises(ParameterError, match="network"):
        load(path)
    fresh = networks()
    for tensor in fresh.parameters():
        tensor.data.zero_()  # the stored tensors go in
    assert_same_regressor(load(path, networks={name: fresh}), model)


def test_a_map_kept_outside_the_file(tmp_path):
    X, y, _ = make_transfer()
    feature_map = RandomFeatures(n_inputs=4, width=9, seed=1)
    labels = np.where(y > 0, "up", "down")
    model = RegretOptimalClassifier(feature_map).fit(X, labels)
    path = model.save(tmp_path / "a.mixtune", store_feature_map=False)
    assert read_info(path).feature_map == "given"
    found = load(path, feature_map=feature_map)
    assert_identical(found.predict_proba(NEW), model.predict_proba(NEW))
    assert found.feature_map is found.regressor_.feature_map is feature_map
    with pytest.raises(ParameterError, match="pass that map as feature_map"):
        load(path)
    with pytest.raises(ParameterError, match="other features"):
        load(path, feature_map=RandomFeatures(n_inputs=4, width=9, seed=2))
    stored = model.save(tmp_path / "b.mixtune")
    with pytest.raises(ParameterError, match="leave feature_map out"):
        load(stored, feature_map=feature_map)
    bare = LocalRegressor().fit(X, y).save(tmp_path / "c.mixtune", store_feature_map=False)
    assert load(bare).feature_map is None


@dataclass
class OwnMap:
    n_features_out: int = 4

    def transform(self, X, /):
        return np.tanh(X)


def test_a_map_that_cannot_be_written_says_what_to_do(tmp_path):
    X, y, _ = make_transfer()
    model = LocalRegressor(OwnMap()).fit(X, y)
    with pytest.raises(ParameterError, match="register_feature_map"):
        model.save(tmp_path / "a.mixtune")
    assert not list(tmp_path.iterdir())
    found = through(model, tmp_path, store_feature_map=False, load_with={"feature_map": OwnMap()})
    assert_same_regressor(found, model)


def test_a_map_replaced_after_the_fit_is_refused(tmp_path):
    X, y, _ = make_transfer()
    model = RegretOptimalClassifier(RandomFeatures(n_inputs=4, width=9, seed=1)).fit(X, y > 0)
    model.set_params(feature_map=RandomFeatures(n_inputs=4, width=9, seed=2))
    with pytest.raises(ParameterError, match="replaced after the fit"):
        model.save(tmp_path / "a.mixtune")


class OwnRule(WeightRule):
    def _weigh(self, evidence):
        return EqualWeights().weigh(moments=evidence.moments)


@pytest.mark.parametrize("rule", [OwnRule(), WassersteinWeights(1.0, distance=lambda a, b: abs(a.mean() - b.mean()))])
def test_settings_that_cannot_be_written_say_what_to_do(rule, tmp_path):
    X, y, sources = make_transfer()
    model = RegretOptimalRegressor(weights=rule).fit(X, y, sources=sources)
    with pytest.raises(ParameterError, match=r"settings\.weights.* cannot be saved; .*weights_\.as_dict\(\)"):
        model.save(tmp_path / "a.mixtune")
    model.set_params(weights=model.weights_.as_dict())
    assert_same_regressor(through(model, tmp_path), model)


def test_the_same_model_gives_the_same_bytes(tmp_path):
    X, y, sources = make_transfer(p=60)
    model = RegretOptimalRegressor(RandomFeatures(n_inputs=60, width=30, seed=1)).fit(X, y, sources=Sources(sources))
    first = model.save(tmp_path / "a.mixtune", metadata={"b": 1, "a": [2]}).read_bytes()
    model.solution_, model.focal_loo_error_, model.predict_interval(X)
    assert model.save(tmp_path / "b.mixtune", metadata={"b": 1, "a": [2]}).read_bytes() == first
    assert load(tmp_path / "a.mixtune").save(tmp_path / "c.mixtune", metadata={"b": 1, "a": [2]}).read_bytes() == first


def test_a_loaded_model_is_an_estimator_like_any_other(tmp_path):
    X, y, sources = make_transfer()
    model = RegretOptimalRegressor().fit(X, y, sources=sources)
    found = through(model, tmp_path)
    assert_same_regressor(pickle.loads(pickle.dumps(found)), model)  # noqa: S301
    assert_same_regressor(clone(found).fit(X, y, sources=sources), model)
    found.fit(X[:8], y[:8])
    assert_same_regressor(found, RegretOptimalRegressor().fit(X[:8], y[:8]))


def test_what_a_file_says_about_itself(tmp_path):
    X, y, _ = make_transfer()
    metadata = {"target": "y", "columns": {"a": ["x", None, 1.5]}, "deep": [[True]]}
    path = LocalRegressor().fit(X, y).save(str(tmp_path / "a.mixtune"), metadata=metadata)
    assert isinstance(path, Path)
    info = read_info(path)
    assert (info.estimator, info.feature_map, info.metadata) == ("LocalRegressor", "none", metadata)
    assert info.created_with["numpy"] == np.__version__
    assert set(info.created_with) == {"mixtune", "numpy", "scikit-learn", "python"}
    assert read_info(LocalRegressor().fit(X, y).save(path)).metadata == {}


@pytest.mark.parametrize(
    ("metadata", "error", "match"),
    [
        ([1], ParameterError, "pass a dict"),
        ({"a": np.ones(2)}, DataError, r"\['metadata'\]\['a'\] is a ndarray"),
        ({"a": float("nan")}, DataError, r"\['metadata'\]\['a'\] is nan"),
        ({1: 2}, DataError, "keys must be text"),
    ],
)
def test_metadata_that_json_cannot_hold(metadata, error, match, tmp_path):
    X, y, _ = make_transfer()
    with pytest.raises(error, match=match):
        LocalRegressor().fit(X, y).save(tmp_path / "a.mixtune", metadata=metadata)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("model", [RegretOptimalRegressor(), LocalRegressor(), RegretOptimalClassifier()])
def test_an_unfitted_model_is_refused(model, tmp_path):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        model.save(tmp_path / "a.mixtune")
    with pytest.raises(NotFittedError):
        model.to_onnx()


def test_places_that_cannot_be_written_to(tmp_path, monkeypatch):
    X, y, _ = make_transfer()
    model = LocalRegressor().fit(X, y)
    with pytest.raises(DataError, match="does not exist; make it first"):
        model.save(tmp_path / "no" / "a.mixtune")
    with pytest.raises(DataError, match="is a folder"):
        model.save(tmp_path)

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(DataError, match=r"a\.mixtune cannot be written: Permission denied; choose a folder"):
        model.save(tmp_path / "a.mixtune")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    X, y, sources = make_transfer()
    model = RegretOptimalRegressor(RandomFeatures(n_inputs=4, width=5, seed=0)).fit(X, y, sources=sources)
    return model.save(tmp_path_factory.mktemp("saved") / "a.mixtune")


def test_a_cut_off_or_altered_file_is_refused_anywhere(saved, tmp_path):
    content = saved.read_bytes()
    path = tmp_path / "b.mixtune"
    for end in np.linspace(0, len(content) - 1, 25, dtype=int):
        path.write_bytes(content[:end])
        with pytest.raises(DataError):
            load(path)
    for place in np.linspace(0, len(content) - 1, 60, dtype=int):
        flipped = bytearray(content)
        flipped[place] ^= 1 << (place % 8)
        path.write_bytes(bytes(flipped))
        with pytest.raises(DataError):
            load(path)
        with pytest.raises(DataError):
            read_info(path)


def changed(saved, tmp_path, change):
    """A whole file with a right checksum whose spec says something else."""
    spec, arrays = read_model(saved)
    change(spec, arrays)
    return write_model(tmp_path / "c.mixtune", spec, arrays)


def put(*keys, value):
    def change(spec, arrays):
        inner = spec
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return change


DEEP = "estimator", "fitted", "coef_"
MOMENTS = "estimator", "fitted", "_state", "parts", "moments", "items", 0, "parts"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (put("spec_version", value=2), r"spec version 2 \(written by mixtune .*\).*up to 1; update mixtune"),
        (put("spec_version", value="1"), "no version"),
        (put("spec_version", value=True), "no version"),
        (lambda spec, arrays: spec.clear(), "no version"),
        (put("estimator", value=[]), "lacks one of"),
        (put("metadata", value=None), "lacks one of"),
        (put("feature_map", "kind", value=3), "lacks one of"),
        (put("estimator", "name", value="RegretOptimalRegresor"), 'did you mean "RegretOptimalRegressor"'),
        (put("estimator", "name", value="os.system"), "not known here"),
        (put("estimator", "is", value="tuple"), "cannot be built from the file"),
        (put("estimator", "is", value="Moments"), "cannot be built from the file"),
        (put("estimator", "is", value="subprocess.Popen"), "not known here .*; update mixtune"),
        (put("estimator", "settings", "colour", value=1), "cannot be built from the file"),
        (put("estimator", "fitted", "predict", value=1), 'holds "predict", which RegretOptimalRegressor does not know'),
        (put("estimator", "fitted", value={}), "no fitted estimator|as a fit makes it"),
        (put(*DEEP, value=1.0), "no fitted estimator"),
        (put(*DEEP, value={"is": "array", "name": "other", "by_columns": False, "frozen": False}), "cannot be built"),
        (put(*DEEP, value={"is": "scalar", "dtype": "object", "value": 1}), "unknown type 'object'"),
        (put(*DEEP, value={}), '"None"'),
        (put(*DEEP, value={"is": "scalar", "dtype": "int8", "value": 300}), "cannot be built .*OverflowError"),
        (put(*DEEP, value={"is": "dict", "items": [[[], 1]]}), "cannot be built .*unhashable"),
        (put(*MOMENTS, "gram", value=None), "neither sums nor rows"),
        (lambda spec, arrays: arrays.pop("model.coef_"), "cannot be built from the file"),
        (lambda spec, arrays: arrays.pop("feature_map.weights"), "hash differs"),
    ],
)
def test_a_file_that_says_something_else_is_refused(change, match, saved, tmp_path):
    with pytest.raises(DataError, match=match):
        load(changed(saved, tmp_path, change))


def test_very_deep_files_are_refused(saved, tmp_path):
    spec, arrays = read_model(saved)
    deep = 1.0
    for _ in range(350):
        deep = {"is": "scalar", "dtype": "float64", "value": deep}
    spec["estimator"]["fitted"]["coef_"] = deep
    path = write_model(tmp_path / "deep.mixtune", spec, arrays)

    def load_within(calls):
        """Where Python is deep in calls already, less nesting is too much."""
        return load_within(calls - 1) if calls else load(path)

    with pytest.raises(DataError, match="nested too deeply"):
        load_within(400)


def test_the_file_is_no_pickle_and_other_tools_can_read_it(saved):
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = safetensors.load(saved.read_bytes())
    np.testing.assert_array_equal(tensors["model.coef_"], load(saved).coef_)
    with pytest.raises((ValueError, pickle.UnpicklingError)):
        list(pickletools.genops(io.BytesIO(saved.read_bytes())))
    json.dumps(read_model(saved)[0], allow_nan=False)


def test_pickles_are_called_that(tmp_path):
    path = tmp_path / "a.mixtune"
    path.write_bytes(pickle.dumps(LocalRegressor()))
    with pytest.raises(DataError, match="pickle"):
        load(path)


# --- files of earlier versions --------------------------------------------------------------------------------------

SAVED = Path(__file__).parent / "saved"
EXPECTED = json.loads((SAVED / "expected.json").read_text())
NEEDED = {
    "map-network": lambda: {"networks": {"network": make.network()}},
    "map-outside": lambda: {"feature_map": RandomFeatures(n_inputs=make.COLUMNS, width=4, seed=7)},
}


def test_every_saved_model_has_its_expectations():
    assert sorted(path.stem for path in SAVED.glob("*.mixtune")) == sorted(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_files_of_earlier_versions_load_and_predict_the_same(name):
    expected = EXPECTED[name]
    path = SAVED / f"{name}.mixtune"
    assert read_info(path).created_with["mixtune"] == "0.1.0"
    if name == "map-maxabs" and not hasattr(MaxAbsScaler(), "clip"):  # scikit-learn is older than the file
        with pytest.raises(DataError, match=r"cannot rebuild the MaxAbsScaler .* install that version"):
            load(path)
        return
    model = load(path, **NEEDED.get(name, dict)())
    assert type(model).__name__ == expected["estimator"]
    found = make.expectations(model, np.array(expected["X"]))
    for what, values in found.items():
        if what == "predict" and "predict_proba" in found:
            assert values == expected[what]
        else:
            np.testing.assert_allclose(values, expected[what], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items() if "command_line" in expected])
def test_the_command_line_reads_files_of_earlier_versions(name):
    found = as_json("predict", SAVED / f"{name}.mixtune", SAVED / f"{name}.csv")["columns"]["prediction"]
    expected = EXPECTED[name]["command_line"]["prediction"]
    if isinstance(expected[0], str):
        assert found == expected
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


# --- what subclasses declare ----------------------------------------------------------------------------------------


@savable
class Declared(LocalRegressor):
    """Holds what a test gives it."""

    _stored_attributes = ("held_",)


def held(value, tmp_path):
    """A value after a way through a file."""
    X, y, _ = make_transfer()
    model = Declared().fit(X, y)
    model.held_ = value
    return through(model, tmp_path).held_


def test_a_subclass_declares_what_it_stores(tmp_path):
    value = {"ours": [1, 2.5, -0.0, None, np.inf], ("focal", 1): {"x": np.int8(3)}, "n": {2, "b"}, "w": EqualWeights()}
    assert_identical(held(value, tmp_path), value)
    columns = held(np.asfortranarray(np.arange(6.0).reshape(2, 3)), tmp_path)
    assert columns.flags.f_contiguous
    assert not columns.flags.c_contiguous


def test_notes_come_back_with_their_fields(tmp_path):
    table = {"site": list("aaabbb"), "x": [1.0, 2.0, 3.0] * 2, "empty": [None] * 6, "y": [1.0, 2.0, 3.0] * 2}
    (note,) = fit_table(table, target="y", domain="site", focal="a").notes
    plain, found = held(("plain", note), tmp_path)
    assert (plain, found) == ("plain", note)
    assert found.render("terminal") == note.render("terminal")
    assert (found.code, found.fields) == ("empty-column", {"column": "empty"})


def test_classes_that_are_not_registered_are_refused(tmp_path):
    class Unregistered(LocalRegressor):
        pass

    X, y, _ = make_transfer()
    with pytest.raises(ParameterError, match="Unregistered cannot be saved"):
        Unregistered().fit(X, y).save(tmp_path / "a.mixtune")

    class LocalRegressorTwin(LocalRegressor):
        pass

    LocalRegressorTwin.__name__ = "LocalRegressor"
    with pytest.raises(ParameterError, match='"LocalRegressor" is taken by another estimator'):
        savable(LocalRegressorTwin)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (object(), "held_ holds a object"),
        (np.array(["2020"], dtype="M8[D]"), "held_ is an array of datetime64"),
        ({"a": {1j}}, "complex"),
    ],
)
def test_values_that_cannot_be_stored(value, match, tmp_path):
    with pytest.raises(ParameterError, match=match):
        held(value, tmp_path)


@pytest.mark.parametrize(
    "text", [np.array(["ä", ""], dtype="<U9"), np.array([["a"], ["b"]], dtype=object), np.array([], dtype="<U1")]
)
def test_arrays_of_text(text, tmp_path):
    assert_identical(held(text, tmp_path), text)


def test_solutions_are_stored_with_their_problem(tmp_path):
    rng = np.random.default_rng(0)
    moments = [Moments.from_rows(rng.standard_normal((8, 2)), rng.standard_normal(8)) for _ in range(3)]
    moments[1] = moments[1] + moments[0] - moments[0]
    given = {"weights": [0.5, 0.3, 0.2], "ridge": 1.0, "transfer": 0.5, "stability": 1.0, "horizon": 4}
    for more in ({}, {"start": np.zeros(2)}, {"reference": np.ones((3, 2))}):
        solution = solve(RegretProblem(moments=moments, **given, **more))
        found = held(solution, tmp_path)
        assert_identical(found.coef, solution.coef)
        assert found.energy == solution.energy
    walked = descend(RegretProblem(moments=moments, **given), steps=3, learning_rate=1e-3)
    with pytest.raises(ParameterError, match="a solution by descent cannot be saved"):
        held(walked, tmp_path)


# --- ONNX -----------------------------------------------------------------------------------------------------------


def run_onnx(content, features):
    reference = pytest.importorskip("onnx.reference")
    return reference.ReferenceEvaluator(content).run(None, {"features": features})


@pytest.mark.parametrize("outputs", [None, 2])
def test_regressors_to_onnx(outputs, tmp_path):
    X, y, sources = make_transfer(outputs=outputs)
    feature_map = RandomFeatures(n_inputs=4, width=9, seed=1)
    model = RegretOptimalRegressor(feature_map).fit(X, y, sources=sources)
    content = model.to_onnx(tmp_path / "a.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == content == through(model, tmp_path).to_onnx()
    (found,) = run_onnx(content, feature_map.transform(NEW))
    np.testing.assert_allclose(found, model.predict(NEW), rtol=1e-12, atol=1e-12)
    (found,) = run_onnx(model.to_onnx(dtype="float32"), feature_map.transform(NEW).astype(np.float32))
    np.testing.assert_allclose(found, model.predict(NEW), rtol=1e-4, atol=1e-4)


def test_a_range_of_features_goes_along():
    X, y, sources = make_transfer()
    model = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)
    (found,) = run_onnx(model.to_onnx(), 20 * NEW)
    assert not np.allclose(found, 20 * NEW @ model.coef_ + model.intercept_)
    np.testing.assert_allclose(found, model.predict(20 * NEW), rtol=1e-12)


@pytest.mark.parametrize("labels", [["no", "yes"], ["a", "b", "c"], [0.0, 1.0], [False, True], [3, 4, 9]], ids=str)
def test_classifiers_to_onnx(labels):
    X, y, _ = make_transfer(n=30)
    labels = np.asarray(labels)
    classes = labels[np.clip(np.digitize(y, np.linspace(-2, 2, len(labels) - 1)), 0, len(labels) - 1)]
    model = RegretOptimalClassifier().fit(X, classes)
    probabilities, found = run_onnx(model.to_onnx(), NEW)
    np.testing.assert_allclose(probabilities, model.predict_proba(NEW), atol=1e-12)
    np.testing.assert_array_equal(found, model.predict(NEW))


def test_onnx_into_a_folder_that_is_not_there(tmp_path, monkeypatch):
    X, y, _ = make_transfer()
    model = LocalRegressor().fit(X, y)
    with pytest.raises(DataError, match="make it first"):
        model.to_onnx(tmp_path / "no" / "a.onnx")

    def refuse(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(DataError, match="No space left"):
        model.to_onnx(tmp_path / "a.onnx")


@pytest.mark.parametrize("name", ["_uncertainty", "_scaling", "intercept_"])
@pytest.mark.parametrize("value", [0, "x", None, [None]])
@pytest.mark.parametrize("kind", [RegretOptimalRegressor, RegretOptimalRegressorCV])
def test_forged_attributes_that_predictions_need_are_refused(tmp_path, kind, name, value):
    X, y, sources = make_transfer()
    spec, arrays = read_model(kind().fit(X, y, sources=sources).save(tmp_path / "a.mixtune"))
    spec["estimator"]["fitted"][name] = value
    with pytest.raises(DataError):
        load(write_model(tmp_path / "b.mixtune", spec, arrays))


@pytest.mark.parametrize(
    ("place", "forge", "said"),
    [
        ("_uncertainty.left_out.spreads", lambda a: a * np.nan, "not finite"),
        ("_uncertainty.left_out.residuals", lambda a: a[:-1], "of shape"),
        ("_scaling.scale", lambda a: 0 * a, "numbers below"),
        ("coef_", lambda a: a.astype(int), "of type int64"),
        ("weights_.values", lambda a: 2 * a, "do not add up to 1"),
        ("candidates_.0.weights", lambda a: a[None], "of shape"),
        ("_distances.counts", lambda a: 0 * a, "numbers below 1"),
    ],
)
def test_forged_arrays_are_refused(tmp_path, place, forge, said):
    X, y, sources = make_transfer()
    spec, arrays = read_model(RegretOptimalRegressorCV(None).fit(X, y, sources=sources).save(tmp_path / "a.mixtune"))
    arrays[f"model.{place}"] = forge(arrays[f"model.{place}"])
    with pytest.raises(DataError, match=said):
        load(write_model(tmp_path / "b.mixtune", spec, arrays))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("fitted", "distances_"), 3),
        (("fitted", "_uncertainty", "parts", "posterior", "parts", "share"), "x"),
        (("fitted", "_uncertainty", "parts", "posterior", "parts", "basis"), None),
        (("fitted", "_uncertainty", "parts", "posterior", "parts", "rest"), True),
        (("fitted", "_state", "parts", "moments", "items", 0, "parts", "summed"), None),
    ],
)
def test_numbers_replaced_by_something_else_are_refused(tmp_path, place, value):
    """The file is sound otherwise, and has the right checksum."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 2))
    path = RegretOptimalRegressor().fit(X, X[:, 0], sources={"a": (X, X[:, 1])}).save(tmp_path / "a.mixtune")
    spec, arrays = read_model(path)
    at = spec["estimator"]
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    write_model(path, spec, arrays)
    with pytest.raises(MixtuneError, match=r"the file holds|must be|cannot be built"):
        load(path)
