"""Near-duplicates of a table: `make demo-duplicates`, or `python demo.py`."""

from __future__ import annotations

import shutil
import sys

from products import FOLDER, PRODUCT, products

# What prints a page; `products` puts its folder on the path.
from page import Page, lancestat  # isort: skip

PRODUCTS, COPIES = 20_000, 600


def main() -> None:
    """Write products, and find groups of those that are the same."""
    lancestat()
    shutil.rmtree(FOLDER / ".lancestat", ignore_errors=True)
    try:
        walk(Page(FOLDER))
    except KeyboardInterrupt:
        sys.exit(130)


def walk(page: Page) -> None:
    """From products to groups of them that are the same."""
    import lance

    page.title("lancestat: near-duplicates")
    page.step("Products, some of them entered twice")
    table = products(PRODUCTS, COPIES)
    lance.write_dataset(table, str(PRODUCT))
    page.paragraph(
        f"""
        {PRODUCTS:,} products and {COPIES} copies of some of them with a mistake in the name, each
        with a vector that is made of the letters of its name. The first ones:
        """
    )
    page.grid([[str(row["id"]), row["name"]] for row in table.slice(0, 4).to_pylist()])
    page.step("What is there to do?")
    page.command("plan")
    page.step("Find the groups")
    page.command("run")
    page.step("Look at them")
    page.script("groups.py")
    page.step("And again")
    page.command("plan")


if __name__ == "__main__":
    main()
