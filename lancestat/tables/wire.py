"""The wire format: column statistics as `lance.stats.*` entries of a manifest's config."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from lancestat.errors import UnsupportedColumn
from lancestat.formats import StringEnum, format_instant
from lancestat.tables.statistics.bounds import Bound
from lancestat.tables.statistics.column_statistics import (
    BOUNDED_KINDS,
    STATISTICS,
    ColumnStatistics,
    Statistic,
)
from lancestat.tables.statistics.column_type import (
    ColumnType,
    Kind,
    are_estimable,
    format_bound,
    parse_bound,
    parse_integer,
)

PREFIX = "lance.stats."
COLUMN_PREFIX = "lance.stats.column."
JOINT_PREFIX = "lance.stats.joint."
VERSION = "lance.stats.version"
COMPLETE = "lance.stats.complete"
COMPUTED_AT_VERSION = "lance.stats.computedAtVersion"
COMPUTED_AT = "lance.stats.computedAt"
NUM_ROWS = "lance.stats.numRows"
SCHEMA_HASH = "lance.stats.schemaHash"
NEWEST_FRAGMENT = "lance.stats.newestFragment"
WRITER = "lance.stats.writer"

FORMAT_VERSION = "1"
# Of lancestat's rules for what is published. No release has written an earlier one than the first.
REVISION = 3
_FIRST_REVISION = 3
COLUMN_VERSION = 2
JOINT_VERSION = 1
MAX_VALUE_LENGTH = 256

_LARGEST_COUNT = 2**63 - 1
_SUFFIXES = frozenset(("version", *(statistic.key for statistic in STATISTICS)))
_HEADER = frozenset(
    (
        VERSION,
        COMPLETE,
        COMPUTED_AT_VERSION,
        COMPUTED_AT,
        NUM_ROWS,
        SCHEMA_HASH,
        NEWEST_FRAGMENT,
        WRITER,
    )
)
_TEMPORAL = (Kind.DATE, Kind.TIMESTAMP)
_DAY, _TIME = "[0-9]{4}-[0-9]{2}-[0-9]{2}", "[0-9]{2}:[0-9]{2}:[0-9]{2}"
_WRITER = re.compile(r"lancestat/([0-9]{1,9})@([0-9]{1,19})(?::([0-9a-f]{64}))?")
_REVISION_OF_WRITER = re.compile(r"lancestat/([0-9]{1,9})(?![0-9])")
_INSTANT = re.compile(rf"({_DAY}T{_TIME})(?:\.([0-9]{{1,9}}))?Z")


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
class Finding:
    """What statistics are for a reader, before any policy; `detail` is for people.

    `statistics` are there where they are current or stale.
    """

    reason: GuardReason
    detail: str
    statistics: PublishedStatistics | None = None


@dataclass(frozen=True, slots=True)
class PublishedColumn(ColumnStatistics[str]):
    """The statistics of one column as they are published, or kept; bounds are Spark's strings."""

    def with_row_counts(self, change: Callable[[int], int | None]) -> dict[str, Any]:
        """Return the statistics by name, changed where they scale with rows."""
        return {
            one.name: change(value) if one.scales_with_rows and value is not None else value
            for one, value in self.items()
        }


@dataclass(frozen=True, slots=True)
class JointStatistics:
    """What is published of columns together, in the order of their field ids.

    `distinct` estimates how many different tuples there are in rows where none of them is null,
    and `nulls` counts the other rows.
    """

    columns: tuple[str, ...]
    distinct: int
    nulls: int


_JOINT_SUFFIXES = ("version", "distinctCount", "nullCount")


@dataclass(frozen=True, slots=True)
class PublishedStatistics:
    """A readable set; `version_tag` is `computedAtVersion`, `dropped` has reasons by column.

    `revision` is that of lancestat's rules, None where something else wrote the set. `joint` has
    the statistics of groups, by the names of the columns; nothing else than lancestat writes any.
    """

    version_tag: int
    computed_at: datetime | None
    rows: int | None
    schema_hash: str | None
    columns: Mapping[str, PublishedColumn]
    dropped: Mapping[str, str]
    newest_fragment: str | None = None
    revision: int | None = None
    joint: Mapping[frozenset[str], JointStatistics] = field(default_factory=dict)

    @property
    def is_outdated(self) -> bool:
        """Whether lancestat wrote them by earlier rules."""
        return self.revision is not None and self.revision < REVISION


