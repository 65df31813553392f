"""The resources of a project as values, and the declarations of their keys.

Values are resolved: templates are rendered, names looked up and defaults filled in. A new key of a
resource is a new field here; see docs/recipes/table-key.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from lancestat import display
from lancestat.arguments import check_name
from lancestat.errors import Location, UnknownTable, did_you_mean
from lancestat.formats import StringEnum, count
from lancestat.redact import EMPTY_REDACTOR, Origin, Redactor, is_commonplace, secret_options
from lancestat.spec.budget import NO_BUDGET, Budget
from lancestat.spec.catalog import Catalog, UriOptions
from lancestat.spec.column_selection import ColumnPattern as ColumnPattern
from lancestat.spec.column_selection import ColumnRule as ColumnRule
from lancestat.spec.column_selection import ColumnSelection as ColumnSelection
from lancestat.spec.declaration import (
    DURATION,
    FLAG,
    NAME,
    SETTINGS,
    SIZE,
    START,
    TEXT,
    ByName,
    Declared,
    Either,
    Listed,
    Nested,
    PathOrUri,
    Resource,
    Role,
    Shape,
    Text,
    key,
    key_fields,
    resource,
    words,
)
from lancestat.spec.duplicates import Duplicates as Duplicates
from lancestat.spec.hooks import NO_HOOKS, Hooks
from lancestat.spec.knn_join import KnnJoin as KnnJoin
from lancestat.spec.knn_join import KnnSide as KnnSide
from lancestat.spec.monitors import MONITORS, Monitor, monitors_text, with_shared
from lancestat.spec.relations import CommonValues as CommonValues
from lancestat.spec.relations import Reference as Reference
from lancestat.spec.source import SCHEME
from lancestat.spec.source import Source as Source
from lancestat.spec.table import ColumnSet as ColumnSet
from lancestat.spec.table import Freshness as Freshness
from lancestat.spec.table import NodeKind as NodeKind
from lancestat.spec.table import Policy as Policy
from lancestat.spec.table import Publish as Publish
from lancestat.spec.table import Refresh as Refresh
from lancestat.spec.table import StaleBounds as StaleBounds
from lancestat.spec.table import Table as Table

Node = Table | KnnJoin | Duplicates


def is_stand_in(node: Node) -> bool:
    """Whether a node stands for a source, or for a table that a source should have."""
    return node.dataset_uri.startswith(SCHEME)


def is_source(node: Node) -> bool:
    """Whether a node stands for a source; names of other nodes have no colon."""
    return is_stand_in(node) and ":" in node.name


def kind_word(node: Node) -> str:
    """Return the kind of a node as people and artifacts call it."""
    return "source" if is_source(node) else node.kind.value


def tables_of(nodes: Iterable[Node]) -> tuple[Table, ...]:
    return tuple(node for node in nodes if isinstance(node, Table))


def expects_something(node: Node, shared: Sequence[Monitor]) -> bool:
    """Return whether a node has expectations or monitors, its own or those of its project."""
    return isinstance(node, Table) and bool(node.expect or with_shared(node.monitors, shared))


def duplicates_of(nodes: Iterable[Node]) -> tuple[Duplicates, ...]:
    return tuple(node for node in nodes if isinstance(node, Duplicates))


def results_of(node: Node) -> tuple[str, ...]:
    """Return the datasets that a run of a node writes."""
    if isinstance(node, Duplicates):
        return node.output_uri, node.pairs_place
    return () if node.result_uri is None else (node.result_uri,)


def joins_of(nodes: Iterable[Node]) -> tuple[KnnJoin, ...]:
    return tuple(node for node in nodes if isinstance(node, KnnJoin))


class Reader(StringEnum):
    """The readers of a table's rows in Spark; its statistics come from lancestat either way."""

    LANCESTAT = "lancestat"
    CONNECTOR = "connector"


_FOLDER = PathOrUri(title="a folder or an object-store URI", keywords={"minLength": 1})
_LISTEN = Either(
    title="true, false, or the path of a folder",
    shapes=(
        FLAG,
        PathOrUri(
            title="the path of a folder",
            keywords={"minLength": 1, "pattern": r"^(?![A-Za-z][A-Za-z0-9+.-]*://)"},
        ),
    ),
)


