"""The stages of an action: the work of a run for one node, in order, with all that was decided.

`lancestat plan` explains the list of stages, and a run evaluates the same list
(`execution.evaluator`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lancestat.knn.cost_model import Strategy
from lancestat.knn.work import OutputFormat, Scope
from lancestat.lake.fingerprint import Fingerprint
from lancestat.plan.coverage import Coverage


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

    coverage: Coverage


class RunsOn(str, Enum):
    """Where fragments are read; their spelling is a contract."""

    PROCESS = "process"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class ReadFragments:
    """Read fragments, and store their partials."""

    scans: tuple[Scan, ...]
    runs_on: RunsOn = RunsOn.SPARK


@dataclass(frozen=True, slots=True)
class MergePartials:
    """Merge all partials into the statistics of the table, as those of a version."""

    version: int


@dataclass(frozen=True, slots=True)
class RestampStatistics:
    """Keep the statistics, which still hold, and give them the version that they now describe.

    `values` are entries of the manifest, `bounds` those that only the state holds.
    """

    version: int
    values: tuple[tuple[str, str], ...]
    bounds: tuple[tuple[str, tuple[str, str]], ...] = ()


@dataclass(frozen=True, slots=True)
class PublishStatistics:
    """Commit the statistics to the manifest, or keep them in the state alone (`publish: none`)."""

    to_manifest: bool


TableStage = ReusePartials | ReadFragments | MergePartials | RestampStatistics | PublishStatistics


@dataclass(frozen=True, slots=True)
class PrepareSides:
    """Open both sides of a join; those that are `written` become scratch datasets first.

    Of these, a side in `unless_light` is read in place where one task compares all left rows with
    it, which only opening it tells.
    """

    written: tuple[str, ...]
    unless_light: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LayOut:
    """Write the right side to scratch in lists by centroid.

    `lists` is None where the size of the sides is not known before they are prepared.
    """

    lists: int | None


@dataclass(frozen=True, slots=True)
class MeasureIndex:
    """Find out on a sample how far the vector index of the right side has to be searched."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Search neighbours for the pairs of a scope; `pairs` is None where it is not known."""

    strategy: Strategy
    scope: Scope
    pairs: int | None


@dataclass(frozen=True, slots=True)
class MergeNeighbours:
    """Merge the neighbours that were found with those of the last result."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """Write the result and commit it in one step, appending to the last result or replacing it."""

    format: OutputFormat
    uri: str
    appends: bool


JoinStage = PrepareSides | LayOut | MeasureIndex | Probe | MergeNeighbours | CommitResult
