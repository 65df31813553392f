"""Write the 24 tables of TPC-DS as Lance datasets in `warehouse`: `python tables.py`."""

from __future__ import annotations

import argparse
from math import ceil

import duckdb
import lance
from queries import load

FRAGMENT_ROWS, MOST_FRAGMENTS = 20_000, 8


def main() -> None:
    """Generate the tables, and write each in a few fragments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.2, help="1 is about 1 GB of text")
    scale = parser.parse_args().scale
    with duckdb.connect() as database:
        load(database)
        database.execute(f"call dsdgen(sf={scale})")
        for (name,) in database.execute("select table_name from duckdb_tables()").fetchall():
            rows = database.execute(f"from {name}").arrow()
            fragments = min(MOST_FRAGMENTS, ceil(len(rows) / FRAGMENT_ROWS))
            size = ceil(len(rows) / fragments)
            lance.write_dataset(rows, f"warehouse/{name}.lance", max_rows_per_file=size)


if __name__ == "__main__":
    main()
