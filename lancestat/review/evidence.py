"""What a diff may open: what BASE, which was reviewed, reads, and nothing else; tables of sources.

Opening a dataset sends credentials to wherever its URI and the storage options lead. Those of HEAD
may be a stranger's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from lancestat.errors import LakeError, LancestatError
from lancestat.formats import count
from lancestat.lake.open import observe_snapshots
from lancestat.lake.snapshot import Snapshot
from lancestat.redact import Origin
from lancestat.review.values import (
    Findings,
    Mask,
    Properties,
    Property,
    PropertyChange,
    Risk,
    RiskNote,
    TablesChange,
    declared_risks,
)
from lancestat.runs.discover import FoundTable, found_tables, listed_places, located_uris
from lancestat.runs.node import N_contra, NodeRecord, NodeType, NodeTypes, read_uris
from lancestat.spec.catalog import SCHEME as CATALOG_SCHEME
from lancestat.spec.catalog import TableName
from lancestat.spec.model import Node, ProjectSpec, Source, Table, is_source, results_of
from lancestat.spec.source import DEFAULT_NAME
from lancestat.spec.source import SCHEME as SOURCE_SCHEME
from lancestat.state.store import StateReader
from lancestat.state.values import PartialIndex, canonical_uri

_NOWHERE_ELSE = "and credentials go only where BASE sends them"


def trusted_uris(base: ProjectSpec, head: ProjectSpec) -> frozenset[str]:
    """The URIs that may be opened with HEAD's storage options: BASE's, if BASE has these options.

    Catalogs give options, too: those of HEAD have to be BASE's.

    They are compared as they are spelled, since a query or a user in a URI may redirect a request.
    """
    if not has_same_options(base, head):
        return frozenset()
    outputs = (uri for node in base.nodes for uri in results_of(node))
    read = (uri for node in base.nodes for uri in read_uris(base, node))
    return frozenset(
        uri
        for uri in (*read, *outputs)
        if not uri.startswith(SOURCE_SCHEME)
        and base.options.declared(uri) == head.options.declared(uri)
    )


def is_state_trusted(base: ProjectSpec, head: ProjectSpec) -> bool:
    """Whether HEAD's state is where BASE's is, and opened with the same options."""
    return has_same_options(base, head) and base.target.state == head.target.state


def withheld_reason(base: ProjectSpec, head: ProjectSpec) -> str:
    """Return why a dataset that is not trusted is not opened."""
    if not has_same_options(base, head):
        has_same_catalogs = base.target.catalogs == head.target.catalogs
        what = "storage options" if has_same_catalogs else "catalogs"
        return f"the {what} are not those of BASE, {_NOWHERE_ELSE}"
    return f"BASE reads nothing at its URI, {_NOWHERE_ELSE}"


def has_same_options(base: ProjectSpec, head: ProjectSpec) -> bool:
    """Whether the storage options and the catalogs of HEAD are those of BASE."""
    return (
        base.target.storage_options == head.target.storage_options
        and base.target.catalogs == head.target.catalogs
    )


Opened = Mapping[str, Snapshot | LakeError]

_NOTHING = PartialIndex({}, {})


@dataclass(frozen=True, slots=True)
class Evidence:
    """Datasets by URI, and what runs remember of nodes by kind and key; both may be empty.

    `mask` redacts what they say, `is_opened` tells whether they were to be opened.
    Of them only those at `trusted` URIs are; `withheld` says why others are not.
    """

    spec: ProjectSpec
    mask: Mask
    now: datetime
    opened: Opened = field(default_factory=dict)
    state: StateReader | None = None
    records: Mapping[str, Mapping[str, NodeRecord]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_opened: bool = True
    trusted: frozenset[str] = frozenset()
    withheld: str = ""

    def may_open(self, uri: str) -> bool:
        """Whether the dataset or files at a URI may be opened."""
        return self.is_opened and uri in self.trusted

    def snapshot(self, uri: str) -> Snapshot | None:
        """A dataset as it is now, None where it could not be opened."""
        opened = self.opened.get(uri)
        return opened if isinstance(opened, Snapshot) else None

    def unopened_reason(self, uri: str) -> str | None:
        """Return what a note says of an unopened dataset, None where there is nothing to say."""
        if uri.startswith(SOURCE_SCHEME):
            return None
        if self.is_opened and uri not in self.trusted:
            return f"is not opened: {self.withheld}"
        opened = self.opened.get(uri)
        if not isinstance(opened, LakeError):
            return None
        return f"cannot be opened: {opened.code} {self.mask.line(opened.message)}"

    def index(self, table: str) -> PartialIndex:
        """Return the index of a table's partials, empty where the state cannot tell."""
        if self.state is None:
            return _NOTHING
        try:
            return self.state.partial_index(table)
        except LancestatError:
            return _NOTHING


