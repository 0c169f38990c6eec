"""Attacks: each is refused and named, or bounded; none gives a wrong model without a word."""

from __future__ import annotations

import datetime
import pickle
from dataclasses import replace

import numpy as np
import pytest

from mixtune.errors import DataError
from mixtune.moments import Rows

pytest.importorskip("cryptography")

from forging import forged
from mixtune_federated import Coordinator, FixedMethod, Key, Ledger, Limits, Policy, RefusedError, Site, read_message
from mixtune_federated._masks import Announcement, decode, from_ring, key_text, length
from mixtune_federated._messages import write_message
from mixtune_federated._sums import sizes


@pytest.fixture
def group(consortium):
    return consortium(members=6, fixed=FixedMethod(weights="equal"))


@pytest.fixture
def second(group):
    """Sites, their first answers, and the second request."""
    sites, coordinator = group.sites(), group.coordinator()
    request = coordinator.ask()
    answers = [site.answer(request) for site in sites.values()]
    return sites, answers, coordinator.ask(answers), coordinator


# --- a lying coordinator ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "code"),
    [
        ([0.8, 0, 0, 0, 0], "few-sources"),
        ([0.4, 0.4, 0, 0, 0], "few-sources"),
        ([0.78, 0.005, 0.005, 0.005, 0.005], "one-hot"),
        # One member that colludes would take its part off, and the others have next to none.
        ([0.62, 0.1797, 1e-4, 1e-4, 1e-4], "one-hot"),
        ([-0.2, 0.5, 0.2, 0.2, 0.1], "other-study"),
        ([0.9, 0.9, 0.9, 0.9, 0.9], "other-study"),
        ([0.2, 0.2, 0.2, 0.1, 0.1], "other-study"),
    ],
)
def test_weights_that_single_out_a_member(group, second, weights, code):
    sites, _, request, _ = second
    with pytest.raises(RefusedError) as caught:
        sites["m1"].answer(forged(group, request, spec={"weights": weights, "focal_weight": 0.2}))
    assert caught.value.code == code


def test_different_stories_give_noise_and_are_noticed(group, second):
    """One member hears of other members than the rest: its masks do not cancel, and the total says so."""
    sites, answers, request, coordinator = second
    spec, arrays = request.open(group.keys["m0"])
    fewer = {"roster": spec["roster"][:-1], "weights": [0.2] * 4, "focal_weight": 0.2, "spares": [False] * 4}
    other = forged(group, request, spec=fewer, arrays={name: arrays[name][:-1] for name in arrays})
    told = {name: site.answer(other if name == "m1" else request) for name, site in sites.items()}
    vectors = [answer.open(group.keys["m0"])[1]["masked"] for answer in told.values()]
    total = np.sum(vectors, axis=0, dtype=np.uint64)
    with pytest.raises(DataError, match="do not add up"):
        decode(total, sizes(4), 5)
    # What is left are the masks of one member: numbers over the whole ring.
    assert np.median(np.abs(from_ring(total, 0))) > 2.0**55
    # A coordinator that follows the protocol finds that one answer is to another request.
    with pytest.raises(DataError, match='"m1" took part in the first exchange'):
        coordinator.combine([*answers, *told.values()])


def test_a_second_run_with_one_member_less(group, second):
    """Two sums that differ by one member would tell its sums: nobody answers the second request."""
    sites, _, request, _ = second
    assert all(site.answer(request) for site in sites.values())
    spec, arrays = request.open(group.keys["m0"])
    fewer = {"roster": spec["roster"][1:], "weights": [0.2] * 4, "focal_weight": 0.2, "spares": [False] * 4}
    keys = {name: arrays[name][1:] for name in ("mask_keys", "mask_signatures")}
    less = forged(group, request, spec=fewer, arrays=keys, to=[*spec["roster"][1:], "m0"])
    for name in spec["roster"][1:]:
        with pytest.raises(RefusedError, match="second release"):
            sites[name].answer(less)
    # The same from the beginning, with a new first request.
    again = group.coordinator().ask()
    with pytest.raises(RefusedError, match="another request was answered"):
        sites["m2"].answer(again)
    # The same request again is no second release: the answer holds the same numbers.
    one, two = (sites["m2"].answer(request).open(group.keys["m0"])[1]["masked"] for _ in range(2))
    np.testing.assert_array_equal(one, two)


