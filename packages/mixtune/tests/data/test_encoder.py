"""The encoder on its own: matrices from tables, the way through JSON, laws, and what it refuses."""

import datetime
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extras import extra
from mixtune.data import DateColumn, LevelColumn, NumberColumn, TableEncoder, TargetColumn, read_training
from mixtune.errors import DataError

pd = extra("pandas")

AGE, SEX, TOWN = NumberColumn("age"), LevelColumn("sex", ("f", "m")), LevelColumn("town", ("a", "b", "c"))
STRICT = TableEncoder((AGE, SEX, TOWN), TargetColumn("wage"), domain="site", focal="north", unused=("id",))
FILLING = TableEncoder(
    (
        NumberColumn("age", 40.0, indicator=True),
        NumberColumn("size", 1.5),
        LevelColumn("sex", ("f", "m")),
        LevelColumn("town", ("a", "b", "(missing)")),
    ),
    TargetColumn("sold", ("no", "yes")),
    impute=True,
)
ROWS = {"town": ["a", "b", "c"], "age": [30, 40, 50], "sex": ["m", "f", "m"]}
EXPECTED = [[30, 1, 1, 0, 0], [40, 0, 0, 1, 0], [50, 1, 0, 0, 1]]


@pytest.mark.parametrize(
    "make", [dict, pd.DataFrame, pa.table, lambda rows: pd.DataFrame(rows).astype({"sex": "category"})]
)
def test_every_kind_of_table(make):
    encoded = STRICT.encode(make(ROWS))
    assert encoded.names == ("age", "sex=m", "town=a", "town=b", "town=c")
    np.testing.assert_array_equal(encoded.X, EXPECTED)
    assert encoded.X.dtype == np.float64
    assert encoded.notes == ()
    assert encoded.table.column_names == list(ROWS)


def test_missing_values_are_filled_in():
    table = {"age": [None, 30], "size": [1.0, 2.0], "sex": ["f", "m"], "town": ["b", None]}
    encoded = FILLING.encode(table)
    assert encoded.names == ("age", "age (missing)", "size", "sex=m", "town=a", "town=b", "town=(missing)")
    np.testing.assert_array_equal(encoded.X, [[40, 1, 1, 0, 0, 1, 0], [30, 0, 2, 1, 0, 0, 1]])
    assert encoded.notes == ()


def test_markers_count_as_missing_where_values_are_filled_in():
    table = {"age": ["?", "30"], "size": [1.0, 2.0], "sex": ["f", "m"], "town": ["b", "NA"]}
    np.testing.assert_array_equal(FILLING.encode(table).X, [[40, 1, 1, 0, 0, 1, 0], [30, 0, 2, 1, 0, 0, 1]])


def test_columns_without_any_value_are_filled_in():
    encoded = FILLING.encode({"age": [None], "size": [None], "sex": [None], "town": [None]})
    np.testing.assert_array_equal(encoded.X, [[40, 1, 1.5, 0.5, 0, 0, 1]])
    assert encoded.notes == (
        'column "size" has 1 missing value in 1 rows (the first in data row 1), none in training; '
        "filled with the median of the training rows, 1.5",
        'column "sex" has 1 missing value in 1 rows (the first in data row 1), none in training; '
        'counted as another category, between "f", "m"',
    )


def test_unseen_levels_are_no_known_level_with_one_note_each():
    encoded = STRICT.encode({"age": [1, 2, 3], "sex": ["x", "m", "f"], "town": ["z", "q", "a"]})
    np.testing.assert_array_equal(encoded.X, [[1, 0.5, 0, 0, 0], [2, 1, 0, 0, 0], [3, 0, 1, 0, 0]])
    assert len(encoded.notes) == 2
    assert '("x"); counted as another category, between "f", "m"' in encoded.notes[0]
    assert '2 values in 3 rows (the first in data row 1) not seen in training ("q", "z")' in encoded.notes[1]


