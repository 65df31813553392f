"""Scan throughput: Lance through lancestat's relation against Spark's own Parquet reader.

    python benchmarks/read.py                   # lineitem of TPC-H at scale 1, local[2]
    python benchmarks/read.py --tiny            # a smoke run at scale 0.001
    python benchmarks/read.py --data FOLDER     # with lineitem.parquet at hand

All rows go into Spark's noop sink. The two sides take turns in one JVM; the first turn is not
counted, and medians of the others are printed. Then where Lance's time goes: decoding alone, in
this process on one core; the same converted to what Spark takes; and tasks that read nothing. Last
a table of many small fragments, beside one scan of it by Lance alone in this process.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import lance
from lineitem import generate, parse_arguments, write_lance
from measure import timed

import lancestat
from lancestat.query.read.arrow_columns import for_spark
from lancestat.spark.session import start_session
from lancestat.spec.model import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FRAGMENTS = 8
SMALL_FRAGMENTS, SMALL_ROWS = {False: 10_000, True: 20}, 50
TWO_COLUMNS = ("l_extendedprice", "l_shipdate")
TEN_COLUMNS = (
    "l_orderkey",
    "l_partkey",
    "l_suppkey",
    "l_quantity",
    "l_extendedprice",
    "l_discount",
    "l_tax",
    "l_returnflag",
    "l_shipdate",
    "l_shipmode",
)


def drain(rows: DataFrame) -> None:
    """Read all rows into nothing."""
    rows.write.format("noop").mode("overwrite").save()


def medians(runs: int, *sides: Callable[[], object]) -> list[float]:
    """Seconds of sides that take turns."""
    for side in sides:
        side()
    seconds = [[timed(side)[0] for side in sides] for _ in range(runs)]
    return [statistics.median(column) for column in zip(*seconds, strict=True)]


def decode(uri: str, columns: list[str], *, convert: bool) -> None:
    """Read with Lance alone, batch by batch."""
    for fragment in lance.dataset(uri).get_fragments():
        for batch in fragment.scanner(columns=columns, batch_size=65_536).to_batches():
            if convert:
                for_spark(batch, narrow_decimals=True)


def show(name: str, value: float) -> None:
    """One line of the result."""
    print(f"{name:<52} {value:>8.2f}", flush=True)


def main() -> None:
    """Measure, and print."""
    arguments = parse_arguments(__doc__, runs=7)
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        folder = Path(name)
        parquet = (arguments.data or generate(arguments.scale, folder)) / "lineitem.parquet"
        uri = str(folder / "lineitem.lance")
        every = write_lance(parquet, Path(uri), fragments=FRAGMENTS).schema.names
        conf = {"spark.driver.memory": "3g"}
        target = Target("dev", name, spark_master=f"local[{arguments.cores}]", spark_conf=conf)
        spark = start_session(target, "benchmark")
        ours, theirs = lancestat.read_table(spark, uri), spark.read.parquet(str(parquet))
        runs = 1 if arguments.tiny else arguments.runs
        for label, columns in (
            ("16 columns", every),
            ("10 columns", TEN_COLUMNS),
            ("2 columns", TWO_COLUMNS),
        ):
            lance_rows, parquet_rows = ours.select(*columns), theirs.select(*columns)
            read, spark_read = medians(
                runs, lambda rows=lance_rows: drain(rows), lambda rows=parquet_rows: drain(rows)
            )
            show(f"{label}, Lance, s", read)
            show(f"{label}, Parquet, s", spark_read)
            show(f"{label}, Lance / Parquet", read / spark_read)
            names = list(columns)
            decoded, converted = medians(
                runs,
                lambda names=names: decode(uri, names, convert=False),
                lambda names=names: decode(uri, names, convert=True),
            )
            show(f"{label}, Lance alone in one process, s", decoded)
            show(f"{label}, and made what Spark takes, s", converted)
        nothing = ours.where("l_orderkey < 0").select(*TWO_COLUMNS)
        show("no row of 2 columns, s", medians(runs, lambda: drain(nothing))[0])
        fragments, small = SMALL_FRAGMENTS[arguments.tiny], str(folder / "small.lance")
        rows = lance.dataset(uri).head(fragments * SMALL_ROWS)
        table = lance.write_dataset(rows, small, max_rows_per_file=SMALL_ROWS)
        read_small, read_alone = medians(
            min(runs, 3),
            lambda: drain(lancestat.read_table(spark, small).select(*TEN_COLUMNS)),
            lambda: deque(table.scanner(columns=list(TEN_COLUMNS)).to_batches(), maxlen=0),
        )
        show(f"{fragments:,} small fragments, 10 columns, s", read_small)
        show("the same by one scan of Lance alone, s", read_alone)
        spark.stop()


if __name__ == "__main__":
    main()
