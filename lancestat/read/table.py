"""A table pinned to one version, with all that may be told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from lancestat.lake.open import open_pinned
from lancestat.lake.snapshot import Field, Snapshot
from lancestat.plan.judgement import TableStatistics
from lancestat.read.sampling import Sampler
from lancestat.read.settings import Settings
from lancestat.read.survivors import FragmentStatistics, NothingKnown
from lancestat.stats.column_type import ColumnType
from lancestat.stats.guard import Verdict


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
