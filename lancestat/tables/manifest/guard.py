"""The reader guard: whether published statistics may be used for the rows that are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from lancestat.formats import StringEnum
from lancestat.spec.model import StaleBounds
from lancestat.tables.manifest.wire import (
    SCHEMA_HASH,
    PublishedStatistics,
    Unreadable,
    decode_statistics,
)
from lancestat.tables.statistics.column_type import ColumnType


class GuardReason(StringEnum):
    """The reasons why statistics are used or refused; the spelling is a contract."""

    CURRENT = "current"
    STALE_ACCEPTED = "stale_accepted"
    ABSENT = "absent"
    DISABLED = "disabled"
    UNKNOWN_FORMAT = "unknown_format"
    INCOMPLETE = "incomplete"
    MALFORMED = "malformed"
    ALTERED = "altered"
    SCHEMA_CHANGED = "schema_changed"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance of a table from the version of its statistics.

    `versions` is the current version less the tag. `changed_rows` is the share of the current rows
    that changed since version tag - 1, the one that was read: a publication that landed late has a
    tag whose rows it does not describe. None means unknown, which exceeds every
    bound; but an `age` of None is taken from `computedAt`.
    """

    versions: int
    age: timedelta | None = None
    changed_rows: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The guard's answer; `statistics` is None unless they may be used.

    `detail` is the reason in a few words for people.
    """

    use: bool
    reason: GuardReason
    detail: str
    statistics: PublishedStatistics | None = None


def judge(
    config: Mapping[str, str],
    *,
    version: int,
    schema_hash: str,
    now: datetime,
    allow_stale: bool | StaleBounds = False,
    distance: Distance | None = None,
    types: Mapping[str, ColumnType] | None = None,
    enabled: bool = True,
    decoded: PublishedStatistics | Unreadable | None = None,
) -> Verdict:
    """Apply the reader rules of the wire format, in their order.

    Whatever a config holds, the answer is a verdict and not an exception.

    Args:
        config: all of the dataset's config at `version`.
        version: the manifest version that is read.
        schema_hash: the hash of the schema that is read.
        now: an aware instant.
        allow_stale: the policy: never, always, or bounds that must all hold.
        distance: that of the statistics; None when only the version numbers are known.
        types: the analyzable columns, to check bounds by.
        enabled: whether the feature is on.
        decoded: what `decode_statistics` says of the config, where that is known already.
    """
    if not enabled:
        return Verdict(False, GuardReason.DISABLED, "column statistics are switched off")
    statistics = decode_statistics(config, types) if decoded is None else decoded
    if isinstance(statistics, Unreadable):
        return Verdict(False, GuardReason(statistics.flaw.value), statistics.detail)
    if statistics.schema_hash is None or statistics.schema_hash != schema_hash:
        detail = f"their {SCHEMA_HASH} is not that of the table's columns"
        return Verdict(False, GuardReason.SCHEMA_CHANGED, detail)
    tag = statistics.version_tag
    if tag == version:
        detail = f"the statistics describe version {version}"
        return Verdict(True, GuardReason.CURRENT, detail, statistics)
    behind = f"the statistics describe version {tag}, the table is at version {version}"
    objection = _objection(statistics, allow_stale, distance, version, now)
    if objection is None:
        return Verdict(
            True, GuardReason.STALE_ACCEPTED, f"{behind}; the policy accepts it", statistics
        )
    return Verdict(False, GuardReason.STALE, f"{behind}; {objection}")


def _objection(
    statistics: PublishedStatistics,
    allow_stale: bool | StaleBounds,
    distance: Distance | None,
    version: int,
    now: datetime,
) -> str | None:
    """Return the policy's objection to a distance, or None when it accepts it."""
    if allow_stale is True:
        return None
    if allow_stale is False:
        return "the policy accepts no distance"
    if statistics.version_tag > version:
        return "no bound can be checked against a later version"
    known = distance or Distance(versions=version - statistics.version_tag)
    checks = [
        _exceeds_versions(allow_stale, known.versions),
        _exceeds_age(allow_stale, _age(statistics, known, now)),
        _exceeds_rows(allow_stale, known.changed_rows),
    ]
    if allow_stale == StaleBounds():
        return "the policy gives no bound"
    return next((check for check in checks if check is not None), None)


def _age(statistics: PublishedStatistics, distance: Distance, now: datetime) -> timedelta | None:
    age = distance.age
    if age is None and statistics.computed_at is not None:
        age = now - statistics.computed_at
    # An instant that has not come yet says nothing about age.
    return age if age is not None and age >= timedelta(0) else None


def _exceeds_versions(bounds: StaleBounds, versions: int) -> str | None:
    bound = bounds.max_versions
    if bound is None or 0 <= versions <= bound:
        return None
    accepted = bounds.templates.get("max_versions", bound)
    return f"{versions} versions behind, the policy accepts {accepted}"


def _exceeds_age(bounds: StaleBounds, age: timedelta | None) -> str | None:
    bound = bounds.max_age
    if bound is None:
        return None
    if age is None:
        return "their age is not known"
    accepted = bounds.templates.get("max_age", bound)
    return None if age <= bound else f"they are {age} old, the policy accepts {accepted}"


def _exceeds_rows(bounds: StaleBounds, share: float | None) -> str | None:
    bound = bounds.max_changed_rows
    if bound is None:
        return None
    if share is None:
        return "the share of changed rows is not known"
    # Written so that a NaN share exceeds the bound.
    if share <= bound:
        return None
    accepted = bounds.templates.get("max_changed_rows", f"{bound:.2%}")
    return f"{share:.2%} of the rows changed, the policy accepts {accepted}"
