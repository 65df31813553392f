"""Decides what a diff may open: the places of BASE, which was reviewed, and nothing else.

Opening a dataset sends credentials to wherever its URI and the storage options lead. Those of HEAD
may be a stranger's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from lancestat.errors import LakeError, LancestatError
from lancestat.lake.open import observe_snapshots
from lancestat.lake.snapshot import Snapshot
from lancestat.review.mask import Mask
from lancestat.review.values import Findings, PropertyChange
from lancestat.runs.locate import located_uris
from lancestat.runs.node import N_contra, NodeRecord, NodeType, NodeTypes
from lancestat.runs.observe import read_uris
from lancestat.spec.model import ProjectSpec
from lancestat.spec.source import SCHEME as SOURCE_SCHEME
from lancestat.state.values import PartialIndex, StateReader

_NOWHERE_ELSE = "and credentials go only where BASE sends them"


def trusted_uris(base: ProjectSpec, head: ProjectSpec) -> frozenset[str]:
    """The URIs that may be opened with HEAD's storage options: BASE's, if BASE has these options.

    Catalogs give options, too: those of HEAD have to be BASE's.

    They are compared as they are spelled, since a query or a user in a URI may redirect a request.
    """
    if not has_same_options(base, head):
        return frozenset()
    outputs = (node.result_uri for node in base.nodes if node.result_uri is not None)
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

_NOTHING = PartialIndex({}, {})


@dataclass(frozen=True, slots=True)
class Evidence:
    """Datasets by URI, and what runs remember of nodes by kind and key; both may be empty.

    `mask` redacts what they say, `is_opened` tells whether they were to be opened.
    Of them only those at `trusted` URIs are; `withheld` says why others are not.
    """

    spec: ProjectSpec
    mask: Mask
    now: datetime
    opened: Opened = field(default_factory=dict)
    state: StateReader | None = None
    records: Mapping[str, Mapping[str, NodeRecord]] = field(default_factory=dict)
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


def gather(
    nothing: Evidence,
    uris: Iterable[str],
    state: Callable[[], StateReader],
    types: NodeTypes,
) -> Evidence:
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
        records = {kind: reader.records(kind, type.decode_record) for kind, type in types.items()}
        return replace(evidence, state=reader, records=records)
    except LancestatError as error:
        note = (
            "the state cannot be read, so that costs are those of a run which knows nothing: "
            f"{error.code} {nothing.mask.line(error.message)}"
        )
        return replace(evidence, notes=(note,))


class NodeChange(Protocol):
    """A node on both sides that differs, as its kind judges it."""

    @property
    def changed(self) -> tuple[PropertyChange, ...]:
        """The properties that differ."""
        ...

    def opened_uris(self, head: ProjectSpec) -> tuple[str, ...]:
        """Return the URIs of the Lance datasets that tell about the change."""
        ...

    def judge(self, evidence: Evidence) -> Findings:
        """Return the cost, the risks and the consequences of the change."""
        ...


class ReviewedType(NodeType[N_contra], Protocol[N_contra]):
    """A kind of node that judges what changes of its declarations mean."""

    def change(
        self,
        old: N_contra | None,
        new: N_contra | None,
        changed: tuple[PropertyChange, ...],
    ) -> NodeChange:
        """Return a change; one of the sides may be None, where the node is new or removed."""
        ...


ReviewedTypes = Mapping[str, ReviewedType[Any]]
