"""A catalog that the session has already: its reads get statistics, and the rest is its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pytest

import lancestat
from lancestat.query.read.session_catalogs import NamedTables
from tests.catalogs.shops import rows
from tests.integration.fakes import Fakes
from tests.integration.planned import planned, with_cbo
from tests.runs.world import write_project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def fakes(spark: SparkSession) -> Fakes:
    return Fakes(spark)


class Wrapped:
    """A project whose catalog the session has too, and a table in both."""

    def __init__(self, session: SparkSession, fakes: Fakes, folder: Path) -> None:
        self.session, self.fakes = session, fakes
        self.path = folder / "lake" / "orders.lance"
        lance.write_dataset(rows(), self.path, max_rows_per_file=10)
        self.hold()
        session.conf.set("spark.sql.catalog.lake", fakes.name("Catalog"))
        session.conf.set("spark.sql.catalog.lake.root", str(folder / "lake"))
        lake = {"impl": "dir", "properties": {"root": str(folder / "lake")}}
        table = {"name": "orders", "table": "lake.orders", "publish": "none"}
        target = {"state": "state", "catalogs": {"lake": lake}}
        self.project = write_project(folder, table, target=target)
        assert self.project.run().status.value == "success"

    def hold(self) -> None:
        """Give the session's catalog the rows of the latest version."""
        dataset = lance.dataset(self.path)
        held = lancestat.read_table(self.session, str(self.path))
        self.fakes.hold(self.path, dataset.version, held)

    @property
    def instance(self) -> Any:
        """What the session has as its catalog."""
        manager = self.session._jsparkSession.sessionState().catalogManager()
        return manager.catalog("lake")


@pytest.fixture
def wrapped(spark: SparkSession, fakes: Fakes, tmp_path: Path) -> Wrapped:
    return Wrapped(with_cbo(spark), fakes, tmp_path)


def bounds(frame: DataFrame) -> tuple[int, int] | None:
    known = planned(frame).columns.get("id")
    return None if known is None else (known.min().get(), known.max().get())


def test_reads_have_statistics_and_detaching_restores_the_catalog(wrapped: Wrapped) -> None:
    session = wrapped.session
    expected = session.table("lake.orders").collect()
    before = wrapped.instance
    assert bounds(session.table("lake.orders")) is None
    for _ in range(2):
        wrapped.project.attach(session)
        assert not before.equals(wrapped.instance)
        assert bounds(session.table("lake.orders")) == (0, 39)
        assert session.table("lake.orders").collect() == expected
    few = session.table("lake.orders").filter("id < 10")
    assert few.count() == 10
    assert "Scan lake.orders [1]" in str(lancestat.explain(few))
    wrapped.project.detach(session)
    assert before.equals(wrapped.instance)
    assert bounds(session.table("lake.orders")) is None


def test_catalog_and_table_are_of_the_classes_that_they_were(wrapped: Wrapped) -> None:
    wrapped.project.attach(wrapped.session)
    table = wrapped.session.table("lake.orders")._jdf.queryExecution().analyzed().collectLeaves()
    for made, name in ((wrapped.instance, "Catalog"), (table.apply(0).table(), "CatalogTable")):
        assert made.getClass().getName() != Fakes.name(name)
        assert made.getClass().getSuperclass().getName() == Fakes.name(name)


WRITES = {
    "insert into lake.orders values (1, 'a', 2.0)": "write",
    "delete from lake.orders where id = 1": "delete",
    "alter table lake.orders set tblproperties ('a' = 'b')": "alter orders",
    "alter table lake.orders rename to lake.moved": "rename orders",
    "create table lake.fresh (a int)": "create fresh",
    "drop table lake.orders": "drop orders",
    "create namespace lake.fresh": "create namespace",
    "drop namespace lake.only": "drop namespace",
    "select * from lake.orders version as of 1": "load version 1",
}


@pytest.mark.parametrize("statement", WRITES)
def test_all_but_reads_goes_to_the_catalog_as_before(wrapped: Wrapped, statement: str) -> None:
    session, fakes = wrapped.session, wrapped.fakes

    def run() -> object:
        try:
            return session.sql(statement).collect()
        except Exception as error:
            return type(error).__name__

    # Tables that may turn out to be read are loaded once more, at their version.
    loads = {"load latest", "load version 1"} - {WRITES[statement]}

    def noted() -> list[str]:
        return [note for note in fakes.notes(run) if note not in loads]

    before = noted()
    assert WRITES[statement] in before
    wrapped.project.attach(session)
    assert noted() == before
    wrapped.project.detach(session)
    assert noted() == before


def test_descriptions_metadata_columns_and_functions_are_the_catalogs(wrapped: Wrapped) -> None:
    session = wrapped.session

    def answers() -> list[object]:
        found: list[object] = []
        for statement in (
            "describe lake.orders",
            "show namespaces in lake",
            "show tables in lake",
            "select lake.nope(1)",
            "select * from lake.missing",
        ):
            try:
                found.append(session.sql(statement).collect())
            except Exception as error:
                found.append(str(error).splitlines()[0])
        found.append(session.table("lake.orders").select("id", "_place").schema.names)
        return found

    before = answers()
    wrapped.project.attach(session)
    assert answers() == before
    assert bounds(session.table("lake.orders").select("id", "_place")) == (0, 39)


def test_every_read_is_of_the_version_that_the_statistics_describe(
    wrapped: Wrapped, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = wrapped.session
    wrapped.project.attach(session)
    look = NamedTables.open_as

    def look_and_commit(self: NamedTables, *asked: Any) -> object:
        opened = look(self, *asked)
        lance.write_dataset(rows(2), wrapped.path, mode="append")
        wrapped.hold()
        return opened

    monkeypatch.setattr(NamedTables, "open_as", look_and_commit)
    query = (
        "select (select count(*) from lake.orders where id >= 0), "
        "(select count(*) from lake.orders where total >= 0)"
    )
    [(first, second)] = session.sql(query).collect()
    assert first == second


def test_a_project_that_cannot_open_its_table_leaves_it_to_the_catalog(
    wrapped: Wrapped, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wrapped.project.attach(wrapped.session)

    def fails(*_: object) -> None:
        raise OSError("no such luck")

    monkeypatch.setattr(NamedTables, "open_as", fails)
    frame = wrapped.session.table("lake.orders")
    assert len(frame.collect()) == 40
    assert bounds(frame) is None
    assert "no such luck" in caplog.text


def test_a_catalog_that_cannot_be_made_is_an_error_of_its_own(
    wrapped: Wrapped, spark: SparkSession
) -> None:
    other = with_cbo(spark)
    other.conf.set("spark.sql.catalog.lake", "no.such.Class")
    attachment = wrapped.project.attach(other)
    assert attachment.catalogs == ()
    assert attachment.failed_catalogs["lake"].code == "LS534"
    assert "no.such.Class" in str(attachment.failed_catalogs["lake"])
    assert bounds(other.table("orders")) == (0, 39)
