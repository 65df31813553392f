"""Execute a plan: tables side by side, each published as soon as it is read."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import datetime

from lancestat.errors import LancestatError, RunError, StateError
from lancestat.plan.actions import Action, Blocked, Plan, Skip
from lancestat.run.progress import Progress, TableProgress
from lancestat.run.result import NodeResult, RunResult, Status
from lancestat.run.table_run import Outcome, TableRunner
from lancestat.state.values import NodeRun, RunRecord, StateWriter

THREADS = 8

_log = logging.getLogger("lancestat.run")


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs the actions of a plan, `threads` tables at once.

    `digests` are those of the nodes' meanings, to be remembered; `cancel` stops all reading.
    """

    runner: TableRunner
    state: StateWriter
    progress: Progress
    clock: Callable[[], datetime]
    digests: Mapping[str, str]
    cancel: Callable[[], None]
    threads: int = THREADS
    fail_fast: bool = False

    def execute(self, plan: Plan) -> RunResult:
        """Run every action; one node's failure does not stop the others unless `fail_fast`."""
        started_at = self.clock()
        self.progress.started([_size(action) for action in plan.actions if _bytes(action)])
        ended = self._run_all(plan.actions)
        result = RunResult(
            plan.project, plan.target, tuple(ended[a.node].result for a in plan.actions)
        )
        self._remember(plan, [ended[a.node] for a in plan.actions], started_at, result)
        return result

    def _run_all(self, actions: Sequence[Action]) -> dict[str, _Ended]:
        ended: dict[str, _Ended] = {}
        stop = threading.Event()
        with ThreadPoolExecutor(max_workers=self.threads) as pool:
            # Light ones first: they are published while heavy ones keep all cores busy to the end.
            ordered = sorted(actions, key=_bytes)
            futures = [pool.submit(self._run_one, action, stop) for action in ordered]
            try:
                for future in as_completed(futures):
                    done = future.result()
                    ended[done.action.node] = done
                    self.progress.finished(done.result)
            except BaseException:
                stop.set()
                self.cancel()
                raise
        return ended

    def _run_one(self, action: Action, stop: threading.Event) -> _Ended:
        if stop.is_set():
            return _skipped(action)
        started = time.monotonic()
        try:
            outcome = self.runner.run(action)
        except Exception as error:
            if self.fail_fast:
                stop.set()
            elapsed = time.monotonic() - started
            return _Ended(action, _failed(action, _known(error), elapsed), None)
        return _Ended(action, _succeeded(action, outcome, time.monotonic() - started), outcome)

    def _remember(
        self, plan: Plan, ended: Sequence[_Ended], started_at: datetime, result: RunResult
    ) -> None:
        """Write the run's record and tidy the state; the tables are published already."""
        if self._is_idle(ended):
            return
        run = RunRecord(
            run_id=self.runner.run_id,
            command="run",
            target=plan.target,
            started_at=started_at,
            finished_at=self.clock(),
            status=result.status.value,
            nodes=tuple(each.remembered(self.digests) for each in ended),
        )
        live = {
            each.outcome.record.table: each.outcome.live
            for each in ended
            if each.outcome and each.outcome.record
        }
        try:
            self.state.add_run(run)
            self.state.tidy(live)
        except StateError as error:
            # The statistics are published: without its record the next run is slower, not wrong.
            _log.warning("the run is not recorded: %s", error)

    def _is_idle(self, ended: Sequence[_Ended]) -> bool:
        """Whether there is nothing to remember: most runs of a scheduler find nothing to do."""
        if not all(isinstance(each.action, Skip) for each in ended):
            return False
        known = self.state.digests()
        names = (each.action.node for each in ended)
        return all(known.get(name) == self.digests[name] for name in names)


@dataclass(frozen=True, slots=True)
class _Ended:
    action: Action
    result: NodeResult
    outcome: Outcome | None

    def remembered(self, digests: Mapping[str, str]) -> NodeRun:
        record = self.outcome.record if self.outcome else None
        return NodeRun(
            node=self.action.node,
            kind=self.action.kind,
            digest=digests[self.action.node],
            table=record.table if record else None,
            result=self.result.to_json(),
            record=record,
        )


def _bytes(action: Action) -> int:
    return 0 if isinstance(action, Blocked) else action.figures.bytes_scanned


def _size(action: Action) -> TableProgress:
    assert not isinstance(action, Blocked)
    return TableProgress(action.node, action.figures.fragments_scanned, _bytes(action))


def _known(error: Exception) -> LancestatError:
    """The error as users may see it; what is not ours is a defect, traced in the log."""
    if isinstance(error, LancestatError):
        return error
    _log.debug("internal error", exc_info=error)
    return RunError(
        "LS500",
        f"internal error: {type(error).__name__}: {error}",
        hint="run again with --verbose for the traceback",
    )


def _skipped(action: Action) -> _Ended:
    result = replace(planned(action), status=Status.SKIPPED, message="another node failed first")
    return _Ended(action, result, None)


def _failed(action: Action, error: LancestatError, elapsed_seconds: float) -> NodeResult:
    return replace(
        planned(action),
        status=Status.ERROR,
        elapsed_seconds=round(elapsed_seconds, 3),
        message=str(error),
    )


def _succeeded(action: Action, outcome: Outcome, elapsed_seconds: float) -> NodeResult:
    figures = outcome.figures
    return replace(
        planned(action),
        status=Status.SUCCESS,
        fragments_total=figures.fragments_total,
        fragments_scanned=outcome.scanned.fragments,
        rows_total=figures.rows_total,
        rows_scanned=outcome.scanned.rows,
        version_read=figures.version_read,
        version_published=outcome.version_published,
        elapsed_seconds=round(elapsed_seconds, 3),
    )


def planned(action: Action) -> NodeResult:
    """A node of a plan, as the JSON of `lancestat plan` shows it."""
    if isinstance(action, Blocked):
        return NodeResult(
            action.node, action.kind, action.verb, (), Status.ERROR, message=str(action.error)
        )
    figures = action.figures
    return NodeResult(
        name=action.node,
        kind=action.kind,
        action=action.verb,
        reasons=tuple(reason.value for reason in action.reasons),
        status=Status.PLANNED,
        fragments_total=figures.fragments_total,
        fragments_scanned=figures.fragments_scanned,
        columns=figures.columns,
        rows_total=figures.rows_total,
        rows_scanned=figures.rows_scanned,
        version_read=figures.version_read,
    )
