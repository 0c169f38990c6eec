"""The command ``mixtune`` and its subcommands."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from mixtune._version import __version__
from mixtune.cli._compare import compare
from mixtune.cli._demo import demo
from mixtune.cli._federate import federate
from mixtune.cli._fit import fit
from mixtune.cli._inspect import inspect
from mixtune.cli._outputs import safe
from mixtune.cli._predict import predict
from mixtune.cli._price import price_command
from mixtune.cli._reproduce import reproduce
from mixtune.errors import MixtuneError

app = typer.Typer(
    name="mixtune",
    help="Regret-optimal transfer learning from many small datasets, in closed form.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (fit, predict, inspect, compare, demo):
    app.command()(command)
app.command("price")(price_command)
app.command()(reproduce)
app.add_typer(federate, name="federate")


@app.command(hidden=True, context_settings={"ignore_unknown_options": True, "help_option_names": []})
def bench(arguments: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Say where this command went; kept for one release."""
    typer.echo('Error: "mixtune bench" is now "python -m benchmarks", in a checkout of the repository', err=True)
    raise typer.Exit(2)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mixtune {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Regret-optimal transfer learning from many small datasets, in closed form."""


def corrected_command(arguments: Sequence[str], fixes: Mapping[str, Any]) -> str:
    """The command with other settings, ready to be pasted; empty where nothing is known that would help.

    Parameters
    ----------
    arguments
        What was typed after the name of the program.
    fixes
        Settings by their names in Python.

    Examples
    --------
    >>> corrected_command(["fit", "a b.csv", "--target", "prise"], {"target": "price", "ignore": "id,name"})
    "mixtune fit 'a b.csv' --target price --ignore id,name"
    """
    changed = list(arguments)
    for name, value in fixes.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            changed = [each for each in changed if each not in (flag, f"--no-{flag[2:]}")]
            changed += [flag if value else f"--no-{flag[2:]}"]
            continue
        place = next((at for at, each in enumerate(changed) if each.split("=")[0] == flag), len(changed))
        given = 1 if "=" in "".join(changed[place : place + 1]) else 2
        changed[place : place + given] = [flag, str(value)] if value else []
    return shlex.join(["mixtune", *changed]) if fixes else ""


def main() -> None:
    """Run the command line; mistakes of the user end with one clear line and exit code 2."""
    try:
        app()
    except MixtuneError as error:
        console = Console(stderr=True, soft_wrap=True)
        problems = error.fields.get("problems", (error,))
        for problem in problems:
            console.print(f"[bold red]Error:[/] {safe(problem.render('terminal'))}", highlight=False)
        if command := corrected_command(sys.argv[1:], error.fields.get("fixes", {})):
            console.print(f"Try: {safe(command)}", highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped.")
        sys.exit(130)
