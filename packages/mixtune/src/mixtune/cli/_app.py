"""The command ``mixtune`` and its subcommands."""

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from mixtune._companions import EXTRAS, load_offered, offered
from mixtune._version import __version__
from mixtune.errors import MixtuneError

#: The commands of the core, in the order of the help: a function or a group of that name, in a module of that name.
COMMANDS = ("fit", "predict", "inspect", "compare", "demo")
#: The group of entry points in which companions offer theirs.
GROUP = "mixtune.commands"


def make_app(names: Iterable[str] | None = None) -> typer.Typer:
    """The command line with these commands, of the core or of a companion; only their modules are imported.

    By default all commands of all installed packages.

    Examples
    --------
    >>> [command.name for command in make_app(["inspect"]).registered_commands]
    ['inspect', None]
    """
    app = typer.Typer(name="mixtune", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    for name in all_commands() if names is None else names:
        if name in COMMANDS:
            command = getattr(import_module(f"mixtune.cli._{name}"), name)
        else:
            command = load_offered(GROUP, name, f'"mixtune {name}"')
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    app.command(hidden=True, context_settings={"ignore_unknown_options": True, "help_option_names": []})(bench)
    app.callback()(_options)
    return app


def commands_of(arguments: Sequence[str]) -> tuple[str, ...]:
    """The commands to import for these arguments: the one that is named, or all where none is.

    Examples
    --------
    >>> commands_of(["fit", "a.csv", "--target", "y"]), commands_of(["--version"])
    (('fit',), ())
    >>> set(COMMANDS) <= set(commands_of(["--help"]))
    True
    """
    if list(arguments) == ["--version"]:
        return ()
    name = arguments[0] if arguments else ""
    if name in COMMANDS:
        return (name,)
    return (name,) if name in EXTRAS or name in offered(GROUP) else all_commands()


def all_commands() -> tuple[str, ...]:
    """The commands of the core, then those of the installed companions.

    Examples
    --------
    >>> all_commands()[:3]
    ('fit', 'predict', 'inspect')
    """
    return (*COMMANDS, *sorted(offered(GROUP)))


def bench(arguments: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Say where this command went; kept for one release."""
    typer.echo('Error: "mixtune bench" is now "python -m benchmarks", in a checkout of the repository', err=True)
    raise typer.Exit(2)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mixtune {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
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


def run() -> None:
    """Run the command line in a process of its own, as the installed program does."""
    main()


def main() -> None:
    """Run the command line; mistakes of the user end with one clear line and exit code 2."""
    try:
        make_app(commands_of(sys.argv[1:]))()
    except MixtuneError as error:
        from rich.console import Console

        from mixtune.cli.outputs import safe

        console = Console(stderr=True, soft_wrap=True)
        problems = error.fields.get("problems", (error,))
        for problem in problems:
            console.print(f"[bold red]Error:[/] {safe(problem.render('terminal'))}", highlight=False)
        if command := corrected_command(sys.argv[1:], error.fields.get("fixes", {})):
            console.print(f"Try: {safe(command)}", highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)
        sys.exit(130)
