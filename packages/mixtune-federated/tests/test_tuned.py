"""The self-tuned choice with validation tasks at the members': equal to the choice on all rows in one place."""

from __future__ import annotations

import numpy as np
import pytest

from mixtune import RegretOptimalRegressorCV
from mixtune.errors import DataError
from mixtune.estimators import load
from mixtune.moments import Rows
from mixtune_federated import pooled_twin

pytest.importorskip("cryptography")

from mixtune.files import pack
from mixtune_federated import Policy, RefusedError
from mixtune_federated._messages import CONTENT_FORM, write_message
from mixtune_federated._tuned import play_context


@pytest.mark.parametrize(
    ("members", "rows", "columns", "focal"), [(6, 60, 3, 20), (10, 30, 3, 46), (4, 90, 6, 40), (3, 60, 2, 20)]
)
def test_equal_to_pooled_in_four_exchanges(consortium, members, rows, columns, focal, tmp_path):
    """With rows to spare for tests and without, with few sources and more."""
    group = consortium(level=1, members=members, rows=rows, columns=columns, method="tuned")
    group.data["m0"] = {name: np.asarray(values)[:focal] for name, values in group.data["m0"].items()}
    coordinator, messages = group.run()
    combined = coordinator.combine(messages, require_all=True)
    assert combined.exchanges == (4 if combined.tasks else 2)
    model = group.model(combined)
    X, y = group.focal
    twin = pooled_twin(combined, Rows(X, y), {name: Rows(*pair) for name, pair in group.sources.items()})
    ours, theirs = (np.append(each.coef_, each.intercept_) for each in (model, twin))
    assert np.max(np.abs(ours - theirs)) < 1e-10 * np.max(np.abs(theirs))
    np.testing.assert_allclose(model.weights_.values, twin.weights_.values, atol=1e-10)
    # The comparison of the twin fits rows anew, which members do not share; validation tasks are the same.
    assert model.transfer_gain_.from_validation == pytest.approx(twin.transfer_gain_.from_validation, abs=1e-9)
    assert [c.family for c in model.candidates_[:3]] == [c.family for c in twin.candidates_[:3]]
    np.testing.assert_allclose(model.predict_interval(X), twin.predict_interval(X), rtol=1e-8)
    back = load(model.save(tmp_path / "model.mixtune"))
    np.testing.assert_array_equal(back.predict(X), model.predict(X))


def test_ill_conditioned_rows_far_from_the_zero_of_the_study(consortium):
    """Sums about the zero of the study would leave 1e-9."""
    group = small_focal(consortium(level=1, members=5, condition=1e6, offset=3.0, method="tuned"))
    coordinator, messages = group.run()
    combined = coordinator.combine(messages)
    assert combined.tasks
    assert_equal_to_pooled(group, combined)


def assert_equal_to_pooled(group, combined):
    """With the same validation tasks on all rows in one place."""
    twin = pooled_twin(combined, Rows(*group.focal), {name: Rows(*pair) for name, pair in group.sources.items()})
    np.testing.assert_allclose(group.model(combined).coef_, twin.coef_, rtol=1e-10)


def test_members_whose_policy_forbids_tasks_inform_priors_only(consortium):
    group = consortium(level=1, members=6, columns=4, method="tuned")
    group.data["m0"] = {name: np.asarray(values)[:14] for name, values in group.data["m0"].items()}
    coordinator, messages = group.run(policy=Policy(features_per_row=0.25))
    combined = coordinator.combine(messages)
    assert combined.tasks == []
    assert combined.names == group.study.sources
    assert set(combined.late) == set(group.study.sources)
    assert_equal_to_pooled(group, combined)


def test_tasks_of_one_member_that_is_gone_are_left_out(consortium):
    group = consortium(level=1, members=7, columns=3, method="tuned")
    group.data["m0"] = {name: np.asarray(values)[:20] for name, values in group.data["m0"].items()}
    coordinator, messages = group.run(gone={(3, "m2"), (4, "m2"), (4, "m3")})
    combined = coordinator.combine(messages)
    assert {task.source for task in combined.tasks} == {0, 3, 4, 5}
    assert combined.missing == {}
    assert_equal_to_pooled(group, combined)
    assert combined.late == dict.fromkeys(("m2", "m3"), "it did not answer")
    assert "the sums of 'm3' count, but it takes no part in the validation" in combined.made[-1]
    assert np.all(np.isfinite(group.model(combined).coef_))


