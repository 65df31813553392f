"""After any changes of the sides between runs, the result equals that of a full join."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from lancestat.runs.actions import Skip
from lancestat.spec.model import KnnSide
from tests.examples import examples
from tests.joins.joined import JoinWorld, for_parquet, vectors

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


@settings(max_examples=examples(60))
@given(
    steps=STEPS,
    k=st.sampled_from([1, 2, 5, 40]),
    metric=st.sampled_from(["l2", "cosine", "dot"]),
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
    world = JoinWorld(tmp_path_factory.mktemp("joined"))
    world.declare(k=k, metric=metric, join=kind, rank=rank)
    changes = Changes(world)
    for side, size in zip("lr", sizes, strict=True):
        changes.overwrite(side, size)
    converge(world)
    for step in steps:
        for change, side, number in step:
            act: Callable[[str, int], None] = getattr(changes, change)
            act(side, number)
        converge(world)


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
        converge(world)


def converge(world: JoinWorld) -> None:
    assert world.run().status == "success"
    assert world.rows() == world.expected()
    assert isinstance(world.action(), Skip)


def test_a_long_history_of_appends_is_never_joined_in_full_again(tmp_path: Path) -> None:
    world = JoinWorld(tmp_path)
    world.declare(k=5, join="left_outer", rank=True)
    changes = Changes(world)
    for side in "lr":
        changes.overwrite(side, 9)
    converge(world)
    for number in range(6):
        changes.append("lr"[number % 2], 3 + number)
        converge(world)
    assert world.scopes == ["full", *["new_left", "new_right"] * 3]
