"""From least-squares scores to probabilities: one temperature, fitted to left-out scores."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from mixtune._array import Floats

__all__ = ["fit_sharpness", "softmax_scores"]

#: Bounds of log(sharpness): from nearly uniform to nearly certain.
BOUNDS = (-5.0, 5.0)


def fit_sharpness(scores: Floats, labels: Floats, sample_weight: Floats) -> float:
    """The a > 0 at which ``softmax(a * scores)`` has the least log loss, and 1 where scores are not known.

    Labels are smoothed by one row's worth spread over all classes, as Platt did, so that classes that the scores
    separate perfectly do not ask for certainty.

    Parameters
    ----------
    scores : array (n, K)
    labels : array (n,) of int
        The class of each row, 0..K-1.
    sample_weight : array (n,)

    Examples
    --------
    >>> scores = np.array([[1.0, -1.0], [-1.0, 1.0], [0.5, -0.5], [0.5, -0.5]])
    >>> fit_sharpness(scores, np.array([0, 1, 0, 1]), np.ones(4)) > 0
    True
    """
    if len(scores) == 0 or not np.all(np.isfinite(scores)):
        return 1.0
    count, classes = scores.shape
    smooth = 1.0 / (1.0 + np.sum(np.maximum(sample_weight, 1.0)))
    wanted = np.full(scores.shape, smooth / classes)
    wanted[np.arange(count), labels] += 1.0 - smooth
    weighted = wanted * (sample_weight / sample_weight.sum())[:, None]

    def log_loss(log_sharpness: float) -> float:
        return -float(np.sum(weighted * log_softmax(np.exp(log_sharpness) * scores, axis=1)))

    return float(np.exp(minimize_scalar(log_loss, bounds=BOUNDS, method="bounded").x))


def softmax_scores(scores: Floats, sharpness: float) -> Floats:
    """Probabilities (n, K) of scores (n, K)."""
    return np.exp(log_softmax(sharpness * scores, axis=1))
