"""Texts of specifications and libraries, made fit to be shown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from lancestat.formats import count, size
from lancestat.redact import NOTHING_KNOWN, Audience, Redactor, clean, visible
from lancestat.review.source import WORK_TREE
from lancestat.review.values import Change, Diff, NodeDiff, PropertyChange, Risk
from lancestat.spec.model import ProjectSpec

# Of so many characters `clean` leaves none away.
_PIECE = 500


@dataclass(frozen=True, slots=True)
class Mask:
    """Makes texts fit for the public (`lancestat.redact`), and spells out what nobody could see.

    What lies in the project's folder, `root`, is told from there: where that folder is differs from
    one machine to the next.
    """

    redactor: Redactor = NOTHING_KNOWN
    root: Path | None = None

    @classmethod
    def of(cls, one: ProjectSpec, other: ProjectSpec) -> Mask:
        """For what two projects in one folder know."""
        return cls(one.redactor.merged(other.redactor), one.root)

    def text(self, text: str) -> str:
        """A text of any number of lines, none of which is shortened."""
        lines = self.redactor.text(text, Audience.PUBLIC).rstrip("\n").split("\n")
        return "\n".join(map(self._indented, lines))

    def line(self, text: str) -> str:
        """A name, or a message of a library."""
        return self._line(self.redactor.text(text, Audience.PUBLIC))

    def lines(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Several of them."""
        return tuple(map(self.line, texts))

    def _line(self, text: str) -> str:
        text = clean(text)
        if self.root is not None and len(self.root.parts) > 1:
            text = text.replace(f"{self.root}/", "")
        return visible(text)

    def _indented(self, line: str) -> str:
        indent = line[: len(line) - len(line.lstrip(" "))]
        pieces = textwrap.wrap(line, _PIECE, break_long_words=False, break_on_hyphens=False)
        return indent + " ".join(map(self._line, pieces))


SYMBOLS = {Change.ADDED: "+", Change.REMOVED: "-", Change.CHANGED: "~"}
KINDS = {"table": "table", "knn_join": "KNN join"}
NOTHING = "nothing"

# Of so many lines, those that repeat are not matched one by one.
_MANY_LINES = 1000


def side_name(label: str) -> str:
    """A side as people call it."""
    return "the work tree" if label == WORK_TREE else label


def counts(diff: Diff) -> str:
    """`1 added, 2 changed, 7 unchanged`."""
    found = [(change.value, len(list(diff.of(change)))) for change in Change]
    parts = [f"{count(number)} {word}" for word, number in found if number] or ["no node changes"]
    if diff.unchanged:
        parts.append(f"{count(diff.unchanged)} unchanged")
    return ", ".join(parts)


def cost(diff: Diff) -> str | None:
    """What the first run reads for the changes, None where that is nothing."""
    known = sum(node.cost_bytes or 0 for node in diff.nodes)
    if diff.cost_bytes is None:
        more = f"about {size(known)} and more" if known else "more"
        return f"For these changes the first run reads {more}, how much cannot be told."
    return f"For these changes the first run reads about {size(known)}." if known else None


def risk_words(node: NodeDiff) -> tuple[str, ...]:
    """The risks of a node, each once."""
    return tuple(dict.fromkeys(note.risk.value for note in node.risks))


def by_risk(diff: Diff) -> Iterator[tuple[Risk, str, list[str]]]:
    """Every risk and each of its sentences, with the names of the nodes that have it."""
    for risk in Risk:
        found: dict[str, list[str]] = {}
        for node in diff.nodes:
            for note in node.risks:
                if note.risk is risk:
                    found.setdefault(note.sentence, []).append(node.name)
        for sentence, names in found.items():
            yield risk, sentence, names


def what_changed(node: NodeDiff) -> tuple[str, ...]:
    """The names of the properties that differ, for nodes that are on both sides."""
    if node.change is not Change.CHANGED:
        return ()
    return tuple(change.name for change in node.properties)


def line_diff(old: str | None, new: str | None) -> list[str]:
    """The lines of both, with `- ` before those that went, `+ ` before those that came."""
    before, after = ([] if text is None else text.split("\n") for text in (old, new))
    found: list[str] = []
    matcher = SequenceMatcher(a=before, b=after, autojunk=len(before) > _MANY_LINES)
    for word, start, end, new_start, new_end in matcher.get_opcodes():
        if word == "equal":
            found += (f"  {line}" for line in before[start:end])
        else:
            found += (f"- {line}" for line in before[start:end])
            found += (f"+ {line}" for line in after[new_start:new_end])
    return found


def sides(change: PropertyChange) -> tuple[str | None, str | None]:
    """A property before and after, None where it was not there."""
    old = None if change.old is None else change.old.text
    new = None if change.new is None else change.new.text
    if change.looks_alike and new is not None:
        hidden = change.new is not None and change.new.is_hidden
        new = f"{new} with {'another value' if hidden else 'other spaces'}"
    return old, new
