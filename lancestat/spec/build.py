"""Spans of time from their YAML: `90s`, `30m`, `24h`, `7d`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from lancestat.errors import LancestatError
from lancestat.spec import codes
from lancestat.spec.disclosure import named, named_parts
from lancestat.spec.files import resolve_uri
from lancestat.spec.model import (
    ColumnPattern,
    ColumnRule,
    ColumnSelection,
    Freshness,
    KnnJoin,
    KnnSide,
    Policy,
    Publish,
    Refresh,
    StaleBounds,
    Table,
)
from lancestat.spec.names import Item, Namespace
from lancestat.spec.query import option_objection, query_objection

_LONGEST = timedelta(days=36500)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def build_duration(
    item: Item, value: Mapping[str, Any], errors: list[LancestatError], *steps: str
) -> timedelta | None:
    """The span under the last of `steps` in `value`, None where there is none; errors are appended.

    Args:
        item: What the place of an error is told by.
        value: The mapping that holds the span, as the schema allows it.
        errors: Where to put an error.
        steps: The way from the item to the span.
    """
    key = steps[-1]
    text = value.get(key)
    if text is None:
        return None
    span = timedelta(seconds=int(text[:-1]) * _SECONDS[text[-1]])
    if span > _LONGEST:
        told = item.quoted(str(text), *steps)
        message = f"'{key}' must be at most {_LONGEST.days} days, found {told}"
        errors.append(item.error(codes.WRONG_VALUE, message, *steps))
    return span


_KEY = "freshness"


def build_freshness(item: Item, errors: list[LancestatError]) -> Freshness | None:
    """The bounds that an item gives for the age of its rows, if any; errors are appended."""
    value = item.value.get(_KEY)
    if value is None:
        return None
    warn = build_duration(item, value, errors, _KEY, "warn_after")
    error = build_duration(item, value, errors, _KEY, "error_after")
    if warn is not None and error is not None and error < warn:
        message = (
            f"'error_after' must not be shorter than 'warn_after', "
            f"{item.quoted(value['warn_after'], _KEY, 'warn_after')}, "
            f"found {item.quoted(value['error_after'], _KEY, 'error_after')}"
        )
        errors.append(item.error(codes.WRONG_VALUE, message, _KEY, "error_after"))
    return Freshness(warn, error, named_parts(item.origins_below(), _KEY))


def build_policy(
    item: Item, errors: list[LancestatError], *steps: str, name: str | None = None
) -> Policy:
    """The policy that the mapping at `steps` of an item describes; errors are appended."""
    value: Any = item.value
    for step in steps:
        value = value[step]
    allowed = value.get("allow.stale", False)
    if isinstance(allowed, dict):
        allowed = _build_bounds(item, allowed, errors, *steps, "allow.stale")
    own = item.origins_below(*steps)
    return Policy(
        name,
        value.get("description"),
        allowed,
        Refresh(value.get("refresh", Refresh.ALWAYS)),
        named(own, "allow.stale", "refresh"),
    )


def _build_bounds(
    item: Item, value: dict[str, Any], errors: list[LancestatError], *steps: str
) -> StaleBounds:
    versions = value.get("max_versions")
    share = value.get("max_changed_rows")
    return StaleBounds(
        None if versions is None else int(versions),
        build_duration(item, value, errors, *steps, "max_age"),
        None if share is None else _share(share),
        named_parts(item.origins_below(*steps[:-1]), steps[-1]),
    )


def _share(value: str | float) -> float:
    return float(value.removesuffix("%")) / 100 if isinstance(value, str) else float(value)


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