def numbered(group, original, step, **changes):
    """The coordinator's request with another number, and other content."""
    told, held = original.open(group.keys["m0"])
    header = {name: original.header[name] for name in ("kind", "study", "says", "public")}
    cards = [group.study.card(name) for name in original.header["recipients"]]
    return write_message(group.keys["m0"], cards, step=step, **header, spec={**told, **changes}, arrays=held)


def test_requests_under_another_number(group, second):
    """One answer in each step: the number of the step must not make room for a second one."""
    sites, _, request, _ = second
    sites["m1"].answer(request)
    for step in (1, 3, 7):
        with pytest.raises(RefusedError, match=f"'sums' in step {step}, but it belongs in step 2"):
            sites["m1"].answer(numbered(group, request, step, weights=[0.1] * 5, focal_weight=0.5))
    with pytest.raises(RefusedError, match="'keys' in step 5"):
        sites["m1"].answer(numbered(group, group.coordinator().ask(), 5))


def test_a_policy_that_allows_another_run_allows_no_second_sum_in_one(group):
    sites, coordinator = group.sites(Policy(one_release=False)), group.coordinator()
    first = coordinator.ask()
    answers = [site.answer(first) for site in sites.values()]
    second = coordinator.ask(answers)
    answers += [sites[name].answer(second) for name in ("m1", "m2", "m3", "m4")]
    other = forged(group, second, spec={"weights": [0.1] * 5, "focal_weight": 0.5, "second": {"first": "0" * 64}})
    with pytest.raises(RefusedError, match="second release"):
        sites["m1"].answer(other)
    third = coordinator.ask(answers)
    sites["m1"].answer(third)
    with pytest.raises(RefusedError, match="second release"):
        sites["m1"].answer(forged(group, third, spec={"dropped": ["m4"]}))
    # Another run is what the policy allows.
    sites["m1"].answer(group.coordinator().ask())


def test_shares_of_members_that_answered(group, second):
    """A coordinator that says members dropped out gets shares of as many as the study allows, not more, and once."""
    sites, answers, request, coordinator = second
    answered = [*answers, *(sites[name].answer(request) for name in ("m1", "m2", "m3", "m4"))]
    third = coordinator.ask(answered)
    boxes = third.open(group.keys["m0"])[1]["boxes"]
    two = forged(group, third, spec={"dropped": ["m4", "m5"]}, arrays={"boxes": np.repeat(boxes, 2, axis=0)})
    with pytest.raises(RefusedError, match="allows 1 members"):
        sites["m1"].answer(two)
    sites["m1"].answer(third)
    with pytest.raises(RefusedError, match="second release"):
        sites["m1"].answer(forged(group, third, spec={"dropped": ["m4"]}))
    with pytest.raises(RefusedError, match="took no part"):
        sites["m2"].answer(forged(group, third, spec={"dropped": ["m2"]}))
    with pytest.raises(RefusedError, match="took no part in that sum"):
        sites["m5"].answer(forged(group, third, spec={"dropped": ["m4"]}, to=["m5", "m0"]))


def test_another_study_or_question(group, second):
    sites, _, request, _ = second
    other = replace(group.study, fixed=FixedMethod(weights="equal", ridge=5.0))
    with pytest.raises(RefusedError, match="fingerprint"):
        sites["m1"].answer(Coordinator(other, group.data["m0"], group.keys["m0"]).ask())
    for public in ({"ask": "moments"}, {"ask": "rows"}, {}):
        with pytest.raises(RefusedError, match="the study agreed on"):
            sites["m1"].answer(forged(group, request, public=public))
    asked = {"kind": "request", "study": group.study.fingerprint, "step": 1, "says": []}
    with pytest.raises(RefusedError, match="asks and all others answer"):
        sites["m1"].answer(write_message(group.keys["m2"], [group.study.card("m1")], **asked))
    with pytest.raises(RefusedError, match="did not answer that request"):
        group.site("m1").answer(request)


