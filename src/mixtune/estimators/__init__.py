"""scikit-learn estimators: check, call, store; the paper's baselines on the same surface."""

from mixtune.estimators._baselines import JointRegressor, JointSubsetRegressor, LocalRegressor, MeanOfLocalsRegressor
from mixtune.estimators._classifier import RegretOptimalClassifier
from mixtune.estimators._classifier_cv import RegretOptimalClassifierCV
from mixtune.estimators._cv import RegretOptimalRegressorCV
from mixtune.estimators._cv_results import Candidate, Removal, RidgePath
from mixtune.estimators._loading import SavedInfo, load, read_info
from mixtune.estimators._regressor import RegretOptimalRegressor
from mixtune.estimators._saving import savable
from mixtune.estimators._sources import FocalSplit, Sources, split_sample_domain, split_stream, split_table
from mixtune.estimators._streamed import StreamedSources

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
    "StreamedSources",
    "load",
    "read_info",
    "savable",
    "split_sample_domain",
    "split_stream",
    "split_table",
]
