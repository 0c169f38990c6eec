"""Samples and their textbook twins, shared by the tests of selection."""

import numpy as np

from mixtune.choice import Sample
from mixtune.moments import Rows


def sample_of(X, y, weight=None, *, intercept=True):
    """A sample of rows; the constant is not among the columns."""
    y = np.asarray(y, dtype=float)
    return Sample.of(Rows(np.asarray(X, dtype=float), y, weight), intercept=intercept)


def changed(sample, *, X=None, y=None, weight=None):
    """The sample with other columns, targets or weights."""
    rows = sample.rows
    return sample_of(
        rows.X if X is None else X,
        rows.y if y is None else y,
        rows.sample_weight if weight is None else weight,
        intercept=sample.intercept,
    )


def make_task(rng, n, p, *, head=None, noise=1.0, weights=None, intercept=True, level=0.3):
    """Rows of one domain; ``head`` is that of the slopes."""
    X = rng.standard_normal((n, p)) + 0.4
    head = np.zeros(p) if head is None else head
    y = X @ head + noise * rng.standard_normal(n) + (level if intercept else 0.0)
    return sample_of(X, y, None if weights is None else rng.choice(weights, n), intercept=intercept)


def make_family(seed=0, *, n=20, sizes=(60,) * 6, p=3, spread=0.2, noise=1.0, flipped=0, outputs=(1.0,)):
    """A focal task, sources whose heads vary about a common one (some of them reversed), and the focal head."""
    rng = np.random.default_rng(seed)
    common = 1.5 * rng.standard_normal(p)
    truth = common + spread * rng.standard_normal(p)
    focal = make_task(rng, n, p, head=truth, noise=noise)
    sources = [
        make_task(rng, m, p, head=(-1 if i < flipped else 1) * common + spread * rng.standard_normal(p), noise=noise)
        for i, m in enumerate(sizes)
    ]
    return focal, sources, np.concatenate([truth, [0.3]])


def design_of(sample):
    """The columns, and the constant as the last one where there is an intercept."""
    return sample.full.rows.X


def without_row(sample, i):
    """The sample without one copy of row ``i``, or without all of it where its weight is below 1."""
    weight = sample.rows.weight.copy()
    weight[i] -= min(weight[i], 1.0)
    return changed(sample, weight=weight).part(weight > 0)


def posterior_mean(sample, mean, covariance, noise, *, free_intercept):
    """The head of least penalised squares, its intercept unpenalised where it is free, by the normal equations."""
    mean, precision = np.asarray(mean, float), np.linalg.inv(covariance)
    if free_intercept and sample.intercept:
        mean = np.concatenate([mean, [0.0]])
        precision = np.pad(precision, (0, 1))
    design, weight = design_of(sample), sample.rows.weight
    gram = (design * weight[:, None]).T @ design / noise
    return np.linalg.solve(gram + precision, design.T @ (weight * sample.rows.y) / noise + precision @ mean)


def left_out_by_refitting(sample, fit):
    """Residual of every row by ``fit(sample)`` without it."""
    y, design = sample.rows.y, design_of(sample)
    return np.array([y[i] - design[i] @ fit(without_row(sample, i)) for i in range(len(y))])
