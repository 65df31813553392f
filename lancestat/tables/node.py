"""Tables as a kind of node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableNodes:
    """Tables, whose statistics are kept up to date."""

    def figures_of(self, stored: Mapping[str, object]) -> None:
        return None
