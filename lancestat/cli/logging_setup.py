"""Sets up logging to the terminal."""

from __future__ import annotations

from lancestat.presentation.terminal import CONSOLE, paint


def set_up_logging(*, quiet: bool, verbose: bool) -> None:
    """Print warnings to stderr; with `verbose` all that is logged, with `quiet` errors only."""
    import logging

    class ConsoleHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            word = f"{record.levelname.lower()}:"
            word = paint(word, "refresh") if record.levelno >= logging.WARNING else word
            CONSOLE.err(f"{word} {record.getMessage()}")

    handler = ConsoleHandler(logging.ERROR if quiet else logging.NOTSET)
    logger = logging.getLogger("lancestat")
    logger.handlers = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING)
