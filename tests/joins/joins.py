"""Plans of joins to render: values only, no dataset behind them."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar
from unittest.mock import patch

from lancestat.errors import Location, SideColumnMissing
from lancestat.joins.action import JoinAction, JoinFigures
from lancestat.joins.record import JoinGroups
from lancestat.joins.search.cost_model import Decision, JoinSize, Strategy, choose
from lancestat.joins.search.work import JoinRequest
from lancestat.runs.actions import Blocked, Deferred, Plan, Reason, Skip
from tests.joins.join_values import (
    LEFT,
    RIGHT,
    SPEC,
    decided,
    files,
    planned,
    recorded,
    table,
)
from tests.tables.plans import plan, refresh

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
        named("more_right", planned(right=table(0, 1, 2, rows=10_000))),
        planned(LEFT, query, record=recorded(LEFT, query), spec=counted),
        planned(record=None, output=None, spec=by_key),
        named("grouped_again", again),
        Deferred(
            "reader",
            "knn_join",
            "refresh",
            (Reason.INPUT_CHANGED,),
            ("first", "more_left"),
            figures=JoinFigures(),
        ),
        named("idle", idle),
        Blocked("broken", "knn_join", blocked, JoinFigures()),
    )


def named(name: str, action: Named) -> Named:
    return replace(action, node=name)
