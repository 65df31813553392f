"""Spark's events to a workload: queries, their plans, and the rows that operators gave.

Queries that sessions have recorded are events of their own. A log is read line by line. Of an event
nothing is kept but what `plans` takes from it, and of a query nothing once it has been counted.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from lancestat.formats import count
from lancestat.query.workload.event_log import NO_EVENT, NO_LOG, LeftOut, find_logs, read_lines
from lancestat.query.workload.plans import Operator, PlanNode, PlanUses, expected_rows, plan_uses
from lancestat.query.workload.queries import Query, Workload
from lancestat.query.workload.query_log import EVENT, QueryEvent

# How many queries are waited for at once: their stages, and ends that a log does not have.
_OPEN_QUERIES = 1_000
# How many queries that have ended are held, for what is reported late.
_LATE = 8
# How many lines of another kind a file may begin with.
_LINES_BEFORE = 100

_EVENT = re.compile(rb'\s*\{\s*"Event"\s*:\s*"([\w.$]+)"')
_SQL = "org.apache.spark.sql.execution.ui."


class _Start(msgspec.Struct, rename="camel"):
    execution_id: int
    time: int
    spark_plan_info: PlanNode
    physical_plan_description: str = ""
    root_execution_id: int | None = None


class _AdaptiveUpdate(msgspec.Struct, rename="camel"):
    execution_id: int
    spark_plan_info: PlanNode


class _DriverUpdates(msgspec.Struct, rename="camel"):
    execution_id: int
    accum_updates: list[tuple[int, int]]


class _End(msgspec.Struct, rename="camel"):
    execution_id: int


class _Accumulable(msgspec.Struct, rename={"id": "ID", "name": "Name", "value": "Value"}):
    id: int
    name: str | None = None
    value: object = None


class _Info(msgspec.Struct, rename={"accumulables": "Accumulables"}):
    accumulables: list[_Accumulable] = []


class _StageCompleted(msgspec.Struct, rename={"info": "Stage Info"}):
    info: _Info


class _TaskEnd(msgspec.Struct, rename={"info": "Task Info"}):
    info: _Info | None = None


class _Head(msgspec.Struct, rename={"event": "Event"}):
    event: str


_Event = _Start | _AdaptiveUpdate | _DriverUpdates | _End | _StageCompleted | _TaskEnd | QueryEvent

_DECODERS: dict[str, msgspec.json.Decoder[_Event]] = {
    name: msgspec.json.Decoder(type)
    for name, type in {
        f"{_SQL}SparkListenerSQLExecutionStart": _Start,
        f"{_SQL}SparkListenerSQLAdaptiveExecutionUpdate": _AdaptiveUpdate,
        f"{_SQL}SparkListenerDriverAccumUpdates": _DriverUpdates,
        f"{_SQL}SparkListenerSQLExecutionEnd": _End,
        "SparkListenerStageCompleted": _StageCompleted,
        "SparkListenerTaskEnd": _TaskEnd,
        EVENT: QueryEvent,
    }.items()
}


@dataclass(slots=True)
class _Execution:
    """A query that is not counted yet; `started` is in milliseconds since 1970."""

    started: int
    plan: PlanUses
    expected: dict[Operator, float] = field(default_factory=dict)
    has_ended: bool = False


@dataclass(slots=True)
class LogReader:
    """Adds the queries of event logs to a workload, and counts what it leaves out."""

    workload: Workload = field(default_factory=Workload)
    left_out: LeftOut = field(default_factory=LeftOut)
    logs: int = 0

    @property
    def left_out_words(self) -> str:
        """What was left out, on one line; empty where all was read."""
        words = [str(self.left_out)] if self.left_out.counts else []
        if self.workload.other_uses:
            words.append(
                count(self.workload.other_uses, "rare use of columns", "rare uses of columns")
            )
        return ", ".join(words)

    def read(self, paths: Iterable[Path]) -> None:
        """Read all logs at some paths, as far as they go.

        Raises:
            EventLogUnreadable: A path does not exist, or a folder cannot be listed.
        """
        for files in find_logs(paths, self.left_out):
            application = _Application(self.workload)
            is_log = False
            for file in files:
                is_log = self._read_file(file, application) or is_log
            application.close()
            self.logs += is_log

    def _read_file(self, path: Path, application: _Application) -> bool:
        """Read a file, and return whether it holds events."""
        bad, has_events, left_out = 0, False, LeftOut()
        for line in read_lines(path, left_out):
            if not line.strip():
                continue
            if application.accept(line):
                has_events = True
                continue
            bad += 1
            if not has_events and bad > _LINES_BEFORE:
                break
        if has_events:
            left_out.add(*NO_EVENT, bad)
        elif not left_out.counts and (bad or not _is_status(path)):
            left_out.add(*NO_LOG)
        self.left_out.counts.update(left_out.counts)
        return has_events


def _is_status(path: Path) -> bool:
    """Whether an empty file is one that Spark writes beside its logs."""
    return path.name.startswith(("appstatus_", "_")) or path.stat().st_size == 0


class _Application:
    """The queries of one application that have not been counted yet."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.open: OrderedDict[int, _Execution] = OrderedDict()
        # Of parts of queries, such as the subquery of a command, the query.
        self.roots: dict[int, int] = {}
        # By accumulator of operators of open queries, their rows.
        self.rows: dict[int, int] = {}
        self.wanted: dict[int, int] = {}

    def accept(self, line: bytes) -> bool:
        """Take an event in; return whether the line is one."""
        match = _EVENT.match(line)
        try:
            if match is not None:
                name = match[1].decode()
            else:
                name = msgspec.json.decode(line, type=_Head).event
            decoder = _DECODERS.get(name)
            if decoder is None or (decoder.type in (_StageCompleted, _TaskEnd) and not self.wanted):
                # The last line may be cut anywhere, also behind a brace.
                msgspec.json.decode(line, type=msgspec.Raw)
                return True
            event = decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return False
        self._take(event)
        return True

    def _take(self, event: _Event) -> None:
        match event:
            case _Start():
                self._start(event)
            case _AdaptiveUpdate():
                execution = self._execution(event.execution_id)
                if execution is not None:
                    self._add(event.execution_id, execution, event.spark_plan_info)
            case _DriverUpdates():
                for id, value in event.accum_updates:
                    self._count(id, value)
            case _StageCompleted() | _TaskEnd():
                for accumulable in event.info.accumulables if event.info else ():
                    self._count(accumulable.id, accumulable.value)
            case _End():
                self._end(event.execution_id)
            case QueryEvent():
                self._add_query(event.query(), event.time)

    def _execution(self, id: int) -> _Execution | None:
        return self.open.get(self.roots.get(id, id))

    def _start(self, event: _Start) -> None:
        root = event.root_execution_id
        root = event.execution_id if root is None or root not in self.open else root
        execution = self.open.get(root)
        if execution is None:
            execution = self.open[root] = _Execution(event.time, PlanUses())
        if root != event.execution_id:
            self.roots[event.execution_id] = root
        execution.expected.update(expected_rows(event.physical_plan_description))
        self._add(root, execution, event.spark_plan_info)
        while len(self.open) > _OPEN_QUERIES:
            self._close(next(iter(self.open)))

    def _add(self, id: int, execution: _Execution, root: PlanNode) -> None:
        later = plan_uses(root)
        execution.plan.add(later)
        self.wanted.update(dict.fromkeys(later.rows, self.roots.get(id, id)))

    def _count(self, id: int, value: object) -> None:
        """Take the rows of an operator as far as they are counted: values only grow."""
        if id in self.wanted:
            try:
                self.rows[id] = max(self.rows.get(id, 0), int(value))  # type: ignore[call-overload]
            except (TypeError, ValueError):
                return

    def _end(self, id: int) -> None:
        """Mark a query as done. Its last stage may be reported after it."""
        execution = self.open.get(id)
        if execution is None:
            self.roots.pop(id, None)
            return
        execution.has_ended = True
        for other in self._ended()[:-_LATE]:
            self._close(other)

    def _ended(self) -> list[int]:
        return [id for id, execution in self.open.items() if execution.has_ended]

    def _close(self, id: int) -> None:
        execution = self.open.pop(id)
        own = execution.plan.rows
        query = execution.plan.query(self.rows if execution.has_ended else {}, execution.expected)
        self._add_query(query, execution.started)
        for accumulator in own:
            self.wanted.pop(accumulator, None)
            self.rows.pop(accumulator, None)
        for part in [part for part, root in self.roots.items() if root == id]:
            del self.roots[part]

    def _add_query(self, query: Query, time: int) -> None:
        at = _instant(time)
        if query.reads and at is not None:
            self.workload.add(query, at)

    def close(self) -> None:
        """Count the queries that are left, also those whose end the log does not have."""
        for id in list(self.open):
            self._close(id)


def _instant(milliseconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return None


def read_workload(paths: Iterable[Path]) -> LogReader:
    """Return what was read of the event logs at some paths: the workload, and what was left out.

    Raises:
        EventLogUnreadable: A path does not exist, or a folder cannot be listed.
    """
    reader = LogReader()
    reader.read(paths)
    return reader
