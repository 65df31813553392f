"""A diff as JSON: a contract, like that of a plan.

```
format_version  1; rises when a meaning changes
command         "diff"
project, target
base, head      {"label": as it was named, "commit": the id of a revision or null}
summary         {"added": n, "removed": n, "changed": n, "unchanged": n}
risks           the words of all nodes, each once, sorted
cost_bytes      what the first run reads for all changes together; null where some cannot be told
settings        changes of the project and its target: a list of properties as below
nodes           those that changed
  name, kind    `table`, `knn_join`, or `source` for the tables of a source
  previous_name the name on BASE where it is another, else null
  change        `added`, `removed` or `changed`
  file, line    where it is declared, on HEAD if it is there
  owners        of both sides
  properties    [{"name", "old", "new", "hidden"}]: values, null where there is none; `hidden` where
                they may be secret, and then old and new are null or name the variables that gave
                them. `columns` is a list of {"include", "exclude", "types"}, of which a column must
                fit one; `allow.stale` is true, false or {"max_versions", "max_age_seconds",
                "max_changed_rows"} with the bounds that are given; spans are in seconds
  columns       {"resolved", "gained", "lost"} or null where none gain or lose statistics; names
                where `resolved`, else patterns
  tables        of a source {"known", "gained", "lost", "renamed": [{"old", "new"}]} or null where
                no table comes, goes or gets another name; names of nodes, and all that there is
                where `known`
  cost_bytes    of this node
  risks         [{"risk": word, "message": sentence}]
  notes         sentences
notes           sentences about the whole
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lancestat.presentation.views import DiffView

if TYPE_CHECKING:
    from lancestat.review.values import (
        ColumnsChange,
        NodeDiff,
        Property,
        PropertyChange,
        TablesChange,
    )

Payload = Mapping[str, object]


def diff_members(view: DiffView) -> dict[str, object]:
    """Return the members of the object that `lancestat diff --output json` prints."""
    diff = view.diff
    return {
        "project": diff.project,
        "target": diff.target,
        "base": {"label": diff.base, "commit": diff.base_commit},
        "head": {"label": diff.head, "commit": diff.head_commit},
        "summary": {**view.counts, "unchanged": diff.unchanged},
        "risks": sorted(risk.value for risk in diff.risks),
        "cost_bytes": diff.cost_bytes,
        "settings": [_property(change) for change in diff.settings],
        "nodes": [_node_diff(node) for node in diff.nodes],
        "notes": list(diff.notes),
    }


def _node_diff(node: NodeDiff) -> Payload:
    return {
        "name": node.name,
        "kind": node.kind_word,
        "previous_name": node.previous_name,
        "change": node.change.value,
        "file": node.location.file,
        "line": node.location.line,
        "owners": list(node.owners),
        "properties": [_property(change) for change in node.properties],
        "columns": None if node.columns is None else _columns_change(node.columns),
        "tables": None if node.tables is None else _tables_change(node.tables),
        "cost_bytes": node.cost_bytes,
        "risks": [{"risk": note.risk.value, "message": note.sentence} for note in node.risks],
        "notes": list(node.notes),
    }


def _tables_change(tables: TablesChange) -> Payload:
    return {
        "known": tables.is_known,
        "gained": list(tables.gained),
        "lost": list(tables.lost),
        "renamed": [{"old": old, "new": new} for old, new in tables.renamed],
    }


def _property(change: PropertyChange) -> Payload:
    return {
        "name": change.name,
        "old": _value(change.old),
        "new": _value(change.new),
        "hidden": any(side.is_hidden for side in change.sides),
    }


def _value(side: Property | None) -> object:
    return None if side is None else side.json


def _columns_change(columns: ColumnsChange) -> Payload:
    return {
        "resolved": columns.are_names,
        "gained": list(columns.gained),
        "lost": list(columns.lost),
    }
