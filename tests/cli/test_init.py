from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from click.testing import Result

from lancestat.cli.command import ExitCode
from lancestat.lake.open import observe_dataset
from tests.cli.conftest import Lancestat
from tests.test_startup import COMMAND, loaded

pytestmark = pytest.mark.whole


def test_a_new_project_can_be_planned_and_run_as_it_is(
    lancestat: Lancestat, tmp_path: Path
) -> None:
    made = lancestat("init", "shop")
    assert (made.exit_code, made.stderr) == (0, "")
    assert "cd shop" in made.stdout
    project = tmp_path / "shop"

    def in_project(*args: str) -> Result:
        return lancestat("--project-dir", str(project), *args)

    valid = in_project("validate")
    assert (valid.exit_code, valid.stderr) == (0, "")
    assert valid.stdout == "valid  shop, target dev: 2 tables\n"
    planned = in_project("plan", "--check", "--output", "json")
    assert planned.exit_code == ExitCode.CHANGES_PENDING
    actions = [(node["name"], node["action"]) for node in json.loads(planned.stdout)["nodes"]]
    assert actions == [("orders", "analyze"), ("products", "analyze")]

    # In a process of its own, where no session of Spark runs: none is needed.
    assert loaded(COMMAND, ["run"], project).isdisjoint({"pyspark", "py4j"})

    again = in_project("plan", "--check")
    assert again.exit_code == 0
    assert "Nothing to do: all statistics are up to date." in again.stdout
    status = in_project("status")
    assert (status.exit_code, status.stdout.splitlines()[-1]) == (0, "2 ok.")
    shown = json.loads(in_project("show", "orders", "--output", "json").stdout)
    assert (shown["verdict"], shown["num_rows"]) == ("use", 1000)
    pages = in_project("docs")
    assert pages.exit_code == 0, pages.output

    more = observe_dataset(str(project / "sample" / "orders.lance")).take([0, 1, 2])
    lance.write_dataset(more, project / "sample" / "orders.lance", mode="append")
    assert "1 of 3 fragments, 3 rows" in in_project("plan").stdout


def test_the_knn_join_of_a_new_project_can_be_planned_once_its_file_is_renamed(
    lancestat: Lancestat, tmp_path: Path
) -> None:
    assert lancestat("init").exit_code == 0
    joins = tmp_path / "specs" / "knn_joins.yml"
    joins.with_suffix(".yml.example").rename(joins)
    planned = json.loads(lancestat("plan", "--select", "kind:knn_join", "--output", "json").stdout)
    [join] = planned["nodes"]
    assert (join["action"], join["left_rows"], join["right_rows"]) == ("analyze", 64, 64)


