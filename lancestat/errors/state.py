"""LS3xx: errors of the state."""

from __future__ import annotations

from lancestat.errors.base import StateError


class StateUnreachable(StateError, code="LS301"):
    """The target's state cannot be read or written."""

    remedy = "Check the target's `state`, its `storage_options` and the permissions there."


class StateContended(StateError, code="LS302"):
    """The state could not be written because other runs kept committing first."""

    remedy = "Run again, with fewer concurrent runs on the same state."
