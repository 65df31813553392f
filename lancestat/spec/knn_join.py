"""A KNN join and its sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, field, replace
from datetime import timedelta
from enum import Enum
from math import isfinite
from typing import ClassVar

from typing_extensions import Self

from lancestat import display
from lancestat.errors import Location
from lancestat.formats import StringEnum
from lancestat.spec.budget import PRIORITY
from lancestat.spec.catalog import TABLE_NAME
from lancestat.spec.declaration import (
    AT_LEAST_0,
    CHECK,
    FILLED,
    FILLED_PATH,
    FLAG,
    KEPT,
    LABEL,
    MEANING,
    NAME,
    NEIGHBOURS,
    PUBLIC,
    REMARK,
    SETTINGS,
    TAGS,
    TEXT,
    TO_100000,
    Chosen,
    Either,
    Key,
    Listed,
    Nested,
    Resource,
    Risk,
    Text,
    key,
    keys,
    number,
    resource,
    row_key,
    words,
)
from lancestat.spec.table import NodeKind

ROWS = Risk.JOIN_MEANING_CHANGED
# The `k` of a join of all pairs within a distance, and the most of them that are written.
ALL = "all"
MOST_PAIRS = 100_000_000


class MetricName(StringEnum):
    """`l2` is the squared Euclidean distance, `cosine` is 1 - cos, `dot` is 1 - dot product.

    `hamming` is the number of bits that differ.
    """

    L2 = "l2"
    COSINE = "cosine"
    DOT = "dot"
    HAMMING = "hamming"


# The metrics of which a distance may be negative.
_SIGNED = frozenset({MetricName.DOT.value})


class Mode(StringEnum):
    """`exact` compares every pair; `approx` may look at the likely ones only."""

    EXACT = "exact"
    APPROX = "approx"


# What an approximate search is asked for.
NPROBES = "The number of IVF lists that each left row visits."
RECALL = number("a number over 0 and at most 1", exclusiveMinimum=0, maximum=1)
TRUE_FOUND = "The share of true neighbours to find."
APPROX = Resource(
    "a mapping with 'nprobes' or 'recall'",
    "How much of the right side an approximate search visits.",
    one_of=("nprobes", "recall"),
)


class JoinKind(StringEnum):
    """The handling of left rows that match nothing: dropped, or kept with nulls."""

    INNER = "inner"
    LEFT_OUTER = "left_outer"


class Pairs(StringEnum):
    """Whether a pair of rows of one table counts for both rows, or once for the first of them."""

    ORDERED = "ordered"
    UNORDERED = "unordered"


def distance_objection(distance: float, metric: str) -> str | None:
    """Return why a number can be no largest distance of a metric, None where it can."""
    if not isfinite(distance):
        return "must be finite"
    if distance < 0 and metric not in _SIGNED:
        return f"must be 0 or more, as every distance by {metric} is"
    return None


def values_of(words: type[Enum]) -> tuple[str, ...]:
    """Return the words that a key of the YAML takes."""
    return tuple(word.value for word in words)


def _side_uri(path: str, about: str) -> Key:
    return Key((path,), FILLED_PATH, about, role=MEANING, risk=ROWS, label="uri")


@resource
class KnnSide:
    """One side of a KNN join: exactly one of `table`, `uri` (with `format`) or `sql` is set.

    `refs` are the names of the nodes that the side reads, `select` is None for all columns.
    `options` may hold secrets: `repr` omits them. `sql_location` is where the query is written,
    `where_location` where the filter is.
    """

    table: str | None = row_key(
        PUBLIC,
        "A declared table, the output of another KNN join, or a table of one of the target's "
        "catalogs, as `catalog.namespace.table`.",
        default=None,
        kw_only=True,
    )
    format: str | None = keys(
        Key(
            ("format",),
            PUBLIC,
            "A Spark data source, with 'path' and 'options'.",
            role=MEANING,
            risk=ROWS,
        ),
        Key(("format",), Chosen(paths=(("lance",), ("parquet",))), None),
        default=None,
        kw_only=True,
    )
    uri: str | None = keys(
        _side_uri("lance", "A Lance dataset that is not declared."),
        _side_uri("parquet", "Parquet files."),
        _side_uri("path", "The path that Spark loads, with 'format'."),
        default=None,
        kw_only=True,
    )
    options: Mapping[str, str] = row_key(
        SETTINGS,
        "Options of the Spark data source.",
        default_factory=dict,
        repr=False,
        kw_only=True,
    )
    sql: str | None = row_key(
        FILLED, "A query; {{ ref('table') }} names a declared node.", default=None, kw_only=True
    )
    vector: str = row_key(FILLED, "The column that holds the vectors.")
    select: tuple[str, ...] | None = row_key(
        Listed(
            title="a list of columns",
            items=Text(title="a column", keywords={"minLength": 1}),
            is_unique=True,
        ),
        "The columns of the result; all by default. A right column that the left side also has "
        "gets the suffix _right.",
        unset="*",
        default=None,
    )
    where: str | None = key(
        FILLED,
        "A filter on the rows of a 'table' or 'lance' side, such as p_size < 20. Lance applies it "
        "during the scan.",
        risk=ROWS,
        default=None,
        kw_only=True,
    )
    refs: tuple[str, ...] = ()
    sql_location: Location | None = field(default=None, compare=False, kw_only=True)
    where_location: Location | None = field(default=None, compare=False, kw_only=True)

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'vector' and one of 'table', 'lance', 'parquet', 'format' or 'sql'",
        "Where rows and vectors come from.",
        noun="side",
        definition="side",
        one_of=("table", "lance", "parquet", "format", "sql"),
        needs={"format": ("path",), "path": ("format",), "options": ("format",)},
    )


@resource
class KeyPair:
    """Two columns that have to be equal for rows to be compared."""

    left: str = key(FILLED, "The left column.", role=MEANING)
    right: str = key(FILLED, "The right column.", role=MEANING)

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'left' and 'right'",
        "Columns of different names.",
        noun="pair of keys",
        definition="key_pair",
    )


def keys_text(pairs: tuple[tuple[str, str], ...]) -> str:
    """Return pairs of keys as people read them: `tenant, shop_id = store_id`."""
    return ", ".join(left if left == right else f"{left} = {right}" for left, right in pairs)


def _output(form: str, about: str) -> Key:
    return Key(("output", form), FILLED_PATH, about, role=MEANING, risk=Risk.OUTPUT_MOVED)


class WritesRows:
    """A node whose output is a dataset, which its runs write."""

    __slots__ = ()
    output_uri: str
    uri_key: ClassVar[str] = "lance"

    def listed_by(self, source: str) -> Self:
        """Return the node itself: sources list tables."""
        return self

    @property
    def dataset_uri(self) -> str:
        """The dataset that the node stands for, where another one names it."""
        return self.output_uri

    @property
    def written_uri(self) -> str:
        return self.output_uri

    @property
    def result_uri(self) -> str:
        """The dataset whose rows a run of the node makes."""
        return self.output_uri


@resource
class KnnJoin(WritesRows):
    """A declared nearest-neighbour join. In mode approx one of `nprobes` and `recall` is set.

    `on` are pairs of a left and a right column, and `on_location` is where they are declared, as
    `self_location` is of `exclude_self` or `pairs`. `stands_for` is what errors call a join of a
    table with itself that is a part of another node.
    """

    name: str = key(NAME, "The name of the node.", role=LABEL)
    description: str | None = key(TEXT, "What it is for.", role=REMARK, default=None, kw_only=True)
    priority: int | None = key(
        PRIORITY,
        "Nodes of higher priority come first in a run that has a budget. It is 0 by default.",
        role=CHECK,
        default=None,
        kw_only=True,
    )
    tags: tuple[str, ...] = key(TAGS, role=REMARK, default=(), kw_only=True)
    owner: str | None = key(
        TEXT, "The person or team to ask about it.", role=REMARK, default=None, kw_only=True
    )
    left: KnnSide = row_key(Nested(resource=KnnSide), "The rows to find neighbours for.")
    right: KnnSide = row_key(Nested(resource=KnnSide), "The rows to search.")
    k: int | str = row_key(
        NEIGHBOURS, "The number of neighbours of each left row, or 'all' within 'max_distance'."
    )
    _: KW_ONLY
    on: tuple[tuple[str, str], ...] = key(
        Listed(
            title="a list of columns, or of {left: a, right: b}",
            items=Either(
                title="a column, or {left: a, right: b}",
                shapes=(
                    Text(title="a column", keywords={"minLength": 1}),
                    Nested(resource=KeyPair),
                ),
            ),
            is_filled=True,
        ),
        "Columns that must be equal for rows to be compared. Null equals nothing.",
        words=keys_text,
        risk=ROWS,
        default=(),
    )
    max_distance: float | None = key(
        number("a number"),
        "The maximum distance of a neighbour, in the units of _distance; with l2, that is the "
        "squared Euclidean distance.",
        risk=ROWS,
        default=None,
    )
    metric: str = row_key(
        words(values_of(MetricName), "a metric"),
        "The distance measure.",
        default=MetricName.L2.value,
    )
    mode: str = row_key(
        words(values_of(Mode), "a mode"),
        "`exact` compares all pairs; `approx` may miss some neighbours.",
        default=Mode.EXACT.value,
    )
    nprobes: int | None = row_key(TO_100000, NPROBES, "approx", "nprobes", default=None)
    recall: float | None = row_key(RECALL, TRUE_FOUND, "approx", "recall", default=None)
    join: str = row_key(
        words(values_of(JoinKind), "a join type"),
        "`inner` drops left rows without neighbours; `left_outer` keeps them.",
        default=JoinKind.INNER.value,
    )
    rank: bool = key(
        FLAG,
        "Whether to add a column _rank, which is 1 for the nearest right row.",
        risk=ROWS,
        default=False,
    )
    max_pairs: int = key(
        AT_LEAST_0,
        "With 'k: all', the maximum number of pairs. If there are more, the run fails.",
        default=MOST_PAIRS,
    )
    exclude_self: bool = key(
        FLAG,
        "Whether to exclude each row from its own neighbours, if both sides are the same table.",
        risk=ROWS,
        default=False,
    )
    pairs: str = key(
        words(values_of(Pairs), "a word"),
        "`unordered` returns each pair of rows of one table once, with the row that comes first.",
        risk=ROWS,
        default=Pairs.ORDERED.value,
    )
    min_right_rows: int = key(
        AT_LEAST_0,
        "With fewer right rows than this, Spark's own nearestByJoin does the work.",
        role=MEANING,
        default=10_000,
    )
    output_format: str = key(
        Chosen(paths=(("output", "lance"), ("output", "parquet"), ("output", "table"))),
        None,
        "output",
        role=MEANING,
    )
    output_uri: str = keys(
        _output("lance", "A Lance dataset."),
        _output("parquet", "A folder of Parquet files."),
        Key(
            ("output", "table"),
            TABLE_NAME,
            "A table in one of the target's catalogs, `catalog.namespace.table`. It is created if "
            "it does not exist.",
            role=MEANING,
            risk=Risk.OUTPUT_MOVED,
        ),
    )
    keep: int | timedelta | None = key(
        KEPT,
        "How many results to keep, or for how long to keep older ones. By default all are kept, "
        "and tagged versions always are.",
        "output",
        "keep",
        role=CHECK,
        default=None,
    )
    location: Location
    on_location: Location | None = field(default=None, compare=False)
    self_location: Location | None = field(default=None, compare=False)
    stands_for: str | None = field(default=None, compare=False)
    declared: KnnJoin | None = field(default=None, compare=False, repr=False)

    kind = NodeKind.KNN_JOIN
    declares: ClassVar[Resource] = Resource(
        "a mapping with 'name', 'left', 'right', 'k' and 'output'",
        "For every row of the left side, the k nearest rows of the right side.",
        noun="knn join",
        definition="knn_join",
        groups={
            "approx": APPROX,
            "output": Resource(
                "a mapping with 'lance', 'parquet' or 'table'",
                "Where the result is written.",
                one_of=("lance", "parquet", "table"),
                is_required=True,
            ),
        },
    )

    def __repr__(self) -> str:
        return display.summary(self, f"{self.name}, declared at {self.location}")

    def located(self, uris: Mapping[str, str]) -> KnnJoin:
        if not {*self.input_uris, self.output_uri} & uris.keys():
            return self
        left, right = (
            side if side.uri is None else replace(side, uri=uris.get(side.uri, side.uri))
            for side in (self.left, self.right)
        )
        output_uri = uris.get(self.output_uri, self.output_uri)
        declared = self.declared or self
        return replace(self, left=left, right=right, output_uri=output_uri, declared=declared)

    def named_refs(self) -> Iterator[tuple[tuple[str, ...], str]]:
        for name, side in (("left", self.left), ("right", self.right)):
            key = "sql" if side.table is None else "table"
            yield from (((name, key), ref) for ref in side.refs)

    @property
    def title(self) -> str:
        """What errors call the join."""
        return self.stands_for or f"knn join '{self.name}'"

    @property
    def dataset_format(self) -> str:
        return self.output_format

    @property
    def refs(self) -> tuple[str, ...]:
        return (*self.left.refs, *self.right.refs)

    @property
    def input_uris(self) -> tuple[str, ...]:
        """The URIs that the node itself names as what it reads."""
        return tuple(side.uri for side in (self.left, self.right) if side.uri is not None)