def encode_statistics(
    columns: Mapping[str, tuple[ColumnType, ColumnStatistics[Bound]]],
    *,
    rows: int,
    schema_hash: str,
    computed_at_version: int,
    computed_at: datetime,
    newest_fragment: str | None = None,
    joint: Iterable[JointStatistics] = (),
) -> dict[str, str]:
    """Return the whole set of entries that publishing these statistics writes.

    Args:
        columns: type and statistics by column name; those of types that are not published are left
            out (`encode_kept`).
        rows: live rows of the table.
        schema_hash: 64 hex digits.
        computed_at_version: the tag (`Carrier.tag`).
        computed_at: an aware instant.
        newest_fragment: that of the version that was read, by which readers tell the dataset.
        joint: those of groups of columns, which other readers ignore.

    Raises:
        UnsupportedColumn: a column's name is empty or holds a dot.
    """
    entries = {
        VERSION: FORMAT_VERSION,
        COMPLETE: "true",
        COMPUTED_AT: format_instant(computed_at),
        NUM_ROWS: str(rows),
        SCHEMA_HASH: schema_hash,
    }
    if newest_fragment is not None:
        entries[NEWEST_FRAGMENT] = newest_fragment
    entries |= _encode_columns(columns, are_published=True)
    for group in joint:
        values = (JOINT_VERSION, group.distinct, group.nulls)
        for suffix, value in zip(_JOINT_SUFFIXES, values, strict=True):
            # No name of a column that has statistics holds a dot.
            entries[f"{JOINT_PREFIX}{'.'.join(group.columns)}.{suffix}"] = str(value)
    return _signed(entries, REVISION, computed_at_version)


def encode_kept(
    columns: Mapping[str, tuple[ColumnType, ColumnStatistics[Bound]]],
) -> dict[str, str]:
    """Return the entries of the columns that are not published, for the state."""
    return _encode_columns(columns, are_published=False)


def _encode_columns(
    columns: Mapping[str, tuple[ColumnType, ColumnStatistics[Bound]]], *, are_published: bool
) -> dict[str, str]:
    entries = {}
    for name, (type, statistics) in columns.items():
        if type.is_published != are_published:
            continue
        if not is_storable_name(name):
            raise UnsupportedColumn(
                f"statistics of column {name!r} cannot be stored: its name is empty or holds a dot",
                hint="exclude the column, or rename it",
            )
        entries[f"{COLUMN_PREFIX}{name}.version"] = str(COLUMN_VERSION)
        values = _published(type, statistics)
        for statistic in STATISTICS:
            value = values.get(statistic.name)
            if value is not None:
                entries[f"{COLUMN_PREFIX}{name}.{statistic.key}"] = str(value)
    return entries


def published_column(type: ColumnType, statistics: ColumnStatistics[Bound]) -> PublishedColumn:
    """Return what publishing these statistics of a column tells its readers."""
    return PublishedColumn(**_published(type, statistics))


def _published(type: ColumnType, statistics: ColumnStatistics[Bound]) -> dict[str, Any]:
    """Return what is published of these statistics, by name."""
    values = {
        statistic.name: value
        for statistic, value in statistics.items()
        if type.kind in statistic.kinds
    }
    bounds = column_bounds(type, statistics.minimum, statistics.maximum)
    values["minimum"], values["maximum"] = bounds or (None, None)
    # By a count alone Spark estimates that no row equals a value, or another table's.
    is_bounded = type.is_published and type.kind in BOUNDED_KINDS
    if bounds is None and is_bounded and statistics.distinct:
        values["distinct"] = None
    return values


