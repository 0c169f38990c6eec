"""CSV files: how they are written, strictly as told or as found out, and tables from them.

A regular file goes to pyarrow as it is. One with lines before the header, rows of different lengths, a column of row
names without a name, or spaces between columns is rewritten first.
"""

import codecs
import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.csv

from mixtune._messages import Note, Wording, counted, counted_note, setting
from mixtune.data._parse_column import DECIMAL_COMMA, Fault, phrase, plain_text
from mixtune.data._tables import Table
from mixtune.errors import DataError, ParameterError

_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
#: Runs of blanks between columns, which is no character.
_SPACES = " "
_WORDS = re.compile(r'"([^"]*)"|(\S+)')
_DECIMAL_POINT = re.compile(r"\s*[+-]?\d*[.]\d+\s*")
#: So many bytes are enough to look at the header and some rows.
_HEAD = 1 << 16
#: Cells that span lines are meant so where a column has several of them, or where one is this share of its rows.
_BROKEN_SHARE = 0.02
#: In a stretch of so many lines, half of them are enough to look like rows; in a shorter one, all.
_LONG_STRETCH = 4
#: Where more of every second byte is zero, and hardly any of the others, characters have two bytes.
_ZEROS = 0.5
#: A file with a larger share of rows that do not fit the header is refused.
_MOST_ODD_ROWS = 0.05


@dataclass(frozen=True)
class CsvFormat:
    """How a CSV file is written.

    Parameters
    ----------
    encoding
        Any text encoding that Python knows, such as "utf-8", "latin-1" or "cp1252".
    separator
        The character between columns; by default a comma, and a tab for files ending in .tsv.
    decimal
        "." or ",": what stands before the decimals.

    Examples
    --------
    >>> CsvFormat(separator=",", decimal=",")
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: separator and decimal are both ","; a file needs two different characters
    """

    encoding: str = "utf-8"
    separator: str | None = None
    decimal: str = "."

    def __post_init__(self) -> None:
        given: dict[str, Any] = {name: setting(name, value) for name, value in vars(self).items()}
        try:
            object.__setattr__(self, "encoding", codecs.lookup(self.encoding).name)
        except (LookupError, TypeError) as error:
            raise ParameterError('{encoding} is unknown; use one such as "latin-1" or "cp1252"', **given) from error
        mark = self.separator
        if mark is not None and not (isinstance(mark, str) and re.fullmatch(r'[^\r\n"\x80-\U0010ffff]', mark)):
            raise ParameterError('{separator} must be one character, such as "," or ";" or "\\t"', **given)
        if self.decimal not in (".", ","):
            raise ParameterError('{decimal} must be "." or ","', **given)
        if mark == self.decimal:
            raise ParameterError(f'separator and decimal are both "{mark}"; a file needs two different characters')


#: Commas, decimal points, UTF-8.
UTF8 = CsvFormat()


class FileTable(NamedTuple):
    """A table from a file, the format of the file if it is CSV, and notes on how it was read."""

    table: Table
    form: CsvFormat | None
    notes: list[Note]


def read_csv(data: Any, path: Path, form: CsvFormat, text: Sequence[str] = (), *, tabs: bool = False) -> Table:
    """Read a CSV file that is written as told, and refuse any other.

    Parameters
    ----------
    data
        The file's bytes, as a pyarrow buffer.
    path
        How errors name it.
    form
        How it is written; without a separator it has commas, or ``tabs``.
    text
        Columns to read as they are written.

    Examples
    --------
    >>> data = pa.py_buffer(b"size;price\\n1;2,5\\n")
    >>> read_csv(data, Path("a.csv"), CsvFormat(separator=";", decimal=",")).to_pydict()
    {'size': [1], 'price': [2.5]}
    """
    separator = form.separator or ("\t" if tabs else ",")
    if separator == form.decimal:
        template = '{given} is also the separator of the columns of "{path}"; pass {fix}'
        given, fix = setting("decimal", form.decimal), setting("separator", ";")
        raise ParameterError(template, given=given, path=path, fix=fix)
    _check_encoding(data, path, form.encoding)
    broken = broken_lines(data, path, form.encoding, separator)
    try:
        table = _parse(data, form, separator, text)
    except pa.ArrowInvalid:
        _check_separator(data, path, form, separator)
        raise
    if table.num_columns == 1:
        _check_separator(data, path, form, separator)
    _check_lines(table, data, path, form.encoding, broken)
    return table


