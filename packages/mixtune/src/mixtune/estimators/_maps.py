"""``feature_map="auto"``: which frozen maps are tried, and their features for all rows.

The maps are the inputs, random Fourier features beside the inputs, and splines of every column, where possible with two
columns learned from the sources; many focal rows have boosted trees of their own, too. Each is a block of one wide map,
whose blocks may overlap; the choice averages over the blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from mixtune.arrays import Floats, Integers
from mixtune.choice import (
    KERNEL_ROWS,
    SETTINGS,
    CommonProcess,
    FeatureBlock,
    Process,
    content_order,
    joint_error,
    learn_columns,
    learn_common_process,
    learn_own_column,
    learn_process,
)
from mixtune.errors import DataError, ParameterError
from mixtune.estimators._fits import feature_range, is_auto
from mixtune.features import (
    Clipped,
    Concatenate,
    FeatureMap,
    Identity,
    LearnedColumns,
    Oriented,
    Projected,
    fit_fourier,
    fit_splines,
)
from mixtune.moments import Rows, Scaling, pooled_scaling

#: A principal component with a smaller part of the variance than this is rounding.
SPANNED = 1e-9
#: Inputs must vary by more than this, and by less than its inverse.
SMALLEST = 1e-290


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
    #: Of each block, where the features are those of Gaussian processes.
    processes: tuple[Any, ...] = ()

    def by_domain(self, names: Iterable[str]) -> FoldedMap:
        """The map for further rows of the domains, which have these names."""
        return FoldedMap(self.feature_map, dict(zip(names, self.folds.tolist(), strict=True)))


@dataclass(frozen=True, eq=False)
class FoldedMap:
    """A map whose learned columns of a domain come from the models of its fold; of other rows, from all models."""

    feature_map: FeatureMap
    folds: Mapping[str, int]
    fold: int = -1

    @property
    def n_features_out(self) -> int:
        return self.feature_map.n_features_out

    def of_domain(self, name: str) -> FoldedMap:
        """The map for rows of one domain."""
        return replace(self, fold=self.folds.get(name, -1))

    def transform(self, X: Floats, /) -> Floats:
        """Features of rows."""
        return features_by_fold(self.feature_map, np.asarray(X, dtype=np.float64), np.full(len(X), self.fold))


def auto_maps(
    rows: Mapping[str, Rows],
    *,
    seed: int,
    limits: tuple[Floats, Floats] | None,
    linear: bool = False,
    every: bool = False,
    plain: bool = False,
) -> Maps:
    """Maps from the rows of all domains, the focal one first; with ``every``, each of them is a source of the others.

    The inputs themselves are clipped to ``limits``; curves are constant beyond the range of the rows. With ``plain``
    there is one cheap map: the splines where curves are tried, and else the inputs.
    """
    parts = list(rows.values())
    inputs = parts[0].X.shape[1]
    tried, notes = maps_to_try(inputs, len(parts) - 1, parts[0].targets.shape[1])
    if every and "learned" in tried:  # as curved, and a sixth of the columns: each domain pays for them
        tried.discard("Fourier")
    if linear:  # no intercept: curves would need one
        tried, notes = {"inputs"}, ()
    if plain:
        tried &= {"inputs", "splines"}
    own = Identity(inputs) if limits is None else Clipped(Identity(inputs), *limits)
    maps: dict[str, Any] = {"inputs": own}
    made = [own.transform(part.X) for part in parts]
    of_part = np.full(len(parts), -1)
    whole = _leading_components(parts) if inputs > SETTINGS.curved_inputs and len(tried) > 1 else None
    inner = parts if whole is None else [part.scaled(whole.project) for part in parts]
    if len(tried) > 1 and inner[0].X.shape[1]:
        curves, of_part, columns = _curved_maps(inner, tried, seed=seed, first=0 if every else 1)
        if whole is not None:
            curves = {"components": Identity(whole.n_features_out), **curves}
            curves = {name: Projected(each, whole.shift, whole.basis) for name, each in curves.items()}
            columns = [np.hstack([part.X, U]) for part, U in zip(inner, columns)]
        maps = curves if plain else maps | curves
        made = columns if plain else [np.hstack(pair) for pair in zip(made, columns)]
    mapped = tuple(Rows(U, part.y, part.sample_weight) for U, part in zip(made, parts))
    return Maps(Concatenate(list(maps.values())), _blocks(maps, own_rows=not every), mapped, notes, of_part)


def made_maps(rows: Mapping[str, Rows], settings: Any, **options: bool) -> Maps | None:
    """The maps of a fit to all rows, made from them; None where the ``settings`` have a map."""
    if not is_auto(settings.feature_map):
        return None
    limits = feature_range(tuple(rows.values())) if settings.clamp and len(rows) > 1 else None
    return auto_maps(rows, seed=settings.seed, limits=limits, linear=not settings.fit_intercept, **options)


#: Most inputs, focal rows and sources of a Gaussian process: its cost grows with the cube of the focal rows.
PROCESS_INPUTS, PROCESS_ROWS, PROCESS_SOURCES = 60, 1500, 512
#: Kernels with candidates in the average, each learned from other rows. With one, another seed changes predictions
#: more, and errors of a model of every domain are up to 8% larger.
KERNELS = 2


def process_maps(rows: Mapping[str, Rows], settings: Any, *, every: bool = False) -> Maps | None:
    """The features of a Gaussian process over all domains, the focal one first; None where it would cost too much.

    With ``every``, each of several domains is a source of the others.
    """
    parts = list(rows.values())
    focal = parts[0]
    small = (
        focal.X.shape[1] <= PROCESS_INPUTS
        and max(len(part.y) for part in (parts if every else parts[:1])) <= PROCESS_ROWS
        and len(parts) <= 1 + PROCESS_SOURCES
        and focal.targets.shape[1] <= SETTINGS.learned_outputs
    )
    if not (is_auto(settings.feature_map) and settings.fit_intercept and small):
        return None
    # Of classes, squared errors say little: probabilities are better from the other maps. Means over rows that repeat
    # are whole up to rounding.
    if len(parts) > 1 and all(_two_valued(part.y) for part in parts):
        return None
    _units(parts)
    # A kernel is learned from some of the rows; where there are more, the mean over two is less a matter of the draw.
    draws = range(1 if sum(len(part.y) for part in parts) <= KERNEL_ROWS else KERNELS)
    kinds = [("kernel" if len(draws) == 1 else f"kernel {draw + 1}", draw, True) for draw in draws]
    if len(parts) > 1:
        kinds.append(("lines", 0, False))
    learn = learn_common_process if every else learn_process
    processes: list[Process | CommonProcess] = []
    blocks: list[FeatureBlock] = []
    width = 0
    for output in range(focal.targets.shape[1]):
        single = [replace(part, y=part.targets[:, output]) for part in parts]
        for name, draw, curved in kinds:
            process = learn(single, seed=settings.seed, draw=draw, curved=curved)
            places = np.arange(width, width + process.features.n_features_out)
            processes.append(process)
            blocks.append(FeatureBlock(name, places, output=output))
            width += len(places)
    maps = [process.features for process in processes]
    feature_map: FeatureMap = Concatenate(maps) if len(maps) > 1 else maps[0]
    if settings.clamp and len(parts) > 1:
        feature_map = Clipped(feature_map, *feature_range(tuple(parts)))
    mapped = tuple(Rows(np.asarray(feature_map.transform(part.X)), part.y, part.sample_weight) for part in parts)
    return Maps(feature_map, tuple(blocks), mapped, (), np.full(len(parts), -1), tuple(processes))


def _two_valued(y: Floats) -> bool:
    """Whether targets have two values at most, up to rounding beside their range."""
    return len(np.unique(np.round((y - y.min()) / (float(np.ptp(y)) or 1.0), 6))) <= 2


def _units(parts: Sequence[Rows]) -> Scaling:
    """Standard units of the inputs; columns of which curves have values beyond float64 are refused."""
    units = pooled_scaling(parts, standardise=True, center=True)
    if len(beyond := np.flatnonzero((units.scale < SMALLEST) | (units.scale > 1 / SMALLEST))):
        raise DataError(
            f"column {beyond[0]} (counted from 0) varies by {units.scale[beyond[0]]:.3g}, so that its non-linear "
            "features would be beyond float64; rescale it, or pass feature_map=None for a linear model"
        )
    return units


def _leading_components(parts: Sequence[Rows]) -> Projected:
    """The leading principal components of all rows, each column in standard units; as many as the rows span."""
    units = _units(parts)
    X, weight = np.concatenate([part.X for part in parts]), np.concatenate([part.weight for part in parts])
    Z = (X - units.shift) / units.scale
    size = Z.shape[1]
    most = (size - SETTINGS.components, size - 1)
    values, vectors = scipy.linalg.eigh((Z * (weight / weight.sum())[:, None]).T @ Z, subset_by_index=most)
    # Directions without variance would be any.
    used = np.flatnonzero(values > SPANNED * size)[::-1]
    basis = np.ascontiguousarray(vectors[:, used] / units.scale[:, None])
    return Projected(Identity(max(len(used), 1)), units.shift, basis)


def _curved_maps(
    parts: Sequence[Rows], tried: set[str], *, seed: int, first: int
) -> tuple[dict[str, Any], Integers, list[Floats]]:
    """Maps beyond the inputs, the fold of each domain, and the features (n_i, width) of these maps in all domains.

    Domains before the ``first`` are no sources.
    """
    X, weight = np.concatenate([part.X for part in parts]), np.concatenate([part.weight for part in parts])
    y = np.concatenate([part.targets[:, 0] for part in parts])
    units = _units(parts)
    oriented = Oriented.of(X, y, weight, shift=units.shift, scale=units.scale)
    inputs, reach = oriented(X), (X.min(axis=0), X.max(axis=0))
    ends = np.cumsum([len(part.X) for part in parts])[:-1]
    maps: dict[str, Any] = {}
    made: dict[str, Floats] = {}
    if "splines" in tried:
        most = SETTINGS.narrow_columns - 1
        maps["splines"] = fit_splines(X, weight, oriented, knots=SETTINGS.spline_knots, most=most)
        made["splines"] = maps["splines"].transform(X)
    if "Fourier" in tried:
        fourier, drawn = fit_fourier(inputs, weight, oriented, width=SETTINGS.fourier_width, seed=seed)
        maps["Fourier"] = Clipped(fourier, *reach)
    of_part = np.full(len(parts), -1)
    if "learned" in tried:
        order = first + content_order([part.scaled(oriented) for part in parts[first:]])
        aligned = []
        for output in range(parts[0].targets.shape[1]):
            sources = [replace(parts[k], y=parts[k].targets[:, output]) for k in order]
            learned, folds, targets = learn_columns(sources, oriented, seed=seed)
            # Rows of no fold get the mean over folds.
            of_part[order] = folds
            name = f"learned {output}"
            maps[name] = Clipped(learned, *reach)
            made[name] = learned.out_of_fold(X, np.repeat(of_part, [len(part.X) for part in parts]))
            aligned.append([replace(rows, y=y) for rows, y in zip(sources, targets)])
        if "Fourier" in maps:
            # To tell, single precision is enough: its cosines take a tenth of the time.
            rough = np.hstack([inputs, replace(drawn, dtype="float32").transform(inputs)])
            if not _act_together(np.split(rough, ends), np.split(made["splines"], ends), order, aligned):
                del maps["Fourier"]
    if "Fourier" in maps:
        made["Fourier"] = fourier.transform(X)
    if "boosted" in tried and first and len(parts[0].y) >= SETTINGS.own_rows:
        known = len(parts[0].y)
        others = made["learned 0" if "learned 0" in made else "splines"][:known]
        if (own := learn_own_column(parts[0], others, oriented, seed=seed)) is not None:
            maps["boosted"] = Clipped(own.column, *reach)
            made["boosted"] = np.vstack([own.values, own.column.transform(X[known:])])
    return maps, of_part, np.split(np.hstack([made[name] for name in maps]), ends)


def _act_together(
    fourier: Sequence[Floats], splines: Sequence[Floats], order: Integers, aligned: Sequence[Sequence[Rows]]
) -> bool:
    """Whether Fourier features of all columns fit the sources better than splines of each column, for some output.

    Both are features (n_i, width) of all domains; ``aligned`` are the sources, at the places ``order``, with the
    targets of each output in one sign.
    """
    # Of classes, squared errors say little.
    if all(len(np.unique(rows.y)) <= 2 for sources in aligned for rows in sources):
        return True
    return any(
        joint_error([replace(rows, X=fourier[k]) for k, rows in zip(order, sources)])
        <= SETTINGS.fourier_error * joint_error([replace(rows, X=splines[k]) for k, rows in zip(order, sources)])
        for sources in aligned
    )


def features_by_fold(feature_map: Any, X: Floats, folds: Integers) -> Floats:
    """Features of rows whose learned columns come from the models of the rows' folds (n,), as in :func:`auto_maps`."""
    if isinstance(feature_map, Concatenate):
        return np.hstack([features_by_fold(each, X, folds) for each in feature_map.maps])
    if isinstance(feature_map, Projected):
        return features_by_fold(feature_map.inner, np.asarray(feature_map.project(X)), folds)
    if isinstance(feature_map, Clipped):
        return features_by_fold(feature_map.inner, np.clip(X, feature_map.low, feature_map.high), folds)
    if isinstance(feature_map, LearnedColumns):
        return feature_map.out_of_fold(X, folds)
    return np.asarray(feature_map.transform(X))


