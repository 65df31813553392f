"""How many rows of a join's last result belong to each left row, by what the join has compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.joins.search.groups import Groups
from lancestat.joins.search.work import Rows
from lancestat.joins.spark.group_layout import common_groups, parts_of, read_keys
from lancestat.joins.spark.materialize import Materializer, ProbedChunk
from lancestat.joins.spark.reader import VectorReader
from lancestat.joins.spark.tasks import worker_task
from lancestat.spark.jobs import Jobs


@dataclass(frozen=True, slots=True)
class KeyedWidths:
    """Left rows have as many neighbours as their group has right rows, up to k.

    `right_rows` are those of each group that can match, and `types` those in which keys are
    compared. It travels to Spark's workers.
    """

    left: VectorReader
    types: tuple[pa.DataType, ...]
    groups: Groups
    right_rows: NDArray[np.int64]
    k: int

    def of(self, chunk: ProbedChunk) -> NDArray[np.int64]:
        """Return the number of neighbours of each left row of a chunk."""
        # Only the rows of groups with new right rows were searched, and are known to be valid.
        return self.of_rows(chunk.rows)

    def of_rows(self, rows: Rows) -> NDArray[np.int64]:
        """Return the number of neighbours of consecutive left rows."""
        numbers = self.groups.assign(read_keys(self.left, rows, self.types))
        has_some = (numbers >= 0) & self.left.valid(rows)
        widths = np.zeros(len(rows), np.int64)
        widths[has_some] = np.minimum(self.right_rows[numbers[has_some]], self.k)
        return widths


def keyed_widths(
    jobs: Jobs,
    left: VectorReader,
    right: VectorReader,
    types: tuple[pa.DataType, ...],
    k: int,
    *,
    all_match: bool,
) -> KeyedWidths:
    """Count the right rows of each group that were there when the last result was made.

    Args:
        jobs: Those of the session.
        left: The left rows of the result.
        right: The right rows that the result was made of.
        types: Those in which keys are compared.
        k: The number of neighbours of a left row, where there are enough.
        all_match: Whether every right row can match, so that no vector needs to be read.
    """
    groups = common_groups(jobs, (left, right), types)

    def counted(task_parts: Iterable[Rows]) -> Iterator[tuple[NDArray[np.int64], tuple[()]]]:
        with worker_task(1, right.side.storage_options, "counting the right rows of groups"):
            for rows in task_parts:
                numbers = groups.assign(read_keys(right, rows, types))
                if not all_match:
                    numbers[~right.valid(rows)] = -1
                yield np.bincount(numbers[numbers >= 0], minlength=len(groups)), ()

    counts = np.zeros(len(groups), np.int64)
    for some in jobs.run(counted, parts_of(right, jobs.cores)):
        counts += some
    return KeyedWidths(left, types, groups, counts, k)


def count_lines(
    jobs: Jobs, materialize: Materializer, chunks: Sequence[Rows], widths: KeyedWidths
) -> list[int]:
    """Return how many rows of the last result belong to each chunk of left rows."""
    left = widths.left

    def counted(task_chunks: Iterable[Rows]) -> Iterator[tuple[int, tuple[()]]]:
        with worker_task(1, left.side.storage_options, f"counting the {left.name} rows"):
            for rows in task_chunks:
                yield int(materialize.lines(widths.of_rows(rows)).sum()), ()

    return jobs.run(counted, chunks)