def _parse(data: Any, form: CsvFormat, separator: str, text: Sequence[str]) -> Table:
    # Arrow infers a column's type from the first block only and then fails on 1.5 after many whole numbers,
    # so the block is the whole file (up to a gigabyte), which as UTF-8 may take three bytes for one.
    size = data.size if form.encoding == "utf-8" else 3 * data.size
    reading = pa.csv.ReadOptions(block_size=min(max(size, 1 << 20), 1 << 30), encoding=form.encoding)
    types = pa.csv.ConvertOptions(decimal_point=form.decimal, column_types=dict.fromkeys(text, pa.string()))
    # Cells may hold line breaks; with one block they cost nothing.
    parsing = pa.csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    return pa.csv.read_csv(pa.BufferReader(data), reading, parsing, types)


def _check_encoding(data: Any, path: Path, encoding: str, *, final: bool = True) -> None:
    """Refuse a file that is written in another encoding, and say which one to try; ``final`` unless more follows."""
    if detail := _undecodable(data, encoding, final=final):
        other = "utf-16" if _is_utf16(data) else "latin-1" if encoding == "utf-8" else "utf-8"
        remedy = phrase("pass {fix}, or the encoding of the file", fix=setting("encoding", other))
        raise Fault(f'"{path}" is not written in {encoding} ({detail})', remedy).error("encoding")


def _undecodable(data: Any, encoding: str, *, final: bool = True) -> str:
    """Why a file cannot be decoded with an encoding; "" if it can."""
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for start in range(0, data.size, 1 << 20):
            decoder.decode(data[start : start + (1 << 20)].to_pybytes())
        decoder.decode(b"", final=final)
    except UnicodeError as error:
        return str(error)
    return ""


def _is_utf16(data: Any) -> bool:
    return data[:2].to_pybytes() in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def _check_separator(data: Any, path: Path, form: CsvFormat, separator: str) -> None:
    """Refuse a file whose header looks as if another character separated the columns."""
    lines = data[:_HEAD].to_pybytes().decode(form.encoding, errors="replace").splitlines()
    header = lines[0] if lines else ""
    found = max(_SEPARATORS, key=header.count)
    if header.count(found) <= header.count(separator):
        return
    # What is typed for a tab, both in Python and on the command line, is a backslash and a t.
    fix: Wording = setting("separator", "\\t" if found == "\t" else found)
    cells = (cell for line in lines[1:50] for cell in line.split(found))
    if found != "," and form.decimal != "," and any(DECIMAL_COMMA.fullmatch(cell) for cell in cells):
        fix = phrase("{separator} and {decimal}", separator=fix, decimal=setting("decimal", ","))
    finding = f'the columns of "{path}" are separated by {_SEPARATORS[found]}'
    raise Fault(finding, phrase("pass {fix}", fix=fix)).error("separator")


