"""American and Bermudan options: grids, processes, payoffs, backward induction, bounds."""

from mixtune.options._boundary import ExerciseRegion, exercise_region
from mixtune.options._estimate import Estimate
from mixtune.options._greeks import Greek
from mixtune.options._grid import TimeGrid
from mixtune.options._observed import observed_folder, observed_paths
from mixtune.options._observed_price import price_observed
from mixtune.options._payoffs import (
    BasketCall,
    BasketPut,
    Call,
    CustomPayoff,
    GeometricBasketPut,
    MaxCall,
    MinPut,
    Put,
    payoff_from_name,
)
from mixtune.options._pricer import price, simulate
from mixtune.options._result import PriceResult
from mixtune.options._upper import UpperBound, upper_bound
from mixtune.options.processes import (
    BlackScholes,
    FractionalBrownianMotion,
    Heston,
    Process,
    RoughHeston,
    State,
)

__all__ = [
    "BasketCall",
    "BasketPut",
    "BlackScholes",
    "Call",
    "CustomPayoff",
    "Estimate",
    "ExerciseRegion",
    "FractionalBrownianMotion",
    "GeometricBasketPut",
    "Greek",
    "Heston",
    "MaxCall",
    "MinPut",
    "PriceResult",
    "Process",
    "Put",
    "RoughHeston",
    "State",
    "TimeGrid",
    "UpperBound",
    "exercise_region",
    "observed_folder",
    "observed_paths",
    "payoff_from_name",
    "price",
    "price_observed",
    "simulate",
    "upper_bound",
]
