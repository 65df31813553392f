"""The task group of a project: a task for each node, in the order of what they read."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import TaskGroup
from airflow.sdk.exceptions import AirflowException

from airflow_provider_lancestat.assets import brought_up_to_date_by, read_by
from airflow_provider_lancestat.checks import Node, has_checks
from airflow_provider_lancestat.invocation import project_options, selectors
from airflow_provider_lancestat.operators import (
    LancestatCheckOperator,
    LancestatRunOperator,
    Selector,
)

if TYPE_CHECKING:
    from lancestat import Project

Manifest = Mapping[str, Any]
"""The content of lancestat's `manifest.json`."""

_NOT_IN_IDS = re.compile(r"[^\w.-]")


@dataclass(frozen=True)
class ProjectConfig:
    """Which project it is.

    Args:
        project_dir: The folder that contains `lancestat_project.yml`.
        manifest: A `manifest.json` of the project, as `lancestat plan` leaves it. Without one,
            lancestat loads the project each time that Airflow reads the DAG's file.
        vars: Values that override the project's `vars`.
    """

    project_dir: str | Path
    manifest: str | Path | None = None
    vars: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TargetConfig:
    """Where and with what the project runs.

    Args:
        target: One of the project's targets; None is the project's default.
        env: Environment variables of lancestat, as templates.
        executable: The path of `lancestat` in an environment of its own; None is the lancestat of
            Airflow's Python.
    """

    target: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    executable: str | None = None


@dataclass(frozen=True)
class RenderConfig:
    """Which tasks there are.

    Args:
        select: Selectors of nodes, as for `--select`; None selects all.
        exclude: Selectors of nodes to leave out.
        checks: Whether nodes have a task that checks them after their run. It does not keep others
            waiting.
        docs_url: Where the pages of `lancestat docs` are served, for links.
    """

    select: Selector = None
    exclude: Selector = None
    checks: bool = True
    docs_url: str | None = None


class LancestatTaskGroup(TaskGroup):
    """A task for each node of a project, which runs after those whose results the node reads.

    A node with checks is a group of the tasks `run` and `check`; other nodes are a task alone.
    Retries, pools and the like of the tasks are `default_args` of the group.

    Args:
        group_id: The name of the group.
        project_config: Which project it is.
        target_config: Where and with what it runs.
        render_config: Which tasks there are.
        run_options: Further options of `lancestat run`.
        kwargs: Arguments of Airflow's TaskGroup.

    Raises:
        FileNotFoundError: There is no such manifest.
        ModuleNotFoundError: There is no manifest, and lancestat is not installed beside Airflow.
        LancestatError: The project is invalid, or a selector matches nothing.
        AirflowException: The same, said by another environment's lancestat.

    Example:
        ```python
        with DAG("shop", schedule="@daily"):
            LancestatTaskGroup(
                group_id="statistics",
                project_config=ProjectConfig("/srv/shop"),
                target_config=TargetConfig("prod"),
                render_config=RenderConfig(select="tag:nightly"),
                default_args={"retries": 1},
            )
        ```
    """

    def __init__(
        self,
        *,
        group_id: str,
        project_config: ProjectConfig,
        target_config: TargetConfig | None = None,
        render_config: RenderConfig | None = None,
        run_options: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(group_id=group_id, **kwargs)
        target, render = target_config or TargetConfig(), render_config or RenderConfig()
        self._options: dict[str, Any] = {
            "project_dir": str(project_config.project_dir),
            "target": target.target,
            "vars": dict(project_config.vars),
            "env": dict(target.env),
            "executable": target.executable,
            "docs_url": render.docs_url,
        }
        self._run_options = run_options
        manifest = _manifest(project_config, target)
        names = _selected(manifest, project_config, target, render)
        runs: dict[str, LancestatRunOperator] = {}
        for unique_id, node in manifest["nodes"].items():
            if node["name"] in names:
                runs[unique_id] = self._add(node, manifest, with_check=render.checks)
        for unique_id, run in runs.items():
            for parent in manifest["nodes"][unique_id]["depends_on"]["nodes"]:
                if parent in runs:
                    runs[parent] >> run

    def _add(self, node: Node, manifest: Manifest, *, with_check: bool) -> LancestatRunOperator:
        """Add the tasks of a node, and return the one that runs it."""
        has_check = with_check and has_checks(node)
        name = _NOT_IN_IDS.sub("_", node["name"])
        group = TaskGroup(group_id=name, parent_group=self) if has_check else self
        options = {**self._options, "select": node["name"], "task_group": group, "dag": self.dag}
        run = LancestatRunOperator(
            task_id="run" if has_check else name,
            options=self._run_options,
            inlets=read_by(node, manifest["nodes"]),
            outlets=brought_up_to_date_by(manifest["metadata"]["project"], node),
            doc_md=node["description"],
            **options,
        )
        if has_check:
            run >> LancestatCheckOperator(task_id="check", **options)
        return run


def _manifest(project: ProjectConfig, target: TargetConfig) -> Manifest:
    """Return what `manifest.json` has of the nodes of a project."""
    if project.manifest is None:
        return _project(project, target).manifest()
    path = Path(project.manifest)
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}: `lancestat plan` writes it")
    manifest: Manifest = json.loads(path.read_text("utf-8"))
    return manifest


def _selected(
    manifest: Manifest, project: ProjectConfig, target: TargetConfig, render: RenderConfig
) -> Set[str]:
    """Return the names of the nodes that are selected."""
    if not render.select and not render.exclude:
        return {node["name"] for node in manifest["nodes"].values()}
    if target.executable is not None:
        return _listed(target.executable, project, target, render)
    return {node.name for node in _project(project, target).nodes(render.select, render.exclude)}


def _listed(
    executable: str, project: ProjectConfig, target: TargetConfig, render: RenderConfig
) -> Set[str]:
    """Ask `lancestat list` of another environment which nodes are selected."""
    options = [*selectors("--select", render.select), *selectors("--exclude", render.exclude)]
    options += project_options(str(project.project_dir), target.target, project.vars)
    command = [executable, "list", *options, "--output", "json"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if ended.returncode != 0:
        raise AirflowException(ended.stderr.strip())
    return {node["name"] for node in json.loads(ended.stdout)["nodes"]}


def _project(project: ProjectConfig, target: TargetConfig) -> Project:
    """Load a project by lancestat itself, which is not always installed beside Airflow."""
    try:
        from lancestat import Project
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "lancestat is not installed beside Airflow: pass the path of a manifest.json as "
            "`manifest`, and that of lancestat as `executable`"
        ) from error
    return Project.load(project.project_dir, target.target, project.vars)
