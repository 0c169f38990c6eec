"""One column at a time: numbers, texts, missing values, and what is refused with which advice."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

from mixtune.data._parse_column import (
    Fault,
    Written,
    find_written,
    inexact_integer,
    is_ambiguous,
    is_missing,
    odd_texts,
    parse_column,
)


def read(values, kind=None, *, markers=False, category=False, written=None):
    column = pa.chunked_array([pa.array(values, kind)])
    return parse_column(column, markers=markers, category=category, written=written)


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


def test_a_column_of_infinite_numbers_has_no_values_where_they_count_as_missing():
    assert read([float("inf"), None], markers=True) is None
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
    values = ["1", marker, "2.5"]
    np.testing.assert_array_equal(read(values, markers=True, written=Written(decimal=".")), [1, np.nan, 2.5])
    column = pa.chunked_array([values])
    assert odd_texts(column, read(values, markers=True, written=Written(decimal="."))) == []


def test_odd_texts_among_numbers_are_told():
    values = ["1", "few", "2.5", "few", "NA"]
    assert (
        odd_texts(pa.chunked_array([values]), read(values, markers=True, written=Written(decimal="."))) == ["few"] * 2
    )


def test_truth_values_with_markers():
    np.testing.assert_array_equal(read(["true", "?", "False"], markers=True), [1, np.nan, 0])


def test_numbers_as_text_stay_text_unless_told_otherwise():
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
    assert "beyond 2^53" in read(["9007199254740993", "?"], markers=True, written=Written(decimal=".")).finding
    np.testing.assert_array_equal(read([float("inf"), 1.0], markers=True), [np.nan, 1])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime.date(2020, 1, 2), np.datetime64("2020-01-02", "s")),
        (datetime.datetime(2020, 1, 2, 3, 4, 5, 600), np.datetime64("2020-01-02T03:04:05", "s")),
        (datetime.time(12, 30), 12.5),
        (datetime.timedelta(hours=36), 1.5),
    ],
)
def test_dates_and_times(value, expected):
    cells = read([value, None])
    assert cells[0] == expected
    assert is_missing(cells, 2).tolist() == [False, True]


def test_times_with_a_zone_are_local():
    zone = datetime.timezone(datetime.timedelta(hours=2))
    column = pa.array([datetime.datetime(2020, 1, 2, 0, 30, tzinfo=zone)], pa.timestamp("ns", tz="+02:00"))
    assert parse_column(column, markers=False)[0] == np.datetime64("2020-01-02T00:30:00")


def test_the_largest_exact_integer_is_fine():
    assert read([2**53, -(2**53)]).tolist() == [2.0**53, -(2.0**53)]
    assert inexact_integer(texts([str(2**53), "1e300", "x", None])) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1,5", "2,5", "3"], [1.5, 2.5, 3]),
        (["€ 3", "4 EUR", "-$5"], [3, 4, -5]),
        (["3 %", "4%"], [3, 4]),
        (["1,234.50", "2,345.00"], [1234.5, 2345]),
        (["1.234,50", "2.345,00"], [1234.5, 2345]),
        (["1.234.567", "12"], [1234567, 12]),
        (["1 234", "2\u00a0345", "1'000'000"], [1234, 2345, 1e6]),
        (["1,234", "5,678"], [1234, 5678]),
        (["1,234", "5,67"], [1.234, 5.67]),
        (["1", "2", "03"], [1, 2, 3]),
        ([".5", "-.25", "+1e3", "7."], [0.5, -0.25, 1000, 7]),
        (["1", "2", "many"], [1, 2, np.nan]),
        # Minus signs of mathematicians, accountants and some programs; bounds; times, as hours.
        (["−1.5", "2", "(3.5)", "($4.00)", "$(5)", "6-"], [-1.5, 2, -3.5, -4, -5, -6]),
        (["<0.5", "> 100", "7", "10+", "≤2"], [0.5, 100, 7, 10, 2]),
        (["R$ 1.234,50", "CAD 2,00"], [1234.5, 2]),
        (["1:30", "0:00:36", "26:15", "late"], [1.5, 0.01, 26.25, np.nan]),
        # A decimal comma among decimal points is no thousands sign.
        (["1.5", "2.5", "3,5"], [1.5, 2.5, np.nan]),
    ],
)
def test_numbers_written_as_text(values, expected):
    written = find_written(texts(values))
    assert written.dates is None
    np.testing.assert_array_equal(written.read(texts(values)), expected)


def test_the_file_decides_what_the_column_leaves_open():
    assert find_written(texts(["1.234", "5.678"])).read(texts(["1.234"])).tolist() == [1.234]
    assert find_written(texts(["1.234", "5.678"]), decimal=",").read(texts(["1.234"])).tolist() == [1234]


@pytest.mark.parametrize(
    ("values", "words", "first"),
    [
        (["01/02/2020", "3/14/2021"], "month/day/year", "2020-01-02"),
        (["01/02/2020", "14/3/2021"], "day/month/year", "2020-02-01"),
        (["2020-01-02T10:00", "2020-01-03T11:00"], "year-month-day hour:minute", "2020-01-02T10:00"),
        (
            ["2020-01-02 10:00:05.25+02:00", "2020-01-03T11:00:00Z"],
            "year-month-day hour:minute:second",
            "2020-01-02T10:00:05",
        ),
        (["1.2.2020", "2.2.2020"], "day.month.year", "2020-02-01"),
        (["3-Jan-99", "4-Feb-00"], "day-month-year", "1999-01-03"),
        (["Sept. 5, 2020", "March 7, 2021", "?"], "month day, year", "2020-09-05"),
        (["Jan 2020", "Feb 2020"], "month year", "2020-01-01"),
        (["1/2/20 2:05 PM", "1/3/20 2:05 AM"], "month/day/year hour:minute AM/PM", "2020-01-02T14:05"),
        (["Fri, 05 Feb 2021", "Monday, 8 March 2021"], "day month year", "2021-02-05"),
    ],
)
def test_dates_written_as_text(values, words, first):
    written = find_written(texts(values))
    assert written.words == words
    assert written.read(texts(values))[0] == np.datetime64(first, "s")


def test_days_that_the_calendar_does_not_know_are_missing():
    read = Written(dates="%d/%m/%Y").read(texts(["30/02/2020", "31/01/2020", "1/1/20"]))
    assert np.isnat(read).tolist() == [True, False, True]


def test_dates_in_several_formats():
    values = texts(["31/01/2020", "1/2/2020", "2020-03-04", "5 Jun 2020", "7/8/2020 10:30", "9/10/20", None])
    written = find_written(values)
    assert written.dates == "%d/%m/%Y"
    days = ["2020-01-31", "2020-02-01", "2020-03-04", "2020-06-05", "2020-08-07T10:30"]
    read = written.read(values)
    assert read[:5].tolist() == [np.datetime64(day, "s").item() for day in days]
    assert np.isnat(read[5:]).all()  # two digits of a year might be a day
    # No format has most rows.
    assert find_written(texts(["2020-03-04", "5 Jun 2020", "Mar 4, 2020"])).dates == "%Y-%m-%d"


def test_days_and_months_that_could_change_places():
    assert is_ambiguous(texts(["1/2/2020", "3/4/2020"]), Written(dates="%m/%d/%Y"))
    assert not is_ambiguous(texts(["1/2/2020", "3/14/2020"]), Written(dates="%m/%d/%Y"))
    assert not is_ambiguous(texts(["Jan 2020"]), Written(dates="%b %Y"))


@pytest.mark.parametrize(
    "values",
    [["a", "b", "1"], ["10-20", "20-30"], ["1.2.3", "1.2.4"], [None], ["<=50K", ">50K"]],
)
def test_texts_that_are_levels(values):
    assert find_written(texts(values)) is None


def test_majority_counts_rows():
    assert find_written(texts(["a"] * 5 + ["1", "2", "3"])) is None
    assert find_written(texts(["7"] * 5 + ["a", "b", "c"])) == Written(decimal=".")


def test_numbers_with_a_unit():
    found = find_written(texts([*["3,750 g", "990 g", "12.5g"] * 5, "1200"]))
    assert found == Written(decimal=".", unit="g")
    assert found.read(texts(["4,000 g", "7", None])).tolist()[:2] == [4000, 7]
    # Another unit is another scale.
    assert np.isnan(found.read(texts(["3.7 kg", "5 mg"]))).all()
    assert find_written(texts(["90 km/h", "100 km/h"])).unit == "km/h"
    marks = find_written(texts(["7.5/10", "9/10"]))
    assert marks.unit == "/10"
    assert marks.read(texts(["8/10", "8/5"]))[0] == 8.0
    for names in (["7a", "7b", "8a"], ["3 rooms", "1 room", "2 rooms"], ["1", "2a"], ["1st", "2nd", "3rd"]):
        assert find_written(texts(names)) is None
    assert find_written(texts(["1e5", "2e5"])) == Written(decimal=".")
    # Months of years are dates.
    assert find_written(texts(["03/2005", "12/2006"])).dates == "%m/%Y"
