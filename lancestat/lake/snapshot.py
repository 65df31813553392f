"""A Lance dataset at one version as plain values, its Spark types, and how scans are split."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache, cached_property, lru_cache, wraps
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import lance
    import numpy as np
    import pyarrow as pa
    from lance.bitmap import Bitmap
    from numpy.typing import NDArray


# Blobs of storage format 2.2 on, by the name of their extension type.
BLOB = "lance.blob.v2"
JSON = "arrow.json"

# Where the bytes of a blob lie, which is what the connector reads of one.
_DESCRIPTOR = "struct<kind:smallint,position:bigint,size:bigint,blob_id:bigint,blob_uri:string>"

_OURS = {BLOB: "binary"}
_THE_CONNECTORS = {BLOB: "binary", JSON: "binary"}


Answer = TypeVar("Answer")


def by_type(answer: Callable[[pa.DataType], Answer]) -> Callable[[pa.DataType], Answer]:
    """Return a function of Arrow types that remembers its answers, but those of extension types.

    Extension types that are defined in Python have no hash.
    """
    remembered = lru_cache(maxsize=1_024)(answer)

    @wraps(answer)
    def answered(arrow_type: pa.DataType) -> Answer:
        import pyarrow as pa

        is_extension = isinstance(arrow_type, pa.BaseExtensionType)
        return answer(arrow_type) if is_extension else remembered(arrow_type)

    return answered


@by_type
def spark_type(arrow_type: pa.DataType) -> str | None:
    """Return the catalog string of the Spark type that lancestat reads an Arrow type as.

    Returns None where Spark has no such type, at any depth: decimal256, unions, calendar intervals.
    Dictionaries are their values, blobs their bytes, other extension types their storage; uint64
    becomes bigint, as in the Lance connector for Spark.
    """
    return _mapped(arrow_type, _OURS)


@by_type
def connector_type(arrow_type: pa.DataType) -> str | None:
    """Return the catalog string of the type that the Lance connector for Spark gives a column.

    It differs from `spark_type` for blobs, which are structs of descriptors there, and for JSON,
    which is binary at any depth. The schema hash of published statistics has these types. The
    connector cannot read tables with dictionaries or with types that `spark_type` lacks.
    """
    import pyarrow as pa

    if isinstance(arrow_type, pa.BaseExtensionType) and arrow_type.extension_name == BLOB:
        return _DESCRIPTOR
    return _mapped(arrow_type, _THE_CONNECTORS)


def _mapped(arrow_type: pa.DataType, extensions: Mapping[str, str]) -> str | None:
    import pyarrow as pa

    types = pa.types
    if isinstance(arrow_type, pa.BaseExtensionType):
        known = extensions.get(arrow_type.extension_name)
        return known or _mapped(arrow_type.storage_type, extensions)
    if types.is_dictionary(arrow_type):
        return _mapped(arrow_type.value_type, extensions)
    if types.is_struct(arrow_type):
        members = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
        return _struct([(member.name, _mapped(member.type, extensions)) for member in members])
    if types.is_map(arrow_type):
        arguments = (arrow_type.key_type, arrow_type.item_type)
        return _generic("map", [_mapped(argument, extensions) for argument in arguments])
    if hasattr(arrow_type, "value_field"):
        return _generic("array", [_mapped(arrow_type.value_type, extensions)])
    if types.is_decimal128(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if types.is_timestamp(arrow_type):
        return "timestamp" if arrow_type.tz else "timestamp_ntz"
    return next((name for is_type, name in _scalars() if is_type(arrow_type)), None)


def _struct(members: list[tuple[str, str | None]]) -> str | None:
    if any(type is None for _, type in members):
        return None
    return f"struct<{','.join(f'{name}:{type}' for name, type in members)}>"


def _generic(name: str, arguments: list[str | None]) -> str | None:
    known = [type for type in arguments if type is not None]
    return f"{name}<{','.join(known)}>" if len(known) == len(arguments) else None


_Predicate = Callable[["pa.DataType"], bool]


@cache
def _scalars() -> tuple[tuple[_Predicate, str], ...]:
    from pyarrow import types

    names = {
        "boolean": "boolean",
        "int8": "tinyint",
        "int16": "smallint",
        "uint8": "smallint",
        "int32": "int",
        "uint16": "int",
        "int64": "bigint",
        "uint32": "bigint",
        "uint64": "bigint",
        "float16": "float",
        "float32": "float",
        "float64": "double",
        "string": "string",
        "large_string": "string",
        "string_view": "string",
        "binary": "binary",
        "large_binary": "binary",
        "binary_view": "binary",
        "fixed_size_binary": "binary",
        "date": "date",
        "time": "time(6)",
        "duration": "interval day to second",
        "null": "void",
    }
    return tuple((getattr(types, f"is_{arrow}"), spark) for arrow, spark in names.items())


UNREADABLE_NAME = "Lance cannot read a column of this name"


def is_readable_name(name: str) -> bool:
    """Whether Lance can read a column by its name: `*` is all columns there, and not one."""
    return bool(name) and "`" not in name and name != "*"


@dataclass(frozen=True, slots=True)
class Field:
    """A top-level column with Lance's field id, and its Spark catalog string if Spark has such a
    type.
    """

    id: int
    name: str
    type: pa.DataType
    nullable: bool
    spark_type: str | None


@dataclass(frozen=True, slots=True)
class DataFile:
    """One immutable file of a fragment: its path and the ids of all fields (nested too) inside."""

    path: str
    field_ids: tuple[int, ...]
    size_bytes: int | None
    base_id: int | None


@dataclass(frozen=True, slots=True)
class Overlay:
    """New values for some cells of some fields of a fragment; `coverage` digests the cells."""

    file: DataFile
    coverage: str


@dataclass(frozen=True, slots=True)
class Fragment:
    """A horizontal slice of the table. `deletion_file` identifies the deletion file, if any."""

    id: int
    physical_rows: int
    deleted_rows: int
    files: tuple[DataFile, ...]
    deletion_file: str | None
    overlays: tuple[Overlay, ...]

    @property
    def rows(self) -> int:
        """Live rows."""
        return self.physical_rows - self.deleted_rows

    @property
    def size_bytes(self) -> int:
        """Bytes on disk of all data files whose size the manifest knows."""
        return sum(file.size_bytes or 0 for file in self.files)


@dataclass(frozen=True)
class Snapshot:
    """A dataset at one version. `fields` are the top-level columns in schema order."""

    uri: str
    version: int
    fields: tuple[Field, ...]
    fragments: tuple[Fragment, ...]
    config: Mapping[str, str]
    committed_at: datetime | None

    @cached_property
    def pin(self) -> Pin:
        """The pin against which every later opening of the dataset is checked."""
        return Pin(self.uri, self.version, manifest_identity(self.committed_at, self._newest))

    @cached_property
    def newest_fragment(self) -> str:
        """A digest of the fragment with the highest id: 32 hex digits.

        It covers the names of the fragment's files, which are random: a dataset that was created
        again has another digest. Clones and commits that change no rows have the same one.
        """
        return _digest(_files(self._newest, with_bases=False))

    @property
    def _newest(self) -> Fragment | None:
        return max(self.fragments, key=lambda fragment: fragment.id, default=None)

    @cached_property
    def rows(self) -> int:
        """Live rows of the whole table."""
        return sum(fragment.rows for fragment in self.fragments)

    @cached_property
    def size_bytes(self) -> int:
        """Bytes on disk of all data files."""
        return sum(fragment.size_bytes for fragment in self.fragments)

    def field(self, name: str) -> Field | None:
        """Return the column of that exact name."""
        return next((field for field in self.fields if field.name == name), None)


@dataclass(frozen=True, slots=True)
class Pin:
    """A version of a dataset, distinct from every other dataset that was or will be at its URI.

    Version numbers do not suffice: a dataset that is dropped and created again counts from 1, and a
    restored backup counts on from an earlier version. `manifest` is the `manifest_identity`. A pin
    is made when a dataset is observed, and checked whenever it is opened again
    (`lake.open.open_pinned`).
    """

    uri: str
    version: int
    manifest: str


def manifest_identity(committed_at: datetime | None, newest: Fragment | None) -> str:
    """Return a digest that distinguishes manifests of the same version number: 32 hex digits.

    It covers the commit time, in microseconds, and the files of the fragment with the highest id,
    whose random names distinguish histories with equal commit times, as of coarse clocks.
    """
    instant = None if committed_at is None else committed_at.astimezone(timezone.utc).isoformat()
    return _digest([instant, _files(newest)])


def _files(fragment: Fragment | None, *, with_bases: bool = True) -> list[object] | None:
    if fragment is None:
        return None
    paths = [[file.base_id if with_bases else None, file.path] for file in fragment.files]
    deletion = fragment.deletion_file
    if deletion is not None and not with_bases:
        # As where it was written.
        deletion = f"{deletion.rpartition('-')[0]}-None"
    return [fragment.id, fragment.physical_rows, deletion, paths]


def _digest(value: object) -> str:
    text = json.dumps(value).encode(errors="surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


# Field ids by themselves: the one tuple that stands for all equal ones.
FieldIds = dict[tuple[int, ...], tuple[int, ...]]


def pin_of(dataset: lance.LanceDataset, uri: str | None = None) -> Pin:
    """Return the pin of an open dataset at its version; `uri` is how the project names it."""
    ids = dataset.fragment_ids()
    newest = dataset.get_fragment(max(ids)) if ids else None
    fragment = None if newest is None else next(fragment_values([newest.metadata], {}))
    identity = manifest_identity(committed_at(dataset), fragment)
    return Pin(dataset.uri if uri is None else uri, dataset.version, identity)


def committed_at(dataset: lance.LanceDataset) -> datetime:
    """Return the commit time of the open version, by the clock of its writer, in UTC."""
    at: datetime = dataset.get_version()["timestamp"]
    return at.astimezone(timezone.utc)


def fragment_values(
    metadata: Iterable[lance.FragmentMetadata], shared: FieldIds
) -> Iterator[Fragment]:
    """Yield fragments as values, one at a time, with the field ids of like files shared."""
    return (_fragment(fragment, shared) for fragment in metadata)


def _fragment(metadata: lance.FragmentMetadata, shared: FieldIds) -> Fragment:
    deletion = metadata.deletion_file
    return Fragment(
        id=metadata.id,
        physical_rows=metadata.physical_rows,
        deleted_rows=metadata.num_deletions,
        files=tuple(_data_file(file, shared) for file in metadata.files),
        deletion_file=None if deletion is None else _deletion_file(deletion),
        overlays=tuple(
            Overlay(_data_file(overlay.data_file, shared), _coverage(overlay.offsets))
            for overlay in metadata.overlays
        ),
    )


def _deletion_file(deletion: lance.fragment.DeletionFile) -> str:
    # The parts of its path, whose file name Lance makes from the commit and a random number.
    return f"{deletion.read_version}-{deletion.id}-{deletion.file_type}-{deletion.base_id}"


def _data_file(file: lance.fragment.DataFile, shared: FieldIds) -> DataFile:
    field_ids = tuple(file.fields)
    return DataFile(
        # `path` would wrap the string in a class of its own, for every file.
        path=file._path,
        field_ids=shared.setdefault(field_ids, field_ids),
        size_bytes=file.file_size_bytes,
        base_id=file.base_id,
    )


def _coverage(offsets: Bitmap | Sequence[Iterable[int]]) -> str:
    """Return a digest of the cells of an overlay: rows for all its fields, or for each."""
    import numpy as np
    from lance.bitmap import Bitmap

    bitmaps = [offsets] if isinstance(offsets, Bitmap) else offsets
    digest = hashlib.blake2b(digest_size=16)
    for rows in bitmaps:
        cells = np.sort(np.fromiter(rows, dtype="<u8"))
        digest.update(len(cells).to_bytes(8, "little") + cells.tobytes())
    return digest.hexdigest()


def index_metric(dataset: lance.LanceDataset, column: str) -> str | None:
    """Return the metric of a column's vector index (`l2`, `cosine`, `dot`); None without one."""
    for index in dataset.describe_indices():
        if index.field_names == [column] and "VectorIndex" in index.type_url:
            details = index.details
            metric = details.get("metric_type") if isinstance(details, Mapping) else None
            return str(metric).lower() if metric else None
    return None


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows of one fragment from `offset` on: `count` of them, all that are left when None.

    Under a filter on the scan they are physical rows, else live rows.
    """

    fragment_id: int
    offset: int = 0
    count: int | None = None


# The row ranges that one Spark task reads for a query, in order.
ScanPartition = tuple[RowRange, ...]


@dataclass(frozen=True, slots=True)
class TaskSizes:
    """The sizes of the tasks of a job; weights are bytes read, or work that takes as long.

    A job has `per_core` tasks for each core: fewer where they would be lighter than `lightest`,
    more where they would be heavier than `heaviest`. Opening a fragment weighs `per_fragment`. A
    task may end at a fragment's end if that is off by no more than the share `slack` of a task.
    """

    per_core: int
    lightest: int
    heaviest: int
    per_fragment: int
    slack: float

    def tasks(self, weight: float, cores: int) -> int:
        """Return into how many tasks something of a weight is split."""
        cores = max(1, cores)
        count = min(cores * self.per_core, int(weight // self.lightest))
        if weight > self.heaviest * cores * self.per_core:
            # So many that no core waits for the last round.
            count = -(-int(weight // self.heaviest + 1) // cores) * cores
        return max(1, count)


# Queries: weights are decoded bytes.
QUERY = TaskSizes(
    per_core=2, lightest=16 << 20, heaviest=256 << 20, per_fragment=1 << 20, slack=0.125
)
# Analyses: weights are bytes on disk. Tasks are taken heaviest first and end close to each other; a
# few rows of a fragment by themselves take as long as a twentieth of a task.
ANALYSIS = TaskSizes(
    per_core=4, lightest=2 << 20, heaviest=256 << 20, per_fragment=128 << 10, slack=0.05
)


@dataclass(frozen=True, slots=True)
class Span:
    """The first rows of a fragment with their weight; `is_whole` when they are all of them."""

    fragment_id: int
    rows: int
    weight: float
    is_whole: bool = True

    def range(self, first: int, last: int) -> RowRange:
        """Return the rows `first` to before `last`, without a count up to the fragment's end."""
        is_to_the_end = last == self.rows and self.is_whole
        return RowRange(self.fragment_id, first, None if is_to_the_end else last - first)


