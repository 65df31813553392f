"""Texts of specifications and libraries, made fit to be shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lancestat.lake.clean import clean, secret_values
from lancestat.spec.model import Target


@dataclass(frozen=True, slots=True)
class Mask:
    """Hides secrets, and spells out what a terminal would obey or nobody could see."""

    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    @classmethod
    def of(cls, *targets: Target) -> Mask:
        """For the secrets of targets."""
        values = (secret_values(target.storage_options) for target in targets)
        return cls(frozenset[str]().union(*values))

    def text(self, text: str) -> str:
        """A text of any number of lines; each is shortened as messages are."""
        return "\n".join(self._indented(line) for line in text.rstrip("\n").split("\n"))

    def line(self, text: str) -> str:
        """A name, or a message of a library."""
        return _visible(clean(text, self.secrets))

    def lines(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Several of them."""
        return tuple(map(self.line, texts))

    def hiding(self, secrets: Iterable[str]) -> Mask:
        """One that hides more."""
        return Mask(self.secrets | frozenset(secrets))

    def _indented(self, line: str) -> str:
        indent = line[: len(line) - len(line.lstrip(" "))]
        return indent + self.line(line)


def _visible(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
