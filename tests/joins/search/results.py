"""Results to write, and their content for readers other than lancestat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from lancestat.joins.output.result import output_at, output_of
from lancestat.joins.output.writer import OutputWriter, Written
from lancestat.joins.record import OutputFormat, OutputState

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("_distance", pa.float32())])


# What an update removes where rows are only appended.
NO_LINES = np.empty(0, np.int64)


def rows(start: int, stop: int, tag: str = "a") -> pa.RecordBatch:
    numbers = range(start, stop)
    columns = [
        pa.array(numbers, pa.int64()),
        pa.array([f"{tag}{number}" for number in numbers]),
        pa.array([number / 4 for number in numbers], pa.float32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def write(
    writer: OutputWriter, *pieces: Sequence[pa.RecordBatch], schema: pa.Schema = SCHEMA
) -> list[Written]:
    return [
        output_of(writer).write(writer, number, schema, piece)
        for number, piece in enumerate(pieces)
    ]


def put(
    form: OutputFormat,
    uri: str,
    *pieces: Sequence[pa.RecordBatch],
    schema: pa.Schema = SCHEMA,
    options: Mapping[str, str] | None = None,
) -> OutputState:
    """Make pieces, each of some batches, the whole result."""
    writer = output_at(form, uri, options or {}).begin("run")
    return output_of(writer).replace(writer, schema, write(writer, *pieces, schema=schema))


def add(form: OutputFormat, uri: str, *pieces: Sequence[pa.RecordBatch]) -> OutputState:
    """Make pieces follow the result."""
    return alter(form, uri, (), *pieces)


def alter(
    form: OutputFormat, uri: str, removed: Sequence[int], *pieces: Sequence[pa.RecordBatch]
) -> OutputState:
    """Remove lines of the result, and make pieces follow it."""
    previous = output_at(form, uri, {}).current()
    assert previous is not None
    writer = output_at(form, uri, {}).begin("run")
    lines = np.array(removed, np.int64)
    return output_of(writer).update(writer, SCHEMA, previous, lines, write(writer, *pieces))


def seen(form: OutputFormat, uri: str) -> pa.Table:
    """The result through the format's own reader."""
    if form is OutputFormat.LANCE:
        import lance

        return lance.dataset(uri).to_table().replace_schema_metadata(None)
    import pyarrow.parquet as pq

    return pq.read_table(uri).replace_schema_metadata(None)


def table(*batches: pa.RecordBatch, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_batches(batches, schema)


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


PIECES = ([rows(5, 7)], [rows(7, 9)])
