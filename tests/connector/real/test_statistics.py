"""Statistics that lancestat publishes reach the connector, and those of its ANALYZE lancestat."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lancestat
from lancestat.lake.fingerprint import schema_hash
from lancestat.lake.open import snapshot
from lancestat.runs.actions import Reason, Skip
from lancestat.spec.model import Policy
from lancestat.tables.judgement import Verdict
from lancestat.tables.stored import table_records
from lancestat.tables.wire import (
    COLUMN_PREFIX,
    JOINT_PREFIX,
    NEWEST_FRAGMENT,
    SCHEMA_HASH,
    GuardReason,
    PublishedStatistics,
    decode_statistics,
    published_entries,
)
from tests.connector.every_type import (
    BLOBS,
    EVERY_COLUMN,
    MAPS,
    NOT_ALWAYS_OPENED,
    NOT_OPENED,
    NOT_READ,
    READ_ALONE,
    joined,
    write,
)
from tests.integration.planned import planned
from tests.runs.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALLOW_STALE = "spark.lance.cbo.column.stats.allow.stale"
ENABLED = "spark.lance.cbo.column.stats.enabled"
# All that the connector reads, and analyzes; JSON at the top it has no way to read.
ANALYZED = EVERY_COLUMN.keys() - (NOT_OPENED | NOT_ALWAYS_OPENED | NOT_READ | BLOBS | MAPS)
ANALYZED -= {READ_ALONE, "json", "large_json"}
# Spark fails to analyze a table with one of these.
TIMES = {"time_s", "time_ms", "time_us", "time_ns"}


@pytest.fixture(autouse=True)
def _settings(session: SparkSession, has_statistics: bool) -> Iterator[None]:
    if not has_statistics:
        pytest.skip("this build knows nothing of lance.stats")
    yield
    for key in (ALLOW_STALE, ENABLED):
        session.conf.unset(key)


def numbers(count: int, start: int = 0) -> pa.Table:
    whole = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(whole, pa.int64()),
            "x": pa.array([n / 2 for n in whole], pa.float64()),
            "odd name": pa.array([n % 3 for n in whole], pa.int32()),
            "text": pa.array([f"t{n % 5}" for n in whole]),
        }
    )


class Shared:
    """One table, as lancestat and as the connector have it."""

    def __init__(self, session: SparkSession, path: Path) -> None:
        self.session = session
        self.world = World(path)

    @property
    def theirs(self) -> DataFrame:
        """The table in the connector's catalog, and nothing of lancestat's between."""
        return self.session.table(f"lance.{self.world.path.stem}")

    @property
    def unpushed(self) -> DataFrame:
        """The same, but filters stay in Spark's plan, which estimates them there alone."""
        reader = self.session.read.option("pushDownFilters", "false")
        return reader.table(f"lance.{self.world.path.stem}")

    @property
    def ours(self) -> DataFrame:
        return lancestat.read_table(self.session, str(self.world.path))

    def analyze(self, columns: str = "ALL COLUMNS") -> None:
        name = self.world.path.stem
        self.session.sql(f"ANALYZE TABLE lance.{name} COMPUTE STATISTICS FOR {columns}").collect()

    def run(self) -> None:
        assert self.world.run().status == "success"

    def judged(self) -> Verdict:
        return self.world.assess()[1].verdict


@pytest.fixture
def shared(session: SparkSession, warehouse: Path) -> Shared:
    path = warehouse / f"shared_{len(list(warehouse.iterdir()))}.lance"
    lance.write_dataset(numbers(20), path, max_rows_per_file=10)
    return Shared(session, path)


def told(frame: DataFrame) -> dict[str, str]:
    """Return the statistics of each column that Spark's optimizer has."""
    return {name: str(stat) for name, stat in planned(frame).columns.items()}


