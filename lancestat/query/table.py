"""A Lance table as Spark's optimizer sees it, with the settings of the session.

Spark's `FilterEstimation` assumes that conditions such as `contains` hold for every row, and so do
all conditions on columns without statistics (`ColumnType.is_published`). Joins are then ordered as
if the filter were absent. Their selectivity is measured in a sample instead (`Sampler`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from lancestat.errors.base import LakeError, LancestatError, StateError, did_you_mean
from lancestat.errors.codes import InvalidReadOption
from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.lake.open import observe_at, observe_snapshots, open_pinned, portable, snapshot
from lancestat.lake.snapshot import Field, Pin, Snapshot, count_rows
from lancestat.query.fragments import FragmentStatistics, load_groups, load_zone_maps
from lancestat.query.predicates.filter import (
    And,
    Filter,
    Not,
    TextMatch,
    Unread,
    flattened,
    leaves,
)
from lancestat.query.pruning import ColumnBounds, may_match
from lancestat.runs.discover import located
from lancestat.spec.model import ProjectSpec, Table, tables_of
from lancestat.state.store import StateReader
from lancestat.state.values import table_identity
from lancestat.tables.judgement import TableStatistics, Verdict
from lancestat.tables.node import look_back
from lancestat.tables.statistics.column_type import ColumnType, column_type
from lancestat.tables.stored import TableRecord, table_records

if TYPE_CHECKING:
    import lance
    import pyarrow as pa


# Rows come in blocks at even distances: single ones cost a request each to an object store, and on
# a local disk ten times as long.
BLOCKS = 8
SAMPLE_ROWS = 4_096
# Of one table, for conditions on other columns or in other fragments.
SAMPLES_KEPT = 16
# Reading a sample is not worth it where the whole table is small.
LEAST_ROWS = 20_000


# Conditions, and the fragments whose rows are meant.
_SampleKey = tuple[tuple[Filter, ...], tuple[int, ...] | None]


@dataclass(frozen=True, slots=True)
class Sampler:
    """Counts matches in a sample of one table at one version; answers are cached.

    `open` opens the dataset at that version, which has `rows` live rows. `unreported` are the
    columns of which Spark knows nothing (`conditions`).
    """

    open: Callable[[], lance.LanceDataset]
    rows: int
    unreported: frozenset[str] = frozenset()
    _shares: dict[_SampleKey, float | None] = field(default_factory=dict)
    _samples: dict[tuple[tuple[str, ...], tuple[int, ...] | None], pa.Table | None] = field(
        default_factory=dict
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def share(
        self, filters: Sequence[Filter], fragment_ids: Sequence[int] | None = None
    ) -> float | None:
        """Return the share of rows that pass those of a conjunction that Spark does not estimate.

        It is the share of the rows in which the matched strings are not null, since Spark estimates
        those nulls. None when there are no such filters, when the table is small, or when it cannot
        be read. `fragment_ids` are the fragments to sample, None for all.
        """
        unestimated = tuple(sorted(conditions(filters, self.unreported), key=repr))
        if not unestimated or self.rows < LEAST_ROWS:
            return None
        key = unestimated, None if fragment_ids is None else tuple(fragment_ids)
        with self._lock:
            if key not in self._shares:
                self._shares[key] = self._counted(*key)
            return self._shares[key]

    def rows_of(
        self, columns: Sequence[str], fragment_ids: Sequence[int] | None = None
    ) -> pa.Table | None:
        """Return some columns of a sample of rows, None when the table is small or not readable."""
        if self.rows < LEAST_ROWS:
            return None
        key = tuple(columns), None if fragment_ids is None else tuple(fragment_ids)
        with self._lock:
            if key not in self._samples:
                while len(self._samples) >= SAMPLES_KEPT:
                    del self._samples[next(iter(self._samples))]
                self._samples[key] = self._read(*key)
            return self._samples[key]

    def _counted(
        self, unestimated: Sequence[Filter], fragment_ids: Sequence[int] | None
    ) -> float | None:
        columns = sorted({leaf.column for condition in unestimated for leaf in leaves(condition)})
        return _share(self._read(columns, fragment_ids), unestimated)

    def _read(self, columns: Sequence[str], fragment_ids: Sequence[int] | None) -> pa.Table | None:
        try:
            dataset = self.open()
            if fragment_ids is None:
                return dataset.take(_row_positions(self.rows, BLOCKS), columns=list(columns))
            return _taken(dataset, fragment_ids, list(columns))
        except BaseException as error:
            if not is_error_or_panic(error):
                raise
            _log.warning("no sample could be read: %s", type(error).__name__)
            return None


def conditions(filters: Sequence[Filter], unreported: Collection[str] = ()) -> list[Filter]:
    """Return the conditions of a conjunction that Spark assumes to hold for every row.

    `unreported` are the columns of types that are not published.
    """
    return [
        part
        for filter in filters
        for part in flattened(filter, And)
        if not isinstance(part, Unread)
        and all(isinstance(leaf, TextMatch) or leaf.column in unreported for leaf in leaves(part))
    ]


def _taken(
    dataset: lance.LanceDataset, fragment_ids: Sequence[int], columns: list[str]
) -> pa.Table | None:
    import pyarrow as pa

    if not fragment_ids:
        return None
    count = min(BLOCKS, len(fragment_ids))
    ids = [fragment_ids[index * len(fragment_ids) // count] for index in range(count)]
    fragments = [dataset.get_fragment(id) for id in ids]
    blocks = -(-BLOCKS // count)
    return pa.concat_tables(
        fragment.take(_row_positions(count_rows(fragment), blocks), columns=columns)
        for fragment in fragments
    )


def _row_positions(rows: int, blocks: int) -> list[int]:
    size = min(SAMPLE_ROWS // BLOCKS, -(-rows // blocks))
    starts = [block * rows // blocks for block in range(blocks)]
    return sorted({row for start in starts for row in range(start, min(start + size, rows))})


def _share(sample: pa.Table | None, unestimated: Sequence[Filter]) -> float | None:
    if sample is None:
        return None
    columns = {}
    for name in sample.column_names:
        type = column_type(sample.schema.field(name).type)
        columns[name] = None if type is None else ColumnBounds.of_rows(sample.column(name), type)
    passing = may_match(unestimated, columns.get, sample.num_rows)
    valid = np.ones(sample.num_rows, np.bool_)
    for condition in unestimated:
        match condition:
            case TextMatch(name) | Not(TextMatch(name)):
                # Spark knows how many rows hold null there.
                valid &= sample.column(name).is_valid().to_numpy()
    if not valid.any():
        return None
    # No match in the sample does not prove that there is none: it counts as half a row.
    return max(0.5, float(passing.sum())) / float(valid.sum())


ENABLED = "cbo.column.stats.enabled"
ALLOW_STALE = "cbo.column.stats.allow.stale"
SPARK_PREFIX = "spark.lance."
CBO = "spark.sql.cbo.enabled"
# Lancestat's own, unlike those above, which the connector has too.
PUSHDOWN = "aggregate.pushdown.enabled"
OWN_SPARK_PREFIX = "spark.lancestat."

_log = logging.getLogger("lancestat.read")


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings of a scan for the use of statistics.

    `enabled` switches column statistics; `allow_stale` accepts any staleness or none, None leaves
    that to the policy; `samples` enables samples where Spark cannot estimate; `pushdown` enables
    aggregates from exact statistics.
    """

    enabled: bool = True
    allow_stale: bool | None = None
    samples: bool = False
    pushdown: bool = True

    @classmethod
    def of(cls, conf: Mapping[str, str], options: Mapping[str, str]) -> ReadSettings:
        """Read the settings of a scan; Spark's configuration overrides the scan's own options.

        A value that is neither true nor false counts as the cautious one: off, and nothing stale.
        `options` have keys in lower case.
        """
        enabled = _flag(conf, options, ENABLED)
        return cls(
            enabled is not False,
            _flag(conf, options, ALLOW_STALE),
            enabled is not False and conf.get(CBO) == "true",
            _flag(conf, options, PUSHDOWN, OWN_SPARK_PREFIX) is not False,
        )


