"""A state that counts what is read from it and written to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lancestat.lake.fingerprint import Fingerprint, schema_hash
from lancestat.lake.open import snapshot
from lancestat.query.fragments import load_groups
from lancestat.spec.model import Publish
from lancestat.state.values import (
    BlockKey,
    Decoded,
    StoredPartials,
    SummaryBlock,
    TableSummary,
    table_identity,
)
from tests.runs.world import World
from tests.state.fresh import FreshState
from tests.tables.grouped import check_whole
from tests.tables.test_history import full_values


@dataclass
class Counted(FreshState):
    """Counts partials and blocks that are read, and blocks and summaries that are written."""

    partials_read: int = 0
    blocks_read: int = 0
    blocks_written: int = 0
    summaries: list[TableSummary] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def partials(
        self,
        table: str,
        keys: Mapping[tuple[Fingerprint, ...], frozenset[str]],
        decode: Callable[[bytes], Decoded],
    ) -> Iterator[StoredPartials[Decoded]]:
        for entry in super().partials(table, keys, decode):
            self.partials_read += len(entry.partials)
            yield entry

    def summary_blocks(
        self, table: str, keys: Collection[BlockKey], decode: Callable[[bytes], Decoded]
    ) -> Iterator[SummaryBlock[Decoded]]:
        for block in super().summary_blocks(table, keys, decode):
            self.blocks_read += 1
            yield block

    def add_summary(
        self, table: str, summary: TableSummary, blocks: Iterable[SummaryBlock[bytes]]
    ) -> None:
        written = list(blocks)
        self.blocks_written += len(written)
        self.summaries.append(summary)
        super().add_summary(table, summary, written)

    def reset(self) -> None:
        self.partials_read = self.blocks_read = self.blocks_written = 0
        self.summaries.clear()


def check(world: World) -> None:
    """Check that what is published, and the groups of the state, equal one pass over the table."""
    now = snapshot(world.dataset)
    check_whole(load_groups(world.state, table_identity(str(world.path)), now), world.dataset)
    if world.publish is not Publish.NONE:
        published, expected = world.published(), full_values(world.dataset, schema_hash(now.fields))
        assert {name: published.get(name) for name in expected} == expected
