"""Print the neighbours of some inquiries: `python suggestions.py 1 2 3`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from load import WAREHOUSE, opened


def suggestions(warehouse: Path, keys: Iterable[int]) -> Iterator[list[str]]:
    """Return inquiry, rank, distance and part as cells; an inquiry's text is shown once."""
    wanted = ", ".join(map(str, keys))
    rows = opened(warehouse, "suggestion").to_table(filter=f"i_inquirykey in ({wanted})")
    for row in rows.to_pylist():
        if row["_rank"] is None:
            yield [row["i_text"] or "(a photograph)", "", "", ""]
        else:
            asked = row["i_text"] if row["_rank"] == 1 else ""
            yield [asked, str(row["_rank"]), f"{row['_distance']:.3f}", row["p_name"]]


def main() -> None:
    """Print the suggestions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("key", type=int, nargs="+", help="an inquiry's")
    head = ["i_text", "_rank", "_distance", "p_name"]
    rows = [head, *suggestions(WAREHOUSE, parser.parse_args().key)]
    width = max(len(row[0]) for row in rows)
    for asked, rank, distance, name in rows:
        line = f"  {asked:<{width}}  {rank:>5}  {distance:>9}  {name}"
        sys.stdout.write(line.rstrip() + "\n")


if __name__ == "__main__":
    main()
