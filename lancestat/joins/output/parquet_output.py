"""Results as folders of Parquet files, which a link points to."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.errors import StaleBase
from lancestat.joins.output.parquet_location import ParquetLocation, location_of
from lancestat.joins.output.writer import OutputWriter, Written, reading, stale, writing
from lancestat.joins.search.work import OutputFormat, OutputState
from lancestat.lake.commit import BatchSource
from lancestat.lake.files import this_process

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("lancestat.knn")

_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 64 << 20
_BATCH_ROWS = 8192


def begin(uri: str, run_id: str, options: Mapping[str, str]) -> OutputWriter:
    location = location_of(uri)
    with writing(uri, options):
        location.prepare()
        with location.locked():
            location.collect_garbage()
            folder = location.start()
    owner = this_process()
    return OutputWriter(OutputFormat.PARQUET, uri, str(folder), run_id, owner, options)


def collect_garbage(uri: str, options: Mapping[str, str]) -> None:
    location = location_of(uri)
    location.check()
    if location.root.is_dir():
        with writing(uri, options), location.locked():
            location.collect_garbage()


def write(
    writer: OutputWriter, number: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Written:
    source = BatchSource(schema.remove_metadata(), batches)
    path = Path(writer.folder) / f"{number:06d}-{secrets.token_hex(4)}.parquet"
    with source.own_errors(), writing(writer.uri, writer.storage_options):
        try:
            _write_file(path, source)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    return Written(path.name, source.rows)


def replace(writer: OutputWriter, schema: pa.Schema, written: Sequence[Written]) -> OutputState:
    location = location_of(writer.uri)
    with writing(writer.uri, writer.storage_options), location.locked():
        return _publish(location, writer, schema, written, [])


def append(
    writer: OutputWriter, schema: pa.Schema, previous: OutputState, written: Sequence[Written]
) -> OutputState:
    uri, options = writer.uri, writer.storage_options
    location = location_of(uri)
    with writing(uri, options), location.locked():
        state = current(uri, options)
        if state is None:
            raise stale(uri, "has gone", options)
        if (state.generation, state.digest) != (previous.generation, previous.digest):
            raise stale(uri, "has changed", options)
        assert state.generation is not None
        files = _files(location.root / state.generation)
        if not files or not _holds(files[0], schema):
            raise stale(uri, "has got other columns", options)
        return _publish(location, writer, schema, written, files)


def discard(writer: OutputWriter, written: Sequence[Written]) -> None:
    location = location_of(writer.uri)
    try:
        with location.locked():
            location.forget(Path(writer.folder).stem)
    except OSError as error:
        _log.warning("what was written to %s was not removed: %s", location.root, error)


def current(uri: str, options: Mapping[str, str]) -> OutputState | None:
    location = location_of(uri)
    location.check()
    generation = location.generation()
    with suppress(StaleBase):
        return None if generation is None else _state(location, generation, options)
    return None


def read_rows(
    state: OutputState, start: int, stop: int, options: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    assert state.generation is not None
    folder = location_of(state.uri).root / state.generation
    first = 0
    with reading(state.uri, options):
        for path, groups in _row_groups(folder):
            if first >= stop:
                return
            yield from _read_file(path, groups, start - first, stop - first)
            first += sum(groups)


def _write_file(path: Path, source: BatchSource) -> None:
    import pyarrow.parquet as pq

    with path.open("xb") as file:
        with pq.ParquetWriter(file, source.schema) as parquet:
            for table in _grouped(source):
                parquet.write_table(table, row_group_size=_GROUP_ROWS)
        file.flush()
        os.fsync(file.fileno())


def _grouped(source: BatchSource) -> Iterator[pa.Table]:
    """Yield the rows of each row group: readers pay for each one, however small."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in source:
        waiting.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= _GROUP_ROWS or size_bytes >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting, source.schema)
            waiting = []
            rows = size_bytes = 0
    if rows:
        yield pa.Table.from_batches(waiting, source.schema)


def _publish(
    location: ParquetLocation,
    writer: OutputWriter,
    schema: pa.Schema,
    written: Sequence[Written],
    earlier: Sequence[Path],
) -> OutputState:
    location.check()
    part = Path(writer.folder)
    generation = part.stem
    folder = location.root / generation
    folder.mkdir()
    for path in earlier:
        _link(path, folder / path.name)
    pieces = [piece for piece in written if piece.rows]
    if not pieces and not earlier:
        pieces = [write(writer, 0, schema, [])]
    # Names differ between generations: who reads one while the link moves never mixes two.
    first = 1 + max((_number(path) for path in earlier), default=-1)
    for number, piece in enumerate(pieces, first):
        (part / piece.content).rename(folder / f"part-{number:06d}-{generation}.parquet")
    location.publish(generation)
    shutil.rmtree(part, ignore_errors=True)
    (location.root / f"{generation}.json").unlink(missing_ok=True)
    location.collect_garbage()
    return _state(location, generation, writer.storage_options)


def _link(path: Path, target: Path) -> None:
    try:
        target.hardlink_to(path)
    except OSError:
        shutil.copy2(path, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())


def _number(path: Path) -> int:
    return int(path.name.split("-")[1])


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def _state(location: ParquetLocation, generation: str, options: Mapping[str, str]) -> OutputState:
    folder = location.root / generation
    with reading(location.uri, options):
        digest = _digest(folder)
        rows = sum(sum(groups) for _, groups in _row_groups(folder))
    return OutputState(OutputFormat.PARQUET, location.uri, rows, digest, generation=generation)


def _digest(folder: Path) -> str:
    sizes = [(path.name, path.stat().st_size) for path in _files(folder)]
    return hashlib.blake2b(json.dumps(sizes).encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=64)
def _row_groups(folder: Path) -> tuple[tuple[Path, tuple[int, ...]], ...]:
    """Return files of a generation, which never change, with the rows of their groups."""
    import pyarrow.parquet as pq

    files = []
    for path in _files(folder):
        metadata = pq.read_metadata(path)
        groups = range(metadata.num_row_groups)
        files.append((path, tuple(metadata.row_group(group).num_rows for group in groups)))
    if not files:
        raise FileNotFoundError(folder)
    return tuple(files)


def _read_file(
    path: Path, groups: Sequence[int], start: int, stop: int
) -> Iterator[pa.RecordBatch]:
    """Yield rows of one file by their positions in it, which may lie before it and beyond it."""
    import pyarrow.parquet as pq

    first, overlapping, before = 0, [], 0
    for number, rows in enumerate(groups):
        if first < stop and first + rows > start:
            overlapping.append(number)
        elif not overlapping:
            before += rows
        first += rows
    if not overlapping:
        return
    position = before
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, row_groups=overlapping):
            skipped, end = max(start - position, 0), min(stop - position, batch.num_rows)
            position += batch.num_rows
            if skipped < end:
                yield batch.slice(skipped, end - skipped)


def _holds(path: Path, schema: pa.Schema) -> bool:
    """Return whether a file has the columns that one of that schema would have."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(schema.remove_metadata().empty_table(), sink)
    expected = pq.read_schema(pa.BufferReader(sink.getvalue()))
    return bool(pq.read_schema(path).equals(expected))
