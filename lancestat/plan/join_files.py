"""Sides of joins that are files of some format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.knn.work import SideWork
from lancestat.lake.clean import clean, secret_values
from lancestat.lake.files import ListedFile, files_digest, list_files
from lancestat.lake.store_files import list_store_files
from lancestat.lake.uri import local_path
from lancestat.plan.join_columns import Place, check_columns
from lancestat.plan.join_input import JoinInput
from lancestat.spec.model import KnnSide

if TYPE_CHECKING:
    import pyarrow as pa

# Formats of plain files, whose readers pass over what is hidden.
_PLAIN = frozenset({"parquet", "csv", "json", "orc", "text", "avro", "xml", "binaryfile"})
# Footers of so many files are read to count rows; of more, a run counts.
_FOOTERS = 256


def look_into(
    place: Place, side: KnnSide, uri: str, format: str, storage_options: Mapping[str, str]
) -> JoinInput:
    """What a side of files is now, as far as a listing tells.

    Raises:
        UsageError: LS454 or LS455 about columns (`check_columns`), LS457 there are no files.
    """
    shown = clean(uri, secret_values(side.options))
    work = SideWork(side.vector, side.select, format=format, uri=uri, options=side.options)
    is_plain = format.lower() in _PLAIN
    is_local = local_path(uri) is not None
    files: Sequence[ListedFile] | None = None
    if is_plain:
        files = list_files(uri) if is_local else list_store_files(uri, storage_options)
    if not files:
        if is_plain and is_local:
            raise place.error("LS457", f"{place} has no files at {shown}")
        # Other sources may read anything, wherever their path leads.
        note = f"whether the {place.side} side has changed cannot be told from {shown}"
        return JoinInput(work, None, columns=side.select, notes=(note,))
    rows = dimension = None
    if is_local and format.lower() == "parquet":
        rows, dimension = _footers(place, side, shown, files)
    return JoinInput(work, files_digest(files), None, side.select, rows, dimension)


def _footers(
    place: Place, side: KnnSide, uri: str, files: Sequence[ListedFile]
) -> tuple[int | None, int | None]:
    """Rows and the vectors' length, None where footers do not tell."""
    import pyarrow as pa
    from pyarrow import parquet

    if len(files) > _FOOTERS:
        return None, None
    try:
        found = [parquet.ParquetFile(file.path) for file in files]
        schemas = [each.schema_arrow for each in found]
        rows = sum(each.metadata.num_rows for each in found)
    except (OSError, ValueError, pa.ArrowException):
        # What is wrong with the files is Spark's to say.
        return None, None
    # Names of folders make columns too, and files may differ: then a run looks closer.
    is_partitioned = any("=" in part for file in files for part in Path(file.path).parts)
    if is_partitioned or any(not schema.equals(schemas[0]) for schema in schemas):
        return rows, None
    return rows, check_columns(place, side, uri, _types(schemas[0]))


def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in schema}
