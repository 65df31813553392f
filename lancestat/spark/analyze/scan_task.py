"""What runs inside Spark's Python workers: work items in, encoded partials out."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module

from lancestat.errors import LancestatError, RunError
from lancestat.lake.snapshot import Pin
from lancestat.redact import clean, secret_values
from lancestat.spark.analyze.work import ScanRange, WorkItem
from lancestat.spark.session.failure import WorkerError
from lancestat.state.identity import has_quantiles

THREAD_VARIABLES = ("POLARS_MAX_THREADS", "LANCE_CPU_THREADS", "OMP_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class RangePartials:
    """Encoded partials of one range of a scan by field key."""

    range: ScanRange
    encoded: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Reads work items of one pinned table; pickled into the Spark job.

    `columns` names the columns of every scan of the job by field key.
    """

    pin: Pin
    columns: tuple[Mapping[str, str], ...]
    storage_options: Mapping[str, str] = field(repr=False)
    threads: int = 1

    def __call__(self, items: Iterable[WorkItem]) -> Iterator[RangePartials]:
        """Yield the partials of every range of every item.

        Raises:
            WorkerError: anything went wrong; its text carries the `LancestatError` to the driver.
        """
        prepare_worker(self.threads, "lancestat.statistics.kernel")
        try:
            for item in items:
                yield from map(self._read, item.ranges)
        except LancestatError as error:
            raise WorkerError.carrying(error) from None

    def _read(self, part: ScanRange) -> RangePartials:
        import pyarrow as pa

        from lancestat.spark.read.fragment_reader import pinned_dataset, read_range
        from lancestat.statistics.kernel import analyze
        from lancestat.statistics.partial import encode

        columns = self.columns[part.scan]
        names = tuple(columns.values())
        dataset = pinned_dataset(self.pin, self.storage_options)
        try:
            batches = read_range(
                dataset, part.rows, names, self.storage_options, row_bytes=part.row_bytes
            )
            schema = pa.schema([dataset.schema.field(name) for name in names])
            quantiles = {name for key, name in columns.items() if has_quantiles(key)}
            partials = analyze(batches, schema, quantiles=quantiles)
            return RangePartials(
                part, {key: encode(partials[name]) for key, name in columns.items()}
            )
        except LancestatError:
            raise
        except Exception as error:
            cause = clean(f"{type(error).__name__}: {error}", secret_values(self.storage_options))
            place = (
                f"fragment {part.rows.fragment_id} of {self.pin.uri} at version {self.pin.version}"
            )
            raise RunError("LS510", f"{place} cannot be analyzed: {cause}") from error


@cache
def prepare_worker(threads: int, *modules: str) -> None:
    """Make this process a good worker: as many threads as its task has cores, cheap collections.

    The libraries read their variables when they are imported; a worker that did so before, for
    other jobs of its session, keeps what it has. `modules` are those that its tasks will import.
    """
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, str(threads))
    import pyarrow as pa

    for module in ("lancestat.spark.read.fragment_reader", *modules):
        import_module(module)
    pa.set_cpu_count(threads)
    # After each task Spark collects garbage, which visits every object of the libraries, for 30 ms.
    # Frozen ones are passed over.
    gc.collect()
    gc.freeze()
