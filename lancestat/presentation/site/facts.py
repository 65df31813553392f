"""The facts above the columns of a table's page, and those of a join's page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from markupsafe import Markup

from lancestat.formats import age, count, spoken
from lancestat.joins.action import excluded_rows, measured_recall
from lancestat.joins.duplicates.action import counted
from lancestat.joins.record import Accuracy, InputRecord, JoinRecord
from lancestat.presentation.site.charts import Distribution, distribution
from lancestat.presentation.site.text import NOTHING, ago, since
from lancestat.report.duplicates import DuplicatesReport
from lancestat.report.joins import JoinReport
from lancestat.report.tables import TableFigures, TableReport
from lancestat.spec.catalog import shown_uri, table_name_of
from lancestat.spec.knn_join import Mode, Pairs, keys_text
from lancestat.spec.model import (
    ColumnPattern,
    ColumnSelection,
    Duplicates,
    Freshness,
    KnnJoin,
    KnnSide,
    Refresh,
    Table,
)
from lancestat.spec.redaction import NO_ORIGINS, Origins, named
from lancestat.tables.carriers import CARRIERS
from lancestat.tables.wire import PublishedColumn

# A term, and what is known of it: a text, or parts of one of which some are markup.
Words = str | tuple[str, ...]
Fact = tuple[str, Words]


def table_facts(report: TableReport, origins: Origins = NO_ORIGINS) -> list[Fact]:
    """Terms and what is known of them; `origins` are those of values from the environment."""
    facts: list[Fact] = [*_place(report.spec)]
    status = report.status
    if status is not None:
        figures = TableFigures.of(status)
        facts += [
            ("Version", count(status.version)),
            ("Rows", figures.rows),
            ("Size", figures.size),
        ]
        if status.computed_at is not None:
            facts.append(("Computed", since(status.computed_at)))
        if figures.behind:
            changed = f", {figures.changed} of the rows changed since" if figures.changed else ""
            facts.append(("Behind", figures.behind + changed))
    if report.changed_at is not None:
        given = named(origins, "freshness")
        bounds = f"; {given}" if given else _bounds(report.spec.freshness)
        facts.append(("Freshness", (freshness_words(report), bounds)))
    return [*facts, *_declared(report, origins)]


def _declared(report: TableReport, origins: Origins) -> list[Fact]:
    spec, policy = report.spec, report.spec.policy
    name = f"{policy.name}: " if policy.name else ""
    when = {
        Refresh.ALWAYS: "refreshed by every run",
        Refresh.WHEN_STALE: "refreshed when readers would refuse",
    }
    words = named(origins, "policy") or f"{policy.accepted_staleness}; {when[policy.refresh]}"
    facts: list[Fact] = [("Policy", f"{name}{words}")]
    if published := named(origins, "publish"):
        facts.append(("Published", published))
    elif not spec.publish.commits:
        place = CARRIERS[spec.publish].place
        facts.append(("Published", f"to {place} only, never to the manifest"))
    facts += [("Owner", spec.owner)] if spec.owner else []
    return facts


def _bounds(freshness: Freshness | None) -> str:
    if freshness is None:
        return ""
    bounds = (("warning", freshness.warn_after), ("error", freshness.error_after))
    words = [f"{word} after {age(bound)}" for word, bound in bounds if bound is not None]
    return f"; {', '.join(words)}"


# Of one side of a join: its title, the node that it is, the lines of its query, and facts.
SideFacts = tuple[str, str | None, list[str], list[Fact]]


def join_facts(report: JoinReport, origins: Origins = NO_ORIGINS) -> list[Fact]:
    """Terms and what is known of them; `origins` are those of values from the environment."""
    spec, record = report.spec, report.record
    near = "" if spec.max_distance is None else f" within {spec.max_distance:g}"
    some = "all" if isinstance(spec.k, str) else f"{count(spec.k)} nearest"
    meaning = f"{some}{near} by {spec.metric}, {spoken([spec.join])} join"
    if spec.exclude_self:
        meaning += ", without the row itself"
    if spec.pairs == Pairs.UNORDERED.value:
        meaning += ", each pair once"
    facts: list[Fact] = [
        ("Meaning", named(origins, "k", "max_distance", "metric", "join") or meaning),
        *([("Keys", named(origins, "on") or keys_text(spec.on))] if spec.on else []),
        ("Mode", named(origins, "mode", "approx") or _mode(spec)),
        ("Output", f"{spec.output_format}: {spec.output_uri}"),
    ]
    if record is not None:
        facts += _made(record)
    facts += [("Owner", spec.owner)] if spec.owner else []
    return facts


def duplicates_facts(report: DuplicatesReport, origins: Origins = NO_ORIGINS) -> list[Fact]:
    """Terms and what is known of them; `origins` are those of values from the environment."""
    spec, record = report.spec, report.record
    meaning = f"rows within {spec.max_distance:g} by {spec.metric}, directly or by way of others"
    facts: list[Fact] = [
        ("Meaning", named(origins, "max_distance", "metric") or meaning),
        *([("Read from", f"lance: {shown_uri(spec.uri)}")] if spec.uri is not None else []),
        ("Vector", spec.vector),
        *([("Keys", named(origins, "on") or ", ".join(spec.on))] if spec.on else []),
        *([("Where", spec.where)] if spec.where is not None else []),
        *([("Mode", _mode(spec))] if spec.mode != Mode.EXACT.value else []),
        ("Kept", ", ".join(spec.order_by) or "the first row of a group"),
        ("Output", f"lance: {spec.output_uri}"),
        *([("Pairs", f"lance: {spec.pairs_uri}")] if spec.pairs_uri is not None else []),
    ]
    if record is not None:
        counts, joined = record.counts, record.pairs
        facts += [
            ("Made", since(record.finished_at)),
            ("Strategy", spoken([joined.strategy])),
            ("Compared", count(joined.counts.left_rows, "row")),
            ("Found", ", ".join(counted(counts))),
            (
                "Excluded",
                f"{count(joined.counts.excluded_right_rows, 'row')} without a usable vector or key",
            ),
            *_recall(joined.accuracy),
        ]
    facts += [("Owner", spec.owner)] if spec.owner else []
    return facts


# Sizes of groups, and how many groups have them, in words.
SizeFacts = tuple[list[tuple[str, str]], str]


def group_sizes(report: DuplicatesReport) -> SizeFacts | None:
    """Return how many groups there are of each size, and the sizes of the largest ones."""
    record = report.record
    if record is None or not record.counts.groups:
        return None
    rows = []
    for place, number in enumerate(record.sizes.counts):
        low, high = (1 << place) + 1, 1 << place + 1
        rows.append(
            (count(low) if low == high else f"{count(low)} to {count(high)}", count(number))
        )
    return rows, ", ".join(map(count, record.sizes.largest))


def _mode(spec: KnnJoin | Duplicates) -> str:
    if spec.recall is not None:
        return f"{spec.mode}, recall at least {spec.recall:g}"
    if spec.nprobes is not None:
        return f"{spec.mode}, {count(spec.nprobes, 'probe')}"
    return spec.mode


def _made(record: JoinRecord) -> list[Fact]:
    counts, accuracy = record.counts, record.accuracy
    facts: list[Fact] = [
        ("Made", since(record.finished_at)),
        ("Strategy", spoken([record.strategy])),
        ("Result", count(record.result.rows, "row")),
        ("Compared", f"{count(counts.left_rows)} x {count(counts.right_rows)} rows"),
        ("Unmatched", count(counts.unmatched_left_rows, "left row")),
        ("Excluded", excluded_rows(counts.excluded_right_rows)),
    ]
    if record.groups is not None:
        groups, pairs = record.groups.groups, record.groups.pairs
        facts.append(("Groups", f"{count(groups)} of equal keys, with {count(pairs, 'pair')}"))
    return [*facts, *_recall(accuracy)]


def _recall(accuracy: Accuracy) -> list[Fact]:
    if accuracy.recall is None:
        return []
    return [("Recall", measured_recall(accuracy.recall, accuracy.nprobes))]


def _place(table: Table) -> Iterator[Fact]:
    """Yield a table's name in its catalog, where it has one, and its URI, where that is known."""
    name = table_name_of((table.declared or table).uri)
    if name is not None:
        yield "Table", str(name)
    if table.source is not None:
        yield "Source", table.source
    if table_name_of(table.uri) is None:
        yield "URI", table.uri