def is_storable_name(name: str) -> bool:
    """Whether the format can hold statistics of a column of that name."""
    return name != "" and "." not in name


def column_bounds(
    type: ColumnType, minimum: Bound | None, maximum: Bound | None
) -> tuple[str, str] | None:
    """Return both bounds as Spark's strings, or None: Spark's estimation cannot use one alone."""
    if minimum is None or maximum is None or not are_estimable(minimum, maximum):
        return None
    low, high = format_bound(minimum, type), format_bound(maximum, type)
    return None if low is None or high is None else (low, high)


def decode_statistics(
    config: Mapping[str, str], types: Mapping[str, ColumnType] | None = None
) -> PublishedStatistics | Finding:
    """Read the set in a dataset's config, tolerant per column.

    A column is dropped, with a reason, when its `version` is newer than 2, a count is negative or
    not a count, a bound does not parse, or Spark cannot plan with statistics of its type.
    Histograms, unknown suffixes and values over 256 characters are ignored.

    Args:
        config: all of the dataset's config.
        types: the analyzable columns of the schema; None when unknown: bounds are not checked then.
    """
    flaw = _find_flaw(config)
    if flaw is not None:
        return flaw
    tag = version_tag(config)
    if tag is None:
        return Finding(
            GuardReason.MALFORMED,
            f"{COMPUTED_AT_VERSION} is {spelled(config.get(COMPUTED_AT_VERSION))}, not a version",
        )
    if is_altered(config):
        return Finding(
            GuardReason.ALTERED,
            "they are not the entries that lancestat wrote: some were changed, added or removed "
            "since",
        )
    columns: dict[str, PublishedColumn] = {}
    dropped: dict[str, str] = {}
    revision = written_revision(config)
    for name, entries in _column_entries(config).items():
        try:
            if types is not None and name in types and not types[name].is_published:
                raise ValueError(f"Spark cannot plan with statistics of {types[name].spark_type}")
            columns[name] = _decode_column(name, entries, types)
        except ValueError as error:
            dropped[name] = str(error)
    return PublishedStatistics(
        version_tag=tag,
        computed_at=_instant(config.get(COMPUTED_AT)),
        rows=_count(config.get(NUM_ROWS)),
        schema_hash=config.get(SCHEMA_HASH),
        columns=columns,
        dropped=dropped,
        newest_fragment=newest_fragment(config),
        revision=revision,
        # Others leave these entries as they found them.
        joint={}
        if revision is None
        else _decode_joint(config, columns if types is None else types),
    )


def _decode_joint(
    config: Mapping[str, str], known: Container[str]
) -> dict[frozenset[str], JointStatistics]:
    """Return what is published of groups of known columns; what cannot be read is left out."""
    entries: dict[tuple[str, ...], dict[str, str]] = {}
    for key, text in config.items():
        if key.startswith(JOINT_PREFIX):
            *names, suffix = key.removeprefix(JOINT_PREFIX).split(".")
            entries.setdefault(tuple(names), {})[suffix] = text
    joint = {}
    for columns, values in entries.items():
        version, distinct, nulls = (_count(values.get(suffix)) for suffix in _JOINT_SUFFIXES)
        is_group = len(set(columns)) > 1 and all(name in known for name in columns)
        if is_group and version == JOINT_VERSION and distinct is not None and nulls is not None:
            joint[frozenset(columns)] = JointStatistics(columns, distinct, nulls)
    return joint


def decode_kept(
    entries: Mapping[str, str], types: Mapping[str, ColumnType]
) -> dict[str, PublishedColumn]:
    """Return the columns of `encode_kept`; those that the table has no more are left out."""
    columns = {}
    for name, column_entries in _column_entries(entries).items():
        if name in types and not types[name].is_published:
            with suppress(ValueError):
                columns[name] = _decode_column(name, column_entries, types)
    return columns


def version_tag(config: Mapping[str, str]) -> int | None:
    """Return the version that statistics are tagged with, None where there is no sound tag."""
    return _count(config.get(COMPUTED_AT_VERSION))


