"""From rows to what solvers need, and fits at fixed parameters.

Features of every domain are put on one scale, as rows (:class:`Prepared`) or moments (:class:`State`). What is fitted
afterwards is in standardised units (see :class:`mixtune.moments.Scaling`), which
:meth:`~mixtune.moments.Scaling.to_units` converts back. If some sources are streamed, moments are summed about the mean
of the focal rows, the standardisation is learned from the moments of all domains, and the moments are moved to it. The
result equals, up to rounding, the moments of standardised rows.

The fits need only the state: local heads, the regret-optimal solution, pooled fits, and their uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from sklearn.utils.extmath import randomized_svd

from mixtune._messages import Note, Wording, quoted
from mixtune._registry import field_values, storable
from mixtune.arrays import Floats, Integers, in_threads, is_numpy, to_device, to_numpy, torch_device
from mixtune.checks import check_positive
from mixtune.choice import (
    MIXTUNE,
    Comparison,
    FeatureBlock,
    LocalSpread,
    MapAverage,
    Prior,
    Sample,
    by_content,
    compare,
    content_order,
    missing_part,
    posterior_covariance,
)
from mixtune.data import Domain, Domains
from mixtune.errors import DataError, ParameterError
from mixtune.estimators._inputs import Sources, check_focal_name, check_once, check_same, read_source, read_sources
from mixtune.features import FeatureMap, Identity, Oriented, device_slices, host_features, placed
from mixtune.moments import (
    MANY,
    RUN_ENTRIES,
    Center,
    Fit,
    LazyRows,
    LeaveOneOut,
    Moments,
    Origin,
    Posterior,
    Regression,
    Rows,
    Scaling,
    about,
    augmented,
    common_center,
    distinct_rows,
    leave_one_out,
    moved,
    no_center,
    own_center,
    pooled_scale,
    pooled_scaling,
    posterior,
    recentred,
    relative_weight,
    roots_of,
    spectrum_of,
    weighted_system,
)
from mixtune.moments import local_heads as stacked
from mixtune.regret import RegretProblem, RegretSolution, Schedule, solve
from mixtune.weights import DomainWeights

#: Of ``feature_map``: maps are made from the rows, and averaged.
AUTO = "auto"
#: Of ``stop``: the step with the least leave-one-out error; of at most so many steps, each of which is looked at.
BEST, MOST_STOPS = "best", 10**6
#: Leave-one-out residuals below this fraction of the targets' standard deviation are rounding and count as zero.
ROUNDING = 1e-12
#: Ridge of the local heads, on standardised features.
HEAD_RIDGE = 1.0
#: Widest design that candidates are computed on; wider ones are projected to so many principal directions.
WIDEST = 512
#: Rows of the sources that principal directions are found from: a draw of more, or sums that count as so many.
MOST_ROWS = 8 * WIDEST
#: Up to this many columns, a spectrum is cheaper than a randomised one.
EXACT_WIDTH = 1536
#: Of quantiles, by default.
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
#: How far beyond the range of the training rows features may lie, as a part of that range: the first number, and the
#: second over the number of rows, since few rows hardly know their range.
MARGIN = (0.25, 20.0)


@contextmanager
def solvable() -> Iterator[None]:
    """Turn equations that float64 cannot solve into a clear error."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise DataError(
            "columns, targets or sample weights differ by so many orders of magnitude that the equations cannot be "
            f"solved ({error}); use the same units in all domains and rescale what is very large or very small"
        ) from error


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
            return Moments.from_blocks(self._device_blocks(rows, origin, there))
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


def is_auto(feature_map: Any) -> bool:
    """Whether maps are to be made from the rows."""
    return isinstance(feature_map, str) and feature_map == AUTO


