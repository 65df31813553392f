"""What is explained of one scan: the verdict on the statistics, pruning, push-down, estimates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lancestat.formats import StringEnum, count
from lancestat.query.aggregates import PushDown
from lancestat.query.estimates import ColumnEstimate
from lancestat.query.predicates.filter import Filter, columns_of
from lancestat.query.pruned_fragments import NoFragmentStatistics
from lancestat.query.table import ReadTable
from lancestat.tables.manifest.guard import Verdict


class PruningReason(StringEnum):
    """The reasons why fragments are ruled out, or none is; the spelling is a contract."""

    RULED_OUT = "ruled_out"
    NO_FILTERS = "no_filters"
    UNKNOWN_FILTERS = "unknown_filters"
    NO_STATISTICS = "no_statistics"
    UNKNOWN_COLUMNS = "unknown_columns"
    ALL_MATCH = "all_match"


@dataclass(frozen=True, slots=True)
class Pruning:
    """The decision on the fragments of a scan; `detail` is the reason in words."""

    reason: PruningReason
    detail: str

    @property
    def use(self) -> bool:
        """Whether some fragments are not read."""
        return self.reason is PruningReason.RULED_OUT


@dataclass(frozen=True, slots=True)
class Explanation:
    """One answer to the optimizer: the verdict on the statistics, and the estimates.

    `rows` and `size_bytes` are the estimates: the rows of the `fragments_scanned` of all
    `fragments`, and the decoded size of their projected columns. `columns` holds the estimate of
    each column, none where the verdict refuses. `filters` are the conditions on the source, for
    people, and `other_filters` those that Spark alone knows; `is_covered` is set where every row
    that is left is proven to pass all filters, so that Spark does not apply them. `table_rows` is
    the live row count of the version as a whole, None when it was not counted. `pruning` and
    `aggregates` are None where the question did not come up.
    """

    table: str
    version: int
    rows: int
    size_bytes: int
    verdict: Verdict
    columns: Mapping[str, ColumnEstimate] = field(default_factory=dict)
    fragments: int = 0
    fragments_scanned: int = 0
    filters: tuple[str, ...] = ()
    table_rows: int | None = None
    other_filters: tuple[str, ...] = ()
    is_covered: bool = False
    pruning: Pruning | None = None
    aggregates: PushDown | None = None


def pruning_of(
    table: ReadTable,
    filters: Sequence[Filter],
    others: Sequence[str],
    left: Collection[int] | None,
) -> Pruning:
    """Return why a scan reads the fragments that it reads.

    Args:
        table: The table at its version.
        filters: A conjunction.
        others: Filters that are not known, in Spark's SQL.
        left: The fragments that the filters leave, None for all of them.
    """
    if left is not None:
        fragments = len(table.snapshot.fragments)
        ruled_out = count(fragments - len(left))
        detail = f"the filters rule out {ruled_out} of {count(fragments, 'fragment')}"
        return Pruning(PruningReason.RULED_OUT, detail)
    if not filters and not others:
        return Pruning(PruningReason.NO_FILTERS, "the scan has no filters")
    if not filters:
        what = f"lancestat does not know the kind of filter: {', '.join(others)}"
        return Pruning(PruningReason.UNKNOWN_FILTERS, what)
    if isinstance(table.fragments, NoFragmentStatistics):
        what = "neither a state nor a zone map knows the fragments"
        return Pruning(PruningReason.NO_STATISTICS, what)
    names = sorted(set().union(*map(columns_of, filters)))
    unknown = [f"'{name}'" for name in names if not table.fragments.knows(name)]
    if unknown:
        what = f"no fragment has known bounds of {', '.join(unknown)}"
        return Pruning(PruningReason.UNKNOWN_COLUMNS, what)
    return Pruning(PruningReason.ALL_MATCH, "every fragment may hold a row that passes")
