"""What else one could have done with the same rows: left-out residuals of the alternatives, and paired comparisons."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune._messages import Renamed, deprecated
from mixtune.arrays import Floats
from mixtune.choice._settings import SETTINGS
from mixtune.moments import Center, GramSystem, Regression, RowSystem, Sample, System, best_ridge

#: What methods are called in comparisons, and what they were called in version 0.1.
MIXTUNE, OWN_ROWS, POOLED, MEAN_OF_LOCALS = "mixtune", "own rows alone", "pooled", "mean of local models"
FORMER_NAMES = {"ours": MIXTUNE, "focal only": OWN_ROWS, "joint": POOLED, "mean of locals": MEAN_OF_LOCALS}


class MethodName(str):
    """The name of a method. It also equals its name of version 0.1, with a warning, for one release.

    Examples
    --------
    >>> MethodName("pooled") == "pooled"
    True
    """

    __slots__ = ()

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, str) and FORMER_NAMES.get(other) == str(self):
            warnings.warn(deprecated(other, str(self)), DeprecationWarning, stacklevel=2)
            return True
        return str.__eq__(self, other)

    def __ne__(self, other: Any) -> bool:
        return not self == other

    __hash__ = str.__hash__


@dataclass(frozen=True)
class Comparison:
    """Leave-one-out mean squared error of a method on the focal rows, and the comparison of mixtune with it.

    Attributes
    ----------
    method : str
    loo_error, standard_error : float
    ratio, ratio_low, ratio_high : float
        Root mean squared error of mixtune divided by that of this method, with a 95% interval over the rows.
    """

    method: str
    loo_error: float
    standard_error: float
    ratio: float
    ratio_low: float
    ratio_high: float

    def __post_init__(self) -> None:
        # Files of version 0.1 hold former names.
        object.__setattr__(self, "method", MethodName(FORMER_NAMES.get(self.method, self.method)))


@dataclass(frozen=True)
class TransferGain:
    """Relative reduction of the root mean squared error compared with own rows alone, with a 95% interval.

    Attributes
    ----------
    reduction, low, high : float
        Estimated from cross-domain validation, as a prior, and leave-one-out on the focal rows, as a measurement.
    from_rows : float
        The reduction by leave-one-out on the focal rows alone.
    from_validation : float or None
        The reduction in cross-domain validation: the geometric mean over sources that took the focal role, on their
        test rows.
    """

    reduction: float
    low: float
    high: float
    from_rows: float
    from_validation: float | None
    from_plays = Renamed("from_validation")


def gain_posterior(alone: Comparison, play_gains: Floats, count: float) -> tuple[Floats, Floats]:
    """What is known of the log ratio of errors, transfer over focal rows alone: a grid, and probabilities on it.

    Cross-domain validation says what is usual, N(mean, spread between sources); with a small probability the focal
    domain is unlike them, N(0, 0.5). Leave-one-out on the focal rows is the likelihood, so that rows which contradict
    validation clearly enough are believed; a spread seen on ``count`` rows is not believed below 0.5/sqrt(count).
    """
    grid = np.linspace(-3.0, 3.0, 1201)
    unlike, wide = SETTINGS.unlike_probability, SETTINGS.unlike_spread
    density = np.exp(-0.5 * (grid / wide) ** 2) / wide
    if len(play_gains) > 2:
        usual = float(np.mean(play_gains))
        between = max(float(np.std(play_gains, ddof=1)) * (1 + 1 / len(play_gains)) ** 0.5, 0.02)
        density = unlike * density + (1 - unlike) * np.exp(-0.5 * ((grid - usual) / between) ** 2) / between
    if 0 < alone.ratio_low <= alone.ratio_high < np.inf:
        level = float(np.log(alone.ratio))
        spread = max(float(np.log(alone.ratio_high / alone.ratio_low)) / (2 * 1.96), 0.5 / count**0.5)
        density = density * np.exp(-0.5 * ((grid - np.clip(level, -3, 3)) / spread) ** 2)
    total = float(density.sum())
    if total <= 1e-280:  # rows and validation exclude each other: the rows are what is to be predicted
        density = np.exp(-0.5 * ((grid - np.clip(np.log(max(alone.ratio, 1e-3)), -3, 3)) / 0.05) ** 2)
        total = float(density.sum())
    return grid, density / total


def transfer_gain(alone: Comparison, play_gains: Floats, count: float) -> TransferGain:
    """By what part transfer cuts the error, from leave-one-out and validation together; see :func:`gain_posterior`.

    Examples
    --------
    >>> rows = Comparison("own rows alone", 1.0, 0.1, ratio=0.9, ratio_low=0.8, ratio_high=1.0125)
    >>> round(transfer_gain(rows, np.empty(0), 100.0).reduction, 1)
    0.1
    >>> bool(transfer_gain(rows, np.log([0.7, 0.8, 0.75, 0.72]), 100.0).reduction > 0.15)
    True
    """
    from_validation = 1 - float(np.exp(np.mean(play_gains))) if len(play_gains) else None
    grid, share = gain_posterior(alone, play_gains, count)
    # Half of a grid point's share lies below it.
    below = np.cumsum(share) - share / 2
    low, high = (float(np.interp(level, below, grid)) for level in (0.025, 0.975))
    middle = float(share @ grid)
    return TransferGain(
        1 - float(np.exp(middle)), 1 - float(np.exp(high)), 1 - float(np.exp(low)), 1 - alone.ratio, from_validation
    )


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
            if bool(np.all(means == 0)):
                return Comparison(method, 0.0, 0.0, 1.0, 1.0, 1.0)
            equal = bool(means[0] == means[1])
            ratio = 1.0 if equal else 0.0 if means[0] < means[1] else np.inf
            return Comparison(method, float(means[1]), float(np.nan_to_num(error, nan=np.inf)), ratio, 0.0, np.inf)
        apart = squares[0] / means[0] - squares[1] / means[1]
    half = 1.96 * 0.5 * float(np.sqrt(share @ apart**2 / max(count - 1, 1.0)))
    ratio = float(np.sqrt(means[0] / means[1]))
    return Comparison(
        method, float(means[1]), float(error), ratio, ratio * float(np.exp(-half)), ratio * float(np.exp(half))
    )


def joint_left_out(focal: Sample, pooled: System) -> Floats:
    """Left-out residuals of ridge regression on all rows pooled, at the ridge of least leave-one-out error.

    Parameters
    ----------
    focal : Sample
    pooled : System
        The normal equations of the focal domain and all sources together, as :func:`mixtune.moments.weighted_system`
        makes them of their moments. All rows lie about their common mean, which is therefore the intercept.
    """
    total = float(pooled.apply(np.eye(focal.moments.n_features)[:, -1:])[-1, 0])
    if isinstance(pooled, RowSystem):
        slopes: System = RowSystem(pooled.rows[:, :-1], pooled.targets)
    else:
        assert isinstance(pooled, GramSystem)
        slopes = GramSystem(pooled.gram[:-1, :-1], pooled.cross[:-1], pooled.square)
    middle = Center(np.zeros(focal.free.width), np.zeros(()), total) if focal.intercept else None
    joint = Regression(slopes, focal.known, total, middle)
    ridges = SETTINGS.joint_ridges * joint.mean_eigenvalue
    left_out = joint.ridge_left_out(ridges)
    return left_out[best_ridge(ridges, joint.error(left_out))]
