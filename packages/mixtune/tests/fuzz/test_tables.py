"""Tables whose columns change between fit and predict: a row's answer is its own, through every door, or a clear error.

Columns change their type, format, order, unit, level or encoding; labels their case, space and composition; rows
repeat, leak or stand twice. Whatever happens, the answer for a row does not depend on the others, the command line
gives what Python and a loaded model give, and the order of rows, columns and domains never matters.
"""

from __future__ import annotations

import csv
import datetime
import io
import tempfile
import unicodedata
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.command_line import in_process
from extras import extra
from mixtune import MultiDomainRegressor, TableModel, fit_table
from mixtune.data import read_file, read_new, read_training
from mixtune.errors import DataWarning, MixtuneError

pd, pl = extra("pandas"), extra("polars")

ROLES = {"target": "y", "domain": "site", "focal": "a"}
ROWS = 60


def training(seed, *, size, day, lift):
    """Two sites; the target depends on a size, a day and a lift, which are written in some way."""
    rng = np.random.default_rng(seed)
    sizes = np.round(rng.uniform(1, 9, ROWS), 2)
    days = [datetime.date(2021, 1, 1) + datetime.timedelta(days=int(each)) for each in rng.integers(0, 364, ROWS)]
    lifts = rng.choice(["no", "yes", "grün"], ROWS)
    y = sizes + 3 * (lifts == "yes") + np.array([each.month for each in days]) + 0.1 * rng.standard_normal(ROWS)
    return {
        "site": ["a", "b"] * (ROWS // 2),
        "size": [SIZES[size](each) for each in sizes.tolist()],
        "lift": [LIFTS[lift](each) for each in lifts.tolist()],
        "day": [DAYS[day](each) for each in days],
        "y": y.tolist(),
    }


SIZES = {
    "number": lambda value: value,
    "text": str,
    "percent": lambda value: f"{value}%",
    "unit": lambda value: f"{value} g",
    "other unit": lambda value: f"{value} kg",
    "dollars": lambda value: f"${value}",
    "comma": lambda value: f"{value}".replace(".", ","),
    "thousands": lambda value: f"{1000 * value:,.0f}",
    "hours": lambda value: f"{int(value)}:{int(60 * value) % 60:02d}",
    "bound": lambda value: f"<{value}",
    "brackets": lambda value: f"({value})",
    "word": lambda value: "many",
    "missing": lambda value: None,
    "infinite": lambda value: float("inf"),
    "exponent": lambda value: f"{value:e}",
}
DAYS = {
    "iso": lambda day: day.isoformat(),
    "date": lambda day: day,
    "month first": lambda day: day.strftime("%m/%d/%Y"),
    "day first": lambda day: day.strftime("%d/%m/%Y"),
    "dots": lambda day: day.strftime("%d.%m.%Y"),
    "named": lambda day: day.strftime("%d %b %Y"),
    "moment": lambda day: f"{day.isoformat()}T00:00:00",
    "short": lambda day: day.strftime("%d/%m/%y"),
    "word": lambda day: "soon",
    "missing": lambda day: None,
}
LIFTS = {
    "same": str,
    "upper": str.upper,
    "spaced": lambda text: f" {text}\u00a0",
    "apart": lambda text: unicodedata.normalize("NFD", text),
    "new": lambda text: "glass",
    "missing": lambda text: None,
}
#: What training can be made of; what it is not can only be read later.
TRAINED = {
    "size": ["number", "percent", "unit", "dollars", "comma", "thousands", "hours", "bound"],
    "day": ["iso", "date", "month first", "day first", "dots", "named"],
    "lift": ["same", "spaced", "apart"],
}
KINDS = {
    "dict": dict,
    "pandas": lambda rows: pd.DataFrame(rows),
    "polars": lambda rows: pl.DataFrame({name: list(values) for name, values in rows.items()}, strict=False),
    "arrow": lambda rows: pa.table(rows),
}


@cache
def model_of(size, day, lift):
    """A model, and the same from a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        model = fit_table(training(0, size=size, day=day, lift=lift), **ROLES, linear=True)
    with tempfile.TemporaryDirectory() as folder:
        path = model.save(Path(folder) / "m.mixtune")
        return model, TableModel.load(path), path.read_bytes()


def answer(model, rows):
    """Predictions, and what is said of the rows; None with the error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = model.predict(rows)
        except MixtuneError as error:
            return None, str(error)
    assert {each.category for each in caught} <= {DataWarning}
    assert np.all(np.isfinite(found))
    return found, [note.code for note in model.notes_at_predict]


rows_to_predict = st.lists(
    st.tuples(
        st.floats(1, 9).map(lambda value: round(value, 2)),
        st.sampled_from(list(SIZES)),
        st.dates(datetime.date(2021, 1, 1), datetime.date(2021, 12, 30)),
        st.sampled_from(list(DAYS)),
        st.sampled_from(["no", "yes", "grün"]),
        st.sampled_from(list(LIFTS)),
    ),
    min_size=1,
    max_size=5,
)
trained = st.fixed_dictionaries({name: st.sampled_from(ways) for name, ways in TRAINED.items()})


def as_rows(drawn, only=None):
    """Columns of rows, each cell in its way; with ``only``, cells that are numbers and dates themselves become text."""
    columns = {"size": [], "day": [], "lift": []}
    for size, size_way, day, day_way, lift, lift_way in drawn:
        columns["size"].append(SIZES[size_way](size))
        columns["day"].append(DAYS[day_way](day))
        columns["lift"].append(LIFTS[lift_way](lift))
    for values in (columns["size"], columns["day"]):
        if any(isinstance(value, str) for value in values):
            values[:] = [value if value is None else str(value) for value in values]
    return columns


def lines_of(rows, separator=","):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator)
    writer.writerow(rows)
    writer.writerows(zip(*([("" if value is None else value) for value in values] for values in rows.values())))
    return out.getvalue()


