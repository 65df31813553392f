"""Plans to render: values only, no dataset behind them."""

from __future__ import annotations

import pyarrow as pa

from lancestat.errors import LakeError, LancestatError, Location
from lancestat.lake.snapshot import Field, Pin
from lancestat.plan.actions import (
    Action,
    Analyze,
    Blocked,
    Figures,
    Plan,
    Reason,
    Refresh,
    Restamp,
    Scan,
    Skip,
    TableWork,
)
from lancestat.plan.coverage import Coverage

FIELDS = tuple(Field(i, f"c{i}", pa.int64(), True, "bigint") for i in range(16))
KEYS = frozenset(f"{field.id}:{field.spark_type}" for field in FIELDS)


def figures(
    total: int = 17, scanned: int = 0, rows: int = 4_250_000, rows_scanned: int = 0, size: int = 0
) -> Figures:
    return Figures(
        fragments_total=total,
        fragments_scanned=scanned,
        columns=len(FIELDS),
        rows_total=rows,
        rows_scanned=rows_scanned,
        bytes_scanned=size,
        version_read=17,
    )


def work(found: Figures, keys: frozenset[str] = KEYS) -> TableWork:
    count = found.fragments_scanned
    scans = tuple(
        Scan(i, bytes(16), keys, found.rows_scanned // count, found.bytes_scanned // count)
        for i in range(count)
    )
    return TableWork(
        pin=Pin("warehouse/t.lance", found.version_read, "m"),
        table="t",
        fields=FIELDS,
        schema_hash="0" * 64,
        content_digest="0",
        rows=found.rows_total,
        live=frozenset(),
        scans=scans,
        coverage=Coverage((), (), ()),
        publish=True,
        config={},
        fragments=found.fragments_total,
    )


def analyze(node: str = "lineitem", notes: tuple[str, ...] = ()) -> Analyze:
    found = figures(17, 17, 6_001_215, 6_001_215, 212_345_678)
    return Analyze(node, (Reason.NEW,), found, work(found), notes)


def refresh(node: str = "orders", keys: frozenset[str] = KEYS) -> Refresh:
    found = figures(17, 1, 4_250_000, 250_000, 12_345_678)
    reasons = (Reason.ROWS_APPENDED, Reason.FRAGMENTS_REWRITTEN)
    return Refresh(node, reasons, found, work(found, keys))


def republish(node: str = "nation") -> Refresh:
    found = figures(1, 0, 25)
    return Refresh(node, (Reason.PUBLISH_ALTERED,), found, work(found))


def restamp(node: str = "part") -> Restamp:
    found = figures(4, 0, 200_000)
    return Restamp(node, (Reason.VERSION_MOVED,), found, work(found), (("a", "b"),))


def skip(node: str = "supplier", notes: tuple[str, ...] = ()) -> Skip:
    return Skip(node, (Reason.UNCHANGED,), figures(1, 0, 10_000), notes)


def blocked(node: str = "customer", error: LancestatError | None = None) -> Blocked:
    missing = LakeError(
        "LS201",
        "there is no Lance dataset at warehouse/customer.lance",
        location=Location("specs/shop.yml", 14, 5),
        hint="did you mean 'customers.lance'?",
    )
    return Blocked(node, "table", error or missing)


def plan(*actions: Action) -> Plan:
    return Plan("shop", "dev", actions)


def every_action() -> Plan:
    return plan(
        analyze(notes=("column 'geo' is a struct, which has no statistics",)),
        refresh(),
        refresh("events", frozenset({"1:bigint", "2:bigint"})),
        republish(),
        restamp(),
        skip(notes=("column 'tags' is an array, which has no statistics",)),
        blocked(),
    )
