"""Files as people have them: formats, compression, encodings, damage; each is read like its plain twin."""

import bz2
import gzip
import io
import json
import lzma
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest

from extras import extra
from mixtune.data import read_file, read_new, read_training
from mixtune.errors import DataError

PLAIN = "site,größe,when,y\nn,1.5,2020-01-31,10\nn,2,2020-02-01,20\ns,-3,2020-03-01,30\ns,4.25,2021-01-01,40\n"
ROLES = {"target": "y", "domain": "site", "focal": "s"}


def zipped(data):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("inner.csv", data)
    return file.getvalue()


def lines(table):
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


def as_texts(table):
    return table.set_column(2, "when", table["when"].cast(pa.string()))


def arrow(table, write):
    sink = pa.BufferOutputStream()
    write(table, sink)
    return sink.getvalue().to_pybytes()


def german(text):
    return text.replace(".", ",").replace(",", ";").replace("1;5", "1,5").replace("4;25", "4,25")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "plain.csv"
    path.write_text(PLAIN)
    return read_file(path).table


@pytest.fixture(scope="module")
def expected(table):
    return read_training(table, **ROLES)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv.gz", gzip.compress(PLAIN.encode())),
        ("a.csv.bz2", bz2.compress(PLAIN.encode())),
        ("a.csv.xz", lzma.compress(PLAIN.encode())),
        ("a.csv.zip", zipped(PLAIN)),
        ("a.csv", b"\xef\xbb\xbf" + PLAIN.encode()),
        ("a.csv", PLAIN.encode("cp1252")),
        ("a.csv", PLAIN.encode("utf-16")),
        ("a.csv", german(PLAIN).encode()),
        ("a.csv", german(PLAIN).encode("cp1252")),
        ("a.csv", PLAIN.replace(",", "\t").encode()),
        ("a.txt", PLAIN.replace(",", "|").encode()),
        ("a.dat", PLAIN.replace(",", "  ").encode()),
        ("a", PLAIN.encode()),
        ("a.csv", PLAIN.replace("\n", "\r\n").encode()),
        ("a.csv", PLAIN.replace(",", " , ").encode()),
        ("a.csv", ("Prices of 2021\n\n" + PLAIN).encode()),
        ("a.csv", ("# prices\n" + PLAIN).encode()),
        ("a.csv", ("Prices of 2021,,,\n" + PLAIN).encode()),
        ("a.csv", PLAIN.replace("\n", ",\n").encode()),
        ("a.csv", PLAIN.replace("\n", ",\n").replace("y,\n", "y\n").encode()),
    ],
    ids=lambda value: value if isinstance(value, str) else "content",  # bytes of archives hold the time
)
def test_each_file_is_read_like_the_plain_one(tmp_path, expected, name, content):
    (tmp_path / name).write_bytes(content)
    read = read_training(tmp_path / name, **ROLES)
    assert read.encoder.columns == expected.encoder.columns
    for domain in expected.domains:
        np.testing.assert_array_equal(read.domains[domain.name].X, domain.X)
        np.testing.assert_array_equal(read.domains[domain.name].y, domain.y)
    again = read_new(tmp_path / name, read.encoder)
    np.testing.assert_array_equal(again.X, np.vstack([domain.X for domain in read.domains]))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.parquet", lambda table: arrow(table, parquet.write_table)),
        ("a.feather", lambda table: arrow(table, feather.write_feather)),
        ("a.jsonl", lambda table: lines(as_texts(table))),
        ("a.json.gz", lambda table: gzip.compress(json.dumps(as_texts(table).to_pylist()).encode())),
        ("a.json", lambda table: json.dumps(as_texts(table).to_pydict()).encode()),
        ("a", lambda table: arrow(table, parquet.write_table)),
    ],
)
def test_files_with_types_are_read_like_the_plain_one(tmp_path, table, expected, name, write):
    (tmp_path / name).write_bytes(write(table))
    read = read_training(tmp_path / name, **ROLES)
    assert read.encoder.names == expected.encoder.names
    for domain in expected.domains:
        np.testing.assert_array_equal(read.domains[domain.name].X, domain.X)


def test_excel(tmp_path, table, expected):
    book = extra("openpyxl").Workbook()
    sheet = book.active
    sheet.append(["Prices"])
    sheet.append(table.column_names)
    for row in table.to_pylist():
        sheet.append(list(row.values()))
    book.create_sheet("other").append(["x"])
    book.save(tmp_path / "a.xlsx")
    read = read_training(tmp_path / "a.xlsx", **ROLES)
    assert read.encoder.names == expected.encoder.names
    np.testing.assert_array_equal(read.domains["s"].X, expected.domains["s"].X)
    assert [note.code for note in read.notes[:2]] == ["sheets", "skipped-lines"]


def test_standard_input(tmp_path):
    code = (
        "from mixtune.data import read_training; "
        "read = read_training('-', target='y', domain='site', focal='s'); "
        "print(read.domains.names, len(read.encoder.names))"
    )
    done = subprocess.run([sys.executable, "-c", code], input=PLAIN.encode(), capture_output=True, check=True)
    assert done.stdout.decode().strip() == "('n', 's') 5"


