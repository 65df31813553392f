"""Observes datasets and the state for planning: the one builder of every plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime

from lancestat.errors import DatasetMissing, LakeError
from lancestat.lake.open import REPLACED, observe_snapshots
from lancestat.lake.snapshot import Snapshot
from lancestat.redact import Audience
from lancestat.runs.actions import (
    Action,
    Blocked,
    Dependent,
    Plan,
    Reason,
    Verb,
    is_pending,
    needs_spark,
)
from lancestat.runs.budget import within_budget
from lancestat.runs.discover import located, shared_outputs, source_findings
from lancestat.runs.node import NodePlanner, NodeTypes, Observed, read_uris
from lancestat.spec.budget import NO_BUDGET, Budget
from lancestat.spec.model import Node, ProjectSpec, Source, results_of, tables_of
from lancestat.state.store import StateReader
from lancestat.state.values import canonical_uri

# How often a node is observed at most whose datasets are replaced while it is planned.
_MOST_OBSERVATIONS = 3


@dataclass(frozen=True, slots=True)
class Observer:
    """Observes datasets and state for the planners of nodes, which are given values only.

    `types` are the kinds of nodes. `spark_start_seconds` is how long Spark takes to start where a
    plan needs it, 0 where it runs, None where that is not known. Plans keep to `budget`; `uses`
    returns by node how many queries are known to have used it.
    """

    spec: ProjectSpec
    state: StateReader
    clock: Callable[[], datetime]
    types: NodeTypes
    threads: int = 8
    spark_start_seconds: float | None = 0.0
    budget: Budget = NO_BUDGET
    uses: Callable[[], Mapping[str, int]] = dict

    def within(self, max_bytes: int | None, max_minutes: float | None) -> Observer:
        """Return an observer whose plans keep to the target's budget, with these bounds if any."""
        return replace(self, budget=self.spec.target.budget.bounded(max_bytes, max_minutes))

    def plan(self, nodes: Sequence[Node], *, full_refresh: bool = False) -> Plan:
        """Plan nodes in their order; one that cannot be observed is blocked, alone.

        A node that reads what another of the plan is about to write depends on that one.
        """
        plan, _ = self.observe(nodes, full_refresh=full_refresh)
        return plan

    def observe(
        self,
        nodes: Sequence[Node],
        *,
        full_refresh: bool = False,
        kinds: Collection[str] | None = None,
    ) -> tuple[Plan, Observed]:
        """Plan nodes as `plan` does, and return the plan with what was observed for it.

        With `kinds`, nodes of other kinds are observed, and have no action in the plan.
        """
        observed = self.look(nodes, full_refresh=full_refresh)
        planned = (node for node in observed.nodes if kinds is None or node.kind.value in kinds)
        spec, actions = observed.spec, self._actions(replace(observed, nodes=tuple(planned)))
        tables = observed.records.get(Source.lists.value, {})
        plan = Plan(
            spec.name,
            spec.target.name,
            actions,
            full_refresh,
            source_findings(spec, observed.nodes, tables, self.state),
            spec.redactor,
        )
        plan = within_budget(
            plan, self.budget, observed.nodes, self.uses, self.spark_start_seconds or 0.0
        )
        starts_spark = any(map(needs_spark, plan.actions))
        return replace(
            plan, spark_start_seconds=self.spark_start_seconds if starts_spark else 0.0
        ), observed

    def plan_again(
        self, name: str, *, full_refresh: bool = False, uses_stored: bool = True
    ) -> Action:
        """Plan one node as it is now; without `uses_stored` as if the state had no partials."""
        nodes = [node for node in self.spec.nodes if node.name == name]
        observed = self.look(nodes, full_refresh=full_refresh, uses_stored=uses_stored)
        [action] = self._actions(observed)
        return action

    def look(
        self, nodes: Sequence[Node], *, full_refresh: bool = False, uses_stored: bool = True
    ) -> Observed:
        """Observe what nodes are planned by."""
        spec, nodes = located(self.spec, nodes)
        uris = {uri: uri for node in nodes for uri in self._opened_uris(spec, node)}
        kinds = {node.kind for node in nodes} | ({Source.lists} if spec.sources else set())
        return Observed(
            spec,
            nodes,
            self.state,
            self.clock,
            self._snapshots(spec, uris),
            {
                kind.value: self.state.records(kind.value, self.types[kind.value].decode_record)
                for kind in kinds
            },
            full_refresh,
            uses_stored,
        )

    def _snapshots(
        self, spec: ProjectSpec, uris: Mapping[str, str]
    ) -> Mapping[str, Snapshot | LakeError]:
        """Open datasets; the error of a result that is not there yet says whose it is."""
        snapshots = observe_snapshots(uris.items(), spec.options, self.threads)
        for uri, snapshot in snapshots.items():
            if isinstance(snapshot, DatasetMissing):
                snapshots[uri] = of_missing_result(spec, uri) or snapshot
        return snapshots

    def _opened_uris(self, spec: ProjectSpec, node: Node) -> tuple[str, ...]:
        """Return the datasets that a node reads, and those that its declarations are checked by."""
        named = (spec.node(ref) for _, ref in node.named_refs())
        tables = tables_of(other for other in named if other is not None)
        read = self.types[node.kind.value].lance_uris(spec, node)
        return *read, *(table.uri for table in tables)

    def _actions(self, observed: Observed) -> tuple[Action, ...]:
        spec, nodes = observed.spec, observed.nodes
        dependencies = result_dependencies(spec, nodes)
        shared = shared_outputs(spec, nodes)
        planners = {kind: type.planner(observed) for kind, type in self.types.items()}
        planned: dict[str, Action] = {}

        def plan_node(node: Node) -> Action:
            kind = node.kind.value
            if node.name in shared:
                figures = self.types[kind].figures_of({})
                return Blocked(node.name, kind, shared[node.name], figures)
            pending = tuple(
                name
                for name in dependencies[node.name]
                # Which of two joins wrote a result that they share is not known.
                if name in planned and (name in shared or is_pending(planned[name]))
            )
            if pending:
                return self._dependent(node, pending, observed)
            return self._planned(node, planners[kind], observed)

        with ThreadPoolExecutor(max_workers=self.threads) as pool:
            for level in _levels(nodes, dependencies):
                actions = list(pool.map(plan_node, level))
                planned.update((action.node, action) for action in actions)
        in_order: Mapping[str, Action] = {node.name: planned[node.name] for node in nodes}
        for planner in planners.values():
            in_order = planner.noted(in_order)
        return tuple(map(self._without_secrets, in_order.values()))

    def _planned(self, node: Node, planner: NodePlanner[Node], observed: Observed) -> Action:
        type = self.types[node.kind.value]
        for _ in range(_MOST_OBSERVATIONS - 1):
            action = planner.plan(node)
            if not isinstance(action.error, REPLACED):
                return action
            uris = {uri: uri for uri in self._opened_uris(observed.spec, node)}
            snapshots = self._snapshots(observed.spec, uris)
            planner = type.planner(replace(observed, snapshots=snapshots))
        return planner.plan(node)

    def _dependent(
        self, node: Node, dependencies: tuple[str, ...], observed: Observed
    ) -> Dependent:
        kind = node.kind.value
        type = self.types[kind]
        is_known = type.record_key(node) in observed.records[kind]
        verb: Verb = "refresh" if is_known else "analyze"
        reason = Reason.INPUT_CHANGED if is_known else Reason.NEW
        return Dependent(
            node.name,
            kind,
            verb,
            (reason,),
            dependencies,
            observed.full_refresh,
            type.figures_of({}),
        )

    def _without_secrets(self, action: Action) -> Action:
        if not isinstance(action, Blocked):
            return action
        return replace(action, error=self.spec.redactor.error(action.error, Audience.PERSON))