def check_map(feature_map: Any, *, auto: bool = False) -> None:
    """Refuse what is not a frozen feature map; ``auto`` where maps may be made from the rows."""
    if feature_map is None or (auto and is_auto(feature_map)):
        return
    if hasattr(feature_map, "get_params"):
        raise ParameterError(
            f"feature_map={feature_map!r} is a scikit-learn estimator, which cloning (in cross-validation) would make "
            "unfitted; pass mixtune.features.SklearnFeatures(transformer.fit(X))"
        )
    if isinstance(feature_map, type) or not callable(getattr(feature_map, "transform", None)):
        raise ParameterError(f"feature_map={feature_map!r} needs transform(X), with one row of features for each row")


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
    state : State or None
        Moments of all rows of every domain, where some of the rows here are samples; None where the rows are all.
    """

    names: tuple[str, ...]
    mapped: tuple[Rows, ...]
    inputs: tuple[Rows, ...]
    scaling: Scaling
    features: Features
    fit_intercept: bool
    state: State | None = None

    @cached_property
    def focal(self) -> Rows:
        """The focal rows in prepared units."""
        return self.scaling.apply(self.mapped[0])

    @property
    def totals(self) -> list[float]:
        """How many rows each domain has in all, each counting as its sample weight."""
        if self.state is None:
            return [part.total for part in self.inputs]
        return [own_center(moments).total for moments in self.state.moments]


def prepare(
    rows: Mapping[str, Rows],
    features: Features,
    *,
    standardise: bool,
    fit_intercept: bool,
    mapped: tuple[Rows, ...] | None = None,
    sums: StreamSums | None = None,
) -> Prepared:
    """Features of all domains by name, the focal one first, standardised over all of them.

    ``mapped`` are the features, if they are computed already. ``sums`` have the domains whose rows here are samples.

    Examples
    --------
    >>> rows = {"focal": Rows(np.array([[0.0], [2.0]]), np.array([1.0, 3.0]))}
    >>> rows |= {"b": Rows(np.array([[4.0]]), np.array([2.0]))}
    >>> prepare(rows, Features(), standardise=True, fit_intercept=True).focal.X.round(3)
    array([[-1.225],
           [ 0.   ]])
    """
    mapped = tuple(features.of(part) for part in rows.values()) if mapped is None else mapped
    widths = sorted({part.X.shape[1] for part in mapped})
    if len(widths) > 1:
        raise DataError(f"feature_map made {widths} features for different domains; it must make the same for all")
    names, inputs, state = tuple(rows), tuple(rows.values()), None
    if sums is None:
        scaling = pooled_scaling(mapped, standardise=standardise, center=fit_intercept)
    else:
        there = torch_device(features.device) if len(names) < MANY else None
        moments = {
            name: sums.moments[name].on_device(there) if name in sums.moments else sums.of_rows(made, there)
            for name, made in zip(names, mapped)
        }
        options = {"standardise": standardise, "fit_intercept": fit_intercept, "whole": names[0] not in sums.moments}
        state, scaling = _state_of_sums(moments, sums.origin, mapped[0], features, **options)
    return Prepared(names, mapped, inputs, scaling, features, fit_intercept, state)


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
    def of(cls, prepared: Prepared, device: str | None = None) -> State:
        """The moments of prepared rows, on a device of PyTorch if there is one."""
        if prepared.state is not None:
            return prepared.state.on_device(device)
        device = device if len(prepared.names) < MANY else None
        moments = tuple(augmented(rows, prepared.scaling, device) for rows in prepared.mapped)
        return cls(prepared.names, moments, prepared.focal, prepared.fit_intercept)

    def on_device(self, device: str | None) -> State:
        """The same with moments on a device of PyTorch, or for None in NumPy; the focal rows stay in NumPy.

        Many domains stay in NumPy too: their small problems are solved in one call.
        """
        device = device if len(self.moments) < MANY else None
        moments = tuple(m.on_device(device) for m in self.moments)
        return self if moments[0] is self.moments[0] else replace(self, moments=moments)

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
        square = sum(recentred(m, center, keep=False).system.target_square for m in self.moments)
        return square / (center.total * self.moments[0].n_outputs)


def sample_size(sources: Sources | None) -> int:
    """How many rows are drawn of each streamed source; 0 where there are none."""
    return max((stream.sample_rows for stream in sources.streams), default=0) if sources is not None else 0


def sample_note(rows: int, what: str = "the choice was learned", each: str = "each streamed source") -> tuple[str, ...]:
    """A note that something used at most this many rows of each source; none for 0, where all rows were used."""
    return (f"{what} on at most {rows:,} rows of {each}, drawn at random",) if rows else ()


@dataclass(frozen=True, eq=False)
class StreamSums:
    """Moments of ``[features - origin, 1]`` and ``targets - origin`` of all rows of streamed sources, by name."""

    origin: Origin
    moments: Mapping[str, Moments]

    @classmethod
    def of(
        cls, streams: Sequence[Any], focal: Rows, features: Features, origin: Origin | None = None
    ) -> StreamSums | None:
        """Read the sources, and draw their samples in the same pass; ``origin`` is a point near the focal rows.

        None where the sums of all domains do not fit into the memory limit.
        """
        origin = origin_of(features.of(focal)) if origin is None else origin
        try:
            return cls(origin, _stream_moments(streams, focal, origin, features, sampled=True))
        except (DataError, ParameterError) as error:
            if error.code != "sums-too-large":
                raise
            return None

    def of_rows(self, rows: Rows, device: str | None = None) -> Moments:
        """The same moments of rows of features."""
        near = Rows(rows.X - self.origin.features, rows.y - self.origin.targets, rows.sample_weight)
        return augmented(near, device=device)

    def joined(self, other: Mapping[str, Moments]) -> StreamSums:
        """With the sums of further rows."""
        added = {name: self.moments[name] + new if name in self.moments else new for name, new in other.items()}
        return replace(self, moments={**self.moments, **added})


def repeats_note(kept: KeptRows, places: Mapping[str, Integers]) -> tuple[str, ...]:
    """A note where rows repeat."""
    counts = {name: len(each) - len(kept.rows[name].y) for name, each in places.items()}
    counts = {name: count for name, count in counts.items() if count}
    if not counts:
        return ()
    told = "{count} rows repeat others of {names}: they are left out together, and count as often as they occur"
    return (Note("repeated-rows", told, count=sum(counts.values()), names=quoted(list(counts))),)


@dataclass(frozen=True, eq=False)
class KeptRows:
    """What a fit keeps for later updates: rows by domain and, of streamed domains, the moments of all their rows.

    Of a streamed domain, ``rows`` hold at most ``sampled``. Without sums these rows are all that is known.
    """

    rows: dict[str, Rows]
    sums: StreamSums | None = None
    sampled: int = 0

    def joined(
        self, new: Mapping[str, Rows], features: Features, streamed: StreamSums | None = None, sampled: int = 0
    ) -> KeptRows:
        """With further rows, and the sums of those among them that are streamed."""
        sums = self.sums or (streamed and replace(streamed, moments={}))
        if sums is not None:
            added = dict(streamed.moments if streamed else {})
            for name in set(added) & set(self.rows) - set(sums.moments):
                added[name] = added[name] + sums.of_rows(features.of(self.rows[name]))
            for name in set(new) & set(sums.moments) - set(added):
                added[name] = sums.of_rows(features.of(new[name]))
            sums = sums.joined(added)
        rows = {name: self.rows[name].joined(part) if name in self.rows else part for name, part in new.items()}
        return KeptRows({**self.rows, **rows}, sums, max(self.sampled, sampled))

    def distinct(self, *, jointly: bool = False) -> tuple[KeptRows, dict[str, Integers]]:
        """What is learned from: rows that repeat once each, with relative sample weights, and the places of all rows.

        Weights are relative to the mean of their domain, or with ``jointly`` to that of all domains.
        """
        found = {name: distinct_rows(part) for name, part in self.rows.items()}
        if jointly:
            # Weights that are given for one table compare rows of different domains, too.
            weight = relative_weight(np.concatenate([part.weight for part in self.rows.values()]))
            if weight is not None:
                ends = np.cumsum([len(part.y) for part in self.rows.values()])[:-1]
                for (name, (part, places)), each in zip(found.items(), np.split(weight, ends)):
                    total = np.bincount(places, each)
                    found[name] = replace(part, sample_weight=total / np.mean(total) * np.mean(each)), places
        rows = {name: part for name, (part, _) in found.items()}
        return replace(self, rows=rows), {name: places for name, (_, places) in found.items()}

    def without(self, name: str) -> KeptRows:
        """Without a domain."""
        rows = {each: part for each, part in self.rows.items() if each != name}
        left = {} if self.sums is None else {each: part for each, part in self.sums.moments.items() if each != name}
        return replace(self, rows=rows, sums=replace(self.sums, moments=left) if self.sums and left else None)


def kept_rows(model: Any) -> KeptRows:
    """What a fitted model keeps for later updates; a model from a file holds no rows."""
    if model._kept is None:
        raise ParameterError("a model from a file holds no rows and cannot be updated; call fit with all rows")
    kept: KeptRows = model._kept
    return kept


def _stream_moments(
    streams: Sequence[Any], focal: Rows, origin: Origin, features: Features, *, sampled: bool = False
) -> dict[str, Moments]:
    """Moments of all rows of streamed sources, by name; with ``sampled``, their samples are drawn in the same pass."""
    found: dict[str, Moments] = {}
    for stream in streams:
        ready = features.sized(len(origin.features))
        sums = stream.moments(ready, origin, features.columns, device=features.device, sampled=sampled)
        check_once([*found, *sums])
        for name, moments in sums.items():
            _check_moments(name, moments, origin, focal)
            found[name] = _outputs_like(moments, focal)
    return found


def moments_of(sources: Sources | None, focal: Rows, origin: Origin, features: Features) -> dict[str, Moments]:
    """Moments of ``[features - origin, 1]`` and ``targets - origin`` of all sources, by name; on the device if any.

    ``focal`` are rows of inputs that the sources must be like.
    """
    if sources is None:
        return {}
    found: dict[str, Moments] = {}
    for name, source in sources.items():
        made = features.moments(read_source(name, source, focal, features.columns), origin)
        # A device need not hold a matrix for each of many domains, which are solved for in NumPy.
        found[name] = made if len(found) < MANY else made.on_device(None)
    for name, moments in sources.moments.items():
        _check_moments(name, moments, origin, focal)
        last = moments.gram[-1, -1] if moments.rows is None else float(np.sum(moments.rows[0][:, -1] ** 2))
        if abs(last - moments.count) > 1e-9 * moments.count:
            raise DataError(
                f'domain "{name}" has moments whose last feature is not a constant 1; append one to every row'
            )
        zero = Origin(np.zeros_like(origin.features), np.zeros_like(origin.targets))
        found[name] = about(_outputs_like(moments, focal), zero, origin)
    streamed = _stream_moments(sources.streams, focal, origin, features)
    check_once([*found, *streamed])
    found |= streamed
    there = torch_device(features.device) if len(found) < MANY - 1 else None
    return {name: moments.on_device(there) for name, moments in found.items()}


def gather_state(
    focal: Rows, focal_name: str, sources: Sources | None, features: Features, *, standardise: bool, fit_intercept: bool
) -> tuple[State, Scaling]:
    """The state of a fit from sums, on the device if there is one, and the scale that all rows have in common."""
    own = features.of(focal)
    origin = origin_of(own)
    others = moments_of(sources, focal, origin, features)
    check_focal_name(others, focal_name)
    moments = {focal_name: features.moments(focal, origin, own), **others}
    return _state_of_sums(moments, origin, own, features, standardise=standardise, fit_intercept=fit_intercept)


def origin_of(own: Rows) -> Origin:
    """A point near the focal rows of features; any does, such as the plain mean."""
    with np.errstate(over="ignore"):
        origin = Origin(own.X.mean(axis=0), np.asarray(own.y.mean(axis=0)))
    return origin if all(np.all(np.isfinite(part)) for part in origin) else Origin(own.X[0], np.asarray(own.y[0]))


def _state_of_sums(
    sums: Mapping[str, Moments],
    origin: Origin,
    own: Rows,
    features: Features,
    *,
    standardise: bool,
    fit_intercept: bool,
    whole: bool = True,
) -> tuple[State, Scaling]:
    """The state from moments about the origin, the focal ones first.

    ``own`` are the features of the focal rows: of all rows if ``whole``, or else of a sample.
    """
    mean, spread, level = pooled_scale(list(sums.values()), origin)
    scale = spread if standardise else np.ones_like(spread)
    if fit_intercept:
        scaling = Scaling(origin.features + mean, scale, origin.targets + level)
    else:
        scaling = Scaling(np.zeros_like(mean), scale, np.zeros_like(level))
        mean, level = -origin.features, -origin.targets
    prepared = scaling.apply(own)
    here, *others = (moved(each, mean, scale, level) for each in sums.values())
    here = augmented(prepared) if whole and torch_device(features.device) is None else here
    return State(tuple(sums), (here, *others), prepared, fit_intercept), scaling


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


# --- fits at fixed parameters -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Leave-one-out residuals of the focal rows, and how the spread varies with the inputs.

    Parameters
    ----------
    make_left_out : callable
        Returns the :class:`LeaveOneOut`; called on first use.
    make_posterior : callable
        Returns the :class:`Posterior`, or None for the same spread everywhere.
    make_local : callable
        Returns for each output the :class:`~mixtune.choice.LocalSpread`, or None where errors vary with the posterior
        alone.
    """

    make_left_out: Callable[[], LeaveOneOut]
    make_posterior: Callable[[], Posterior | None]
    make_local: Callable[[], tuple[LocalSpread, ...] | None] = field(default_factory=lambda: partial(same, None))

    @cached_property
    def left_out(self) -> LeaveOneOut:
        """Leave-one-out predictions, residuals and spreads."""
        return self.make_left_out()

    @cached_property
    def posterior(self) -> Posterior | None:
        """The spread for any row."""
        return self.make_posterior()

    @cached_property
    def local(self) -> tuple[LocalSpread, ...] | None:
        """How errors of each output vary beyond the posterior spread."""
        return self.make_local()

    @cached_property
    def _scores(self) -> Floats:
        """Sizes (n, D) of leave-one-out residuals, divided by the spread."""
        scores = np.abs(self.left_out.residuals) / np.sqrt(self.left_out.spreads)[:, None]
        return scores if self.local is None else scores * np.exp(-np.column_stack([each.rows for each in self.local]))

    def std(self, U: Floats, predictions: Floats) -> Floats:
        """Predictive standard deviation (n, D), scaled so that leave-one-out residuals have unit mean square."""
        self._check()
        noise = np.average(self._scores**2, axis=0, weights=self.left_out.sample_weight)
        noise = self._joined(noise, lambda validated: np.mean(validated**2))
        return self._spread(U, predictions) * np.sqrt(noise)

    def half_width(self, U: Floats, predictions: Floats, coverage: float) -> Floats:
        """Half-width (n, D) of conformal intervals: a quantile of leave-one-out residuals, scaled by the spread.

        ``predictions`` (n, D) are those of rows U, in prepared units.
        """
        coverage = check_coverage(coverage)
        self._check()
        count = float(np.sum(self.left_out.copies))
        # Subtract a little, so that 0.9 * 10 = 9.000000000000002 is still rank 9.
        rank = math.ceil((count + 1) * coverage - 1e-9)
        if rank > count:
            needed = math.ceil(coverage / (1 - coverage) - 1e-9)
            rows = "there is 1" if count == 1 else f"there are {count:g}"
            lower = ("lower coverage or use predict(X, return_std=True)", "give --interval a lower value or use --std")
            wanted = "intervals of coverage {coverage:g} need at least {needed} focal rows, {rows}; {fix}"
            told: dict[str, Any] = {"coverage": coverage, "needed": needed, "rows": rows, "fix": Wording(*lower)}
            raise ParameterError(wanted, code="few-rows", **told)
        quantiles = np.array([_ranked(column, self.left_out.copies, rank) for column in self._scores.T])
        quantiles = self._joined(quantiles, partial(np.quantile, q=coverage))
        return self._spread(U, predictions) * quantiles

    def _joined(self, left_out: Floats, figure: Callable[[Floats], Any]) -> Floats:
        """Figures (D,) of left-out rows, and of few rows those of validation tasks with them."""
        found = left_out.copy()
        for output, each in enumerate(self.local or ()):
            if each.share > 0:
                found[output] += each.share * (float(figure(each.validated)) - found[output])
        return found

    def _spread(self, U: Floats, predictions: Floats) -> Floats:
        """Factors (n, D) of standard deviations."""
        spread = np.ones(len(U)) if self.posterior is None else self.posterior.spread(U)
        found = np.repeat(np.sqrt(spread)[:, None], predictions.shape[1], axis=1)
        if self.local is not None:
            for output, each in enumerate(self.local):
                found[:, output] *= each(U, predictions[:, output], spread)
        return found

    def _check(self) -> None:
        if not np.all(np.isfinite(self.left_out.spreads) & (self.left_out.spreads > 0)):
            raise DataError("the spreads of the focal rows are not positive numbers; fit the model again")
        if not np.all(np.isfinite(self.left_out.residuals)):
            raise ParameterError(
                "leave-one-out cannot judge this fit: without one of its focal rows nothing is left to predict that "
                "row from; pass more focal rows or a positive ridge, transfer or stability"
            )


