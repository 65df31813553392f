"""Makes the archive of Spark's classes.

    python -m lancestat.query.warm_up FILE

starts a session, does a bit of everything in it, and has its JVM write the archive to the file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lancestat.errors import ClassArchiveNotMade
from lancestat.lake.files import remove, temporary_folder
from lancestat.query.read.relation import read_table
from lancestat.spark.jvm import cause_in, find_java, keep_archive, new_archive, user_sharing_option
from lancestat.spark.session import start_session
from lancestat.spec.model import Target

_SECONDS = 1800


def make_class_archive() -> Path:
    """Make the archive for the installed Java and Spark in the user's cache; return its path.

    Raises:
        ClassArchiveNotMade: It cannot be written, or Java makes none.
        JavaMissing, JavaTooOld: See `find_java`.
    """
    named = user_sharing_option({})
    if named is not None:
        raise ClassArchiveNotMade(
            f"{named} says how Java shares classes, and lancestat leaves that as it is",
            hint=f"take these options out of {named}, or go on without an archive of lancestat",
        )
    java = find_java()
    draft = new_archive(java)
    try:
        trained = subprocess.run(
            [sys.executable, "-m", __name__, str(draft)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
        if trained.returncode != 0 or not draft.is_file():
            raise ClassArchiveNotMade(f"Java made no archive: {cause_in(trained.stdout)}")
        return keep_archive(java, draft)
    except subprocess.TimeoutExpired:
        raise ClassArchiveNotMade(f"Java made no archive within {_SECONDS} seconds") from None
    finally:
        remove(draft)


def _train(archive: Path, folder: Path) -> None:
    import lance
    import pyarrow as pa
    from pyspark import SparkContext

    # Java warns of each class that it leaves out.
    options = f'"-XX:ArchiveClassesAtExit={archive}" -Xlog:disable -Xlog:all=error:stderr'
    os.environ["SPARK_SUBMIT_OPTS"] = f"{options} {os.environ.get('SPARK_SUBMIT_OPTS', '')}"
    conf = {"spark.sql.warehouse.dir": str(folder / "warehouse")}
    target = Target("warm-up", str(folder), spark_master="local[1]", spark_conf=conf)
    spark = start_session(target, "lancestat debug --warm-up", quiet=False, is_short_lived=True)
    rows = spark.range(100).selectExpr("id", "id % 7 as k", "cast(id as string) as name")
    rows.write.parquet(str(folder / "rows"))
    parquet = spark.read.parquet(str(folder / "rows"))
    joined = parquet.join(rows, "k").groupBy("k").count()
    assert joined.count() == 7
    assert spark.sparkContext.parallelize(range(8), 2).sum() == 28
    table = str(folder / "rows.lance")
    lance.write_dataset(pa.table({"id": range(100), "k": [n % 7 for n in range(100)]}), table)
    assert read_table(spark, table).where("k = 3").count() == 14
    gateway = SparkContext._gateway
    assert gateway is not None and gateway.jvm is not None
    class_path = gateway.jvm.System.getProperty("java.class.path")
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_SECONDS)
    flags = [f"-XX:SharedArchiveFile={archive}", "-Xshare:on", "-XX:+VerifySharedSpaces"]
    subprocess.run([find_java().path, *flags, "-cp", class_path, "-version"], check=True)


if __name__ == "__main__":
    with temporary_folder() as scratch:
        _train(Path(sys.argv[1]), scratch)
