"""The rows that a join of some scope reads."""

from __future__ import annotations

from dataclasses import replace

from lancestat.joins.search.work import JoinWork, Scope, SideSource


def scoped_work(work: JoinWork) -> JoinWork:
    """Return the work over the new fragments alone, on the side that has some."""
    if work.increment is None:
        return work
    new = work.increment.new_fragments
    if work.scope is Scope.NEW_LEFT:
        return replace(work, left=_with_fragments(work.left, new))
    return replace(work, right=_with_fragments(work.right, new))


def known_right_rows(work: JoinWork) -> SideSource | None:
    """Return the right rows of the last result, where new ones are merged with it by keys."""
    if work.increment is None or work.scope is not Scope.NEW_RIGHT or not work.request.has_keys:
        return None
    assert work.right.table is not None
    fragments = frozenset(fragment.id for fragment in work.right.table.fragments)
    return _with_fragments(work.right, fragments - work.increment.new_fragments)


def _with_fragments(side: SideSource, fragments: frozenset[int]) -> SideSource:
    assert side.table is not None
    new_fragments = tuple(fragment for fragment in side.table.fragments if fragment.id in fragments)
    return replace(side, table=replace(side.table, fragments=new_fragments))
