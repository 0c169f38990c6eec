"""The results file: whole runs or nothing, all digits, one configuration per experiment."""

import io
import math
import sqlite3
import zlib
from contextlib import closing

import numpy as np
import pytest

from mixtune.errors import DataError, ParameterError
from mixtune_paper import Outcome, ResultsStore

META = {"seed": 3, "seconds": 0.5, "made_with": "mixtune"}


@pytest.fixture
def store(tmp_path):
    with ResultsStore(tmp_path / "deep" / "results") as store:
        yield store


def test_numbers_come_back_with_all_their_bits(store):
    values = {"a": 0.1 + 0.2, "b": 5e-324, "c": -math.inf, "d": 1 / 3}
    curve = np.array([[0.1, np.inf], [-0.0, 1e-310]])
    store.add("e", 0, Outcome({"m": values}, {"m": {"loss": curve}}), **META)
    assert store.rows("e", 1) == {"m": [values]}
    (back,) = store.curves("e", "m", "loss", 1)
    assert back.tobytes() == curve.tobytes()


def test_the_file_can_be_queried_by_anyone(store):
    store.add("table1", 0, Outcome({"LO-1": {"price": 3.7}, "RO": {"price": 4.0, "weight": 0.5}}), **META)
    store.add("figure1", 0, Outcome({"GD": {"loss": 1.0}}), **META)
    with sqlite3.connect(store.path) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        query = "SELECT method, price, weight, typeof(price) FROM results WHERE experiment='table1' ORDER BY method"
        assert other.execute(query).fetchall() == [("LO-1", 3.7, None, "real"), ("RO", 4.0, 0.5, "real")]
        assert other.execute("SELECT experiment, run, seed FROM runs ORDER BY 1").fetchall() == [
            ("figure1", 0, 3),
            ("table1", 0, 3),
        ]
    other.close()


def test_methods_keep_the_order_of_the_first_run_whichever_run_came_first(store):
    for run in (2, 0, 1):
        store.add("e", run, Outcome({"z": {"v": run}, "a": {"v": -run}}), **META)
    assert list(store.rows("e", 3)) == ["z", "a"]
    assert [row["v"] for row in store.rows("e", 3)["z"]] == [0, 1, 2]
    assert [row["v"] for row in store.rows("e", 2)["z"]] == [0, 1]


def test_a_run_is_stored_whole_or_not_at_all(store):
    """The rows can be written, the curves cannot: then the rows are not there either."""
    outcome = Outcome({"m": {"v": 1.0}}, {"m": {"c": np.ones(2)}})
    with closing(sqlite3.connect(store.path)) as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON curves BEGIN SELECT RAISE(ABORT, 'no space'); END")
        with pytest.raises(DataError, match="no space"):
            store.add("e", 0, outcome, **META)
        other.execute("DROP TRIGGER full")
    assert store.finished("e") == set()
    assert store.rows("e", 1) == {}
    store.add("e", 0, outcome, **META)
    store.add("e", 0, Outcome({"m": {"v": 2.0}}), **META)  # a run that is there stays as it is
    assert store.rows("e", 1) == {"m": [{"v": 1.0}]}


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (Outcome({"m": {"v": math.nan}}), "NaN as v of m"),
        (Outcome({"m": {"v": 1.0}}, {"m": {"c": np.array([np.nan])}}), "NaN in the c curve"),
        (Outcome({"m": {'v"; DROP': 1.0}}), "cannot name a quantity"),
        (Outcome({"m": {"run": 1.0}}), "cannot name a quantity"),
    ],
)
def test_outcomes_refused(store, outcome, message):
    with pytest.raises((DataError, ParameterError), match=message):
        store.add("e", 0, outcome, **META)
    assert store.finished("e") == set()


