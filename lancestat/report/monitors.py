"""What monitors find in the history of tables, without reading rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from lancestat.formats import age, count, share
from lancestat.spec.model import Node, ProjectSpec, Table
from lancestat.spec.monitors import (
    Anomalies,
    ColumnAnomalies,
    FreshnessAnomalies,
    Monitor,
    SchemaChanges,
    VolumeAnomalies,
    with_shared,
)
from lancestat.state.history import NEWEST_KEPT, ColumnFigures, HistoryPoint, column_series
from lancestat.tables.anomalies import (
    LEAST_PAST,
    Expected,
    Sample,
    Values,
    expected,
    surely_usual,
    usual_ranges,
)
from lancestat.tables.expectations import CheckResult, CheckVerdict
from lancestat.tables.judgement import TableAssessment
from lancestat.tables.stored import SCHEMA_DIGITS

# More loads than these on a day, and days are compared in place of loads.
_LOADS_A_DAY = 1.5
_DAY = timedelta(days=1)
_NAMED = 3

_Judged = tuple[CheckVerdict, str]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A table after a load: when, its rows, and the figures of its columns.

    `schema` is the beginning of its hash, None where it is not known, and `change` says how columns
    have changed with the load, None where that is not known.
    """

    at: datetime
    rows: int
    columns: ColumnFigures
    schema: str | None
    change: str | None

    def has_rows_of(self, before: Loaded) -> bool:
        """Whether rows are as before: their number, and what both runs know of columns."""
        if before.rows != self.rows:
            return False
        if before.columns == self.columns:
            return True
        old, new = before.columns.by_name(), self.columns.by_name()
        return all(
            value == old[name].get(key, value)
            for name, column in new.items()
            if name in old
            for key, value in column.items()
        )

    def equals(self, before: Loaded) -> bool:
        return before.schema == self.schema and self.has_rows_of(before)


def monitors_of(node: Node, spec: ProjectSpec) -> tuple[Monitor, ...]:
    """Return what is watched of a node: of tables alone there are monitors."""
    return with_shared(node.monitors, spec.monitors) if isinstance(node, Table) else ()


def monitor_checks(
    monitors: Sequence[Monitor],
    history: Sequence[HistoryPoint],
    assessment: TableAssessment,
    now: datetime,
) -> tuple[CheckResult, ...]:
    """Return what monitors find of a table, given its history, the oldest first."""
    periods = [m.watched.training_period for m in monitors if isinstance(m.watched, Anomalies)]
    since = now - max(periods, default=timedelta())
    # What lies before is decoded only where it says when the schema changed.
    recent = [point for point in history if point.at >= since] or history[-1:]
    states = [*_states(recent, assessment)]
    return tuple(_checked(monitor, states, history, assessment, now) for monitor in monitors)


def _states(history: Sequence[HistoryPoint], assessment: TableAssessment) -> Iterator[Loaded]:
    """Yield the table as each run found it, and as it is now where no run has seen that."""
    last: Loaded | None = None
    for point in history:
        own, columns = point.decoded()
        rows = own.get("rows")
        if isinstance(rows, int):
            schema, change = own.get("schema"), own.get("schema_change")
            yield (last := Loaded(point.at, rows, columns, schema, change))
    snapshot = assessment.snapshot
    schema, at = assessment.schema_hash[:SCHEMA_DIGITS], snapshot.committed_at
    if last is not None and at is not None and (snapshot.rows, schema) != (last.rows, last.schema):
        change = assessment.schema_change
        yield Loaded(max(at, last.at), snapshot.rows, ColumnFigures(), schema, change)


def _checked(
    monitor: Monitor,
    states: Sequence[Loaded],
    history: Sequence[HistoryPoint],
    assessment: TableAssessment,
    now: datetime,
) -> CheckResult:
    match monitor.watched:
        case SchemaChanges():
            verdict, detail = _schema(states, history, assessment)
        case VolumeAnomalies() as settings:
            verdict, detail = _volume(settings, _recent(states, settings, now), now)
        case FreshnessAnomalies() as settings:
            verdict, detail = _freshness(settings, _recent(states, settings, now), now)
        case ColumnAnomalies() as settings:
            verdict, detail = _columns(settings, _recent(states, settings, now), now)
    severity = monitor.watched.severity
    where = monitor.location
    return CheckResult(monitor.name, verdict, severity, detail, where, is_provable=False)


