"""`lancestat init --from`: a project over tables that are there."""

from __future__ import annotations

import json
from pathlib import Path

import lance.namespace
import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from lancestat.cli.main import cli
from tests.discovery.catalogs import write_catalog, write_folder


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args], prog_name="lancestat")


def planned(project: Path) -> list[str]:
    made = run("--project-dir", project, "--output", "json", "plan")
    assert made.exit_code == 0, made.output
    return [node["name"] for node in json.loads(made.stdout)["nodes"]]


def test_a_project_over_a_folder_plans_at_once(tmp_path: Path) -> None:
    write_folder(tmp_path / "wh", "orders", "parts")
    made = run("init", tmp_path / "shop", "--from", tmp_path / "wh")
    assert made.exit_code == 0, made.output
    assert run("--project-dir", tmp_path / "shop", "validate").exit_code == 0
    assert planned(tmp_path / "shop") == ["orders", "parts"]
    written = (tmp_path / "shop" / "specs" / "sources.yml").read_text()
    assert "#   orders\n#   parts\n" in written
    # What `advise` declares a table with has no key that only repeats a default.
    assert yaml.safe_load(written)["sources"][0]["defaults"] == {"policy": "fresh_enough"}
    assert [path.name for path in (tmp_path / "shop" / "specs").iterdir()] == ["sources.yml"]
    assert (tmp_path / "shop" / "schemas").is_dir()


def test_a_folder_inside_of_the_project_is_named_relative_to_it(tmp_path: Path) -> None:
    write_folder(tmp_path / "shop" / "wh", "orders")
    assert run("init", tmp_path / "shop", "--from", tmp_path / "shop" / "wh").exit_code == 0
    written = (tmp_path / "shop" / "specs" / "sources.yml").read_text()
    assert 'uri: "./wh"' in written and str(tmp_path) not in written
    assert planned(tmp_path / "shop") == ["orders"]


@pytest.mark.parametrize("kind", ["dir", "rest"])
def test_a_project_over_a_catalog(tmp_path: Path, kind: str) -> None:
    write_catalog(tmp_path / "lake", "sales.orders", "top")
    backend = {"root": str(tmp_path / "lake")}
    with lance.namespace.RestAdapter("dir", backend, port=0) as server:
        rest = f"rest:http://127.0.0.1:{server.port}"
        place = rest if kind == "rest" else f"dir:{tmp_path / 'lake'}"
        made = run("init", tmp_path / "shop", "--from", place)
        assert made.exit_code == 0, made.output
        assert planned(tmp_path / "shop") == ["top", "sales_orders"]
    if kind == "dir":
        assert "catalog: lake" in (tmp_path / "shop" / "specs" / "sources.yml").read_text()


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("s3://user:secret-word@bucket/wh", "would be written"),
        ("rest:https://host/x?token=secret-word", "would be written"),
        ("{root}/absent", "there is no folder"),
        ("{root}/empty", "there are no Lance tables"),
        ("rest:http://127.0.0.1:1", "Connection refused)       hint: check what --from names"),
        ("dir:", "--from takes"),
        ("{root}/{{{{ x }}}}", "is a template"),
    ],
)
def test_what_cannot_be_adopted_writes_nothing(tmp_path: Path, place: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    made = run("init", tmp_path / "shop", "--from", place.format(root=tmp_path))
    assert made.exit_code != 0
    assert said in made.output.replace("\n", " ") and "secret-word" not in made.output
    assert not (tmp_path / "shop").exists()


def test_a_project_that_is_there_stays(tmp_path: Path) -> None:
    write_folder(tmp_path / "wh", "orders")
    (tmp_path / "lancestat_project.yml").write_text("mine")
    assert run("init", tmp_path, "--from", tmp_path / "wh").exit_code == 2
    assert (tmp_path / "lancestat_project.yml").read_text() == "mine"
    assert not (tmp_path / "specs").exists()


def test_what_was_found_shows_in_init_list_and_completion(tmp_path: Path) -> None:
    write_folder(tmp_path / "wh", "orders", "parts", "orders_tmp")
    made = run("init", tmp_path / "shop", "--from", tmp_path / "wh")
    assert "Found 3 tables: orders, orders_tmp, parts.\n" in made.stdout
    specs = tmp_path / "shop" / "specs" / "sources.yml"
    specs.write_text(specs.read_text().replace("exclude: []", 'exclude: ["*_tmp"]'))
    project = ("--project-dir", str(tmp_path / "shop"))
    listed = run(*project, "list").stdout
    assert "source:wh  source" in listed
    assert "--discover lists the tables of this source too." in listed
    completion = ShellComplete(cli, {}, "lancestat", "_LANCESTAT_COMPLETE")

    def completed(*words: str, begun: str) -> list[str]:
        return [item.value for item in completion.get_completions([*project, *words], begun)]

    assert completed("show", begun="") == ["orders", "parts"]
    assert completed("run", "-s", begun="source:") == ["source:wh"]
    assert completed("run", "-s", begun="o") == ["orders"]
