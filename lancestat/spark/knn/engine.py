"""Opens the sides of a join, in scratch where they have to be, and runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING

from lancestat.errors import LancestatError
from lancestat.knn.names import OutputNames, output_names
from lancestat.knn.request import JoinRequest
from lancestat.knn.scratch import scratch
from lancestat.knn.stages import OnStage, Stage, StageProgress, nobody
from lancestat.knn.work import JoinOutcome, JoinWork, PinnedTable, Scope, SideWork
from lancestat.spark.failure import CANCELLED
from lancestat.spark.job_group import job_group
from lancestat.spark.knn.join import Join
from lancestat.spark.knn.opened_side import (
    OpenedSide,
    opened_table,
    read_in_place,
    source_rows,
)
from lancestat.spark.knn.parquet_scan import parquet_scan
from lancestat.spark.knn.query_side import QuerySide
from lancestat.spark.knn.written_side import Writing, numbered, write_side

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Engine:
    """What joins run on.

    Args:
        spark: A classic session.
        scratch_root: Where scratch folders go.
        run_id: Names the run: its Spark job group, by which it can be cancelled, and its files.
        storage_options: How to reach sides, scratch and output.
        on_stage: Told how far a join is.
    """

    spark: SparkSession
    scratch_root: str
    run_id: str
    storage_options: Mapping[str, str] = field(repr=False, default_factory=dict)
    on_stage: OnStage = nobody

    def run(
        self,
        work: JoinWork,
        frames: Mapping[str, DataFrame] | None = None,
        names: OutputNames | None = None,
    ) -> JoinOutcome:
        """Run a join and commit its result.

        Args:
            work: What to do.
            frames: DataFrames of the sides `left` and `right`, where they are no declared ones.
            names: What the columns of the result are called, where not as `output_names` has it.

        Raises:
            LancestatError: what is wrong with a side, the output or the scratch, or what a task
                raised after Spark's own retries; readers of the output see what they saw before.
        """
        work = _narrowed(work)
        # Neither side's query runs anything before both are known to be plain ones.
        queries = {
            name: QuerySide.parse(self.spark, side, self.storage_options, name)
            for name, side in (("left", work.left), ("right", work.right))
            if side.sql is not None
        }
        read = {name: query.rows(self.storage_options) for name, query in queries.items()}
        given = {**(frames or {}), **{name: rows for name, (rows, _) in read.items()}}
        left = self._source("left", work.left, given.get("left"))
        right = self._source("right", work.right, given.get("right"))
        if names is None:
            names = output_names(left.select, right.select, with_rank=work.request.with_rank)
        with (
            ExitStack() as stack,
            job_group(self.spark.sparkContext, self.run_id, f"lancestat: {work.node}"),
        ):
            folder = _Folder(self, stack)
            opened_left, opened_right = self._both(left, right, work.request, folder)
            join = Join(
                self.spark, work, opened_left, opened_right, names, folder.place, self.on_stage
            )
            outcome = join.run(self.run_id)
        return replace(outcome, unproven={name: reasons for name, (_, reasons) in read.items()})

    def _source(self, name: str, side: SideWork, frame: DataFrame | None) -> _Source:
        if side.table is None and frame is None:
            frame = source_rows(self.spark, side, self.storage_options, name)
        select = side.select
        if select is None:
            assert frame is not None
            select = tuple(frame.columns)
        return _Source(name, side.vector, select, side.table, frame)

    def _both(
        self, left: _Source, right: _Source, request: JoinRequest, folder: _Folder
    ) -> tuple[OpenedSide, OpenedSide]:
        """Both sides; what has to be written is written side by side."""
        from pyspark.util import inheritable_thread_target

        with ThreadPoolExecutor(2) as pool:
            # A job group belongs to a thread, and is handed on with it.
            open_side = inheritable_thread_target(self.spark)(self._opened)
            first = pool.submit(open_side, left, request, folder, None)
            sides = [first, pool.submit(open_side, right, request, folder, first)]
            try:
                wait(sides, return_when=FIRST_EXCEPTION)
                if any(side.done() and side.exception() for side in sides):
                    self._cancel()
            except BaseException:
                # Leaving the pool waits for its threads.
                self._cancel()
                raise
        failures = [error for side in sides if (error := side.exception()) is not None]
        if failures:
            # A side that was cancelled because of the other says nothing about the cause.
            raise min(failures, key=_is_cancelled)
        return sides[0].result(), sides[1].result()

    def _cancel(self) -> None:
        # The other side's job may be yet to come.
        self.spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(self.run_id)

    def _opened(
        self,
        source: _Source,
        request: JoinRequest,
        folder: _Folder,
        left: Future[OpenedSide] | None,
    ) -> OpenedSide:
        """A side; a right one may be read where it is, depending on the left one."""
        name, vector, select = source.name, source.vector, source.select
        if source.table is not None:
            return opened_table(source.table, vector, select, self.storage_options, name)
        assert source.frame is not None
        rows = numbered(source.frame, vector, select, name)
        scan = parquet_scan(rows)
        if scan is not None and left is not None:
            cores = self.spark.sparkContext.defaultParallelism
            found = read_in_place(scan, request, left.result(), cores)
            if found is not None:
                note = f"the {name} side is read where it is"
                self.on_stage(StageProgress(Stage.SCRATCH, note=note))
                return found
        self.on_stage(StageProgress(Stage.SCRATCH, note=f"writing the {name} side"))
        uri = folder.place(name)
        writing = Writing(uri, name, request.metric, name == "left", self.storage_options)
        opened = write_side(rows, scan, writing)
        count = len(opened.side.all_rows)
        self.on_stage(StageProgress(Stage.SCRATCH, count, count))
        return opened


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the rows of a side come from: a table, else a DataFrame that is not computed yet."""

    name: str
    vector: str
    select: Sequence[str]
    table: PinnedTable | None
    frame: DataFrame | None


def _is_cancelled(error: BaseException) -> bool:
    return isinstance(error, LancestatError) and error.code == CANCELLED


class _Folder:
    """The scratch folder of a join, made when something is to be put there."""

    def __init__(self, engine: Engine, stack: ExitStack) -> None:
        self._engine = engine
        self._stack = stack
        self._making = Lock()
        self._uri: str | None = None

    def place(self, name: str) -> str:
        """Where to write what is called `name`."""
        with self._making:
            if self._uri is None:
                application = str(self._engine.spark.sparkContext.applicationId)
                root, options = self._engine.scratch_root, self._engine.storage_options
                self._uri = self._stack.enter_context(scratch(root, application, options)).uri
        return f"{self._uri}/{name}.lance"


def _narrowed(work: JoinWork) -> JoinWork:
    """The work over the new fragments alone, on the side that has some."""
    if work.scope is Scope.NEW_LEFT:
        return replace(work, left=_only(work.left, work.new_fragments))
    if work.scope is Scope.NEW_RIGHT:
        return replace(work, right=_only(work.right, work.new_fragments))
    return work


def _only(side: SideWork, fragments: frozenset[int]) -> SideWork:
    assert side.table is not None
    kept = tuple(each for each in side.table.fragments if each.id in fragments)
    return replace(side, table=replace(side.table, fragments=kept))
