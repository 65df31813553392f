"""Project reports as they could be gathered, made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path

from lancestat.errors import DatasetMissing, Location
from lancestat.joins.action import JoinFigures
from lancestat.joins.record import (
    Accuracy,
    InputRecord,
    JoinCounts,
    JoinDistances,
    JoinRecord,
    OutputState,
    RankDistances,
)
from lancestat.report.joins import JoinReport
from lancestat.report.tables import FragmentReport, TableReport
from lancestat.report.values import Health, NodeReport, ProjectReport
from lancestat.runs.result import NodeResult, PastRun, Status
from lancestat.spec.model import KnnJoin, KnnSide, Policy, ProjectSpec, StaleBounds, Table, Target
from lancestat.tables.statistics.column_statistics import Histogram, HistogramBin
from lancestat.tables.table_status import TableStatus
from lancestat.tables.wire import PublishedColumn

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=timezone.utc)
TOLERANT = Policy("tolerant", "Dashboards only.", StaleBounds(20, timedelta(hours=24), 0.05))


def evenly(low: float, high: float, bins: int = 254, rows: float = 1000.0) -> Histogram:
    """A histogram of values that are as frequent everywhere."""
    ends = [low + (high - low) * at / bins for at in range(bins + 1)]
    pairs = pairwise(ends)
    return Histogram(rows, tuple(HistogramBin(*pair, 20) for pair in pairs))


def leaning(low: float, high: float, bins: int = 254, rows: float = 1000.0) -> Histogram:
    """A histogram of values most of which are near the lower end."""
    ends = [low + (high - low) * (at / bins) ** 3 for at in range(bins + 1)]
    pairs = pairwise(ends)
    return Histogram(rows, tuple(HistogramBin(*pair, 20) for pair in pairs))


COLUMNS: Mapping[str, PublishedColumn] = {
    "o_orderkey": PublishedColumn(0, 1_503_120, "1", "6000000", 8, 8),
    "o_custkey": PublishedColumn(0, 99_996, "1", "149999", 8, 8),
    "o_orderstatus": PublishedColumn(0, 3, None, None, 1, 1),
    "o_totalprice": PublishedColumn(0, 1_464_556, "857.71", "555285.16", 8, 8),
    "o_orderdate": PublishedColumn(0, 2_406, "1992-01-01", "1998-08-02", 4, 4),
    "o_clerk": PublishedColumn(12_000, 1000, None, None, 15, 15),
    "o_comment": PublishedColumn(731_204, 1_482_071, None, None, 49, 79),
    "o_seen_at": PublishedColumn(
        1_499_999, 88_411, "2026-01-01 00:00:00.000000", "2026-03-14 09:00:00.123456", 8, 8
    ),
}
HISTOGRAMS = {
    "o_totalprice": leaning(857.71, 555285.16),
    "o_orderdate": evenly(8035, 10440),
    "o_seen_at": leaning(1_767_225_600_000_000, 1_773_478_800_123_456),
}


def table(name: str = "orders", **changes: object) -> Table:
    """A declared table."""
    given: dict[str, object] = {
        "uri": f"s3://warehouse/{name}.lance",
        "location": Location("specs/shop.yml", 2, 11),
        "description": "One row per order. A cancelled order is deleted.",
        "tags": ("nightly", "sales"),
        "owner": "sales@example.com",
        "policy": TOLERANT,
    }
    return Table(name, **{**given, **changes})  # type: ignore[arg-type]


def table_status(name: str = "orders", **changes: object) -> TableStatus:
    """The statistics of a table."""
    given: dict[str, object] = {
        "table": name,
        "uri": f"s3://warehouse/{name}.lance",
        "version": 21,
        "use": True,
        "reason": "stale_accepted",
        "detail": "the statistics describe version 18, the table is at version 21;"
        " the policy accepts it",
        "policy": "tolerant",
        "rows": 1_500_000,
        "fragments": 17,
        "size_bytes": 212_000_000,
        "disk_bytes": 48_000_000,
        "computed_at": NOW - timedelta(hours=7),
        "columns": COLUMNS,
        "dropped": {},
        "analyzable": 9,
        "missing": ("o_new",),
        "skipped": ("o_vector: array<float> has no statistics",),
        "versions_behind": 3,
        "age": timedelta(hours=7),
        "changed_rows": 0.0123,
    }
    return TableStatus(**{**given, **changes})  # type: ignore[arg-type]


def past_run(result: NodeResult, run_id: str, ended_at: datetime) -> PastRun:
    """The run of one node."""
    return PastRun(run_id, "run", "prod", result.status.value, ended_at, ended_at, (result,))


def table_run(name: str = "orders", number: int = 0, **changes: object) -> PastRun:
    """The run of a table `number` nights ago."""
    given: dict[str, object] = {
        "name": name,
        "kind": "table",
        "action": "refresh",
        "reasons": ("rows_appended", "columns_added"),
        "status": Status.SUCCESS,
        "fragments_total": 17 - number,
        "fragments_scanned": 1,
        "columns": 8,
        "rows_total": 1_500_000 - 88_000 * number,
        "rows_scanned": 88_000,
        "version_read": 17 - number,
        "version_published": 18 - number,
        "elapsed_seconds": 1.24,
    }
    result = NodeResult(**{**given, **changes})  # type: ignore[arg-type]
    return past_run(result, f"run-{number}", NOW - timedelta(hours=7, days=number))


def table_report(name: str = "orders", **changes: object) -> TableReport:
    """Return the report of a table."""
    given: dict[str, object] = {
        "spec": table(name),
        "health": Health.OK,
        "problems": (),
        "verdict": "use",
        "reasons": ("stale_accepted",),
        "status": table_status(name),
        "changed_at": NOW - timedelta(hours=2),
        "histograms": HISTOGRAMS,
        "fragments": tuple(FragmentReport(id, 88_235, id % 3, 1, 2_800_000, 8) for id in range(17)),
        "runs": (
            table_run(name, 0),
            table_run(name, 1, action="skip", reasons=("unchanged",), fragments_scanned=0),
            table_run(name, 2),
            table_run(name, 3, action="analyze", reasons=("new",), fragments_scanned=14),
        ),
    }
    return TableReport(**{**given, **changes})  # type: ignore[arg-type]


def join(name: str = "similar_parts", **changes: object) -> KnnJoin:
    """A declared join of a table and a query."""
    sql = "select p_partkey, p_name, emb\nfrom part\nwhere p_size < 20"
    given: dict[str, object] = {
        "left": KnnSide("emb", ("query_id",), ("orders",), table="orders"),
        "right": KnnSide("emb", ("p_partkey", "p_name"), ("part",), sql=sql),
        "k": 10,
        "output_format": "lance",
        "output_uri": "s3://warehouse/similar_parts.lance",
        "location": Location("specs/shop.yml", 8, 11),
        "metric": "cosine",
        "mode": "approx",
        "recall": 0.95,
        "tags": ("catalogue",),
        "description": "For each query, the parts that are most like it.",
    }
    return KnnJoin(name, **{**given, **changes})  # type: ignore[arg-type]


COUNTS, ACCURACY = JoinCounts(20_000, 180_000, 3, 41), Accuracy(0.968, 12)


def rank_distances(rank: int | None, middle: int = 12, **changes: object) -> RankDistances:
    """Distances most of which are in the interval `middle`."""
    counts = tuple(max(0, 900 - 7 * (at - middle) ** 2) for at in range(36))
    given = RankDistances(rank, counts, 0, 2, (middle / 64, (middle + 9) / 64, 1.5))
    return replace(given, **changes)  # type: ignore[arg-type]


def distances(**changes: object) -> JoinDistances:
    """The distances of a run that joined every left row."""
    ranks = tuple(rank_distances(rank, 8 + 4 * at) for at, rank in enumerate((1, 2, 3, 5, 10)))
    return replace(JoinDistances(20_000, 0.125, 1 / 64, ranks), **changes)  # type: ignore[arg-type]


def join_run(
    name: str = "similar_parts",
    number: int = 0,
    figures: JoinFigures | None = None,
    **changes: object,
) -> PastRun:
    """The run of a join `number` nights ago."""
    counts = replace(COUNTS, unmatched_left_rows=3 + number % 3 * 7)
    accuracy = Accuracy(0.968 - 0.004 * (number % 5), 12)
    given: dict[str, object] = {
        "name": name,
        "kind": "knn_join",
        "action": "refresh",
        "reasons": ("input_changed",),
        "status": Status.SUCCESS,
        "version_published": 7 - number,
        "elapsed_seconds": 12.5 + number,
        "figures": figures or JoinFigures("ivf", "new_left", counts, 3_600_000_000, accuracy),
    }
    result = NodeResult(**{**given, **changes})  # type: ignore[arg-type]
    return past_run(result, f"run-{number}", NOW - timedelta(hours=7, days=number))


def join_report(name: str = "similar_parts", **changes: object) -> JoinReport:
    """Return the report of a join."""
    given: dict[str, object] = {
        "spec": join(name),
        "health": Health.OK,
        "problems": (),
        "verdict": "current",
        "reasons": (),
        "record": JoinRecord(
            name,
            "digest",
            InputRecord("left", 3, 2, 20_000),
            InputRecord("right", 0, -1, 180_000),
            OutputState(199_970, "result", 7),
            COUNTS,
            "ivf",
            NOW - timedelta(hours=7),
            ACCURACY,
            distances(),
        ),
        "runs": (
            join_run(name, 0),
            join_run(name, 1, action="skip", reasons=("unchanged",), elapsed_seconds=0.0),
            join_run(name, 2),
            join_run(name, 3, action="analyze", reasons=("new",)),
        ),
        "results": tuple(join_run(name, number) for number in (0, 2, 3)),
    }
    return JoinReport(**{**given, **changes})  # type: ignore[arg-type]


def unreadable(name: str = "part") -> TableReport:
    """A table whose dataset cannot be opened."""
    error = DatasetMissing(f"no dataset at s3://warehouse/{name}.lance", hint="write it first")
    failed = table_run(
        name,
        0,
        status=Status.ERROR,
        message=error.message,
        code=error.code,
        hint=error.hint,
        elapsed_seconds=0.1,
    )
    return table_report(
        name,
        health=Health.ERROR,
        problems=("the dataset cannot be opened",),
        verdict="refuse",
        reasons=("unreadable",),
        status=None,
        error=error,
        changed_at=None,
        histograms={},
        fragments=(),
        runs=(failed,),
    )


def stale(name: str = "customer") -> TableReport:
    """A table whose statistics are refused, and whose rows are old."""
    return table_report(
        name,
        health=Health.WARN,
        problems=("rows last changed 2 d ago, warn_after is 1 d",),
        freshness=Health.WARN,
        verdict="refuse",
        reasons=("stale",),
        changed_at=NOW - timedelta(days=2),
        histograms={},
        status=table_status(name, use=False, reason="stale", missing=()),
        runs=(),
    )


def project(
    *nodes: NodeReport, reads: Mapping[str, tuple[str, ...]] | None = None
) -> ProjectReport:
    """A report of these nodes, or of one of each sort."""
    given = nodes or (table_report(), unreadable(), stale(), join_report())
    edges = {"similar_parts": ("orders", "part")} if reads is None and not nodes else reads or {}
    return ProjectReport("shop", "prod", NOW, given, edges)


def spec_of(report: ProjectReport, root: Path, **changes: object) -> ProjectSpec:
    """The project that a report is of."""
    given: dict[str, object] = {
        "name": report.name,
        "root": root,
        "target": Target(report.target, "state"),
        "nodes": tuple(node.spec for node in report.nodes),
        "policies": {},
    }
    return ProjectSpec(**{**given, **changes})  # type: ignore[arg-type]
