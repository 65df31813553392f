"""Run twenty queries of TPC-DS in one session to which the project is attached."""

from __future__ import annotations

import argparse
import re
import sys
import time

import duckdb

import lancestat

NUMBERS = (1, 3, 7, 13, 17, 19, 25, 26, 29, 42, 46, 48, 50, 65, 72, 79, 85, 91, 93, 95)


def main() -> None:
    """Print the seconds that queries take, or the text of one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("numbers", type=int, nargs="*", default=NUMBERS)
    parser.add_argument("--text", action="store_true", help="print the queries, and run none")
    given = parser.parse_args()
    queries = texts()
    if given.text:
        sys.stdout.writelines(f"{queries[number]}\n" for number in given.numbers)
        return
    spark = lancestat.Project.load(".").spark()
    begin = time.perf_counter()
    for number in given.numbers:
        start = time.perf_counter()
        rows = spark.sql(queries[number]).collect()
        seconds = time.perf_counter() - start
        sys.stdout.write(f"query {number:2}  {len(rows):3} rows  {seconds:5.1f} s\n")
    sys.stdout.write(f"together            {time.perf_counter() - begin:5.1f} s\n")
    spark.stop()


def texts() -> dict[int, str]:
    """Return the queries by number, with names in the quotes that Spark knows."""
    with duckdb.connect() as database:
        load(database)
        queries = database.execute("from tpcds_queries()").fetchall()
    return {number: re.sub(r'"([^"]+)"', r"`\1`", text).rstrip(";\n ") for number, text in queries}


def load(database: duckdb.DuckDBPyConnection) -> None:
    """Load TPC-DS from the wheel, where later versions of DuckDB would download it."""
    database.execute("set autoinstall_known_extensions = false")
    try:
        database.execute("load tpcds")
    except duckdb.Error:
        sys.exit(f"DuckDB {duckdb.__version__} has no TPC-DS: pip install duckdb==1.1.3")


if __name__ == "__main__":
    main()
