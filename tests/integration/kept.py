"""A project with approximate joins over one right table, and what their results should be."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
import yaml
from numpy.typing import NDArray

from lancestat import Project
from lancestat.joins.action import JoinAction
from lancestat.joins.search.cost_model import Costs, Decision, Strategy
from lancestat.runs.events import Event, StageReached
from lancestat.runs.result import NodeResult

DIMENSION, CLUSTERS, K = 16, 40, 10
Matrix = NDArray[np.float32]


def clustered(rows: int, seed: int, shift: float = 0.0) -> Matrix:
    """Rows around centres that are the same for every seed, unless they are shifted."""
    centres = np.random.default_rng(0).standard_normal((CLUSTERS, DIMENSION))
    rng = np.random.default_rng(seed)
    noise = 0.35 * rng.standard_normal((rows, DIMENSION))
    return (centres[rng.integers(0, CLUSTERS, rows)] + noise + shift).astype(np.float32)


def rows_of(vectors: Matrix, first: int = 0) -> pa.Table:
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIMENSION)
    ids = np.arange(first, first + len(vectors))
    packed = np.packbits(vectors > 0, axis=1)
    bits = pa.FixedSizeListArray.from_arrays(pa.array(packed.reshape(-1)), DIMENSION // 8)
    return pa.table({"id": ids, "parity": ids % 2, "emb": column, "other": column, "bits": bits})


@pytest.fixture
def always_in_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Approximate joins use IVF lists, however small the sides are."""

    def exact(costs: Costs) -> Decision:
        return Decision(Strategy.EXACT, "", costs.left * costs.right, 1e9)

    monkeypatch.setattr(Costs, "exact", exact)


class Stages:
    """Collects the stages that joins reach."""

    def __init__(self) -> None:
        self.reached: dict[str, list[str]] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageReached):
            names = self.reached.setdefault(event.node, [])
            if event.progress.stage.name not in names:
                names.append(event.progress.stage.name)


