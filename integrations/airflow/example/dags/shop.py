"""A shop whose Lance tables Airflow writes, and whose statistics lancestat keeps."""

from datetime import datetime, timedelta
from pathlib import Path

from airflow.sdk import Asset, dag, task

from airflow_provider_lancestat import LancestatTaskGroup, ProjectConfig

FOLDER = Path(__file__).parents[1]
ORDERS = Asset((FOLDER / "warehouse" / "orders.lance").as_uri())
PRODUCTS = Asset((FOLDER / "warehouse" / "products.lance").as_uri())


@dag(schedule="@daily", start_date=datetime(2026, 1, 1), catchup=False)
def shop_tables() -> None:
    @task(outlets=[ORDERS])
    def orders() -> None:
        """Append a thousand orders."""
        # What a task alone needs is imported there: Airflow reads this file again and again.
        import lance
        import pyarrow as pa

        rows = pa.table(
            {
                "order_id": pa.array(range(1000), pa.int64()),
                "product_id": pa.array([number % 50 for number in range(1000)], pa.int64()),
                "quantity": pa.array([number % 4 + 1 for number in range(1000)], pa.int32()),
            }
        )
        lance.write_dataset(rows, str(FOLDER / "warehouse" / "orders.lance"), mode="append")

    @task(outlets=[PRODUCTS])
    def products() -> None:
        """Write fifty products with vectors, of which some are alike."""
        import lance
        import numpy as np
        import pyarrow as pa

        vectors = np.random.default_rng(1).normal(size=(50, 8)).astype(np.float32)
        rows = pa.table(
            {
                "product_id": pa.array(range(50), pa.int64()),
                "embedding": pa.FixedSizeListArray.from_arrays(vectors.ravel(), 8),
            }
        )
        lance.write_dataset(rows, str(FOLDER / "warehouse" / "products.lance"), mode="overwrite")

    orders()
    products()


@dag(schedule=[ORDERS, PRODUCTS])
def shop_statistics() -> None:
    LancestatTaskGroup(
        group_id="statistics",
        project_config=ProjectConfig(FOLDER / "statistics"),
        default_args={"retries": 1, "retry_delay": timedelta(minutes=5)},
    )


shop_tables()
shop_statistics()
