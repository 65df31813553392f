"""Rows of joins, from the distinct counts of their keys."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lancestat.query.plans.conditions import condition_share, range_share
from lancestat.query.plans.facts import ColumnFacts, Facts, Kept, narrowed, tuples
from lancestat.query.plans.frequencies import Frequencies, equal_pairs, of_pairs
from lancestat.query.plans.operators import Condition
from lancestat.query.plans.sampled import FEWEST, SampledRows, is_among

# Without statistics of a key, pairs may be so many times more than expected.
_DOUBT = 2.0
_RESIDUAL_DOUBT = 2.0
# So many pairs of two samples are enough to tell, unless there are as few as may come at once.
_ENOUGH_PAIRS, _PAIRS_AT_ONCE = 128, 16
# Rows that find no partner are at least this share: a sketch does not prove that there are none.
_LEAST_UNMATCHED = 0.01

_SEMI = ("LEFT SEMI", "LEFT ANTI")
_UNBOUNDED = (-math.inf, math.inf)
# A value that is so many times as frequent as others are on average is so not by chance.
_SKEWED = 8.0


def joined(
    left: Facts, right: Facts, type: str, conditions: Sequence[Condition], kept: Kept
) -> Facts:
    """Return the rows of a join of any type; columns are those of both sides, or of the left.

    Values of the side with fewer distinct ones are taken to be among those of the other.

    Source: A. Swami and K. B. Schiefer, On the estimation of join result sizes, EDBT 1994.
    """
    if type == "INNER":
        others = [each for each in conditions if not _is_of_extremes(left, right, each)]
        if len(others) < len(conditions) and _keys(left, right, others)[0]:
            return _of_extremes(left, right, others, kept)
    pairs, others = _keys(left, right, conditions)
    matching = _matching(left, right, pairs, kept)
    matches = _inner(left, right, pairs, others, matching)
    if type == "EXISTENCE":
        return left
    if type.startswith(_SEMI):
        share = _partnered(left, right, pairs, matching, kept)
        least = 0.0 if _all_are_partnered(left, right, pairs, kept) else _LEAST_UNMATCHED
        nullable = _nullable(left, right, conditions)
        by_nulls = _partnered_by_nulls(left, right, pairs, nullable, kept) if nullable else 0.0
        share = min(1.0, share + by_nulls)
        made = _semi(left, right, pairs, others, matches, share, type, least)
        if by_nulls and type == "LEFT SEMI":
            keys = {a: replace(made.of(a), nulls=by_nulls / share) for a, _ in nullable}
            made = replace(made, columns={**made.columns, **keys})
        return made
    if type in ("LEFT OUTER", "FULL OUTER"):
        partnered = _partnered(left, right, pairs, matching, kept)
        matches = _with_unmatched(matches, left, partnered, right)
    if type in ("RIGHT OUTER", "FULL OUTER"):
        swapped = [(b, a) for a, b in pairs]
        other = replace(matching, left=matching.right, right=matching.left)
        partnered = _partnered(right, left, swapped, other, kept)
        matches = _with_unmatched(matches, right, partnered, left)
    return matches


def _is_of_extremes(left: Facts, right: Facts, condition: Condition) -> bool:
    """Whether a column of the left side has to be a least or greatest value, or of the right."""
    pairs, _ = _keys(left, right, [condition])
    return any(
        column.origin is not None and column.origin[1] == extreme.extreme_of
        for a, b in pairs
        for column, extreme in ((left.of(a), right.of(b)), (right.of(b), left.of(a)))
    )


def _of_extremes(left: Facts, right: Facts, others: Sequence[Condition], kept: Kept) -> Facts:
    """Return the rows of a join with the least or greatest values of groups, by its other keys.

    Of the rows that a group finds by those, about one has the value.
    """
    made = joined(left, right, "INNER", others, kept)
    pairs, _ = _keys(left, right, others)
    one, _ = tuples(left, [a for a, _ in pairs], kept, rows=left.rows)
    other, _ = tuples(right, [b for _, b in pairs], kept, rows=right.rows)
    # The groups are the side that has each key once.
    found = max(left.rows / max(1.0, one), right.rows / max(1.0, other), 1.0)
    rows = made.rows / found
    at_most = min(made.at_most, rows * _RESIDUAL_DOUBT * _DOUBT)
    return made.with_rows(rows, max(rows, at_most), f"{made.evidence}, one row of each group")


def _keys(
    left: Facts, right: Facts, conditions: Sequence[Condition]
) -> tuple[list[tuple[str, str]], list[Condition]]:
    """Return the pairs of key columns, the left side's first, and all other conditions."""
    pairs, others = [], []
    for condition in conditions:
        a, b = condition.left, condition.right
        if condition.is_equality and a in left.columns and b in right.columns:
            pairs.append((a, b))
        elif condition.is_equality and b in left.columns and a in right.columns:
            pairs.append((b, a))
        else:
            others.append(condition)
    return pairs, others