def broken_lines(data: Any, path: Path, encoding: str, separator: str) -> int:
    """How many lines of a file continue a quoted cell of the line before; stray quotation marks are refused.

    Without its partner, a quotation mark at the start of a cell makes all lines up to the next one part of that cell.
    Cells are taken to span lines on purpose where their quotation marks are in order, their lines do not look like rows,
    and the column has several such cells.

    Parameters
    ----------
    data
        The file's bytes, as a pyarrow buffer.
    path
        How errors name it.
    encoding, separator
        How it is written.

    Examples
    --------
    >>> broken_lines(pa.py_buffer(b'x,y\\n"one\\ntwo",3\\n'), Path("a.csv"), "utf-8", ",")
    1
    >>> broken_lines(pa.py_buffer(b'x,y\\n"1,2\\n3,4\\n5",6\\n'), Path("a.csv"), "utf-8", ",")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: a quoted cell of "a.csv" begins in line 2 and ends in line 4, and its lines look like rows of their own; remove the quotation mark that stands alone, or double it where it belongs to a text
    """  # noqa: E501
    if separator == _SPACES or not _has_quotes(data, encoding):
        return 0
    lines = _lines(data, encoding)
    if not any(line.count('"') % 2 for line in lines):
        return 0
    rows, spans = _records(lines, separator)
    if not spans:
        return 0
    width = _usual_width([row for row, _, _ in rows])
    columns: Counter[int] = Counter()
    for row, start, end in spans:
        begins = f'a quoted cell of "{path}" begins in line {start}'
        own = lines[start - 1 : end]
        if not _is_strict("\n".join(own), separator):
            ends = f"ends in the middle of a cell in line {end}"
            unclosed = end >= len(lines) - 1 and _is_strict("\n".join(own) + '"', separator)
            raise _stray_quote(f"{begins} and {'never ends' if unclosed else ends}")
        like_rows = sum(len(line.split(separator)) == width for line in own)
        enough = len(own) / 2 if len(own) >= _LONG_STRETCH else len(own)
        if width > 1 and (like_rows >= enough or len(row) != width):
            raise _stray_quote(f"{begins} and ends in line {end}, and its lines look like rows of their own")
        columns.update(place for place, cell in enumerate(row) if "\n" in cell)
    lonely = max(columns.values()) == 1 and len(rows) > 1 / _BROKEN_SHARE
    if lonely and (spanning := next((span for span in spans if span[1] != rows[0][1]), None)):
        where = f"from line {spanning[1]} to line {spanning[2]}"
        finding = f'one quoted cell of "{path}" spans lines, {where}, and no other cell of its column does'
        raise Fault(finding, "remove its line break, or the quotation mark that stands alone").error("stray-quote")
    return sum(end - start for _, start, end in spans)


@lru_cache(maxsize=1024)
def check_streamed_csv(path: str, form: CsvFormat, separator: str, identity: tuple[Any, ...]) -> None:
    """Refuse a CSV file that cannot be read block by block: it is separated otherwise, or its cells span lines.

    Parameters
    ----------
    path
        The file, which may be compressed.
    form, separator
        How it is written.
    identity
        What changes when the file does: it is looked at once.
    """
    step = 1 << 20
    with pa.input_stream(path) as file:
        block = file.read(step)
        if _is_utf16(pa.py_buffer(block)):
            _check_encoding(pa.py_buffer(block), Path(path), form.encoding, final=False)
        _check_separator(pa.py_buffer(block), Path(path), form, separator)
        if form.encoding.startswith("utf-16"):
            return
        line, rest = 1, b""
        while block:
            *lines, rest = (rest + block).split(b"\n")
            block = file.read(step)
            lines, rest = (lines, rest) if block else ([*lines, rest], b"")
            for place, each in enumerate(lines):
                if each.count(b'"') % 2 and not _is_strict(each.decode(form.encoding, errors="replace"), separator):
                    finding = f'a quoted cell of "{path}" begins in line {line + place} and does not end there'
                    raise _stray_quote(finding)
            line += len(lines)


def _stray_quote(finding: str) -> DataError:
    remedy = "remove the quotation mark that stands alone, or double it where it belongs to a text"
    return Fault(finding, remedy).error("stray-quote")


def _has_quotes(data: Any, encoding: str) -> bool:
    wide = re.match("utf-(16|32)", encoding)
    quote = codecs.encode('"', f"{wide[0]}-le" if wide else encoding)
    step = 1 << 24
    return any(quote in data[start : start + step].to_pybytes() for start in range(0, data.size, step))


