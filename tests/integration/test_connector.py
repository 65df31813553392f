"""Tables that another data source reads, with lancestat's statistics."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lancestat
from lancestat.errors import RunError, UsageError
from lancestat.query.read import relation
from lancestat.query.read.relation import Relation, planning_service, relate
from lancestat.query.table import open_table
from tests.examples import sample
from tests.integration.fakes import SHORT_NAME, Fakes
from tests.integration.planned import executed, planned
from tests.runs.world import World, write_project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 1_000
SOURCES = ("Bare", "V1", "V2", "All")
NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


def orders(rows: int = ROWS) -> pa.Table:
    numbers = range(rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "part": pa.array([None if n % 10 == 9 else n % 50 for n in numbers], pa.int32()),
            "price": pa.array([n / 4 for n in numbers], pa.float64()),
            "day": pa.array([date(1969, 12, 1) + timedelta(n) for n in numbers], pa.date32()),
            "at": pa.array([NOON + timedelta(hours=n) for n in numbers], pa.timestamp("us", "UTC")),
            "note": pa.array([f"ß{n % 7}" for n in numbers], pa.string()),
        }
    )


@pytest.fixture(scope="module")
def fakes(spark: SparkSession) -> Fakes:
    return Fakes(spark)


class Held:
    """A published Lance table, the same rows as Parquet, and held by the fake sources."""

    def __init__(self, session: SparkSession, fakes: Fakes, folder: Path) -> None:
        self.session = session
        self.fakes = fakes
        self.path = folder / "orders.lance"
        parquet = folder / "orders.parquet"
        lance.write_dataset(orders(), str(self.path), max_rows_per_file=ROWS // 2)
        pq.write_table(orders(), parquet)
        World(self.path).run()
        self.version = lance.dataset(str(self.path)).version
        self.parquet = session.read.parquet(str(parquet))
        fakes.hold(self.path, self.version, self.parquet)

    def read(self, **options: Any) -> DataFrame:
        return lancestat.read_table(self.session, str(self.path), reader="connector", **options)


@pytest.fixture(scope="module")
def held(session: SparkSession, fakes: Fakes, tmp_path_factory: pytest.TempPathFactory) -> Held:
    return Held(session, fakes, tmp_path_factory.mktemp("connector"))


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(relation, "SOURCE", Fakes.name(request.param))
    yield request.param


def use(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(relation, "SOURCE", Fakes.name(name))


QUERIES = (
    "select * from {t}",
    "select note, id from {t} where id > 900 and part is not null",
    "select count(*) from {t}",
    "select count(*), max(price), min(day) from {t} where day < date'1970-01-05'",
    "select part, sum(price) from {t} where note like 'ß1%' or part in (1, null) group by part",
    "select * from {t} order by price desc limit 3",
    "select count(*) from (select * from {t} limit 10)",
    "select count(*) from (select * from {t} limit 10 offset 5)",
    "select a.id, b.note from {t} a join {t} b on a.id = b.id + 1 where b.at > '2026-03-05'",
    "select id from {t} where part = (select max(part) from {t} where id < 20)",
)


@pytest.mark.parametrize("query", sample(QUERIES, 5))
def test_answers_are_those_over_parquet(held: Held, source: str, query: str) -> None:
    held.read().createOrReplaceTempView("connected")
    held.parquet.createOrReplaceTempView("plain")
    rows = held.session.sql(query.format(t="connected")).collect()
    assert sorted(rows, key=str) == sorted(
        held.session.sql(query.format(t="plain")).collect(), key=str
    )


def test_statistics_are_those_that_lancestat_reports(held: Held, source: str) -> None:
    columns = ["id", "part", "price", "day", "at", "note"]
    mine = planned(lancestat.read_table(held.session, str(held.path)).select(columns))
    theirs = planned(held.read().select(columns))
    assert theirs.rows == mine.rows == ROWS
    assert theirs.size_bytes == mine.size_bytes
    assert set(theirs.columns) == set(columns)
    assert {name: str(stat) for name, stat in theirs.columns.items()} == {
        name: str(stat) for name, stat in mine.columns.items()
    }


def test_filters_are_estimated_once(held: Held, source: str) -> None:
    filtered = held.read().where("id >= 250")
    assert planned(filtered).rows == pytest.approx(750, rel=0.01)
    assert "Filter" in filtered._jdf.queryExecution().optimizedPlan().toString()


def test_the_estimate_receives_the_filters_of_any_source(held: Held, source: str) -> None:
    condition = "id in (1, 2) and day < date'1970-01-01' and note is not null"

    def asked(table: DataFrame) -> tuple[str, ...]:
        planned(table.where(condition))
        return planning_service().explanations()[-1].filters

    mine = asked(lancestat.read_table(held.session, str(held.path)))
    assert mine
    assert sorted(asked(held.read())) == sorted(mine)


def test_aggregates_are_answered_and_the_source_is_not_asked(held: Held, source: str) -> None:
    table = held.read()
    counted = table.selectExpr("count(*)", "count(distinct 1)")
    plan = executed(counted)
    assert "PushedAggregates: [COUNT(*), COUNT(*)]" in plan
    assert counted.collect() == [(ROWS, 1)]
    filtered = table.where("id >= 500").selectExpr("count(*)")
    assert "PushedAggregates" not in executed(filtered)
    assert filtered.collect() == [(500,)]
    off = held.read(options={"aggregate.pushdown.enabled": "false"}).selectExpr("count(*)")
    assert "PushedAggregates" not in executed(off)
    assert off.collect() == [(ROWS,)]


@pytest.mark.parametrize(
    ("name", "pushed"),
    [
        ("Bare", []),
        ("V1", ["V1 filters [IsNotNull(id), GreaterThan(id,990)]", "columns id,note"]),
        ("V2", ["V2 filters [id IS NOT NULL, id > 990]", "columns id,note"]),
        ("All", ["V2 filters [id IS NOT NULL, id > 990]", "columns id,note"]),
    ],
)
def test_the_source_receives_filters_and_columns(
    held: Held, monkeypatch: pytest.MonkeyPatch, name: str, pushed: list[str]
) -> None:
    use(monkeypatch, name)
    query = held.read().where("id > 990").select("note", "id")
    notes = held.fakes.notes(query._jdf.queryExecution().optimizedPlan)
    assert notes == ["options {}", *pushed]


def test_operations_that_invalidate_statistics_are_not_pushed(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "All")
    table = held.read()
    table.createOrReplaceTempView("connected")

    def noted(query: str) -> list[str]:
        execution = held.session.sql(query)._jdf.queryExecution()
        notes = held.fakes.notes(execution.optimizedPlan)
        return [note for note in notes if not note.startswith(("options", "columns"))]

    assert noted("select count(*) from connected") == []
    assert noted("select * from connected tablesample (10 percent)") == []
    assert noted("select * from connected offset 3") == []
    assert noted("select * from connected limit 3") == ["limit 3"]
    assert noted("select * from connected order by id limit 3") == ["top 3"]


def test_a_limit_that_the_source_takes_stays_in_the_plan(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "All")
    assert planned(held.read().limit(3)).rows == 3
    assert planned(held.read().orderBy("id").limit(4)).rows == 4


def test_metadata_columns_come_from_the_source(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "All")
    rows = held.read().select("id", "_place").where("id = 7")
    assert [tuple(row) for row in rows.collect()] == [(7, 7)]
    assert planned(rows).rows == 1


def test_options_of_a_scan_are_passed_to_the_source_except_reserved_ones(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "V1")
    options = {"batch_size": "64", "version": "1", "cbo.column.stats.enabled": "false"}
    table = held.read(options=options)
    notes = held.fakes.notes(table._jdf.queryExecution().optimizedPlan)
    assert notes[0] == "options {batch_size=64}"
    assert planned(table).columns == {}
    assert planned(table).rows == ROWS


def test_scans_with_the_same_request_are_equal(held: Held, source: str) -> None:
    def scan(condition: str) -> Any:
        plan = held.session.sql(f"select id from connected where {condition}")._jdf
        return plan.queryExecution().optimizedPlan().collectLeaves().head().scan()

    held.read().createOrReplaceTempView("connected")
    assert scan("id > 3").equals(scan("id > 3"))
    assert scan("id > 3").hashCode() == scan("id > 3").hashCode()
    assert not scan("id > 3").equals(scan("id > 4"))


def test_sparks_own_parquet_source_takes_lancestats_statistics(held: Held, tmp_path: Path) -> None:
    """A source that lancestat did not write, whose builder takes Catalyst's own expressions."""
    pq.write_table(orders(), tmp_path / "orders.parquet")
    jvm: Any = held.session._jvm
    parquet = jvm.org.apache.spark.sql.execution.datasources.v2.parquet.ParquetDataSourceV2()
    options = jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(
        {"path": str(tmp_path / "orders.parquet")}
    )
    inner = parquet.getTable(options)
    [table] = relate(held.session, [Relation(open_table(str(held.path)), inner=inner)])
    query = table.where("id >= 500 and note like 'ß1%'").select("id", "price")
    assert sorted(query.collect()) == sorted(
        held.parquet.where("id >= 500 and note like 'ß1%'").select("id", "price").collect()
    )
    assert planned(table.where("id >= 500")).rows == pytest.approx(500, rel=0.01)
    assert "GreaterThanOrEqual(id,500)" in executed(query)
    assert table.groupBy().count().collect()[0][0] == ROWS


