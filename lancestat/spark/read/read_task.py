"""What runs inside Spark's Python workers for a query: parts of a scan in, Arrow batches out."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.compute as pc

from lancestat.errors import LancestatError, RunError
from lancestat.lake.column_bytes import fixed_width
from lancestat.lake.row_ranges import Part, RowRange
from lancestat.lake.snapshot import Pin
from lancestat.optimizer.table import Scan
from lancestat.redact import clean, secret_values
from lancestat.spark.analyze.scan_task import prepare_worker
from lancestat.spark.session.arrow_types import (
    BATCH_BYTES,
    BATCH_ROWS,
    PROBE_ROWS,
    SCAN_OPTIONS,
    fitting_rows,
)
from lancestat.spark.session.failure import WorkerError
from lancestat.spark.session.start import task_threads

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def encode_scan(scan: Scan) -> str:
    """The scan as one line of text."""
    return json.dumps(
        {
            "pin": asdict(scan.pin),
            "columns": scan.columns,
            "filter": scan.filter,
            "limit": scan.limit,
            "narrow_decimals": scan.narrow_decimals,
        }
    )


def decode_scan(text: str) -> Scan:
    """What `encode_scan` was given."""
    told = json.loads(text)
    return Scan(**{**told, "pin": Pin(**told["pin"]), "columns": tuple(told["columns"])})


def encode_part(part: Part) -> str:
    """The part as one line of text."""
    return json.dumps([[each.fragment_id, each.offset, each.count] for each in part.ranges])


def decode_part(text: str) -> Part:
    """What `encode_part` was given."""
    return Part(tuple(RowRange(*rows) for rows in json.loads(text)))


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Reads parts of any scan that its storage options reach; pickled into the Spark job."""

    storage_options: Mapping[str, str] = field(repr=False)
    threads: int = 1

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the part that the one binary value in `batches` asks for.

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
    """The `ChainedPythonFunctions` by which the relation's tasks read, through py4j.

    Storage options travel inside the pickled function only.
    """
    from pyspark.sql.types import StructType
    from pyspark.sql.udf import _wrap_function

    context = spark.sparkContext
    jvm: Any = context._jvm
    threads = task_threads(spark)
    # Spark checks nothing against the schema of a function of this kind.
    function = _wrap_function(context, ReadTask(dict(storage_options), threads), StructType())
    functions = jvm.PythonUtils.toSeq([function])
    return jvm.org.apache.spark.api.python.ChainedPythonFunctions(functions)


