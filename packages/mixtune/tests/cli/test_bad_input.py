"""Bad input through the command line: a clear line and exit code 2, or a stated fallback."""

from __future__ import annotations

import shlex

import numpy as np
import pytest

from cli.command_line import SITES, as_json, refused, run, sites, write_rows


@pytest.fixture
def data(tmp_path):
    return sites(tmp_path / "data.csv")


def append(file, *lines):
    file.write_text(file.read_text() + "".join(f"{line}\n" for line in lines))
    return file


def test_a_source_with_one_row_is_noted(data):
    facts = as_json("fit", append(data, "rome,0.5,red,4.1"), *SITES)
    assert '1 domain has one row: "rome"' in facts["notes"]
    assert {domain["name"]: domain["rows"] for domain in facts["domains"]}["rome"] == 1


def test_a_focal_domain_with_one_row_falls_back_and_says_so(data):
    arguments = ("fit", append(data, "rome,0.5,red,4.1"), "--target", "y", "--domain", "site", "--focal", "rome")
    facts = as_json(*arguments)
    assert '1 domain has one row: "rome"' in facts["notes"]
    assert np.isfinite([domain["weight"] for domain in facts["domains"]]).all()
    assert not any("change" in domain for domain in facts["domains"])
    shown = run(*arguments).out
    assert "one row" in shown
    assert "without it" not in shown


@pytest.mark.parametrize("where", ["focal", "everywhere"])
def test_a_constant_target_is_noted(tmp_path, where):
    rng = np.random.default_rng(0)
    rows = [["a", rng.normal(), 5] for _ in range(8)]
    rows += [["b", rng.normal(), 5 if where == "everywhere" else round(rng.normal(), 3)] for _ in range(20)]
    file = write_rows(tmp_path / "data.csv", ["site", "x", "y"], rows)
    arguments = ("fit", file, "--target", "y", "--domain", "site", "--focal", "a")
    facts = as_json(*arguments, "--out", tmp_path / "model.mixtune")
    assert "every focal target is 5.0" in facts["notes"]
    assert run(*arguments).code == 0
    predicted = as_json("predict", tmp_path / "model.mixtune", file)["columns"]["prediction"]
    if where == "everywhere":
        assert predicted == pytest.approx([5.0] * 28)


def test_a_column_missing_in_one_file(tmp_path):
    write_rows(tmp_path / "a.csv", ["u", "v", "y"], [[1, 2, 3], [2, 3, 4]])
    write_rows(tmp_path / "b.csv", ["u", "y"], [[1, 3], [2, 4]])
    fit = ("fit", tmp_path / "a.csv", tmp_path / "b.csv", "--target", "y", "--linear")
    assert '"b.csv" has no column "v"; all its values there are missing' in as_json(*fit)["notes"]
    message = refused(*fit, "--missing", "refuse")
    assert '"v"' in message
    assert "b.csv" in message
    assert "--ignore" in message
    assert not [note for note in as_json(*fit, "--ignore", "v")["notes"] if '"v"' in note]


def test_text_where_numbers_belong_counts_as_missing(data):
    notes = as_json("fit", append(data, "paris,1.2 kg,red,3.0"), *SITES, "--linear")["notes"]
    assert 'column "size" has 1 text among its values ("1.2 kg"), which counts as missing' in notes
    assert "missing value" in refused("fit", data, *SITES, "--missing", "refuse")


def test_text_in_the_target_counts_as_missing(data):
    notes = as_json("fit", append(data, "paris,1.0,red,ten"), *SITES, "--linear")["notes"]
    assert 'column "y" has 1 text among its values ("ten"), which counts as missing' in notes
    assert '1 row of "data.csv" without a target is left out' in notes
    assert '"ten"' in refused("fit", data, *SITES, "--no-drop-missing-target")


def test_a_date(tmp_path):
    rows = [["a", f"2024-01-{day:02}", day] for day in range(1, 9)]
    file = write_rows(tmp_path / "data.csv", ["site", "day", "y"], rows)
    facts = as_json("fit", file, "--target", "y", "--domain", "site", "--focal", "a", "--linear")
    assert facts["columns"] == ["day (weekday)", "day (days since 2024-01-01)"]
    assert 'column "day" holds dates; it became weekday, days since 2024-01-01' in facts["notes"]


def test_all_problems_are_told_at_once_with_a_command_that_works(data):
    append(data, "paris,,red,3.0")
    wrong = ("fit", data, "--target=why", "--domain", "town", "--focal", "Berlin", "--ignore", "colr", "--linear")
    message = refused(*wrong)
    assert len(message.splitlines()) == 3
    assert '"why"' in message
    assert 'did you mean "colour"?' in message
    assert "Try: " not in message  # nothing is like "why"
    wrong = ("fit", data, "--target=Y", "--domain", "town", "--focal", "Berlin", "--ignore", "colr", "--linear")
    fixed = shlex.split(refused(*wrong).splitlines()[-1].removeprefix("Try: mixtune "))
    right = ("--target", "y", "--domain", "site", "--focal", "Berlin", "--ignore", "colour", "--linear")
    assert fixed == ["fit", str(data), *right]
    assert run(*fixed).code == 0
    # Values are looked at once the columns are known.
    wrong = ("fit", data, "--target", "y", "--domain", "site", "--focal", "berln", "--ignore", "colr", "--linear")
    message = refused(*wrong, "--missing", "refuse")
    assert len(message.splitlines()) == 4
    assert run(*shlex.split(message.splitlines()[-1].removeprefix("Try: mixtune "))).code == 0


