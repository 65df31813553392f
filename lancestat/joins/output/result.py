"""Results of joins, replaced so that readers see the old one or the new one, never a part."""

from __future__ import annotations

from collections.abc import Mapping

from lancestat.joins.output.lance_output import LanceOutput
from lancestat.joins.output.parquet_output import ParquetOutput
from lancestat.joins.output.writer import OutputWriter
from lancestat.joins.record import OutputFormat

Output = LanceOutput | ParquetOutput


def output_at(format: OutputFormat, uri: str, options: Mapping[str, str]) -> Output:
    """Return the output at a location, which is not looked at."""
    return (LanceOutput if format is OutputFormat.LANCE else ParquetOutput)(uri, options)


def output_of(writer: OutputWriter) -> Output:
    """Return the output that a writer has begun to write."""
    return output_at(writer.format, writer.uri, writer.storage_options)