# --- a relay ----------------------------------------------------------------------------------------------------------


def test_swapped_keys(group, second):
    """A relay or coordinator that puts its own key for masks into the place of a member's is found out."""
    sites, _, request, _ = second
    _, arrays = request.open(group.keys["m0"])
    evil = Key.generate("evil").card.sealing
    keys = arrays["mask_keys"].copy()
    keys[1] = np.frombuffer(2 * evil, dtype=np.uint8)
    with pytest.raises(RefusedError, match='key of "m2" that this member did not sign'):
        sites["m1"].answer(forged(group, request, arrays={"mask_keys": keys}))
    with pytest.raises(RefusedError, match="another key than the one that was sent"):
        sites["m2"].answer(forged(group, request, arrays={"mask_keys": keys}))
    # Its signature under the name of the member does not help.
    signed = arrays["mask_signatures"].copy()
    text = key_text(group.study, request.open(group.keys["m0"])[0]["first"], "m2", 2 * evil, False)
    signed[1] = np.frombuffer(Key.generate("m2").sign(text), dtype=np.uint8)
    with pytest.raises(RefusedError, match="did not sign"):
        sites["m1"].answer(forged(group, request, arrays={"mask_keys": keys, "mask_signatures": signed}))


def test_requests_and_answers_of_strangers(group, second):
    sites, answers, request, coordinator = second
    impostor = Key("m0", Key.generate("x").signing, group.keys["m0"].sealing)
    cards = [group.study.card(name) for name in request.header["recipients"]]
    fake = write_message(impostor, cards, kind="request", study=group.study.fingerprint, step=2, says=[])
    with pytest.raises(DataError, match="not signed with the key that the study pins"):
        sites["m1"].answer(fake)
    stranger = Key.generate("m9")
    sent = {"kind": "answer", "study": group.study.fingerprint, "step": 1, "says": [], "reply_to": "0" * 64}
    with pytest.raises(DataError, match="not a member"):
        coordinator.combine([*answers, write_message(stranger, [group.study.card("m0")], **sent)])
    fake = write_message(Key.generate("m1"), [group.study.card("m0")], **sent)
    with pytest.raises(DataError, match="not signed"):
        coordinator.combine([*answers, fake])
    with pytest.raises(DataError, match='not for "m1"'):
        answers[0].open(group.keys["m1"])


def test_replayed_answers_do_not_count(group):
    """Answers to an earlier request are not taken for answers to a later one."""
    sites = group.sites(Policy(one_release=False))
    old = [site.answer(group.coordinator().ask()) for site in sites.values()]
    coordinator = group.coordinator()
    coordinator.ask()
    with pytest.raises(DataError, match="0 members answered"):
        coordinator.ask(old)


# --- colluding members ------------------------------------------------------------------------------------------------


def test_all_but_three_members_and_the_coordinator_learn_only_the_sum_of_the_three(group, second):
    """N - 3 colluding members know all of their masks; what they find of the others is uniform, but for their sum."""
    from scipy import stats

    sites, _, request, _ = second
    told = Announcement.read(group.study, *request.open(group.keys["m0"]))
    vectors = {name: site.answer(request).open(group.keys["m0"])[1]["masked"] for name, site in sites.items()}
    assert group.study.threshold > len(sites) - 3
    from mixtune_federated._masks import pair_mask

    count, honest = length(sizes(4)), ("m1", "m2", "m3")
    for name in honest:
        for other in ("m4", "m5"):
            # The colluding members take their masks away.
            private = sites[other]._private(told.first)
            mask = pair_mask(private, told.public[other][:32], told.public[name][:32], told.transcript, count)
            vectors[name] = vectors[name] - mask
    for name in honest:
        assert stats.kstest(vectors[name] / 2.0**64, "uniform").pvalue > 1e-6
    blocks = decode(sum(vectors[name] for name in honest), sizes(4), 3)
    expected = sum(told.weights[name] * sites[name]._local().blocks(1.0)["cross"] for name in honest)
    np.testing.assert_allclose(blocks["cross"], expected, rtol=1e-12)


