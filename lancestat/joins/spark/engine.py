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
from lancestat.joins.action import PrepareSides
from lancestat.joins.output.result import output_at, output_of
from lancestat.joins.scratch.folder import scratch, utc_now
from lancestat.joins.scratch.garbage import ScratchGarbage
from lancestat.joins.scratch.kept_indexes import IndexStore
from lancestat.joins.scratch.kept_neighbours import NeighbourStore
from lancestat.joins.search.cost_model import JoinSize
from lancestat.joins.search.distances import counted_ranks
from lancestat.joins.search.groups import compared_key_types
from lancestat.joins.search.work import JoinWork, OutputNames, SideSource, VectorSide, output_names
from lancestat.joins.spark.cells import grid
from lancestat.joins.spark.ivf import IndexKeeper
from lancestat.joins.spark.materialize import Materializer, output_schema
from lancestat.joins.spark.prepared_join import PreparedJoin
from lancestat.joins.spark.reader import Side, VectorReader, parquet_scan
from lancestat.joins.spark.sides import (
    SideWriter,
    check_vectors,
    column_index,
    opened_table,
    plain_query,
    query_rows,
    read_in_place,
    source_rows,
    with_last_columns_as_keys,
    with_numbered_columns,
    write_side,
)
from lancestat.joins.spark.updates import Keeping
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
class Engine:
    """The Spark session, scratch and storage that joins use.

    `run_id` names the run: its group of Spark jobs, by which it can be cancelled, and its files.
    `options` reach sides, scratch and output.
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

        Sides that are not declared are `frames` of names `left` and `right`. `names` are of columns
        of the result, where not as `output_names` has it.

        Raises:
            LancestatError: a side cannot be read, or holds no plain query.
        """
        work = work.scoped()
        frames, unproven = self._frames(work, frames or {})
        sides = [
            side if side.select is not None else replace(side, select=tuple(frames[name].columns))
            for name, side in (("left", work.left), ("right", work.right))
        ]
        work = replace(work, left=sides[0], right=sides[1])
        key_types = self._key_types(work, frames)
        if names is None:
            selected = [side.select or () for side in sides]
            names = output_names(*selected, with_rank=work.request.with_rank)
        with ExitStack() as stack, self.jobs.group(self.run_id, f"lancestat: {work.node}"):
            yield SparkJoin(self, work, frames, names, unproven, stack, key_types)

    def _frames(
        self, work: JoinWork, given: Mapping[str, DataFrame]
    ) -> tuple[dict[str, DataFrame], dict[str, tuple[str, ...]]]:
        """Return the DataFrames of sides that are no tables, and why queries are not proven."""
        sides, frames = {"left": work.left, "right": work.right}, dict(given)
        # Both queries are checked before either of them runs.
        queries = {
            name: plain_query(self.spark, side, self.options, name)
            for name, side in sides.items()
            if side.sql is not None
        }
        unproven = {}
        for name, query in queries.items():
            rows, unproven[name] = query_rows(query, sides[name], self.options, name)
            frames[name] = rows
        for name, side in sides.items():
            if side.table is None and name not in frames:
                frames[name] = source_rows(self.spark, side, self.storage_options, name)
        return frames, unproven

    def _key_types(
        self, work: JoinWork, frames: Mapping[str, DataFrame]
    ) -> tuple[pa.DataType, ...]:
        """Return the types in which keys are compared; nothing is read for it."""
        left, right = work.left, work.right
        if not left.keys:
            return ()
        types = [
            self._types_of_keys(name, side, frames.get(name))
            for name, side in (("left", left), ("right", right))
        ]
        return compared_key_types(left.keys, right.keys, *types)

    def _types_of_keys(
        self, name: str, side: SideSource, frame: DataFrame | None
    ) -> list[pa.DataType]:
        if side.table is None:
            assert frame is not None
            zone = self.spark.conf.get("spark.sql.session.timeZone") or "UTC"
            numbers = [column_index(frame.columns, key, name) for key in side.keys]
            fields = [frame.schema.fields[number] for number in numbers]
            return [to_arrow_schema(StructType([f]), zone).field(0).type for f in fields]
        schema = pinned_dataset(side.table.pin, self.options.of(side.table.pin.uri)).schema
        for key in side.keys:
            if key not in schema.names:
                hint = did_you_mean(key, schema.names)
                raise SideColumnMissing(f"the {name} side has no column '{key}'", hint=hint)
        return [schema.field(key).type for key in side.keys]


