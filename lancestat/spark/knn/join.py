"""Runs one join over opened sides: gate, search, commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from pyspark import SparkContext
from pyspark.sql import SparkSession

from lancestat.errors import RunError
from lancestat.knn import output
from lancestat.knn.gate import Decision, JoinSize, choose
from lancestat.knn.names import OutputNames
from lancestat.knn.output import OutputWriter
from lancestat.knn.request import Mode
from lancestat.knn.side import VectorSide
from lancestat.knn.stages import OnStage, Stage, StageProgress
from lancestat.knn.work import (
    JoinCounts,
    JoinOutcome,
    JoinWork,
    OutputState,
    Scope,
    StaleBase,
    scoped,
)
from lancestat.lake.clean import secret_values
from lancestat.lake.vector_index import index_metric
from lancestat.spark.failure import job_error
from lancestat.spark.fragment_reader import pinned_dataset
from lancestat.spark.knn.grid import Grid, grid
from lancestat.spark.knn.materialize import Materialize, Previous, output_schema
from lancestat.spark.knn.opened_side import OpenedSide
from lancestat.spark.knn.reader import VectorReader
from lancestat.spark.knn.search_job import WrittenChunk, count_valid
from lancestat.spark.knn.searcher import Found, Place, Searcher


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
