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

TOP = Path(__file__).parents[2]
PATCH = TOP / "docs/recipes/statistic.patch"

PROJECT = "name: shop\ntargets: {dev: {}}\n"
TABLES = "tables:\n  - {name: orders, uri: orders.lance}\n"

# Publishes the statistics of a table, and prints them as every reader has them.
COMMANDS = """\
import json
from datetime import datetime, timezone
from pathlib import Path

import lance
import pyarrow as pa
from click.testing import CliRunner

from lancestat.cli.main import cli
from lancestat.lake.fingerprint import schema_hash
from lancestat.lake.observe import snapshot
from lancestat.lake.open import observe_dataset
from lancestat.manifest.publication import Publication, commit
from lancestat.manifest.wire import encode_statistics
from lancestat.optimizer.table import ReadTable
from lancestat.plan.judgement import TableStatistics
from lancestat.spark.read.planning_service import PlanningService
from lancestat.statistics.column_statistics import column_statistics_of
from lancestat.statistics.column_type import column_type
from lancestat.statistics.kernel import analyze
from lancestat.statistics.partial import decode, encode, merge

rows = pa.table({"price": [1.5, 2.0, 3.5, 4.0, 0.0], "note": ["", "late", None, "", "b"]})
lance.write_dataset(rows, "orders.lance")
table = snapshot(observe_dataset("orders.lance"), "orders.lance")
fragments = [analyze(part.to_batches(), rows.schema) for part in (rows[:3], rows[3:])]
columns = {}
for name in rows.column_names:
    partial = merge(decode(encode(partials[name])) for partials in fragments)
    type = column_type(rows.schema.field(name).type)
    columns[name] = (type, column_statistics_of(partial, type))
entries = encode_statistics(
    columns,
    rows=len(rows),
    schema_hash=schema_hash(table.fields),
    computed_at_version=table.version + 1,
    computed_at=datetime.now(timezone.utc),
)
commit(Publication(table.pin, entries, table.config))

run = CliRunner().invoke
service = PlanningService()
latest = snapshot(observe_dataset("orders.lance"), "orders.lance")
question = {
    "op": "estimate",
    "table": service.register(ReadTable("orders", TableStatistics(latest))),
    "columns": ["price", "note"],
    "filters": [],
    "conf": {},
    "options": {},
}
run(cli, ["docs", "--out", "pages"], catch_exceptions=False)
[page] = Path("pages").rglob("orders*.html")
output = {
    "entries": entries,
    "json": run(cli, ["show", "orders", "--output", "json"]).stdout,
    "csv": run(cli, ["show", "orders", "--output", "csv"]).stdout,
    "text": run(cli, ["show", "orders"]).stdout,
    "page": page.read_text(encoding="utf-8"),
    "estimate": json.loads(service.answer(json.dumps(question))),
}
print(json.dumps(output))
"""


def test_the_patch_touches_only_the_files_of_the_recipe() -> None:
    touched = re.findall(r"^\+\+\+ b/(.*)$", PATCH.read_text(encoding="utf-8"), re.MULTILINE)
    recipe = (TOP / "docs/recipes/statistic.md").read_text(encoding="utf-8")
    assert len(touched) == 4
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
    assert entries["lance.stats.column.note.emptyCount"] == "2"
    assert "lance.stats.column.price.emptyCount" not in entries
    payload = json.loads(output["json"])
    assert payload["verdict"] == "use"
    assert payload["columns"]["note"]["emptyCount"] == 2
    assert payload["columns"]["price"]["emptyCount"] is None
    price, note = csv.DictReader(io.StringIO(output["csv"]))
    assert (price["empty_count"], note["empty_count"]) == ("", "2")
    head, line = re.findall(r"^  (?:column|note) .*$", output["text"], re.MULTILINE)
    assert (head.split()[-1], line.split()[-1]) == ("empty", "2")
    assert '<th class="r">Empty</th>' in output["page"]
    assert output["estimate"]["columns"]["note"]["emptyCount"] == 2
