"""From files to domains and an encoder: the doors of the command line, and every bad table with its remedy."""

import json
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as parquet
import pytest

from extras import extra
from mixtune.data import Domains, TableEncoder, read_new, read_training
from mixtune.errors import DataError, ParameterError

pd = extra("pandas")

ROWS = """site,size,colour,open,y
n,1,red,yes,10
n,2,blue,no,20.5
s,3,red,yes,30
s,4,green,no,40
"""


STRICT = {"missing": "refuse", "drop_missing_target": False}


def write(folder, **files):
    """Write files named name_csv, with the text given."""
    paths = []
    for name, text in files.items():
        path = folder / f"{name}.csv"
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def read_one(folder, text, **options):
    (path,) = write(folder, data=text)
    return read_training(path, **({"target": "y", "domain": "site", "focal": "s"} | options))


# One file with a domain column, one file a domain


def test_one_file_with_a_domain_column(tmp_path):
    read = read_one(tmp_path, ROWS)
    assert read.domains.names == ("n", "s")
    assert read.domains.focal == "s"
    assert read.domains["n"].columns == read.encoder.names
    assert read.encoder.names == ("size", "colour=blue", "colour=green", "colour=red", "open=yes")
    np.testing.assert_array_equal(read.domains["n"].X, [[1, 0, 0, 1, 1], [2, 1, 0, 0, 0]])
    np.testing.assert_array_equal(read.domains["s"].y, [30, 40])
    assert read.notes == ()
    assert (read.encoder.domain, read.encoder.focal, read.encoder.target.kind) == ("site", "s", "number")


def test_one_file_a_domain(tmp_path):
    files = write(
        tmp_path, focal="size,colour,y\n1,red,1\n2,red,2\n", other="y,colour,size\n3,blue,3\n4,green,4\n5,red,5\n"
    )
    read = read_training(files, target="y")
    assert read.domains.focal == "focal"
    assert read.encoder.focal == "focal"
    assert read.encoder.names == ("size", "colour=blue", "colour=green", "colour=red")
    np.testing.assert_array_equal(read.domains["other"].X, [[3, 1, 0, 0], [4, 0, 1, 0], [5, 0, 0, 1]])
    assert read_training(files, target="y", focal="other").domains.focal == "other"


def test_parquet_and_csv_agree(tmp_path):
    (path,) = write(tmp_path, data=ROWS)
    twin = tmp_path / "data.parquet"
    pd.read_csv(path).astype({"colour": "category"}).to_parquet(twin)
    options = {"target": "y", "domain": "site", "focal": "s"}
    csv, typed = read_training(path, **options), read_training(twin, **options)
    assert csv.encoder == typed.encoder
    np.testing.assert_array_equal(csv.domains["s"].X, typed.domains["s"].X)


def test_numbers_alone_are_read_as_before(tmp_path):
    text = "site,a,b,y\nn,1,2.5,3\ns,4,5,6\nn,7,8,9\ns,1,1,1\n"
    (path,) = write(tmp_path, data=text)
    options = {"target": "y", "domain": "site", "focal": "s"}
    read, plain = read_training(path, **options).domains, Domains.from_files(path, **options)
    for name in plain.names:
        np.testing.assert_array_equal(read[name].X, plain[name].X)
        np.testing.assert_array_equal(read[name].y, plain[name].y)
        assert read[name].columns == plain[name].columns


