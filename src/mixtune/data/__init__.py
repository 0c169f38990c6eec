"""Data in: named domains, one of them focal, from arrays, tables and files; and made or real ones to try."""

from importlib import import_module
from typing import TYPE_CHECKING, Any
from warnings import warn

from mixtune.data._domain import Domain
from mixtune.data._domains import Domains
from mixtune.data._encoding import Encoded, TableEncoder
from mixtune.data._readers import UTF8, CsvFormat, as_paths, file_label, read_table
from mixtune.data._sample_domain import rows_by_label
from mixtune.data._tables import as_names, as_table, check_names, choose_inputs, to_matrix
from mixtune.data._training import TrainingTables, read_new, read_training
from mixtune.data.real import load_ames, load_exam, load_sentiment
from mixtune.data.synthetic import SyntheticProblem, make_domains

__all__ = [
    "UTF8",
    "CsvFormat",
    "Domain",
    "Domains",
    "Encoded",
    "SyntheticProblem",
    "TableEncoder",
    "TrainingTables",
    "as_names",
    "as_paths",
    "as_table",
    "check_names",
    "choose_inputs",
    "file_label",
    "load_ames",
    "load_exam",
    "load_sentiment",
    "make_domains",
    "read_new",
    "read_table",
    "read_training",
    "rows_by_label",
    "to_matrix",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "stream_samples":  # until the next release
            warn("mixtune.data.stream_samples has moved to mixtune.streaming", DeprecationWarning, stacklevel=2)
            return getattr(import_module("mixtune.streaming"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
