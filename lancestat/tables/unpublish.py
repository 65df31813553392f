"""Removes what lancestat wrote into the manifests of tables."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace

from typing_extensions import assert_never

from lancestat import display
from lancestat.errors import LakeError, LancestatError, TableKeepsChanging
from lancestat.formats import StringEnum
from lancestat.lake.commit import Conflict, Landed
from lancestat.lake.open import observe_snapshots
from lancestat.lake.snapshot import Snapshot
from lancestat.redact import Audience
from lancestat.runs.discover import located, require_sole_writer
from lancestat.runs.execute import MAX_ATTEMPTS, THREADS, known_error
from lancestat.runs.result import NodeFailure, Status, nodes_failed
from lancestat.spec.model import Node, ProjectSpec, Publish, Table, kind_word
from lancestat.tables.carriers import EntriesChange, commit, removal
from lancestat.tables.wire import Writer, column_count, own_keys, unknown_keys, writer_of


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


_REASONS = {
    Writer.NOBODY: UnpublishReason.ABSENT,
    Writer.LANCESTAT: UnpublishReason.PUBLISHED,
    Writer.NEWER_LANCESTAT: UnpublishReason.NEWER_RELEASE,
    Writer.OTHER: UnpublishReason.OTHER_WRITER,
}


def plan_removal(table: Table, snapshot: Snapshot) -> tuple[UnpublishedNode, EntriesChange]:
    """Return what is to be done with a table as it is, and the entries that go."""
    keys = own_keys(snapshot.config)
    node = UnpublishedNode(
        table.name,
        table.kind.value,
        Status.PLANNED,
        _REASONS[writer_of(snapshot.config)],
        table.publish,
        entries=len(keys),
        columns=column_count(keys),
        version_read=snapshot.version,
        unknown=unknown_keys(keys),
    )
    return node, removal(snapshot.pin, keys)


@dataclass(frozen=True, slots=True)
class UnpublishResult:
    """What `unpublish` did, or with `is_dry_run` would do. It prints as the command does."""

    project: str
    target: str
    nodes: tuple[UnpublishedNode, ...]
    is_dry_run: bool

    def __repr__(self) -> str:
        counts = Counter("failed" if node.error else node.action for node in self.nodes)
        what = ", ".join(f"{number} {end}" for end, number in counts.items()) or "no nodes"
        target = f"{self.project}, target {self.target}"
        return display.summary(self, f"{target}: {self.status}, {what}")

    __str__ = display.as_text

    @property
    def status(self) -> Status:
        """`error` when any node failed, else `planned` for a dry run and `success` after one."""
        if any(node.error for node in self.nodes):
            return Status.ERROR
        return Status.PLANNED if self.is_dry_run else Status.SUCCESS

    @property
    def ok(self) -> bool:
        """Whether no node failed."""
        return self.status is not Status.ERROR

    @property
    def failures(self) -> tuple[NodeFailure, ...]:
        """The nodes that failed, each with the code, message, hint and location of its error."""
        return tuple(
            NodeFailure(node.name, error.code, error.message, error.hint, error.location)
            for node in self.nodes
            if (error := node.error) is not None
        )

    def raise_for_status(self) -> None:
        """Do nothing if no node failed.

        Raises:
            NodesFailed: Nodes failed; the message has the first line of each failure.
        """
        hint = "`failures` of the result has all of each; what was removed stays removed"
        if not self.ok:
            raise nodes_failed(self.failures, len(self.nodes), hint)


def unpublish(spec: ProjectSpec, nodes: Sequence[Node], *, dry_run: bool) -> UnpublishResult:
    """Remove what lancestat wrote into tables, each in one commit that changes nothing else.

    One table's failure does not stop the others, and joins are left as they are. Neither Spark nor
    the state is needed. With `dry_run` it only looks.
    """
    spec, nodes = located(spec, nodes)
    uris = {node.uri: node.uri for node in nodes if isinstance(node, Table)}
    snapshots = observe_snapshots(uris.items(), spec.options, THREADS)

    def remove(node: Node) -> UnpublishedNode:
        started, kind = time.monotonic(), node.kind.value
        try:
            if isinstance(node, Table):
                done = _remove(spec, node, snapshots[node.uri], dry_run)
            else:
                # What another node writes has no statistics of its own.
                reason = UnpublishReason.NOT_A_TABLE
                done = UnpublishedNode(node.name, kind, Status.PLANNED, reason)
        except Exception as error:
            shown = spec.redactor.error(known_error(error), Audience.PERSON).placed(node.location)
            return UnpublishedNode(node.name, kind_word(node), Status.ERROR, error=shown)
        if dry_run:
            return done
        elapsed = round(time.monotonic() - started, 3)
        return replace(done, status=Status.SUCCESS, elapsed_seconds=elapsed)

    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        done = tuple(pool.map(remove, nodes))
    return UnpublishResult(spec.name, spec.target.name, done, dry_run)


def _remove(
    spec: ProjectSpec, table: Table, observed: Snapshot | LakeError, dry_run: bool
) -> UnpublishedNode:
    """Remove the entries of one table, looking at it again where it has moved on meanwhile.

    Raises:
        LancestatError: it cannot be done.
    """
    removed: UnpublishedNode | None = None
    for _ in range(MAX_ATTEMPTS):
        if isinstance(observed, LakeError):
            raise observed
        node, change = plan_removal(table, observed)
        if not change.updates:
            return removed or node
        # Also to a table of which runs write nothing.
        require_sole_writer(spec, replace(table, publish=Publish.MANIFEST))
        if dry_run:
            return node
        outcome = commit(change, storage_options=spec.options.of(table.uri))
        match outcome:
            case Landed(is_late=False):
                return replace(node, version_committed=outcome.version)
            case Landed():
                # What came in between may have brought entries back, as a restored version.
                removed = replace(node, version_committed=outcome.version)
            case Conflict():
                pass
            case _:
                assert_never(outcome)
        uris = [(table.name, table.uri)]
        [observed] = observe_snapshots(uris, spec.options).values()
    raise TableKeepsChanging(
        f"the table changed during each of {MAX_ATTEMPTS} attempts to remove its statistics",
        hint="run again when the table is quieter",
    )
