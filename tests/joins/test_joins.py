"""Changes to a join: its plan, the joined rows, the result, its record, nodes that read it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from lancestat import Project
from lancestat.errors import StateUnreachable, UsageError
from lancestat.joins.action import JoinAction
from lancestat.joins.record import Accuracy
from lancestat.joins.search.work import JoinWork
from lancestat.nodes import NODE_TYPES
from lancestat.runs.actions import Blocked, Dependent, Plan, Reason, Skip
from lancestat.runs.execute import collect_garbage
from lancestat.runs.result import RunResult, Status
from lancestat.spec.model import KnnJoin, KnnSide, Table
from lancestat.state.store import open_state
from lancestat.state.values import RunRecord
from tests.examples import each, examples
from tests.joins.joined import JoinWorld, for_parquet, vectors
from tests.joins.local import LocalWorld
from tests.joins.records import join_records
from tests.runs.world import PLACE
from tests.state.fresh import FreshState

pytestmark = pytest.mark.whole

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


def test_an_unchanged_join_is_skipped_with_its_recorded_figures(world: JoinWorld) -> None:
    world.settle()
    action = world.action()
    assert (action.kind, action.reasons) == ("knn_join", (Reason.UNCHANGED,))
    [result] = world.run().nodes
    assert result.to_json()["unmatched_left_rows"] == 5
    assert result.to_json()["strategy"] == "exact"
    assert not world.works


@pytest.mark.parametrize(
    ("sides", "scope", "notes", "fragments"),
    [
        ("ll", "new_left", ["only 7 new left rows are joined, and put behind the result"], {3, 4}),
        ("r", "new_right", ["only 4 new right rows are searched, and merged with the result"], {4}),
        (
            "lr",
            "changed",
            ["only changes are joined, of 4 new left rows, 3 new right rows"],
            {3, 4},
        ),
    ],
)
def test_only_new_rows_are_joined(
    local: LocalWorld, sides: str, scope: str, notes: list[str], fragments: set[int]
) -> None:
    local.settle()
    for number, side in enumerate(sides):
        local.append(side, 100 + 4 * number, 4 - number)
    action = local.planned()
    reasons = (Reason.ROWS_APPENDED,)
    assert (action.verb, action.reasons, list(action.notes)) == ("refresh", reasons, notes)
    local.converge()
    assert local.scopes == [scope]
    increment = local.works[0].increment
    assert increment is not None
    assert increment.new_left | increment.new_right == fragments


@pytest.mark.parametrize("side", ["l", "r"])
@pytest.mark.parametrize(
    ("change", "reason", "note"),
    [
        ("delete", Reason.ROWS_DELETED, "only changes are joined, of 1 gone {} row"),
        ("update", Reason.ROWS_CHANGED, "only changes are joined, of 1 new and 1 gone {} row"),
    ],
)
def test_rows_that_are_deleted_or_updated_are_joined_again(
    local: LocalWorld, side: str, change: str, reason: Reason, note: str
) -> None:
    local.settle()
    dataset = lance.dataset(local.uri(side))
    if change == "delete":
        dataset.delete("id = 4")
    else:
        dataset.update({"key": "'new'"}, where="id = 4")
    action = local.planned()
    name = {"l": "left", "r": "right"}[side]
    assert (action.reasons, action.notes) == ((reason,), (note.format(name),))
    local.converge()
    assert local.scopes == ["changed"]


NO_LESS = "so many rows have changed that joining all of them is no more work"
IN_PLACE = "rows have changed where they are, or have come back"


WHY_IN_FULL = {
    "compact": NO_LESS,
    "overwrite": NO_LESS,
    "recreate": IN_PLACE,
    "restore": IN_PLACE,
    "rewrite": IN_PLACE,
}


@pytest.mark.parametrize(("change", "side"), each(WHY_IN_FULL, ["l", "r"]))
def test_other_changes_join_in_full(local: LocalWorld, side: str, change: str) -> None:
    local.converge()
    dataset = lance.dataset(local.uri(side))
    dataset.delete("id = 4")
    local.settle()
    dataset = lance.dataset(local.uri(side))
    match change:
        case "restore":
            lance.dataset(local.uri(side), version=1).restore()
        case "rewrite":
            dataset.drop_columns(["id"])
            dataset.add_columns({"id": "cast(other as bigint)"})
        case "compact":
            dataset.optimize.compact_files(target_rows_per_fragment=1000)
        case "overwrite":
            lance.write_dataset(dataset.to_table(), local.uri(side), mode="overwrite")
        case _:
            rows = dataset.to_table()
            lance.LanceDataset.drop(local.uri(side), {})
            lance.write_dataset(rows, local.uri(side), max_rows_per_file=7)
    action = local.planned()
    name = {"l": "left", "r": "right"}[side]
    assert action.reasons == (Reason.INPUT_CHANGED,)
    assert action.notes == (f"the {name} side has changed", WHY_IN_FULL[change])
    local.converge()
    assert local.scopes == ["full"]


@pytest.mark.parametrize(
    ("is_lost", "why"),
    [
        (True, "the neighbours of the last result are not in scratch any more"),
        (False, "the last run has kept no neighbours, by which to bring its result up to date"),
    ],
)
def test_without_neighbours_a_join_is_done_in_full_once(
    local: LocalWorld, is_lost: bool, why: str
) -> None:
    world = local if is_lost else JoinWorld(local.folder, local.state, local.clock)
    world.declare(min_right_rows=0)
    world.settle()
    shutil.rmtree(local.scratch, ignore_errors=True)
    for scope in ("full", "changed"):
        lance.dataset(local.uri("r")).delete(f"id = {len(local.works)}")
        assert (why in local.planned().notes) == (scope == "full")
        local.converge()
        assert local.scopes[-1] == scope


def test_a_run_removes_older_neighbours_that_no_result_has(local: LocalWorld) -> None:
    def folders() -> set[Path]:
        return set(Path(local.scratch).glob("neighbours/*/*"))

    local.settle()
    [first] = folders()
    lance.dataset(local.uri("r")).delete("id = 1")
    local.converge()
    [second] = folders() - {first}
    lance.dataset(local.uri("r")).delete("id = 2")
    local.converge()
    assert {first, second} < folders(), "another run may be about to use them"
    for folder in folders():
        manifest = folder / "neighbours.json"
        stored = json.loads(manifest.read_text("utf-8"))
        stored["created_at"] = "2020-01-01T00:00:00+00:00"
        manifest.write_text(json.dumps(stored), "utf-8")
    [third] = folders() - {first, second}
    lance.dataset(local.uri("r")).delete("id = 3")
    local.converge()
    [_] = folders() - {third}
    assert third in folders(), "the result had it until now"
    assert local.scopes == ["changed"] * 3


def test_neighbours_that_go_while_a_join_runs_are_not_missed(local: LocalWorld) -> None:
    local.settle()
    lance.dataset(local.uri("r")).delete("id = 4")
    local.before = lambda _: shutil.rmtree(local.scratch, ignore_errors=True)
    local.converge()
    assert local.scopes == ["changed", "full"]


@pytest.mark.parametrize(
    ("change", "side"),
    each(["index", "config", "add column", "drop column", "other values"], ["l", "r"]),
)
def test_commits_that_keep_rows_and_columns_are_skipped(
    world: JoinWorld, side: str, change: str
) -> None:
    world.settle()
    dataset = lance.dataset(world.uri(side))
    match change:
        case "index":
            dataset.create_scalar_index("id", "BTREE")
        case "config":
            dataset.update_config({"lance.stats.version": "1"})
        case "add column":
            dataset.add_columns({"more": "id + 1"})
        case "drop column":
            dataset.drop_columns(["other"])
        case _:
            dataset.add_columns({"fresh": "id + 1"})
            dataset.drop_columns(["fresh"])
    assert isinstance(world.action(), Skip)


def test_columns_that_swap_names_are_a_change(world: JoinWorld) -> None:
    world.declare(right=KnnSide("w", ("a",), table="r", refs=("r",)))
    rows = vectors(0, 9, name="w")
    rows = rows.append_column("a", pa.array(range(9))).append_column("b", pa.array(range(9, 18)))
    lance.write_dataset(rows, world.uri("r"), mode="overwrite")
    world.settle()
    dataset = lance.dataset(world.uri("r"))
    for old, new in (("a", "tmp"), ("b", "a"), ("tmp", "b")):
        dataset.alter_columns({"path": old, "name": new})
    assert world.planned().reasons == (Reason.INPUT_CHANGED,)
    world.converge()


@pytest.mark.parametrize("version", ["2.0", "2.1"])
@pytest.mark.parametrize("format", ["lance", "parquet"])
def test_dictionaries_are_joined_as_their_values(tmp_path: Path, version: str, format: str) -> None:
    """Those of a fragment are not those of others: more values than 8 bits number, and nulls."""
    world, type = LocalWorld(tmp_path), pa.dictionary(pa.int8(), pa.string())
    for side, vector in (("l", "v"), ("r", "w")):
        for start in range(0, 300, 100):
            kinds = [_kind(side, id) for id in range(start, start + 100)]
            rows = vectors(start, 100, name=vector)
            rows = rows.append_column("kind", pa.array(kinds).dictionary_encode().cast(type))
            lance.write_dataset(rows, world.uri(side), mode="append", data_storage_version=version)
    select = ("id", "kind")
    left, right = replace(world.join.left, select=select), replace(world.join.right, select=select)
    world.declare(left=left, right=right, output_format=format, output_uri=str(tmp_path / "near"))
    for _ in range(2):
        assert world.run().status == "success"
        assert len(world.rows()) > 300
        for row in world.rows():
            assert row["kind"] == _kind("l", row["id"])
            assert row["kind_right"] == _kind("r", row["id_right"])
        lance.dataset(world.uri("r")).delete("id % 5 = 2")


def _kind(side: str, id: int) -> str | None:
    return None if id % 9 == 0 else f"{side}{id}"


def test_a_variable_size_list_is_watched_too(world: JoinWorld) -> None:
    rows = vectors(0, 9, name="w")
    lists = rows.column("w").combine_chunks().cast(pa.list_(pa.float32()))
    rows = rows.set_column(2, "w", lists)
    lance.write_dataset(rows, world.uri("r"), mode="overwrite")
    world.settle()
    dataset = lance.dataset(world.uri("r"))
    dataset.merge_insert("id").when_matched_update_all().execute(
        rows.slice(0, 2).set_column(2, "w", pa.array([[9.0, 9.0]] * 2, pa.list_(pa.float32())))
    )
    assert world.planned().reasons == (Reason.INPUT_CHANGED,)
    world.converge()


@pytest.mark.parametrize(
    ("change", "verb", "reason"),
    [
        ("definition", "refresh", Reason.SPEC_CHANGED),
        ("lost result", "analyze", Reason.OUTPUT_MISSING),
        ("moved result", "refresh", Reason.OUTPUT_MISSING),
        ("lost state", "analyze", Reason.NEW),
    ],
)
def test_what_is_not_the_last_result_is_joined_in_full(
    world: JoinWorld, change: str, verb: str, reason: Reason
) -> None:
    world.converge()
    world.append("l", 100, 4)
    world.settle()
    match change:
        case "definition":
            world.declare(k=3)
        case "lost result":
            lance.LanceDataset.drop(world.join.output_uri, {})
        case "moved result":
            for start, count in ((200, 2), (300, 20)):
                world.append("l", start, count)
                world.settle()
            # Lance puts what it compacts behind the others, which are larger.
            lance.dataset(world.join.output_uri).optimize.compact_files(target_rows_per_fragment=10)
        case _:
            world.state = FreshState()
    action = world.planned()
    assert (action.verb, action.reasons) == (verb, (reason,))
    world.converge()
    assert world.scopes == ["full"]


def test_a_compacted_result_is_brought_up_to_date(local: LocalWorld) -> None:
    local.settle()
    for number in range(3):
        local.append("l", 100 * number, 4)
        lance.dataset(local.uri("r")).delete(f"id = {number}")
        local.converge()
        lance.dataset(local.join.output_uri).optimize.compact_files(
            materialize_deletions_threshold=0.0
        )
        assert isinstance(local.action(), Skip)
    assert local.scopes == ["changed"] * 3


def test_a_changed_description_does_not_change_the_definition(world: JoinWorld) -> None:
    world.settle()
    world.declare(description="Near ones.", tags=("x",), owner="me")
    assert isinstance(world.action(), Skip)


def test_a_full_refresh_joins_in_full(world: JoinWorld) -> None:
    world.settle()
    action = world.action(full_refresh=True)
    assert (action.verb, action.reasons) == ("refresh", (Reason.FULL_REFRESH,))
    assert world.run(full_refresh=True).status == "success"
    assert world.scopes == ["full"]


def test_a_result_that_was_edited_is_not_replaced(world: JoinWorld) -> None:
    world.settle()
    lance.dataset(world.join.output_uri).delete("id = 0")
    world.append("l", 100, 4)
    error = world.refused()
    assert (error.code, error.location) == ("LS570", PLACE)
    assert error.hint == "give the join another output, or remove what is there"
    lance.LanceDataset.drop(world.join.output_uri, {})
    world.converge()
    assert world.scopes == ["full"]


def test_publishing_statistics_of_a_result_keeps_it_valid(world: JoinWorld) -> None:
    world.settle()
    lance.dataset(world.join.output_uri).update_config({"lance.stats.version": "1"})
    assert isinstance(world.action(), Skip)
    world.append("l", 100, 4)
    world.converge()
    assert world.scopes == ["new_left"]


def test_a_result_that_moves_while_it_runs_is_joined_in_full(world: JoinWorld) -> None:
    world.converge()
    world.append("l", 90, 4)
    world.settle()
    world.append("l", 100, 4)

    def spoil(work: object) -> None:
        lance.dataset(world.join.output_uri, version=1).restore()
        world.before = None

    world.before = spoil
    [result] = world.run().nodes
    assert (result.status, world.scopes) == ("success", ["new_left", "full"])
    assert result.to_json()["scope"] == "full"
    assert world.rows() == world.expected()
    assert isinstance(world.action(), Skip)


def test_measured_recall_of_an_approximate_result_is_preserved(world: JoinWorld) -> None:
    world.declare(mode="approx", recall=0.9)
    world.measured = (0.93, 7)
    world.settle()
    for measured in ((0.95, 8), (1.0, None)):
        before = join_records(world.state)["near"]
        world.measured = measured
        world.append("l", 100 + 4 * (measured[1] is None), 4)
        world.run()
        after = join_records(world.state)["near"]
        # Of the rows that were there, and of the four new ones.
        rows = before.counts.left_rows
        assert before.accuracy.recall is not None and after.counts.left_rows == rows + 4
        expected = (before.accuracy.recall * rows + measured[0] * 4) / (rows + 4)
        assert after.accuracy == Accuracy(pytest.approx(expected), 8)


def test_of_two_runs_with_one_plan_the_second_joins_in_full(world: JoinWorld) -> None:
    """Rows that the first one appended are not appended again."""
    world.settle()
    world.append("l", 100, 4)
    plan = world.plan()
    for _ in range(2):
        assert world.execute(plan).status == "success"
    assert world.scopes == ["new_left", "new_left", "full"]
    assert world.rows() == world.expected()
    assert isinstance(world.action(), Skip)


class Forgetful(FreshState):
    """A state that cannot be written to, once."""

    def add_run(self, run: RunRecord) -> None:
        self.add_run = super().add_run  # type: ignore[method-assign]
        raise StateUnreachable("the state is away")


def test_a_result_that_was_not_recorded_is_joined_again(world: JoinWorld) -> None:
    """A run may be killed right after its commit."""
    world.state = Forgetful()
    assert world.run().status == "success"
    assert world.planned().reasons == (Reason.NEW,)
    world.converge()
    world.append("l", 100, 4)
    del world.state.add_run
    assert world.run().status == "success"
    assert Reason.OUTPUT_MISSING in world.planned().reasons
    world.converge()


def test_a_side_that_moves_while_it_runs_is_joined_again(world: JoinWorld) -> None:
    world.before = lambda work: world.append("r", 500, 3)
    world.run()
    world.before = None
    assert world.planned().reasons == (Reason.ROWS_APPENDED, Reason.INPUT_CHANGED)
    world.converge()


@pytest.mark.parametrize("side", ["l", "r"])
def test_rows_added_to_an_empty_side_are_joined_in_full(world: JoinWorld, side: str) -> None:
    world.declare(join="left_outer")
    lance.dataset(world.uri(side)).truncate_table()
    world.settle()
    world.append(side, 50, 5)
    world.converge()
    assert world.scopes == ["full"]


def test_a_failed_join_keeps_the_last_result(world: JoinWorld) -> None:
    world.settle()
    rows = world.rows()
    world.append("r", 100, 4)

    def fail(work: object) -> None:
        raise ValueError("no")

    world.before = fail
    [result] = world.run().nodes
    assert (result.status, result.text) == (
        "error",
        "LS001 specs/shop.yml:1:1  internal error: ValueError: no\n"
        "      hint: run again with --verbose for the traceback",
    )
    assert world.rows() == rows
    world.before = None
    assert world.planned().reasons == (Reason.ROWS_APPENDED, Reason.INPUT_CHANGED)
    world.converge()


@pytest.mark.parametrize("name", ["l", "r"])
def test_a_missing_side_blocks_the_join(world: JoinWorld, name: str) -> None:
    lance.LanceDataset.drop(world.uri(name), {})
    action = world.action()
    assert isinstance(action, Blocked)
    assert (action.kind, action.error.code) == ("knn_join", "LS201")
    assert action.error.location == PLACE


@pytest.mark.parametrize("side", ["l", "r"])
def test_a_side_recreated_before_it_is_read_is_planned_again(world: JoinWorld, side: str) -> None:
    done: list[str] = []

    def recreate_side(work: JoinWork) -> None:
        if not done:
            done.append(side)
            shutil.rmtree(world.uri(side))
            name = {"l": "v", "r": "w"}[side]
            lance.write_dataset(vectors(500, 11, name=name), world.uri(side))

    world.before = recreate_side
    assert world.run().status == "success"
    assert world.rows() == world.expected()
    assert isinstance(world.action(), Skip)


@pytest.fixture
def stored(world: JoinWorld) -> JoinWorld:
    """The join, with a state on disk."""
    world.state = open_state(str(world.folder / "state"))
    return world


def test_another_process_reads_the_record_of_a_join(stored: JoinWorld) -> None:
    stored.run("l", "near")
    stored.state = open_state(str(stored.folder / "state"))
    assert isinstance(stored.action(), Skip)
    stored.append("l", 50, 5)
    stored.run("l", "near")
    assert stored.scopes == ["full", "new_left"]
    record = join_records(stored.state)["near"]
    counts = record.counts
    assert (counts.left_rows, counts.right_rows, counts.unmatched_left_rows) == (25, 30, 6)
    assert (record.left.fragments, record.left.last_fragment) == (4, 3)


def test_garbage_collection_keeps_records_of_declared_joins(stored: JoinWorld) -> None:
    stored.run("l", "near")
    changes = ({}, {"name": "renamed"}, {"output_uri": stored.uri("other")})
    for changed, kept in zip(changes, ({"near"}, {"near"}, set[str]()), strict=True):
        stored.declare(**changed)
        collect_garbage(stored.spec, stored.state, NODE_TYPES, now=NOW, dry_run=False)
        assert set(join_records(stored.state)) == kept


def test_the_state_holds_no_uri_and_no_run_without_work(stored: JoinWorld) -> None:
    """Locations may hold secrets."""
    stored.run()
    stored.run()
    assert len(stored.state.runs(10)) == 1
    rows = lance.dataset(str(stored.folder / "state" / "v2" / "runs-1.lance")).to_table()
    [text] = rows.column("record_json").to_pylist()
    assert stored.join.output_uri not in text
    assert str(stored.folder) not in text


def test_a_project_asks_the_state_about_joins_without_spark(stored: JoinWorld) -> None:
    def selected(word: str) -> set[str]:
        return {node.name for node in Project(stored.spec).nodes(f"kind:knn_join,state:{word}")}

    assert (selected("new"), selected("modified")) == ({"near"}, set())
    stored.run()
    assert (selected("new"), selected("modified")) == (set(), set())
    [action] = Project(stored.spec).plan("near").actions
    assert isinstance(action, Skip)
    stored.declare(k=7)
    assert (selected("new"), selected("modified")) == (set(), {"near"})
    with pytest.raises(UsageError, match="'near' is a KNN join") as caught:
        Project(stored.spec).show("near")
    assert caught.value.code == "LS404"


VECTOR = {"l": "v", "r": "w"}


class Changes:
    """The changes of a side; every row that is ever added has its own number."""

    def __init__(self, world: JoinWorld) -> None:
        self.world = world
        self.next = 0

    def append(self, side: str, count: int) -> None:
        rows = vectors(self.next, count, name=VECTOR[side])
        self.next += count
        lance.write_dataset(rows, self.world.uri(side), mode="append", max_rows_per_file=5)

    def delete(self, side: str, number: int) -> None:
        lance.dataset(self.world.uri(side)).delete(f"id % 5 = {number % 5}")

    def update(self, side: str, number: int) -> None:
        dataset = lance.dataset(self.world.uri(side))
        dataset.update({"key": "'new'"}, where=f"id % 6 = {number % 6}")

    def compact(self, side: str, number: int) -> None:
        dataset = lance.dataset(self.world.uri(side))
        dataset.optimize.compact_files(target_rows_per_fragment=8 + number)

    def publish(self, side: str, number: int) -> None:
        dataset = lance.dataset(self.world.uri(side))
        dataset.update_config({"lance.stats.numRows": str(number)})

    def index(self, side: str, number: int) -> None:
        lance.dataset(self.world.uri(side)).create_scalar_index("id", "BTREE", replace=True)

    def restore(self, side: str, number: int) -> None:
        dataset = lance.dataset(self.world.uri(side))
        lance.dataset(self.world.uri(side), version=max(1, dataset.version - number)).restore()

    def overwrite(self, side: str, count: int) -> None:
        rows = vectors(self.next, count, name=VECTOR[side])
        self.next += count
        lance.write_dataset(rows, self.world.uri(side), mode="overwrite", max_rows_per_file=4)


# Appending most often: only then is there anything to go on from.
KINDS = ["append"] * 6 + ["delete", "update", "compact", "publish", "index", "restore", "overwrite"]
CHANGES = st.tuples(st.sampled_from(KINDS), st.sampled_from(["l", "r"]), st.integers(1, 9))
STEPS = st.lists(st.lists(CHANGES, min_size=1, max_size=2), min_size=1, max_size=5)


@settings(max_examples=examples(20))
@given(
    steps=STEPS,
    k=st.sampled_from([1, 2, 5, 40]),
    metric=st.sampled_from(["l2", "dot"]),
    kind=st.sampled_from(["inner", "left_outer"]),
    rank=st.booleans(),
    sizes=st.tuples(st.integers(0, 8), st.integers(0, 8)),
)
def test_incremental_runs_equal_a_full_join(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[list[tuple[str, str, int]]],
    k: int,
    metric: str,
    kind: str,
    rank: bool,
    sizes: tuple[int, int],
) -> None:
    world = LocalWorld(tmp_path_factory.mktemp("joined"))
    world.declare(k=k, metric=metric, join=kind, rank=rank)
    changes = Changes(world)
    for side, size in zip("lr", sizes, strict=True):
        changes.overwrite(side, size)
    world.converge()
    for step in steps:
        for change, side, number in step:
            act: Callable[[str, int], None] = getattr(changes, change)
            act(side, number)
        world.converge()


SIDES = {
    "table": lambda world, side: KnnSide(VECTOR[side], ("id",), (side,), table=side),
    "query": lambda world, side: KnnSide(
        VECTOR[side], ("id",), (side,), sql=f"select * from {side}"
    ),
    "files": lambda world, side: KnnSide(
        VECTOR[side], ("id",), (), format="parquet", uri=str(world.folder / side)
    ),
}


def export(world: JoinWorld) -> None:
    """The tables as folders of files, one for each fragment, written where rows are others."""
    for side in "lr":
        folder = world.folder / side
        folder.mkdir(exist_ok=True)
        parts = [fragment.to_table() for fragment in lance.dataset(world.uri(side)).get_fragments()]
        for number in range(max(len(parts), len(list(folder.iterdir())), 1)):
            path = folder / f"{number:05}.parquet"
            part = parts[number] if number < len(parts) else vectors(0, 0, name=VECTOR[side])
            rows = for_parquet(part)
            if not path.exists() or not parquet.read_table(path).equals(rows):
                parquet.write_table(rows, path)


@settings(max_examples=examples(40))
@given(
    steps=STEPS,
    kinds=st.tuples(st.sampled_from(sorted(SIDES)), st.sampled_from(sorted(SIDES))),
    format=st.sampled_from(["lance", "parquet"]),
    kind=st.sampled_from(["inner", "left_outer"]),
)
def test_sides_and_results_of_every_kind_converge(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[list[tuple[str, str, int]]],
    kinds: tuple[str, str],
    format: str,
    kind: str,
) -> None:
    world = JoinWorld(tmp_path_factory.mktemp("joined"))
    left, right = (SIDES[kind](world, side) for kind, side in zip(kinds, "lr", strict=True))
    world.declare(left=left, right=right, join=kind, k=3)
    world.declare(output_format=format, output_uri=str(world.folder / "result"))
    changes = Changes(world)
    for side in "lr":
        changes.overwrite(side, 6)
    for step in [[], *steps]:
        for change, side, number in step:
            getattr(changes, change)(side, number)
        export(world)
        world.converge()


def test_a_long_history_of_appends_is_never_joined_in_full_again(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    world.declare(k=5, join="left_outer", rank=True)
    changes = Changes(world)
    for side in "lr":
        changes.overwrite(side, 9)
    world.converge()
    for number in range(6):
        changes.append("lr"[number % 2], 3 + number)
        world.converge()
    assert world.scopes == ["full", *["new_left", "new_right"] * 3]


ALL = ("before", "near", "made")


@pytest.fixture
def chain(world: JoinWorld) -> JoinWorld:
    """`near` reads the result of `before` by another spelling; `made` is a table over it."""
    world.others = (before(world), Table("made", f"{world.join.output_uri}/", PLACE))
    left = KnnSide("v", ("id",), (), format="lance", uri=f"file://{world.uri('b')}/")
    world.declare(left=left)
    return world


def before(world: JoinWorld, **changes: Any) -> KnnJoin:
    left = KnnSide("v", ("id", "v"), ("l",), table="l")
    made = replace(world.join, name="before", output_uri=world.uri("b"), left=left, k=1)
    return replace(made, **changes)


def statuses(result: RunResult) -> dict[str, Status]:
    return {node.name: node.status for node in result.nodes}


def kinds(plan: Plan) -> dict[str, type]:
    return {action.node: type(action) for action in plan.actions}


def ran(world: JoinWorld) -> list[tuple[str, str]]:
    return [(work.node, work.scope.value) for work in world.works]


def test_readers_of_a_result_are_deferred_after_it(chain: JoinWorld) -> None:
    plan = chain.plan(*ALL)
    assert [action.node for action in plan.actions] == ["near", "before", "made"]
    assert kinds(plan) == {"near": Dependent, "before": JoinAction, "made": Dependent}
    near, _, made = plan.actions
    assert isinstance(near, Dependent)
    assert isinstance(made, Dependent)
    assert (near.dependencies, near.verb, near.reasons) == (("before",), "analyze", (Reason.NEW,))
    assert (made.dependencies, made.kind) == (("near",), "table")


def test_awaited_nodes_run_one_after_the_other(chain: JoinWorld) -> None:
    result = chain.run(*ALL)
    assert statuses(result) == dict.fromkeys(ALL, Status.SUCCESS)
    assert ran(chain) == [("before", "full"), ("near", "full")]
    assert {type(action) for action in chain.plan(*ALL).actions} == {Skip}
    assert chain.rows() == chain.expected()
    assert lance.dataset(chain.join.output_uri).config()["lance.stats.numRows"]


def test_a_deferred_node_reports_the_reasons_of_its_new_plan(chain: JoinWorld) -> None:
    chain.run(*ALL)
    chain.append("l", 50, 5)
    plan = chain.plan(*ALL)
    assert [action.verb for action in plan.actions] == ["refresh"] * 3
    result = chain.execute(plan)
    near, first, made = result.nodes
    assert near.reasons == first.reasons == ("rows_appended",)
    assert (made.fragments_scanned, made.fragments_total) == (1, 2)
    assert ran(chain)[2:] == [("before", "new_left"), ("near", "new_left")]
    assert chain.rows() == chain.expected()


def test_a_full_refresh_applies_to_deferred_nodes(chain: JoinWorld) -> None:
    chain.run(*ALL)
    chain.works.clear()
    result = chain.run(*ALL, full_refresh=True)
    assert [node.reasons for node in result.nodes] == [("full_refresh",)] * 3
    assert ran(chain) == [("before", "full"), ("near", "full")]


def test_without_the_first_join_others_read_the_existing_result(chain: JoinWorld) -> None:
    chain.run(*ALL)
    chain.append("l", 50, 5)
    assert kinds(chain.plan("near", "made")) == {"near": Skip, "made": Skip}


def test_nodes_that_depend_on_a_failed_join_are_skipped(chain: JoinWorld) -> None:
    def fail(work: JoinWork) -> None:
        raise ValueError("no")

    chain.before = fail
    result = chain.run(*ALL)
    assert statuses(result) == {
        "before": Status.ERROR,
        "near": Status.SKIPPED,
        "made": Status.SKIPPED,
    }
    messages = {node.name: node.message for node in result.nodes}
    assert messages["near"] == "it reads the result of 'before', which failed"
    assert messages["made"] == "it reads the result of 'near', which failed"
    chain.before = None
    assert statuses(chain.run(*ALL)) == dict.fromkeys(ALL, Status.SUCCESS)


def test_a_blocked_join_does_not_block_readers_of_its_last_result(chain: JoinWorld) -> None:
    chain.run(*ALL)
    broken = KnnSide("nope", ("id",), ("l",), table="l")
    chain.others = (before(chain, left=broken), chain.others[1])
    chain.append("r", 50, 5)
    result = chain.run(*ALL)
    assert statuses(result) == {
        "before": Status.ERROR,
        "near": Status.SUCCESS,
        "made": Status.SUCCESS,
    }
    assert chain.rows() == chain.expected()


def test_joins_that_read_each_other_terminate(chain: JoinWorld) -> None:
    """Their specification is refused if they spell the URIs alike."""
    circle = KnnSide("v", ("id", "v"), (), format="lance", uri=f"{chain.join.output_uri}/.")
    chain.others = (before(chain, left=circle), chain.others[1])
    result = chain.run(*ALL)
    assert set(statuses(result)) == set(ALL)
    assert Status.ERROR in statuses(result).values()
