"""A report with every kind of line that a status may have."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from lancestat.errors import DatasetMissing, Location
from lancestat.joins.action import JoinFigures
from lancestat.joins.record import InputRecord, JoinCounts, JoinRecord, OutputState
from lancestat.report.joins import JoinReport
from lancestat.report.tables import TableReport
from lancestat.report.values import Health, ProjectReport
from lancestat.runs.result import NodeResult, PastRun, Status
from lancestat.spec.model import Freshness, KnnJoin, KnnSide, Policy, Table
from lancestat.tables.wire import PublishedColumn
from tests.presentation.site.reports import past_run, table_report, table_status

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=timezone.utc)
PLACE = Location("specs/shop.yml", 1, 1)
HOUR = timedelta(hours=1)

SHOWN = table_status(
    "orders",
    uri="orders.lance",
    version=18,
    reason="current",
    detail="the statistics describe version 18",
    rows=4_250_000,
    columns={
        "o_id": PublishedColumn(0, 4_100_000, "1", "4250000", 8, 8),
        "o_comment": PublishedColumn(1_200, 3_900_000, None, None, 49, 79),
    },
    analyzable=3,
    missing=(),
    skipped=(),
    versions_behind=0,
    changed_rows=0.0,
    covered={"o_id": 17, "o_comment": 16, "o_new": 0},
    types={"o_id": "bigint", "o_comment": "string", "o_new": "double"},
)


def ran(name: str, **changes: object) -> PastRun:
    done = {"fragments_total": 17, "fragments_scanned": 1, "rows_scanned": 250_000}
    given = {"elapsed_seconds": 1.24, **done, **changes}
    status, action = given.pop("status", Status.SUCCESS), given.pop("action", "refresh")
    result = NodeResult(name, "table", action, ("rows_appended",), status, **given)  # type: ignore[arg-type]
    return past_run(result, "4f1c", NOW - 7 * HOUR)


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
    given: dict[str, object] = {
        "reasons": ("current",),
        "status": replace(SHOWN, table=name),
        "freshness": Health.OK,
        "histograms": {},
        "fragments": (),
        "runs": (ran(name),),
    }
    given |= {"spec": spec, "health": health, "problems": problems}
    return table_report(name, **{**given, **changes})


def join(name: str, *problems: str, health: Health = Health.OK, **changes: object) -> JoinReport:
    side = KnnSide("v", None, table="orders", refs=("orders",))
    written_to = {"output_format": "lance", "output_uri": f"{name}.lance"}
    spec = KnnJoin(name, side, side, 3, **written_to, location=PLACE)
    ended, counts = NOW - 7 * HOUR, JoinCounts(200, 20_000, 4, 0)
    sides, written = (InputRecord("l"), InputRecord("r")), OutputState(592, "o", 4)
    record = JoinRecord(name, "d", *sides, written, counts, "exact", ended)
    figures = JoinFigures("exact", "full", counts, 4_000_000)
    result = NodeResult(name, "knn_join", "analyze", ("new",), Status.SUCCESS, figures=figures)
    run = past_run(replace(result, elapsed_seconds=2.9), "4f1c", ended)
    report = JoinReport(
        spec, health, problems, "current", ("unchanged",), record=record, runs=(run,)
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