@resource
class Target:
    """A target; `storage_options` and `spark_conf` may be secret: `repr` omits them.

    `package_location` is where `spark_package` is written, and `state_budget_location` likewise.
    """

    name: str
    state: str = key(
        _FOLDER,
        "Where partial statistics and run records are kept. It is a cache: deleting it costs "
        "time, never correctness.",
        default=".lancestat/state",
    )
    _: KW_ONLY
    scratch: str | None = key(
        _FOLDER, "Temporary storage for KNN joins, which all executors must reach.", default=None
    )
    listen: bool | str = key(
        _LISTEN,
        "Whether sessions that tables are attached to record, for `lancestat advise`, which "
        "columns queries use. Nothing else of a query is kept. They do it in 'queries' below the "
        "state's folder, or in the folder that is named.",
        default=False,
    )
    spark_master: str | None = key(
        Text(title="a Spark master such as local[*]", keywords={"minLength": 1}),
        "Spark's master URL.",
        "spark",
        "master",
        default=None,
    )
    spark_remote: str | None = key(
        Text(
            title="the URL of a Spark Connect server such as sc://host:15002",
            keywords={"pattern": r"^sc://[^/;\s]+(?:/(?:;.*)?)?$(?!\n)"},
        ),
        "The URL of a Spark Connect server, in place of a master: `sc://host:port/;token=...`. It "
        "is never shown. Take tokens from {{ env_var('X') }}.",
        "spark",
        "remote",
        default=None,
        repr=False,
    )
    spark_connect_timeout: timedelta | None = key(
        DURATION,
        "How long to keep trying a Spark Connect server that does not answer (default: 60s) before "
        "the node fails.",
        "spark",
        "connect_timeout",
        default=None,
    )
    spark_conf: Mapping[str, str] = key(
        replace(SETTINGS, title="a mapping of Spark settings"),
        "Spark settings by name. Numbers and booleans are passed on as Spark spells them.",
        "spark",
        "conf",
        default_factory=dict,
        repr=False,
    )
    spark_min_bytes: int = key(
        SIZE,
        "If less than this of a table is to be read, the master is local and no session is "
        "running, the table is analyzed in lancestat's own process. Of more than 100,000 columns "
        "of fragments each counts as 40 kB. 0: always on Spark.",
        "spark",
        "min_bytes",
        default=4_000_000_000,
    )
    spark_package: str | None = key(
        replace(_FOLDER, title="an archive that `lancestat package` wrote, or a URI of one"),
        "An archive from `lancestat package`, for a cluster whose workers do not have lancestat. "
        "It is added to `spark.archives`; local masters do not need it.",
        "spark",
        "package",
        default=None,
    )
    package_location: Location | None = field(default=None, compare=False)
    budget: Budget = key(
        Nested(resource=Budget),
        "What a run may read, and how long it may take. `--max-bytes` and `--max-minutes` override "
        "it.",
        default=NO_BUDGET,
    )
    state_budget: int | None = key(
        replace(SIZE, title="a size such as 20GB, or a number of bytes"),
        "How much partial statistics of the target's tables may take in the state. Beyond it those "
        "of neighbouring fragments are folded into one, and read again together.",
        default=None,
    )
    state_budget_location: Location | None = field(default=None, compare=False)
    reader: Reader = key(
        words(Reader, "'lancestat' or 'connector'"),
        "What reads the rows of queries: lancestat, or the Lance connector for Spark, which must "
        "be on Spark's class path. The statistics are the same.",
        default=Reader.LANCESTAT,
    )
    storage_options: Mapping[str, str] = key(
        replace(SETTINGS, title="a mapping of storage options"),
        "Options for object stores, as Lance names them (aws_region, aws_endpoint, ...). Take "
        "secrets from {{ env_var('X') }}.",
        default_factory=dict,
        repr=False,
    )

    catalogs: Mapping[str, Catalog] = key(
        ByName(
            title="a mapping of catalogs",
            names=Text(title=NAME.title, keywords=NAME.keywords),
            items=Nested(resource=Catalog),
        ),
        "Catalogs, by the names that tables and queries use.",
        default_factory=dict,
        repr=False,
    )

    @property
    def master(self) -> str | None:
        """Spark's master URL, None where spark-submit or Spark's own configuration decides."""
        return self.spark_master or self.spark_conf.get("spark.master")

    @property
    def query_log(self) -> str | None:
        """The folder in which attached sessions record their queries, None where they do not."""
        if self.listen is True:
            return None if "://" in self.state else f"{self.state}/queries"
        return self.listen or None

    declares: ClassVar[Resource] = Resource(
        "a mapping",
        "Where to run: Spark, state, scratch and storage.",
        noun="target",
        definition="target",
        groups={
            "spark": Resource(
                "a mapping with 'master' and 'conf'",
                "The Spark session. Without 'master' and 'remote', spark-submit or the existing "
                "session decides.",
            )
        },
    )


