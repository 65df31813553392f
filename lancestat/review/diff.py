"""Compares two sides of a project, node by node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import MappingProxyType

from lancestat.errors import ForeignState, LancestatError
from lancestat.review.evidence import (
    Evidence,
    NodeChange,
    ReviewedTypes,
    SourceChange,
    SourceTables,
    compare_tables,
    gather,
    is_state_trusted,
    named_sources,
    source_properties,
    stands_for_source,
    trusted_uris,
    with_sources,
    withheld_reason,
    without_defaults,
)
from lancestat.review.sides import Side, Sides, file_links, find_sides
from lancestat.review.values import (
    Change,
    Diff,
    Mask,
    NodeDiff,
    Origins,
    Property,
    PropertyChange,
    Risk,
    RiskNote,
    changes,
    node_properties,
    project_properties,
    without_flags,
)
from lancestat.runs.discover import without_stand_ins
from lancestat.runs.node import read_uris
from lancestat.spec.graph import dependencies, node_states, select_on_either
from lancestat.spec.model import Node, ProjectSpec, Source, expects_something
from lancestat.state.store import StateReader, open_state
from lancestat.state.values import canonical_uri


@dataclass(frozen=True, slots=True)
class NodePair:
    """A node on both sides, None where a side has none."""

    old: Node | None
    new: Node | None

    @property
    def node(self) -> Node:
        """The node, as HEAD has it if it does."""
        node = self.new if self.new is not None else self.old
        assert node is not None
        return node

    @property
    def change(self) -> Change:
        if self.old is None:
            return Change.ADDED
        return Change.REMOVED if self.new is None else Change.CHANGED

    @property
    def names(self) -> frozenset[str]:
        """Its names on both sides."""
        return frozenset(node.name for node in (self.old, self.new) if node is not None)


def pair_nodes(base: ProjectSpec, head: ProjectSpec) -> tuple[NodePair, ...]:
    """All nodes of both sides, those of HEAD first.

    Nodes belong together by kind and name; and where a name came and another went, by the one
    dataset that both have alone.
    """
    old = {_name(node): node for node in base.nodes}
    new = {_name(node): node for node in head.nodes}
    went = _alone(node for name, node in old.items() if name not in new)
    came = _alone(node for name, node in new.items() if name not in old)
    renamed = {_name(came[identity]): went[identity] for identity in came.keys() & went.keys()}
    pairs = [NodePair(old.get(name) or renamed.get(name), node) for name, node in new.items()]
    taken = {_name(matched.old) for matched in pairs if matched.old is not None}
    left = (NodePair(node, None) for name, node in old.items() if name not in taken)
    return (*pairs, *left)


Key = tuple[str, str]

# Returns a sentence for each node of a project whose expectations are looked at.
CheckNodes = Callable[[ProjectSpec, Sequence[Node], StateReader], Mapping[str, str]]


def _name(node: Node) -> Key:
    return node.kind.value, node.name


def _alone(nodes: Iterable[Node]) -> dict[Key, Node]:
    """Nodes by what they write to, without those that share it."""
    alone: dict[Key, Node | None] = {}
    for node in nodes:
        identity = node.kind.value, canonical_uri(node.dataset_uri)
        alone[identity] = None if identity in alone else node
    return {identity: node for identity, node in alone.items() if node is not None}


_STATE_MOVED = "the state is elsewhere: unless it is moved too, runs know nothing of earlier ones"
_FELT_BY_READERS = frozenset((Risk.DATASET_MOVED, Risk.OUTPUT_MOVED, Risk.JOIN_MEANING_CHANGED))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides of a project, loaded; `labels` name them, `commits` are those of revisions.

    `types` are the kinds of nodes, which judge what changes mean. `check` says in words whether
    nodes of BASE are as BASE expects.
    """

    base: ProjectSpec
    head: ProjectSpec
    types: ReviewedTypes
    labels: tuple[str, str]
    commits: tuple[str | None, str | None] = (None, None)
    check: CheckNodes | None = None

    @property
    def mask(self) -> Mask:
        """The mask of the secrets of both sides."""
        return Mask.of(self.head, self.base)

    def diff(
        self,
        names: frozenset[str],
        state: Callable[[], StateReader] | None,
        now: datetime,
    ) -> Diff:
        """Return what changes."""
        pairs = [pair for pair in pair_nodes(self.base, self.head) if pair.names & names]
        one_sided = [pair.node for pair in pairs if pair.old is None or pair.new is None]
        tables = compare_tables(
            without_stand_ins(self.base),
            without_stand_ins(self.head),
            self.mask,
            is_opened=state is not None,
            has_moved=any(node.kind is Source.lists for node in one_sided),
        )
        # A source may make a table that only one side declares.
        pairs = [
            NodePair(
                pair.old or tables.partner(pair.node, is_new=True),
                pair.new or tables.partner(pair.node, is_new=False),
            )
            for pair in pairs
        ]
        changed = [
            (pair, change) for pair in pairs if (change := self._changed(pair, tables)) is not None
        ]
        evidence = self._evidence((change for _, change in changed), state, now)
        checked = {} if state is None else self._checked([pair for pair, _ in changed], state)
        settings = changes(
            *(project_properties(spec, self.mask) for spec in (self.base, self.head))
        )
        has_moved = any(setting.name == "state" for setting in settings)
        moved = (_STATE_MOVED,) if has_moved else ()
        return Diff(
            project=self.mask.line(self.head.name),
            target=self.mask.line(self.head.target.name),
            base=self.mask.line(self.labels[0]),
            head=self.mask.line(self.labels[1]),
            nodes=tuple(self._node(pair, change, evidence, checked) for pair, change in changed),
            unchanged=len(pairs) - len(changed),
            settings=settings,
            notes=(*moved, *evidence.notes),
            base_commit=self.commits[0],
            head_commit=self.commits[1],
        )

    def _changed(self, pair: NodePair, tables: SourceTables) -> NodeChange | None:
        old, new = pair.old, pair.new
        before = {} if old is None else self._properties(self.base, old, tables)
        after = {} if new is None else self._properties(self.head, new, tables)
        if old is None or new is None:
            before, after = without_flags(before), without_flags(after)
            if stands_for_source(pair.node):
                before, after = without_defaults(before), without_defaults(after)
        changed = changes(before, after)
        if old is not None and new is not None and old.name != new.name:
            before_name, name = (Property(node.name, node.name, node.name) for node in (old, new))
            changed = (PropertyChange("name", before_name, name), *changed)
        type = self.types[pair.node.kind.value]
        if stands_for_source(pair.node):
            given, unknown = tables.of(pair.node.name)
            taken = tuple(self._taken(pair.node.name, tables))
            if not changed and given.is_empty and not taken:
                return None
            defaults = type.change(old, new, changed)
            return SourceChange(old, new, defaults, given, unknown, taken)
        return type.change(old, new, changed) if changed else None

    def _taken(
        self, name: str, tables: SourceTables
    ) -> Iterator[tuple[str, tuple[str, ...], NodeChange]]:
        """Yield the tables that a source of HEAD takes from other sources of BASE."""
        for giver, names in tables.taken.get(name, {}).items():
            old, new = self.base.node(giver), self.head.node(name)
            assert old is not None and new is not None
            before = node_properties(old, _origins(self.base, old), self.mask)
            after = node_properties(new, _origins(self.head, new), self.mask)
            changed = tuple(change for change in changes(before, after) if change.name != "uri")
            change = self.types[new.kind.value].change(
                old.located({old.dataset_uri: new.dataset_uri}), new, changed
            )
            yield giver, tuple(sorted(names)), change

    def _properties(
        self, spec: ProjectSpec, node: Node, tables: SourceTables
    ) -> dict[str, Property]:
        origins = tables.origins.get(id(node), _origins(spec, node))
        stated = node_properties(node, origins, self.mask)
        if not stands_for_source(node):
            return stated
        return source_properties(named_sources(spec)[node.name], stated, self.mask)

    def _evidence(
        self,
        changed: Iterable[NodeChange],
        state: Callable[[], StateReader] | None,
        now: datetime,
    ) -> Evidence:
        nothing = Evidence(
            self.head,
            self.mask,
            now,
            is_opened=state is not None,
            trusted=trusted_uris(self.base, self.head),
            withheld=withheld_reason(self.base, self.head),
        )
        if state is None:
            return nothing
        uris: list[str] = []
        for change in changed:
            uris += change.opened_uris(self.head)
        return gather(nothing, uris, state, self.types)

    def _checked(
        self, pairs: Sequence[NodePair], state: Callable[[], StateReader]
    ) -> Mapping[str, str]:
        """Return in words whether changed nodes are as BASE expects.

        Nothing is said of what HEAD expects: its author could ask for values by and by.
        """
        both = [pair.old for pair in pairs if pair.old is not None and pair.new is not None]
        trusted = trusted_uris(self.base, self.head)
        nodes = [
            node
            for node in both
            if expects_something(node, self.base.monitors)
            and trusted.issuperset(read_uris(self.base, node))
        ]
        if self.check is None or not nodes:
            return {}
        try:
            return self.check(self.base, nodes, state())
        except ForeignState:
            # Another note says so.
            return {}
        except LancestatError as error:
            unknown = f"whether it is as BASE expects is not known: {error.code} {error.message}"
            return {node.name: unknown for node in nodes}

    def _node(
        self,
        pair: NodePair,
        change: NodeChange,
        evidence: Evidence,
        checked: Mapping[str, str],
    ) -> NodeDiff:
        node, old, mask = pair.node, pair.old, evidence.mask
        findings = change.judge(evidence)
        is_renamed = old is not None and old.name != node.name
        risks = {note.risk for note in findings.risks}
        readers = self._read_by(pair) if is_renamed or risks & _FELT_BY_READERS else ()
        expected = [checked[old.name]] if old is not None and old.name in checked else []
        return NodeDiff(
            name=mask.line(node.name),
            kind=node.kind,
            change=pair.change,
            location=replace(node.location, file=mask.line(node.location.file)),
            previous_name=mask.line(old.name) if is_renamed and old is not None else None,
            owners=mask.lines(dict.fromkeys(self._owners(pair))),
            properties=change.changed,
            columns=findings.columns,
            tables=findings.tables,
            is_source=isinstance(change, SourceChange),
            cost_bytes=findings.cost_bytes,
            risks=tuple(RiskNote(note.risk, mask.line(note.sentence)) for note in findings.risks),
            notes=mask.lines((*findings.notes, *readers, *expected)),
        )

    def _owners(self, pair: NodePair) -> Iterator[str]:
        for spec, node in ((self.head, pair.new), (self.base, pair.old)):
            if node is not None and node.owner is not None:
                origin = _origins(spec, node).get("owner")
                yield node.owner if origin is None else origin.template

    def _read_by(self, pair: NodePair) -> Iterable[str]:
        if pair.new is None:
            return
        name = pair.new.name
        readers = [reader for reader, reads in dependencies(self.head).items() if name in reads]
        if readers:
            yield f"read by {', '.join(readers)}"


