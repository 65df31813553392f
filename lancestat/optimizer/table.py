"""A Lance table as Spark's optimizer sees it, with the settings of the session."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from lancestat.errors import LakeError, LancestatError, StateError
from lancestat.lake.observe import observe_at, observe_snapshots, snapshot
from lancestat.lake.open import open_pinned
from lancestat.lake.snapshot import Field, Pin, Snapshot
from lancestat.manifest.guard import Verdict
from lancestat.optimizer.groups import load_groups
from lancestat.optimizer.pruned_fragments import FragmentStatistics, NothingKnown
from lancestat.optimizer.sampling import Sampler
from lancestat.optimizer.zone_maps import load_zone_maps
from lancestat.plan.judgement import TableStatistics
from lancestat.plan.observe import Observer
from lancestat.spec.model import ProjectSpec, Table
from lancestat.state.identity import table_identity
from lancestat.state.values import StateReader, TableRecord
from lancestat.statistics.column_type import ColumnType

if TYPE_CHECKING:
    import lance

ENABLED = "cbo.column.stats.enabled"
ALLOW_STALE = "cbo.column.stats.allow.stale"
SPARK_PREFIX = "spark.lance."
CBO = "spark.sql.cbo.enabled"

_log = logging.getLogger("lancestat.read")


@dataclass(frozen=True, slots=True)
class Settings:
    """What of statistics is wanted.

    `enabled` switches column statistics, `allow_stale` accepts any staleness or none, where None
    leaves that to the policy; `samples` asks for samples where Spark's own estimation gives up.
    """

    enabled: bool = True
    allow_stale: bool | None = None
    samples: bool = False


def read_settings(conf: Mapping[str, str], options: Mapping[str, str]) -> Settings:
    """Settings of a scan: Spark's configuration comes before the scan's own options.

    A value that is neither true nor false counts as the cautious one: off, and nothing stale.

    Args:
        conf: The session's `spark.lance.cbo.column.stats.*` entries, and whether its cost-based
            optimizer is on.
        options: The scan's options, their keys in lower case.
    """
    enabled = _flag(conf, options, ENABLED)
    return Settings(
        enabled is not False,
        _flag(conf, options, ALLOW_STALE),
        enabled is not False and conf.get(CBO) == "true",
    )


def _flag(conf: Mapping[str, str], options: Mapping[str, str], key: str) -> bool | None:
    spark_key = SPARK_PREFIX + key
    named, text = (spark_key, conf[spark_key]) if spark_key in conf else (key, options.get(key))
    if text is None:
        return None
    word = text.strip().lower()
    if word not in ("true", "false"):
        _log.warning("%s is %r, neither true nor false: taken as false", named, text)
    return word == "true"


@dataclass(frozen=True, slots=True)
class Scan:
    """What every task of a scan has in common; holds no storage options.

    `columns` are the projected columns in the order of Spark's schema, `filter` is in Lance's SQL,
    `limit` stops each task. With `narrow_decimals`, decimals of up to 18 digits travel as their
    unscaled 64-bit integers (the columnar path of the relation reads them so).
    """

    pin: Pin
    columns: tuple[str, ...]
    filter: str | None = None
    limit: int | None = None
    narrow_decimals: bool = False


@dataclass(frozen=True)
class ReadTable:
    """A dataset at one version as its readers see it.

    Args:
        name: How messages call it: its declared name, else its URI.
        statistics: Its statistics, and with them the dataset at the version that is read.
        storage_options: How workers reach it.
        histogram: Whether histograms are declared.
        load_fragments: Loads what is known of fragments or groups of them, when a filter asks.
        sampler: Counts what passes filters that Spark does not estimate.
    """

    name: str
    statistics: TableStatistics
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    histogram: bool = False
    load_fragments: Callable[[], FragmentStatistics] = NothingKnown
    sampler: Sampler | None = None

    def verify(self) -> None:
        """See that the dataset is still the one that was observed.

        Raises:
            LakeError: as `lake.open.open_pinned`.
        """
        open_pinned(self.snapshot.pin, storage_options=self.storage_options)

    @property
    def snapshot(self) -> Snapshot:
        """The dataset at the version that is read."""
        return self.statistics.snapshot

    @property
    def types(self) -> Mapping[str, ColumnType]:
        """The analyzable columns."""
        return self.statistics.types

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """All columns by name."""
        return {field.name: field for field in self.snapshot.fields}

    @cached_property
    def fragments(self) -> FragmentStatistics:
        """What is known of fragments, loaded once."""
        return self.load_fragments()

    def judge(self, settings: Settings, now: datetime) -> Verdict:
        """The guard's verdict on the statistics, under what session, scan and policy say."""
        return self.statistics.judge(
            now, allow_stale=settings.allow_stale, enabled=settings.enabled
        )


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
