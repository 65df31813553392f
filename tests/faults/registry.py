"""All commands, by the name under which they are counted."""

from __future__ import annotations

from tests.faults.commands import (
    Command,
    Docs,
    Init,
    JoinCommit,
    PlanOut,
    Retry,
    Run,
    SchemaOut,
    Sweep,
)
from tests.faults.comments import Comment

COMMANDS: dict[str, type[Command]] = {
    "run": Run,
    "run of joins": JoinCommit,
    "retry": Retry,
    "gc": Sweep,
    "docs": Docs,
    "plan --out": PlanOut,
    "init": Init,
    "schema --out": SchemaOut,
    "comment": Comment,
}
