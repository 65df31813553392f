"""Statistics of tables in a catalog: `make demo-catalog`, or `python demo.py`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# What generates TPC-H, and what prints a page.
sys.path.insert(0, str(FOLDER.parent / "project"))

from load import generate, generator, read  # noqa: E402
from page import Page, lancestat  # noqa: E402

MADE = FOLDER / ".lancestat"
SCALE = Decimal("0.01")
TABLES = {"orders": "sales", "nation": "geography", "region": "geography"}


def main() -> None:
    """Serve a catalog, fill it, and walk through it from an empty state."""
    from lance.namespace import RestAdapter

    generator()
    lancestat()
    shutil.rmtree(MADE, ignore_errors=True)
    lake = MADE / "lake"
    lake.mkdir(parents=True)
    try:
        with RestAdapter("dir", {"root": str(lake)}, host="127.0.0.1", port=0) as server:
            uri = f"http://127.0.0.1:{server.port}"
            os.environ["LAKE_URI"] = uri
            walk(Page(FOLDER), uri)
    except KeyboardInterrupt:
        sys.exit(130)


def walk(page: Page, uri: str) -> None:
    """From three tables of a catalog to their statistics, and through one change."""
    page.title("lancestat: tables where they live, in a catalog")
    page.step("Three tables in a REST catalog")
    fill(uri)
    page.paragraph(
        f"""
        They are written through the catalog at {uri}, which Lance ships. specs/lake.yml declares
        lake.sales.orders by its name; those of the namespace geography are found.
        """
    )
    page.command("list", "--discover")
    page.step("What is there to do?")
    page.command("plan")
    page.step("Do it")
    page.command("run")
    page.command("show", "orders")
    page.step("Orders arrive, by the catalog as well")
    append(uri)
    page.command("plan")
    page.command("run")
    page.step("And again")
    page.command("plan")


def fill(uri: str) -> None:
    """Write tables of TPC-H through the catalog."""
    import lance
    import lance_namespace
    import pyarrow.parquet as pq

    client = lance_namespace.connect("rest", {"uri": uri})
    for namespace in dict.fromkeys(TABLES.values()):
        client.create_namespace(lance_namespace.CreateNamespaceRequest(id=[namespace]))
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), SCALE, "--tables", ",".join(TABLES))
        for table, namespace in TABLES.items():
            lance.write_dataset(
                read(pq.ParquetFile(Path(folder) / f"{table}.parquet")),
                namespace_client=client,
                table_id=[namespace, table],
                mode="create",
            )


def append(uri: str) -> None:
    """Append a hundred orders."""
    import lance
    import lance_namespace

    client, table = lance_namespace.connect("rest", {"uri": uri}), ["sales", "orders"]
    orders = lance.dataset(namespace_client=client, table_id=table)
    rows = orders.take(list(range(100)))
    lance.write_dataset(rows, namespace_client=client, table_id=table, mode="append")


if __name__ == "__main__":
    main()
