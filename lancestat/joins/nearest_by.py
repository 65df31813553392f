"""Joins by Spark's NEAREST BY over vectors, run on the engine of KNN joins.

The JVM's side is a rule of the analyzer and an operator (`spark/java/NearestByRule.java`,
`NearestByExec.java`), which ask here how to compute a join, and hand over both sides when it runs.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lancestat.arguments import check_session
from lancestat.errors import (
    InternalError,
    InvalidArgument,
    LancestatError,
    VectorLeftToSpark,
    VectorLengthMismatch,
)
from lancestat.joins.knn_join import rows_and_place, run_join
from lancestat.joins.record import OutputFormat
from lancestat.joins.scratch.folder import scratch as scratch_folder
from lancestat.joins.scratch.folder import scratch_root
from lancestat.joins.search.cost_model import JoinSize, Strategy, choose
from lancestat.joins.search.metrics import metric_of_spark
from lancestat.joins.search.work import (
    DISTANCE,
    JoinKind,
    JoinRequest,
    JoinWork,
    OutputNames,
    SideSource,
)
from lancestat.joins.spark.engine import Engine
from lancestat.query.read import relation
from lancestat.redact import redact_line, secret_values
from lancestat.spark.compiler import EXTENSION_NAME, nearest_by_extension
from lancestat.spark.failure import WorkerError
from lancestat.spark.jobs import jobs_of
from lancestat.spark.session import require_classic
from lancestat.spark.versions import has_nearest_by_join, is_connect
from lancestat.spec.catalog import UriOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

_log = logging.getLogger("lancestat.knn")

MIN_RIGHT_ROWS_SETTING = "spark.lancestat.nearestBy.minRightRows"
SCRATCH_SETTING = "spark.lancestat.nearestBy.scratch"
RECALL = 0.95
_OUTPUT = "NEAREST BY"
_WHY_APPROXIMATE = (
    "an approximate result will do; every pair is compared where the run finds that to take less "
    "time"
)

# A question of the JVM: a JSON object.
_Question = dict[str, Any]


def install(
    spark: SparkSession,
    scratch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Let a session run joins by NEAREST BY over vectors on lancestat's engine.

    Nothing happens where Spark has no such joins, as before 4.2.

    Args:
        spark: A classic session.
        scratch: As for `lancestat.knn_join`; `spark.lancestat.nearestBy.scratch` goes before it.
        storage_options: How to reach scratch.

    Raises:
        InvalidArgument: `spark` is no session.
        RunError: the session cannot be used.
    """
    check_session("spark", spark)
    if not has_nearest_by_join():
        return
    require_classic(spark)
    refusal = nearest_by_extension(spark).install(spark._jsparkSession)
    if refusal is not None:
        _log.warning("joins by NEAREST BY are left to Spark: %s", refusal)
        return
    connect(spark, scratch, storage_options)


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("lancestat")` available in a session.

    If the session was started with the jar that `lancestat jar` writes, and its
    `spark.sql.extensions` names the rule in it, this process also runs the session's `NEAREST BY`
    joins from now on.

    Args:
        spark: A classic session, or one of Spark Connect.

    Raises:
        InvalidArgument: `spark` is no session.
        DataSourcesMissing: Spark is older than 4.0, and has no Python data sources.
        JavaClassNotLoaded: The jar was written by another release.
    """
    relation.register(spark)
    if has_rule(spark):
        connect(spark)


def has_rule(spark: SparkSession) -> bool:
    if is_connect(spark):
        return False
    named = (spark.conf.get("spark.sql.extensions", None) or "").split(",")
    return EXTENSION_NAME in map(str.strip, named)


def connect(
    spark: SparkSession,
    scratch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Let this process run the joins of all sessions of a Spark context that have the rule."""
    from pyspark.java_gateway import ensure_callback_server_started

    context = spark.sparkContext
    with _connecting:
        ensure_callback_server_started(context._gateway)
        callback = _Callback(spark, scratch, dict(storage_options or {}))
        # The JVM refers to it for as long as the context lives.
        context.__dict__["_lancestat_nearest_by"] = callback
        nearest_by_extension(spark).connect(callback)


_connecting = threading.Lock()


@dataclass(frozen=True)
class _Callback:
    """The function that the JVM calls where it plans and where it runs a join."""

    spark: SparkSession
    scratch: str | None
    storage_options: Mapping[str, str] = field(repr=False)

    def accept(self, question: str, exchange: Any) -> None:
        """Add the answer to what the JVM hands over."""
        asked: _Question = json.loads(question)
        answers: Mapping[str, Callable[[_Question, Any], list[Any]]] = {
            "decide": self._decide,
            "search": self._search,
            "forget": self._forget,
        }
        try:
            answer = answers[asked["op"]](asked, exchange)
        except LancestatError as error:
            answer = [_refusal(asked, error)]
        except Exception as error:
            secrets = secret_values(self.storage_options)
            cause = redact_line(f"{type(error).__name__}: {error}", secrets)
            problem = InternalError(f"a join by NEAREST BY failed: {cause}")
            answer = [_refusal(asked, problem)]
        for part in answer:
            exchange.add(part)

    class Java:
        implements = ("java.util.function.BiConsumer",)

    def _decide(self, asked: _Question, exchange: Any) -> list[Any]:
        from pyspark.sql.types import StructType

        columns = StructType.fromJson(asked["columns"])
        strategy, why = decide(
            _request(asked),
            (asked["left_rows"], asked["right_rows"]),
            [column.dataType for column in columns],
            jobs_of(self.spark).cores,
        )
        if strategy is not Strategy.SPARK:
            self._root(self.spark)
        return [json.dumps({"strategy": strategy.value, "why": why})]

    def _search(self, asked: _Question, exchange: Any) -> list[Any]:
        from pyspark.sql import DataFrame

        spark = self._session(exchange.get(0))
        left, right = (DataFrame(exchange.get(place), spark) for place in (1, 2))
        with ExitStack() as stack:
            try:
                rows, is_local = self._joined(asked, spark, (left, right), stack)
            except (VectorLeftToSpark, VectorLengthMismatch) as error:
                return [json.dumps({"fallback": error.message})]
            # What Spark holds itself needs scratch no more.
            name = None if is_local else _kept.add(stack.pop_all())
            return [json.dumps({"result": name}), rows._jdf]

    def _joined(
        self,
        asked: _Question,
        spark: SparkSession,
        frames: tuple[DataFrame, DataFrame],
        stack: ExitStack,
    ) -> tuple[DataFrame, bool]:
        """Return the rows of a join, and whether they are held apart from scratch."""
        root, options = self._root(spark), dict(self.storage_options)
        folder = stack.enter_context(scratch_folder(root, jobs_of(spark).application, options))
        uri = f"{folder}/result.lance"
        sides, types = [], []
        for frame, vector in zip(
            frames, (asked["left_vector"], asked["right_vector"]), strict=True
        ):
            fields = frame.schema.fields
            chosen = [field for place, field in enumerate(fields) if place != vector]
            sides.append(SideSource(fields[vector].name, tuple(field.name for field in chosen)))
            types += [field.dataType for field in chosen]
        names = OutputNames(
            tuple(f"left{number}" for number in range(len(sides[0].select or ()))),
            tuple(f"right{number}" for number in range(len(sides[1].select or ()))),
            (DISTANCE,),
        )
        # Both sides are written by then, and Spark would not be faster on any size.
        request = replace(_request(asked), min_right_rows=0)
        work = JoinWork(_OUTPUT, request, sides[0], sides[1], OutputFormat.LANCE, uri)
        engine = Engine(spark, root, uuid.uuid4().hex, UriOptions(options))
        run_join(engine, work, {"left": frames[0], "right": frames[1]}, names)
        rows, is_local = rows_and_place(spark, uri, options)
        columns = [rows[name].cast(kind) for name, kind in zip(rows.columns, types, strict=False)]
        return rows.select(*columns), is_local

    def _forget(self, asked: _Question, exchange: Any) -> list[Any]:
        _kept.remove(asked["result"])
        return ["{}"]

    def _root(self, spark: SparkSession) -> str:
        declared = spark.conf.get(SCRATCH_SETTING, None)
        return scratch_root(declared or self.scratch, spark)

    def _session(self, session: Any) -> SparkSession:
        from pyspark.sql import SparkSession

        if session.equals(self.spark._jsparkSession):
            return self.spark
        return SparkSession(self.spark.sparkContext, session)


def _refusal(asked: _Question, error: LancestatError) -> str:
    """Answer that a join cannot be run; before it runs that leaves it to Spark."""
    if asked["op"] == "decide":
        return json.dumps({"strategy": Strategy.SPARK.value, "why": error.message})
    return json.dumps({"error": str(WorkerError.carrying(error))})


def _request(asked: _Question) -> JoinRequest:
    is_approximate = asked["is_approximate"]
    fewest = asked["min_right_rows"]
    if not fewest.isdecimal():
        raise InvalidArgument(f"{MIN_RIGHT_ROWS_SETTING} is {fewest!r}; expected a number")
    return JoinRequest(
        k=asked["k"],
        metric=metric_of_spark(asked["function"]),
        kind=JoinKind.LEFT_OUTER if asked["is_outer"] else JoinKind.INNER,
        recall=RECALL if is_approximate else None,
        min_right_rows=int(fewest),
        as_spark=True,
    )


def decide(
    request: JoinRequest,
    rows: tuple[int | None, int | None],
    types: Sequence[DataType],
    cores: int,
) -> tuple[Strategy, str]:
    """Return the strategy of a join before it runs, and the reason for it.

    `rows` are of both sides, None where Spark does not estimate them; `types` of the result's
    columns.
    """
    for kind in types:
        if not is_kept(kind):
            return Strategy.SPARK, f"scratch does not keep values of type {kind.simpleString()}"
    exact = replace(request, recall=None)
    # Vectors may be of any length; with one element Spark is not slower than estimated.
    gate = choose(exact, JoinSize(*rows, None if rows[0] is None else 1), cores)
    if gate.strategy is Strategy.SPARK or not request.is_approximate:
        return gate.strategy, gate.why
    return Strategy.IVF, _WHY_APPROXIMATE


# Types of values that come back from scratch as they were, besides strings, lists and structs.
_KEPT = (
    *("Boolean", "Byte", "Short", "Integer", "Long", "Float", "Double", "Decimal", "Binary"),
    *("Date", "Timestamp", "TimestampNTZ"),
)


def is_kept(kind: DataType) -> bool:
    """Whether values of a type come back from scratch as they were."""
    from pyspark.sql import types as spark

    if isinstance(kind, spark.ArrayType):
        return is_kept(kind.elementType)
    if isinstance(kind, spark.StructType):
        names = [field.name.lower() for field in kind.fields]
        are_plain = all(name and "`" not in name and "." not in name for name in names)
        is_unique = len(set(names)) == len(names) > 0
        return are_plain and is_unique and all(is_kept(field.dataType) for field in kind.fields)
    if isinstance(kind, spark.StringType):
        # One of fixed length or of another collation is another type.
        return bool(kind == spark.StringType())
    return isinstance(kind, tuple(getattr(spark, f"{name}Type") for name in _KEPT))


class _KeptResults:
    """Results in scratch that some plan of the JVM may still read."""

    def __init__(self) -> None:
        self._stacks: dict[str, ExitStack] = {}
        self._lock = threading.Lock()

    def add(self, stack: ExitStack) -> str:
        name = uuid.uuid4().hex
        with self._lock:
            if not self._stacks:
                atexit.unregister(self.clear)
                atexit.register(self.clear)
            self._stacks[name] = stack
        return name

    def remove(self, name: str) -> None:
        with self._lock:
            stack = self._stacks.pop(name, None)
        if stack is not None:
            stack.close()

    def clear(self) -> None:
        for name in tuple(self._stacks):
            self.remove(name)


_kept = _KeptResults()
