"""What differs between installations: versions of PySpark, their types, the Python of workers.

What PySpark has is asked of the installed one. The Java side of it is SparkApi.java.
"""

from __future__ import annotations

import gc
import inspect
import os
import re
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from lancestat.errors import LancestatError, OtherPython, WorkersLackPackage
from lancestat.lake.files import temporary_folder
from lancestat.lake.snapshot import BLOB, UNREADABLE_NAME, Field, is_readable_name, spark_type
from lancestat.spec.model import is_local

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


P = ParamSpec("P")
R = TypeVar("R")
ArrowFunction = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]

# `PythonEvalType.SQL_MAP_ARROW_ITER_UDF`, which has moved from module to module.
_MAP_ARROW_ITER = 207
_CANCEL_AGAIN_SECONDS = 0.1
# Spark 3.5 is the last whose API and implementation of sessions are one class, and the last of
# Scala 2.12, which has other sequences.
_WITHOUT_CLASSIC = {
    "org.apache.spark.sql.classic.": "org.apache.spark.sql.",
    "scala.collection.immutable.Seq": "scala.collection.Seq",
}

_OF_NEAREST_BY = "NearestBy"
TIME_SETTING = "spark.sql.timeType.enabled"


def java_sources(spark: SparkSession, sources: Mapping[str, str]) -> dict[str, str]:
    """Return the Java sources for the running Spark, with the names that its classes have."""
    has_nearest_by = has_nearest_by_join()
    texts = {
        name: text
        for name, text in sources.items()
        if has_nearest_by or not name.startswith(_OF_NEAREST_BY)
    }
    if not _has_classic():
        for name in texts:
            for current, earlier in _WITHOUT_CLASSIC.items():
                texts[name] = texts[name].replace(current, earlier)
    return texts


def session_class(spark: SparkSession) -> Any:
    """Return the JVM's class of sessions, with its static methods."""
    package = "org.apache.spark.sql.classic" if _has_classic() else "org.apache.spark.sql"
    return java_class(spark, f"{package}.SparkSession")


def java_class(spark: SparkSession, name: str) -> Any:
    """Return a class of the JVM by its full name, which has to exist.

    `spark._jvm.org.apache` and so on asks whether each part is a class, and for each the JVM looks
    into all of Spark's jars: a class takes two milliseconds that way.
    """
    from py4j.java_gateway import JavaClass

    return JavaClass(name, cast(Any, spark._jvm)._gateway_client)


def release_line(spark: SparkSession) -> str:
    """Return the running Spark's line and its Scala's, as packages for it are named: `4.3_2.13`."""
    scala = java_class(spark, "scala.util.Properties").versionNumberString()
    return "_".join(".".join(version.split(".")[:2]) for version in (spark.version, scala))


@cache
def _has_classic() -> bool:
    return find_spec("pyspark.sql.classic") is not None


def map_in_arrow(rows: DataFrame, function: ArrowFunction, schema: str) -> DataFrame:
    """Apply a pickled function to the batches of each partition; `schema` is DDL.

    PySpark's own `mapInArrow` requires pandas, which neither its workers nor the function use; this
    builds the same plan without it.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction

    if not hasattr(rows, "_jdf"):
        return rows.mapInArrow(function, schema)
    udf = UserDefinedFunction(function, schema, evalType=_MAP_ARROW_ITER)
    columns, frame = [rows[name] for name in rows.columns], rows._jdf
    with own_python(rows.sparkSession):
        column = udf(*columns)._jc
    if _has_classic():
        mapped = frame.mapInArrow(column, False, None)
    else:
        mapped = frame.pythonMapInArrow(column.expr(), False)
    return DataFrame(mapped, rows.sparkSession)


def arrow_frame(spark: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Return the rows of an Arrow table, which the driver holds, as a DataFrame."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.types import from_arrow_schema

    if _has_arrow_frames():
        return spark.createDataFrame(rows, schema)
    schema = schema or from_arrow_schema(rows.schema)
    with temporary_folder() as folder:
        path = folder / "rows.arrows"
        _write_stream(path, rows)
        utils = cast(Any, spark._jvm).PythonSQLUtils
        batches = utils.readArrowStreamFromFile(str(path))
        frame = utils.toDataFrame(batches, schema.json(), spark._jsparkSession)
        return DataFrame(frame, spark)


def _write_stream(path: Path, rows: pa.Table) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(str(path), rows.schema) as stream:
        stream.write_table(rows)


def thread_target(spark: SparkSession, function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that other threads may call, with this thread's job group."""
    from pyspark.util import inheritable_thread_target

    if _has_classic():
        return cast("Callable[P, R]", inheritable_thread_target(spark)(function))
    return cast("Callable[P, R]", inheritable_thread_target(function))


