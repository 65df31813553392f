"""The one way to the terminal: all that a command prints goes through here.

What must not be shown is taken out (`lancestat.redact`), and no text of a project, a library or a
store starts a line, moves the cursor or gives an order to a system that reads the log.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import click

from lancestat.cli.paint import colored, wants_color
from lancestat.redact import (
    NOTHING_KNOWN,
    PAINT,
    Audience,
    Redactor,
    inert,
    inert_json,
    secret_environment,
    visible,
)

# Markdown has it where characters that mean something stand side by side.
_UNSEEN = "\u200b"


@dataclass(slots=True)
class Console:
    """The output of a command: who sees it, and what they must not see."""

    audience: Audience = Audience.PERSON
    redactor: Redactor = field(default=NOTHING_KNOWN)

    def begin(self, audience: Audience) -> None:
        """Print for an audience from now on, and forget what other commands knew."""
        self.audience = audience
        self.redactor = Redactor(secret_environment(os.environ))

    def know(self, redactor: Redactor) -> None:
        """Never show what a project's redactor finds."""
        self.redactor = redactor.merged(self.redactor)

    def text(self, text: str) -> str:
        """A text without what the audience must not see."""
        return self.redactor.text(text, self.audience)

    def out(self, *lines: str) -> None:
        """Lines of a result."""
        for line in lines:
            click.echo(self._line(line, PAINT), color=wants_color())

    def markdown(self, text: str) -> None:
        """A result in Markdown, whose line breaks are its own."""
        for line in text.split("\n"):
            click.echo(self._line(line, _UNSEEN))

    def json(self, text: str) -> None:
        """A result in JSON."""
        click.echo(inert_json(text))

    def err(self, *lines: str) -> None:
        """Lines of talk."""
        for line in lines:
            click.echo(self._line(line, PAINT), err=True, color=wants_color())

    def _line(self, line: str, keep: str) -> str:
        return colored(visible(inert(self.text(line)), keep=keep))


CONSOLE = Console()
