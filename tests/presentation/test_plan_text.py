from __future__ import annotations

from dataclasses import replace

import pytest

from lancestat.errors import UnsupportedColumn
from lancestat.presentation.plan_view import explain_stages
from lancestat.presentation.text_nodes import SKIPS_LISTED
from lancestat.runs.actions import RunsOn
from lancestat.spec.model import Publish
from lancestat.tables.action import (
    MergePartials,
    PublishStatistics,
    ReadFragments,
    ReusePartials,
    Scan,
    TableStage,
)
from lancestat.tables.coverage import Carry, Coverage, Reuse
from tests.conftest import Golden
from tests.joins.joins import every_join
from tests.presentation.rendering import as_json, as_text
from tests.tables.plans import KEYS, blocked, every_action, plan, refresh, restamp, skip


def test_every_action_is_a_line_with_its_reads_and_reason(golden: Golden) -> None:
    golden("plan/every_action.txt", as_text(every_action(), width=120) + "\n")


def test_in_a_narrow_terminal_reasons_are_below_the_names(golden: Golden) -> None:
    text = as_text(every_action(), width=80)
    assert max(map(len, text.splitlines())) <= 90
    golden("plan/every_action_narrow.txt", text + "\n")


def test_verbose_adds_versions_and_notes_of_unchanged_tables(golden: Golden) -> None:
    golden("plan/every_action_verbose.txt", as_text(every_action(), verbose=True, width=120) + "\n")


def lines_of(*stages: TableStage) -> list[str]:
    return explain_stages(replace(refresh(), stages=stages))


def test_verbose_tells_what_is_reused() -> None:
    known = tuple(Reuse((bytes([n]),), KEYS) for n in range(3))
    carry = Carry(((b"a",), (b"b",)), (b"c",), frozenset({"1:bigint", "2:bigint"}))
    assert lines_of(
        ReusePartials(Coverage(known, (), ())), ReusePartials(Coverage((), (carry,), ()))
    ) == ["reuse: 48 stored partials", "reuse: 4 of fragments since compacted"]
    assert lines_of(ReusePartials(Coverage(known[:1], (carry,), ()))) == [
        "reuse: 16 stored partials, and 4 of fragments since compacted"
    ]


@pytest.mark.parametrize(
    ("ids", "named"),
    [
        ((3,), "fragment 3"),
        ((3, 3), "fragment 3"),
        ((0, 2, 1), "fragments 0 to 2"),
        ((9, 1, 2, 5), "fragments 1 to 2, 5, 9"),
        ((1, 3, 5, 7, 8), "fragments 1, 3, 5, 7 to 8"),
        ((1, 3, 5, 7, 9, 11, 12), "fragments 1, 3, 5, 7 and 3 more"),
    ],
)
def test_verbose_names_the_fragments_that_are_read(ids: tuple[int, ...], named: str) -> None:
    scans = tuple(Scan(id, bytes(16), KEYS, 1, 1) for id in ids)
    assert lines_of(ReadFragments(scans, RunsOn.PROCESS)) == [f"read: {named}, in this process"]


def test_verbose_tells_where_statistics_go() -> None:
    assert lines_of(MergePartials(3), PublishStatistics(Publish.NONE)) == [
        "merge: all partials, into the statistics of version 3",
        "publish: in the state alone",
    ]


def test_many_unchanged_tables_fold_into_one_line() -> None:
    idle = [skip(f"t{i}") for i in range(SKIPS_LISTED + 1)]
    text = as_text(plan(refresh(), *idle))
    assert "t3" not in text
    assert f". skip     {SKIPS_LISTED + 1} more unchanged (--verbose lists them)" in text
    assert "t3" in as_text(plan(refresh(), *idle), verbose=True)


def test_an_unchanged_project_has_nothing_to_do() -> None:
    last = as_text(plan(skip("a"), skip("b"))).splitlines()[-1]
    assert last == "Nothing to do: all statistics are up to date."


def test_a_plan_that_only_restamps_reads_no_data() -> None:
    assert as_text(plan(restamp())).splitlines()[-1] == "Reads no data."


def test_a_plan_of_blocked_nodes_is_not_called_up_to_date() -> None:
    assert as_text(plan(skip(), blocked())).splitlines()[-1] == "Nothing else to do."


def test_an_empty_plan_has_its_own_message() -> None:
    assert as_text(plan()) == "No nodes selected."


def test_long_errors_wrap_below_the_name_of_their_node() -> None:
    error = UnsupportedColumn("word " * 60, hint="wait " * 30)
    lines = as_text(plan(blocked(error=error)), width=80).splitlines()
    assert max(map(len, lines)) <= 80
    below = [line for line in lines if "word" in line or "wait" in line]
    assert len(below) > 5
    assert all(line.startswith(" " * 13) for line in below)


def test_joins_show_their_rows_strategy_and_reason(golden: Golden) -> None:
    golden("plan/every_join.txt", as_text(every_join(), width=120) + "\n")


def test_verbose_shows_the_stages_of_joins(golden: Golden) -> None:
    golden("plan/every_join_verbose.txt", as_text(every_join(), verbose=True) + "\n")


def test_with_unchanged_joins_everything_is_up_to_date() -> None:
    idle = [action for action in every_join().actions if action.verb == "skip"]
    last = as_text(plan(*idle)).splitlines()[-1]
    assert last == "Nothing to do: everything is up to date."


def test_the_estimated_time_includes_the_start_of_spark() -> None:
    joins = [action for action in every_join().actions if action.node in ("first", "more_left")]
    made = plan(*joins)
    times = [action.figures.estimated_seconds for action in joins]
    assert times == [4.2, 1.5]
    starting = replace(made, spark_start_seconds=6.0)
    assert as_text(starting).endswith("Takes about 12 s, 6 s of it Spark's start.")
    assert as_text(made).endswith("Takes about 5.7 s.")
    assert as_text(replace(made, spark_start_seconds=None)).endswith("pairs.")
    json_of = as_json(starting)
    assert (json_of["estimated_seconds"], json_of["spark_start_seconds"]) == (11.7, 6.0)


def test_the_time_of_tables_is_not_estimated() -> None:
    joins = [action for action in every_join().actions if action.node == "first"]
    both = replace(plan(refresh(), *joins), spark_start_seconds=6.0)
    assert as_text(both).endswith("The joins take about 10 s, 6 s of it Spark's start.")
    assert as_json(both)["estimated_seconds"] is None
    table = replace(plan(refresh()), spark_start_seconds=6.0)
    assert as_text(table).endswith("Spark takes about 6 s to start.")
    assert as_text(plan(refresh())).endswith("12 MB.")
