"""Which device is meant, and arrays on their way to it."""

import sys

import numpy as np
import pytest

from mixtune.arrays import check_device, describe_device, device_or_cpu, to_device, torch_device
from mixtune.errors import MissingExtraError, ParameterError

torch = pytest.importorskip("torch")


def test_what_users_say_and_what_pytorch_calls_it(monkeypatch):
    assert torch_device("cpu") is None
    assert torch_device("torch:cpu") == "cpu"
    for unknown in ("gpu", "cuda:x", "torch:cuda", "", None, 0):
        with pytest.raises(ParameterError, match="there is no device"):
            torch_device(unknown)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ParameterError, match=r"'cuda' is not there: PyTorch .* finds no CUDA devices"):
        torch_device("cuda")
    assert device_or_cpu("cuda") == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert torch_device("cuda:0") == device_or_cpu("cuda:0") == "cuda:0"
    with pytest.raises(ParameterError, match="finds 1 CUDA devices"):
        torch_device("cuda:1")


def test_devices_of_pytorch():
    assert check_device(None) is None
    assert check_device("cpu") == "cpu"
    for unknown in ("gpu", "cuda:x", "mps", ""):
        with pytest.raises(ParameterError, match="there is no device"):
            check_device(unknown)


def test_a_missing_pytorch_is_named_or_done_without(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert torch_device("cpu") is None
    with pytest.raises(MissingExtraError, match=r"mixtune\[torch\]"):
        torch_device("cuda")
    assert device_or_cpu("cuda") == "cpu"


def test_what_computed_is_described():
    assert describe_device("cpu") == f"torch {torch.__version__} on cpu"


def test_any_array_can_be_sent():
    array = np.arange(6.0).reshape(2, 3)
    assert to_device(array, None) is array
    frozen = array.copy()
    frozen.flags.writeable = False
    for each in (array, frozen, array[::-1], array.T):
        np.testing.assert_array_equal(to_device(each, "cpu").numpy(), each)
