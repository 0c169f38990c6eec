"""The command ``mixtune`` and its subcommands."""

import sys
from typing import Annotated

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


def main() -> None:
    """Run the command line; mistakes of the user end with one clear line and exit code 2."""
    try:
        app()
    except MixtuneError as error:
        message = f"[bold red]Error:[/] {safe(error.render('terminal'))}"
        Console(stderr=True, soft_wrap=True).print(message, highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped.")
        sys.exit(130)
