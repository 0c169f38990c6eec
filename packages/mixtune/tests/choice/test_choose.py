"""The choice: shares, invariances, odd data, and simulated families where transfer helps or would hurt."""

import numpy as np
import pytest
from scipy.optimize import minimize

from choice.tasks import changed, design_of, make_family, make_task
from mixtune.choice import SETTINGS, Plan, Sample, SummedTask, choose, sample_sources
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


def own_ridge_fits(found, focal):
    """Coefficients, left-out residuals and leverages of ridge regressions on the focal rows, by the hat matrix."""
    X, y, weight = focal.rows.X, focal.rows.y, focal.rows.weight
    mean = np.append(np.average(X, axis=0, weights=weight), np.average(y, weights=weight))
    root = np.sqrt(weight)
    U, v = (X - mean[:-1]) * root[:, None], (y - mean[-1]) * root
    heads, left_out, leverages = [], [], []
    for ridge, (family, _) in zip(found.ridges, found.labels):
        if family == "focal only":
            inside = np.linalg.solve(U.T @ U + ridge * np.eye(U.shape[1]), U.T)
            slopes, leverage = inside @ v, np.einsum("ij,ji->i", U, inside) + weight / weight.sum()
            heads.append(np.append(slopes, mean[-1] - mean[:-1] @ slopes))
            leverages.append(leverage)
            left_out.append((y - design_of(focal) @ heads[-1]) / (1 - leverage))
    return np.array(heads), np.array(left_out), np.array(leverages)


@pytest.mark.parametrize("outlier", [0.0, 30.0])
def test_own_rows_alone_are_averaged_by_leave_one_out(outlier):
    """Shares fall with the error, in which residuals count only linearly beyond three typical ones."""
    focal, _, _ = make_family(n=30, sizes=(), p=8, noise=3.0)
    y = focal.rows.y.copy()
    y[5] += outlier
    focal = changed(focal, y=y)
    found = choose(focal, [])
    heads, left_out, leverages = own_ridge_fits(found, focal)
    np.testing.assert_allclose(found.errors, np.mean(left_out**2, axis=1))
    size = np.abs(left_out)
    limit = 3 * 1.4826 * np.sort(size, axis=1)[:, 14].min()
    losses = np.mean(np.where(size <= limit, size**2, limit * (2 * size - limit)), axis=1)
    assert (losses.min() < 0.9 * found.errors.min()) == (outlier > 0)
    expected = np.exp(-(losses / losses.min() - 1) * 30 / SETTINGS.rows_trust)
    np.testing.assert_allclose(found.shares, expected / expected.sum(), rtol=1e-7)
    np.testing.assert_allclose(found.head, found.shares @ heads)
    np.testing.assert_allclose(found.left_out, found.shares @ left_out)
    top = leverages[np.argmax(found.shares)]
    np.testing.assert_allclose(found.spreads, 1 / (1 - top))


def test_without_a_source_that_is_alike_errors_are_larger():
    focal, sources, truth = make_family(n=10, sizes=(60,) * 3, flipped=2, spread=0.05, seed=1)
    found = choose(focal, sources)
    head, left_out = found.without(None)
    np.testing.assert_allclose(head, found.head)
    np.testing.assert_allclose(left_out, found.left_out)
    errors = [excess(found.without(k)[0], truth) for k in range(3)]
    assert np.argmax(errors) == 2
    assert errors[2] > 2 * excess(found.head, truth)


def test_without_the_only_source_the_focal_rows_are_alone():
    focal, sources, _ = make_family(sizes=(50,), spread=0.05)
    found = choose(focal, sources)
    head, left_out = found.without(0)
    heads, alone, _ = own_ridge_fits(found, focal)
    best = np.argmin(np.mean(alone**2, axis=1))
    np.testing.assert_allclose(head, heads[best], atol=1e-9)
    np.testing.assert_allclose(left_out, alone[best], atol=1e-9)


