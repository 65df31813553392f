"""The files that commands leave for other systems."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import lance
import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from lancestat import Project
from lancestat.cli.main import cli
from lancestat.pipelines import artifacts as module
from lancestat.pipelines.artifacts import generated_files, schemas, unique_id
from lancestat.spec.model import KnnJoin
from tests.runs.world import orders, write_project

TOP = Path(__file__).parents[2]
Command = Callable[..., Result]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Invoke lancestat in a project with a table that can be read and one that is not there."""
    write_project(tmp_path, {**HERE, "freshness": {"warn_after": "12h"}}, "gone")
    lance.write_dataset(orders(0, 30), str(tmp_path / "here.lance"), max_rows_per_file=10)
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(cli, words)


HERE = {"name": "here", "uri": "here.lance", "owner": "data@example.com", "tags": ["b", "a"]}


def written(name: str, folder: str = "target") -> dict[str, Any]:
    """An artifact, which is valid by its published schema."""
    found: dict[str, Any] = json.loads(Path(folder, f"{name}.json").read_text("utf-8"))
    schema = json.loads((TOP / "schemas" / f"{name}.schema.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(found)
    assert found["metadata"]["schema"] == schema["$id"] == f"{name}.schema.json"
    return found


def test_a_run_leaves_how_each_node_ended(command: Command) -> None:
    result = command("run", "--threads", "1", "--output", "json")
    assert result.exit_code == 1
    printed = {node["name"]: node for node in json.loads(result.stdout)["nodes"]}
    found = written("run_results")
    assert found["status"] == "error"
    assert found["args"] | {"command": "run", "threads": 1, "select": None} == found["args"]
    results = {each["unique_id"]: each for each in found["results"]}
    here, gone = results["table.shop.here"], results["table.shop.gone"]
    assert (here["status"], here["message"], here["code"]) == ("success", None, None)
    assert here["execution_time"] == printed["here"]["elapsed_seconds"]
    assert here["adapter_response"]["rows_scanned"] == 30
    assert here["adapter_response"].items() <= printed["here"].items()
    timing = here["timing"]
    assert [stage["name"] for stage in timing] == ["read", "merge", "publish"]
    for before, after in pairwise(timing):
        assert before["started_at"] <= before["completed_at"] == after["started_at"]
    assert (gone["status"], gone["code"]) == ("error", printed["gone"]["code"])
    assert gone["message"] == printed["gone"]["message"]
    assert gone["timing"] == []


def test_the_manifest_has_the_nodes_and_what_was_planned(command: Command) -> None:
    assert command("plan").exit_code == 1
    found = written("manifest")
    here = found["nodes"]["table.shop.here"]
    assert (here["name"], here["resource_type"], here["owner"]) == ("here", "table", HERE["owner"])
    assert (here["tags"], here["path"]) == (["a", "b"], "specs/shop.yml")
    assert here["uri"] == str(Path("here.lance").absolute())
    planned = {"action": "analyze", "reasons": ["new"], "fragments": 3, "rows": 30}
    assert here["plan"] == planned
    assert found["nodes"]["table.shop.gone"]["plan"]["action"] == "blocked"
    assert not Path("target", "run_results.json").exists()


def test_the_manifest_has_the_checks_of_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect = [{"not_null": "a"}, {"row_count": {"min": 1, "severity": "warn"}}]
    write_project(tmp_path, {**HERE, "expect": expect, "monitors": ["schema_changes"]})
    path = tmp_path / "lancestat_project.yml"
    path.write_text(f"{path.read_text('utf-8')}\nmonitors: [volume_anomalies]\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(cli, ["plan"])
    checks = written("manifest")["nodes"]["table.shop.here"]["checks"]
    assert [(check["name"], check["severity"]) for check in checks] == [
        ("not_null(a)", "error"),
        ("row_count", "warn"),
        ("schema_changes", "warn"),
        ("volume_anomalies", "warn"),
    ]
    assert checks[0]["description"] == "a is not null"


def test_a_join_depends_on_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    side = {"table": "here", "vector": "v"}
    join = {"name": "near", "left": side, "right": side, "k": 1, "output": {"lance": "near.lance"}}
    write_project(tmp_path, HERE, {"name": "over", "uri": "near.lance"}, knn_joins=[join])
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(cli, ["plan"])
    found = written("manifest")
    table, near, over = (f"{kind}.shop.{name}" for kind, name in KINDS)
    assert found["nodes"][near]["depends_on"] == {"nodes": [table]}
    CliRunner().invoke(cli, ["plan", "--select", "near"])
    some = written("manifest")["nodes"]
    assert {name for name, node in some.items() if node["plan"]} == {near}
    assert some.keys() == found["nodes"].keys()
    assert found["parent_map"] == {table: [], near: [table], over: [near]}
    assert found["child_map"] == {table: [near], near: [over], over: []}


def test_the_manifest_has_what_nodes_read_and_are_held_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = {
        "left": {"lance": "raw.lance", "vector": "v"},
        "right": {"table": "here", "vector": "v"},
    }
    join = {"name": "near", **sides, "mode": "approx", "approx": {"recall": 0.9}, "k": 1}
    write_project(
        tmp_path,
        {**HERE, "freshness": {"error_after": "1h"}},
        {"name": "over", "uri": "near.lance"},
        knn_joins=[
            {**join, "output": {"lance": "near.lance"}},
            {**join, "name": "files", "output": {"parquet": "files"}},
        ],
    )
    nodes = {node["name"]: node for node in Project.load(tmp_path).manifest()["nodes"].values()}
    here, raw = str(tmp_path / "here.lance"), str(tmp_path / "raw.lance")
    assert {name: node["inputs"] for name, node in nodes.items()} == {
        "here": [here],
        "near": [raw],
        "files": [raw],
        "over": [],
    }
    assert {name for name, node in nodes.items() if node["format"] == "parquet"} == {"files"}
    assert nodes["here"]["freshness"] == {"warn_after": None, "error_after": 3600}
    assert nodes["near"]["recall"] == 0.9
    assert (nodes["over"]["freshness"], nodes["over"]["recall"]) == (None, None)
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(cli, ["status"])
    assert written("manifest")["nodes"] == Project.load(tmp_path).manifest()["nodes"]


KINDS = [("table", "here"), (KnnJoin.kind.value, "near"), ("table", "over")]


def test_a_source_that_cannot_be_reached_has_one_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = {"impl": "rest", "properties": {"uri": "http://127.0.0.1:9"}}
    target = {"state": "state", "catalogs": {"lake": catalog}}
    write_project(tmp_path, target=target, sources=[{"catalog": "lake"}])
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli, ["run"]).exit_code == 1
    [(id, node)] = written("manifest")["nodes"].items()
    assert (id, node["resource_type"]) == ("source.shop.source:lake", "source")
    assert [each["unique_id"] for each in written("run_results")["results"]] == [id]
    CliRunner().invoke(cli, ["status"])
    assert [each["unique_id"] for each in written("sources")["results"]] == [id]


def test_a_status_leaves_how_nodes_are(command: Command) -> None:
    command("run")
    result = command("status", "--output", "json")
    printed = {node["name"]: node for node in json.loads(result.stdout)["nodes"]}
    results = {each["unique_id"]: each for each in written("sources")["results"]}
    here, gone = results["table.shop.here"], results["table.shop.gone"]
    assert (here["status"], here["message"]) == ("pass", None)
    assert here["criteria"] == {"warn_after": 12 * 3600, "error_after": None}
    assert here["max_loaded_at"] is not None
    assert here["max_loaded_at_time_ago_in_s"] < 3600
    assert here["adapter_response"]["verdict"] == printed["here"]["verdict"] == "use"
    assert gone["status"] == "error"
    assert gone["message"] == " ".join(printed["gone"]["problems"])
    assert gone["max_loaded_at"] is None
    assert set(written("manifest")["nodes"]) == set(results)


def test_the_run_of_the_artifacts_is_the_recorded_one(command: Command) -> None:
    command("run")
    [recorded] = json.loads(command("runs", "--output", "json").stdout)["runs"]
    ids = {written(name)["metadata"]["invocation_id"] for name in ("manifest", "run_results")}
    assert ids == {recorded["run_id"]}
    command("retry")
    found = written("run_results")
    assert [each["unique_id"] for each in found["results"]] == ["table.shop.gone"]
    assert found["metadata"]["invocation_id"] not in ids


def test_artifacts_are_written_where_one_says(command: Command) -> None:
    assert command("run", "--artifacts", "left/here").exit_code == 1
    assert written("run_results", "left/here")["results"]
    assert not Path("target").exists()
    command("run", "--no-artifacts")
    assert not Path("target").exists()
    both = command("run", "--artifacts", "left", "--no-artifacts")
    assert both.exit_code == 2
    assert "--artifacts and --no-artifacts exclude each other" in both.stderr


def test_a_repository_does_not_get_them(command: Command) -> None:
    subprocess.run(["git", "init", "--quiet"], check=True)
    command("run", "--quiet")
    status = ["git", "status", "--porcelain", "--untracked-files=all"]
    assert "target" not in subprocess.run(status, check=True, capture_output=True, text=True).stdout


IS_LINK = "it is a symbolic link; --artifacts names another folder"


def linked() -> None:
    Path("elsewhere").mkdir()
    Path("target").symlink_to("elsewhere")


def refused(code: int) -> Callable[[pytest.MonkeyPatch], None]:
    """What writes to a folder where the system refuses it."""

    def install(monkeypatch: pytest.MonkeyPatch) -> None:
        def write(path: Path, content: bytes) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(module, "write_whole", write)

    return install


@pytest.mark.parametrize(
    ("break_folder", "why"),
    [
        (lambda _: linked(), IS_LINK),
        (lambda _: Path("target").symlink_to("nowhere"), IS_LINK),
        (lambda _: Path("target").write_text("mine"), "Not a directory"),
        (refused(errno.ENOSPC), "No space left on device"),
        (refused(errno.EROFS), "Read-only file system"),
    ],
    ids=["link", "dangling", "file", "full", "read-only"],
)
@pytest.mark.parametrize("name", ["plan", "run", "status"])
def test_a_folder_that_cannot_be_written_is_one_warning(
    name: str,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    break_folder: Callable[[pytest.MonkeyPatch], None],
    why: str,
) -> None:
    without = command(name, "--select", "here", "--no-artifacts")
    break_folder(monkeypatch)
    result = command(name, "--select", "here")
    assert result.exit_code == without.exit_code
    warnings = [line for line in result.stderr.splitlines() if line.startswith("warning:")]
    assert warnings == [f"warning: artifacts are not written to {Path('target').absolute()}: {why}"]
    assert not Path("elsewhere").exists() or not list(Path("elsewhere").iterdir())
    assert not Path("nowhere").exists()
    assert not Path("target").is_file() or Path("target").read_text() == "mine"


def test_a_folder_made_on_a_full_disk_is_hidden_from_git_later(command: Command) -> None:
    with pytest.MonkeyPatch.context() as full:
        refused(errno.ENOSPC)(full)
        command("plan")
    assert not Path("target").exists()
    command("plan")
    assert Path("target", ".gitignore").read_text() == "*\n"


def test_secrets_are_in_no_artifact(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "canary-5e1f"
    monkeypatch.setenv("LANCESTAT_SECRET_PLACE", canary)
    uri = "{{ env_var('LANCESTAT_SECRET_PLACE') }}/x.lance"
    write_project(tmp_path, HERE, {"name": "hidden", "uri": uri})
    for words in (["plan"], ["run", "--select", "hidden here"], ["status"]):
        command(*words)
    texts = [path.read_text("utf-8") for path in Path("target").glob("*.json")]
    assert len(texts) == 3
    assert all("hidden" in text and canary not in text for text in texts)


_INTERRUPTED = """
import os, signal, sys
from lancestat.cli.main import main
from lancestat.tables.analyze import ScanTask

def read(task, part):
    os.kill(os.getpid(), signal.SIGINT)
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, signal.default_int_handler)
ScanTask.read = read
sys.argv = ["lancestat", "run", "--threads", "1"]
main()
"""


@pytest.mark.whole
def test_a_run_that_is_interrupted_leaves_how_far_it_got(command: Command) -> None:
    command("run", "--select", "gone")
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, check=False)
    assert done.returncode == 130, done.stderr
    found = written("run_results")
    assert found["status"] == "interrupted"
    results = {each["unique_id"]: each["status"] for each in found["results"]}
    assert results["table.shop.here"] == "interrupted"


@pytest.mark.whole
def test_a_run_that_is_killed_leaves_whole_artifacts(command: Command) -> None:
    command("run", "--select", "gone")
    before = written("run_results")
    killed = _INTERRUPTED.replace("signal.SIGINT)\n    raise", "signal.SIGKILL)\n    raise")
    done = subprocess.run([sys.executable, "-c", killed], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    assert written("run_results") == before
    [run, *_] = json.loads(command("runs", "--output", "json").stdout)["runs"]
    assert written("manifest")["metadata"]["invocation_id"] == run["run_id"]
    assert run["status"] == "interrupted"


@pytest.mark.parametrize("path", generated_files())
def test_the_published_schemas_are_current(path: str) -> None:
    assert (TOP / path).read_text("utf-8") == generated_files()[path], "run 'make generate'"


def test_the_schemas_are_valid() -> None:
    for schema in schemas().values():
        Draft202012Validator.check_schema(schema)


def test_nodes_of_two_kinds_never_share_an_id() -> None:
    assert unique_id("shop", "table", "a") != unique_id("shop", "knn_join", "a")


def test_all_that_goes_to_stderr_can_be_json(command: Command) -> None:
    result = command("run", "--log-format", "json", "--threads", "1")
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert all({"time", "level"} <= line.keys() for line in lines)
    events = [line["event"] for line in lines]
    assert (events[0], events[-1]) == ("run_started", "run_finished")
    ended = {line["node"]: line for line in lines if line["event"] == "node_finished"}
    assert {node: line["level"] for node, line in ended.items()} == {
        "here": "info",
        "gone": "error",
    }
    assert ended["gone"]["result"]["code"] == "LS201"
    failed = command("--log-format", "json", "show", "nothing")
    [error] = map(json.loads, failed.stderr.splitlines())
    assert (error["level"], error["code"]) == ("error", "LS404")
    assert error["message"].startswith("LS404  no table 'nothing' is declared\n")
    shutil.rmtree("target")
    Path("target").write_text("a file")
    warned = command("run", "--log-format", "json", "--select", "here")
    warnings = [line for line in map(json.loads, warned.stderr.splitlines()) if "logger" in line]
    assert [line["level"] for line in warnings] == ["warning"]
    assert warnings[0]["message"].startswith("artifacts are not written to ")
