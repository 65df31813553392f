"""Results of joins, replaced so that readers see the old one or the new one, never a part.

Where a function looks at the location, it raises `OutputOccupied` for what no join wrote there,
which is not touched, `OutputNotReplaceable` for Parquet in an object store, and a `LakeError` where
the location cannot be looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.joins.output.lance_output import LanceOutput
from lancestat.joins.output.parquet_output import ParquetOutput
from lancestat.joins.output.writer import OutputWriter, Written, refused
from lancestat.joins.record import OutputFormat, OutputState
from lancestat.lake.files import local_path

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


def _at(format: OutputFormat, uri: str, options: Mapping[str, str]) -> LanceOutput | ParquetOutput:
    if format is OutputFormat.LANCE:
        return LanceOutput(uri, options)
    return ParquetOutput(uri, options)


def _of(writer: OutputWriter) -> LanceOutput | ParquetOutput:
    return _at(writer.format, writer.uri, writer.storage_options)


def begin(
    format: OutputFormat, uri: str, run_id: str, storage_options: Mapping[str, str]
) -> OutputWriter:
    """Prepare to write a result, and remove what killed runs left where that is certain.

    A location inside another dataset is occupied, too; OutputNotWritten where nothing can be
    written.
    """
    require_outside_datasets(uri, storage_options)
    return _at(format, uri, storage_options).begin(run_id)


def write(
    writer: OutputWriter, number: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Written:
    """Write the rows of piece `number` of the result; a repeated attempt does no harm."""
    return _of(writer).write(writer, number, schema, batches)


def replace(writer: OutputWriter, schema: pa.Schema, written: Sequence[Written]) -> OutputState:
    """Make the written pieces, in their order, the whole result, in one step.

    Of two runs that replace a result at the same time the later one wins. With OutputNotWritten
    readers still see the result before.
    """
    return _of(writer).replace(writer, schema, written)


def update(
    writer: OutputWriter,
    schema: pa.Schema,
    previous: OutputState,
    removed: NDArray[np.int64],
    written: Sequence[Written],
) -> OutputState:
    """Remove rows of the previous result by their ascending places in it, and let the written
    pieces follow the others, in one step.

    StaleBase is raised when readers do not see `previous` any more, or it has other columns.
    """
    return _of(writer).update(writer, schema, previous, removed, written)


def discard(writer: OutputWriter) -> None:
    """Remove what was written and will not be committed, and log what cannot be removed."""
    _of(writer).discard(writer)


def collect_garbage(format: OutputFormat, uri: str, storage_options: Mapping[str, str]) -> None:
    """Remove what killed runs left of results that were never committed, and nothing else."""
    _at(format, uri, storage_options).collect_garbage()


def remove_past(
    format: OutputFormat,
    uri: str,
    storage_options: Mapping[str, str],
    keep: int | timedelta,
    now: datetime,
) -> int:
    """Remove results that are older than what is kept, and return how many versions these were.

    The newest result is kept, with every version since, tagged versions are, and what was replaced
    less than 15 minutes ago, so that its readers can finish. `keep` says how many results, or for
    how long. Only Lance keeps more than the result before the last.
    """
    assert format is OutputFormat.LANCE, "only results in Lance have a 'keep'"
    return LanceOutput(uri, storage_options).remove_past(keep, now)


def current(
    format: OutputFormat, uri: str, storage_options: Mapping[str, str]
) -> OutputState | None:
    """Return the result that readers see now, None when there is none."""
    return _at(format, uri, storage_options).current()


def require_outside_datasets(uri: str, options: Mapping[str, str]) -> None:
    """Refuse a location on this machine that is inside another Lance dataset.

    Lance takes what lies in certain folders of a dataset for parts of it: branches, manifests,
    indexes. A cleanup of the outer dataset would also remove files of the result.
    """
    path = local_path(uri)
    if path is None:
        return
    for folder in Path(os.path.realpath(path)).parents:
        if any((folder / "_versions").glob("*.manifest")):
            raise refused(uri, f"a place inside the Lance dataset {folder}", options)
