"""The regressor that tunes itself: :func:`mixtune.choice.choose` chooses and averages its candidates.

What a choice consists of and the log scale of targets come first, then the estimator, then the fit: from prepared rows
to the choice, and from choices to coefficients, weights and candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mixtune._messages import Note, Renamed
from mixtune._registry import storable
from mixtune.arrays import Floats, Integers, factorised_on, one_thread_if_small, torch_device
from mixtune.checks import check_whole
from mixtune.choice import (
    Choice,
    Comparison,
    FeatureBlock,
    LocalSpread,
    MapAverage,
    Prior,
    Process,
    Sample,
    TransferGain,
    by_content,
    choose,
    choose_maps,
    choose_processes,
    compare,
    learn_local_spread,
    sample_sources,
    taught_inputs,
)
from mixtune.data import frame_of
from mixtune.errors import DataError, ParameterError
from mixtune.estimators import _fits as fits
from mixtune.estimators._base import (
    LinearTransferRegressor,
    Settings,
    Shown,
    check_both,
    check_source,
    column_names,
    transport_distances,
)
from mixtune.estimators._comparison import ComparedByFolds
from mixtune.estimators._inputs import (
    Sources,
    apart_notes,
    as_sources,
    encoded_sources,
    map_after_encoding,
    read_sources,
)
from mixtune.estimators._maps import Maps, input_range, made_maps, process_maps
from mixtune.estimators._saving import savable
from mixtune.moments import LeaveOneOut, Moments, Origin, Rows, check_target_size, chunks, roots_of
from mixtune.regret import RegretProblem, RegretSolution, solve
from mixtune.weights import DomainWeights, TransportWeights

#: Transport distances are computed only up to this many pairs of a focal row and any row; beyond, they take minutes.
MAX_PAIRS = 10**8
#: Fewer focal rows than this are stated.
FEW = 5
HORIZON = 10
#: Up to this many inputs, errors may vary with each of them.
MOST_SPREAD_INPUTS = 60
#: Rows of sources at which the posterior spread is looked at.
SPREAD_ROWS = 200
TARGET_SCALES = (fits.AUTO, "identity", "log")
#: Logarithms of targets are tried where their 95% quantile is at least so many times their 5% quantile.
LOG_SPAN = 10.0
#: Where scales of targets are compared, the tests of one validated source count as this many focal rows.
TEST_ROWS = 10.0
#: Largest logarithm of a prediction; larger ones overflow in float64.
LARGEST_LOG = 700.0
#: Logarithms of predictions leave the range of the targets' logarithms by at most this part of it: a straight line that
#: goes on beyond the rows is off by a factor, not by a difference.
LOG_MARGIN = 0.05
#: Sources of few rows say little: up to the first number of rows their weight counts as n/(n + 10), from the second on
#: in full, and smoothly in between.
TINY_SOURCE, SMALL_SOURCE, NOISE_ROWS = 2.0, 10.0, 10.0
#: Most sources whose removal is worked out: the heaviest.
MOST_REMOVALS = 100
#: Candidates with a smaller share are left out of the list.
SMALLEST = 1e-4


@storable
@dataclass(frozen=True)
class LogScale:
    """Transforms logarithms back to targets: predictions are ``smearing * exp(logarithm)``.

    The exponential of a mean of logarithms is too small for the mean of the targets; Duan's smearing factor, the mean
    of the exponentials of left-out residuals, corrects it (Duan, Smearing estimate, J. Am. Stat. Assoc. 78, 1983).
    Logarithms are kept between ``low`` and ``high``, which files of earlier versions do not have.
    """

    smearing: float = 1.0
    low: float = -LARGEST_LOG
    high: float = LARGEST_LOG

    def __post_init__(self) -> None:
        if not (isinstance(self.smearing, float) and 0 < self.smearing < np.inf):
            raise DataError(f"the smearing factor must be a positive number; got {self.smearing!r}")
        if not -LARGEST_LOG <= self.low <= self.high <= LARGEST_LOG:
            raise DataError(f"predictions of logarithms must have a range; got {self.low!r} to {self.high!r}")

    @classmethod
    def near(cls, targets: Sequence[Floats]) -> LogScale:
        """For predictions in about the range of these logarithms."""
        low, high = min(float(part.min()) for part in targets), max(float(part.max()) for part in targets)
        margin = LOG_MARGIN * (high - low)
        return cls(1.0, max(low - margin, -LARGEST_LOG), min(high + margin, LARGEST_LOG))

    def smeared(self, left_out: Floats, weight: Floats) -> LogScale:
        """With the factor of these left-out residuals of logarithms; rows that cannot be left out do not count."""
        known = np.isfinite(left_out)
        if not known.any():
            return self
        factors = np.exp(np.minimum(left_out[known], LARGEST_LOG))
        return replace(self, smearing=float(np.average(factors, weights=weight[known])))

    def predictions(self, logs: Floats) -> Floats:
        """Predictions of the mean of the targets, from predictions of logarithms."""
        return self.smearing * np.exp(np.clip(logs, self.low, self.high))

    def interval(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Intervals of targets, from intervals of logarithms around predictions of these."""
        middle = (low + high) / 2
        moved = np.clip(middle, self.low, self.high) - middle
        return np.exp(np.minimum(low + moved, LARGEST_LOG)), np.exp(np.minimum(high + moved, LARGEST_LOG))

    def std(self, logs: Floats, std: Floats) -> Floats:
        """Standard deviations of log-normal targets, from those of logarithms."""
        return self.predictions(logs) * np.sqrt(np.expm1(np.minimum(std, 5.0) ** 2))


@dataclass(frozen=True)
class LogTargets:
    """Logarithms of streamed targets."""

    def __call__(self, y: Floats) -> Floats:
        values = np.asarray(y, dtype=np.float64)
        if np.any(values <= 0):
            raise DataError("targets on the log scale must be positive in every row", code="not-positive")
        return np.log(values)


def left_out_targets(logs: Floats, left_out: Floats, weight: Floats, scale: LogScale = LogScale()) -> Floats:
    """Residuals of left-out targets, from those of their logarithms, which also give the factor of the way back."""
    back = scale.smeared(left_out, weight)
    known = np.isfinite(left_out)
    found = np.full(np.shape(logs), np.inf)
    found[known] = np.exp(logs[known]) - back.predictions(logs[known] - left_out[known])
    return found


