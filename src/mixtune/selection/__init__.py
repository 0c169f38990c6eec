"""Choosing for the user: leave-one-out on the focal domain, candidates learned from the sources, their average."""

from mixtune.moments import Sample, loo_ridge
from mixtune.selection._choose import Choice, choose, sample_sources
from mixtune.selection._compare import Comparison, TransferGain, compare, joint_left_out, mean_left_out, transfer_gain
from mixtune.selection._families import Prior
from mixtune.selection._settings import SETTINGS, ChoiceSettings

__all__ = ["SETTINGS", "Choice", "ChoiceSettings", "Comparison", "Prior", "Sample", "TransferGain", "choose", "compare"]
__all__ += ["joint_left_out", "loo_ridge", "mean_left_out", "sample_sources", "transfer_gain"]
