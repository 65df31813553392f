"""The 99 queries of TPC-DS, planned with statistics and without.

    pip install duckdb==1.1.3                   # its wheel holds the generator and the queries
    python benchmarks/tpcds.py                  # TPC-DS at scale 0.2, local[2]
    python benchmarks/tpcds.py --tiny           # a smoke run of one query at scale 0.01
    python benchmarks/tpcds.py --queries 72 95  # some of the queries
    python benchmarks/tpcds.py --limit 60       # seconds after which a query is given up

The sides take turns, query by query, in one JVM, as those of `joins.py` do:

with      24 Lance tables, as `Project.attach` binds them
sizes     the same, its column statistics switched off: rows and sizes
nothing   as over a source that reports nothing
parquet   Spark's own tables after `ANALYZE TABLE ... FOR ALL COLUMNS`

The first turn of each query is not counted: it compiles. A query that does not end within the limit
is given up on that side, and no total that it would be part of counts it. The sides must find the
same rows.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from joins import SIDES, declare, session
from measure import spark_parser, timed

from lancestat.spark.session import start_session

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import Row, SparkSession

# More fragments where there is more to read, so that some can be ruled out.
FRAGMENTS = {"store_sales": 8, "catalog_sales": 8, "web_sales": 4, "inventory": 4}
# The generator does not end at smaller scales.
TINY_SCALE, TINY_QUERIES = 0.01, (3,)
# What a query is called.
Name = TypeVar("Name", int, str)
NAMED = re.compile(r'"([^"]+)"')


def main() -> None:
    """Prepare the tables, let the sides take turns, print."""
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        folder = Path(name)
        tables, queries = generate(given.scale, folder)
        project = declare(
            folder, tables, folder, given.cores, lambda table: FRAGMENTS.get(table, 1)
        )
        spark = start_session(project.spec.target, "benchmark")
        seconds, result = timed(project.run)
        assert result.status == "success", result
        print(f"statistics of {len(tables)} tables took {seconds:.1f} s", flush=True)
        sides = {side: session(spark, project, folder, side) for side in given.sides}
        wanted = {number: queries[number] for number in given.queries or queries}
        same = show(list(sides), take_all_turns(sides, wanted, given.runs, given.limit))
        spark.stop()
    if not same:
        sys.exit("the sides differ on the queries marked with !")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = spark_parser(__doc__, runs=2)
    parser.add_argument("--scale", type=float, default=0.2, help="TPC-DS scale factor")
    parser.add_argument("--queries", type=int, nargs="+", metavar="N")
    parser.add_argument("--limit", type=float, default=360, help="seconds a query may take")
    parser.add_argument("--sides", nargs="+", default=("with", "sizes", "parquet"), choices=SIDES)
    options = parser.parse_args()
    if options.tiny:
        options.runs, options.queries, options.scale = 1, TINY_QUERIES, TINY_SCALE
        # Spark's ANALYZE of 24 tables takes longer than all else; `joins.py` has that side, too.
        options.sides = ("with", "sizes")
    return options


def generate(scale: float, folder: Path) -> tuple[list[str], dict[int, str]]:
    """Write tables as `<table>.parquet`; return their names, and the queries in Spark's SQL."""
    import duckdb

    with duckdb.connect() as database:
        load(database)
        database.execute(f"call dsdgen(sf={scale})")
        tables = [
            name
            for (name,) in database.execute("select table_name from duckdb_tables()").fetchall()
        ]
        for table in tables:
            database.execute(f"copy {table} to '{folder / table}.parquet'")
        queries = database.execute("from tpcds_queries()").fetchall()
    return tables, {number: NAMED.sub(r"`\1`", text).rstrip(";\n ") for number, text in queries}


def load(database: duckdb.DuckDBPyConnection) -> None:
    """Load the generator from the wheel; later versions of DuckDB would download it."""
    import duckdb

    database.execute("set autoinstall_known_extensions = false")
    try:
        database.execute("load tpcds")
    except duckdb.Error:
        sys.exit(f"DuckDB {duckdb.__version__} has no generator: pip install duckdb==1.1.3")


def take_all_turns(
    sides: Mapping[str, SparkSession],
    queries: Mapping[Name, str],
    runs: int,
    limit: float,
    during: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> Iterator[tuple[Name, Mapping[str, float], bool]]:
    """Median seconds of each query by side, infinite past the limit; whether rows are equal.

    Without counted runs the first turn counts. Sides come in the other order in every other turn:
    the first one warms up what all share. `during` is entered for each turn of a side.
    """
    for number, query in queries.items():
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        answers: set[tuple[str, ...]] = set()
        for turn in range(1 + runs):
            for side, spark in list(sides.items())[:: 1 if turn % 2 else -1]:
                if math.inf in seconds[side]:
                    continue
                with during(side):
                    elapsed, rows = timed(partial(collect, spark, query, limit))
                seconds[side].append(math.inf if rows is None else elapsed)
                if rows is not None:
                    answers.add(tuple(sorted(map(comparable, rows))))
        medians = {
            side: math.inf if math.inf in times else statistics.median(times[1:] or times)
            for side, times in seconds.items()
        }
        yield number, medians, len(answers) <= 1


def collect(spark: SparkSession, query: str, limit: float) -> list[Row] | None:
    """Return the rows of a query, or None where it was given up after so many seconds."""
    given_up = threading.Event()

    def give_up() -> None:
        given_up.set()
        spark.sparkContext.cancelJobGroup("tpcds")

    spark.sparkContext.setJobGroup("tpcds", "TPC-DS", interruptOnCancel=True)
    timer = threading.Timer(limit, give_up)
    timer.start()
    try:
        rows: list[Row] = spark.sql(query).collect()
    except Exception:
        if not given_up.is_set():
            raise
        return None
    finally:
        timer.cancel()
    return rows


def comparable(row: Row) -> str:
    """A row without the last digits of floats, which depend on the order of additions."""
    return repr([f"{value:.9g}" if isinstance(value, float) else value for value in row])


def show(sides: list[str], measured: Iterator[tuple[Name, Mapping[str, float], bool]]) -> bool:
    """Print seconds as they come, then totals and ratios; return whether all rows were equal."""
    print(f"{'query':<15}", " ".join(f"{side:>12}" for side in sides), flush=True)
    taken: list[Mapping[str, float]] = []
    same = True
    for number, times, equal in measured:
        cells = " ".join(f"{times[side]:12.2f}" for side in sides)
        print(f"{number:<15}", cells, "" if equal else "!", flush=True)
        taken.append(times)
        same = same and equal
    for other in sides[1:]:
        both = [times for times in taken if math.isfinite(times[sides[0]] + times[other])]
        first, second = (sum(times[side] for times in both) for side in (sides[0], other))
        print(
            f"{sides[0]} / {other}: {first / second:.2f} over {len(both)} queries, "
            f"{first:.1f} s and {second:.1f} s"
        )
    return same


if __name__ == "__main__":
    main()
