"""Fitted scikit-learn transformers as frozen maps."""

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, PolynomialFeatures, StandardScaler

from extras import extra
from mixtune.errors import DataError, ParameterError
from mixtune.features import FeatureMap, SklearnFeatures

pd = extra("pandas")
torch = extra("torch")

X = np.random.default_rng(5).standard_normal((20, 3))


@pytest.mark.parametrize(
    "transformer",
    [
        make_pipeline(StandardScaler(), PolynomialFeatures(2)),
        PCA(2),
        Nystroem(n_components=5, random_state=0),
        FunctionTransformer(np.tanh),
        make_pipeline(StandardScaler(), FunctionTransformer(np.tanh)),
        StandardScaler().set_output(transform="pandas"),
    ],
    ids=lambda transformer: type(transformer).__name__,
)
def test_the_features_are_those_of_the_transformer(transformer):
    features = SklearnFeatures(transformer.fit(X))
    expected = np.asarray(transformer.transform(X))
    assert features.n_inputs == 3
    assert features.n_features_out == expected.shape[1]
    np.testing.assert_array_equal(features.transform(X), expected)
    assert isinstance(features, FeatureMap)


def test_sparse_output_becomes_dense():
    features = SklearnFeatures(OneHotEncoder(handle_unknown="ignore").fit([[0], [1], [2]]))
    np.testing.assert_array_equal(features.transform([[1], [0]]), [[0, 1, 0], [1, 0, 0]])


def test_tensors_in_tensors_out():
    scaler = StandardScaler().fit(X)
    U = SklearnFeatures(scaler).transform(torch.tensor(X, requires_grad=True))
    assert isinstance(U, torch.Tensor)
    np.testing.assert_array_equal(U.numpy(), scaler.transform(X))
    U[0, 0] = 1.0


def test_fitting_again_does_not_change_the_map():
    scaler = StandardScaler().fit(X)
    features = SklearnFeatures(scaler)
    before = features.transform(X)
    scaler.fit(100 * X)
    np.testing.assert_array_equal(features.transform(X), before)


def test_transformers_fitted_on_frames():
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    features = SklearnFeatures(StandardScaler().fit(frame))
    np.testing.assert_array_equal(features.transform(X), features.transform(frame))
    by_name = SklearnFeatures(make_column_transformer((StandardScaler(), ["u", "w"])).fit(frame))
    assert by_name.transform(frame).shape == (20, 2)
    assert by_name.input_names == ("u", "v", "w")
    assert SklearnFeatures(StandardScaler().fit(X)).input_names is None
    with pytest.raises(DataError, match=r"ColumnTransformer cannot transform X.*pass a data frame"):
        by_name.transform(X)


def test_named_columns_in_another_order():
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    scaler = StandardScaler().fit(frame)
    features = SklearnFeatures(scaler)
    swapped = X[:, [2, 0, 1]]
    np.testing.assert_array_equal(features.transform_named(swapped, ["w", "u", "v"]), scaler.transform(frame))
    U = features.transform_named(torch.tensor(swapped), ["w", "u", "v"])
    np.testing.assert_array_equal(U.numpy(), scaler.transform(frame))
    with pytest.raises(DataError, match='columns that the data lack: "v"'):
        features.transform_named(swapped, ["w", "u", "z"])
    nameless = SklearnFeatures(StandardScaler().fit(X))
    np.testing.assert_array_equal(nameless.transform_named(X, ["w", "u", "v"]), nameless.transform(X))


@pytest.mark.parametrize("transformer", [PCA(2), make_pipeline(StandardScaler(), PCA(2))])
def test_unfitted_transformers_are_refused(transformer):
    with pytest.raises(ParameterError, match="is not fitted; call its fit"):
        SklearnFeatures(transformer)


def test_refusals():
    with pytest.raises(ParameterError, match="has no transform"):
        SklearnFeatures(np.tanh)
    with pytest.raises(ParameterError, match="has no transform"):
        SklearnFeatures(PCA)
    with pytest.raises(ParameterError, match="fit it on some rows"):
        SklearnFeatures(FunctionTransformer(np.tanh))
    features = SklearnFeatures(FunctionTransformer(np.log).fit(np.ones((1, 2))))
    with pytest.raises(DataError, match="the map takes 2 columns, X has 3"):
        features.transform(X)
    with np.errstate(divide="ignore"), pytest.raises(DataError, match="NaN or infinite values in the features"):
        features.transform([[1.0, 0.0]])
    narrow = SklearnFeatures(FunctionTransformer(lambda X: X[:, : len(X)]).fit(X))
    with pytest.raises(DataError, match=r"shape \(2, 2\), not 1 columns"):
        narrow.transform(X[:2])
