"""`lancestat unpublish` as its users see it, over real tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import lance
import pytest

from tests.cli.conftest import Lancestat
from tests.conftest import Golden
from tests.runs.world import orders, write_project

JOINS = (
    "knn_joins: [{name: near, left: {lance: a.lance, vector: v, select: [id]},"
    " right: {lance: b.lance, vector: v, select: [id]}, k: 1, output: {lance: o.lance}}]\n"
)


@pytest.fixture
def folder(tmp_path: Path, lancestat: Lancestat) -> Path:
    """Two tables with statistics, one that is gone, one that was never run, and a join."""
    names = ("orders", "returns", "gone", "part")
    for name in names:
        lance.write_dataset(orders(0, 50), str(tmp_path / f"{name}.lance"))
    write_project(tmp_path, *names)
    assert lancestat("run", "--exclude", "part").exit_code == 0
    lance.LanceDataset.drop(str(tmp_path / "gone.lance"), {})
    (tmp_path / "specs" / "joins.yml").write_text(JOINS)
    return tmp_path


def shown(text: str, folder: Path) -> str:
    text = re.sub(r'"elapsed_seconds": [0-9.]+', '"elapsed_seconds": 0.1', text)
    return text.replace(str(folder), "/shop")


def test_what_would_be_and_what_was_removed(
    folder: Path, lancestat: Lancestat, golden: Golden
) -> None:
    planned = lancestat("unpublish", "--dry-run", "--exclude", "gone")
    assert planned.exit_code == 0
    golden("cli/unpublish_dry_run.txt", shown(planned.stdout, folder))
    done = lancestat("unpublish", "--output", "json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["status"] == "error"
    golden("cli/unpublish.json", shown(done.stdout, folder))
    failed = lancestat("unpublish", "gone")
    assert failed.exit_code == 1
    line = "  ! failed    gone\n             LS201 specs/shop.yml:4:12  there is no"
    assert line in failed.stdout
    assert failed.stdout.endswith("\nNothing to remove, 1 failed.\n")
    again = lancestat("unpublish", "--exclude", "gone")
    assert again.exit_code == 0
    golden("cli/unpublish_again.txt", shown(again.stdout, folder))


def test_entries_of_others_among_those_that_go_are_named(
    folder: Path, lancestat: Lancestat
) -> None:
    lance.dataset(str(folder / "orders.lance")).update_config({"lance.stats.note": "n"})
    words = "             among them not lancestat's: lance.stats.note\n"
    planned = lancestat("unpublish", "orders", "returns", "--dry-run").stdout
    assert planned.count(words) == 1
    assert lancestat("unpublish", "orders", "returns").stdout.count(words) == 1


def test_selectors_may_be_given_in_both_ways(folder: Path, lancestat: Lancestat) -> None:
    def selected(*args: str) -> list[str]:
        result = lancestat("unpublish", "--dry-run", "--output", "json", *args)
        return [node["name"] for node in json.loads(result.stdout)["nodes"]]

    assert selected("returns") == ["returns"]
    assert selected("orders", "kind:knn_join") == ["near", "orders"]
    assert selected("orders", "-s", "part") == ["orders", "part"]
    assert selected("orders returns", "--exclude", "orders") == ["returns"]


def test_a_selection_that_finds_nothing_is_wrong_usage(folder: Path, lancestat: Lancestat) -> None:
    result = lancestat("unpublish", "order")
    assert result.exit_code == 2
    assert "LS402" in result.stderr
    assert lance.dataset(str(folder / "orders.lance")).config()


@pytest.mark.parametrize("command", ["run", "plan"])
def test_runs_offer_it_where_publish_is_none(
    folder: Path, lancestat: Lancestat, command: str
) -> None:
    yml = folder / "specs" / "shop.yml"
    for name in ("orders", "returns"):
        yml.write_text(yml.read_text().replace(f"{name}.lance", f"{name}.lance, publish: none"))
    offer = (
        "Statistics published earlier are still in orders, returns; 'lancestat unpublish orders "
        "returns' removes them."
    )
    selected = (command, "-s", "orders returns")
    assert offer in " ".join(lancestat(*selected, COLUMNS="200").stdout.split())
    nodes = json.loads(lancestat(*selected, "--output", "json").stdout)["nodes"]
    assert [node["still_published"] for node in nodes] == [True, True]
    result = lancestat("unpublish", "orders", "returns", COLUMNS="200")
    assert result.exit_code == 0
    words = (
        "What the state keeps of orders, returns describes an earlier version until the next run, "
        "which confirms it without reading."
    )
    assert " ".join(result.stdout.split()).endswith(words)
    assert "still in" not in lancestat(*selected).stdout
    nodes = json.loads(lancestat(*selected, "--output", "json").stdout)["nodes"]
    assert [node["still_published"] for node in nodes] == [False, False]
