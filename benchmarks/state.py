"""Measure the cost of the state for a plan: records of many tables, the index of a huge one.

    python benchmarks/state.py [--tiny]

Measured are the newest records of 1,000 tables after 20 runs that each changed all of them, the
index of one table of 100,000 fragments of 200 columns, and the partials of one of 1,000 fragments
of 20 columns with full sketches. Each part runs in a process of its own, so that its peak memory is
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from measure import peak_megabytes, run_parts, timed

if TYPE_CHECKING:
    import pyarrow as pa

    from lancestat.state.store import LanceState
    from lancestat.state.values import RunRecord, StoredPartials

Measures = dict[str, float]
EPOCH = datetime(2025, 1, 1, tzinfo=timezone.utc)


def make_records(folder: Path, tiny: bool) -> Measures:
    """Runs that each changed every table."""
    tables, runs = (20, 3) if tiny else (1_000, 20)
    state = opened(folder / "records")
    for number in range(runs):
        state.add_run(run_of(number, tables))
    return {}


def read_records(folder: Path, tiny: bool) -> Measures:
    """Records of many tables."""
    from lancestat.tables.stored import table_records

    warm_up_seconds, records = timed(lambda: table_records(opened(folder / "records")))
    state = opened(folder / "records")
    seconds, _ = timed(lambda: table_records(state))
    again_seconds, _ = timed(lambda: table_records(state))
    compact_seconds, _ = timed(lambda: state.expire({}))
    tidy_seconds, _ = timed(lambda: state.expire({}))
    name = f"records of {len(records):,} tables"
    return {
        f"{name}: with import of lance, seconds": warm_up_seconds,
        f"{name}: opened anew, seconds": seconds,
        f"{name}: again, seconds": again_seconds,
        f"{name}: tidy that compacts the runs, seconds": compact_seconds,
        f"{name}: tidy with nothing to do, seconds": tidy_seconds,
        f"{name}: peak MB": peak_megabytes(),
    }


def make_index(folder: Path, tiny: bool) -> Measures:
    """Rows of partials whose sketches are left out: the index must not read them anyhow."""
    fragments, columns = (500, 20) if tiny else (100_000, 200)
    state = opened(folder / "index")
    state.partial_table.append(index_rows(fragments, columns, state.partial_table.schema))
    return {}


def read_index(folder: Path, tiny: bool) -> Measures:
    """The index of one huge table."""
    state = opened(folder / "index")
    state.partial_index("none")
    before = peak_megabytes()
    seconds, index = timed(lambda: state.partial_index("t"))
    peak = peak_megabytes()
    fields = len(next(iter(index.singles.values())))
    live = frozenset(index.singles)
    tidy_seconds, _ = timed(lambda: state.expire({"t": live}))
    name = f"index of {len(index.singles):,} fragments x {fields} columns"
    return {
        f"{name}: seconds": seconds,
        f"{name}: peak MB": peak,
        f"{name}: peak MB before": before,
        f"{name}: tidy with nothing to do, seconds": tidy_seconds,
    }


def stream(folder: Path, tiny: bool) -> Measures:
    """Partials of one table written and read back."""
    from lancestat.tables.stored import add_partials, read_partials

    fragments, columns = (20, 5) if tiny else (1_000, 20)
    state = opened(folder / "stream")
    entries = list(full_partials(fragments, columns))
    write_seconds, _ = timed(lambda: add_partials(state, "t", entries))
    wanted = {entry.fingerprints: frozenset(entry.partials) for entry in entries}
    read_seconds, read = timed(
        lambda: sum(len(entry.partials) for entry in read_partials(state, "t", wanted))
    )
    assert read == fragments * columns
    size = sum(path.stat().st_size for path in (folder / "stream").rglob("*") if path.is_file())
    name = f"partials of {fragments:,} fragments x {columns} columns"
    return {
        f"{name}: write, seconds": write_seconds,
        f"{name}: read, seconds": read_seconds,
        f"{name}: kB each on disk": size / read / 1024,
        f"{name}: peak MB": peak_megabytes(),
    }


def opened(folder: Path) -> LanceState:
    """The state at a folder."""
    from lancestat.state.store import open_state

    return open_state(str(folder))


def run_of(number: int, tables: int) -> RunRecord:
    """A run that made new statistics for tables of 16 columns each."""
    from lancestat.state.values import NodeRun, RunRecord
    from lancestat.tables.stored import TableRecord

    columns = tuple(f"l_column_{column}" for column in range(16))
    suffixes = ("version", "distinctCount", "min", "max", "nullCount", "avgLen", "maxLen")
    values = {
        f"lance.stats.column.{column}.{suffix}": "1234567"
        for column in columns
        for suffix in suffixes
    }
    at = EPOCH + timedelta(hours=number)
    nodes = []
    for table in range(tables):
        record = TableRecord(
            table=f"{table:024x}",
            node=f"table_{table}",
            version=number,
            published=True,
            content_digest="d" * 32,
            schema_hash="5" * 64,
            rows=1000,
            fragments=10,
            computed_at=at,
            columns=columns,
            values=values,
            bounds={},
            manifest="f" * 32,
        )
        result = {"name": record.node}
        nodes.append(NodeRun(record.node, "table", "digest", result, record.stored()))
    return RunRecord(f"run-{number}", "run", "dev", at, at, "success", tuple(nodes))


def index_rows(fragments: int, columns: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as they are stored, with empty sketches."""
    import pyarrow as pa

    from lancestat.state.partials import join_fields

    fields = join_fields(f"{column}:decimal(12,2)" for column in range(columns))
    for start in range(0, fragments, 1000):
        numbers = range(start, min(start + 1000, fragments))
        count = len(numbers)
        arrays = [
            [None] * count,
            ["t"] * count,
            [fingerprint(number) for number in numbers],
            [fields] * count,
            [[b""] * columns] * count,
            [EPOCH] * count,
        ]
        typed = zip(arrays, schema.types, strict=True)
        yield pa.record_batch([pa.array(array, type) for array, type in typed], schema=schema)


def full_partials(fragments: int, columns: int) -> Iterator[StoredPartials]:
    """Partials with a sketch of about a million distinct values."""
    import numpy as np

    from lancestat.state.values import StoredPartials
    from lancestat.tables.statistics.partial import ColumnPartial
    from lancestat.tables.statistics.sketches import REGISTERS, Sketch

    random = np.random.default_rng(7)
    for number in range(fragments):
        ranks = random.geometric(0.5, (columns, REGISTERS)) + 7
        yield StoredPartials(
            (fingerprint(number),),
            {
                f"{column}:bigint": ColumnPartial(
                    1_000_000, 0, 0, 0, 9, 0, 0, Sketch.of(ranks[column].astype(np.uint8).tobytes())
                )
                for column in range(columns)
            },
        )


def fingerprint(number: int) -> bytes:
    """A made-up fingerprint."""
    return blake2b(str(number).encode(), digest_size=16).digest()


PARTS: dict[str, Callable[[Path, bool], Measures]] = {
    "make_records": make_records,
    "read_records": read_records,
    "make_index": make_index,
    "read_index": read_index,
    "stream": stream,
}


if __name__ == "__main__":
    run_parts(__doc__, PARTS)
