"""Decides what a diff may open: the places of BASE, which was reviewed, and nothing else.

Opening a dataset sends credentials to wherever its URI and the storage options lead. Those of HEAD
may be a stranger's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from lancestat.errors import LakeError, LancestatError, SpecError
from lancestat.joins.observe import read_uris
from lancestat.joins.record import JoinRecord, join_records
from lancestat.joins.sides import datasets_of
from lancestat.lake.files import list_files, list_store_files, local_path
from lancestat.lake.fingerprint import ByteEstimator, ColumnGroup, column_groups, field_key
from lancestat.lake.observe import observe_snapshots
from lancestat.lake.snapshot import Field, Snapshot
from lancestat.review.mask import Mask
from lancestat.runs.locate import located_uris
from lancestat.spec.digest import node_digest
from lancestat.spec.model import KnnJoin, KnnSide, ProjectSpec, Table
from lancestat.spec.source import SCHEME as SOURCE_SCHEME
from lancestat.state.identity import covered_keys, plain_keys, quantile_key, table_identity
from lancestat.state.values import PartialIndex, StateReader
from lancestat.tables.assessment import TableAssessment, assess
from lancestat.tables.coverage import cover
from lancestat.tables.planner import skip_if_current
from lancestat.tables.stored import TableRecord, table_records

_NOWHERE_ELSE = "and credentials go only where BASE sends them"


def trusted_uris(base: ProjectSpec, head: ProjectSpec) -> frozenset[str]:
    """The URIs that may be opened with HEAD's storage options: BASE's, if BASE has these options.

    Catalogs give options, too: those of HEAD have to be BASE's.

    They are compared as they are spelled, since a query or a user in a URI may redirect a request.
    """
    if not has_same_options(base, head):
        return frozenset()
    outputs = (join.output_uri for join in base.joins)
    read = (uri for node in base.nodes for uri in read_uris(base, node))
    return frozenset(
        uri
        for uri in (*read, *outputs)
        if not uri.startswith(SOURCE_SCHEME)
        and base.options.declared(uri) == head.options.declared(uri)
    )


def is_state_trusted(base: ProjectSpec, head: ProjectSpec) -> bool:
    """Whether HEAD's state is where BASE's is, and opened with the same options."""
    return has_same_options(base, head) and base.target.state == head.target.state


def withheld_reason(base: ProjectSpec, head: ProjectSpec) -> str:
    """Return why a dataset that is not trusted is not opened."""
    if not has_same_options(base, head):
        has_same_catalogs = base.target.catalogs == head.target.catalogs
        what = "storage options" if has_same_catalogs else "catalogs"
        return f"the {what} are not those of BASE, {_NOWHERE_ELSE}"
    return f"BASE reads nothing at its URI, {_NOWHERE_ELSE}"


def has_same_options(base: ProjectSpec, head: ProjectSpec) -> bool:
    """Whether the storage options and the catalogs of HEAD are those of BASE."""
    return (
        base.target.storage_options == head.target.storage_options
        and base.target.catalogs == head.target.catalogs
    )


Opened = Mapping[str, Snapshot | LakeError]

_NOTHING = PartialIndex({}, ())


@dataclass(frozen=True, slots=True)
class Evidence:
    """Datasets by URI, and what runs remember; both may be empty.

    `mask` redacts what they say, `is_opened` tells whether they were to be opened.
    Of them only those at `trusted` URIs are; `withheld` says why others are not.
    """

    spec: ProjectSpec
    mask: Mask
    now: datetime
    opened: Opened = field(default_factory=dict)
    state: StateReader | None = None
    records: Mapping[str, TableRecord] = field(default_factory=dict)
    joins: Mapping[str, JoinRecord] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_opened: bool = True
    trusted: frozenset[str] = frozenset()
    withheld: str = ""

    def may_open(self, uri: str) -> bool:
        """Whether the dataset or files at a URI may be opened."""
        return self.is_opened and uri in self.trusted

    def snapshot(self, uri: str) -> Snapshot | None:
        """A dataset as it is now, None where it could not be opened."""
        opened = self.opened.get(uri)
        return opened if isinstance(opened, Snapshot) else None

    def unopened_reason(self, uri: str) -> str | None:
        """Return what a note says of an unopened dataset, None where there is nothing to say."""
        if uri.startswith(SOURCE_SCHEME):
            return None
        if self.is_opened and uri not in self.trusted:
            return f"is not opened: {self.withheld}"
        opened = self.opened.get(uri)
        if not isinstance(opened, LakeError):
            return None
        return f"cannot be opened: {opened.code} {self.mask.line(opened.message)}"

    def index(self, table: str) -> PartialIndex:
        """Return the index of a table's partials, empty where the state cannot tell."""
        if self.state is None:
            return _NOTHING
        try:
            return self.state.partial_index(table)
        except LancestatError:
            return _NOTHING


