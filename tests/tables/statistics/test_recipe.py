"""The recipe of docs/recipes/statistic.md: its patch is all that a new statistic needs."""

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

TOP = Path(__file__).parents[3]
PATCH = TOP / "docs/recipes/statistic.patch"

PROJECT = "name: shop\ntargets: {dev: {spark: {master: local}}}\n"
TABLES = "tables:\n  - {name: orders, uri: orders.lance}\n"

# Runs a table of two fragments without Spark, and prints its statistics as every reader has them.
COMMANDS = """\
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


def test_the_patch_touches_only_the_files_of_the_recipe() -> None:
    touched = re.findall(r"^\+\+\+ b/(.*)$", PATCH.read_text(encoding="utf-8"), re.MULTILINE)
    recipe = (TOP / "docs/recipes/statistic.md").read_text(encoding="utf-8")
    assert len(touched) == 5
    assert all(f"`{path.removeprefix('lancestat/')}`" in recipe for path in touched)


def test_a_declared_statistic_is_published_reported_and_shown(tmp_path: Path) -> None:
    package, shop = tmp_path / "package", tmp_path / "shop"
    for folder in ("lancestat", "specs", "schemas", "docs"):
        shutil.copytree(TOP / folder, package / folder)
    subprocess.run(["git", "apply", str(PATCH)], cwd=package, check=True)
    (shop / "specs").mkdir(parents=True)
    (shop / "lancestat_project.yml").write_text(PROJECT, encoding="utf-8")
    (shop / "specs/shop.yml").write_text(TABLES, encoding="utf-8")

    completed = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        cwd=shop,
        env={**os.environ, "PYTHONPATH": str(package)},
        check=True,
        capture_output=True,
        text=True,
    )
    output = json.loads(completed.stdout.splitlines()[-1])

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
