"""The cost model: the strategy of a join, and its estimated cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, exp, sqrt
from typing import ClassVar

from lancestat.formats import StringEnum, count
from lancestat.joins.record import JoinGroups
from lancestat.joins.search.work import JoinRequest


class Strategy(StringEnum):
    """The strategies of search, as plans and JSON spell them."""

    SPARK = "spark"
    EXACT = "exact"
    IVF = "ivf"
    INDEX = "index"


# Rates of one core, by benchmarks/knn_kernel.py: products of
# matrices as the search runs them, over whole blocks and over the short lists of partitions, in
# floating-point operations per second; distances in float64; reading and writing of vectors.
BLOCK_FLOPS = 70e9
LIST_FLOPS = 50e9
WIDE_ELEMENT_SECONDS = 4e-9
READ_BYTES = 1e9
WRITE_BYTES = 800e6
# Spark's nearestByJoin as the `spark` strategy ranks, per pair and element of a vector, and per
# pair: lambdas over arrays are interpreted.
SPARK_ELEMENT_SECONDS = 80e-9
SPARK_PAIR_SECONDS = 2e-6
# One query through a vector index, whatever the size of the right side.
INDEX_QUERY_SECONDS = 2e-3
# The cost of starting jobs.
JOB_SECONDS = 0.6
# Jobs of a join by keys that cost as much: they read keys, write groups, and search these.
GROUPING_JOBS = 3
# Spark's own join is chosen up to this time, unless another strategy is so many times as fast.
SPARK_PATIENCE_SECONDS = 10.0
SPARK_PATIENCE_RATIO = 5.0

# Rows of a list on average; shorter ones make poor use of a product of matrices.
LEAST_LIST_ROWS = 64
FEWEST_LISTS, MOST_LISTS = 16, 1 << 14
# Rows that centroids are trained on, per list, and how often they are assigned.
TRAIN_ROWS = 128
TRAIN_ROUNDS = 6
# Left rows whose true neighbours are found in full: every other one to choose how many lists to
# visit, the others to report the recall.
SAMPLE_ROWS = 192
# Of a join of all pairs within a distance, of which most rows have none.
RADIUS_SAMPLE_ROWS = 8 * SAMPLE_ROWS
# A visited list is that much longer than the average, since long lists are near more queries.
IMBALANCE = 1.5


@dataclass(frozen=True, slots=True)
class KeptIndex:
    """A kept index: `why_again` is why it has to be trained again, None where it has not.

    `rows` of the right side are in its lists, and `new_rows` are not.
    """

    lists: int
    rows: int
    new_rows: int
    why_again: str | None = None


@dataclass(frozen=True, slots=True)
class JoinSize:
    """The sizes of the sides, None where they are not counted yet, and what there is to search.

    `has_index` is about Lance's own of the requested metric, `has_nearest_by_join` about Spark, and
    `groups` are what the last run found of rows with equal keys.
    """

    left_rows: int | None
    right_rows: int | None
    dimension: int | None
    has_index: bool = False
    has_nearest_by_join: bool = True
    kept: KeptIndex | None = None
    groups: JoinGroups | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A strategy, the reason for it, and its estimate, None where sizes are unknown.

    `pairs` are distances to compute, `lists` the IVF lists of the right side, of the index `kept`
    if there is one. Where the reason compares strategies, it has times of these (`why_has_times`).
    """

    NOT_DIGESTED: ClassVar[frozenset[str]] = frozenset({"why", "seconds", "why_has_times"})
    strategy: Strategy
    why: str
    pairs: int | None = None
    seconds: float | None = None
    lists: int | None = None
    kept: KeptIndex | None = None
    why_has_times: bool = False

    @property
    def duration(self) -> str:
        seconds = self.seconds or 0.0
        if seconds < 10:
            return f"{seconds:.1f} s"
        return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:,.0f} min"


