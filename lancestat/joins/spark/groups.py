"""Joins by keys: both sides are written to scratch by group, and groups are searched as cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.joins.scratch.folder import require_visible
from lancestat.joins.search.groups import GroupCell, Groups, distinct_keys, group_cells, key_table
from lancestat.joins.search.ivf import (
    IvfLists,
    commit,
    read_lists,
    read_piece,
    search_lists,
    write_groups,
)
from lancestat.joins.search.scratch_tables import WrittenBins
from lancestat.joins.search.work import JoinRequest, Rows
from lancestat.joins.spark.cells import (
    CHUNK_BYTES,
    NEIGHBOUR_BYTES,
    CellResult,
    CellSearch,
    LeftRows,
    cut,
)
from lancestat.joins.spark.job import worker_task
from lancestat.joins.spark.reader import Side, VectorReader, read_columns, row_places
from lancestat.spark.jobs import Jobs

# Bytes of vectors that a task writes by group at a time.
GROUPED_BYTES = 128 << 20
# Rows by which the search judges how accurate its products are.
_LIKE_ROWS = 2048
# Vectors of so small a share of rows are looked up, and not read through.
SPARSE = 1 / 16


Sides = tuple[VectorReader, VectorReader]


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Both sides by group, each of them None where no row is in a group.

    `excluded` right rows cannot match, since their vector cannot or a key is null; `like` are right
    rows, for the accuracy of GEMM.
    """

    left: IvfLists | None
    right: IvfLists | None
    excluded: int
    like: NDArray[np.float32]

    @property
    def groups(self) -> int:
        if self.left is None or self.right is None:
            return 0
        return int(np.count_nonzero((self.left.list_rows > 0) & (self.right.list_rows > 0)))


# Consecutive rows of the left side, which has the number 0, or of the right one.
_Part = tuple[int, Rows]


def write_grouped(
    jobs: Jobs,
    sides: Sides,
    types: Sequence[pa.DataType],
    counts_all: bool,
    place: Callable[[str], str],
    storage_options: Mapping[str, str],
) -> GroupedRows:
    """Write the rows of groups that both sides have, keys of which are compared in some types.

    With `counts_all` the vectors of right rows in no group are read too, and those that cannot
    match are counted. `place` makes places in scratch, which `storage_options` reach.
    """
    parts = _side_parts(sides, jobs.cores)
    groups = common_groups(jobs, sides, types)
    if not len(groups):
        # Nothing is written of rows without a group, but they may have to be counted.
        parts = [(side, rows) for side, rows in parts if side and counts_all]
    uris = (place("left-groups"), place("right-groups"))

    def write(
        task_parts: Iterable[_Part],
    ) -> Iterator[tuple[tuple[WrittenBins, int], tuple[()]]]:
        for side, part_rows in task_parts:
            reader, uri = sides[side], uris[side]
            with worker_task(1, storage_options, f"laying out the {reader.name} side"):
                require_visible(uri)
                chosen, positions, rows, excluded = _rows_by_group(
                    reader, part_rows, groups, types, counts_all and side == 1
                )
                written = write_groups(chosen, positions, rows, len(groups), uri, storage_options)
                yield (written, excluded), ()

    done = list(zip(parts, jobs.run(write, parts), strict=True)) if parts else []
    lists: list[IvfLists | None] = []
    for side, (reader, uri) in enumerate(zip(sides, uris, strict=True)):
        mine = [part for (number, _), (part, _) in done if number == side and part.fragments]
        lists.append(commit(mine, uri, reader.dimension, storage_options) if mine else None)
    excluded = sum(rows for (side, _), (_, rows) in done if side)
    return GroupedRows(lists[0], lists[1], excluded, sides[1].sample(_LIKE_ROWS, 8))


