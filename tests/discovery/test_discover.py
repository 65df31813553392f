"""What sources find, over directory catalogs, folders, a REST server and a catalog that pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance.namespace
import pytest

from lancestat.errors import LakeError
from lancestat.runs.discover import discovered, located, unlisted_errors
from lancestat.spec.model import ProjectSpec, Table
from tests.discovery.catalogs import write_catalog, write_folder
from tests.discovery.conftest import PROJECT, Write

LAKE = "sources: [{catalog: lake}]\n"


def names(spec: ProjectSpec) -> list[str]:
    return [node.name for node in spec.nodes]


def test_every_table_of_a_catalog_is_a_node(tmp_path: Path, write: Write) -> None:
    write_catalog(tmp_path / "lake", "sales.orders", "sales.orders_tmp", "crm.customers", "top")
    spec = write(
        "sources: [{catalog: lake, exclude: ['*_tmp'], defaults: {tags: [nightly]}}]\n"
    ).discover()
    assert names(spec) == ["top", "crm_customers", "sales_orders"]
    assert all(table.tags == ("nightly",) and table.source == "lake" for table in spec.tables)
    _, nodes = located(spec, spec.nodes)
    assert all(Path(node.dataset_uri).is_dir() for node in nodes)
    assert unlisted_errors(spec) == []


def test_nodes_look_sources_up_unless_they_are_not_to(tmp_path: Path, write: Write) -> None:
    write_folder(tmp_path / "flat", "orders")
    project = write("sources: [{uri: flat}]\n")
    assert project.nodes(discover=False) == ()
    assert [node.name for node in project.nodes()] == ["orders"]
    assert [node.name for node in project.nodes("orders", discover=False)] == ["orders"]


def test_a_folder_is_flat_or_a_directory_catalog(tmp_path: Path, write: Write) -> None:
    write_folder(tmp_path / "flat", "orders", "parts")
    (tmp_path / "flat" / "notes").mkdir()
    write_catalog(tmp_path / "wh", "sales.orders")
    [place] = [path.name for path in (tmp_path / "wh").iterdir() if "orders" in path.name]
    assert place != "orders.lance", "the catalog names folders in its own way"
    spec = write("sources: [{uri: flat}, {uri: ./wh}]\n").discover()
    assert names(spec) == ["orders", "parts", "sales_orders"]
    assert [table.source for table in spec.tables] == ["flat", "flat", "wh"]
    assert not (tmp_path / "flat" / "__manifest").exists(), "nothing is written there"


def test_all_pages_of_a_list_are_read(tmp_path: Path, write: Write) -> None:
    tables = [f"{space}.table_{number}" for space in "ab" for number in range(5)]
    write_catalog(tmp_path / "paging", *tables)
    spec = write("sources: [{catalog: paging}]\n").discover()
    assert names(spec) == [table.replace(".", "_") for table in tables]


def test_pages_that_go_in_a_circle_are_an_error(tmp_path: Path, write: Write) -> None:
    write_catalog(tmp_path / "paging", "a.x")
    (tmp_path / "paging" / "endless").touch()
    spec = write("sources: [{catalog: paging}]\n").discover()
    [error] = unlisted_errors(spec)
    assert "never ends" in error.message


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[str]:
    root = tmp_path / "served"
    write_catalog(root, "sales.orders", "crm.customers")
    with lance.namespace.RestAdapter("dir", {"root": str(root)}, port=0) as server:
        yield f"http://127.0.0.1:{server.port}"


def test_a_rest_catalog_is_looked_up(rest: str, write: Write) -> None:
    project = PROJECT.replace(
        "lake: {impl: dir, properties: {root: lake}}",
        f"lake: {{impl: rest, properties: {{uri: '{rest}'}}}}",
    )
    assert names(write(LAKE, project).discover()) == ["crm_customers", "sales_orders"]


@pytest.mark.parametrize("address", ["table: lake.sales.orders", "uri: {place}"])
def test_a_declared_table_is_taken_in_place_of_the_one_that_is_found(
    tmp_path: Path, write: Write, address: str
) -> None:
    write_catalog(tmp_path / "lake", "sales.orders", "sales.parts")
    [place] = [path for path in (tmp_path / "lake").iterdir() if path.name.endswith("orders")]
    declared = address.format(place=place)
    project = write(f"{LAKE}tables: [{{name: mine, {declared}, tags: [own]}}]\n")
    spec = project.discover()
    assert names(spec) == ["mine", "sales_parts"]
    assert spec.tables[0].tags == ("own",)
    assert [node.name for node in project.nodes("source:lake")] == ["mine", "sales_parts"]


def test_a_table_of_several_sources_belongs_to_the_first(tmp_path: Path, write: Write) -> None:
    write_catalog(tmp_path / "lake", "sales.orders", "crm.customers")
    spec = write(
        "sources:\n"
        "  - {catalog: lake, include: ['sales.*'], defaults: {tags: [first]}}\n"
        "  - {catalog: lake, defaults: {tags: [second]}}\n"
        "  - {uri: lake, defaults: {tags: [third]}}\n"
    ).discover()
    assert {table.name: table.tags for table in spec.tables} == {
        "sales_orders": ("first",),
        "crm_customers": ("second",),
    }


def test_the_result_of_a_join_is_no_further_node(tmp_path: Path, write: Write) -> None:
    write_folder(tmp_path / "flat", "docs", "near")
    spec = write(
        "sources: [{uri: flat}]\n"
        "knn_joins:\n"
        "  - {name: near, k: 1, left: {table: docs, vector: v}, right: {table: docs, vector: v},\n"
        "     output: {lance: flat/near.lance}}\n"
    ).discover()
    assert names(spec) == ["near", "docs"]


def only_error(spec: ProjectSpec) -> str:
    [error] = unlisted_errors(spec)
    assert error.location is not None and error.location.file == "specs/sources.yml"
    return error.message


@pytest.mark.parametrize(
    ("sources", "message", "found"),
    [
        (
            "sources: [{catalog: lake, name: '{{ table }}'}]\n",
            "lake.crm.orders and lake.sales.orders would all be called 'orders'",
            ["parts", "source:lake"],
        ),
        ("sources: [{uri: cased}]\n", "would all be called", ["source:cased"]),
        (
            f"{LAKE}tables: [{{name: sales_orders, uri: elsewhere.lance}}]\n",
            "lake.sales.orders would be called 'sales_orders'",
            ["sales_orders", "crm_orders", "crm_parts", "source:lake"],
        ),
        (
            "sources: [{uri: spaced}]\n",
            "would be called 'a b', which is no name",
            ["parts", "source:spaced"],
        ),
    ],
)
def test_a_name_that_is_taken_or_none_is_an_error_that_names_the_tables(
    tmp_path: Path, write: Write, sources: str, message: str, found: list[str]
) -> None:
    write_catalog(tmp_path / "lake", "sales.orders", "crm.orders", "crm.parts")
    write_folder(tmp_path / "cased", "orders", "Orders")
    write_folder(tmp_path / "spaced", "a b", "parts")
    spec = write(sources).discover()
    assert message in only_error(spec)
    assert names(spec) == found


def test_a_source_that_cannot_be_listed_leaves_the_others_alone(
    tmp_path: Path, write: Write
) -> None:
    write_catalog(tmp_path / "lake", "sales.orders")
    write_catalog(tmp_path / "paging", "a.x")
    (tmp_path / "paging" / "denied").touch()
    spec = write("sources: [{catalog: paging}, {catalog: lake}, {uri: absent}]\n").discover()
    assert names(spec) == ["sales_orders", "source:paging", "source:absent"]
    denied, absent = unlisted_errors(spec)
    assert "no permission" in denied.message and str(denied.location) == "specs/sources.yml:1:21"
    assert "there is no folder" in absent.message


def test_joins_read_tables_that_are_found(tmp_path: Path, write: Write) -> None:
    write_catalog(tmp_path / "lake", "sales.orders")
    join = (
        "knn_joins:\n"
        "  - {{name: near, k: 1, left: {{table: sales_orders, vector: v}},\n"
        "     right: {{sql: \"select * from {{{{{{{{ ref('{ref}') }}}}}}}}\", vector: v}},\n"
        "     output: {{lance: near.lance}}}}\n"
    )
    right = write(
        LAKE + join.format(ref="sales_orders").replace("{{{{", "{{").replace("}}}}", "}}")
    )
    assert unlisted_errors(right.discover()) == []
    wrong = write(LAKE + join.format(ref="sales_order").replace("{{{{", "{{").replace("}}}}", "}}"))
    spec = wrong.discover()
    [error] = unlisted_errors(spec)
    assert "'near' reads 'sales_order', which is neither declared nor found" in error.message
    assert error.hint == "did you mean 'sales_orders'?"
    node = spec.node("sales_order")
    assert isinstance(node, Table)
    with pytest.raises(LakeError):
        spec.options.of(node.uri)


def test_a_project_without_sources_is_the_same_object(write: Write) -> None:
    spec = write("tables: [{name: orders, uri: orders.lance}]\n").spec
    assert discovered(spec) is spec
