"""Values of the resources, from mappings that the schemas accepted."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lancestat.errors import (
    LancestatError,
    Location,
    MissingKey,
    NotPlainQuery,
    ReferenceMismatch,
    SpecError,
    UnknownReference,
    WrongValue,
    did_you_mean,
)
from lancestat.formats import quoted
from lancestat.redact import Origin
from lancestat.spec.catalog import TABLE_NAME, Catalog, parse_table_name
from lancestat.spec.declaration import (
    ByName,
    Chosen,
    Declared,
    Either,
    KeyField,
    Listed,
    Nested,
    PathOrUri,
    Pattern,
    Settings,
    Shape,
    Text,
    key_fields,
    span,
)
from lancestat.spec.document import KeyPath
from lancestat.spec.expectations import Expectation, References, Unique, expectation_objections
from lancestat.spec.files import resolve_uri
from lancestat.spec.hooks import Hook, Hooks, secret_objection
from lancestat.spec.knn_join import ALL, KeyPair, Mode, Pairs, distance_objection
from lancestat.spec.model import (
    ColumnPattern,
    ColumnRule,
    ColumnSelection,
    ColumnSet,
    Duplicates,
    Freshness,
    KnnJoin,
    KnnSide,
    Node,
    Policy,
    StaleBounds,
    Table,
    Target,
)
from lancestat.spec.monitors import MONITORS, ColumnAnomalies, Monitor, monitor_objections
from lancestat.spec.names import Item, Namespace, render
from lancestat.spec.redaction import named
from lancestat.spec.relations import Reference, relation_objections, width_objection
from lancestat.spec.source import WORDS, Source, SourceDefaults
from lancestat.spec.table import ColumnChoice
from lancestat.spec.template import TemplateScope


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds the resources of a project in `root`; what is wrong is appended to `errors`.

    `sets` and `policies` are those that tables name; they have to be built first. `catalogs` are
    the names of those of the target, None where they are not known.
    """

    root: Path
    errors: list[LancestatError]
    catalogs: Collection[str] | None = None
    sets: Namespace[ColumnSet] = field(default_factory=lambda: Namespace("column set"))
    policies: Namespace[Policy] = field(default_factory=lambda: Namespace("policy"))

    def column_set(self, item: Item) -> ColumnSet:
        return ColumnSet(**self._values(ColumnSet, item))

    def policy(self, item: Item, *steps: str) -> Policy:
        """Return the policy in the mapping at `steps` of an item."""
        values = self._values(Policy, item, *steps)
        template = named(item.origins_below(*steps), "allow.stale", "refresh")
        return Policy(**values, template=template)

    def node(self, kind: type[Node], item: Item) -> Node:
        """Return the node of a kind that an item declares."""
        if kind is Table:
            return self.table(item)
        if kind is KnnJoin:
            return self.knn_join(item)
        if kind is Duplicates:
            return self.duplicates(item)
        return kind(**self._values(kind, item), location=item.location)

    def table(self, item: Item) -> Table:
        values = self._values(Table, item)
        values["columns"] = self._columns(item, values["columns"], "columns")
        values["policy"] = self._policy(item, values["policy"], "policy")
        names = ("groups", "keys", "references", "common_values")
        for message, steps in relation_objections(*(values[name] for name in names)):
            self.errors.append(item.error(WrongValue, message, *steps))
        if values["monitors"]:
            values["monitors"] = self.monitors(item, "monitors")
        for message, steps in expectation_objections(values["expect"]):
            self.errors.append(item.error(WrongValue, message, "expect", *steps))
        places = {
            ".".join(map(str, steps)): item.at(*steps)
            for name in (*names, "expect")
            for steps in _steps_below(item.value.get(name), (name,))
        }
        return Table(**values, location=item.location, places=places)

    def knn_join(self, item: Item) -> KnnJoin:
        self._refuse(item, _join_objections(item))
        values = self._values(KnnJoin, item)
        if values["output_format"] == "table":
            values["output_format"] = "lance"
        on = values["on"]
        values["on"] = tuple((key, key) if isinstance(key, str) else key for key in on)
        on_location = item.at("on") if on else None
        return KnnJoin(
            **values,
            location=item.location,
            on_location=on_location,
            self_location=_self_location(item, values),
        )

    def duplicates(self, item: Item) -> Duplicates:
        self._refuse(item, _duplicates_objections(item))
        values = self._values(Duplicates, item)
        table = values["table"]
        if table is not None and "." in table:
            uri = self._catalog_table(item, table, "table")
            values = {**values, "table": None, "uri": uri}
        places = {
            ".".join(map(str, steps)): item.at(*steps)
            for name in item.value
            for steps in _steps_below(item.value[name], (name,))
        }
        node = Duplicates(**values, location=item.location, places=places)
        if node.pairs_place.rstrip("/") == node.output_uri.rstrip("/"):
            message = "'pairs' and 'output' are the same place"
            hint = "give the pairs a place of their own"
            self.errors.append(item.error(WrongValue, message, "pairs", hint=hint))
        return node

    def source(self, item: Item, scope: TemplateScope, origins: Mapping[str, Origin]) -> Source:
        """Return the source that an item declares."""
        values = self._values(Source, item)
        catalog = values["catalog"]
        if catalog is not None:
            message = f"the target has no catalog {item.quoted(catalog, 'catalog')}"
            self._check_catalog(item, catalog, message, "catalog")
        try:
            sample = render(
                values["name"],
                replace(scope, words=dict.fromkeys(WORDS, "sample")),
                item.at("name"),
            )
        except SpecError as error:
            self.errors.append(error)
        else:
            origin = sample.origin()
            if origin is not None and origin.is_of_environment:
                message = f"the names of tables come from the environment, from {origin.names}"
                hint = "write the name itself; names are shown, stored and published"
                self.errors.append(item.error(WrongValue, message, "name", hint=hint))
        location = item.at("catalog" if catalog is not None else "uri")
        return Source(**values, location=location, origins=origins, scope=scope)

    def target(self, item: Item, name: str) -> Target:
        spark = item.value.get("spark", {})
        self._refuse(item, _target_objections(spark))
        target = Target(
            name,
            **self._values(Target, item),
            package_location=item.at("spark", "package") if "package" in spark else None,
            state_budget_location=item.at("state_budget"),
        )
        if target.listen is True and target.query_log is None:
            message = "the state is in no folder of this machine, so 'listen' has to name one"
            self.errors.append(item.error(WrongValue, message, "listen"))
        return target

    def monitors(self, item: Item, *steps: str) -> tuple[Monitor, ...]:
        """Return the monitors in the list at `steps` of an item."""
        monitors: tuple[Monitor, ...] = self._read(MONITORS, item, *steps)
        for message, index in monitor_objections(monitors):
            self.errors.append(item.error(WrongValue, message, *steps, index))
        return monitors

    def hooks(self, item: Item) -> Hooks:
        """Return the hooks of a project, whose key `hooks` is the item."""
        for index, hook in enumerate(item.value.get("on_run_start", ())):
            if "when" in hook:
                message = "'when' is for hooks of 'on_run_end'"
                steps = ("on_run_start", index, "when")
                self.errors.append(item.error(WrongValue, message, *steps))
        return Hooks(**self._values(Hooks, item))

    def _values(self, resource: type[Declared], item: Item, *steps: str | int) -> dict[str, Any]:
        """Return the arguments of a resource that the mapping at `steps` of an item gives."""
        mapping = _at(item.value, steps)
        return {
            declared.name: self._value(declared, mapping, item, *steps)
            for declared in key_fields(resource)
        }

    def _value(
        self, declared: KeyField, mapping: Mapping[str, Any], item: Item, *steps: str | int
    ) -> Any:
        for key in declared.keys:
            if isinstance(key.shape, Chosen):
                chosen = (path for path in key.shape.paths if _has(mapping, path))
                path = next(chosen, None)
                if path is not None:
                    return path[-1]
            elif _has(mapping, key.path):
                return self._read(key.shape, item, *steps, *key.path)
        if isinstance(declared.first.shape, PathOrUri) and declared.default is not None:
            return resolve_uri(self.root, declared.default)
        return declared.default

    def _read(self, shape: Shape, item: Item, *steps: str | int) -> Any:
        value = _at(item.value, steps)
        match shape:
            case PathOrUri():
                return self._absolute(item, value, *steps)
            case Text() if shape is TABLE_NAME:
                return self._catalog_table(item, value, *steps)
            case Pattern():
                return ColumnPattern(value, item.at(*steps))
            case Listed(items=items, is_ordered=is_ordered):
                parts = (self._read(items, item, *steps, index) for index in range(len(value)))
                return tuple(parts) if is_ordered else frozenset(parts)
            case Settings():
                return item.settings(*map(str, steps))
            case Nested(resource=resource):
                return self._nested(resource, item, *steps)
            case Either(shapes=shapes):
                inner = next(candidate for candidate in shapes if _may_be(candidate, value))
                return self._read(inner, item, *steps)
            case ByName(items=items):
                return {name: self._read(items, item, *steps, name) for name in value}
        try:
            return value if shape.read is None else shape.read(value)
        except ValueError as error:
            message = f"'{steps[-1]}' {error}, found {item.quoted(value, *steps)}"
            self.errors.append(item.error(WrongValue, message, *steps))
            return None

    def _nested(self, resource: type[Declared], item: Item, *at: str | int) -> Any:
        steps = [*map(str, at)]
        if resource is Policy:
            return self.policy(item, *steps)
        values = self._values(resource, item, *at)
        if resource is KeyPair:
            return values["left"], values["right"]
        if resource is KnnSide:
            return self._side(item, values, *steps)
        if resource is Expectation and isinstance(values["check"], tuple):
            values["check"] = Unique(columns=values["check"])
        elif resource is Monitor and isinstance(values["watched"], tuple):
            values["watched"] = ColumnAnomalies(columns=values["watched"])
        elif resource is SourceDefaults:
            values["columns"] = self._columns(item, values["columns"], *steps, "columns")
            values["policy"] = self._policy(item, values["policy"], *steps, "policy")
            for message, path in relation_objections(common=values["common_values"]):
                self.errors.append(item.error(WrongValue, message, *steps, *path))
            if values["monitors"]:
                values["monitors"] = self.monitors(item, *steps, "monitors")
        elif resource is Catalog and values["impl"] == "dir" and "root" in values["properties"]:
            root = values["properties"]["root"]
            root = self._absolute(item, root, *steps, "properties", "root")
            values["properties"] = {**values["properties"], "root": root}
        elif resource is Freshness:
            self._refuse(item, _freshness_objections(item, *steps))
        if resource in (Expectation, Monitor, Hook):
            values["location"] = item.at(*at)
        elif resource in (StaleBounds, Freshness):
            below = item.origins_below(*steps)
            values["templates"] = {part: origin.template for part, origin in below.items()}
        made = resource(**values)
        self._check_nested(made, item, *at)
        return made

    def _check_nested(self, made: object, item: Item, *at: str | int) -> None:
        if isinstance(made, Reference | References):
            objection = width_objection(made if isinstance(made, Reference) else made.reference)
            if objection is not None:
                self.errors.append(item.error(ReferenceMismatch, objection, *at, "to"))
        elif isinstance(made, Hook):
            refused = secret_objection(made.secret or "")
            if refused is not None:
                self.errors.append(item.error(WrongValue, refused, *at, "secret"))

    def _absolute(self, item: Item, text: str, *steps: str | int) -> str:
        try:
            return resolve_uri(self.root, text)
        except ValueError as error:
            self.errors.append(item.error(WrongValue, f"'{steps[-1]}' {error}", *steps))
            return text

    def _catalog_table(self, item: Item, text: str, *steps: str | int) -> str:
        """Return the URI that stands for a table of a catalog."""
        try:
            table = parse_table_name(text)
        except ValueError as error:
            self.errors.append(item.error(WrongValue, f"'{steps[-1]}' {error}", *steps))
            return text
        message = f"the target has no catalog {quoted(table.catalog)}"
        if item.origin(*steps) is not None:
            message = f"the target has no such catalog as {item.quoted(text, *steps)} names"
        self._check_catalog(item, table.catalog, message, *steps)
        return table.uri

    def _check_catalog(self, item: Item, name: str, message: str, *steps: str | int) -> None:
        if self.catalogs is not None and name not in self.catalogs:
            hint = None if item.origin(*steps) else did_you_mean(name, self.catalogs)
            hint = hint or f"declared: {', '.join(self.catalogs) or 'none'}"
            self.errors.append(item.error(UnknownReference, message, *steps, hint=hint))

    def _refuse(self, item: Item, objections: Iterable[_Objection]) -> None:
        for kind, message, hint, *steps in objections:
            self.errors.append(item.error(kind, message, *steps, hint=hint))

    def _side(self, item: Item, values: Mapping[str, Any], *steps: str) -> KnnSide:
        self.errors.extend(_writing_errors(item, values, *steps))
        table, has_query = values["table"], values["sql"] is not None
        has_filter = values["where"] is not None
        if has_filter and table is None and values["format"] != "lance":
            message = "'where' is for sides that are a 'table' or a 'lance' dataset"
            hint = "filter other rows with a 'sql' side"
            self.errors.append(item.error(WrongValue, message, *steps, "where", hint=hint))
        where = item.at(*steps, "where") if has_filter else None
        if table is not None and "." in table:
            # The names of nodes have no dots.
            uri = self._catalog_table(item, table, *steps, "table")
            values = {**values, "table": None, "format": "lance", "uri": uri}
            return KnnSide(**values, where_location=where)
        refs = item.refs.get((*item.path, *steps, "sql"), ()) if table is None else (table,)
        location = item.at(*steps, "sql") if has_query else None
        return KnnSide(**values, refs=refs, sql_location=location, where_location=where)

    def _columns(self, item: Item, columns: Any, *steps: str) -> ColumnSelection:
        if isinstance(columns, tuple):
            return ColumnSelection(all=False, rules=(ColumnRule(columns),))
        if not isinstance(columns, ColumnChoice):
            return ColumnSelection()
        rules: list[ColumnRule] = []
        if columns.set is not None:
            error = self.sets.unknown(columns.set, item, *steps, "set")
            shared = self.sets.values.get(columns.set)
            if error is not None:
                self.errors.append(error)
            elif shared is not None:
                rules.append(_narrowed(shared, columns.types))
        if columns.include:
            rules.append(ColumnRule(columns.include, types=columns.types))
        elif columns.types is not None and not rules:
            rules.append(ColumnRule((ColumnPattern("*"),), types=columns.types))
        return ColumnSelection(all=not rules, rules=tuple(rules), exclude=columns.exclude)

    def _policy(self, item: Item, policy: str | Policy, *steps: str) -> Policy:
        if isinstance(policy, Policy):
            return policy
        error = self.policies.unknown(policy, item, *steps)
        if error is not None:
            self.errors.append(error)
        return self.policies.values.get(policy) or Policy(policy)


