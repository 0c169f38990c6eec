"""A model for every domain from one fit: what all domains share is learned once, and each domain has coefficients.

The fit comes first, from prepared rows to what the estimator stores; then the estimator.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from mixtune._messages import Renamed, nearest
from mixtune._registry import check_array
from mixtune.arrays import Floats, Integers, one_thread_if_small
from mixtune.checks import check_whole
from mixtune.choice import (
    MIXTUNE,
    OWN_ROWS,
    POOLED,
    SETTINGS,
    CommonProcess,
    Comparison,
    FeatureBlock,
    MapAverage,
    Sample,
    TransferGain,
    choose_every,
    choose_every_process,
    choose_maps,
    coefficient_errors,
    joint_left_out,
    learn_population,
    process_population,
    sample_sources,
    scattered,
    transfer_gain,
)
from mixtune.data import findings_first, frame_of
from mixtune.errors import DataError, ParameterError
from mixtune.estimators import _fits as fits
from mixtune.estimators._base import Reported, column_names
from mixtune.estimators._inputs import (
    Labels,
    check_domains,
    check_new,
    check_scored,
    every_notes,
    map_after_encoding,
    read_focal,
    split_labels,
)
from mixtune.estimators._maps import Maps, features_by_fold, input_range, made_maps, process_maps
from mixtune.estimators._onnx import DEFAULT_OPSET, linear_to_onnx
from mixtune.estimators._saving import Savable, savable
from mixtune.moments import Moments, Posterior, Rows, Scaling, weighted_system
from mixtune.streaming import StreamedSources

#: The domain of all rows where no labels are given.
ONLY = "all rows"
UNSEEN = ("population", "error")
#: Rows that the left-out residuals of all domains count as, beside a domain's own, when intervals are made. Without it,
#: intervals of domains with few rows are a matter of luck, and below nine rows there are none of 90%.
SHARED_ROWS = 20.0
#: The prior that all domains share, at twice the covariance that was learned, which few domains pull towards zero.
ALIKE = ("alike", {"scale": 2.0})
#: Standard deviations on both sides of a 95% interval.
TWO_SIDED = 1.96
#: Rows that predictions are computed for at a time.
BLOCK = 1 << 15
#: Sources with a smaller weight are not named in the summary, and how many are.
NAMED_WEIGHT, MOST_NAMED = 0.02, 3


@dataclass(frozen=True, eq=False)
class DomainFits:
    """Fits of all domains in prepared units.

    Attributes
    ----------
    coef, intercept : arrays (N, p) and (N,)
    population, population_level : array (p,) and float
        Coefficients and intercept for domains that were not seen.
    without : list of arrays (n_i,)
        Residuals of each domain's rows by the model of the population without that domain.
    weights : array (N, N)
        In each row: the share of the prediction for one domain that every domain provides.
    residuals : sequence of arrays (n_i,)
        Of left-out rows.
    scores : sequence of arrays (n_i,)
        Their size in units of the spread of a prediction, with what leave-one-out overlooks.
    posteriors : sequence of Posterior
        How the spread varies with the inputs.
    spreads : array (N, p + 1)
        Standard deviations of coefficients and of the level, over that of the noise.
    compared : list of tuples of Comparison
        With the domain's own rows alone, and with all rows pooled.
    gains : list of TransferGain
    n_tasks : array (N,)
        How many other domains took the focal role for the weights of a domain's candidates.
    """

    coef: Floats
    intercept: Floats
    population: Floats
    population_level: float
    without: list[Floats]
    weights: Floats
    residuals: Sequence[Floats]
    scores: Sequence[Floats]
    posteriors: Sequence[Posterior]
    spreads: Floats
    compared: list[tuple[Comparison, ...]]
    gains: list[TransferGain]
    n_tasks: Integers


@fits.solvable()
def every_fit(
    prepared: fits.Prepared,
    moments: Sequence[Moments],
    blocks: Sequence[FeatureBlock],
    processes: Sequence[CommonProcess] = (),
    *,
    seed: int,
    output: int = 0,
) -> DomainFits:
    """Choose for every domain, and compare each with its own rows alone and with all rows pooled.

    The blocks are features of the ``processes``, if there are any.
    """
    width, count = prepared.focal.shape[1], len(prepared.names)
    own = [[block.moments(m) for m in moments] for block in blocks]
    samples = [fits.samples_of(prepared, each, block, np.arange(count - 1), output) for each, block in zip(own, blocks)]
    known = sample_sources(prepared.mapped, seed=seed, prepare=prepared.scaling.apply, most=SETTINGS.shared_sources)
    averages: Iterator[MapAverage]
    domains = [replace(rows, y=rows.targets[:, output]) for rows in prepared.inputs]
    level = float(np.reshape(prepared.scaling.target_shift, -1)[output])
    about: dict[str, Any] = {"shift": prepared.scaling.shift, "target_shift": level}
    if processes:
        known = np.arange(count)
        averages = choose_every_process(processes, domains, samples, blocks, width, **about, seed=seed)
    elif count == 1:
        averages, known = iter([choose_maps(samples, blocks, width, seed=seed)]), np.empty(0, dtype=np.int64)
    else:
        choices = choose_every(samples, places=known, seed=seed)
        averages = (MapAverage(each, tuple(blocks), width).with_own_rows() for each in choices)
    # Features of processes are too many for a posterior of each domain.
    found = [_domain_fit(average, index, known, count, varies=not processes) for index, average in enumerate(averages)]
    pooled = cache(lambda place: _pooled_left_out(samples[place], [each.output(output) for each in own[place]]))
    compared = [_compared(each, pooled(each.plain)[k], samples[0][k]) for k, each in enumerate(found)]
    heads = np.stack([each.head for each in found])
    coef, intercept = (heads[:, :-1], heads[:, -1]) if prepared.fit_intercept else (heads, np.zeros(count))
    spreads = np.stack([each.spread for each in found])
    if np.any(spreads) and blocks[0].basis is None:
        noise = noise_of([each.scores for each in found])
        scatter = coefficient_errors(samples[0], noise, coef)
        if scatter is None:
            spreads[:] = 0.0  # no intervals rather than wrong ones
        else:
            spreads[:, :-1] = np.maximum(spreads[:, :-1], scatter / np.sqrt(np.where(noise > 0, noise, 1.0))[:, None])
    head, without = heads[0], [found[0].left_out]
    if count > 1:
        common = process_population(processes, domains, blocks, **about) if processes else learn_population(samples)
        head, without = scattered(common.heads, blocks, width, intercept=prepared.fit_intercept), common.left_out
    population, level = (head[:-1], float(head[-1])) if prepared.fit_intercept else (head, 0.0)
    gains = [transfer_gain(both[0], each.task_gains, s.total) for each, both, s in zip(found, compared, samples[0])]
    weights, left_out, scores, posteriors, tasks = zip(
        *((each.weights, each.left_out, each.scores, each.posterior, len(each.task_gains)) for each in found)
    )
    model = (coef, intercept, population, level, without, np.stack(weights))
    return DomainFits(*model, left_out, scores, posteriors, spreads, compared, gains, np.array(tasks))


def noise_of(scores: Sequence[Floats]) -> Floats:
    """Variance (N,) of the rows about each domain's model, with that of all domains as a few more rows."""
    squares = [each[np.isfinite(each)] ** 2 for each in scores]
    common = float(np.mean(np.concatenate(squares))) if any(map(len, squares)) else 0.0
    return np.array([(part.sum() + SHARED_ROWS * common) / (len(part) + SHARED_ROWS) for part in squares])


