"""Data in: named domains, one of them focal, from arrays, tables and files; synthetic and real ones to try.

Most users need :class:`Domain` and :class:`Domains`. The command line reads its tables with :func:`read_training` and
:func:`read_new`. What follows in the list are the checks and readers that the other packages of mixtune share.
"""

from typing import TYPE_CHECKING

from mixtune._messages import moved_names
from mixtune.data._csv_files import UTF8, CsvFormat, check_streamed_csv
from mixtune.data._domain import Domain, as_floats, check_finite, check_pair, check_weight, column_difference
from mixtune.data._domains import Domains, arrange_columns, frame_of, rows_by_label
from mixtune.data._embeddings import EmbeddedColumn
from mixtune.data._encoder import DateColumn, Encoded, LevelColumn, NumberColumn, TableEncoder, TargetColumn
from mixtune.data._infer import constant_notes
from mixtune.data._labels import label_key, same_labels
from mixtune.data._leaks import (
    FINDINGS,
    domain_parts,
    findings_first,
    findings_of,
    label_codes_of,
    leak_notes,
    numeric_suspects,
    repeat_notes,
    shared_notes,
)
from mixtune.data._parse_column import plain_text
from mixtune.data._readers import STDIN, as_paths, file_label, read_file, read_table
from mixtune.data._tables import Table, as_names, as_table, check_names, choose_inputs, is_table, known_frame, to_matrix
from mixtune.data._training import TrainingTables, finding_notes, read_new, read_training
from mixtune.data.real import load_ames, load_diamonds, load_exam, load_sentiment
from mixtune.data.synthetic import SyntheticProblem, make_domains

# For everyone, for the command line, and for the other packages of mixtune.
__all__ = ["Domain", "Domains", "SyntheticProblem", "load_ames", "load_diamonds", "load_exam"]
__all__ += ["load_sentiment", "make_domains"]
__all__ += ["DateColumn", "EmbeddedColumn", "Encoded", "LevelColumn", "NumberColumn", "TableEncoder", "TargetColumn"]
__all__ += ["TrainingTables", "constant_notes", "read_new", "read_training"]
__all__ += ["STDIN", "UTF8", "CsvFormat", "Table", "as_names", "as_paths", "as_table", "check_names", "choose_inputs"]
__all__ += ["file_label", "is_table", "known_frame", "read_file", "read_table", "to_matrix"]
__all__ += ["arrange_columns", "as_floats", "check_finite", "check_pair", "check_weight", "column_difference"]
__all__ += [
    "FINDINGS",
    "domain_parts",
    "findings_first",
    "findings_of",
    "label_codes_of",
    "leak_notes",
    "numeric_suspects",
    "repeat_notes",
    "shared_notes",
]
__all__ += [
    "check_streamed_csv",
    "finding_notes",
    "frame_of",
    "label_key",
    "plain_text",
    "rows_by_label",
    "same_labels",
]

if not TYPE_CHECKING:
    __getattr__ = moved_names(__name__, "stream_samples")
