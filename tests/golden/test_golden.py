"""What users see today stays as it is: results of the public API, runs of the command line, and
files of models.

``write.py`` stored the results; it says how to store them anew. A failure names the case, each
field that differs, and its largest difference.
"""

from __future__ import annotations

import functools

import pytest

from golden import cases, commands, models, recorded, write


@functools.cache
def stored(kind):
    return recorded.read(write.FOLDER, kind)


def skip_without(missing):
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")


def assert_as_stored(kind, name, found):
    assert name in stored(kind), f"{name} is not stored; run python -m golden.write"
    lines = recorded.differences(found, stored(kind)[name], write.tolerance_of(kind, name))
    assert not lines, "\n".join([f"{kind}, {name}: {len(lines)} fields differ", *lines[:20]])


@pytest.mark.parametrize("name", cases.CASES)
def test_case(name):
    case = cases.CASES[name]
    skip_without(case.missing)
    assert_as_stored(write.CASES, name, case.fields())


@pytest.mark.parametrize(("session", "command"), commands.names(), ids=lambda part: part.replace(" ", "-"))
def test_command(session, command):
    skip_without(commands.SESSIONS[session].missing)
    name = write.command_name(session, command)
    assert_as_stored(write.COMMANDS, name, commands.results(session)[command])


@pytest.mark.parametrize(("session", "command"), commands.IN_THEIR_OWN_PROCESS)
def test_a_process_of_its_own_shows_the_same(session, command):
    here, there = commands.compared_with_a_process(session, command)
    assert recorded.differences(there, here) == []


@pytest.mark.parametrize("name", models.MODELS)
def test_saved_model(name):
    skip_without(models.MODELS[name].missing)
    assert_as_stored(write.SAVED, name, models.fields(name))


@pytest.mark.parametrize("name", models.STUDIES)
def test_saved_study(name):
    skip_without(cases.lacking(models.STUDY_NEEDS))
    assert_as_stored(write.SAVED, name, models.fields(name))


@pytest.mark.parametrize("kind", [write.CASES, write.COMMANDS, write.SAVED])
def test_every_stored_result_has_a_case(kind):
    assert set(stored(kind)) == write.names_of(kind)


def test_differences_are_seen():
    """The comparison itself: a tool that finds nothing must not pass for agreement."""
    one = recorded.flatten({"a": [1.0, 2.0], "b": "error 0.5", "c": '"x": 1.23456789012345', "d": 1.0})
    assert recorded.differences(one, one) == []
    near = recorded.flatten({"a": [1.0, 2.0 + 1e-11], "b": "error 0.5", "c": '"x": 1.23456789012346', "d": 1.0})
    assert recorded.differences(near, one) == []
    far = recorded.flatten({"a": [1.0, 2.001], "b": "error 0.6", "c": '"x": 1.23456799', "e": float("nan")})
    lines = recorded.differences(far, one)
    assert [line.split(":")[0] for line in lines] == ["d", "e", "a", "b", "c"]
    assert "1.00e-03" in lines[2]
