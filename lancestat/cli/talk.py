"""What the layers below log, told to the person at the terminal."""

from __future__ import annotations

import click

from lancestat.cli.paint import wants_color


def listen(*, quiet: bool, verbose: bool) -> None:
    """Print warnings to stderr; with `verbose` all that is logged, with `quiet` errors only."""
    import logging

    class Talk(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tone = "yellow" if record.levelno >= logging.WARNING else None
            word = click.style(f"{record.levelname.lower()}:", fg=tone)
            click.echo(f"{word} {record.getMessage()}", err=True, color=wants_color())

    talk = Talk(logging.ERROR if quiet else logging.NOTSET)
    logger = logging.getLogger("lancestat")
    logger.handlers = [talk]
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING)
