"""Wasserstein weights: the paper's Algorithm 1, with the weights its theory proves optimal.

    w_i ~ exp(-gamma (W1(mu_1, mu_i) + n_i^(-1/(d+D)))) 1{W1(mu_1, mu_i) <= eta},

the minimiser of the Bayesian objective in Theorem 1. The theorem asks for data in a set of diameter 1, so distances
are divided by the pooled diameter unless told otherwise, which makes gamma and eta unit-free. The focal domain is
always admitted. The sampling floor, the distance between two halves of the focal domain itself, is reported next to the
distances: those that do not exceed it carry no information.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mixtune.arrays import Array, Booleans, Floats, Integers, as_float64, namespace, to_numpy
from mixtune.checks import check_choice, check_nonnegative, check_whole
from mixtune.errors import ParameterError
from mixtune.weights._rule import DomainWeights, Evidence, WeightRule, normalise
from mixtune.weights.transport import (
    METHODS,
    Diameter,
    TransportDistance,
    distances_to,
    pooled_diameter,
    random_halves,
    sampling_floor,
)

if TYPE_CHECKING:
    from mixtune.data import Domains
    from mixtune.features import FeatureMap

DistanceFunction = Callable[[Floats, Floats], "TransportDistance | float"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TransportWeights(DomainWeights):
    """Weights from transport distances, and the quantities they were computed from. Distances are in units of
    ``diameter``.

    Attributes
    ----------
    distances : tuple of TransportDistance
        W1 of each domain to the focal one (0 for itself), each with its bounds and how it was found (`method`):
        exact, between bounds, or screened, which is only known to lie beyond the threshold.
    sampling_floor : TransportDistance or None
        Distance between two random halves of the focal domain; None if it has a single row or was not requested.
    diameter : Diameter
        What distances were divided by (1 if ``rescale=False``).
    relevance : array (N,)
        ``W1_i + n_i^(-1/(d+D))``.
    admitted : array (N,) of bool
        ``W1_i <= threshold``.
    counts, dimension
        n_i and d + D.
    """

    distances: tuple[TransportDistance, ...]
    sampling_floor: TransportDistance | None
    diameter: Diameter
    relevance: Floats
    admitted: Booleans
    counts: Integers
    dimension: int
    temperature: float
    threshold: float
    threshold_width: float = 0.0

    @property
    def prior(self) -> Floats:
        """The law on the domains from which the entropy of Theorem 1 is counted: uniform on the admitted ones, or with
        less mass on those within ``threshold_width`` below the threshold.
        """
        kept = shares_below(self.distances, self.threshold, self.threshold_width, self.focal, self.admitted)
        return kept / kept.sum()

    @property
    def t_gain(self) -> float:
        """T-Gain of the paper, see :func:`mixtune.regret.t_gain`; negative where sources improve the bound."""
        return float(self.values @ self.relevance - self.relevance[self.focal])

    @property
    def above_floor(self) -> Booleans:
        """Which domains are farther from the focal one than its own halves are from each other."""
        floor = 0.0 if self.sampling_floor is None else self.sampling_floor.value
        return np.array([d.value > floor for d in self.distances])


@dataclass(frozen=True)
class WassersteinWeights(WeightRule):
    """Thresholded softmin of transport distances to the focal domain.

    Parameters
    ----------
    temperature : float
        gamma >= 0: with 0 all admitted domains have the same weight, with large values only the closest has a weight.
    threshold : float
        eta >= 0: domains farther than this are left out; infinity admits all.
    threshold_width : float
        With 0, the paper's rule, a domain loses all its weight at once where its distance passes the threshold, however
        little its rows change. With a width the weight falls smoothly to nothing over so much below the threshold
        (times ``3x^2 - 2x^3`` of ``x = (threshold - distance)/width``), so that weights are continuous in the rows.
    distance : str or callable
        "auto", "exact", "line", "sliced" or "bracket" (see :func:`mixtune.wasserstein_distance`), or a function of
        two row samples.
    rescale : bool
        Divide by the pooled diameter, so that temperature and threshold have no unit.
    on : {"inputs", "features"}
        Compare (x, y) or (phi(x), y); the latter needs ``feature_map``.
    seed : int
        For the random parts: subsamples, directions, the halves of the floor.
    floor : bool
        Report the sampling floor, at the cost of one more distance.
    screen : bool
        Leave domains out without solving for their distance where a proven lower bound already exceeds the threshold.
        The weights are the same; such distances are reported as that bound, method "screened". Useful with many domains
        of which most are far from the focal one. Does nothing for "sliced" distances and for functions.
    jobs : int, optional
        Number of distances computed at the same time, each in its own thread; by default one for each processor.
        Functions are called one at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune import Domains, WassersteinWeights
    >>> x = np.linspace(0, 1, 20)[:, None]
    >>> domains = Domains.from_dict({"a": (x, x[:, 0]), "b": (x + 0.1, x[:, 0]), "c": (x + 9, x[:, 0])}, focal="a")
    >>> weights = WassersteinWeights(temperature=10.0, threshold=0.5).weigh(domains=domains)
    >>> weights.values.round(2)
    array([0.52, 0.48, 0.  ])
    """

    temperature: float
    threshold: float = float("inf")
    _: KW_ONLY
    threshold_width: float = 0.0
    distance: str | DistanceFunction = "auto"
    rescale: bool = True
    on: str = "inputs"
    seed: int = 0
    floor: bool = True
    screen: bool = False
    jobs: int | None = None
    needs: ClassVar[tuple[str, ...]] = ("domains",)

    def __post_init__(self) -> None:
        check_nonnegative("temperature", self.temperature)
        check_nonnegative("threshold", self.threshold, allow_infinite=True)
        check_nonnegative("threshold_width", self.threshold_width)
        check_choice("on", self.on, ("inputs", "features"))
        check_whole("seed", self.seed)
        if self.jobs is not None:
            check_whole("jobs", self.jobs, least=1)
        if not callable(self.distance):
            check_choice("distance", self.distance, METHODS)

    def _weigh(self, evidence: Evidence) -> DomainWeights:
        assert evidence.domains is not None
        clouds = self._clouds(evidence.domains, evidence.feature_map)
        # Rows may be a sample of what the moments were gathered from.
        counts = None if evidence.moments is None else [m.count for m in evidence.moments]
        return self.weigh_clouds(clouds, names=evidence.names, focal=evidence.focal, counts=counts)

    def weigh_clouds(
        self,
        clouds: Sequence[Array],
        *,
        focal: int = 0,
        names: tuple[str, ...] | None = None,
        counts: Sequence[int] | None = None,
    ) -> TransportWeights:
        """Weigh datasets given directly as points (x, y) or (phi(x), y), one array each.

        ``counts`` are the datasets' numbers of rows where the points are only samples of them. Large pairs of PyTorch
        or CuPy arrays are compared on their device.
        """
        clouds = [as_float64(cloud, what=f"clouds[{index}]") for index, cloud in enumerate(clouds)]
        focal = check_whole("focal", focal)
        if focal >= len(clouds):
            raise ParameterError(f"focal must be an index from 0 to {len(clouds) - 1}; got {focal}")
        for what, given in (("counts", counts), ("names", names)):
            if given is not None and len(given) != len(clouds):
                raise ParameterError(f"{what} must have one entry per dataset, {len(clouds)}; got {len(given)}")
        if counts is not None:
            counts = [check_whole("counts", n, least=1) for n in counts]
        distances, floor, diameter = self._distances(clouds, focal)
        sizes = np.array([len(cloud) for cloud in clouds] if counts is None else counts)
        dimension = clouds[focal].shape[1]
        scores = np.array([d.value for d in distances])
        relevance = scores + sizes ** (-1 / dimension)
        admitted = scores <= self.threshold  # the focal domain's own score is 0
        kept = shares_below(distances, self.threshold, self.threshold_width, focal, admitted)
        raw = kept * softmin(relevance, admitted, self.temperature)
        return TransportWeights(
            values=normalise(raw, focal),
            names=names or tuple(str(i) for i in range(len(clouds))),
            focal=focal,
            rule="wasserstein",
            scores=scores,
            distances=distances,
            sampling_floor=floor,
            diameter=diameter,
            relevance=relevance,
            admitted=admitted,
            counts=sizes,
            dimension=dimension,
            temperature=float(self.temperature),
            threshold=float(self.threshold),
            threshold_width=float(self.threshold_width),
        )

    def _clouds(self, domains: Domains, feature_map: FeatureMap | None) -> list[Array]:
        """Each domain as points (x, y) or (phi(x), y)."""
        if self.on == "features":
            if feature_map is None:
                raise ParameterError('WassersteinWeights(on="features") needs feature_map; pass it to weigh')
            domains = domains.map(feature_map)
        pairs = ((as_float64(d.X, what="X"), as_float64(d.targets, what="y")) for d in domains)
        return [namespace(X, Y).concat([X, Y], axis=1) for X, Y in pairs]

    def _distances(
        self, clouds: Sequence[Array], focal: int
    ) -> tuple[tuple[TransportDistance, ...], TransportDistance | None, Diameter]:
        diameter = pooled_diameter(clouds) if self.rescale else Diameter(1.0, True)
        unit = diameter.value or 1.0
        clouds = [cloud / unit for cloud in clouds]
        here = clouds[focal]
        others = [cloud for i, cloud in enumerate(clouds) if i != focal]
        wants_floor = self.floor and len(here) > 1
        floor = None
        if callable(self.distance):
            here, *others = (to_numpy(cloud) for cloud in (here, *others))
            found = [self._by_function(here, cloud) for cloud in others]
            if wants_floor:
                floor = self._by_function(*random_halves(here, self.seed))
        else:
            limit = float(self.threshold) if self.screen else float("inf")
            found = distances_to(here, others, method=self.distance, seed=self.seed, jobs=self.jobs, limit=limit)
            if wants_floor:
                floor = sampling_floor(here, method=self.distance, seed=self.seed)
        found.insert(focal, TransportDistance(0.0, 0.0, 0.0, "exact", certified=True, rows=(len(here), len(here))))
        return tuple(found), floor, diameter

    def _by_function(self, left: Floats, right: Floats) -> TransportDistance:
        assert callable(self.distance)
        value = self.distance(left, right)
        if isinstance(value, TransportDistance):
            return value
        number = check_nonnegative("the distance function's result", value)
        return TransportDistance(number, 0.0, float("inf"), "given", certified=False, rows=(len(left), len(right)))


def softmin(relevance: Floats, admitted: Booleans, temperature: float) -> Floats:
    """``exp(-temperature (relevance - least))`` where admitted, else 0: in [0, 1] for any scale, 1 somewhere."""
    least = relevance[admitted].min()
    with np.errstate(over="ignore", under="ignore"):
        return np.where(admitted, np.exp(-temperature * (np.where(admitted, relevance, least) - least)), 0.0)


def shares_below(
    distances: Sequence[TransportDistance], threshold: float, width: float, focal: int, admitted: Booleans
) -> Floats:
    """How much of its weight each domain keeps: all or nothing without a width, else smoothly falling to nothing."""
    if width == 0 or np.isinf(threshold):
        return admitted.astype(np.float64)
    scores = np.array([d.value for d in distances])
    below = np.clip((threshold - scores) / width, 0.0, 1.0)
    kept = np.asarray(below**2 * (3 - 2 * below), dtype=np.float64)
    kept[focal] = 1.0
    return kept
