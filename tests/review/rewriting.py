"""Random projects, ways to write them that mean the same, and changes that do not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from lancestat.spec.load import load_project
from lancestat.spec.model import ProjectSpec

# A node as its YAML would be, with everything inline.
Node = dict[str, Any]

LAKE = "s3://lake"
HEADER = f"name: shop\nvars: {{lake: '{LAKE}'}}\ndefault_target: dev\ntargets: {{dev: {{}}}}\n"
_PATTERNS = ["a", "b", "id", "*_key", "x_*", "d?te", "[ab]c"]
_TYPES = ["integer", "float", "string", "date"]
_WORDS = ["orders", "One row per order.", "yes", "12", "a: b", "# no comment", "ü", "it's", '"', ""]
_NAMES = ["orders", "parts", "no", "n1", "Lines", "customer-2"]


def _patterns() -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(_PATTERNS), min_size=1, max_size=3, unique=True)


def _columns() -> st.SearchStrategy[Any]:
    rule = st.fixed_dictionaries(
        {"include": _patterns()},
        optional={
            "exclude": _patterns(),
            "types": st.lists(st.sampled_from(_TYPES), min_size=1, max_size=2, unique=True),
        },
    )
    return st.just("all") | _patterns() | rule


def _policies() -> st.SearchStrategy[Node]:
    bounds = st.fixed_dictionaries(
        {"max_versions": st.integers(0, 9)},
        optional={
            "max_age": st.sampled_from(["1h", "24h", "90m"]),
            "max_changed_rows": st.sampled_from(["5%", "20%"]),
        },
    )
    return st.fixed_dictionaries(
        {"allow.stale": st.booleans() | bounds},
        optional={"refresh": st.sampled_from(["always", "when_stale"])},
    )


def _shared() -> dict[str, st.SearchStrategy[Any]]:
    return {
        "description": st.sampled_from([word for word in _WORDS if word]),
        "owner": st.sampled_from(["a@example.com", "b@example.com"]),
        "tags": st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, max_size=3, unique=True),
    }


def _reference(column: str, table: str) -> dict[str, Any]:
    return {"columns": [column], "table": table, "to": ["y"]}


def _tables(name: str) -> st.SearchStrategy[Node]:
    return st.fixed_dictionaries(
        {"name": st.just(name), "uri": st.just(f"{LAKE}/{name}.lance")},
        optional={
            "columns": _columns(),
            "policy": _policies(),
            "publish": st.sampled_from(["manifest", "none"]),
            "histogram": st.booleans(),
            "groups": st.just([["a", "b"], ["c", "a"]]),
            "keys": st.sampled_from([[["k"]], [["k", "a"]]]),
            "references": st.just([_reference("a", name), _reference("b", name)]),
            "common_values": st.sampled_from([100, {"limit": 9, "columns": ["a", "b"]}]),
            "freshness": st.just({"warn_after": "12h", "error_after": "24h"}),
            **_shared(),
        },
    )


def _joins(name: str) -> st.SearchStrategy[Node]:
    side = st.fixed_dictionaries(
        {"lance": st.sampled_from([f"{LAKE}/l", f"{LAKE}/r"]), "vector": st.just("v")},
        optional={"select": st.lists(st.sampled_from("abc"), min_size=1, unique=True)},
    )
    query = st.just({"sql": "select a, v\nfrom t where a < 3", "vector": "v", "select": ["a"]})
    return st.fixed_dictionaries(
        {
            "name": st.just(f"{name}_join"),
            "left": side,
            "right": side | query,
            "k": st.integers(1, 9),
            "output": st.just({"lance": f"{LAKE}/{name}_join.lance"}),
        },
        optional={
            "metric": st.sampled_from(["l2", "cosine", "dot"]),
            "join": st.sampled_from(["inner", "left_outer"]),
            "rank": st.booleans(),
            "min_right_rows": st.integers(0, 99),
            **_shared(),
        },
    )


@st.composite
def projects(draw: st.DrawFn) -> list[Node]:
    """A few nodes; a join has `k`."""
    names = draw(st.lists(st.sampled_from(_NAMES), min_size=1, max_size=4, unique=True))
    return [draw(_tables(name) if draw(st.booleans()) else _joins(name)) for name in names]


def written(nodes: Sequence[Node]) -> dict[str, str]:
    """The plainest way to write a project."""
    return {"specs/shop.yml": yaml.safe_dump(_document(nodes), sort_keys=False)}


def _document(nodes: Iterable[Node], **more: list[Node]) -> dict[str, list[Node]]:
    tables = [node for node in nodes if "k" not in node]
    joins = [node for node in nodes if "k" in node]
    document = {"tables": tables, "knn_joins": joins, **more}
    return {kind: items for kind, items in document.items() if items} or {"tables": []}


class _Dumper(yaml.SafeDumper):
    """A dumper that writes numbers and booleans plain in every style."""

    def represent_plain(self, value: Any) -> yaml.ScalarNode:
        node = yaml.SafeDumper.yaml_representers[type(value)](self, value)
        node.style = ""
        return node


for _type in (int, float, bool):
    _Dumper.add_representer(_type, _Dumper.represent_plain)


@st.composite
def rewritten(draw: st.DrawFn, nodes: Sequence[Node]) -> dict[str, str]:
    """Another way to write the same project, with other files, names, order and layout."""
    policies: list[Node] = []
    sets: list[Node] = []
    count = draw(st.integers(1, 3))
    files: list[list[Node]] = [[] for _ in range(count)]
    for node in draw(st.permutations(list(nodes))):
        other = copy.deepcopy(node)
        if draw(st.booleans()):
            _name_parts(other, policies, sets)
        if "uri" in other and draw(st.booleans()):
            other["uri"] = other["uri"].replace(LAKE, "{{ var('lake') }}")
        for key in ("tags", "groups", "keys", "references"):
            if key in other:
                other[key] = draw(st.permutations(other[key]))
        for key in ("groups", "keys"):
            if key in other:
                other[key] = [draw(st.permutations(columns)) for columns in other[key]]
        if isinstance(other.get("columns"), list):
            other["columns"] = draw(st.permutations(other["columns"]))
            if draw(st.booleans()):
                other["columns"] = {"include": other["columns"]}
        files[draw(st.integers(0, count - 1))].append(_shuffled(draw, other))
    documents = [_document(items) for items in files]
    for kind, items in (("policies", policies), ("column_sets", sets)):
        if items:
            documents[draw(st.integers(0, count - 1))][kind] = items
    # The order is free: nodes refer to each other by name.
    return {
        f"specs/{draw(st.sampled_from(['', 'deep/', 'z/y/']))}f{number}.yml": _text(draw, document)
        for number, document in enumerate(documents)
    }


def _name_parts(node: Node, policies: list[Node], sets: list[Node]) -> None:
    if "policy" in node:
        policies.append({"name": f"p{len(policies)}", **node["policy"]})
        node["policy"] = policies[-1]["name"]
    if isinstance(node.get("columns"), dict):
        sets.append({"name": f"s{len(sets)}", **node["columns"]})
        node["columns"] = {"set": sets[-1]["name"]}


def _shuffled(draw: st.DrawFn, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _shuffled(draw, value[key]) for key in draw(st.permutations(list(value)))}


def _text(draw: st.DrawFn, document: Mapping[str, Any]) -> str:
    if draw(st.booleans()):
        _share(document)
    text = yaml.dump(
        document,
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=draw(st.sampled_from([True, False, None])),
        default_style=draw(st.sampled_from([None, "'", '"'])),
        indent=draw(st.integers(2, 5)),
        width=draw(st.sampled_from([20, 80, 1000])),
        allow_unicode=draw(st.booleans()),
    )
    head = draw(st.sampled_from(["", "# a comment\n", "---\n", "\n\n"]))
    tail = draw(st.sampled_from(["", "# the end", "\n\n\n", "...\n"]))
    return head + text + tail


def _share(document: Mapping[str, Any]) -> None:
    """Let equal parts be one, which YAML writes as an anchor and its aliases."""
    seen: dict[str, Any] = {}
    for items in document.values():
        for item in items:
            for key, value in item.items():
                if isinstance(value, list | dict):
                    item[key] = seen.setdefault(repr(value), value)


@dataclass(frozen=True)
class Edit:
    """A change of one property: the property's name in a diff, and how the YAML changes."""

    name: str
    change: Callable[[Node], None]