@dataclass(frozen=True, eq=False)
class _DomainFit:
    """What is kept of one domain's average."""

    head: Floats
    left_out: Floats
    alone: Floats
    scores: Floats
    posterior: Posterior
    spread: Floats
    weights: Floats
    plain: int
    size: float
    task_gains: Floats


def _domain_fit(average: MapAverage, index: int, places: Integers, count: int, *, varies: bool) -> _DomainFit:
    """What is kept of an average; unless it ``varies``, predictions are taken to be equally uncertain everywhere."""
    nothing = np.zeros((average.width, 0))
    posterior = Posterior(np.zeros(average.width), 0.0, 0.0, nothing, nothing, 0.0)
    if varies:
        posterior = fits.posterior_of([average]) or posterior
    return _DomainFit(
        average.head,
        average.left_out,
        average.focal_left_out,
        np.abs(average.left_out) * average.inflation / np.sqrt(average.spreads if varies else 1.0),
        posterior,
        _coefficient_spread(average, posterior) if varies else np.zeros(average.width + 1),
        _borrowed(average, index, places, count),
        average.plain,
        average.size,
        average.play_gains,
    )


def _coefficient_spread(average: MapAverage, posterior: Posterior) -> Floats:
    """Standard deviations (p + 1,) of coefficients and of the level, over that of the noise; zero for several maps.

    They come from the prior of all domains alike, with the covariance that was learned between them. That of the
    largest share may be narrow about a few domains, and the average over candidates is less sure than each of them.
    """
    if len(average.choices) > 1:
        return np.zeros(average.width + 1)
    choice = average.largest
    if ALIKE in choice.labels:
        prior = choice.pool.prior(choice.task, choice.allowed, choice.labels.index(ALIKE))
        posterior = fits.prior_posterior(average, prior)
    level = posterior.spread(np.zeros((1, average.width))) - 1.0
    return np.sqrt(np.append(np.sum(posterior.factor**2, axis=1), np.maximum(level, 0.0)))


def _borrowed(average: MapAverage, index: int, places: Integers, count: int) -> Floats:
    """The share (N,) of the prediction for a domain that every domain provides."""
    own, sources = average.provided()
    found = np.zeros(count)
    found[places] = sources
    found[index] += own
    return found / found.sum()


def _pooled_left_out(samples: Sequence[Sample], moments: Sequence[Moments]) -> list[Floats]:
    """Left-out residuals (n_i,) of each domain's rows, by the ridge regression that is best for all rows pooled."""
    known = [sample.known for sample in samples]
    every = Sample(samples[0].moments, _all_rows(known), intercept=samples[0].intercept)
    left = joint_left_out(every, weighted_system(moments, np.ones(len(moments))))
    return np.split(left, np.cumsum([len(part.y) for part in known])[:-1])


def _compared(fit: _DomainFit, pooled: Floats, sample: Sample) -> tuple[Comparison, ...]:
    methods = {OWN_ROWS: fit.alone, POOLED: pooled, MIXTUNE: fit.left_out}
    return tuple(fits.compared_of(methods, sample.known.weight, fits.ROUNDING * fit.size).values())


