"""Collects the garbage of a project: state that nothing needs, and leftovers of killed runs."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from lancestat.errors import CatalogTableMissing
from lancestat.lake.files import collect_temporary_garbage
from lancestat.runs.locate import located
from lancestat.runs.node import NodeTypes
from lancestat.spec.model import ProjectSpec
from lancestat.state.retention import GarbageReport, collect_state_garbage
from lancestat.state.store import LanceState


def collect_garbage(
    spec: ProjectSpec, state: LanceState, types: NodeTypes, *, now: datetime, dry_run: bool
) -> GarbageReport:
    """Drop garbage in the state, this user's temporary folders, and what each kind of node leaves.

    Raises:
        StateError: The state cannot be reached.
        LakeError: A catalog does not tell where a declared table is.
        ScratchUnusable: A scratch root cannot be listed.
    """
    spec, _ = located(spec, spec.nodes)
    for table in spec.tables:
        with suppress(CatalogTableMissing):
            # Without its place, its state would be taken for what nothing needs.
            spec.options.of(table.uri)
    declared = frozenset(types[node.kind.value].record_key(node) for node in spec.nodes)
    names = {node.name for node in spec.nodes} | {f"source:{s.label}" for s in spec.sources}
    report = collect_state_garbage(state, declared, dry_run, target=spec.target.name, nodes=names)
    for type in types.values():
        report = type.collect_garbage(spec, state, report, now)
    if not dry_run:
        collect_temporary_garbage()
    return report
