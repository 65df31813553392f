"""Which partials are stored, read without touching a sketch."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from lancestat.lake.fingerprint import Fingerprint
from lancestat.state.keys import answered
from lancestat.state.partial_rows import split_fields, split_fingerprints
from lancestat.state.values import PartialIndex, PartialKey

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

_BATCH_ROWS = 4096
_NAMED_TABLES = 64


def table_filter(table: str) -> str:
    """The predicate for one table's rows."""
    quoted = table.replace("'", "''")
    return f"`table` = '{quoted}'"


def tables_filter(tables: Collection[str]) -> str | None:
    """The predicate for the rows of some tables; None when they are too many to be named."""
    if len(tables) > _NAMED_TABLES:
        return None
    return " OR ".join(map(table_filter, tables))


def read_index(dataset: LanceDataset, table: str) -> PartialIndex:
    """The index of one table; about a second for 100,000 rows of 200 fields."""
    return read_indexes(dataset, (table,))[table]


def read_indexes(dataset: LanceDataset, tables: Collection[str]) -> dict[str, PartialIndex]:
    """The indexes of some tables, in one pass over all rows."""
    scanner = dataset.scanner(
        columns=["table", "fingerprints", "fields"],
        filter=tables_filter(tables),
        batch_size=_BATCH_ROWS,
        batch_readahead=4,
    )
    sets = FieldSets()
    found = {table: _Index(sets) for table in tables}
    for batch in scanner.to_batches():
        names = batch.column("table").dictionary_encode()
        indexes = [found.get(name) for name in names.dictionary.to_pylist()]
        places, stored = names.indices.to_pylist(), batch.column("fingerprints").to_pylist()
        for place, key, fields in zip(places, stored, sets.of(batch.column("fields")), strict=True):
            index = indexes[place]
            if index is not None:
                index.add(key, fields)
    return {table: index.to_value() for table, index in found.items()}


class _Index:
    """An index while it is read."""

    def __init__(self, sets: FieldSets) -> None:
        self._sets = sets
        self._singles: dict[Fingerprint, frozenset[str]] = {}
        self._groups: dict[tuple[Fingerprint, ...], frozenset[str]] = {}

    def add(self, stored: bytes, fields: frozenset[str]) -> None:
        fingerprints = split_fingerprints(stored)
        if len(fingerprints) == 1:
            known = self._singles.get(stored)
            self._singles[stored] = fields if known is None else self._sets.union(known, fields)
        elif fingerprints:
            known = self._groups.get(fingerprints)
            merged = fields if known is None else self._sets.union(known, fields)
            self._groups[fingerprints] = merged

    def to_value(self) -> PartialIndex:
        groups = tuple(PartialKey(key, fields) for key, fields in self._groups.items())
        return PartialIndex(self._singles, groups)


class FieldSets:
    """Interned sets of the keys that stored rows answer for: equal sets are one object."""

    def __init__(self) -> None:
        self._by_text: dict[str, frozenset[str]] = {}
        self._by_value: dict[frozenset[str], frozenset[str]] = {}
        self._keys: dict[str, str] = {}

    def of(self, texts: pa.Array) -> Iterator[frozenset[str]]:
        """The sets that a column of stored fields answers for, row by row."""
        encoded = texts.dictionary_encode()
        distinct = [self._parse(text) for text in encoded.dictionary.to_pylist()]
        return map(distinct.__getitem__, encoded.indices.to_pylist())

    def union(self, left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
        """The interned union of two interned sets."""
        if left is right:
            return left
        return self._intern(left | right)

    def _parse(self, text: str) -> frozenset[str]:
        known = self._by_text.get(text)
        if known is None:
            keys = self._keys
            stored = answered(frozenset(split_fields(text)))
            known = self._intern(frozenset(keys.setdefault(key, key) for key in stored))
            self._by_text[text] = known
        return known

    def _intern(self, fields: frozenset[str]) -> frozenset[str]:
        return self._by_value.setdefault(fields, fields)