def test_another_configuration_is_refused_and_the_difference_named(store):
    store.claim("figure1", {"seed": 0, "settings": {"horizon": 1000, "data": {"width": 500}}})
    store.claim("figure1", {"settings": {"data": {"width": 500}, "horizon": 1000}, "seed": 0})
    store.claim("figure2", {"seed": 1})
    assert store.configuration("figure2") == {"seed": 1}
    assert store.configuration("table1") is None
    with pytest.raises(ParameterError, match="another configuration") as caught:
        store.claim("figure1", {"seed": 7, "settings": {"horizon": 1000, "data": {"width": 50}, "new": 1}})
    for part in (
        "seed is 0 there, 7 asked for",
        "settings.data.width is 500 there, 50",
        "settings.new is null",
        "out=...",
    ):
        assert part in str(caught.value)
    assert "horizon" not in str(caught.value)


def test_files_that_cannot_be_used(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "results.sqlite").write_bytes(b"this is not a database, but it is long enough " * 50)
    with pytest.raises(DataError, match="cannot be used"):
        ResultsStore(tmp_path / "a")
    (tmp_path / "b").mkdir()
    other = sqlite3.connect(tmp_path / "b" / "results.sqlite")
    other.execute("CREATE TABLE mine (x)")
    other.close()
    with pytest.raises(DataError, match="not made by this version"):
        ResultsStore(tmp_path / "b")
    (tmp_path / "file").write_text("")
    with pytest.raises(ParameterError, match="cannot make the folder"):
        ResultsStore(tmp_path / "file" / "results")
    (tmp_path / "c" / "results.sqlite").mkdir(parents=True)
    with pytest.raises(ParameterError, match="cannot open"):
        ResultsStore(tmp_path / "c")


def read_all(folder):
    with ResultsStore(folder) as store:
        store.claim("e", {"seed": 0})
        return store.finished("e"), store.rows("e", 1), store.curves("e", "m", "c", 1)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE curves SET array = substr(array, 1, 20)",
        "UPDATE curves SET array = x'00ff'",
        "UPDATE curves SET array = 'text'",
        "UPDATE results SET v = 'text'",
        "UPDATE experiments SET configuration = '{'",
        "DROP TABLE curves",
    ],
)
def test_what_is_damaged_is_named_with_a_remedy(tmp_path, damage):
    with ResultsStore(tmp_path) as store:
        store.claim("e", {"seed": 0})
        store.add("e", 0, Outcome({"m": {"v": 1.0}}, {"m": {"c": np.arange(50.0)}}), **META)
    with sqlite3.connect(tmp_path / "results.sqlite") as other:
        other.execute(damage)
    other.close()
    with pytest.raises(DataError, match="if that file is damaged, move it away") as caught:
        read_all(tmp_path)
    assert str(tmp_path / "results.sqlite") in str(caught.value)


@pytest.mark.parametrize("array", [np.zeros((2, 2, 2)), np.arange(3), np.array(["a"])])
def test_arrays_that_are_no_curves_are_named(tmp_path, array):
    """Whole, but not what was written: as from another program."""
    with ResultsStore(tmp_path) as store:
        store.claim("e", {"seed": 0})
        store.add("e", 0, Outcome({"m": {"v": 1.0}}, {"m": {"c": np.arange(50.0)}}), **META)
    content = io.BytesIO()
    np.save(content, array)
    with closing(sqlite3.connect(tmp_path / "results.sqlite")) as other, other:
        other.execute("UPDATE curves SET array = ?", (zlib.compress(content.getvalue()),))
    with pytest.raises(DataError, match="is no curve"):
        read_all(tmp_path)


def test_a_file_with_damaged_pages_is_named_too(tmp_path):
    with ResultsStore(tmp_path) as store:
        for run in range(50):
            store.add(
                "e", run, Outcome({"m": {"v": 1.0}}, {"m": {"c": np.random.default_rng(run).random(500)}}), **META
            )
    content = bytearray(store.path.read_bytes())
    content[2 * 4096 :] = b"\x5a" * (len(content) - 2 * 4096)
    store.path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"results.sqlite cannot be used.*damaged"):
        read_all(tmp_path)