def side_facts(report: JoinReport) -> list[SideFacts]:
    """Return the facts of the left and the right side."""
    spec, record = report.spec, report.record
    left = (record.left, record.counts.left_rows) if record else None
    right = (record.right, record.counts.right_rows) if record else None
    return [_side("Left", spec.left, left), _side("Right", spec.right, right)]


def _side(title: str, side: KnnSide, made: tuple[InputRecord, int] | None) -> SideFacts:
    selected = "all columns" if side.select is None else ", ".join(side.select) or "none"
    facts: list[Fact] = [("Vector", side.vector), ("Columns", selected)]
    if side.uri is not None:
        facts.insert(0, ("Read from", f"{side.format or 'lance'}: {shown_uri(side.uri)}"))
    if side.where is not None:
        facts.append(("Where", side.where))
    if side.options:
        facts.append(("Options", ", ".join(sorted(side.options))))
    if made is not None:
        facts.append(("Rows", count(made[1])))
        if made[0].fragments:
            facts.append(("Fragments", count(made[0].fragments)))
    sql = side.sql.strip().splitlines() if side.sql else []
    return title, side.table, sql, facts


# The statistics that a page gives cells of their own.
CELLS = ("minimum", "maximum", "nulls", "distinct", "average_length", "maximum_length")
_DATE = re.compile(r"[+-]?\d{4,}-\d\d-\d\d")


