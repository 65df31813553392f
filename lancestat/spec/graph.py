"""Dependencies between nodes, and the errors that only show between nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from operator import eq
from pathlib import PurePosixPath

from lancestat.arguments import check_selectors
from lancestat.errors import (
    CyclicReferences,
    InvalidSelector,
    LancestatError,
    NothingSelected,
    OverlappingOutputs,
    SpecError,
    UnknownReference,
    did_you_mean,
)
from lancestat.formats import quoted
from lancestat.spec.model import (
    Node,
    NodeKind,
    ProjectSpec,
    Table,
    node_digest,
    results_of,
    tables_of,
)
from lancestat.spec.names import composed


def dependencies(spec: ProjectSpec) -> Mapping[str, tuple[str, ...]]:
    return node_dependencies(spec.nodes)


def node_dependencies(nodes: Iterable[Node]) -> dict[str, tuple[str, ...]]:
    """As `dependencies`.

    A join reads what its sides refer to. A table whose dataset is the output of another node reads
    that node, which must have run before the table can be analyzed.
    """
    nodes = tuple(nodes)
    writers = {uri: node.name for node in nodes for uri in results_of(node)}
    return {
        node.name: tuple(
            dict.fromkeys(
                (*node.refs, *(writers[uri] for uri in node.input_uris if uri in writers))
            )
        )
        for node in nodes
    }


def cycle_errors(nodes: Iterable[Node]) -> list[LancestatError]:
    """One error per cycle, at its first node: each names the whole path."""
    nodes = tuple(nodes)
    locations = {node.name: node.location for node in nodes}
    errors: list[LancestatError] = []
    for cycle in _cycles(node_dependencies(nodes)):
        path = " -> ".join((*cycle, cycle[0]))
        errors.append(
            CyclicReferences(f"nodes read each other: {path}", location=locations[cycle[0]])
        )
    return errors


def _cycles(reads: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """A cycle for every edge that leads back; iterative, because chains may be long."""
    done: set[str] = set()
    for start in reads:
        trail: dict[str, None] = {}
        pending = [(start, False)]
        while pending:
            name, leaving = pending.pop()
            if leaving:
                trail.popitem()
                done.add(name)
            elif name in trail:
                path = list(trail)
                yield tuple(path[path.index(name) :])
            elif name in reads and name not in done:
                trail[name] = None
                pending.append((name, True))
                pending.extend((other, False) for other in reversed(reads[name]))


def reference_errors(nodes: Iterable[Node]) -> Iterator[LancestatError]:
    """Yield an error for each reference to a node that is no table."""
    by_name = {node.name: node for node in nodes}
    for table in tables_of(by_name.values()):
        for path, name in table.named_refs():
            other = by_name.get(name)
            if other is not None and other.kind is not NodeKind.TABLE:
                yield UnknownReference(
                    f"{other.declares.noun} {quoted(other.name)} is no table",
                    location=table.at(".".join(map(str, path))),
                    hint="declare the dataset as a table, and name that",
                )


def output_errors(nodes: Iterable[Node]) -> list[LancestatError]:
    """Datasets that are two nodes', and results inside what is another node's."""
    nodes = tuple(nodes)
    first: dict[str, Node] = {}
    errors = _inside_errors(nodes)
    for node in nodes:
        # A table may be a dataset that another node writes.
        kind = NodeKind.TABLE.value if node.result_uri is None else "result"
        for uri in _datasets_of(node):
            other = first.setdefault(f"{kind} {uri.rstrip('/')}", node)
            if other is not node:
                errors.append(shared_output_error(node, other))
    return errors


def _inside_errors(nodes: Iterable[Node]) -> list[LancestatError]:
    """Return errors for datasets inside a result: replacing the result would remove them."""
    places = [(uri.rstrip("/"), node) for node in nodes for uri in _datasets_of(node)]
    owners = dict(places)
    errors: list[LancestatError] = []
    for path, node in places:
        while "/" in path.strip("/"):
            path = path.rpartition("/")[0]
            owner = owners.get(path)
            if owner is not None and (node.result_uri or owner.result_uri):
                errors.append(_inside(node, owner))
    return errors


def _datasets_of(node: Node) -> tuple[str, ...]:
    return results_of(node) or (node.dataset_uri,)


def _inside(node: Node, owner: Node) -> SpecError:
    if owner is node:
        return OverlappingOutputs(
            f"'output' and 'pairs' of {node.declares.noun} '{node.name}' lie inside one another",
            location=node.location,
            hint="give each a folder of its own, side by side",
        )
    whats = ("" if one.result_uri is None else "output of " for one in (node, owner))
    inner, outer = (
        f"{what}{one.declares.noun} '{one.name}'"
        for what, one in zip(whats, (node, owner), strict=True)
    )
    return OverlappingOutputs(
        f"the {inner} lies inside the {outer}, at {owner.location}",
        location=node.location,
        hint="give each a folder of its own, side by side",
    )


def shared_output_error(node: Node, other: Node) -> SpecError:
    """Return the error of a node whose dataset is that of another of its kind.

    Statistics are recorded by dataset, so that two tables would each replace the other's.
    """
    if node.kind is NodeKind.TABLE:
        message = f"tables '{other.name}' and '{node.name}' are the same dataset"
        hint = "declare it once, with the columns of both"
    else:
        noun = node.declares.noun
        both = f"{noun}s" if other.kind is node.kind else f"{other.declares.noun}"
        own = "" if other.kind is node.kind else f"{noun} "
        message = f"{both} '{other.name}' and {own}'{node.name}' write the same output"
        hint = "give each its own output"
    return OverlappingOutputs(
        f"{message}, first at {other.location}", location=node.location, hint=hint
    )


STATES = ("new", "modified")

_METHODS = ("tag", "path", "kind", "state", "source")

# Gives 'new', 'modified' or 'same' for every node; called only when a selector asks for it.
States = Callable[[], Mapping[str, str]]
Selector = str | Sequence[str] | None


def node_states(spec: ProjectSpec, known: Mapping[str, str]) -> dict[str, str]:
    """Return by node whether it is new, the same or modified, given the digests in the state."""
    digests = ((node.name, node_digest(node)) for node in spec.nodes)
    return {
        name: "new" if name not in known else "same" if known[name] == digest else "modified"
        for name, digest in digests
    }


def select(
    spec: ProjectSpec,
    select: Selector = None,
    exclude: Selector = None,
    *,
    states: States | None = None,
) -> tuple[Node, ...]:
    """The selected nodes, in the order of the project; all of them when nothing is selected.

    Whatever names something and finds nothing is a UsageError, since a typo would otherwise select
    nothing in silence. States and sources may have no nodes, and so may what is excluded by
    patterns, tags and paths.
    """
    check_selectors(select=select, exclude=exclude)
    graph = _Graph(spec, states)
    names = _chosen([graph], select, exclude)
    return tuple(node for node in spec.nodes if node.name in names)


def select_on_either(
    sides: Iterable[tuple[ProjectSpec, States]], select: Selector, exclude: Selector
) -> frozenset[str]:
    """Return the names of the nodes that are selected on one side of a change or on both."""
    return _chosen([_Graph(spec, states) for spec, states in sides], select, exclude)


def _chosen(graphs: Sequence[_Graph], select: Selector, exclude: Selector) -> frozenset[str]:
    if _is_unset(select):
        chosen = [set(graph.names) for graph in graphs]
    else:
        chosen = _union(graphs, select, strict=True)
    if _is_unset(exclude):
        return frozenset().union(*chosen)
    excluded = _union(graphs, exclude, strict=False)
    left = frozenset().union(*(one - other for one, other in zip(chosen, excluded, strict=True)))
    if any(chosen) and not left and not _is_conditional(select, exclude):
        hint = "leave out --exclude, or exclude less"
        raise NothingSelected("everything that is selected is excluded", hint=hint)
    return left


def _is_unset(selector: Selector) -> bool:
    return selector is None or (not isinstance(selector, str) and len(selector) == 0)


def _words(selector: Selector) -> Iterator[str]:
    for text in [selector] if isinstance(selector, str) else selector or ():
        words = text.split()
        if not words:
            raise InvalidSelector("an empty selector")
        yield from words


def _core(part: str) -> str:
    return part.removeprefix("+").removesuffix("+")


def _is_conditional(*selectors: Selector) -> bool:
    """Whether what is selected depends on the state, so that nothing may be selected."""
    words = [word for selector in selectors for word in _words(selector)]
    return any(_core(part).startswith("state:") for word in words for part in word.split(","))


_HINT_ON_COMMAS = "a comma is an intersection; separate them by a space for the union"


def _union(graphs: Sequence[_Graph], selector: Selector, *, strict: bool) -> list[set[str]]:
    """Return the names that a selector means in each graph."""
    chosen: list[set[str]] = [set() for _ in graphs]
    for word in _words(selector):
        parts = [_term(graphs, part, word, strict) for part in word.split(",")]
        common = [set.intersection(*named) for named in zip(*parts, strict=True)]
        is_error = strict and all(map(any, parts)) and not _is_conditional(word)
        if is_error and not any(common):
            shown = " and ".join(quoted(part) for part in word.split(","))
            raise NothingSelected(f"no node is in all of {shown}", hint=_HINT_ON_COMMAS)
        for names, added in zip(chosen, common, strict=True):
            names |= added
    return chosen


def _term(graphs: Sequence[_Graph], part: str, word: str, strict: bool) -> list[set[str]]:
    core = _core(part)
    if not core:
        hint = _HINT_ON_COMMAS if "," in word else None
        raise InvalidSelector(f"selector {quoted(word)} has an empty part", hint=hint)
    matched = [graph.matched(core) for graph in graphs]
    is_plain_name = ":" not in core and not _is_pattern(core)
    if not any(matched) and (strict or is_plain_name):
        known = [graph.known(core) for graph in graphs]
        if None not in known:
            raise _nothing(core, list(dict.fromkeys(chain.from_iterable(filter(None, known)))))
    return [graph.reach(part, names) for graph, names in zip(graphs, matched, strict=True)]


def _nothing(core: str, known: Sequence[str]) -> NothingSelected:
    return NothingSelected(
        f"selector {quoted(core)} matches nothing",
        hint=did_you_mean(core, known, "known"),
    )


def _is_pattern(name: str) -> bool:
    return any(char in name for char in "*?[")


@dataclass(slots=True)
class _Graph:
    spec: ProjectSpec
    states: States | None

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.spec.nodes]

    def reach(self, part: str, names: set[str]) -> set[str]:
        """Add what the nodes read, and what reads them, as the signs of a part say."""
        upstream = self._reach(names, dependencies(self.spec)) if part[0] == "+" else set()
        downstream = self._reach(names, self._readers()) if part[-1] == "+" else set()
        return names | upstream | downstream

    def matched(self, core: str) -> set[str]:
        """Return the names of the nodes that fit a selector without signs."""
        method, colon, argument = core.partition(":")
        if colon and method not in _METHODS:
            hint = did_you_mean(method, _METHODS)
            valid = ", ".join(f"{known}:" for known in _METHODS)
            message = f"unknown selector {quoted(core)}; methods are {valid}"
            raise InvalidSelector(message, hint=hint)
        if method == "state":
            _check_word(core, argument, STATES)
            return self._by_state(argument)
        if method == "kind":
            _check_word(core, argument, [kind.value for kind in NodeKind])
        words_of, fits = _WORDS[method if colon else ""]
        word = composed(argument if colon else core) if method != "path" else argument
        return {node.name for node in self.spec.nodes if any(fits(w, word) for w in words_of(node))}

    def known(self, core: str) -> list[str] | None:
        """Return the selectors of its method that fit a node, None if one need not fit any."""
        method, colon, argument = core.partition(":")
        if not colon:
            return self.names
        # A source may have no tables, and before it was looked up it has none.
        labels = [source.label for source in self.spec.sources]
        is_of_sources = bool(labels) and (method, argument) == ("kind", NodeKind.TABLE.value)
        if method == "source":
            is_of_sources = any(fnmatchcase(label, argument) for label in labels)
        if method == "state" or is_of_sources:
            return None
        words = (word for node in self.spec.nodes for word in _WORDS[method][0](node))
        return [f"{method}:{w}" for w in (labels if method == "source" else sorted({*words}))]

    def _by_state(self, word: str) -> set[str]:
        if self.states is None:
            raise InvalidSelector(f"selector 'state:{word}' cannot be used here")
        states = self.states()
        return {name for name in self.names if states.get(name, "new") == word}

    def _readers(self) -> dict[str, tuple[str, ...]]:
        readers: dict[str, list[str]] = {}
        for name, read in dependencies(self.spec).items():
            for other in read:
                readers.setdefault(other, []).append(name)
        return {name: tuple(others) for name, others in readers.items()}

    @staticmethod
    def _reach(start: set[str], edges: Mapping[str, tuple[str, ...]]) -> set[str]:
        reached = set(start)
        pending = list(start)
        while pending:
            for other in edges.get(pending.pop(), ()):
                if other not in reached:
                    reached.add(other)
                    pending.append(other)
        return reached


def _check_word(core: str, word: str, valid: Sequence[str]) -> None:
    if word not in valid:
        raise InvalidSelector(
            f"selector {quoted(core)} must name one of {', '.join(valid)}",
            hint=did_you_mean(word, valid),
        )


def _below(file: str, argument: str) -> bool:
    path = PurePosixPath(argument).as_posix()
    return file == path or file.startswith(f"{path}/") or path == "." or fnmatchcase(file, path)


# By method, the words of a node, and whether one of them fits the word of a selector.
_WORDS: Mapping[str, tuple[Callable[[Node], Iterable[str]], Callable[[str, str], bool]]] = {
    "": (lambda node: (node.name,), fnmatchcase),
    "tag": (lambda node: node.tags, eq),
    "path": (lambda node: (node.location.file,), _below),
    "kind": (lambda node: (node.kind.value,), eq),
    "source": (lambda n: (n.source or "",) if isinstance(n, Table) else (), fnmatchcase),
}