@dataclass(eq=False, repr=False)
class MultiDomainSettings:
    """Parameters of the estimators with a model for every domain."""

    feature_map: Any = fits.AUTO
    _: KW_ONLY
    domain: Any = None
    unseen: str = "population"
    standardise: bool = True
    fit_intercept: bool = True
    clamp: bool = True
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Learned:
    """Fits of all domains, for each output, with the rows and maps behind them.

    Attributes
    ----------
    kept : KeptRows
        By the names of the domains, sorted.
    rows : dict of str to Rows
        Those that models were learned from: where rows repeat, one of each.
    prepared : Prepared
    counts : array (N,)
        How many rows each domain has in all.
    maps : Maps or None
        Those that were made from the rows.
    low, high : arrays (p,) or None
        Between which values features of new rows are clipped.
    heads : Heads
        Ridge fits to each domain's own rows, in prepared units.
    fits : list of DomainFits
        One for each output.
    notes : tuple of str
    """

    kept: fits.KeptRows
    rows: dict[str, Rows]
    prepared: fits.Prepared
    counts: Integers
    maps: Maps | None
    low: Floats | None
    high: Floats | None
    heads: fits.Heads
    fits: list[DomainFits]
    notes: tuple[str, ...]


def learn_every(
    kept: fits.KeptRows, settings: MultiDomainSettings, columns: tuple[str, ...] | None, stream: StreamedSources | None
) -> Learned:
    """Make maps, and fit every domain for every output; ``columns`` are the names of the inputs.

    Sums of all rows that are not known yet are read from the ``stream``.
    """
    kept = replace(kept, rows={name: kept.rows[name] for name in sorted(kept.rows)})
    distinct, places = kept.distinct(jointly=True)
    rows, sums = distinct.rows, kept.sums
    several = len(rows) > 1
    whole = sums is None and stream is None
    maps = process_maps(rows, settings, every=True) if several and whole else None
    maps = made_maps(rows, settings, every=several) if maps is None else maps
    features = fits.Features(None if maps is not None else map_after_encoding(settings, settings.feature_map), columns)
    mapped = tuple(map(features.of, rows.values())) if maps is None else maps.mapped
    if sums is None and stream is not None:
        made = features if maps is None else replace(features, feature_map=maps.by_domain(rows))
        sums = fits.StreamSums.of([stream], next(iter(rows.values())), made, fits.origin_of(_all_rows(mapped)))
        # Maps that are made again from further rows have other sums.
        kept = replace(kept, sums=sums if maps is None else None, sampled=stream.sample_rows)
    processes = () if maps is None else maps.processes
    # Features of a process are in units of their own.
    standardise = settings.standardise and not processes
    options: dict[str, Any] = {"standardise": standardise, "fit_intercept": settings.fit_intercept}
    prepared = fits.prepare(rows, features, **options, mapped=mapped, sums=sums)
    state = fits.State.of(prepared)
    counts = np.array([moments.count for moments in state.moments])
    # Of rows that repeat, all count.
    summed = () if sums is None else sums.moments
    counts += np.array([0 if name in summed else len(places[name]) - len(part.y) for name, part in rows.items()])
    blocks: Sequence[FeatureBlock]
    notes: tuple[str, ...] = ()
    if maps is None or (len(maps.blocks) == 1 and not processes):
        basis, notes = fits.principal_basis(prepared, state, settings.seed, every=True)
        blocks = [FeatureBlock("all", np.arange(prepared.focal.shape[1]), basis)]
    else:
        blocks = maps.blocks
    # Maps that were made from the rows clip their inputs themselves.
    low, high = fits.feature_range(prepared.mapped) if settings.clamp and several and maps is None else (None, None)
    outputs = range(prepared.focal.targets.shape[1])
    found = []
    for output in outputs:
        used = [place for place, block in enumerate(blocks) if block.output in (None, output)]
        own = [blocks[place] for place in used]
        kernels = [processes[place] for place in used] if processes else []
        found.append(every_fit(prepared, state.moments, own, kernels, seed=settings.seed, output=output))
    heads = fits.local_heads(state, fits.HEAD_RIDGE)
    what = "models were learned"
    if sums is not None:
        what = "feature maps were made and " * (maps is not None) + "models were validated"
    notes = _row_notes(rows, counts) + notes + (() if maps is None else maps.notes)
    notes += fits.sample_note(kept.sampled, what, "each domain") + fits.repeats_note(distinct, places)
    notes = findings_first((*every_notes(kept.rows, columns), *notes))
    return Learned(kept, rows, prepared, counts, maps, low, high, heads, found, notes)


def _all_rows(parts: Sequence[Rows]) -> Rows:
    return Rows(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("X", "y", "weight")))


