"""What planning looks at, as values: gathered by `plan.observe`, judged by `plan.planner`."""

from __future__ import annotations

from dataclasses import dataclass

from lancestat.lake.fingerprint import ColumnGroup
from lancestat.lake.history import History
from lancestat.lake.snapshot import Field, Snapshot
from lancestat.spec.model import Table
from lancestat.state.values import PartialIndex, TableRecord
from lancestat.stats.guard import Verdict


@dataclass(frozen=True, slots=True)
class Appraisal:
    """One table as it is now, next to what was last made of it.

    `wanted` are the columns to analyze in schema order, `skipped` says why others are not. `verdict` is the guard's
    on the manifest with no staleness allowed. `record` is the state's memory of the last run.
    """

    spec: Table
    identity: str
    snapshot: Snapshot
    wanted: tuple[Field, ...]
    skipped: tuple[str, ...]
    schema_hash: str
    verdict: Verdict
    record: TableRecord | None


@dataclass(frozen=True, slots=True)
class Background:
    """What only a table that moved on is asked for.

    `groups` is the content of the wanted columns now, `base` and `base_groups` the table at the version that the last
    statistics describe (None when that version is gone), `history` the commits since, `index` what the state has.
    """

    groups: tuple[ColumnGroup, ...]
    base: Snapshot | None
    base_groups: tuple[ColumnGroup, ...]
    history: History
    index: PartialIndex