def check_level(level: float) -> float:
    """Refuse the level of a quantile that is not between 0 and 1."""
    if check_positive("levels", level) >= 1:
        raise ParameterError(f"levels must be between 0 and 1; got {level!r}")
    return float(level)


def check_coverage(coverage: float) -> float:
    """Refuse a coverage that is not between 0 and 1."""
    if check_positive("coverage", coverage) >= 1:
        raise ParameterError(f"coverage must be between 0 and 1; got {coverage!r}")
    return float(coverage)


def same(value: Any) -> Any:
    """The value, for a function that is called later: unlike a lambda, a partial of this can be pickled."""
    return value


def _read_uncertainty(parts: dict[str, Any]) -> Uncertainty:
    left_out, found, local = parts["left_out"], parts["posterior"], parts.get("local")
    valid = isinstance(left_out, LeaveOneOut) and isinstance(found, Posterior | None)
    if not valid or not (local is None or _is_local(local, left_out.residuals)):
        raise TypeError("the stored uncertainty of the predictions is not valid")
    return Uncertainty(partial(same, left_out), partial(same, found), partial(same, local))


def _is_local(local: Any, residuals: Floats) -> bool:
    """Whether there is a local spread for every output."""
    members = type(local) is tuple and all(isinstance(each, LocalSpread) for each in local)
    return members and len(local) == np.shape(residuals)[-1]


