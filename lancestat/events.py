"""What happens in a run, for hooks and for `on_event` of `Project.run`."""

from lancestat.runs.events import (
    Cancelling,
    Event,
    FragmentsRead,
    NodeFinished,
    NodeStarted,
    RunFinished,
    RunStarted,
    StageReached,
    TableToRead,
    Warned,
)

__all__ = [
    "Cancelling",
    "Event",
    "FragmentsRead",
    "NodeFinished",
    "NodeStarted",
    "RunFinished",
    "RunStarted",
    "StageReached",
    "TableToRead",
    "Warned",
]
