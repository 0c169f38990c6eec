"""Market models: where prices start, and how an exercise interval moves them."""

from mixtune.options.processes._base import Process, State
from mixtune.options.processes._black_scholes import BlackScholes
from mixtune.options.processes._fractional import FractionalBrownianMotion
from mixtune.options.processes._heston import Heston
from mixtune.options.processes._rough_heston import RoughHeston

__all__ = ["BlackScholes", "FractionalBrownianMotion", "Heston", "Process", "RoughHeston", "State"]
