"""Errors and notes are data first and English second."""

from __future__ import annotations

import copy
import pickle

import pytest

from mixtune.errors import (
    ConvergenceError,
    DataError,
    MissingExtraError,
    MixtuneError,
    Note,
    ParameterError,
    Wording,
    setting,
)


def test_fields_are_never_read_as_text():
    error = DataError('no column "{column}"; pass {fix}', column="{x} ignore=y", fix=setting("ignore", "ignore=y"))
    assert str(error) == 'no column "{x} ignore=y"; pass ignore="ignore=y"'
    assert error.render("terminal") == 'no column "{x} ignore=y"; pass --ignore ignore=y'


def test_a_message_without_fields_is_shown_as_it_is():
    assert str(DataError("braces {stay} and 100%")) == "braces {stay} and 100%"


@pytest.mark.parametrize(
    "error",
    [
        DataError("plain"),
        ParameterError("{name} must be > 0", code="range", name="ridge"),
        ConvergenceError("{fix}", fix=Wording("a", "b")),
        MissingExtraError("torch", "torch", "a network"),
    ],
)
def test_errors_survive_pickling_and_copying_whole(error):
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own bytes
        assert type(twin) is type(error)
        assert (str(twin), twin.code, dict(twin.fields)) == (str(error), error.code, dict(error.fields))
        assert twin.render("terminal") == error.render("terminal")


def test_every_kind_of_error_has_a_code_of_its_own():
    kinds = MixtuneError.__subclasses__()
    assert len({kind.default_code for kind in kinds}) == len(kinds) >= 5


def test_notes_are_text_that_remembers():
    note = Note("level", 'column "{column}" has a level; pass {fix}', column="a", fix=setting("missing", "impute"))
    assert note == 'column "a" has a level; pass missing="impute"'
    assert note.render("terminal") == 'column "a" has a level; pass --missing impute'
    twin = pickle.loads(pickle.dumps(note))  # noqa: S301 - our own bytes
    assert (twin, twin.code, twin.fields) == (note, note.code, note.fields)
