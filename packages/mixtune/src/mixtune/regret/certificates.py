"""What can be proven about a solution: its cost by a second route, its regret, the paper's T-Gain, Theorem 1.

* the value-function identity: the energy summed along the path equals the optimal cost computed without any path;
* T-Gain: what the weights change in the first term of Theorem 1's bound, against using the focal domain alone;
* Theorem 1: the Bayesian objective (power of the datasets plus an entropic penalty) and the PAC term.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mixtune._messages import deprecated
from mixtune.arrays import namespace
from mixtune.checks import check_nonnegative, check_positive
from mixtune.errors import ParameterError
from mixtune.regret._problem import RegretProblem, RegretSolution
from mixtune.regret._solve import Schedule

if TYPE_CHECKING:
    from mixtune.weights import TransportWeights


@dataclass(frozen=True)
class Certificate:
    """A solution's energy beside the least possible one.

    Attributes
    ----------
    energy : float
        L along the solution's path.
    optimal_cost : float
        The least energy of any algorithm, from the value function.
    ideal_loss, regret : float
        l* and L - l*.
    suboptimality : float
        ``energy - optimal_cost``: zero up to rounding for the regret-optimal algorithm, positive for any other.
    """

    energy: float
    optimal_cost: float
    ideal_loss: float

    @property
    def regret(self) -> float:
        return max(self.energy - self.ideal_loss, 0.0)

    @property
    def suboptimality(self) -> float:
        return self.energy - self.optimal_cost


def certify(solution: RegretSolution) -> Certificate:
    """Compare a solution's energy with the optimal cost and the ideal loss.

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune import Moments, RegretProblem, solve
    >>> from mixtune.regret import certify
    >>> rng = np.random.default_rng(0)
    >>> moments = [Moments.from_rows(rng.standard_normal((9, 2)), rng.standard_normal(9)) for _ in range(2)]
    >>> problem = RegretProblem(
    ...     moments=moments, weights=[0.8, 0.2], ridge=1.0, transfer=0.5, stability=1.0, horizon=3
    ... )
    >>> exact, heuristic = certify(solve(problem)), certify(solve(problem, method="accelerated"))
    >>> bool(abs(exact.suboptimality) < 1e-9 < heuristic.suboptimality)
    True
    """
    problem = solution.problem
    if solution.steps != problem.horizon:  # gradient descent may take more steps: compare like with like
        problem = problem.replaced(horizon=solution.steps)
    return Certificate(solution.energy, optimal_cost(problem), solution.ideal_loss)


def optimal_cost(problem: RegretProblem) -> float:
    """``L* = Theta(0)'P(0)Theta(0) + 2 S(0)'Theta(0) + r(0)``, without the Riccati recursion.

    Eliminating the path leaves ``min_delta r |delta|^2 + l(m + delta)`` plus a multiple of ``|z(0)|^2``, hence

        L* = l(m) - <b - A m, delta> + (rho - lambda - sigma^2/rho) |z(0)|^2.
    """
    schedule = Schedule(problem.transfer, problem.stability, problem.horizon)
    reference = problem.as_matrices(problem.reference)
    offset = problem.as_matrices(problem.start) - reference
    xp = namespace(offset)
    prior = problem.mix(reference + schedule.pull * offset)
    if problem.horizon == 0:
        return problem.system.loss(prior)
    gained = xp.sum(problem.system.gradient(prior) * problem.system.step(prior, schedule.rho / problem.weight_square))
    held = schedule.start_cost - schedule.pull * schedule.sigma
    return problem.system.loss(prior) - float(gained) + held * float(xp.sum(offset**2))


def t_gain(weights: TransportWeights) -> float:
    """T-Gain of the paper's Section 3.2, the change of Theorem 1's first term when w replaces the focal domain alone:

        T-Gain = sum_i (w_i - 1{i = focal}) (W1_i + n_i^(-1/(d+D))).

    Negative means that the bound improves, which takes a source large enough for its smaller sampling error to outweigh
    its distance. The estimators' ``transfer_gain_`` is another quantity: it compares errors and is positive for a gain.

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune import WassersteinWeights
    >>> from mixtune.regret import t_gain
    >>> x = np.linspace(0, 1, 200)[:, None]
    >>> weights = WassersteinWeights(20.0).weigh_clouds([x[::40], x])  # few rows, and many of the same distribution
    >>> t_gain(weights) < 0
    True
    """
    _need_distances(weights)
    return weights.t_gain


def transfer_gain(weights: TransportWeights) -> float:
    """Old name of :func:`t_gain`, kept for one release."""
    warnings.warn(deprecated("transfer_gain", "t_gain"), DeprecationWarning, stacklevel=2)
    return t_gain(weights)


def kl_term(weights: TransportWeights) -> float:
    """``KL(P_w || uniform over the admitted domains) = sum_i w_i log(C_eta w_i)``; infinite if w leaves them.

    With a ``threshold_width`` the law is :attr:`TransportWeights.prior` instead of the uniform one.
    """
    _need_distances(weights)
    positive, prior = weights.values > 0, weights.prior
    if np.any(positive & (prior == 0)):
        return math.inf
    w = weights.values[positive]
    return max(float(np.sum(w * np.log(w / prior[positive]))), 0.0)


def _need_distances(weights: TransportWeights) -> None:
    from mixtune.weights import TransportWeights

    if not isinstance(weights, TransportWeights):
        raise ParameterError(
            "Theorem 1 is about transport distances; pass what WassersteinWeights(...).weigh(domains=...) returns, "
            f"not a {type(weights).__name__}"
        )


@dataclass(frozen=True)
class GeneralisationBound:
    """The right-hand side of Theorem 1, term by term (Lbar = loss_lipschitz max(1, model_lipschitz)).

    Attributes
    ----------
    power : float
        ``sum_i w_i (W1_i + n_i^(-1/(d+D)))``.
    kl : float
        Entropic penalty before its factor 1/gamma.
    objective : float
        ``power + kl/gamma``: what the Wasserstein weights minimise.
    pac : float
        The high-probability term that the proof supports: ``Lbar sqrt(ln(2N/delta)/(2 min_i n_i))``.
    pac_as_printed : float
        The same as Theorem 1 prints it: ``sqrt(Lbar ln(2N/delta)/(2 max_i n_i))``.
    total : float
        ``Lbar C objective + pac``: the bound as the proof gives it.
    """

    power: float
    kl: float
    objective: float
    pac: float
    pac_as_printed: float
    scale: float

    @property
    def total(self) -> float:
        return self.scale * self.objective + self.pac


def generalisation_bound(
    weights: TransportWeights, *, delta: float, loss_lipschitz: float, model_lipschitz: float, constant: float = 1.0
) -> GeneralisationBound:
    """Theorem 1 for given weights: with probability 1 - delta the focal risk and the weighted risk differ by less.

    Parameters
    ----------
    weights : TransportWeights
        From :class:`mixtune.WassersteinWeights`; the theorem wants data of diameter 1, so keep ``rescale=True``.
    delta : float
        In (0, 1].
    loss_lipschitz, model_lipschitz : float
        L_l and L.
    constant : float
        The theorem's C >= 1, which depends on the dimension and is not known explicitly; with the default the result
        compares weightings rather than bounding errors.
    """
    _need_distances(weights)
    if any(d.method in ("sliced", "given", "screened") for d in weights.distances):
        raise ParameterError(
            "Theorem 1 needs the Wasserstein distances themselves; weigh with distance='auto' and screen=False"
        )
    delta, constant = check_positive("delta", delta), check_positive("constant", constant)
    if delta > 1 or constant < 1:
        raise ParameterError(f"Theorem 1 needs delta in (0, 1] and constant >= 1; got {delta!r} and {constant!r}")
    model_lipschitz = check_nonnegative("model_lipschitz", model_lipschitz)
    lipschitz = check_nonnegative("loss_lipschitz", loss_lipschitz) * max(1.0, model_lipschitz)
    power, kl = float(weights.values @ weights.relevance), kl_term(weights)
    penalty = 0.0 if kl == 0 else (kl / weights.temperature if weights.temperature > 0 else math.inf)
    chance = math.log(2 * len(weights) / delta) / 2
    return GeneralisationBound(
        power=power,
        kl=kl,
        objective=power + penalty,
        pac=lipschitz * math.sqrt(chance / int(weights.counts.min())),
        pac_as_printed=math.sqrt(lipschitz * chance / int(weights.counts.max())),
        scale=lipschitz * constant,
    )
