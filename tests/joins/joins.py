"""Joins as values: for the planner, and plans of them to render; no dataset behind them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, TypeVar
from unittest.mock import patch

from lancestat.errors import Location, SideColumnMissing
from lancestat.joins.action import JoinAction, JoinFigures
from lancestat.joins.planner import JoinAssessment, decide_join
from lancestat.joins.record import (
    JoinCounts,
    JoinGroups,
    JoinRecord,
    OutputState,
)
from lancestat.joins.scratch.kept_neighbours import NeighboursManifest, PinnedVersion
from lancestat.joins.search.cost_model import Decision, JoinSize, Strategy, choose
from lancestat.joins.search.work import FragmentState, JoinRequest, PinnedTable, SideSource
from lancestat.joins.sides import JoinInput
from lancestat.lake.fingerprint import FragmentContent, rows_digest
from lancestat.lake.snapshot import Pin
from lancestat.runs.actions import Blocked, Deferred, Dependent, Plan, Reason, Skip
from lancestat.spec.model import KnnJoin, KnnSide
from tests.tables.plans import plan, refresh

SPEC = KnnJoin(
    "near",
    KnnSide("v", ("id",), table="l"),
    KnnSide("w", ("key",), table="r"),
    10,
    output_format="lance",
    output_uri="wh/near.lance",
    location=Location("specs/shop.yml", 3, 5),
)
OUTPUT = OutputState(900, "made", version=3)


def table(*ids: int, rows: int = 100, **changes: Any) -> JoinInput:
    """Return a Lance table whose fragments have these ids, and content derived from them."""
    fragments = tuple(FragmentContent(id, rows, str(id).encode()) for id in ids)
    total = sum(fragment.rows for fragment in fragments)
    pinned = PinnedTable("t", Pin("t.lance", 1, "m"), ())
    state = tuple(FragmentState(part.id, str(part.id), None, part.rows) for part in fragments)
    side = SideSource("v", ("id",), pinned, state=state)
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
        result=OutputState(900, "made", 3),
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


def kept(left: JoinInput = LEFT, right: JoinInput = RIGHT) -> dict[str, Any]:
    """Return what an assessment has where the neighbours of such sides are in scratch."""
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    sides = (left.work.state, right.work.state)
    manifest = NeighboursManifest(at, *sides, (), PinnedVersion(1, "m"))
    record = replace(recorded(left, right), neighbours=("neighbours/near/1",))
    return {"record": record, "neighbours": manifest, "neighbours_key": "near"}


def decided(left: JoinInput = LEFT, right: JoinInput = RIGHT, **changes: Any) -> JoinAction | Skip:
    record = changes.pop("record", BEFORE)
    full_refresh = changes.pop("full_refresh", False)
    return decide_join(assessment(left, right, record, **changes), full_refresh=full_refresh)


def planned(left: JoinInput = LEFT, right: JoinInput = RIGHT, **changes: Any) -> JoinAction:
    action = decided(left, right, **changes)
    assert isinstance(action, JoinAction)
    return action


Named = TypeVar("Named", JoinAction, Skip)


def every_join() -> Plan:
    """Return a join of every kind, as the planner makes it, for any estimates of the gate."""
    with patch("lancestat.joins.planner.choose", _choose):
        return _every_join()


def _choose(request: JoinRequest, size: JoinSize, cores: int) -> Decision:
    if size.left_rows is None or size.right_rows is None:
        return Decision(Strategy.EXACT, "every pair is to be compared")
    if request.has_keys:
        decision = choose(request, size, cores)
        return replace(decision, seconds=decision.seconds and 2.5)
    pairs = size.left_rows * size.right_rows
    if not request.is_approximate:
        return Decision(Strategy.EXACT, "every pair is to be compared", pairs, 1.5)
    why = "about 4.2 s, where comparing every pair takes 17 s"
    return Decision(Strategy.IVF, why, pairs // 30, 4.2, 1024)


_MANY = (table(0, 1), table(*range(10), rows=10_000))


def _every_join() -> Plan:
    cosine = replace(SPEC, name="first", metric="cosine", mode="approx", recall=0.95)
    many = table(0, 1, rows=2_000_000)
    approximate = planned(table(0, rows=50_000), many, record=None, output=None, spec=cosine)
    query = replace(files(None), rows=None, notes=("its query names 'now'",))
    blocked = SideColumnMissing(
        "the left side of knn join 'broken' names column 'idd', which l.lance does not have",
        location=Location("specs/shop.yml", 9, 5),
        hint="did you mean 'id'?",
    )
    idle = decided()
    assert isinstance(idle, Skip)
    counted = replace(SPEC, name="counted_later")
    by_key = replace(SPEC, name="grouped_first", on=(("shop", "shop"),))
    grouped = replace(recorded(LEFT, RIGHT), groups=JoinGroups(20, 200_000, 200, 20_000))
    again = planned(record=grouped, spec=by_key, full_refresh=True)
    return plan(
        refresh(),
        approximate,
        named("more_left", planned(table(0, 1, 2))),
        named("more_right", planned(right=table(0, 1, 2, rows=10_000), **kept())),
        named("updated", planned(table(0, 2), table(*range(1, 11), rows=10_000), **kept(*_MANY))),
        planned(LEFT, query, record=recorded(LEFT, query), spec=counted),
        planned(record=None, output=None, spec=by_key),
        named("grouped_again", again),
        Dependent(
            "reader",
            "knn_join",
            "refresh",
            (Reason.INPUT_CHANGED,),
            ("first", "more_left"),
            figures=JoinFigures(),
        ),
        Deferred(
            "later",
            "knn_join",
            (Reason.NEW,),
            JoinFigures(),
            "it takes about 2 h, with 30 min left of the budget of 30 minutes",
        ),
        named("idle", idle),
        Blocked("broken", "knn_join", blocked, JoinFigures()),
    )


def named(name: str, action: Named) -> Named:
    return replace(action, node=name)