@given(drawn=rows_to_predict, how=trained, data=st.data())
def test_the_answer_for_a_row_is_its_own(drawn, how, data):
    model, loaded, _ = model_of(**how)
    together, said = answer(model, as_rows(drawn))
    again, said_again = answer(loaded, as_rows(drawn))
    assert said_again == said
    if together is None:
        return
    np.testing.assert_array_equal(again, together)
    for place, row in enumerate(drawn):
        alone, _ = answer(model, as_rows([row]))
        # Alone, a cell of another kind may be refused; it never gets another answer.
        assert alone is None or alone[0] == pytest.approx(together[place], rel=1e-12)
    order = data.draw(st.permutations(range(len(drawn))))
    shuffled, _ = answer(model, as_rows([drawn[place] for place in order]))
    np.testing.assert_allclose(shuffled, together[list(order)], rtol=1e-12)
    names = data.draw(st.permutations(["size", "day", "lift"]))
    turned, _ = answer(model, {name: as_rows(drawn)[name] for name in names})
    np.testing.assert_array_equal(turned, together)


@given(drawn=rows_to_predict, how=trained, kind=st.sampled_from(list(KINDS)))
def test_every_kind_of_table_gives_the_same(drawn, how, kind):
    model, _, _ = model_of(**how)
    expected = answer(model, as_rows(drawn))
    found = answer(model, KINDS[kind](as_rows(drawn)))
    if expected[0] is None or found[0] is None:
        assert (expected[0] is None) == (found[0] is None)
        return
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    assert found[1] == expected[1]


@given(drawn=rows_to_predict, how=trained, encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]))
def test_the_command_line_gives_what_python_gives(drawn, how, encoding):
    model, _, saved = model_of(**how)
    # A file holds texts.
    rows = {
        name: [None if value is None else str(value) for value in values] for name, values in as_rows(drawn).items()
    }
    if encoding == "cp1252":
        rows["lift"] = [None if value is None else unicodedata.normalize("NFC", value) for value in rows["lift"]]
    expected, said = answer(model, rows)
    with tempfile.TemporaryDirectory() as folder:
        path, file = Path(folder, "m.mixtune"), Path(folder, "new.csv")
        path.write_bytes(saved)
        file.write_bytes(lines_of(rows).encode(encoding))
        done = in_process("predict", path, file, "--out", Path(folder, "out.csv"))
        assert done.code in (0, 2), done.err
        assert "Traceback" not in done.err
        if done.code or expected is None:
            assert done.code == 2
            assert expected is None
            return
        shown = read_file(Path(folder, "out.csv")).table["prediction"].to_pylist()
    np.testing.assert_allclose(shown, expected, rtol=1e-9)
    assert ("odd-texts" in said) == ("among its values" in " ".join(done.err.split()))


@given(drawn=rows_to_predict, how=trained, separator=st.sampled_from([",", ";", "\t", "|"]))
def test_a_row_of_a_file_is_read_alone_as_among_others(drawn, how, separator):
    model, _, _ = model_of(**how)
    with tempfile.TemporaryDirectory() as folder:

        def read(rows):
            Path(folder, "new.csv").write_text(lines_of(rows, separator), encoding="utf-8")
            try:
                return read_new(Path(folder, "new.csv"), model.encoder).X
            except MixtuneError:
                return None

        together = read(as_rows(drawn))
        for place, row in enumerate(drawn):
            alone = read(as_rows([row]))
            if together is not None and alone is not None:
                np.testing.assert_allclose(alone[0], together[place], rtol=1e-12)


