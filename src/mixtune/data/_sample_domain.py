"""Rows by skada's convention: one whole number per row, positive for sources and negative for targets."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mixtune._array import Integers
from mixtune._messages import nearest
from mixtune.errors import DataError, ParameterError


class LabelledRows(NamedTuple):
    """Which rows belong where: the focal label as text with its rows, and those of the sources by label."""

    focal: str
    focal_rows: Integers
    sources: dict[str, Integers]


def rows_by_label(y: Any, sample_domain: Any, focal: int | None = None) -> LabelledRows:
    """Find the rows of the focal domain that have a target, and those of each source.

    Parameters
    ----------
    y
        Targets; NaN marks rows of a target domain without a label.
    sample_domain
        One whole number per row, not 0.
    focal
        Which negative label is the focal one; there may be only one by default.

    Examples
    --------
    >>> rows = rows_by_label([1.0, 2.0, float("nan"), 3.0], [3, -2, -2, 1])
    >>> rows.focal, rows.focal_rows.tolist(), {name: own.tolist() for name, own in rows.sources.items()}
    ('-2', [1], {'1': [3], '3': [0]})
    """
    labels = np.asarray(sample_domain)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or np.any(labels == 0):
        raise DataError("sample_domain must be one whole number per row: positive for sources, negative for the target")
    values = np.asarray(y)
    if len(values) != len(labels):
        raise DataError(f"sample_domain has {len(labels)} labels for {len(values)} targets; pass one per row")
    order = np.argsort(labels, kind="stable")
    found, starts = np.unique(labels[order], return_index=True)
    rows = {int(label): own for label, own in zip(found, np.split(order, starts[1:]))}
    here = _focal_label([label for label in rows if label < 0], focal)
    known = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(values.shape, dtype=bool)
    labelled = rows[here][known.reshape(len(values), -1)[rows[here]].all(axis=1)]
    if len(labelled) == 0:
        raise DataError("no row of the target domain has a label (y is NaN in all of them); label at least one")
    return LabelledRows(str(here), labelled, {str(label): own for label, own in rows.items() if label > 0})


def _focal_label(targets: list[int], focal: int | None) -> int:
    if focal is None:
        if len(targets) != 1:
            raise DataError(
                f"sample_domain has {len(targets)} negative labels; exactly one target domain is needed: "
                "name it with focal, or keep the rows of one target"
            )
        return targets[0]
    if focal not in targets:
        raise ParameterError(
            f"focal={focal!r} is no target of sample_domain; {nearest(str(focal), list(map(str, targets)))}"
        )
    return int(focal)
