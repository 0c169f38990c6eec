"""``mixtune demo``: the whole way on a synthetic family of datasets, with the result next to the alternatives."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from mixtune.data import SyntheticProblem, make_domains
from mixtune.features import RandomFeatures
from mixtune.moments import Moments
from mixtune.regret import RegretProblem, RegretSolution, certify, joint_head, local_head, mean_local_head, solve
from mixtune.weights import DomainWeights, PredictiveWeights, TransportWeights, WassersteinWeights

__all__ = ["demo"]

RIDGE, SHARING, TRANSFER, STABILITY, HORIZON, WIDTH = 1.0, 0.5, 0.5, 1.0, 10, 200


@dataclass(frozen=True, eq=False)
class DemoResult:
    """All that the demo shows."""

    problem: SyntheticProblem
    distances: TransportWeights
    weights: DomainWeights
    solution: RegretSolution
    errors: dict[str, float]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        floor = self.distances.sampling_floor
        certificate = certify(self.solution)
        return {
            "domains": [
                {"name": d.name, "rows": d.n_rows, "distance": distance, "mse": float(error), "weight": float(weight)}
                for d, distance, error, weight in zip(
                    self.problem.domains,
                    (d.value for d in self.distances.distances),
                    self.weights.scores if self.weights.scores is not None else (),
                    self.weights.values,
                )
            ],
            "sampling_floor": None if floor is None else floor.value,
            "test_rmse": self.errors,
            "effective_ridge": self.solution.effective_ridge,
            "loss": self.solution.loss,
            "energy": certificate.energy,
            "optimal_cost": certificate.optimal_cost,
            "regret": certificate.regret,
            "seconds": self.seconds,
        }


def demo(
    seed: Annotated[int, typer.Option(help="Seed of the synthetic data and of the random features.", min=0)] = 0,
    sources: Annotated[int, typer.Option(help="Number of source domains, a third of them unrelated.", min=1)] = 9,
    rows: Annotated[int, typer.Option(help="Rows of the focal domain.", min=2)] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Transfer to a small synthetic dataset from related and unrelated ones.

    Example: mixtune demo --seed 3 --rows 50
    """
    console = Console(stderr=as_json, highlight=False)
    result = _run(console, seed=seed, sources=sources, rows=rows)
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=2))
    else:
        _show(console, result)


def _run(console: Console, *, seed: int, sources: int, rows: int) -> DemoResult:
    problem = make_domains(n_domains=sources + 1, n_unrelated=sources // 3, n_rows=rows, seed=seed)
    domains = problem.domains
    phi = RandomFeatures(
        n_inputs=problem.test.n_columns, width=WIDTH, activation="tanh", normalise=True, output_scale=5.0, seed=seed
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    begin = time.perf_counter()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("Features and moments", total=len(domains) + 3)
        moments = []
        for domain in domains:
            moments.append(Moments.from_rows(phi.transform(domain.X), domain.y))
            progress.advance(task)
        progress.update(task, description="Distances           ")
        distances = WassersteinWeights(temperature=5.0).weigh(domains=domains)
        progress.advance(task)
        progress.update(task, description="Heads and weights   ")
        heads = [m.head(RIDGE) for m in moments]
        weights = PredictiveWeights(sharing=SHARING).weigh(domains=domains, moments=moments, heads=heads)
        progress.advance(task)
        progress.update(task, description="Regret-optimal solve")
        solution = solve(
            RegretProblem(
                moments=moments, weights=weights, heads=heads, transfer=TRANSFER, stability=STABILITY, horizon=HORIZON
            )
        )
        progress.advance(task)
    seconds = time.perf_counter() - begin
    U, y, focal = phi.transform(problem.test.X), problem.test.y, domains.focal_index
    coefs = {
        "focal domain alone": local_head(moments, focal, ridge=RIDGE),
        "mean of local heads": mean_local_head(moments, ridge=RIDGE),
        "all rows pooled": joint_head(moments, ridge=RIDGE),
        "mixtune": solution.coef,
    }
    errors = {name: float(np.sqrt(np.mean((y - U @ coef) ** 2))) for name, coef in coefs.items()}
    assert isinstance(distances, TransportWeights)
    return DemoResult(problem, distances, weights, solution, errors, seconds)


def _show(console: Console, result: DemoResult) -> None:
    facts = result.as_dict()
    table = Table(title="Which datasets count", title_justify="left")
    table.add_column("domain")
    for name in ("rows", "W1", "MSE", "weight"):
        table.add_column(name, justify="right")
    for domain in facts["domains"]:
        style = "bold" if domain["name"] == result.problem.domains.focal else "dim" if domain["weight"] == 0 else ""
        cells = (f"{domain['distance']:.3f}", f"{domain['mse']:.3f}", f"{domain['weight']:.3f}")
        table.add_row(domain["name"], str(domain["rows"]), *cells, style=style)
    console.print(table)
    sources = len(facts["domains"]) - 1
    below = sources - int(result.distances.above_floor.sum())
    console.print(
        f"W1: distance to the focal domain, in units of the pooled diameter. Two halves of the focal domain itself are "
        f"{facts['sampling_floor']:.3f} apart (the sampling floor). Sources within it: {below} of {sources}; W1 alone "
        "cannot tell those from the focal domain at this size.\n"
        "MSE: mean squared error of the domain's own head on the focal rows; the weights come from it.\n"
    )
    table = Table(title="Error on 1,000 new rows of the focal domain", title_justify="left")
    table.add_column("method")
    table.add_column("RMSE", justify="right")
    table.add_column("against focal alone", justify="right")
    alone = result.errors["focal domain alone"]
    for name, error in result.errors.items():
        change = "" if error == alone else f"{100 * (error / alone - 1):+.0f}%"
        table.add_row(name, f"{error:.4f}", change, style="bold green" if name == "mixtune" and error < alone else "")
    console.print(table)
    console.print(
        f"Effective ridge {facts['effective_ridge']:.3g}, energy {facts['energy']:.4g} (optimal cost "
        f"{facts['optimal_cost']:.4g}), regret {facts['regret']:.4g}; all of it in {result.seconds:.2f} s."
    )
