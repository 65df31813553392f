"""Runs one join over opened sides: gate, search, commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import SparkSession

from lancestat.errors import LancestatError, RunError
from lancestat.knn.cost_model import Decision, JoinSize, choose
from lancestat.knn.request import (
    JoinRequest,
    Mode,
    OnStage,
    OutputNames,
    Stage,
    StageProgress,
    nobody,
    output_names,
)
from lancestat.knn.work import (
    JoinCounts,
    JoinOutcome,
    JoinWork,
    OutputState,
    PinnedTable,
    Scope,
    SideWork,
    StaleBase,
    VectorSide,
    scoped,
)
from lancestat.lake.snapshot import index_metric
from lancestat.output import result as output
from lancestat.output.writer import OutputWriter
from lancestat.redact import secret_values
from lancestat.scratch.folder import scratch
from lancestat.spark.knn.grid import Grid, grid
from lancestat.spark.knn.materialize import Materialize, Previous, output_schema
from lancestat.spark.knn.parquet_side import parquet_scan
from lancestat.spark.knn.reader import VectorReader
from lancestat.spark.knn.sides import (
    OpenedSide,
    QuerySide,
    opened_table,
    read_in_place,
    source_rows,
)
from lancestat.spark.knn.strategies import Found, Place, Searcher
from lancestat.spark.knn.tasks import WrittenChunk, count_valid
from lancestat.spark.knn.written_side import Writing, numbered, write_side
from lancestat.spark.read.fragment_reader import pinned_dataset
from lancestat.spark.session.failure import CANCELLED, job_error
from lancestat.spark.session.jobs import job_group

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Join:
    """A join whose sides can be read.

    `left` and `right` hold the rows to compare, which under a narrower scope are not all.
    """

    spark: SparkSession
    work: JoinWork
    left: OpenedSide
    right: OpenedSide
    names: OutputNames
    place: Place
    on_stage: OnStage

    def run(self, run_id: str) -> JoinOutcome:
        """Search, and commit what was found in one step.

        Raises:
            StaleBase: the previous result is not what it was taken for.
            RunError: LS556 the sides have vectors of different lengths, or what a task raised.
        """
        left, right = self._readers()
        decision = self._decide(left, right)
        work, options = self.work, self.left.side.storage_options
        writer = output.begin(work.output_format, work.output_uri, run_id, options, work.remembered)
        try:
            materialize = self._materialize(writer)
            found = self._search(left, right, materialize, decision)
        except BaseException as error:
            output.discard(writer, [])
            if not isinstance(error, Exception):
                raise
            doing = f"joining '{self.work.node}'"
            raise job_error(error, "LS553", doing, secret_values(options)) from None
        state = self._commit(writer, materialize, found.chunks)
        return JoinOutcome(
            found.strategy.value,
            self._counts(found.chunks),
            state,
            sum(chunk.pairs for chunk in found.chunks),
            found.recall,
            found.nprobes,
        )

    def _readers(self) -> tuple[VectorReader, VectorReader]:
        metric, dimension = self.work.request.metric, _agreed(self.left, self.right)
        return (
            VectorReader(self.left.side, dimension, metric, "left"),
            VectorReader(self.right.side, dimension, metric, "right"),
        )

    def _decide(self, left: VectorReader, right: VectorReader) -> Decision:
        request = scoped(self.work.request, self.work.scope)
        rows = len(left.side.all_rows)
        size = JoinSize(rows, len(right.side.all_rows), left.dimension, self._has_index())
        decision = choose(request, size, self._context.defaultParallelism)
        note = f"{decision.strategy.value}: {decision.why}"
        self.on_stage(StageProgress(Stage.GATE, rows, rows, note=note))
        return decision

    def _has_index(self) -> bool:
        """Whether the right side is a table with a vector index of the metric."""
        right = self.work.right
        if right.table is None or self.work.request.mode is Mode.EXACT:
            return False
        side = self.right.side
        assert isinstance(side, VectorSide)
        dataset = pinned_dataset(side.pin, side.storage_options)
        return index_metric(dataset, right.vector) == self.work.request.metric.value

    def _materialize(self, writer: OutputWriter) -> Materialize:
        left, right, kind = self.left.side, self.right.side, self.work.request.kind
        schema = output_schema(left, right, self.names, kind)
        return Materialize(left, right, self.names, kind, schema, writer)

    def _search(
        self,
        left: VectorReader,
        right: VectorReader,
        materialize: Materialize,
        decision: Decision,
    ) -> Found:
        request = self.work.request
        shares = grid(
            left.side.all_rows,
            len(right.side.all_rows),
            dimension=left.dimension,
            k=request.k,
            cores=self._context.defaultParallelism,
        )
        if self.work.scope is Scope.NEW_RIGHT:
            materialize = replace(materialize, previous=self._previous(left, materialize, shares))
        searcher = Searcher(
            self.spark, left, right, request, shares, materialize, self.place, self.on_stage
        )
        return searcher.find(decision)

    @property
    def _context(self) -> SparkContext:
        return self.spark.sparkContext

    def _previous(self, left: VectorReader, materialize: Materialize, shares: Grid) -> Previous:
        known, state = self.work.known, self.work.previous
        assert known is not None and state is not None
        width = min(self.work.request.k, known.right_rows - known.excluded_right_rows)
        valid = count_valid(self._context, left, shares.chunks)
        lines = [
            materialize.line_count(found, len(rows) - found, width)
            for found, rows in zip(valid, shares.chunks, strict=True)
        ]
        if sum(lines) != state.rows:
            raise StaleBase(
                "LS569",
                f"{state.uri} has {state.rows} rows, but {sum(lines)} follow from its sides",
            )
        return Previous(state, width, tuple(accumulate(lines[:-1], initial=0)))

    def _commit(
        self, writer: OutputWriter, materialize: Materialize, chunks: Sequence[WrittenChunk]
    ) -> OutputState:
        written = [chunk.written for chunk in chunks]
        try:
            if self.work.scope is Scope.NEW_LEFT:
                assert self.work.previous is not None
                return output.append(writer, materialize.schema, self.work.previous, written)
            return output.replace(writer, materialize.schema, written)
        except BaseException:
            output.discard(writer, written)
            raise

    def _counts(self, chunks: Sequence[WrittenChunk]) -> JoinCounts:
        left_rows = len(self.left.side.all_rows)
        # Every chunk has met the whole right side.
        excluded = self.right.excluded + chunks[0].excluded
        counts = JoinCounts(
            left_rows,
            len(self.right.side.all_rows) + self.right.excluded,
            left_rows - sum(chunk.matched for chunk in chunks),
            excluded,
        )
        known = self.work.known
        if known is None or self.work.scope is Scope.FULL:
            return counts
        if self.work.scope is Scope.NEW_LEFT:
            return replace(
                known,
                left_rows=known.left_rows + counts.left_rows,
                unmatched_left_rows=known.unmatched_left_rows + counts.unmatched_left_rows,
            )
        return replace(
            counts,
            right_rows=known.right_rows + counts.right_rows,
            excluded_right_rows=known.excluded_right_rows + counts.excluded_right_rows,
        )


def _agreed(left: OpenedSide, right: OpenedSide) -> int:
    known = {side.dimension for side in (left, right)} - {None}
    if len(known) > 1:
        raise RunError(
            "LS556",
            f"the left side has vectors of {left.dimension} elements, "
            f"the right side of {right.dimension}",
        )
    return next(iter(known), None) or 1


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