def choose(request: JoinRequest, size: JoinSize, cores: int) -> Decision:
    """Choose the cheapest strategy that the request allows, for so many tasks at once.

    Unknown sizes count as large.
    """
    if request.has_keys:
        return _by_keys(request, size, cores)
    few = f"fewer than {request.min_right_rows:,} right rows"
    is_small = size.right_rows is not None and size.right_rows < request.min_right_rows
    is_ours = request.self_pairs is not None or request.is_radius
    is_for_spark = is_small and size.has_nearest_by_join and not is_ours
    why = "every pair is to be compared"
    if request.self_pairs is not None and not request.is_radius:
        # A sample's recall would count each row as a neighbour of itself.
        request = replace(request, nprobes=None, recall=None)
    if request.is_radius:
        # An index of Lance is asked for a number of neighbours.
        size = replace(size, has_index=False)
    if request.self_pairs is not None:
        why = "every pair of rows of the table is to be compared"
        why += ", once" if request.pairs_once else ""
    why += _within(request)
    if is_small and not size.has_nearest_by_join and not is_ours:
        why = f"{few}, but Spark's nearestByJoin cannot be used here"
    if size.left_rows is None or size.right_rows is None or size.dimension is None:
        if is_for_spark:
            return Decision(Strategy.SPARK, few)
        if not request.is_approximate or request.recall == 1.0:
            return Decision(Strategy.EXACT, why)
        if size.has_index:
            return Decision(Strategy.INDEX, "the right side has an index of this metric")
        return Decision(Strategy.IVF, "sizes are not known before it runs")
    costs = Costs(request, size.left_rows, size.right_rows, size.dimension, cores)
    exact = costs.exact()
    if is_for_spark:
        spark = costs.spark()
        patience = max(SPARK_PATIENCE_SECONDS, SPARK_PATIENCE_RATIO * _seconds(exact))
        if _seconds(spark) <= patience:
            return replace(spark, why=few)
        why = f"few right rows, but {exact.pairs:,} pairs, which take Spark about "
        return replace(exact, why=why + spark.duration, why_has_times=True)
    if not request.is_approximate:
        return replace(exact, why=why)
    return _approximate(costs, size, exact)


def _within(request: JoinRequest) -> str:
    if request.max_distance is None:
        return ""
    within = f"within {request.max_distance:g}"
    has_all = f", and the result has all {within}"
    return has_all if request.is_radius else f", and neighbours are {within}"


def _by_keys(request: JoinRequest, size: JoinSize, cores: int) -> Decision:
    """Return the cost of the pairs that the last run found, for as many rows as there are now."""
    why = "only rows with equal keys are compared"
    if request.is_approximate:
        why = "rows with equal keys are few enough to compare every pair of them"
    known, left, right = size.groups, size.left_rows, size.right_rows
    if known is None:
        return Decision(Strategy.EXACT, f"{why}, which the run counts{_within(request)}")
    groups, compared = count(known.groups, "group"), count(known.pairs, "pair")
    why = f"{why}, {groups} and {compared} in the last full run{_within(request)}"
    if left is None or right is None:
        return Decision(Strategy.EXACT, why)
    pairs = known.pairs * left * right // max(1, known.left_rows * known.right_rows)
    if size.dimension is None:
        return Decision(Strategy.EXACT, why, pairs)
    seconds = 2 * size.dimension * pairs / LIST_FLOPS
    seconds += min(left * request.k, pairs) * size.dimension * WIDE_ELEMENT_SECONDS
    # Both sides are written by group, and read again.
    seconds += 4 * size.dimension * (left + right) * (2 / READ_BYTES + 1 / WRITE_BYTES)
    return Decision(Strategy.EXACT, why, pairs, GROUPING_JOBS * JOB_SECONDS + seconds / cores)