def _recent(states: Sequence[Loaded], settings: Anomalies, now: datetime) -> list[Loaded]:
    """Return the table after each load of the past that counts."""
    recent = [state for state in states if state.at >= now - settings.training_period]
    loads = [after for before, after in pairwise(recent) if not after.has_rows_of(before)]
    return recent[:1] + loads


def _schema(
    states: Sequence[Loaded], history: Sequence[HistoryPoint], assessment: TableAssessment
) -> _Judged:
    at = _last_change(states)
    if at is None:
        # It may have been before.
        states = [*_states(history, assessment)]
        if len(states) < 2:
            return _too_few("runs", len(states), 2)
        at = _last_change(states) or 1
    # A change is told until the table changes again.
    before, after = states[at - 1 : at + 1]
    if before.schema is None or before.schema == after.schema:
        return CheckVerdict.PROVED, "the schema is as it was before the last change of the table"
    what = f": {after.change}" if after.change else ""
    return CheckVerdict.REFUTED, f"the schema has changed, {_since(after.at)}{what}"


def _last_change(states: Sequence[Loaded]) -> int | None:
    """Return the place of the last state unlike the one before, None where all are alike."""
    places = range(len(states) - 1, 0, -1)
    return next((n for n in places if not states[n].equals(states[n - 1])), None)


