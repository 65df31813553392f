"""The views that commands show, and the output formats that can render them.

A format is a module of this package, listed in `FORMATS`, whose `FORMAT` registers a renderer for
each type of view that it can print. All else that depends on formats is derived from here: the
choices of `--output`, its help and completion, and the error for a view that a format cannot print.

Help loads every format, so this module imports nothing heavy; for the same reason views are named
tuples, of which twenty are made in the time that one frozen dataclass takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from lancestat.redact import EMPTY_REDACTOR, Audience, Redactor

if TYPE_CHECKING:
    from lancestat.errors import LancestatError
    from lancestat.query.sql.comparison import Comparison
    from lancestat.query.sql.explanation import PlanExplanation
    from lancestat.query.sql.query import ResultColumn
    from lancestat.query.workload.advice import Advice
    from lancestat.report.checks import CheckReport
    from lancestat.report.rows import Row
    from lancestat.report.tables import TableFigures
    from lancestat.report.values import NodeReport, ProjectReport
    from lancestat.review.values import Diff
    from lancestat.runs.actions import Plan
    from lancestat.runs.result import RunResult
    from lancestat.spec.model import Node, Policy, Source
    from lancestat.state.history import HistoryPoint
    from lancestat.tables.table_status import TableStatus

# In the order in which help lists them; a module is imported when its format is asked for.
FORMATS = {
    "text": "lancestat.presentation.text",
    "json": "lancestat.presentation.json",
    "markdown": "lancestat.presentation.markdown",
    "csv": "lancestat.presentation.csv",
    "prometheus": "lancestat.presentation.prometheus",
    "datahub": "lancestat.presentation.datahub",
    "openmetadata": "lancestat.presentation.openmetadata",
}

V = TypeVar("V")
T = TypeVar("T")


class Page(NamedTuple):
    """The page that a view is printed on: `width` in columns, for formats that are laid out.

    Rows of tables keep to `limit`, and are as wide as they are where it is None. Lines are redacted
    when they are written. A renderer that shortens or escapes a text, so that a secret in it would
    no longer be found, redacts it before.
    """

    verbose: bool = False
    width: int = 100
    audience: Audience = Audience.PERSON
    redactor: Redactor = EMPTY_REDACTOR
    limit: int | None = None

    def redacted(self, text: str) -> str:
        """Return a text without what the audience must not see."""
        return self.redactor.text(text, self.audience)


Renderer = Callable[[V, Page], T]


class Format(Generic[T]):
    """An output format, whose renderers return what `write` prints.

    Args:
        write: Prints what a renderer returns.
        is_for_people: People read it: queries print a limited number of rows, in local time.
        is_published: It is made to be published, and holds nothing that the public must not see.
        has_histograms: It shows the histograms of tables in their status.
    """

    def __init__(
        self,
        write: Callable[[T], None],
        *,
        is_for_people: bool = False,
        is_published: bool = False,
        has_histograms: bool = False,
    ) -> None:
        self.has_histograms = has_histograms
        self.write = write
        self.is_for_people = is_for_people
        self.is_published = is_published
        self.renderers: dict[type, Renderer[Any, T]] = {}

    def renders(self, view: type[V]) -> Callable[[Renderer[V, T]], Renderer[V, T]]:
        """Register the decorated function as the renderer of a type of view."""

        def register(render: Renderer[V, T]) -> Renderer[V, T]:
            self.renderers[view] = render
            return render

        return register

    def render(self, view: object, page: Page) -> T:
        return self.renderers[type(view)](view, page)

    def print(self, view: object, page: Page) -> None:
        self.write(self.render(view, page))


def load_format(name: str) -> Format[Any]:
    loaded = import_module(FORMATS[name]).FORMAT
    assert isinstance(loaded, Format)
    return loaded


def can_render(name: str, views: Iterable[type]) -> bool:
    """Whether a format prints at least one of some types of views, or there are none to print."""
    types = frozenset(views)
    return not types or not types.isdisjoint(load_format(name).renderers)


def formats_of(views: Iterable[type]) -> list[str]:
    types = tuple(views)
    return [name for name in FORMATS if can_render(name, types)]


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


class PlanView(NamedTuple):
    """A plan, and the policy of every table by its name as far as a format shows these."""

    plan: Plan
    policies: Mapping[str, Policy]


class RunView(NamedTuple):
    """The results of a run."""

    result: RunResult


class ShowView(NamedTuple):
    """One table's statistics: `rows` are those of `lancestat.statistics`, with cells by `names`."""

    status: TableStatus
    figures: TableFigures
    names: tuple[str, ...]
    rows: tuple[Row, ...]


class HistoryView(NamedTuple):
    """What runs found of a table, oldest first; `rows` are those of `lancestat.history`."""

    table: str
    points: tuple[HistoryPoint, ...]
    names: tuple[str, ...]
    rows: tuple[Row, ...]


class StatusView(NamedTuple):
    """The state of nodes, each with its texts by column.

    `counts` has how many are of each health, in words, the best first. `gone` names in words the
    tables that the sources no longer have.
    """

    project: str
    target: str
    report: ProjectReport
    nodes: tuple[tuple[NodeReport, Mapping[str, str]], ...]
    counts: tuple[tuple[str, str], ...]
    gone: str = ""


class CheckView(NamedTuple):
    """What is expected of tables, and whether it holds."""

    checked: CheckReport


@dataclass(slots=True)
class QueryView:
    """The result of a query, of which one of `values` and `cells` is read, once.

    Both end at the query's limit. While they are read, `printed` counts the rows, and at their end
    `is_complete` is set where there were no more. `is_shortened` is set by a renderer that does
    not print cells whole.
    """

    columns: tuple[ResultColumn, ...]
    values: Iterator[list[object]]
    cells: Iterator[list[str]]
    printed: int = 0
    is_complete: bool = True
    is_shortened: bool = False


class ExplanationView(NamedTuple):
    """The plan of a query and the basis of its estimates."""

    explanation: PlanExplanation


class ComparisonView(NamedTuple):
    """A query with statistics and without."""

    comparison: Comparison


class DiffView(NamedTuple):
    """The meaning of a change of the project."""

    diff: Diff


class AdviceView(NamedTuple):
    """Proposals for the YAML; `written` names the files that were changed, None if none should."""

    advice: Advice
    written: tuple[str, ...] | None = None
