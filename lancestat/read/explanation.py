"""What was told to Spark's optimizer about one scan, and why: for people who ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lancestat.read.estimate import ColumnEstimate
from lancestat.stats.guard import Verdict


@dataclass(frozen=True, slots=True)
class Explanation:
    """One answer to the optimizer: which statistics were used or refused, and what came of it.

    `rows` and `size_bytes` are as told: the rows of the `fragments_scanned` of all `fragments`, and
    the decoded size of their projected columns. `columns` holds what was told of each column, none
    where the verdict refuses. `filters` are the conditions on the source, for people.
    `table_rows` is the live row count of the version as a whole, None when it was not counted.
    """

    table: str
    version: int
    rows: int
    size_bytes: int
    verdict: Verdict
    columns: Mapping[str, ColumnEstimate] = field(default_factory=dict)
    fragments: int = 0
    fragments_scanned: int = 0
    filters: tuple[str, ...] = ()
    table_rows: int | None = None
