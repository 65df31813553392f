"""What monitors find in the history of tables, without reading rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import pairwise
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np

from lancestat.formats import age, count, named, share
from lancestat.report.history import columns_of
from lancestat.spec.monitors import (
    Anomalies,
    ColumnAnomalies,
    FreshnessAnomalies,
    Monitor,
    SchemaChanges,
    VolumeAnomalies,
)
from lancestat.state.history import NEWEST_KEPT, HistoryPoint
from lancestat.tables.anomalies import LEAST_PAST, Expected, Sample, Values, expected, usual_ranges
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
    """A table after a load: when, its rows, and the figures of its columns by name.

    `schema` is the beginning of its hash, None where it is not known.
    """

    at: datetime
    rows: int
    columns: Any
    schema: str | None


def monitor_checks(
    monitors: Sequence[Monitor],
    history: Sequence[HistoryPoint],
    assessment: TableAssessment,
    now: datetime,
) -> tuple[CheckResult, ...]:
    """Return what monitors find of a table, given its history, the oldest first."""
    states = [*_states(history, assessment)]
    return tuple(_checked(monitor, states, assessment, now) for monitor in monitors)


def _states(history: Sequence[HistoryPoint], assessment: TableAssessment) -> Iterator[Loaded]:
    """Yield the table as each run found it, and as it is now where no run has seen that."""
    last: Loaded | None = None
    for point in history:
        rows = point.figures.get("rows")
        if isinstance(rows, int):
            yield (last := Loaded(point.at, rows, columns_of(point), point.figures.get("schema")))
    snapshot = assessment.snapshot
    schema, at = assessment.schema_hash[:SCHEMA_DIGITS], snapshot.committed_at
    if last is not None and at is not None and (snapshot.rows, schema) != (last.rows, last.schema):
        yield Loaded(max(at, last.at), snapshot.rows, {}, schema)


def _checked(
    monitor: Monitor, states: Sequence[Loaded], assessment: TableAssessment, now: datetime
) -> CheckResult:
    match monitor.watched:
        case SchemaChanges():
            verdict, detail = _schema(states, assessment)
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
    return recent[:1] + [after for before, after in pairwise(recent) if _is_load(before, after)]


def _is_load(before: Loaded, after: Loaded) -> bool:
    """Whether rows have changed: their number, or what both runs know of columns."""
    if before.rows != after.rows:
        return True
    return before.columns != after.columns and any(
        value != before.columns[name].get(key, value)
        for name, column in after.columns.items()
        if name in before.columns
        for key, value in column.items()
    )


def _schema(states: Sequence[Loaded], assessment: TableAssessment) -> _Judged:
    if len(states) < 2:
        return _too_few("runs", len(states), 2)
    # A change is told until the table changes again.
    at = next((n for n in range(len(states) - 1, 0, -1) if _is_new(*states[n - 1 : n + 1])), 1)
    before, after = states[at - 1 : at + 1]
    if before.schema is None or before.schema == after.schema:
        return CheckVerdict.PROVED, "the schema is as it was before the last change of the table"
    names = {field.name for field in assessment.snapshot.fields}
    gone = sorted(before.columns.keys() - names)
    new = sorted(names - before.columns.keys()) if before.columns else []
    parts = [f"without {named(gone[:_NAMED])}"] if gone else []
    parts += [f"with {named(new[:_NAMED])}"] if new else []
    what = f": {', '.join(parts)}" if parts else ""
    return CheckVerdict.REFUTED, f"the schema has changed, {_since(after.at)}{what}"


def _is_new(before: Loaded, after: Loaded) -> bool:
    return before.schema != after.schema or _is_load(before, after)


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
                state = Loaded(at, every[-1].rows, every[-1].columns, every[-1].schema)
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


_Column = Mapping[str, Any]
# The figure of a column in several states, given the column in each; NaN where it is not known.
_ValuesOf = Callable[[Sequence[Loaded], Sequence[_Column]], list[float]]
_NOTHING: _Column = MappingProxyType({})


def _shares_of_nulls(states: Sequence[Loaded], columns: Sequence[_Column]) -> list[float]:
    counts = (
        (state.rows, column.get("null_count"))
        for state, column in zip(states, columns, strict=True)
    )
    return [math.nan if nulls is None or not rows else nulls / rows for rows, nulls in counts]


def _numbers(key: str) -> _ValuesOf:
    """Return what finds a number of a column in several states."""

    def of(states: Sequence[Loaded], columns: Sequence[_Column]) -> list[float]:
        texts = [column.get(key) for column in columns]
        # Most are the same again and again.
        numbers = {text: _number(text) for text in set(texts)}
        return [numbers[text] for text in texts]

    return of


def _number(text: Any) -> float:
    """Return a finite number, NaN for everything else."""
    try:
        value = math.nan if text is None else float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


# Of a column: what it is called, its figure in each state, whether its growth is watched in place
# of itself, the least differences that mean something given the figure, and its text.
_Figure = tuple[
    str,
    _ValuesOf,
    bool,
    Callable[[float], float],
    Callable[[float], str],
]
_FIGURES: Sequence[_Figure] = (
    ("share of nulls", _shares_of_nulls, False, lambda level: 0.005, lambda v: share(max(v, 0.0))),
    # Sketches are off by a few percent.
    (
        "growth of distinct values",
        _numbers("distinct_count"),
        True,
        lambda level: max(1.0, 0.03 * abs(level)),
        _signed,
    ),
    (
        "growth of the greatest value",
        _numbers("max"),
        True,
        lambda level: max(1e-9, 0.01 * abs(level)),
        lambda v: f"{v:+,.6g}",
    ),
    (
        "growth of the least value",
        _numbers("min"),
        True,
        lambda level: max(1e-9, 0.01 * abs(level)),
        lambda v: f"{v:+,.6g}",
    ),
    (
        "mean length",
        _numbers("avg_len"),
        False,
        lambda level: max(0.5, 0.02 * abs(level)),
        lambda v: f"{v:,.6g}",
    ),
)


def _columns(settings: ColumnAnomalies, states: Sequence[Loaded], now: datetime) -> _Judged:
    # What no run has seen has no figures of columns.
    buckets = _Buckets.of([state for state in states if state.columns], now)
    known = buckets.states[-1].columns if buckets.states else {}
    names = [name for name in settings.columns or known if name in known]
    series, samples, levels = _series(buckets, names)
    past = max((np.count_nonzero(~np.isnan(row)) - 1 for row in samples), default=0)
    if past < LEAST_PAST:
        return _too_few(f"{buckets.noun} before the last", past, LEAST_PAST)
    found = []
    weekdays = np.array([state.at.weekday() for state in buckets.states[1:]])
    for place, (low, high), value in sorted(_unusual(settings, series, samples, levels, weekdays)):
        name, (title, _, _, _, text) = series[place]
        span = f"{text(low)} to {text(high)}"
        found.append(f"{title} of {name} is {text(value)}, usual are {span}")
    if not found:
        what = f"{count(len(series))} figures of {count(len(names), 'column')}"
        return CheckVerdict.PROVED, f"{what} are as in {count(past)} {buckets.noun}"
    more = f" and {count(len(found) - _NAMED)} more" if len(found) > _NAMED else ""
    return CheckVerdict.REFUTED, f"{'; '.join(found[:_NAMED])}{more}"


def _series(
    buckets: _Buckets, names: Sequence[str]
) -> tuple[Sequence[tuple[str, _Figure]], Values, Values]:
    """Return the figures of columns of which there are any, their samples, and their levels.

    Samples have a row for each figure, and NaN for buckets that do not have it.
    """
    states, figures = buckets.states, [(name, figure) for name in names for figure in _FIGURES]
    if len(states) < 2 or not figures:
        return [], np.empty((0, 0)), np.empty(0)
    columns = {name: [state.columns.get(name, _NOTHING) for state in states] for name in names}
    values = np.array([figure[1](states, columns[name]) for name, figure in figures])
    is_growth = np.array([figure[2] for _, figure in figures])
    samples = np.where(is_growth[:, None], np.diff(values), values[:, 1:])
    there = np.flatnonzero(~np.isnan(samples).all(axis=1) & ~np.isnan(values[:, -1]))
    return [figures[place] for place in there], samples[there], values[there, -1]


def _unusual(
    settings: Anomalies,
    series: Sequence[tuple[str, _Figure]],
    samples: Values,
    levels: Values,
    weekdays: Values,
) -> Iterator[tuple[int, tuple[float, float], float]]:
    """Yield the places of series whose last value is unusual, with what is usual and that value."""
    # Series that the same buckets have are looked at together.
    alike: dict[bytes, list[int]] = {}
    for place, known in enumerate(~np.isnan(samples)):
        alike.setdefault(known.tobytes(), []).append(place)
    for mask, places in alike.items():
        known = np.frombuffer(mask, np.bool_)
        *_, last = days = weekdays[known]
        past, values = samples[places][:, known].T[:-1], samples[places][:, known][:, -1]
        if len(past) < LEAST_PAST:
            continue
        noise = np.array([series[place][1][3](levels[place].item()) for place in places])
        sensitivity = settings.anomaly_sensitivity
        low, high = usual_ranges(
            past, days[:-1], last, sensitivity=sensitivity, checks=len(series), noise=noise
        )
        for number in np.flatnonzero((values < low) | (values > high)):
            usual = low[number].item(), high[number].item()
            yield places[number], usual, values[number].item()
