"""Sides of joins: sources, filters, keys, one table on both, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from lancestat import Project
from lancestat.errors import Location, SideUnreadable
from lancestat.joins.action import JoinAction
from lancestat.joins.record import JoinGroups, decode_record
from lancestat.joins.search.work import JoinOutcome, JoinWork, Scope
from lancestat.presentation.words import stage_lines
from lancestat.runs.actions import Action, Blocked, OnStage, Reason, Skip
from lancestat.runs.result import planned
from lancestat.spec.model import KnnJoin, KnnSide, Target
from tests.joins.joined import JoinWorld, for_parquet, opened, vectors
from tests.joins.records import join_records
from tests.presentation.rendering import as_text
from tests.runs.world import PLACE, scan_locally
from tests.state.fresh import FreshState


@pytest.fixture
def rows(world: JoinWorld) -> Path:
    """The left rows as Parquet, which the join reads on its left."""
    path = world.folder / "rows"
    path.mkdir()
    parquet.write_table(for_parquet(vectors(0, 20, name="v")), path / "a.parquet")
    world.declare(left=files("parquet", path))
    return path


def files(format: str, path: Path | str, **changes: Any) -> KnnSide:
    return replace(KnnSide("v", ("id",), (), format=format, uri=str(path)), **changes)


def query(sql: str) -> KnnSide:
    return KnnSide("w", ("key",), ("r",), sql=sql)


def test_a_table_is_read_in_place_at_the_planned_version(world: JoinWorld) -> None:
    lance.dataset(world.uri("l")).delete("id = 3")
    table = world.planned().work.left.table
    assert table is not None
    assert (table.name, table.pin.uri, table.pin.version) == ("l", world.uri("l"), 2)
    assert [(fragment.id, fragment.start, fragment.rows) for fragment in table.fragments] == [
        (0, 0, 6),
        (1, 6, 7),
        (2, 13, 6),
    ]
    assert table.pin.manifest


def test_a_dataset_that_is_not_declared_is_a_table_too(world: JoinWorld) -> None:
    world.declare(left=files("lance", world.uri("l")))
    world.run()
    world.append("l", 50, 5)
    world.run()
    assert world.scopes == ["full", "new_left"]
    assert world.rows() == world.expected()


def test_without_a_selection_all_columns_are_shown(world: JoinWorld) -> None:
    world.declare(left=KnnSide("v", None, ("l",), table="l"))
    assert world.planned().work.left.select == ("key", "id", "v", "other")


def test_files_are_joined_again_only_when_their_listing_changes(
    world: JoinWorld, rows: Path
) -> None:
    assert world.planned().figures.counts.left_rows == 20
    world.run()
    assert isinstance(world.action(), Skip)
    (rows / "_SUCCESS").touch()
    assert isinstance(world.action(), Skip)
    parquet.write_table(for_parquet(vectors(20, 5, name="v")), rows / "b.parquet")
    assert world.planned().reasons == (Reason.INPUT_CHANGED,)
    world.run()
    assert world.rows() == world.expected()
    assert world.scopes == ["full", "full"]


def test_new_right_rows_over_files_on_the_left_are_joined_in_full(
    world: JoinWorld, rows: Path
) -> None:
    world.run()
    world.append("r", 50, 5)
    world.run()
    assert world.scopes == ["full", "full"]
    assert world.rows() == world.expected()


def test_a_query_is_identified_by_its_text_and_tables(world: JoinWorld) -> None:
    world.declare(right=query("select * from r"))
    world.run()
    assert isinstance(world.action(), Skip)
    lance.dataset(world.uri("r")).update_config({"a": "b"})
    assert isinstance(world.action(), Skip)
    world.append("r", 50, 5)
    assert world.planned().reasons == (Reason.INPUT_CHANGED,)
    world.run()
    assert world.rows() == world.expected()
    world.declare(right=query("select * from r where id > 3"))
    assert world.planned().reasons == (Reason.SPEC_CHANGED,)


def test_a_query_not_proven_unchanged_is_joined_again_with_a_reason(
    world: JoinWorld,
) -> None:
    world.declare(right=query("select *, rand() as x from r where id > (select max(y) from u)"))
    world.unproven = ("calls 'rand'", "reads what the project does not declare")
    world.run()
    action = world.planned()
    assert action.reasons == (Reason.INPUT_CHANGED,)
    assert action.notes == (
        "the right side may differ from run to run: its query calls 'rand', reads what the project "
        "does not declare",
    )
    world.unproven = ()
    world.run()
    assert isinstance(world.action(), Skip)


def test_a_query_that_was_never_analyzed_is_joined_again(world: JoinWorld) -> None:
    """The record is one of an earlier release."""
    world.declare(right=query("select * from r"))
    world.run()
    [made] = join_records(world.state).values()
    uri = world.join.output_uri
    stored = json.loads(made.stored(uri)[1])
    del stored["right"]["unproven"]
    record = decode_record(json.dumps(stored))
    assert record == replace(made, right=replace(made.right, unproven=None))
    [run] = world.state.runs(1)
    [node] = run.nodes
    world.state = FreshState()
    world.state.add_run(replace(run, nodes=(replace(node, record=record.stored(uri)),)))
    action = world.planned()
    assert action.reasons == (Reason.INPUT_CHANGED,)
    assert action.notes == (
        "whether the right side has changed is not known: its query was not analyzed yet",
    )


def test_settings_of_sql_are_part_of_a_query(world: JoinWorld) -> None:
    world.declare(right=query("select * from r"))
    world.run()
    world.spark_conf = {"spark.executor.memory": "2g", "spark.sql.catalog.other.password": "hush"}
    assert isinstance(world.action(), Skip)
    world.spark_conf = {"spark.sql.session.timeZone": "Asia/Kolkata"}
    assert world.planned().reasons == (Reason.INPUT_CHANGED,)


@pytest.mark.parametrize("place", ["gs://bucket/rows", "/no/such/table"])
def test_a_side_that_cannot_be_listed_is_always_joined(world: JoinWorld, place: str) -> None:
    world.declare(left=files("somebody.else", place))
    action = world.planned()
    note = f"changes of the left side cannot be detected from {place}"
    assert action.notes == (note,)


def test_secrets_in_a_uri_are_not_shown(world: JoinWorld) -> None:
    world.declare(
        left=files("csv", "gs://me:hunter2@bucket/rows", options={"password": "swordfish"})
    )
    text = repr(world.action())
    assert "hunter2" not in "".join(world.planned().notes)
    assert "swordfish" not in text


def write(world: JoinWorld, name: str, table: pa.Table) -> None:
    lance.write_dataset(table, world.uri(name), mode="overwrite")


def test_a_missing_column_blocks_the_join(world: JoinWorld) -> None:
    world.declare(left=replace(world.join.left, select=("idd",)))
    error = world.refused()
    assert str(error) == (
        f"LS454 {PLACE}  the left side of knn join 'near' names column 'idd', which "
        f"{world.uri('l')} does not have\n      hint: did you mean 'id'?"
    )


@pytest.mark.parametrize("column", ["id", "key"])
def test_a_column_without_vectors_blocks_the_join(world: JoinWorld, column: str) -> None:
    world.declare(right=replace(world.join.right, vector=column))
    error = world.refused()
    assert error.code == "LS455"
    assert f"names '{column}' as its vectors, which is of type" in error.message


@pytest.mark.parametrize("name", ["v", "id"])
def test_columns_of_files_are_checked_where_a_footer_is_readable(
    world: JoinWorld, rows: Path, name: str
) -> None:
    world.declare(left=replace(world.join.left, vector="id" if name == "id" else "nope"))
    assert world.refused().code == ("LS455" if name == "id" else "LS454")


def test_vectors_of_different_lengths_block_the_join(world: JoinWorld) -> None:
    write(world, "r", vectors(0, 5, name="w", dimension=3))
    error = world.refused()
    assert error.code == "LS456"
    assert "2 elements on the left and 3 on the right" in error.message
    assert error.location == PLACE


def test_lists_of_any_length_are_for_the_run_to_compare(world: JoinWorld) -> None:
    rows = vectors(0, 5, name="w", dimension=3)
    lists = rows.column("w").combine_chunks().cast(pa.list_(pa.float32()))
    write(world, "r", rows.set_column(2, "w", lists))
    assert world.planned().verb == "analyze"


@pytest.mark.parametrize("type", [pa.float16(), pa.float64()])
def test_vectors_of_other_float_types_are_joined(world: JoinWorld, type: pa.DataType) -> None:
    values = np.ones((4, 2), dtype=f"f{type.bit_width // 8}")
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel(), type), 2)
    write(world, "r", pa.table({"key": ["a"] * 4, "id": range(4), "w": column}))
    assert world.planned().verb == "analyze"


def test_missing_files_block_the_join(world: JoinWorld) -> None:
    world.declare(left=files("parquet", world.folder / "none"))
    assert world.refused().code == "LS457"
    (world.folder / "none").mkdir()
    assert world.refused().code == "LS457"


def test_clashing_column_names_block_the_join(world: JoinWorld) -> None:
    world.declare(
        left=KnnSide("v", ("id", "other"), ("l",), table="l"),
        right=KnnSide("w", ("ID_right", "id"), ("r",), table="r"),
    )
    write(world, "r", vectors(0, 5, name="w").append_column("ID_right", pa.array([1] * 5)))
    error = world.refused()
    assert (error.code, error.location) == ("LS452", PLACE)


@pytest.mark.parametrize("where", ["on the left", "on the right", "in a query", "inside", "around"])
def test_an_output_that_is_an_input_is_refused(world: JoinWorld, where: str) -> None:
    output = world.uri("r")
    match where:
        case "on the left":
            output = f"file://{world.uri('l')}/"
        case "in a query":
            world.declare(right=query("select * from r"))
        case "inside":
            output = f"{world.uri('r')}/inner"
        case "around":
            output = str(world.folder)
    world.declare(output_uri=output)
    assert world.refused().code == "LS112"


def test_an_output_among_the_files_of_an_input_is_refused(world: JoinWorld, rows: Path) -> None:
    world.declare(left=files("parquet", rows / "*.parquet"))
    world.declare(output_format="parquet", output_uri=str(rows / "out.parquet"))
    assert world.refused().code == "LS112"


def test_parquet_output_in_an_object_store_is_refused(world: JoinWorld) -> None:
    world.declare(output_format="parquet", output_uri="s3://bucket/near")
    assert world.refused().code == "LS572"


def test_a_table_that_is_not_a_result_is_not_overwritten(world: JoinWorld) -> None:
    rows = vectors(0, 3, name="v")
    lance.write_dataset(rows, world.join.output_uri)
    assert world.refused().code == "LS570"
    assert lance.dataset(world.join.output_uri).to_table() == rows


def other(name: str, format: str, world: JoinWorld, **sides: KnnSide) -> KnnJoin:
    uri = str(world.folder / f"{name}.{format}")
    return replace(world.join, name=name, output_format=format, output_uri=uri, **sides)


def test_a_query_cannot_name_a_result_that_is_parquet(world: JoinWorld) -> None:
    world.others = (other("before", "parquet", world),)
    world.declare(right=KnnSide("w", ("key",), ("before",), sql="select * from before"))
    error = world.refused()
    assert error.code == "LS458"
    assert "names 'before', whose result is no Lance dataset" in error.message


def test_a_side_may_be_a_result_that_is_parquet(world: JoinWorld) -> None:
    left = KnnSide("v", ("id", "v"), ("l",), table="l")
    world.others = (other("before", "parquet", world, left=left),)
    world.declare(left=KnnSide("v", ("id",), ("before",), table="before"))
    result = world.run("before", "near")
    assert [node.status for node in result.nodes] == ["success", "success"]
    assert isinstance(world.action(), Skip)
    assert world.rows() == world.expected()


@pytest.mark.parametrize(
    ("master", "conf", "cores"),
    [
        ("local[3]", {}, 3),
        ("local[8,4]", {"spark.task.cpus": "2"}, 4),
        ("local", {}, 1),
        ("spark://host:7077", {}, 0),
        (None, {"spark.master": "local[5]"}, 5),
        (None, {}, 0),
        ("local[2]", {"spark.task.cpus": "many"}, 2),
    ],
)
def test_cores_are_known_on_a_local_master_only(
    master: str | None, conf: dict[str, str], cores: int
) -> None:
    from lancestat.joins.node import planned_cores

    assert planned_cores(Target("t", "s", spark_master=master, spark_conf=conf)) == cores


WHERE = Location("specs/near.yml", 7, 12)


@pytest.fixture
def filtered(world: JoinWorld) -> JoinWorld:
    filter(world, "left", "id < 12 or id >= 100")
    filter(world, "right", "id > 3 and key not like '%7'")
    return world


def filter(world: JoinWorld, side: str, where: str | None) -> None:
    changed = replace(getattr(world.join, side), where=where, where_location=WHERE)
    world.declare(**{side: changed})


def test_only_rows_that_pass_are_joined(filtered: JoinWorld) -> None:
    filtered.run()
    ids = {(row["id"], row["id_right"]) for row in filtered.rows()}
    assert {left for left, _ in ids} <= set(range(12))
    assert {right for _, right in ids} <= set(range(4, 30)) - {7, 17, 27}
    assert filtered.rows() == filtered.expected()
    assert isinstance(filtered.action(), Skip)


def test_a_plan_does_not_know_how_many_rows_pass(filtered: JoinWorld) -> None:
    action = filtered.action()
    assert isinstance(action, JoinAction)
    assert (action.figures.counts.left_rows, action.figures.counts.right_rows) == (None, None)
    filtered.run()
    filtered.append("l", 98, 9)
    action = filtered.action()
    assert isinstance(action, JoinAction)
    note = "only new left rows that pass the filter are joined, and put behind the result"
    assert action.notes == (note,)


@pytest.mark.parametrize("change", ["a value that is compared", "the filter", "no filter"])
def test_what_may_select_other_rows_is_joined_in_full(filtered: JoinWorld, change: str) -> None:
    filter(filtered, "right", "other = 0")
    filtered.run()
    match change:
        case "a value that is compared":
            lance.dataset(filtered.uri("r")).update({"other": "1"}, where="id = 9")
        case "the filter":
            filter(filtered, "right", "other <= 0")
        case "no filter":
            filter(filtered, "right", None)
    [reason] = filtered.action().reasons
    assert reason in (Reason.INPUT_CHANGED, Reason.SPEC_CHANGED)
    filtered.run()
    assert filtered.scopes == ["full", "full"]
    assert filtered.rows() == filtered.expected()


def test_columns_that_are_not_read_change_nothing(filtered: JoinWorld) -> None:
    filtered.run()
    lance.dataset(filtered.uri("r")).update({"other": "1"}, where="id = 9")
    # The update rewrites the row, and with it all columns of its fragment.
    assert isinstance(filtered.action(), JoinAction)
    lance.dataset(filtered.uri("l")).add_columns({"more": "id + 1"})
    filtered.run()
    assert isinstance(filtered.action(), Skip)


def test_a_vector_index_is_not_searched_under_a_filter(filtered: JoinWorld) -> None:
    rows = vectors(0, 600, name="w")
    lance.write_dataset(rows, filtered.uri("r"), mode="overwrite")
    lance.dataset(filtered.uri("r")).create_index("w", "IVF_FLAT", num_partitions=2, metric="l2")
    filtered.declare(mode="approx", recall=0.9, min_right_rows=0, metric="l2")
    action = filtered.action()
    assert isinstance(action, JoinAction)
    assert action.decision.strategy.value == "ivf"
    filter(filtered, "right", None)
    action = filtered.action()
    assert isinstance(action, JoinAction)
    assert action.decision.strategy.value == "index"


def test_an_unknown_column_is_refused_with_its_place(filtered: JoinWorld) -> None:
    filter(filtered, "right", "idd < 20")
    assert str(filtered.refused()) == (
        f"LS454 {WHERE}  the right side of knn join 'near' names column 'idd', which "
        f"{filtered.uri('r')} does not have\n      hint: did you mean 'id'?"
    )


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("id < ", "has its end where a literal is expected"),
        ("id < 'x'", "compares 'id', which is of type int64, with 'x'"),
        ("w is null and wide = 0.1", "compares what Lance does not compare as Spark does"),
    ],
)
def test_what_cannot_be_pushed_is_refused_with_its_place(
    filtered: JoinWorld, where: str, reason: str
) -> None:
    rows = vectors(0, 5, name="w").append_column("wide", pa.array([None] * 5, pa.decimal256(9, 2)))
    lance.write_dataset(rows, filtered.uri("r"), mode="overwrite")
    filter(filtered, "right", where)
    error = filtered.refused()
    assert (error.code, error.location) == ("LS461", WHERE)
    assert error.message == f"'where' of the right side of knn join 'near' {reason}"


def test_a_result_that_is_parquet_has_no_filter(filtered: JoinWorld) -> None:
    uri = str(filtered.folder / "before.parquet")
    before = replace(filtered.join, name="before", output_format="parquet", output_uri=uri)
    filtered.others = (before,)
    parquet.write_table(for_parquet(vectors(0, 5, name="v")), uri)
    side = KnnSide("v", ("id",), ("before",), table="before", where="id < 3", where_location=WHERE)
    filtered.declare(left=side)
    error = filtered.refused()
    assert (error.code, error.location) == ("LS461", WHERE)


def test_a_side_without_a_filter_is_placed_where_it_is_declared(filtered: JoinWorld) -> None:
    filter(filtered, "right", None)
    filtered.declare(right=replace(filtered.join.right, select=("nope",)))
    assert filtered.refused().location == PLACE


@pytest.fixture
def keyed_world(tmp_path: Path) -> JoinWorld:
    for name, column in (("l", "v"), ("r", "w")):
        uri = str(tmp_path / f"{name}.lance")
        lance.write_dataset(keyed(0, 20, column), uri, max_rows_per_file=7)
    world = JoinWorld(tmp_path)
    world.declare(on=(("shop", "shop"),), on_location=ON)
    return world


ON = Location("specs/near.yml", 9, 5)


def keyed(start: int, count: int, name: str) -> pa.Table:
    shops = [None if n % 10 == 9 else n % 3 for n in range(start, start + count)]
    rows = vectors(start, count, name=name).append_column("shop", pa.array(shops, pa.int32()))
    return rows.append_column("half", pa.array([0.5] * count, pa.float32()))


def test_a_plan_says_that_rows_are_grouped(keyed_world: JoinWorld) -> None:
    action = keyed_world.action()
    assert isinstance(action, JoinAction)
    assert stage_lines(action) == [
        "strategy: exact, only rows with equal keys are compared, which the run counts",
        "group: the rows of both sides are written to scratch by the keys that they share",
        "probe: left rows against right rows",
        f"commit: written to {keyed_world.uri('near')} as lance",
    ]
    assert (action.decision.pairs, action.decision.seconds) == (None, None)


def test_an_approximate_join_with_keys_compares_every_pair_of_a_group(
    keyed_world: JoinWorld,
) -> None:
    keyed_world.declare(mode="approx", recall=0.9)
    action = keyed_world.action()
    assert isinstance(action, JoinAction)
    assert action.decision.strategy.value == "exact"
    assert action.decision.why.startswith(
        "rows with equal keys are few enough to compare every pair of them, "
    )


def test_a_missing_key_is_refused_with_its_place(keyed_world: JoinWorld) -> None:
    keyed_world.declare(on=(("shop", "shp"),))
    assert str(keyed_world.refused()) == (
        f"LS454 {ON}  the right side of knn join 'near' names column 'shp', which "
        f"{keyed_world.uri('r')} does not have\n      hint: did you mean 'shop'?"
    )


def test_a_missing_key_of_files_is_refused_with_its_place(keyed_world: JoinWorld) -> None:
    path = keyed_world.folder / "rows.parquet"
    parquet.write_table(for_parquet(vectors(0, 5, name="w")), path)
    side = replace(keyed_world.join.right, table=None, refs=(), format="parquet", uri=str(path))
    keyed_world.declare(right=side)
    error = keyed_world.refused()
    assert (error.code, error.location) == ("LS454", ON)


@pytest.mark.parametrize(("left", "right"), [("shop", "key"), ("half", "half")])
def test_keys_that_cannot_be_compared_are_refused_with_their_place(
    keyed_world: JoinWorld, left: str, right: str
) -> None:
    keyed_world.declare(on=((left, right),))
    error = keyed_world.refused()
    assert (error.code, error.location) == ("LS462", ON)
    assert f"the left key '{left}' is of type" in error.message


def test_a_plan_shows_what_the_last_run_found_of_keys(keyed_world: JoinWorld) -> None:
    assert (shown(keyed_world).reads, shown(keyed_world).choice) == (
        "exact, 20 x 20 rows",
        f"{BY_KEYS}, which the run counts",
    )
    [node] = keyed_world.run().nodes
    made = node.figures
    assert made is not None and made.groups == 3 and made.pairs is not None
    known = JoinGroups(3, made.pairs, 20, 20)
    assert join_records(keyed_world.state)["near"].groups == known
    again = keyed_world.action(full_refresh=True)
    assert isinstance(again, JoinAction)
    assert again.reads.startswith("exact, 20 x 20 rows, about ")
    assert again.choice == f"{BY_KEYS}, 3 groups and {made.pairs} pairs in the last full run"
    assert (again.figures.groups, again.figures.pairs) == (3, made.pairs)
    assert again.figures.estimated_seconds is not None
    skipped = planned(keyed_world.action()).to_json()
    assert (skipped["groups"], skipped["pairs"]) == (3, None)
    # What was found of other keys is not shown.
    keyed_world.declare(on=(("other", "other"),))
    assert shown(keyed_world).choice == f"{BY_KEYS}, which the run counts"


def test_new_left_rows_leave_what_is_known_of_all_keys(keyed_world: JoinWorld) -> None:
    keyed_world.run()
    known = join_records(keyed_world.state)["near"].groups
    assert known is not None
    lance.write_dataset(keyed(30, 5, "v"), keyed_world.uri("l"), mode="append")
    action = keyed_world.action()
    assert isinstance(action, JoinAction) and action.work.scope is Scope.NEW_LEFT
    assert action.figures.pairs == known.pairs * 5 // 20
    assert f"{known.pairs} pairs in the last full run" in as_text(keyed_world.plan(), width=160)
    keyed_world.run()
    assert join_records(keyed_world.state)["near"].groups == known


BY_KEYS = "exact: only rows with equal keys are compared"


def shown(world: JoinWorld) -> Action:
    return world.plan().actions[0]


SELF = Location("specs/near.yml", 11, 5)


@pytest.fixture
def same(world: JoinWorld) -> JoinWorld:
    write(world, "r", vectors(0, 20, name="v"))
    side = KnnSide("v", ("id",), ("l",), table="l")
    world.declare(left=side, right=side, exclude_self=True, self_location=SELF)
    return world


@pytest.mark.parametrize("mode", ["exact", "approx"])
def test_a_self_join_compares_every_pair(same: JoinWorld, mode: str) -> None:
    same.declare(mode=mode, recall=0.9 if mode == "approx" else None)
    action = same.action()
    assert isinstance(action, JoinAction)
    assert action.decision.strategy.value == "exact"
    assert action.decision.why == "every pair of rows of the table is to be compared"
    assert (action.work.request.k, action.work.request.searched) == (
        2,
        6 if mode == "exact" else 3,
    )


def test_a_table_by_its_name_and_by_its_place_is_one(same: JoinWorld) -> None:
    same.declare(right=KnnSide("v", ("id",), format="lance", uri=same.uri("l")))
    assert isinstance(same.action(), JoinAction)


@pytest.mark.parametrize("key", ["exclude_self", "pairs: unordered"])
@pytest.mark.parametrize("other", ["table", "query", "files"])
def test_sides_that_are_not_the_same_rows_are_refused(
    same: JoinWorld, key: str, other: str
) -> None:
    if key != "exclude_self":
        same.declare(exclude_self=False, pairs="unordered")
    side = same.join.right
    match other:
        case "table":
            same.declare(right=replace(side, table="r", refs=("r",)))
        case "query":
            query = replace(side, table=None, sql="select * from l")
            same.declare(left=query, right=query)
        case "files":
            same.declare(right=replace(side, table=None, refs=(), format="csv", uri="gs://b/x"))
    action = same.action()
    assert isinstance(action, Blocked)
    assert (action.error.code, action.error.location) == ("LS463", SELF)
    assert action.error.message == f"'{key}' of knn join 'near' needs one Lance table on both sides"


PROJECT = "name: shop\ndefault_target: dev\ntargets: {dev: {state: state, scratch: scratch}}\n"
SPECS = """\
tables: [{name: l, uri: l.lance, columns: [id]}]
knn_joins:
  - name: near
    left: {table: l, vector: v}
    right: {sql: "select {{ env_var('%s') }} from {{ ref('l') }}", vector: v}
    k: 1
    output: {lance: near.lance}
