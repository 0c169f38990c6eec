"""A model of gathering moments on a cluster, and the page that follows from it: python -m docs.scaling

The plan of a job (blocks, tasks, messages, bytes, depth of the tree) is counted from the rules of
`mixtune.streaming`; times come from rates that `python -m benchmarks cluster_rates` measured on one machine; a small
simulation lets the two meet for up to 1,000 workers. Fills docs/scaling.md and draws docs/results/scaling.svg.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.out_of_core import INPUTS
from benchmarks.results import Results, read
from docs.performance import MAIN, RESULTS, fill

from mixtune.streaming._dask import ENOUGH_TASKS, FAN, MOST_BLOCKS

PAGE = Path(__file__).with_name("scaling.md")
CURVE = RESULTS / "scaling.svg"
WORKERS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class Rates:
    """Seconds that things take: a row in one thread (by features), a byte merged, a byte sent, a task handed out."""

    row: dict[int, float]
    merge: float
    byte: float
    task: float

    @classmethod
    def of(cls, results: Results) -> Rates:
        """From the figures of a run."""
        rows, costs = (figure.values for figure in results.figures("rate"))
        row = {int(features): float(seconds) for features, seconds in rows.items()}
        return cls(row, costs["merge_seconds_per_byte"], costs["seconds_per_byte"], costs["seconds_per_task"])

    def row_seconds(self, features: int) -> float:
        """Between measured numbers of features by a power law; beyond them by p squared, before them constant."""
        known = sorted(self.row)
        if features > known[-1]:
            return self.row[known[-1]] * (features / known[-1]) ** 2
        logs = np.log([features, *known])
        return float(np.exp(np.interp(logs[0], logs[1:], np.log([self.row[k] for k in known]))))


@dataclass(frozen=True)
class Job:
    """Weak scaling: every worker brings the same number of rows, with all domains among them."""

    features: int
    domains: int = 4
    rows_per_worker: int = 10_000_000
    block_rows: int = 100_000
    outputs: int = 1

    @property
    def message_bytes(self) -> int:
        """The sums of all domains: whole Gram matrices travel, not their triangles."""
        p, D = self.features, self.outputs
        return 8 * self.domains * (p * p + p * D + D)


@dataclass(frozen=True)
class Plan:
    """What a cluster does for a job: counted, not timed."""

    job: Job
    workers: int

    @property
    def blocks(self) -> int:
        return math.ceil(self.workers * self.job.rows_per_worker / self.job.block_rows)

    @property
    def blocks_per_task(self) -> int:
        return min(max(self.blocks // ENOUGH_TASKS, 1), MOST_BLOCKS)

    @property
    def levels(self) -> list[int]:
        """Tasks at each level of the tree, the leaves first."""
        found = [math.ceil(self.blocks / self.blocks_per_task)]
        while found[-1] > 1:
            found.append(math.ceil(found[-1] / FAN))
        return found

    @property
    def depth(self) -> int:
        return len(self.levels) - 1

    @property
    def tasks(self) -> int:
        return sum(self.levels)

    @property
    def messages(self) -> int:
        """Sums that travel at the most: every input of a merge but the one made where the merge runs, and the end."""
        return 1 if self.workers == 1 else self.levels[0]

    @property
    def bytes(self) -> int:
        return self.messages * self.job.message_bytes


def leaf_seconds(plan: Plan, rates: Rates) -> float:
    """One task of blocks: its rows, and folding its blocks into one set of sums."""
    job = plan.job
    rows = plan.blocks_per_task * job.block_rows
    return rows * rates.row_seconds(job.features) + (plan.blocks_per_task - 1) * job.message_bytes * rates.merge


def merge_seconds(plan: Plan, rates: Rates, parts: int) -> float:
    """One merge: all parts but one are fetched, and all are added."""
    fetched = 0 if plan.workers == 1 else parts - 1
    return plan.job.message_bytes * (fetched * rates.byte + parts * rates.merge)


def tail_seconds(plan: Plan, rates: Rates) -> float:
    """From the last block to the end: one merge a level."""
    return plan.depth * merge_seconds(plan, rates, FAN) + plan.job.message_bytes * rates.byte


def most_workers(job: Job, rates: Rates) -> float:
    """Where one scheduler is busy all the time: workers finish tasks as fast as it hands them out."""
    plan = Plan(job, 10**6)
    return leaf_seconds(plan, rates) / (rates.task * plan.tasks / plan.levels[0])


def simulate(job: Job, workers: int, rates: Rates) -> float:
    """Seconds of a run: free workers take merges first, then blocks; the scheduler hands out one task at a time."""
    plan = Plan(job, workers)
    levels = plan.levels
    waiting = [[FAN] * count for count in levels]  # inputs that each merge still lacks
    for level in range(1, len(levels)):
        waiting[level][-1] = levels[level - 1] - FAN * (levels[level] - 1)
    whole = [list(lacks) for lacks in waiting]
    ready: list[tuple[int, int]] = []
    leaves, idle, now, handing = 0, workers, 0.0, 0.0
    running: list[tuple[float, int, int]] = []
    leaf = leaf_seconds(plan, rates)
    while True:
        while idle and (ready or leaves < levels[0]):
            level, place = ready.pop() if ready else (0, leaves)
            leaves += level == 0
            idle -= 1
            handing = max(now, handing) + rates.task
            taken = leaf if level == 0 else merge_seconds(plan, rates, whole[level][place])
            heapq.heappush(running, (handing + taken, level, place))
        now, level, place = heapq.heappop(running)
        idle += 1
        if level == len(levels) - 1:
            return now + job.message_bytes * rates.byte
        above = place // FAN
        waiting[level + 1][above] -= 1
        if waiting[level + 1][above] == 0:
            ready.append((level + 1, above))


def efficiency(job: Job, workers: int, rates: Rates) -> float:
    """The time of the rows alone on ever so many workers, over the time of the run."""
    return job.rows_per_worker * rates.row_seconds(job.features) / simulate(job, workers, rates)


JOBS = {
    "64": Job(64),
    "256": Job(256),
    "1024": Job(1024),
    "4096": Job(4096),
    "256, 400 domains": Job(256, domains=400),
    "256, 1,000,000 rows a worker": Job(256, rows_per_worker=1_000_000),
}


def plan_table(rates: Rates) -> str:
    """Counts and times for 1, 10, 100 and 1,000 workers."""
    lines = [
        "| features | workers | tasks | depth | messages | MB each | GB in all | seconds | efficiency |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, job in JOBS.items():
        for workers in (1, 10, 100, 1000):
            plan = Plan(job, workers)
            cells = (
                name,
                f"{workers:,}",
                f"{plan.tasks:,}",
                str(plan.depth),
                f"{plan.messages:,}",
                f"{job.message_bytes / 1e6:,.2f}",
                f"{plan.bytes / 1e9:,.1f}",
                f"{simulate(job, workers, rates):,.0f}",
                f"{efficiency(job, workers, rates):.0%}",
            )
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def limits_table(rates: Rates) -> str:
    """Where each part of the work begins to be what is waited for."""
    lines = [
        "| features | seconds a task | scheduler is full at | tree, from the last block | sums against rows, bytes |",
        "|---|---|---|---|---|",
    ]
    for name, job in JOBS.items():
        plan = Plan(job, 1000)
        heavy = job.message_bytes / (job.block_rows * 8 * (INPUTS + 2))  # with the target and the name of the domain
        lines.append(
            f"| {name} | {leaf_seconds(plan, rates):,.1f} | {most_workers(job, rates):,.0f} workers | "
            f"{tail_seconds(plan, rates):,.2f} s | {heavy:.2g} |"
        )
    return "\n".join(lines)


def draw(rates: Rates, path: Path) -> None:
    """Efficiency against workers."""
    import matplotlib as mpl
    from docs.pictures import GREY, ORANGE, STYLE, TEAL, VIOLET
    from matplotlib.figure import Figure

    colours = (ORANGE, VIOLET, TEAL, GREY, VIOLET, VIOLET)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        axes = figure.add_subplot()
        for (name, job), colour in zip(JOBS.items(), colours):
            style = "o-" if job == Job(job.features) else "o--" if job.domains == Job(1).domains else "o:"
            values = [efficiency(job, workers, rates) for workers in WORKERS]
            axes.semilogx(WORKERS, values, style, color=colour, markersize=3, label=f"p = {name}")
        axes.set(xlabel="workers", ylabel="efficiency", ylim=(0, 1.05))
        axes.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1, decimals=0))
        axes.legend(fontsize=8)
        figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})


def blocks(results: Results) -> dict[str, str]:
    """All that the page takes from results, by marker."""
    from docs.when import model_check, when_table

    rates = Rates.of(results)
    tables = {"plan": plan_table(rates), "limits": limits_table(rates)}
    return {**tables, "check": model_check(results, rates), "when": when_table(results, rates)}


def main() -> None:
    """Write the page and draw the curve."""
    results = read(MAIN)
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), blocks(results)), encoding="utf-8")
    draw(Rates.of(results), CURVE)


if __name__ == "__main__":
    main()
