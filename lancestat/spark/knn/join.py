"""Runs one join over opened sides: gate, search, commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from pyspark.sql import SparkSession

from lancestat.errors import RunError
from lancestat.knn import output
from lancestat.knn.gate import Decision, JoinSize, Strategy, choose
from lancestat.knn.names import OutputNames
from lancestat.knn.output import OutputWriter
from lancestat.knn.stages import OnStage, Stage, StageProgress
from lancestat.knn.work import JoinCounts, JoinOutcome, JoinWork, OutputState, Scope, StaleBase
from lancestat.lake.clean import secret_values
from lancestat.spark.knn.failed import failed
from lancestat.spark.knn.grid import Grid, cut, grid
from lancestat.spark.knn.materialize import Materialize, Previous, output_schema
from lancestat.spark.knn.nearest_by import NearestBy
from lancestat.spark.knn.opened_side import OpenedSide
from lancestat.spark.knn.probe import Cell, CountValid, ExactProbe
from lancestat.spark.knn.search_job import WrittenChunk, count_valid, search


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
    on_stage: OnStage

    def run(self, run_id: str) -> JoinOutcome:
        """Search, and commit what was found in one step.

        Raises:
            StaleBase: the previous result is not what it was taken for.
            RunError: LS556 the sides have vectors of different lengths, or what a task raised.
        """
        dimension = _agreed(self.left, self.right)
        decision = self._decide(dimension)
        options = self.left.side.storage_options
        writer = output.begin(self.work.output_format, self.work.output_uri, run_id, options)
        try:
            materialize = self._materialize(writer)
            chunks = self._search(materialize, decision, dimension)
        except Exception as error:
            output.discard(writer, [])
            raise failed(error, f"joining '{self.work.node}'", secret_values(options)) from None
        state = self._commit(writer, materialize, chunks)
        pairs = sum(chunk.pairs for chunk in chunks)
        return JoinOutcome(decision.strategy.value, self._counts(chunks), state, pairs)

    def _decide(self, dimension: int) -> Decision:
        left, right = len(self.left.side.all_rows), len(self.right.side.all_rows)
        size = JoinSize(left, right, dimension)
        request = self.work.request
        if self.work.scope is not Scope.FULL:
            # The gate is about joins as a whole.
            request = replace(request, min_right_rows=0)
        decision = choose(request, size, self.spark.sparkContext.defaultParallelism)
        note = f"{decision.strategy.value}: {decision.why}"
        self.on_stage(StageProgress(Stage.GATE, left, left, note=note))
        return decision

    def _materialize(self, writer: OutputWriter) -> Materialize:
        left, right, kind = self.left.side, self.right.side, self.work.request.kind
        schema = output_schema(left, right, self.names, kind)
        return Materialize(left, right, self.names, kind, schema, writer)

    def _search(
        self, materialize: Materialize, decision: Decision, dimension: int
    ) -> list[WrittenChunk]:
        request, cores = self.work.request, self.spark.sparkContext.defaultParallelism
        left, right = self.left.side, self.right.side
        rows = right.all_rows
        shares = grid(left.all_rows, len(rows), dimension=dimension, k=request.k, cores=cores)
        if self.work.scope is Scope.NEW_RIGHT:
            materialize = replace(
                materialize, previous=self._previous(materialize, shares, dimension)
            )
        threads = int(self.spark.sparkContext.getConf().get("spark.task.cpus", "1"))
        parts = tuple(cut(rows, shares.parts))
        if decision.strategy is Strategy.SPARK:
            nearest = NearestBy(
                self.spark, materialize, dimension, request.k, request.metric, threads
            )
            return nearest.search(shares.chunks, parts)
        probe = ExactProbe(
            left,
            right,
            parts,
            dimension,
            request.k,
            request.metric,
        )
        cells = [
            Cell(number, chunk, part)
            for number, chunk in enumerate(shares.chunks)
            for part in range(shares.parts)
        ]
        return search(
            self.spark.sparkContext,
            cells,
            probe,
            materialize,
            k=request.k,
            threads=threads,
            on_stage=self.on_stage,
        )

    def _previous(self, materialize: Materialize, shares: Grid, dimension: int) -> Previous:
        known, state, request = self.work.known, self.work.previous, self.work.request
        assert known is not None and state is not None
        width = min(request.k, known.right_rows - known.excluded_right_rows)
        count = CountValid(self.left.side, dimension, request.metric, "left")
        valid = count_valid(self.spark.sparkContext, count, shares.chunks)
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