@pytest.mark.parametrize(
    ("version", "names"), [("2.1", sorted(ANALYZED)), ("2.2", sorted(BLOBS | MAPS | {"json"}))]
)
def test_the_connector_uses_what_lancestat_publishes(
    session: SparkSession, warehouse: Path, version: str, names: list[str]
) -> None:
    table = Shared(session, warehouse / f"published{version[-1]}.lance")
    write(joined(names), table.world.path, version)
    table.run()
    [record] = table_records(table.world.state).values()
    published = {
        name for name in record.columns if f"{COLUMN_PREFIX}{name}.version" in record.values
    }
    known = [name for name in table.theirs.columns if name in published]
    assert {"id", "string" if "string" in names else "id"} <= set(known)
    assert told(table.theirs.select(known)) == told(table.ours.select(known))
    assert told(table.theirs).keys() == set(known)
    # Of times without a zone nothing is published, with which Spark could not plan these.
    local = {name for name, type in table.theirs.dtypes if type == "timestamp_ntz"}
    assert local == {name for name in names if "timestamp_ntz" in name}
    for name in local:
        for condition in ("< timestamp_ntz'2026-01-01'", "= timestamp_ntz'2026-01-01'", "is null"):
            assert planned(table.theirs.where(f"{name} {condition}")).rows is not None
        frame = table.theirs.select(name, "id")
        other = frame.toDF("t", "other")
        assert planned(frame.join(other, frame[name] == other["t"])).rows is not None


@pytest.mark.parametrize(
    ("version", "names"), [("2.1", sorted(ANALYZED - TIMES)), ("2.2", [*sorted(BLOBS), "string"])]
)
def test_lancestat_uses_what_analyze_writes(
    session: SparkSession, warehouse: Path, version: str, names: list[str]
) -> None:
    table = Shared(session, warehouse / f"analyzed{version[-1]}.lance")
    write(joined(names), table.world.path, version)
    table.analyze()
    assert table.judged().reason is GuardReason.CURRENT
    config = table.world.dataset.config()
    assert config[SCHEMA_HASH] == schema_hash(snapshot(table.world.dataset).fields)
    known = sorted(told(table.ours))
    assert {"id", "string"} <= set(known)
    theirs = told(table.theirs.select(known))
    ours = told(table.ours.select(known))
    for name in known:
        assert ours[name] == theirs[name], name


def test_names_that_need_quotes_are_lancestats_alone(shared: Shared) -> None:
    shared.run()
    assert told(shared.ours).keys() == {"id", "x", "odd name", "text"}
    assert told(shared.theirs).keys() == {"id", "x", "text"}


def test_a_current_table_is_not_analyzed_twice(shared: Shared) -> None:
    shared.analyze()
    assert isinstance(shared.world.action(), Skip)


def test_each_replaces_all_that_the_other_wrote(shared: Shared) -> None:
    shared.analyze("COLUMNS id")
    action = shared.world.action()
    assert Reason.COLUMNS_ADDED in action.reasons
    shared.run()
    ours = published_entries(shared.world.dataset.config())
    assert told(shared.theirs).keys() == {"id", "x", "text"}
    shared.analyze("COLUMNS x")
    theirs = published_entries(shared.world.dataset.config())
    assert {key for key in theirs if ".column." in key} < {k for k in ours if ".column." in k}
    assert told(shared.ours).keys() == {"x"}


def test_lancestat_uses_what_analyze_writes_over_its_own(shared: Shared) -> None:
    """ANALYZE leaves lancestat's mark of the newest fragment behind, which is then an older one."""
    shared.run()
    mark = shared.world.dataset.config()[NEWEST_FRAGMENT]
    lance.write_dataset(numbers(10, 20), shared.world.path, mode="append")
    assert shared.judged().reason is GuardReason.STALE
    shared.analyze()
    assert shared.world.dataset.config()[NEWEST_FRAGMENT] == mark
    assert shared.judged().reason is GuardReason.CURRENT
    assert told(shared.ours.select("id", "x", "text")) == told(shared.theirs)
    assert "Some(29)" in told(shared.ours)["id"]


