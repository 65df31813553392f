"""A table's statistics, for people."""

from __future__ import annotations

from datetime import timezone
from typing import TYPE_CHECKING

from lancestat.formats import age, count, size
from lancestat.presentation.terminal import grid, paint
from lancestat.redact import clean, visible

if TYPE_CHECKING:
    from lancestat.manifest.wire import PublishedColumn
    from lancestat.plan.table_status import Shown

_LONGEST_BOUND = 28


def render_shown(shown: Shown) -> list[str]:
    """The verdict and its reason, then what is known of the table, then its columns."""
    tone = "success" if shown.use else "error"
    word = "used" if shown.use else "refused"
    verdict = paint(f"{word}: {shown.reason.replace('_', ' ')}", tone)
    lines = [f"{paint(shown.table, 'title')}  {paint(clean(shown.uri), 'note')}", ""]
    facts = [("statistics", f"{verdict}, {shown.detail}"), *_facts(shown)]
    widest = max(len(name) for name, _ in facts)
    lines += [f"  {name:<{widest}}  {fact}" for name, fact in facts]
    if shown.columns:
        lines += ["", *(f"  {line}" for line in _columns(shown))]
    if shown.missing:
        lines += ["", f"  without statistics: {', '.join(shown.missing)}"]
    notes = [*(f"ignored: {name}, {why}" for name, why in shown.dropped.items()), *shown.skipped]
    if notes:
        lines += ["", *(paint(f"  {note}", "note") for note in notes)]
    return lines


def _facts(shown: Shown) -> list[tuple[str, str]]:
    facts = [
        (
            "table",
            f"version {shown.version}, {count(shown.rows, 'row')}"
            f" in {count(shown.fragments, 'fragment')}",
        ),
        ("size", f"{size(shown.size_bytes)} decoded, {size(shown.disk_bytes)} on disk"),
    ]
    if shown.computed_at is not None:
        instant = shown.computed_at.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        ago = f", {age(shown.age)} ago" if shown.age is not None else ""
        facts.append(("computed", f"{instant}{ago}"))
    if shown.columns:
        covered = f"{count(len(shown.columns))} of {count(shown.analyzable)}"
        facts.append(("columns", f"{covered} that can have statistics"))
    if shown.versions_behind:
        behind = count(shown.versions_behind, "version")
        rows = f", {shown.changed_rows:.1%} of the rows" if shown.changed_rows is not None else ""
        facts.append(("behind", f"{behind}{rows}"))
    if shown.policy:
        facts.append(("policy", shown.policy))
    return facts


def _columns(shown: Shown) -> list[str]:
    head = ["column", "nulls", "distinct", "min", "max", "avg length", "max length"]
    rows = [_row(name, column) for name, column in shown.columns.items()]
    return grid(head, rows, right=frozenset({1, 2, 5, 6}))


def _row(name: str, column: PublishedColumn) -> list[str]:
    return [
        name,
        _number(column.nulls),
        _number(column.distinct),
        _bound(column.minimum),
        _bound(column.maximum),
        _number(column.average_length),
        _number(column.maximum_length),
    ]


def _number(value: int | None) -> str:
    return "" if value is None else count(value)


def _bound(value: str | None) -> str:
    if value is None:
        return ""
    line = visible(" ".join(value.split()))
    return line if len(line) <= _LONGEST_BOUND else f"{line[: _LONGEST_BOUND - 3]}..."