class MultiDomainEstimator(MultiDomainSettings, Reported, Savable, BaseEstimator):  # type: ignore[misc]
    """What the estimators with a model for every domain share: labels of rows, rows that come and go, features.

    Towards scikit-learn, labels go with the rows without further requests.
    """

    __metadata_request__fit = {"domain": True}  # noqa: RUF012
    __metadata_request__partial_fit = {"domain": True}  # noqa: RUF012
    __metadata_request__predict = {"domain": True}  # noqa: RUF012
    __metadata_request__score = {"domain": True}  # noqa: RUF012

    weights_: Any
    #: For fits after rows or domains are added or removed; not stored in files.
    _kept: fits.KeptRows | None = None

    @property
    @abstractmethod
    def _known(self) -> MultiDomainRegressor:
        """The fit that knows domains, maps and folds."""

    @abstractmethod
    def _learn(self, kept: fits.KeptRows, stream: StreamedSources | None = None) -> None:
        """Fit every domain; sums of all rows that are not known yet are read from the stream."""

    @property
    def feature_map_(self) -> Any:
        """The map of the fit: the one that was given, or the one that was made from the rows."""
        return self._known._made_map if fits.is_auto(self.feature_map) else self.feature_map

    def forget(self, name: Any) -> Self:
        """Remove a domain exactly: the result is that of ``fit`` without its rows."""
        check_is_fitted(self)
        kept = fits.kept_rows(self)
        if str(name) not in kept.rows:
            raise ParameterError(f'there is no domain "{name}"; {nearest(str(name), list(kept.rows))}')
        if len(kept.rows) == 1:
            raise ParameterError(f'"{name}" is the only domain; fit again with other rows')
        self._learn(kept.without(str(name)))
        return self

    def summary(self) -> Any:
        """:meth:`summary_columns` as a pandas data frame."""
        return frame_of(self.summary_columns())

    @abstractmethod
    def summary_columns(self) -> dict[str, Any]:
        """Columns with a value for each domain."""

    def borrows(self) -> Any:
        """``weights_`` as a pandas data frame: which domain (rows) borrows from which (columns)."""
        check_is_fitted(self)
        names, weights = self._known.domains_, self.weights_
        return frame_of({"": list(names), **{name: weights[:, k] for k, name in enumerate(names)}}).set_index("")

    def _check_parameters(self) -> None:
        fits.check_map(self.feature_map, auto=True)
        if self.unseen not in UNSEEN:
            raise ParameterError(f"unseen={self.unseen!r} is unknown; choose from {', '.join(UNSEEN)}")
        check_whole("seed", self.seed)

    def to_onnx(
        self,
        path: str | Path | None = None,
        *,
        dtype: str = "float64",
        input_name: str = "features",
        domain_name: str = "domain",
        output_name: str | None = None,
        label_name: str = "label",
        opset: int = DEFAULT_OPSET,
    ) -> bytes:
        """Export all models to one ONNX model: features and the name of each row's domain in, predictions out.

        Names that the model does not know are domains that were not seen, whatever ``unseen`` is: they get the
        prediction of the population. A classifier gives probabilities and labels. Without a feature map the features
        are the columns. The graph does not hold a map that was given: compute its features before. Models on maps made
        from the rows (``feature_map="auto"``) cannot be exported, unless the inputs are the only map; fit them with
        ``feature_map=None``. Intervals are not in the graph.

        Parameters
        ----------
        path : str or Path, optional
            Where to write the model as well.
        dtype : {"float64", "float32"}
            What the graph takes and computes in.
        input_name, domain_name, output_name, label_name : str
            Names in the graph; the output is "prediction", or "probabilities" of classes.
        opset : int
            Version of the standard operators.

        Returns
        -------
        bytes
        """
        check_is_fitted(self)
        known = self._known
        low, high = known._low, known._high
        if fits.is_auto(self.feature_map):
            low, high = input_range(known._made_map)
        names: dict[str, Any] = {"input_name": input_name, "domain_name": domain_name, "label_name": label_name}
        coef, intercept, more = self._exported()
        output = output_name or ("prediction" if not more else "probabilities")
        options: dict[str, Any] = {"low": low, "high": high, "dtype": dtype, "opset": opset, "output_name": output}
        return linear_to_onnx(coef, intercept, path=path, domains=known.domains_, **options, **names, **more)

    @abstractmethod
    def _exported(self) -> tuple[Floats, Floats, dict[str, Any]]:
        """Coefficients and intercepts of all domains and last of the population, and what is known of classes."""

    def _incoming(
        self, X: Any, y: Any, sample_weight: Any, domain: Any, *, reset: bool
    ) -> tuple[dict[str, Rows], StreamedSources | None]:
        """Validated rows by domain; samples of a stream, and the stream."""
        if not isinstance(X, StreamedSources):
            return self._read(X, y, sample_weight, domain, reset=reset), None
        if y is not None or domain is not None or self.domain is not None:
            raise ParameterError("StreamedSources name their targets and domains themselves; pass nothing beside them")
        found = X.samples()
        rows, targets = (np.concatenate([part[k] for part in found.values()]) for k in (0, 1))
        labels = np.repeat(list(found), [len(part[1]) for part in found.values()])
        if X.columns is not None and X.target is not None:
            rows = pa.table(dict(zip(X.columns, rows.T)))
        return self._read(rows, targets, None, labels, reset=reset), X

    def _with_rows(self, rows: Mapping[str, Rows], stream: StreamedSources | None) -> fits.KeptRows:
        """What the fit keeps, with further rows; of a stream, with the sums of all rows if features are known."""
        kept, sums = fits.kept_rows(self), None
        if stream is not None and not fits.is_auto(self.feature_map):
            first, origin = next(iter(rows.values())), None if kept.sums is None else kept.sums.origin
            sums = fits.StreamSums.of([stream], first, self._make_features(), origin)
        return kept.joined(rows, self._make_features(), sums, stream.sample_rows if stream is not None else 0)

    def _read(self, X: Any, y: Any, sample_weight: Any, domain: Any, *, reset: bool) -> dict[str, Rows]:
        """Validated rows by domain, in the order of their names; those of weight zero are left out."""
        X, labels = split_labels(X, domain, self.domain)
        classes = isinstance(self, ClassifierMixin)
        rows = read_focal(self, X, y, sample_weight, reset=reset, labels=classes)[1]
        if classes:
            check_classification_targets(rows.y)
        elif rows.y.ndim == 2:
            rows = Rows(rows.X, column_or_1d(rows.y, warn=True), rows.sample_weight)
        if labels is None:
            if not reset and self._known.domains_ != (ONLY,):
                raise ParameterError("the model was fitted with domain labels; pass domain=... here too")
            labels = Labels(np.zeros(len(rows.y), dtype=np.int64), (ONLY,))
        check_domains(labels.names)
        kept = rows.weight > 0
        if not kept.any():
            raise DataError("every row has sample weight 0; at least one row must count")
        parts = {labels.names[place]: rows.part(index[kept[index]]) for place, index in _by_place(labels.places)}
        return {name: parts[name] for name in sorted(parts) if len(parts[name].y)}

    def _make_features(self) -> fits.Features:
        return fits.Features(map_after_encoding(self, self.feature_map), column_names(self))

    def _rows(self, X: Any, domain: Any) -> tuple[Any, Integers]:
        """New rows, checked, and the places of their domains: -1 for those that were not seen."""
        check_is_fitted(self)
        known = self._known
        X, labels = split_labels(X, domain, self.domain)
        rows = check_new(self, X)
        if labels is None:
            if known.domains_ != (ONLY,):
                raise ParameterError(
                    "predict needs the domain of each row: pass domain=labels, or name the column that holds it in "
                    f"{type(self).__name__}(domain=...), which also works where scikit-learn passes rows only"
                )
            places = np.zeros(len(rows), dtype=np.int64)
        else:
            places = labels.among(known.domains_)
            if self.unseen == "error" and np.any(places < 0):
                new = [name for name in labels.names if name not in set(known.domains_)]
                remedy = "add their rows with partial_fit, or set unseen='population'"
                raise DataError(f"rows of domains that were not seen in fit: {_some(new)}; {remedy}")
        return rows, places

    def _features(self, rows: Any, places: Integers) -> Floats:
        """Features of checked rows of domains at these places."""
        known = self._known
        if fits.is_auto(self.feature_map):
            return features_by_fold(known._made_map, rows, np.where(places < 0, -1, known._folds[places]))
        features = self._make_features()(rows)
        return features if known._low is None else np.clip(features, known._low, known._high)


