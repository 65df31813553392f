from __future__ import annotations

import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from tests.cli.conftest import Lancestat

PROJECT = """\
name: shop
default_target: dev
targets: {dev: {state: .lancestat/state}}
"""
SPECS = """\
tables:
  - name: orders
    uri: orders.lance
  - name: gone
    uri: gone.lance
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project of a table that is there and one that is not."""
    folder = tmp_path / "shop"
    (folder / "specs").mkdir(parents=True)
    (folder / "lancestat_project.yml").write_text(PROJECT)
    (folder / "specs" / "tables.yml").write_text(SPECS)
    lance.write_dataset(pa.table({"id": [1, 2, 3]}), folder / "orders.lance")
    return folder


def test_pages_are_written_and_the_first_is_named(lancestat: Lancestat, shop: Path) -> None:
    result = lancestat("docs", "--project-dir", str(shop))
    page = shop / ".lancestat" / "docs" / "index.html"
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == page.as_uri()
    assert "orders" in page.read_text(encoding="utf-8")
    table = (page.parent / "tables" / "orders.html").read_text(encoding="utf-8")
    assert "- name: orders" in table
    assert str(shop) not in table
    gone = (page.parent / "tables" / "gone.html").read_text(encoding="utf-8")
    assert "unreadable" in gone


def test_json_output_names_the_pages(lancestat: Lancestat, shop: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = lancestat(
        "docs", "--project-dir", str(shop), "--out", str(out), "-s", "orders", "--output", "json"
    )
    payload = json.loads(result.stdout)
    assert payload["command"] == "docs"
    assert payload["page"] == str(out / "index.html")
    assert payload["pages"] == 4
    assert [node["name"] for node in payload["nodes"]] == ["orders"]
    assert not (out / "tables" / "gone.html").exists()


def test_other_files_are_not_replaced(lancestat: Lancestat, shop: Path) -> None:
    result = lancestat("docs", "--project-dir", str(shop), "--out", str(shop))
    assert result.exit_code == 2
    assert "LS650" in result.stderr
    assert "--out DIR" in result.stderr
    assert (shop / "lancestat_project.yml").is_file()