def cancel_jobs(context: SparkContext, group: str, is_over: Callable[[], bool]) -> None:
    """Cancel the jobs of a group or with a tag of its name, and later ones until `is_over`.

    By a tag, and by a group on Spark 3.5, only what runs is cancelled, and no later job: Spark is
    told again until nothing can start one.
    """
    from py4j.protocol import Py4JError, Py4JJavaError

    jobs = context._jsc.sc()

    def cancel_running() -> None:
        jobs.cancelJobGroup(group)
        jobs.cancelJobsWithTag(group)

    try:
        jobs.cancelJobGroupAndFutureJobs(group)
    except Py4JJavaError:
        raise
    except Py4JError:
        # Spark 3.5 has no such method.
        pass
    cancel_running()
    cancel_until(cancel_running, is_over)


def cancel_until(cancel: Callable[[], object], is_over: Callable[[], bool]) -> None:
    """Cancel again and again in a thread, where Spark cancels what runs and no later job."""

    def cancel_again() -> None:
        while not is_over():
            # A server that has gone, and a session that was stopped, run nothing any more.
            with suppress(Exception):
                cancel()
            time.sleep(_CANCEL_AGAIN_SECONDS)

    threading.Thread(target=cancel_again, name="lancestat-cancel", daemon=True).start()


@cache
def has_nearest_by_join() -> bool:
    """Whether DataFrames have `nearestByJoin`: its source says so; importing takes long."""
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        return False
    source = Path(package.origin).parent / "sql" / "dataframe.py"
    # Under spark-submit, PySpark is an archive.
    loader: Any = package.loader
    return b"def nearestByJoin(" in loader.get_data(str(source))


def has_python_sources() -> bool:
    """Whether sessions have data sources written in Python, since Spark 4.0."""
    from pyspark.sql import SparkSession

    return hasattr(SparkSession, "dataSource")


def has_time_type() -> bool:
    """Whether Spark has a type for times of day, since 4.1."""
    from pyspark.sql import types

    return hasattr(types, "TimeType")


def time_settings() -> dict[str, str]:
    """Return the settings with which Spark takes times of day everywhere, none without the type.

    Spark, at least up to 4.3, has the type turned off: queries compute with it, but DataFrames that
    have it cannot be counted or written.
    """
    return {TIME_SETTING: "true"} if has_time_type() else {}


def to_arrow_schema(schema: StructType, timezone: str) -> pa.Schema:
    """Return the Arrow schema of Spark's columns, with instants in a time zone."""
    import pyarrow as pa
    from pyspark.sql.pandas import types

    if "timezone" in inspect.signature(types.to_arrow_schema).parameters:
        return types.to_arrow_schema(schema, timezone=timezone)
    return pa.schema([_in_zone(field, timezone) for field in types.to_arrow_schema(schema)])


def _in_zone(field: pa.Field, timezone: str) -> pa.Field:
    import pyarrow as pa

    kind, types = field.type, pa.types
    if types.is_timestamp(kind) and kind.tz is not None:
        return field.with_type(pa.timestamp(kind.unit, timezone))
    if types.is_list(kind):
        return field.with_type(pa.list_(_in_zone(kind.value_field, timezone)))
    if types.is_map(kind):
        key, item = (_in_zone(part, timezone) for part in (kind.key_field, kind.item_field))
        return field.with_type(pa.map_(key, item))
    if types.is_struct(kind):
        return field.with_type(pa.struct([_in_zone(member, timezone) for member in kind.fields]))
    return field


