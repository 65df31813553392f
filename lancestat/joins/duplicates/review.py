"""Judges what a change of near-duplicates means for readers of the groups and for the next run."""

from __future__ import annotations

from collections.abc import Sequence

from lancestat.joins.review import ResultChange, join_cost
from lancestat.review.evidence import Evidence
from lancestat.runs.node import named_uris
from lancestat.spec.model import Duplicates, ProjectSpec, node_digest
from lancestat.state.values import canonical_uri


class DuplicatesChange(ResultChange):
    """Changed near-duplicates."""

    __slots__ = ()
    result = "the groups stay where they are, and nothing refreshes them any more"
    inputs, reads, compares = "the table", "the table", "compares"

    def opened_uris(self, head: ProjectSpec) -> tuple[str, ...]:
        """Return the URIs of the Lance datasets that the next run reads for the change."""
        return named_uris(head, self.new.refs, self.new.input_uris) if self.runs_again else ()

    def digest(self, node: Duplicates) -> str:
        shown = () if node.pairs_uri is None else node.select or ("*",)
        return node_digest(node.pairs_join(*shown))

    def consequence(self, names: Sequence[str]) -> str:
        if names == ["keep.order_by"]:
            return "other rows are kept"
        return "the groups have other rows"

    def moved(self) -> str | None:
        old, new = self.old, self.new
        if canonical_uri(old.output_uri) != canonical_uri(new.output_uri):
            return "the groups are written to another location, with new ids"
        if canonical_uri(old.pairs_place) != canonical_uri(new.pairs_place):
            return "the pairs are written to another location"
        return None

    def cost(self, evidence: Evidence) -> int | None:
        # Both sides are the same rows.
        cost = join_cost(self.new.pairs_join(*self.new.on), evidence)
        return None if cost is None else cost // 2
