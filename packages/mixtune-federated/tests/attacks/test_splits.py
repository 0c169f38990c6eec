"""Coordinators that tell members different things, or ask for sums that few members add anything to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from mixtune.errors import DataError

pytest.importorskip("cryptography")

from forging import forged
from mixtune_federated import Coordinator, FixedMethod, Ledger, Limits, Policy, RefusedError
from mixtune_federated._masks import Announcement, mask_of

EQUAL = FixedMethod(weights="equal")


def few_focal(group, count=20):
    """The same with so few focal rows that members have rows to spare."""
    group.data["m0"] = {name: np.asarray(values)[:count] for name, values in group.data["m0"].items()}
    return group


def before_trials(group):
    """Sites, and the request for sums over validation tasks, or None where the coordinator does not ask."""
    sites, coordinator, messages = group.sites(), group.coordinator(), []
    for _ in range(3):
        request = coordinator.ask(messages)
        messages += [site.answer(request) for site in sites.values()]
    try:
        return sites, coordinator.ask(messages), None
    except DataError:
        return sites, None, coordinator.combine(messages)


# --- validation tasks at level 2 --------------------------------------------------------------------------------------


def test_tasks_of_few_members_are_not_summed(consortium):
    """Only two members have rows to spare: the sum over their tasks would be about these two alone."""
    group = few_focal(consortium(members=6, rows=70, method="tuned"), 50)
    for name in ("m1", "m2", "m3"):
        group.data[name] = {column: np.asarray(values)[:60] for column, values in group.data[name].items()}
    _, request, combined = before_trials(group)
    assert request is None
    assert combined.exchanges == 3
    assert combined.tasks == []
    assert np.all(np.isfinite(group.model(combined).coef_))


def test_a_coordinator_that_asks_for_tasks_of_few_members_is_refused(consortium):
    """Its own policy lets it ask; those of the members do not."""
    group = few_focal(consortium(members=6, rows=70, method="tuned"), 50)
    for name in ("m1", "m2", "m3", "m4"):
        group.data[name] = {column: np.asarray(values)[:60] for column, values in group.data[name].items()}
    group.coordinator = lambda: Coordinator(
        group.study, group.data["m0"], group.keys["m0"], policy=Policy(least_sources=1)
    )
    sites, request, _ = before_trials(group)
    with pytest.raises(RefusedError, match="validation tasks of 1 members") as caught:
        sites["m5"].answer(request)
    assert caught.value.code == "few-sources"


def test_tasks_of_so_many_rows_that_one_member_has_some_to_spare(consortium):
    """All members said that they have rows for a small task. A larger one would leave the largest member alone."""
    group = few_focal(consortium(members=6, rows=70, method="tuned"))
    group.data["m5"] = {name: np.tile(values, 3) for name, values in group.data["m5"].items()}
    rng = np.random.default_rng(0)
    group.data["m5"]["y"] = group.data["m5"]["y"] + rng.standard_normal(210)
    sites, request, _ = before_trials(group)
    with pytest.raises(RefusedError, match="another number of rows of a task than before"):
        sites["m5"].answer(forged(group, request, spec={"rows": 100}))
    assert sites["m5"].answer(request)


def test_two_further_sums_never_have_the_same_masks(consortium):
    """The content of the last request, sent for the one before it: equal masks would leave the difference of sums."""
    group = few_focal(consortium(members=6, rows=70, method="tuned"))
    sites, request, _ = before_trials(group)
    earlier = Ledger(entries=[entry for entry in sites["m1"].ledger.entries if entry["step"] < 3])
    answers = [
        group.site("m1", ledger=earlier).answer(forged(group, request, public={"ask": "terms"}, step=3)),
        sites["m1"].answer(request),
    ]
    one, other = (answer.open(group.keys["m0"])[0]["transcript"] for answer in answers)
    assert one != other


def test_who_has_rows_to_spare_is_signed(consortium):
    """A coordinator that says of others that they have some is found out, also by an announcement of its own."""
    group = few_focal(consortium(members=6, rows=70, method="tuned"), 50)
    for name in ("m1", "m2", "m3"):
        group.data[name] = {column: np.asarray(values)[:60] for column, values in group.data[name].items()}
    sites, coordinator = group.sites(), group.coordinator()
    first = coordinator.ask()
    answers = [site.answer(first) for site in sites.values()]
    second = coordinator.ask(answers)
    assert second.open(group.keys["m0"])[0]["spares"] == [False, False, False, True, True]
    with pytest.raises(RefusedError, match="did not sign"):
        sites["m5"].answer(forged(group, second, spec={"spares": [True] * 5}))


# --- shares -----------------------------------------------------------------------------------------------------------


def asked_for_shares(group):
    """Sites that all answered, and a request for shares that says that the last one did not."""
    sites, coordinator = group.sites(), group.coordinator()
    first = coordinator.ask()
    answers = {name: site.answer(first) for name, site in sites.items()}
    second = coordinator.ask(list(answers.values()))
    *others, _ = [site.answer(second) for site in sites.values()]
    return sites, coordinator.ask([*answers.values(), *others]), answers


@pytest.mark.parametrize(
    ("members", "drop_outs", "possible"), [(6, 1, True), (6, 2, False), (7, 2, True), (4, 1, False)]
)
def test_half_of_the_neighbours_give_no_second_secret(consortium, members, drop_outs, possible):
    """Told that a member is gone, some give its key, and others, told that it is not, its own mask.

    Both together open its sums; as many as are needed for both are more than there are.
    """
    group = consortium(members=members, fixed=EQUAL, limits=Limits(confirm=True, drop_outs=drop_outs))
    if possible:
        group.study.check()
        assert 2 * group.study.threshold > members - 2
    else:
        with pytest.raises(DataError, match="may drop out"):
            group.study.check()


def test_a_share_of_one_secret_is_not_opened_as_that_of_another(consortium):
    """The share of a key in the place of that of an own mask."""
    group = consortium(members=6, fixed=EQUAL, limits=Limits(confirm=True))
    sites, third, answers = asked_for_shares(group)
    boxes = third.open(group.keys["m0"])[1]["boxes"]
    keys = answers["m1"].open(group.keys["m0"])[1]["boxes"]
    with pytest.raises(DataError, match="cannot be opened"):
        sites["m2"].answer(forged(group, third, arrays={"boxes": np.concatenate([keys[None], boxes[1:]])}))
    assert sites["m2"].answer(third)


def test_the_key_of_a_member_reported_as_gone_opens_no_later_sum(consortium):
    """Self-tuned: others, told that m5 is gone, give its key. Its first sums are read, what it sends later is not."""
    group = few_focal(consortium(members=6, rows=70, method="tuned"))
    sites, request, _ = before_trials(group)
    later = sites["m5"].answer(request).open(group.keys["m0"])
    spec, arrays = request.open(group.keys["m0"])
    told = Announcement.read(group.study, spec["second"], arrays)
    # What shares of the others amount to.
    private = sites["m5"]._private(told.first)
    others = group.study.sources[:4]
    for part in (slice(0, 32), slice(32, 64)):
        keys = {group.study.sources.index(name): told.public[name][part] for name in others}
        vector = later[1]["masked"]
        opened = vector - mask_of(4, private, keys, bytes.fromhex(later[0]["transcript"]), len(vector))
        assert int(opened[-1]) != 1
        assert stats.kstest(opened / 2.0**64, "uniform").pvalue > 1e-6


def test_how_many_members_can_be_reported_as_gone_is_stated(consortium):
    """Neighbours that are told different names give shares of different members."""
    for members, drop_outs, told in ((6, 1, 1), (8, 2, 3), (8, 3, 7)):
        study = consortium(members=members, limits=Limits(drop_outs=drop_outs)).study
        assert f"it can read the sums of {told} by reporting them as gone" in " ".join(study.describe())
        # Each of the sources gives so many shares; each key needs as many as the threshold.
        assert told == (members - 1) * drop_outs // study.threshold
    for limits in (Limits(drop_outs=0), Limits(confirm=True)):
        assert "as gone" not in " ".join(replace(study, limits=limits).describe())
