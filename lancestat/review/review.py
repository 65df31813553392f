"""From two words to a diff: the one way that the command line and the library take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from lancestat.errors import UsageError
from lancestat.review.diff import Comparison
from lancestat.review.source import Side, Sides, find_sides
from lancestat.review.trust import is_state_trusted
from lancestat.review.values import Diff
from lancestat.spec import codes
from lancestat.spec.digest import node_digest
from lancestat.spec.model import Node, ProjectSpec
from lancestat.spec.selection import select as select_nodes
from lancestat.state.values import StateReader

Selector = str | Sequence[str] | None

FOREIGN_STATE = "LS669"


def review(
    project_dir: Path,
    base: str,
    head: str | None = None,
    *,
    target: str | None = None,
    vars: Mapping[str, object] | None = None,
    select: Selector = None,
    exclude: Selector = None,
    with_datasets: bool = True,
    clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    loaded: Callable[[ProjectSpec], object] = lambda spec: None,
) -> Diff:
    """Compare what two sides of a project declare.

    Args:
        project_dir: The project's folder; relative URIs of both sides lead from there.
        base: What to compare with (`source.find_sides`); at a revision from before the project
            there are no nodes.
        head: What is compared, the work tree when None.
        target: One of the project's targets on both sides, its default when None.
        vars: Overrides of the project's `vars` on both sides.
        select: Which nodes, of either side.
        exclude: Which to leave out.
        with_datasets: Whether the datasets and the state of `base` are opened, to tell columns and
            bytes. What only `head` names is never opened (`trust`).
        clock: Tells the time.
        loaded: Told of each side once it is loaded.

    Raises:
        InvalidProject: A side has errors, each at its place there.
        UsageError: LS660 to LS665 and LS668 about the sides, or a selector that is wrong; LS669 a
            selector asks for a state that is not that of `base`.
    """
    sides = find_sides(project_dir, base, head)
    old, new = _load(sides, target, vars or {}, loaded)
    comparison = Comparison(
        old, new, (sides.base.label, sides.head.label), (sides.base.commit, sides.head.commit)
    )
    state = _state_of(None if sides.base.is_before_project else old, new)
    names = _names((old, new), select, exclude, state)
    found = comparison.diff(names, state if with_datasets else None, clock())
    if sides.base.is_before_project:
        place = comparison.mask.line(sides.base.place)
        note = f"there is no project {place}: every node is new"
        return replace(found, notes=(note, *found.notes))
    return found


def _load(
    sides: Sides,
    target: str | None,
    vars: Mapping[str, object],
    loaded: Callable[[ProjectSpec], object],
) -> tuple[ProjectSpec, ProjectSpec]:
    def load(side: Side) -> ProjectSpec:
        spec = side.load(sides.root, target=target, vars=vars)
        loaded(spec)
        return spec

    if sides.base.is_before_project:
        new = load(sides.head)
        return replace(new, nodes=(), origins={}), new
    return load(sides.base), load(sides.head)


def _state_of(old: ProjectSpec | None, new: ProjectSpec) -> Callable[[], StateReader]:
    def opened() -> StateReader:
        from lancestat.state.store import open_state

        if old is None or not is_state_trusted(old, new):
            message = "the place of the state or its storage options are not those of BASE"
            raise UsageError(FOREIGN_STATE, message)
        return open_state(new.target.state, new.target.storage_options)

    return opened


def _names(
    specs: tuple[ProjectSpec, ProjectSpec],
    select: Selector,
    exclude: Selector,
    state: Callable[[], StateReader],
) -> frozenset[str]:
    """The names that selectors mean on either side; one that fits no node of both is an error."""
    chosen: set[str] = set()
    refused: list[UsageError] = []
    for spec in specs:
        try:
            chosen |= {node.name for node in _selected(spec, select, exclude, state)}
        except UsageError as error:
            if error.code != codes.NOTHING_SELECTED:
                raise
            refused.append(error)
    if len(refused) == len(specs):
        raise refused[-1]
    return frozenset(chosen)


def _selected(
    spec: ProjectSpec, select: Selector, exclude: Selector, state: Callable[[], StateReader]
) -> tuple[Node, ...]:
    def states() -> Mapping[str, str]:
        known = state().digests()
        digests = {node.name: node_digest(node) for node in spec.nodes}
        return {
            name: "new" if name not in known else "same" if known[name] == digest else "modified"
            for name, digest in digests.items()
        }

    return select_nodes(spec, select, exclude, states=states)
