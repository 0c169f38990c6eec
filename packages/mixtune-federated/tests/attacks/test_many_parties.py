"""Coordinators that lie, members that collude or send nonsense, and files of other studies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from mixtune.errors import DataError

pytest.importorskip("cryptography")

from forging import forged
from mixtune_federated import Coordinator, FixedMethod, Key, Limits, Policy, RefusedError, Site

EQUAL = FixedMethod(weights="equal")


@pytest.fixture
def second(consortium):
    """A consortium at level 2, its sites, their first answers, and the second request."""
    group = consortium(members=6, fixed=EQUAL)
    sites, coordinator = group.sites(), group.coordinator()
    first = coordinator.ask()
    answers = [site.answer(first) for site in sites.values()]
    return group, sites, answers, coordinator.ask(answers), coordinator


# --- other studies, other members -------------------------------------------------------------------------------------


def test_requests_and_answers_of_a_study_with_other_members(second):
    """The fingerprint in every message covers the list of members and their keys."""
    group, _, answers, request, _ = second
    more = group.study.joined(Key.generate("m9").card)
    fewer = replace(group.study, members=group.study.members[:-1])
    for study in (more, fewer):
        site = Site(study, group.data["m1"], group.keys["m1"])
        with pytest.raises(RefusedError, match="fingerprint"):
            site.answer(request)
        with pytest.raises(DataError, match="another study"):
            Coordinator(study, group.data["m0"], group.keys["m0"]).ask(answers)


def test_a_study_repeated_with_one_member_less(second):
    """The sum of the second study, taken from that of the first, would be the sums of the member that is gone."""
    group, sites, _, request, _ = second
    fewer = replace(group.study, members=tuple(card for card in group.study.members if card.name != "m5"))
    again = Coordinator(fewer, group.data["m0"], group.keys["m0"]).ask()
    for name in ("m1", "m2", "m3", "m4"):
        assert sites[name].answer(request)
        site = Site(fewer, group.data[name], group.keys[name], ledger=sites[name].ledger)
        with pytest.raises(RefusedError, match="second release"):
            site.answer(again)


@pytest.mark.parametrize("gone", ["m5", None])
def test_another_run_with_one_member_less_or_other_weights(consortium, gone):
    """Also members whose policy allows further runs protect the one who is gone; its own policy could not."""
    group = consortium(members=6, fixed=EQUAL if gone else FixedMethod())
    ledgers, policy = {name: group.site(name).ledger for name in group.study.sources}, Policy(one_release=False)
    for run in (1, 2):
        sites = {name: group.site(name, policy, ledgers[name]) for name in ledgers}
        coordinator = group.coordinator()
        first = coordinator.ask()
        answers = [site.answer(first) for name, site in sites.items() if run == 1 or name != gone]
        second = coordinator.ask(answers)
        if run == 2 and gone is None:
            weights = [0.15, 0.15, 0.15, 0.15, 0.2]
            second = forged(group, second, spec={"weights": weights, "focal_weight": 0.2})
        for name in second.open(group.keys["m0"])[0]["roster"]:
            if run == 1:
                assert sites[name].answer(second)
            else:
                with pytest.raises(RefusedError, match="another list of members or weights than before"):
                    sites[name].answer(second)
    # The same again is what the policy allows.
    assert gone or sites["m1"].answer(group.coordinator().ask())


def test_steps_of_another_study_do_not_get_around_a_release(consortium):
    """Sums at level 1, and then a request for drawn rows of a self-tuned study, which has another number."""
    group = consortium(level=1, members=4, columns=3)
    tuned = replace(group.study, method="tuned")
    other = replace(group, study=tuned)
    group.data["m0"] = {name: np.asarray(values)[:20] for name, values in group.data["m0"].items()}
    sites, coordinator, messages = other.sites(), other.coordinator(), []
    ledger = group.site("m1").ledger
    assert group.site("m1", ledger=ledger).answer(group.coordinator().ask())
    for _ in range(3):
        request = coordinator.ask(messages)
        with pytest.raises(RefusedError, match="second release"):
            other.site("m1", ledger=ledger).answer(request)
        messages += [site.answer(request) for site in sites.values()]


# --- a coordinator ----------------------------------------------------------------------------------------------------


def test_a_member_that_is_left_out_is_asked_no_sum(second):
    """It sends nothing for a sum that it is not part of, and the others' masks with it stay."""
    group, sites, _, request, _ = second
    spec, arrays = request.open(group.keys["m0"])
    fewer = {"roster": spec["roster"][:-1], "weights": [0.2] * 4, "focal_weight": 0.2, "spares": [False] * 4}
    keys = {name: arrays[name][:-1] for name in ("mask_keys", "mask_signatures")}
    less = forged(group, request, spec=fewer, arrays=keys)
    with pytest.raises(RefusedError, match="another key than the one that was sent"):
        sites["m5"].answer(less)
    vectors = [sites[name].answer(less).open(group.keys["m0"])[1]["masked"] for name in spec["roster"][:-1]]
    assert int(np.sum(vectors, axis=0, dtype=np.uint64)[-1]) == 4
    for name in spec["roster"][:-1]:
        with pytest.raises(RefusedError, match="second release"):
            sites[name].answer(request)


