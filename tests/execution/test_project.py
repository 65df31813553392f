"""The front door, over real tables and a real state; nothing here needs Spark."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

from lancestat import Project
from lancestat.errors import InvalidProject, UsageError
from lancestat.plan.actions import Skip
from tests.execution.world import World, orders, write_project


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_project(tmp_path, "orders", "returns")
    for name in ("orders", "returns"):
        lance.write_dataset(orders(0, 50), str(tmp_path / f"{name}.lance"), max_rows_per_file=25)
    return tmp_path


def run_locally(project: Project) -> None:
    """Bring every table up to date without Spark."""
    for table in project.spec.tables:
        world = World(Path(table.uri), table.name, project.state, columns=table.columns)
        assert world.run().status == "success"


def planned(project: Project, **options: object) -> dict[str, type]:
    return {action.node: type(action) for action in project.plan(**options).actions}


def test_state_selectors_follow_the_definition_of_a_node(folder: Path) -> None:
    assert set(planned(Project.load(folder), select="state:new")) == {"orders", "returns"}
    run_locally(Project.load(folder))
    assert planned(Project.load(folder), select="state:new") == {}
    assert planned(Project.load(folder), select="state:modified") == {}
    path = folder / "specs" / "shop.yml"
    path.write_text(path.read_text().replace("orders.lance", "orders.lance, columns: [o_id]"))
    assert set(planned(Project.load(folder), select="state:modified")) == {"orders"}
    run_locally(Project.load(folder))
    assert planned(Project.load(folder), select="state:modified") == {}


def test_an_unreadable_table_does_not_stop_others(folder: Path) -> None:
    run_locally(Project.load(folder))
    lance.LanceDataset.drop(str(folder / "returns.lance"), {})
    actions = {action.node: action for action in Project.load(folder).plan().actions}
    assert isinstance(actions["orders"], Skip)
    assert actions["returns"].error.code == "LS201"


def test_show_gives_the_guards_verdict(folder: Path) -> None:
    project = Project.load(folder)
    assert project.show("orders").reason == "absent"
    run_locally(project)
    status = Project.load(folder).show("orders")
    assert (status.use, status.reason, status.rows) == (True, "current", 50)
    assert list(status.columns) == ["o_id", "o_status", "o_total"]
    lance.write_dataset(orders(50, 1), str(folder / "orders.lance"), mode="append")
    stale = Project.load(folder).show("orders")
    assert (stale.use, stale.reason, stale.versions_behind) == (False, "stale", 1)


def test_show_of_an_unknown_table_names_the_nearest(folder: Path) -> None:
    with pytest.raises(UsageError) as raised:
        Project.load(folder).show("order")
    assert raised.value.hint == "did you mean 'orders'?"


def test_a_run_without_work_starts_no_spark(folder: Path) -> None:
    run_locally(Project.load(folder))
    result = Project.load(folder).run()
    assert result.status == "success"
    assert {node.action for node in result.nodes} == {"skip"}


def test_a_missing_project_is_explained_to_callers_of_both_interfaces(tmp_path: Path) -> None:
    with pytest.raises(InvalidProject) as raised:
        Project.load(tmp_path / "nonexist")
    assert "--project-dir (project_dir in Python)" in str(raised.value)
