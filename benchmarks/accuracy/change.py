"""Changes of Lance tables that statistics do not know of yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow.parquet as pq

from accuracy.datasets import SEED, Dataset

# Each commit appends so many of a table's rows, copies of the newest tenth: all together 4.8 %.
COMMITS, SHARE, NEWEST = 20, 0.0024, 0.1
# Smaller tables stay as they are.
LEAST_ROWS = 1_000


def change(dataset: Dataset, tables: Path, folder: Path) -> Dataset:
    """Commit to the Lance tables in `tables`; return the dataset that they are then.

    Its Parquet files are written to a folder.
    """
    folder.mkdir()
    random = np.random.default_rng(SEED)
    for name in dataset.columns:
        table = lance.dataset(tables / f"{name}.lance")
        rows = table.count_rows()
        if rows >= LEAST_ROWS:
            for _ in range(COMMITS):
                first = int(rows * (1 - NEWEST))
                places = np.sort(random.choice(rows - first, int(rows * SHARE), replace=False))
                table.insert(table.take((first + places).tolist()))
        pq.write_table(table.to_table(), folder / f"{name}.parquet")
    return replace(dataset, folder=folder)
