"""``mixtune federate`` in this process, for tests."""

from typer.testing import CliRunner

from mixtune.cli import make_app
from mixtune.errors import MixtuneError


def run(*arguments):
    """The output of the command; its errors are raised."""
    result = CliRunner().invoke(make_app(), ["federate", *map(str, arguments)])
    if isinstance(result.exception, MixtuneError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout
