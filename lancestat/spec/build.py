"""Tables, column rules and KNN joins from their YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lancestat.errors import LancestatError
from lancestat.spec import codes
from lancestat.spec.freshness import build_freshness
from lancestat.spec.item import Item
from lancestat.spec.model import (
    ColumnPattern,
    ColumnRule,
    ColumnSelection,
    KnnJoin,
    KnnSide,
    Policy,
    Publish,
    Table,
)
from lancestat.spec.names import Namespace
from lancestat.spec.policy import build_policy
from lancestat.spec.query import option_objection, query_objection
from lancestat.spec.uri import resolve_uri

_FORMATS = ("lance", "parquet")


def build_rule(item: Item, *steps: str) -> ColumnRule:
    """The column rule that the mapping at `steps` of an item describes."""
    value: Any = item.value
    for step in steps:
        value = value[step]
    return ColumnRule(
        _patterns(item, value.get("include", ()), *steps, "include"),
        _patterns(item, value.get("exclude", ()), *steps, "exclude"),
        frozenset(value["types"]) if "types" in value else None,
    )


def build_table(
    item: Item,
    root: Path,
    sets: Namespace[ColumnRule],
    policies: Namespace[Policy],
    errors: list[LancestatError],
) -> Table:
    """The table that an item describes; errors are appended."""
    value = item.value
    return Table(
        name=value["name"],
        uri=_uri(item, root, errors, "uri"),
        location=item.location,
        description=value.get("description"),
        tags=tuple(value.get("tags", ())),
        owner=value.get("owner"),
        columns=_columns(item, sets, errors),
        policy=_policy(item, policies, errors),
        publish=Publish(value.get("publish", Publish.MANIFEST)),
        histogram=value.get("histogram", False),
        freshness=build_freshness(item, errors),
    )


def build_knn_join(item: Item, root: Path, errors: list[LancestatError]) -> KnnJoin:
    """The KNN join that an item describes; errors are appended."""
    value = item.value
    (output_format,) = value["output"]
    mode = value.get("mode", "exact")
    approx = value.get("approx", {})
    if approx and mode != "approx":
        errors.append(item.error(codes.WRONG_VALUE, "'approx' needs 'mode: approx'", "approx"))
    if mode == "approx" and not approx:
        errors.append(
            item.error(
                codes.MISSING_KEY,
                "'mode: approx' needs 'approx' with 'nprobes' or 'recall'",
                "mode",
                hint="approx: {recall: 0.95}",
            )
        )
    nprobes = approx.get("nprobes")
    return KnnJoin(
        name=value["name"],
        left=_side(item, "left", root, errors),
        right=_side(item, "right", root, errors),
        k=int(value["k"]),
        output_format=output_format,
        output_uri=_uri(item, root, errors, "output", output_format),
        location=item.location,
        metric=value.get("metric", "l2"),
        mode=mode,
        join=value.get("join", "inner"),
        nprobes=None if nprobes is None else int(nprobes),
        recall=approx.get("recall"),
        min_right_rows=int(value.get("min_right_rows", 10_000)),
        rank=value.get("rank", False),
        description=value.get("description"),
        tags=tuple(value.get("tags", ())),
        owner=value.get("owner"),
    )


def _side(item: Item, name: str, root: Path, errors: list[LancestatError]) -> KnnSide:
    value: Mapping[str, Any] = item.value[name]
    form = next((form for form in _FORMATS if form in value), None)
    uri = None
    if form is not None:
        uri = _uri(item, root, errors, name, form)
    elif "format" in value:
        form = value["format"]
        uri = _uri(item, root, errors, name, "path")
    refs = item.refs.get((*item.path, name, "sql"), ())
    options = item.settings(name, "options")
    errors.extend(_writing_errors(item, name, options))
    return KnnSide(
        vector=value["vector"],
        select=tuple(value["select"]) if "select" in value else None,
        refs=(value["table"],) if "table" in value else refs,
        table=value.get("table"),
        format=form,
        uri=uri,
        options=options,
        sql=value.get("sql"),
        sql_location=item.at(name, "sql") if "sql" in value else None,
    )


def _writing_errors(item: Item, name: str, options: Mapping[str, str]) -> Iterator[LancestatError]:
    """What a side holds that cannot be one plain query, or would do more than read rows."""
    value: Mapping[str, Any] = item.value[name]
    hint = "a side is one SELECT, which writes nothing and runs no program"
    objection = query_objection(value["sql"]) if "sql" in value else None
    if objection is not None:
        yield item.error(codes.WRONG_VALUE, f"'sql' {objection}", name, "sql", hint=hint)
    for key, text in options.items():
        objection = option_objection(value.get("format", ""), key, text)
        if objection is not None:
            message, steps = f"option '{key}' {objection}", (name, "options", key)
            yield item.error(codes.WRONG_VALUE, message, *steps, hint="a side only reads rows")


def _columns(
    item: Item, sets: Namespace[ColumnRule], errors: list[LancestatError]
) -> ColumnSelection:
    value = item.value.get("columns", "all")
    if isinstance(value, list):
        rule = ColumnRule(_patterns(item, value, "columns"))
        return ColumnSelection(all=False, rules=(rule,))
    if not isinstance(value, dict):
        return ColumnSelection()
    own = build_rule(item, "columns")
    rules: list[ColumnRule] = []
    if "set" in value:
        error = sets.unknown(value["set"], item, "columns", "set")
        shared = sets.values.get(value["set"])
        if error is not None:
            errors.append(error)
        elif shared is not None:
            rules.append(_narrowed(shared, own.types))
    if own.include:
        rules.append(ColumnRule(own.include, types=own.types))
    elif own.types is not None and not rules:
        rules.append(ColumnRule((ColumnPattern("*"),), types=own.types))
    return ColumnSelection(all=not rules, rules=tuple(rules), exclude=own.exclude)


def _narrowed(rule: ColumnRule, types: frozenset[str] | None) -> ColumnRule:
    if types is None:
        return rule
    both = types if rule.types is None else rule.types & types
    return ColumnRule(rule.include, rule.exclude, both)


def _policy(item: Item, policies: Namespace[Policy], errors: list[LancestatError]) -> Policy:
    value = item.value.get("policy")
    if value is None:
        return Policy()
    if isinstance(value, dict):
        return build_policy(item, errors, "policy")
    error = policies.unknown(value, item, "policy")
    if error is not None:
        errors.append(error)
    return policies.values.get(value) or Policy(value)


def _patterns(item: Item, texts: list[str], *steps: str) -> tuple[ColumnPattern, ...]:
    return tuple(ColumnPattern(text, item.at(*steps, index)) for index, text in enumerate(texts))


def _uri(item: Item, root: Path, errors: list[LancestatError], *steps: str) -> str:
    value: Any = item.value
    for step in steps:
        value = value[step]
    try:
        return resolve_uri(root, value)
    except ValueError as error:
        errors.append(item.error(codes.WRONG_VALUE, f"'{steps[-1]}' {error}", *steps))
        return str(value)
