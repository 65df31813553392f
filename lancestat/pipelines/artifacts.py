"""Files that commands leave for other systems, in the layout of dbt's artifacts.

`manifest.json` has the nodes and what they depend on, `run_results.json` how the nodes of a run
ended, `sources.json` how nodes are at the time of `lancestat status`. Their schemas are in
`schemas/`. They contain no secrets. What cannot be written is one warning.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, cast
from uuid import uuid4

import msgspec

from lancestat.formats import format_instant
from lancestat.lake.files import write_whole
from lancestat.redact import Audience
from lancestat.report.gather import redacted_report
from lancestat.report.values import Health, NodeReport, ProjectReport
from lancestat.runs.actions import Plan
from lancestat.runs.events import (
    Event,
    FragmentsRead,
    NodeFinished,
    NodeStarted,
    RunFinished,
    RunStarted,
    StageReached,
)
from lancestat.runs.execute import stored_result
from lancestat.runs.result import NodeCheck, NodeResult, RunResult, planned
from lancestat.spec.graph import node_dependencies
from lancestat.spec.model import Node, ProjectSpec, Table, kind_word, results_of
from lancestat.spec.monitors import with_shared
from lancestat.spec.redaction import redacted_nodes
from lancestat.version import __version__

_log = logging.getLogger("lancestat.artifacts")

FOLDER = "target"
"""Where artifacts are below the project."""

MANIFEST, RUN_RESULTS, SOURCES = "manifest.json", "run_results.json", "sources.json"
VERSION = 1
"""Rises where a meaning changes. Members may be added at any time."""


Ended = Literal["success", "error", "skipped", "interrupted", "deferred"]


class Metadata(msgspec.Struct):
    """What an artifact is, and which invocation of lancestat wrote it, when, in UTC."""

    schema: str
    version: int
    generated_at: str
    lancestat_version: str
    invocation_id: str
    project: str
    target: str


class DependsOn(msgspec.Struct):
    """The unique IDs of the nodes whose results a node reads."""

    nodes: list[str]


class Planned(msgspec.Struct):
    """What the plan of the command had for a node, if that was among the selected ones."""

    action: str
    reasons: list[str]
    fragments: int | None
    rows: int | None


class Criteria(msgspec.Struct):
    """The bounds on the age of a table's newest rows, in seconds."""

    warn_after: float | None
    error_after: float | None


class DeclaredCheck(msgspec.Struct):
    """An expectation or a monitor of a table, by the name that `check` and `status` give it."""

    name: str
    description: str
    severity: Literal["warn", "error"]


class ManifestNode(msgspec.Struct):
    """A table or a join as it is declared. `uri` is the dataset that it stands for or writes.

    `format` is that of the dataset, `lance` or `parquet`. `inputs` are the datasets that it reads
    and that no node writes. `freshness` and `checks` are declared for tables, `recall` for
    approximate joins.
    """

    unique_id: str
    name: str
    resource_type: str
    description: str | None
    owner: str | None
    tags: list[str]
    source: str | None
    path: str | None
    line: int | None
    uri: str | None
    depends_on: DependsOn
    plan: Planned | None = None
    format: str = "lance"
    inputs: list[str] = []
    freshness: Criteria | None = None
    recall: float | None = None
    checks: list[DeclaredCheck] = []


class Manifest(msgspec.Struct):
    """The nodes of the project, and which of them depend on which."""

    metadata: Metadata
    nodes: dict[str, ManifestNode]
    parent_map: dict[str, list[str]]
    child_map: dict[str, list[str]]


class Timing(msgspec.Struct):
    """When a node was at a stage, in UTC."""

    name: str
    started_at: str
    completed_at: str