# The code, message and hint of what is wrong with keys that the schema accepts one by one, and the
# steps to where that is.
_Objection = tuple[Any, ...]


def _target_objections(spark: Mapping[str, Any]) -> Iterator[_Objection]:
    if "remote" in spark and ("master" in spark or "spark.master" in spark.get("conf", {})):
        message = "'remote' names a server, which has its own master: leave out one of them"
        yield WrongValue, message, None, "spark", "remote"
    if "remote" in spark and "package" in spark:
        message = "'package' is not for servers, whose workers have their own modules"
        yield WrongValue, message, None, "spark", "package"


def _freshness_objections(item: Item, *steps: str) -> Iterator[_Objection]:
    value = _at(item.value, steps)
    warn, error = value.get("warn_after"), value.get("error_after")
    if warn is not None and error is not None and span(error) < span(warn):
        message = (
            f"'error_after' must not be shorter than 'warn_after', "
            f"{item.quoted(warn, *steps, 'warn_after')}, "
            f"found {item.quoted(error, *steps, 'error_after')}"
        )
        yield WrongValue, message, None, *steps, "error_after"


def _join_objections(item: Item) -> Iterator[_Objection]:
    value = item.value
    yield from _mode_objections(item)
    distance, is_range = value.get("max_distance"), value["k"] == ALL
    if is_range and distance is None:
        message = "'k: all' needs a 'max_distance', within which all rows are neighbours"
        yield MissingKey, message, "max_distance: 0.3", "k"
    if not is_range and "max_pairs" in value:
        yield WrongValue, "'max_pairs' needs 'k: all'", None, "max_pairs"
    yield from _distance_objections(item)
    if "keep" in value["output"] and "parquet" in value["output"]:
        message = "'keep' is for an output that is a 'lance' dataset or a 'table'"
        hint = "Parquet has no versions: the result before the last one is kept, no other"
        yield WrongValue, message, hint, "output", "keep"


