"""Opens joins on Spark, and prepares their sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lancestat.errors import Cancelled, SideColumnMissing, VectorLengthMismatch, did_you_mean
from lancestat.joins.action import PrepareSides, Probe
from lancestat.joins.output import result as output
from lancestat.joins.output.writer import OutputWriter
from lancestat.joins.planner import JoinFacts
from lancestat.joins.scratch.folder import scratch
from lancestat.joins.scratch.kept_indexes import IndexStore
from lancestat.joins.search.cost_model import JoinSize, Strategy
from lancestat.joins.search.distances import counted_ranks
from lancestat.joins.search.groups import compared_key_types
from lancestat.joins.search.work import (
    JoinRequest,
    JoinWork,
    OutputNames,
    PinnedTable,
    Scope,
    SideSource,
    VectorSide,
    output_names,
)
from lancestat.joins.spark.ivf import IndexKeeper
from lancestat.joins.spark.job import grid
from lancestat.joins.spark.materialize import Materializer, output_schema
from lancestat.joins.spark.prepared_join import PreparedJoin, Searcher
from lancestat.joins.spark.reader import ParquetSide, Side, VectorReader, parquet_scan
from lancestat.joins.spark.sides import (
    OpenedSide,
    QuerySide,
    opened_table,
    read_in_place,
    source_rows,
    with_keys,
    with_last_columns_as_keys,
)
from lancestat.joins.spark.written_side import (
    SideWriteOptions,
    check_vectors,
    column_index,
    with_numbered_columns,
    write_side,
)
from lancestat.lake.snapshot import index_metric
from lancestat.runs.actions import OnStage, StageProgress, ignore_progress
from lancestat.spark.fragment_reader import pinned_dataset
from lancestat.spark.jobs import Jobs, jobs_of
from lancestat.spark.versions import has_nearest_by_join, is_connect, to_arrow_schema
from lancestat.spec.catalog import UriOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class SparkJoin:
    """A join as `runs.evaluator.JoinSession` has it, on Spark.

    `cleanup` is closed when the join is. `known_right` has the right rows of the last result, where
    new ones are merged with it by keys.
    """

    engine: Engine
    work: JoinWork
    sources: tuple[_Source, _Source]
    names: OutputNames
    unproven: Mapping[str, tuple[str, ...]]
    folder: _LazyScratch
    cleanup: ExitStack
    key_types: tuple[pa.DataType, ...] = ()
    known_right: _Source | None = None

    def prepare_sides(self, stage: PrepareSides) -> PreparedJoin:
        engine, work = self.engine, self.work
        left, right = engine.open_sides(*self.sources, work.request, self.folder, stage)
        known = self._known_right(stage)
        dimension = _common_dimension(left, right, known, has_bits=work.request.metric.has_bits)
        writer = output.begin(
            work.output_format,
            work.output_uri,
            engine.run_id,
            engine.options.of(work.output_uri),
        )
        rollback = self.cleanup.enter_context(ExitStack())
        rollback.callback(output.discard, writer, [])
        rows = len(left.side.all_rows), len(right.side.all_rows)
        opened = (("left", left), ("right", right))
        in_place = tuple(name for name, side in opened if isinstance(side.side, ParquetSide))
        has_nearest_by = has_nearest_by_join() and not is_connect(engine.spark)
        keeper = self._keeper(right, dimension)
        kept = None if keeper is None else keeper.look()
        size = JoinSize(*rows, dimension, self._has_index(right), has_nearest_by, kept)
        searcher = self._searcher(left.side, right.side, dimension, writer)
        return PreparedJoin(
            work,
            JoinFacts(size, engine.cores, in_place),
            searcher,
            right.excluded,
            self.unproven,
            rollback,
            Probe(Strategy.EXACT, work.scope, None),
            keeper=keeper,
            known_right=None if known is None else replace(searcher.right, side=known.side),
        )

    def _known_right(self, stage: PrepareSides) -> OpenedSide | None:
        if self.known_right is None:
            return None
        return self.engine.open_side(self.known_right, self.work.request, self.folder, stage)

    def _keeper(self, opened: OpenedSide, dimension: int) -> IndexKeeper | None:
        engine, work, side = self.engine, self.work, opened.side
        if work.right.content is None or work.scope is Scope.NEW_RIGHT:
            return None
        assert isinstance(side, VectorSide)
        store = IndexStore(engine.scratch_root, engine.storage_options)
        content = work.right.content
        return IndexKeeper(work.node, store, content, side, dimension, self.cleanup, work.is_fresh)

    def _searcher(self, left: Side, right: Side, dimension: int, writer: OutputWriter) -> Searcher:
        engine, request = self.engine, self.work.request
        schema = output_schema(left, right, self.names, request.kind)
        return Searcher(
            engine.spark,
            VectorReader(left, dimension, request.metric, "left"),
            VectorReader(right, dimension, request.metric, "right"),
            request,
            grid(
                left.all_rows,
                len(right.all_rows),
                dimension=dimension,
                k=request.searched,
                cores=engine.cores,
            ),
            Materializer(
                left,
                right,
                self.names,
                request.kind,
                schema,
                writer,
                drops_self=request.searched > request.k and not request.is_radius,
                ranks=() if request.is_radius else counted_ranks(request.k),
            ),
            engine.on_stage,
            self.folder.path,
            engine.storage_options,
            self.key_types,
        )

    def _has_index(self, opened: OpenedSide) -> bool:
        right = self.work.right
        if right.table is None or right.filter is not None:
            return False
        if not self.work.request.is_approximate or self.work.request.metric.index_name is None:
            return False
        side = opened.side
        assert isinstance(side, VectorSide)
        dataset = pinned_dataset(side.pin, side.storage_options)
        return index_metric(dataset, right.vector) == self.work.request.metric.index_name


def _common_dimension(
    left: OpenedSide, right: OpenedSide, known_right: OpenedSide | None, *, has_bits: bool
) -> int:
    known = {side.dimension for side in (left, right)} - {None}
    if len(known) > 1:
        raise VectorLengthMismatch(
            f"the left side has vectors of {left.dimension} elements, "
            f"the right side of {right.dimension}",
        )
    if not known and known_right is not None:
        known = {known_right.dimension}
    # Without any vector the length is the least there can be; bits come by the byte.
    return next(iter(known), None) or (8 if has_bits else 1)


@dataclass(frozen=True, slots=True)
class Engine:
    """The Spark session, scratch and storage that joins use.

    Args:
        spark: A session, classic or of Spark Connect.
        scratch_root: Where scratch folders go.
        run_id: Names the run: its group of Spark jobs, by which it can be cancelled, and its files.
        options: How to reach sides, scratch and output.
        on_stage: Receives the progress of joins.
    """

    spark: SparkSession
    scratch_root: str
    run_id: str
    options: UriOptions = field(default_factory=lambda: UriOptions({}))
    on_stage: OnStage = ignore_progress

    @property
    def storage_options(self) -> Mapping[str, str]:
        return self.options.default

    @property
    def cores(self) -> int:
        return self.jobs.cores

    @property
    def jobs(self) -> Jobs:
        return jobs_of(self.spark)

    @contextmanager
    def open(
        self,
        work: JoinWork,
        frames: Mapping[str, DataFrame] | None = None,
        names: OutputNames | None = None,
    ) -> Iterator[SparkJoin]:
        """Open a join; files in scratch and uncommitted ones are removed in the end.

        Args:
            work: The rows to compare, and the place of the result.
            frames: DataFrames of the sides `left` and `right`, where they are no declared ones.
            names: The names of the columns of the result, where not as `output_names` has it.

        Raises:
            LancestatError: a side cannot be read, or holds no plain query.
        """
        known_right = work.known_right()
        work = work.scoped()
        # Both queries are checked before either of them runs.
        queries = {
            name: QuerySide.parse(self.spark, side, self.options, name)
            for name, side in (("left", work.left), ("right", work.right))
            if side.sql is not None
        }
        read = {name: query.rows(self.options) for name, query in queries.items()}
        given = {**(frames or {}), **{name: rows for name, (rows, _) in read.items()}}
        left = self._source("left", work.left, given.get("left"))
        right = self._source("right", work.right, given.get("right"))
        key_types = self._key_types(left, right)
        known = None if known_right is None else self._source("right", known_right, None)
        if names is None:
            names = output_names(left.select, right.select, with_rank=work.request.with_rank)
        unproven = {name: reasons for name, (_, reasons) in read.items()}
        with (
            ExitStack() as stack,
            self.jobs.group(self.run_id, f"lancestat: {work.node}"),
        ):
            scratch = _LazyScratch(self, stack)
            sources = (left, right)
            yield SparkJoin(self, work, sources, names, unproven, scratch, stack, key_types, known)

    def _source(self, name: str, side: SideSource, frame: DataFrame | None) -> _Source:
        if side.table is None and frame is None:
            frame = source_rows(self.spark, side, self.storage_options, name)
        select = side.select
        if select is None:
            assert frame is not None
            select = tuple(frame.columns)
        return _Source(name, side.vector, select, side.table, frame, side.filter, side.keys)

    def _key_types(self, left: _Source, right: _Source) -> tuple[pa.DataType, ...]:
        """Return the types in which keys are compared; nothing is read for it."""
        if not left.keys:
            return ()
        types = [self._types_of_keys(side) for side in (left, right)]
        return compared_key_types(left.keys, right.keys, *types)

    def _types_of_keys(self, source: _Source) -> list[pa.DataType]:
        if source.table is not None:
            options = self.options.of(source.table.pin.uri)
            schema = pinned_dataset(source.table.pin, options).schema
        else:
            assert source.frame is not None
            zone = self.spark.conf.get("spark.sql.session.timeZone") or "UTC"
            numbers = [column_index(source.frame.columns, k, source.name) for k in source.keys]
            fields = [source.frame.schema.fields[number] for number in numbers]
            return [to_arrow_schema(StructType([f]), zone).field(0).type for f in fields]
        for key in source.keys:
            if key not in schema.names:
                hint = did_you_mean(key, schema.names)
                message = f"the {source.name} side has no column '{key}'"
                raise SideColumnMissing(message, hint=hint)
        return [schema.field(key).type for key in source.keys]

    def open_sides(
        self,
        left: _Source,
        right: _Source,
        request: JoinRequest,
        folder: _LazyScratch,
        stage: PrepareSides,
    ) -> tuple[OpenedSide, OpenedSide]:
        """Open both sides; those that have to be written are written side by side.

        Where both are the same rows of no table these are written once, in one order.
        """
        if request.self_pairs is not None and left.table is None:
            return self._opened_once(left, right, request, folder, stage)
        with ThreadPoolExecutor(2) as pool:
            # A job group belongs to a thread, and is handed on with it.
            open_side = self.jobs.inherited(self.open_side)
            first = pool.submit(open_side, left, request, folder, stage, None)
            sides = [first, pool.submit(open_side, right, request, folder, stage, first)]
            try:
                wait(sides, return_when=FIRST_EXCEPTION)
                if any(side.done() and side.exception() for side in sides):
                    self._cancel(sides)
            except BaseException:
                # Leaving the pool waits for its threads.
                self._cancel(sides)
                raise
        failures = [error for side in sides if (error := side.exception()) is not None]
        if failures:
            # A side that was cancelled because of the other says nothing about the cause.
            raise min(failures, key=_is_cancelled)
        return sides[0].result(), sides[1].result()

    def _opened_once(
        self,
        left: _Source,
        right: _Source,
        request: JoinRequest,
        folder: _LazyScratch,
        stage: PrepareSides,
    ) -> tuple[OpenedSide, OpenedSide]:
        both = replace(left, select=(*left.select, *left.keys, *right.select), keys=right.keys)
        opened = self.open_side(both, request, folder, stage)
        side, shown, keys = opened.side, len(left.select), len(left.keys)
        first, among, second = (
            side.columns[:shown],
            side.columns[shown : shown + keys],
            side.columns[shown + keys :],
        )
        return (
            replace(opened, side=replace(side, columns=first, keys=among)),
            replace(opened, side=replace(side, columns=second)),
        )

    def _cancel(self, sides: Sequence[Future[OpenedSide]]) -> None:
        # The other side's job may be yet to come.
        self.jobs.cancel(self.run_id, lambda: all(side.done() for side in sides))

    def open_side(
        self,
        source: _Source,
        request: JoinRequest,
        folder: _LazyScratch,
        stage: PrepareSides,
        left: Future[OpenedSide] | None = None,
    ) -> OpenedSide:
        """Open a side; a right one may be read where it is, depending on the left one."""
        name, vector, select = source.name, source.vector, source.select
        if source.table is not None:
            options = self.options.of(source.table.pin.uri)
            opened = opened_table(
                source.table,
                vector,
                select,
                options,
                name,
                source.filter,
                has_bits=request.metric.has_bits,
            )
            return with_keys(opened, source.keys)
        assert source.frame is not None
        rows = with_numbered_columns(source.frame, vector, (*select, *source.keys), name)
        # What Spark would read of files is known in its JVM alone.
        scan = None if is_connect(self.spark) else parquet_scan(rows)
        check_vectors(rows, scan, name, has_bits=request.metric.has_bits)
        if scan is not None and left is not None and not source.keys:
            in_place = read_in_place(scan, request, left.result(), self.cores)
            if in_place is not None:
                note = f"the {name} side is read where it is"
                self.on_stage(StageProgress(stage, note=note))
                return in_place
        self.on_stage(StageProgress(stage, note=f"writing the {name} side"))
        uri = folder.path(name)
        writing = SideWriteOptions(
            uri,
            name,
            request.metric,
            name == "left",
            self.storage_options,
            as_spark=request.as_spark,
            has_bits=request.metric.has_bits,
        )
        opened = write_side(rows, scan, writing)
        count = len(opened.side.all_rows)
        self.on_stage(StageProgress(stage, count, count))
        return with_last_columns_as_keys(opened, len(source.keys))


@dataclass(frozen=True, slots=True)
class _Source:
    """The source of a side's rows: a table, else a DataFrame that is not computed yet.

    `filter` is that of a table. `keys` are compared with the other side's.
    """

    name: str
    vector: str
    select: Sequence[str]
    table: PinnedTable | None
    frame: DataFrame | None
    filter: str | None = None
    keys: tuple[str, ...] = ()


def _is_cancelled(error: BaseException) -> bool:
    return isinstance(error, Cancelled)


class _LazyScratch:
    """The scratch folder of a join, made when something is to be put there."""

    def __init__(self, engine: Engine, stack: ExitStack) -> None:
        self._engine = engine
        self._stack = stack
        self._making = Lock()
        self._uri: str | None = None

    def path(self, name: str) -> str:
        """Return the URI of the dataset `name`, and make the folder first if need be."""
        with self._making:
            if self._uri is None:
                application = self._engine.jobs.application
                root, options = self._engine.scratch_root, self._engine.storage_options
                self._uri = self._stack.enter_context(scratch(root, application, options))
        return f"{self._uri}/{name}.lance"
