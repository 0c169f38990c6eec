"""What a pricing run hands back."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mixtune.options._boundary import ExerciseRegion
from mixtune.options._estimate import Estimate
from mixtune.options._greeks import Greek
from mixtune.options._induction import Policy
from mixtune.options._upper import UpperBound

__all__ = ["PriceResult"]


@dataclass(frozen=True, eq=False)
class PriceResult:
    """The price of an American or Bermudan option.

    Attributes
    ----------
    price, standard_error, ci_low, ci_high : float
        A lower bound in expectation: the mean discounted cash flow of the learnt exercise policy on paths that did not
        train it, with its 95% interval; or the immediate payoff where that is more.
    european : Estimate
        The same paths held to maturity: exercising early must be worth at least this.
    upper : UpperBound or None
        A dual upper bound, where asked for.
    exercise_probability : array (dates + 1,)
        Share of evaluation paths that exercise at each date (zero payoffs at maturity excluded).
    region : ExerciseRegion or None
        Where it pays to stop, for one and two assets.
    greeks : dict of str to Greek
    policy : Policy
    seconds : dict of str to float
        Time spent simulating, training, evaluating, bounding.
    settings : dict
        All that is needed to repeat the run.
    """

    price: float
    standard_error: float
    european: Estimate
    exercise_probability: np.ndarray[Any, Any]
    policy: Policy
    upper: UpperBound | None = None
    region: ExerciseRegion | None = None
    greeks: dict[str, Greek] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def ci_low(self) -> float:
        return self.price - 1.96 * self.standard_error

    @property
    def ci_high(self) -> float:
        return self.price + 1.96 * self.standard_error

    @property
    def below_european(self) -> bool:
        """Whether holding to maturity did better on the same paths: noise, or a policy that needs more paths."""
        return self.price < self.european.value

    @property
    def gap(self) -> float | None:
        """Upper bound less price: what better policies and martingales could still gain."""
        return None if self.upper is None else self.upper.price - self.price

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        facts: dict[str, Any] = {
            "price": self.price,
            "standard_error": self.standard_error,
            "ci_low": self.ci_low,
            "ci_high": self.ci_high,
            "european": self.european.value,
            "european_ci_low": self.european.ci_low,
            "european_ci_high": self.european.ci_high,
            "below_european": self.below_european,
            "exercise_probability": self.exercise_probability.tolist(),
        }
        if self.upper is not None:
            facts |= {
                "upper_price": self.upper.price,
                "upper_ci_low": self.upper.ci_low,
                "upper_ci_high": self.upper.ci_high,
                "upper_method": self.upper.method,
                "gap": self.gap,
            }
        for name, greek in self.greeks.items():
            facts[name] = greek.value.tolist()
            facts[f"{name}_standard_error"] = greek.standard_error.tolist()
        if self.region is not None and self.region.boundary is not None:
            facts["boundary"] = [None if math.isnan(b) else b for b in self.region.boundary.tolist()]
        return facts | {"seconds": self.seconds, "settings": self.settings}
