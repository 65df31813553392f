"""The vector index of a column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import lance


def index_metric(dataset: lance.LanceDataset, column: str) -> str | None:
    """The metric of a column's vector index, as `l2`, `cosine` or `dot`; None without an index."""
    for index in dataset.describe_indices():
        if index.field_names == [column] and "VectorIndex" in index.type_url:
            details = index.details
            metric = details.get("metric_type") if isinstance(details, Mapping) else None
            return str(metric).lower() if metric else None
    return None
