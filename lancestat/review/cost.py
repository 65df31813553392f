"""How many bytes the first run after a change reads for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lancestat.errors import SpecError
from lancestat.lake.fingerprint import ColumnGroup, column_groups, field_key
from lancestat.lake.snapshot import Field, Snapshot
from lancestat.lake.width import estimated_bytes
from lancestat.plan.appraise import appraise
from lancestat.plan.coverage import cover
from lancestat.plan.join_side import datasets_of
from lancestat.plan.observation import Appraisal
from lancestat.plan.planner import settle
from lancestat.review.evidence import Evidence
from lancestat.spec.digest import node_digest
from lancestat.spec.model import KnnJoin, KnnSide, Table
from lancestat.state.identity import table_identity
from lancestat.state.keys import answered, plain_keys, quantile_key


def table_cost(old: Table | None, new: Table, evidence: Evidence) -> int | None:
    """Bytes of the columns that are analyzed newly, None where the dataset cannot be opened.

    What the state knows of them is not read again, nor is anything where the manifest holds all
    that is wanted already.

    Args:
        old: What was declared of the same dataset before, if anything.
        new: What is declared now.
        evidence: Datasets and state.
    """
    snapshot = evidence.snapshot(new.uri)
    if snapshot is None:
        return None
    try:
        after = _appraise(new, snapshot, evidence)
    except SpecError:
        # No run reads what a plan refuses.
        return 0
    if settle(after) is not None:
        return 0
    known = _keys(old, snapshot, evidence)
    wanted = {_key(field, after): field for field in after.wanted}
    fresh = {key: field for key, field in wanted.items() if key not in known}
    return _missing_bytes(snapshot, fresh, evidence)


def join_cost(join: KnnJoin, evidence: Evidence) -> int | None:
    """Bytes of what a join that is run anew reads, None where some of it cannot be told."""
    record = evidence.joins.get(join.name)
    if record is not None and record.digest == node_digest(join):
        return 0
    sides = [_side_bytes(side, evidence) for side in (join.left, join.right)]
    known = [found for found in sides if found is not None]
    return sum(known) if len(known) == len(sides) else None


def _appraise(table: Table, snapshot: Snapshot, evidence: Evidence) -> Appraisal:
    identity = table_identity(table.uri)
    return appraise(table, identity, snapshot, evidence.records.get(identity), evidence.now)


def _keys(table: Table | None, snapshot: Snapshot, evidence: Evidence) -> frozenset[str]:
    if table is None:
        return frozenset()
    try:
        found = _appraise(table, snapshot, evidence)
    except SpecError:
        return frozenset()
    return answered(frozenset(_key(field, found) for field in found.wanted))


def _key(field: Field, appraisal: Appraisal) -> str:
    key = field_key(field)
    return quantile_key(key) if field.name in appraisal.histograms else key


def _missing_bytes(snapshot: Snapshot, fresh: dict[str, Field], evidence: Evidence) -> int:
    if not fresh:
        return 0
    stored = {field_key(field): key for key, field in fresh.items()}
    groups = [_stored_as(group, stored) for group in column_groups(snapshot, [*fresh.values()])]
    index = evidence.index(table_identity(snapshot.uri))
    fragments = {fragment.id: fragment for fragment in snapshot.fragments}
    return sum(
        estimated_bytes(fragments[group.fragment_id], plain_keys(keys), snapshot.fields)
        for group, keys in cover(groups, index, ()).missing
    )


def _stored_as(group: ColumnGroup, stored: dict[str, str]) -> ColumnGroup:
    return replace(group, fields=frozenset(stored[key] for key in group.fields))


def _side_bytes(side: KnnSide, evidence: Evidence) -> int | None:
    spec = evidence.spec
    if side.sql is None and side.table is None and side.format != "lance":
        return _files_bytes(side.uri or "", evidence)
    node = None if side.table is None else spec.node(side.table)
    if isinstance(node, KnnJoin) and node.output_format != "lance":
        return _files_bytes(node.output_uri, evidence)
    found = [evidence.snapshot(dataset.uri) for dataset in datasets_of(spec, side)]
    opened = [snapshot for snapshot in found if snapshot is not None]
    if len(opened) < len(found) or not found:
        return None
    select = None if side.sql is not None or side.select is None else (*side.select, side.vector)
    return sum(_read_bytes(snapshot, select) for snapshot in opened)


def _read_bytes(snapshot: Snapshot, select: Iterable[str] | None) -> int:
    if select is None:
        return snapshot.size_bytes
    fields = [found for name in select if (found := snapshot.field(name)) is not None]
    keys = frozenset(map(field_key, fields))
    return sum(estimated_bytes(each, keys, snapshot.fields) for each in snapshot.fragments)


def _files_bytes(uri: str, evidence: Evidence) -> int | None:
    from lancestat.lake.files import list_files
    from lancestat.lake.store_files import list_store_files
    from lancestat.lake.uri import local_path

    if not evidence.may_open(uri):
        return None
    if local_path(uri) is not None:
        files = list_files(uri)
    else:
        files = list_store_files(uri, evidence.spec.target.storage_options)
    return None if files is None else sum(file.size_bytes for file in files)
