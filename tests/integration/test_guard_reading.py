"""A reader refuses statistics with one defect, logs the reason, and returns correct rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pytest

import lancestat
from lancestat.query.read.relation import Relation, relate
from lancestat.query.table import DeclaredTables, ReadTable
from lancestat.tables.wire import (
    COLUMN_PREFIX,
    COMPLETE,
    COMPUTED_AT_VERSION,
    NEWEST_FRAGMENT,
    NUM_ROWS,
    PREFIX,
    SCHEMA_HASH,
    VERSION,
    WRITER,
)
from tests.integration.planned import Planned, planned, with_cbo
from tests.runs.world import Clock, World, orders, write_project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 60
LOGGER = "lancestat.read"
ENABLED = "spark.lance.cbo.column.stats.enabled"
ALLOW_STALE = "spark.lance.cbo.column.stats.allow.stale"
# The size that Spark assumes for a row of bigint, string and double without statistics.
UNKNOWN_WIDTH = 8 + 8 + 20 + 8


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return with_cbo(spark)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table of three fragments whose statistics are current."""
    path = tmp_path / "orders.lance"
    lance.write_dataset(orders(0, ROWS), path, max_rows_per_file=20)
    assert World(path, clock=Clock(datetime.now(timezone.utc))).run().status == "success"
    return path


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, LOGGER):
        yield


def corrupt(path: Path, entries: Mapping[str, str | None]) -> None:
    """Change entries as another writer, in a commit that keeps them current by default."""
    dataset = lance.dataset(path)
    unmarked = {WRITER: None, NEWEST_FRAGMENT: None}
    tag = {COMPUTED_AT_VERSION: str(dataset.version + 1)}
    dataset.update_config({**unmarked, **tag, **entries})


def column(key: str) -> str:
    return COLUMN_PREFIX + key


def everything(path: Path) -> dict[str, str | None]:
    return {key: None for key in lance.dataset(path).config() if key.startswith(PREFIX)}


def answer(frame: DataFrame) -> list[tuple[object, ...]]:
    """Return the rows of a query with a filter, a self-join and an aggregate."""
    other = frame.select("o_id").where("o_id >= 30").withColumnRenamed("o_id", "o_other")
    joined = frame.where("o_total < 10").join(other, frame.o_id + 20 == other.o_other)
    counted = joined.groupBy("o_status").count().collect()
    return sorted((tuple(row) for row in counted), key=repr)


def assert_right(frame: DataFrame, path: Path) -> None:
    rows = lance.dataset(path).to_table()
    assert sorted(map(tuple, frame.collect())) == sorted(
        tuple(row.values()) for row in rows.to_pylist()
    )
    ids = set(rows["o_id"].to_pylist())
    statuses = [
        row["o_status"]
        for row in rows.to_pylist()
        if row["o_total"] < 10 and row["o_id"] + 20 in ids and row["o_id"] + 20 >= 30
    ]
    expected = [(status, statuses.count(status)) for status in set(statuses)]
    assert answer(frame) == sorted(expected, key=repr)


