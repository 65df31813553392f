"""What planning looks at, as values: gathered by `plan.observe`, judged by `plan.planner`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lancestat.lake.fingerprint import ColumnGroup
from lancestat.lake.history import History
from lancestat.lake.snapshot import Field, Snapshot
from lancestat.plan.coverage import Rewritten
from lancestat.plan.judgement import TableStatistics
from lancestat.spec.model import Table
from lancestat.state.values import PartialIndex, TableRecord
from lancestat.stats.column_type import ColumnType
from lancestat.stats.guard import Verdict
from lancestat.stats.wire import PublishedStatistics


@dataclass(frozen=True, slots=True)
class Appraisal:
    """One table as it is now, next to what was last made of it.

    `wanted` are the columns to analyze in schema order, `skipped` says why others are not.
    `statistics` are those that readers get, and `verdict` is the guard's on them with no staleness
    allowed. `histograms` names the wanted columns that are to have one.
    """

    spec: Table
    identity: str
    statistics: TableStatistics
    wanted: tuple[Field, ...]
    skipped: tuple[str, ...]
    verdict: Verdict
    histograms: frozenset[str] = frozenset()

    @property
    def snapshot(self) -> Snapshot:
        """The table at the version that is looked at."""
        return self.statistics.snapshot

    @property
    def types(self) -> Mapping[str, ColumnType]:
        """The columns that can have statistics, by name."""
        return self.statistics.types

    @property
    def schema_hash(self) -> str:
        """The hash of the table's schema."""
        return self.statistics.schema_hash

    @property
    def published(self) -> PublishedStatistics | None:
        """What readers are told if the policy lets them, None where it cannot be read at all."""
        return self.statistics.published

    @property
    def record(self) -> TableRecord | None:
        """What the state remembers of the last run, None for nothing."""
        return self.statistics.record


@dataclass(frozen=True, slots=True)
class Background:
    """What only a table that moved on is asked for.

    `groups` is the content of the wanted columns now under the keys of the partials they need
    (`state.keys`), `digest` the `table_digest` of the columns, `base_digest`
    that of the columns of the same names as the last statistics read them, None when that version
    is gone. `history` holds the commits since, `rewrites` its compactions as content.
    `verdict` is the guard's under the declared policy. `index` is what the state has stored.
    """

    groups: tuple[ColumnGroup, ...]
    digest: str
    base_digest: str | None
    history: History
    rewrites: tuple[Rewritten, ...]
    verdict: Verdict
    index: PartialIndex
