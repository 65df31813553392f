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

# Publishes the statistics of a table, and prints what `show` prints as JSON and as CSV.
COMMANDS = """\
import json
from datetime import datetime, timezone

import lance
import pyarrow as pa
from click.testing import CliRunner

from lancestat.cli.main import cli
from lancestat.lake.fingerprint import schema_hash
from lancestat.lake.observe import snapshot
from lancestat.lake.open import observe_dataset
from lancestat.manifest.publication import Publication, commit
from lancestat.manifest.wire import encode_statistics
from lancestat.statistics.column_type import column_type
from lancestat.statistics.kernel import analyze
from lancestat.statistics.column_statistics import summarize
from lancestat.statistics.partial import decode, encode

rows = pa.table({"price": [1.5, float("nan"), None, float("nan")]})
lance.write_dataset(rows, "orders.lance")
found = snapshot(observe_dataset("orders.lance"), "orders.lance")
partials = analyze(rows.to_batches(), rows.schema)
columns = {}
for name, partial in partials.items():
    type = column_type(rows.schema.field(name).type)
    columns[name] = (type, summarize(decode(encode(partial)), type))
entries = encode_statistics(
    columns,
    rows=len(rows),
    schema_hash=schema_hash(found.fields),
    computed_at_version=found.version + 1,
    computed_at=datetime.now(timezone.utc),
)
commit(Publication(found.pin, entries, found.config))
shown = [CliRunner().invoke(cli, ["show", "orders", "--output", form]) for form in ("json", "csv")]
print(json.dumps([entries, *(result.stdout for result in shown)]))
"""


def test_the_patch_touches_no_more_files_than_the_recipe_says() -> None:
    touched = re.findall(r"^\+\+\+ b/(.*)$", PATCH.read_text(encoding="utf-8"), re.MULTILINE)
    recipe = (TOP / "docs/recipes/statistic.md").read_text(encoding="utf-8")
    assert len(touched) == 4
    assert all(f"`{path.removeprefix('lancestat/')}`" in recipe for path in touched)


def test_a_statistic_that_is_declared_is_published_and_shown(tmp_path: Path) -> None:
    package, shop = tmp_path / "package", tmp_path / "shop"
    shutil.copytree(TOP / "lancestat", package / "lancestat")
    for folder in ("specs", "schemas"):
        shutil.copytree(TOP / folder, package / folder)
    subprocess.run(["git", "apply", str(PATCH)], cwd=package, check=True)
    (shop / "specs").mkdir(parents=True)
    (shop / "lancestat_project.yml").write_text(PROJECT, encoding="utf-8")
    (shop / "specs/shop.yml").write_text(TABLES, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        cwd=shop,
        env={**os.environ, "PYTHONPATH": str(package)},
        check=True,
        capture_output=True,
        text=True,
    )
    entries, as_json, as_csv = json.loads(done.stdout.splitlines()[-1])

    assert entries["lance.stats.column.price.nanCount"] == "2"
    shown = json.loads(as_json)
    assert shown["verdict"] == "use"
    assert shown["columns"]["price"]["nanCount"] == 2
    [row] = csv.DictReader(io.StringIO(as_csv))
    assert row["nan_count"] == "2"
