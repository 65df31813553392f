"""Rows of the operators of a plan, from statistics of the tables that they read."""

from __future__ import annotations

import base64
import functools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancestat.lake.snapshot import Field
from lancestat.query.plans.conditions import Passing, restrict
from lancestat.query.plans.facts import ColumnFacts, Facts, Kept, narrowed, tuples
from lancestat.query.plans.joins import joined
from lancestat.query.plans.operators import Condition, Operator, OutputColumn
from lancestat.query.plans.sampled import Mask, SampledRows
from lancestat.tables.statistics.column_type import Kind, column_type

# What is known of the rows that a scan reads; None where its statistics are not used.
ScanFacts = Callable[[int, Operator], Facts | None]

SPARKS = "Spark's"


class Estimator:
    """Estimates the operators of one plan, each once.

    An operator that needs a column of which nothing is known has Spark's own estimate, in
    proportion to what is known of its inputs. `facts` are by the indexes of operators, None where
    neither knows anything.
    """

    def __init__(self, operators: Sequence[Operator], scans: ScanFacts, kept: Kept) -> None:
        self.operators = operators
        self.kept = kept
        self.facts: list[Facts | None] = []
        for index, operator in enumerate(operators):
            inputs = [self.facts[number] for number in operator.inputs]
            self.facts.append(self._estimate(index, operator, inputs, scans))

    def _estimate(
        self, index: int, operator: Operator, inputs: list[Facts | None], scans: ScanFacts
    ) -> Facts | None:
        if operator.kind == "scan":
            return scans(index, operator) or _sparks(operator)
        known = [facts for facts in inputs if facts is not None]
        if operator.is_exact and operator.rows is not None:
            below = known[0].columns if known else {}
            return Facts(operator.rows, operator.rows, "counted", below)
        if not known or len(known) < len(inputs):
            return _sparks(operator)
        estimate = _KINDS.get(operator.kind, _other)
        if not _is_known(operator, known):
            estimate = _other
        return estimate(self, operator, known)


def _is_known(operator: Operator, inputs: Sequence[Facts]) -> bool:
    """Whether the columns without whose counts an operator cannot be estimated are known.

    Of a join by several keys, one is enough: the others leave no more rows.
    """
    columns = _both(inputs).columns
    if not columns and operator.kind in ("filter", "join", "aggregate"):
        # A sample does not replace statistics that there are not, or that are refused.
        return False
    match operator.kind:
        case "join" if any(condition.is_equality for condition in operator.conditions):
            return any(
                condition.left in columns and condition.right in columns
                for condition in operator.conditions
                if condition.is_equality
            )
        case "join" | "filter" if "sample" not in operator.details:
            return all(id in columns for each in operator.conditions for id in each.columns)
        case "aggregate":
            keys = (key for key in operator.keys if key.values is None)
            return all(id in columns for key in keys for id in _columns_of(key))
    return True


def _both(inputs: Sequence[Facts]) -> Facts:
    """Return all columns of some inputs."""
    columns = {id: column for facts in inputs for id, column in facts.columns.items()}
    return replace(inputs[0], columns=columns)


def _sparks(operator: Operator) -> Facts | None:
    if operator.rows is None:
        return None
    return Facts(operator.rows, operator.rows, SPARKS)


def _other(estimator: Estimator, operator: Operator, inputs: Sequence[Facts]) -> Facts | None:
    """Return Spark's estimate in proportion: of operators that keep rows, what they read."""
    sparks = [estimator.operators[index].rows for index in operator.inputs]
    rows, at_most, evidence = operator.rows, operator.rows, SPARKS
    if operator.name in _KEEPING and len(inputs) == 1:
        [below] = inputs
        rows, at_most, evidence = below.rows, below.at_most, below.evidence
    elif rows is not None and at_most is not None:
        for below, own in zip(inputs, sparks, strict=True):
            if own:
                rows, at_most = rows * below.rows / own, at_most * below.at_most / own
    limit = _limit_of(operator, inputs)
    if rows is None or at_most is None:
        if math.isinf(limit):
            return None
        if operator.kind == "filter":
            return restrict(inputs[0], operator.conditions, None)
        rows = at_most = limit
        evidence = "guess"
    least = _least_of(operator, inputs)
    rows, at_most = max(least, min(rows, limit)), max(least, at_most)
    columns = _both(inputs).columns
    kept = {id: columns[id] for id in operator.output if id in columns}
    samples = {index: sample for facts in inputs for index, sample in facts.samples.items()}
    return Facts(rows, max(rows, at_most), evidence, kept, samples=samples)


