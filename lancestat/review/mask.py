"""Redacts texts of specifications and libraries for the public."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lancestat.formats import visible
from lancestat.redact import EMPTY_REDACTOR, Audience, Redactor, redact_line
from lancestat.spec.model import ProjectSpec

# `redact_line` does not shorten a text of so many characters.
_PIECE = 500


@dataclass(frozen=True, slots=True)
class Mask:
    """Redacts texts for the public (`lancestat.redact`), and spells out invisible characters.

    Paths in the project's folder, `root`, become relative to it, since the folder differs from one
    machine to the next.
    """

    redactor: Redactor = EMPTY_REDACTOR
    root: Path | None = None

    @classmethod
    def of(cls, one: ProjectSpec, other: ProjectSpec) -> Mask:
        """Return the mask for the secrets of two projects in one folder."""
        return cls(one.redactor.merged(other.redactor), one.root)

    def text(self, text: str) -> str:
        """A text of any number of lines, none of which is shortened."""
        lines = self.redactor.text(text, Audience.PUBLIC).rstrip("\n").split("\n")
        return "\n".join(map(self._indented, lines))

    def line(self, text: str) -> str:
        """A name, or a message of a library."""
        return self._line(self.redactor.text(text, Audience.PUBLIC))

    def lines(self, texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(self.line, texts))

    def _line(self, text: str) -> str:
        text = redact_line(text)
        if self.root is not None and len(self.root.parts) > 1:
            text = text.replace(f"{self.root}/", "")
        return visible(text)

    def _indented(self, line: str) -> str:
        indent = line[: len(line) - len(line.lstrip(" "))]
        pieces = textwrap.wrap(line, _PIECE, break_long_words=False, break_on_hyphens=False)
        return indent + " ".join(map(self._line, pieces))
