"""Fingerprints: the identity of a column's content in one fragment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lancestat.lake.snapshot import Field, Snapshot

# 16 bytes: digest of the data files and overlays that hold the fields, and of the deletion file.
Fingerprint = bytes


def field_key(field: Field) -> str:
    """A field's identity inside a fingerprint: `<field id>:<Spark type>`."""
    return f"{field.id}:{field.spark_type}"


@dataclass(frozen=True, slots=True)
class ColumnGroup:
    """Columns of one fragment that live in the same data files and so share a fingerprint.

    `fields` holds field keys; equal sets are one object, so that planning 100,000 fragments stays small.
    """

    fragment_id: int
    fingerprint: Fingerprint
    fields: frozenset[str]


def column_groups(snapshot: Snapshot, fields: Sequence[Field]) -> list[ColumnGroup]:
    """The content of `fields` in every fragment of the snapshot, in fragment order."""
    raise NotImplementedError


def content_digest(groups: Sequence[ColumnGroup]) -> str:
    """One digest over all groups, whatever their order and fragment ids: equal means equal rows in those columns."""
    raise NotImplementedError
