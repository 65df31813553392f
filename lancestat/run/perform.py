"""Carries out a plan of a project: with Spark, its state, and a new look where one is needed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lancestat.plan.actions import Action, Plan
from lancestat.plan.observe import Observer
from lancestat.plan.summary import totals
from lancestat.run.executor import THREADS, Executor
from lancestat.run.join_run import JoinRunner
from lancestat.run.node_run import NodeRunner
from lancestat.run.progress import Progress
from lancestat.run.result import RunResult
from lancestat.run.table_run import TableRunner
from lancestat.spec.model import Table
from lancestat.state.values import StateWriter

if TYPE_CHECKING:
    from lancestat.spark.scanner import SparkScanner


@dataclass(frozen=True, slots=True)
class Performer:
    """Carries out plans of one project; `observer` and `digests` are of its nodes.

    `threads` nodes are worked on at once, None for as many as usual.
    """

    observer: Observer
    state: StateWriter
    digests: Mapping[str, str]
    progress: Progress
    threads: int | None = None
    fail_fast: bool = False

    def perform(self, plan: Plan, command: str) -> RunResult:
        """Do what a plan says; `command` is what the run is remembered as."""
        from lancestat.spark.scanner import SparkScanner

        target, told = self.observer.spec.target, self.progress
        has_joins = totals(plan.actions).joins > 0
        with SparkScanner(target, told.advanced, has_joins=has_joins) as scanner:
            executor = Executor(
                self._runner(scanner),
                self.state,
                told,
                self.observer.clock,
                self.digests,
                scanner.cancel,
                self.threads or THREADS,
                self.fail_fast,
                command,
                self.observer.spec.redactor,
                self.observer.spec.origins,
            )
            return executor.execute(plan)

    def _runner(self, scanner: SparkScanner) -> NodeRunner:
        spec, clock = self.observer.spec, self.observer.clock
        tables = TableRunner(
            state=self.state,
            scan=scanner.scan,
            replan=self._replan,
            storage_options=spec.target.storage_options,
            run_id=uuid.uuid4().hex,
            clock=clock,
        )
        locations = {node.name: node.location for node in spec.nodes}
        joins = JoinRunner(scanner.join, clock, self.digests, locations, self.progress.joined)
        return NodeRunner(tables, joins, self._replan_node)

    def _replan(self, name: str, use_partials: bool) -> Action:
        table = self.observer.spec.node(name)
        assert isinstance(table, Table), f"{name} was planned as a table"
        return self.observer.plan_again(table, use_partials=use_partials)

    def _replan_node(self, name: str, full_refresh: bool) -> Action:
        nodes = [node for node in self.observer.spec.nodes if node.name == name]
        [planned] = self.observer.plan(nodes, full_refresh=full_refresh).actions
        return planned
