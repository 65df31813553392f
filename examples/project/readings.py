"""The reads of the project's latest runs, from the log in its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Reading:
    """The reads of one run as text; `share` is that of the rows, `commits` those to tables."""

    rows: str
    fragments: str
    pairs: str
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
    tables = [result for result in results if result["kind"] == "table"]
    return Reading(
        rows=f"{rows:,} of {all_rows:,}",
        fragments=f"{fragments:,} of {all_fragments:,}",
        pairs=f"{_sum(results, 'pairs'):,} of {_all_pairs(results):,}",
        commits=sum(result["version_published"] is not None for result in tables),
        share=rows / all_rows,
    )


def _sum(results: Sequence[Mapping[str, object]], key: str) -> int:
    return sum(value for result in results if isinstance(value := result.get(key), int))


def _all_pairs(results: Sequence[Mapping[str, object]]) -> int:
    sides = [(result.get("left_rows"), result.get("right_rows")) for result in results]
    return sum(
        left * right for left, right in sides if isinstance(left, int) and isinstance(right, int)
    )
