"""Synthetic domains whose truth is known: some sources help the focal domain, others mislead it.

Every domain's targets come from a small tanh network with its own parameters. Related sources share most of
the focal network's, unrelated ones none, so a method that shares well must tell them apart.
"""

from dataclasses import dataclass

import numpy as np

from mixtune.arrays import Floats
from mixtune.checks import check_whole
from mixtune.data._domain import Domain
from mixtune.data._domains import Domains
from mixtune.errors import ParameterError

__all__ = ["SyntheticProblem", "make_domains"]

_HIDDEN = 8
_Network = tuple[Floats, Floats, Floats]


@dataclass(frozen=True, eq=False)
class SyntheticProblem:
    """Domains with a known truth.

    Attributes
    ----------
    domains
        The domains, the focal one (named "focal") first.
    test
        Fresh rows of the focal domain without noise, to measure errors on.
    related
        Names of the sources that share the focal domain's truth up to a drift.
    """

    domains: Domains
    test: Domain
    related: tuple[str, ...]


def make_domains(
    *,
    n_domains: int = 6,
    n_rows: int = 40,
    n_source_rows: int = 200,
    n_test_rows: int = 1000,
    n_columns: int = 5,
    n_outputs: int = 1,
    similarity: float = 0.98,
    n_unrelated: int = 2,
    noise: float = 0.1,
    seed: int,
) -> SyntheticProblem:
    """Draw a family of regression domains.

    Parameters
    ----------
    n_domains
        Number of domains, the focal one included.
    n_rows, n_source_rows, n_test_rows
        Rows of the focal domain, of each source and of the test set.
    n_columns, n_outputs
        Inputs (standard normal) and targets per row.
    similarity
        Correlation of the related sources' network parameters with the focal ones: 1 is the same truth.
    n_unrelated
        How many of the sources have a truth of their own.
    noise
        Standard deviation of the noise in the targets, whose signal has a standard deviation near 1.
    seed
        Each domain draws from its own stream of this seed, so more domains leave the others as they were.

    Returns
    -------
    SyntheticProblem
        The domains "focal", "related_1", ... and "unrelated_1", ..., with test rows.

    Examples
    --------
    >>> problem = make_domains(n_domains=4, n_unrelated=1, seed=0)
    >>> problem.domains.names, problem.related
    (('focal', 'related_1', 'related_2', 'unrelated_1'), ('related_1', 'related_2'))
    >>> problem.test
    Domain('focal', 1,000 rows, 5 columns, 1 output)
    """
    sizes = {"n_domains": n_domains, "n_rows": n_rows, "n_source_rows": n_source_rows, "n_test_rows": n_test_rows}
    for option, value in (sizes | {"n_columns": n_columns, "n_outputs": n_outputs}).items():
        check_whole(option, value, least=1)
    if not 0 <= n_unrelated < n_domains:
        raise ParameterError(f"n_unrelated={n_unrelated} must be between 0 and the {n_domains - 1} sources")
    if not 0 <= similarity <= 1 or noise < 0:
        raise ParameterError(f"similarity={similarity} must be between 0 and 1, and noise={noise} not negative")

    def stream(*key: int) -> np.random.Generator:
        return np.random.default_rng([seed, *key])

    def draw(name: str, network: _Network, rows: int, rng: np.random.Generator, spread: float) -> Domain:
        X = rng.standard_normal((rows, n_columns))
        weights, bias, readout = network
        y = np.tanh(X @ weights + bias) @ readout
        y += spread * rng.standard_normal(y.shape)
        return Domain(name, X, y[:, 0] if n_outputs == 1 else y)

    truth = _draw_network(stream(0, 0), n_columns, n_outputs)
    members = [draw("focal", truth, n_rows, stream(0, 1), noise)]
    n_related = n_domains - 1 - n_unrelated
    groups = (1, "related", n_related, similarity), (2, "unrelated", n_unrelated, 0.0)
    for kind, label, count, share in groups:
        for index in range(1, count + 1):
            rng = stream(kind, index)
            network = _drift(truth, _draw_network(rng, n_columns, n_outputs), share)
            members.append(draw(f"{label}_{index}", network, n_source_rows, rng, noise))
    test = draw("focal", truth, n_test_rows, stream(0, 2), 0.0)
    related = tuple(domain.name for domain in members[1 : n_related + 1])
    return SyntheticProblem(Domains(tuple(members), focal="focal"), test, related)


def _draw_network(rng: np.random.Generator, n_columns: int, n_outputs: int) -> _Network:
    """Draw input weights, biases and output weights, all normal and scaled to give targets of unit size."""
    weights = rng.standard_normal((n_columns, _HIDDEN)) * (1.5 / np.sqrt(n_columns))
    bias = rng.standard_normal(_HIDDEN) * 0.5
    # tanh of these has a mean square near 0.5.
    readout = rng.standard_normal((_HIDDEN, n_outputs)) * np.sqrt(2 / _HIDDEN)
    return weights, bias, readout


def _drift(network: _Network, other: _Network, share: float) -> _Network:
    """Mix two networks so that the parameters keep their law and correlate with the first by ``share``."""
    rest = np.sqrt(1 - share**2)
    weights, bias, readout = (share * one + rest * its for one, its in zip(network, other, strict=True))
    return weights, bias, readout
