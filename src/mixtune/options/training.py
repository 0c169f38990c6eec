"""The parts of a pricing run, for those who put one together themselves: paths, state maps, models, induction."""

from mixtune.options._induction import Policy, train
from mixtune.options._models import ContinuationModel, Joint, Local, MeanOfLocals, Stage, Transfer, TunedLocal
from mixtune.options._paths import PathData
from mixtune.options._pricer import simulate
from mixtune.options._runs import RunStates, simulate_runs
from mixtune.options._state import PolynomialState, RandomState, RecurrentState, StateMap
from mixtune.options._tuned import TunedJoint, TunedTransfer

__all__ = [
    "ContinuationModel",
    "Joint",
    "Local",
    "MeanOfLocals",
    "PathData",
    "Policy",
    "PolynomialState",
    "RandomState",
    "RecurrentState",
    "RunStates",
    "Stage",
    "StateMap",
    "Transfer",
    "TunedJoint",
    "TunedLocal",
    "TunedTransfer",
    "simulate",
    "simulate_runs",
    "train",
]
