"""The resource that starts lancestat."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import dagster as dg
from lancestat import Project
from pydantic import Field

from dagster_lancestat.invocation import LancestatCliInvocation


class LancestatCliResource(dg.ConfigurableResource["LancestatCliResource"]):
    """Starts lancestat's command line in a process of its own, on a project under a target.

    The process has Spark's JVM, and ends when the Dagster run is terminated. Its environment is
    that of Dagster, from which the project takes its secrets.
    """

    project_dir: str = Field(description="The folder that contains `lancestat_project.yml`.")
    target: str | None = Field(
        default=None, description="One of the project's targets; the default is the project's."
    )
    vars: dict[str, Any] = Field(
        default_factory=dict, description="Values that override the project's `vars`."
    )

    def load_project(self) -> Project:
        """Return the project, under the resource's target and variables."""
        return Project.load(self.project_dir, self.target, self.vars)

    def cli(
        self, args: Sequence[str], *, context: dg.AssetExecutionContext | None = None
    ) -> LancestatCliInvocation:
        """Prepare a command, which starts when its result is asked for.

        Args:
            args: The command and its options, such as `["run", "--threads", "4"]`. `stream`
                adds the nodes of the assets that the context runs, as `--select`.
            context: The context of assets made by `lancestat_assets`. It also gets the log.
        """
        return LancestatCliInvocation(self, args, context)

    def options(self) -> list[str]:
        """Return the options of the command line that name the project."""
        options = ["--project-dir", self.project_dir]
        if self.target is not None:
            options += ["--target", self.target]
        if self.vars:
            options += ["--vars", json.dumps(self.vars)]
        return options