def _duplicates_objections(item: Item) -> Iterator[_Objection]:
    yield from _mode_objections(item)
    yield from _distance_objections(item)


def _mode_objections(item: Item) -> Iterator[_Objection]:
    is_approximate = item.value.get("mode") == Mode.APPROX.value
    approx = item.value.get("approx")
    if approx and not is_approximate:
        yield WrongValue, "'approx' needs 'mode: approx'", None, "approx"
    if is_approximate and not approx:
        message = "'mode: approx' needs 'approx' with 'nprobes' or 'recall'"
        yield MissingKey, message, "approx: {recall: 0.95}", "mode"


def _distance_objections(item: Item) -> Iterator[_Objection]:
    value = item.value
    distance = value.get("max_distance")
    if distance is not None:
        reason = distance_objection(float(distance), value.get("metric", "l2"))
        if reason is not None:
            found = item.quoted(f"{distance:g}", "max_distance")
            yield WrongValue, f"'max_distance' {reason}, found {found}", None, "max_distance"


def _may_be(shape: Shape, value: object) -> bool:
    """Whether a value has the JSON type of one of the shapes of an `Either`."""
    match shape:
        case Listed():
            return isinstance(value, list)
        case Nested():
            return isinstance(value, dict)
    kind = shape.keywords.get("type", "string")
    return isinstance(value, {"string": str, "boolean": bool, "integer": int | float}[kind])