def test_written_otherwise(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes("größe;y\n1,5;2\n2,5;3\n".encode("latin-1"))
    read = read_training(path, target="y", encoding="latin-1", separator=";", decimal=",")
    assert read.encoder.names == ("größe",)
    assert read.domains["data"].X.tolist() == [[1.5], [2.5]]


@pytest.mark.parametrize("option", ["encoding", "separator", "decimal"])
def test_an_empty_way_of_writing_is_refused(tmp_path, option):
    path = tmp_path / "data.csv"
    path.write_text("x,y\n1,2\n")
    with pytest.raises(ParameterError, match=f'{option}=""'):
        read_training(path, target="y", **{option: ""})


# Choices


def test_leaving_columns_out(tmp_path):
    read = read_one(tmp_path, ROWS, ignore=["colour", "open"])
    assert read.encoder.names == ("size",)
    assert read.encoder.unused == ("colour", "open")
    assert read_one(tmp_path, ROWS, ignore="colour").encoder.names == ("size", "open=yes")
    chosen = read_one(tmp_path, ROWS, columns=["open", "size"])
    assert chosen.encoder.names == ("open=yes", "size")
    assert chosen.encoder.encode({"open": ["no"], "size": [1], "colour": ["red"]}).notes == ()


def test_ignored_columns_need_not_be_in_every_file(tmp_path):
    files = write(tmp_path, a="x,y,id\n1,1,p\n2,2,q\n", b="x,y\n3,3\n4,4\n")
    assert read_training(files, target="y", ignore="id").encoder.names == ("x",)


def test_codes_as_categories(tmp_path):
    text = "zip,y\n01,1\n02,2\n01,3\n10,4\n"
    read = read_training(write(tmp_path, data=text), target="y", categories="zip")
    assert read.encoder.names == ("zip=01", "zip=02", "zip=10")
    (new,) = write(tmp_path, new="zip\n02\n2\n")
    encoded = read_new(new, read.encoder)
    assert encoded.X.tolist() == [[0, 1, 0], [0, 0, 0]]
    assert '("2")' in encoded.notes[0]


def test_missing_values_filled_in_over_all_tables(tmp_path):
    files = write(tmp_path, a="x,c,z,y\n1,red,1,1\n,blue,2,2\n", b="x,c,z,y\n5,?,3,3\n9,red,4,4\n")
    read = read_training(files, target="y", missing="impute")
    assert read.encoder.names == ("x", "x (missing)", "c=blue", "c=red", "c=(missing)", "z")
    np.testing.assert_array_equal(read.domains["a"].X, [[1, 0, 0, 1, 0, 1], [5, 1, 1, 0, 0, 2]])
    np.testing.assert_array_equal(read.domains["b"].X, [[5, 0, 0, 0, 1, 3], [9, 0, 0, 1, 0, 4]])
    assert read.notes == ('missing values were imputed: "x" (1), "c" (1)',)


def test_numbers_with_markers_in_one_file_only(tmp_path):
    files = write(tmp_path, a="x,y\n1,1\n3,2\n", b="x,y\n?,3\n7,4\n", c="x,y\n-,5\nNA,6\n")
    read = read_training(files, target="y", missing="impute")
    assert read.encoder.names == ("x", "x (missing)")
    assert read.domains["b"].X.tolist() == [[3, 1], [7, 0]]
    assert read.domains["c"].X.tolist() == [[3, 1], [3, 1]]


def test_columns_that_say_nothing_are_left_out(tmp_path):
    text = "x,unit,void,y\n1,cm,,1\n2,cm,,2\n"
    read = read_training(write(tmp_path, data=text), target="y", missing="impute")
    assert read.encoder.names == ("x",)
    assert read.encoder.unused == ("unit", "void")
    assert read.notes == (
        'column "unit" is "cm" in every row and is left out',
        'column "void" has no values and is left out',
    )


def test_columns_without_name_and_values_are_left_out_silently(tmp_path):
    text = "x,,y,,\n" + "".join(f"{row}.5,{row},{row},, \n" for row in range(3))
    read = read_training(write(tmp_path, data=text), target="y")
    assert read.encoder.names == ("x",)
    assert read.notes == ('column "Unnamed: 1" has no name, like a column of row numbers; it is left out',)


@pytest.mark.parametrize(
    ("column", "note"),
    [
        (["a", "?", "b", "a"], 'has the category "?"; if that marks missing values, pass missing="impute"'),
        (["Red", "red", "b", "a"], "differ only in capital letters"),
    ],
)
def test_odd_levels_are_noted(tmp_path, column, note):
    text = "x,y\n" + "".join(f"{value},{row}\n" for row, value in enumerate(column))
    assert note in read_training(write(tmp_path, data=text), target="y", missing="refuse").notes[0]


# Targets


@pytest.mark.parametrize(
    ("values", "classes", "codes"),
    [
        (["no", "yes", "no", "maybe"], ("maybe", "no", "yes"), [1, 2, 1, 0]),
        (["true", "false", "true", "true"], ("false", "true"), [1, 0, 1, 1]),
    ],
)
def test_classes(tmp_path, values, classes, codes):
    text = "x,y\n" + "".join(f"{row},{value}\n" for row, value in enumerate(values))
    read = read_training(write(tmp_path, data=text), target="y")
    assert read.encoder.target.classes == classes
    assert read.encoder.target.kind == "classes"
    assert read.domains["data"].y.tolist() == codes


def test_odd_classes_are_noted(tmp_path):
    (path,) = write(tmp_path, data="x,y\n1,Yes\n2,yes\n3,?\n")
    marked, capitals = read_training(path, target="y", drop_missing_target=False).notes
    assert 'category "?"; if that marks missing values, pass drop_missing_target=True' in marked
    assert "capital letters" in capitals
    assert read_training(path, target="y").encoder.target.classes == ("Yes", "yes")


def test_numbers_as_classes(tmp_path):
    files = write(tmp_path, a="x,y\n1,10\n2,9\n", b="x,y\n1,-1\n2,9\n")
    read = read_training(files, target="y", target_kind="classes")
    assert read.encoder.target.classes == ("-1", "9", "10")
    assert read.domains["a"].y.tolist() == [2, 1]
    assert read_training(files, target="y").encoder.target.classes is None


def test_truth_values_as_numbers(tmp_path):
    (path,) = write(tmp_path, data="x,y\n1,true\n2,false\n")
    read = read_training(path, target="y", target_kind="number")
    assert read.encoder.target.classes is None
    assert read.domains["data"].y.tolist() == [1, 0]


def test_rows_without_a_target_are_dropped_on_request(tmp_path):
    text = "site,x,y\nn,1,1\ns,2,\nm,3,\ns,100,4\nn,5,6\ns,6,?\n"
    read = read_one(tmp_path, text, drop_missing_target=True, missing="impute")
    assert read.domains.names == ("n", "s")
    assert read.domains["s"].X.tolist() == [[100]]
    assert read.domains["n"].y.tolist() == [1, 6]
    assert read.encoder.columns[0].median == 5
    assert "3 rows of" in read.notes[0]
    with pytest.raises(DataError, match='every row of the focal domain "m" lacks a target'):
        read_one(tmp_path, text, focal="m", drop_missing_target=True)


def test_a_file_without_any_target_is_dropped_on_request(tmp_path):
    files = write(tmp_path, a="x,y\n1,1\n2,2\n", b="x,y\n1,\n2,\n")
    read = read_training(files, target="y", drop_missing_target=True)
    assert read.domains.names == ("a",)
    with pytest.raises(DataError, match='focal domain "b" lacks a target'):
        read_training(files, target="y", focal="b", drop_missing_target=True)


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (["1", "", "3"], STRICT, r'"y" of .* has 1 missing target in 3 rows .*drop_missing_target=True'),
        (["a", "", "b"], STRICT, r"1 missing target in 3 rows .*drop_missing_target=True"),
        (["1", "?", "3"], STRICT, r'1 missing target in 3 rows \(the first in data row 2, "\?"\); .*drop_missing'),
        (["", "", ""], {}, "has no values"),
        (["2020-01-01"] * 3, {}, "dates or times"),
        (["1", "inf", "3"], STRICT, "infinite"),
        (["1", "99999999999999999999", "3"], {}, r"beyond 2\^53 \(such as 99999999999999999999\)"),
        (["a", "b", "c"], {"target_kind": "number"}, r'holds text \(such as "a"\)'),
        (["1.5", "2", "3"], {"target_kind": "classes"}, "fractions"),
        (["a", "a", "a"], {}, 'every target in column "y" of .* is "a"'),
        ([f"text {row}" for row in range(20)], {}, "20 different texts in 20 rows, too many for classes"),
    ],
)
def test_bad_targets(tmp_path, values, options, message):
    mark = options.get("separator", ",")
    text = f"x{mark}y\n" + "".join(f"{row}{mark}{value}\n" for row, value in enumerate(values))
    with pytest.raises(DataError, match=message):
        read_training(write(tmp_path, data=text), target="y", **options)


