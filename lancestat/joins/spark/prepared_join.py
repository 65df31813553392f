"""A join on Spark whose sides are prepared: its search, the commit, and the counts of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate

from lancestat.errors import PartitionsLost, StaleBase
from lancestat.joins.action import CommitResult, ExtendLayout, LayOut, Probe, ReuseLayout
from lancestat.joins.measures import JoinCounts, JoinDistances
from lancestat.joins.output import result as output
from lancestat.joins.planner import JoinFacts
from lancestat.joins.search.distances import join_distances
from lancestat.joins.search.work import JoinOutcome, JoinWork, Scope
from lancestat.joins.spark.group_layout import GroupLayout
from lancestat.joins.spark.kept_layouts import LayoutKeeper
from lancestat.joins.spark.known_lines import count_lines, keyed_widths
from lancestat.joins.spark.materialize import PreviousResult, SameWidths, Widths
from lancestat.joins.spark.partitioned import Layout, UnmeasuredLayout
from lancestat.joins.spark.reader import VectorReader
from lancestat.joins.spark.strategies import IndexSearch, Searcher
from lancestat.joins.spark.tasks import WrittenChunk, count_valid
from lancestat.redact import secret_values
from lancestat.runs.stages import StageProgress
from lancestat.spark.failure import job_error


@dataclass(frozen=True, slots=True)
class PreparedJoin:
    """A join as `runs.evaluator.PreparedJoin` has it, on Spark.

    Args:
        work: The rows to compare, and the place of the result.
        facts: The facts about the sides.
        searcher: Searches both sides.
        excluded: The right rows that were left out when that side was written.
        unproven: As in `JoinOutcome`.
        place: Makes a place in scratch of that name.
        rollback: Removes what was written, when it is closed.
        probing: The stage that searches.
        method: How to search; every pair is compared without it.
        keeper: The kept layouts of the right side, where it may have any.
        known_right: Under keys, the right rows of the last result, where new ones are merged.
    """

    work: JoinWork
    facts: JoinFacts
    searcher: Searcher
    excluded: int
    unproven: Mapping[str, tuple[str, ...]]
    place: Callable[[str], str]
    rollback: ExitStack
    probing: Probe
    method: Layout | UnmeasuredLayout | IndexSearch | GroupLayout | None = None
    keeper: LayoutKeeper | None = None
    known_right: VectorReader | None = None

    def lay_out(self, stage: LayOut) -> PreparedJoin | None:
        with self._task_errors():
            layout: Layout | UnmeasuredLayout | None
            if self.keeper is None:
                layout = self.searcher.lay_out(self.place("partitions"), stage.lists)
            else:
                layout = self.keeper.lay_out(self.searcher.partitioning, stage.lists)
        return None if layout is None else replace(self, method=layout)

    def reuse_layout(self, stage: ReuseLayout) -> PreparedJoin | None:
        assert self.keeper is not None, "a layout was found"
        with self._task_errors():
            layout = self.keeper.reuse(self.searcher.partitioning)
        return None if layout is None else replace(self, method=layout)

    def extend_layout(self, stage: ExtendLayout) -> PreparedJoin | None:
        assert self.keeper is not None, "a layout was found"
        with self._task_errors():
            layout = self.keeper.extend(self.searcher.partitioning)
        return None if layout is None else replace(self, method=layout)

    def group_rows(self) -> PreparedJoin:
        counts_all = self.work.scope is not Scope.NEW_LEFT
        with self._task_errors():
            layout = self.searcher.group_rows(counts_all=counts_all)
        return replace(self, method=layout)

    def measure_index(self) -> PreparedJoin | None:
        with self._task_errors():
            search = self.searcher.measure_index()
        return None if search is None else replace(self, method=search)

    def probe(self, stage: Probe) -> PreparedJoin:
        return replace(self, probing=stage)

    def merge_neighbours(self) -> PreparedJoin:
        increment = self.work.increment
        assert increment is not None, "there is a result to go on from"
        state = increment.previous
        with self._task_errors():
            searcher, widths, lines = self._known_lines(increment.known)
        if sum(lines) != state.rows:
            raise StaleBase(
                f"{state.uri} has {state.rows} rows, but {sum(lines)} follow from its sides",
            )
        previous = PreviousResult(state, widths, tuple(accumulate(lines[:-1], initial=0)))
        merging = replace(searcher.materialize, previous=previous)
        return replace(self, searcher=replace(searcher, materialize=merging))

    def _known_lines(self, known: JoinCounts[int]) -> tuple[Searcher, Widths, list[int]]:
        """Return how many neighbours left rows have in the last result, and its rows by chunk."""
        searcher, k = self.searcher, self.work.request.k
        if self.known_right is not None:
            # A search by keys divides the left rows alone.
            whole = searcher.shares.without_parts(searcher.jobs.cores)
            keyed = keyed_widths(
                searcher.jobs, searcher.left, self.known_right, searcher.key_types, k,
                all_match=not known.excluded_right_rows,
            )  # fmt: skip
            lines = count_lines(searcher.jobs, searcher.materialize, whole.chunks, keyed)
            return replace(searcher, shares=whole), keyed, lines
        width = min(k, known.right_rows - known.excluded_right_rows)
        chunks, materialize = searcher.shares.chunks, searcher.materialize
        valid = count_valid(searcher.jobs, searcher.left, chunks)
        lines = [
            materialize.line_count(matching, len(rows) - matching, width)
            for matching, rows in zip(valid, chunks, strict=True)
        ]
        return searcher, SameWidths(width), lines

    def commit(self, stage: CommitResult) -> JoinOutcome:
        with self._task_errors():
            result = self.searcher.search(self.probing, stage, self.method)
        self.searcher.on_stage(StageProgress(stage))
        materialize, increment = self.searcher.materialize, self.work.increment
        written = [chunk.written for chunk in result.chunks]
        # From here on the writer commits or discards.
        self.rollback.pop_all()
        try:
            if stage.appends:
                assert increment is not None, "there is a result to go on from"
                previous = increment.previous
                state = output.append(materialize.writer, materialize.schema, previous, written)
            else:
                state = output.replace(materialize.writer, materialize.schema, written)
        except BaseException:
            output.discard(materialize.writer, written)
            raise
        return JoinOutcome(
            result.strategy.value,
            self._counts(result.chunks),
            state,
            sum(chunk.pairs for chunk in result.chunks),
            result.accuracy,
            self.unproven,
            self._distances(result.chunks),
            result.groups,
        )

    def _distances(self, chunks: Sequence[WrittenChunk]) -> JoinDistances | None:
        return join_distances(
            (chunk.distances for chunk in chunks),
            self.searcher.materialize.ranks,
            len(self.searcher.left.side.all_rows),
            # Bits that differ are whole numbers.
            least_width=1.0 if self.work.request.metric.has_bits else 0.0,
        )

    @contextmanager
    def _task_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            secrets = secret_values(self.searcher.materialize.writer.storage_options)
            failure = job_error(error, f"joining '{self.work.node}'", secrets)
            if isinstance(failure, PartitionsLost) and self.keeper is not None:
                self.keeper.withdraw()
            raise failure from None

    def _counts(self, chunks: Sequence[WrittenChunk]) -> JoinCounts[int]:
        left_rows = len(self.searcher.left.side.all_rows)
        counts = JoinCounts(
            left_rows,
            len(self.searcher.right.side.all_rows) + self.excluded,
            left_rows - sum(chunk.matched for chunk in chunks),
            # Every chunk has met the whole right side.
            self.excluded + chunks[0].excluded,
        )
        if self.work.increment is None:
            return counts
        known = self.work.increment.known
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
