"""One column at a time: numbers, texts, dates, missing values, and what is refused with which advice."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

from mixtune.data import DateColumn, LevelColumn, NumberColumn, read_new, read_training
from mixtune.errors import DataError


def read(values, kind=None, **options):
    """Training tables of one domain, whose first column these are."""
    return read_column(pa.array(values, kind), **options)


def read_column(column, **options):
    n = len(column)
    table = {"x": column, "other": 1.5 * np.arange(n), "y": 5.0 + np.arange(n), "site": ["s"] * n}
    return read_training(pa.table(table), target="y", domain="site", focal="s", keep="x", **options)


def column_of(found):
    """What the column became, or None where it is left out."""
    first = found.encoder.columns[0]
    return first if first.name == "x" else None


def features(found):
    """The columns of features by name."""
    return dict(zip(found.encoder.names, found.domains.focal_domain.X.T))


def numbers(found):
    """The numbers that the column holds, NaN where they are missing."""
    assert isinstance(column_of(found), NumberColumn)
    by_name = features(found)
    return np.where(by_name.get("x (missing)", 0) == 1, np.nan, by_name["x"])


def moments(found):
    """The dates and times of day that the column holds."""
    assert isinstance(column_of(found), DateColumn)
    by_name = features(found)
    origin = column_of(found).origin
    seconds = np.round(86_400 * by_name[f"x (days since {origin})"]).astype("timedelta64[s]")
    dates = np.datetime64(origin, "s") + seconds
    return np.where(by_name.get("x (missing)", 0) == 1, np.datetime64("NaT"), dates)


def said(values, kind=None, **options):
    """The notes on the column, or the error that refuses it."""
    try:
        return "\n".join(read(values, kind, **options).notes)
    except DataError as error:
        return str(error)


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
    np.testing.assert_array_equal(numbers(read(values, kind)), [1, 2, 3])


def test_truth_values_are_numbers():
    np.testing.assert_array_equal(numbers(read([True, None, False])), [1, np.nan, 0])


def test_null_and_nan_are_both_missing():
    np.testing.assert_array_equal(numbers(read([1.0, None, float("nan"), 3.0])), [1, np.nan, np.nan, 3])


@pytest.mark.parametrize("values", [[None, None], ["", "  "], [float("nan"), None], [float("inf"), None]])
def test_a_column_without_values_is_left_out(values):
    assert 'column "x" has no values and is left out' in read(values).notes


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()])
def test_texts_of_every_kind_are_stripped(kind):
    found = read(["a ", "\tb", " "], kind)
    assert column_of(found).levels == ("a", "b", "(missing)")
    np.testing.assert_array_equal(found.domains.focal_domain.X[:, :3], np.eye(3))


@pytest.mark.parametrize("values", [["x", "y", "x"], [3, 1, 3]])
def test_dictionary_columns_hold_categories(values):
    found = read_column(pa.array(values).dictionary_encode())
    assert column_of(found).levels == tuple(sorted({str(value) for value in values}))


def test_chunks_are_joined():
    found = read_column(pa.chunked_array([["a"], ["b", None]]))
    assert column_of(found).levels == ("a", "b", "(missing)")


def test_markers_are_levels_unless_missing_values_are_imputed():
    values = ["red", "NA", "?", "none"]
    assert column_of(read(values, missing="refuse")).levels == ("?", "NA", "none", "red")
    assert column_of(read(values)).levels == ("none", "red", "(missing)")


@pytest.mark.parametrize("marker", ["?", "-", "NA", " n/a ", "unknown", "Missing", "*"])
def test_numbers_with_markers(marker):
    found = read(["1", marker, "2.5"])
    np.testing.assert_array_equal(numbers(found), [1, np.nan, 2.5])
    assert found.notes == ('missing values were imputed: "x" (1)',)


def test_odd_texts_among_numbers_are_told():
    found = read(["1", "few", "2.5", "7", "8", "few", "NA"])
    np.testing.assert_array_equal(numbers(found), [1, np.nan, 2.5, 7, 8, np.nan, np.nan])
    assert any("has 2 texts among its values" in note and '"few"' in note for note in found.notes)


def test_truth_values_with_markers():
    np.testing.assert_array_equal(numbers(read(["true", "?", "False"])), [1, np.nan, 0])


def test_categories_of_whole_numbers():
    assert column_of(read(["1", "2", ""], categories="x")).levels == ("1", "2", "(missing)")
    assert column_of(read([1, 2, None], categories="x")).levels == ("1", "2", "(missing)")
    assert column_of(read([1.0, float("nan")], categories="x")).levels == ("1", "(missing)")
    assert "fractions" in said([1.5, 2.0], categories="x")


@pytest.mark.parametrize(
    ("values", "kind", "finding"),
    [
        ([2**53 + 1], None, "beyond 2^53 (such as 9007199254740993)"),
        ([-(2**60), 1], None, "beyond 2^53 (such as -1152921504606846976)"),
        ([2**64 - 1], pa.uint64(), "beyond 2^53"),
        ([decimal.Decimal(10**30)], None, "beyond 2^53"),
        (["9007199254740993", "?", "8"], None, "beyond 2^53"),
        ([1.0, float("inf")], None, "1 infinite value in 2 rows (the first in data row 2)"),
        ([[1, 2]], None, "neither numbers nor text"),
        ([b"\xff"], None, "not text in UTF-8"),
        ([1.0, None], None, "1 missing value in 2 rows (the first in data row 2)"),
    ],
)
def test_refused_columns(values, kind, finding):
    assert finding in said(values, kind, missing="refuse")


def test_infinite_numbers_are_imputed_as_missing_ones():
    np.testing.assert_array_equal(numbers(read([float("inf"), 1.0, 2.0])), [np.nan, 1, 2])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([datetime.date(2020, 1, 2), datetime.date(2021, 3, 4)], "2020-01-02"),
        ([datetime.datetime(2020, 1, 2, 3, 4, 5, 600), datetime.datetime(2021, 1, 1)], "2020-01-02T03:04:05"),
    ],
)
def test_dates(values, expected):
    found = moments(read([*values, None]))
    assert found[0] == np.datetime64(expected, "s")
    assert np.isnat(found).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([datetime.time(12, 30), datetime.time(1)], [12.5, 1.0, np.nan]),
        ([datetime.timedelta(hours=36), datetime.timedelta(0)], [1.5, 0.0, np.nan]),
    ],
)
def test_times_are_hours_and_durations_days(values, expected):
    np.testing.assert_array_equal(numbers(read([*values, None])), expected)


def test_times_with_a_zone_are_read_in_utc():
    zone = datetime.timezone(datetime.timedelta(hours=2))
    days = [datetime.datetime(2020, 1, day, 0, 30, tzinfo=zone) for day in (2, 9)]
    assert moments(read(days, pa.timestamp("ns", tz="+02:00")))[0] == np.datetime64("2020-01-01T22:30:00")


def test_the_largest_exact_integer_is_fine():
    assert numbers(read([2**53, -(2**53)])).tolist() == [2.0**53, -(2.0**53)]
    assert numbers(read([str(2**53), "1e300"])).tolist() == [2.0**53, 1e300]


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
    np.testing.assert_array_equal(numbers(read(values)), expected)


def test_the_file_decides_what_the_column_leaves_open(tmp_path):
    (tmp_path / "data.csv").write_text("x;y;site\n1.234;5,5;s\n5.678;6,5;s\n")
    options = {"target": "y", "domain": "site", "focal": "s", "separator": ";", "decimal": ","}
    found = read_training(tmp_path / "data.csv", **options)
    assert found.domains.focal_domain.X[:, 0].tolist() == [1234, 5678]
    assert numbers(read(["1.234", "5.678"])).tolist() == [1.234, 5.678]


@pytest.mark.parametrize(
    ("values", "words", "first"),
    [
        (["01/02/2020", "3/14/2021"], "month/day/year", "2020-01-02"),
        (["01/02/2020", "14/3/2021"], "day/month/year", "2020-02-01"),
        (["2020-01-02T10:00", "2020-01-03T11:00"], "year-month-day hour:minute", "2020-01-02T10:00"),
        (
            ["2020-01-02 10:00:05.25+02:00", "2020-01-03T11:00:00Z"],
            "year-month-day hour:minute:second",
            "2020-01-02T08:00:05",
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
    found = read(values)
    assert found.notes[0].startswith(f'column "x" holds dates (read as {words});')
    assert moments(found)[0] == np.datetime64(first, "s")


def test_days_that_the_calendar_does_not_know_are_missing():
    found = moments(read(["30/02/2020", "31/01/2020", "1/1/20", "15/01/2020", "16/01/2020", "17/01/2020"]))
    assert np.isnat(found).tolist() == [True, False, True, False, False, False]


def test_dates_in_several_formats():
    values = ["31/01/2020", "1/2/2020", "2020-03-04", "5 Jun 2020", "7/8/2020 10:30", "9/10/20", None]
    found = read(values)
    assert column_of(found).dates == "%d/%m/%Y"
    days = ["2020-01-31", "2020-02-01", "2020-03-04", "2020-06-05", "2020-08-07T10:30"]
    assert moments(found)[:5].tolist() == [np.datetime64(day, "s").item() for day in days]
    assert np.isnat(moments(found)[5:]).all()  # two digits of a year might be a day
    # No format has most rows.
    assert column_of(read(["2020-03-04", "5 Jun 2020", "Mar 4, 2020"])).dates == "%Y-%m-%d"


@pytest.mark.parametrize(
    ("values", "ambiguous"),
    [
        (["1/2/2020", "3/4/2020"], True),
        (["1/2/2020", "3/14/2020"], False),
        (["Jan 2020", "Feb 2020"], False),
        (["2020-01-02", "2020-03-04"], False),
    ],
)
def test_days_and_months_that_could_change_places(values, ambiguous):
    assert ("the order of day and month" in said(values)) == ambiguous


@pytest.mark.parametrize("values", [["a", "b", "1"], ["10-20", "20-30"], ["1.2.3", "1.2.4"], ["<=50K", ">50K"]])
def test_texts_that_are_levels(values):
    assert isinstance(column_of(read(values)), LevelColumn)


def test_majority_counts_rows():
    assert isinstance(column_of(read(["a"] * 5 + ["1", "2", "3"])), LevelColumn)
    most = column_of(read(["7"] * 5 + ["a", "b", "c"]))
    assert (most.decimal, most.unit) == (".", None)


def test_numbers_with_a_unit(tmp_path):
    found = read([*["3,750 g", "990 g", "12.5g"] * 5, "1200"])
    assert (column_of(found).decimal, column_of(found).unit) == (".", "g")
    assert numbers(found)[[0, 1, 2, -1]].tolist() == [3750, 990, 12.5, 1200]
    # Another unit is another scale.
    (tmp_path / "new.csv").write_text('x,other\n"4,000 g",1\n7,1\n3.7 kg,1\n5 mg,1\n')
    new = dict(zip(found.encoder.names, read_new(tmp_path / "new.csv", found.encoder).X.T))
    assert new["x"][:2].tolist() == [4000, 7]
    assert (new["x"][2:] == column_of(found).median).all()
    assert column_of(read(["90 km/h", "100 km/h"])).unit == "km/h"
    marks = read(["7.5/10", "9/10"])
    assert column_of(marks).unit == "/10"
    assert numbers(marks).tolist() == [7.5, 9]
    for names in (["7a", "7b", "8a"], ["3 rooms", "1 room", "2 rooms"], ["1", "2a"], ["1st", "2nd", "3rd"]):
        assert isinstance(column_of(read(names)), LevelColumn)
    assert numbers(read(["1e5", "2e5"])).tolist() == [1e5, 2e5]
    # Months of years are dates.
    assert column_of(read(["03/2005", "12/2006"])).dates == "%m/%Y"
