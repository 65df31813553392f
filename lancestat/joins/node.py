"""KNN joins as a kind of node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lancestat.joins.action import JoinFigures


@dataclass(frozen=True, slots=True)
class JoinNodes:
    """KNN joins, whose results are kept up to date."""

    def figures_of(self, stored: Mapping[str, object]) -> JoinFigures:
        return JoinFigures.from_json(stored)
