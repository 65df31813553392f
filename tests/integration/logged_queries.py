"""Sessions that log their events, and run queries on two attached tables.

    python logged_queries.py '[[FOLDER, SETTING=VALUE...]...]'

Each is stopped but the last, which is left to the end of the process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import lancestat

QUERIES = (
    "select c_nation, count(*) from orders join customers on o_cust = c_id "
    "where o_cat = 7 and o_sub = 22 group by c_nation",
    "select o_cat, o_sub, count(*) from orders where o_day < 100 group by o_cat, o_sub",
    "select o_id from orders where o_note = 'TOP-SECRET' or o_note like '%TOP-SECRET%'",
    "select count(*) from orders where o_cust in (select c_id from customers where c_nation > 3)",
)


def run(folder: Path, *settings: str) -> SparkSession:
    """Run the queries in a session of their own."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for setting in settings:
        name, _, value = setting.partition("=")
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    lancestat.Project.load(folder).attach(spark)
    for query in QUERIES:
        spark.sql(query).collect()
    orders = lancestat.read_table(spark, str(folder / "orders.lance"))
    orders.filter("o_sub in (3, 4)").groupBy("o_day").count().collect()
    spark.range(3).write.mode("overwrite").parquet(str(folder / "other.parquet"))
    spark.read.parquet(str(folder / "other.parquet")).filter("id = 1").collect()
    return spark


def main(sessions: list[list[str]]) -> None:
    """Run the queries in one session after the other."""
    spark = None
    for folder, *settings in sessions:
        if spark is not None:
            spark.stop()
        spark = run(Path(folder), *settings)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
