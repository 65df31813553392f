"""The connector's own catalog, attached: statistics for reads, and the connector for all else."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lancestat
from tests.integration.planned import planned
from tests.runs.world import write_project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# How many files are written depends on the plan, and so on statistics.
OF_FILES = "optimize {t}"
# What is done to a table, and what is asked of it; {t} is its name, {v} its version when attached.
STATEMENTS = (
    "select * from {t} order by id",
    "insert into {t} values (100, 'new', 1.5), (101, 'new', 2.5)",
    "select count(*), max(id) from {t}",
    "insert into {t} select id + 1000, text, x from {t} where id < 3",
    "update {t} set text = 'changed' where id = 4",
    "delete from {t} where id = 5",
    "merge into {t} t using (select 6 as id, 'merged' as text union all select 7000, 'added') s "
    "on t.id = s.id when matched then update set text = s.text "
    "when not matched then insert (id, text, x) values (s.id, s.text, 0.0)",
    "select id, text, x from {t} order by id",
    "select id, _rowid is not null, _rowaddr is not null, _fragid >= 0 from {t} order by id",
    "select count(*) from {t} version as of 1",
    "select count(*) from {t} version as of {v}",
    "describe {t}",
    "alter table {t} add columns (extra int)",
    "insert into {t} values (102, 'wider', 3.5, 7)",
    "select id, extra from {t} where extra is not null",
    "alter table {t} set tblproperties ('color' = 'blue')",
    "show columns in {t}",
    OF_FILES,
    "select count(*) from {t}",
    "insert overwrite {t} select * from {t} where id < 10",
    "select * from {t} order by id",
    "create table {t}_copy as select id, text from {t}",
    "select count(*) from {t}_copy",
    "drop table {t}_copy",
    "show tables in lance like '{n}*'",
    "truncate table {t}",
    "select count(*) from {t}",
    "select * from {t}_nope",
)


def numbers(count: int) -> pa.Table:
    whole = range(count)
    return pa.table(
        {
            "id": pa.array(whole, pa.int64()),
            "text": [f"t{n % 5}" for n in whole],
            "x": [n / 2 for n in whole],
        }
    )


class Named:
    """A table of the connector's catalog, which a project declares by its name there."""

    def __init__(self, folder: Path, warehouse: Path, rows: pa.Table) -> None:
        self.name = f"named_{uuid.uuid4().hex[:8]}"
        self.path = warehouse / f"{self.name}.lance"
        lance.write_dataset(rows, self.path, max_rows_per_file=10)
        catalog = {"impl": "dir", "properties": {"root": str(warehouse)}}
        table = {"name": "named", "table": f"lance.{self.name}", "publish": "none"}
        target = {"state": "state", "catalogs": {"lance": catalog}}
        self.project = write_project(folder, table, target=target)
        assert self.project.run().status.value == "success"


@pytest.fixture
def own(session: SparkSession) -> SparkSession:
    """A session of its own for every test, with a catalog that nothing has been attached to."""
    return session.newSession()


@pytest.fixture
def named(tmp_path: Path, warehouse: Path) -> Named:
    return Named(tmp_path, warehouse, numbers(40))


def bounds(frame: DataFrame) -> tuple[int, int] | None:
    known = planned(frame).columns.get("id")
    return None if known is None else (known.min().get(), known.max().get())


def answers(session: SparkSession, name: str, version: int) -> Iterator[tuple[str, object]]:
    """Yield what each statement returns, or the condition of its error."""
    for statement in STATEMENTS:
        text = statement.format(t=f"lance.{name}", n=name, v=version)
        try:
            rows = session.sql(text).collect()
            answer: object = len(rows) if statement == OF_FILES else [tuple(row) for row in rows]
        except Exception as error:
            answer = getattr(error, "getCondition", lambda: None)() or type(error).__name__
        yield statement, json.loads(json.dumps(answer, default=str).replace(name, "NAME"))


def instance(session: SparkSession) -> object:
    return session._jsparkSession.sessionState().catalogManager().catalog("lance")


