"""What a Lance dataset is at one version, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from lancestat.lake.pin import Pin, manifest_identity

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Field:
    """A top-level column; `id` is Lance's field id, `spark_type` its Spark catalog string.

    `spark_type` is None where Spark has no such type (decimal256, unions).
    """

    id: int
    name: str
    type: pa.DataType
    nullable: bool
    spark_type: str | None


@dataclass(frozen=True, slots=True)
class DataFile:
    """One immutable file of a fragment: its path and the ids of all fields (nested too) inside."""

    path: str
    field_ids: tuple[int, ...]
    size_bytes: int | None
    base_id: int | None


@dataclass(frozen=True, slots=True)
class Overlay:
    """New values for some cells of some fields of a fragment; `coverage` digests the cells."""

    file: DataFile
    coverage: str


@dataclass(frozen=True, slots=True)
class Fragment:
    """A horizontal slice of the table. `deletion_file` identifies the deletion file, if any."""

    id: int
    physical_rows: int
    deleted_rows: int
    files: tuple[DataFile, ...]
    deletion_file: str | None
    overlays: tuple[Overlay, ...]

    @property
    def rows(self) -> int:
        """Live rows."""
        return self.physical_rows - self.deleted_rows

    @property
    def size_bytes(self) -> int:
        """Bytes on disk of all data files whose size the manifest knows."""
        return sum(file.size_bytes or 0 for file in self.files)


@dataclass(frozen=True)
class Snapshot:
    """A dataset at one version. `fields` are the top-level columns in schema order."""

    uri: str
    version: int
    fields: tuple[Field, ...]
    fragments: tuple[Fragment, ...]
    config: Mapping[str, str]
    committed_at: datetime | None

    @cached_property
    def pin(self) -> Pin:
        """What every later opening of the dataset is checked against."""
        newest = max(self.fragments, key=lambda fragment: fragment.id, default=None)
        return Pin(self.uri, self.version, manifest_identity(self.committed_at, newest))

    @cached_property
    def rows(self) -> int:
        """Live rows of the whole table."""
        return sum(fragment.rows for fragment in self.fragments)

    @cached_property
    def size_bytes(self) -> int:
        """Bytes on disk of all data files."""
        return sum(fragment.size_bytes for fragment in self.fragments)

    def field(self, name: str) -> Field | None:
        """The column of that exact name."""
        return next((field for field in self.fields if field.name == name), None)
