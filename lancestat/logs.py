"""Keeps secrets and line breaks out of what lancestat logs in a program that uses it."""

from __future__ import annotations

import logging
import weakref

from lancestat.redact import Audience, Redactor, inert, visible

# Those of all projects that the process has: a log line does not say to which it belongs.
_redactors: weakref.WeakSet[Redactor] = weakref.WeakSet()
_plain = logging.Formatter()


class _RedactingHandler(logging.NullHandler):
    """Redacts records before other handlers of `lancestat`, and of the root logger, get them.

    A record passes the handlers of its logger and then those of the loggers above, in their order.
    A filter of the logger `lancestat` would not see what the loggers below it log.
    """

    def handle(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        record.msg, record.args = _line(message), None
        if record.exc_info:
            lines = _plain.formatException(record.exc_info).splitlines()
            record.exc_info, record.exc_text = None, "\n".join(f"  {_line(line)}" for line in lines)
        return True


def redact_logs(redactor: Redactor) -> None:
    """Keep what a redactor finds out of the logs of this process for as long as it is used."""
    _redactors.add(redactor)
    logger = logging.getLogger("lancestat")
    if not any(isinstance(handler, _RedactingHandler) for handler in logger.handlers):
        logger.handlers.insert(0, _RedactingHandler())


def _line(text: str) -> str:
    for redactor in tuple(_redactors):
        text = redactor.text(text, Audience.PERSON)
    return visible(inert(text))
