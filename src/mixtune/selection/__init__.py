"""Choosing for the user: leave-one-out on the focal domain, candidates learned from the sources, their average."""

from mixtune.moments import Sample, loo_ridge
from mixtune.selection._choose import Choice, choose, content_order, sample_sources
from mixtune.selection._compare import (
    Comparison,
    TransferGain,
    compare,
    joint_left_out,
    mean_left_out,
    transfer_gain,
)
from mixtune.selection._every_domain import choose_every
from mixtune.selection._families import Prior
from mixtune.selection._maps import FeatureBlock, MapAverage, choose_maps
from mixtune.selection._population import Population, learn_population
from mixtune.selection._pretraining import learn_columns, learn_own_column
from mixtune.selection._settings import SETTINGS, ChoiceSettings

__all__ = ["SETTINGS", "Choice", "ChoiceSettings", "Comparison", "FeatureBlock", "MapAverage", "Population", "Prior"]
__all__ += [
    "Sample",
    "TransferGain",
    "choose",
    "choose_every",
    "choose_maps",
    "compare",
    "content_order",
    "joint_left_out",
]
__all__ += [
    "learn_columns",
    "learn_own_column",
    "learn_population",
    "loo_ridge",
    "mean_left_out",
    "sample_sources",
    "transfer_gain",
]
