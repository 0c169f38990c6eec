"""Feature maps written down and built again: the same features bit for bit, or words that say what is missing."""

import copy
import json
import pickle
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)
from torch import nn

from mixtune.errors import DataError, ParameterError
from mixtune.features import (
    Concatenate,
    FeatureMap,
    Identity,
    RandomFeatures,
    SklearnFeatures,
    TorchFeatures,
    from_spec,
    given_spec,
    register_feature_map,
    to_spec,
)
from mixtune.files import array_digest, read_model, write_model

X = np.random.default_rng(5).standard_normal((40, 4)) * [1, 10, 0.1, 3] + 1


def through_a_file(feature_map, tmp_path, *, networks=None):
    """Save and load for real: JSON, safetensors, checksum and all."""
    path = write_model(tmp_path / "a.mixtune", *to_spec(feature_map))
    return from_spec(*read_model(path), networks=networks)


def assert_same(found, expected, rows=X):
    U, V = found.transform(rows), expected.transform(rows)
    assert U.dtype == V.dtype
    assert U.shape == V.shape
    assert U.tobytes() == V.tobytes()


def test_nothing_comes_back_as_nothing(tmp_path):
    assert through_a_file(None, tmp_path) is None


@pytest.mark.parametrize(
    "feature_map",
    [
        Identity(4),
        Identity(np.int64(4), constant=True),
        RandomFeatures(n_inputs=4, width=7, seed=3),
        RandomFeatures(n_inputs=4, width=7, seed=2**90, activation="tanh", bias_law="uniform", dtype="float32"),
        RandomFeatures(n_inputs=4, width=7, seed=np.int64(1), activation="leaky_relu", slope=np.float64(0.1 / 3)),
        RandomFeatures(
            n_inputs=4,
            width=7,
            seed=1,
            activation="leaky_relu",
            slope=np.float64(1 / 3),
            dtype="float32",
            output_scale=np.float64(1 / 3),
            normalise=True,
            constant=np.False_,
        ),
        RandomFeatures(n_inputs=4, width=7, seed=1, input_shift=X.mean(axis=0), input_scale=0.3, weight_scale=0.7),
        RandomFeatures.fourier(n_inputs=4, width=9, length_scale=[1.0, 2.0, 0.3, 1 / 3], seed=4),
        Concatenate([RandomFeatures(n_inputs=4, width=s, seed=s) for s in range(1, 13)]),
        Concatenate([Identity(4), Concatenate([RandomFeatures(n_inputs=4, width=2, seed=0), Identity(4)])]),
    ],
    ids=lambda m: type(m).__name__,
)
def test_own_maps_come_back_bit_for_bit(feature_map, tmp_path):
    back = through_a_file(feature_map, tmp_path)
    assert type(back) is type(feature_map)
    assert_same(back, feature_map)
    again = to_spec(back)
    assert json.dumps(again[0]) == json.dumps(to_spec(feature_map)[0])


def test_all_settings_of_random_features_come_back(tmp_path):
    features = RandomFeatures.fourier(n_inputs=4, width=3, seed=0)
    back = through_a_file(features, tmp_path)
    assert repr(back) == repr(features)
    with pytest.raises(ValueError, match="read-only"):
        back.weights[0] = 1


def test_stored_weights_win_over_the_seed(tmp_path):
    """As from another NumPy, which drew other numbers from the same seed."""
    features = RandomFeatures(n_inputs=4, width=3, seed=0)
    spec, arrays = to_spec(features)
    arrays = {**arrays, "weights": arrays["weights"] + 1}
    path = write_model(tmp_path / "a", spec | {"sha256": array_digest(arrays)}, arrays)
    back = from_spec(*read_model(path))
    np.testing.assert_array_equal(back.weights, features.weights + 1)
    assert not back.weights.flags.writeable
    joint = Concatenate([back])
    for same in (back, copy.deepcopy(back), pickle.loads(pickle.dumps(back)), through_a_file(back, tmp_path)):  # noqa: S301
        assert_same(same, back)
    for same in (copy.deepcopy(joint), pickle.loads(pickle.dumps(joint)), through_a_file(joint, tmp_path)):  # noqa: S301
        assert_same(same, joint)
        assert isinstance(same.maps[0], RandomFeatures)
        assert not same.maps[0].weights.flags.writeable