def _write_uncertainty(found: Uncertainty) -> dict[str, Any]:
    return {"left_out": found.left_out, "posterior": found.posterior, "local": found.local}


storable(Uncertainty, write=_write_uncertainty, read=_read_uncertainty)


def _ranked(scores: Floats, copies: Floats, rank: int) -> float:
    """The score of the given rank, counting from 1 from the smallest, each score ``copies`` times."""
    order = np.argsort(scores, kind="stable")
    place = int(np.searchsorted(np.cumsum(copies[order]), rank - 1e-9))
    return float(scores[order][min(place, len(scores) - 1)])


@dataclass(frozen=True, eq=False)
class Heads:
    """Local ridge heads (N, p[, D]) with their intercepts (N[, D])."""

    coef: Floats
    intercept: Floats


@dataclass(frozen=True, eq=False)
class Solved:
    """A fit in prepared units: what a subclass's ``_solve`` returns.

    Attributes
    ----------
    coef : array (p,) or (p, D)
    intercept : scalar or array (D,)
    uncertainty : Uncertainty
    attributes : dict
        Further fitted attributes, by name, stored as they are.
    heads : Heads or None
        Local heads, stored as ``heads_`` and ``head_intercepts_`` in the units of the features.
    """

    coef: Floats
    intercept: Any
    uncertainty: Uncertainty
    attributes: dict[str, Any] = field(default_factory=dict)
    heads: Heads | None = None

    def repeated(self, places: Integers) -> Solved:
        """With left-out residuals of rows at these places."""
        given = self.uncertainty
        local = partial(_repeated_local, given, places)
        uncertainty = Uncertainty(partial(_repeated, given, places), given.make_posterior, local)
        return replace(self, uncertainty=uncertainty)


