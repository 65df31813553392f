"""One node of a plan or a run, as the JSON of both shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from lancestat import codec, display
from lancestat.errors import LancestatError, Location, error_text
from lancestat.formats import StringEnum, count
from lancestat.redact import Audience, Redactor
from lancestat.runs.actions import STATE_LACKS, Action, NodeFigures, own_figures, table_figures

if TYPE_CHECKING:
    from lancestat.runs.node import NodeTypes


class Status(StringEnum):
    """The outcome of a node."""

    PLANNED = "planned"
    SUCCESS = "success"
    ERROR = "error"
    SKIPPED = "skipped"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class NodeResult:
    """One node of a plan or a run, field by field as the JSON shows it.

    `message` is what there is to say of a node that failed or was not run, in a sentence. A failure
    also has the error's `code` and `hint`, and as `location` that of the error or else of the
    node's declaration; `text` has all of it.
    `still_published` is set where a table holds statistics of earlier runs, though its declaration
    says `publish: none`. `runs_on` is where a table is read, `process` or `spark`. `notes` are
    sentences of the plan on what was declared. `figures` are set for nodes of kinds that have their
    own, such as joins, whose objects have the fields of these too.
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
    still_published: bool | None = None
    elapsed_seconds: float | None = None
    message: str | None = None
    code: str | None = None
    hint: str | None = None
    location: Location | None = None
    runs_on: str | None = None
    notes: tuple[str, ...] = ()
    figures: NodeFigures | None = None

    def __repr__(self) -> str:
        return display.summary(self, f"{self.name}: {self.action}, {self.status.value}")

    @property
    def is_lacking(self) -> bool:
        """Whether the state lacks what only it has of a table that was left as it is."""
        return STATE_LACKS in self.notes

    @property
    def text(self) -> str:
        """All that there is to say of a node that failed or was not run, as people read it."""
        message = self.message or ""
        if self.code is None:
            return message
        return error_text(self.code, message, self.location, self.hint)

    @classmethod
    def from_json(cls, stored: Mapping[str, object], types: NodeTypes) -> NodeResult:
        """Return the result that a node's object shows; unknown keys are ignored.

        Args:
            stored: The object.
            types: Decode the figures of their kinds.

        Raises:
            ValueError: it is not such an object.
        """
        try:
            result = codec.convert({**stored, "figures": None}, cls)
            type = types.get(result.kind)
            return result if type is None else replace(result, figures=type.figures_of(stored))
        except ValueError as error:
            raise ValueError(f"not the result of a node: {error}") from None

    def redacted(self, redactor: Redactor, audience: Audience) -> NodeResult:
        """The same result with what an audience may see of its message, hint and location."""
        message, hint, location = self.message, self.hint, self.location
        if location is not None:
            location = replace(location, file=redactor.text(location.file, audience))
        return replace(
            self,
            message=None if message is None else redactor.text(message, audience),
            hint=None if hint is None else redactor.text(hint, audience),
            location=location,
            notes=tuple(redactor.text(note, audience) for note in self.notes),
        )

    def to_json(self) -> dict[str, object]:
        """Return the node's object in the JSON of `plan` and `run`."""
        members = {
            **asdict(self),
            "reasons": list(self.reasons),
            "status": self.status.value,
            "notes": list(self.notes),
        }
        del members["figures"]
        return {**members, **(self.figures.to_json() if self.figures else {})}


# What is said of a node that an interrupted run did not come to.
NOT_BEGUN = "the run was interrupted before it began"
# The word for nodes that did not end well.
ENDED_AS = {Status.ERROR: "failed", Status.SKIPPED: "not run", Status.INTERRUPTED: "stopped"}


def interrupted(result: NodeResult, why: str, fragments_stored: int | None = None) -> NodeResult:
    """Return the result of a node that its run did not end.

    Args:
        result: Of the node as it was planned.
        why: What ended the run.
        fragments_stored: How many fragments of a table have been read and are in the state, and
            need not be read again; None where that is not known.
    """
    to_read = result.fragments_scanned
    if fragments_stored and to_read:
        why += f"; {count(fragments_stored)} of {count(to_read, 'fragment')} to read are stored"
    return replace(
        result,
        status=Status.INTERRUPTED,
        message=why,
        fragments_scanned=None if to_read is None else fragments_stored,
        rows_scanned=None,
    )


def failed(result: NodeResult, error: LancestatError) -> NodeResult:
    """Return the result of a node that failed."""
    return replace(
        result,
        status=Status.ERROR,
        message=error.message,
        code=error.code,
        hint=error.hint,
        location=error.location,
    )


def planned(action: Action) -> NodeResult:
    """Return the node of a plan that an action stands for, before it is run."""
    result = NodeResult(
        name=action.node,
        kind=action.kind,
        action=action.verb,
        reasons=tuple(reason.value for reason in action.reasons),
        status=Status.PLANNED,
        runs_on=action.runs_on.value if action.runs_on else None,
        notes=action.notes,
        figures=own_figures(action),
    )
    if action.error is not None:
        result = failed(result, action.error)
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
        still_published=figures.still_published,
    )
