"""Print groups of products that are the same: `python clusters.py`."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable

from products import FOLDER, PRODUCT

DUPLICATE = FOLDER / ".lancestat" / "duplicate.lance"


def components(pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the connected components of a graph, the largest first, each in order.

    Of two products that are each like a third one, all three are in one component.

    Args:
        pairs: The edges. Memory grows with the number of their ends, and not with all products.
    """
    parents: dict[int, int] = {}

    def root(node: int) -> int:
        parents.setdefault(node, node)
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node

    for left, right in pairs:
        parents[root(right)] = root(left)
    groups = defaultdict(list)
    for node in sorted(parents):
        groups[root(node)].append(node)
    return sorted(groups.values(), key=lambda group: (-len(group), group))


def main() -> None:
    """Print the largest groups, and how many there are of each size."""
    import lance

    pairs = lance.dataset(str(DUPLICATE)).to_table(columns=["id", "id_right"])
    groups = components(zip(pairs["id"].to_pylist(), pairs["id_right"].to_pylist(), strict=True))
    products = lance.dataset(str(PRODUCT)).to_table(columns=["id", "name", "original"]).to_pylist()
    by_id = {product["id"]: product for product in products}
    for group in groups[:2]:
        for id in group:
            sys.stdout.write(f"  {id:>6}  {by_id[id]['name']}\n")
        sys.stdout.write("\n")
    planted = defaultdict(list)
    for id in sorted(by_id):
        planted[by_id[id]["original"]].append(id)
    wanted = {tuple(group) for group in planted.values() if len(group) > 1}
    found = {tuple(group) for group in groups}
    sys.stdout.write(
        f"  {len(pairs):,} pairs make {len(groups):,} groups; of the {len(wanted):,} that were "
        f"planted, {len(wanted & found):,} are found whole\n"
    )


if __name__ == "__main__":
    main()