def test_known_and_unknown_further_columns():
    extra = {"wage": [1, 2, 3], "id": [7, 8, 9], "site": ["north", "south", " north"]}
    encoded = STRICT.encode(ROWS | extra | {"shoe": [1, 2, 3]}, "new rows")
    np.testing.assert_array_equal(encoded.X, EXPECTED)
    assert encoded.notes[0] == 'new rows has columns that the model does not use, which are left out: "shoe"'
    assert "1 label in 3 rows (the first in data row 2)" in encoded.notes[1]
    assert len(encoded.notes) == 2


@pytest.mark.parametrize("site", [[7, 7, 7], [7.0, 7.0, 7.0], ["7", " 7.0", "7"], [7, None, 7]])
def test_other_spellings_of_the_focal_label_bring_no_note(site):
    assert replace(STRICT, focal="7").encode(ROWS | {"site": site}).notes == ()
    (note,) = STRICT.encode(ROWS | {"site": site}).notes
    assert note.code == "other-domains"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": [1, None, 3]}, r'"age" of the table has 1 missing value in 3 rows .*missing="impute"'),
        ({"age": ["old", "1", "young"]}, r'"age" of the table holds text \(the first is "old" in data row 1\)'),
        ({"age": ["1", "?", "3"]}, r'1 missing value in 3 rows \(the first in data row 2, "\?"\)'),
        ({"age": pd.to_datetime(["2020-01-01"] * 3)}, "holds dates, and held numbers in training"),
        ({"age": [1.0, np.inf, 2.0]}, "infinite"),
        ({"age": [2**60, 1, 2]}, r"beyond 2\^53"),
        ({"sex": ["m", "", "f"]}, '"sex" of the table has 1 missing value'),
        ({"age": [None] * 3, "sex": ["m", None, "f"]}, "2 columns of the table cannot be used"),
    ],
)
def test_refused_values(change, message):
    with pytest.raises(DataError, match=message):
        STRICT.encode(ROWS | change)


def test_missing_columns_are_named():
    with pytest.raises(DataError, match='has no column "town", which the model was trained on; did you mean "towns"'):
        STRICT.encode({"age": [1], "sex": ["f"], "towns": ["a"]})
    with pytest.raises(DataError, match='has no column "town", which the model was trained on; add it'):
        STRICT.encode({"age": [1], "sex": ["f"], "price": [2.0]})
    with pytest.raises(DataError, match=r'new\.csv has no column "sex", "town"'):
        STRICT.encode({"age": [1]}, "new.csv")
    with pytest.raises(DataError, match="has no rows"):
        STRICT.encode(pa.table({name: pa.array([], pa.int64()) for name in STRICT.inputs}))


DATED = TableEncoder(
    (DateColumn("day", ("year", "month", "weekday", "hour", "days"), "2020-01-01", 30.0, True, "%d.%m.%Y %H:%M"),),
    TargetColumn("y"),
    impute=True,
)


def test_dates_against_the_calendar_of_python():
    rng = np.random.default_rng(0)
    moments = [
        datetime.datetime(1950, 1, 1) + datetime.timedelta(minutes=int(minutes))
        for minutes in rng.integers(0, 60_000_000, 200)
    ]
    first = datetime.datetime(2020, 1, 1)
    expected = [
        [day.year, day.month, day.weekday(), day.hour + day.minute / 60, (day - first).total_seconds() / 86400, 0]
        for day in moments
    ]
    for values in (moments, [day.strftime("%d.%m.%Y %H:%M") for day in moments]):
        np.testing.assert_allclose(DATED.encode({"day": values}).X, expected, rtol=1e-12)


def test_missing_dates_are_the_median_date():
    encoded = DATED.encode({"day": ["31.01.2020 00:00", None, "soon"]})
    assert encoded.X[1].tolist() == [*encoded.X[0, :-1], 1] == encoded.X[2].tolist()
    assert [note.code for note in encoded.notes] == ["odd-texts"]
    with pytest.raises(DataError, match="holds numbers, and held dates in training"):
        DATED.encode({"day": [1, 2]})
    with pytest.raises(DataError, match=r'holds text .*"soon" in data row 1'):
        replace(DATED, columns=(replace(DATED.columns[0], dates=None),)).encode({"day": ["soon", "later"]})


