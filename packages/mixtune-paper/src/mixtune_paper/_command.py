"""``mixtune reproduce``: the paper's tables, figures and statements, resumable, with one command."""

import csv
import io
import logging
import shlex
import sys
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from mixtune import checks, files
from mixtune.arrays import torch_device
from mixtune.cli import outputs
from mixtune.errors import MixtuneError, ParameterError
from mixtune_paper import EXPERIMENTS, Check, Experiment, Summary, check_together, experiment, run_study
from mixtune_paper._study import MADE_WITH

ENGINES = ("local", "dask")
CHOICES = (*EXPERIMENTS, "all")
#: Experiments whose tables are the paper's.
LATEX = ("table1", "table2")
_RUNS_HELP = "Repetitions; by default as many as in the paper."
_JOBS_HELP = "Processes, local or of a new local cluster. The results do not depend on it."
_ENGINE_HELP = "Where to compute: on this machine, or on a Dask cluster."
_SCHEDULER_HELP = (
    "Address of the Dask scheduler, such as tcp://10.0.0.1:8786; by default a local cluster is started. The command "
    "gives up after 2 minutes without workers, or after DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT."
)
_DEVICE_HELP = "Compute with NumPy, or with PyTorch on a CUDA device (cuda:1 is the second)."
ON_DEVICE = "Wasserstein weights need the CPU: run without --device, with another folder (--out)."


