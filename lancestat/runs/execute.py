"""Executes a plan: runs its nodes concurrently, each after those it reads, and records the run."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING

from lancestat.errors import (
    Cancelled,
    CatalogTableMissing,
    InternalError,
    LancestatError,
    Location,
    QueryFailed,
    SideUnreadable,
    SparkNotStarted,
    StateError,
)
from lancestat.lake.files import collect_temporary_garbage
from lancestat.redact import Audience
from lancestat.runs.actions import (
    Action,
    Blocked,
    Deferred,
    Dependent,
    Plan,
    Reason,
    Skip,
    has_work,
    is_idle,
    is_pending,
    own_figures,
    table_figures,
)
from lancestat.runs.budget import Allowance, bytes_of
from lancestat.runs.discover import located
from lancestat.runs.events import (
    Cancelling,
    EventStream,
    Found,
    Listener,
    NodeFinished,
    NodeStarted,
    RunFinished,
    RunStarted,
    TableToRead,
)
from lancestat.runs.node import NodeEnded, NodeRunner, NodeTypes
from lancestat.runs.observe import Observer
from lancestat.runs.result import (
    NOT_BEGUN,
    NodeCheck,
    NodeResult,
    RunInterrupted,
    RunResult,
    Status,
    deferred,
    failed,
    interrupted,
    planned,
)
from lancestat.spark.package import require_package
from lancestat.spark.session import RunSession, uses_package
from lancestat.spec.catalog import UriOptions
from lancestat.spec.model import ProjectSpec
from lancestat.spec.redaction import query_variables
from lancestat.state.garbage import GarbageReport, Owner, collect_state_garbage
from lancestat.state.history import HistoryPoint
from lancestat.state.store import LanceState
from lancestat.state.values import NodeRun, RunRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# How often a node is carried out at most that is changed by others meanwhile.
MAX_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class RunContext:
    """What the runners of all kinds of nodes share in one run.

    `stored` counts by node the fragments that this run has read and stored. Once `stopped` is set
    nodes begin no further stage. `publishing` has the nodes whose results are being published, or
    were just now: who takes in the end of such a node removes it. `allowance` is what is left of
    the budget.
    """

    observer: Observer
    state: LanceState
    digests: Mapping[str, str]
    events: EventStream
    spark: RunSession
    run_id: str
    stored: Counter[str] = field(default_factory=Counter)
    stopped: Event = field(default_factory=Event)
    publishing: set[str] = field(default_factory=set)
    allowance: Allowance = field(default_factory=Allowance)

    @property
    def spec(self) -> ProjectSpec:
        return self.observer.spec

    @property
    def options(self) -> UriOptions:
        """How to reach datasets."""
        return self.spec.options

    @property
    def clock(self) -> Callable[[], datetime]:
        return self.observer.clock

    def location(self, name: str) -> Location | None:
        """Return where a node is declared."""
        node = self.spec.node(name)
        return None if node is None else node.location

    def refuse_when_stopped(self, node: str) -> None:
        """Raise `Cancelled` once nodes begin no further stage."""
        if self.stopped.is_set():
            raise Cancelled(f"'{node}' was stopped")


THREADS = 8

# How long an interrupted run waits for what it has cancelled: longer than Spark takes to kill the
# Python of a task, which joins wait for to remove their scratch.
_SECONDS_TO_STOP = 5.0
# And for tables whose statistics are being published, so that the record says which were.
_SECONDS_TO_PUBLISH = 30.0
_SECONDS_BETWEEN_LOOKS = 0.1
_KILLED = "the process that ran it was killed"

_log = logging.getLogger("lancestat.run")

# Errors of queries on Spark.
_QUOTING_QUERIES = {kind.code: kind for kind in (QueryFailed, SideUnreadable)}


def shown_error(spec: ProjectSpec, node: str, error: LancestatError) -> LancestatError:
    """Return an error of a node as the person who runs it may see it."""
    hidden = _hidden_query(spec, node, error.code, Audience.PERSON)
    return hidden or spec.redactor.error(error, Audience.PERSON)


def stored_result(spec: ProjectSpec, result: NodeResult) -> NodeResult:
    """Return a result that was shown as it may be remembered, without all that is secret."""
    hidden = _hidden_query(spec, result.name, result.code, Audience.PUBLIC)
    if hidden is not None:
        result = replace(failed(result, hidden), location=result.location)
    return result.redacted(spec.redactor, Audience.PUBLIC)


def _hidden_query(
    spec: ProjectSpec, node: str, code: str | None, audience: Audience
) -> LancestatError | None:
    """The error that stands for Spark's words about a query that an audience must not see.

    Spark quotes pieces of a query. A redactor finds values, but not pieces of them.
    """
    variables = query_variables(spec.origins.get(node, {}), audience)
    kind = _QUOTING_QUERIES.get(code or "")
    if variables is None or kind is None:
        return None
    return kind(f"Spark cannot read a query of this join, of which {variables} is a part")


@dataclass(frozen=True, slots=True)
class RunRecorder:
    """Records runs of a project in the state; `digests` are those of the nodes' meanings."""

    spec: ProjectSpec
    state: LanceState
    digests: Mapping[str, str]

    def begin(self, plan: Plan, run: RunRecord) -> None:
        """Remember that a run with something to do has begun, so that its kill is noticed."""
        nodes = tuple(
            self._node(NodeEnded(interrupted(planned(action), _KILLED)), plan.full_refresh)
            for action in filter(is_pending, plan.actions)
        )
        if not nodes:
            return
        try:
            self.state.begin_run(replace(run, status=Status.INTERRUPTED.value, nodes=nodes))
        except StateError as error:
            # Only what is known of the run is less, should it be killed.
            _log.warning("that the run has begun is not recorded: %s", error)

    def record(
        self,
        plan: Plan,
        run: RunRecord,
        ended: Sequence[NodeEnded],
        *,
        is_interrupted: bool = False,
    ) -> StateError | None:
        """Record a run, but for its nodes, and these; expire old state unless interrupted.

        Returns why the run could not be recorded. A run that found nothing to do, as most scheduled
        ones do, is not.
        """
        if self._is_idle(plan):
            return None
        nodes = tuple(self._node(node, plan.full_refresh) for node in ended)
        live = {table: live for node in ended for table, live in node.live.items()}
        needed = {table: fields for node in ended for table, fields in node.needed.items()}
        try:
            self.state.add_run(replace(run, nodes=nodes))
        except StateError as error:
            # Where results are published, the next run is slower without its record, not wrong.
            _log.warning("the run is not recorded: %s", error)
            return error
        try:
            self.state.add_history(
                [
                    HistoryPoint.of(
                        node.record[0],
                        node.result.name,
                        run.run_id,
                        run.finished_at,
                        {**node.history, "seconds": node.result.elapsed_seconds},
                    )
                    for node in ended
                    if node.record is not None and node.history
                ]
            )
            if not is_interrupted:
                self.state.expire(live, needed)
        except StateError as error:
            _log.warning("the history of the run is not recorded: %s", error)
        return None

    def _node(self, ended: NodeEnded, full_refresh: bool) -> NodeRun:
        result = ended.result
        return NodeRun(
            node=result.name,
            kind=result.kind,
            digest=self.digests[result.name],
            result=stored_result(self.spec, result).to_json(),
            record=ended.record,
            full_refresh=full_refresh,
        )

    def _is_idle(self, plan: Plan) -> bool:
        """Whether there is nothing to remember."""
        actions = plan.actions
        if not all(map(is_idle, actions)):
            return False
        known = self.state.digests(plan.project, plan.target)
        if any(known.get(action.node) != self.digests[action.node] for action in actions):
            return False
        # The failure of a node stays its newest outcome until a later run records another.
        ended = self.state.outcomes(plan.project, plan.target, 1)
        newest = [run.nodes[0] for action in actions for run in ended.get(action.node, ())]
        return all(node.result.get("status") == Status.SUCCESS.value for node in newest)


