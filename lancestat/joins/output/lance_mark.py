"""The mark of a join's result in a Lance dataset: which place and which content it belongs to.

The mark is schema metadata, since Lance commits that together with the rows, and every later commit
carries it on, also after the versions before it have been cleaned up. Readers copy schema metadata
as well. A mark therefore counts only in the dataset at the place that it names, and only for the
columns and files that it names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from lancestat.joins.output.writer import location_digest
from lancestat.lake.commit import MESSAGE_PROPERTY, VERSION_PROPERTY
from lancestat.lake.history import Commit, Effect, read_commit
from lancestat.lake.open import pinned_history, snapshot_at
from lancestat.lake.snapshot import Field, Fragment, fragment_values, pin_of

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import FragmentMetadata, LanceDataset, LanceSchema

MESSAGE = "result of a KNN join"

_KEY = "lancestat.output"
_FORMAT_VERSION = 2
# Rows and columns are the same after these, though the files may not be.
_PRESERVING = frozenset({Effect.ROWS_UNCHANGED, Effect.REWRITTEN})
# So many commits after a join are looked at; compactions and statistics are a few.
_COMMITS = 200


def with_mark(uri: str, schema: pa.Schema, fragments: Iterable[FragmentMetadata]) -> pa.Schema:
    """Return the schema of a result at a place, with the mark for these fragments."""
    return schema.with_metadata({_KEY: _mark(uri, schema, fragments)})


def with_new_mark(
    uri: str, schema: LanceSchema, fragments: Iterable[FragmentMetadata]
) -> LanceSchema:
    """Return the schema of an existing result, its fields unchanged, with a mark for fragments."""
    # As pickle does it: Lance has no other way to change metadata and keep the ids of fields.
    make, arguments = cast(tuple[Any, tuple[Any, ...]], schema.__reduce__())
    mark = _mark(uri, schema.to_pyarrow(), fragments)
    remade: LanceSchema = make(json.dumps({_KEY: list(mark.encode())}), *arguments[1:])
    return remade


def objection(dataset: LanceDataset, uri: str, options: Mapping[str, str]) -> str | None:
    """Return why the version that readers see is not what a join wrote there, None if it is."""
    mark = _read_mark(dataset)
    if mark is None:
        return "a Lance table that no join has written"
    location, content = mark
    if location != location_digest(uri):
        return "a copy of a join's result that was written at another location"
    if not _has_content(dataset, uri, options, content):
        return "a join's result that something else has changed since"
    return None


def is_result(commit: Commit) -> bool:
    """Return whether a commit says that a join made it."""
    message = commit.properties.get(MESSAGE_PROPERTY, "")
    return VERSION_PROPERTY in commit.properties and message.endswith(f": {MESSAGE}")


def _mark(uri: str, schema: pa.Schema, fragments: Iterable[FragmentMetadata]) -> str:
    content = _content(schema, fragment_values(fragments, {}))
    mark = {"format_version": _FORMAT_VERSION, "place": location_digest(uri), "content": content}
    return json.dumps(mark)


def _read_mark(dataset: LanceDataset) -> tuple[str, str] | None:
    text = (dataset.schema.metadata or {}).get(_KEY.encode(), b"").decode(errors="replace")
    try:
        mark = json.loads(text)
        return str(mark["place"]), str(mark["content"])
    except (ValueError, TypeError, KeyError):
        return None


def _content(columns: Iterable[Field | pa.Field], fragments: Iterable[Fragment]) -> str:
    """Return a digest over the columns, and the files of the fragments in their order.

    Lance never writes two files of one name. Ids of fields and fragments are not known before the
    commit, and are left out.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([[field.name, str(field.type)] for field in columns]).encode())
    for fragment in fragments:
        files = [[file.path, file.base_id] for file in fragment.files]
        overlays = [[overlay.file.path, overlay.coverage] for overlay in fragment.overlays]
        line = [files, fragment.physical_rows, fragment.deletion_file, overlays]
        digest.update(json.dumps(line).encode())
    return digest.hexdigest()


def _has_content(dataset: LanceDataset, uri: str, options: Mapping[str, str], content: str) -> bool:
    """Return whether rows and columns are those of a content, as Lance's transactions prove."""
    with pinned_history(pin_of(dataset, uri), options) as latest:
        for version in range(latest.version, max(0, latest.version - _COMMITS), -1):
            read = snapshot_at(latest, version, uri, options)
            if read is None:
                return False
            if _content(read.fields, read.fragments) == content:
                return True
            if read_commit(latest, version).effect not in _PRESERVING:
                return False
    return False
