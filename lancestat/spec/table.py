"""The resources around a table: policies, column sets, and the table itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, field, replace
from datetime import timedelta
from typing import ClassVar

from lancestat import display
from lancestat.errors import Location
from lancestat.formats import StringEnum, age, count
from lancestat.spec.budget import PRIORITY
from lancestat.spec.catalog import TABLE_NAME
from lancestat.spec.column_selection import ColumnPattern, ColumnRule, ColumnSelection
from lancestat.spec.declaration import (
    AT_LEAST_0,
    CHECK,
    DURATION,
    FILLED_PATTERNS,
    FLAG,
    LABEL,
    MEANING,
    NAME,
    PATTERNS,
    PUBLIC,
    REMARK,
    SETTINGS,
    SHARE,
    TAGS,
    TEXT,
    TYPES,
    Either,
    Key,
    Nested,
    PathOrUri,
    Resource,
    Risk,
    Text,
    key,
    keys,
    resource,
    words,
)
from lancestat.spec.expectations import (
    EXPECT,
    Expectation,
    References,
    canonical_expectations,
    expectations_text,
    referred,
)
from lancestat.spec.monitors import (
    MONITORS,
    ColumnAnomalies,
    Monitor,
    monitors_text,
    with_shared,
)
from lancestat.spec.relations import (
    COMMON_VALUES,
    GROUPS,
    KEYS,
    REFERENCES,
    Columns,
    CommonValues,
    Reference,
    canonical_groups,
    distinct_groups,
    references_text,
    referring_groups,
)


class NodeKind(StringEnum):
    """The kinds of node, as `kind:` selectors and JSON spell them."""

    TABLE = "table"
    KNN_JOIN = "knn_join"
    DUPLICATES = "duplicates"


class Publish(StringEnum):
    """Where a table's statistics are kept."""

    MANIFEST = "manifest"
    NONE = "none"

    @property
    def commits(self) -> bool:
        """Whether publishing commits a version to the table."""
        return self is Publish.MANIFEST


class Refresh(StringEnum):
    """The times when `run` brings statistics up to date."""

    ALWAYS = "always"
    WHEN_STALE = "when_stale"


@resource
class StaleBounds:
    """Bounds on how stale statistics may be; every bound that is given must hold.

    `max_changed_rows` is a share of the current rows, 0.05 for 5 %. `templates` has the text that
    messages give in place of a bound, by its name, where the environment gave that bound.
    """

    max_versions: int | None = key(
        AT_LEAST_0, "The maximum number of versions since.", role=MEANING, default=None
    )
    max_age: timedelta | None = key(
        DURATION, "The maximum time since the statistics were computed.", role=MEANING, default=None
    )
    max_changed_rows: float | None = key(
        SHARE,
        "The maximum share of the current rows that were added, removed or rewritten since.",
        role=MEANING,
        default=None,
    )
    templates: Mapping[str, str] = field(default_factory=dict, compare=False)

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
    if isinstance(allowed, StaleBounds):
        return str(allowed)
    return "any staleness" if allowed else "never stale"


@resource
class Policy:
    """The staleness that readers accept: none (False), any (True) or bounds.

    `name` is None for an inline policy. `template` stands for the rest where it is published, if
    the environment gave any of that.
    """

    name: str | None = key(
        NAME, "The name by which tables refer to it.", is_required=True, role=LABEL, default=None
    )
    description: str | None = key(TEXT, "What it is for.", role=LABEL, default=None)
    allow_stale: bool | StaleBounds = key(
        Either(
            title="true, false, or bounds ('max_versions', 'max_age', 'max_changed_rows')",
            description="Whether readers may use statistics of an older version: never, always, "
            "or within every bound that is given.",
            definition="allow_stale",
            shapes=(FLAG, Nested(resource=StaleBounds)),
        ),
        None,
        "allow.stale",
        role=MEANING,
        risk=Risk.STALENESS_LOOSENED,
        words=staleness_words,
        default=False,
    )
    refresh: Refresh = key(
        replace(
            words(Refresh, "when to refresh"),
            description="`always`: every run brings statistics up to date. `when_stale`: a run "
            "does nothing while allow.stale accepts the published ones.",
            definition="refresh",
        ),
        role=MEANING,
        risk=Risk.STALENESS_LOOSENED,
        default=Refresh.ALWAYS,
    )
    template: str | None = field(default=None, compare=False)

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'name' and 'allow.stale'",
        "Which stale statistics readers accept, and when a run refreshes them.",
        noun="policy",
        definition="policy",
    )

    @property
    def accepted_staleness(self) -> str:
        return staleness_words(self.allow_stale)