def _set(key: str, value: Any) -> Callable[[Node], None]:
    def change(node: Node) -> None:
        node[key] = value

    return change


def _grow(key: str) -> Callable[[Node], None]:
    def change(node: Node) -> None:
        node[key] += 1

    return change


def _table_edits(node: Node) -> list[Edit]:
    publish = "none" if node.get("publish", "manifest") == "manifest" else "manifest"
    policy = dict(node.get("policy", {"allow.stale": False}))
    refresh = "always" if policy.get("refresh") == "when_stale" else "when_stale"
    return [
        Edit("uri", _set("uri", f"{LAKE}/elsewhere.lance")),
        Edit("columns", _set("columns", ["only_this"])),
        Edit("publish", _set("publish", publish)),
        Edit("histogram", _set("histogram", not node.get("histogram", False))),
        Edit("groups", _set("groups", [["x", "y"]])),
        Edit("keys", _set("keys", [["x"], ["x", "y"]])),
        Edit(
            "references",
            _set("references", [{"columns": ["x"], "table": node["name"], "to": ["y"]}]),
        ),
        Edit("refresh", _set("policy", {**policy, "refresh": refresh})),
        Edit("allow.stale", _set("policy", {**policy, "allow.stale": {"max_versions": 77}})),
        Edit("freshness.warn_after", _set("freshness", {"warn_after": "7h", "error_after": "24h"})),
    ]


def _join_edits(node: Node) -> list[Edit]:
    metric = "dot" if node.get("metric", "l2") != "dot" else "l2"
    return [
        Edit("k", _grow("k")),
        Edit("metric", _set("metric", metric)),
        Edit("rank", _set("rank", not node.get("rank", False))),
        Edit("join", _set("join", "inner" if node.get("join") == "left_outer" else "left_outer")),
        Edit("min_right_rows", _set("min_right_rows", 12345)),
        Edit("output.lance", _set("output", {"lance": f"{LAKE}/elsewhere.lance"})),
        Edit("left.vector", lambda node: node["left"].update(vector="w")),
        Edit("right.select", lambda node: node["right"].update(select=["z"])),
    ]


def edits(node: Node) -> list[Edit]:
    """Changes of a node, each of one property."""
    own = _join_edits(node) if "k" in node else _table_edits(node)
    return [
        *own,
        Edit("description", _set("description", "Something else.")),
        Edit("owner", _set("owner", "c@example.com")),
        Edit("tags", _set("tags", ["other"])),
    ]


@dataclass(frozen=True)
class Texts:
    """A project's files in memory."""

    files: Mapping[str, str]

    def has(self, name: str) -> bool:
        return name in self.files

    def read(self, name: str) -> bytes:
        return self.files[name].encode()

    def below(self, folder: str) -> list[str] | None:
        return [name for name in self.files if name.startswith(f"{folder}/")]


def loaded(files: Mapping[str, str]) -> ProjectSpec:
    """Return the project of these spec files."""
    texts = Texts({"lancestat_project.yml": HEADER, **files})
    return load_project(Path("/shop"), environment={}, files=texts)
