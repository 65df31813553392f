"""Operators that run commands of lancestat."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.sdk import Asset, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from airflow_provider_lancestat.checks import Answer, answers
from airflow_provider_lancestat.invocation import (
    Ended,
    LancestatInvocation,
    Result,
    failure_line,
    project_options,
    selectors,
)
from airflow_provider_lancestat.links import LancestatPagesLink

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

Selector = str | Sequence[str] | None

_FIGURES = (
    *("status", "action", "reasons", "elapsed_seconds", "rows_total", "rows_scanned"),
    *("version_published", "strategy", "left_rows", "right_rows", "recall"),
)


class LancestatOperator(BaseOperator):
    """Runs a command of lancestat in a process of its own, on the selected nodes of a project.

    The task's log has a line for each thing that happens, also while the command runs. SIGTERM is
    passed on, so that a task that is cleared or times out leaves what it has done so far.

    Args:
        project_dir: The folder that contains `lancestat_project.yml`.
        select: Selectors of nodes, as for `--select`; None and an empty one select all.
        exclude: Selectors of nodes to leave out.
        target: One of the project's targets; None is the project's default.
        vars: Values that override the project's `vars`.
        options: Further options of the command, such as `["--threads", "4"]`. What a template
            renders to nothing is left out.
        env: Environment variables, beside those of the worker. They are templates, whose values
            Airflow does not store.
        executable: The path of `lancestat` in an environment of its own; None is the lancestat of
            Airflow's Python.
        docs_url: Where the pages of `lancestat docs` are served, for a link.
    """

    template_fields: Sequence[str] = (
        *("project_dir", "select", "exclude", "target", "vars", "options"),
        *("executable", "docs_url"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"vars": "json"}
    operator_extra_links = (LancestatPagesLink(),)
    ui_color = "#e8f0e4"

    def __init__(
        self,
        *,
        project_dir: str,
        select: Selector = None,
        exclude: Selector = None,
        target: str | None = None,
        vars: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        executable: str | None = None,
        docs_url: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.project_dir = project_dir
        self.select = select
        self.exclude = exclude
        self.target = target
        self.vars = vars
        self.options = options
        self.env = env
        self.executable = executable
        self.docs_url = docs_url
        self._invocation: LancestatInvocation | None = None
        self._ended: Ended | None = None

    def on_kill(self) -> None:
        if self._invocation is not None:
            self._invocation.terminate()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Return the datasets that the nodes of the task read and wrote."""
        # Airflow's provider for OpenLineage, which calls this, is not always there.
        from airflow_provider_lancestat.lineage import lineage_of

        artifacts = self._ended.artifacts if self._ended is not None else {}
        return lineage_of(artifacts)

    def _invoke(self, context: Context, *command: str) -> Ended:
        """Run a command to its end, and return how it ended once it has come to nodes.

        Raises:
            AirflowException: It failed before that. The message has the code and a hint.
        """
        words = [
            *command,
            *selectors("--select", self.select),
            *selectors("--exclude", self.exclude),
            *(str(option) for option in self.options if option not in ("", None)),
        ]
        self.log.info("lancestat %s", " ".join(words))
        start = [self.executable] if self.executable else [sys.executable, "-m", "lancestat"]
        env: Mapping[str, str] = self.render_template(self.env or {}, context)
        words += project_options(self.project_dir, self.target, self.vars)
        self._invocation = LancestatInvocation([*start, *words], env, self.log)
        self._ended = ended = self._invocation.run()
        if ended.failure is not None:
            raise AirflowException(ended.failure)
        return ended


