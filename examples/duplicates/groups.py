"""Print groups of products that are the same, and check them: `python groups.py`."""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import islice

from products import FOLDER, PRODUCT

SAME = FOLDER / ".lancestat" / "same_product.lance"


def main() -> None:
    """Print the largest groups, and how many of those that were planted are found whole."""
    import lance

    members = lance.dataset(str(SAME)).to_table().to_pylist()
    groups = defaultdict(list)
    for member in members:
        groups[member["group_id"]].append(member)
    for group in islice(sorted(groups.values(), key=len, reverse=True), 2):
        for member in group:
            kept = "kept" if member["is_kept"] else f"{member['_distance']:.3f}"
            sys.stdout.write(f"  {kept:>6}  {member['id']:>6}  {member['name']}\n")
        sys.stdout.write("\n")
    planted = defaultdict(set)
    for product in lance.dataset(str(PRODUCT)).to_table(columns=["id", "original"]).to_pylist():
        planted[product["original"]].add(product["id"])
    wanted = [ids for ids in planted.values() if len(ids) > 1]
    found = [{member["id"] for member in group} for group in groups.values()]
    sys.stdout.write(
        f"  {len(found):,} groups; of the {len(wanted):,} that were planted, "
        f"{sum(ids in found for ids in wanted):,} are found whole\n"
    )


if __name__ == "__main__":
    main()
