"""``mixtune predict``: new rows in, the same rows with predictions out."""

from __future__ import annotations

import csv
import datetime
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from mixtune._messages import Note, quoted
from mixtune.checks import require_extra
from mixtune.cli import inputs as reading
from mixtune.cli.outputs import check_outputs, output, print_json, progress_bar, show_lines, write_file
from mixtune.errors import DataError, ParameterError

if TYPE_CHECKING:
    from mixtune.estimators import ReadRows, TableModel

_PARQUET, _EXCEL = (".parquet", ".pq"), ".xlsx"
#: A cell that begins so is a formula to spreadsheets (the last four are the wide forms of the first four) ...
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
#: ... unless it is a number.
_NUMBER = re.compile(r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)? *")

#: Characters that a terminal acts on; tabs and line ends are part of texts.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

_FILE_HELP = "A table with the input columns, or - for standard input."
_OUT_HELP = "Write to this .csv, .tsv, .xlsx or .parquet file; by default to the terminal."
_INTERVAL_HELP = "Add an interval, such as 0.9: columns lower, upper."
_SAFE_HELP = (
    "Put an apostrophe before text that a spreadsheet would run as a formula, and leave control characters out."
)
_NEUTRALISE_HELP = "The former name of --safe-cells."


@reading.with_groups
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that fit wrote.")],
    new: Annotated[Path, typer.Argument(metavar="FILE", help=_FILE_HELP)],
    csv_options: reading.CsvOptions,
    out: Annotated[Path | None, typer.Option(help=_OUT_HELP)] = None,
    interval: Annotated[float | None, typer.Option(metavar="COVERAGE", help=_INTERVAL_HELP)] = None,
    std: Annotated[bool, typer.Option("--std", help="Add a standard deviation: column std.")] = False,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of each class.")] = False,
    safe_cells: Annotated[bool, typer.Option("--safe-cells", help=_SAFE_HELP)] = False,
    neutralise_formulas: Annotated[bool, typer.Option(help=_NEUTRALISE_HELP, hidden=True)] = False,
    force: reading.Force = False,
    as_json: reading.AsJson = False,
) -> None:
    """Predict new rows of the focal domain, or of any domain with a model of every domain.

    The output has the columns of the file, unchanged, and a column prediction;
    --interval adds lower and upper, --std adds std, and --proba adds one column
    for each class. If inputs lie outside the range of the training rows, the
    column outside names them. CSV is written with the separator and decimal mark
    of the input; files are in UTF-8. Notes are printed to standard error.

    Text is copied unchanged, even if it begins with =, +, - or @. A spreadsheet
    runs such a cell as a formula: if the rows come from people you do not trust,
    use --safe-cells before you open the CSV file in a spreadsheet. Numbers are
    not changed. On a terminal, control characters are shown and not sent.

    Exit code 0: done; 2: the command or the data cannot be used.

    Examples:

    mixtune predict model.mixtune new.csv

    mixtune predict model.mixtune new.csv --interval 0.9 --out predictions.csv
    """
    import pyarrow as pa
    import pyarrow.parquet

    from mixtune.data import UTF8, CsvFormat, read_file, read_new

    form: dict[str, Any] = csv_options.csv_format()
    # Wrong options are refused before any work.
    CsvFormat(form["encoding"] or "utf-8", form["separator"], form["decimal"] or ".")
    check_outputs({"--out": out}, force=force, inputs=[model, new], endings=(".csv", ".tsv", _EXCEL, *_PARQUET))
    typed = out is not None and out.name.lower().endswith((_EXCEL, *_PARQUET))
    excel = out is not None and out.name.lower().endswith(_EXCEL)
    if excel:
        require_extra("openpyxl", "excel", "writing Excel files")
    safe_cells |= neutralise_formulas
    if typed and safe_cells:
        raise ParameterError("--safe-cells is for CSV; text in Parquet and Excel files is no formula, leave it out")
    if interval is not None and not 0 < interval < 1:
        raise ParameterError(f"--interval {interval:g} must be between 0 and 1, such as 0.9")
    with progress_bar(2) as step:
        step("Reading")
        fitted = _load(model)
        encoder, target = fitted.encoder, fitted.encoder.target
        if target.classes is None and proba:
            raise ParameterError(f'--proba is for classes; "{target.name}" is a number, use --interval or --std')
        if target.classes is not None and (std or interval is not None):
            raise ParameterError(f'--interval and --std are for numbers; "{target.name}" is a class, use --proba')
        read = read_new(new, encoder, **form)
        step("Predicting")
        rows = fitted.read(read, f'"{new}"')
        if rows.domain and std:
            raise ParameterError("--std is for a model of one domain; use --interval")
        columns = _columns(fitted.estimator, rows, interval=interval, std=std, proba=proba)
        notes = [_with_column(note) if note.code == "outside-range" else note for note in rows.notes]
        if rows.outside.any():
            names = np.array(read.names)
            columns["outside"] = [", ".join(names[row].tolist()) for row in rows.outside]
    if taken := [name for name in columns if name in read.table.column_names]:
        raise DataError(f'"{new}" has a column {quoted(taken)} already; rename it, since predictions are called so')
    # Parquet and Excel have types, so there the cells are numbers again where they are numbers.
    table = read_file(new, text=encoder.text_columns, expected=encoder.inputs, **form).table if typed else read.table
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    found = read.form or UTF8
    between = "\t" if found.separator == " " else found.separator or ","
    if out is not None and out.name.lower().endswith(".tsv"):
        between = "\t"
    cells = _Cells(found.decimal, safe=safe_cells, shown=out is None and sys.stdout.isatty())
    lines = _csv_lines(table, between, cells)
    if out is not None and excel:
        write_file(out, _excel_content(table))
    elif out is not None and typed:
        pa.parquet.write_table(table, content := io.BytesIO())
        write_file(out, content.getvalue())
    elif out is not None:
        write_file(out, "".join(lines).encode())
    if as_json:
        about = {"model": model, "target": target.name, "focal": encoder.focal, "rows": len(read.X)}
        print_json({**about, "columns": columns, "notes": notes, "written": out})
        return
    errors = output(stderr=True)
    show_lines(errors, "Notes", notes)
    if out is None:
        sys.stdout.writelines(lines)
    else:
        errors.print(f"Wrote {len(read.X):,} rows to {out}", markup=False, soft_wrap=True)


