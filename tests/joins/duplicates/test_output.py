"""What commands print of near-duplicates."""

from __future__ import annotations

import json
import re
from pathlib import Path

import lance
import pytest
from click.testing import CliRunner

from lancestat.cli.main import cli
from tests.cli.conftest import _untouched_logging
from tests.conftest import Golden
from tests.joins.duplicates.shop import Shop, line, products

__all__ = ["_untouched_logging"]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.chdir(tmp_path)
    shop = Shop.of(tmp_path, monkeypatch, products({**line(1, 2, 3, 10, 11, 20), 30: None}))
    shop.declare(description="The same product.", tags=["nightly"], keep={"order_by": ["id desc"]})
    _ = shop.project
    return shop


def printed(folder: Path, *arguments: str) -> str:
    """Return what a command prints, with times and places in place of what they are today."""
    result = CliRunner().invoke(cli, [*arguments], prog_name="lancestat", env={"COLUMNS": "100"})
    assert result.exit_code in (0, 1, 3), result.output
    text = re.sub(r"\b\d+(\.\d+)? (ms|s)\b", "0 s", result.stdout.replace(str(folder), "/shop"))
    text = re.sub(r"Spark takes about 0 s to start\.|Takes about 0 s.*Spark's start\.", "", text)
    text = re.sub(r'("elapsed_seconds": )[\d.]+', r"\g<1>0.0", text)
    return re.sub(r"\s+$", "", text, flags=re.MULTILINE) + "\n"


def test_commands_print_what_is_done_and_found(shop: Shop, golden: Golden) -> None:
    pages = []

    def page(*arguments: str, is_flat: bool = False) -> None:
        text = printed(shop.folder, *arguments)
        # Where lines with paths break depends on the folder.
        text = " ".join(text.split()) + "\n" if is_flat else text
        pages.append(f"$ lancestat {' '.join(arguments)}\n{text}")

    page("validate")
    page("list")
    page("plan")
    page("run")
    page("run")
    page("status")
    shop.declare(keep=None)
    shop.append(products(line(21)))
    lance.dataset(shop.table).delete("id = 2")
    _ = shop.project
    page("plan", "--verbose", is_flat=True)
    page("run")
    shop.declare(select=["id"])
    _ = shop.project
    page("plan")
    page("plan", "--output", "markdown")
    shop.declare(vector="w")
    _ = shop.project
    page("plan", is_flat=True)
    golden("cli/duplicates.txt", "\n".join(pages))


def test_json_has_the_figures_of_the_node(shop: Shop) -> None:
    [node] = json.loads(printed(shop.folder, "plan", "--output", "json"))["nodes"]
    assert (node["kind"], node["action"], node["duplicate_groups"]) == (
        "duplicates",
        "analyze",
        None,
    )
    [node] = json.loads(printed(shop.folder, "run", "--output", "json"))["nodes"]
    assert {name: node[name] for name in node if name.startswith(("duplicate", "redundant"))} == {
        "duplicate_groups": 2,
        "duplicate_rows": 5,
        "duplicate_pairs": 3,
        "redundant_rows": 3,
    }
    assert (node["strategy"], node["scope"], node["excluded_right_rows"]) == ("exact", "full", 1)
    [node] = json.loads(printed(shop.folder, "status", "--output", "json"))["nodes"]
    assert (node["rows"], node["duplicate_pairs"], node["verdict"]) == (5, 3, "current")
    manifest = json.loads((shop.folder / "target" / "manifest.json").read_text("utf-8"))
    assert list(manifest["nodes"]) == ["duplicates.shop.same"]
