"""Keeps secrets and line breaks out of what lancestat logs in a program that uses it."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable

from lancestat.formats import escape_commands, visible
from lancestat.redact import Audience, Redactor

# The redactors of all projects in the process: a log line does not name its project.
_redactors: weakref.WeakSet[Redactor] = weakref.WeakSet()
_formatter = logging.Formatter()


def redact_logs(redactor: Redactor) -> None:
    """Keep what a redactor finds out of the logs of this process for as long as it is used.

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

    def __call__(self, name: str, *args: object, **kwargs: object) -> logging.LogRecord:
        record = self._make(name, *args, **kwargs)
        if name == "lancestat" or name.startswith("lancestat."):
            record.msg, record.args = _line(record.getMessage()), None
            if record.exc_info:
                lines = _formatter.formatException(record.exc_info).splitlines()
                record.exc_text = "\n".join(f"  {_line(line)}" for line in lines)
                record.exc_info = None
        return record


def _line(text: str) -> str:
    for redactor in tuple(_redactors):
        text = redactor.text(text, Audience.PERSON)
    return visible(escape_commands(text))
