"""Prepares Spark's Python workers."""

from __future__ import annotations

import gc
import os
from functools import cache
from importlib import import_module

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