def result_dependencies(spec: ProjectSpec, nodes: Iterable[Node]) -> Mapping[str, tuple[str, ...]]:
    """Return by node those of `nodes` whose results it reads, however URIs are written."""
    nodes = tuple(nodes)
    writers = _writers(nodes)
    if not writers:
        return {node.name: () for node in nodes}
    read: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        uris = map(canonical_uri, read_uris(spec, node))
        named = dict.fromkeys(writers[uri] for uri in uris if uri in writers)
        read[node.name] = tuple(name for name in named if name != node.name)
    return read


def of_missing_result(spec: ProjectSpec, uri: str) -> LakeError | None:
    """Return the error of a dataset that is not there, None where no node is to make it."""
    name = _writers(spec.nodes).get(canonical_uri(uri))
    if name is None:
        return None
    return DatasetMissing(f"the result of '{name}' is not there", hint=f"run '{name}'")


def _writers(nodes: Iterable[Node]) -> Mapping[str, str]:
    """Return the names of the nodes that write results, by where these are."""
    return {canonical_uri(uri): node.name for node in nodes for uri in results_of(node)}


def _levels(
    nodes: Sequence[Node], dependencies: Mapping[str, tuple[str, ...]]
) -> Iterator[Sequence[Node]]:
    """Yield nodes in groups, each after the groups that it reads the results of."""
    waiting, done = list(nodes), set[str]()
    while waiting:
        # Nodes that depend on each other in a cycle would never be ready.
        ready = [node for node in waiting if done.issuperset(dependencies[node.name])] or waiting
        yield ready
        done.update(node.name for node in ready)
        waiting = [node for node in waiting if node.name not in done]
