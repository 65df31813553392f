"""The recipe of docs/recipes/carrier.md: its patch is all that a new carrier needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]
PATCH = TOP / "docs/recipes/carrier.patch"

PROJECT = "name: shop\ntargets: {dev: {spark: {master: local}}}\n"
TABLES = "tables:\n  - {name: orders, uri: orders.lance, publish: file}\n"

# Each step changes the table or the file, which a run follows.
COMMANDS = """\
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


def test_the_patch_touches_three_files() -> None:
    touched = re.findall(r"^\+\+\+ b/(.*)$", PATCH.read_text(encoding="utf-8"), re.MULTILINE)
    assert touched == [
        "lancestat/spec/table.py",
        "lancestat/tables/carriers/file.py",
        "lancestat/tables/carriers/registry.py",
    ]


def test_a_new_carrier_is_published_read_and_judged(tmp_path: Path) -> None:
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
        stdout=subprocess.PIPE,
        text=True,
    )
    assert json.loads(completed.stdout.splitlines()[-1]) == {
        "create": ["absent", "analyze", ["new"], "current", "3"],
        "nothing": ["current", "skip", ["unchanged"], "current", "3"],
        "replace": ["absent", "refresh", ["publish_missing"], "current", "103"],
        "append": ["stale", "refresh", ["rows_appended"], "current", "107"],
        "compact": ["stale", "restamp", ["fragments_rewritten"], "current", "107"],
        "remove": ["absent", "refresh", ["publish_missing"], "current", "107"],
        "alter": ["altered", "refresh", ["publish_altered"], "current", "107"],
        "config": {},
    }
