from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from lancestat import __version__
from lancestat.cli.main import Terminated
from lancestat.errors import DatasetMissing, Location
from lancestat.joins.action import JoinFigures
from lancestat.joins.record import Accuracy, JoinCounts
from lancestat.runs.result import NodeResult, RunInterrupted, RunResult, Status, failed, interrupted
from lancestat.state.garbage import GarbageReport
from lancestat.tables.table_status import TableStatus
from lancestat.tables.wire import PublishedColumn
from tests.cli.conftest import FakeProject, Lancestat
from tests.conftest import Golden
from tests.tables.plans import blocked, plan, refresh, restamp, skip


def test_list_selects(lancestat: Lancestat, project: FakeProject) -> None:
    chosen = json.loads(lancestat("list", "-s", "tag:nightly", "--output", "json").stdout)
    assert [node["name"] for node in chosen["nodes"]] == ["orders"]
    rest = json.loads(lancestat("list", "--exclude", "tag:nightly", "--output", "json").stdout)
    assert [node["name"] for node in rest["nodes"]] == ["part"]


def test_markdown_names_the_policies_of_tables(lancestat: Lancestat, project: FakeProject) -> None:
    project.planned = plan(restamp("part"))
    assert "| any staleness |" in lancestat("plan", "--output", "markdown").stdout


@pytest.mark.parametrize(
    ("actions", "plain", "check"),
    [
        ((skip(),), 0, 0),
        ((), 0, 0),
        ((refresh(), skip()), 0, 3),
        ((restamp(),), 0, 3),
        ((blocked(), refresh()), 1, 1),
    ],
)
def test_exit_codes_of_plan(
    actions: tuple[object, ...],
    plain: int,
    check: int,
    lancestat: Lancestat,
    project: FakeProject,
) -> None:
    project.planned = plan(*actions)  # type: ignore[arg-type]
    assert lancestat("plan").exit_code == plain
    assert lancestat("plan", "--check").exit_code == check


STARTED = datetime(2026, 3, 1, 4, 0, tzinfo=timezone.utc)
ENDED = datetime(2026, 3, 1, 4, 1, 16, 250_000, tzinfo=timezone.utc)


def result_of(status: Status) -> RunResult:
    refreshed = NodeResult(
        name="orders",
        kind="table",
        action="refresh",
        reasons=("rows_appended",),
        status=Status.SUCCESS,
        fragments_total=17,
        fragments_scanned=1,
        columns=10,
        rows_total=4_250_000,
        rows_scanned=250_000,
        version_read=17,
        version_published=18,
        elapsed_seconds=1.2,
    )
    restamped = replace(
        refreshed,
        name="part",
        action="restamp",
        reasons=("version_moved",),
        fragments_scanned=0,
        rows_scanned=0,
        elapsed_seconds=0.02,
    )
    unpublished = replace(refreshed, name="lineitem", version_published=None, elapsed_seconds=75.0)
    idle = replace(
        restamped, name="supplier", action="skip", reasons=("unchanged",), version_published=None
    )
    last = replace(idle, name="customer", action="blocked", reasons=(), status=status)
    if status is Status.ERROR:
        error = DatasetMissing(
            "there is no Lance dataset at customer.lance",
            location=Location("specs/shop.yml", 4, 5),
            hint="is it moved?",
        )
        last = replace(failed(last, error), elapsed_seconds=None)
    nodes = (refreshed, restamped, unpublished, idle, last)
    return RunResult("shop", "dev", nodes, run_id="4fd1", started_at=STARTED, finished_at=ENDED)


