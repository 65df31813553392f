"""Searches through the latest version of what is stored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from lancestat.state.failure import is_lance_failure
from lancestat.state.stored_table import StoredTable

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class ItemSearch(Protocol[Item_co]):
    """A search through batches, which remembers what it has found."""

    @property
    def missing(self) -> Collection[object]:
        """The items that were not found yet."""

    def items_in(self, batch: pa.RecordBatch) -> Iterator[Item_co]:
        """Yield the items that a batch holds."""


def find(
    stored: StoredTable,
    search: ItemSearch[Item],
    batches: Callable[[LanceDataset], Iterator[pa.RecordBatch]],
) -> Iterator[Item]:
    """Yield the items that a search finds in batches of the latest version.

    When a clean-up takes files away under the scan, what is still missing is read from the latest
    version then.

    Args:
        stored: The table to search; failures are reported to it.
        search: What to look for.
        batches: Reads a version for what is missing at that moment.
    """
    if search.missing:
        complete = yield from _scan(stored, search, batches, last=False)
        if not complete:
            yield from _scan(stored, search, batches, last=True)


def _scan(
    stored: StoredTable,
    search: ItemSearch[Item],
    batches: Callable[[LanceDataset], Iterator[pa.RecordBatch]],
    *,
    last: bool,
) -> Generator[Item, None, bool]:
    dataset = stored.dataset(latest=True)
    if dataset is None:
        return True
    reading = batches(dataset)
    while True:
        try:
            batch = next(reading, None)
        except BaseException as error:
            if is_lance_failure(error) and not last:
                return False
            stored.fail(error)
            return True
        if batch is None:
            return True
        yield from search.items_in(batch)