def read_part(
    scan: Scan, part: Part, storage_options: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """The live rows of a part in Spark's Arrow types, columns named by their positions.

    A scan of no columns yields the number of rows alone, as an int64.

    Raises:
        LakeError: what cannot be read, and why.
        RunError: LS514, a value that Spark's type cannot hold.
    """
    from lancestat.spark.read.arrow_columns import for_spark
    from lancestat.spark.read.fragment_reader import pinned_dataset, read_range

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
                said = clean(str(error), secret_values(storage_options))
                raise RunError("LS514", f"{where}: {said}") from None
            yield converted
            if left == 0:
                return


FIRST_WINDOW = 16_384
LARGEST_WINDOW = 262_144
# Lance evaluates the filter first and then looks the other columns of matching rows up. Where more
# than this share matches, reading everything is up to four times faster. Wide rows are looked up.
DENSE = 0.02
WIDE_ROW_BYTES = 2_048

# Where an index or an older format decides how matches are read; widths are guessed there.
LOOKED_UP_ROWS = 4_096

_ADDRESS = "_rowaddr"
_ROW_OF_ADDRESS = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class FilteredRows:
    """The live rows that pass a filter, of the physical rows `start` to before `stop`."""

    dataset: lance.LanceDataset
    fragment: lance.LanceFragment
    columns: tuple[str, ...]
    filter: str
    start: int
    stop: int

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the fragment."""
        return self.start == 0 and self.stop >= self.fragment.physical_rows

    def count(self) -> int:
        """How many they are."""
        if self.is_whole:
            return int(self.fragment.count_rows(self.filter))
        if self._can_be_masked():
            mask = row_mask(self.fragment.fragment_id, self.start, self.stop)
            return int(self._scanner(1, mask=mask, with_row_id=True).count_rows())
        return sum(batch.num_rows for batch in self._addressed(BATCH_ROWS))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Their columns, in batches that are neither small nor large."""
        width = self._width()
        if self._can_be_masked() and not self._has_index():
            yield from _joined(self._windows(is_wide=width > WIDE_ROW_BYTES))
        else:
            # Masks and indices exclude each other.
            rows = max(1, min(LOOKED_UP_ROWS, BATCH_BYTES // max(1, int(width))))
            yield from _joined(self._scanned(rows) if self.is_whole else self._addressed(rows))

    def _windows(self, *, is_wide: bool) -> Iterator[pa.RecordBatch]:
        # Matches come in clusters: each window is read in the way that suited the one before. The
        # first is also to tell how many rows fit a batch, and a surprise cuts a window short.
        start, size, rows, is_dense = self.start, FIRST_WINDOW, PROBE_ROWS, not is_wide
        while start < self.stop:
            stop = min(start + size, self.stop)
            matches, fitting = 0, BATCH_ROWS
            for batch in self._window(start, stop, rows, is_dense=is_dense):
                last = batch.column(_ADDRESS)[-1].as_py() & _ROW_OF_ADDRESS
                yield batch.select(list(self.columns))
                matches, fitting = matches + batch.num_rows, min(fitting, fitting_rows(batch))
                if fitting * 4 < batch.num_rows:
                    stop = last + 1
                    break
            is_dense = not is_wide and matches > DENSE * (stop - start)
            rows = fitting if matches else rows
            start, size = stop, min(4 * size, LARGEST_WINDOW)

    def _window(
        self, start: int, stop: int, rows: int, *, is_dense: bool
    ) -> Iterator[pa.RecordBatch]:
        scanner = self._scanner(
            rows,
            mask=row_mask(self.fragment.fragment_id, start, stop),
            with_row_address=True,
            late_materialization=False if is_dense else None,
        )
        return (batch for batch in scanner.to_batches() if batch.num_rows)

    def _scanned(self, rows: int) -> Iterator[pa.RecordBatch]:
        batches: Iterator[pa.RecordBatch] = self._scanner(rows).to_batches()
        return batches

    def _addressed(self, rows: int) -> Iterator[pa.RecordBatch]:
        first = self.fragment.fragment_id << 32
        for batch in self._scanner(rows, with_row_address=True).to_batches():
            address = batch.column(_ADDRESS)
            inside = pc.and_(
                pc.greater_equal(address, pa.scalar(first + self.start, pa.uint64())),
                pc.less(address, pa.scalar(first + self.stop, pa.uint64())),
            )
            yield batch.filter(inside).select(list(self.columns))

    def _scanner(
        self, rows: int, *, mask: bytes | None = None, **options: object
    ) -> lance.LanceScanner:
        if mask is not None:
            options["row_addr_allowlist"] = mask
        return self.dataset.scanner(
            fragments=[self.fragment],
            columns=list(self.columns),
            filter=self.filter,
            batch_size=rows,
            **SCAN_OPTIONS,
            **options,
        )

    def _has_index(self) -> bool:
        return "ScalarIndexQuery" in self._scanner(1).explain_plan()

    def _can_be_masked(self) -> bool:
        # Masks are of row ids, which are addresses unless they are stable.
        if self.dataset.has_stable_row_ids:
            return False
        return all(file.file_major_version >= 2 for file in self.fragment.metadata.files)

    def _width(self) -> float:
        fields = [self.dataset.schema.field(name) for name in self.columns]
        widths = [fixed_width(field.type) for field in fields]
        width = sum(each for each in widths if each is not None)
        if None in widths:
            files = self.fragment.metadata.files
            bytes_on_disk = sum(file.file_size_bytes or 0 for file in files)
            width += bytes_on_disk / max(1, self.fragment.physical_rows)
        return width


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if rows + batch.num_rows > BATCH_ROWS or size + batch.nbytes > BATCH_BYTES:
            yield from _one(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    yield from _one(held)


def _one(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) < 2:
        yield from batches
    else:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


# RoaringFormatSpec: bitmaps of runs, by the upper 16 bits; offsets follow from four of them on.
_RUN_COOKIE = 12_347
_OFFSETS_FROM = 4
_BLOCK = 1 << 16


def row_mask(fragment_id: int, start: int, stop: int) -> bytes:
    """The physical rows from `start` to before `stop` of a fragment, as `row_addr_allowlist`.

    It is what `lance.dataset.serialize_row_addrs` makes of their addresses, in runs: a count of
    fragments, and for each its id, the length of its bitmap and the bitmap, all little-endian
    (https://github.com/RoaringBitmap/RoaringFormatSpec).
    """
    bitmap = _runs(start, stop)
    return struct.pack("<III", 1, fragment_id, len(bitmap)) + bitmap


def _runs(start: int, stop: int) -> bytes:
    blocks = range(start // _BLOCK, -(-stop // _BLOCK))
    spans = [
        (max(start - block * _BLOCK, 0), min(stop - block * _BLOCK, _BLOCK) - 1) for block in blocks
    ]
    head = struct.pack("<I", _RUN_COOKIE | (len(blocks) - 1) << 16)
    head += ((1 << len(blocks)) - 1).to_bytes(-(-len(blocks) // 8), "little")
    for block, (first, last) in zip(blocks, spans, strict=True):
        head += struct.pack("<HH", block, last - first)
    containers = [struct.pack("<HHH", 1, first, last - first) for first, last in spans]
    if len(blocks) >= _OFFSETS_FROM:
        body = len(head) + 4 * len(blocks)
        for index, container in enumerate(containers):
            head += struct.pack("<I", body + index * len(container))
    return head + b"".join(containers)
