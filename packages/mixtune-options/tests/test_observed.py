"""Observed paths: the same numbers through every door, and errors that name the file and the place."""

import numpy as np
import pytest

from extras import extra
from mixtune.errors import DataError, ParameterError
from mixtune_options import observed_folder, observed_paths

pd = extra("pandas")

PATHS = np.array([[100.0, 101.5, 99.0], [100.0, 97.0, -3.0]])


def write(folder, name, paths=PATHS, **options):
    file = folder / name
    if file.suffix == ".npy":
        np.save(file, paths)
    elif file.suffix == ".csv":
        pd.DataFrame(paths).to_csv(file, index=False, header=options.get("header", False))
    else:
        pd.DataFrame(paths, columns=[f"t{i}" for i in range(np.shape(paths)[1])]).to_parquet(file)
    return file


@pytest.mark.parametrize("source", [PATHS, PATHS.tolist(), PATHS[:, :, None], pd.DataFrame(PATHS)])
def test_arrays(source):
    paths = observed_paths(source, dates=2)
    assert paths.shape == (2, 3, 1)
    np.testing.assert_array_equal(paths[:, :, 0], PATHS)


def test_arrays_are_copied_as_floats():
    given = np.ones((2, 3), dtype=np.int32)
    paths = observed_paths(given)
    paths[:] = 5
    assert paths.dtype == np.float64
    assert given.max() == 1
    assert observed_paths(np.ones((4, 3, 2), dtype=np.float32)).shape == (4, 3, 2)


@pytest.mark.parametrize("name", ["a.npy", "a.csv", "a.parquet", "A.CSV"])
def test_files(tmp_path, name):
    file = write(tmp_path, name) if name != "A.CSV" else write(tmp_path, "a.csv").rename(tmp_path / name)
    for source in (file, str(file)):
        np.testing.assert_array_equal(observed_paths(source)[:, :, 0], PATHS)


def test_csv_with_a_header_blank_lines_and_a_byte_order_mark(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("today,1 May,2 May\n100,101.5,99\n\n100,97,-3\n", encoding="utf-8-sig")
    np.testing.assert_array_equal(observed_paths(file)[:, :, 0], PATHS)


def test_several_assets_in_npy(tmp_path):
    cube = np.random.default_rng(0).normal(size=(4, 3, 2))
    np.testing.assert_array_equal(observed_paths(write(tmp_path, "a.npy", cube)), cube)


def test_folders(tmp_path):
    for name in ("b.npy", "a.csv", "c.parquet"):
        write(tmp_path, name)
    (tmp_path / "README.txt").write_text("not paths")
    (tmp_path / "deeper.csv").mkdir()
    found = observed_folder(tmp_path, dates=2)
    assert list(found) == ["a", "b", "c"]
    for paths in found.values():
        np.testing.assert_array_equal(paths[:, :, 0], PATHS)


def test_folders_that_do_not_fit(tmp_path):
    with pytest.raises(DataError, match="is not a folder"):
        observed_folder(tmp_path / "nowhere")
    with pytest.raises(DataError, match="holds no paths"):
        observed_folder(tmp_path)
    write(tmp_path, "a.csv")
    write(tmp_path, "b.npy", np.ones((2, 3, 2)))
    with pytest.raises(DataError, match=r'"b.npy" has 2 assets, "a.csv" has 1'):
        observed_folder(tmp_path)
    with pytest.raises(DataError, match=r'a.csv" must hold today and 5 dates'):
        observed_folder(tmp_path, dates=5)
    write(tmp_path, "a.npy")
    with pytest.raises(DataError, match='two files named "a"'):
        observed_folder(tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([[1, 2, np.nan], [np.inf, 2, 3]], "2 of 6 values of the paths are NaN or infinite, the first in path 0 at po"),
        (
            [[1, 1e300, 2], [1, 2, 3]],
            r"prices of the paths reach 1e\+300, and their squares are beyond float64; pass them in a larger",
        ),
        ([[1, 2, 3], [1, 2]], "the paths differ in length: path 1 has 2 points in time, path 0 has 3"),
        ([[1], [2]], "at least one date; got 1 points in time"),
        (np.ones(5), r"must have shape \(paths, dates \+ 1\)"),
        (np.ones((0, 5)), "at least one path"),
        (np.ones((2, 3, 0)), "one asset"),
        ([["a", "b"]], "the paths must be numbers of shape"),
        (np.ones((2, 3)) + 1j, "the paths must be numbers of shape"),
        (None, "the paths must be numbers of shape"),
    ],
)
def test_bad_arrays(source, message):
    with pytest.raises(DataError, match=message):
        observed_paths(source)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,3\n1,,3\n1,2,nan\n", r'2 of 9 values of ".*a.csv" are NaN or infinite, the first in path 1 at point 1'),
        ("1,2,3\n1,2\n", r'a.csv" differ in length: path 1 has 2 points in time, path 0 has 3'),
        ("1,2,3\n1,x,3\n", r'a.csv", line 2: .*\'x\'; write numbers only'),
        ("t0,t1\n", "at least one path"),
        ("", "at least one path"),
        ("1;2\n3;4\n", "line 2"),
    ],
)
def test_bad_csv(tmp_path, text, message):
    file = tmp_path / "a.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=message):
        observed_paths(file)