def test_reads_have_statistics_and_detaching_restores_the_catalog(
    own: SparkSession, named: Named
) -> None:
    table = f"lance.{named.name}"
    before = instance(own)
    rows, schema = own.table(table).collect(), own.table(table).schema
    assert bounds(own.table(table)) is None
    for _ in range(2):
        assert named.project.attach(own).catalogs == ("lance",)
    assert not before.equals(instance(own))  # type: ignore[attr-defined]
    assert bounds(own.table(table)) == (0, 39)
    assert own.table(table).schema == schema
    assert own.table(table).collect() == rows
    assert bounds(own.table(table).select("id", "_rowid")) == (0, 39)
    explained = str(lancestat.explain(own.table(table).filter("id < 5")))
    assert f"Scan {table} [1]" in explained
    assert "statistics  used: current" in explained
    named.project.detach(own)
    assert before.equals(instance(own))  # type: ignore[attr-defined]
    assert bounds(own.table(table)) is None
    assert own.table(table).collect() == rows


def test_a_name_is_the_latest_version_when_a_query_is_planned(
    own: SparkSession, named: Named
) -> None:
    table = f"lance.{named.name}"
    named.project.attach(own)
    held = own.table(table)
    lance.write_dataset(numbers(51).slice(50), named.path, mode="append")
    assert own.table(table).filter("id >= 0").count() == 41
    assert bounds(own.table(table)) is None
    assert named.project.run().status.value == "success"
    assert bounds(own.table(table)) == (0, 50)
    assert held.filter("id >= 0").count() == 41


def test_one_query_sees_one_version(own: SparkSession, named: Named) -> None:
    table = f"lance.{named.name}"
    named.project.attach(own)
    joined = own.sql(f"select count(*) from {table} a join {table} b using (id) where id >= 0")
    lance.write_dataset(numbers(5), named.path, mode="append")
    # Both sides are at the version of the plan: 40 rows, or 45 of which five ids are there twice.
    assert joined.collect()[0][0] in (40, 35 + 5 * 4)


def test_statements_do_what_they_did_before(
    session: SparkSession,
    own: SparkSession,
    tmp_path: Path,
    warehouse: Path,
    has_statistics: bool,
) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "attached").mkdir()
    plain = Named(tmp_path / "plain", warehouse, numbers(40))
    attached = Named(tmp_path / "attached", warehouse, numbers(40))
    attached.project.attach(own)
    assert bounds(own.table(f"lance.{attached.name}")) == (0, 39)
    version = lance.dataset(plain.path).version
    expected = dict(answers(session.newSession(), plain.name, version))
    assert dict(answers(own, attached.name, version)) == expected
    attached.project.detach(own)
    (tmp_path / "again").mkdir()
    again = Named(tmp_path / "again", warehouse, numbers(40))
    assert dict(answers(own, again.name, version)) == expected
    # The statements that both refuse are a few; the others were run. Release 0.7.1 writes to no
    # table of a format that Lance's own library writes.
    refused = [name for name, answer in expected.items() if isinstance(answer, str)]
    assert "select * from {t}_nope" in refused
    assert len(refused) < (6 if has_statistics else 12), refused


def test_analyze_is_the_connectors(own: SparkSession, named: Named, has_statistics: bool) -> None:
    if not has_statistics:
        pytest.skip("this build knows no ANALYZE TABLE")
    named.project.attach(own)
    own.sql(f"analyze table lance.{named.name} compute statistics for all columns").collect()
    config = lance.dataset(named.path).config()
    assert any(key.startswith("lance.stats.") for key in config)


def test_tables_that_are_not_declared_are_untouched(
    own: SparkSession, named: Named, warehouse: Path
) -> None:
    lance.write_dataset(numbers(7), warehouse / "stranger.lance")
    named.project.attach(own)
    frame = own.table("lance.stranger")
    assert frame.filter("id >= 0").count() == 7
    relations = frame._jdf.queryExecution().analyzed().collectLeaves()
    found = relations.apply(0).table().getClass().getName()
    assert found.startswith("org.lance.spark.")
    assert "_$$_" not in found


def test_another_dataset_of_that_name_has_no_statistics(
    own: SparkSession, named: Named, warehouse: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    lance.write_dataset(numbers(3), elsewhere / f"{named.name}.lance")
    own.conf.set("spark.sql.catalog.lance.root", str(elsewhere))
    named.project.attach(own)
    frame = own.table(f"lance.{named.name}")
    assert frame.filter("id >= 0").count() == 3
    assert bounds(frame) is None
    assert bounds(own.table("named")) == (0, 39)