class NodeRunResult(msgspec.Struct):
    """How a node ended. `execution_time` is in seconds.

    `adapter_response` has the figures of the node as the JSON of `lancestat run` has them. A node
    that the run was interrupted at, or did not come to, is `interrupted`.
    """

    unique_id: str
    status: Ended
    timing: list[Timing]
    execution_time: float
    message: str | None
    code: str | None
    hint: str | None
    adapter_response: dict[str, Any]


class FoundCheck(msgspec.Struct):
    """Something that is not as expected of a node after a run."""

    unique_id: str
    check: str
    severity: Literal["warn", "error"]
    message: str


class RunResults(msgspec.Struct):
    """How the nodes of a run ended, with its options. `elapsed_time` is in seconds."""

    metadata: Metadata
    args: dict[str, Any]
    elapsed_time: float
    status: Ended
    results: list[NodeRunResult]
    findings: list[FoundCheck]


class SourceResult(msgspec.Struct):
    """How a node is: the statistics of a table and the age of its rows, or the result of a join.

    `max_loaded_at` is when rows last changed, in UTC, as far as that is known.
    """

    unique_id: str
    status: Literal["pass", "warn", "error"]
    message: str | None
    max_loaded_at: str | None
    max_loaded_at_time_ago_in_s: float | None
    snapshotted_at: str
    criteria: Criteria | None
    adapter_response: dict[str, Any]


class Sources(msgspec.Struct):
    """How the nodes of a project are. `elapsed_time` is in seconds."""

    metadata: Metadata
    args: dict[str, Any]
    elapsed_time: float
    results: list[SourceResult]


_FORMS = {MANIFEST: Manifest, RUN_RESULTS: RunResults, SOURCES: Sources}


def schema_name(artifact: str) -> str:
    """Return the name of the schema of an artifact, which is its `metadata.schema`, too."""
    return f"{Path(artifact).stem}.schema.json"


