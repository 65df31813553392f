"""Reports of tables: each rule of their health under exactly its own condition; rows of reports."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancestat.errors import DatasetMissing
from lancestat.lake.history import pinned_rows_changed_at
from lancestat.lake.snapshot import Pin
from lancestat.report import tables
from lancestat.report.gather import (
    FRAGMENTS,
    HISTORY,
    RUNS,
    STATISTICS,
    CellType,
    ReportTable,
    Row,
    RowShape,
    fragment_rows,
    gather,
    report_tables,
    run_rows,
    statistics_rows,
)
from lancestat.report.tables import FragmentReport, TableReport
from lancestat.report.values import Health, ProjectReport
from lancestat.runs.result import Status
from lancestat.spec.load import load_project
from lancestat.spec.model import (
    ColumnPattern,
    ColumnRule,
    ColumnSelection,
    Freshness,
    Policy,
    Publish,
    Refresh,
    StaleBounds,
    Table,
)
from lancestat.state.history import HistoryPoint
from lancestat.state.values import NodeRun, RunRecord
from tests.cli.statuses import NOW, SHOWN, join, ran, table
from tests.examples import each
from tests.report.gathering import Gathering
from tests.runs.world import World, orders
from tests.spec.conftest import PROJECT

HOUR = timedelta(hours=1)


def append(world: World, rows: int = 25) -> None:
    lance.write_dataset(orders(100, rows), str(world.path), mode="append")


def only(*names: str) -> ColumnSelection:
    return ColumnSelection(all=False, rules=(ColumnRule(tuple(map(ColumnPattern, names))),))


def test_a_table_without_statistics_is_an_error(gathering: Gathering) -> None:
    report = gathering.report()
    assert (report.health, report.verdict, report.reason) == (Health.ERROR, "refuse", "absent")
    assert report.problems == ("It has no statistics yet.",)
    assert (report.runs, report.error, report.freshness) == ((), None, None)


@pytest.mark.parametrize("publish", Publish)
def test_a_table_whose_statistics_are_gone_is_not_called_new(
    gathering: Gathering, publish: Publish
) -> None:
    world = gathering.world
    world.publish = publish
    world.run()
    if publish is Publish.MANIFEST:
        world.dataset.checkout_version(1).restore()
    else:
        lance.write_dataset(orders(0, 7), str(world.path), mode="overwrite")
        lance.LanceDataset.drop(str(world.path), {})
        lance.write_dataset(orders(0, 7), str(world.path))
    assert gathering.report().problems == (
        "It no longer has the statistics of its last run: the table was restored or replaced, or "
        "they were removed.",
    )


def test_a_table_after_a_run_is_healthy(gathering: Gathering) -> None:
    gathering.world.run()
    report = gathering.report(with_fragments=True)
    assert (report.health, report.verdict, report.reason) == (Health.OK, "use", "current")
    assert report.problems == ()
    assert report.status is not None
    assert (report.status.versions_behind, report.status.changed_rows) == (0, 0.0)
    assert report.status.covered == {"o_id": 4, "o_status": 4, "o_total": 4}
    assert report.status.types == {"o_id": "bigint", "o_status": "string", "o_total": "double"}
    assert [(fragment.id, fragment.rows, fragment.covered) for fragment in report.fragments] == [
        (number, 25, 3) for number in range(4)
    ]
    [run] = report.runs
    assert (run.command, run.target, run.run_id) == ("run", "dev", "7e57")
    assert (run.result.status, run.result.rows_scanned) == (Status.SUCCESS, 100)


def test_statistics_that_the_policy_refuses_are_an_error(gathering: Gathering) -> None:
    gathering.world.run()
    append(gathering.world)
    report = gathering.report(with_fragments=True)
    assert (report.health, report.verdict, report.reason) == (Health.ERROR, "refuse", "stale")
    assert report.problems == (
        "Readers refuse its statistics: the statistics describe version 2, the table is at "
        "version 3; the policy accepts no distance.",
    )
    assert report.status is not None
    assert (report.status.versions_behind, report.status.changed_rows) == (1, 0.2)
    assert report.status.covered == {"o_id": 4, "o_status": 4, "o_total": 4}
    assert [fragment.covered for fragment in report.fragments] == [3, 3, 3, 3, 0]


def test_the_number_of_changed_rows_is_unknown_after_a_cleanup(
    gathering: Gathering,
) -> None:
    gathering.world.run()
    append(gathering.world)
    gathering.world.dataset.cleanup_old_versions(older_than=timedelta(0))
    report = gathering.report(policy=Policy(allow_stale=StaleBounds(max_changed_rows=1.0)))
    assert report.status is not None
    assert (report.status.versions_behind, report.status.changed_rows) == (1, None)
    assert (report.health, report.reason) == (Health.ERROR, "stale")
    assert report.problems[0].endswith("the share of changed rows is not known.")
    assert gathering.report(policy=Policy(allow_stale=True)).health is Health.OK


HEALTH_BY_POLICY = [
    (False, Health.ERROR),
    (True, Health.WARN),
    (StaleBounds(max_versions=5), Health.WARN),
    (StaleBounds(max_changed_rows=0.1), Health.WARN),
    (StaleBounds(max_versions=0), Health.ERROR),
]


@pytest.mark.parametrize(("judged", "publish"), each(HEALTH_BY_POLICY, Publish))
def test_an_added_column_is_named_and_as_severe_as_the_policy_says(
    gathering: Gathering, judged: tuple[bool | StaleBounds, Health], publish: Publish
) -> None:
    policy, health = judged
    gathering.world.publish = publish
    gathering.world.run()
    gathering.world.dataset.add_columns({"price2": "o_total * 2"})
    report = gathering.report(policy=Policy(allow_stale=policy), publish=publish)
    assert (report.verdict, report.reason) == ("refuse", "schema_changed")
    assert report.problems == (
        "Column price2 was added; readers refuse its statistics, the next run refreshes.",
    )
    assert report.health is health
    gathering.world.run()
    assert gathering.report(publish=publish).problems == ()


def test_each_change_of_columns_has_its_words(gathering: Gathering) -> None:
    gathering.world.run()
    dataset = gathering.world.dataset
    dataset.add_columns({f"c{number}": "o_id" for number in range(7)})
    dataset.drop_columns(["o_status"])
    dataset.alter_columns({"path": "o_total", "name": "o_sum"}, {"path": "o_id", "nullable": True})
    assert gathering.report().problems == (
        "Columns c0, c1, c2, c3, c4 and 2 more were added and column o_status was removed and "
        "column o_total (now o_sum) was renamed; readers refuse its statistics, the next run "
        "refreshes.",
    )


def test_a_change_of_columns_that_cannot_be_looked_up_is_said_in_general(
    gathering: Gathering,
) -> None:
    gathering.world.run()
    gathering.world.dataset.add_columns({"price2": "o_total * 2"})
    gathering.world.dataset.cleanup_old_versions(older_than=timedelta(0))
    assert gathering.report().problems == (
        "Their lance.stats.schemaHash is not that of the table's columns; readers refuse its "
        "statistics, the next run refreshes.",
    )


def test_selected_columns_without_statistics_are_a_warning(gathering: Gathering) -> None:
    gathering.world.columns = only("o_id")
    gathering.world.run()
    gathering.world.columns = ColumnSelection()
    report = gathering.report(with_fragments=True)
    assert (report.health, report.reason) == (Health.WARN, "current")
    assert report.problems == ("2 wanted columns have no statistics: o_status, o_total.",)
    assert report.status is not None
    assert report.status.covered == {"o_id": 4, "o_status": 0, "o_total": 0}
    one = gathering.report(columns=only("o_id", "o_total"))
    assert one.problems == ("1 wanted column has no statistics: o_total.",)


def test_a_warning_names_all_selected_columns_where_none_has_statistics(
    gathering: Gathering,
) -> None:
    gathering.world.columns = only("o_id")
    gathering.world.run()
    report = gathering.report(columns=only("o_status", "o_total"))
    assert (report.health, report.reason) == (Health.WARN, "current")
    assert report.problems == ("2 wanted columns have no statistics: o_status, o_total.",)


@pytest.mark.parametrize("publish", Publish)
def test_patterns_that_match_no_column_are_warnings(gathering: Gathering, publish: Publish) -> None:
    world = gathering.world
    world.publish = publish
    world.run()
    world.columns = only("o_stat*", "prise*")
    unmatched = "pattern 'prise*' matches no column"
    assert world.action().notes == (unmatched,)
    [result] = world.run().nodes
    assert result.notes == (unmatched,)
    assert result.to_json()["notes"] == [unmatched]
    report = gathering.report()
    assert (report.health, report.reason) == (Health.WARN, "current")
    assert report.problems == (f"P{unmatched[1:]}.",)
    [run, *_] = report.runs
    assert run.result.notes == (unmatched,)
    # The defaults of a source are for all of its tables.
    assert gathering.report(source="lake").problems == ()
    world.columns = only("prise*")
    world.run()
    assert gathering.report().problems == (
        f"P{unmatched[1:]}.",
        "No column is left to analyze.",
    )


@pytest.mark.parametrize(
    ("bounds", "health", "sentence"),
    [
        (Freshness(2 * HOUR, 3 * HOUR), Health.OK, None),
        (Freshness(HOUR / 2, 2 * HOUR), Health.WARN, "warn_after is 30 min."),
        (Freshness(HOUR / 3, HOUR / 2), Health.ERROR, "error_after is 30 min."),
        (Freshness(warn_after=HOUR / 2), Health.WARN, "warn_after is 30 min."),
        (Freshness(error_after=HOUR / 2), Health.ERROR, "error_after is 30 min."),
        (Freshness(error_after=2 * HOUR), Health.OK, None),
    ],
)
def test_rows_may_be_too_old(
    gathering: Gathering, bounds: Freshness, health: Health, sentence: str | None
) -> None:
    gathering.world.run()
    gathering.world.clock.now = gathering.committed_at(1) + HOUR
    report = gathering.report(freshness=bounds)
    assert (report.health, report.freshness) == (health, health)
    if sentence is None:
        assert report.problems == ()
    else:
        assert report.problems == (f"Its rows last changed 1 h ago, {sentence}",)


def test_the_age_of_rows_is_that_of_their_last_change(gathering: Gathering) -> None:
    world = gathering.world
    world.run()
    assert gathering.report().changed_at == gathering.committed_at(1)
    append(world)
    assert gathering.report().changed_at == gathering.committed_at(3)
    world.dataset.optimize.compact_files()
    world.run()
    assert world.dataset.version > 4
    assert gathering.report().changed_at == gathering.committed_at(3)


@pytest.mark.parametrize("publish", Publish)
def test_when_rows_changed_is_not_looked_up_again_after_a_run(
    gathering: Gathering, monkeypatch: pytest.MonkeyPatch, publish: Publish
) -> None:
    world = gathering.world
    world.publish = publish
    world.dataset.update_config({"owner": "sales"})
    world.run()
    looked_up: list[Pin] = []

    def look_up(pin: Pin, options: Mapping[str, str]) -> datetime:
        looked_up.append(pin)
        return pinned_rows_changed_at(pin, options)

    monkeypatch.setattr(tables, "pinned_rows_changed_at", look_up)
    assert gathering.report().changed_at == gathering.committed_at(1)
    assert looked_up == []
    lance.write_dataset(orders(100, 103), str(world.path), mode="append")
    version = world.dataset.version
    assert gathering.report().changed_at == gathering.committed_at(version)
    assert [pin.version for pin in looked_up] == [version]


def test_when_rows_changed_is_not_that_of_a_table_before(gathering: Gathering) -> None:
    world = gathering.world
    world.publish = Publish.NONE
    world.run()
    before = gathering.report().changed_at
    lance.LanceDataset.drop(str(world.path), {})
    lance.write_dataset(orders(0, 7), str(world.path))
    report = gathering.report()
    assert report.changed_at == gathering.committed_at(1) != before


def test_a_missing_dataset_is_an_error_and_does_not_stop_others(
    gathering: Gathering, tmp_path: Path
) -> None:
    gathering.world.run()
    there = gathering.table()
    gone = replace(there, name="gone", uri=str(tmp_path / "gone.lance"))
    spec = gathering.spec(gone, there)
    report = gather(spec, gathering.world.state, gathering.world.clock, spec.nodes)
    assert report.health is Health.ERROR
    lost, well = report.nodes
    assert isinstance(lost, TableReport)
    assert (lost.health, lost.verdict, lost.reason) == (Health.ERROR, "refuse", "unreadable")
    assert (lost.status, lost.changed_at) == (None, None)
    assert lost.error is not None
    assert lost.problems[0].startswith("LS201: there is no Lance dataset at ")
    assert well.health is Health.OK


def test_a_missing_declared_column_is_an_error(gathering: Gathering) -> None:
    gathering.world.run()
    report = gathering.report(columns=only("o_ids"))
    assert (report.health, report.reason) == (Health.ERROR, "blocked")
    assert report.problems[0].startswith("LS114: table 'orders' has no column 'o_ids'")
    assert "did you mean 'o_id'?" in report.problems[0]


def test_a_failed_last_run_is_an_error_until_another_succeeds(
    gathering: Gathering, tmp_path: Path
) -> None:
    world = gathering.world
    world.run()
    away = tmp_path / "away.lance"
    shutil.move(world.path, away)
    world.run()
    [lost] = gathering.report().problems
    assert lost.startswith("LS201: ")
    assert "it was there when its statistics were computed, 20" in lost
    with pytest.raises(DatasetMissing) as missing:
        world.assess()
    assert missing.value.hint is not None and missing.value.hint.startswith("it was there when")
    shutil.move(away, world.path)
    world.clock.advance(hours=2)
    report = gathering.report()
    assert (report.health, report.reason) == (Health.ERROR, "current")
    [problem] = report.problems
    assert problem.startswith("Its last run failed 2 h ago: LS201 ")
    assert [run.result.status for run in report.runs] == [Status.ERROR, Status.SUCCESS]
    world.run()
    assert gathering.report().health is Health.OK
    # Once a run has found it healthy, idle runs are not recorded again.
    world.run()
    assert len(gathering.report().runs) == 3


def test_a_policy_that_refreshes_when_stale_is_judged_by_its_bounds(
    gathering: Gathering,
) -> None:
    gathering.world.policy = Policy(
        None, None, StaleBounds(max_versions=1), refresh=Refresh.WHEN_STALE
    )
    gathering.world.run()
    append(gathering.world)
    gathering.world.run()
    report = gathering.report()
    assert (report.health, report.reason) == (Health.OK, "stale_accepted")
    append(gathering.world)
    assert gathering.report().health is Health.ERROR


def test_histograms_are_those_of_the_rows(gathering: Gathering) -> None:
    gathering.world.histogram = True
    gathering.world.run()
    assert gathering.report().histograms == {}
    histograms = gathering.report(with_histograms=True).histograms
    assert set(histograms) == {"o_id", "o_total"}
    bins = histograms["o_total"].bins
    assert (bins[0].low, bins[-1].high) == (0, 99 / 4)
    assert histograms["o_total"].height * len(bins) == pytest.approx(100)
    append(gathering.world)
    assert gathering.report(with_histograms=True).histograms == {}


def test_nan_is_in_no_histogram_for_people(gathering: Gathering) -> None:
    world = gathering.world
    values = [float("nan")] * 60 + [float(number) for number in range(40)]
    lance.write_dataset(pa.table({"x": values}), str(world.path), mode="overwrite")
    world.histogram = True
    world.run()
    histogram = gathering.report(with_histograms=True).histograms["x"]
    assert histogram.height * len(histogram.bins) == pytest.approx(40)
    assert sum(bin_.low == 39 for bin_ in histogram.bins) < len(histogram.bins) / 20


def remember(world: World, run_id: str, target: str = "dev", **changes: object) -> None:
    [result] = world.run(full_refresh=True).nodes
    world.clock.advance(minutes=1)
    stored = {**result.to_json(), **changes}
    node = NodeRun("orders", "table", "d", stored, None)
    now = world.clock.now
    world.state.add_run(RunRecord(run_id, "run", target, now, now, "success", (node,)))
    world.clock.advance(minutes=1)


def test_runs_are_the_newest_of_this_target_that_can_be_read(gathering: Gathering) -> None:
    world = gathering.world
    remember(world, "later", novelty=[1, 2], elapsed_seconds=7)
    remember(world, "broken", elapsed_seconds="soon")
    remember(world, "worse", reasons=5)
    remember(world, "other", target="prod", status="error")
    runs = gathering.report().runs
    assert [run.run_id for run in runs] == ["7e57", "7e57", "7e57", "later", "7e57"]
    assert runs[3].result.elapsed_seconds == 7
    [newest] = gathering.report(runs=1).runs
    assert (newest.run_id, newest.target) == ("7e57", "dev")


def test_the_state_is_read_once_for_all_tables(
    gathering: Gathering, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathering.world.run()
    asked: Counter[str] = Counter()

    def counting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            asked[name] += 1
            return method(*args)

        return call

    state = gathering.world.state
    for name in ("records", "outcomes", "recorded", "runs", "partial_index", "partial_indexes"):
        monkeypatch.setattr(state, name, counting(name, getattr(state, name)))
    tables = [replace(gathering.table(), name=f"orders_{number}") for number in range(9)]
    spec = gathering.spec(*tables)
    report = gather(spec, state, gathering.world.clock, tables, with_fragments=True)
    assert [node.spec.name for node in report.nodes] == [table.name for table in tables]
    assert asked["records"] == asked["outcomes"] == 1
    assert asked["partial_indexes"] == 1
    assert asked["recorded"] == asked["runs"] == 0


def test_a_report_may_have_no_nodes(gathering: Gathering) -> None:
    report = gather(gathering.spec(), gathering.world.state, gathering.world.clock, [])
    assert (report.nodes, report.health, dict(report.reads)) == ((), Health.OK, {})


ENVIRONMENT = {
    "B_VERSIONS": "0",
    "B_AGE": "37m",
    "B_ROWS": "0.0123",
    "B_WARN": "41m",
    "B_ERR": "43m",
}


def declared(folder: Path, policy: str) -> Table:
    (folder / "lancestat_project.yml").write_text(PROJECT)
    (folder / "specs").mkdir()
    (folder / "specs" / "shop.yml").write_text(f"""\
