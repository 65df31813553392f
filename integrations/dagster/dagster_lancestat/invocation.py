"""A command of lancestat: its process, its events, and what Dagster gets of them."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import dagster as dg
from lancestat import Project
from lancestat.errors import LancestatError

from dagster_lancestat.checks import checks_of
from dagster_lancestat.translator import NODE_METADATA_KEY

if TYPE_CHECKING:
    from dagster_lancestat.resource import LancestatCliResource

Event = Mapping[str, Any]
"""A line of lancestat's log in JSON."""

Result = Mapping[str, Any]
"""How a node ended, in the JSON of `run`."""

_log = logging.getLogger("dagster_lancestat")

_LEAVE_ARTIFACTS = frozenset({"plan", "run", "retry", "status"})
_FIGURES = (
    *("action", "elapsed_seconds", "version_published", "rows_scanned"),
    *("strategy", "left_rows", "right_rows", "recall"),
)
# What a run needs to stop and to record how far it got.
_STOP_SECONDS = 60


class LancestatCliInvocation:
    """A command of lancestat, made by `LancestatCliResource.cli`."""

    def __init__(
        self,
        resource: LancestatCliResource,
        args: Sequence[str],
        context: dg.AssetExecutionContext | None,
    ) -> None:
        self._resource = resource
        self._args = args
        self._context = context
        self._artifacts: dict[str, Any] = {}
        self._output: Mapping[str, Any] = {}
        self._exit_code: int | None = None

    def stream(self) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        """Run the command on the selected assets and checks, and yield how they are.

        An asset is yielded when its node has ended well, checks after all nodes have ended. Where
        only checks are selected, nothing is run.

        Raises:
            Failure: Nodes failed, or the command itself did. Its metadata has the message, code
                and hint of each failure, and the nodes that were not run because of it.
        """
        if self._context is None:
            raise dg.DagsterInvariantViolationError(
                "stream() yields assets: pass the asset's context to cli(), or call wait()"
            )
        keys = {_node_name(self._context, key): key for key in self._context.selected_asset_keys}
        if keys:
            for event in self._events(_selectors(keys)):
                result = event.get("result")
                if result and result["status"] == "success" and result["name"] in keys:
                    yield self._materialized(keys[result["name"]], result)
            self._raise_for_errors()
        yield from _checked(self._resource, self._context)
        self._raise_for_nodes()

    def wait(self) -> LancestatCliInvocation:
        """Run the command as it is, without assets. A failure is not raised."""
        for _ in self._events():
            pass
        return self

    def is_successful(self) -> bool:
        """Whether the command has ended with the exit code 0."""
        return self._exit_code == 0

    def get_artifact(self, name: str) -> Any:
        """Return an artifact that the command left, such as `run_results.json`.

        Raises:
            KeyError: The command has left no such artifact.
        """
        return self._artifacts[name]

    def get_output(self) -> Mapping[str, Any]:
        """Return the JSON object that the command printed."""
        return self._output

    @cached_property
    def _logger(self) -> logging.Logger:
        return _log if self._context is None else self._context.log

    def _events(self, selectors: Sequence[str] = ()) -> Iterator[Event]:
        """Run the command, log what it logs, and yield its events; keep what it leaves."""
        with tempfile.TemporaryDirectory(prefix="lancestat-") as folder:
            artifacts, printed = Path(folder, "artifacts"), Path(folder, "output.json")
            command = [sys.executable, "-m", "lancestat", *self._args, *selectors]
            command += self._resource.options()
            command += ["--log-format", "json", "--output", "json"]
            if self._args[0] in _LEAVE_ARTIFACTS:
                command += ["--artifacts", str(artifacts)]
            self._logger.info("lancestat %s", " ".join([*self._args, *selectors]))
            with printed.open("wb") as stdout:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=subprocess.PIPE,
                    encoding="utf-8",
                    errors="replace",
                )
            try:
                assert process.stderr is not None
                yield from self._logged(process.stderr)
                self._exit_code = process.wait()
            finally:
                _stop(process)
            for path in artifacts.glob("*.json"):
                self._artifacts[path.name] = json.loads(path.read_text("utf-8"))
            self._output = json.loads(printed.read_text("utf-8") or "{}")

    def _logged(self, lines: IO[str]) -> Iterator[Event]:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                # Spark's JVM writes text.
                sys.stderr.write(line)
                continue
            if text := _words(event):
                self._logger.log(logging.getLevelName(event["level"].upper()), text)
            yield event

    def _materialized(self, key: dg.AssetKey, result: Result) -> dg.MaterializeResult[Any]:
        metadata = {f"lancestat/{name}": result.get(name) for name in _FIGURES}
        metadata["lancestat/reasons"] = ", ".join(result["reasons"])
        metadata["dagster/row_count"] = result["rows_total"]
        if result["kind"] == "table":
            metadata["dagster/column_schema"] = self._column_schema(result["name"])
        return dg.MaterializeResult(
            key, metadata={name: value for name, value in metadata.items() if value is not None}
        )

    @cached_property
    def _project(self) -> Project:
        return self._resource.load_project()

    def _column_schema(self, table: str) -> dg.TableSchema | None:
        try:
            types = self._project.show(table).types
        except LancestatError as error:
            self._logger.warning("%s: its columns are not known: %s", table, error.message)
            return None
        return dg.TableSchema([dg.TableColumn(name, type) for name, type in types.items()])

    def _raise_for_errors(self) -> None:
        """Raise an exception if the command failed before it came to a node."""
        if self.is_successful() or "nodes" in self._output:
            return
        errors = self._output.get("errors", ())
        lines = [_failure_line(error) for error in errors]
        raise dg.Failure(
            "\n".join(lines) or f"lancestat ended with exit code {self._exit_code}",
            metadata={"errors": _table(errors, "code", "message", "hint")},
        )

    def _raise_for_nodes(self) -> None:
        """Raise an exception if nodes failed."""
        nodes = self._output.get("nodes", ())
        failed = [node for node in nodes if node["status"] == "error"]
        left = [node for node in nodes if node["status"] in ("skipped", "interrupted")]
        if not failed and not left:
            return
        lines = [f"{node['name']}: {_failure_line(node)}" for node in failed]
        raise dg.Failure(
            "\n".join(lines) or f"{len(left)} nodes were not run",
            metadata={
                "failed": _table(failed, "name", "code", "message", "hint"),
                "not run": _table(left, "name", "message"),
            },
        )


