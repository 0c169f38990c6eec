"""The model for a domain of which nothing is known: ridge fits to all domains, averaged by leaving domains out.

A domain that was not seen has no level of its own. Rows of all domains pooled may say what it is from its features; or
slopes are those within domains, with the mean of the domains' levels. Both are candidates, at several ridges and for
every feature map. Whole domains are left out in turn by subtracting their sums, which gives the weights of the average
and the residuals behind intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixtune.arrays import Floats, Integers
from mixtune.choice._choose import content_order
from mixtune.choice._model_averaging import ValidationTask, stacked_weights
from mixtune.choice._settings import SETTINGS
from mixtune.moments import RANK_TOLERANCE, Regression, Sample

#: With no more domains than this, their coefficients do not tell how far domains scatter.
LEAST_DOMAINS = 3


@dataclass(frozen=True, eq=False)
class Population:
    """Coefficients for domains that were not seen, and what they leave of the known ones.

    Attributes
    ----------
    heads : list of arrays (d,)
        Of the features of each map, that of the constant last where there is an intercept; predictions add up.
    left_out : list of arrays (n_i,)
        Residuals of each domain's rows by the model without that domain.
    """

    heads: list[Floats]
    left_out: list[Floats]


def learn_population(samples: Sequence[Sequence[Sample]]) -> Population:
    """Average ridge fits to all domains, by the errors on domains that were left out.

    Parameters
    ----------
    samples : sequence of sequences of Sample
        For each map: all domains, with their rows; at least two domains.

    Examples
    --------
    >>> from mixtune.moments import Rows
    >>> x = np.linspace(-1.0, 1.0, 20)
    >>> domains = [Sample.of(Rows(x[:, None], 2.0 * x + level)) for level in (-0.1, 0.0, 0.1)]
    >>> found = learn_population([domains])
    >>> bool(abs(found.heads[0][0] - 2.0) < 0.1)
    True
    """
    count = len(samples[0])
    folds = np.empty(count, dtype=np.int64)
    order = content_order([sample.known for sample in samples[0]])
    folds[order] = np.arange(count) % min(count, SETTINGS.population_folds)
    ways, ridges = (_pooled, _within)[: 1 + samples[0][0].intercept], SETTINGS.population_ridges
    fits = [np.stack([way(own, folds, ridge) for way in ways for ridge in ridges]) for own in samples]
    heads = [[(own, head) for own, each in zip(samples, fits) for head in each[:, fold]] for fold in folds]
    left_out = [np.stack([own[k].known.y - own[k].predict(head) for own, head in heads[k]]) for k in range(count)]
    tasks = [
        ValidationTask(k, part, samples[0][k].known.weight, part, 0, SETTINGS.negligible_error)
        for k, part in enumerate(left_out)
    ]
    candidates = len(left_out[0])
    shares = stacked_weights(tasks, np.full(candidates, 1.0 / candidates), SETTINGS.prior_pull)
    found = [share @ each[:, -1] for share, each in zip(np.split(shares, len(samples)), fits)]
    return Population(found, [shares @ part for part in left_out])


def _sums(parts: Sequence[Floats], folds: Integers) -> Floats:
    """Sums (folds + 1, ...) of all but each fold, and of all."""
    own = np.zeros((int(folds.max()) + 1, *np.shape(parts[0])))
    np.add.at(own, folds, np.stack(parts))
    return np.concatenate([own.sum(axis=0) - own, own.sum(axis=0)[None]])


def _pooled(samples: Sequence[Sample], folds: Integers, ridge: float) -> Floats:
    """Coefficients (folds + 1, d) of a fit to all rows: without each fold of domains, and of all domains last."""
    grams, crosses = (_sums([getattr(s.full, name) for s in samples], folds) for name in ("gram", "cross"))
    return _solved(grams, crosses, ridge, samples[0].intercept)


def _within(samples: Sequence[Sample], folds: Integers, ridge: float) -> Floats:
    """Slopes within domains, and the mean of the domains' levels at these slopes; few rows hardly know their level."""
    grams, crosses = (_sums([getattr(s.free, name) for s in samples], folds) for name in ("gram", "cross"))
    slopes = _solved(grams, crosses, ridge, intercept=False)
    trust = np.array([s.total / (s.total + SETTINGS.level_rows) for s in samples])
    middle = np.stack([np.append(s.center.features, float(s.center.targets)) for s in samples])
    middle = _sums(list(trust[:, None] * middle), folds) / _sums(list(trust[:, None]), folds)
    return np.column_stack([slopes, middle[:, -1] - np.sum(middle[:, :-1] * slopes, axis=1)])


