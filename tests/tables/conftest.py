from __future__ import annotations

from tests.runs.conftest import world

__all__ = ["world"]
