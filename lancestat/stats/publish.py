"""Publishing: statistics, and the version they presuppose, committed to a table's manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from typing import TYPE_CHECKING

from lancestat.errors import LakeError, PublishError
from lancestat.lake.clean import clean, secret_values
from lancestat.lake.open import open_dataset, store_options
from lancestat.stats.wire import COMPUTED_AT_VERSION, PREFIX, plan_updates

if TYPE_CHECKING:
    import lance

MESSAGE_PROPERTY = "__lance_commit_message"
VERSION_PROPERTY = "lancestat.version"
RUN_PROPERTY = "lancestat.run"

# Lance's own default.
_LATE_RETRIES = 20


@dataclass(frozen=True, slots=True)
class Publication:
    """Entries to publish, with what they presuppose: the table is still as it was when it was read.

    `config` and `committed_at` are the table's at `read_version`; a `committed_at` of None is not
    checked. `run` is the id of the run, for the transaction's properties.

    Raises:
        ValueError: an entry is outside `lance.stats.`, or the tag is not `read_version` + 1.
    """

    uri: str
    read_version: int
    entries: Mapping[str, str]
    config: Mapping[str, str] = field(repr=False)
    committed_at: datetime | None = None
    run: str | None = None

    def __post_init__(self) -> None:
        foreign = [key for key in self.entries if not key.startswith(PREFIX)]
        if foreign:
            raise ValueError(f"{foreign[0]!r} is not a statistics entry")
        tag = self.entries.get(COMPUTED_AT_VERSION)
        if tag != str(self.read_version + 1):
            raise ValueError(f"the tag {tag!r} is not that of version {self.read_version + 1}")


@dataclass(frozen=True, slots=True)
class Landed:
    """The commit made exactly the version that the entries are tagged with, at `committed_at`."""

    version: int
    committed_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class LandedLate:
    """Other commits came first: the entries are at `version`, with a tag that readers refuse."""

    version: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing was committed, since the table is no longer what the publication presupposes."""

    detail: str


Landing = Landed | LandedLate | Conflict


def commit(
    publication: Publication,
    *,
    storage_options: Mapping[str, str] | None = None,
    even_late: bool = False,
) -> Landing:
    """Publish in one commit that writes statistics and nothing else, and say where it landed.

    By default nothing is committed to a table that has moved on, and one attempt is made: a landing
    is late only if another commit slips into the milliseconds between look and attempt. Lance moves
    a config commit behind commits of data, hence the check of the version afterwards.

    Args:
        publication: what to write and what it presupposes.
        storage_options: for an object store.
        even_late: commit wherever Lance lets it land. The tag stays that of the version that was
            read, so only readers whose policy accepts the distance use the entries.

    Raises:
        PublishError: LS602 the table cannot be opened, LS603 the commit failed.
    """
    latest = _open(publication, storage_options)
    if even_late and latest.version > publication.read_version:
        latest = _open(publication, storage_options, version=publication.read_version)
    moved = _moved(publication, latest)
    if moved is not None:
        return moved
    return _commit(publication, storage_options, max_retries=_LATE_RETRIES if even_late else 0)


def _open(
    publication: Publication,
    storage_options: Mapping[str, str] | None,
    version: int | None = None,
) -> lance.LanceDataset:
    try:
        return open_dataset(publication.uri, version=version, storage_options=storage_options)
    except LakeError as error:
        raise PublishError(
            "LS602", f"statistics were not published: {error.message}", hint=error.hint
        ) from None


def _moved(publication: Publication, dataset: lance.LanceDataset) -> Conflict | None:
    read = publication.read_version
    if dataset.version != read:
        return Conflict(f"version {read} was read, the table is at version {dataset.version}")
    if publication.committed_at not in (None, _committed_at(dataset)):
        return Conflict(f"the table was replaced: its version {read} is not the one that was read")
    return None


def _committed_at(dataset: lance.LanceDataset) -> datetime:
    at: datetime = dataset.get_version()["timestamp"]
    return at.astimezone(timezone.utc)


def _commit(
    publication: Publication, storage_options: Mapping[str, str] | None, *, max_retries: int
) -> Landing:
    import lance
    from lance.commit import CommitConflictError

    secrets = secret_values(storage_options)
    try:
        landed = lance.LanceDataset.commit(
            publication.uri,
            _transaction(publication),
            storage_options=store_options(publication.uri, storage_options),
            max_retries=max_retries,
        )
    except CommitConflictError as error:
        return Conflict(clean(str(error), secrets))
    except Exception as error:
        raise PublishError(
            "LS603",
            f"statistics were not published to {clean(publication.uri, secrets)}:"
            f" {clean(str(error), secrets)}",
            hint="the table's data is untouched; run again",
        ) from None
    if landed.version != publication.read_version + 1:
        return LandedLate(landed.version)
    return Landed(landed.version, _committed_at(landed))


def _transaction(publication: Publication) -> lance.Transaction:
    import lance

    operation = lance.LanceOperation
    read = publication.read_version
    updates = plan_updates(publication.config, publication.entries)
    # The package's own module lies above this layer, so its version comes from the distribution.
    lancestat = version("lancestat")
    properties = {
        MESSAGE_PROPERTY: f"lancestat {lancestat}: statistics of version {read}",
        VERSION_PROPERTY: lancestat,
    }
    if publication.run is not None:
        properties[RUN_PROPERTY] = publication.run
    return lance.Transaction(
        read_version=read,
        operation=operation.UpdateConfig(config_updates=operation.UpdateMap(updates, False)),
        transaction_properties=properties,
    )