def _repeated(uncertainty: Uncertainty, places: Integers) -> LeaveOneOut:
    return uncertainty.left_out.repeated(places)


def _repeated_local(uncertainty: Uncertainty, places: Integers) -> tuple[LocalSpread, ...] | None:
    local = uncertainty.local
    return None if local is None else tuple(each.repeated(places) for each in local)


@storable
@dataclass(frozen=True, eq=False)
class Held:
    """What a regret problem holds beside moments and weights; start and reference are None where they are the heads."""

    heads: Floats
    transfer: float
    stability: float
    horizon: int
    start: Floats | None
    reference: Floats | None

    @classmethod
    def of(cls, problem: RegretProblem) -> Held:
        """All but the moments and weights of a problem."""
        heads = to_numpy(problem.heads)
        start, reference = (None if x is problem.heads else to_numpy(x) for x in (problem.start, problem.reference))
        return cls(heads, problem.transfer, problem.stability, problem.horizon, start, reference)

    def solve(self, state: State, weights: DomainWeights) -> RegretSolution:
        """The solution again, from the state and the weights of its fit."""
        moments, _ = _problem_moments(state, weights)
        return solve(RegretProblem(moments=moments, weights=weights.values, **vars(self)))


def _write_solution(solution: RegretSolution) -> dict[str, Any]:
    if solution.method != "closed-form":
        raise ParameterError(f"a solution by {solution.method} cannot be saved; solve in closed form")
    problem = solution.problem
    return {"moments": list(problem.moments), "weights": problem.weights, **field_values(Held.of(problem))}


storable(RegretSolution, write=_write_solution, read=lambda parts: solve(RegretProblem(**parts)))


def _problem_moments(state: State, weights: DomainWeights) -> tuple[Sequence[Moments], Center]:
    """All domains about their common mean, as the regret problem sees them."""
    if len(state.moments) == 1:
        return [state.centred], state.centers[0]
    center = state.common(weights.values)
    # Many domains are moved when they are added up, a few at a time, rather than copied.
    few = len(state.moments) < MANY
    return [recentred(m, center, keep=few) for m in state.moments], center