@dataclass(init=False, eq=False, repr=False)
class ProjectFile:
    """The keys of `lancestat_project.yml`; `load` reads the values one by one."""

    name: str = key(NAME, "The name of the project, as plans and run records show it.")
    description: str | None = key(TEXT, "What the project is for.", default=None)
    spec_paths: tuple[str, ...] = key(
        Listed(
            title="a list of folders",
            items=Text(title="a folder", keywords={"minLength": 1}),
            is_filled=True,
        ),
        "Folders whose .yml and .yaml files, at any depth, declare tables, column sets, "
        "policies and KNN joins. Relative to the project's folder.",
        default=("specs",),
    )
    vars: Mapping[str, object] = key(
        Shape(title="a mapping of variables", keywords={"type": "object"}),
        "Values for {{ var('name') }}, which the option --vars overrides. A value may use "
        "env_var() and target.name.",
        default_factory=dict,
    )
    default_target: str | None = key(
        Text(title="the name of a target", keywords={"minLength": 1}),
        "The target to use without --target. It is not needed if there is only one.",
        default=None,
    )
    hooks: Hooks = key(  # noqa: RUF009
        Nested(resource=Hooks),
        "Functions and webhooks that runs call: `run`, `retry` and `ANALYZE TABLE`.",
        default_factory=Hooks,
    )
    monitors: tuple[Monitor, ...] = key(
        MONITORS,
        "Monitors of all tables, but for those that a table declares itself.",
        words=monitors_text,
        default=(),
    )
    targets: Mapping[str, Target] = key(
        ByName(
            title="a mapping of targets",
            names=Text(
                title="a name of letters, digits, '_', '-' and '.', starting with a letter, a "
                "digit or '_'",
                keywords={
                    "pattern": START + r"[^\u0000-,/:-@\[-^`{-\u00a9]*$(?!\n)",
                    "format": "lancestat-target",
                },
            ),
            items=Nested(resource=Target),
        ),
        "Where the project runs, by name.",
        kw_only=True,
    )

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'name' and 'targets'",
        "lancestat_project.yml: the name of a project, its variables and the targets it runs on. "
        "Any text may contain Jinja.",
    )


@dataclass(init=False, eq=False, repr=False)
class SpecFile:
    """The keys of a spec file, of which no instances are made."""

    tables: tuple[Table, ...] = key(
        Listed(title="a list of tables", items=Nested(resource=Table)),
        "Lance datasets whose column statistics are kept up to date.",
        default=(),
    )
    column_sets: tuple[ColumnSet, ...] = key(
        Listed(title="a list of column sets", items=Nested(resource=ColumnSet)),
        "Selections of columns that tables share.",
        default=(),
    )
    policies: tuple[Policy, ...] = key(
        Listed(title="a list of policies", items=Nested(resource=Policy)),
        "Which stale statistics readers accept, by name.",
        default=(),
    )
    knn_joins: tuple[KnnJoin, ...] = key(
        Listed(title="a list of KNN joins", items=Nested(resource=KnnJoin)),
        "Nearest-neighbour joins, whose results are written to datasets.",
        default=(),
    )
    duplicates: tuple[Duplicates, ...] = key(
        Listed(title="a list of near-duplicates", items=Nested(resource=Duplicates)),
        "Near-duplicates of tables, in groups that are written to datasets.",
        default=(),
    )
    sources: tuple[Source, ...] = key(
        Listed(title="a list of sources", items=Nested(resource=Source)),
        "Catalogs and folders whose tables become nodes.",
        default=(),
    )

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'tables', 'column_sets', 'policies', 'knn_joins', 'duplicates' or "
        "'sources'",
        "A lancestat spec file: any of the lists 'tables', 'column_sets', 'policies', "
        "'knn_joins', 'duplicates' and 'sources'. Any text may contain Jinja: {{ var('x') }}, "
        "{{ env_var('X') }}, {{ target.name }}, and in 'sql' {{ ref('table') }}.",
        is_filled=True,
    )


