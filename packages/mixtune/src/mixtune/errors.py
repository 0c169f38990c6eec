"""The errors users meet: each says what is wrong and what to do about it.

Every error derives from :class:`MixtuneError` and from the built-in exception a caller would expect, so both
``except MixtuneError`` and ``except ValueError`` work. An error carries a ``code`` and ``fields`` for programs, and
renders itself for Python (``str(error)``) or for the terminal (``error.render("terminal")``). What can be used, but not
as it is, brings a :class:`DataWarning`.
"""

import copyreg
from typing import Any, ClassVar

from mixtune._messages import HasMessage, Message, Note, Wording, quoted, setting

__all__ = [
    "ConvergenceError",
    "DataError",
    "DataWarning",
    "MissingExtraError",
    "MixtuneError",
    "Note",
    "ParameterError",
    "SingularError",
    "Wording",
    "quoted",
    "setting",
]


class MixtuneError(HasMessage, Exception):
    """Base of all errors raised by mixtune on purpose.

    Parameters
    ----------
    template : str
        The message; ``{name}`` stands for a field. Without fields it is shown as it is.
    code : str, optional
        A short name of what went wrong; by default that of the class.
    **fields
        What the message speaks of. A :class:`Wording` names a setting as each place types it.

    Examples
    --------
    >>> error = DataError('no column "{column}"', code="missing-column", column="price")
    >>> str(error), error.code, error.fields["column"]
    ('no column "price"', 'missing-column', 'price')
    """

    default_code: ClassVar[str] = "error"

    def __init__(self, template: str, *, code: str | None = None, **fields: Any) -> None:
        self.message = Message(code or self.default_code, template, fields)
        super().__init__(self.message.render())

    def __reduce__(self) -> tuple[Any, ...]:
        # By default exceptions are rebuilt by calling the class with their arguments, which would lose the fields.
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class DataError(MixtuneError, ValueError):
    """The data cannot be used: wrong shape, not finite, empty, mislabelled."""

    default_code = "data"


class DataWarning(UserWarning):
    """What a model, or a table of data, had to do with rows that are not as they were expected to be.

    Its first argument is a :class:`Note`, with a ``code`` and ``fields`` for programs. Filter warnings of this class to
    silence them, or to make them errors.

    Examples
    --------
    >>> warning = DataWarning(Note("odd-texts", 'column "{column}" has a text', column="size"))
    >>> str(warning), warning.args[0].code
    ('column "size" has a text', 'odd-texts')
    """


class ParameterError(MixtuneError, ValueError):
    """A setting is outside its range or contradicts another one."""

    default_code = "parameter"


class SingularError(MixtuneError, ValueError):
    """A linear system has no unique solution and the chosen method needs one."""

    default_code = "singular"


class ConvergenceError(MixtuneError, RuntimeError):
    """An iteration did not reach a result that can be certified."""

    default_code = "not-converged"


class MissingExtraError(MixtuneError, ImportError):
    """An optional dependency is not installed."""

    default_code = "missing-extra"

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            "{purpose} needs {package}, which is not installed; run: pip install 'mixtune[{extra}]'",
            purpose=purpose,
            package=package,
            extra=extra,
        )
