"""The views: one value per command that holds all that output formats print.

Figures are kept as the values that JSON has; what people read is put into words once, where the
view is made. This module imports nothing heavy, so that a format can register its renderers without
loading what makes the views; for the same reason views are named tuples, of which twenty are made
in the time that one frozen dataclass takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime

    from lancestat.errors import LancestatError
    from lancestat.presentation.registry import Page
    from lancestat.query.sql.explain import PlanExplanation
    from lancestat.report.gather import Row
    from lancestat.report.tables import TableFigures
    from lancestat.report.values import NodeReport, NodeRunFigures, ProjectReport
    from lancestat.review.values import ColumnsChange, Diff, PropertyChange, TablesChange
    from lancestat.runs.actions import SourceFindings
    from lancestat.runs.result import NodeResult, PastRun
    from lancestat.spec.model import Node, Source
    from lancestat.tables.table_status import TableStatus
    from lancestat.tables.unpublish import UnpublishResult


class Answer(NamedTuple):
    """The result of a command that only text and JSON print: JSON's members, and lines of text."""

    command: str
    members: Mapping[str, object]
    lines: Callable[[Page], Iterable[str]]


class ErrorsView(NamedTuple):
    """The errors that ended a command; `command` is None if the command line names none."""

    command: str | None
    errors: Sequence[LancestatError]


class ListView(NamedTuple):
    """Selected nodes as the audience may see them; `is_empty` where the project declares none.

    `sources` are those whose tables have not been looked up. `errors` are those of
    sources that could not be looked up; they also go to stderr.
    """

    project: str
    target: str
    nodes: Sequence[Node]
    is_empty: bool = False
    sources: Sequence[Source] = ()
    errors: Sequence[LancestatError] = ()


# Of what is done with a node, in the order in which a summary counts them.
SYMBOLS = {"analyze": "+", "refresh": "~", "restamp": "=", "skip": ".", "blocked": "!"}


class ActionView(NamedTuple):
    """An action of a plan.

    `reads` has what it reads or compares, `reasons` are machine words, `accepted` is the
    staleness that readers accept. `stages` has a line for each stage that needs words. `choice` has
    how a join is done and why; `shows_choice` where texts say it. `error` is set of blocked
    nodes alone.
    """

    result: NodeResult
    symbol: str
    reads: str
    is_pending: bool
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    accepted: str = ""
    stages: tuple[str, ...] = ()
    choice: str | None = None
    shows_choice: bool = True
    error: str | None = None

    @property
    def node(self) -> str:
        return self.result.name

    @property
    def verb(self) -> str:
        return self.result.action


class PlanView(NamedTuple):
    """The actions that a run would take: `counts` has a symbol, a verb and how many have it.

    `sources` is what the sources of a project have, `gone` names what they no longer have. Of the
    `estimated_seconds`, which are those of joins alone, Spark takes `spark_start_seconds` to start.
    """

    project: str
    target: str
    actions: tuple[ActionView, ...]
    counts: tuple[tuple[str, str, int], ...]
    total: str
    is_blocked: bool
    has_joins: bool
    sources: SourceFindings | None = None
    estimated_seconds: float | None = None
    spark_start_seconds: float | None = None
    gone: str = ""

    @property
    def pending(self) -> int:
        return sum(action.is_pending for action in self.actions)

    @property
    def results(self) -> tuple[NodeResult, ...]:
        return tuple(action.result for action in self.actions)


class RunView(NamedTuple):
    """The results of a run, and their sum in words; `command` is what started it.

    `sources` is what the sources had when it was planned, `gone` names what they no longer had.
    """

    command: str
    project: str
    target: str
    status: str
    nodes: tuple[NodeRunFigures, ...]
    updated: str
    unchanged: int
    not_run: int
    failed: int
    total: str
    run_id: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    interrupted: int = 0
    sources: SourceFindings | None = None
    gone: str = ""

    @property
    def is_failed(self) -> bool:
        return self.status == "error"

    @property
    def results(self) -> tuple[NodeResult, ...]:
        return tuple(node.result for node in self.nodes)


