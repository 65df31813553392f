"""What several formats say of plans, runs, nodes and diffs, in the same words.

`lancestat list` loads this, and no plan: functions import what makes plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from lancestat.formats import MOST_NAMED, count, duration, large, named, size, visible
from lancestat.presentation.terminal import paint

if TYPE_CHECKING:
    from lancestat.review.values import Diff, NodeDiff, PropertyChange
    from lancestat.runs.actions import Action, Plan, SourceFindings
    from lancestat.runs.result import NodeResult, RunResult

# Of what is done with a node, in the order in which a summary counts them.
SYMBOLS = {
    "analyze": "+",
    "refresh": "~",
    "restamp": "=",
    "skip": ".",
    "defer": ">",
    "blocked": "!",
}
HEALTH_SYMBOLS = {"ok": ".", "warn": "?", "error": "!"}
CHANGE_SYMBOLS = {"added": "+", "removed": "-", "changed": "~"}
# The most unchanged and the most healthy nodes that are listed one by one.
SKIPS_LISTED = 12
WELL_LISTED = 30
NOTHING = "nothing"
# Above so many lines, repeated lines are not matched one by one.
_MANY_LINES = 1000

# Columns of `status` by what their cells are, with what they are called above them and in a
# sentence. Those at the end are the first to go below the line where the page is narrow.
COLUMNS = (
    ("name", "node", ""),
    ("verdict", "statistics", ""),
    ("behind", "behind", ""),
    ("changed", "changed", ""),
    ("columns", "columns", ""),
    ("age", "age", "statistics of {} ago"),
    ("rows_age", "data age", "rows of {} ago"),
)
RIGHT = frozenset({"behind", "changed", "columns"})


def status_columns(nodes: Sequence[Mapping[str, str]]) -> list[tuple[str, str, str]]:
    """Return the columns in which any node has something, of the texts of nodes by column."""
    return [column for column in COLUMNS if any(texts[column[0]] for texts in nodes)]


def pending(plan: Plan) -> int:
    """Return how many nodes a run would do something with."""
    from lancestat.runs.actions import is_pending

    return sum(map(is_pending, plan.actions))


def deferred(plan: Plan) -> int:
    """Return how many nodes the budget leaves for later runs."""
    return sum(action.verb == "defer" for action in plan.actions)


def is_blocked(plan: Plan) -> bool:
    return any(action.error for action in plan.actions)


def planned_results(plan: Plan) -> list[NodeResult]:
    from lancestat.runs.result import planned

    return [planned(action) for action in plan.actions]


def verb_counts(plan: Plan) -> list[tuple[str, int]]:
    verbs = Counter[str](action.verb for action in plan.actions)
    return [(verb, verbs[verb]) for verb in SYMBOLS if verbs[verb]]


def stage_lines(action: Action) -> list[str]:
    """A line for each stage of an action, the choice of a strategy before them."""
    lines = [f"{stage.name}: {stage.words}" for stage in action.stages if stage.words]
    if action.choice is not None:
        lines.insert(0, f"strategy: {action.choice.replace(': ', ', ', 1)}")
    return lines


def plan_total(plan: Plan) -> str:
    """Return what a run would read and compare in all, and how long that takes."""
    from lancestat.runs.actions import is_pending, own_figures, table_figures

    figures = [table for table in map(table_figures, plan.actions) if table is not None]
    scanned, sentences = sum(table.fragments_scanned for table in figures), []
    joins = [own for own in map(own_figures, filter(is_pending, plan.actions)) if own is not None]
    if scanned:
        part = f"{count(scanned)} of {count(sum(f.fragments_total for f in figures), 'fragment')}"
        rows = count(sum(table.rows_scanned for table in figures), "row")
        sentences.append(f"Reads {part}: {rows}, {size(sum(f.bytes_scanned for f in figures))}.")
    if joins:
        compared = [join.pairs for join in joins]
        # The pairs of a dependent join are not known yet.
        pairs = (
            "" if None in compared else f", {large(sum(number or 0 for number in compared))} pairs"
        )
        pending = (action.kind for action in plan.actions if is_pending(action))
        sentences.append(f"Runs {_counted(pending, without=('table',))}{pairs}.")
    return " ".join((*(sentences or ["Reads no data."]), *_times(plan)))


def estimated_seconds(plan: Plan) -> float | None:
    """Return the estimated time of a plan that only runs joins, None where it is not known."""
    from lancestat.runs.actions import table_figures

    tables = [figures for figures in map(table_figures, plan.actions) if figures is not None]
    reads_tables = any(figures.fragments_scanned for figures in tables)
    joins, start = plan.join_seconds, plan.spark_start_seconds
    return None if joins is None or start is None or reads_tables else joins + start


def _times(plan: Plan) -> Iterator[str]:
    """Yield a sentence about the time that joins and the start of Spark take, where it is known."""
    start, joins = plan.spark_start_seconds, plan.join_seconds
    if start is None or not (start or joins):
        return
    of_it = f", {start:.0f} s of it Spark's start" if start else ""
    if joins:
        subject = "Takes" if estimated_seconds(plan) is not None else "The joins take"
        yield f"{subject} about {duration(joins + start)}{of_it}."
    elif start:
        yield f"Spark takes about {start:.0f} s to start."


def plan_verdict(plan: Plan) -> str:
    """Return what a run would read and compare in all, or that there is nothing to do."""
    if pending(plan):
        return plan_total(plan)
    if tidied := tidied_words(plan):
        return f"Reads no data. {tidied}"
    if later := deferred(plan):
        return f"Nothing to do now: the budget defers {count(later, 'node')}."
    if is_blocked(plan):
        return "Nothing else to do."
    from lancestat.runs.actions import own_figures

    what = "everything is" if any(map(own_figures, plan.actions)) else "all statistics are"
    return f"Nothing to do: {what} up to date."


def tidied_words(plan: Plan) -> str:
    """Return a sentence on tables of which a run only tidies up the state, empty without any."""
    from lancestat.runs.actions import has_work, is_pending

    tidied = sum(has_work(action) and not is_pending(action) for action in plan.actions)
    return f"Tidies up the state of {count(tidied, 'unchanged table')}." if tidied else ""


def gone_words(sources: SourceFindings | None) -> str:
    """Return a sentence on the tables that are gone, empty where there are none or none known."""
    from lancestat.runs import actions

    return actions.gone_words(sources)


def source_lines(sources: SourceFindings | None) -> Iterator[str]:
    if sources is None:
        return
    answered = " that could be looked up" if sources.gone is None else ""
    if sources.found or not answered:
        yield f"The sources{answered} have {count(sources.found, 'table')}."
    if sources.new:
        yield f"New since the last run: {named(sources.new)}."
    if sources.gone is None:
        yield "Whether tables are gone is not known, since a source could not be looked up."
    elif gone := gone_words(sources):
        yield gone
    yield from sources.notes


def closing_words(results: Sequence[NodeResult]) -> Iterator[str]:
    """Yield sentences on tables of which something is left to do that no run does by itself.

    They are those with `publish: none` that hold statistics published earlier, and those left as
    they are of which the state lacks what only it has.
    """
    if tables := [result.name for result in results if result.still_published]:
        yield (
            f"Statistics published earlier are still in {named(tables)}; "
            f"'lancestat unpublish {_arguments(tables)}' removes them."
        )
    if tables := [result.name for result in results if result.is_lacking]:
        yield (
            f"The state lacks what only it has of {named(tables)}: bounds of strings and binary, "
            "and what rules out fragments and answers aggregates; "
            f"'lancestat run --full-refresh -s \"{_arguments(tables)}\"' brings it back."
        )


def _arguments(tables: Sequence[str]) -> str:
    return " ".join(tables) if len(tables) <= MOST_NAMED else "NAME..."


def read_or_compared(node: NodeResult) -> str:
    """Return what was read of a table, or what a join compared."""
    return node.figures.done if node.figures else node.read or "nothing read"


def node_published(node: NodeResult) -> str:
    """Return the version that was read and the one that the run has made."""
    read, published = node.version_read, node.version_published
    if read is None:
        return "written" if published is None else f"version {published}"
    return f"version {read}" if published is None else f"version {read} -> {published}"


def run_totals(result: RunResult) -> Iterator[str]:
    """Yield how many nodes were brought up to date, and what was read in all."""
    statuses = Counter(node.status.value for node in result.nodes)
    done = [node for node in result.nodes if node.status == "success"]
    changed = [node for node in done if node.action != "skip"]
    left = len(done) - len(changed)
    text = paint(f"{_kinds(changed)} brought up to date, {left} unchanged", "success")
    for status, word, tone in (
        ("interrupted", "stopped", "error"),
        ("skipped", "not run", "note"),
        ("deferred", "deferred", "note"),
        ("error", "failed", "error"),
    ):
        if statuses[status]:
            text += paint(f", {statuses[status]} {word}", tone)
    yield f"{text}."
    stopped = [node for node in result.nodes if node.status in ("interrupted", "deferred")]
    yield paint(_all_read(done, stopped), "title")
    for finding in result.findings[:MOST_NAMED]:
        line = visible(f"{finding.node}: check {finding.check}: {finding.detail}")
        yield paint(f"{finding.severity}: {line}", _FINDINGS[finding.severity])
    if more := result.findings[MOST_NAMED:]:
        yield f"and {count(len(more), 'finding')} more, which lancestat status lists"


_FINDINGS = {"warn": "refresh", "error": "error"}


# What nodes are called where they are counted; others are tables.
_NOUNS = {"knn_join": "join", "duplicates": "duplicates node"}


def _kinds(nodes: Sequence[NodeResult]) -> str:
    return _counted(node.kind for node in nodes) or count(0, "table")


def _counted(kinds: Iterable[str], without: Sequence[str] = ()) -> str:
    """Return how many nodes there are of each kind: `2 tables and 1 join`."""
    numbers = Counter(_NOUNS.get(kind, "table") for kind in kinds)
    order = ("table", *_NOUNS.values())
    parts = [count(numbers[noun], noun) for noun in order if numbers[noun] and noun not in without]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _all_read(done: Sequence[NodeResult], stopped: Sequence[NodeResult]) -> str:
    parts = []
    if fragments := sum(node.fragments_scanned or 0 for node in done):
        rows = count(sum(node.rows_scanned or 0 for node in done), "row")
        parts.append(f"Read {count(fragments, 'fragment')}, {rows}.")
    if pairs := pairs_of(done):
        parts.append(f"Compared {large(pairs)} pairs.")
    if stored := sum(node.fragments_scanned or 0 for node in stopped):
        parts.append(f"Kept {count(stored, 'fragment')} of stopped tables, not to be read again.")
    # What a stopped node has read without keeping it is not known.
    return " ".join(parts) or ("Nothing was finished." if stopped else "No data was read.")


def pairs_of(nodes: Iterable[NodeResult]) -> int:
    """Return how many pairs joins compared in all."""
    return sum(node.figures.pairs or 0 for node in nodes if node.figures is not None)


def side_name(label: str) -> str:
    """Return a side of a diff as people call it."""
    return "the work tree" if label == "." else label


def change_counts(diff: Diff) -> dict[str, int]:
    """Count the nodes by their change."""
    changes = Counter(node.change.value for node in diff.nodes)
    return {change: changes[change] for change in ("added", "removed", "changed")}


def diff_summary(diff: Diff) -> str:
    counts = change_counts(diff)
    parts = [f"{count(number)} {word}" for word, number in counts.items() if number]
    parts = parts or ["no node changes"]
    parts += [f"{count(diff.unchanged)} unchanged"] if diff.unchanged else []
    return ", ".join(parts)


def diff_cost(diff: Diff) -> str | None:
    """Return what the first run reads for the changes, None where that is nothing."""
    known = sum(node.cost_bytes or 0 for node in diff.nodes)
    if diff.cost_bytes is None:
        more = f"about {size(known)} and an unknown amount" if known else "an unknown amount"
        return f"For these changes the first run reads {more} more."
    return f"For these changes the first run reads about {size(known)}." if known else None


def kind_name(word: str) -> str:
    """Return a kind of nodes as people call it."""
    return {"knn_join": "KNN join", "duplicates": "near-duplicates"}.get(word, word)


def declared_in(node: NodeDiff) -> str:
    return f"{node.location.file}:{node.location.line}"


def shown_properties(node: NodeDiff) -> Sequence[PropertyChange]:
    """Return the changed properties, of which those of a removed node are not shown."""
    return () if node.change.value == "removed" else node.properties


def property_texts(change: PropertyChange) -> tuple[str | None, str | None]:
    """Return a property before and after as people see it, None where it was not there."""
    old, new = (None if side is None else side.text for side in (change.old, change.new))
    if change.looks_alike and change.new is not None:
        new = f"{new} with {'another value' if change.new.is_hidden else 'other spaces'}"
    return old, new


def property_lines(change: PropertyChange) -> list[str]:
    """Return the lines of both sides, with `- ` before those that went, `+ ` before new ones."""
    before, after = ([] if text is None else text.split("\n") for text in property_texts(change))
    lines: list[str] = []
    matcher = SequenceMatcher(a=before, b=after, autojunk=len(before) > _MANY_LINES)
    for word, start, end, new_start, new_end in matcher.get_opcodes():
        if word == "equal":
            lines += (f"  {line}" for line in before[start:end])
        else:
            lines += (f"- {line}" for line in before[start:end])
            lines += (f"+ {line}" for line in after[new_start:new_end])
    return lines
