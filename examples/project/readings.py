"""What the project's latest runs read, from the log in its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Reading:
    """What one run read, in words; `share` is that of the rows."""

    rows: str
    fragments: str
    commits: int
    share: float


def readings(folder: Path) -> tuple[Reading, Reading]:
    """The last run but one, and the last one."""
    from lancestat.project import Project

    last, before = Project.load(folder).state.runs(limit=2)
    return _reading([node.result for node in before.nodes]), _reading(
        [node.result for node in last.nodes]
    )


def _reading(results: Sequence[Mapping[str, object]]) -> Reading:
    rows, all_rows = _sum(results, "rows_scanned"), _sum(results, "rows_total")
    fragments, all_fragments = _sum(results, "fragments_scanned"), _sum(results, "fragments_total")
    return Reading(
        rows=f"{rows:,} of {all_rows:,}",
        fragments=f"{fragments:,} of {all_fragments:,}",
        commits=sum(result["version_published"] is not None for result in results),
        share=rows / all_rows,
    )


def _sum(results: Sequence[Mapping[str, object]], key: str) -> int:
    return sum(found for result in results if isinstance(found := result[key], int))
