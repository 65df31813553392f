"""TPC-H tables, generated and written as Lance, for several benchmarks."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
from measure import spark_parser

# The scale of smoke runs.
TINY = "0.001"
# What is asked for beside the statistics of columns.
GROUPS = (
    ("l_orderkey", "l_linenumber"),
    ("l_partkey", "l_suppkey"),
    ("l_returnflag", "l_linestatus", "l_shipmode"),
)
COMMON_VALUES = (
    "l_orderkey",
    "l_partkey",
    "l_suppkey",
    "l_quantity",
    "l_discount",
    "l_shipdate",
    "l_shipmode",
    "l_shipinstruct",
)


def generate(scale: str, folder: Path, tables: Sequence[str] = ("lineitem",)) -> Path:
    """Tables as `<table>.parquet` in a folder; returns the folder."""
    beside = Path(sys.executable).with_name("tpchgen-cli")
    command = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if command is None:
        sys.exit("tpchgen-cli is not installed: pip install tpchgen-cli, or give --data")
    options = ["-s", scale, "--tables", ",".join(tables), "--output-dir", str(folder)]
    subprocess.run([command, "parquet", *options], check=True, stdout=subprocess.DEVNULL)
    return folder


def write_lance(parquet: Path, uri: Path, *, fragments: int) -> lance.LanceDataset:
    """The rows of a Parquet file in Lance, in fragments of equal size."""
    file = pq.ParquetFile(parquet)
    # Lance needs string where the generator writes string_view.
    schema = pa.schema(
        field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field
        for field in file.schema_arrow.remove_metadata()
    )
    return lance.write_dataset(
        (batch.cast(schema) for batch in file.iter_batches()),
        str(uri),
        schema=schema,
        max_rows_per_file=-(-file.metadata.num_rows // fragments),
        mode="create",
    )


def parse_arguments(doc: str, *, runs: int) -> argparse.Namespace:
    """The command line of a benchmark that reads lineitem on Spark; `--tiny` sets the scale."""
    arguments = make_parser(doc, runs=runs).parse_args()
    if arguments.tiny:
        arguments.scale = TINY
    return arguments


def make_parser(doc: str, *, runs: int) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark over TPC-H tables on Spark."""
    parser = spark_parser(doc, runs=runs)
    parser.add_argument("--scale", default="1", help="TPC-H scale factor")
    parser.add_argument("--data", type=Path, help="a folder that holds <table>.parquet")
    return parser
