"""Level 3: the noise is as large as it must be, a membership attack stays within its bound, the budget is kept."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

from mixtune import files as _files
from mixtune.errors import DataError
from mixtune.moments import Rows
from mixtune_federated import pooled_twin

pytest.importorskip("cryptography")
pytest.importorskip("opendp")

from mixtune_federated import FeatureSpec, Ledger, Policy, Privacy, RefusedError
from mixtune_federated import _privacy as privacy


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_sigma_is_the_least(epsilon, delta):
    """The definition of the mechanism, by integration; and dp-accounting, where it is installed."""
    sigma = privacy.gaussian_sigma(epsilon, delta, 2.0)
    # delta is the most by which the densities of N(2, s) exceed e^epsilon times those of N(0, s).
    grid = np.linspace(-12 * sigma, 12 * sigma + 2, 400_001)
    excess = np.maximum(stats.norm.pdf(grid, 2, sigma) - np.exp(epsilon) * stats.norm.pdf(grid, 0, sigma), 0)
    assert np.trapezoid(excess, grid) == pytest.approx(delta, rel=1e-4)
    accounting = pytest.importorskip("dp_accounting")
    assert sigma == pytest.approx(2 * accounting.get_sigma_gaussian(epsilon, delta), rel=1e-6)


def test_one_row_changes_the_sum_by_no_more_than_the_sensitivity(consortium):
    group = consortium(level=3, columns=3, features=FeatureSpec(width=5))
    rng = np.random.default_rng(0)
    rows = Rows(rng.standard_normal((200, 8)) * 10.0 ** rng.integers(-3, 4, (200, 1)), 100 * rng.standard_normal(200))
    whole = privacy.private_vector(group.study, rows)
    for left in range(0, 200, 7):
        kept = np.delete(np.arange(200), left)
        change = np.linalg.norm(whole - privacy.private_vector(group.study, rows.part(kept)))
        assert change <= privacy.sensitivity(8, 36) + 1e-9
    assert len(whole) == 10 * 11 / 2


def test_noise_is_gaussian_of_the_right_size():
    drawn = privacy.discrete_noise(1000.0, 4000).view(np.int64)
    assert stats.kstest(drawn / 1000.0, "norm").pvalue > 1e-6


def test_a_membership_attack_stays_within_the_bound(consortium):
    """The most powerful test whether one known row is in the data, by all who see the sum: on 2 x 1500 sums."""
    told = Privacy(epsilon=1.0, delta=1e-3)
    group = consortium(level=3, columns=2, members=4, privacy=told)
    study, members = group.study, 3
    rng = np.random.default_rng(0)
    # A row on the bounds has the largest effect there can be.
    X, y = rng.standard_normal((30, 2)) / 3, rng.standard_normal(30)
    X[-1], y[-1] = study.row_norm * np.array([1.0, 0.0]), 3.0
    rows = Rows(X, y)
    exponent, scale = privacy.private_exponent(members), privacy.noise_scale(study, members)
    without = privacy.private_vector(study, rows.part(slice(0, 29)))
    change = privacy.private_vector(study, rows) - without
    direction = change / np.linalg.norm(change)
    runs, statistics = 1500, {}
    # No member drops out in the worst case that the noise is made for: drop_outs of them add none.
    noise = [privacy.discrete_noise(scale, runs * len(change)).view(np.int64) for _ in range(2 * (members - 1))]
    for place, (name, values) in enumerate({"in": without + change, "out": without}.items()):
        total = np.sum(noise[place::2], axis=0).reshape(runs, -1) * 2.0**-exponent + values
        statistics[name] = (total - without) @ direction
    for threshold in np.quantile(np.concatenate(list(statistics.values())), np.linspace(0.02, 0.98, 25)):
        hit, false = (np.mean(statistics[name] > threshold) for name in ("in", "out"))
        slack = 4 * np.sqrt(0.25 / runs) * (1 + np.exp(told.epsilon))
        assert hit <= np.exp(told.epsilon) * false + told.delta + slack
        assert 1 - false <= np.exp(told.epsilon) * (1 - hit) + told.delta + slack
    # The noise is not larger than it must be, either: the attack does gain something.
    assert np.mean(statistics["in"]) - np.mean(statistics["out"]) > 0.1 * np.std(statistics["out"])


def test_two_exchanges_and_a_model_that_is_close(consortium):
    group = consortium(level=3, members=9, rows=300, columns=4, spread=0.1, privacy=Privacy(epsilon=8.0))
    group.data["m0"] = {name: np.asarray(values)[:15] for name, values in group.data["m0"].items()}
    coordinator, messages = group.run()
    combined = coordinator.combine(messages, require_all=True)
    assert combined.exchanges == 2
    assert "epsilon 8, delta 1e-06" in " ".join(combined.made)
    assert "epsilon 8" in " ".join(messages[-1].explain())
    assert abs(combined.moments["all members"].count - 2400) < 200
    model = group.model(combined)
    X, y = group.focal
    twin = pooled_twin(combined, Rows(X, y), {name: Rows(*pair) for name, pair in group.sources.items()})
    assert np.linalg.norm(model.coef_ - twin.coef_) < 0.25 * np.linalg.norm(twin.coef_)


def test_every_message_says_epsilon_and_delta(consortium):
    group = consortium(level=3, members=5, privacy=Privacy(epsilon=2.0, delta=1e-7))
    _, messages = group.run()
    assert len(messages) == 8
    for message in (*group.requests, *messages):
        assert "it says: differentially private: epsilon 2, delta 1e-07 for each row" in message.explain()


def test_members_that_drop_out(consortium):
    group = consortium(level=3, members=7)
    coordinator, messages = group.run(gone={(2, "m3")})
    combined = coordinator.combine(messages)
    assert combined.exchanges == 3
    assert list(combined.missing) == ["m3"]


def test_the_budget_is_kept_in_the_ledger(consortium, tmp_path):
    group = consortium(level=3, members=5, privacy=Privacy(epsilon=5.0))
    policy = Policy(one_release=False)
    ledger = Ledger(tmp_path / "m1.ledger")

    def ask():
        """Both requests of a new run."""
        coordinator = group.coordinator()
        first = coordinator.ask()
        sites = {**group.sites(policy), "m1": group.site("m1", policy, Ledger(tmp_path / "m1.ledger"))}
        return sites, coordinator.ask([site.answer(first) for site in sites.values()])

    sites, request = ask()
    answer = sites["m1"].answer(request)
    ledger = Ledger(tmp_path / "m1.ledger")
    assert ledger.spent(sites["m1"].people) == 5.0
    # The same request again gets the same answer: other noise would average out. It costs nothing more.
    again = group.site("m1", policy, ledger).answer(request)
    assert again.content == answer.content
    assert Ledger(tmp_path / "m1.ledger").spent(sites["m1"].people) == 5.0
    sites, request = ask()
    with pytest.raises(RefusedError, match="3 is left of the budget"):
        sites["m1"].answer(request)
    loose = group.site("m1", replace(policy, largest_epsilon=20.0), Ledger(tmp_path / "m1.ledger"))
    assert loose.answer(request)


def test_a_full_disk_loses_no_budget_and_releases_nothing_twice(consortium, tmp_path, monkeypatch):
    """The ledger, with the answer in it, is written first: without it nothing is spent, after it nothing is lost."""
    group = consortium(level=3, members=5)
    book, out = tmp_path / "m1.ledger", tmp_path / "a.mxf"
    coordinator, sites = group.coordinator(), group.sites()
    sites["m1"] = group.site("m1", ledger=Ledger(book))
    first = coordinator.ask()
    request = coordinator.ask([site.answer(first) for site in sites.values()])
    before, write = book.read_bytes(), _files.write_atomically

    def full(stops, path, content, **options):
        if path.suffix == stops:
            raise OSError(28, "No space left on device")
        return write(path, content, **options)

    for stops, spent in ((".ledger", 0.0), (".mxf", group.study.privacy.epsilon)):
        monkeypatch.setattr(_files, "write_atomically", partial(full, stops))
        with pytest.raises(DataError, match="No space left"):
            group.site("m1", ledger=Ledger(book)).answer(request).save(out)
        assert not out.exists()
        assert (book.read_bytes() == before) == (spent == 0.0)
        assert Ledger(book).spent(sites["m1"].people) == spent
    monkeypatch.undo()
    # There is room again: the answer that was never sent, with its noise.
    answers = [group.site("m1", ledger=Ledger(book)).answer(request) for _ in range(2)]
    assert answers[0].content == answers[1].save(out).read_bytes()
    assert Ledger(book).spent(sites["m1"].people) == group.study.privacy.epsilon
    assert len(book.read_text().splitlines()) == 2


def test_settings_are_checked():
    with pytest.raises(ValueError, match="delta"):
        Privacy(delta=1.0)
    with pytest.raises(ValueError, match="epsilon"):
        Privacy(epsilon=0.0)


def test_too_many_rows(consortium, monkeypatch):
    group = consortium(level=3)
    monkeypatch.setattr(privacy, "MOST_ROWS", 4)
    with pytest.raises(DataError, match="up to 16 rows"):
        privacy.private_vector(group.study, group.site("m1").rows)
