"""``mixtune predict``: rows in, the same rows with predictions out."""

from __future__ import annotations

import csv
import subprocess
import sys
from io import StringIO

import numpy as np
import pyarrow.parquet as parquet
import pytest

from cli.command_line import SITES, as_json, in_process, refused, run, sites, write_rows
from mixtune.estimators import LocalRegressor, load

NEW = "id,colour,size\n007,red,1.50\n008,blue,-2\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    assert run("fit", sites(folder / "data.csv"), *SITES, "--out", folder / "model.mixtune").code == 0
    (folder / "new.csv").write_text(NEW)
    rng = np.random.default_rng(0)
    rows = [
        [site, x := rng.normal(), "yes" if x + 0.3 * rng.normal() > 0 else "no"] for site in "ab" for _ in range(25)
    ]
    classes = write_rows(folder / "classes.csv", ["site", "x", "sold"], rows)
    fitted = run("fit", classes, "--target", "sold", "--domain", "site", "--focal", "a", "--out", folder / "c.mixtune")
    assert fitted.code == 0
    return folder


def rows_of(text, separator=","):
    return list(csv.DictReader(StringIO(text, newline=""), delimiter=separator))


def test_to_the_terminal(folder):
    done = in_process("predict", folder / "model.mixtune", folder / "new.csv", "--interval", "0.9", "--std")
    assert done.code == 0, done.err
    rows = rows_of(done.out)
    assert [(row["id"], row["colour"], row["size"]) for row in rows] == [("007", "red", "1.50"), ("008", "blue", "-2")]
    model = load(folder / "model.mixtune")
    X = np.array([[1.5, 1.0], [-2.0, 0.0]])
    predictions, std = model.predict(X, return_std=True)
    lower, upper = model.predict_interval(X, coverage=0.9)
    for name, values in {"prediction": predictions, "std": std, "lower": lower, "upper": upper}.items():
        np.testing.assert_allclose([float(row[name]) for row in rows], values)
    # Notes must not get into the CSV.
    assert 'left out: "id"' in done.err


def test_rows_outside_the_training_range_are_marked(folder, tmp_path):
    new = tmp_path / "far.csv"
    new.write_text("colour,size\nred,1.5\nblue,99\n")
    facts = as_json("predict", folder / "model.mixtune", new)
    assert facts["columns"]["outside"] == ["", "size"]
    assert any("inputs of 1 of 2 rows lie outside the range of the training rows" in note for note in facts["notes"])


def test_json(folder):
    facts = as_json("predict", folder / "model.mixtune", folder / "new.csv", "--interval", "0.8")
    assert facts["rows"] == 2
    assert set(facts["columns"]) == {"prediction", "lower", "upper"}
    assert (facts["target"], facts["focal"], facts["written"]) == ("y", "berlin", None)


def test_to_files(folder, tmp_path):
    predict = ("predict", folder / "model.mixtune", folder / "new.csv", "--out")
    done = run(*predict, tmp_path / "out.csv")
    assert (done.code, done.out) == (0, "")
    assert "Wrote 2 rows to" in done.err
    assert run(*predict, tmp_path / "out.tsv").code == 0
    assert run(*predict, tmp_path / "out.parquet").code == 0
    rows = rows_of((tmp_path / "out.csv").read_text())
    assert rows == rows_of((tmp_path / "out.tsv").read_text(), "\t")
    table = parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert table["size"] == [1.5, -2.0]
    assert table["prediction"] == [float(row["prediction"]) for row in rows]
    assert "exists" in refused(*predict, tmp_path / "out.csv")
    assert run(*predict, tmp_path / "out.csv", "--force").code == 0
    assert "must end in" in refused(*predict, tmp_path / "out.ods")
    assert "is a folder; give the name of a file in it" in refused(*predict, tmp_path)


