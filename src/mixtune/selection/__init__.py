"""Choosing for the user: leave-one-out on the focal domain, candidates learned from the sources, their average."""

from mixtune.moments import Sample, loo_ridge
from mixtune.selection._choose import Choice, Plan, choose, content_order, rank_of, sample_sources
from mixtune.selection._compare import Comparison, TransferGain, compare, joint_left_out, mean_left_out, transfer_gain
from mixtune.selection._families import Prior
from mixtune.selection._maps import FeatureBlock, MapAverage, choose_maps
from mixtune.selection._model_averaging import SummedTask
from mixtune.selection._pretraining import learn_columns
from mixtune.selection._remote import RemoteTasks, leverages_of, order_of, play
from mixtune.selection._settings import SETTINGS, ChoiceSettings

__all__ = ["SETTINGS", "Choice", "ChoiceSettings", "Comparison", "FeatureBlock", "MapAverage", "Plan", "Prior"]
__all__ += ["RemoteTasks", "Sample", "SummedTask", "leverages_of", "order_of", "play", "rank_of"]
__all__ += ["TransferGain", "choose", "choose_maps", "compare", "content_order", "joint_left_out", "learn_columns"]
__all__ += ["loo_ridge", "mean_left_out", "sample_sources", "transfer_gain"]
