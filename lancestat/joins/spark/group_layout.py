"""Lays both sides of a join out by group: rows whose keys are equal lie together in scratch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.joins.scratch.folder import require_visible
from lancestat.joins.search.groups import Groups, distinct_keys, key_table
from lancestat.joins.search.partitions import PartitionedDataset, WrittenPart, commit, write_groups
from lancestat.joins.search.work import Rows
from lancestat.joins.spark.grid import cut
from lancestat.joins.spark.reader import VectorReader, read_columns
from lancestat.joins.spark.tasks import worker_task
from lancestat.spark.jobs import Jobs

# Bytes of vectors that a task lays out at once.
LAYOUT_BYTES = 128 << 20
# Rows by which the search judges how accurate its products are.
_LIKE_ROWS = 2048
# Vectors of so small a share of rows are looked up, and not read through.
_SPARSE = 1 / 16


Sides = tuple[VectorReader, VectorReader]


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """Both sides by group, each of them None where no row is in a group.

    `excluded` right rows cannot match, since their vector cannot or a key is null; `like` are right
    rows, for the accuracy of products.
    """

    left: PartitionedDataset | None
    right: PartitionedDataset | None
    excluded: int
    like: NDArray[np.float32]

    @property
    def groups(self) -> int:
        """The number of groups that have rows of both sides that can match."""
        if self.left is None or self.right is None:
            return 0
        return int(np.count_nonzero((self.left.list_rows > 0) & (self.right.list_rows > 0)))


@dataclass(frozen=True, slots=True)
class _Part:
    """Consecutive rows of the left side, which has the number 0, or of the right one."""

    side: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class Grouping:
    """Lays both sides out by group; its tasks travel to Spark's workers.

    `types` are those in which keys are compared. Unless `counts_all`, the vectors of right rows
    that are in no group need not be read. `storage_options` reach scratch.
    """

    jobs: Jobs
    left: VectorReader
    right: VectorReader
    types: tuple[pa.DataType, ...]
    counts_all: bool
    storage_options: Mapping[str, str] = field(repr=False)

    def lay_out(self, place: Callable[[str], str]) -> GroupLayout:
        """Write the rows of groups that both sides have; `place` makes places in scratch."""
        sides = (self.left, self.right)
        parts = _side_parts(sides, self.jobs.cores)
        groups = common_groups(self.jobs, sides, self.types)
        if not len(groups):
            # Nothing is laid out of rows without a group, but they may have to be counted.
            parts = [part for part in parts if part.side and self.counts_all]
        uris = (place("left-groups"), place("right-groups"))
        (left, _), (right, excluded) = self._written(parts, groups, uris)
        like = self.right.sample(_LIKE_ROWS, 8)
        return GroupLayout(left, right, excluded, like)

    def _written(
        self, parts: Sequence[_Part], groups: Groups, uris: tuple[str, str]
    ) -> list[tuple[PartitionedDataset | None, int]]:
        """Lay parts out; return each side's dataset, and how many of its rows cannot match."""
        types, readers = self.types, (self.left, self.right)
        counts, options = (False, self.counts_all), self.storage_options

        def write(
            task_parts: Iterable[_Part],
        ) -> Iterator[tuple[tuple[WrittenPart, int], tuple[()]]]:
            for part in task_parts:
                reader, uri = readers[part.side], uris[part.side]
                with worker_task(1, options, f"laying out the {reader.name} side"):
                    require_visible(uri)
                    rows = _rows_by_group(reader, part.rows, groups, types, counts[part.side])
                    written = write_groups(
                        rows.groups, rows.positions, rows.vectors, len(groups), uri, options
                    )
                    yield (written, rows.excluded), ()

        done = list(zip(parts, self.jobs.run(write, parts), strict=True)) if parts else []
        sides = []
        for number, (reader, uri) in enumerate(zip(readers, uris, strict=True)):
            mine = [result for part, result in done if part.side == number]
            written = [part for part, _ in mine if part.fragments]
            dataset = commit(written, uri, reader.dimension, options) if written else None
            sides.append((dataset, sum(excluded for _, excluded in mine)))
        return sides


def parts_of(reader: VectorReader, cores: int) -> Sequence[Rows]:
    """Divide a side among tasks that each read so much of it at once as a task may lay out."""
    rows = reader.side.all_rows
    blocks = -(-4 * reader.dimension * len(rows) // LAYOUT_BYTES)
    return cut(rows, max(1, min(len(rows), -(-blocks // cores) * cores)))


def _side_parts(sides: Sides, cores: int) -> list[_Part]:
    return [_Part(n, rows) for n, side in enumerate(sides) for rows in parts_of(side, cores)]


def common_groups(jobs: Jobs, sides: Sides, types: Sequence[pa.DataType]) -> Groups:
    """Return the groups that both sides have, left and right."""

    def read(task_parts: Iterable[_Part]) -> Iterator[tuple[bytes, tuple[()]]]:
        for part in task_parts:
            side = sides[part.side]
            with worker_task(1, side.side.storage_options, f"reading keys of the {side.name} side"):
                yield _encoded(distinct_keys(read_keys(side, part.rows, types))), ()

    parts = _side_parts(sides, jobs.cores)
    keys: tuple[list[pa.Table], list[pa.Table]] = ([], [])
    for part, encoded in zip(parts, jobs.run(read, parts), strict=True):
        keys[part.side].append(_decoded(encoded))
    return Groups.common(*keys)


def read_keys(reader: VectorReader, rows: Rows, types: Sequence[pa.DataType]) -> pa.Table:
    """Return the keys of consecutive rows, as `key_table` does."""
    batches = list(read_columns(reader.side, rows, reader.side.keys))
    if not batches:
        return pa.table({str(at): pa.array([], type) for at, type in enumerate(types)})
    return key_table(pa.Table.from_batches(batches).columns, types)


def any_null(keys: pa.Table) -> NDArray[np.bool_]:
    """Return a mask of the rows of which some key is null."""
    is_null = np.zeros(len(keys), np.bool_)
    for column in keys.columns:
        if column.null_count:
            is_null |= column.is_null().to_numpy()
    return is_null


@dataclass(frozen=True, slots=True)
class _GroupedRows:
    """Rows by group: number of the group, position and vector. `excluded` others cannot match."""

    groups: NDArray[np.int64]
    positions: NDArray[np.int64]
    vectors: NDArray[np.float32]
    excluded: int


def _rows_by_group(
    reader: VectorReader,
    rows: Rows,
    groups: Groups,
    types: Sequence[pa.DataType],
    counts_all: bool,
) -> _GroupedRows:
    """Read the rows of a range that are in a group, and count those that cannot match."""
    keys = read_keys(reader, rows, types)
    numbers = groups.assign(keys)
    chosen = np.flatnonzero(numbers >= 0)
    # Of numbers of 16 bits NumPy sorts in linear time.
    narrow = np.uint16 if len(groups) < 1 << 16 else np.int64
    order = np.argsort(numbers[chosen].astype(narrow), kind="stable")
    by_group = chosen[order]
    if not counts_all and len(chosen) < _SPARSE * len(rows):
        read = reader.look_up(rows.start + chosen)
        vectors, is_there, excluded = read.values[order], read.valid[order], 0
    else:
        vectors, is_there, excluded = _arranged(reader, rows, by_group, any_null(keys))
    if not is_there.all():
        by_group, vectors = by_group[is_there], vectors[is_there]
    return _GroupedRows(numbers[by_group], rows.start + by_group, vectors, excluded)


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


def _encoded(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _decoded(encoded: bytes) -> pa.Table:
    return pa.ipc.open_stream(encoded).read_all()
