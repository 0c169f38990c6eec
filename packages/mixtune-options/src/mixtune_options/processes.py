"""Market models: Black-Scholes and fractional Brownian motion, Heston and rough Heston.

Their modules describe the time steps.
"""

from mixtune_options._heston import Heston
from mixtune_options._process import BlackScholes, FractionalBrownianMotion, Process, State, TermStructure
from mixtune_options._rough import RoughHeston

__all__ = ["BlackScholes", "FractionalBrownianMotion", "Heston", "Process", "RoughHeston", "State", "TermStructure"]