def split(
    spans: Sequence[Span], cores: int, sizes: TaskSizes
) -> list[tuple[tuple[int, RowRange], ...]]:
    """Split spans into tasks of about equal weight: small ones together, large ones in ranges.

    Returns the ranges of each task, each with the index of its span, in the order of the spans.
    Every row is in one range; a span without rows is in one, too.
    """
    if not spans:
        return []
    ends = list(accumulate(span.weight for span in spans))
    cuts = _cuts(spans, ends, sizes.tasks(ends[-1], cores), sizes.slack)
    tasks = (tuple(_ranges(spans, *bounds)) for bounds in pairwise(cuts))
    return [task for task in tasks if task]


def split_fragments(
    fragments: Sequence[Fragment],
    *,
    row_bytes: float,
    cores: int,
    is_filtered: bool = False,
    limit: int | None = None,
) -> list[ScanPartition]:
    """Split the fragments that a query reads into the parts of its tasks.

    `row_bytes` are decoded bytes per row of the projected columns. Under a filter ranges are of
    physical rows; without one no more rows than `limit` are read in total.
    """
    live = [fragment for fragment in fragments if fragment.rows > 0]
    counts = [
        (fragment.id, fragment.physical_rows if is_filtered else fragment.rows) for fragment in live
    ]
    taken = _limited(counts, None if is_filtered else limit)
    spans = [
        Span(id, rows, QUERY.per_fragment + rows * row_bytes, is_whole)
        for id, rows, is_whole in taken
    ]
    return [tuple(rows for _, rows in task) for task in split(spans, cores, QUERY)]


