"""Results of joins, replaced so that readers see the old one or the new one, never a part.

The module of a format has the same functions, without the format.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.joins.output import lance_output, parquet_output
from lancestat.joins.output.writer import OutputWriter, Written, refused
from lancestat.joins.search.work import OutputFormat, OutputState
from lancestat.lake.files import local_path

if TYPE_CHECKING:
    import pyarrow as pa


def begin(
    format: OutputFormat,
    uri: str,
    run_id: str,
    storage_options: Mapping[str, str],
) -> OutputWriter:
    """Make room for a result, and remove what killed runs left of theirs where that is certain.

    Args:
        format: The format of the result.
        uri: Where.
        run_id: Names the run in the commit.
        storage_options: For an object store.

    Raises:
        OutputOccupied: what is at that place is not what a join wrote there, and is not touched, or
            the place is inside another dataset.
        OutputNotWritten: nothing can be written there.
        OutputNotReplaceable: Parquet is asked for in an object store.
        LakeError: The place cannot be looked at.
    """
    require_outside_datasets(uri, storage_options)
    begun = lance_output.begin if format is OutputFormat.LANCE else parquet_output.begin
    return begun(uri, run_id, storage_options)


def write(
    writer: OutputWriter, number: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Written:
    """Write the rows of piece `number` of the result; a repeated attempt does no harm.

    Raises:
        OutputNotWritten: the files cannot be written.
    """
    if writer.format is OutputFormat.LANCE:
        return lance_output.write(writer, number, schema, batches)
    return parquet_output.write(writer, number, schema, batches)


def replace(writer: OutputWriter, schema: pa.Schema, written: Sequence[Written]) -> OutputState:
    """Make the written pieces, in their order, the whole result, in one step.

    Of two runs that replace a result at the same time the later one wins.

    Raises:
        OutputOccupied: what is at that place by now is not what a join wrote there.
        OutputNotWritten: it cannot be written. Readers still see the result before.
    """
    if writer.format is OutputFormat.LANCE:
        return lance_output.replace(writer, schema, written)
    return parquet_output.replace(writer, schema, written)


def append(
    writer: OutputWriter, schema: pa.Schema, previous: OutputState, written: Sequence[Written]
) -> OutputState:
    """Make the written pieces follow the previous result, in one step.

    Raises:
        StaleBase: The result that readers see is no longer `previous`, or not of that schema.
        RunError: As for `replace`.
    """
    if writer.format is OutputFormat.LANCE:
        return lance_output.append(writer, schema, previous, written)
    return parquet_output.append(writer, schema, previous, written)


def discard(writer: OutputWriter, written: Sequence[Written]) -> None:
    """Remove what was written and will not be committed.

    Nothing that readers see is removed, and what cannot be removed is logged.
    """
    if writer.format is OutputFormat.LANCE:
        return lance_output.discard(writer, written)
    return parquet_output.discard(writer, written)


def collect_garbage(
    format: OutputFormat,
    uri: str,
    storage_options: Mapping[str, str],
) -> None:
    """Remove what killed runs left of results that were never committed, and nothing else.

    Args:
        format: The format of the result.
        uri: Where it is.
        storage_options: For an object store.

    Raises:
        OutputOccupied: something else is at that place.
        OutputNotReplaceable: as for `begin`.
        LakeError: The place cannot be looked at.
    """
    if format is OutputFormat.LANCE:
        return lance_output.collect_garbage(uri, storage_options)
    return parquet_output.collect_garbage(uri, storage_options)


def remove_past(
    format: OutputFormat,
    uri: str,
    storage_options: Mapping[str, str],
    keep: int | timedelta,
    now: datetime,
) -> int:
    """Remove results that are older than what is kept, and return how many versions these were.

    The newest result is kept, with every version since, tagged versions are, and what was replaced
    less than 15 minutes ago, so that its readers can finish.

    Args:
        format: The format of the result. Only Lance keeps more than the result before the last.
        uri: Where it is.
        storage_options: For an object store.
        keep: How many results, or for how long.
        now: The time from which ages count.

    Raises:
        OutputOccupied: something else is at that place.
        OutputNotWritten: versions cannot be removed.
        LakeError: The place cannot be looked at.
    """
    assert format is OutputFormat.LANCE, "only results in Lance have a 'keep'"
    return lance_output.remove_past(uri, storage_options, keep, now)


def current(
    format: OutputFormat,
    uri: str,
    storage_options: Mapping[str, str],
) -> OutputState | None:
    """Return the result that readers see now, None when there is none.

    Arguments are as for `begin`.

    Raises:
        OutputOccupied: what is at that place is not what a join wrote there.
        OutputNotReplaceable: Parquet is asked for in an object store.
        LakeError: The place cannot be looked at.
    """
    if format is OutputFormat.LANCE:
        return lance_output.current(uri, storage_options)
    return parquet_output.current(uri, storage_options)


def read_rows(
    state: OutputState, start: int, stop: int, storage_options: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yield rows of a result by their places, in order, a few thousand at a time.

    Args:
        state: From `replace`, `append` or, best, `current`.
        start: The first place.
        stop: The place after the last; at most `state.rows`.
        storage_options: For an object store.

    Raises:
        StaleBase: That result is gone.
    """
    if state.format is OutputFormat.LANCE:
        return lance_output.read_rows(state, start, stop, storage_options)
    return parquet_output.read_rows(state, start, stop, storage_options)


def require_outside_datasets(uri: str, options: Mapping[str, str]) -> None:
    """Refuse a place on this machine that is inside another Lance dataset.

    Lance takes what lies in certain folders of a dataset for parts of it: branches, manifests,
    indexes. A cleanup of the outer dataset would also remove files of the result.

    Raises:
        OutputOccupied: the place is inside a dataset.
    """
    path = local_path(uri)
    if path is None:
        return
    for folder in Path(os.path.realpath(path)).parents:
        if any((folder / "_versions").glob("*.manifest")):
            raise refused(uri, f"a place inside the Lance dataset {folder}", options)
