"""The recipes of docs/recipes: a patch is all that each kind of change needs.

Every recipe has a worked example, which is applied to a copy of the package, and used as a project
would.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

TOP = Path(__file__).parents[1]
RECIPES = TOP / "docs/recipes"
ORDERS = "tables:\n  - {name: orders, uri: orders.lance"
LOCAL = "spark: {master: local}"
LINK = "https://wiki.example.com/orders"
FILES = {
    "carrier": ["lancestat/spec/table.py", "lancestat/tables/carriers.py"],
    "metric": ["lancestat/joins/search/metrics.py", "lancestat/spec/knn_join.py"],
    "node-kind": [
        "lancestat/exports/__init__.py",
        "lancestat/exports/node.py",
        "lancestat/nodes.py",
        "lancestat/spec/export.py",
        "lancestat/spec/model.py",
        "lancestat/spec/table.py",
        "pyproject.toml",
    ],
    "statistic": [
        "docs/explanation/statistics.md",
        "lancestat/tables/statistics/column_statistics.py",
        "lancestat/tables/statistics/kernel.py",
        "lancestat/tables/statistics/partial.py",
        "lancestat/tables/wire.py",
    ],
    "table-key": [
        "lancestat/presentation/site/facts.py",
        "lancestat/spec/table.py",
        "specs/tables.yml",
    ],
}

# Each step changes the table or the file, which a run follows.
CARRIER = """\
import json, shutil
from pathlib import Path

import lance
import pyarrow as pa
from click.testing import CliRunner

from lancestat.cli.main import cli

FILE = Path("orders.lance.statistics.json")

def write(first, mode):
    lance.write_dataset(pa.table({"id": range(first, first + 4)}), "orders.lance", mode=mode)

def replace():
    shutil.rmtree("orders.lance")
    write(100, "create")

def alter():
    FILE.write_text(FILE.read_text().replace('"107"', '"9"'))

def output(*words):
    done = CliRunner().invoke(cli, (*words, "--output", "json"), catch_exceptions=False)
    return json.loads(done.stdout)

STEPS = {
    "create": lambda: write(0, "create"),
    "nothing": lambda: None,
    "replace": replace,
    "append": lambda: write(104, "append"),
    "compact": lambda: lance.dataset("orders.lance").optimize.compact_files(),
    "remove": FILE.unlink,
    "alter": alter,
}
told = {}
for name, step in STEPS.items():
    step()
    before = output("show", "orders")["reason"]
    [action] = output("plan")["nodes"]
    output("run")
    shown = output("show", "orders")
    told[name] = [
        before, action["action"], action["reasons"], shown["reason"], shown["columns"]["id"]["max"]
    ]
told["config"] = lance.dataset("orders.lance").config()
print(json.dumps(told))
"""

# Runs a table of two fragments without Spark, and prints its statistics as every reader has them.
STATISTIC = """\
import json
from datetime import datetime, timezone
from pathlib import Path

import lance
import pyarrow as pa
from click.testing import CliRunner

from lancestat.cli.main import cli
from lancestat.query.table import DeclaredTables
from lancestat.project import Project
from lancestat.query.read.planning_service import PlanningService

rows = pa.table({"price": [1.5, 2.0, 3.5, 4.0, 0.0], "note": ["", "late", None, "", "b"]})
lance.write_dataset(rows, "orders.lance", max_rows_per_file=3)

def run(*words):
    return CliRunner().invoke(cli, words, catch_exceptions=False).stdout

run("run")
project = Project.load()
opened = DeclaredTables(project.spec, project.state, lambda: datetime.now(timezone.utc))
service = PlanningService()
[table] = opened.open(project.spec.tables).values()
number = service.register(table)

def estimate(*filters):
    question = {
        "op": "estimate",
        "table": number,
        "columns": ["price", "note"],
        "filters": filters,
        "others": [],
        "covered": None,
        "aggregation": None,
        "conf": {},
        "options": {},
    }
    return json.loads(service.answer(json.dumps(question)))

dear = {"op": ">", "column": "price", "type": "double", "value": "3.75"}
run("docs", "--out", "pages")
[page] = Path("pages").rglob("orders*.html")
output = {
    "entries": lance.dataset("orders.lance").config(),
    "json": run("show", "orders", "--output", "json"),
    "csv": run("show", "orders", "--output", "csv"),
    "text": run("show", "orders"),
    "page": page.read_text(encoding="utf-8"),
    "estimate": estimate(),
    "pruned": estimate(dear),
}
print(json.dumps(output))
"""

# Prints whether a search finds the neighbours of brute force, and what the YAML makes of the name.
METRIC = """\
import json
import numpy as np
from pathlib import Path
from lancestat.joins.search.metrics import metric_named
from lancestat.joins.search.search import ExactSearch
from lancestat.spec.load import load_project

