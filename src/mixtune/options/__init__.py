"""American and Bermudan options: grids, processes, payoffs, backward induction, bounds."""

from mixtune.options._paths import observed_folder, observed_paths, simulate
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
from mixtune.options._pricer import (
    Estimate,
    ExerciseRegion,
    Greek,
    PriceResult,
    UpperBound,
    exercise_region,
    price,
    price_observed,
    upper_bound,
)
from mixtune.options._settings import PriceSettings, TimeGrid
from mixtune.options.processes import BlackScholes, FractionalBrownianMotion, Heston, Process, RoughHeston, State

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
    "PriceSettings",
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