@pytest.mark.parametrize(
    "changes",
    [
        {"weights": [float("nan")] * 5},
        {"focal_weight": float("nan")},
        {"weights": [float("inf"), 0.1, 0.1, 0.1, 0.1]},
        {"weights": [0.2] * 4},
        {"weights": "equal"},
        {"roster": ["m1", "m1", "m2", "m3", "m4"]},
        {"roster": ["m1", "m2"]},
        {"roster": ["../evil"] * 5},
        {"first": 7},
        {"first": "00"},
        {"spares": [True] * 5},
        {"spares": [False] * 4},
        {"spares": None},
    ],
)
def test_requests_that_are_damaged_on_purpose(second, changes):
    """NaN, infinity, numbers out of range, other types: refused with a reason, and nothing is recorded."""
    group, sites, _, request, _ = second
    before = list(sites["m1"].ledger.entries)
    try:
        spoiled = forged(group, request, spec=changes)
    except ValueError:
        return  # what JSON cannot hold cannot be sent
    with pytest.raises(DataError):
        sites["m1"].answer(spoiled)
    assert sites["m1"].ledger.entries == before
    assert sites["m1"].answer(request)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e308, 1e308])
@pytest.mark.parametrize("name", ["gram", "cross", "square"])
def test_focal_sums_that_are_no_sums(consortium, name, value):
    group = consortium(members=5)
    request = group.coordinator().ask()
    array = np.asarray(request.open(group.keys["m0"])[1][name], dtype=float)
    with pytest.raises(DataError):
        group.site("m1").answer(forged(group, request, arrays={name: np.full_like(array, value)}))


@pytest.mark.parametrize(("asked", "step"), [("sums", 2), ("shares", 3), ("terms", 3), ("trials", 4)])
def test_steps_that_come_before_their_time(consortium, asked, step):
    """A later step is answered only where the one before it was, with the same rows."""
    group = consortium(members=5, rows=70, method="tuned" if asked in ("terms", "trials") else "fixed", fixed=EQUAL)
    group.data["m0"] = {name: np.asarray(values)[:20] for name, values in group.data["m0"].items()}
    sites, coordinator, messages = group.sites(), group.coordinator(), []
    while True:
        request = coordinator.ask(messages)
        if request.public["ask"] == asked:
            break
        names = [name for name in sites if not (asked == "shares" and request.step == 2 and name == "m4")]
        messages += [sites[name].answer(request) for name in names]
    assert request.step == step
    with pytest.raises(RefusedError, match=r"another request|took no part|did not answer"):
        group.site("m1").answer(request)