def _since(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")


def _too_few(what: str, found: int, least: int) -> _Judged:
    return CheckVerdict.UNKNOWN, f"{count(found)} of the {least} {what} that are needed to say so"


@dataclass(frozen=True, slots=True)
class _Buckets:
    """A table at the ends of loads, or of days where there are several loads on most.

    The first state is what the first bucket starts from. `is_open` says that the last bucket may
    still grow.
    """

    states: Sequence[Loaded]
    are_days: bool
    is_open: bool

    @classmethod
    def of(cls, states: Sequence[Loaded], now: datetime) -> _Buckets:
        days: dict[date, Loaded] = {state.at.date(): state for state in states}
        if len(states) <= _LOADS_A_DAY * len(days):
            return cls(states[-NEWEST_KEPT:], are_days=False, is_open=False)
        first, last = min(days), max(days)
        every: list[Loaded] = []
        for number in range((last - first).days + 1):
            day = first + number * _DAY
            state = days.get(day)
            if state is None:
                at = every[-1].at.replace(year=day.year, month=day.month, day=day.day)
                state = replace(every[-1], at=at)
            every.append(state)
        return cls(every, are_days=True, is_open=last == now.date())

    @property
    def noun(self) -> str:
        return "days" if self.are_days else "loads"

    def changes(self, value: Callable[[Loaded], float | None]) -> list[Sample]:
        """Return how much a figure grew in each bucket that has it."""
        found = []
        for before, after in pairwise(self.states):
            old, new = value(before), value(after)
            if old is not None and new is not None:
                found.append(Sample(new - old, after.at.weekday()))
        return found

    def levels(self, value: Callable[[Loaded], float | None]) -> list[Sample]:
        """Return a figure at the end of each bucket that has it, without the first state."""
        pairs = ((value(state), state.at.weekday()) for state in self.states[1:])
        return [Sample(level, weekday) for level, weekday in pairs if level is not None]


def _usual(samples: Sequence[Sample], settings: Anomalies, noise: float) -> Expected | None:
    """Return what is usual for the last of some samples, by those before it."""
    *past, last = samples
    sensitivity = settings.anomaly_sensitivity
    return expected(past, last.weekday, sensitivity=sensitivity, noise=noise)


def _volume(settings: Anomalies, states: Sequence[Loaded], now: datetime) -> _Judged:
    buckets = _Buckets.of(states, now)
    if not buckets.is_open:
        return _judged_volume(settings, buckets)
    judged = _judged_volume(settings, buckets)
    if judged[0] is CheckVerdict.REFUTED:
        return judged
    # Of a day that goes on, only too much is known to be unusual; the one before has ended.
    return _judged_volume(settings, replace(buckets, states=buckets.states[:-1], is_open=False))


# Where rows are fewer than before in such a share of buckets, loads replace the rows.
_REPLACED = 0.2


def _judged_volume(settings: Anomalies, buckets: _Buckets) -> _Judged:
    changes = buckets.changes(lambda state: state.rows)
    past = changes[:-1]
    if len(past) < LEAST_PAST:
        return _too_few(f"{buckets.noun} before the last", len(past), LEAST_PAST)
    is_replaced = sum(change.value < 0 for change in past) >= _REPLACED * len(past)
    samples = buckets.levels(lambda state: state.rows) if is_replaced else changes
    value, typical = samples[-1].value, median(abs(sample.value) for sample in samples)
    # Loads differ by factors, and single rows mean nothing.
    are_factors = all(sample.value > 0 for sample in samples[:-1])
    noise = max(0.02, 1 / math.sqrt(typical or 1.0))
    if are_factors:
        logs = [Sample(math.log(max(s.value, 1.0)), s.weekday) for s in samples]
        usual = _usual(logs, settings, noise)
        assert usual is not None, "there are enough of them"
        low, high = math.exp(min(usual.low, 50.0)), math.exp(min(usual.high, 50.0))
    else:
        usual = _usual(samples, settings, max(1.0, noise * typical))
        assert usual is not None, "there are enough of them"
        low, high = usual.low, usual.high
    is_well = value <= high if buckets.is_open else low <= value <= high
    text = (lambda rows: count(round(rows))) if is_replaced else _signed
    what = "there are" if is_replaced else "the number of rows changed by"
    when = "on the last day" if buckets.are_days else "with the last load"
    return (
        CheckVerdict.PROVED if is_well else CheckVerdict.REFUTED,
        f"{what} {text(value)}{' rows' if is_replaced else ''} {when}; usual are {text(low)} to "
        f"{text(high)}, of {count(len(past))} {buckets.noun}",
    )


def _signed(value: float) -> str:
    return f"{round(value):+,}" if round(value) else "0"


def _freshness(settings: Anomalies, states: Sequence[Loaded], now: datetime) -> _Judged:
    loads = states[-NEWEST_KEPT:]
    gaps = [
        Sample(_log_seconds(after.at - before.at), before.at.weekday())
        for before, after in pairwise(loads)
    ]
    if not loads or len(gaps) < LEAST_PAST:
        return _too_few("gaps between loads", len(gaps), LEAST_PAST)
    gap = now - loads[-1].at
    usual = _usual(
        [*gaps, Sample(_log_seconds(gap), loads[-1].at.weekday())], settings, math.log(1.25)
    )
    assert usual is not None, "there are enough gaps"
    longest = timedelta(seconds=min(math.exp(usual.high), timedelta.max.total_seconds()))
    is_well = gap <= longest
    past = f"{count(len(gaps))} gaps"
    return (
        CheckVerdict.PROVED if is_well else CheckVerdict.REFUTED,
        f"the table last changed {age(gap)} ago; usual are up to {age(longest)}, of {past}",
    )


def _log_seconds(gap: timedelta) -> float:
    return math.log(max(gap.total_seconds(), 1.0))


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure of a column: its key in the history, what it is called, and its text.

    Differences mean nothing below `least`, and below the share `relative` of the figure.
    """

    key: str
    title: str
    least: float
    relative: float
    text: Callable[[float], str]
    is_growth: bool = False


_FIGURES = (
    _Figure("null_count", "share of nulls", 0.005, 0.0, lambda v: share(max(v, 0.0))),
    # Sketches are off by a few percent.
    _Figure("distinct_count", "growth of distinct values", 1.0, 0.03, _signed, is_growth=True),
    _Figure(
        "max", "growth of the greatest value", 1e-9, 0.01, lambda v: f"{v:+,.6g}", is_growth=True
    ),
    _Figure("min", "growth of the least value", 1e-9, 0.01, lambda v: f"{v:+,.6g}", is_growth=True),
    _Figure("avg_len", "mean length", 0.5, 0.02, lambda v: f"{v:,.6g}"),
)
_NULLS = 0
_IS_GROWTH = np.array([figure.is_growth for figure in _FIGURES])


def _columns(settings: ColumnAnomalies, states: Sequence[Loaded], now: datetime) -> _Judged:
    # What no run has seen has no figures of columns.
    buckets = _Buckets.of([state for state in states if state.columns.names], now)
    known = buckets.states[-1].columns.names if buckets.states else ()
    names = [*known] if settings.columns is None else [n for n in settings.columns if n in known]
    series, samples, levels = _series(buckets.states, names)
    past = int((~np.isnan(samples)).sum(axis=1).max(initial=1)) - 1
    if past < LEAST_PAST:
        return _too_few(f"{buckets.noun} before the last", past, LEAST_PAST)
    found = []
    weekdays = np.array([state.at.weekday() for state in buckets.states[1:]])
    for place, (low, high), value in sorted(_unusual(settings, series, samples, levels, weekdays)):
        name, figure = series[place]
        text = figure.text
        found.append(
            f"{figure.title} of {name} is {text(value)}, usual are {text(low)} to {text(high)}"
        )
    if not found:
        what = f"{count(len(series))} figures of {count(len(names), 'column')}"
        return CheckVerdict.PROVED, f"{what} are as in {count(past)} {buckets.noun}"
    more = f" and {count(len(found) - _NAMED)} more" if len(found) > _NAMED else ""
    return CheckVerdict.REFUTED, f"{'; '.join(found[:_NAMED])}{more}"


def _series(
    states: Sequence[Loaded], names: Sequence[str]
) -> tuple[Sequence[tuple[str, _Figure]], Values, Values]:
    """Return the figures of columns of which there are any, their samples, and their levels.

    Samples have a row for each figure, and NaN for buckets that do not have it.
    """
    if len(states) < 2 or not names:
        return [], np.empty((0, 0)), np.empty(0)
    columns = [state.columns for state in states]
    values = np.empty((len(names), len(_FIGURES), len(states)))
    for place, figure in enumerate(_FIGURES):
        for of_column, row in zip(values, column_series(columns, names, figure.key), strict=True):
            of_column[place] = _numbers(row)
    rows = np.array([state.rows for state in states], np.float64)
    values[:, _NULLS] /= np.where(rows > 0, rows, math.nan)
    samples = np.where(_IS_GROWTH[:, None], np.diff(values), values[:, :, 1:])
    there = ~np.isnan(samples).all(axis=2) & ~np.isnan(values[:, :, -1])
    figures = [(names[column], _FIGURES[place]) for column, place in np.argwhere(there).tolist()]
    return figures, samples[there], values[there, -1]


def _numbers(values: Sequence[Any]) -> float | list[float]:
    """Return the numbers of several states; one where they are all the same, as most are."""
    if values.count(values[0]) == len(values):
        return _number(values[0])
    numbers = {value: _number(value) for value in set(values)}
    return [numbers[value] for value in values]


def _number(value: Any) -> float:
    """Return a finite number, NaN for everything else."""
    try:
        number = math.nan if value is None else float(value)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def _unusual(
    settings: Anomalies,
    series: Sequence[tuple[str, _Figure]],
    samples: Values,
    levels: Values,
    weekdays: Values,
) -> Iterator[tuple[int, tuple[float, float], float]]:
    """Yield the places of series whose last value is unusual, with what is usual and that value."""
    least, relative = np.array([(figure.least, figure.relative) for _, figure in series]).T
    noise = np.maximum(least, relative * np.abs(levels))
    how: dict[str, Any] = {"sensitivity": settings.anomaly_sensitivity, "checks": len(series)}
    # Series that the same buckets have are looked at together.
    alike: dict[bytes, list[int]] = {}
    for place, known in enumerate(~np.isnan(samples)):
        alike.setdefault(known.tobytes(), []).append(place)
    for mask, places in alike.items():
        known = np.frombuffer(mask, np.bool_)
        *_, last = days = weekdays[known]
        rows = samples[places][:, known].T
        past, values = rows[:-1], rows[-1]
        if len(past) < LEAST_PAST:
            continue
        doubtful = np.flatnonzero(~surely_usual(past, values, noise=noise[places], **how))
        if not len(doubtful):
            continue
        past, values, noises = past[:, doubtful], values[doubtful], noise[places][doubtful]
        low, high = usual_ranges(past, days[:-1], last, noise=noises, **how)
        for number in np.flatnonzero((values < low) | (values > high)):
            usual = low[number].item(), high[number].item()
            yield places[doubtful[number]], usual, values[number].item()
