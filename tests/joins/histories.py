"""Random histories of tables that are joined after each change, compared with NumPy.

python -m tests.joins.histories --histories 1000
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import compute as pc

from lancestat.joins.record import JoinRecord
from lancestat.joins.search import cost_model
from lancestat.joins.search.cost_model import Costs, Decision, KeptIndex, Strategy
from lancestat.joins.spark import cells
from lancestat.runs.actions import Skip
from lancestat.spec.model import KnnSide
from tests.joins.joined import vectors
from tests.joins.local import LocalWorld
from tests.joins.records import join_records

Row = tuple[Any, ...]


@contextmanager
def every_list() -> Iterator[None]:
    """Let joins in mode approx search small tables in a few lists, all of which they visit."""

    def in_lists(costs: Costs, lists: int, kept: KeptIndex | None = None) -> list[Decision]:
        decision = Decision(Strategy.IVF, "", 1, 0.0, lists=lists, kept=kept)
        return [decision] if lists <= 4 or kept is not None else []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost_model, "LEAST_LIST_ROWS", 2)
        patch.setattr(cost_model, "FEWEST_LISTS", 2)
        # Comparing takes so long that there are many tasks, and that lists are worth it.
        patch.setattr(cost_model, "BLOCK_FLOPS", 1.0)
        patch.setattr(cells, "BLOCK_FLOPS", 1.0)
        patch.setattr(Costs, "in_lists", in_lists)
        yield


def run_history(
    seed: int, folder: Path, steps: int = 5, *, is_approximate: bool = False
) -> list[str]:
    """Run a history, and return the scopes of its runs.

    An approximate join visits all lists, so that its result is that of an exact one.
    """
    chosen = random.Random(seed)
    world = LocalWorld(folder)
    names = {"l": "v", "r": "w"}
    sides = ["l", "r"]
    world.declare(**_declared(chosen, world))
    if is_approximate:
        world.declare(mode="approx", nprobes=100_000)
    if world.join.self_location is not None:
        sides = ["l"]
    for side in sides:
        rows = rows_of(0, chosen.randrange(1, 40), names[side])
        lance.write_dataset(
            rows,
            world.uri(side),
            max_rows_per_file=chosen.choice([3, 8, 50]),
            enable_stable_row_ids=chosen.random() < 0.2,
        )
    check(world)
    for step in range(1, steps + 1):
        for side in sides if chosen.random() < 0.5 else [chosen.choice(sides)]:
            for _ in range(chosen.choice([1, 1, 2])):
                change(chosen, world.uri(side), names[side], 100 * step)
        check(world)
        if world.join.output_format == "lance" and chosen.random() < 0.3:
            compact(chosen, world.join.output_uri)
    return world.scopes


def rows_of(first: int, count: int, vector: str) -> pa.Table:
    """Rows with a key of few values, some of them null, besides what `vectors` has."""
    kinds = [None if n % 6 == 4 else n % 3 for n in range(first, first + count)]
    rows = vectors(first, count, name=vector)
    return rows.append_column("kind", pa.array(kinds, pa.int64()))


def _declared(chosen: random.Random, world: LocalWorld) -> dict[str, Any]:
    k: int | str = chosen.choice([1, 2, 5, "all"])
    most = chosen.choice([1.5, 3.0]) if k == "all" or chosen.random() < 0.4 else None
    metric = chosen.choice(["l2", "l2", "cosine", "dot"])
    if metric != "l2" and most is not None:
        most = most - 1.0
    declared: dict[str, Any] = {
        "k": k,
        "metric": metric,
        "max_distance": most,
        "join": chosen.choice(["inner", "left_outer"]),
        "rank": chosen.random() < 0.3,
        "min_right_rows": 0,
        "on": chosen.choice([(), (("kind", "kind"),)]),
        "output_format": chosen.choice(["lance", "parquet"]),
        "output_uri": str(world.folder / "result"),
    }
    where = chosen.choice([None, None, "id < 30", "id <> 3"])
    left = replace(world.join.left, select=chosen.choice([("id",), ("id", "key"), ()]))
    right = replace(world.join.right, where=where)
    if chosen.random() < 0.25:
        left = KnnSide("v", ("id", "key"), table="l", refs=("l",))
        right = KnnSide("v", ("id",), table="l", refs=("l",), where=where)
        declared |= {"self_location": world.join.location}
        declared |= chosen.choice([{"exclude_self": True}, {"pairs": "unordered"}])
    return {**declared, "left": left, "right": right}


def change(chosen: random.Random, uri: str, vector: str, first: int) -> None:
    """Change a table at random, so that it keeps some rows."""
    dataset = lance.dataset(uri)
    some = f"id % {chosen.choice([2, 5, 11])} = {chosen.randrange(2)}"
    match chosen.choice(["append", "delete", "update", "compact", "merge", "restore", "column"]):
        case "append":
            rows = rows_of(first, chosen.randrange(1, 6), vector)
            lance.write_dataset(rows, uri, mode="append")
        case "delete" if dataset.count_rows(f"not ({some})"):
            dataset.delete(some)
        case "update":
            dataset.update({"id": "id + 1", vector: f"{vector}"}, where=some)
        case "merge":
            rows = rows_of(first, 4, vector)
            ids = dataset.to_table(columns=["key"]).column("key").to_pylist()
            keys = [chosen.choice([key, ids[0]]) for key in rows.column("key").to_pylist()]
            keys = [key for at, key in enumerate(keys) if key not in keys[:at]]
            rows = rows.slice(0, len(keys)).set_column(0, "key", pa.array(keys, pa.string()))
            merge = dataset.merge_insert("key").when_matched_update_all()
            merge.when_not_matched_insert_all().execute(rows)
        case "compact":
            compact(chosen, uri)
        case "restore" if dataset.version > 2:
            dataset = lance.dataset(uri, version=dataset.version - 1)
            if dataset.count_rows():
                dataset.restore()
        case "column":
            dataset.add_columns({f"c{dataset.version}": "id * 2"})
        case _:
            return


def compact(chosen: random.Random, uri: str) -> None:
    """Compact all fragments of a dataset into one, or the smaller ones into others."""
    lance.dataset(uri).optimize.compact_files(
        target_rows_per_fragment=chosen.choice([20, 1000]), materialize_deletions_threshold=0.0
    )


def check(world: LocalWorld) -> None:
    """Run the join, and compare its result and its counts with those by NumPy."""
    [result] = world.run().nodes
    assert result.status == "success", result.message
    rows, expected, record = world.rows(), expected_rows(world), join_records(world.state)["near"]
    made = Counter(
        tuple(round(value, 5) + 0.0 if name == "_distance" and value is not None else value
              for name, value in row.items())
        for row in rows
    )  # fmt: skip
    assert made == expected, (made - expected, expected - made)
    assert counted(record) == expected_counts(world), (counted(record), expected_counts(world))
    assert isinstance(world.action(), Skip)


def counted(record: JoinRecord) -> tuple[int, ...]:
    counts = record.counts
    return (
        counts.left_rows,
        counts.right_rows,
        counts.unmatched_left_rows,
        counts.excluded_right_rows,
        record.result.rows,
    )


def expected_counts(world: LocalWorld) -> tuple[int, ...]:
    left, right, near = matches(world)
    lines = sum(len(ranked) or world.join.join == "left_outer" for ranked in near)
    _, usable = usable_vectors(world, right, world.join.right)
    return (
        len(left), len(right), sum(not ranked for ranked in near), int((~usable).sum()), lines,
    )  # fmt: skip


def expected_rows(world: LocalWorld) -> Counter[Row]:
    join = world.join
    left, right, near = matches(world)
    shown_left, shown_right = (
        list(zip(*(rows.column(name).to_pylist() for name in side.select or ()), strict=True))
        or [()] * len(rows)
        for rows, side in ((left, join.left), (right, join.right))
    )
    lines: Counter[Row] = Counter()
    nothing = (None,) * (len(join.right.select or ()) + 1 + join.rank)
    for number, ranked in enumerate(near):
        for rank, (other, distance) in enumerate(ranked, 1):
            measures = (distance, rank) if join.rank else (distance,)
            lines[(*shown_left[number], *shown_right[other], *measures)] += 1
        if not ranked and join.join == "left_outer":
            lines[(*shown_left[number], *nothing)] += 1
    return lines


def matches(world: LocalWorld) -> tuple[pa.Table, pa.Table, list[list[tuple[int, float]]]]:
    """Return both sides, and the neighbours of each left row: right rows and their distances."""
    join = world.join
    left, right = (
        lance.dataset(world.uri(side.table or "")).to_table(
            filter=side.where, with_row_address=True
        )
        for side in (join.left, join.right)
    )
    (one, usable_left), (two, usable_right) = (
        usable_vectors(world, rows, side) for rows, side in ((left, join.left), (right, join.right))
    )
    with np.errstate(all="ignore"):
        products = (one[:, None] * two[None]).sum(axis=2)
        match join.metric:
            case "l2":
                distances = ((one[:, None] - two[None]) ** 2).sum(axis=2)
            case "dot":
                distances = 1 - products
            case _:
                lengths = np.sqrt((one**2).sum(axis=1))[:, None] * np.sqrt((two**2).sum(axis=1))
                distances = 1 - products / lengths
    # Those of such vectors are far apart unless they are equal.
    distances = np.round(distances, 5) + 0.0
    may = usable_left[:, None] & usable_right
    if join.max_distance is not None:
        may &= distances <= join.max_distance
    if join.on:
        may &= left.column("kind").to_numpy()[:, None] == right.column("kind").to_numpy()
    if join.self_location is not None:
        own, other = (rows.column("_rowaddr").to_numpy() for rows in (left, right))
        may &= own[:, None] < other if join.pairs == "unordered" else own[:, None] != other
    most = len(right) if join.k == "all" else int(join.k)
    near = []
    for number in range(len(left)):
        others = np.flatnonzero(may[number])
        order = others[np.lexsort((others, distances[number, others]))][:most]
        near.append([(int(other), float(distances[number, other])) for other in order])
    return left, right, near


def usable_vectors(
    world: LocalWorld, rows: pa.Table, side: KnnSide
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return vectors, NaN in place of null ones, and which of them can match, keys considered."""
    values = [row or [np.nan, np.nan] for row in rows.column(side.vector).to_pylist()]
    array = np.array(values, np.float64).reshape(len(rows), 2)
    usable = np.isfinite(array).all(axis=1)
    if world.join.metric == "cosine":
        usable &= array.any(axis=1)
    if world.join.on:
        usable &= pc.is_valid(rows.column("kind")).to_numpy()
    return array, usable


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args(arguments)
    scopes: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.histories):
        with tempfile.TemporaryDirectory() as folder:
            try:
                scopes.update(run_history(seed, Path(folder)))
            except BaseException:
                sys.stdout.write(f"history {seed} failed\n")
                raise
    sys.stdout.write(f"{options.histories} histories, as NumPy has them: {dict(scopes)}\n")


if __name__ == "__main__":
    main()