@pytest.mark.parametrize("count", [0, 4])
def test_more_rows_than_are_judged_at_once(count):
    """Shares come from some of the rows; all else is that of all rows."""
    rng = np.random.default_rng(0)
    n = SETTINGS.judged_rows + 300
    focal, sources, _ = make_family(n=n, sizes=(40,) * count, p=3)
    focal = changed(focal, y=focal.rows.y + 3 * rng.standard_normal(n))
    found = choose(focal, sources)
    assert len(found.judged_left_out) == SETTINGS.judged_rows
    assert found.left_out.shape == (n,)
    assert np.all(np.isin(np.round(found.judged_left_out, 8), np.round(found.left_out, 8)))
    heads, left_out, leverages = own_ridge_fits(found, focal)
    if not count:
        np.testing.assert_allclose(found.head, found.shares @ heads, atol=1e-8)
        np.testing.assert_allclose(found.left_out, found.shares @ left_out, atol=1e-8)
        np.testing.assert_allclose(found.spreads, 1 / (1 - leverages[np.argmax(found.shares)]), atol=1e-8)
        # An estimate from some rows, scaled up to all: degrees of freedom over their largest number.
        np.testing.assert_allclose(found.own, leverages.sum(axis=1) / 4, rtol=0.05)
    else:
        assert_sound(found, focal, sources)


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


def test_few_sources_play_several_times():
    focal, sources, _ = make_family(sizes=(60,) * 5, n=20)
    found = choose(focal, sources)
    played = [task.source for task in found.tasks]
    assert found.n_plays == len(found.play_gains) == 5
    assert sorted(played) == sorted([*range(5), *range(5)])
    one, two = (task for task in found.tasks if task.source == 0)
    assert not np.allclose(one.residuals, two.residuals)
    # Gains of a source are averaged over its tasks; intervals widen by what left-out rows overlook.
    errors = np.array([np.mean(task.residuals**2, axis=1) for task in found.tasks])
    gains = 0.5 * np.log(errors[:, 0] / errors[:, 1])
    np.testing.assert_allclose(found.play_gains, [gains[np.equal(played, k)].mean() for k in range(5)])
    inside = np.array([np.mean(task.left_out[0] ** 2) for task in found.tasks])
    ratio = np.exp(0.5 * np.mean(np.log(errors[:, 0] / inside)))
    assert found.inflation == pytest.approx(np.clip(ratio, 1.0, 2.0))


def test_rounding_does_not_decide_whether_targets_vary():
    rng = np.random.default_rng(0)
    focal, sources, _ = make_family(n=8, sizes=(40,) * 4)
    for level in rng.uniform(-2, 2, 20):
        constant = changed(focal, y=np.full(8, level), weight=rng.uniform(0.01, 1.0, 8))
        found = choose(constant, sources)
        np.testing.assert_allclose(design_of(constant) @ found.head, level, atol=1e-6)
        np.testing.assert_allclose(found.left_out, 0.0, atol=1e-6)


@pytest.mark.parametrize(("p", "count", "n", "intercept"), [(3, 9, 20, True), (3, 4, 20, False), (6, 9, 4, True)])
def test_validation_tasks_are_the_same_together_and_one_by_one(p, count, n, intercept):
    rng = np.random.default_rng(0)
    focal, *sources = [
        make_task(rng, size, p, head=np.ones(p), weights=[0.5, 1.0, 3.0], intercept=intercept)
        for size in (n, *[60] * count)
    ]
    drawn = [(k, rng.permutation(60)) for k in range(count)]
    together = choose(focal, sources, plan=Plan(None, n, True, drawn))
    assert len(together.tasks) == count
    for place, task in enumerate(drawn):
        alone = choose(focal, sources, plan=Plan(None, n, True, [task]))
        np.testing.assert_allclose(alone.task_errors[0], together.task_errors[place], rtol=1e-7)
        mine, other = alone.tasks[0], together.tasks[place]
        assert (mine.source, mine.negligible) == (other.source, pytest.approx(other.negligible))
        # The fit to own rows alone is the second of the two that are kept.
        np.testing.assert_allclose(mine.residuals[1], other.residuals[1], atol=1e-9)
        np.testing.assert_allclose(mine.left_out[1], other.left_out[1], atol=1e-9)


def test_nobody_asks_for_rows_of_sources_that_take_no_focal_role():
    focal, sources, _ = make_family(n=20, sizes=(12,) * 3)

    def unasked():
        raise AssertionError("rows were asked for")

    choose(focal, [Sample(source.moments, unasked) for source in sources], plan=Plan(None, 20, False, []))
    with pytest.raises(AssertionError, match="asked for"):
        choose(focal, [Sample(source.moments, unasked) for source in sources])


