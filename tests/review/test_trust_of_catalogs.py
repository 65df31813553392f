"""What a diff asks catalogs of HEAD, which may be a stranger's: recorded by two servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import lance_namespace as ns
import pytest

from lancestat.lake import catalogs
from lancestat.review.values import Diff
from tests.review.conftest import NOW, write
from tests.review.pairs import review

SECRET = "hunter2hunter2"
MADE: list[str] = []


class Recording(ns.LanceNamespace):
    """A catalog that a pull request could bring."""

    def __init__(self, **properties: str) -> None:
        MADE.append(str(properties))

    def namespace_id(self) -> str:
        return "recording"


@dataclass
class Server:
    """A REST catalog without tables, and the requests that it got."""

    url: str = ""
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    running = [_started(), _started()]
    yield running[0][0], running[1][0]
    for _, server in running:
        server.shutdown()
        server.server_close()


def _started() -> tuple[Server, ThreadingHTTPServer]:
    seen = Server()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen.requests.append(f"{self.path} {dict(self.headers)}")
            body = b'{"type": "TableNotFound", "code": 4, "status": 404, "error": "no table"}'
            self.send_response(404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    seen.url = f"http://127.0.0.1:{server.server_port}"
    return seen, server


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LAKE_TOKEN", SECRET)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    catalogs._client.cache_clear()
    MADE.clear()
    yield
    catalogs._client.cache_clear()


TARGET = "name: shop\ndefault_target: dev\ntargets:\n  dev:\n    catalogs:\n      lake: {lake}\n"
TOKEN = "header.Authorization: \"{{ env_var('LAKE_TOKEN') }}\""


def project(lake: str, table: str, *keys: str) -> dict[str, str]:
    lines = ["tables:", "  - name: orders", f"    {table}", *(f"    {key}" for key in keys)]
    return {
        "lancestat_project.yml": TARGET.replace("{lake}", lake),
        "specs/shop.yml": "\n".join(lines) + "\n",
    }


def rest(url: str) -> str:
    return f'{{impl: rest, properties: {{uri: "{url}", {TOKEN}}}}}'


def diff(root: Path, base: dict[str, str], head: dict[str, str]) -> Diff:
    write(root / "base", base)
    write(root / "head", head)
    return review(root / "head", f"{root}/base", clock=lambda: NOW)


def notes(made: Diff) -> str:
    return "\n".join(note for node in made.nodes for note in node.notes)


ORDERS = "table: lake.sales.orders"


def test_a_catalog_of_base_is_asked_for_a_table_of_base(
    servers: tuple[Server, Server], tmp_path: Path
) -> None:
    lake = rest(servers[0].url)
    base, head = project(lake, ORDERS), project(lake, ORDERS, "columns: [a]")
    made = diff(tmp_path, base, head)
    assert any("orders/describe" in request for request in servers[0].requests)
    assert "cannot be opened: LS210" in notes(made)
    assert SECRET not in notes(made)


@pytest.mark.parametrize(
    "change", ["place", "header", "class", "other target", "more catalogs", "moved to dir"]
)
def test_catalogs_that_base_does_not_have_are_not_asked(
    servers: tuple[Server, Server], tmp_path: Path, change: str
) -> None:
    ours, evil = servers
    lake = rest(ours.url)
    token = "{{ env_var('LAKE_TOKEN') }}"
    mine = f'{{impl: {__name__}.Recording, properties: {{token: "{token}"}}}}'
    changed = {
        "place": rest(evil.url),
        "header": lake.replace(TOKEN, f"{TOKEN}, header.X: y"),
        "class": mine,
        "other target": lake,
        "more catalogs": f"{lake}\n      more: {rest(evil.url)}",
        "moved to dir": f"{{impl: dir, properties: {{root: {tmp_path}}}}}",
    }[change]
    head = project(changed, ORDERS, "columns: [a]")
    if change == "other target":
        text = head["lancestat_project.yml"].replace("default_target: dev", "default_target: evil")
        head["lancestat_project.yml"] = (
            f"{text}  evil:\n    catalogs:\n      lake: {rest(evil.url)}\n"
        )
    made = diff(tmp_path, project(lake, ORDERS), head)
    assert (ours.requests, evil.requests, MADE) == ([], [], [])
    assert "the catalogs are not those of BASE, and credentials go only where" in notes(made)


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (ORDERS, "table: lake.sales.salaries"),
        (ORDERS, "table: lake.sales.`{{ env_var('LAKE_TOKEN') }}`"),
        ("uri: orders.lance", "table: lake.sales.salaries"),
        (ORDERS, 'table: lake.sales.orders\n    storage_options: {aws_endpoint: "http://evil"}'),
    ],
)
def test_tables_that_base_does_not_read_are_not_asked_for(
    servers: tuple[Server, Server], tmp_path: Path, base: str, head: str
) -> None:
    """A catalog would give keys for them."""
    lake = rest(servers[0].url)
    made = diff(tmp_path, project(lake, base), project(lake, head, "columns: [a]"))
    asked = [request.partition(" ")[0] for request in servers[0].requests]
    assert not any("salaries" in path or SECRET in path for path in asked)
    if base != ORDERS or "endpoint" in head:
        assert asked == []
    assert "BASE reads nothing at its URI, and credentials go only where" in notes(made)
    assert SECRET not in notes(made)


def test_sides_and_outputs_that_base_does_not_have_are_not_asked_for(
    servers: tuple[Server, Server], tmp_path: Path
) -> None:
    """A join of HEAD reads a table that BASE does not, from a catalog that it does have."""
    lake = rest(servers[0].url)
    head = project(lake, ORDERS)
    head["specs/joins.yml"] = (
        "knn_joins:\n  - name: near\n    left: {table: lake.sales.salaries, vector: v}\n"
        "    right: {table: orders, vector: v}\n    k: 1\n"
        "    output: {table: lake.sales.stolen}\n"
    )
    made = diff(tmp_path, project(lake, ORDERS), head)
    asked = "".join(servers[0].requests)
    assert "salaries" not in asked and "stolen" not in asked
    assert "credentials go only where" in notes(made)
