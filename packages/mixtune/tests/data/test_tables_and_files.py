"""Tables and files: the same numbers through every door, and errors that name file, column and rows."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from extras import extra
from mixtune.data import Domains
from mixtune.errors import DataError, ParameterError

pd = extra("pandas")

COLUMNS = {
    "school": ["n", "s", "n", "s"],
    "size": [1, 2, 3, 4],
    "open": [True, False, True, True],
    "score": [0.1, 0.2, 0.3, 0.4],
    "rank": [4, 3, 2, 1],
}


def write(folder, name, columns):
    path = folder / name
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path)
    else:
        pd.DataFrame(columns).to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


def check_schools(domains):
    assert domains.names == ("n", "s")
    assert domains.focal == "s"
    assert domains["n"].columns == ("size", "open")
    np.testing.assert_array_equal(domains["n"].X, [[1, 1], [3, 1]])
    np.testing.assert_array_equal(domains["s"].X, [[2, 0], [4, 1]])
    np.testing.assert_array_equal(domains["s"].y, [[0.2, 3], [0.4, 1]])


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pa.table, lambda c: pd.DataFrame(c, index=list("wxyz"))])
def test_tables_of_every_kind(make):
    check_schools(Domains.from_table(make(COLUMNS), target=["score", "rank"], domain="school", focal="s"))


@pytest.mark.parametrize("name", ["all.csv", "all.tsv", "all.parquet"])
def test_one_file_with_a_domain_column(tmp_path, name):
    path = write(tmp_path, name, COLUMNS)
    check_schools(Domains.from_files(path, target=["score", "rank"], domain="school", focal="s"))
    check_schools(Domains.from_files([str(path)], target=["score", "rank"], domain="school", focal="s"))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_one_file_a_domain(tmp_path, ending):
    files = [
        write(tmp_path, f"north.{ending}", {"u": [1.5], "v": [2.5], "y": [3.5]}),
        write(tmp_path, f"south.{ending}", {"y": [6, 7], "v": [5, 5], "u": [4, 4]}),
    ]
    domains = Domains.from_files(files, target="y")
    assert domains.names == ("north", "south")
    assert domains.focal == "north"
    assert domains["south"].columns == ("u", "v")
    np.testing.assert_array_equal(domains["south"].X, [[4, 5], [4, 5]])
    np.testing.assert_array_equal(domains["south"].y, [6, 7])
    assert Domains.from_files(files, target="y", focal="south").focal == "south"
    assert Domains.from_files(files, target="y", columns=["v"])["north"].X.tolist() == [[2.5]]
    assert len(Domains.from_files(files[0], target="y")) == 1


def test_choosing_columns_leaves_text_alone():
    table = COLUMNS | {"name": list("pqrs")}
    domains = Domains.from_table(table, target="rank", domain="school", focal="n", columns=["score", "size"])
    assert domains["n"].columns == ("score", "size")
    np.testing.assert_array_equal(domains["n"].X, [[0.1, 1], [0.3, 3]])
    assert domains["n"].y.shape == (2,)


def test_kinds_of_numbers():
    table = pa.table(
        {
            "d": pa.array(["a", "b"]).dictionary_encode(),
            "x": pa.array([1.5, 2.5], pa.float32()),
            "y": pa.array([1.5, 2.5], pa.float32()),
            "decimal": pa.array([1, 2]).cast(pa.decimal128(21, 2)),
            "coded": pa.array([7, 8]).dictionary_encode(),
        }
    )
    domains = Domains.from_table(table, target="y", domain="d", focal="a")
    np.testing.assert_array_equal(domains["b"].X, [[2.5, 2, 8]])
    assert Domains.from_table(table, target="y", domain="d", focal="a", columns="x")["a"].X.dtype == np.float32


def test_a_fraction_after_many_whole_numbers(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("x,y\n" + "1,2\n" * 600_000 + "1.5,2\n")
    assert Domains.from_files(path, target="y")["long"].X[-1, 0] == 1.5


def test_folder_names_add_no_columns(tmp_path):
    folder = tmp_path / "school=3"
    folder.mkdir()
    path = write(folder, "part.parquet", {"x": [1], "y": [2]})
    assert Domains.from_files(path, target="y")["part"].columns == ("x",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x,y\n1,2\n?,3\n,4\n",
            r'column "x" of ".*a.csv" holds text: 2 of 3 rows .*"\?" in data row 2\), which may mark missing values',
        ),
        ("x,y\n1,2\n,3\nNA,4\n", r'column "x" of ".*a.csv" has 2 missing values in 3 rows \(the first in data row 2\)'),
        ("x,y\n1,2\n3,\n", r'column "y" of ".*a.csv" has 1 missing value'),
        ("x,y\n1,2\ninf,3\n", r'column "x" of ".*a.csv" has 1 infinite value in 2 rows'),
        ("x,y\n2020-01-01,2\n", r'column "x" of ".*a.csv" holds dates or times'),
        ("x,z\n1,2\n", r'a.csv" has no column "y"; known: "x", "z"'),
        ("x,Y\n1,2\n", r'a.csv" has no column "y"'),
        ("y\n1\n", r'a.csv" has no input columns besides "y"'),
        ("x,x,y\n1,2,3\n", r'more than one column named "x"'),
        ("x,y\n", "has no rows"),
        ("", "cannot be read as CSV: Empty"),
        ("x,y\n1,2,3\n", "cannot be read as CSV"),
        ("x;y\n1;2\n", "separated by semicolons"),
    ],
)
def test_bad_csv_files(tmp_path, text, message):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        Domains.from_files(path, target="y")


def test_files_must_have_the_same_columns(tmp_path):
    files = [
        write(tmp_path, "a.csv", {"u": [1], "v": [2], "y": [3]}),
        write(tmp_path, "b.csv", {"u": [1], "w": [2], "y": [3]}),
    ]
    with pytest.raises(DataError, match=r'b.csv" and ".*a.csv" differ in columns: missing "v" and extra "w"'):
        Domains.from_files(files, target="y")
    assert Domains.from_files(files, target="y", columns="u")["b"].columns == ("u",)
    with pytest.raises(DataError, match=r'b.csv" has no column "v"'):
        Domains.from_files(files, target="y", columns=["u", "v"])


def test_bad_paths_and_options(tmp_path):
    path = write(tmp_path, "a.csv", {"d": ["p", ""], "x": [1, 2], "y": [3, 4]})
    with pytest.raises(DataError, match="is not a file"):
        Domains.from_files(tmp_path / "none.csv", target="y")
    with pytest.raises(DataError, match=r"must end in one of \.csv"):
        Domains.from_files(tmp_path / "a.doc", target="y")
    with pytest.raises(DataError, match=r'is a folder; pass the files in it, such as sorted\(.*glob\("\*\.csv"\)\)'):
        Domains.from_files(tmp_path, target="y")
    for wrong in (pd.DataFrame({"x": [1]}), {"x": [1]}, pa.table({"x": [1]})):
        with pytest.raises(ParameterError, match=r"not files; pass it to Domains\.from_table"):
            Domains.from_files(wrong, target="y")
    with pytest.raises(ParameterError, match="holds a DataFrame, not files"):
        Domains.from_files([pd.DataFrame({"x": [1]})], target="y")
    for wrong in (None, 3, [3]):
        with pytest.raises(ParameterError, match="path"):
            Domains.from_files(wrong, target="y")
    for wrong in ("a.csv", tmp_path / "a.csv"):
        with pytest.raises(DataError, match=r"pass a file to Domains\.from_files"):
            Domains.from_table(wrong, target="y", domain="d", focal="p")
    (tmp_path / "a.parquet").write_text("x")
    with pytest.raises(DataError, match="cannot be read as PARQUET"):
        Domains.from_files(tmp_path / "a.parquet", target="y")
    with pytest.raises(ParameterError, match="paths is empty"):
        Domains.from_files([], target="y")
    with pytest.raises(ParameterError, match="goes with one file"):
        Domains.from_files([path, path], target="y", domain="d", focal="p")
    with pytest.raises(ParameterError, match="focal is not given"):
        Domains.from_files(path, target="y", domain="d")
    with pytest.raises(DataError, match=r'column "d" of ".*a.csv": 1 of 2 rows have no label'):
        Domains.from_files(path, target="y", domain="d", focal="p")
    with pytest.raises(DataError, match='more than one domain is named "a"'):
        Domains.from_files([path, path], target="y", columns="x")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target": "scor"}, DataError, 'no column "scor"; did you mean "score"'),
        ({"domain": "class"}, DataError, 'the table has no column "class"'),
        ({"columns": ["size", "score"]}, ParameterError, '"score", which is a target'),
        ({"columns": ["size", "size"]}, ParameterError, "distinct column names"),
        ({"target": []}, ParameterError, "must be a column name"),
        ({"target": "school"}, ParameterError, "is also a target"),
        ({"focal": "w"}, DataError, 'no domain "w"'),
    ],
)
def test_bad_choices(options, error, message):
    with pytest.raises(error, match=message):
        Domains.from_table(COLUMNS, **({"target": "score", "domain": "school", "focal": "n"} | options))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[1, 2]], "no named columns"),
        ({"d": ["a"], "x": [1, 2], "y": [1]}, "cannot be read as columns"),
        ({"d": ["a"], "x": [[1, 2]], "y": [1]}, "not numbers"),
        ({"d": ["a"], "x": ["1"], "y": [1]}, "numbers written as text"),
        ({"d": ["a"], "x": [None], "y": [1]}, "missing value"),
        (
            pa.table({"d": pa.array([], pa.string()), "x": pa.array([], pa.int64()), "y": pa.array([], pa.int64())}),
            "no rows",
        ),
    ],
)
def test_bad_tables(table, message):
    with pytest.raises(DataError, match=message):
        Domains.from_table(table, target="y", domain="d", focal="a")


def test_all_unusable_columns_are_named_at_once():
    table = {
        "d": ["a", "b", "a"],
        "street": ["p", "q", "r"],
        "day": pd.to_datetime(["2020-01-01"] * 3),
        "size": [1.0, None, 3.0],
        "fine": [1, 2, 3],
        "age": ["1", "?", "3"],
        "y": [1, 2, 3],
    }
    with pytest.raises(DataError) as caught:
        Domains.from_table(table, target="y", domain="d", focal="a")
    message = str(caught.value)
    assert message.startswith('4 columns of the table cannot be used: "street" holds text: 3 of 3 rows')
    for part in ('"day" holds dates', '"size" has 1 missing', '"age" holds text: 1 of 3', "may mark missing values"):
        assert part in message
    assert '"fine"' not in message
    assert message.endswith(", or list the columns to use with columns=[...]")
    many = {f"c{index}": ["p"] for index in range(30)} | {"d": ["a"], "y": [1]}
    with pytest.raises(DataError, match=r'30 columns .*; and also "c20", .*"c29"; encode text as numbers'):
        Domains.from_table(many, target="y", domain="d", focal="a")


@pytest.mark.parametrize("target", [["p", "q"], ["1", "?"], [1, None]])
def test_nobody_is_told_to_leave_the_target_out(target):
    with pytest.raises(DataError, match='column "y" of the table') as caught:
        Domains.from_table({"d": ["a", "b"], "x": [1, 2], "y": target}, target="y", domain="d", focal="a")
    assert "columns=" not in str(caught.value)
    assert "leave" not in str(caught.value)


def test_a_written_index_is_not_an_input(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]})
    frame.to_csv(tmp_path / "a.csv")
    with pytest.raises(DataError, match=r'a column named "", .*index=False, or list the columns.*columns='):
        Domains.from_files(tmp_path / "a.csv", target="y")
    assert Domains.from_files(tmp_path / "a.csv", target="y", columns="x")["a"].n_columns == 1
    assert Domains.from_files(tmp_path / "a.csv", target="y", columns=["", "x"])["a"].n_columns == 2
    with pytest.raises(DataError, match='a column named "Unnamed: 0"'):
        Domains.from_table(pd.read_csv(tmp_path / "a.csv"), target="y", domain="x", focal=1.0)
    frame.set_index(pd.Index(["p", "q"])).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="__index_level_0__"):
        Domains.from_files(tmp_path / "a.parquet", target="y")