def local_heads(state: State, ridge: float) -> Heads:
    """Ridge heads of all domains, each about its own mean."""
    if len(state.moments) < MANY:
        centred = (recentred(m, center) for m, center in zip(state.moments, state.centers))
        coef = np.stack([to_numpy(m.head(ridge)) for m in centred])
    else:
        moved = [recentred(m, center, keep=False) for m, center in zip(state.moments, state.centers)]
        coef = stacked(moved, [ridge] * len(moved))
    intercept = np.stack([np.asarray(center.intercept(head)) for center, head in zip(state.centers, coef)])
    return Heads(coef, intercept)


def focal_fit(state: State, heads: Heads, ridge: float) -> Fit:
    """The focal head alone, as leave-one-out needs it."""
    return _fit(heads.coef[0], heads.intercept[0], state.centred.system, state.centers[0], ridge, 1.0)


def ridge_alone(state: State, ridge: float) -> tuple[RegretSolution, Fit]:
    """Plain ridge regression on the focal rows: the problem of one domain whose heads are held to zero."""
    zero = np.zeros(tuple(state.centred.cross.shape))
    held: dict[str, Any] = {
        "ridge": ridge,
        "transfer": ridge,
        "stability": 0.0,
        "horizon": 1,
        "start": zero,
        "reference": zero,
    }
    solution = solve(RegretProblem(moments=[state.centred], weights=[1.0], **held))
    return solution, _solution_fit(solution, state.centers[0], ridge, 1.0)


def regret_optimal(state: State, heads: Heads, weights: DomainWeights, **held: Any) -> tuple[RegretSolution, Fit]:
    """The regret-optimal solution for transfer, stability and horizon, with all domains about their common mean."""
    moments, center = _problem_moments(state, weights)
    solution = solve(RegretProblem(moments=moments, weights=weights.values, heads=heads.coef, **held))
    ridge = math.inf if solution.effective_ridge is None else solution.effective_ridge
    return solution, _solution_fit(solution, center, ridge, float(weights.values[0]))


def stopped(state: State, solution: RegretSolution, fit: Fit, head: Fit, stop: int | str | None) -> tuple[int, Solved]:
    """The step at which to stop, and the fit there; by default the last step, :data:`BEST` by leave-one-out.

    From a start at the reference, the model after t steps is ``(1 - s) start + s end`` with ``s = s(t)``, intercepts
    included. That holds without any focal row as well, so its left-out residuals are such means of those of the start
    and of the end.
    """
    if stop is None:
        return solution.steps, solved(state, fit, head)
    first = to_numpy(solution.coef_at(0))
    start = _fit(first, fit.center.intercept(first), fit.system, fit.center, math.inf, fit.share)
    ends = [leave_one_out(state.focal, each, head) for each in (start, fit)]
    held = solution.problem
    shares = Schedule(held.transfer, held.stability, held.horizon).end_share(np.arange(held.horizon + 1.0))
    step = solution.steps if stop == BEST else int(stop)
    before, after = (each.residuals for each in ends)
    known = np.isfinite(before) & np.isfinite(after)
    if stop == BEST and np.all(known):
        products = [
            np.average(np.mean(x, axis=1), weights=ends[0].sample_weight) for x in (before**2, before * after, after**2)
        ]
        errors = (1 - shares) ** 2 * products[0] + 2 * shares * (1 - shares) * products[1] + shares**2 * products[2]
        step = int(np.argmin(errors))
    share = shares[step]
    with np.errstate(invalid="ignore"):
        residuals = np.where(known, (1 - share) * before + share * after, np.inf)
    predictions = np.where(known, state.focal.targets - residuals, ends[1].predictions)
    left_out = LeaveOneOut(predictions, residuals, ends[1].spreads, ends[1].sample_weight)
    coef = np.reshape(to_numpy(solution.coef_at(step)), fit.coef.shape)
    found = like_targets(state.focal, coef, np.reshape(fit.center.intercept(coef), -1))
    return step, Solved(*found, Uncertainty(partial(same, left_out), partial(posterior, fit.on_host)))


@dataclass(frozen=True, eq=False)
class PooledRidge:
    """Ridge regression on the rows of some domains pooled, at any ridge; the rows are added up once."""

    state: State
    system: Any
    center: Center
    share: float

    def __call__(self, ridge: float) -> Solved:
        coef = to_numpy(self.system.step(self.system.zero * 0.0, ridge))
        fit = _fit(coef, self.center.intercept(coef), self.system, self.center, ridge, self.share)
        return solved(self.state, fit)

    def errors(self, ridges: Sequence[float]) -> Floats:
        """Leave-one-out errors on the focal rows: of one output, from one decomposition for all ridges."""
        focal, center = self.state.focal, self.center
        if focal.targets.shape[1] > 1 or self.share == 0 or not is_numpy(self.system.zero):
            return np.array([self(ridge).uncertainty.left_out.error for ridge in ridges])
        center = replace(center, targets=np.reshape(center.targets, -1)[0])
        rows = Rows(focal.X - center.features, focal.targets[:, 0] - center.targets, focal.sample_weight)
        with np.errstate(over="ignore"):
            return Regression(self.system, rows, center.total, center).ridge_errors(np.array(ridges))


