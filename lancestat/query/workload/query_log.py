"""What a listener in attached sessions records of queries, for `advise`: one line each.

A line has the names of tables and columns, the roles of columns, and q-errors. It is read like an
event of Spark, so that a folder may hold both.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from lancestat.query.workload.plans import PlanNode, PlanUses, logical_operator, plan_uses
from lancestat.query.workload.queries import ColumnUse, Query, Role
from lancestat.spark.compiler import relation_classes
from lancestat.spark.session import require_classic

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_log = logging.getLogger("lancestat.queries")

MAX_BYTES = 64 * 1024 * 1024
"""How much a session records at most: some hundred thousand queries."""

EVENT = "lancestat.Query"


class _Use(msgspec.Struct, omit_defaults=True):
    """The fields of a `ColumnUse`, and its q-error."""

    table: str
    columns: tuple[str, ...]
    role: Role
    other: str | None = None
    other_columns: tuple[str, ...] = ()
    q_error: float | None = None


class QueryEvent(msgspec.Struct, tag_field="Event", tag=EVENT):
    """A query as it is recorded; `time` is in milliseconds since 1970."""

    time: int
    reads: dict[str, tuple[str, ...]]
    uses: tuple[_Use, ...] = ()

    @classmethod
    def of(cls, query: Query, time: int) -> QueryEvent:
        """Return the event of a query."""
        reads = {table: tuple(sorted(names)) for table, names in sorted(query.reads.items())}
        uses = (_Use(**asdict(use), q_error=query.q_errors.get(use)) for use in query.uses)
        return cls(time, reads, tuple(sorted(uses, key=msgspec.json.encode)))

    def query(self) -> Query:
        """Return the query that was recorded."""
        uses, errors = set(), {}
        for each in self.uses:
            use = ColumnUse(each.table, each.columns, each.role, each.other, each.other_columns)
            uses.add(use)
            if each.q_error is not None:
                errors[use] = each.q_error
        reads = {table: frozenset(names) for table, names in self.reads.items()}
        return Query(frozenset(uses), reads, errors)


class _Expected(msgspec.Struct):
    operator: str
    rows: float


class _Finished(msgspec.Struct):
    """A query as `QueryListener.java` describes it; `rows` are by accumulator."""

    at: int
    plans: list[PlanNode]
    rows: dict[int, int]
    expected: list[_Expected]

    def query(self) -> Query:
        uses = PlanUses()
        for plan in self.plans:
            uses.add(plan_uses(plan))
        known = ((logical_operator(each.operator), each.rows) for each in self.expected)
        expected = {operator: rows for operator, rows in known if operator is not None}
        return uses.query(self.rows, expected)


class QueryLog:
    """Writes the queries of a session to a file of its own in a folder, which is made for it.

    What cannot be written is lost: queries go on. A warning says so once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        started = datetime.now(timezone.utc)
        self.path = folder / f"queries-{started:%Y%m%dT%H%M%SZ}-{uuid4().hex[:8]}.jsonl"
        self._size = 0
        self._is_open = True

    def apply(self, message: str) -> str:
        """Record a query that the JVM describes."""
        if self._is_open:
            try:
                finished = msgspec.json.decode(message, type=_Finished)
                query = finished.query()
            except (msgspec.MsgspecError, RecursionError) as error:
                _log.warning("a query is not recorded: %s", type(error).__name__)
            else:
                if query.reads:
                    self._write(msgspec.json.encode(QueryEvent.of(query, finished.at)) + b"\n")
        return ""

    def _write(self, line: bytes) -> None:
        if self._size + len(line) > MAX_BYTES:
            _log.warning("%s is full: later queries of this session are not recorded", self.path)
            self._is_open = False
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(line)
        except OSError as error:
            _log.warning("queries are not recorded in %s: %s", self.folder, error.strerror or error)
            self._is_open = False
        self._size += len(line)

    class Java:
        """What py4j lets the JVM call."""

        implements = ("java.util.function.Function",)


_registering = threading.Lock()
_SECONDS_TO_DRAIN = 10


def record_queries(spark: SparkSession, folder: Path) -> None:
    """Record the queries of a session in a file in a folder, from now on.

    Raises:
        RunError: The session is one of Spark Connect, or the Java source cannot be compiled.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    require_classic(spark)
    context, session = spark.sparkContext, spark._jsparkSession
    with _registering:
        logs: dict[str, QueryLog] = context.__dict__.setdefault(_LOGS, {})
        known = logs.get(session.sessionUUID())
        if known is not None and known.folder == folder:
            return
        if not logs:
            atexit.register(_await_records, weakref.ref(context))
        ensure_callback_server_started(context._gateway)
        log = QueryLog(folder)
        relation_classes(spark).recordQueries(session, log)
        logs[session.sessionUUID()] = log


def stop_recording(spark: SparkSession) -> None:
    """Undo `record_queries`, once what has ended is recorded; else it has no effect."""
    context, session = spark.sparkContext, spark._jsparkSession
    with _registering:
        logs: dict[str, QueryLog] = context.__dict__.get(_LOGS, {})
        if session.sessionUUID() in logs:
            _await_records(weakref.ref(context))
            relation_classes(spark).recordQueries(session, None)
            del logs[session.sessionUUID()]


_LOGS = "_lancestat_query_logs"


def _await_records(known: weakref.ref[SparkContext]) -> None:
    """Wait for the thread that tells of queries, unless Spark has stopped, which waits for it."""
    from py4j.protocol import Py4JError

    context = known()
    if context is None or context._jsc is None:
        return
    try:
        context._jsc.sc().listenerBus().waitUntilEmpty(_SECONDS_TO_DRAIN * 1_000)
    except (Py4JError, OSError) as error:
        _log.warning("the last queries may not be recorded: %s", type(error).__name__)