def _present(facts: Facts, ids: Sequence[str]) -> float:
    """Return the rows that have a value in each of some columns."""
    nulls = max((facts.of(id).nulls for id in ids), default=0.0)
    return facts.rows * (1 - nulls)


@dataclass(frozen=True, slots=True)
class _Matching:
    """How the keys of two sides meet: in the range of values that both may have.

    Attributes:
        left: The share of left rows, of those with keys, that lie in it.
        right: That of right rows.
        domain: The distinct keys there, of the side that has more.
        equal: The share of pairs of such rows that have the same keys.
        found: The share of the pairs to expect that samples of both sides have, too.
        evidence: What that rests on.
        samples: Those of both sides, of rows that meet.
    """

    left: float = 1.0
    right: float = 1.0
    domain: float = 1.0
    equal: float = 1.0
    found: float = 1.0
    evidence: str = "cross product"
    samples: Mapping[int, SampledRows] = field(default_factory=dict)


def _matching(left: Facts, right: Facts, pairs: Sequence[tuple[str, str]], kept: Kept) -> _Matching:
    if not pairs:
        return _Matching(samples={**left.samples, **right.samples})
    one, how = tuples(left, [a for a, _ in pairs], kept)
    other, how_other = tuples(right, [b for _, b in pairs], kept)
    words = how if one >= other else how_other
    if not words:
        words = "distinct count" if len(pairs) == 1 else f"distinct counts of {len(pairs)} keys"
    rows = distinct = (1.0, 1.0)
    samples = {**left.samples, **right.samples}
    for a, b in pairs:
        by_range, by_values = _by_range(left, right, a, b), _by_values(left, right, a, b)
        # Of several keys, those of one table alone say little of which are found together.
        met = by_values if by_values and len(pairs) == 1 else by_range
        rows = min(rows, met.rows, key=math.prod)
        distinct = min(distinct[0], met.distinct[0]), min(distinct[1], met.distinct[1])
        samples |= {**by_range.samples, **(by_values or by_range).samples}
    domain = max(one * distinct[0], other * distinct[1], 1.0)
    # How often tuples of keys occur is not counted.
    equal = 1 / domain
    if len(pairs) == 1:
        [(a, b)] = pairs
        # Groups that are left of a domain are among those of another side by chance alone.
        domains = _before(left, a) * distinct[0], _before(right, b) * distinct[1]
        domain = max(domain, *domains)
        met_left, met_right = replace(left, samples=samples), replace(right, samples=samples)
        both = _overlap(narrowed(left, a), narrowed(right, b))
        ours, theirs = _members(left, a), _members(right, b)
        equal = equal_pairs(
            _frequencies(met_left, a, domain, both, theirs),
            _frequencies(met_right, b, domain, both, ours),
            domain,
        )
    found = _found(left, right, pairs, kept)
    if found < 1:
        words = f"{words}, samples of both tables"
    return _Matching(*rows, domain, equal, found, words, samples)