def summed_tasks(rng, count, candidates):
    """Tasks by the sums of residuals that candidates have in common, and some of their own."""
    tasks = []
    for source in range(count):
        rows = 40 + 50 * (source % 3)
        own = rng.standard_normal((candidates, rows)) * rng.permutation(np.linspace(0.5, 3.0, candidates))[:, None]
        residuals = rng.standard_normal(rows) + own
        squares = residuals @ residuals.T / rows
        good = np.median(np.sort(np.diagonal(squares))[: candidates // 4])
        usable = np.ones(candidates, dtype=bool)
        tasks.append(SummedTask(source, float(rows), squares, squares / good, squares, usable, 0))
    return tasks


@pytest.mark.parametrize("count", [2, 5, 40])
def test_weights_by_validation_are_the_minimum_on_the_simplex(count):
    """Of one focal row nothing can be left out, so that tasks decide alone."""
    rng = np.random.default_rng(count)
    focal, sources, _ = make_family(n=1, sizes=(30,) * 2)
    labels = [family for family, _ in choose(focal, sources, every=False).labels]
    tasks = summed_tasks(rng, count, len(labels))
    found = choose(focal, sources, every=False, tasks=tasks).shares
    says = np.sqrt([task.total for task in tasks])
    cross = sum(say * task.clipped for say, task in zip(says / says.sum(), tasks))
    # The fewer sources there are, the more weights are held to those by single candidates' errors.
    pull = SETTINGS.prior_pull * max(SETTINGS.enough_sources / count, 1.0) ** 2
    told = max(count - SETTINGS.untold_sources, 0) / SETTINGS.told_errors
    errors = np.diagonal(cross)
    prior = np.array([1 / labels.count(name) for name in labels]) * np.exp(-told * (errors - errors.min()))
    prior /= prior.sum()

    def objective(logits):
        share = np.exp(logits - logits.max())
        share /= share.sum()
        return share @ cross @ share + pull * np.sum(share * np.log(np.maximum(share, 1e-300) / prior))

    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(), 1)
    best = minimize(objective, np.log(prior), method="BFGS").fun
    assert objective(np.log(np.maximum(found, 1e-300))) <= best + 1e-5 * abs(best)
    assert best < objective(np.log(prior))


def test_the_more_sources_were_validated_the_less_leave_one_out_moves_the_weights():
    """Where validation tells nothing apart, logarithms of shares go by errors on the rows, over the trust in tasks."""
    focal, sources, _ = make_family(n=20, sizes=(30,) * 2, spread=0.5)
    labels = [family for family, _ in choose(focal, sources).labels]
    others = np.array([family != "focal only" for family in labels])  # which no guard moves weights to
    prior = np.array([1 / labels.count(name) for name in labels])
    alike, usable, slopes = np.ones((len(labels),) * 2), np.ones(len(labels), dtype=bool), []
    for count in (6, 7, 24, 40):
        tasks = [SummedTask(k, 100.0, alike, alike, alike, usable, 0) for k in range(count)]
        logs = np.log(choose(focal, sources, tasks=tasks).shares / prior)[others]
        part = min(count / SETTINGS.enough_sources, 1.0)
        slopes.append((logs - logs[0]) * (SETTINGS.rows_trust + part * SETTINGS.tasks_trust))
    assert np.ptp(slopes[0]) > 1.0
    for other in slopes[1:]:
        np.testing.assert_allclose(other, slopes[0], rtol=1e-6, atol=1e-8)


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
def test_sources_need_no_rows(p, count, rows, intercept):
    """Without validation tasks, sums say all that rows do."""
    rng = np.random.default_rng(p + count)
    head = rng.standard_normal(p)
    options = {"intercept": intercept, "weights": [1.0, 2.0]}
    focal = make_task(rng, 20, p, head=head, **options)
    sources = [make_task(rng, rows, p, head=head + 0.2 * rng.standard_normal(p), **options) for _ in range(count)]
    found = choose(focal, hidden(sources))
    assert_sound(found, focal, sources)
    assert (found.n_plays, found.play_errors) == (0, None)
    known = choose(focal, sources, plan=Plan(None, 20, False, []))
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
