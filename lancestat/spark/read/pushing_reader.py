"""The reader of `spark.read.format("lancestat")` with `pushdown`, for a Spark that has filters."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.datasource import Filter as SparkFilter

from lancestat.spark.read.source import LanceReader
from lancestat.spark.read.source_filters import pushed_filters


class PushingReader(LanceReader):
    """Leaves to Spark only the filters that Lance does not apply exactly."""

    def pushFilters(  # noqa: N802 - Spark's name
        self, filters: list[SparkFilter]
    ) -> Iterable[SparkFilter]:
        """Push filters down, and return those that stay with Spark."""
        fields = {field.name: field for field in self._table().fields}
        self._filter, left = pushed_filters(filters, fields)
        return left
