"""The resources around a table: policies, column sets, and the table itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import ClassVar

from lancestat.errors import Location
from lancestat.formats import age, count
from lancestat.spec.declaration import (
    Either,
    Flag,
    Nested,
    Place,
    Resource,
    Risk,
    Role,
    Share,
    Text,
    Words,
    key,
)
from lancestat.spec.shapes import (
    AT_LEAST_0,
    DURATION,
    FILLED_PATTERNS,
    NAME,
    PATTERNS,
    PUBLIC,
    TAGS,
    TEXT,
    TYPES,
)


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

    max_versions: int | None = field(
        default=None, metadata=key(AT_LEAST_0, "How many versions behind.", role=Role.MEANING)
    )
    max_age: timedelta | None = field(
        default=None,
        metadata=key(
            DURATION,
            "How long ago the statistics were computed: seconds, minutes, hours or days.",
            role=Role.MEANING,
        ),
    )
    max_changed_rows: float | None = field(
        default=None,
        metadata=key(
            Share(),
            "Rows added, removed or rewritten since, as a share of the current rows.",
            role=Role.MEANING,
        ),
    )
    shown: Mapping[str, str] = field(default_factory=dict, compare=False)

    declares: ClassVar[Resource] = Resource("", is_filled=True)

    def __str__(self) -> str:
        bounds = []
        if self.max_versions is not None:
            bounds.append(f"up to {count(self.max_versions, 'version')}")
        if self.max_age is not None:
            bounds.append(f"up to {age(self.max_age)}")
        if self.max_changed_rows is not None:
            bounds.append(f"up to {self.max_changed_rows * 100:g} % of the rows")
        return ", ".join(bounds) or "never stale"


def staleness_words(allowed: bool | StaleBounds) -> str:
    """Return the staleness that readers accept, in words."""
    if isinstance(allowed, StaleBounds):
        return str(allowed)
    return "any staleness" if allowed else "never stale"


@dataclass(frozen=True, slots=True)
class Policy:
    """Which staleness readers accept: none (False), any (True) or bounds.

    `name` is None for an inline policy. `shown` stands for the rest where it is published, if the
    environment gave any of that.
    """

    name: str | None = field(
        default=None,
        metadata=key(NAME, "What tables call it.", is_required=True, role=Role.LABEL),
    )
    description: str | None = field(
        default=None, metadata=key(TEXT, "What it is for.", role=Role.LABEL)
    )
    allow_stale: bool | StaleBounds = field(
        default=False,
        metadata=key(
            Either(
                title="true, false, or bounds ('max_versions', 'max_age', 'max_changed_rows')",
                description="Whether readers may use statistics of an older version: never, "
                "always, or while every bound that is given holds.",
                definition="allow_stale",
                shapes=(Flag(), Nested(resource=StaleBounds)),
            ),
            None,
            "allow.stale",
            role=Role.MEANING,
            risk=Risk.STALENESS_LOOSENED,
            words=staleness_words,
        ),
    )
    refresh: Refresh = field(
        default=Refresh.ALWAYS,
        metadata=key(
            Words(
                title="when to refresh",
                description="always: a run brings statistics up to date. when_stale: a run does "
                "nothing while allow.stale accepts what is published.",
                definition="refresh",
                choices=Refresh,
            ),
            role=Role.MEANING,
            risk=Risk.STALENESS_LOOSENED,
        ),
    )
    shown: str | None = field(default=None, compare=False)

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'name' and 'allow.stale'",
        "Which staleness readers accept, and when a run brings statistics up to date.",
        noun="policy",
        definition="policy",
    )

    @property
    def accepted_staleness(self) -> str:
        """The staleness that readers accept, in words."""
        return staleness_words(self.allow_stale)


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
class ColumnSet:
    """A selection of columns that tables share."""

    name: str = field(metadata=key(NAME, "What tables call it.", role=Role.LABEL))
    description: str | None = field(
        default=None, kw_only=True, metadata=key(TEXT, "What it is for.", role=Role.LABEL)
    )
    include: tuple[ColumnPattern, ...] = field(metadata=key(FILLED_PATTERNS))
    exclude: tuple[ColumnPattern, ...] = field(default=(), metadata=key(PATTERNS))
    types: frozenset[str] | None = field(default=None, metadata=key(TYPES))

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'name' and 'include'",
        "A selection of columns that tables share.",
        noun="column set",
        definition="column_set",
    )


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The mapping that a table may have as its `columns`."""

    set: str | None = field(
        default=None,
        metadata=key(PUBLIC, "The name of a column set.", title="the name of a column set"),
    )
    include: tuple[ColumnPattern, ...] = field(default=(), metadata=key(FILLED_PATTERNS))
    exclude: tuple[ColumnPattern, ...] = field(default=(), metadata=key(PATTERNS))
    types: frozenset[str] | None = field(default=None, metadata=key(TYPES))

    declares: ClassVar[Resource] = Resource("", is_filled=True)