def written_revision(config: Mapping[str, str]) -> int | None:
    """Return the revision of the rules by which lancestat wrote statistics.

    None where something else did, as the connector's ANALYZE TABLE: it changes the tag, and leaves
    the entries that are lancestat's alone.
    """
    written = _WRITER.fullmatch(config.get(WRITER, ""))
    if written is None or written[2] != config.get(COMPUTED_AT_VERSION):
        return None
    return int(written[1])


def is_altered(config: Mapping[str, str]) -> bool:
    """Whether the entries that lancestat wrote were changed since, or others added to them.

    A digest guards against accidents, not against someone who recomputes it. Where the tag too
    is another one, something else has written statistics since; but not if all the rest is as
    lancestat wrote it. A mark that no release writes was itself changed.
    """
    mark = config.get(WRITER)
    if mark is None:
        # Only lancestat names a fragment, and it signs what it writes.
        return NEWEST_FRAGMENT in config
    revision = _REVISION_OF_WRITER.match(mark)
    if revision is None:
        # Another writer's name, or what is left of lancestat's.
        name = mark.lower()
        return name.startswith("lancestat") or "lancestat".startswith(name)
    if int(revision[1]) > REVISION:
        # What the mark of a later release says of its entries is not known.
        return False
    written = _WRITER.fullmatch(mark)
    if written is None or written[3] is None or int(revision[1]) < _FIRST_REVISION:
        return True
    is_same_tag = config.get(COMPUTED_AT_VERSION) == written[2]
    is_as_written = _digest(config, written[2]) == written[3]
    return is_same_tag != is_as_written


def _digest(config: Mapping[str, str], tag: str) -> str:
    """Return the SHA-256 of a config's statistics under a tag, without the entry that holds it."""
    entries = {key: text for key, text in config.items() if key[: len(PREFIX)] == PREFIX}
    entries[COMPUTED_AT_VERSION] = tag
    entries.pop(WRITER, None)
    pairs = [part for pair in sorted(entries.items()) for part in pair]
    return sha256("\0".join([*pairs, ""]).encode("utf-8", "surrogatepass")).hexdigest()


def newest_fragment(config: Mapping[str, str]) -> str | None:
    """Return the digest of the newest fragment that statistics name, None where they name none."""
    return None if written_revision(config) is None else config.get(NEWEST_FRAGMENT)


class Writer(StringEnum):
    """What wrote the statistics of a config; their spelling is a contract."""

    NOBODY = "nobody"
    LANCESTAT = "lancestat"
    NEWER_LANCESTAT = "newer_lancestat"
    OTHER = "other"


def writer_of(config: Mapping[str, str]) -> Writer:
    """Return what wrote the statistics of a config.

    A newer release counts as such where this one does not know its format.
    """
    if not published_entries(config):
        return Writer.NOBODY
    if is_altered(config):
        return Writer.LANCESTAT
    revision = written_revision(config)
    if revision is None:
        return Writer.OTHER
    is_known = revision <= REVISION or config.get(VERSION) == FORMAT_VERSION
    return Writer.LANCESTAT if is_known else Writer.NEWER_LANCESTAT


def own_keys(config: Mapping[str, str]) -> frozenset[str]:
    """Return the keys of the entries that lancestat wrote, in a format that this release knows.

    Beside statistics of another writer these are the marks that lancestat left.
    """
    match writer_of(config):
        case Writer.LANCESTAT:
            return frozenset(published_entries(config))
        case Writer.OTHER:
            return frozenset((WRITER, NEWEST_FRAGMENT)) & config.keys()
        case _:
            return frozenset()


def unknown_keys(keys: Iterable[str]) -> tuple[str, ...]:
    """Return those among some keys under `lance.stats.` that lancestat never writes, in order."""
    return tuple(sorted(key for key in keys if key.startswith(PREFIX) and not _is_known(key)))


