"""The choice for the focal domain of a process: validation tasks, the average, and what reports need of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixtune.arrays import Booleans, Floats
from mixtune.choice._average import Judgement, TaskErrors, average, mean_products
from mixtune.choice._choose import Choice, Pool
from mixtune.choice._families import USED
from mixtune.choice._maps import FeatureBlock, MapAverage
from mixtune.choice._model_averaging import ValidationTask, mix
from mixtune.choice._process import CandidateFits, DomainRows, Process, ProcessFamily
from mixtune.moments import Missing, Sample

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

    def errors(self) -> TaskErrors:
        """What the average needs."""
        left_out = mean_products(self.fits.left_out, self.rows.weight)
        return TaskErrors(mean_products(self.residuals, self.tested.weight), np.diagonal(left_out))

    def validation(self, alone: int, family: ProcessFamily) -> ValidationTask:
        """The task for reports, in the units of the estimator; ``alone`` is the candidate of own rows alone."""
        level = (family.process.level - family.target_shift) / family.process.unit
        tested = self.tested
        return ValidationTask(
            self.source,
            self.residuals,
            tested.weight,
            self.fits.left_out,
            alone,
            left_out_weight=self.rows.weight,
            targets=tested.targets + level,
            inputs=tested.places.linear - family.shift[: family.process.kernel.width],
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
    choices = [
        _choice(process, sample, shift[block.places], target_shift, seed)
        for process, sample, block in zip(processes, focal, blocks)
    ]
    return MapAverage(choices, tuple(blocks), width, known_weights=np.full(len(choices), 1.0 / len(choices)))


def _choice(process: Process, focal: Sample, shift: Floats, target_shift: float, seed: int) -> Choice:
    """The average of the candidates of one process."""
    family = ProcessFamily(process, shift, target_shift)
    task = focal.divided(process.unit)
    allowed = np.ones(family.n_sources)
    fits = family.fits(task, allowed)
    paths = fits.paths
    weight = process.focal.weight
    tasks = _validated(family, seed)
    own = np.array([label[0] != "shared" for label in family.labels])
    products = mean_products(paths.left_out, weight) if len(weight) > 1 else None
    rows = float(weight.sum())
    shares = average(Judgement([task.errors() for task in tasks], products, rows, own))
    alone = _best_alone(family, np.zeros(len(shares)) if products is None else np.diagonal(products))
    focal_shares = np.eye(len(shares))[alone]
    top = int(np.argmax(shares))
    left_out, focal_left_out = mix(shares, paths.left_out), mix(focal_shares, paths.left_out)
    unit = process.unit
    validation = [task.validation(_best_alone(family, task.errors().left_out), family) for task in tasks]
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
        task=task,
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


def _validated(family: ProcessFamily, seed: int) -> list[_Task]:
    """Tasks of sources that have rows to spare, or about as many as the focal domain."""
    sources, rows = family.process.sources, len(family.process.focal.targets)
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
