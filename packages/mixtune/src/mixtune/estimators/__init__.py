"""scikit-learn estimators: check, call, store; the paper's baselines with the same interface."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mixtune.choice import OWN_ROWS
from mixtune.estimators._base import rows_of_fit
from mixtune.estimators._baselines import (
    RIDGES,
    DomainColumnClassifier,
    DomainColumnRegressor,
    FocalMean,
    JointRegressor,
    JointSubsetRegressor,
    LocalRegressor,
    MeanOfLocalsRegressor,
)
from mixtune.estimators._classifier import RegretOptimalClassifier, RegretOptimalClassifierCV
from mixtune.estimators._comparison import (
    BOOSTING,
    MEAN,
    METHODS,
    MOST_REPEATS,
    Compared,
    LeftOutRows,
    Measures,
    compare_every,
    compare_held_out,
    compare_left_out,
    compare_nested,
    left_out_rows,
    method_named,
    rivals,
    rows_of_method,
)
from mixtune.estimators._cv import Candidate, RegretOptimalRegressorCV, Removal, RidgePath
from mixtune.estimators._effects import (
    ColumnEffect,
    ColumnEffects,
    Inputs,
    RowContributions,
    Scores,
    Typical,
    column_effects,
    effect_curves,
    row_contributions,
    user_columns,
)
from mixtune.estimators._fits import WIDEST
from mixtune.estimators._inputs import FocalSplit, Sources, as_sources, split_sample_domain, split_stream, split_table
from mixtune.estimators._pipeline import SourcesPipeline
from mixtune.estimators._regressor import RegretOptimalRegressor
from mixtune.estimators._saving import LATER, SavedInfo, load, load_estimator, read_info, savable
from mixtune.estimators._table import (
    ReadRows,
    TableModel,
    describe_rows,
    fit_table,
    new_model,
    take_findings,
    training_rows,
)

if TYPE_CHECKING:
    from mixtune.estimators._multi_classifier import MultiDomainClassifier
    from mixtune.estimators._multi_domain import MultiDomainRegressor
    from mixtune.estimators._summed import SourceSums, SummedRegressor
    from mixtune.streaming import StreamedSources

__all__ = ["Candidate", "Compared", "FocalSplit", "JointRegressor"]
__all__ += ["JointSubsetRegressor"]
__all__ += ["LocalRegressor", "MeanOfLocalsRegressor", "MultiDomainClassifier", "MultiDomainRegressor"]
__all__ += ["RegretOptimalClassifier"]
__all__ += ["RegretOptimalClassifierCV"]
__all__ += ["RegretOptimalRegressor", "RegretOptimalRegressorCV", "Removal", "RidgePath", "SavedInfo", "Sources"]
__all__ += ["DomainColumnRegressor", "SourcesPipeline", "rows_of_fit"]
__all__ += ["StreamedSources", "as_sources", "compare_held_out", "compare_nested", "load", "load_estimator"]
__all__ += ["ReadRows", "read_info"]
__all__ += ["rivals", "savable", "split_sample_domain", "split_stream", "split_table"]
__all__ += ["TableModel", "fit_table", "new_model", "take_findings", "training_rows"]
__all__ += ["ColumnEffect", "ColumnEffects", "RowContributions", "Scores", "column_effects", "effect_curves"]
__all__ += ["OWN_ROWS", "compare_every"]
__all__ += ["Inputs", "Typical", "describe_rows", "row_contributions", "user_columns"]
__all__ += ["BOOSTING", "MEAN", "DomainColumnClassifier", "FocalMean", "LeftOutRows", "Measures", "left_out_rows"]
__all__ += ["METHODS", "MOST_REPEATS", "RIDGES", "WIDEST", "compare_left_out", "method_named", "rows_of_method"]
__all__ += ["SourceSums", "SummedRegressor"]

_HOMES = {**LATER, "SourceSums": "mixtune.estimators._summed", "StreamedSources": "mixtune.streaming"}


def __getattr__(name: str) -> Any:
    # A fit for one domain uses none of these, and their modules take a quarter of a second to import.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
