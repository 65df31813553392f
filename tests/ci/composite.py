"""Runs the scripts of action.yml in order, each with the environment that its step declares."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Values = Callable[[str], str]

# The conditions of steps as action.yml has them, and when each holds. Another one is a KeyError.
CONDITIONS: Mapping[str | None, Callable[[Values], bool]] = {
    None: lambda value: True,
    "inputs.base != '' || github.base_ref != ''": lambda value: (
        value("inputs.base") != "" or value("github.base_ref") != ""
    ),
    "steps.diff.outputs.markdown-file != '' && inputs.comment == 'true' "
    "&& github.event.pull_request": lambda value: (
        value("steps.diff.outputs.markdown-file") != ""
        and value("inputs.comment") == "true"
        and value("github.event.pull_request") != ""
    ),
    "steps.diff.outputs.status == '3'": lambda value: value("steps.diff.outputs.status") == "3",
}
_EXPRESSION = re.compile(r"\$\{\{ *(.*?) *\}\}")
# What GitHub gives every step; nothing else of this process reaches one.
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR")


@dataclass
class Ran:
    """The exit code, log and outputs of a job."""

    code: int = 0
    steps: list[str] = field(default_factory=list)
    log: str = ""
    summary: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    environments: dict[str, dict[str, str]] = field(default_factory=dict)


def run_action(
    action: Mapping[str, Any],
    known: Mapping[str, str],
    environment: Mapping[str, str],
    *,
    work_tree: Path,
    temporary: Path,
) -> Ran:
    """Run an action.

    Args:
        action: The parsed action.yml.
        known: By expression, the values that inputs, `github` and `uses` steps have.
        environment: What the job gives every step.
        work_tree: The folder in which steps start.
        temporary: The folder for the files of steps.
    """
    ran = Ran()
    values = dict(known)

    def value(name: str) -> str:
        # A step that has not run, or that left no such output, has empty ones.
        return values.get(name, "") if name.startswith("steps.") else values[name]

    def text(template: str) -> str:
        return _EXPRESSION.sub(lambda match: value(match[1]), template)

    for name, about in action["inputs"].items():
        values.setdefault(f"inputs.{name}", text(about.get("default", "")))
    for step in action["runs"]["steps"]:
        if ran.code or "run" not in step or not CONDITIONS[step.get("if")](value):
            continue
        name = step["id"]
        script, output, summary = (
            temporary / f"{name}.{kind}" for kind in ("sh", "output", "summary")
        )
        script.write_text(step["run"])
        output.touch()
        summary.touch()
        ran.steps.append(name)
        own = ran.environments[name] = {key: text(value) for key, value in step["env"].items()}
        assert step["shell"] == "bash"
        completed = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
            cwd=work_tree,
            env={
                **{key: os.environ[key] for key in _KEPT if key in os.environ},
                "GITHUB_ACTIONS": "true",
                "GITHUB_BASE_REF": value("github.base_ref"),
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(summary),
                "GITHUB_WORKSPACE": str(work_tree),
                "RUNNER_TEMP": str(temporary),
                **environment,
                **own,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        ran.code = completed.returncode
        ran.log += completed.stdout
        ran.summary += summary.read_text()
        for line in output.read_text().splitlines():
            key, _, given = line.partition("=")
            values[f"steps.{name}.outputs.{key}"] = given
    ran.outputs = {name: text(output["value"]) for name, output in action["outputs"].items()}
    return ran