def _found(left: Facts, right: Facts, pairs: Sequence[tuple[str, str]], kept: Kept) -> float:
    """Return at which share of the pairs of rows to expect two samples hint by those they have.

    Two tables that refer to a third each have few of the keys of the other, though each has many.
    Of the pairs to expect samples have at least one, where there are; where tables are sorted by
    a key, other rows of it are sampled of each, and pairs of these few values come many at once.
    """
    by_scans: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for a, b in pairs:
        one, other = left.of(a).origin, right.of(b).origin
        if one is not None and other is not None:
            by_scans.setdefault((one[0], other[0]), []).append((one[1], other[1]))
    found = 1.0
    for (scan, other_scan), names in by_scans.items():
        rows, others = left.samples.get(scan), right.samples.get(other_scan)
        if len(names) == 1 or rows is None or others is None:
            continue
        lefts, rights = [name for name, _ in names], [name for _, name in names]
        counts = (
            kept.distinct(index, frozenset(columns)) or sample.whole().distinct(columns)
            for index, sample, columns in ((scan, rows, lefts), (other_scan, others, rights))
        )
        expected = _to_meet(rows, others, *counts)
        if expected >= _ENOUGH_PAIRS:
            met = rows.pairs(lefts, others, rights)
            at_once = 1 if all(_is_mixed(rows, a, others, b) for a, b in names) else _PAIRS_AT_ONCE
            found = found if met is None else min(found, (met + at_once) / expected)
    return found


def _to_meet(
    rows: SampledRows, others: SampledRows, one: float | None, other: float | None
) -> float:
    """Return the pairs of two samples to expect of keys with so many values, 0 if not known."""
    return 0.0 if one is None or other is None else rows.size * others.size / max(1.0, one, other)


def _is_mixed(rows: SampledRows, a: str, others: SampledRows, b: str) -> bool:
    """Return whether the samples of two tables have as many pairs of a key as tables have."""
    counts = rows.whole().distinct([a]), others.whole().distinct([b])
    return 2 * (rows.pairs([a], others, [b]) or 0) >= _to_meet(rows, others, *counts) > 0


def _before(facts: Facts, id: str) -> float:
    """Return how many values a key of groups had before rows of some were lost."""
    members = _members(facts, id)
    domain = facts.of(id).domain
    return domain if members is None else min(domain, float(len(members)))


def _frequencies(
    facts: Facts,
    id: str,
    domain: float,
    bounds: tuple[float, float] = _UNBOUNDED,
    among: pa.Array | None = None,
) -> Frequencies:
    """Return how often the values of a key occur that are between two bounds, and among others."""
    made, column = Frequencies({}), facts.of(id)
    for (_, name), sample in _counting(facts, id, among).items():
        counted = sample.frequencies(name)
        if counted is None or not counted.shares:
            continue
        if column.type is not None and bounds != _UNBOUNDED:
            share = sample.within(name, column.type, *bounds)
            if share is None:
                share = counted.within(*bounds, _width(column, *bounds))
            counted = counted.between(*bounds, share) if share else counted
        made = of_pairs(made, counted, domain) if made.shares else counted
    return made


def _told(
    sample: SampledRows, name: str, facts: Facts, id: str, among: pa.Array | None
) -> SampledRows:
    """Return the sampled rows that tell how often values of a key occur.

    Where conditions leave too few rows, these are all with values that the key may have, if some
    of those are far more frequent than others.
    """
    if not sample.is_thin:
        return sample
    may_have = _with_values(sample.whole(), name, facts, id, among)
    counted, distinct = may_have.frequencies(name), may_have.distinct([name])
    most = max(counted.shares.values(), default=0.0) if counted is not None else 0.0
    return may_have if most * (distinct or 0.0) >= _SKEWED else sample


def _with_values(
    whole: SampledRows, name: str, facts: Facts, id: str, among: pa.Array | None
) -> SampledRows:
    """Return the sampled rows with values that a key may have, as far as these are known."""
    column = facts.of(id)
    known = [] if among is None else [among]
    known += [
        members
        for scan, other in _sampled(column)
        if scan in facts.samples and (members := facts.samples[scan].members(other)) is not None
    ]
    found = whole.having(name, min(known, key=len)) if known else None
    if found is not None:
        return whole.part(found[0])
    if column.type is None or column.low is None or column.high is None:
        return whole
    return whole.between(name, column.type, column.low, column.high) or whole


