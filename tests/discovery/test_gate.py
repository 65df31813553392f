"""A pull request that takes tables from a project, or brings them, by its sources."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lancestat.lake.catalogs import CatalogClient
from tests.discovery.catalogs import write_catalog, write_folder
from tests.discovery.conftest import PROJECT, Lancestat, Write

FOLDER = "sources: [{uri: flat, exclude: ['*_tmp']}]\n"
LOST, COSTS, UNKNOWN = "coverage_lost", "cost_increased", "effect_unknown"

Gate = Callable[..., dict[str, Any]]


def git(folder: Path, *args: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", *identity, *args], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def gate(tmp_path: Path, write: Write, lancestat: Lancestat) -> Gate:
    """Commit the spec files of BASE, write those of HEAD, and return the diff and its exit code."""
    write_folder(tmp_path / "flat", "orders", "parts", "x_tmp")
    write_folder(tmp_path / "other", "orders", "new")
    write_catalog(tmp_path / "lake", "sales.orders", "crm.customers")

    def compare(
        base: str, head: str, *options: str, project: tuple[str, str] = (PROJECT, PROJECT)
    ) -> dict[str, Any]:
        write(base, project[0])
        git(tmp_path, "init", "-q")
        git(tmp_path, "add", "lancestat_project.yml", "specs")
        git(tmp_path, "commit", "-qm", "base")
        write(head, project[1])
        command = ("diff", "HEAD", "--fail-on", "any", "--output", "json", *options)
        result = lancestat(*command)
        assert result.exit_code in (0, 3), result.output
        return {**json.loads(result.stdout), "exit_code": result.exit_code}

    return compare


def tables(diff: dict[str, Any], name: str) -> dict[str, Any]:
    [node] = [node for node in diff["nodes"] if node["name"] == name]
    return dict(node["tables"] or {})


@pytest.mark.parametrize(
    ("head", "lost", "gained", "risks"),
    [
        ("sources: [{uri: flat, exclude: ['*_tmp', orders]}]\n", ["orders"], [], [LOST]),
        ("sources: [{uri: flat, include: [parts]}]\n", ["orders"], [], [LOST]),
        ("sources: [{uri: flat}]\n", [], ["x_tmp"], [COSTS]),
        (
            "sources: [{uri: flat, include: ['x*']}]\n",
            ["orders", "parts"],
            ["x_tmp"],
            [COSTS, LOST],
        ),
        # Two tables by one name have no node, nor does a name that is none.
        ("sources: [{uri: flat, name: t}]\n", ["orders", "parts", "x_tmp"][:2], [], [LOST]),
        (
            "sources: [{uri: flat, exclude: ['*_tmp'], name: 'a b'}]\n",
            ["orders", "parts"],
            [],
            [LOST],
        ),
    ],
)
def test_patterns_that_drop_or_find_tables_are_changes(
    gate: Gate, head: str, lost: list[str], gained: list[str], risks: list[str]
) -> None:
    diff = gate(FOLDER, head)
    assert diff["exit_code"] == 3
    assert diff["risks"] == risks
    assert tables(diff, "source:flat") == {
        "known": True,
        "gained": gained,
        "lost": lost,
        "renamed": [],
    }


def test_a_source_that_is_removed_loses_its_tables(gate: Gate) -> None:
    diff = gate(FOLDER, "sources: []\n")
    assert (diff["exit_code"], diff["risks"]) == (3, [LOST])
    assert diff["summary"]["removed"] == 1
    assert tables(diff, "source:flat")["lost"] == ["orders", "parts"]


def test_another_folder_is_other_tables(gate: Gate) -> None:
    """BASE has no source in the new folder, which is not opened."""
    diff = gate(FOLDER, "sources: [{uri: other}]\n")
    assert (diff["exit_code"], diff["risks"]) == (3, [COSTS, LOST, UNKNOWN])
    assert tables(diff, "source:flat")["lost"] == ["orders", "parts"]
    assert tables(diff, "source:other")["known"] is False


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (FOLDER, "sources: [{uri: ./flat/, exclude: ['*_tmp']}]\n"),
        (FOLDER, "sources: [{uri: flat, include: [orders, parts]}]\n"),
        (FOLDER, "sources: [{uri: flat, include: [orders]}, {uri: flat, include: [parts]}]\n"),
        (FOLDER, f"{FOLDER}tables: [{{name: parts, uri: ./flat/parts.lance}}]\n"),
        (f"{FOLDER}tables: [{{name: parts, uri: flat/parts.lance}}]\n", FOLDER),
        (
            "sources: [{catalog: lake}]\n",
            "sources: [{catalog: lake, include: ['crm.*']}]\n"
            "tables: [{name: sales_orders, table: lake.sales.orders}]\n",
        ),
    ],
)
def test_the_same_tables_in_another_way_take_no_risk(gate: Gate, base: str, head: str) -> None:
    diff = gate(base, head)
    assert (diff["exit_code"], diff["risks"]) == (0, []), diff["nodes"]


def test_a_table_that_is_declared_at_the_place_in_the_catalog_is_not_lost(
    gate: Gate, tmp_path: Path
) -> None:
    from lancestat.lake.catalogs import client_of
    from lancestat.spec.catalog import Catalog, TableName

    catalog = Catalog("dir", {"root": str(tmp_path / "lake")})
    uri = client_of(catalog, "x").describe(TableName("x", ("sales", "orders"))).location
    diff = gate(
        "sources: [{catalog: lake}]\n",
        f"sources: [{{catalog: lake, include: ['crm.*']}}]\ntables: [{{name: o, uri: {uri}}}]\n",
        project=(PROJECT.replace("root: lake", f"root: {tmp_path}/lake"),) * 2,
    )
    assert LOST not in diff["risks"], diff["nodes"]


def test_other_names_are_told(gate: Gate) -> None:
    diff = gate(FOLDER, "sources: [{uri: flat, exclude: ['*_tmp'], name: 'w_{{ table }}'}]\n")
    assert (diff["exit_code"], diff["risks"]) == (0, [])
    assert tables(diff, "source:flat")["renamed"] == [
        {"old": "orders", "new": "w_orders"},
        {"old": "parts", "new": "w_parts"},
    ]


@pytest.mark.parametrize(
    "head",
    [
        "sources: [{uri: flat, include: [orders]},"
        " {uri: flat, include: [parts], defaults: {columns: [id]}}]\n",
        "sources: [{uri: flat, include: [orders]}]\n"
        "tables: [{name: parts, uri: flat/parts.lance, columns: [id]}]\n",
    ],
)
def test_tables_that_lose_columns_on_the_way_are_found(gate: Gate, head: str) -> None:
    """They are handed from one source to another, or declared, with fewer columns."""
    diff = gate(FOLDER, head)
    assert diff["exit_code"] == 3
    assert LOST in diff["risks"]


@pytest.mark.parametrize(
    ("base", "head", "options", "reason"),
    [
        (FOLDER, "sources: [{uri: flat}]\n", ["--no-datasets"], "with --no-datasets"),
        (
            "sources: [{uri: gone}]\n",
            "sources: [{uri: gone, exclude: [a]}]\n",
            [],
            "it cannot be looked up: LS201 there is no folder",
        ),
        (
            "sources: [{catalog: paging}]\n",
            "sources: [{catalog: paging, exclude: [a]}]\n",
            [],
            "it cannot be looked up: LS202 no permission",
        ),
    ],
)
def test_what_cannot_be_looked_up_is_a_risk_of_its_own(
    gate: Gate, tmp_path: Path, base: str, head: str, options: list[str], reason: str
) -> None:
    write_catalog(tmp_path / "paging", "a.x")
    (tmp_path / "paging" / "denied").touch()
    diff = gate(base, head, *options)
    assert (diff["exit_code"], diff["risks"]) == (3, [UNKNOWN])
    [node] = diff["nodes"]
    assert reason in node["risks"][0]["message"]
    assert node["tables"]["known"] is False


def test_another_catalog_by_the_same_name_is_not_known(gate: Gate) -> None:
    """Nothing of the source changes but what its catalog's name means."""
    sources = "sources: [{catalog: lake}]\n"
    projects = (PROJECT, PROJECT.replace("root: lake", "root: elsewhere"))
    diff = gate(sources, sources, project=projects)
    assert (diff["exit_code"], diff["risks"]) == (3, [UNKNOWN])


def test_nothing_is_asked_where_no_source_changes(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: CatalogClient) -> Any:
        raise AssertionError("asked")

    monkeypatch.setattr(CatalogClient, "tables", refuse)
    changed = FOLDER.replace("}]", ", defaults: {tags: [a]}}]")
    assert gate(FOLDER, changed)["exit_code"] == 0


def test_text_and_markdown_name_the_tables(gate: Gate, lancestat: Lancestat) -> None:
    assert gate(FOLDER, "sources: [{uri: flat, include: ['x*']}]\n")["exit_code"] == 3
    text = lancestat("diff", "HEAD").stdout
    assert "no node changes" not in text
    assert "loses orders, parts" in text
    assert "gains x_tmp" in text
    page = lancestat("diff", "HEAD", "--output", "markdown").stdout
    assert "- tables that are lost: `orders`, `parts`" in page
    assert "- tables that come: `x_tmp`" in page
