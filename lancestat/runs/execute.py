"""Executes a plan on the Spark of its target."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from lancestat.runs.actions import Action, Plan, RunsOn, is_pending, own_figures
from lancestat.runs.evaluator import Evaluator
from lancestat.runs.garbage_collection import remove_past_results
from lancestat.runs.locate import located
from lancestat.runs.node_result import Status
from lancestat.runs.result import Progress, RunResult
from lancestat.runs.scanner import SparkScanner
from lancestat.runs.scheduler import THREADS, NodeMessages, RunRecorder, Scheduler
from lancestat.spark.package import require_package
from lancestat.spark.start import uses_package
from lancestat.spec.model import Table, joins_of
from lancestat.state.values import StateWriter
from lancestat.tables.action import ReadFragments, TableVersion
from lancestat.tables.analyze.in_process import ProcessScanner
from lancestat.tables.assembly import ScannedPartials
from lancestat.tables.observe import Observer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Execution:
    """Executes the plans of one project; `observer` and `digests` are of its nodes.

    `threads` nodes are worked on at once, None for as many as usual. `session` is as
    `SparkScanner` has it. Where the process ends next (`ends_process`), Spark stops by itself.
    """

    observer: Observer
    state: StateWriter
    digests: Mapping[str, str]
    progress: Progress
    threads: int | None = None
    fail_fast: bool = False
    session: SparkSession | None = None
    ends_process: bool = False

    def execute(self, plan: Plan, command: str) -> RunResult:
        """Execute a plan; the run's record names `command`.

        Raises:
            PackageUnreadable: The target's `spark.package` is not there. It would be needed as soon
                as there is something to read, so that this is refused even where nothing is.
        """
        spec = self.observer.spec
        target = spec.target
        if self.session is None and target.spark_package is not None and uses_package(target):
            require_package(target.spark_package, target.package_location)
        has_joins = any(map(own_figures, plan.actions))
        advanced = self.progress.advanced
        with (
            ProcessScanner(spec.target, advanced, options=spec.options) as process,
            SparkScanner(
                spec.target,
                advanced,
                has_joins=has_joins,
                session=self.session,
                ends_process=self.ends_process,
                options=spec.options,
            ) as spark,
        ):

            def scan(node: str, table: TableVersion, stage: ReadFragments) -> ScannedPartials:
                match stage.runs_on:
                    case RunsOn.PROCESS:
                        return process.scan(node, table, stage.scans)
                    case RunsOn.SPARK:
                        return spark.scan(node, table, stage.scans)
                    case _:
                        assert_never(stage.runs_on)

            def cancel() -> None:
                process.cancel()
                spark.cancel()

            evaluator = Evaluator(
                state=self.state,
                scan=scan,
                open_join=spark.join,
                replan=self._replan,
                replan_table=self._replan_table,
                options=spec.options,
                catalogs=spec.target.catalogs,
                run_id=uuid.uuid4().hex,
                clock=self.observer.clock,
                digests=self.digests,
                locations={node.name: node.location for node in spec.nodes},
                on_stage=self.progress.at_stage,
            )
            messages = NodeMessages(spec.redactor, spec.origins)
            scheduler = Scheduler(
                evaluator,
                RunRecorder(self.state, self.digests, messages),
                self.progress,
                cancel,
                self.threads or THREADS,
                self.fail_fast,
            )
            result = scheduler.execute(plan, command)
            self._remove_past_results(plan, result)
            return result

    def _remove_past_results(self, plan: Plan, result: RunResult) -> None:
        """Remove the results that are past now that joins have written others."""
        ran = {action.node for action in plan.actions if own_figures(action) and is_pending(action)}
        written = {
            node.name for node in result.nodes if node.status is Status.SUCCESS and node.name in ran
        }
        spec = self.observer.spec
        joins = [join for join in spec.joins if join.keep is not None and join.name in written]
        if joins:
            spec, nodes = located(spec, joins)
            remove_past_results(spec, joins_of(nodes), {}, self.observer.clock())

    def _replan_table(self, name: str, use_partials: bool) -> Action:
        table = self.observer.spec.node(name)
        assert isinstance(table, Table), f"{name} was planned as a table"
        return self.observer.plan_again(table, use_partials=use_partials)

    def _replan(self, name: str, full_refresh: bool) -> Action:
        nodes = [node for node in self.observer.spec.nodes if node.name == name]
        [action] = self.observer.plan(nodes, full_refresh=full_refresh).actions
        return action
