"""Statistics of a table's fragments from the state, group by group."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from functools import cached_property

from lancestat.errors import StateError
from lancestat.lake.fingerprint import Fingerprint, column_groups, field_key
from lancestat.lake.snapshot import Field, Snapshot
from lancestat.query.pruning import (
    ColumnBounds,
    FragmentStatistics,
    GroupColumn,
    Mask,
    NoFragmentStatistics,
)
from lancestat.state.partials import block_digest, contents, group_digest, slices
from lancestat.state.values import BlockKey, StateReader, TableSummary, quantile_key
from lancestat.tables.statistics.column_type import ColumnType, column_type
from lancestat.tables.statistics.partial import ColumnPartial
from lancestat.tables.stored import read_blocks

_log = logging.getLogger("lancestat.read")


def load_groups(state: StateReader, identity: str, snapshot: Snapshot) -> FragmentStatistics:
    """Return the state's statistics of the fragments of `snapshot`; columns are read on demand.

    Only partials of content that the snapshot has are used. An unreachable state has none.
    """
    try:
        summary = state.summary(identity)
    except StateError as error:
        _log.warning("fragments are pruned without the state: %s", error.message)
        return NoFragmentStatistics()
    if summary is None or not summary.groups or not snapshot.fragments:
        return NoFragmentStatistics()
    return GroupedStatistics(state, identity, snapshot, summary)


# Partials take twice their memory while they are laid out.
_COLUMNS_AT_ONCE = 16


class GroupedStatistics(FragmentStatistics):
    """Statistics by the groups of a stored summary; a query costs groups, not files.

    Columns are loaded once, and take up to 4 kB per group.
    """

    def __init__(
        self, state: StateReader, identity: str, snapshot: Snapshot, summary: TableSummary
    ) -> None:
        self._state = state
        self._identity = identity
        self._snapshot = snapshot
        self._summary = summary
        super().__init__(snapshot, summary.groups)
        self._columns: dict[str, GroupColumn | None] = {}
        self._whole: dict[str, ColumnPartial | None] = {}
        self._lock = threading.Lock()
        self._fields = {field.name: field for field in snapshot.fields}

    def load(self, columns: Iterable[str]) -> None:
        with self._lock:
            self._load(columns)

    def _load(self, columns: Iterable[str]) -> None:
        missing = dict.fromkeys(name for name in columns if name not in self._columns)
        types = {
            name: type
            for name in missing
            if name in self._fields and (type := column_type(self._fields[name].type))
        }
        self._columns.update(dict.fromkeys(missing))
        known = {name: self._known(self._fields[name]) for name in types}
        try:
            names = [name for name, held in known.items() if held]
            for start in range(0, len(names), _COLUMNS_AT_ONCE):
                some = names[start : start + _COLUMNS_AT_ONCE]
                loaded = self._read({name: stored for name in some if (stored := known[name])})
                for name, partials in loaded.items():
                    self._columns[name] = self._column(types[name], partials)
        except StateError as error:
            _log.warning("columns are not known by group: %s", error.message)

    def _column(self, type: ColumnType, partials: Sequence[ColumnPartial | None]) -> GroupColumn:
        """Lay a column's partials out by group, those with as many rows as in the manifest."""
        whole, rows = self._is_whole.tolist(), self._rows.tolist()
        sound = [
            partial if partial is not None and is_whole and partial.rows == count else None
            for partial, is_whole, count in zip([*partials, None], whole, rows, strict=True)
        ]
        return GroupColumn.of(sound, type)

    def partial(self, column: str) -> ColumnPartial | None:
        if column not in self._whole:
            self._whole[column] = super().partial(column)
        return self._whole[column]

    def partial_of(self, column: str, groups: Mask) -> ColumnPartial | None:
        self.load([column])
        group_column = self._columns.get(column)
        if group_column is None or not group_column.bounds.known[groups].all():
            return None
        return group_column.merged(groups)

    def bounds(self, column: str) -> ColumnBounds | None:
        group_column = self._columns.get(column)
        return group_column.bounds if group_column else None

    def _known(self, field: Field) -> tuple[str, list[bool]] | None:
        """Return the key of a column's summary, and which groups have the snapshot's content."""
        exact_key = field_key(field)
        stored = self._summary.contents
        key = next((key for key in (quantile_key(exact_key), exact_key) if key in stored), None)
        if key is None:
            return None
        pin = self._snapshot.pin
        if (self._summary.version, self._summary.manifest) == (pin.version, pin.manifest):
            return key, [bool(digest) for digest in stored[key]]
        now = self._digests(exact_key)
        return key, [bool(a) and a == b for a, b in zip(stored[key], now, strict=True)]

    def _digests(self, key: str) -> tuple[bytes | None, ...]:
        fingerprints = self._contents[key]
        if id(fingerprints) not in self._digested:
            self._digested[id(fingerprints)] = tuple(
                group_digest(group, fingerprints) for group in self._summary.groups
            )
        return self._digested[id(fingerprints)]

    @cached_property
    def _digested(self) -> dict[int, tuple[bytes | None, ...]]:
        return {}

    @cached_property
    def _contents(self) -> dict[str, dict[int, Fingerprint]]:
        fields = [field for field in self._snapshot.fields if column_type(field.type)]
        fingerprints = contents(column_groups(self._snapshot, fields))
        return {key: by_fragment for keys, by_fragment in fingerprints.items() for key in keys}

    def _read(
        self, known: dict[str, tuple[str, list[bool]]]
    ) -> dict[str, list[ColumnPartial | None]]:
        groups_by_block: dict[BlockKey, list[tuple[str, slice]]] = {}
        for name, (key, is_known) in known.items():
            digests = self._summary.contents[key]
            for groups in slices(self._summary.blocks):
                if any(is_known[groups]):
                    stored = BlockKey(key, block_digest(digests[groups]))
                    groups_by_block.setdefault(stored, []).append((name, groups))
        partials: dict[str, list[ColumnPartial | None]] = {
            name: [None] * len(self._summary.groups) for name in known
        }
        for block in read_blocks(self._state, self._identity, list(groups_by_block)):
            for name, groups in groups_by_block[block.key]:
                is_known = known[name][1][groups]
                if len(block.partials) == len(is_known):
                    partials[name][groups] = [
                        partial if known else None
                        for partial, known in zip(block.partials, is_known, strict=True)
                    ]
        return partials
