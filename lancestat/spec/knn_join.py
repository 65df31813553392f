"""A KNN join and its sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lancestat.errors import Location
from lancestat.spec.declaration import (
    Chosen,
    Flag,
    Key,
    Listed,
    Nested,
    Number,
    Resource,
    Risk,
    Role,
    Shape,
    Text,
    Words,
    key,
    keys,
)
from lancestat.spec.shapes import (
    AT_LEAST_0,
    FILLED,
    FILLED_PLACE,
    NAME,
    PUBLIC,
    SETTINGS,
    TAGS,
    TEXT,
    TO_100000,
)
from lancestat.spec.table import NodeKind


def _of_join(shape: Shape, about: str | None = None, *path: str, **rest: Any) -> dict[str, Any]:
    """Return the metadata of a key that decides which rows a join gives."""
    risk = Risk.JOIN_MEANING_CHANGED
    return key(shape, about, *path, **{"role": Role.MEANING, "risk": risk, **rest})


def _side_uri(path: str, about: str) -> Key:
    return Key(
        (path,),
        FILLED_PLACE,
        about,
        role=Role.MEANING,
        risk=Risk.JOIN_MEANING_CHANGED,
        label="uri",
    )


@dataclass(frozen=True, slots=True)
class KnnSide:
    """One side of a KNN join: exactly one of `table`, `uri` (with `format`) or `sql` is set.

    `refs` are the names of the nodes that the side reads, `select` is None for all columns.
    `options` may hold secrets: `repr` omits them. `sql_location` is where the query is written.
    """

    table: str | None = field(
        default=None,
        kw_only=True,
        metadata=_of_join(PUBLIC, "A declared table, or the output of another KNN join."),
    )
    format: str | None = field(
        default=None,
        kw_only=True,
        metadata=keys(
            Key(
                ("format",),
                PUBLIC,
                "A Spark data source, with 'path' and 'options'.",
                role=Role.MEANING,
                risk=Risk.JOIN_MEANING_CHANGED,
            ),
            Key(("format",), Chosen(paths=(("lance",), ("parquet",))), None),
        ),
    )
    uri: str | None = field(
        default=None,
        kw_only=True,
        metadata=keys(
            _side_uri("lance", "A Lance dataset that is not declared."),
            _side_uri("parquet", "Parquet files."),
            _side_uri("path", "What Spark loads, with 'format'."),
        ),
    )
    options: Mapping[str, str] = field(
        default_factory=dict,
        repr=False,
        kw_only=True,
        metadata=_of_join(SETTINGS, "Options of the Spark data source."),
    )
    sql: str | None = field(
        default=None,
        kw_only=True,
        metadata=_of_join(FILLED, "A query; {{ ref('table') }} names a declared node."),
    )
    vector: str = field(metadata=_of_join(FILLED, "The column that holds the vectors."))
    select: tuple[str, ...] | None = field(
        default=None,
        metadata=_of_join(
            Listed(
                title="a list of columns",
                items=Text(title="a column", limits={"minLength": 1}),
                is_unique=True,
            ),
            "The columns that the result keeps; all when left out. A right column that the left "
            "side has too gets the suffix _right.",
            unset="*",
        ),
    )
    refs: tuple[str, ...] = ()
    sql_location: Location | None = field(default=None, compare=False, kw_only=True)

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'vector' and one of 'table', 'lance', 'parquet', 'format' or 'sql'",
        "Where rows and vectors come from.",
        noun="side",
        definition="side",
        one_of=("table", "lance", "parquet", "format", "sql"),
        needs={"format": ("path",), "path": ("format",), "options": ("format",)},
    )


def _output(form: str, about: str) -> Key:
    return Key(("output", form), FILLED_PLACE, about, role=Role.MEANING, risk=Risk.OUTPUT_MOVED)


@dataclass(frozen=True, slots=True)
class KnnJoin:
    """A declared nearest-neighbour join. In mode approx one of `nprobes` and `recall` is set."""

    name: str = field(metadata=key(NAME, "The name of the node.", role=Role.LABEL))
    description: str | None = field(
        default=None, kw_only=True, metadata=key(TEXT, "What it is for.", role=Role.REMARK)
    )
    tags: tuple[str, ...] = field(default=(), kw_only=True, metadata=key(TAGS, role=Role.REMARK))
    owner: str | None = field(
        default=None, kw_only=True, metadata=key(TEXT, "Whom to ask.", role=Role.REMARK)
    )
    left: KnnSide = field(
        metadata=_of_join(Nested(resource=KnnSide), "The rows that look for neighbours.")
    )
    right: KnnSide = field(metadata=_of_join(Nested(resource=KnnSide), "The rows that are found."))
    k: int = field(metadata=_of_join(TO_100000, "How many neighbours each left row gets."))
    metric: str = field(
        default="l2",
        kw_only=True,
        metadata=_of_join(
            Words(title="a metric", choices=("l2", "cosine", "dot")), "How distance is measured."
        ),
    )
    mode: str = field(
        default="exact",
        kw_only=True,
        metadata=_of_join(
            Words(title="a mode", choices=("exact", "approx")),
            "exact compares all pairs; approx only those whose partitions are near.",
        ),
    )
    nprobes: int | None = field(
        default=None,
        kw_only=True,
        metadata=_of_join(
            TO_100000, "How many partitions each left row visits.", "approx", "nprobes"
        ),
    )
    recall: float | None = field(
        default=None,
        kw_only=True,
        metadata=_of_join(
            Number(
                title="a number over 0 and at most 1",
                limits={"exclusiveMinimum": 0, "maximum": 1},
            ),
            "The share of true neighbours to reach.",
            "approx",
            "recall",
        ),
    )
    join: str = field(
        default="inner",
        kw_only=True,
        metadata=_of_join(
            Words(title="a join type", choices=("inner", "left_outer")),
            "left_outer keeps left rows that have no neighbour.",
        ),
    )
    rank: bool = field(
        default=False,
        kw_only=True,
        metadata=_of_join(
            Flag(),
            "Whether the result has a column _rank: 1 for the nearest right row, and so on.",
            role=Role.OPTION,
        ),
    )
    min_right_rows: int = field(
        default=10_000,
        kw_only=True,
        metadata=key(
            AT_LEAST_0, "Below this many right rows Spark joins by itself.", role=Role.MEANING
        ),
    )
    output_format: str = field(
        metadata=key(
            Chosen(paths=(("output", "lance"), ("output", "parquet"))),
            None,
            "output",
            role=Role.MEANING,
        )
    )
    output_uri: str = field(
        metadata=keys(
            _output("lance", "A Lance dataset."),
            _output("parquet", "A folder of Parquet files."),
        )
    )
    location: Location

    kind = NodeKind.KNN_JOIN
    declares: ClassVar[Resource] = Resource(
        "a mapping with 'name', 'left', 'right', 'k' and 'output'",
        "For every row of the left side, the k nearest rows of the right side.",
        noun="knn join",
        definition="knn_join",
        groups={
            "approx": Resource(
                "a mapping with 'nprobes' or 'recall'",
                "How much of the right side an approximate search visits.",
                one_of=("nprobes", "recall"),
            ),
            "output": Resource(
                "a mapping with 'lance' or 'parquet'",
                "Where the result is written.",
                one_of=("lance", "parquet"),
                is_required=True,
            ),
        },
    )