policies: [{{name: lazy, allow.stale: {policy}}}]
tables:
  - name: orders
    uri: orders.lance
    policy: lazy
    freshness:
      warn_after: "{{{{ env_var('B_WARN') }}}}"
      error_after: "{{{{ env_var('B_ERR') }}}}"
""")
    spec = load_project(folder, environment=ENVIRONMENT)
    [table] = spec.nodes
    assert isinstance(table, Table)
    return table


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (
            "max_versions: \"{{ env_var('B_VERSIONS') | int }}\"",
            "{{ env_var('B_VERSIONS') | int }}",
        ),
        ("max_age: \"{{ env_var('B_AGE') }}\"", "{{ env_var('B_AGE') }}"),
        (
            "max_changed_rows: \"{{ env_var('B_ROWS') | float }}\"",
            "{{ env_var('B_ROWS') | float }}",
        ),
    ],
)
def test_problems_name_the_variables_of_bounds(
    gathering: Gathering, tmp_path: Path, bound: str, words: str
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    table = declared(folder, f"{{{bound}}}")
    gathering.world.run()
    lance.write_dataset(orders(100, 125), str(gathering.world.path), mode="append")
    gathering.world.clock.now = gathering.committed_at(2) + timedelta(hours=1)
    report = gathering.report(policy=table.policy, freshness=table.freshness)
    refused, outdated = report.problems
    assert refused.endswith(f"the policy accepts {words}.")
    assert outdated.endswith("error_after is {{ env_var('B_ERR') }}.")
    gathering.world.clock.now = gathering.committed_at(2) + timedelta(minutes=42)
    warned = gathering.report(freshness=table.freshness, policy=table.policy).problems[-1]
    assert warned.endswith("warn_after is {{ env_var('B_WARN') }}.")


TABLE = replace(
    table("orders"),
    fragments=(FragmentReport(7, 90, 10, 2, None, 1), FragmentReport(8, 1, 0, 1, 5, 3)),
)


def names(rows: Iterable[Row]) -> set[str]:
    return {name for row in rows for name in row}


def test_every_column_is_filled_somewhere_and_typed() -> None:
    rows = [*statistics_rows(SHOWN)]
    assert names(rows) == set(STATISTICS.columns)
    shape = STATISTICS.table(rows)
    assert shape.schema.field("computed_at").type == pa.timestamp("us", "UTC")
    assert shape.schema.field("changed_rows").type == pa.float64()
    assert shape.column("computed_at").to_pylist()[0] == SHOWN.computed_at
    assert names(fragment_rows(TABLE)) == set(FRAGMENTS.columns)
    ended = [*run_rows([*TABLE.runs, *join("near").runs])]
    assert names(ended) >= set(RUNS.columns)
    assert RUNS.table(ended).column("pairs").to_pylist() == [None, 4_000_000]


def test_the_columns_of_runs_are_those_of_their_json() -> None:
    assert RUNS.columns["reasons"] is CellType.TEXTS
    assert RUNS.columns["status"] is RUNS.columns["strategy"] is CellType.TEXT
    assert RUNS.columns["elapsed_seconds"] is RUNS.columns["recall"] is CellType.NUMBER
    assert RUNS.columns["rows_scanned"] is RUNS.columns["pairs"] is CellType.COUNT
    [row] = RUNS.table(run_rows([ran("orders")])).to_pylist()
    assert (row["node"], row["kind"], row["reasons"]) == ("orders", "table", ["rows_appended"])
    assert (row["run_id"], row["finished_at"]) == ("4f1c", ran("orders").finished_at)


def test_columns_without_statistics_have_rows_without_figures() -> None:
    *_, missing = statistics_rows(replace(SHOWN, missing=("o_new",), use=False, reason="stale"))
    assert (missing["column"], missing["type"], missing["verdict"]) == ("o_new", "double", "refuse")
    assert missing["fragments_covered"] == 0
    assert missing["min"] is missing["null_count"] is missing["distinct_count"] is None


@pytest.mark.parametrize("shape", [STATISTICS, RUNS, FRAGMENTS, HISTORY])
def test_a_table_may_have_no_rows(shape: RowShape) -> None:
    empty = shape.table([])
    assert (empty.num_rows, empty.column_names) == (0, list(shape.columns))


def test_only_requested_views_are_computed() -> None:
    lost = replace(TABLE, status=None, fragments=())
    asked: list[str] = []

    def report() -> ProjectReport:
        asked.append("report")
        return ProjectReport("shop", "dev", NOW, (TABLE, lost), {})

    def runs() -> dict[str, tuple[object, ...]]:
        asked.append("runs")
        old, new = (replace(ran("a"), finished_at=NOW.replace(year=y)) for y in (2020, 2025))
        return {"a": (old,), "b": (new,)}

    def history() -> list[HistoryPoint]:
        asked.append("history")
        return [
            HistoryPoint.of("key", "a", "run", NOW, {"rows": 3, "columns": {"id": {"min": "0"}}})
        ]

    every = report_tables(frozenset(ReportTable), report, runs, history)  # type: ignore[arg-type]
    assert {name: rows.num_rows for name, rows in every.items()} == {
        "statistics": 2,
        "runs": 2,
        "fragments": 2,
        "history": 2,
    }
    assert [at.year for at in every["runs"].column("finished_at").to_pylist()] == [2025, 2020]
    assert every["fragments"].column("columns").to_pylist() == [3, 3]
    assert asked == ["runs", "history", "report"]
    sources = {"runs": "runs", "statistics": "report", "fragments": "report", "history": "history"}
    for name, needs in sources.items():
        asked.clear()
        made = report_tables([ReportTable(name)], report, runs, history)  # type: ignore[arg-type]
        assert list(made) == [name]
        assert asked == [needs]
    assert report_tables([], report, runs, history) == {}  # type: ignore[arg-type]
    assert isinstance(TABLE, TableReport)
