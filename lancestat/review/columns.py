"""Which columns gain and which lose statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from lancestat.errors import SpecError
from lancestat.lake.snapshot import Snapshot
from lancestat.plan.appraise import analyzable, resolve
from lancestat.review.masking import Mask
from lancestat.review.properties import selection_rules
from lancestat.review.values import ColumnsChange
from lancestat.spec.model import ColumnPattern, ColumnRule, Table

Rules = tuple[ColumnRule, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """The columns of a table before and after.

    `may_gain` and `may_lose` are certain where there was a schema; else patterns allow it. `notes`
    say what could not be resolved.
    """

    change: ColumnsChange
    may_gain: bool
    may_lose: bool
    notes: tuple[str, ...] = ()


def compare_columns(
    old: Table | None, new: Table | None, snapshot: Snapshot | None, mask: Mask
) -> Compared:
    """Compare the columns of two declarations, against one schema where there is one."""
    notes: list[str] = []
    is_refused = False
    if snapshot is not None:
        before, after = _names(old, snapshot), _names(new, snapshot)
        if isinstance(after, SpecError):
            is_refused = True
            notes.append(f"'lancestat plan' will refuse this: {mask.line(after.message)}")
        elif not isinstance(before, SpecError):
            names = [field.name for field in snapshot.fields]
            gained = tuple(name for name in names if name in after - before)
            lost = tuple(name for name in names if name in before - after)
            change = ColumnsChange(mask.lines(gained), mask.lines(lost), True)
            return Compared(change, bool(gained), bool(lost))
        else:
            notes.append(f"what BASE declares does not fit the table: {mask.line(before.message)}")
    before_rules, after_rules = _rules(old), _rules(new)
    gained = tuple(dict.fromkeys(_uncovered(after_rules, before_rules)))
    lost = tuple(dict.fromkeys(_uncovered(before_rules, after_rules)))
    change = ColumnsChange(mask.lines(gained), mask.lines(lost), False)
    return Compared(change, bool(gained) and not is_refused, bool(lost), tuple(notes))


def _names(table: Table | None, snapshot: Snapshot) -> frozenset[str] | SpecError:
    if table is None:
        return frozenset()
    try:
        return frozenset(resolve(table, snapshot, analyzable(snapshot)).names)
    except SpecError as error:
        return error


def _rules(table: Table | None) -> Rules:
    return () if table is None else selection_rules(table.columns)


def _uncovered(rules: Rules, others: Rules) -> Iterator[str]:
    """The patterns of which some columns may be in `rules` and not in `others`."""
    for rule in rules:
        for pattern in rule.include:
            rests = [_left_out(other, pattern, rule) for other in others]
            known = [sorted(rest) for rest in rests if rest is not None]
            # Of a pattern that is included still, only what it leaves out may be lost.
            yield from sorted(known, key=len)[0] if known else (pattern.text,)


def _left_out(other: ColumnRule, pattern: ColumnPattern, rule: ColumnRule) -> set[str] | None:
    """What the other rule excludes of a rule's pattern, None where it does not include that."""
    text = pattern.text
    if other.types is not None and not (rule.types is not None and rule.types <= other.types):
        return None
    included = any(
        each.text in (text, "*") or (not pattern.is_glob and fnmatchcase(text, each.text))
        for each in other.include
    )
    if not included:
        return None
    excluded = {each.text for each in other.exclude} - {each.text for each in rule.exclude}
    if pattern.is_glob:
        return excluded
    return {text} if any(each == text or fnmatchcase(text, each) for each in excluded) else set()
