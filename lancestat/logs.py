"""Keeps secrets out of what lancestat logs and raises in a program that uses it."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

from lancestat.errors import LancestatError
from lancestat.formats import escape_commands, message_line
from lancestat.redact import Audience, Redactor

T = TypeVar("T")

# The redactors of all projects in the process: a log line does not name its project.
_redactors: weakref.WeakSet[Redactor] = weakref.WeakSet()
_formatter = logging.Formatter()


def redact_logs(redactor: Redactor) -> None:
    """Redact the logs of this process with a redactor, for as long as that is in use.

    Records of `lancestat` and the loggers below it are redacted when they are made, and so before
    any handler gets them, Python's handler of last resort included.
    """
    _redactors.add(redactor)
    make = logging.getLogRecordFactory()
    if not isinstance(make, _RedactingFactory):
        logging.setLogRecordFactory(_RedactingFactory(make))


class _RedactingFactory:
    """Makes log records as another factory does, and redacts those of lancestat."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, name: str | None, *args: object, **kwargs: object) -> logging.LogRecord:
        record = self._make(name, *args, **kwargs)
        # `logging.makeLogRecord` has no name.
        if name is not None and (name == "lancestat" or name.startswith("lancestat.")):
            record.msg, record.args = _line(record.getMessage()), None
            if record.exc_info:
                lines = _formatter.formatException(record.exc_info).splitlines()
                record.exc_text = "\n".join(f"  {_line(line)}" for line in lines)
                record.exc_info = None
        return record


def _line(text: str) -> str:
    for redactor in tuple(_redactors):
        text = redactor.text(text, Audience.PERSON)
    return message_line(escape_commands(text))


def without_secrets(cls: type[T]) -> type[T]:
    """Make the public methods of a class with a `spec` raise errors that hold no secret."""
    for name, member in list(vars(cls).items()):
        if isinstance(member, FunctionType) and not name.startswith("_"):
            setattr(cls, name, _redacting(member))
    return cls


def _redacting(method: FunctionType) -> Callable[..., object]:
    @wraps(method)
    def redacting(self: Any, *args: object, **kwargs: object) -> object:
        try:
            return method(self, *args, **kwargs)
        except LancestatError as error:
            redacted = self.spec.redactor.error(error, Audience.PERSON)
            if str(redacted) == str(error):
                raise
            redacted = redacted.with_traceback(error.__traceback__)
        # Outside of the handler, so that the error which holds the secret is not its context.
        raise redacted

    return redacting