def _origins(spec: ProjectSpec, node: Node) -> Origins:
    return spec.origins.get(node.name, {})


Selector = str | Sequence[str] | None


def review(
    project_dir: Path,
    base: str,
    head: str | None = None,
    *,
    types: ReviewedTypes,
    check: CheckNodes | None = None,
    target: str | None = None,
    vars: Mapping[str, object] | None = None,
    select: Selector = None,
    exclude: Selector = None,
    with_datasets: bool = True,
    environment: Mapping[str, str] = MappingProxyType({}),
    clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    loaded: Callable[[ProjectSpec], object] = lambda spec: None,
) -> Diff:
    """Compare what two sides of a project declare, under a target, its default when None.

    With `with_datasets` the datasets and the state of `base` are opened, to name columns and to
    estimate bytes, and `check` says whether changed nodes are as `base` expects. What only `head`
    names is never opened. `environment` is that of a job, and
    tells where the files of both sides are shown; `loaded` is called with each side.
    """
    sides = find_sides(project_dir, base, head)
    old, new = _load(sides, target, vars or {}, loaded)
    comparison = Comparison(
        old,
        new,
        types,
        (sides.base.label, sides.head.label),
        (sides.base.commit, sides.head.commit),
        check,
    )
    state = _state_of(None if sides.base.is_before_project else old, new)
    names = _names((old, new), select, exclude, state)
    diff = comparison.diff(names, state if with_datasets else None, clock())
    diff = replace(diff, links=file_links(environment, sides))
    if sides.base.is_before_project:
        where = comparison.mask.line(sides.base.where)
        note = f"there is no project {where}: every node is new"
        return replace(diff, notes=(note, *diff.notes))
    return diff


