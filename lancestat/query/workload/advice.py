"""What a workload asks of the declarations: changes of tables, each with its evidence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain

from lancestat import display
from lancestat.formats import StringEnum, count
from lancestat.query.workload.queries import ALL_COLUMNS, Role, Usage, Workload
from lancestat.spec.model import Table
from lancestat.spec.relations import MOST_GROUPS, group_text

UNUSED_AFTER = timedelta(days=90)


class Change(StringEnum):
    """What a proposal changes in the declaration of a table."""

    COLUMN = "column"
    UNUSED = "unused column"
    HISTOGRAM = "histogram"
    GROUP = "group"
    KEY = "key"
    REFERENCE = "reference"
    COMMON_VALUES = "common values"


_BY_VALUE = (Role.JOIN, Role.GROUP, Role.EQUALITY)
# What a run keeps joint statistics for, if it has several columns.
_JOINT = (Change.GROUP, Change.KEY, Change.REFERENCE)
# Larger groups are those of reports, in which nearly every row differs.
_MOST_COLUMNS = 8


def _text(columns: tuple[str, ...]) -> str:
    return columns[0] if len(columns) == 1 else group_text(columns)


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A declared table and its dataset, as far as proposals need them.

    `wanted` are the columns that are to have statistics, `analyzable` all that can have them, and
    `ranged` those of them that can have histograms. `types` are Spark's. By the last statistics,
    each of the `identifying` sets of columns has other values in nearly every row, and no null.
    `first_read` estimates the bytes on disk of some columns.
    """

    spec: Table
    wanted: frozenset[str]
    analyzable: frozenset[str]
    ranged: frozenset[str]
    types: Mapping[str, str]
    identifying: frozenset[frozenset[str]]
    rows: int
    first_read: Callable[[Collection[str]], int]

    def adding(self, change: Change, columns: tuple[str, ...], usage: Usage) -> Proposal:
        roles = {role: usage.roles[role] for role in Role if usage.roles[role]}
        name, read = self.spec.name, self.first_read(columns)
        return Proposal(name, change, columns, usage.queries, roles, usage.q_error, read)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of one table, and what speaks for it.

    `queries` use the columns, in so many of them in each role; of an unused column these are the
    queries of the table that do not read it. `q_error` is the worst of the operators concerned,
    None where logs do not have it. `size_bytes` is what the first run after it reads, about.
    `last_read` is when a query read an unused column, None where none has. A reference is to
    `other_columns` of the table `other`.
    """

    table: str
    change: Change
    columns: tuple[str, ...]
    queries: int
    roles: Mapping[Role, int] = field(default_factory=dict)
    q_error: float | None = None
    size_bytes: int = 0
    last_read: datetime | None = None
    other: str | None = None
    other_columns: tuple[str, ...] = ()

    def is_needed(self, min_q_error: float) -> bool:
        """Whether it helps: not where it serves estimates alone, and they are as good already."""
        serves_estimates = self.change not in (Change.COLUMN, Change.UNUSED)
        return self.q_error is None or self.q_error >= min_q_error or not serves_estimates

    @property
    def what(self) -> str:
        """What it is about, as people read it: `(i_category, i_class)`."""
        own = _text(self.columns)
        return own if self.other is None else f"{own} to {self.other} {_text(self.other_columns)}"

    @property
    def evidence(self) -> str:
        """The evidence as people read it."""
        if self.change is Change.UNUSED:
            last = "never" if self.last_read is None else f"last on {self.last_read:%Y-%m-%d}"
            queries = count(self.queries, "query", "queries")
            return f"{queries} of the table, read {last}"
        parts = [count(self.queries, "query", "queries")]
        if self.roles:
            parts[0] += f" ({', '.join(f'{role} {count(n)}' for role, n in self.roles.items())})"
        if self.q_error is not None:
            parts.append(f"q-error {self.q_error:,.1f}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Advice:
    """Proposals for the tables of a project, the most valuable first within each table.

    `undeclared` has, by their names in plans, how many queries scan tables that the project does
    not declare. `unopened` has the names of declared tables that could not be opened, each with
    the error. `left_out` says in words what was not read of the logs. `found` has the URIs of the
    datasets that sources find, by the names of their tables. `unneeded` counts what is not proposed
    since estimates are good. `diff` is the change of the spec files
    as a unified diff, and `by_hand` has proposals that it lacks, each with the reason.
    """

    project: str
    target: str
    logs: int
    queries: int
    first: datetime | None
    last: datetime | None
    proposals: tuple[Proposal, ...]
    undeclared: Mapping[str, int]
    unopened: Mapping[str, str]
    left_out: str
    has_estimates: bool
    found: Mapping[str, str] = field(default_factory=dict)
    unneeded: int = 0
    diff: str = ""
    by_hand: tuple[tuple[Proposal, str], ...] = ()

    def __repr__(self) -> str:
        proposals = count(len(self.proposals), "proposal")
        queries = count(self.queries, "query", "queries")
        what = f"{self.project}, target {self.target}: {proposals} from {queries}"
        return display.summary(self, what)

    __str__ = display.as_text

    def objection(self, proposal: Proposal) -> str | None:
        """Return why a proposal is not in the diff, None where it is."""
        return next((why for other, why in self.by_hand if other == proposal), None)


def propose(
    workload: Workload,
    known: Sequence[KnownTable],
    named: Collection[tuple[str, str]],
    *,
    min_queries: int = 1,
) -> tuple[Proposal, ...]:
    """Return proposals for some tables, under whose names the workload is.

    Args:
        workload: What queries use (`Workload.renamed`).
        known: The tables, in the order of the result.
        named: The columns that declarations of the project use, each with its table.
        min_queries: How many queries have to use what a proposal adds.
    """
    identified = {
        (table.spec.name, columns) for table in known for columns in _identified(workload, table)
    }
    proposals: dict[str, list[Proposal]] = {}
    for table in known:
        added = chain.from_iterable(
            (
                _columns(workload, table),
                _histograms(workload, table),
                _keys(workload, table),
                _groups(workload, table),
                _references(workload, table, known, identified),
                _common_values(workload, table),
            )
        )
        common = sorted((each for each in added if each.queries >= min_queries), key=_order)
        proposals[table.spec.name] = [*_within_limit(table, common)]
    in_use = {*named}
    for each in chain.from_iterable(proposals.values()):
        in_use.update((each.table, column) for column in each.columns)
        in_use.update((each.other or "", column) for column in each.other_columns)
    for table in known:
        proposals[table.spec.name] += _unused(workload, table, in_use)
    return tuple(chain.from_iterable(proposals.values()))


def needed(proposals: Sequence[Proposal], min_q_error: float) -> tuple[Proposal, ...]:
    """Return the proposals that help, and keys without which references of them prove nothing."""
    referred = {
        (each.other, frozenset(each.other_columns))
        for each in proposals
        if each.is_needed(min_q_error)
    }
    return tuple(
        each
        for each in proposals
        if each.is_needed(min_q_error)
        or (each.change is Change.KEY and (each.table, frozenset(each.columns)) in referred)
    )


def _within_limit(table: KnownTable, proposals: Iterable[Proposal]) -> Iterator[Proposal]:
    """Yield proposals until a table has as many groups as it may have."""
    groups = {frozenset(columns) for columns in table.spec.joint_groups}
    for proposal in proposals:
        if proposal.change in _JOINT and len(proposal.columns) > 1:
            groups.add(frozenset(proposal.columns))
            if len(groups) > MOST_GROUPS:
                continue
        yield proposal


def _order(proposal: Proposal) -> tuple[object, ...]:
    """Order kinds as declared, and what is worth more first: queries times q-error."""
    worth = proposal.queries * (proposal.q_error or 1.0)
    return list(Change).index(proposal.change), -worth, proposal.columns


def _used(workload: Workload, table: KnownTable) -> Iterator[tuple[tuple[str, ...], Usage]]:
    """Yield the columns that operators use together, where all of them can have statistics."""
    for (name, columns), usage in workload.sets.items():
        if name == table.spec.name and columns and table.analyzable.issuperset(columns):
            yield columns, usage


def _columns(workload: Workload, table: KnownTable) -> Iterator[Proposal]:
    """Yield columns without statistics that queries join, group or filter by."""
    for columns, usage in _used(workload, table):
        if len(columns) == 1 and columns[0] not in table.wanted:
            yield table.adding(Change.COLUMN, columns, usage)


def _histograms(workload: Workload, table: KnownTable) -> Iterator[Proposal]:
    """Yield histograms, which a table has of all columns or none, for conditions on ranges."""
    if table.spec.histogram:
        return
    ranges = {
        columns: usage
        for columns, usage in _used(workload, table)
        if len(columns) == 1 and usage.roles[Role.RANGE] and columns[0] in table.ranged
    }
    if not ranges:
        return
    # A query that has ranges of two columns counts for the more common one.
    most = Usage(max(usage.roles[Role.RANGE] for usage in ranges.values()))
    most.add(0, {Role.RANGE: most.queries}, None)
    for usage in ranges.values():
        most.add(0, {}, usage.q_error)
    names = {name for (name,) in ranges}
    proposal = table.adding(Change.HISTOGRAM, tuple(sorted(names)), most)
    yield replace(proposal, size_bytes=table.first_read(table.ranged & (table.wanted | names)))


def _identified(workload: Workload, table: KnownTable) -> Iterator[frozenset[str]]:
    """Yield the columns that identify a row, as declared or by their distinct values.

    What has other columns beside those that identify a row is left out. Grouping by one column
    of which each value is rare says little of it; several are rarely chosen by chance.
    """
    yield from map(frozenset, table.spec.keys)
    for columns, usage in _used(workload, table):
        names = frozenset(columns)
        is_used = usage.roles[Role.JOIN] or (len(columns) > 1 and usage.roles[Role.GROUP])
        is_minimal = not any(fewer < names for fewer in table.identifying)
        if is_used and is_minimal and names in table.identifying:
            yield names


def _keys(workload: Workload, table: KnownTable) -> Iterator[Proposal]:
    """Yield columns that queries join or group by, and that differ in nearly every row.

    Whether they are keys a run finds out, which reads them.
    """
    found = {*_identified(workload, table)} - {*map(frozenset, table.spec.keys)}
    for columns, usage in _used(workload, table):
        if frozenset(columns) in found:
            yield table.adding(Change.KEY, columns, usage)


def _groups(workload: Workload, table: KnownTable) -> Iterator[Proposal]:
    """Yield columns that queries join, group or filter by together, and that are no key."""
    declared = {frozenset(columns) for columns in table.spec.joint_groups}
    keys = [*_identified(workload, table)]
    for columns, usage in _used(workload, table):
        group = frozenset(columns)
        is_unique = any(key <= group for key in (*keys, *table.identifying))
        if group in declared or is_unique or not 1 < len(columns) <= _MOST_COLUMNS:
            continue
        if any(usage.roles[role] for role in _BY_VALUE):
            yield table.adding(Change.GROUP, columns, usage)


def _references(
    workload: Workload,
    table: KnownTable,
    known: Iterable[KnownTable],
    identified: Collection[tuple[str, frozenset[str]]],
) -> Iterator[Proposal]:
    """Yield joins of columns with those that identify a row of another table.

    Where both sides do, the table with fewer rows has the reference: returns are of sales.
    """
    others = {other.spec.name: other for other in known}
    joint = {frozenset(group) for group in table.spec.joint_groups}
    declared = {
        (each.table, frozenset(zip(each.columns, each.to, strict=True)))
        for each in table.spec.references
    }
    for join, usage in workload.joins.items():
        other, own = others.get(join.other or ""), frozenset(join.columns)
        if join.table != table.spec.name or other is None or not table.analyzable.issuperset(own):
            continue
        pairs = tuple(zip(join.columns, join.other_columns, strict=True))
        name = other.spec.name
        is_to_key = (name, frozenset(join.other_columns)) in identified
        is_to_fewer = (join.table, own) in identified and table.rows >= other.rows
        is_same = all(table.types.get(a) == other.types.get(b) for a, b in pairs)
        if is_to_key and is_same and not is_to_fewer and (name, frozenset(pairs)) not in declared:
            proposal = table.adding(Change.REFERENCE, join.columns, usage)
            is_counted = own in joint or (len(own) == 1 and own <= table.wanted)
            read = 0 if is_counted else proposal.size_bytes
            yield replace(proposal, size_bytes=read, other=name, other_columns=join.other_columns)


def _common_values(workload: Workload, table: KnownTable) -> Iterator[Proposal]:
    """Yield columns that queries compare with values, unless nearly every row has another."""
    kept = table.spec.common_values
    for columns, usage in _used(workload, table):
        is_wanted = len(columns) == 1 and usage.roles[Role.EQUALITY] > 0
        is_covered = kept is not None and kept.covers(columns)
        if is_wanted and not is_covered and frozenset(columns) not in table.identifying:
            yield table.adding(Change.COMMON_VALUES, columns, usage)


def _unused(
    workload: Workload, table: KnownTable, in_use: Collection[tuple[str, str]]
) -> Iterator[Proposal]:
    """Yield columns with statistics that no declaration uses and no query has read for 90 days.

    The workload has to span them, and the table to be in use; where it is not known which columns
    a query reads, it may read all.
    """
    usage = workload.tables.get(table.spec.name)
    if usage is None or workload.first is None or workload.last is None:
        return
    since = workload.last - UNUSED_AFTER
    read = usage.last_read
    is_known = ALL_COLUMNS not in read or read[ALL_COLUMNS] < since
    if workload.first > since or not is_known or not any(at >= since for at in read.values()):
        return
    for name in sorted(table.wanted):
        last, is_in_use = read.get(name), (table.spec.name, name) in in_use
        if not is_in_use and (last is None or last < since):
            queries, columns = usage.queries, (name,)
            yield Proposal(table.spec.name, Change.UNUSED, columns, queries, last_read=last)
