"""One node of a plan or a run, as the JSON of both shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from typing import Any

from lancestat.plan.actions import (
    Action,
    Blocked,
    JoinAction,
    JoinFigures,
    join_figures,
    table_figures,
)


class Status(str, Enum):
    """How a node ended."""

    PLANNED = "planned"
    SUCCESS = "success"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class NodeResult:
    """One node of a plan or a run, field by field as the JSON shows it.

    `join` is set for joins alone, whose objects have its fields too.
    """

    name: str
    kind: str
    action: str
    reasons: tuple[str, ...]
    status: Status
    fragments_total: int | None = None
    fragments_scanned: int | None = None
    columns: int | None = None
    rows_total: int | None = None
    rows_scanned: int | None = None
    version_read: int | None = None
    version_published: int | None = None
    elapsed_seconds: float | None = None
    message: str | None = None
    join: JoinFigures | None = None

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> NodeResult:
        """A node's object read back; what is not known here is passed by.

        Raises:
            ValueError: it is not such an object.
        """
        try:
            is_join = stored["kind"] == JoinAction.kind
            return cls(
                **_known(stored, cls, frozenset({"reasons", "status", "join"})),
                reasons=_reasons(stored["reasons"]),
                status=Status(stored["status"]),
                join=JoinFigures(**_known(stored, JoinFigures)) if is_join else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not the result of a node: {error}") from None

    def to_json(self) -> dict[str, object]:
        """The node's object in the JSON of `plan` and `run`."""
        shown = {**asdict(self), "reasons": list(self.reasons), "status": self.status.value}
        del shown["join"]
        is_join = self.kind == JoinAction.kind
        return {**shown, **asdict(self.join or JoinFigures())} if is_join else shown


def _known(
    stored: Mapping[str, object], form: type, others: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The fields of a dataclass that are stored: texts and numbers, each of which may be null."""
    found = {}
    for field in fields(form):
        if field.name in others or field.name not in stored:
            continue
        value = found[field.name] = stored[field.name]
        # Annotations are texts here.
        expected = str if str(field.type).startswith("str") else (int, float)
        is_null = value is None and str(field.type).endswith("None")
        if not is_null and not isinstance(value, expected):
            raise TypeError(f"{field.name} is {type(value).__name__}")
    return found


def _reasons(stored: object) -> tuple[str, ...]:
    if not isinstance(stored, list) or not all(isinstance(each, str) for each in stored):
        raise TypeError("reasons are a list of texts")
    return tuple(stored)


def planned(action: Action) -> NodeResult:
    """The node of a plan that an action stands for, before it is run."""
    is_join = action.kind == JoinAction.kind
    result = NodeResult(
        name=action.node,
        kind=action.kind,
        action=action.verb,
        reasons=() if isinstance(action, Blocked) else tuple(r.value for r in action.reasons),
        status=Status.ERROR if isinstance(action, Blocked) else Status.PLANNED,
        message=str(action.error) if isinstance(action, Blocked) else None,
        join=join_figures(action) or JoinFigures() if is_join else None,
    )
    figures = table_figures(action)
    if figures is None:
        return result
    return replace(
        result,
        fragments_total=figures.fragments_total,
        fragments_scanned=figures.fragments_scanned,
        columns=figures.columns,
        rows_total=figures.rows_total,
        rows_scanned=figures.rows_scanned,
        version_read=figures.version_read,
    )
