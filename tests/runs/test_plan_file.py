"""Plans in files, over real tables and a real state: executed, or refused with the changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import lance
import pytest

from lancestat import Project
from lancestat.errors import PlanFileError, PlanOutOfDate
from lancestat.redact import MASK
from lancestat.runs.actions import Plan
from lancestat.runs.result import Status
from lancestat.spec.model import KnnSide
from lancestat.state.values import StoredPartials
from lancestat.tables.action import TableAction
from tests.joins.joined import JoinWorld, vectors
from tests.kept import KeptFolder
from tests.runs.world import World, orders

PROJECT = """\
name: shop
vars: {share: 5%}
default_target: dev
targets:
  dev: {state: state, spark: {master: "local[2]"}, storage_options: {aws_secret_key: hunter2}}
  other: {state: state}
"""
TABLES = """\
tables:
  - name: orders
    uri: orders.lance
    policy: {allow.stale: {max_changed_rows: "{{ var('share') }}"}}
  - {name: returns, uri: returns.lance, publish: none}
"""
OTHER_WORK = "orders: what it reads, or what the state has stored of it, has changed"


@pytest.fixture(scope="module")
def analyzed(tmp_path_factory: pytest.TempPathFactory) -> KeptFolder:
    """`orders` and `returns` are analyzed, `orders` at version 2 and with four fragments."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "specs").mkdir()
    (folder / "lancestat_project.yml").write_text(PROJECT)
    (folder / "specs" / "shop.yml").write_text(TABLES)
    for name in ("orders", "returns"):
        write(folder, name)
    run_all(folder)
    return KeptFolder(folder)


@pytest.fixture
def folder(analyzed: KeptFolder) -> Path:
    return analyzed.restored()


def write(folder: Path, name: str) -> None:
    lance.write_dataset(orders(0, 100), str(folder / f"{name}.lance"), max_rows_per_file=25)


def run_all(folder: Path) -> None:
    project = Project.load(folder)
    for table in project.spec.tables:
        publish = table.publish
        world = World(Path(table.uri), table.name, project.state, publish=publish)
        assert world.run().status is Status.SUCCESS


def append(folder: Path, name: str = "orders") -> None:
    lance.write_dataset(orders(100, 5), str(folder / f"{name}.lance"), mode="append")


def edit(folder: Path, old: str, new: str, file: str = "specs/shop.yml") -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))


def refusal(folder: Path, **loaded: object) -> list[str]:
    """Return the changes that outdate the plan, a line each."""
    with pytest.raises(PlanOutOfDate) as raised:
        Project.load(folder, **loaded).load_plan(folder / "plan.json")  # type: ignore[arg-type]
    error = raised.value
    assert error.code == "LS620"
    head, *lines = error.message.splitlines()
    assert "nothing was run" in head
    return [line.strip() for line in lines]


def test_a_current_plan_loads_as_saved(folder: Path) -> None:
    append(folder)
    saved = Project.load(folder).save_plan(folder / "plan.json")
    assert Project.load(folder).load_plan(folder / "plan.json") == saved
    assert [action.verb for action in saved.actions] == ["refresh", "skip"]


def test_a_plan_is_run_once(folder: Path) -> None:
    append(folder)
    Project.load(folder).save_plan(folder / "plan.json")
    project = Project.load(folder)
    plan = project.load_plan(folder / "plan.json")
    world = World(folder / "orders.lance", state=project.state)
    world.execute(replace(plan, actions=plan.actions[:1]))
    assert world.reads == [(3, 4, frozenset({"o_id", "o_status", "o_total"}))]
    assert refusal(folder) == [
        "orders: what it reads has changed; the state has another record of it; "
        "now skip (unchanged), was refresh (rows_appended)"
    ]


def change_columns(folder: Path) -> None:
    edit(folder, "uri: orders.lance", "uri: orders.lance\n    columns: [o_id]")


def change_meaning_alone(folder: Path) -> None:
    edit(folder, "var('share')", "'6%'")


def append_rows(folder: Path) -> None:
    append(folder)


def build_an_index(folder: Path) -> None:
    lance.dataset(str(folder / "orders.lance")).create_scalar_index("o_id", "BTREE")


