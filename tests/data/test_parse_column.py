"""One column at a time: numbers, texts, missing values, and what is refused with which advice."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

from mixtune.data._parse_column import Fault, check_texts, inexact_integer, is_missing, parse_column


def read(values, kind=None, *, markers=False, category=False):
    return parse_column(pa.chunked_array([pa.array(values, kind)]), markers=markers, category=category)


def texts(values):
    return pa.array(values, pa.large_string())


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, 3], pa.int8()),
        ([1, 2, 3], pa.uint64()),
        ([1.0, 2.0, 3.0], pa.float32()),
        ([decimal.Decimal("1.00"), decimal.Decimal("2.00"), decimal.Decimal("3.00")], None),
        ([1, 2, 3], pa.float64()),
    ],
)
def test_numbers_of_every_kind(values, kind):
    cells = read(values, kind)
    assert cells.dtype == np.float64
    np.testing.assert_array_equal(cells, [1, 2, 3])


def test_truth_values_are_numbers():
    np.testing.assert_array_equal(read([True, None, False]), [1, np.nan, 0])


def test_null_and_nan_are_both_missing():
    cells = read([1.0, None, float("nan")])
    assert is_missing(cells, 3).tolist() == [False, True, True]


@pytest.mark.parametrize("values", [[None, None], ["", "  "], [float("nan"), None]])
def test_a_column_without_values_is_neither_numbers_nor_text(values):
    assert read(values) is None
    assert is_missing(None, 2).all()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()])
def test_texts_of_every_kind_are_stripped(kind):
    cells = read(["a ", "\tb", " "], kind)
    assert cells.to_pylist() == ["a", "b", None]
    assert is_missing(cells, 3).tolist() == [False, False, True]


@pytest.mark.parametrize("values", [["x", "y", "x"], [3, 1, 3]])
def test_dictionary_columns_hold_categories(values):
    cells = parse_column(pa.chunked_array([pa.array(values).dictionary_encode()]), markers=False)
    assert cells.to_pylist() == [str(value) for value in values]


def test_chunks_are_joined():
    cells = parse_column(pa.chunked_array([["a"], ["b", None]]), markers=False)
    assert cells.to_pylist() == ["a", "b", None]


def test_markers_are_levels_unless_asked_for():
    values = ["red", "NA", "?", "none"]
    assert read(values).to_pylist() == values
    assert read(values, markers=True).to_pylist() == ["red", None, None, "none"]


@pytest.mark.parametrize("marker", ["?", "-", "NA", " n/a ", "unknown", "Missing", "*"])
def test_numbers_with_markers(marker):
    np.testing.assert_array_equal(read(["1", marker, "2.5"], markers=True), [1, np.nan, 2.5])
    assert not isinstance(read(["1", marker, "2.5"]), np.ndarray)


def test_truth_values_with_markers():
    np.testing.assert_array_equal(read(["true", "?", "False"], markers=True), [1, np.nan, 0])


def test_numbers_as_text_without_markers_stay_text():
    assert read(["1", "2", ""], markers=True).to_pylist() == ["1", "2", None]


def test_categories_of_whole_numbers():
    assert read([1, 2, None], category=True).to_pylist() == ["1", "2", None]
    assert read([1.0, float("nan")], category=True).to_pylist() == ["1", None]
    assert "fractions" in read([1.5], category=True).finding


@pytest.mark.parametrize(
    ("values", "kind", "finding"),
    [
        ([2**53 + 1], None, "beyond 2^53 (such as 9007199254740993)"),
        ([-(2**60), 1], None, "beyond 2^53 (such as -1152921504606846976)"),
        ([2**64 - 1], pa.uint64(), "beyond 2^53"),
        ([decimal.Decimal(10**30)], None, "beyond 2^53"),
        ([1.0, float("inf")], None, "1 infinite value in 2 rows (the first in data row 2)"),
        ([datetime.date(2020, 1, 1)], None, "dates or times"),
        ([datetime.time(12)], None, "dates or times"),
        ([datetime.timedelta(1)], None, "dates or times"),
        ([[1, 2]], None, "neither numbers nor text"),
        ([b"\xff"], None, "not text in UTF-8"),
    ],
)
def test_refused_columns(values, kind, finding):
    fault = read(values, kind)
    assert isinstance(fault, Fault)
    assert finding in fault.finding
    assert fault.remedy


def test_long_and_infinite_numbers_behind_markers():
    assert "beyond 2^53" in read(["9007199254740993", "?"], markers=True).finding
    assert "infinite" in read(["inf", "?"], markers=True).finding


def test_the_largest_exact_integer_is_fine():
    assert read([2**53, -(2**53)]).tolist() == [2.0**53, -(2.0**53)]
    assert inexact_integer(texts([str(2**53), "1e300", "x", None])) is None


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        (["1,5", "2,5", "3"], 'decimal=","'),
        (["€ 3", "€ 4"], "without currency"),
        (["3 %", "4%"], "without currency"),
        (["1,234.50", "2,345.00"], "thousands"),
        (["1 234", "2 345"], "thousands"),
        (["1", "2", "03"], 'categories="x"'),
        (["1", "2", "?"], "FILL"),
        (["1", "2", "unknown"], "FILL"),
        (["01/02/2020", "3/4/2021"], "days since"),
        (["2020-01-02T10:00", "2020-01-03T11:00"], "days since"),
        (["1.2.2020", "2.2.2020"], "days since"),
    ],
)
def test_numbers_and_dates_written_as_text(values, advice):
    assert advice in str(check_texts(texts(values), "x", "FILL").remedy)


@pytest.mark.parametrize(
    "values", [["a", "b", "1"], ["10-20", "20-30"], ["3 rooms", "4 rooms"], ["1.2.3", "1.2.4"], [None]]
)
def test_texts_that_are_levels(values):
    assert check_texts(texts(values), "x", "FILL") is None


def test_majority_counts_rows():
    assert check_texts(texts(["a"] * 5 + ["1", "2", "3"]), "x", "FILL") is None
    fault = check_texts(texts(["7"] * 5 + ["a", "b", "c"]), "x", "FILL")
    assert '"a" in data row 6' in fault.finding
