"""Measure how often monitors find what is there, and what is not.

    python benchmarks/monitors.py [--tiny] [PART ...]

alarms    the share of 1,000 simulated histories without anomalies in which each monitor finds one
found     the share of as many that end with an anomaly in which a monitor finds it

Histories are of three to twelve weeks: of tables that grow and tables that are replaced, loaded
once a day, on weekdays alone or every four hours, with loads that differ little or much, by the day
of the week, and that grow by up to 0.5 % a day. Anomalies are a last day with a tenth or ten times
the rows, nine tenths of the rows lost, no load for three of the longest gaps, and a column that is
half null, or has ten times the distinct values or values ten times as great.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from measure import run

from lancestat.report.monitors import monitor_checks
from lancestat.spec.monitors import (
    ColumnAnomalies,
    FreshnessAnomalies,
    Monitor,
    VolumeAnomalies,
    Watched,
)
from lancestat.state.history import HistoryPoint
from lancestat.tables.expectations import CheckVerdict
from lancestat.tables.judgement import TableAssessment

HISTORIES = 1000
_START = datetime(2026, 1, 5, tzinfo=timezone.utc)
_COLUMNS = 10


@dataclass(frozen=True)
class Load:
    """What a load leaves: when, the rows of the table, and the figures of its columns."""

    at: datetime
    rows: int
    columns: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Habits:
    """How a table is loaded."""

    weeks: int
    step: timedelta
    weekdays_only: bool
    is_replaced: bool
    rows: float
    spread: float
    by_weekday: tuple[float, ...]
    growth: float
    null_share: float

    @classmethod
    def drawn(cls, chance: random.Random) -> Habits:
        weekend = chance.choice([1.0, 1.0, 0.3, 0.1])
        return cls(
            weeks=chance.randint(3, 12),
            step=chance.choice([timedelta(days=1), timedelta(days=1), timedelta(hours=4)]),
            weekdays_only=chance.random() < 0.25,
            is_replaced=chance.random() < 0.25,
            rows=10 ** chance.uniform(2, 6),
            spread=chance.choice([0.0, 0.02, 0.1, 0.3]),
            by_weekday=(*(chance.uniform(0.9, 1.1) for _ in range(5)), weekend, weekend),
            growth=chance.choice([0.0, 0.0, 0.002, 0.005]),
            null_share=chance.choice([0.0, 0.001, 0.1]),
        )

    def loads(
        self, chance: random.Random, *, last_day: float = 1.0, with_columns: bool = True
    ) -> list[Load]:
        """Return the loads of a history; those of its last day are larger by a factor."""
        loads: list[Load] = []
        rows = 0 if self.is_replaced else round(self.rows * chance.uniform(0, 500))
        nulls = [round(rows * self.null_share)] * _COLUMNS
        at = _START + timedelta(hours=chance.uniform(0, 4))
        while at.date() <= _last_day(self):
            if not (self.weekdays_only and at.weekday() > 4):
                typical = (
                    self.rows
                    * self.by_weekday[at.weekday()]
                    * (1 + self.growth) ** (at - _START).days
                )
                is_last = at.date() == _last_day(self)
                typical *= last_day if is_last else 1.0
                loaded = round(typical * math.exp(chance.gauss(0, self.spread)))
                rows = loaded if self.is_replaced else rows + loaded
                of_load = [round(loaded * self._null_share(chance)) for _ in range(_COLUMNS)]
                nulls = (
                    of_load
                    if self.is_replaced
                    else [a + b for a, b in zip(nulls, of_load, strict=True)]
                )
                columns = dict(self._columns(rows, nulls, chance)) if with_columns else {}
                loads.append(Load(at, rows, columns))
            jitter = timedelta(minutes=chance.uniform(-20, 20))
            at = at.replace(minute=0) + self.step + jitter
        return loads

    def _null_share(self, chance: random.Random) -> float:
        return min(1.0, self.null_share * math.exp(chance.gauss(0, self.spread)))

    def _columns(
        self, rows: int, nulls: list[int], chance: random.Random
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for index in range(_COLUMNS):
            # Every other column has some distinct values, the others nearly one for each row.
            distinct = min(rows, 1000) if index % 2 else round(rows * 0.9)
            off = math.exp(chance.gauss(0, 0.01))
            yield (
                f"c{index}",
                {
                    "null_count": nulls[index],
                    "distinct_count": round(distinct * off),
                    "min": "0",
                    "max": str(1000 if index % 2 else rows),
                    "avg_len": 8 + index,
                },
            )


def _last_day(habits: Habits) -> date:
    """Return the last day of a history: a weekday, since some tables are loaded on these alone."""
    end = (_START + timedelta(weeks=habits.weeks)).date() - timedelta(days=1)
    return end - timedelta(days=max(end.weekday() - 4, 0))


def _verdict(watched: Watched, loads: list[Load], now: datetime) -> CheckVerdict:
    points = [
        HistoryPoint.of(
            "key", "t", "run", load.at, {"rows": load.rows, "columns": load.columns, "schema": "s"}
        )
        for load in loads
    ]
    last = loads[-1]
    snapshot = SimpleNamespace(rows=last.rows, committed_at=last.at, fields=())
    assessment = cast(TableAssessment, SimpleNamespace(snapshot=snapshot, schema_hash="s"))
    [check] = monitor_checks([Monitor(watched=watched)], points, assessment, now)
    return check.verdict


_MONITORS: tuple[Watched, ...] = (
    VolumeAnomalies(training_period=timedelta(days=60)),
    FreshnessAnomalies(training_period=timedelta(days=60)),
    ColumnAnomalies(training_period=timedelta(days=60)),
)


def _next_day(loads: list[Load]) -> datetime:
    return datetime.combine(loads[-1].at.date(), time(), timezone.utc) + timedelta(days=1, hours=1)


def alarms(folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """The share of histories without anomalies in which a monitor finds one."""
    for watched in _MONITORS:
        found, known = _share(watched, tiny, lambda habits, loads: loads)
        yield f"{watched.name}, false alarms", found
        yield f"{watched.name}, too few to say", 1 - known


def found(folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """The share of histories that end with an anomaly in which a monitor finds it."""
    volume, freshness, columns = _MONITORS
    for factor in (0.1, 10.0):
        yield (
            f"a last day with {factor:g} times the rows",
            _share(volume, tiny, lambda habits, loads: loads, last_day=factor)[0],
        )
    yield "nine tenths of the rows lost", _share(volume, tiny, _lost)[0]
    edits = {
        "a column half null": ("null_count", lambda value, rows: rows // 2),
        "ten times the distinct values": ("distinct_count", lambda value, rows: 10 * value),
        "values ten times as great": ("max", lambda value, rows: str(10 * int(value))),
    }
    for what, (key, edit) in edits.items():
        yield what, _share(columns, tiny, partial(_edited, key, edit))[0]
    yield "no load for three of the longest gaps", _share(freshness, tiny, _as_it_is, late=3)[0]


def _as_it_is(habits: Habits, loads: list[Load]) -> list[Load]:
    return loads


def _lost(habits: Habits, loads: list[Load]) -> list[Load]:
    last = loads[-1]
    return [*loads[:-1], replace(last, rows=loads[-2].rows // 10)]


def _edited(
    key: str, edit: Callable[[Any, int], Any], habits: Habits, loads: list[Load]
) -> list[Load]:
    last = loads[-1]
    changed = {**last.columns["c1"], key: edit(last.columns["c1"][key], last.rows)}
    return [*loads[:-1], replace(last, columns={**last.columns, "c1": changed})]


def _share(
    watched: Watched,
    tiny: bool,
    change: Callable[[Habits, list[Load]], list[Load]],
    *,
    last_day: float = 1.0,
    late: int = 0,
) -> tuple[float, float]:
    """Return the shares of histories in which a monitor finds something, and can say something."""
    chance, hits, known = random.Random(7), 0, 0
    number = 30 if tiny else HISTORIES
    has_columns = isinstance(watched, ColumnAnomalies)
    for _ in range(number):
        habits = Habits.drawn(chance)
        loads = change(habits, habits.loads(chance, last_day=last_day, with_columns=has_columns))
        gap = max(after.at - before.at for before, after in pairwise(loads))
        now = loads[-1].at + late * gap if late else _next_day(loads)
        if isinstance(watched, FreshnessAnomalies) and not late:
            # The moment before the next load.
            loads, now = loads[:-1], loads[-1].at
        verdict = _verdict(watched, loads, now)
        hits += verdict is CheckVerdict.REFUTED
        known += verdict is not CheckVerdict.UNKNOWN
    return hits / max(known, 1), known / number


if __name__ == "__main__":
    run(__doc__, {"alarms": alarms, "found": found}, {})