RESOURCES: Mapping[str, type[Declared]] = {
    "tables": Table,
    "column_sets": ColumnSet,
    "policies": Policy,
    "knn_joins": KnnJoin,
    "duplicates": Duplicates,
    "sources": Source,
}
"""The resources of spec files, by the key of their list."""

NODES: Mapping[str, type[Node]] = {
    key: kind for key, kind in RESOURCES.items() if issubclass(kind, Node)
}
"""Those that are nodes."""


NO_OPTIONS = UriOptions({})


@dataclass(frozen=True, slots=True)
class ProjectSpec:
    """A whole project under one target. Nodes are in the order of their files and lines.

    `origins` has, by node and dotted key, where values came from the environment, and
    `target_origins` those of the target's settings. `redactor` finds such values in texts, and all
    storage options. `options` has the storage options of every dataset by its URI. The tables of
    `sources` are among the nodes once they have been looked up, and `source_notes` are sentences on
    what that has shown of their patterns.
    """

    name: str
    root: Path
    target: Target
    nodes: tuple[Node, ...]
    policies: Mapping[str, Policy]
    origins: Mapping[str, Mapping[str, Origin]] = field(default_factory=dict)
    target_origins: Mapping[str, Origin] = field(default_factory=dict)
    redactor: Redactor = field(default=EMPTY_REDACTOR, repr=False, compare=False)
    options: UriOptions = field(default=NO_OPTIONS, repr=False, compare=False)
    sources: tuple[Source, ...] = ()
    source_notes: tuple[str, ...] = ()
    hooks: Hooks = NO_HOOKS
    monitors: tuple[Monitor, ...] = ()

    def __post_init__(self) -> None:
        target = self.target
        known = [*secret_options(target.storage_options)]
        for catalog in target.catalogs.values():
            known += secret_options(catalog.secret_properties)
        for table in self.tables:
            known += secret_options(table.storage_options)
        for join in self.joins:
            known += (*secret_options(join.left.options), *secret_options(join.right.options))
        object.__setattr__(self, "redactor", self.redactor.with_known(known))
        if self.options is NO_OPTIONS:
            declared = {
                table.uri: {**target.storage_options, **table.storage_options}
                for table in self.tables
                if table.storage_options
            }
            object.__setattr__(self, "options", UriOptions(target.storage_options, declared))

    def __repr__(self) -> str:
        return self.summary(self)

    def summary(self, value: object) -> str:
        """Return the `repr` of a value that is about the whole project."""
        counts = [
            count(len(self.tables), "table"),
            *([count(len(self.joins), "KNN join")] if self.joins else []),
            *([count(len(self.duplicates), "duplicates node")] if self.duplicates else []),
            *([count(len(self.sources), "source")] if self.sources else []),
        ]
        what = f"{self.name}, target {self.target.name}: {', '.join(counts)}"
        return display.summary(value, what)

    @property
    def tables(self) -> tuple[Table, ...]:
        return tables_of(self.nodes)

    @property
    def joins(self) -> tuple[KnnJoin, ...]:
        return joins_of(self.nodes)

    @property
    def duplicates(self) -> tuple[Duplicates, ...]:
        return duplicates_of(self.nodes)

    def node(self, name: str) -> Node | None:
        return next((node for node in self.nodes if node.name == name), None)

    def table(self, name: str) -> Table:
        """Return the declared table of a name.

        Raises:
            UnknownTable: There is none.
            InvalidArgument: The name is no string.
        """
        check_name("table", name)
        node = self.node(name)
        if isinstance(node, Table):
            return node
        if node is not None:
            noun = node.declares.noun.replace("knn", "KNN")
            raise UnknownTable(
                f"'{name}' is a {noun}, and only tables have statistics",
                hint="declare a table over its result",
            )
        hint = did_you_mean(name, [table.name for table in self.tables], "declared tables")
        raise UnknownTable(f"no table '{name}' is declared", hint=hint)


