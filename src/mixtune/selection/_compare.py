"""What else one could have done with the same rows: left-out residuals of the alternatives, and paired comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixtune.selection._task import Floats, Paths, Task, primal_paths

__all__ = ["Comparison", "TransferGain", "compare", "joint_left_out", "mean_left_out", "transfer_gain"]

RIDGES = np.logspace(-5, 1, 13)


@dataclass(frozen=True)
class Comparison:
    """Leave-one-out mean squared error of a method on the focal rows, and how the chosen fit compares.

    Attributes
    ----------
    method : str
    loo_error, standard_error : float
    ratio, ratio_low, ratio_high : float
        Root mean squared error of the chosen fit over that of this method, with a 95% interval over the rows.
    """

    method: str
    loo_error: float
    standard_error: float
    ratio: float
    ratio_low: float
    ratio_high: float


@dataclass(frozen=True)
class TransferGain:
    """By what part transfer cuts the error (RMSE) of the focal rows alone, with a 95% interval.

    Attributes
    ----------
    reduction, low, high : float
        From both of the following: the plays say what is usual, the focal rows what is different here.
    from_rows : float
        By leave-one-out on the focal rows.
    from_plays : float or None
        The geometric mean over sources that played the focal domain, on rows kept for testing.
    """

    reduction: float
    low: float
    high: float
    from_rows: float
    from_plays: float | None


def transfer_gain(alone: Comparison, play_gains: Floats) -> TransferGain:
    """Combine the comparison with the focal rows alone and the log ratios of the plays, as normal prior and likelihood.

    Examples
    --------
    >>> rows = Comparison("focal only", 1.0, 0.1, ratio=0.9, ratio_low=0.8, ratio_high=1.0125)
    >>> round(transfer_gain(rows, np.empty(0)).reduction, 3)
    0.1
    >>> round(transfer_gain(rows, np.log([0.7, 0.8, 0.75, 0.72])).reduction, 3)
    0.177
    """
    usable = 0 < alone.ratio_low <= alone.ratio_high < np.inf
    level, spread = 0.0, np.inf
    if usable:
        level = float(np.log(alone.ratio))
        spread = max(float(np.log(alone.ratio_high / alone.ratio_low)) / (2 * 1.96), 1e-6)
    if len(play_gains) > 2:
        usual = float(np.mean(play_gains))
        between = max(float(np.std(play_gains, ddof=1)) * (1 + 1 / len(play_gains)) ** 0.5, 1e-6)
        precision = 1 / between**2 + 1 / spread**2
        level = (usual / between**2 + level / spread**2) / precision
        spread = precision**-0.5
    from_plays = 1 - float(np.exp(np.mean(play_gains))) if len(play_gains) else None
    if not np.isfinite(spread):
        return TransferGain(0.0, -np.inf, 1.0, 1 - alone.ratio, from_plays)
    low, high = (1 - float(np.exp(level + side * 1.96 * spread)) for side in (1, -1))
    return TransferGain(1 - float(np.exp(level)), low, high, 1 - alone.ratio, from_plays)


def compare(method: str, ours: Floats, other: Floats, weight: Floats) -> Comparison:
    """Compare squared left-out residuals row by row; the interval is the delta method's, for the log of the ratio.

    Examples
    --------
    >>> found = compare("twice as far off", np.array([1.0, -1.0, 1.0]), np.array([2.0, 2.0, -2.0]), np.ones(3))
    >>> found.ratio, found.ratio_low, found.loo_error
    (0.5, 0.5, 4.0)
    """
    share = weight / weight.sum()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        squares = np.stack([ours, other]) ** 2
        means = squares @ share
        count = float(weight.sum())
        error = np.sqrt(share @ (squares[1] - means[1]) ** 2 / max(count - 1, 1.0))
        if not (np.all(np.isfinite(means)) and np.all(means > 0)):
            equal = bool(means[0] == means[1])
            ratio = 1.0 if equal else 0.0 if means[0] < means[1] else np.inf
            return Comparison(method, float(means[1]), float(np.nan_to_num(error, nan=np.inf)), ratio, 0.0, np.inf)
        apart = squares[0] / means[0] - squares[1] / means[1]
    half = 1.96 * 0.5 * float(np.sqrt(share @ apart**2 / max(count - 1, 1.0)))
    ratio = float(np.sqrt(means[0] / means[1]))
    return Comparison(
        method, float(means[1]), float(error), ratio, ratio * float(np.exp(-half)), ratio * float(np.exp(half))
    )


def joint_left_out(focal: Task, sources: Sequence[Task]) -> Floats:
    """Left-out residuals of ridge regression on all rows pooled, at the ridge of least leave-one-out error.

    All rows lie about their common mean, which is therefore the intercept.
    """
    first = 1 if focal.intercept else 0
    parts = [Task(t.design[:, first:], t.y, t.weight, False) for t in (focal, *sources)]
    pooled = parts[0].judged(slice(None))
    pooled.__dict__.update(gram=sum(t.gram for t in parts), cross=sum(t.cross for t in parts))
    size = float(np.trace(pooled.gram)) / max(len(pooled.gram), 1)
    ridges = RIDGES * (size if size > 0 else 1.0)
    width = len(pooled.gram)
    heads, leverages = primal_paths(pooled, np.zeros((1, width)), np.eye(width)[None], 1.0, 1.0 / ridges)
    if focal.intercept:
        leverages = leverages + focal.unit / sum(t.count for t in parts)
    left_out = Paths.of(pooled, heads, leverages, free_intercept=False).left_out
    return left_out[int(np.argmin(focal.error(left_out)))]


def mean_left_out(focal: Task, focal_left_out: Floats, heads: Floats) -> Floats:
    """Left-out residuals of the mean of all local heads: (N, d) of the sources, and the focal one left out of."""
    others = (focal.design @ heads.T).sum(axis=1)
    alone = np.where(np.isfinite(focal_left_out), focal.y - focal_left_out, 0.0)
    return np.where(np.isfinite(focal_left_out), focal.y - (others + alone) / (len(heads) + 1), np.inf)
