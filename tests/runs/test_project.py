"""The front door, over real tables and a real state; nothing here needs Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import lance
import numpy as np
import pytest

import lancestat
from lancestat import Project
from lancestat.errors import InvalidArgument, InvalidProject, UsageError
from lancestat.runs.actions import Skip
from tests.runs.world import World, orders, write_project


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


SESSION = "expected a session of Spark"
WRONG: list[tuple[Callable[[Project], object], str]] = [
    (lambda p: p.run("orders"), "plan is 'orders'; .*hint: select='orders'"),
    (lambda p: p.run(3), "plan is 3; expected what `plan` or `load_plan` returns"),
    (lambda p: p.run(p.plan(), select="orders"), "select and exclude go without a plan"),
    (lambda p: p.run(select=[3]), "select has an item that is 3; expected a string"),
    (lambda p: p.run(threads="a"), "threads is 'a'; expected a whole number, 1 or more"),
    (lambda p: p.run(threads=0), "threads is 0"),
    (lambda p: p.run(session=3), f"session is 3; {SESSION}"),
    (lambda p: p.retry(threads=0), "threads is 0"),
    (lambda p: p.retry(p.plan()), "unfinished is a Plan; expected what `unfinished` returns"),
    (lambda p: p.plan(select=3), "select is 3; expected a selector, or a list of selectors"),
    (lambda p: p.nodes(exclude=b"x"), "exclude is a bytes"),
    (lambda p: p.report(3), "select is 3"),
    (lambda p: p.report(runs=-1), "runs is -1; expected a whole number, 0 or more"),
    (lambda p: p.save_plan("plan.json", 3), "select is 3"),
    (lambda p: p.save_plan(None), "path is None; expected a path"),
    (lambda p: p.load_plan(3), "path is 3"),
    (lambda p: p.runs(limit=-1), "limit is -1; expected a whole number, 0 or more"),
    (lambda p: p.runs(limit="2"), "limit is '2'"),
    (lambda p: p.show(None), "table is None; expected a string"),
    (lambda p: p.analyze(["orders"]), "table is a list; expected a string"),
    (lambda p: p.analyze("orders", columns="id"), r"columns is 'id'; .*hint: columns=\['id'\]"),
    (lambda p: p.analyze("orders", columns=[3]), "columns has an item that is 3"),
    (lambda p: p.report_tables("statistics"), "wanted is 'statistics'; expected a list of names"),
    (lambda p: p.report_tables({"bogus"}), "is 'bogus'; .*one of: statistics, runs, fragments"),
    (lambda p: p.attach(None), f"spark is None; {SESSION}"),
    (lambda p: p.attach_catalogs(None), f"spark is None; {SESSION}"),
    (lambda p: p.detach(None), f"spark is None; {SESSION}"),
    (lambda p: p.run_nearest_by(None), f"spark is None; {SESSION}"),
    (lambda p: lancestat.register(None), f"spark is None; {SESSION}"),
    (lambda p: lancestat.read_table(None, "x.lance"), f"spark is None; {SESSION}"),
    (lambda p: Project.load(None), "project_dir is None; expected a path"),
    (lambda p: Project.load(".", target=3), "target is 3; expected a name, or None"),
    (lambda p: Project.load(".", vars=[1]), "vars is a list; expected a mapping"),
    (lambda p: Project.load(".", vars={1: "a"}), "a name in vars is 1; expected a string"),
    (lambda p: Project.load(".", vars={"a": object()}), r"vars\['a'\] is or has a object"),
    (lambda p: Project.load(".", vars={"a": [{"b": {1}}]}), r"vars\['a'\] is or has a list"),
    (lambda p: Project.diff(3), "project_dir is 3"),
    (lambda p: Project.diff(base=3), "base is 3"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_wrong_arguments_are_refused_by_name(
    folder: Path, call: Callable[[Project], object], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"(?s)^LS460  .*{message}"):
        call(Project.load(folder))


def test_right_arguments_of_every_kind_are_taken(folder: Path) -> None:
    variables = {"a": 1, "b": [None, {"c": 2.5}], "d": date(2026, 1, 1), "e": "x"}
    project = Project.load(str(folder), vars=variables)
    run_locally(project)
    assert [node.name for node in project.run(select={"returns"}).nodes] == ["returns"]
    assert [node.name for node in project.run(exclude="returns").nodes] == ["orders"]
    assert len(project.runs(limit=np.int64(1))) == 1
    assert project.runs(limit=0) == ()
    assert set(project.report_tables({"statistics", "runs"})) == {"statistics", "runs"}
    assert len(project.run(project.plan(("orders", "returns")), threads=2).nodes) == 2
