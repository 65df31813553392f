"""The share of rows that pass conditions, and what they leave of the columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from lancestat.lake.snapshot import Field
from lancestat.query.plans.facts import UNKNOWN_SHARE, ColumnFacts, Facts
from lancestat.query.plans.frequencies import CERTAIN
from lancestat.query.plans.operators import Condition
from lancestat.query.plans.sampled import Mask, SampledRows
from lancestat.query.predicates.filter import (
    And,
    Comparison,
    Filter,
    In,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    TextMatch,
    columns_of,
    flattened,
    read_filters,
)
from lancestat.query.pruning import literal_bound
from lancestat.query.sampler import BLOCKS
from lancestat.tables.statistics.bounds import Bound
from lancestat.tables.statistics.sketches import QuantileSketch

# So many independent matches of a sample make its share a better estimate than any model.
_ENOUGH = 20
# Up to this factor, rows that pass several conditions are as many as if these were independent.
_INDEPENDENT = 1.25
_TEXT_SHARE = 0.1
# Of rows between two values that only the query finds out, as PostgreSQL has it
# (DEFAULT_RANGE_INEQ_SEL).
_RANGE_SHARE = 0.005
_BELOW, _ABOVE = frozenset(("<", "<=")), frozenset((">", ">="))
_HISTOGRAM_DOUBT = 1.2
_UNIFORM_DOUBT = 3.0
_SUMS_DOUBT = 10.0
# What estimates of single columns rest on that are as good as a sample.
_KNOWN = frozenset(("common values", "count", "histogram"))


@dataclass(frozen=True, slots=True)
class Share:
    """A share of rows that is expected to pass, and at most; `evidence` is for people.

    It is a product of so many `factors` that are taken to be independent.
    """

    expected: float
    at_most: float
    evidence: str
    factors: int = 1


@dataclass(frozen=True, slots=True)
class Passing:
    """Rows of a sample that pass, and all its rows, which `is_whole` if the table has no others.

    `alike` is how many rows of the sample tell as much as one that is drawn alone: rows come in
    blocks, in which neighbours are alike (the design effect).
    """

    passing: int
    rows: int
    is_whole: bool = False
    alike: float = 2.0

    @classmethod
    def of(cls, passing: Mask, *, blocks: int = BLOCKS, is_whole: bool = False) -> Passing:
        """Return what the rows that pass tell, of a sample in so many blocks.

        Source: W. G. Cochran, Sampling Techniques, 3rd edition (1977), section 9.5: the variance
            between blocks, over that of rows which are drawn alone.
        """
        rows, hits = len(passing), int(passing.sum())
        if is_whole or rows < 2 * blocks or not 0 < hits < rows:
            return cls(hits, rows, is_whole)
        starts = np.arange(blocks) * rows // blocks
        shares = np.add.reduceat(passing, starts, dtype=np.float64) / np.diff(starts, append=rows)
        alone = hits / rows * (1 - hits / rows) * blocks / rows
        return cls(hits, rows, alike=max(1.0, float(shares.var(ddof=1)) / alone))

    @property
    def matches(self) -> float:
        """Rows that pass, as many as would tell the same if each was drawn alone."""
        return self.passing / self.alike

    def interval(self) -> tuple[float, float]:
        """Return the shares between which the true one lies, with some 95 % confidence.

        Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference,
        JASA 22 (1927), with a sample that is smaller by `alike`.
        """
        rows, hits, z = max(1.0, self.rows / self.alike), self.passing / self.alike, 1.96
        hits = min(hits, rows)
        middle = (hits + z * z / 2) / (rows + z * z)
        spread = z / (rows + z * z) * math.sqrt(hits * (rows - hits) / rows + z * z / 4)
        share = self.passing / self.rows
        # Rounding may put an end beside the share itself.
        return max(0.0, min(share, middle - spread)), min(1.0, max(share, middle + spread))


def restrict(facts: Facts, conditions: Sequence[Condition], sample: Passing | None) -> Facts:
    """Return what a conjunction leaves of the rows of an operator."""
    filters = _filters(facts, conditions)
    masks: dict[str, Mask] = {}
    blocks = BLOCKS
    if sample is not None and not sample.is_whole and sample.matches < _ENOUGH:
        masks, blocks = _masks(facts, filters)
        if not sample.passing:
            sample = replace(sample, alike=_most_alike(sample, masks.values(), blocks))
    model, columns = _modelled(facts, conditions, filters, masks, blocks)
    share = model if sample is None else _with_sample(model, sample)
    return replace(
        facts.with_rows(facts.rows * share.expected, facts.at_most * share.at_most, share.evidence),
        columns=columns,
        groups={},
    )


def _filters(facts: Facts, conditions: Sequence[Condition]) -> list[Filter | None]:
    fields = {
        id: column.field
        for condition in conditions
        for id in condition.columns
        if (column := facts.columns.get(id)) is not None and column.field is not None
    }
    return [_filter(condition, fields) for condition in conditions]


def _filter(condition: Condition, fields: Mapping[str, Field]) -> Filter | None:
    match condition.filter:
        case None:
            return None
        case {"op": "isnull", "column": str(column)}:
            return IsNull(column)
        case {"op": "isnotnull", "column": str(column)}:
            return Not(IsNull(column))
    [read] = read_filters([condition.filter], fields)
    return read


def _masks(facts: Facts, filters: Sequence[Filter | None]) -> tuple[dict[str, Mask], int]:
    """Return which sampled rows of a table pass what filters ask of each column, and the blocks."""
    if len(facts.samples) != 1:
        return {}, BLOCKS
    [rows] = facts.samples.values()
    parts: dict[str, list[Filter]] = {}
    for filter in filters:
        for part in () if filter is None else flattened(filter, And):
            parts.setdefault(_only_column(part) or "", []).append(part)
    masks = {}
    for id, of_one in parts.items():
        origin = facts.of(id).origin
        mask = None if origin is None else rows.matching(origin[1], of_one)
        if mask is not None:
            masks[id] = mask
    return masks, rows.blocks


def _most_alike(sample: Passing, masks: Iterable[Mask], blocks: int) -> float:
    """Return how many rows tell as much as one, of conditions that none of the rows pass.

    That is what it is for the condition on a column for which it is most, or a whole block.
    """
    alike = [sample.alike]
    for mask in masks:
        is_some = bool(mask.any())
        alike.append(Passing.of(mask, blocks=blocks).alike if is_some else sample.rows / blocks)
    return max(alike)


def _together(
    counted: Sequence[tuple[float, str, Mask]], blocks: int
) -> tuple[list[tuple[float, str]], bool]:
    """Return the shares of conditions, of which those that enough sampled rows pass count as one.

    And whether these turn out to be independent of each other, so that others are likely to be.
    """
    passing: list[tuple[float, str, Mask]] = []
    others: list[tuple[float, str]] = []
    both: Mask | None = None
    for share, how, mask in sorted(counted, key=lambda each: -each[0]):
        narrower = mask if both is None else both & mask
        if Passing.of(narrower, blocks=blocks).matches >= _ENOUGH:
            both = narrower
            passing.append((share, how, mask))
        else:
            others.append((share, how))
    counts = [float(mask.mean()) for _, _, mask in passing]
    if both is None or len(passing) < 2:
        known = [
            (counted, "sample") if how == "guess" else (share, how)
            for counted, (share, how, _) in zip(counts, passing, strict=True)
        ]
        return [*known, *others], False
    together, alone = float(both.mean()), math.prod(counts)
    # Where nearly all rows pass, they would be as many if the columns followed from each other.
    is_telling = min(counts) > _INDEPENDENT**2 * alone
    is_independent = is_telling and 1 / _INDEPENDENT <= together / alone <= _INDEPENDENT
    return [(together, "sample"), *others], is_independent


def _modelled(
    facts: Facts,
    conditions: Sequence[Condition],
    filters: Sequence[Filter | None],
    masks: Mapping[str, Mask],
    blocks: int,
) -> tuple[Share, Mapping[str, ColumnFacts]]:
    """Return the share by the statistics of each column, and the columns afterwards.

    Those conditions count as one that enough rows of a sample pass together: `masks` says by column
    which rows pass, in so many blocks.
    """
    columns = dict(facts.columns)
    by_column: dict[str, list[Filter]] = {}
    ranges = _open_ranges(conditions)
    shares = [_RANGE_SHARE * (1 - facts.of(id).nulls) for id in ranges]
    evidence = ["model"] * len(shares)
    for condition, filter in zip(conditions, filters, strict=True):
        if condition.is_open and condition.left in ranges:
            continue
        parts = [] if filter is None else list(flattened(filter, And))
        of_one = [(part, _only_column(part)) for part in parts]
        if parts and all(name in facts.columns or _asks_for_null(part) for part, name in of_one):
            for part, name in of_one:
                by_column.setdefault(name or "", []).append(part)
        else:
            shares.append(_share_of(facts, condition, filter))
            evidence.append("guess" if filter is None and not condition.compares else "model")
    for share, ids in _by_groups(facts, by_column):
        for id in ids:
            columns[id] = facts.of(id).equals_one()
            del by_column[id]
        shares.append(share)
        evidence.append("common values")
    counted: list[tuple[float, str, Mask]] = []
    for id, parts in by_column.items():
        column = facts.of(id)
        rows = facts.samples.get(column.origin[0]) if column.origin else None
        share, left, how = _on_column(column, parts, rows if rows and rows.is_filtered else None)
        columns[id] = left
        if id in masks:
            counted.append((share, how, masks[id]))
        else:
            shares.append(share)
            evidence.append(how)
    together, is_independent = _together(counted, blocks)
    for share, how in together:
        shares.append(share)
        evidence.append(how)
    ordered = sorted(shares)
    expected = math.prod(ordered)
    damped = math.prod(share ** (0.5**index) for index, share in enumerate(ordered))
    if len(ordered) > 1 and "histogram" not in evidence and not is_independent:
        expected = math.sqrt(expected * damped)
    doubt = _HISTOGRAM_DOUBT if _KNOWN.issuperset(evidence) else _UNIFORM_DOUBT
    if "sums of groups" in evidence:
        doubt = _SUMS_DOUBT
    at_most = min(1.0, max(damped, expected * doubt))
    words = ", ".join(dict.fromkeys(evidence)) or "no condition"
    return Share(expected, at_most, words, len(shares)), columns


def _open_ranges(conditions: Sequence[Condition]) -> list[str]:
    """Return the columns that are to be between two values which only the query finds out."""
    below = {each.left for each in conditions if each.is_open and each.compares in _BELOW}
    above = {each.left for each in conditions if each.is_open and each.compares in _ABOVE}
    return sorted(below & above)


def _by_groups(
    facts: Facts, by_column: Mapping[str, Sequence[Filter]]
) -> Iterator[tuple[float, Sequence[str]]]:
    """Yield the share of rows that have one value in each column of a group, where it is certain.

    Groups of more columns come first, and each column is in one.
    """
    points: dict[str, Bound] = {}
    for id, parts in by_column.items():
        if (point := _point(facts.of(id), parts)) is not None:
            points[id] = point
    for ids, common in sorted(facts.groups.items(), key=lambda group: -len(group[0])):
        if not points.keys() >= set(ids):
            continue
        least, most = common.bounds_of(tuple(points[id] for id in ids))
        if most <= CERTAIN * least or not most:
            for id in ids:
                del points[id]
            yield min(1.0, (least + most) / 2 / max(1.0, facts.rows)), ids


def _point(column: ColumnFacts, parts: Sequence[Filter]) -> Bound | None:
    """Return the one value that conditions leave of a column, None where they leave others."""
    literals = [
        part.literal
        for part in parts
        if isinstance(part, Comparison) and part.operator is Operator.EQUAL
    ]
    has_others = len(literals) < len([part for part in parts if not _asks_for_null(part)])
    if len(literals) != 1 or has_others or column.type is None:
        return None
    [literal] = literals
    bound = None if literal is None else literal_bound(literal, column.type)
    return None if isinstance(bound, Fraction) else bound


def _asks_for_null(filter: Filter) -> bool:
    return isinstance(filter, IsNull) or (
        isinstance(filter, Not) and isinstance(filter.operand, IsNull)
    )


def _only_column(filter: Filter) -> str | None:
    match filter:
        case Comparison(column) | In(column) | IsNull(column) | Not(IsNull(column)):
            return column
    return None


def _with_sample(model: Share, sample: Passing) -> Share:
    counted = sample.passing / sample.rows
    if sample.is_whole:
        return Share(counted, counted, "rows of the table")
    low, high = sample.interval()
    words = f"sample of {sample.rows:,} rows"
    is_simple = model.factors == 1 and model.evidence in _KNOWN
    if sample.matches >= _ENOUGH and not is_simple:
        return Share(counted, high, words)
    if "guess" in model.evidence:
        return Share(max(counted, 0.5 / sample.rows), high, words)
    within = min(max(model.expected, low), high)
    if within == model.expected:
        return Share(within, min(high, max(within, model.at_most)), f"{model.evidence}, {words}")
    return Share(within, high, words)


def _share_of(facts: Facts, condition: Condition, filter: Filter | None) -> float:
    """Return the share of rows that pass a condition on several columns, or an unknown one."""
    if filter is not None and all(name in facts.columns for name in columns_of(filter)):
        return share(facts, filter)
    return condition_share(facts, condition)


def condition_share(facts: Facts, condition: Condition) -> float:
    """Return the share of rows, or of pairs of them, that pass a condition between columns."""
    if not condition.compares or any(id not in facts.columns for id in condition.columns):
        return UNKNOWN_SHARE * (1 - _all_null(facts, condition))
    left = facts.of(condition.left)
    if not condition.right:
        # With one value, which only the query finds out.
        return (1 - left.nulls) * comparison_share(condition.compares, left, _ONE_VALUE)
    return comparison_share(condition.compares, left, facts.of(condition.right))


def _all_null(facts: Facts, condition: Condition) -> float:
    """Return the share of rows that fail a condition since all its columns are null."""
    if not (condition.rejects_nulls and condition.columns):
        return 0.0
    return math.prod(facts.of(id).nulls for id in condition.columns)


_ONE_VALUE = ColumnFacts(1.0)


def comparison_share(operator: str, left: ColumnFacts, right: ColumnFacts) -> float:
    """Return the share of pairs of values between which a comparison holds."""
    equal = 1 / max(1.0, left.distinct, right.distinct)
    match operator:
        case "=" | "<=>":
            return equal
        case "not =" | "not <=>":
            return 1 - equal
    return UNKNOWN_SHARE


def share(facts: Facts, filter: Filter) -> float:
    """Return the share of rows that pass a filter by the statistics of its columns."""
    match filter:
        case And():
            return math.prod(share(facts, part) for part in flattened(filter, And))
        case Or():
            parts = list(flattened(filter, Or))
            return 1 - math.prod(1 - share(facts, part) for part in parts)
        case Not(IsNull(column)):
            return 1 - facts.of(column).nulls
        case Not(operand):
            nulls = max((facts.of(name).nulls for name in columns_of(operand)), default=0.0)
            return max(0.0, 1 - nulls - share(facts, operand))
        case Comparison(column) | In(column) | IsNull(column):
            return _on_column(facts.of(column), [filter])[0]
        case TextMatch(column):
            return _TEXT_SHARE * (1 - facts.of(column).nulls)
    return UNKNOWN_SHARE


def _on_column(
    column: ColumnFacts, parts: Sequence[Filter], rows: SampledRows | None = None
) -> tuple[float, ColumnFacts, str]:
    """Return the share of rows that pass conditions on one column, and the column in these rows.

    Ranges are intersected first: both ends of one are two conditions to Spark. `rows` are those of
    its table that other conditions leave.
    """
    low, high = -math.inf, math.inf
    points: list[Literal] | None = None
    for part in parts:
        match part:
            case IsNull():
                return column.nulls, replace(column, distinct=1.0, nulls=1.0), "count"
            case Not(IsNull()):
                continue
            case Comparison(_, Operator.EQUAL | Operator.NULL_SAFE, literal):
                if literal is None:
                    is_null = part.operator is Operator.NULL_SAFE
                    return (column.nulls if is_null else 0.0), column.equals_one(), "count"
                points = _both(points, [literal])
            case In(_, literals):
                points = _both(points, [literal for literal in literals if literal is not None])
            case Comparison(_, operator, literal):
                at = None if literal is None else _number(literal, column)
                if at is None:
                    return _of_order(column, len(parts))
                # Of counts, those beside a strict bound are the next ones.
                beside = 0.0 if column.mean_count is None else 0.5
                match operator:
                    case Operator.LESS | Operator.LESS_OR_EQUAL:
                        high = min(high, at - beside * (operator is Operator.LESS))
                    case _:
                        low = max(low, at + beside * (operator is Operator.GREATER))
    present = 1 - column.nulls
    if points is not None and _of_groups(column, 0, 0) is not None:
        known = [number for point in points if (number := _number(point, column)) is not None]
        found = [each for number in known if (each := _of_groups(column, number, number))]
        how = found[0][1] if found else "count"
        share = min(1.0, math.fsum(each for each, _ in found))
        return present * share, column.equals_one(float(max(1, len(points)))), how
    if points is not None:
        share, how = _of_points(column, points, low, high)
        numbers = [_number(point, column) for point in points]
        if rows is not None and None not in numbers:
            shares = [_sampled(column, rows, at, at) for at in numbers if at is not None]
            if all(each is not None for each in shares):
                share, how = min(1.0, sum(filter(None, shares))), "sample of rows that are left"
        return present * share, column.equals_one(float(max(1, len(points)))), how
    if math.isinf(low) and math.isinf(high):
        return present, replace(column, nulls=0.0), "count"
    share, how = _of_range(column, low, high)
    counted = None if rows is None else _sampled(column, rows, low, high)
    if counted is not None:
        share, how = counted, "sample of rows that are left"
    left = replace(
        column,
        distinct=max(1.0, column.distinct * share),
        nulls=0.0,
        low=None if column.low is None else max(column.low, low),
        high=None if column.high is None else min(column.high, high),
    )
    return present * share, left, how


def _sampled(column: ColumnFacts, rows: SampledRows, low: float, high: float) -> float | None:
    if column.origin is None or column.type is None or column.type.is_variable_width:
        return None
    return rows.within(column.origin[1], column.type, low, high)


def _both(points: list[Literal] | None, others: list[Literal]) -> list[Literal]:
    unique = list(dict.fromkeys(others))
    return unique if points is None else [point for point in points if point in unique]


def _of_order(column: ColumnFacts, conditions: int) -> tuple[float, ColumnFacts, str]:
    """Return a guess for strings, whose bounds tell nothing of what lies between."""
    share = UNKNOWN_SHARE ** min(2, conditions)
    left = replace(column, distinct=max(1.0, column.distinct * share), nulls=0.0)
    return (1 - column.nulls) * share, left, "guess"


def _number(literal: Literal, column: ColumnFacts) -> float | None:
    if column.type is None or column.type.is_variable_width:
        return None
    bound = literal_bound(literal, column.type)
    if not isinstance(bound, int | float | Fraction) or bound != bound:
        return None
    return float(bound)


def _of_points(
    column: ColumnFacts, points: Sequence[Literal], low: float, high: float
) -> tuple[float, str]:
    numbers = [_number(point, column) for point in points]
    known = [number for number in numbers if number is not None]
    is_inside = [
        (column.low is None or number >= column.low)
        and (column.high is None or number <= column.high)
        and low <= number <= high
        for number in known
    ]
    inside = [number for number, is_in in zip(known, is_inside, strict=True) if is_in]
    if column.frequencies is not None and column.type is not None:
        outside = {number for number, is_in in zip(known, is_inside, strict=True) if not is_in}
        bounds = {literal_bound(point, column.type) for point in points} - outside
        return min(1.0, column.frequencies.among(bounds, column.distinct)), "common values"
    unknown = len(numbers) - len(known)
    each = 1 / max(1.0, column.distinct)
    if column.quantiles is not None and inside:
        shares = _point_shares(column.quantiles, inside, each)
        return min(1.0, sum(shares) + unknown * each), "histogram"
    return min(1.0, (len(inside) + unknown) * each), "count"


def _point_shares(quantiles: QuantileSketch, points: Sequence[float], each: float) -> list[float]:
    """Return the shares of single values: of those that the sketch kept several times, as there."""
    values, weights = quantiles.samples()
    total = float(np.sum(weights)) or 1.0
    found = []
    for point in points:
        is_same = values == point
        times = int(is_same.sum())
        found.append(float(weights[is_same].sum()) / total if times > 1 else each)
    return found


def range_share(column: ColumnFacts, low: float, high: float) -> float:
    """Return the share of values, without nulls, that lie between two bounds."""
    return _of_range(column, low, high)[0]


def _of_groups(column: ColumnFacts, low: float, high: float) -> tuple[float, str] | None:
    """Return the share of groups with a count or a sum between two bounds, None of other columns.

    Where no sampled group is there, it is half of one.
    """
    values = None if column.of_groups is None else column.of_groups()
    if values is not None:
        hits = np.searchsorted(values, high, "right") - np.searchsorted(values, low, "left")
        return max(float(hits), 0.5) / len(values), "sampled groups"
    if column.mean_count is not None:
        return _of_count(column.mean_count, low, high), "sizes of groups"
    spread = None if column.spread is None else column.spread()
    # Of numbers whose squares are none, nothing is known.
    if spread is not None and math.isfinite(spread[1]):
        return _of_sum(*spread, column, low, high), "sums of groups"
    return None


def _of_count(mean: float, low: float, high: float) -> float:
    """Return the share of groups with so many rows, as if their sizes were geometric."""
    more = 1 - 1 / max(1.0, mean)
    below = 1.0 if low <= 1 else more ** (math.ceil(low) - 1)
    above = 0.0 if math.isinf(high) else more ** max(0, math.floor(high))
    return max(0.0, below - above)


def _of_sum(mean: float, variance: float, sums: ColumnFacts, low: float, high: float) -> float:
    """Return the share of groups with a sum between two bounds, neither of which may be known.

    Far from the mean, it is between that of a normal distribution within the bounds of the sums,
    or one group, and the most that any distribution has there, by Cantelli's inequality: as many
    times the one as the other is it.
    """
    deviation = math.sqrt(2 * variance) or 1e-9
    least = -math.inf if sums.low is None else sums.low
    most = math.inf if sums.high is None else sums.high
    one, low, high = 1 / max(1.0, sums.distinct), max(low, least), min(high, most)
    if low > high:
        return one
    below = [math.erf((value - mean) / deviation) for value in (low, high, least, most)]
    share = (below[1] - below[0]) / max(below[3] - below[2], 1e-9)
    share = max(share, one)
    distance = max(low - mean, mean - high)
    if distance <= 0:
        return share
    most = variance / (variance + distance**2)
    return math.sqrt(share * most) if share < most else share


def _of_range(column: ColumnFacts, low: float, high: float) -> tuple[float, str]:
    if (of_groups := _of_groups(column, low, high)) is not None:
        return of_groups
    if column.low is None or column.high is None:
        return UNKNOWN_SHARE, "guess"
    if high < column.low or low > column.high or low > high:
        return 0.0, "count"
    if low <= column.low and high >= column.high:
        return 1.0, "count"
    if column.quantiles is not None:
        values, weights = column.quantiles.samples()
        is_inside = (values >= max(low, column.low)) & (values <= min(high, column.high))
        alive = (values >= column.low) & (values <= column.high)
        total = float(weights[alive].sum())
        if total:
            # What lies between two samples may be as much as one of them stands for.
            return max(float(weights[is_inside].sum()), 0.5) / total, "histogram"
    width = column.high - column.low
    taken = min(high, column.high) - max(low, column.low)
    if not width:
        return 1.0, "bounds"
    return max(taken / width, 1 / max(1.0, column.distinct)), "bounds"
