"""How much each domain counts: what a rule may look at, what it returns, and the rules that need no rows.

A rule declares what it needs (rows, or only moments and heads), so that the same call works for every rule and an error
names what is missing. Results carry the scores they were made from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mixtune.arrays import Array, Floats, all_finite, as_float64
from mixtune.checks import check_nonnegative, check_simplex
from mixtune.errors import DataError, ParameterError
from mixtune.moments import Moments, local_heads

if TYPE_CHECKING:
    from mixtune.data import Domains
    from mixtune.features import FeatureMap


@dataclass(frozen=True, eq=False, repr=False)
class DomainWeights:
    """Weights on the simplex, and where they came from.

    Attributes
    ----------
    values : array (N,)
        w_i >= 0, summing to 1; NumPy reads the object itself as this array.
    names : tuple of str
    focal : int
        Index of the focal domain D_1.
    rule : str
        Which rule made them.
    scores : array (N,) or None
        What the rule compared: distances or errors, smaller is closer.
    """

    values: Floats
    names: tuple[str, ...]
    focal: int
    rule: str
    scores: Floats | None = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        heaviest = sorted(self.as_dict().items(), key=lambda pair: -pair[1])
        shown = ", ".join(f"{name}: {value:.3g}" for name, value in heaviest[:5])
        return f"{type(self).__name__}({self.rule}; {shown}{', ...' if len(heaviest) > 5 else ''})"

    def as_dict(self) -> dict[str, float]:
        """Weights by domain name."""
        return dict(zip(self.names, self.values.tolist()))

    def to_frame(self) -> Any:
        """One row for each domain, as a pandas frame."""
        from mixtune.data import frame_of  # tables are read with Arrow, which weights do not need

        scores = {} if self.scores is None else {"score": self.scores}
        return frame_of({"domain": self.names, "weight": self.values, **scores})


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that rules may look at; each takes what it needs."""

    names: tuple[str, ...]
    focal: int
    domains: Domains | None = None
    feature_map: FeatureMap | None = None
    moments: Sequence[Moments] | None = None
    heads: Array = None


class WeightRule(ABC):
    """A way to weigh domains. ``needs`` names the arguments :meth:`weigh` must be given."""

    needs: ClassVar[tuple[str, ...]] = ()

    def weigh(
        self,
        *,
        domains: Domains | None = None,
        feature_map: FeatureMap | None = None,
        moments: Sequence[Moments] | None = None,
        heads: Array = None,
        ridge: float | None = None,
        focal: int | str | None = None,
    ) -> DomainWeights:
        """Weigh the domains.

        Parameters
        ----------
        domains : Domains, optional
            The rows; also gives names and the focal domain.
        feature_map : FeatureMap, optional
            phi, for rules that look at features.
        moments : sequence of Moments, optional
            One per domain, in the same order.
        heads : array (N, p) or (N, p, D), or a list of heads, optional
            Local heads; made from ``moments`` with ``ridge`` where not given.
        ridge : float, optional
            kappa for those heads.
        focal : int or str, optional
            Index or name of the focal domain; by default that of ``domains``, else 0.
        """
        for index, m in enumerate(moments or ()):
            if not isinstance(m, Moments):
                raise DataError(f"moments[{index}] is a {type(m).__name__}; build it with Moments.from_rows(U, Y)")
        if heads is None and ridge is not None and moments is not None:
            heads = local_heads(moments, [ridge] * len(moments))
        _check_heads(heads)
        given = {"domains": domains, "feature_map": feature_map, "moments": moments, "heads": heads}
        missing = [name for name in self.needs if given[name] is None]
        if missing:
            hint = " (or ridge, to make them)" if "heads" in missing and ridge is None else ""
            missing = [name for name in missing if name != "heads" or ridge is None]
            raise ParameterError(f"{type(self).__name__} needs {' and '.join(missing)}{hint}; pass them to weigh")
        sizes = {name: len(given[name]) for name in ("domains", "moments", "heads") if given[name] is not None}
        if not sizes or len(set(sizes.values())) > 1:
            raise ParameterError(f"pass domains, moments or heads of the same number of domains; got {sizes or 'none'}")
        count = next(iter(sizes.values()))
        names = tuple(domains.names) if domains is not None else tuple(str(i) for i in range(count))
        place = _focal_index(focal, names, domains)
        return self._weigh(Evidence(names, place, domains, feature_map, moments, heads))

    @abstractmethod
    def _weigh(self, evidence: Evidence) -> DomainWeights:
        """The rule itself, on checked evidence."""


