"""A table pinned to one version, with all that may be told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from lancestat.lake.open import open_pinned
from lancestat.lake.schema_hash import schema_hash
from lancestat.lake.snapshot import Field, Snapshot
from lancestat.plan.appraise import analyzable
from lancestat.read.sampling import Sampler
from lancestat.read.settings import Settings
from lancestat.read.survivors import FragmentStatistics, NothingKnown
from lancestat.spec.model import StaleBounds
from lancestat.stats.column_type import ColumnType
from lancestat.stats.guard import Distance, GuardReason, Verdict, judge


def _unknown_distance() -> Distance | None:
    return None


@dataclass(frozen=True)
class ReadTable:
    """A dataset at one version as its readers see it.

    Args:
        name: How messages call it: its declared name, else its URI.
        snapshot: The dataset at the version that is read.
        entries: The `lance.stats.*` entries to judge: the manifest's, or those that the state keeps
            under `publish: none`.
        storage_options: How workers reach it.
        allow_stale: The declared policy.
        histogram: Whether histograms are declared.
        distance: Finds out how far the table has moved on, when a bound asks for it.
        load_fragments: Loads what is known of fragments or groups of them, when a filter asks.
        sampler: Counts what passes filters that Spark does not estimate.
    """

    name: str
    snapshot: Snapshot
    entries: Mapping[str, str]
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_stale: bool | StaleBounds = False
    histogram: bool = False
    distance: Callable[[], Distance | None] = _unknown_distance
    load_fragments: Callable[[], FragmentStatistics] = NothingKnown
    sampler: Sampler | None = None

    def verify(self) -> None:
        """See that the dataset is still the one that was observed.

        Raises:
            LakeError: as `lake.open.open_pinned`.
        """
        open_pinned(self.snapshot.pin, storage_options=self.storage_options)

    @cached_property
    def types(self) -> Mapping[str, ColumnType]:
        """The analyzable columns."""
        return analyzable(self.snapshot)

    @cached_property
    def schema_hash(self) -> str:
        """Of the schema that is read."""
        return schema_hash(self.snapshot.fields)

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """All columns by name."""
        return {field.name: field for field in self.snapshot.fields}

    @cached_property
    def fragments(self) -> FragmentStatistics:
        """What is known of fragments, loaded once."""
        return self.load_fragments()

    @cached_property
    def _distance(self) -> Distance | None:
        return self.distance()

    def judge(self, settings: Settings, now: datetime) -> Verdict:
        """The guard's verdict on the statistics, under what session, scan and policy say."""
        allow_stale = self.allow_stale if settings.allow_stale is None else settings.allow_stale
        verdict = judge(
            self.entries,
            version=self.snapshot.version,
            schema_hash=self.schema_hash,
            now=now,
            allow_stale=allow_stale if isinstance(allow_stale, bool) else False,
            types=self.types,
            enabled=settings.enabled,
        )
        if isinstance(allow_stale, bool) or verdict.reason is not GuardReason.STALE:
            return verdict
        # Only bounds ask how far the table has moved on, which costs a look at its history.
        return judge(
            self.entries,
            version=self.snapshot.version,
            schema_hash=self.schema_hash,
            now=now,
            allow_stale=allow_stale,
            distance=self._distance,
            types=self.types,
        )
