"""Averages over feature maps, and columns learned from the sources, on samples made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from choice.tasks import changed, make_family, sample_of
from mixtune.choice import (
    SETTINGS,
    FeatureBlock,
    MapAverage,
    choose,
    choose_maps,
    joint_error,
    learn_columns,
    learn_own_column,
)
from mixtune.features import Oriented
from mixtune.moments import Rows

WIDTH = 3
BLOCKS = (FeatureBlock("all", np.arange(WIDTH)), FeatureBlock("some", np.array([0, 2])))


def blocks_of(sample):
    return [changed(sample, X=block.features(sample.rows.X)) for block in BLOCKS]


@pytest.fixture(scope="module")
def average():
    focal, sources, _ = make_family(n=15, sizes=(40,) * 6)
    samples = [[blocks_of(sample)[place] for sample in (focal, *sources)] for place in range(2)]
    return choose_maps(samples, BLOCKS, WIDTH), samples


def test_draws_are_those_of_the_first_map(average):
    """In random order, so that the first ones, which all maps have, stand for all."""
    found, samples = average
    first, second = found.choices
    alone = choose(samples[0][0], samples[0][1:])
    sources = [task.source for task in first.tasks]
    assert sorted(sources) == sorted(task.source for task in alone.tasks)
    np.testing.assert_allclose(first.head, alone.head)
    count = min(len(sources), SETTINGS.map_tasks)
    assert [task.source for task in second.tasks] == sources[:count]
    assert len(found.tasks) == count


def test_weights_of_maps_minimise_the_error_of_their_average(average):
    """The same minimum by a general solver, from residuals of tasks and of left-out focal rows."""
    found, _ = average
    cross = np.zeros((2, 2))
    tasks = [np.stack([choice.tasks[k].residuals[0] for choice in found.choices]) for k in range(len(found.tasks))]
    left_out = np.stack([choice.judged_left_out / choice.size for choice in found.choices])
    says = np.sqrt([part.shape[1] for part in tasks])
    known = 15 / SETTINGS.maps_focal_rows
    says = np.append(says / says.sum(), known) / (1 + known)
    for say, residuals in zip(says, [*tasks, left_out]):
        limit = 5 * 1.4826 * np.median(np.abs(residuals), axis=1).min()
        kept = np.clip(residuals, -limit, limit)
        cross += say * kept @ kept.T / residuals.shape[1] / np.mean(residuals**2, axis=1).min()

    def cost(x):
        w = np.array([x[0], 1 - x[0]])
        return w @ cross @ w + SETTINGS.maps_pull[0] * np.sum(w * np.log(2 * w))

    best = minimize(cost, [0.5], bounds=[(1e-9, 1 - 1e-9)]).x[0]
    np.testing.assert_allclose(found.map_weights, [best, 1 - best], atol=0.01)
    assert found.map_weights.sum() == pytest.approx(1.0)


def test_all_parts_are_averages_with_these_weights(average):
    found, _ = average
    first, second = found.choices
    w = found.map_weights
    expected = w[0] * first.head + w[1] * np.array([second.head[0], 0.0, second.head[1], second.head[2]])
    np.testing.assert_allclose(found.head, expected)
    np.testing.assert_allclose(found.left_out, w @ [first.left_out, second.left_out])
    np.testing.assert_allclose(found.shares, np.concatenate([w[0] * first.shares, w[1] * second.shares]))
    for name in ("errors", "ridges", "weights", "own"):
        np.testing.assert_array_equal(
            getattr(found, name), np.concatenate([getattr(first, name), getattr(second, name)])
        )
    assert [settings["map"] for _, settings in found.labels] == ["all"] * len(first.labels) + ["some"] * len(
        second.labels
    )
    for place, task in enumerate(found.tasks):
        for name in ("residuals", "left_out"):
            one, other = (getattr(choice.tasks[place], name) for choice in (first, second))
            np.testing.assert_allclose(getattr(task, name)[0], w[0] * one[0] + w[1] * other[0])
            np.testing.assert_array_equal(getattr(task, name)[1], (one, other)[found.plain][1])
    largest = np.argmax([w[0] * first.shares.max(), w[1] * second.shares.max()])
    assert found.top == largest
    assert found.largest is found.choices[largest]
    np.testing.assert_array_equal(found.spreads, found.largest.spreads)
    assert found.error(found.left_out) == pytest.approx(np.mean(found.left_out**2))


def test_focal_rows_alone_have_no_columns_that_sources_made(average):
    found, _ = average
    np.testing.assert_array_equal(found.focal_left_out, found.choices[found.plain].focal_left_out)
    blocks = [replace(block, learned=place == found.plain) for place, block in enumerate(found.blocks)]
    assert MapAverage(found.choices, blocks, WIDTH).plain == 1 - found.plain


def test_focal_rows_alone_leave_the_first_map_only_for_one_that_is_clearly_better(average):
    found, _ = average
    first, second = found.choices

    def plain(*residuals):
        choices = [replace(each, focal_left_out=left) for each, left in zip((first, second), residuals)]
        return MapAverage(choices, found.blocks, WIDTH).plain

    rng = np.random.default_rng(0)
    ones = np.where(np.arange(15) % 2, 1.0, -1.0)
    # Squares that are smaller by 0.02 on average, with a standard error of 0.01 or of 0.05.
    noise = rng.permutation(np.linspace(-1, 1, 15))
    noise /= noise.std()
    for error, chosen in ((0.01, 1), (0.05, 0)):
        better = np.sqrt(1 - 0.02 + error * noise * 15**0.5)
        assert plain(ones, better) == chosen
        assert plain(better, ones) == 0
    broken = np.append(ones[:-1], np.inf)
    assert plain(broken, ones) == 1
    assert plain(ones, broken) == 0
    # Many rows tell which is best.
    heavy = [changed(each.focal, weight=np.full(len(ones), 5.0)) for each in (first, second)]
    choices = [
        replace(each, focal=focal, focal_left_out=left)
        for each, focal, left in zip(found.choices, heavy, (ones, better))
    ]
    assert MapAverage(choices, found.blocks, WIDTH).plain == 1


def test_errors_in_validation_are_relative_to_the_best_of_all_maps(average):
    found, _ = average
    count = len(found.tasks)
    errors = np.hstack([choice.task_errors[:count] for choice in found.choices])
    expected = np.exp(np.mean(np.log(errors / errors.min(axis=1, keepdims=True)), axis=0))
    np.testing.assert_allclose(found.play_errors, expected)
    by_map = np.array([[np.mean(choice.tasks[k].residuals[0] ** 2) for choice in found.choices] for k in range(count)])
    expected = np.exp(np.mean(np.log(by_map / by_map.min(axis=1, keepdims=True)), axis=0))
    np.testing.assert_allclose(found.map_play_errors, expected)
    gains = [np.log(t.errors[0] / t.errors[1]) / 2 for t in found.tasks]
    sources = np.array([t.source for t in found.tasks])
    expected = [np.mean(np.array(gains)[sources == k]) for k in sorted(set(sources.tolist()))]
    np.testing.assert_allclose(found.play_gains, expected)
    assert found.n_plays == len(expected)


def test_a_source_left_out_of_all_maps(average):
    found, _ = average
    head, left_out, fitted = found.without(2)
    w = found.map_weights
    parts = [choice.without(2) for choice in found.choices]
    np.testing.assert_allclose(left_out, w @ [left for _, left in parts])
    fits = [choice.task.predict(part) for choice, (part, _) in zip(found.choices, parts)]
    np.testing.assert_allclose(fitted, w @ fits)
    np.testing.assert_allclose(head[1], w[0] * parts[0][0][1])
    np.testing.assert_allclose(found.kept[1], found.left_out)


def test_one_map_is_its_choice():
    focal, sources, _ = make_family(n=15, sizes=(40,) * 5)
    found = choose_maps([[focal, *sources]], BLOCKS[:1], WIDTH)
    alone = choose(focal, sources)
    np.testing.assert_array_equal(found.head, alone.head)
    np.testing.assert_array_equal(found.shares, alone.shares)
    assert found.labels == alone.labels
    assert (found.n_plays, found.inflation) == (alone.n_plays, alone.inflation)


@pytest.mark.parametrize(
    ("rows", "factor", "outlier"), [(3, 10.0, 0.0), (30, 1.0, 0.0), (60, 1.0, 0.0), (60, 1.0, 12.0)]
)
def test_few_rows_leave_maps_their_equal_shares(rows, factor, outlier):
    """Without validation, left-out rows alone, of which outliers do not decide; the same minimum on a grid."""
    focal, sources, truth = make_family(1, n=rows, sizes=(20,))
    X, y = focal.rows.X.copy(), focal.rows.y.copy()
    X[1, 1] += outlier  # which the second map does not have
    y[1] += outlier * truth[1]
    focal = changed(focal, X=X, y=y)
    samples = [[blocks_of(sample)[place] for sample in (focal, *sources)] for place in range(2)]
    found = choose_maps(samples, BLOCKS, WIDTH)
    assert found.tasks == []
    assert found.map_play_errors is None
    left_out = np.stack([choice.left_out / choice.size for choice in found.choices])
    limit = 5 * 1.4826 * np.median(np.abs(left_out), axis=1).min()
    one, other = np.clip(left_out, -limit, limit)
    grid = np.linspace(0.0005, 0.9995, 1000)
    error = np.mean((grid[:, None] * one + (1 - grid)[:, None] * other) ** 2, axis=1)
    error /= np.mean(left_out**2, axis=1).min()
    pull = SETTINGS.maps_pull[1] * factor
    cost = error + pull * (grid * np.log(2 * grid) + (1 - grid) * np.log(2 * (1 - grid)))
    assert found.map_weights[0] == pytest.approx(grid[np.argmin(cost)], abs=0.002)


def test_blocks_with_directions():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((2, 2)))[0][:, :1]
    block = FeatureBlock("turned", np.array([0, 2]), basis)
    sample = sample_of(rng.standard_normal((9, 3)), rng.standard_normal(9))
    features = sample.rows.X[:, [0, 2]] @ basis
    np.testing.assert_allclose(block.features(sample.rows.X), features)
    padded = np.column_stack([features, np.ones(9)])
    np.testing.assert_allclose(block.moments(sample.moments).gram, padded.T @ padded)
    coefficients = block.coefficients(np.array([2.0]), 3)
    np.testing.assert_allclose(sample.rows.X @ coefficients, features[:, 0] * 2.0)


def bent_sources(rng, count=8, rows=60, flipped=3):
    X = [rng.standard_normal((rows, 2)) for _ in range(count)]
    signs = np.where(np.arange(count) < flipped, -1.0, 1.0)
    targets = [
        s * np.sin(2 * U[:, 0]) + 0.1 * rng.standard_normal(rows) + 5 * rng.standard_normal() for s, U in zip(signs, X)
    ]
    return [Rows(U, y) for U, y in zip(X, targets)], signs


PLAIN = Oriented(np.zeros(2), np.ones(2), np.arange(2))


@pytest.mark.parametrize(("seed", "flipped"), [(0, 2), (3, 1), (4, 2)])
def test_turned_sources_are_found(seed, flipped):
    """Targets are learned from as most sources have them."""
    sources, signs = bent_sources(np.random.default_rng(seed), count=6, flipped=flipped)
    _, _, targets = learn_columns(sources, PLAIN, seed=0)
    found = [np.sign(part @ (rows.y - rows.y.mean())) for part, rows in zip(targets, sources)]
    np.testing.assert_array_equal(found, signs)


def test_learned_columns_are_the_common_curve_out_of_fold():
    rng = np.random.default_rng(1)
    sources, _ = bent_sources(rng)
    learned, folds, _ = learn_columns(sources, PLAIN, seed=0)
    assert folds.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    new = rng.standard_normal((200, 2))
    for column in learned.transform(new).T:
        assert np.corrcoef(column, np.sin(2 * new[:, 0]))[0, 1] > 0.9

    def fold(columns, place):
        return columns.out_of_fold(new, np.full(len(new), place))

    mean = np.mean([fold(learned, place) for place in range(3)], axis=0)
    np.testing.assert_allclose(learned.transform(new), mean)
    mixed = learned.out_of_fold(new, np.arange(len(new)) % 3 - 1)
    np.testing.assert_allclose(mixed[0::3], mean[0::3])
    np.testing.assert_allclose(mixed[2::3], fold(learned, 1)[2::3])
    other = [Rows(r.X, r.y + 0.01 * rng.standard_normal(60)) if k in (1, 4, 7) else r for k, r in enumerate(sources)]
    again, _, _ = learn_columns(other, PLAIN, seed=0)
    np.testing.assert_allclose(fold(again, 1)[:, 1], fold(learned, 1)[:, 1])
    assert not np.allclose(fold(again, 0)[:, 1], fold(learned, 0)[:, 1])


@pytest.mark.parametrize(("steps", "size"), [(1, "trees"), (12, "more_trees")])
def test_trees_are_more_where_few_still_improve(steps, size):
    """One step is found by few trees; a staircase of steps up and down is not."""
    rng = np.random.default_rng(0)
    heights = np.append(0.0, rng.permutation(steps) + 1.0)

    def draw():
        X = rng.uniform(0, 1, (150, 2))
        return Rows(X, heights[np.floor(X[:, 0] * (steps + 1)).astype(int)] + 0.05 * rng.standard_normal(150))

    learned, _, _ = learn_columns([draw() for _ in range(4)], PLAIN, seed=0)
    assert [len(each.roots) for each in learned.trees] == [getattr(SETTINGS, size)["max_iter"]] * 3


def test_own_trees_are_kept_where_they_tell_more_than_other_columns():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    steps = np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0)
    rows = Rows(X, steps + 0.3 * rng.standard_normal(200))
    found = learn_own_column(rows, X, PLAIN, seed=0)
    assert found is not None
    np.testing.assert_array_equal(found.values, found.column.out_of_fold(X, found.folds))
    assert np.corrcoef(found.values[:, 0], steps)[0, 1] > 0.8
    # What is known already need not be learned.
    assert learn_own_column(rows, steps[:, None], PLAIN, seed=0) is None


def test_many_own_rows_keep_few_trees_where_they_do():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((SETTINGS.many_own_rows, 2))
    rows = Rows(X, np.sign(X[:, 0]) + 0.5 * rng.standard_normal(len(X)))
    found = learn_own_column(rows, rng.standard_normal(X.shape), PLAIN, seed=0)
    assert len(found.column.trees[0].roots) == SETTINGS.trees["max_iter"]  # one step needs few


def test_ridge_columns_are_a_ridge_fit_to_the_other_folds():
    sources, signs = bent_sources(np.random.default_rng(2))
    learned, folds, targets = learn_columns(sources, PLAIN, seed=0)
    U = [learned.wide.transform(r.X) for r in sources]
    U = [part - part.mean(axis=0) for part in U]
    y = [s * (r.y - r.y.mean()) / r.y.std() for s, r in zip(signs, sources)]
    np.testing.assert_allclose(np.concatenate(targets), np.concatenate(y))
    trace = sum(np.sum(part**2) for part in U) / U[0].shape[1]
    errors, heads = [], []
    for ridge in SETTINGS.focal_ridges * trace:
        found = []
        for fold in range(3):
            A, b = (np.concatenate([part for part, f in zip(parts, folds) if f != fold]) for parts in (U, y))
            found.append(np.linalg.solve(A.T @ A + ridge * np.eye(A.shape[1]), A.T @ b))
        heads.append(found)
        errors.append(sum(np.sum((y[k] - U[k] @ found[fold]) ** 2) for k, fold in enumerate(folds)))
    np.testing.assert_allclose(learned.heads, heads[int(np.argmin(errors))], rtol=1e-5, atol=1e-8)


def test_joint_errors_by_the_hat_matrix():
    rng = np.random.default_rng(4)
    sources = [Rows(rng.standard_normal((30, 4)) + k, rng.standard_normal(30), rng.uniform(1, 2, 30)) for k in range(3)]
    root = np.sqrt(np.concatenate([rows.weight for rows in sources]))
    centred = [rows.X - np.average(rows.X, axis=0, weights=rows.weight) for rows in sources]
    U, y = np.concatenate(centred) * root[:, None], np.concatenate([rows.y for rows in sources]) * root
    total, errors = root @ root, []
    for ridge in SETTINGS.focal_ridges * np.trace(U.T @ U) / 4:
        hat = U @ np.linalg.solve(U.T @ U + ridge * np.eye(4), U.T)
        errors.append(np.sum((y - hat @ y) ** 2) * total / (total - np.trace(hat)) ** 2)
    assert joint_error(sources) == pytest.approx(min(errors))
    exact = [Rows(rows.X, rows.X @ np.ones(4) - np.mean(rows.X @ np.ones(4))) for rows in sources]
    assert joint_error(exact) == SETTINGS.smallest_variance


def test_the_largest_share_of_all_maps(average):
    """A large weight of a map with many small shares may still be behind one large share."""
    found, _ = average
    first, second = found.choices
    spread = replace(first, shares=np.full(len(first.shares), 1.0 / len(first.shares)))
    sharp = replace(second, shares=np.eye(len(second.shares))[0])
    for weights, top in (([0.6, 0.4], 1), ([0.999, 0.001], 0)):
        made = MapAverage((spread, sharp), found.blocks, WIDTH)
        made.__dict__["map_weights"] = np.array(weights)
        assert made.top == top


def test_many_rows_are_averaged_with_the_fit_to_them_alone():
    focal, sources, _ = make_family(n=80, sizes=(110, 130, 200, 400, 580))
    before = MapAverage([choose(focal, sources)], BLOCKS[:1], WIDTH)
    found = choose_maps([[focal, *sources]], BLOCKS[:1], WIDTH)
    plain = before.choices[before.plain]
    own = np.zeros_like(before.head)
    own[np.append(BLOCKS[before.plain].places, WIDTH)] = plain.focal_head
    part = float((found.head - before.head) @ (own - before.head) / np.sum((own - before.head) ** 2))
    assert 0.01 < part < 0.99
    for ours, theirs in (("head", own), ("left_out", plain.focal_left_out)):
        np.testing.assert_allclose(getattr(found, ours), (1 - part) * getattr(before, ours) + part * theirs)
    # The same minimum on a grid, over residuals of tasks and of left-out focal rows.
    pairs = [task.residuals for task in before.tasks]
    pairs.append(np.stack([before.left_out, plain.focal_left_out]) / before.size)
    says = np.sqrt([pair.shape[1] for pair in pairs])
    says[-1] = 80 / SETTINGS.own_fit_focal_rows * says[:-1].sum()
    grid = np.linspace(0.0005, 0.9995, 1999)
    cost = SETTINGS.maps_pull[0] * ((1 - grid) * np.log(2 * (1 - grid)) + grid * np.log(2 * grid))
    for say, pair in zip(says / says.sum(), pairs):
        limit = 5 * 1.4826 * np.median(np.abs(pair), axis=1).min()
        one, other = np.clip(pair, -limit, limit)
        cost += (
            say
            * np.mean(((1 - grid)[:, None] * one + grid[:, None] * other) ** 2, axis=1)
            / np.mean(pair**2, axis=1).min()
        )
    assert part == pytest.approx(grid[np.argmin(cost)], abs=0.002)
    # All else goes with the weights that were moved.
    np.testing.assert_allclose(found.kept[0], found.head)
    assert found.shares.sum() == pytest.approx(1.0)
    for task, old in zip(found.tasks, before.tasks):
        np.testing.assert_allclose(task.residuals[0], (1 - part) * old.residuals[0] + part * old.residuals[1])


@pytest.mark.parametrize(("rows", "columns"), [(63, 3), (80, 20)])
def test_few_rows_are_not_averaged_with_the_fit_to_them_alone(rows, columns):
    focal, sources, _ = make_family(n=rows, p=columns, sizes=(40,) * 3)
    found = choose_maps([[focal, *sources]], [FeatureBlock("all", np.arange(columns))], columns)
    np.testing.assert_array_equal(found.head, choose(focal, sources).head)
