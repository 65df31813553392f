"""The kernel over TPC-H lineitem, against reading the same columns with pylance alone.

    python benchmarks/kernel.py                # scale 1
    python benchmarks/kernel.py --tiny         # a smoke run
    python benchmarks/kernel.py --data FOLDER  # with a lineitem.parquet at hand

Reading and analyzing, without and with `histogram: true`, take turns in one process after one
warm-up each; medians are printed. Columns are timed alone, over batches that are already in memory,
and so are groups. Of common values it is the time that they add to their column, and of all groups
and common values together what they add to all columns. The peak is that of a process of its own
that analyzes once.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import lance
import pyarrow as pa
from lineitem import COMMON_VALUES, GROUPS, TINY, generate, write_lance

from lancestat.spark.fragment_reader import BATCH_ROWS
from lancestat.tables.statistics.column_statistics import HISTOGRAM_KINDS
from lancestat.tables.statistics.column_type import column_type
from lancestat.tables.statistics.kernel import Request, analyze, reduce_batches

FRAGMENTS = 6
CAPACITY = 256


def main() -> None:
    """Prepare the data, measure, print."""
    arguments = parse_arguments()
    if arguments.peak_of:
        print(peak_bytes(arguments.peak_of))
        return
    with tempfile.TemporaryDirectory() as folder:
        scale = TINY if arguments.tiny else arguments.scale
        parquet = arguments.data or generate(scale, Path(folder))
        dataset = write_lance(
            parquet / "lineitem.parquet", Path(folder) / "lineitem.lance", fragments=FRAGMENTS
        )
        print(f"lineitem: {dataset.count_rows():,} rows, {len(dataset.schema)} columns\n")
        print_columns(dataset)
        print_totals(dataset, arguments.runs)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", default="1", help="TPC-H scale factor")
    parser.add_argument("--tiny", action="store_true", help="a size that only shows that it runs")
    parser.add_argument("--data", type=Path, help="a folder that holds lineitem.parquet")
    parser.add_argument("--runs", type=int, default=5, help="runs of each side")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    return parser.parse_args()


def scan(dataset: lance.LanceDataset) -> Iterator[pa.RecordBatch]:
    """All rows, a fragment at a time, as a work item reads them."""
    return iter(dataset.to_batches(batch_size=BATCH_ROWS, fragment_readahead=1, batch_readahead=2))


def print_columns(dataset: lance.LanceDataset) -> None:
    """Milliseconds of the kernel for each column and group, for as many rows as the table has."""
    rows, schema = dataset.count_rows(), dataset.schema
    batches = list(dataset.to_batches(batch_size=BATCH_ROWS, limit=20 * BATCH_ROWS))
    timed_rows = sum(batch.num_rows for batch in batches)

    def per_value(requests: Sequence[Request]) -> float:
        names = dict.fromkeys(name for request in requests for name in request.columns)
        selected = pa.schema([schema.field(name) for name in names])
        by_key = {str(number): request for number, request in enumerate(requests)}
        once = [measure(lambda: reduce_batches(batches, selected, by_key)).cpu for _ in range(5)]
        return float(min(once) / timed_rows)

    print(f"{'column':<40} {'type':<15} {'ms':>7} {'ns/value':>9}")
    alone = {name: per_value([Request((name,))]) for name in schema.names}
    for field in schema:
        print_column(field.name, str(field.type), alone[field.name], rows)
    print_column("all", "", sum(alone.values()), rows)
    for name in COMMON_VALUES:
        common = per_value([Request((name,), common_values=CAPACITY)])
        print_column(name, "common values", common - alone[name], rows)
    for names in GROUPS:
        print_column(", ".join(names), "group", per_value([Request(names)]), rows)
    columns = [Request((name,)) for name in schema.names]
    capacities = dict.fromkeys(COMMON_VALUES, CAPACITY)
    related = [Request((name,), common_values=capacities.get(name, 0)) for name in schema.names]
    together = per_value([*related, *map(Request, GROUPS)]) - per_value(columns)
    print_column("all common values and groups", "", together, rows)
    print()


def print_column(name: str, type: str, seconds_per_value: float, rows: int) -> None:
    """One line of the table of columns."""
    milliseconds, nanoseconds = seconds_per_value * rows * 1e3, seconds_per_value * 1e9
    print(f"{name:<40} {type:<15} {milliseconds:7.1f} {nanoseconds:9.2f}")


def print_totals(dataset: lance.LanceDataset, runs: int) -> None:
    """Reading alone against reading and analyzing, and the memory that the latter takes."""
    schema = dataset.schema
    read: list[Times] = []
    analyzed: list[Times] = []
    with_histograms: list[Times] = []
    quantiles = histogram_columns(schema)
    for _ in range(runs + 1):
        read.append(measure(lambda: sum(batch.num_rows for batch in scan(dataset))))
        analyzed.append(measure(lambda: analyze(scan(dataset), schema)))
        with_histograms.append(measure(lambda: analyze(scan(dataset), schema, quantiles=quantiles)))
    reading, analyzing = median(read[1:]), median(analyzed[1:])
    lines = {
        "reading alone": reading,
        "reading and analyzing": analyzing,
        f"and {len(quantiles)} histograms": median(with_histograms[1:]),
    }
    for name, times in lines.items():
        print(f"{name:<22} {times.wall:6.2f} s {times.cpu:6.2f} s of CPU")
    ratio = f"{analyzing.wall / reading.wall:.2f} in time, {analyzing.cpu / reading.cpu:.2f} in CPU"
    print(f"{'ratio':<22} {ratio}")
    command = [sys.executable, __file__, "--peak-of", dataset.uri]
    completed = subprocess.run(command, check=True, capture_output=True, text=True)
    print(f"{'peak memory':<22} {int(completed.stdout) / 1e6:6.0f} MB")


def histogram_columns(schema: pa.Schema) -> set[str]:
    """Return the columns that have histograms when requested."""
    types = {field.name: column_type(field.type) for field in schema}
    return {name for name, type in types.items() if type and type.kind in HISTOGRAM_KINDS}


def peak_bytes(uri: str) -> int:
    """The peak memory of this process after one analysis."""
    dataset = lance.dataset(uri)
    analyze(scan(dataset), dataset.schema)
    # Not getrusage: a child's begins with the peak of its parent.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return int(kilobytes) * 1024


class Times(NamedTuple):
    """Seconds that something took."""

    wall: float
    cpu: float


def measure(action: Callable[[], object]) -> Times:
    """The time that `action` takes, in all threads of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return Times(time.perf_counter() - wall, time.process_time() - cpu)


def median(times: Sequence[Times]) -> Times:
    """The median of each."""
    return Times(*(statistics.median(values) for values in zip(*times, strict=True)))


if __name__ == "__main__":
    main()