FRAME = pd.DataFrame(X, columns=["u", "v", "w", "x"])
TRANSFORMERS = [
    StandardScaler().fit(X),
    StandardScaler().fit(FRAME),
    StandardScaler(with_mean=False).fit(X),
    StandardScaler(with_std=False).fit(X.astype(np.float32)),
    MinMaxScaler(feature_range=(-1, 2), clip=True).fit(X),
    MaxAbsScaler().fit(X),
    RobustScaler(with_centering=False, quantile_range=(10.0, 80.0)).fit(X),
    PolynomialFeatures(degree=3, interaction_only=True).fit(X),
    PolynomialFeatures(degree=(2, 3), include_bias=False).fit(FRAME),
    PCA(2).fit(X),
    PCA(0.9, whiten=True, svd_solver="full").fit(X.astype(np.float32)),
    PCA(3, svd_solver="covariance_eigh").fit(X),
    PCA(3, svd_solver="randomized", random_state=np.random.RandomState(0)).fit(X),
    TruncatedSVD(2, random_state=0).fit(X),
    make_pipeline(StandardScaler(), "passthrough", PolynomialFeatures(2), make_pipeline(PCA(3))).fit(FRAME),
]


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=lambda t: type(t).__name__)
def test_transformers_come_back_bit_for_bit(transformer, tmp_path):
    wrapped = SklearnFeatures(transformer)
    back = through_a_file(wrapped, tmp_path)
    assert_same(back, wrapped)
    assert_same(back, wrapped, X.astype(np.float32))
    assert back.input_names == wrapped.input_names
    assert (back.n_inputs, back.n_features_out) == (wrapped.n_inputs, wrapped.n_features_out)
    bare = back.transformer
    assert type(bare) is type(transformer)
    assert bare is not transformer
    rows = FRAME if wrapped.input_names else X
    # A randomised PCA holds a strided view, and copying it already moves the last bit of a product.
    twin = copy.deepcopy(transformer)
    assert np.asarray(bare.transform(rows)).tobytes() == np.asarray(twin.transform(rows)).tobytes()
    assert list(bare.get_feature_names_out()) == list(transformer.get_feature_names_out())
    if hasattr(transformer, "inverse_transform"):
        np.testing.assert_array_equal(
            bare.inverse_transform(bare.transform(rows)), twin.inverse_transform(twin.transform(rows))
        )


def test_whole_fitted_state_is_in_the_table():
    """Every public fitted attribute of the supported classes is rebuilt, so none of their methods breaks."""
    for transformer in TRANSFORMERS[:-1]:
        back = from_spec(*to_spec(SklearnFeatures(transformer))).transformer
        assert {name for name in vars(transformer) if name.endswith("_")} <= {*dir(back)}


class Custom(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X):
        return X

    def get_feature_names_out(self):
        return ["a"] * self.n_features_in_


class Subclass(StandardScaler):
    pass


@pytest.mark.parametrize(
    "transformer",
    [
        OneHotEncoder().fit([[1], [2]]),
        FunctionTransformer(np.abs).fit(X),
        ColumnTransformer([("a", StandardScaler(), [0])]).fit(X),
        make_pipeline(StandardScaler(), FunctionTransformer(np.abs)).fit(X),
        Custom().fit(X),
        Subclass().fit(X),
    ],
    ids=lambda t: type(t).__name__,
)
def test_other_transformers_are_refused_with_the_remedy(transformer):
    with pytest.raises(ParameterError, match=r"supported are StandardScaler, .*load\(path, feature_map=\.\.\.\)"):
        to_spec(SklearnFeatures(transformer))


def test_a_release_that_computes_otherwise_is_noticed(monkeypatch):
    spec, arrays = to_spec(SklearnFeatures(StandardScaler().fit(X)))
    spec["settings"]["sklearn"] = "0.1"
    transform = StandardScaler.transform
    monkeypatch.setattr(StandardScaler, "transform", lambda self, X: transform(self, X) * 1.001)
    with pytest.raises(DataError, match=r"cannot rebuild the StandardScaler .* version 0\.1; install that version"):
        from_spec(spec, arrays)
    monkeypatch.undo()
    spec["settings"]["params"]["gone"] = 1
    with pytest.raises(DataError, match=r"cannot rebuild the StandardScaler .*gone.*; install that version"):
        from_spec(spec, arrays)


