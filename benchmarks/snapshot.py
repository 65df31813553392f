"""Measure planning up to its decisions: opening many tables, and observing one huge table.

    python benchmarks/snapshot.py [--tiny]

Measured are 1,000 small tables opened in threads, and one table of 100,000 fragments of 200 columns
whose manifest is real and whose data files are only named. Each part runs in a process of its own,
so that its peak memory is its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from measure import peak_megabytes, run_parts, timed

Measures = dict[str, float]


def sizes(tiny: bool) -> tuple[int, int, int]:
    """Tables; fragments and columns of the huge one."""
    return (20, 500, 20) if tiny else (1_000, 100_000, 200)


def make(folder: Path, tiny: bool) -> Measures:
    """Write the tables that the other parts read."""
    import lance
    import pyarrow as pa
    from lance.fragment import DataFile, FragmentMetadata

    tables, fragments, columns = sizes(tiny)
    for number in range(tables):
        rows = pa.table({"id": range(number, number + 40), "name": ["a name"] * 40})
        lance.write_dataset(rows, folder / f"t{number}.lance", max_rows_per_file=10)
    ids = list(range(columns))
    metadata = [
        FragmentMetadata(
            number, [DataFile(f"{number:040x}.lance", ids, ids, 2, 0, 10_000_000)], 100_000
        )
        for number in range(fragments)
    ]
    schema = pa.schema([(f"column_{number}", pa.int64()) for number in ids])
    lance.LanceDataset.commit(
        str(folder / "huge.lance"), lance.LanceOperation.Overwrite(schema, metadata)
    )
    return {}


def many(folder: Path, tiny: bool) -> Measures:
    """Open many small tables."""
    from lancestat.lake.open import observe_snapshots
    from lancestat.lake.snapshot import Snapshot

    tables, _, _ = sizes(tiny)
    requests = [(f"t{number}", str(folder / f"t{number}.lance")) for number in range(tables)]
    warm_up_seconds, _ = timed(lambda: observe_snapshots(requests[:1]))
    measures = {"import lance and open one table, seconds": warm_up_seconds}
    for threads in (1, 2, 8):
        seconds, snapshots = timed(partial(observe_snapshots, requests, threads=threads))
        assert all(isinstance(snapshot, Snapshot) for snapshot in snapshots.values())
        measures[f"open {tables:,} tables in {threads} threads, seconds"] = seconds
    measures[f"open {tables:,} tables: peak memory, MB"] = peak_megabytes()
    return measures


def huge(folder: Path, tiny: bool) -> Measures:
    """Look at one table of very many fragments."""
    from lancestat.lake.fingerprint import ByteEstimator, column_groups, content_digest
    from lancestat.lake.open import observe_dataset, snapshot

    _, fragments, columns = sizes(tiny)
    name = f"{fragments:,} fragments x {columns} columns"
    open_seconds, dataset = timed(lambda: observe_dataset(str(folder / "huge.lance")))
    opened_megabytes = peak_megabytes()
    snapshot_seconds, observed = timed(lambda: snapshot(dataset))
    groups_seconds, groups = timed(lambda: column_groups(observed, observed.fields))
    digest_seconds, _ = timed(lambda: content_digest(groups))
    bytes_read = ByteEstimator(observed.fields)
    estimate_seconds, _ = timed(
        lambda: [
            bytes_read.estimate(fragment, group.fields)
            for fragment, group in zip(observed.fragments, groups, strict=True)
        ]
    )
    again_seconds, again = timed(lambda: column_groups(observed, observed.fields))
    assert len(again) == len(groups) == fragments
    return {
        f"{name}: open, seconds": open_seconds,
        f"{name}: open, peak MB": opened_megabytes,
        f"{name}: snapshot, seconds": snapshot_seconds,
        f"{name}: column groups, seconds": groups_seconds,
        f"{name}: column groups again, seconds": again_seconds,
        f"{name}: content digest, seconds": digest_seconds,
        f"{name}: estimate of bytes, seconds": estimate_seconds,
        f"{name}: peak MB in all": peak_megabytes(),
    }


PARTS: dict[str, Callable[[Path, bool], Measures]] = {"make": make, "many": many, "huge": huge}


if __name__ == "__main__":
    run_parts(__doc__, PARTS)
