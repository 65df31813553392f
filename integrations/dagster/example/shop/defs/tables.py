"""The assets that write the Lance tables. By their keys, the statistics follow them."""

from pathlib import Path

import dagster as dg
import lance
import numpy as np
import pyarrow as pa

WAREHOUSE = Path(__file__).parents[2] / "warehouse"


@dg.asset(key=["lance", "orders"], kinds={"lance"})
def orders() -> None:
    """A thousand orders; each run appends them again."""
    rows = pa.table(
        {
            "order_id": pa.array(range(1000), pa.int64()),
            "product_id": pa.array([number % 50 for number in range(1000)], pa.int64()),
            "quantity": pa.array([number % 4 + 1 for number in range(1000)], pa.int32()),
        }
    )
    lance.write_dataset(rows, str(WAREHOUSE / "orders.lance"), mode="append")


@dg.asset(key=["lance", "products"], kinds={"lance"})
def products() -> None:
    """Fifty products with vectors, of which some are alike."""
    vectors = np.random.default_rng(1).normal(size=(50, 8)).astype(np.float32)
    rows = pa.table(
        {
            "product_id": pa.array(range(50), pa.int64()),
            "embedding": pa.FixedSizeListArray.from_arrays(vectors.ravel(), 8),
        }
    )
    lance.write_dataset(rows, str(WAREHOUSE / "products.lance"), mode="overwrite")