# Notes on domains


def test_small_and_uniform_domains_are_noted(tmp_path):
    text = "site,x,y\na,1,1\nb,2,3\nb,3,3\nc,4,4\nc,5,4\nc,6,4\nc,7,4\n"
    assert read_one(tmp_path, text, focal="b").notes == (
        '1 domain has one row: "a"',
        "every focal target is 3.0",
        'all targets are the same within 1 of the sources: "c"',
    )
    codes = [note.code for note in read_one(tmp_path, text, focal="b").notes]
    assert codes == ["one-row", "constant-focal-target", "constant-source-targets"]
    classes = "site,x,y\nb,2,no\nb,3,no\nc,4,yes\nc,5,no\n"
    assert read_one(tmp_path, classes, focal="b").notes == ('every focal target is "no"',)


# Bad tables


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (ROWS, {"target": "z"}, r'data\.csv" has no column "z"; known: "site"'),
        (ROWS, {"domain": "sites"}, 'has no column "sites"; did you mean "site"'),
        (ROWS, {"focal": "north"}, 'has "north" in column "site", so there are 0 focal rows; known: "n", "s"'),
        (ROWS, {"columns": ["sise"]}, 'no column "sise"; did you mean "size"'),
        ("", {}, "cannot be read as CSV: Empty"),
        ("site,x,y\n", {}, "has no rows"),
        ("site,y\ns,1\ns,2\n", {}, "no input columns"),
        ("site,x,y\n,1,1\n,2,2\n", {}, "2 of 2 rows have no label"),
        ("site,x,y\ns,a,1\ns,a,2\n", {}, "no input columns that can be used"),
        ("site,x,y\ns,,1\ns,2,2\n", STRICT, r'"x" of .* has 1 missing value .*missing="impute".*ignore="x"'),
        ("site,x,y\ns,,1\ns,a,2\n", STRICT, '"x" of .* has 1 missing value'),
        ("site,x,y\ns,1,1\ns,2,2\ns,?,3\n", STRICT, r'1 missing value .*data row 3, "\?"\); .*missing="impute"'),
        ("site,x,y\ns,inf,1\ns,2,2\n", STRICT, "infinite"),
        ("site,x,y\ns,9007199254740993,1\ns,2,2\n", {}, "no input columns that can be used"),
        ("site,,y\ns,1,1\ns,2,2\n", {}, "no input columns"),
        (
            "site,x,y\n" + "s,1,1\n" * 20 + "s,1,1,1\n" * 8,
            {},
            "8 rows of .* do not have 3 cells, as the header has",
        ),
    ],
)
def test_bad_tables(tmp_path, text, options, message):
    with pytest.raises(DataError, match=message):
        read_one(tmp_path, text, **options)