def _limited(
    counts: Iterable[tuple[int, int]], limit: int | None
) -> Iterator[tuple[int, int, bool]]:
    """Yield fragments with the rows to read of them, and whether that is all of them."""
    left = limit
    for id, rows in counts:
        if left is None or rows <= left:
            yield id, rows, True
        elif left > 0:
            yield id, left, False
        left = None if left is None else max(0, left - rows)


# A place in a sequence of spans: an index of spans, and a row of that span.
_Cut = tuple[int, int]


def _cuts(spans: Sequence[Span], ends: Sequence[float], count: int, slack: float) -> list[_Cut]:
    share = ends[-1] / count
    cuts = [(0, 0)]
    for number in range(1, count):
        target = number * share
        index = bisect_right(ends, target)
        start = ends[index - 1] if index else 0.0
        nearest = min(target - start, ends[index] - target)
        if nearest < share * slack:
            cut = (index if nearest == target - start else index + 1, 0)
        else:
            cut = (index, int(spans[index].rows * (target - start) / (ends[index] - start)))
        cuts.append(max(cuts[-1], cut))
    return [*cuts, (len(spans), 0)]


def _ranges(spans: Sequence[Span], start: _Cut, stop: _Cut) -> Iterator[tuple[int, RowRange]]:
    for index in range(start[0], min(stop[0] + 1, len(spans))):
        span = spans[index]
        first = start[1] if index == start[0] else 0
        last = stop[1] if index == stop[0] else span.rows
        if last > first or (span.rows == 0 and index < stop[0]):
            yield index, span.range(first, last)


