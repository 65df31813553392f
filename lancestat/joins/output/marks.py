"""Marks of results in Lance, which prove that rows are what a join wrote, and in what order.

The *mark* says which location and which content a result belongs to. It is schema metadata, since
Lance commits that together with the rows, and every later commit carries it on, also after the
versions before it have been cleaned up. Readers copy schema metadata as well. A mark therefore
counts only in the dataset at the location that it names, for the columns and files that it names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from lancestat.joins.output.writer import location_digest
from lancestat.lake.commit import MESSAGE_PROPERTY, VERSION_PROPERTY
from lancestat.lake.history import Commit, Effect, Rewrite, read_commit
from lancestat.lake.open import pinned_history, snapshot, snapshot_at
from lancestat.lake.snapshot import Field, Fragment, fragment_values, pin_of

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import FragmentMetadata, LanceDataset, LanceSchema

MESSAGE = "result of a KNN join"
MARK_MESSAGE = "mark of the result of a KNN join"
KEY = "lancestat.output"
CHANGED = "a join's result that something else has changed since"
_FORMAT_VERSION = 2
# Rows and columns are the same after these, though the files may not be.
_PRESERVING = frozenset({Effect.ROWS_UNCHANGED, Effect.REWRITTEN})
# So many commits after a join are looked at; compactions and statistics are a few.
_COMMITS = 200


def objection(dataset: LanceDataset, uri: str, options: Mapping[str, str]) -> str | None:
    """Return why the version that readers see is not what a join wrote there, None if it is."""
    mark = _mark_of(dataset)
    if mark is None:
        return "a Lance table that no join has written"
    if mark[0] != location_digest(uri):
        return "a copy of a join's result that was written at another location"
    if rows_digest(dataset, uri, options) is None:
        return CHANGED
    return None


def rows_digest(dataset: LanceDataset, uri: str, options: Mapping[str, str]) -> str | None:
    """Return a digest of the rows that a join wrote, in their order, and of the columns.

    It stays the same when statistics are published, and when the files are written anew. None
    unless Lance's transactions prove that the rows are those of a join.
    """
    mark = _mark_of(dataset)
    if mark is None:
        return None
    read = snapshot(dataset, uri, options)
    found = now = _content(read.fields, read.fragments)
    # Opened in any case: a version that its catalog does not know is none to rely on.
    with pinned_history(pin_of(dataset, uri), options) as latest:
        if found == mark[1]:
            return now
        is_in_order = True
        for _ in range(_COMMITS):
            made = read_commit(latest, read.version)
            # A run that was killed before the mark followed its commit has made a result, too.
            if found == mark[1] or is_result(made):
                return found if is_in_order else now
            before = None
            if made.effect in _PRESERVING:
                before = snapshot_at(latest, read.version - 1, uri, options)
            if before is None:
                return None
            is_in_order &= _is_in_place(before.fragments, read.fragments, made.rewrites)
            read, found = before, _content(before.fields, before.fragments)
    return None


def _is_in_place(
    before: Sequence[Fragment], after: Sequence[Fragment], rewrites: Iterable[Rewrite]
) -> bool:
    """Whether rewritten fragments are where the old ones were, and so are all others.

    Lance orders fragments by their ids: what it compacts in the middle of a table goes to the end.
    """
    ids = [fragment.id for fragment in before]
    for rewrite in rewrites:
        old, new = ([one.id for one in part] for part in (rewrite.old, rewrite.new))
        first = ids.index(old[0])
        if ids[first : first + len(old)] != old:
            return False
        ids[first : first + len(old)] = new
    return ids == [fragment.id for fragment in after]


def is_result(commit: Commit) -> bool:
    """Whether a commit says that a join made it."""
    message = commit.properties.get(MESSAGE_PROPERTY, "")
    return VERSION_PROPERTY in commit.properties and message.endswith(f": {MESSAGE}")


def with_new_mark(
    uri: str, schema: LanceSchema, fragments: Iterable[FragmentMetadata]
) -> LanceSchema:
    """Return the schema of an existing result, its fields unchanged, with a mark for fragments."""
    # As pickle does it: Lance has no other way to change metadata and keep the ids of fields.
    make, arguments = cast(tuple[Any, tuple[Any, ...]], schema.__reduce__())
    mark = mark_for(uri, schema.to_pyarrow(), fragments)
    remade: LanceSchema = make(json.dumps({KEY: list(mark.encode())}), *arguments[1:])
    return remade


def mark_for(uri: str, schema: pa.Schema, fragments: Iterable[FragmentMetadata]) -> str:
    content = _content(schema, fragment_values(fragments, {}))
    mark = {"format_version": _FORMAT_VERSION, "place": location_digest(uri), "content": content}
    return json.dumps(mark)


def _mark_of(dataset: LanceDataset) -> tuple[str, str] | None:
    """Return the place and the content that a mark names, None where there is no mark."""
    text = (dataset.schema.metadata or {}).get(KEY.encode(), b"").decode(errors="replace")
    try:
        mark = json.loads(text)
        return str(mark["place"]), str(mark["content"])
    except (ValueError, TypeError, KeyError):
        return None


def _content(columns: Iterable[Field | pa.Field], fragments: Iterable[Fragment]) -> str:
    """Return a digest over the columns, and the files of the fragments in their order.

    Ids of fields and fragments are not known before the commit, and are left out.
    """
    described = [[field.name, str(field.type)] for field in columns]
    digest = hashlib.blake2b(json.dumps(described).encode(), digest_size=16)
    for fragment in fragments:
        files = [[file.path, file.base_id] for file in fragment.files]
        overlays = [[overlay.file.path, overlay.coverage] for overlay in fragment.overlays]
        line = [files, fragment.physical_rows, fragment.deletion_file, overlays]
        digest.update(json.dumps(line).encode())
    return digest.hexdigest()
