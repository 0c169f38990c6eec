"""mixtune against the alternatives on real data: the same cases and yardstick, every method with its defaults.

A :class:`Problem` (domains, some of which take the focal role) gives :class:`Case` after case. Every :class:`Method` is
fitted on each, and :func:`summarise` relates its errors to those of a ridge regression on the focal rows alone.
``python -m benchmarks transfer`` runs it on the exams, the house sales and the rated texts, which the pages quote,
or on the problems of :mod:`benchmarks.transfer.tables`, each at several numbers of focal rows.
"""

from benchmarks.transfer.methods import OURS, YARDSTICK, Method, Model, available_methods, known_methods, methods_named
from benchmarks.transfer.problems import (
    PROBLEMS,
    VARIANTS,
    Case,
    Problem,
    cases,
    known_problem,
    named_problem,
    problem_from_domains,
)
from benchmarks.transfer.runs import (
    COVERAGE,
    Result,
    Summary,
    geometric_mean,
    run,
    run_case,
    suitable_methods,
    summarise,
)
from benchmarks.transfer.tables import CLASSES, TABLES

__all__ = [
    "CLASSES",
    "COVERAGE",
    "OURS",
    "PROBLEMS",
    "TABLES",
    "VARIANTS",
    "YARDSTICK",
    "Case",
    "Method",
    "Model",
    "Problem",
    "Result",
    "Summary",
    "available_methods",
    "cases",
    "geometric_mean",
    "known_methods",
    "known_problem",
    "methods_named",
    "named_problem",
    "problem_from_domains",
    "run",
    "run_case",
    "suitable_methods",
    "summarise",
]
