"""A state in memory, which answers as the stored one does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from lancestat.lake.fingerprint import Fingerprint
from lancestat.state.partials import block_keys, join_fingerprints, only_stored
from lancestat.state.retention import expired_rows
from lancestat.state.values import (
    BlockKey,
    Decoded,
    NodeRun,
    PartialIndex,
    Record,
    RunRecord,
    StoredPartials,
    SummaryBlock,
    TableSummary,
    covered_keys,
    plain_key,
)


class MemoryState:
    """A `StateWriter` that forgets everything with its process."""

    def __init__(self) -> None:
        self._partials: dict[str, list[StoredPartials[bytes]]] = {}
        self._runs: list[RunRecord] = []
        self._running: dict[str, RunRecord] = {}
        self._summaries: dict[str, TableSummary] = {}
        self._blocks: dict[str, dict[BlockKey, SummaryBlock[bytes]]] = {}

    def records(self, kind: str, decode: Callable[[str], Record]) -> Mapping[str, Record]:
        return {
            node.record.key: decode(node.record.json)
            for run in reversed(self._newest())
            for node in run.nodes
            if node.record is not None and node.kind == kind
        }

    def digests(self) -> Mapping[str, str]:
        return {node.node: node.digest for run in reversed(self._newest()) for node in run.nodes}

    def runs(self, limit: int) -> list[RunRecord]:
        return self._newest()[:limit]

    def running(self) -> list[RunRecord]:
        return list(self._running.values())[::-1]

    def outcomes(self, target: str, limit: int) -> Mapping[str, tuple[RunRecord, ...]]:
        return self._outcomes(target, limit, lambda node: True)

    def recorded(self, kind: str, target: str, limit: int) -> Mapping[str, tuple[RunRecord, ...]]:
        def is_wanted(node: NodeRun) -> bool:
            return node.kind == kind and node.record is not None

        return self._outcomes(target, limit, is_wanted)

    def _outcomes(
        self, target: str, limit: int, is_wanted: Callable[[NodeRun], bool]
    ) -> Mapping[str, tuple[RunRecord, ...]]:
        by_node: dict[str, list[RunRecord]] = {}
        for run in (run for run in self._newest() if run.target == target):
            for node in filter(is_wanted, run.nodes):
                by_node.setdefault(node.node, []).append(replace(run, nodes=(node,)))
        return {node: tuple(outcomes[:limit]) for node, outcomes in by_node.items()}

    def partial_index(self, table: str) -> PartialIndex:
        fields: dict[tuple[Fingerprint, ...], frozenset[str]] = {}
        for entry in self._partials.get(table, ()):
            known = fields.get(entry.fingerprints, frozenset())
            fields[entry.fingerprints] = known | covered_keys(frozenset(entry.partials))
        return PartialIndex(
            {key[0]: keys for key, keys in fields.items() if len(key) == 1},
            {key: keys for key, keys in fields.items() if len(key) > 1},
        )

    def partial_indexes(self, tables: Collection[str]) -> Mapping[str, PartialIndex]:
        return {table: self.partial_index(table) for table in tables}

    def partials(
        self,
        table: str,
        keys: Mapping[tuple[Fingerprint, ...], frozenset[str]],
        decode: Callable[[bytes], Decoded],
    ) -> Iterator[StoredPartials[Decoded]]:
        """Yield the partials of some keys, each field of a set of fingerprints once."""
        missing = {tuple(sorted(key)): set(fields) for key, fields in keys.items()}
        for entry in list(self._partials.get(table, ())):
            fields = missing.get(entry.fingerprints, set())
            partials = {
                asked: decode(partial)
                for field, partial in entry.partials.items()
                for asked in {field, plain_key(field)} & fields
            }
            fields.difference_update(partials)
            if partials:
                yield StoredPartials(entry.fingerprints, partials)

    def add_partials(self, table: str, stored: Iterable[StoredPartials[bytes]]) -> None:
        """Keep partials; none of them when the iterable fails."""
        added = [
            StoredPartials(tuple(sorted(entry.fingerprints)), dict(entry.partials))
            for entry in stored
            if entry.fingerprints and entry.partials
        ]
        self._partials.setdefault(table, []).extend(added)

    def begin_run(self, run: RunRecord) -> None:
        self._running[run.run_id] = run

    def add_run(self, run: RunRecord) -> None:
        self._running.pop(run.run_id, None)
        self._runs.append(run)

    def summary(self, table: str) -> TableSummary | None:
        summary = self._summaries.get(table)
        return None if summary is None else only_stored(summary, self._blocks.get(table, {}))

    def summary_blocks(
        self, table: str, keys: Collection[BlockKey], decode: Callable[[bytes], Decoded]
    ) -> Iterator[SummaryBlock[Decoded]]:
        blocks = self._blocks.get(table, {})
        for key in set(keys) & blocks.keys():
            yield SummaryBlock(key, tuple(map(decode, blocks[key].partials)))

    def add_summary(
        self, table: str, summary: TableSummary, blocks: Iterable[SummaryBlock[bytes]]
    ) -> None:
        """Keep a summary; nothing of it when the iterable fails."""
        added = {block.key: block for block in blocks}
        self._blocks.setdefault(table, {}).update(added)
        self._summaries[table] = summary

    def expire(self, live: Mapping[str, frozenset[Fingerprint]]) -> None:
        """Drop what the tables in `live` need no more."""
        for table in live.keys() & self._summaries.keys():
            needed = frozenset(block_keys(self._summaries[table]))
            self._blocks[table] = {
                key: block for key, block in self._blocks[table].items() if key in needed
            }
        for table, fingerprints in live.items():
            entries = self._partials.get(table, [])
            rows = [
                (number, join_fingerprints(entry.fingerprints))
                for number, entry in enumerate(entries)
            ]
            dropped = set(expired_rows(rows[::-1], fingerprints, _FieldsOf(entries)))
            self._partials[table] = [
                entry for number, entry in enumerate(entries) if number not in dropped
            ]

    def _newest(self) -> list[RunRecord]:
        return self._runs[::-1]


class _FieldsOf:
    def __init__(self, entries: list[StoredPartials[bytes]]) -> None:
        self._entries = entries

    def __call__(self, ids: Sequence[int]) -> dict[int, frozenset[str]]:
        return {number: covered_keys(frozenset(self._entries[number].partials)) for number in ids}
