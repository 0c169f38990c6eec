"""Data in: named domains, one of them focal, from arrays, tables and files; and made or real ones to try."""

from mixtune.data._domain import Domain
from mixtune.data._domains import Domains
from mixtune.data._encoded_columns import LevelColumn
from mixtune.data._encoding import Encoded, TableEncoder
from mixtune.data._readers import CsvFormat, read_table
from mixtune.data._sampling import stream_samples
from mixtune.data._training import TrainingTables, read_new, read_training
from mixtune.data.real import load_ames, load_exam, load_sentiment
from mixtune.data.synthetic import SyntheticProblem, make_domains

__all__ = [
    "CsvFormat",
    "Domain",
    "Domains",
    "Encoded",
    "LevelColumn",
    "SyntheticProblem",
    "TableEncoder",
    "TrainingTables",
    "load_ames",
    "load_exam",
    "load_sentiment",
    "make_domains",
    "read_new",
    "read_table",
    "read_training",
    "stream_samples",
]