def gather(
    nothing: Evidence,
    uris: Iterable[str],
    state: Callable[[], StateReader],
    types: NodeTypes,
) -> Evidence:
    """Open the trusted datasets in parallel and read the state; neither has to be there."""
    trusted = dict.fromkeys(filter(nothing.may_open, uris))
    if not trusted:
        return nothing
    places = located_uris(nothing.spec, trusted)
    opened = observe_snapshots(places.items(), nothing.spec.options)
    evidence = replace(nothing, opened=opened)
    if not any(isinstance(snapshot, Snapshot) for snapshot in evidence.opened.values()):
        return evidence
    try:
        reader = state()
        records = {kind: reader.records(kind, type.decode_record) for kind, type in types.items()}
        return replace(evidence, state=reader, records=records)
    except LancestatError as error:
        note = (
            "the state cannot be read, so that costs are those of a run which knows nothing: "
            f"{error.code} {nothing.mask.line(error.message)}"
        )
        return replace(evidence, notes=(note,))


class NodeChange(Protocol):
    """A node on both sides that differs, as its kind judges it."""

    @property
    def changed(self) -> tuple[PropertyChange, ...]:
        """The properties that differ."""

    def opened_uris(self, head: ProjectSpec) -> tuple[str, ...]:
        """Return the URIs of the Lance datasets that tell about the change."""

    def judge(self, evidence: Evidence) -> Findings:
        """Return the cost, the risks and the consequences of the change."""


@dataclass(frozen=True, slots=True)
class DeclaredChange:
    """A changed node that nothing is opened for: its risks are those that its keys declare."""

    old: Any
    new: Any
    changed: tuple[PropertyChange, ...]

    def opened_uris(self, head: ProjectSpec) -> tuple[str, ...]:
        return ()

    def judge(self, evidence: Evidence) -> Findings:
        if self.old is None or self.new is None:
            return Findings()
        return Findings(risks=tuple(declared_risks(self.old, self.new)))


class ReviewedType(NodeType[N_contra], Protocol[N_contra]):
    """A kind of node that judges what changes of its declarations mean."""

    def change(
        self,
        old: N_contra | None,
        new: N_contra | None,
        changed: tuple[PropertyChange, ...],
    ) -> NodeChange:
        """Return a change; one of the sides may be None, where the node is new or removed."""


ReviewedTypes = Mapping[str, ReviewedType[Any]]


_NAMED = 8
_MEANING = ("catalog", "uri", "include", "exclude", "name")


def with_sources(spec: ProjectSpec) -> ProjectSpec:
    """Return a project with a node for each source, as its tables are declared: nothing is opened.

    So the columns, the policy and the risks of a source are compared as those of a table are.
    """
    nodes: list[Table] = []
    origins = dict(spec.origins)
    for name, source in named_sources(spec).items():
        nodes.append(replace(source.stand_in(), name=name))
        if source.origins:
            origins[name] = source.origins
    return replace(spec, nodes=(*spec.nodes, *nodes), origins=origins)


def named_sources(spec: ProjectSpec) -> dict[str, Source]:
    """Return the sources by what a diff calls them: further ones of a label are numbered."""
    named: dict[str, Source] = {}
    for source in spec.sources:
        name, number = f"source:{source.label}", 1
        while name in named:
            number += 1
            name = f"source:{source.label}:{number}"
        named[name] = source
    return named


def stands_for_source(node: Node | None) -> bool:
    """Whether a node is one of `with_sources`."""
    return node is not None and is_source(node)


def source_properties(source: Source, properties: Properties, mask: Mask) -> dict[str, Property]:
    """Return what a source declares: where it looks, its patterns, then keys of its tables."""
    stated = {key: _property(source, key, mask) for key in _MEANING}
    return {
        **{key: stated for key, stated in stated.items() if stated is not None},
        **{key: stated for key, stated in properties.items() if key != "uri"},
    }


def without_defaults(properties: Properties) -> dict[str, Property]:
    """Return properties less the pattern and the template that sources have if they name none."""
    plain = {"include": ["*"], "name": DEFAULT_NAME}
    return {name: stated for name, stated in properties.items() if plain.get(name) != stated.value}


