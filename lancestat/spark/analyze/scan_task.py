"""What runs inside Spark's Python workers: work items in, encoded partials out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lancestat.errors import LancestatError, RunError
from lancestat.lake.snapshot import Pin
from lancestat.redact import clean, secret_values
from lancestat.spark.analyze.work import Slice, WorkItem
from lancestat.spark.session.failure import WorkerError
from lancestat.spark.session.worker import prepare_worker
from lancestat.state.identity import has_quantiles
from lancestat.statistics.partial import encode


@dataclass(frozen=True, slots=True)
class SlicePartials:
    """Encoded partials of one slice by field key."""

    slice: Slice
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

    def __call__(self, items: Iterable[WorkItem]) -> Iterator[SlicePartials]:
        """Partials of every slice of every item.

        Raises:
            WorkerError: anything went wrong; its text carries the `LancestatError` to the driver.
        """
        prepare_worker(self.threads, "lancestat.statistics.kernel")
        try:
            for item in items:
                yield from map(self._read, item.slices)
        except LancestatError as error:
            raise WorkerError.carrying(error) from None

    def _read(self, slice: Slice) -> SlicePartials:
        from lancestat.spark.read.fragment_reader import pinned_dataset, read_slice
        from lancestat.statistics.kernel import analyze

        columns = self.columns[slice.scan]
        dataset = pinned_dataset(self.pin, self.storage_options)
        try:
            schema, batches = read_slice(
                dataset, slice, tuple(columns.values()), self.storage_options
            )
            quantiles = {name for key, name in columns.items() if has_quantiles(key)}
            partials = analyze(batches, schema, quantiles=quantiles)
            return SlicePartials(
                slice, {key: encode(partials[name]) for key, name in columns.items()}
            )
        except LancestatError:
            raise
        except Exception as error:
            cause = clean(f"{type(error).__name__}: {error}", secret_values(self.storage_options))
            place = f"fragment {slice.fragment_id} of {self.pin.uri} at version {self.pin.version}"
            raise RunError("LS510", f"{place} cannot be analyzed: {cause}") from error
