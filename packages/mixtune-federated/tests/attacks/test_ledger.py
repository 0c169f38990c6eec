"""The ledger: people, not rows; one answer at a time; nothing taken back."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest

from mixtune.data import NumberColumn
from mixtune.errors import DataError
from mixtune.moments import Rows

pytest.importorskip("cryptography")

from mixtune_federated import Coordinator, Ledger, Policy, Privacy, RefusedError, Site

PATIENTS = [f"patient {place}" for place in range(60)]


def with_columns(group, names):
    """The same members in a study of other columns, or of the same in another order."""
    encoder = replace(group.study.encoder, columns=tuple(NumberColumn(name) for name in names))
    scales = {"shift": np.zeros(len(names)), "scale": np.ones(len(names))}
    return replace(group.study, encoder=encoder, map_hash="", **scales)


def last_request(group, study, ledgers, policy, **options):
    """The sites of a study, and the request of its last exchange before anybody answered it."""
    sites = {}
    for name in study.sources:
        ledger = ledgers.setdefault(name, Ledger())
        sites[name] = Site(study, group.data[name], group.keys[name], policy, ledger=ledger, **options)
    coordinator = Coordinator(study, group.data["m0"], group.keys["m0"])
    first = coordinator.ask()
    return sites, coordinator.ask([site.answer(first) for site in sites.values()])


STUDIES = [["x0", "x1", "x2"], ["x2", "x1", "x0"], ["x0", "x1"], ["x1"]]


@pytest.mark.parametrize("identified", [True, False])
def test_the_same_people_under_other_columns_have_one_budget(consortium, identified):
    pytest.importorskip("opendp")
    group = consortium(level=3, members=5, columns=3, privacy=Privacy(epsilon=4.0))
    policy, ledgers, released = Policy(one_release=False, largest_epsilon=8.0), {}, 0
    for name in group.data:
        group.data[name] = {**group.data[name], "who": PATIENTS}
    options = {"identifier": "who"} if identified else {}
    for columns in STUDIES:
        sites, request = last_request(group, with_columns(group, columns), ledgers, policy, **options)
        if released == 2:
            with pytest.raises(RefusedError, match="0 is left of the budget"):
                sites["m1"].answer(request)
        else:
            released += bool(sites["m1"].answer(request))
    assert ledgers["m1"].spent(sites["m1"].people) == 8.0


def test_only_people_without_an_identifier_share_a_budget(consortium):
    """With identifiers, other people have a budget of their own; of two releases, the most that one person spent."""
    pytest.importorskip("opendp")
    group = consortium(level=3, members=5, columns=2, privacy=Privacy(epsilon=4.0))
    policy, book = Policy(one_release=False, largest_epsilon=8.0), {"m1": Ledger()}
    for first, spent in ((0, 4.0), (60, 4.0), (30, 8.0)):
        people = [f"patient {first + place}" for place in range(60)]
        for name in group.data:
            group.data[name] = {**group.data[name], "who": people}
        sites, request = last_request(group, group.study, dict(book), policy, identifier="who")
        assert sites["m1"].answer(request)
        assert book["m1"].spent(sites["m1"].people) == spent
    # One more would be too much for those who were in two.
    sites, request = last_request(group, group.study, dict(book), policy, identifier="who")
    with pytest.raises(RefusedError, match="0 is left"):
        sites["m1"].answer(request)


@pytest.mark.parametrize("change", ["columns", "one row less", "one value", "another study", "another key"])
def test_a_second_release_of_changed_tables_is_refused(consortium, change):
    """The difference of two sums would be about one person, or tell the columns apart."""
    group, ledger = consortium(level=1, members=4, columns=3), Ledger()
    assert group.site("m1", ledger=ledger).answer(group.coordinator().ask())
    study, data, key = group.study, dict(group.data["m1"]), group.keys["m1"]
    if change == "columns":
        study = with_columns(group, ["x1", "x0"])
    elif change == "one row less":
        data = {name: np.asarray(values)[1:] for name, values in data.items()}
    elif change == "one value":
        data["x0"] = np.r_[0.5, np.asarray(data["x0"])[1:]]
    elif change == "another study":
        study = replace(group.study, name="second")
    else:
        other = consortium(level=1, members=4, columns=3)
        study, key, group.keys = other.study, other.keys["m1"], other.keys
    request = Coordinator(study, group.data["m0"], group.keys["m0"]).ask()
    with pytest.raises(RefusedError, match="second release"):
        Site(study, data, key, ledger=ledger).answer(request)


def test_people_under_another_key_may_be_the_same(consortium):
    """Tokens under two keys cannot be compared, so that a new key gives nobody a new budget."""
    group, other, ledger = consortium(level=1, members=4), consortium(level=1, members=4), Ledger()
    for each, refused in ((group, False), (other, True)):
        site = Site(each.study, each.data["m1"], each.keys["m1"], ledger=ledger, identifier=PATIENTS)
        if refused:
            with pytest.raises(RefusedError, match="second release"):
                site.answer(each.coordinator().ask())
        else:
            assert site.answer(each.coordinator().ask())


def test_sums_of_level_3_count_people(consortium):
    pytest.importorskip("opendp")
    group, policy = consortium(level=3, members=5, privacy=Privacy(epsilon=500.0)), Policy(largest_epsilon=1000.0)
    people, messages, coordinator = np.repeat(np.arange(20), 3), [], group.coordinator()
    sites = [Site(group.study, group.data[n], group.keys[n], policy, identifier=people) for n in group.study.sources]
    for _ in range(2):
        request = coordinator.ask(messages)
        messages += [site.answer(request) for site in sites]
    assert coordinator.combine(messages).moments["all members"].count == pytest.approx(4 * 20, abs=4)


def test_where_the_policy_allows_further_releases_they_may_not_differ_by_few(consortium):
    group, policy = consortium(level=1, members=4, rows=60, columns=3), Policy(one_release=False)
    whole = {**group.data["m1"], "who": PATIENTS}
    for gone, refused in ((0, False), (1, True), (4, True), (5, False)):
        ledger = Ledger()
        assert Site(group.study, whole, group.keys["m1"], policy, ledger=ledger, identifier="who").answer(
            group.coordinator().ask()
        )
        fewer = {name: np.asarray(values)[gone:] for name, values in whole.items()}
        site = Site(group.study, fewer, group.keys["m1"], policy, ledger=ledger, identifier="who")
        if refused:
            with pytest.raises(RefusedError, match="second release"):
                site.answer(group.coordinator().ask())
        else:
            assert site.answer(group.coordinator().ask())
    study = with_columns(group, ["x1", "x0"])
    with pytest.raises(RefusedError, match="second release"):
        Site(study, whole, group.keys["m1"], policy, ledger=ledger, identifier="who").answer(
            Coordinator(study, group.data["m0"], group.keys["m0"]).ask()
        )


def test_sums_of_several_releases_that_leave_one_person_are_refused(consortium):
    """Any two of four releases differ by five people or more, and all of them together by one."""
    group, policy, ledger = consortium(level=1, members=4, rows=60, columns=3), Policy(one_release=False), Ledger()
    whole = {**group.data["m1"], "who": PATIENTS}
    gone = [set(), set(range(6)), set(range(5, 11)), set(range(11))]
    # Whole less the first six, less the other six, plus what is left without both, is the one in both.
    assert all(len(one ^ other) >= 5 for one in gone for other in gone if one is not other)
    for place, left_out in enumerate(gone):
        kept = [row for row in range(60) if row not in left_out]
        table = {name: np.asarray(values)[kept] for name, values in whole.items()}
        site = Site(group.study, table, group.keys["m1"], policy, ledger=ledger, identifier="who")
        if place == 2:
            # This makes the one in both a group of its own, whatever may follow; without it, the last tells nothing.
            with pytest.raises(RefusedError, match="second release"):
                site.answer(group.coordinator().ask())
        else:
            assert site.answer(group.coordinator().ask())


def test_releases_of_two_groups_and_of_both_less_one_person_are_refused(consortium):
    """Neither pair of tables differs by few, and their sums do."""
    group, policy, ledger = consortium(level=1, members=4, rows=60, columns=3), Policy(one_release=False), Ledger()
    whole = {**group.data["m1"], "who": PATIENTS}
    for rows, refused in ((range(30), False), (range(30, 60), False), (range(1, 60), True)):
        table = {name: np.asarray(values)[list(rows)] for name, values in whole.items()}
        site = Site(group.study, table, group.keys["m1"], policy, ledger=ledger, identifier="who")
        if refused:
            with pytest.raises(RefusedError, match="second release"):
                site.answer(group.coordinator().ask())
        else:
            assert site.answer(group.coordinator().ask())


def test_under_another_key_no_further_release_passes(consortium):
    """Whoever joins the next study with a new key cannot tell who was in the last one."""
    group, other, ledger = consortium(level=1, members=4), consortium(level=1, members=4), Ledger()
    policy, who = Policy(one_release=False), {"identifier": "who"}
    whole = {**group.data["m1"], "who": PATIENTS}
    assert Site(group.study, whole, group.keys["m1"], policy, ledger=ledger, **who).answer(group.coordinator().ask())
    fewer = {name: np.asarray(values)[1:] for name, values in whole.items()}
    with pytest.raises(RefusedError, match="second release"):
        Site(other.study, fewer, other.keys["m1"], policy, ledger=ledger, **who).answer(other.coordinator().ask())


def test_the_same_request_is_not_answered_for_changed_rows(consortium):
    group, ledger = consortium(level=1, members=4), Ledger()
    request = group.coordinator().ask()
    assert group.site("m1", ledger=ledger).answer(request)
    group.data["m1"] = {name: np.asarray(values)[1:] for name, values in group.data["m1"].items()}
    with pytest.raises(RefusedError, match="second release"):
        group.site("m1", ledger=ledger).answer(request)


def test_other_people_may_be_in_another_release(consortium):
    group, ledger = consortium(level=1, members=4), Ledger()
    table = group.data["m1"]
    for first in (0, 60):
        who = [f"patient {first + place}" for place in range(60)]
        site = Site(group.study, {**table, "who": who}, group.keys["m1"], ledger=ledger, identifier="who")
        assert site.answer(group.coordinator().ask())
    text = json.dumps(ledger.entries)
    assert "patient" not in text
    # Spaces and numbers written otherwise are the same people.
    site = Site(
        group.study, {**table, "who": [f" {name} " for name in who]}, group.keys["m1"], ledger=ledger, identifier="who"
    )
    with pytest.raises(RefusedError, match="second release"):
        site.answer(group.coordinator().ask())


def test_identifiers_are_checked(consortium, tmp_path):
    group = consortium(level=1, members=3)
    table = group.data["m1"]
    for who, words in (([*PATIENTS[:-1], None], "fill the gaps"), ([*PATIENTS[:-1], " "], "fill the gaps")):
        with pytest.raises(DataError, match=words):
            Site(group.study, {**table, "who": who}, group.keys["m1"], identifier="who")
    with pytest.raises(DataError, match='no column "name"'):
        Site(group.study, table, group.keys["m1"], identifier="name")
    with pytest.raises(DataError, match="60 rows"):
        Site(group.study, table, group.keys["m1"], identifier=PATIENTS[:5])
    lines = [",".join(map(str, row)) for row in zip(*table.values(), [f"00{place}" for place in range(60)])]
    (tmp_path / "m1.csv").write_text("\n".join([",".join([*table, "who"]), *lines]))
    site = Site(group.study, tmp_path / "m1.csv", group.keys["m1"], identifier="who")
    given = Site(group.study, table, group.keys["m1"], identifier=[f"00{place}" for place in range(60)])
    assert [mark[:16] for mark in site.people.marks] == [mark[:16] for mark in given.people.marks]


def answer_at(barrier, path, study, table, key, content, found):
    site = Site(study, table, key, Policy(), ledger=Ledger(path))
    barrier.wait()
    try:
        found.append(bool(site.answer(content)))
    except RefusedError:
        found.append(False)


def test_of_two_answers_at_once_one_is_refused(consortium, tmp_path):
    """Each sees an empty ledger when it starts."""
    group = consortium(level=1, members=3)
    for kind in ("threads", "processes"):
        path, requests = tmp_path / f"{kind}.ledger", [group.coordinator().ask().content for _ in range(4)]
        if kind == "threads":
            barrier, found, make = threading.Barrier(4), [], threading.Thread
        else:
            context = get_context("fork" if kind == "processes" else "spawn")
            barrier, found, make = context.Barrier(4), context.Manager().list(), context.Process
        given = (barrier, path, group.study, group.data["m1"], group.keys["m1"])
        running = [make(target=answer_at, args=(*given, content, found)) for content in requests]
        for each in running:
            each.start()
        for each in running:
            each.join()
        assert sorted(found) == [False, False, False, True]
        assert len(path.read_text().splitlines()) == 1


@pytest.fixture
def book(consortium, tmp_path):
    """A ledger of three answers, its consortium, and a site to answer with it."""
    group, path = consortium(level=1, members=3), tmp_path / "m1.ledger"
    for _ in range(3):
        Site(group.study, group.data["m1"], group.keys["m1"], Policy(one_release=False), ledger=Ledger(path)).answer(
            group.coordinator().ask()
        )
    return group, path


@pytest.mark.parametrize(
    "attack", ["last line gone", "all lines gone", "file gone", "a line changed", "a line between", "order"]
)
def test_a_ledger_that_was_rolled_back_is_noticed(book, attack):
    group, path = book
    lines = path.read_bytes().splitlines(keepends=True)
    changed = {
        "last line gone": lines[:-1],
        "all lines gone": [],
        "a line changed": [lines[0], lines[1].replace(b'"epsilon": 0.0', b'"epsilon": -9'), lines[2]],
        "a line between": [lines[0], lines[2]],
        "order": [lines[1], lines[0], lines[2]],
    }
    if attack == "file gone":
        path.unlink()
    else:
        path.write_bytes(b"".join(changed[attack]))
    with pytest.raises(DataError, match="restore it"):
        Ledger(path)
    path.write_bytes(b"".join(lines))
    running = Ledger(path)
    path.write_bytes(b"".join(lines[:-1]))
    # Also while a program runs.
    with pytest.raises(DataError, match="restore it"):
        Site(group.study, group.data["m1"], group.keys["m1"], ledger=running).answer(group.coordinator().ask())


def test_an_interrupted_entry_is_kept(book):
    """A crash between the ledger and what guards it leaves one entry more, which counts."""
    _, path = book
    head = path.with_name(path.name + ".head")
    entry = {"lines": 2}
    entry["last"] = hashlib.sha256(path.read_bytes().splitlines()[1]).hexdigest()
    head.write_text(json.dumps(entry))
    assert len(Ledger(path).entries) == 3
    head.write_text(json.dumps({"lines": 0, "last": ""}))
    with pytest.raises(DataError, match="restore it"):
        Ledger(path)


def test_people_with_several_rows_count_once_at_level_3(consortium):
    """What a person adds to the sum does not grow with the person's rows."""
    pytest.importorskip("opendp")
    from mixtune_federated._privacy import private_vector, sensitivity

    group = consortium(level=3, members=4, columns=2)
    rng = np.random.default_rng(0)
    rows = Rows(5 * rng.standard_normal((90, 2)), 5 * rng.standard_normal(90))
    people = np.r_[np.zeros(60, dtype=int), np.arange(1, 31)]
    whole = private_vector(group.study, rows, people)
    rest = private_vector(group.study, rows.part(slice(60, 90)), np.arange(30))
    assert np.linalg.norm(whole - rest) <= sensitivity(2, 36)
    assert np.linalg.norm(private_vector(group.study, rows) - rest) > 10 * sensitivity(2, 36)


def test_a_ledger_that_stays_locked_is_named(consortium, tmp_path, monkeypatch):
    from filelock import FileLock

    monkeypatch.setattr("mixtune_federated._ledger.WAIT", 0.1)
    path = tmp_path / "m1.ledger"
    with FileLock(f"{path}.lock"), pytest.raises(DataError, match="cannot be locked"):
        Ledger(path)
    assert Ledger(path).entries == []
