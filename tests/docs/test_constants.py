"""The page on constants is what its script writes, with every constant of the choice."""

from dataclasses import fields

from benchmarks.ablation import OF_COST

from docs import constants
from mixtune.selection import SETTINGS


def test_the_page_is_what_the_script_writes():
    page = constants.PAGE.read_text()
    assert constants.rendered(page) == page


def test_every_constant_has_its_line():
    page = constants.PAGE.read_text()
    for field in fields(SETTINGS):
        told = f"| `{field.name}` |" in page
        assert told == (field.name not in OF_COST and not isinstance(getattr(SETTINGS, field.name), dict)), field.name
