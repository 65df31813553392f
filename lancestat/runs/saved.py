"""Saved plans: digests of what was planned, and of everything the plan rests on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timezone
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lancestat.arguments import check_selectors
from lancestat.codec import Instant
from lancestat.errors import LakeError, LancestatError
from lancestat.lake.snapshot import DataFile, Fragment, Snapshot
from lancestat.redact import Audience, Redactor, redact_line
from lancestat.runs.actions import Action, Plan
from lancestat.runs.node import NodeType, NodeTypes, Observed
from lancestat.runs.result import planned
from lancestat.spec.digest import node_digest
from lancestat.spec.model import Node, ProjectSpec
from lancestat.state.values import canonical_uri, table_identity

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

    @classmethod
    def of(
        cls,
        select: str | Sequence[str] | None,
        exclude: str | Sequence[str] | None,
        full_refresh: bool,
    ) -> PlanOptions:
        """Options as `Project.plan` takes them.

        Raises:
            InvalidArgument: A selector is none.
        """
        check_selectors(select=select, exclude=exclude)
        return cls(_selectors(select), _selectors(exclude), full_refresh)

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
        )


@dataclass(frozen=True, slots=True)
class ObservedDataset:
    """A Lance dataset as the plan saw it; one that could not be opened has a code of an error only.

    `identity` is the state's name for it (`state.identity`), `uri` is fit to be shown.
    """

    identity: str
    uri: str
    version: int | None = None
    committed_at: Instant | None = None
    content: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SavedNode:
    """A node of a saved plan; `plan` is its object in the JSON of `lancestat plan`."""

    plan: Mapping[str, object]
    meaning: str
    work: str
    record: str | None
    output: str | None
    inputs: tuple[ObservedDataset, ...]

    @property
    def name(self) -> str:
        return str(self.plan["name"])


@dataclass(frozen=True, slots=True)
class SavedLocation:
    """A location of the target: `identity` is compared, `uri` is fit to be shown."""

    identity: str
    uri: str


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan and all that it rests on. `state` and `scratch` are those of the target."""

    lancestat: str
    made_at: Instant
    project: str
    target: str
    state: SavedLocation
    scratch: SavedLocation | None
    options: PlanOptions
    nodes: tuple[SavedNode, ...]


@dataclass(frozen=True, slots=True)
class Saver:
    """Makes saved plans; `version` is lancestat's own."""

    spec: ProjectSpec
    types: NodeTypes
    version: str

    def save(self, plan: Plan, observed: Observed, options: PlanOptions) -> SavedPlan:
        """Return a plan with all that it rests on; the results of nodes are observed here."""
        target = self.spec.target
        with ThreadPoolExecutor(max_workers=_THREADS) as pool:
            nodes = tuple(pool.map(lambda action: self._node(action, observed), plan.actions))
        return SavedPlan(
            lancestat=self.version,
            made_at=observed.clock(),
            project=plan.project,
            target=plan.target,
            state=self._location(target.state),
            scratch=None if target.scratch is None else self._location(target.scratch),
            options=options.redacted(self.spec.redactor),
            nodes=nodes,
        )

    def _node(self, action: Action, observed: Observed) -> SavedNode:
        [node] = (node for node in observed.nodes if node.name == action.node)
        type = self.types[node.kind.value]
        record = observed.records[node.kind.value].get(type.record_key(node))
        return SavedNode(
            plan=planned(action).redacted(self.spec.redactor, Audience.PUBLIC).to_json(),
            meaning=node_digest(node),
            work=action_digest(action),
            record=None if record is None else value_digest(record),
            output=None if action.error else _result(type, node, observed),
            inputs=tuple(
                self._observed(uri, observed.snapshots[uri])
                for uri in dict.fromkeys(type.lance_uris(observed.spec, node))
            ),
        )

    def _location(self, uri: str) -> SavedLocation:
        public_uri = self.spec.redactor.text(canonical_uri(uri), Audience.PUBLIC)
        return SavedLocation(table_identity(uri), public_uri)

    def _observed(self, uri: str, snapshot: Snapshot | LakeError) -> ObservedDataset:
        identity = table_identity(uri)
        public_uri = redact_line(self.spec.redactor.text(uri, Audience.PUBLIC))
        if isinstance(snapshot, LakeError):
            return ObservedDataset(identity, public_uri, error=snapshot.code)
        content = snapshot_digest(snapshot)
        return ObservedDataset(
            identity, public_uri, snapshot.version, snapshot.committed_at, content
        )


def _result(type: NodeType[Node], node: Node, observed: Observed) -> str | None:
    try:
        result = type.result_seen(observed, node)
    except LancestatError as error:
        return error.code
    return None if result is None else value_digest(result)


def _selectors(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    return (given,) if isinstance(given, str) else tuple(given)
