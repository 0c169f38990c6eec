"""The sources of a fit as rows or as moments, whether they are in memory, streamed, or came as moments.

Rows in memory are standardised (:mod:`mixtune.estimators._preparation`). If some sources are streamed, moments are
summed about the mean of the focal rows, the standardisation is learned from the moments of all domains, and the moments
are moved to it. The result equals, up to rounding, the moments of standardised rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune._array import Floats, torch_device
from mixtune.errors import DataError, ParameterError
from mixtune.estimators._fixed_fit import State
from mixtune.estimators._preparation import Prepared, device_moments, features_of, read_source
from mixtune.estimators._sources import Source, Sources
from mixtune.features import FeatureMap
from mixtune.moments import Moments, Origin, Rows, Scaling, about, augmented, moved, pooled_scale


@dataclass(frozen=True, eq=False)
class Features:
    """What the estimator makes of inputs, and where: its map, the names of the focal columns if any, the device."""

    feature_map: Any
    columns: tuple[str, ...] | None
    device: str = "cpu"

    def of(self, rows: Rows) -> Rows:
        """Rows of features."""
        return Rows(features_of(self.feature_map, rows.X, self.columns, self.device), rows.y, rows.sample_weight)

    def moments(self, rows: Rows, origin: Origin, made: Rows | None = None) -> Moments:
        """Moments of ``[features - origin, 1]`` and ``targets - origin``, gathered on the device if there is one.

        ``made`` are the rows' features, where they are at hand.
        """
        there = torch_device(self.device)
        if there is not None:
            return device_moments(self.sized(len(origin.features)), rows, origin, self.columns, there)
        made = self.of(rows) if made is None else made
        return augmented(Rows(made.X - origin.features, made.y - origin.targets, made.sample_weight))

    def sized(self, width: int) -> Any:
        """The map as streams need it: it must say how many features it makes."""
        if self.feature_map is None or isinstance(self.feature_map, FeatureMap):
            return self.feature_map
        return _Sized(self.feature_map, width)


@dataclass(frozen=True, eq=False)
class _Sized:
    """A map that does not say how many features it makes, and the number."""

    feature_map: Any
    n_features_out: int

    def transform(self, X: Floats, /) -> Any:
        """Features of rows."""
        return self.feature_map.transform(X)


def has_sums(sources: Sources | None) -> bool:
    """Whether some sources come as sums rather than rows."""
    return sources is not None and bool(sources.streams or sources.moments)


def read_sources(
    sources: Sources | None, focal: Rows, columns: tuple[str, ...] | None, focal_name: str
) -> dict[str, Rows]:
    """All sources as numbers, a sample of each that is streamed; none may bear the focal domain's name."""
    if sources is not None and sources.moments:
        raise ParameterError(
            f'source "{next(iter(sources.moments))}" came as Moments, and this needs rows; pass rows, or use '
            "RegretOptimalRegressor with weights='predictive' or 'equal'"
        )
    given = sampled(sources, columns)
    members: list[tuple[str, Source]] = [] if given is None else list(given.items())
    check_names([name for name, _ in members], focal_name)
    return {name: read_source(name, source, focal, columns) for name, source in members}


def sampled(sources: Sources | None, columns: tuple[str, ...] | None) -> Sources | None:
    """The same sources, with rows drawn at random in place of those that are streamed."""
    if sources is None or not sources.streams:
        return sources
    members: dict[str, Any] = {**dict(sources.items()), **sources.moments}
    for stream in sources.streams:
        drawn = stream.samples(columns)
        _check_twice(members, drawn)
        members |= drawn
    return Sources(members)


def sample_note(sources: Sources | None) -> tuple[str, ...]:
    """What to say where a fit looked at samples only."""
    if sources is None or not sources.streams:
        return ()
    rows = max(stream.sample_rows for stream in sources.streams)
    return (f"the choice was learned on at most {rows:,} rows of each streamed source, drawn at random",)


def moments_of(sources: Sources | None, focal: Rows, origin: Origin, features: Features) -> dict[str, Moments]:
    """Moments of ``[features - origin, 1]`` and ``targets - origin`` of all sources, by name.

    ``focal`` are rows of inputs that the sources must be like.
    """
    if sources is None:
        return {}
    found: dict[str, Moments] = {}
    for name, source in sources.items():
        found[name] = features.moments(read_source(name, source, focal, features.columns), origin)
    for name, moments in sources.moments.items():
        _check_moments(name, moments, origin, focal)
        _check_constant(name, moments)
        zero = Origin(np.zeros_like(origin.features), np.zeros_like(origin.targets))
        found[name] = about(_outputs_like(moments, focal), zero, origin)
    for stream in sources.streams:
        sums = stream.moments(features.sized(len(origin.features)), origin, features.columns, device=features.device)
        _check_twice(found, sums)
        for name, moments in sums.items():
            _check_moments(name, moments, origin, focal)
            found[name] = _outputs_like(moments, focal)
    return found


