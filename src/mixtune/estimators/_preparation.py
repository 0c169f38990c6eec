"""From rows to what solvers need: features of every domain on one scale, as rows (:class:`Prepared`) or moments.

What is fitted afterwards is in standardised units (see :class:`mixtune.moments.Scaling`), which
:meth:`~mixtune.moments.Scaling.to_units` converts back. If some sources are streamed, moments are summed about the mean
of the focal rows, the standardisation is learned from the moments of all domains, and the moments are moved to it. The
result (:class:`State`) equals, up to rounding, the moments of standardised rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mixtune._array import Floats, to_device, torch_device
from mixtune._registry import storable
from mixtune.data import Domain, Domains
from mixtune.errors import DataError, ParameterError
from mixtune.estimators._inputs import Sources, check_focal_name, check_once, check_same, read_source, read_sources
from mixtune.features import FeatureMap, Identity, device_slices, host_features, placed
from mixtune.moments import (
    Center,
    Moments,
    Origin,
    Rows,
    Scaling,
    about,
    augmented,
    common_center,
    moved,
    no_center,
    own_center,
    pooled_scale,
    pooled_scaling,
    recentred,
)


@dataclass(frozen=True, eq=False)
class Features:
    """What the estimator makes of inputs, and where: its map, the names of the focal columns if any, the device."""

    feature_map: Any = None
    columns: tuple[str, ...] | None = None
    device: str = "cpu"

    def __call__(self, X: Floats) -> Floats:
        """``phi(X)`` as a float64 matrix of NumPy, computed on the device; the inputs themselves if there is no map."""
        if self.feature_map is None:
            return X
        there = torch_device(self.device)
        features = np.asarray(host_features(self.feature_map, X, self.columns, there), dtype=np.float64)
        if features.ndim != 2 or len(features) != len(X):
            raise DataError(
                f"feature_map made features of shape {features.shape} from {len(X)} rows; it must keep the rows"
            )
        if not np.all(np.isfinite(features)):
            raise DataError("feature_map made NaN or infinite features; scale the inputs or change the map")
        return features

    def of(self, rows: Rows) -> Rows:
        """Rows of features."""
        return Rows(self(rows.X), rows.y, rows.sample_weight)

    def moments(self, rows: Rows, origin: Origin, made: Rows | None = None) -> Moments:
        """Moments of ``[features - origin, 1]`` and ``targets - origin``, gathered on the device if there is one.

        ``made`` are the rows' features, where they are at hand.
        """
        if (there := torch_device(self.device)) is not None:
            return Moments.from_blocks(self._device_blocks(rows, origin, there)).on_device(None)
        made = self.of(rows) if made is None else made
        return augmented(Rows(made.X - origin.features, made.y - origin.targets, made.sample_weight))

    def sized(self, width: int) -> Any:
        """The map as streams need it: it must say how many features it makes."""
        if self.feature_map is None or isinstance(self.feature_map, FeatureMap):
            return self.feature_map
        return _Sized(self.feature_map, width)

    def _device_blocks(self, rows: Rows, origin: Origin, device: str) -> Iterator[tuple[Any, Any]]:
        """``[features - origin, 1]`` and ``targets - origin`` on the device, scaled by the root of the weights."""
        from mixtune.streaming import StreamFeatures

        inputs, ready = rows.X.shape[1], self.sized(len(origin.features))
        ready = Identity(inputs) if ready is None else placed(ready, device)
        make = StreamFeatures(ready, inputs, self.columns, "float64", origin, device)
        for part in device_slices(len(rows.X), make.n_features):
            U, y = make(rows.X[part]), make.targets(rows.y[part])
            if rows.sample_weight is not None:
                root = to_device(np.sqrt(rows.sample_weight[part]), device)
                U, y = U * root[:, None], y * (root if y.ndim == 1 else root[:, None])
            yield U, y


@dataclass(frozen=True, eq=False)
class _Sized:
    """A map that does not say how many features it makes, and the number."""

    feature_map: Any
    n_features_out: int

    def transform(self, X: Floats, /) -> Any:
        """Features of rows."""
        return self.feature_map.transform(X)


def check_map(feature_map: Any) -> None:
    """Refuse what is not a frozen feature map."""
    if feature_map is None:
        return
    if hasattr(feature_map, "get_params"):
        raise ParameterError(
            f"feature_map={feature_map!r} is a scikit-learn estimator, which cloning (in cross-validation) would make "
            "unfitted; pass mixtune.features.SklearnFeatures(transformer.fit(X))"
        )
    if isinstance(feature_map, type) or not callable(getattr(feature_map, "transform", None)):
        raise ParameterError(f"feature_map={feature_map!r} needs transform(X), which gives a row of features per row")


@dataclass(frozen=True, eq=False)
class Prepared:
    """All a solver needs: domains by name, the focal one first.

    Attributes
    ----------
    names : tuple of str
        Index 0 is the focal domain.
    mapped : tuple of Rows
        Features (n_i, p) as the map makes them, targets (n_i,) or (n_i, D), and sample weights or None.
    inputs : tuple of Rows
        The same rows before the feature map, in the units given.
    scaling : Scaling
    features : Features
    fit_intercept : bool
    """

    names: tuple[str, ...]
    mapped: tuple[Rows, ...]
    inputs: tuple[Rows, ...]
    scaling: Scaling
    features: Features
    fit_intercept: bool

    @cached_property
    def focal(self) -> Rows:
        """The focal rows in prepared units."""
        return self.scaling.apply(self.mapped[0])

    @cached_property
    def rows(self) -> tuple[Rows, ...]:
        """The rows of all domains in prepared units: a second copy of them, made when first asked for."""
        return (self.focal, *(self.scaling.apply(rows) for rows in self.mapped[1:]))


def prepare(rows: Mapping[str, Rows], features: Features, *, standardise: bool, fit_intercept: bool) -> Prepared:
    """Features of all domains by name, the focal one first, standardised over all of them.

    Examples
    --------
    >>> rows = {"focal": Rows(np.array([[0.0], [2.0]]), np.array([1.0, 3.0]))}
    >>> rows |= {"b": Rows(np.array([[4.0]]), np.array([2.0]))}
    >>> prepare(rows, Features(), standardise=True, fit_intercept=True).rows[0].X.round(3)
    array([[-1.225],
           [ 0.   ]])
    """
    mapped = tuple(features.of(part) for part in rows.values())
    widths = sorted({part.X.shape[1] for part in mapped})
    if len(widths) > 1:
        raise DataError(f"feature_map made {widths} features for different domains; it must make the same for all")
    scaling = pooled_scaling(mapped, standardise=standardise, center=fit_intercept)
    return Prepared(tuple(rows), mapped, tuple(rows.values()), scaling, features, fit_intercept)


@storable
@dataclass(frozen=True, eq=False)
class State:
    """What a fit keeps: augmented moments of every domain (focal first) and the focal rows, in prepared units."""

    names: tuple[str, ...]
    moments: tuple[Moments, ...]
    focal: Rows
    fit_intercept: bool
    gone: frozenset[str] = frozenset()

    @classmethod
    def of(cls, prepared: Prepared) -> State:
        """The moments of prepared rows."""
        moments = tuple(augmented(rows, prepared.scaling) for rows in prepared.mapped)
        return cls(prepared.names, moments, prepared.focal, prepared.fit_intercept)

    @cached_property
    def centers(self) -> tuple[Center, ...]:
        """Each domain's own mean (the origin without an intercept)."""
        return tuple((own_center if self.fit_intercept else no_center)(m) for m in self.moments)

    @cached_property
    def centred(self) -> Moments:
        """The focal domain's moments about its own mean."""
        return recentred(self.moments[0], self.centers[0])

    def common(self, weights: Floats) -> Center:
        """The common mean under domain weights (the origin without an intercept)."""
        return common_center(self.moments, weights) if self.fit_intercept else no_center(self.moments[0])

    @cached_property
    def target_variance(self) -> float:
        """Mean square of all targets about their common mean, over rows and outputs."""
        ones = np.ones(len(self.moments))
        center = common_center(self.moments, ones)
        square = sum(float(np.sum(recentred(m, center, keep=False).square)) for m in self.moments)
        return square / (center.total * self.moments[0].n_outputs)


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
        last = moments.gram[-1, -1] if moments.rows is None else float(np.sum(moments.rows[0][:, -1] ** 2))
        if abs(last - moments.count) > 1e-9 * moments.count:
            raise DataError(
                f'domain "{name}" has moments whose last feature is not a constant 1; append one to every row'
            )
        zero = Origin(np.zeros_like(origin.features), np.zeros_like(origin.targets))
        found[name] = about(_outputs_like(moments, focal), zero, origin)
    for stream in sources.streams:
        sums = stream.moments(features.sized(len(origin.features)), origin, features.columns, device=features.device)
        check_once([*found, *sums])
        for name, moments in sums.items():
            _check_moments(name, moments, origin, focal)
            found[name] = _outputs_like(moments, focal)
    return found


