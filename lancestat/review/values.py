"""The values of a diff."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lancestat import display
from lancestat.errors import Location
from lancestat.formats import StringEnum
from lancestat.review.links import FileLinks
from lancestat.spec.declaration import Key
from lancestat.spec.declaration import Risk as Risk
from lancestat.spec.model import NodeKind

SEVERITY = (
    Risk.COVERAGE_LOST,
    Risk.JOIN_MEANING_CHANGED,
    Risk.DATASET_MOVED,
    Risk.OUTPUT_MOVED,
    Risk.EFFECT_UNKNOWN,
    Risk.VALUES_SHOWN,
    Risk.STALENESS_LOOSENED,
    Risk.PUBLISH_CHANGED,
    Risk.STALENESS_TIGHTENED,
    Risk.COST_INCREASED,
)
"""All risks, those that lose the most first."""

NO_CHANGES = "<!-- lancestat:no-changes -->"
"""A line of the Markdown of a diff in which nothing changes, by which `comment` knows it."""

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]


class Change(StringEnum):
    """The kinds of change of a node."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Property:
    """A declared value: one to compare, and how people and JSON see it.

    Where `is_hidden` the value may be secret: `text` is the template that gave it, or says that it
    is hidden, and `json` that template or None. `key` is the declaration, None for a name, and
    `is_default` is set where the value is the default.
    """

    value: Json = field(repr=False)
    text: str
    json: Json
    is_hidden: bool = False
    key: Key | None = field(default=None, repr=False, compare=False)
    is_default: bool = field(default=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class PropertyChange:
    """A property before and after; None where a node does not have it."""

    name: str
    old: Property | None
    new: Property | None

    @property
    def sides(self) -> tuple[Property, ...]:
        """The sides that have the property."""
        return tuple(side for side in (self.old, self.new) if side is not None)

    @property
    def risk(self) -> Risk | None:
        """The risk that is declared for such a change."""
        key = self.sides[0].key
        return None if key is None else key.risk

    @property
    def looks_alike(self) -> bool:
        """Whether both sides have the same text, since the difference is hidden or invisible."""
        return self.old is not None and self.new is not None and self.old.text == self.new.text


@dataclass(frozen=True, slots=True)
class ColumnsChange:
    """The columns that gain and lose statistics, in the order of the schema.

    Where `are_names` is false no schema could be had, and they are patterns as they are written;
    an excluded one has a `!` before it.
    """

    gained: tuple[str, ...]
    lost: tuple[str, ...]
    are_names: bool


@dataclass(frozen=True, slots=True)
class TablesChange:
    """The tables that a source gives to the project on HEAD and not on BASE, or the other way.

    `renamed` are pairs of names of nodes. `is_known` is false where a side was not looked up: what
    the others say is then not all.
    """

    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    is_known: bool = True

    @property
    def is_empty(self) -> bool:
        """Whether the source is known to give the same tables by the same names."""
        return self == TablesChange()


@dataclass(frozen=True, slots=True)
class RiskNote:
    """A risk of one node, and a sentence about it."""

    risk: Risk
    sentence: str


@dataclass(frozen=True, slots=True)
class Findings:
    """The consequences of a change of a node."""

    columns: ColumnsChange | None = None
    tables: TablesChange | None = None
    cost_bytes: int | None = 0
    risks: tuple[RiskNote, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDiff:
    """The changes of one node.

    `previous_name` is set where it has another name. `owners` are those of both sides, `location`
    is on the side where the node is, HEAD before BASE. `cost_bytes` is what the first run reads for
    the change, None where it is not known. `notes` are what follows, and what could not be found
    out. `is_source` tells that it stands for a source, which may change `tables`.
    """

    name: str
    kind: NodeKind
    change: Change
    location: Location
    previous_name: str | None = None
    owners: tuple[str, ...] = ()
    properties: tuple[PropertyChange, ...] = ()
    columns: ColumnsChange | None = None
    cost_bytes: int | None = 0
    risks: tuple[RiskNote, ...] = ()
    notes: tuple[str, ...] = ()
    tables: TablesChange | None = None
    is_source: bool = False

    @property
    def kind_word(self) -> str:
        """The kind as commands call it."""
        return "source" if self.is_source else self.kind.value

    def __repr__(self) -> str:
        risks = ", ".join(sorted({note.risk.value for note in self.risks}))
        return display.summary(self, f"{self.name}: {self.change.value}{risks and f', {risks}'}")


@dataclass(frozen=True, slots=True)
class Diff:
    """Two sides of a project compared under one target.

    `settings` are changes of the project and its target. `nodes` holds those that changed in the
    order of HEAD, then those that BASE alone has; `unchanged` counts the others. It prints as
    `lancestat diff` does.
    """

    project: str
    target: str
    base: str
    head: str
    nodes: tuple[NodeDiff, ...]
    unchanged: int
    settings: tuple[PropertyChange, ...] = ()
    notes: tuple[str, ...] = ()
    base_commit: str | None = None
    head_commit: str | None = None
    links: FileLinks = field(default_factory=FileLinks)

    def __repr__(self) -> str:
        counts = [f"{len(list(self.of(change)))} {change.value}" for change in Change]
        changes = ", ".join(text for text in counts if not text.startswith("0 "))
        what = changes or ("settings changed" if self.settings else "no changes")
        sides = f"{self.base} -> {self.head}"
        return display.summary(self, f"{self.project}, target {self.target}, {sides}: {what}")

    __str__ = display.as_text
    _repr_html_ = display.as_html

    @property
    def risks(self) -> frozenset[Risk]:
        """All risks of all nodes."""
        return frozenset(note.risk for node in self.nodes for note in node.risks)

    @property
    def cost_bytes(self) -> int | None:
        """The bytes that the first run reads for all changes, None where some are not known."""
        costs = [node.cost_bytes for node in self.nodes]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

    @property
    def is_empty(self) -> bool:
        """Whether both sides mean the same."""
        return not (self.nodes or self.settings)

    def of(self, change: Change) -> Iterable[NodeDiff]:
        """Return the nodes with that kind of change."""
        return (node for node in self.nodes if node.change is change)