"""
PIECE = "qzpiece"


def refuse(work: JoinWork, on_stage: OnStage) -> JoinOutcome:
    raise SideUnreadable(f"the right side cannot be read: syntax error at or near '{PIECE}'")


@pytest.mark.parametrize(
    ("variable", "is_secret"), [("W_QUERY", False), ("W_TOKEN", True), (None, False)]
)
def test_parts_of_a_query_are_shown_only_when_it_is_not_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, is_secret: bool
) -> None:
    monkeypatch.setenv(variable or "W_OTHER", f"v, 1 as {PIECE}, 2 as b")
    lance.write_dataset(vectors(0, 10, name="v"), str(tmp_path / "l.lance"))
    specs = SPECS % variable if variable else SPECS.replace("{{ env_var('%s') }}", "v")
    (tmp_path / "lancestat_project.yml").write_text(PROJECT)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "shop.yml").write_text(specs)
    scan_locally(monkeypatch, open_join=opened(refuse))

    project = Project.load(tmp_path)
    node = project.run().nodes[-1]
    message = node.message or ""
    assert node.code == "LS555"
    assert (PIECE in message) is not is_secret
    stored = project.state.outcomes("shop", "dev", 1)["near"][0].nodes[0].result
    remembered = stored["message"]
    assert stored["code"] == "LS555"
    assert (PIECE in remembered) is (variable is None)
    if variable:
        assert f"env_var('{variable}')" in remembered
