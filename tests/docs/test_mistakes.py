"""The page of mistakes is what its script writes: every answer names what it is about, and what to do."""

from __future__ import annotations

import re

import pytest

from docs import mistakes

MISTAKES = list(mistakes.mistakes())
#: What is done, or is to be done.
REMEDY = re.compile(
    "; |=|pass |count|left out|leave it out|add it|did you mean|known:|read as|are read|imputed|use |give |must be"
    "|domain is"
)


def test_there_are_a_hundred():
    assert len(MISTAKES) >= 100
    assert len({(each.where, each.what) for each in MISTAKES}) == len(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES, ids=[f"{each.where}: {each.what}" for each in MISTAKES])
def test_answers_name_the_place_and_the_remedy(mistake):
    answer = mistake.answer()
    assert all(name in answer for name in mistake.names), answer
    assert REMEDY.search(answer), answer


def test_the_page_is_what_the_script_writes():
    page = mistakes.PAGE.read_text(encoding="utf-8")
    assert mistakes.rendered(page) == page
