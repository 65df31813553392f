"""The task of Spark's Python workers for a query: parts of a scan in, Arrow batches out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lancestat.errors import LancestatError, ValueOutOfRange
from lancestat.lake.open import portable
from lancestat.lake.row_ranges import RowRange, ScanPartition
from lancestat.lake.snapshot import Pin
from lancestat.query.read.arrow_columns import for_spark
from lancestat.query.table import QueryScan
from lancestat.redact import redact_line, secret_values
from lancestat.spark.failure import WorkerError
from lancestat.spark.python import own_python
from lancestat.spark.start import task_threads
from lancestat.spark.worker import prepare_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def encode_scan(scan: QueryScan) -> str:
    """Return the scan as one line of text."""
    return json.dumps(
        {
            "pin": asdict(scan.pin),
            "columns": scan.columns,
            "filter": scan.filter,
            "limit": scan.limit,
            "narrow_decimals": scan.narrow_decimals,
        }
    )


def decode_scan(text: str) -> QueryScan:
    """Return the scan that `encode_scan` was given."""
    fields = json.loads(text)
    return QueryScan(**{**fields, "pin": Pin(**fields["pin"]), "columns": tuple(fields["columns"])})


def encode_part(part: ScanPartition) -> str:
    """Return the part as one line of text."""
    return json.dumps([[rows.fragment_id, rows.offset, rows.count] for rows in part.ranges])


def decode_part(text: str) -> ScanPartition:
    """Return the part that `encode_part` was given."""
    return ScanPartition(tuple(RowRange(*rows) for rows in json.loads(text)))


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Reads parts of any scan with its storage options; pickled into the Spark job."""

    storage_options: Mapping[str, str] = field(repr=False)
    threads: int = 1

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the part that the one binary value in `batches` names.

        Raises:
            WorkerError: anything went wrong; its text carries the `LancestatError` to the driver.
        """
        prepare_worker(self.threads)
        try:
            for batch in batches:
                for request in batch.column(0).to_pylist():
                    scan, part = request.decode().split("\n")
                    yield from read_part(decode_scan(scan), decode_part(part), self.storage_options)
        except LancestatError as error:
            raise WorkerError.carrying(error) from None


def make_reader(spark: SparkSession, storage_options: Mapping[str, str]) -> Any:
    """Return the `ChainedPythonFunctions` by which the relation's tasks read, through py4j.

    Storage options travel inside the pickled function only.
    """
    from pyspark.sql.types import StructType
    from pyspark.sql.udf import _wrap_function

    context = spark.sparkContext
    jvm: Any = context._jvm
    threads = task_threads(spark)
    # Spark checks nothing against the schema of a function of this kind.
    with own_python(spark):
        function = _wrap_function(
            context, ReadTask(portable(storage_options), threads), StructType()
        )
    functions = jvm.PythonUtils.toSeq([function])
    return jvm.org.apache.spark.api.python.ChainedPythonFunctions(functions)


def read_part(
    scan: QueryScan, part: ScanPartition, storage_options: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of a part in Spark's Arrow types, columns named by their positions.

    A scan of no columns yields the number of rows alone, as an int64.

    Raises:
        LakeError: what cannot be read, and why.
        ValueOutOfRange: a value that Spark's type cannot hold.
    """
    from lancestat.spark.fragment_reader import pinned_dataset, read_range

    dataset = pinned_dataset(scan.pin, storage_options)
    left = scan.limit
    for rows in part.ranges:
        if left is not None and left <= 0:
            return
        for batch in read_range(
            dataset, rows, scan.columns, storage_options, filter=scan.filter, limit=left
        ):
            if left is not None and scan.columns:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            try:
                converted = for_spark(batch, narrow_decimals=scan.narrow_decimals)
            except OverflowError as error:
                where = (
                    f"fragment {rows.fragment_id} of {scan.pin.uri} at version {scan.pin.version}"
                )
                reason = redact_line(str(error), secret_values(storage_options))
                raise ValueOutOfRange(f"{where}: {reason}") from None
            yield converted
            if left == 0:
                return
