"""What sources without a strong column do to the error: python packages/mixtune/tests/estimators/measure_lacking.py

The problems are those of test_lacking_columns.py. A line gives the mean error of the model, and that of the focal rows
alone, over some problems.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from estimators.test_lacking_columns import SOURCES, error, problem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=6)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| model | sources that lack the column | error | focal rows alone |\n|---|---|---|---|")
    for linear in (True, False):
        for count in (0, SOURCES // 2, SOURCES):
            errors = []
            for seed in range(given.problems):
                train, test = problem(seed, lacking=tuple(f"s{k}" for k in range(1, count + 1)))
                alone = train[train.site == "s0"]
                errors.append([error(rows, test, linear=linear) for rows in (train, alone)])
            ours, own = np.mean(errors, axis=0)
            print(f"| {'linear' if linear else 'default'} | {count} of {SOURCES} | {ours:.3f} | {own:.3f} |")


if __name__ == "__main__":
    main()
