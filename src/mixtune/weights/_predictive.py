"""Predictive weights: a domain counts as much as its head predicts the focal one (what made the paper's tables).

With s_i the mean squared error of the local head theta*_i on the focal training set and eta the information-sharing
level, w_i ~ exp(s_i/eta) max(0, s_1 + eta - s_i). Written in x_i = (s_i - s_1)/eta this is exp(x_i) max(0, 1 - x_i):
it cannot overflow, is largest for heads as good as the focal one, and cuts off those worse by eta or more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mixtune._checks import check_nonnegative
from mixtune.errors import DataError
from mixtune.weights._rule import DomainWeights, Evidence, WeightRule, normalise

__all__ = ["PredictiveWeights", "predictive_shares"]


@dataclass(frozen=True)
class PredictiveWeights(WeightRule):
    """Weights from the error of each domain's head on the focal domain; needs moments only, no rows.

    Parameters
    ----------
    sharing : float
        eta >= 0, in units of squared targets: heads whose mean squared error exceeds the focal head's by eta or more
        get no weight. 0 keeps only the focal domain (and exact ties).

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune import Moments, PredictiveWeights
    >>> level = lambda value: Moments.from_rows(np.ones((5, 1)), np.full(5, value))
    >>> moments = [level(1.0), level(1.5), level(9.0)]
    >>> PredictiveWeights(sharing=1.0).weigh(moments=moments, ridge=0.0).values.round(3)
    array([0.509, 0.491, 0.   ])
    """

    sharing: float
    needs: ClassVar[tuple[str, ...]] = ("moments", "heads")

    def __post_init__(self) -> None:
        check_nonnegative("sharing", self.sharing)

    def _weigh(self, evidence: Evidence) -> DomainWeights:
        assert evidence.moments is not None
        focal = evidence.moments[evidence.focal]
        with np.errstate(over="ignore", invalid="ignore"):
            losses = focal.losses(evidence.heads)
        # Heads so far off that their error overflows are infinitely bad, not unknown.
        scores = np.where(np.isnan(losses), np.inf, losses) / (focal.count * focal.n_outputs)
        if not np.isfinite(scores[evidence.focal]):
            raise DataError("the focal head's error on its own rows overflows; rescale features and targets")
        raw = predictive_shares(scores, evidence.focal, self.sharing)
        return DomainWeights(normalise(raw, evidence.focal), evidence.names, evidence.focal, "predictive", scores)


def predictive_shares(scores: np.ndarray[Any, Any], focal: int, sharing: float) -> np.ndarray[Any, Any]:
    """``exp(x) max(0, 1 - x)`` with ``x = (s - s_focal)/sharing``; in [0, 1], and 1 for the focal domain."""
    excess = scores - scores[focal]
    if sharing == 0:
        return (excess == 0).astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        # Beyond |x| = 745 exp(x) is 0 in double precision; the clip keeps 0 * infinity out.
        x = np.clip(excess / sharing, -745.0, 1.0)
        return np.exp(x) * (1 - x)
