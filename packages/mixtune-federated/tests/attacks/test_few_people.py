"""Sums that are about few people: each attack reads a person's target from sums that a member would have sent."""

from __future__ import annotations

import numpy as np
import pytest

from mixtune.moments import Rows

pytest.importorskip("cryptography")

from mixtune_federated import FeatureSpec, Policy, RefusedError, Site

ROWS = 60
ALONE = np.eye(ROWS)[7]
RNG = np.random.default_rng(5)
NUMBERS = RNG.standard_normal((ROWS, 2))
HALF = (RNG.permutation(ROWS) < 30) * 1.0
HALF[7] = 0.0
OTHER = (RNG.permutation(ROWS) < 24) * 1.0
BETWEEN = (np.cumsum(HALF == 0) * (HALF == 0) > 20) * 1.0
#: A third of the people, also of most groups, but only two of those between.
CROSSING = np.where(BETWEEN == 1, np.cumsum(BETWEEN) > 8, np.arange(ROWS) % 3 == 0) * 1.0
FOURTHS = np.eye(4)[RNG.permutation(ROWS) % 4]
LAST = np.where(FOURTHS[:, 3] == 1, np.cumsum(FOURTHS[:, 3]) == 5, np.arange(ROWS) % 2)
THIRD = (np.arange(ROWS) % 3 == 0) * 1.0
SAME = np.where(THIRD == 1, np.abs(HALF - np.eye(ROWS)[30]), OTHER)
FEW = (RNG.permutation(ROWS) < 4) * 1.0
THIRDS = np.eye(3)[RNG.integers(0, 3, ROWS)]

#: Columns from which the target of the person at place 7, or of fewer than five people, can be read.
TABLES = {
    "a single 2 among 1": [1 + ALONE],
    "a single -3 among 4": [4 - 7 * ALONE],
    "a single value in a column of zeros": [0.37 * ALONE],
    "four different values in a column of zeros": [FEW * RNG.uniform(1, 9, ROWS)],
    "a single large value": [1000 * ALONE + NUMBERS[:, 0]],
    "a single value beside noise in the ninth digit": [ALONE + 1e-9 * RNG.standard_normal(ROWS)],
    "a single value far from zero": [1e6 + 1e-3 * ALONE],
    "four people in a category": [FEW],
    "all but four people in a category": [5 - 2 * FEW],
    "one person between two nested columns": [HALF, HALF + ALONE],
    "nested columns in standard units": [(HALF - 0.5) / 0.5, (HALF + ALONE - 0.51) / 0.4],
    "one person in neither of two categories": [HALF, 1 - HALF - ALONE],
    "categories of which one person has none": [*(THIRDS * (1 - ALONE)[:, None]).T],
    "one person where the category without a column crosses another": [
        THIRDS[:, 0],
        THIRDS[:, 1],
        np.where(THIRDS[:, 2] == 1, np.cumsum(THIRDS[:, 2]) == 3, OTHER),
    ],
    "the sum of two columns, but for one person": [NUMBERS[:, 0] + NUMBERS[:, 1] + 1e-6 * ALONE],
    "three columns that one person tells apart": [HALF, OTHER, HALF + 2 * OTHER + ALONE],
    "one person where two categories cross": [HALF, np.where(HALF == 1, np.cumsum(HALF) == 3, OTHER)],
    "the product of three categories": [HALF * OTHER * THIRDS[:, 0] * (np.cumsum(HALF * OTHER * THIRDS[:, 0]) < 3)],
    "two people between two nested columns where a third one crosses": [HALF, HALF + BETWEEN, CROSSING],
    "one person where the last of four categories crosses another": [*FOURTHS[:, :3].T, LAST],
    "the same with categories coded as their absence": [*(7 - 2 * FOURTHS[:, :3]).T, LAST],
    "two columns that agree but for one person where a third one has its level": [HALF, SAME, THIRD],
    "a third level that one person has": [np.where(ALONE == 1, 2.0, HALF)],
}


def member(consortium, columns, target=None, **settings):
    """A site whose rows have two ordinary columns and these, and a request for its sums."""
    X = np.column_stack([NUMBERS, *columns])
    y = RNG.standard_normal(ROWS) if target is None else target
    group = consortium(level=1, members=4, rows=ROWS, columns=X.shape[1])
    request = group.coordinator().ask()
    return Site(group.study, Rows(X, y), group.keys["m1"], **settings), request, group


