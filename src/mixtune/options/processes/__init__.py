"""Market models: where prices start, and how an exercise interval moves them."""

from mixtune.options.processes._base import Process, State
from mixtune.options.processes._gaussian import BlackScholes, FractionalBrownianMotion
from mixtune.options.processes._heston import Heston, RoughHeston

__all__ = ["BlackScholes", "FractionalBrownianMotion", "Heston", "Process", "RoughHeston", "State"]