def _limit_of(operator: Operator, inputs: Sequence[Facts]) -> float:
    """Return the most rows to expect where Spark knows no more of the columns than is known here.

    It takes all pairs of rows for joined then.
    """
    if not any(facts.columns for facts in inputs):
        return math.inf
    if len(inputs) == 1:
        return inputs[0].rows if operator.kind in ("filter", "aggregate") else math.inf
    pairs = [condition for condition in operator.conditions if condition.is_equality]
    if operator.kind != "join" or not pairs:
        return math.inf
    columns = _both(inputs).columns
    known = [columns[id].distinct for pair in pairs for id in pair.columns if id in columns]
    product, larger = math.prod(i.rows for i in inputs), max(i.rows for i in inputs)
    limit = product / max(known) if known else larger
    return min(limit, inputs[0].rows) if operator.details["type"] == "LEFT SEMI" else limit


def _least_of(operator: Operator, inputs: Sequence[Facts]) -> float:
    """Return the rows that a join keeps whatever partners they have.

    Of an anti join these are all, as Spark has it: it is not known which find a partner.
    """
    if operator.kind != "join":
        return 0.0
    left, right = (facts.rows for facts in inputs)
    match operator.details["type"]:
        case "LEFT OUTER" | "LEFT ANTI" | "EXISTENCE":
            return left
        case "RIGHT OUTER":
            return right
        case "FULL OUTER":
            return max(left, right)
        case _:
            return 0.0


_KEEPING = frozenset(
    ("Sort", "ReturnAnswer", "Window", "Repartition", "RepartitionByExpression", "WithCTE")
)


def _filter(estimator: Estimator, operator: Operator, inputs: Sequence[Facts]) -> Facts:
    [below], counted = inputs, operator.details.get("sample")
    if counted is None:
        return restrict(below, operator.conditions, None)
    passing, scan = _mask(counted["passing"], counted["rows"]), operator.inputs[0]
    rows = below.samples.get(scan)
    if rows is None:
        sample = Passing.of(passing)
    else:
        sample = Passing.of(passing, blocks=rows.blocks, is_whole=rows.is_whole)
    others = set(counted.get("unsampled", ()))
    split: tuple[list[Condition], list[Condition]] = ([], [])
    for index, condition in enumerate(operator.conditions):
        split[index in others].append(condition)
    made = restrict(below, split[0], sample)
    if rows is not None:
        made = replace(made, samples={**below.samples, scan: rows.where(passing, made.rows)})
    if not others:
        return made
    return replace(restrict(made, split[1], None), chosen=made.chosen | {scan})


def _mask(passing: str, rows: int) -> Mask:
    """Return which rows of a sample pass, of which Spark sends a bit each."""
    bits = np.frombuffer(base64.b64decode(passing), np.uint8)
    return np.unpackbits(bits, count=rows, bitorder="little").astype(np.bool_)


def _project(estimator: Estimator, operator: Operator, inputs: Sequence[Facts]) -> Facts:
    return _with_columns(inputs[0], operator.columns, inputs[0])


def _with_columns(source: Facts, columns: Any, rows_of: Facts) -> Facts:
    made: dict[str, ColumnFacts] = {}
    renamed: dict[str, str] = {}
    for column in columns:
        needed = column.sources if column.of is None else (column.of,)
        if column.id is None or any(id not in source.columns for id in needed):
            continue
        made[column.id] = _computed(source, column, rows_of.rows)
        if column.of is not None:
            renamed.setdefault(column.of, column.id)
    unique = frozenset(
        frozenset(renamed[id] for id in ids)
        for ids in rows_of.unique
        if all(id in renamed for id in ids)
    )
    return replace(rows_of, columns=made, unique=unique)


def _computed(source: Facts, column: OutputColumn, rows: float) -> ColumnFacts:
    if column.of is not None:
        return source.of(column.of)
    if not column.sources:
        return ColumnFacts(1.0)
    distinct = math.prod(source.of(id).distinct for id in column.sources)
    return ColumnFacts(max(1.0, min(distinct, rows)))


def _aggregate(estimator: Estimator, operator: Operator, inputs: Sequence[Facts]) -> Facts:
    [below] = inputs
    keys = operator.keys
    if not keys:
        return _with_columns(below, operator.columns, Facts(1.0, 1.0, "one group"))
    below, ids = _with_values(below, keys)
    groups, evidence = tuples(below, ids, estimator.kept, rows=below.rows)
    groups = max(1.0, min(groups, below.rows))
    # Groups of some rows are at most these rows; a product of counts is mostly too many.
    at_most = min(below.at_most, max(groups, groups * below.at_most / max(1.0, below.rows)))
    evidence = evidence or "distinct count"
    made = Facts(groups, at_most, evidence, samples=below.samples, parts=below.parts)
    columns = operator.columns
    grouped = frozenset(
        column.id for column in columns if column.key is not None and column.id is not None
    )
    covered = {column.key for column in columns if column.key is not None}
    unique = frozenset((grouped,)) if len(covered) == len(keys) else frozenset()
    values = {
        column.id: _grouped(below, column, keys, ids, groups)
        for column in columns
        if column.id is not None
    }
    return replace(made, columns=values, unique=unique)