def _checked(
    resource: LancestatCliResource, context: dg.AssetExecutionContext
) -> Iterator[dg.AssetCheckResult]:
    """Answer the selected checks by `lancestat status`, which reads no rows."""
    keys = sorted(context.selected_asset_check_keys)
    if not keys:
        return
    names = {key.asset_key: _node_name(context, key.asset_key) for key in keys}
    status = LancestatCliInvocation(resource, ["status", *_selectors(names.values())], context)
    status.wait()._raise_for_errors()
    nodes = {node["name"]: node for node in status.get_artifact("manifest.json")["nodes"].values()}
    sources = {each["unique_id"]: each for each in status.get_artifact("sources.json")["results"]}
    for key in keys:
        node = nodes[names[key.asset_key]]
        yield checks_of(node)[key.name].result(key.asset_key, node, sources[node["unique_id"]])


def _stop(process: subprocess.Popen[str]) -> None:
    """Let a process that still runs record how far it got, as Ctrl-C does."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stderr is not None:
        process.stderr.close()


def _node_name(context: dg.AssetExecutionContext, key: dg.AssetKey) -> str:
    name: str = context.assets_def.metadata_by_key[key][NODE_METADATA_KEY]
    return name


def _selectors(names: Iterable[str]) -> list[str]:
    return [word for name in sorted(set(names)) for word in ("--select", name)]


def _words(event: Event) -> str | None:
    """Return what an event says in a line, None where it says too little to be one."""
    match event.get("event"):
        case "stage" if not event["rows_done"]:
            return f"{event['node']}: {event['stage']}"
        case "node_finished":
            return _result_words(event["result"])
        case "finding":
            return f"{event['node']}: check {event['check']}: {event['detail']}"
        case None | "warning" | "cancelling":
            return str(event.get("message", "cancelling"))
        case _:
            return None


def _result_words(result: Result) -> str:
    match result["status"]:
        case "success":
            words = f"{result['action']}, {', '.join(result['reasons'])}"
        case "error":
            words = _failure_line(result)
        case status:
            words = f"{status}, {result['message']}"
    return f"{result['name']}: {words}"


def _failure_line(failure: Result) -> str:
    hint = f" (hint: {failure['hint']})" if failure["hint"] else ""
    return f"{failure['code']}  {failure['message']}{hint}"


def _table(rows: Sequence[Result], *columns: str) -> dg.TableMetadataValue:
    return dg.MetadataValue.table(
        [dg.TableRecord({name: row[name] or "" for name in columns}) for row in rows],
        dg.TableSchema([dg.TableColumn(name) for name in columns]),
    )