@savable
class MultiDomainRegressor(RegressorMixin, MultiDomainEstimator):  # type: ignore[misc]
    """A model for every domain, from one fit: each domain is the focal one, with all others as its sources.

    For every domain this averages the same candidates as :class:`RegretOptimalRegressorCV`. What domains have in common
    is computed once: feature maps, priors learned from all domains, and the tasks of cross-domain validation. The
    contribution of a domain is removed from its priors, and the shares of its candidates come from validation tasks
    that do not use its rows, and from leave-one-out on its rows. Rows of a domain that was not part of the fit get a
    model of the population of domains, with intervals from domains that were left out in turn.

    Parameters
    ----------
    feature_map : FeatureMap, "auto" or None
        As for :class:`RegretOptimalRegressorCV`; maps are made once, from all rows.
    domain : str or int, optional
        The column of ``X`` that holds the domain of each row: its name in a data frame, or its place in an array.
        Without it, pass ``domain=labels`` to ``fit`` and ``predict``. Without any labels all rows are one domain.
    unseen : {"population", "error"}
        What ``predict`` does with domains that were not part of the fit.
    standardise, fit_intercept, clamp, seed
        As for :class:`RegretOptimalRegressorCV`.

    Attributes
    ----------
    domains_ : tuple of str
        The names of the domains, sorted.
    n_rows_ : array (N,)
    coef_, intercept_ : arrays (N, p) and (N,)
        Of the features, for every domain.
    population_coef_, population_intercept_ : array (p,) and float
        For domains that were not seen.
    weights_ : array (N, N)
        In each row: the share of the prediction for one domain that every domain provides.
    feature_map_ : FeatureMap or None
        The map of the fit.
    n_validation_sources_ : array (N,)
        How many other domains took the focal role for the weights of a domain's candidates.
    notes_ : tuple of str
        Columns that almost determine the target and rows that stand more than once, which come first; and fallbacks
        that were used.

    Notes
    -----
    Coefficients differ from those of :class:`RegretOptimalRegressorCV` for the same focal domain, because how far
    domains deviate and the noise were learned with the domain among the others, and validation tasks are shared between
    domains of about as many rows.

    With ``feature_map="auto"``, one Gaussian process over all domains is learned, as by
    :class:`RegretOptimalRegressorCV`, and intervals of one domain are equally wide everywhere. Streams, more than 60
    columns, 513 domains or 8 targets, domains of more than 1,500 rows, targets of two values and fits without an
    intercept use feature maps instead. Of these, Fourier features are tried only where no columns are learned, that is,
    with up to three domains; boosted trees of a domain's own rows are not tried.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, school = rng.standard_normal((120, 1)), np.repeat(["a", "b", "c", "d"], 30)
    >>> y = X[:, 0] * np.where(school == "d", -1.0, 2.0) + 0.1 * rng.standard_normal(120)
    >>> model = MultiDomainRegressor(feature_map=None).fit(X, y, domain=school)
    >>> model.predict([[1.0], [1.0]], domain=["a", "d"]).round(1)
    array([ 2., -1.])
    """

    _stored_attributes: ClassVar[tuple[str, ...]] = (
        *("domains_", "n_rows_", "coef_", "intercept_", "population_coef_", "population_intercept_", "weights_"),
        *("own_coef_", "own_intercept_", "n_validation_sources_", "notes_", "n_features_in_", "feature_names_in_"),
        *("_scaling", "_folds", "_low", "_high", "_posteriors", "_scores", "_population_scores"),
        *("_compared", "_gains", "_spreads", "text_encoded_"),
    )

    domains_: tuple[str, ...]
    n_rows_: Integers
    coef_: Floats
    intercept_: Floats
    population_coef_: Floats
    population_intercept_: float
    weights_: Floats
    own_coef_: Floats
    own_intercept_: Floats
    n_validation_sources_: Integers
    n_plays_ = Renamed("n_validation_sources_")
    notes_: tuple[str, ...]
    _made_map: Any
    _scaling: Scaling
    _folds: Integers
    _low: Floats | None
    _high: Floats | None
    _posteriors: tuple[Posterior, ...]
    _scores: tuple[Floats, ...]
    _population_scores: Floats
    #: Not in files of earlier versions.
    _spreads: Floats | None = None
    _compared: tuple[tuple[Comparison, ...], ...]
    _gains: tuple[TransferGain, ...]
    #: Left-out residuals and all else of the fit; not in files.
    _fits: DomainFits | None = None
    #: Which column of the targets the fit is about; a classifier has several.
    _output: int

    @property
    def _known(self) -> MultiDomainRegressor:
        return self

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, domain: Any = None) -> Self:
        """Fit a model for every domain.

        Parameters
        ----------
        X, y : array-like or data frame (n, d), and (n,)
            Rows of all domains. Or X alone: :class:`StreamedSources` (files larger than memory, and Dask collections).
            Models are then fitted to the moments of all rows. ``sample_rows`` rows of each domain are drawn at random
            for validation, for intervals, and to make the maps of ``feature_map="auto"``.
        sample_weight : array-like (n,), optional
            Weight 0 means absent.
        domain : array-like (n,), optional
            The domain of each row, a text or number; not where the parameter ``domain`` names a column of ``X``.
        """
        self._check_parameters()
        rows, stream = self._incoming(X, y, sample_weight, domain, reset=True)
        self._learn(fits.KeptRows(rows), stream)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, domain: Any = None) -> Self:
        """Add rows of known or new domains, and fit again; the result is that of ``fit`` with all rows.

        On an unfitted estimator this is ``fit``. A model loaded from a file holds no rows and cannot be updated. After
        a fit to streams, a model on maps that are made from the rows (``feature_map="auto"``) is fitted to the samples
        and the further rows.
        """
        if not hasattr(self, "coef_"):
            return self.fit(X, y, sample_weight, domain=domain)
        self._check_parameters()
        self._learn(self._with_rows(*self._incoming(X, y, sample_weight, domain, reset=False)))
        return self

    def predict(self, X: Any, *, domain: Any = None) -> Floats:
        """Predictions (n,) for rows of any domains.

        Parameters
        ----------
        X : array-like or data frame (n, d)
        domain : array-like (n,), optional
            The domain of each row, as for ``fit``.
        """
        rows, places = self._rows(X, domain)
        found = np.empty(len(places))
        # Features of all rows at once would not fit into the processor's cache, and their copies would take most of
        # the time.
        for start in range(0, len(found), BLOCK):
            part = slice(start, start + BLOCK)
            found[part] = self._predictions(self._features(rows[part], places[part]), places[part])
        return found

    def predict_interval(self, X: Any, *, domain: Any = None, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """Intervals that cover new targets with about the given probability.

        For a known domain they come from left-out residuals of its rows, and of all domains where its rows are few. For
        other domains they come from domains that were left out, and are wider by how much domains differ.

        Parameters
        ----------
        X : array-like or data frame (n, d)
        domain : array-like (n,), optional
        coverage : float
            Between 0 and 1.

        Returns
        -------
        lower, upper : arrays (n,)
        """
        coverage = fits.check_coverage(coverage)
        rows, places = self._rows(X, domain)
        features = self._features(rows, places)
        middle = self._predictions(features, places)
        half = np.empty(len(middle))
        for place, rows in _by_place(places):
            half[rows] = self._half_width(int(place), features[rows], coverage)
        return middle - half, middle + half

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, domain: Any = None) -> float:
        """The coefficient of determination R^2 over all rows."""
        check_scored(y, sample_weight)
        return float(r2_score(y, self.predict(X, domain=domain), sample_weight=sample_weight))

    def summary_columns(self) -> dict[str, Any]:
        """Columns with a value for each domain: its name, rows, errors, gain, and whom it borrows from.

        Errors are root mean squared leave-one-out errors: of this model, of the best ridge fit to the domain's own
        rows, and of one ridge fit to all rows pooled. ``ratio_own_rows`` and ``ratio_pooled`` are the error of this
        model divided by the other two, with 95% intervals over the rows. ``gain`` is by what part the error is below
        that of its own rows alone, from leave-one-out and cross-domain validation, with a 95% interval; it is the
        better estimate where rows are few. ``own_share`` is the part of the
        prediction that its own rows provide. ``apart`` is how far the coefficients lie from those of the population,
        relative to the median over domains: domains well above 2 stand out.
        """
        check_is_fitted(self, "coef_")
        return summary_of([self])

    def coefficients(self) -> Any:
        """:meth:`coefficient_columns` as a pandas data frame."""
        return frame_of(self.coefficient_columns())

    def coefficient_columns(self) -> dict[str, Any]:
        """Coefficients of every domain and feature, in the units of the features.

        ``own`` is the ridge fit to the domain's own rows, ``population`` the model of domains that were not seen, and
        ``estimate`` this model. Where one feature map was used, ``low`` and ``high`` are a 95% interval of the
        estimate; of an average over several maps there is none.
        """
        check_is_fitted(self, "coef_")
        count, width = self.coef_.shape
        features = [f"feature {k}" for k in range(width)]
        if (names := column_names(self)) is not None and self.feature_map_ is None:
            features = list(names)
        columns: dict[str, Any] = {
            "domain": np.repeat(self.domains_, width).tolist(),
            "feature": features * count,
            "own": self.own_coef_.ravel(),
            "population": np.tile(self.population_coef_, count),
            "estimate": self.coef_.ravel(),
        }
        if self._spreads is not None:
            spread = self._spreads[:, :-1] / self._scaling.scale
            half = TWO_SIDED * (np.sqrt(self._noise())[:, None] * spread).ravel()
            columns |= {"low": columns["estimate"] - half, "high": columns["estimate"] + half}
        return columns

    def level_columns(self) -> dict[str, Any]:
        """The prediction of every domain at the average inputs of all rows, as :meth:`coefficient_columns`."""
        check_is_fitted(self, "coef_")
        shift = self._scaling.shift
        middle = self.intercept_ + self.coef_ @ shift
        own, population = self.own_intercept_ + self.own_coef_ @ shift, self.population_coef_ @ shift
        columns: dict[str, Any] = {"domain": list(self.domains_), "own": own}
        columns |= {"population": np.full(len(own), population + self.population_intercept_), "estimate": middle}
        if self._spreads is not None:
            half = TWO_SIDED * np.sqrt(self._noise()) * self._spreads[:, -1]
            columns |= {"low": middle - half, "high": middle + half}
        return columns

    @property
    def compared_(self) -> tuple[tuple[Comparison, ...], ...]:
        """For each domain: leave-one-out errors of its own rows alone, of all rows pooled, and of this model."""
        return self._compared

    def left_out_columns(self, name: str) -> dict[str, Floats] | None:
        """Targets of a domain's rows, predictions of fits without each row, and half the widths of 90% intervals.

        None for a model from a file, which holds no rows. Rows that cannot be left out are missing.
        """
        check_is_fitted(self, "coef_")
        if self._fits is None:
            return None
        place = self.domains_.index(name)
        residuals, scores = self._fits.residuals[place], self._scores[place]
        known = np.isfinite(residuals) & np.isfinite(scores)
        rows = fits.kept_rows(self).distinct(jointly=True)[0].rows[name]
        actual, left = rows.targets[known, self._output], residuals[known]
        # Residuals are scores times the spread, and intervals a quantile of the scores times the same.
        spread = np.divide(np.abs(left), scores[known], out=np.zeros(len(left)), where=scores[known] > 0)
        return {"actual": actual, "predicted": actual - left, "half": self._score_quantile(place, 0.9) * spread}

    def _noise(self) -> Floats:
        return noise_of(self._scores)

    def _apart(self) -> Floats:
        """How far coefficients, with the intercept, lie from the population's: in typical distances over domains."""
        apart = self.coef_ - self.population_coef_
        level = apart @ self._scaling.shift + self.intercept_ - self.population_intercept_
        size = np.sqrt(np.sum((apart * self._scaling.scale) ** 2, axis=1) + level**2)
        typical = float(np.median(size))
        return size / typical if typical > 0 else np.zeros(len(size))

    def _learn(self, kept: fits.KeptRows, stream: StreamedSources | None = None) -> None:
        with one_thread_if_small(part.X for part in kept.rows.values()):
            self._take(learn_every(kept, self, column_names(self), stream))

    def _take(self, learned: Learned, output: int = 0) -> None:
        """Store one output of what was learned."""
        found, maps, heads, given = learned.fits[output], learned.maps, learned.heads, learned.prepared.scaling
        scaling = Scaling(given.shift, given.scale, np.reshape(given.target_shift, -1)[output])
        self._scaling, self.domains_ = scaling, learned.prepared.names
        self._made_map = None if maps is None else maps.feature_map
        self._folds = np.full(len(self.domains_), -1) if maps is None else maps.folds
        self._low, self._high = learned.low, learned.high
        self.n_rows_ = learned.counts
        self.coef_, self.intercept_ = _in_units(scaling, found.coef, found.intercept)
        population = _in_units(scaling, found.population[None], np.array([found.population_level]))
        self.population_coef_, self.population_intercept_ = population[0][0], float(population[1][0])
        count, width = found.coef.shape
        own = heads.coef.reshape(count, width, -1)[..., output], heads.intercept.reshape(count, -1)[:, output]
        self.own_coef_, self.own_intercept_ = _in_units(scaling, *own)
        self.weights_, self.n_validation_sources_ = found.weights, found.n_tasks
        self._posteriors, self._scores = tuple(found.posteriors), tuple(found.scores)
        self._population_scores = np.abs(np.concatenate(found.without))
        self._compared, self._gains = tuple(found.compared), tuple(found.gains)
        self._spreads = found.spreads if np.any(found.spreads) else None
        self.notes_ = learned.notes
        self._kept, self._fits, self._output = learned.kept, found, output

    def _check_loaded(self, width: int) -> None:
        count = len(self.domains_)
        if self._spreads is not None:
            check_array("_spreads", self._spreads, (count, width + 1), least=0.0)
        for name, shape in (("coef_", (width,)), ("intercept_", ())):
            check_array(name, getattr(self, name), (count, *shape))
            check_array(f"own_{name}", getattr(self, f"own_{name}"), (count, *shape))
            check_array(f"population_{name}", np.asarray(getattr(self, f"population_{name}")), shape)

    def _predictions(self, features: Floats, places: Integers) -> Floats:
        coef, intercept, _ = self._exported()
        return np.einsum("ij,ij->i", features, coef[places]) + intercept[places]

    def _exported(self) -> tuple[Floats, Floats, dict[str, Any]]:
        coef = np.vstack([self.coef_, self.population_coef_])
        return coef, np.append(self.intercept_, self.population_intercept_), {}

    def _half_width(self, place: int, features: Floats, coverage: float) -> Floats:
        if place < 0:
            quantile = _quantile(self._population_scores, np.ones(len(self._population_scores)), coverage)
            return np.full(len(features), quantile)
        spread = self._posteriors[place].spread(self._scaling.features(features))
        return self._score_quantile(place, coverage) * np.sqrt(spread)

    def _score_quantile(self, place: int, coverage: float) -> float:
        """The quantile of the left-out scores of a domain, with those of all domains as a few more rows."""
        own, every = self._scores[place], np.concatenate(self._scores)
        weight = np.concatenate([np.ones(len(own)), np.full(len(every), SHARED_ROWS / len(every))])
        return _quantile(np.concatenate([own, every]), weight, coverage)


