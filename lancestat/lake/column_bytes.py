"""How many bytes on disk each column really takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancestat.lake.open import readable

if TYPE_CHECKING:
    import lance


def column_bytes(dataset: lance.LanceDataset) -> dict[int, int]:
    """Bytes on disk by field id, nested fields by themselves, from the footers of all data files.

    Opens every data file, so it is not for planning; `width.estimated_bytes` is.

    Raises:
        LakeError: When a data file cannot be opened.
    """
    with readable(dataset.uri):
        return {field.id: field.bytes_on_disk for field in dataset.stats.data_stats().fields}
