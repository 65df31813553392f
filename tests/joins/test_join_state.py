"""Records of joins and their readers."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import lance
import pytest

from lancestat import Project
from lancestat.errors import UsageError
from lancestat.joins.record import join_records
from lancestat.nodes import NODE_TYPES
from lancestat.runs.actions import Skip
from lancestat.runs.execute import collect_garbage
from lancestat.spec.model import Target
from lancestat.state.store import open_state
from tests.joins.joined import JoinWorld, vectors

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


@pytest.fixture
def world(tmp_path: Path) -> JoinWorld:
    lance.write_dataset(vectors(0, 20, name="v"), str(tmp_path / "l.lance"))
    lance.write_dataset(vectors(0, 30, name="w"), str(tmp_path / "r.lance"))
    return JoinWorld(tmp_path, state=open_state(str(tmp_path / "state")))


def test_another_process_reads_the_record_of_a_join(world: JoinWorld) -> None:
    world.run("l", "near")
    world.state = open_state(str(world.folder / "state"))
    assert isinstance(world.action(), Skip)
    lance.write_dataset(vectors(50, 5, name="v"), world.uri("l"), mode="append")
    world.run("l", "near")
    assert world.scopes == ["full", "new_left"]
    record = join_records(world.state)["near"]
    counts = record.counts
    assert (counts.left_rows, counts.right_rows, counts.unmatched_left_rows) == (25, 30, 6)
    assert (record.left.fragments, record.left.last_fragment) == (2, 1)


def test_garbage_collection_keeps_records_of_declared_joins(world: JoinWorld) -> None:
    world.run("l", "near")
    state = open_state(str(world.folder / "state"))
    collect_garbage(world.spec, state, NODE_TYPES, now=NOW, dry_run=False)
    assert set(join_records(state)) == {"near"}
    world.declare(name="other")
    collect_garbage(world.spec, state, NODE_TYPES, now=NOW, dry_run=False)
    assert set(join_records(state)) == set()


def test_a_run_that_finds_nothing_to_do_is_not_recorded(world: JoinWorld) -> None:
    world.run()
    world.run()
    assert len(world.state.runs(10)) == 1


def test_the_state_holds_no_uri(world: JoinWorld) -> None:
    """Places may hold secrets."""
    world.run()
    rows = lance.dataset(str(world.folder / "state" / "v2" / "runs-1.lance")).to_table()
    [stored] = rows.column("record_json").to_pylist()
    assert world.join.output_uri not in stored
    assert str(world.folder) not in stored


def test_selectors_ask_the_state_about_joins(world: JoinWorld) -> None:
    def selected(word: str) -> set[str]:
        project = Project(world.spec)
        return {node.name for node in project.nodes(f"kind:knn_join,state:{word}")}

    assert (selected("new"), selected("modified")) == ({"near"}, set())
    world.run()
    assert (selected("new"), selected("modified")) == (set(), set())
    world.declare(k=7)
    assert (selected("new"), selected("modified")) == (set(), {"near"})


def test_a_project_plans_joins_without_spark(world: JoinWorld) -> None:
    assert isinstance(world.spec.target, Target)
    world.run()
    [action] = Project(world.spec).plan("near").actions
    assert isinstance(action, Skip)


def test_a_join_has_no_statistics_to_show(world: JoinWorld) -> None:
    with pytest.raises(UsageError, match="'near' is a KNN join") as caught:
        Project(world.spec).show("near")
    assert caught.value.code == "LS404"