@resource
class ColumnSet:
    """A selection of columns that tables share."""

    name: str = key(NAME, "The name by which tables refer to it.", role=LABEL)
    description: str | None = key(TEXT, "What it is for.", role=LABEL, default=None, kw_only=True)
    include: tuple[ColumnPattern, ...] = key(FILLED_PATTERNS)
    exclude: tuple[ColumnPattern, ...] = key(PATTERNS, default=())
    types: frozenset[str] | None = key(TYPES, default=None)

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'name' and 'include'",
        "A selection of columns that tables share.",
        noun="column set",
        definition="column_set",
    )


@resource
class ColumnChoice:
    """The mapping that a table may have as its `columns`."""

    set: str | None = key(
        PUBLIC, "The name of a column set.", title="the name of a column set", default=None
    )
    include: tuple[ColumnPattern, ...] = key(FILLED_PATTERNS, default=())
    exclude: tuple[ColumnPattern, ...] = key(PATTERNS, default=())
    types: frozenset[str] | None = key(TYPES, default=None)

    declares: ClassVar[Resource] = Resource("", is_filled=True)


COLUMNS = Either(
    title="'all', a list of names and patterns, or a mapping with 'set', 'include', 'exclude' and "
    "'types'",
    shapes=(
        Text(
            title="'all'",
            keywords={"default": "all", "examples": ["all"], "pattern": r"^all$(?!\n)"},
        ),
        FILLED_PATTERNS,
        Nested(resource=ColumnChoice),
    ),
)


@resource
class Freshness:
    """Bounds on the age of a table's newest rows, beyond which it is a warning, or an error."""

    warn_after: timedelta | None = key(
        DURATION, "Warn if the newest rows are older than this.", role=CHECK, default=None
    )
    error_after: timedelta | None = key(
        DURATION,
        "Report an error if the newest rows are older than this.",
        role=CHECK,
        default=None,
    )
    templates: Mapping[str, str] = field(default_factory=dict, compare=False)

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'warn_after' and 'error_after'", is_filled=True
    )


def _publish_warning(old: Publish, new: Publish) -> str:
    if new.commits:
        return "runs will commit statistics to the table, which others see in its history"
    return (
        "runs no longer commit statistics to the table: readers find only those that are there, "
        "which grow stale"
    )


def _histogram_warning(old: bool, new: bool) -> str | None:
    return None if new else "histograms are made no more"


def _show_values_warning(old: bool, new: bool) -> str | None:
    what = "bounds and, where they are kept, common values"
    return f"{what} of strings and binary will be shown" if new else None


