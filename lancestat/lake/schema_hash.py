"""The hash that ties published statistics to the schema they were made for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from lancestat.lake.snapshot import Field


def schema_hash(fields: Iterable[Field]) -> str:
    """SHA-256, as 64 hex digits, of every field's name, Spark type and nullability, in order.

    The connector for Spark computes the same and refuses statistics whose hash differs. A table
    that has a column without a Spark type it cannot read at all; such a column enters the hash
    under its Arrow type, so that the hash still follows every change of schema.
    """
    digest = hashlib.sha256()
    for field in fields:
        type = field.spark_type or f"unsupported:{field.type}"
        digest.update(field.name.encode() + b"\0" + type.encode() + b"\0")
        digest.update(b"\1\0" if field.nullable else b"\0\0")
    return digest.hexdigest()
