"""Texts of specifications and libraries, made fit to be shown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from lancestat.lake.clean import clean, secret_values
from lancestat.spec.model import ProjectSpec

# Of so many characters `clean` leaves none away.
_PIECE = 500


@dataclass(frozen=True, slots=True)
class Mask:
    """Hides secrets, and spells out what a terminal would obey or nobody could see.

    What lies in the project's folder, `root`, is told from there: where that folder is differs from
    one machine to the next.
    """

    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    root: Path | None = None

    @classmethod
    def of(cls, *specs: ProjectSpec) -> Mask:
        """For the secrets of projects in one folder."""
        values = (secret_values(spec.target.storage_options) for spec in specs)
        return cls(frozenset[str]().union(*values), specs[0].root)

    def text(self, text: str) -> str:
        """A text of any number of lines, none of which is shortened."""
        return "\n".join(self._indented(line) for line in text.rstrip("\n").split("\n"))

    def line(self, text: str) -> str:
        """A name, or a message of a library."""
        text = clean(text, self.secrets)
        if self.root is not None and len(self.root.parts) > 1:
            text = text.replace(f"{self.root}/", "")
        return _visible(text)

    def lines(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Several of them."""
        return tuple(map(self.line, texts))

    def hiding(self, secrets: Iterable[str]) -> Mask:
        """One that hides more."""
        return replace(self, secrets=self.secrets | frozenset(secrets))

    def _indented(self, line: str) -> str:
        indent = line[: len(line) - len(line.lstrip(" "))]
        pieces = textwrap.wrap(line, _PIECE, break_long_words=False, break_on_hyphens=False)
        return indent + " ".join(map(self.line, pieces))


def _visible(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
