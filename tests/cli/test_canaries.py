"""No command, format or error shows values of the environment."""

from __future__ import annotations

import pickle
import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.project import Project
from lancestat.runs.execute import RunRecorder, shown_error
from lancestat.runs.node import NodeEnded
from lancestat.runs.result import failed, planned
from lancestat.spec.model import node_digest
from lancestat.state.values import RunRecord
from tests.canaries import ENVIRONMENT, ORDINARY, PROJECT, SECRET, SPECS, seen, write
from tests.cli.conftest import Lancestat
from tests.examples import each
from tests.query.workload.logs import operator, scan, write_log

# Commands whose output stays private, and commands whose output may be published.
PERSONAL = (
    ("plan",),
    ("plan", "--output", "json"),
    ("plan", "--full-refresh", "--check"),
    ("status",),
    ("status", "--output", "json"),
    ("list",),
    ("list", "--output", "json"),
    ("show", "orders"),
    ("show", "orders", "--output", "json"),
    ("show", "orders", "--output", "csv"),
    ("show", "gone"),
    ("gc", "--dry-run"),
    ("runs",),
    ("runs", "--output", "json"),
    ("unpublish",),
    ("unpublish", "--output", "json"),
    ("retry",),
    ("advise", "events"),
    ("advise", "events", "--output", "json"),
)
PUBLIC = (
    ("validate",),
    ("validate", "--output", "json"),
    ("plan", "--output", "markdown"),
    ("plan", "--output", "markdown", "--out", "plan.json"),
    ("status", "--output", "markdown"),
    ("status", "--output", "prometheus"),
    ("status", "--output", "datahub"),
    ("status", "--output", "openmetadata"),
    ("diff", "HEAD~1"),
    ("diff", "HEAD~1", "--output", "json"),
    ("diff", "HEAD~1", "--output", "markdown"),
    ("diff", "HEAD~1", "--output", "markdown", "--no-datasets"),
    ("diff", "HEAD", "."),
    ("docs", "--out", "site"),
    ("advise", "events", "--output", "markdown"),
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, in a repository where it was empty before; one table is there."""
    folder = tmp_path_factory.mktemp("prepared")
    git(folder, "init", "-q")
    empty = PROJECT.replace("aws_region", "aws_default_region").replace("/state", "/other")
    write(folder, empty, "tables: []\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "empty")
    write(folder)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "whole")
    rows = pa.table({"id": [1, 2, 3], "v": [[1.0], [2.0], [3.0]]})
    lance.write_dataset(rows, str(folder / ORDINARY["C_LAKE"] / "orders.lance"))
    write_log(folder / "events", operator("Filter", "Filter (id#1L > 1)", scan("orders", "id#1L")))
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project, with the variables that it reads."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    return tmp_path


def git(folder: Path, *args: str) -> None:
    names = ("-c", "user.name=n", "-c", "user.email=e@e", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *names, *args], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize(("command", "verbose"), each(PERSONAL, [False, True]), ids=str)
def test_no_command_shows_a_secret(
    folder: Path, lancestat: Lancestat, command: tuple[str, ...], verbose: bool
) -> None:
    result = lancestat(*(("--verbose",) if verbose else ()), *command)
    assert result.exit_code in (0, 1, 3), result.output
    assert "LS001" not in result.output
    assert seen(result.output, SECRET) == []


def test_commands_show_ordinary_values(folder: Path, lancestat: Lancestat) -> None:
    assert f"{ORDINARY['C_LAKE']}/{ORDINARY['C_UPPER'].upper()}" in lancestat("plan").stdout
    assert ORDINARY["C_OWNER"] in lancestat("list", "--output", "json").stdout
    output = lancestat("--verbose", "list").stdout
    assert "{{ env_var('C_DESCRIPTION') }} and {{ env_var('C_DB_PASSWORD')" in output


@pytest.mark.parametrize(("command", "verbose"), each(PUBLIC, [True, False]), ids=str)
def test_public_outputs_show_no_value_of_the_environment(
    folder: Path, lancestat: Lancestat, command: tuple[str, ...], verbose: bool
) -> None:
    result = lancestat(*(("--verbose",) if verbose else ()), *command)
    assert result.exit_code in (0, 1), result.output
    assert "LS001" not in result.output
    assert seen(result.output, ENVIRONMENT) == []
    for made in files(folder, "site", "plan.json"):
        assert seen(str(made), ENVIRONMENT) == []
        assert seen(made.read_bytes().decode("latin-1"), ENVIRONMENT) == [], made


def test_the_variables_are_named(folder: Path, lancestat: Lancestat) -> None:
    output = lancestat("diff", "HEAD~1", "--output", "markdown").stdout
    for name in ("C_STATE", "C_LAKE", "C_OWNER", "C_UPPER", "C_NESTED", "C_OUTPUT", "C_SQL"):
        assert f"env_var('{name}')" in output
    assert "`{{ env_var('C_LAKE') }}/orders.lance`" in output
    plan = lancestat("plan", "--output", "markdown").stdout
    assert "env\\_var('C\\_LAKE')" in plan
    lancestat("docs", "--out", "site")
    page = (folder / "site" / "tables" / "gone.html").read_text()
    assert "env_var(&#39;C_LAKE&#39;)" in page


def test_a_plan_file_has_no_values_of_variables_and_can_still_be_run(
    folder: Path, lancestat: Lancestat
) -> None:
    selector = f"tag:{ORDINARY['C_TAG']}"
    assert lancestat("plan", "-s", selector, "--out", "plan.json").exit_code == 0
    assert seen((folder / "plan.json").read_text(), ENVIRONMENT) == []
    (folder / ORDINARY["C_LAKE"]).rename(folder / "elsewhere")
    moved = lancestat("run", "--plan-file", "plan.json", C_LAKE="elsewhere")
    assert "orders: its declaration has changed; what it reads has changed" in moved.stderr
    other = lancestat("run", "--plan-file", "plan.json", C_LAKE="elsewhere", C_STATE="qzother")
    assert "its state is elsewhere" in other.stderr


def files(folder: Path, *names: str) -> Iterator[Path]:
    for name in names:
        place = folder / name
        yield from ([place] if place.is_file() else (p for p in place.rglob("*") if p.is_file()))


# Each replaces a part of the project by a mistake that has a value of the environment in it.
MISTAKES = (
    ("default_target: dev", "default_target: \"{{ env_var('C_OWNER') }}\""),
    ("name: shop", "name: \"{{ env_var('C_OWNER') }}\""),
    ("name: shop", "name: \"x {{ env_var('C_TOKEN') }}\""),
    ("['C_SPECS') }}\"]".removeprefix("["), "'C_SPECS') }}\", \"{{ env_var('C_OWNER') }}\"]"),
    ("spec_paths: [", "spec_paths: [\"/{{ env_var('C_URI_SECRET') }}\\0\", "),
    ("'C_STATE') }}/state", "'C_OWNER') }}\\n"),
    ("min_bytes: 0", "min_bytes: \"{{ env_var('C_OWNER') }}\""),
    ("    storage_options:", "    reader: \"{{ env_var('C_OWNER') }}\"\n    storage_options:"),
    ("name: orders", "name: \"{{ env_var('C_OWNER') }}\""),
    ("name: orders", "name: \"{{ var('lake') }} {{ var('password') }}\""),
    ("name: keys", "name: \"{{ env_var('C_OWNER') }}\""),
    ("name: lazy", "name: \"{{ env_var('C_OWNER') }}\""),
    ("set: keys", "set: \"{{ env_var('C_OWNER') }}\""),
    ("policy: lazy", "policy: \"{{ env_var('C_OWNER') | replace('9', '8') }}\""),
    ("policy: lazy", "policy: {allow.stale: \"{{ var('password') }}\"}"),
    ("policy: lazy", "policy: {allow.stale: {max_age: \"{{ env_var('C_OWNER') }}\"}}"),
    ("policy: lazy", "publish: \"{{ env_var('C_OWNER') }}\""),
    ("policy: lazy", "freshness: {warn_after: \"{{ env_var('C_OWNER') }}\"}"),
    ("policy: lazy", "histogram: \"{{ env_var('C_OWNER') }}\""),
    ("policy: lazy", "tags: [\"{{ env_var('C_OWNER') }}\", \"{{ env_var('C_OWNER') }}\"]"),
    ("{{ var('lake') }}/orders", "{{ env_var(env_var('C_OWNER')) }}"),
    ("{{ var('lake') }}/orders", "{{ env_var(env_var('C_TOKEN'), 'x').y }}"),
    ("{{ var('lake') }}/orders", "{{ var(env_var('C_OWNER') ~ 'x') }}"),
    ("{{ var('lake') }}/orders", "{{ var('deep')[env_var('C_OWNER')] }}"),
    ("{{ var('lake') }}/orders", "{{ env_var('C_OWNER') + 1 }}"),
    ("{{ var('lake') }}/orders", "{{ env_var('C_OWNER')[env_var('C_TOKEN')] }}"),
    ("{{ var('lake') }}/orders", "{{ target[env_var('C_OWNER')] }}"),
    ("{{ var('lake') }}/orders", "{{ env_var('C_OWNER') ~ undefined_thing }}"),
    ("{{ var('lake') }}/orders", "{{ range(env_var('C_OWNER')) }}"),
    ("{{ var('lake') }}/orders", "~{{ env_var('C_OWNER') }}/x"),
    ("k: 3", "k: \"{{ env_var('C_OWNER') }}\""),
    ("k: 3", "k: 3\n    metric: \"{{ env_var('C_OWNER') }}\""),
    ("k: 3", "k: 3\n    mode: \"{{ env_var('C_OWNER') }}\""),
    ("{table: orders,", "{table: \"{{ env_var('C_OWNER') }}\","),
    ("ref('orders')", "ref(env_var('C_OWNER'))"),
    ("'C_OUTPUT') }}/near.lance", "'C_OUTPUT') }}/asked.lance"),
    ("'C_OUTPUT') }}/near.lance", "'C_LAKE') }}/orders.lance/inside"),
    ('path: "jdbc:', 'paths: "{{ env_var(\'C_OWNER\') }}"\n      path: "jdbc:'),
    ("{{ env_var('C_COLUMN') }}*", "{{ env_var('C_COLUMN') }}"),
)


@pytest.mark.parametrize(("old", "new"), MISTAKES, ids=[new for _, new in MISTAKES])
def test_an_error_names_the_variable(
    folder: Path, lancestat: Lancestat, old: str, new: str
) -> None:
    assert (old in PROJECT) != (old in SPECS)
    write(folder, PROJECT.replace(old, new), SPECS.replace(old, new, 1))
    codes = set()
    for form in ("text", "json"):
        result = lancestat("--verbose", "validate", "--output", form)
        codes.add(result.exit_code)
        assert "LS001" not in result.output
        assert seen(result.output, ENVIRONMENT) == []
        if result.exit_code and "unknown key" not in result.output:
            assert "env_var(" in result.output
    for command in (*PUBLIC[2:4], PUBLIC[7], *PERSONAL[:1]):
        result = lancestat("--verbose", *command)
        hidden = ENVIRONMENT if command in PUBLIC or codes == {1} else SECRET
        assert "LS001" not in result.output
        assert seen(result.output, hidden) == [], command
        for made in files(folder, "site", "plan.json"):
            assert seen(made.read_bytes().decode("latin-1"), ENVIRONMENT) == [], made


def test_what_is_stored_of_runs_holds_no_value_of_the_environment(
    folder: Path, lancestat: Lancestat
) -> None:
    """A run that goes on has a mark, and one that has ended a record."""
    project = Project.load(folder)
    digests = {node.name: node_digest(node) for node in project.spec.nodes}
    recorder = RunRecorder(project.spec, project.state, digests)
    now = datetime.now(timezone.utc)
    run = RunRecord("0123456789abcdef", "run", project.spec.target.name, now, now, "running", ())
    plan = project.plan()
    recorder.begin(plan, run)
    [mark] = Path(project.spec.target.state, "running").iterdir()
    assert seen(mark.read_text(), ENVIRONMENT) == []
    blocked = [
        NodeEnded(failed(planned(action), shown_error(project.spec, action.node, action.error)))
        for action in plan.actions
        if action.error is not None
    ]
    assert blocked
    recorder.record(plan, run, blocked)
    for arguments in ((), ("0123",), ("0123", "--output", "json")):
        result = lancestat("--verbose", "runs", *arguments)
        assert result.exit_code == 0, result.output
        assert "0123456789abcdef" in result.stdout
        assert seen(result.output, ENVIRONMENT) == []


def test_values_in_python_show_no_secret_and_in_notebooks_no_value_of_the_environment(
    folder: Path,
) -> None:
    project = Project.load(folder)
    shown = [
        project.plan(),
        project.run(project.plan("orders gone")),
        project.report(),
        project.show("orders"),
        Project.diff(folder, "HEAD~1"),
    ]
    for value in (project, project.spec, *project.nodes(), *shown[0].actions, *shown[1].nodes):
        assert seen(repr(value), SECRET) == []
    for value in shown:
        assert seen(f"{value!r}{value}", SECRET) == []
        assert seen(value._repr_html_(), ENVIRONMENT) == []
    for value in shown[:4]:
        assert seen(pickle.dumps(value.redactor).decode("latin-1"), ENVIRONMENT) == []
    for value in shown[:3]:
        assert seen(str(value.to_arrow().to_pylist()), SECRET) == []
    assert "env_var(" in shown[3]._repr_html_()
