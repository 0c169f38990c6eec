"""Level 2 with predictive weights: focal sums that would make the score tell a coefficient."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cryptography")

from forging import forged
from mixtune_federated import FixedMethod, Policy, RefusedError

COLUMNS = 4


def sums_of(X, y):
    """Focal sums over made-up rows, as a request has them."""
    U = np.column_stack([X, np.ones(len(X))])
    gram = (U.T @ U)[np.triu_indices(U.shape[1])]
    return {"gram": gram, "cross": U.T @ y, "square": np.array(float(y @ y)), "count": len(y)}


RNG = np.random.default_rng(0)
UNIT = np.eye(COLUMNS)
NOISE = RNG.standard_normal((50, COLUMNS))
ROWS = {
    "one direction": (np.tile(100 * UNIT[0], (50, 1)), np.zeros(50)),
    "one direction and its opposite": (np.outer(np.tile([100.0, -100.0], 25), UNIT[0]), np.zeros(50)),
    "one direction and a little noise": (np.outer(100 * RNG.standard_normal(50), UNIT[1]) + 0.1 * NOISE, np.zeros(50)),
    "a difference of two columns": (np.outer(30 * RNG.standard_normal(50), UNIT[0] - UNIT[2]), np.zeros(50)),
    "no features, so that only the intercept counts": (np.zeros((50, COLUMNS)), np.zeros(50)),
    "targets so large that the score is linear": (NOISE, 1e6 * NOISE[:, 3]),
    "a mean so large that it alone counts": (NOISE + 1e3 * UNIT[2], np.zeros(50)),
    "a single row": (100 * UNIT[:1], np.zeros(1)),
}


@pytest.mark.parametrize("attack", list(ROWS))
def test_scores_on_one_direction_are_refused(consortium, attack):
    group = consortium(level=2, members=5, columns=COLUMNS)
    request = forged(group, group.coordinator().ask(), arrays=sums_of(*ROWS[attack]))
    with pytest.raises(RefusedError, match="one coefficient of this member") as caught:
        group.site("m1").answer(request)
    assert caught.value.code == "probe"


@pytest.mark.parametrize("condition", [1.0, 1e6])
@pytest.mark.parametrize(("offset", "spread"), [(0.0, 0.3), (0.0, 3.0), (3.0, 3.0), (30.0, 0.3)])
def test_sums_of_real_rows_are_scored(consortium, offset, condition, spread):
    """Members that differ much in their slopes, and columns far from zero or nearly collinear."""
    group = consortium(level=2, members=5, columns=3, offset=offset, condition=condition, spread=spread)
    group.data["m0"] = {name: np.asarray(values)[:20] for name, values in group.data["m0"].items()}
    request = group.coordinator().ask()
    assert group.site("m1").answer(request).open(group.keys["m0"])[0]["score"] > 0


def test_members_far_apart_are_scored(consortium):
    group = consortium(level=2, members=4, columns=3)
    group.data["m0"] = {name: np.asarray(values) + 2.0 for name, values in group.data["m0"].items()}
    assert group.site("m1").answer(group.coordinator().ask())


def test_equal_weights_need_no_score(consortium):
    group = consortium(level=2, members=5, fixed=FixedMethod(weights="equal"))
    request = forged(group, group.coordinator().ask(), arrays=sums_of(*ROWS["one direction"]))
    assert "score" not in group.site("m1").answer(request).open(group.keys["m0"])[0]


def test_one_question_serves_all_runs(consortium):
    """Scores on many focal sums would be as many equations for the model."""
    group, policy = consortium(level=2, members=5), Policy(one_release=False)
    site, request = group.site("m1", policy), group.coordinator().ask()
    assert site.answer(request)
    assert site.answer(group.coordinator().ask())
    group.data["m0"] = {name: np.asarray(values)[1:] for name, values in group.data["m0"].items()}
    with pytest.raises(RefusedError, match="another question for a score than before"):
        site.answer(group.coordinator().ask())