random = np.random.default_rng(5)
queries, rows = (random.standard_normal((n, 24)).astype(np.float32) for n in (40, 3000))
nearest = ExactSearch(queries, 8, metric_named("negative_dot"))
nearest.add(rows, np.arange(len(rows)))
found = nearest.neighbours()
products = -(queries.astype("f8") @ rows.astype("f8").T)
expected = np.argsort(products, axis=1)[:, :8]
distances = np.take_along_axis(products, expected, axis=1).astype(np.float32)
[join] = load_project(Path()).joins
print(json.dumps([
    bool((found.positions == expected).all()),
    float(np.abs(found.distances - distances).max()),
    [join.metric, join.max_distance],
]))
"""
JOIN = """\
knn_joins:
  - name: near
    left: {lance: left.lance, vector: v}
    right: {lance: right.lance, vector: v}
    k: 8
    metric: negative_dot
    max_distance: -0.5
    output: {lance: near.lance}
"""

# Prints the results of commands, one JSON list a line: exit code and output.
KEY = """\
import json, sys
from click.testing import CliRunner
from lancestat.cli.main import cli
from lancestat.spec.model import node_digest
from lancestat.spec.load import load_project
from pathlib import Path
for words in json.loads(sys.argv[1]):
    done = CliRunner().invoke(cli, words)
    print(json.dumps([done.exit_code, done.output]))
digests = [node_digest(load_project(Path(folder)).nodes[0]) for folder in ("old", "new")]
print(json.dumps([len(set(digests)), load_project(Path("new")).tables[0].link]))
"""

# Copies a table, which then moves on, and prints what commands say of the copy after each step.
EXPORT = """\
import json

import lance
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner
from lancestat.cli.main import cli

def output(*words):
    done = CliRunner().invoke(cli, (*words, "--output", "json"), catch_exceptions=False)
    return json.loads(done.stdout)

told = []
for rows in (3, 2, 0):
    if rows:
        lance.write_dataset(pa.table({"id": range(rows)}), "orders.lance", mode="append")
    *_, action = output("plan", "-s", "copy")["nodes"]
    [ran] = output("run", "-s", "copy")["nodes"]
    [status] = output("status", "-s", "copy")["nodes"]
    told.append([action["action"], ran["status"], pq.read_table("copy.parquet").num_rows])
    told[-1] += [status["status"], status["verdict"]]
[reads, copy] = output("list")["nodes"]
print(json.dumps([told, copy["kind"], len(output("runs")["runs"])]))
"""


@pytest.mark.parametrize("recipe", FILES)
def test_a_patch_touches_only_the_files_of_its_recipe(recipe: str) -> None:
    touched = re.findall(r"^\+\+\+ b/(.*)$", (RECIPES / f"{recipe}.patch").read_text(), re.M)
    assert sorted(touched) == FILES[recipe]
    text = (RECIPES / f"{recipe}.md").read_text(encoding="utf-8")
    assert all(path in text or path.removeprefix("lancestat/") in text for path in touched)


@pytest.fixture
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the change of a recipe."""
    copy = tmp_path_factory.mktemp("package")
    for folder in ("lancestat", "specs", "schemas", "docs"):
        shutil.copytree(TOP / folder, copy / folder)
    shutil.copy(TOP / "pyproject.toml", copy)
    patch = RECIPES / f"{request.param}.patch"
    subprocess.run(["git", "apply", str(patch)], cwd=copy, check=True)
    return copy


