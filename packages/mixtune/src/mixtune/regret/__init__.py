"""RegretProblem -> solve -> RegretSolution: closed form, dense and accelerated references, descent, certificates."""

from mixtune.regret._problem import RegretProblem, RegretSolution, StoredPath
from mixtune.regret._solve import Schedule, solve
from mixtune.regret.baselines import joint_head, joint_subset_head, local_head, mean_local_head
from mixtune.regret.certificates import certify, generalisation_bound, kl_term, optimal_cost, t_gain, transfer_gain
from mixtune.regret.descent import DescentPath, descend
from mixtune.regret.kernels import KernelSolution, features_of, solve_kernel
from mixtune.regret.losses import (
    LOGISTIC,
    POISSON,
    PSEUDO_HUBER,
    SQUARED,
    SmoothLoss,
    SmoothSolution,
    least_energy,
    solve_smooth,
)
from mixtune.regret.robustness import Sensitivity, adversarial_sensitivity, energy_bound, log_slope

__all__ = ["DescentPath", "RegretProblem", "RegretSolution", "Schedule", "Sensitivity", "StoredPath"]
__all__ += [
    "adversarial_sensitivity",
    "certify",
    "descend",
    "energy_bound",
    "generalisation_bound",
    "joint_head",
    "joint_subset_head",
]
__all__ += ["kl_term", "local_head", "log_slope", "mean_local_head", "optimal_cost", "solve", "t_gain", "transfer_gain"]
__all__ += ["LOGISTIC", "POISSON", "PSEUDO_HUBER", "SQUARED", "KernelSolution", "SmoothLoss", "SmoothSolution"]
__all__ += ["features_of", "least_energy", "solve_kernel", "solve_smooth"]