@resource
class Table:
    """A declared Lance dataset; a relative `uri` is resolved against the project's folder.

    A table of a catalog has the URI of its `TableName`, until it is located: then it has the URI of
    the dataset, and `declared` is the table as the YAML has it. `source` is the label of the source
    that has it, once sources were looked up. `storage_options` may be secret: `repr` omits them.
    `places` has the locations of the names in groups, keys, references and common values, by
    dotted key, such as `groups.0.1`.
    """

    name: str = key(NAME, "The name of the node and of its view in SQL.", role=LABEL)
    uri: str = keys(
        Key(
            ("uri",),
            PathOrUri(title="a path or an object-store URI", keywords={"minLength": 1}),
            "The Lance dataset. Relative paths start at the project's folder.",
            role=MEANING,
            risk=Risk.DATASET_MOVED,
        ),
        Key(
            ("table",),
            TABLE_NAME,
            "The table's name in one of the target's catalogs, `catalog.namespace.table`, instead "
            "of 'uri'.",
            role=MEANING,
            risk=Risk.DATASET_MOVED,
            label="uri",
        ),
    )
    location: Location
    _: KW_ONLY
    storage_options: Mapping[str, str] = key(
        SETTINGS,
        "Options for object stores, which override those of the target.",
        role=CHECK,
        default_factory=dict,
        repr=False,
    )
    description: str | None = key(TEXT, "What a row represents.", role=REMARK, default=None)
    priority: int | None = key(
        PRIORITY,
        "Nodes of higher priority come first in a run that has a budget. It is 0 by default.",
        role=CHECK,
        default=None,
    )
    tags: tuple[str, ...] = key(TAGS, role=REMARK, default=())
    owner: str | None = key(TEXT, "The person or team to ask about it.", role=REMARK, default=None)
    columns: ColumnSelection = key(
        COLUMNS,
        "The columns that get statistics: 'all', which skips columns that cannot be analyzed "
        "(naming one is an error); names and patterns; or the union of 'set' and 'include' (all "
        "columns if neither is given), restricted to 'types', without 'exclude'.",
        role=MEANING,
        risk=Risk.COVERAGE_LOST,
        default_factory=ColumnSelection,
    )
    policy: Policy = key(
        Either(
            title="the name of a policy, or a mapping with 'allow.stale' and 'refresh'",
            shapes=(PUBLIC, Nested(resource=Policy, is_inline=True)),
        ),
        "The stale statistics that readers accept: a shared policy, or one for this table alone. "
        "Without a policy, they accept none.",
        role=MEANING,
        label="",
        default_factory=Policy,
    )
    publish: Publish = key(
        words(Publish, "where statistics go"),
        "Where statistics are published: `manifest` commits them to the table; `none` keeps them "
        "in the state.",
        role=MEANING,
        risk=Risk.PUBLISH_CHANGED,
        warning=_publish_warning,
        default=Publish.MANIFEST,
    )
    histogram: bool = key(
        FLAG,
        "Whether columns of numbers, dates and times also get equi-height histograms, which are "
        "kept in the state and reported to Spark's optimizer. Use it for skewed columns.",
        risk=Risk.COVERAGE_LOST,
        warning=_histogram_warning,
        default=False,
    )
    groups: tuple[Columns, ...] = key(
        GROUPS,
        "Columns that queries join, group or filter by together. The number of distinct "
        "combinations of their values is kept for each group.",
        risk=Risk.COVERAGE_LOST,
        canonical=canonical_groups,
        default=(),
    )
    keys: tuple[Columns, ...] = key(
        KEYS,
        "Columns that identify a row: no two rows are equal in all of them, and none of them is "
        "null. A key of several columns is a group as well.",
        risk=Risk.COVERAGE_LOST,
        canonical=canonical_groups,
        default=(),
    )
    references: tuple[Reference, ...] = key(
        REFERENCES,
        "Columns whose values are those of columns of another table, such as its key. Those of "
        "several columns are a group as well.",
        risk=Risk.COVERAGE_LOST,
        words=references_text,
        canonical=referring_groups,
        default=(),
    )
    common_values: CommonValues | None = key(
        COMMON_VALUES,
        "The most common values of columns and groups to keep in the state, with their counts.",
        risk=Risk.COVERAGE_LOST,
        default=None,
    )
    freshness: Freshness | None = key(
        Nested(resource=Freshness),
        "How old the newest rows may be before 'lancestat status' warns or reports an error. It "
        "does not affect runs.",
        role=CHECK,
        default=None,
    )
    expect: tuple[Expectation, ...] = key(
        EXPECT,
        "What is expected of the rows. 'lancestat check' and 'lancestat status' say what is known "
        "of it without reading them. It does not affect runs.",
        role=CHECK,
        words=expectations_text,
        canonical=canonical_expectations,
        default=(),
    )
    monitors: tuple[Monitor, ...] = key(
        MONITORS,
        "What is watched for values unlike those of the past, beside the project's 'monitors'. "
        "'lancestat check' and 'lancestat status' tell of anomalies. It does not affect runs.",
        role=CHECK,
        words=monitors_text,
        default=(),
    )
    show_values: bool = key(
        FLAG,
        "Whether 'lancestat show', the pages and `lancestat.statistics` show bounds and common "
        "values that are strings or binary. It does not affect runs.",
        role=CHECK,
        risk=Risk.VALUES_SHOWN,
        warning=_show_values_warning,
        default=True,
    )
    places: Mapping[str, Location] = field(default_factory=dict, compare=False, repr=False)
    declared: Table | None = field(default=None, compare=False, repr=False)
    source: str | None = field(default=None, compare=False, repr=False)

    kind = NodeKind.TABLE
    declares: ClassVar[Resource] = Resource(
        "a mapping with 'name' and 'uri' or 'table'",
        "A Lance dataset whose column statistics are kept up to date.",
        noun="table",
        definition="table",
        one_of=("uri", "table"),
    )

    dataset_format: ClassVar[str] = "lance"
    refs: ClassVar[tuple[str, ...]] = ()
    # A run makes no rows.
    result_uri: ClassVar[None] = None

    # The key that gives the URI of what a run writes to.
    uri_key: ClassVar[str] = "uri"

    def __repr__(self) -> str:
        return display.summary(self, f"{self.name}, declared at {self.location}")

    def located(self, uris: Mapping[str, str]) -> Table:
        """Return the node with datasets in place of names of tables, as far as `uris` has them."""
        return replace(self, uri=uris[self.uri], declared=self) if self.uri in uris else self

    def named_refs(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the names of nodes that it names, each with the path of its key."""
        for index, reference in enumerate(self.references):
            yield ("references", index, "table"), reference.table
        for index, expected in enumerate(self.expect):
            if isinstance(expected.check, References):
                yield ("expect", index, "references", "table"), expected.check.table

    def listed_by(self, source: str) -> Table:
        """Return the node as one that a source has, too."""
        return replace(self, source=source)

    @property
    def joint_groups(self) -> tuple[Columns, ...]:
        """The groups of columns that get joint statistics, each set of columns once.

        They are the declared groups, then keys and references of two or more columns.
        """
        referring = (reference.columns for reference in self.references)
        return distinct_groups((*self.groups, *self.keys, *referring))

    @property
    def named_columns(self) -> Iterator[tuple[str, str]]:
        """The columns that groups, keys, references and common values name, each with its key."""
        shared = self.common_values and self.common_values.columns
        named = {
            "groups": self.groups,
            "keys": self.keys,
            "references": [reference.columns for reference in self.references],
        }
        for part, lists in named.items():
            below = ".columns" if part == "references" else ""
            for index, columns in enumerate(lists):
                for number, name in enumerate(columns):
                    yield f"{part}.{index}{below}.{number}", name
        # Tables of a source share what it names, and have what they can of it.
        for number, name in enumerate(shared if shared and self.source is None else ()):
            yield f"common_values.columns.{number}", name

    def needed_columns(self, shared: Sequence[Monitor]) -> Iterator[tuple[str, str]]:
        """Yield the columns whose statistics its declaration uses, each with the table it is of.

        They are those that it names anywhere but in `columns`, and those of other tables that its
        references name. `shared` are the project's monitors.
        """
        common = self.common_values and self.common_values.columns
        watched = (monitor.watched for monitor in with_shared(self.monitors, shared))
        own = {name for _, name in self.named_columns}.union(
            common or (),
            *(each.check.columns for each in self.expect),
            *(each.columns or () for each in watched if isinstance(each, ColumnAnomalies)),
        )
        yield from ((self.name, name) for name in own)
        for reference in (*self.references, *referred(self.expect)):
            yield from ((reference.table, name) for name in reference.to)

    def at(self, name: str) -> Location:
        """Return where the value of a dotted key is written, as far as `places` has it."""
        return self.places.get(name, self.location)

    def of_columns(self, names: Collection[str]) -> Table:
        """Return the table with these columns alone, without what it declares of others."""
        known = frozenset(names)
        rule = ColumnRule(tuple(map(ColumnPattern, names)))
        common = self.common_values
        if common is not None and common.columns is not None:
            left = tuple(name for name in common.columns if name in known)
            common = replace(common, columns=left) if left else None
        if common is not None and common.groups is not None:
            groups = tuple(columns for columns in common.groups if known.issuperset(columns))
            common = replace(common, groups=groups)
        return replace(
            self,
            columns=ColumnSelection(all=False, rules=(rule,)),
            groups=tuple(columns for columns in self.groups if known.issuperset(columns)),
            keys=tuple(columns for columns in self.keys if known.issuperset(columns)),
            references=tuple(each for each in self.references if known.issuperset(each.columns)),
            common_values=common,
            expect=tuple(each for each in self.expect if known.issuperset(each.check.columns)),
        )

    @property
    def dataset_uri(self) -> str:
        """The dataset that the node stands for, where another one names it."""
        return self.uri

    @property
    def input_uris(self) -> tuple[str, ...]:
        """The URIs that the node itself names as what it reads."""
        return (self.uri,)

    @property
    def written_uri(self) -> str | None:
        """The dataset that a run of the node writes to, None where it writes to none."""
        return self.uri if self.publish.commits else None
