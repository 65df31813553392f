"""What a node says of itself, property by property, whatever it is written like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from lancestat.formats import age, count
from lancestat.redact import Origin
from lancestat.review.values import Json, Property, PropertyChange
from lancestat.review.wording import Mask
from lancestat.spec.disclosure import named
from lancestat.spec.model import (
    ColumnPattern,
    ColumnRule,
    ColumnSelection,
    KnnJoin,
    KnnSide,
    Node,
    Policy,
    StaleBounds,
    Table,
    Target,
)

HIDDEN = "(hidden)"
_FLAGS = frozenset(("histogram", "rank"))

Properties = Mapping[str, Property]
Origins = Mapping[str, Origin]


def node_properties(node: Node, origins: Origins, mask: Mask) -> dict[str, Property]:
    """All that a node declares and that is not left at nothing, by dotted key.

    Args:
        node: A table or a join.
        origins: Of the node, by dotted key (`ProjectSpec.origins`): what came from the environment
            is shown as the template that names its variables.
        mask: Makes what is shown fit to be shown.
    """
    own = dict(_table(node) if isinstance(node, Table) else _knn_join(node))
    shared = {
        "description": _text(node.description),
        "owner": _text(node.owner),
        "tags": _texts(sorted(set(node.tags))),
    }
    found = {**own, **shared}
    return {
        name: _masked(_hidden(name, each, origins), mask)
        for name, each in found.items()
        if each.value not in (None, [])
    }


def target_properties(
    name: str, target: Target, origins: Origins, mask: Mask
) -> dict[str, Property]:
    """What a project and its target say; settings that may be secret are named but not shown."""
    plain = {
        "name": _text(name),
        "state": _text(target.state),
        "scratch": _text(target.scratch),
        "spark.master": _text(target.spark_master),
        "reader": _text(target.reader.value),
    }
    settings = {
        **{f"spark.conf.{key}": value for key, value in target.spark_conf.items()},
        **{f"storage-options.{key}": value for key, value in target.storage_options.items()},
    }
    secret = {key: Property(value, HIDDEN, None, True) for key, value in settings.items()}
    found = {**{key: _hidden(key, each, origins) for key, each in plain.items()}, **secret}
    return {key: _masked(each, mask) for key, each in found.items() if each.value is not None}


def without_flags(properties: Properties) -> dict[str, Property]:
    """Properties less the switches that are off, as most nodes have them."""
    return {
        name: each
        for name, each in properties.items()
        if name not in _FLAGS or each.value is not False
    }


def changes(old: Properties, new: Properties) -> tuple[PropertyChange, ...]:
    """The properties that differ, in the order in which nodes have them."""
    names = dict.fromkeys((*old, *new))
    return tuple(
        PropertyChange(name, old.get(name), new.get(name))
        for name in names
        if name not in old or name not in new or old[name].value != new[name].value
    )


def selection_rules(selection: ColumnSelection) -> tuple[ColumnRule, ...]:
    """A selection as rules alone, in one form for all ways to write it.

    What a table excludes leaves each of its rules, so it may as well be part of them; and rules
    that differ in what they include only are one. So a column set means the same inline.
    """
    every = ColumnRule((ColumnPattern("*"),))
    merged: dict[tuple[frozenset[str], frozenset[str] | None], set[str]] = {}
    for rule in (every,) if selection.all else selection.rules:
        excluded = frozenset(each.text for each in (*rule.exclude, *selection.exclude))
        merged.setdefault((excluded, rule.types), set()).update(each.text for each in rule.include)
    return tuple(
        ColumnRule(_patterns(include), _patterns(exclude), types)
        for (exclude, types), include in sorted(merged.items(), key=_place)
    )


def _place(item: tuple[tuple[frozenset[str], frozenset[str] | None], set[str]]) -> list[list[str]]:
    (exclude, types), include = item
    return [sorted(include), sorted(exclude), sorted(types or ())]


def _patterns(texts: frozenset[str] | set[str]) -> tuple[ColumnPattern, ...]:
    return tuple(ColumnPattern(text) for text in sorted(texts))


def _table(table: Table) -> Iterator[tuple[str, Property]]:
    yield "uri", _text(table.uri)
    yield "columns", _columns(table.columns)
    yield "allow.stale", _stale(table.policy)
    yield "refresh", _text(table.policy.refresh.value)
    yield "publish", _text(table.publish.value)
    yield "histogram", _flag(table.histogram)
    if table.freshness is not None:
        yield "freshness.warn_after", _span(table.freshness.warn_after)
        yield "freshness.error_after", _span(table.freshness.error_after)


def _knn_join(join: KnnJoin) -> Iterator[tuple[str, Property]]:
    yield from _side("left", join.left)
    yield from _side("right", join.right)
    yield "k", _number(join.k)
    yield "metric", _text(join.metric)
    yield "mode", _text(join.mode)
    yield "approx.nprobes", _number(join.nprobes)
    yield "approx.recall", _number(join.recall)
    yield "join", _text(join.join)
    yield "rank", _flag(join.rank)
    yield "min_right_rows", _number(join.min_right_rows)
    yield f"output.{join.output_format}", _text(join.output_uri)


def _side(name: str, side: KnnSide) -> Iterator[tuple[str, Property]]:
    yield f"{name}.table", _text(side.table)
    yield f"{name}.format", _text(side.format)
    yield f"{name}.uri", _text(side.uri)
    for key in sorted(side.options):
        yield f"{name}.options.{key}", Property(side.options[key], HIDDEN, None, True)
    yield f"{name}.sql", _text(side.sql)
    yield f"{name}.vector", _text(side.vector)
    yield f"{name}.select", _text("*") if side.select is None else _texts(side.select)


def _text(text: str | None) -> Property:
    return Property(text, text or "", text)


def _texts(texts: Sequence[str]) -> Property:
    return Property(list(texts), ", ".join(texts), list(texts))


def _number(number: float | None) -> Property:
    text = "" if number is None else count(number) if isinstance(number, int) else f"{number:g}"
    return Property(number, text, number)


def _flag(flag: bool) -> Property:
    return Property(flag, str(flag).lower(), flag)


def _span(span: timedelta | None) -> Property:
    seconds = None if span is None else span.total_seconds()
    return Property(seconds, "" if span is None else age(span), seconds)


def _stale(policy: Policy) -> Property:
    allowed = policy.allow_stale
    value: Json = allowed if isinstance(allowed, bool) else _bounds(allowed)
    return Property(value, policy.accepted_staleness, value)


def _bounds(bounds: StaleBounds) -> dict[str, Json]:
    found: dict[str, Json] = {
        "max_versions": bounds.max_versions,
        "max_age_seconds": None if bounds.max_age is None else bounds.max_age.total_seconds(),
        "max_changed_rows": bounds.max_changed_rows,
    }
    return {name: bound for name, bound in found.items() if bound is not None}


def _columns(selection: ColumnSelection) -> Property:
    rules = selection_rules(selection)
    value: list[Json] = [_rule(rule) for rule in rules]
    return Property(value, "; ".join(map(_rule_text, rules)), value)


def _rule(rule: ColumnRule) -> Json:
    return {
        "include": [each.text for each in rule.include],
        "exclude": [each.text for each in rule.exclude],
        "types": None if rule.types is None else list[Json](sorted(rule.types)),
    }


def _rule_text(rule: ColumnRule) -> str:
    included = ", ".join(each.text for each in rule.include)
    parts = ["all" if included == "*" else included]
    if rule.types is not None:
        parts.append(f"of type {' or '.join(sorted(rule.types))}")
    if rule.exclude:
        parts.append(f"but {', '.join(each.text for each in rule.exclude)}")
    return " ".join(parts)


def _hidden(name: str, found: Property, origins: Origins) -> Property:
    own = {_spelled(key): origin for key, origin in origins.items()}
    told = named(own, name)
    return found if told is None else replace(found, text=told, shown=told, is_hidden=True)


def _masked(found: Property, mask: Mask) -> Property:
    return replace(found, text=mask.text(found.text), shown=_masked_json(found.shown, mask))


def _masked_json(shown: Json, mask: Mask) -> Json:
    if isinstance(shown, str):
        return mask.text(shown)
    if isinstance(shown, list):
        return [_masked_json(each, mask) for each in shown]
    if isinstance(shown, dict):
        return {name: _masked_json(each, mask) for name, each in shown.items()}
    return shown


def _spelled(key: str) -> str:
    """A dotted key of the YAML as the property that it is about, or is a part of, is called."""
    head, _, last = key.rpartition(".")
    if last in ("lance", "parquet", "path") and head in ("left", "right"):
        return f"{head}.uri"
    return key.removeprefix("policy.")
