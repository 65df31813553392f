"""A report with every kind of line that a status may have."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from lancestat.errors import DatasetMissing, Location
from lancestat.joins.action import JoinFigures
from lancestat.joins.record import InputRecord, JoinCounts, JoinRecord, ResultRecord
from lancestat.report.joins import JoinReport
from lancestat.report.tables import TableReport
from lancestat.report.values import Health, ProjectReport
from lancestat.runs.result import NodeResult, PastRun, Status
from lancestat.spec.model import Freshness, KnnJoin, KnnSide, Policy, Table
from lancestat.tables.table_status import TableStatus
from lancestat.tables.wire import PublishedColumn
from tests.presentation.site.reports import past_run

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=timezone.utc)
PLACE = Location("specs/shop.yml", 1, 1)
HOUR = timedelta(hours=1)

SHOWN = TableStatus(
    table="orders",
    uri="orders.lance",
    version=18,
    use=True,
    reason="current",
    detail="the statistics describe version 18",
    policy="tolerant",
    rows=4_250_000,
    fragments=17,
    size_bytes=212_000_000,
    disk_bytes=48_000_000,
    computed_at=NOW - 7 * HOUR,
    columns={
        "o_id": PublishedColumn(0, 4_100_000, "1", "4250000", 8, 8),
        "o_comment": PublishedColumn(1_200, 3_900_000, None, None, 49, 79),
    },
    dropped={},
    analyzable=3,
    missing=(),
    skipped=(),
    versions_behind=0,
    age=7 * HOUR,
    changed_rows=0.0,
    covered={"o_id": 17, "o_comment": 16, "o_new": 0},
    types={"o_id": "bigint", "o_comment": "string", "o_new": "double"},
)


def ran(name: str, **changes: object) -> PastRun:
    result = NodeResult(
        name,
        "table",
        "refresh",
        ("rows_appended",),
        Status.SUCCESS,
        fragments_total=17,
        fragments_scanned=1,
        rows_scanned=250_000,
        elapsed_seconds=1.24,
    )
    changed = replace(result, **changes)  # type: ignore[arg-type]
    return past_run(changed, "4f1c", NOW - 7 * HOUR)


def table(name: str, *problems: str, health: Health = Health.OK, **changes: object) -> TableReport:
    spec = Table(
        name,
        f"{name}.lance",
        PLACE,
        owner="sales@example.com",
        tags=("nightly",),
        policy=Policy("tolerant"),
        freshness=Freshness(12 * HOUR, 24 * HOUR),
    )
    report = TableReport(
        spec=spec,
        health=health,
        problems=problems,
        verdict="use",
        reasons=("current",),
        status=replace(SHOWN, table=name),
        changed_at=NOW - 2 * HOUR,
        freshness=Health.OK,
        runs=(ran(name),),
    )
    return replace(report, **changes)  # type: ignore[arg-type]


def join(name: str, *problems: str, health: Health = Health.OK, **changes: object) -> JoinReport:
    side = KnnSide("v", None, table="orders", refs=("orders",))
    spec = KnnJoin(
        name, side, side, 3, output_format="lance", output_uri=f"{name}.lance", location=PLACE
    )
    record = JoinRecord(
        name,
        "d",
        InputRecord("l"),
        InputRecord("r"),
        ResultRecord(592, "o", 4),
        JoinCounts(200, 20_000, 4, 0),
        "exact",
        NOW - 7 * HOUR,
    )
    result = NodeResult(
        name,
        "knn_join",
        "analyze",
        ("new",),
        Status.SUCCESS,
        elapsed_seconds=2.9,
        figures=JoinFigures("exact", "full", record.counts, 4_000_000),
    )
    report = JoinReport(
        spec=spec,
        health=health,
        problems=problems,
        verdict="current",
        reasons=("unchanged",),
        record=record,
        runs=(past_run(result, "4f1c", NOW - 7 * HOUR),),
    )
    return replace(report, **changes)  # type: ignore[arg-type]


LOST = DatasetMissing("there is no Lance dataset at supplier.lance", hint="is it moved?")
REFUSED = "the statistics describe version 15, the table is at version 18"


def every_kind() -> ProjectReport:
    return ProjectReport(
        "shop",
        "prod",
        NOW,
        (
            table("orders"),
            table(
                "lineitem",
                f"Readers refuse its statistics: {REFUSED}; the policy accepts no distance.",
                "Its rows last changed 2 d 1 h ago, error_after is 1 d.",
                health=Health.ERROR,
                verdict="refuse",
                reasons=("stale",),
                freshness=Health.ERROR,
                changed_at=NOW - 49 * HOUR,
                status=replace(SHOWN, use=False, versions_behind=3, changed_rows=0.0231),
            ),
            table(
                "part",
                reasons=("stale_accepted",),
                status=replace(SHOWN, versions_behind=1, changed_rows=0.00001),
                runs=(ran("part", action="skip", elapsed_seconds=0.01),),
            ),
            table(
                "customer",
                "1 wanted column has no statistics: o_new.",
                health=Health.WARN,
                status=replace(SHOWN, missing=("o_new",)),
                runs=(ran("customer", action="restamp", rows_scanned=0),),
            ),
            table(
                "supplier",
                "LS201: there is no Lance dataset at supplier.lance (is it moved?).",
                "Its last run failed 7 h ago: LS513 the query failed.",
                health=Health.ERROR,
                verdict="refuse",
                reasons=("unreadable",),
                status=None,
                error=LOST,
                changed_at=None,
                freshness=None,
                runs=(ran("supplier", status=Status.ERROR, elapsed_seconds=None, message="no"),),
            ),
            table(
                "nation",
                "It has no statistics yet.",
                health=Health.ERROR,
                verdict="refuse",
                reasons=("absent",),
                status=replace(
                    SHOWN,
                    use=False,
                    columns={},
                    missing=("o_id",),
                    computed_at=None,
                    versions_behind=None,
                    changed_rows=None,
                ),
                runs=(),
            ),
            join("suggestion"),
            join(
                "similar_parts",
                "Its result is behind: rows appended.",
                health=Health.WARN,
                verdict="behind",
                reasons=("rows_appended",),
            ),
            join(
                "near",
                "It has no result yet.",
                health=Health.ERROR,
                verdict="absent",
                reasons=("new",),
                record=None,
                runs=(),
            ),
        ),
        {},
    )
