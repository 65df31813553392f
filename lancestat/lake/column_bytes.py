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
    """Bytes on disk by field id, nested fields by themselves, from the footers of all data files.

    Opens every data file, so it is not for planning; `width.estimated_bytes` is.

    Raises:
        LakeError: When a data file cannot be opened.
    """
    with readable(dataset.uri):
        return {field.id: field.bytes_on_disk for field in dataset.stats.data_stats().fields}


# What a value of variable length takes at least, in bytes.
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
    wanted = fields if isinstance(fields, frozenset) else frozenset(fields)
    return _widths(_Identity(all_fields)).estimate(fragment, wanted)


def fixed_width(arrow_type: pa.DataType) -> float | None:
    """Bytes of one value of a fixed-width type (a boolean: 0.125), or None when lengths vary."""
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
class _Mix:
    """Some columns of a file: the summed width of those that have one; how many others."""

    fixed: float = 0.0
    variable: int = 0


class _Widths:
    """The columns of one table; remembers the mix of each file layout."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._keys = {field.id: field_key(field) for field in fields}
        self._widths = {field.id: fixed_width(field.type) for field in fields}
        # Keyed by the identity of the field ids, shared by like files; the value keeps them alive.
        self._mixes: dict[tuple[int, frozenset[str]], tuple[_Mix, _Mix, tuple[int, ...]]] = {}

    def estimate(self, fragment: Fragment, wanted: frozenset[str]) -> int:
        files = (*fragment.files, *(overlay.file for overlay in fragment.overlays))
        return round(sum(self._file(file, wanted, fragment.physical_rows) for file in files))

    def _file(self, file: DataFile, wanted: frozenset[str], rows: int) -> float:
        part, whole = self._mix(file.field_ids, wanted)
        if part == whole and file.size_bytes is not None:
            return file.size_bytes
        fixed, each = rows * whole.fixed, rows * _SHORT_VALUE
        if file.size_bytes is None:
            return rows * part.fixed + each * part.variable
        if whole.variable:
            each = max(each, (file.size_bytes - fixed) / whole.variable)
        total = fixed + each * whole.variable
        return (
            file.size_bytes * (rows * part.fixed + each * part.variable) / total if total else 0.0
        )

    def _mix(self, field_ids: tuple[int, ...], wanted: frozenset[str]) -> tuple[_Mix, _Mix]:
        place = (id(field_ids), wanted)
        found = self._mixes.get(place)
        if found is None:
            ours = [each for each in field_ids if self._keys.get(each) in wanted]
            found = self._mixes[place] = (self._sum(ours), self._sum(field_ids), field_ids)
        return found[0], found[1]

    def _sum(self, field_ids: Collection[int]) -> _Mix:
        # Negative ids mark columns that a newer file replaces; nested leaves have no width here.
        widths = [self._widths.get(each) for each in field_ids if each >= 0]
        fixed = [width for width in widths if width is not None]
        return _Mix(sum(fixed), len(widths) - len(fixed))


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