def test_numbers_as_text_are_read_as_in_training():
    column = NumberColumn("price", 1.0, decimal=",")
    encoder = TableEncoder((column,), TargetColumn("y"), impute=True)
    assert encoder.encode({"price": ["1.234", "5,5 €"]}).X.tolist() == [[1234], [5.5]]
    assert encoder.encode({"price": [1.234]}).X.tolist() == [[1.234]]
    plain = replace(encoder, columns=(NumberColumn("price", 1.0),)).encode({"price": ["$5", "6.5"]})
    assert plain.X.tolist() == [[1], [6.5]]
    assert '1 text among its values ("$5")' in plain.notes[0]


def test_rare_and_new_levels_are_others():
    encoder = TableEncoder((LevelColumn("c", ("a", "b", "(other)", "(missing)")),), TargetColumn("y"), impute=True)
    encoded = encoder.encode({"c": ["a", "z", None, "(other)"]})
    assert encoded.X.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    assert encoded.notes == ()


@pytest.mark.parametrize("encoder", [STRICT, FILLING, DATED])
def test_round_trip_through_json(encoder):
    again = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict(), allow_nan=False)))
    assert again == encoder


DATES = {"kind": "dates", "name": "x", "parts": ["year"], "origin": "2020-01-01", "median": None, "indicator": False}
DATES["dates"] = None


def test_descriptions_of_the_first_version_are_read():
    spec = json.loads(json.dumps(STRICT.to_dict())) | {"version": 1}
    for column in spec["columns"]:
        column.pop("decimal", None)
    assert TableEncoder.from_dict(spec) == STRICT


def without(key):
    return lambda spec: spec.pop(key)


def put(key, value):
    return lambda spec: spec.__setitem__(key, value)


@pytest.mark.parametrize(
    "harm",
    [
        *(without(key) for key in STRICT.to_dict()),
        put("version", 5),
        put("version", True),
        put("columns", []),
        put("columns", ["age"]),
        put("columns", [{"kind": "code", "name": "x"}]),
        put("columns", [{"kind": "levels", "name": "x", "levels": ["a"]}]),
        put("columns", [{"kind": "levels", "name": "x", "levels": ["a", "a"]}]),
        put("columns", [{"kind": "levels", "name": "x", "levels": ["a", 1]}]),
        put("columns", [{"kind": "numbers", "name": "x", "median": "1", "indicator": False}]),
        put("columns", [{"kind": "numbers", "name": "x", "median": float("nan"), "indicator": False}]),
        put("columns", [{"kind": "numbers", "name": "x", "median": None, "indicator": 0}]),
        put("columns", [{"kind": "numbers", "name": "x", "median": None, "indicator": False, "decimal": None}] * 2),
        put("columns", [{"kind": "numbers", "name": "x", "median": None, "indicator": False, "decimal": ";"}]),
        put("columns", [{**DATES, "parts": ["second"]}]),
        put("columns", [{**DATES, "origin": "yesterday"}]),
        put("columns", [{**DATES, "dates": "%s"}]),
        put("target", None),
        put("target", {"name": 3, "classes": None}),
        put("impute", "no"),
        put("unused", "id"),
        put("focal", 3),
    ],
)
def test_damaged_descriptions_are_refused(harm):
    spec = STRICT.to_dict()
    harm(spec)
    with pytest.raises(DataError):
        TableEncoder.from_dict(spec)


def test_a_description_that_is_no_dict():
    with pytest.raises(DataError, match="damaged"):
        TableEncoder.from_dict([1])


def test_filling_needs_medians():
    with pytest.raises(DataError, match="no median"):
        TableEncoder((AGE,), TargetColumn("y"), impute=True)


def test_names_that_collide():
    with pytest.raises(DataError, match='both be encoded as "town=a"; rename'):
        TableEncoder((TOWN, NumberColumn("town=a")), TargetColumn("y"))


