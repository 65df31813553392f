"""Counts of trials and their outcomes."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

KINDS = ("kills", "full disks", "stores", "clocks", "crowds")


@dataclass(frozen=True)
class Trial:
    """One fault; `repr` of its name seeds all that is random about it."""

    kind: str
    command: str
    seed: int
    number: int

    @property
    def rng(self) -> random.Random:
        """All chance of this trial."""
        return random.Random(f"{self.kind}/{self.command}/{self.seed}/{self.number}")

    @property
    def repeat(self) -> str:
        """The options that try this again, and nothing else."""
        kind, command = self.kind.replace(" ", "-"), self.command
        return f"--repeat '{kind}/{command}/{self.number}' --seed {self.seed}"


@dataclass(frozen=True)
class Result:
    """The outcome of a trial: whether the fault struck before the command ended, and problems."""

    kind: str
    command: str
    effective: bool
    problems: tuple[str, ...] = ()
    repeat: str = ""
    seconds: float = 0.0


def table(results: Iterable[Result]) -> str:
    """Counts per kind and command, as Markdown."""
    rows: dict[tuple[str, str], list[int]] = {}
    for result in results:
        for key in ((result.kind, result.command), (result.kind, "")):
            counts = rows.setdefault(key, [0, 0, 0])
            counts[0] += 1
            counts[1] += result.effective
            counts[2] += bool(result.problems)
    lines = ["| fault | command | injected | effective | findings |", "|---|---|--:|--:|--:|"]
    for kind in KINDS:
        of_kind = sorted(key for key in rows if key[0] == kind and key[1])
        for _, command in of_kind:
            lines.append(_line(kind, f"`{command}`", rows[kind, command]))
        if of_kind:
            lines.append(_line(f"**{kind}**", "all", rows[kind, ""]))
    return "\n".join(lines) + "\n"


def _line(kind: str, command: str, counts: list[int]) -> str:
    return f"| {kind} | {command} | " + " | ".join(f"{count:,}" for count in counts) + " |"