def _counting(
    facts: Facts, id: str, among: pa.Array | None = None
) -> dict[tuple[int, str], SampledRows]:
    """Return the samples in whose columns some values of a key occur more often than others.

    Where there are none, that of the key itself, unless it is grouped by.
    """
    column = facts.of(id)
    found = {
        origin: sample
        for origin in sorted(column.counts)
        if (sample := facts.samples.get(origin[0])) is not None
    }
    uneven = {
        origin: told
        for origin, sample in found.items()
        if (told := _told(sample, origin[1], facts, id, among))
        and (counted := told.frequencies(origin[1])) is not None
        and counted.shares
    }
    return uneven or {origin: found[origin] for origin in found if origin == column.origin}


@dataclass(frozen=True, slots=True)
class _Met:
    """How one pair of keys meets: shares of both sides' rows and of their distinct values.

    `samples` are the rows of both tables that meet, where a sample tells.
    """

    rows: tuple[float, float]
    distinct: tuple[float, float]
    samples: Mapping[int, SampledRows]


def _by_values(left: Facts, right: Facts, a: str, b: str) -> _Met | None:
    """Return how keys meet of which one side's are all known, as conditions leave them."""
    ours, theirs = _members(left, a), _members(right, b)
    if ours is None and theirs is None:
        return None
    one = None if theirs is None else _having(left, a, theirs)
    other = None if ours is None else _having(right, b, ours)
    if one is None and other is None:
        return None
    # Of the few that something else has left, queries want those that have partners.
    is_chosen = _is_chosen(left, a), _is_chosen(right, b)
    samples = {**(one[1] if one else {}), **(other[1] if other else {})}
    columns = left.of(a), right.of(b)
    if ours is not None and theirs is not None:
        common = is_among(ours, theirs)
        assert common is not None
        count = float(common.sum())
    else:
        known = ours if theirs is None else theirs
        assert known is not None
        count = float(len(known))
        if is_chosen[theirs is not None]:
            count = min(count, min(column.distinct for column in columns))
    shares = (
        1.0 if one is None or is_chosen[0] else one[0],
        1.0 if other is None or is_chosen[1] else other[0],
    )
    return _Met(shares, _widths(columns, count), samples)


def _widths(columns: tuple[ColumnFacts, ColumnFacts], count: float) -> tuple[float, float]:
    one, other = (min(1.0, count / max(1.0, column.distinct)) for column in columns)
    return one, other


def _sample_of(facts: Facts, id: str) -> tuple[SampledRows, tuple[int, str]] | None:
    origin = facts.of(id).origin
    sample = facts.samples.get(origin[0]) if origin else None
    return None if sample is None or origin is None else (sample, origin)


def _members(facts: Facts, id: str) -> pa.Array | None:
    known = _sample_of(facts, id)
    return None if known is None else known[0].members(known[1][1])


def _is_chosen(facts: Facts, id: str) -> bool:
    """Whether a condition on the table of a key has a value that only the query finds out."""
    origin = facts.of(id).origin
    return origin is not None and origin[0] in facts.chosen


def _having(facts: Facts, id: str, values: pa.Array) -> tuple[float, dict[int, SampledRows]] | None:
    """Return the share of rows with one of some keys, of those with keys, and these sampled rows.

    None where the samples tell too little.
    """
    column = facts.of(id)
    shares: dict[tuple[int, str], float] = {}
    samples: dict[int, SampledRows] = {}
    for scan, name in _sampled(column):
        sample = samples.get(scan) or facts.samples.get(scan)
        found = None if sample is None else sample.having(name, values)
        if sample is None or found is None or not found[1]:
            continue
        mask, present = found
        hits = int(mask.sum())
        if hits >= FEWEST or sample.is_whole:
            shares[scan, name] = hits / present
            samples[scan] = sample.part(mask)
    counting = _counting(facts, id)
    if column.is_even and column.origin is not None and column.origin[0] in samples:
        scan, name = column.origin
        met, all = samples[scan].distinct([name]), facts.samples[scan].distinct([name])
        return (met / all, samples) if met and all else None
    if len(counting) > 1:
        how_often = _frequencies(facts, id, column.distinct)
        return how_often.among(values.to_pylist(), column.distinct), samples
    return next(((shares[o], samples) for o in counting if o in shares), None)


