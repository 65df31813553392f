"""Runs tables: fragments are read in this process or on Spark, and statistics published."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from typing_extensions import assert_never

from lancestat.errors import TableKeepsChanging
from lancestat.lake.open import REPLACED
from lancestat.runs.actions import Action, Blocked, Figures, Reason, RunsOn, Skip
from lancestat.runs.evaluator import MAX_ATTEMPTS, RunContext
from lancestat.runs.node import NodeEnded
from lancestat.runs.result import NodeResult, Status, planned
from lancestat.runs.stages import StageProgress
from lancestat.spark.failure import SessionLostError
from lancestat.spark.session import RunSession
from lancestat.spec.catalog import UriOptions
from lancestat.tables.action import (
    MergePartials,
    PublishStatistics,
    ReadFragments,
    RestampStatistics,
    ReusePartials,
    Scan,
    TableAction,
    TableVersion,
)
from lancestat.tables.analyze.in_process import ProcessScanner
from lancestat.tables.analyze.scan_task import TableScan
from lancestat.tables.assembly import (
    PartialsGoneError,
    ScannedPartials,
    ScanTable,
    ScanTotals,
    TableWorkspace,
)
from lancestat.tables.statistics.partial import ColumnPartial
from lancestat.tables.stored import stored_record

_log = logging.getLogger("lancestat.run")


@contextmanager
def table_runner(context: RunContext) -> Iterator[TableRunner]:
    """Lend what runs the tables of a run."""
    advanced, options = context.progress.advanced, context.options
    spark = SparkScanner(context.spark, options, advanced)
    with ProcessScanner(context.spec.target, advanced, options) as process:

        def scan(node: str, table: TableVersion, stage: ReadFragments) -> ScannedPartials:
            scanner = process if stage.runs_on is RunsOn.PROCESS else spark
            return scanner.scan(node, table, stage.scans)

        yield TableRunner(context, scan, process.cancel)


@dataclass(frozen=True, slots=True)
class SparkScanner:
    """Reads fragments of tables on the Spark of a run.

    Call `scan` from one thread per table: Spark's FIFO scheduler gives free cores to the oldest job
    first, so tables that come early are through early, and a table that is being published leaves
    its cores to the others. `on_progress` receives a node's name with its fragments and bytes read
    so far.
    """

    spark: RunSession
    options: UriOptions
    on_progress: Callable[[str, int, int], None] = lambda node, fragments, size_bytes: None

    def scan(
        self, node: str, table: TableVersion, scans: Sequence[Scan]
    ) -> Iterator[tuple[Scan, Mapping[str, ColumnPartial]]]:
        """Read scans of a table; yield each once with its partials by field key.

        Raises:
            LakeError: The dataset was replaced, or cannot be opened.
            FragmentNotAnalyzed: Rows cannot be read or analyzed, after Spark's own retries.
            JobFailed: The Spark job failed otherwise.
            SessionLostError: The Spark Connect server restarted; read what was not yielded again.
            Cancelled, SparkNotStarted: As `RunSession.working`.
        """
        if not scans:
            return
        what = f"reading {table.uri}"
        with self.spark.working(what) as (session, group):
            from lancestat.tables.analyze.jobs import analyze_table

            for scan, partials in analyze_table(
                session,
                TableScan(node, table, tuple(scans)),
                self.options.of(table.uri),
                group=group,
                on_progress=lambda fragments, size: self.on_progress(node, fragments, size),
            ):
                self.spark.refuse_when_cancelled(what)
                yield scan, partials


@dataclass(frozen=True, slots=True)
class TableRunner:
    """Runs actions on tables; `scan` reads fragments, `cancel` stops what reads in this process."""

    context: RunContext
    scan: ScanTable
    cancel: Callable[[], None]

    def run(self, action: TableAction) -> NodeEnded:
        """Carry out an action until its statistics are published for the version they describe."""
        result, scanned = planned(action), ScanTotals()
        for attempt in range(1, MAX_ATTEMPTS + 1):
            scanned = scanned.plus(action.scans)
            try:
                done = self._table_stages(action, even_late=attempt == MAX_ATTEMPTS)
                if done is not None:
                    return _table_ended(result, action, scanned, done)
                again = self._planned_again(action)
            except PartialsGoneError:
                again = self._planned_again(action, uses_stored=False)
            except REPLACED as error:
                _log.info("'%s' is planned again: %s", action.node, error.message)
                again = self._planned_again(action)
            except SessionLostError as error:
                _log.warning("'%s' goes on: %s", action.node, error)
                # What a run in full has stored, it cannot tell from what was there before.
                is_full = Reason.FULL_REFRESH in action.reasons
                again = action if is_full else self._planned_again(action)
            match again:
                case TableAction():
                    action = again
                case Skip(figures=Figures() as figures):
                    return NodeEnded(_table_result(result, figures, scanned))
                case Blocked():
                    raise again.error
                case _:
                    raise AssertionError(f"no action on a table: {again}")
        raise TableKeepsChanging(
            f"the table changed during each of {MAX_ATTEMPTS} attempts to publish its statistics",
            hint="what was read is remembered: run again when the table is quieter",
        )

    def _table_stages(self, action: TableAction, *, even_late: bool) -> TableWorkspace | None:
        """The workspace after the last stage, None where the table has moved on meanwhile."""
        workspace = TableWorkspace(
            action.node,
            action.table,
            self.context.state,
            self.scan,
            self.context.options.of(action.table.uri),
            self.context.run_id,
            self.context.clock,
            is_new=action.verb == "analyze",
            on_stored=lambda fragments: self.context.stored.update({action.node: fragments}),
        )
        for stage in action.stages:
            self.context.progress.at_stage(action.node, StageProgress(stage))
            self.context.refuse_when_stopped(action.node)
            match stage:
                case ReusePartials():
                    workspace.reuse(stage.coverage)
                case ReadFragments():
                    workspace.read(stage)
                case MergePartials():
                    workspace.merge(stage.version)
                case RestampStatistics():
                    workspace.restamp(stage)
                case PublishStatistics():
                    if not self._publish(workspace, stage, even_late=even_late):
                        return None
                case _:
                    assert_never(stage)
        return workspace

    def _publish(
        self, workspace: TableWorkspace, stage: PublishStatistics, *, even_late: bool
    ) -> bool:
        """Publish as the workspace does; a table that is published stays in `publishing`."""
        is_published = False
        # Added before the look: whoever sets `stopped`, and then finds none here, has seen all.
        self.context.publishing.add(workspace.node)
        try:
            self.context.refuse_when_stopped(workspace.node)
            is_published = workspace.publish(stage, even_late=even_late)
        finally:
            if not is_published:
                self.context.publishing.discard(workspace.node)
        return is_published

    def _planned_again(self, action: TableAction, *, uses_stored: bool = True) -> Action:
        return self.context.observer.plan_again(action.node, uses_stored=uses_stored)


def _table_ended(
    result: NodeResult, action: TableAction, scanned: ScanTotals, done: TableWorkspace
) -> NodeEnded:
    assert done.record is not None, "publishing is the last stage"
    landed = done.record.version
    result = replace(
        _table_result(result, action.figures, scanned),
        version_published=landed if landed != action.table.version else None,
    )
    live = {action.table.identity: action.table.live}
    return NodeEnded(result, stored_record(done.record), live)


def _table_result(result: NodeResult, figures: Figures, scanned: ScanTotals) -> NodeResult:
    """The result of an action whose last attempt had these figures."""
    return replace(
        result,
        status=Status.SUCCESS,
        fragments_total=figures.fragments_total,
        fragments_scanned=scanned.fragments,
        rows_total=figures.rows_total,
        rows_scanned=scanned.rows,
        version_read=figures.version_read,
    )