def printed(package: Path, folder: Path, *words: str) -> list[str]:
    """Run Python with the package in a folder, and return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(package)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.splitlines()


def write_project(folder: Path, specs: str, spark: str = "") -> None:
    (folder / "specs").mkdir(parents=True)
    project = f"name: shop\ntargets: {{dev: {{{spark}}}}}\n"
    (folder / "lancestat_project.yml").write_text(project, encoding="utf-8")
    (folder / "specs/shop.yml").write_text(specs, encoding="utf-8")


@pytest.mark.parametrize("package", ["carrier"], indirect=True)
def test_a_new_carrier_is_published_read_and_judged(package: Path, tmp_path: Path) -> None:
    write_project(tmp_path, f"{ORDERS}, publish: file}}\n", LOCAL)
    assert json.loads(printed(package, tmp_path, "-c", CARRIER)[-1]) == {
        "create": ["absent", "analyze", ["new"], "current", "3"],
        "nothing": ["current", "skip", ["unchanged"], "current", "3"],
        "replace": ["absent", "refresh", ["rows_changed", "publish_missing"], "current", "103"],
        "append": ["stale", "refresh", ["rows_appended"], "current", "107"],
        "compact": ["stale", "restamp", ["fragments_rewritten"], "current", "107"],
        "remove": ["absent", "refresh", ["publish_missing"], "current", "107"],
        "alter": ["altered", "refresh", ["publish_altered"], "current", "107"],
        "config": {},
    }


@pytest.mark.parametrize("package", ["statistic"], indirect=True)
def test_a_declared_statistic_is_published_reported_and_shown(
    package: Path, tmp_path: Path
) -> None:
    write_project(tmp_path, f"{ORDERS}}}\n", LOCAL)
    output = json.loads(printed(package, tmp_path, "-c", STATISTIC)[-1])
    entries = output["entries"]
    assert entries["lance.stats.column.price.sum"] == "11.0"
    assert "lance.stats.column.note.sum" not in entries
    payload = json.loads(output["json"])
    assert payload["verdict"] == "use"
    assert payload["columns"]["price"]["sum"] == 11.0
    assert payload["columns"]["note"]["sum"] is None
    price, note = csv.DictReader(io.StringIO(output["csv"]))
    assert (price["sum"], note["sum"]) == ("11.0", "")
    head, line = re.findall(r"^  (?:column|price) .*$", output["text"], re.MULTILINE)
    assert (head.split()[-1], line.split()[-1]) == ("sum", "11.0")
    assert '<th class="r">Sum</th>' in output["page"]
    assert output["estimate"]["columns"]["price"]["sum"] == 11.0
    assert (output["pruned"]["rows"], output["pruned"]["columns"]["price"]["sum"]) == (2, 4.0)


@pytest.mark.parametrize("package", ["node-kind"], indirect=True)
def test_nodes_of_a_third_kind_are_planned_run_and_reported(package: Path, tmp_path: Path) -> None:
    exports = "exports:\n  - {name: copy, table: orders, path: copy.parquet}\n"
    write_project(tmp_path, f"{ORDERS}}}\n{exports}", LOCAL)
    steps, kind, runs = json.loads(printed(package, tmp_path, "-c", EXPORT)[-1])
    assert steps == [
        ["analyze", "success", 3, "ok", "current"],
        ["refresh", "success", 5, "ok", "current"],
        ["skip", "success", 5, "ok", "current"],
    ]
    assert (kind, runs) == ("export", 2)


@pytest.mark.parametrize("package", ["metric"], indirect=True)
def test_a_new_metric_is_searched_as_by_brute_force(package: Path, tmp_path: Path) -> None:
    write_project(tmp_path, JOIN)
    is_found, error, declared = json.loads(printed(package, tmp_path, "-c", METRIC)[-1])
    assert is_found
    assert error < 1e-5
    assert declared == ["negative_dot", -0.5]


@pytest.mark.parametrize("package", ["table-key"], indirect=True)
def test_commands_the_schema_and_the_reference_know_a_new_key(
    package: Path, tmp_path: Path
) -> None:
    texts = {"old": "}", "new": f", link: '{LINK}'}}", "wrong": ", link: 5, lnk: x}"}
    for name, end in texts.items():
        write_project(tmp_path / name, ORDERS.replace("orders.", "/nowhere/orders.") + end)
    commands = [
        ["--project-dir", "new", "validate"],
        ["--project-dir", "wrong", "validate"],
        ["--project-dir", "new", "diff", "--no-datasets", "--output", "json", "./old"],
        ["schema", "table"],
        ["--project-dir", "new", "docs", "--out", "pages"],
    ]
    lines = printed(package, tmp_path, "-c", KEY, json.dumps(commands))
    results = map(json.loads, lines)
    valid, wrong, diff, schema, docs, (digests, link) = results

    assert valid[0] == 0
    assert wrong[0] == 1
    assert "'link' of table 'orders' must be text that is not empty, found the number 5" in wrong[1]
    assert "unknown key 'lnk' in table 'orders'\n      2 | " in wrong[1]
    assert "^\n      hint: did you mean 'link'?" in wrong[1]
    [node] = json.loads(diff[1])["nodes"]
    assert [change["name"] for change in node["properties"]] == ["link"]
    assert node["properties"][0]["new"] == LINK
    assert json.loads(schema[1])["properties"]["link"]["description"] == "A page about the table."
    assert (digests, link) == (1, LINK)
    assert docs[0] == 0
    [page] = (tmp_path / "pages/tables").glob("*.html")
    assert LINK in page.read_text(encoding="utf-8")

    printed(package, package, "-m", "lancestat.spec.schema")
    schemas = json.loads((package / "schemas/lancestat_specs.schema.json").read_text())
    assert "link" in schemas["$defs"]["table"]["properties"]
    row = "| `link` | text that is not empty | | A page about the table. |"
    assert row in (package / "docs/reference/yaml.md").read_text()
