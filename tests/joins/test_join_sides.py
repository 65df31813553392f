"""Sides of joins: supported sources, their facts at planning, and refused ones."""

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

from lancestat.errors import LancestatError
from lancestat.joins.action import JoinAction
from lancestat.joins.record import decode_record, join_records, stored_record
from lancestat.runs.actions import Blocked, Reason, Skip
from lancestat.spec.model import KnnJoin, KnnSide, Target
from tests.joins.joined import JoinWorld, for_parquet, vectors
from tests.runs.world import PLACE
from tests.state.memory import MemoryState


@pytest.fixture
def world(tmp_path: Path) -> JoinWorld:
    lance.write_dataset(vectors(0, 20, name="v"), str(tmp_path / "l.lance"), max_rows_per_file=7)
    lance.write_dataset(vectors(0, 30, name="w"), str(tmp_path / "r.lance"), max_rows_per_file=9)
    return JoinWorld(tmp_path)


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


def planned(world: JoinWorld) -> JoinAction:
    action = world.action()
    assert isinstance(action, JoinAction), action
    return action


def refused(world: JoinWorld) -> LancestatError:
    action = world.action()
    assert isinstance(action, Blocked), action
    return action.error


def test_a_table_is_read_in_place_at_the_planned_version(world: JoinWorld) -> None:
    lance.dataset(world.uri("l")).delete("id = 3")
    table = planned(world).work.left.table
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
    lance.write_dataset(vectors(50, 5, name="v"), world.uri("l"), mode="append")
    world.run()
    assert world.scopes == ["full", "new_left"]
    assert world.rows() == world.expected()


def test_without_a_selection_all_columns_are_shown(world: JoinWorld) -> None:
    world.declare(left=KnnSide("v", None, ("l",), table="l"))
    assert planned(world).work.left.select == ("key", "id", "v", "other")


def test_files_are_joined_again_only_when_their_listing_changes(
    world: JoinWorld, rows: Path
) -> None:
    assert planned(world).figures.counts.left_rows == 20
    world.run()
    assert isinstance(world.action(), Skip)
    (rows / "_SUCCESS").touch()
    assert isinstance(world.action(), Skip)
    parquet.write_table(for_parquet(vectors(20, 5, name="v")), rows / "b.parquet")
    assert planned(world).reasons == (Reason.INPUT_CHANGED,)
    world.run()
    assert world.rows() == world.expected()
    assert world.scopes == ["full", "full"]


def test_new_right_rows_over_files_on_the_left_are_joined_in_full(
    world: JoinWorld, rows: Path
) -> None:
    world.run()
    lance.write_dataset(vectors(50, 5, name="w"), world.uri("r"), mode="append")
    world.run()
    assert world.scopes == ["full", "full"]
    assert world.rows() == world.expected()


def test_only_new_left_rows_are_joined_with_files(world: JoinWorld) -> None:
    path = world.folder / "right.parquet"
    parquet.write_table(for_parquet(vectors(0, 30, name="w")), path)
    world.declare(right=files("parquet", path, vector="w", select=("key",)))
    world.run()
    lance.write_dataset(vectors(50, 5, name="v"), world.uri("l"), mode="append")
    world.run()
    assert world.scopes == ["full", "new_left"]
    assert world.rows() == world.expected()


def test_a_query_is_identified_by_its_text_and_tables(world: JoinWorld) -> None:
    world.declare(right=query("select * from r"))
    world.run()
    assert isinstance(world.action(), Skip)
    lance.dataset(world.uri("r")).update_config({"a": "b"})
    assert isinstance(world.action(), Skip)
    lance.write_dataset(vectors(50, 5, name="w"), world.uri("r"), mode="append")
    assert planned(world).reasons == (Reason.INPUT_CHANGED,)
    world.run()
    assert world.rows() == world.expected()
    world.declare(right=query("select * from r where id > 3"))
    assert planned(world).reasons == (Reason.SPEC_CHANGED,)


def test_a_query_not_proven_unchanged_is_joined_again_with_a_reason(
    world: JoinWorld,
) -> None:
    world.declare(right=query("select *, rand() as x from r where id > (select max(y) from u)"))
    world.unproven = ("calls 'rand'", "reads what the project does not declare")
    world.run()
    action = planned(world)
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
    stored = json.loads(stored_record(made).json)
    del stored["right"]["unproven"]
    record = decode_record(json.dumps(stored))
    assert record == replace(made, right=replace(made.right, unproven=None))
    [run] = world.state.runs(1)
    [node] = run.nodes
    world.state = MemoryState()
    world.state.add_run(replace(run, nodes=(replace(node, record=stored_record(record)),)))
    action = planned(world)
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
    assert planned(world).reasons == (Reason.INPUT_CHANGED,)