def log_span(rows: Mapping[str, Rows]) -> float:
    """The 95% over the 5% quantile of all targets; 0 where there are several outputs, or some are not positive."""
    parts = [part.targets for part in rows.values()]
    if parts[0].shape[1] > 1 or any(np.min(part) <= 0 for part in parts):
        return 0.0
    low, high = np.quantile(np.concatenate(parts), [0.05, 0.95])
    return float(high / low)


def logged(rows: Mapping[str, Rows]) -> dict[str, Rows]:
    """The same rows with logarithms of the targets. Errors are in units of targets, whose squares must be numbers."""
    check_target_size(np.array([max(float(np.max(part.y)) for part in rows.values())]))
    return {name: Rows(part.X, np.log(part.y), part.sample_weight) for name, part in rows.items()}


def log_is_better(plain: Choice, logs: Choice, targets: Floats, levels: tuple[float, float]) -> bool:
    """Whether left-out targets and tests are likelier with normal errors of their logarithms, and have less error.

    The likelihoods are compared as by Box and Cox (An analysis of transformations, J. R. Stat. Soc. B 26, 1964): errors
    of logarithms are in units of the targets' geometric mean. Predictions are of the mean, however, which may be far
    off for the largest targets although their logarithms are close: so squared errors of targets must be smaller, too.

    Parameters
    ----------
    plain, logs : Choice
        The choices of fits to targets and to their logarithms.
    targets : array (n,)
        Targets of the focal rows.
    levels : (float, float)
        The levels that the targets of both fits are centred at.
    """
    weight = logs.focal.known.weight
    evidence = float(weight.sum()) * _evidence(plain.left_out, logs.left_out, np.log(targets), weight)
    before: dict[int, Any] = {task.source: task for task in plain.tasks}
    tasks: Sequence[Any] = logs.tasks
    for task in tasks:
        # Both fits are tested on the same rows, unless ties between rows were broken by the targets.
        if (same := before.get(task.source)) is not None and len(same.weight) == len(task.weight):
            values = task.targets * logs.size + levels[1]
            parts = same.residuals[0] * plain.size, task.residuals[0] * logs.size
            evidence += TEST_ROWS / len(logs.tasks) * logs.n_plays * _evidence(*parts, values, task.weight)
    return bool(np.all(evidence > 0))


def _evidence(plain: Floats, left: Floats, logs: Floats, weight: Floats) -> Floats:
    """What residuals of logarithms are better by than residuals of targets.

    First the mean log likelihood of the rows, then the logarithm of the root mean squared error of targets.
    """
    usable = np.isfinite(plain) & np.isfinite(left)
    if not usable.any():
        return np.zeros(2)
    share = weight[usable] / weight[usable].sum()
    residuals = plain[usable], left[usable], left_out_targets(logs, left, weight)[usable]
    errors = [float(share @ part**2) for part in residuals]
    if min(errors) <= 0:  # one of them is exact
        return np.sign(errors[0] - np.array(errors[1:]))
    return 0.5 * np.log(errors[0] / np.array(errors[1:])) - np.array([share @ logs[usable], 0.0])


@dataclass(frozen=True, eq=False)
class Candidate:
    """One of the candidate fits of the average.

    Attributes
    ----------
    family : str
        Of kernels over all domains: "shared" (the function that domains share, and deviations from it), "own curves"
        (own rows alone, with that kernel), "focal only" or, without sources, "focal only curves". Of other maps:
        "focal only", "alike", "nearest", "similar", "groups", "stacked" or "pooled";
        "similar" and "pooled" also with ", one level": one intercept for all sources.
    settings : dict
        The settings that distinguish it from other candidates of its family.
    effective_ridge, loo_error, share : float
    validation_error : float or None
        Mean squared error in cross-domain validation, relative to the best candidate of each validation task.
    weights : array (N,)
        Weights of the domains, the focal one first.
    """

    family: str
    settings: dict[str, Any]
    effective_ridge: float
    loo_error: float
    validation_error: float | None
    play_error = Renamed("validation_error")
    share: float
    weights: Floats


@dataclass(frozen=True)
class MapShare:
    """One of the feature maps of the average.

    Attributes
    ----------
    name : str
        "kernel", or "kernel 1" and "kernel 2", which were learned from other rows; "inputs", "splines", "Fourier",
        "learned" or "boosted"; "all" if a map was given.
    share : float
        Its weight in the average.
    n_features : int
    loo_error : float
        Leave-one-out mean squared error of its own average on the focal rows.
    validation_error : float or None
        Mean squared error of its average over the validation tasks, relative to the best map of each.
    """

    name: str
    share: float
    n_features: int
    loo_error: float
    validation_error: float | None
    play_error = Renamed("validation_error")


@storable
@dataclass(frozen=True, eq=False)
class RidgePath:
    """Leave-one-out error along effective ridges for one prior, and the place of the largest share."""

    ridges: Floats
    loo_errors: Floats
    chosen: int

    def to_frame(self) -> Any:
        """One row for each ridge, as a pandas frame."""
        places = np.arange(len(self.ridges))
        return frame_of({"ridge": self.ridges, "loo_error": self.loo_errors, "chosen": places == self.chosen})


@storable
@dataclass(frozen=True)
class Removal:
    """The effect of leaving one source out.

    Attributes
    ----------
    name : str
    loo_error : float
        Leave-one-out mean squared error without it.
    change : float
        Relative change of its root; positive means that the source helps.
    shift : float
        Root mean square change of the predictions of the focal rows.
    change_low, change_high : float or None
        The 95% interval of the change over the focal rows; None in models that were saved before there was one.
    """

    name: str
    loo_error: float
    change: float
    shift: float
    change_low: float | None = None
    change_high: float | None = None


for _cls in (Candidate, MapShare):
    storable(_cls, former={"play_error": "validation_error"})
storable(Comparison)
storable(TransferGain, former={"from_plays": "from_validation"})


@dataclass(eq=False, repr=False)
class TunedSettings(Settings):
    """Parameters shared by the self-tuned regressor and the self-tuned classifier."""

    feature_map: Any = fits.AUTO
    _: KW_ONLY
    clamp: bool = True
    seed: int = 0


@dataclass(eq=False, repr=False)
class TunedRegressorSettings(TunedSettings):
    """Parameters of the self-tuned regressor."""

    _: KW_ONLY
    target_scale: str = fits.AUTO


