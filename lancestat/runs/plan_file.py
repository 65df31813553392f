"""Saves plans to files with digests of all they rest on, and loads those that still hold."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime, timezone
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lancestat import codec
from lancestat.arguments import check_selectors
from lancestat.codec import Instant
from lancestat.errors import (
    LakeError,
    LancestatError,
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
from lancestat.lake.snapshot import DataFile, Fragment, Snapshot
from lancestat.redact import Audience, Redactor
from lancestat.runs.actions import Action, Plan
from lancestat.runs.node import NodeType, Observed
from lancestat.runs.observe import Observer
from lancestat.runs.result import planned
from lancestat.spec.budget import NO_BUDGET, Budget
from lancestat.spec.model import Node, node_digest
from lancestat.state.values import table_identity

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


_DIGEST_SIZE = 16


def action_digest(action: Action) -> str:
    """A digest of all that an action does: 32 hex digits.

    Notes, estimates of time and options that may be secret have no part in it: the options belong
    to the node's meaning (`spec.digest`). A blocked node is known by the code of its error.
    """
    if action.error is not None:
        return value_digest((action.node, action.kind, action.error.code))
    return value_digest(action)


def value_digest(value: object) -> str:
    """A digest of a value made of dataclasses, collections, enums, instants and plain values."""
    encoded = _Encoder().encode(value)
    return hashlib.blake2b(encoded, digest_size=_DIGEST_SIZE).hexdigest()


def snapshot_digest(snapshot: Snapshot) -> str:
    """A digest of what a dataset holds: its columns, its fragments' files and its configuration."""
    digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    encoder = _Encoder()
    digest.update(encoder.encode((snapshot.fields, snapshot.config)))
    for fragment in snapshot.fragments:
        digest.update(_fragment(fragment, encoder).encode(errors="surrogatepass"))
    return digest.hexdigest()


def _fragment(fragment: Fragment, encoder: _Encoder) -> str:
    files = [_file(file, encoder) for file in fragment.files]
    overlays = [
        f"{_file(overlay.file, encoder)} {overlay.coverage}" for overlay in fragment.overlays
    ]
    counts = f"{fragment.id} {fragment.physical_rows} {fragment.deleted_rows}"
    return f"{counts} {fragment.deletion_file!r} {files!r} {overlays!r}\n"


def _file(file: DataFile, encoder: _Encoder) -> str:
    return f"{file.path} {file.base_id} {encoder.encode(file.field_ids).hex()}"


class _Encoder:
    """Encodes values so that no two different ones look alike; shared parts are encoded once."""

    def __init__(self) -> None:
        # Sets and tuples of hundreds of columns are one object for many fragments. What is
        # remembered is kept, so that no other object gets its identity.
        self._known: dict[int, tuple[object, bytes]] = {}

    def encode(self, value: object) -> bytes:
        encode_scalar = _SCALAR_ENCODERS.get(type(value))
        if encode_scalar is not None:
            return encode_scalar(value)
        match value:
            case tuple() | frozenset():
                return self._once(value)
            case Enum():
                return self.encode(value.value)
            case datetime():
                return b"t" + value.astimezone(timezone.utc).isoformat().encode()
            case Mapping():
                pairs = (map(self.encode, pair) for pair in value.items())
                return _hashed(b"m", sorted(_framed(key) + encoded for key, encoded in pairs))
        if is_dataclass(value) and not isinstance(value, type):
            return self._dataclass(value)
        # The text of an Arrow type identifies it.
        return b"o" + f"{type(value).__name__} {value}".encode()

    def _once(self, value: tuple[object, ...] | frozenset[object]) -> bytes:
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        parts = map(self.encode, value)
        is_tuple = isinstance(value, tuple)
        encoded = _hashed(b"(", parts) if is_tuple else _hashed(b"{", sorted(parts))
        self._known[id(value)] = (value, encoded)
        return encoded

    def _dataclass(self, value: DataclassInstance) -> bytes:
        parts = [type(value).__name__.encode()]
        for name, key, is_ordered in _digested_fields(type(value)):
            member = getattr(value, name)
            parts.append(key)
            if is_ordered:
                parts.append(self.encode(member))
            else:
                parts.append(_hashed(b"{", sorted(map(self.encode, member))))
        return _hashed(b"<", parts)


def _spelled(value: object) -> bytes:
    return repr(value).encode()


_SCALAR_ENCODERS: Mapping[type, Callable[[Any], bytes]] = {
    type(None): _spelled,
    bool: _spelled,
    int: _spelled,
    float: _spelled,
    str: lambda text: b"s" + text.encode(errors="surrogatepass"),
    bytes: lambda content: b"b" + content,
}


