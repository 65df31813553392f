"""Commands over sources, from end to end. Nothing here is large enough for Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import lance
import lance_namespace
import pytest

from lancestat.lake.catalogs import CatalogClient
from tests.discovery.catalogs import ROWS, write_catalog, write_folder
from tests.discovery.conftest import Lancestat, Write

LAKE = "sources:\n  - catalog: lake\n"
BOTH = f"{LAKE}  - catalog: paging\n    name: paged_{{{{ table }}}}\n"


@pytest.fixture(autouse=True)
def lake(tmp_path: Path, write: Write) -> Path:
    write_catalog(tmp_path / "lake", "sales.orders", "crm.customers")
    write(LAKE)
    return tmp_path / "lake"


def payload(lancestat: Lancestat, *args: str) -> Any:
    return json.loads(lancestat("--output", "json", *args).stdout)


def actions(plan: Any) -> dict[str, str]:
    return {node["name"]: node["action"] for node in plan["nodes"]}


def drop(lake: Path, *name: str) -> None:
    client = lance_namespace.connect("dir", {"root": str(lake)})
    client.drop_table(lance_namespace.DropTableRequest(id=list(name)))


def test_validate_and_list_ask_no_catalog(tmp_path: Path, lancestat: Lancestat) -> None:
    shutil.rmtree(tmp_path / "lake")
    (tmp_path / "lake").write_text("no folder")
    valid = lancestat("validate")
    assert valid.exit_code == 0 and "1 source" in valid.stdout
    assert "--discover" in lancestat("list").stdout
    assert lancestat("list", "--select", "source:lake").exit_code == 0
    assert lancestat("list", "--select", "source:laek").exit_code == 2


def test_list_says_where_tables_that_are_not_found_may_be(
    write: Write, lancestat: Lancestat
) -> None:
    write(LAKE + "tables:\n  - {name: other, uri: other.lance}\n")
    unknown = lancestat("list", "--select", "source:lake")
    assert unknown.exit_code == 0
    lines = unknown.stdout.splitlines()
    assert lines[1].split() == ["source:lake", "source", "specs/sources.yml:2"]
    assert lines[-1] == "--discover lists the tables of this source too."
    both = lancestat("list").stdout
    assert "other" in both
    assert "source:lake" in both
    assert "source:lake" not in lancestat("list", "--select", "other").stdout
    assert "source:lake" not in lancestat("list", "--discover").stdout
    refused = lancestat("list", "--select", "crm_customers")
    assert refused.exit_code == 2
    assert "the sources have not been searched, as --discover does" in refused.stderr
    listed = payload(lancestat, "list")
    assert listed["sources"] == [{"name": "lake", "file": "specs/sources.yml", "line": 2}]
    assert payload(lancestat, "list", "--discover")["sources"] == []


def test_a_run_publishes_to_what_is_found_and_the_next_plan_is_idle(
    lake: Path, lancestat: Lancestat
) -> None:
    first = payload(lancestat, "plan")
    assert actions(first) == {"crm_customers": "analyze", "sales_orders": "analyze"}
    assert first["sources"] == {
        "found": 2,
        "new": ["crm_customers", "sales_orders"],
        "gone": [],
        "notes": [],
    }
    assert lancestat("run").exit_code == 0
    [place] = [path for path in lake.iterdir() if path.name.endswith("orders")]
    assert any("lance.stats" in key for key in lance.dataset(str(place)).config())
    second = payload(lancestat, "plan")
    assert set(actions(second).values()) == {"skip"}
    assert second["sources"]["new"] == second["sources"]["gone"] == []
    assert "Nothing to do" in lancestat("plan").stdout


def test_a_plan_tells_what_is_new_and_what_is_gone_and_gc_drops_that(
    lake: Path, lancestat: Lancestat
) -> None:
    lancestat("run")
    drop(lake, "crm", "customers")
    write_catalog(lake, "sales.parts")
    plan = payload(lancestat, "plan")
    assert plan["sources"]["new"] == ["sales_parts"]
    assert plan["sources"]["gone"] == ["crm_customers"]
    for output in ("text", "markdown"):
        text = lancestat("--output", output, "plan").stdout.replace("\\_", "_")
        assert "New since the last run: sales_parts." in text
        assert "Gone since the last run: crm_customers" in text
    assert payload(lancestat, "gc")["partials_dropped"] > 0
    assert payload(lancestat, "plan")["sources"]["gone"] == []


@pytest.mark.parametrize("command", ["run", "retry", "status"])
def test_commands_that_succeed_tell_of_tables_that_are_gone(
    command: str, lake: Path, tmp_path: Path, lancestat: Lancestat
) -> None:
    assert lancestat("run").exit_code == 0
    assert payload(lancestat, command)["sources"]["gone"] == []
    assert "Gone" not in lancestat(command).stdout
    drop(lake, "sales", "orders")
    said = "Gone since the last run: sales_orders; 'lancestat gc' drops their state."
    told = lancestat(command)
    assert told.exit_code == 0 and said in told.stdout
    assert payload(lancestat, command)["sources"]["gone"] == ["sales_orders"]
    assert lancestat("docs").exit_code == 0
    pages = tmp_path / ".lancestat" / "docs"
    assert "Gone since the last run: sales_orders" in (pages / "index.html").read_text("utf-8")
    assert "<bdi>sales_orders</bdi>" in (pages / "runs.html").read_text("utf-8")


def test_after_the_state_was_lost_nothing_is_new_and_gc_drops_what_is_gone(
    lake: Path, tmp_path: Path, lancestat: Lancestat
) -> None:
    assert lancestat("run").exit_code == 0
    shutil.rmtree(tmp_path / ".lancestat" / "state")
    assert payload(lancestat, "plan")["sources"]["new"] == ["crm_customers", "sales_orders"]
    assert set(actions(payload(lancestat, "run")).values()) == {"skip"}
    assert payload(lancestat, "plan")["sources"]["new"] == []
    drop(lake, "sales", "orders")
    assert payload(lancestat, "plan")["sources"]["gone"] == ["sales_orders"]
    assert payload(lancestat, "gc", "--dry-run")["runs_dropped"] == 1
    assert payload(lancestat, "gc")["runs_dropped"] == 1
    assert payload(lancestat, "plan")["sources"]["gone"] == []
    assert payload(lancestat, "plan")["sources"]["new"] == []


def test_a_table_that_gets_another_name_is_not_gone(
    write: Write, lake: Path, lancestat: Lancestat
) -> None:
    assert lancestat("run").exit_code == 0
    write("sources:\n  - catalog: lake\n    name: my_{{ table }}\n")
    for command in ("plan", "run", "status"):
        sources = payload(lancestat, command)["sources"]
        assert (sources["gone"], sources["new"]) == ([], []), command


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("source:lake", {"crm_customers", "sales_orders"}),
        ("source:flat", {"parts"}),
        ("source:*", {"crm_customers", "sales_orders", "parts"}),
        ("tag:nightly", {"parts"}),
        ("path:specs/sources.yml", {"crm_customers", "sales_orders", "parts"}),
        ("kind:table,sales*", {"sales_orders"}),
        ("state:new,source:flat", {"parts"}),
    ],
)
def test_selectors_work_on_tables_that_are_found(
    tmp_path: Path, write: Write, lancestat: Lancestat, selector: str, chosen: set[str]
) -> None:
    write_folder(tmp_path / "flat", "parts")
    write(f"{LAKE}  - uri: flat\n    defaults: {{tags: [nightly]}}\n")
    assert set(actions(payload(lancestat, "plan", "--select", selector))) == chosen


def test_a_source_that_fails_is_shown_once_and_the_others_go_on(
    tmp_path: Path, write: Write, lancestat: Lancestat
) -> None:
    write_catalog(tmp_path / "paging", "a.x")
    write(BOTH)
    assert lancestat("run").exit_code == 0
    (tmp_path / "paging" / "denied").touch()
    lance.write_dataset(ROWS, next(map(str, (tmp_path / "lake").glob("*orders"))), mode="append")

    planned = lancestat("plan")
    assert planned.exit_code == 1
    assert planned.stdout.count("no permission") == 1
    assert "specs/sources.yml:3:14" in planned.stdout
    assert "The sources that could be looked up have 2 tables." in planned.stdout
    plan = payload(lancestat, "plan")
    assert plan["sources"]["gone"] is None, "what a silent catalog has is not gone"
    [blocked] = [node for node in plan["nodes"] if node["action"] == "blocked"]
    assert (blocked["name"], blocked["kind"]) == ("source:paging", "source")

    ran = lancestat("--output", "json", "run")
    assert ran.exit_code == 1
    statuses = {node["name"]: node["status"] for node in json.loads(ran.stdout)["nodes"]}
    assert statuses["source:paging"] == "error" and statuses["sales_orders"] == "success"
    assert lancestat("plan", "--select", "source:lake").exit_code == 0
    assert lancestat("list", "--discover").exit_code == 1

    refused = lancestat("gc")
    assert refused.exit_code == 1, "the state of its tables would be taken for what nothing needs"
    (tmp_path / "paging" / "denied").unlink()
    assert payload(lancestat, "gc")["partials_dropped"] == 0


def test_retry_takes_up_the_tables_of_a_source_that_failed(
    tmp_path: Path, write: Write, lancestat: Lancestat
) -> None:
    write_catalog(tmp_path / "paging", "a.x")
    (tmp_path / "paging" / "denied").touch()
    write(BOTH)
    assert lancestat("run").exit_code == 1
    (tmp_path / "paging" / "denied").unlink()
    retried = lancestat("--output", "json", "retry")
    assert retried.exit_code == 0, retried.output
    assert [node["name"] for node in json.loads(retried.stdout)["nodes"]] == ["paged_x"]


def test_a_plan_file_of_tables_that_are_found(tmp_path: Path, lancestat: Lancestat) -> None:
    file = str(tmp_path / "plan.json")
    assert lancestat("plan", "--out", file).exit_code == 0
    write_catalog(tmp_path / "lake", "sales.parts")
    assert "sales_parts" in lancestat("run", "--plan-file", file).output
    assert lancestat("plan", "--out", file).exit_code == 0
    assert lancestat("run", "--plan-file", file).exit_code == 0


def test_sources_are_looked_up_once_per_command(
    lake: Path, lancestat: Lancestat, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    tables = CatalogClient.tables

    def counted(self: Any) -> Any:
        asked.append(self.name)
        return tables(self)

    monkeypatch.setattr(CatalogClient, "tables", counted)
    for command in ("plan", "run", "status", "gc", "retry"):
        asked.clear()
        assert lancestat(command).exit_code == 0
        assert asked == ["lake"], command
    asked.clear()
    lancestat("show", "sales_orders")
    assert asked == ["lake"]
    asked.clear()
    assert lancestat("validate").exit_code == lancestat("list").exit_code == 0
    assert asked == []


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that catalogs are asked for, as they are."""
    asked: list[str] = []
    describe = CatalogClient.describe

    def counted(self: Any, table: Any) -> Any:
        asked.append(str(table))
        return describe(self, table)

    monkeypatch.setattr(CatalogClient, "describe", counted)
    return asked