def _sampled(column: ColumnFacts) -> list[tuple[int, str]]:
    """Return the columns of scans that have no other values than a key has."""
    own = frozenset() if column.origin is None else frozenset((column.origin,))
    return sorted(column.counts | own)


def _by_range(left: Facts, right: Facts, a: str, b: str) -> _Met:
    """Return how keys meet by the range of values that both may have."""
    low, high = _overlap(narrowed(left, a), narrowed(right, b))
    rows = _within(left, a, low, high), _within(right, b, low, high)
    distinct = _width(left.of(a), low, high), _width(right.of(b), low, high)
    samples: dict[int, SampledRows] = {}
    for facts, id in ((left, a), (right, b)):
        column = facts.of(id)
        if column.type is None or column.low is None or column.high is None:
            continue
        if low <= column.low and high >= column.high:
            continue
        for scan, name in _sampled(column):
            sample = samples.get(scan) or facts.samples.get(scan)
            met = sample and sample.between(name, column.type, low, high)
            if met is not None:
                samples[scan] = met
    return _Met(rows, distinct, samples)


def _overlap(one: ColumnFacts, other: ColumnFacts) -> tuple[float, float]:
    """Return the bounds of what values of both sides can be, infinite where not known."""
    lows = [column.low for column in (one, other) if column.low is not None]
    highs = [column.high for column in (one, other) if column.high is not None]
    if len(lows) < 2 or len(highs) < 2:
        return -math.inf, math.inf
    return max(lows), min(highs)


def _within(facts: Facts, id: str, low: float, high: float) -> float:
    """Return the share of rows with values between two bounds, of those that have a value."""
    column = facts.of(id)
    if column.low is None or column.high is None or (low <= column.low and high >= column.high):
        return 1.0
    counting = _counting(facts, id)
    if column.is_even or len(counting) > 1:
        return _width(column, low, high)
    for (_, name), sample in counting.items():
        if not sample.is_filtered and facts.rows < sample.rows / 2:
            # Of the few that something else has left, queries want those that have partners.
            return 1.0
        share = sample.within(name, column.type, low, high) if column.type else None
        if share is None and (counted := sample.frequencies(name)) is not None:
            share = counted.within(low, high, _width(column, low, high))
        if share is not None:
            return share
    return range_share(column, low, high)


def _width(column: ColumnFacts, low: float, high: float) -> float:
    """Return the share of distinct values between two bounds, as if they were spread evenly."""
    if column.low is None or column.high is None or column.high <= column.low:
        return 1.0
    taken = min(high, column.high) - max(low, column.low)
    return min(1.0, max(taken / (column.high - column.low), 1 / max(1.0, column.distinct)))


def _inner(
    left: Facts,
    right: Facts,
    pairs: Sequence[tuple[str, str]],
    others: Sequence[Condition],
    matching: _Matching,
) -> Facts:
    columns = {**left.columns, **right.columns}
    both = Facts(left.rows * right.rows, left.at_most * right.at_most, "cross product", columns)
    rows, at_most, evidence = both.rows, both.at_most, matching.evidence
    unique: frozenset[frozenset[str]] = frozenset()
    if pairs:
        lefts, rights = [a for a, _ in pairs], [b for _, b in pairs]
        share = matching.left * matching.right * matching.equal
        rows = _present(left, lefts) * _present(right, rights) * share * matching.found
        at_most = left.at_most * right.at_most * share * _DOUBT
        # Each row of a side whose partners are unique finds one at most.
        if right.is_unique(rights):
            rows, at_most = min(rows, left.rows), min(at_most, left.at_most)
            unique |= left.unique
        if left.is_unique(lefts):
            rows, at_most = min(rows, right.rows), min(at_most, right.at_most)
            unique |= right.unique
        columns |= _key_columns(left, right, pairs)
    for condition in others:
        rows *= condition_share(both, condition)
    if others:
        at_most = min(at_most, rows * _RESIDUAL_DOUBT * _DOUBT)
        evidence = f"{evidence}, conditions guessed"
    return Facts(
        max(rows, 0.0),
        max(at_most, rows),
        evidence,
        columns,
        unique,
        matching.samples,
        left.chosen | right.chosen,
        _determined(left, right, pairs),
    )


