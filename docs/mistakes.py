"""Make plausible mistakes and put what mixtune says on the page: python -m docs.mistakes

The text between `<!-- table -->` and `<!-- end table -->` is replaced. Every line is a mistake that is made here, in a
folder of its own, and the error or the warnings that came.
"""

from __future__ import annotations

import csv
import datetime
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mixtune import (
    Domains,
    MultiDomainRegressor,
    RegretOptimalRegressorCV,
    Sources,
    StreamedSources,
    TableModel,
    fit_table,
    load,
)
from mixtune.data import read_new, read_training
from mixtune.errors import DataWarning, MixtuneError

PAGE = Path(__file__).with_name("mistakes.md")
ROWS = 40
ROLES = {"target": "price", "domain": "site", "focal": "a"}
Table = dict[str, list[Any]]


@dataclass(frozen=True)
class Mistake:
    """What somebody does, and how it is done in a folder; ``names`` are the words that the answer must have."""

    where: str
    what: str
    make: Callable[[Path], Any]
    names: tuple[str, ...]

    def answer(self) -> str:
        """The error, or the notes and warnings, with nothing of the folder in it."""
        with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = self.make(Path(name))
                notes = getattr(result, "notes", ()) if not isinstance(result, tuple) else result
                said = [str(each.message) for each in caught if issubclass(each.category, DataWarning)]
                text = "; ".join([*said, *(str(note) for note in notes if str(note) not in said)])
            except MixtuneError as error:
                text = str(error)
            return text.replace(f"{name}/", "").replace(name, "folder")