def gather_state(
    focal: Rows,
    sources: Sources | None,
    features: Features,
    *,
    focal_name: str,
    standardise: bool,
    fit_intercept: bool,
) -> tuple[State, Scaling]:
    """The state of a fit from sums, and the scale that all rows have in common."""
    own = features.of(focal)
    origin = _middle(own)
    others = moments_of(sources, focal, origin, features)
    check_names(list(others), focal_name)
    here = features.moments(focal, origin, own)
    mean, spread, level = pooled_scale([here, *others.values()], origin)
    scale = spread if standardise else np.ones_like(spread)
    if fit_intercept:
        scaling = Scaling(origin.features + mean, scale, origin.targets + level)
    else:
        scaling = Scaling(np.zeros_like(mean), scale, np.zeros_like(level))
        mean, level = -origin.features, -origin.targets
    prepared = scaling.apply(own)
    near = augmented(prepared) if torch_device(features.device) is None else moved(here, mean, scale, level)
    moments = (near, *(moved(m, mean, scale, level) for m in others.values()))
    return State((focal_name, *others), moments, prepared, fit_intercept), scaling


def sampled_rows(state: State, scaling: Scaling, focal: Rows, sources: Sources | None, features: Features) -> Prepared:
    """Samples of all domains, in the order of the state, for rules that compare rows."""
    name = state.names[0]
    rows = {name: focal, **read_sources(sources, focal, features.columns, name)}
    inputs = tuple(rows[each] for each in state.names)
    made = (features.feature_map, features.columns, state.fit_intercept, features.device)
    return Prepared(state.names, (features.of(focal),), inputs, scaling, *made)


def _middle(rows: Rows) -> Origin:
    """The plain mean: any point near the rows does."""
    with np.errstate(over="ignore"):
        features, targets = rows.X.mean(axis=0), np.asarray(rows.y.mean(axis=0))
    usable = np.all(np.isfinite(features)) and np.all(np.isfinite(targets))
    return Origin(features, targets) if usable else Origin(rows.X[0], np.asarray(rows.y[0]))


def _outputs_like(moments: Moments, focal: Rows) -> Moments:
    """A single target as a vector or as one column, whichever the focal rows have."""
    single = focal.y.ndim == 1
    if moments.single_output == single:
        return moments
    if moments.rows is not None:
        U, Y = moments.rows
        return Moments.from_rows(U, Y[:, 0] if single else Y)
    cross, square = moments.cross.reshape(moments.n_features, -1), np.reshape(moments.square, -1)
    return Moments(moments.count, moments.gram, cross[:, 0] if single else cross, square)


def _check_moments(name: str, moments: Moments, origin: Origin, focal: Rows) -> None:
    width = len(origin.features)
    if moments.n_features != width + 1:
        raise DataError(
            f'domain "{name}" has moments over {moments.n_features} features, the focal rows have {width}; pass '
            "moments over the same features and a constant 1 as the last one"
        )
    if moments.n_outputs != focal.targets.shape[1]:
        raise DataError(
            f'domain "{name}" has {moments.n_outputs} outputs, the focal rows have {focal.targets.shape[1]}; '
            "pass the same outputs"
        )
    if moments.count == 0:
        raise DataError(f'domain "{name}" has no rows; leave it out')


def _check_constant(name: str, moments: Moments) -> None:
    last = moments.gram[-1, -1] if moments.rows is None else float(np.sum(moments.rows[0][:, -1] ** 2))
    if abs(last - moments.count) > 1e-9 * moments.count:
        raise DataError(f'domain "{name}" has moments whose last feature is not a constant 1; append one to every row')


def check_names(names: Sequence[str], focal_name: str) -> None:
    if focal_name in names:
        raise DataError(
            f'a source is named "{focal_name}", which is the name of the focal rows; rename it, set focal_name, or '
            "leave it out of streamed sources with leave_out"
        )


def _check_twice(found: Any, more: Any) -> None:
    if twice := sorted(set(found) & set(more)):
        raise DataError(f"more than one source is named {', '.join(twice[:5])}; give each its own name")
