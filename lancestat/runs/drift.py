"""Describes what has changed since a plan was saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from lancestat.formats import count, visible
from lancestat.runs.saved import ObservedDataset, SavedLocation, SavedNode, SavedPlan

# The keys of a node's JSON for its action, and those that are compared elsewhere or not at all.
_ACTION = ("action", "reasons")
_NOT_COMPARED = frozenset(
    {*_ACTION, "name", "message", "code", "hint", "location", "runs_on", "notes"}
)


def drift(then: SavedPlan, now: SavedPlan) -> list[str]:
    """Return a line for each difference: none when the plans are the same.

    Args:
        then: The saved plan; of the same project and target.
        now: A plan of this moment, made under the same options.
    """
    lines = list(_settings(then, now))
    after = {node.name: node for node in now.nodes}
    before = {node.name for node in then.nodes}
    for node in then.nodes:
        current = after.get(node.name)
        what = (
            ["it is no longer among the planned nodes"] if current is None else _node(node, current)
        )
        if what:
            lines.append(f"{node.name}: {'; '.join(what)}")
    lines += [
        f"{node.name}: it was not among the planned nodes"
        for node in now.nodes
        if node.name not in before
    ]
    if not lines and [node.name for node in then.nodes] != [node.name for node in now.nodes]:
        lines.append("the nodes are in another order")
    # Part of it was read from a file that anyone may have written.
    return [visible(line) for line in lines]


def _settings(then: SavedPlan, now: SavedPlan) -> Iterator[str]:
    for name, was, current in (
        ("state", then.state, now.state),
        ("scratch", then.scratch, now.scratch),
    ):
        if (was and was.identity) != (current and current.identity):
            yield f"target {now.target}: its {name} is {_differ(_uri(current), _uri(was))}"


def _uri(location: SavedLocation | None) -> str:
    return "unset" if location is None else location.uri


def _differ(now: str, then: str) -> str:
    """Two places in words: what the environment gave looks alike."""
    return f"{now}, was {then}" if now != then else f"elsewhere: {now} has another value"


def _node(then: SavedNode, now: SavedNode) -> list[str]:
    differences = []
    if then.meaning != now.meaning:
        differences.append("its declaration has changed")
    differences += _inputs(then, now)
    if then.record != now.record and not _is_elsewhere(then, now):
        differences.append(_record(then.record, now.record))
    if then.output != now.output:
        differences.append("its result has changed")
    differences += _action(then.plan, now.plan)
    if not differences and then.work != now.work:
        differences.append("what it reads, or what the state has stored of it, has changed")
    return differences


def _inputs(then: SavedNode, now: SavedNode) -> Iterator[str]:
    before = {seen.identity: seen for seen in then.inputs}
    after = {seen.identity: seen for seen in now.inputs}
    is_one = len(before) == len(after) == 1
    if is_one and before.keys() != after.keys():
        yield f"its dataset is {_differ(now.inputs[0].uri, then.inputs[0].uri)}"
        return
    for identity in {**before, **after}:
        was, current = before.get(identity), after.get(identity)
        if current is None and was is not None:
            yield f"it no longer reads {was.uri}"
        elif was is None and current is not None:
            yield f"it reads {current.uri}"
        elif was is not None and current is not None and was != replace(current, uri=was.uri):
            yield f"{'its dataset' if is_one else current.uri} {_dataset(was, current)}"


def _is_elsewhere(then: SavedNode, now: SavedNode) -> bool:
    """Whether the table is another dataset, to which the record of the first does not apply."""
    moved = {seen.identity for seen in then.inputs} != {seen.identity for seen in now.inputs}
    return moved and now.plan.get("kind") == "table"


def _dataset(then: ObservedDataset, now: ObservedDataset) -> str:
    if then.error is None and now.error is not None:
        return f"cannot be opened any more ({now.error})"
    if then.error is not None and now.error is None:
        return "can be opened now"
    if then.error != now.error:
        return f"fails with {now.error}, was {then.error}"
    if then.version != now.version:
        return f"is at version {now.version}, was {then.version}"
    return f"was written anew, and is at version {now.version} again"


def _record(then: str | None, now: str | None) -> str:
    if now is None:
        return "the state has forgotten its last run"
    return "a run has recorded it since" if then is None else "another run has recorded it since"


def _action(then: Mapping[str, object], now: Mapping[str, object]) -> Iterator[str]:
    if any(then.get(key) != now.get(key) for key in _ACTION):
        yield f"now {_verb(now)}, was {_verb(then)}"
        return
    for key in {**then, **now}:
        if key not in _NOT_COMPARED and then.get(key) != now.get(key):
            words = key.replace("_", " ")
            yield f"{words} now {_figure(now.get(key))}, was {_figure(then.get(key))}"


def _verb(plan: Mapping[str, object]) -> str:
    reasons = plan.get("reasons")
    named = ", ".join(map(str, reasons)) if isinstance(reasons, list) else ""
    return f"{plan.get('action')} ({named})" if named else str(plan.get("action"))


def _figure(value: object) -> str:
    if value is None:
        return "unknown"
    return count(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)