def summary_of(models: Sequence[MultiDomainRegressor]) -> dict[str, Any]:
    """The columns of :meth:`MultiDomainRegressor.summary_columns`, averaged over models of several outputs."""
    first = models[0]
    squares = [[[each.loo_error for each in found] for found in model._compared] for model in models]
    errors, weights = np.sqrt(np.mean(squares, axis=0)), np.mean([model.weights_ for model in models], axis=0)
    named = []
    for row in weights - np.diag(np.diagonal(weights)):
        order = np.argsort(-row, kind="stable")[:MOST_NAMED]
        named.append(", ".join(f"{first.domains_[k]} {row[k]:.0%}" for k in order if row[k] >= NAMED_WEIGHT))
    gains = np.mean([[(each.reduction, each.low, each.high) for each in model._gains] for model in models], axis=0)
    columns: dict[str, Any] = {"domain": list(first.domains_), "rows": first.n_rows_}
    columns |= {"error": errors[:, 2], "error_own_rows": errors[:, 0], "error_pooled": errors[:, 1]}
    for place, name in enumerate(("own_rows", "pooled")):
        for end in ("", "_low", "_high"):
            ratios = [[getattr(found[place], f"ratio{end}") for found in model._compared] for model in models]
            columns[f"ratio_{name}{end}"] = np.mean(ratios, axis=0)
    columns |= dict(zip(("gain", "gain_low", "gain_high"), gains.T))
    apart = np.mean([model._apart() for model in models], axis=0)
    return {**columns, "own_share": np.diagonal(weights), "borrows_from": named, "apart": apart}


