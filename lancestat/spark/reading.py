"""Reading Lance tables in a Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lancestat.errors import LancestatError
from lancestat.read.opening import open_table
from lancestat.read.table import ReadTable
from lancestat.spark.relation import Relation, relate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(
    spark: SparkSession,
    uri: str,
    *,
    version: int | None = None,
    tag: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Any Lance table as a DataFrame that reports the statistics of its manifest.

    The DataFrame stays at the version that it is made of; call again to see later ones. Statistics
    are used while `spark.sql.cbo.enabled` is true; sizes and row counts always.

    Args:
        spark: A classic session.
        uri: A path or an object-store URI.
        version: A manifest version, the latest when None.
        tag: A tag of the dataset, instead of a version.
        storage_options: How to reach it; they travel inside tasks only.
        options: Of its scans: `cbo.column.stats.enabled` and `cbo.column.stats.allow.stale`, `true`
            or `false`, which the session's `spark.lance.*` configuration overrides.

    Raises:
        UsageError: both a version and a tag, or a version that cannot be one.
        LakeError: the dataset, the version or the tag cannot be opened.
        RunError: the session cannot be used.
    """
    table = open_table(uri, version=version, tag=tag, storage_options=storage_options)
    [rows] = relate(spark, [Relation(table, options=options or {})])
    return rows


@dataclass(frozen=True, slots=True)
class Attachment:
    """The temporary views that were made, and why those of other tables were not."""

    views: tuple[str, ...]
    failed: Mapping[str, LancestatError] = field(default_factory=dict)


def attach_views(
    spark: SparkSession, tables: Mapping[str, ReadTable | LancestatError]
) -> Attachment:
    """Make a temporary view of each table that could be opened, under its name."""
    opened = {name: table for name, table in tables.items() if isinstance(table, ReadTable)}
    failed = {name: error for name, error in tables.items() if isinstance(error, LancestatError)}
    relate(spark, [Relation(table, view=name) for name, table in opened.items()])
    return Attachment(tuple(opened), failed)
