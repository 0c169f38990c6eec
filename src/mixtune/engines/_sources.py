"""From what a user passes to work for a cluster: files into stretches, Dask collections into their blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mixtune.data._blocks import Reading
from mixtune.data._pieces import ArrayPiece, Piece
from mixtune.data._streams import Stream, open_stream
from mixtune.data._tables import as_names, as_table, choose_inputs
from mixtune.engines._cluster import dask_module
from mixtune.engines._collections import is_collection
from mixtune.engines._tasks import array_block, frame_block
from mixtune.errors import DataError, ParameterError

__all__ = ["ClusterSource", "open_source"]


@dataclass(frozen=True, eq=False)
class ClusterSource:
    """Either pieces of files, or blocks that Dask computes; ``stream`` tells about columns in both cases."""

    stream: Stream
    blocks: list[Any] | None

    def pieces(self, rows: int) -> list[Piece]:
        """The files in stretches of about ``rows`` rows."""
        return self.stream.split(rows)


def open_source(source: Any, *, target: Any, domain: Any, columns: Any, **csv: Any) -> ClusterSource:
    """Look at files or Dask collections without reading rows."""
    if is_collection(source):
        if not hasattr(source, "columns"):
            raise ParameterError("pass two Dask arrays, X and y, as a pair (X, y)")
        return _of_frame(source, target, domain, columns)
    pairs = source if isinstance(source, Mapping) else {"0": source}
    if any(isinstance(pair, tuple) and any(map(is_collection, pair)) for pair in pairs.values()):
        return _of_arrays(pairs, target, domain, columns)
    stream = open_stream(source, target=target, domain=domain, columns=columns, **csv)
    stream = replace(stream, pieces=tuple(piece.absolute() for piece in stream.pieces))
    for piece in stream.pieces:
        if isinstance(piece, ArrayPiece) and not (isinstance(piece.X, str) and isinstance(piece.y, str)):
            raise ParameterError(
                "arrays in this process cannot be read by the workers of a cluster; pass names of .npy files or "
                "Dask arrays, or use stream_moments here"
            )
        if isinstance(piece, ArrayPiece) and piece.labels is not None:
            raise ParameterError("labels for .npy files do not travel; pass {name: (X, y)}, or Dask arrays")
    return ClusterSource(stream, None)


def _of_frame(frame: Any, target: Any, domain: Any, columns: Any) -> ClusterSource:
    if target is None:
        raise ParameterError("target is missing; pass the column to predict, such as target='y'")
    targets = as_names(target, "target")
    if domain is not None and not isinstance(domain, str):
        raise ParameterError(f"domain={domain!r} must be the name of a column of the data frame")
    table = as_table(frame._meta, "the data frame")
    inputs = choose_inputs(table, targets=targets, domain=domain, columns=columns, where="the data frame")
    reading = Reading(inputs, targets, isinstance(target, str), domain)
    make = dask_module("dask").delayed(frame_block, pure=False)
    blocks = [make(part, reading, number) for number, part in enumerate(frame[reading.names].to_delayed())]
    return ClusterSource(Stream((), inputs, len(inputs), len(targets)), blocks)


def _of_arrays(pairs: Mapping[str, Any], target: Any, domain: Any, columns: Any) -> ClusterSource:
    if target is not None or columns is not None:
        raise ParameterError("arrays have no named columns; leave target and columns out, and pass pairs (X, y)")
    if domain is not None and (len(pairs) > 1 or not is_collection(domain)):
        raise ParameterError("domain must be a Dask array with the label of every row of one pair (X, y)")
    blocks: list[Any] = []
    shapes: dict[tuple[Any, ...], str] = {}
    for name, pair in pairs.items():
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(map(is_collection, pair))):
            raise ParameterError(f'domain "{name}" must come as a pair (X, y) of Dask arrays')
        X, y = pair
        if X.ndim != 2 or y.ndim not in (1, 2) or not _alike(X.shape[0], y.shape[0]):
            raise DataError(
                f'domain "{name}" has X of shape {X.shape} and y of shape {y.shape}; pass one target per row'
            )
        shapes.setdefault((X.shape[1], y.shape[1:]), str(name))
        blocks.extend(_array_blocks(X, y, domain, str(name)))
    if len(shapes) > 1:
        raise DataError(f"the domains differ in columns or outputs: {shapes}; pass the same for all")
    width, rest = next(iter(shapes))
    return ClusterSource(Stream((), None, int(width), int(rest[0]) if rest else 1), blocks)


def _alike(one: Any, other: Any) -> bool:
    # Lengths that Dask does not know are NaN.
    return one == other or one != one or other != other


def _array_blocks(X: Any, y: Any, labels: Any, name: str) -> list[Any]:
    """Chunks of whole rows, those of y and the labels cut like those of X."""
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    parts: list[Sequence[Any]] = [X.to_delayed()[:, 0].tolist()]
    for what, array in (("y", y), ("domain", labels)):
        if array is None:
            parts.append([None] * X.numblocks[0])
            continue
        if array.chunks[0] != X.chunks[0] and not any(size != size for size in X.chunks[0]):
            array = array.rechunk({0: X.chunks[0]})
        array = array.rechunk({1: -1}) if array.ndim == 2 and array.numblocks[1] > 1 else array
        if array.numblocks[0] != X.numblocks[0]:
            raise DataError(f"{what} has {array.numblocks[0]} chunks of rows, X has {X.numblocks[0]}; chunk them alike")
        parts.append(array.to_delayed().ravel().tolist())
    make = dask_module("dask").delayed(array_block, pure=False)
    return [make(*chunks, name) for chunks in zip(*parts, strict=True)]
