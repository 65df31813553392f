"""Shows values to people who use lancestat from Python: as text, as HTML in notebooks, as rows.

Classes take these functions as their methods. What they show is made by the views and formats of
the command line, whose package is loaded when needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lancestat.errors import LibraryMissing
from lancestat.formats import visible
from lancestat.redact import redact_line

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from lancestat.polars import pl


def summary(value: object, text: str) -> str:
    """Return the `repr` of a value on one line: `<Plan shop, target dev: 1 refresh, 2 skip>`."""
    return visible(redact_line(f"<{type(value).__name__} {text}>"))


def as_text(value: object) -> str:
    """Return what the command line prints of a value, without colours."""
    text: str = _displays().text(value)
    return text


def as_html(value: object) -> str:
    """Return a value as HTML for a notebook, in light or dark colours.

    Notebooks are saved and shared: like the pages of `lancestat docs`, the HTML has the names of
    environment variables in place of their values.
    """
    html: str = _displays().html(value)
    return html


def to_arrow(value: object) -> pa.Table:
    """Return the rows of a value as an Arrow table; instants are microseconds in UTC."""
    table: pa.Table = _displays().rows(value)
    return table


def to_polars(value: object) -> pl.DataFrame:
    """Return the rows of a value as a Polars DataFrame."""
    from lancestat.polars import pl

    frame = pl.from_arrow(to_arrow(value))
    assert isinstance(frame, pl.DataFrame)
    return frame


def to_pandas(value: object) -> pd.DataFrame:
    """Return the rows of a value as a pandas DataFrame; integers stay integers beside nulls."""
    try:
        import pandas
    except ImportError:
        raise LibraryMissing(
            "to_pandas needs pandas, which is not installed",
            hint="pip install 'pandas>=2.2,<3', or use to_arrow() or to_polars()",
        ) from None
    import pyarrow

    frame: pd.DataFrame = to_arrow(value).to_pandas(
        types_mapper={pyarrow.int64(): pandas.Int64Dtype()}.get
    )
    return frame


class Rows:
    """What values have that print as the command line does, and have rows."""

    __slots__ = ()
    __str__ = as_text
    _repr_html_ = as_html
    to_arrow = to_arrow
    to_pandas = to_pandas
    to_polars = to_polars


def _displays() -> Any:
    return import_module("lancestat.presentation.display")