def input_range(feature_map: Any) -> tuple[Any, Any]:
    """The range to which a made map clips inputs, for graphs without a map; None without clipping."""
    inputs, *others = feature_map.maps if isinstance(feature_map, Concatenate) else (feature_map, feature_map)
    if others:
        raise ParameterError(
            "to_onnx cannot write the kernels, splines, Fourier features and trees of feature_map_; "
            "fit it with feature_map=None, or pass a feature map whose features you compute before the graph"
        )
    return (inputs.low, inputs.high) if isinstance(inputs, Clipped) else (None, None)


def maps_to_try(inputs: int, sources: int, outputs: int) -> tuple[set[str], tuple[str, ...]]:
    """Which maps are worth their cost, and a note where some are not."""
    notes: tuple[str, ...] = ()
    if inputs > SETTINGS.most_curved_inputs:
        return {"inputs"}, (f"{inputs} columns: the model is linear in them",)
    if inputs > SETTINGS.curved_inputs:
        notes = (f"{inputs} columns: non-linear features use their {SETTINGS.components} leading principal components",)
    learned = {"learned"} if sources >= SETTINGS.learned_sources and outputs <= SETTINGS.learned_outputs else set()
    boosted = {"boosted"} if outputs == 1 else set()
    return {"inputs", "splines", "Fourier"} | learned | boosted, notes


def _blocks(maps: Mapping[str, Any], *, own_rows: bool) -> tuple[FeatureBlock, ...]:
    """The blocks to average over; with ``own_rows``, also one for curved fits to own rows alone, if there is none."""
    ends = np.cumsum([each.n_features_out for each in maps.values()])
    places = {name: np.arange(end - each.n_features_out, end) for (name, each), end in zip(maps.items(), ends)}
    # Fourier features come with the inputs, learned columns with the splines. Of a block of their own, splines are then
    # for fits to own rows alone, which Fourier features serve as well.
    beside = {"Fourier": "components" if "components" in maps else "inputs", "learned": "splines", "boosted": "splines"}
    found = []
    for name, own in places.items():
        kind, *output = name.split()
        alone = kind == "splines" and "learned 0" in maps
        if kind == "components" or (alone and ("Fourier" in maps or not own_rows)):
            continue
        joined = np.append(places[beside[kind]], own) if kind in beside else own
        number = int(output[0]) if output else None
        found.append(FeatureBlock(kind, joined, learned=kind == "learned", output=number, own_rows=alone))
    return tuple(found)
