"""What came from the environment or is secret, and must not stand on pages that others read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lancestat.lake.clean import MASK, secret_values
from lancestat.report.values import JoinReport, NodeReport, ProjectReport, TableReport
from lancestat.spec.model import KnnJoin, KnnSide, ProjectSpec, Table

# A shorter text would be found within others, where it means nothing.
_SHORTEST = 6


def undisclosed(
    report: ProjectReport, spec: ProjectSpec
) -> tuple[ProjectReport, Mapping[str, str]]:
    """The same report with templates in place of what the environment gave.

    Returns the report, and what to show instead of texts that may stand anywhere, such as in a
    message: values of storage options, and locations that the environment gave.
    """
    instead = dict.fromkeys(secret_values(spec.target.storage_options), MASK)
    if spec.root.is_absolute() and spec.root != spec.root.parent:
        # Where a project lies on this machine tells others nothing.
        instead[f"{spec.root.as_posix().rstrip('/')}/"] = ""
    nodes = []
    for node in report.nodes:
        templates = spec.templates.get(node.spec.name, {})
        shown = _without(node, templates)
        for before, after in _places(node, shown):
            if before != after and len(before) >= _SHORTEST:
                instead[before] = after
        if isinstance(node, JoinReport):
            for side in (node.spec.left, node.spec.right):
                instead.update(dict.fromkeys(secret_values(side.options), MASK))
        nodes.append(shown)
    return replace(report, nodes=tuple(nodes)), instead


def _without(node: NodeReport, templates: Mapping[str, str]) -> NodeReport:
    if not templates:
        return node
    if isinstance(node, TableReport):
        return replace(node, spec=_table(node.spec, templates))
    return replace(node, spec=_join(node.spec, templates))


def _table(table: Table, templates: Mapping[str, str]) -> Table:
    return replace(
        table,
        uri=templates.get("uri", table.uri),
        description=templates.get("description", table.description),
        owner=templates.get("owner", table.owner),
        tags=_listed("tags", table.tags, templates),
    )


def _join(join: KnnJoin, templates: Mapping[str, str]) -> KnnJoin:
    outputs = (text for key, text in templates.items() if key.startswith("output."))
    return replace(
        join,
        left=_side("left", join.left, templates),
        right=_side("right", join.right, templates),
        output_uri=next(outputs, join.output_uri),
        description=templates.get("description", join.description),
        owner=templates.get("owner", join.owner),
        tags=_listed("tags", join.tags, templates),
    )


def _side(name: str, side: KnnSide, templates: Mapping[str, str]) -> KnnSide:
    places = (f"{name}.{key}" for key in ("lance", "parquet", "path"))
    uris = (templates[place] for place in places if place in templates)
    select = side.select
    return replace(
        side,
        uri=next(uris, side.uri),
        sql=templates.get(f"{name}.sql", side.sql),
        vector=templates.get(f"{name}.vector", side.vector),
        select=None if select is None else _listed(f"{name}.select", select, templates),
    )


def _listed(key: str, texts: tuple[str, ...], templates: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(templates.get(f"{key}.{at}", text) for at, text in enumerate(texts))


def _places(before: NodeReport, after: NodeReport) -> list[tuple[str, str]]:
    """Where the data of a node is, as it is and as it may be shown."""
    if isinstance(before, TableReport) and isinstance(after, TableReport):
        return [(before.spec.uri, after.spec.uri)]
    assert isinstance(before, JoinReport) and isinstance(after, JoinReport)
    pairs = [(before.spec.output_uri, after.spec.output_uri)]
    for old, new in ((before.spec.left, after.spec.left), (before.spec.right, after.spec.right)):
        pairs.append((old.uri or "", new.uri or ""))
    return pairs
