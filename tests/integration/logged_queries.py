"""A session that logs its events, and runs queries on two attached tables."""

from __future__ import annotations

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


def main(folder: Path, *settings: str) -> None:
    """`stop=false` is no setting of Spark: the session is left to the end of the process."""
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
    if "stop=false" not in settings:
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