def _has_arrow_frames() -> bool:
    from pyspark.sql.pandas.conversion import SparkConversionMixin

    return hasattr(SparkConversionMixin, "_create_from_arrow_table")


def condition(error: Any) -> str | None:
    """Return the name of the condition that Spark raised an error for, None where it has none."""
    # PySpark 4.0 has given the method this name.
    for name in ("getCondition", "getErrorClass"):
        if hasattr(error, name):
            found: str | None = getattr(error, name)()
            return found
    return None


def query_contexts(error: Any) -> list[Any]:
    """Return where in queries Spark met an error, as its JVM has them."""
    if hasattr(error, "getQueryContext"):
        return list(error.getQueryContext())
    # PySpark 3.5 hands on everything else that the JVM's exceptions with a condition have.
    java = getattr(error, "_origin", None)
    if java is None or condition(error) is None:
        return []
    return list(java.getQueryContext())


def is_connect(session: object) -> bool:
    """Whether a session is one of Spark Connect, without a JVM of its own."""
    return not hasattr(session, "_jsc")


SETTING = "spark.pyspark.python"
VARIABLE = "PYSPARK_PYTHON"
# What PySpark has workers run where nobody says otherwise: the first on the PATH.
_DEFAULT = "python3"
# Of lancestat's own; a query may call functions that lack others.
_MISSING_MODULE = re.compile(
    r"ModuleNotFoundError: No module named "
    r"'(lancestat|lance|pyarrow|polars|polars_hash|numpy|datasketches|faiss|msgspec)\b"
)
# Spark 3.5 has it as `(3, 12)`.
_OTHER_MINOR = re.compile(r"different version:? \(?(\d+)(?:\.|, )(\d+)")
_MEND = f"before Spark starts: export {VARIABLE}={shlex.quote(sys.executable)}"

_choosing = threading.RLock()


@contextmanager
def own_python(spark: SparkSession) -> Iterator[None]:
    """Make functions within the block that workers run in the Python of this process.

    That is so on a local master where neither `PYSPARK_PYTHON` nor `spark.pyspark.python` names
    another. PySpark asks its context for the Python when it makes a function.
    """
    if not hasattr(spark, "_jsc"):
        yield
        return
    context = spark.sparkContext
    with _choosing:
        before, context.pythonExec = context.pythonExec, _preferred(context)
        try:
            yield
        finally:
            context.pythonExec = before


def _preferred(context: SparkContext) -> str:
    is_chosen = context.pythonExec != _DEFAULT or VARIABLE in os.environ
    if is_chosen or not is_local(context.master):
        return str(context.pythonExec)
    # PySpark reads it only where spark-submit starts the program.
    return str(context.getConf().get(SETTING) or sys.executable)


def python_error(what: str, reason: str, text: str) -> LancestatError | None:
    """Return the error of a job whose workers run an unsuitable Python, None for other failures."""
    missing = _MISSING_MODULE.search(reason)
    other = _OTHER_MINOR.search(text) if "PYTHON_VERSION_MISMATCH" in text else None
    workers = _local_workers()
    if other is not None:
        ours = f"{sys.version_info.major}.{sys.version_info.minor}"
        named = f" ({workers})" if workers is not None else ""
        return OtherPython(
            f"{what} failed: Spark's workers run Python {'.'.join(other.groups())}{named}, "
            f"lancestat runs in Python {ours} ({sys.executable})",
            hint=_MEND
            if workers is not None
            else f"set {SETTING} to a Python {ours} that every worker has, or write an archive for "
            "workers with `lancestat package`; see docs/how-to/deploy.md",
        )
    if missing is None or workers == sys.executable:
        return None
    if workers is not None:
        return WorkersLackPackage(
            f"{what} failed: Spark's workers run {workers}, which has no module "
            f"'{missing.group(1)}'; lancestat runs in {sys.executable}",
            hint=_MEND,
        )
    return WorkersLackPackage(
        f"{what} failed: {reason}",
        hint="`lancestat package` writes an archive for workers; see docs/how-to/deploy.md",
    )


