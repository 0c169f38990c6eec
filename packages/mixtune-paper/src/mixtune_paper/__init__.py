"""The paper's tables and figures as experiments over the public API: ``mixtune reproduce``.

Each experiment is a module that defines an :class:`Experiment`; this one knows their names and loads them when asked.
"""

from importlib import import_module
from typing import Any

from mixtune.errors import ParameterError
from mixtune_paper._judge import Verdict, judge_share, judge_sign, judge_value, word_for
from mixtune_paper._store import Outcome, ResultsStore
from mixtune_paper._study import (
    Check,
    Executor,
    Experiment,
    Findings,
    Results,
    Summary,
    Table,
    check_together,
    run_study,
)

__all__ = ["EXPERIMENTS", "Check", "Executor", "Experiment", "Findings", "Outcome", "Results", "ResultsStore"]
__all__ += [
    "Summary",
    "Table",
    "Verdict",
    "check_together",
    "experiment",
    "judge_share",
    "judge_sign",
    "judge_value",
    "run_study",
]
__all__ += ["word_for"]

#: Name on the command line -> module here and the name of its Experiment, in the order of the paper.
EXPERIMENTS = {
    "table1": ("american", "TABLE1"),
    "table2": ("american", "TABLE2"),
    "figure1": ("convergence", "FIGURE_1"),
    "figure2": ("convergence", "FIGURE_2"),
    "open-settings": ("american", "OPEN_SETTINGS"),
    "oracle": ("oracle", "ORACLE"),
    "layers": ("convergence", "LAYERS"),
    "robustness": ("robustness", "ROBUSTNESS"),
    "near-optimality": ("near_optimality", "NEAR_OPTIMALITY"),
    "bound": ("bound", "BOUND"),
    "early-stopping": ("early_stopping", "EARLY_STOPPING"),
    "game": ("game", "GAME"),
    "statements": ("statements", "STATEMENTS"),
}


def experiment(name: str) -> Experiment[Any]:
    """The experiment called ``name``.

    Examples
    --------
    >>> from mixtune_paper import experiment
    >>> experiment("figure1").runs
    10
    """
    if name not in EXPERIMENTS:
        raise ParameterError(f"there is no experiment {name!r}; choose from {', '.join(EXPERIMENTS)}")
    module, attribute = EXPERIMENTS[name]
    found: Experiment[Any] = getattr(import_module(f"mixtune_paper.{module}"), attribute)
    return found
