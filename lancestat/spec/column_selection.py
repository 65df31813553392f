"""Columns that a table keeps statistics on: by name, pattern, type or set, and which those are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from lancestat.errors import (
    Location,
    SpecError,
    UnknownColumn,
    UnselectedColumn,
    UnsupportedColumn,
    did_you_mean,
)
from lancestat.formats import quoted


@dataclass(frozen=True, slots=True)
class ColumnPattern:
    """A column name or glob pattern, where it was written."""

    text: str
    location: Location | None = None

    @property
    def is_glob(self) -> bool:
        """Whether the pattern may match any number of columns, none included."""
        return any(char in self.text for char in "*?[")


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """Include some columns, of some types, less some; `types` None means every analyzable type."""

    include: tuple[ColumnPattern, ...]
    exclude: tuple[ColumnPattern, ...] = ()
    types: frozenset[str] | None = None
    is_shared: bool = field(default=False, compare=False)

    def matched(
        self, columns: dict[str, AvailableColumn], table: str, notes: list[str]
    ) -> set[str]:
        excluded = {
            name
            for name in columns
            if any(
                name == pattern.text or fnmatchcase(name, pattern.text) for pattern in self.exclude
            )
        }
        matched: set[str] = set()
        for pattern in self.include:
            names = _matched(pattern, columns, table, notes)
            if _is_name(pattern, columns) and not names <= excluded:
                _check_usable(pattern, columns[pattern.text], table)
            matched |= names
        if self.types is not None:
            matched = {name for name in matched if columns[name].kind in self.types}
        return matched - excluded


@dataclass(frozen=True, slots=True)
class ColumnSelection:
    """The columns that get statistics: the union of `rules`, or `all`, less `exclude`."""

    all: bool = True
    rules: tuple[ColumnRule, ...] = ()
    exclude: tuple[ColumnPattern, ...] = ()

    def resolve(
        self,
        available: Sequence[AvailableColumn],
        table: str,
        *,
        is_shared: bool = False,
    ) -> ResolvedColumns:
        """Return the columns of `table` that are named; SpecError where one has no statistics.

        Patterns follow `fnmatch` with case. One that includes nothing is a warning, one that
        excludes nothing a note. Those of column sets, or all if the selection `is_shared`, may
        match nothing.
        """
        columns = {column.name: column for column in available}
        warnings: list[str] = []
        notes: list[str] = []
        selected = set(columns) if self.all else set()
        for rule in self.rules:
            remarks = [] if rule.is_shared or is_shared else warnings
            selected |= rule.matched(columns, table, remarks)
        for pattern in self.exclude:
            selected -= _matched(pattern, columns, table, [] if is_shared else notes)
        chosen = [column for column in available if column.name in selected]
        names = [column.name for column in chosen if column.objection is None]
        skipped = [
            (column.name, column.objection) for column in chosen if column.objection is not None
        ]
        if not names:
            is_warning = any(column.objection is None for column in available)
            (warnings if is_warning else notes).append("no column is left to analyze")
        return ResolvedColumns(tuple(names), tuple(skipped), tuple(warnings), tuple(notes))


@dataclass(frozen=True, slots=True)
class AvailableColumn:
    """A top-level column of a dataset."""

    name: str
    kind: str | None
    why_not: str | None = None

    @property
    def objection(self) -> str | None:
        """The reason why the column gets no statistics, None where it can have some."""
        if not self.name:
            return "a column without a name cannot be stored"
        if "." in self.name:
            return "a name with a dot cannot be stored"
        if self.kind is None:
            return self.why_not or "its type cannot be analyzed"
        return None


@dataclass(frozen=True, slots=True)
class ResolvedColumns:
    """The selected columns in the order of the schema, and what was left out, with the reasons.

    `warnings` tell of columns that were asked for and are not there, `notes` of the selection.
    """

    names: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _matched(
    pattern: ColumnPattern, columns: dict[str, AvailableColumn], table: str, notes: list[str]
) -> set[str]:
    if _is_name(pattern, columns):
        if pattern.text not in columns:
            raise _unknown_column(pattern, columns, table)
        return {pattern.text}
    names = {name for name in columns if fnmatchcase(name, pattern.text)}
    if not names:
        notes.append(f"pattern {quoted(pattern.text)} matches no column")
    return names


def _is_name(pattern: ColumnPattern, columns: dict[str, AvailableColumn]) -> bool:
    return pattern.text in columns or not pattern.is_glob


def _check_usable(pattern: ColumnPattern, column: AvailableColumn, table: str) -> None:
    if column.objection is not None:
        what = f"column {quoted(column.name)} of table '{table}'"
        message = f"{what} cannot have statistics: {column.objection}"
        raise UnsupportedColumn(message, location=pattern.location)


def check_named(
    named: Iterable[tuple[str, Location]],
    resolved: ResolvedColumns,
    available: Iterable[AvailableColumn],
    table: str,
) -> None:
    """Raise SpecError for the first name that is no column of `table` with statistics."""
    columns = {column.name: column for column in available}
    for name, location in named:
        pattern = ColumnPattern(name, location)
        if name not in columns:
            raise _unknown_column(pattern, columns, table)
        _check_usable(pattern, columns[name], table)
        if name not in resolved.names:
            raise UnselectedColumn(
                f"column {quoted(name)} of table '{table}' has no statistics: 'columns' leaves it "
                "out",
                location=location,
                hint="add it to 'columns'",
            )


def _unknown_column(pattern: ColumnPattern, columns: Iterable[str], table: str) -> SpecError:
    return UnknownColumn(
        f"table '{table}' has no column {quoted(pattern.text)}",
        location=pattern.location,
        hint=did_you_mean(pattern.text, columns, "its columns"),
    )