def _load(path: Path) -> TableModel:
    """Load a model that can read tables, or say why this file does not hold one."""
    from mixtune.estimators import TableModel, read_info

    if reading.encoder_of(read_info(path)) is None:
        raise DataError(
            f"{path} was saved in Python and does not describe how tables become its inputs; use it in Python with "
            f'mixtune.estimators.load("{path}"), or make a model with: mixtune fit'
        )
    return TableModel.load(path)


def _with_column(note: Note) -> Note:
    """The note about inputs outside the range of training, with the column that names them."""
    return Note(note.code, note.message.template + "; see column {mark}", **note.fields, mark='"outside"')


def _columns(model: Any, rows: ReadRows, *, interval: float | None, std: bool, proba: bool) -> dict[str, list[Any]]:
    """The new columns by name; a model of every domain takes the domain of each row."""
    if (std or interval is not None) and not np.isfinite(getattr(model, "loo_error_", 0.0)):
        raise ParameterError(
            "the errors of this model are unknown, since it has too few focal rows; fit it again with more focal rows, "
            f"or predict without {'--std' if interval is None else '--interval'}"
        )
    X, domain = rows.X, rows.domain
    columns: dict[str, Any] = {"prediction": model.predict(X, **domain)}
    if std:
        columns["std"] = model.predict(X, return_std=True)[1]
    if interval is not None:
        columns["lower"], columns["upper"] = model.predict_interval(X, coverage=interval, **domain)
    if proba:
        names = (f"probability of {each}" for each in model.classes_)
        columns |= dict(zip(names, model.predict_proba(X, **domain).T))
    for name, values in columns.items():
        if values.dtype.kind == "f" and not (finite := np.isfinite(values)).all():
            raise DataError(
                f"{name} is not finite in {int((~finite).sum())} rows (the first is data row "
                f"{int(np.argmin(finite)) + 1}); its inputs are too large"
            )
    return {name: values.tolist() for name, values in columns.items()}


def _excel_content(table: Any) -> bytes:
    """An Excel file with one sheet; text that begins like a formula stays text."""
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell

    book = Workbook(write_only=True)
    sheet = book.create_sheet("predictions")

    def cell(value: Any) -> Any:
        if value is None or isinstance(value, int | float | datetime.date | datetime.time):
            # Excel has no time zones.
            return value.replace(tzinfo=None) if isinstance(value, datetime.datetime) else value
        made = WriteOnlyCell(sheet, _CONTROL.sub("", str(value)))
        made.data_type = "s"
        return made

    sheet.append([cell(name) for name in table.column_names])
    for batch in table.to_batches(max_chunksize=10_000):
        for row in zip(*(column.to_pylist() for column in batch.columns)):
            sheet.append([cell(value) for value in row])
    book.save(content := io.BytesIO())
    return content.getvalue()


@dataclass(frozen=True)
class _Cells:
    """How values are written: with which decimal mark, whether safe for spreadsheets, and whether for a terminal."""

    decimal: str
    safe: bool
    shown: bool

    def write(self, value: Any) -> Any:
        if isinstance(value, float):
            return str(value).replace(".", self.decimal)
        if not isinstance(value, str):
            return value
        if self.safe and value.lstrip(" ").startswith(_FORMULA):
            value = value if _NUMBER.fullmatch(value.replace(self.decimal, ".")) else f"'{value}"
        if self.safe:
            value = _CONTROL.sub("", value)
        return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", value) if self.shown else value


def _csv_lines(table: Any, separator: str, cells: _Cells) -> Iterator[str]:
    """The lines of the file; rows become Python's a batch at a time."""
    # A row comes back as what "write" returns. The default line end, replaced there, makes the writer quote cells with
    # a carriage return, which "\n" alone would not.
    plain = SimpleNamespace(write=lambda line: line.removesuffix("\r\n") + "\n")
    writer = csv.writer(plain, delimiter=separator, lineterminator="\r\n")
    yield writer.writerow(map(cells.write, table.column_names))
    for batch in table.to_batches(max_chunksize=10_000):
        yield from map(writer.writerow, zip(*(map(cells.write, column.to_pylist()) for column in batch.columns)))
