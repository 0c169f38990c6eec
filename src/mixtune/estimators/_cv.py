"""The regressor that tunes itself: :func:`mixtune.selection.choose` chooses and averages its candidates."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

from sklearn.utils.validation import check_is_fitted

from mixtune._array import Floats, Integers
from mixtune._checks import check_whole
from mixtune.errors import ParameterError
from mixtune.estimators._base import (
    LinearTransferRegressor,
    check_both,
    check_source,
    column_names,
    transport_distances,
)
from mixtune.estimators._fixed_fit import Solved
from mixtune.estimators._inputs import as_sources, read_sources
from mixtune.estimators._preparation import Prepared
from mixtune.estimators._saving import savable
from mixtune.estimators._tuned_fit import Candidate, Removal, RidgePath, removals_of, solution_of, tuned_fit
from mixtune.moments import Rows
from mixtune.regret import RegretSolution
from mixtune.selection import Choice, Comparison, Sample, TransferGain
from mixtune.weights import DomainWeights, TransportWeights

#: Transport distances are computed only up to this many pairs of a focal row and any row; beyond, they take minutes.
MAX_PAIRS = 10**8


@dataclass(eq=False, repr=False)
class TunedSettings:
    """Parameters shared by the regressor and the classifier that tune themselves."""

    feature_map: Any = None
    _: KW_ONLY
    standardise: bool = True
    fit_intercept: bool = True
    clamp: bool = True
    focal_name: str = "focal"
    seed: int = 0
    device: str = "cpu"


@savable
class RegretOptimalRegressorCV(TunedSettings, LinearTransferRegressor):
    """Transfer learning with nothing to set: the data choose weights, metric and effective ridge.

    The prediction averages many candidates. Each candidate is a ridge fit to the focal rows around a prior learned from
    the sources, that is, the regret-optimal fine-tuning of a pre-trained model at one effective ridge. The weights of
    the average come from cross-domain validation, in which each source takes the focal role in turn, and from
    leave-one-out on the focal rows. The fit to the focal rows alone is always a candidate. Without sources this is
    ridge regression averaged over ridges. Streamed sources contribute a sample of their rows
    (``StreamedSources(sample_rows=...)``).

    Parameters
    ----------
    feature_map : FeatureMap, optional
        phi; None takes the inputs as they are.
    standardise, fit_intercept : bool
        As for :class:`RegretOptimalRegressor`.
    clamp : bool
        With sources, clip features that lie far outside the range of all training rows (by more than a quarter of the
        range, with a wider margin for few rows) before predicting, so that an extreme input has a bounded effect.
    focal_name : str
        The name of the focal domain.
    seed : int
        Draws the rows and sources of cross-domain validation.
    device : str
        Where features are computed: "cpu" for NumPy, or "cuda" ("cuda:1" is the second) for PyTorch on a CUDA device,
        block by block, as for :class:`RegretOptimalRegressor`. They return as NumPy arrays, from which the choice is
        computed on the host. ``predict`` falls back to NumPy if the device is missing.

    Attributes
    ----------
    coef_, intercept_ : arrays (p,) or (p, D), and scalar or (D,)
        Averages over the candidates.
    weights_ : DomainWeights
        The share of the prediction that each domain provides. The focal domain's share is the part of the fitted
        degrees of freedom that its own rows supply; the sources divide the rest as they contribute to the prior
        mean, negative contributions counted as zero. ``scores`` are the mean squared errors of the domains' own
        models on the focal rows.
    effective_ridge_ : float
        The average effective ridge (of its logarithm), on standardised features.
    candidates_ : tuple of Candidate
        The candidates of the average, largest share first (of the first output).
    solution_ : RegretSolution
        Trajectory, energy and regret of the candidate with the largest share (first output), in the metric of its
        prior and relative to its prior mean.
    ridge_path_ : RidgePath
        Leave-one-out error against the effective ridge, for the prior with the largest share.
    loo_error_ : float
        Leave-one-out mean squared error on the focal rows, with shares and weights held fixed.
    compared_ : tuple of Comparison
        The same for focal rows alone, all rows pooled, and the mean of the local models, with standard errors.
    transfer_gain_ : TransferGain
        The relative reduction of the error against the focal rows alone, from cross-domain validation and
        leave-one-out together.
    distances_ : TransportWeights or None
        1-Wasserstein distances to the focal rows with the sampling floor; computed on first access.
    heads_, head_intercepts_ : arrays (N, p[, D]) and (N[, D])
        Local ridge models, with ridge 1 on standardised features.
    n_plays_ : int
        How many sources took the focal role in cross-domain validation.
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
    >>> bool(abs(model.coef_[0] - 2.0) < 0.3), weights["reversed"] < min(weights["a"], weights["b"], weights["c"])
    (True, True)
    """

    _stored_attributes: ClassVar[tuple[str, ...]] = (
        *("weights_", "effective_ridge_", "candidates_", "solution_", "ridge_path_", "compared_", "transfer_gain_"),
        *("n_plays_", "notes_", "_distances", "_removals", "_low", "_high"),
    )

    weights_: DomainWeights
    effective_ridge_: float
    candidates_: tuple[Candidate, ...]
    ridge_path_: RidgePath
    compared_: tuple[Comparison, ...]
    transfer_gain_: TransferGain
    n_plays_: int
    notes_: tuple[str, ...]
    _solution: RegretSolution | None
    _focal_sample: Sample
    _distances: TransportWeights | None
    _removals: tuple[Removal, ...] | None
    _comparable: Prepared | None
    _choices: tuple[Choice, ...] | None
    _places: Integers
    _inputs: dict[str, Rows] | None
    _low: Floats | None
    _high: Floats | None

    @property
    def solution_(self) -> RegretSolution:
        """Regret-optimal fine-tuning of the candidate with the largest share (first output); solved on first access."""
        check_is_fitted(self, "coef_")
        if self._solution is None:
            assert self._choices is not None
            first = self._choices[0]
            self._solution = solution_of(first.prior, self._focal_sample, first.size)
        return self._solution

    @property
    def distances_(self) -> TransportWeights | None:
        """Transport distances to the focal rows with the sampling floor; None without sources or with too many rows."""
        check_is_fitted(self, "coef_")
        if self._distances is None and self._comparable is not None:
            rows = [len(part.X) for part in self._comparable.rows]
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
        rows, focal = self._kept_rows(), self.domain_names_[0]
        if X is not None:
            added = self._read_focal(X, y, sample_weight)
            if added.y.shape[1:] != rows[focal].y.shape[1:]:
                raise ParameterError(
                    f"y has shape {added.y.shape}, the fit had {rows[focal].y.shape}; pass the same outputs"
                )
            rows[focal] = rows[focal].joined(added)
        for name, new in read_sources(as_sources(sources), rows[focal], column_names(self), focal).items():
            rows[name] = rows[name].joined(new) if name in rows else new
        return self._refit(rows)

    def forget(self, name: str) -> Self:
        """Remove a source exactly: the result is that of ``fit`` without it."""
        check_is_fitted(self, "coef_")
        rows = self._kept_rows()
        check_source(name, self.domain_names_)
        del rows[name]
        return self._refit(rows)

    def _kept_rows(self) -> dict[str, Rows]:
        if self._inputs is None:
            raise ParameterError("a model from a file holds no rows to choose from again; call fit with all rows")
        return dict(self._inputs)

    def _refit(self, rows: dict[str, Rows]) -> Self:
        self._learn_prepared(self._prepare_rows(rows))
        return self

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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_whole("seed", self.seed)

    def _feature_range(self) -> tuple[Any, Any]:
        return self._low, self._high

    def _get_stored(self) -> dict[str, Any]:
        self.distances_  # noqa: B018  computed now, since the file holds no rows to compute it from
        return super()._get_stored()

    def _set_stored(self, values: dict[str, Any]) -> None:
        self._solution = values.pop("solution_")
        super()._set_stored(values)
        self._comparable = self._choices = self._inputs = None

    def _solve(self, prepared: Prepared) -> Solved:
        return tuned_fit(prepared, seed=self.seed, device=self.device, clamp=self.clamp)
