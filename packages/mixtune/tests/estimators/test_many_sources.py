"""Very many sources: what is learned from a sample, what is said of the others, and how much memory it takes."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from mixtune import RegretOptimalRegressorCV
from mixtune.choice import SETTINGS, _choose
from mixtune.estimators import _cv, _fits


def draw_many(count, *, rows=12, p=4, focal=15, seed=0, spread=0.4):
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(p)

    def draw(n, head):
        X = rng.standard_normal((n, p))
        return X, X @ head + 0.5 * rng.standard_normal(n) + 1.0

    truth = common + spread * rng.standard_normal(p)
    X, y = draw(focal, truth)
    return X, y, {f"s{k}": draw(rows, common + spread * rng.standard_normal(p)) for k in range(count)}, truth


@pytest.fixture(scope="module")
def sampled():
    X, y, sources, _ = draw_many(160)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_choose, "SETTINGS", replace(SETTINGS, sampled_sources=40))
        patch.setattr(_cv, "MOST_REMOVALS", 25)
        model = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)
        model.removal_effects()
    return model


def test_a_note_says_how_many_sources_were_learned_from(sampled):
    assert [note for note in sampled.notes_ if "sources" in note] == [
        "160 sources: priors were learned from 40 of them, drawn at random (seed 0)"
    ]
    places = sampled._places
    assert len(places) == 40
    weights = sampled.weights_.values
    assert weights.shape == (161,)
    assert weights.sum() == pytest.approx(1)
    others = np.setdiff1d(np.arange(160), places)
    assert not weights[1 + others].any()
    assert np.all(weights[1 + places] > 0)
    for candidate in sampled.candidates_:
        assert candidate.weights.shape == (161,)
        assert not candidate.weights[1 + others].any()


def test_a_sample_is_a_fit_to_the_sampled_sources_but_for_scale_and_comparisons():
    X, y, sources, _ = draw_many(160)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_choose, "SETTINGS", replace(SETTINGS, sampled_sources=40))
        found = RegretOptimalRegressorCV(feature_map=None, standardise=False, fit_intercept=False).fit(
            X, y, sources=sources
        )
    chosen = {name: sources[name] for name in (f"s{k}" for k in found._places)}
    alone = RegretOptimalRegressorCV(feature_map=None, standardise=False, fit_intercept=False).fit(X, y, sources=chosen)
    np.testing.assert_allclose(found.coef_, alone.coef_, rtol=1e-9)
    np.testing.assert_allclose(found.loo_predictions_, alone.loo_predictions_, rtol=1e-9)
    methods = {c.method: c for c in found.compared_}
    assert methods["own rows alone"].loo_error == pytest.approx(alone.compared_[1].loo_error)
    assert methods["pooled"].loo_error != pytest.approx(alone.compared_[2].loo_error, rel=1e-6)


def test_the_joint_fit_is_to_all_rows(monkeypatch):
    X, y, sources, _ = draw_many(90)
    whole = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)
    monkeypatch.setattr(_choose, "SETTINGS", replace(SETTINGS, sampled_sources=30))
    part = RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources)
    assert part.notes_
    for method in ("pooled", "mean of local models"):
        one, two = ({c.method: c for c in model.compared_}[method] for model in (whole, part))
        assert one.loo_error == pytest.approx(two.loo_error, rel=1e-9)
    np.testing.assert_allclose(part.weights_.scores, whole.weights_.scores)


def test_a_sample_predicts_about_as_well_as_all_sources(monkeypatch):
    errors = []
    for seed in range(4):
        X, y, sources, truth = draw_many(150, seed=seed)
        new = np.random.default_rng(99).standard_normal((400, 4))
        per = []
        for limit in (10**9, 40):
            monkeypatch.setattr(_choose, "SETTINGS", replace(SETTINGS, sampled_sources=limit))
            model = RegretOptimalRegressorCV(feature_map=None, clamp=False).fit(X, y, sources=sources)
            per.append(np.sqrt(np.mean((model.predict(new) - new @ truth - 1.0) ** 2)))
        errors.append(per)
    whole, part = np.mean(errors, axis=0)
    assert part < 1.1 * whole


def test_removals_of_the_heaviest_and_of_those_without_a_part(sampled):
    effects = {effect.name: effect for effect in sampled.removal_effects()}
    weights = dict(zip(sampled.domain_names_[1:], sampled.weights_.values[1:]))
    changed = {name for name, effect in effects.items() if effect.shift > 0}
    heaviest = sorted(weights, key=lambda name: -weights[name])[:25]
    assert changed == set(heaviest)
    unused = {name for name, weight in weights.items() if weight == 0}
    assert set(effects) == changed | unused
    for name in unused:
        assert (effects[name].change, effects[name].shift) == (0.0, 0.0)
        assert effects[name].loo_error == pytest.approx(sampled.loo_error_)
    assert list(effects) == [name for name in sampled.domain_names_ if name in effects]


def test_of_very_many_rows_some_are_drawn_for_the_directions(sampled, monkeypatch):
    prepared = sampled._comparable
    monkeypatch.setattr(_fits, "MOST_ROWS", 400)
    drawn = _fits._rows_in_order(prepared, 0)
    focal = prepared.focal
    assert len(drawn.y) == len(focal.y) + 400
    pairs = [{(*x, y) for x, y in zip(rows.X.tolist(), rows.targets[:, 0].tolist())} for rows in (drawn, focal)]
    joined = {
        (*x, y)
        for rows in map(prepared.scaling.apply, prepared.mapped)
        for x, y in zip(rows.X.tolist(), rows.targets[:, 0].tolist())
    }
    assert pairs[1] < pairs[0] < joined


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


@pytest.mark.parametrize("rows", [30, 90])
def test_the_order_of_rows_sources_and_columns_does_not_matter_with_very_many_columns(monkeypatch, rows):
    """Principal directions come from a draw of the rows, and from a randomised decomposition."""
    monkeypatch.setattr(_fits, "WIDEST", 10)
    monkeypatch.setattr(_fits, "EXACT_WIDTH", 10)
    rng = np.random.default_rng(rows)
    parts = [(rng.standard_normal((n, 40)), rng.standard_normal(n)) for n in (20, rows, rows, rows)]
    signs, columns = rng.choice([-1.0, 1.0], 40), rng.permutation(40)

    def predict(places, reorder):
        orders = [rng.permutation(len(y)) if reorder else np.arange(len(y)) for _, y in parts]
        moved = [((X * signs)[order][:, columns] if reorder else X, y[order]) for (X, y), order in zip(parts, orders)]
        sources = {f"s{k}": moved[k] for k in places}
        model = RegretOptimalRegressorCV(feature_map=None).fit(*moved[0], sources=sources)
        new = np.linspace(-1, 1, 80).reshape(2, 40)
        return model.predict((new * signs)[:, columns] if reorder else new)

    np.testing.assert_allclose(predict([3, 1, 2], True), predict([1, 2, 3], False), atol=1e-8)
