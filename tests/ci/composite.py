"""Runs a composite action as GitHub does: steps in order, expressions, environment, outputs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_EXPRESSION = re.compile(r"\$\{\{ *(.*?) *\}\}")
# What GitHub gives every step; nothing else of this process reaches one.
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR")


@dataclass
class Ran:
    """What a job left behind."""

    code: int = 0
    steps: list[str] = field(default_factory=list)
    log: str = ""
    summary: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    environments: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass
class Composite:
    """An action that is called with some inputs in some job."""

    action: Mapping[str, Any]
    action_path: Path
    work_tree: Path
    temporary: Path
    inputs: Mapping[str, str]
    github: Mapping[str, Any]
    # What `uses` steps give, by their id.
    given: Mapping[str, Mapping[str, str]]
    environment: Mapping[str, str]

    def run(self) -> Ran:
        ran = Ran()
        outputs: dict[str, Mapping[str, str]] = dict(self.given)
        defaults = {name: each.get("default", "") for name, each in self.action["inputs"].items()}
        inputs = {name: self.text(value, {}, outputs) for name, value in defaults.items()}
        inputs |= self.inputs
        for step in self.action["runs"]["steps"]:
            if "run" not in step or not self.holds(step.get("if", "true"), inputs, outputs):
                continue
            ran.steps.append(step["id"])
            outputs[step["id"]] = self.execute(step, inputs, outputs, ran)
            if ran.code:
                break
        for name, output in self.action["outputs"].items():
            ran.outputs[name] = self.text(output["value"], inputs, outputs)
        return ran

    def execute(
        self,
        step: Mapping[str, Any],
        inputs: Mapping[str, str],
        outputs: Mapping[str, Mapping[str, str]],
        ran: Ran,
    ) -> dict[str, str]:
        assert step["shell"] == "bash"
        script, output, summary = (
            self.temporary / f"{step['id']}.{kind}" for kind in ("sh", "output", "summary")
        )
        script.write_text(step["run"])
        output.touch()
        summary.touch()
        own = {key: self.text(value, inputs, outputs) for key, value in step["env"].items()}
        ran.environments[step["id"]] = own
        environment = {
            **{key: os.environ[key] for key in _KEPT if key in os.environ},
            "RUNNER_TEMP": str(self.temporary),
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.work_tree),
            "GITHUB_ACTION_PATH": str(self.action_path),
            "GITHUB_BASE_REF": self.github.get("base_ref", ""),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
            **self.environment,
            **own,
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
            cwd=self.work_tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        ran.log += done.stdout
        ran.summary += summary.read_text()
        ran.code = done.returncode
        lines = (line.partition("=") for line in output.read_text().splitlines())
        return {name: value for name, _, value in lines}

    def text(
        self, value: str, inputs: Mapping[str, str], outputs: Mapping[str, Mapping[str, str]]
    ) -> str:
        return _EXPRESSION.sub(lambda found: str(self.value(found[1], inputs, outputs)), value)

    def holds(
        self, condition: str, inputs: Mapping[str, str], outputs: Mapping[str, Mapping[str, str]]
    ) -> bool:
        """`&&` binds before `||`; there are no brackets."""
        return any(
            all(self._compares(part.strip(), inputs, outputs) for part in each.split("&&"))
            for each in condition.split("||")
        )

    def _compares(
        self, text: str, inputs: Mapping[str, str], outputs: Mapping[str, Mapping[str, str]]
    ) -> bool:
        for sign in ("==", "!="):
            left, found, right = text.partition(sign)
            if found:
                same = self.value(left.strip(), inputs, outputs) == self.value(
                    right.strip(), inputs, outputs
                )
                return same if sign == "==" else not same
        return bool(self.value(text, inputs, outputs))

    def value(
        self, name: str, inputs: Mapping[str, str], outputs: Mapping[str, Mapping[str, str]]
    ) -> Any:
        if name.startswith("'"):
            return name.strip("'")
        match name.split("."):
            case ["true"]:
                return True
            case ["inputs", key]:
                return inputs[key]
            case ["steps", step, "outputs", key]:
                return outputs.get(step, {}).get(key, "")
            case ["github", *keys]:
                found: Any = self.github
                for key in keys:
                    found = found.get(key, "") if isinstance(found, Mapping) else ""
                return found
        raise AssertionError(f"no such value: {name}")
