"""Saves plans to files, and reads them back as long as they hold."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lancestat import codec
from lancestat.errors import (
    NotWritten,
    PlaceOccupied,
    PlanFileError,
    PlanFileOfOtherProject,
    PlanFileOfOtherRelease,
    PlanFileUnreadable,
    PlanOutOfDate,
    UsageError,
)
from lancestat.formats import quoted, visible
from lancestat.lake.files import write_whole
from lancestat.runs.actions import Plan
from lancestat.runs.drift import drift
from lancestat.runs.observe import Observer
from lancestat.runs.saved import PlanOptions, SavedPlan, Saver
from lancestat.spec.model import Node

# Nodes by what selects and what excludes them.
SelectNodes = Callable[[Sequence[str] | None, Sequence[str] | None], Sequence[Node]]


@dataclass(frozen=True, slots=True)
class PlanStore:
    """Saves and loads the plans of one project under one target; `version` is lancestat's own."""

    observer: Observer
    select: SelectNodes
    version: str

    def save(self, path: Path, options: PlanOptions) -> Plan:
        """Plan, and write the plan to a file.

        Raises:
            PlaceOccupied: something else is at `path`.
            NotWritten: it cannot be written.
            UsageError: a selector is wrong or matches nothing.
            StateError: the state cannot be reached.
        """
        check_writable(path)
        plan, saved = self._make(options)
        write_plan_file(path, saved)
        return plan

    def load(self, path: Path) -> Plan:
        """Plan again what a file has, provided that it comes out the same.

        Raises:
            PlanOutOfDate: it does not.
            PlanFileError: the file is no such plan, or that of another project, target or release.
            StateError: the state cannot be reached.
        """
        spec = self.observer.spec
        then = read_plan_file(path)
        check_made_for(path, then, project=spec.name, target=spec.target.name, version=self.version)
        try:
            plan, now = self._make(then.options.restored(spec.redactor))
        except UsageError as error:
            raise out_of_date(path, [f"its selection: {error.message}"]) from None
        changes = drift(then, now)
        if changes:
            raise out_of_date(path, changes)
        return plan

    def _make(self, options: PlanOptions) -> tuple[Plan, SavedPlan]:
        nodes = self.select(options.select, options.exclude)
        plan, observed = self.observer.observe(nodes, full_refresh=options.full_refresh)
        saver = Saver(self.observer.spec, self.observer.types, self.version)
        return plan, saver.save(plan, observed, options)


FORMAT_VERSION = 2
# The value of the key that tells a plan file from any other JSON.
KIND = "lancestat plan"
# A node takes about 2 kB, whatever the size of its datasets.
MAX_BYTES = 64 << 20
_AGAIN = "make a new one with 'lancestat plan --out'"


def out_of_date(path: Path, changes: Sequence[str]) -> PlanOutOfDate:
    """Return the error for a plan that no longer holds, with all that has changed since."""
    listed = "".join(f"\n      {change}" for change in changes)
    return PlanOutOfDate(
        f"the plan in {_visible(path)} is out of date, and nothing was run{listed}",
        hint="look at a new plan: lancestat plan --out",
    )