def gather(nothing: Evidence, uris: Iterable[str], state: Callable[[], StateReader]) -> Evidence:
    """Open the trusted datasets in parallel and read the state; neither has to be there."""
    trusted = dict.fromkeys(filter(nothing.may_open, uris))
    if not trusted:
        return nothing
    places = located_uris(nothing.spec, trusted)
    opened = observe_snapshots(places.items(), nothing.spec.options)
    evidence = replace(nothing, opened=opened)
    if not any(isinstance(snapshot, Snapshot) for snapshot in evidence.opened.values()):
        return evidence
    try:
        reader = state()
        return replace(
            evidence, state=reader, records=table_records(reader), joins=join_records(reader)
        )
    except LancestatError as error:
        note = (
            "the state cannot be read, so that costs are those of a run which knows nothing: "
            f"{error.code} {nothing.mask.line(error.message)}"
        )
        return replace(evidence, notes=(note,))


def table_cost(old: Table | None, new: Table, evidence: Evidence) -> int | None:
    """Bytes of the columns that are analyzed newly, None where the dataset cannot be opened.

    Columns whose partials are stored are not read again; nothing is read where the manifest already
    holds all that is wanted.

    Args:
        old: What was declared of the same dataset before, if anything.
        new: What is declared now.
        evidence: Datasets and state.
    """
    snapshot = evidence.snapshot(new.uri)
    if snapshot is None:
        return None
    try:
        after = _assess(new, snapshot, evidence)
    except SpecError:
        # A plan that refuses the table reads nothing.
        return 0
    if skip_if_current(after) is not None:
        return 0
    known = _keys(old, snapshot, evidence)
    fields = {_key(field, after): field for field in after.columns}
    fresh = {key: field for key, field in fields.items() if key not in known}
    return _missing_bytes(snapshot, fresh, evidence)


def join_cost(join: KnnJoin, evidence: Evidence) -> int | None:
    """Return the bytes that a full run of a join reads, None where some are not known."""
    record = evidence.joins.get(join.name)
    if record is not None and record.digest == node_digest(join):
        return 0
    sides = [_side_bytes(side, evidence) for side in (join.left, join.right)]
    known = [cost for cost in sides if cost is not None]
    return sum(known) if len(known) == len(sides) else None


def _assess(table: Table, snapshot: Snapshot, evidence: Evidence) -> TableAssessment:
    identity = table_identity(snapshot.uri)
    return assess(table, identity, snapshot, evidence.records.get(identity))


def _keys(table: Table | None, snapshot: Snapshot, evidence: Evidence) -> frozenset[str]:
    if table is None:
        return frozenset()
    try:
        assessment = _assess(table, snapshot, evidence)
    except SpecError:
        return frozenset()
    return covered_keys(frozenset(_key(field, assessment) for field in assessment.columns))


def _key(field: Field, assessment: TableAssessment) -> str:
    key = field_key(field)
    return quantile_key(key) if field.name in assessment.histograms else key


def _missing_bytes(snapshot: Snapshot, fresh: dict[str, Field], evidence: Evidence) -> int:
    if not fresh:
        return 0
    stored = {field_key(field): key for key, field in fresh.items()}
    groups = [_stored_as(group, stored) for group in column_groups(snapshot, [*fresh.values()])]
    index = evidence.index(table_identity(snapshot.uri))
    fragments = {fragment.id: fragment for fragment in snapshot.fragments}
    bytes_read = ByteEstimator(snapshot.fields)
    return sum(
        bytes_read.estimate(fragments[group.fragment_id], plain_keys(keys))
        for group, keys in cover(groups, index, ()).missing
    )


def _stored_as(group: ColumnGroup, stored: dict[str, str]) -> ColumnGroup:
    return replace(group, fields=frozenset(stored[key] for key in group.fields))


def _side_bytes(side: KnnSide, evidence: Evidence) -> int | None:
    spec = evidence.spec
    if side.sql is None and side.table is None and side.format != "lance":
        return _files_bytes(side.uri or "", evidence)
    node = None if side.table is None else spec.node(side.table)
    if node is not None and node.dataset_format != "lance":
        return _files_bytes(node.dataset_uri, evidence)
    snapshots = [evidence.snapshot(dataset.uri) for dataset in datasets_of(spec, side)]
    opened = [snapshot for snapshot in snapshots if snapshot is not None]
    if len(opened) < len(snapshots) or not snapshots:
        return None
    select = None if side.sql is not None or side.select is None else (*side.select, side.vector)
    return sum(_read_bytes(snapshot, select) for snapshot in opened)


def _read_bytes(snapshot: Snapshot, select: Iterable[str] | None) -> int:
    if select is None:
        return snapshot.size_bytes
    fields = [field for name in select if (field := snapshot.field(name)) is not None]
    keys = frozenset(map(field_key, fields))
    bytes_read = ByteEstimator(snapshot.fields)
    return sum(bytes_read.estimate(fragment, keys) for fragment in snapshot.fragments)


def _files_bytes(uri: str, evidence: Evidence) -> int | None:
    if not evidence.may_open(uri):
        return None
    if local_path(uri) is not None:
        files = list_files(uri)
    else:
        files = list_store_files(uri, evidence.spec.options.of(uri))
    return None if files is None else sum(file.size_bytes for file in files)
