"""Reading Lance tables in a Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lancestat.errors import LancestatError, UsageError, did_you_mean
from lancestat.read.opening import open_table
from lancestat.read.table import ReadTable
from lancestat.spark.connector import ABSENT, inner_table
from lancestat.spark.relation import Relation, relate
from lancestat.spark.session import require_classic
from lancestat.spec.model import Reader

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
    reader: str = Reader.LANCESTAT.value,
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
        reader: What reads the rows: `lancestat`, or `connector`, the Lance connector for Spark.

    Raises:
        UsageError: both a version and a tag, a version that cannot be one, or an unknown reader.
        LakeError: the dataset, the version or the tag cannot be opened.
        RunError: the session or the connector cannot be used.
    """
    chosen = _reader(reader)
    require_classic(spark)
    table = open_table(uri, version=version, tag=tag, storage_options=storage_options)
    inner = _inner(spark, table, chosen)
    [rows] = relate(spark, [Relation(table, options=options or {}, inner=inner)])
    return rows


@dataclass(frozen=True, slots=True)
class Attachment:
    """The temporary views that were made, and why those of other tables were not."""

    views: tuple[str, ...]
    failed: Mapping[str, LancestatError] = field(default_factory=dict)


def attach_views(
    spark: SparkSession,
    tables: Mapping[str, ReadTable | LancestatError],
    reader: Reader = Reader.LANCESTAT,
) -> Attachment:
    """Make a temporary view of each table that could be opened, under its name.

    Raises:
        RunError: the session cannot be used, or the connector is not there (LS540).
    """
    require_classic(spark)
    relations: dict[str, Relation] = {}
    failed: dict[str, LancestatError] = {}
    for name, table in tables.items():
        try:
            if isinstance(table, LancestatError):
                raise table
            relations[name] = Relation(table, view=name, inner=_inner(spark, table, reader))
        except LancestatError as error:
            if error.code == ABSENT:
                raise
            failed[name] = error
    relate(spark, list(relations.values()))
    return Attachment(tuple(relations), failed)


def _inner(spark: SparkSession, table: ReadTable, reader: Reader) -> Any:
    if reader is Reader.LANCESTAT:
        return None
    return inner_table(spark, table.snapshot, table.storage_options)


def _reader(name: str) -> Reader:
    try:
        return Reader(name)
    except ValueError:
        valid = [each.value for each in Reader]
        raise UsageError(
            "LS406",
            f"unknown reader '{name}', expected {' or '.join(valid)}",
            hint=did_you_mean(name, valid),
        ) from None