def network(activation=nn.Tanh, width=6, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        body = nn.Sequential(
            nn.Linear(4, width), nn.BatchNorm1d(width), activation(), nn.Dropout(), nn.Linear(width, 1)
        )
        body[1].running_mean += 1
    return body


@pytest.mark.parametrize(
    "options", [{}, {"cut": "2", "n_features_out": 6, "dtype": "float64", "batch_size": 7}, {"cut": None}]
)
def test_networks_get_their_weights_back(options, tmp_path):
    features = TorchFeatures(network(), **options)
    other = network(seed=1)
    before = copy.deepcopy(other.state_dict())
    back = through_a_file(features, tmp_path, networks={"network": other})
    assert_same(back, features)
    for name in ("cut", "found_cut", "batch_size", "device", "dtype", "n_features_out"):
        assert getattr(back, name) == getattr(features, name)
    assert all(torch.equal(before[key], value) for key, value in other.state_dict().items())
    assert other.training


def test_several_networks_have_their_names(tmp_path):
    joint = Concatenate([TorchFeatures(network(width=3)), Identity(4), TorchFeatures(network(nn.ReLU))])
    given = {"network": network(width=3, seed=7), "network_2": network(nn.ReLU, seed=8)}
    assert_same(through_a_file(joint, tmp_path, networks=given), joint)
    with pytest.raises(ParameterError, match=r'networks has "netwrok", which .* it needs "network", "network_2"'):
        through_a_file(joint, tmp_path, networks={**given, "netwrok": network()})
    with pytest.raises(ParameterError, match=r"pass networks=\{'network_2': module\}"):
        through_a_file(joint, tmp_path, networks={"network": network(width=3)})
    with pytest.raises(ParameterError, match="it needs none"):
        through_a_file(Identity(4), tmp_path, networks=given)


@pytest.mark.parametrize(
    ("module", "match"),
    [
        (None, r"a Sequential with 6 layers; pass networks=\{'network': module\}"),
        (3, "is a int; pass a torch.nn.Module"),
        (network(nn.ReLU), r'another architecture: it has "2" \(ReLU\) where the saved one has "2" \(Tanh\)'),
        (network()[:-1], r'another architecture: it has nothing where the saved one has "4" \(Linear\)'),
        (
            nn.Sequential(*network(), nn.ReLU()),
            r'another architecture: it has "5" \(ReLU\) where the saved one has nothing',
        ),
        (
            network(width=5),
            r"other tensors than the saved one: .*size mismatch for 0\.weight.*\[6, 4\].*\[5, 4\]",
        ),
    ],
)
def test_other_networks_are_refused(module, match, tmp_path):
    with pytest.raises(ParameterError, match=match):
        through_a_file(TorchFeatures(network()), tmp_path, networks={"network": module})


def test_modules_with_a_state_that_is_no_tensor_are_refused():
    class Stateful(nn.Linear):
        def get_extra_state(self):
            return {"any": "thing"}

        def set_extra_state(self, state):
            pass

    with pytest.raises(ParameterError, match='_extra_state" of the module cannot be saved'):
        to_spec(TorchFeatures(Stateful(4, 2), cut=None))


@dataclass
class Scaled:
    factor: np.ndarray

    @property
    def n_features_out(self):
        return len(self.factor)

    n_inputs = n_features_out

    def transform(self, X):
        return X * self.factor


class Halved(Identity):
    def transform(self, X):
        return super().transform(X) / 2


@pytest.mark.parametrize("feature_map", [Scaled(np.ones(4)), Halved(4), network(), Concatenate([Scaled(np.ones(4))])])
def test_unknown_maps_are_refused_with_the_remedies(feature_map):
    with pytest.raises(ParameterError, match=r"register_feature_map\(kind, .*load\(path, feature_map=\.\.\.\)"):
        to_spec(feature_map)


class Registered(Scaled):
    """Known by the tests below, under one name each."""


class Misread(Scaled):
    """Registered with a function that reads something else."""


def register(kind, cls, read):
    register_feature_map(kind, cls, write=lambda scaled: ({"n": 1}, {"factor": scaled.factor}), read=read)


def test_registered_maps_come_back(tmp_path):
    joint = Concatenate([Registered(np.arange(4.0)), Identity(4)])
    for _ in range(2):  # a module that is imported twice does no harm
        register("test.registered", Registered, lambda settings, arrays: Registered(arrays["factor"]))
    back = through_a_file(joint, tmp_path)
    assert isinstance(back.maps[0], Registered)
    assert isinstance(back, FeatureMap)
    assert_same(back, joint)
    spec, arrays = to_spec(joint)
    spec["settings"]["maps"][0]["kind"] = "test.elsewhere"
    with pytest.raises(DataError, match=r'"test\.elsewhere", which is not known here .*register_feature_map'):
        from_spec(spec, arrays)


def test_bad_registrations():
    register("test.misread", Misread, lambda settings, arrays: Identity(4))
    with pytest.raises(ParameterError, match="gave a Identity; let it return a Misread"):
        from_spec(*to_spec(Misread(np.ones(4))))
    functions = {"write": lambda m: ({}, {}), "read": lambda s, a: None}
    for kind in ("identity", "given", "test.misread"):
        with pytest.raises(ParameterError, match="is taken"):
            register_feature_map(kind, Halved, **functions)
    with pytest.raises(ParameterError, match="registered already"):
        register_feature_map("another", Misread, **functions)
    with pytest.raises(ParameterError, match="must be a name"):
        register_feature_map(" ", Halved, **functions)
    with pytest.raises(ParameterError, match="pass the class"):
        register_feature_map("a", Halved(3), **functions)


def test_maps_kept_outside_the_file(tmp_path):
    features = Scaled(np.arange(4.0))
    path = write_model(tmp_path / "a", *given_spec(features))
    assert from_spec(*read_model(path), feature_map=features) is features
    with pytest.raises(ParameterError, match="saved without its feature map, a Scaled; pass that map"):
        from_spec(*read_model(path))
    with pytest.raises(ParameterError, match="gives other features"):
        from_spec(*read_model(path), feature_map=Scaled(np.arange(4.0) + 1e-3))
    with pytest.raises(ParameterError, match="gives 3 features, the model was fitted on 4"):
        from_spec(*read_model(path), feature_map=Scaled(np.arange(3.0)))
    with pytest.raises(ParameterError, match="is no feature map"):
        from_spec(*read_model(path), feature_map=3)
    with pytest.raises(ParameterError, match="holds its own feature map"):
        from_spec(*to_spec(Identity(4)), feature_map=Identity(4))


def test_transformers_and_networks_kept_outside_the_file():
    encoder = SklearnFeatures(OneHotEncoder(handle_unknown="ignore").fit(np.round(X)))
    assert from_spec(*given_spec(encoder), feature_map=encoder) is encoder
    features = TorchFeatures(network())  # does not know its number of inputs
    spec, arrays = given_spec(features)
    assert not arrays
    assert from_spec(spec, arrays, feature_map=features) is features


def changed(change):
    spec, arrays = to_spec(RandomFeatures(n_inputs=2, width=3, seed=0))
    change(spec, arrays)
    return spec, arrays


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda spec, arrays: spec.pop("kind"), "lacks kind or settings"),
        (lambda spec, arrays: spec.update(settings=3), "lacks kind or settings"),
        (lambda spec, arrays: spec.update(kind="os.system"), 'the feature map "os.system", which is not known here'),
        (lambda spec, arrays: spec.pop("sha256"), "their hash differs"),
        (lambda spec, arrays: arrays.update(weights=arrays["weights"] + 1e-16), "their hash differs"),
        (lambda spec, arrays: arrays.pop("bias"), "their hash differs"),
        (lambda spec, arrays: spec["settings"].pop("dtype"), "cannot be built from the file: KeyError"),
        (lambda spec, arrays: spec["settings"].update(more=1), "cannot be built from the file: TypeError"),
        (lambda spec, arrays: spec["settings"].update(width=10**12), "their weights do not fit"),
        (lambda spec, arrays: spec["settings"].update(dtype="float32"), "their weights do not fit"),
    ],
)
def test_specs_that_do_not_fit_their_arrays(change, match):
    with pytest.raises(DataError, match=match):
        from_spec(*changed(change))


def test_nested_too_deeply():
    spec, arrays = to_spec(Identity(2))
    for _ in range(3000):
        spec = {"kind": "concatenate", "settings": {"maps": [spec]}, "sha256": spec["sha256"]}
    with pytest.raises(DataError, match="nested too deeply"):
        from_spec(spec, arrays)