def test_a_lying_coordinator_needs_two_colluding_members(group, second):
    """It names a sum over them and one other: that is the stated bound, which a member's own policy raises."""
    sites, _, request, _ = second
    spec, arrays = request.open(group.keys["m0"])
    few = {"roster": ["m1", "m4", "m5"], "weights": [0.25] * 3, "focal_weight": 0.25, "spares": [False] * 3}
    kept = [spec["roster"].index(name) for name in few["roster"]]
    keys = {name: arrays[name][kept] for name in ("mask_keys", "mask_signatures")}
    lie = forged(group, request, spec=few, arrays=keys, to=["m1", "m4", "m5", "m0"])
    sites["m1"].policy = Policy(least_sources=4)
    with pytest.raises(RefusedError, match="weight on 3 members, but 4 are the least"):
        sites["m1"].answer(lie)
    sites["m1"].policy = Policy()
    vectors = [sites[name].answer(lie).open(group.keys["m0"])[1]["masked"] for name in few["roster"]]
    total = decode(np.sum(vectors, axis=0, dtype=np.uint64), sizes(4), 3)["cross"] * 4
    theirs = sum(sites[name]._local().blocks(1.0)["cross"] for name in ("m4", "m5"))
    np.testing.assert_allclose(total - theirs, sites["m1"]._local().blocks(1.0)["cross"], rtol=1e-9)
    told = " ".join(group.study.describe())
    assert "with the help of 3 other members, or of 2 if it also lies about who takes part" in told


# --- a malicious member -----------------------------------------------------------------------------------------------


def dishonest(group, request, name, **changes):
    """An answer at level 1 with other sums."""
    site = group.site(name)
    honest = site.answer(request)
    spec, arrays = honest.open(group.keys["m0"])
    spec |= changes.pop("spec", {})
    header = {key: honest.header[key] for key in ("kind", "study", "step", "says", "reply_to", "public")}
    card = group.study.card("m0")
    return write_message(group.keys[name], [card], **header, spec=spec, arrays={**arrays, **changes})


def test_sums_that_are_of_no_rows_are_left_out_and_named(consortium):
    group = consortium(level=1, members=4)
    coordinator = group.coordinator()
    request = coordinator.ask()
    good = [group.site(name).answer(request) for name in ("m2", "m3")]
    _, local = group.site("m1").answer(request).open(group.keys["m0"])
    gram, units = local["gram"], np.array([1e7] * 4 + [1.0])
    larger = np.outer(units, units)[np.triu_indices(5)]
    cases = {
        "NaN": {"gram": np.where(np.arange(len(gram)) == 2, np.nan, gram)},
        "too large": {"gram": gram * larger, "cross": local["cross"] * units},
        "negative": {"gram": np.where(np.arange(len(gram)) == 1, gram[0] * 3, gram)},
        "59.5 rows": {"gram": np.r_[gram[:-1], 59.5]},
        "wrong shape": {"gram": gram[:-1]},
        "cannot reshape": {"cross": np.zeros(3)},
        "incomplete": {"square": np.zeros(2)},
        "it has the wrong shape": {"shift": np.zeros(3)},
        "1e+06 standard units": {"shift": np.full(4, 1e7)},
        "it is not finite": {"level": np.array(np.nan)},
    }
    for words, changes in cases.items():
        coordinator.rejected.clear()
        bad = dishonest(group, request, "m1", **changes)
        combined = coordinator.combine([*good, bad])
        assert combined.names == ("m2", "m3"), words
        assert words in combined.missing["m1"]
        with pytest.raises(DataError, match='"m1" is missing'):
            coordinator.combine([*good, bad], require_all=True)


