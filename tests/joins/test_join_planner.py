"""From values to actions on joins: no dataset, no disk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lancestat.joins.action import BuildIndex, ExtendIndex, JoinAction, ReuseIndex
from lancestat.joins.planner import MOST_FOLDERS, decide_join, plan_join, revise
from lancestat.joins.record import JoinCounts
from lancestat.joins.search.cost_model import JoinSize, KeptIndex, Strategy
from lancestat.joins.search.work import Increment, JoinRequest, Scope
from lancestat.joins.sides import JoinInput
from lancestat.lake.fingerprint import FragmentContent
from lancestat.presentation.words import stage_lines
from lancestat.runs.actions import Reason, Skip
from tests.joins.joins import (
    LEFT,
    OUTPUT,
    RIGHT,
    SPEC,
    assessment,
    decided,
    files,
    kept,
    planned,
    recorded,
    table,
)


def test_a_version_of_the_result_with_the_same_rows_is_that_result() -> None:
    assert isinstance(decided(output=replace(OUTPUT, version=9)), Skip)


@pytest.mark.parametrize(
    ("changes", "verb", "reasons"),
    [
        ({"record": None, "output": None}, "analyze", [Reason.NEW]),
        ({"record": None}, "analyze", [Reason.NEW]),
        ({"output": None}, "analyze", [Reason.OUTPUT_MISSING]),
        ({"output": replace(OUTPUT, digest="x")}, "refresh", [Reason.OUTPUT_MISSING]),
        ({"output": replace(OUTPUT, rows=1)}, "refresh", [Reason.OUTPUT_MISSING]),
        ({"digest": "other"}, "refresh", [Reason.SPEC_CHANGED]),
        ({"full_refresh": True}, "refresh", [Reason.FULL_REFRESH]),
        (
            {"digest": "other", "output": None},
            "analyze",
            [Reason.SPEC_CHANGED, Reason.OUTPUT_MISSING],
        ),
    ],
)
def test_changes_that_require_a_full_join_have_reasons(
    changes: dict[str, Any], verb: str, reasons: list[Reason]
) -> None:
    # New rows do not narrow a join that has to be done in full anyway.
    for left in (LEFT, table(0, 1, 2)):
        action = planned(left, **changes)
        assert (action.verb, action.work.scope) == (verb, Scope.FULL)
        assert [reason for reason in action.reasons if reason in reasons] == reasons
        assert action.work.increment is None


def test_only_new_left_rows_are_joined() -> None:
    now = replace(OUTPUT, version=9)
    action = planned(table(0, 1, 4, 5), output=now)
    counts = JoinCounts(300, 20_000, 2, 1)
    new = frozenset({4, 5})
    assert action.work.increment == Increment(Scope.NEW_LEFT, new, frozenset(), now, counts)
    assert action.new_rows == (200, 0)
    assert action.decision.pairs == 200 * 20_000
    of_files = planned(table(0, 1, 2), files(), record=recorded(LEFT, files()))
    assert of_files.work.scope is Scope.NEW_LEFT


def test_only_new_right_rows_are_searched_and_exactly() -> None:
    spec = replace(SPEC, mode="approx", recall=0.9)
    action = planned(right=table(0, 1, 2, rows=10_000), spec=spec, **kept())
    increment = action.work.increment
    assert increment is not None
    assert (increment.scope, increment.new_right) == (Scope.NEW_RIGHT, {2})
    assert action.decision.strategy == "exact"
    assert action.decision.pairs == 200 * 10_000


def test_the_gate_counts_the_pairs_of_the_whole_join() -> None:
    few = table(0, rows=10)
    assert planned(right=few, record=None).decision.strategy == "spark"
    record = recorded(LEFT, few)
    assert planned(table(0, 1, 2), few, record=record).decision.strategy == "exact"
    more = planned(LEFT, table(0, 1, rows=10), **kept(LEFT, few))
    assert (more.decision.strategy, more.work.request.spare) == ("exact", 5)


OTHER = FragmentContent(1, 100, b"other")


@pytest.mark.parametrize(
    "left",
    [
        table(1, 0),
        table(0),
        table(),
        table(2, 3),
        # A compaction may put its fragments in front, or between.
        table(2, 0, 1),
        table(0, 2, 1),
        # Those after others have to be younger.
        table(0, 1, -1),
        # Ids that were there before are no news.
        replace(table(0, 7, 9), digest="x"),
        table(0, 1, digest=None),
    ],
)
def test_anything_else_joins_in_full(left: JoinInput) -> None:
    action = planned(left)
    assert action.work.scope is Scope.FULL
    assert action.reasons == (Reason.INPUT_CHANGED,)


@pytest.mark.parametrize(
    ("left", "right", "scope", "reasons"),
    [
        (table(0), RIGHT, Scope.CHANGED, [Reason.ROWS_DELETED]),
        (table(0, 1, 2), table(0, 1, 2, rows=10_000), Scope.CHANGED, [Reason.ROWS_APPENDED]),
        (table(0, 2), RIGHT, Scope.CHANGED, [Reason.ROWS_CHANGED]),
        (
            table(0, 1, 2),
            table(1, rows=10_000),
            Scope.CHANGED,
            [Reason.ROWS_APPENDED, Reason.ROWS_DELETED],
        ),
        (table(2, 3), RIGHT, Scope.FULL, [Reason.INPUT_CHANGED]),
    ],
)
def test_changes_are_joined_where_that_is_less_work(
    left: JoinInput, right: JoinInput, scope: Scope, reasons: list[Reason]
) -> None:
    action = planned(left, right, **kept())
    assert (action.work.scope, list(action.reasons)) == (scope, reasons)
    whole = planned(left, right, record=None)
    assert (action.decision.pairs or 0) < (whole.decision.pairs or 0) or scope is Scope.FULL


def test_many_increments_of_neighbours_become_one() -> None:
    known = kept()
    folders = tuple(f"neighbours/near/{number}" for number in range(MOST_FOLDERS))
    for count, scope in ((MOST_FOLDERS - 1, Scope.NEW_LEFT), (MOST_FOLDERS, Scope.CHANGED)):
        record = replace(known["record"], neighbours=folders[:count])
        assert planned(table(0, 1, 2), **{**known, "record": record}).work.scope is scope


def test_rows_at_other_addresses_lose_their_neighbours() -> None:
    moved = {
        **kept(table(5, 6), RIGHT),
        "record": replace(recorded(LEFT, RIGHT), neighbours=("a",)),
    }
    increment = planned(table(0, 1, 7), **moved).work.increment
    assert increment is not None
    assert (increment.scope, increment.neighbours) == (Scope.NEW_LEFT, ())


def test_new_right_rows_require_left_rows_with_stable_places() -> None:
    """Spark may read the same files in another order."""
    record = recorded(files(), RIGHT)
    action = planned(files(), table(0, 1, 2, rows=10_000), record=record)
    assert (action.work.scope, action.reasons) == (
        Scope.FULL,
        (Reason.ROWS_APPENDED, Reason.INPUT_CHANGED),
    )


def test_a_side_not_proven_unchanged_is_changed() -> None:
    record = recorded(LEFT, files(None))
    action = planned(LEFT, files(None), record=record)
    assert action.reasons == (Reason.INPUT_CHANGED,)


@pytest.mark.parametrize("empty", ["left", "right"])
def test_a_side_without_recorded_rows_joins_in_full(empty: str) -> None:
    sides = {"left": LEFT, "right": RIGHT, empty: table()}
    record = recorded(sides["left"], sides["right"])
    assert planned(record=record).work.scope is Scope.FULL


def test_an_index_is_used_only_for_its_metric() -> None:
    spec = replace(SPEC, mode="approx", nprobes=5, min_right_rows=0)
    many = table(0, 1, rows=50_000_000)
    few = table(0, rows=10)
    for metric, strategy in (("l2", True), ("cosine", False)):
        action = decide_join(
            assessment(few, replace(many, index=metric), None, spec=spec, output=None)
        )
        assert isinstance(action, JoinAction)
        assert (action.decision.strategy == "index") is strategy


def test_without_known_cores_no_time_is_estimated() -> None:
    assert planned(record=None).decision.seconds is not None
    assert planned(record=None, cores=0).decision.seconds is None
    assert planned(record=None, cores=0).decision.pairs == 200 * 20_000


def test_stages_describe_the_phases_of_the_join() -> None:
    action = planned(files(), record=None)
    words = [line.partition(":")[0] for line in stage_lines(action)]
    assert words == ["strategy", "prepare", "probe", "commit"]
    assert words[1:] == [stage.name for stage in action.stages]
    action = planned(right=table(0, 1, 2, rows=10_000), **kept())
    words = [line.partition(":")[0] for line in stage_lines(action)]
    # Tables are opened where they are, which needs no words.
    assert words[1:] == [stage.name for stage in action.stages][1:]
    assert words[-2:] == ["merge", "commit"]


def test_lists_are_planned_once_the_sides_are_counted() -> None:
    request = JoinRequest(3, recall=0.9)
    work = replace(planned(record=None).work, request=request)
    action = plan_join(work, JoinSize(None, None, None))
    assert action.decision.strategy is Strategy.IVF
    assert [stage.name for stage in action.stages] == ["prepare", "probe", "commit"]
    revised = revise(action, JoinSize(20_000, 20_000_000, 8), cores=2)
    assert revised.decision.lists is not None
    assert revised.stages[1] == BuildIndex(revised.decision.lists)


APPROXIMATE = replace(SPEC, mode="approx", recall=0.9, min_right_rows=0)
MANY = table(0, rows=10_000_000)


def in_lists(kept: KeptIndex | None, *, full_refresh: bool = False) -> JoinAction:
    known = assessment(table(0, rows=100_000), MANY, None, spec=APPROXIMATE, output=None)
    action = decide_join(replace(known, kept=kept), full_refresh=full_refresh)
    assert isinstance(action, JoinAction)
    assert action.decision.strategy is Strategy.IVF
    return action


def test_a_kept_layout_is_searched_instead_of_a_new_one() -> None:
    fresh, kept = in_lists(None), in_lists(KeptIndex(2000, 10_000_000, 0))
    assert kept.stages[1] == ReuseIndex(2000, 10_000_000)
    assert kept.decision.why.endswith("; a kept IVF index of 10,000,000 rows is searched")
    assert (kept.decision.seconds or 0) < (fresh.decision.seconds or 0)
    assert "reuse index: the kept index of 10,000,000 rows in 2,000 lists is searched as it is" in (
        stage_lines(kept)
    )


def test_new_rows_are_put_into_the_lists_of_a_kept_layout() -> None:
    action = in_lists(KeptIndex(2000, 9_990_000, 10_000))
    assert action.stages[1] == ExtendIndex(2000, 9_990_000, 10_000)
    assert action.decision.why.endswith(
        "; 10,000 new rows are put into the lists of a kept IVF index of 9,990,000 rows"
    )
    assert (
        "extend index: 10,000 new rows are put into the 2,000 lists of the kept index of "
        "9,990,000 rows"
    ) in stage_lines(action)


def test_a_kept_layout_that_does_not_do_is_trained_again_and_the_plan_says_why() -> None:
    fresh = in_lists(None).stages
    drifted = in_lists(KeptIndex(2000, 10_000_000, 0, "30 % of it is old"))
    assert drifted.stages == fresh
    assert drifted.decision.why.endswith(
        "; a kept IVF index of 10,000,000 rows is trained again, since 30 % of it is old"
    )
    too_few = in_lists(KeptIndex(3, 10_000_000, 0))
    assert too_few.stages == fresh
    assert too_few.decision.why.endswith("suit this join better than its 3")


def test_a_full_refresh_lays_out_anew() -> None:
    action = in_lists(KeptIndex(2000, 10_000_000, 0), full_refresh=True)
    assert action.work.is_fresh
    assert isinstance(action.stages[1], BuildIndex)
    assert "kept" not in action.decision.why
