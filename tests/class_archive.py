"""Write an archive of the classes that Spark's JVM loads, with which it starts in half the time.

    python -m tests.class_archive FILE

JVMs use it that find `-XX:SharedArchiveFile=FILE` in their options, and do without it when theirs
is another class path.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import lance
import pyarrow.parquet as pq
from pyspark import SparkContext

import lancestat
from lancestat.spark.session.start import start_session
from lancestat.spec.model import Target

_SECONDS = 120


def write(archive: Path, folder: Path) -> None:
    """Start a session, have it do a bit of everything, and let its JVM write the archive."""
    whole = folder / "spark.jsa"
    os.environ["JDK_JAVA_OPTIONS"] = f"-XX:ArchiveClassesAtExit={whole}"
    spark = start_session(Target("archive", str(folder), spark_master="local[1]"), "archive")
    rows = spark.range(100).selectExpr("id", "id % 7 as k", "cast(id as string) as name")
    rows.write.parquet(str(folder / "rows"))
    parquet = spark.read.parquet(str(folder / "rows"))
    joined = parquet.join(rows, "k").groupBy("k").count()
    assert joined.count() == 7
    assert spark.sparkContext.parallelize(range(8), 2).sum() == 28
    table = str(folder / "rows.lance")
    lance.write_dataset(pq.read_table(folder / "rows"), table)
    assert lancestat.read_table(spark, table).where("k = 3").count() == 14
    gateway = SparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_SECONDS)
    shutil.move(whole, archive)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="lancestat-archive-") as name:
        write(Path(sys.argv[1]).absolute(), Path(name))
