"""Golden runs of the command line: exit codes, what is printed, and the files that are written.

Commands run in this process, as a terminal of 80 columns without colours would show them, in a
temporary folder that is the working folder, so that its name appears nowhere. ``recorded.VARYING``
lists what is replaced by placeholders.

A session is a folder with some tables and a list of commands that run in it one after the other.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from golden import cases, recorded
from mixtune.cli import main
from mixtune.estimators import read_info

ENVIRONMENT = {"COLUMNS": "80", "LINES": "24", "TERM": "dumb", "NO_COLOR": "1"}
#: Variables that would bring colours back, or draw for a notebook.
UNSET = (
    "FORCE_COLOR",
    "CLICOLOR_FORCE",
    "TTY_COMPATIBLE",
    "GITHUB_ACTIONS",
    "PY_COLORS",
    "JPY_PARENT_PID",
)

#: Endings of files whose contents are compared as text, and of pictures and databases, which are
#: only named.
TEXTS = (".csv", ".tsv", ".json", ".toml", ".txt")


@dataclass(frozen=True)
class Session:
    """Tables to write, and the commands that follow: (name, arguments)."""

    prepare: Callable[[Path], None]
    commands: tuple[tuple[str, str], ...]
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        return cases.lacking(self.needs)


# --- running --------------------------------------------------------------------------------------


@contextlib.contextmanager
def terminal(folder: Path) -> Iterator[None]:
    """The working folder and the environment of a command."""
    before = Path.cwd()
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    with mock.patch.dict(os.environ, {**kept, **ENVIRONMENT}, clear=True):
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def in_this_process(arguments: list[str], folder: Path) -> recorded.Fields:
    """Run a command through ``main``, as the installed program does."""
    out, err = io.StringIO(), io.StringIO()
    # The name of the program is read off __main__, which is pytest's here.
    own_name = mock.patch.object(sys.modules["__main__"], "__package__", None)
    own_arguments = mock.patch.object(sys, "argv", ["mixtune", *arguments])
    to_here = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with terminal(folder), own_name, own_arguments, to_here[0], to_here[1]:
        code = exit_code()
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def exit_code() -> int:
    try:
        main()
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def in_its_own_process(arguments: list[str], folder: Path) -> recorded.Fields:
    """Run a command as a user does; the installed program calls the same function."""
    program = "import sys; sys.argv[0] = 'mixtune'; from mixtune.cli import run; run()"
    with terminal(folder):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
            check=False,
        )
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}


def recorded_run(run: Callable[..., recorded.Fields], arguments: list[str], folder: Path) -> recorded.Fields:
    """Code, output and new files of one command."""
    before = file_times(folder)
    done = run(arguments, folder)
    found: dict[str, Any] = {"code": str(done["code"])}
    for stream in ("out", "err"):
        text = done[stream]
        # Boxes and breaks of a help text are those of the installed version of typer; its words are
        # ours.
        found[stream] = help_words(text) if "--help" in arguments or "Usage:" in text else shown(text)
    for path, time in file_times(folder).items():
        if before.get(path) != time:
            found |= contents(folder / path, path)
    return recorded.flatten(found)


def shown(text: str) -> str:
    """Lines as they are printed, without blanks at their ends and with placeholders."""
    return recorded.stable("\n".join(line.rstrip() for line in text.strip("\n").splitlines()))


def help_words(text: str) -> str:
    kept = "".join(" " if character in "│─╭╮╰╯┃━" else character for character in text)
    return " ".join(kept.split())


def file_times(folder: Path) -> dict[str, int]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_mtime_ns for path in found}


def contents(path: Path, name: str) -> recorded.Fields:
    """What is recorded of a file that a command wrote."""
    name = f"file {name}"
    if path.suffix in TEXTS:
        return {name: shown(without_seconds(path.read_text(encoding="utf-8")))}
    if path.suffix == ".html":
        return {name: page(path.read_text(encoding="utf-8"))}
    if path.suffix == ".mixtune":
        info = read_info(path)
        return {name: [info.estimator, info.feature_map, *sorted(info.metadata)]}
    if path.suffix == ".mxf":
        message = cases.companion("federated").read_message(path)
        return {name: [message.kind, message.sender, *map(recorded.stable, message.header["says"])]}
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return {name: pyarrow.parquet.read_table(path).to_pydict()}
    return {name: "written"}


def without_seconds(text: str) -> str:
    """A CSV file without its column of times."""
    header, *rows = text.splitlines()
    names = header.split(",")
    if "seconds" not in names:
        return text
    place = names.index("seconds")
    return "\n".join([header, *(_with_time(row.split(","), place) for row in rows)])


def _with_time(cells: list[str], place: int) -> str:
    return ",".join([*cells[:place], "TIME", *cells[place + 1 :]])


def page(text: str) -> recorded.Fields:
    """A page: its title, its verdict, and a digest of the text that it shows."""

    def part(tag: str, mark: str = "") -> str:
        _, _, rest = text.partition(f"<{tag}{mark}")
        return cases.page_text("<" + rest.partition(f"</{tag}>")[0])

    words = cases.page_text(text)
    # Pages quote the versions of what they were made with in one place.
    return {
        "title": part("h1"),
        "verdict": part("p", ' id="verdict"'),
        "digest": cases.digest(words),
    }


@functools.cache
def results(name: str) -> dict[str, recorded.Fields]:
    """All commands of a session, run once in a process."""
    session = SESSIONS[name]
    found = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        session.prepare(folder)
        for command, arguments in session.commands:
            run = in_its_own_process if (name, command) in WITH_PROCESSES else in_this_process
            found[command] = recorded_run(run, split(arguments), folder)
    return found


def split(arguments: str) -> list[str]:
    """Arguments as they are written here; an underscore in angle brackets stands for a blank."""
    return [part.replace("<_>", " ") for part in arguments.split()]


def names() -> list[tuple[str, str]]:
    return [(session, command) for session, each in SESSIONS.items() for command, _ in each.commands]


# --- tables ---------------------------------------------------------------------------------------


def write_rows(path: Path, header: str, rows: Any, separator: str = ",", encoding: str = "utf-8") -> None:
    lines = [separator.join(header.split(",")), *(separator.join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding=encoding)


def sites(folder: Path) -> None:
    """Sites, the last of which says the opposite; rows to predict; a table without a column."""
    rng = np.random.RandomState(40)
    rows = []
    for site, count, slope in (
        ("berlin", 14, 2.0),
        ("paris", 40, 2.1),
        ("oslo", 40, 1.8),
        ("moscow", 40, -2.0),
    ):
        for _ in range(count):
            size, red = round(rng.randn(), 4), rng.rand() < 0.5
            target = round(slope * size + 3 * red + 0.5 * rng.randn(), 4)
            rows.append([site, size, "red" if red else "blue", target])
    write_rows(folder / "data.csv", "site,size,colour,y", rows)
    write_rows(
        folder / "new.csv",
        "size,colour",
        [[0.5, "red"], [-1.25, "blue"], ["", "green"], [9, "red"]],
    )
    write_rows(folder / "bare.csv", "colour", [["red"]])
    (folder / "empty.csv").write_text("")
    (folder / "broken.mixtune").write_text("not a model")


def messy(folder: Path) -> None:
    """A table as a spreadsheet of another country writes it, with all that tables have."""
    rng, rows = np.random.RandomState(41), []
    for place, (city, count) in enumerate((("rom", 16), ("köln", 30), ("lima", 30), ("bern", 30))):
        for row in range(count):
            size = 30 + 90 * rng.rand()
            kind = ("flat", "house", "loft", "barn")[min(3, rng.randint(9))]
            price = 300 + (9 + 0.5 * place) * size + 100 * (kind == "house") + 30 * rng.randn()
            sold = f"{rng.randint(1, 28):02d}.{rng.randint(1, 13):02d}.20{rng.randint(18, 22)}"
            values = [
                city,
                f"K-{len(rows):03d}",
                f"{size:.1f}",
                kind,
                sold,
                f"{rng.randint(1, 90)} kg",
            ]
            values += [
                f"{rng.rand():.0%}",
                "" if row % 7 == 3 else rng.choice(["ja", "nein"]),
                f"{price:.2f}",
            ]
            if row == 5:
                values[2] = ""
            if row == 9:
                values[-1] = ""
            rows.append([value.replace(".", ",") if place in (2, 8) else value for place, value in enumerate(values)])
    header = "city,code,size,kind,sold,load,share,lift,price"
    write_rows(folder / "messy.csv", header, rows, ";", "latin-1")
    new = [
        ["50,5", "loft", "01.02.2020", "12 kg", "10%", "ja"],
        ["", "tent", "11.12.2021", "", "90%", ""],
    ]
    write_rows(folder / "new.csv", "size,kind,sold,load,share,lift", new, ";", "latin-1")


def several(folder: Path) -> None:
    """One file for each domain; one has another column."""
    rng = np.random.RandomState(42)
    (folder / "others").mkdir()
    for place, name in enumerate(("here", "others/near", "others/far", "others/odd")):
        inputs = rng.randn(14 if place == 0 else 30, 2)
        targets = inputs @ [1.0 + 0.1 * place, -1.0] + 0.4 * rng.randn(len(inputs))
        rows = [[f"{a:.4f}", f"{b:.4f}", f"{c:.4f}"] for (a, b), c in zip(inputs, targets)]
        write_rows(folder / f"{name}.csv", "a,z,y" if name.endswith("odd") else "a,b,y", rows)
    write_rows(folder / "new.csv", "b,a", [[1, 2], [0.5, -0.5]])


def classes(folder: Path) -> None:
    rng, rows = np.random.RandomState(43), []
    for site, count in (("a", 24), ("b", 40), ("c", 40), ("d", 40)):
        for _ in range(count):
            x, z = rng.randn(2)
            score = 1.5 * x - z + 0.5 * rng.randn()
            grade = "high" if score > 1 else "low" if score < -1 else "middle"
            rows.append([site, f"{x:.4f}", f"{z:.4f}", grade])
    write_rows(folder / "data.csv", "site,x,z,grade", rows)
    write_rows(folder / "new.csv", "site,x,z", [["a", 2, 0], ["b", -1, 1], ["e", 0, 0]])


def members(folder: Path) -> None:
    rng = np.random.RandomState(44)
    truth = rng.randn(3)
    (folder / "members").mkdir()
    for name in ("north", "east", "south", "west"):
        inputs = rng.randn(50, 3) * [1, 10, 3] + [0, 50, 2]
        targets = (inputs / [1, 10, 3]) @ (truth + 0.1 * rng.randn(3)) + rng.randn(50)
        rows = [[*(f"{value:.5f}" for value in row), f"{target:.5f}"] for row, target in zip(inputs, targets)]
        write_rows(folder / "members" / f"{name}.csv", "a,b,c,y", rows)


def markets(folder: Path) -> None:
    """Observed paths, and settings files, a wrong one among them."""
    rng = np.random.RandomState(45)
    (folder / "markets").mkdir()
    for name, count, volatility in (("today", 25, 0.2), ("calm", 60, 0.22), ("crash", 60, 0.6)):
        steps = np.cumsum(volatility * np.sqrt(1 / 3) * rng.randn(count, 3), axis=1)
        paths = 40 * np.exp(np.concatenate([np.zeros((count, 1)), steps], axis=1))
        rows = [[f"{value:.5f}" for value in row] for row in paths]
        write_rows(folder / "markets" / f"{name}.csv", "t0,t1,t2,t3", rows)
    (folder / "option.toml").write_text('payoff = "max-call"\nassets = 2\nspot = [90, 100]\npaths = 400\n')
    (folder / "wrong.toml").write_text("strik = 100\n")


# --- sessions -------------------------------------------------------------------------------------

SITES = "--target y --domain site --focal berlin"
CITY = "--target price --domain city --focal rom"
QUICK = "--paths 400 --width 15 --dates 4 --seed 1"

SESSIONS: dict[str, Session] = {
    "help": Session(
        lambda folder: None,
        (
            ("version", "--version"),
            ("nothing", ""),
            ("all", "--help"),
            ("fit", "fit --help"),
            ("predict", "predict --help"),
            ("compare", "compare --help"),
            ("price", "price --help"),
            ("reproduce", "reproduce --help"),
            ("federate", "federate --help"),
            ("study", "federate study --help"),
            ("simulate", "federate simulate --help"),
            ("demo", "demo --help"),
            ("bench", "bench anything"),
        ),
        ("companion options", "companion federated", "companion paper"),
    ),
    "sites": Session(
        sites,
        (
            ("fit", f"fit data.csv {SITES} --out model.mixtune --report report.html"),
            ("fit linear json", f"fit data.csv {SITES} --linear --json"),
            ("fit random features", f"fit data.csv {SITES} --random-features 10 --seed 3"),
            ("fit again", f"fit data.csv {SITES} --out model.mixtune"),
            ("predict", "predict model.mixtune new.csv --interval 0.9 --std --out predictions.csv"),
            ("predict to the terminal", "predict model.mixtune new.csv"),
            ("predict json", "predict model.mixtune new.csv --interval 0.5 --json"),
            ("predict to parquet", "predict model.mixtune new.csv --out predictions.parquet"),
            ("inspect", "inspect model.mixtune"),
            ("inspect json", "inspect model.mixtune --json"),
            ("compare", f"compare data.csv {SITES} --folds 3 --linear --out compared.csv"),
            ("stream", f"fit data.csv {SITES} --linear --stream --ignore colour --json"),
            ("stream with text", f"fit data.csv {SITES} --linear --stream"),
        ),
    ),
    "mistakes": Session(
        sites,
        (
            ("no such column", "fit data.csv --target prise --domain site --focal berlin"),
            ("no such domain column", "fit data.csv --target y --domain town --focal berlin"),
            ("no such focal", "fit data.csv --target y --domain site --focal bern"),
            ("no such file", f"fit nowhere.csv {SITES}"),
            ("no target", "fit data.csv"),
            ("no such option", f"fit data.csv {SITES} --fast"),
            ("no such command", "fitt data.csv"),
            ("empty file", f"fit empty.csv {SITES}"),
            ("out of range", f"fit data.csv {SITES} --seed -1"),
            ("both kinds", f"fit data.csv {SITES} --linear --random-features 5"),
            ("target as class", f"fit data.csv {SITES} --target-kind neither"),
            ("no such model", "predict nowhere.mixtune new.csv"),
            ("broken model", "predict broken.mixtune new.csv"),
            ("broken model inspected", "inspect broken.mixtune"),
            ("fit for predict", f"fit data.csv {SITES} --linear --out model.mixtune"),
            ("column missing", "predict model.mixtune bare.csv"),
            ("coverage", "predict model.mixtune new.csv --interval 90"),
            ("probabilities of numbers", "predict model.mixtune new.csv --proba"),
            ("folds", f"compare data.csv {SITES} --folds 1"),
        ),
    ),
    "messy": Session(
        messy,
        (
            ("fit", f"fit messy.csv {CITY} --linear --out model.mixtune --report report.html"),
            ("fit json", f"fit messy.csv {CITY} --linear --ignore code,load --max-levels 2 --json"),
            ("refuse missing", f"fit messy.csv {CITY} --missing refuse"),
            ("refuse targets", f"fit messy.csv {CITY} --no-drop-missing-target"),
            (
                "keep",
                f"fit messy.csv {CITY} --linear --keep code --categories size --ignore sold,share",
            ),
            ("wrong separator", f"fit messy.csv {CITY} --separator ,"),
            ("predict", "predict model.mixtune new.csv --interval 0.9"),
            (
                "predict neutral",
                "predict model.mixtune new.csv --neutralise-formulas --out out.tsv",
            ),
            ("inspect", "inspect model.mixtune"),
        ),
    ),
    "several files": Session(
        several,
        (
            ("fit", "fit here.csv others/near.csv others/far.csv --target y --out model.mixtune"),
            (
                "other focal",
                "fit here.csv others/near.csv others/far.csv --target y --focal near --linear",
            ),
            ("other columns", "fit here.csv others/near.csv others/odd.csv --target y"),
            ("one file", "fit here.csv --target y --linear"),
            ("predict", "predict model.mixtune new.csv --out new-predicted.csv"),
        ),
    ),
    "classes": Session(
        classes,
        (
            (
                "fit",
                "fit data.csv --target grade --domain site --focal a --linear --out one.mixtune",
            ),
            ("predict", "predict one.mixtune new.csv --proba"),
            ("interval", "predict one.mixtune new.csv --interval 0.9"),
            (
                "all",
                "fit data.csv --target grade --domain site --all --linear --out all.mixtune --report all.html",
            ),
            ("predict all", "predict all.mixtune new.csv --proba --json"),
            ("inspect all", "inspect all.mixtune"),
            (
                "compare",
                "compare data.csv --target grade --domain site --focal a --linear --folds 2 --json",
            ),
        ),
    ),
    "every domain": Session(
        sites,
        (
            (
                "fit",
                "fit data.csv --target y --domain site --all --out models.mixtune --report page.html",
            ),
            ("predict", "predict models.mixtune data.csv --interval 0.8 --out predictions.csv"),
            ("no domain", "predict models.mixtune new.csv"),
            ("inspect", "inspect models.mixtune --json"),
            ("compare", "compare data.csv --target y --domain site --all --linear --folds 2"),
            ("focal too", f"fit data.csv {SITES} --all"),
        ),
    ),
    "price": Session(
        markets,
        (
            ("put", f"price {QUICK}"),
            ("put json", f"price {QUICK} --greeks --json"),
            (
                "bounds",
                f"price {QUICK} --payoff max-call --assets 2 --upper --upper-paths 20 --inner-paths 10",
            ),
            ("strikes", f"price {QUICK} --strikes 90,110 --maturities 0.5,1"),
            ("any time", f"price {QUICK} --dates 8 --american"),
            (
                "heston",
                f"price {QUICK} --model heston --v0 0.04 --rho -0.5 --scheme qe --substeps 2",
            ),
            ("rough", f"price {QUICK} --model rough-heston --hurst 0.2 --substeps 2 --json"),
            ("settings file", "price --config option.toml --width 15 --strike 95 --json"),
            (
                "observed",
                "price --data markets --focal today --payoff put --strike 40 --rate 0.06 --width 10",
            ),
            ("wrong file", "price --config wrong.toml"),
            ("wrong payoff", "price --payoff digital"),
            ("wrong model", "price --model bachelier"),
            ("foreign setting", "price --v0 0.04"),
            ("wrong spot", "price --spot ninety"),
            ("no market", "price --data markets --focal yesterday"),
        ),
        ("companion options",),
    ),
    "reproduce": Session(
        lambda folder: None,
        (
            ("game", "reproduce game --runs 1 --jobs 1 --out results"),
            ("more runs", "reproduce game --runs 2 --jobs 1 --out results --json"),
            ("other seed", "reproduce game --runs 1 --jobs 1 --out results --seed 1"),
            ("no such study", "reproduce table9 --out results"),
            ("no runs", "reproduce game --runs 0"),
        ),
        ("matplotlib", "companion paper"),
    ),
    "federate": Session(
        members,
        (
            (
                "new",
                "federate study new study.toml --like members/north.csv --target y --focal north --level 1",
            ),
            *((f"join {name}", f"federate study join study.toml --name {name}") for name in ("north", "east")),
            *(
                (
                    f"join {name}",
                    f"federate study join study.toml --name {name} --data members/{name}.csv",
                )
                for name in ("south", "west")
            ),
            ("check", "federate study check study.toml --data members/east.csv"),
            ("check json", "federate study check study.toml --json"),
            ("ask", "federate ask study.toml --focal members/north.csv --out q1.mxf"),
            *(
                (
                    f"answer {name}",
                    f"federate answer q1.mxf --data members/{name}.csv --key {name}.key --out {name}.mxf",
                )
                for name in ("east", "south", "west")
            ),
            (
                "answer again",
                "federate answer q1.mxf --data members/east.csv --key east.key --out east.mxf",
            ),
            (
                "ask again",
                "federate ask study.toml --focal members/north.csv --key north.key --out q9.mxf",
            ),
            (
                "second release",
                "federate answer q9.mxf --data members/east.csv --key east.key --out e9.mxf",
            ),
            ("inspect", "federate inspect east.mxf --study study.toml"),
            (
                "nothing left",
                "federate ask study.toml q1.mxf east.mxf south.mxf west.mxf --out q2.mxf",
            ),
            (
                "combine",
                "federate combine q1.mxf east.mxf south.mxf west.mxf --focal members/north.csv"
                " --key north.key"
                " --out model.mixtune --report report.html",
            ),
            (
                "combine two",
                "federate combine q1.mxf east.mxf south.mxf --focal members/north.csv --key north.key --json",
            ),
            (
                "combine two only",
                "federate combine q1.mxf east.mxf south.mxf --focal members/north.csv --key north.key --require-all",
            ),
            ("predict", "predict model.mixtune members/east.csv --interval 0.9 --json"),
            ("inspect model", "inspect model.mixtune"),
            ("not a message", "federate inspect study.toml"),
            (
                "no key",
                "federate ask study.toml --focal members/north.csv --key nowhere.key --out q3.mxf",
            ),
            (
                "simulate",
                "federate simulate members --focal north --target y --level 2 --drop-outs 0 --processes 1 --json",
            ),
        ),
        ("cryptography", "companion federated"),
    ),
}

#: Commands that start processes, which import the main module: not that of the tests.
WITH_PROCESSES = (("federate", "simulate"),)

#: Commands that also run in a process of their own, after the others of their session have run in
#: this one.
IN_THEIR_OWN_PROCESS = (
    ("sites", "fit linear json"),
    ("mistakes", "no such focal"),
    ("messy", "predict"),
)


def compared_with_a_process(name: str, command: str) -> tuple[recorded.Fields, recorded.Fields]:
    """A command in this process and in its own, in two folders with the same files."""
    session = SESSIONS[name]
    arguments = dict(session.commands)
    both = []
    for run in (in_this_process, in_its_own_process):
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made).resolve()
            session.prepare(folder)
            if command.startswith("predict"):
                in_this_process(split(arguments["fit"]), folder)
            both.append(recorded_run(run, split(arguments[command]), folder))
    return both[0], both[1]