def _solved(grams: Floats, crosses: Floats, ridge: float, intercept: bool) -> Floats:
    width = crosses.shape[1]
    penalised = np.ones(width)
    if intercept:
        penalised[-1] = 0.0
    size = np.maximum(np.trace(grams * penalised, axis1=1, axis2=2) / max(penalised.sum(), 1.0), 1e-12)
    system = grams + (ridge * size)[:, None, None] * np.diag(penalised)
    # A left-out fold may be all that a constant column or an intercept has.
    system += 1e-12 * size[:, None, None] * np.eye(width)
    return np.linalg.solve(system, crosses[..., None])[..., 0]


def coefficient_errors(samples: Sequence[Sample], noise: Floats, estimates: Floats) -> Floats | None:
    """How far (N, p) estimates lie from the coefficients of every domain, as the root of the expected square.

    None where too few domains determine their coefficients.

    This is by the simplest hierarchical model, for each column on its own.

    The estimate of a coefficient from a domain's rows alone is ``b_i ~ N(beta_i, v_i)``, and ``beta_i ~ N(mu, tau^2)``
    with flat priors of ``mu`` and ``tau``; ``tau`` is integrated out on a grid (Gelman et al., Bayesian Data Analysis,
    3rd ed., section 5.4). A single estimate of ``tau`` is often zero where rows are few, and intervals with it are then
    much too narrow.

    Parameters
    ----------
    samples : sequence of Sample
        All domains.
    noise : array (N,)
        Variance of the rows about each domain's model.
    estimates : array (N, p)
        By any method.

    Examples
    --------
    >>> from mixtune.moments import Rows
    >>> rng = np.random.default_rng(0)
    >>> rows = [Rows(x, 2 * x[:, 0] + rng.standard_normal(50)) for x in rng.standard_normal((8, 50, 1))]
    >>> found = coefficient_errors([Sample.of(each) for each in rows], np.ones(8), np.full((8, 1), 2.0))
    >>> bool(np.all((found > 0.05) & (found < 0.4)))
    True
    """
    own = [_own_coefficients(sample.free, float(level)) for sample, level in zip(samples, noise)]
    b, known = (np.stack(parts) for parts in zip(*own))
    # The typical error of one domain's estimate, and how far estimates lie apart, tell where to look for tau.
    told = known.any(axis=1)
    if told.sum() <= LEAST_DOMAINS:
        return None
    error = np.sqrt(told.sum() / known.sum(axis=0))
    size = np.maximum(error, np.std(b[told], axis=0))
    grid = np.append(0.0, np.logspace(-2.0, 1.5, SETTINGS.scatter_steps))
    evidence, means, squares = [], [], []
    for tau in grid[:, None] * size:
        weight = known / (1 + tau**2 * known)
        total = np.maximum(weight.sum(axis=0), 1e-300)
        mu = np.sum(weight * b, axis=0) / total
        logs = np.sum(np.where(known > 0, np.log(np.where(known > 0, weight, 1.0)), 0.0), axis=0)
        evidence.append(0.5 * (logs - np.log(total) - np.sum(weight * (b - mu) ** 2, axis=0)))
        own_part = tau**2 * weight
        mean = own_part * b + (1 - own_part) * mu
        means.append(mean)
        squares.append(mean**2 + tau**2 * (1 - own_part) + (1 - own_part) ** 2 / total)
    share = np.exp(np.array(evidence) - np.max(evidence, axis=0)) * np.gradient(grid)[:, None]
    share = (share / share.sum(axis=0))[:, None]
    mean = np.sum(share * means, axis=0)
    variance = np.maximum(np.sum(share * squares, axis=0) - mean**2, 0.0)
    return np.sqrt(variance + (mean - estimates) ** 2)


def _own_coefficients(rows: Regression, noise: float) -> tuple[Floats, Floats]:
    """Least-squares coefficients (p,) of a domain, and their precisions; zeros where its rows do not determine them."""
    width = len(rows.gram)
    if not noise > 0 or rows.total <= width:
        return np.zeros(width), np.zeros(width)
    values, vectors = np.linalg.eigh(rows.gram)
    if values[0] <= RANK_TOLERANCE * values[-1]:
        return np.zeros(width), np.zeros(width)
    inverse = (vectors / values) @ vectors.T
    return inverse @ rows.cross, 1 / (noise * np.diagonal(inverse))