def assert_refused(
    frame: DataFrame, path: Path, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Check that only rows and size are reported, the reason is logged once, and rows are right."""
    live = lance.dataset(path).count_rows()
    assert planned(frame) == Planned(live, live * UNKNOWN_WIDTH, {})
    assert_right(frame, path)
    records = [record for record in caplog.records if record.name == LOGGER]
    assert [record.levelno for record in records] == [logging.INFO]
    assert reason in records[0].getMessage().split()
    assert path.name in records[0].getMessage()


def is_used(frame: DataFrame) -> bool:
    return bool(planned(frame).columns)


def read(session: SparkSession, path: Path, options: Mapping[str, str] | None = None) -> DataFrame:
    return lancestat.read_table(session, str(path), options=options)


def test_current_statistics_are_used_without_a_warning(
    session: SparkSession, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frame = read(session, path)
    statistics = planned(frame)
    assert list(statistics.columns) == ["o_id", "o_status", "o_total"]
    assert statistics.rows == ROWS
    assert_right(frame, path)
    assert not [record for record in caplog.records if record.name == LOGGER]


# One defect per reason: tests/tables/test_wire.py tries every other.
DEFECTS: list[tuple[Mapping[str, str | None], str]] = [
    ({VERSION: "2"}, "unknown_format"),
    ({COMPLETE: "false"}, "incomplete"),
    ({COMPUTED_AT_VERSION: "9" * 300}, "malformed"),
    ({SCHEMA_HASH: "'; drop table orders; --"}, "schema_changed"),
    ({COMPUTED_AT_VERSION: "1"}, "stale"),
    ({COMPUTED_AT_VERSION: "99"}, "stale"),
]


@pytest.mark.parametrize(("entries", "reason"), DEFECTS)
def test_one_wrong_entry_is_refused(
    entries: Mapping[str, str | None],
    reason: str,
    session: SparkSession,
    path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    corrupt(path, entries)
    assert_refused(read(session, path), path, reason, caplog)


@pytest.mark.parametrize(
    "entries",
    [
        {column("o_id.max"): "7"},
        {column("o_id.nullCount"): None},
        {NEWEST_FRAGMENT: "0" * 32},
    ],
    ids=str,
)
def test_altered_entries_are_refused(
    entries: Mapping[str, str | None],
    session: SparkSession,
    path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever the policy accepts."""
    session.conf.set(ALLOW_STALE, "true")
    lance.dataset(path).update_config(dict(entries))
    changed = lance.dataset(path).config()
    assert_refused(read(session, path), path, "altered", caplog)
    assert changed == lance.dataset(path).config()


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing published": (
        lambda path: lance.dataset(path).update_config(everything(path)),
        "absent",
    ),
    "appended": (
        lambda path: lance.write_dataset(orders(ROWS, 7), path, mode="append"),
        "stale",
    ),
    "deleted": (lambda path: lance.dataset(path).delete("o_id % 4 = 0"), "stale"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_statistics_of_another_table_are_refused(
    change: str, session: SparkSession, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows that were appended are counted, and those that were deleted are not."""
    act, reason = CHANGES[change]
    act(path)
    assert_refused(read(session, path), path, reason, caplog)


def test_the_row_count_is_that_of_live_rows(session: SparkSession, path: Path) -> None:
    corrupt(path, {NUM_ROWS: "1000000000000"})
    assert planned(read(session, path)).rows == ROWS


@pytest.mark.parametrize("entry", ["o_id.version=3", "o_id.min=1; drop table orders"])
def test_only_the_unreadable_column_is_omitted(
    entry: str, session: SparkSession, path: Path
) -> None:
    key, _, text = entry.partition("=")
    corrupt(path, {column(key): text})
    frame = read(session, path)
    assert list(planned(frame).columns) == ["o_status", "o_total"]
    assert_right(frame, path)


POISONS = [
    "1" * 257,
    "x" * 100_000,
    "0 or 1=1; drop table orders; --",
    "${jndi:ldap://127.0.0.1/x}",
    "{{ 7 * 7 }}",
    "\x00\x1b[2J\n'\"\\",
    "\U0001f600" * 200,
]


@pytest.mark.parametrize(
    ("suffix", "poison"),
    [*zip(cycle(["min", "max", "distinctCount", "nullCount", "avgLen"]), POISONS, strict=False)],
    ids=lambda text: ascii(text[:8]),
)
def test_a_malicious_value_has_no_effect(
    poison: str, suffix: str, session: SparkSession, path: Path
) -> None:
    corrupt(path, {column(f"o_id.{suffix}"): poison, column("o_id.note"): poison, poison: poison})
    frame = read(session, path)
    statistics = planned(frame)
    assert statistics.rows == ROWS
    assert {"o_status", "o_total"} <= set(statistics.columns)
    assert planned(frame.where("o_id < 10")).rows > 0
    assert_right(frame, path)


def test_a_long_malicious_tag_is_shortened(
    session: SparkSession, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tag = "x" * 300
    corrupt(path, {VERSION: tag})
    assert_refused(read(session, path), path, "unknown_format", caplog)
    assert tag not in caplog.text


@pytest.mark.parametrize("by", ["session", "scan"])
def test_the_kill_switch_disables_statistics(
    by: str, session: SparkSession, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if by == "session":
        session.conf.set(ENABLED, "FALSE")
    off = {} if by == "session" else {"cbo.column.stats.enabled": "false"}
    assert_refused(read(session, path, off), path, "disabled", caplog)


def test_the_kill_switch_applies_to_tables_already_read(session: SparkSession, path: Path) -> None:
    frame = read(session, path)
    session.conf.set(ENABLED, "false")
    assert not is_used(frame.where("o_id < 5"))
    session.conf.set(ENABLED, "true")
    assert is_used(frame.where("o_id < 6"))


# The session's configuration, the scan's option, the declared policy, and the expected use:
# tests/query/test_estimates.py tries every order of precedence, and every bound.
STALENESS: list[tuple[str | None, str | None, object, bool]] = [
    (None, None, False, False),
    (None, None, True, True),
    (None, "true", False, True),
    ("true", "false", False, True),
    (None, None, {"max_versions": 2, "max_age": "1h", "max_changed_rows": "20%"}, True),
    (None, None, {"max_versions": 2, "max_age": "1h", "max_changed_rows": "5%"}, False),
    ("false", None, {"max_versions": 2}, False),
]


@pytest.mark.parametrize(("conf", "option", "policy", "used"), STALENESS)
def test_staleness_is_allowed_by_session_then_scan_then_policy(
    conf: str | None,
    option: str | None,
    policy: object,
    used: bool,
    session: SparkSession,
    path: Path,
) -> None:
    go_stale(path)
    options = {} if option is None else {"cbo.column.stats.allow.stale": option}
    frame = declare(path, policy, session, options)
    if conf is not None:
        session.conf.set(ALLOW_STALE, conf)
    assert is_used(frame) is used
    assert planned(frame).rows == ROWS + 6
    assert_right(frame, path)


def go_stale(path: Path) -> None:
    """Two versions past the statistics, with 6 rows more."""
    lance.write_dataset(orders(ROWS, 3), path, mode="append")
    lance.write_dataset(orders(ROWS + 3, 3), path, mode="append")


def declare(
    path: Path, policy: object, session: SparkSession, options: Mapping[str, str] | None = None
) -> DataFrame:
    """The table as a project with that policy opens it, read with a scan's options."""
    table = {"name": "orders", "uri": path.name, "policy": {"allow.stale": policy}}
    project = write_project(path.parent, table)
    if not options:
        project.attach(session)
        return session.table("orders")
    tables = DeclaredTables(project.spec, project.state, lambda: datetime.now(timezone.utc))
    table = tables.open(project.spec.tables)["orders"]
    assert isinstance(table, ReadTable)
    [frame] = relate(session, [Relation(table, options=options)])
    return frame
