"""Selects the nodes that `--select` and `--exclude` mean.

A selector is `name`, `glob*`, `tag:x`, `path:specs/x.yml`, `kind:table`, `state:modified` or
`source:lake`; a `+` before it adds all that it reads, a `+` after it all that reads it, however
far. Space means union, comma intersection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from lancestat.errors import InvalidSelector, NothingSelected, did_you_mean
from lancestat.spec.graph import dependencies
from lancestat.spec.model import Node, NodeKind, ProjectSpec, Table
from lancestat.spec.names import composed
from lancestat.spec.quoting import quoted

STATES = ("new", "modified")

_METHODS = ("tag", "path", "kind", "state", "source")

# Gives 'new', 'modified' or 'same' for every node; called only when a selector asks for it.
States = Callable[[], Mapping[str, str]]
Selector = str | Sequence[str] | None


def select(
    spec: ProjectSpec,
    select: Selector = None,
    exclude: Selector = None,
    *,
    states: States | None = None,
) -> tuple[Node, ...]:
    """The selected nodes, in the order of the project; all of them when nothing is selected.

    A name, pattern, tag or path that fits no node is an error, since a typo would otherwise select
    nothing in silence; in `exclude` only a plain name is. That a kind or a state has no nodes is
    not an error.

    Raises:
        UsageError: for such a selector, or one that cannot be understood.
    """
    graph = _Graph(spec, states)
    chosen = set(graph.names) if _is_unset(select) else graph.union(select, strict=True)
    if not _is_unset(exclude):
        chosen -= graph.union(exclude, strict=False)
    return tuple(node for node in spec.nodes if node.name in chosen)


def _is_unset(selector: Selector) -> bool:
    return selector is None or (not isinstance(selector, str) and len(selector) == 0)


@dataclass(slots=True)
class _Graph:
    spec: ProjectSpec
    states: States | None

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.spec.nodes]

    def union(self, selector: Selector, *, strict: bool) -> set[str]:
        texts = [selector] if isinstance(selector, str) else list(selector or ())
        chosen: set[str] = set()
        for text in texts:
            words = text.split()
            if not words:
                raise InvalidSelector("an empty selector")
            for word in words:
                parts = [self._term(part, word, strict) for part in word.split(",")]
                chosen |= set.intersection(*parts)
        return chosen

    def _term(self, text: str, word: str, strict: bool) -> set[str]:
        core = text.removeprefix("+").removesuffix("+")
        if not core:
            raise InvalidSelector(f"selector {quoted(word)} has an empty part")
        chosen = self._matched(core, strict)
        upstream = self._reach(chosen, dependencies(self.spec)) if text[0] == "+" else set()
        downstream = self._reach(chosen, self._readers()) if text[-1] == "+" else set()
        return chosen | upstream | downstream

    def _matched(self, core: str, strict: bool) -> set[str]:
        method, colon, argument = core.partition(":")
        if not colon:
            return self._by_name(core, strict)
        match method:
            case "kind":
                _check_word(core, argument, [kind.value for kind in NodeKind])
                return self._where(lambda node: node.kind.value == argument)
            case "state":
                _check_word(core, argument, STATES)
                return self._by_state(argument)
            case "tag":
                names = self._where(lambda node: composed(argument) in node.tags)
                return self._non_empty(core, names, strict, self._all_tags(), "tag:")
            case "path":
                names = self._where(lambda node: _below(node.location.file, argument))
                return self._non_empty(core, names, strict, self._all_files(), "path:")
            case "source":
                names = self._where(lambda node: _is_of_source(node, argument))
                labels = [source.label for source in self.spec.sources]
                is_known = any(fnmatchcase(label, argument) for label in labels)
                # A source may have no tables, and before it was looked up it has none.
                return self._non_empty(core, names, strict and not is_known, labels, "source:")
        hint = did_you_mean(method, _METHODS)
        valid = ", ".join(f"{known}:" for known in _METHODS)
        raise InvalidSelector(
            f"unknown selector {quoted(core)}; methods are {valid}",
            hint=hint,
        )

    def _by_name(self, name: str, strict: bool) -> set[str]:
        name = composed(name)
        is_pattern = any(char in name for char in "*?[")
        if is_pattern:
            names = self._where(lambda node: fnmatchcase(node.name, name))
            return self._non_empty(name, names, strict, self.names, "")
        return self._non_empty(name, {name}.intersection(self.names), True, self.names, "")

    def _by_state(self, word: str) -> set[str]:
        if self.states is None:
            raise InvalidSelector(f"selector 'state:{word}' cannot be used here")
        states = self.states()
        return self._where(lambda node: states.get(node.name, "new") == word)

    def _where(self, accepts: Callable[[Node], bool]) -> set[str]:
        return {node.name for node in self.spec.nodes if accepts(node)}

    def _non_empty(
        self, core: str, names: set[str], strict: bool, known: Iterable[str], method: str
    ) -> set[str]:
        if names or not strict:
            return names
        spelled = [f"{method}{word}" for word in known]
        valid = ", ".join(spelled[:20]) + (", ..." if len(spelled) > 20 else "")
        raise NothingSelected(
            f"selector {quoted(core)} matches nothing",
            hint=did_you_mean(core, spelled) or f"known: {valid or 'none'}",
        )

    def _all_tags(self) -> list[str]:
        return sorted({tag for node in self.spec.nodes for tag in node.tags})

    def _all_files(self) -> list[str]:
        return sorted({node.location.file for node in self.spec.nodes})

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


def _is_of_source(node: Node, argument: str) -> bool:
    return isinstance(node, Table) and fnmatchcase(node.source or "", argument)


def _check_word(core: str, word: str, valid: Sequence[str]) -> None:
    if word not in valid:
        raise InvalidSelector(
            f"selector {quoted(core)} must name one of {', '.join(valid)}",
            hint=did_you_mean(word, valid),
        )


def _below(file: str, argument: str) -> bool:
    path = PurePosixPath(argument).as_posix()
    return file == path or file.startswith(f"{path}/") or path == "." or fnmatchcase(file, path)