def _is_known(key: str) -> bool:
    if key.startswith(JOINT_PREFIX):
        *names, suffix = key.removeprefix(JOINT_PREFIX).split(".")
        return len(names) > 1 and all(names) and suffix in _JOINT_SUFFIXES
    if not key.startswith(COLUMN_PREFIX):
        return key in _HEADER
    name, _, suffix = key[len(COLUMN_PREFIX) :].rpartition(".")
    return is_storable_name(name) and suffix in _SUFFIXES


def column_count(keys: Iterable[str]) -> int:
    """Return how many columns have entries among some keys."""
    columns = (key[len(COLUMN_PREFIX) :] for key in keys if key.startswith(COLUMN_PREFIX))
    return len({name.rpartition(".")[0] for name in columns})


def tagged(encoded: Mapping[str, str], version: int) -> dict[str, str]:
    """Return statistics that lancestat made with the tag of a version."""
    return _signed(encoded, written_revision(encoded) or 0, version)


def _signed(encoded: Mapping[str, str], revision: int, version: int) -> dict[str, str]:
    """Return statistics with the tag of a version, and the mark of lancestat for all of them."""
    entries = {**encoded, COMPUTED_AT_VERSION: str(version)}
    return {**entries, WRITER: f"lancestat/{revision}@{version}:{_digest(entries, str(version))}"}


def spelled(text: str | None) -> str:
    """Return a manifest value for a message: quoted, escaped and cut, or the word `missing`."""
    if text is None:
        return "missing"
    return ascii(text if len(text) <= 40 else f"{text[:40]}...")


def _find_flaw(config: Mapping[str, str]) -> Finding | None:
    if not published_entries(config):
        return Finding(GuardReason.ABSENT, "no statistics are published")
    version = config.get(VERSION)
    if version != FORMAT_VERSION:
        return Finding(
            GuardReason.UNKNOWN_FORMAT,
            f"{VERSION} is {spelled(version)}, this reader knows '{FORMAT_VERSION}'",
        )
    complete = config.get(COMPLETE, "true")
    if complete.lower() == "false":
        return Finding(GuardReason.INCOMPLETE, f"{COMPLETE} is 'false'")
    if complete.lower() != "true":
        return Finding(
            GuardReason.MALFORMED, f"{COMPLETE} is {spelled(complete)}, not 'true' or 'false'"
        )
    return None


def _column_entries(config: Mapping[str, str]) -> dict[str, dict[str, str]]:
    columns: dict[str, dict[str, str]] = {}
    for key, text in config.items():
        if not key.startswith(COLUMN_PREFIX):
            continue
        name, _, suffix = key[len(COLUMN_PREFIX) :].rpartition(".")
        if suffix in _SUFFIXES and len(text) <= MAX_VALUE_LENGTH:
            columns.setdefault(name, {})[suffix] = text
    return columns


def column_figures(entries: Mapping[str, str]) -> dict[str, dict[str, int | str]]:
    """Return the statistics of columns by their keys in JSON, bounds as texts, types unseen."""
    columns: dict[str, dict[str, int | str]] = {}
    for name, texts in _column_entries(entries).items():
        columns[name] = {}
        for statistic in STATISTICS:
            text = texts.get(statistic.key)
            value = text if statistic.is_bound else _count(text)
            if value is not None:
                columns[name][statistic.sql_name] = value
    return columns


def _decode_column(
    name: str, entries: Mapping[str, str], types: Mapping[str, ColumnType] | None
) -> PublishedColumn:
    """Decode one column; the ValueError's text is the reason for dropping it."""
    if not is_storable_name(name):
        raise ValueError("a name that is empty or holds a dot is ambiguous")
    version = _column_version(entries)
    type = None
    if types is not None:
        type = types.get(name)
        if type is None:
            raise ValueError("the table has no such column that can be analyzed")
        if version < COLUMN_VERSION and type.kind in _TEMPORAL:
            raise ValueError(
                f"version {version} of {type.spark_type} bounds is in a local calendar"
            )
    values: dict[str, Any] = {
        statistic.name: _column_value(statistic, entries[statistic.key])
        for statistic in STATISTICS
        if statistic.key in entries and (type is None or type.kind in statistic.kinds)
    }
    column = PublishedColumn(**values)
    return column if type is None else _with_usable_bounds(column, type)