@lru_cache(maxsize=256)
def _digested_fields(kind: type[DataclassInstance]) -> tuple[tuple[str, bytes, bool], ...]:
    """The fields of a dataclass that decide what it means and hold no secrets.

    With each come its key in the encoding, and whether its order counts. A dataclass names in
    `NOT_DIGESTED` sentences and estimates for people, and where work is done, which other machines
    decide otherwise; in `UNORDERED` fields whose order does not change what it means.
    """
    left_out: frozenset[str] = getattr(kind, "NOT_DIGESTED", frozenset()) | {"notes"}
    unordered: frozenset[str] = getattr(kind, "UNORDERED", frozenset())
    names = (field.name for field in fields(kind) if field.repr and field.name not in left_out)
    return tuple((name, name.encode(), name not in unordered) for name in names)


def _hashed(mark: bytes, parts: Iterable[bytes]) -> bytes:
    whole = mark + b"".join(map(_framed, parts))
    return mark + hashlib.blake2b(whole, digest_size=_DIGEST_SIZE).digest()


def _framed(part: bytes) -> bytes:
    return b"%d:%b" % (len(part), part)


_THREADS = 8


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of `plan`."""

    select: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    full_refresh: bool = False
    budget: Budget = NO_BUDGET

    @classmethod
    def of(
        cls,
        select: str | Sequence[str] | None,
        exclude: str | Sequence[str] | None,
        full_refresh: bool,
        budget: Budget,
    ) -> PlanOptions:
        """Options as `Project.plan` takes them."""
        check_selectors(select=select, exclude=exclude)
        return cls(_selectors(select), _selectors(exclude), full_refresh, budget)

    def redacted(self, redactor: Redactor) -> PlanOptions:
        """The same with the names of variables in place of what the environment gave."""
        return self._mapped(lambda word: redactor.text(word, Audience.PUBLIC))

    def restored(self, redactor: Redactor) -> PlanOptions:
        """The inverse of `redacted`."""
        return self._mapped(redactor.restored)

    def _mapped(self, change: Callable[[str], str]) -> PlanOptions:
        return PlanOptions(
            None if self.select is None else tuple(map(change, self.select)),
            None if self.exclude is None else tuple(map(change, self.exclude)),
            self.full_refresh,
            self.budget,
        )


@dataclass(frozen=True, slots=True)
class SavedNode:
    """A node of a saved plan; `plan` is its object in the JSON of `lancestat plan`.

    `rests_on` has digests of what `_CHANGES` names, and of the `work`; None of what is not there.
    """

    plan: Mapping[str, object]
    rests_on: Mapping[str, str | None]

    @property
    def name(self) -> str:
        return str(self.plan["name"])


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan and all that it rests on. `state` and `scratch` are identities of the target's."""

    lancestat: str
    made_at: Instant
    project: str
    target: str
    state: str
    scratch: str | None
    options: PlanOptions
    nodes: tuple[SavedNode, ...]

    def drift(self, now: SavedPlan) -> list[str]:
        """Return a line for each node and location that differs, none where the plans are equal."""
        lines = [
            f"target {now.target}: its {name} is elsewhere"
            for name in ("state", "scratch")
            if getattr(self, name) != getattr(now, name)
        ]
        before, after = ({node.name: node for node in plan.nodes} for plan in (self, now))
        for name in {**before, **after}:
            if name not in after:
                lines.append(f"{name}: it is no longer among the planned nodes")
            elif name not in before:
                lines.append(f"{name}: it was not among the planned nodes")
            elif what := _differences(before[name], after[name]):
                lines.append(f"{name}: {'; '.join(what)}")
        if not lines and [node.name for node in self.nodes] != [node.name for node in now.nodes]:
            lines.append("the nodes are in another order")
        # Part of it was read from a file that anyone may have written.
        return [visible(line) for line in lines]

    def encoded(self) -> str:
        """Return the text of a plan file."""
        stored = {"kind": KIND, "format_version": FORMAT_VERSION, **codec.builtins(self)}
        return codec.encode(stored, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _selectors(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    return (given,) if isinstance(given, str) else tuple(given)


_CHANGES = {
    "declaration": "its declaration has changed",
    "datasets": "what it reads has changed",
    "record": "the state has another record of it",
    "result": "its result has changed",
}


def _differences(then: SavedNode, now: SavedNode) -> list[str]:
    def differs(what: str) -> bool:
        return then.rests_on.get(what) != now.rests_on.get(what)

    differences = [words for what, words in _CHANGES.items() if differs(what)]
    was, current = _verb(then), _verb(now)
    if was != current:
        differences.append(f"now {current}, was {was}")
    if not differences and differs("work"):
        differences.append("what it reads, or what the state has stored of it, has changed")
    return differences


def _verb(node: SavedNode) -> str:
    action, reasons = node.plan.get("action"), node.plan.get("reasons")
    named = ", ".join(map(str, reasons)) if isinstance(reasons, list) else ""
    return f"{action} ({named})" if named else str(action)


# Nodes by what selects and what excludes them.
SelectNodes = Callable[[Sequence[str] | None, Sequence[str] | None], Sequence[Node]]


@dataclass(frozen=True, slots=True)
class PlanStore:
    """Saves and loads the plans of one project under one target; `version` is lancestat's own."""

    observer: Observer
    select: SelectNodes
    version: str

    def save(self, path: Path, options: PlanOptions) -> Plan:
        """Plan, and write the plan to a file."""
        check_writable(path)
        plan, saved = self._make(options)
        write_plan_file(path, saved)
        return plan

    def load(self, path: Path) -> Plan:
        """Plan again what a file has, provided that it comes out the same."""
        spec = self.observer.spec
        then = read_plan_file(path)
        check_made_for(path, then, project=spec.name, target=spec.target.name, version=self.version)
        try:
            plan, now = self._make(then.options.restored(spec.redactor))
        except UsageError as error:
            raise out_of_date(path, [f"its selection: {error.message}"]) from None
        changes = then.drift(now)
        if changes:
            raise out_of_date(path, changes)
        return plan

    def _make(self, options: PlanOptions) -> tuple[Plan, SavedPlan]:
        nodes = self.select(options.select, options.exclude)
        observer = replace(self.observer, budget=options.budget)
        plan, observed = observer.observe(nodes, full_refresh=options.full_refresh)
        spec = self.observer.spec
        scratch = spec.target.scratch
        with ThreadPoolExecutor(max_workers=_THREADS) as pool:
            saved = tuple(pool.map(lambda action: self._node(action, observed), plan.actions))
        return plan, SavedPlan(
            lancestat=self.version,
            made_at=observed.clock(),
            project=plan.project,
            target=plan.target,
            state=table_identity(spec.target.state),
            scratch=None if scratch is None else table_identity(scratch),
            options=options.redacted(spec.redactor),
            nodes=saved,
        )

    def _node(self, action: Action, observed: Observed) -> SavedNode:
        [node] = (node for node in observed.nodes if node.name == action.node)
        type = self.observer.types[node.kind.value]
        record = observed.records[node.kind.value].get(type.record_key(node))
        read = {
            table_identity(uri): _content(observed.snapshots[uri])
            for uri in type.lance_uris(observed.spec, node)
        }
        return SavedNode(
            plan=planned(action).redacted(self.observer.spec.redactor, Audience.PUBLIC).to_json(),
            rests_on={
                "declaration": node_digest(node),
                "datasets": value_digest(read),
                "record": None if record is None else value_digest(record),
                "result": None if action.error else _result(type, node, observed),
                "work": action_digest(action),
            },
        )


def _content(snapshot: Snapshot | LakeError) -> tuple[object, ...]:
    """The content of a dataset as the plan saw it, or the code of why it could not be opened."""
    if isinstance(snapshot, LakeError):
        return (snapshot.code,)
    return snapshot.version, snapshot.committed_at, snapshot_digest(snapshot)


def _result(type: NodeType[Node], node: Node, observed: Observed) -> str | None:
    try:
        result = type.result_seen(observed, node)
    except LancestatError as error:
        return error.code
    return None if result is None else value_digest(result)


FORMAT_VERSION = 3
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


def decode_plan(stored: Mapping[str, object]) -> SavedPlan:
    """Return the plan of a plan file's parsed JSON; raises ValueError on anything else."""
    plan = codec.convert(stored, SavedPlan)
    for node in plan.nodes:
        if not isinstance(node.plan.get("name"), str):
            raise ValueError("a node has no name")
    return plan


def check_writable(path: Path) -> None:
    """See that a plan file may be written at `path`: nothing is there, or another plan file."""
    if path.is_dir():
        raise PlaceOccupied(_not_written(path, "it is a folder"), hint="name a file in it")
    if not path.parent.is_dir():
        reason = f"there is no folder {_visible(path.parent)}"
        raise NotWritten(_not_written(path, reason), hint="create it")
    if path.exists() and not _is_plan_file(path):
        reason = "it holds something else than a plan"
        raise PlaceOccupied(_not_written(path, reason), hint="name another file")


def write_plan_file(path: Path, plan: SavedPlan) -> None:
    """Write a plan, all of it or nothing; an older plan at that place is replaced."""
    check_writable(path)
    try:
        # A link stays one: what it points to is replaced.
        content = plan.encoded().encode("utf-8", "surrogatepass")
        write_whole(Path(os.path.realpath(path)), content)
    except (OSError, ValueError) as error:
        raise NotWritten(
            _not_written(path, _why(error)), hint="name a path that can be written to"
        ) from None


def read_plan_file(path: Path) -> SavedPlan:
    """Read a plan file of this format."""
    parsed = _parsed(path, _read(path))
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
    """See that a plan was made for this project and target, by this release."""
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
        parsed = _parsed(path, _read(path))
    except PlanFileError:
        return False
    return isinstance(parsed, dict) and parsed.get("kind") == KIND


def _read(path: Path) -> bytes:
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
