"""The task of Spark's Python workers: work items in, encoded partials out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lancestat.errors import FragmentNotAnalyzed, LancestatError
from lancestat.lake.snapshot import Pin
from lancestat.redact import redact_line, secret_values
from lancestat.spark.analyze.work import ScanRange, WorkItem
from lancestat.spark.session.failure import WorkerError
from lancestat.spark.session.worker import prepare_worker
from lancestat.state.identity import has_quantiles
from lancestat.statistics.partial import encode


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
            secrets = secret_values(self.storage_options)
            cause = redact_line(f"{type(error).__name__}: {error}", secrets)
            subject = (
                f"fragment {part.rows.fragment_id} of {self.pin.uri} at version {self.pin.version}"
            )
            raise FragmentNotAnalyzed(f"{subject} cannot be analyzed: {cause}") from error