def _lines(data: Any, encoding: str) -> list[str]:
    return re.split("\r\n|\r|\n", data.to_pybytes().decode(encoding, errors="replace").removeprefix("\ufeff"))


_Record: TypeAlias = tuple[list[str], int, int]


def _records(lines: Sequence[str], separator: str) -> tuple[list[_Record], list[_Record]]:
    """The rows that are not blank, with their first and last line, and those over several lines."""
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=separator)
    rows: list[_Record] = []
    start = 1
    before = csv.field_size_limit(sys.maxsize)
    try:
        for row in reader:
            # Blank lines before a row are rows of their own.
            rows += [(row, start, reader.line_num)] if any(map(str.strip, row)) else []
            start = reader.line_num + 1
    finally:
        csv.field_size_limit(before)
    return rows, [record for record in rows if record[2] > record[1]]


def _is_strict(text: str, separator: str) -> bool:
    """Whether quotation marks open cells and close them."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    except csv.Error:
        return False
    finally:
        csv.field_size_limit(before)
    return True


def _check_lines(table: Table, data: Any, path: Path, encoding: str, broken: int) -> None:
    """Refuse a table with other rows than the file has lines: nothing gets lost without a word."""
    wide = encoding.startswith(("utf-16", "utf-32"))
    if not wide and table.num_rows in (count := data.to_pybytes().count(b"\n") - broken, count - 1):
        return
    lines = sum(1 for line in _lines(data, encoding) if line) - broken - 1
    # A line of blanks is a row to some readers.
    if table.num_rows not in (lines, sum(1 for line in _lines(data, encoding) if line.strip()) - broken - 1):
        finding = f'"{path}" has {lines:,} lines after the header, of which {table.num_rows:,} rows were read'
        raise Fault(finding, "look for quotation marks that stand alone").error("lost-rows")


def detect_csv(
    data: Any,
    path: Path,
    text: Sequence[str] = (),
    *,
    encoding: str | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    tabs: bool = False,
    expected: Sequence[str] = (),
    as_written: bool = False,
) -> FileTable:
    """Read a CSV file of which some is not known: what is None is found out.

    Parameters
    ----------
    data, path, text
        As for :func:`read_csv`.
    encoding, separator, decimal
        How the file is written.
    tabs
        Whether tabs are the more likely separator.
    expected
        Columns that the file should have, besides ``text``: the separator that yields most of these names is preferred.
    as_written
        Whether to read all columns as they are written.

    Examples
    --------
    >>> file = "größe;preis\\n1;2,5\\n3\\n".encode("cp1252")
    >>> read = detect_csv(pa.py_buffer(file), Path("a.csv"))
    >>> read.table.to_pydict(), read.form.separator, read.form.decimal
    ({'größe': [1, 3], 'preis': [2.5, None]}, ';', ',')
    """
    # What is given is checked before the rest is found out.
    CsvFormat("utf-8" if encoding is None else encoding, separator, "." if decimal is None else decimal)
    if not data.size:
        raise pa.ArrowInvalid("Empty CSV file")
    notes: list[Note] = []
    if encoding is None:
        encoding = _find_encoding(data)
        if not encoding.startswith("utf-"):
            template = '"{file}" is not in UTF-8; it is read as {encoding} ({fix} changes that)'
            fix = setting("encoding", "NAME")
            notes.append(Note("encoding", template, file=path.name, encoding=encoding, fix=fix))
    else:
        _check_encoding(data, path, encoding)
    head = data[:_HEAD].to_pybytes()
    whole = len(head) == data.size
    lines = codecs.getincrementaldecoder(encoding)(errors="replace").decode(head).removeprefix("\ufeff")
    known = {*text, *expected}
    likely = "\t" if tabs else ","
    found = separator or _find_separator(lines, whole=whole, likely=likely, known=known)
    # A quotation mark that stands alone hides how the lines are separated.
    bare = separator or _find_separator(lines.replace('"', ""), whole=whole, likely=likely, known=known)
    broken = max(broken_lines(data, path, encoding, mark) for mark in dict.fromkeys((bare, found)))
    rows = _split(lines, found, whole=whole)
    mark = decimal or ("." if found == "," else _find_decimal(rows))
    form = CsvFormat(encoding, found, mark)
    if separator is None and found != ("\t" if tabs else ","):
        notes.append(_form_note(path, found, mark))
    if _is_regular(rows) and found != _SPACES:
        try:
            names = [name for name in rows[0] if as_written or plain_name(name) in text]
            table = _parse(data, form, found, names)
            _check_lines(table, data, path, encoding, broken)
            return FileTable(table, form, notes)
        except pa.ArrowInvalid as error:
            if "Expected" not in str(error):
                raise
    content = data.to_pybytes().decode(encoding).removeprefix("\ufeff")
    if not (cells := _split(content, found)):
        raise pa.ArrowInvalid("Empty CSV file")
    rewritten, repairs = _repair(cells, path)
    names = [name for name in rewritten[0] if as_written or plain_name(name) in text]
    lines_out = io.StringIO()
    csv.writer(lines_out, delimiter=";").writerows(rewritten)
    buffer = pa.py_buffer(lines_out.getvalue().encode())
    return FileTable(_parse(buffer, CsvFormat(decimal=mark), ";", names), form, notes + repairs)


def plain_name(name: str) -> str:
    """The name of a column on one line, without surrounding spaces, its accents composed.

    Examples
    --------
    >>> plain_name(" living\\narea ")
    'living area'
    """
    return " ".join(plain_text(name).split())


def _form_note(path: Path, separator: str, decimal: str) -> Note:
    between = "blanks" if separator == _SPACES else _SEPARATORS.get(separator, repr(separator))
    commas = " and numbers with decimal commas" if decimal == "," else ""
    template = '"{file}" is read with {between} between its columns{commas}'
    return Note("csv-format", template, file=path.name, between=between, commas=commas)


def _find_encoding(data: Any) -> str:
    """UTF-8 where the bytes are that, UTF-16 and UTF-32 by their marks or zeros, else what Windows writes."""
    head = data[:4096].to_pybytes()
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if _is_utf16(data):
        return "utf-16"
    # Of ASCII characters, every second byte is zero; texts have no other zeros.
    zeros = [part.count(0) / max(len(part), 1) for part in (head[::2], head[1::2])]
    if max(zeros) > _ZEROS > 2 * min(zeros):
        return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    return next((each for each in ("utf-8", "cp1252") if not _undecodable(data, each)), "latin-1")


def _split(text: str, separator: str, *, whole: bool = True) -> list[list[str]]:
    """The cells of each line that is not blank; the last line of a part of a file may be cut and is left out."""
    if separator == _SPACES:
        lines = text.splitlines() if whole else text.splitlines()[:-1]
        rows = [[quoted or bare for quoted, bare in _WORDS.findall(line)] for line in lines]
    else:
        try:
            rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
        except csv.Error:  # a cell longer than the reader takes, as after a quote that is never closed
            rows = [line.split(separator) for line in text.splitlines()]
        rows = rows if whole else rows[:-1]
    return [row for row in rows if any(map(str.strip, row))]


def _usual_width(rows: Sequence[Sequence[str]]) -> int:
    return Counter(map(len, rows[1:] or rows)).most_common(1)[0][0] if rows else 0


def _find_separator(text: str, *, whole: bool, likely: str, known: Set[str] = frozenset()) -> str:
    """The separator with which most rows have as many cells as the header; the likely one where none does.

    One that yields more of the ``known`` column names is preferred.

    Examples
    --------
    >>> _find_separator("a;b\\n1,5;2\\n2,5;3\\n", whole=True, likely=",")
    ';'
    """
    scores: dict[str, tuple[int, bool, int, float, int]] = {}
    for separator in (likely, *(mark for mark in _SEPARATORS if mark != likely), _SPACES):
        rows = _split(text, separator, whole=whole)[:200]
        width = _usual_width(rows)
        start = _header_place(rows, width)
        if width < 2 or start is None or len(rows[start]) < 2:
            continue
        same = sum(len(row) == width for row in rows[start + 1 :]) / max(1, len(rows) - start - 1)
        # Blanks also stand between the words of one column.
        same = round(same if separator != _SPACES else same - 0.5, 1)
        names = len(known & set(map(plain_name, rows[start])))
        # Commas in numbers make columns, too, but not of the header: it is later then. This counts more than a few
        # rows of another length.
        scores[separator] = (names, same > 0.5, -start, same, width)
    return max(scores, key=scores.__getitem__) if scores else likely


def _find_decimal(rows: Sequence[Sequence[str]]) -> str:
    cells = [cell for row in rows[:200] for cell in row]
    commas = sum(bool(DECIMAL_COMMA.fullmatch(cell)) for cell in cells)
    return "," if commas > sum(bool(_DECIMAL_POINT.fullmatch(cell)) for cell in cells) else "."


def _header_place(rows: Sequence[Sequence[str]], width: int) -> int | None:
    """Which row is the header: the first that is as wide as the others, or one cell less, and no remark."""
    # Spreadsheets write empty columns at the end, which need no names.
    used = max((end for row in rows[:50] for end, cell in enumerate(row, 1) if cell.strip()), default=0)
    for place, row in enumerate(rows[:50]):
        named = sum(bool(cell.strip()) for cell in row)
        if len(row) >= width - 1 and 2 * named > min(width, used) and not row[0].startswith("#"):
            return place
    return None


def _is_regular(rows: Sequence[Sequence[str]]) -> bool:
    return bool(rows) and {len(row) for row in rows} == {len(rows[0])} and _header_place(rows, len(rows[0])) == 0


def _repair(rows: list[list[str]], path: Path) -> tuple[list[list[str]], list[Note]]:
    """Rows of equal length: without lines before the header, filled up, and with a name for a column of row names.

    Examples
    --------
    >>> rows, notes = _repair([["A title"], ["x", "y"], ["1", "2"], ["3"], ["4", "5", ""]], Path("a.csv"))
    >>> rows
    [['x', 'y'], ['1', '2'], ['3', ''], ['4', '5']]
    >>> [note.code for note in notes]
    ['skipped-lines', 'short-rows']
    """
    width = _usual_width(rows)
    start = _header_place(rows, width) or 0
    header, body = rows[start], rows[start + 1 :]
    if width == len(header) + 1 and any(row[-1].strip() for row in body if len(row) == width):
        header = ["rownames", *header]
    width = len(header)
    short = sum(len(row) < width for row in body)
    fitting = [row for row in body if not any(map(str.strip, row[width:]))]
    long = len(body) - len(fitting)
    if long + short > max(3, _MOST_ODD_ROWS * len(body)) and long:
        finding = f'{counted((long + short, "row"))} of "{path}" do not have {width} cells, as the header has'
        raise DataError(f"{finding}; is the separator right, and is text with separators in it quoted?")
    told = (
        ("skipped-lines", start, "line", 'before the header of "{file}" {are} skipped'),
        ("short-rows", short, "row", 'of "{file}" {are} shorter than the header; the remaining cells count as missing'),
        ("long-rows", long, "row", 'of "{file}" {are} longer than the header and left out'),
    )
    notes = [counted_note(code, count, *words, file=path.name) for code, count, *words in told if count]
    return [header, *([*row[:width], *[""] * (width - len(row))] for row in fitting)], notes
