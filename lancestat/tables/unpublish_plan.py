"""Plans what `unpublish` does with a table: which entries of its manifest lancestat wrote."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from typing_extensions import assert_never

from lancestat import display
from lancestat.errors import LancestatError
from lancestat.formats import StringEnum
from lancestat.lake.snapshot import Snapshot
from lancestat.runs.result import Status
from lancestat.spec.model import KnnJoin, Node, Publish, Table
from lancestat.spec.source import is_source
from lancestat.tables.manifest.publication import EntriesChange, removal
from lancestat.tables.manifest.wire import (
    Writer,
    column_count,
    own_keys,
    unknown_keys,
    writer_of,
)


class UnpublishReason(StringEnum):
    """Why entries are removed from a table, or not; the spelling is a contract."""

    PUBLISHED = "published"
    ABSENT = "absent"
    OTHER_WRITER = "other_writer"
    NEWER_RELEASE = "newer_release"
    NOT_A_TABLE = "not_a_table"


@dataclass(frozen=True, slots=True)
class UnpublishedNode:
    """What `unpublish` does with a node, or has done.

    `entries` go, of `columns`; both are None where the table could not be looked at. `unknown` has
    the keys among them that lancestat never writes: others added them. `version_read`
    is the version that was looked at, and `version_committed` the one that the removal made.
    `publish` is where the table's declaration keeps statistics.
    """

    name: str
    kind: str
    status: Status
    reason: UnpublishReason | None = None
    publish: Publish | None = None
    entries: int | None = None
    columns: int | None = None
    version_read: int | None = None
    version_committed: int | None = None
    elapsed_seconds: float | None = None
    error: LancestatError | None = None
    unknown: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return display.summary(self, f"{self.name}: {self.action}, {self.status}")

    @property
    def action(self) -> str:
        """`unpublish`, `skip`, or `blocked` where the table could not be looked at."""
        if self.reason is None:
            return "blocked"
        return "unpublish" if self.entries else "skip"

    @property
    def is_published_again(self) -> bool:
        """Whether the next run publishes statistics of the table again."""
        is_public = self.publish is not None and self.publish.commits
        return self.action == "unpublish" and is_public

    @property
    def is_behind(self) -> bool:
        """Whether statistics that the state keeps are of an earlier version until the next run."""
        is_private = self.publish is not None and not self.publish.commits
        return self.action == "unpublish" and is_private

    def to_json(self) -> dict[str, object]:
        """Return the node's object in the JSON of `unpublish`."""
        error = self.error
        return {
            "name": self.name,
            "kind": self.kind,
            "action": self.action,
            "reasons": [] if self.reason is None else [self.reason.value],
            "status": self.status.value,
            "publish": None if self.publish is None else self.publish.value,
            "columns": self.columns,
            "entries": self.entries,
            "unknown_entries": list(self.unknown),
            "version_read": self.version_read,
            "version_committed": self.version_committed,
            "elapsed_seconds": self.elapsed_seconds,
            "message": None if error is None else error.message,
            "code": None if error is None else error.code,
            "hint": None if error is None else error.hint,
            "location": asdict(error.location) if error and error.location else None,
        }


def blocked(node: Node, error: LancestatError) -> UnpublishedNode:
    """Return the node of a table that cannot be looked at."""
    is_of_source = isinstance(node, Table) and is_source(node)
    kind = "source" if is_of_source else node.kind.value
    return UnpublishedNode(node.name, kind, Status.ERROR, error=error)


def skip_join(join: KnnJoin) -> UnpublishedNode:
    """Return the node of a join, whose result has no statistics of its own."""
    reason = UnpublishReason.NOT_A_TABLE
    return UnpublishedNode(join.name, join.kind.value, Status.PLANNED, reason)


def plan_removal(table: Table, snapshot: Snapshot) -> tuple[UnpublishedNode, EntriesChange]:
    """Return what is to be done with a table as it is, and the entries that go."""
    keys = own_keys(snapshot.config)
    node = UnpublishedNode(
        table.name,
        table.kind.value,
        Status.PLANNED,
        _reason(writer_of(snapshot.config)),
        table.publish,
        entries=len(keys),
        columns=column_count(keys),
        version_read=snapshot.version,
        unknown=unknown_keys(keys),
    )
    return node, removal(snapshot.pin, keys)


def _reason(writer: Writer) -> UnpublishReason:
    match writer:
        case Writer.NOBODY:
            return UnpublishReason.ABSENT
        case Writer.LANCESTAT:
            return UnpublishReason.PUBLISHED
        case Writer.NEWER_LANCESTAT:
            return UnpublishReason.NEWER_RELEASE
        case Writer.OTHER:
            return UnpublishReason.OTHER_WRITER
        case _:
            assert_never(writer)
