"""Joins as values for the planner: sides, records and results."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from lancestat.errors import Location
from lancestat.joins.action import JoinAction
from lancestat.joins.planner import JoinAssessment, decide_join
from lancestat.joins.record import JoinCounts, JoinRecord, ResultRecord
from lancestat.joins.search.work import OutputFormat, OutputState, PinnedTable, SideSource
from lancestat.joins.sides import JoinInput
from lancestat.lake.fingerprint import FragmentContent, rows_digest
from lancestat.lake.snapshot import Pin
from lancestat.runs.actions import Skip
from lancestat.spec.model import KnnJoin, KnnSide

SPEC = KnnJoin(
    "near",
    KnnSide("v", ("id",), table="l"),
    KnnSide("w", ("key",), table="r"),
    10,
    output_format="lance",
    output_uri="wh/near.lance",
    location=Location("specs/shop.yml", 3, 5),
)
OUTPUT = OutputState(OutputFormat.LANCE, "wh/near.lance", 900, "made", version=3)


def table(*ids: int, rows: int = 100, **changes: Any) -> JoinInput:
    """Return a Lance table whose fragments have these ids, and content derived from them."""
    fragments = tuple(FragmentContent(id, rows, str(id).encode()) for id in ids)
    total = sum(fragment.rows for fragment in fragments)
    pinned = PinnedTable("t", Pin("t.lance", 1, "m"), ())
    side = SideSource("v", ("id",), pinned)
    made = JoinInput(side, rows_digest(fragments), fragments, ("id",), total, 4)
    return replace(made, **changes)


def files(digest: str | None = "listed") -> JoinInput:
    return JoinInput(SideSource("v", None, format="parquet", uri="rows"), digest, rows=50)


def recorded(left: JoinInput, right: JoinInput) -> JoinRecord:
    return JoinRecord(
        node="near",
        digest="meaning",
        left=left.to_record(),
        right=right.to_record(),
        result=ResultRecord(900, "made", 3),
        counts=JoinCounts(300, 20_000, 2, 1),
        strategy="exact",
        finished_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )


def assessment(
    left: JoinInput, right: JoinInput, record: JoinRecord | None, **changes: Any
) -> JoinAssessment:
    made = JoinAssessment(SPEC, "meaning", left, right, record, OUTPUT, cores=2)
    return replace(made, **changes)


LEFT, RIGHT = table(0, 1), table(0, 1, rows=10_000)
BEFORE = recorded(LEFT, RIGHT)


def decided(left: JoinInput = LEFT, right: JoinInput = RIGHT, **changes: Any) -> JoinAction | Skip:
    record = changes.pop("record", BEFORE)
    full_refresh = changes.pop("full_refresh", False)
    return decide_join(assessment(left, right, record, **changes), full_refresh=full_refresh)


def planned(left: JoinInput = LEFT, right: JoinInput = RIGHT, **changes: Any) -> JoinAction:
    action = decided(left, right, **changes)
    assert isinstance(action, JoinAction)
    return action