@pytest.mark.parametrize("values", ["1.5", "red"])
def test_refused_missing_values_are_as_many_as_would_be_imputed(tmp_path, values):
    text = "site,x,y\n" + "".join(f"s,{cell},{row}\n" for row, cell in enumerate([values, "", "?", "NA", "2", ""]))
    with pytest.raises(DataError, match="has 4 missing values in 6 rows"):
        read_one(tmp_path, text, missing="refuse")
    assert any('"x" (4)' in note for note in read_one(tmp_path, text, missing="impute").notes)


def test_advice_is_given_as_each_place_types_it(tmp_path):
    with pytest.raises(DataError) as caught:
        read_one(tmp_path, "site,row id,y\ns,,1\ns,2,2\n", missing="refuse")
    assert caught.value.code == "unusable-columns"
    assert caught.value.fields["columns"] == ("row id",)
    assert 'missing="impute", or leave out such columns with ignore="row id"' in str(caught.value)
    assert "--missing impute, or leave out such columns with --ignore 'row id'" in caught.value.render("terminal")
    (note,) = read_one(tmp_path, "site,x,y\ns,?,1\ns,a,2\n", missing="refuse").notes
    assert note.code == "marker-level"
    assert note.render("terminal").endswith("pass --missing impute")


def test_floats_that_are_large_are_fine(tmp_path):
    (path,) = write(tmp_path, data="x,y\n6.02e23,1\n1e300,2\n")
    assert read_training(path, target="y").domains["data"].X.tolist() == [[6.02e23], [1e300]]


