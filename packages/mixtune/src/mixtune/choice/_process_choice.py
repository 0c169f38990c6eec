"""The choice for the focal domain of a process: validation tasks, the average, and what reports need of both.

Where every domain takes the focal role, domains with about as many rows share validation tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mixtune.arrays import Booleans, Floats
from mixtune.choice._average import PULL, Judgement, TaskErrors, average, least_error, mean_products
from mixtune.choice._choose import Choice, Pool
from mixtune.choice._families import USED, Fits
from mixtune.choice._maps import FeatureBlock, MapAverage
from mixtune.choice._model_averaging import ValidationTask, mix
from mixtune.choice._population import Population
from mixtune.choice._process import MANY_ROWS, CandidateFits, CommonProcess, Process, ProcessFamily
from mixtune.moments import Missing, Rows, Sample

#: Validation tasks, with few focal rows and with many; and of one source, at most, with other rows each time.
FEW_TASKS, MANY_TASKS, TASKS_PER_SOURCE = 20, 6, 2
#: Up to this many focal rows are few; beyond the second number, left-out rows say all.
FEW_ROWS, VALIDATED_ROWS = 100, 1000
#: Most rows to test a task on; and fewest rows to spare for it.
TEST_ROWS, LEAST_TESTS = 300, 8
#: Fewest sources for cross-domain validation: with two, each has one other to learn from.
VALIDATED_SOURCES = 3


@dataclass(frozen=True, eq=False)
class _Task:
    """A source in the focal role: rows to learn from, rows to test on, and what the candidates of each process make of
    them.

    ``inputs``, ``targets`` and ``weight`` are those of the rows that residuals are of: the tests, or the learning rows
    where no others could be spared.
    """

    source: int
    fits: Sequence[CandidateFits]
    spare: bool
    inputs: Floats
    targets: Floats
    weight: Floats
    learning_weight: Floats

    def residuals(self, place: int) -> Floats:
        """Residuals of the test rows, or of left-out rows, by the candidates of one process."""
        return self.targets - self.fits[place].predictions if self.spare else self.fits[place].left_out

    @cached_property
    def errors(self) -> TaskErrors:
        """What the average needs, for the candidates of all processes."""
        left_out = np.concatenate([fits.left_out for fits in self.fits])
        residuals = np.concatenate([self.residuals(place) for place in range(len(self.fits))])
        products = mean_products(residuals, self.weight)
        return TaskErrors(products, np.diagonal(mean_products(left_out, self.learning_weight)))

    def validation(self, place: int, alone: int, family: ProcessFamily) -> ValidationTask:
        """The task for reports, in the units of the estimator; ``alone`` is the candidate of own rows alone."""
        level = (family.process.level - family.target_shift) / family.process.unit
        return ValidationTask(
            self.source,
            self.residuals(place),
            self.weight,
            self.fits[place].left_out,
            alone,
            left_out_weight=self.learning_weight,
            targets=self.targets + level,
            inputs=self.inputs - family.shift[: family.process.kernel.width],
        )


def choose_processes(
    processes: Sequence[Process],
    focal: Sequence[Sample],
    blocks: Sequence[FeatureBlock],
    width: int,
    *,
    shift: Floats,
    target_shift: float,
    seed: int = 0,
) -> MapAverage:
    """The average over the candidates of all processes.

    Parameters
    ----------
    processes : sequence of Process
        Of the same rows.
    focal : sequence of Sample
        The focal domain in the features of each process, less ``shift``, with targets less ``target_shift``.
    blocks : sequence of FeatureBlock
        The places of these features among all features of the estimator, of which there are ``width``.
    seed : int
        Of the draw of validation tasks.
    """
    families = [ProcessFamily(process, shift[block.places], target_shift) for process, block in zip(processes, blocks)]
    tasks = _validated(families, len(processes[0].focal.targets), seed)
    return _averaged(families, focal, np.ones(families[0].n_sources), tasks, blocks, width)


def choose_every_process(
    processes: Sequence[CommonProcess],
    domains: Sequence[Rows],
    samples: Sequence[Sequence[Sample]],
    blocks: Sequence[FeatureBlock],
    width: int,
    *,
    shift: Floats,
    target_shift: float,
    seed: int = 0,
) -> Iterator[MapAverage]:
    """The same for every domain in turn, with all others as its sources.

    Parameters
    ----------
    processes : sequence of CommonProcess
        Of the same domains.
    domains : sequence of Rows
        The inputs and targets of all domains.
    samples : sequence of sequences of Sample
        For each process: all domains, as ``focal`` of :func:`choose_processes`.
    blocks, width, shift, target_shift, seed
        As for :func:`choose_processes`.
    """

    def families(index: int) -> list[ProcessFamily]:
        return [
            ProcessFamily(process.focused(domains[index], index), shift[block.places], target_shift)
            for process, block in zip(processes, blocks)
        ]

    totals = np.array([len(rows.y) for rows in domains])
    groups = [_group(total) for total in totals.tolist()]
    tasks = {}
    for group in sorted(set(groups)):
        rows = int(np.median(totals[[other == group for other in groups]]))
        tasks[group] = _validated(families(groups.index(group)), rows, seed)
    for index in range(len(domains)):
        others = [task for task in tasks[groups[index]] if task.source != index]
        allowed = (np.arange(len(domains)) != index).astype(np.float64)
        yield _averaged(families(index), [sample[index] for sample in samples], allowed, others, blocks, width)


def process_population(
    processes: Sequence[CommonProcess],
    domains: Sequence[Rows],
    blocks: Sequence[FeatureBlock],
    *,
    shift: Floats,
    target_shift: float,
) -> Population:
    """The shared function as the model of domains that were not seen, and what it leaves of each known domain.

    The arguments are those of :func:`choose_every_process`; residuals are by the function without that domain.
    """
    heads, residuals = [], []
    for process, block in zip(processes, blocks):
        evidence, width = process.evidence, process.features.n_inputs
        head = np.zeros(len(block.places) + 1)
        shared = slice(width, width + evidence.landmarks)
        head[shared] = process.unit * evidence.prior_without(np.ones(len(domains))).mean
        head[-1] = process.level - target_shift + head[:-1] @ shift[block.places]
        heads.append(head)
        left_out = []
        for index, rows in enumerate(domains):
            prior = evidence.prior_without(np.arange(len(domains)) != index)
            function = process.features.shared(process.features.units(rows.X)) @ prior.mean
            left_out.append(rows.y - process.level - process.unit * function)
        residuals.append(left_out)
    joined = [np.stack(parts) for parts in zip(*residuals)]
    # Every domain counts the same, whatever its units.
    products = [mean_products(part, rows.weight) for part, rows in zip(joined, domains)]
    shares = least_error(np.mean([each / np.diagonal(each).min() for each in products], axis=0), PULL)
    return Population([share * head for share, head in zip(shares, heads)], [shares @ part for part in joined])


def _group(total: int) -> tuple[int, bool]:
    """Domains of one group have about as many rows, and the same candidates."""
    return round(float(np.log2(max(total, 1)))), total > MANY_ROWS


def _averaged(
    families: Sequence[ProcessFamily],
    focal: Sequence[Sample],
    allowed: Floats,
    tasks: Sequence[_Task],
    blocks: Sequence[FeatureBlock],
    width: int,
) -> MapAverage:
    """One average over the candidates of all families, whose shares it puts together for each family."""
    rows = families[0].process.focal.weight
    scaled = [sample.divided(family.process.unit) for family, sample in zip(families, focal)]
    fits = [family.fits(sample, allowed) for family, sample in zip(families, scaled)]
    left_out = np.concatenate([own.paths.left_out for own in fits])
    products = mean_products(left_out, rows) if len(rows) > 1 else None
    own = np.concatenate([[label[0] != "shared" for label in family.labels] for family in families])
    shares = average(Judgement([task.errors for task in tasks], products, float(rows.sum()), own))
    errors = np.zeros(len(shares)) if products is None else np.diagonal(products)
    ends = np.cumsum([len(family.candidates) for family in families])[:-1]
    parts = np.split(shares, ends)
    choices = [
        _choice(families[place], place, fits[place], focal[place], scaled[place], parts[place], known, allowed, tasks)
        for place, known in enumerate(np.split(errors, ends))
    ]
    return MapAverage(choices, tuple(blocks), width, known_weights=np.array([part.sum() for part in parts]))


def _choice(
    family: ProcessFamily,
    place: int,
    fits: Fits,
    focal: Sample,
    scaled: Sample,
    part: Floats,
    errors: Floats,
    allowed: Floats,
    tasks: Sequence[_Task],
) -> Choice:
    """The average of the candidates of one family, which is at this place, by their part of all shares.

    ``errors`` are those of its candidates' left-out rows.
    """
    process, paths = family.process, fits.paths
    weight, unit = process.focal.weight, process.unit
    total = float(part.sum())
    shares = part / total if total > 0 else np.full(len(part), 1.0 / len(part))
    alone = _best_alone(family, errors)
    focal_shares = np.eye(len(shares))[alone]
    top = int(np.argmax(shares))
    left_out, focal_left_out = mix(shares, paths.left_out), mix(focal_shares, paths.left_out)
    start = sum(len(fits.left_out) for fits in tasks[0].fits[:place]) if tasks else 0
    every = slice(start, start + len(shares))
    validation = [task.validation(place, _best_alone(family, task.errors.left_out[every]), family) for task in tasks]
    return Choice(
        head=shares @ paths.heads * unit,
        labels=family.labels,
        shares=shares,
        errors=np.average(paths.left_out**2, axis=1, weights=weight) * unit**2,
        ridges=fits.ridges,
        task_errors=np.array([task.errors for task in validation]).reshape(len(tasks), len(shares)),
        weights=fits.weights,
        own=np.average(paths.leverages, axis=1, weights=weight),
        left_out=left_out * unit,
        judged_left_out=left_out * unit,
        spreads=_lacking(family, top) / (1.0 - paths.leverages[top]),
        top=top,
        focal_left_out=focal_left_out * unit,
        focal_judged_left_out=focal_left_out * unit,
        focal_head=focal_shares @ paths.heads * unit,
        focal_shares=focal_shares,
        tasks=[task.averaged(shares) for task in validation],
        size=unit,
        task=scaled,
        focal=focal,
        pool=Pool((family,), focal.columns),
        allowed=allowed,
        memos=[{USED: (shares > 0) | _focal_only(family)}],
    )


def _best_alone(family: ProcessFamily, errors: Floats) -> int:
    """The candidate of own rows alone with the smallest error; of kernels that the sources taught, none."""
    return int(np.argmin(np.where(_focal_only(family), errors, np.inf)))


def _lacking(family: ProcessFamily, index: int) -> Floats:
    """Variances (n,) of noise and of what the features of focal rows lack, over that of the noise."""
    candidate, focal, kernel = family.candidates[index], family.process.focal, family.process.kernel
    if candidate.family == "focal only":
        return np.ones(len(focal.targets))
    lacking = focal.missing_shared(kernel) + candidate.strength * focal.missing_own(kernel)
    return 1.0 + lacking * focal.weight / kernel.noise


def taught_inputs(choice: Choice) -> int:
    """The inputs of the kernel that a choice is about; 0 of other families."""
    family = choice.pool.families[0]
    return family.process.kernel.width if isinstance(family, ProcessFamily) else 0


def missing_part(choice: Choice, block: FeatureBlock, width: int) -> Missing | None:
    """What the features of a process lack of the functions of the candidate with the largest share, over the noise.

    Landmarks are rows; far from them features vary less than the function does. ``width`` is the number of all
    features. None for candidates that are linear in the inputs, and for other families.
    """
    family = choice.pool.families[0]
    if not isinstance(family, ProcessFamily) or family.candidates[choice.top].family == "focal only":
        return None
    kernel, strength = family.process.kernel, family.candidates[choice.top].strength
    inputs, landmarks = kernel.width, family.process.focal.shared.shape[1]
    slopes = np.zeros((2, len(family.shift)))
    slopes[0, :inputs] = kernel.shared_slopes / inputs
    slopes[0, inputs : inputs + landmarks] = -1.0
    slopes[1, inputs + landmarks :] = -strength * kernel.own_curve
    levels = np.array([kernel.shared_curve + kernel.shared_level, strength * kernel.own_curve])
    origin = block.coefficients(-family.shift, width)
    return Missing(levels / kernel.noise, block.coefficients(slopes.T, width).T / kernel.noise, origin)


def _focal_only(family: ProcessFamily) -> Booleans:
    return np.array([label[0].startswith("focal only") for label in family.labels])


def _validated(families: Sequence[ProcessFamily], rows: int, seed: int) -> list[_Task]:
    """Tasks with so many rows, of sources that have rows to spare, or about as many."""
    sources = families[0].process.sources
    if len(sources) < VALIDATED_SOURCES or rows > VALIDATED_ROWS:
        return []
    sizes = np.array([len(source.targets) for source in sources])
    able = np.flatnonzero(sizes >= rows + max(LEAST_TESTS, rows // 4))
    spare = len(able) >= 2
    if not spare:
        able = np.flatnonzero(sizes >= max(rows / 2, LEAST_TESTS))
    if len(able) < 2:
        return []
    rng = np.random.default_rng([seed, len(sources)])
    most = FEW_TASKS if rows <= FEW_ROWS else MANY_TASKS
    ordered = families[0].process.order
    drawn = rng.permutation(ordered[np.isin(ordered, able)])[:most]
    turns = min(most // len(drawn), TASKS_PER_SOURCE) if spare else 1
    return [_task(families, int(k), rows, spare, rng) for _ in range(turns) for k in drawn]


def _task(families: Sequence[ProcessFamily], source: int, rows: int, spare: bool, rng: np.random.Generator) -> _Task:
    order = rng.permutation(len(families[0].process.sources[source].targets))
    learning, testing = order[:rows], order[rows : rows + TEST_ROWS] if spare else order[:0]
    allowed = np.ones(families[0].n_sources)
    allowed[source] = 0.0
    fits = []
    for family in families:
        domain = family.process.sources[source]
        fits.append(family.task_fits(domain.part(learning), domain.part(testing), allowed))
    tested = testing if spare else learning
    # Processes differ in their features, not in targets and weights.
    known = domain.part(tested)
    return _Task(source, fits, spare, known.places.linear, known.targets, known.weight, domain.weight[learning])