def column_texts(column: PublishedColumn) -> dict[str, str]:
    """Return the statistics of a column in words, by their names."""
    return {statistic.name: statistic.text(value) or NOTHING for statistic, value in column.items()}


def null_share(column: PublishedColumn, rows: int) -> float | None:
    """Return the share of null in all rows, None where it is not known."""
    return None if column.nulls is None or not rows else min(1.0, column.nulls / rows)


def distributions(report: TableReport) -> dict[str, Distribution]:
    """Return the distributions of columns with statistics, as far as they can be drawn."""
    columns = report.status.columns if report.status else {}
    drawn = {
        name: distribution(histogram, _kind(columns[name].minimum))
        for name, histogram in report.histograms.items()
        if name in columns
    }
    return {name: shape for name, shape in drawn.items() if shape is not None}


def _kind(bound: str | None) -> str:
    """Return what a histogram counts: its column's bounds are written so."""
    if bound is None:
        return "number"
    if date := _DATE.match(bound):
        return "date" if date.end() == len(bound) else "timestamp"
    return "time" if ":" in bound else "number"


def selection_words(columns: ColumnSelection) -> str:
    """Return which columns are declared to have statistics, in words."""
    parts = ["all that can have them"] if columns.all else []
    for rule in columns.rules:
        text = _names(rule.include)
        if rule.types is not None:
            text += f" of type {' or '.join(sorted(rule.types))}"
        if rule.exclude:
            text += f" but {_names(rule.exclude)}"
        parts.append(text)
    words = "; ".join(parts) or "none"
    return f"{words}; without {_names(columns.exclude)}" if columns.exclude else words


def _names(patterns: Iterable[ColumnPattern]) -> str:
    return ", ".join(pattern.text for pattern in patterns)


def freshness_words(report: TableReport) -> str:
    """Return when rows last changed, as far as it is known."""
    if report.changed_at is None:
        return NOTHING
    return Markup("rows changed {}").format(ago(report.changed_at))
