"""Finds rows of a stored table while others clean it up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from lancestat.state.failure import is_lance_failure
from lancestat.state.stored_table import StoredTable

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

Found = TypeVar("Found")
Found_co = TypeVar("Found_co", covariant=True)


class Search(Protocol[Found_co]):
    """What is looked for; it takes note of what it finds."""

    @property
    def missing(self) -> Collection[object]:
        """What was not found yet."""

    def found_in(self, batch: pa.RecordBatch) -> Iterator[Found_co]:
        """What a batch holds of it."""


def find(
    stored: StoredTable,
    search: Search[Found],
    batches: Callable[[LanceDataset], Iterator[pa.RecordBatch]],
) -> Iterator[Found]:
    """Yield what is found in batches of the latest version.

    When a clean-up takes files away under the scan, what is still missing is read from the latest
    version then.

    Args:
        stored: Where to look; it is told of failures.
        search: What to look for.
        batches: Reads a version for what is missing at that moment.
    """
    if search.missing:
        complete = yield from _scan(stored, search, batches, last=False)
        if not complete:
            yield from _scan(stored, search, batches, last=True)


def _scan(
    stored: StoredTable,
    search: Search[Found],
    batches: Callable[[LanceDataset], Iterator[pa.RecordBatch]],
    *,
    last: bool,
) -> Generator[Found, None, bool]:
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
        yield from search.found_in(batch)
