"""``feature_map="auto"``: which frozen maps are tried, and their features for all rows.

The maps are the inputs, random Fourier features beside the inputs, and splines of every column, where possible with two
columns learned from the sources; many focal rows have boosted trees of their own, too. Each is a block of one wide map,
whose blocks may overlap; the choice averages over the blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune._array import Floats, Integers
from mixtune.features import (
    Clipped,
    Concatenate,
    FeatureMap,
    Identity,
    LearnedColumns,
    Oriented,
    fit_fourier,
    fit_splines,
)
from mixtune.moments import Rows, pooled_scaling
from mixtune.selection import SETTINGS, FeatureBlock, content_order, learn_columns, learn_own_column


@dataclass(frozen=True, eq=False)
class Maps:
    """The map of all features, the blocks to average over, and the rows of every domain as the fit sees them.

    The learned columns of a source come from models that were not fitted to its rows: those of its fold, of ``folds``.
    The focal domain, and every domain where nothing is learned, is in no fold: -1.
    """

    feature_map: FeatureMap
    blocks: tuple[FeatureBlock, ...]
    mapped: tuple[Rows, ...]
    notes: tuple[str, ...]
    folds: Integers


def auto_maps(
    rows: Mapping[str, Rows],
    *,
    seed: int,
    limits: tuple[Floats, Floats] | None,
    linear: bool = False,
    every: bool = False,
) -> Maps:
    """Maps from the rows of all domains, the focal one first; with ``every``, each of them is a source of the others.

    The inputs themselves are clipped to ``limits``; curves are constant beyond the range of the rows.
    """
    parts = list(rows.values())
    X, weight = np.concatenate([part.X for part in parts]), np.concatenate([part.weight for part in parts])
    inputs = X.shape[1]
    tried, notes = maps_to_try(inputs, len(parts) - 1, parts[0].targets.shape[1])
    if every and "learned" in tried:  # as curved, and a sixth of the columns: each domain pays for them
        tried.discard("Fourier")
    if linear:  # no intercept: curves would need one
        tried, notes = {"inputs"}, ()
    units = pooled_scaling(parts, standardise=True, center=True)
    y = np.concatenate([part.targets[:, 0] for part in parts])
    oriented = Oriented.of(X, y, weight, shift=units.shift, scale=units.scale)
    maps: dict[str, Any] = {"inputs": Identity(inputs) if limits is None else Clipped(Identity(inputs), *limits)}
    reach = X.min(axis=0), X.max(axis=0)
    if "splines" in tried:
        maps["splines"] = fit_splines(
            X, weight, oriented, knots=SETTINGS.spline_knots, most=SETTINGS.narrow_columns - 1
        )
    if "Fourier" in tried:
        fourier = fit_fourier(oriented(X), weight, oriented, width=SETTINGS.fourier_width, seed=seed)
        maps["Fourier"] = Clipped(fourier, *reach)
    made = np.hstack([each.transform(X) for each in maps.values()])
    of_part = np.full(len(parts), -1)
    if "learned" in tried:
        first = 0 if every else 1
        order = first + content_order([part.scaled(oriented) for part in parts[first:]])
        learned, folds = learn_columns([parts[k] for k in order], oriented, seed=seed)
        maps["learned"] = Clipped(learned, *reach)
        # Rows of no fold get the mean over folds.
        of_part[order] = folds
        made = np.hstack([made, learned.out_of_fold(X, np.repeat(of_part, [len(part.X) for part in parts]))])
    if "boosted" in tried and not every and len(parts[0].y) >= SETTINGS.own_rows:
        own, row_folds = learn_own_column(parts[0], oriented, seed=seed)
        maps["boosted"] = Clipped(own, *reach)
        known = len(row_folds)
        column = np.vstack([own.out_of_fold(X[:known], row_folds), own.transform(X[known:])])
        made = np.hstack([made, column])
    split = np.split(made, np.cumsum([len(part.X) for part in parts])[:-1])
    mapped = tuple(Rows(U, part.y, part.sample_weight) for U, part in zip(split, parts))
    return Maps(Concatenate(list(maps.values())), _blocks(maps), mapped, notes, of_part)


def features_by_fold(feature_map: Any, X: Floats, folds: Integers) -> Floats:
    """Features of rows whose learned columns come from the models of the rows' folds (n,), as in :func:`auto_maps`."""
    if not isinstance(feature_map, Concatenate) or np.all(folds < 0):
        return np.asarray(feature_map.transform(X))
    parts = []
    for each in feature_map.maps:
        if isinstance(each, Clipped) and isinstance(each.inner, LearnedColumns):
            parts.append(each.inner.out_of_fold(np.clip(X, each.low, each.high), folds))
        else:
            parts.append(np.asarray(each.transform(X)))
    return np.hstack(parts)


def maps_to_try(inputs: int, sources: int, outputs: int) -> tuple[set[str], tuple[str, ...]]:
    """Which maps are worth their cost, and a note where some are not."""
    if inputs > SETTINGS.curved_inputs:
        return {"inputs"}, (f"{inputs} columns: the model is linear in them",)
    learned = {"learned"} if sources > SETTINGS.learned_sources and outputs == 1 else set()
    boosted = {"boosted"} if outputs == 1 else set()
    return {"inputs", "splines", "Fourier"} | learned | boosted, ()


def _blocks(maps: Mapping[str, Any]) -> tuple[FeatureBlock, ...]:
    ends = np.cumsum([each.n_features_out for each in maps.values()])
    places = {name: np.arange(end - each.n_features_out, end) for (name, each), end in zip(maps.items(), ends)}
    # Fourier features come with the inputs, learned columns with the splines, which then need no block of their own.
    beside = {"Fourier": "inputs", "learned": "splines", "boosted": "splines"}
    return tuple(
        FeatureBlock(name, np.append(places[beside[name]], own) if name in beside else own, learned=name == "learned")
        for name, own in places.items()
        if name != "splines" or "learned" not in maps
    )