def test_init_prints_what_it_wrote(lancestat: Lancestat, tmp_path: Path) -> None:
    payload = json.loads(lancestat("init", "--output", "json").stdout)
    assert payload["files"][0] == "lancestat_project.yml"
    assert payload["tables"] == ["sample/orders.lance", "sample/products.lance"]
    assert sorted(payload["files"]) == sorted(
        name
        for name in contents(tmp_path)
        if not any(name.startswith(f"{table}/") for table in payload["tables"])
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_git_sees_the_declarations_of_a_new_project_and_neither_its_tables_nor_its_state(
    lancestat: Lancestat, tmp_path: Path
) -> None:
    """Also in a fresh clone, where only the committed files keep the state out."""
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("*.log\n")
    assert lancestat("init", "shop").exit_code == 0
    (tmp_path / "shop" / ".lancestat" / "state").mkdir()
    (tmp_path / "shop" / ".lancestat" / "state" / "runs").write_text("")
    seen = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    expected = {f"shop/{name}" for name in contents(tmp_path / "shop") if ".lance/" not in name} - {
        "shop/.lancestat/state/runs"
    }
    assert set(seen) == {*expected, ".gitignore"}
    assert "shop/.lancestat/.gitignore" in seen
    assert (tmp_path / ".gitignore").read_text() == "*.log\n"


def test_init_twice_is_one_error_that_names_the_project_file(
    lancestat: Lancestat, tmp_path: Path
) -> None:
    assert lancestat("init").exit_code == 0
    before = contents(tmp_path)
    again = lancestat("init")
    assert again.exit_code == 2
    assert again.stderr == (
        "LS650  nothing was written, since . already holds lancestat_project.yml\n"
        "      hint: name an empty folder: lancestat init DIR\n"
    )
    assert contents(tmp_path) == before


def test_init_leaves_everything_else_in_the_folder_as_it_is(
    lancestat: Lancestat, tmp_path: Path
) -> None:
    mine = {
        "README.md": b"mine",
        ".gitignore": b"*.log\n",
        "sample/notes.txt": b"mine",
        "specs/mine.yml": b"tables: []\n",
        "warehouse/orders.lance/data/x": b"mine",
    }
    for name, content in mine.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert lancestat("init").exit_code == 0
    assert mine.items() <= contents(tmp_path).items()


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_a_file_where_the_folder_should_be_is_one_clear_error(
    folder: str, lancestat: Lancestat, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    result = lancestat("init", folder)
    assert result.exit_code == 2
    assert result.stderr.startswith("LS403  cannot write to ")


def test_existing_editor_settings_are_not_changed(lancestat: Lancestat, tmp_path: Path) -> None:
    mine = tmp_path / ".vscode" / "settings.json"
    mine.parent.mkdir()
    mine.write_text("// mine\n{}\n")
    result = lancestat("init")
    assert result.exit_code == 0, result.output
    assert mine.read_text() == "// mine\n{}\n"
    assert ".vscode/settings.json stays as it is" in result.stderr
    assert ".vscode/extensions.json" in result.stdout
    assert "yaml.schemas" in result.stderr


def test_an_editor_finds_the_schema_of_every_file(lancestat: Lancestat, tmp_path: Path) -> None:
    assert lancestat("init").exit_code == 0
    settings = json.loads((tmp_path / ".vscode" / "settings.json").read_text())["yaml.schemas"]
    schemas = {
        path: schema
        for schema, globs in settings.items()
        for pattern in globs
        for path in tmp_path.glob(pattern)
    }
    assert set(schemas) == {*tmp_path.rglob("*.yml")}
    for path, schema in schemas.items():
        json.loads((tmp_path / schema).read_text())
        # The files also name their schema, for editors that open another folder.
        named = path.read_text().splitlines()[0].partition("$schema=")[2]
        assert (path.parent / named).resolve() == (tmp_path / schema).resolve()


def test_init_completes_a_killed_init(lancestat: Lancestat, tmp_path: Path) -> None:
    """It writes the project's file last: a folder without it is not a project yet."""
    assert lancestat("init").exit_code == 0
    whole = contents(tmp_path)
    (tmp_path / "lancestat_project.yml").unlink()
    (tmp_path / "specs" / "tables.yml").unlink()
    shutil.rmtree(tmp_path / "sample" / "products.lance")
    again = lancestat("init")
    assert again.exit_code == 0, again.output
    written = contents(tmp_path)
    # Lance names the files of a table at random.
    products = "sample/products.lance/"
    assert {name: content for name, content in written.items() if products not in name} == {
        name: content for name, content in whole.items() if products not in name
    }
    assert observe_dataset(str(tmp_path / products)).count_rows() == 64
    assert lancestat("init").exit_code == 2


_MARK = "from lancestat.lake.files import this_process; print(this_process().tag)"


def test_a_refused_init_removes_the_drafts_of_a_killed_one(
    lancestat: Lancestat, tmp_path: Path
) -> None:
    assert lancestat("init").exit_code == 0
    completed = subprocess.run(
        [sys.executable, "-c", _MARK], capture_output=True, text=True, check=True
    )
    mark = completed.stdout.strip()
    files = [path for path in tmp_path.rglob("*") if path.is_file() and ".lance/" not in str(path)]
    for path in files:
        name = path.name.lstrip(".")
        path.with_name(f".{name}.draft-{mark}-{'0' * 12}").write_text("a part of it")
    table = tmp_path / "sample" / f".orders.lance.draft-{mark}-{'0' * 12}"
    shutil.copytree(tmp_path / "sample" / "orders.lance", table)
    drafts = f".*.draft-{mark}-*"
    assert len([*tmp_path.rglob(drafts)]) == len(files) + 1
    assert lancestat("init").exit_code == 2
    assert [*tmp_path.rglob(drafts)] == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sample/orders.lance", "table"),
        ("sample/orders.lance", "folder"),
        ("sample/orders.lance", "file"),
        ("sample/orders.lance", "link"),
        ("specs/tables.yml", "file"),
        ("lancestat_project.yml", "link"),
    ],
)
def test_what_is_in_the_way_stops_init_before_it_writes_anything(
    name: str, kind: str, lancestat: Lancestat, tmp_path: Path
) -> None:
    taken = tmp_path / name
    taken.parent.mkdir(exist_ok=True)
    match kind:
        case "table":
            lance.write_dataset(pa.table({"mine": [1, 2, 3]}), taken)
        case "folder":
            taken.mkdir()
        case "file":
            taken.write_text("mine")
        case "link":
            taken.symlink_to(tmp_path / "elsewhere")
    before = contents(tmp_path)
    result = lancestat("init")
    assert result.exit_code == 2
    assert f"already holds {name}" in result.stderr
    assert contents(tmp_path) == before
    assert not (tmp_path / "elsewhere").exists()