def gather_state(
    focal: Rows, focal_name: str, sources: Sources | None, features: Features, *, standardise: bool, fit_intercept: bool
) -> tuple[State, Scaling]:
    """The state of a fit from sums, and the scale that all rows have in common."""
    own = features.of(focal)
    # The plain mean: any point near the rows does.
    with np.errstate(over="ignore"):
        origin = Origin(own.X.mean(axis=0), np.asarray(own.y.mean(axis=0)))
    if not all(np.all(np.isfinite(part)) for part in origin):
        origin = Origin(own.X[0], np.asarray(own.y[0]))
    others = moments_of(sources, focal, origin, features)
    check_focal_name(others, focal_name)
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
    return Prepared(state.names, (features.of(focal),), inputs, scaling, features, state.fit_intercept)


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
    check_same(name, "outputs", moments.n_outputs, focal.targets.shape[1])
    if moments.count == 0:
        raise DataError(f'domain "{name}" has no rows; leave it out')


def domains_of(prepared: Prepared, *, standardise: bool) -> tuple[Domains, Any]:
    """The rows for rules that compare them, and the feature map that fits these rows.

    Inputs are standardised and targets divided by their standard deviation, so that distances do not depend on units.
    Every row of positive sample weight counts once.
    """
    scaling = pooled_scaling(prepared.inputs, standardise=standardise, center=True)
    targets = [rows.targets for rows in prepared.inputs]
    spread = np.concatenate(targets).std(axis=0) if standardise else np.ones(targets[0].shape[1])
    spread = np.where(spread > 0, spread, 1.0)
    members = tuple(
        Domain(name, scaling.features(rows.X), (rows.targets / spread).reshape(rows.y.shape))
        for name, rows in zip(prepared.names, prepared.inputs)
    )
    return Domains(members, focal=prepared.names[0]), _Scaled(prepared, scaling)


@dataclass(frozen=True, eq=False)
class _Scaled:
    """The feature map from standardised inputs to standardised features."""

    prepared: Prepared
    inputs: Scaling

    @property
    def n_features_out(self) -> int:
        return int(self.prepared.focal.X.shape[1])

    def transform(self, X: Floats, /) -> Floats:
        """Prepared features of standardised inputs."""
        raw = X * self.inputs.scale + self.inputs.shift
        return self.prepared.scaling.features(self.prepared.features(raw))
