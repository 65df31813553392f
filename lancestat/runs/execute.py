"""Executes a plan on the Spark of its target."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lancestat.runs.actions import Plan, is_pending
from lancestat.runs.evaluator import Evaluator, RunContext
from lancestat.runs.observe import Observer
from lancestat.runs.result import Progress, RunResult, Status
from lancestat.runs.scheduler import THREADS, NodeMessages, RunRecorder, Scheduler
from lancestat.spark.package import require_package
from lancestat.spark.session import RunSession, uses_package
from lancestat.state.values import StateWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Execution:
    """Executes the plans of one project; `observer` and `digests` are of its nodes.

    `threads` nodes are worked on at once, None for as many as usual. `session` is as `RunSession`
    has it. Where the process ends next (`ends_process`), Spark stops by itself.
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
        spec, types = self.observer.spec, self.observer.types
        target = spec.target
        if self.session is None and target.spark_package is not None and uses_package(target):
            require_package(target.spark_package, target.package_location)
        computes = any(
            action.kind in types and types[action.kind].computes for action in plan.actions
        )
        spark = RunSession(
            target, computes=computes, session=self.session, ends_process=self.ends_process
        )
        context = RunContext(
            self.observer, self.state, self.digests, self.progress, spark, uuid.uuid4().hex
        )
        with ExitStack() as stack:
            runners = {
                kind: stack.enter_context(type.runner(context)) for kind, type in types.items()
            }
            stack.enter_context(spark)

            def cancel() -> None:
                for runner in runners.values():
                    runner.cancel()
                spark.cancel()

            messages = NodeMessages(spec.redactor, spec.origins)
            scheduler = Scheduler(
                Evaluator(context, runners),
                RunRecorder(self.state, self.digests, messages),
                self.progress,
                cancel,
                self.threads or THREADS,
                self.fail_fast,
            )
            result = scheduler.execute(plan, command)
            self._remove_past(plan, result)
            return result

    def _remove_past(self, plan: Plan, result: RunResult) -> None:
        """Remove what nodes do not keep any longer now that they have been run."""
        ran = {action.node for action in plan.actions if is_pending(action)}
        written = {
            node.name for node in result.nodes if node.status is Status.SUCCESS and node.name in ran
        }
        spec = self.observer.spec
        for kind, type in self.observer.types.items():
            nodes = [n for n in spec.nodes if n.kind.value == kind and n.name in written]
            type.remove_past(spec, nodes, self.observer.clock())
