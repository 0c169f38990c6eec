"""Sources on disk: every kind of file gives the same rows, in blocks of any size."""

from __future__ import annotations

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest

from mixtune.errors import DataError, ParameterError
from mixtune.streaming import open_stream, stream_samples


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    sites = np.array(["a", " b", "c"])[rng.integers(0, 3, 103)]
    return pa.table(
        {"x": rng.standard_normal(103), "z": rng.integers(0, 9, 103), "y": rng.standard_normal(103), "site": sites}
    )


def write(table, path):
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=17)
    elif path.suffix == ".feather":
        feather.write_feather(table, str(path), chunksize=17)
    elif path.suffix == ".gz":
        csv.write_csv(table, path.with_suffix(""))
        path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))
        path.with_suffix("").unlink()
    else:
        csv.write_csv(table, path)
    return path


def rows_of(stream, size):
    """All rows, by domain, in order."""
    found = {}
    for block in stream.blocks(size):
        assert len(block.X) <= size
        for name, X, y in block.by_domain():
            found.setdefault(name, []).append(np.column_stack([X, y]))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def expected_rows(table):
    sites = np.array([site.strip() for site in table["site"].to_pylist()])
    rows = np.column_stack([table[name].to_numpy() for name in ("x", "z", "y")])
    return {site: rows[sites == site] for site in ("a", "b", "c")}


@pytest.mark.parametrize("ending", [".parquet", ".feather", ".csv", ".csv.gz"])
@pytest.mark.parametrize("size", [1, 10, 1000])
def test_every_kind_of_file_gives_the_same_rows(table, tmp_path, ending, size):
    stream = open_stream(write(table, tmp_path / f"all{ending}"), target="y", domain="site")
    assert stream.columns == ("x", "z")
    assert stream.rows == (103 if ending == ".parquet" else None)
    found = rows_of(stream, size)
    for site, rows in expected_rows(table).items():
        np.testing.assert_allclose(found[site], rows, rtol=1e-15)


@pytest.mark.parametrize("ending", [".parquet", ".feather", ".csv"])
@pytest.mark.parametrize("size", [1, 40, 1000])
def test_split_chunks_hold_every_row_once(table, tmp_path, ending, size):
    stream = open_stream(write(table, tmp_path / f"all{ending}"), target="y", domain="site")
    chunks = [part for chunk in stream.chunks for part in chunk.split(size)]
    rows = np.concatenate([np.column_stack([b.X, b.y]) for chunk in chunks for b in chunk.blocks(9)])
    np.testing.assert_allclose(rows, np.column_stack([table[name].to_numpy() for name in ("x", "z", "y")]), rtol=1e-15)
    identities = [str(chunk.identity()) for chunk in chunks]
    assert len(set(identities)) == len(chunks)
    assert len(chunks) == (1 if ending == ".csv" or size == 1000 else 7 if size == 1 else 3)


def test_domains_from_files_folders_and_names(table, tmp_path):
    expected = expected_rows(table)
    plain = {}
    for site, rows in expected.items():
        plain[site] = pa.table(dict(zip(("x", "z", "y"), rows.T)))
        write(plain[site], tmp_path / f"{site}.parquet")
        (tmp_path / "parts" / f"site={site}").mkdir(parents=True)
        write(plain[site], tmp_path / "parts" / f"site={site}" / "0.parquet")
    (tmp_path / "parts" / "_SUCCESS.csv").write_text("")
    sources = [
        ([tmp_path / f"{site}.parquet" for site in expected], None),
        ({site: tmp_path / f"{site}.parquet" for site in expected}, None),
        (tmp_path / "parts", "site"),
    ]
    for source, domain in sources:
        found = rows_of(open_stream(source, target="y", domain=domain), 20)
        assert list(found) == ["a", "b", "c"]
        for site, rows in expected.items():
            np.testing.assert_array_equal(found[site], rows)
    with pytest.raises(DataError, match='more than one file is named "0"'):
        open_stream(tmp_path / "parts", target="y")