def test_identifiers_are_left_out(tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"{row},{key},person {row},{row % 7},{rng.normal():.3f}\n" for row, key in enumerate(rng.permutation(40))]
    path = write(tmp_path, data="row,customer_id,name,x,y\n" + "".join(lines))
    read = read_training(path, target="y")
    assert read.encoder.names == ("x",)
    assert [note.fields["column"] for note in read.notes if note.code == "identifier"] == ["row", "customer_id", "name"]
    assert "--keep row uses it" in read.notes[0].render("terminal")
    assert read_training(path, target="y", keep="row,customer_id").encoder.names == ("row", "customer_id", "x")
    assert len(read_training(path, target="y", keep="name", max_levels=40).encoder.names) == 41
    assert read_training(path, target="y", ignore="name,row").encoder.unused == ("row", "customer_id", "name")


@pytest.mark.parametrize("values", [np.arange(30) * 1.5, np.arange(30) ** 2, np.arange(30) % 29, np.arange(19)])
def test_other_numbers_are_no_identifiers(values):
    table = {"site": ["a"] * len(values), "x": values, "y": np.sin(np.arange(len(values)))}
    assert read_training(table, target="y", domain="site", focal="a").encoder.names == ("x",)


def test_the_rarest_of_many_levels_are_joined(tmp_path):
    lines = [f"word {min(row // 3, 20 + row % 15)},{row}\n" for row in range(200)]
    path = write(tmp_path, data="c,y\n" + "".join(lines))
    read = read_training(path, target="y", max_levels=5)
    assert len(read.encoder.names) == 5
    assert read.encoder.names[-1] == "c=(other)"
    assert "the 4 most frequent are used" in read.notes[0]
    np.testing.assert_array_equal(read.domains["data"].X.sum(axis=1), 1)


@pytest.mark.parametrize(("rows", "each"), [(11, 1), (21, 2), (30_000, 2)])
def test_very_many_domains_are_refused(tmp_path, rows, each):
    path = tmp_path / "data.csv"
    label = np.arange(rows) // each
    pa.csv.write_csv(pa.table({"id": label, "x": np.ones(rows), "y": np.ones(rows)}), path)
    with pytest.raises(
        DataError, match=rf'"id" of .* {len(set(label)):,} different labels for {rows:,} rows; is it an'
    ):
        read_training(path, target="y", domain="id", focal="1")


def test_few_rows_may_have_few_labels(tmp_path):
    text = "site,x,y\n" + "".join(f"{row},{row},{row}\n" for row in range(10))
    assert len(read_one(tmp_path, text, focal="3").domains) == 10


def test_a_million_labels_are_refused_at_once(tmp_path):
    path = tmp_path / "data.parquet"
    parquet.write_table(pa.table({"id": np.arange(10**6), "x": np.ones(10**6), "y": np.ones(10**6)}), path)
    start = time.process_time()
    with pytest.raises(DataError, match="1,000,000 different labels for 1,000,000 rows"):
        read_training(path, target="y", domain="id", focal="1")
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("x,C,y\n1,p,2\n", r'b\.csv" and ".*a\.csv" differ in columns: missing "c" and extra "C"; .*ignore="C,c"'),
        ("u,v,y\n1,p,2\n", r'differ in columns: missing "x", "c" and extra "u", "v"'),
        ("x,c\n1,p\n", r'b\.csv" has no column "y"'),
        (
            "x,c,y\nlow,p,1\n",
            r'"x" holds numbers in ".*a\.csv" and text in ".*b\.csv" \(the first is "low" in data row 1',
        ),
        ("x,c,y\n1,7,1\n", r'"c" holds numbers in ".*b\.csv" and text in ".*a\.csv" .*categories="c"'),
        ("x,c,y\n1,p,low\n", r'"y" holds numbers in ".*a\.csv" and text in ".*b\.csv"'),
        ("x,c,y\n", r'b\.csv" has no rows'),
        ("", r'b\.csv" cannot be read as CSV: Empty'),
    ],
)
def test_files_that_differ(tmp_path, second, message):
    files = write(tmp_path, a="x,c,y\n1,p,1\n2,q,2\n", b=second)
    with pytest.raises(DataError, match=message):
        read_training(files, target="y")