@pytest.mark.parametrize("attack", list(TABLES))
def test_columns_that_single_out_people_are_refused(consortium, attack):
    site, request, _ = member(consortium, TABLES[attack])
    with pytest.raises(RefusedError, match=r"fewer than 5 people|1 person") as caught:
        site.answer(request)
    assert caught.value.code == "small-cell"
    # What would have been sent: the sums tell the target exactly, for whoever looses the policy.
    assert site.ledger.entries == []


def test_the_attack_works_where_the_policy_allows_it(consortium):
    """So it is the policy that stops it: the sum of products with the column is about one person alone."""
    site, request, group = member(consortium, TABLES["a single 2 among 1"], policy=Policy(least_cell=0))
    _, arrays = site.answer(request).open(group.keys["m0"])
    read = arrays["level"] + arrays["cross"][2]
    assert read == pytest.approx(site.inputs.y[7] - group.study.target_shift, rel=1e-12)


@pytest.mark.parametrize("case", ["one", "four"])
def test_rare_answers_are_refused(consortium, case):
    """The columns of the only person with an answer could be read."""
    target = ALONE if case == "one" else FEW
    site, request, _ = member(consortium, [], target)
    with pytest.raises(RefusedError, match="the target"):
        site.answer(request)


def test_a_target_that_a_column_gives_but_for_one_person_is_refused(consortium):
    site, request, _ = member(consortium, [], NUMBERS @ [1.0, 2.0] + 0.1 * ALONE)
    with pytest.raises(RefusedError, match="1 person makes up 1 of"):
        site.answer(request)


def test_rows_of_one_person_are_one_person(consortium):
    """Six rows in a category, of three people."""
    people = np.repeat(np.arange(ROWS // 2), 2)
    category = (people < 3) * 1.0
    site, request, _ = member(consortium, [category], identifier=people)
    with pytest.raises(RefusedError, match="fewer than 5 people"):
        site.answer(request)
    site, request, _ = member(consortium, [(people < 5) * 1.0], identifier=people)
    assert site.answer(request)
    site, request, _ = member(consortium, [category])
    assert site.answer(request)


def test_random_features_of_categories_single_out_no_product_of_three(consortium):
    """Each two of three columns cross for enough people; 20 random features span the cells where all three do."""
    rng, rows = np.random.default_rng(3), 120
    X = rng.permutation(np.repeat(np.array(np.meshgrid([0, 1], [0, 1], [0, 1])).reshape(3, 8).T, 15, axis=0))
    group = consortium(level=1, members=3, columns=3, features=FeatureSpec(width=20))
    y, request = rng.standard_normal(rows), group.coordinator().ask()
    assert Site(group.study, Rows(X * 1.0, y), group.keys["m1"]).answer(request)
    kept = np.flatnonzero(X.min(axis=1) == 0)
    rare = np.r_[kept, np.flatnonzero(X.min(axis=1) == 1)[:1], kept[X[kept].sum(axis=1) == 2]]
    with pytest.raises(RefusedError, match="makes up 1 of a combination"):
        Site(group.study, Rows(X[rare] * 1.0, rng.standard_normal(len(rare))), group.keys["m1"]).answer(request)
    plain = consortium(level=1, members=3, columns=3)
    site = Site(plain.study, Rows(X[rare] * 1.0, rng.standard_normal(len(rare))), plain.keys["m1"])
    assert site.answer(plain.coordinator().ask())


@pytest.mark.parametrize("rows", [100, 300])
@pytest.mark.parametrize("seed", range(5))
def test_ordinary_columns_pass(consortium, rows, seed):
    """Numbers, skewed numbers, categories with all levels or all but one, two-valued codes, repeated values."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [
            rng.standard_normal((rows, 3)),
            rng.exponential(size=rows),
            np.round(rng.uniform(18, 90, rows)),
            np.eye(3)[rng.permutation(rows) % 3][:, : 3 if rows < 200 else 2],
            1.0 + (rng.permutation(rows) % 2),
            *([] if rows < 200 else [np.eye(4)[rng.permutation(rows) % 4]]),
        ]
    )
    y = X[:, 0] + rng.standard_normal(rows)
    group = consortium(level=1, members=3, columns=X.shape[1])
    request = group.coordinator().ask()
    assert Site(group.study, Rows(X, y), group.keys["m1"]).answer(request)


def test_as_many_people_as_the_least_pass(consortium):
    category = (RNG.permutation(ROWS) < 5) * 1.0
    site, request, _ = member(consortium, [category])
    assert site.answer(request)
    site, request, _ = member(consortium, [category], policy=Policy(least_cell=6))
    with pytest.raises(RefusedError, match="fewer than 6 people"):
        site.answer(request)