@pytest.mark.parametrize("kind", ["array", "memmap", "path", "labels"])
def test_arrays(tmp_path, kind):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 3)).astype(np.float32), rng.standard_normal((50, 2))
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    paths = tmp_path / "X.npy", str(tmp_path / "y.npy")
    pair = {"path": paths, "memmap": tuple(np.load(path, mmap_mode="r") for path in paths)}.get(kind, (X, y))
    labels = np.arange(50) % 2
    if kind == "labels":
        stream = open_stream(pair, domain=labels)
        found = rows_of(stream, 7)
        np.testing.assert_array_equal(found["1"][:, :3], X[labels == 1])
    else:
        stream = open_stream({"a": pair})
        np.testing.assert_array_equal(rows_of(stream, 7)["a"], np.column_stack([X, y]))
        assert len(stream.chunks[0].split(20)) == 3
    assert (stream.n_inputs, stream.n_outputs, stream.rows) == (3, 2, 50)


def test_private_changes_to_a_mapped_array_survive(tmp_path):
    np.save(tmp_path / "X.npy", np.zeros((20, 1)))
    X = np.load(tmp_path / "X.npy", mmap_mode="c")
    X[:] = 1.0
    assert rows_of(open_stream((X, np.zeros(20))), 3)["0"][:, 0].sum() == 20
    assert X.sum() == 20


