"""Groups, keys, references and common values as `show`, `status` and pages have them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancestat import Project
from lancestat.presentation.relations import relation_tables
from lancestat.presentation.site.pages import build_site
from lancestat.report.tables import TableReport
from lancestat.state.store import StateReader
from lancestat.tables.relations import Relations, ShownValue, ShownValues
from tests.runs.world import write_project

ORDERS = {
    "name": "orders",
    "uri": "orders.lance",
    "groups": [["region", "status"]],
    "keys": [["id"], ["customer"]],
    "references": [
        {"columns": ["customer"], "table": "customers", "to": ["id"]},
        {"columns": ["id"], "table": "customers", "to": ["id"]},
    ],
    "common_values": 2,
}
CUSTOMERS = {"name": "customers", "uri": "customers.lance", "keys": [["id"]]}


def made(folder: Path, **more: object) -> Project:
    """A project that has run in this process."""
    rows = range(60)
    orders = {
        "id": list(rows),
        "status": ["open" if n % 3 else None for n in rows],
        "region": [f"r{n % 4}" for n in rows],
        "customer": [n % 10 for n in rows],
    }
    lance.write_dataset(pa.table(orders), str(folder / "orders.lance"), max_rows_per_file=25)
    lance.write_dataset(pa.table({"id": range(20)}), str(folder / "customers.lance"))
    project = write_project(folder, {**ORDERS, **more}, CUSTOMERS)
    project.run().raise_for_status()
    return project


def test_show_has_all_that_is_declared(tmp_path: Path) -> None:
    status = made(tmp_path).show("orders")
    relations = status.relations
    [group] = relations.groups
    assert (group.columns, group.distinct, group.nulls) == (("status", "region"), 4, 20)
    assert [(key.name, key.status.value) for key in relations.keys] == [
        ("(id)", "proven"),
        ("(customer)", "refuted"),
    ]
    assert [known.contained for _, known in relations.references] == [True, False]
    by_name = {common.name: common for common in relations.common_values}
    assert [(v.texts, v.lower) for v in by_name["region"].values] == [(("r0",), 15), (("r1",), 15)]
    assert [(v.texts, v.lower, v.upper) for v in by_name["status"].values] == [(("open",), 40, 40)]
    text = str(status)
    for words in ("Groups", "(status, region)", "Keys", "refuted", "not contained", "open: 40"):
        assert words in text


@pytest.mark.parametrize(
    ("limit", "is_exact", "unlisted", "others"),
    [
        (3, False, 6, "6 at most each"),
        (5, False, 4, "4 at most each"),
        (6, True, 0, "4 at most each"),
    ],
)
def test_values_that_are_not_shown_have_no_more_rows_than_it_says(
    tmp_path: Path, limit: int, is_exact: bool, unlisted: int, others: str
) -> None:
    letters = [
        letter for letter, rows in zip("abcdef", range(9, 3, -1), strict=True) for _ in range(rows)
    ]
    lance.write_dataset(pa.table({"letter": letters}), str(tmp_path / "letters.lance"))
    table = {"name": "letters", "uri": "letters.lance", "common_values": limit}
    project = write_project(tmp_path, table)
    project.run().raise_for_status()
    relations = project.show("letters").relations
    [shown] = relations.common_values
    assert (shown.is_exact, shown.unlisted) == (is_exact, unlisted)
    [printed] = relation_tables(relations)
    assert printed.rows[0][-1] == others


def test_the_others_are_as_many_as_any_of_them_may_be() -> None:
    exact = [ShownValue((letter,), 10, 10) for letter in "abcde"]
    shown = ShownValues(("c",), (*exact, ShownValue(("f",), 9, 10), ShownValue(("g",), 1, 12)), 8)
    [printed] = relation_tables(Relations(common_values=(shown,)))
    assert printed.rows[0][-1] == "12 at most each"


@pytest.mark.parametrize(
    ("more", "columns"),
    [
        ({"show_values": False}, {"id", "customer"}),
        ({"common_values": {"limit": 2, "show": False}}, set()),
        ({"common_values": {"columns": ["region"]}}, {"region"}),
    ],
)
def test_values_are_shown_to_whom_may_see_them(
    tmp_path: Path, more: Mapping[str, object], columns: set[str]
) -> None:
    project = made(tmp_path, **more)
    status = project.show("orders")
    assert {common.name for common in status.relations.common_values} == columns
    report = project.report(with_fragments=True, with_histograms=True)
    build_site(report, project.spec, tmp_path / "pages")
    page = (tmp_path / "pages" / "tables" / "orders.html").read_text("utf-8")
    assert ("Common values" in page) == bool(columns)
    assert ("r1: 15" in page) == ("region" in columns)


def test_status_warns_of_what_the_rows_refute(tmp_path: Path) -> None:
    project = made(tmp_path)
    [orders, customers] = project.report().nodes
    assert orders.problems == (
        "(customer) is no key: at least two rows are equal in it.",
        "The reference (id) to customers (id) does not hold: values of id are outside the range of "
        "id.",
    )
    assert customers.problems == ()


def test_a_reference_is_left_open_where_rows_changed(tmp_path: Path) -> None:
    project = made(tmp_path)
    lance.write_dataset(pa.table({"id": [50]}), str(tmp_path / "customers.lance"), mode="append")
    [known, _] = (known for _, known in project.show("orders").relations.references)
    assert known.contained is None
    assert "'customers'" in known.reason


def test_common_values_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = made(tmp_path, groups=[], keys=[], references=[])
    # How many blocks each read is of: three fragments have four columns.
    asked, reads = list[int](), StateReader.blocks_of_tables

    def counted(state: StateReader, keys: Any, decode: Any) -> Any:
        asked.append(sum(map(len, keys.values())))
        return reads(state, keys, decode)

    monkeypatch.setattr(StateReader, "blocks_of_tables", counted)
    shown = project.show("orders").relations.common_values
    assert [common.name for common in shown] == ["id", "status", "region", "customer"]
    assert asked == [12]
    # A report reads those of all tables at once, and those of large ones by themselves.
    report = project.report(select="orders").nodes[0]
    assert isinstance(report, TableReport) and report.status is not None
    assert report.status.relations.common_values == shown
    assert asked == [12, 12]
    monkeypatch.setattr("lancestat.query.fragments._MOST_TOGETHER", 0)
    project.report()
    assert asked == [12, 12, 0, 12]
