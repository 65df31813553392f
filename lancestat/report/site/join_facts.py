"""What a join's page says of its meaning, its sides and its result."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lancestat.plan.format import count
from lancestat.report.site.words import ago, instant, spoken
from lancestat.report.values import JoinReport
from lancestat.spec.disclosure import NO_ORIGINS, Origins, named
from lancestat.spec.model import KnnJoin, KnnSide
from lancestat.state.values import InputRecord, JoinRecord

Fact = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SideFacts:
    """One side of a join; `table` is the node that it is, `sql` the query that it is."""

    title: str
    table: str | None
    sql: tuple[str, ...]
    facts: tuple[Fact, ...]


def join_facts(report: JoinReport, now: datetime, origins: Origins = NO_ORIGINS) -> list[Fact]:
    """Terms and what is known of them; what the environment gave is told by `origins`."""
    spec, record = report.spec, report.record
    meaning = f"{count(spec.k)} nearest by {spec.metric}, {spoken([spec.join])} join"
    facts = [
        ("Meaning", named(origins, "k", "metric", "join") or meaning),
        ("Mode", named(origins, "mode", "approx") or _mode(spec)),
        ("Output", f"{spec.output_format}: {spec.output_uri}"),
    ]
    if record is not None:
        facts += _made(record, now)
    facts += [("Owner", spec.owner)] if spec.owner else []
    return facts


def _mode(spec: KnnJoin) -> str:
    if spec.recall is not None:
        return f"{spec.mode}, recall at least {spec.recall:g}"
    if spec.nprobes is not None:
        return f"{spec.mode}, {count(spec.nprobes, 'probe')}"
    return spec.mode


def _made(record: JoinRecord, now: datetime) -> list[Fact]:
    facts = [
        ("Made", f"{instant(record.finished_at)}, {ago(record.finished_at, now)}"),
        ("Strategy", spoken([record.strategy])),
        ("Result", count(record.result.rows, "row")),
        ("Compared", f"{count(record.left_rows)} x {count(record.right_rows)} rows"),
        ("Unmatched", count(record.unmatched_left_rows, "left row")),
        ("Excluded", f"{count(record.excluded_right_rows, 'right row')} without a usable vector"),
    ]
    if record.recall is not None:
        probes = f", {count(record.nprobes, 'probe')}" if record.nprobes else ""
        facts.append(("Recall", f"{record.recall:.3f} on a sample{probes}"))
    return facts


def side_facts(report: JoinReport) -> list[SideFacts]:
    """Both sides."""
    spec, record = report.spec, report.record
    left = (record.left, record.left_rows) if record else None
    right = (record.right, record.right_rows) if record else None
    return [_side("Left", spec.left, left), _side("Right", spec.right, right)]


def _side(title: str, side: KnnSide, made: tuple[InputRecord, int] | None) -> SideFacts:
    selected = "all columns" if side.select is None else ", ".join(side.select) or "none"
    facts = [("Vector", side.vector), ("Columns", selected)]
    if side.uri is not None:
        facts.insert(0, ("Read from", f"{side.format or 'lance'}: {side.uri}"))
    if side.options:
        facts.append(("Options", ", ".join(sorted(side.options))))
    if made is not None:
        facts.append(("Rows", count(made[1])))
        if made[0].fragments:
            facts.append(("Fragments", count(made[0].fragments)))
    sql = tuple(side.sql.strip().splitlines()) if side.sql else ()
    return SideFacts(title, side.table, sql, tuple(facts))
