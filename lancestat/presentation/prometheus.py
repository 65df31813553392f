"""The format `prometheus`: what is known of nodes, as the text that Prometheus reads.

It is meant for the textfile collector of node_exporter. The form is that of
https://prometheus.io/docs/instrumenting/exposition_formats/, with one line a node and metric. What
is not known of a node is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from lancestat.presentation.terminal import CONSOLE
from lancestat.presentation.views import Format, Page, StatusView

if TYPE_CHECKING:
    from lancestat.report.values import NodeReport

FORMAT: Format[str] = Format(CONSOLE.csv, is_published=True)

# The name of each metric of a node, after `lancestat_`, and what it means. Values are those of the
# JSON of `status`, under the names of `_SAMPLES`, or of `_own`.
_METRICS = {
    "health": "0 where the node is well, 1 for a warning, 2 for an error.",
    "usable": "1 where readers may use the statistics, or the result of the join is current.",
    "staleness_versions": "Versions of the table since the one that its statistics describe.",
    "staleness_rows_ratio": "Share of the rows that changed since then.",
    "age_seconds": "Time since the statistics, or the result of the join, were computed.",
    "rows_age_seconds": "Time since rows of the table last changed.",
    "rows": "Rows of the table, or of the result of the join.",
    "fragments": "Fragments of the table.",
    "size_bytes": "Size of the table as Spark estimates it.",
    "disk_bytes": "Size of the table's files.",
    "columns_wanted": "Columns that are to have statistics.",
    "columns_covered": "Columns that have statistics.",
    "recall_ratio": "Measured recall of an approximate join.",
    "unmatched_left_rows": "Left rows of the join that matched nothing.",
    "last_run_timestamp_seconds": "When the last run of the node ended.",
    "last_run_seconds": "How long the last run of the node took.",
    "last_run_success": "1 where the last run of the node ended well.",
    "last_run_rows": "Rows that the last run read.",
    "last_run_bytes": "Bytes that the last run read, as estimated.",
}
_SAMPLES = {
    "staleness_versions": "versions_behind",
    "staleness_rows_ratio": "changed_rows",
    "recall_ratio": "recall",
}
_HEALTH = {"ok": 0, "warn": 1, "error": 2}
_USABLE = frozenset(("use", "current"))
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@FORMAT.renders(StatusView)
def _status(view: StatusView, page: Page) -> str:
    report = view.report
    project = {"project": report.name, "target": report.target}
    lines = list(
        _metric(
            "status_timestamp_seconds",
            "When these metrics were made.",
            [(project, report.made_at.timestamp())],
            page,
        )
    )
    samples = [
        (
            {**project, "node": node.spec.name, "kind": node.spec.kind.value},
            _values(node, report.made_at),
        )
        for node in report.nodes
    ]
    for name, about in _METRICS.items():
        key = _SAMPLES.get(name, name)
        known = [(labels, values[key]) for labels, values in samples if _is_number(values.get(key))]
        lines += _metric(name, about, known, page)
    return "\n".join(lines)


def _values(node: NodeReport, now: datetime) -> Mapping[str, object]:
    return {
        **node.to_json(now),
        "health": _HEALTH[node.health.value],
        "usable": int(node.verdict in _USABLE),
        **_last_run(node),
    }


def _last_run(node: NodeReport) -> Mapping[str, object]:
    if not node.runs:
        return {}
    run = node.runs[0]
    return {
        "last_run_timestamp_seconds": run.ended_at.timestamp(),
        "last_run_seconds": run.result.elapsed_seconds,
        "last_run_success": int(run.result.status.value == "success"),
        "last_run_rows": run.result.rows_scanned,
        "last_run_bytes": run.result.bytes_scanned,
    }


def _metric(
    name: str, about: str, samples: Sequence[tuple[Mapping[str, str], object]], page: Page
) -> Iterator[str]:
    if samples:
        yield f"# HELP lancestat_{name} {about}"
        yield f"# TYPE lancestat_{name} gauge"
    for labels, value in samples:
        shown = ",".join(
            f'{label}="{page.redacted(text).translate(_ESCAPES)}"' for label, text in labels.items()
        )
        yield f"lancestat_{name}{{{shown}}} {value}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)