def result_of_joins() -> RunResult:
    figures = JoinFigures("exact", "full", JoinCounts(10_000, 200_000, 0, 0), 2_000_000_000)
    made = NodeResult(
        name="similar_parts",
        kind="knn_join",
        action="analyze",
        reasons=("new",),
        status=Status.SUCCESS,
        version_published=1,
        elapsed_seconds=7.25,
        figures=figures,
    )
    near = replace(
        made,
        name="near",
        action="refresh",
        reasons=("input_changed",),
        version_published=None,
        figures=JoinFigures(
            "ivf",
            "full",
            JoinCounts(10_000, 2_000_000, 12, 1),
            312_000_000,
            Accuracy(0.9634, 14),
        ),
    )
    more = replace(
        made,
        name="more",
        action="refresh",
        reasons=("rows_appended",),
        version_published=8,
        figures=replace(figures, scope="new_left", pairs=1_000_000),
    )
    grouped = replace(
        made, name="grouped", figures=replace(figures, pairs=1_000_000_000, groups=1000)
    )
    idle = replace(made, name="idle", action="skip", reasons=("unchanged",), figures=figures)
    last = replace(
        made,
        name="last",
        status=Status.SKIPPED,
        message="it reads the result of 'near', which failed",
        figures=JoinFigures(),
        version_published=None,
        elapsed_seconds=None,
    )
    return RunResult("shop", "dev", (made, near, more, grouped, idle, last))


def test_joins_and_tables_are_counted_separately(
    lancestat: Lancestat, project: FakeProject
) -> None:
    nodes = (*result_of(Status.SUCCESS).nodes[:3], *result_of_joins().nodes[:2])
    project.result = RunResult("shop", "dev", nodes)
    lines = lancestat("run").stdout.splitlines()
    assert lines[-2] == "3 tables and 2 joins brought up to date, 0 unchanged."
    assert lines[-1] == "Read 2 fragments, 500,000 rows. Compared 2.3 billion pairs."


@pytest.mark.parametrize(
    ("cause", "code", "word"),
    [(KeyboardInterrupt(), 130, "interrupted"), (Terminated(), 143, "terminated")],
)
def test_an_interrupted_run_prints_what_was_done_and_kept(
    lancestat: Lancestat,
    project: FakeProject,
    golden: Golden,
    monkeypatch: pytest.MonkeyPatch,
    cause: KeyboardInterrupt,
    code: int,
    word: str,
) -> None:
    made = result_of(Status.ERROR)
    left = interrupted(
        replace(made.nodes[0], fragments_scanned=200), "the run was interrupted", 120
    )

    def interrupt(*args: object, **options: object) -> RunResult:
        raise RunInterrupted(replace(made, nodes=(left, *made.nodes[1:]))) from cause

    monkeypatch.setattr(project, "run", interrupt)
    result = lancestat("run")
    kept = "kept: 2 nodes, 120 fragments of orders; lancestat retry goes on"
    assert (result.exit_code, result.stderr) == (code, f"{word}; {kept}\n")
    golden("cli/run_interrupted.txt", result.stdout)
    in_json = lancestat("run", "--output", "json")
    assert in_json.exit_code == code
    document = json.loads(in_json.stdout)
    assert (document["status"], document["nodes"][0]["status"]) == ("interrupted", "interrupted")
    assert document["nodes"][0]["fragments_scanned"] == 120


def test_run_folds_many_unchanged_tables(lancestat: Lancestat, project: FakeProject) -> None:
    nodes = result_of(Status.ERROR).nodes
    idle = tuple(replace(nodes[3], name=f"idle{i}") for i in range(20))
    project.result = RunResult("shop", "dev", (nodes[0], *idle))
    assert "idle7" not in lancestat("run").stdout
    assert "20 unchanged (--verbose lists them)" in lancestat("run").stdout
    assert "idle7" in lancestat("run", "--verbose").stdout


