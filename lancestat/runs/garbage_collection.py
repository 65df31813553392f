"""Collects the garbage of a project: state that nothing needs, and leftovers of killed joins."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from lancestat.errors import CatalogTableMissing, LancestatError
from lancestat.formats import count
from lancestat.joins.observe import declared_layouts
from lancestat.joins.output import result as output
from lancestat.joins.planner import remembered_result
from lancestat.joins.record import JoinRecord, join_records
from lancestat.joins.scratch.garbage_collection import collect_scratch_garbage
from lancestat.joins.scratch.layout_garbage import collect_layout_garbage
from lancestat.joins.scratch.layouts import LayoutStore
from lancestat.joins.search.layout import owner_prefix
from lancestat.joins.search.work import OutputFormat
from lancestat.joins.spark.scratch_root import known_roots
from lancestat.lake.temporary_files import collect_temporary_garbage
from lancestat.runs.locate import located
from lancestat.spec.catalog import table_name_of
from lancestat.spec.digest import node_digest
from lancestat.spec.model import KnnJoin, ProjectSpec, Table
from lancestat.state.garbage_collection import GarbageReport, collect_state_garbage
from lancestat.state.identity import canonical_uri, join_identity, table_identity
from lancestat.state.store import LanceState

_log = logging.getLogger("lancestat.run")


def collect_garbage(
    spec: ProjectSpec, state: LanceState, *, now: datetime, dry_run: bool
) -> GarbageReport:
    """Drop garbage in the state, the outputs of joins, this user's temporary folders, and scratch.

    Scratch is the target's and that of this user's sessions.

    Raises:
        StateError: The state cannot be reached.
        LakeError: A catalog does not tell where a declared table is.
        ScratchUnusable: a scratch root cannot be listed.
    """

    spec, _ = located(spec, spec.nodes)
    for table in spec.tables:
        with suppress(CatalogTableMissing):
            # Without its place, its state would be taken for what nothing needs.
            spec.options.of(table.uri)
    declared = {
        table_identity(node.uri) if isinstance(node, Table) else join_identity(node.name)
        for node in spec.nodes
    }
    names = {node.name for node in spec.nodes} | {f"source:{s.label}" for s in spec.sources}
    report = collect_state_garbage(
        state, frozenset(declared), dry_run, target=spec.target.name, nodes=names
    )
    if not dry_run:
        records = join_records(state)
        _collect_output_garbage(spec, records)
        remove_past_results(spec, spec.joins, records, now)
        collect_temporary_garbage()
    return _with_scratch(report, spec, now, dry_run)


def _collect_output_garbage(spec: ProjectSpec, records: Mapping[str, JoinRecord]) -> None:

    for join in spec.joins:
        if table_name_of(join.output_uri) is not None:
            # It has not been written yet.
            continue
        try:
            format = OutputFormat(join.output_format)
            remembered = remembered_result(records.get(join.name), node_digest(join))
            options = spec.options.of(join.output_uri)
            output.collect_garbage(format, join.output_uri, options, remembered)
        except LancestatError as error:
            # The join reports the error when it runs.
            _log.warning("the output of '%s' was left as it is: %s", join.name, error.message)


def remove_past_results(
    spec: ProjectSpec,
    joins: Iterable[KnnJoin],
    records: Mapping[str, JoinRecord],
    now: datetime,
) -> None:
    """Remove the results of joins that their `keep` takes for past; log what cannot be removed.

    Args:
        spec: The project, its tables of catalogs located.
        joins: Those whose results are looked at.
        records: What the state knows of joins, by their names.
        now: The time from which ages count.
    """
    for join in joins:
        if join.keep is None or table_name_of(join.output_uri) is not None:
            continue
        format = OutputFormat(join.output_format)
        remembered = remembered_result(records.get(join.name), node_digest(join))
        options = spec.options.of(join.output_uri)
        try:
            removed = output.remove_past(
                format, join.output_uri, options, remembered, join.keep, now
            )
        except LancestatError as error:
            _log.warning("older results of '%s' were left: %s", join.name, error.message)
        else:
            if removed:
                _log.info("'%s': %s of older results removed", join.name, count(removed, "version"))


def _with_scratch(
    report: GarbageReport, spec: ProjectSpec, now: datetime, dry_run: bool
) -> GarbageReport:

    target = spec.target
    owner, usable = owner_prefix(canonical_uri(target.state)), declared_layouts(spec)
    for root in known_roots(target.scratch, target.spark_conf):
        store = LayoutStore(root, target.storage_options)
        layouts = collect_layout_garbage(store, owner, usable, now=now, dry_run=dry_run)
        for uri, reason in layouts.left:
            _log.warning("the layout %s was left: %s", uri, reason)
        report = replace(
            report,
            layouts_dropped=report.layouts_dropped + layouts.collected,
            scratch_left=report.scratch_left + len(layouts.left),
            bytes=report.bytes + layouts.size_bytes,
        )
        scratch = collect_scratch_garbage(root, target.storage_options, now=now, dry_run=dry_run)
        for uri, reason in scratch.left:
            _log.warning("scratch %s was left: %s", uri, reason)
        report = replace(
            report,
            scratch_dropped=report.scratch_dropped + len(scratch.collected),
            scratch_left=report.scratch_left + len(scratch.left),
            bytes=report.bytes + sum(folder.size_bytes for folder in scratch.collected),
        )
    return report
