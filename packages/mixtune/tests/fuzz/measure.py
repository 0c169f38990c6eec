"""The largest differences of predictions where there should be none: python tests/fuzz/measure.py [--problems N]

Random problems as in test_invariances.py, and for every estimator and change the largest difference of a prediction, in
standard deviations of all targets (of probabilities: absolute), as a Markdown table.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from fuzz.problems import CHOICES, CLASSIFIERS, REGRESSORS, draw
from fuzz.test_invariances import SAME, spread_of


def differences(problem, name, rng):
    """The largest difference of every change."""
    make = {**REGRESSORS, **CLASSIFIERS}[name]
    classes = name in CLASSIFIERS
    problem = problem.labels() if classes else problem
    if classes and len({label for y in problem.y for label in y}) < 2:
        return {}
    predict = lambda each: getattr(each.fit(make), "predict_proba" if classes else "predict")(each.new)  # noqa: E731
    here, spread = predict(problem), 1.0 if classes else spread_of(problem)
    found = {change: predict(SAME[change](problem, rng)) for change in SAME}
    if not classes:
        found["targets"] = predict(problem.map(y=lambda y: 1e3 * (y + 1.7))) / 1e3 - 1.7
    return {change: float(np.max(np.abs(there - here))) / spread for change, there in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--estimators", nargs="*", default=[*REGRESSORS, *CLASSIFIERS])
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    chance, largest = random.Random(given.seed), defaultdict(float)
    for number in range(given.problems):
        shape = {name: chance.choice(values) for name, values in CHOICES.items()}
        problem = draw(chance.randrange(2**32), **shape)
        for name in given.estimators:
            for change, value in differences(problem, name, np.random.default_rng(number)).items():
                largest[name, change] = max(largest[name, change], value)
        print(f"\r{number + 1} of {given.problems}", end="", file=sys.stderr)
    changes = [*SAME, "targets"]
    print("\n| estimator | " + " | ".join(change.replace("_", " ") for change in changes) + " |")
    print("|---" * (len(changes) + 1) + "|")
    for name in given.estimators:
        print(f"| {name} | " + " | ".join(f"{largest[name, change]:.0e}" for change in changes) + " |")


if __name__ == "__main__":
    main()