def write_anew(folder: Path) -> None:
    """The same rows, the same statistics and the same number of versions."""
    path = str(folder / "orders.lance")
    config = lance.dataset(path).config()
    lance.LanceDataset.drop(path, {})
    write(folder, "orders")
    lance.dataset(path).update_config(config)
    assert lance.dataset(path).version == 2


def drop_the_dataset(folder: Path) -> None:
    lance.LanceDataset.drop(str(folder / "orders.lance"), {})


def remove_the_node(folder: Path) -> None:
    edit(folder, "name: orders", "name: sales")


def run_in_between(folder: Path) -> None:
    """Nothing is committed to the table, and the plan is as it was."""
    project = Project.load(folder)
    [table] = [table for table in project.spec.tables if table.name == "returns"]
    world = World(Path(table.uri), "returns", project.state, publish=table.publish)
    world.clock.now = datetime.now(timezone.utc)
    world.run(full_refresh=True)


def delete_the_state(folder: Path) -> None:
    shutil.rmtree(folder / "state")


@pytest.mark.parametrize(
    ("move", "expected"),
    [
        (
            change_columns,
            [
                "orders: its declaration has changed; "
                "now refresh (columns_removed), was skip (unchanged)"
            ],
        ),
        (change_meaning_alone, ["orders: its declaration has changed"]),
        (
            append_rows,
            [
                "orders: what it reads has changed; "
                "now refresh (rows_appended), was skip (unchanged)"
            ],
        ),
        (
            build_an_index,
            [
                "orders: what it reads has changed; "
                "now restamp (version_moved), was skip (unchanged)"
            ],
        ),
        (
            write_anew,
            [
                "orders: what it reads has changed; "
                "now refresh (rows_changed, publish_missing), was skip (unchanged)"
            ],
        ),
        (
            drop_the_dataset,
            ["orders: what it reads has changed; now blocked, was skip (unchanged)"],
        ),
        (
            remove_the_node,
            [
                "orders: it is no longer among the planned nodes",
                "sales: it was not among the planned nodes",
            ],
        ),
        (run_in_between, ["returns: the state has another record of it"]),
        (
            delete_the_state,
            [
                "orders: the state has another record of it",
                "returns: the state has another record of it; "
                "now analyze (new), was skip (unchanged)",
            ],
        ),
    ],
)
def test_an_outdated_plan_is_refused_with_all_changes(
    move: Callable[[Path], None], expected: list[str], folder: Path
) -> None:
    Project.load(folder).save_plan(folder / "plan.json")
    move(folder)
    assert refusal(folder) == expected


def test_a_reverted_change_does_not_outdate_a_plan(folder: Path) -> None:
    """Only the current content counts: the plan is the same."""
    Project.load(folder).save_plan(folder / "plan.json")
    change_meaning_alone(folder)
    edit(folder, "'6%'", "var('share')")
    Project.load(folder).load_plan(folder / "plan.json")


def test_spelling_does_not_outdate_a_plan(folder: Path) -> None:
    plan = Project.load(folder).save_plan(folder / "plan.json")
    edit(folder, "tables:", "# A comment.\n\ntables:")
    edit(folder, "name: orders", "description: One per order.\n    tags: [x]\n    name: orders")
    edit(folder, "uri: orders.lance", "uri: ./orders.lance/")
    shutil.move(folder / "specs" / "shop.yml", folder / "specs" / "all.yml")
    assert shape(Project.load(folder).load_plan(folder / "plan.json")) == shape(plan)


def shape(plan: Plan) -> list[tuple[str, str]]:
    return [(action.node, action.verb) for action in plan.actions]


def test_other_variables_are_another_project(folder: Path) -> None:
    Project.load(folder, vars={"share": "7%"}).save_plan(folder / "plan.json")
    Project.load(folder, vars={"share": "7%"}).load_plan(folder / "plan.json")
    assert refusal(folder) == ["orders: its declaration has changed"]


def test_lost_partials_outdate_a_plan(folder: Path) -> None:
    append(folder)
    Project.load(folder).save_plan(folder / "plan.json")
    for path in folder.glob("state/v2/partials-*"):
        shutil.rmtree(path)
    assert refusal(folder) == [OTHER_WORK]


