"""What datasets and the state tell about a change, as far as they can be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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

    `is_opened` tells whether datasets were to be opened at all, `threads` how many at once.
    """

    spec: ProjectSpec
    now: datetime
    opened: Opened = field(default_factory=dict)
    state: StateReader | None = None
    records: Mapping[str, TableRecord] = field(default_factory=dict)
    joins: Mapping[str, JoinRecord] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_opened: bool = True

    def snapshot(self, uri: str) -> Snapshot | None:
        """A dataset as it is now, None where it could not be opened."""
        found = self.opened.get(uri)
        return found if isinstance(found, Snapshot) else None

    def why_not(self, uri: str, *, secret: Iterable[str] = ()) -> str | None:
        """Why a dataset could not be opened, None where it could or was not to be."""
        found = self.opened.get(uri)
        if not isinstance(found, LakeError):
            return None
        return f"{found.code} {Mask.of(self.spec.target).message(found.message, secret)}"

    def index(self, table: str) -> PartialIndex:
        """Which partials of a table are stored, none where the state cannot tell."""
        if self.state is None:
            return _NOTHING
        try:
            return self.state.partial_index(table)
        except LancestatError:
            return _NOTHING


def gather(
    spec: ProjectSpec, uris: Iterable[str], state: Callable[[], StateReader], now: datetime
) -> Evidence:
    """Open datasets in parallel and ask the state; neither has to be there."""
    from lancestat.lake.observe import observe_snapshots

    wanted = dict.fromkeys(uris)
    if not wanted:
        return Evidence(spec, now)
    opened = observe_snapshots(zip(wanted, wanted, strict=True), spec.target.storage_options)
    if not any(isinstance(found, Snapshot) for found in opened.values()):
        return Evidence(spec, now, opened)
    try:
        reader = state()
        records, joins = reader.records(), reader.joins()
    except LancestatError as error:
        note = (
            "the state cannot be read, so that costs are those of a run which knows nothing: "
            f"{error.code} {Mask.of(spec.target).message(error.message)}"
        )
        return Evidence(spec, now, opened, notes=(note,))
    return Evidence(spec, now, opened, reader, records, joins)
