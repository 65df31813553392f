"""Plans as text, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from lancestat.errors import DatasetMissing, UnsupportedColumn
from lancestat.presentation.markdown import prose
from lancestat.presentation.words import SKIPS_LISTED, stage_lines
from lancestat.runs.actions import Plan, RunsOn
from lancestat.spec.model import Policy, Publish, StaleBounds
from lancestat.tables.action import (
    MergePartials,
    PublishStatistics,
    ReadFragments,
    RecordStatistics,
    ReusePartials,
    Scan,
    TableStage,
)
from lancestat.tables.coverage import Carry, Coverage, Reuse
from tests.conftest import Golden
from tests.joins.joins import every_join
from tests.presentation.rendering import as_json, as_markdown, as_text
from tests.tables.plans import KEYS, blocked, every_action, plan, refresh, restamp, skip

POLICIES = {
    "lineitem": Policy(),
    "orders": Policy(allow_stale=StaleBounds(20, timedelta(hours=6), 0.05)),
    "part": Policy(allow_stale=True),
}
PRINTED: dict[str, Callable[[], str]] = {
    "every_action.txt": lambda: as_text(every_action(), width=120),
    "every_action_narrow.txt": lambda: as_text(every_action(), width=80),
    "every_action_verbose.txt": lambda: as_text(every_action(), verbose=True, width=120),
    "every_action.md": lambda: as_markdown(every_action(), POLICIES),
    "every_action.json": lambda: json.dumps(as_json(every_action()), indent=2),
    "every_join.txt": lambda: as_text(every_join(), width=120),
    "every_join_verbose.txt": lambda: as_text(every_join(), verbose=True),
    "every_join.md": lambda: as_markdown(every_join(), POLICIES),
    "every_join.json": lambda: json.dumps(as_json(every_join()), indent=2),
}


@pytest.mark.parametrize("name", PRINTED)
def test_plans_print_what_the_golden_files_hold(name: str, golden: Golden) -> None:
    golden(f"plan/{name}", f"{PRINTED[name]()}\n")


KNOWN = tuple(Reuse((bytes([n]),), KEYS) for n in range(3))
CARRY = Carry(((b"a",), (b"b",)), (b"c",), frozenset({"1:bigint", "2:bigint"}))


def read(*ids: int) -> ReadFragments:
    return ReadFragments(tuple(Scan(id, bytes(16), KEYS, 1, 1) for id in ids), RunsOn.PROCESS)


@pytest.mark.parametrize(
    ("stage", "line"),
    [
        (ReusePartials(Coverage(KNOWN, (), ())), "reuse: 48 stored partials"),
        (ReusePartials(Coverage((), (CARRY,), ())), "reuse: 4 of fragments since compacted"),
        (
            ReusePartials(Coverage(KNOWN[:1], (CARRY,), ())),
            "reuse: 16 stored partials, and 4 of fragments since compacted",
        ),
        (read(3), "read: fragment 3, in this process"),
        (read(3, 3), "read: fragment 3, in this process"),
        (read(0, 2, 1), "read: fragments 0 to 2, in this process"),
        (read(9, 1, 2, 5), "read: fragments 1 to 2, 5, 9, in this process"),
        (read(1, 3, 5, 7, 8), "read: fragments 1, 3, 5, 7 to 8, in this process"),
        (read(1, 3, 5, 7, 9, 11, 12), "read: fragments 1, 3, 5, 7 and 3 more, in this process"),
        (MergePartials(3), "merge: all partials, into the statistics of version 3"),
        (PublishStatistics(Publish.NONE), "publish: in the state alone"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_verbose_has_a_line_for_each_stage(stage: TableStage, line: str) -> None:
    assert stage_lines(replace(refresh(), stages=(stage,))) == [line]


def test_many_unchanged_tables_fold_into_one_line() -> None:
    idle = [skip(f"t{i}") for i in range(SKIPS_LISTED + 1)]
    text = as_text(plan(refresh(), *idle))
    assert "t3" not in text
    assert f". skip     {SKIPS_LISTED + 1} more unchanged (--verbose lists them)" in text
    assert "t3" in as_text(plan(refresh(), *idle), verbose=True)


def joins(*names: str, verb: str = "") -> Plan:
    actions = every_join().actions
    return plan(*(one for one in actions if one.node in names or one.verb == verb))


def with_tables(made: Plan, start_seconds: float | None) -> Plan:
    return replace(made, actions=(refresh(), *made.actions), spark_start_seconds=start_seconds)


BOTH = joins("first", "more_left")


@pytest.mark.parametrize(
    ("made", "end"),
    [
        (plan(), "No nodes selected."),
        (plan(skip("a"), skip("b")), "\nNothing to do: all statistics are up to date."),
        (joins(verb="skip"), "\nNothing to do: everything is up to date."),
        (plan(restamp()), "\nReads no data."),
        (plan(skip(), blocked()), "\nNothing else to do."),
        (BOTH, "Takes about 5.7 s."),
        (
            replace(BOTH, spark_start_seconds=6.0),
            "Takes about 12 s, 6 s of it Spark's start.",
        ),
        (replace(BOTH, spark_start_seconds=None), "pairs."),
        (with_tables(joins("first"), 6.0), "The joins take about 10 s, 6 s of it Spark's start."),
        (with_tables(plan(), 6.0), "Spark takes about 6 s to start."),
        (plan(refresh()), "12 MB."),
    ],
)
def test_the_last_line_sums_up(made: Plan, end: str) -> None:
    assert as_text(made).endswith(end)


def test_json_has_the_status_and_the_estimated_time() -> None:
    assert as_json(plan(skip()))["status"] == "planned"
    assert as_json(plan(skip(), blocked()))["status"] == "error"
    starting = as_json(replace(BOTH, spark_start_seconds=6.0))
    assert (starting["estimated_seconds"], starting["spark_start_seconds"]) == (11.7, 6.0)
    assert as_json(with_tables(BOTH, 6.0))["estimated_seconds"] is None


def test_text_keeps_to_the_width_of_the_terminal() -> None:
    assert max(map(len, as_text(every_action(), width=80).splitlines())) <= 90
    error = UnsupportedColumn("word " * 60, hint="wait " * 30)
    lines = as_text(plan(blocked(error=error)), width=80).splitlines()
    assert max(map(len, lines)) <= 80
    below = [line for line in lines if "word" in line or "wait" in line]
    assert len(below) > 5
    assert all(line.startswith(" " * 13) for line in below)


def test_markdown_of_an_unchanged_project_is_one_sentence() -> None:
    lines = as_markdown(plan(skip("a"), skip("b")), {}).splitlines()
    assert lines == ["### lancestat: shop, target dev", "", "Nothing to do. 2 nodes unchanged."]


def test_a_plan_says_what_a_run_tidies_up_of_tables_that_are_skipped() -> None:
    note = "the state lacks its record"
    tidied = replace(skip("orders", (note,)), stages=(RecordStatistics(refresh().table),))
    idle = [skip(f"t{i}") for i in range(SKIPS_LISTED + 1)]
    text = as_text(plan(tidied, *idle))
    assert f"note: {note}" in text
    assert "t3" not in text
    assert text.splitlines()[-1] == "Reads no data. Tidies up the state of 1 unchanged table."
    assert as_text(plan(refresh(), tidied)).splitlines()[-1].startswith("Reads 1 of")
    markdown = as_markdown(plan(tidied, *idle), {})
    assert f"- `orders`: {note}" in markdown
    assert "Tidies up the state of 1 unchanged table. 13 nodes unchanged." in markdown
    assert note in plan(tidied, *idle)._repr_html_()


@pytest.mark.parametrize("hostile", ["a | b", "a\n\n# b", "<img src=x>", "[x](y)", "`x`", "*x*"])
def test_no_message_breaks_out_of_its_cell(hostile: str) -> None:
    row = as_markdown(plan(blocked(error=DatasetMissing(hostile))), {}).splitlines()[4]
    unescaped = [c for i, c in enumerate(row) if c == "|" and row[i - 1] != "\\"]
    assert len(unescaped) == 6
    assert prose(hostile) in row
