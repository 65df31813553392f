"""The sides of a join as they are now, and what changed since the last run joined them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.errors import (
    FilterNotPushed,
    LakeError,
    Location,
    NotVectors,
    ReferenceNotLance,
    SideColumnMissing,
    SideFilesMissing,
    UsageError,
    did_you_mean,
)
from lancestat.joins.record import InputRecord
from lancestat.joins.scratch.kept_indexes import index_key
from lancestat.joins.search.metrics import metric_named
from lancestat.joins.search.work import (
    ROW_ADDRESS,
    FragmentState,
    Mode,
    PinnedTable,
    RightContent,
    RightFragment,
    SideSource,
)
from lancestat.lake.files import ListedFile, files_digest, list_files, list_store_files, local_path
from lancestat.lake.fingerprint import (
    FragmentContent,
    fragment_contents,
    leaves,
    rows_digest,
    stored_contents,
)
from lancestat.lake.open import open_pinned, pinned_reads
from lancestat.lake.snapshot import Field, Snapshot, index_metric
from lancestat.query.predicates.filter import (
    FilterSyntaxError,
    UnknownColumnError,
    columns_of,
    parse_filter,
)
from lancestat.query.predicates.filter_sql import to_lance
from lancestat.redact import redact_line, secret_values
from lancestat.spec.knn_join import ALL
from lancestat.spec.model import KnnJoin, KnnSide, ProjectSpec
from lancestat.state.values import canonical_uri

if TYPE_CHECKING:
    import lance
    import pyarrow as pa


def keeps_index(join: KnnJoin) -> bool:
    """Whether a join may search an index of its right side that is kept from run to run.

    Only the right side's rows of a Lance table keep their places.
    """
    is_exact = join.mode == Mode.EXACT.value or join.recall == 1.0
    is_self_join = join.self_location is not None and join.k != ALL
    return not (is_exact or join.on or is_self_join)


def side_index_key(spec: ProjectSpec, join: KnnJoin, uri: str) -> str:
    state, table = canonical_uri(spec.target.state), canonical_uri(uri)
    return index_key(state, table, join.right.vector, join.metric, join.right.where)


def right_content(
    snapshot: Snapshot, columns: Sequence[Field], key: str, filter: str | None = None
) -> RightContent:
    """Return the content of a right side that is a Lance table, whose indexes have a key.

    `columns` are the leaves of the vectors, and of what the filter in Lance's SQL reads: rows that
    it does not pass are no rows of the side.
    """
    rows = {fragment.id: fragment.rows for fragment in snapshot.fragments}
    means = (filter or "").encode()

    def digest(stored: FragmentContent) -> str:
        return hashlib.blake2b(stored.digest + means, digest_size=16).hexdigest()

    return RightContent(
        key,
        tuple(
            RightFragment(stored.id, digest(stored), stored.rows, rows[stored.id])
            for stored in stored_contents(snapshot, columns)
        ),
    )


@dataclass(frozen=True, slots=True)
class JoinInput:
    """A side of a join as it is now.

    Equal digests mean equal rows; `digest` is None where that cannot be proven. The digest of a
    query means that only if the run that recorded it proved so (`InputRecord.unproven`): its text
    and the content of the tables that it may name are the same. Of a Lance table `fragments` are
    known too, None of other sides. `columns` of the output, `rows`, the `dimension` of vectors and
    `key_types` are None where only a run can tell. `index` is the metric of a vector index.
    """

    work: SideSource
    digest: str | None
    fragments: tuple[FragmentContent, ...] | None = None
    columns: tuple[str, ...] | None = None
    rows: int | None = None
    dimension: int | None = None
    index: str | None = None
    notes: tuple[str, ...] = ()
    key_types: tuple[pa.DataType, ...] | None = None

    @property
    def is_table(self) -> bool:
        """Whether rows keep their places from run to run, as those of a Lance table do."""
        return self.fragments is not None

    def to_record(self) -> InputRecord:
        ids = [fragment.id for fragment in self.fragments or ()]
        return InputRecord(self.digest or "", len(ids), max(ids, default=-1), self.rows)


class SideChange(Enum):
    """The kinds of change of a side."""

    NONE = "none"
    APPENDED = "appended"
    OTHER = "other"


def change(now: JoinInput, then: InputRecord) -> SideChange:
    """Return the change of a side since it was recorded: rows after all others, or any other.

    New rows of a side that had none are another change: there is no result to extend.
    """
    if now.digest is None or not then.digest:
        return SideChange.OTHER
    if now.work.sql is not None and then.unproven != ():
        return SideChange.OTHER
    if now.digest == then.digest:
        return SideChange.NONE
    return SideChange.APPENDED if appended(now, then) else SideChange.OTHER


@dataclass(frozen=True, slots=True)
class SideDelta:
    """What changed of the rows of a table: ids of fragments whose rows are new, and counts.

    A row that was updated is gone, and is new in another fragment. Filters are left aside.
    """

    new: frozenset[int]
    new_rows: int
    gone_rows: int

    @classmethod
    def between(
        cls, now: Sequence[FragmentState], then: Sequence[FragmentState]
    ) -> SideDelta | None:
        """Compare the fragments of a table with those of an earlier version.

        None where rows have changed in their places, or have come back: a column was rewritten, or
        an earlier version was restored.
        """
        before = {fragment.id: fragment for fragment in then}
        last = max(before, default=-1)
        new = frozenset(fragment.id for fragment in now) - before.keys()
        for fragment in now:
            known = before.get(fragment.id)
            if known is None:
                if fragment.id < last:
                    return None
            elif known.content != fragment.content or known.rows < fragment.rows:
                return None
        new_rows = sum(fragment.rows for fragment in now if fragment.id in new)
        kept_rows = sum(fragment.rows for fragment in now) - new_rows
        return cls(new, new_rows, sum(fragment.rows for fragment in then) - kept_rows)


def appended(now: JoinInput, then: InputRecord) -> Sequence[FragmentContent]:
    """The fragments that came after those recorded; none where these are not as they were."""
    fragments, count = now.fragments or (), then.fragments
    old, new = fragments[:count], fragments[count:]
    if not old or rows_digest(old) != then.digest:
        return ()
    # Fragments are numbered in the order in which they were written.
    return new if all(fragment.id > then.last_fragment for fragment in new) else ()


@dataclass(frozen=True, slots=True)
class JoinSide:
    """The `left` or the `right` side of a declared join, and what errors call it."""

    join: KnnJoin
    name: str

    def __str__(self) -> str:
        return self.join.stands_for or f"the {self.name} side of {self.join.title}"

    @property
    def declared(self) -> KnnSide:
        return self.join.left if self.name == "left" else self.join.right

    @property
    def keys(self) -> tuple[str, ...]:
        at = 0 if self.name == "left" else 1
        return tuple(pair[at] for pair in self.join.on)

    def error(
        self,
        kind: type[UsageError],
        message: str,
        hint: str | None = None,
        location: Location | None = None,
    ) -> UsageError:
        return kind(message, location=location or self.join.location, hint=hint)


def check_columns(side: JoinSide, uri: str, types: Mapping[str, pa.DataType]) -> int | None:
    """Check the columns of a side, and return the vectors' length, None where rows may differ.

    Columns of a filter are checked by `pushed_filter`.

    Raises:
        SideColumnMissing: a column is missing.
        NotVectors: the vector column is of another type.
    """
    from lancestat.joins.search.vectors import BIT_TYPES, VECTOR_TYPES, dimension, is_vector

    declared = side.declared
    for column in (declared.vector, *(declared.select or ())):
        if column not in types and column != ROW_ADDRESS:
            raise _missing(side, uri, column, types)
    for column in side.keys:
        if column not in types:
            raise _missing(side, uri, column, types, side.join.on_location)
    type, has_bits = types[declared.vector], metric_named(side.join.metric).has_bits
    if not is_vector(type, has_bits=has_bits):
        compared = " of bits" if has_bits else ""
        raise side.error(
            NotVectors,
            f"{side} names '{declared.vector}' as its vectors{compared}, which is of type {type}",
            BIT_TYPES if has_bits else VECTOR_TYPES,
        )
    return dimension(type, has_bits=has_bits)


def _missing(
    side: JoinSide,
    uri: str,
    column: str,
    columns: Iterable[str],
    location: Location | None = None,
) -> UsageError:
    message = f"{side} names column '{column}', which {redact_line(uri)} does not have"
    hint = did_you_mean(column, columns, "its columns")
    return side.error(SideColumnMissing, message, hint, location)


# The filter of a side in Lance's SQL, and the columns that it reads.
PushedFilter = tuple[str, frozenset[str]]


_WHERE_HINT = "filter by what Lance can compare exactly, or declare the side as a query (`sql`)"


def pushed_filter(side: JoinSide, uri: str, fields: Sequence[Field]) -> PushedFilter | None:
    """Return the `where` of a side on a dataset, None without one.

    Raises:
        SideColumnMissing: it names a column that the dataset does not have.
        FilterNotPushed: Lance's scan cannot apply it exactly.
    """
    declared = side.declared
    if declared.where is None:
        return None
    by_name, place = {field.name: field for field in fields}, declared.where_location
    try:
        filter = parse_filter(declared.where, by_name)
    except UnknownColumnError as error:
        raise _missing(side, uri, error.column, by_name, place) from None
    except FilterSyntaxError as error:
        message = f"'where' of {side} {error}"
        raise side.error(FilterNotPushed, message, _WHERE_HINT, place) from None
    sql = to_lance(filter, by_name)
    if sql is None:
        message = f"'where' of {side} compares what Lance does not compare as Spark does"
        raise side.error(FilterNotPushed, message, _WHERE_HINT, place)
    return sql, columns_of(filter)


# Formats of files whose readers ignore hidden files.
_FILE_FORMATS = frozenset({"parquet", "csv", "json", "orc", "text", "avro", "xml", "binaryfile"})
# The most files whose footers are read to count rows; a run counts those of more.
_FOOTERS = 256


def observe_files(
    side: JoinSide, uri: str, format: str, storage_options: Mapping[str, str]
) -> JoinInput:
    """Return a side of files as it is now, as far as a listing tells.

    Raises:
        UsageError: about columns, as `check_columns`, or there are no files.
    """
    declared = side.declared
    redacted_uri = redact_line(uri, secret_values(declared.options))
    vector, select, options = declared.vector, declared.select, declared.options
    work = SideSource(vector, select, format=format, uri=uri, options=options, keys=side.keys)
    reads_files = format.lower() in _FILE_FORMATS
    is_local = local_path(uri) is not None
    files: Sequence[ListedFile] | None = None
    if reads_files:
        files = list_files(uri) if is_local else list_store_files(uri, storage_options)
    if not files:
        if reads_files and is_local:
            raise side.error(SideFilesMissing, f"{side} has no files at {redacted_uri}")
        # Other sources may read anything, wherever their path leads.
        note = f"changes of the {side.name} side cannot be detected from {redacted_uri}"
        return JoinInput(work, None, columns=select, notes=(note,))
    rows = dimension = None
    if is_local and format.lower() == "parquet":
        rows, dimension = _footers(side, redacted_uri, files)
    return JoinInput(work, files_digest(files), None, select, rows, dimension)


def _footers(
    side: JoinSide, uri: str, files: Sequence[ListedFile]
) -> tuple[int | None, int | None]:
    """Return rows and the vectors' length, None where footers do not have them."""
    import pyarrow as pa
    from pyarrow import parquet

    if len(files) > _FOOTERS:
        return None, None
    try:
        readers = [parquet.ParquetFile(file.path) for file in files]
        schemas = [reader.schema_arrow for reader in readers]
        rows = sum(reader.metadata.num_rows for reader in readers)
    except (OSError, ValueError, pa.ArrowException):
        # Spark reports what is wrong with the files.
        return None, None
    # Names of folders make columns too, and files may differ: then a run checks the columns.
    is_partitioned = any("=" in part for file in files for part in Path(file.path).parts)
    if is_partitioned or any(not schema.equals(schemas[0]) for schema in schemas):
        return rows, None
    return rows, check_columns(side, uri, {field.name: field.type for field in schemas[0]})