@pytest.mark.parametrize("place", ["gs://bucket/rows", "/no/such/table"])
def test_a_side_that_cannot_be_listed_is_always_joined(world: JoinWorld, place: str) -> None:
    world.declare(left=files("somebody.else", place))
    action = planned(world)
    note = f"changes of the left side cannot be detected from {place}"
    assert action.notes == (note,)


def test_secrets_in_a_uri_are_not_shown(world: JoinWorld) -> None:
    world.declare(
        left=files("csv", "gs://me:hunter2@bucket/rows", options={"password": "swordfish"})
    )
    text = repr(world.action())
    assert "hunter2" not in "".join(planned(world).notes)
    assert "swordfish" not in text


def write(world: JoinWorld, name: str, table: pa.Table) -> None:
    lance.write_dataset(table, world.uri(name), mode="overwrite")


def test_a_missing_column_blocks_the_join(world: JoinWorld) -> None:
    world.declare(left=replace(world.join.left, select=("idd",)))
    error = refused(world)
    assert str(error) == (
        f"LS454 {PLACE}  the left side of knn join 'near' names column 'idd', which "
        f"{world.uri('l')} does not have\n      hint: did you mean 'id'?"
    )


@pytest.mark.parametrize("column", ["id", "key"])
def test_a_column_without_vectors_blocks_the_join(world: JoinWorld, column: str) -> None:
    world.declare(right=replace(world.join.right, vector=column))
    error = refused(world)
    assert error.code == "LS455"
    assert f"names '{column}' as its vectors, which is of type" in error.message


@pytest.mark.parametrize("name", ["v", "id"])
def test_columns_of_files_are_checked_where_a_footer_is_readable(
    world: JoinWorld, rows: Path, name: str
) -> None:
    world.declare(left=replace(world.join.left, vector="id" if name == "id" else "nope"))
    assert refused(world).code == ("LS455" if name == "id" else "LS454")


def test_vectors_of_different_lengths_block_the_join(world: JoinWorld) -> None:
    write(world, "r", vectors(0, 5, name="w", dimension=3))
    error = refused(world)
    assert error.code == "LS456"
    assert "2 elements on the left and 3 on the right" in error.message
    assert error.location == PLACE


def test_lists_of_any_length_are_for_the_run_to_compare(world: JoinWorld) -> None:
    rows = vectors(0, 5, name="w", dimension=3)
    lists = rows.column("w").combine_chunks().cast(pa.list_(pa.float32()))
    write(world, "r", rows.set_column(2, "w", lists))
    assert planned(world).verb == "analyze"


@pytest.mark.parametrize("type", [pa.float16(), pa.float64()])
def test_vectors_of_other_float_types_are_joined(world: JoinWorld, type: pa.DataType) -> None:
    values = np.ones((4, 2), dtype=f"f{type.bit_width // 8}")
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel(), type), 2)
    write(world, "r", pa.table({"key": ["a"] * 4, "id": range(4), "w": column}))
    assert planned(world).verb == "analyze"


def test_missing_files_block_the_join(world: JoinWorld) -> None:
    world.declare(left=files("parquet", world.folder / "none"))
    assert refused(world).code == "LS457"
    (world.folder / "none").mkdir()
    assert refused(world).code == "LS457"


def test_clashing_column_names_block_the_join(world: JoinWorld) -> None:
    world.declare(
        left=KnnSide("v", ("id", "other"), ("l",), table="l"),
        right=KnnSide("w", ("ID_right", "id"), ("r",), table="r"),
    )
    write(world, "r", vectors(0, 5, name="w").append_column("ID_right", pa.array([1] * 5)))
    error = refused(world)
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
    assert refused(world).code == "LS112"


def test_an_output_among_the_files_of_an_input_is_refused(world: JoinWorld, rows: Path) -> None:
    world.declare(left=files("parquet", rows / "*.parquet"))
    world.declare(output_format="parquet", output_uri=str(rows / "out.parquet"))
    assert refused(world).code == "LS112"


def test_parquet_output_in_an_object_store_is_refused(world: JoinWorld) -> None:
    world.declare(output_format="parquet", output_uri="s3://bucket/near")
    assert refused(world).code == "LS572"


def test_a_table_that_is_not_a_result_is_not_overwritten(world: JoinWorld) -> None:
    rows = vectors(0, 3, name="v")
    lance.write_dataset(rows, world.join.output_uri)
    assert refused(world).code == "LS570"
    assert lance.dataset(world.join.output_uri).to_table() == rows


def other(name: str, format: str, world: JoinWorld, **sides: KnnSide) -> KnnJoin:
    uri = str(world.folder / f"{name}.{format}")
    return replace(world.join, name=name, output_format=format, output_uri=uri, **sides)


def test_a_query_cannot_name_a_result_that_is_parquet(world: JoinWorld) -> None:
    world.others = (other("before", "parquet", world),)
    world.declare(right=KnnSide("w", ("key",), ("before",), sql="select * from before"))
    error = refused(world)
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
