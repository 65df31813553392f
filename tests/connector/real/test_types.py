"""The connector's types of columns, and its schema hash, are those that lancestat publishes by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pytest

from lancestat.lake.fingerprint import schema_hash
from lancestat.lake.open import snapshot
from lancestat.lake.snapshot import connector_type
from tests.connector.every_type import (
    EVERY_COLUMN,
    NOT_ALWAYS_OPENED,
    NOT_OPENED,
    NOT_READ,
    joined,
    write,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def opened(session: SparkSession, name: str) -> Any:
    """Return the schema, in Java, of a table as the connector's catalog has it."""
    return session.table(f"lance.{name}")._jdf.schema()


@pytest.mark.parametrize("name", sorted(EVERY_COLUMN))
def test_a_column_has_the_connectors_type(
    session: SparkSession, warehouse: Path, name: str
) -> None:
    dataset = write(EVERY_COLUMN[name], warehouse / f"{name}.lance")
    [field] = snapshot(dataset).fields
    if name in NOT_OPENED | NOT_ALWAYS_OPENED:
        try:
            schema = opened(session, name)
        except Exception as refused:
            # One has no Spark type for lancestat either, and the others only for the connector.
            assert "UNSUPPORTED" in str(refused) or "NEGATIVE_SCALE" in str(refused)
            return
        assert name in NOT_ALWAYS_OPENED
    else:
        schema = opened(session, name)
    [theirs] = schema.fields()
    if name in NOT_READ:
        # Its type is that of the indices; it has no way to read them.
        assert theirs.dataType().catalogString() != connector_type(field.type)
        with pytest.raises(Exception, match="ArrowSchema conversion error"):
            session.table(f"lance.{name}").collect()
        return
    assert theirs.dataType().catalogString() == connector_type(field.type)
    assert theirs.nullable() == field.nullable


def test_the_schema_hash_of_all_columns_is_the_connectors(
    session: SparkSession, warehouse: Path, has_statistics: bool
) -> None:
    without = NOT_OPENED | NOT_ALWAYS_OPENED | NOT_READ
    dataset = write(joined(sorted(EVERY_COLUMN.keys() - without)), warehouse / "hashed.lance")
    fields = snapshot(dataset).fields
    schema = opened(session, "hashed")
    assert [column.dataType().catalogString() for column in schema.fields()] == [
        connector_type(field.type) for field in fields
    ]
    if has_statistics:
        keys: Any = session._jvm.org.lance.spark.read.LanceStatsKeys  # type: ignore[union-attr]
        assert keys.computeSchemaHash(schema) == schema_hash(fields)


def test_columns_of_the_older_storage_format_have_the_connectors_types(
    session: SparkSession, warehouse: Path
) -> None:
    """Blobs are other columns there."""
    path = warehouse / "older.lance"
    lance.write_dataset(joined(["blob_by_metadata", "json"]), path, data_storage_version="2.1")
    fields = snapshot(lance.dataset(path)).fields
    assert [column.dataType().catalogString() for column in opened(session, "older").fields()] == [
        connector_type(field.type) for field in fields
    ]
