"""Projects and targets with one state, whose nodes have the same names and tables of their own."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest
import yaml

from lancestat import Project
from lancestat.runs.actions import Skip
from lancestat.tables.action import TableAction
from tests.runs.world import orders

pytestmark = pytest.mark.whole

TARGETS = {"dev": {"state": "../state"}, "prod": {"state": "../state"}}
SPEC = {"tables": [{"name": "orders", "uri": "{{ target.name }}/orders.lance"}]}


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder with the projects shop and bank, each with a table for each of its targets."""
    for project in ("shop", "bank"):
        folder = tmp_path / project
        (folder / "specs").mkdir(parents=True)
        settings = {"name": project, "targets": TARGETS}
        (folder / "lancestat_project.yml").write_text(yaml.safe_dump(settings))
        (folder / "specs" / "orders.yml").write_text(yaml.safe_dump(SPEC))
        for target in TARGETS:
            path = folder / target / "orders.lance"
            lance.write_dataset(orders(0, 30), str(path), max_rows_per_file=10)
    return tmp_path


def load(shared: Path, project: str, target: str = "dev") -> Project:
    return Project.load(shared / project, target=target)


def test_projects_know_their_own_runs(shared: Path) -> None:
    table, away = shared / "shop" / "dev" / "orders.lance", shared / "away"
    assert load(shared, "shop").run().status == "success"
    lance.write_dataset(orders(30, 10), str(table), mode="append")
    table.rename(away)
    assert load(shared, "shop").run().status == "error"
    away.rename(table)
    assert load(shared, "bank").run().status == "success"
    assert load(shared, "shop").unfinished().nodes == ("orders",)
    assert load(shared, "bank").unfinished().nodes == ()
    assert [run.status for run in load(shared, "shop").runs()] == ["error", "success"]
    assert [run.status for run in load(shared, "bank").runs()] == ["success"]
    [report] = load(shared, "shop").report().nodes
    assert [run.status for run in report.runs] == ["error", "success"]


def test_gc_leaves_what_other_targets_and_projects_have_recorded(shared: Path) -> None:
    every = [(project, target) for project in ("shop", "bank") for target in TARGETS]
    for project, target in every:
        assert load(shared, project, target).run().status == "success"
    for project, target in every:
        report = load(shared, project, target).collect_garbage()
        assert not report.removed
    for project, target in every:
        path = shared / project / target / "orders.lance"
        assert isinstance(load(shared, project, target).plan().actions[0], Skip)
        lance.write_dataset(orders(30, 10), str(path), mode="append")
        [action] = load(shared, project, target).plan().actions
        assert isinstance(action, TableAction)
        assert len(action.scans) == 1, "of the others the partials are there"
    (shared / "shop" / "specs" / "orders.yml").write_text("tables: []\n")
    for target in TARGETS:
        report = load(shared, "shop", target).collect_garbage()
        assert report.partials_dropped > 0
        assert report.runs_dropped > 0
    [action] = load(shared, "bank").plan().actions
    assert isinstance(action, TableAction)
    assert len(action.scans) == 1


def test_gc_of_every_target_removes_what_none_declares(shared: Path) -> None:
    spec = shared / "shop" / "specs" / "orders.yml"
    spec.write_text("tables: [{name: orders, uri: dev/orders.lance}]\n")
    for target in TARGETS:
        assert load(shared, "shop", target).run(full_refresh=True).status == "success"
    spec.write_text("tables: []\n")
    assert load(shared, "shop", "dev").collect_garbage().partials_dropped == 0
    assert load(shared, "shop", "prod").collect_garbage().partials_dropped > 0
    assert load(shared, "shop").state.past_records("table", str) == {}
