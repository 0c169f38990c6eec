"""Rows to predict that are not written as those of training: read by one rule, told, and never by their neighbours."""

from __future__ import annotations

import csv
import datetime
import warnings

import numpy as np
import pyarrow as pa
import pytest

import mixtune
from cli.command_line import as_json, refused, run, write_rows
from extras import extra
from mixtune import TableModel, fit_table
from mixtune.errors import DataError, DataWarning

pd, pl = extra("pandas"), extra("polars")

ROLES = {"target": "y", "domain": "site", "focal": "a", "linear": True}
KINDS = {
    "dict": dict,
    "pandas": lambda rows: pd.DataFrame(rows),
    "polars": lambda rows: pl.DataFrame(rows),
    "arrow": lambda rows: pa.table(rows),
}


def sales(rows=40):
    """Sites a and b: a number, two levels, a day; the target depends on each of them."""
    rng = np.random.default_rng(0)
    size = np.round(rng.uniform(1, 9, rows), 2)
    days = [datetime.date(2021, 1, 1) + datetime.timedelta(days=int(day)) for day in rng.integers(0, 364, rows)]
    lift = rng.choice(["no", "yes"], rows).tolist()
    y = size + 5 * (np.array(lift) == "yes") + np.array([day.month for day in days]) + 0.01 * rng.standard_normal(rows)
    return {
        "site": ["a", "b"] * (rows // 2),
        "size": size.tolist(),
        "lift": lift,
        "day": [day.isoformat() for day in days],
        "y": y.tolist(),
    }


NEW = {"size": [5.0], "lift": ["yes"], "day": ["2021-07-01"]}


@pytest.fixture(scope="module")
def model():
    return fit_table(sales(), **ROLES)


@pytest.fixture(scope="module")
def paths(model, tmp_path_factory):
    """The same model in three files: of Python, of the command line, and of training days that are no text."""
    folder = tmp_path_factory.mktemp("models")
    with (folder / "data.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(sales())
        writer.writerows(zip(*sales().values()))
    command = ("fit", folder / "data.csv", "--target", "y", "--domain", "site", "--focal", "a", "--linear")
    assert run(*command, "--out", folder / "cli.mixtune").code == 0
    return model.save(folder / "python.mixtune"), folder / "cli.mixtune"


def outcome(model, rows):
    """Predictions and the codes of the warnings, or the error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = model.predict(rows)
        except DataError as error:
            return str(error)
    assert all(each.category is DataWarning for each in caught)
    return found, [each.message.args[0].code for each in caught]


def changed(**columns):
    rows = max(map(len, columns.values()))
    return {name: columns.get(name, values * rows) for name, values in NEW.items()}


def test_nothing_is_said_of_rows_as_in_training(model):
    found, codes = outcome(model, changed(size=[5.0, 6.0]))
    assert codes == []
    assert model.notes_at_predict == ()
    assert len(found) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        ("lift", "maybe", "unseen-levels"),
        ("lift", None, "first-missing-values"),
        ("size", None, "first-missing-values"),
        ("size", float("inf"), "infinite-values"),
        ("size", "abc", "odd-texts"),
        ("size", "inf", "odd-texts"),
        ("size", "50%", "odd-texts"),
        ("size", "50 g", "odd-texts"),
        ("size", "0:30", "odd-texts"),
        ("size", "<0.5", "odd-texts"),
        ("size", "$5", "odd-texts"),
        ("size", "(5)", "odd-texts"),
        ("size", "1,5", "odd-texts"),
        ("size", "1,234", "odd-texts"),
        ("size", "1 234", "odd-texts"),
        ("size", "5-", "odd-texts"),
        ("size", "10+", "odd-texts"),
        ("day", "soon", "odd-texts"),
        ("day", None, "first-missing-values"),
    ],
)
def test_odd_values_are_told_and_are_those_of_no_row(model, paths, kind, column, value, code):
    """A value that cannot be used counts as missing, alone and beside others, in every kind of table and file."""
    usual = NEW[column] if not isinstance(value, str) or column != "size" else ["5.0"]
    rows = changed(**{column: [*usual, value]})
    found, codes = outcome(model, KINDS[kind](rows))
    assert [note.code for note in model.notes_at_predict] == codes
    assert code in codes
    assert len(codes) == len(set(codes))
    # What is missing is the typical value, and a category that is new is neither of those in training.
    expected = model.predict(NEW)[0]
    assert found[0] == pytest.approx(expected, rel=1e-12)
    if column == "lift":
        no, yes = model.predict(changed(lift=["no", "yes"]))
        assert no + 1 < found[1] < yes - 1
    else:
        missing, _ = outcome(model, changed(**{column: [*NEW[column], None]}))
        np.testing.assert_allclose(found, missing, rtol=1e-12)
    for path in paths:
        again, said = outcome(TableModel.load(path), KINDS[kind](rows))
        np.testing.assert_allclose(again, found, rtol=1e-9)
        assert said == codes


@pytest.mark.parametrize("value", ["50%", "50 g", "0:30", "<0.5", "1,234", "maybe 5"])
def test_an_odd_value_alone_is_read_as_beside_others(model, value):
    alone, codes = outcome(model, changed(size=[value]))
    beside, _ = outcome(model, changed(size=[value, "5.0", "6.5", "7.5"]))
    assert codes == ["odd-texts", "first-missing-values"]
    assert alone[0] == pytest.approx(beside[0], rel=1e-12)


@pytest.mark.parametrize("neighbour", ["03/04/2021", "25/12/2021", "12/25/2021", "2021-12-25"])
@pytest.mark.parametrize("day", ["03/04/2021", "25/12/2021", "3.4.2021", "03-04-2021", "03/04/21", "03/2021"])
@pytest.mark.parametrize("typed", [False, True])
def test_dates_of_another_format_are_refused_whatever_stands_beside_them(model, day, neighbour, typed):
    if typed:
        frame = sales() | {"day": [datetime.date.fromisoformat(each) for each in sales()["day"]]}
        model = fit_table(frame, **ROLES)
    for days in ([day], [day, neighbour], [neighbour, day]):
        said = outcome(model, changed(day=days))
        assert 'column "day" of the table holds dates that are not written as in training' in said
        assert "data row" in said
        assert "year-month-day" in said


@pytest.mark.parametrize("day", ["2021-07-01 00:00", "2021/07/01", "1 Jul 2021", "July 1, 2021", "2021-07-01T00:00:00"])
def test_dates_that_cannot_be_misread_are_read(model, paths, day):
    expected = model.predict(NEW)[0]
    for each in (model, *map(TableModel.load, paths)):
        found, codes = outcome(each, changed(day=[day, "2021-01-02"]))
        assert found[0] == pytest.approx(expected, rel=1e-9)
        assert codes == []


@pytest.mark.parametrize("training", ["%d/%m/%Y", "%m/%d/%Y"])
def test_the_format_of_training_comes_first(training):
    frame = sales()
    days = [datetime.date.fromisoformat(day) for day in frame["day"]]
    model = fit_table(frame | {"day": [day.strftime(training) for day in days]}, **ROLES)
    expected = fit_table(frame, **ROLES).predict(changed(day=["2021-03-04"]))
    written = datetime.date(2021, 3, 4).strftime(training)
    for days in ([written], [written, datetime.date(2021, 12, 25).strftime(training)]):
        found, codes = outcome(model, changed(day=days))
        assert found[0] == pytest.approx(expected[0], rel=1e-9)
        assert codes == []
    swapped = "%m/%d/%Y" if training == "%d/%m/%Y" else "%d/%m/%Y"
    said = outcome(model, changed(day=[written, datetime.date(2021, 12, 25).strftime(swapped)]))
    assert "not written as in training" in said


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_times_are_the_same_instants_in_every_zone(kind):
    rng = np.random.default_rng(0)
    local = [datetime.datetime(2021, 1, 1) + datetime.timedelta(hours=int(hour)) for hour in rng.integers(0, 8000, 40)]
    zones = ("UTC", "Europe/Berlin", "Asia/Tokyo", "America/New_York")
    columns = {
        zone: pa.array(local, pa.timestamp("us")).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone))
        for zone in zones
    }
    y = np.array([moment.hour for moment in local], dtype=float)
    made = {
        "pandas": lambda table: table.to_pandas(),
        "arrow": lambda table: table,
        "polars": pl.from_arrow,
    }[kind]
    models = {}
    for trained in zones:
        table = pa.table({"site": ["a", "b"] * 20, "at": columns[trained], "y": y})
        models[trained] = fit_table(made(table), **ROLES)
        told = [note for note in models[trained].notes if getattr(note, "code", "") == "time-zones"]
        assert [note.fields["zones"] for note in told] == ([] if trained == "UTC" else [trained])
        expected = models["UTC"].predict(pa.table({"at": columns["UTC"]}))
        for zone in zones:
            found, codes = outcome(models[trained], made(pa.table({"at": columns[zone]})))
            np.testing.assert_array_equal(found, expected)
            assert codes == []
        # Text that names its zone is the same instant, too.
        texts = [f"{moment + datetime.timedelta(hours=5):%Y-%m-%d %H:%M:%S}+05:00" for moment in local]
        np.testing.assert_array_equal(outcome(models[trained], {"at": texts})[0], expected)
        found, codes = outcome(models[trained], {"at": local})
        np.testing.assert_array_equal(found, expected)
        assert codes == ["other-zone"]
        assert outcome(models[trained], {"at": [f"{moment:%Y-%m-%d %H:%M}" for moment in local]})[1] == ["other-zone"]


def test_times_of_several_zones_are_the_same_in_any_order(tmp_path):
    """Also in a file, with a training that has no zone, and in models of files."""
    zones = [datetime.timezone(datetime.timedelta(hours=hours)) for hours in (0, 2, -7)]
    rng = np.random.default_rng(1)
    moments = [
        datetime.datetime(2021, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(hours=int(hour))
        for hour in rng.integers(0, 8000, 40)
    ]
    mixed = [moment.astimezone(zones[k % 3]) for k, moment in enumerate(moments)]
    y = [float(moment.hour) for moment in moments]
    site = ["a", "b"] * 20
    ways = {
        "plain": [moment.replace(tzinfo=None) for moment in moments],
        "objects": mixed,
        "text": [moment.isoformat() for moment in mixed],
        "Z": [f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in moments],
    }
    order = rng.permutation(40)
    expected = None
    for way, times in ways.items():
        model = fit_table({"site": site, "at": times, "y": y}, **ROLES)
        turned = fit_table(
            {"site": [site[k] for k in order], "at": [times[k] for k in order], "y": [y[k] for k in order]}, **ROLES
        )
        rows = [("site", "at", "y"), *zip(site, (str(each) for each in times), y)]
        path = write_rows(tmp_path / f"{way}.csv", rows[0], rows[1:])
        loaded = TableModel.load(model.save(tmp_path / "m.mixtune"))
        for each in (model, turned, loaded, fit_table(pd.read_csv(path), **ROLES)):
            for new in (way, "objects", "text", "Z"):
                found, codes = outcome(each, {"at": ways[new]})
                expected = found if expected is None else expected
                np.testing.assert_allclose(found, expected, atol=1e-9)
                assert codes == (["other-zone"] if way == "plain" and new != "plain" else [])
                single = [outcome(each, {"at": [moment]})[0][0] for moment in ways[new][:4]]
                np.testing.assert_allclose(single, expected[:4], atol=1e-9)


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
def test_scalars_of_numpy_are_read_like_those_of_python(model, unit):
    days = [np.datetime64("2021-07-01", unit), datetime.date(2021, 7, 2)]
    rows = changed(day=days, size=[np.float64(5.0), np.int64(5)])
    expected = model.predict(changed(day=["2021-07-01", "2021-07-02"]))
    np.testing.assert_array_equal(model.predict(rows), expected)
    np.testing.assert_allclose(model.predict(changed(day=days[:1])), expected[:1], rtol=1e-12)


def test_times_without_a_zone_among_others_are_told():
    moments = [f"2021-01-{day:02d}T{day % 24:02d}:00:00" for day in range(1, 31)]
    times = [moment + ("+02:00" if k > 2 else "") for k, moment in enumerate(moments)]
    model = fit_table({"site": ["a", "b"] * 15, "at": times, "y": [float(k % 7) for k in range(30)]}, **ROLES)
    assert '3 times in column "at" without a time zone are read as of UTC' in model.notes


def test_rows_of_other_domains_are_told(model, paths, tmp_path):
    rows = changed(size=[5.0, 5.0]) | {"site": ["a", "b"]}
    _, codes = outcome(model, rows)
    assert codes == ["other-domains"]
    assert "1 label in 2 rows (the first in data row 2)" in model.notes_at_predict[0]
    for spelling in ("a", " a ", "a\u200b"):
        assert outcome(model, rows | {"site": ["a", spelling]})[1] == []


def test_a_model_of_every_domain_takes_the_domain_of_each_row(tmp_path):
    frame = sales()
    frame["y"] = [y + 50 * (site == "b") for y, site in zip(frame["y"], frame["site"])]
    with (tmp_path / "data.csv").open("w", newline="") as file:
        csv.writer(file).writerows([frame, *zip(*frame.values())])
    command = ("fit", tmp_path / "data.csv", "--target", "y", "--domain", "site", "--all", "--linear")
    assert run(*command, "--out", tmp_path / "every.mixtune").code == 0
    model = TableModel.load(tmp_path / "every.mixtune")
    found, codes = outcome(model, changed(size=[5.0] * 3) | {"site": ["a", "b", " b"]})
    assert found[1] - found[0] == pytest.approx(50, abs=2)
    assert found[2] == found[1]
    assert codes == []
    lower, upper = model.predict_interval(changed(size=[5.0, 5.0]) | {"site": ["a", "b"]})
    assert np.all(lower < upper)
    assert outcome(model, changed(size=[5.0]) | {"site": ["new"]})[1] == ["unseen-domains"]
    with pytest.raises(DataError, match='no column "site", the domain of each row'):
        model.predict(NEW)


def test_the_command_line_says_the_same(model, paths, tmp_path):
    rows = changed(size=["50%", "99", "6"], lift=["maybe", "yes", "yes"]) | {"site": ["a", "b", "a"], "more": [1, 2, 3]}
    with (tmp_path / "new.csv").open("w", newline="") as file:
        csv.writer(file).writerows([rows, *zip(*rows.values())])
    found, codes = outcome(model, rows)
    shown = as_json("predict", paths[0], tmp_path / "new.csv")
    np.testing.assert_allclose(shown["columns"]["prediction"], found, rtol=1e-9)
    notes = [str(note).split(" of ")[0].split(";")[0] for note in model.notes_at_predict]
    assert len(notes) == len(shown["notes"]) == 6
    assert {note.code for note in model.notes_at_predict} == {*codes, "unknown-columns", "outside-range"}
    day = changed(day=["03/04/2021"])
    with (tmp_path / "days.csv").open("w", newline="") as file:
        csv.writer(file).writerows([day, *zip(*day.values())])
    assert "not written as in training" in refused("predict", paths[0], tmp_path / "days.csv")


@pytest.mark.parametrize("load", [mixtune.load, TableModel.load])
def test_what_was_saved_comes_back(model, paths, load):
    again = load(paths[0])
    assert isinstance(again, TableModel)
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    assert outcome(again, changed(lift=["maybe"]))[1] == ["unseen-levels"]


def test_a_file_of_the_command_line_holds_an_estimator(paths):
    assert mixtune.load(paths[1]).predict(TableModel.load(paths[1]).encoder.encode(NEW).X).shape == (1,)


@pytest.mark.parametrize(
    ("training", "new", "expected"),
    [
        (["5%", "7%", "9%"], ["6%", "$6", "6 g"], [6, None, None]),
        (["$5", "$7", "$9"], ["$6", "6%", "6 €"], [6, None, None]),
        (["5 g", "7 g", "9 g"], ["6 g", "6 kg", "0.006 kg"], [6, None, None]),
        (["1:30", "2:30", "9:00"], ["6:00", "6.5", "6%"], [6, None, None]),
        (["<5", "7", "9"], ["<6", "6%", "6"], [6, None, 6]),
        (["1,5", "2,5", "9,5"], ["6,0", "6.0", "6,0 %"], [6, None, None]),
    ],
)
def test_signs_and_units_are_those_of_training(training, new, expected):
    sizes = (training * 14)[:40]
    model = fit_table(sales() | {"size": sizes}, **ROLES)
    found = model.encoder.encode(changed(size=new)).X[:, model.encoder.names.index("size")]
    median = model.encoder.columns[model.encoder.inputs.index("size")].median
    np.testing.assert_allclose(found, [median if value is None else value for value in expected])
    assert model.predict(changed(size=new[:1])).shape == (1,)
    assert outcome(model, changed(size=[6.0]))[1] == ["without-unit"] * (training[0] in ("5%", "5 g", "1:30"))


@pytest.mark.parametrize("value", [datetime.time(0, 30), datetime.timedelta(hours=1), datetime.date(2021, 1, 1)])
def test_times_where_training_had_numbers_are_refused(model, value):
    assert 'column "size"' in outcome(model, changed(size=[value]))


def lines(path, *rows, separator=";"):
    path.write_text("\n".join(separator.join(row) for row in rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("mark", [".", ","])
def test_decimal_marks_of_files_are_those_of_training_or_clear(tmp_path, mark):
    """One row of a file is read as beside any others; what two marks would read in two ways is refused."""
    table = [["site", "size", "y"], *(["ab"[k % 2], f"{k % 9}{mark}25", f"{k}{mark}5"] for k in range(40))]
    command = ("fit", lines(tmp_path / "data.csv", *table), "--target", "y", "--domain", "site", "--focal", "a")
    assert run(*command, "--linear", "--out", tmp_path / "m.mixtune").code == 0
    model = TableModel.load(tmp_path / "m.mixtune")
    other = {".": ",", ",": "."}[mark]

    def predicted(*cells, options=()):
        new = lines(tmp_path / "new.csv", ["site", "size"], *(["a", cell] for cell in cells))
        return as_json("predict", tmp_path / "m.mixtune", new, *options)["columns"]["prediction"]

    for cell, value in (
        (f"2{mark}5", 2.5),
        (f"2{other}5", 2.5),
        (f"1{mark}234", 1.234),
        (f"0{other}125", 0.125),
        ("3", 3),
    ):
        expected = pytest.approx(model.predict({"size": [float(value)]})[0], rel=1e-9)
        assert predicted(cell)[0] == expected
        assert predicted(cell, "4", f"4{mark}5")[0] == expected
    new = lines(tmp_path / "new.csv", ["site", "size"], ["a", f"2{other}5"], ["a", f"1{mark}234"])
    said = refused("predict", tmp_path / "m.mixtune", new)
    assert f'column "size" of "{new}" holds "2{other}5" and "1{mark}234"' in said
    assert "--decimal" in said
    assert predicted(f"2{other}5", options=("--decimal", other)) == [pytest.approx(model.predict({"size": [2.5]})[0])]
