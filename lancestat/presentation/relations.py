"""Groups, keys, references, common values and expectations as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lancestat.formats import count

if TYPE_CHECKING:
    from lancestat.tables.expectations import CheckResult
    from lancestat.tables.relations import Relations, ShownValue, ShownValues

_VALUES_LISTED = 5
_CONTAINED = {True: "contained", False: "not contained", None: "unknown"}


class RelationTable(NamedTuple):
    """A table with a title; `right` are the columns of numbers."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()


def relation_tables(relations: Relations) -> Iterator[RelationTable]:
    """Yield the tables of what is known, those that have rows."""
    made = (
        RelationTable(
            "Groups",
            ("columns", "distinct ~", "rows with a null"),
            [
                (f"({', '.join(group.columns)})", count(group.distinct), count(group.nulls))
                for group in relations.groups
            ],
            (1, 2),
        ),
        RelationTable(
            "Keys",
            ("columns", "status", "why"),
            [(key.name, key.status.value, key.reason) for key in relations.keys],
        ),
        RelationTable(
            "References",
            ("columns", "status", "why"),
            [
                (str(reference), _CONTAINED[known.contained], known.reason)
                for reference, known in relations.references
            ],
        ),
        RelationTable(
            "Common values",
            ("columns", "values with their rows", "all others"),
            [(shown.name, _listed(shown), _rest(shown)) for shown in relations.common_values],
        ),
    )
    return (table for table in made if table.rows)


def check_table(checks: Sequence[CheckResult]) -> Iterator[RelationTable]:
    """Yield the table of what rows are expected to be, if there is any."""
    if checks:
        rows = [
            (check.check, check.verdict.value, check.severity.value, check.detail)
            for check in checks
        ]
        yield RelationTable("Expectations", ("check", "verdict", "severity", "why"), rows)


def _listed(shown: ShownValues) -> str:
    """Return the first values: `open: 66, (none): 34 to 36`."""
    return ", ".join(map(_value, shown.values[:_VALUES_LISTED])) or "none"


def _value(value: ShownValue) -> str:
    text = value.texts[0] if len(value.texts) == 1 else f"({', '.join(value.texts)})"
    rows = count(value.lower)
    rows += f" to {count(value.upper)}" if value.upper > value.lower else ""
    return f"{text or repr(text)}: {rows}"


def _rest(shown: ShownValues) -> str:
    most = max((shown.unlisted, *(one.upper for one in shown.values[_VALUES_LISTED:])))
    return f"{count(most)} at most each" if most else "none"
