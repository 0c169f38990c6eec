"""Choosing for the user: leave-one-out on the focal domain, candidates learned from the sources, their average."""

from mixtune.choice._average import Judgement, TaskErrors, average, least_error, mean_products
from mixtune.choice._choose import (
    Choice,
    Plan,
    by_content,
    choose,
    content_order,
    posterior_covariance,
    rank_of,
    sample_sources,
    target_scale,
)
from mixtune.choice._compare import (
    MEAN_OF_LOCALS,
    MIXTUNE,
    OWN_ROWS,
    POOLED,
    Comparison,
    TransferGain,
    compare,
    joint_left_out,
    transfer_gain,
)
from mixtune.choice._every_domain import choose_every
from mixtune.choice._families import Prior
from mixtune.choice._kernel_evidence import Deviation, DeviationLikelihood, MarginalLikelihood, Pairs
from mixtune.choice._local_spread import LocalSpread, SpreadColumns, learn_local_spread
from mixtune.choice._maps import FeatureBlock, MapAverage, choose_maps, scattered
from mixtune.choice._model_averaging import SummedTask, ValidationTask
from mixtune.choice._population import Population, coefficient_errors, learn_population
from mixtune.choice._pretraining import joint_error, learn_columns, learn_own_column, tree_threads
from mixtune.choice._process import (
    KERNEL_ROWS,
    CommonProcess,
    Process,
    ProcessFamily,
    SharedEvidence,
    fit_candidates,
    learn_common_process,
    learn_process,
)
from mixtune.choice._process_choice import (
    choose_every_process,
    choose_processes,
    missing_part,
    process_population,
    taught_inputs,
)
from mixtune.choice._remote import RemoteTasks
from mixtune.choice._runs import choose_runs
from mixtune.choice._settings import SETTINGS, ChoiceSettings
from mixtune.choice._summed import SourceTerms, SummedSources
from mixtune.moments import Sample, loo_ridge

__all__ = ["MEAN_OF_LOCALS", "MIXTUNE", "OWN_ROWS", "POOLED"]
__all__ += ["SETTINGS", "Choice", "ChoiceSettings", "Comparison", "FeatureBlock", "MapAverage", "Plan"]
__all__ += ["Prior", "Sample", "SummedTask", "TransferGain", "ValidationTask", "choose"]
__all__ += ["by_content", "choose_maps", "choose_runs", "compare", "content_order", "joint_error", "joint_left_out"]
__all__ += ["Population", "choose_every", "coefficient_errors", "learn_columns", "learn_own_column", "learn_population"]
__all__ += ["Judgement", "TaskErrors", "average", "least_error", "mean_products"]
__all__ += [
    "KERNEL_ROWS",
    "CommonProcess",
    "Deviation",
    "DeviationLikelihood",
    "MarginalLikelihood",
    "Pairs",
    "Process",
    "ProcessFamily",
    "SharedEvidence",
    "choose_every_process",
    "choose_processes",
    "fit_candidates",
    "learn_common_process",
    "learn_process",
    "missing_part",
    "process_population",
    "taught_inputs",
]
__all__ += ["LocalSpread", "SpreadColumns", "learn_local_spread"]
__all__ += ["loo_ridge", "rank_of"]
__all__ += ["posterior_covariance", "sample_sources", "scattered", "target_scale"]
__all__ += ["transfer_gain", "tree_threads"]
# Sources whose rows are elsewhere.
__all__ += ["RemoteTasks", "SourceTerms", "SummedSources"]