SPELLINGS = (
    "Köln",
    unicodedata.normalize("NFD", "Köln"),
    " Köln",
    "Köln\u200b",
    "Bonn",
    "bonn",
    "1",
    "1.0",
    " 1",
    "01",
)
KEYS = {"Köln": "Köln", "Bonn": "Bonn", "bonn": "bonn", "1": "1", "1.0": "1", "01": "01"}


def key(label):
    return KEYS[unicodedata.normalize("NFC", label).strip(" \u200b")]


@given(labels=st.lists(st.sampled_from(SPELLINGS), min_size=12, max_size=24), data=st.data())
def test_labels_are_one_where_they_mean_the_same(labels, data):
    rng = np.random.default_rng(len(labels))
    columns = {"site": labels, "x": rng.standard_normal(len(labels)).tolist()}
    columns["y"] = rng.standard_normal(len(labels)).tolist()
    focal = data.draw(st.sampled_from(labels))
    read = read_training(columns, target="y", domain="site", focal=focal)
    expected = {}
    for label, y in zip(labels, columns["y"]):
        expected.setdefault(key(label), []).append(y)
    found = {key(domain.name): domain.y.tolist() for domain in read.domains}
    assert found == expected
    assert key(read.domains.focal) == key(focal)
    joined = len(set(labels)) > len({key(label) for label in labels})
    assert joined == any(getattr(note, "code", "") == "joined-labels" for note in read.notes)
    kind = data.draw(st.sampled_from(list(KINDS)))
    again = read_training(KINDS[kind](columns), target="y", domain="site", focal=focal)
    assert again.domains.names == read.domains.names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        model = MultiDomainRegressor(None).fit(np.array(columns["x"])[:, None], columns["y"], domain=labels)
    assert {key(name) for name in model.domains_} == set(expected)


@given(seed=st.integers(0, 2**32 - 1), how=trained, data=st.data())
def test_the_order_of_rows_columns_and_domains_does_not_matter(seed, how, data):
    table = training(seed % 100, **how)
    rng = np.random.default_rng(seed)
    order = rng.permutation(ROWS)
    names = data.draw(st.permutations(list(table)))
    turned = {name: [table[name][place] for place in order] for name in names}
    # Every label keeps its rows; the focal one is the same.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        first, second = (fit_table(each, **ROLES, linear=True) for each in (table, turned))
    assert sorted(first.encoder.names) == sorted(second.encoder.names)
    assert sorted(first.notes) == sorted(second.notes) or len(first.notes) == len(second.notes)
    new = {name: values[:7] for name, values in table.items() if name not in ("site", "y")}
    np.testing.assert_allclose(first.predict(new), second.predict(new), rtol=1e-6, atol=1e-6)


@given(
    seed=st.integers(0, 10**6),
    copies=st.integers(0, 10),
    shared=st.integers(0, 12),
    leak=st.sampled_from(["none", "copy", "folded", "gaps", "bins", "focal"]),
    classes=st.booleans(),
)
def test_rows_that_repeat_leak_or_stand_twice_are_told(seed, copies, shared, leak, classes):
    rng = np.random.default_rng(seed)
    count = 80
    a, b, y = rng.standard_normal((3, count))
    focal = np.arange(count) < 40
    copy = {
        "none": rng.standard_normal(count),
        "copy": 2 * y - 1,
        "folded": (y - 0.1) ** 2,
        "gaps": np.where(rng.random(count) < 0.3, np.nan, y),
        "bins": np.digitize(y, [-0.5, 0.5]).astype(float),
        "focal": np.where(focal, y, rng.standard_normal(count)),
    }[leak]
    target = np.where(y > 0, "yes", "no") if classes else y
    columns = {"site": np.where(focal, "a", "b"), "a": a, "b": b, "copy": copy, "id": [f"r{k}" for k in range(count)]}
    columns = {name: np.asarray(values).tolist() for name, values in {**columns, "y": target}.items()}
    columns = {name: [None if value != value else value for value in values] for name, values in columns.items()}
    whole = {name: values + values[41 : 41 + copies] for name, values in columns.items()}
    whole = {name: values + columns[name][:shared] for name, values in whole.items()}
    whole["site"] = columns["site"] + ["b"] * (copies + shared)
    codes = [note.code for note in read_training(whole, **ROLES).notes]
    assert codes.count("copied-rows") == (copies > 0)
    assert codes.count("focal-in-source") == (shared >= 5)
    assert codes.count("identifier") == 1
    # Of classes, folds, bins and the few rows of one domain say less.
    if leak in ("none", "copy", "gaps") or not classes:
        assert codes.count("leak") == (leak != "none")
    assert codes == sorted(codes, key=lambda code: code not in ("leak", "copied-rows", "focal-in-source"))
