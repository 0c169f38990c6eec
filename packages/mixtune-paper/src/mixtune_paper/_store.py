"""Where results are kept: one SQLite file, one row per (experiment, method, run), one transaction per finished run.

A process may be killed at any moment: SQLite's write-ahead log keeps whole transactions and drops halves, so a run is
either there with all its rows and curves or not there at all. The tables are plain enough for any SQLite client:

    experiments   the configuration each experiment was run with (JSON) and its hash
    runs          which runs are finished, their seeds, seconds and versions
    results       experiment, method, run, and one REAL column per quantity (NULL where a method has no such quantity)
    curves        experiment, method, run, quantity, and an array as a zlib-compressed .npy file
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mixtune.errors import DataError, MixtuneError, ParameterError
from mixtune_paper._arrays import Floats

FILE_NAME = "results.sqlite"
SCHEMA_VERSION = 1
KEYS = ("experiment", "method", "run")
SCHEMA = """
CREATE TABLE experiments (experiment TEXT PRIMARY KEY, hash TEXT NOT NULL, configuration TEXT NOT NULL);
CREATE TABLE runs (experiment TEXT NOT NULL, run INTEGER NOT NULL, seed INTEGER NOT NULL, seconds REAL NOT NULL,
                   made_with TEXT NOT NULL, PRIMARY KEY (experiment, run));
CREATE TABLE results (experiment TEXT NOT NULL, method TEXT NOT NULL, run INTEGER NOT NULL,
                      PRIMARY KEY (experiment, method, run));
CREATE TABLE curves (experiment TEXT NOT NULL, method TEXT NOT NULL, run INTEGER NOT NULL, quantity TEXT NOT NULL,
                     array BLOB NOT NULL, PRIMARY KEY (experiment, method, run, quantity));
"""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one run yields.

    Attributes
    ----------
    rows : mapping of method to {quantity: number}
        One row per method, in the order they are to be shown. Infinity is a result (a diverged method); NaN is not.
    curves : mapping of method to {quantity: float64 array}
        What does not fit a row: losses per iteration and the like.

    Examples
    --------
    >>> Outcome({"LO-1": {"price": 3.7}, "RO": {"price": 4.0}}).rows["RO"]["price"]
    4.0
    """

    rows: Mapping[str, Mapping[str, float]]
    curves: Mapping[str, Mapping[str, Floats]] = field(default_factory=dict)