def test_a_recreated_table_is_not_read(
    session: SparkSession, fakes: Fakes, source: str, tmp_path: Path
) -> None:
    held = Held(session, fakes, tmp_path)
    rows = held.read()
    shutil.rmtree(held.path)
    for number in range(held.version):
        mode = "append" if number else "create"
        lance.write_dataset(orders(10), str(held.path), mode=mode)
    with pytest.raises(Exception, match=rf"LS209 .*its version {held.version} is not the one"):
        rows.count()


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("3.5_2.12", "to its bundle for this Spark, org.lance:lance-spark-bundle-3.5_2.12:VERSION"),
        ("5.0_2.13", "it has bundles for Spark 3.5 to 4.2, and none for 5.0"),
    ],
)
def test_without_the_connector_a_hint_says_where_it_is(
    held: Held, monkeypatch: pytest.MonkeyPatch, line: str, hint: str
) -> None:
    monkeypatch.setattr(relation, "release_line", lambda spark: line)
    with pytest.raises(RunError) as refused:
        held.read()
    assert refused.value.code == "LS540"
    assert "no data source 'lance'" in refused.value.message
    assert hint in str(refused.value.hint)


@pytest.mark.parametrize("name", ["V1", "V2"])
@pytest.mark.parametrize("number", ["0.0", "-0.0", "'NaN'", "'Infinity'", "'-Infinity'"])
def test_floats_that_mean_something_else_to_others_are_not_pushed(
    held: Held, monkeypatch: pytest.MonkeyPatch, name: str, number: str
) -> None:
    use(monkeypatch, name)
    many = ", ".join(f"double({member})" for member in (number, *range(1, 12)))
    for condition in (f"price >= double({number})", f"price in ({many})"):
        query = held.read().where(f"{condition} and id > 990").select("id")
        notes = held.fakes.notes(query._jdf.queryExecution().optimizedPlan)
        [pushed] = [note for note in notes if "filters" in note]
        assert "990" in pushed
        assert "price >" not in pushed and "price IN" not in pushed
        assert "GreaterThanOrEqual(price" not in pushed and "In(price" not in pushed


