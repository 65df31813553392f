"""One thing that `debug` looks at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """What was found of a subject, and what to do when it is not as it should be."""

    subject: str
    passed: bool
    finding: str
    advice: str | None = None
