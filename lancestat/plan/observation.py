"""What planning looks at, as values: gathered by `plan.observe`, judged by `plan.planner`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lancestat.lake.fingerprint import ColumnGroup
from lancestat.lake.history import History
from lancestat.lake.snapshot import Field, Snapshot
from lancestat.plan.coverage import Rewritten
from lancestat.spec.model import Table
from lancestat.state.values import PartialIndex, TableRecord
from lancestat.stats.column_type import ColumnType
from lancestat.stats.guard import Verdict
from lancestat.stats.wire import PublishedStatistics


@dataclass(frozen=True, slots=True)
class Appraisal:
    """One table as it is now, next to what was last made of it.

    `wanted` are the columns to analyze in schema order, `skipped` says why others are not.
    `published` is what the manifest says, if it can be read at all, and `verdict` the guard's on it
    with no staleness allowed. `record` is the state's memory of the last run, None when it has none
    or when everything is to be made anew. `histograms` names the wanted columns that are to have
    one.
    """

    spec: Table
    identity: str
    snapshot: Snapshot
    wanted: tuple[Field, ...]
    types: Mapping[str, ColumnType]
    skipped: tuple[str, ...]
    schema_hash: str
    verdict: Verdict
    published: PublishedStatistics | None
    record: TableRecord | None
    histograms: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Background:
    """What only a table that moved on is asked for.

    `groups` is the content of the wanted columns now under the keys of the partials they need
    (`state.keys`), `digest` the `table_digest` of the columns, `base_digest`
    that of the columns of the same names as the last statistics read them, None when that version
    is gone. `history` holds the commits since, `rewrites` its compactions as content.
    `changed_rows` is the share of the current rows that changed since, None when it cannot be found
    out. `index` is what the state has stored.
    """

    groups: tuple[ColumnGroup, ...]
    digest: str
    base_digest: str | None
    history: History
    rewrites: tuple[Rewritten, ...]
    changed_rows: float | None
    index: PartialIndex