def _by_place(places: Integers) -> Iterator[tuple[int, Integers]]:
    """The rows of each place."""
    order = np.argsort(places, kind="stable")
    starts = np.flatnonzero(np.diff(places[order], prepend=places[order[:1]] - 1)) if len(order) else np.empty(0, int)
    for rows in np.split(order, starts[1:]):
        if len(rows):
            yield int(places[rows[0]]), rows


def _in_units(scaling: Scaling, coef: Floats, intercept: Floats) -> tuple[Floats, Floats]:
    """Coefficients (N, p) and intercepts (N,) in the units of the features and targets."""
    found, level = scaling.to_units(coef, intercept)
    return np.asarray(found), np.reshape(level, -1)


def _quantile(scores: Floats, weight: Floats, coverage: float) -> float:
    """The weighted quantile that covers one more score with the given probability; scores that are infinite go."""
    known = np.isfinite(scores)
    if not known.any():
        raise ParameterError("leave-one-out cannot judge this fit: no row can be left out; pass more rows")
    order = np.argsort(scores[known], kind="stable")
    total = np.cumsum(weight[known][order])
    rank = min(coverage * (total[-1] + 1.0), total[-1])
    return float(scores[known][order][int(np.searchsorted(total, rank - 1e-9))])


def _row_notes(rows: Mapping[str, Rows], counts: Integers) -> tuple[str, ...]:
    """Notes on domains with a single row or with equal targets; ``counts`` are the numbers of all rows."""
    found = []
    whole = {name: part for (name, part), count in zip(rows.items(), counts.tolist()) if len(part.y) == count}
    if single := [name for name, part in whole.items() if len(part.y) == 1]:
        have = "domain has" if len(single) == 1 else "domains have"
        found.append(f"{len(single)} {have} one row only: {_some(single)}; their models depend on the other domains")
    if same := [name for name, part in whole.items() if len(part.y) > 1 and np.all(part.y == part.y[0])]:
        found.append(f"every target is the same in {len(same)} of the domains: {_some(same)}")
    return tuple(found)


def _some(names: Sequence[str]) -> str:
    return ", ".join([*names[:3], *(["..."] if len(names) > 3 else [])])
