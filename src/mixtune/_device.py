"""Former home of the device functions, which are in :mod:`mixtune._array` now."""

from mixtune._array import check_device, describe_device, device_or_cpu, to_device, torch_device, torch_module

__all__ = ["check_device", "describe_device", "device_or_cpu", "to_device", "torch_device", "torch_module"]
