"""A Gaussian process over all domains, and the candidates it gives for one of them.

Domains share one function and deviate from it by a curve, a line and a level of their own
(:class:`mixtune.features.DomainKernel`). Sources whose relation is reversed are reflected about their mean first. The
shared function is a linear function of M features with prior N(0, I); what the rows of a source say of it is

    A = F'C^{-1}F and b = F'C^{-1}y,

with its features F and the covariance C of its deviations and noise. So sources are added and left out by sums, and
the prior of a domain is N(P^{-1} b, P^{-1}) with P = I + A, summed over the other domains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import blas, cho_factor, cho_solve, cholesky, lapack, solve_triangular

from mixtune.arrays import EPSILON, Floats, Integers
from mixtune.choice._choose import by_content, content_order
from mixtune.choice._families import USED, Fits, Label, Memo, Prior
from mixtune.choice._kernel_evidence import OWN_SLOPE, VARIANCES, Deviation, learn_deviations, learn_kernel
from mixtune.features import Coordinates, DomainKernel, InputUnits, KernelFeatures
from mixtune.moments import Paths, Rows, Sample

#: Rows that the kernel is learned from: focal ones up to this part, then so many of each source; and of each domain
#: where all are focal.
KERNEL_ROWS, FOCAL_PART, SOURCE_ROWS, COMMON_ROWS = 300, 2 / 3, 60, 150
#: Domains that the variances of own deviations are learned from, and rows of each; with fewer domains, none are.
#: Without this step, errors are 1% larger where the relation is a straight line and 20 rows are known.
DEVIATING_DOMAINS, DEVIATING_ROWS, FEWEST_DEVIATING = 40, 50, 4
#: Landmarks of the shared function, a third of them focal rows at most, and of own curves: of one focal domain, and of
#: all domains where each is focal.
LANDMARKS, OWN_LANDMARKS, COMMON_OWN_LANDMARKS = 350, 300, 150
#: Landmarks of straight lines, for each coefficient: as many span all lines, and more do so well.
STRAIGHT_LANDMARKS = 3
#: Rows of all sources together that inform the shared function, and rows whose deviations are handled at once.
ALL_SOURCE_ROWS, BLOCK_ROWS = 6000, 500
#: Where the targets of a source vary so many times more or less than the focal ones, they are brought to their scale.
LARGEST_SCALE_RATIO = 20.0
#: Source targets are moved to within so many robust standard deviations of their median: gross errors.
LARGEST_TARGET = 15.0
#: Targets that vary by less than this part of the largest are constant.
ROUNDED = 64 * EPSILON
#: Sources with a smaller part of the common function than this, relative to the largest, have no sign.
NO_FUNCTION = 1e-9
#: Rows that the sign of a source is told from.
SIGN_ROWS = 200
#: The variance of a level, or of a scale, of which nothing is assumed.
FREE = 100.0
#: Log likelihood by which the reversed shared function must be better: most domains have the common sign.
REVERSED_EVIDENCE = 2.0
#: While the kernel is learned, domains differ in level by at most so many units, and in scale by this factor.
KERNEL_LEVEL, KERNEL_SCALE = 5.0, 2.0


@dataclass(frozen=True, eq=False)
class DomainRows:
    """Rows of one domain: inputs, features (n, M) of the shared function, targets in common units, sample weights.

    The focal rows also have features (n, m) of own curves, in which the fitted function is linear.
    """

    places: Coordinates
    shared: Floats
    targets: Floats
    weight: Floats
    own: Floats | None = None

    def part(self, index: Any) -> DomainRows:
        """Some of the rows."""
        own = None if self.own is None else self.own[index]
        return DomainRows(self.places.part(index), self.shared[index], self.targets[index], self.weight[index], own)

    def own_covariance(self, kernel: DomainKernel, tests: DomainRows) -> Floats:
        """Covariances (n + m, n) of own deviations, of these rows and tests with these rows."""
        places = self.places.joined(tests.places)
        if self.own is None or tests.own is None:
            return kernel.own(places, self.places)
        lines = (places.linear * kernel.own_slopes) @ self.places.linear.T / kernel.width
        return lines + kernel.own_curve * np.vstack([self.own, tests.own]) @ self.own.T

    def missing_shared(self, kernel: DomainKernel) -> Floats:
        """Variances (n,) of the shared function that its features lack."""
        return np.maximum(kernel.shared_variances(self.places) - np.sum(self.shared**2, axis=1), 0.0)

    def missing_own(self, kernel: DomainKernel) -> Floats:
        """Variances (n,) of own curves that their features lack."""
        if self.own is None:
            return np.zeros(len(self.targets))
        return kernel.own_curve * np.maximum(1.0 - np.sum(self.own**2, axis=1), 0.0)


@dataclass(frozen=True, eq=False)
class SharedPrior:
    """The distribution N(mean, P^{-1}) of the coefficients of the shared function, with the lower root of P.

    The sign is -1 where the function of the sources is reversed.
    """

    mean: Floats
    root: Floats
    sign: float = 1.0

    def reversed(self) -> SharedPrior:
        """The prior of the reflected function."""
        return replace(self, mean=-self.mean, sign=-self.sign)

    def halves(self, shared: Floats) -> Floats:
        """Features (n, M) turned so that their inner products are covariances under this prior."""
        return np.asarray(solve_triangular(self.root, shared.T, lower=True).T)


@dataclass(frozen=True, eq=False)
class SharedEvidence:
    """What the rows of sources say of the shared function, as sums over sources.

    ``landmarks`` is the number of features of the shared function.
    """

    kernel: DomainKernel
    sources: Sequence[DomainRows]
    landmarks: int

    @cached_property
    def whitened(self) -> tuple[tuple[Floats, Floats], ...]:
        """Features and targets of each source, whitened by the covariance of its deviations and noise."""
        return tuple(self._whitened(rows) for rows in self.sources)

    def _whitened(self, rows: DomainRows) -> tuple[Floats, Floats]:
        kernel = self.kernel
        designs, targets = [], []
        for start in range(0, len(rows.targets), BLOCK_ROWS):
            block = rows.part(slice(start, start + BLOCK_ROWS))
            covariance = kernel.own(block.places, block.places) + kernel.own_level
            covariance[np.diag_indices(len(covariance))] += kernel.noise / block.weight + block.missing_shared(kernel)
            root = cholesky(covariance, lower=True)
            both = solve_triangular(root, np.column_stack([block.shared, block.targets]), lower=True)
            designs.append(both[:, :-1])
            targets.append(both[:, -1])
        return np.concatenate(designs), np.concatenate(targets)

    def informed(self, directions: Floats) -> Floats:
        """The sum of squares (N,) that each source has along directions (M, n) of the features."""
        designs = [design for design, _ in self.whitened]
        starts = np.cumsum([0, *(len(design) for design in designs[:-1])])
        squares = np.sum((np.concatenate(designs) @ directions) ** 2, axis=1)
        return np.asarray(np.add.reduceat(squares, starts))

    def prior_without(self, allowed: Floats) -> SharedPrior:
        """The prior of the shared function from the allowed sources (N,)."""
        precision, pull = self._sums
        for design, targets in (self.whitened[k] for k in np.flatnonzero(allowed == 0)):
            precision = precision - design.T @ design
            pull = pull - design.T @ targets
        root = cholesky(precision, lower=True)
        return SharedPrior(cho_solve((root, True), pull), root)

    @cached_property
    def _sums(self) -> tuple[Floats, Floats]:
        """The precision and the pull of all sources together."""
        width = self.landmarks
        precision, pull = np.eye(width), np.zeros(width)
        for design, targets in self.whitened:
            precision += design.T @ design
            pull += design.T @ targets
        return precision, pull

    def oriented(self, prior: SharedPrior, rows: DomainRows) -> SharedPrior:
        """The prior, or its reflection where that makes the rows of a domain clearly likelier."""
        kernel = self.kernel
        halves = prior.halves(rows.shared)
        covariance = halves @ halves.T + kernel.own(rows.places, rows.places) + FREE
        covariance[np.diag_indices(len(covariance))] += kernel.noise / rows.weight + rows.missing_shared(kernel)
        common = rows.shared @ prior.mean
        # The two likelihoods differ by the product of targets and prior mean alone.
        solved = cho_solve(cho_factor(covariance, lower=True), common)
        return prior.reversed() if 2.0 * float(rows.targets @ solved) < -REVERSED_EVIDENCE else prior


@dataclass(frozen=True, eq=False)
class Process:
    """The kernel that all domains taught, what the sources say under it, and the rows of the focal domain.

    Attributes
    ----------
    features : KernelFeatures
    focal : DomainRows
    evidence : SharedEvidence
        Of the sources, whose rows are in random order. Where every domain takes the focal role, they are all domains,
        the focal one included.
    order : array (N,)
        The sources in an order that follows from their content.
    signs : array (N,)
        -1 for sources that were reflected.
    level, unit : float
        Focal targets are ``level + unit * y`` in terms of the common ones.
    """

    features: KernelFeatures
    focal: DomainRows
    evidence: SharedEvidence
    order: Integers
    signs: Floats
    level: float
    unit: float

    @property
    def kernel(self) -> DomainKernel:
        """The kernel of the features."""
        return self.features.kernel

    @property
    def sources(self) -> Sequence[DomainRows]:
        """The rows of the sources."""
        return self.evidence.sources


class Aligned(NamedTuple):
    """A source in the units of the others: its targets are ``shift + factor * targets``, up to the sign."""

    targets: Floats
    sign: float = 1.0
    shift: float = 0.0
    factor: float = 1.0


@dataclass(frozen=True, eq=False)
class CommonProcess:
    """What all domains have in common: a :class:`Process` without a focal domain.

    ``shifts`` and ``factors`` (N,) are those of the sources' own units.
    """

    features: KernelFeatures
    evidence: SharedEvidence
    order: Integers
    signs: Floats
    level: float
    unit: float
    shifts: Floats
    factors: Floats

    def focused(self, rows: Rows, source: int | None = None) -> Process:
        """The process of a focal domain with these rows, which may be one of the sources."""
        level, unit = self.level, self.unit
        if source is not None:
            factor = float(self.factors[source])
            level, unit = float(self.shifts[source]) + factor * level, factor * unit
        places = self.features.units(rows.X)
        targets = (rows.y - level) / unit
        focal = DomainRows(places, self.features.shared(places), targets, rows.weight, self.features.own(places))
        return Process(self.features, focal, self.evidence, self.order, self.signs, level, unit)


def learn_process(domains: Sequence[Rows], *, seed: int, draw: int = 0, curved: bool = True) -> Process:
    """The process of the focal domain, which is the first, and its sources.

    Its kernel is learned from some of the rows; for another ``draw`` from others. Unless ``curved``, all functions are
    straight lines.
    """
    return _learned_process(domains[0], domains[1:], seed, draw, curved).focused(domains[0])


def learn_common_process(domains: Sequence[Rows], *, seed: int, draw: int = 0, curved: bool = True) -> CommonProcess:
    """The process of domains each of which is a source of the others."""
    return _learned_process(None, domains, seed, draw, curved)


def _learned_process(focal: Rows | None, others: Sequence[Rows], seed: int, draw: int, curved: bool) -> CommonProcess:
    """The process of sources, and of a focal domain if there is one."""
    rng = np.random.default_rng(seed)
    known = [] if focal is None else [focal]
    units = InputUnits.of(np.concatenate([rows.X for rows in (*known, *others)]))
    # What is drawn, and the order of all sums, follows from content: neither rows nor sources have an order.
    order = content_order([rows.scaled(lambda X: units(X).curved) for rows in others])
    sources = [_drawn(others[k], units, sum(len(rows.y) for rows in others), rng) for k in order]
    aligned = _aligned(focal, sources, units)
    parts = [*known, *sources]
    targets = [*(rows.y for rows in known), *(each.targets for each in aligned)]
    level = float(np.median([np.average(y, weights=rows.weight) for y, rows in zip(targets, parts)]))
    unit = _typical_deviation(targets)
    targets = [(y - level) / unit for y in targets]
    places = [units(rows.X) for rows in parts]
    rng = np.random.default_rng([seed, draw])
    first = None if focal is None else by_content(Rows(places[0].curved, targets[0], focal.sample_weight))
    width = units.mean.size
    kernel = _learned_kernel(places, targets, first, rng) if curved else _straight_kernel(width)
    inputs = np.concatenate([np.zeros((0, width)), *(rows.X for rows in sources)])
    own = rng.permutation(inputs) if focal is None else rng.permutation(focal.X[first])
    landmarks = _landmarks(inputs, own, focal is None, rng)[: LANDMARKS if curved else STRAIGHT_LANDMARKS * (width + 1)]
    most = 1 if not curved else COMMON_OWN_LANDMARKS if focal is None else OWN_LANDMARKS
    features = KernelFeatures(units, kernel, landmarks, _distinct(own)[:most])
    made = [DomainRows(place, features.shared(place), y, rows.weight) for place, y, rows in zip(places, targets, parts)]
    focal_rows = [made[0].part(first)] if known else []
    features = replace(features, kernel=_learned_deviations(features, focal_rows, made[len(known) :]))
    back = np.argsort(order)
    evidence = SharedEvidence(features.kernel, tuple(made[len(known) + k] for k in back), len(features.landmarks))
    signs, shifts, factors = (
        np.array([getattr(aligned[k], name) for k in back]) for name in ("sign", "shift", "factor")
    )
    return CommonProcess(features, evidence, order, signs, level, unit, shifts, factors)


def _drawn(rows: Rows, units: InputUnits, total: int, rng: np.random.Generator) -> Rows:
    """Rows of a source in random order: all, or its part of the most that all sources have."""
    most = max(int(ALL_SOURCE_ROWS * len(rows.y) / max(total, 1)), SOURCE_ROWS)
    ordered = by_content(rows.scaled(lambda X: units(X).curved))
    return rows.part(ordered[rng.permutation(len(rows.y))[:most]])


def _deviation(y: Floats) -> float:
    """The standard deviation of targets; 0 where they differ by rounding only, which must not become a scale."""
    return float(np.std(y)) if np.ptp(y) > ROUNDED * np.max(np.abs(y)) else 0.0


def _typical_deviation(targets: Sequence[Floats]) -> float:
    """The geometric mean, over rows, of the standard deviations within domains."""
    deviations = np.array([_deviation(y) for y in targets])
    counts = np.array([len(y) for y in targets], dtype=np.float64)
    varies = deviations > 0
    return float(np.exp(np.average(np.log(deviations[varies]), weights=counts[varies]))) if varies.any() else 1.0


def _aligned(focal: Rows | None, sources: Sequence[Rows], units: InputUnits) -> list[Aligned]:
    """The sources in the units of the focal domain; without one, in those of most sources.

    Sources of the opposite sign are reflected about their mean. Those whose targets vary very much more or less are
    brought to the level and scale of the others: they inform about the shape of the function only.
    """
    means = np.array([float(np.mean(rows.y)) for rows in sources])
    scales = np.array([_deviation(rows.y) for rows in sources])
    mean = float(np.median(means)) if focal is None else float(np.mean(focal.y))
    scale = 0.0 if focal is None else _deviation(focal.y)
    if scale == 0 and np.any(scales > 0):
        scale = float(np.median(scales[scales > 0]))
    aligned = []
    for sign, rows, own_mean, own_scale in zip(_signs(focal, sources, units), sources, means, scales):
        targets, shift, factor = own_mean + sign * (rows.y - own_mean), 0.0, 1.0
        if own_scale > 0 and scale > 0 and abs(np.log(own_scale / scale)) > np.log(LARGEST_SCALE_RATIO):
            factor = own_scale / scale
            shift = own_mean - factor * mean
            targets = (targets - shift) / factor
            own_scale = scale
        median = np.median(targets)
        spread = max(np.median(np.abs(targets - median)) / 0.6745, 0.5 * own_scale)
        clipped = np.clip(targets, median - LARGEST_TARGET * spread, median + LARGEST_TARGET * spread)
        aligned.append(Aligned(clipped, sign, shift, factor))
    return aligned


def _signs(focal: Rows | None, sources: Sequence[Rows], units: InputUnits) -> Floats:
    """1 or -1 for each source: the sign of its function along the leading common one.

    Functions are kernel ridge regressions on each source alone, at inputs of all of them. Most sources have the sign 1;
    where there is no majority, those that are like the focal domain.
    """
    if len(sources) < 2:
        return np.ones(len(sources))
    parts = [rows.part(slice(SIGN_ROWS)) for rows in sources]
    places = [units(rows.X) for rows in parts]
    common = Coordinates(*(np.concatenate(axis)[:: max(len(sources) // 2, 1)] for axis in zip(*places)))
    functions = np.array([_own_function(rows, units, common) for rows in parts])
    loadings, _, directions = np.linalg.svd(functions, full_matrices=False)
    # Sources of one row, or with equal targets, have no function: rounding would decide their sign.
    leading = loadings[:, 0]
    signs = np.sign(leading) * (np.abs(leading) > NO_FUNCTION * np.abs(leading).max())
    majority = float(signs.sum())
    if majority == 0 and focal is not None:
        majority = float(directions[0] @ _own_function(focal, units, common))
    return np.where((-signs if majority < 0 else signs) < 0, -1.0, 1.0)


def _own_function(rows: Rows, units: InputUnits, common: Coordinates) -> Floats:
    """Centred predictions at common inputs, by kernel ridge regression on the rows of one domain."""
    places, width = units(rows.X), common.linear.shape[1]
    lengths = np.full(width, 1.5 * width**0.5)
    kernel = DomainKernel(lengths, lengths, np.zeros(width), 1.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    covariance = kernel.shared(places, places) + np.eye(len(rows.y))
    centred = (rows.y - rows.y.mean()) / (_deviation(rows.y) or 1.0)
    function = kernel.shared(common, places) @ np.linalg.solve(covariance, centred)
    return np.asarray(function - function.mean())


def _learned_kernel(
    places: Sequence[Coordinates], targets: Sequence[Floats], first: Integers | None, rng: np.random.Generator
) -> DomainKernel:
    """The kernel by the marginal likelihood of focal rows, and of blocks of rows of some sources.

    ``first`` are the places of the focal rows, which come before the sources, in an order that follows from their
    content.
    """
    known = 0 if first is None else 1
    chosen = [] if first is None else [(0, rng.permutation(first)[: int(KERNEL_ROWS * FOCAL_PART)])]
    # A source whose target is constant would teach that there is no noise.
    sources = known + rng.permutation(len(targets) - known)
    varying = [k for k in sources if _deviation(targets[k]) > 0]
    for k in varying if chosen or varying else sources:
        free = KERNEL_ROWS - sum(len(index) for _, index in chosen)
        chosen.append((int(k), np.arange(len(targets[k]))[: min(SOURCE_ROWS if known else COMMON_ROWS, free)]))
    rows = Coordinates(*(np.concatenate([places[k][axis][index] for k, index in chosen]) for axis in (0, 1)))
    values = np.concatenate([_common_scale(targets[k])[index] for k, index in chosen])
    return learn_kernel(rows, values, np.repeat([k for k, _ in chosen], [len(index) for _, index in chosen]))


def _straight_kernel(width: int) -> DomainKernel:
    """A kernel of straight lines, of which nothing is assumed but how domains deviate."""
    lengths = np.ones(width)
    slopes = np.full(width, OWN_SLOPE)
    level, noise = VARIANCES[-2:]
    return DomainKernel(lengths, lengths, slopes, 0.0, float(width), 1.0, 0.0, level, noise)


def _learned_deviations(
    features: KernelFeatures, focal: Sequence[DomainRows], sources: Sequence[DomainRows]
) -> DomainKernel:
    """The kernel with variances of own deviations and noise that many domains tell, each given the sources.

    The lengths, and all that concerns the shared function, stay as they are.
    """
    kernel = features.kernel
    varying = [rows for rows in sources if _deviation(rows.targets) > 0]
    if len(focal) + len(varying) < FEWEST_DEVIATING:
        return kernel
    used = [replace(rows, targets=_common_scale(rows.targets)) for rows in varying[:DEVIATING_DOMAINS]]
    evidence = SharedEvidence(kernel, used, len(features.landmarks))
    deviations = []
    for index, rows in enumerate([*used, *focal]):
        some = rows.part(slice(DEVIATING_ROWS))
        prior = evidence.oriented(evidence.prior_without(np.arange(len(used)) != index), some)
        halves = prior.halves(some.shared)
        uncertain = halves @ halves.T + np.diag(some.missing_shared(kernel))
        curves = np.sign(kernel.own_curve) * kernel.own_curves(some.places, some.places)
        residuals = some.targets - some.shared @ prior.mean
        deviations.append(Deviation(residuals, uncertain, some.places.linear, curves, some.weight))
    learned = learn_deviations(kernel, deviations)
    return learned if kernel.own_curve > 0 else replace(learned, own_curve=0.0)


def _common_scale(targets: Floats) -> Floats:
    """Targets of a domain, with a level and a scale that are not too far from those of the others."""
    mean, scale = float(np.mean(targets)), _deviation(targets)
    inside = np.clip(scale, 1 / KERNEL_SCALE, KERNEL_SCALE)
    factor = inside / scale if scale > 0 else 1.0
    return np.clip(mean, -KERNEL_LEVEL, KERNEL_LEVEL) + (targets - mean) * factor


def _landmarks(inputs: Floats, own: Floats, every: bool, rng: np.random.Generator) -> Floats:
    """Distinct inputs (M, p): rows of all sources, and a part of the focal rows first unless all are sources."""
    focal = own[: 0 if every else LANDMARKS // 3]
    others = rng.permutation(inputs) if len(inputs) else own[LANDMARKS // 3 :]
    return _distinct(np.concatenate([focal, others]))[:LANDMARKS]


def _distinct(rows: Floats) -> Floats:
    _, index = np.unique(rows, axis=0, return_index=True)
    return np.ascontiguousarray(rows[np.sort(index)])


@dataclass(frozen=True)
class ProcessCandidate:
    """How the prior of one candidate differs from that of the process.

    Attributes
    ----------
    family : str
        "shared", "own curves" (own rows alone, with the kernel that all domains taught) or "focal only" (a straight
        line, by ridge regression on own rows).
    strength : float
        The variance of own deviations is this multiple of the learned one; of ridge regression, the ridge.
    free_level : bool
        Whether nothing is assumed of the domain's level.
    scale : float
        The variance of the factor by which the shared function counts, about 1.
    """

    family: str
    strength: float
    free_level: bool = True
    scale: float = 0.0

    @property
    def free_variance(self) -> float:
        """The variance of a level of which nothing is assumed; about ridge regression, in proportion to the ridge."""
        return FREE * max(self.strength, 1.0) if self.family == "focal only" else FREE

    @property
    def label(self) -> Label:
        """What lists of candidates say."""
        if self.family == "focal only":
            return self.family, {"relative ridge": self.strength}
        settings = {"deviations": self.strength, "level": "free" if self.free_level else "learned"}
        return self.family, {**settings, **({"stretch": self.scale} if self.scale else {})}


#: Strengths of deviations, with few rows and with many; and ridges.
STRENGTHS, FEW_STRENGTHS = (0.25, 1.0, 4.0, 32.0), (1.0, 8.0)
OWN_STRENGTHS = (1.0, 8.0)
RIDGES = (1e-4, 1e-2, 0.1, 1.0, 10.0)
#: With more rows than this, there are fewer candidates: each costs a factorisation.
MANY_ROWS = 500


def process_candidates(rows: int, sources: int) -> tuple[ProcessCandidate, ...]:
    """The candidates for a domain with so many rows, and so many sources."""
    many = rows > MANY_ROWS
    variants = ((False, 0.0), (True, 0.0), (True, 0.5), (True, 100.0))
    strengths = FEW_STRENGTHS if many else STRENGTHS
    shared = [ProcessCandidate("shared", s, free, scale) for s in strengths for free, scale in variants]
    own = "own curves" if sources else "focal only curves"
    curves = [ProcessCandidate(own, strength) for strength in (OWN_STRENGTHS[:1] if many else OWN_STRENGTHS)]
    lines = [ProcessCandidate("focal only", ridge) for ridge in (RIDGES[1::2] if many else RIDGES)]
    return tuple((shared if sources else []) + curves + lines)


@dataclass(frozen=True, eq=False)
class CandidateFits:
    """What the candidates make of the rows of one domain: all that the average and the coefficients need.

    Attributes
    ----------
    solved : array (C, n)
        Residuals of the prior mean, divided by the covariance.
    left_out, leverages : arrays (C, n)
    predictions : array (C, m)
        For test rows.
    """

    solved: Floats
    left_out: Floats
    leverages: Floats
    predictions: Floats


def fit_candidates(
    kernel: DomainKernel,
    candidates: Sequence[ProcessCandidate],
    prior: SharedPrior,
    rows: DomainRows,
    tests: DomainRows,
) -> CandidateFits:
    """Posterior means of all candidates at test rows, and residuals of left-out rows, in closed form."""
    count = len(rows.targets)
    places, shared = rows.places.joined(tests.places), np.vstack([rows.shared, tests.shared])
    halves = prior.halves(shared)
    uncertain = halves @ halves[:count].T
    unknown = shared @ shared[:count].T
    own = rows.own_covariance(kernel, tests)
    lines = places.linear @ rows.places.linear.T / kernel.width
    common = shared @ prior.mean
    centred = common - np.average(common[:count], weights=rows.weight)
    missing, missing_own = rows.missing_shared(kernel), rows.missing_own(kernel)
    parts = []
    for candidate in candidates:
        if candidate.family == "focal only":
            mean = np.zeros(len(common))
            covariance, noise = lines + candidate.free_variance, candidate.strength / rows.weight
        else:
            transfers = candidate.family == "shared"
            mean = common if transfers else np.zeros(len(common))
            covariance = (uncertain if transfers else unknown) + candidate.strength * own
            covariance += FREE if candidate.free_level else kernel.own_level
            if candidate.scale:
                covariance += candidate.scale * np.outer(centred, centred[:count])
            noise = kernel.noise / rows.weight + missing + candidate.strength * missing_own
        system = covariance[:count].copy()
        system[np.diag_indices(count)] += noise
        inverse = inverted(system)
        precision = np.diagonal(inverse)
        solved = blas.dsymv(1.0, inverse, rows.targets - mean[:count], lower=1)
        predictions = mean[count:] + covariance[count:] @ solved
        leverages = np.clip(1.0 - noise * precision, 0.0, 1.0 - 1e-12)
        parts.append((solved, solved / precision, leverages, predictions))
    return CandidateFits(*(np.array(values) for values in zip(*parts)))


def inverted(covariance: Floats) -> Floats:
    """The inverse of a positive definite matrix, of which only the lower half is set."""
    root, failed = lapack.dpotrf(covariance, lower=True)
    if failed:
        raise np.linalg.LinAlgError(f"leading minor {failed} of a covariance is not positive")
    return np.asarray(lapack.dpotri(root, lower=True)[0])


@dataclass(frozen=True, eq=False)
class ProcessFamily:
    """The candidates of a process for its focal domain, as coefficients of the process's features.

    ``shift`` (d,) and ``target_shift`` are subtracted from features and targets elsewhere; coefficients are about them.
    """

    process: Process
    shift: Floats
    target_shift: float

    @property
    def n_sources(self) -> int:
        """The number of sources."""
        return len(self.process.sources)

    @cached_property
    def candidates(self) -> tuple[ProcessCandidate, ...]:
        """All candidates; with few rows or many, the same for every task."""
        return process_candidates(len(self.process.focal.targets), self.n_sources)

    @property
    def labels(self) -> list[Label]:
        return [candidate.label for candidate in self.candidates]

    def prior_for(self, rows: DomainRows, allowed: Floats) -> SharedPrior:
        """The prior of the shared function from the allowed sources (N,), or its reflection."""
        evidence = self.process.evidence
        return evidence.oriented(evidence.prior_without(allowed), rows)

    def task_fits(self, rows: DomainRows, tests: DomainRows, allowed: Floats) -> CandidateFits:
        """The candidates for rows of any domain, with the allowed sources."""
        prior = self.prior_for(rows, allowed)
        return fit_candidates(self.process.kernel, self.candidates, prior, rows, tests)

    def fits(self, task: Sample, allowed: Floats, memo: Memo | None = None) -> Fits:
        """The candidates of the focal domain; of those that the memo says are not used, nothing is computed."""
        focal, kernel = self.process.focal, self.process.kernel
        prior = self.prior_for(focal, allowed)
        used = np.flatnonzero((memo or {}).get(USED, np.ones(len(self.candidates))))
        candidates = [self.candidates[index] for index in used]
        fitted = fit_candidates(kernel, candidates, prior, focal, focal.part(slice(0, 0)))
        heads = np.zeros((len(self.candidates), len(self.shift) + 1))
        heads[used] = [self._head(candidate, prior, solved) for candidate, solved in zip(candidates, fitted.solved)]
        left_out, leverages = np.zeros((2, len(self.candidates), len(focal.targets)))
        left_out[used], leverages[used] = fitted.left_out, fitted.leverages
        transfers = np.array([candidate.family == "shared" for candidate in self.candidates], dtype=np.float64)
        # Where only some candidates are used, nobody asks for weights of sources, which cost more than the fits.
        weights = np.outer(transfers, np.zeros(len(allowed)) if memo else self._source_weights(prior, allowed))
        ridges = np.array([self._ridge(candidate) for candidate in self.candidates])
        # Without its only row, nothing is left of the domain to predict that row from.
        if len(focal.targets) == 1:
            left_out[:] = np.inf
        return Fits(Paths(heads, left_out, leverages), weights, ridges)

    def _ridge(self, candidate: ProcessCandidate) -> float:
        focal_only = candidate.family == "focal only"
        return candidate.strength if focal_only else self.process.kernel.noise / candidate.strength

    def _source_weights(self, prior: SharedPrior, allowed: Floats) -> Floats:
        """Parts (N,) of the prior mean at the focal rows that come from each source; reflected ones have none."""
        if not self.n_sources:
            return np.zeros(0)
        directions = cho_solve((prior.root, True), self.process.focal.shared.T)
        weights = self.process.evidence.informed(directions)
        weights = weights * (allowed > 0) * (self.process.signs * prior.sign > 0)
        return weights / weights.sum() if weights.sum() > 0 else weights

    def _head(self, candidate: ProcessCandidate, prior: SharedPrior, solved: Floats) -> Floats:
        """Coefficients of all features, about their shift, and of the constant."""
        process, focal = self.process, self.process.focal
        kernel, own = process.kernel, focal.own
        assert own is not None
        pulled = focal.places.linear.T @ solved / kernel.width
        if candidate.family == "focal only":
            parts = [pulled, np.zeros(focal.shared.shape[1]), np.zeros(own.shape[1])]
            return self._about(np.concatenate(parts), candidate.free_variance * float(solved.sum()))
        lines = candidate.strength * kernel.own_slopes * pulled
        curves = candidate.strength * kernel.own_curve * (own.T @ solved)
        shared, level = focal.shared.T @ solved, float(solved.sum())
        level *= FREE if candidate.free_level else kernel.own_level
        if candidate.family == "shared":
            common = focal.shared @ prior.mean
            middle = np.average(common, weights=focal.weight)
            stretch = candidate.scale * float((common - middle) @ solved)
            level -= stretch * middle
            shared = cho_solve((prior.root, True), shared) + (1.0 + stretch) * prior.mean
        return self._about(np.concatenate([lines, shared, curves]), level)

    def _about(self, coefficients: Floats, constant: float) -> Floats:
        offset = (self.process.level - self.target_shift) / self.process.unit
        return np.append(coefficients, constant + float(coefficients @ self.shift) + offset)

    def prior(self, task: Sample, allowed: Floats, index: int, memo: Memo | None = None) -> Prior:
        """The prior of one candidate, of the coefficients of features about their shift and of the constant."""
        process, candidate = self.process, self.candidates[index]
        kernel, width, landmarks = process.kernel, process.kernel.width, process.focal.shared.shape[1]
        size = len(self.shift)
        covariance = np.zeros((size + 1, size + 1))
        mean = np.zeros(size)
        lines, shared, curves = slice(0, width), slice(width, width + landmarks), slice(width + landmarks, size)
        if candidate.family == "focal only":
            covariance[lines, lines] = np.eye(width) / width
            covariance[-1, -1] = candidate.free_variance
            return self._moved_prior(mean, covariance, candidate.strength)
        covariance[lines, lines] = np.diag(candidate.strength * kernel.own_slopes / width)
        covariance[curves, curves] = candidate.strength * kernel.own_curve * np.eye(size - width - landmarks)
        covariance[-1, -1] = FREE if candidate.free_level else kernel.own_level
        covariance[shared, shared] = np.eye(landmarks)
        if candidate.family == "shared":
            known = self.prior_for(process.focal, allowed)
            covariance[shared, shared] = cho_solve((known.root, True), np.eye(landmarks))
            mean[shared] = known.mean
            if candidate.scale:
                middle = np.average(process.focal.shared @ known.mean, weights=process.focal.weight)
                stretched = np.append(mean, -middle)
                covariance += candidate.scale * np.outer(stretched, stretched)
        return self._moved_prior(mean, covariance, kernel.noise)

    def _moved_prior(self, mean: Floats, covariance: Floats, noise: float) -> Prior:
        """The prior of coefficients about the shift, of which the constant takes up the difference."""
        turn = np.eye(len(covariance))
        turn[-1, :-1] = self.shift
        return Prior(self._about(mean, 0.0), turn @ covariance @ turn.T, noise, 1.0, False)
