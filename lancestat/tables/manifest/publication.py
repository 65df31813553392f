"""Statistics committed to a table's manifest, or removed from it, if it is still as it was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lancestat.errors import CommitFailed, LakeError, PublishError
from lancestat.lake.commit import (
    CommitOutcome,
    SameDataset,
    VersionIs,
    commit_properties,
)
from lancestat.lake.commit import commit as commit_change
from lancestat.lake.open import snapshot_at
from lancestat.lake.snapshot import Pin
from lancestat.redact import redact_line, secret_values
from lancestat.tables.manifest.wire import COMPUTED_AT_VERSION, PREFIX, plan_updates

if TYPE_CHECKING:
    from lance import LanceDataset, LanceOperation


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

    `run` is the id of the run, for the transaction's properties.

    Raises:
        ValueError: an entry is outside `lance.stats.`, or the tag is not that of the next version.
    """
    tag = entries.get(COMPUTED_AT_VERSION)
    if tag != str(pin.version + 1):
        raise ValueError(f"the tag {tag!r} is not that of version {pin.version + 1}")
    properties = commit_properties(f"statistics of version {pin.version}", run)
    return EntriesChange(pin, plan_updates(config, entries), properties, "published to")


def removal(pin: Pin, keys: frozenset[str]) -> EntriesChange:
    """Return the change that removes some entries of the version that was read.

    Where it lands late, what came in between may have brought entries back.
    """
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

    Args:
        change: The entries, and the version that they presuppose.
        storage_options: For an object store.
        even_late: Commit wherever Lance lets it land. The tag stays that of the version that was
            read, so only readers whose policy accepts the distance use the entries.

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
        raise CommitFailed(
            f"statistics were not {change.verb} {redact_line(pin.uri, secrets)}:"
            f" {redact_line(str(error), secrets)}",
            hint="the table's data is untouched; run again",
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
