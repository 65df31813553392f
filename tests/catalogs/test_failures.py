"""Catalogs that fail, refuse or do not answer stop their tables, and no others."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lancestat.lake import catalogs
from lancestat.lake.catalog_tables import CatalogOptions, LocatedTable, locate
from lancestat.lake.files import store_options
from lancestat.spec.catalog import Catalog, TableName
from tests.catalogs.serving import requests
from tests.catalogs.shops import SERVING, Shop, rows

ORDERS = {"name": "orders", "table": "lake.sales.orders"}


@contextmanager
def silent_server() -> Iterator[tuple[str, list[socket.socket]]]:
    """A server that accepts connections and never answers."""
    held: list[socket.socket] = []
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(200)

        def accept() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", held
        server.shutdown(socket.SHUT_RDWR)
    for connection in held:
        connection.close()


def serving(folder: Path, **properties: str) -> Shop:
    return Shop(folder, SERVING, {"root": str(folder / "lake"), **properties})


def test_one_silent_catalog_is_asked_once_and_other_tables_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import lance

    monkeypatch.setattr(catalogs, "_ANSWERED_WITHIN_SECONDS", 0.5)
    lance.write_dataset(rows(), tmp_path / "other.lance")
    with silent_server() as (uri, held):
        shop = Shop(tmp_path, "rest", {"uri": uri})
        tables = [{"name": f"t{n}", "table": f"lake.sales.t{n}"} for n in range(100)]
        other = {"name": "other", "uri": str(tmp_path / "other.lance"), "publish": "none"}
        shop.declare(*tables, other)
        result = shop.lancestat("run")
    assert len(held) == 1
    assert result.exit_code == 1
    assert result.output.count("LS211") >= 100
    assert "no answer within 0.5 s" in result.output
    assert "specs/shop.yml:2" in result.output
    assert "1 table brought up to date" in result.output


def test_a_busy_catalog_is_asked_again(tmp_path: Path) -> None:
    serving(tmp_path).create("sales", "orders")
    before = requests(tmp_path / "lake")["describe_table"]
    shop = serving(tmp_path, fails=str(before + 2))
    shop.declare(ORDERS)
    result = shop.lancestat("run")
    assert result.exit_code == 0, result.output
    assert requests(tmp_path / "lake")["describe_table"] > before + 2


def test_a_forbidden_table_does_not_stop_others(tmp_path: Path) -> None:
    shop = serving(tmp_path)
    for name in ("orders", "private_notes"):
        shop.create("sales", name)
    shop.properties["forbidden"] = "true"
    shop.declare({"name": "private_notes", "table": "lake.sales.private_notes"}, ORDERS)
    result = shop.lancestat("run")
    assert result.exit_code == 1
    assert "no permission to read lake.sales.private_notes" in result.output
    assert "specs/shop.yml:2" in result.output
    assert shop.published("sales", "orders")


def test_a_missing_table_names_what_is_near_on_any_page(tmp_path: Path) -> None:
    shop = serving(tmp_path, page="1")
    for name in ("customers", "items", "orders", "parts"):
        shop.create("sales", name)
    shop.declare({"name": "orders", "table": "lake.sales.order"})
    result = shop.lancestat("plan")
    assert "LS210" in result.output
    assert "did you mean 'orders'?" in result.output
    shop.declare({"name": "orders", "table": "lake.sale.orders"})
    assert "did you mean 'sales'?" in shop.lancestat("plan").output


@pytest.mark.parametrize(
    ("impl", "properties"),
    [
        ("tests.catalogs.serving.Nothing", {}),
        ("no.such.module.Catalog", {}),
        ("pathlib.Path", {}),
        (SERVING, {"rooot": "/tmp"}),
        ("rest", {}),
    ],
)
def test_a_misdeclared_catalog_is_one_error_for_each_table(
    impl: str, properties: dict[str, str], tmp_path: Path
) -> None:
    shop = Shop(tmp_path, impl, properties)
    shop.declare(ORDERS)
    result = shop.lancestat("plan")
    assert "LS212" in result.output or "LS211" in result.output, result.output
    assert "specs/shop.yml:2" in result.output


@pytest.mark.parametrize(
    ("uri", "code", "reason"),
    [
        ("http://127.0.0.1:1", "LS211", "http://127.0.0.1:1: Connection refused"),
        ("", "LS212", "RelativeUrlWithoutBase"),
        ("lake", "LS212", "RelativeUrlWithoutBase"),
    ],
)
def test_a_server_that_is_not_there_is_a_sentence(
    uri: str, code: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lance gives the debug text of its HTTP client."""
    monkeypatch.setattr(catalogs, "_FIRST_PAUSE_SECONDS", 0)
    shop = Shop(tmp_path, "rest", {"uri": uri})
    shop.declare(ORDERS)
    result = shop.lancestat("plan")
    assert result.exit_code == 1
    text = " ".join(result.output.split())
    assert code in text and f"({reason})" in text, text
    assert "reqwest" not in text


