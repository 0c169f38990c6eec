"""The same label, category or column written in several ways: one, with a note, through every door."""

from __future__ import annotations

import csv
import unicodedata

import numpy as np
import pyarrow as pa
import pytest

from extras import extra
from mixtune import Domains, MultiDomainRegressor, Sources, StreamedSources, fit_table
from mixtune.data import label_key, read_training
from mixtune.errors import DataError, DataWarning

pd, pl = extra("pandas"), extra("polars")

COMPOSED = "Köln"
APART = unicodedata.normalize("NFD", COMPOSED)
assert COMPOSED != APART
ROWS = 24


def table(sites, levels=("rot", "grün"), size="größe"):
    rng = np.random.default_rng(0)
    count = ROWS
    return {
        "site": [sites[k % len(sites)] for k in range(count)],
        size: rng.standard_normal(count).tolist(),
        "farbe": [levels[(k // 2) % len(levels)] for k in range(count)],
        "y": rng.standard_normal(count).tolist(),
    }


def csv_file(path, columns):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values())])
    return path


ROLES = {"target": "y", "domain": "site"}
DOORS = {
    "dict": lambda columns, folder: columns,
    "pandas": lambda columns, folder: pd.DataFrame(columns),
    "polars": lambda columns, folder: pl.DataFrame(columns),
    "arrow": lambda columns, folder: pa.table(columns),
    "csv": lambda columns, folder: csv_file(folder / "data.csv", columns),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("sites", "names"),
    [
        ([COMPOSED, "Bonn", APART], (COMPOSED, "Bonn")),
        (["Bonn", " Bonn", "Bonn\u00a0", "Bonn\u200b", "Ulm"], ("Bonn", "Ulm")),
        (["1", "2", "1.0", "2.0"], ("1", "2")),
        (["01", "1", "1.5"], ("01", "1", "1.5")),
        (["bonn", "Bonn"], ("bonn", "Bonn")),
    ],
)
def test_domains(door, sites, names, tmp_path):
    read = read_training(DOORS[door](table(sites), tmp_path), **ROLES, focal=names[0])
    assert read.domains.names == names
    assert sum(each.n_rows for each in read.domains) == ROWS
    codes = [note.code for note in read.notes]
    assert ("joined-labels" in codes) == (len(sites) > len(names))
    assert ("similar-levels" in codes) == (names == ("bonn", "Bonn"))


@pytest.mark.parametrize("focal", [COMPOSED, APART, f" {APART} "])
@pytest.mark.parametrize("site", [COMPOSED, APART])
def test_the_focal_label(site, focal, tmp_path):
    columns = table([site, "Bonn"])
    assert read_training(columns, **ROLES, focal=focal).domains.focal == COMPOSED
    numbers = {name: columns[name] for name in ("site", "größe", "y")}
    assert Domains.from_table(numbers, **ROLES, focal=focal).focal == COMPOSED
    for name in (site, "Bonn"):
        csv_file(tmp_path / f"{name}.csv", {key: columns[key] for key in ("größe", "y")})
    files = [tmp_path / f"{site}.csv", tmp_path / "Bonn.csv"]
    assert read_training(files, target="y", focal=focal).domains.names == (COMPOSED, "Bonn")
    assert Domains.from_files(files, target="y").focal == COMPOSED


@pytest.mark.parametrize("door", DOORS)
def test_categories_and_classes(door, tmp_path):
    apart = unicodedata.normalize("NFD", "grün")
    levels = ("rot", "grün", apart, " rot")
    plain = table(["a", "b"], [unicodedata.normalize("NFC", level).strip() for level in levels])
    made = DOORS[door](table(["a", "b"], levels), tmp_path)
    read, expected = read_training(made, **ROLES, focal="a"), read_training(plain, **ROLES, focal="a")
    assert read.encoder == expected.encoder
    assert [note.code for note in read.notes] == ["joined-texts"]
    for each, other in zip(read.domains, expected.domains):
        np.testing.assert_array_equal(each.X, other.X)
    for level in levels:
        assert read.encoder.encode({"größe": [0.0], "farbe": [level]}).notes == ()
    found = read_training(made, target="farbe", domain="site", focal="a")
    assert found.encoder.target.classes == ("grün", "rot")


def test_column_names():
    apart = unicodedata.normalize("NFD", "größe")
    assert apart != "größe"
    for trained, new in ((apart, "größe"), ("größe", apart)):
        model = fit_table(table(["a", "b"], size=trained), **ROLES, focal="a", linear=True)
        assert model.encoder.inputs == ("größe", "farbe")
        for kind in (dict, pd.DataFrame, pl.DataFrame, pa.table):
            rows = {new: [0.0], "farbe": ["rot"]}
            np.testing.assert_array_equal(model.predict(kind(rows)), model.predict({"größe": [0.0], "farbe": ["rot"]}))
    with pytest.raises(DataError, match="more than one column"):
        read_training({**table(["a", "b"]), apart: [0.0] * ROWS}, **ROLES, focal="a")


def test_labels_of_arrays():
    X, y = np.arange(8.0)[:, None], np.arange(8.0)
    with pytest.warns(DataWarning, match='count as one, such as "Köln"'):
        domains = Domains.from_arrays(X, y, labels=[COMPOSED, APART, "b", "b"] * 2, focal=APART)
    assert (domains.names, domains.focal) == ((COMPOSED, "b"), COMPOSED)
    with pytest.warns(DataWarning, match='such as "1" \\(written "1", "1.0"\\)'):
        assert Domains.from_arrays(X, y, labels=["1", "1.0"] * 4, focal=1).names == ("1",)
    assert Domains.from_arrays(X, y, labels=[1.0, 2.0] * 4, focal=1).names == ("1", "2")
    with pytest.warns(DataWarning, match="count as one"):
        model = MultiDomainRegressor(None).fit(X, y, domain=[COMPOSED, APART, "1", "1.0"] * 2)
    assert model.domains_ == ("1", COMPOSED)
    expected = model.predict(X[:2], domain=["1", COMPOSED])
    for labels in ([1, APART], [1.0, APART], ["1.0", f" {COMPOSED}"]):
        for row in range(2):
            assert model.predict(X[row : row + 1], domain=labels[row : row + 1])[0] == expected[row]


def test_names_of_sources():
    rows = (np.ones((2, 1)), np.ones(2))
    with pytest.raises(DataError, match="more than one source is named Köln"):
        Sources({COMPOSED: rows, APART: rows})
    assert Sources({APART: rows}).names == (COMPOSED,)


def test_labels_of_streams(tmp_path):
    columns = table([COMPOSED, APART, "b"])
    del columns["farbe"]
    stream = StreamedSources(csv_file(tmp_path / "data.csv", columns), target="y", domain="site")
    assert set(stream.samples()) == {COMPOSED, "b"}


@pytest.mark.parametrize(
    ("label", "key"), [(True, "True"), (-3.0, "-3"), ("-3.00", "-3"), ("1.10", "1.10"), ("x0", "x0")]
)
def test_keys(label, key):
    assert label_key(label) == key
