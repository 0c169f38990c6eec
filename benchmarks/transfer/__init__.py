"""mixtune against the alternatives on real data: the same cases and yardstick, every method with its defaults.

A :class:`Problem` (domains, some of which take the focal role) gives :class:`Case` after case. Every :class:`Method` is
fitted on each, and :func:`summarise` relates its errors to those of a ridge regression on the focal rows alone.
``python -m benchmarks transfer`` runs it on the exams, the house sales and the rated texts.
"""

from benchmarks.transfer.methods import OURS, YARDSTICK, Method, Model, available_methods, known_methods, methods_named
from benchmarks.transfer.problems import PROBLEMS, VARIANTS, Case, Problem, cases, named_problem, problem_from_domains
from benchmarks.transfer.runs import COVERAGE, Result, Summary, run, suitable_methods, summarise

__all__ = [
    "COVERAGE",
    "OURS",
    "PROBLEMS",
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
    "known_methods",
    "methods_named",
    "named_problem",
    "problem_from_domains",
    "run",
    "suitable_methods",
    "summarise",
]
