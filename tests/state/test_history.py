"""What the state keeps of the past of nodes."""

from __future__ import annotations

import zlib
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from lancestat.report.history import recorded_history
from lancestat.state import history as module
from lancestat.state.history import MOST_POINTS, ColumnFigures, HistoryPoint, column_series
from lancestat.state.store import LanceState, open_state

START = datetime(2023, 1, 1, tzinfo=timezone.utc)


def point(number: int, at: datetime, key: str = "t") -> HistoryPoint:
    return HistoryPoint.of(key, "orders", f"run{number}", at, {"rows": number, "columns": {}})


@pytest.fixture
def state(tmp_path: Path) -> LanceState:
    return open_state(str(tmp_path / "state"))


def test_points_come_back_in_the_order_of_runs(state: LanceState) -> None:
    assert state.history() == {}
    first, second = point(1, START), point(2, START + timedelta(1))
    state.add_history([first, point(1, START, "u")])
    state.add_history([second])
    assert state.history()["t"] == (first, second)
    assert state.history(["u", "it's"]).keys() == {"u"}
    state.add_history([])
    assert state.history_table.location() is not None
    assert repr(first) == "HistoryPoint(orders at 2023-01-01 00:00:00)"


def test_figures_of_columns_come_back_by_name(state: LanceState) -> None:
    columns = {"a": {"null_count": 0}, "b": {"distinct_count": 3, "null_count": 1}, "c": {}}
    for figures in ({"columns": columns, "rows": 1}, {"columns": {}}, {"pairs": 5}):
        state.add_history([HistoryPoint.of("t", "orders", "run", START, figures)])
        assert state.history()["t"][-1].figures == figures


def test_a_figure_of_columns_is_told_at_several_points() -> None:
    earlier = ColumnFigures.of({"b": {"max": "2"}, "a": {"max": "1"}, "c": {"max": "9"}})
    later = ColumnFigures.of({"a": {"max": "3"}, "b": {"min": "0"}})
    assert column_series([earlier, later], ["a", "b"], "max") == [("1", "3"), ("2", None)]
    assert column_series([earlier, later], ["a", "b"], "min") == [(None, None), (None, "0")]
    assert column_series([], ["a"], "max") == [()]


def test_a_point_that_does_not_decode_has_no_figures(state: LanceState) -> None:
    state.add_history([point(1, START)])
    batch = module.history_batch([point(2, START)], state.history_table.schema)
    # The last is of an older form.
    for damage in (b"x", zlib.compress(b"[1]"), zlib.compress(b"["), zlib.compress(b'{"rows":1}')):
        figures = pa.array([damage], pa.binary())
        place = batch.schema.get_field_index("figures")
        state.history_table.append([batch.set_column(place, batch.schema.field(place), figures)])
    known, *damaged = state.history()["t"]
    assert known.figures["rows"] == 1
    assert [one.figures for one in damaged] == [{}] * 4
    assert recorded_history(state)["t"] == (known,)


def test_old_points_are_thinned(state: LanceState) -> None:
    # Every six hours for four years; the newest end in the middle of a day.
    points = [point(n, START + timedelta(hours=6 * n)) for n in range(4 * 365 * 4)]
    for start in range(0, len(points), 1000):
        state.add_history(points[start : start + 1000])
        state.expire({})
    kept = [one.at for one in state.history()["t"]]
    assert kept[-48:] == [one.at for one in points[-48:]]
    assert len(kept) <= MOST_POINTS + 32
    gaps = [later - earlier for earlier, later in pairwise(kept)]
    assert max(gaps) <= timedelta(days=56)
    older = [at for at in kept if at < kept[-49]]
    last_60_days = [at for at in older if at > kept[-48] - timedelta(days=55)]
    assert len(last_60_days) >= 54
    assert len({at.date() for at in last_60_days}) >= 54
    assert kept[0] < points[-1].at - timedelta(days=60 + 52 * 7)


def test_nodes_are_thinned_each_by_itself(
    state: LanceState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NEWEST_KEPT", 2)
    monkeypatch.setattr(module, "_TIERS", ((1, timedelta(days=1)),))
    monkeypatch.setattr(module, "_DROPPED_AT_ONCE", 1)
    for key in ("t", "u"):
        state.add_history([point(n, START + timedelta(hours=n), key) for n in range(5)])
    state.expire({})
    for key in ("t", "u"):
        assert [one.figures["rows"] for one in state.history([key])[key]] == [2, 3, 4]


def test_few_old_points_leave_the_dataset_alone(state: LanceState) -> None:
    state.add_history([point(n, START) for n in range(60)])
    version = state.history_table.dataset(latest=True).version  # type: ignore[union-attr]
    state.expire({})
    assert state.history_table.dataset(latest=True).version == version  # type: ignore[union-attr]
    assert len(state.history()["t"]) == 60
