"""Does a number measured in a few runs say what a sentence of the paper says? Yes, no, or too few runs to judge.

Two kinds of sentences are judged, both by 95% intervals of Student's t over the runs:

* "A exceeds B by v", up to a margin: :func:`judge_value` confirms where the whole interval is within the margin around
  v, and contradicts where it is wholly outside.
* "A is better than B": :func:`judge_sign` confirms where the whole interval is above zero, and contradicts where it is
  below.

The power of a verdict is the probability that so many runs confirm a sentence that is true: for a value, that the
measured one is the paper's; for a sign, that the effect is as large as in the paper's tables. Below
:data:`LEAST_POWER` a sentence is not judged, unless the runs contradict it; with fewer than :data:`LEAST_RUNS` runs it
never is, since so few do not show their own spread.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, stdtr, stdtrit

from mixtune_paper._arrays import Floats

#: Verdicts that would confirm a true sentence less often than this are not given.
LEAST_POWER = 0.8
#: The spread of fewer runs can be small by chance.
LEAST_RUNS = 5


@dataclass(frozen=True)
class Verdict:
    """What the runs say about one sentence.

    Attributes
    ----------
    holds : bool or None
        None where the runs neither confirm nor contradict it.
    power : float
    mean, half : float
        The measured number and half of its 95% interval; the latter is infinite for a single run.
    """

    holds: bool | None
    power: float
    mean: float
    half: float

    @property
    def word(self) -> str:
        """yes, NO, open (enough runs, but between the two) or not judged (too few runs)."""
        return word_for(self.holds, self.power)


def word_for(holds: bool | None, power: float | None) -> str:
    """A verdict in a word.

    Examples
    --------
    >>> word_for(True, 0.9), word_for(None, 0.9), word_for(None, 0.1)
    ('yes', 'open', 'not judged')
    """
    if holds is None:
        return "open" if power is not None and power >= LEAST_POWER else "not judged"
    return "yes" if holds else "NO"


def judge_value(values: Floats, target: float, *, margin: float, truth: float | None = None, runs: int = 0) -> Verdict:
    """Whether the mean of ``values`` over the runs is ``target`` up to ``margin``.

    Parameters
    ----------
    values : array (n,)
        One measured number per run.
    target, margin : float
    truth : float, optional
        The mean at which the power is computed; ``target`` by default.
    runs : int
        How many runs the target itself was measured in, with the same spread; 0 for a target without error.

    Examples
    --------
    >>> measured = np.array([0.088, 0.091, 0.090, 0.092, 0.089])
    >>> judge_value(measured, 0.09, margin=0.02).holds, judge_value(measured, 0.02, margin=0.02).holds
    (True, False)
    >>> judge_value(measured[:2], 0.09, margin=0.02).word
    'not judged'
    """
    mean, error, half = _spread(values, runs)
    if len(values) < LEAST_RUNS:
        return Verdict(None, 0.0, mean, half)
    away = abs(mean - target)
    power = _power_of_value(len(values), error, half, margin, 0.0 if truth is None else truth - target)
    holds = None
    if away - half > margin:
        holds = False
    elif away + half <= margin and power >= LEAST_POWER:
        holds = True
    return Verdict(holds, power, mean, half)


def judge_sign(values: Floats, *, effect: float) -> Verdict:
    """Whether the mean of ``values`` over the runs is positive; ``effect`` is the paper's, for the power.

    Examples
    --------
    >>> judge_sign(np.array([0.2, 0.3, 0.25, 0.22, 0.24]), effect=0.25).word
    'yes'
    >>> judge_sign(np.array([0.2, -0.3, 0.25, 0.22, 0.24]), effect=0.25).word
    'not judged'
    """
    mean, error, half = _spread(values)
    if len(values) < LEAST_RUNS:
        return Verdict(None, 0.0, mean, half)
    power = float(effect > 0)
    if error > 0:
        power = float(stdtr(len(values) - 1, (effect - half) / error))
    holds = None
    if mean + half < 0:
        holds = False
    elif mean - half > 0 and power >= LEAST_POWER:
        holds = True
    return Verdict(holds, power, mean, half)


def judge_share(hits: ArrayLike, least: float) -> Verdict:
    """Whether something happens in at least the share ``least`` of all runs, by exact binomial limits.

    The power is that for something that always happens: 1 from so many runs on that hits in all of them confirm it.

    Examples
    --------
    >>> [judge_share(np.ones(runs), 0.9).word for runs in (5, 30)], judge_share(np.zeros(5), 0.9).word
    (['not judged', 'yes'], 'NO')
    """
    count, hit = np.size(hits), int(np.sum(hits))
    low = float(betaincinv(hit, count - hit + 1, 0.05)) if hit else 0.0
    high = float(betaincinv(hit + 1, count - hit, 0.95)) if hit < count else 1.0
    power = float(0.05 ** (1 / count) >= least)
    holds = True if low >= least else False if high < least else None
    return Verdict(holds, power, hit / count, (high - low) / 2)


def all_of(verdicts: Iterable[bool | None]) -> bool | None:
    """Several sentences together: no if one fails, not judged if one could not be judged.

    Examples
    --------
    >>> all_of([True, True]), all_of([True, None]), all_of([None, False])
    (True, None, False)
    """
    given = list(verdicts)
    if False in given:
        return False
    return None if None in given else True


def _spread(values: Floats, runs: int = 0) -> tuple[float, float, float]:
    """Mean, its standard error (with that of a mean over ``runs`` runs), and half of its 95% interval."""
    count, mean = len(values), float(np.mean(values))
    if count < 2:
        return mean, np.inf, np.inf
    error = float(values.std(ddof=1) * np.sqrt(1 / count + (1 / runs if runs else 0.0)))
    return mean, error, float(stdtrit(count - 1, 0.975)) * error


def _power_of_value(count: int, error: float, half: float, margin: float, away: float) -> float:
    """The probability that the whole interval is within the margin, for a mean that is ``away`` from the target."""
    room = margin - half
    if room <= 0:
        return 0.0
    if error == 0:
        return float(abs(away) <= room)
    return float(stdtr(count - 1, (room - away) / error) - stdtr(count - 1, (-room - away) / error))