def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON schema of each artifact, by its name."""
    found = {}
    for artifact, form in _FORMS.items():
        body = msgspec.json.schema(form)
        definitions = body.pop("$defs")
        whole = definitions.pop(form.__name__)
        head = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": schema_name(artifact),
        }
        found[schema_name(artifact)] = {**head, **whole, "$defs": definitions}
    return found


def unique_id(project: str, kind: str, name: str) -> str:
    """Return what names a node in all artifacts: `table.shop.orders`."""
    return f"{kind}.{project}.{name}"


class Artifacts:
    """Writes the artifacts of one command to a folder, which is made if it is not there.

    It listens to events of a run. `spec` returns the project with what its sources have, once that
    is known. `args` are the options of the command.
    """

    def __init__(
        self, spec: Callable[[], ProjectSpec], folder: Path, args: Mapping[str, object]
    ) -> None:
        self._get_spec = spec
        self._folder = folder
        self._args = dict(args)
        self._began = _now()
        self._id = uuid4().hex
        self._stages: dict[str, list[tuple[str, datetime]]] = {}
        self._ended: dict[str, datetime] = {}
        self._lock = threading.Lock()
        self._told: set[str] = set()

    def __call__(self, event: Event) -> None:
        match event:
            case FragmentsRead():
                return
            case RunStarted(run_id=run_id, nodes=nodes):
                self._id, self._began = run_id, event.at
                self._write(MANIFEST, self._manifest(nodes))
            case NodeStarted(node=node):
                with self._lock:
                    self._stages[node] = []
            case StageReached(node=node, progress=progress):
                with self._lock:
                    stages = self._stages.setdefault(node, [])
                    if not stages or stages[-1][0] != progress.stage.name:
                        stages.append((progress.stage.name, event.at))
            case NodeFinished(result=result):
                with self._lock:
                    self._ended[result.name] = event.at
            case RunFinished(result=result):
                self._write(RUN_RESULTS, self._run_results(result))

    @property
    def _spec(self) -> ProjectSpec:
        return self._get_spec()

    def planned(self, plan: Plan) -> None:
        """Write the manifest of a plan."""
        self._write(MANIFEST, self._manifest(tuple(map(planned, plan.actions))))

    def manifest(self) -> dict[str, Any]:
        """Return what the manifest has without a plan."""
        return self._members(self._manifest())

    def reported(self, report: ProjectReport) -> None:
        """Write the manifest and the state of all nodes of a report."""
        report = redacted_report(report, self._spec)
        self._write(MANIFEST, self._manifest())
        results = [self._source(node, report.made_at) for node in report.nodes]
        self._write(SOURCES, Sources(self._metadata(SOURCES), self._args, self._elapsed(), results))

    def _metadata(self, artifact: str) -> Metadata:
        return Metadata(
            schema_name(artifact),
            VERSION,
            format_instant(_now()),
            __version__,
            self._id,
            self._spec.name,
            self._spec.target.name,
        )

    def _elapsed(self) -> float:
        return round((_now() - self._began).total_seconds(), 3)

    def _unique_id(self, kind: str, name: str) -> str:
        return unique_id(self._spec.name, kind, name)

    def _manifest(self, actions: Sequence[NodeResult] = ()) -> Manifest:
        """Return all nodes of the project, with what these actions plan for them."""
        plans, nodes = {action.name: action for action in actions}, self._spec.nodes
        ids = {node.name: self._unique_id(kind_word(node), node.name) for node in nodes}
        reads = node_dependencies(nodes)
        shown = tuple(redacted_nodes(self._spec, nodes, Audience.PUBLIC))
        written = {uri for node in nodes for uri in results_of(node)}
        parents = {ids[name]: sorted(ids[each] for each in reads.get(name, ())) for name in ids}
        children: dict[str, list[str]] = {each: [] for each in parents}
        for child, above in parents.items():
            for parent in above:
                children[parent].append(child)
        made = [self._node(node, ids[node.name], parents, plans.get(node.name)) for node in shown]
        for member, node, original in zip(made, shown, nodes, strict=True):
            uris = zip(node.input_uris, original.input_uris, strict=True)
            member.inputs = list(dict.fromkeys(uri for uri, real in uris if real not in written))
        return Manifest(
            self._metadata(MANIFEST), {node.unique_id: node for node in made}, parents, children
        )

    def _node(
        self, node: Node, id: str, parents: Mapping[str, list[str]], action: NodeResult | None
    ) -> ManifestNode:
        location, planned = node.location, None
        if action is not None:
            read, rows = action.fragments_scanned, action.rows_scanned
            planned = Planned(action.action, list(action.reasons), read, rows)
        return ManifestNode(
            id,
            node.name,
            kind_word(node),
            node.description,
            node.owner,
            sorted(node.tags),
            getattr(node, "source", None),
            location.file if location else None,
            location.line if location else None,
            node.dataset_uri,
            DependsOn(parents[id]),
            planned,
            format=node.dataset_format,
            freshness=_criteria(node),
            recall=getattr(node, "recall", None),
            checks=self._checks(node),
        )

    def _checks(self, node: Node) -> list[DeclaredCheck]:
        if not isinstance(node, Table):
            return []
        expected = [
            DeclaredCheck(each.name, str(each), each.check.severity.value) for each in node.expect
        ]
        monitors = with_shared(node.monitors, self._spec.monitors)
        return expected + [
            DeclaredCheck(each.name, each.watched.about, each.watched.severity.value)
            for each in monitors
        ]

    def _run_results(self, result: RunResult) -> RunResults:
        started, finished = result.started_at or self._began, result.finished_at or _now()
        return RunResults(
            self._metadata(RUN_RESULTS),
            self._args,
            round((finished - started).total_seconds(), 3),
            cast(Ended, result.status.value),
            [self._node_result(node, finished) for node in result.nodes],
            [self._finding(finding, result) for finding in result.findings],
        )

    def _finding(self, finding: NodeCheck, result: RunResult) -> FoundCheck:
        [kind] = (node.kind for node in result.nodes if node.name == finding.node)
        severity = cast(Literal["warn", "error"], finding.severity)
        id = self._unique_id(kind, finding.node)
        return FoundCheck(id, finding.check, severity, finding.detail)

    def _node_result(self, result: NodeResult, finished: datetime) -> NodeRunResult:
        stored = stored_result(self._spec, result)
        figures = {
            name: value for name, value in stored.to_json().items() if name not in _OWN_MEMBERS
        }
        return NodeRunResult(
            self._unique_id(result.kind, result.name),
            cast(Ended, result.status.value),
            self._timing(result.name, finished),
            result.elapsed_seconds or 0.0,
            stored.message,
            stored.code,
            stored.hint,
            figures,
        )

    def _timing(self, node: str, finished: datetime) -> list[Timing]:
        stages = self._stages.get(node, [])
        ends = [at for _, at in stages[1:]] + [self._ended.get(node, finished)]
        return [
            Timing(name, format_instant(start), format_instant(end))
            for (name, start), end in zip(stages, ends, strict=False)
        ]

    def _source(self, report: NodeReport, now: datetime) -> SourceResult:
        changed = report.changed_at
        return SourceResult(
            self._unique_id(kind_word(report.spec), report.spec.name),
            _STATUSES[report.health],
            " ".join(report.problems) or None,
            format_instant(changed) if changed else None,
            max(0.0, (now - changed).total_seconds()) if changed else None,
            format_instant(now),
            _criteria(report.spec),
            report.to_json(now),
        )

    def _members(self, artifact: msgspec.Struct) -> dict[str, Any]:
        members = self._spec.redactor.json(msgspec.to_builtins(artifact), Audience.PUBLIC)
        return cast(dict[str, Any], members)

    def _write(self, name: str, artifact: msgspec.Struct) -> None:
        text = json.dumps(self._members(artifact), indent=2, ensure_ascii=False, allow_nan=False)
        try:
            self._make_folder()
            write_whole(self._folder / name, f"{text}\n".encode())
        except (OSError, UnicodeEncodeError) as error:
            why = getattr(error, "strerror", None) or "a name in it cannot be encoded"
            if why not in self._told:
                self._told.add(why)
                _log.warning("artifacts are not written to %s: %s", self._folder, why)

    def _make_folder(self) -> None:
        if self._folder.is_symlink():
            # Whoever could place it there would have files replaced elsewhere.
            raise OSError(0, "it is a symbolic link; --artifacts names another folder")
        if not self._folder.exists():
            self._folder.mkdir(parents=True)
            try:
                # A repository is not to hold it.
                write_whole(self._folder / ".gitignore", b"*\n")
            except OSError:
                # The next command makes both.
                self._folder.rmdir()
                raise


_STATUSES: dict[Health, Literal["pass", "warn", "error"]] = {
    Health.OK: "pass",
    Health.WARN: "warn",
    Health.ERROR: "error",
}
# Those that `NodeRunResult` has by itself.
_OWN_MEMBERS = frozenset(("name", "kind", "status", "elapsed_seconds", "message", "code", "hint"))


def _criteria(node: Any) -> Criteria | None:
    freshness = getattr(node, "freshness", None)
    if freshness is None:
        return None
    return Criteria(*map(_seconds, (freshness.warn_after, freshness.error_after)))


def _seconds(span: Any) -> float | None:
    return None if span is None else span.total_seconds()


def _now() -> datetime:
    return datetime.now(timezone.utc)


def generated_files() -> dict[str, str]:
    """Return the text of the schema of each artifact, by its path in a checkout."""
    return {
        f"schemas/{name}": f"{json.dumps(schema, indent=2)}\n" for name, schema in schemas().items()
    }


if __name__ == "__main__":
    for path, text in generated_files().items():
        Path(__file__).parents[2].joinpath(path).write_text(text, encoding="utf-8")