def test_members_that_send_very_wrong_sums_get_no_part(consortium):
    """Level 2: sums of reversed targets. The guard keeps to the focal rows, and says so."""
    group = consortium(members=5, rows=200, spread=0.05, fixed=FixedMethod(weights="equal"))
    rng = np.random.default_rng(1)
    for name in ("m1", "m2"):
        table = group.data[name]
        group.data[name] = {**table, "y": -30 * np.asarray(table["y"]) + rng.standard_normal(200)}
    coordinator, messages = group.run()
    model, alone = group.model(coordinator.combine(messages)), group.pooled([])
    assert model.guarded_
    assert model.members_share_ < 0.01
    assert "the guard gives 0% to the model with the members' sums" in model.notes_[0]
    assert model.weights_.values[0] > 0.99
    assert pickle.dumps(model)
    near = np.linalg.norm(model.coef_ - alone.coef_)
    assert near < 0.1 * np.linalg.norm(alone.coef_)


def poisoned(consortium, seed, **settings):
    """Errors on new rows relative to the focal rows alone: 20 focal rows, one of four members with wrong slopes."""
    group = consortium(members=5, seed=seed, fixed=FixedMethod(weights="equal"), **settings)
    whole = {name: np.asarray(values) for name, values in group.data["m0"].items()}
    group.data["m0"] = {name: values[:20] for name, values in whole.items()}
    table = group.data["m1"]
    group.data["m1"] = {**table, "y": np.asarray(table["y"]) + 3 * np.asarray(table["x0"])}
    coordinator, messages = group.run()
    combined = coordinator.combine(messages)
    new = group.study.read({name: values[20:] for name, values in whole.items()})
    models = [group.model(combined, guard=True), group.model(combined, guard=False), group.pooled([])]
    errors = [np.sqrt(np.mean((new.y - model.predict(new.X)) ** 2)) for model in models]
    return errors[0] / errors[2], errors[1] / errors[2]


def test_wrong_sums_do_no_harm_beyond_noise(consortium):
    """Without the guard, the fixed method would be much worse than the focal rows alone."""
    fixed = np.log([poisoned(consortium, seed) for seed in range(12)])
    assert np.exp(fixed.mean(axis=0)[0]) < 1.02
    assert np.exp(fixed.max(axis=0)[0]) < 1.25
    assert np.exp(fixed.mean(axis=0)[1]) > 1.1
    for level in (1, 2):
        ratios = [poisoned(consortium, seed, level=level, method="tuned")[0] for seed in range(2)]
        assert max(ratios) < 1.1, level


def test_the_guard_leaves_honest_sums_as_they_are(consortium):
    """Members like the focal one: equal to pooled rows. And rows that one of both parts cannot leave out."""
    group = consortium(members=7, rows=60, spread=0.0, seed=3)
    group.data["m0"] = {name: np.asarray(values)[:20] for name, values in group.data["m0"].items()}
    coordinator, messages = group.run()
    combined = coordinator.combine(messages)
    model, pooled = group.model(combined), group.pooled(sharing=combined.sharing)
    assert (model.guarded_, model.members_share_) == (False, 1.0)
    np.testing.assert_allclose(model.coef_, pooled.coef_, rtol=1e-7)


def left_out_alone(group):
    """Residuals of the focal member's own ridge regression, each row left out, and its mean squared standard error."""
    rows = group.study.prepared(Rows(*group.focal))
    U = rows.X - rows.X.mean(axis=0)
    hat = U @ np.linalg.solve(U.T @ U + group.study.fixed.ridge * np.eye(U.shape[1]), U.T) + 1 / len(U)
    residuals = (rows.y - hat @ rows.y) / (1 - np.diag(hat))
    return residuals, np.mean(residuals**2 * np.diag(hat))


