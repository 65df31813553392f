"""The values of a diff: declared properties, their changes, and what may be shown of them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from lancestat import display
from lancestat.errors import Location
from lancestat.formats import StringEnum, age, count, visible
from lancestat.redact import EMPTY_REDACTOR, Audience, Origin, Redactor, redact_line
from lancestat.review.sides import FileLinks
from lancestat.spec.budget import Budget
from lancestat.spec.declaration import (
    FLAG,
    ByName,
    Chosen,
    Declared,
    Key,
    KeyField,
    Role,
    Settings,
    key_fields,
)
from lancestat.spec.declaration import Risk as Risk
from lancestat.spec.expectations import Expectation
from lancestat.spec.model import (
    ColumnPattern,
    ColumnRule,
    ColumnSelection,
    CommonValues,
    Freshness,
    KnnSide,
    Node,
    NodeKind,
    Policy,
    ProjectFile,
    ProjectSpec,
    Reference,
    StaleBounds,
)
from lancestat.spec.monitors import Monitor
from lancestat.spec.redaction import named
from lancestat.spec.relations import groups_text

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
    links: FileLinks = (None, None)

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


HIDDEN = "(hidden)"

Properties = Mapping[str, Property]
Origins = Mapping[str, Origin]


def node_properties(node: Node, origins: Origins, mask: Mask) -> dict[str, Property]:
    """Return all that a node declares and that is not left at nothing, by dotted key.

    Remarks come last.
    """
    stated = sorted(_stated(node), key=_Stated.order)
    return {
        entry.label: _masked(entry.hidden(origins), mask)
        for entry in stated
        if entry.property.value not in (None, [])
    }


def project_properties(spec: ProjectSpec, mask: Mask) -> dict[str, Property]:
    """Return what a project and its target declare, with settings, which are hidden, at the end.

    Hooks may be secret. Where their variables are not set, they are compared as they are written.
    """
    hooks: Any = spec.hooks.written or (spec.hooks if spec.hooks else None)
    shared = next(each for each in key_fields(ProjectFile) if each.name == "monitors")
    project = (
        _Stated("name", ("name",), Property(spec.name, spec.name, spec.name)),
        _Stated("monitors", ("monitors",), _property(shared.first, spec.monitors)),
        _Stated("hooks", ("hooks",), Property(hooks, HIDDEN, None, True)),
    )
    stated = sorted((*project, *_stated(spec.target)), key=lambda entry: entry.property.is_hidden)
    return {
        entry.label: _masked(
            entry.property if entry.property.is_hidden else entry.hidden(spec.target_origins),
            mask,
        )
        for entry in stated
        if entry.property.value not in (None, [])
    }


def without_flags(properties: Properties) -> dict[str, Property]:
    """Return properties less the switches that are as most nodes have them."""
    return {
        name: entry
        for name, entry in properties.items()
        if not (entry.is_default and entry.key is not None and entry.key.shape is FLAG)
    }


def changes(old: Properties, new: Properties) -> tuple[PropertyChange, ...]:
    """The properties that differ, in the order in which nodes have them."""
    names = dict.fromkeys((*old, *new))
    return tuple(
        PropertyChange(name, old.get(name), new.get(name))
        for name in names
        if name not in old or name not in new or old[name].value != new[name].value
    )


def declared_risks(old: Declared, new: Declared) -> Iterator[RiskNote]:
    """Yield the risks of a changed node that its declaration words by itself (`Key.warning`)."""
    for declared in key_fields(type(new)):
        key = declared.first
        before, after = getattr(old, declared.name), getattr(new, declared.name)
        if key.risk is None or key.warning is None or before == after:
            continue
        sentence = key.warning(before, after)
        if sentence is not None:
            yield RiskNote(key.risk, sentence)


def selection_rules(selection: ColumnSelection) -> tuple[ColumnRule, ...]:
    """A selection as rules alone, in one form for all ways to write it.

    What a table excludes leaves each of its rules, so it may as well be part of them; and rules
    that differ in what they include only are one. So a column set means the same inline.
    """
    every = ColumnRule((ColumnPattern("*"),))
    merged: dict[tuple[frozenset[str], frozenset[str] | None], set[str]] = {}
    for rule in (every,) if selection.all else selection.rules:
        excluded = frozenset(pattern.text for pattern in (*rule.exclude, *selection.exclude))
        merged.setdefault((excluded, rule.types), set()).update(
            pattern.text for pattern in rule.include
        )
    return tuple(
        ColumnRule(_patterns(include), _patterns(exclude), types)
        for (exclude, types), include in sorted(
            merged.items(),
            key=lambda rule: (sorted(rule[1]), sorted(rule[0][0]), sorted(rule[0][1] or ())),
        )
    )


def _patterns(texts: frozenset[str] | set[str]) -> tuple[ColumnPattern, ...]:
    return tuple(ColumnPattern(text) for text in sorted(texts))


@dataclass(frozen=True, slots=True)
class _Stated:
    """A property, what diffs call it, and the dotted keys that may have given its value."""

    label: str
    names: tuple[str, ...]
    property: Property

    def order(self) -> tuple[bool, str]:
        """What properties are sorted by: remarks come last."""
        is_remark = self.property.key is not None and self.property.key.role is Role.REMARK
        return is_remark, self.label if is_remark else ""

    def hidden(self, origins: Origins) -> Property:
        """Return the property with its template in place of a value that came from one."""
        template = named(origins, *self.names)
        if template is None:
            return self.property
        return replace(self.property, text=template, json=template, is_hidden=True)


def _stated(resource: Declared, prefix: str = "", path: str = "") -> Iterator[_Stated]:
    """Yield the properties of a resource."""
    for declared in key_fields(type(resource)):
        if declared.first.role is Role.LABEL or not declared.spelled:
            continue
        key, value = _spelling(resource, declared), getattr(resource, declared.name)
        label = f"{prefix}{key.diff_label}"
        names = tuple(f"{path}{spelled.name}" for spelled in declared.spelled)
        if isinstance(key.shape, Settings):
            for name in sorted(value):
                hidden = Property(value[name], HIDDEN, None, True, key)
                yield _Stated(f"{label}.{name}", (f"{names[0]}.{name}",), hidden)
        elif isinstance(key.shape, ByName):
            for name in sorted(value):
                yield from _stated(value[name], f"{label}.{name}.", f"{names[0]}.{name}.")
        elif isinstance(value, Policy | KnnSide | Freshness | CommonValues | Budget):
            yield from _stated(value, f"{label}." if key.diff_label else prefix, f"{names[0]}.")
        else:
            entry = replace(_property(key, value), is_default=value is declared.default)
            yield _Stated(label, names, entry)


def _spelling(resource: Declared, declared: KeyField) -> Key:
    """Return the key that sets a field; of several, the one that another field names."""
    words = {
        getattr(resource, other.name)
        for other in key_fields(type(resource))
        if any(isinstance(key.shape, Chosen) for key in other.keys)
    }
    chosen = (key for key in declared.spelled if key.path[-1] in words)
    return next(chosen, declared.spelled[-1])


def _property(key: Key, value: Any) -> Property:
    json = key.unset if value is None else _json(value)
    if isinstance(json, list) and key.role is Role.REMARK:
        json = sorted({*json})
    text = _text(value, json) if key.words is None else key.words(value)
    value = json if key.canonical is None else _unordered(json)
    return Property(value, text, json, key=key)


def _unordered(json: Any) -> Any:
    """Return a list that means the same in any order, in one; mappings in it stay as they are."""
    return sorted(map(_unordered, json), key=repr) if isinstance(json, list) else json


def _json(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case timedelta():
            return value.total_seconds()
        case StaleBounds():
            return dict(_bounds(value))
        case ColumnSelection():
            return [_rule(rule) for rule in selection_rules(value)]
        case tuple():
            return [_json(item) for item in value]
        case Reference():
            return _members(value)
        case Expectation(check=check):
            return {check.name: _members(check)}
        case Monitor(watched=watched):
            return {watched.name: _members(watched)}
    return value


def _members(resource: Declared) -> Json:
    """Return the values of a resource, less those that are not set."""
    members = {key.name: getattr(resource, key.name) for key in key_fields(type(resource))}
    return {name: _json(value) for name, value in members.items() if value is not None}


def _bounds(bounds: StaleBounds) -> Iterator[tuple[str, Json]]:
    for declared in key_fields(StaleBounds):
        value = getattr(bounds, declared.name)
        if value is not None:
            unit = "_seconds" if isinstance(value, timedelta) else ""
            yield f"{declared.name}{unit}", _json(value)


def _text(value: Any, json: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return count(value)
        case float():
            return f"{value:g}"
        case timedelta():
            return age(value)
        case ColumnSelection():
            return "; ".join(map(_rule_text, selection_rules(value)))
        case (tuple(), *_):
            return groups_text(value)
        case tuple():
            return ", ".join(json)
    return json or ""


def _rule(rule: ColumnRule) -> Json:
    return {
        "include": [pattern.text for pattern in rule.include],
        "exclude": [pattern.text for pattern in rule.exclude],
        "types": None if rule.types is None else list[Json](sorted(rule.types)),
    }


def _rule_text(rule: ColumnRule) -> str:
    included = ", ".join(pattern.text for pattern in rule.include)
    parts = ["all" if included == "*" else included]
    if rule.types is not None:
        parts.append(f"of type {' or '.join(sorted(rule.types))}")
    if rule.exclude:
        parts.append(f"but {', '.join(pattern.text for pattern in rule.exclude)}")
    return " ".join(parts)


def _masked(entry: Property, mask: Mask) -> Property:
    return replace(entry, text=mask.text(entry.text), json=_masked_json(entry.json, mask))


def _masked_json(value: Json, mask: Mask) -> Json:
    if isinstance(value, str):
        return mask.text(value)
    if isinstance(value, list):
        return [_masked_json(item, mask) for item in value]
    if isinstance(value, dict):
        return {name: _masked_json(item, mask) for name, item in value.items()}
    return value
