"""What a run does about a table: its stages, the version that is read, and the action."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar

from lancestat.formats import count, size
from lancestat.lake.fingerprint import ColumnGroup, Fingerprint, field_key
from lancestat.lake.snapshot import Field, Pin
from lancestat.runs.actions import Figures, NodeAction, Reason, RunsOn, Stage, Verb, action_summary
from lancestat.spec.model import NodeKind, Publish
from lancestat.state.values import field_keys
from lancestat.tables.carriers import CARRIERS
from lancestat.tables.relations import KeyResult

if TYPE_CHECKING:
    # Spark's workers import this module.
    from lancestat.tables.coverage import Coverage


@dataclass(frozen=True, slots=True)
class Scan:
    """Columns of one fragment that must be read.

    `rows` are its live rows, `size_bytes` estimates the bytes on disk of the columns.
    """

    fragment_id: int
    fingerprint: Fingerprint
    fields: frozenset[str]
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ReusePartials(Stage):
    """Fetch the stored partials of content that is known, and sum up those of compacted content."""

    name: ClassVar[str] = "reuse"
    coverage: Coverage

    @property
    def words(self) -> str:
        return _reused(self.coverage)


@dataclass(frozen=True, slots=True)
class ReadFragments(Stage):
    """Read fragments, and store their partials."""

    name: ClassVar[str] = "read"
    UNORDERED: ClassVar[frozenset[str]] = frozenset({"scans"})
    NOT_DIGESTED: ClassVar[frozenset[str]] = frozenset({"runs_on"})
    scans: tuple[Scan, ...]
    runs_on: RunsOn = RunsOn.SPARK

    @property
    def words(self) -> str:
        fragments = _fragments(scan.fragment_id for scan in self.scans)
        return f"{fragments}, {_WHERE[self.runs_on]}"


@dataclass(frozen=True, slots=True)
class MergePartials(Stage):
    """Merge all partials into the statistics of the table, as those of a version."""

    name: ClassVar[str] = "merge"
    version: int

    @property
    def words(self) -> str:
        return f"all partials, into the statistics of version {self.version}"


@dataclass(frozen=True, slots=True)
class RestampStatistics(Stage):
    """Keep the statistics, which still hold, and give them the version that they now describe.

    `values` are entries of the manifest, `bounds` and `kept` those that only the state holds, and
    `keys` what is known of declared keys. `is_restored` is as a record has it.
    """

    name: ClassVar[str] = "restamp"
    version: int
    values: tuple[tuple[str, str], ...]
    bounds: tuple[tuple[str, tuple[str, str]], ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    keys: tuple[KeyResult, ...] = ()
    is_restored: bool = False

    @property
    def words(self) -> str:
        return f"the statistics stay as they are, for version {self.version}"


@dataclass(frozen=True, slots=True)
class PublishStatistics(Stage):
    """Hand the statistics to the carrier that the declaration names."""

    name: ClassVar[str] = "publish"
    publish: Publish

    @property
    def words(self) -> str:
        carrier = CARRIERS[self.publish]
        return f"in {carrier.place}" if carrier.commits else f"in {carrier.place} alone"


@dataclass(frozen=True, slots=True)
class FoldPartials(Stage):
    """Fold the stored partials of a table that is skipped: those of up to `fold` fragments."""

    name: ClassVar[str] = "fold"
    fold: int

    @property
    def words(self) -> str:
        return f"stored partials of up to {count(self.fold, 'fragment')} into one"


TableStage = ReusePartials | ReadFragments | MergePartials | RestampStatistics | PublishStatistics


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table at one version, with the columns to keep statistics on.

    `identity` is the state's name for the dataset, `fields` the analyzed columns, `live` their
    fingerprints at that version and `groups` where they belong; `config` is the manifest's.
    `histograms` names the columns whose partials need quantiles, and `newest_fragment` is that of
    the snapshot. `size_bytes` is that of the data files. `wanted` has the columns of each partial
    that it needs, of a group in the order of its tuples, by stored key (`state.values`). The state
    gets the partials of `fold` fragments with consecutive ids together. `schema_change` says how
    columns differ from those of the last statistics, as far as that is known.
    """

    UNORDERED: ClassVar[frozenset[str]] = frozenset({"groups"})
    pin: Pin
    identity: str
    config: Mapping[str, str]
    fields: tuple[Field, ...]
    schema_hash: str
    content_digest: str
    rows: int
    fragments: int
    live: frozenset[Fingerprint]
    histograms: frozenset[str] = frozenset()
    groups: tuple[ColumnGroup, ...] = ()
    newest_fragment: str = ""
    wanted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    size_bytes: int = 0
    fold: int = 1
    schema_change: str | None = None

    @property
    def uri(self) -> str:
        """The URI by which the project names the dataset."""
        return self.pin.uri

    @property
    def version(self) -> int:
        """The version that is read."""
        return self.pin.version

    @property
    def needs(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of each partial that it needs: `wanted`, else all columns by themselves."""
        return self.wanted or {field_key(field): (field.name,) for field in self.fields}


@dataclass(frozen=True, slots=True)
class RecordStatistics(Stage):
    """Make the state's record of statistics that are published already, from stored partials.

    The run that published them was killed before it stored that, or another stored its own. `table`
    is what they describe.
    """

    name: ClassVar[str] = "record"
    words: ClassVar[str] = (
        "what only the state has of the published statistics, from stored partials"
    )
    table: TableVersion


@dataclass(frozen=True, slots=True)
class TableAction(NodeAction):
    """Bring the statistics of a table up to date.

    The verb is `analyze` where there is nothing usable yet, `refresh` where some fragments or
    columns are new or what is published must be written again, and `restamp` where the rows are
    those that the statistics describe and only the version moved.
    """

    kind: ClassVar[str] = NodeKind.TABLE.value
    dependencies: ClassVar[tuple[str, ...]] = ()
    error: ClassVar[None] = None
    node: str
    verb: Verb
    reasons: tuple[Reason, ...]
    figures: Figures
    table: TableVersion
    stages: tuple[TableStage, ...]
    notes: tuple[str, ...] = ()

    __repr__ = action_summary

    @property
    def reading(self) -> ReadFragments | None:
        """The stage that reads fragments, None where nothing has to be read."""
        return next((stage for stage in self.stages if isinstance(stage, ReadFragments)), None)

    @property
    def reusing(self) -> ReusePartials | None:
        """The stage that fetches what is stored, None where nothing of use is."""
        return next((stage for stage in self.stages if isinstance(stage, ReusePartials)), None)

    @property
    def scans(self) -> tuple[Scan, ...]:
        """The fragments that are read."""
        return self.reading.scans if self.reading else ()

    @property
    def is_part(self) -> bool:
        """Whether it reads what a budget has room for, and publishes nothing."""
        return isinstance(self.stages[-1], ReadFragments)

    def part(self, size_bytes: int) -> TableAction | None:
        """Return an action that reads and stores what fragments fit, and publishes nothing.

        None where not even one fits, and where later runs would read again what it stores.
        """
        if self.reading is None or Reason.FULL_REFRESH in self.reasons:
            return None
        scans, left = list[Scan](), size_bytes
        for scan in self.scans:
            if scan.size_bytes <= left:
                scans.append(scan)
                left -= scan.size_bytes
        if not scans:
            return None
        figures = scan_figures(self.figures, scans)
        read, total = figures.fragments_scanned, self.figures.fragments_scanned
        note = (
            f"the budget has room for {count(read)} of {count(total, 'fragment')} to read; the "
            "rest is deferred, and statistics come once all are read"
        )
        reading = replace(self.reading, scans=tuple(scans))
        return replace(self, stages=(reading,), figures=figures, notes=(*self.notes, note))

    @property
    def runs_on(self) -> RunsOn | None:
        """Where fragments are read, None where nothing has to be read."""
        return self.reading.runs_on if self.reading else None

    @property
    def reads(self) -> str:
        """What is read: `1 of 17 fragments, 250,000 rows, 12 MB, on Spark`."""
        if self.reading is None:
            return "nothing to read"
        total = count(self.figures.fragments_total, "fragment")
        part = f"{count(self.figures.fragments_scanned)} of {total}{self._columns_read()}"
        rows, size_read = count(self.figures.rows_scanned, "row"), size(self.figures.bytes_scanned)
        return f"{part}, {rows}, {size_read}, {_WHERE[self.reading.runs_on]}"

    def _columns_read(self) -> str:
        """How many columns are read, where not all of them are."""
        read = len(field_keys(frozenset[str]().union(*{scan.fields for scan in self.scans})))
        total = self.figures.columns
        return f" ({count(read)} of {count(total, 'column')})" if read < total else ""


def scan_figures(figures: Figures, scans: Iterable[Scan]) -> Figures:
    """Return the figures of a table of which these scans are read."""
    scans = tuple(scans)
    rows = {scan.fragment_id: scan.rows for scan in scans}
    return replace(
        figures,
        fragments_scanned=len(rows),
        rows_scanned=sum(rows.values()),
        bytes_scanned=sum(scan.size_bytes for scan in scans),
    )


_WHERE = {RunsOn.PROCESS: "in this process", RunsOn.SPARK: "on Spark"}
# Runs of consecutive fragments that are named; there may be thousands.
_RUNS_NAMED = 4


def _fragments(ids: Iterable[int]) -> str:
    """Return the ids of fragments: `fragment 3`, or `fragments 0 to 2, 5, 7, 9 and 120 more`."""
    numbers = sorted(set(ids))
    # Consecutive numbers are as far from their places.
    runs = [list(run) for _, run in groupby(numbers, lambda n: n - bisect_left(numbers, n))]
    named = [f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    rest = sum(map(len, runs[_RUNS_NAMED:]))
    listed = ", ".join(named[:_RUNS_NAMED]) + (f" and {count(rest)} more" if rest else "")
    return f"{'fragment' if len(numbers) == 1 else 'fragments'} {listed}"


def _reused(coverage: Coverage) -> str:
    """Return how much is reused: `240 stored partials, and 32 of fragments since compacted`."""
    as_they_are = sum(len(item.fields) for item in coverage.reuse)
    summed_up = sum(len(carry.fields) * len(carry.sources) for carry in coverage.carries)
    parts = [count(as_they_are, "stored partial")] if as_they_are else []
    parts += [f"{count(summed_up)} of fragments since compacted"] if summed_up else []
    return ", and ".join(parts)