def test_a_reader_that_does_not_exist_is_refused(session: SparkSession) -> None:
    with pytest.raises(UsageError, match="unknown reader 'conector'") as refused:
        lancestat.read_table(session, "x", reader="conector")
    assert (refused.value.code, refused.value.hint) == ("LS406", "did you mean 'connector'?")


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("Failing", None, "the disk is full"),
        ("V1", 1, r"LS541.*does not open version 1"),
        ("Talkative", None, r"LS541.*cannot open"),
        ("Unreadable", None, r"LS544.*cannot read .* in batches"),
    ],
)
def test_failures_of_the_source_keep_their_message_and_no_secret(
    held: Held, monkeypatch: pytest.MonkeyPatch, name: str, version: int | None, message: str
) -> None:
    use(monkeypatch, name)
    options = {"aws_secret_access_key": "s3cr3t"}
    with pytest.raises(Exception, match=message) as failed:
        held.read(version=version, storage_options=options).collect()
    assert "s3cr3t" not in str(failed.value)


def test_a_source_that_ignores_the_version_is_refused(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.fakes.hold(held.path, 1, held.parquet)
    use(monkeypatch, "Unpinned")
    with pytest.raises(RunError, match=r"LS543.*takes no notice of the option 'version'"):
        held.read()


def test_another_schema_is_refused(
    held: Held, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(orders(10), str(path))
    other = held.parquet.selectExpr("id", "cast(part as bigint) part", "price", "day", "at", "1 x")
    held.fakes.hold(path, 1, other)
    use(monkeypatch, "V1")
    with pytest.raises(RunError) as refused:
        lancestat.read_table(held.session, str(path), reader="connector")
    assert refused.value.code == "LS542"
    assert refused.value.message.endswith(
        "column 'part' is bigint, expected int; it has no column 'note'; it has a column 'x'"
    )


def project(held: Held, folder: Path) -> lancestat.Project:
    """Two tables, the second of which the sources do not have."""
    lance.write_dataset(orders(10), str(folder / "other.lance"))
    target = {"reader": "connector", "state": "state"}
    return write_project(folder, {"name": "orders", "uri": str(held.path)}, "other", target=target)


def test_a_target_has_its_tables_read_by_the_connector(
    held: Held, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, "V1")
    attachment = project(held, tmp_path).attach(held.session)
    assert attachment.views == ("orders",)
    assert {name: error.code for name, error in attachment.failed.items()} == {"other": "LS541"}
    query = held.session.sql("select * from orders where id < 100")
    assert "fake scan" in executed(query)
    assert planned(query).rows == pytest.approx(100, rel=0.02)
    assert query.count() == 100


def test_a_target_whose_connector_is_missing_attaches_nothing(held: Held, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="LS540"):
        project(held, tmp_path).attach(held.session)


def test_a_source_is_found_by_its_short_name(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation, "SOURCE", SHORT_NAME)
    assert held.read().count() == ROWS
