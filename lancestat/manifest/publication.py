"""Publishing: statistics, and the version they presuppose, committed to a table's manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from lancestat.errors import LakeError, PublishError
from lancestat.lake.error_mapping import Refusal
from lancestat.lake.observe import snapshot_at
from lancestat.lake.open import (
    observe_dataset,
    open_pinned,
    replacement,
    store_options,
)
from lancestat.lake.snapshot import Pin, pin_of
from lancestat.manifest.wire import COMPUTED_AT_VERSION, PREFIX, plan_updates
from lancestat.redact import clean, secret_values

if TYPE_CHECKING:
    import lance

MESSAGE_PROPERTY = "__lance_commit_message"
VERSION_PROPERTY = "lancestat.version"
RUN_PROPERTY = "lancestat.run"

# Lance's own default.
_LATE_RETRIES = 20
_REPLACED = "the table was replaced: another dataset has taken its place"


@dataclass(frozen=True, slots=True)
class Publication:
    """Entries to publish, with what they presuppose: the table is still as it was when it was read.

    `pin` is what was read, and `config` its config. `run` is the id of the run, for the
    transaction's properties.

    Raises:
        ValueError: an entry is outside `lance.stats.`, or the tag is not that of the next version.
    """

    pin: Pin
    entries: Mapping[str, str]
    config: Mapping[str, str] = field(repr=False)
    run: str | None = None

    @property
    def uri(self) -> str:
        """How the project names the table."""
        return self.pin.uri

    @property
    def read_version(self) -> int:
        """The version that the entries describe."""
        return self.pin.version

    def __post_init__(self) -> None:
        foreign = [key for key in self.entries if not key.startswith(PREFIX)]
        if foreign:
            raise ValueError(f"{foreign[0]!r} is not a statistics entry")
        tag = self.entries.get(COMPUTED_AT_VERSION)
        if tag != str(self.read_version + 1):
            raise ValueError(f"the tag {tag!r} is not that of version {self.read_version + 1}")


@dataclass(frozen=True, slots=True)
class Landed:
    """The commit made exactly the version that the entries are tagged with: that of `pin`."""

    pin: Pin

    @property
    def version(self) -> int:
        """Where the entries are."""
        return self.pin.version


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
    moved = _moved(publication, storage_options, even_late=even_late)
    if moved is not None:
        return moved
    landing = _commit(publication, storage_options, max_retries=_LATE_RETRIES if even_late else 0)
    if not isinstance(landing, Conflict) and _is_replaced(publication, storage_options):
        _withdraw(publication, landing.version, storage_options)
        return Conflict(_REPLACED)
    return landing


def _moved(
    publication: Publication, storage_options: Mapping[str, str] | None, *, even_late: bool
) -> Conflict | None:
    """Why the table is not what was read, None where it is; `even_late` allows later versions."""
    try:
        latest = observe_dataset(publication.uri, storage_options=storage_options)
        read = publication.read_version
        if latest.version != read and not (even_late and latest.version > read):
            return Conflict(f"version {read} was read, the table is at version {latest.version}")
        open_pinned(publication.pin, storage_options=storage_options)
    except LakeError as error:
        if error.code == Refusal.REPLACED.value:
            return Conflict(_REPLACED)
        raise PublishError(
            "LS602", f"statistics were not published: {error.message}", hint=error.hint
        ) from None
    return None


def _is_replaced(publication: Publication, storage_options: Mapping[str, str] | None) -> bool:
    """Whether another dataset took the table's place just before the commit, and got it.

    Lance commits to whatever is at a URI, and what is there can change after the last look.
    """
    return replacement(publication.pin, storage_options) is not None


def _withdraw(
    publication: Publication, landed: int, storage_options: Mapping[str, str] | None
) -> None:
    """Take entries back that landed in another dataset than the one they describe.

    Its own entries of the version before come back, under a tag that readers now refuse.

    Raises:
        PublishError: LS603 they could not be taken back.
    """
    import lance
    from lance.commit import CommitConflictError

    operation = lance.LanceOperation
    try:
        dataset = observe_dataset(publication.uri, version=landed, storage_options=storage_options)
        before = snapshot_at(dataset, landed - 1, publication.uri, storage_options)
        old = {} if before is None else before.config
        updates = {key: old.get(key) for key in dataset.config() if key in publication.entries}
        lance.LanceDataset.commit(
            publication.uri,
            operation.UpdateConfig(config_updates=operation.UpdateMap(updates, False)),
            read_version=landed,
            storage_options=store_options(publication.uri, storage_options),
        )
    except CommitConflictError:
        # Another publication has replaced the entries already.
        return
    except Exception as error:
        secrets = secret_values(storage_options)
        raise PublishError(
            "LS603",
            f"{clean(publication.uri, secrets)} was replaced while its statistics were published, "
            f"and those of the old table could not be taken back: {clean(str(error), secrets)}",
            hint=f"remove the entries {PREFIX}* from the table's config, and run again",
        ) from None


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
    return Landed(pin_of(landed, publication.uri))


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
