"""PyTorch modules cut before their head, against a forward pass written out by hand."""

import copy
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from mixtune.errors import DataError, MissingExtraError, ParameterError
from mixtune.features import FeatureMap, TorchFeatures

X = np.random.default_rng(5).standard_normal((23, 4))


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


class Network(nn.Module):
    """A body and a head, registered so that the last linear layer is the head; the body branches."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.body = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Dropout(0.5))
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        return self.head(input=self.hidden(x))

    def hidden(self, x):
        return self.body(torch.relu(self.norm(self.first(x)))) + 1


def sequential():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 1))


def test_a_sequential_loses_its_last_child():
    network = sequential()
    features = TorchFeatures(network)
    weight, bias = (parameter.detach().numpy() for parameter in (network[0].weight, network[0].bias))
    U = features.transform(X)
    assert isinstance(U, np.ndarray)
    assert U.dtype == np.float32
    assert features.n_features_out == 6
    np.testing.assert_allclose(U, np.maximum(X @ weight.T + bias, 0), rtol=1e-5, atol=1e-6)
    assert isinstance(features, FeatureMap)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_general_module_is_cut_at_its_last_linear_layer(dtype):
    network = Network()
    features = TorchFeatures(network, dtype=dtype)
    assert features.cut == "head"
    assert features.n_features_out == 5
    twin = copy.deepcopy(network).eval().to(getattr(torch, dtype))
    expected = twin.hidden(torch.tensor(X, dtype=getattr(torch, dtype))).detach().numpy()
    np.testing.assert_allclose(features.transform(X), expected, rtol=1e-6)
    assert features.transform(X).dtype == expected.dtype


def test_cuts_by_name_and_no_cut():
    network = Network().eval()
    rows = torch.tensor(X, dtype=torch.float32)
    inside = TorchFeatures(network, cut="body.1")
    assert inside.n_features_out == 5
    expected = network.body[0](torch.relu(network.norm(network.first(rows))))
    torch.testing.assert_close(inside.transform(rows), expected.detach())
    whole = TorchFeatures(network, cut=None)
    assert whole.n_features_out == 2
    torch.testing.assert_close(whole.transform(rows), network(rows).detach())


@pytest.mark.parametrize("batch_size", [1, 7, 23, 1000])
def test_the_batch_size_does_not_show(batch_size):
    network = Network()
    expected = TorchFeatures(network, dtype="float64").transform(X)
    U = TorchFeatures(network, dtype="float64", batch_size=batch_size).transform(X)
    np.testing.assert_allclose(U, expected, rtol=1e-12)


def test_the_callers_module_stays_as_it_is():
    network = Network()
    network.body.eval()
    flags = [layer.training for layer in network.modules()]
    state = copy.deepcopy(network.state_dict())
    features = TorchFeatures(network, dtype="float64")
    before = features.transform(X)
    assert [layer.training for layer in network.modules()] == flags
    assert not network.head._forward_pre_hooks
    for name, value in network.state_dict().items():
        assert torch.equal(value, state[name])
    with torch.no_grad():
        network.first.weight.zero_()
    np.testing.assert_array_equal(features.transform(X), before)
    assert network(torch.ones(3, 4)).requires_grad


def test_features_carry_no_gradients_but_may_feed_a_head_that_does():
    U = TorchFeatures(sequential()).transform(torch.ones(3, 4, requires_grad=True))
    assert not U.requires_grad
    head = nn.Linear(6, 1)
    head(U).sum().backward()
    assert head.weight.grad is not None


def test_more_dimensions_are_flattened_row_by_row():
    images = np.random.default_rng(0).standard_normal((5, 1, 4, 4))
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 1))
    expected = network[0](torch.tensor(images, dtype=torch.float32)).detach().numpy().reshape(5, 8)
    np.testing.assert_allclose(TorchFeatures(network).transform(images), expected, rtol=1e-5)
    flat = TorchFeatures(network, cut="1", n_features_out=8)
    np.testing.assert_allclose(flat.transform(images), expected, rtol=1e-5)


def test_read_only_and_empty_inputs():
    rows = X.copy()
    rows.flags.writeable = False
    assert TorchFeatures(sequential()).transform(rows).shape == (23, 6)
    assert TorchFeatures(sequential()).transform(rows[:0]).shape == (0, 6)


def test_copies_work_like_the_original():
    features = TorchFeatures(sequential())
    np.testing.assert_array_equal(copy.deepcopy(features).transform(X), features.transform(X))
    assert repr(features) == "TorchFeatures(cut='3', batch_size=1024, device='cpu', dtype='float32', n_features_out=6)"
    with pytest.raises(AttributeError):
        features.cut = None


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (nn.Linear(4, 2), {"cut": "head"}, "cut='head' is not a layer"),
        (Network(), {"cut": "heat"}, r'not a layer of the module; did you mean "head"\?$'),
        (Network(), {"cut": "zz"}, r'not a layer of the module; known: "first", "norm", "body", .* and 2 more$'),
        (Network(), {"device": "no such"}, 'cannot be copied to device="no such"'),
        (Network(), {"batch_size": 0}, "batch_size must be a whole number >= 1; got 0"),
        (Network(), {"dtype": "int8"}, "dtype must be one of .*; got 'int8'"),
        (nn.Conv2d(1, 1, 1), {}, "no linear layer to cut at"),
        (nn.Conv2d(1, 1, 1), {"cut": None}, "pass n_features_out"),
        (np.tanh, {}, "pass a torch.nn.Module"),
        (Network(), {"n_features_out": 0}, "n_features_out must be a whole number >= 1; got 0"),
        (nn.Linear(4, 2), {}, "no linear layer to cut at"),
    ],
)
def test_bad_options(module, options, message):
    with pytest.raises(ParameterError, match=message):
        TorchFeatures(module, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device")
def test_a_device_that_is_not_there():
    with pytest.raises(ParameterError, match=r'device="cuda" .*use device="cpu"'):
        TorchFeatures(Network(), device="cuda")


def test_bad_rows_and_surprising_modules():
    features = TorchFeatures(sequential())
    with pytest.raises(DataError, match=r"cannot take X with rows of shape \(5,\)"):
        features.transform(np.ones((2, 5)))
    with pytest.raises(DataError, match="pass rows by columns"):
        features.transform(np.ones(4))
    with pytest.raises(DataError, match="infinite values in X: at least 1 row, the first is row 1"):
        features.transform([[1, 1, 1, 1], [1, 1, np.nan, 1]])
    with pytest.raises(ParameterError, match="pass n_features_out=6"):
        TorchFeatures(sequential(), n_features_out=3).transform(X)
    with pytest.raises(ParameterError, match="set cut"):
        TorchFeatures(nn.LSTM(4, 3), cut=None, n_features_out=3).transform(X)

    class Unused(Network):
        def forward(self, x):
            return self.hidden(x)

    with pytest.raises(ParameterError, match="last linear layer that runs"):
        TorchFeatures(Unused()).transform(X)

    class Exploding(nn.Module):
        def forward(self, x):
            return x / 0

    with pytest.raises(DataError, match="infinite values in the features"):
        TorchFeatures(Exploding(), cut=None, n_features_out=4).transform(X)


def test_without_torch_the_error_says_how_to_get_it(monkeypatch):
    network = sequential()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"mixtune\[torch\]"):
        TorchFeatures(network)


def test_nothing_here_imports_torch_by_itself():
    code = "import sys, mixtune.features, mixtune.data; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_token_encoders_take_whole_numbers():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(10, 6)
            self.head = nn.Linear(6, 2)

        def forward(self, x):
            return self.head(self.tokens(x).mean(dim=1))

    encoder = Encoder()
    tokens = np.array([[1, 2, 3], [4, 5, 9]])
    features = TorchFeatures(encoder).transform(tokens)
    expected = encoder.tokens(torch.from_numpy(tokens)).mean(dim=1).detach().numpy()
    np.testing.assert_allclose(features, expected, rtol=1e-6)
    with pytest.raises(DataError, match="cannot take X"):
        TorchFeatures(encoder).transform(np.array([[1, 2, 10]]))


def test_a_head_registered_first_is_not_cut_at_the_wrong_place():
    class HeadFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(8, 1)
            self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU())

        def forward(self, x):
            return self.head(self.body(x))

    module = HeadFirst()
    with pytest.raises(ParameterError, match='pass cut="head"'):
        TorchFeatures(module).transform(X)
    named = TorchFeatures(module, cut="head")
    assert named.transform(X).shape == (len(X), 8)
