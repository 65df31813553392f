"""Locates tables of catalogs: from then on they are datasets at URIs, as all others are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from lancestat.errors import CatalogTableMissing, LancestatError, ManagedByCatalog
from lancestat.lake.catalogs import LocatedTable, locate, tables_at
from lancestat.redact import redact_line
from lancestat.spec.catalog import TableName, table_name_of
from lancestat.spec.graph import shared_output_error
from lancestat.spec.model import KnnJoin, KnnSide, Node, NodeKind, ProjectSpec, Table, joins_of
from lancestat.state.values import canonical_uri


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
    results = {join.output_uri for join in joins_of((*spec.nodes, *nodes))}
    uris = _ask(spec, names, results)
    moved = replace(spec, nodes=tuple(_located_node(node, uris) for node in spec.nodes))
    return moved, tuple(_located_node(node, uris) for node in nodes)


def located_uris(spec: ProjectSpec, uris: Iterable[str]) -> dict[str, str]:
    """Return the URI of a dataset for every given one; `spec.options` has the options of each.

    What cannot be located keeps the URI that stands for it, as in `located`.
    """
    names = {uri: table_name_of(uri) for uri in uris}
    found = _ask(spec, [name for name in names.values() if name is not None], ())
    return {uri: found.get(uri, uri) for uri in names}


def _ask(spec: ProjectSpec, names: Sequence[TableName], results: Collection[str]) -> dict[str, str]:
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
    """Return the tables of catalogs that nodes name, or other nodes that they read."""
    names: dict[TableName, None] = {}
    pending, seen = list(nodes), set()
    while pending:
        node = pending.pop()
        if node.name in seen:
            continue
        seen.add(node.name)
        uris = (*node.input_uris, node.dataset_uri)
        names |= dict.fromkeys(name for name in map(table_name_of, uris) if name is not None)
        pending += (other for ref in node.refs if (other := spec.node(ref)) is not None)
    return tuple(names)


def _located_node(node: Node, uris: Mapping[str, str]) -> Node:
    match node:
        case Table():
            if node.uri not in uris:
                return node
            return replace(node, uri=uris[node.uri], declared=node)
        case KnnJoin():
            if not {*node.input_uris, node.output_uri} & uris.keys():
                return node
            return replace(
                node,
                left=_located_side(node.left, uris),
                right=_located_side(node.right, uris),
                output_uri=uris.get(node.output_uri, node.output_uri),
                declared=node.declared or node,
            )


def _located_side(side: KnnSide, uris: Mapping[str, str]) -> KnnSide:
    return side if side.uri is None else replace(side, uri=uris.get(side.uri, side.uri))


def shared_outputs(spec: ProjectSpec, nodes: Iterable[Node]) -> dict[str, LancestatError]:
    """Return the errors of nodes that would write to one dataset, by the names of the nodes.

    They are those that only catalogs can tell; reading the YAML finds the others.

    Args:
        spec: The project, in which tables of catalogs have been located.
        nodes: Those that are planned, likewise.
    """
    known = {node.name: node for node in (*spec.nodes, *nodes)}.values()
    if not any(node.declared is not None for node in known):
        return {}
    # Catalogs spell the place of a dataset in one way, people in several.
    has_uris = any(node.declared is None for node in known)
    writers: dict[tuple[NodeKind, str], list[Node]] = {}
    for node in known:
        uri = node.written_uri
        if uri is not None:
            place = canonical_uri(uri) if has_uris else uri.rstrip("/")
            writers.setdefault((node.kind, place), []).append(node)
    errors: dict[str, LancestatError] = {}
    for sharing in writers.values():
        if len(sharing) > 1 and any(node.declared is not None for node in sharing):
            first, second, *_ = sharing
            errors[first.name] = shared_output_error(second, first)
            errors |= {node.name: shared_output_error(node, first) for node in sharing[1:]}
    return errors


def require_sole_writer(spec: ProjectSpec, node: Node) -> None:
    """Refuse a node that would write by a URI to a dataset that catalogs of the target have.

    It is refused where the catalog owns the versions of the dataset, and where another node, which
    need not be planned, writes to the dataset by its name in the catalog.

    Raises:
        OverlappingOutputs: another node writes to it.
        ManagedByCatalog: one of the target's catalogs owns its versions.
        LakeError: a catalog cannot be asked.
    """
    uri = node.written_uri
    if uri is None or table_name_of((node.declared or node).dataset_uri) is not None:
        return
    tables = list(tables_at(uri, spec.target.catalogs))
    names = {name for name, _ in tables}
    for other in spec.nodes:
        declared = (other.declared or other).written_uri
        is_same = declared is not None and table_name_of(declared) in names
        if is_same and other.kind is node.kind and other.name != node.name:
            raise shared_output_error(node, other)
    for name, is_managed in tables:
        if is_managed:
            raise ManagedByCatalog(
                f"the catalog '{name.catalog}' owns the versions of {redact_line(uri)}, which is "
                f"{name}: its readers would not see a commit past it",
                hint=f"name it by its catalog: 'table: {name}' in place of '{_uri_key(node)}'",
            )


def _uri_key(node: Node) -> str:
    return "uri" if node.kind is NodeKind.TABLE else "lance"