def _column_version(entries: Mapping[str, str]) -> int:
    version = _count(entries.get("version"))
    if version is None or version == 0:
        raise ValueError(f"version is {spelled(entries.get('version'))}, not a version number")
    if version > COLUMN_VERSION:
        raise ValueError(f"version {version} is newer than {COLUMN_VERSION}")
    return version


def _column_value(statistic: Statistic, text: str) -> str | int:
    if statistic.type is str:
        return text
    count = _count(text)
    if count is None:
        raise ValueError(f"{statistic.key} is {spelled(text)}, not a count")
    return count


def _with_usable_bounds(column: PublishedColumn, type: ColumnType) -> PublishedColumn:
    minimum, maximum = column.minimum, column.maximum
    if minimum is None and maximum is None:
        return column
    lowest, highest = _bound("min", minimum, type), _bound("max", maximum, type)
    if lowest is None or highest is None or not are_estimable(lowest, highest):
        return replace(column, minimum=None, maximum=None)
    if highest < lowest:
        raise ValueError(f"min {spelled(minimum)} is above max {spelled(maximum)}")
    return column


def _bound(suffix: str, text: str | None, type: ColumnType) -> int | float | None:
    try:
        return None if text is None else parse_bound(text, type)
    except ValueError as error:
        raise ValueError(f"{suffix} is {spelled(text)}, not a {type.spark_type}") from error


def _count(text: str | None) -> int | None:
    """Return a non-negative 64-bit count, or None for anything else."""
    if text is None or len(text) > MAX_VALUE_LENGTH:
        return None
    try:
        number = parse_integer(text)
    except ValueError:
        return None
    return number if 0 <= number <= _LARGEST_COUNT else None


def _instant(text: str | None) -> datetime | None:
    matched = _INSTANT.fullmatch(text or "")
    if not matched:
        return None
    seconds, fraction = matched[1], matched[2] or ""
    try:
        # Java prints up to nanoseconds; Python 3.10 reads exactly six digits.
        return datetime.fromisoformat(f"{seconds}.{fraction[:6].ljust(6, '0')}+00:00")
    except ValueError:
        return None


def published_entries(config: Mapping[str, str]) -> dict[str, str]:
    """Return the `lance.stats.*` entries of a config."""
    return {key: text for key, text in config.items() if key.startswith(PREFIX)}


def plan_updates(config: Mapping[str, str], encoded: Mapping[str, str]) -> dict[str, str | None]:
    """Return config updates that replace the set and touch nothing else; None removes an entry."""
    removed = sorted(published_entries(config).keys() - encoded.keys())
    return {**dict.fromkeys(removed), **encoded}


def same_statistics(config: Mapping[str, str], encoded: Mapping[str, str]) -> bool:
    """Whether a config says the same about the rows; stamps of time and version may differ.

    Statistics by earlier rules do not, whose bounds mean something else, nor do those of others.
    """
    is_same_writer = written_revision(config) == written_revision(encoded)
    return is_same_writer and unstamped(config) == unstamped(encoded)


_STAMPS = frozenset({COMPUTED_AT, COMPUTED_AT_VERSION, NEWEST_FRAGMENT, WRITER})


def unstamped(config: Mapping[str, str]) -> dict[str, str]:
    """Return the entries that say something about the rows, without stamps of time and version."""
    return {
        key: text for key, text in config.items() if key.startswith(PREFIX) and key not in _STAMPS
    }


def restamp(
    encoded: Mapping[str, str],
    *,
    computed_at_version: int,
    computed_at: datetime,
    newest_fragment: str,
) -> dict[str, str]:
    """Return the same statistics for another version of the same rows."""
    stamps = {COMPUTED_AT: format_instant(computed_at), NEWEST_FRAGMENT: newest_fragment}
    return tagged({**encoded, **stamps}, computed_at_version)
