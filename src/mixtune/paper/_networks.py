"""The paper's synthetic datasets: normal inputs, each dataset labelled by a small random ReLU network of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune.features import RandomFeatures

__all__ = ["NetworkData"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class NetworkData:
    """How to draw the datasets of one run, and the random ReLU features (plus a constant) they are seen through.

    Inputs are N(0, I), the networks have one hidden layer of ``target_units``, Xavier-uniform weights and biases
    uniform on (-target_bias, target_bias). Feature weights and biases are N(0, 1).

    Examples
    --------
    >>> rows = NetworkData(width=20).draw(seed=0)
    >>> len(rows), rows[0][0].shape, rows[0][1].shape
    (5, (100, 21), (100,))
    """

    n_domains: int = 5
    n_rows: int = 100
    n_inputs: int = 5
    target_units: int = 10
    target_bias: float = 0.1
    width: int = 500

    def draw(self, seed: int) -> list[tuple[Floats, Floats]]:
        """Features (n, width + 1) and targets (n,) of each dataset."""
        phi = RandomFeatures(n_inputs=self.n_inputs, width=self.width, activation="relu", seed=seed)
        rows = []
        for index in range(self.n_domains):
            rng = np.random.default_rng([seed, 1 + index])
            inner = _xavier(rng, self.n_inputs, self.target_units)
            outer = _xavier(rng, self.target_units, 1)
            biases = [rng.uniform(-self.target_bias, self.target_bias, size) for size in (self.target_units, 1)]
            X = rng.standard_normal((self.n_rows, self.n_inputs))
            targets = np.maximum(X @ inner + biases[0], 0.0) @ outer + biases[1]
            rows.append((phi.transform(X), targets[:, 0]))
        return rows


def _xavier(rng: np.random.Generator, fan_in: int, fan_out: int) -> Floats:
    bound = np.sqrt(6 / (fan_in + fan_out))
    return rng.uniform(-bound, bound, (fan_in, fan_out))
