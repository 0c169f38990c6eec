"""scikit-learn estimators: check, call, store; the paper's baselines on the same surface."""

from mixtune.estimators._baselines import JointRegressor, JointSubsetRegressor, LocalRegressor, MeanOfLocalsRegressor
from mixtune.estimators._chosen import Candidate, Removal, RidgePath
from mixtune.estimators._classifier import RegretOptimalClassifier
from mixtune.estimators._cv import RegretOptimalClassifierCV, RegretOptimalRegressorCV
from mixtune.estimators._regressor import RegretOptimalRegressor
from mixtune.estimators._saving import SavedInfo, load, read_info, savable
from mixtune.estimators._sources import FocalSplit, Sources, split_sample_domain, split_table

__all__ = [
    "Candidate",
    "FocalSplit",
    "JointRegressor",
    "JointSubsetRegressor",
    "LocalRegressor",
    "MeanOfLocalsRegressor",
    "RegretOptimalClassifier",
    "RegretOptimalClassifierCV",
    "RegretOptimalRegressor",
    "RegretOptimalRegressorCV",
    "Removal",
    "RidgePath",
    "SavedInfo",
    "Sources",
    "load",
    "read_info",
    "savable",
    "split_sample_domain",
    "split_table",
]