def _columns_of(key: OutputColumn) -> Sequence[str]:
    return (key.of,) if key.of else key.sources


def _with_values(below: Facts, keys: Sequence[OutputColumn]) -> tuple[Facts, list[str]]:
    """Return the facts with computed keys as columns of their tables, and the ids of all keys."""
    columns, samples, ids = dict(below.columns), dict(below.samples), list[str]()
    for index, key in enumerate(keys):
        values = key.values or {}
        sample = samples.get(values.get("scan", -1))
        codes = np.frombuffer(base64.b64decode(values.get("codes", "")), np.uint8)
        if sample is None or not sample.size or len(codes) != sample.size:
            ids.extend(_columns_of(key))
            continue
        id = key.of or f"key {index}"
        name, distinct = f"\0{id}", float(codes.max()) + 1
        columns[id] = ColumnFacts(
            distinct,
            origin=(values["scan"], name),
            rows_per_value=max(1.0, sample.rows / distinct),
        )
        samples[values["scan"]] = sample.with_column(name, pa.array(codes))
        ids.append(id)
    return replace(below, columns=columns, samples=samples), ids


_COUNT = column_type(pa.int64())
_COUNTED = Field(-1, "count", pa.int64(), nullable=False, spark_type="bigint")


def _grouped(
    below: Facts,
    column: OutputColumn,
    keys: Sequence[OutputColumn],
    ids: Sequence[str],
    groups: float,
) -> ColumnFacts:
    if column.is_count:
        mean = below.rows / max(1.0, groups)
        return ColumnFacts(
            min(groups, mean * 4),
            type=_COUNT,
            field=_COUNTED,
            mean_count=mean,
            of_groups=_of_groups(below, ids, None, mean),
        )
    if (summed := _summed(below, column, ids, groups)) is not None:
        return summed
    if column.extreme_of is not None and (origin := below.of(column.extreme_of).origin):
        return ColumnFacts(groups, extreme_of=origin[1])
    if column.key is None and column.of is None:
        return ColumnFacts(groups)
    key = column if column.key is None else keys[column.key]
    if key.of is None:
        return ColumnFacts(groups)
    known = narrowed(below, key.of)
    distinct = min(groups, known.among(below.rows))
    # Each value of a key is in one row where the key is all of it.
    return replace(
        known,
        distinct=max(1.0, distinct),
        rows_per_value=groups / max(1.0, distinct),
        counted_in=frozenset(),
        domain=max(known.domain, known.distinct),
    )


def _summed(
    below: Facts, column: OutputColumn, ids: Sequence[str], groups: float
) -> ColumnFacts | None:
    """Return a column of sums in groups; None of other columns and of sums that tell nothing."""
    if not column.type:
        return None
    field = Field(-1, "sum", pa.null(), nullable=True, spark_type=column.type)
    added = ColumnFacts(1.0) if column.sum_of is None else below.of(column.sum_of)
    # Of less than a row there is still a group.
    size = max(1.0, below.rows / max(1.0, groups))
    spread = _spread(below, ids, added, groups)
    if spread is not None:
        of_groups = _of_groups(below, ids, added, size)
        return ColumnFacts(groups, type=added.type, field=field, of_groups=of_groups, spread=spread)
    type = column_type(_arrow_type(column.type))
    if column.added is None or type is None:
        return None
    scale = 10.0**type.scale
    mean, least, most = (column.added[name] * scale for name in ("mean", "least", "most"))
    # Of a number of rows that is geometric, as that of counts.
    alone = column.added["variance"] * scale**2
    variance = size * alone + (size**2 - size) * mean**2
    return ColumnFacts(
        groups,
        low=least if least >= 0 else None,
        high=most if most <= 0 else None,
        type=type,
        field=field,
        spread=lambda: (size * mean, variance),
    )


_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def _arrow_type(spark_type: str) -> pa.DataType:
    """Return the type of a sum."""
    if (found := _DECIMAL.fullmatch(spark_type)) is not None:
        return pa.decimal128(*map(int, found.groups()))
    return pa.int64() if spark_type == "bigint" else pa.float64()


def _of_groups(
    below: Facts, ids: Sequence[str], added: ColumnFacts | None, mean: float
) -> Callable[[], npt.NDArray[np.float64] | None] | None:
    """Return what gives the sizes of sampled groups, or the sums of a column there."""
    sampled = _sample_of(below, [*map(below.of, ids), *([] if added is None else [added])])
    if sampled is None:
        return None
    sample, names = sampled
    if added is None:
        return functools.cache(lambda: sample.of_groups(names, None, None, mean))
    return functools.cache(lambda: sample.of_groups(names[:-1], names[-1], added.type, mean))