def reproduce(
    what: Annotated[str, typer.Argument(metavar="|".join(CHOICES), help="What to reproduce.", show_default=False)],
    runs: Annotated[int | None, typer.Option(help=_RUNS_HELP, min=1, show_default=False)] = None,
    jobs: Annotated[int, typer.Option(help=_JOBS_HELP, min=1)] = 2,
    seed: Annotated[int, typer.Option(help="Base seed; each run has its own, derived from it.", min=0)] = 0,
    out: Annotated[Path, typer.Option(help="Folder of the results; study and files are kept there.")] = Path("results"),
    engine: Annotated[str, typer.Option(metavar="|".join(ENGINES), help=_ENGINE_HELP)] = "local",
    scheduler: Annotated[str | None, typer.Option(metavar="ADDRESS", help=_SCHEDULER_HELP)] = None,
    device: Annotated[str, typer.Option(metavar="cpu|cuda", help=_DEVICE_HELP)] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Reproduce the paper's tables and figures, and check its statements.

    Tables are written as CSV, those of the paper also as LaTeX, and figures as PNG, SVG and PDF. "all" ends with one
    table over all numbered statements of the paper, and writes it to paper.csv and, as a page, to paper.html.

    The command can be stopped at any time and run again: finished runs are kept in results.sqlite and are not repeated.

    The runs of a study can be spread over a Dask cluster, with the same numbers; table1 can run on a CUDA device, with
    the same numbers up to rounding.

    Example: mixtune reproduce figure1 --runs 10 --jobs 2 --out results/
    """
    if what not in CHOICES:
        raise ParameterError(f"there is no study {what!r} to reproduce; choose from {', '.join(CHOICES)}")
    from mixtune.report import write_figure
    from mixtune_paper._figures import FIGURES, draw
    from mixtune_paper.latex import latex_tables
    from mixtune_paper.page import verdicts_page
    from mixtune_paper.statements import table_of

    chosen = [experiment(name) for name in (EXPERIMENTS if what == "all" else [what])]
    how = _how(chosen, jobs, engine, scheduler, device)
    if any(each.name in FIGURES for each in chosen):
        checks.require_extra("matplotlib", "report", "drawing figures")
    console = Console(stderr=as_json, highlight=False, soft_wrap=True)
    documents: dict[str, Any] = {}
    verified: dict[str, Check] = {}
    try:
        for each in chosen:
            summary = _study(console, each, runs=runs, seed=seed, out=out, **how)
            written = [_write_csv(out / f"{stem}.csv", table) for stem, table in summary.tables().items()]
            if each.name in LATEX:
                tables = latex_tables(each.name, summary.as_json())
                written += [_write(out / f"{stem}.tex", table) for stem, table in tables.items()]
            if each.name in FIGURES:
                written += write_figure(partial(draw, each.name, summary), out, each.name, ("png", "svg", "pdf"))
            if not as_json:
                _show(console, each.name, summary)
                if how["device"] is not None:
                    console.print(ON_DEVICE)
            console.print(f"Wrote {escape(', '.join(str(path) for path in written))}\n")
            documents[each.name] = summary.as_json()
            verified |= summary.checks()
    except KeyboardInterrupt:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"Stopped. {escape(_kept(out))}")
        raise typer.Exit(130) from None
    except MixtuneError as error:
        if error.code == "another-configuration":
            # The folder is named as it is typed here.
            fields = {**error.fields, "out": "--out"}
            raise ParameterError(error.message.template, code=error.code, **fields) from error
        if not error.code.startswith("cluster-"):
            raise
        fields = {"problem": error.fields["problem"], "kept": _kept(out)}
        raise MixtuneError("{problem}. {kept}", code=error.code, **fields) from error
    if what == "all":
        documents["paper"] = verdicts = table_of(verified)
        if not as_json:
            shown = [
                {name: row[name] for name in ("statement", "says", "verdict", "power", "result")} for row in verdicts
            ]
            _show_table(console, "Every statement of the paper", shown)
        counts = {each.name: each.runs if runs is None else runs for each in chosen}
        page = verdicts_page(verdicts, seed=seed, runs=counts, made_with=MADE_WITH)
        written = [_write_csv(out / "paper.csv", verdicts), _write(out / "paper.html", page)]
        console.print(f"Wrote {escape(', '.join(map(str, written)))}")
    if as_json:
        outputs.print_json(documents if what == "all" else documents[what])


def execute_on_cluster(
    run: Any, settings: Any, seeds: Mapping[int, int], *, scheduler: str | None, jobs: int | None = None
) -> Generator[tuple[int, Any, float], None, None]:
    """Do the runs of a study on a cluster; yields (index, outcome, seconds) as the processes of this machine do.

    ``jobs`` is the number of processes of a local cluster; it is ignored for a cluster that runs already.
    """
    from mixtune.streaming import run_tasks

    given = {index: (settings, seed) for index, seed in seeds.items()}
    yield from run_tasks(run, given, scheduler=scheduler, workers=None if scheduler else jobs)


def _write_csv(path: Path, table: Sequence[Mapping[str, Any]]) -> Path:
    """Write a table, numbers with all their digits; completely or not at all."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return _write(path, text.getvalue())


def _write(path: Path, text: str) -> Path:
    return files.write_file(path, text.encode(), example=path.name)


def _kept(out: Path) -> str:
    return f"Finished runs are kept in {out}; to continue: {shlex.join(['mixtune', *sys.argv[1:]])}"


def _how(chosen: list[Experiment[Any]], jobs: int, engine: str, scheduler: str | None, device: str) -> dict[str, Any]:
    """Where the runs are done, as arguments of ``run_study``; what is not possible is refused before any work."""
    _check_engine(engine, scheduler)
    there = torch_device(device)
    if there is not None:
        if engine != "local":
            raise ParameterError("--device is for this machine, --engine dask for a cluster; leave one of them out")
        for each in chosen:
            check_together(each, there)
    executor = partial(execute_on_cluster, scheduler=scheduler, jobs=jobs) if engine == "dask" else None
    return {"jobs": jobs, "executor": executor, "device": there}


def _check_engine(engine: str, scheduler: str | None) -> None:
    """Refuse unknown engines, a scheduler without Dask, and Dask where it is not installed."""
    if engine not in ENGINES:
        raise ParameterError(f"--engine {engine} is unknown; choose from {', '.join(ENGINES)}")
    if engine == "local" and scheduler is not None:
        raise ParameterError("--scheduler is for --engine dask; add it, or leave the scheduler out")
    if engine == "dask":
        checks.import_extra("distributed", "dask", "work on a Dask cluster")
        # Dask logs tracebacks when it loses a connection; a mixtune error reports this in one line. It sets up its
        # loggers when it is imported.
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _study(console: Console, each: Experiment[Any], *, runs: int | None, seed: int, out: Path, **how: Any) -> Summary:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(each.name, start=False, visible=False, total=None)

        def progress(finished: int, total: int) -> None:
            if bar.tasks[task].started:
                bar.advance(task)
            else:  # runs that were finished earlier must not count for the speed of these
                bar.reset(task, completed=finished, total=total, visible=True)

        return run_study(each, out=out, seed=seed, runs=runs, progress=progress, **how)


def _show(console: Console, name: str, summary: Summary) -> None:
    _show_table(console, name, summary.headline())
    for note in summary.notes():
        console.print(escape(note))


def _show_table(console: Console, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column, value in rows[0].items():
        words = column.split("_")
        justify: Literal["left", "right"] = "left" if isinstance(value, str) else "right"
        table.add_column(" ".join(words), justify=justify, min_width=max(map(len, words)))
    for row in rows:
        cells = (f"{value:.4g}" if isinstance(value, float) else value for value in row.values())
        table.add_row(*("" if cell is None else escape(str(cell)) for cell in cells))
    console.print(table, soft_wrap=False)
