"""The asset checks of nodes: which node has which, and how `lancestat status` answers them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

Node = Mapping[str, Any]
"""A node of lancestat's `manifest.json`."""

Source = Mapping[str, Any]
"""A node of lancestat's `sources.json`: how it is."""


@dataclass(frozen=True)
class Answer:
    """Whether a check passed, and what it found. None in `metadata` is left out.

    `detail` says why it failed. It is None where the node itself could not be read, or has no
    result: its own message says why.
    """

    passed: bool
    metadata: Mapping[str, Any]
    detail: str | None
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR


@dataclass(frozen=True)
class Check:
    """A check, the nodes that have it, and its answer for one of them."""

    name: str
    description: str
    applies: Callable[[Node], bool]
    answer: Callable[[Node, Source], Answer]

    def spec(self, key: dg.AssetKey) -> dg.AssetCheckSpec:
        """Return the spec of the check for an asset."""
        return dg.AssetCheckSpec(self.name, asset=key, description=self.description)

    def result(self, key: dg.AssetKey, node: Node, source: Source) -> dg.AssetCheckResult:
        """Return the result of the check for an asset. If it fails, its description says why."""
        answer = self.answer(node, source)
        return dg.AssetCheckResult(
            passed=answer.passed,
            asset_key=key,
            check_name=self.name,
            severity=answer.severity,
            description=None if answer.passed else answer.detail or source["message"],
            metadata={key: value for key, value in answer.metadata.items() if value is not None},
        )


def _statistics_current(node: Node, source: Source) -> Answer:
    table = source["adapter_response"]
    figures = ("reason", "detail", "versions_behind", "changed_rows", "computed_at")
    return Answer(
        table["verdict"] == "use",
        {name: table[name] for name in figures},
        table["detail"] if table["version"] is not None else None,
    )


def _freshness(node: Node, source: Source) -> Answer:
    status, criteria = source["adapter_response"]["freshness"]["status"], source["criteria"]
    age = source["max_loaded_at_time_ago_in_s"]
    return Answer(
        status == "ok",
        {
            "max_loaded_at": source["max_loaded_at"],
            "age_seconds": age,
            "warn_after_seconds": criteria["warn_after"],
            "error_after_seconds": criteria["error_after"],
        },
        None if status is None else f"the newest rows are {age:,.0f} s old",
        dg.AssetCheckSeverity.WARN if status == "warn" else dg.AssetCheckSeverity.ERROR,
    )


def _recall(node: Node, source: Source) -> Answer:
    result, asked = source["adapter_response"], node["recall"]
    # It is measured where the search is approximate; other searches find all neighbours.
    measured = result["recall"]
    return Answer(
        result["computed_at"] is not None and (measured is None or measured >= asked),
        {"recall": measured, "asked": asked, "strategy": result["strategy"]},
        None if measured is None else f"{measured}, {asked} is asked for",
        # It is measured on a sample.
        dg.AssetCheckSeverity.WARN,
    )


_CHECKS = (
    Check(
        "statistics_current",
        "Readers use the statistics under the table's policy.",
        lambda node: node["resource_type"] == "table",
        _statistics_current,
    ),
    Check(
        "freshness",
        "The newest rows are not older than the table's `freshness` allows.",
        lambda node: node["freshness"] is not None,
        _freshness,
    ),
    Check(
        "recall",
        "The result has the recall that the join asks for.",
        lambda node: node["recall"] is not None,
        _recall,
    ),
)


def checks_of(node: Node) -> Mapping[str, Check]:
    """Return the checks that a node has, by name; most kinds of nodes have none."""
    declared = (_declared(check) for check in node["checks"])
    return {check.name: check for check in (*_CHECKS, *declared) if check.applies(node)}


def _declared(declared: Mapping[str, str]) -> Check:
    """Return the check of an expectation or a monitor: `not_null_id` for `not_null(id)`."""

    def answer(node: Node, source: Source) -> Answer:
        checks = source["adapter_response"]["checks"]
        found = next((check for check in checks if check["check"] == declared["name"]), None)
        if found is None:
            # The table cannot be opened.
            return Answer(passed=False, metadata={"verdict": "unknown"}, detail=None)
        return Answer(
            # What nothing decides has not failed.
            found["verdict"] != "refuted",
            {"verdict": found["verdict"], "detail": found["detail"]},
            found["detail"],
            dg.AssetCheckSeverity[found["severity"].upper()],
        )

    name = re.sub(r"[^A-Za-z0-9_]+", "_", declared["name"]).strip("_")
    return Check(name, declared["description"], lambda node: True, answer)
