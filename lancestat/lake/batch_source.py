"""Streams of batches that keep their own exceptions, which their readers would replace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class BatchSource:
    """A stream of one schema that counts its rows and keeps the exception raised inside it."""

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        self.schema = schema
        self.rows = 0
        self._batches = iter(batches)
        self._only: pa.RecordBatch | None = None
        self._taken = 0
        self._error: BaseException | None = None

    def reader(self) -> pa.RecordBatchReader:
        """Return the stream, to be read once, or again after `rewind`."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, self)

    def rewind(self) -> bool:
        """Start again, which is possible while no more than one batch was taken."""
        if self._taken > 1 or self._error is not None:
            return False
        if self._only is not None:
            self._batches = chain([self._only], self._batches)
        self._taken = self.rows = 0
        return True

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                self.rows += batch.num_rows
                self._taken += 1
                self._only = batch if self._taken == 1 else None
                yield _conform(batch, self.schema)
        except GeneratorExit:
            raise
        except BaseException as error:
            self._error = error
            raise

    @contextmanager
    def own_errors(self) -> Iterator[None]:
        """Raise the stream's own error instead of the one that its reader made of it."""
        try:
            yield
        except BaseException:
            if self._error is not None:
                raise self._error from None
            raise


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    if batch.schema.equals(schema):
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    return batch.cast(schema)
