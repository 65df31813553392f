"""`lancestat docs` and `lancestat schema`."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.spec.schema import KINDS, editor_schema, editor_schemas
from tests.cli.conftest import Lancestat
from tests.runs.world import write_project


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project of a table that is there and one that is not."""
    (tmp_path / "shop").mkdir()
    write_project(tmp_path / "shop", "orders", "gone")
    lance.write_dataset(pa.table({"id": [1, 2, 3]}), tmp_path / "shop" / "orders.lance")
    return tmp_path / "shop"


def test_pages_are_written_and_the_first_is_named(lancestat: Lancestat, shop: Path) -> None:
    result = lancestat("docs", "--project-dir", str(shop))
    page = shop / ".lancestat" / "docs" / "index.html"
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == page.as_uri()
    assert "orders" in page.read_text(encoding="utf-8")
    table = (page.parent / "tables" / "orders.html").read_text(encoding="utf-8")
    assert "name: orders" in table
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


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_of_a_kind_is_printed(kind: str, lancestat: Lancestat) -> None:
    result = lancestat("schema", kind)
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == editor_schema(kind)


def test_without_a_kind_schemas_are_listed(lancestat: Lancestat) -> None:
    text = lancestat("schema").stdout
    payload = json.loads(lancestat("schema", "--output", "json").stdout)
    assert [kind["name"] for kind in payload["kinds"]] == list(KINDS)
    assert [line.split()[0] for line in text.splitlines()[1:]] == list(KINDS)


def test_schemas_are_written_and_overwritten(lancestat: Lancestat, tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    old = tmp_path / "schemas" / "lancestat_specs.schema.json"
    old.write_text("of an older version")
    other = tmp_path / "schemas" / "of_another_program.json"
    other.write_text("{}")
    result = lancestat("schema", "--out", "schemas")
    assert result.exit_code == 0, result.output
    assert result.stdout.split() == [f"schemas/{name}" for name in editor_schemas()]
    for name, schema in editor_schemas().items():
        assert json.loads((tmp_path / "schemas" / name).read_text()) == schema
    assert other.read_text() == "{}"


def test_a_new_folder_is_made_for_schemas(lancestat: Lancestat, tmp_path: Path) -> None:
    payload = json.loads(lancestat("schema", "--out", "a/b", "--output", "json").stdout)
    assert (payload["folder"], payload["files"]) == ("a/b", list(editor_schemas()))
    assert sorted(path.name for path in (tmp_path / "a/b").iterdir()) == sorted(payload["files"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("tabel",), "LS617  there is no schema of 'tabel'\n      hint: did you mean 'table'?"),
        (("x",), "LS617  there is no schema of 'x'\n      hint: kinds: project, specs, table"),
        (("table", "--out", "d"), "Give either a KIND"),
        (("--out", "file/below"), "LS403  cannot write to file/below: Not a directory"),
    ],
)
def test_unknown_kinds_and_folders_are_wrong_usage(
    args: tuple[str, ...], message: str, lancestat: Lancestat, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    result = lancestat("schema", *args)
    assert result.exit_code == 2
    assert message in result.stderr