@pytest.mark.parametrize("second", ["x,y\n1,2\n", "x,c,d,y\n1,p,3,4\n"])
def test_files_that_differ_are_refused_where_missing_values_are(tmp_path, second):
    files = write(tmp_path, a="x,c,y\n1,p,1\n2,q,2\n", b=second)
    for order in (files, files[::-1]):
        with pytest.raises(DataError, match="differ in columns"):
            read_training(order, target="y", missing="refuse")


def test_codes_that_are_text_in_one_file_only(tmp_path):
    files = write(tmp_path, a="flat,y\n1,1\n2,2\n", b="flat,y\n1,3\n2a,4\n")
    with pytest.raises(DataError, match=r'holds numbers in .* and text in .*"2a" in data row 2'):
        read_training(files, target="y")
    assert read_training(files, target="y", categories=["flat"]).encoder.names == ("flat=1", "flat=2", "flat=2a")


def test_files_given_twice_or_named_alike(tmp_path):
    files = write(tmp_path, a="x,y\n1,1\n2,2\n", b="x,y\n1,3\n2,4\n")
    read = read_training([files[0], *files], target="y")
    assert read.domains.names == ("a", "b")
    assert read.notes == ("1 file given more than once; each is read once",)
    (tmp_path / "more").mkdir()
    (twin,) = write(tmp_path / "more", a="x,y\n1,1\n2,2\n")
    with pytest.raises(DataError, match=r'would both be the domain "a"; rename'):
        read_training([*files, twin], target="y")


def test_unknown_focal_file(tmp_path):
    files = write(tmp_path, berlin="x,y\n1,1\n2,2\n", paris="x,y\n1,3\n2,4\n")
    with pytest.raises(DataError, match=r'no domain "berlni" among the files; did you mean "berlin"\?'):
        read_training(files, target="y", focal="berlni")
    with pytest.raises(DataError, match=r'is one domain, "berlin", not "rome"; .*domain="COLUMN"'):
        read_training(files[0], target="y", focal="rome")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"focal": None}, r'focal="LABEL", one of "n", "s"'),
        ({"focal": 3}, "focal=3 must be the name"),
        ({"missing": "drop"}, 'must be "refuse" or "impute"'),
        ({"max_levels": 1}, "max_levels must be a whole number >= 2"),
        ({"max_levels": True}, "max_levels must be a whole number >= 2"),
        ({"target_kind": "text"}, 'target_kind="text"'),
        ({"ignore": ["colours"]}, 'ignore names "colours", which is not a column of any table; did you mean "colour"'),
        ({"categories": ["sise"]}, 'categories names "sise"'),
        ({"ignore": ["y"]}, 'column "y" is the target'),
        ({"ignore": ["site"]}, 'column "site" is the domain'),
        ({"ignore": "size", "columns": ["size"]}, 'columns and ignore both name "size"'),
        ({"target": ["y"]}, "name of one column"),
        ({"target": "site"}, "is also a target"),
    ],
)
def test_bad_options(tmp_path, options, message):
    with pytest.raises(ParameterError, match=message):
        read_one(tmp_path, ROWS, **options)


def test_a_domain_column_goes_with_one_file(tmp_path):
    files = write(tmp_path, a=ROWS, b=ROWS)
    with pytest.raises(ParameterError, match="goes with one file, 2 are given"):
        read_training(files, target="y", domain="site", focal="s")