class RunsView(NamedTuple):
    """Past runs, newest first."""

    project: str
    target: str
    runs: tuple[PastRun, ...]


class PastRunView(NamedTuple):
    """The nodes of one past run."""

    project: str
    run: PastRun
    nodes: tuple[NodeRunFigures, ...]


class ShowView(NamedTuple):
    """One table's statistics: `rows` are those of `lancestat.statistics`, by column."""

    status: TableStatus
    figures: TableFigures
    names: tuple[str, ...]
    rows: tuple[Row, ...]


class StatusView(NamedTuple):
    """The state of nodes, each with its texts by column.

    `counts` has how many are of each health, in words, the best first.

    `gone` names in words the tables that the sources no longer have.
    """

    project: str
    target: str
    report: ProjectReport
    nodes: tuple[tuple[NodeReport, Mapping[str, str]], ...]
    counts: tuple[tuple[str, str], ...]
    gone: str = ""


class QueryColumn(NamedTuple):
    """A column of a query's result; `type` is Spark's."""

    name: str
    type: str
    is_number: bool


@dataclass(slots=True)
class QueryView:
    """The result of a query, of which one of `values` and `cells` is read, once.

    Both end at the query's limit. While they are read, `printed` counts the rows, and at their end
    `is_complete` is set where there were no more. `is_shortened` is set by a renderer that does
    not print cells whole.
    """

    columns: tuple[QueryColumn, ...]
    values: Iterator[list[object]]
    cells: Iterator[list[str]]
    printed: int = 0
    is_complete: bool = True
    is_shortened: bool = False


class ExplanationView(NamedTuple):
    """The plan of a query and the basis of its estimates."""

    explanation: PlanExplanation


class UnpublishView(NamedTuple):
    """The statistics that were removed from tables, or would be."""

    result: UnpublishResult

    @property
    def is_failed(self) -> bool:
        return any(node.error for node in self.result.nodes)


# Above so many lines, repeated lines are not matched one by one.
_MANY_LINES = 1000


class PropertyView(NamedTuple):
    """A property before and after as people see it, None where it was not there."""

    change: PropertyChange
    old: str | None
    new: str | None

    @property
    def name(self) -> str:
        return self.change.name

    def lines(self) -> list[str]:
        """Return the lines of both, with `- ` before those that went, `+ ` before new ones."""
        before, after = ([] if text is None else text.split("\n") for text in (self.old, self.new))
        lines: list[str] = []
        matcher = SequenceMatcher(a=before, b=after, autojunk=len(before) > _MANY_LINES)
        for word, start, end, new_start, new_end in matcher.get_opcodes():
            if word == "equal":
                lines += (f"  {line}" for line in before[start:end])
            else:
                lines += (f"- {line}" for line in before[start:end])
                lines += (f"+ {line}" for line in after[new_start:new_end])
        return lines


class NodeDiffView(NamedTuple):
    """A node that changed; `risks` are words with sentences.

    A removed node has no properties here. `cost` is what the first run reads for the change.
    """

    name: str
    symbol: str
    change: str
    kind: str
    location: str
    owners: tuple[str, ...]
    properties: tuple[PropertyView, ...]
    columns: ColumnsChange | None
    risks: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    cost: str | None
    tables: TablesChange | None = None
    url: str | None = None


class DiffView(NamedTuple):
    """The meaning of a change of the project.

    `base` and `head` are the sides as people call them, `counts` is by change, `summary` and `cost`
    are sentences. `risks` has each risk, the severest first, with its sentences and their nodes.
    `no_changes_mark` is the line of Markdown by which `comment` recognizes a diff without changes.
    """

    diff: Diff
    base: str
    head: str
    counts: Mapping[str, int]
    summary: str
    cost: str | None
    settings: tuple[PropertyView, ...]
    nodes: tuple[NodeDiffView, ...]
    risks: tuple[tuple[str, tuple[tuple[str, tuple[str, ...]], ...]], ...]
    owners: Mapping[str, tuple[str, ...]]
    no_changes_mark: str
