"""Decisions about near-duplicates, from values."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from lancestat.errors import Location
from lancestat.joins.action import JoinAction
from lancestat.joins.duplicates.action import DuplicatesAction, GroupWork
from lancestat.joins.duplicates.planner import DuplicatesAssessment, decide
from lancestat.joins.duplicates.record import DuplicatesRecord, GroupCounts, GroupSizes
from lancestat.joins.record import OutputState
from lancestat.joins.search.work import PinnedTable
from lancestat.lake.snapshot import Pin
from lancestat.runs.actions import Reason, Skip, needs_spark
from lancestat.runs.plan_file import action_digest
from lancestat.spec.model import Duplicates
from tests.joins.joins import BEFORE, decided, table
from tests.joins.joins import planned as planned_join

SPEC = Duplicates(
    "same",
    vector="v",
    max_distance=0.1,
    table="t",
    output_uri="wh/same.lance",
    location=Location("a.yml", 1, 1),
)
WORK = GroupWork(
    PinnedTable("t", Pin("t.lance", 1, "m"), ()),
    "v",
    (),
    ("id",),
    (),
    "l2",
    "wh/same.lance",
    "content",
    "pairs",
    "wh/.same.lance.pairs",
)
RECORD = DuplicatesRecord(
    "same",
    "meaning",
    "content",
    BEFORE,
    OutputState(9, "made", 2),
    GroupCounts(4, 9, 6),
    GroupSizes((3, 1), (3, 2, 2, 2)),
    4,
    datetime(2026, 1, 1, tzinfo=timezone.utc),
)
OUTPUT = OutputState(9, "made", version=2)
PAIRS = OutputState(6, "pairs", version=2)
UNCHANGED = decided()
APPENDED = planned_join(table(0, 1, 2))


def planned(full_refresh: bool = False, **changes: Any) -> DuplicatesAction | Skip:
    assert isinstance(UNCHANGED, Skip)
    known = DuplicatesAssessment(SPEC, "meaning", WORK, UNCHANGED, RECORD, PAIRS, OUTPUT)
    return decide(replace(known, **changes), full_refresh=full_refresh)


def test_nothing_is_done_where_nothing_has_changed() -> None:
    action = planned()
    assert isinstance(action, Skip)
    assert action.kind == "duplicates"
    assert action.figures is not None
    assert action.figures.to_json()["duplicate_groups"] == 4


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({"digest": "other"}, (Reason.SPEC_CHANGED,)),
        ({"work": replace(WORK, content="other")}, (Reason.INPUT_CHANGED,)),
        ({"output": None}, (Reason.OUTPUT_MISSING,)),
        ({"output": replace(OUTPUT, digest="other")}, (Reason.OUTPUT_MISSING,)),
        ({"output": replace(OUTPUT, version=7)}, ()),
    ],
)
def test_pairs_that_hold_are_grouped_again(
    changes: dict[str, Any], reasons: tuple[Reason, ...]
) -> None:
    action = planned(**changes)
    if not reasons:
        assert isinstance(action, Skip)
        return
    assert isinstance(action, DuplicatesAction)
    assert (action.join, action.known, action.reasons) == (None, (BEFORE, PAIRS), reasons)
    assert [stage.name for stage in action.stages] == ["group pairs", "commit groups"]
    assert not needs_spark(action)


def test_pairs_are_found_again_where_the_join_is_to_be_run() -> None:
    action = planned(join=APPENDED, pairs=None)
    assert isinstance(action, DuplicatesAction) and isinstance(action.join, JoinAction)
    assert (action.verb, action.reasons) == ("refresh", APPENDED.reasons)
    assert action.stages[: len(APPENDED.stages)] == APPENDED.stages
    assert needs_spark(action)
    assert action.figures.pairs == APPENDED.figures.pairs


def test_the_first_run_and_a_refresh_find_everything() -> None:
    first = planned(join=APPENDED, record=None, pairs=None, output=None)
    assert isinstance(first, DuplicatesAction)
    assert (first.verb, first.reasons) == ("analyze", (Reason.NEW,))
    again = planned(full_refresh=True, join=APPENDED, pairs=None)
    assert isinstance(again, DuplicatesAction)
    assert (again.verb, again.reasons) == ("refresh", (Reason.FULL_REFRESH,))


def test_what_is_done_has_a_digest() -> None:
    one, other = planned(digest="x"), planned(work=replace(WORK, content="other"))
    assert action_digest(one) == action_digest(planned(digest="x"))
    assert action_digest(one) != action_digest(other)
