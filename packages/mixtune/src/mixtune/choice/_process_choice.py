"""The choice for the focal domain of a process: validation tasks, the average, and what reports need of both.

Where every domain takes the focal role, domains with about as many rows share validation tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mixtune.arrays import Booleans, Floats
from mixtune.choice._average import Judgement, TaskErrors, average, mean_products
from mixtune.choice._choose import Choice, Pool
from mixtune.choice._families import USED
from mixtune.choice._maps import FeatureBlock, MapAverage
from mixtune.choice._model_averaging import ValidationTask, mix
from mixtune.choice._population import Population
from mixtune.choice._process import MANY_ROWS, CandidateFits, CommonProcess, DomainRows, Process, ProcessFamily
from mixtune.moments import Rows, Sample

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
    """A source in the focal role: rows to learn from, rows to test on, and what the candidates make of them."""

    source: int
    rows: DomainRows
    tests: DomainRows
    fits: CandidateFits

    @property
    def residuals(self) -> Floats:
        """Residuals of the test rows; where no rows could be spared, those of left-out rows."""
        return self.tests.targets - self.fits.predictions if len(self.tests.targets) else self.fits.left_out

    @property
    def tested(self) -> DomainRows:
        """The rows that residuals are of."""
        return self.tests if len(self.tests.targets) else self.rows

    @cached_property
    def errors(self) -> TaskErrors:
        """What the average needs."""
        left_out = mean_products(self.fits.left_out, self.rows.weight)
        return TaskErrors(mean_products(self.residuals, self.tested.weight), np.diagonal(left_out))

    def validation(self, alone: int) -> ValidationTask:
        """The task for reports; ``alone`` is the candidate of own rows alone."""
        tested = self.tested
        return ValidationTask(
            self.source,
            self.residuals,
            tested.weight,
            self.fits.left_out,
            alone,
            left_out_weight=self.rows.weight,
            targets=tested.targets,
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
    """The mean over processes of the average of the candidates of each.

    Parameters
    ----------
    processes : sequence of Process
        Of the same rows.
    focal : sequence of Sample
        The focal domain in the features of each process, less ``shift``, with targets less ``target_shift``.
    blocks : sequence of FeatureBlock
        The places of these features among all features of the estimator, of which there are ``width``.
    seed : int
        Of the draw of validation tasks, which are the same for all.
    """
    choices = []
    for process, sample, block in zip(processes, focal, blocks):
        family = ProcessFamily(process, shift[block.places], target_shift)
        rows = len(process.focal.targets)
        tasks = _validated(family, rows, seed) if rows <= VALIDATED_ROWS else []
        choices.append(_choice(family, sample, np.ones(family.n_sources), tasks))
    return _mean(choices, blocks, width)


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
    totals = np.array([len(rows.y) for rows in domains])
    groups = [_group(total) for total in totals.tolist()]
    tasks: dict[tuple[int, int, bool], list[_Task]] = {}
    for place, (process, block) in enumerate(zip(processes, blocks)):
        for group in sorted(set(groups)):
            member = groups.index(group)
            family = ProcessFamily(process.focused(domains[member], member), shift[block.places], target_shift)
            rows = int(np.median(totals[[each == group for each in groups]]))
            tasks[place, *group] = _validated(family, rows, seed) if rows <= VALIDATED_ROWS else []
    for index, rows in enumerate(domains):
        choices = []
        for place, (process, sample, block) in enumerate(zip(processes, samples, blocks)):
            family = ProcessFamily(process.focused(rows, index), shift[block.places], target_shift)
            others = [task for task in tasks[place, *groups[index]] if task.source != index]
            allowed = (np.arange(len(domains)) != index).astype(np.float64)
            choices.append(_choice(family, sample[index], allowed, others))
        yield _mean(choices, blocks, width)


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
    heads = []
    left_out = [np.zeros(len(rows.y)) for rows in domains]
    for process, block in zip(processes, blocks):
        evidence, width = process.evidence, process.features.n_inputs
        every = np.ones(len(domains))
        head = np.zeros(len(block.places) + 1)
        shared = slice(width, width + evidence.landmarks)
        head[shared] = process.unit * evidence.prior_without(every).mean
        head[-1] = process.level - target_shift + head[:-1] @ shift[block.places]
        heads.append(head / len(processes))
        for index, rows in enumerate(domains):
            prior = evidence.prior_without(np.arange(len(domains)) != index)
            function = process.features.shared(process.features.units(rows.X)) @ prior.mean
            left_out[index] += (rows.y - process.level - process.unit * function) / len(processes)
    return Population(heads, left_out)


def _group(total: int) -> tuple[int, bool]:
    """Domains of one group have about as many rows, and the same candidates."""
    return round(float(np.log2(max(total, 1)))), total > MANY_ROWS


def _mean(choices: Sequence[Choice], blocks: Sequence[FeatureBlock], width: int) -> MapAverage:
    return MapAverage(choices, tuple(blocks), width, known_weights=np.full(len(choices), 1.0 / len(choices)))


def _choice(family: ProcessFamily, focal: Sample, allowed: Floats, tasks: Sequence[_Task]) -> Choice:
    """The average of the candidates of one process."""
    process = family.process
    task = focal.divided(process.unit)
    fits = family.fits(task, allowed)
    paths = fits.paths
    weight = process.focal.weight
    own = np.array([label[0] != "shared" for label in family.labels])
    products = mean_products(paths.left_out, weight) if len(weight) > 1 else None
    rows = float(weight.sum())
    shares = average(Judgement([task.errors for task in tasks], products, rows, own))
    alone = _best_alone(family, np.zeros(len(shares)) if products is None else np.diagonal(products))
    focal_shares = np.eye(len(shares))[alone]
    top = int(np.argmax(shares))
    left_out, focal_left_out = mix(shares, paths.left_out), mix(focal_shares, paths.left_out)
    unit = process.unit
    validation = [task.validation(_best_alone(family, task.errors.left_out)) for task in tasks]
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
        spreads=1.0 / (1.0 - paths.leverages[top]),
        top=top,
        focal_left_out=focal_left_out * unit,
        focal_judged_left_out=focal_left_out * unit,
        focal_head=focal_shares @ paths.heads * unit,
        focal_shares=focal_shares,
        tasks=[task.averaged(shares) for task in validation],
        size=unit,
        task=task,
        focal=focal,
        pool=Pool((family,), focal.columns),
        allowed=allowed,
        memos=[{USED: (shares > 0) | _focal_only(family)}],
    )


def _best_alone(family: ProcessFamily, errors: Floats) -> int:
    """The candidate of own rows alone with the smallest error; of kernels that the sources taught, none."""
    return int(np.argmin(np.where(_focal_only(family), errors, np.inf)))


def _focal_only(family: ProcessFamily) -> Booleans:
    return np.array([label[0].startswith("focal only") for label in family.labels])


def _validated(family: ProcessFamily, rows: int, seed: int) -> list[_Task]:
    """Tasks with so many rows, of sources that have rows to spare, or about as many."""
    sources = family.process.sources
    if len(sources) < VALIDATED_SOURCES:
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
    ordered = family.process.order
    drawn = rng.permutation(ordered[np.isin(ordered, able)])[:most]
    turns = min(most // len(drawn), TASKS_PER_SOURCE) if spare else 1
    return [_task(family, int(k), rows, spare, rng) for _ in range(turns) for k in drawn]


def _task(family: ProcessFamily, source: int, rows: int, spare: bool, rng: np.random.Generator) -> _Task:
    domain = family.process.sources[source]
    order = rng.permutation(len(domain.targets))
    learning = domain.part(order[:rows])
    tests = domain.part(order[rows : rows + TEST_ROWS] if spare else order[:0])
    allowed = np.ones(family.n_sources)
    allowed[source] = 0.0
    return _Task(source, learning, tests, family.task_fits(learning, tests, allowed))
