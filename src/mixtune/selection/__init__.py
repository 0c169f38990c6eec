"""Choosing for the user: leave-one-out on the focal domain, candidates learned from the sources, their average."""

from mixtune.moments import Sample, loo_ridge
from mixtune.selection._choose import (
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
from mixtune.selection._compare import (
    MEAN_OF_LOCALS,
    MIXTUNE,
    OWN_ROWS,
    POOLED,
    Comparison,
    TransferGain,
    compare,
    joint_left_out,
    mean_left_out,
    transfer_gain,
)
from mixtune.selection._every_domain import choose_every
from mixtune.selection._families import Prior
from mixtune.selection._maps import FeatureBlock, MapAverage, choose_maps, scattered
from mixtune.selection._model_averaging import SummedTask
from mixtune.selection._population import Population, coefficient_errors, learn_population
from mixtune.selection._pretraining import joint_error, learn_columns, learn_own_column, tree_threads
from mixtune.selection._remote import RemoteTasks, leverages_of, order_of, play
from mixtune.selection._runs import RunFits, choose_runs, joint_runs, ridge_runs
from mixtune.selection._settings import SETTINGS, ChoiceSettings
from mixtune.selection._summed import (
    SIZES,
    PooledStart,
    SourceTerms,
    choose_summed,
    merged_task,
    summed_labels,
    summed_play,
    task_of_sums,
)

__all__ = ["MEAN_OF_LOCALS", "MIXTUNE", "OWN_ROWS", "POOLED"]
__all__ += ["SETTINGS", "SIZES", "Choice", "ChoiceSettings", "Comparison", "FeatureBlock", "MapAverage", "Plan"]
__all__ += ["PooledStart", "Prior", "RemoteTasks", "Sample", "SourceTerms", "SummedTask", "TransferGain", "choose"]
__all__ += ["by_content", "choose_maps", "choose_summed", "compare", "content_order", "joint_error", "joint_left_out"]
__all__ += ["Population", "choose_every", "coefficient_errors", "learn_columns", "learn_own_column", "learn_population"]
__all__ += ["leverages_of", "loo_ridge", "mean_left_out", "merged_task", "order_of", "play", "rank_of"]
__all__ += ["posterior_covariance", "sample_sources", "scattered", "summed_labels", "summed_play", "target_scale"]
__all__ += ["RunFits", "choose_runs", "joint_runs", "ridge_runs", "task_of_sums", "transfer_gain", "tree_threads"]