def pooled(state: State, chosen: Sequence[int]) -> PooledRidge:
    """Ridge regression on the rows of the chosen domains."""
    chosen, counted = list(chosen), np.zeros(len(state.moments))
    counted[chosen] = 1.0
    center = state.common(counted)
    system = weighted_system([recentred(state.moments[i], center) for i in chosen], np.ones(len(chosen)))
    return PooledRidge(state, system, center, float(0 in chosen))


def mean_of_locals(state: State, ridge: float) -> Solved:
    """The plain mean of all domains' ridge heads, intercepts included."""
    heads = local_heads(state, ridge)
    head = focal_fit(state, heads, ridge)
    coef, intercept = heads.coef.mean(axis=0), heads.intercept.mean(axis=0)
    mean = _fit(coef, intercept, head.system, head.center, ridge, 1 / len(heads.coef))
    # No posterior: the mean of local models has the same spread everywhere.
    uncertainty = Uncertainty(_left_out_maker(head, _mean_left_out, state.focal, head, mean), partial(same, None))
    return Solved(coef, intercept, uncertainty, heads=heads)


def _mean_left_out(focal: Rows, head: Fit, mean: Fit) -> LeaveOneOut:
    """Leaving a focal row out changes only the focal model, and so the mean by its share of that change."""
    alone = leave_one_out(focal, head)
    fitted: Floats = mean.predict(focal.X)
    predictions = fitted + mean.share * (alone.predictions - head.predict(focal.X))
    residuals = np.where(np.isfinite(alone.residuals), focal.targets - predictions, np.inf)
    return LeaveOneOut(predictions, residuals, np.ones(len(fitted)), focal.weight)


def compared_of(residuals: Mapping[str, Floats], weight: Floats, least: Floats | float) -> dict[str, Comparison]:
    """Compare leave-one-out residuals of all methods with "mixtune"; residuals of at most ``least`` count as zero.

    Examples
    --------
    >>> found = compared_of({"mixtune": np.array([1.0, 1.0]), "other": np.array([2.0, 2.0])}, np.ones(2), 1e-12)
    >>> found["other"].ratio
    0.5
    """
    counted = {name: np.where(np.abs(parts) > least, parts, 0.0) for name, parts in residuals.items()}
    return {name: compare(name, counted[MIXTUNE], parts, weight) for name, parts in counted.items()}


def solved(state: State, fit: Fit, head: Fit | None = None) -> Solved:
    """A fit with its leave-one-out and posterior, both computed when first asked for; ``head`` as they need it."""
    coef, intercept = like_targets(state.focal, fit.coef, fit.intercept)
    make_left_out = _left_out_maker(fit, leave_one_out, state.focal, fit, head)
    return Solved(coef, intercept, Uncertainty(make_left_out, partial(posterior, fit.on_host)))


def _left_out_maker(fit: Fit, function: Callable[..., LeaveOneOut], *args: Any) -> Callable[[], LeaveOneOut]:
    """``function(*args)`` when first asked for; at once where ``fit`` is on a device, which a model does not hold."""
    make = partial(function, *args)
    return make if is_numpy(fit.system.zero) else partial(same, make())


def like_targets(focal: Rows, coef: Floats, intercept: Floats) -> tuple[Floats, Any]:
    """Coefficients (p, D) and intercepts (D,), as (p,) and a scalar if the targets are a vector."""
    return (coef[:, 0], intercept[0]) if focal.y.ndim == 1 else (coef, intercept)


def _solution_fit(solution: RegretSolution, center: Center, ridge: float, share: float) -> Fit:
    coef = to_numpy(solution.coef)
    return _fit(coef, center.intercept(coef), solution.problem.system, center, ridge, share)


def _fit(coef: Floats, intercept: Any, system: Any, center: Center, ridge: float, share: float) -> Fit:
    intercept = np.reshape(intercept, -1)
    return Fit(np.reshape(coef, (-1, len(intercept))), intercept, system, center, ridge, share)


def samples_of(
    prepared: Prepared,
    moments: Sequence[Moments],
    block: FeatureBlock,
    places: Integers,
    output: int,
    spectra: Sequence[Any] | None = None,
) -> list[Sample]:
    """The focal domain and the sources that priors are learned from, for one output and the features of one map.

    ``spectra`` are those of all domains, where several outputs share them.
    """
    found = []
    for place in (0, *(1 + places).tolist()):
        # Where sources take no focal role, nobody asks for their rows.
        rows, own = partial(_sample_rows, prepared, block, place, output), moments[place].output(output)
        how: dict[str, Any] = {"intercept": prepared.fit_intercept, "size": len(prepared.mapped[place].y)}
        found.append(Sample(own, rows, **how, spectra=None if spectra is None else spectra[place]))
    return found


def _sample_rows(prepared: Prepared, block: FeatureBlock, place: int, output: int) -> Rows:
    given, scaling = prepared.mapped[place], prepared.scaling
    if place > 0 and given.X.size > RUN_ENTRIES:
        # Validation needs some rows of a large source, and sums over all of them, for which no copy is made.
        y = given.targets[:, output] - np.reshape(scaling.target_shift, -1)[output]
        return LazyRows(given, lambda X: block.features(scaling.features(X)), y)
    rows = prepared.focal if place == 0 else scaling.apply(given)
    return Rows(block.features(rows.X), rows.targets[:, output], rows.sample_weight)