def _determined(
    left: Facts, right: Facts, pairs: Sequence[tuple[str, str]]
) -> Mapping[int, Sequence[ColumnFacts]]:
    """Return the scans whose rows follow from keys of another, the sides of this join with them."""
    known = {**left.determined, **right.determined}
    lefts, rights = [a for a, _ in pairs], [b for _, b in pairs]
    for one, of_one, other, of_other in (
        (left, lefts, right, rights),
        (right, rights, left, lefts),
    ):
        if pairs and other.is_unique(of_other):
            columns = [one.of(id) for id in of_one]
            for scan in {c.origin[0] for c in other.columns.values() if c.origin is not None}:
                known.setdefault(scan, columns)
            break
    return known


def _key_columns(
    left: Facts, right: Facts, pairs: Sequence[tuple[str, str]]
) -> dict[str, ColumnFacts]:
    """Return the keys after a join: of each pair, values that both sides may have, and no null."""
    keys = {}
    for a, b in pairs:
        low, high = _overlap(narrowed(left, a), narrowed(right, b))
        distinct = min(left.of(a).among(left.rows), right.of(b).among(right.rows))
        counts = left.of(a).counts | right.of(b).counts
        for id, column in ((a, left.of(a)), (b, right.of(b))):
            kept = replace(column.equals_one(distinct), counted_in=counts)
            is_known = math.isfinite(low) and math.isfinite(high) and low <= high
            keys[id] = replace(kept, low=low, high=high) if is_known else kept
    return keys


def _partnered(
    left: Facts,
    right: Facts,
    pairs: Sequence[tuple[str, str]],
    matching: _Matching,
    kept: Kept,
) -> float:
    """Return the share of left rows that have a partner by their keys."""
    if not pairs:
        return 1.0 if right.rows >= 1 else 0.0
    if _all_are_partnered(left, right, pairs, kept):
        return 1 - max(left.of(a).nulls for a, _ in pairs)
    present, _ = tuples(right, [b for _, b in pairs], kept, rows=right.rows)
    nulls = max(left.of(a).nulls for a, _ in pairs)
    found = min(1.0, min(present, right.rows) * matching.right / matching.domain)
    return (1 - nulls) * matching.left * found * matching.found


def _nullable(left: Facts, right: Facts, conditions: Sequence[Condition]) -> list[tuple[str, str]]:
    """Return the pairs of keys of which null is equal to null, and on both sides there."""
    pairs, _ = _keys(left, right, [each for each in conditions if each.compares == "<=>"])
    return [(a, b) for a, b in pairs if left.of(a).nulls and right.of(b).nulls]


def _partnered_by_nulls(
    left: Facts,
    right: Facts,
    pairs: Sequence[tuple[str, str]],
    nullable: Sequence[tuple[str, str]],
    kept: Kept,
) -> float:
    """Return the share of left rows that have a partner since null `<=>` null, as in `INTERSECT`.

    Such keys of a row are taken to be null together, as the names of somebody unknown are.
    """
    others = [pair for pair in pairs if pair not in nullable]
    lefts, rights = [a for a, _ in others], [b for _, b in others]
    rows, _ = _with_null(left, [a for a, _ in nullable], lefts, kept)
    partners, present = _with_null(right, [b for _, b in nullable], rights, kept)
    domain = max(tuples(left, lefts, kept)[0], tuples(right, rights, kept)[0])
    return rows * min(1.0, partners, present / domain) / max(1.0, left.rows)


