"""A consortium to test with: members with keys and rows, and the exchanges of a study in one process."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

import numpy as np
import pytest

from mixtune.data import NumberColumn, TableEncoder, TargetColumn
from mixtune.errors import DataError


@dataclass
class Consortium:
    study: object
    keys: dict
    data: dict
    #: Those of the latest run.
    requests: list = field(default_factory=list)

    @property
    def focal(self):
        rows = self.study.read(self.data[self.study.focal])
        return rows.X, rows.y

    @property
    def sources(self):
        found = {name: self.study.read(self.data[name]) for name in self.study.sources}
        return {name: (rows.X, rows.y) for name, rows in found.items()}

    def site(self, name, policy=None, ledger=None):
        from mixtune_federated import Site

        return Site(self.study, self.data[name], self.keys[name], policy, ledger=ledger)

    def sites(self, policy=None):
        return {name: self.site(name, policy) for name in self.study.sources}

    def coordinator(self, **options):
        from mixtune_federated import Coordinator

        return Coordinator(self.study, self.data[self.study.focal], self.keys[self.study.focal], **options)

    def run(self, policy=None, gone=()):
        """All exchanges; ``gone`` are (step, name) of members that do not answer. Returns coordinator and messages."""
        sites, coordinator, messages = self.sites(policy), self.coordinator(), []
        self.requests.clear()
        for step in (1, 2, 3, 4):
            try:
                request = coordinator.ask(messages)
            except DataError as error:
                if error.code != "nothing-left":
                    raise
                break
            self.requests.append(request)
            for name in request.header["recipients"]:
                if name in sites and (step, name) not in gone:
                    messages.append(sites[name].answer(request))
        return coordinator, messages

    def model(self, combined, **options):
        from mixtune_federated import FederatedRegressor

        X, y = self.focal
        return FederatedRegressor.from_study(self.study, **options).fit(X, y, sources=combined)

    def pooled(self, names=None, **changes):
        """The same method on all rows in one place."""
        from mixtune.estimators import RegretOptimalRegressor

        held = {"weights": self.study.fixed.weights, "ridge": self.study.fixed.ridge, **changes}
        sources = {name: rows for name, rows in self.sources.items() if names is None or name in names}
        X, y = self.focal
        model = RegretOptimalRegressor(self.study.feature_map, standardise=False, focal_name=self.study.focal, **held)
        return model.fit(X, y, sources=sources)


@pytest.fixture
def consortium():
    """Make a consortium: ``consortium(level=2, members=5, rows=60, columns=4, spread=0.3, condition=1.0)``."""
    pytest.importorskip("cryptography")
    from mixtune_federated import Key, Study

    def make(level=2, members=5, rows=60, columns=4, *, spread=0.3, condition=1.0, offset=0.0, seed=0, **settings):
        rng = np.random.default_rng(seed)
        names = [f"m{place}" for place in range(members)]
        keys = {name: Key.generate(name) for name in names}
        encoder = TableEncoder(tuple(NumberColumn(f"x{place}") for place in range(columns)), TargetColumn("y"))
        never = datetime.date(9999, 1, 1)
        unit = np.zeros(columns), np.ones(columns), 1.0, 1.0, never
        cards = tuple(key.card for key in keys.values())
        study = Study("test", "m0", encoder, *unit, level=level, members=cards, **settings)
        truth, scale = rng.standard_normal(columns), np.logspace(0, -0.5 * np.log10(condition), columns)
        # The covariance matrix of the columns has this condition number, and no column is small by itself.
        mix = scale[:, None] * np.linalg.qr(rng.standard_normal((columns, columns)))[0]
        made = {}
        for name in names:
            X = rng.standard_normal((rows, columns)) @ mix + offset
            y = X @ (truth + spread * rng.standard_normal(columns)) + rng.standard_normal(rows) + 2.0
            made[name] = {**{f"x{place}": X[:, place] for place in range(columns)}, "y": y}
        return Consortium(study, keys, made)

    return make
