"""The number of rows of a fragment."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import lance


def count_rows(fragment: lance.LanceFragment, filter: str | None = None) -> int:
    """Return the number of live rows, or of those that pass a filter in Lance's SQL.

    `LanceFragment.count_rows` holds Python's lock while it waits for what it reads, and blocks for
    ever where other threads scan at the same time.
    """
    return int(fragment.scanner(columns=[], filter=filter, with_row_id=True).count_rows())
