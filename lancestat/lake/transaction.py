"""One commit's transaction, read and judged."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lancestat.lake.history import Commit, Effect, Rewrite
from lancestat.lake.manifest import FieldIds, fragment_values
from lancestat.lake.open import is_failure
from lancestat.lake.snapshot import DataFile, Fragment

if TYPE_CHECKING:
    import lance

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
    """How one version of a dataset came about; UNKNOWN when that cannot be told."""
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
        if not is_failure(error):
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
    made = {each.files: each for each in _by_id(after, made_ids, shared)}
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
    """The group with the fragments as the manifests have them; None if they say otherwise.

    The transaction holds the old fragments as its author saw them, and new ones without an id.
    """
    claimed = tuple(fragment_values(group.old_fragments, shared))
    old = tuple(_by_id(before, [each.id for each in claimed], shared))
    new = tuple(
        made[each.files]
        for each in fragment_values(group.new_fragments, shared)
        if each.files in made
    )
    all_found = len(new) == len(list(group.new_fragments))
    same_rows = sum(each.rows for each in old) == sum(each.rows for each in new)
    is_confirmed = old == claimed and all_found and same_rows
    return Rewrite(old, new, field_ids) if is_confirmed else None


def _by_id(dataset: lance.LanceDataset, ids: Iterable[int], shared: FieldIds) -> Iterable[Fragment]:
    found = (dataset.get_fragment(each) for each in ids)
    return fragment_values((each.metadata for each in found if each is not None), shared)


_shim = threading.Lock()


def _read_transaction(dataset: lance.LanceDataset, version: int) -> lance.Transaction | None:
    """Read a transaction, also one that rewrote an index.

    pylance 14 builds `RewrittenIndex` with two of its five arguments, so that reading the
    compaction of any indexed table raises TypeError. Only then, and only for the time of one read,
    the other three have a default. What they would hold is of no use here.
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
