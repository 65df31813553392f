"""What datasets and the state tell about a change, as far as they can be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from lancestat.errors import LakeError, LancestatError
from lancestat.lake.snapshot import Snapshot
from lancestat.review.masking import Mask
from lancestat.spec.model import ProjectSpec
from lancestat.state.values import JoinRecord, PartialIndex, StateReader, TableRecord

Opened = Mapping[str, Snapshot | LakeError]

_NOTHING = PartialIndex({}, ())


@dataclass(frozen=True, slots=True)
class Evidence:
    """Datasets by URI, and what runs remember; both may be empty.

    `mask` makes fit to be shown what they say, `is_opened` tells whether they were to be opened.
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
        """Whether what is at a URI may be looked at."""
        return self.is_opened and uri in self.trusted

    def snapshot(self, uri: str) -> Snapshot | None:
        """A dataset as it is now, None where it could not be opened."""
        found = self.opened.get(uri)
        return found if isinstance(found, Snapshot) else None

    def why_not(self, uri: str) -> str | None:
        """That a dataset is not opened, and why; None where it was or where none was to be."""
        if self.is_opened and uri not in self.trusted:
            return f"is not opened: {self.withheld}"
        found = self.opened.get(uri)
        if not isinstance(found, LakeError):
            return None
        return f"cannot be opened: {found.code} {self.mask.line(found.message)}"

    def index(self, table: str) -> PartialIndex:
        """Which partials of a table are stored, none where the state cannot tell."""
        if self.state is None:
            return _NOTHING
        try:
            return self.state.partial_index(table)
        except LancestatError:
            return _NOTHING


def gather(nothing: Evidence, uris: Iterable[str], state: Callable[[], StateReader]) -> Evidence:
    """Open the trusted datasets in parallel and ask the state; neither has to be there."""
    from lancestat.lake.observe import observe_snapshots

    wanted = dict.fromkeys(filter(nothing.may_open, uris))
    if not wanted:
        return nothing
    options = nothing.spec.target.storage_options
    found = replace(nothing, opened=observe_snapshots(zip(wanted, wanted, strict=True), options))
    if not any(isinstance(each, Snapshot) for each in found.opened.values()):
        return found
    try:
        reader = state()
        return replace(found, state=reader, records=reader.records(), joins=reader.joins())
    except LancestatError as error:
        note = (
            "the state cannot be read, so that costs are those of a run which knows nothing: "
            f"{error.code} {nothing.mask.line(error.message)}"
        )
        return replace(found, notes=(note,))
