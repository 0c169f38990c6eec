"""Shares of the candidates: what plays and leave-one-out make of them, and the guard against harm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixtune.selection._compare import compare, gain_posterior
from mixtune.selection._families import Label
from mixtune.selection._task import Floats, Task

__all__ = [
    "ENOUGH",
    "Play",
    "alone_of",
    "gains_of",
    "guarded",
    "inflation_of",
    "mix",
    "play_errors_of",
    "players_of",
    "prior_shares",
    "scores_of",
    "shares_of",
    "stacked",
]

#: Sources that have to play for their say to count in full.
ENOUGH = 24
#: Weight of the pull towards prior shares where there are enough plays; it grows as the square of what is missing.
EQUAL = 0.005
#: Sources whose plays say nothing yet of single candidates; of each more, an error larger by this part of the least one
#: takes a factor of e from a candidate's prior share.
SILENT, TELLING = 12, 0.6
#: Residuals below this part of the targets' standard deviation are rounding.
EXACT = 1e-6


@dataclass(frozen=True, eq=False)
class Play:
    """Residuals (C, m) on the rows kept for testing, their weights, and residuals of left-out rows (C, n).

    ``player`` is the source, ``alone`` the focal-only candidate that leave-one-out would have taken.
    """

    player: int
    residuals: Floats
    weight: Floats
    left_out: Floats
    alone: int

    @property
    def errors(self) -> Floats:
        return (self.residuals**2) @ (self.weight / self.weight.sum())


def shares_of(scores: Floats, equal: Floats, plays: Sequence[Play], count: float, *, enough: int = ENOUGH) -> Floats:
    """Shares of the candidates: stacked over plays, where ``enough`` sources decide freely, then tilted by LOO."""
    share = equal
    trust = 4.0
    if plays:
        players = len(players_of(plays))
        share = stacked(plays, equal, EQUAL * max(enough / players, 1.0) ** 2, told=max(players - SILENT, 0) / TELLING)
        trust = 6.0 + 34.0 * min(players / ENOUGH, 1.0) if players > 6 else 4.0
    finite = np.isfinite(scores)
    if not finite.any():
        # Nothing can be left out: what the plays say, or without any the last candidate.
        return share if plays else np.eye(len(scores))[-1]
    best = max(float(scores[finite].min()), 1e-12)
    with np.errstate(over="ignore"):
        exponent = np.where(finite, -(scores - best) / (trust * best / count), -np.inf) + np.log(share)
    tilted = np.exp(exponent - exponent.max())
    return tilted / tilted.sum()


def guarded(task: Task, left_out: Floats, shares: Floats, focal: Floats, plays: Sequence[Play]) -> Floats:
    """Move shares to the focal-only fit by as much as it is likelier than not that transfer does harm here.

    Sources that agree with one another, and not with the focal domain, pass every play; only the focal rows can tell.
    """
    ours, alone = mix(shares, left_out), mix(focal, left_out)
    grid, share = gain_posterior(compare("focal only", ours, alone, task.weight), gains_of(plays, shares), task.count)
    harm = max(2 * float(share @ (grid > 0)) - 1, 0.0)
    return (1 - harm) * shares + harm * focal


def stacked(plays: Sequence[Play], equal: Floats, pull: float, *, told: float = 0.0, steps: int = 300) -> Floats:
    """Simplex weights of least mean squared error of the averaged prediction over plays, by exponentiated gradient.

    The error of averages is flat in many directions: there, candidates with smaller errors of their own come first, by
    exp(-told error).
    """
    cross = np.zeros((len(equal), len(equal)))
    # Many rows tell a play's error better than few, but of one source only.
    says = np.sqrt([play.weight.sum() for play in plays])
    for play, say in zip(plays, says / says.sum()):
        good = np.sort(play.errors)[: max(3, len(equal) // 4)]
        weight = play.weight / play.weight.sum() / max(float(np.median(good)), 1e-12)
        # Two absurd rows must not decide: residuals count up to five times their typical size.
        limit = 5.0 * 1.4826 * float(np.min(np.median(np.abs(play.residuals), axis=1)))
        # Where a candidate is exact (targets that do not vary), the limit is 0 and the play says nothing.
        kept = np.clip(play.residuals, -limit, limit)
        cross += say * (kept * weight) @ kept.T
    errors = np.diagonal(cross)
    prior = np.maximum(equal * np.exp(-told * (errors - errors.min())), 1e-300)
    prior /= prior.sum()
    share = prior.copy()
    for _ in range(steps):
        slope = 2 * cross @ share + pull * np.log(np.maximum(share, 1e-300) / prior)
        share = share * np.exp(-0.5 * (slope - slope.min()))
        share = np.maximum(share / share.sum(), 1e-300)
    return share / share.sum()


def prior_shares(names: Floats) -> Floats:
    """Every family has the same share before anything is known, split evenly within."""
    counts = {name: int(np.sum(names == name)) for name in set(names.tolist())}
    return np.array([1.0 / counts[name] for name in names.tolist()]) / len(counts)


def scores_of(task: Task, left_out: Floats) -> Floats:
    """Leave-one-out scores: mean squares that grow only linearly beyond three times the typical residual."""
    size = np.abs(left_out)
    # A row of weight 2 counts as two rows, in the median as well.
    weights = None if np.ptp(task.weight) == 0 else np.broadcast_to(task.weight, size.shape)
    middle = np.quantile(size, 0.5, axis=1, weights=weights, method="inverted_cdf")
    limit = 3.0 * 1.4826 * float(np.min(middle))
    # Where a candidate is exact to rounding, its residuals are no measure of what is typical.
    if not EXACT < limit < np.inf:
        return task.error(left_out)
    with np.errstate(over="ignore", invalid="ignore"):
        loss = np.where(size <= limit, size**2, limit * (2 * size - limit))
    return loss @ (task.weight / task.weight.sum())


def play_errors_of(plays: Sequence[Play]) -> Floats | None:
    if not plays:
        return None
    logs = np.log(np.maximum([play.errors for play in plays], 1e-300))
    return np.exp(np.mean(logs - logs.min(axis=1, keepdims=True), axis=0))


def inflation_of(plays: Sequence[Play], shares: Floats) -> float:
    """How much larger the root mean squared error of plays is on their tests than leave-one-out says, in [1, 2]."""
    ratios = []
    for play in plays:
        inside = float(np.mean(mix(shares, play.left_out) ** 2))
        outside = float((shares @ play.residuals) ** 2 @ (play.weight / play.weight.sum()))
        if 0 < inside < np.inf and outside > 0:
            ratios.append(np.log(outside / inside))
    return float(np.clip(np.exp(0.5 * np.mean(ratios)), 1.0, 2.0)) if ratios else 1.0


def gains_of(plays: Sequence[Play], shares: Floats) -> Floats:
    """Of each source that played: log of its root mean squared error on tests, of ours over the focal-only fit."""
    ours = np.array([(shares @ p.residuals) ** 2 @ (p.weight / p.weight.sum()) for p in plays])
    alone = np.array([p.errors[p.alone] for p in plays])
    # Targets have unit variance: an error below a thousandth (a play of one class only, say) counts as that.
    gains = 0.5 * np.log(np.maximum(ours, 1e-6) / np.maximum(alone, 1e-6))
    players = np.array([play.player for play in plays])
    return np.array([gains[players == player].mean() for player in players_of(plays)])


def players_of(plays: Sequence[Play]) -> list[int]:
    """The sources that played, each once, in their order."""
    return sorted({play.player for play in plays})


def alone_of(labels: Sequence[Label], scores: Floats) -> int:
    """The best of the focal-only candidates."""
    focal = np.array([family == "focal only" for family, _ in labels])
    return int(np.argmin(np.where(focal, np.nan_to_num(scores, posinf=1e300), np.inf)))


def mix(shares: Floats, left_out: Floats) -> Floats:
    """Averaged residuals; candidates without a share do not count, whatever they say."""
    used = shares > 0
    return shares[used] @ left_out[used]