# --- members ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("drop_outs", "readable"), [(0, False), (1, True)])
def test_all_but_one_member_collude_with_the_coordinator(consortium, drop_outs, readable):
    """n - 2 of n members and the coordinator pool all they have: shares that were sealed to them, keys, masks.

    With no drop-outs allowed they lack one share; with one allowed, they have the key, as the page says.
    """
    from mixtune_federated._masks import Announcement, join_shares, mask_of, share_context

    group = consortium(members=6, fixed=EQUAL, limits=Limits(drop_outs=drop_outs))
    sites, coordinator = group.sites(), group.coordinator()
    first = coordinator.ask()
    answers = {name: site.answer(first) for name, site in sites.items()}
    second = coordinator.ask(list(answers.values()))
    told = Announcement.read(group.study, *second.open(group.keys["m0"]))
    masked = sites["m1"].answer(second).open(group.keys["m0"])[1]["masked"]
    boxes, colluding = answers["m1"].open(group.keys["m0"])[1]["boxes"], ("m3", "m4", "m5")
    shares = {}
    for name in colluding:
        place = group.study.sources.index(name)
        row = group.study.neighbours("m1").index(place)
        context = share_context(group.study, first.digest, "boxes", "m1", name)
        shares[place] = group.keys[name].open(boxes[row].tobytes(), "a share", context)
    private = join_shares(shares)
    others = {group.study.sources.index(name): told.public[name][:32] for name in ("m2", *colluding)}
    opened = masked - mask_of(0, private or bytes(32), others, told.transcript, len(masked))
    assert (int(opened[-1]) == 1) == readable
    if not readable:
        assert stats.kstest(opened / 2.0**64, "uniform").pvalue > 1e-6
    assert (group.study.threshold <= len(colluding)) == readable


def test_members_do_not_read_one_anothers_answers(second):
    group, _, answers, _, _ = second
    for name in ("m2", "m3"):
        with pytest.raises(DataError, match="not for"):
            answers[0].open(group.keys[name])
        with pytest.raises(DataError, match="was not made with the key"):
            answers[0].reopened(group.keys[name])
    assert answers[0].reopened(group.keys["m1"])[0] == answers[0].open(group.keys["m0"])[0]


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_a_member_whose_rows_overflow_sends_nothing(consortium, value):
    """Its sums would make everybody's useless."""
    group = consortium(members=5, fixed=EQUAL)
    table = group.data["m1"]
    group.data["m1"] = {**table, "x0": np.r_[value, np.asarray(table["x0"])[1:]]}
    with pytest.raises(DataError):
        group.site("m1", Policy(least_cell=0)).answer(group.coordinator().ask())


def test_poisoned_masked_answers_do_not_pass_for_sums(second):
    """A member that adds what it likes under its mask: the total shows what no rows can give."""
    group, sites, answers, request, coordinator = second
    sent = [site.answer(request) for site in sites.values()]
    spec, arrays = sent[0].reopened(group.keys["m1"])
    from mixtune_federated._messages import write_message

    header = {name: sent[0].header[name] for name in ("kind", "study", "step", "says", "reply_to", "public")}
    for place, amount in ((-1, 1), (1, 2**62)):
        wrong = arrays["masked"].copy()
        wrong[[place]] += np.uint64(amount)  # as arrays, which wrap
        bad = write_message(group.keys["m1"], [group.study.card("m0")], **header, spec=spec, arrays={"masked": wrong})
        with pytest.raises(DataError, match=r"do not add up|not those of any rows"):
            coordinator.combine([*answers, bad, *sent[1:]])


def test_a_relay_that_repeats_reorders_and_doubles_changes_nothing(second):
    _, sites, answers, request, coordinator = second
    sent = [site.answer(request) for site in sites.values()]
    honest = coordinator.combine([*answers, *sent]).total.gram
    mixed = [*sent[::-1], *answers[::-1], *sent, *answers]
    np.testing.assert_array_equal(coordinator.combine(mixed).total.gram, honest)
    with pytest.raises(DataError, match="not a request"):
        sites["m1"].answer(answers[0])
