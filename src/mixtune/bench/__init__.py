"""Benchmarks against what people would use instead: the same cases, the same yardstick, every method with its defaults.

A :class:`Problem` (domains, some of which play the focal one) gives :class:`Case` after case; every :class:`Method` is
fitted on each, and :func:`summarise` sets its errors against those of a ridge on the focal rows alone.
"""

from mixtune.bench._methods import OURS, YARDSTICK, Method, Model
from mixtune.bench._named import PROBLEMS, named_problem
from mixtune.bench._problem import VARIANTS, Case, Problem, cases, problem_from_domains
from mixtune.bench._registry import available_methods, known_methods, methods_named
from mixtune.bench._run import COVERAGE, Result, Summary, run, suitable_methods, summarise

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