@dataclass
class Shop:
    """A project below `folder`, whose joins are `near` and whatever else is declared."""

    folder: Path
    stages: dict[str, list[str]] = field(default_factory=dict)
    joins: dict[str, dict[str, Any]] = field(default_factory=dict)
    # Those that the last runs reported.
    recalls: dict[str, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.write("l", clustered(300, 1))
        self.write("r", clustered(4000, 2))
        self.declare("near")

    def uri(self, name: str) -> str:
        return str(self.folder / f"{name}.lance")

    def write(self, name: str, vectors: Matrix, files: int = 4) -> None:
        most = -(-len(vectors) // files)
        lance.write_dataset(
            rows_of(vectors), self.uri(name), mode="overwrite", max_rows_per_file=most
        )

    def append(self, name: str, vectors: Matrix, first: int) -> None:
        lance.write_dataset(rows_of(vectors, first), self.uri(name), mode="append")

    def declare(self, name: str, right: dict[str, Any] | None = None, **changes: Any) -> None:
        self.joins[name] = {
            "name": name,
            "left": {"table": "l", "vector": "emb", "select": ["id"]},
            "right": {"table": "r", "vector": "emb", "select": ["id"], **(right or {})},
            "k": K,
            "mode": "approx",
            "approx": {"recall": 0.9},
            "min_right_rows": 0,
            "output": {"lance": f"{name}.lance"},
            **changes,
        }
        self.save()

    def save(self) -> None:
        target = {"state": "state", "scratch": "scratch", "spark": {"master": "local[2]"}}
        project = {"name": "shop", "default_target": "dev", "targets": {"dev": target}}
        tables = [{"name": name, "uri": f"{name}.lance"} for name in ("l", "r")]
        specs = {"tables": tables, "knn_joins": list(self.joins.values())}
        (self.folder / "specs").mkdir(exist_ok=True)
        (self.folder / "lancestat_project.yml").write_text(yaml.safe_dump(project))
        (self.folder / "specs" / "near.yml").write_text(yaml.safe_dump(specs))

    @property
    def project(self) -> Project:
        return Project.load(self.folder)

    def action(self, name: str = "near", **options: Any) -> JoinAction:
        self.forget(name)
        [action] = self.project.plan(select=name, **options).actions
        assert isinstance(action, JoinAction), action
        return action

    def run(self, *names: str, **options: Any) -> NodeResult:
        """Run joins again, whether or not anything has changed; return the last result."""
        names = names or ("near",)
        for name in names:
            self.forget(name)
        stages = Stages()
        project = self.project
        plan = project.plan(select=" ".join(names), **options)
        result = project.run(plan, on_event=stages)
        self.stages = stages.reached
        for node in result.nodes:
            assert node.status == "success", node.message
            self.recalls[node.name] = node.figures.accuracy.recall if node.figures else None
        return result.nodes[-1]

    def forget(self, name: str) -> None:
        """Remove a result, so that the join is run again in full."""
        shutil.rmtree(self.uri(name), ignore_errors=True)

    @property
    def layouts(self) -> list[Path]:
        """The layouts that are there as a whole."""
        manifests = self.folder.glob("scratch/indexes/*/*/index.json")
        return sorted(path.parent for path in manifests if _is_json(path))

    def result(self, name: str = "near") -> dict[int, list[tuple[int, float]]]:
        columns = lance.dataset(self.uri(name)).to_table().to_pydict()
        found: dict[int, list[tuple[int, float]]] = {}
        lines = zip(columns["id"], columns["id_right"], columns["_distance"], strict=True)
        for left, right, distance in lines:
            found.setdefault(left, []).append((right, distance))
        return found

    def check(self, name: str = "near", *, metric: str = "l2", where: str | None = None) -> float:
        """Check the result against all pairs in float64, and return its recall.

        Distances are exact, rows are those of the table as it is, the nearest come first.
        """
        left = lance.dataset(self.uri("l")).to_table()
        right = lance.dataset(self.uri("r")).to_table(filter=where)
        join = self.joins[name]
        queries, rows = matrix(left[join["left"]["vector"]]), matrix(right[join["right"]["vector"]])
        ids = right["id"].to_numpy()
        distances = all_distances(queries, rows, metric)
        at = {int(id): number for number, id in enumerate(ids)}
        found, hits, total = self.result(name), 0, 0
        for number, query in enumerate(left["id"].to_pylist()):
            nearest = np.sort(distances[number][np.isfinite(distances[number])])[:K]
            mine = found.get(query, [])
            assert len(mine) == len(nearest)
            assert len({id for id, _ in mine}) == len(mine), "no row twice"
            for id, distance in mine:
                assert id in at, f"row {id} is no row of the table"
                assert distance == pytest.approx(distances[number][at[id]], rel=1e-5, abs=1e-6)
            given = [distance for _, distance in mine]
            assert given == sorted(given)
            worst = nearest[-1] + 1e-5 * abs(nearest[-1]) + 1e-6
            hits += sum(distance <= worst for distance in given)
            total += len(nearest)
        return hits / total


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


def matrix(column: pa.ChunkedArray) -> NDArray[np.float64]:
    if pa.types.is_uint8(column.type.value_type):
        packed = np.array(column.to_pylist(), np.uint8)
        return np.unpackbits(packed, axis=1).astype(np.float64)
    rows = column.to_pylist()
    empty = [np.nan] * DIMENSION
    return np.array([empty if row is None else row for row in rows], np.float64)


def all_distances(
    queries: NDArray[np.float64], rows: NDArray[np.float64], metric: str
) -> NDArray[np.float64]:
    """Return the distances of all pairs, NaN where a row cannot match."""
    if metric in ("l2", "hamming"):
        # Of bits the square of the distance is the number of those that differ.
        squares = (queries**2).sum(axis=1)[:, None] + (rows**2).sum(axis=1)[None, :]
        distances: NDArray[np.float64] = np.maximum(squares - 2 * queries @ rows.T, 0.0)
        return distances
    if metric == "cosine":
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    products: NDArray[np.float64] = queries @ rows.T
    return 1.0 - products


@contextmanager
def untouched(shop: Shop) -> Iterator[None]:
    """Check that no file of a layout changes while the block runs."""
    before = files_of(shop)
    yield
    assert files_of(shop) == before


def files_of(shop: Shop) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in shop.folder.glob("scratch/indexes/**/*")
        if path.is_file()
    }


__all__ = ["Shop", "always_in_lists", "clustered", "untouched"]