def datasets_of(spec: ProjectSpec, side: KnnSide) -> dict[str, str]:
    """The URIs of the Lance datasets that a side is, or that its query names, by names for SQL."""
    if side.sql is not None or side.table is not None:
        named = [(ref, spec.node(ref)) for ref in dict.fromkeys(side.refs)]
        return {
            ref: node.dataset_uri
            for ref, node in named
            if node is not None and node.dataset_format == "lance"
        }
    is_lance = side.format == "lance" and side.uri is not None and not side.options
    return {side.uri: side.uri} if is_lance and side.uri is not None else {}


def lance_uris(spec: ProjectSpec, join: KnnJoin) -> tuple[str, ...]:
    """The URIs of the Lance datasets that a join reads."""
    return (*datasets_of(spec, join.left).values(), *datasets_of(spec, join.right).values())


def _sql_settings(conf: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the settings that a query's meaning depends on; those of catalogs may be secret."""
    return sorted(
        (key, value)
        for key, value in conf.items()
        if key.startswith("spark.sql.") and not key.startswith("spark.sql.catalog.")
    )


def observe_side(
    side: JoinSide, spec: ProjectSpec, snapshots: Mapping[str, Snapshot | LakeError]
) -> JoinInput:
    """Return a side of a join as it is now, at the versions that `snapshots` has by URI.

    Raises:
        LakeError: a dataset cannot be opened.
        UsageError: columns, files, references or the filter cannot be used.
    """
    declared = side.declared
    observed = {
        name: _snapshot(snapshots[uri]) for name, uri in datasets_of(spec, declared).items()
    }
    if declared.sql is not None:
        return _observe_query(side, spec, observed)
    for name, snapshot in observed.items():
        return _observe_table(side, spec, name, snapshot)
    if declared.where is not None:
        raise side.error(
            FilterNotPushed,
            f"{side} has a 'where', but is no Lance dataset",
            "give the join that writes it a Lance output",
            declared.where_location,
        )
    options = spec.target.storage_options
    node = None if declared.table is None else spec.node(declared.table)
    if node is not None:
        return observe_files(side, node.dataset_uri, node.dataset_format, options)
    assert declared.uri is not None and declared.format is not None
    return observe_files(side, declared.uri, declared.format, options)


def _observe_table(side: JoinSide, spec: ProjectSpec, name: str, snapshot: Snapshot) -> JoinInput:
    declared, uri = side.declared, snapshot.uri
    types = {field.name: field.type for field in snapshot.fields}
    dimension = check_columns(side, uri, types)
    filter, filtered = pushed_filter(side, uri, snapshot.fields) or (None, frozenset[str]())
    select = tuple(types) if declared.select is None else declared.select
    index = content = None
    with _opened(spec, snapshot) as opened:
        read = {declared.vector, *select, *side.keys, *filtered}
        columns = leaves(opened, read)
        # An index proposes rows of the whole table.
        if side.name == "right" and filter is None:
            index = index_metric(opened, declared.vector)
        if side.name == "right" and keeps_index(side.join):
            indexed = leaves(opened, {declared.vector, *filtered})
            content = right_content(snapshot, indexed, side_index_key(spec, side.join, uri), filter)
    contents = fragment_contents(snapshot, columns)
    if ROW_ADDRESS in select:
        # The same rows in other fragments have other addresses.
        contents = tuple(
            replace(content, digest=content.digest + content.id.to_bytes(8, "little"))
            for content in contents
        )
    return JoinInput(
        work=SideSource(
            declared.vector,
            select,
            table=PinnedTable.at(snapshot, name),
            filter=filter,
            keys=side.keys,
            content=content,
            state=_state(snapshot, columns),
        ),
        digest=rows_digest(contents),
        fragments=contents,
        columns=select,
        rows=snapshot.rows if filter is None else None,
        dimension=dimension,
        index=index,
        key_types=tuple(types[key] for key in side.keys),
    )


def _state(snapshot: Snapshot, columns: Sequence[Field]) -> tuple[FragmentState, ...]:
    live = {fragment.id: fragment for fragment in snapshot.fragments}
    return tuple(
        FragmentState(
            stored.id, stored.digest.hex(), live[stored.id].deletion_file, live[stored.id].rows
        )
        for stored in stored_contents(snapshot, columns)
    )


def _observe_query(
    side: JoinSide, spec: ProjectSpec, observed: Mapping[str, Snapshot]
) -> JoinInput:
    declared = side.declared
    for ref in set(declared.refs) - set(observed):
        raise side.error(
            ReferenceNotLance,
            f"the query of {side} names '{ref}', whose result is no Lance dataset",
            f"give '{ref}' a Lance output, or read its files as a side",
        )
    digest = hashlib.blake2b((declared.sql or "").encode(), digest_size=16)
    digest.update(json.dumps(_sql_settings(spec.target.spark_conf)).encode())
    for name, snapshot in observed.items():
        with _opened(spec, snapshot) as opened:
            contents = fragment_contents(snapshot, leaves(opened, opened.schema.names))
        digest.update(f"\0{name}\0{rows_digest(contents)}".encode())
    work = SideSource(
        declared.vector,
        declared.select,
        sql=declared.sql,
        views=tuple(PinnedTable.at(snapshot, name) for name, snapshot in observed.items()),
        location=declared.sql_location or side.join.location,
        keys=side.keys,
    )
    return JoinInput(work, digest.hexdigest(), columns=declared.select)


def _snapshot(observed: Snapshot | LakeError) -> Snapshot:
    if isinstance(observed, LakeError):
        raise observed
    return observed


@contextmanager
def _opened(spec: ProjectSpec, snapshot: Snapshot) -> Iterator[lance.LanceDataset]:
    options = spec.options.of(snapshot.uri)
    with pinned_reads(snapshot.pin, options):
        yield open_pinned(snapshot.pin, storage_options=options)
