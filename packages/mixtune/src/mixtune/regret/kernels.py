"""The regret-optimal algorithm on a kernel: a Gram matrix takes the place of features.

With the rows of all datasets in one feature space, every head is a combination of their features, theta = Phi'a, and
all that the algorithm needs of Phi is the Gram matrix K = Phi Phi'. With D the weights w_i of the rows (n, n),
m = Phi'a_m the mixture of the local heads and r = rho/|w|^2, the closed form reads

    a = a_m + c,   (D^{1/2} K D^{1/2} + r I) D^{-1/2} c = D^{1/2} (Y - K a_m),

one n x n system over the rows with positive weight, whatever the dimension of the features, also if it is infinite.
The slow reference is :func:`features_of`, which makes features of a Gram matrix for any other solver.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from mixtune.arrays import Floats
from mixtune.checks import check_positive, check_simplex, check_whole
from mixtune.errors import DataError, ParameterError
from mixtune.regret._problem import check_penalty
from mixtune.regret._solve import Schedule

#: Eigenvalues of a Gram matrix below this share of the largest are rounding.
ROUNDING = 1e-10


@dataclass(frozen=True, eq=False)
class KernelSolution:
    """The mixed model after the last step, as coefficients of the rows.

    Attributes
    ----------
    coef : array (n,) or (n, D)
        a: predict with ``K_new @ coef``, where ``K_new`` (m, n) are kernel values of new rows and those of the fit.
    start : array, same shape
        a_m: the mixture of the local models, from which the algorithm starts.
    effective_ridge : float
        r.
    loss, energy : float
        Weighted terminal loss, and the energy of the whole path.
    """

    coef: Floats
    start: Floats
    effective_ridge: float
    loss: float
    moved: float

    @cached_property
    def energy(self) -> float:
        return self.loss + self.effective_ridge * self.moved

    def predict(self, kernel: ArrayLike) -> Floats:
        """Predictions for kernel values (m, n) of new rows and those of the fit."""
        values = np.asarray(kernel, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.coef):
            raise DataError(f"kernel must have shape (m, {len(self.coef)}); got {values.shape}")
        return np.asarray(values @ self.coef)


def solve_kernel(
    gram: ArrayLike,
    targets: Sequence[ArrayLike],
    *,
    weights: ArrayLike,
    ridge: float,
    transfer: float | Sequence[float],
    stability: float | Sequence[float],
    horizon: int,
) -> KernelSolution:
    """The regret-optimal algorithm for a Gram matrix, started at and held to the local kernel ridge regressors.

    Parameters
    ----------
    gram : array (n, n)
        Kernel values of all rows, dataset by dataset.
    targets : sequence of arrays (n_i,) or (n_i, D)
        One per dataset, in the same order.
    weights : array (N,)
    ridge : float
        kappa of the local models, positive.
    transfer, stability, horizon
        As in :class:`mixtune.RegretProblem`.

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune.regret import solve_kernel
    >>> x = np.linspace(0, 1, 20)
    >>> gram = np.exp(-10 * (x[:, None] - x) ** 2)
    >>> y = np.sin(6 * x)
    >>> options = {"ridge": 0.1, "transfer": 0.0, "stability": 0.01, "horizon": 10}
    >>> solution = solve_kernel(gram, [y[:10], y[10:]], weights=[0.5, 0.5], **options)
    >>> bool(np.max(np.abs(solution.predict(gram) - y)) < 0.05)
    True
    """
    K, Y, owner = _checked(gram, targets)
    w = check_simplex(weights, len(targets))
    ridge, horizon = check_positive("ridge", ridge), check_whole("horizon", horizon)
    schedule = Schedule(
        check_penalty("transfer", transfer, horizon), check_penalty("stability", stability, horizon), horizon
    )
    if horizon > 0 and not schedule.rho > 0:
        raise ParameterError("a kernel needs transfer or stability to be positive, or a horizon of 0")
    start = np.zeros_like(Y)
    for index, weight in enumerate(w):
        mine = np.flatnonzero(owner == index)
        local = K[np.ix_(mine, mine)] + ridge * np.eye(len(mine))
        start[mine] = weight * np.linalg.solve(local, Y[mine])
    effective_ridge, rows = schedule.rho / float(w @ w), np.flatnonzero(w[owner] > 0)
    change = np.zeros_like(Y)
    if horizon > 0:
        roots = np.sqrt(w[owner][rows])
        system = roots[:, None] * K[np.ix_(rows, rows)] * roots + effective_ridge * np.eye(len(rows))
        residual = roots[:, None] * (Y - K @ start)[rows]
        change[rows] = roots[:, None] * np.linalg.solve(system, residual)
    coef = start + change
    loss = float(np.sum(w[owner][:, None] * (K @ coef - Y) ** 2))
    shape = Y.shape if np.ndim(targets[0]) > 1 else (len(Y),)
    moved = float(np.sum(change * (K @ change))) if horizon > 0 else 0.0
    return KernelSolution(coef.reshape(shape), start.reshape(shape), effective_ridge if horizon else 0.0, loss, moved)


def features_of(gram: ArrayLike) -> Floats:
    """Features (n, k) whose products are a Gram matrix, from its eigenvalues: the slow way to every other solver.

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune.regret import features_of
    >>> gram = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> U = features_of(gram)
    >>> bool(np.allclose(U @ U.T, gram))
    True
    """
    K = _symmetric(gram)
    values, vectors = np.linalg.eigh(K)
    kept = values > ROUNDING * max(float(values[-1]), 0.0)
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def _symmetric(gram: ArrayLike) -> Floats:
    K = np.asarray(gram, dtype=np.float64)
    if K.ndim != 2 or K.shape[0] != K.shape[1] or not np.all(np.isfinite(K)):
        raise DataError(f"gram must be a finite square matrix; got shape {K.shape}")
    scale = float(np.max(np.abs(K))) or 1.0
    if np.max(np.abs(K - K.T)) > 1e-8 * scale:
        raise DataError("gram must be symmetric: the kernel of two rows does not depend on their order")
    if np.linalg.eigvalsh(K)[0] < -1e-8 * scale * len(K):
        raise DataError("gram has negative eigenvalues; use a positive semi-definite kernel")
    return (K + K.T) / 2


def _checked(gram: ArrayLike, targets: Sequence[ArrayLike]) -> tuple[Floats, Floats, np.ndarray]:
    """The matrix, all targets (n, D), and whose dataset a row is."""
    K = _symmetric(gram)
    parts = [np.asarray(part, dtype=np.float64) for part in targets]
    if not parts or len({part.shape[1:] for part in parts}) > 1 or any(part.ndim not in (1, 2) for part in parts):
        raise DataError("targets must be one array (n_i,) or (n_i, D) per dataset, with the same number of outputs")
    Y = np.concatenate([part.reshape(len(part), -1) for part in parts])
    if len(Y) != len(K):
        raise DataError(f"gram has {len(K)} rows, the targets have {len(Y)}; pass both for all datasets, in one order")
    if not np.all(np.isfinite(Y)):
        raise DataError("targets must be finite")
    return K, Y, np.repeat(np.arange(len(parts)), [len(part) for part in parts])
