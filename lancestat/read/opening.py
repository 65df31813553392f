"""Opens tables for reading: by URI, or as a project declares them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from lancestat.errors import LakeError, LancestatError, StateError
from lancestat.lake.observe import observe_snapshots, snapshot
from lancestat.lake.open import open_pinned
from lancestat.lake.pin import Pin
from lancestat.lake.snapshot import Snapshot
from lancestat.lake.time_travel import observe_at
from lancestat.plan.judgement import TableStatistics
from lancestat.plan.observe import Observer
from lancestat.read.groups import load_groups
from lancestat.read.sampling import Sampler
from lancestat.read.survivors import FragmentStatistics, NothingKnown
from lancestat.read.table import ReadTable
from lancestat.read.zone_maps import load_zone_maps
from lancestat.spec.model import ProjectSpec, Table
from lancestat.state.identity import table_identity
from lancestat.state.values import StateReader, TableRecord

if TYPE_CHECKING:
    import lance

_log = logging.getLogger("lancestat.read")


def open_table(
    uri: str,
    *,
    version: int | None = None,
    tag: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> ReadTable:
    """A table that no project declares: what its manifest says is all there is.

    Args:
        uri: A path or an object-store URI.
        version: A manifest version, the latest when None.
        tag: A tag of the dataset, instead of a version.
        storage_options: How to reach it.

    Raises:
        UsageError: both a version and a tag, or a version that cannot be one.
        LakeError: the dataset, the version or the tag cannot be opened.
    """
    options = dict(storage_options or {})
    return _undeclared(observe_at(uri, version, tag, options), uri, options)


def open_pinned_table(pin: Pin, storage_options: Mapping[str, str]) -> ReadTable:
    """As `open_table`, of a dataset that was observed before.

    Raises:
        LakeError: as `lake.open.open_pinned`.
    """
    dataset = open_pinned(pin, storage_options=storage_options)
    return _undeclared(dataset, pin.uri, dict(storage_options))


def _undeclared(dataset: lance.LanceDataset, uri: str, options: Mapping[str, str]) -> ReadTable:
    found = snapshot(dataset, uri, options)
    return ReadTable(
        name=uri,
        statistics=TableStatistics(found),
        storage_options=options,
        load_fragments=lambda: load_zone_maps(dataset, found, options),
        sampler=Sampler(lambda: dataset, found.rows),
    )


@dataclass(frozen=True, slots=True)
class DeclaredTables:
    """Opens a project's tables at their latest versions, with what the state knows of them."""

    spec: ProjectSpec
    state: StateReader
    clock: Callable[[], datetime]

    def open(self, tables: Sequence[Table]) -> dict[str, ReadTable | LancestatError]:
        """Every table by name, or why it cannot be opened; datasets are opened in parallel."""
        options = self.spec.target.storage_options
        snapshots = observe_snapshots([(table.name, table.uri) for table in tables], options)
        records = self._records() if tables else {}
        return {table.name: self._opened(table, snapshots[table.name], records) for table in tables}

    def _records(self) -> Mapping[str, TableRecord]:
        try:
            return self.state.records()
        except StateError as error:
            # The state is a cache: without it the manifests alone are told.
            _log.warning("tables are read without the state: %s", error.message)
            return {}

    def _opened(
        self, table: Table, found: Snapshot | LakeError, records: Mapping[str, TableRecord]
    ) -> ReadTable | LakeError:
        if isinstance(found, LakeError):
            return found
        identity = table_identity(table.uri)
        record = records.get(identity)
        observer = Observer(self.spec, self.state, self.clock)

        def fragments() -> FragmentStatistics:
            groups = load_groups(self.state, identity, found)
            return self._zone_maps(found) if isinstance(groups, NothingKnown) else groups

        return ReadTable(
            name=table.name,
            statistics=TableStatistics.declared(table, found, record, observer.look_back),
            storage_options=self.spec.target.storage_options,
            histogram=table.histogram,
            load_fragments=fragments,
            sampler=Sampler(lambda: self._dataset(found), found.rows),
        )

    def _zone_maps(self, found: Snapshot) -> FragmentStatistics:
        try:
            dataset = self._dataset(found)
        except LakeError as error:
            _log.warning("fragments are not told apart: %s", error.message)
            return NothingKnown()
        return load_zone_maps(dataset, found, self.spec.target.storage_options)

    def _dataset(self, found: Snapshot) -> lance.LanceDataset:
        options = self.spec.target.storage_options
        return open_pinned(found.pin, storage_options=options)
