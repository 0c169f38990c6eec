"""American and Bermudan options: grids, processes, payoffs, backward induction, bounds."""

from mixtune_options._european import Bias, european
from mixtune_options._greeks import Greek
from mixtune_options._heston import Heston
from mixtune_options._paths import observed_folder, observed_paths, simulate
from mixtune_options._payoffs import (
    AsianCall,
    AsianPut,
    BasketCall,
    BasketPut,
    Call,
    CustomPayoff,
    GeometricBasketPut,
    MaxCall,
    MinPut,
    PathPayoff,
    Put,
    payoff_from_name,
)
from mixtune_options._pricer import (
    Estimate,
    ExerciseRegion,
    PriceResult,
    UpperBound,
    exercise_region,
    price,
    price_observed,
    upper_bound,
)
from mixtune_options._process import BlackScholes, FractionalBrownianMotion, Process, State, TermStructure
from mixtune_options._rough import RoughHeston
from mixtune_options._settings import PriceSettings, TimeGrid
from mixtune_options._several import AmericanLimit, PriceGrid, american_limit, price_grid

# Markets and dates, payoffs, pricing and its results, paths.
__all__ = ["BlackScholes", "FractionalBrownianMotion", "Heston", "Process", "RoughHeston", "State"]
__all__ += ["TermStructure", "TimeGrid"]
__all__ += ["BasketCall", "BasketPut", "Call", "CustomPayoff", "GeometricBasketPut", "MaxCall", "MinPut", "Put"]
__all__ += ["PriceSettings", "exercise_region", "payoff_from_name", "price", "price_observed", "upper_bound"]
__all__ += ["Bias", "european"]
__all__ += ["AmericanLimit", "AsianCall", "AsianPut", "PathPayoff", "PriceGrid", "american_limit", "price_grid"]
__all__ += ["Estimate", "ExerciseRegion", "Greek", "PriceResult", "UpperBound"]
__all__ += ["observed_folder", "observed_paths", "simulate"]
