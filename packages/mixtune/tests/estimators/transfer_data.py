"""A small transfer problem shared by the tests of estimators, and the choice that they make of it."""

import numpy as np

from mixtune.choice import FeatureBlock, choose_maps
from mixtune.moments import Rows, Sample


class Standardised:
    """Domains as the estimators with nothing to set see them: pooled rows about their mean with unit spread."""

    def __init__(self, X, y, sources=None, *, intercept=True):
        parts = [(X, y), *((sources or {}).values())]
        rows = np.concatenate([U for U, _ in parts])
        self.shift = rows.mean(axis=0) if intercept else 0.0
        self.scale = np.where(np.ptp(rows, axis=0) > 0, rows.std(axis=0), 1.0)
        self.level = np.concatenate([v for _, v in parts]).mean() if intercept else 0.0
        self.rows = [(self.features(U), v - self.level) for U, v in parts]
        self.intercept = intercept

    def features(self, X):
        return (X - self.shift) / self.scale

    def average(self):
        """The choice, of one map with all features."""
        samples = [Sample.of(Rows(U, v), intercept=self.intercept) for U, v in self.rows]
        width = samples[0].rows.X.shape[1]
        return choose_maps([samples], [FeatureBlock("inputs", np.arange(width))], width)

    def predict(self, head, X):
        """Predictions by coefficients as a choice has them."""
        U = self.features(X)
        design = np.column_stack([U, np.ones(len(U))]) if self.intercept else U
        return design @ head + self.level


def make_transfer(seed=0, *, n=12, sizes=(30, 25, 40), p=4, outputs=None, noise=0.3):
    """Focal rows, and sources of which the last one is reversed."""
    rng = np.random.default_rng(seed)
    head = (p,) if outputs is None else (p, outputs)
    truth = rng.standard_normal(head)

    def draw(rows, coef, level):
        X = rng.standard_normal((rows, p)) * np.arange(1, p + 1) + level
        shape = (rows,) if outputs is None else (rows, outputs)
        return X, X @ coef + 0.5 + noise * rng.standard_normal(shape)

    X, y = draw(n, truth, 0.5)
    signs = [1.0] * (len(sizes) - 1) + [-1.0]
    sources = {
        f"s{i}": draw(rows, sign * truth + 0.05 * rng.standard_normal(head), 0.1 * i)
        for i, (rows, sign) in enumerate(zip(sizes, signs))
    }
    return X, y, sources