def test_members_change_predictions_by_no_more_than_the_stated_bound(consortium):
    """One member knows the focal rows and the truth, and has so many rows that it decides: the truth, mirrored."""
    fixed, changes, ratios = FixedMethod(weights="equal"), [], []
    rng = np.random.default_rng(0)
    for seed, settings in [(0, {}), (1, {}), (2, {"level": 1}), (3, {"level": 1, "method": "tuned"})]:
        group = consortium(members=5, seed=seed, fixed=fixed, **settings)
        whole = group.data["m0"]
        group.data["m0"] = {name: values[:20] for name, values in whole.items()}
        X, y = group.focal
        near, far = (np.linalg.lstsq(np.c_[X, np.ones(len(X))], y)[0] for X, y in ((X, y), far_rows(whole)))
        X = rng.standard_normal((4000, 4))
        table = {f"x{place}": X[:, place] for place in range(4)}
        group.data["m1"] = {**table, "y": np.c_[X, np.ones(len(X))] @ (3 * near - 2 * far)}
        coordinator, messages = group.run()
        combined = coordinator.combine(messages)
        model, unguarded = group.model(combined), group.model(combined, guard=False)
        if combined.study.method == "fixed":
            alone, error = left_out_alone(group)
            members = group.focal[1] - unguarded.loo_predictions_
            changes.append(model.members_share_**2 * np.mean((alone - members) ** 2) / (1.25**2 * error))
        X, y = far_rows(whole)
        tries = [model, unguarded, group.pooled([])]
        ratios.append([np.sqrt(np.mean((X @ each.coef_ + each.intercept_ - y) ** 2)) for each in tries])
    assert max(changes) < 1 + 1e-9
    assert changes[0] > 0.5
    ours, unguarded, alone = np.exp(np.mean(np.log(ratios), axis=0))
    assert ours < 1.4 * alone
    assert unguarded > 1.1 * ours


def far_rows(table):
    """The rows of the focal member that nobody sees."""
    return np.column_stack([table[f"x{place}"][20:] for place in range(4)]), np.asarray(table["y"])[20:]


def test_totals_out_of_range(group, second):
    """A member whose sums exceed the range refuses by itself; one that does not is noticed in the total."""
    sites, answers, request, coordinator = second
    site = sites["m1"]
    site.rows = replace(site.rows, y=site.rows.y * 1e9)
    with pytest.raises(DataError, match="larger than the range of masked sums"):
        site.answer(request)
    vectors = [each.answer(request) for name, each in sites.items() if name != "m1"]
    site.rows = replace(site.rows, y=site.rows.y / 1e9)
    honest = site.answer(request)
    spec, arrays = honest.open(group.keys["m0"])
    header = {key: honest.header[key] for key in ("kind", "study", "step", "says", "reply_to", "public")}
    for place in (0, 14):
        wrong = arrays["masked"].copy()
        wrong[place : place + 1] -= np.uint64(2**61)
        bad = write_message(group.keys["m1"], [group.study.card("m0")], **header, spec=spec, arrays={"masked": wrong})
        with pytest.raises(DataError, match=r"negative; masks|too large"):
            coordinator.combine([*answers, *vectors, bad])


# --- what a member checks before anything leaves ----------------------------------------------------------------------


def test_policy_of_cells(consortium):
    group = consortium(level=1, members=3)
    table = {**group.data["m1"], "x0": np.r_[np.ones(3), np.zeros(57)]}
    group.data["m1"] = table
    request = group.coordinator().ask()
    with pytest.raises(RefusedError, match="fewer than 5 people") as caught:
        group.site("m1").answer(request)
    assert caught.value.fields["columns"] == ("x0",)
    assert group.site("m1", Policy(least_cell=3)).answer(request)
    # A target of 0 and 1: a category whose people nearly all have the same answer.
    group.data["m1"] = {**table, "x0": np.r_[np.ones(30), np.zeros(30)], "y": np.r_[np.ones(28), np.zeros(32)]}
    with pytest.raises(RefusedError, match="fewer than 5 people"):
        group.site("m1").answer(request)