LOCAL_ATTEMPTS = 4

_LOCAL = re.compile(r"local(?:\[([^\],]+)(?:,\s*(\d+))?\])?")


def is_local(master: str) -> bool:
    return _LOCAL.fullmatch(master) is not None


def local_cores(master: str) -> int | None:
    """Return the cores of a local master, None of another one."""
    matched = _LOCAL.fullmatch(master)
    if matched is None:
        return None
    threads = matched.group(1) or "1"
    return int(threads) if threads.isdecimal() else os.cpu_count() or 1


def with_attempts(master: str, attempts: str | None = None) -> str:
    """Return a local master that retries failed tasks as clusters do; Spark's own does not."""
    matched = _LOCAL.fullmatch(master)
    if matched is None or matched.group(2) is not None:
        return master
    return f"local[{matched.group(1) or 1},{attempts or LOCAL_ATTEMPTS}]"


DEFAULT_REMOTE_PORT = 15002


def remote_address(remote: str) -> tuple[str, int]:
    url = urlsplit(remote.partition(";")[0])
    return url.hostname or "localhost", url.port or DEFAULT_REMOTE_PORT


def remote_secrets(remote: str) -> Iterator[str]:
    """Yield the URL of a server, and the values of its parameters, such as `token`."""
    yield remote
    for parameter in remote.partition(";")[2].split(";"):
        name, _, value = parameter.partition("=")
        is_secret = name not in ("use_ssl", "user_id") and not is_commonplace(value)
        if value and (name == "token" or is_secret):
            yield value
            yield unquote(value)


DIGEST_VERSION = 1

Meaning = dict[str, Any]

_JSON_SCALARS = frozenset((str, int, float, bool, type(None)))


def node_digest(node: Node) -> str:
    """Return SHA-256, in hex, of what a run does for the node and what readers accept of it.

    Keys whose role is neither `MEANING` nor `OPTION` have no part in it, nor have formatting,
    locations, and whether a policy or a column set is inline or named. It is stable across runs and
    releases, as long as `DIGEST_VERSION` stays.
    """
    meaning = _meaning(node.declared or node)
    text = json.dumps([DIGEST_VERSION, node.kind.value, meaning], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _meaning(resource: Declared) -> Meaning:
    meaning: Meaning = {}
    for declared in key_fields(type(resource)):
        key, value = declared.first, getattr(resource, declared.name)
        if key.canonical is not None:
            value = key.canonical(value)
        if key.role is Role.OPTION and value != declared.default:
            meaning[key.label or key.name] = _json_value(value)
        elif key.role is Role.MEANING and key.path[0] in resource.declares.groups:
            # The keys of a group are a list, in their order.
            meaning.setdefault(key.path[0], []).append(_json_value(value))
        elif key.role is Role.MEANING:
            meaning[key.label or key.name] = _json_value(value)
    return meaning


def _json_value(value: Any) -> Any:
    if type(value) in _JSON_SCALARS:
        return value
    match value:
        case Enum():
            return value.value
        case timedelta():
            return value.total_seconds()
        case ColumnSelection():
            return _columns(value)
        case Policy() | StaleBounds() | KnnSide() | CommonValues():
            return _meaning(value)
        case frozenset():
            return sorted(value)
        case Mapping():
            return dict(value)
        case tuple():
            return [_json_value(item) for item in value]
    return value


def _columns(selection: ColumnSelection) -> Meaning:
    return {
        "all": selection.all,
        "rules": sorted((_rule(rule) for rule in selection.rules), key=json.dumps),
        "exclude": _patterns(selection.exclude),
    }


def _rule(rule: ColumnRule) -> Meaning:
    return {
        "include": _patterns(rule.include),
        "exclude": _patterns(rule.exclude),
        "types": None if rule.types is None else sorted(rule.types),
    }


def _patterns(patterns: tuple[ColumnPattern, ...]) -> list[str]:
    return sorted({pattern.text for pattern in patterns})
