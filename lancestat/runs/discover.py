"""Finds tables: asks catalogs where they are, and makes nodes of those that sources list."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from lancestat.errors import (
    CatalogTableMissing,
    DatasetMissing,
    FoundTableMissing,
    LakeError,
    LancestatError,
    ManagedByCatalog,
    UnusableTableNames,
    did_you_mean,
)
from lancestat.formats import count
from lancestat.lake.catalog_tables import LocatedTable, locate, tables_at
from lancestat.lake.catalogs import client_of
from lancestat.lake.files import local_path
from lancestat.redact import Audience, redact_line
from lancestat.runs.actions import SourceFindings
from lancestat.runs.node import NodeRecord
from lancestat.runs.result import Status
from lancestat.spec.catalog import SCHEME as CATALOG_SCHEME
from lancestat.spec.catalog import Catalog, TableName, shown_uri, table_name_of
from lancestat.spec.graph import shared_output_error
from lancestat.spec.model import (
    Node,
    NodeKind,
    ProjectSpec,
    Source,
    Table,
    is_source,
    is_stand_in,
    tables_of,
)
from lancestat.spec.names import folded
from lancestat.spec.source import SCHEME
from lancestat.state.store import StateReader
from lancestat.state.values import canonical_uri, table_identity


def located(spec: ProjectSpec, nodes: Sequence[Node]) -> tuple[ProjectSpec, tuple[Node, ...]]:
    """Ask the catalogs for the tables that nodes name, or read by the names of other nodes.

    Returns:
        The project and its nodes with the URIs of datasets in place of names of tables, and the
        given nodes likewise. A table that cannot be located keeps the URI that stands for it;
        `spec.options` raises the reason when it is to be opened.
    """
    names = _names(spec, nodes)
    if not names:
        return spec, tuple(nodes)
    results = {node.result_uri for node in (*spec.nodes, *nodes)}
    uris = _ask(spec, names, results)
    moved = replace(spec, nodes=tuple(node.located(uris) for node in spec.nodes))
    return moved, tuple(node.located(uris) for node in nodes)


def located_uris(spec: ProjectSpec, uris: Iterable[str]) -> dict[str, str]:
    """Return the URI of a dataset for every given one; `spec.options` has the options of each.

    What cannot be located keeps the URI that stands for it, as in `located`.
    """
    names = {uri: table_name_of(uri) for uri in uris}
    found = _ask(spec, [name for name in names.values() if name is not None], ())
    return {uri: found.get(uri, uri) for uri in names}


def _ask(
    spec: ProjectSpec, names: Sequence[TableName], results: Collection[str | None]
) -> dict[str, str]:
    """Return URIs of datasets by those that stood for them; what joins write may be missing."""
    uris: dict[str, str] = {}
    answers = locate(names, spec.target.catalogs, lambda name: spec.options.declared(name.uri))
    for name, answer in answers.items():
        if isinstance(answer, LocatedTable):
            uris[name.uri] = answer.uri
            spec.options.locate(answer.uri, answer.options)
            spec.options.locate(name.uri, None)
        else:
            is_to_come = name.uri in results and isinstance(answer, CatalogTableMissing)
            spec.options.locate(name.uri, None if is_to_come else answer)
    return uris


def _names(spec: ProjectSpec, nodes: Iterable[Node]) -> tuple[TableName, ...]:
    """Return the tables of catalogs that nodes name, or other nodes that they name."""
    names: dict[TableName, None] = {}
    pending, seen = list(nodes), set()
    while pending:
        node = pending.pop()
        if node.name in seen:
            continue
        seen.add(node.name)
        uris = (*node.input_uris, node.dataset_uri)
        names |= dict.fromkeys(name for name in map(table_name_of, uris) if name is not None)
        named = (spec.node(ref) for _, ref in node.named_refs())
        pending += (other for other in named if other is not None)
    return tuple(names)


def shared_outputs(spec: ProjectSpec, nodes: Iterable[Node]) -> dict[str, LancestatError]:
    """Return the errors of nodes that have one dataset, by the names of the nodes.

    They are those that only catalogs can tell; reading the YAML finds the others.
    """
    known = {node.name: node for node in (*spec.nodes, *nodes)}.values()
    if not any(node.declared is not None for node in known):
        return {}
    # Catalogs spell the place of a dataset in one way, people in several.
    has_uris = any(node.declared is None for node in known)
    owners: dict[tuple[NodeKind, str], list[Node]] = {}
    for node in known:
        uri = node.dataset_uri
        place = canonical_uri(uri) if has_uris else uri.rstrip("/")
        owners.setdefault((node.kind, place), []).append(node)
    errors: dict[str, LancestatError] = {}
    for sharing in owners.values():
        if len(sharing) > 1 and any(node.declared is not None for node in sharing):
            first, second, *_ = sharing
            errors[first.name] = shared_output_error(second, first)
            errors |= {node.name: shared_output_error(node, first) for node in sharing[1:]}
    return errors


def require_sole_writer(spec: ProjectSpec, node: Node) -> None:
    """Refuse a node that would write by a URI to a dataset that catalogs of the target have.

    It is refused where the catalog owns the versions of the dataset, and where another node, which
    need not be planned, names the dataset as the catalog does.
    """
    uri = node.written_uri
    if uri is None or table_name_of((node.declared or node).dataset_uri) is not None:
        return
    tables = list(tables_at(uri, spec.target.catalogs))
    names = {name for name, _ in tables}
    for other in spec.nodes:
        is_same = table_name_of((other.declared or other).dataset_uri) in names
        if is_same and other.kind is node.kind and other.name != node.name:
            raise shared_output_error(node, other)
    for name, is_managed in tables:
        if is_managed:
            raise ManagedByCatalog(
                f"the catalog '{name.catalog}' owns the versions of {redact_line(uri)}, which is "
                f"{name}: its readers would not see a commit past it",
                hint=f"name it by its catalog: 'table: {name}' in place of '{node.uri_key}'",
            )


_MOST_NAMED = 10


def discovered(spec: ProjectSpec, threads: int = 8) -> ProjectSpec:
    """Look up the sources of a project, and return it with a node for every table.

    A table that several sources have belongs to the first. A declared node of the same identity, by
    its name in a catalog or by its dataset, is taken in place of the table that is found.

    A source that cannot be looked up, or whose tables cannot be named, has a node that stands for
    it, and opening that raises the error, as does a name that a join reads and that nothing has.

    Tables of a catalog are located later, when they are planned, unless their places may show that
    one of them is another node.
    """
    if not spec.sources:
        return spec
    catalogs = {**spec.target.catalogs, **_folders(spec)}
    spec = replace(spec, target=replace(spec.target, catalogs=catalogs))
    listed = listed_places(spec, spec.sources, threads)
    spec = replace(spec, source_notes=tuple(_pattern_notes(spec, listed)))
    listings = [_matched(source, listed[source.catalog_name]) for source in spec.sources]
    merger = _merged(spec, listings, asks_catalogs=True)
    errors = [
        (source, listing)
        for source, listing in zip(spec.sources, listings, strict=True)
        if isinstance(listing, LakeError)
    ]
    return merger.project([*errors, *merger.name_errors()])


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table that a source makes a node: `place` is the same for all spellings of its dataset."""

    source: Source
    table: TableName
    node: str
    place: str