SHOWN = TableStatus(
    table="orders",
    uri="s3://key:secret@bucket/orders.lance",
    version=20,
    use=True,
    reason="stale_accepted",
    detail="the statistics describe version 18, the table is at version 20; the policy accepts it",
    policy="tolerant",
    rows=4_250_000,
    fragments=17,
    size_bytes=1_234_567_890,
    disk_bytes=310_000_000,
    computed_at=datetime(2026, 3, 1, 6, 30, 15, 250_000, tzinfo=timezone.utc),
    columns={
        "o_id": PublishedColumn(0, 4_100_000, "1", "4250000", 8, 8),
        "o_comment": PublishedColumn(1_200, 3_900_000, None, None, 49, 79),
        "o_total": PublishedColumn(4_250_000, 1, None, None, 8, 8),
        "o_clerk": PublishedColumn(0, 1_000, "x" * 40, "line\nbreak", 15, 15),
    },
    dropped={"o_old": "its version is 3"},
    analyzable=6,
    missing=("o_new",),
    skipped=("column 'geo' is a struct, which has no statistics",),
    versions_behind=2,
    age=timedelta(hours=3, minutes=4),
    changed_rows=0.0123,
)


@pytest.mark.parametrize(
    ("report", "args", "text"),
    [
        (GarbageReport(0, 0, 0, 0), (), "Nothing to remove.\n"),
        (GarbageReport(2, 1, 0, 5_000), (), "removed 2 sets of partials, 1 run entry: 5.0 kB\n"),
        (GarbageReport(0, 0, 1, 0), ("--dry-run",), "would remove 1 superseded dataset: 0 B\n"),
        (GarbageReport(0, 0, 0, 70, scratch_dropped=2), (), "removed 2 scratch folders: 70 B\n"),
        (GarbageReport(0, 0, 0, 9_000, indexes_dropped=1), (), "removed 1 kept index: 9.0 kB\n"),
        (
            GarbageReport(0, 0, 0, 0, scratch_left=1),
            (),
            "Nothing to remove.\nleft 1 scratch folder that cannot be removed, see above\n",
        ),
    ],
)
def test_gc_prints_the_number_of_removed_items(
    report: GarbageReport,
    args: tuple[str, ...],
    text: str,
    lancestat: Lancestat,
    project: FakeProject,
) -> None:
    project.report = report
    assert lancestat("gc", *args).stdout == text
    assert project.asked["dry_run"] is bool(args)


ABSENT = replace(
    SHOWN,
    use=False,
    reason="absent",
    detail="nothing is published",
    policy=None,
    computed_at=None,
    columns={},
    dropped={},
    missing=("o_id", "o_total"),
    versions_behind=None,
    age=None,
    changed_rows=None,
)
GARBAGE = GarbageReport(2, 1, 1, 5_000, scratch_dropped=3, scratch_left=1, indexes_dropped=4)
# Golden files: the command, the exit code, and what the project answers.
PRINTED: dict[str, tuple[str, int, dict[str, object]]] = {
    "list.txt": ("list", 0, {}),
    "list_verbose.txt": ("list --verbose", 0, {}),
    "list.json": ("list --output json", 0, {}),
    "run.txt": ("run", 1, {"result": result_of(Status.ERROR)}),
    "run.json": ("run --output json", 1, {"result": result_of(Status.ERROR)}),
    "run_joins.txt": ("run", 0, {"result": result_of_joins()}),
    "run_joins.json": ("run --output json", 0, {"result": result_of_joins()}),
    "show.txt": ("show orders", 0, {"table_status": SHOWN}),
    "show.json": ("show orders --output json", 0, {"table_status": SHOWN}),
    "show_absent.txt": ("show orders", 0, {"table_status": ABSENT}),
    "gc.json": ("gc --dry-run --output json", 0, {"report": GARBAGE}),
}


@pytest.mark.parametrize("name", PRINTED)
def test_commands_print_what_the_golden_files_hold(
    name: str, lancestat: Lancestat, project: FakeProject, golden: Golden
) -> None:
    command, code, answers = PRINTED[name]
    for attribute, answer in answers.items():
        setattr(project, attribute, answer)
    result = lancestat(*command.split())
    assert result.exit_code == code
    assert "verbose" in command or result.stderr == ""
    assert "secret" not in result.stdout
    golden(f"cli/{name}", result.stdout.replace(f'"{__version__}"', '"VERSION"'))
