"""The regressor with nothing to set: the choice is made by :func:`mixtune.selection.choose`."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from sklearn.utils.validation import check_is_fitted

from mixtune._array import Floats, Integers
from mixtune._checks import check_whole
from mixtune.errors import ParameterError
from mixtune.estimators._base import LinearTransferRegressor, check_source, column_names, read_sources
from mixtune.estimators._cv_adapter import tuned_fit
from mixtune.estimators._cv_results import Candidate, Removal, RidgePath, removals_of
from mixtune.estimators._fixed_fit import Solved
from mixtune.estimators._preparation import Prepared, trim
from mixtune.estimators._saving import savable
from mixtune.estimators._sources import as_sources
from mixtune.estimators._stored_values import storable
from mixtune.estimators._weighing import TEMPERATURE, domains_of
from mixtune.moments import Rows
from mixtune.regret import RegretSolution
from mixtune.selection import Choice, Comparison, TransferGain
from mixtune.weights import DomainWeights, TransportWeights, WassersteinWeights

__all__ = ["RegretOptimalRegressorCV", "TunedSettings"]

#: Most pairs of rows for which distances are computed without being asked for twice.
PAIRS = 10**8


storable(Comparison)
storable(TransferGain)


class TunedSettings:
    """What can be set of the estimators that tune themselves."""

    def __init__(
        self,
        feature_map: Any = None,
        *,
        standardise: bool = True,
        fit_intercept: bool = True,
        clamp: bool = True,
        focal_name: str = "focal",
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.feature_map = feature_map
        self.standardise = standardise
        self.fit_intercept = fit_intercept
        self.clamp = clamp
        self.focal_name = focal_name
        self.seed = seed
        self.device = device


@savable
class RegretOptimalRegressorCV(TunedSettings, LinearTransferRegressor):
    """Transfer with nothing to set: weights, metric and effective ridge are chosen and averaged by the data.

    Candidates are ridge fits to the focal rows around priors made from the sources: regret-optimal fine-tuning of a
    pre-trained head at one effective ridge each. Their shares come from letting sources play the focal domain and from
    leave-one-out on the focal rows; the fit to the focal rows alone is always among them. Without sources this is ridge
    regression with averaged ridges. Of streamed sources a sample is used (``StreamedSources(sample_rows=...)``).

    Parameters
    ----------
    feature_map : FeatureMap, optional
        phi; None takes the inputs as they are.
    standardise, fit_intercept : bool
        As for :class:`RegretOptimalRegressor`.
    clamp : bool
        With sources, move features far beyond the range of all training rows (a quarter of the range, and more where
        rows are few) to that edge before predicting, so that one absurd row cannot have an absurd prediction.
    focal_name : str
        What the focal rows are called beside the sources.
    seed : int
        Which rows and sources play.
    device : str
        Where features are computed: "cpu" for NumPy, or "cuda" ("cuda:1" is the second) for PyTorch on a CUDA device,
        block by block, as for :class:`RegretOptimalRegressor`. They come back as NumPy arrays, and the choice is
        computed from these here. ``predict`` does without the device where there is none.

    Attributes
    ----------
    coef_, intercept_ : arrays (p,) or (p, D), and scalar or (D,)
        Averages over the candidates.
    weights_ : DomainWeights
        What share of the prediction each domain provides: of the focal domain, the part of the fitted degrees of
        freedom that comes from its rows; of the sources, the rest, as they make up the prior mean, none below
        zero. ``scores`` are the mean squared errors of the domains' own heads on the focal rows.
    effective_ridge_ : float
        The average effective ridge (of its logarithm), on standardised features.
    candidates_ : tuple of Candidate
        What went into the average, largest share first (of the first output).
    solution_ : RegretSolution
        Trajectory, energy and regret of the largest share (first output), in its prior's metric and about its mean.
    ridge_path_ : RidgePath
        Leave-one-out error along effective ridges, for the prior of the largest share.
    loo_error_ : float
        Leave-one-out mean squared error on the focal rows, with shares and weights held fixed.
    compared_ : tuple of Comparison
        The same for focal rows alone, all rows pooled, and the mean of local heads, with standard errors.
    transfer_gain_ : TransferGain
        By what part transfer cuts the error of the focal rows alone, from the plays and leave-one-out together.
    distances_ : TransportWeights or None
        1-Wasserstein distances to the focal rows with the sampling floor; computed when first asked for.
    heads_, head_intercepts_ : arrays (N, p[, D]) and (N[, D])
        Local ridge heads, ridge 1 on standardised features.
    n_plays_ : int
        How many sources played the focal domain.
    notes_ : tuple of str
        Fallbacks that were taken, such as priors from a sample where sources are more than 512; others weigh 0.

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
        "weights_",
        "effective_ridge_",
        "candidates_",
        "solution_",
        "ridge_path_",
        "compared_",
        "transfer_gain_",
        "n_plays_",
        "notes_",
        "_distances",
        "_removals",
        "_low",
        "_high",
    )

    weights_: DomainWeights
    effective_ridge_: float
    candidates_: tuple[Candidate, ...]
    solution_: RegretSolution
    ridge_path_: RidgePath
    compared_: tuple[Comparison, ...]
    transfer_gain_: TransferGain
    n_plays_: int
    notes_: tuple[str, ...]
    _distances: TransportWeights | None
    _removals: tuple[Removal, ...] | None
    _comparable: Prepared | None
    _choices: tuple[Choice, ...] | None
    _places: Integers
    _inputs: dict[str, Rows] | None
    _low: Floats | None
    _high: Floats | None

    @property
    def distances_(self) -> TransportWeights | None:
        """Transport distances to the focal rows and the sampling floor; None without sources or with too many rows."""
        check_is_fitted(self, "coef_")
        if self._distances is None and self._comparable is not None:
            rows = [len(part.X) for part in self._comparable.rows]
            if len(rows) > 1 and rows[0] * sum(rows) <= PAIRS:
                domains, feature_map = domains_of(self._comparable, standardise=self.standardise)
                found = WassersteinWeights(TEMPERATURE).weigh(domains=domains, feature_map=feature_map)
                assert isinstance(found, TransportWeights)
                self._distances = found
            self._comparable = None
        return self._distances

    def partial_fit(self, X: Any = None, y: Any = None, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Add focal rows, rows of known sources, or new sources, and choose again over all rows.

        The result is that of ``fit`` with all rows. Called first, this is ``fit``. A model from a file holds no rows.
        """
        if not hasattr(self, "coef_"):
            return self.fit(X, y, sample_weight, sources=sources)
        self._check_parameters()
        if (X is None) != (y is None):
            raise ParameterError("pass X and y together, or neither to add sources only")
        rows, focal = self._kept_rows(), self.domain_names_[0]
        if X is not None:
            added = trim(self._read_focal(X, y, sample_weight, reset=False))
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
        prepared = self._prepare_rows(rows)
        solved = self._solve(prepared)
        self._scaling = prepared.scaling
        self._store(solved, prepared.names)
        return self

    def removal_effects(self) -> tuple[Removal, ...]:
        """What leaving out each source would change, in closed form.

        The shares of the candidates are kept, and so is what was learned of how domains differ. Of more than 100
        sources the heaviest 100 are worked out, and those of which ``notes_`` says that nothing was learned from them
        change nothing; what is left out of the answer weighs less than what is in it.

        A model that comes from a file knows it only if it was asked before it was saved.
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
        super()._set_stored(values)
        self._comparable = self._choices = self._inputs = None

    def _solve(self, prepared: Prepared) -> Solved:
        return tuned_fit(prepared, seed=self.seed, device=self.device, clamp=self.clamp)
