"""What a project declares, resolved: templates rendered, names looked up, defaults filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from pathlib import Path

from lancestat.errors import Location
from lancestat.formats import age, count
from lancestat.redact import NOTHING_KNOWN, Origin, Redactor, secret_options


class NodeKind(str, Enum):
    """The kinds of node, as `kind:` selectors and JSON spell them."""

    TABLE = "table"
    KNN_JOIN = "knn_join"


class Publish(str, Enum):
    """Where a table's statistics go."""

    MANIFEST = "manifest"
    NONE = "none"


class Refresh(str, Enum):
    """When `run` brings statistics up to date."""

    ALWAYS = "always"
    WHEN_STALE = "when_stale"


@dataclass(frozen=True, slots=True)
class StaleBounds:
    """How far behind statistics may be; every bound that is given must hold.

    `max_changed_rows` is a share of the current rows, 0.05 for 5 %. `shown` has the text that
    messages give in place of a bound, by its name, where the environment gave that bound.
    """

    max_versions: int | None = None
    max_age: timedelta | None = None
    max_changed_rows: float | None = None
    shown: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        bounds = []
        if self.max_versions is not None:
            bounds.append(f"up to {count(self.max_versions, 'version')}")
        if self.max_age is not None:
            bounds.append(f"up to {age(self.max_age)}")
        if self.max_changed_rows is not None:
            bounds.append(f"up to {self.max_changed_rows * 100:g} % of the rows")
        return ", ".join(bounds) or "never stale"


@dataclass(frozen=True, slots=True)
class Policy:
    """Which staleness readers accept: none (False), any (True) or bounds.

    `name` is None for an inline policy. `shown` stands for the rest where it is published, if the
    environment gave any of that.
    """

    name: str | None = None
    description: str | None = None
    allow_stale: bool | StaleBounds = False
    refresh: Refresh = Refresh.ALWAYS
    shown: str | None = field(default=None, compare=False)

    @property
    def accepted_staleness(self) -> str:
        """The staleness that readers accept, in words."""
        if isinstance(self.allow_stale, StaleBounds):
            return str(self.allow_stale)
        return "any staleness" if self.allow_stale else "never stale"


@dataclass(frozen=True, slots=True)
class ColumnPattern:
    """A column name or glob pattern, where it was written."""

    text: str
    location: Location | None = None

    @property
    def is_glob(self) -> bool:
        """Whether the pattern may match any number of columns, none included."""
        return any(char in self.text for char in "*?[")


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """Include some columns, of some types, less some; `types` None means every analyzable type."""

    include: tuple[ColumnPattern, ...]
    exclude: tuple[ColumnPattern, ...] = ()
    types: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ColumnSelection:
    """Which columns of a table get statistics: the union of `rules`, or `all`, less `exclude`."""

    all: bool = True
    rules: tuple[ColumnRule, ...] = ()
    exclude: tuple[ColumnPattern, ...] = ()


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old a table's newest rows may be before that is a warning, or an error.

    At least one bound is there, and `error_after` is not below `warn_after`. `shown` has the text
    that messages give in place of a bound, by its name, where the environment gave that bound.
    """

    warn_after: timedelta | None = None
    error_after: timedelta | None = None
    shown: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Table:
    """A declared Lance dataset; a relative `uri` is resolved against the project's folder."""

    name: str
    uri: str
    location: Location
    description: str | None = None
    tags: tuple[str, ...] = ()
    owner: str | None = None
    columns: ColumnSelection = field(default_factory=ColumnSelection)
    policy: Policy = field(default_factory=Policy)
    publish: Publish = Publish.MANIFEST
    histogram: bool = False
    freshness: Freshness | None = None

    kind = NodeKind.TABLE


@dataclass(frozen=True, slots=True)
class KnnSide:
    """One side of a KNN join: exactly one of `table`, `uri` (with `format`) or `sql` is set.

    `refs` are the names of the nodes that the side reads, `select` is None for all columns.
    `options` may hold secrets: `repr` omits them. `sql_location` is where the query is written.
    """

    vector: str
    select: tuple[str, ...] | None
    refs: tuple[str, ...] = ()
    table: str | None = None
    format: str | None = None
    uri: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    sql: str | None = None
    sql_location: Location | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class KnnJoin:
    """A declared nearest-neighbour join. In mode approx one of `nprobes` and `recall` is set."""

    name: str
    left: KnnSide
    right: KnnSide
    k: int
    output_format: str
    output_uri: str
    location: Location
    metric: str = "l2"
    mode: str = "exact"
    join: str = "inner"
    nprobes: int | None = None
    recall: float | None = None
    min_right_rows: int = 10_000
    rank: bool = False
    description: str | None = None
    tags: tuple[str, ...] = ()
    owner: str | None = None

    kind = NodeKind.KNN_JOIN


Node = Table | KnnJoin


class Reader(str, Enum):
    """What reads the rows of a table in Spark; its statistics come from lancestat either way."""

    LANCESTAT = "lancestat"
    CONNECTOR = "connector"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a project runs; `storage_options` and `spark_conf` may be secret: `repr` omits them."""

    name: str
    state: str
    scratch: str | None = None
    spark_master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    reader: Reader = Reader.LANCESTAT


@dataclass(frozen=True, slots=True)
class ProjectSpec:
    """A whole project under one target. Nodes are in the order of their files and places.

    `origins` has, by node and dotted key, where values came from the environment, and
    `target_origins` those of the target's settings. `redactor` finds such values in texts, and all
    storage options.
    """

    name: str
    root: Path
    target: Target
    nodes: tuple[Node, ...]
    policies: Mapping[str, Policy]
    origins: Mapping[str, Mapping[str, Origin]] = field(default_factory=dict)
    target_origins: Mapping[str, Origin] = field(default_factory=dict)
    redactor: Redactor = field(default=NOTHING_KNOWN, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = [*secret_options(self.target.storage_options)]
        for node in self.nodes:
            if isinstance(node, KnnJoin):
                known += (*secret_options(node.left.options), *secret_options(node.right.options))
        object.__setattr__(self, "redactor", self.redactor.with_known(known))

    @property
    def tables(self) -> tuple[Table, ...]:
        """The table nodes."""
        return tuple(node for node in self.nodes if isinstance(node, Table))

    def node(self, name: str) -> Node | None:
        """The node of that exact name."""
        return next((node for node in self.nodes if node.name == name), None)