def test_line_breaks_within_quotes_and_rows_of_other_lengths(tmp_path):
    text = 'site,x,note,y\na,1,"two\nlines",1\na,2,one,2\nb,3\nb,4,"with, comma",4\n' + "b,5,one,5\n" * 30
    (tmp_path / "a.csv").write_text(text)
    read = read_file(tmp_path / "a.csv")
    assert read.table.num_rows == 34
    assert read.table["note"][0].as_py() == "two\nlines"
    assert read.table["y"][2].as_py() is None
    assert [note.code for note in read.notes] == ["short-rows"]


@pytest.mark.parametrize("separator", ["\t", ";", "|"])
@pytest.mark.parametrize("odd", [["a", "1,200"], ["a", "1,200", "0.5", "2.5", "9", "9"]], ids=["short", "long"])
def test_thousands_commas_and_rows_of_other_lengths_do_not_hide_the_separator(tmp_path, separator, odd):
    rows = [["ab"[row % 2], f"{1 + row % 9},{100 + row}", f"{row / 7:.2f}", f"{row % 11}.25"] for row in range(38)]
    rows = [["site", "load", "x", "y"], *rows[:7], odd, *rows[7:20], odd, *rows[20:]]
    (tmp_path / "a.tsv").write_text("\n".join(map(separator.join, rows)))
    read = read_file(tmp_path / "a.tsv")
    assert (read.form.separator, read.table.column_names) == (separator, ["site", "load", "x", "y"])
    training = read_training(tmp_path / "a.tsv", target="y", domain="site", focal="a", drop_missing_target=True)
    assert sum(domain.n_rows for domain in training.domains) == 38
    assert training.domains["a"].X[0, 0] == 1100


def test_the_separator_that_yields_the_expected_columns_is_preferred(tmp_path):
    (tmp_path / "a.csv").write_text("Sales, 2021\nsite;y\n" + "".join(f"a;{row},5\n" for row in range(60)))
    assert read_file(tmp_path / "a.csv").form.separator == ","
    read = read_file(tmp_path / "a.csv", expected=["y"])
    assert (read.form.separator, read.table.column_names) == (";", ["site", "y"])


def test_new_rows_are_read_with_the_separator_that_yields_the_inputs(tmp_path):
    (tmp_path / "a.csv").write_text("site,x,y\n" + "".join(f"a,{row}.5,{row % 7}\n" for row in range(30)))
    encoder = read_training(tmp_path / "a.csv", **ROLES | {"focal": "a"}).encoder
    (tmp_path / "new.csv").write_text("Sales, 2021\nshop;x\nb;1,5\nb;2,5\nb;3,5\n")
    np.testing.assert_array_equal(read_new(tmp_path / "new.csv", encoder).X, [[1.5], [2.5], [3.5]])


def test_row_names_without_a_header(tmp_path):
    (tmp_path / "a.txt").write_text('"x" "y"\n"Mazda RX4" 1 2\n"Fiat 128" 3 4\n')
    assert read_file(tmp_path / "a.txt").table.to_pydict() == {
        "rownames": ["Mazda RX4", "Fiat 128"],
        "x": [1, 3],
        "y": [2, 4],
    }


def test_names_of_columns(tmp_path):
    (tmp_path / "a.csv").write_text(
        "site , x,x,,y\n" + "".join(f"{'ab'[i % 2]},{i % 3},{i % 5},{i},{i}\n" for i in range(30))
    )
    read = read_training(tmp_path / "a.csv", target="y", domain="site", focal="a")
    assert read.encoder.names == ("x", "x (2)")
    assert [note.code for note in read.notes] == ["repeated-names", "left-out"]


def test_rows_without_a_label_and_other_spellings_of_the_focal_one(tmp_path):
    (tmp_path / "a.csv").write_text("site,x,y\nNew York,1,1\n new york ,2,2\n,3,3\nRome,4,4\n")
    read = read_training(tmp_path / "a.csv", target="y", domain="site", focal="ROME ")
    assert read.domains.focal == "Rome"
    assert [note.code for note in read.notes[:2]] == ["unlabelled-rows", "focal-spelling"]


@pytest.mark.parametrize("orient", ["records", "columns", "split", "table"])
def test_json_as_pandas_writes_it(tmp_path, orient):
    frame = extra("pandas").DataFrame({"site": ["a", "b", "a"], "x": [1.5, 2.0, 3.0], "y": [3, 1, 2]})
    frame.to_json(tmp_path / "a.json", orient=orient)
    assert read_file(tmp_path / "a.json").table.select(["site", "x", "y"]).to_pydict() == frame.to_dict("list")


def test_names_over_two_lines(tmp_path):
    (tmp_path / "a.csv").write_text('"living\narea","the\nsite"\n1,007\n2,7\n')
    read = read_file(tmp_path / "a.csv", text=["the site"])
    assert read.table.to_pydict() == {"living area": [1, 2], "the site": ["007", "7"]}


