"""Schedules the actions of a plan: side by side, each after the joins that it reads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from queue import SimpleQueue

from lancestat.errors import (
    InternalError,
    LancestatError,
    QueryFailed,
    SideUnreadable,
    StateError,
)
from lancestat.execution.evaluator import Evaluator, NodeEnded
from lancestat.execution.result import Progress, RunResult, TableProgress
from lancestat.plan.actions import (
    Action,
    Deferred,
    Plan,
    Skip,
    is_join,
    is_pending,
    table_figures,
)
from lancestat.plan.node_result import NodeResult, Status, planned
from lancestat.redact import EMPTY_REDACTOR, Audience, Redactor
from lancestat.spec.redaction import Origins, query_variables
from lancestat.state.values import NodeRun, RunRecord, StateWriter, TableRecord

THREADS = 8

_log = logging.getLogger("lancestat.run")

# Errors of queries on Spark.
_QUOTING_QUERIES = (QueryFailed.code, SideUnreadable.code)


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Runs the actions of a plan, `threads` nodes at once.

    `digests` are those of the nodes' meanings, to be remembered; `cancel` stops all work on Spark.
    `command` is what the run is remembered as. `redactor` takes out of messages what must not be
    shown, and of what is remembered all that the environment gave. `origins` are those of the
    nodes' values.
    """

    evaluator: Evaluator
    state: StateWriter
    progress: Progress
    clock: Callable[[], datetime]
    digests: Mapping[str, str]
    cancel: Callable[[], None]
    threads: int = THREADS
    fail_fast: bool = False
    command: str = "run"
    redactor: Redactor = EMPTY_REDACTOR
    origins: Mapping[str, Origins] = field(default_factory=dict)

    def execute(self, plan: Plan) -> RunResult:
        """Run every action; one node's failure does not stop the others unless `fail_fast`.

        A node that depends on joins runs after them, and not at all when one of them fails.
        """
        started_at = self.clock()
        tables = [size for action in plan.actions if (size := _size(action)) is not None]
        joins = [action.node for action in plan.actions if is_join(action) and is_pending(action)]
        self.progress.started(tables, joins)
        ended = self._run_all(plan.actions)
        results = tuple(ended[action.node].result for action in plan.actions)
        result = RunResult(plan.project, plan.target, results, self.command)
        self._remember(plan, [ended[a.node] for a in plan.actions], started_at, result)
        return result

    def _run_all(self, actions: Sequence[Action]) -> dict[str, NodeEnded]:
        ended: dict[str, NodeEnded] = {}
        stop = threading.Event()
        # Light ones first: they are published while heavy ones keep all cores busy to the end.
        waiting = sorted(actions, key=_weight)
        names = {action.node for action in actions}
        done: SimpleQueue[Future[NodeEnded]] = SimpleQueue()
        running = 0
        with ThreadPoolExecutor(max_workers=self.threads) as pool:
            try:
                while waiting or running:
                    ready = [
                        action for action in waiting if _dependencies(action, names) <= ended.keys()
                    ]
                    # Joins that depend on each other in a cycle would never be ready.
                    ready = ready or ([] if running else waiting)
                    begun = {action.node for action in ready}
                    waiting = [action for action in waiting if action.node not in begun]
                    for action in ready:
                        failed = _failed_before(action, ended)
                        future = pool.submit(self._run_one, action, failed, stop)
                        future.add_done_callback(done.put)
                    running += len(ready)
                    finished = done.get().result()
                    running -= 1
                    ended[finished.result.name] = finished
                    self.progress.finished(finished.result)
            except BaseException:
                stop.set()
                self.cancel()
                raise
        return ended

    def _run_one(self, action: Action, failed: str | None, stop: threading.Event) -> NodeEnded:
        if failed is not None:
            return _not_run(action, f"it reads the result of '{failed}', which failed")
        if stop.is_set():
            return _not_run(action, "another node failed first")
        started = time.monotonic()
        try:
            done = self.evaluator.run(action)
        except Exception as error:
            if self.fail_fast:
                stop.set()
            redacted = self.redactor.error(_known(error), Audience.PERSON)
            message = self._without_query(action.node, str(redacted), Audience.PERSON)
            failure = replace(planned(action), status=Status.ERROR, message=message)
            return NodeEnded(_timed(failure, started))
        return replace(done, result=_timed(done.result, started))

    def _remember(
        self, plan: Plan, ended: Sequence[NodeEnded], started_at: datetime, result: RunResult
    ) -> None:
        """Write the run's record and expire old state; the results are published already."""
        if self._is_idle(plan):
            return
        run = RunRecord(
            run_id=self.evaluator.run_id,
            command=self.command,
            target=plan.target,
            started_at=started_at,
            finished_at=self.clock(),
            status=result.status.value,
            nodes=tuple(self._remembered(node, plan.full_refresh) for node in ended),
        )
        live = {
            node.record.table: node.live for node in ended if isinstance(node.record, TableRecord)
        }
        try:
            self.state.add_run(run)
            self.state.expire(live)
        except StateError as error:
            # The results are published: without its record the next run is slower, not wrong.
            _log.warning("the run is not recorded: %s", error)

    def _remembered(self, ended: NodeEnded, full_refresh: bool) -> NodeRun:
        result, record = ended.result, ended.record
        members = result.to_json()
        if result.message is not None:
            message = self._without_query(result.name, result.message, Audience.PUBLIC)
            members["message"] = self.redactor.text(message, Audience.PUBLIC)
        return NodeRun(
            node=result.name,
            kind=result.kind,
            digest=self.digests[result.name],
            table=record.table if isinstance(record, TableRecord) else None,
            result=members,
            record=record,
            full_refresh=full_refresh,
        )

    def _without_query(self, node: str, message: str, audience: Audience) -> str:
        """A message without Spark's words for a query that an audience must not see.

        Spark quotes pieces of a query. A redactor finds values, but not pieces of them.
        """
        variables = query_variables(self.origins.get(node, {}), audience)
        if variables is None or not message.startswith(_QUOTING_QUERIES):
            return message
        code = message[: len(_QUOTING_QUERIES[0])]
        return f"{code}  Spark cannot read a query of this join, of which {variables} is a part"

    def _is_idle(self, plan: Plan) -> bool:
        """Whether there is nothing to remember, as in most scheduled runs."""
        actions = plan.actions
        if not all(isinstance(action, Skip) for action in actions):
            return False
        known = self.state.digests()
        if any(known.get(action.node) != self.digests[action.node] for action in actions):
            return False
        # The failure of a node stays its newest outcome until a later run records another.
        ended = self.state.outcomes(plan.target, 1)
        newest = [outcome for action in actions for outcome in ended.get(action.node, ())]
        return all(outcome.result.get("status") == Status.SUCCESS.value for outcome in newest)


