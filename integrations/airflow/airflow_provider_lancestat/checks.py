"""The checks of nodes: which node has which, and how `lancestat status` answers them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Node = Mapping[str, Any]
"""A node of lancestat's `manifest.json`."""

Source = Mapping[str, Any]
"""A node of lancestat's `sources.json`: how it is."""

Severity = Literal["error", "warn"]


@dataclass(frozen=True)
class Answer:
    """Whether a check passed, and why it is so."""

    name: str
    passed: bool
    detail: str
    severity: Severity = "error"


def has_checks(node: Node) -> bool:
    """Whether `answers` has any for a node."""
    return node["resource_type"] == "table" or node["recall"] is not None


def answers(node: Node, source: Source) -> Iterator[Answer]:
    """Yield the answers of all checks of a node: of its kind, and of what it declares."""
    result = source["adapter_response"]
    unknown = source["message"] or "nothing is known"
    if node["resource_type"] == "table":
        is_open = result["version"] is not None
        detail = result["detail"] if is_open else unknown
        yield Answer("statistics_current", result["verdict"] == "use", detail)
    if node["freshness"] is not None:
        yield _freshness(source, unknown)
    if node["recall"] is not None:
        yield _recall(node["recall"], result, unknown)
    found = {check["check"]: check for check in result.get("checks", ())}
    for declared in node["checks"]:
        name = re.sub(r"[^A-Za-z0-9_]+", "_", declared["name"]).strip("_")
        check = found.get(declared["name"])
        if check is None:
            # The table cannot be opened.
            yield Answer(name, passed=False, detail=unknown)
        else:
            # What nothing decides has not failed.
            passed = check["verdict"] != "refuted"
            detail = f"{check['verdict']}, {check['detail']}"
            yield Answer(name, passed, detail, check["severity"])


def _freshness(source: Source, unknown: str) -> Answer:
    status, criteria = source["adapter_response"]["freshness"]["status"], source["criteria"]
    if status is None:
        return Answer("freshness", passed=False, detail=unknown)
    age = source["max_loaded_at_time_ago_in_s"]
    bounds = ", ".join(
        f"{name} {seconds:,.0f} s" for name, seconds in criteria.items() if seconds is not None
    )
    detail = f"the newest rows are {age:,.0f} s old ({bounds})"
    return Answer("freshness", status == "ok", detail, "warn" if status == "warn" else "error")


def _recall(asked: float, result: Mapping[str, Any], unknown: str) -> Answer:
    measured = result["recall"]
    # It is measured on a sample.
    severity: Severity = "warn"
    if result["computed_at"] is None:
        return Answer("recall", False, unknown, severity)
    if measured is None:
        # It is measured where the search is approximate; other searches find all neighbours.
        return Answer("recall", True, f"the search, {result['strategy']}, is exact", severity)
    return Answer("recall", measured >= asked, f"{measured}, {asked} is asked for", severity)