class LancestatRunOperator(LancestatOperator):
    """Brings statistics and results of joins up to date by `lancestat run`.

    Its result is how each node ended; assets among its `outlets` get it as the event's extra. What
    is up to date is skipped by lancestat, so that a retry runs what failed.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the nodes, and return how each ended.

        Raises:
            AirflowException: A node failed or was not run. The message has the code, the message
                and the hint of each failed node.
        """
        ended = self._invoke(context, "run")
        _raise_for_nodes(ended)
        results: dict[str, Any] = {
            node["name"]: {
                name: node[name] for name in _FIGURES if node.get(name) not in (None, [])
            }
            for node in ended.nodes
        }
        for outlet in (each for each in self.outlets if isinstance(each, Asset)):
            context["outlet_events"][outlet].extra = {"lancestat": results}
        return results


class LancestatPlanOperator(LancestatOperator):
    """Finds out by `lancestat plan` what a run would do. Datasets are opened, no rows are read.

    Args:
        skip_when: When the task ends as skipped, and with it what is downstream: if all is
            `up_to_date`, or if changes are `pending`; None never.
    """

    def __init__(
        self, *, skip_when: Literal["up_to_date", "pending"] | None = "up_to_date", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if skip_when not in ("up_to_date", "pending", None):
            raise ValueError(f"skip_when is 'up_to_date', 'pending' or None, not {skip_when!r}")
        self.skip_when = skip_when

    def execute(self, context: Context) -> dict[str, dict[str, Any]]:
        """Plan the nodes, and return what a run would do with each, and why.

        Raises:
            AirflowException: A node cannot be planned.
            AirflowSkipException: All is as `skip_when` says.
        """
        ended = self._invoke(context, "plan", "--check")
        _raise_for_nodes(ended)
        plan = {
            node["name"]: {"action": node["action"], "reasons": node["reasons"]}
            for node in ended.nodes
        }
        for name, planned in plan.items():
            self.log.info("%s: %s, %s", name, planned["action"], ", ".join(planned["reasons"]))
        state = "pending" if ended.exit_code == _PENDING else "up_to_date"
        if state == self.skip_when:
            raise AirflowSkipException(
                "changes are pending" if state == "pending" else "there is nothing to do"
            )
        return plan


class LancestatCheckOperator(LancestatOperator):
    """Answers checks of statistics, freshness, recall, expectations and monitors.

    `lancestat status` answers them, which reads no rows and starts no Spark.
    """

    def execute(self, context: Context) -> dict[str, dict[str, str]]:
        """Answer all checks of the nodes, and return what each found.

        Raises:
            AirflowException: A check of severity error failed. The message says which, and why.
        """
        ended = self._invoke(context, "status")
        nodes = ended.artifacts["manifest.json"]["nodes"]
        found: dict[str, list[Answer]] = {}
        for source in ended.artifacts["sources.json"]["results"]:
            node = nodes[source["unique_id"]]
            found[node["name"]] = [*answers(node, source)]
        failed = []
        for name, answer in ((name, each) for name, group in found.items() for each in group):
            line = f"{name}: {answer.name}: {answer.detail}"
            if answer.passed:
                self.log.info("passed  %s", line)
            elif answer.severity == "warn":
                self.log.warning("warn    %s", line)
            else:
                self.log.error("failed  %s", line)
                failed.append(line)
        if failed:
            total = sum(map(len, found.values()))
            raise AirflowException("\n".join([f"{len(failed)} of {total} checks failed", *failed]))
        return {
            name: {answer.name: "passed" if answer.passed else "warn" for answer in group}
            for name, group in found.items()
        }


# The exit code of `plan --check`.
_PENDING = 3


def _raise_for_nodes(ended: Ended) -> None:
    """Raise an exception if nodes failed or were left."""
    failed = [node for node in ended.nodes if node["status"] == "error"]
    left = [node for node in ended.nodes if node["status"] in ("skipped", "interrupted")]
    if not failed and not left and ended.exit_code in (0, _PENDING):
        return
    lines = [_node_line(node) for node in failed]
    lines += [f"{node['name']}: {node['status']}, {node['message']}" for node in left]
    raise AirflowException("\n".join(lines) or f"lancestat ended with code {ended.exit_code}")


def _node_line(node: Result) -> str:
    return f"{node['name']}: {failure_line(node)}"
