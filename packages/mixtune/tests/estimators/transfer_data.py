"""A small transfer problem shared by the tests of estimators."""

import numpy as np


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