@dataclass(frozen=True)
class EqualWeights(WeightRule):
    """1/N for every domain.

    Examples
    --------
    >>> from mixtune import EqualWeights, Moments
    >>> moments = [Moments(2, [[1.0]], [1.0], 1.0)] * 4
    >>> EqualWeights().weigh(moments=moments).values
    array([0.25, 0.25, 0.25, 0.25])
    """

    def _weigh(self, evidence: Evidence) -> DomainWeights:
        count = len(evidence.names)
        return DomainWeights(check_simplex([1 / count] * count, count), evidence.names, evidence.focal, "equal")


@dataclass(frozen=True, eq=False)
class GivenWeights(WeightRule):
    """Weights set by the user; they must be non-negative and sum to 1."""

    values: Sequence[float]

    def _weigh(self, evidence: Evidence) -> DomainWeights:
        values = check_simplex(self.values, len(evidence.names))
        return DomainWeights(values, evidence.names, evidence.focal, "given")


@dataclass(frozen=True)
class PredictiveWeights(WeightRule):
    """Weights from the error of each domain's head on the focal domain; needs moments only, no rows.

    Parameters
    ----------
    sharing : float
        eta >= 0, in units of squared targets: heads whose mean squared error exceeds the focal head's by eta or more
        get no weight. 0 keeps only the focal domain (and exact ties).

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune import Moments, PredictiveWeights
    >>> level = lambda value: Moments.from_rows(np.ones((5, 1)), np.full(5, value))
    >>> moments = [level(1.0), level(1.5), level(9.0)]
    >>> PredictiveWeights(sharing=1.0).weigh(moments=moments, ridge=0.0).values.round(3)
    array([0.509, 0.491, 0.   ])
    """

    sharing: float
    needs: ClassVar[tuple[str, ...]] = ("moments", "heads")

    def __post_init__(self) -> None:
        check_nonnegative("sharing", self.sharing)

    def _weigh(self, evidence: Evidence) -> DomainWeights:
        assert evidence.moments is not None
        focal = evidence.moments[evidence.focal]
        with np.errstate(over="ignore", invalid="ignore"):
            losses = focal.losses(evidence.heads)
        # Heads so far off that their error overflows are infinitely bad, not unknown.
        scores = np.where(np.isnan(losses), np.inf, losses) / (focal.count * focal.n_outputs)
        if not np.isfinite(scores[evidence.focal]):
            raise DataError("the focal head's error on its own rows overflows; rescale features and targets")
        values = self.of_errors(scores, evidence.focal)
        return DomainWeights(values, evidence.names, evidence.focal, "predictive", scores)

    def shares(self, scores: Floats, focal: int = 0) -> Floats:
        """Weights before they are divided by their sum, from the errors of the heads on the focal domain.

        Examples
        --------
        >>> import numpy as np
        >>> from mixtune import PredictiveWeights
        >>> PredictiveWeights(sharing=1.0).shares(np.array([1.0, 1.5, 9.0])).round(3)
        array([1.   , 0.824, 0.   ])
        """
        return predictive_shares(scores, focal, self.sharing)

    def of_errors(self, scores: Floats, focal: int = 0) -> Floats:
        """Weights on the simplex from the errors of the heads on the focal domain."""
        return normalise(self.shares(scores, focal), focal)


def predictive_shares(scores: Floats, focal: int, sharing: float) -> Floats:
    """``exp(x) max(0, 1 - x)`` with ``x = (s - s_focal)/sharing``; in [0, 1], and 1 for the focal domain."""
    excess = scores - scores[focal]
    if sharing == 0:
        return (excess == 0).astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        # Beyond |x| = 745 exp(x) is 0 in double precision; the clip keeps 0 * infinity out.
        x = np.clip(excess / sharing, -745.0, 1.0)
        return np.exp(x) * (1 - x)


def normalise(raw: Floats, focal: int) -> Floats:
    """Raw weights in [0, 1] with a positive maximum, on the simplex; the focal one never underflows to zero."""
    values = raw / raw.sum()
    values[focal] = max(values[focal], np.finfo(np.float64).tiny)
    values.flags.writeable = False
    return values


def _check_heads(heads: Array) -> None:
    if isinstance(heads, np.ndarray) and heads.dtype.kind == "f" and all_finite(heads):
        return  # all at once
    for index, head in enumerate(heads if heads is not None else ()):
        if not all_finite(as_float64(head, what="heads")):
            raise DataError(f"heads[{index}] holds NaN or infinite values")


def _focal_index(focal: int | str | None, names: tuple[str, ...], domains: Domains | None) -> int:
    if focal is None:
        return domains.focal_index if domains is not None else 0
    if focal in names:
        return names.index(focal)
    if isinstance(focal, str):
        raise ParameterError(f"there is no domain {focal!r}; the domains are {', '.join(names[:8])}")
    whole = isinstance(focal, int | np.integer) and not isinstance(focal, bool)
    if not whole or not 0 <= focal < len(names):
        raise ParameterError(f"focal must be a domain's name or an index from 0 to {len(names) - 1}; got {focal!r}")
    return int(focal)
