"""Saved models as the commands use them: the model and the table encoder that ``mixtune fit`` stores beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mixtune.data import TableEncoder
from mixtune.errors import DataError, ParameterError
from mixtune.estimators import SavedInfo, load, read_info


def load_with_encoder(path: Path) -> tuple[Any, TableEncoder]:
    """Load a model that can read tables, or say why this file does not hold one."""
    encoder = encoder_of(read_info(path))
    if encoder is None:
        raise DataError(
            f"{path} was saved in Python and does not say how tables become its inputs; use it in Python with "
            f'mixtune.estimators.load("{path}"), or make a model with: mixtune fit'
        )
    model = load(path)
    if model.n_features_in_ != len(encoder.names):
        raise DataError(
            f"{path} takes {model.n_features_in_} inputs, but says how to make {len(encoder.names)}; fit it again"
        )
    return model, encoder


def encoder_of(info: SavedInfo) -> TableEncoder | None:
    """How the model reads tables; None for one that was saved in Python."""
    stored = info.metadata.get("encoder")
    return TableEncoder.from_dict(stored) if isinstance(stored, dict) else None


def rows_of(info: SavedInfo) -> dict[str, int]:
    """The number of rows of each domain, where the file says so; metadata saved in Python may hold anything."""
    rows = info.metadata.get("rows")
    return {name: count for name, count in rows.items() if isinstance(count, int)} if isinstance(rows, dict) else {}


def texts_of(info: SavedInfo, key: str) -> list[str]:
    """A list of texts from the metadata of the file; empty where there is none."""
    texts = info.metadata.get(key)
    return [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []


def load_if_possible(path: Path) -> tuple[Any, str | None]:
    """Load the model, or say what is missing that only Python can provide, such as a network."""
    try:
        return load(path), None
    except ParameterError as error:
        return None, str(error)