@pytest.fixture
def asked(consortium):
    """A consortium, its sites, and the requests for parts and plays."""
    group = consortium(level=1, members=5, columns=3, method="tuned")
    group.data["m0"] = {name: np.asarray(values)[:20] for name, values in group.data["m0"].items()}
    sites, coordinator, messages, requests = group.sites(), group.coordinator(), [], []
    for _ in range(4):
        requests.append(coordinator.ask(messages))
        messages += [site.answer(requests[-1]) for site in sites.values()] if len(requests) < 3 else []
        if len(requests) == 3:
            messages += [site.answer(requests[-1]) for site in group.sites().values()]
    return group, sites, requests, coordinator, messages


def changed(group, request, **arrays):
    told, held = request.open(group.keys["m0"])
    cards = [group.study.card(name) for name in request.header["recipients"]]
    header = {name: request.header[name] for name in ("kind", "study", "step", "says", "public")}
    return write_message(group.keys["m0"], cards, **header, spec=told, arrays={**held, **arrays})


def test_parts_that_would_single_out_rows_are_refused(asked):
    group, sites, requests, _, _ = asked
    _, arrays = requests[2].open(group.keys["m0"])
    places = arrays["0.0"]
    near = places.copy()
    near[[0, 25]] = near[[25, 0]]
    with pytest.raises(RefusedError, match="differ by"):
        sites["m1"].answer(changed(group, requests[2], **{"0.1": near}))
    with pytest.raises(RefusedError, match="not all different"):
        sites["m1"].answer(changed(group, requests[2], **{"0.1": np.zeros_like(places)}))
    with pytest.raises(RefusedError, match="do not exist"):
        sites["m1"].answer(changed(group, requests[2], **{"0.1": places + 60}))
    everything = np.arange(58)
    with pytest.raises(RefusedError, match="2 rows"):
        sites["m1"].answer(changed(group, requests[2], **{"0.1": np.roll(everything, 3)}))


def test_leverages_that_would_single_out_rows_are_refused(asked):
    group, sites, requests, _, _ = asked
    told, arrays = requests[3].open(group.keys["m0"])
    inner = group.keys["m1"].open(arrays["box.0"].tobytes(), "it", play_context(group.study, "m1", told["parts"]))
    from mixtune.files import unpack

    _, sent = unpack(inner, form=CONTENT_FORM, where="it")
    sent["quadratics.0"] = sent["quadratics.0"] * 50
    box = group.study.card("m1").seal(pack({}, sent, form=CONTENT_FORM), play_context(group.study, "m1", told["parts"]))
    with pytest.raises(RefusedError, match="leverages that are none"):
        sites["m1"].answer(changed(group, requests[3], **{"box.0": np.frombuffer(box, dtype=np.uint8)}))
    # Candidates of one member's task are sealed to it.
    with pytest.raises(DataError, match="cannot be opened"):
        group.keys["m2"].open(arrays["box.0"].tobytes(), "it", play_context(group.study, "m2", told["parts"]))


def test_residuals_that_cannot_be_are_left_out_and_named(asked):
    group, sites, requests, coordinator, messages = asked
    answers = {name: site.answer(requests[3]) for name, site in sites.items()}
    spec, arrays = answers["m1"].open(group.keys["m0"])
    header = {key: answers["m1"].header[key] for key in ("kind", "study", "step", "says", "reply_to", "public")}
    for name, value in [("squares.0", np.nan), ("clipped.0", -1.0), ("left.0", np.zeros(3))]:
        wrong = np.full_like(arrays[name], value) if np.ndim(value) == 0 else value
        bad = write_message(
            group.keys["m1"], [group.study.card("m0")], **header, spec=spec, arrays={**arrays, name: wrong}
        )
        rest = [answer for other, answer in answers.items() if other != "m1"]
        combined = coordinator.combine([*messages, *rest, bad])
        assert 0 not in {task.source for task in combined.tasks}
        assert "cannot be used" in coordinator.rejected["m1"]


