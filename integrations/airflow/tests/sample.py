"""A small lancestat project over real Lance tables."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

PROJECT = """
name: shop
vars: {warehouse: warehouse}
targets:
  dev:
    spark: {master: "local[1]", conf: {spark.sql.shuffle.partitions: 1}}
    storage_options: {access_key: "{{ env_var('SHOP_KEY', 'none') }}"}
"""
SPECS = """
tables:
  - name: orders
    uri: "{{ var('warehouse') }}/orders.lance"
    description: One row per order.
    owner: shop@example.com
    tags: [nightly]
    freshness: {warn_after: 26h, error_after: 50h}
  - name: products
    uri: "{{ var('warehouse') }}/products.lance"
    owner: The shop

knn_joins:
  - name: similar_products
    left: {table: products, vector: embedding, select: [product_id]}
    right: {table: products, vector: embedding, select: [product_id]}
    k: 3
    mode: approx
    approx: {recall: 0.9}
    output: {lance: "{{ var('warehouse') }}/similar_products.lance"}
"""


def write_shop(folder: Path) -> None:
    (folder / "specs").mkdir()
    (folder / "lancestat_project.yml").write_text(PROJECT)
    (folder / "specs" / "shop.yml").write_text(SPECS)
    write_orders(folder)
    write_products(folder)


def write_orders(folder: Path, mode: str = "overwrite") -> None:
    rows = pa.table({"order_id": range(100), "product_id": [n % 50 for n in range(100)]})
    lance.write_dataset(rows, str(folder / "warehouse" / "orders.lance"), mode=mode)


def write_products(folder: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(50, 8)).astype(np.float32)
    rows = pa.table(
        {
            "product_id": range(50),
            "embedding": pa.FixedSizeListArray.from_arrays(vectors.ravel(), 8),
        }
    )
    lance.write_dataset(rows, str(folder / "warehouse" / "products.lance"), mode="overwrite")
