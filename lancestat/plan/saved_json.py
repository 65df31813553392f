"""Saved plans as JSON, which plan files hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone

from lancestat.plan.saved import Options, Place, SavedNode, SavedPlan, SeenDataset
from lancestat.state.run_rows import count, instant, text

FORMAT_VERSION = 2
# What tells a plan file from any other JSON.
KIND = "lancestat plan"


def encode_plan(plan: SavedPlan) -> str:
    """The text of a plan file."""
    stored = {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "lancestat": plan.lancestat,
        "made_at": _instant(plan.made_at),
        "project": plan.project,
        "target": plan.target,
        "state": asdict(plan.state),
        "scratch": None if plan.scratch is None else asdict(plan.scratch),
        "options": asdict(plan.options),
        "nodes": [_node(node) for node in plan.nodes],
    }
    return json.dumps(stored, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def decode_plan(found: Mapping[str, object]) -> SavedPlan:
    """The inverse of `encode_plan`, from its parsed JSON; raises ValueError on anything else."""
    try:
        options = _object(found["options"])
        return SavedPlan(
            lancestat=text(found["lancestat"]),
            made_at=_parsed(found["made_at"]),
            project=text(found["project"]),
            target=text(found["target"]),
            state=_place(found["state"]),
            scratch=None if found["scratch"] is None else _place(found["scratch"]),
            options=Options(
                _selectors(options["select"]),
                _selectors(options["exclude"]),
                _flag(options["full_refresh"]),
            ),
            nodes=tuple(_saved_node(_object(node)) for node in _list(found["nodes"])),
        )
    except KeyError as error:
        raise ValueError(f"{error} is missing") from None


def _node(node: SavedNode) -> dict[str, object]:
    return {
        "plan": dict(node.shown),
        "meaning": node.meaning,
        "work": node.work,
        "record": node.record,
        "output": node.output,
        "inputs": [_seen(seen) for seen in node.inputs],
    }


def _seen(seen: SeenDataset) -> dict[str, object]:
    committed_at = None if seen.committed_at is None else _instant(seen.committed_at)
    return {**asdict(seen), "committed_at": committed_at}


def _saved_node(found: Mapping[str, object]) -> SavedNode:
    shown = _object(found["plan"])
    text(shown["name"])
    return SavedNode(
        shown=shown,
        meaning=text(found["meaning"]),
        work=text(found["work"]),
        record=_optional_text(found["record"]),
        output=_optional_text(found["output"]),
        inputs=tuple(_seen_dataset(_object(seen)) for seen in _list(found["inputs"])),
    )


def _place(found: object) -> Place:
    place = _object(found)
    return Place(text(place["identity"]), text(place["uri"]))


def _seen_dataset(found: Mapping[str, object]) -> SeenDataset:
    version, committed_at = found["version"], found["committed_at"]
    return SeenDataset(
        identity=text(found["identity"]),
        uri=text(found["uri"]),
        version=None if version is None else count(version),
        committed_at=None if committed_at is None else _parsed(committed_at),
        content=_optional_text(found["content"]),
        error=_optional_text(found["error"]),
    )


def _instant(at: datetime) -> str:
    return at.astimezone(timezone.utc).isoformat()


def _parsed(found: object) -> datetime:
    return instant(datetime.fromisoformat(text(found)))


def _object(found: object) -> Mapping[str, object]:
    if not isinstance(found, dict):
        raise ValueError(f"expected an object, found {type(found).__name__}")
    return found


def _list(found: object) -> list[object]:
    if not isinstance(found, list):
        raise ValueError(f"expected a list, found {type(found).__name__}")
    return found


def _flag(found: object) -> bool:
    if not isinstance(found, bool):
        raise ValueError(f"expected true or false, found {type(found).__name__}")
    return found


def _optional_text(found: object) -> str | None:
    return None if found is None else text(found)


def _selectors(found: object) -> tuple[str, ...] | None:
    return None if found is None else tuple(map(text, _list(found)))
