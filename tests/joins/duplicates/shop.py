"""A project with near-duplicates of one table, whose join compares rows in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat import Project
from lancestat.errors import LancestatError
from lancestat.joins.duplicates.action import DuplicatesAction, DuplicatesFigures
from lancestat.joins.search.work import JoinWork
from lancestat.joins.spark.engine import SparkJoin
from lancestat.runs.actions import Action, Blocked, OnStage
from lancestat.runs.result import NodeResult
from tests.joins.joined import distance, is_usable
from tests.joins.local import opened_locally
from tests.runs.world import scan_locally, write_project

Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("tenant", pa.string()),
        ("title", pa.string()),
        ("updated", pa.int32()),
        ("v", pa.list_(pa.float32(), 2)),
    ]
)
DECLARED = {
    "name": "same",
    "lance": "products.lance",
    "vector": "v",
    "max_distance": 1.0,
    "select": ["id", "title"],
    "output": {"lance": "same.lance"},
}


def products(points: Mapping[int, Sequence[float] | None], **columns: Any) -> pa.Table:
    """Return rows by id with vectors; other columns are the same in all rows unless given."""
    rows = [
        {
            "id": id,
            "tenant": "a",
            "title": f"p{id}",
            "updated": 0,
            "v": None if vector is None else list(vector),
            **{name: values[at] for name, values in columns.items()},
        }
        for at, (id, vector) in enumerate(points.items())
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def line(*ids: int) -> dict[int, tuple[float, float]]:
    """Return points on a line, of which ids that follow each other are 1 apart."""
    return {id: (float(id), 0.0) for id in ids}


@dataclass
class Shop:
    """Products and their near-duplicates; `works` are the joins that were run."""

    folder: Path
    declared: dict[str, Any] = field(default_factory=lambda: dict(DECLARED))
    works: list[JoinWork] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path, monkeypatch: pytest.MonkeyPatch, rows: pa.Table) -> Shop:
        shop = cls(folder)
        lance.write_dataset(rows, shop.table, max_rows_per_file=3)
        scan_locally(monkeypatch, open_join=shop.open_join)
        return shop

    def open_join(self, work: JoinWork, on_stage: OnStage) -> AbstractContextManager[SparkJoin]:
        self.works.append(work)
        return opened_locally(str(self.folder / "scratch"), work, on_stage)

    @property
    def table(self) -> str:
        return str(self.folder / "products.lance")

    @property
    def project(self) -> Project:
        target = {"state": "state", "scratch": "scratch", "spark": {"master": "local[2]"}}
        return write_project(self.folder, target=target, duplicates=[self.declared])

    def declare(self, **changes: Any) -> None:
        self.declared = {k: v for k, v in (self.declared | changes).items() if v is not None}

    def append(self, rows: pa.Table) -> None:
        lance.write_dataset(rows, self.table, mode="append")

    def action(self, **options: Any) -> Action:
        [action] = self.project.plan(**options).actions
        return action

    def pending(self) -> DuplicatesAction:
        action = self.action()
        assert isinstance(action, DuplicatesAction), action
        return action

    def refused(self) -> LancestatError:
        action = self.action()
        assert isinstance(action, Blocked), action
        return action.error

    def run(self, **options: Any) -> NodeResult:
        project = self.project
        [result] = project.run(project.plan(**options)).nodes
        return result

    def settle(self, **options: Any) -> DuplicatesFigures:
        """Run, which leaves nothing to do."""
        result = self.run(**options)
        assert result.status == "success", result.text
        assert self.action().verb == "skip"
        assert isinstance(result.figures, DuplicatesFigures)
        return result.figures

    def rows(self) -> list[Row]:
        return lance.dataset(str(self.folder / "same.lance")).to_table().to_pylist()

    def groups(self) -> dict[int, list[int]]:
        """Return the ids of the members of each group, the one that is kept first."""
        groups: dict[int, list[int]] = {}
        for row in self.rows():
            assert row["is_kept"] is (row["group_id"] not in groups)
            groups.setdefault(row["group_id"], []).append(row["id"])
        return groups

    def pairs(self) -> list[Row]:
        place = self.declared.get("pairs", {"lance": ".same.lance.pairs"})
        return lance.dataset(str(self.folder / place["lance"])).to_table().to_pylist()

    def stored(self) -> str:
        return json.dumps(self.declared)


def brute(
    rows: Sequence[Row], max_distance: float, metric: str, keys: Sequence[str] = ()
) -> list[set[int]]:
    """Return groups of ids by comparing every pair of rows."""
    usable = [row for row in rows if is_usable(row["v"], metric)]
    groups = [{row["id"]} for row in usable]
    for at, row in enumerate(usable):
        for other in usable[at + 1 :]:
            is_same = all(row[key] is not None and row[key] == other[key] for key in keys)
            if is_same and distance(row["v"], other["v"], metric) <= np.float32(max_distance):
                one = next(group for group in groups if row["id"] in group)
                two = next(group for group in groups if other["id"] in group)
                if one is not two:
                    groups.remove(two)
                    one |= two
    return [group for group in groups if len(group) > 1]
