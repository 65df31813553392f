"""A Lance table as Spark's optimizer sees it, with the settings of the session."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING

from lancestat.errors.base import LakeError, LancestatError, StateError, did_you_mean
from lancestat.errors.codes import InvalidReadOption
from lancestat.lake.open import observe_at, observe_snapshots, open_pinned, portable, snapshot
from lancestat.lake.snapshot import Field, Pin, Snapshot
from lancestat.query.fragments import FragmentStatistics, load_groups, load_zone_maps
from lancestat.query.references import ReferenceSide, containment
from lancestat.query.sampler import Sampler
from lancestat.runs.discover import located
from lancestat.spec.model import ProjectSpec, Reference, Table, tables_of
from lancestat.spec.relations import CommonValues as DeclaredCommonValues
from lancestat.state.store import StateReader
from lancestat.state.values import table_identity
from lancestat.tables.judgement import TableStatistics, Verdict
from lancestat.tables.node import look_back
from lancestat.tables.relations import Containment
from lancestat.tables.statistics.column_type import ColumnType, column_type
from lancestat.tables.statistics.common_values import CommonValues
from lancestat.tables.stored import TableRecord, table_records
from lancestat.tables.wire import JointStatistics

if TYPE_CHECKING:
    import lance

ENABLED = "cbo.column.stats.enabled"
ALLOW_STALE = "cbo.column.stats.allow.stale"
SPARK_PREFIX = "spark.lance."
CBO = "spark.sql.cbo.enabled"
# Lancestat's own, unlike those above, which the connector has too.
PUSHDOWN = "aggregate.pushdown.enabled"
ESTIMATES = "estimates.enabled"
OWN_SPARK_PREFIX = "spark.lancestat."

_log = logging.getLogger("lancestat.read")


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings of a scan for the use of statistics.

    `enabled` switches column statistics; `allow_stale` accepts any staleness or none, None leaves
    that to the policy; `samples` enables samples where Spark cannot estimate; `pushdown` enables
    aggregates from exact statistics; `estimates` enables those of whole plans.
    """

    enabled: bool = True
    allow_stale: bool | None = None
    samples: bool = False
    pushdown: bool = True
    estimates: bool = False

    @classmethod
    def of(cls, conf: Mapping[str, str], options: Mapping[str, str]) -> ReadSettings:
        """Read the settings of a scan; Spark's configuration overrides the scan's own options.

        A value that is neither true nor false counts as the cautious one: off, and nothing stale.
        `options` have keys in lower case.
        """
        enabled = _flag(conf, options, ENABLED)
        samples = enabled is not False and conf.get(CBO) == "true"
        return cls(
            enabled is not False,
            _flag(conf, options, ALLOW_STALE),
            samples,
            _flag(conf, options, PUSHDOWN, OWN_SPARK_PREFIX) is not False,
            samples and _flag(conf, {}, ESTIMATES, OWN_SPARK_PREFIX) is not False,
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
        references: The declared references to other tables, see `containment`.
        groups: The declared groups of columns.
        common: Which common values are declared, of columns and groups.
        load_fragments: Loads the statistics of fragments, when a filter needs them.
        sampler: Counts the rows that pass filters which Spark does not estimate.
    """

    name: str
    statistics: TableStatistics
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    histogram: bool = False
    references: tuple[Reference, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    common: DeclaredCommonValues | None = None
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

    def joint(self, names: frozenset[str]) -> JointStatistics | None:
        """Return the joint distinct count and nulls of some columns, None where not kept.

        They are published with the statistics of columns, and hold as far as those do (`verdict`).
        """
        published = self.statistics.published
        return None if published is None else published.joint.get(names)

    def common_values(self, names: str | frozenset[str]) -> CommonValues | None:
        """Return the common values of a column or a group, None where not kept.

        They are those of the rows as they are read, whatever the verdict on the statistics is: None
        as well where some of the rows came after the last run. Values of a group are in the order
        of field ids, which is that of `joint`'s columns.
        """
        alone = names if isinstance(names, str) else next(iter(names))
        if isinstance(names, str) or len(names) == 1:
            partial = self.fragments.partial(alone)
        else:
            partial = self.fragments.group_partial(names)
        return None if partial is None else partial.common

    def has_common_values(self, names: Iterable[str]) -> bool:
        """Whether those of a column or a group are declared."""
        return self.common is not None and self.common.covers(names)

    def containment(self, reference: Reference, other: ReadTable) -> Containment:
        """Return whether the values of a reference are all in the `other` table, where known.

        It holds for the rows as they are read, on both sides.
        """
        ours, theirs = (ReferenceSide(table.fragments, table.types) for table in (self, other))
        return containment(reference, ours, theirs)

    @property
    def proven_keys(self) -> frozenset[frozenset[str]]:
        """The declared keys that are proven for the rows that are read."""
        return self.statistics.proven_keys

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
            references=table.references,
            groups=table.joint_groups,
            common=table.common_values,
            load_fragments=fragments,
            sampler=Sampler(dataset, observed.rows, _unreported(observed)),
        )