def test_whole_numbers_then_decimals_in_csv(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("x,y,site\n" + "1,2,007\n" * 700_000 + "1.5,2,7\n")
    found = rows_of(open_stream(path, target="y", domain="site"), 10**6)
    assert {site: len(rows) for site, rows in found.items()} == {"007": 700_000, "7": 1}


def test_mistakes(table, tmp_path):
    path = write(table, tmp_path / "all.parquet")
    for options, words in [
        ({"target": "x1"}, 'no column "x1"'),
        ({"target": "y", "domain": "sit"}, 'no column "sit"'),
        ({"target": "y"}, 'column "site" of'),
        ({"target": "y", "domain": "site", "columns": ["w"]}, 'no column "w"'),
    ]:
        with pytest.raises(DataError, match=words):
            open_stream(path, **options)
    with pytest.raises(ParameterError, match="target is missing"):
        open_stream(path)
    with pytest.raises(DataError, match="cannot be streamed"):
        open_stream(__file__, target="y")
    with pytest.raises(DataError, match="is not a file"):
        open_stream(tmp_path / "none.csv", target="y")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no tables"):
        open_stream(tmp_path / "empty", target="y")
    (tmp_path / "latin.csv").write_bytes(b"x\xe9,y\n1,2\n")
    with pytest.raises(DataError, match=r'latin.csv" cannot be read: .utf-8. codec'):
        open_stream(tmp_path / "latin.csv", target="y")
    with pytest.raises(DataError, match="one target per row"):
        open_stream((np.zeros((3, 2)), np.zeros(4)))
    with pytest.raises(DataError, match="differ in shape"):
        open_stream({"a": (np.zeros((3, 2)), np.zeros(3)), "b": (np.zeros((3, 1)), np.zeros(3))})


def test_faults_deep_in_a_file_say_where(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "1,2\n" * 500 + ",2\n")
    stream = open_stream(path, target="y")
    with pytest.raises(DataError, match=r'column "x" of .*rows from 501.*1 missing value'):
        list(stream.blocks(100))
    path.write_text("x,y\n" + "1,2\n" * 500 + "oops,2\n")
    with pytest.raises(DataError, match="oops"):
        list(open_stream(path, target="y").blocks(100))
    labels = pa.table({"x": [1.0, 2.0], "y": [1.0, 2.0], "site": ["a", None]})
    with pytest.raises(DataError, match="1 of 2 rows have no label"):
        open_stream(write(labels, tmp_path / "b.parquet"), target="y", domain="site")


def test_samples_are_uniform(tmp_path):
    X = np.arange(40.0)[:, None]
    path = tmp_path / "X.npy"
    np.save(path, X)
    counts = np.zeros(40)
    for seed in range(600):
        rows, _ = stream_samples((X, X[:, 0]), rows=10, seed=seed)["0"]
        assert len(set(rows[:, 0])) == 10
        counts[rows[:, 0].astype(int)] += 1
    # 600 draws of 10 out of 40: each row 150 times, with a standard deviation of about 10.6.
    assert np.abs(counts - 150).max() < 5 * 10.6
    assert abs(np.std(counts) - 10.6) < 4


def test_some_domains_come_whole_and_in_their_order():
    rng = np.random.default_rng(0)
    X, labels = np.arange(300.0)[:, None], rng.choice(["a", "b", "c"], 300)
    told = []
    options = {"domain": labels, "rows": 5, "whole": ["b"], "progress": lambda done, total: told.append((done, total))}
    found = stream_samples((X, X[:, 0]), memory_limit=20_000, **options)
    np.testing.assert_array_equal(found["b"][0], X[labels == "b"])
    # The draw does not depend on how many rows are read at a time.
    at_once = stream_samples((X, X[:, 0]), domain=labels, rows=5, whole=["b"])
    for name, (rows, targets) in found.items():
        np.testing.assert_array_equal(rows, at_once[name][0])
        np.testing.assert_array_equal(targets, at_once[name][1])
    assert len(found["a"][0]) == len(found["c"][0]) == 5
    assert (told[0], told[-1]) == ((0, 300), (300, 300))
    with pytest.raises(DataError, match='domain "b" has more than 9 rows'):
        stream_samples((X, X[:, 0]), most_whole=9, **options)
    with pytest.raises(DataError, match='no row belongs to domain "d"'):
        stream_samples((X, X[:, 0]), domain=labels, whole=["d"])
    with pytest.raises(DataError, match="more than half of memory_limit"):
        stream_samples((X, X[:, 0]), domain=labels, memory_limit=4000)


def test_text_in_csv_is_told_by_the_name_of_its_column(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("u,x,colour,y\n" + "1,2,red,3\n" * 3)
    with pytest.raises(DataError, match=r'column "colour" of ".*a.csv" cannot be read as numbers .*red'):
        open_stream(path, target="y")
    assert open_stream(path, target="y", ignore=["colour"]).columns == ("u", "x")
    with pytest.raises(
        ParameterError, match='ignore names "color", which is not a column of any table; did you mean "colour"'
    ):
        open_stream(path, target="y", ignore=["color"])


def test_a_file_given_twice_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"x": [1.0, 2.0], "y": [1.0, 2.0], "d": ["a", "b"]}), path)
    with pytest.raises(DataError, match="given more than once"):
        open_stream([path, tmp_path / "." / "a.parquet"], target="y", domain="d")
    with pytest.raises(DataError, match="given more than once"):
        open_stream({"a": [path, path]}, target="y", columns=["x"])


def test_columns_that_only_a_later_file_has_are_refused_unless_chosen(tmp_path):
    one, two = tmp_path / "one.parquet", tmp_path / "two.parquet"
    parquet.write_table(pa.table({"x": [1.0], "y": [1.0]}), one)
    parquet.write_table(pa.table({"x": [1.0], "y": [1.0], "more": [3.0]}), two)
    with pytest.raises(DataError, match=r'two\.parquet" has columns that the first file has not: "more"'):
        open_stream([one, two], target="y")
    assert open_stream([one, two], target="y", columns=["x"]).columns == ("x",)
    assert open_stream([two, one], target="y", columns=["x"]).rows == 2


def test_a_chunk_of_a_file_knows_where_it_begins(tmp_path):
    path = tmp_path / "a.parquet"
    x = np.arange(400.0)
    x[250] = np.nan
    parquet.write_table(pa.table({"x": x, "y": np.ones(400)}), path, row_group_size=100)
    chunks = open_stream(path, target="y").chunks[0].split(100)
    assert [chunk.first for chunk in chunks] == [0, 100, 200, 300]
    with pytest.raises(DataError, match="rows from 201"):
        list(chunks[2].blocks(100))
