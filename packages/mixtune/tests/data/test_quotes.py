"""Quotation marks that stand alone: no row gets lost without a word, and cells that span lines on purpose are read."""

from __future__ import annotations

import csv
import gzip
import random

import pytest

from cli.command_line import refused
from mixtune import Domains, StreamedSources
from mixtune.data import read_file, read_table, read_training
from mixtune.errors import DataError

HEADER = ["site", "kind", "x", "y"]


def rows(count=400):
    rng = random.Random(0)
    return [
        [rng.choice("ab"), rng.choice(["large", "small"]), f"{rng.random():.3f}", f"{rng.random():.3f}"]
        for _ in range(count)
    ]


#: The rows and columns of opening and closing marks; None closes nothing.
STRAY = {
    "two open": ((50, 1, '"{}'), (290, 1, '"{}')),
    "open and close": ((50, 1, '"{}'), (290, 1, '{}"')),
    "first column": ((50, 0, '"{}'), (290, 0, '"{}')),
    "last column": ((50, 3, '"{}'), (290, 3, '{}"')),
    "neighbours": ((10, 1, '"{}'), (11, 1, '{}"')),
    "never closed": ((59, 1, '"{}'),),
    "in the first row": ((0, 1, '"{}'),),
    "in the last row": ((399, 1, '"{}'),),
    "three": ((50, 1, '"{}'), (60, 1, '{}"'), (200, 1, '"{}')),
}


def write(path, marks, separator=",", ending="\n", encoding="utf-8"):
    table = rows()
    for row, column, mark in marks:
        table[row][column] = mark.format(table[row][column])
    text = ending.join(separator.join(row) for row in [HEADER, *table]) + ending
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("stray", STRAY)
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    ("ending", "encoding"), [("\n", "utf-8"), ("\r\n", "utf-8"), ("\r", "latin-1"), ("\n", "utf-16"), ("\n", "utf-32")]
)
def test_stray_marks_are_refused_with_their_line(tmp_path, stray, separator, ending, encoding):
    path = write(tmp_path / "data.csv", STRAY[stray], separator, ending, encoding)
    line = STRAY[stray][0][0] + 2
    for read in (read_file, lambda path: read_training(path, target="y", domain="site", focal="a")):
        with pytest.raises(DataError, match=f"begins in line {line} .*remove the quotation mark that stands alone"):
            read(path)
    with pytest.raises(DataError, match=f"begins in line {line} "):
        read_table(path, read_file(write(tmp_path / "fine.csv", (), separator, ending, encoding)).form)


@pytest.mark.parametrize("stray", STRAY)
def test_at_every_door(tmp_path, stray):
    path = write(tmp_path / "data.csv", STRAY[stray])
    line = f"line {STRAY[stray][0][0] + 2} "
    with pytest.raises(DataError, match=line):
        Domains.from_files(path, target="y", domain="site", focal="a")
    for name in ("data.csv", "data.csv.gz"):
        stream = StreamedSources(write(tmp_path / name, STRAY[stray]), target="y", domain="site", columns="x")
        with pytest.raises(DataError, match=line):
            stream.samples()
    command = ("--target", "y", "--domain", "site", "--focal", "a")
    assert line in refused("fit", path, *command)
    assert line in refused("compare", path, *command)


def commented(comment, count=400):
    return [["id", "comment", "x", "y"], *([k, comment(k), k % 7, k / 3] for k in range(count))]


@pytest.mark.parametrize(
    ("table", "count"),
    [
        (commented(lambda k: "Good, works\nbuy again, yes\nfine"), 400),
        (commented(lambda k: "Good\nbuy again" if k % 50 == 0 else "fine"), 400),
        (commented(lambda k: "Good\nbuy again" if k == 3 else "fine", 20), 20),
        ([["x", "text"], *([k, "one, two\nthree, four"] for k in range(30))], 30),
        ([["text", "x"], *(["one\ntwo", k] for k in range(30))], 30),
        ([["x", "living\narea", "y"], *([k, k, k] for k in range(99))], 99),
        ([["x", "size"], *([k, '5" pipe'] for k in range(99))], 99),
    ],
)
def test_cells_that_span_lines_on_purpose(tmp_path, table, count):
    path = tmp_path / "data.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(table)
    read = read_file(path).table
    assert read.num_rows == read_table(path).num_rows == count
    for place in range(len(table[0])):
        assert str(read.column(place)[3].as_py())[:6] == str(table[4][place])[:6]


def test_marks_within_cells_are_texts(tmp_path):
    (tmp_path / "data.csv").write_text('x,size,y\n1,5" pipe,2\n2,3" pipe,4\n' + "3,plain,5\n" * 60)
    assert read_file(tmp_path / "data.csv").table["size"][:2].to_pylist() == ['5" pipe', '3" pipe']
    stream = StreamedSources(tmp_path / "data.csv", target="y", columns="x")
    assert len(stream.samples()["data"][1]) == 62


def test_one_cell_that_spans_lines_among_many_is_refused(tmp_path):
    with (tmp_path / "data.csv").open("w", newline="") as file:
        csv.writer(file).writerows(commented(lambda k: "Good\nbuy again" if k == 5 else "fine"))
    with pytest.raises(DataError, match="spans lines, from line 7 to line 8, and no other cell of its column does"):
        read_file(tmp_path / "data.csv")


def test_streams_name_the_separator_and_the_decimal_mark(tmp_path):
    text = "site;x;y\n" + "".join(f"a;{k},5;{k},25\n" for k in range(30))
    (tmp_path / "data.csv").write_text(text)
    with pytest.raises(DataError, match=r'separated by semicolons; pass separator=";" and decimal=","'):
        StreamedSources(tmp_path / "data.csv", target="y", domain="site").samples()
    stream = StreamedSources(tmp_path / "data.csv", target="y", domain="site", separator=";", decimal=",")
    assert sorted(stream.samples()["a"][0][:, 0])[:2] == [0.5, 1.5]
    (tmp_path / "short.csv").write_text("site,x,y\na,1,2\nb,2\n")
    with pytest.raises(DataError, match="give every row as many cells as the header has"):
        StreamedSources(tmp_path / "short.csv", target="y", domain="site").samples()
    (tmp_path / "latin.csv").write_bytes("site,größe,y\na,1,2\n".encode("latin-1"))
    with pytest.raises(DataError, match='pass encoding="latin-1"'):
        StreamedSources(tmp_path / "latin.csv", target="y", domain="site").samples()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"])
def test_encodings_are_found_out(tmp_path, encoding):
    text = "site;größe;y\n" + "".join(f"a;{k},5;{k}\n" for k in range(30))
    (tmp_path / "data.csv").write_bytes(text.encode(encoding))
    read = read_file(tmp_path / "data.csv")
    assert read.table.column_names == ["site", "größe", "y"]
    assert read.table["größe"][1].as_py() == 1.5
    assert any(note.code == "encoding" for note in read.notes) == (encoding == "cp1252")