class ResultsStore:
    """The results of any number of experiments in one folder.

    Parameters
    ----------
    folder : path
        Made where it does not exist.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, ResultsStore(folder) as store:
    ...     store.claim("table1", {"seed": 0})
    ...     store.add("table1", 0, Outcome({"LO-1": {"price": 3.7}}), seed=5, seconds=0.1, made_with="mixtune")
    ...     store.finished("table1"), store.rows("table1", 1)
    ({0}, {'LO-1': [{'price': 3.7}]})
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / FILE_NAME
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Transactions are begun by hand: see _transaction.
            self._db = sqlite3.connect(self.path, timeout=60.0, isolation_level=None)
        except OSError as error:
            raise ParameterError(f"cannot make the folder {folder} for results: {error.strerror}") from error
        except sqlite3.OperationalError as error:
            raise ParameterError(f"cannot open {self.path} ({error}); choose a folder you may write to") from error
        try:
            with self._readable():
                self._db.execute("PRAGMA journal_mode=WAL")
            self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        with self._transaction():
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version == 0 and not self._db.execute("SELECT 1 FROM sqlite_master").fetchone():
                for statement in SCHEMA.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            elif version != SCHEMA_VERSION:
                why = f"was not made by this version of mixtune (layout {version}, expected {SCHEMA_VERSION})"
                raise DataError(f"{self.path} {why}; choose another folder")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn errors of the database and of what it holds into one that names the file."""
        try:
            yield
        except MixtuneError:
            raise
        except (sqlite3.Error, zlib.error, ValueError, TypeError, EOFError, MemoryError) as error:
            raise DataError(
                f"{self.path} cannot be used ({error}); choose another folder, or, if that file is damaged, move it "
                "away: its runs will be done again"
            ) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # The connection commits at the end, or rolls back.
        with self._readable(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> ResultsStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- configurations -----------------------------------------------------------------------------------------

    def claim(self, experiment: str, configuration: Mapping[str, Any]) -> None:
        """Record that ``experiment`` runs with ``configuration`` here; refuse where it already ran with another one."""
        text = json.dumps(configuration, sort_keys=True, allow_nan=False)
        with self._transaction():
            held = self.configuration(experiment)
            if held is None:
                row = (experiment, hashlib.sha256(text.encode()).hexdigest(), text)
                self._db.execute("INSERT INTO experiments VALUES (?, ?, ?)", row)
                return
        if differences := "; ".join(_differences(held, json.loads(text))):
            raise ParameterError(
                "{path} holds {experiment} of another configuration ({differences}); choose another folder ({out}), "
                "or ask for what this one holds",
                code="another-configuration",
                path=self.path,
                experiment=experiment,
                differences=differences,
                out="out=...",
            )

    def configuration(self, experiment: str) -> dict[str, Any] | None:
        """The configuration ``experiment`` ran with here, or None."""
        query = "SELECT configuration FROM experiments WHERE experiment=?"
        with self._readable():
            held = self._db.execute(query, (experiment,)).fetchone()
            return None if held is None else json.loads(held[0])

    # --- runs ---------------------------------------------------------------------------------------------------

    def finished(self, experiment: str) -> set[int]:
        """The runs whose results are here."""
        with self._readable():
            return {run for (run,) in self._db.execute("SELECT run FROM runs WHERE experiment=?", (experiment,))}

    def add(self, experiment: str, run: int, outcome: Outcome, *, seed: int, seconds: float, made_with: str) -> None:
        """Store a finished run, all or nothing; a run that is already here stays as it is."""
        columns = _check_outcome(experiment, run, outcome)
        with self._transaction():
            if run in self.finished(experiment):
                return
            for quantity in [name for name in columns if name not in self._quantities()]:
                self._db.execute(f'ALTER TABLE results ADD COLUMN "{quantity}" REAL')
            for method, values in outcome.rows.items():
                names = ", ".join([*KEYS, *(f'"{quantity}"' for quantity in values)])
                marks = ", ".join("?" * (len(KEYS) + len(values)))
                row = (experiment, method, run, *(float(value) for value in values.values()))
                self._db.execute(f"INSERT INTO results ({names}) VALUES ({marks})", row)
            for method, arrays in outcome.curves.items():
                rows = [(experiment, method, run, quantity, pack(array)) for quantity, array in arrays.items()]
                self._db.executemany("INSERT INTO curves VALUES (?, ?, ?, ?, ?)", rows)
            self._db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", (experiment, run, seed, seconds, made_with))

    def _quantities(self) -> list[str]:
        return [name for _, name, *_ in self._db.execute("PRAGMA table_info(results)") if name not in KEYS]

    # --- reading ------------------------------------------------------------------------------------------------

    def rows(self, experiment: str, runs: int) -> dict[str, list[dict[str, float]]]:
        """By method, in the order the first run gave them, the rows of runs 0..runs-1."""
        found: dict[str, list[dict[str, float]]] = {}
        with self._readable():
            quantities = self._quantities()
            selected = ", ".join(["method", *(f'"{quantity}"' for quantity in quantities)])
            query = f"SELECT {selected} FROM results WHERE experiment=? AND run<? ORDER BY run, rowid"
            for method, *values in self._db.execute(query, (experiment, runs)):
                row = {name: float(value) for name, value in zip(quantities, values) if value is not None}
                found.setdefault(method, []).append(row)
        return found

    def curves(self, experiment: str, method: str, quantity: str, runs: int) -> list[Floats]:
        """The arrays of one quantity of runs 0..runs-1, in order."""
        query = "SELECT array FROM curves WHERE experiment=? AND method=? AND quantity=? AND run<? ORDER BY run"
        with self._readable():
            return [unpack(blob) for (blob,) in self._db.execute(query, (experiment, method, quantity, runs))]


def pack(array: Floats) -> bytes:
    """An array as a compressed .npy file of float64."""
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array, dtype=np.float64), allow_pickle=False)
    return zlib.compress(buffer.getvalue(), level=6)


def unpack(blob: bytes) -> Floats:
    """The inverse of :func:`pack`.

    Examples
    --------
    >>> unpack(pack(np.array([0.1, np.inf])))
    array([0.1, inf])
    """
    found = np.load(io.BytesIO(zlib.decompress(blob)), allow_pickle=False)
    if found.dtype != np.float64 or found.ndim > 2:
        raise ValueError(f"an array of type {found.dtype} and shape {found.shape} is no curve")
    return np.asarray(found)


def _differences(held: Any, asked: Any, path: str = "") -> list[str]:
    """What differs between two JSON documents, one phrase per leaf."""
    if isinstance(held, dict) and isinstance(asked, dict):
        names = sorted({*held, *asked})
        return [d for n in names for d in _differences(held.get(n), asked.get(n), f"{path}.{n}" if path else n)]
    return [] if held == asked else [f"{path} is {json.dumps(held)} there, {json.dumps(asked)} asked for"]


def _check_outcome(experiment: str, run: int, outcome: Outcome) -> list[str]:
    """The quantities of an outcome, in order; refuses NaN and names that are no column names."""
    for kind, parts in (("as {} of", outcome.rows), ("in the {} curve of", outcome.curves)):
        for method, values in parts.items():
            for quantity, value in values.items():
                if not re.fullmatch(r"[a-z][a-z0-9_]*", quantity) or quantity in KEYS:
                    raise ParameterError(f"{quantity!r} cannot name a quantity; use lower-case letters, digits and _")
                if np.any(np.isnan(value)):
                    where = f"{kind.format(quantity)} {method}"
                    raise DataError(f"run {run} of {experiment} gave NaN {where}; nothing was stored")
    return list({quantity: None for values in outcome.rows.values() for quantity in values})