@dataclass(slots=True)
class SparkJoin:
    """A join whose sides are known, and not prepared yet.

    `frames` are the sides that are no tables. `cleanup` is closed when the join is.
    """

    engine: Engine
    work: JoinWork
    frames: Mapping[str, DataFrame]
    names: OutputNames
    unproven: Mapping[str, tuple[str, ...]]
    cleanup: ExitStack
    key_types: tuple[pa.DataType, ...] = ()
    _scratch: str | None = None
    _making: Lock = field(default_factory=Lock, repr=False)

    def place(self, name: str) -> str:
        """Return the URI in scratch of the dataset `name`, and make the folder first if need be."""
        with self._making:
            if self._scratch is None:
                application = self.engine.jobs.application
                root, options = self.engine.scratch_root, self.engine.storage_options
                self._scratch = self.cleanup.enter_context(scratch(root, application, options))
        return f"{self._scratch}/{name}.lance"

    def prepare_sides(self, stage: PrepareSides) -> PreparedJoin:
        engine, work, request = self.engine, self.work, self.work.request
        left, right = self._open_sides(stage)
        dimension = _common_dimension(left, right, has_bits=request.metric.has_bits)
        options = engine.options.of(work.output_uri)
        writer = output_at(work.output_format, work.output_uri, options).begin(engine.run_id)
        rollback = self.cleanup.enter_context(ExitStack())
        rollback.callback(output_of(writer).discard, writer)
        cores, rows = engine.jobs.cores, (len(left.all_rows), len(right.all_rows))
        has_nearest_by = has_nearest_by_join() and not is_connect(engine.spark)
        keeper = self._keeper(right, dimension)
        kept = None if keeper is None else keeper.look()
        keeping = self._keeping(left, right)
        return PreparedJoin(
            work=work,
            spark=engine.spark,
            left=VectorReader(left, dimension, request.metric, "left"),
            right=VectorReader(right, dimension, request.metric, "right"),
            size=JoinSize(*rows, dimension, self._has_index(right), has_nearest_by, kept),
            grid=grid(left.all_rows, rows[1], dimension=dimension, k=request.searched, cores=cores),
            materialize=Materializer(
                left,
                right,
                self.names,
                request.kind,
                output_schema(left, right, self.names, request.kind),
                writer,
                shown=None if request.is_radius else request.k,
                drops_self=request.excludes_self and not request.is_radius,
                ranks=() if request.is_radius else counted_ranks(request.k),
                keeper=None if keeping is None else keeping.keeper,
            ),
            on_stage=engine.on_stage,
            place=self.place,
            scratch_options=engine.storage_options,
            unproven=self.unproven,
            rollback=rollback,
            key_types=self.key_types,
            keeper=keeper,
            keeping=keeping,
        )

    def _keeping(self, left: Side, right: Side) -> Keeping | None:
        engine, work = self.engine, self.work
        is_known = work.increment is None or work.increment.neighbours
        if work.neighbours_key is None or not is_known:
            return None
        assert isinstance(left, VectorSide) and isinstance(right, VectorSide), "sides are tables"
        root, options = engine.scratch_root, engine.storage_options
        # Those of a big join are as large as its result, and not everybody runs `lancestat gc`.
        garbage = ScratchGarbage(IndexStore(root, options), utc_now())
        garbage.collect_neighbours(work.neighbours_key, lambda: work.neighbours)
        store = NeighbourStore(root, options)
        draft = self.cleanup.enter_context(store.writing(work.neighbours_key))
        return Keeping.of(store, draft, work, left, right)

    def _keeper(self, side: Side, dimension: int) -> IndexKeeper | None:
        engine, work, content = self.engine, self.work, self.work.right.content
        if content is None or work.scope.is_update:
            return None
        assert isinstance(side, VectorSide)
        store = IndexStore(engine.scratch_root, engine.storage_options)
        return IndexKeeper(work.node, store, content, side, dimension, self.cleanup, work.is_fresh)

    def _has_index(self, side: Side) -> bool:
        right, request = self.work.right, self.work.request
        if right.table is None or right.filter is not None:
            return False
        if not request.is_approximate or request.metric.index_name is None:
            return False
        assert isinstance(side, VectorSide)
        dataset = pinned_dataset(side.pin, side.storage_options)
        return index_metric(dataset, right.vector) == request.metric.index_name

    def _open_sides(self, stage: PrepareSides) -> tuple[Side, Side]:
        """Open both sides; those that have to be written are written side by side.

        Where both are the same rows of no table these are written once, in one order.
        """
        if self.work.request.self_pairs is not None and self.work.left.table is None:
            return self._opened_once(stage)
        jobs = self.engine.jobs
        with ThreadPoolExecutor(2) as pool:
            # A job group belongs to a thread, and is handed on with it.
            open_side = jobs.inherited(self._open_side)
            first = pool.submit(open_side, "left", self.work.left, stage)
            sides = [first, pool.submit(open_side, "right", self.work.right, stage, first)]
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
            raise min(failures, key=lambda error: isinstance(error, Cancelled))
        return sides[0].result(), sides[1].result()

    def _cancel(self, sides: Sequence[Future[Side]]) -> None:
        # The other side's job may be yet to come.
        self.engine.jobs.cancel(self.engine.run_id, lambda: all(side.done() for side in sides))

    def _opened_once(self, stage: PrepareSides) -> tuple[Side, Side]:
        left, right = self.work.left, self.work.right
        on_left = left.select or ()
        select = (*on_left, *left.keys, *(right.select or ()))
        side = self._open_side("left", replace(left, select=select, keys=right.keys), stage)
        shown, keys = len(on_left), len(left.keys)
        among = side.columns[shown : shown + keys]
        return (
            replace(side, columns=side.columns[:shown], keys=among),
            replace(side, columns=side.columns[shown + keys :]),
        )

    def _open_side(
        self, name: str, source: SideSource, stage: PrepareSides, left: Future[Side] | None = None
    ) -> Side:
        """Open a side; a right one may be read where it is, depending on the left one."""
        engine, request, select = self.engine, self.work.request, source.select or ()
        has_bits = request.metric.has_bits
        if source.table is not None:
            options = engine.options.of(source.table.pin.uri)
            table = (source.table, source.vector, select, options, name, source.filter)
            return opened_table(*table, source.keys, has_bits=has_bits)
        frame = self.frames[name]
        rows = with_numbered_columns(frame, source.vector, (*select, *source.keys), name)
        # What Spark would read of files is known in its JVM alone.
        scan = None if is_connect(engine.spark) else parquet_scan(rows)
        check_vectors(rows, scan, name, has_bits=has_bits)
        if scan is not None and left is not None and not source.keys:
            in_place = read_in_place(scan, request, left.result(), engine.jobs.cores)
            if in_place is not None:
                note = f"the {name} side is read where it is"
                engine.on_stage(StageProgress(stage, note=note))
                return in_place
        engine.on_stage(StageProgress(stage, note=f"writing the {name} side"))
        writer = SideWriter(
            self.place(name),
            name,
            request.metric,
            name == "left",
            engine.storage_options,
            as_spark=request.as_spark,
        )
        side = write_side(rows, scan, writer)
        count = len(side.all_rows)
        engine.on_stage(StageProgress(stage, count, count))
        return with_last_columns_as_keys(side, len(source.keys))


def _common_dimension(left: Side, right: Side, *, has_bits: bool) -> int:
    known = {side.dimension for side in (left, right)} - {None}
    if len(known) > 1:
        raise VectorLengthMismatch(
            f"the left side has vectors of {left.dimension} elements, "
            f"the right side of {right.dimension}",
        )
    # Without any vector the length is the least there can be; bits come by the byte.
    return next(iter(known), None) or (8 if has_bits else 1)
