from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat.lake.snapshot import index_metric


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    values = np.random.default_rng(0).random((300, 4), dtype=np.float32)
    rows = pa.table(
        {"id": pa.array(range(300)), "v": pa.array(values.tolist(), pa.list_(pa.float32(), 4))}
    )
    path: Path = tmp_path_factory.mktemp("index") / "t.lance"
    lance.write_dataset(rows, str(path))
    return str(path)


def test_without_an_index_there_is_no_metric(uri: str) -> None:
    dataset = lance.dataset(uri)
    dataset.create_scalar_index("id", "BTREE", replace=True)
    assert index_metric(dataset, "id") is None
    assert index_metric(dataset, "v") is None


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_the_metric_of_a_vector_index(uri: str, metric: str) -> None:
    dataset = lance.dataset(uri)
    dataset.create_index("v", "IVF_FLAT", num_partitions=1, metric=metric, replace=True)
    assert index_metric(lance.dataset(uri), "v") == metric