def principal_basis(
    prepared: Prepared, state: State, seed: int, *, every: bool = False
) -> tuple[Floats | None, tuple[str, ...]]:
    """Principal directions (p, k) to work in where there are very many columns, and a note that says so."""
    width = prepared.focal.shape[1]
    if width <= WIDEST:
        return None, ()
    if len(prepared.names) == 1:
        # Ridge regression around zero stays in the span of its rows, so that nothing is lost.
        alone = prepared.focal.X
        return (np.linalg.svd(alone, full_matrices=False)[2].T if len(alone) < width else None), ()
    if width <= EXACT_WIDTH and sum(len(rows.y) for rows in prepared.mapped) >= width:
        focal, *sources = (m.gram[:-1, :-1] for m in state.moments)
        # Very many rows of sources must not outvote the focal ones, unless ``every`` domain counts alike.
        part = 1.0 if every else min(MOST_ROWS / sum(m.count for m in state.moments[1:]), 1.0)
        rank, found = WIDEST, spectrum_of(to_numpy(focal + part * sum(sources)))[1]
        basis = found[:, : -rank - 1 : -1]
    else:
        rows = _rows_in_order(prepared, seed)
        rank = min(WIDEST, *rows.X.shape)
        # What is drawn at random goes with columns, too, whose order and signs must not matter.
        oriented = Oriented.of(rows.X, rows.y, rows.weight, shift=np.zeros(width), scale=np.ones(width))
        basis = np.empty((width, rank))
        basis[oriented.order] = randomized_svd(oriented(rows.X), rank, n_iter=2, random_state=seed)[2].T
        basis *= oriented.scale[:, None]
    return basis, (f"{width} features: candidates were computed in their {rank} leading principal directions",)


def _rows_in_order(prepared: Prepared, seed: int) -> Rows:
    """All rows, in an order that follows from their content; where they are very many, the sources' are a draw."""
    focal, *sources = (prepared.scaling.apply(rows) for rows in prepared.mapped)
    sources = [sources[k] for k in content_order(sources).tolist()]
    ends = np.cumsum([len(rows.y) for rows in sources])
    places = np.arange(ends[-1])
    if len(focal.y) + ends[-1] > MOST_ROWS:
        most = min(MOST_ROWS, int(ends[-1]))
        places = np.sort(np.random.default_rng(seed).choice(ends[-1], most, replace=False))
    own = np.split(places, np.searchsorted(places, ends[:-1]))
    starts = [0, *ends[:-1].tolist()]
    each = zip(sources, own, starts)
    drawn = [rows.part(by_content(rows)[part - start]) for rows, part, start in each if len(part)]
    parts = [focal.part(by_content(focal)), *drawn]
    X, y, weight = (
        np.concatenate(arrays) for arrays in zip(*((rows.X, rows.targets[:, 0], rows.weight) for rows in parts))
    )
    return Rows(X, y, weight)


def feature_range(domains: Sequence[Rows]) -> tuple[Floats, Floats]:
    """Between which values predictions may vary, in the units of the rows."""
    found = in_threads(lambda rows: (rows.X.min(axis=0), rows.X.max(axis=0)), domains, width=domains[0].X.size)
    low, high = np.min([least for least, _ in found], axis=0), np.max([most for _, most in found], axis=0)
    share = MARGIN[0] + MARGIN[1] / sum(len(rows.X) for rows in domains)
    with np.errstate(over="ignore"):  # a limit beyond float64 is infinite, which clips nothing
        margin = share * (high - low)
        return low - margin, high + margin


def posterior_of(choices: Sequence[MapAverage]) -> Posterior | None:
    """How uncertainty varies over inputs, for the largest share: 1 + z'Vz, V the posterior covariance over noise.

    Several outputs have a posterior each; they are taken to be equally uncertain everywhere (None).
    """
    if len(choices) > 1:
        return None
    return prior_posterior(choices[0], choices[0].largest.prior)


def prior_posterior(average: MapAverage, prior: Prior) -> Posterior:
    """The same for any prior of the map with the largest share."""
    choice, block, task = average.largest, average.blocks[average.top], average.largest.task
    posterior = posterior_covariance(prior, task)
    if prior.free_intercept or not task.intercept:
        center: Floats = task.center.features if task.intercept else np.zeros(len(posterior))
        constant = 1.0 / task.total if task.intercept else 0.0
        slopes = posterior
    else:
        # Complete the square: z'Vz with z = (u, 1) is least at the center, where it is the constant.
        slopes, edge = posterior[:-1, :-1], posterior[:-1, -1]
        center = np.asarray(-np.linalg.lstsq(slopes, edge, rcond=1e-12)[0])
        constant = max(float(posterior[-1, -1] + center @ edge), 0.0)
    center, factor = (block.coefficients(part, average.width) for part in (center, roots_of(slopes)))
    if block.basis is None:
        missing = missing_part(choice, block, average.width)
        return Posterior(center, constant, 1.0, factor, np.zeros((average.width, 0)), 0.0, missing)
    # Without sources the prior N(0, scale I) remains outside the span of the rows.
    rest = 0.0 if choice.weights.shape[1] else prior.scale / prior.noise
    return Posterior(center, constant, 1.0, factor, block.basis, rest)
