"""Columns of unusual types, which results have without anyone selecting them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.joins.local import opened_locally
from tests.runs.world import scan_locally, write_project

ROWS = 12
BYTES = [None if number % 5 == 4 else b"x" * number for number in range(ROWS)]
MARKED = {"lance-encoding:blob": "true"}
# By name the storage format, the column, and its values.
COLUMNS: dict[str, tuple[str, pa.Field, Any]] = {
    "blob": ("2.1", pa.field("c", pa.large_binary(), metadata=MARKED), pa.array(BYTES)),
    "blob of format 2.2": ("2.2", lance.blob_field("c"), lance.blob_array(BYTES)),
    "tensor": (
        "2.1",
        pa.field("c", pa.fixed_shape_tensor(pa.float32(), [2, 2])),
        pa.FixedShapeTensorArray.from_numpy_ndarray(
            np.arange(4 * ROWS, dtype=np.float32).reshape(ROWS, 2, 2)
        ),
    ),
}


def joined(name: str, form: str) -> dict[str, Any]:
    side = {"table": "t", "vector": "v"}
    more = {"join": "left_outer", "max_distance": 1.0, "k": 2, "min_right_rows": 0}
    return {"name": name, "left": side, "right": side, **more, "output": {form: f"{name}.{form}"}}


@pytest.mark.parametrize("is_stable", [False, True])
@pytest.mark.parametrize("name", COLUMNS)
def test_all_columns_are_copied(
    name: str, is_stable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, field, values = COLUMNS[name]
    scan_locally(
        monkeypatch,
        open_join=lambda work, on_stage: opened_locally(str(tmp_path / "s"), work, on_stage),
    )
    # Pairs, and from the last one on rows without a vector.
    points = [[float(number // 2 * 10), 0.0] if number < 9 else None for number in range(ROWS)]
    vectors = pa.array(points, pa.list_(pa.float32(), 2))
    if field.type == pa.large_binary():
        values = values.cast(pa.large_binary())
    schema = pa.schema([("id", pa.int64()), field, ("v", vectors.type)])
    dataset = lance.write_dataset(
        pa.table([pa.array(range(ROWS)), values, vectors], schema=schema),
        str(tmp_path / "t.lance"),
        data_storage_version=version,
        max_rows_per_file=5,
        enable_stable_row_ids=is_stable,
    )
    dataset.delete("id = 1")
    same = {"name": "same", "table": "t", "vector": "v", "max_distance": 1.0}
    target = {"state": "state", "scratch": "s", "spark": {"master": "local[2]"}}
    project = write_project(
        tmp_path,
        {"name": "t", "uri": "t.lance"},
        target=target,
        knn_joins=[joined("near", "lance"), joined("files", "parquet")],
        duplicates=[{**same, "output": {"lance": "same.lance"}, "pairs": {"lance": "p.lance"}}],
    )
    project.run(select="near files same").raise_for_status()
    scanned = lance.dataset(str(tmp_path / "t.lance")).scanner(blob_handling="all_binary")
    expected = {row["id"]: repr(row["c"]) for row in scanned.to_table().to_pylist()}
    near = lance.dataset(str(tmp_path / "near.lance")).to_table()
    groups = lance.dataset(str(tmp_path / "same.lance")).to_table()
    pairs = lance.dataset(str(tmp_path / "p.lance")).to_table()
    files = parquet.read_table(tmp_path / "files.parquet")
    assert (len(near), len(files), len(groups), len(pairs)) == (17, 17, 6, 3)
    for result in (near, files, groups, pairs):
        for row in result.to_pylist():
            assert repr(row["c"]) == expected[row["id"]]
            if row.get("id_right") is not None:
                assert repr(row["c_right"]) == expected[row["id_right"]]
