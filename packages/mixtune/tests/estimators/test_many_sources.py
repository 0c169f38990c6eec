"""Very many sources: what is learned from a sample, what is said of the others, and how much memory it takes."""

import json
import subprocess
import sys

import numpy as np
import pytest

from mixtune import RegretOptimalRegressorCV
from mixtune.choice import SETTINGS


def draw_many(count, *, rows=12, p=4, focal=15, seed=0, spread=0.4):
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(p)

    def draw(n, head):
        X = rng.standard_normal((n, p))
        return X, X @ head + 0.5 * rng.standard_normal(n) + 1.0

    truth = common + spread * rng.standard_normal(p)
    X, y = draw(focal, truth)
    return X, y, {f"s{k}": draw(rows, common + spread * rng.standard_normal(p)) for k in range(count)}, truth


#: Priors are learned from at most so many sources.
MOST = SETTINGS.sampled_sources
COUNT = MOST + 120


@pytest.fixture(scope="module")
def data():
    return draw_many(COUNT)


@pytest.fixture(scope="module")
def sampled(data):
    X, y, sources, _ = data
    return RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)


def places_of(model):
    """The sources that were learned from."""
    return np.flatnonzero(model.weights_.values[1:])


def test_a_note_says_how_many_sources_were_learned_from(sampled):
    assert [note for note in sampled.notes_ if "sources" in note] == [
        f"{COUNT} sources: priors were learned from {MOST} of them, drawn at random (seed 0)"
    ]
    weights = sampled.weights_.values
    assert weights.shape == (COUNT + 1,)
    assert weights.sum() == pytest.approx(1)
    assert len(places_of(sampled)) == MOST
    others = np.setdiff1d(np.arange(COUNT), places_of(sampled))
    for candidate in sampled.candidates_:
        assert candidate.weights.shape == (COUNT + 1,)
        assert not candidate.weights[1 + others].any()


def test_a_sample_is_a_fit_to_the_sampled_sources_but_for_scale(data):
    X, y, sources, _ = data
    options = {"feature_map": None, "standardise": False, "fit_intercept": False}
    found = RegretOptimalRegressorCV(**options).fit(X, y, sources=sources)
    chosen = {name: sources[name] for name in (f"s{k}" for k in places_of(found))}
    alone = RegretOptimalRegressorCV(**options).fit(X, y, sources=chosen)
    np.testing.assert_allclose(found.coef_, alone.coef_, rtol=1e-9)
    np.testing.assert_allclose(found.loo_predictions_, alone.loo_predictions_, rtol=1e-9)


def test_every_source_has_a_score_on_the_focal_rows(sampled):
    assert len(sampled.weights_.scores) == COUNT + 1
    assert np.all(np.isfinite(sampled.weights_.scores))


def test_a_sample_predicts_about_as_well_as_the_law_of_the_domains():
    """Against the posterior mean by the true law and noise; rows of their own would be much worse."""
    errors = []
    for seed in range(4):
        X, y, sources, truth = draw_many(COUNT, focal=6, seed=seed)
        common = np.random.default_rng(seed).standard_normal(4)
        model = RegretOptimalRegressorCV(feature_map=None, clamp=False).fit(X, y, sources=sources)
        precision = np.eye(4) / 0.4**2
        best = np.linalg.solve(X.T @ X / 0.25 + precision, X.T @ (y - 1.0) / 0.25 + precision @ common)
        alone = RegretOptimalRegressorCV(feature_map=None, clamp=False).fit(X, y)
        errors.append([np.sum((head - truth) ** 2) for head in (model.coef_, best, alone.coef_)])
    ours, best, alone = np.sqrt(np.mean(errors, axis=0))
    assert ours < 1.2 * best
    assert ours < 0.9 * alone


def test_removals_of_the_heaviest_and_of_those_without_a_part(sampled):
    effects = {effect.name: effect for effect in sampled.removal_effects()}
    weights = dict(zip(sampled.domain_names_[1:], sampled.weights_.values[1:]))
    changed = {name for name, effect in effects.items() if effect.shift > 0}
    heaviest = sorted(weights, key=lambda name: -weights[name])[:100]
    assert changed == set(heaviest)
    unused = {name for name, weight in weights.items() if weight == 0}
    assert set(effects) == changed | unused
    for name in unused:
        assert (effects[name].change, effects[name].shift) == (0.0, 0.0)
        assert effects[name].loo_error == pytest.approx(sampled.loo_error_)
    assert list(effects) == [name for name in sampled.domain_names_ if name in effects]


PEAK = """
import json, re, resource
from pathlib import Path
import numpy as np
from mixtune import {name}
count, rows, p = {count}, {rows}, {p}

def peak():
    # What getrusage says may be the peak of the process that started this one.
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

rng = np.random.default_rng(0)
U = rng.standard_normal((count, rows, p))
y = U @ rng.standard_normal(p) + rng.standard_normal((count, rows))
sources = {{str(k): (U[k], y[k]) for k in range(1, count)}}
{name}(feature_map=None).fit(U[0][:30], y[0][:30], sources={{str(k): (U[k], y[k]) for k in range(1, 100)}})
before = peak()
model = {name}(feature_map=None).fit(U[0][:30], y[0][:30], sources=sources)
assert np.all(np.isfinite(model.coef_))
print(json.dumps([(peak() - before) / 1024, U.nbytes / 2**20]))
"""


def test_memory_grows_with_the_rows_and_not_with_a_matrix_for_each_source():
    """A message of every source would be 1,500 x 3 x 60 x 60 numbers, 130 MB."""
    code = PEAK.format(name="RegretOptimalRegressorCV", count=1500, rows=10, p=60)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    more, rows = json.loads(done.stdout)
    assert rows == pytest.approx(6.9, abs=0.1)
    assert more < 90


@pytest.mark.parametrize(("rows", "columns"), [(30, 1600), (300, 520)])
def test_the_order_of_rows_sources_and_columns_does_not_matter_with_very_many_columns(rows, columns):
    """Principal directions come from a draw of the rows, and from a randomised decomposition."""
    rng = np.random.default_rng(rows)
    parts = [(rng.standard_normal((n, columns)), rng.standard_normal(n)) for n in (20, rows, rows, rows)]
    signs, moved_columns = rng.choice([-1.0, 1.0], columns), rng.permutation(columns)

    def predict(places, reorder):
        orders = [rng.permutation(len(y)) if reorder else np.arange(len(y)) for _, y in parts]
        moved = [
            ((X * signs)[order][:, moved_columns] if reorder else X, y[order]) for (X, y), order in zip(parts, orders)
        ]
        sources = {f"s{k}": moved[k] for k in places}
        model = RegretOptimalRegressorCV(feature_map=None).fit(*moved[0], sources=sources)
        new = np.linspace(-1, 1, 2 * columns).reshape(2, columns)
        return model.predict((new * signs)[:, moved_columns] if reorder else new)

    np.testing.assert_allclose(predict([3, 1, 2], True), predict([1, 2, 3], False), atol=1e-7)