def test_parquet_in(folder, tmp_path):
    run("predict", folder / "model.mixtune", folder / "new.csv", "--out", tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet").drop_columns(["prediction"])
    parquet.write_table(table, tmp_path / "new.parquet")
    done = run("predict", folder / "model.mixtune", tmp_path / "new.parquet")
    assert rows_of(done.out)[1]["size"] == "-2.0"


def test_written_as_the_input_is(folder, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("colour;size\nred;1,5\n")
    done = run("predict", folder / "model.mixtune", new, "--separator", ";", "--decimal", ",")
    assert done.code == 0, done.err
    (row,) = rows_of(done.out, ";")
    assert row["size"] == "1,5"
    expected = load(folder / "model.mixtune").predict([[1.5, 1.0]])
    assert float(row["prediction"].replace(",", ".")) == pytest.approx(float(expected[0]))


def test_formulas_are_copied_unless_told_otherwise(folder, tmp_path):
    formulas = ["=1+1", "+cmd", "-x", "-inf", "@sum", "\tx", "\rx", "\uff1dx"]
    harmless = ["-5", "+2.5e3", "-.5 ", "plain", "a=b", "", "'q"]
    rows = [[text, "red", -1.5] for text in (*formulas, *harmless)]
    new = write_rows(tmp_path / "new.csv", ["=note", "colour", "size"], rows)
    predict = ("predict", folder / "model.mixtune", new)
    copied = rows_of(run(*predict).out)
    assert [row["=note"] for row in copied] == [*formulas, *harmless]
    shown = run(*predict, "--safe-cells").out
    assert run(*predict, "--safe-cells", "--out", tmp_path / "out.csv").code == 0
    assert (tmp_path / "out.csv").read_bytes().decode() == shown
    marked = rows_of(shown)
    assert [row.pop("'=note") for row in marked] == [*(f"'{text}" for text in formulas), *harmless]
    assert marked == [{name: row[name] for name in ("colour", "size", "prediction")} for row in copied]
    assert "text in Parquet and Excel files is no formula" in refused(
        *predict, "--safe-cells", "--out", tmp_path / "out.parquet"
    )


def test_control_characters_are_for_no_terminal_and_no_spreadsheet(folder, tmp_path):
    cells = ["\x1b[2J=x", "=cmd|' /C calc'!A0", "a\x07b", "\x9b31m", "two\nlines", "tab\tbed"]
    new = write_rows(tmp_path / "new.csv", ["note", "colour", "size"], [[text, "red", 1.5] for text in cells])
    predict = ("predict", folder / "model.mixtune", new)
    assert [row["note"] for row in rows_of(run(*predict).out)] == cells
    safe = [row["note"] for row in rows_of(run(*predict, "--safe-cells").out)]
    assert safe == ["[2J=x", "'=cmd|' /C calc'!A0", "ab", "31m", "two\nlines", "tab\tbed"]
    former = run(*predict, "--neutralise-formulas")
    assert [row["note"] for row in rows_of(former.out)] == safe
    shown = on_a_terminal(*predict)
    assert "\x1b" not in shown
    assert "\\x1b[2J=x" in shown
    assert "\\x9b31m" in shown


def on_a_terminal(*words):
    """What the command writes to a terminal."""
    import os
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mixtune", *map(str, words)]
    done = subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 4096):
            written += part
    except OSError:  # the other end is closed
        pass
    assert done.wait() == 0
    return written.decode()


def test_numbers_with_a_decimal_comma_are_no_formulas(folder, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("note;colour;size\n-1,5;red;-1,5\n-a;red;2\n")
    done = run("predict", folder / "model.mixtune", new, "--separator", ";", "--decimal", ",", "--safe-cells")
    assert [row["note"] for row in rows_of(done.out, ";")] == ["-1,5", "'-a"]


def test_classes(folder):
    predict = ("predict", folder / "c.mixtune", folder / "classes.csv")
    facts = as_json(*predict, "--proba")
    assert set(facts["columns"]["prediction"]) == {"no", "yes"}
    shares = np.array([facts["columns"]["probability of no"], facts["columns"]["probability of yes"]])
    np.testing.assert_allclose(shares.sum(axis=0), 1.0)
    likelier = np.array(["no", "yes"])[shares.argmax(axis=0)]
    assert likelier.tolist() == facts["columns"]["prediction"]
    assert "use --proba" in refused(*predict, "--interval", "0.9")


def test_a_model_of_one_focal_row_has_no_intervals(tmp_path):
    data, model = sites(tmp_path / "data.csv", rows=(1, 20, 20)), tmp_path / "model.mixtune"
    assert run("fit", data, *SITES, "--out", model).code == 0
    (tmp_path / "new.csv").write_text(NEW)
    assert run("predict", model, tmp_path / "new.csv").code == 0
    for option in (("--interval", "0.5"), ("--std",)):
        told = " ".join(refused("predict", model, tmp_path / "new.csv", *option).split())
        assert f"fit it again with more focal rows, or predict without {option[0]}" in told


def test_rows_of_other_domains_are_noted(folder):
    done = run("predict", folder / "model.mixtune", folder / "data.csv")
    assert 'other than "berlin"' in " ".join(done.err.split())


def test_mistakes(folder, tmp_path):
    model, new = folder / "model.mixtune", tmp_path / "new.csv"

    def with_rows(text, *options):
        new.write_text(text)
        return refused("predict", model, new, *options)

    assert "has no column" in with_rows("size\n1\n")
    assert "held numbers in training" in with_rows("size,colour\nbig,red\n")
    assert 'has a column "prediction" already' in with_rows("size,colour,prediction\n1,red,2\n")
    assert "has no rows" in with_rows("size,colour\n")
    assert "must be between 0 and 1" in with_rows(NEW, "--interval", "90")
    told = with_rows(NEW, "--interval", "0.99")
    assert "need at least" in told
    assert "give --interval a lower value or use --std" in " ".join(told.split())
    assert "--proba is for classes" in with_rows(NEW, "--proba")
    assert "there is no file" in refused("predict", tmp_path / "no.mixtune", new)
    (tmp_path / "cut.mixtune").write_bytes(model.read_bytes()[:-50])
    assert "cut.mixtune" in refused("predict", tmp_path / "cut.mixtune", new)
    assert "new.csv" in refused("predict", new, new)
    own = LocalRegressor().fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]).save(tmp_path / "own.mixtune")
    assert "was saved in Python" in refused("predict", own, new)


def test_a_reader_that_stops_early_sees_no_traceback(folder, tmp_path):
    new = tmp_path / "many.csv"
    new.write_text("colour,size\n" + "red,1.5\n" * 30_000)
    command = [sys.executable, "-c", "from mixtune.cli import main; main()", "predict", folder / "model.mixtune", new]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("colour,size,prediction")
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)
    assert errors == ""


def test_excel_out(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    data = sites(tmp_path / "data.csv", rows=(12, 30, 30))
    run("fit", data, *SITES, "--linear", "--out", tmp_path / "model.mixtune")
    header, *lines = data.read_text().splitlines()
    new = tmp_path / "new.csv"
    new.write_text("\n".join([f"{header},remark", *(f"{line},=1+1" for line in lines[:3])]))
    out = tmp_path / "out.xlsx"
    done = run("predict", tmp_path / "model.mixtune", new, "--out", out)
    assert done.code == 0, done.err
    first, *rows = openpyxl.load_workbook(out).active.iter_rows()
    names = [cell.value for cell in first]
    assert "prediction" in names
    cells = dict(zip(names, rows[0]))
    assert isinstance(cells["prediction"].value, float)
    # Text that begins like a formula stays text.
    assert (cells["remark"].value, cells["remark"].data_type) == ("=1+1", "s")
