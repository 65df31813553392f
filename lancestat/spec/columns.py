"""Resolves which of a dataset's columns a selection names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from lancestat.errors import SpecError, UnknownColumn, UnsupportedColumn, did_you_mean
from lancestat.formats import quoted
from lancestat.spec.model import ColumnPattern, ColumnRule, ColumnSelection


@dataclass(frozen=True, slots=True)
class AvailableColumn:
    """A top-level column of a dataset.

    `kind` is the word of the YAML's `types`, None when the column cannot be analyzed; `why_not`
    then says why.
    """

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
    """The selected columns in the order of the schema, and what was left out.

    `skipped` pairs a column that a pattern or `all` covers with the reason why it gets no
    statistics. `warnings` and `notes` are remarks about the selection itself, of which the warnings
    tell of columns that were asked for and are not there.
    """

    names: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def resolve_columns(
    selection: ColumnSelection,
    available: Sequence[AvailableColumn],
    table: str,
    *,
    is_shared: bool = False,
) -> ResolvedColumns:
    """The columns of `table` that `selection` names.

    Patterns follow `fnmatch` with case; a column whose very name is written is always matched. A
    pattern that includes nothing is a warning, one that excludes nothing a note. A column set's
    patterns may match nothing, and its `exclude` may name columns that this table does not have,
    because sets are shared; a table's own may not. `is_shared` says that the whole selection is
    that of several tables, as the defaults of a source are.

    Raises:
        SpecError: when a name is not in the schema, or names a column that cannot be analyzed or
            stored; located where it was written.
    """
    columns = {column.name: column for column in available}
    unmatched: list[str] = []
    idle: list[str] = []
    selected = set(columns) if selection.all else set()
    for rule in selection.rules:
        remarks: list[str] = []
        selected |= _matched_by_rule(rule, columns, table, remarks)
        unmatched += [] if rule.is_shared else remarks
    for pattern in selection.exclude:
        selected -= _matched(pattern, columns, table, idle)
    warnings, notes = ([], []) if is_shared else (unmatched, idle)
    names: list[str] = []
    skipped: list[tuple[str, str]] = []
    for column in available:
        if column.name not in selected:
            continue
        if column.objection is None:
            names.append(column.name)
        else:
            skipped.append((column.name, column.objection))
    if not names:
        is_warning = any(column.objection is None for column in available)
        (warnings if is_warning else notes).append("no column is left to analyze")
    return ResolvedColumns(tuple(names), tuple(skipped), tuple(warnings), tuple(notes))


def _matched_by_rule(
    rule: ColumnRule, columns: dict[str, AvailableColumn], table: str, notes: list[str]
) -> set[str]:
    excluded = {
        name for name in columns if any(_matches(pattern, name) for pattern in rule.exclude)
    }
    matched: set[str] = set()
    for pattern in rule.include:
        names = _matched(pattern, columns, table, notes)
        if _is_name(pattern, columns) and not names <= excluded:
            _check_usable(pattern, columns[pattern.text], table)
        matched |= names
    if rule.types is not None:
        matched = {name for name in matched if columns[name].kind in rule.types}
    return matched - excluded


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


def _matches(pattern: ColumnPattern, name: str) -> bool:
    return name == pattern.text or fnmatchcase(name, pattern.text)


def _check_usable(pattern: ColumnPattern, column: AvailableColumn, table: str) -> None:
    if column.objection is not None:
        what = f"column {quoted(column.name)} of table '{table}'"
        message = f"{what} cannot have statistics: {column.objection}"
        raise UnsupportedColumn(message, location=pattern.location)


def _unknown_column(pattern: ColumnPattern, columns: Iterable[str], table: str) -> SpecError:
    known = list(columns)
    listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return UnknownColumn(
        f"table '{table}' has no column {quoted(pattern.text)}",
        location=pattern.location,
        hint=did_you_mean(pattern.text, known) or f"its columns: {listed or 'none'}",
    )