def test_a_failed_run_in_between_outdates_a_plan(folder: Path) -> None:
    """The state holds more partials than the plan assumed, and no other record."""
    append(folder)
    Project.load(folder).save_plan(folder / "plan.json")
    world = World(folder / "orders.lance", state=Project.load(folder).state)
    action = world.action()
    assert isinstance(action, TableAction)
    assert action.reading is not None
    [scanned] = world.scan("orders", action.table, action.reading)
    [([scan], partials)] = scanned.stored
    stored = StoredPartials((scan.fingerprint,), partials)
    world.state.add_partials(action.table.identity, [stored])
    assert refusal(folder) == [OTHER_WORK]


def test_a_plan_of_another_target_is_refused(folder: Path) -> None:
    Project.load(folder).save_plan(folder / "plan.json")
    with pytest.raises(PlanFileError, match="made for target 'dev', and not for 'other'") as raised:
        Project.load(folder, target="other").load_plan(folder / "plan.json")
    assert raised.value.code == "LS624"


def test_a_plan_of_another_project_is_refused(folder: Path) -> None:
    Project.load(folder).save_plan(folder / "plan.json")
    edit(folder, "name: shop", "name: stall", "lancestat_project.yml")
    with pytest.raises(PlanFileError, match="project 'shop', and this one is 'stall'") as raised:
        Project.load(folder).load_plan(folder / "plan.json")
    assert raised.value.code == "LS624"


def test_a_plan_of_another_release_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Project.load(folder).save_plan(folder / "plan.json")
    monkeypatch.setattr("lancestat.project.__version__", "99.0")
    with pytest.raises(PlanFileError, match=r"made by lancestat .*, and this is 99\.0") as raised:
        Project.load(folder).load_plan(folder / "plan.json")
    assert raised.value.code == "LS623"


def test_a_copy_of_the_state_is_another_state(folder: Path) -> None:
    Project.load(folder).save_plan(folder / "plan.json")
    shutil.copytree(folder / "state", folder / "copy")
    edit(folder, "dev: {state: state", "dev: {scratch: s, state: copy", "lancestat_project.yml")
    assert refusal(folder) == [
        "target dev: its state is elsewhere",
        "target dev: its scratch is elsewhere",
    ]


def test_options_are_remembered(folder: Path) -> None:
    """Nodes that were not selected may change, and a full refresh stays one."""
    path = folder / "plan.json"
    made = Project.load(folder).save_plan(path, "kind:table", ["returns"], full_refresh=True)
    append(folder, "returns")
    plan = Project.load(folder).load_plan(path)
    assert plan == made
    assert plan.full_refresh
    assert [(action.node, action.reasons[0].value) for action in plan.actions] == [  # type: ignore[union-attr]
        ("orders", "full_refresh")
    ]


def test_a_selection_that_no_longer_matches_outdates_a_plan(folder: Path) -> None:
    Project.load(folder).save_plan(folder / "plan.json", "orders")
    edit(folder, "name: orders", "name: sales")
    assert refusal(folder) == ["its selection: selector 'orders' matches nothing"]


def test_time_outdates_a_plan_only_when_the_plan_depends_on_it(folder: Path) -> None:
    edit(folder, "max_changed_rows: \"{{ var('share') }}\"}", "max_age: 24h}, refresh: when_stale")
    append(folder)
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    spec = Project.load(folder).spec
    plan = Project(spec, clock=lambda: now).save_plan(folder / "plan.json")
    assert shape(plan)[0] == ("orders", "skip")
    Project(spec, clock=lambda: now + timedelta(hours=23)).load_plan(folder / "plan.json")
    with pytest.raises(PlanOutOfDate, match=r"now refresh \(rows_appended\), was skip"):
        Project(spec, clock=lambda: now + timedelta(hours=25)).load_plan(folder / "plan.json")


def test_a_blocked_node_is_saved_as_such(folder: Path) -> None:
    drop_the_dataset(folder)
    Project.load(folder).save_plan(folder / "plan.json")
    edit(folder, "tables:", "# The place of the error is another.\ntables:")
    Project.load(folder).load_plan(folder / "plan.json")
    write(folder, "orders")
    assert refusal(folder) == [
        "orders: what it reads has changed; "
        "now refresh (rows_changed, publish_missing), was blocked"
    ]