@pytest.mark.parametrize(
    "labels",
    [pd.Categorical(["n", "n", "s", "s"]), [1, 1, 2, 2], [1.5, 1.5, 2.5, 2.5], [True, True, False, False]],
)
def test_labels_of_every_kind(tmp_path, labels):
    path = tmp_path / "data.parquet"
    pd.DataFrame({"site": labels, "x": [1, 2, 3, 4], "y": [1, 2, 3, 4]}).to_parquet(path)
    focal = str(labels[2])
    read = read_training(path, target="y", domain="site", focal=focal)
    assert read.domains.focal_domain.y.tolist() == [3, 4]
    assert read_new(path, read.encoder).X.tolist() == [[1], [2], [3], [4]]


def test_lists_are_no_labels(tmp_path):
    path = tmp_path / "data.parquet"
    parquet.write_table(pa.table({"site": [[1], [2]], "x": [1, 2], "y": [1, 2]}), path)
    with pytest.raises(DataError, match="one text or number per row"):
        read_training(path, target="y", domain="site", focal="1")


# New rows


def test_new_rows_are_encoded_like_the_training_rows(tmp_path):
    read = read_one(tmp_path, ROWS)
    encoder = TableEncoder.from_dict(json.loads(json.dumps(read.encoder.to_dict())))
    encoded = read_new(tmp_path / "data.csv", encoder)
    np.testing.assert_array_equal(encoded.X, np.vstack([read.domains["n"].X, read.domains["s"].X]))
    assert len(encoded.notes) == 1
    assert '2 labels in 4 rows (the first in data row 1) other than "s"' in encoded.notes[0]


def test_new_rows_come_back_as_written(tmp_path):
    encoder = read_one(tmp_path, ROWS).encoder
    (new,) = write(tmp_path, new="id,open,colour,size,when\n007,yes,red,1.50,2020-01-01\n010,no,mauve,02,\n")
    encoded = read_new(new, encoder)
    assert encoded.X.tolist() == [[1.5, 0, 0, 1, 1], [2, 0, 0, 0, 0]]
    assert encoded.table.to_pydict() == {
        "id": ["007", "010"],
        "open": ["yes", "no"],
        "colour": ["red", "mauve"],
        "size": ["1.50", "02"],
        "when": ["2020-01-01", ""],
    }
    assert '"id", "when"' in encoded.notes[0]
    assert '"mauve"' in encoded.notes[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size,colour\n1,red\n", r'new\.csv" has no column "open"'),
        ("size,colour,open\nbig,red,yes\n", r'holds text \(the first is "big" in data row 1\), and held numbers'),
        ("size,colour,open\n,red,yes\n", '1 missing value .*missing="impute"'),
        ("size,colour,open\n99999999999999999999,red,yes\n", r"beyond 2\^53"),
        ("size,colour,open\n2020-01-01,red,yes\n", "holds dates, and held numbers"),
        ("size,colour,open\n", "has no rows"),
    ],
)
def test_bad_new_rows(tmp_path, text, message):
    encoder = read_one(tmp_path, ROWS, missing="refuse").encoder
    (new,) = write(tmp_path, new=text)
    with pytest.raises(DataError, match=message):
        read_new(new, encoder)


def test_time_for_many_rows(tmp_path):
    rng, rows = np.random.default_rng(0), 100_000
    words = np.array([f"level {index}" for index in range(10)])
    columns = {f"x{index}": rng.normal(size=rows) for index in range(10)}
    columns |= {f"c{index}": words[rng.integers(0, 10, rows)] for index in range(5)}
    path = tmp_path / "data.parquet"
    parquet.write_table(
        pa.table(columns | {"site": words[rng.integers(0, 10, rows)], "y": rng.normal(size=rows)}), path
    )
    start = time.process_time()
    read = read_training(path, target="y", domain="site", focal="level 3", missing="impute")
    # A loop over cells would take several times as long, even on a busy machine.
    assert time.process_time() - start < 5
    assert len(read.encoder.names) == 60
