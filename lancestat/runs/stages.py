"""The stages of an action: the work of a run for one node, in order, with all that was decided.

`lancestat plan` explains the list of stages, a run evaluates the same list
(`runs.evaluator`), and its progress names the stage that it has reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lancestat.formats import StringEnum
from lancestat.joins.search.cost_model import Strategy
from lancestat.joins.search.work import OutputFormat, Scope

if TYPE_CHECKING:
    # Spark's workers import this module.
    from lancestat.lake.fingerprint import Fingerprint
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
class ReusePartials:
    """Fetch the stored partials of content that is known, and sum up those of compacted content."""

    name: ClassVar[str] = "reuse"
    coverage: Coverage


class RunsOn(StringEnum):
    """Where fragments are read; their spelling is a contract."""

    PROCESS = "process"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class ReadFragments:
    """Read fragments, and store their partials."""

    name: ClassVar[str] = "read"
    scans: tuple[Scan, ...]
    runs_on: RunsOn = RunsOn.SPARK


@dataclass(frozen=True, slots=True)
class MergePartials:
    """Merge all partials into the statistics of the table, as those of a version."""

    name: ClassVar[str] = "merge"
    version: int


@dataclass(frozen=True, slots=True)
class RestampStatistics:
    """Keep the statistics, which still hold, and give them the version that they now describe.

    `values` are entries of the manifest, `bounds` and `kept` those that only the state holds.
    """

    name: ClassVar[str] = "restamp"
    version: int
    values: tuple[tuple[str, str], ...]
    bounds: tuple[tuple[str, tuple[str, str]], ...] = ()
    kept: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PublishStatistics:
    """Commit the statistics to the manifest, or keep them in the state alone (`publish: none`)."""

    name: ClassVar[str] = "publish"
    to_manifest: bool


TableStage = ReusePartials | ReadFragments | MergePartials | RestampStatistics | PublishStatistics


@dataclass(frozen=True, slots=True)
class PrepareSides:
    """Open both sides of a join; those that are `written` become scratch datasets first.

    Of these, a side in `unless_light` is read in place where one task compares all left rows with
    it, which only opening it tells.
    """

    name: ClassVar[str] = "prepare"
    written: tuple[str, ...]
    unless_light: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LayOut:
    """Write the right side to scratch in lists by centroid.

    How many lists suit it follows from the sizes of the sides: where these are not known yet, a
    plan has no such stage, and gets one when the sides are prepared.
    """

    name: ClassVar[str] = "lay out"
    lists: int


@dataclass(frozen=True, slots=True)
class ReuseLayout:
    """Search the kept layout of the right side, which has all its rows in lists by centroid."""

    name: ClassVar[str] = "reuse layout"
    lists: int
    rows: int


@dataclass(frozen=True, slots=True)
class ExtendLayout:
    """Put new rows of the right side into the lists of its kept layout, which has `rows`."""

    name: ClassVar[str] = "extend layout"
    lists: int
    rows: int
    new_rows: int


@dataclass(frozen=True, slots=True)
class MeasureIndex:
    """Find out on a sample how far the vector index of the right side has to be searched."""

    name: ClassVar[str] = "measure"


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Write the rows of both sides to scratch by the keys that they share."""

    name: ClassVar[str] = "group"


@dataclass(frozen=True, slots=True)
class Probe:
    """Search neighbours for the pairs of a scope; `pairs` is None where it is not known."""

    name: ClassVar[str] = "probe"
    strategy: Strategy
    scope: Scope
    pairs: int | None


@dataclass(frozen=True, slots=True)
class MergeNeighbours:
    """Merge the neighbours that were found with those of the last result."""

    name: ClassVar[str] = "merge"


@dataclass(frozen=True, slots=True)
class CommitResult:
    """Write the result and commit it in one step, appending to the last result or replacing it."""

    name: ClassVar[str] = "commit"
    format: OutputFormat
    uri: str
    appends: bool


SearchStage = (
    LayOut | ReuseLayout | ExtendLayout | MeasureIndex | GroupRows | Probe | MergeNeighbours
)
JoinStage = PrepareSides | SearchStage | CommitResult


@dataclass(frozen=True, slots=True)
class JoinStages:
    """The stages of a join: sides are prepared first and the result is committed last."""

    prepare: PrepareSides
    search: tuple[SearchStage, ...]
    commit: CommitResult

    def __iter__(self) -> Iterator[JoinStage]:
        """Yield the stages in their order."""
        yield self.prepare
        yield from self.search
        yield self.commit


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The stage that a node has reached, and how far it is.

    `rows_done` of `rows_total` rows (None where they are not counted yet) are done; when probing,
    these are left rows times the parts of the right side that they meet, and `pairs_per_second`
    is the rate at which distances are computed. `note` is a sentence about what is being done.
    """

    stage: TableStage | JoinStage
    rows_done: int = 0
    rows_total: int | None = None
    pairs_per_second: float | None = None
    note: str | None = None


OnStage = Callable[[StageProgress], None]


def ignore_progress(progress: StageProgress) -> None:
    """Ignore progress."""