def _local_workers() -> str | None:
    """Return the Python that workers on this machine run; None where they run elsewhere."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None or not is_local(context.master):
        return None
    chosen = _preferred(context)
    return shutil.which(chosen) or chosen


THREAD_VARIABLES = ("POLARS_MAX_THREADS", "LANCE_CPU_THREADS", "OMP_NUM_THREADS")


@cache
def prepare_worker(threads: int, *modules: str) -> None:
    """Give this process as many threads as its task has cores, and cheap garbage collections.

    The libraries read their variables when they are imported; a worker that did so before, for
    other jobs of its session, keeps what it has. `modules` are those that its tasks will import.
    """
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, str(threads))
    import pyarrow as pa

    for module in ("lancestat.spark.fragment_reader", *modules):
        import_module(module)
    pa.set_cpu_count(threads)
    # After each task Spark collects garbage, which visits every object of the libraries, for 30 ms.
    # Frozen ones are passed over.
    gc.collect()
    gc.freeze()


_TIME = re.compile(r"\btime\(")


def unreadable(fields: Iterable[Field]) -> dict[str, str]:
    """Return the reasons why Spark cannot read columns, by the names of those columns."""
    reasons = {}
    for field in fields:
        if (
            field.spark_type is None
            or not _are_decimals_sparks(field.spark_type)
            or (has_times(field) and not has_time_type())
        ):
            reasons[field.name] = f"Spark has no type for {field.type}"
        elif not is_readable_name(field.name):
            reasons[field.name] = UNREADABLE_NAME
    return reasons


def has_times(field: Field) -> bool:
    """Whether a column has times of day, at any depth."""
    return field.spark_type is not None and _TIME.search(field.spark_type) is not None


def _are_decimals_sparks(spark_type: str) -> bool:
    decimals = re.findall(r"decimal\((\d+),(-?\d+)\)", spark_type)
    return all(0 <= int(scale) <= int(precision) for precision, scale in decimals)


def spark_schema(fields: Iterable[Field]) -> StructType:
    """Return the Spark schema of the columns that Spark can read, in their order."""
    from pyspark.sql.types import StructField, StructType

    fields = tuple(fields)
    without = unreadable(fields)
    return StructType(
        [
            StructField(field.name, data_type(field.type), field.nullable)
            for field in fields
            if field.name not in without
        ]
    )


def data_type(arrow_type: pa.DataType) -> DataType:
    """Return the Spark type that `spark_type` names for an Arrow type that has one."""
    import pyarrow as pa
    from pyspark.sql import types as spark

    types = pa.types
    if isinstance(arrow_type, pa.BaseExtensionType):
        if arrow_type.extension_name == BLOB:
            return spark.BinaryType()
        return data_type(arrow_type.storage_type)
    if types.is_dictionary(arrow_type):
        return data_type(arrow_type.value_type)
    if types.is_struct(arrow_type):
        members = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
        return spark.StructType(
            [
                spark.StructField(member.name, data_type(member.type), member.nullable)
                for member in members
            ]
        )
    if types.is_map(arrow_type):
        item = arrow_type.item_field
        return spark.MapType(data_type(arrow_type.key_type), data_type(item.type), item.nullable)
    if hasattr(arrow_type, "value_field"):
        element = arrow_type.value_field
        return spark.ArrayType(data_type(element.type), element.nullable)
    if types.is_decimal(arrow_type):
        return spark.DecimalType(arrow_type.precision, arrow_type.scale)
    if types.is_timestamp(arrow_type):
        return spark.TimestampType() if arrow_type.tz else spark.TimestampNTZType()
    if types.is_time(arrow_type):
        return spark.TimeType(6)
    return _scalar(arrow_type)


def _scalar(arrow_type: pa.DataType) -> DataType:
    from pyspark.sql import types as spark

    kinds = (
        spark.BooleanType, spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType,
        spark.FloatType, spark.DoubleType, spark.StringType, spark.BinaryType, spark.DateType,
        spark.DayTimeIntervalType, spark.NullType,
    )  # fmt: skip
    name = spark_type(arrow_type)
    return next(made for kind in kinds if (made := kind()).simpleString() == name)