COLUMNS = Either(
    title="'all', a list of names and patterns, or a mapping with 'set', 'include', 'exclude' and "
    "'types'",
    shapes=(
        Text(
            title="'all'",
            limits={"default": "all", "examples": ["all"], "pattern": r"^all$(?!\n)"},
        ),
        FILLED_PATTERNS,
        Nested(resource=ColumnChoice),
    ),
)


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old a table's newest rows may be before that is a warning, or an error.

    At least one bound is there, and `error_after` is not below `warn_after`. `shown` has the text
    that messages give in place of a bound, by its name, where the environment gave that bound.
    """

    warn_after: timedelta | None = field(
        default=None,
        metadata=key(
            DURATION,
            "Older rows than this are a warning: seconds, minutes, hours or days.",
            role=Role.CHECK,
        ),
    )
    error_after: timedelta | None = field(
        default=None,
        metadata=key(
            DURATION,
            "Older rows than this are an error: seconds, minutes, hours or days.",
            role=Role.CHECK,
        ),
    )
    shown: Mapping[str, str] = field(default_factory=dict, compare=False)

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'warn_after' and 'error_after'", is_filled=True
    )


def _publish_warning(old: Publish, new: Publish) -> str:
    if new is Publish.MANIFEST:
        return "runs will commit statistics to the table, which others see in its history"
    return (
        "runs no longer commit statistics to the table: readers find only those that are there, "
        "which grow stale"
    )


def _histogram_warning(old: bool, new: bool) -> str | None:
    return None if new else "histograms are made no more"


@dataclass(frozen=True, slots=True)
class Table:
    """A declared Lance dataset; a relative `uri` is resolved against the project's folder."""

    name: str = field(
        metadata=key(NAME, "The name of the node and of its view in SQL.", role=Role.LABEL)
    )
    uri: str = field(
        metadata=key(
            Place(title="a path or an object-store URI", limits={"minLength": 1}),
            "The Lance dataset; a relative path starts at the project's folder.",
            role=Role.MEANING,
            risk=Risk.DATASET_MOVED,
        )
    )
    location: Location
    description: str | None = field(
        default=None, metadata=key(TEXT, "What a row is.", role=Role.REMARK)
    )
    tags: tuple[str, ...] = field(default=(), metadata=key(TAGS, role=Role.REMARK))
    owner: str | None = field(default=None, metadata=key(TEXT, "Whom to ask.", role=Role.REMARK))
    columns: ColumnSelection = field(
        default_factory=ColumnSelection,
        metadata=key(
            COLUMNS,
            "The columns that get statistics: 'all', which skips what cannot be analyzed (naming "
            "such a column is an error); names and patterns; or the union of 'set' and 'include' "
            "(every column when neither is given), of 'types' only, less 'exclude'.",
            role=Role.MEANING,
            risk=Risk.COVERAGE_LOST,
        ),
    )
    policy: Policy = field(
        default_factory=Policy,
        metadata=key(
            Either(
                title="the name of a policy, or a mapping with 'allow.stale' and 'refresh'",
                shapes=(PUBLIC, Nested(resource=Policy, is_inline=True)),
            ),
            "Which staleness readers accept: a shared policy, or one for this table alone. Without "
            "one, none.",
            role=Role.MEANING,
            label="",
        ),
    )
    publish: Publish = field(
        default=Publish.MANIFEST,
        metadata=key(
            Words(title="where statistics go", choices=Publish),
            "manifest commits them to the table; none keeps them in the state only.",
            role=Role.MEANING,
            risk=Risk.PUBLISH_CHANGED,
            warning=_publish_warning,
        ),
    )
    histogram: bool = field(
        default=False,
        metadata=key(
            Flag(),
            "Whether number, date and timestamp columns get an equi-height histogram too, which is "
            "kept in the state and told to Spark's optimizer; for skewed columns.",
            risk=Risk.COVERAGE_LOST,
            warning=_histogram_warning,
        ),
    )
    freshness: Freshness | None = field(
        default=None,
        metadata=key(
            Nested(resource=Freshness),
            "How old the newest rows may be before 'lancestat status' warns of it, or calls it an "
            "error; no run depends on it.",
            role=Role.CHECK,
        ),
    )

    kind = NodeKind.TABLE
    declares: ClassVar[Resource] = Resource(
        "a mapping with 'name' and 'uri'",
        "A Lance dataset whose statistics are kept.",
        noun="table",
        definition="table",
    )