def sales() -> Table:
    """Two sites with a size, rooms, a colour, a day and a price."""
    rng = np.random.default_rng(0)
    size = np.round(rng.uniform(1, 9, ROWS), 2)
    day = [datetime.date(2021, 1, 1) + datetime.timedelta(days=int(each)) for each in rng.integers(0, 364, ROWS)]
    return {
        "site": ["a", "b"] * (ROWS // 2),
        "size": size.tolist(),
        "rooms": rng.integers(1, 6, ROWS).tolist(),
        "colour": rng.choice(["red", "blue"], ROWS).tolist(),
        "day": [each.isoformat() for each in day],
        "price": np.round(size * 3 + rng.standard_normal(ROWS), 2).tolist(),
    }


def changed(column: str, value: Any, row: int = 4, *, rows: int = 1) -> Table:
    """The same table with other cells in a column."""
    table = sales()
    table[column] = list(table[column])
    table[column][row : row + rows] = [value] * rows
    return table


def write(path: Path, table: Table, *, separator: str = ",", encoding: str = "utf-8") -> Path:
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(table)
        writer.writerows(zip(*([("" if cell is None else cell) for cell in column] for column in table.values())))
    return path


@cache
def model() -> TableModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit_table(sales(), **ROLES, linear=True)  # type: ignore[arg-type]


NEW: Table = {"size": [5.0, 6.0], "rooms": [2, 3], "colour": ["red", "blue"], "day": ["2021-07-01", "2021-08-01"]}


def predicted(column: str, value: Any) -> Callable[[Path], Any]:
    """Predict two rows, the second with this value."""

    def make(_: Path) -> Any:
        cells = [NEW[column][0], value]
        texts = isinstance(value, str) or column == "colour"
        model().predict(NEW | {column: [str(cell) for cell in cells] if texts and value is not None else cells})
        return ()

    return make


def trained(table: Table, **options: Any) -> Callable[[Path], Any]:
    """Read a training table; only the notes on what it should not have are of interest."""
    roles = {**ROLES, **options}
    return lambda _: tuple(
        note for note in read_training(table, **roles).notes if getattr(note, "code", "") not in ("dates", "filled-in")
    )


def of_file(lines: str, *, encoding: str = "utf-8", name: str = "new.csv") -> Callable[[Path], Any]:
    """Predict the rows of a file."""

    def make(folder: Path) -> Any:
        (folder / name).write_bytes(lines.encode(encoding))
        return read_new(folder / name, model().encoder)

    return make


def train_file(edit: Callable[[list[str]], list[str]], **options: Any) -> Callable[[Path], Any]:
    """Train with a file whose lines were edited."""

    def make(folder: Path) -> Any:
        path = write(folder / "sales.csv", sales())
        path.write_text("\n".join(edit(path.read_text(encoding="utf-8").splitlines())) + "\n", encoding="utf-8")
        read_training(path, **{**ROLES, **options})
        return ()

    return make


def without(*names: str) -> Table:
    return {name: values for name, values in sales().items() if name not in names}


def replaced(lines: list[str], place: int, line: str) -> list[str]:
    return [*lines[:place], line, *lines[place + 1 :]]


def numbers() -> Table:
    return without("colour", "day")


def arrays() -> tuple[Any, Any]:
    X = np.random.default_rng(0).standard_normal((ROWS, 2))
    return X, X[:, 0] + 1


def files(**tables: Table) -> Callable[[Path], Any]:
    """Train with one file for each domain."""

    def make(folder: Path) -> Any:
        paths = [write(folder / f"{name}.csv", table) for name, table in tables.items()]
        return read_training(paths, target="price").notes

    return make


def fitted(X: Any, y: Any, **options: Any) -> Callable[[Path], Any]:
    return lambda _: RegretOptimalRegressorCV(None).fit(X, y, **options)


def with_value(value: float, column: int = 1) -> Any:
    X = arrays()[0].copy()
    X[4, column] = value
    return X


def mistakes() -> Iterator[Mistake]:
    """All of them, by the place where they are made."""
    yield from _of_files()
    yield from _of_training()
    yield from _of_labels()
    yield from _of_prediction()
    yield from _of_new_files()
    yield from _of_arrays()


def _of_files() -> Iterator[Mistake]:
    where = "training files"
    stray = lambda lines: replaced(lines, 5, lines[5].replace(",", ',"', 1))  # noqa: E731
    both = lambda lines: replaced(stray(lines), 9, lines[9].replace(",", '",', 1))  # noqa: E731
    yield Mistake(where, "one stray quotation mark", train_file(stray), ("line 6", "remove the quotation mark"))
    yield Mistake(where, "two stray quotation marks", train_file(both), ("line 6", "remove the quotation mark"))
    wide = lambda lines: [*lines[:30], *(f"{line},1,2" for line in lines[30:])]  # noqa: E731
    yield Mistake(where, "more cells than columns", train_file(wide), ("header", "separator"))
    yield Mistake(where, "an empty file", train_file(lambda lines: []), ("sales.csv",))
    yield Mistake(where, "a header and no rows", train_file(lambda lines: lines[:1]), ("no rows", "leave it out"))
    yield Mistake(where, "a name that is no file", lambda _: read_training("sles.csv", **ROLES), ("sles.csv", "path"))
    yield Mistake(
        where, "a folder in place of files", lambda folder: read_training(folder, **ROLES), ("pass the files",)
    )

    def old(folder: Path) -> Any:
        (folder / "s.xls").write_bytes(b"\xd0\xcf\x11\xe0" * 9)
        return read_training(folder / "s.xls", **ROLES)

    yield Mistake(where, "an old Excel file", old, ("s.xls", "save it as"))
    renamed = {**without("rooms"), "room": sales()["rooms"]}
    yield Mistake(
        where, "a column of another name in a file", files(north=sales(), south=renamed), ('"rooms"', "ignore")
    )
    yield Mistake(
        where, "a column that a file lacks", files(north=sales(), south=without("rooms")), ('"rooms"', "south.csv")
    )
    yield Mistake(
        where,
        "a column of numbers, and of text in another file",
        files(north=without("site"), south={**without("site"), "size": ["big"] * ROWS}),
        ('"size"', "row"),
    )

    def stream(table: Table, **how: Any) -> Callable[[Path], Any]:
        return lambda folder: StreamedSources(
            write(folder / "sales.csv", table, **how), target="price", domain="site"
        ).samples()

    yield Mistake(where, "a German file for a stream", stream(numbers(), separator=";"), ("separator=",))
    yield Mistake(
        where, "a column of text for a stream", stream(without("day")), ('"colour"', "encode text as numbers")
    )
    yield Mistake(
        where,
        "a missing value for a stream",
        stream({**numbers(), "size": [None, *numbers()["size"][1:]]}),
        ('"size"', "row"),
    )
    yield Mistake(
        where,
        "another encoding than was said",
        lambda folder: read_training(write(folder / "s.csv", sales(), encoding="utf-16"), **ROLES, encoding="utf-8"),
        ("s.csv", "encoding="),
    )
    yield Mistake(
        where,
        "an encoding that there is not",
        lambda folder: read_training(write(folder / "s.csv", sales()), **ROLES, encoding="utf9"),
        ("encoding=",),
    )
    yield Mistake(
        where,
        "one character for separator and decimals",
        lambda folder: read_training(write(folder / "s.csv", sales()), **ROLES, separator=",", decimal=","),
        ("separator", "two different characters"),
    )
    yield Mistake(
        where,
        "two files of one name",
        lambda folder: read_training(
            [write(folder / "s.csv", sales()), write(folder / "s.tsv", sales())], target="price"
        ),
        ('"s"', "rename"),
    )


def _of_training() -> Iterator[Mistake]:
    where = "training tables"
    for name in ("site", "size", "price"):
        wrong = {"site": "sit", "size": "sise", "price": "prise"}[name]
        role = {"site": {"domain": wrong}, "size": {"ignore": wrong}, "price": {"target": wrong}}[name]
        yield Mistake(
            where, f'"{wrong}" for the column "{name}"', trained(sales(), **role), (f'"{wrong}"', f'"{name}"')
        )
    yield Mistake(where, "no such focal domain", trained(sales(), focal="c"), ('"site"', "known"))
    yield Mistake(where, "no focal domain", trained(sales(), focal=None), ("focal=",))
    yield Mistake(where, "the target is ignored", trained(sales(), ignore="price"), ('"price"', "name another"))
    yield Mistake(where, "the target is the domain", trained(sales(), target="site"), ("site", "pass the column"))
    yield Mistake(
        where,
        "a number that is missing, to be refused",
        trained(changed("size", None), missing="refuse"),
        ('"size"', "row 5", "fill"),
    )
    yield Mistake(
        where,
        "a target that is missing, to be refused",
        trained(changed("price", None), drop_missing_target=False),
        ('"price"', "row 5", "fill"),
    )
    yield Mistake(
        where,
        "an infinite number, to be refused",
        trained(changed("size", float("inf")), missing="refuse"),
        ('"size"', "row 5", "fill"),
    )
    texts = {"size": [str(value) for value in sales()["size"]]}
    yield Mistake(
        where, "words among numbers", trained({**sales(), "size": [*texts["size"][:-1], "many"]}), ('"size"', "many")
    )
    yield Mistake(
        where, "percent signs", trained({**sales(), "size": [f"{text}%" for text in texts["size"]]}), ('"size"', "%")
    )
    yield Mistake(
        where, "units", trained({**sales(), "size": [f"{text} kg" for text in texts["size"]]}), ('"size"', "kg")
    )
    yield Mistake(
        where,
        "decimal commas",
        trained({**sales(), "size": [text.replace(".", ",") for text in texts["size"]]}),
        ('"size"', "commas"),
    )
    yield Mistake(where, "a column with one value", trained({**sales(), "size": [3.0] * ROWS}), ('"size"', "nothing"))
    yield Mistake(where, "a column without values", trained({**sales(), "size": [None] * ROWS}), ('"size"', "left out"))
    yield Mistake(where, "row numbers", trained({**sales(), "id": list(range(ROWS))}), ('"id"', "keep="))
    yield Mistake(
        where,
        "a different text in every row",
        trained({**sales(), "code": [f"c{k}" for k in range(ROWS)]}),
        ('"code"', "keep="),
    )
    yield Mistake(
        where,
        "free text",
        trained({**sales(), "review": [f"it was good and I liked number {k}" for k in range(ROWS)]}),
        ('"review"', "text="),
    )
    yield Mistake(
        where,
        "numbers beyond 2^53",
        trained({**sales(), "code": [2**60 + k for k in range(ROWS)]}),
        ('"code"', "left out"),
    )
    yield Mistake(
        where, "lists in cells", trained({**sales(), "code": [[k] for k in range(ROWS)]}), ('"code"', "left out")
    )
    yield Mistake(where, "a copy of the target", trained({**sales(), "paid": sales()["price"]}), ('"paid"', "ignore="))
    yield Mistake(
        where,
        "the target in bins",
        trained({**sales(), "class": ["high" if price > 15 else "low" for price in sales()["price"]]}),
        ('"class"', "ignore="),
    )
    yield Mistake(
        where,
        "rows that stand twice",
        trained({name: values + values[3:8] for name, values in sales().items()}),
        ("5 rows", "repeat"),
    )
    shared = {name: values + values[:20:2] for name, values in sales().items()}
    shared["site"] = sales()["site"] + ["b"] * 10
    yield Mistake(where, "focal rows in a source", trained(shared), ("10 of 20 focal rows", "leave them out"))
    yield Mistake(
        where,
        "a target of many texts",
        trained(sales(), target="day", target_kind="classes"),
        ('"day"', "too many for classes"),
    )
    yield Mistake(where, "a target of dates", trained(sales(), target="day"), ('"day"', "name a target"))
    yield Mistake(where, "one class only", trained({**sales(), "price": ["yes"] * ROWS}), ('"price"', "two classes"))
    yield Mistake(
        where,
        "numbers asked of a text",
        trained(sales(), target="colour", target_kind="number"),
        ('"colour"', "target_kind="),
    )
    yield Mistake(
        where,
        "no rows of the focal domain with a target",
        trained({**sales(), "price": [None, 1.0] * (ROWS // 2)}),
        ('"a"', "give at least one"),
    )
    yield Mistake(
        where,
        "days and months that could change places",
        trained({**sales(), "day": [f"0{1 + k % 9}/0{1 + k % 8}/2021" for k in range(ROWS)]}),
        ('"day"', "ambiguous"),
    )
    yield Mistake(
        where,
        "two columns of one name",
        lambda _: read_training(pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], ["x", "x"]), **ROLES),
        ('"x"', "its own name"),
    )
    lacking = [None if site == "b" else size for site, size in zip(sales()["site"], sales()["size"])]
    yield Mistake(
        where, "a strong column that a source lacks", trained({**sales(), "size": lacking}), ('"size"', '"b"')
    )
    lacking = [None if site == "a" else rooms for site, rooms in zip(sales()["site"], sales()["rooms"])]
    yield Mistake(
        where,
        "a column that the focal domain lacks",
        trained({**sales(), "rooms": lacking}),
        ('"rooms"', "need not have it"),
    )
    yield Mistake(
        where, "a missing setting that there is not", trained(sales(), missing="drop"), ("missing=", "impute")
    )
    yield Mistake(where, "one level at most", trained(sales(), max_levels=1), ("max_levels", ">= 2"))
    yield Mistake(where, "a text in place of a table", lambda _: fit_table("sales.csv", **ROLES), ("sales.csv",))
    yield Mistake(
        where,
        "a column far from zero",
        lambda _: fit_table({**sales(), "size": [1e14 + size for size in sales()["size"]]}, **ROLES),
        ('"size"', "subtract a constant"),
    )
    yield Mistake(
        where,
        "a column of absurd size",
        lambda _: fit_table({**sales(), "size": [1e200 * size for size in sales()["size"]]}, **ROLES),
        ('"size"', "rescale it"),
    )


def _of_labels() -> Iterator[Mistake]:
    where = "labels"
    table = sales()
    spelt = lambda *labels: {**table, "site": [labels[k % len(labels)] for k in range(ROWS)]}  # noqa: E731
    yield Mistake(where, "a label with a space", trained(spelt("a", "a ", "b")), ('"site"', "count as one"))
    yield Mistake(where, "a label in two compositions", trained(spelt("é", "e\u0301", "a")), ('"site"', "count as one"))
    yield Mistake(
        where,
        "a number with and without decimals",
        trained(spelt("1", "1.0", "2"), focal="1"),
        ('"site"', "count as one"),
    )
    yield Mistake(where, "capital letters", trained(spelt("a", "A", "b")), ('"site"', "capital letters"))
    yield Mistake(where, "capital letters in the focal label", trained(spelt("a", "b"), focal="A"), ('"a"',))
    yield Mistake(where, "rows without a label", trained(changed("site", None, rows=2)), ("2 rows", '"site"'))
    yield Mistake(
        where,
        "identifiers as labels",
        trained(sales(), domain="price", target="size", focal="1"),
        ('"price"', "domain="),
    )
    yield Mistake(where, "a category with a space", trained(changed("colour", " red")), ('"colour"', "count as one"))
    yield Mistake(where, "categories in capital letters", trained(changed("colour", "Red")), ('"colour"', '"Red"'))
    yield Mistake(
        where,
        "too many categories",
        trained({**table, "colour": [f"c{k % 8}" for k in range(ROWS)]}, max_levels=4),
        ('"colour"', "max_levels="),
    )
    X, y = arrays()
    yield Mistake(
        where,
        "labels of numbers and of texts",
        lambda _: Domains.from_arrays(X, y, labels=[1, "1"] * 20, focal=1),
        ('"1"', "write one of them"),
    )
    yield Mistake(
        where,
        "a missing label among arrays",
        lambda _: Domains.from_arrays(X, y, labels=["a", None] * 20, focal="a"),
        ("row 2", "label or drop"),
    )
    yield Mistake(
        where,
        "too few labels",
        lambda _: Domains.from_arrays(X, y, labels=["a"], focal="a"),
        ("40 rows", "one label per row"),
    )
    yield Mistake(
        where,
        "two sources of one name in two compositions",
        lambda _: Sources({"é": (X, y), "e\u0301": (X, y)}),
        ("é", "its own name"),
    )


def _of_prediction() -> Iterator[Mistake]:
    where = "rows to predict"
    for value, named in {
        "50%": "50%",
        "50 g": "50 g",
        "0:30": "0:30",
        "<0.5": "<0.5",
        "$5": "$5",
        "1,5": "1,5",
        "1,234": "1,234",
        "(5)": "(5)",
        "abc": "abc",
        "inf": "inf",
    }.items():
        yield Mistake(
            where, f'"{value}" where training had numbers', predicted("size", value), ('"size"', f'"{named}"')
        )
    yield Mistake(where, "an infinite number", predicted("size", float("inf")), ('"size"', "row 2"))
    yield Mistake(where, "a missing number, none in training", predicted("size", None), ('"size"', "row 2", "median"))
    yield Mistake(where, "a missing category, none in training", predicted("colour", None), ('"colour"', "row 2"))
    yield Mistake(where, "a new category", predicted("colour", "green"), ('"colour"', "row 2", '"green"'))
    yield Mistake(where, "a missing date, none in training", predicted("day", None), ('"day"', "row 2", "median date"))
    for day in ("03/04/2021", "25/12/2021", "3.4.2021", "03-04-2021", "03/04/21"):
        yield Mistake(
            where, f'"{day}" after dates of another format', predicted("day", day), ('"day"', "row 2", "year-month-day")
        )
    yield Mistake(where, "a word where training had dates", predicted("day", "soon"), ('"day"', '"soon"'))
    rows = lambda **more: lambda _: model().predict(NEW | more) is None or ()  # noqa: E731
    yield Mistake(where, "rows of another domain", rows(site=["a", "b"]), ('"site"', "row 2", '"a"'))
    yield Mistake(where, "numbers where training had dates", rows(day=[1, 2]), ('"day"', "write dates"))
    yield Mistake(
        where,
        "dates where training had numbers",
        rows(size=[datetime.date(2021, 1, 1)] * 2),
        ('"size"', "write numbers"),
    )
    yield Mistake(
        where, "times where training had numbers", rows(size=[datetime.time(1)] * 2), ('"size"', "write numbers")
    )
    yield Mistake(
        where,
        "durations where training had numbers",
        rows(size=[datetime.timedelta(1)] * 2),
        ('"size"', "write numbers"),
    )
    yield Mistake(
        where, "words in the whole column", rows(size=["big", "small"]), ('"size"', "row 1", "write it as numbers")
    )
    yield Mistake(
        where,
        "a column that is missing",
        lambda _: model().predict({"size": [1.0], "rooms": [1], "day": [None]}),
        ('"colour"', "add it"),
    )
    yield Mistake(
        where,
        "a column of another name",
        lambda _: model().predict({"Size": [1.0], "rooms": [1], "day": [None], "colour": ["red"]}),
        ('"size"', '"Size"'),
    )
    yield Mistake(where, "no rows", lambda _: model().predict({name: [] for name in NEW}), ("no rows", "at least one"))
    yield Mistake(
        where, "probabilities of a number", lambda _: model().predict_proba(NEW), ('"price"', "predict_interval")
    )
    yield Mistake(where, "an array in place of a table", lambda _: model().predict(np.ones((2, 4))), ("named columns",))
    yield Mistake(
        where,
        "a time zone that training had not",
        lambda _: model().predict(pa.table({**NEW, "day": pa.array([0, 1], pa.timestamp("s", "UTC"))})) is None or (),
        ('"day"', "UTC"),
    )
    yield Mistake(
        where, "a file that is no model", lambda folder: load(write(folder / "m.mixtune", sales())), ("m.mixtune",)
    )


def _of_new_files() -> Iterator[Mistake]:
    where = "files to predict"
    start = "size;rooms;colour;day\n"
    yield Mistake(
        where,
        "decimals with commas and with points",
        of_file(start + "2,5;1;red;2021-07-01\n1.234;2;red;2021-07-01\n"),
        ('"size"', '"1.234"', "decimal="),
    )
    yield Mistake(
        where, "thousands that could be decimals", of_file(start + "1,234;1;red;2021-07-01\n"), ('"size"', '"1,234"')
    )
    yield Mistake(
        where,
        "a stray quotation mark",
        of_file("size,rooms,colour,day\n1,2,red,2021-07-01\n" * 1 + '2,3,"red,2021-07-01\n4,3,red,2021-07-01\n'),
        ("line 3", "remove the quotation mark"),
    )
    yield Mistake(
        where,
        "a date of another format",
        of_file("size,rooms,colour,day\n1,2,red,03/04/2021\n"),
        ('"day"', "row 1", "year-month-day"),
    )
    yield Mistake(
        where,
        "a header of another language",
        of_file("größe,zimmer,farbe,tag\n1,2,rot,2021-07-01\n"),
        ('"size"', "add"),
    )
    yield Mistake(
        where,
        "a column that the model does not know",
        of_file("size,rooms,colour,day,note\n1,2,red,2021-07-01,x\n"),
        ('"note"', "left out"),
    )


def _of_arrays() -> Iterator[Mistake]:
    where = "arrays"
    X, y = arrays()
    for value, name in ((np.nan, "NaN"), (np.inf, "an infinite number")):
        yield Mistake(
            where,
            f"{name} in a source",
            fitted(X, y, sources={"b": (with_value(value), y)}),
            ('"b"', "column 1", "drop or fill"),
        )
    yield Mistake(
        where, "other columns in a source", fitted(X, y, sources={"b": (X[:, :1], y)}), ('"b"', "pass the same columns")
    )
    yield Mistake(
        where, "targets for some rows only", fitted(X, y, sources={"b": (X, y[:3])}), ('"b"', "one target per row")
    )
    yield Mistake(where, "masked values", fitted(np.ma.masked_greater(X, 1.5), y), ("masked", "fill or drop"))
    yield Mistake(
        where,
        "text in a source",
        fitted(X, y, sources={"b": ({"u": ["a"] * ROWS, "v": [1] * ROWS}, y)}),
        ('"u"', '"b"', "encode text"),
    )
    yield Mistake(where, "a source that is a file", fitted(X, y, sources={"b": "b.csv"}), ('"b"', "StreamedSources"))
    yield Mistake(where, "a list of sources", fitted(X, y, sources=[(X, y)]), ("pass Sources",))
    yield Mistake(
        where, "a negative sample weight", fitted(X, y, sources={"b": (X, y, -np.ones(ROWS))}), ('"b"', ">= 0")
    )
    yield Mistake(
        where, "a source named like the focal rows", fitted(X, y, sources={"focal": (X, y)}), ('"focal"', "rename")
    )
    yield Mistake(
        where,
        "no label for a row",
        lambda _: MultiDomainRegressor(None).fit(X, y, domain=["a", ""] * 20),
        ("row 1 (from 0)", "name them"),
    )
    yield Mistake(
        where,
        "no labels to predict",
        lambda _: MultiDomainRegressor(None).fit(X, y, domain=["a", "b"] * 20).predict(X),
        ("domain=labels",),
    )
    yield Mistake(
        where,
        "a column of absurd size",
        lambda _: RegretOptimalRegressorCV().fit(X * [1.0, 1e200], y),
        ("column 1", "rescale it"),
    )
    yield Mistake(
        where,
        "a column far from zero",
        lambda _: RegretOptimalRegressorCV().fit(X + np.array([0.0, 2e13]), y),
        ("column 1", "subtract a constant"),
    )


def table() -> str:
    """One line for every mistake, by the place where it is made."""
    lines: list[str] = []
    place = ""
    for mistake in mistakes():
        if mistake.where != place:
            place = mistake.where
            lines += ["", f"## {place.capitalize()}", "", "| mistake | answer |", "|---|---|"]
        lines.append(f"| {_cell(mistake.what)} | {_cell(mistake.answer())} |")
    return "\n".join(lines).strip()


def _cell(text: str) -> str:
    shown = re.sub(r"[\x00-\x1f]", " ", text).replace("|", "\\|")
    return re.sub(r"([<>*_`\[\]$])", r"\\\1", shown)


def rendered(text: str) -> str:
    """The page with the present table."""
    made = f"<!-- table -->\n\n{table()}\n\n<!-- end table -->"
    return re.sub(r"<!-- table -->.*<!-- end table -->", lambda _: made, text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