def test_wrong_input_is_named_before_anything_is_told(consortium, tmp_path):
    group = consortium(level=1)
    data, key = group.data["m1"], group.keys["m1"]
    with pytest.raises(DataError, match='no column "x2"'):
        Site(group.study, {name: values for name, values in data.items() if name != "x2"}, key)
    with pytest.raises(DataError, match='no column "y"'):
        Site(group.study, {name: values for name, values in data.items() if name != "y"}, key)
    with pytest.raises(DataError, match="missing"):
        Site(group.study, {**data, "x1": np.r_[np.nan, np.asarray(data["x1"])[1:]]}, key)
    with pytest.raises(DataError, match="not a member"):
        Site(group.study, data, Key.generate("m9"))
    with pytest.raises(DataError, match="not the one that study"):
        Site(group.study, data, Key.generate("m1"))
    with pytest.raises(DataError, match="needs the key of"):
        Coordinator(group.study, group.data["m0"], key)
    old = replace(group.study, expires=datetime.date(2020, 1, 1))
    with pytest.raises(DataError, match="expired on 2020-01-01"):
        Coordinator(old, group.data["m0"], group.keys["m0"])
    request = group.coordinator().ask()
    site = group.site("m1")
    site.study = old
    with pytest.raises(DataError, match="expired"):
        site.answer(request)
    with pytest.raises(DataError, match="does not exist"):
        group.site("m1").answer(request).save(tmp_path / "none" / "a.mxf")


def test_ledger_survives_and_is_written_before_the_answer(consortium, tmp_path, monkeypatch):
    group = consortium(level=1)
    path = tmp_path / "m1.ledger"
    one, other = group.coordinator().ask(), group.coordinator().ask()
    assert group.site("m1", ledger=Ledger(path)).answer(one)
    assert group.site("m1", ledger=Ledger(path)).answer(one)
    assert len(path.read_text().splitlines()) == 1
    with pytest.raises(RefusedError, match="second release"):
        group.site("m1", ledger=Ledger(path)).answer(other)
    # Rows in another order are the same rows.
    turned = {name: np.asarray(values)[::-1] for name, values in group.data["m1"].items()}
    with pytest.raises(RefusedError, match="second release"):
        Site(group.study, turned, group.keys["m1"], ledger=Ledger(path)).answer(other)
    # On a full disk, nothing is told: the ledger comes first.
    from mixtune import files as _files

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_files, "write_atomically", full)
    with pytest.raises(DataError, match="No space left"):
        group.site("m2", ledger=Ledger(tmp_path / "m2.ledger")).answer(one)
    assert not (tmp_path / "m2.ledger").exists()
    path.write_text("not json")
    with pytest.raises(DataError, match="restore it"):
        Ledger(path)
    assert read_message(one.content).digest == one.digest


def resent(group, honest, spec=None, arrays=None, gone=()):
    """A member's answer with other content, signed by the member itself."""
    told, held = honest.open(group.keys["m0"])
    told = {name: value for name, value in {**told, **(spec or {})}.items() if name not in gone}
    held = {name: value for name, value in {**held, **(arrays or {})}.items() if name not in gone}
    header = {key: honest.header[key] for key in ("kind", "study", "step", "says", "reply_to", "public")}
    return write_message(group.keys[honest.sender], [group.study.card("m0")], **header, spec=told, arrays=held)


def test_first_answers_that_cannot_be_used_are_left_out_and_named(consortium):
    group = consortium(members=6)
    first = group.coordinator().ask()
    answers = {name: site.answer(first) for name, site in group.sites().items()}
    cases = [
        ("no keys", {"gone": ("public",)}),
        ("no keys", {"arrays": {"boxes": np.zeros((1, 2), dtype=np.uint8)}}),
        ("did not sign", {"arrays": {"public": np.zeros(64, dtype=np.uint8)}}),
        ("no score", {"spec": {"score": "good"}}),
    ]
    for words, changes in cases:
        coordinator = group.coordinator()
        others = [answer for name, answer in answers.items() if name != "m1"]
        request = coordinator.ask([first, *others, resent(group, answers["m1"], **changes)])
        assert request.open(group.keys["m0"])[0]["roster"] == ["m2", "m3", "m4", "m5"]
        assert words in coordinator.rejected["m1"]


