"""Compare used statistics with statistics of the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pyarrow.compute as pc

from lancestat.errors import LancestatError
from lancestat.lake.fingerprint import schema_hash
from lancestat.lake.open import snapshot
from lancestat.query.predicates.filter import Comparison, Day, Filter, Instant, IsNull, Operator
from lancestat.query.table import DeclaredTables, ReadSettings, ReadTable, open_table
from lancestat.spec.model import Publish, Refresh, StaleBounds, Table
from lancestat.tables.judgement import Verdict
from lancestat.tables.statistics.column_type import column_type
from lancestat.tables.table_status import TableStatus
from lancestat.tables.wire import (
    COMPUTED_AT_VERSION,
    REVISION,
    WRITER,
    GuardReason,
    PublishedColumn,
    PublishedStatistics,
    decode_statistics,
    written_revision,
)
from tests.histories.readers import Finding
from tests.query.answers import check_answers
from tests.tables.grouped import check_filter, one_pass, without_quantiles
from tests.tables.test_history import full_values

if TYPE_CHECKING:
    from tests.histories.world import HistoryWorld

_FILTERS: tuple[Filter, ...] = (
    Comparison("id", Operator.LESS, 120),
    Comparison("id", Operator.GREATER_OR_EQUAL, 300),
    Comparison("s", Operator.EQUAL, "s3"),
    IsNull("s"),
    Comparison("x", Operator.GREATER, 50.0),
    Comparison("d", Operator.LESS_OR_EQUAL, Day(-141_432)),
    Comparison("t", Operator.GREATER_OR_EQUAL, Instant(300_000_000)),
)


def check_statistics(world: HistoryWorld) -> list[Finding]:
    """Compare `show`, an attached view and `read_table` with the rows, and with each other."""
    try:
        project = world.project
        [table] = project.spec.tables
        opened = DeclaredTables(project.spec, project.state, _now).open([table])["t"]
        if isinstance(opened, LancestatError):
            raise opened
        plain = open_table(world.uri)
        status = project.show("t")
    except LancestatError as error:
        return [Finding("a table that is there", f"it is refused: {error}")]
    settings = ReadSettings.of({}, {})
    verdict = opened.verdict(settings, _now())
    findings = _judged(world, "a view", opened, verdict, table)
    findings += _judged(world, "read_table", plain, plain.verdict(settings, _now()), table)
    findings += _shown(world, status)
    findings += _answered(world, "a view", opened) + _answered(world, "read_table", plain)
    findings += _pruned(world, opened) + _pruned(world, plain)
    if (status.use, status.reason) != (verdict.use, verdict.reason.value):
        seen = f"a view says {verdict.reason.value} ({verdict.detail}), show {status.reason}"
        findings.append(Finding("verdicts on the same statistics", f"{seen} ({status.detail})"))
    return findings


def check_mended(world: HistoryWorld) -> list[Finding]:
    """After a run all that is published is what lancestat wrote for the version as it is."""
    [table] = world.project.spec.tables
    if table.publish is Publish.NONE or table.policy.refresh is Refresh.WHEN_STALE:
        return []
    config, status = world.dataset.config(), world.project.show("t")
    if status.reason == GuardReason.CURRENT.value and written_revision(config) == REVISION:
        return []
    seen = f"they are {status.reason}, and marked {config.get(WRITER)}"
    return [Finding("published entries after a run", seen)]


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _judged(
    world: HistoryWorld, who: str, opened: ReadTable, verdict: Verdict, table: Table
) -> list[Finding]:
    if not verdict.use or verdict.statistics is None:
        return []
    if verdict.reason is GuardReason.CURRENT:
        dataset = lance.dataset(world.uri, version=opened.snapshot.version)
        if verdict.statistics.rows != dataset.count_rows():
            seen = f"{verdict.statistics.rows} rows, and there are {dataset.count_rows()}"
            return [Finding(f"current statistics, as {who} has them", seen)]
        return _differing(who, verdict.statistics.columns, fresh(dataset))
    return _stale(world, who, verdict, table)


def _shown(world: HistoryWorld, status: TableStatus) -> list[Finding]:
    if not status.use or status.reason != GuardReason.CURRENT.value:
        return []
    dataset = lance.dataset(world.uri, version=status.version)
    return _differing("show", status.columns, shown_truth(status, dataset))


def shown_truth(status: TableStatus, dataset: lance.LanceDataset) -> Mapping[str, PublishedColumn]:
    """What `show` should give of a dataset, with bounds of strings where the state has them."""
    return {
        name: _with_texts(dataset, name, column)
        if name in status.columns and status.columns[name].minimum is not None
        else column
        for name, column in fresh(dataset).items()
    }


def _with_texts(dataset: lance.LanceDataset, name: str, column: PublishedColumn) -> PublishedColumn:
    """The bounds of strings too, which are not published, and the mark of instants."""
    values = dataset.to_table(columns=[name]).column(0)
    if pa.types.is_timestamp(values.type) and values.type.tz:
        return replace(column, minimum=f"{column.minimum}Z", maximum=f"{column.maximum}Z")
    if not pa.types.is_string(values.type):
        return column
    bounds = pc.min_max(values)
    return replace(column, minimum=bounds["min"].as_py(), maximum=bounds["max"].as_py())


def _differing(
    who: str, used: Mapping[str, PublishedColumn], truth: Mapping[str, PublishedColumn]
) -> list[Finding]:
    return [
        Finding(
            f"current statistics of column '{name}', as {who} has them",
            f"they are {column}, made anew {truth.get(name)}",
        )
        for name, column in used.items()
        if truth.get(name) != column
    ]


def _stale(world: HistoryWorld, who: str, verdict: Verdict, table: Table) -> list[Finding]:
    """Return findings where the policy does not accept the used statistics, judged by the rows."""
    bounds = table.policy.allow_stale
    if bounds is True:
        return []
    if bounds is False:
        return [Finding(f"stale statistics, as {who} has them", "the policy accepts none")]
    assert isinstance(bounds, StaleBounds)
    assert verdict.statistics is not None
    tag, version = verdict.statistics.version_tag, world.dataset.version
    if bounds.max_versions is not None and version - tag > bounds.max_versions:
        seen = f"{version - tag} versions behind, {bounds.max_versions} are accepted"
        return [Finding(f"stale statistics, as {who} has them", seen)]
    if bounds.max_changed_rows is None:
        return []
    described = tag - 1 if table.publish is Publish.MANIFEST else tag
    try:
        before = lance.dataset(world.uri, version=described)
    except ValueError:
        seen = f"version {described} is gone, and the share of changed rows was accepted"
        return [Finding(f"stale statistics, as {who} has them", seen)]
    changed = changed_share(before.to_table(), world.dataset.to_table())
    if changed <= bounds.max_changed_rows:
        return []
    seen = f"{changed:.2%} of the rows changed, {bounds.max_changed_rows:.2%} are accepted"
    return [Finding(f"stale statistics of version {described}, as {who} has them", seen)]


def changed_share(before: pa.Table, now: pa.Table) -> float:
    """Return added plus removed rows per current row, in the common columns."""
    names = [name for name in now.schema.names if name in before.schema.names]
    old, new = (Counter(map(str, rows.select(names).to_pylist())) for rows in (before, now))
    changed = sum((new - old).values()) + sum((old - new).values())
    return min(1.0, changed / len(now)) if len(now) else float(bool(changed))


def fresh(dataset: lance.LanceDataset) -> Mapping[str, PublishedColumn]:
    """Statistics from one pass over the rows."""
    types = {field.name: column_type(field.type) for field in dataset.schema}
    entries = full_values(dataset, schema_hash(snapshot(dataset).fields))
    known = {name: type for name, type in types.items() if type is not None}
    decoded = decode_statistics({**entries, COMPUTED_AT_VERSION: "1"}, known)
    assert isinstance(decoded, PublishedStatistics), decoded
    return decoded.columns


def _answered(world: HistoryWorld, who: str, opened: ReadTable) -> list[Finding]:
    """Check that aggregates which are answered are those of the rows."""
    dataset = lance.dataset(world.uri, version=opened.snapshot.version)
    findings = []
    for filters in ([], *([filter] for filter in _FILTERS)):
        if all(getattr(filter, "column", "") in opened.fields for filter in filters):
            try:
                check_answers(opened, dataset, filters)
            except AssertionError as error:
                what = f"aggregates where {filters}, as {who} answers them"
                findings.append(Finding(what, str(error)[:500]))
    return findings


def _pruned(world: HistoryWorld, opened: ReadTable) -> list[Finding]:
    """Check that pruned fragments hold no row that a filter selects."""
    dataset = lance.dataset(world.uri, version=opened.snapshot.version)
    findings = [
        Finding(f"the partial of column '{name}' over all groups", "it is not that of the rows")
        for name, expected in (one_pass(dataset, None) if opened.snapshot.fragments else {}).items()
        if without_quantiles(opened.fragments.partial(name)) not in (None, expected)
    ]
    for filter in _FILTERS:
        if getattr(filter, "column", "") not in opened.fields:
            continue
        try:
            check_filter(opened.fragments, dataset, [filter])
        except AssertionError as error:
            findings.append(Finding(f"fragments that {filter} leaves", str(error)[:500]))
    return findings