@savable
class RegretOptimalRegressorCV(TunedRegressorSettings, ComparedByFolds, Shown, LinearTransferRegressor):
    """Transfer learning without settings: weights, metric and effective ridge are chosen from the data.

    By default the prediction averages candidates of one Gaussian process over all domains: a shared function, whose
    kernel the rows of all domains teach, and deviations of every domain from it. Candidates differ in how much the
    focal domain may deviate, whether its level and its scale are its own, and whether the sources count at all. Each is
    a ridge fit to the focal rows around a prior learned from the sources, that is, the regret-optimal fine-tuning of a
    pre-trained model at one effective ridge. The shares of the average come from cross-domain validation, in which each
    source takes the focal role in turn, and from leave-one-out on the focal rows, which decides where the focal domain
    is unlike the sources. Fits to the focal rows alone are always among the candidates.

    With ``feature_map=None``, more than 60 columns, more than 1,500 focal rows, targets of two values, or streamed
    sources, the candidates are ridge fits in the features of frozen maps instead.

    Streamed sources enter by the moments of all their rows. Cross-domain validation, and maps that are made from the
    rows, use a sample of them (``StreamedSources(sample_rows=...)``). Where the sums exceed the memory limit of the
    sources, the whole choice uses the sample; ``notes_`` says so.

    Parameters
    ----------
    feature_map : FeatureMap, "auto" or None
        phi. By default features of the kernel that all domains teach are made from the rows; where these are too many
        or too wide, the model averages over several maps: the inputs themselves, splines of every column with columns
        learned from the sources, and random Fourier features (:attr:`maps_`). With None the model is linear in the
        inputs; a map that is passed is used without change.
    standardise, fit_intercept : bool
        As for :class:`RegretOptimalRegressor`.
    clamp : bool
        With sources, clip features that lie far outside the range of all training rows (by more than a quarter of the
        range, with a wider margin for few rows) before predicting, so that an extreme input has a bounded effect.
    target_scale : {"auto", "identity", "log"}
        The scale on which the model is linear. "auto" tries logarithms where ``feature_map`` is "auto" too and the
        targets are positive and span a factor of ten or more (5% to 95% quantile). It chooses logarithms if left-out
        rows and the test rows of cross-domain validation have a larger likelihood and a smaller squared error with
        them, with splines of the columns. Predictions estimate the mean on the original scale of the targets; on the
        log scale they stay close to the range of all targets.
    focal_name : str
        The name of the focal domain.
    seed : int
        Seed of the draws of rows and sources for cross-domain validation.
    device : str
        Where features are computed: "cpu" for NumPy, or "cuda" ("cuda:1" is the second) for PyTorch on a CUDA device,
        block by block, as for :class:`RegretOptimalRegressor`. Sums, local models, and factorisations of matrices of
        256 rows or more are computed there too, all else in NumPy. ``predict`` falls back to NumPy if the device is
        missing.

    Attributes
    ----------
    coef_, intercept_ : arrays (p,) or (p, D), and scalar or (D,)
        Averages over the candidates, for the features of ``feature_map_``; with ``feature_map=None`` these are the
        columns.
    weights_ : DomainWeights
        The share of the prediction that each domain provides. The focal domain's share is the part of the fitted
        degrees of freedom that its own rows supply; the rest is divided among the sources in proportion to their
        contributions to the prior mean. Negative contributions count as zero, and those of a source of n < 10 rows are
        reduced (to n/(n + 10) for one or two rows, rising smoothly). ``scores`` are the mean squared errors of the
        domains' own models on the focal rows.
    effective_ridge_ : float
        The geometric mean of the effective ridges, on standardised features.
    target_scale_ : {"identity", "log"}
        The scale of the fit. With "log", ``coef_``, ``heads_``, ``candidates_``, ``removal_effects`` and ``solution_``
        refer to logarithms; errors in ``loo_error_``, ``compared_`` and ``weights_`` refer to the targets.
    feature_map_ : FeatureMap or None
        The map of the fit; ``coef_`` has one coefficient for each of its features.
    maps_ : tuple of MapShare
        The feature maps of the average and the share of each, largest first (of the first output).
    candidates_ : tuple of Candidate
        The candidates of the average, largest share first (of the first output).
    solution_ : RegretSolution
        Trajectory, energy and regret of the candidate with the largest share (first output), in the metric of its
        prior and relative to its prior mean.
    ridge_path_ : RidgePath
        Leave-one-out error against the effective ridge, for the prior with the largest share.
    loo_error_ : float
        Leave-one-out mean squared error on the focal rows, with shares and weights fixed.
    compared_ : tuple of Comparison
        Mean squared errors on focal rows that the fits have not seen, of this model, of the same model with own rows
        alone and with all rows pooled, of boosted trees, and of the mean of the targets, as in ``comparison_``.
    comparison_ : tuple of Compared
        The same methods by five-fold cross-validation, with more measures; made when this is first accessed.
    transfer_gain_ : TransferGain
        The relative reduction of the error compared with own rows alone, as in ``comparison_``.
    distances_ : TransportWeights or None
        1-Wasserstein distances to the focal rows with the sampling floor; computed on first access.
    heads_, head_intercepts_ : arrays (N, p[, D]) and (N[, D])
        Local ridge models, with ridge 1 on standardised features.
    n_validation_sources_ : int
        Number of sources that took the focal role in cross-domain validation.
    notes_ : tuple of str
        Fallbacks that were used, such as priors learned from a sample of more than 512 sources.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> draw = lambda n, slope: (x := rng.standard_normal((n, 1)), slope * x[:, 0] + rng.standard_normal(n))
    >>> sources = {"a": draw(80, 2.0), "b": draw(80, 2.1), "c": draw(80, 1.9), "reversed": draw(80, -2.0)}
    >>> X, y = draw(12, 2.0)
    >>> model = RegretOptimalRegressorCV().fit(X, y, sources=sources)
    >>> weights = model.weights_.as_dict()
    >>> low, high = model.predict([[0.0], [1.0]])
    >>> bool(abs(high - low - 2.0) < 0.3), weights["reversed"] < min(weights["a"], weights["b"], weights["c"])
    (True, True)
    """

    _stored_attributes: ClassVar[tuple[str, ...]] = (
        *("weights_", "effective_ridge_", "candidates_", "solution_", "ridge_path_"),
        *("n_validation_sources_", "notes_", "maps_", "_distances", "_removals", "_low", "_high", "_log_scale"),
        "_from_validation",
    )
    _stored_types: ClassVar[dict[str, Any]] = {
        **LinearTransferRegressor._stored_types,
        "n_validation_sources_": int,
        "_removals": tuple | None,
        "_log_scale": LogScale | None,
    }

    _makes_maps: ClassVar[bool] = True

    weights_: DomainWeights
    effective_ridge_: float
    candidates_: tuple[Candidate, ...]
    ridge_path_: RidgePath
    n_validation_sources_: int
    n_plays_ = Renamed("n_validation_sources_")
    notes_: tuple[str, ...]
    _solution: RegretSolution | None
    maps_: tuple[MapShare, ...]
    #: The way back to the targets; None where the model is about the targets themselves. Not in files of version 0.1.
    _log_scale: ClassVar[Any] = None
    _made_map: Any
    #: By what part the error of validation tasks is below that of own rows alone; not in files of version 0.1.
    _from_validation: float | None = None
    _distances: TransportWeights | None
    _removals: tuple[Removal, ...] | None
    _comparable: fits.Prepared | None = None
    _choices: tuple[MapAverage, ...] | None = None
    _places: Integers
    #: Not stored in files.
    _kept: fits.KeptRows | None = None
    _low: Floats | None
    _high: Floats | None

    @property
    def solution_(self) -> RegretSolution:
        """Regret-optimal fine-tuning of the candidate with the largest share (first output); solved on first access."""
        check_is_fitted(self, "coef_")
        if self._solution is None:
            assert self._choices is not None
            first = self._choices[0].largest
            self._solution = solution_of(first.prior, first.focal, first.size)
        return self._solution

    @property
    def distances_(self) -> TransportWeights | None:
        """Transport distances to the focal rows with the sampling floor; None without sources or with too many rows."""
        check_is_fitted(self, "coef_")
        if self._distances is None and self._comparable is not None:
            rows = [len(part.X) for part in self._comparable.mapped]
            if len(rows) > 1 and rows[0] * sum(rows) <= MAX_PAIRS:
                self._distances = transport_distances(self._comparable, standardise=self.standardise)
            self._comparable = None
        return self._distances

    def partial_fit(self, X: Any = None, y: Any = None, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Add focal rows, rows of known sources, or new sources, and choose again from all rows.

        The result equals that of ``fit`` with all rows. On an unfitted estimator this is ``fit``. A model loaded from a
        file holds no rows and cannot be updated.
        """
        if not hasattr(self, "coef_"):
            return self.fit(X, y, sample_weight, sources=sources)
        self._check_parameters()
        check_both(X, y)
        kept, focal = fits.kept_rows(self), self.domain_names_[0]
        features, own = self._make_features(), kept.rows[focal]
        if X is not None:
            added = self._read_focal(X, y, sample_weight)
            if added.y.shape[1:] != own.y.shape[1:]:
                raise ParameterError(f"y has shape {added.y.shape}, the fit had {own.y.shape}; pass the same outputs")
            kept = kept.joined({focal: added}, features)
        given = encoded_sources(self, as_sources(sources))
        streamed = self._read_streams(kept.rows[focal], given, None if kept.sums is None else kept.sums.origin)
        new = read_sources(given, own, column_names(self), focal)
        self._learn_rows(kept.joined(new, features, streamed, fits.sample_size(given)))
        return self

    def forget(self, name: str) -> Self:
        """Remove a source exactly: the result is that of ``fit`` without it."""
        check_is_fitted(self, "coef_")
        kept = fits.kept_rows(self)
        check_source(name, self.domain_names_)
        self._learn_rows(kept.without(name))
        return self

    @property
    def _inputs(self) -> dict[str, Rows] | None:
        """The rows of the fit, of streamed sources a sample; None for a model from a file."""
        return None if self._kept is None else self._kept.rows

    def _learn(self, focal: Rows, sources: Any) -> None:
        sums = self._read_streams(focal, sources)
        others = read_sources(sources, focal, column_names(self), self.focal_name)
        later = None if self._knows_features() else sources
        self._learn_rows(fits.KeptRows({self.focal_name: focal, **others}, sums, fits.sample_size(sources)), later)

    def _knows_features(self) -> bool:
        """Whether features and targets of the fit are known before any row is."""
        return not fits.is_auto(self.feature_map) and self.target_scale != "log"

    def _read_streams(
        self, focal: Rows, sources: Sources | None, origin: Origin | None = None
    ) -> fits.StreamSums | None:
        """Sums of all rows of streamed sources, and their samples in the same pass, if features are known already."""
        if sources is None or not sources.streams or not self._knows_features():
            return None
        return fits.StreamSums.of(sources.streams, focal, self._make_features(), origin)

    def _learn_rows(self, kept: fits.KeptRows, sources: Sources | None = None) -> None:
        """Learn on the scale of the targets, of their logarithms, or both, and keep the better.

        Sums of features that are made here are read from the ``sources``.
        """
        distinct, places = kept.distinct()
        rows, sums = distinct.rows, kept.sums
        tried = fits.is_auto(self.target_scale) and fits.is_auto(self.feature_map)
        span = log_span(rows) if tried or self.target_scale == "log" else 0.0
        if self.target_scale == "log" and not span:
            raise DataError('target_scale="log" needs a single target that is positive in every row')
        tried &= span >= LOG_SPAN
        # Streams may be large, even if their samples are small.
        with nullcontext() if kept.sampled else one_thread_if_small(part.X for part in rows.values()):
            log = self.target_scale == "log" or (tried and self._prefers_logs(rows))
            notes: tuple[str, ...] = ()
            if tried and log:
                notes = (
                    f"the targets are positive and span a factor of {span:.3g}; they are modelled on the log scale",
                )
            elif tried:
                notes = ("targets are positive, but the log scale fits them less well; predictions may be negative",)
            try:
                prepared, solved, maps = self._fitted(
                    logged(rows) if log else rows, None if log else sums, sources, log=log
                )
            except DataError as error:
                # Among all rows of a stream there may be targets that are not positive, unlike in its sample.
                if error.code != "not-positive" or not tried:
                    raise
                notes, (prepared, solved, maps) = (), self._fitted(rows, sums, sources)
        what = "the choice was learned"
        if prepared.state is not None:
            what = "feature maps were made and " * fits.is_auto(self.feature_map) + "cross-domain validation was done"
        self._made_map, made = (None, ()) if maps is None else (maps.feature_map, maps.notes)
        notes = made + fits.sample_note(kept.sampled, what) + notes + apart_notes(tuple(kept.rows.values()))
        solved.attributes["notes_"] += notes + fits.repeats_note(distinct, places)
        own = places[self.focal_name]
        if len(own) > len(rows[self.focal_name].y):
            solved = solved.repeated(own)
        self._kept = kept
        self._store(solved, prepared.names, prepared.scaling)

    def _prefers_logs(self, rows: dict[str, Rows]) -> bool:
        """Whether the log scale suits the splines of the columns better: one cheap map is enough to tell."""
        levels, averages = [], []
        for part in (rows, logged(rows)):
            prepared, _ = self._prepared(part, None, None, plain=True)
            levels.append(float(np.reshape(prepared.scaling.target_shift, -1)[0]))
            averages.append(_plain_choice(prepared, seed=self.seed))
        targets = next(iter(rows.values())).targets[:, 0]
        return log_is_better(averages[0], averages[1], targets, (levels[0], levels[1]))

    def _fitted(
        self, rows: dict[str, Rows], sums: fits.StreamSums | None, sources: Sources | None, *, log: bool = False
    ) -> tuple[fits.Prepared, fits.Solved, Maps | None]:
        """A fit on one scale of the targets: rows, result, and the maps that were made for it."""
        prepared, maps = self._prepared(rows, sums, sources, log=log)
        return prepared, self._solve(prepared, maps, log=log), maps

    def _prepared(
        self,
        rows: dict[str, Rows],
        sums: fits.StreamSums | None,
        sources: Sources | None,
        *,
        log: bool = False,
        plain: bool = False,
    ) -> tuple[fits.Prepared, Maps | None]:
        """Features of validated rows, the focal ones first; with "auto", of maps made from these rows."""
        features = there = super()._make_features()
        whole = sums is None and (sources is None or not sources.streams)
        maps = process_maps(rows, self) if whole and not plain else None
        maps = made_maps(rows, self, plain=plain) if maps is None else maps
        if maps is not None:
            features, there = (replace(features, feature_map=each) for each in (maps.feature_map, maps.by_domain(rows)))
        if sums is None and sources is not None and sources.streams:
            streams = [stream.coded(LogTargets()) for stream in sources.streams] if log else sources.streams
            sums = fits.StreamSums.of(streams, rows[self.focal_name], there)
        # Features of a process are in units of their own.
        standardise = self.standardise and (maps is None or not maps.processes)
        options: dict[str, Any] = {"standardise": standardise, "fit_intercept": self.fit_intercept}
        return fits.prepare(rows, features, **options, mapped=None if maps is None else maps.mapped, sums=sums), maps

    def _solve(self, prepared: fits.Prepared, maps: Maps | None = None, *, log: bool = False) -> fits.Solved:
        # Maps that were made from the rows clip their inputs themselves.
        blocks, clamp = (None, self.clamp) if maps is None else (maps.blocks, False)
        processes = () if maps is None else maps.processes
        return tuned_fit(prepared, blocks, processes, seed=self.seed, device=self.device, clamp=clamp, log=log)

    @property
    def target_scale_(self) -> str:
        """The scale of the fit: "identity" or "log"."""
        check_is_fitted(self, "coef_")
        return "identity" if self._log_scale is None else "log"

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictions of the mean for rows of the focal domain, and standard deviations if asked for."""
        if self._log_scale is None:
            return super().predict(X, return_std)
        if not return_std:
            return self._log_scale.predictions(super().predict(X))
        logs, std = super().predict(X, return_std=True)
        return self._log_scale.predictions(logs), self._log_scale.std(logs, std)

    def predict_interval(self, X: Any, *, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """Intervals that cover new focal targets with about the given probability.

        Half-widths are a quantile of left-out residuals, divided by the local spread, times the local spread of the new
        row: the posterior spread, and how errors vary with the inputs and the prediction, which left-out rows and
        validation tasks show. To few rows, errors of validation tasks are added.
        """
        low, high = super().predict_interval(X, coverage=coverage)
        return (low, high) if self._log_scale is None else self._log_scale.interval(low, high)

    def predict_quantiles(self, X: Any, *, levels: Sequence[float] = fits.LEVELS) -> Floats:
        """Quantiles of new focal targets, (n, L) or (n, D, L): ends of intervals as of :meth:`predict_interval`.

        That of level 0.5 is the prediction; with logarithms of targets, the median.
        """
        found = super().predict_quantiles(X, levels=levels)
        if self._log_scale is None:
            return found
        middle = super().predict_quantiles(X, levels=(0.5,))
        return self._log_scale.interval(2.0 * middle - found, found)[1]

    @property
    def loo_error_(self) -> float:
        """Leave-one-out mean squared error on the focal rows, of the targets themselves."""
        check_is_fitted(self, "coef_")
        if self._log_scale is None or not np.isfinite(super().loo_error_):
            return super().loo_error_
        targets, weight = self._left_out_targets
        squares = np.mean((targets - self.loo_predictions_.reshape(targets.shape)) ** 2, axis=1)
        return float(squares @ weight / weight.sum())

    @property
    def loo_predictions_(self) -> Floats:
        """Prediction of each focal row (of positive sample weight) by the fit without it, (n,) or (n, D)."""
        found = super().loo_predictions_
        return found if self._log_scale is None else self._log_scale.predictions(found)

    @property
    def transfer_gain_(self) -> TransferGain:
        """The relative reduction of the error compared with own rows alone."""
        check_is_fitted(self, "coef_")
        return self._gain(self._from_validation)

    @property
    def _left_out_targets(self) -> tuple[Floats, Floats]:
        """Targets (n, D) of the focal rows, and their weights."""
        found = self._uncertainty.left_out
        targets = found.predictions + found.residuals + np.reshape(self._scaling.target_shift, -1)
        return targets if self._log_scale is None else np.exp(targets), found.sample_weight

    def removal_effects(self) -> tuple[Removal, ...]:
        """The effect of leaving out each source, in closed form.

        The weights of the candidates and the learned covariances between domains are kept. With more than 100 sources,
        only the 100 of largest weight are evaluated; sources that were not used for learning (see ``notes_``) have no
        effect.

        A model loaded from a file has these effects only if they were computed before it was saved.
        """
        check_is_fitted(self, "coef_")
        if self._removals is None:
            if self._choices is None:
                raise ParameterError(
                    "this model was saved without the effects of removing sources; call removal_effects() before save"
                )
            names, weights = self.domain_names_[1:], self.weights_.values[1:]
            self._removals = removals_of(self._choices, names, self._places, weights) if names else ()
        return self._removals

    def _validated_predictions(self) -> list[tuple[Floats, Floats, Floats]]:
        """Of each validation task: predictions and targets (m, D) of the rows kept for testing, and their weights."""
        if self._choices is None:
            return []
        shift = np.reshape(self._scaling.target_shift, -1)
        found = []
        for tasks in zip(*(choice.tasks for choice in self._choices)):
            # Outputs are validated on the same rows, unless ties between rows were broken by the targets.
            if len({(task.source, len(task.weight)) for task in tasks}) > 1:
                continue
            targets = np.column_stack([t.targets * c.size for t, c in zip(tasks, self._choices)]) + shift
            residuals = np.column_stack([t.residuals[0] * c.size for t, c in zip(tasks, self._choices)])
            found.append((targets - residuals, targets, tasks[0].weight))
        return found

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_whole("seed", self.seed)
        if self.target_scale not in TARGET_SCALES:
            raise ParameterError(
                f"target_scale={self.target_scale!r} is unknown; choose from {', '.join(TARGET_SCALES)}"
            )

    def _feature_range(self) -> tuple[Any, Any]:
        return self._low, self._high

    def _exported_range(self) -> tuple[Any, Any]:
        if self._log_scale is not None:
            raise ParameterError('a model on the log scale cannot be exported; fit with target_scale="identity"')
        return input_range(self._made_map) if fits.is_auto(self.feature_map) else super()._exported_range()

    def _make_features(self, device: str | None = None) -> fits.Features:
        return fits.Features(map_after_encoding(self, self.feature_map_), column_names(self), device or self.device)

    @property
    def feature_map_(self) -> Any:
        """The map of the fit: the one that was given, or the one that was made from the rows."""
        return self._made_map if fits.is_auto(self.feature_map) else self.feature_map

    def _get_stored(self) -> dict[str, Any]:
        self.distances_  # noqa: B018  computed now, since the file holds no rows to compute it from
        return super()._get_stored()

    def _set_stored(self, values: dict[str, Any]) -> None:
        self._solution = values.pop("solution_")
        super()._set_stored(values)


@fits.solvable()
def tuned_fit(
    prepared: fits.Prepared,
    blocks: Sequence[FeatureBlock] | None = None,
    processes: Sequence[Process] = (),
    *,
    seed: int,
    device: str = "cpu",
    clamp: bool = True,
    log: bool = False,
) -> fits.Solved:
    """Choose for every output, and put together what an estimator stores.

    Local heads and the choice read the same moments. ``blocks`` are feature maps to average over. With ``log`` the
    targets are logarithms, and errors are told of what they are the logarithms of.
    """
    width = prepared.focal.shape[1]
    there = torch_device(device)
    state = fits.State.of(prepared, there)
    notes = _row_notes(prepared, state)
    if blocks is None or (len(blocks) == 1 and not processes):
        with factorised_on(there):
            basis, wide = fits.principal_basis(prepared, state, seed)
        blocks, notes = [FeatureBlock("all", np.arange(width), basis)], wide + notes
    places, sampled = _source_places(prepared, seed)
    heads = fits.local_heads(state, fits.HEAD_RIDGE)
    moments = [[block.moments(m).on_device(None) for m in state.moments] for block in blocks]
    outputs = range(prepared.focal.targets.shape[1])
    # The maps of each output.
    tried = [[place for place, block in enumerate(blocks) if block.output in (None, output)] for output in outputs]
    spectra: list[Any] = [[{} for _ in prepared.names] if len(outputs) > 1 else None for _ in blocks]
    samples = [
        [
            fits.samples_of(prepared, moments[place], blocks[place], places, output, spectra[place])
            for place in tried[output]
        ]
        for output in outputs
    ]
    logs = prepared.inputs[0].targets[:, 0] if log else None
    scale = LogScale.near([rows.targets for rows in prepared.inputs]) if log else None
    with factorised_on(there):
        if processes:
            levels = np.reshape(prepared.scaling.target_shift, -1)
            choices = [
                choose_processes(
                    [processes[place] for place in used],
                    [sample[0] for sample in own],
                    [blocks[place] for place in used],
                    width,
                    shift=prepared.scaling.shift,
                    target_shift=float(level),
                    seed=seed,
                )
                for own, used, level in zip(samples, tried, levels)
            ]
        else:
            choices = [
                choose_maps(own, [blocks[place] for place in used], width, seed=seed)
                for own, used in zip(samples, tried)
            ]
    stacked = np.column_stack([choice.head for choice in choices])
    found = (stacked[:-1], stacked[-1]) if prepared.fit_intercept else (stacked, np.zeros(len(choices)))
    coef, intercept = fits.like_targets(prepared.focal, *found)
    low, high = fits.feature_range(prepared.mapped) if clamp and len(prepared.names) > 1 else (None, None)
    # Sources that no prior was learned from have no weight.
    values, errors = (
        tuned_weights(choices, prepared.names, prepared.totals, places),
        _focal_errors(prepared.focal, heads, logs),
    )
    weights = DomainWeights(values, prepared.names, 0, "cross-validated", errors)
    return fits.Solved(
        coef,
        intercept,
        # Leave-one-out and posterior of the average, both made when first asked for.
        fits.Uncertainty(
            partial(left_out_of, choices, prepared.focal),
            partial(fits.posterior_of, choices),
            partial(local_spreads, choices, prepared.focal, _inputs_of(blocks, processes, tried, width), prepared),
        ),
        {
            "weights_": weights,
            "effective_ridge_": float(np.exp(np.mean([c.shares @ np.log(c.ridges) for c in choices]))),
            "candidates_": candidates_of(choices[0], len(weights.names), places),
            "ridge_path_": path_of(choices[0]),
            "maps_": maps_of(choices[0]),
            "_compared": None,
            "_from_validation": _mean_gain(choices),
            "_log_scale": scale and scale.smeared(choices[0].left_out, prepared.focal.weight),
            "n_validation_sources_": min(c.n_plays for c in choices),
            "notes_": notes + sampled,
            "_low": low,
            "_high": high,
            "_solution": None,
            "_distances": None,
            "_removals": None,
            "_comparable": prepared,
            "_choices": tuple(choices),
            "_places": places,
        },
        heads,
    )


def _mean_gain(choices: Sequence[MapAverage]) -> float | None:
    """By what part the error of validation tasks is below that of own rows alone, on average."""
    gains = np.mean([choice.play_gains for choice in choices], axis=0)
    return 1 - float(np.exp(np.mean(gains))) if len(gains) else None


def _plain_choice(prepared: fits.Prepared, *, seed: int) -> Choice:
    """The choice for one output and one map, among fits to the focal rows and around pooled ones: a cheap one."""
    state, (places, _) = fits.State.of(prepared), _source_places(prepared, seed)
    block = FeatureBlock("all", np.arange(prepared.focal.shape[1]), fits.principal_basis(prepared, state, seed)[0])
    focal, *sources = fits.samples_of(prepared, [block.moments(m) for m in state.moments], block, places, 0)
    return choose(focal, sources, seed=seed, every=False, learned=False)


def _row_notes(prepared: fits.Prepared, state: fits.State) -> tuple[str, ...]:
    """What the rows themselves leave open."""
    focal = prepared.inputs[0]
    found: list[str] = []
    count = focal.total
    if count < FEW:
        rows = "1 focal row" if count == 1 else f"{count:g} focal rows"
        template = "only {rows}: leave-one-out says little about what suits {them}"
        found.append(Note("few-rows", template, rows=rows, them="it" if count == 1 else "them"))
    if len(focal.y) > 1 and np.all(focal.targets == focal.targets[0]):
        found.append("every focal target is the same; differences between predictions can only come from the sources")
    single = [name for name, moments in zip(prepared.names[1:], state.moments[1:]) if moments.count == 1]
    if single:
        shown = ", ".join(single[:3]) + (", ..." if len(single) > 3 else "")
        have = "sources have" if len(single) > 1 else "source has"
        found.append(Note("one-row", "{count} {have} one row only: {names}", count=len(single), have=have, names=shown))
    return tuple(found)


def _source_places(prepared: fits.Prepared, seed: int) -> tuple[Integers, tuple[str, ...]]:
    """Which sources priors are learned from, counted without the focal domain, and a note where not all are."""
    count = len(prepared.names) - 1
    places = sample_sources(prepared.mapped[1:], seed=seed, prepare=prepared.scaling.apply)
    if len(places) == count:
        return places, ()
    told = f"{count} sources: priors were learned from {len(places)} of them, drawn at random (seed {seed})"
    return places, (told,)


def tuned_weights(
    choices: Sequence[MapAverage], names: Sequence[str], totals: Sequence[float], places: Integers
) -> Floats:
    """Weights of the domains, which have so many rows each, the focal one first."""
    values = np.sum([_weights_of(*c.provided(), len(names), places) for c in choices], axis=0)
    # A prior from a source of a few rows is hardly more than the prior without it.
    values[1:] *= counted_part(np.array(totals[1:]))
    return values / values.sum()


def counted_part(rows: Floats) -> Floats:
    """The part of their weight that sources of so many rows keep.

    Examples
    --------
    >>> counted_part(np.array([1.0, 2.0, 3.0, 6.0, 10.0, 80.0])).round(2).tolist()
    [0.09, 0.17, 0.26, 0.69, 1.0, 1.0]
    """
    along = np.clip((rows - TINY_SOURCE) / (SMALL_SOURCE - TINY_SOURCE), 0.0, 1.0)
    full = along**2 * (3.0 - 2.0 * along)
    return full + (1.0 - full) * rows / (rows + NOISE_ROWS)


def _weights_of(own: float, sources: Floats, count: int, places: Integers) -> Floats:
    """Weights of ``count`` domains, the focal one first, from its own and those of the sources at ``places``."""
    weights = np.zeros(count)
    weights[0], weights[1 + places] = own, sources
    return weights


def _focal_errors(rows: Rows, heads: fits.Heads, logs: Floats | None = None) -> Floats:
    """Mean squared error of every domain's own head on the focal rows; with ``logs``, of what these stand for."""
    share, targets = rows.weight / rows.total, rows.targets
    found = np.empty(len(heads.coef))
    for run in chunks(range(len(found)), 8 * targets.size):
        coef, level = heads.coef[run], heads.intercept[run]
        fitted = np.tensordot(rows.X, coef.reshape(*coef.shape[:2], -1), ((1,), (1,))) + level.reshape(len(run), -1)
        apart = targets[:, None] - fitted
        if logs is not None:
            apart = np.exp(logs)[:, None, None] - np.exp(np.minimum(logs[:, None, None] - apart, LARGEST_LOG))
        found[run] = share @ np.mean(apart**2, axis=2)
    return found


def left_out_of(choices: Sequence[MapAverage], rows: Rows) -> LeaveOneOut:
    residuals = np.column_stack([choice.left_out for choice in choices])
    inflation = float(np.mean([_inflation(choice, rows) for choice in choices]))
    spreads = choices[0].spreads if len(choices) == 1 else np.ones(len(residuals))
    return LeaveOneOut(rows.targets - residuals, residuals, spreads / inflation**2, rows.weight)


def _inflation(choice: MapAverage, rows: Rows) -> float:
    """How much larger errors of new rows are than those of left-out rows, in [1, 2].

    Without validation tasks nothing shows it. A kernel that the same rows taught has two lengths or slopes for every
    input; the error of a model of k parameters grows by about 2 k / n from fitted rows to new ones, and left-out rows
    are half way between.
    """
    inputs = taught_inputs(choice.largest)
    if choice.tasks or not inputs:
        return choice.inflation
    return float(min(np.sqrt(1.0 + 2.0 * inputs / rows.total), 2.0))


def _inputs_of(
    blocks: Sequence[FeatureBlock], processes: Sequence[Process], tried: Sequence[Sequence[int]], width: int
) -> list[Integers]:
    """For each output, the places of the features that are inputs; none where there are too many or none are."""
    if processes:
        return [blocks[used[0]].places[: processes[used[0]].kernel.width] for used in tried]
    named = [block.places for block in blocks if block.name in ("inputs", "all")]
    return [few_inputs(named[0] if named else np.arange(0))] * len(tried)


def few_inputs(places: Integers) -> Integers:
    """These places of inputs, or none where they are too many for errors to vary with each."""
    return places if len(places) <= MOST_SPREAD_INPUTS else places[:0]


def _some(rows: Rows, count: int) -> Integers:
    """The places of about so many rows, at equal distances in an order that follows from their content."""
    order = by_content(rows)
    return order[:: max(len(order) // max(count, 1), 1)]


def local_spreads(
    choices: Sequence[MapAverage], rows: Rows, places: Sequence[Integers], prepared: fits.Prepared | None = None
) -> tuple[LocalSpread, ...] | None:
    """For each output, how errors vary beyond the posterior spread; None where rows cannot be left out.

    Tasks of a process say it, too. Tasks of other families do not: of rows that stay elsewhere only sums are known, and
    their intervals are to be the same.
    """
    left_out = left_out_of(choices, rows)
    if not (np.all(np.isfinite(left_out.residuals)) and np.all(left_out.spreads > 0)):
        return None
    typical, posterior = 1.0, None
    taught = prepared is not None and all(taught_inputs(choice.largest) for choice in choices)
    if prepared is not None and taught and len(prepared.mapped) > 1:
        posterior = fits.posterior_of(choices)
    if prepared is not None and posterior is not None:
        parts = [each.part(_some(each, SPREAD_ROWS // len(prepared.mapped))) for each in prepared.mapped[1:]]
        typical = float(np.median(posterior.spread(prepared.scaling.features(np.concatenate([p.X for p in parts])))))
    return tuple(
        learn_local_spread(
            rows.X,
            left_out.predictions[:, output],
            left_out.residuals[:, output],
            left_out.spreads,
            rows.weight,
            own,
            choice.tasks if taught else (),
            unit=choice.size,
            typical=typical,
        )
        for output, (choice, own) in enumerate(zip(choices, places))
    )


def removals_of(
    choices: Sequence[MapAverage], names: Sequence[str], places: Integers, weights: Floats
) -> tuple[Removal, ...]:
    """Effects of leaving out each of the heaviest 100 sources that priors were learned from, in order.

    Sources that no prior was learned from change nothing, and are listed so. ``weights`` are those of all sources.
    """
    index = {int(place): k for k, place in enumerate(places)}
    heaviest = set(places[np.argsort(-weights[places], kind="stable")[:MOST_REMOVALS]].tolist())
    error = sum(choice.error(choice.without(None)[1]) for choice in choices) / len(choices)
    found = []
    for place, name in enumerate(names):
        if place in heaviest:
            found.append(_removal_of(choices, index[place], name))
        elif place not in index:
            found.append(Removal(name, error, 0.0, 0.0, 0.0, 0.0))
    return tuple(found)


def _removal_of(choices: Sequence[MapAverage], index: int, name: str) -> Removal:
    """The effect of leaving one source out, over all outputs."""
    before, after, moved = 0.0, 0.0, 0.0
    residuals: list[tuple[Floats, Floats]] = []
    for choice in choices:
        _, left_out, fitted = choice.without(index)
        _, before_left_out, before_fitted = choice.kept
        after += choice.error(left_out)
        before += choice.error(before_left_out)
        moved += choice.error(fitted - before_fitted)
        residuals.append((left_out, before_left_out))
    change = float(np.sqrt(after / before)) - 1.0 if 0 < before < np.inf else 0.0
    weight = np.tile(choices[0].choices[0].task.known.weight, len(choices))
    without, whole = (np.concatenate(part) for part in zip(*residuals))
    paired = compare("with all", without, whole, weight)
    shift = float(np.sqrt(moved / len(choices)))
    return Removal(name, after / len(choices), change, shift, paired.ratio_low - 1.0, paired.ratio_high - 1.0)


def candidates_of(choice: MapAverage, count: int, places: Integers) -> tuple[Candidate, ...]:
    """All candidates with a share worth naming, largest first, of ``count`` domains; ``places`` as elsewhere."""
    found = []
    for i in np.argsort(-choice.shares, kind="stable").tolist():
        if choice.shares[i] >= SMALLEST:
            family, settings = choice.labels[i]
            validation = None if choice.play_errors is None else float(choice.play_errors[i])
            figures = (float(choice.ridges[i]), float(choice.errors[i]), validation, float(choice.shares[i]))
            weights = _weights_of(*choice.provided([i]), count, places)
            found.append(Candidate(family, dict(settings), *figures, weights))
    return tuple(found)


def maps_of(average: MapAverage) -> tuple[MapShare, ...]:
    """The feature maps, largest share first."""
    errors = average.map_play_errors
    found = [
        MapShare(
            block.name,
            float(average.map_weights[k]),
            len(block.places),
            average.choices[k].error,
            None if errors is None else float(errors[k]),
        )
        for k, block in enumerate(average.blocks)
    ]
    return tuple(sorted(found, key=lambda each: -each.share))


def path_of(choice: MapAverage) -> RidgePath:
    """The candidates that differ from that with the largest share in the effective ridge only, by effective ridge."""
    top = int(np.argmax(choice.shares))
    kind = _kind(choice.labels[top])
    alike = [i for i, label in enumerate(choice.labels) if _kind(label) == kind]
    alike.sort(key=lambda i: float(choice.ridges[i]))
    return RidgePath(choice.ridges[alike], choice.errors[alike], alike.index(top))


def solution_of(prior: Prior, task: Sample, size: float = 1.0) -> RegretSolution:
    """The regret-optimal fine-tuning that a prior stands for: from its mean, in its metric, to its effective ridge.

    With S = L L' the features are ``U L``, targets are residuals of the prior mean, and transfer = stability are such
    that together with the horizon they amount to noise/scale. The prior is one for targets divided by ``size``; the
    solution is in the targets' own units.
    """
    rows = (task.free if prior.free_intercept else task.full).rows
    root = np.sqrt(rows.weight)
    metric = roots_of(prior.covariance)
    moments = Moments.from_rows((rows.X @ metric) * root[:, None], root * (rows.y - rows.X @ (size * prior.mean)))
    start = np.zeros((1, metric.shape[1]))
    held: dict[str, Any] = {"weights": [1.0], "horizon": HORIZON, "heads": start, "start": start, "reference": start}
    # The effective ridge grows in proportion to transfer = stability.
    unit = solve(RegretProblem(moments=[moments], transfer=1.0, stability=1.0, **held)).effective_ridge
    assert unit is not None
    strength = prior.noise / prior.scale / unit
    return solve(RegretProblem(moments=[moments], transfer=strength, stability=strength, **held))


def _kind(label: tuple[str, dict[str, Any]]) -> tuple[Any, ...]:
    family, settings = label
    varying = ("scale", "relative ridge", "deviations")
    return (family, *((key, value) for key, value in settings.items() if key not in varying))
