"""The writer of a result, and the errors about its location; all output formats share them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.errors import LancestatError, OutputNotWritten, OutputOccupied, RunError, StaleBase
from lancestat.joins.record import OutputFormat
from lancestat.lake.error_mapping import is_error_or_panic, is_full
from lancestat.lake.files import Process, local_path
from lancestat.redact import redact_line, secret_values
from lancestat.state.values import canonical_uri

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

# A result outlives the commit of the next one by that: longer than listing and opening files takes.
GRACE = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Written:
    """The rows that one task wrote, not yet visible; only the format understands `content`."""

    content: str
    rows: int


@dataclass(frozen=True, slots=True)
class OutputWriter:
    """A result that is being written; travels to Spark's workers.

    `folder` is the format's name for the folder of uncommitted files. `owner` is the process that
    will commit or discard them.
    """

    format: OutputFormat
    uri: str
    folder: str
    run_id: str
    owner: Process
    storage_options: Mapping[str, str] = field(repr=False)


def location_digest(uri: str) -> str:
    """Return 32 hex digits for a location, however its URI is written, which do not show it."""
    text = canonical_uri(uri).encode(errors="surrogatepass")
    return blake2b(text, digest_size=16).hexdigest()


def refused(uri: str, what: str, options: Mapping[str, str]) -> RunError:
    """Return the error for a location that holds something other than a result of a join."""
    return OutputOccupied(
        f"{redact_line(uri, secret_values(options))} is {what}, and was left as it is: only the "
        "result of an earlier join is replaced",
        hint="give the join another output, or remove what is there",
    )


def stale(uri: str, what: str, options: Mapping[str, str]) -> StaleBase:
    """Return the error for a result that is not the one to go on from."""
    redacted_uri = redact_line(uri, secret_values(options))
    return StaleBase(f"the result at {redacted_uri} {what} since it was looked at")


def require_outside_datasets(uri: str, options: Mapping[str, str]) -> None:
    """Refuse a location on this machine that is inside another Lance dataset.

    Lance takes what lies in certain folders of a dataset for parts of it: branches, manifests,
    indexes. A cleanup of the outer dataset would also remove files of the result.
    """
    path = local_path(uri)
    if path is None:
        return
    for folder in Path(os.path.realpath(path)).parents:
        if any((folder / "_versions").glob("*.manifest")):
            raise refused(uri, f"a place inside the Lance dataset {folder}", options)


def without_rows(
    batches: Iterable[pa.RecordBatch], removed: NDArray[np.int64]
) -> Iterator[pa.RecordBatch]:
    """Yield rows but for those at ascending places among them."""
    import numpy as np
    import pyarrow as pa

    start = 0
    for batch in batches:
        stop = start + batch.num_rows
        is_kept = np.ones(batch.num_rows, np.bool_)
        first, last = removed.searchsorted((start, stop)).tolist()
        is_kept[removed[first:last] - start] = False
        yield batch.filter(pa.array(is_kept))
        start = stop


@contextmanager
def writing(uri: str, options: Mapping[str, str]) -> Iterator[None]:
    """Raise what goes wrong when a result is written as `OutputNotWritten`."""
    try:
        yield
    except LancestatError:
        raise
    except BaseException as error:
        if not is_error_or_panic(error):
            raise
        hidden = secret_values(options)
        shown = redact_line(uri, hidden)
        message = f"the result cannot be written to {shown}: {redact_line(str(error), hidden)}"
        hint = "check the output and the permissions there"
        if is_full(error):
            message = f"the result does not fit: no space is left at {shown}"
            hint = "make room there, or select fewer columns"
        raise OutputNotWritten(message, hint=f"{hint}; readers still see the old result") from None


@contextmanager
def reading(uri: str, options: Mapping[str, str]) -> Iterator[None]:
    """Raise what goes wrong when files of a result are read as a StaleBase: it is not whole."""
    try:
        yield
    except LancestatError:
        raise
    except FileNotFoundError:
        raise stale(uri, "has gone", options) from None
    except Exception as error:
        reason = redact_line(str(error), secret_values(options))
        raise stale(uri, f"cannot be read any more ({reason})", options) from None
