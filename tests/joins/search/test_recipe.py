"""The recipe of docs/recipes/metric.md: its patch is all that a new metric needs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[3]
PATCH = TOP / "docs/recipes/metric.patch"

# Prints whether a search finds the neighbours of brute force, and what the YAML makes of the name.
COMPARED = """\
import json
import numpy as np
from pathlib import Path
from lancestat.joins.search.metrics import metric_named
from lancestat.joins.search.search import search
from lancestat.spec.load import load_project

random = np.random.default_rng(5)
queries, rows = (random.standard_normal((n, 24)).astype(np.float32) for n in (40, 3000))
found = search(queries, rows, 8, metric_named("negative_dot"))
products = -(queries.astype("f8") @ rows.astype("f8").T)
nearest = np.argsort(products, axis=1)[:, :8]
distances = np.take_along_axis(products, nearest, axis=1).astype(np.float32)
[join] = load_project(Path()).joins
print(json.dumps([
    bool((found.positions == nearest).all()),
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


def test_the_patch_is_all_that_a_metric_needs(tmp_path: Path) -> None:
    shutil.copytree(TOP / "lancestat", tmp_path / "lancestat")
    subprocess.run(["git", "apply", str(PATCH)], cwd=tmp_path, check=True)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "near.yml").write_text(JOIN)
    (tmp_path / "lancestat_project.yml").write_text("name: shop\ntargets: {dev: {}}\n")
    done = subprocess.run(
        [sys.executable, "-c", COMPARED], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    is_found, error, declared = json.loads(done.stdout)
    assert is_found
    assert error < 1e-5
    assert declared == ["negative_dot", -0.5]


def test_a_new_metric_touches_two_files() -> None:
    touched = re.findall(r"^\+\+\+ b/(.*)$", PATCH.read_text(), re.MULTILINE)
    assert touched == ["lancestat/joins/search/metrics.py", "lancestat/spec/knn_join.py"]