def test_bad_files(tmp_path):
    with pytest.raises(DataError, match="is not a file"):
        observed_paths(tmp_path / "none.npy")
    with pytest.raises(DataError, match="read all its files with observed_folder"):
        observed_paths(tmp_path)
    (tmp_path / "a.txt").write_text("1,2")
    with pytest.raises(DataError, match=r"must end in one of .npy, .csv, .parquet"):
        observed_paths(tmp_path / "a.txt")
    np.save(tmp_path / "objects.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r'objects.npy" cannot be read as an array of numbers'):
        observed_paths(tmp_path / "objects.npy")
    (tmp_path / "broken.npy").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r'broken.npy" cannot be read'):
        observed_paths(tmp_path / "broken.npy")
    (tmp_path / "broken.parquet").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r'broken.parquet" cannot be read'):
        observed_paths(tmp_path / "broken.parquet")
    np.save(tmp_path / "text.npy", np.array([["a", "b"]]))
    with pytest.raises(DataError, match=r'text.npy" must be numbers'):
        observed_paths(tmp_path / "text.npy")
    (tmp_path / "latin.csv").write_bytes(b"1,2\n3,\xff\n")
    with pytest.raises(DataError, match=r'latin.csv" cannot be read as CSV'):
        observed_paths(tmp_path / "latin.csv")


def test_bad_parquet(tmp_path):
    pd.DataFrame({"t0": [1.0, 2.0], "t1": [None, 3.0]}).to_parquet(tmp_path / "gap.parquet")
    with pytest.raises(DataError, match=r'1 of 4 values of ".*gap.parquet" is NaN'):
        observed_paths(tmp_path / "gap.parquet")
    pd.DataFrame({"day": ["mon", "tue"], "t0": [1.0, 2.0]}).to_parquet(tmp_path / "text.parquet")
    with pytest.raises(DataError, match='column "day" of'):
        observed_paths(tmp_path / "text.parquet")
    pd.DataFrame({"day": pd.to_datetime(["2020-01-01"]), "t0": [1.0]}).to_parquet(tmp_path / "day.parquet")
    with pytest.raises(DataError, match=r'column "day" of .* holds timestamp'):
        observed_paths(tmp_path / "day.parquet")


def test_the_expected_number_of_dates():
    with pytest.raises(DataError, match="must hold today and 3 dates, 4 points in time; got 3"):
        observed_paths(PATHS, dates=3)
    with pytest.raises(ParameterError, match="dates must be a whole number >= 1"):
        observed_paths(PATHS, dates=0)
