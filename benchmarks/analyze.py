"""Compare a full analysis with the analysis of Spark and with a plain scan.

    python benchmarks/analyze.py                # TPC-H lineitem at scale 1, local[2]
    python benchmarks/analyze.py --tiny         # a smoke run at scale 0.001
    python benchmarks/analyze.py --data FOLDER  # with a lineitem.parquet at hand

The sides take turns over the same rows and all their columns: lancestat over Lance, from the plan's
scans to merged statistics, in threads of its own process; the same as a job on Spark; that with
three groups of columns, and common values of eight columns; Spark's
`CommandUtils.computeColumnStats` over Parquet; and pylance, reading the Lance table with a thread
per core and doing nothing with it. Lancestat's and Spark's have a JVM each, lancestat's started as
`lancestat run` does. The first two turns of each are not counted: the JVM takes as long to compile
what Spark's side uses. Medians are printed, of the clock and of the processor time of all processes
together, which tells more where other programs run. The
peak is the largest resident set that a Python worker of Spark has had at the end.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import lance
from lineitem import COMMON_VALUES, GROUPS, generate, parse_arguments, write_lance
from measure import processes, timed

import lancestat
from lancestat.spark.session import RunSession, start_session
from lancestat.spec.catalog import UriOptions
from lancestat.spec.model import Target
from lancestat.tables.action import TableAction
from lancestat.tables.analyze import ProcessScanner, SparkScanner
from lancestat.tables.statistics.column_statistics import column_statistics_of
from lancestat.tables.statistics.column_type import column_type
from lancestat.tables.statistics.partial import decode, merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lancestat.tables.action import TableAction

FRAGMENTS = 16
WARM_UPS = 2
PROJECT = """
name: benchmark
default_target: dev
targets: {dev: {state: .lancestat/state}}
"""
TABLE = "tables: [{name: lineitem, uri: lineitem.lance}]"
RELATED_TABLE = f"""
tables:
  - name: lineitem
    uri: ../lineitem.lance
    groups: {list(map(list, GROUPS))}
    common_values: {{columns: {list(COMMON_VALUES)}}}
"""

# Of the process of lancestat's sides.
scanners: dict[str, ProcessScanner | SparkScanner]


class Cost(NamedTuple):
    """Seconds that a side took: on the clock, and of all processors together."""

    clock: float
    cpu: float


def main() -> None:
    """Prepare the data, let the sides take turns, print."""
    arguments = parse_arguments(__doc__, runs=5)
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as folder:
        project = Path(folder)
        parquet = arguments.data or generate(arguments.scale, project)
        write_lance(parquet / "lineitem.parquet", project / "lineitem.lance", fragments=FRAGMENTS)
        work = declare(TABLE, project)
        related = declare(RELATED_TABLE, project / "related")
        target = Target("dev", "state", spark_master=f"local[{arguments.cores}]")
        spark = start_session(target, "benchmark")
        with start(target, tiny=arguments.tiny) as run:
            sides: dict[str, Callable[[], int]] = {
                "process": lambda: run.submit(analyze, work, "process").result(),
                "job": lambda: run.submit(analyze, work, "job").result(),
                "related": lambda: run.submit(analyze, related, "job").result(),
                "spark": lambda: compute_column_stats(spark, parquet / "lineitem.parquet"),
                "pylance": lambda: read(work.table.uri, arguments.cores),
            }
            table = work.table
            print(
                f"lineitem: {table.rows:,} rows, {len(table.fields)} columns, "
                f"{arguments.cores} cores"
            )
            warm_ups, runs = (0, 1) if arguments.tiny else (WARM_UPS, arguments.runs)
            show(take_turns(sides, warm_ups, runs))
            peak = max(process.peak_megabytes for process in processes() if process.is_worker)
            print(f"{'peak of a Python worker, MB':<40} {peak:8.0f}")
        spark.stop()


def declare(table: str, folder: Path) -> TableAction:
    """Declare the Lance table in a new project; return the planned scans."""
    (folder / "specs").mkdir(parents=True)
    (folder / "lancestat_project.yml").write_text(PROJECT)
    (folder / "specs" / "tables.yml").write_text(table)
    (action,) = lancestat.Project.load(folder).plan().actions
    assert isinstance(action, TableAction)
    return action


def start(target: Target, *, tiny: bool) -> Executor:
    """Start lancestat's side: a process with a JVM of its own, unless the sizes are tiny."""
    if tiny:
        return ThreadPoolExecutor(1, initializer=begin, initargs=(target,))
    # Its JVM is started as `lancestat run` does.
    return ProcessPoolExecutor(1, get_context("spawn"), begin, (target,))


