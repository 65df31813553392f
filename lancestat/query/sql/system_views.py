"""Views in a schema of lancestat's own, for the time of a query."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lancestat.spark.start import VIEW_SCHEMA_SETTING
from lancestat.spark.versions import arrow_frame

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def view_schema(spark: SparkSession) -> str:
    """Return the schema of a session's views: `lancestat`, unless others started Spark."""
    return str(spark.conf.get(VIEW_SCHEMA_SETTING))


def mentioned_views(text: str, schema: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the views of `names` that a query may read: none unless it names the schema.

    A query that names the schema and no view, as one that lists views, may read all.
    """
    if not re.search(rf"(?<!\w){re.escape(schema)}(?!\w)", text, re.IGNORECASE):
        return ()
    lowered = text.lower()
    return tuple(name for name in names if name.lower() in lowered) or tuple(names)


@contextmanager
def system_views(spark: SparkSession, tables: Mapping[str, pa.Table]) -> Iterator[None]:
    """Make views of Arrow tables by their names, and drop them in the end."""
    made = []
    try:
        for name, rows in tables.items():
            arrow_frame(spark, rows).createOrReplaceGlobalTempView(name)
            made.append(name)
        yield
    finally:
        for name in made:
            spark.catalog.dropGlobalTempView(name)
