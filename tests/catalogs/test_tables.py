"""Tables of catalogs have the statistics, and the state, of the same datasets named by URIs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import lance
import lance_namespace as ns
import pytest
from lance.namespace import RestAdapter

from lancestat.cli import debug as checks
from lancestat.cli.debug import Check
from lancestat.spark.jvm import Java
from lancestat.state.store import open_state
from lancestat.state.values import NodeRun, RunRecord, result_identity
from tests.catalogs.shops import SERVING, Shop
from tests.examples import sample

KINDS = ("flat", "manifest", "rest", "managed", "serving managed", "serving")


@pytest.fixture(params=sample(KINDS, 3))
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    root = str(tmp_path / "lake")
    managed = {"table_version_tracking_enabled": "true", "table_version_storage_enabled": "true"}
    match request.param:
        case "flat":
            yield Shop(tmp_path, "dir", {"root": root, "manifest_enabled": "false"})
        case "manifest":
            yield Shop(tmp_path, "dir", {"root": root})
        case "managed":
            yield Shop(tmp_path, "dir", {"root": root, **managed})
        case "rest":
            with RestAdapter("dir", {"root": root}, port=0) as server:
                yield Shop(tmp_path, "rest", {"uri": f"http://127.0.0.1:{server.port}"})
        case kind:
            is_managed = str("managed" in kind).lower()
            yield Shop(tmp_path, SERVING, {"root": root, "managed": is_managed})


def is_flat(shop: Shop) -> bool:
    return shop.properties.get("manifest_enabled") == "false"


def test_statistics_are_those_of_the_same_dataset_by_its_uri(shop: Shop, tmp_path: Path) -> None:
    names = ("orders",) if is_flat(shop) else ("sales", "orders")
    shop.create(*names)
    other = tmp_path / "by-uri"
    other.mkdir()
    by_uri = Shop(other, "dir", {"root": str(other / "lake")})
    by_uri.create("orders")
    by_uri.declare({"name": "orders", "uri": by_uri.location("orders")}, catalog=False)
    shop.declare({"name": "orders", "table": ".".join(("lake", *names))})
    for one in (shop, by_uri):
        result = one.lancestat("run")
        assert result.exit_code == 0, result.output
    assert shop.published(*names)
    assert shop.published(*names) == by_uri.published("orders")
    assert "Nothing to do" in shop.lancestat("plan").output


def test_naming_a_table_otherwise_reads_nothing_again(shop: Shop) -> None:
    names = ("orders",) if is_flat(shop) else ("sales", "orders")
    uri = shop.create(*names)
    table = ".".join(("lake", *names))
    shop.declare({"name": "orders", "table": table})
    assert shop.lancestat("run").exit_code == 0
    for named in ({"uri": uri}, {"table": table}):
        shop.declare({"name": "orders", **named})
        assert "Nothing to do" in shop.lancestat("plan").output
        assert shop.lancestat("gc").exit_code == 0
    assert "Nothing to do" in shop.lancestat("plan").output


def test_every_command_takes_tables_of_catalogs(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "find_java", lambda: Java(Path("java"), 17))
    monkeypatch.setattr(checks, "check_spark", lambda target: Check("Spark", True, "starts"))
    names = ("orders",) if is_flat(shop) else ("sales", "orders")
    shop.create(*names)
    shop.declare({"name": "orders", "table": ".".join(("lake", *names))})
    assert shop.lancestat("run").exit_code == 0
    for command in (
        "validate",
        "plan",
        "show orders",
        "status",
        "gc",
        "docs",
        "debug",
        "unpublish orders",
    ):
        result = shop.lancestat(*command.split())
        assert result.exit_code == 0, (command, result.output)
    page = (shop.folder / ".lancestat/docs/tables/orders.html").read_text()
    assert ".".join(("lake", *names)) in page


NAMES = ("a.b", "with space", "ünïcode", "back`tick", "Or$d", "UPPER", "it's", '"so"', "50%")


@pytest.mark.parametrize("impl", ["dir", "rest", SERVING])
def test_names_with_special_characters(impl: str, tmp_path: Path) -> None:
    """All of one catalog, beside tables whose names differ from theirs by little."""
    root = {"root": str(tmp_path / "lake")}
    others = ("orders", "Orders") if impl != SERVING else ("orders",)
    names = (*NAMES, *others)
    if impl == "rest":
        # Lance's client of REST catalogs cannot ask for names with spaces, nor with its delimiter.
        names = tuple(name for name in names if not {" ", "$"} & set(name))
    with RestAdapter("dir", root, port=0) as server:
        properties = {"uri": f"http://127.0.0.1:{server.port}"} if impl == "rest" else root
        shop = Shop(tmp_path, impl, properties)
        for count, name in enumerate(names, 1):
            shop.create("sales", name, count=count)
        quoted = [name.replace("`", "``") for name in names]
        shop.declare(
            *(
                {"name": f"t{count}", "table": f"lake.sales.`{name}`"}
                for count, name in enumerate(quoted, 1)
            )
        )
        result = shop.lancestat("run")
        assert result.exit_code == 0, result.output
        for count, name in enumerate(names, 1):
            assert shop.published("sales", name)["lance.stats.numRows"] == str(count), name
        assert "Nothing to do" in shop.lancestat("plan").output


@pytest.mark.parametrize("first", ["uri", "table"])
def test_one_dataset_by_its_uri_and_by_its_name_is_an_error(first: str, tmp_path: Path) -> None:
    """Each would replace what the other has published."""
    shop = Shop(tmp_path, "dir", {"root": str(tmp_path / "lake")})
    uri = shop.create("sales", "orders")
    shop.create("sales", "other")
    by_uri = {"name": "by_uri", "uri": uri, "columns": ["id"]}
    by_name = {"name": "by_name", "table": "lake.sales.orders", "columns": ["total"]}
    tables = (by_uri, by_name) if first == "uri" else (by_name, by_uri)
    shop.declare(*tables, {"name": "other", "table": "lake.sales.other"})
    for command in ("plan", "run"):
        result = shop.lancestat(command)
        assert result.exit_code == 1, result.output
        assert "LS112" in result.output
        assert f"'{tables[0]['name']}' and '{tables[1]['name']}'" in result.output
        assert "specs/shop.yml:2" in result.output and "specs/shop.yml:3" in result.output
    assert not shop.published("sales", "orders")
    assert shop.published("sales", "other")
    for alone in ("by_uri", "by_name"):
        result = shop.lancestat("run", "--select", alone)
        assert result.exit_code == 1, result.output
        assert "LS112" in result.output
        assert "'by_uri'" in result.output and "'by_name'" in result.output
    assert not shop.published("sales", "orders")
    # They would replace one record by turns, also where one of them publishes nothing.
    shop.declare({**by_uri, "publish": "none"}, by_name)
    for selected in ([], ["--select", "by_name"]):
        result = shop.lancestat("run", *selected)
        assert (result.exit_code, "LS112" in result.output) == (1, True), result.output
    shop.declare(by_uri, {**by_name, "publish": "none"})
    result = shop.lancestat("run", "--select", "by_uri")
    assert (result.exit_code, "LS112" in result.output) == (1, True), result.output


@pytest.mark.parametrize("alone", ["by_uri", "by_name"])
def test_one_output_by_its_uri_and_by_its_name_is_an_error(alone: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path, "dir", {"root": str(tmp_path / "lake")})
    shop.create("sales", "orders")
    output = shop.announce("sales", "nearest")
    shop.declare_joins(by_uri={"lance": output}, by_name={"table": "lake.sales.nearest"})
    for selected in ([], ["--select", alone]):
        result = shop.lancestat("plan", *selected)
        assert result.exit_code == 1, result.output
        assert "LS112" in result.output, result.output
        assert "'by_uri'" in result.output and "'by_name'" in result.output


def test_a_reader_of_a_shared_output_is_deferred_and_not_run(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "dir", {"root": str(tmp_path / "lake")})
    output = shop.announce("sales", "nearest")
    shop.declare_joins(
        by_uri={"lance": output},
        by_name={"table": "lake.sales.nearest"},
        reader={"lance": str(tmp_path / "reader.lance")},
    )
    specs = tmp_path / "specs" / "shop.yml"
    declared = json.loads(specs.read_text())
    [*_, reader] = declared["knn_joins"]
    reader["left"] = {"lance": output, "vector": "v"}
    specs.write_text(json.dumps(declared))
    planned = json.loads(shop.lancestat("plan", "--output", "json").stdout)["nodes"]
    assert [node["action"] for node in planned[:2]] == ["blocked", "blocked"]
    assert "reads the result of 'by_name'" in planned[2]["notes"][0]
    ran = json.loads(shop.lancestat("run", "--output", "json").stdout)["nodes"]
    assert [node["status"] for node in ran] == ["error", "error", "skipped"]


def test_a_saved_plan_is_out_of_date_when_the_table_moves(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "dir", {"root": str(tmp_path / "lake")})
    uri = shop.create("sales", "orders")
    shop.declare({"name": "orders", "table": "lake.sales.orders"})
    plan = str(tmp_path / "plan.json")
    assert shop.lancestat("plan", "--out", plan).exit_code == 0
    shop.client.drop_table(ns.DropTableRequest(id=["sales", "orders"]))
    moved = shop.root / "elsewhere.lance"
    lance.write_dataset(lance.dataset(shop.create("sales", "kept")).to_table(), moved)
    shop.client.register_table(
        ns.RegisterTableRequest(id=["sales", "orders"], location="elsewhere.lance")
    )
    assert shop.location("sales", "orders") != uri
    result = shop.lancestat("run", "--plan-file", plan)
    assert result.exit_code != 0
    assert "out of date" in result.output or "changed" in result.output, result.output


def test_state_of_a_catalog_that_does_not_answer_is_kept(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    with RestAdapter("dir", {"root": str(root)}, port=0) as server:
        shop = Shop(tmp_path, "rest", {"uri": f"http://127.0.0.1:{server.port}"})
        shop.create("sales", "orders")
        shop.declare({"name": "orders", "table": "lake.sales.orders"})
        assert shop.lancestat("run").exit_code == 0
    shop.properties = {"uri": "http://127.0.0.1:1"}
    shop.declare({"name": "orders", "table": "lake.sales.orders"})
    result = shop.lancestat("gc")
    assert result.exit_code != 0
    assert "LS211" in result.output
    shop.impl, shop.properties = "dir", {"root": str(root)}
    shop.declare({"name": "orders", "table": "lake.sales.orders"})
    assert "Nothing to do" in shop.lancestat("plan").output


def test_state_of_results_in_a_catalog_that_does_not_answer_is_kept(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    shop = Shop(tmp_path, "dir", {"root": str(root)})
    uri = shop.announce("sales", "nearest")
    state = open_state(str(tmp_path / "state"))
    key = result_identity("knn_join", uri)
    ran = NodeRun("near", "knn_join", "d", {}, (key, "{}"))
    now = datetime.now(timezone.utc)
    state.add_run(RunRecord("r", "run", "dev", now, now, "success", (ran,)))
    shop.impl, shop.properties = "rest", {"uri": "http://127.0.0.1:1"}
    shop.declare_joins(near={"table": "lake.sales.nearest"})
    result = shop.lancestat("gc")
    assert result.exit_code != 0
    assert "LS211" in result.output
    shop.impl, shop.properties = "dir", {"root": str(root)}
    shop.declare_joins(near={"table": "lake.sales.nearest"})
    assert shop.lancestat("gc").exit_code == 0
    assert key in open_state(str(tmp_path / "state")).records("knn_join", str)


def test_a_table_dropped_or_recreated_is_seen(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "dir", {"root": str(tmp_path / "lake")})
    shop.create("sales", "orders")
    shop.declare({"name": "orders", "table": "lake.sales.orders"})
    assert shop.lancestat("run").exit_code == 0
    shop.client.drop_table(ns.DropTableRequest(id=["sales", "orders"]))
    result = shop.lancestat("plan")
    assert "LS210" in result.output
    shop.create("sales", "orders", count=20)
    assert shop.lancestat("run").exit_code == 0
    assert shop.published("sales", "orders")
    shutil.rmtree(tmp_path / "lake")