def begin(target: Target) -> None:
    """Prepare the process of lancestat's sides."""
    global scanners
    options = UriOptions({})
    scanners = {
        "process": ProcessScanner(target, options=options),
        "job": SparkScanner(RunSession(target), options),
    }


def analyze(work: TableAction, where: str) -> int:
    """Lancestat's sides; returns the number of columns with statistics."""
    results = [
        partials
        for scanned in scanners[where].scan("lineitem", work.table, work.scans)
        for _, partials in scanned.merged
    ]
    made = 0
    fields = {field.name: field for field in work.table.fields}
    for key, names in work.table.needs.items():
        merged = merge(decode(partials[key]) for partials in results if key in partials)
        if len(names) > 1:
            assert merged.distinct <= merged.values
            continue
        type = column_type(fields[names[0]].type)
        assert type is not None
        assert merged.rows == work.table.rows
        assert column_statistics_of(merged, type).nulls == merged.nulls
        made += 1
    return made


def compute_column_stats(spark: SparkSession, parquet: Path) -> int:
    """Spark's side; returns the number of columns with statistics."""
    command = spark._jvm.org.apache.spark.sql.execution.command
    plan = spark.read.parquet(str(parquet))._jdf.queryExecution().analyzed()
    utils = getattr(getattr(command, "CommandUtils$"), "MODULE$")
    statistics_of_columns = utils.computeColumnStats(spark._jsparkSession, plan, plan.output())
    return int(statistics_of_columns._2().size())


def read(uri: str, threads: int) -> int:
    """Pylance's side; returns the number of columns read."""
    fragments = lance.dataset(uri).get_fragments()

    def rows(fragment: lance.LanceFragment) -> int:
        return sum(batch.num_rows for batch in fragment.to_batches(batch_size=65_536))

    with ThreadPoolExecutor(threads) as pool:
        assert sum(pool.map(rows, fragments)) == lance.dataset(uri).count_rows()
    return len(fragments[0].schema)


def take_turns(sides: dict[str, Callable[[], int]], warm_ups: int, runs: int) -> dict[str, Cost]:
    """Median costs of each side; all must have dealt with as many columns."""
    costs: dict[str, list[Cost]] = {name: [] for name in sides}
    for _ in range(warm_ups + runs):
        columns = set()
        for name, side in sides.items():
            before = sum(process.cpu_seconds for process in processes())
            elapsed, count = timed(side)
            cpu = sum(process.cpu_seconds for process in processes()) - before
            costs[name].append(Cost(elapsed, cpu))
            columns.add(count)
        assert len(columns) == 1, columns
    return {name: middle(seconds[warm_ups:]) for name, seconds in costs.items()}


def middle(costs: list[Cost]) -> Cost:
    """The medians."""
    return Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))


def show(costs: dict[str, Cost]) -> None:
    """Print times and ratios."""
    sides = ("process", "job", "related", "spark", "pylance")
    ours, job, related, theirs, reading = (costs[name] for name in sides)
    print(f"{'':<40} {'clock':>8} {'CPU':>8}")
    for text, clock, cpu in (
        ("lancestat, in its process, s", *ours),
        ("lancestat, as a job on Spark, s", *job),
        ("with groups and common values, s", *related),
        ("Spark's computeColumnStats, s", *theirs),
        ("pylance, reading alone, s", *reading),
        ("Spark / lancestat", theirs.clock / ours.clock, theirs.cpu / ours.cpu),
        ("Spark / lancestat on Spark", theirs.clock / job.clock, theirs.cpu / job.cpu),
        ("with groups / without", related.clock / job.clock, related.cpu / job.cpu),
        ("lancestat / reading alone", ours.clock / reading.clock, ours.cpu / reading.cpu),
        ("on Spark / reading alone", job.clock / reading.clock, job.cpu / reading.cpu),
    ):
        print(f"{text:<40} {clock:8.2f} {cpu:8.2f}")


if __name__ == "__main__":
    main()