def check_options(options: Mapping[str, str]) -> None:
    """Check the names of a scan's options, in any case.

    Raises:
        InvalidReadOption: there is no such option.
    """
    known = (ENABLED, ALLOW_STALE, PUSHDOWN)
    for name in options:
        if str(name).lower() not in known:
            raise InvalidReadOption(
                f"scans have no option '{name}'",
                hint=did_you_mean(str(name).lower(), known, "options"),
            )


def _flag(
    conf: Mapping[str, str], options: Mapping[str, str], key: str, prefix: str = SPARK_PREFIX
) -> bool | None:
    spark_key = prefix + key
    named, text = (spark_key, conf[spark_key]) if spark_key in conf else (key, options.get(key))
    if text is None:
        return None
    word = text.strip().lower()
    if word not in ("true", "false"):
        _log.warning("%s is %r, neither true nor false: taken as false", named, text)
    return word == "true"


@dataclass(frozen=True)
class ReadTable:
    """A dataset at one version as its readers see it.

    Args:
        name: Its declared name, else its URI.
        statistics: Its statistics, and with them the dataset at the version that is read.
        storage_options: How workers reach it.
        histogram: Whether histograms are declared.
        load_fragments: Loads the statistics of fragments, when a filter needs them.
        sampler: Counts the rows that pass filters which Spark does not estimate.
    """

    name: str
    statistics: TableStatistics
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    histogram: bool = False
    load_fragments: Callable[[], FragmentStatistics] = FragmentStatistics
    sampler: Sampler | None = None

    def verify(self) -> None:
        """Check that the dataset is still the one that was observed.

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
        """The statistics of fragments, loaded once."""
        return self.load_fragments()

    def verdict(self, settings: ReadSettings, now: datetime) -> Verdict:
        """Return whether the statistics are used, under session, scan and policy."""
        return self.statistics.verdict(
            now, allow_stale=settings.allow_stale, enabled=settings.enabled
        )


def open_table(
    uri: str,
    *,
    version: int | None = None,
    tag: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> ReadTable:
    """Open a table that no project declares, with the statistics of its manifest alone.

    Raises:
        UsageError: both a version and a tag, or a version that cannot be one.
        LakeError: the dataset, the version or the tag cannot be opened.
    """
    options = portable(storage_options)
    return _undeclared(observe_at(uri, version, tag, options), uri, options)


def open_pinned_table(pin: Pin, storage_options: Mapping[str, str]) -> ReadTable:
    """Open a table as `open_table` does, of a dataset that was observed before.

    Raises:
        LakeError: as `lake.open.open_pinned`.
    """
    dataset = open_pinned(pin, storage_options=storage_options)
    return _undeclared(dataset, pin.uri, portable(storage_options))


def _undeclared(dataset: lance.LanceDataset, uri: str, options: Mapping[str, str]) -> ReadTable:
    observed = snapshot(dataset, uri, options)
    return ReadTable(
        name=uri,
        statistics=TableStatistics(
            observed, look_back=lambda now, version: look_back(now, version, options)
        ),
        storage_options=options,
        load_fragments=lambda: load_zone_maps(dataset, observed, options),
        sampler=Sampler(lambda: dataset, observed.rows, _unreported(observed)),
    )


def _unreported(snapshot: Snapshot) -> frozenset[str]:
    types = {field.name: column_type(field.type) for field in snapshot.fields}
    return frozenset(name for name, type in types.items() if type and not type.is_published)


@dataclass(frozen=True, slots=True)
class DeclaredTables:
    """Opens a project's tables at their latest versions, with their statistics in the state."""

    spec: ProjectSpec
    state: StateReader
    clock: Callable[[], datetime]

    def open(self, tables: Sequence[Table]) -> dict[str, ReadTable | LancestatError]:
        """Return every table by name, or its error; datasets are opened in parallel."""
        spec, nodes = located(self.spec, tables)
        tables, options = tables_of(nodes), spec.options
        snapshots = observe_snapshots([(table.name, table.uri) for table in tables], options)
        records = self._records() if tables else {}
        return {table.name: self._opened(table, snapshots[table.name], records) for table in tables}

    def _records(self) -> Mapping[str, TableRecord]:
        try:
            return table_records(self.state)
        except StateError as error:
            # The state is a cache: without it only the manifests count.
            _log.warning("tables are read without the state: %s", error.message)
            return {}

    def _opened(
        self, table: Table, observed: Snapshot | LakeError, records: Mapping[str, TableRecord]
    ) -> ReadTable | LakeError:
        if isinstance(observed, LakeError):
            return observed
        identity = table_identity(table.uri)
        record = records.get(identity)
        options = self.spec.options.of(observed.uri)

        def fragments() -> FragmentStatistics:
            groups = load_groups(self.state, identity, observed)
            try:
                return load_zone_maps(dataset(), observed, options) if groups.is_empty else groups
            except LakeError as error:
                _log.warning("fragments cannot be pruned: %s", error.message)
                return groups

        def dataset() -> lance.LanceDataset:
            return open_pinned(observed.pin, storage_options=options)

        return ReadTable(
            name=table.name,
            statistics=TableStatistics.declared(
                table,
                observed,
                record,
                partial(look_back, options=options),
                options,
            ),
            storage_options=options,
            histogram=table.histogram,
            load_fragments=fragments,
            sampler=Sampler(dataset, observed.rows, _unreported(observed)),
        )
