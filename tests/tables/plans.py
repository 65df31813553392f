"""Plans to render: values only, no dataset behind them."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from lancestat.errors import DatasetMissing, LancestatError, Location
from lancestat.lake.snapshot import Field, Pin
from lancestat.runs.actions import Action, Blocked, Figures, Plan, Reason, Skip, Verb
from lancestat.spec.model import Publish
from lancestat.tables.action import (
    MergePartials,
    PublishStatistics,
    ReadFragments,
    RestampStatistics,
    Scan,
    TableAction,
    TableStage,
    TableVersion,
)

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


def scans(sizes: Figures, keys: frozenset[str] = KEYS) -> tuple[Scan, ...]:
    count = sizes.fragments_scanned
    return tuple(
        Scan(i, bytes(16), keys, sizes.rows_scanned // count, sizes.bytes_scanned // count)
        for i in range(count)
    )


def version(sizes: Figures) -> TableVersion:
    return TableVersion(
        pin=Pin("warehouse/t.lance", sizes.version_read, "m"),
        identity="t",
        fields=FIELDS,
        schema_hash="0" * 64,
        content_digest="0",
        rows=sizes.rows_total,
        live=frozenset(),
        config={},
        fragments=sizes.fragments_total,
    )


def action(
    node: str, verb: Verb, reasons: tuple[Reason, ...], sizes: Figures, *stages: TableStage
) -> TableAction:
    publish = PublishStatistics(Publish.MANIFEST)
    return TableAction(node, verb, reasons, sizes, version(sizes), (*stages, publish))


def analyze(node: str = "lineitem", notes: tuple[str, ...] = ()) -> TableAction:
    sizes = figures(17, 17, 6_001_215, 6_001_215, 212_345_678)
    stages = (ReadFragments(scans(sizes)), MergePartials(18))
    return replace(action(node, "analyze", (Reason.NEW,), sizes, *stages), notes=notes)


def refresh(node: str = "orders", keys: frozenset[str] = KEYS) -> TableAction:
    sizes = figures(17, 1, 4_250_000, 250_000, 12_345_678)
    reasons = (Reason.ROWS_APPENDED, Reason.FRAGMENTS_REWRITTEN)
    stages = (ReadFragments(scans(sizes, keys)), MergePartials(18))
    return action(node, "refresh", reasons, sizes, *stages)


def republish(node: str = "nation") -> TableAction:
    sizes = figures(1, 0, 25)
    return action(node, "refresh", (Reason.PUBLISH_ALTERED,), sizes, MergePartials(18))


def restamp(node: str = "part") -> TableAction:
    sizes = figures(4, 0, 200_000)
    stage = RestampStatistics(18, (("a", "b"),))
    return action(node, "restamp", (Reason.VERSION_MOVED,), sizes, stage)


def skip(node: str = "supplier", notes: tuple[str, ...] = ()) -> Skip:
    return Skip(node, (Reason.UNCHANGED,), figures(1, 0, 10_000), notes)


def blocked(node: str = "customer", error: LancestatError | None = None) -> Blocked:
    missing = DatasetMissing(
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
