"""Files that commands write, and JSON on standard output: checked before the work, written whole or not at all."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from mixtune._files import write_atomically
from mixtune._messages import quoted
from mixtune.errors import DataError, ParameterError

__all__ = ["check_outputs", "plain", "print_json", "write_file"]


def check_outputs(
    outputs: Mapping[str, Path | None],
    *,
    force: bool,
    inputs: Sequence[Path] = (),
    endings: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Refuse, before any work, a path that could not be written in the end.

    Parameters
    ----------
    outputs
        Paths by the option that gives them; None where it was not given.
    force
        Whether files that exist may be replaced.
    inputs
        Files that are read, which are never replaced.
    endings
        For some options, how the name must end.

    Examples
    --------
    >>> check_outputs({"--out": Path("no/such/folder/model.mixtune")}, force=False)
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: --out: there is no folder no/such/folder; make it first
    """
    seen: dict[Path, str] = {path.resolve(): "an input" for path in inputs}
    for option, path in outputs.items():
        if path is None:
            continue
        if path.is_dir():
            raise ParameterError(f"{option}: {path} is a folder; give the name of a file in it")
        allowed = tuple((endings or {}).get(option, ()))
        if allowed and not path.name.lower().endswith(allowed):
            raise ParameterError(f"{option}: {path} must end in {' or '.join(allowed)}")
        if not path.parent.is_dir():
            raise ParameterError(f"{option}: there is no folder {path.parent}; make it first")
        if other := seen.get(path.resolve()):
            raise ParameterError(f"{option}: {path} is also {other}; give another name")
        if path.exists() and not force:
            raise ParameterError(f"{option}: {path} exists; give another name, or --force to replace it")
        if not os.access(path.parent, os.W_OK):
            raise ParameterError(f"{option}: the folder {path.parent} cannot be written to; choose another")
        seen[path.resolve()] = option


def write_file(path: Path, content: bytes) -> Path:
    """Write a file whole or not at all, and say it plainly where the disk refuses."""
    try:
        return write_atomically(path, content)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}; choose another folder") from error


def plain(value: Any) -> Any:
    """Turn into what JSON can hold; a number that is not finite becomes null.

    Examples
    --------
    >>> import numpy as np
    >>> plain({"a": np.array([1.0, np.nan]), "b": (np.int64(3), None)})
    {'a': [1.0, None], 'b': [3, None]}
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return str(value) if isinstance(value, Path) else _unknown(value)


def _unknown(value: Any) -> Any:
    raise TypeError(f"{quoted([type(value).__name__])} is nothing that JSON can hold")


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object to standard output."""
    typer.echo(json.dumps(plain(document), indent=2, allow_nan=False))