def test_only_selected_tables_are_asked_for(lancestat: Lancestat, described: list[str]) -> None:
    assert lancestat("plan", "--select", "sales_orders").exit_code == 0
    assert set(described) == {"lake.sales.orders"}
    described.clear()
    assert lancestat("list", "--discover").exit_code == 0
    assert described == []


def test_patterns_that_match_nothing_are_said_with_their_place(
    write: Write, lancestat: Lancestat
) -> None:
    write(f"{LAKE}    include: ['sales.*', 'sale.*', 'crm.customer']\n    exclude: ['sales.*']\n")
    said = "specs/sources.yml:2:14: no table of source:lake matches 'sale.*', 'crm.customer'."
    assert said in lancestat("plan").stdout
    assert payload(lancestat, "plan")["sources"]["notes"] == [said]
    listed = lancestat("list", "--discover")
    assert said in listed.stderr and said not in listed.stdout
    write(LAKE)
    assert payload(lancestat, "plan")["sources"]["notes"] == []


def test_a_flat_folder_is_listed_and_no_table_is_asked_for(
    tmp_path: Path, write: Write, lancestat: Lancestat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where tables are follows from their names, and stays so when they are gone."""
    write_folder(tmp_path / "flat", "orders", "a b")
    write("sources: [{uri: flat, name: \"{{ table | replace(' ', '_') }}\"}]\n")
    asked: list[object] = []
    monkeypatch.setattr(CatalogClient, "describe_table", lambda _, request: asked.append(request))
    assert lancestat("run").exit_code == 0
    assert set(actions(payload(lancestat, "plan")).values()) == {"skip"}
    assert asked == []
    monkeypatch.undo()
    shutil.rmtree(tmp_path / "flat" / "a b.lance")
    plan = payload(lancestat, "plan")
    assert actions(plan) == {"orders": "skip"} and plan["sources"]["gone"] == ["a_b"]
