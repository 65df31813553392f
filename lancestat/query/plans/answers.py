"""The answers to Spark's planner about a whole plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from lancestat import codec
from lancestat.query.estimates import ColumnEstimate, column_estimates, remaining_fragments
from lancestat.query.fragments import FragmentStatistics, RemainingFragments
from lancestat.query.plans.cardinality import Estimator
from lancestat.query.plans.facts import ColumnFacts, Facts, Origin, snapped
from lancestat.query.plans.frequencies import Frequencies
from lancestat.query.plans.join_order import best_order
from lancestat.query.plans.operators import Condition, Operator, read_operators
from lancestat.query.plans.sampled import SampledRows
from lancestat.query.predicates.filter import Filter, columns_of
from lancestat.query.table import ReadSettings, ReadTable
from lancestat.tables.statistics.column_type import ColumnType, Kind, parse_bound
from lancestat.tables.statistics.common_values import CommonValues
from lancestat.tables.statistics.partial import ColumnPartial
from lancestat.tables.wire import JointStatistics

Message = dict[str, Any]


class PlanAnswers:
    """Answers about one plan: the rows of its operators, and the order of its joins.

    `table_of` returns the table of a scan and its filters.
    """

    def __init__(
        self,
        message: Message,
        table_of: Callable[[Message], tuple[ReadTable, list[Filter]]],
        now: datetime,
    ) -> None:
        self._operators = read_operators(message["operators"])
        self._table_of, self._now = table_of, now
        self._tables: dict[int, ReadTable] = {}
        self._estimator = Estimator(self._operators, self._scan, self)

    def estimates(self) -> Message:
        """Return `rows`, `at_most` and the `evidence` of each operator."""
        return {
            "operators": [
                {}
                if facts is None
                else {
                    "rows": _finite(facts.rows),
                    "at_most": _finite(facts.at_most),
                    "evidence": facts.evidence,
                }
                for facts in self._estimator.facts
            ]
        }

    def orders(self, regions: Sequence[Message]) -> Message:
        """Return the order of each region of joins, None where something is not known."""
        return {"orders": [self._order(region) for region in regions]}

    def _order(self, region: Message) -> Any:
        inputs = [self._estimator.facts[index] for index in region["inputs"]]
        known = [facts for facts in inputs if facts is not None and facts.columns]
        conditions = codec.convert(region["conditions"], list[Condition])
        columns = {id for facts in known for id in facts.columns}
        if len(known) < len(inputs) or any(
            id not in columns for condition in conditions for id in condition.columns
        ):
            return None
        return best_order(known, conditions, self)

    def distinct(self, scan: int, names: frozenset[str]) -> float | None:
        """Return the joint distinct count of columns of a scan, None where not kept."""
        kept = self._joint(scan, names)
        return None if kept is None else float(max(1, kept.distinct))

    def with_null(self, scan: int, names: frozenset[str]) -> float | None:
        """Return the rows of a scan in which one of some columns is null, None where not kept."""
        kept = self._joint(scan, names)
        return None if kept is None else float(kept.nulls)

    def _joint(self, scan: int, names: frozenset[str]) -> JointStatistics | None:
        return self._tables[scan].joint(names) if scan in self._tables else None

    def is_contained(self, pairs: Collection[tuple[Origin, Origin]]) -> bool:
        """Return whether a declared reference between the columns of pairs is proven."""
        scans = {(one, other) for (one, _), (other, _) in pairs}
        if len(scans) != 1 or any(scan not in self._tables for scan in next(iter(scans))):
            return False
        table, other = (self._tables[scan] for scan in next(iter(scans)))
        names = {(name, to) for (_, name), (_, to) in pairs}
        return any(
            reference.table == other.name
            and set(zip(reference.columns, reference.to, strict=True)) == names
            and table.containment(reference, other).contained is True
            for reference in table.references
        )

    def _scan(self, index: int, operator: Operator) -> Facts | None:
        question = operator.details["scan"]
        table, filters = self._table_of(question)
        settings = ReadSettings.of(question["conf"], question["options"])
        verdict = table.verdict(settings, self._now)
        if not verdict.use:
            return None
        self._tables[index] = table
        left = remaining_fragments(table, filters)
        rows = table.snapshot.rows if left is None else left.rows
        names: Mapping[str, str] = operator.details["names"]
        estimates = column_estimates(table, list(names.values()), verdict, left, rows)
        if table.histogram or any(table.has_common_values([name]) for name in estimates):
            table.fragments.load(estimates)
        columns = {
            id: _column(table, table.fragments if left is None else left, index, name, column, rows)
            for id, name in names.items()
            if (column := estimates.get(name)) is not None and column.distinct is not None
        }
        unique = {frozenset((id,)) for id, c in columns.items() if c.distinct == rows}
        ids = {name: id for id, name in names.items()}
        for key in table.proven_keys:
            if key <= ids.keys():
                unique.add(frozenset(ids[name] for name in key))
        samples = _samples(table, index, None if left is None else left.fragment_ids, rows, columns)
        return Facts(
            float(rows),
            float(rows),
            "count",
            columns,
            frozenset(unique),
            samples,
            groups=_groups(table, ids, filters if left is not None else ()),
        )


def _samples(
    table: ReadTable,
    index: int,
    fragment_ids: Sequence[int] | None,
    rows: int,
    columns: Mapping[str, ColumnFacts],
) -> dict[int, SampledRows]:
    sample = table.sampler and table.sampler.sample(fragment_ids)
    if not sample:
        return {}
    common = {
        column.origin[1]: column.frequencies
        for column in columns.values()
        if column.origin is not None and column.frequencies is not None
    }
    return {
        index: SampledRows(
            sample.columns,
            sample.rows,
            float(rows),
            sample.is_whole,
            sample.blocks,
            common=common,
            memo=sample.memo,
        )
    }


def _groups(
    table: ReadTable, ids: Mapping[str, str], pruning: Sequence[Filter]
) -> Mapping[tuple[str, ...], CommonValues]:
    """Return the common values that are kept of groups of columns, by their ids.

    Fragments that filters rule out have rows that pass conditions on other columns alone.
    """
    filtered = {name for each in pruning for name in columns_of(each)}
    found = {}
    for group in filter(table.has_common_values, table.groups):
        is_whole = filtered <= set(group) <= ids.keys()
        common = table.common_values(frozenset(group)) if is_whole else None
        if common is not None:
            order = table.fragments.tuple_order(group)
            found[tuple(ids[name] for name in order)] = common
    return found


def _column(
    table: ReadTable,
    fragments: FragmentStatistics | RemainingFragments,
    index: int,
    name: str,
    column: ColumnEstimate,
    rows: int,
) -> ColumnFacts:
    type = table.types[name]
    nulls = (column.nulls or 0) / rows if rows else 0.0
    present = rows * (1 - nulls)
    distinct = max(1.0, snapped(float(column.distinct or 0), present))
    has_common = table.has_common_values([name])
    partial = fragments.partial(name) if table.histogram or has_common else None
    return ColumnFacts(
        distinct,
        nulls,
        _number(column.minimum, type),
        _number(column.maximum, type),
        None if partial is None else partial.quantiles,
        (index, name),
        max(1.0, present / distinct),
        type,
        table.fields[name],
        frequencies=_frequencies(partial) if has_common else None,
    )


def _frequencies(partial: ColumnPartial | None) -> Frequencies | None:
    if partial is None or partial.common is None or not partial.values:
        return None
    return Frequencies.kept(partial.common, partial.values)


def _number(text: str | None, type: ColumnType) -> float | None:
    if text is None or type.kind in (Kind.STRING, Kind.BINARY):
        return None
    bound = parse_bound(text, type)
    return None if bound is None else float(bound)


def _finite(rows: float) -> float:
    return min(rows, 1e30) if math.isfinite(rows) else 1e30