def parts_of(reader: VectorReader, cores: int) -> Sequence[Rows]:
    rows = reader.side.all_rows
    blocks = -(-4 * reader.dimension * len(rows) // GROUPED_BYTES)
    return cut(rows, max(1, min(len(rows), -(-blocks // cores) * cores)))


def _side_parts(sides: Sides, cores: int) -> list[_Part]:
    return [(number, rows) for number, side in enumerate(sides) for rows in parts_of(side, cores)]


def common_groups(jobs: Jobs, sides: Sides, types: Sequence[pa.DataType]) -> Groups:

    def read(task_parts: Iterable[_Part]) -> Iterator[tuple[bytes, tuple[()]]]:
        for number, rows in task_parts:
            side = sides[number]
            with worker_task(1, side.side.storage_options, f"reading keys of the {side.name} side"):
                table = distinct_keys(read_keys(side, rows, types))
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table)
                yield sink.getvalue().to_pybytes(), ()

    parts = _side_parts(sides, jobs.cores)
    keys: tuple[list[pa.Table], list[pa.Table]] = ([], [])
    for (number, _), encoded in zip(parts, jobs.run(read, parts), strict=True):
        keys[number].append(pa.ipc.open_stream(encoded).read_all())
    return Groups.common(*keys)


def read_keys(reader: VectorReader, rows: Rows, types: Sequence[pa.DataType]) -> pa.Table:
    batches = list(read_columns(reader.side, rows, reader.side.keys))
    if not batches:
        return pa.table({str(at): pa.array([], type) for at, type in enumerate(types)})
    return key_table(pa.Table.from_batches(batches).columns, types)


def _rows_by_group(
    reader: VectorReader,
    rows: Rows,
    groups: Groups,
    types: Sequence[pa.DataType],
    counts_all: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32], int]:
    """Return group, position and vector of the rows that are in a group, sorted by group.

    The last value is the number of rows that cannot match.
    """
    keys = read_keys(reader, rows, types)
    numbers = groups.assign(keys)
    chosen = np.flatnonzero(numbers >= 0)
    # Of numbers of 16 bits NumPy sorts in linear time.
    narrow = np.uint16 if len(groups) < 1 << 16 else np.int64
    order = np.argsort(numbers[chosen].astype(narrow), kind="stable")
    by_group = chosen[order]
    if not counts_all and len(chosen) < SPARSE * len(rows):
        read = reader.look_up(rows.start + chosen)
        vectors, is_there, excluded = read.values[order], read.valid[order], 0
    else:
        is_null = np.zeros(len(keys), np.bool_)
        for column in keys.columns:
            is_null |= column.is_null().to_numpy()
        vectors, is_there, excluded = _arranged(reader, rows, by_group, is_null)
    if not is_there.all():
        by_group, vectors = by_group[is_there], vectors[is_there]
    return numbers[by_group], rows.start + by_group, vectors, excluded


def _arranged(
    reader: VectorReader, rows: Rows, order: NDArray[np.int64], is_null: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.bool_], int]:
    """Read rows through, and put each where `order` has it; say which can match."""
    place = np.full(len(rows), -1, np.int64)
    place[order] = np.arange(len(order))
    vectors = np.empty((len(order), reader.dimension), np.float32)
    is_there = np.zeros(len(order), np.bool_)
    excluded = int(np.count_nonzero(is_null))
    for first, read in reader.batches(rows):
        span = slice(first - rows.start, first - rows.start + len(read.valid))
        at = place[span]
        chosen = read.valid & (at >= 0)
        some = slice(None) if chosen.all() else chosen
        vectors[at[some]] = read.values[some]
        is_there[at[some]] = True
        excluded += int(np.count_nonzero(~read.valid & ~is_null[span]))
    return vectors, is_there, excluded


@dataclass(frozen=True, slots=True)
class GroupCells(CellSearch[GroupCell]):
    """Searches groups; `sides` are those that were grouped."""

    grouped: GroupedRows
    request: JoinRequest
    dimension: int
    sides: tuple[Side, Side]

    def cells(self, cores: int) -> list[GroupCell]:
        left, right = self.grouped.left, self.grouped.right
        if left is None or right is None:
            return []
        row_bytes = 4 * self.dimension + NEIGHBOUR_BYTES * self.request.searched
        cells = group_cells(
            left.list_rows,
            right.list_rows,
            dimension=self.dimension,
            largest=max(1, CHUNK_BYTES // row_bytes),
            cores=cores,
        )
        return list(cells)

    def left_rows(self, cell: GroupCell) -> Iterator[LeftRows]:
        left = self.grouped.left
        assert left is not None, "there are groups"
        if len(cell.groups) == 1:
            [number] = cell.groups
            span = cell.rows or Rows(0, int(left.list_rows[number]))
            places = (number, span.start, span.stop)
            positions, rows = read_piece(left, *places, self.dimension)
            yield LeftRows(positions, rows, np.full(len(rows), number, np.int32))
            return
        read = list(read_lists(left, cell.groups, self.dimension, 1))
        groups = [
            np.repeat(np.arange(len(p.offsets) - 1), np.diff(p.offsets)) + p.first for p in read
        ]
        yield LeftRows(
            np.concatenate([part.positions for part in read]),
            np.concatenate([part.rows for part in read]),
            np.concatenate(groups).astype(np.int32),
        )

    def nearest(self, cell: GroupCell, rows: LeftRows, k: int, *, is_first: bool) -> CellResult:
        right, request = self.grouped.right, self.request
        assert right is not None and rows.groups is not None, "there are groups"
        after = None
        if request.pairs_once:
            _, after = row_places(*self.sides, rows.positions)
        neighbours, pairs, _ = search_lists(
            right,
            rows.vectors,
            rows.groups[:, None],
            cell.groups,
            k,
            request.metric,
            limit=request.limit,
            after=after,
            like=self.grouped.like,
        )
        return CellResult(rows.positions, neighbours, pairs=pairs)
