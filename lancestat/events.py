"""What happens in a run, for hooks and for `on_event` of `Project.run`."""

# ruff: noqa: F403
from lancestat.runs.events import *
