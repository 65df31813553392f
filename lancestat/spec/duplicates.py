"""Near-duplicates: groups of rows of one table whose vectors are near each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from typing import ClassVar

from lancestat import display
from lancestat.errors import Location
from lancestat.spec.declaration import (
    AT_LEAST_0,
    FILLED,
    FILLED_PATH,
    LABEL,
    MEANING,
    NAME,
    PUBLIC,
    Key,
    Listed,
    Resource,
    Risk,
    Text,
    key,
    keys,
    number,
    resource,
    row_key,
    same_key,
    words,
)
from lancestat.spec.knn_join import (
    ALL,
    APPROX,
    MOST_PAIRS,
    ROWS,
    KnnJoin,
    KnnSide,
    Mode,
    Pairs,
    WritesRows,
    values_of,
)
from lancestat.spec.table import NodeKind

_ORDER_BY = re.compile(
    r"(?P<column>.+?)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Order:
    """One column of an order, and where its nulls come."""

    column: str
    is_descending: bool = False
    nulls_first: bool = False

    @classmethod
    def parse(cls, text: str) -> Order:
        """Return the order of a text such as `updated_at desc nulls first`."""
        found = _ORDER_BY.fullmatch(text)
        if found is None:
            return cls(text)
        direction, nulls = (found[part] or "" for part in ("direction", "nulls"))
        return cls(found["column"], direction.lower() == "desc", nulls.lower() == "first")


_COLUMN = Text(title="a column", keywords={"minLength": 1})
_ORDER = Text(
    title="a column, with 'asc' or 'desc' and 'nulls first' or 'nulls last'",
    keywords={"minLength": 1},
)


@resource
class Duplicates(WritesRows):
    """Declared near-duplicates of a table: one of `table` and `uri` is set.

    `order_by` chooses the row of a group that is kept. `places` has the locations of keys and of
    the columns in lists, by dotted key, such as `select.0`.
    """

    name: str = key(NAME, "The name of the node.", role=LABEL)
    _: KW_ONLY
    description: str | None = same_key(KnnJoin, "description")
    priority: int | None = same_key(KnnJoin, "priority")
    tags: tuple[str, ...] = same_key(KnnJoin, "tags")
    owner: str | None = same_key(KnnJoin, "owner")
    table: str | None = row_key(
        PUBLIC,
        "A declared table, the output of another node, or a table of one of the target's catalogs, "
        "as `catalog.namespace.table`.",
        default=None,
    )
    uri: str | None = keys(
        Key(
            ("lance",),
            FILLED_PATH,
            "A Lance dataset that is not declared.",
            role=MEANING,
            risk=ROWS,
            label="uri",
        ),
        default=None,
    )
    vector: str = row_key(FILLED, "The column that holds the vectors.")
    max_distance: float = row_key(
        number("a number"),
        "The maximum distance of a pair of duplicates, in the units of _distance; with l2, that is "
        "the squared Euclidean distance.",
    )
    where: str | None = key(
        FILLED,
        "A filter on the rows of the table, such as price > 0. Lance applies it during the scan.",
        risk=ROWS,
        default=None,
    )
    on: tuple[str, ...] = key(
        Listed(title="a list of columns", items=_COLUMN, is_filled=True, is_unique=True),
        "Columns that duplicates have in common. Null equals nothing.",
        risk=ROWS,
        default=(),
    )
    metric: str = same_key(KnnJoin, "metric")
    mode: str = row_key(
        words(values_of(Mode), "a mode"),
        "`exact` compares all pairs; `approx` may miss some duplicates.",
        default=Mode.EXACT.value,
    )
    nprobes: int | None = same_key(KnnJoin, "nprobes")
    recall: float | None = same_key(KnnJoin, "recall")
    max_pairs: int = key(
        AT_LEAST_0,
        "The maximum number of pairs. If there are more, the run fails.",
        default=MOST_PAIRS,
    )
    order_by: tuple[str, ...] = key(
        Listed(title="a list of columns to order by", items=_ORDER, is_filled=True),
        "The row of a group that is kept is the first in this order: columns, each with 'asc' "
        "(the default) or 'desc', and 'nulls first' or 'nulls last' (the default).",
        "keep",
        "order_by",
        role=MEANING,
        risk=ROWS,
        default=(),
    )
    select: tuple[str, ...] | None = row_key(
        Listed(title="a list of columns", items=_COLUMN, is_unique=True),
        "The columns of the result; all by default.",
        unset="*",
        default=None,
    )
    output_uri: str = key(
        FILLED_PATH,
        "A Lance dataset, with a row for each member of a group.",
        "output",
        "lance",
        role=MEANING,
        risk=Risk.OUTPUT_MOVED,
    )
    keep: int | timedelta | None = same_key(KnnJoin, "keep")
    pairs_uri: str | None = key(
        FILLED_PATH,
        "A Lance dataset for the pairs, with the selected columns of both rows. Without it they "
        "are in a hidden folder beside the output, without these columns.",
        "pairs",
        "lance",
        role=MEANING,
        risk=Risk.OUTPUT_MOVED,
        default=None,
    )
    location: Location
    places: Mapping[str, Location] = field(default_factory=dict, compare=False, repr=False)
    declared: Duplicates | None = field(default=None, compare=False, repr=False)

    kind = NodeKind.DUPLICATES
    declares: ClassVar[Resource] = Resource(
        "a mapping with 'name', 'table' or 'lance', 'vector', 'max_distance' and 'output'",
        "Groups of rows of one table that are nearly the same.",
        noun="duplicates node",
        definition="duplicates",
        one_of=("table", "lance"),
        groups={
            "approx": APPROX,
            "keep": Resource(
                "a mapping with 'order_by'", "The row of a group that is kept.", is_filled=True
            ),
            "output": Resource(
                "a mapping with 'lance'",
                "Where the groups are written.",
                is_required=True,
            ),
            "pairs": Resource(
                "a mapping with 'lance'", "Where the pairs are written.", is_filled=True
            ),
        },
    )

    dataset_format: ClassVar[str] = "lance"

    def __repr__(self) -> str:
        return display.summary(self, f"{self.name}, declared at {self.location}")

    def at(self, name: str) -> Location:
        """Return where the value of a dotted key is written, as far as `places` has it."""
        return self.places.get(name, self.location)

    @property
    def title(self) -> str:
        """What errors call the node."""
        return f"{self.declares.noun} '{self.name}'"

    @property
    def pairs_place(self) -> str:
        """The dataset of the pairs, a hidden one where none is declared."""
        if self.pairs_uri is not None:
            return self.pairs_uri
        folder, slash, name = self.output_uri.rstrip("/").rpartition("/")
        return f"{folder}{slash}.{name}.pairs"

    def pairs_join(self, *columns: str) -> KnnJoin:
        """Return the join of the table with itself that finds the pairs, with columns of both."""
        side = KnnSide(
            self.vector,
            columns,
            table=self.table,
            format=None if self.uri is None else "lance",
            uri=self.uri,
            where=self.where,
            refs=self.refs,
            where_location=self.at("where"),
        )
        return KnnJoin(
            self.name,
            side,
            side,
            ALL,
            on=tuple((name, name) for name in self.on),
            max_distance=self.max_distance,
            metric=self.metric,
            mode=self.mode,
            nprobes=self.nprobes,
            recall=self.recall,
            max_pairs=self.max_pairs,
            pairs=Pairs.UNORDERED.value,
            output_format="lance",
            output_uri=self.pairs_place,
            location=self.location,
            on_location=self.at("on"),
            self_location=self.location,
            stands_for=self.title,
            declared=None if self.declared is None else self.declared.pairs_join(*columns),
        )

    def located(self, uris: Mapping[str, str]) -> Duplicates:
        if self.uri not in uris:
            return self
        assert self.uri is not None
        return replace(self, uri=uris[self.uri], declared=self.declared or self)

    def named_refs(self) -> Iterator[tuple[tuple[str, ...], str]]:
        yield from ((("table",), ref) for ref in self.refs)

    @property
    def refs(self) -> tuple[str, ...]:
        return () if self.table is None else (self.table,)

    @property
    def input_uris(self) -> tuple[str, ...]:
        """The URIs that the node itself names as what it reads."""
        return () if self.uri is None else (self.uri,)