def _approximate(costs: Costs, size: JoinSize, exact: Decision) -> Decision:
    if costs.request.recall == 1.0:
        return replace(exact, why="a recall of 1 asks for every pair")
    kept = size.kept
    others = [] if kept is None or kept.why_again is not None else costs.in_lists(kept.lists, kept)
    lists = FEWEST_LISTS
    while lists <= min(MOST_LISTS, costs.right // LEAST_LIST_ROWS):
        others += costs.in_lists(lists)
        lists = ceil(lists * sqrt(2))
    if size.has_index:
        others.append(costs.indexed())
    best = min(others, key=_seconds, default=None)
    if best is None:
        return replace(exact, why="the right side is too small for IVF lists")
    mine, theirs = exact.duration, best.duration
    if _seconds(exact) <= _seconds(best):
        why = f"comparing every pair takes about {mine}, {best.strategy.value} about {theirs}"
        return replace(exact, why=why, why_has_times=True)
    why = f"about {theirs}, where comparing every pair takes {mine}{_kept_text(best, kept)}"
    return replace(best, why=why, why_has_times=True)


def _kept_text(best: Decision, kept: KeptIndex | None) -> str:
    if kept is None or best.strategy is not Strategy.IVF:
        return ""
    index = f"a kept IVF index of {count(kept.rows, 'row')}"
    if best.kept is None:
        why = kept.why_again or f"{count(best.lists or 0, 'list')} suit this join better than its "
        if kept.why_again is None:
            why += count(kept.lists)
        return f"; {index} is trained again, since {why}"
    if not kept.new_rows:
        return f"; {index} is searched"
    put = count(kept.new_rows, "new row is", "new rows are")
    return f"; {put} put into the lists of {index}"


def share_above(mean: float, most: int) -> float:
    """Return the share of rows that lose more than `most` neighbours, where they lose `mean` on
    average and each independently (a Poisson distribution).
    """
    term = total = exp(-mean)
    for lost in range(1, most + 1):
        term *= mean / lost
        total += term
    return max(0.0, 1.0 - total)


def sample_rows(request: JoinRequest) -> int:
    """Return how many left rows measure the recall of IVF lists."""
    return RADIUS_SAMPLE_ROWS if request.is_radius else SAMPLE_ROWS


def estimated_nprobes(lists: int) -> int:
    """Estimate the number of lists that a query visits, before it is measured."""
    return ceil(1 + sqrt(lists) / 4)


@dataclass(frozen=True, slots=True)
class Costs:
    """Decisions for strategies with their costs, by the sizes of a join."""

    request: JoinRequest
    left: int
    right: int
    dimension: int
    cores: int

    def spark(self) -> Decision:
        pairs = self.left * self.right
        seconds = pairs * (SPARK_PAIR_SECONDS + self.dimension * SPARK_ELEMENT_SECONDS)
        return self._decision(Strategy.SPARK, pairs, seconds)

    def exact(self) -> Decision:
        pairs = self.left * self.right // (2 if self.request.pairs_once else 1)
        # How many rows are within a distance is known only afterwards, and is taken for few.
        kept = 0 if self.request.is_radius else min(self.request.k, self.right)
        seconds = 2 * self.dimension * pairs / BLOCK_FLOPS
        seconds += self.left * kept * self.dimension * WIDE_ELEMENT_SECONDS
        seconds += 4 * self.dimension * self.right / READ_BYTES
        return self._decision(Strategy.EXACT, pairs, seconds)

    def indexed(self) -> Decision:
        query = INDEX_QUERY_SECONDS + self.request.k * self.dimension * WIDE_ELEMENT_SECONDS
        return self._decision(Strategy.INDEX, None, self.left * query)

    def in_lists(self, lists: int, kept: KeptIndex | None = None) -> list[Decision]:
        """Return the decision for so many lists; none where too many of them are visited."""
        left, right, dimension = self.left, self.right, self.dimension
        probes = self.request.nprobes or estimated_nprobes(lists)
        if 2 * probes > lists:
            return []
        compared = int(left * right * min(1.0, IMBALANCE * probes / lists))
        # Of a kept index it is known how many lists to visit, and the search measures the recall.
        sampled = min(left, sample_rows(self.request)) * right // (1 if kept is None else 2)
        new = right if kept is None else kept.new_rows
        assigned = (left + new) * lists
        # Training runs in the driver, on as many threads as there are cores.
        trained = min(right, TRAIN_ROWS * lists) * lists * TRAIN_ROUNDS if kept is None else 0
        seconds = 2 * dimension * (sampled + assigned + trained) / BLOCK_FLOPS
        seconds += 2 * dimension * compared / LIST_FLOPS
        seconds += left * self.request.k * dimension * WIDE_ELEMENT_SECONDS
        seconds += 4 * dimension * ((right + new) / READ_BYTES + new / WRITE_BYTES)
        jobs = 3 if kept is None else 2 if kept.new_rows else 1
        made = self._decision(Strategy.IVF, compared + sampled, seconds, jobs)
        return [replace(made, lists=lists, kept=kept)]

    def _decision(
        self, strategy: Strategy, pairs: int | None, seconds: float, jobs: int = 1
    ) -> Decision:
        return Decision(strategy, "", pairs, jobs * JOB_SECONDS + seconds / self.cores)


def _seconds(decision: Decision) -> float:
    return decision.seconds or 0.0
