"""What a table's page says before its columns."""

from __future__ import annotations

from datetime import datetime

from lancestat.plan.format import age, count, size, staleness
from lancestat.report.site.overview import freshness_words
from lancestat.report.site.words import instant, roughly, share
from lancestat.report.values import TableReport
from lancestat.spec.disclosure import NO_ORIGINS, Origins, named
from lancestat.spec.model import Freshness, Publish, Refresh

Fact = tuple[str, str]


def table_facts(report: TableReport, now: datetime, origins: Origins = NO_ORIGINS) -> list[Fact]:
    """Terms and what is known of them; what the environment gave is told by `origins`."""
    facts = [("URI", report.spec.uri)]
    shown = report.shown
    if shown is not None:
        rows = f"{count(shown.rows, 'row')} in {count(shown.fragments, 'fragment')}"
        facts += [
            ("Version", count(shown.version)),
            ("Rows", rows),
            ("Size", f"{size(shown.size_bytes)} decoded, {size(shown.disk_bytes)} on disk"),
        ]
        if shown.computed_at is not None:
            made = instant(shown.computed_at)
            ago = f", {roughly(shown.age)} ago" if shown.age is not None else ""
            facts.append(("Computed", made + ago))
        if shown.versions_behind:
            changed = ""
            if shown.changed_rows is not None:
                changed = f", {share(shown.changed_rows)} of the rows changed since"
            facts.append(("Behind", count(shown.versions_behind, "version") + changed))
    if report.changed_at is not None:
        given = named(origins, "freshness")
        bounds = f"; {given}" if given else _bounds(report.spec.freshness)
        facts.append(("Freshness", freshness_words(report, now) + bounds))
    return [*facts, *_declared(report, origins)]


def _declared(report: TableReport, origins: Origins) -> list[Fact]:
    spec, policy = report.spec, report.spec.policy
    name = f"{policy.name}: " if policy.name else ""
    when = {
        Refresh.ALWAYS: "refreshed by every run",
        Refresh.WHEN_STALE: "refreshed when readers would refuse",
    }
    words = named(origins, "policy") or f"{staleness(policy)}; {when[policy.refresh]}"
    facts = [("Policy", f"{name}{words}")]
    if published := named(origins, "publish"):
        facts.append(("Published", published))
    elif spec.publish is Publish.NONE:
        facts.append(("Published", "to the state only, never to the manifest"))
    facts += [("Owner", spec.owner)] if spec.owner else []
    return facts


def _bounds(freshness: Freshness | None) -> str:
    if freshness is None:
        return ""
    bounds = (("warning", freshness.warn_after), ("error", freshness.error_after))
    words = [f"{word} after {age(bound)}" for word, bound in bounds if bound is not None]
    return f"; {', '.join(words)}"
