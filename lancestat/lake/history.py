"""The effects of the commits between two versions on the rows, and how many rows they changed."""

from __future__ import annotations

import copy
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from lancestat.formats import StringEnum
from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.lake.fingerprint import Fingerprint, column_groups, field_key
from lancestat.lake.open import pinned_history
from lancestat.lake.snapshot import (
    DataFile,
    Field,
    FieldIds,
    Fragment,
    Pin,
    Snapshot,
    committed_at,
    fragment_values,
)

if TYPE_CHECKING:
    import lance


class Effect(StringEnum):
    """The effect of one commit, as far as its transaction proves it."""

    ROWS_UNCHANGED = "rows_unchanged"
    SCHEMA_ONLY = "schema_only"
    REWRITTEN = "rewritten"
    APPENDED = "appended"
    DELETED = "deleted"
    COLUMNS_WRITTEN = "columns_written"
    CHANGED = "changed"
    UNKNOWN = "unknown"


# Effects after which every row that was there is still there with the same values, and no other is.
ROW_PRESERVING = frozenset({Effect.ROWS_UNCHANGED, Effect.SCHEMA_ONLY, Effect.REWRITTEN})


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Fragments whose live rows a compaction moved, unchanged and together, into new fragments.

    `field_ids` are the top-level columns that the table had then, which are all that was moved: a
    column that has one of the other ids in `old` is not the column that has it in `new`.
    """

    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]
    field_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class Commit:
    """One version: how it came about. `operation` is Lance's name for it, for messages."""

    version: int
    effect: Effect
    operation: str
    rewrites: tuple[Rewrite, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class History:
    """The commits after version `since` up to and including `until`, oldest first.

    When there were more than could be read, the newest are here.
    """

    since: int
    until: int
    commits: tuple[Commit, ...]

    @property
    def is_complete(self) -> bool:
        """Return whether every version in between is here and known."""
        expected = range(self.since + 1, self.until + 1)
        whole = [commit.version for commit in self.commits] == list(expected)
        return whole and self.since <= self.until and Effect.UNKNOWN not in self.effects

    @property
    def effects(self) -> frozenset[Effect]:
        """The effects that occurred, in no order."""
        return frozenset(commit.effect for commit in self.commits)

    @property
    def rows_unchanged(self) -> bool:
        """Return whether both ends are proven to hold the same rows, in whatever fragments."""
        return self.is_complete and self.effects <= ROW_PRESERVING

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """All confirmed moves in the order of their commits: one may move what another made."""
        return tuple(rewrite for commit in self.commits for rewrite in commit.rewrites)


def commits_since(
    dataset: lance.LanceDataset,
    version: int,
    until: int | None = None,
    *,
    limit: int = 500,
    threads: int = 8,
) -> History:
    """Read the commits of a dataset after `version` from its transactions.

    A commit whose transaction is missing, unreadable or of an unknown kind is UNKNOWN. `until` is
    the last version to read, the dataset's own when None. The newest `limit` commits are read.
    """
    last = dataset.version if until is None else until
    versions = range(max(version + 1, last + 1 - limit), last + 1)
    if not versions:
        return History(version, last, ())
    with ThreadPoolExecutor(max_workers=min(threads, len(versions))) as pool:
        commits = pool.map(lambda number: read_commit(dataset, number), versions)
        return History(version, last, tuple(commits))


# By the names of pylance's operation classes. Everything that is not here, and is not looked at
# more closely below, is UNKNOWN: a new operation must be understood before it is trusted.
_EFFECTS = {
    "CreateIndex": Effect.ROWS_UNCHANGED,
    "UpdateConfig": Effect.ROWS_UNCHANGED,
    "Project": Effect.SCHEMA_ONLY,
    "Append": Effect.APPENDED,
    "Merge": Effect.COLUMNS_WRITTEN,
    "Overwrite": Effect.CHANGED,
    "Restore": Effect.CHANGED,
    "Clone": Effect.CHANGED,
    "DataReplacement": Effect.CHANGED,
    "DataOverlay": Effect.CHANGED,
}


def read_commit(dataset: lance.LanceDataset, version: int) -> Commit:
    """Read the commit that made one version of a dataset; UNKNOWN if it cannot be read."""
    # Reading a transaction borrows the dataset for itself; a copy lets others be read meanwhile.
    own = copy.copy(dataset)
    try:
        transaction = _read_transaction(own, version)
        if transaction is None:
            return Commit(version, Effect.UNKNOWN, "no transaction")
        operation = transaction.operation
        effect, rewrites = _judge(own, version, operation)
        properties = dict(transaction.transaction_properties or {})
        return Commit(version, effect, type(operation).__name__, rewrites, properties)
    except BaseException as error:
        # Whatever keeps a transaction from being read, a panic in Lance too.
        if not is_error_or_panic(error):
            raise
        return Commit(version, Effect.UNKNOWN, f"unreadable transaction ({type(error).__name__})")


def _judge(
    dataset: lance.LanceDataset, version: int, operation: lance.LanceOperation.BaseOperation
) -> tuple[Effect, tuple[Rewrite, ...]]:
    name = type(operation).__name__
    if name == "Rewrite":
        return _rewrite_effect(dataset, version, operation)
    if name == "Delete":
        touched = operation.updated_fragments or operation.deleted_fragment_ids
        return Effect.DELETED if touched else Effect.ROWS_UNCHANGED, ()
    if name == "Update":
        return _update_effect(operation), ()
    if name == "BaseOperation":
        # What pylance has no class for, such as the reserving of ids before a compaction.
        same = _same_rows(dataset, version)
        return Effect.ROWS_UNCHANGED if same else Effect.UNKNOWN, ()
    return _EFFECTS.get(name, Effect.UNKNOWN), ()


def _update_effect(operation: lance.LanceOperation.Update) -> Effect:
    if operation.fields_modified or operation.update_mode == "rewrite_columns":
        return Effect.CHANGED
    took = bool(operation.updated_fragments or operation.removed_fragment_ids)
    if operation.new_fragments:
        return Effect.CHANGED if took else Effect.APPENDED
    return Effect.DELETED if took else Effect.ROWS_UNCHANGED


def _same_rows(dataset: lance.LanceDataset, version: int) -> bool:
    before, after = dataset.checkout_version(version - 1), dataset.checkout_version(version)
    if before.schema != after.schema:
        return False
    old, new = before.get_fragments(), after.get_fragments()
    if len(old) != len(new):
        return False
    shared: FieldIds = {}
    pairs = zip(_stream(old, shared), _stream(new, shared), strict=True)
    return all(one == other for one, other in pairs)


def _stream(handles: Iterable[lance.LanceFragment], shared: FieldIds) -> Iterable[Fragment]:
    return fragment_values((handle.metadata for handle in handles), shared)


def _rewrite_effect(
    dataset: lance.LanceDataset, version: int, operation: lance.LanceOperation.Rewrite
) -> tuple[Effect, tuple[Rewrite, ...]]:
    try:
        before, after = dataset.checkout_version(version - 1), dataset.checkout_version(version)
    except (OSError, ValueError):
        # Cleaned up: the rows are the same all the same, but nothing confirms which went where.
        return Effect.REWRITTEN, ()
    shared: FieldIds = {}
    made_ids = sorted(after.fragment_ids() - before.fragment_ids())
    made = {fragment.files: fragment for fragment in _by_id(after, made_ids, shared)}
    field_ids = frozenset(field.id() for field in after.lance_schema.fields())
    groups = [_confirm(before, group, made, field_ids, shared) for group in operation.groups]
    confirmed = tuple(group for group in groups if group is not None)
    whole = len(confirmed) == len(groups)
    return Effect.REWRITTEN if whole else Effect.UNKNOWN, confirmed


def _confirm(
    before: lance.LanceDataset,
    group: lance.LanceOperation.RewriteGroup,
    made: dict[tuple[DataFile, ...], Fragment],
    field_ids: frozenset[int],
    shared: FieldIds,
) -> Rewrite | None:
    """Return the group with the manifests' fragments; None if these differ.

    The transaction holds the old fragments as its author saw them, and new ones without an id.
    """
    claimed = tuple(fragment_values(group.old_fragments, shared))
    old = tuple(_by_id(before, [fragment.id for fragment in claimed], shared))
    new = tuple(
        made[fragment.files]
        for fragment in fragment_values(group.new_fragments, shared)
        if fragment.files in made
    )
    all_found = len(new) == len(list(group.new_fragments))
    same_rows = sum(fragment.rows for fragment in old) == sum(fragment.rows for fragment in new)
    is_confirmed = old == claimed and all_found and same_rows
    return Rewrite(old, new, field_ids) if is_confirmed else None


def _by_id(dataset: lance.LanceDataset, ids: Iterable[int], shared: FieldIds) -> Iterable[Fragment]:
    fragments = (dataset.get_fragment(id) for id in ids)
    return fragment_values(
        (fragment.metadata for fragment in fragments if fragment is not None), shared
    )


_shim = threading.Lock()


def _read_transaction(dataset: lance.LanceDataset, version: int) -> lance.Transaction | None:
    """Read a transaction, also one that rewrote an index.

    pylance 14 builds `RewrittenIndex` with two of its five arguments, so that reading the
    compaction of any indexed table raises TypeError. Only then, and only for the time of one read,
    the other three have a default: their values are not needed here.
    """
    import lance

    try:
        return dataset.read_transaction(version)
    except TypeError as error:
        if "RewrittenIndex" not in str(error):
            raise
    make = lance.LanceOperation.RewrittenIndex.__init__
    with _shim:
        defaults = make.__defaults__
        make.__defaults__ = (None, None, None)
        try:
            return dataset.read_transaction(version)
        finally:
            make.__defaults__ = defaults


# Mostly the newest commit published statistics, and the one before it wrote rows: these are read
# one by one, which takes less time than to read several at once.
_ONE_BY_ONE = 2
_STEP = 4


def rows_changed_at(dataset: lance.LanceDataset, *, limit: int = 200) -> datetime:
    """Return the time of the newest commit that changed rows, by the clock of its writer.

    An unknown commit counts as a change; if its version is gone, the time of the next one is
    returned. If none of the `limit` newest commits changed rows, it is that of the oldest of them.
    """
    oldest = max(1, dataset.version - limit + 1)
    for commit in _commits(dataset, oldest):
        if commit.effect not in ROW_PRESERVING:
            return _committed_at(dataset, commit.version)
    return _committed_at(dataset, oldest)


def pinned_rows_changed_at(pin: Pin, storage_options: Mapping[str, str] | None = None) -> datetime:
    """Return `rows_changed_at` of the version that a pin names; LakeError if it cannot be read."""
    with pinned_history(pin, storage_options) as dataset:
        return rows_changed_at(dataset)


def _commits(dataset: lance.LanceDataset, oldest: int) -> Iterator[Commit]:
    newest, step = dataset.version, _STEP
    while newest >= oldest:
        if dataset.version - newest < _ONE_BY_ONE:
            yield read_commit(dataset, newest)
            newest -= 1
            continue
        since = max(oldest - 1, newest - step)
        yield from reversed(commits_since(dataset, since, newest).commits)
        newest, step = since, 2 * step


def _committed_at(dataset: lance.LanceDataset, version: int) -> datetime:
    """Return the time of the first version from `version` on that still exists."""
    for number in range(version, dataset.version):
        try:
            return committed_at(dataset.checkout_version(number))
        except BaseException as error:
            # Cleaned up, or damaged, which opening it would report.
            if not is_error_or_panic(error):
                raise
    return committed_at(dataset)


def rows_changed_between(
    old: Snapshot, new: Snapshot, columns: Collection[str], history: History | None = None
) -> float:
    """Return the share of rows that changed from `old` to `new`, of the rows of `new`: 0.0 to 1.0.

    Rows of either snapshot that the other does not hold with the same values count: an appended or
    a deleted row once, an updated row twice. Where manifests leave doubt, the share errs upwards.
    Values are compared fragment by fragment, in the columns that both snapshots have. All rows
    count as changed where one of `columns`, which statistics describe, is another column than
    before under the same name. The compactions of `history`, the commits from `old` to `new`, are
    no changes.
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