def found_tables(
    spec: ProjectSpec, listed: Mapping[str, list[TableName] | LakeError]
) -> list[FoundTable]:
    """Return the tables that the sources of a project make nodes; no catalog is asked for one.

    Declared tables, and those that get no usable name, are not among them.
    """
    listings = [_matched(source, listed.get(source.catalog_name, [])) for source in spec.sources]
    merger = _merged(spec, listings, asks_catalogs=False)
    places = {
        table: canonical_uri(place.uri)
        for table, place in merger.places.items()
        if isinstance(place, LocatedTable)
    }
    return [
        FoundTable(source, table, name, places.get(table, table.uri))
        for name, table, source in merger.usable()
    ]


def _merged(
    spec: ProjectSpec, listings: Sequence[list[TableName] | LakeError], *, asks_catalogs: bool
) -> _Merger:
    found: dict[TableName, Source] = {}
    for source, listing in zip(spec.sources, listings, strict=True):
        for table in () if isinstance(listing, LakeError) else listing:
            found.setdefault(table, source)
    is_asked = asks_catalogs and not _has_one_catalog(spec)
    asked = [table for table, source in found.items() if source.catalog is None or is_asked]
    catalogs = {**spec.target.catalogs, **_folders(spec)}
    places = locate(asked, catalogs, lambda name: spec.options.declared(name.uri))
    merger = _Merger(spec, places, asks_catalogs)
    for table, source in found.items():
        merger.add(table, source)
    return merger


