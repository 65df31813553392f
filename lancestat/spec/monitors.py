"""Monitors: what of a table is watched for values that are unlike those of the past."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from datetime import timedelta
from typing import Any, ClassVar, get_args

from lancestat.errors import Location
from lancestat.formats import age
from lancestat.spec.declaration import (
    DURATION,
    Declared,
    Either,
    Key,
    Listed,
    Nested,
    Resource,
    Text,
    key,
    key_fields,
    keys,
    number,
    resource,
)
from lancestat.spec.expectations import SEVERITY, Severity
from lancestat.spec.relations import COLUMNS, Columns


@resource
class Anomalies:
    """The past that values are compared with, and how unlikely an anomaly has to be."""

    training_period: timedelta = key(
        DURATION, "How far back runs count as the past.", default=timedelta(days=30)
    )
    anomaly_sensitivity: float = key(
        number("a number from 1 to 10", minimum=1, maximum=10),
        "How unlikely a value is to be, in standard deviations of a normal distribution. A smaller "
        "number finds more.",
        default=3.0,
    )
    severity: Severity = key(
        SEVERITY, "Whether an anomaly is a warning or an error.", default=Severity.WARN
    )

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'training_period', 'anomaly_sensitivity' and 'severity'"
    )


@resource
class VolumeAnomalies(Anomalies):
    """Rows that are added or removed unlike before."""

    name: ClassVar[str] = "volume_anomalies"
    about: ClassVar[str] = "Rows that are added or removed unlike before."


@resource
class FreshnessAnomalies(Anomalies):
    """Rows that have not changed for longer than before."""

    name: ClassVar[str] = "freshness_anomalies"
    about: ClassVar[str] = "Rows that have not changed for longer than before."


@resource
class ColumnAnomalies(Anomalies):
    """Nulls, distinct values, ranges and lengths of columns unlike before; None is all columns."""

    name: ClassVar[str] = "column_anomalies"
    about: ClassVar[str] = "Nulls, distinct values, ranges and lengths of columns unlike before."
    columns: Columns | None = key(
        COLUMNS, "The columns. By default, all that have statistics.", default=None
    )

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'columns', 'training_period', 'anomaly_sensitivity' and 'severity'"
    )


@resource
class SchemaChanges:
    """Columns that are added, removed or of another type than before the last change."""

    name: ClassVar[str] = "schema_changes"
    about: ClassVar[str] = (
        "Columns that are added, removed or of another type than before the last change."
    )
    severity: Severity = key(
        SEVERITY, "Whether a change is a warning or an error.", default=Severity.WARN
    )

    declares: ClassVar[Resource] = Resource("a mapping with 'severity'")


Watched = VolumeAnomalies | FreshnessAnomalies | ColumnAnomalies | SchemaChanges
WATCHED: tuple[type[Any], ...] = get_args(Watched)
_BY_NAME = {kind.name: kind for kind in WATCHED}


@resource
class Monitor:
    """One thing that is watched."""

    watched: Watched = keys(
        Key(
            ("volume_anomalies",),
            Nested(resource=VolumeAnomalies),
            VolumeAnomalies.about,
        ),
        Key(
            ("freshness_anomalies",),
            Nested(resource=FreshnessAnomalies),
            FreshnessAnomalies.about,
        ),
        Key(
            ("column_anomalies",),
            Either(
                title=f"a list of columns, or {ColumnAnomalies.declares.title}",
                shapes=(COLUMNS, Nested(resource=ColumnAnomalies)),
            ),
            ColumnAnomalies.about,
        ),
        Key(
            ("schema_changes",),
            Nested(resource=SchemaChanges),
            SchemaChanges.about,
        ),
    )
    location: Location | None = field(default=None, compare=False)

    declares: ClassVar[Resource] = Resource(
        "a mapping with one monitor",
        "What is watched for values unlike those of the past. A name alone is a monitor, too.",
        noun="monitor",
        definition="monitor",
        one_of=tuple(_BY_NAME),
    )

    @property
    def name(self) -> str:
        return self.watched.name

    def __str__(self) -> str:
        """Return its name, and in parentheses what is not as by default."""
        watched: Declared = self.watched
        values = [(one, getattr(watched, one.name)) for one in key_fields(type(watched))]
        stated = [f"{one.name} {_text(value)}" for one, value in values if value != one.default]
        return f"{self.name} ({'; '.join(stated)})" if stated else self.name


def _text(value: Columns | timedelta | float | Severity) -> str:
    match value:
        case tuple():
            return ", ".join(value)
        case timedelta():
            return age(value)
        case Severity():
            return value.value
    return f"{value:g}"


_NAMED = Text(
    title="the name of a monitor",
    keywords={"pattern": f"^({'|'.join(_BY_NAME)})$(?!\\n)", "examples": [*_BY_NAME]},
    is_public=True,
    read=lambda name: Monitor(watched=_BY_NAME[name]()),
)
MONITORS = Listed(
    title="a list of monitors",
    items=Either(
        title="the name of a monitor, or a mapping with one monitor",
        shapes=(_NAMED, Nested(resource=Monitor)),
    ),
)


def monitors_text(monitors: Sequence[Monitor]) -> str:
    """Return monitors as a diff shows them."""
    return ", ".join(map(str, monitors))


def monitor_objections(monitors: Sequence[Monitor]) -> Iterator[tuple[str, int]]:
    """Yield what is wrong with monitors of one table, with the index of each."""
    seen: set[str] = set()
    for index, monitor in enumerate(monitors):
        if monitor.name in seen:
            yield f"{monitor.name} is declared twice: put both into one", index
        seen.add(monitor.name)


def with_shared(own: Sequence[Monitor], shared: Sequence[Monitor]) -> tuple[Monitor, ...]:
    """Return a table's monitors with those of its project that it does not have itself."""
    names = {monitor.name for monitor in own}
    return (*own, *(monitor for monitor in shared if monitor.name not in names))