def count_rows(fragment: lance.LanceFragment, filter: str | None = None) -> int:
    """Return the number of live rows, or of those that pass a filter in Lance's SQL.

    `LanceFragment.count_rows` holds Python's lock while it waits for what it reads, and blocks for
    ever where other threads scan at the same time.
    """
    options = filter_options(fragment)
    scanner = fragment.scanner(columns=[], filter=filter, with_row_id=True, **options)
    return int(scanner.count_rows())


def is_legacy(fragment: lance.LanceFragment) -> bool:
    """Whether the files of a fragment are of Lance's first format."""
    return any(file.file_major_version < 2 for file in fragment.metadata.files)


def filter_options(fragment: lance.LanceFragment) -> dict[str, int]:
    """Return the options with which a scan of a fragment finds what its filter asks for, in order.

    In files of the first format, Lance otherwise judges pages by statistics that are wrong about
    booleans, unless it is told the size of batches; and what an index finds has no addresses, and
    not always the order of rows.
    """
    return {"batch_size": 8_192, "use_scalar_index": False} if is_legacy(fragment) else {}


# Threads that read fragments with deleted rows; each mostly waits for storage.
_TAKE_THREADS = 8


def take_rows(
    dataset: lance.LanceDataset,
    positions: Sequence[int] | NDArray[np.int64],
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Return the rows at positions of a scan, in the order of the positions.

    `LanceDataset.take` goes through the deleted rows of a fragment several times for each position
    in it, where they are few enough for their deletion file to list them. `LanceFragment.take` does
    so once, and so fragments with deleted rows are read by themselves. But it wants columns, knows
    none of Lance's own, such as addresses, and gives the bytes of blobs where scans describe them;
    and Arrow cannot unite all dictionaries.
    """
    import numpy as np
    import pyarrow as pa

    names = None if columns is None else list(columns)
    wanted = np.asarray(positions, np.int64)
    schema = dataset.schema
    fields = list(_within(f for f in schema if names is None or f.name in names))
    are_scanned_alike = bool(fields) and not any(map(is_blob, fields))
    are_scanned_alike &= names is None or set(names) <= set(schema.names)
    if not (are_scanned_alike and dataset.stats.dataset_stats()["num_deleted_rows"]):
        return dataset.take(wanted.tolist(), columns=names)
    fragments = dataset.get_fragments()
    metadata = [fragment.metadata for fragment in fragments]
    deleted = np.array([one.num_deletions for one in metadata], np.int64)
    stops = np.cumsum([one.physical_rows - one.num_deletions for one in metadata])
    order = np.argsort(wanted, kind="stable")
    home = np.searchsorted(stops, wanted[order], side="right")
    is_clean = deleted[home] == 0
    clean, listed = order[is_clean], order[~is_clean]
    cuts = np.flatnonzero(np.diff(home[~is_clean])) + 1
    parts = [part for part in (clean, *np.split(listed, cuts)) if len(part)] or [clean]
    if len(parts) > 1 and any(pa.types.is_dictionary(field.type) for field in fields):
        return dataset.take(wanted.tolist(), columns=names)

    def take(part: NDArray[np.int64]) -> pa.Table:
        if part is clean:
            return dataset.take(wanted[part].tolist(), columns=names)
        number = int(np.searchsorted(stops, wanted[part[0]], side="right"))
        first = int(stops[number - 1]) if number else 0
        return fragments[number].take((wanted[part] - first).tolist(), columns=names)

    with ThreadPoolExecutor(_TAKE_THREADS) as threads:
        taken = pa.concat_tables(threads.map(take, parts))
    return taken.take(np.argsort(np.concatenate(parts)))


def can_be_united(fields: Sequence[pa.Field]) -> bool:
    """Whether Arrow puts rows of several fragments together: not where dictionaries are nested.

    Blobs do not count either: scans describe them in one way or the other.
    """
    import pyarrow as pa

    nested = (inner for outer in fields for inner in islice(_within([outer]), 1, None))
    has_dictionary = any(pa.types.is_dictionary(field.type) for field in nested)
    return not has_dictionary and not any(map(is_blob, _within(fields)))


def _within(fields: Iterable[pa.Field]) -> Iterator[pa.Field]:
    """Yield fields, and those inside them."""
    for field in fields:
        yield field
        yield from _within(field.type.field(place) for place in range(field.type.num_fields))


def is_blob(field: pa.Field) -> bool:
    """Whether a column of a dataset's schema has blobs, of any storage format."""
    is_marked = (field.metadata or {}).get(b"lance-encoding:blob") == b"true"
    return is_marked or getattr(field.type, "extension_name", None) == BLOB