def listed_places(
    spec: ProjectSpec, sources: Sequence[Source], threads: int = 8
) -> dict[str, list[TableName] | LakeError]:
    """Return all tables of the sources' catalogs and folders by name, or why there are none."""
    catalogs = {**spec.target.catalogs, **_folders(spec)}
    names = list(dict.fromkeys(source.catalog_name for source in sources))
    with ThreadPoolExecutor(max(1, min(threads, len(names)))) as pool:
        answers = pool.map(lambda name: _tables(name, catalogs[name]), names)
        return dict(zip(names, answers, strict=True))


def _has_one_catalog(spec: ProjectSpec) -> bool:
    """Whether every table of the sources and of the nodes is named by one and the same catalog."""
    names = {source.catalog_name for source in spec.sources}
    for node in spec.nodes:
        table = table_name_of(node.dataset_uri)
        names.add("" if table is None else table.catalog)
    return len(names) == 1


def _pattern_notes(
    spec: ProjectSpec, listed: Mapping[str, list[TableName] | LakeError]
) -> Iterator[str]:
    """Yield a sentence for each source some of whose patterns match nothing."""
    for source in spec.sources:
        tables = listed[source.catalog_name]
        unused = [] if isinstance(tables, LakeError) else source.unused(tables)
        if unused == ["*"]:
            yield f"{source.location}: source:{source.label} has no tables."
        elif unused:
            patterns = ", ".join(f"'{pattern}'" for pattern in unused)
            yield f"{source.location}: no table of source:{source.label} matches {patterns}."


def unlisted_errors(spec: ProjectSpec) -> list[LancestatError]:
    """Return the errors of a project whose sources have been looked up, each at its place."""
    errors: list[LancestatError] = []
    for table in filter(is_stand_in, spec.tables):
        try:
            spec.options.of(table.uri)
        except LakeError as error:
            errors.append(error)
    return errors


def without_stand_ins(spec: ProjectSpec) -> ProjectSpec:
    """Return a project less the nodes that stand for errors of sources."""
    return replace(spec, nodes=tuple(node for node in spec.nodes if not is_stand_in(node)))


def source_findings(
    spec: ProjectSpec,
    nodes: Sequence[Node],
    records: Mapping[str, NodeRecord],
    state: StateReader,
) -> SourceFindings | None:
    """Return what is new and what is gone since the last runs, None without sources."""
    if not spec.sources:
        return None
    found = [table for table in spec.tables if table.source is not None and not is_stand_in(table)]
    planned = {table.name: table for table in tables_of(nodes)}
    last = {
        name: outcomes[0].nodes[0]
        for name, outcomes in state.outcomes(spec.name, spec.target.name, 1).items()
        if outcomes[0].nodes[0].kind == Source.lists.value
    }
    # A run that finds a table up to date leaves no record of it where the state had been lost.
    known = {
        name for name, node in last.items() if node.result.get("status") == Status.SUCCESS.value
    }
    new = tuple(
        table.name
        for table in found
        if table.name in planned
        and table.name not in known
        and table_identity(planned[table.name].uri) not in records
    )
    gone = None
    if not any(map(is_source, spec.tables)):
        identities = {table_identity(table.uri) for table in (*spec.tables, *planned.values())}
        renamed = {record.node for identity, record in records.items() if identity in identities}
        kept = renamed.union(node.name for node in spec.nodes)
        gone = tuple(sorted(last.keys() - kept))
    notes = tuple(spec.redactor.text(note, Audience.PERSON) for note in spec.source_notes)
    return SourceFindings(len(found), new, gone, notes)


