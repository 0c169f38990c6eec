"""Tasks and their textbook twins, shared by the tests of selection."""

import numpy as np

from mixtune.selection import Task


def make_task(rng, n, p, *, head=None, noise=1.0, weights=None, intercept=True, level=0.3):
    """Rows with a constant column first where there is an intercept; ``head`` is that of the slopes."""
    X = rng.standard_normal((n, p)) + 0.4
    head = np.zeros(p) if head is None else head
    y = X @ head + noise * rng.standard_normal(n) + (level if intercept else 0.0)
    design = np.column_stack([np.ones(n), X]) if intercept else X
    return Task(design, y, np.ones(n) if weights is None else rng.choice(weights, n), intercept)


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
    return focal, sources, np.concatenate([[0.3], truth])


def without_row(task, i):
    """The task without one copy of row ``i``, or without all of it where its weight is below 1."""
    weight = task.weight.copy()
    weight[i] -= min(weight[i], 1.0)
    kept = weight > 0
    return Task(task.design[kept], task.y[kept], weight[kept], task.intercept)


def posterior_mean(task, mean, covariance, noise, *, free_intercept):
    """The head of least penalised squares, its intercept unpenalised where it is free, by the normal equations."""
    mean, precision = np.asarray(mean, float), np.linalg.inv(covariance)
    if free_intercept and task.intercept:
        mean = np.concatenate([[0.0], mean])
        padded = np.zeros((len(mean), len(mean)))
        padded[1:, 1:] = precision
        precision = padded
    gram = (task.design * task.weight[:, None]).T @ task.design / noise
    return np.linalg.solve(gram + precision, task.design.T @ (task.weight * task.y) / noise + precision @ mean)


def left_out_by_refitting(task, fit):
    """Residual of every row by ``fit(task)`` without it."""
    return np.array([task.y[i] - task.design[i] @ fit(without_row(task, i)) for i in range(len(task.y))])
