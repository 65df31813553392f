"""What a change of a table means for those who read it and for the next run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lancestat.plan.format import count, size
from lancestat.review.columns import Compared, compare_columns
from lancestat.review.cost import table_cost
from lancestat.review.evidence import Evidence
from lancestat.review.staleness import staleness_risks
from lancestat.review.values import ColumnsChange, PropertyChange, Risk, RiskNote
from lancestat.spec.model import Publish, Table
from lancestat.state.identity import canonical_uri

# Only changes of these ask which columns there are, and what reading them costs.
_OF_COLUMNS = frozenset(("uri", "columns", "histogram"))
_NAMED = 8


@dataclass(frozen=True, slots=True)
class TableChange:
    """A table on both sides, and the properties that differ."""

    old: Table | None
    new: Table | None
    changed: tuple[PropertyChange, ...]

    @property
    def names(self) -> frozenset[str]:
        """Of the properties that differ."""
        return frozenset(change.name for change in self.changed)

    @property
    def is_moved(self) -> bool:
        """Whether it is another dataset."""
        both = self.old is not None and self.new is not None
        return both and len({canonical_uri(uri) for uri in self.uris}) > 1

    @property
    def uris(self) -> tuple[str, ...]:
        """Of the dataset, HEAD's first."""
        return tuple(
            dict.fromkeys(table.uri for table in (self.new, self.old) if table is not None)
        )

    @property
    def hides_columns(self) -> bool:
        """Whether patterns of columns came from the environment, so that they are not shown."""
        sides = (side for each in self.changed if each.name == "columns" for side in each.sides)
        return any(side.is_hidden for side in sides)

    @property
    def asks_dataset(self) -> bool:
        """Whether the dataset has anything to tell about the change."""
        return not (self.old and self.new) or bool(self.names & _OF_COLUMNS)


@dataclass(frozen=True, slots=True)
class Findings:
    """What a change of a node brings."""

    columns: ColumnsChange | None = None
    cost_bytes: int | None = 0
    risks: tuple[RiskNote, ...] = ()
    notes: tuple[str, ...] = ()


def judge_table(change: TableChange, evidence: Evidence) -> Findings:
    """Columns, cost, risks and what follows."""
    risks, notes = (*_staleness(change), *_places(change)), tuple(_consequences(change))
    if not change.asks_dataset:
        return Findings(risks=risks, notes=notes)
    snapshot = next(filter(None, map(evidence.snapshot, change.uris)), None)
    compared = compare_columns(change.old, change.new, snapshot, evidence.mask)
    if change.hides_columns and not compared.change.are_names:
        compared = replace(compared, change=ColumnsChange((), (), False))
    cost = _cost(change, compared, evidence)
    found = compared.change
    return Findings(
        columns=found if found.gained or found.lost else None,
        cost_bytes=cost,
        risks=(*risks, *_coverage(change, compared), *_cost_note(change, cost, compared)),
        notes=(*compared.notes, *_unopened(change, evidence), *notes),
    )


def _cost(change: TableChange, compared: Compared, evidence: Evidence) -> int | None:
    if change.new is None:
        return 0
    before = None if change.is_moved else change.old
    found = table_cost(before, change.new, evidence)
    needs_none = before is not None and not (compared.may_gain or _gains_histograms(change))
    return 0 if found is None and needs_none else found


def _gains_histograms(change: TableChange) -> bool:
    return "histogram" in change.names and change.new is not None and change.new.histogram


def _staleness(change: TableChange) -> Iterator[RiskNote]:
    if change.old is None or change.new is None:
        return
    shown = {each.name: " -> ".join(side.text for side in each.sides) for each in change.changed}
    what = shown.get("allow.stale") or f"refresh {shown.get('refresh', '')}"
    sentences = {
        Risk.STALENESS_LOOSENED: f"queries may be planned on older statistics: {what}",
        Risk.STALENESS_TIGHTENED: (
            f"statistics that are used today may be refused until a run brings them up to date: "
            f"{what}"
        ),
    }
    for risk in staleness_risks(change.old.policy, change.new.policy):
        yield RiskNote(risk, sentences[risk])


def _coverage(change: TableChange, compared: Compared) -> Iterator[RiskNote]:
    lost = compared.change.lost
    if change.new is None:
        whose = f"{count(len(lost), 'column')}" if compared.change.are_names else "the table"
        yield RiskNote(Risk.COVERAGE_LOST, f"nothing refreshes the statistics of {whose} any more")
    elif compared.may_lose:
        lose = "column loses" if len(lost) == 1 else "columns lose"
        what = f"{count(len(lost))} {lose}" if compared.change.are_names else "columns may lose"
        named = f": {_listed(lost)}" if lost else ""
        yield RiskNote(Risk.COVERAGE_LOST, f"{what} statistics{named}")
    if change.old and change.new and change.old.histogram and not change.new.histogram:
        yield RiskNote(Risk.COVERAGE_LOST, "histograms are made no more")


def _places(change: TableChange) -> Iterator[RiskNote]:
    if change.old is None or change.new is None:
        return
    if "publish" in change.names:
        yield RiskNote(
            Risk.PUBLISH_CHANGED,
            "runs will commit statistics to the table, which others see in its history"
            if change.new.publish is Publish.MANIFEST
            else "runs no longer commit statistics to the table: readers find only those that "
            "are there, which grow stale",
        )
    if change.is_moved:
        yield RiskNote(
            Risk.DATASET_MOVED,
            "the name stands for another dataset, whose statistics are made anew; the old one "
            "keeps what it has, and nothing refreshes it",
        )


def _cost_note(change: TableChange, cost: int | None, compared: Compared) -> Iterator[RiskNote]:
    if cost == 0:
        return
    gained = compared.change.gained if compared.change.are_names else ()
    what = f" for {count(len(gained), 'column')}" if gained and not change.is_moved else ""
    much = "more, how much cannot be told" if cost is None else f"about {size(cost)}"
    yield RiskNote(Risk.COST_INCREASED, f"the first run reads {much}{what}")


def _unopened(change: TableChange, evidence: Evidence) -> Iterator[str]:
    why = evidence.why_not(change.uris[0])
    if why is not None:
        yield f"the dataset {why}"


def _consequences(change: TableChange) -> Iterator[str]:
    old, new = change.old, change.new
    if old is None:
        return
    if new is None:
        if old.publish is Publish.MANIFEST:
            yield "what is published stays in the table's manifest, where readers may find it"
        yield "'lancestat gc' drops what the state knows of the table"
    elif old.name != new.name:
        yield f"queries that say '{old.name}' must say '{new.name}'"


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {count(len(names) - _NAMED)} more" if len(names) > _NAMED else shown
