"""Keeps PySpark from printing what it raises."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_NAMES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def silent_query_logger() -> Iterator[None]:
    """PySpark prints every error of a query as JSON to stderr, besides raising it.

    For the whole of a command or a run: blocks that overlap on several threads would leave the
    loggers off.
    """
    loggers = [logging.getLogger(name) for name in _NAMES]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was