def _with_null(
    facts: Facts, nullable: Sequence[str], others: Sequence[str], kept: Kept
) -> tuple[float, float]:
    """Return the rows in which some keys are null, and the distinct tuples of others in these."""
    rows = facts.rows * min(facts.of(id).nulls for id in nullable)
    if facts.is_unique([*nullable, *others]):
        # Of groups there is one for each tuple.
        rows = min(rows, tuples(facts, others, kept)[0])
        return rows, rows
    return rows, tuples(facts, others, kept, rows=rows)[0]


def _all_are_partnered(
    left: Facts, right: Facts, pairs: Sequence[tuple[str, str]], kept: Kept
) -> bool:
    """Whether each left row with keys is proven to have a partner: a reference to all rows."""
    origins = [(left.of(a).origin, right.of(b).origin) for a, b in pairs]
    known = [(one, other) for one, other in origins if one is not None and other is not None]
    samples = [right.samples.get(scan) for _, (scan, _) in known]
    is_all = all(
        sample is not None and not sample.is_filtered and right.rows >= sample.rows
        for sample in samples
    )
    return 0 < len(known) == len(pairs) and is_all and kept.is_contained(known)


def _semi(
    left: Facts,
    right: Facts,
    pairs: Sequence[tuple[str, str]],
    others: Sequence[Condition],
    matches: Facts,
    share: float,
    type: str,
    least: float,
) -> Facts:
    if others and share:
        # A row with several partners is lost only if none of them passes.
        both = Facts(left.rows, left.at_most, "", {**left.columns, **right.columns})
        passing = math.prod(condition_share(both, condition) for condition in others)
        partners = matches.rows / passing / max(1.0, left.rows * share) if passing else 1.0
        partners = max(1.0, partners)
        share *= 1 - (1 - min(passing, 1.0)) ** partners
    evidence = matches.evidence
    if type.startswith("LEFT ANTI"):
        rest = max(1 - share, least)
        return left.with_rows(left.rows * rest, left.at_most, evidence)
    kept = min(1.0, share)
    at_most = min(left.at_most, left.at_most * kept * _DOUBT)
    columns = {**left.columns, **_key_columns(left, right, pairs)}
    made = left.with_rows(left.rows * kept, at_most, evidence)
    samples = {scan: matches.samples[scan] for scan in left.samples}
    followers = {c.origin[0] for a, b in pairs if _is_chosen(right, b) and (c := left.of(a)).origin}
    return replace(
        made,
        columns={id: columns[id] for id in left.columns},
        samples=samples,
        chosen=left.chosen | followers,
    )


def _with_unmatched(matches: Facts, side: Facts, partnered: float, other: Facts) -> Facts:
    """Add the rows of a side without a partner, which have nulls for the other side's columns."""
    unmatched = side.rows * max(1 - partnered, 0.0)
    rows = max(matches.rows + unmatched, side.rows)
    at_most = max(matches.at_most + side.at_most * max(1 - partnered, 0.0), rows)
    missing = min(1.0, unmatched / rows) if rows else 0.0
    columns = {
        id: replace(column, nulls=missing + column.nulls * (1 - missing))
        for id, column in matches.columns.items()
        if id in other.columns
    }
    kept = {
        id: replace(column, nulls=max(column.nulls, matches.columns[id].nulls))
        for id, column in side.columns.items()
        if id in matches.columns
    }
    made = {**matches.columns, **kept, **columns}
    # What follows from columns of the other side does not in rows that have none.
    scans = {column.origin[0] for column in side.columns.values() if column.origin is not None}
    determined = {
        scan: keys
        for scan, keys in matches.determined.items()
        if scan not in scans or scan in side.determined
    }
    samples = {**matches.samples, **side.samples}
    return replace(
        matches,
        rows=rows,
        at_most=at_most,
        columns=made,
        samples=samples,
        determined=determined,
    )