# --- level 2 ----------------------------------------------------------------------------------------------------------


def small_focal(group, count=20):
    group.data["m0"] = {name: np.asarray(values)[:count] for name, values in group.data["m0"].items()}
    return group


@pytest.mark.parametrize(("columns", "condition"), [(4, 1.0), (16, 1e5)])
def test_sums_only_equals_the_same_sums_in_one_place(consortium, columns, condition):
    """Level 2: four exchanges, all of them masked; the model is that of the same method on all rows in one place."""
    group = small_focal(
        consortium(level=2, members=7, rows=70, method="tuned", columns=columns, condition=condition, seed=1)
    )
    coordinator, messages = group.run()
    combined = coordinator.combine(messages, require_all=True)
    assert combined.exchanges == 4
    assert combined.moments == {}
    (task,) = combined.tasks
    assert task.stands_for == 6
    model = group.model(combined)
    X, y = group.focal
    twin = pooled_twin(combined, Rows(X, y), {name: Rows(*pair) for name, pair in group.sources.items()})
    ours, theirs = (np.append(each.coef_, each.intercept_) for each in (model, twin))
    # One ring element for a number would leave 1e-8, and 1e-5 in unlucky cases.
    assert np.max(np.abs(ours - theirs)) < 1e-10 * np.max(np.abs(theirs))
    assert model.weights_.names == ("m0", "all members")
    assert {candidate.family for candidate in model.candidates_} >= {"focal only", "alike", "pooled"}


def test_without_all_answers_the_choice_falls_back_to_the_sum(consortium):
    """A member that drops out of a later sum is not recovered: its key would open its earlier sums."""
    group = small_focal(consortium(level=2, members=6, rows=70, method="tuned"))
    for step in (3, 4):
        coordinator, messages = group.run(gone={(step, "m2")})
        combined = coordinator.combine(messages)
        assert (combined.terms is None) == (step == 3)
        assert combined.tasks == [] or step == 3
        assert list(combined.late) == ["m2"]
        assert np.all(np.isfinite(group.model(combined).coef_))


def test_different_stories_in_later_sums_are_noticed(consortium):
    group = small_focal(consortium(level=2, members=5, rows=70, method="tuned"))
    sites, coordinator, messages = group.sites(), group.coordinator(), []
    for _ in range(3):
        request = coordinator.ask(messages)
        messages += [site.answer(request) for site in sites.values()] if request.step < 3 else []
    other = changed(group, request, shift=np.full(4, 0.5))
    answers = {name: site.answer(other if name == "m1" else request) for name, site in sites.items()}
    vectors = [answer.open(group.keys["m0"])[1]["masked"] for answer in answers.values()]
    assert int(np.sum(vectors, axis=0, dtype=np.uint64)[-1]) != 4
    # Whoever took no part in the sum before sends nothing.
    with pytest.raises(RefusedError, match="took no part in the sum before"):
        group.site("m1").answer(request)


def test_tuned_from_sums_is_close_to_tuned_from_rows(consortium):
    """Where sources are alike; with misleading ones it does worse, which the page says."""
    ratios = []
    for seed in range(2):
        group = small_focal(consortium(level=2, members=9, rows=80, columns=3, method="tuned", seed=seed), 16)
        coordinator, messages = group.run()
        model = group.model(coordinator.combine(messages))
        X, y = group.focal
        whole = RegretOptimalRegressorCV(None).fit(X, y, sources=group.sources)
        alone = RegretOptimalRegressorCV(None).fit(X, y)
        points = np.random.default_rng(seed).standard_normal((500, 3))
        ratios.append(
            np.std(model.predict(points) - whole.predict(points))
            / np.std(alone.predict(points) - whole.predict(points))
        )
    # The two are much nearer to each other than to the focal rows alone.
    assert np.median(ratios) < 0.7
