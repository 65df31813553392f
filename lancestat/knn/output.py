"""Writing a join's result so that readers see the old one or the new one, never a part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lancestat.knn.work import OutputFormat, OutputState

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Written:
    """What one task wrote, not yet visible: `content` is understood by the output alone."""

    content: str
    rows: int


@dataclass(frozen=True, slots=True)
class OutputWriter:
    """Where tasks write to; travels to Spark's workers.

    `folder` is where uncommitted files go.
    """

    format: OutputFormat
    uri: str
    folder: str
    storage_options: Mapping[str, str] = field(repr=False)

    def write(self, number: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write the rows of piece `number` of the result; a repeated attempt does no harm."""
        raise NotImplementedError


def begin(
    format: OutputFormat, uri: str, run_id: str, storage_options: Mapping[str, str]
) -> OutputWriter:
    """Make room for a result.

    Raises:
        RunError: something else is at that place, which is not touched.
    """
    raise NotImplementedError


def replace(writer: OutputWriter, schema: pa.Schema, written: Sequence[Written]) -> OutputState:
    """Make the written pieces, in their order, the whole result, in one step."""
    raise NotImplementedError


def append(
    writer: OutputWriter, schema: pa.Schema, previous: OutputState, written: Sequence[Written]
) -> OutputState:
    """Make the written pieces follow the previous result, in one step."""
    raise NotImplementedError


def discard(writer: OutputWriter, written: Sequence[Written]) -> None:
    """Remove what was written and will not be committed."""
    raise NotImplementedError


def current(
    format: OutputFormat, uri: str, storage_options: Mapping[str, str]
) -> OutputState | None:
    """The result that readers see now, None when there is none."""
    raise NotImplementedError


def read_rows(
    state: OutputState, start: int, stop: int, storage_options: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Rows of a result by their places, in order."""
    raise NotImplementedError