@pytest.mark.whole
def test_a_plan_is_the_same_for_every_process(folder: Path) -> None:
    """Sets of texts have another order under another hash seed."""
    append(folder)
    code = (
        "import sys; from lancestat import Project; "
        "Project.load(sys.argv[1]).save_plan(sys.argv[2])"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, folder, folder / f"{seed}.json"],
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        for seed in ("1", "2")
    ]
    assert [process.wait() for process in processes] == [0, 0]
    one, other = (json.loads((folder / f"{seed}.json").read_text()) for seed in ("1", "2"))
    assert {**one, "made_at": None} == {**other, "made_at": None}


def test_no_secret_is_in_a_plan_file(folder: Path) -> None:
    edit(folder, "tables:", "tables:\n  - {name: far, uri: 's3://me:hunter2@nowhere.invalid/t'}")
    scratch = "state: state, scratch: 's3://me:hunter2@x/s'"
    edit(folder, "state: state, spark", f"{scratch}, spark", "lancestat_project.yml")
    Project.load(folder).save_plan(folder / "plan.json")
    text = (folder / "plan.json").read_text()
    assert f"s3://{MASK}@nowhere.invalid/t" in text
    assert "hunter2" not in text


@pytest.fixture
def joined(tmp_path: Path) -> JoinWorld:
    """A join that was run."""
    lance.write_dataset(vectors(0, 20, name="v"), str(tmp_path / "l.lance"))
    lance.write_dataset(vectors(0, 30, name="w"), str(tmp_path / "r.lance"))
    world = JoinWorld(tmp_path)
    world.run()
    return world


def front(world: JoinWorld) -> Project:
    project = Project(world.spec, clock=world.clock)
    project._state = world.state
    return project


def add_left_rows(world: JoinWorld) -> None:
    lance.write_dataset(vectors(20, 5, name="v"), world.uri("l"), mode="append")


def want_more(world: JoinWorld) -> None:
    world.declare(k=3)


def write_to_the_result(world: JoinWorld) -> None:
    lance.dataset(world.uri("near")).delete("id = 0")


def join_again(world: JoinWorld) -> None:
    world.clock.advance(hours=1)
    world.run(full_refresh=True)


def move_a_side(world: JoinWorld) -> None:
    shutil.copytree(world.uri("r"), world.uri("elsewhere"))
    world.declare(right=KnnSide("w", ("key", "id"), format="lance", uri=world.uri("elsewhere")))


@pytest.mark.parametrize(
    ("move", "expected"),
    [
        (
            add_left_rows,
            "near: what it reads has changed; now refresh (rows_appended), was skip (unchanged)",
        ),
        (
            want_more,
            "near: its declaration has changed; now refresh (spec_changed), was skip (unchanged)",
        ),
        (
            write_to_the_result,
            "near: its result has changed; now blocked, was skip (unchanged)",
        ),
        (join_again, "near: the state has another record of it; its result has changed"),
        (
            move_a_side,
            "near: its declaration has changed; what it reads has changed; "
            "now refresh (spec_changed), was skip (unchanged)",
        ),
    ],
)
def test_an_outdated_join_is_refused_with_all_changes(
    move: Callable[[JoinWorld], None], expected: str, joined: JoinWorld
) -> None:
    path = joined.folder / "plan.json"
    front(joined).save_plan(path, "near")
    front(joined).load_plan(path)
    move(joined)
    with pytest.raises(PlanOutOfDate) as raised:
        front(joined).load_plan(path)
    [line] = raised.value.message.splitlines()[1:]
    names = {name: joined.uri(name) for name in ("l", "r", "elsewhere")}
    changes = {*line.strip().split("; ")}
    assert set(expected.format(**names).split("; ")) <= changes


def test_a_join_of_a_saved_plan_runs_incrementally(joined: JoinWorld) -> None:
    add_left_rows(joined)
    path = joined.folder / "plan.json"
    front(joined).save_plan(path, "near")
    joined.execute(front(joined).load_plan(path))
    assert joined.scopes == ["full", "new_left"]
    assert joined.rows() == joined.expected()


def test_the_number_of_cores_does_not_outdate_a_plan(joined: JoinWorld) -> None:
    add_left_rows(joined)
    path = joined.folder / "plan.json"
    front(joined).save_plan(path, "near")
    spec = joined.spec
    larger = replace(spec, target=replace(spec.target, spark_master="local[64]"))
    project = Project(larger, clock=joined.clock)
    project._state = joined.state
    assert shape(project.load_plan(path)) == [("near", "refresh")]
