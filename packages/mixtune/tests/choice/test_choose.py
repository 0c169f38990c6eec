"""The choice: shares, invariances, odd data, and simulated families where transfer helps or would hurt."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from choice.tasks import changed, design_of, make_family, make_task
from mixtune.choice import (
    SETTINGS,
    Sample,
    _choose,
    _model_averaging,
    choose,
    compare,
    sample_sources,
)
from mixtune.choice._model_averaging import (
    ValidationTask,
    guarded,
    interval_inflation,
    negligible_error,
    nested_left_out,
    robust_errors,
    robust_losses,
    stacked_weights,
    tilted_weights,
    transfer_gains,
    weights_of_tasks,
)
from mixtune.moments import Rows


def scaled(task, size):
    return changed(task, y=size * task.rows.y)


def assert_sound(choice, task, sources):
    """Finite, on the simplex, of the right shapes, and the focal-only fit among the candidates."""
    count = len(choice.labels)
    assert choice.head.shape == (task.columns,)
    for name in ("head", "shares", "ridges", "weights", "own", "play_gains", "spreads", "inflation", "size"):
        assert np.all(np.isfinite(getattr(choice, name))), name
    for name in ("errors", "left_out", "focal_left_out"):
        assert not np.any(np.isnan(getattr(choice, name))), name
    assert choice.shares.shape == choice.errors.shape == choice.ridges.shape == choice.own.shape == (count,)
    np.testing.assert_allclose(choice.shares.sum(), 1)
    assert choice.shares.min() >= 0
    assert choice.weights.shape == (count, len(sources))
    assert choice.left_out.shape == choice.spreads.shape == (len(task.rows.y),)
    assert ((choice.own >= 0) & (choice.own <= 1)).all()
    assert "focal only" in {family for family, _ in choice.labels}
    assert 1 <= choice.inflation <= 2
    if len(sources):
        sums = choice.weights.sum(axis=1)
        np.testing.assert_allclose(sums[sums > 0], 1)
        for index in range(min(len(sources), 3)):
            head, left_out = choice.without(index)
            assert np.isfinite(head).all()
            assert not np.isnan(left_out).any()


@pytest.mark.parametrize("count", [0, 1, 2, 5, 9])
@pytest.mark.parametrize("n", [1, 2, 20])
def test_few_rows_and_few_sources(n, count):
    focal, sources, _ = make_family(n=n, sizes=(30,) * count)
    assert_sound(choose(focal, sources), focal, sources)
    wide, others, _ = make_family(n=n, sizes=(30,) * min(count, 3), p=45)
    assert_sound(choose(wide, others), wide, others)


def same_head(focal, sources):
    head = np.array([1.0, -2.0, 0.7, 0.5])
    return [changed(t, y=design_of(t) @ head) for t in (focal, *sources)]


ODD = {
    "constant target here": lambda f, s: [changed(f, y=np.full(len(f.rows.y), 3.0)), *s],
    "constant target everywhere": lambda f, s: [changed(t, y=np.full(len(t.rows.y), 3.0)) for t in (f, *s)],
    "zero target": lambda f, s: [scaled(t, 0.0) for t in (f, *s)],
    "constant column": lambda f, s: [
        changed(t, X=np.column_stack([t.rows.X, np.zeros(len(t.rows.y))])) for t in (f, *s)
    ],
    "same column twice": lambda f, s: [changed(t, X=t.rows.X[:, [0, 1, 2, 0]]) for t in (f, *s)],
    "collinear sources": lambda f, s: [f, *(changed(t, X=t.rows.X[:, [0, 0, 0]]) for t in s)],
    "no noise": same_head,
    "a source of one row": lambda f, s: [f, s[0].part(slice(1)), *s[1:]],
    "sources of one row": lambda f, s: [f, *(t.part(slice(1)) for t in s)],
    "huge sources": lambda f, s: [f, *(scaled(t, 1e6) for t in s)],
    "tiny sources": lambda f, s: [f, *(scaled(t, 1e-6) for t in s)],
    "one huge source": lambda f, s: [f, scaled(s[0], 1e6), *s[1:]],
    "light rows": lambda f, s: [changed(t, weight=np.full(len(t.rows.y), 1e-3)) for t in (f, *s)],
}


@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize("kind", ODD)
def test_odd_data(kind, count):
    focal, *sources = ODD[kind](*make_family(n=12, sizes=(25,) * count)[:2])
    assert_sound(choose(focal, sources), focal, sources)


def test_a_constant_target_is_predicted_exactly_whatever_the_sources_say():
    for p in (3, 45):
        focal, sources, _ = make_family(n=15, sizes=(40,) * 4, p=p)
        focal = changed(focal, y=np.full(15, 2.0))
        found = choose(focal, sources)
        np.testing.assert_allclose(design_of(focal) @ found.head, 2.0, atol=1e-6)
        np.testing.assert_allclose(found.left_out, 0.0, atol=1e-6)
        assert np.abs(found.play_gains).max() < 20


def test_noiseless_rows_are_recovered():
    focal, *sources = same_head(*make_family(n=12)[:2])
    np.testing.assert_allclose(choose(focal, sources).head, [1.0, -2.0, 0.7, 0.5], atol=1e-4)


def test_very_many_sources():
    focal, sources, _ = make_family(sizes=(30,) * 300, n=10)
    assert_sound(choose(focal, sources), focal, sources)


def test_the_same_seed_gives_the_same_choice():
    focal, sources, _ = make_family(sizes=(40,) * 6, n=10)
    one, two, other = choose(focal, sources, seed=3), choose(focal, sources, seed=3), choose(focal, sources, seed=4)
    assert one.n_plays == 6
    np.testing.assert_array_equal(one.head, two.head)
    np.testing.assert_array_equal(one.shares, two.shares)
    assert not np.array_equal(one.shares, other.shares)


@pytest.mark.parametrize(("count", "p"), [(0, 3), (2, 3), (6, 3), (3, 45)])
def test_units_of_the_target(count, p):
    focal, sources, _ = make_family(sizes=(40,) * count, p=p)
    one = choose(focal, sources)
    for size in (1e6, 1e-6):
        other = choose(scaled(focal, size), [scaled(t, size) for t in sources])
        np.testing.assert_allclose(other.head, size * one.head, rtol=1e-6, atol=1e-9 * size)
        np.testing.assert_allclose(other.left_out, size * one.left_out, rtol=1e-5, atol=1e-9 * size)
        np.testing.assert_allclose(other.errors, size**2 * one.errors, rtol=1e-5)
        np.testing.assert_allclose(other.shares, one.shares, rtol=1e-4, atol=1e-10)


@pytest.mark.parametrize("count", [2, 5])
def test_the_order_of_the_sources(count):
    """No source has rows enough to play, so that no play depends on the order."""
    focal, sources, _ = make_family(sizes=tuple(range(5, 5 + count)), n=20)
    order = np.random.default_rng(0).permutation(count)
    one, other = choose(focal, sources), choose(focal, [sources[k] for k in order])
    assert one.n_plays == 0
    np.testing.assert_allclose(other.head, one.head, atol=1e-8)
    np.testing.assert_allclose(other.weights, one.weights[:, order], atol=1e-8)


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_row_of_weight_two_is_the_row_twice(count):
    focal, sources, _ = make_family(sizes=(12,) * count, n=20)
    weight = np.where(np.arange(20) % 3 == 0, 2.0, 1.0)
    again = np.repeat(np.arange(20), weight.astype(int))
    one = choose(changed(focal, weight=weight), sources)
    two = choose(focal.part(again), sources)
    assert one.n_plays == two.n_plays == 0
    np.testing.assert_allclose(one.head, two.head, atol=1e-9)
    np.testing.assert_allclose(one.errors, two.errors, rtol=1e-7)
    np.testing.assert_allclose(one.left_out[again], two.left_out, atol=1e-8)
    np.testing.assert_allclose(one.own, two.own, atol=1e-8)


def test_without_a_source_is_a_fit_with_the_source_masked():
    focal, sources, _ = make_family(sizes=(30,) * 5)
    found = choose(focal, sources)
    head, left_out = found.without(2)
    mask = np.array([1.0, 1.0, 0.0, 1.0, 1.0])
    fits = found.pool.fits(scaled(focal, 1 / found.size), mask)
    np.testing.assert_allclose(head, found.size * found.shares @ np.vstack([f.paths.heads for f in fits]))
    expected = found.size * found.shares @ np.vstack([f.paths.left_out for f in fits])
    np.testing.assert_allclose(left_out, expected)
    head, left_out = found.without(None)
    np.testing.assert_allclose(head, found.head)
    np.testing.assert_allclose(left_out, found.left_out)


def test_without_the_only_source_the_focal_rows_are_alone():
    focal, sources, _ = make_family(sizes=(50,), spread=0.05)
    found = choose(focal, sources)
    head, left_out = found.without(0)
    alone = [i for i, (family, _) in enumerate(found.labels) if family == "focal only"]
    best = min(alone, key=lambda i: found.errors[i])
    fits = found.pool.families[0].fits(focal, np.ones(1))
    np.testing.assert_allclose(head, fits.paths.heads[best], atol=1e-9)
    np.testing.assert_allclose(left_out, fits.paths.left_out[best], atol=1e-9)


@pytest.mark.parametrize(("p", "count"), [(3, 0), (3, 4), (45, 0), (45, 2), (45, 14)])
def test_more_rows_than_are_judged_at_once(monkeypatch, p, count):
    """The last block has fewer rows than columns where p = 45."""
    focal, sources, _ = make_family(n=130, sizes=(40,) * count, p=p)
    whole = choose(focal, sources)
    monkeypatch.setattr(_choose, "SETTINGS", replace(SETTINGS, judged_rows=60))
    some = choose(focal, sources)
    assert len(some.task.rows.y) == 60
    assert some.left_out.shape == (130,)
    # At the shares that the judged rows gave, all else is that of all rows.
    fits = whole.pool.fits(whole.task, np.ones(count))
    heads, left_out, leverages = (
        np.vstack([getattr(f.paths, name) for f in fits]) for name in ("heads", "left_out", "leverages")
    )
    np.testing.assert_allclose(some.head, whole.size * some.shares @ heads, atol=1e-8)
    np.testing.assert_allclose(some.left_out, whole.size * some.shares @ left_out, atol=1e-8)
    top = leverages[int(np.argmax(some.shares))]
    np.testing.assert_allclose(some.spreads, 1 + top / (1 - top), atol=1e-8)
    # An estimate from 60 of 130 rows; without scaling it up it would be about half.
    assert some.own.mean() == pytest.approx(whole.own.mean(), rel=0.2)
    if count:
        assert_sound(some, focal, sources)


@pytest.mark.parametrize(("p", "count"), [(3, 3), (3, 14), (45, 5), (45, 14)])
def test_the_order_of_rows_and_of_sources_does_not_matter(p, count):
    rng = np.random.default_rng(p + count)
    head = rng.standard_normal(p)
    focal, *sources = (make_task(rng, n, p, head=head + 0.5 * rng.standard_normal(p)) for n in (20, *(60,) * count))
    found = choose(focal, sources)
    assert found.n_plays == min(count, 12 if p > 40 else count)
    order = rng.permutation(count)
    again = choose(focal.part(rng.permutation(20)), [sources[k].part(rng.permutation(60)) for k in order])
    np.testing.assert_allclose(again.head, found.head, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(again.shares, found.shares, rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(np.sort(again.play_gains), np.sort(found.play_gains), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(
        again.shares @ again.weights, (found.shares @ found.weights)[order], rtol=1e-4, atol=1e-9
    )


def test_few_sources_play_several_times(monkeypatch):
    played = []
    kept = _choose.ValidationTask
    monkeypatch.setattr(
        _choose,
        "ValidationTask",
        lambda source, *rest: played.append((source, rest[0])) or kept(source, *rest),
    )
    focal, sources, _ = make_family(sizes=(60,) * 5, n=20)
    found = choose(focal, sources)
    assert found.n_plays == len(found.play_gains) == 5
    assert sorted(player for player, _ in played) == sorted(list(range(5)) * 2)
    one, two = (residuals for player, residuals in played if player == 0)
    assert not np.allclose(one, two)


def test_gains_of_a_source_are_averaged_over_its_plays():
    one, two, other = plays_of(0, 3)
    share = np.full(12, 1 / 12)
    again = ValidationTask(one.source, two.residuals, two.weight, two.left_out, 0)
    single = transfer_gains([one, two, other], share)
    np.testing.assert_allclose(transfer_gains([one, again, other], share), [(single[0] + single[1]) / 2, single[2]])


def test_a_play_of_targets_that_do_not_vary_says_nothing():
    plays = plays_of(0, 3)
    exact = np.ones((12, 10))
    exact[4] = 0.0
    equal = np.full(12, 1 / 12)
    others = sum(np.sqrt(play.weight.sum()) for play in plays)
    share = others / (others + np.sqrt(10))
    found = stacked_weights([*plays, ValidationTask(3, exact, np.ones(10), np.ones((12, 5)), 0)], equal, 0.2 * share)
    np.testing.assert_allclose(found, stacked_weights(plays, equal, 0.2), atol=1e-3)


def test_rounding_does_not_decide_whether_targets_vary():
    rng = np.random.default_rng(0)
    for level in rng.uniform(-2, 2, 50):
        constant = make_task(rng, 8, 2, weights=rng.uniform(0.01, 1.0, 8))
        assert negligible_error(changed(constant, y=np.full(8, level))) == SETTINGS.negligible_error
    varied = changed(constant, y=level + 1e-6 * np.array([1.0, -1.0] * 4))
    rows = varied.free.rows
    expected = SETTINGS.negligible_error * np.average(rows.y**2, weights=rows.weight)
    assert negligible_error(varied) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("count", [9, 10])
def test_weights_of_rows_count_as_repeated_rows_in_stacking(count):
    """Also where large residuals are cut off, which depends on their median."""
    rng = np.random.default_rng(count)
    residuals, times = rng.standard_t(2, (3, count)), rng.integers(1, 4, count)
    residuals[:, 0] *= 30
    weighted = ValidationTask(0, residuals, times.astype(float), residuals, 0)
    repeated = np.repeat(residuals, times, axis=1)
    rows = ValidationTask(0, repeated, np.ones(times.sum()), repeated, 0)
    equal = np.full(3, 1 / 3)
    np.testing.assert_allclose(stacked_weights([weighted], equal, 0.1), stacked_weights([rows], equal, 0.1), atol=1e-12)


def test_more_columns_than_rows_are_judged_whole(monkeypatch):
    focal, _, _ = make_family(n=60, sizes=(), p=80)
    whole = choose(focal, [])
    monkeypatch.setattr(_choose, "SETTINGS", replace(SETTINGS, judged_rows=25))
    np.testing.assert_allclose(choose(focal, []).left_out, whole.left_out)


def test_wide_plays_leave_some_rows_out_and_choose_as_with_all(monkeypatch):
    focal, sources, _ = make_family(n=60, sizes=(90,) * 4, p=12)
    monkeypatch.setattr(_choose, "SETTINGS", replace(SETTINGS, wide_columns=10, narrow_columns=8, left_out_rows=60))
    whole = choose(focal, sources)
    monkeypatch.setattr(_choose, "SETTINGS", replace(SETTINGS, wide_columns=10, narrow_columns=8, left_out_rows=20))
    some = choose(focal, sources)
    assert [task.left_out.shape[1] for task in some.tasks] == [20] * len(whole.tasks)
    np.testing.assert_allclose(some.shares, whole.shares, atol=1e-10)
    np.testing.assert_allclose(some.head, whole.head, atol=1e-10)
    for mine, other in zip(some.tasks, whole.tasks):
        np.testing.assert_allclose(mine.left_out[0], other.left_out[0, :20], atol=1e-8)


@pytest.mark.parametrize(("p", "count", "n", "intercept"), [(3, 9, 20, True), (3, 4, 20, False), (6, 9, 4, True)])
def test_plays_in_one_call_are_those_one_by_one(monkeypatch, p, count, n, intercept):
    rng = np.random.default_rng(0)
    focal, *sources = [
        make_task(rng, size, p, head=np.ones(p), weights=[0.5, 1.0, 3.0], intercept=intercept)
        for size in (n, *[60] * count)
    ]
    together = choose(focal, sources)
    monkeypatch.setattr(_choose, "SETTINGS", replace(SETTINGS, batch_entries=0))
    alone = choose(focal, sources)
    assert len(together.tasks) == len(alone.tasks) >= count
    np.testing.assert_allclose(together.shares, alone.shares, atol=1e-9)
    for mine, other in zip(together.tasks, alone.tasks):
        assert (mine.source, mine.negligible) == (other.source, pytest.approx(other.negligible))
        np.testing.assert_allclose(mine.residuals, other.residuals, atol=1e-9)
        np.testing.assert_allclose(mine.left_out, other.left_out, atol=1e-9)


def test_nobody_asks_for_rows_of_sources_that_take_no_focal_role():
    focal, sources, _ = make_family(n=20, sizes=(12,) * 3)

    def unasked():
        raise AssertionError("rows were asked for")

    choose(focal, [Sample(source.moments, unasked) for source in sources], plan=_choose.Plan(None, 20, False, []))
    with pytest.raises(AssertionError, match="asked for"):
        choose(focal, [Sample(source.moments, unasked) for source in sources])


def plays_of(seed, count, candidates=12):
    rng = np.random.default_rng(seed)
    plays = []
    for player in range(count):
        rows = 40 + 50 * (player % 3)
        common = rng.standard_normal(rows)
        own = rng.standard_normal((candidates, rows)) * np.linspace(0.2, 3.0, candidates)[:, None]
        plays.append(ValidationTask(player, common + own, rng.choice([1.0, 2.0], rows), np.ones((candidates, 5)), 0))
    return plays


def average_weights(scores, prior, tasks, count, *, enough, negligible=0.0):
    """What validation tasks say, tilted by leave-one-out."""
    return tilted_weights(scores, weights_of_tasks(prior, tasks, enough=enough), count, negligible=negligible)


def weighted_median(values, weight):
    """The value that has half of the weight below it."""
    order = np.argsort(values)
    return values[order][np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)]


@pytest.mark.parametrize("count", [2, 5, 24])
def test_stacked_shares_are_the_minimum_on_the_simplex(count):
    plays, equal = plays_of(count, count), np.full(12, 1 / 12)
    pull = 0.005 * (24 / count) ** 2
    cross = np.zeros((12, 12))
    total = sum(np.sqrt(play.weight.sum()) for play in plays)
    for play in plays:
        limit = 5 * 1.4826 * min(weighted_median(np.abs(row), play.weight) for row in play.residuals)
        kept = np.clip(play.residuals, -limit, limit)
        weight = play.weight / play.weight.sum() / np.median(np.sort(play.errors)[:3])
        cross += (kept * weight) @ kept.T * np.sqrt(play.weight.sum()) / total

    def objective(logits):
        share = np.exp(logits - logits.max())
        share /= share.sum()
        return share @ cross @ share + pull * np.sum(share * np.log(np.maximum(share, 1e-300) / equal))

    found = stacked_weights(plays, equal, pull)
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(), 1)
    best = minimize(objective, np.zeros(12), method="BFGS").fun
    assert objective(np.log(found)) <= best + 1e-5 * abs(best)
    assert best < objective(np.zeros(12))


def test_shares_without_plays_fall_with_the_error():
    scores = np.array([1.0, 1.2, 4.0, np.inf])
    found = average_weights(scores, np.full(4, 0.25), [], 20.0, enough=24)
    expected = np.exp(-(scores - 1.0) / (4.0 / 20))
    np.testing.assert_allclose(found, expected / expected.sum())
    nothing = average_weights(np.full(4, np.inf), np.full(4, 0.25), [], 1.0, enough=24)
    assert nothing.tolist() == [0, 0, 0, 1]


def excess(head, truth):
    return float(np.sum((head - truth) ** 2))


def focal_only(focal):
    return choose(focal, []).head


@pytest.mark.parametrize(("p", "count", "part"), [(3, 6, 0.6), (3, 2, 0.9), (45, 3, 0.6)])
def test_transfer_helps_where_domains_are_alike(p, count, part):
    ours, alone = [], []
    for seed in range(4):
        focal, sources, truth = make_family(seed, n=15, sizes=(80,) * count, p=p, spread=0.1)
        ours.append(excess(choose(focal, sources).head, truth))
        alone.append(excess(focal_only(focal), truth))
    assert np.mean(ours) < part * np.mean(alone)


@pytest.mark.parametrize(("p", "count", "flipped"), [(3, 8, 4), (3, 6, 6), (3, 2, 2), (45, 3, 3)])
def test_reversed_sources_do_not_hurt(p, count, flipped):
    """Mean squared error on new rows, noise included."""
    ours, alone = [], []
    for seed in range(4):
        focal, sources, truth = make_family(seed, n=20, sizes=(60,) * count, p=p, flipped=flipped)
        ours.append(1 + excess(choose(focal, sources).head, truth))
        alone.append(1 + excess(focal_only(focal), truth))
    assert np.sqrt(np.mean(ours)) < 1.1 * np.sqrt(np.mean(alone))


def test_outliers_in_the_target_do_not_decide():
    focal, sources, truth = make_family(1, n=30, sizes=(60,) * 6)
    y = focal.rows.y.copy()
    y[3] += 200.0
    absurd = changed(focal, y=y)
    assert excess(choose(absurd, sources).head, truth) < 0.3 * excess(focal_only(absurd), truth)


def test_sources_without_rows_to_spare_play_by_leaving_rows_out():
    focal, sources, truth = make_family(n=50, sizes=(40,) * 5)
    found = choose(focal, sources)
    assert found.n_plays == 5
    assert found.inflation == pytest.approx(1.0)
    assert np.all(np.isfinite(found.play_errors))
    assert np.all(np.isfinite(found.play_gains))
    assert excess(found.head, truth) < excess(focal_only(focal), truth)


def test_a_source_that_plays_with_all_its_rows_is_its_own_task(monkeypatch):
    rng = np.random.default_rng(5)
    head = rng.standard_normal(60)
    focal, *sources = [make_task(rng, 20, 60, head=head + 0.3 * rng.standard_normal(60)) for _ in range(5)]
    found = choose(focal, sources)
    monkeypatch.setattr(_choose, "_task", lambda source, places: source.part(places))
    expected = choose(focal, sources)
    assert len(found.tasks) == 4
    np.testing.assert_allclose(found.shares, expected.shares, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.head, expected.head, rtol=1e-9, atol=1e-12)


def test_left_out_plays_survive_rows_that_cannot_be_left_out():
    """With fewer rows than columns some leverages are 1 and residuals without the row infinite."""
    focal, sources, _ = make_family(n=9, sizes=(9,) * 5, p=12)
    found = choose(focal, sources)
    assert found.n_plays == 5
    assert np.all(np.isfinite(found.head))
    assert np.all(np.isfinite(found.play_gains))


def test_validation_by_left_out_rows_has_finite_errors_without_noise():
    """Without noise some leverages are 1, and the residuals of such rows without them infinite."""
    focal, sources, _ = make_family(n=5, sizes=(8,) * 5, p=12, noise=0.0)
    found = choose(focal, sources)
    assert found.n_plays == 5
    assert np.all(np.isfinite(found.play_errors))


def test_more_rows_than_any_source_leave_no_plays():
    focal, sources, _ = make_family(n=90, sizes=(40,) * 5)
    found = choose(focal, sources)
    assert (found.n_plays, found.play_errors, found.inflation) == (0, None, 1.0)
    assert found.play_gains.shape == (0,)
    rng = np.random.default_rng(0)
    plenty = choose(focal, [*sources, make_task(rng, 200, 3), make_task(rng, 200, 3)])
    assert plenty.n_plays == 2
    assert plenty.play_errors.min() >= 1.0


def small_sources(sizes, width=3):
    rng = np.random.default_rng(0)
    return [Rows(rng.standard_normal((size, width)), rng.standard_normal(size)) for size in sizes]


def test_up_to_the_limit_all_sources_are_learned_from():
    for count in (0, 1, 512):
        np.testing.assert_array_equal(sample_sources(small_sources([3] * count), seed=0), np.arange(count))


def test_a_draw_is_in_order_without_repeats_and_by_the_seed():
    sources = small_sources([50] * 2000)
    found = sample_sources(sources, seed=3)
    assert len(found) == 512
    assert np.all(np.diff(found) > 0)
    assert 0 <= found[0] <= found[-1] < 2000
    np.testing.assert_array_equal(found, sample_sources(sources, seed=3))
    assert len(np.intersect1d(found, sample_sources(sources, seed=4))) < 300


def test_a_draw_follows_the_content_of_sources_not_their_order():
    sources = small_sources([20] * 600)
    order = np.random.default_rng(1).permutation(600)
    turned = [sources[k].part(np.arange(19, -1, -1)) for k in order]
    moved = [Rows(-rows.X[:, [2, 0, 1]], rows.y) for rows in turned]
    np.testing.assert_array_equal(sample_sources(sources, seed=0), np.sort(order[sample_sources(moved, seed=0)]))


def test_very_small_sources_are_drawn_in_larger_numbers():
    sizes = [2] * 3000 + [4] * 3000
    assert len(sample_sources(small_sources(sizes, 200), seed=0)) == int(np.ceil(20 * 200 / 3))
    assert len(sample_sources(small_sources([1] * 600, 10_000 // 8), seed=0)) == 600


def hidden(sources):
    """The sources without their rows: sums are all that is known of them."""
    return [Sample(source.moments.without_rows(), intercept=source.intercept) for source in sources]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("p", "count", "rows"), [(3, 2, 40), (3, 9, 30), (3, 14, 40), (45, 4, 90), (45, 4, 20)])
def test_sources_need_no_rows(monkeypatch, p, count, rows, intercept):
    """Without validation tasks, sums say all that rows do."""
    rng = np.random.default_rng(p + count)
    head = rng.standard_normal(p)
    options = {"intercept": intercept, "weights": [1.0, 2.0]}
    focal = make_task(rng, 20, p, head=head, **options)
    sources = [make_task(rng, rows, p, head=head + 0.2 * rng.standard_normal(p), **options) for _ in range(count)]
    found = choose(focal, hidden(sources))
    assert_sound(found, focal, sources)
    assert (found.n_plays, found.play_errors) == (0, None)
    monkeypatch.setattr(_choose, "SETTINGS", replace(SETTINGS, validated_sources=10**6))
    known = choose(focal, sources)
    assert known.labels == found.labels
    tolerance = 1e-10 if rows > p else 1e-7  # a wide Gram matrix knows fewer digits of its rows
    for name in ("head", "shares", "ridges", "weights", "left_out", "own"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(known, name), rtol=tolerance, atol=tolerance, err_msg=name
        )


def test_sources_without_rows_inform_those_that_take_the_focal_role():
    focal, sources, truth = make_family(n=10, sizes=(60,) * 8, spread=0.1)
    found = choose(focal, [*hidden(sources[:4]), *sources[4:]])
    assert found.n_plays == 4
    assert excess(found.head, truth) < excess(focal_only(focal), truth)
    assert (found.shares @ found.weights)[:4].min() > 0


def test_the_guard_moves_weights_by_how_much_likelier_harm_is_than_not():
    rng = np.random.default_rng(0)
    shares, focal = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    alone = rng.standard_normal(400)
    weight = np.ones(400)
    clear = guarded(3 * rng.standard_normal(400), alone, weight, 400.0, shares, focal, [])
    np.testing.assert_allclose(clear, focal, atol=1e-6)
    helps = guarded(0.3 * rng.standard_normal(400), alone, weight, 400.0, shares, focal, [])
    np.testing.assert_array_equal(helps, shares)
    ours = 1.1 * np.roll(alone, 1)
    found = guarded(ours, alone, weight, 400.0, shares, focal, [])
    # The posterior of the log ratio is normal here: a prior N(0, 0.5), and the rows.
    row = compare("focal only", ours, alone, weight)
    spread = np.log(row.ratio_high / row.ratio_low) / (2 * 1.96)
    variance = 1 / (1 / 0.5**2 + 1 / spread**2)
    harm = 2 * norm.cdf(variance * np.log(row.ratio) / spread**2 / variance**0.5) - 1
    assert 0.5 < harm < 1
    np.testing.assert_allclose(found, [harm, 1 - harm], atol=0.01)


def test_the_focal_only_fit_is_compared_at_ridges_chosen_without_the_row():
    """Row by row, by hand; the least of many leave-one-out errors would be too small."""
    rng = np.random.default_rng(3)
    labels = [("pooled", {}), *(("focal only", {"relative ridge": ridge}) for ridge in (0.1, 1.0, 10.0))]
    left_out, weight = rng.standard_normal((4, 9)), rng.uniform(0.5, 2.0, 9)
    left_out[2, 4] = np.inf
    expected = []
    for row in range(9):
        others = np.arange(9) != row
        losses = robust_losses(left_out[1:], weight)[:, others] @ weight[others]
        expected.append(left_out[1 + np.argmin(losses), row])
    found = nested_left_out(labels, left_out, weight)
    np.testing.assert_array_equal(found, expected)
    best = min(np.sum(weight * part**2) for part in left_out[1:])
    assert np.sum(weight * found**2) > best


def test_inflation_is_the_error_on_tests_over_that_of_left_out_rows():
    shares = np.array([0.5, 0.5])

    def task(outside, inside=1.0):
        return ValidationTask(0, np.full((2, 6), outside), np.ones(6), np.full((2, 4), inside), 0)

    assert interval_inflation([task(1.5)], shares) == pytest.approx(1.5)
    assert interval_inflation([task(1.2), task(1.8)], shares) == pytest.approx(np.sqrt(1.2 * 1.8))
    assert interval_inflation([task(0.5)], shares) == 1.0
    assert interval_inflation([task(9.0)], shares) == 2.0
    assert interval_inflation([task(1.5), task(3.0, np.inf)], shares) == pytest.approx(1.5)
    # A left-out row of weight 3 counts as three rows.
    rows = ValidationTask(0, np.full((2, 6), 3.0), np.ones(6), np.tile([1.0, 2.0], (2, 1)), 0)
    weighted = replace(rows, left_out_weight=np.array([1.0, 3.0]))
    repeated = replace(rows, left_out=np.tile([1.0, 2.0, 2.0, 2.0], (2, 1)))
    assert interval_inflation([weighted], shares) == pytest.approx(interval_inflation([repeated], shares))
    assert interval_inflation([weighted], shares) != pytest.approx(interval_inflation([rows], shares))


def test_leave_one_out_errors_grow_linearly_beyond_three_typical_residuals():
    left_out = np.array([[1.0, -1.0, 1.0, 1.0, 100.0], [2.0, 2.0, -2.0, 2.0, 2.0]])
    limit = 3 * 1.4826
    expected = [(4 + limit * (200 - limit)) / 5, 4.0]
    np.testing.assert_allclose(robust_errors(left_out, np.ones(5)), expected)
    # Weights count as rows, in the median as well; residuals that are rounding are not typical.
    heavy = robust_errors(left_out[:, [0, 4]], np.array([1.0, 2.0]))
    np.testing.assert_allclose(heavy, robust_errors(left_out[:, [0, 4, 4]], np.ones(3)))
    np.testing.assert_allclose(
        robust_errors(1e-9 * left_out, np.ones(5), 1e-16), np.maximum(1e-18 * np.mean(left_out**2, axis=1), 1e-16)
    )


def test_weights_are_pulled_by_the_square_of_the_missing_sources(monkeypatch):
    pulls, prior = [], np.full(12, 1 / 12)
    monkeypatch.setattr(
        _model_averaging, "stacked_weights", lambda tasks, equal, pull, *, told: pulls.append((pull, told)) or equal
    )
    for count in (3, 12, 18, 40):
        average_weights(np.ones(12), prior, plays_of(0, count), 20.0, enough=24)
    np.testing.assert_allclose(pulls, [(0.32, 0), (0.02, 0), (0.005 * (24 / 18) ** 2, 10), (0.005, 28 / 0.6)])


@pytest.mark.parametrize(("count", "trust"), [(0, 4.0), (6, 13.0), (7, 14.5), (24, 40.0), (40, 40.0)])
def test_the_more_sources_the_less_leave_one_out_moves_the_weights(monkeypatch, count, trust):
    scores, prior = np.linspace(1.0, 1.5, 12), np.full(12, 1 / 12)
    monkeypatch.setattr(_model_averaging, "stacked_weights", lambda tasks, equal, pull, *, told: equal)
    found = average_weights(scores, prior, plays_of(0, count), 20.0, enough=24)
    expected = np.exp(-(scores - 1.0) / (trust / 20.0))
    np.testing.assert_allclose(found, expected / expected.sum())


@pytest.mark.parametrize("seed", range(5))
def test_weights_settle_where_residuals_are_far_from_typical(seed):
    """Steps that are too long for such residuals are shortened: the slopes of all weights end equal."""
    rng = np.random.default_rng(seed)
    sizes = 0.1 * 10.0 ** rng.uniform(0, 4, (2, 40, 1))
    plays = [
        ValidationTask(place, size * rng.choice([-1, 1], size.shape), np.ones(1), size, 0)
        for place, size in enumerate(sizes)
    ]
    equal = np.full(40, 1 / 40)
    found = stacked_weights(plays, equal, 0.7)
    says = sum(task.products() for task in plays) / len(plays)
    slopes = 2 * says @ found + 0.7 * np.log(found / equal)
    some = found > 1e-9  # smaller ones change nothing
    np.testing.assert_allclose(slopes[some], found @ slopes, rtol=1e-6)


@pytest.mark.parametrize(("size", "varying", "least"), [(1e-12, True, 0.95), (1e-3, True, 0.9), (1e-12, False, 0.0)])
def test_a_candidate_that_is_all_but_exact_has_the_weight(size, varying, least):
    """Clipped at what is typical of it, residuals of the others must not look as small."""
    rng = np.random.default_rng(0)
    residuals, targets = rng.standard_normal((3, 50)) * [[size], [1.0], [1.0]], rng.standard_normal(50) * varying
    task = ValidationTask(0, residuals, np.ones(50), residuals, 0, targets=targets)
    found = stacked_weights([task], np.full(3, 1 / 3), 0.01)
    # Of targets that do not vary, to be exact says nothing.
    assert found[0] > least if varying else np.allclose(found, 1 / 3)