def _load(
    sides: Sides,
    target: str | None,
    vars: Mapping[str, object],
    loaded: Callable[[ProjectSpec], object],
) -> tuple[ProjectSpec, ProjectSpec]:
    def load(side: Side) -> ProjectSpec:
        spec = side.load(sides.root, target=target, vars=vars)
        loaded(spec)
        return with_sources(spec)

    if sides.base.is_before_project:
        new = load(sides.head)
        return replace(new, nodes=(), origins={}, sources=()), new
    return load(sides.base), load(sides.head)


def _state_of(old: ProjectSpec | None, new: ProjectSpec) -> Callable[[], StateReader]:
    def opened() -> StateReader:
        if old is None or not is_state_trusted(old, new):
            message = "the place of the state or its storage options are not those of BASE"
            raise ForeignState(message)
        return open_state(new.target.state, new.target.storage_options)

    return opened


def _names(
    specs: tuple[ProjectSpec, ProjectSpec],
    select: Selector,
    exclude: Selector,
    state: Callable[[], StateReader],
) -> frozenset[str]:
    """The names that selectors mean on either side; one that fits no node of both is an error."""
    sides = [(spec, partial(_states, spec, state)) for spec in specs]
    return select_on_either(sides, select, exclude)


def _states(spec: ProjectSpec, state: Callable[[], StateReader]) -> Mapping[str, str]:
    return node_states(spec, state().digests(spec.name, spec.target.name))
