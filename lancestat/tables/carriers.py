"""A carrier: where the statistics of a table are kept for its readers.

The YAML's `publish` names the carrier of a table. A carrier

- publishes statistics, encoded as `lance.stats.*` entries (`publish`);
- reads them (`entries`), for whoever decodes them and judges whether they may be used;
- says which version entries describe (`described_version`), and by which tag (`tag`);
- says whether entries are of a dataset (`is_of`), which may have been replaced meanwhile.

A new carrier is a subclass with an instance in `CARRIERS`, under a name in `spec.table.Publish`.
What it does not override fits entries that lie beside the table, where every reader finds them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import assert_never

from lancestat.errors import CommitFailed, LakeError, PublishError
from lancestat.lake.commit import (
    CommitOutcome,
    Conflict,
    Landed,
    SameDataset,
    VersionIs,
    commit_properties,
)
from lancestat.lake.commit import commit as commit_change
from lancestat.lake.error_mapping import Cause, cause_of, is_full
from lancestat.lake.open import snapshot_at
from lancestat.lake.snapshot import Pin, Snapshot
from lancestat.redact import redact_line, secret_values
from lancestat.spec.model import Publish
from lancestat.tables.wire import (
    COMPUTED_AT_VERSION,
    PREFIX,
    is_altered,
    newest_fragment,
    plan_updates,
    same_statistics,
    tagged,
)

if TYPE_CHECKING:
    from lance import LanceDataset, LanceOperation

    from lancestat.tables.stored import TableRecord


_OR_PUBLISH_NONE = "or declare 'publish: none', which keeps them in the state"


@dataclass(frozen=True, slots=True)
class EntriesChange:
    """A change of a table's statistics, which presupposes that it is still as it was read.

    `pin` is the version that was read, `updates` are entries, None for one that goes. `properties`
    are the transaction's, and `verb` is what happens to the statistics, as messages have it.

    Raises:
        ValueError: an entry is outside `lance.stats.`.
    """

    pin: Pin
    updates: Mapping[str, str | None] = field(repr=False)
    properties: Mapping[str, str]
    verb: str

    def __post_init__(self) -> None:
        foreign = [key for key in self.updates if not key.startswith(PREFIX)]
        if foreign:
            raise ValueError(f"{foreign[0]!r} is not a statistics entry")


def publication(
    pin: Pin, entries: Mapping[str, str], config: Mapping[str, str], run: str | None = None
) -> EntriesChange:
    """Return the change that replaces the statistics in `config` by `entries`.

    Raises:
        ValueError: an entry is outside `lance.stats.`, or the tag is not that of the next version.
    """
    tag = entries.get(COMPUTED_AT_VERSION)
    if tag != str(pin.version + 1):
        raise ValueError(f"the tag {tag!r} is not that of version {pin.version + 1}")
    properties = commit_properties(f"statistics of version {pin.version}", run)
    return EntriesChange(pin, plan_updates(config, entries), properties, "published to")


def removal(pin: Pin, keys: frozenset[str]) -> EntriesChange:
    """Return the change that removes some entries of the version that was read."""
    properties = commit_properties("statistics removed", None)
    return EntriesChange(pin, dict.fromkeys(sorted(keys)), properties, "removed from")


def commit(
    change: EntriesChange,
    *,
    storage_options: Mapping[str, str] | None = None,
    even_late: bool = False,
) -> CommitOutcome:
    """Change statistics in one commit that changes nothing else.

    By default nothing is committed to a table that has moved on, and one attempt is made: it lands
    late only if another commit slips into the milliseconds between look and attempt. Readers
    refuse the tag of entries that landed late.

    With `even_late` it lands wherever Lance lets it. The tag stays that of the version that was
    read, so that only readers whose policy accepts the distance use the entries.

    Raises:
        LakeError: the table cannot be opened.
        CommitFailed: the commit failed.
    """
    pin = change.pin
    try:
        return commit_change(
            pin.uri,
            _update(change.updates),
            pin.version,
            (VersionIs(pin, or_later=even_late), SameDataset(pin)),
            properties=change.properties,
            storage_options=storage_options,
            undo=lambda landed: _withdraw(change, landed, storage_options),
        )
    except PublishError:
        raise
    except LakeError as error:
        done = change.verb.split()[0]
        message = f"statistics were not {done}: {error.message}"
        raise type(error)(message, hint=error.hint) from None
    except Exception as error:
        secrets = secret_values(storage_options)
        again = "make room there, and run again" if is_full(error) else "run again"
        if cause_of(error, pin.uri) is Cause.DENIED:
            is_removal = not any(change.updates.values())
            again = f"allow writing there, {'and run again' if is_removal else _OR_PUBLISH_NONE}"
        raise CommitFailed(
            f"statistics were not {change.verb} {redact_line(pin.uri, secrets)}:"
            f" {redact_line(str(error), secrets)}",
            hint=f"the table's data is untouched; {again}",
        ) from None


def _withdraw(
    change: EntriesChange, landed: LanceDataset, storage_options: Mapping[str, str] | None
) -> None:
    """Take a change back that landed in another dataset than the one that was read.

    Its own entries of the version before come back, under a tag that readers now refuse. Where
    another publication has replaced the entries already, nothing is left to take back.

    Raises:
        CommitFailed: it could not be taken back.
    """
    uri, version = change.pin.uri, landed.version
    try:
        before = snapshot_at(landed, version - 1, uri, storage_options)
        old, now = ({} if before is None else before.config), landed.config()
        updates = {key: old.get(key) for key in change.updates if old.get(key) != now.get(key)}
        if not updates:
            return
        commit_change(uri, _update(updates), version, storage_options=storage_options)
    except Exception as error:
        secrets = secret_values(storage_options)
        raise CommitFailed(
            f"{redact_line(uri, secrets)} was replaced while statistics were {change.verb} it, "
            f"and what that did could not be undone: {redact_line(str(error), secrets)}",
            hint=f"remove the entries {PREFIX}* from the table's config, and run again",
        ) from None


def _update(updates: Mapping[str, str | None]) -> LanceOperation.UpdateConfig:
    from lance import LanceOperation

    return LanceOperation.UpdateConfig(
        config_updates=LanceOperation.UpdateMap(dict(updates), False)
    )


# Entries, or storage options.
Texts = Mapping[str, str]


class Carrier(ABC):
    """Where statistics are kept.

    Attributes:
        name: The YAML's name for it.
        place: Where that is, in words: `the state`.
        is_public: Whether readers find the statistics without the state. If so others may change or
            remove them, and the entries alone have to say which dataset they are of.
    """

    name: ClassVar[Publish]
    place: ClassVar[str]
    is_public: ClassVar[bool] = True

    @property
    def commits(self) -> bool:
        """Whether publishing commits a version to the table, which is then the tag of entries."""
        return self.name.commits

    @abstractmethod
    def entries(self, snapshot: Snapshot, record: TableRecord | None, options: Texts) -> Texts:
        """Return the entries for readers of a table, empty where none can be read.

        `record` is what the state remembers of the table, `options` its storage options.
        """

    @abstractmethod
    def publish(
        self, pin: Pin, config: Texts, entries: Texts, *, run: str, options: Texts, even_late: bool
    ) -> Pin | None:
        """Keep the entries of a table, and return the version that they stand for.

        None where nothing stands, since the table has moved on meanwhile: it is planned again. The
        table was read at `pin`, where its manifest had `config`.

        `entries` have the tag of `tag`; `even_late` is to publish although the table has moved on.

        Raises:
            PublishError: they cannot be published.
        """

    def tag(self, version: int) -> int:
        """Return the tag of statistics that are made from a version."""
        return version + 1 if self.commits else version

    def described_version(self, tag: int) -> int:
        """Return the version whose rows the statistics with a tag describe.

        One that publishing made was not read: the rows are those of the one before. Statistics that
        landed late carry the tag of a version that someone else made.
        """
        return tag - 1 if self.commits else tag

    def is_of(self, entries: Texts, record: TableRecord | None, base: Snapshot) -> bool:
        """Whether statistics were made from `base`, the table at the version that they describe."""
        named = newest_fragment(entries)
        return named is None or named == base.newest_fragment


class ManifestCarrier(Carrier):
    """`publish: manifest`, the config of the table's manifest, where every reader finds it."""

    name = Publish.MANIFEST
    place = "the table's manifest"

    def entries(self, snapshot: Snapshot, record: TableRecord | None, options: Texts) -> Texts:
        """Return the config, which has other entries, too."""
        return snapshot.config

    def publish(
        self, pin: Pin, config: Texts, entries: Texts, *, run: str, options: Texts, even_late: bool
    ) -> Pin | None:
        """Commit the entries, unless the manifest of the version that was read has them."""
        is_tagged = config.get(COMPUTED_AT_VERSION) == str(pin.version)
        if is_tagged and same_statistics(config, entries) and not is_altered(config):
            return pin
        change = publication(pin, entries, config, run)
        landing = commit(change, storage_options=options, even_late=even_late)
        match landing:
            case Landed(is_late=False):
                return landing.pin
            case Landed() | Conflict():
                return None
            case _:
                assert_never(landing)


class StateCarrier(Carrier):
    """`publish: none`, the record in the state, for readers that know the project."""

    name = Publish.NONE
    place = "the state"
    is_public = False

    def entries(self, snapshot: Snapshot, record: TableRecord | None, options: Texts) -> Texts:
        """Return the entries of the record, tagged with its version.

        Those of a record that was made while the table was still published may carry the tag of a
        commit that was not needed. A later version is of another dataset.
        """
        if record is None or record.version > snapshot.version:
            return {}
        return tagged(record.values, record.version)

    def publish(
        self, pin: Pin, config: Texts, entries: Texts, *, run: str, options: Texts, even_late: bool
    ) -> Pin | None:
        """Return the version that was read: the run's record keeps the entries."""
        return pin

    def is_of(self, entries: Texts, record: TableRecord | None, base: Snapshot) -> bool:
        """Whether the record was made from the very version."""
        return record is None or record.describes(base.pin)


CARRIERS: Mapping[Publish, Carrier] = {
    carrier.name: carrier
    for carrier in (
        ManifestCarrier(),
        StateCarrier(),
    )
}
