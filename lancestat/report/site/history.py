"""What became of a table from run to run, for a chart."""

from __future__ import annotations

from collections.abc import Sequence

from lancestat.report.values import NodeRunReport


def history(runs: Sequence[NodeRunReport]) -> dict[str, object] | None:
    """Fragments, those that were scanned, and versions by time; None with less than two runs.

    Runs come the newest first, charts go the other way. Times are seconds since 1970.
    """
    told = [run for run in reversed(runs) if run.result.fragments_total is not None]
    moments = {round(run.finished_at.timestamp()) for run in told}
    if len(moments) < 2:
        return None
    return {
        "times": [round(run.finished_at.timestamp()) for run in told],
        "fragments": [run.result.fragments_total for run in told],
        "scanned": [run.result.fragments_scanned or 0 for run in told],
        "versions": [run.result.version_published or run.result.version_read for run in told],
    }