@pytest.mark.parametrize("root", ["nowhere://lake", "http://127.0.0.1:1/lake", "s3://"])
def test_a_folder_that_cannot_be_one_is_a_mistake_in_the_target(root: str, tmp_path: Path) -> None:
    """No server is down where Lance has no store for a scheme, or no bucket is named."""
    shop = Shop(tmp_path, "dir", {"root": root, "storage.aws_region": "us-east-1"})
    shop.declare(ORDERS)
    result = shop.lancestat("plan")
    assert result.exit_code == 1
    assert "LS212" in result.output and "LS211" not in result.output, result.output
    assert "Location" not in result.output and "\\n" not in result.output, result.output


def test_an_undeclared_catalog_is_an_error_without_asking_any(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "rest", {"uri": "http://127.0.0.1:1"})
    shop.declare({"name": "orders", "table": "lak.sales.orders"})
    result = shop.lancestat("validate")
    assert result.exit_code == 1
    assert "specs/shop.yml:2" in result.output
    assert "did you mean 'lake'?" in result.output


def test_options_are_all_of_one_renewal(tmp_path: Path) -> None:
    """The lease ends at once, so that every look at the options asks for others."""
    shop = serving(tmp_path, lease_seconds="0.001")
    shop.create("sales", "orders")
    catalog = Catalog(SERVING, shop.properties)
    table = TableName("lake", ("sales", "orders"))
    options = CatalogOptions(catalog, table, {}, {"expires_at_millis": "1"}, False)
    for _ in range(3):
        given = store_options("s3://bucket/orders", options)
        assert given is not None
        lent = given["aws_access_key_id"].rpartition("-")[2]
        assert given["aws_secret_access_key"] == f"lent-secret-{lent}"
        time.sleep(0.002)


def test_no_output_or_file_has_a_secret(tmp_path: Path) -> None:
    shop = serving(tmp_path, lease_seconds="1", token="qzcatalogtoken95")
    shop.create("sales", "orders")
    shop.declare(ORDERS)
    said = ""
    plan = str(tmp_path / "plan.json")
    for command in (f"plan --out {plan}", f"run --plan-file {plan}", "run", "show orders", "docs"):
        result = shop.lancestat(*command.split())
        assert result.exit_code == 0, result.output
        said += result.output
    # The declaration itself has the token.
    (tmp_path / "lancestat_project.yml").unlink()
    kept = [
        path for path in tmp_path.rglob("*") if path.is_file() and "lake" not in path.parts[-3:]
    ]
    said += "".join(path.read_bytes().decode("latin-1") for path in kept)
    assert "lent-secret-" not in said
    assert "lent-id-" not in said
    assert "qzcatalogtoken95" not in said


def test_a_lease_of_seconds_is_used_until_it_is_nearly_over(tmp_path: Path) -> None:
    shop = serving(tmp_path, lease_seconds="20")
    shop.create("sales", "orders")
    catalog = Catalog(SERVING, shop.properties)
    table = TableName("lake", ("sales", "orders"))
    [place] = locate([table], {"lake": catalog}, lambda _: {}).values()
    assert isinstance(place, LocatedTable)
    asked = requests(tmp_path / "lake")["describe_table"]
    lent = [place.options["aws_access_key_id"] for _ in range(5)]
    assert len(set(lent)) == 1
    assert requests(tmp_path / "lake")["describe_table"] == asked
    # Lance, too, renews in the last quarter.
    assert 4_000 < int(place.options["refresh_offset_millis"]) <= 5_000


def test_a_renewal_that_the_catalog_asks_for_itself_is_kept() -> None:
    given = {"expires_at_millis": str(int(time.time() * 1000) + 90_000)}
    assert 20_000 < int(catalogs._with_renewal(given)["refresh_offset_millis"]) <= 22_500
    assert (
        catalogs._with_renewal({**given, "refresh_offset_millis": "7"})["refresh_offset_millis"]
        == "7"
    )
    assert catalogs._with_renewal({"aws_region": "r"}) == {"aws_region": "r"}