def encode_plan(plan: SavedPlan) -> str:
    """Return the text of a plan file."""
    stored = {"kind": KIND, "format_version": FORMAT_VERSION, **codec.builtins(plan)}
    return codec.encode(stored, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def decode_plan(stored: Mapping[str, object]) -> SavedPlan:
    """Return the plan of a plan file's parsed JSON; raises ValueError on anything else."""
    plan = codec.convert(stored, SavedPlan)
    for node in plan.nodes:
        if not isinstance(node.plan.get("name"), str):
            raise ValueError("a node has no name")
    return plan


def check_writable(path: Path) -> None:
    """See that a plan file may be written at `path`: nothing is there, or another plan file.

    Raises:
        PlaceOccupied: something else is there.
        NotWritten: there is no folder to write into.
    """
    if path.is_dir():
        raise PlaceOccupied(_not_written(path, "it is a folder"), hint="name a file in it")
    if not path.parent.is_dir():
        reason = f"there is no folder {_visible(path.parent)}"
        raise NotWritten(_not_written(path, reason), hint="create it")
    if path.exists() and not _is_plan_file(path):
        reason = "it holds something else than a plan"
        raise PlaceOccupied(_not_written(path, reason), hint="name another file")


def write_plan_file(path: Path, plan: SavedPlan) -> None:
    """Write a plan, all of it or nothing; an older plan at that place is replaced.

    Raises:
        PlaceOccupied: something else is there.
        NotWritten: it cannot be written.
    """
    check_writable(path)
    try:
        # A link stays one: what it points to is replaced.
        content = encode_plan(plan).encode("utf-8", "surrogatepass")
        write_whole(Path(os.path.realpath(path)), content)
    except (OSError, ValueError) as error:
        raise NotWritten(
            _not_written(path, _why(error)), hint="name a path that can be written to"
        ) from None


def read_plan_file(path: Path) -> SavedPlan:
    """Read a plan file of this format.

    Raises:
        PlanFileUnreadable: it cannot be read, or is no whole plan file.
        PlanFileOfOtherRelease: its format is another.
    """
    parsed = _parsed(path, _content(path))
    if not isinstance(parsed, dict) or parsed.get("kind") != KIND:
        raise _plan_unreadable(path, "this JSON is no plan of lancestat", _AGAIN)
    version = parsed.get("format_version")
    if version != FORMAT_VERSION:
        raise PlanFileOfOtherRelease(
            f"the plan in {_visible(path)} is of format {quoted(str(version))}, "
            f"and this release reads format {FORMAT_VERSION}",
            hint=_AGAIN,
        )
    try:
        return decode_plan(parsed)
    except (ValueError, OverflowError) as error:
        raise _plan_unreadable(path, f"it is damaged: {quoted(str(error))[1:-1]}", _AGAIN) from None


def check_made_for(path: Path, plan: SavedPlan, *, project: str, target: str, version: str) -> None:
    """See that a plan was made for this project and target, by this release.

    Raises:
        PlanFileOfOtherRelease: another release made it.
        PlanFileOfOtherProject: for another project or target.
    """
    if plan.project != project:
        made_for = f"project {quoted(plan.project)}, and this one is {quoted(project)}"
        raise _plan_of_other(path, made_for, "run it in that project's folder")
    if plan.target != target:
        made_for = f"target {quoted(plan.target)}, and not for {quoted(target)}"
        raise _plan_of_other(path, made_for, f"run it with --target {quoted(plan.target)}")
    if plan.lancestat != version:
        raise PlanFileOfOtherRelease(
            f"the plan in {_visible(path)} was made by lancestat {quoted(plan.lancestat)[1:-1]}, "
            f"and this is {version}",
            hint=_AGAIN,
        )


def _is_plan_file(path: Path) -> bool:
    try:
        parsed = _parsed(path, _content(path))
    except PlanFileError:
        return False
    return isinstance(parsed, dict) and parsed.get("kind") == KIND


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _plan_unreadable(path, _why(error), "name a file of 'lancestat plan --out'") from None
    if len(content) > MAX_BYTES:
        raise _plan_unreadable(
            path, f"it is larger than {MAX_BYTES >> 20} MiB, as no plan is", _AGAIN
        )
    return content


def _parsed(path: Path, content: bytes) -> object:
    try:
        parsed: object = json.loads(content.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        raise _plan_unreadable(path, "it is not text", _AGAIN) from None
    except json.JSONDecodeError as error:
        why = "it is empty" if not content.strip() else _broken(error)
        raise _plan_unreadable(path, why, _AGAIN) from None
    except (RecursionError, ValueError):
        raise _plan_unreadable(path, "it is JSON that no plan looks like", _AGAIN) from None
    return parsed


def _broken(error: json.JSONDecodeError) -> str:
    is_cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
    position = f"line {error.lineno}, column {error.colno}"
    return f"it ends early, at {position}" if is_cut else f"it is not JSON, see {position}"


def _plan_of_other(path: Path, made_for: str, hint: str) -> PlanFileError:
    return PlanFileOfOtherProject(
        f"the plan in {_visible(path)} was made for {made_for}", hint=hint
    )


def _plan_unreadable(path: Path, why: str, hint: str) -> PlanFileError:
    return PlanFileUnreadable(f"cannot read a plan from {_visible(path)}: {why}", hint=hint)


def _not_written(path: Path, why: str) -> str:
    return f"cannot write the plan to {_visible(path)}: {why}"


def _why(error: OSError | ValueError) -> str:
    return ((error.strerror if isinstance(error, OSError) else None) or "no such place").lower()


def _visible(path: Path) -> str:
    return visible(str(path))