def _dependencies(action: Action, names: set[str]) -> set[str]:
    return set(action.dependencies) & names if isinstance(action, Deferred) else set()


def _failed_before(action: Action, ended: Mapping[str, NodeEnded]) -> str | None:
    """Return a join that did not succeed, of those that an action depends on."""
    if not isinstance(action, Deferred):
        return None
    failed: Iterator[str] = (
        name
        for name in action.dependencies
        if name in ended and ended[name].result.status is not Status.SUCCESS
    )
    return next(failed, None)


def _weight(action: Action) -> tuple[bool, int]:
    figures = table_figures(action)
    return is_join(action), figures.bytes_scanned if figures else 0


def _size(action: Action) -> TableProgress | None:
    """Return what of a table is to be read, None where nothing is."""
    figures = table_figures(action)
    if figures is None or not figures.bytes_scanned:
        return None
    return TableProgress(action.node, figures.fragments_scanned, figures.bytes_scanned)


def _known(error: Exception) -> LancestatError:
    """Return the error as users see it; one that is not ours is a defect, and goes to the log."""
    if isinstance(error, LancestatError):
        return error
    _log.debug("internal error", exc_info=error)
    return InternalError(
        f"internal error: {type(error).__name__}: {error}",
        hint="run again with --verbose for the traceback",
    )


def _not_run(action: Action, why: str) -> NodeEnded:
    return NodeEnded(replace(planned(action), status=Status.SKIPPED, message=why))


def _timed(result: NodeResult, started: float) -> NodeResult:
    return replace(result, elapsed_seconds=round(time.monotonic() - started, 3))