def _folders(spec: ProjectSpec) -> dict[str, Catalog]:
    """A directory catalog for each folder: one knows folders of datasets, too."""
    options = {f"storage.{key}": text for key, text in spec.target.storage_options.items()}
    return {
        source.catalog_name: Catalog("dir", {"root": source.catalog_name, **options})
        for source in spec.sources
        if source.uri is not None
    }


def _tables(name: str, catalog: Catalog) -> list[TableName] | LakeError:
    is_folder = catalog.properties.get("root") == name
    path = local_path(name)
    if is_folder and path is not None and not path.is_dir():
        # An object store has no folders: there a wrong one looks like an empty one.
        return DatasetMissing(
            f"there is no folder {redact_line(name)}", hint="check the source's 'uri'"
        )
    try:
        return list(client_of(catalog, name).tables())
    except LakeError as error:
        hint = "check the source's 'uri', and the storage options of the target"
        return type(error)(error.message, hint=hint) if is_folder else error


def _matched(source: Source, tables: list[TableName] | LakeError) -> list[TableName] | LakeError:
    if isinstance(tables, LakeError):
        # Several sources may have the error, each with its own place.
        return type(tables)(tables.message, location=source.location, hint=tables.hint)
    return [table for table in tables if source.matches(table)]


@dataclass
class _Merger:
    """Puts tables that are found beside declared nodes; `places` are those of the tables."""

    spec: ProjectSpec
    places: Mapping[TableName, LocatedTable | LakeError]
    asks_catalogs: bool = True
    owners: dict[str, Node] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    named: dict[str, list[tuple[str, TableName, Source]]] = field(default_factory=dict)
    unnamed: list[tuple[Source, str]] = field(default_factory=list)
    seen: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        declared = {node.dataset_uri for node in self.spec.nodes}
        # Where no found table has been located, none is compared by its place.
        uris = {uri: uri for uri in declared}
        if self.places and self.asks_catalogs:
            uris = located_uris(self.spec, declared)
        for node in self.spec.nodes:
            for uri in (node.dataset_uri, uris[node.dataset_uri]):
                self.owners[self._key(uri)] = node

    def _key(self, uri: str) -> str:
        """What the spellings of the URI of a dataset, or of what stands for one, have in common.

        One catalog spells it in one way.
        """
        has_spellings = bool(self.spec.nodes) or len(self.spec.sources) > 1
        is_place = has_spellings and not uri.startswith(CATALOG_SCHEME)
        return canonical_uri(uri) if is_place else uri

    def add(self, table: TableName, source: Source) -> None:
        """Take a table that is found, unless a node has it already."""
        place = self.places.get(table)
        uris = [table.uri, *([place.uri] if isinstance(place, LocatedTable) else [])]
        identities = list(map(self._key, uris))
        owner = next((self.owners[uri] for uri in identities if uri in self.owners), None)
        if owner is not None:
            self.sources.setdefault(owner.name, source.label)
            return
        if identities[-1] in self.seen:
            return
        self.seen[identities[-1]] = None
        try:
            name = source.node_name(table)
        except ValueError as error:
            self.unnamed.append((source, f"{table} would be called '{error}', which is no name"))
        except LancestatError as error:
            self.unnamed.append((source, f"{table} cannot be named: {error.message}"))
        else:
            self.named.setdefault(folded(name), []).append((name, table, source))

    def name_errors(self) -> Iterator[tuple[Source, LakeError]]:
        """Yield one error for each source some of whose tables have no usable name."""
        refused: dict[int, tuple[Source, list[str]]] = {}
        for source, sentence in [*self.unnamed, *self._collisions()]:
            refused.setdefault(id(source), (source, []))[1].append(sentence)
        for source, sentences in refused.values():
            shown = sentences[:_MOST_NAMED]
            if len(sentences) > len(shown):
                shown.append(f"and {count(len(sentences) - len(shown))} more")
            yield (
                source,
                UnusableTableNames(
                    "tables have no node: " + "; ".join(shown),
                    location=source.location,
                    hint="change 'name' of the source, exclude the tables, or declare them by "
                    "names of their own",
                ),
            )

    def _collisions(self) -> Iterator[tuple[Source, str]]:
        declared = {folded(node.name): node for node in self.spec.nodes}
        for spelled, tables in self.named.items():
            name, first, source = tables[0]
            if spelled in declared:
                node = declared[spelled]
                yield (
                    source,
                    (
                        f"{first} would be called '{name}', as is another dataset, "
                        f"{redact_line(shown_uri(node.dataset_uri))}, at {node.location}"
                    ),
                )
            elif len(tables) > 1:
                names = " and ".join(str(table) for _, table, _ in tables)
                yield source, f"{names} would all be called '{name}'"

    def usable(self) -> Iterator[tuple[str, TableName, Source]]:
        """Yield the tables whose names no declared node and no other table has."""
        declared = {folded(node.name) for node in self.spec.nodes}
        for spelled, tables in self.named.items():
            if spelled not in declared and len(tables) == 1:
                yield tables[0]

    def project(self, errors: Iterable[tuple[Source, LakeError]]) -> ProjectSpec:
        """The project with the nodes of tables, and those that stand for errors."""
        spec, origins = self.spec, dict(self.spec.origins)
        nodes: list[Node] = [
            node.listed_by(self.sources[node.name]) if node.name in self.sources else node
            for node in spec.nodes
        ]
        for name, table, source in self.usable():
            nodes.append(self._located(source.node(name, table), table))
            if source.origins:
                origins[name] = source.origins
        failed = list(errors)
        for number, (source, error) in enumerate(failed):
            node = source.stand_in()
            earlier = sum(other.label == source.label for other, _ in failed[:number])
            if earlier:
                node = replace(
                    node, name=f"{node.name}:{earlier + 1}", uri=f"{node.uri}#{earlier + 1}"
                )
            spec.options.locate(node.uri, error)
            nodes.append(node)
        nodes += self._unknown(nodes)
        return replace(spec, nodes=tuple(nodes), origins=origins)

    def _located(self, node: Table, table: TableName) -> Table:
        place = self.places.get(table)
        if not isinstance(place, LocatedTable):
            self.spec.options.locate(table.uri, place)
            return node
        self.spec.options.locate(place.uri, place.options)
        return node.located({node.uri: place.uri})

    def _unknown(self, nodes: Sequence[Node]) -> Iterator[Table]:
        """Yield a node for each name that nodes read and that nothing has."""
        names = {node.name for node in nodes}
        for reader in self.spec.nodes:
            for ref in dict.fromkeys(reader.refs):
                if ref in names:
                    continue
                names.add(ref)
                tables = [table.name for table in tables_of(nodes) if not is_stand_in(table)]
                node = Table(ref, f"{SCHEME}unknown/{ref}", reader.location)
                error = FoundTableMissing(
                    f"'{reader.name}' reads '{ref}', which is neither declared nor found by a "
                    "source",
                    location=node.location,
                    hint=did_you_mean(ref, tables),
                )
                self.spec.options.locate(node.uri, error)
                yield node
