"""TPC-H as Lance tables of several fragments each, and two with vectors: `python load.py`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from catalogue import PARTS_PER_INQUIRY, inquiries, part_names

# Lance remarks on every table that it creates.
os.environ.setdefault("LANCE_LOG", "error")

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

WAREHOUSE = Path(__file__).parent / "warehouse"
SCALE = Decimal("0.1")

# How many fragments each table gets, as if it had been written in so many portions.
FRAGMENTS = {
    "region": 2,
    "nation": 2,
    "supplier": 2,
    "customer": 3,
    "part": 4,
    "partsupp": 8,
    "orders": 6,
    "lineitem": 12,
}
# Those that are made from the table of parts.
VECTOR_FRAGMENTS = {"part_name": 4, "inquiry": 2}


@dataclass(frozen=True)
class Loaded:
    """A table of the warehouse; `is_new` is whether it was written just now."""

    name: str
    rows: int
    fragments: int
    size_bytes: int
    is_new: bool


def load(warehouse: Path, scale: Decimal = SCALE) -> list[Loaded]:
    """Write the tables that the warehouse lacks; the same scale always gives the same rows."""
    lacking = [name for name in FRAGMENTS if not table_path(warehouse, name).exists()]
    if lacking:
        with tempfile.TemporaryDirectory() as folder:
            generate(Path(folder), scale, "--tables", ",".join(lacking))
            for name in lacking:
                write(Path(folder) / f"{name}.parquet", table_path(warehouse, name), name)
    lacking += [name for name in VECTOR_FRAGMENTS if not table_path(warehouse, name).exists()]
    for name in VECTOR_FRAGMENTS:
        if name in lacking:
            write_vectors(warehouse, name)
    names = [*FRAGMENTS, *VECTOR_FRAGMENTS]
    return [look(warehouse, name, is_new=name in lacking) for name in names]


def empty(warehouse: Path) -> None:
    """Remove the tables that `load` writes and what is joined of them, and nothing else."""
    for name in (*FRAGMENTS, *VECTOR_FRAGMENTS, "suggestion"):
        shutil.rmtree(table_path(warehouse, name), ignore_errors=True)


def table_path(warehouse: Path, name: str) -> Path:
    """Return the path of a table."""
    return warehouse / f"{name}.lance"


def generate(folder: Path, scale: Decimal, *options: str) -> None:
    """Let tpchgen-cli write Parquet files into a folder."""
    command = [generator(), "parquet", "--scale-factor", str(scale), "--output-dir", str(folder)]
    made = subprocess.run([*command, "--quiet", *options], capture_output=True, text=True)
    if made.returncode:
        output = (made.stderr or made.stdout).strip().splitlines() or ["no reason given"]
        sys.exit(f"tpchgen-cli failed: {output[-1]}")


def generator() -> str:
    """The tpchgen-cli of this environment, else of the PATH."""
    beside = Path(sys.executable).parent
    path = shutil.which("tpchgen-cli", path=beside) or shutil.which("tpchgen-cli")
    if path is None:
        sys.exit("tpchgen-cli is missing: pip install tpchgen-cli")
    return path


def write(parquet: Path, path: Path, name: str) -> None:
    """One Parquet file to one Lance table."""
    import lance
    import pyarrow.parquet as pq

    file = pq.ParquetFile(parquet)
    lance.write_dataset(
        read(file), path, max_rows_per_file=max(1, ceil(file.metadata.num_rows / FRAGMENTS[name]))
    )


def write_vectors(warehouse: Path, name: str) -> None:
    """One of the tables that are made from others."""
    import lance

    if name == "part_name":
        rows = part_names(opened(warehouse, "part"))
    else:
        names = opened(warehouse, "part_name")
        rows = inquiries(names, names.count_rows() // PARTS_PER_INQUIRY)
    most = max(1, ceil(len(rows) / VECTOR_FRAGMENTS[name]))
    lance.write_dataset(rows, table_path(warehouse, name), max_rows_per_file=most)


def opened(warehouse: Path, name: str) -> lance.LanceDataset:
    """A table of the warehouse as it is now."""
    import lance

    return lance.dataset(table_path(warehouse, name))


def read(file: pa.parquet.ParquetFile) -> pa.RecordBatchReader:
    """The rows of a Parquet file, with plain strings where it has views, which Lance lacks."""
    import pyarrow as pa

    schema = pa.schema(
        field.with_type(pa.string()) if field.type == pa.string_view() else field
        for field in file.schema_arrow.remove_metadata()
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in file.iter_batches():
            yield batch.cast(schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def next_lineitems(scale: Decimal, folder: Path) -> pa.RecordBatchReader:
    """The positions of the orders that would come next: one more row for every hundred."""
    import pyarrow.parquet as pq

    last = ("--parts", "101", "--part", "101")
    generate(folder, scale * Decimal("1.01"), "--tables", "lineitem", *last)
    return read(pq.ParquetFile(folder / "lineitem" / "lineitem.101.parquet"))


def look(warehouse: Path, name: str, *, is_new: bool) -> Loaded:
    """Return the rows, fragments and bytes of a table of the warehouse."""
    dataset = opened(warehouse, name)
    size = sum(
        file.file_size_bytes or 0
        for fragment in dataset.get_fragments()
        for file in fragment.metadata.files
    )
    return Loaded(name, dataset.count_rows(), len(dataset.get_fragments()), size, is_new)


def main() -> None:
    """Load the tables, and list them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=Decimal, default=SCALE, help="0.1 is about 100 MB")
    parser.add_argument("--fresh", action="store_true", help="write every table anew")
    arguments = parser.parse_args()
    if arguments.fresh:
        empty(WAREHOUSE)
    for table in load(WAREHOUSE, arguments.scale):
        origin = "written" if table.is_new else "was there"
        rows = f"{table.rows:>11,} rows  {table.fragments:>2} fragments"
        sys.stdout.write(f"{table.name:<9}  {rows}  {origin}\n")


if __name__ == "__main__":
    main()