def test_an_unknown_focal_label(data):
    message = refused("fit", data, "--target", "y", "--domain", "site", "--focal", "berln")
    assert "0 focal rows" in message
    assert 'did you mean "berlin"?' in message
    assert "--focal LABEL" in refused("fit", data, "--target", "y", "--domain", "site")


def test_no_focal_rows_left(data):
    data.write_text("site,size,colour,y\nberlin,1,red,\nparis,1,red,2\nparis,2,blue,3\nparis,3,red,4\n")
    message = refused("fit", data, *SITES, "--drop-missing-target")
    assert 'every row of the focal domain "berlin" lacks a target' in message


def test_an_empty_focal_file(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n")
    write_rows(tmp_path / "b.csv", ["x", "y"], [[1, 2], [2, 3]])
    assert "has no rows" in refused("fit", tmp_path / "a.csv", tmp_path / "b.csv", "--target", "y")


def test_duplicate_columns(tmp_path):
    file = write_rows(tmp_path / "data.csv", ["x", "x", "y"], [[1, 2, 3], [2, 3, 4]])
    facts = as_json("fit", file, "--target", "y", "--linear")
    assert facts["columns"] == ["x", "x (2)"]
    assert any('more than one column named "x"' in note for note in facts["notes"])


def test_whole_numbers_beyond_what_floats_tell_apart(tmp_path):
    file = write_rows(tmp_path / "data.csv", ["x", "y"], [[2**53 + 1, 3], [2**64 + 7, 4], [5, 6]])
    message = refused("fit", file, "--target", "y")
    assert "beyond 2^53" in message


def test_a_million_domain_labels(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("id,x,y\n" + "\n".join(f"{i},{i % 7},{i % 5}" for i in range(1_000_000)) + "\n")
    message = refused("fit", file, "--target", "y", "--domain", "id", "--focal", "3")
    assert "1,000,000" in message or "1000000" in message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--ignore", "colr"), 'did you mean "colour"?'),
        (("--target", "z"), '"z"'),
        (("--missing", "drop"), '"refuse" or "impute"'),
        (("--target-kind", "text"), '"auto" or "number" or "classes"'),
        (("--encoding", "latin-99"), "is unknown"),
        (("--decimal", ";"), 'must be "." or ","'),
        (("--domain", "town"), '"town"'),
    ],
)
def test_options_that_do_not_fit(data, options, words):
    assert words in refused("fit", data, *SITES, *options)


def test_files_that_cannot_be_read(tmp_path):
    assert "is not a file" in refused("fit", tmp_path / "no.csv", "--target", "y")
    assert "is a folder" in refused("fit", tmp_path, "--target", "y")
    (tmp_path / "a.xls").write_bytes(b"\xd0\xcf\x11\xe0 and so on")
    assert "save it as .xlsx or .csv" in refused("fit", tmp_path / "a.xls", "--target", "y")
    (tmp_path / "b.csv").write_bytes("größe,y\n1,2\n2,3\n".encode("latin-1"))
    assert "--encoding utf-16" not in refused("fit", tmp_path / "b.csv", "--target", "y", "--encoding", "ascii")
    assert as_json("fit", tmp_path / "b.csv", "--target", "y", "--linear")["columns"] == ["größe"]


def test_names_that_look_like_settings_are_shown_as_they_are(tmp_path):
    rows = [["a", f"text {row}", row] for row in range(40)]
    file = write_rows(tmp_path / "data.csv", ["site", "decimal=a", "y"], rows)
    message = refused("fit", file, "--target", "y", "--domain", "site", "--focal", "a")
    assert 'column "decimal=a" has 40 different texts' in message
    message = refused("fit", file, "--target", "y", "--domain", "site", "--focal", "focal=x")
    assert 'has "focal=x" in column "site"' in message


def test_a_target_of_5000_digits_is_not_to_be_ignored(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("site,x,y\n" + "".join(f"{'ab'[i % 2]},{i},{'9' * 5000 if i == 3 else i}\n" for i in range(20)))
    message = refused("fit", path, "--target", "y", "--domain", "site", "--focal", "a")
    assert "of 5,000 digits" in message
    assert "--ignore" not in message
    assert message.endswith("correct this number, or write fewer digits")


def test_long_names_of_domains_are_cut_off(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("site,x,y\n" + "".join(f"{'a' * 3000 if i % 2 else 'b'},{i},{i % 5}\n" for i in range(20)))
    message = refused("fit", path, "--target", "y", "--domain", "site", "--focal", "zz")
    assert f'"{"a" * 77}..."' in message
    assert len(message) < 300