def test_classes_become_codes():
    values = pa.array(["yes", "no", "yes"], pa.large_string())
    assert FILLING.target.encode(values).tolist() == [1, 0, 1]


WORDS = st.one_of(st.none(), st.sampled_from(["red", " red", "Blue", "grün", "?", "", "NA", "(missing)"]))
NUMBERS = st.one_of(st.none(), st.floats(-1e6, 1e6), st.integers(-(2**53), 2**53).map(float))
TABLES = st.lists(st.tuples(NUMBERS, WORDS, st.booleans()), min_size=1, max_size=12)


def as_columns(rows):
    values = list(zip(*rows))
    kinds = (pa.float64(), pa.string(), pa.bool_())
    return pa.table({name: pa.array(column, kind) for name, column, kind in zip("xcb", values, kinds)})


def learned(rows):
    table = as_columns(rows).append_column("y", pa.array(np.arange(5.0, 5.0 + len(rows))))
    table = table.append_column("site", pa.array(["s"] * len(rows)))
    return read_training(table, target="y", domain="site", focal="s", categories=["c"]).encoder


@given(rows=TABLES, data=st.data())
def test_order_of_rows_does_not_matter(rows, data):
    order = data.draw(st.permutations(range(len(rows))))
    encoder, shuffled = learned(rows), learned([rows[index] for index in order])
    assert encoder == shuffled
    whole = encoder.encode(as_columns(rows)).X
    np.testing.assert_array_equal(encoder.encode(as_columns([rows[index] for index in order])).X, whole[order])


@given(rows=TABLES, others=TABLES)
def test_json_gives_the_same_matrices(rows, others):
    encoder = learned(rows)
    again = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict(), allow_nan=False)))
    for table in (as_columns(rows), as_columns(others)):
        encoded, repeated = encoder.encode(table), again.encode(table)
        np.testing.assert_array_equal(encoded.X, repeated.X)
        assert np.isfinite(encoded.X).all()
        assert encoded.notes == repeated.notes


@given(rows=TABLES)
def test_against_a_loop_over_cells(rows):
    encoder = learned(rows)
    encoded = encoder.encode(as_columns(rows))
    numbers = [value for value, _, _ in rows if value is not None]
    levels = sorted({_plain(word) for _, word, _ in rows} - {"(missing)"})
    levels += ["(missing)"] if any(_plain(word) == "(missing)" for _, word, _ in rows) else []
    for line, (value, word, flag) in zip(encoded.X, rows):
        expected = []
        if numbers:
            expected.append(np.median(numbers) if value is None else value)
            expected += [float(value is None)] if len(numbers) < len(rows) else []
        if len(levels) > 1:
            shown = levels[1:] if len(levels) == 2 else levels
            expected += [float(_plain(word) == level) for level in shown]
        assert line.tolist() == [*expected, float(flag)]


def _plain(word):
    word = "" if word is None else word.strip()
    return "(missing)" if word in ("", "?", "NA") else word


def test_categories_of_polars_are_encoded():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"c": polars.Series(["red", "blue", None], dtype=polars.Categorical)})
    encoder = TableEncoder((LevelColumn("c", ("blue", "green", "red", "(missing)")),), TargetColumn("y"), impute=True)
    np.testing.assert_array_equal(encoder.encode(frame).X, [[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]])


def test_a_unit_of_numbers_travels_with_the_encoder():
    encoder = TableEncoder((NumberColumn("mass", 1.0, decimal=".", unit="g"),), TargetColumn("y"))
    spec = encoder.to_dict()
    assert TableEncoder.from_dict(spec) == encoder
    assert encoder.encode({"mass": ["1,250 g", "8 g"]}).X.tolist() == [[1250], [8]]
    before = {**spec, "version": 2, "columns": [{k: v for k, v in spec["columns"][0].items() if k != "unit"}]}
    assert TableEncoder.from_dict(before).columns[0].unit is None
