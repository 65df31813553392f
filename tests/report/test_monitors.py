"""Monitors: what `check` and `status` find in the history of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancestat import Project
from lancestat.lake.fingerprint import schema_hash
from lancestat.state.history import HistoryPoint
from lancestat.state.values import table_identity
from tests.runs.world import Clock, write_project

DAILY = timedelta(days=1)
ALL = ["volume_anomalies", "freshness_anomalies", "schema_changes", "column_anomalies"]
VECTOR = pa.list_(pa.float32(), 2)
NOT_NULL = pa.field("v", VECTOR, nullable=False)
ORDERS = {"name": "orders", "uri": "orders.lance"}
NOW = datetime(2026, 6, 26, 12, tzinfo=timezone.utc)


class Table:
    """A table of so many rows, and a history of its loads, the last of them shortly before now."""

    def __init__(self, folder: Path, **declared: Any) -> None:
        self.folder, self.declared = folder, declared
        self.uri = str(folder / "orders.lance")

    def loaded(
        self,
        rows: Sequence[int],
        *,
        step: timedelta = DAILY,
        nulls: Mapping[int, int] | None = None,
        ago: timedelta = timedelta(hours=1),
        schema: Mapping[int, str] | None = None,
    ) -> Project:
        """Return the project after loads that left so many rows; indexes count from the end."""
        lance.write_dataset(pa.table({"id": pa.array([1] * rows[-1], pa.int8())}), self.uri)
        project = write_project(self.folder, {**ORDERS, **self.declared})
        project._clock = Clock(NOW)
        observed = project._observer().look(project.spec.tables)
        known = schema_hash(observed.snapshots[self.uri].fields)[:16]  # type: ignore[union-attr]
        points = []
        for index, number in enumerate(rows):
            back = index - len(rows)
            id = {"null_count": (nulls or {}).get(back, 0), "distinct_count": 1, "max": "1"}
            figures = {
                "rows": number,
                "schema": (schema or {}).get(back, known),
                "columns": {"id": id},
            }
            at = NOW - ago + step * (back + 1)
            points.append(HistoryPoint.of(table_identity(self.uri), "orders", "run", at, figures))
        project.state.add_history(points)
        return project


def verdicts(project: Project) -> dict[str, str]:
    return {check.check: check.verdict.value for _, check in project.check().checks}


def details(project: Project) -> dict[str, str]:
    return {check.check: check.detail for _, check in project.check().checks}


GROWING = [1000 + 100 * n + n % 3 for n in range(25)]
WELL = dict.fromkeys(ALL, "proved")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path, monitors=ALL)


def test_loads_as_ever_are_well(table: Table) -> None:
    project = table.loaded(GROWING)
    assert verdicts(project) == WELL
    assert project.check().ok
    assert details(project)["volume_anomalies"].startswith(
        "the number of rows changed by +98 with the last load; usual are +"
    )


def test_a_load_of_other_size_is_an_anomaly(table: Table) -> None:
    project = table.loaded([*GROWING, GROWING[-1] + 1000])
    assert verdicts(project) == {**WELL, "volume_anomalies": "refuted"}
    # It is a warning unless declared as an error.
    assert project.check().ok
    project.run().raise_for_status()
    [node] = project.report().nodes
    assert node.health.value == "warn"
    [problem] = node.problems
    assert problem.startswith("Check volume_anomalies: the number of rows changed by +1,000")


def test_rows_that_are_lost_are_an_anomaly(table: Table) -> None:
    assert verdicts(table.loaded([*GROWING, 40]))["volume_anomalies"] == "refuted"


def test_a_table_that_is_replaced_is_compared_by_its_rows(table: Table) -> None:
    replaced = [1000 + 7 * (n % 5) - 9 * (n % 3) for n in range(25)]
    project = table.loaded(replaced)
    assert verdicts(project)["volume_anomalies"] == "proved"
    assert "there are 1,028 rows with the last load" in details(project)["volume_anomalies"]
    fewer = Table(table.folder / "other", monitors=ALL)
    fewer.folder.mkdir()
    assert verdicts(fewer.loaded([*replaced, 300]))["volume_anomalies"] == "refuted"


def test_several_loads_a_day_are_compared_by_day(table: Table) -> None:
    loads = [1000 + 10 * n for n in range(200)]
    project = table.loaded(loads, step=timedelta(hours=4))
    found = details(project)["volume_anomalies"]
    # The day is not over, so it is the day before that may have had too few.
    assert "on the last day" in found
    assert verdicts(project)["volume_anomalies"] == "proved"


def test_what_no_run_has_seen_counts(table: Table) -> None:
    project = table.loaded(GROWING)
    lance.write_dataset(pa.table({"id": pa.array([1] * 5000, pa.int8())}), table.uri, mode="append")
    assert verdicts(project)["volume_anomalies"] == "refuted"


def test_a_load_that_does_not_come_is_an_anomaly(table: Table) -> None:
    late = timedelta(days=4)
    project = table.loaded(GROWING, ago=late)
    assert verdicts(project) == {**WELL, "freshness_anomalies": "refuted"}
    found = details(project)["freshness_anomalies"]
    assert found.startswith("the table last changed 4 d ago; usual are up to 2 d")


def test_nulls_unlike_before_are_an_anomaly(table: Table) -> None:
    project = table.loaded(GROWING, nulls={-1: 1700})
    assert verdicts(project) == {**WELL, "column_anomalies": "refuted"}
    assert "share of nulls of id is 50" in details(project)["column_anomalies"]


def test_columns_that_are_named_are_watched_alone(tmp_path: Path) -> None:
    table = Table(tmp_path, monitors=[{"column_anomalies": ["other"]}])
    assert verdicts(table.loaded(GROWING, nulls={-1: 1700})) == {"column_anomalies": "unknown"}


def test_a_changed_schema_is_told(table: Table) -> None:
    before = dict.fromkeys(range(-25, -1), "other")
    project = table.loaded(GROWING, schema=before)
    assert verdicts(project)["schema_changes"] == "refuted"
    assert "the schema has changed" in details(project)["schema_changes"]


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({"id": pa.int32(), "v": VECTOR}, "column id (bigint, now int) was changed in type"),
        ({"id": pa.int64()}, "column v was removed"),
        ({"id": pa.int64(), "v": VECTOR, "w": VECTOR}, "column w was added"),
        ({"v": VECTOR, "id": pa.int64()}, "the columns have another order"),
        ({"id": pa.int64(), "v": NOT_NULL}, "(array<float>, now array<float> not null) was"),
    ],
)
def test_a_changed_schema_is_told_by_columns_with_and_without_statistics(
    tmp_path: Path, now: Mapping[str, Any], told: str
) -> None:
    project = write_project(tmp_path, {**ORDERS, "monitors": ["schema_changes"]})

    def load(types: Mapping[str, Any]) -> None:
        fields = [t if isinstance(t, pa.Field) else pa.field(n, t) for n, t in types.items()]
        empty = pa.schema(fields).empty_table()
        lance.write_dataset(empty, str(tmp_path / "orders.lance"), mode="overwrite")

    load({"id": pa.int64(), "v": VECTOR})
    project.run().raise_for_status()
    load(now)
    # Before a run has seen it, and after.
    for _ in range(2):
        detail = details(project)["schema_changes"]
        assert detail.startswith("the schema has changed, ")
        assert told in detail
        project.run().raise_for_status()


def test_a_changed_schema_is_told_for_as_long_as_nothing_else_changes(table: Table) -> None:
    # The change is older than the past that values are compared with.
    project = table.loaded([1000] * 50, schema=dict.fromkeys(range(-50, -40), "other"))
    assert verdicts(project)["schema_changes"] == "refuted"


def test_a_changed_schema_is_told_where_no_run_is_recent(table: Table) -> None:
    project = table.loaded(GROWING, schema={-2: "other"}, ago=40 * DAILY)
    assert verdicts(project)["schema_changes"] == "refuted"


def test_too_short_a_past_is_unknown(table: Table) -> None:
    project = table.loaded(GROWING[:10])
    assert verdicts(project) == {
        "volume_anomalies": "unknown",
        "freshness_anomalies": "unknown",
        "column_anomalies": "unknown",
        "schema_changes": "proved",
    }
    assert "9" in details(project)["freshness_anomalies"]
    # What lies before the training period is no past.
    recent = {"training_period": "10d"}
    short = [{"volume_anomalies": recent}, {"freshness_anomalies": recent}]
    other = Table(table.folder / "other", monitors=short)
    other.folder.mkdir()
    assert set(verdicts(other.loaded(GROWING)).values()) == {"unknown"}


def test_those_of_the_project_are_for_tables_without_their_own(table: Table) -> None:
    table.declared = {"monitors": [{"volume_anomalies": {"severity": "error"}}]}
    project = table.loaded([*GROWING, 40])
    path = table.folder / "lancestat_project.yml"
    shared = "\nmonitors: [volume_anomalies, schema_changes]\n"
    path.write_text(path.read_text("utf-8") + shared, "utf-8")
    again = Project.load(table.folder)
    again._clock = project._clock
    assert verdicts(again) == {"volume_anomalies": "refuted", "schema_changes": "proved"}
    assert not again.check().ok
    [node] = again.report().nodes
    assert node.health.value == "error"


def test_history_is_read_for_monitors_alone(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.declared = {}
    project = table.loaded(GROWING)

    def refuse(*arguments: object) -> object:
        raise AssertionError("nothing is to be read")

    monkeypatch.setattr(type(project.state), "history", refuse)
    assert json.loads(json.dumps([each.problems for each in project.report().nodes]))