def _spread(
    below: Facts, ids: Sequence[str], added: ColumnFacts, groups: float
) -> Callable[[], tuple[float, float] | None] | None:
    """Return what gives the mean and the variance of the sums of a column in groups."""
    sampled, type = _sample_of(below, [*map(below.of, ids), added]), added.type
    if sampled is None or type is None:
        return None
    sample, names = sampled
    return functools.cache(
        lambda: sample.spread_of_groups(names[:-1], names[-1], type, max(1.0, groups))
    )


def _sample_of(
    below: Facts, columns: Sequence[ColumnFacts]
) -> tuple[SampledRows, list[str]] | None:
    """Return the sample of the one table that some columns are of, and their names there."""
    origins = [column.origin for column in columns if column.origin is not None]
    scans = {scan for scan, _ in origins}
    if len(origins) < len(columns) or len(scans) != 1 or not scans <= below.samples.keys():
        return None
    return below.samples[scans.pop()], [name for _, name in origins]


def _join(estimator: Estimator, operator: Operator, inputs: Sequence[Facts]) -> Facts:
    left, right = inputs
    return joined(left, right, operator.details["type"], operator.conditions, estimator.kept)


def _union(estimator: Estimator, operator: Operator, inputs: Sequence[Facts]) -> Facts:
    columns = {}
    for index, id in enumerate(operator.output):
        ids = [given[index] for given in operator.details["columns"]]
        if all(id in facts.columns for facts, id in zip(inputs, ids, strict=True)):
            parts = [facts.of(id) for facts, id in zip(inputs, ids, strict=True)]
            columns[id] = _united(parts, [facts.rows for facts in inputs])
    return Facts(
        sum(facts.rows for facts in inputs),
        sum(facts.at_most for facts in inputs),
        "sum of inputs",
        columns,
        parts=tuple(inputs),
    )


def _united(parts: Sequence[ColumnFacts], rows: Sequence[float]) -> ColumnFacts:
    """Return a column of all rows of some inputs, of which each may have the same values."""
    distinct = sum(part.distinct for part in parts)
    lows = [part.low for part in parts if part.low is not None]
    highs = [part.high for part in parts if part.high is not None]
    types = {part.type for part in parts}
    if len(lows) < len(parts) or len(highs) < len(parts) or len(types) > 1:
        return ColumnFacts(distinct, parts=tuple(parts))
    [type] = types
    if type is not None and type.kind in (Kind.INTEGER, Kind.DATE):
        distinct = min(distinct, max(highs) - min(lows) + 1)
    nulls = sum(part.nulls * n for part, n in zip(parts, rows, strict=True)) / max(1.0, sum(rows))
    per_value = max(1.0, sum(rows) / max(1.0, distinct))
    return replace(
        parts[0],
        distinct=distinct,
        nulls=nulls,
        low=min(lows),
        high=max(highs),
        quantiles=None,
        origin=None,
        counted_in=None,
        frequencies=None,
        domain=1.0,
        parts=tuple(parts),
        rows_per_value=per_value,
    )


def _expand(estimator: Estimator, operator: Operator, inputs: Sequence[Facts]) -> Facts:
    [below], times = inputs, operator.details["times"]
    rows = below.with_rows(below.rows * times, below.at_most * times, below.evidence)
    made = _with_columns(below, operator.columns, rows)
    columns = {}
    for column in operator.details["columns"]:
        known, groupings = made.columns.get(column["id"]), frozenset(column.get("in", ()))
        if known is not None and groupings:
            parts = tuple(known if index in groupings else _ONE_VALUE for index in range(times))
            nulls = 1 - (1 - known.nulls) * len(groupings) / times
            columns[column["id"]] = replace(known, nulls=nulls, parts=parts)
        elif known is not None:
            # The number of the grouping.
            columns[column["id"]] = ColumnFacts(float(times), parts=(_ONE_VALUE,) * times)
    return replace(made, columns=columns, unique=frozenset(), parts=(below,) * times)


_ONE_VALUE = ColumnFacts(1.0)


def _limit(estimator: Estimator, operator: Operator, inputs: Sequence[Facts]) -> Facts:
    [below], limit = inputs, float(operator.details["limit"])
    return below.with_rows(min(below.rows, limit), min(below.at_most, limit), "limit")


_KINDS: dict[str, Callable[[Estimator, Operator, Sequence[Facts]], Facts | None]] = {
    "filter": _filter,
    "project": _project,
    "aggregate": _aggregate,
    "join": _join,
    "union": _union,
    "expand": _expand,
    "limit": _limit,
}
