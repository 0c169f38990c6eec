"""The page on constants is what its script writes, with every constant of the choice."""

from dataclasses import fields

from benchmarks.ablation import OF_COST, OF_OTHER_FITS

from docs import constants
from mixtune.choice import SETTINGS


def test_the_page_is_what_the_script_writes():
    page = constants.PAGE.read_text()
    assert constants.rendered(page) == page


def test_every_constant_has_its_line():
    page = constants.PAGE.read_text()
    for field in fields(SETTINGS):
        left_out = field.name in (*OF_COST, *OF_OTHER_FITS) or isinstance(getattr(SETTINGS, field.name), dict)
        assert (f"| `{field.name}` |" in page) != left_out, field.name
