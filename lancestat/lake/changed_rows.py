"""The number of rows that differ between two snapshots of a table."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from lancestat.lake.fingerprint import Fingerprint, column_groups, field_key
from lancestat.lake.history import History, Rewrite
from lancestat.lake.snapshot import Field, Fragment, Snapshot


def rows_changed_between(
    old: Snapshot, new: Snapshot, columns: Collection[str], history: History | None = None
) -> float:
    """Return the share of rows that changed from `old` to `new`, of the rows of `new`: 0.0 to 1.0.

    Changed are the rows of `new` that `old` did not hold with the same values, plus the rows of
    `old` that `new` does not hold any more: an appended or a deleted row counts once, an updated
    row twice, since it left the table and came back. Where manifests do not tell, the answer errs
    upwards, so that a bound on it is never exceeded unnoticed. Values are compared in the columns
    that are the same in both snapshots, fragment by fragment: one replaced cell makes a fragment
    count whole.

    Statistics describe columns by name, and a name may pass to another column: the column is
    dropped and added again, another one is renamed, or the type is altered. If that happened to one
    of `columns`, all rows count as changed.

    Args:
        old: The snapshot that statistics describe.
        new: The snapshot that is read now.
        columns: The names of the columns that the statistics describe.
        history: The commits from `old` to `new`. Its compactions are no changes; without it they
            count in full, and so do deletions on both sides of a fragment that might differ.
    """
    unchanged = _unchanged_rows(old, new, columns, history)
    if history is not None and history.rewrites and _went_back(history):
        # Fragments that a compaction replaced may be back; each answer is one that may be too high.
        unchanged = max(unchanged, _unchanged_rows(old, new, columns, None))
    changed = (new.rows - unchanged) + (old.rows - unchanged)
    if not changed:
        return 0.0
    return min(1.0, changed / new.rows) if new.rows else 1.0


def _unchanged_rows(
    old: Snapshot, new: Snapshot, columns: Collection[str], history: History | None
) -> int:
    """Count the rows that both snapshots are known to hold with equal values of `columns`."""
    fields = _same_fields(old, new, history)
    same = {field_key(field) for field in fields}
    then = {field.name: field_key(field) for field in old.fields}
    now = {field.name: field_key(field) for field in new.fields}
    if not same or any(
        now.get(name) not in same or then.get(name) != now[name] for name in columns
    ):
        return 0
    return _Lineage(old, fields, history).kept(new)


def _same_fields(old: Snapshot, new: Snapshot, history: History | None) -> list[Field]:
    """Return the columns of `new` that are columns of `old`, whatever their names were then.

    An equal field id alone does not prove it. Once a compaction has removed a dropped column from
    the data files, Lance gives the id to the next column that is added; a column that is the same
    throughout was there in every compaction.
    """
    known = {field_key(field) for field in old.fields}
    rewrites = history.rewrites if history is not None else ()
    return [
        field
        for field in new.fields
        if field_key(field) in known and all(field.id in rewrite.field_ids for rewrite in rewrites)
    ]


@dataclass(slots=True)
class _FragmentFamily:
    """Fragments that descend from one another: of `old` live rows; `foreign` ones came in later."""

    old: int = 0
    foreign: int = 0
    new: int = 0
    absorbed_by: _FragmentFamily | None = None

    def root(self) -> _FragmentFamily:
        return self if self.absorbed_by is None else self.absorbed_by.root()

    def absorb(self, other: _FragmentFamily) -> None:
        if other is not self:
            self.old += other.old
            self.foreign += other.foreign
            other.absorbed_by = self

    @property
    def kept(self) -> int:
        return max(0, min(self.new - self.foreign, self.old))


_Content = frozenset[tuple[Fingerprint, frozenset[str]]]


class _Lineage:
    """The places of the rows of the old snapshot, followed through compactions."""

    def __init__(self, old: Snapshot, fields: list[Field], history: History | None) -> None:
        self._old = old
        self._fields = fields
        # Deletions only ever grow, unless an earlier version came back in between.
        grown = history is not None and history.is_complete and not _went_back(history)
        self._doubtful = {} if grown else {fragment.id: fragment for fragment in old.fragments}
        self._units = {
            fragment.id: (content, _FragmentFamily(old=fragment.rows))
            for fragment, content in self._contents(old.fragments)
        }
        self._all = [unit for _, unit in self._units.values()]
        for rewrite in history.rewrites if history is not None else ():
            self._follow(rewrite)

    def kept(self, new: Snapshot) -> int:
        """Count the rows that both snapshots are known to hold."""
        for fragment, content in self._contents(new.fragments):
            then, unit = self._units.get(fragment.id, (None, None))
            if unit is not None and then == content:
                unit.root().new += fragment.rows - self._doubt(fragment)
        return sum(unit.kept for unit in self._all if unit.absorbed_by is None)

    def _follow(self, rewrite: Rewrite) -> None:
        merged = _FragmentFamily()
        self._all.append(merged)
        for fragment, content in self._contents(rewrite.old):
            then, unit = self._units.pop(fragment.id, (None, None))
            if unit is not None and then == content:
                merged.absorb(unit.root())
                merged.foreign += self._doubt(fragment)
            else:
                merged.foreign += fragment.rows
        for fragment, content in self._contents(rewrite.new):
            self._units[fragment.id] = (content, merged)

    def _doubt(self, fragment: Fragment) -> int:
        """Count the rows that may differ between two sets of deletions of unknown content."""
        before = self._doubtful.get(fragment.id)
        if before is None or before.deletion_file == fragment.deletion_file:
            return 0
        return min(before.deleted_rows, fragment.rows)

    def _contents(self, fragments: tuple[Fragment, ...]) -> list[tuple[Fragment, _Content]]:
        # Deletions are counted, not compared: what the files hold is all that has to be equal.
        whole = tuple(
            replace(fragment, deletion_file=None, deleted_rows=0) for fragment in fragments
        )
        groups = column_groups(replace(self._old, fragments=whole), self._fields)
        contents: dict[int, list[tuple[Fingerprint, frozenset[str]]]] = {}
        for group in groups:
            contents.setdefault(group.fragment_id, []).append((group.fingerprint, group.fields))
        return [(fragment, frozenset(contents[fragment.id])) for fragment in fragments]


def _went_back(history: History) -> bool:
    return any(commit.operation == "Restore" for commit in history.commits)
