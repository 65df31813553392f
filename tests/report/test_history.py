"""The history of nodes, as `show --history`, SQL and pages have it."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from click.testing import CliRunner

from lancestat import Project
from lancestat.cli.main import cli
from lancestat.presentation.site.pages import build_site
from tests.runs.world import Clock, write_project

ORDERS = {"name": "orders", "uri": "orders.lance"}


def rows(first: int, last: int) -> pa.Table:
    numbers = list(range(first, last))
    texts = ["secret" if n % 2 else None for n in numbers]
    return pa.table({"id": numbers, "text": texts})


def append(folder: Path, first: int, last: int) -> None:
    lance.write_dataset(rows(first, last), str(folder / "orders.lance"), mode="append")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose table has had two versions before its first run, and three runs."""
    lance.write_dataset(rows(0, 10), str(tmp_path / "orders.lance"))
    append(tmp_path, 10, 15)
    project = write_project(tmp_path, ORDERS)
    project._clock = clock = Clock(datetime.now(timezone.utc))
    for last in (15, 25, 40):
        clock.advance(hours=1)
        if last > 15:
            append(tmp_path, lance.dataset(str(tmp_path / "orders.lance")).count_rows(), last)
        project.run().raise_for_status()
    return project


def figures(project: Project, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(one.figures.get(n) for n in names) for one in project.history("orders")]


def test_runs_and_earlier_versions_tell_of_the_past(project: Project) -> None:
    assert figures(project, "rows", "fragments") == [(10, 1), (15, 2), (15, 2), (25, 3), (40, 4)]
    versions = [version for (version,) in figures(project, "version")]
    assert versions == [1, 2, 3, 5, 7]
    before, _, first, *_, last = project.history("orders")
    assert (before.run_id, before.figures["columns"]) == ("", {})
    columns = {"id": (0, 15, "0", "14"), "text": (8, 1, None, None)}
    names = ("null_count", "distinct_count", "min", "max")
    found = first.figures["columns"]
    assert {name: tuple(of.get(key) for key in names) for name, of in found.items()} == columns
    assert last.figures["columns"]["id"]["max"] == "39"
    assert last.figures["bytes_read"] > 0
    assert last.figures["seconds"] > 0
    assert last.figures["size_bytes"] > first.figures["size_bytes"]
    # Values of strings are in none of it.
    assert "secret" not in str([one.figures for one in project.history("orders")])


def test_a_run_that_changes_nothing_adds_nothing(project: Project) -> None:
    known = project.history("orders")
    project.run().raise_for_status()
    assert project.history("orders") == known


def test_records_of_earlier_releases_count(project: Project) -> None:
    known = figures(project, "version", "rows", "columns", "seconds")
    location = project.state.history_table.location()
    assert location is not None
    project.state.folder.storage.remove(location.path)
    again = Project.load(project.spec.root)
    again._clock = later = Clock(project._clock())
    later.advance(hours=1)
    assert figures(again, "version", "rows", "columns", "seconds") == known
    # What is kept is not told twice.
    append(project.spec.root, 40, 45)
    again.run().raise_for_status()
    assert figures(again, "rows") == [(10,), (15,), (15,), (25,), (40,), (45,)]


def shown(project: Project, *words: str) -> str:
    folder = ["--project-dir", str(project.spec.root)]
    result = CliRunner().invoke(cli, ["show", "orders", "--history", *folder, *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_show_prints_it(project: Project) -> None:
    lines = shown(project).splitlines()
    assert lines[0] == "History of orders"
    newest = next(line for line in lines if " UTC " in line)
    assert newest.split()[3:6] == ["7", "40", "4"]
    assert ["id", "0", "15", "to", "40", "0", "14", "to", "39"] in [line.split() for line in lines]
    document = json.loads(shown(project, "--output", "json"))
    assert [one["rows"] for one in document["history"]] == [10, 15, 15, 25, 40]
    last = document["history"][-1]
    assert last["columns"]["text"]["null_count"] == 20
    assert {"version", "computed_at", "run_id", "bytes_read", "seconds"} <= last.keys()
    cells = list(csv.DictReader(io.StringIO(shown(project, "--output", "csv"))))
    assert [cell["rows"] for cell in cells if not cell["column"]] == ["10", "15", "15", "25", "40"]
    assert [cell["max"] for cell in cells if cell["column"] == "id"] == ["14", "24", "39"]


def test_a_figure_that_the_newest_run_lacks_is_not_that_of_an_earlier_one(project: Project) -> None:
    lance.dataset(str(project.spec.root / "orders.lance")).delete("true")
    project.run().raise_for_status()
    expected = ["id", "0", "15", "to", "0", "0", "to", "none", "14", "to", "none"]
    assert expected in [line.split() for line in shown(project).splitlines()]
    document = json.loads(shown(project, "--output", "json"))
    assert document["history"][-1]["size_bytes"] == 0


def test_sql_has_it(project: Project) -> None:
    table = project.report_tables({"history"})["history"]
    of_table = table.filter(pa.compute.is_null(table["column"]))
    assert of_table["rows"].to_pylist() == [15, 25, 40]
    assert of_table["node"].unique().to_pylist() == ["orders"]
    of_id = table.filter(pa.compute.equal(table["column"], "id"))
    assert of_id["distinct_count"].to_pylist() == [15, 25, 40]


def test_pages_draw_it(project: Project, tmp_path: Path) -> None:
    build_site(project.report(with_history=True), project.spec, tmp_path / "pages")
    page = (tmp_path / "pages" / "tables" / "orders.html").read_text("utf-8")
    assert "<h2>Trends</h2>" in page
    assert "40 in the last run; 15 to 40 in 3 runs" in page
    assert "<bdi>id</bdi></summary>" in page
    assert 'class="spark"' in (tmp_path / "pages" / "index.html").read_text("utf-8")
    build_site(project.report(), project.spec, tmp_path / "pages")
    assert "Trends" not in (tmp_path / "pages" / "tables" / "orders.html").read_text("utf-8")


def test_a_table_without_a_past_says_so(tmp_path: Path) -> None:
    lance.write_dataset(rows(0, 10), str(tmp_path / "orders.lance"))
    project = write_project(tmp_path, ORDERS)
    assert figures(project, "rows") == [(10,)]
    lance.dataset(str(tmp_path / "orders.lance")).delete("id < 5")
    lance.dataset(str(tmp_path / "orders.lance")).cleanup_old_versions(older_than=timedelta(0))
    assert figures(project, "rows") == [(5,)]
