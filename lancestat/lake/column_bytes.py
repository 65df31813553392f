"""The bytes on disk that each column takes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from lancestat.lake.fingerprint import field_key
from lancestat.lake.open import readable
from lancestat.lake.snapshot import DataFile, Field, Fragment

if TYPE_CHECKING:
    import lance
    import pyarrow as pa


def column_bytes(dataset: lance.LanceDataset) -> dict[int, int]:
    """Return bytes on disk by field id, also of nested fields, from the footers of all data files.

    Opens every data file, so it is not for planning; `estimated_bytes` is.

    Raises:
        LakeError: When a data file cannot be opened.
    """
    with readable(dataset.uri):
        return {field.id: field.bytes_on_disk for field in dataset.stats.data_stats().fields}


# The least bytes of a value of variable length.
_SHORT_VALUE = 16.0


def estimated_bytes(
    fragment: Fragment, fields: Collection[str], all_fields: Sequence[Field]
) -> int:
    """Estimate the bytes on disk that reading some columns of a fragment touches.

    A file's size, which the manifest knows, is shared out over its columns: fixed-width columns
    weigh their decoded width, and columns of variable width weigh what is then left, but at least
    16 bytes a value. A file of unknown size counts as not compressed. Overlays count as files.

    Args:
        fragment: The fragment to be read.
        fields: Field keys (`fingerprint.field_key`) of the columns to be read.
        all_fields: All columns of the snapshot; pass the same object for every fragment.
    """
    field_keys = fields if isinstance(fields, frozenset) else frozenset(fields)
    return _widths(_Identity(all_fields)).estimate(fragment, field_keys)


def fixed_width(arrow_type: pa.DataType) -> float | None:
    """Return the bytes of one value of a type (a boolean: 0.125), None when lengths vary."""
    import pyarrow as pa

    if isinstance(arrow_type, pa.BaseExtensionType):
        return fixed_width(arrow_type.storage_type)
    if pa.types.is_fixed_size_list(arrow_type):
        inner = fixed_width(arrow_type.value_type)
        return None if inner is None else inner * arrow_type.list_size
    if pa.types.is_dictionary(arrow_type):
        return fixed_width(arrow_type.index_type)
    if pa.types.is_null(arrow_type):
        return 0.0
    types = pa.types
    fixed = (types.is_primitive, types.is_decimal, types.is_fixed_size_binary)
    return arrow_type.bit_width / 8 if any(holds(arrow_type) for holds in fixed) else None


@dataclass(frozen=True, slots=True)
class _WidthSum:
    """Some columns of a file: the summed width of fixed-width ones, and the number of others."""

    fixed: float = 0.0
    variable: int = 0


class _Widths:
    """The columns of one table; caches the sums of each file layout."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._keys = {field.id: field_key(field) for field in fields}
        self._widths = {field.id: fixed_width(field.type) for field in fields}
        # Keyed by the identity of the field ids, shared by like files; the value keeps them alive.
        self._cached_sums: dict[
            tuple[int, frozenset[str]], tuple[_WidthSum, _WidthSum, tuple[int, ...]]
        ] = {}

    def estimate(self, fragment: Fragment, field_keys: frozenset[str]) -> int:
        files = (*fragment.files, *(overlay.file for overlay in fragment.overlays))
        return round(sum(self._file(file, field_keys, fragment.physical_rows) for file in files))

    def _file(self, file: DataFile, field_keys: frozenset[str], rows: int) -> float:
        part, whole = self._width_sums(file.field_ids, field_keys)
        if part == whole and file.size_bytes is not None:
            return file.size_bytes
        fixed, per_column = rows * whole.fixed, rows * _SHORT_VALUE
        if file.size_bytes is None:
            return rows * part.fixed + per_column * part.variable
        if whole.variable:
            per_column = max(per_column, (file.size_bytes - fixed) / whole.variable)
        total = fixed + per_column * whole.variable
        return (
            file.size_bytes * (rows * part.fixed + per_column * part.variable) / total
            if total
            else 0.0
        )

    def _width_sums(
        self, field_ids: tuple[int, ...], field_keys: frozenset[str]
    ) -> tuple[_WidthSum, _WidthSum]:
        key = (id(field_ids), field_keys)
        sums = self._cached_sums.get(key)
        if sums is None:
            ours = [field_id for field_id in field_ids if self._keys.get(field_id) in field_keys]
            sums = self._cached_sums[key] = (self._sum(ours), self._sum(field_ids), field_ids)
        return sums[0], sums[1]

    def _sum(self, field_ids: Collection[int]) -> _WidthSum:
        # Negative ids mark columns that a newer file replaces; nested leaves have no width here.
        widths = [self._widths.get(field_id) for field_id in field_ids if field_id >= 0]
        fixed = [width for width in widths if width is not None]
        return _WidthSum(sum(fixed), len(widths) - len(fixed))


@dataclass(frozen=True, slots=True, eq=False)
class _Identity:
    """Fields compared as one object: hashing hundreds of them per fragment would cost most."""

    fields: Sequence[Field]

    def __hash__(self) -> int:
        return id(self.fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.fields is self.fields


@lru_cache(maxsize=8)
def _widths(identity: _Identity) -> _Widths:
    return _Widths(identity.fields)
