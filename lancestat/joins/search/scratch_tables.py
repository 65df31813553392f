"""Lance datasets in scratch that tasks write in fragments, and read by ranges of rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from lancestat.errors import PartitionsLost, ScratchUnusable
from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.lake.files import store_options
from lancestat.redact import redact_line, secret_values

if TYPE_CHECKING:
    import lance


def write_fragments(
    table: pa.Table | pa.RecordBatchReader,
    rows: int,
    uri: str,
    storage_options: Mapping[str, str],
    mode: Literal["create", "append"] = "create",
) -> list[str]:
    """Write so many rows as one fragment of a dataset, and return it as JSON.

    Nothing is committed.
    """
    import lance

    try:
        fragments = lance.fragment.write_fragments(
            table,
            uri,
            mode=mode,
            max_rows_per_file=rows,
            max_bytes_per_file=2**40,
            # Later ones copy vectors row by row, which takes three times as long.
            data_storage_version="2.0",
            storage_options=store_options(uri, storage_options),
        )
    except Exception as error:
        raise scratch_unusable(error, storage_options) from error
    return [json.dumps(fragment.to_json()) for fragment in fragments]


def commit_fragments(
    fragments: Sequence[str], uri: str, schema: pa.Schema, storage_options: Mapping[str, str]
) -> lance.LanceDataset:
    """Commit fragments as a dataset, and return it."""
    import lance

    made = [lance.FragmentMetadata.from_json(text) for text in fragments]
    operation = lance.LanceOperation.Overwrite(schema, made)
    options = store_options(uri, storage_options)
    try:
        return lance.LanceDataset.commit(uri, operation, storage_options=options)
    except Exception as error:
        raise scratch_unusable(error, storage_options) from error


def scan_rows(
    dataset: lance.LanceDataset,
    fragment_id: int,
    start: int,
    rows: int,
    columns: Sequence[str],
    storage_options: Mapping[str, str],
) -> pa.Table:
    """Return columns of consecutive rows of a fragment."""
    fragment = dataset.get_fragment(fragment_id)
    if fragment is None:
        raise PartitionsLost(f"scratch at {dataset.uri} has lost fragment {fragment_id}")
    try:
        table = fragment.scanner(columns=list(columns), offset=start, limit=rows).to_table()
    except BaseException as error:
        if not is_error_or_panic(error) or isinstance(error, MemoryError):
            raise
        reason = redact_line(f"{type(error).__name__}: {error}", secret_values(storage_options))
        raise PartitionsLost(f"scratch at {dataset.uri} cannot be read: {reason}") from None
    if table.num_rows != rows:
        raise PartitionsLost(f"scratch at {dataset.uri} has lost rows of fragment {fragment_id}")
    return table


def scratch_unusable(error: Exception, storage_options: Mapping[str, str]) -> ScratchUnusable:
    """The error for what cannot be written to scratch."""
    reason = redact_line(f"{type(error).__name__}: {error}", secret_values(storage_options))
    return ScratchUnusable(
        f"the right side cannot be laid out in scratch: {reason}",
        hint="see that the scratch folder has room and may be written",
    )