def test_joint_counts_that_analyze_leaves_behind_are_not_used(shared: Shared) -> None:
    shared.world.groups = (("id", "text"),)
    shared.run()
    before = decode_statistics(shared.world.dataset.config())
    assert isinstance(before, PublishedStatistics) and len(before.joint) == 1
    lance.write_dataset(numbers(10, 20), shared.world.path, mode="append")
    shared.analyze()
    config = shared.world.dataset.config()
    assert any(key.startswith(JOINT_PREFIX) for key in config), "else there is nothing to see"
    assert shared.judged().reason is GuardReason.CURRENT
    after = decode_statistics(config)
    assert isinstance(after, PublishedStatistics) and not after.joint and after.columns


@pytest.mark.parametrize("writer", ["lancestat", "analyze"])
def test_stale_statistics_need_a_policy_here_and_a_setting_there(
    shared: Shared, writer: str
) -> None:
    shared.run() if writer == "lancestat" else shared.analyze()
    lance.write_dataset(numbers(10, 20), shared.world.path, mode="append")
    assert told(shared.theirs) == told(shared.ours) == {}
    shared.world.policy = Policy("tolerant", allow_stale=True)
    assert shared.judged().reason is GuardReason.STALE_ACCEPTED
    # The policy is the project's: the connector does not see it.
    assert told(shared.theirs) == {}
    shared.session.conf.set(ALLOW_STALE, "true")
    assert told(shared.theirs) == told(shared.ours.select("id", "x", "text")) != {}
    assert planned(shared.theirs).rows == planned(shared.ours).rows == 30


def test_both_can_be_switched_off(shared: Shared) -> None:
    shared.run()
    shared.session.conf.set(ENABLED, "false")
    assert told(shared.theirs) == told(shared.ours) == {}


def test_a_changed_schema_is_refused_by_both(shared: Shared) -> None:
    shared.run()
    shared.world.dataset.add_columns({"more": "id + 1"})
    shared.session.conf.set(ALLOW_STALE, "true")
    assert told(shared.theirs) == told(shared.ours) == {}
    assert shared.judged().reason is GuardReason.SCHEMA_CHANGED


def test_columns_with_nan_and_infinity_have_no_bounds(
    session: SparkSession, warehouse: Path
) -> None:
    table = Shared(session, warehouse / "odd_numbers.lance")
    columns = {
        "nan": [1.5, math.nan, -2.0, None],
        "infinite": [1.5, math.inf, -math.inf, None],
        "finite": [1.5, -0.0, -2.0, None],
    }
    lance.write_dataset(pa.table(columns), table.world.path)
    table.run()
    theirs = told(table.theirs)
    # The reader of lancestat says nothing of columns without bounds.
    assert told(table.ours) == {"finite": theirs.pop("finite")}
    assert all(text.startswith("ColumnStat(None,None,None,Some(1)") for text in theirs.values())
    # Without the null count, a null counts among the rows of a condition.
    for frame, rows in ((table.unpushed, 3), (table.ours, 4)):
        assert planned(frame.where("nan > 1.5")).rows == rows
        assert planned(frame.where("nan = 1.5")).rows == rows
        assert planned(frame.where("infinite > 1.5")).rows == rows
        assert planned(frame.where("finite > 1.5")).rows == 0


def test_analyze_writes_bounds_that_lancestat_leaves_out(
    session: SparkSession, warehouse: Path
) -> None:
    """With them Spark cannot plan a query over the connector's table."""
    table = Shared(session, warehouse / "analyzed_nan.lance")
    lance.write_dataset(pa.table({"nan": [1.5, math.nan, -2.0]}), table.world.path)
    table.analyze()
    assert table.world.dataset.config()["lance.stats.column.nan.max"] == "NaN"
    with pytest.raises(Exception, match="assertion failed"):
        planned(table.unpushed.where("nan > 0"))
    assert planned(table.ours.where("nan > 1.5")).rows == 3
    assert table.ours.where("nan > 1.5").count() == 1