def _property(source: Source, key: str, mask: Mask) -> Property | None:
    value = getattr(source, key)
    if not value:
        return None
    if isinstance(value, str):
        return Property(value, mask.text(value), mask.text(value))
    texts = [mask.text(text) for text in value]
    return Property(list(value), ", ".join(texts), list(texts))


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A source on both sides: the keys of its tables, and the tables themselves.

    `unknown` says why it is not known what a side gives. `taken` are names of tables that another
    source of BASE gave, after the name of that, and what changes with the keys of the new one.
    """

    old: Node | None
    new: Node | None
    defaults: NodeChange
    tables: TablesChange
    unknown: str | None = None
    taken: tuple[tuple[str, tuple[str, ...], NodeChange], ...] = ()

    @property
    def changed(self) -> tuple[PropertyChange, ...]:
        """The properties that differ."""
        return self.defaults.changed

    def opened_uris(self, head: ProjectSpec) -> tuple[str, ...]:
        """Return the datasets that tell about the change: none, since tables are listed only."""
        return ()

    def judge(self, evidence: Evidence) -> Findings:
        """Return what the tables lose and gain."""
        lost, gained, is_known = self.tables.lost, self.tables.gained, self.tables.is_known
        findings = self.defaults.judge(evidence) if self.old and self.new else Findings()
        risks, notes, cost = [*findings.risks], [*findings.notes], findings.cost_bytes
        for giver, names, change in self.taken:
            judged = change.judge(evidence)
            cost = None if judged.cost_bytes is None else cost
            for note in judged.risks:
                risks.append(RiskNote(note.risk, f"{note.sentence} (tables from {giver})"))
            keys = ", ".join(changed.name for changed in change.changed) or "nothing"
            notes.append(f"takes {_listed(names)} from {giver}; what changes for them: {keys}")
        if lost or (self.new is None and not is_known):
            text = f"nothing refreshes the statistics of {_counted(lost)}"
            risks.append(RiskNote(Risk.COVERAGE_LOST, text))
        if gained or (self.old is None and not is_known):
            cost = None
            text = f"the first run reads an unknown amount more for {_counted(gained)}"
            risks.append(RiskNote(Risk.COST_INCREASED, text))
        if not is_known:
            text = f"which tables come and go is not known: {self.unknown}"
            risks.append(RiskNote(Risk.EFFECT_UNKNOWN, text))
        return replace(
            findings,
            tables=None if self.tables.is_empty else self.tables,
            cost_bytes=cost,
            risks=tuple(risks),
            notes=(*notes, *_consequences(self.tables)),
        )


def _counted(names: tuple[str, ...]) -> str:
    return f"{count(len(names), 'table')}: {_listed(names)}" if names else "its tables"


def _consequences(tables: TablesChange) -> Iterator[str]:
    if tables.lost:
        yield "what is published stays in the manifests of these tables, where readers may find it"
        yield "'lancestat gc' drops what the state knows of them"
    if tables.renamed:
        names = tuple(f"{old} is now {new}" for old, new in tables.renamed)
        yield f"queries and selections need other names: {_listed(names)}"


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {count(len(names) - _NAMED)} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


@dataclass(slots=True)
class SourceTables:
    """What sources of two sides give, by what a diff calls them.

    `before` and `after` are all tables by their places, `taken` those that another source of BASE
    gave, by both sources' names, `origins` those of the values of partners by `id`. Only catalogs
    and folders are listed of which BASE has a source, by BASE's own declarations.
    """

    changes: dict[str, TablesChange] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    before: dict[str, FoundTable] = field(default_factory=dict)
    after: dict[str, FoundTable] = field(default_factory=dict)
    taken: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    origins: dict[int, Mapping[str, Origin]] = field(default_factory=dict)

    def of(self, name: str) -> tuple[TablesChange, str | None]:
        """Return what changes of the tables of a source, and why that may not be all."""
        reason = self.unknown.get(name)
        change = self.changes.get(name, TablesChange())
        return replace(change, is_known=reason is None), reason

    def partner(self, node: Node, *, is_new: bool) -> Table | None:
        """Return what a source makes of the same table on the other side, None for nothing."""
        if node.kind is not Source.lists or is_source(node):
            return None
        found = (self.before if is_new else self.after).get(_place(node.dataset_uri))
        if found is None:
            return None
        made = replace(found.source.node(found.node, found.table), uri=node.dataset_uri)
        self.origins[id(made)] = found.source.origins
        return made


def compare_tables(
    base: ProjectSpec, head: ProjectSpec, mask: Mask, *, is_opened: bool, has_moved: bool
) -> SourceTables:
    """Compare the tables that the sources of both sides give, as catalogs and folders are now."""
    old, new = named_sources(base), named_sources(head)
    changed = [
        name
        for name in dict.fromkeys((*new, *old))
        if not _gives_same(base, old.get(name), head, new.get(name))
    ]
    tables = SourceTables()
    if not changed and not (has_moved and (old or new)):
        return tables
    listed, refused = _look_up(base, head, is_opened=is_opened)
    for name in changed:
        for source in filter(None, (new.get(name), old.get(name))):
            if source.catalog_name in refused:
                tables.unknown.setdefault(name, mask.line(refused[source.catalog_name]))
    before, after = found_tables(base, listed), found_tables(head, listed)
    names = {id(source): name for side in (old, new) for name, source in side.items()}
    tables.before, tables.after = ({found.place: found for found in one} for one in (before, after))
    _compare(tables, base, head, names, mask)
    return tables


def _gives_same(
    base: ProjectSpec, before: Source | None, head: ProjectSpec, after: Source | None
) -> bool:
    """Whether a source asks the same place for the same tables, by the same names."""
    if before is None or after is None:
        return False
    catalogs = [
        None if source.catalog is None else spec.target.catalogs.get(source.catalog)
        for spec, source in ((base, before), (head, after))
    ]
    is_same = all(getattr(before, key) == getattr(after, key) for key in _MEANING)
    return is_same and catalogs[0] == catalogs[1]


def _look_up(
    base: ProjectSpec, head: ProjectSpec, *, is_opened: bool
) -> tuple[Mapping[str, list[TableName] | LakeError], dict[str, str]]:
    """List what may be listed; return that, and why others are not."""
    trusted = {source.catalog_name for source in base.sources}
    refused: dict[str, str] = {}
    for name in {source.catalog_name for source in (*base.sources, *head.sources)}:
        if not is_opened:
            refused[name] = "it is not looked up with --no-datasets"
        elif not has_same_options(base, head):
            refused[name] = (
                "it is not looked up, since the storage options or the catalogs are not those of "
                "BASE"
            )
        elif name not in trusted:
            refused[name] = "it is not looked up, since BASE has no source there"
    asked = [source for source in base.sources if source.catalog_name not in refused]
    listed = listed_places(base, asked) if asked else {}
    for name, tables in listed.items():
        if isinstance(tables, LakeError):
            refused[name] = f"it cannot be looked up: {tables.code} {tables.message}"
    return {name: tables for name, tables in listed.items() if name not in refused}, refused


def _compare(
    tables: SourceTables,
    base: ProjectSpec,
    head: ProjectSpec,
    names: Mapping[int, str],
    mask: Mask,
) -> None:
    then, now = tables.before, tables.after
    declared_then, declared_now = _declared(base), _declared(head)
    lost = [found for place, found in then.items() if place not in now.keys() | declared_now]
    lost = _not_declared_elsewhere(base, lost, declared_now - declared_then)
    gained = [found for place, found in now.items() if place not in then.keys() | declared_then]
    renamed = [
        (then[place], found)
        for place, found in now.items()
        if place in then and then[place].node != found.node
    ]
    for name in dict.fromkeys(names.values()):
        change = TablesChange(
            gained=_names(gained, name, names, mask),
            lost=_names(lost, name, names, mask),
            renamed=tuple(
                (mask.line(old.node), mask.line(new.node))
                for old, new in renamed
                if names[id(new.source)] == name
            ),
        )
        if not change.is_empty:
            tables.changes[name] = change
    for place, found in now.items():
        if place in then and names[id(then[place].source)] != names[id(found.source)]:
            givers = tables.taken.setdefault(names[id(found.source)], {})
            givers.setdefault(names[id(then[place].source)], []).append(mask.line(found.node))


def _names(
    found: Iterable[FoundTable], name: str, names: Mapping[int, str], mask: Mask
) -> tuple[str, ...]:
    return tuple(
        sorted(mask.line(table.node) for table in found if names[id(table.source)] == name)
    )


def _declared(spec: ProjectSpec) -> frozenset[str]:
    """The places of declared tables, as `FoundTable` has them."""
    return frozenset(_place(node.dataset_uri) for node in spec.nodes)


def _place(uri: str) -> str:
    return uri if uri.startswith(CATALOG_SCHEME) else canonical_uri(uri)


def _not_declared_elsewhere(
    base: ProjectSpec, lost: list[FoundTable], declared: frozenset[str]
) -> list[FoundTable]:
    """Return tables less those that HEAD declares by the URIs that BASE's catalogs have them at."""
    uris = {place for place in declared if not place.startswith(CATALOG_SCHEME)}
    asked = [found.place for found in lost if found.place.startswith(CATALOG_SCHEME)]
    if not uris or not asked:
        return lost
    located = located_uris(base, asked)
    return [
        found for found in lost if canonical_uri(located.get(found.place, found.place)) not in uris
    ]