# Returns what is known after a run of what is expected of its nodes.
CheckRun = Callable[[RunResult], Sequence[NodeCheck]]


@dataclass(slots=True)
class Scheduler:
    """Runs the actions of one plan, `threads` nodes at once; `runners` are by kind of node.

    `check` is called once the run is recorded, unless it was interrupted.

    `ended` has the nodes that have ended, `begun` when those began that go on. Nodes that have not
    begun are left once `is_stopped` is set. `is_over` is set once the time of the budget is over,
    and tables stop reading. `spark_failure` is the error by which Spark was lost, and the node that
    it failed: Spark is not tried again in this run.
    """

    context: RunContext
    runners: Mapping[str, NodeRunner]
    threads: int = THREADS
    fail_fast: bool = False
    check: CheckRun = lambda result: ()
    ended: dict[str, NodeEnded] = field(default_factory=dict)
    begun: dict[str, float] = field(default_factory=dict)
    is_stopped: bool = False
    is_interrupted: bool = False
    is_over: bool = False
    spark_failure: tuple[SparkNotStarted, str] | None = None
    _losing: threading.Lock = field(default_factory=threading.Lock)

    def execute(self, plan: Plan, command: str = "run") -> RunResult:
        """Run every action; one node's failure does not stop the others unless `fail_fast`.

        A node that depends on joins runs after them, and not at all when one of them fails. The run
        is recorded as that of `command`.
        """
        context, started_at = self.context, self.context.clock()
        recorder = RunRecorder(context.spec, context.state, context.digests)
        run = RunRecord(
            run_id=context.run_id,
            command=command,
            project=plan.project,
            target=plan.target,
            started_at=started_at,
            finished_at=started_at,
            status="running",
            nodes=(),
        )
        recorder.begin(plan, run)
        context.events.emit(_started(plan, run))
        interruption: KeyboardInterrupt | None = None
        try:
            with self._timed_out():
                self._run_all(plan.actions, partial(_begin_order, plan))
        except KeyboardInterrupt as interrupt:
            interruption = interrupt
        in_order = [self.ended.get(action.node) or self._left(action) for action in plan.actions]
        finished_at = context.clock()
        result = RunResult(
            plan.project,
            plan.target,
            tuple(node.result for node in in_order),
            command,
            run_id=context.run_id,
            started_at=started_at,
            finished_at=finished_at,
            redactor=plan.redactor,
            sources=plan.sources,
        )
        run = replace(run, finished_at=finished_at, status=result.status.value)
        unrecorded = recorder.record(plan, run, in_order, is_interrupted=interruption is not None)
        if unrecorded is not None:
            nodes = tuple(self._lost(node, unrecorded) for node in in_order)
            result = replace(result, nodes=nodes)
        if interruption is None:
            try:
                result = replace(result, checks=tuple(self.check(result)))
            except KeyboardInterrupt as interrupt:
                interruption = interrupt
            except Exception as error:
                # What the run has done stands.
                what = known_error(error).message
                _log.warning("whether all is as expected after the run is not known: %s", what)
        for finding in result.findings:
            context.events.emit(Found(finding))
        context.events.emit(RunFinished(result))
        if interruption is not None:
            raise RunInterrupted(result) from interruption
        return result

    def evaluate(self, action: Action) -> NodeEnded:
        """Evaluate one action; the elapsed time of the result is not set yet.

        Raises:
            LancestatError: the node failed.
            Cancelled: it was stopped; nothing is published of it.
        """
        match action:
            case Skip(stages=()):
                return NodeEnded(replace(planned(action), status=Status.SUCCESS))
            case Blocked():
                raise action.error
            case Deferred():
                return NodeEnded(deferred(planned(action), action.why, 0))
            case Dependent():
                again = self.context.observer.plan_again(
                    action.node, full_refresh=action.full_refresh
                )
                return self.evaluate(self.context.allowance.take(again))
        ended = self.runners[action.kind].run(action)
        return ended if isinstance(ended, NodeEnded) else self.evaluate(ended)

    def _cancel(self) -> None:
        for runner in self.runners.values():
            runner.cancel()
        self.context.spark.cancel()

    @contextmanager
    def _timed_out(self) -> Iterator[None]:
        """Let tables stop reading once the time of the budget is over while the block runs."""
        seconds = self.context.allowance.seconds_left
        if seconds is None:
            yield
            return
        timer = threading.Timer(seconds, self._time_out)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _time_out(self) -> None:
        self.is_over = True
        for runner in self.runners.values():
            runner.pause()

    def _run_all(
        self, actions: Sequence[Action], order: Callable[[Action], tuple[float, ...]]
    ) -> None:
        """Run every action, and add what ended by its node, also when this is interrupted."""
        waiting = sorted(actions, key=order)
        names = {action.node for action in actions}
        done: SimpleQueue[Future[NodeResult]] = SimpleQueue()
        running = 0
        pool = ThreadPoolExecutor(max_workers=self.threads)
        try:
            while waiting or running:
                ready = [
                    action
                    for action in waiting
                    if names.intersection(action.dependencies) <= self.ended.keys()
                ]
                # Joins that depend on each other in a cycle would never be ready.
                ready = ready or ([] if running else waiting)
                begun = {action.node for action in ready}
                waiting = [action for action in waiting if action.node not in begun]
                for action in ready:
                    future = pool.submit(self._end_one, action, self._failed_before(action))
                    future.add_done_callback(done.put)
                running += len(ready)
                finished = done.get().result()
                running -= 1
                self.context.events.emit(NodeFinished(finished, self.ended[finished.name]))
        except BaseException as error:
            self.is_interrupted = isinstance(error, KeyboardInterrupt)
            self.is_stopped = True
            self.context.stopped.set()
            try:
                self.context.events.emit(Cancelling())
            finally:
                self._cancel()
            if self.is_interrupted:
                self._wait_briefly()
            raise
        finally:
            pool.shutdown(wait=not self.is_interrupted, cancel_futures=self.is_interrupted)

    def _failed_before(self, action: Action) -> str | None:
        """Return a join that did not succeed, of those that an action depends on."""
        ended = ((name, self.ended.get(name)) for name in action.dependencies)
        failures = (name for name, end in ended if end and end.result.status is not Status.SUCCESS)
        return next(failures, None)

    def _wait_briefly(self) -> None:
        """Wait for nodes that stop soon; the threads of others go on until the process ends."""
        start = time.monotonic()
        while self.begun:
            publishes = bool(self.context.publishing)
            waits = _SECONDS_TO_PUBLISH if publishes else _SECONDS_TO_STOP
            if time.monotonic() - start >= waits:
                return
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def _left(self, action: Action) -> NodeEnded:
        """The end of a node that an interrupted run did not come to, or did not wait for."""
        if action.verb == "skip":
            return NodeEnded(replace(planned(action), status=Status.SUCCESS))
        if isinstance(action, Deferred):
            return NodeEnded(deferred(planned(action), action.why, 0))
        started = self.begun.get(action.node)
        if started is None:
            return NodeEnded(interrupted(planned(action), NOT_BEGUN, 0))
        why = "the run was interrupted"
        if action.node in self.context.publishing:
            why += "; its statistics were being published, and may be"
        return NodeEnded(_timed(interrupted(planned(action), why, self._stored(action)), started))

    def _stored(self, action: Action) -> int:
        """Return how many fragments a later run needs not read again."""
        # What a run in full has stored, another one in full reads again.
        is_full = Reason.FULL_REFRESH in action.reasons
        return 0 if is_full else self.context.stored[action.node]

    def _end_one(self, action: Action, needed: str | None) -> NodeResult:
        """Run an action, and add its end, whatever the main thread is at."""
        try:
            self.ended[action.node] = self._run_one(action, needed)
        except KeyboardInterrupt:
            # It is for the main thread, but Polars raises it wherever it computes, too.
            self.ended[action.node] = self._left(action)
            raise
        finally:
            self.context.publishing.discard(action.node)
            self.begun.pop(action.node, None)
        return self.ended[action.node].result

    def _run_one(self, action: Action, needed: str | None) -> NodeEnded:
        if needed is not None:
            return self._without(needed, action)
        if self.is_interrupted:
            return self._left(action)
        if self.is_stopped:
            return _not_run(action, "another node failed first")
        action = self.context.allowance.by_time(action)
        started = self.begun[action.node] = time.monotonic()
        self.context.events.emit(NodeStarted(action.node, action.kind))
        try:
            done = self.evaluate(action)
        except Exception as error:
            if self.is_interrupted:
                return self._left(action)
            if self.is_over and isinstance(error, Cancelled):
                stored, why = self._stored(action), "the time of the budget is over"
                return NodeEnded(_timed(deferred(planned(action), why, stored), started))
            if self.fail_fast:
                self.is_stopped = True
            if (lost_by := self._lost_spark(error, action.node)) not in (None, action.node):
                return _not_run(action, f"it needs Spark, which failed '{lost_by}'")
            return NodeEnded(_timed(self._failed(planned(action), known_error(error)), started))
        return replace(done, result=_timed(done.result, started))

    def _failed(self, result: NodeResult, error: LancestatError) -> NodeResult:
        failure = failed(result, shown_error(self.context.spec, result.name, error))
        return replace(failure, location=failure.location or self.context.location(result.name))

    def _lost(self, ended: NodeEnded, error: LancestatError) -> NodeResult:
        """The result of a node after a run that could not be recorded."""
        is_lost = ended.is_in_record and ended.result.status is Status.SUCCESS
        return self._failed(ended.result, error) if is_lost else ended.result

    def _without(self, needed: str, action: Action) -> NodeEnded:
        """The end of a node that reads the result of another, which has not succeeded."""
        reads = f"it reads the result of '{needed}', which"
        if self.ended[needed].result.status is Status.DEFERRED:
            return NodeEnded(deferred(planned(action), f"{reads} is deferred"))
        return _not_run(action, f"{reads} failed")

    def _lost_spark(self, error: Exception, node: str) -> str | None:
        """Return the node that lost Spark with this very error; this one, where it is the first."""
        with self._losing:
            if self.spark_failure is None and isinstance(error, SparkNotStarted):
                self.spark_failure = error, node
            lost = self.spark_failure
        return lost[1] if lost is not None and lost[0] is error else None