def test_labels_of_merged_cells():
    table = {"site": ["Rome", None, "", "Oslo", None], "x": [1, 2, 3, 5, 4], "y": [4, 3, 1, 2, 9]}
    read = read_training(table, target="y", domain="site", focal="Rome")
    assert [(domain.name, domain.n_rows) for domain in read.domains] == [("Rome", 3), ("Oslo", 2)]
    assert "merged-labels" in {note.code for note in read.notes}


def test_labels_that_differ_in_capital_letters_are_told():
    table = {"site": ["Rome", "Oslo", "ROME", "Rome "], "x": [1, 2, 3, 5], "y": [4, 3, 1, 2]}
    read = read_training(table, target="y", domain="site", focal="Rome")
    assert [domain.n_rows for domain in read.domains] == [2, 1, 1]
    (note,) = (note for note in read.notes if note.code == "similar-levels")
    assert note.fields["levels"] == '"Rome", "ROME"'


@pytest.mark.parametrize("end", ["Total,,60\n", "Average,2,15\nGrand total,8,60\nSource: the office,,\n"])
def test_totals_below_the_last_row_are_left_out(tmp_path, end):
    rows = "".join(f"{site},{x},{y}\n" for site, x, y in zip("abab", (1, 4, 2, 3), (10, 20, 15, 15)))
    (tmp_path / "a.csv").write_text("site,x,y\n" + 3 * rows + end)
    read = read_training(tmp_path / "a.csv", target="y", domain="site", focal="a")
    assert [(domain.name, domain.n_rows) for domain in read.domains] == [("a", 6), ("b", 6)]
    assert "totals" in {note.code for note in read.notes}
    # A company of that name stays.
    (tmp_path / "b.csv").write_text("site,x,y\n" + 3 * rows + 2 * "Total,1,60\n")
    assert len(read_training(tmp_path / "b.csv", target="y", domain="site", focal="a").domains) == 3


def test_columns_that_determine_the_target_are_told():
    rng = np.random.default_rng(0)
    y = rng.uniform(5, 20, 40)
    table = {"site": ["a", "b"] * 20, "awake": 24 - y, "log": np.log(y), "size": y + rng.standard_normal(40), "y": y}
    read = read_training(table, target="y", domain="site", focal="a")
    assert [note.fields["column"] for note in read.notes if note.code == "leak"] == ["awake", "log"]


def test_sentences_are_free_text_not_identifiers():
    texts = [f"the flat number {i} is on the {i % 3} floor of the house" for i in range(30)]
    table = {"site": ["a", "b"] * 15, "text": texts, "name": [f"flat {i}" for i in range(30)], "x": [1, 2, 4] * 10}
    notes = read_training(table | {"y": [3, 1, 2, 5, 4] * 6}, target="y", domain="site", focal="a").notes
    assert {note.code: note.fields["column"] for note in notes} == {"free-text": "text", "identifier": "name"}
    assert 'text="text"' in next(note for note in notes if note.code == "free-text")


def test_targets_of_0_and_1_are_classes():
    table = {"site": ["a", "a", "b", "b"], "x": [1, 2, 3, 4], "y": [0, 1, 1, None]}
    read = read_training(table, target="y", domain="site", focal="a")
    assert read.encoder.target.classes == ("0", "1")
    assert {note.code for note in read.notes} >= {"binary-target", "dropped-rows"}
    assert (
        read_training(table, target="y", domain="site", focal="a", target_kind="number").encoder.target.classes is None
    )


def test_dates_are_stated(expected):
    assert expected.encoder.names[1:] == (
        "when (year)",
        "when (month)",
        "when (weekday)",
        "when (days since 2020-01-31)",
    )
    assert expected.notes == ('column "when" holds dates; it became year, month, weekday, days since 2020-01-31',)
    months = {"site": ["a", "a", "b"], "when": ["Jan 2020", "Feb 2020", "Mar 2020"], "y": [1, 2, 3]}
    assert read_training(months, target="y", domain="site", focal="a").encoder.names == (
        "when (month)",
        "when (days since 2020-01-01)",
    )


def test_columns_that_are_neither_numbers_nor_text_are_left_out():
    table = {"site": ["a", "a", "b"], "x": [1, 2, 3], "tags": [[1], [2, 3], []], "id": [2**60, 5, 6], "y": [1, 2, 3]}
    read = read_training(table, target="y", domain="site", focal="a")
    assert read.encoder.names == ("x",)
    assert [note.fields["column"] for note in read.notes if note.code == "left-out"] == ["tags", "id"]


def test_objects_of_several_types_are_text():
    table = {"site": ["a", "a", "b"], "x": [1, "two", 3.5], "c": ["p", 2, None], "y": [1, 2, 3]}
    read = read_training(table, target="y", domain="site", focal="a")
    assert read.encoder.names == ("x", "x (missing)", "c=2", "c=p", "c=(missing)")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"{", "cannot be read as JSON"),
        ("a.json", b"[1, 2]", "does not hold rows"),
        ("a.json", b'{"x": [1], "y": [1, 2]}', "different lengths"),
        ("a.csv.zip", b"PK", "cannot be read as CSV.ZIP"),
        ("a.csv", b"\n\n", "Empty"),
        ("a.feather", b"ARROW1", "cannot be read as FEATHER"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_file(tmp_path / name)
