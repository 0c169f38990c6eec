"""``mixtune predict``: new rows in, the same rows with predictions out."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import typer

from mixtune._messages import quoted
from mixtune.cli import _reading as reading
from mixtune.cli._outputs import check_outputs, output, print_json, progress_bar, show_lines, write_file
from mixtune.cli._saved_model import load_with_encoder
from mixtune.data import CsvFormat, Encoded, read_new, read_table
from mixtune.errors import DataError, ParameterError

_CSV, _PARQUET = (".csv", ".tsv"), (".parquet", ".pq")


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that fit wrote.", show_default=False)],
    new: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV or Parquet with the input columns.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Write to this .csv, .tsv or .parquet file; else to the terminal.", show_default=False),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            metavar="COVERAGE", help="Add an interval, such as 0.9: columns lower, upper.", show_default=False
        ),
    ] = None,
    std: Annotated[bool, typer.Option("--std", help="Add a standard deviation: column std.")] = False,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of each class.")] = False,
    force: reading.Force = False,
    as_json: reading.AsJson = False,
    encoding: reading.Encoding = "utf-8",
    separator: reading.Separator = None,
    decimal: reading.Decimal = ".",
) -> None:
    """Predict new rows of the focal domain.

    Writes the columns of the file as they are, and a column called prediction
    beside them (with --interval lower and upper, with --std std, with --proba
    one column per class). CSV is written with the separator and the decimals of
    the input; files are in UTF-8. Notes go to standard error.

    Exit code 0: done; 2: the command or the data cannot be used.

    Examples:

    mixtune predict model.mixtune new.csv

    mixtune predict model.mixtune new.csv --interval 0.9 --out predictions.csv
    """
    form = CsvFormat(encoding, "\t" if separator in ("\\t", "tab") else separator, decimal)
    check_outputs({"--out": out}, force=force, inputs=[model, new], endings={"--out": (*_CSV, *_PARQUET)})
    if interval is not None and not 0 < interval < 1:
        raise ParameterError(f"--interval {interval:g} must be between 0 and 1, such as 0.9")
    with progress_bar(2) as step:
        step("Reading")
        fitted, encoder = load_with_encoder(model)
        target = encoder.target
        if target.classes is None and proba:
            raise ParameterError(f'--proba is for classes; "{target.name}" is a number, use --interval or --std')
        if target.classes is not None and (std or interval is not None):
            raise ParameterError(f'--interval and --std are for numbers; "{target.name}" is a class, use --proba')
        read = read_new(new, encoder, encoding=form.encoding, separator=form.separator, decimal=form.decimal)
        step("Predicting")
        columns = _columns(fitted, read, interval=interval, std=std, proba=proba)
    if taken := [name for name in columns if name in read.table.column_names]:
        raise DataError(f'"{new}" has a column {quoted(taken)} already; rename it, since predictions are called so')
    typed = out is not None and out.name.lower().endswith(_PARQUET)
    # Parquet has types, so there the cells are numbers again where they are numbers.
    table = read_table(new, form, text=encoder.text_columns) if typed else read.table
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    between = form.separator or ("\t" if new.name.lower().removesuffix(".gz").endswith(".tsv") else ",")
    if out is not None:
        _write(out, table, between, form.decimal)
    if as_json:
        about = {"model": model, "target": target.name, "focal": encoder.focal, "rows": len(read.X)}
        print_json({**about, "columns": columns, "notes": read.notes, "written": out})
        return
    errors = output(stderr=True)
    show_lines(errors, "Notes", read.notes)
    if out is None:
        sys.stdout.writelines(_csv_lines(table, between, form.decimal))
    else:
        errors.print(f"Wrote {len(read.X):,} rows to {out}", markup=False, soft_wrap=True)


def _columns(model: Any, read: Encoded, *, interval: float | None, std: bool, proba: bool) -> dict[str, list[Any]]:
    """The new columns by name."""
    columns: dict[str, Any] = {"prediction": model.predict(read.X)}
    if std:
        columns["std"] = model.predict(read.X, return_std=True)[1]
    if interval is not None:
        columns["lower"], columns["upper"] = model.predict_interval(read.X, coverage=interval)
    if proba:
        names = (f"probability of {each}" for each in model.classes_)
        columns |= dict(zip(names, model.predict_proba(read.X).T))
    for name, values in columns.items():
        if values.dtype.kind == "f" and not (finite := np.isfinite(values)).all():
            raise DataError(
                f"{name} is not finite in {int((~finite).sum())} rows (the first is data row "
                f"{int(np.argmin(finite)) + 1}); its inputs are too large"
            )
    return {name: values.tolist() for name, values in columns.items()}


def _write(out: Path, table: Any, separator: str, decimal: str) -> None:
    """Write a table in the format that the name of the file asks for."""
    name = out.name.lower()
    if name.endswith(_PARQUET):
        buffer = io.BytesIO()
        parquet.write_table(table, buffer)
        write_file(out, buffer.getvalue())
    else:
        lines = _csv_lines(table, "\t" if name.endswith(".tsv") else separator, decimal)
        write_file(out, "".join(lines).encode())


def _csv_lines(table: Any, separator: str, decimal: str) -> Iterator[str]:
    """The lines of the file, a batch of rows at a time."""

    def cell(value: Any) -> Any:
        return str(value).replace(".", decimal) if isinstance(value, float) else value

    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=separator, lineterminator="\n")
    writer.writerow(table.column_names)
    for batch in table.to_batches(max_chunksize=10_000):
        writer.writerows(zip(*(map(cell, column.to_pylist()) for column in batch.columns)))
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