def _at(value: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        value = value[step]
    return value


def _steps_below(value: object, steps: KeyPath) -> Iterator[KeyPath]:
    """Yield the steps to a value and to all that is inside it."""
    yield steps
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _steps_below(part, (*steps, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _steps_below(part, (*steps, index))


def _self_location(item: Item, values: Mapping[str, Any]) -> Location | None:
    """Return where a join declares that its sides are the same rows."""
    if values["exclude_self"]:
        return item.at("exclude_self")
    return item.at("pairs") if values["pairs"] == Pairs.UNORDERED.value else None


def _has(mapping: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    *groups, last = path
    for group in groups:
        mapping = mapping.get(group, {})
    return last in mapping


def _narrowed(shared: ColumnSet, types: frozenset[str] | None) -> ColumnRule:
    both = types if shared.types is None or types is None else shared.types & types
    narrowed = shared.types if types is None else both
    return ColumnRule(shared.include, shared.exclude, narrowed, is_shared=True)


def _writing_errors(item: Item, values: Mapping[str, Any], *steps: str) -> Iterator[LancestatError]:
    """Yield what a side holds that cannot be one plain query, or would do more than read rows."""
    hint = "a side is one SELECT, which writes nothing and runs no program"
    objection = None if values["sql"] is None else query_objection(values["sql"])
    if objection is not None:
        yield NotPlainQuery(f"'sql' {objection}", location=item.at(*steps, "sql"), hint=hint)
    for key, text in values["options"].items():
        objection = option_objection(values["format"] or "", key, text)
        if objection is not None:
            message, location = f"option '{key}' {objection}", item.at(*steps, "options", key)
            yield NotPlainQuery(message, location=location, hint="a side only reads rows")


# Options of Spark's JDBC source, in lower case.
_STATEMENT_OPTIONS = frozenset({"sessioninitstatement", "preparequery"})
# What a query of Spark's SQL may begin with, after comments and parentheses.
_BEGINNINGS = ("select", "with", "from", "values", "table")
_BLANK = re.compile(r"\s+|--[^\n]*(?:\n|\Z)|\(")
_WORD = re.compile(r"[A-Za-z_]+")
# Text that ends no statement, the end of one, or anything else.
_TOKEN = re.compile(
    r"(?P<text>'[^']*'|\"[^\"]*\"|`[^`]*`)|(?P<blank>\s+|--[^\n]*)|(?P<end>;)|(?P<other>.)",
    re.DOTALL,
)


def query_objection(sql: str) -> str | None:
    """Return why a text cannot be one plain query, None when it may be one.

    It is conservative: what it objects to, Spark would not take for a plain query either.
    """
    start = _start(sql)
    if start == len(sql):
        return "is empty"
    word = _WORD.match(sql, start)
    if word is not None and word.group().lower() not in _BEGINNINGS:
        return "is not a query, which begins with SELECT, WITH, FROM, VALUES or TABLE"
    if _is_followed(sql, start):
        return "has more than one statement"
    return None


def option_objection(format: str, key: str, value: str) -> str | None:
    """Return why an option of a format would do more than read rows, None when it reads only."""
    if key.lower() in _STATEMENT_OPTIONS:
        return "is a statement that the database runs"
    if "jdbc" in format.lower() and key.lower() == "query":
        return query_objection(value)
    if "jdbc" in format.lower() and key.lower() == "dbtable" and _is_followed(value, 0):
        return "has more than one statement"
    return None


def _start(sql: str) -> int:
    """Return where the first word is: comments may be nested, hints are no comments."""
    at = 0
    while at < len(sql):
        if sql.startswith("/*", at):
            at = _comment_end(sql, at)
            continue
        blank = _BLANK.match(sql, at)
        if blank is None:
            return at
        at = blank.end()
    return len(sql)


def _comment_end(sql: str, start: int) -> int:
    depth, at = 1, start + 2
    while depth and at < len(sql):
        step = {"/*": 1, "*/": -1}.get(sql[at : at + 2], 0)
        depth += step
        at += 2 if step else 1
    return at


def _is_followed(sql: str, start: int) -> bool:
    """Whether anything follows the end of the first statement."""
    # Where text ends depends on Spark's settings once there is a backslash, or a nested comment.
    if "\\" in sql or "/*" in sql[start:]:
        return False
    has_ended = False
    for token in _TOKEN.finditer(sql, start):
        if token.lastgroup == "end":
            has_ended = True
        elif has_ended and token.lastgroup != "blank":
            return True
    return False