def test_shares_and_ranks_of_the_wrong_shape(consortium, group, second):
    sites, answers, request, coordinator = second
    answered = [*answers, *(sites[name].answer(request) for name in ("m1", "m2", "m3", "m4"))]
    third = coordinator.ask(answered)
    shares = [sites[name].answer(third) for name in ("m1", "m2", "m3", "m4")]
    short = [resent(group, each, arrays={"shares": np.zeros((1, 5), dtype=np.uint8)}) for each in shares]
    with pytest.raises(DataError, match="2 members gave shares"):
        coordinator.combine([*answered, *short[:2], *shares[2:]])
    # Three shares are enough: one wrong one is passed over, two are not.
    wrong = [resent(group, each, arrays={"shares": np.ones((1, 33), dtype=np.uint8)}) for each in shares]
    assert list(coordinator.combine([*answered, wrong[0], *shares[1:]]).missing) == ["m5"]
    with pytest.raises(DataError, match="members sent wrong ones"):
        coordinator.combine([*answered, *wrong[:2], *shares[2:]])
    tuned = consortium(level=1, members=5, method="tuned")
    first = (asking := tuned.coordinator()).ask()
    moments = [site.answer(first) for site in tuned.sites().values()]
    ranks = asking.ask(moments)
    told = [site.answer(ranks) for site in tuned.sites().values()]
    for rank in ([1, 2], ["a"] * 7, [60, *[float(10**400 > 0)] * 5, None], [7.0] * 7):
        asking.rejected.clear()
        asking._plan(asking._log([*moments, *told[1:], resent(tuned, told[0], spec={"rank": rank})]))
        assert "orders its rows" in asking.rejected["m1"]


# --- members confirm who took part ------------------------------------------------------------------------------------


def test_confirmed_sums_equal_pooled(consortium):
    for gone in (set(), {(2, "m3")}):
        group = consortium(members=6, fixed=FixedMethod(weights="equal"), limits=Limits(confirm=True))
        coordinator, messages = group.run(gone=gone)
        combined = coordinator.combine(messages)
        assert combined.exchanges == 3
        pooled = group.pooled(combined.names)
        np.testing.assert_allclose(group.model(combined, guard=False).coef_, pooled.coef_, rtol=1e-9)
        second = [each for each in messages if each.step < 3]
        fresh = group.coordinator()
        with pytest.raises(DataError, match=r"have not confirmed|took part in the first"):
            fresh.combine([*group.requests[:2], *second])


def test_a_false_report_of_a_drop_out_gives_nothing(consortium):
    """All answered; the coordinator says that m5 did not. It gets the key of m5, and still cannot read its sums."""
    from scipy import stats

    from mixtune_federated._masks import join_shares, mask_of, own_mask

    group = consortium(members=6, fixed=FixedMethod(weights="equal"), limits=Limits(confirm=True))
    sites, coordinator = group.sites(), group.coordinator()
    first = coordinator.ask()
    answers = [site.answer(first) for site in sites.values()]
    second = coordinator.ask(answers)
    masked = {name: site.answer(second) for name, site in sites.items()}
    alive = ["m1", "m2", "m3", "m4"]
    third = coordinator.ask([*answers, *(masked[name] for name in alive)])
    given = {name: sites[name].answer(third).open(group.keys["m0"])[1] for name in alive}
    told = Announcement.read(group.study, *second.open(group.keys["m0"]))
    shares = {place: given[name]["shares"][4].tobytes() for place, name in enumerate(alive)}
    private = join_shares(dict(list(shares.items())[: group.study.threshold]))
    count = length(sizes(4))
    others = {group.study.sources.index(name): told.public[name][:32] for name in alive}
    vector = masked["m5"].open(group.keys["m0"])[1]["masked"]
    opened = vector - mask_of(4, private, others, told.transcript, count)
    # Its masks with the others are gone, and it is still uniform: nobody gave shares of its own mask.
    assert int(opened[-1]) != 1
    assert stats.kstest(opened / 2.0**64, "uniform").pvalue > 1e-6
    own = own_mask(sites["m5"]._seed(told.first), told.transcript, count)
    assert int((opened - own)[-1]) == 1
    # One share for each of the five, of either secret.
    assert all(shares["shares"].shape[0] == 5 for shares in given.values())
    # And the others' answers are readable only without it: a second report is refused.
    with pytest.raises(RefusedError, match="second release"):
        sites["m1"].answer(forged(group, third, spec={"dropped": []}))
