"""The Python that Spark's workers run, and what is prepared in it."""

from __future__ import annotations

import gc
import os
import re
import shlex
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from lancestat.errors import LancestatError, OtherPython, WorkersLackPackage
from lancestat.spec.spark_master import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


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
    another. PySpark asks its context for the Python when it makes a function; those of the caller
    are left to it.
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
    """Return the error of a job whose workers run an unsuitable Python, None for other failures.

    Args:
        what: What failed.
        reason: What a worker raised, or the driver.
        text: All that Spark says of the failure.
    """
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
    """Return the Python that workers on this machine run; None where they run elsewhere.

    Of several Sparks in one process there is one at a time.
    """
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