def _started(plan: Plan, run: RunRecord) -> RunStarted:
    tables = tuple(
        TableToRead(action.node, figures.fragments_scanned, figures.bytes_scanned)
        for action in plan.actions
        if (figures := table_figures(action)) is not None and figures.bytes_scanned
    )
    pending = filter(is_pending, plan.actions)
    joins = tuple(action.node for action in pending if own_figures(action))
    nodes = tuple(map(planned, plan.actions))
    return RunStarted(run.run_id, run.command, plan.project, plan.target, nodes, tables, joins)


def _begin_order(plan: Plan, action: Action) -> tuple[float, ...]:
    if plan.budget:
        return (plan.ranks.get(action.node, 0),)
    # Light ones first: they are published while heavy ones keep all cores busy to the end.
    return own_figures(action) is not None, bytes_of(action)


def known_error(error: Exception) -> LancestatError:
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


def execute_plan(
    plan: Plan,
    command: str,
    observer: Observer,
    state: LanceState,
    digests: Mapping[str, str],
    listeners: Sequence[Listener] = (),
    *,
    check: CheckRun = lambda result: (),
    threads: int | None = None,
    fail_fast: bool = False,
    session: SparkSession | None = None,
    ends_process: bool = False,
) -> RunResult:
    """Execute a plan on the Spark of its target; the run's record names `command`.

    `listeners` get what happens. `check` is as `Scheduler` has it. `threads` nodes are worked on at
    once, None for as many as usual. `session` is as `RunSession` has it. Where the process ends
    next (`ends_process`), Spark stops by itself.
    """
    types, target = observer.types, observer.spec.target
    if session is None and target.spark_package is not None and uses_package(target):
        require_package(target.spark_package, target.package_location)
    computes = any(action.kind in types and types[action.kind].computes for action in plan.actions)
    spark = RunSession(target, computes=computes, session=session, ends_process=ends_process)
    events = EventStream(listeners)
    allowance = Allowance(plan.budget, sum(map(bytes_of, plan.actions)))
    run_id = uuid.uuid4().hex
    context = RunContext(observer, state, digests, events, spark, run_id, allowance=allowance)
    with ExitStack() as stack:
        stack.enter_context(events.with_warnings())
        # Opening a runner takes imports, for which a run with little to do would wait.
        needed = {action.kind for action in plan.actions if has_work(action)}
        runners = {
            kind: stack.enter_context(type.runner(context))
            for kind, type in types.items()
            if kind in needed
        }
        stack.enter_context(spark)
        scheduler = Scheduler(context, runners, threads or THREADS, fail_fast, check)
        result = scheduler.execute(plan, command)
        _remove_past(observer, plan, result)
        return result


def _remove_past(observer: Observer, plan: Plan, result: RunResult) -> None:
    """Remove what nodes do not keep any longer now that they have been run."""
    written = {node.name for node in result.nodes if node.status is Status.SUCCESS}
    written &= {action.node for action in plan.actions if is_pending(action)}
    for kind, type in observer.types.items():
        nodes = [n for n in observer.spec.nodes if n.kind.value == kind and n.name in written]
        type.remove_past(observer.spec, nodes, observer.clock())


def collect_garbage(
    spec: ProjectSpec, state: LanceState, types: NodeTypes, now: datetime, dry_run: bool
) -> GarbageReport:
    """Drop garbage in the state, in temporary folders, and what each kind of node leaves."""
    spec, _ = located(spec, spec.nodes)
    for node in spec.nodes:
        with suppress(CatalogTableMissing):
            # Without its place, its state would be taken for what nothing needs.
            spec.options.of(node.dataset_uri)
    declared = frozenset(types[node.kind.value].record_key(node) for node in spec.nodes)
    names = {node.name for node in spec.nodes} | {f"source:{s.label}" for s in spec.sources}
    owner = Owner(spec.name, spec.target.name, names)
    report = collect_state_garbage(state, declared, dry_run, owner=owner)
    for type in types.values():
        report = type.collect_garbage(spec, state, report, now)
    if not dry_run:
        collect_temporary_garbage()
    return report
